#!/usr/bin/env python3
"""Gangs that Kueue admits: a real API server, scheduler, controllers and Kueue v0.19.2; KWOK plays the kubelets.

    tests/cluster/kueue_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster-operator and muster
"""

import json
import os
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_plane import ROOT, ControlPlane  # noqa: E402
from kueue import start_kueue  # noqa: E402
from kwok import make_node, start_kwok, wait_ready  # noqa: E402
from placement_test import condition, job, start_operator  # noqa: E402
from processes import ClusterError, run, wait_for  # noqa: E402

SECONDS = 120
QUOTA = 8  # CPUs; node n0 has room for more, so that only Kueue holds anything back
IN_ONE = "kueue.x-k8s.io/podset-required-topology"
HALL = "example.com/hall"  # a level of which only a Topology of Kueue tells
# Neighbours by name stand in different halls; of two processors each.
HALLS = {f"t{number}": f"h{number % 2}" for number in range(4)}
QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
PRIORITY = "kueue.x-k8s.io/priority-class"
BIN_DIR = "build/release/bin"
PLANE = None


def setUpModule():
    global PLANE
    directory = tempfile.mkdtemp(prefix="muster-kueue-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    unittest.addModuleCleanup(shutil.rmtree, directory, ignore_errors=True)
    PLANE = ControlPlane(f"{directory}/plane", controller_manager=True, scheduler=True, programs=["kwok", "kueue"])
    PLANE.start()
    unittest.addModuleCleanup(PLANE.stop)
    PLANE.kubectl("apply", "-f", f"{ROOT}/crds")
    wait_for("the kind is served", lambda: PLANE.get("/apis/muster.dev/v1alpha1/trainingjobs"), SECONDS)
    start_kueue(PLANE)
    in_halls = [make_node(name, {"cpu": "2", "memory": "8Gi", "pods": "10"}, {HALL: hall, "part": "halls"})
                for name, hall in HALLS.items()]
    create(*queue_objects("lab", "team", "any"), made("WorkloadPriorityClass", "high", value=1000),
           make_node("n0", {"cpu": "64", "memory": "256Gi", "pods": "100"}), *in_halls)
    start_kwok(PLANE, ends=True)
    wait_ready(PLANE, 1 + len(HALLS), SECONDS)
    start_operator(PLANE, BIN_DIR)


def made(kind, name, **content):
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, **content}


def queue_objects(name, local_name, flavor, **of_flavor):
    """A queue of one flavor, and what stands for it in the namespace."""
    quota = [{"name": "cpu", "nominalQuota": str(QUOTA)}, {"name": "memory", "nominalQuota": "256Gi"}]
    yield made("ResourceFlavor", flavor, **of_flavor)
    yield made("ClusterQueue", name, spec={
        "namespaceSelector": {}, "preemption": {"withinClusterQueue": "LowerPriority"},
        "resourceGroups": [{"coveredResources": ["cpu", "memory"], "flavors": [{"name": flavor, "resources": quota}]}]})
    local = made("LocalQueue", local_name, spec={"clusterQueue": name})
    local["metadata"]["namespace"] = "default"
    yield local


def topology():
    return made("Topology", "halls", spec={"levels": [{"nodeLabel": HALL}]})


def create(*objects, verb="create"):
    PLANE.kubectl(verb, "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))


def remove(*objects):
    create(*objects, verb="delete")


def get(name):
    return PLANE.kubectl_json("get", "trainingjob", name)


def pods_of(name):
    return PLANE.kubectl_json("get", "pods", "-l", f"muster.dev/job-name={name}")["items"]


def workloads():
    return {one["metadata"]["name"]: one for one in PLANE.kubectl_json("get", "workloads.kueue.x-k8s.io")["items"]}


def groups_of(name):
    return {pod["metadata"]["labels"][GROUP] for pod in pods_of(name)}


def end(pod, code):
    """As a kubelet tells that the program has ended."""
    status = {"status": {"phase": "Failed" if code else "Succeeded", "containerStatuses": [{
        "name": "worker", "image": "x", "imageID": "x", "ready": False, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}}]}}
    PLANE.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", json.dumps(status))


def change(kind, name, **spec):
    PLANE.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))


