#!/usr/bin/env python3
"""Gangs as PodGroups of scheduling.k8s.io: a real API server and scheduler with the gates for it; KWOK plays the kubelets.

    tests/cluster/pod_groups_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster-operator
"""

import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_plane import ROOT, ControlPlane  # noqa: E402
from kwok import make_node, start_kwok, wait_ready  # noqa: E402
from placement_test import condition, job, start_operator  # noqa: E402
from processes import wait_for  # noqa: E402
from refusals_operator import suffix  # noqa: E402

SECONDS = 120
VERSION = "v1alpha2"  # of Kubernetes 1.36
GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
NODE = {"cpu": "8", "memory": "32Gi", "pods": "20"}
BIN_DIR = "build/release/bin"
PLANE = None


def setUpModule():
    global PLANE
    directory = tempfile.mkdtemp(prefix="muster-pod-groups-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    unittest.addModuleCleanup(shutil.rmtree, directory, ignore_errors=True)
    PLANE = ControlPlane(f"{directory}/plane", controller_manager=True, scheduler=True, programs=["kwok"], extra={
        "kube-apiserver": [GATES, f"--runtime-config=scheduling.k8s.io/{VERSION}=true"],
        "kube-controller-manager": [GATES], "kube-scheduler": [GATES]})
    PLANE.start()
    unittest.addModuleCleanup(PLANE.stop)
    PLANE.kubectl("apply", "-f", f"{ROOT}/crds")
    wait_for("the kind is served", lambda: PLANE.get("/apis/muster.dev/v1alpha1/trainingjobs"), SECONDS)
    create(make_node("n0", NODE))
    start_kwok(PLANE)
    wait_ready(PLANE, 1, SECONDS)
    start_operator(PLANE, BIN_DIR, f"--pod-groups={VERSION}")


def create(body):
    PLANE.kubectl("create", "-f", "-", stdin=json.dumps(body))


def get(name):
    return PLANE.kubectl_json("get", "trainingjob", name)


def pods_of(name):
    return PLANE.kubectl_json("get", "pods", "-l", f"muster.dev/job-name={name}")["items"]


def groups_of(name):
    found = PLANE.kubectl_json("get", f"podgroups.{VERSION}.scheduling.k8s.io", "-l", f"muster.dev/job-name={name}")["items"]
    return {group["metadata"]["name"]: group for group in found}


class PodGroups(unittest.TestCase):
    def submit(self, body):
        create(body)
        name = body["metadata"]["name"]
        self.addCleanup(self.remove, name)
        return name

    def remove(self, name):
        PLANE.kubectl("delete", "trainingjob", name, "--ignore-not-found")
        wait_for(f"pods and groups of {name} are gone", lambda: not pods_of(name) and not groups_of(name), SECONDS)

    def refused(self, name, count):
        """Whether the scheduler has found no room for so many pods, which are all that there are."""
        pods = pods_of(name)
        return len(pods) == count and all(any(one["type"] == "PodScheduled" and one["status"] == "False"
                                              for one in pod["status"].get("conditions", [])) for pod in pods)

    def runs(self, name):
        return wait_for(f"{name} runs", lambda: (lambda found: found if condition(found, "Running").get("status") == "True" else None)(get(name)), SECONDS)

    def test_a_placed_gang_is_one_group_of_all_its_pods_and_runs(self):
        name = self.submit(job("placed", 3, "1"))
        found = self.runs(name)
        (group,) = groups_of(name).values()
        self.assertEqual(group["spec"]["schedulingPolicy"], {"gang": {"minCount": 3}})
        workload = PLANE.kubectl_json("get", f"workloads.{VERSION}.scheduling.k8s.io", group["metadata"]["name"])
        self.assertEqual(workload["spec"]["controllerRef"], {"apiGroup": "muster.dev", "kind": "TrainingJob", "name": name})
        (template,) = workload["spec"]["podGroupTemplates"]
        self.assertEqual(template["schedulingPolicy"], group["spec"]["schedulingPolicy"])
        self.assertEqual(group["spec"]["podGroupTemplateRef"]["workload"],
                         {"workloadName": workload["metadata"]["name"], "podGroupTemplateName": template["name"]})
        self.assertEqual(group["metadata"]["ownerReferences"][0]["uid"], found["metadata"]["uid"])
        self.assertEqual({pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods_of(name)}, {group["metadata"]["name"]})

    def test_an_unplaced_gang_is_bound_whole_or_not_at_all(self):
        name = self.submit(job("unplaced", 5, "2", scheduling="Unplaced"))
        wait_for("the scheduler has found no room for five", lambda: self.refused(name, 5), SECONDS)
        # There is room for four of them.
        self.assertEqual([pod["spec"].get("nodeName") for pod in pods_of(name)], [None] * 5)
        create(make_node("n1", NODE))
        self.addCleanup(PLANE.kubectl, "delete", "node", "n1")
        self.runs(name)

    def test_of_two_unplaced_gangs_that_come_together_one_is_bound_whole_and_the_other_holds_nothing(self):
        # Pod by pod there is room for two of each.
        names = ["left", "right"]
        for name in names:
            self.addCleanup(self.remove, name)
        create({"apiVersion": "v1", "kind": "List", "items": [job(name, 3, "2", scheduling="Unplaced") for name in names]})
        first = wait_for("one of them runs", lambda: next(
            (name for name in names if condition(get(name), "Running").get("status") == "True"), None), SECONDS)
        names.remove(first)
        (other,) = names
        wait_for("the scheduler has found no room for the other", lambda: self.refused(other, 3), SECONDS)
        self.assertEqual([pod["spec"].get("nodeName") for pod in pods_of(other)], [None] * 3)
        self.assertEqual([pod["spec"]["nodeName"] for pod in pods_of(first)], ["n0"] * 3)
        self.remove(first)
        self.runs(other)
        self.assertEqual(get(other)["status"].get("restarts", 0), 0)

    def test_a_worker_alone_is_no_group(self):
        name = self.submit(job("alone", 1, "1"))
        self.runs(name)
        self.assertEqual(groups_of(name), {})
        self.assertNotIn("schedulingGroup", pods_of(name)[0]["spec"])

    def test_s12_a_name_that_somebody_has_taken(self):
        for kind in ("workloads", "podgroups"):
            name = self.submit(job(f"taken-{kind}", 2, "1", suspend=True))
            wait_for(f"{name} is suspended", lambda of=name: condition(get(of), "Suspended").get("status") == "True", SECONDS)
            child = f"{name}-{suffix(get(name)['metadata']['uid'])}-0"
            workload = child if kind == "workloads" else "somebodys"
            policy = {"gang": {"minCount": 9}}
            strangers = {"workloads": {"kind": "Workload", "metadata": {"name": workload}, "spec": {
                "podGroupTemplates": [{"name": "theirs", "schedulingPolicy": policy}]}}}
            if kind == "podgroups":
                strangers[kind] = {"kind": "PodGroup", "metadata": {"name": child}, "spec": {
                    "schedulingPolicy": policy, "podGroupTemplateRef": {"workload": {
                        "workloadName": workload, "podGroupTemplateName": "theirs"}}}}
            for plural, body in strangers.items():
                create({"apiVersion": f"scheduling.k8s.io/{VERSION}", **body})
                self.addCleanup(PLANE.kubectl, "delete", f"{plural}.{VERSION}.scheduling.k8s.io", body["metadata"]["name"])
            where = ("get", f"{kind}.{VERSION}.scheduling.k8s.io", child)
            before = PLANE.kubectl_json(*where)
            PLANE.kubectl("patch", "trainingjob", name, "--type=merge", "-p", json.dumps({"spec": {"suspend": False}}))
            told = wait_for(f"{name} says so", lambda of=name: (lambda found: found if found.get("reason") == "NameConflict"
                                                                 else None)(condition(get(of), "Admitted")), SECONDS)
            self.assertIn(child, told["message"])
            self.assertIn("belongs to something else", told["message"])
            self.assertEqual(pods_of(name), [])
            # Its next start has names of its own.
            self.runs(name)
            self.assertNotIn(child, {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods_of(name)})
            self.remove(name)
            after = PLANE.kubectl_json(*where)
            self.assertEqual(after["metadata"]["uid"], before["metadata"]["uid"])
            self.assertNotIn("ownerReferences", after["metadata"])
            self.assertEqual(after["spec"], before["spec"])

    def test_a_gang_that_starts_again_is_another_group(self):
        name = self.submit(job("again", 2, "1"))
        self.runs(name)
        before = set(groups_of(name))
        victim = pods_of(name)[0]["metadata"]["name"]
        failed = {"status": {"phase": "Failed", "containerStatuses": [{
            "name": "worker", "image": "x", "imageID": "x", "ready": False, "restartCount": 0,
            "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}}
        PLANE.kubectl("patch", "pod", victim, "--subresource=status", "--type=merge", "-p", json.dumps(failed))
        wait_for("it was started again", lambda: get(name)["status"]["restarts"] == 1, SECONDS)
        self.runs(name)
        (new,) = set(groups_of(name)) - before
        self.assertEqual({pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods_of(name)
                          if pod["status"]["phase"] == "Running"}, {new})


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN_DIR = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
