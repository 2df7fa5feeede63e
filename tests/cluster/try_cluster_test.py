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
from processes import ClusterError, fetch, run, wait_for  # noqa: E402

TRY = os.path.join(ROOT, "scripts", "try-cluster")
# Kinds whose objects come and go while nobody does anything, or are none.
UNSTEADY = {
    "events": "told of whatever happens, and forgotten after an hour", "events.events.k8s.io": "the same under another name",
    "leases.coordination.k8s.io": "of whoever runs: an API server that starts anew has another",
    "endpointslices.discovery.k8s.io": "controllers choose their names and how many there are",
    "endpoints": "made of endpoint slices; asking for them brings a warning",
    "certificatesigningrequests.certificates.k8s.io": "made when a certificate nears its end, cleared away an hour later",
    "componentstatuses": "not stored: each is a question to a component; asking brings a warning"}
SHOWN = '-o=jsonpath={range .items[*]}{.apiVersion} {.kind} {.metadata.namespace}/{.metadata.name}{"\\n"}{end}'


class TryCluster(unittest.TestCase):
    def test_an_existing_cluster_pulls_from_a_registry_and_is_left_as_it_was(self):
        cluster = installed.cluster()
        registry = cluster.registry()
        # What the cluster makes for itself when it is new.
        own = {"v1 Node /node2", "scheduling.k8s.io/v1 PriorityClass /system-node-critical", "storage.k8s.io/v1 StorageClass /local",
               *(f"v1 {kind} {space}/{name}" for kind, name in (("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt"))
                 for space in ("default", "kube-node-lease", "kube-public", "kube-system"))}
        wait_for("the cluster has its own objects", lambda: own <= self.objects(cluster), 60)
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
        # Helm leaves definitions alone, because the objects of all tenants go with them; with them their group is served.
        kept = {f"apiextensions.k8s.io/v1 CustomResourceDefinition /{kind}.muster.dev"
                for kind in ("trainingjobs", "trainingqueues", "topologyconfigs")}
        kept.add("apiregistration.k8s.io/v1 APIService /v1alpha1.muster.dev")
        after = set()

        def is_as_it_was():
            after.clear()
            after.update(self.objects(cluster))
            return after == before | kept

        try:
            # Controllers clear away in their own time what belonged to what is gone.
            wait_for("all is as it was", is_as_it_was, 60)
        except ClusterError:
            self.assertEqual(after - before, kept)
            self.assertEqual(before - after, set())

    @staticmethod
    def objects(cluster):
        """Version, kind, namespace and name of all objects but unsteady ones."""
        kinds = set(cluster.kubectl("api-resources", "--verbs=list", "-o", "name").split()) - set(UNSTEADY)
        shown = cluster.kubectl("get", ",".join(sorted(kinds)), "--all-namespaces", SHOWN, seconds=120)
        return set(shown.splitlines())

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
