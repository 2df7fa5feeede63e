#!/usr/bin/env python3
"""Gangs on a hundred nodes in racks, with a real API server and scheduler; KWOK plays the kubelets.

    tests/cluster/placement_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster-operator and muster
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
from processes import ClusterError, fetch, free_ports, run, wait_for  # noqa: E402

SECONDS = 180
NODES, RACKS, BLOCKS = 100, 10, 2
NODE = {"cpu": "8", "memory": "32Gi", "pods": "20"}
BIN_DIR = "build/release/bin"
PLANE = None


def rack_of(node):
    """Neighbours by name stand in different racks, so that names alone lead nowhere."""
    return int(node[1:]) % RACKS


def labels_of(node):
    """As OCI's nodes carry them."""
    return {"oci.oraclecloud.com/host.network_block_id": f"b{rack_of(node) % BLOCKS}",
            "oci.oraclecloud.com/host.rack_id": f"r{rack_of(node)}"}


def setUpModule():
    global PLANE
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="muster-placement-test-", dir=memory)
    unittest.addModuleCleanup(shutil.rmtree, directory, ignore_errors=True)
    quick = ["--kube-api-qps=1000", "--kube-api-burst=1000"]
    PLANE = ControlPlane(f"{directory}/plane", controller_manager=True, scheduler=True, programs=["kwok"],
                         extra={"kube-scheduler": quick})
    PLANE.start()
    unittest.addModuleCleanup(PLANE.stop)
    PLANE.kubectl("apply", "-f", f"{ROOT}/crds")
    wait_for("the kind is served", lambda: PLANE.get("/apis/muster.dev/v1alpha1/trainingjobs"), SECONDS)
    nodes = [make_node(name, NODE, labels_of(name)) for name in (f"n{index:03}" for index in range(NODES))]
    apply({"apiVersion": "v1", "kind": "List", "items": nodes}, "create")
    start_kwok(PLANE)
    wait_ready(PLANE, NODES, SECONDS)
    start_operator(PLANE, BIN_DIR)


def start_operator(plane, bin_dir, *flags):
    """Returns when it is ready."""
    health, metrics = free_ports(2)
    operator = plane.daemon("muster-operator", [
        f"{bin_dir}/muster-operator", "--kubeconfig", plane.user("muster-operator", ["system:masters"]),
        "--endpoint-bind-address=127.0.0.1:0", f"--health-probe-bind-address=127.0.0.1:{health}",
        "--leader-elect-resource-namespace=default", f"--metrics-bind-address=127.0.0.1:{metrics}", "--metrics-secure=false",
        *flags], {"POD_NAME": "test", "POD_NAMESPACE": "default", "POD_IP": "127.0.0.1"})
    operator.wait_ready(lambda: fetch(f"http://127.0.0.1:{health}/readyz"), SECONDS)


def apply(body, verb="apply"):
    PLANE.kubectl(verb, "-f", "-", stdin=json.dumps(body))


