"""Container images (OCI archives) made of a few files, without a registry, a daemon or a base image."""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import tarfile

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
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as layer:
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
    packed = gzip.compress(plain.getvalue(), 1, mtime=0)
    architecture = MACHINES.get(platform.machine(), platform.machine())
    config = {"architecture": architecture, "os": "linux",
              "config": {"Entrypoint": entrypoint, "User": user, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]},
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain.getvalue()).hexdigest()]}}
    blobs = {}

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    layer_blob = blob("layer.v1.tar+gzip", packed)
    config_blob = blob("config.v1+json", json.dumps(config).encode())
    manifest = blob("manifest.v1+json", json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config_blob,
        "layers": [layer_blob]}).encode())
    manifest["annotations"] = {"org.opencontainers.image.ref.name": name}
    with tarfile.open(path, "w") as archive:
        def add(file_name, data):
            entry = tarfile.TarInfo(file_name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))

        add("oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        add("index.json", json.dumps({"schemaVersion": 2, "manifests": [manifest]}).encode())
        for digest, data in blobs.items():
            add(f"blobs/sha256/{digest}", data)
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
