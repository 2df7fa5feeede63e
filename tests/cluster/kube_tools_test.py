#!/usr/bin/env python3
"""scripts/kube-tools takes what is there, and builds the rest once, also when two ask at the same time."""

import os
import stat
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class KubeToolsTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="muster-test-")
        self.addCleanup(scratch.cleanup)
        self.scratch = scratch.name

    def script(self, path, text):
        path = os.path.join(self.scratch, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n" + text)
        os.chmod(path, stat.S_IRWXU)
        return path

    def start(self, *names, **env):
        clean = {"PATH": "/usr/bin:/bin", "HOME": self.scratch, "XDG_CACHE_HOME": os.path.join(self.scratch, "cache")}
        return subprocess.Popen([os.path.join(ROOT, "scripts", "kube-tools"), *names], env={**clean, **env}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def tools(self, *names, **env):
        started = self.start(*names, **env)
        out, errors = started.communicate(timeout=120)
        return started.returncode, out.strip(), errors

    def test_assets_that_hold_all_programs_asked_for_are_taken_as_they_are(self):
        for name in ("etcd", "kubectl"):
            self.script(f"assets/{name}", "exit 1\n")
        assets = os.path.join(self.scratch, "assets")
        self.assertEqual(self.tools("etcd", "kubectl", KUBEBUILDER_ASSETS=assets), (0, assets, ""))

    def test_a_program_on_path_is_taken_when_its_version_suits(self):
        self.script("bin/kubelet", "echo Kubernetes v1.36.1\n")
        code, directory, errors = self.tools("kubelet", PATH=f"{self.scratch}/bin:/usr/bin:/bin")
        self.assertEqual((code, errors), (0, ""))
        out = subprocess.run([f"{directory}/kubelet"], capture_output=True, text=True, check=True).stdout
        self.assertIn("v1.36.1", out)

    def fake_go(self):
        """A go that builds a program in a second and counts how often."""
        return self.script("bin/go", f"""
if [ "$1" = version ]; then echo go version go1.99.0 linux/amd64; exit; fi
echo built >>{self.scratch}/builds
sleep 1
while [ $# -gt 0 ]; do [ "$1" = -o ] && printf '#!/bin/sh\\necho Kubernetes v1.36.3\\n' >"$2" && chmod +x "$2"; shift; done
""")

    def builds(self):
        with open(f"{self.scratch}/builds", encoding="utf-8") as file:
            return len(file.readlines())

    def test_one_of_another_version_is_not_taken_and_two_callers_build_one(self):
        self.fake_go()
        self.script("bin/kubelet", "echo Kubernetes v1.20.0\n")
        path = f"{self.scratch}/bin:/usr/bin:/bin"
        callers = [self.start("kubelet", PATH=path) for _ in range(3)]
        for caller in callers:
            out, errors = caller.communicate(timeout=120)
            self.assertEqual(caller.returncode, 0, errors)
            self.assertTrue(os.access(f"{out.strip()}/kubelet", os.X_OK))
        self.assertEqual(self.builds(), 1)
        self.assertEqual(self.tools("kubelet", PATH=path)[0], 0)
        self.assertEqual(self.builds(), 1)

    def test_a_build_that_fails_is_told_with_its_words_and_leaves_no_program(self):
        self.script("bin/go", '[ "$1" = version ] && echo go version go1.99.0 linux/amd64 && exit\necho no disk; exit 1\n')
        code, _, errors = self.tools("kubelet", PATH=f"{self.scratch}/bin:/usr/bin:/bin")
        self.assertEqual(code, 1)
        self.assertIn("kubelet cannot be built:\nno disk", errors)
        self.assertFalse(os.path.exists(f"{self.scratch}/cache/muster/k8s/v1.36.3/kubelet"))

    def test_an_unknown_program_is_refused_with_the_known_ones(self):
        code, _, errors = self.tools("kubeadm")
        self.assertEqual(code, 1)
        self.assertIn("unknown program kubeadm; known: etcd, kube-apiserver", errors)


if __name__ == "__main__":
    unittest.main()
