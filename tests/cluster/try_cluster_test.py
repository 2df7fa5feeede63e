#!/usr/bin/env python3
"""`scripts/try-cluster --kubeconfig FILE --registry HOST:PORT` on a cluster that it did not make.

Needs root. The images are built from build/release, pushed to a real registry and pulled by two real nodes. In a process
of its own: an image that a kubelet has pulled it does not take under another name without pulling it again.
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from installed import ROOT  # noqa: E402
from processes import ClusterError, fetch, run  # noqa: E402

TRY = os.path.join(ROOT, "scripts", "try-cluster")


class TryCluster(unittest.TestCase):
    def test_an_existing_cluster_pulls_from_a_registry_and_is_left_as_it_was(self):
        cluster = installed.cluster()
        registry = cluster.registry()
        before = self.objects(cluster)
        said = run([TRY, "--kubeconfig", cluster.plane.kubeconfig, "--registry", registry, "--insecure"], seconds=1500,
                   env={**cluster.plane.environment(), "MUSTER_TESTS": "ON"})
        self.assertIn("trainingjob.muster.dev/digits condition met", said)
        self.assertIn("the same bits as on the laptop", said)
        self.assertRegex(said, r"image\.digest=sha256:[0-9a-f]{64},worker\.image\.digest=sha256:[0-9a-f]{64}\b")
        pushed = json.loads(fetch(f"http://{registry}/v2/_catalog"))["repositories"]
        self.assertEqual(pushed, ["muster-operator", "muster-worker"])
        for node in cluster.nodes:
            self.assertTrue(any(name.startswith(registry) for name in node.images()), "nodes pulled from the registry")
        # Helm leaves definitions alone, because the objects of all tenants go with them.
        self.assertEqual(self.objects(cluster) - before,
                         {f"customresourcedefinition.apiextensions.k8s.io/{kind}.muster.dev"
                          for kind in ("trainingjobs", "trainingqueues", "topologyconfigs")})

    @staticmethod
    def objects(cluster):
        """Names of what an installation makes, and of the namespaces."""
        kinds = ("customresourcedefinitions,clusterroles,clusterrolebindings,namespaces,validatingadmissionpolicies,"
                 "validatingadmissionpolicybindings")
        return set(cluster.kubectl("get", kinds, "-o", "name").split())

    def test_where_muster_or_a_namespace_of_its_name_is_nothing_is_touched(self):
        cluster = installed.cluster()
        registry = "127.0.0.1:1"   # what would push there fails
        for namespace in ("muster", "muster-try"):
            with self.subTest(namespace=namespace):
                cluster.kubectl("create", "namespace", namespace)
                cluster.kubectl("create", "configmap", "theirs", "-n", namespace)
                try:
                    self.refuses(cluster, registry, f"namespace/{namespace}")
                    self.assertIn("theirs", cluster.kubectl("get", "configmaps", "-n", namespace))
                finally:
                    cluster.kubectl("delete", "namespace", namespace)
        cluster.kubectl("create", "namespace", "elsewhere")
        try:
            cluster.kubectl("create", "deployment", "muster-operator", "-n", "elsewhere", "--image=none", "--replicas=0")
            cluster.kubectl("label", "deployment", "muster-operator", "-n", "elsewhere", "--overwrite",
                            "app.kubernetes.io/name=muster")
            self.refuses(cluster, registry, "elsewhere/Deployment/muster-operator")
        finally:
            cluster.kubectl("delete", "namespace", "elsewhere")

    def refuses(self, cluster, registry, names):
        with self.assertRaises(ClusterError) as caught:
            run([TRY, "--kubeconfig", cluster.plane.kubeconfig, "--registry", registry],
                env=cluster.plane.environment())
        self.assertIn("exit code 2", str(caught.exception))
        self.assertIn(names, str(caught.exception))

    def test_what_cannot_work_is_said_at_once(self):
        for arguments, sentence in [
                (["--registry", "127.0.0.1:1"], "--kubeconfig and --registry go together"),
                (["--kubeconfig", "/nowhere/config", "--registry", "127.0.0.1:1"], "/nowhere/config: no such file"),
                (["--kubeconfig", "/dev/null", "--registry", "127.0.0.1:1"], "its API server does not answer"),
                (["--insecure"], "--insecure is about --registry"),
                (["--nodes", "0"], "--nodes 0: a number from 1 to 99")]:
            with self.assertRaises(ClusterError) as caught:
                run([TRY, *arguments], env=installed.cluster().plane.environment())
            self.assertIn("exit code 2", str(caught.exception))
            self.assertIn(sentence, str(caught.exception))


if __name__ == "__main__":
    installed.main()
