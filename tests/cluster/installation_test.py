#!/usr/bin/env python3
"""`helm test`, `helm upgrade` and `helm uninstall` on a real cluster, while workers train.

Needs root and the release programs.
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from installed import CHART, helm  # noqa: E402
from long_job import LongJobTest  # noqa: E402
from processes import ClusterError, wait_for  # noqa: E402

OPERATOR = "localhost/muster/muster-operator"
TEST = ["test", "muster", "--timeout", "2m"]


class Installation(LongJobTest):
    def operators(self):
        return json.loads(self.cluster.kubectl("-n", "muster", "get", "pods", "-l",
                                               "app.kubernetes.io/component=operator", "-o", "json"))["items"]

    def test_helm_test_passes_and_fails_without_operators(self):
        self.assertRegex(helm(*TEST), r"(?s)TEST SUITE: +muster-test.*Phase: +Succeeded")
        self.addCleanup(self.cluster.kubectl, "-n", "muster", "rollout", "status", "deployment/muster-operator",
                        "--timeout=90s")
        self.addCleanup(self.cluster.kubectl, "-n", "muster", "scale", "deployment/muster-operator", "--replicas=2")
        self.cluster.kubectl("-n", "muster", "scale", "deployment/muster-operator", "--replicas=0")
        wait_for("the operators are gone", lambda: not self.operators(), 60)
        with self.assertRaises(ClusterError) as caught:
            helm(*TEST)
        self.assertRegex(str(caught.exception), "muster-test.*failed|Phase: +Failed")

    def test_an_upgrade_with_other_values_and_images_restarts_no_worker(self):
        tag = "0.1.0-next"
        for node in self.cluster.nodes:
            node.run("ctr", "--namespace=k8s.io", "images", "tag", "--force", f"{OPERATOR}:0.1.0", f"{OPERATOR}:{tag}")
        self.start_long("upgrade", cpu="90m")
        before, operators = self.containers("upgrade"), {pod["metadata"]["uid"] for pod in self.operators()}
        self.assertEqual(len(before), 2)
        helm("upgrade", "muster", CHART, "--reset-then-reuse-values", "--set", f"logLevel=debug,image.tag={tag}", "--wait",
             "--timeout", "2m")
        self.addCleanup(helm, "rollback", "muster", "1", "--wait", "--timeout", "2m")
        after = wait_for("the old operators are gone", lambda: (
            lambda pods: not operators & {pod["metadata"]["uid"] for pod in pods} and pods)(self.operators()), 60)
        for pod in after:
            self.assertEqual(pod["spec"]["containers"][0]["image"], f"{OPERATOR}:{tag}")
            self.assertIn("--log-level=debug", pod["spec"]["containers"][0]["args"])
        self.assert_trains("upgrade")
        self.ended("upgrade")
        self.assertEqual(self.containers("upgrade"), before)
        self.assertEqual({count for _, _, count in before}, {0})
        self.assertEqual(self.job("upgrade")["status"].get("restarts", 0), 0)
        self.assertEqual(self.fetched_model("upgrade"), self.laptop_model())

    def test_workers_train_on_without_an_installation_and_another_finds_them(self):
        self.start_long("orphans")
        before = self.containers("orphans")
        installed.uninstall()
        self.assertEqual(self.cluster.kubectl("get", "crd", "trainingjobs.muster.dev", "-o", "name").strip(),
                         "customresourcedefinition.apiextensions.k8s.io/trainingjobs.muster.dev")
        self.assertEqual(self.containers("orphans"), before)
        wait_for("they come to their end alone", lambda: {pod["status"]["phase"] for pod in self.pods("orphans")} ==
                 {"Succeeded"}, 180)
        self.assertFalse([condition for condition in self.job("orphans")["status"]["conditions"]
                          if condition["type"] == "Complete" and condition["status"] == "True"])
        installed.install()
        self.ended("orphans")
        self.assertEqual(self.containers("orphans"), before)
        self.assertEqual(self.fetched_model("orphans"), self.laptop_model())


if __name__ == "__main__":
    installed.main()
