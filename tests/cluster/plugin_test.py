#!/usr/bin/env python3
"""`kubectl muster` against a real API server: objects are made by hand and their status is patched as an operator would.

    tests/cluster/plugin_test.py BIN_DIR [unittest arguments]       BIN_DIR holds muster

It brings its own control plane, without nodes; what needs them (logs and models of workers that ran) is in job_test.py.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, HERE)
from control_plane import ControlPlane  # noqa: E402
from processes import wait_for  # noqa: E402

DEADLINE = 120
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
BIN_DIR = "build/dev/bin"
NOW = "2026-11-21T12:00:00Z"


def condition(kind, status, reason, message, generation=1):
    return {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation,
            "lastTransitionTime": NOW}


class PluginTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="muster-plugin-", dir=MEMORY)
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.plane = ControlPlane(os.path.join(cls.directory, "plane"))
        cls.enterClassContext(cls.plane)
        cls.plane.kubectl("apply", "-f", os.path.join(ROOT, "crds"))
        cls.plane.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.muster.dev", "--timeout=60s")
        os.symlink(os.path.join(os.path.abspath(BIN_DIR), "muster"), os.path.join(cls.directory, "kubectl-muster"))

    def setUp(self):
        self.namespace = re.sub(r"[^a-z]+", "-", self._testMethodName)[5:40].strip("-")
        self.plane.kubectl("create", "namespace", self.namespace)
        self.kubectl("label", "namespace", self.namespace, "pod-security.kubernetes.io/enforce=restricted")
        self.kubectl("apply", "-f", os.path.join(ROOT, "examples/digits.yaml"))

    def kubectl(self, *arguments, stdin=None):
        return self.plane.kubectl("-n", self.namespace, *arguments, stdin=stdin)

    def command(self, *arguments, kubeconfig=None):
        env = self.plane.environment()
        env["PATH"] = f"{self.directory}{os.pathsep}{env['PATH']}"
        if kubeconfig:
            env["KUBECONFIG"] = kubeconfig
        # As users type it: kubectl finds kubectl-muster along PATH.
        return {"args": [os.path.join(self.plane.bin, "kubectl"), "muster", arguments[0], "-n", self.namespace,
                         *arguments[1:]], "env": env, "text": True, "stdin": subprocess.DEVNULL, "cwd": self.directory}

    def muster(self, *arguments, kubeconfig=None):
        return subprocess.run(**self.command(*arguments, kubeconfig=kubeconfig), timeout=DEADLINE, check=False,
                              capture_output=True)

    def start(self, *arguments):
        process = subprocess.Popen(**self.command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        return process

    def set_status(self, **status):
        self.kubectl("patch", "tjob", "digits", "--subresource=status", "--type=merge", "-p",
                     json.dumps({"status": status}))

    def job(self):
        return json.loads(self.kubectl("get", "tjob", "digits", "-o", "json"))

    def make_pod(self, slot, **status):
        uid = self.job()["metadata"]["uid"]
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
                    "seccompProfile": {"type": "RuntimeDefault"}}
        pod = {"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": f"digits-abcde-{slot}-0", "labels": {
                   "muster.dev/job-uid": uid, "muster.dev/slot": str(slot), "muster.dev/attempt": "0"}},
               "spec": {"containers": [{"name": "worker", "image": "registry/muster-worker:0.1.0",
                                        "securityContext": security}]}}
        self.kubectl("create", "-f", "-", stdin=json.dumps(pod))
        self.kubectl("patch", "pod", f"digits-abcde-{slot}-0", "--subresource=status", "--type=merge", "-p",
                     json.dumps({"status": status}))

    def make_event(self, reason, note, second, through_core=True):
        """As the operator does, or as one that wrote through events.k8s.io did."""
        name = f"digits.{reason.lower()}"
        about = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "name": "digits",
                 "namespace": self.namespace, "uid": self.job()["metadata"]["uid"]}
        event = {"kind": "Event", "metadata": {"name": name}, "type": "Warning", "reason": reason, "action": "Reconcile",
                 "eventTime": f"2026-11-21T12:00:{second:09.6f}Z", "reportingInstance": "muster-operator"}
        if through_core:
            at = f"2026-11-21T12:00:{int(second):02}Z"
            event |= {"apiVersion": "v1", "involvedObject": about, "message": note, "reportingComponent": "muster.dev/operator",
                      "source": {"component": "muster.dev/operator"}, "firstTimestamp": at, "lastTimestamp": at, "count": 1}
        else:
            event |= {"apiVersion": "events.k8s.io/v1", "regarding": about, "note": note,
                      "reportingController": "muster.dev/operator"}
        self.kubectl("create", "-f", "-", stdin=json.dumps(event))

    def test_a_plan_reads_the_cluster_and_changes_nothing(self):
        manifest = os.path.join(ROOT, "examples/digits.yaml")
        done = self.muster("plan", manifest, "--set", "metadata.name=other")
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertIn("the cluster has no Node", done.stderr)
        self.plane.kubectl("create", "-f", "-", stdin=json.dumps(
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "planned-node"}}))
        self.addCleanup(self.plane.kubectl, "delete", "node", "planned-node")
        self.plane.kubectl("patch", "node", "planned-node", "--subresource=status", "--type=merge", "-p", json.dumps(
            {"status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
                        "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": NOW,
                                        "lastTransitionTime": NOW, "reason": "Test", "message": ""}]}}))
        before = self.kubectl("get", "tjob", "digits", "-o", "jsonpath={.metadata.resourceVersion}")
        done = self.muster("plan", manifest, "--set", "metadata.name=other")
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("there is no PersistentVolumeClaim digits", done.stdout)
        other = ["plan", manifest, "--set", "metadata.name=other", "--set", "spec.training.checkpoint="]
        done = self.muster(*other)
        # The API server taints a new node; nobody is here to take that away once it is ready.
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("taint", done.stdout)
        self.plane.kubectl("patch", "node", "planned-node", "--type=json", "-p",
                           '[{"op": "remove", "path": "/spec/taints"}]')
        done = self.muster(*other)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"other in namespace {self.namespace}: would start now\n", done.stdout)
        self.assertIn("planned-node", done.stdout)
        self.set_status(phase="Waiting", conditions=[condition("Admitted", "False", "GangWaiting", "no claim yet")])
        before = self.kubectl("get", "tjob", "digits", "-o", "jsonpath={.metadata.resourceVersion}")
        done = self.muster("describe", "digits")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("expected start: not known: no end of a running job", done.stdout)
        done = self.muster("plan", manifest)
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"has a job {self.namespace}/digits already", done.stderr)
        self.assertEqual(self.kubectl("get", "tjob", "digits", "-o", "jsonpath={.metadata.resourceVersion}"), before)
        self.assertEqual(self.kubectl("get", "tjob", "-o", "name").split(), ["trainingjob.muster.dev/digits"])

    def test_get_shows_what_the_status_says(self):
        self.set_status(phase="Running", workers="2/2", conditions=[condition("Running", "True", "GangRunning", "run")],
                        progress={"step": 110, "totalSteps": 440, "loss": "0.5", "samplesPerSecond": "1234.5"})
        done = self.muster("get")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"\ndigits  Running  2/2 +110/440 +25% +0\.5 +1,23[45] ")
        self.assertEqual(json.loads(self.muster("get", "digits", "-o", "json").stdout)["metadata"]["name"], "digits")
        self.assertIn("ACCURACY", self.muster("get", "-o", "wide").stdout)
        self.assertIn(self.namespace, self.muster("get", "-A").stdout)

    def test_watching_sees_a_change_and_the_end(self):
        process = self.start("get", "-w")
        self.assertIn("NAME", process.stdout.readline())
        self.assertIn("digits", process.stdout.readline())
        self.set_status(phase="Complete")
        self.assertIn("Complete", process.stdout.readline())
        self.kubectl("delete", "tjob", "digits", "--wait=false")
        self.assertIn("Deleted", process.stdout.readline())
        process.terminate()
        process.communicate(timeout=DEADLINE)

    def test_describe_tells_of_pods_and_events(self):
        self.set_status(phase="Pending", conditions=[
            condition("Admitted", "True", "GangScheduled", "2 workers on 1 node"),
            condition("Running", "False", "WaitingForPods", "0 of 2 workers run")])
        waiting = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": {
            "waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}}
        self.make_pod(0, phase="Pending", containerStatuses=[waiting])
        self.make_event("WorkerSlow", "by half a second later", second=9.75)
        self.make_event("DrainWaits", "in the same second", second=9.25)
        self.make_event("GangWaiting", "the second worker does not fit", second=8, through_core=False)
        done = self.muster("describe", "digits")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for expected in ("Worker 0: ImagePullBackOff: Back-off pulling image.", "What would help",
                         "the second worker does not fit", "digits-abcde-0-0", "0 of 2 workers run"):
            self.assertIn(expected, done.stdout)
        self.assertEqual(re.findall("GangWaiting: |DrainWaits: |WorkerSlow: ", done.stdout),
                         ["GangWaiting: ", "DrainWaits: ", "WorkerSlow: "])

    def test_suspend_and_resume_wait_for_the_operator(self):
        self.set_status(phase="Running", observedGeneration=1,
                        conditions=[condition("Running", "True", "GangRunning", "all run")])
        process = self.start("suspend", "digits", "--wait")
        wait_for("the job is to be suspended", lambda: self.job()["spec"].get("suspend") is True, 60)
        self.assertIsNone(process.poll())
        self.set_status(phase="Suspended", observedGeneration=2, conditions=[
            condition("Running", "False", "Suspended", "asleep", 2),
            condition("Suspended", "True", "Suspended", "stopped after step 220", 2)])
        out, _ = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out),
                         (0, f"The job {self.namespace}/digits is suspended: stopped after step 220.\n"))
        done = self.muster("resume", "digits")
        self.assertEqual((done.returncode, done.stdout), (0, f"The job {self.namespace}/digits starts again.\n"))
        self.assertIs(self.job()["spec"]["suspend"], False)

    def test_what_may_not_be_done_is_a_sentence(self):
        nobody = self.plane.user("eve")
        for arguments in (["get"], ["describe", "digits"], ["suspend", "digits"], ["logs", "digits"],
                          ["fetch", "digits"]):
            done = self.muster(*arguments, kubeconfig=nobody)
            self.assertEqual((done.returncode, done.stdout), (4, ""), arguments)
            self.assertRegex(done.stderr, r'^muster: you lack the right: .*User "eve" cannot')
        done = self.muster("describe", "nothing")
        self.assertEqual(done.returncode, 4)
        self.assertIn(f'there is no job "nothing" in the namespace "{self.namespace}"', done.stderr)
        done = self.muster("logs", "digits")
        self.assertEqual(done.returncode, 4)
        self.assertIn("no worker of the job digits is there", done.stderr)

    def test_fetch_makes_a_restricted_pod_and_takes_it_away(self):
        self.set_status(phase="Complete", conditions=[condition("Complete", "True", "Completed", "all ended with 0")])
        # The namespace enforces `restricted`; without a scheduler the pod stays pending.
        done = self.muster("fetch", "digits", "--image", "registry/muster-worker:0.1.0", "--timeout", "1")
        self.assertEqual(done.returncode, 30, done.stderr)
        self.assertRegex(done.stderr, "digits-fetch-[0-9a-f]{5} that reads the claim does not run after 1 s")
        pods = json.loads(self.kubectl("get", "pods", "-o", "json"))["items"]
        self.assertEqual([pod["metadata"]["name"] for pod in pods if not pod["metadata"].get("deletionTimestamp")], [])


if __name__ == "__main__":
    BIN_DIR = os.path.abspath(sys.argv.pop(1))
    unittest.main()
