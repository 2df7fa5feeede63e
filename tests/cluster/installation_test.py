#!/usr/bin/env python3
"""`helm test`, `helm upgrade` and `helm uninstall` on a real cluster, while workers train. Helm 3 has installed; Helm 4 is tried on it.

Needs root and the release programs.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from installed import CHART, helm  # noqa: E402
from long_job import LongJobTest, long_job  # noqa: E402
from processes import ClusterError, wait_for  # noqa: E402

OPERATOR, TAG = "localhost/muster/muster-operator", "0.1.0"
HELMS = ["helm", "helm4"]
TEST = ["test", "muster", "--timeout", "2m"]


class Installation(LongJobTest):
    def test_helm_test_passes_and_fails_without_operators(self):
        for program in HELMS:
            self.assertRegex(helm(*TEST, program=program), r"(?s)TEST SUITE: +muster-test.*Phase: +Succeeded", program)
        self.addCleanup(self.cluster.kubectl, "-n", "muster", "rollout", "status", "deployment/muster-operator",
                        "--timeout=90s")
        self.addCleanup(self.cluster.kubectl, "-n", "muster", "scale", "deployment/muster-operator", "--replicas=2")
        self.cluster.kubectl("-n", "muster", "scale", "deployment/muster-operator", "--replicas=0")
        wait_for("the operators are gone", lambda: not installed.operators(), 60)
        for program in HELMS:
            with self.assertRaises(ClusterError) as caught:
                helm(*TEST, program=program)
            self.assertRegex(str(caught.exception), "muster-test.*failed|Phase: +Failed", program)

    def test_upgrades_by_both_helms_with_other_values_and_images_restart_no_worker(self):
        for node in self.cluster.nodes:
            node.run("ctr", "--namespace=k8s.io", "images", "tag", "--force", f"{OPERATOR}:{TAG}", f"{OPERATOR}:{TAG}-next")
        self.apply_with_claim(long_job("upgrade", cpu="90m"))
        # Both come within its training.
        wait_for("it trains", lambda: self.step("upgrade") > 0, 240)
        before = self.containers("upgrade")
        self.assertEqual(len(before), 2)
        # Helm 4 goes on with a release of Helm 3 as that has begun it.
        self.addCleanup(helm, "rollback", "muster", "1", "--wait", "--timeout", "2m", program="helm4")
        for program, level, tag in zip(HELMS, ("debug", "info"), (f"{TAG}-next", TAG)):
            operators = {pod["metadata"]["uid"] for pod in installed.operators()}
            helm("upgrade", "muster", CHART, "--reset-then-reuse-values", "--set", f"logLevel={level},image.tag={tag}", "--wait",
                 "--timeout", "2m", program=program)
            after = self.instead_of(operators)
            for pod in after:
                self.assertEqual(pod["spec"]["containers"][0]["image"], f"{OPERATOR}:{tag}", program)
                self.assertIn(f"--log-level={level}", pod["spec"]["containers"][0]["args"], program)
            self.assert_trains("upgrade")
        self.ended("upgrade")
        self.assertEqual(self.containers("upgrade"), before)
        self.assertEqual({count for _, _, count in before}, {0})
        self.assertEqual(self.job("upgrade")["status"].get("restarts", 0), 0)
        self.assertEqual(self.fetched_model("upgrade"), self.laptop_model())

    def instead_of(self, operators):
        """The operators that are there once these are gone."""
        def others():
            pods = installed.operators()
            return not operators & {pod["metadata"]["uid"] for pod in pods} and pods
        return wait_for("the old operators are gone", others, 60)

    def test_workers_train_on_without_an_installation_and_another_finds_them(self):
        self.start_long("orphans")
        before = self.containers("orphans")
        installed.uninstall("helm4")
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
