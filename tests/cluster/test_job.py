#!/usr/bin/env python3
"""The main job on a real cluster of two nodes, with the chart installed: what a user does, and what goes wrong.

Needs root and build/release/bin. One cluster and one installation serve all cases.
"""

import glob
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from installed import MUSTER, ROOT, InstalledTest  # noqa: E402
from processes import run, wait_for  # noqa: E402

API_AWAY_SECONDS = 120
# Long enough for something to happen to it; every test of a fault uses it, so the laptop trains it once.
LONG_STEPS = 60_000


def long_job(name):
    """The digits job with many steps, as JSON."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"count": 2, "resources": {"cpu": "250m", "memory": "128Mi"}},
        "training": {
            "seed": 7, "logicalRanks": 16, "batchSize": 64, "steps": LONG_STEPS, "model": {"mlp": {"hidden": [128]}},
            "data": {"train": {"idx": {"images": "data/digits-train-images.idx.gz",
                                       "labels": "data/digits-train-labels.idx.gz"}}},
            "optimizer": {"sgd": {"learningRate": "0.01", "momentum": "0.9"}},
            "checkpoint": {"volumeClaimName": name, "everySteps": 1000}},
        "restart": {"policy": "OnFailure", "maxRestarts": 3, "backoffSeconds": 1}}}


def claim(name):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}}}


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class JobTest(InstalledTest):
    long_model = None

    def step(self, name):
        return self.job(name).get("status", {}).get("progress", {}).get("step", 0)

    def start_long(self, name):
        """Starts the long job and waits until it has made steps and a checkpoint."""
        self.apply(claim(name), long_job(name))
        self.addCleanup(self.kubectl, "delete", "tjob", name, "--ignore-not-found", check=False)
        wait_for(f"{name} trains", lambda: self.step(name) > 2000, 120)

    def laptop_model(self):
        """SHA-256 of the long job's model as `muster run` makes it."""
        cls = type(self)
        if cls.long_model is None:
            manifest = os.path.join(self.directory, "long.json")
            with open(manifest, "w", encoding="utf-8") as file:
                json.dump(long_job("long"), file)
            for data in glob.glob(os.path.join(ROOT, "examples", "data", "*.gz")):
                os.makedirs(os.path.join(self.directory, "data"), exist_ok=True)
                shutil.copy(data, os.path.join(self.directory, "data"))
            out = os.path.join(self.directory, "long")
            run([MUSTER, "run", manifest, "--quiet", "--hash-every", "0", "--output", out], seconds=600)
            cls.long_model = sha256(os.path.join(out, "model.safetensors"))
        return cls.long_model

    def fetched_model(self, name):
        out = os.path.join(self.directory, "fetched-" + name)
        self.muster("fetch", name, "--output", out, seconds=180)
        return sha256(os.path.join(out, "model.safetensors"))

    # ---- What a user does

    def test_the_digits_job_completes_and_its_model_is_the_laptops(self):
        laptop = os.path.join(self.directory, "laptop")
        run([MUSTER, "run", os.path.join(ROOT, "examples", "digits.yaml"), "--quiet", "--output", laptop])
        self.kubectl("apply", "-f", os.path.join(ROOT, "examples", "digits-claim.yaml"),
                     "-f", os.path.join(ROOT, "examples", "digits.yaml"))
        self.addCleanup(self.kubectl, "delete", "tjob", "digits", "--ignore-not-found", check=False)
        self.ended("digits")
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

    def test_delete_leaves_nothing(self):
        self.start_long("gone")
        self.kubectl("delete", "tjob", "gone")
        wait_for("its pods are gone", lambda: not self.pods("gone"), 90)
        self.assertNotIn("gone-", self.kubectl("get", "services"))

    def test_suspend_and_resume_end_with_the_same_bits(self):
        self.start_long("pause")
        self.muster("suspend", "pause", "--wait")
        wait_for("its pods are gone", lambda: not self.pods("pause"), 60)
        stopped = self.job("pause")["status"]
        self.assertEqual(stopped["phase"], "Suspended")
        self.assertGreater(stopped["checkpoint"]["step"], 2000)
        self.muster("resume", "pause")
        self.ended("pause")
        self.assertEqual(self.fetched_model("pause"), self.laptop_model())

    # ---- What goes wrong

    def test_a_killed_operator_and_a_lost_one_do_not_disturb_training(self):
        self.start_long("headless")
        before = {pod["metadata"]["uid"] for pod in self.pods("headless")}
        leader = self.leader()
        # Its container starts again, with the same name: it may take its own lease up again.
        for pid in self.pids_of(self.operator(leader)):
            os.kill(pid, signal.SIGKILL)
        wait_for("the killed operator runs again", lambda: self.operator(leader)["status"]["containerStatuses"][0]
                 ["restartCount"] > 0, 60)
        leader = self.leader()
        self.cluster.plane.kubectl("-n", "muster", "delete", "pod", leader, "--force", "--grace-period=0")
        wait_for("the other operator leads", lambda: self.leader() not in ("", leader), 60)
        self.ended("headless")
        self.assertEqual({pod["metadata"]["uid"] for pod in self.pods("headless")}, before)
        self.assertEqual(self.job("headless")["status"]["restarts"], 0)
        self.assertEqual(self.fetched_model("headless"), self.laptop_model())

    def operator(self, name):
        return json.loads(self.cluster.plane.kubectl("-n", "muster", "get", "pod", name, "-o", "json"))

    def leader(self):
        lease = json.loads(self.cluster.plane.kubectl("-n", "muster", "get", "lease", "muster-operator", "-o", "json"))
        return (lease["spec"].get("holderIdentity") or "").split("@")[0]

    def test_training_does_not_need_the_api_server(self):
        self.start_long("alone")
        before = {pod["metadata"]["uid"] for pod in self.pods("alone")}
        self.cluster.api_stop()
        gone = threading.Event()
        gone.wait(API_AWAY_SECONDS)
        self.cluster.api_start()
        self.ended("alone")
        self.assertEqual({pod["metadata"]["uid"] for pod in self.pods("alone")}, before)
        self.assertEqual(self.job("alone")["status"]["restarts"], 0)
        self.assertEqual(self.fetched_model("alone"), self.laptop_model())

    def test_a_restarted_kubelet_is_not_noticed(self):
        self.start_long("kubelet")
        before = {pod["metadata"]["uid"] for pod in self.pods("kubelet")}
        for number in (1, 2):
            self.cluster.node(number).kubelet_restart()
            self.cluster.node(number).ready()
        self.ended("kubelet")
        self.assertEqual({pod["metadata"]["uid"] for pod in self.pods("kubelet")}, before)

    def test_a_killed_worker_restarts_the_gang_from_the_checkpoint(self):
        self.start_long("killed")
        victim = next(pod for pod in self.pods("killed") if pod["metadata"]["labels"]["muster.dev/slot"] == "1")
        for pid in self.pids_of(victim):
            os.kill(pid, signal.SIGKILL)
        self.ended("killed")
        status = self.job("killed")["status"]
        self.assertEqual(status["restarts"], 1)
        self.assertEqual(self.fetched_model("killed"), self.laptop_model())
        text = self.kubectl("describe", "tjob", "killed")
        self.assertRegex(text, r"Restarting .*worker 1|WorkerLost .*worker 1|slot 1", text)

    def test_a_force_deleted_pod_is_replaced_once(self):
        self.start_long("forced")
        victim = next(pod for pod in self.pods("forced") if pod["metadata"]["labels"]["muster.dev/slot"] == "1")
        self.kubectl("delete", "pod", victim["metadata"]["name"], "--force", "--grace-period=0")
        self.ended("forced")
        names = [pod["metadata"]["name"] for pod in self.pods("forced")]
        self.assertEqual(len(names), len(set(names)))
        # The phase may lag behind the end of the container.
        ends = [(pod["metadata"]["labels"]["muster.dev/slot"], pod["status"]["containerStatuses"][0]["state"])
                for pod in self.pods("forced")]
        slots = [slot for slot, state in ends if state.get("terminated", {}).get("exitCode") == 0]
        self.assertEqual(sorted(slots), ["0", "1"])
        self.assertEqual(self.fetched_model("forced"), self.laptop_model())

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
    unittest.main(verbosity=2)
