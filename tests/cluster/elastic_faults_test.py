#!/usr/bin/env python3
"""What goes wrong around a job that trains on two real nodes: a node without power, a drain, the API server away while a worker
dies and a node loses power, operators killed in the middle of a resize. Survivors keep their pods and processes, every step is made once,
and the model is the laptop's.

Needs root and the release programs.
"""

import contextlib
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from long_job import ENTERS, LOST, STALL, LongJobTest, long_job  # noqa: E402
from processes import wait_for  # noqa: E402

# How often operators are killed at a resize to 4 and to 3, until they were in the middle of both.
RESIZE_TRIES = 3


class ElasticFaults(LongJobTest):
    def start_on_both_nodes(self, name, workers=3):
        """Two, three or four workers on both nodes; the number of the node that slot 0, which has the files, is not on, and the processes
        of the workers that are not there, by the uids of their pods."""
        manifest = long_job(name, most=workers)
        worker = manifest["spec"]["worker"]
        worker["count"], worker["resources"]["memory"] = workers, self.part_of_a_node(fifths=3 if workers == 2 else 2)
        self.apply_with_claim(manifest)
        self.find_volume(name)
        wait_for(f"{name} trains", lambda: self.recorded() > 1000, 180)
        nodes = {int(pod["metadata"]["labels"]["muster.dev/slot"]): pod["spec"]["nodeName"] for pod in self.pods(name)}
        others = [slot for slot, node in nodes.items() if node != nodes[0]]
        self.assertTrue(others, f"all workers are on {nodes[0]}")
        self.assertEqual(len(others), workers // 2, "without the other node there are too few")
        return int(nodes[others[0]][len("node"):]), self.of_slots(name, [slot for slot in nodes if slot not in others])

    def of_slots(self, name, slots):
        """The processes of the workers of these slots, by the uids of their pods."""
        return self.processes_of(pod for pod in self.pods(name) if int(pod["metadata"]["labels"]["muster.dev/slot"]) in slots)

    def assert_same_processes(self, survivors):
        """Of workers that train; that needs no API server."""
        self.assertEqual(self.processes_of({"metadata": {"uid": uid}} for uid in survivors), survivors)

    def assert_same_bits(self, name, survivors):
        self.ended(name)
        self.assertEqual(self.job(name)["status"]["restarts"], 0)
        self.assertLessEqual(set(survivors), {pod["metadata"]["uid"] for pod in self.pods(name)})
        self.assert_as_on_the_laptop(name)

    def test_a_node_without_power_stops_nobody_else(self):
        number, survivors = self.start_on_both_nodes("power")
        node = self.cluster.node(number)
        node.power_off()
        try:
            self.assert_trains_on()
            self.assert_same_processes(survivors)
        finally:
            node.start()
            node.ready()
        self.assert_same_bits("power", survivors)
        self.assert_told("power", LOST.format(slot=r"\d", reason="[a-z ]+") + STALL)
        self.note_stall("power", "a node without power")

    def test_half_of_the_workers_lost_without_power_wait_for_the_witness(self):
        number, survivors = self.start_on_both_nodes("halved", workers=2)
        survivor = next(pod for pod in self.pods("halved") if pod["metadata"]["uid"] in survivors)
        node = self.cluster.node(number)
        self.cluster.api_stop()
        try:
            node.power_off()
            self.assert_waits_for_the_witness(survivor)
        finally:
            self.cluster.api_start()
        try:
            # Whoever leads the operators from now on says so; the node is still without power.
            self.assert_trains_on(seconds=120)
            self.assert_same_processes(survivors)
        finally:
            node.start()
            node.ready()
        self.assertIn('"granted":true', self.log_on_disk(survivor))
        self.assert_told("halved", r"WorkerLost .*worker 1 was lost at step \d+")
        self.assert_same_bits("halved", survivors)

    def assert_waits_for_the_witness(self, pod):
        """It says so, and makes no step while it asks again and again without an answer."""
        wait_for("it says that it waits", lambda: "membership waits" in self.log_on_disk(pod), 60)
        stood = self.recorded()
        for asked in range(1, 5):
            wait_for("it asks", lambda: self.log_on_disk(pod).count("the witness does not answer") >= asked, 60)
            self.assertEqual(self.recorded(), stood, "it went on without the witness")

    def test_a_drained_node_hands_over_and_nobody_computes_twice(self):
        number, survivors = self.start_on_both_nodes("drained", workers=4)
        staying = [pod for pod in self.pods("drained") if pod["metadata"]["uid"] in survivors]
        leaving = {pod["metadata"]["labels"]["muster.dev/slot"] for pod in self.pods("drained")} - {
            pod["metadata"]["labels"]["muster.dev/slot"] for pod in staying}
        self.cluster.kubectl("drain", f"node{number}", "--ignore-daemonsets", "--delete-emptydir-data", "--force",
                             "--pod-selector=muster.dev/job-name=drained", "--timeout=60s")
        try:
            self.assert_trains_on()
            self.assert_same_processes(survivors)
            for slot in leaving:
                self.assert_told("drained", rf"WorkerLost .*worker {slot} left at step \d+ \(asked to leave\)" + STALL)
        finally:
            self.cluster.kubectl("uncordon", f"node{number}")
        self.assert_same_bits("drained", survivors)
        for pod in staying:
            said = self.log_on_disk(pod)
            recomputed = re.findall(r'"recomputed":(\d+)', said)
            self.assertGreater(len(recomputed), 1, "it says so of each membership")
            self.assertEqual(set(recomputed), {"0"}, said)

    def test_a_drain_under_a_gang_of_its_least_size_brings_a_spare_worker_first(self):
        manifest = long_job("least", most=3)
        worker = manifest["spec"]["worker"]
        worker["count"], worker["resources"]["memory"] = 1, self.part_of_a_node(fifths=2)
        self.apply_with_claim(manifest)
        self.find_volume("least")
        wait_for("least trains", lambda: self.recorded() > 1000, 180)
        home = self.pods("least")[0]["spec"]["nodeName"]
        away = "node2" if home == "node1" else "node1"
        with self.half_taken(home):
            self.kubectl("patch", "tjob", "least", "--type=merge", "-p", '{"spec":{"worker":{"count":2,"min":2}}}')
            wait_for("both train", lambda: self.workers("least") == "2/2", 120)
        self.assertEqual({pod["spec"]["nodeName"] for pod in self.pods("least")}, {home, away})
        survivors = self.of_slots("least", [0])
        self.cluster.kubectl("drain", away, "--ignore-daemonsets", "--delete-emptydir-data", "--force",
                             "--pod-selector=muster.dev/job-name=least", "--timeout=120s", seconds=150)
        try:
            self.assert_trains_on()
            self.assert_same_processes(survivors)
            self.assert_told("least", rf"Resized .*node {away} is cordoned and nobody can be spared there: worker 2 to join")
            self.assert_told("least", r"left at step \d+")
        finally:
            self.cluster.kubectl("uncordon", away)
        self.assert_same_bits("least", survivors)

    @contextlib.contextmanager
    def half_taken(self, node):
        """No second worker has room on the node meanwhile. The pod's image is nowhere: its room is held all the same."""
        memory = {"memory": self.part_of_a_node(fifths=2)}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "room"}, "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "securityContext": {
                "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "room", "image": "nowhere.invalid/room", "imagePullPolicy": "Never",
                            "resources": {"requests": memory, "limits": memory},
                            "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}})
        try:
            yield
        finally:
            self.kubectl("delete", "pod", "room", "--wait=true")

    def test_a_worker_dies_and_a_node_loses_power_while_the_api_server_is_away(self):
        number, survivors = self.start_on_both_nodes("apiless", workers=4)
        pods = self.pods("apiless")
        survivor = next(pod for pod in pods if pod["metadata"]["uid"] in survivors)
        victim, silent = (pod for pod in pods if pod["metadata"]["uid"] not in survivors)
        node, epoch = self.cluster.node(number), self.newest_epoch(survivor, ENTERS)
        self.cluster.api_stop()
        try:
            try:
                self.assertTrue(self.kill(victim))
                wait_for("three train", lambda: self.newest_epoch(survivor, ENTERS) > epoch, 60)
                self.assert_trains_on()
                # Of the three, two are left, who need ask nobody.
                node.power_off()
                self.assert_trains_on()
                self.assert_same_processes(survivors)
            finally:
                self.cluster.api_start()
        finally:
            node.start()
            node.ready()
        self.assert_same_bits("apiless", survivors)
        for pod, fault in ((victim, "a killed worker"), (silent, "a node without power")):
            self.note_stall("apiless", f"{fault} while the API server is away", slot=pod["metadata"]["labels"]["muster.dev/slot"])

    def test_operators_killed_in_the_middle_of_a_resize(self):
        before = len(installed.writes())
        self.start_long("resized", most=4)
        survivors, operators = self.of_slots("resized", [0, 1]), installed.operators()
        in_the_middle, tried = set(), 0
        while in_the_middle != {3, 4} and tried < RESIZE_TRIES:
            tried += 1
            for count in (4, 3):
                if self.is_killed_amid_resize("resized", count, operators):
                    in_the_middle.add(count)
                wait_for(f"{count} workers train", lambda: self.is_resized("resized", count), 120)
                self.assert_same_processes(survivors)
        self.assertEqual(in_the_middle, {3, 4}, "no resize was cut short")
        self.ended("resized")
        # One for each slot that was new, and for nothing else.
        self.assertEqual(self.slots_made("resized", installed.writes()[before:]), [0, 1, 2] + [3] * tried)
        self.assertLessEqual(set(survivors), {pod["metadata"]["uid"] for pod in self.pods("resized")})
        self.assertEqual(self.job("resized")["status"]["restarts"], 0)
        self.assert_as_on_the_laptop("resized")

    def is_killed_amid_resize(self, name, count, operators):
        """Kills all operators once one of them has decided to resize the job. Whether that was in the middle: by the status, which nobody
        writes now, not all who are to come had come, or who is to go is still there."""
        self.kubectl("scale", f"tjob/{name}", f"--replicas={count}")
        wait_for("the resize is decided", lambda: self.status(name).get("targetWorkers") == count, 120)
        self.assertTrue(any([self.kill(pod) for pod in operators]))
        there, workers = self.live_slots(name), self.workers(name)
        print(f"resize to {count}: killed when status said {workers} and pods were there of slots {there}")
        return there != list(range(count)) or workers != f"{count}/{count}"

    def is_resized(self, name, count):
        return self.workers(name) == f"{count}/{count}" and self.live_slots(name) == list(range(count))

    def live_slots(self, name):
        """The slots whose pods have not ended, in order; none has two that nobody has asked to go."""
        live = [pod for pod in self.pods(name) if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        slots = [int(pod["metadata"]["labels"]["muster.dev/slot"]) for pod in live if "deletionTimestamp" not in pod["metadata"]]
        self.assertEqual(len(slots), len(set(slots)), slots)
        return sorted({int(pod["metadata"]["labels"]["muster.dev/slot"]) for pod in live})


if __name__ == "__main__":
    installed.main()