class Kueue(unittest.TestCase):
    maxDiff = None

    def submit(self, name, workers, cpu, labels=None, annotations=None, **spec):
        body = job(name, workers, cpu, **spec)
        body["metadata"].update({"labels": {QUEUE: "team", **(labels or {})}, "annotations": annotations or {}})
        create(body)
        self.addCleanup(self.remove, name)
        return name

    def remove(self, name):
        """Nothing of it stays, neither with us nor with Kueue."""
        PLANE.kubectl("delete", "trainingjob", name, "--ignore-not-found")
        stem = f"{name}-"
        try:
            wait_for(f"pods and workloads of {name} are gone",
                     lambda: not pods_of(name) and not any(one.startswith(stem) for one in workloads()), SECONDS)
        except ClusterError as error:
            self.fail(f"{error}\n{json.dumps(pods_of(name), indent=1)[:6000]}\n{json.dumps(workloads(), indent=1)[:6000]}")

    def wait(self, name, kind, status="True", reason=None):
        def holds():
            found = get(name)
            one = condition(found, kind)
            return found if one.get("status") == status and reason in (None, one["reason"]) else None
        try:
            return wait_for(f"{name}: {kind} is {status} {reason or ''}", holds, SECONDS)
        except ClusterError as error:
            self.fail(f"{error}\n{json.dumps(get(name).get('status'), indent=1)[:6000]}")

    def runs(self, name):
        return self.wait(name, "Running")

    def waits(self, name, text):
        """Kueue holds all of its pods back, and the job says so, with Kueue's own reason."""
        def says():
            found = condition(get(name), "Running")
            return found if found.get("reason") == "WaitingForKueue" and text in found["message"] else None
        try:
            found = wait_for(f"{name} waits: {text}", says, SECONDS)
        except ClusterError as error:
            self.fail(f"{error}\n{json.dumps(get(name).get('status'), indent=1)[:6000]}\n{list(workloads().values())}")
        for pod in pods_of(name):
            self.assertEqual(pod["status"]["phase"], "Pending")
            self.assertNotIn("nodeName", pod["spec"])
        return found["message"]

    def test_a_gang_is_one_group_that_starts_whole_once_it_is_admitted(self):
        change("clusterqueue", "lab", stopPolicy="Hold")
        self.addCleanup(change, "clusterqueue", "lab", stopPolicy="None")
        name = self.submit("whole", 4, "1", activeDeadlineSeconds=3600)
        self.waits(name, "queue team")
        found = get(name)
        self.assertNotIn("startTime", found["status"])
        self.assertEqual(found["status"]["kueueQueue"], "team")
        self.assertEqual(len(pods_of(name)), 4)
        for pod in pods_of(name):
            self.assertNotIn("affinity", pod["spec"])
        (group,) = groups_of(name)
        # Kueue sees the whole group a moment after the job says what it waits for.
        made = wait_for(f"the workload of {group}", lambda: workloads().get(group), SECONDS)
        self.assertEqual([one["count"] for one in made["spec"]["podSets"]], [4])
        change("clusterqueue", "lab", stopPolicy="None")
        found = self.runs(name)
        self.assertEqual(condition(found, "Running")["message"], "4 of 4 workers run")
        self.assertIn("startTime", found["status"])

    def test_with_the_quota_used_up_a_job_waits_and_says_so_until_another_ends(self):
        first, second = self.submit("first", 2, "3"), None
        self.runs(first)
        second = self.submit("second", 2, "2")
        message = self.waits(second, "quota")
        self.assertRegex(message, r"waits for Kueue: queue team has not admitted it yet \(.*cpu.*\)")
        told = run([f"{BIN_DIR}/muster", "describe", second, "-n", "default"], 60, env=PLANE.environment())
        self.assertIn("waits for Kueue", told)
        for pod in pods_of(first):
            end(pod["metadata"]["name"], 0)
        self.wait(first, "Complete")
        found = self.runs(second)
        self.assertEqual(found["status"]["restarts"], 0)

    def test_a_job_larger_than_the_quota_runs_no_pod_and_says_why(self):
        self.waits(self.submit("large", 3, "4"), "maximum capacity")

    def test_a_job_that_is_preempted_is_no_failure_and_runs_again_when_there_is_room(self):
        low = self.submit("low", 2, "3", restart={"policy": "Never"})
        self.runs(low)
        (before,) = groups_of(low)
        high = self.submit("urgent", 2, "4", {PRIORITY: "high"})
        self.runs(high)
        self.waits(low, "quota")
        found = get(low)
        self.assertEqual((found["status"]["restarts"], "failure" in found["status"]), (0, False))
        events = PLANE.kubectl("get", "events", "--field-selector", "involvedObject.name=low")
        self.assertRegex(events, "Preempted.*Kueue stopped the gang")
        self.remove(high)
        self.runs(low)
        self.assertNotEqual(groups_of(low), {before})

    def test_a_job_that_is_deleted_while_it_waits_or_is_suspended_leaves_nothing(self):
        self.runs(self.submit("holder", 2, "4"))
        waiting, suspended = self.submit("waiting", 2, "1"), self.submit("suspended", 2, "2")
        self.waits(waiting, "quota")
        self.waits(suspended, "quota")
        change("trainingjob", suspended, suspend=True)
        self.wait(suspended, "Suspended")
        wait_for("its pods are gone", lambda: not pods_of(suspended), SECONDS)
        self.remove(waiting)
        self.remove("holder")
        change("trainingjob", suspended, suspend=False)
        self.runs(suspended)

    def test_a_gang_that_fails_starts_again_as_another_group(self):
        name = self.submit("again", 2, "3")
        self.runs(name)
        (before,) = groups_of(name)
        end(pods_of(name)[0]["metadata"]["name"], 1)
        wait_for("it was started again", lambda: get(name)["status"]["restarts"] == 1, SECONDS)
        self.runs(name)
        wait_for("the group before is gone", lambda: before not in groups_of(name) and before not in workloads(), SECONDS)

    def test_a_worker_deleted_while_its_gang_waits_is_no_failure(self):
        self.runs(self.submit("holder", 2, "4"))
        name = self.submit("patient", 2, "1", restart={"policy": "Never"})
        self.waits(name, "quota")
        (before,) = groups_of(name)
        PLANE.kubectl("delete", "pod", pods_of(name)[0]["metadata"]["name"], "--wait=false")
        wait_for("there is another group", lambda: groups_of(name) - {before}, SECONDS)
        self.remove("holder")
        self.assertEqual(self.runs(name)["status"]["restarts"], 0)

    def test_what_an_administrator_deactivates_stays_away_until_it_is_resumed(self):
        name = self.submit("banned", 2, "1")
        self.runs(name)
        (group,) = groups_of(name)
        change("workload.kueue.x-k8s.io", group, active=False)
        self.wait(name, "Admitted", "False", "KueueDeactivated")
        wait_for("its pods are gone", lambda: not pods_of(name), SECONDS)
        change("trainingjob", name, suspend=True)
        self.wait(name, "Suspended")
        change("trainingjob", name, suspend=False)
        self.runs(name)

    def test_in_a_group_that_runs_another_pod_takes_the_place_of_one_that_failed(self):
        # As the engine's gangs do, of which no pod runs here: pods like theirs, made by hand.
        self.runs(self.submit("model", 2, "1"))
        pattern = pods_of("model")[0]
        kept = {key: value for key, value in pattern["metadata"]["annotations"].items()
                if "pod-group" in key or "retriable" in key}
        spec = {key: value for key, value in pattern["spec"].items() if key in ("containers", "restartPolicy", "securityContext")}
        spec["containers"][0].pop("volumeMounts", None)

        def made(name):
            create({"apiVersion": "v1", "kind": "Pod", "spec": spec, "metadata": {
                "name": name, "annotations": kept, "labels": {QUEUE: "team", GROUP: "by-hand", "by": "hand"}}})
            self.addCleanup(PLANE.kubectl, "delete", "pod", name, "--ignore-not-found", "--wait=false")

        def running():
            pods = PLANE.kubectl_json("get", "pods", "-l", "by=hand")["items"]
            return {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"}
        made("hand-0")
        made("hand-1")
        wait_for("both run", lambda: running() == {"hand-0", "hand-1"}, SECONDS)
        end("hand-1", 25)
        made("hand-2")
        wait_for("the replacement runs", lambda: running() == {"hand-0", "hand-2"}, SECONDS)

    def assert_in_one_hall(self, name):
        nodes = [pod["spec"]["nodeName"] for pod in pods_of(name)]
        self.assertEqual((len(set(nodes)), len({HALLS[node] for node in nodes})), (2, 1), nodes)

    def test_outside_of_its_queues_its_topology_and_annotation_tell_us_the_place(self):
        body = job("outside", 2, "2")
        body["metadata"]["annotations"] = {IN_ONE: HALL}
        body["spec"]["worker"]["nodeSelector"] = {"part": "halls"}
        create(body)
        self.addCleanup(self.remove, "outside")
        message = condition(self.wait("outside", "Admitted", "False"), "Admitted")["message"]
        self.assertIn(f"{HALL}, and no node says in which it stands", message)
        self.assertEqual(pods_of("outside"), [])
        create(topology())
        self.addCleanup(remove, topology())
        self.assertIn("topology from Kueue Topology halls", condition(self.runs("outside"), "Admitted")["message"])
        self.assert_in_one_hall("outside")
        self.assertFalse([pod for pod in pods_of("outside") if GROUP in pod["metadata"]["labels"]], "Kueue was asked")

    def test_within_its_queues_kueue_is_handed_the_annotation_and_chooses_the_place(self):
        of_halls = [topology(), *queue_objects("halls", "halls", "halls", spec={"nodeLabels": {"part": "halls"}, "topologyName": "halls"})]
        create(*of_halls)
        self.addCleanup(remove, *of_halls)
        name = self.submit("within", 2, "2", {QUEUE: "halls"}, {IN_ONE: HALL})
        self.assertEqual(self.runs(name)["status"]["kueueQueue"], "halls")
        self.assert_in_one_hall(name)
        (group,) = groups_of(name)
        (given,) = workloads()[group]["status"]["admission"]["podSetAssignments"]
        self.assertEqual(given["topologyAssignment"]["levels"], [HALL])

    def test_two_queues_for_one_job_are_refused(self):
        name = self.submit("both", 1, "1", queueName="research")
        self.assertIn("either a TrainingQueue or Kueue", condition(self.wait(name, "Failed"), "Failed")["message"])


if __name__ == "__main__":
    if len(sys.argv) > 1:
        BIN_DIR = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
