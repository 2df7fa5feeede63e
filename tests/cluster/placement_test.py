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
RACK = "oci.oraclecloud.com/host.rack_id"
# Levels that only an object tells of, of HyperNodes, KAI's Topology and our TopologyConfig: the number of the first of four nodes.
TOLD = {"cage": 0, "aisle": 4, "row": 8}
BIN_DIR = "build/release/bin"
PLANE = None


def rack_of(node):
    """Neighbours by name stand in different racks, so that names alone lead nowhere."""
    return int(node[1:]) % RACKS


def place_of(node, level):
    """Of a level of TOLD: two places of two nodes each, which are in racks of their own. None elsewhere."""
    number = int(node[1:]) - TOLD[level]
    return "ab"[number % 2] if 0 <= number < 4 else None


def labels_of(node):
    """As OCI's nodes carry them, and some that mean nothing without the object that names them."""
    told = {f"example.com/{level}": place_of(node, level) for level in ("aisle", "row")}
    return {"oci.oraclecloud.com/host.network_block_id": f"b{rack_of(node) % BLOCKS}", RACK: f"r{rack_of(node)}",
            **{label: place for label, place in told.items() if place}}


def topologies():
    """Objects of others and our own that tell of those levels."""
    def made(version, kind, name, **spec):
        return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
    for place in "ab":
        nodes = [node for node in (f"n{index:03}" for index in range(NODES)) if place_of(node, "cage") == place]
        yield made("topology.volcano.sh/v1alpha1", "HyperNode", f"cage-{place}", tier=1, tierName="cage", members=[
            {"type": "Node", "selector": {"exactMatch": {"name": node}}} for node in nodes])
    yield made("kai.scheduler/v1alpha1", "Topology", "aisles", levels=[{"nodeLabel": "example.com/aisle"}])
    yield made("muster.dev/v1alpha1", "TopologyConfig", "rows", levels=[{"name": "row", "nodeLabel": "example.com/row"}])


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
    PLANE.kubectl("apply", "-f", f"{ROOT}/crds", "-f", f"{ROOT}/tests/cluster/others_topologies.yaml")
    # An operator that finds a kind missing looks for it again after a minute.
    for path in ("muster.dev/v1alpha1/trainingjobs", "kai.scheduler/v1alpha1/topologies", "topology.volcano.sh/v1alpha1/hypernodes"):
        wait_for("the kind is served", lambda of=path: PLANE.get(f"/apis/{of}"), SECONDS)
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

    def make_queue(self, name, cpu, **spec):
        apply({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
               "spec": {"resources": [{"name": "cpu", "nominal": cpu}], **spec}})
        self.addCleanup(PLANE.kubectl, "delete", "trainingqueue", name, "--ignore-not-found")

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

    def test_after_nodes_are_lost_the_gang_stands_in_one_rack_again(self):
        self.wait(self.submit(job("bereft", 8, "8", topology={"required": "rack"})), "Running")
        before = self.nodes_of("bereft")
        rack = self.racks_of("bereft")
        lost = [before[2], before[5]]
        for node in lost:
            self.addCleanup(apply, make_node(node, NODE, labels_of(node)), "create")
        PLANE.kubectl("delete", "node", *lost)

        def again():
            try:
                return not set(lost) & set(self.nodes_of("bereft")) and len(pods_of("bereft")) == 8 and \
                    condition(get("bereft"), "Running").get("status") == "True"
            except AssertionError:
                return False
        wait_for("the gang runs without those nodes", again, SECONDS)
        self.assertEqual(self.racks_of("bereft"), rack)
        stay = [slot for slot, node in enumerate(before) if node not in lost]
        after = self.nodes_of("bereft")
        self.assertEqual([after[slot] for slot in stay], [before[slot] for slot in stay])
        # Or one after the other, where the first was seen to be gone so much sooner.
        self.assertRegex(condition(get("bereft"), "Admitted")["message"], "[67] of 8 stay where they were")

    def test_what_a_queue_lent_is_taken_back_and_the_borrower_goes_on_by_itself(self):
        for name in ("research", "product"):
            self.make_queue(name, "400", cohort="lab")
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
        self.make_queue("line", "80")
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

    def test_room_is_made_within_the_level_that_a_gang_requires_though_elsewhere_less_is_lost(self):
        apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "above"}, "value": 1000})
        self.addCleanup(PLANE.kubectl, "delete", "priorityclass", "above", "--ignore-not-found")
        self.make_queue("arena", "1000")
        # Four nodes of each of two racks.
        among = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [f"n{tens}{rack}" for tens in ("01", "02", "03", "04")
                                                                           for rack in (6, 7)]}]}]}}}

        def fight(name, workers, **spec):
            body = job(name, workers, "8", queueName="arena", topology={"required": "rack"}, **spec)
            body["spec"]["worker"]["affinity"] = among
            return self.submit(body)
        # In each rack one of three workers, and one of a single worker that has begun later.
        large, small = ("large-a", "large-b"), ("small-a", "small-b")
        for names, workers in ((large, 3), (small, 1)):
            for name in names:
                fight(name, workers)
            for name in names:
                self.wait(name, "Running")
        self.assertEqual({rack for name in large for rack in self.racks_of(name)}, {6, 7})
        # Both small ones together would be less, but stand in two racks.
        self.wait(fight("head", 2, priorityClassName="above"), "Running")
        self.assertEqual(len(self.racks_of("head")), 1)
        victims = [name for name in (*large, *small) if get(name)["status"].get("takenBack", {}).get("preemptions")]
        self.assertEqual(len(victims), 1, victims)
        self.assertLessEqual(set(victims), set(large))
        for name in small:
            self.assertEqual(len(self.nodes_of(name)), 1)

    def test_quota_of_who_is_suspended_is_held_until_its_last_pod_is_gone_and_no_longer(self):
        self.make_queue("held", "16")
        self.wait(self.submit(job("leaving", 2, "8", queueName="held")), "Running")
        stays = pods_of("leaving")[0]["metadata"]["name"]

        def keep(finalizers, **rest):
            PLANE.kubectl("patch", "pod", stays, "--type=merge", "-p", json.dumps({"metadata": {"finalizers": finalizers}}), **rest)
        self.addCleanup(keep, None, check=False)
        keep(["example.com/leaves-late"])
        PLANE.kubectl("patch", "trainingjob", "leaving", "--type=merge", "-p", json.dumps({"spec": {"suspend": True}}))
        wait_for("the other pod is gone", lambda: [pod["metadata"]["name"] for pod in pods_of("leaving")] == [stays], SECONDS)
        self.submit(job("next", 2, "8", queueName="held"))
        self.assertRegex(self.waits("next"), r"needs 16 cpu of the queue's quota, and \d+ may be taken now; .*nominal are 16")
        self.assertEqual([pod["metadata"]["name"] for pod in pods_of("leaving")], [stays])
        keep(None)
        self.wait("next", "Running")

    def test_a_tainted_rack_is_for_those_who_tolerate_it(self):
        rack, key = f"{RACK}=r3", "example.com/team"
        PLANE.kubectl("taint", "nodes", "-l", rack, f"{key}=a:NoSchedule")
        self.addCleanup(PLANE.kubectl, "taint", "nodes", "-l", rack, f"{key}-", check=False)

        def wish(name, **worker):
            body = job(name, 5, "8")
            body["spec"]["worker"].update({"nodeSelector": {RACK: "r3"}, **worker})
            return self.submit(body)
        self.wait(wish("tolerant", tolerations=[{"key": key, "operator": "Equal", "value": "a", "effect": "NoSchedule"}]), "Running")
        self.assertEqual(self.racks_of("tolerant"), [3])
        self.assertRegex(self.waits(wish("wary")), rf"\d+ x tainted, e\.g\. {key} \(spec\.worker\.tolerations\)")
        PLANE.kubectl("taint", "nodes", "-l", rack, f"{key}-")
        self.wait("wary", "Running")
        self.assertEqual(self.racks_of("wary"), [3])

    def test_of_small_workers_whose_shape_is_free_each_node_has_one_large_one(self):
        body = job("shaped", 16, "1")
        body["spec"]["worker"]["shape"] = "Free"
        found = self.wait(self.submit(body), "Running")
        self.assertEqual((found["status"]["workerSize"], found["status"]["workers"]), (8, "2/2"))
        self.assertIn("each is 8 workers in one (spec.worker.shape: Free)", condition(found, "Admitted")["message"])
        self.assertEqual(len(set(self.nodes_of("shaped"))), 2)
        self.assertEqual(len(self.racks_of("shaped")), 1)
        for pod in pods_of("shaped"):
            (container,) = pod["spec"]["containers"]
            self.assertEqual(container["resources"]["requests"]["cpu"], "8")
            self.assertIn({"name": "MUSTER_PROCESSES", "value": "8"}, container["env"])

    def test_where_nodes_stand_is_told_by_objects_of_others_and_by_our_own(self):
        sources = {"cage": "HyperNodes of Volcano", "aisle": "KAI Topology aisles", "row": "TopologyConfig rows"}
        for level in sources:
            name = self.submit(job(f"by-{level}", 2, "8", topology={"required": level}))
            self.assertIn(f"{level}, and no node says in which it stands", self.waits(name))
        told = {"apiVersion": "v1", "kind": "List", "items": list(topologies())}
        self.addCleanup(apply, told, "delete")
        apply(told, "create")
        for level, source in sources.items():
            message = condition(self.wait(f"by-{level}", "Running"), "Admitted")["message"]
            self.assertRegex(message, rf"{level} \S+ is the lowest domain with room for 2 .*{source}")
            self.assertIn({place_of(node, level) for node in self.nodes_of(f"by-{level}")}, ({"a"}, {"b"}))
            # By their labels they would stand far from each other.
            self.assertEqual(len(self.racks_of(f"by-{level}")), 2)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: placement_test.py BIN_DIR [unittest arguments]")
    BIN_DIR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
