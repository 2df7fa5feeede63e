#!/usr/bin/env python3
"""The kubectl plugin's krew manifest is well formed, and its archive installs as `kubectl muster`.

krew itself is in no registry that the tests may need, so what it does with a manifest is done here: the rules of its
validation, the hash, the file operations and the link on PATH.
"""

import fnmatch
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_plane import ROOT, kube_tools  # noqa: E402
from processes import ClusterError, run  # noqa: E402

BIN = os.environ.get("MUSTER_BIN") or os.path.join(ROOT, "build", "release", "bin")
PACKAGE = os.path.join(ROOT, "scripts", "krew-package")


def wrong(plugin):
    """What krew would refuse about the manifest, in words; empty when nothing."""
    spec, found = plugin.get("spec", {}), []
    if plugin.get("apiVersion") != "krew.googlecontainertools.github.com/v1alpha2" or plugin.get("kind") != "Plugin":
        found.append("apiVersion or kind")
    if not re.fullmatch(r"[\w-]+", plugin.get("metadata", {}).get("name", "")):
        found.append("metadata.name")
    if not re.fullmatch(r"v\d+\.\d+\.\d+", spec.get("version", "")):
        found.append("spec.version")
    if not re.fullmatch(r"[^\r\n]{1,50}", spec.get("shortDescription", "")):
        found.append("spec.shortDescription")
    if not spec.get("platforms"):
        found.append("spec.platforms")
    for entry in spec.get("platforms", []):
        if not re.fullmatch(r"[0-9a-f]{64}", entry.get("sha256", "")) or not entry.get("uri", "").startswith("https://"):
            found.append("sha256 or uri")
        if set(entry.get("selector", {}).get("matchLabels", {})) != {"os", "arch"} or not entry.get("bin"):
            found.append("selector or bin")
        if not entry.get("files") or any(not rule.get("from") or not rule.get("to") for rule in entry["files"]):
            found.append("files")
    return found


def install(plugin, archive, root):
    """As `krew install --manifest --archive`: returns the directory for PATH. ClusterError when the hash differs."""
    entry = plugin["spec"]["platforms"][0]
    with open(archive, "rb") as file:
        if hashlib.sha256(file.read()).hexdigest() != entry["sha256"]:
            raise ClusterError("checksum does not match")
    unpacked, store = os.path.join(root, "download"), os.path.join(root, "store")
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
        names = [member.name for member in tar.getmembers()]
    for rule in entry["files"]:
        matching = [name for name in names if fnmatch.fnmatch(name, rule["from"])]
        if not matching:
            raise ClusterError(f"no file matches {rule['from']}")
        target = os.path.join(store, rule["to"])
        os.makedirs(target, exist_ok=True)
        for name in matching:
            shutil.move(os.path.join(unpacked, name), target)
    path = os.path.join(root, "bin")
    os.makedirs(path)
    os.symlink(os.path.join(store, entry["bin"]), os.path.join(path, f"kubectl-{plugin['metadata']['name']}"))
    return path


class KrewTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-krew-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def package(self, name="package"):
        """(manifest, path of the archive)"""
        archive, manifest = run([PACKAGE, "--program", os.path.join(BIN, "muster"), "--output",
                                 os.path.join(self.directory, name)]).split()
        with open(manifest, encoding="utf-8") as file:
            plugin = json.load(file)
        self.assertEqual(plugin["spec"]["platforms"][0]["uri"].split("/")[-1], os.path.basename(archive))
        return plugin, archive

    def test_krew_would_take_the_manifest_and_not_a_broken_one(self):
        plugin, _ = self.package()
        self.assertEqual(wrong(plugin), [])
        del plugin["spec"]["platforms"][0]["sha256"]
        plugin["spec"]["version"] = "0.1"
        self.assertEqual(wrong(plugin), ["spec.version", "sha256 or uri"])

    def test_the_archive_installs_as_kubectl_muster_with_its_libraries(self):
        plugin, archive = self.package()
        path = install(plugin, archive, self.directory)
        tools = kube_tools(["kubectl"])
        said = run([os.path.join(tools, "kubectl"), "muster", "get", "--help"],
                   env={"PATH": f"{path}:{tools}:/usr/bin:/bin", "HOME": self.directory})
        self.assertIn("kubectl muster get", said)
        environment = {"PATH": f"{path}:{tools}:/usr/bin:/bin", "HOME": self.directory, "KREW_ROOT": os.path.dirname(path)}
        run(["sh", "-c", plugin["spec"]["caveats"].splitlines()[-1]], env=environment)
        said = run([os.path.join(tools, "kubectl"), "__complete", "muster", "su"], env=environment)
        self.assertRegex(said, r"(?m)^suspend\t.*\n:4$")
        linked = run(["ldd", os.path.realpath(os.path.join(path, "kubectl-muster"))])
        others = [line for line in linked.splitlines() if "=> /" in line and self.directory not in line]
        self.assertEqual([line for line in others if not re.search(r"lib(c|m)\.so", line)], [])

    def test_packing_again_gives_the_same_bytes_and_another_archive_is_refused(self):
        plugin, archive = self.package()
        again, other = self.package("again")
        self.assertEqual(again, plugin)
        with open(other, "ab") as file:
            file.write(b"\0")
        with self.assertRaisesRegex(ClusterError, "checksum"):
            install(plugin, other, os.path.join(self.directory, "tampered"))

    def test_a_missing_program_is_said(self):
        done = subprocess.run([PACKAGE, "--program", "/nowhere/muster"], text=True, capture_output=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("/nowhere/muster: no such program; build it", done.stderr)


if __name__ == "__main__":
    unittest.main()