def job(name, workers, cpu, **spec):
    """A program of somebody's own, so that KWOK's pods do all it takes."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"worker": {"count": workers, "image": "example.invalid/train:1", "command": ["train"],
                                "resources": {"cpu": cpu, "memory": "1Gi"}},
                     "restart": {"policy": "OnFailure", "maxRestarts": 5, "backoffSeconds": 0}, **spec}}


def get(name):
    return PLANE.kubectl_json("get", "trainingjob", name)


def pods_of(name):
    return PLANE.kubectl_json("get", "pods", "-l", f"muster.dev/job-name={name}")["items"]


def condition(found, kind):
    return next((one for one in found.get("status", {}).get("conditions", []) if one["type"] == kind), {})


class Placement(unittest.TestCase):
    maxDiff = None

    def submit(self, body):
        apply(body, "create")
        name = body["metadata"]["name"]
        self.addCleanup(self.remove, name)
        return name

    def remove(self, name):
        PLANE.kubectl("delete", "trainingjob", name, "--ignore-not-found")
        wait_for(f"the pods of {name} are gone", lambda: not pods_of(name), SECONDS)

    def wait(self, name, kind, status="True"):
        def holds():
            found = get(name)
            return found if condition(found, kind).get("status") == status else None
        try:
            return wait_for(f"{name}: {kind} is {status}", holds, SECONDS)
        except ClusterError as error:
            self.fail(f"{error}\n{json.dumps(get(name).get('status'), indent=1)[:6000]}")

    def told(self, name):
        """`muster describe` on one line, however it is broken."""
        return " ".join(run([f"{BIN_DIR}/muster", "describe", name, "-n", "default"], SECONDS, env=PLANE.environment()).split())

    def waits(self, name):
        """Admitted's message of a job that waits, and has no pod."""
        message = condition(self.wait(name, "Admitted", "False"), "Admitted")["message"]
        self.assertEqual(pods_of(name), [])
        return message

    def wait_for_row(self, row):
        """Of `kubectl get tq`: a queue's status is written every five seconds at most."""
        def shown():
            lines = PLANE.kubectl("get", "tq").splitlines()
            self.assertEqual(lines[0].split(), ["NAME", "STATUS", "COHORT", "ADMITTED", "WAITING", "USE", "AGE"])
            return any(line.split()[:-1] == row for line in lines)
        wait_for(f"a row says {row}", shown, SECONDS)

    def nodes_of(self, name):
        """Node by slot, of the pods that run; each is where status says."""
        places = {place["slot"]: place["node"] for place in get(name)["status"]["placement"]}
        bound = {int(pod["metadata"]["labels"]["muster.dev/slot"]): pod["spec"].get("nodeName") for pod in pods_of(name)
                 if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]}
        self.assertEqual(bound, places)
        return [bound[slot] for slot in sorted(bound)]

    def racks_of(self, name):
        return sorted({rack_of(node) for node in self.nodes_of(name)})

    def test_a_gang_that_asks_for_a_rack_is_bound_within_one(self):
        found = self.wait(self.submit(job("racked", 20, "4", topology={"required": "rack"})), "Running")
        self.assertEqual(len(self.racks_of("racked")), 1)
        self.assertEqual(len({place["domain"] for place in found["status"]["placement"]}), 1)
        self.assertRegex(condition(found, "Admitted")["message"], r"rack b\d/r\d is the lowest domain with room for 20")
        self.submit(job("too-large", 21, "4", topology={"required": "rack"}))
        self.assertIn("it would fit with required: block", self.waits("too-large"))
        told = self.told("too-large")
        self.assertIn("it would fit with required: block", told)
        self.assertIn("expected start: not known", told)

    def test_a_gang_that_asks_for_nothing_is_bound_close_together_in_the_order_of_the_tree(self):
        self.wait(self.submit(job("free", 6, "8")), "Running")
        self.assertEqual(len(self.racks_of("free")), 1)
        self.assertEqual(self.nodes_of("free"), sorted(self.nodes_of("free")))
        self.wait(self.submit(job("wide", 30, "8")), "Running")
        self.assertEqual(len(self.racks_of("wide")), 3)
        self.assertEqual(len({rack % BLOCKS for rack in self.racks_of("wide")}), 1)

    def test_two_gangs_of_a_hundred_pods_take_turns_whole(self):
        self.submit(job("first", 100, "8"))
        self.submit(job("second", 100, "8"))
        names = {True: "first", False: "second"}
        runs = wait_for("one of them runs", lambda: next(
            (name for name in names.values() if condition(get(name), "Running").get("status") == "True"), None), SECONDS)
        waits = names[runs != "first"]
        self.assertEqual(len(set(self.nodes_of(runs))), 100)
        self.assertIn("room for 0", condition(self.wait(waits, "Admitted", "False"), "Admitted")["message"])
        self.assertEqual(pods_of(waits), [])
        self.remove(runs)
        self.wait(waits, "Running")
        self.assertEqual(len(set(self.nodes_of(waits))), 100)

    def test_a_place_that_somebody_took_first_is_chosen_anew(self):
        # A scheduler that starts knows of every pod before it binds the first one; one that was only stopped binds the one
        # that waits as soon as it has read of it, which may be before it reads of the quicker one.
        scheduler = next(daemon for daemon in PLANE.daemons if daemon.name == "kube-scheduler")
        scheduler.kill()
        try:
            self.submit(job("late", 1, "8"))
            wanted = wait_for("its place is decided", lambda: get("late").get("status", {}).get("placement"), SECONDS)[0]["node"]
            self.addCleanup(PLANE.kubectl, "delete", "pod", "quicker", "--ignore-not-found")
            apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "quicker"}, "spec": {
                "nodeName": wanted, "containers": [{"name": "c", "image": "example.invalid/other:1",
                                                    "resources": {"requests": {"cpu": "6", "memory": "1Gi"}}}]}}, "create")
        finally:
            scheduler.start()
        self.wait("late", "Running")
        wait_for("it stands elsewhere", lambda: self.nodes_of("late") != [wanted], SECONDS)
        self.assertEqual(get("late")["status"].get("restarts", 0), 0)

    def test_after_a_node_is_lost_the_gang_stands_in_one_rack_again(self):
        self.wait(self.submit(job("bereft", 4, "8", topology={"required": "rack"})), "Running")
        before = self.nodes_of("bereft")
        rack = self.racks_of("bereft")
        self.addCleanup(apply, make_node(before[2], NODE, labels_of(before[2])), "create")
        PLANE.kubectl("delete", "node", before[2])

        def again():
            try:
                return before[2] not in self.nodes_of("bereft") and len(pods_of("bereft")) == 4 and \
                    condition(get("bereft"), "Running").get("status") == "True"
            except AssertionError:
                return False
        wait_for("the gang runs without that node", again, SECONDS)
        self.assertEqual(self.racks_of("bereft"), rack)
        after = self.nodes_of("bereft")
        self.assertEqual(after[:2] + after[3:], before[:2] + before[3:])
        self.assertIn("3 of 4 stay where they were", condition(get("bereft"), "Admitted")["message"])

    def test_what_a_queue_lent_is_taken_back_and_the_borrower_goes_on_by_itself(self):
        for name in ("research", "product"):
            apply({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
                   "spec": {"cohort": "lab", "resources": [{"name": "cpu", "nominal": "400"}]}})
            self.addCleanup(PLANE.kubectl, "delete", "trainingqueue", name, "--ignore-not-found")
        self.wait(self.submit(job("borrower", 80, "8", queueName="research")), "Running")
        self.wait(self.submit(job("owner", 50, "8", queueName="product")), "Running")
        borrower = self.wait("borrower", "Running", "False")
        self.assertEqual(condition(borrower, "Running")["reason"], "Preempted")
        self.assertEqual(len(self.nodes_of("owner")), 50)
        self.wait_for_row(["product", "Active", "lab", "1", "0", "cpu", "400/400"])
        self.wait_for_row(["research", "Active", "lab", "0", "1", "cpu", "0/400"])
        self.remove("owner")
        self.wait("borrower", "Running")
        self.assertEqual(len(self.nodes_of("borrower")), 80)
        self.assertEqual(get("borrower")["status"].get("restarts", 0), 0)

    def test_a_queue_holds_jobs_up_by_its_quota_alone_and_its_order_is_that_of_priority_and_age(self):
        # It takes nothing from who runs, so that the order of those who wait is all that it tells of.
        apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "sooner"}, "value": 1000,
               "preemptionPolicy": "Never"})
        self.addCleanup(PLANE.kubectl, "delete", "priorityclass", "sooner", "--ignore-not-found")
        apply({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": "line"},
               "spec": {"resources": [{"name": "cpu", "nominal": "80"}]}})
        self.addCleanup(PLANE.kubectl, "delete", "trainingqueue", "line", "--ignore-not-found")
        self.wait(self.submit(job("begun", 10, "8", queueName="line", activeDeadlineSeconds=3600)), "Running")
        # Most nodes are free. Each is told its place as it comes.
        lacks = "needs 80 cpu of the queue's quota, and 0 may be taken now; its jobs hold 80, nominal are 80"
        for name, place, spec in (("older", "1st", {}), ("urgent", "1st", {"priorityClassName": "sooner"}), ("younger", "3rd", {})):
            self.submit(job(name, 10, "8", queueName="line", **spec))
            self.assertIn(f"{place} in queue line: {lacks}", self.waits(name))
        self.wait_for_row(["line", "Active", "1", "3", "cpu", "80/80"])
        told = self.told("urgent")
        self.assertIn(f"1st in queue line: {lacks}", told)
        # By its deadline, which is known; of the others nothing is.
        self.assertRegex(told, r"expected start: in [\w ]+ \(\S+Z\), when default/begun has ended by their own word")
        for ends, starts, still in (("begun", "urgent", ["older", "younger"]), ("urgent", "older", ["younger"])):
            self.remove(ends)
            self.wait(starts, "Running")
            for name in still:
                self.waits(name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: placement_test.py BIN_DIR [unittest arguments]")
    BIN_DIR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
