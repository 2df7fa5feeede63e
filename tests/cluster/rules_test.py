#!/usr/bin/env python3
"""Own programs under rules of nodes and namespaces, on a real cluster with the chart installed: required node affinity,
ResourceQuota and LimitRange.

Needs root and build/release/bin. One cluster and one installation serve all cases.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from own_images_test import Programs, shell_job  # noqa: E402
from processes import wait_for  # noqa: E402

GPU, CUDA = "example.com/gpu", "example.com/cuda"


def selects(*terms):
    """spec.worker.affinity of terms of expressions (key, operator, values...)."""
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}
                              for key, operator, *values in term]} for term in terms]}}}}


class Affinity(Programs):
    def setUp(self):
        self.label("node1", "h100", "12")
        self.label("node2", "a100", "11")
        self.addCleanup(self.cluster.kubectl, "label", "nodes", "node1", "node2", f"{GPU}-", f"{CUDA}-")

    def label(self, node, gpu, cuda):
        self.cluster.kubectl("label", "node", node, "--overwrite", f"{GPU}={gpu}", f"{CUDA}={cuda}")

    def nodes_of(self, manifest):
        """Where the workers of a job ran."""
        name = self.start(manifest)
        self.ended(name)
        return [pod["spec"]["nodeName"] for pod in self.pods(name)]

    def test_workers_run_on_the_nodes_that_the_terms_name_and_on_no_other(self):
        self.assertEqual(self.nodes_of(shell_job("all-of-a-term", "true", count=2, **selects(
            [(GPU, "In", "h100", "h200"), (CUDA, "Gt", "11")]))), ["node1", "node1"])
        self.assertEqual(self.nodes_of(shell_job("any-of-terms", "true", count=2, **selects(
            [(GPU, "NotIn", "h100")], [("nowhere", "Exists")]))), ["node2", "node2"])
        # Where the cluster's scheduler chooses it has the expressions themselves.
        unplaced = shell_job("unplaced", "true", count=1, **selects([(CUDA, "Lt", "12")]))
        unplaced["spec"]["scheduling"] = "Unplaced"
        self.assertEqual(self.nodes_of(unplaced), ["node2"])

    def test_a_job_that_no_node_suits_says_so_and_starts_when_one_does(self):
        name = self.start(shell_job("picky", "true", count=1, **selects([(GPU, "In", "b200")])))
        wait_for("it says that no node suits", lambda: "2 x not selected (spec.worker.affinity)" in json.dumps(self.status(name)), 60)
        self.assertEqual(self.pods(name), [])
        self.label("node2", "b200", "13")
        self.ended(name)
        self.assertEqual([pod["spec"]["nodeName"] for pod in self.pods(name)], ["node2"])


class Quota(Programs):
    namespace = "limited"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.apply({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "400m"}, "default": {"ephemeral-storage": "1Gi"}}]}})
        cls.set_quota(3)

    @classmethod
    def set_quota(cls, pods):
        cls.apply({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"},
                   "spec": {"hard": {"pods": str(pods), "limits.cpu": "2"}}})

    def refused(self, name, reason):
        """What Admitted says of a job whose pods the API server does not take."""
        def said():
            return next((one["message"] for one in self.status(name).get("conditions", [])
                         if (one["type"], one["status"], one["reason"]) == ("Admitted", "False", reason)), None)

        message = wait_for(f"{name} says {reason}", said, 90)
        told = self.muster("describe", name)
        self.assertIn(f"kubectl -n {self.namespace} describe quota", told)
        self.assertNotIn("expected start", told)
        return message

    def test_a_gang_that_exceeds_the_quota_keeps_nothing_and_smaller_ones_run_meanwhile(self):
        gang = self.start(shell_job("gang", "true", count=4))
        self.assertIn("exceeded quota: few", self.refused(gang, "QuotaExceeded"))
        # Between two tries of it, or when its next one has failed.
        for number in range(3):
            small = self.start(shell_job(f"small-{number}", "true", count=2))
            self.ended(small)
        self.assertEqual(self.status(gang).get("restarts", 0), 0)
        self.set_quota(10)
        self.addCleanup(self.set_quota, 3)
        self.ended(gang)

    def test_a_gang_that_the_limit_range_forbids_says_so(self):
        name = self.start(shell_job("large", "true", count=1, resources={"cpu": "500m", "memory": "32Mi"}))
        self.assertIn("maximum cpu usage per Container is 400m", self.refused(name, "CreateFailed"))


if __name__ == "__main__":
    installed.main()
