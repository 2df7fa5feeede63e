#!/usr/bin/env python3
"""What goes wrong under the main job on a real cluster of two nodes, with the chart installed.

Needs root and build/release/bin. One cluster and one installation serve all cases.
"""

import json
import os
import re
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from long_job import ENTERS, LOST, STALL, LongJobTest  # noqa: E402
from processes import wait_for  # noqa: E402


class JobFaults(LongJobTest):
    def test_a_killed_operator_and_a_lost_one_do_not_disturb_training(self):
        if installed.operators_die():
            self.skipTest("the operators are killed at random moments already")
        self.start_long("headless", cpu="90m")
        before = {pod["metadata"]["uid"] for pod in self.pods("headless")}
        leader = self.leader()
        # Its container starts again, with the same name: it may take its own lease up again.
        self.assertTrue(self.kill(self.operator(leader)))
        wait_for("the killed operator runs again", lambda: self.operator(leader)["status"]["containerStatuses"][0]
                 ["restartCount"] > 0, 60)
        leader = self.leader()
        self.cluster.plane.kubectl("-n", "muster", "delete", "pod", leader, "--force", "--grace-period=0")
        wait_for("the other operator leads", lambda: self.leader() not in ("", leader), 60)
        self.assert_trains("headless")
        self.ended("headless")
        self.assertEqual({pod["metadata"]["uid"] for pod in self.pods("headless")}, before)
        self.assertEqual(self.job("headless")["status"]["restarts"], 0)
        self.assert_as_on_the_laptop("headless")
        # Who leads anew knows from status when it was written last.
        self.assert_progress_is_seldom_written("headless")
        self.assert_no_warnings("headless")
        self.assert_told_as_undisturbed("headless")

    def assert_told_as_undisturbed(self, name):
        """Of a job that has ended: that no failure and no restart is told, nor workers that came or went."""
        text = self.muster("describe", name)
        self.assertRegex(text, rf"^{name} in namespace team: Complete, ended \d+\w+ ago\n")
        self.assertRegex(text, r"\n  .* It ended without a restart, in \d")
        self.assertNotRegex(text, r"Last failure|Worker(Lost|Joined|Respawned)|Restarting|CheckpointRestored")

    def operator(self, name):
        return json.loads(self.cluster.plane.kubectl("-n", "muster", "get", "pod", name, "-o", "json"))

    def leader(self):
        lease = json.loads(self.cluster.plane.kubectl("-n", "muster", "get", "lease", "muster-operator", "-o", "json"))
        return (lease["spec"].get("holderIdentity") or "").split("@")[0]

    def test_a_restarted_kubelet_is_not_noticed(self):
        self.start_long("kubelet", cpu="90m")
        before = {pod["metadata"]["uid"] for pod in self.pods("kubelet")}
        for number in (1, 2):
            self.cluster.node(number).kubelet_restart()
            self.cluster.node(number).ready()
        self.assert_trains("kubelet")
        self.ended("kubelet")
        self.assertEqual({pod["metadata"]["uid"] for pod in self.pods("kubelet")}, before)
        self.assertEqual(self.job("kubelet")["status"]["restarts"], 0)
        self.assert_as_on_the_laptop("kubelet")
        self.assert_no_warnings("kubelet")
        self.assert_told_as_undisturbed("kubelet")

    def uid_of_slot(self, name, slot):
        return {pod["metadata"]["uid"] for pod in self.pods(name)
                if pod["metadata"]["labels"]["muster.dev/slot"] == str(slot)}

    def trainers_of(self, pod):
        """Pids of its trainers, on this machine: what its sentinel has started."""
        found = []
        for pid in self.pids_of(pod):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    if b"--trainer" in file.read().split(b"\0"):
                        found.append(pid)
            except OSError:
                pass  # it ended while it was looked at
        return found

    def kill_trainer(self, victim, other):
        """SIGKILL for the only trainer of that pod; until another of the same sentinel trains with the other pod's."""
        (trainer,) = self.trainers_of(victim)
        sentinels = set(self.pids_of(victim)) - {trainer}
        self.assertTrue(sentinels)
        epoch = self.newest_epoch(victim, ENTERS)
        os.kill(trainer, signal.SIGKILL)
        wait_for("another trainer is a member", lambda: self.newest_epoch(victim, ENTERS) > epoch, 120)
        epoch = self.newest_epoch(victim, ENTERS)
        wait_for("both make a step", lambda: self.newest_epoch(other, "made the step of a change") >= epoch, 120)
        anew = self.trainers_of(victim)
        self.assertEqual(set(self.pids_of(victim)) - set(anew), sentinels)
        self.assertNotIn(trainer, anew)

    def test_a_killed_trainer_comes_back_in_its_pod_and_a_killed_worker_is_replaced(self):
        before = len(installed.writes())
        self.start_long("killed")
        other, victim = sorted(self.pods("killed"), key=lambda pod: pod["metadata"]["labels"]["muster.dev/slot"])
        survivor = self.processes_of([other])
        self.find_volume("killed")
        self.kill_trainer(victim, other)
        self.assertEqual(self.uid_of_slot("killed", 1), {victim["metadata"]["uid"]})
        self.assertTrue(self.kill(victim))
        self.assert_trains_on()
        self.assertEqual(self.processes_of([other]), survivor)
        self.ended("killed")
        self.assertEqual(self.uid_of_slot("killed", 0), {other["metadata"]["uid"]})
        self.assertEqual(self.slots_made("killed", installed.writes()[before:]), [0, 1, 1])
        self.assertEqual(self.job("killed")["status"]["restarts"], 0)
        self.assert_as_on_the_laptop("killed")
        self.assert_told("killed", r"WorkerRespawned .*the trainer of worker 1 was respawned at step \d+" + STALL)
        self.assert_told("killed", LOST.format(slot=1, reason="(its worker ended|not heard by the others)") + STALL)
        self.note_stall("killed", "a killed worker", "(its worker ended|not heard by the others)")
        self.note_stall("killed", "a killed trainer", "its trainer process ended")

    def test_a_gang_that_is_killed_whole_goes_on_from_its_last_checkpoint(self):
        self.start_long("both")
        victims = self.pods("both")
        saved = self.job("both")["status"]["checkpoint"]["step"]
        # All of them first: the others of one that is gone would go on without it.
        pids = [pid for pod in victims for pid in self.pids_of(pod)]
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.ended("both")
        status = self.job("both")["status"]
        self.assertEqual(status["restarts"], 1, status)
        self.assert_as_on_the_laptop("both")
        text = self.kubectl("describe", "tjob", "both")
        self.assertRegex(text, r"Restarting ")
        restored = re.search(r"CheckpointRestored .*step (\d+)", text)
        self.assertTrue(restored, text)
        self.assertGreaterEqual(int(restored.group(1)), saved)

    def test_a_force_deleted_pod_is_replaced_once(self):
        before = len(installed.writes())
        self.start_long("forced")
        victim = next(pod for pod in self.pods("forced") if pod["metadata"]["labels"]["muster.dev/slot"] == "1")
        self.kubectl("delete", "pod", victim["metadata"]["name"], "--force", "--grace-period=0")
        self.ended("forced")
        self.assertEqual(self.slots_made("forced", installed.writes()[before:]), [0, 1, 1])
        # The phase may lag behind the end of the container.
        ends = [(pod["metadata"]["labels"]["muster.dev/slot"], pod["status"]["containerStatuses"][0]["state"])
                for pod in self.pods("forced")]
        slots = [slot for slot, state in ends if state.get("terminated", {}).get("exitCode") == 0]
        self.assertEqual(sorted(slots), ["0", "1"])
        self.assertEqual(self.job("forced")["status"]["restarts"], 0)
        self.assert_as_on_the_laptop("forced")
        self.assert_told("forced", r"WorkerLost .*worker 1 (was lost|left) at step \d+ \([a-z ]+\)" + STALL)


if __name__ == "__main__":
    installed.main()
