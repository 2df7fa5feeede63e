#!/usr/bin/env python3
"""The main job on a real cluster of two nodes, with the chart installed: what a user does.

Needs root and build/release/bin. One cluster and one installation serve all cases.
"""

import datetime
import json
import os
import re
import shlex
import statistics
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import installed  # noqa: E402
from installed import MUSTER, ROOT  # noqa: E402
from long_job import LONG_STEPS, STALL, LongJobTest, long_job, sha256  # noqa: E402
from processes import run, wait_for  # noqa: E402


# As OCI's nodes say where they stand.
ONE_RACK = {"oci.oraclecloud.com/host.network_block_id": "b0", "oci.oraclecloud.com/host.rack_id": "r0"}


class JobTest(LongJobTest):
    # ---- What a user does

    def test_the_digits_job_completes_and_its_model_is_the_laptops(self):
        laptop = os.path.join(self.directory, "laptop")
        run([MUSTER, "run", os.path.join(ROOT, "examples", "digits.yaml"), "--quiet", "--output", laptop])
        self.kubectl("apply", "-f", os.path.join(ROOT, "examples", "digits-claim.yaml"),
                     "-f", os.path.join(ROOT, "examples", "digits.yaml"))
        self.addCleanup(self.kubectl, "delete", "tjob/digits", "pvc/digits", "--ignore-not-found", check=False)
        self.ended("digits")
        self.assert_logs_as_the_pages_say("digits")
        self.assertEqual(self.fetched_model("digits"), sha256(os.path.join(laptop, "model.safetensors")))
        line = self.kubectl("get", "tjob", "digits").splitlines()
        self.assertEqual(line[0].split(), ["NAME", "STATUS", "WORKERS", "STEP", "LOSS", "RESTARTS", "AGE"])
        self.assertRegex(line[1], r"^digits +Complete +\d/2 +440 +0\.0\d+ +0 +\d+s")
        text = self.kubectl("describe", "tjob", "digits")
        for reason in ("GangScheduled", "Completed"):
            self.assertIn(reason, text)
        status = self.job("digits")["status"]
        self.assertTrue(status["checkpoint"]["durable"])
        self.assertEqual({pod["spec"]["nodeName"] for pod in self.pods("digits")} - {"node1", "node2"}, set())
        readers = json.loads(self.kubectl("get", "pods", "-l", "app.kubernetes.io/component=fetch", "-o", "json"))["items"]
        self.assertEqual([pod["metadata"]["name"] for pod in readers if "deletionTimestamp" not in pod["metadata"]], [])
        logs = [line.split(" ") for line in self.muster("logs", "digits", "--timestamps").splitlines() if " | 20" in line]
        self.assertEqual({words[0].split(".")[0] for words in logs}, {"worker-0", "worker-1"})
        stamps = [words[2] for words in logs]
        self.assertEqual(stamps, sorted(stamps))

    def assert_logs_as_the_pages_say(self, name):
        """The command of the README, which the chart's notes have, too, shows what `muster logs` shows."""
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            (command,) = re.findall(rf"`kubectl (logs -l muster\.dev/job-name={name} [^`]+)`", file.read())
        with open(os.path.join(installed.CHART, "templates", "NOTES.txt"), encoding="utf-8") as file:
            self.assertIn(f"kubectl {command}{{{{", file.read())
        slots = {pod["metadata"]["name"]: pod["metadata"]["labels"]["muster.dev/slot"] for pod in self.pods(name)}
        said = [re.fullmatch(r"\[pod/([^/\]]+)/worker\] ?(.*)", line) for line in self.kubectl(*shlex.split(command)).splitlines()]
        self.assertNotIn(None, said)
        told = [re.fullmatch(r"worker-(\d+)(?:\.\d+)? *\| ?(.*)", line) for line in self.muster("logs", name).splitlines()]
        self.assertNotIn(None, told)
        self.assertEqual(sorted((slots[line[1]], line[2]) for line in said), sorted((line[1], line[2]) for line in told))
        self.assertEqual({line[1] for line in told}, {"0", "1"})

    def test_the_plugin_tells_of_a_gang_that_trains_and_follows_it_past_a_death(self):
        self.say_where_nodes_stand(ONE_RACK)
        # Nobody looks at its bits, so it may be long enough for all that is asked meanwhile.
        self.start_long("told", steps=2 * LONG_STEPS)
        # With the second figure of its progress at the latest.
        wait_for("a step's time is predicted", lambda: "predictedStepMilliseconds" in self.status("told")["progress"], 60)
        self.assertRegex(self.kubectl("get", "tjob", "told").splitlines()[1], r"^told +Running +2/2 +\d+ +\d\.\d+ +0 +\d+\w")
        row = self.muster("get", "told").splitlines()
        self.assertEqual(row[0].split(), ["NAME", "STATUS", "WORKERS", "STEP", "PROGRESS", "LOSS", "SPEED", "ETA",
                                          "RESTARTS", "AGE"])
        self.assertRegex(row[1], rf"^told +Running +2/2 +\d+/{2 * LONG_STEPS} +\d+% +\d\.\d+ +[\d,]+ samples/s +\d+\w+ +0 +\d+\w+$")
        text = self.muster("describe", "told")
        nodes = {pod["metadata"]["labels"]["muster.dev/slot"]: pod["spec"]["nodeName"] for pod in self.pods("told")}
        for expected in (r"^told in namespace team: Running for \d+", rf"Progress +step [\d,]+ of {2 * LONG_STEPS:,} \(\d+%\)",
                         r"Checkpoint +step \d+,000, \d+s ago, on the claim told", r"Workers +2/2 run; 2 wished",
                         rf"\n +0 +0 +Running +{nodes['0']} ", rf"\n +1 +0 +Running +{nodes['1']} ",
                         r"Running +True .*GangRunning: ", r"Normal +GangScheduled: "):
            self.assertRegex(text, expected)
        self.assertNotIn("What would help", text)
        said = os.path.join(self.directory, "told.log")
        follow = self.started(said, "logs", "told", "--follow", "--timestamps")

        def speakers():
            # Who comes in place of another has the number of the membership that it makes: .n here.
            with open(said, encoding="utf-8") as file:
                return {re.sub(r"\.\d+$", ".n", line.split(" ")[0]) for line in file if line.startswith("worker-")}
        wait_for("both are followed", lambda: speakers() == {"worker-0", "worker-1"}, 60)
        victim = next(pod for pod in self.pods("told") if pod["metadata"]["labels"]["muster.dev/slot"] == "1")
        self.assertTrue(self.kill(victim))
        self.ended("told")
        code = follow.wait(120)
        with open(said, encoding="utf-8") as file:
            complaints = [line for line in file if not line.startswith("worker-")]
        self.assertEqual(code, 0, complaints)
        self.assertEqual(speakers(), {"worker-0", "worker-1", "worker-1.n"})
        last = self.muster("describe", "told")
        self.assertRegex(last, r"^told in namespace team: Complete, ended \d+s ago")
        self.assertIn("It ended without a restart", last)
        self.assertRegex(last, r"WorkerLost: .*worker 1 was lost at step \d+")
        self.assertIn("muster fetch told -n team copies the model here", last)
        self.assertGreater(self.assert_progress_is_seldom_written("told"), 0)
        self.assert_times_of_steps("told")

    def say_where_nodes_stand(self, labels):
        """Until the end of the test."""
        forget = [f"{key}-" for key in labels]
        self.addCleanup(self.cluster.kubectl, "label", "nodes", "node1", "node2", *forget, check=False)
        self.cluster.kubectl("label", "nodes", "node1", "node2", *(f"{key}={value}" for key, value in labels.items()))

    def assert_times_of_steps(self, name):
        """That status says what a step takes, by the pace of the steps that it tells of, and what it should take.

        Processors are shared here: that a figure is of the right order is all that can be asked of it.
        """
        written = [status.get("progress") or {} for status in self.status_writes(name)]
        told = [one for one in written if one.get("step") and one.get("updatedAt") and one.get("stepMilliseconds")]
        self.assertGreater(len(told), 1)
        first, last = ((datetime.datetime.fromisoformat(one["updatedAt"]), one["step"]) for one in (told[0], told[-1]))
        pace = (last[0] - first[0]).total_seconds() * 1000 / (last[1] - first[1])
        measured = statistics.median(float(one["stepMilliseconds"]) for one in told)
        self.assertTrue(pace / 4 < measured < pace * 4, f"{measured} ms a step, and {pace} ms by what was told: {told}")
        predicted = statistics.median(float(one["predictedStepMilliseconds"]) for one in written
                                      if one.get("predictedStepMilliseconds"))
        # It leaves out that workers wait for each other's turn on a processor, which may be most of a step here.
        self.assertTrue(0 < predicted < measured * 10, f"{predicted} ms are predicted, {measured} measured: {told}")

    def started(self, output, *arguments):
        """`kubectl muster ...` in the background, which says what it says into a file; ended with the test."""
        command, env = installed.plugin(*arguments)
        with open(output, "wb") as file:
            process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
        self.addCleanup(process.wait, 20)
        self.addCleanup(process.kill)
        return process

    def test_workers_write_to_their_volumes_alone(self):
        manifest = long_job("readonly")
        del manifest["spec"]["training"]["checkpoint"]
        self.addCleanup(self.kubectl, "delete", "tjob", "readonly", "--ignore-not-found", check=False)
        self.apply(manifest)
        wait_for("it trains", lambda: self.step("readonly") > 0, 120)
        for pod in self.pods("readonly"):
            pids = self.pids_of(pod)
            self.assertTrue(pids, pod["metadata"]["name"])
            for pid in pids:
                with open(f"/proc/{pid}/mountinfo", encoding="utf-8") as file:
                    mounts = {line.split()[4]: line.split()[5].split(",") for line in file}
                self.assertIn("ro", mounts["/"], pid)
        self.ended("readonly")

    def test_delete_leaves_nothing(self):
        self.start_long("gone", most=3)

        def its_own():
            # The claim is the user's own.
            names = self.kubectl("get", "pods,services,poddisruptionbudgets", "-l", "muster.dev/job-name=gone", "-o", "name")
            return sorted(name.split("/")[0] for name in names.split())
        self.assertEqual(its_own(), ["pod", "pod", "poddisruptionbudget.policy"])
        self.kubectl("delete", "tjob", "gone")
        wait_for("all that was its own is gone", lambda: not its_own(), 90)

    def test_suspend_and_resume_end_with_the_same_bits(self):
        self.start_long("pause")
        told = self.step("pause")
        self.muster("suspend", "pause", "--wait")
        wait_for("its pods are gone", lambda: not self.pods("pause"), 60)
        self.assertEqual(self.job("pause")["status"]["phase"], "Suspended")
        self.muster("resume", "pause")
        # The status of a suspended job may be behind its volume: no operator may have lived to hear its workers' last words.
        went_on = self.assert_told("pause", r"training went on from the checkpoint of step (\d+)", 120)
        self.assertGreaterEqual(int(went_on[1]), told)
        self.ended("pause")
        self.assertEqual(self.fetched_model("pause"), self.laptop_model())

    # ---- Another number of workers

    def test_scaled_up_and_down_while_it_trains(self):
        self.start_long("elastic", most=3)
        before = {pod["metadata"]["uid"] for pod in self.pods("elastic")}
        self.kubectl("scale", "tjob/elastic", "--replicas=3")
        wait_for("three workers train", lambda: self.status("elastic").get("workers") == "3/3", 90)
        self.kubectl("scale", "tjob/elastic", "--replicas=2")
        wait_for("two workers train", lambda: self.status("elastic").get("workers") == "2/2", 90)
        self.ended("elastic")
        after = {pod["metadata"]["uid"] for pod in self.pods("elastic")}
        self.assertEqual(before & after, before)
        self.assert_told("elastic", r"WorkerJoined .*worker 2 joined at step \d+" + STALL)
        self.assert_told("elastic", r"WorkerLost .*worker 2 left at step \d+ \(asked to leave\)" + STALL)
        self.assertEqual(self.job("elastic")["status"]["restarts"], 0)
        self.assertEqual(self.fetched_model("elastic"), self.laptop_model())

    def test_an_autoscaler_scales_it_and_a_drained_node_hands_its_workers_over(self):
        manifest = long_job("scaled", steps=1_000_000_000, most=3)
        manifest["spec"]["worker"]["resources"]["memory"] = self.part_of_a_node(fifths=2)
        manifest["spec"]["worker"]["min"] = 1
        self.apply_with_claim(manifest)
        wait_for("it trains", lambda: self.step("scaled") > 2000, 120)
        # Nobody measures processors here; what an autoscaler does without figures is to keep its own bounds.
        self.apply({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "scaled"},
                    "spec": {"minReplicas": 3, "maxReplicas": 3,
                             "scaleTargetRef": {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "name": "scaled"},
                             "metrics": [{"type": "Resource", "resource": {
                                 "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
        self.addCleanup(self.kubectl, "delete", "hpa", "scaled", "--ignore-not-found", check=False)
        wait_for("three workers train", lambda: self.status("scaled").get("workers") == "3/3", 120)
        scaler = json.loads(self.kubectl("get", "hpa", "scaled", "-o", "json"))["status"]
        self.assertEqual([c["status"] for c in scaler["conditions"] if c["type"] == "AbleToScale"], ["True"], scaler)
        self.kubectl("delete", "hpa", "scaled")

        def budget():
            found = json.loads(self.kubectl("get", "pdb", "-l", "muster.dev/job-name=scaled", "-o", "json"))["items"]
            return found[0] if len(found) == 1 else None
        wait_for("the budget counts three workers", lambda: (budget() or {}).get("status", {}).get("currentHealthy") == 3, 60)
        self.assertEqual((budget()["spec"]["minAvailable"], budget()["status"]["disruptionsAllowed"]), (1, 2))
        nodes = {pod["metadata"]["labels"]["muster.dev/slot"]: pod["spec"]["nodeName"] for pod in self.pods("scaled")}
        away = next((node for node in nodes.values() if node != nodes["0"]), None)
        self.assertTrue(away, nodes)
        stay = {pod["metadata"]["uid"] for pod in self.pods("scaled") if pod["spec"]["nodeName"] != away}
        self.addCleanup(self.kubectl, "uncordon", away, check=False)
        self.kubectl("drain", away, "--pod-selector=muster.dev/job-name=scaled", "--force",
                     "--delete-emptydir-data", "--timeout=60s")
        self.kubectl("uncordon", away)
        left = self.step("scaled")
        wait_for("three workers train again", lambda: self.status("scaled").get("workers") == "3/3"
                 and self.step("scaled") > left, 120)
        self.assertLessEqual(stay, {pod["metadata"]["uid"] for pod in self.pods("scaled")})
        status = self.job("scaled")["status"]
        self.assertEqual(status["restarts"], 0, status)
        # Handed over at the end of a step.
        self.assert_told("scaled", r"WorkerLost .*worker \d left at step \d+ \(asked to leave\)" + STALL)

    # ---- kubectl's own words

    def test_explain_wait_scale_and_dry_run_behave(self):
        text = self.kubectl("explain", "tjob.spec.worker.count")
        self.assertRegex(text, r"(?s)FIELD: count <integer>.*DESCRIPTION:\s+\S+")
        bad = long_job("bad")
        bad["spec"]["worker"]["count"] = 0
        out = self.kubectl("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(bad), check=False)
        self.assertIn("spec.worker.count", out)
        waiting = long_job("waiting")
        waiting["spec"]["suspend"] = True
        self.apply(waiting)
        self.addCleanup(self.kubectl, "delete", "tjob", "waiting", "--ignore-not-found", check=False)
        self.kubectl("wait", "tjob/waiting", "--for=condition=Suspended", "--timeout=30s")
        self.kubectl("scale", "tjob/waiting", "--replicas=1")
        self.assertEqual(self.job("waiting")["spec"]["worker"]["count"], 1)
        self.kubectl("delete", "tjob", "waiting")


if __name__ == "__main__":
    installed.main()
