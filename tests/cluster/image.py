"""Container images (OCI archives) made of a few files, without a registry, a daemon or a base image."""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import tarfile
import tempfile

from processes import ClusterError, run

MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PAUSE = """#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
// Process 1 of a pod: holds its namespaces, reaps orphans, ends when asked.
static void on_end(int number) { (void)number; _exit(0); }
static void on_child(int number) { (void)number; while (waitpid(-1, 0, WNOHANG) > 0) {} }
int main(void) {
  signal(SIGINT, on_end); signal(SIGTERM, on_end); signal(SIGCHLD, on_child);
  for (;;) pause();
}
"""


def closure(program):
    """The program and the shared libraries it needs, path in the image -> path here."""
    files = {program: program}
    out = run(["ldd", program], check=False)
    for path in re.findall(r"(/\S+) \(0x", out):
        files[path] = path
    return files


def write_image(path, name, files, entrypoint, links=None, user="65532:65532"):
    """Writes an OCI archive with one layer.

    `files`: path in the image -> path here; `links`: path in the image -> what the link says. Readable and runnable
    by everybody, owned by root.
    """
    def fill(layer):
        folders = {"tmp": 0o1777}
        for target in [*files, *(links or {})]:
            parts = target.strip("/").split("/")[:-1]
            folders.update({"/".join(parts[:depth + 1]): 0o755 for depth in range(len(parts))})
        for folder, mode in sorted(folders.items()):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            layer.addfile(entry)
        for target, source in sorted(files.items()):
            entry = tarfile.TarInfo(target.strip("/"))
            entry.size, entry.mode = os.stat(source).st_size, 0o755
            with open(source, "rb") as file:
                layer.addfile(entry, file)
        for target, value in sorted((links or {}).items()):
            entry = tarfile.TarInfo(target.strip("/"))
            entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, value, 0o777
            layer.addfile(entry)

    return write_archive(path, name, fill, {"Entrypoint": entrypoint, "User": user})


class _Digest:
    """A file to write to that passes all on and knows its SHA-256."""

    def __init__(self, target):
        self.target, self.sha256 = target, hashlib.sha256()

    def write(self, data):
        self.sha256.update(data)
        return self.target.write(data)


def write_archive(path, name, fill, config):
    """Writes an OCI archive whose one layer is what `fill(tarfile)` adds; it may be larger than memory.

    `config`: Entrypoint, Cmd, User, Env and WorkingDir of the image's containers. `path` is there whole or not at all.
    """
    blobs = {}

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    with tempfile.TemporaryFile(dir=os.path.dirname(os.path.abspath(path))) as packed:
        outer = _Digest(packed)
        with gzip.GzipFile(fileobj=outer, mode="wb", compresslevel=1, mtime=0, filename="") as zipped:
            inner = _Digest(zipped)
            with tarfile.open(fileobj=inner, mode="w|", format=tarfile.PAX_FORMAT) as layer:
                fill(layer)
        layer_digest, layer_size = outer.sha256.hexdigest(), packed.tell()
        packed.seek(0)
        architecture = MACHINES.get(platform.machine(), platform.machine())
        config_blob = blob("config.v1+json", json.dumps({
            "architecture": architecture, "os": "linux",
            "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], **config},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + inner.sha256.hexdigest()]}}).encode())
        manifest = blob("manifest.v1+json", json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config_blob,
            "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "size": layer_size,
                        "digest": "sha256:" + layer_digest}]}).encode())
        manifest["annotations"] = {"org.opencontainers.image.ref.name": name}
        with tarfile.open(path + ".partial", "w") as archive:
            def add(file_name, file, size):
                entry = tarfile.TarInfo(file_name)
                entry.size = size
                archive.addfile(entry, file)

            index = json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode()
            small = {"oci-layout": b'{"imageLayoutVersion":"1.0.0"}', "index.json": index,
                     **{f"blobs/sha256/{digest}": data for digest, data in blobs.items()}}
            for file_name, data in small.items():
                add(file_name, io.BytesIO(data), len(data))
            add(f"blobs/sha256/{layer_digest}", packed, layer_size)
    os.rename(path + ".partial", path)
    return path


def pause_image(path, name):
    """The image that holds a pod's namespaces; needs a C compiler."""
    program = f"{path}.program"
    run(["gcc", "-static", "-Os", "-s", "-x", "c", "-", "-o", program], stdin=PAUSE)
    return write_image(path, name, {"/pause": program}, ["/pause"])


def shell_image(path, name):
    """A small image with a shell and the usual programs: Debian's busybox with the libraries it needs."""
    program = "/bin/busybox"
    if not os.path.exists(program):
        raise ClusterError("no /bin/busybox; run scripts/install-deps --cluster")
    applets = [name for name in run([program, "--list"]).split() if name != "busybox"]
    return write_image(path, name, closure(program), ["/bin/sh"],
                       {f"/bin/{applet}": "busybox" for applet in applets})
