#!/usr/bin/env python3
"""The commands that reach a cluster, as a user runs them, over a kubectl that answers from a list.

    tests/unit/cli/plugin_test.py BIN_DIR [unittest arguments]
"""

import datetime
import errno
import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
FAKE = os.path.join(ROOT, "tests/fakes/kubectl.py")
DEADLINE = 60
UNREACHABLE = "Unable to connect to the server: dial tcp 10.0.0.1:443: connect: connection refused\n"
NOT_FOUND = 'Error from server (NotFound): trainingjobs.muster.dev "digits" not found\n'


def condition(kind, status, reason, message):
    return {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 2,
            "lastTransitionTime": "2026-11-21T12:00:00Z"}


def job(conditions=(), claim="digits", suspend=False, **status):
    checkpoint = {"path": "/var/lib/muster", "everySteps": 100, "keep": 2}
    if claim:
        checkpoint["volumeClaimName"] = claim
    return {
        "apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob",
        "metadata": {"name": "digits", "namespace": "lab", "uid": "u-1", "generation": 2, "resourceVersion": "5",
                     "creationTimestamp": "2026-11-21T11:00:00Z"},
        "spec": {"worker": {"count": 2, "min": 1, "max": 4, "resources": {"cpu": "1", "memory": "512Mi"}},
                 "suspend": suspend,
                 "training": {"seed": 7, "batchSize": 64, "epochs": 20, "model": {"mlp": {"hidden": [128]}},
                              "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
                              "optimizer": {"sgd": {"learningRate": "0.1"}}, "checkpoint": checkpoint}},
        "status": {"observedGeneration": 2, "conditions": list(conditions), **status}}


def pod(slot, state=None, attempt=0, phase="Running", node="node-1", **status):
    state = state or {"running": {"startedAt": "2026-11-21T12:00:00Z"}}
    return {"metadata": {"name": f"digits-abcde-{slot}-{attempt}", "namespace": "lab", "uid": f"p-{slot}-{attempt}",
                         "labels": {"muster.dev/slot": str(slot), "muster.dev/attempt": str(attempt)},
                         "creationTimestamp": "2026-11-21T12:00:00Z"},
            "spec": {"nodeName": node, "containers": [{"name": "worker", "image": "registry/muster-worker:0.1.0",
                                                       "imagePullPolicy": "IfNotPresent"}]},
            "status": {"phase": phase, "containerStatuses": [{"name": "worker", "state": state}], **status}}


def ended(code):
    return {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed",
                           "finishedAt": "2026-11-21T12:05:00Z"}}


def items(*objects):
    return json.dumps({"kind": "List", "items": list(objects)})


COMPLETE = [condition("Complete", "True", "Completed", "every worker (2) ended with 0")]
FAILED = [condition("Failed", "True", "Numerics", "worker 1 (attempt 0) ended with exit code 24 (Numerics)")]
RUNNING = [condition("Admitted", "True", "GangScheduled", "2 workers on 1 node"),
           condition("Running", "True", "GangRunning", "all 2 workers run")]


class PluginTest(unittest.TestCase):
    bin_dir = "build/dev/bin"

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-plugin-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.rules = []

    def path(self, name):
        return os.path.join(self.directory, name)

    def answer(self, args, stdout="", **more):
        self.rules.append({"args": args, "stdout": stdout if isinstance(stdout, str) else json.dumps(stdout), **more})

    def environment(self):
        with open(self.path("rules.json"), "w", encoding="utf-8") as file:
            json.dump(self.rules, file)
        return {"PATH": os.environ["PATH"], "KUBECTL": FAKE, "FAKE_KUBECTL": self.directory}

    def muster(self, *arguments, env=None, says=""):
        return subprocess.run([os.path.join(os.path.abspath(self.bin_dir), "muster"), *arguments], text=True,
                              env=env or self.environment(), cwd=self.directory, timeout=DEADLINE,
                              input=says, capture_output=True, check=False)

    def start(self, *arguments, through=(), **how):
        process = subprocess.Popen([*through, os.path.join(os.path.abspath(self.bin_dir), "muster"), *arguments], text=True,
                                   env=self.environment(), cwd=self.directory, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, **{"stderr": subprocess.PIPE, **how})
        self.addCleanup(process.kill)
        return process

    def calls(self):
        if not os.path.exists(self.path("calls.jsonl")):
            return []
        with open(self.path("calls.jsonl"), encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            return [json.loads(line) for line in file]

    def calls_of(self, *words):
        return [call for call in self.calls() if all(word in call["args"] for word in words)]

    def wait_until(self, is_so):
        due = time.monotonic() + DEADLINE
        while not is_so():
            self.assertLess(time.monotonic(), due, "it did not come to that")
            time.sleep(0.02)


class GetTest(PluginTest):
    def test_jobs_are_rows(self):
        self.answer("get trainingjobs", items(job(RUNNING, phase="Running", workers="2/2", restarts=1, progress={
            "step": 220, "totalSteps": 440, "epoch": 10, "loss": "0.1234", "samplesPerSecond": "51200.4",
            "etaSeconds": 75}), job(phase="Waiting")))
        done = self.muster("get", "-n", "lab", "--context", "home", "--kubeconfig", "/k")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        head, first, second = done.stdout.splitlines()
        self.assertEqual(head.split(), ["NAME", "STATUS", "WORKERS", "STEP", "PROGRESS", "LOSS", "SPEED", "ETA",
                                        "RESTARTS", "AGE"])
        self.assertRegex(first, r"^digits  Running  2/2 +220/440 +50%  0\.1234 +51,200 samples/s  75s +1 ")
        self.assertRegex(second, r"^digits  Waiting  - ")
        self.assertEqual(self.calls()[0]["args"][:3], ["--kubeconfig=/k", "--context=home", "--namespace=lab"])

    def test_the_speed_of_a_text_is_told_in_tokens(self):
        one = job(RUNNING, phase="Running", progress={"step": 1, "totalSteps": 2, "loss": "1", "samplesPerSecond": "200"})
        one["spec"]["training"]["model"] = {"gpt": {"layers": 1, "heads": 1, "width": 8, "contextLength": 64}}
        self.answer("get trainingjobs", items(one))
        self.assertRegex(self.muster("get").stdout, r" 12,800 tokens/s ")

    def test_other_forms_are_kubectls_own(self):
        self.answer("-o yaml", "kind: List\n")
        done = self.muster("get", "-A", "-o", "yaml")
        self.assertEqual((done.returncode, done.stdout), (0, "kind: List\n"))
        self.assertIn("--all-namespaces", self.calls()[0]["args"])
        self.answer("-o name", stderr="No resources found in lab namespace.\n")
        done = self.muster("get", "-o", "name")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", "No resources found in lab namespace.\n"))

    def test_a_watch_prints_a_row_for_each_change(self):
        os.mkfifo(self.path("events"))
        self.answer("--watch", fifo="events", times=1)
        self.answer("get trainingjobs", items(job(phase="Waiting")))
        process = self.start("get", "-w")
        self.assertIn("NAME", process.stdout.readline())
        self.assertIn("Waiting", process.stdout.readline())
        with open(self.path("events"), "w", encoding="utf-8") as events:
            for kind, phase in [("ADDED", "Waiting"), ("MODIFIED", "Running"), ("MODIFIED", "Running"),
                                ("DELETED", "Running")]:
                json.dump({"type": kind, "object": job(phase=phase)}, events, indent=4)
                events.write("\n")
            events.flush()
            self.assertIn("Running", process.stdout.readline())
            self.assertIn("Deleted", process.stdout.readline())
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 0)
        process.communicate()

    def test_a_moment_without_an_api_server_ends_no_watch(self):
        os.mkfifo(self.path("events"))
        for stderr in (UNREACHABLE, ""):
            self.answer("--watch", stderr=stderr, code=1, times=1)
        self.answer("--watch", fifo="events", times=1)
        self.answer("get trainingjobs", items(job(phase="Waiting")))
        process = self.start("get", "-w")
        self.wait_until(lambda: len(self.calls_of("--watch")) == 3)
        with open(self.path("events"), "w", encoding="utf-8") as events:
            json.dump({"type": "MODIFIED", "object": job(phase="Running")}, events)
            events.flush()
            self.assertEqual([process.stdout.readline().split()[1] for _ in range(3)], ["STATUS", "Waiting", "Running"])
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 0)
        self.assertRegex(process.communicate()[1], "^muster: no cluster answers.*\nmuster: kubectl get: ended with .*\n$")

    def test_a_watch_that_the_cluster_refuses_ends(self):
        self.answer("--watch", stderr='Error from server (Forbidden): trainingjobs.muster.dev is forbidden: User "eve" cannot watch\n',
                    code=1)
        self.answer("get trainingjobs", items(job(phase="Waiting")))
        done = self.muster("get", "-w")
        self.assertEqual(done.returncode, 4)
        self.assertIn("you lack the right", done.stderr)

    def test_a_watch_in_kubectls_own_form_ends_with_0_too(self):
        os.mkfifo(self.path("events"))
        self.answer("--watch", fifo="events")
        process = self.start("get", "-w", "-o", "json")
        with open(self.path("events"), "w", encoding="utf-8") as events:
            events.write("{}\n")
            events.flush()
            self.assertEqual(process.stdout.readline(), "{}\n")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 0)
        self.assertEqual(process.communicate()[1], "")

    def test_a_list_in_kubectls_own_form_that_is_interrupted_is_not_whole(self):
        os.mkfifo(self.path("list"))
        self.answer("get trainingjobs", fifo="list")
        process = self.start("get", "-o", "json")
        with open(self.path("list"), "w", encoding="utf-8"):
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 130)
        self.assertEqual(process.communicate()[1], "muster: interrupted\n")

    def test_a_watch_of_some_jobs_passes_over_the_others(self):
        one, two, other = (job(phase="Waiting") for _ in range(3))
        two["metadata"]["name"], other["metadata"]["name"] = "letters", "other"
        os.mkfifo(self.path("events"))
        self.answer("--watch", fifo="events", times=1)
        self.answer("get trainingjobs.muster.dev digits letters -o json", items(one, two))
        process = self.start("get", "digits", "letters", "-w")
        self.assertEqual([process.stdout.readline().split()[0] for _ in range(3)], ["NAME", "digits", "letters"])
        with open(self.path("events"), "w", encoding="utf-8") as events:
            for changed in (other, two):
                json.dump({"type": "MODIFIED", "object": {**changed, "status": {**changed["status"], "phase": "Running"}}}, events)
            events.flush()
            self.assertRegex(process.stdout.readline(), "^letters  Running ")
            # kubectl watches one object, or all of a kind.
            self.assertNotIn("digits", self.calls_of("--watch")[0]["args"])
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 0)
        process.communicate()

    def test_under_nohup_a_hang_up_ends_neither_a_watch_nor_its_kubectl(self):
        os.mkfifo(self.path("events"))
        self.answer("--watch", fifo="events", times=1)
        self.answer("get trainingjobs", items(job(phase="Waiting")))
        process = self.start("get", "-w", through=["nohup"], start_new_session=True)
        process.stdout.readline()
        process.stdout.readline()
        with open(self.path("events"), "w", encoding="utf-8") as events:
            os.killpg(process.pid, signal.SIGHUP)
            json.dump({"type": "MODIFIED", "object": job(phase="Running")}, events)
            events.flush()
            self.assertIn("Running", process.stdout.readline())
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(DEADLINE), 0)
        process.communicate()

    def test_what_is_wrong_is_said_in_one_sentence(self):
        refusals = [
            ('error: the server doesn\'t have a resource type "trainingjobs"\n', "Muster is not installed there"),
            ('Error from server (Forbidden): trainingjobs.muster.dev is forbidden: User "eve" cannot list\n',
             "you lack the right.*eve"),
            ('Error from server (Forbidden): pods "x" is forbidden: exceeded quota: q, requested: pods=1\n',
             r"^muster: Error from server \(Forbidden\): pods .* exceeded quota: q"),
            ("Unable to connect to the server: dial tcp 10.0.0.1:443: i/o timeout\n", "no cluster answers.*10.0.0.1"),
            ('E1121 15:00:00.000000 1 x.go:1] noise\nerror: context "x" does not exist\n',
             r'^muster: kubectl get: error: context "x" does not exist$')]
        for stderr, expected in refusals:
            self.rules = []
            self.answer("get trainingjobs", stderr=stderr, code=1)
            done = self.muster("get")
            self.assertEqual((done.returncode, done.stdout), (4, ""))
            self.assertRegex(done.stderr.strip(), expected)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_a_missing_kubectl_is_named(self):
        for env, expected in [({"PATH": "/nowhere"}, "no kubectl along PATH"),
                              ({"PATH": "", "KUBECTL": "/nowhere/k"}, "KUBECTL=/nowhere/k: no such program")]:
            done = self.muster("get", env=env)
            self.assertEqual(done.returncode, 2)
            self.assertIn(expected, done.stderr)

    def test_an_empty_namespace_is_told_by_name(self):
        self.answer("get trainingjobs", items())
        self.answer("config view", "lab")
        done = self.muster("get")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", "No jobs in the namespace lab.\n"))

    def test_the_program_is_a_plugin_under_its_name(self):
        os.symlink(os.path.join(os.path.abspath(self.bin_dir), "muster"), self.path("kubectl-muster"))
        done = subprocess.run([self.path("kubectl-muster"), "get", "--help"], text=True, capture_output=True,
                              timeout=DEADLINE, check=False)
        self.assertEqual(done.returncode, 0)
        self.assertIn("kubectl muster get [OPTIONS]", done.stdout)


class DescribeTest(PluginTest):
    def test_a_failed_job_says_what_happened_and_what_would_help(self):
        self.answer("get trainingjobs", job(FAILED, phase="Failed", restarts=0, failure={
            "slot": 1, "exitCode": 24, "reason": "Numerics", "logTail": "step 33\nloss is NaN\x1b[2J"}))
        self.answer("get pods", items(pod(0, ended(25), phase="Failed"), pod(1, ended(24), phase="Failed")))
        self.answer("involvedObject.uid=u-1", items({"metadata": {}, "type": "Warning", "reason": "Failed", "message": "it is over",
                                                     "eventTime": "2026-11-21T12:05:00.000000Z",
                                                     "involvedObject": {"kind": "TrainingJob", "name": "digits"}}))
        self.answer("involvedObject.uid=p-", items())
        done = self.muster("describe", "digits")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = done.stdout
        self.assertRegex(text, r"^digits in namespace lab: Failed .* ago\n  Worker 1 .* exit code 24 \(Numerics\)\.\n")
        self.assertIn("What would help\n  Try a smaller learning rate", text)
        self.assertIn("| step 33\n  | loss is NaN [2J\n", text)
        self.assertRegex(text, r"1 +0 +Ended with 24 +node-1 +- +digits-abcde-1-0")
        self.assertRegex(text, r"Warning +Failed: it is over")

    def test_the_last_failure_is_told_with_its_own_node_and_not_its_replacements(self):
        failure = {"slot": 1, "exitCode": 137, "reason": "Signaled"}
        # The pod's name is made of the job's uid, u-1.
        for told, expected in [({"node": "node-7", "attempt": 0},
                                r"worker 1 \(attempt 0, pod digits-i2jdq-1-0\) on node-7, exit code 137 \(Sign"),
                               ({}, r"worker 1, exit code 137 \(Signaled\)")]:
            self.rules = []
            self.answer("get trainingjobs", job(RUNNING, phase="Running", failure={**failure, **told}))
            self.answer("get pods", items(pod(0), pod(1, attempt=1)))
            self.answer("events", items())
            self.assertRegex(self.muster("describe", "digits").stdout, r"Last failure\n  " + expected)

    def test_speed_is_told_in_what_the_model_reads(self):
        progress = {"step": 220, "totalSteps": 440, "epoch": 10, "loss": "0.1234", "samplesPerSecond": "51200.4", "etaSeconds": 75}
        gpt = {"layers": 4, "heads": 4, "width": 128, "contextLength": 64}
        for model, expected in [({"mlp": {"hidden": [128]}}, "51,200 samples/s"), ({"gpt": gpt}, "3,276,826 tokens/s")]:
            self.rules = []
            running = job(RUNNING, phase="Running", progress=progress)
            running["spec"]["training"]["model"] = model
            self.answer("get trainingjobs", running)
            self.answer("get pods", items(pod(0), pod(1)))
            self.answer("events", items())
            self.assertIn(f", loss 0.1234, {expected}", " ".join(self.muster("describe", "digits").stdout.split()))

    def test_a_pod_that_cannot_start_is_the_story(self):
        self.answer("get trainingjobs", job([condition("Admitted", "True", "GangScheduled", "placed"), condition(
            "Running", "False", "WaitingForPods", "0 of 2 workers run")], phase="Pending"))
        waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}}
        self.answer("get pods", items(pod(0, waiting, phase="Pending"), pod(1, waiting, phase="Pending")))
        self.answer("events", stderr="Error from server (Forbidden): events is forbidden\n", code=1)
        done = self.muster("describe", "digits")
        self.assertIn("Workers 0, 1: ImagePullBackOff: Back-off pulling image.", done.stdout)
        self.assertIn("imagePullSecrets", done.stdout)
        self.assertEqual(done.stdout.count("events cannot be read"), 1)

    def test_containers_that_start_before_the_worker_are_named(self):
        self.answer("get trainingjobs", job([condition("Admitted", "True", "GangScheduled", "placed"), condition(
            "Running", "False", "WaitingForPods", "0 of 2 workers run")], phase="Pending"))
        first = {"waiting": {"reason": "PodInitializing"}}
        states = [{"waiting": {"reason": "ErrImagePull", "message": "no such image"}}, ended(7)]
        self.answer("get pods", items(*(
            pod(slot, first, phase=phase, initContainerStatuses=[{"name": "done", "state": ended(0)},
                                                                 {"name": "proxy", "state": states[slot]}])
            for slot, phase in enumerate(["Pending", "Failed"]))))
        self.answer("events", items())
        done = self.muster("describe", "digits")
        self.assertIn("Worker 0: ErrImagePull: init container proxy: no such image.", done.stdout)
        self.assertIn("Worker 1: Init:Error: init container proxy: exit code 7.", done.stdout)

    def test_a_job_that_waits_is_told_when_it_is_expected_to_start(self):
        waits = job([condition("Admitted", "False", "GangWaiting", "needs 2 workers, and 1 fits")], claim="", phase="Waiting")
        other = {**job(RUNNING, claim="", phase="Running", startTime="2026-11-21T11:00:00Z", targetWorkers=3,
                       membershipEpoch=1, startAttempt=0,
                       placement=[{"slot": slot, "attempt": 0, "node": "a"} for slot in range(3)])}
        other["metadata"] = {**other["metadata"], "name": "other", "uid": "u-2"}
        other["spec"]["worker"].update(count=3, min=3, max=3)
        until = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=600)
        other["status"]["progress"] = {"step": 5, "totalSteps": 10, "etaSeconds": 600,
                                       "updatedAt": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")}
        self.answer("api-resources", "nodes\n")
        self.answer("get nodes,", items(node("a", cpu="3"), waits, other))
        self.answer("get trainingjobs", waits)
        self.answer("get pods", items())
        self.answer("events", items())
        done = self.muster("describe", "digits")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = re.sub(r"\s+", " ", done.stdout)
        self.assertIn("none yet, every 100 steps, on the own disk of slot 0's node, and lost with its pod (no "
                      "spec.training.checkpoint.volumeClaimName)", text)
        found = re.search(r"expected start: in (9 min \d+ s|10 min[^(]*) \(([^)]*)\), when lab/other has ended by their own word",
                          text)
        self.assertTrue(found, done.stdout)
        told = datetime.datetime.fromisoformat(found.group(2).replace("Z", "+00:00"))
        self.assertLess(abs((told - until).total_seconds()), 5)

    def test_where_the_cluster_cannot_be_read_the_start_is_not_known_and_the_rest_is_told(self):
        self.answer("get trainingjobs", job([condition("Admitted", "False", "GangWaiting", "needs 2 workers")], phase="Waiting"))
        self.answer("get pods", items())
        self.answer("events", items())
        self.answer("api-resources", "nodes\n")
        self.answer("get nodes,", stderr="Error from server (Forbidden): nodes is forbidden\n", code=1)
        done = self.muster("describe", "digits")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        text = re.sub(r"\s+", " ", done.stdout)
        self.assertIn("when it is expected to start is not known: ", text)
        self.assertIn("nodes is forbidden", text)
        self.assertIn("needs 2 workers", text)

    def test_what_a_job_has_cost_is_a_fact_of_it(self):
        self.answer("get trainingjobs", job([condition("Running", "True", "GangRunning", "runs")], phase="Running", cost={
            "currency": "EUR", "amount": "12.345", "ratePerHour": "4.4", "updatedAt": "2026-11-21T12:00:00Z"}))
        self.answer("get pods", items(pod(0), pod(1)))
        self.answer("events", items())
        done = self.muster("describe", "digits")
        self.assertRegex(done.stdout, r"\n  Cost +12[.]35 EUR; 4[.]40 EUR an hour now \(as of .* ago\)\n")

    def test_of_gpus_it_is_told_which_workers_train_on_them(self):
        for gpus, notes in [(0, 0), (2, 1)]:
            self.rules = []
            made = job(RUNNING, phase="Running")
            made["spec"]["worker"]["resources"]["gpus"] = gpus
            self.answer("get trainingjobs", made)
            self.answer("get pods", items(pod(0), pod(1)))
            self.answer("events", items())
            told = self.muster("describe", "digits").stdout
            self.assertEqual(told.count("  spec.worker.resources.gpus is 2: of the built-in engine"), notes, told)

    def test_a_job_that_is_not_there_is_named_with_its_namespace(self):
        self.answer("get trainingjobs", stderr=NOT_FOUND, code=1)
        done = self.muster("describe", "digits", "-n", "lab")
        self.assertEqual(done.returncode, 4)
        self.assertEqual(done.stderr, 'muster: there is no job "digits" in the namespace "lab" (muster get -A lists '
                                      "all)\n")

    def test_a_name_that_is_a_flag_is_refused(self):
        done = self.muster("describe", "--", "-o")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be a job's name", done.stderr)


class LogsTest(PluginTest):
    def logs(self, slot, *lines, attempt=0, container="worker", **more):
        self.answer(f"logs digits-abcde-{slot}-{attempt} --container={container} ", "".join(
            f"2026-11-21T12:00:{second:09.6f}Z {text}\n" for second, text in lines), **more)

    def test_lines_of_all_workers_come_in_the_order_of_time(self):
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded"), pod(1, ended(0), 2, "Succeeded")))
        self.logs(0, (1, "a"), (3, "c"), (5, "e"))
        self.logs(1, (2, "b"), (4, "d"), attempt=2)
        done = self.muster("logs", "digits", "--tail", "7")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), ["worker-0   | a", "worker-1.2 | b", "worker-0   | c",
                                                    "worker-1.2 | d", "worker-0   | e"])
        self.assertTrue(all("--tail=7" in call["args"] for call in self.calls_of("logs")))

    def test_of_a_failed_job_the_first_to_fail_comes_first(self):
        self.answer("get trainingjobs", job(FAILED, failure={"slot": 1, "exitCode": 24, "reason": "Numerics"}))
        self.answer("get pods", items(pod(0, ended(25), phase="Failed"), pod(1, ended(24), phase="Failed")))
        self.logs(0, (1, "lost its peer"))
        self.logs(1, (2, "loss is NaN"))
        done = self.muster("logs", "digits")
        self.assertEqual(done.stdout.splitlines(), [
            "==> worker 1 failed first with exit code 24 (Numerics) <==", "worker-1 | loss is NaN", "",
            "==> all workers, in the order of time <==", "worker-0 | lost its peer", "worker-1 | loss is NaN"])

    def test_a_worker_that_failed_before_it_began_shows_what_its_init_container_said(self):
        failure = {"slot": 1, "exitCode": 7, "reason": "Error", "logTail": "no such bucket", "attempt": 0, "container": "fetch"}
        made = job([condition("Failed", "True", "WorkerFailed", "worker 1 failed")], failure=failure)
        made["spec"]["worker"]["initContainers"] = [{"name": "fetch", "image": "fetcher:1"}]
        self.answer("get trainingjobs", made)
        first = {"waiting": {"reason": "PodInitializing"}}
        states = [{"running": {}}, ended(7)]
        self.answer("get pods", items(*(
            pod(slot, first, phase=phase, initContainerStatuses=[{"name": "done", "state": ended(0)},
                                                                 {"name": "fetch", "state": states[slot]}])
            for slot, phase in enumerate(["Pending", "Failed"]))))
        self.answer("events", items())
        told = " ".join(self.muster("describe", "digits").stdout.split())
        self.assertIn("worker 1 (attempt 0, pod digits-i2jdq-1-0), in init container fetch, exit code 7 (Error); its last words: "
                      "| no such bucket", told)
        self.assertIn("Look at the log of the container (spec.worker.initContainers, fetch): muster logs.", told)
        self.assertRegex(told, r"0 0 Init:fetch .*1 0 Init:Error")
        self.logs(0, (1, "fetching"), container="fetch")
        self.logs(1, (2, "no such bucket"), container="fetch")
        done = self.muster("logs", "digits")
        self.assertEqual(done.stdout.splitlines(), [
            "==> worker 1 failed first in init container fetch with exit code 7 (Error) <==",
            "worker-1/fetch | no such bucket", "", "==> all workers, in the order of time <==", "worker-0/fetch | fetching",
            "worker-1/fetch | no such bucket"])

    def test_of_an_init_container_that_a_webhook_put_there_the_owner_is_asked(self):
        failure = {"slot": 1, "exitCode": 7, "reason": "Error", "attempt": 0, "container": "proxy"}
        self.answer("get trainingjobs", job([condition("Failed", "True", "WorkerFailed", "worker 1 failed")], failure=failure))
        self.answer("get pods", items())
        self.answer("events", items())
        told = " ".join(self.muster("describe", "digits").stdout.split())
        self.assertIn("Look at the log of init container proxy (muster logs): a webhook of the cluster put it into the pods", told)

    def test_a_sidecar_that_runs_is_not_taken_for_the_worker_and_is_shown_when_asked_for(self):
        made = job(RUNNING, phase="Running")
        made["spec"]["worker"]["initContainers"] = [{"name": "tail", "image": "tail:1", "restartPolicy": "Always",
                                                     "resources": {"cpu": "10m", "memory": "8Mi"}}]
        self.answer("get trainingjobs", made)
        pods = [pod(slot, state, phase="Pending" if slot else "Running", initContainerStatuses=[
            {"name": "tail", "started": True, "state": {"running": {}}}])
            for slot, state in enumerate([None, {"waiting": {"reason": "ErrImagePull"}}])]
        for one in pods:
            one["spec"]["initContainers"] = [{"name": "tail", "restartPolicy": "Always"}]
        self.answer("get pods", items(*pods))
        self.logs(0, (1, "trains"))
        done = self.muster("logs", "digits")
        self.assertEqual(done.stdout.splitlines(), ["worker-0 | trains"])
        self.assertIn("worker 1 has not started: ErrImagePull", done.stderr)
        self.logs(0, (1, "sent a line"), container="tail")
        self.logs(1, (2, "waits for lines"), container="tail")
        done = self.muster("logs", "digits", "--container", "tail")
        self.assertEqual((done.returncode, done.stdout.splitlines()), (
            0, ["worker-0/tail | sent a line", "worker-1/tail | waits for lines"]))
        done = self.muster("logs", "digits", "--container", "mail")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--container: no container mail in the workers' pods of digits; there are tail, worker", done.stderr)

    def test_a_log_that_is_gone_is_a_complaint_and_the_others_are_shown(self):
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded"), pod(1, ended(0), phase="Succeeded")))
        self.logs(0, (1, "a"))
        self.logs(1, stderr='Error from server (NotFound): pods "digits-abcde-1-0" not found\n', code=1)
        done = self.muster("logs", "digits")
        self.assertEqual((done.returncode, done.stdout), (4, "worker-0 | a\n"))
        self.assertIn("worker 1: Error from server (NotFound)", done.stderr)

    def test_following_goes_on_over_pods_that_come_later_until_the_job_is_over(self):
        os.mkfifo(self.path("log"))
        self.answer("get trainingjobs", job(RUNNING), times=2)
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(), times=1)
        self.answer("get pods", items(pod(0)), times=1)
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded")))
        self.answer("logs digits-abcde-0-0 .*--follow$", fifo="log", times=1)
        self.answer("logs digits-abcde-0-0 .*--since-time=2026-11-21T12:00:02Z", "2026-11-21T12:00:02Z second\n"
                    "2026-11-21T12:00:03Z third\n")
        process = self.start("logs", "digits", "-f")
        with open(self.path("log"), "w", encoding="utf-8") as log:
            log.write("2026-11-21T12:00:01Z first\n")
            log.flush()
            self.assertEqual(process.stdout.readline(), "worker-0 | first\n")
            log.write("2026-11-21T12:00:02Z second\n")
        out, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, out), (0, "worker-0 | second\nworker-0 | third\n"))
        self.assertIn("no worker is there yet; waiting", err)

    def test_of_a_worker_that_starts_later_the_beginning_is_not_cut(self):
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded")), times=1)
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded"), pod(1, ended(0), phase="Succeeded")))
        self.logs(0, (1, "a"))
        self.logs(1, (2, "b"), (3, "c"))
        done = self.muster("logs", "digits", "-f", "--tail", "1", "--since", "1s")
        self.assertEqual((done.returncode, done.stdout), (0, "worker-0 | a\nworker-1 | b\nworker-1 | c\n"))
        cut = [[word for word in call["args"] if word.startswith(("--tail", "--since"))] for call in self.calls_of("logs")]
        self.assertEqual(cut, [["--tail=1", "--since=1s"], []])

    def test_of_many_workers_that_start_at_once_so_many_are_followed_as_kubectls_may_run(self):
        os.mkfifo(self.path("log"))
        self.answer("get trainingjobs", job(RUNNING))
        self.answer("get pods", items(), times=1)
        self.answer("get pods", items(*(pod(slot) for slot in range(65))), times=2)
        self.answer("get pods", items(pod(64)))
        self.answer("^logs ", fifo="log", times=64)
        self.logs(64, (1, "its turn"))
        with open(self.path("err"), "w+", encoding="utf-8") as err:
            process = self.start("logs", "digits", "-f", stderr=err)
            self.wait_until(lambda: len(self.calls_of("get", "pods")) > 3 and len(self.calls_of("logs")) >= 64)
            self.assertEqual(len(self.calls_of("logs")), 64)

            def end_logs():
                """Those that wait at the pipe read that there is nothing more."""
                try:
                    os.close(os.open(self.path("log"), os.O_WRONLY | os.O_NONBLOCK))
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENXIO)  # nobody waits there now
                return len(self.calls_of("logs")) > 64

            self.wait_until(end_logs)
            self.assertEqual(process.stdout.readline(), "worker-64 | its turn\n")
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(DEADLINE), 0)
            process.communicate()
            err.seek(0)
            self.assertEqual(err.read().count("more than 64 logs; "), 1)

    def test_a_worker_that_leaves_while_its_log_is_followed_is_no_failure(self):
        self.answer("get trainingjobs", job(RUNNING), times=2)
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0), pod(1)), times=1)
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded")))
        self.logs(0, (1, "a"))
        self.logs(1, stderr='Error from server (NotFound): pods "digits-abcde-1-0" not found\n', code=1)
        done = self.muster("logs", "digits", "-f")
        self.assertEqual((done.returncode, done.stdout), (0, "worker-0 | a\n"))
        self.assertIn("worker 1: its pod is gone, and its log with it", done.stderr)

    def followed_with_a_lost_reader(self, *pods):
        """Follows two workers, of which the second's log breaks off; `pods` are listed once the job is over."""
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0), pod(1)), times=1)
        self.answer("get pods", items(*pods))
        self.logs(0, (1, "a"))
        self.answer("logs digits-abcde-1-0 ", stderr="Error from server (BadRequest): no such file or directory\n", code=1,
                    times=1)
        self.logs(1, (2, "b"))
        done = self.muster("logs", "digits", "-f")
        self.assertIn("worker 1: kubectl logs: Error from server (BadRequest): no such file", done.stderr)
        return done.returncode, done.stdout

    def test_a_log_that_breaks_off_while_it_is_followed_is_read_on(self):
        over = [pod(0, ended(0), phase="Succeeded"), pod(1, ended(0), phase="Succeeded")]
        self.assertEqual(self.followed_with_a_lost_reader(*over), (0, "worker-0 | a\nworker-1 | b\n"))

    def test_a_log_that_breaks_off_with_its_pod_is_no_failure(self):
        over = pod(0, ended(0), phase="Succeeded")
        self.assertEqual(self.followed_with_a_lost_reader(over), (0, "worker-0 | a\n"))

    def test_a_followed_log_that_never_came_to_its_end_is_a_failure(self):
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0), pod(1)), times=1)
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded"), pod(1, ended(0), phase="Succeeded")))
        self.logs(0, (1, "a"))
        self.logs(1, stderr="Error from server: dial tcp 10.0.0.2:10250: i/o timeout\n", code=1)
        done = self.muster("logs", "digits", "-f")
        self.assertEqual((done.returncode, done.stdout), (4, "worker-0 | a\n"))
        self.assertGreater(len([call for call in self.calls_of("logs") if "digits-abcde-1-0" in call["args"]]), 1)
        self.assertEqual(done.stderr.count("i/o timeout"), 1, done.stderr)

    def test_a_moment_in_which_the_cluster_cannot_tell_its_resources_ends_no_following(self):
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("get trainingjobs", stderr="error: the server doesn't have a resource type \"trainingjobs\"\n", code=1,
                    times=1)
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0)), times=1)
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded")))
        self.logs(0, (1, "a"))
        done = self.muster("logs", "digits", "-f")
        self.assertEqual((done.returncode, done.stdout), (0, "worker-0 | a\n"))

    def test_a_reader_that_goes_away_ends_it_quietly(self):
        self.answer("get trainingjobs", job(COMPLETE))
        self.answer("get pods", items(pod(0, ended(0), phase="Succeeded")))
        self.logs(0, *[(i % 60, "x" * 900) for i in range(1000)])
        process = self.start("logs", "digits")
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(DEADLINE), 0)
        self.assertEqual(process.stderr.read(), "")
        process.stderr.close()


class SinceTest(PluginTest):
    def test_a_since_that_is_no_time_is_refused_before_the_cluster_is_asked(self):
        self.answer("", code=1)
        for bad in ("abc", "5", "-5m", "5 m", "m", "5m;x", "5d", "1.h2", "", "9" * 99 + "s"):
            done = self.muster("logs", "digits", f"--since={bad}")
            self.assertEqual(done.returncode, 2, bad)
        self.assertIn("--since: must be a time such as 30s, 5m or 1h30m", self.muster("logs", "digits", "--since", "abc").stderr)
        self.assertFalse(os.path.exists(self.path("calls.jsonl")))
        for good in ("30s", "5m", "1h30m", "1.5h", "100ms"):
            self.assertEqual(self.muster("logs", "digits", "--since", good).returncode, 4, good)


class SuspendTest(PluginTest):
    def test_suspend_patches_one_field(self):
        self.answer("get trainingjobs", job(RUNNING))
        self.answer("patch", job(RUNNING, suspend=True))
        done = self.muster("suspend", "digits")
        self.assertEqual((done.returncode, done.stdout), (0, "The job lab/digits stops with a checkpoint.\n"))
        arguments = self.calls_of("patch")[0]["args"]
        self.assertEqual(json.loads(arguments[arguments.index("--patch") + 1]), {"spec": {"suspend": True}})
        self.assertEqual(arguments[arguments.index("--type") + 1], "merge")

    def test_what_stays_of_a_job_that_stops_is_said_by_the_job(self):
        own = job(RUNNING)
        del own["spec"]["training"]
        own["spec"]["worker"]["command"] = ["train"]
        for one, sentence in [
                (job(RUNNING), "stops with a checkpoint"),
                (job(RUNNING, claim=None), "stops, and nothing of its training is kept, because "
                                           "spec.training.checkpoint.volumeClaimName names no claim"),
                (own, "stops, and what its program has not saved itself is lost")]:
            asked = {**one, "spec": {**one["spec"], "suspend": True}}
            self.rules = []
            self.answer("get trainingjobs", one, times=1)
            self.answer("patch", asked)
            self.answer("get trainingjobs", asked)
            self.answer("get pods", items())
            self.answer("events", items())
            self.assertEqual(self.muster("suspend", "digits").stdout, f"The job lab/digits {sentence}.\n")
            self.assertIn(f"spec.suspend is true: the job {sentence}.",
                          re.sub(r"\s+", " ", self.muster("describe", "digits").stdout))
            os.remove(self.path("calls.jsonl"))

    def test_waiting_ends_with_the_condition(self):
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("patch", job(RUNNING, suspend=True))
        self.answer("get trainingjobs", job([condition("Suspended", "True", "Suspended", "stopped after step 220")],
                                            suspend=True))
        done = self.muster("suspend", "digits", "--wait")
        self.assertEqual((done.returncode, done.stdout),
                         (0, "The job lab/digits is suspended: stopped after step 220.\n"))

    def test_a_job_that_completes_before_it_is_seen_to_run_was_resumed(self):
        self.answer("get trainingjobs", job([condition("Suspended", "True", "Suspended", "asleep")], suspend=True), times=1)
        self.answer("patch", job())
        self.answer("get trainingjobs", job(COMPLETE))
        done = self.muster("resume", "digits", "--wait")
        self.assertEqual((done.returncode, done.stdout), (0, "The job lab/digits is complete: every worker (2) ended with 0.\n"))

    def test_a_moment_without_an_api_server_ends_no_waiting(self):
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("patch", job(RUNNING, suspend=True))
        for stderr in (UNREACHABLE, 'error: the server doesn\'t have a resource type "trainingjobs"\n'):
            self.answer("get trainingjobs", stderr=stderr, code=1, times=1)
        self.answer("get trainingjobs", job([condition("Suspended", "True", "Suspended", "stopped")], suspend=True))
        done = self.muster("suspend", "digits", "--wait")
        self.assertEqual((done.returncode, done.stdout), (0, "The job lab/digits is suspended: stopped.\n"))
        self.assertIn("no cluster answers", done.stderr)

    def test_waiting_without_an_answer_ends_at_its_deadline_with_the_reason(self):
        self.answer("get trainingjobs", job(RUNNING), times=1)
        self.answer("patch", job(RUNNING, suspend=True))
        self.answer("get trainingjobs", stderr=UNREACHABLE, code=1)
        done = self.muster("suspend", "digits", "--wait", "--timeout", "1")
        self.assertEqual((done.returncode, done.stdout), (30, ""))
        self.assertIn("is not suspended after 1 s: no cluster answers", done.stderr)

    def test_waiting_has_a_deadline_that_says_what_it_waits_for(self):
        self.answer("get trainingjobs", job([condition("Suspended", "True", "Suspended", "asleep")], suspend=True),
                    times=1)
        waiting = job([condition("Admitted", "False", "GangWaiting", "2 workers do not fit")])
        self.answer("patch", waiting)
        self.answer("get trainingjobs", waiting)
        done = self.muster("resume", "digits", "--wait", "--timeout", "1")
        self.assertEqual(done.returncode, 30)
        self.assertIn("is not running after 1 s: 2 workers do not fit", done.stderr.lower())

    def test_a_job_that_is_over_is_left_alone(self):
        self.answer("get trainingjobs", job(COMPLETE))
        done = self.muster("suspend", "digits")
        self.assertEqual(done.returncode, 3)
        self.assertEqual(done.stderr, "muster: the job digits is complete: every worker (2) ended with 0\n")
        self.assertEqual(self.calls_of("patch"), [])


def model():
    """A model of 5,000 floats as safetensors, and the hash of its parameters."""
    values = b"".join(struct.pack("<f", i / 7) for i in range(5000))
    head = json.dumps({"w": {"dtype": "F32", "shape": [5000], "data_offsets": [0, len(values)]}}).encode()
    blocks = b"".join(hashlib.sha256(values[i:i + 16384]).digest() for i in range(0, len(values), 16384))
    return struct.pack("<Q", len(head)) + head + values, hashlib.sha256(blocks).hexdigest()


def archive(files, kind=tarfile.REGTYPE, **fields):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            info.size, info.type = len(content), kind
            for field, value in fields.items():
                setattr(info, field, value)
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


class FetchTest(PluginTest):
    def setUp(self):
        super().setUp()
        self.model, self.sha256 = model()

    def write(self, name, content):
        with open(self.path(name), "wb") as file:
            file.write(content)

    def cluster(self, the_job, pods=()):
        self.answer("get trainingjobs", the_job)
        self.answer("get pods", items(*pods))
        self.answer("^create ", "pod/x\n")
        self.answer("get pod digits-fetch", pod(9))
        self.answer("delete pod digits-fetch-[0-9a-f]{5} --ignore-not-found", "deleted\n")
        self.answer("delete pods --selector", "deleted\n")

    def pods_deleted(self):
        """By their names."""
        return [call for call in self.calls_of("delete") if "pod" in call["args"]]

    def complete(self):
        self.cluster(job(COMPLETE, model={"parameters": 5000, "sha256": self.sha256}),
                     [pod(0, ended(0), phase="Succeeded")])

    def fetched(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()

    def test_the_model_of_a_complete_job_comes_byte_for_byte(self):
        self.complete()
        self.write("tar", archive([("model.safetensors", self.model), ("record.jsonl", b"{}\n"),
                                   ("step-000000000100/model.safetensors", b"old")]))
        self.answer("^exec ", stdout_file="tar")
        done = self.muster("fetch", "digits", "--output", "here/it")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.fetched("here/it/model.safetensors"), self.model)
        self.assertEqual(sorted(os.listdir(self.path("here/it"))), ["model.safetensors", "record.jsonl"])
        self.assertIn(self.sha256, done.stderr)
        words = self.calls_of("exec")[0]["args"]
        self.assertEqual(words[words.index("--") + 1:][:3], ["muster-worker", "--archive", "/var/lib/muster"])
        self.assertEqual(len(self.pods_deleted()), 1)

    def test_where_no_directory_can_be_made_is_usage(self):
        self.complete()
        self.write("tar", archive([("model.safetensors", self.model)]))
        self.answer("^exec ", stdout_file="tar")
        done = self.muster("fetch", "digits", "--output", "/proc/never")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("muster: /proc/never: cannot make: No such file or directory", done.stderr)
        self.assertEqual(len(self.pods_deleted()), 1)

    def test_no_more_is_asked_for_than_is_wanted(self):
        self.complete()
        self.write("tar", archive([("model.safetensors", self.model)]))
        self.answer("^exec ", stdout_file="tar")
        for more, names in ([], ["classes.json", "inputs.json", "model.safetensors", "record.jsonl"]), (["--model"], ["model.safetensors"]):
            self.assertEqual(self.muster("fetch", "digits", *more).returncode, 0)
            words = self.calls_of("exec")[-1]["args"]
            self.assertEqual(words[words.index("--archive") + 1], "/var/lib/muster")
            self.assertEqual(sorted(words[words.index("--archive") + 2:]), names)

    def test_an_older_worker_that_knows_no_names_sends_all(self):
        for says in ("usage: muster-worker\n       muster-worker --archive DIR\ncommand terminated with exit code 2\n",
                     '{"level":"error","msg":"worker refused to start"}\ncommand terminated with exit code 33\n'):
            self.rules = []
            self.complete()
            self.write("tar", archive([("foreign", b"x"), ("model.safetensors", self.model), ("zzz", b"x")]))
            self.answer("^exec .* --archive /var/lib/muster$", stdout_file="tar")
            self.answer("^exec ", stderr=says, code=2)
            done = self.muster("fetch", "digits", "--output", "old")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertNotIn("usage", done.stderr)
            self.assertEqual(os.listdir(self.path("old")), ["model.safetensors"])

    def test_its_pod_reads_only_and_meets_restricted(self):
        self.complete()
        self.write("tar", archive([("model.safetensors", self.model)]))
        self.answer("^exec ", stdout_file="tar")
        self.assertEqual(self.muster("fetch", "digits").returncode, 0)
        made = json.loads(self.calls_of("create")[0]["stdin"])
        spec, container = made["spec"], made["spec"]["containers"][0]
        self.assertEqual(spec["volumes"][0]["persistentVolumeClaim"], {"claimName": "digits"})
        self.assertTrue(container["volumeMounts"][0]["readOnly"])
        self.assertEqual(container["image"], "registry/muster-worker:0.1.0")
        self.assertTrue(spec["securityContext"]["runAsNonRoot"])
        self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
        self.assertEqual((spec["activeDeadlineSeconds"], container["args"]), (86400, ["--wait", "86400"]))  # of a slow line
        self.assertNotIn("affinity", spec)
        self.assertFalse(any(label.startswith("muster.dev/") for label in made["metadata"]["labels"]))
        self.assertNotIn("ownerReferences", made["metadata"])

    def test_of_a_running_job_the_newest_checkpoint_comes_from_the_node_that_has_the_claim(self):
        self.cluster(job(RUNNING, phase="Running", checkpoint={"step": 200, "durable": True},
                         progress={"step": 220, "totalSteps": 440}), [pod(0, node="node-7"), pod(1)])
        self.write("tar", archive([("manifest.json", b"{}"), ("model.safetensors", self.model)]))
        self.answer("^exec .* /var/lib/muster/step-000000000200$", stdout_file="tar")
        done = self.muster("fetch", "digits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("not complete (Running, step 220 of 440); this is its checkpoint of step 200", done.stderr)
        self.assertEqual(self.fetched("muster-fetch/digits/step-000000000200/model.safetensors"), self.model)
        self.assertIn("node-7", json.dumps(json.loads(self.calls_of("create")[0]["stdin"])["spec"]["affinity"]))

    def test_a_checkpoint_of_another_job_with_the_same_claim_is_refused(self):
        self.cluster(job(RUNNING, phase="Running", checkpoint={"step": 200, "durable": True}), [pod(0)])
        of_another = {"identity": {"spec.training.logicalRanks": 8}}
        self.write("tar", archive([("manifest.json", json.dumps(of_another).encode()), ("model.safetensors", self.model)]))
        self.answer("^exec ", stdout_file="tar")
        done = self.muster("fetch", "digits")
        self.assertEqual(done.returncode, 22)
        self.assertIn("is of another job with the same claim: spec.training.logicalRanks was 8 when it was saved", done.stderr)
        self.assertEqual(sorted(os.listdir(self.path("muster-fetch/digits/step-000000000200"))),
                         ["model.safetensors.refused"])
        self.assertEqual(len(self.pods_deleted()), 1)

    def test_a_moment_without_an_api_server_ends_no_fetch(self):
        self.answer("get pod digits-fetch", stderr=UNREACHABLE, code=1, times=1)
        self.answer("get trainingjobs", job(COMPLETE, model={"parameters": 5000, "sha256": self.sha256}), times=1)
        self.answer("get trainingjobs", stderr=UNREACHABLE, code=1, times=1)
        self.complete()
        self.write("tar", archive([("model.safetensors", self.model)]))
        self.answer("^exec ", stdout_file="tar")
        done = self.muster("fetch", "digits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.pods_deleted()), 1)

    def test_what_a_killed_fetch_has_left_goes_before_the_next(self):
        self.complete()
        self.write("tar", archive([("model.safetensors", self.model)]))
        self.answer("^exec ", stdout_file="tar")
        self.assertEqual(self.muster("fetch", "digits").returncode, 0)
        verbs = [call["args"] for call in self.calls() if call["args"][0] in ("create", "delete")]
        self.assertEqual(verbs[0], ["delete", "pods", "--selector=app.kubernetes.io/name=muster,"
                                    "app.kubernetes.io/component=fetch,app.kubernetes.io/instance=digits",
                                    "--field-selector=status.phase!=Pending,status.phase!=Running,status.phase!=Unknown",
                                    "--wait=false"])
        self.assertEqual([words[0] for words in verbs], ["delete", "create", "delete"])

    def test_without_a_claim_it_says_that_no_model_was_kept(self):
        self.cluster(job(COMPLETE, claim=None))
        done = self.muster("fetch", "digits")
        self.assertEqual(done.returncode, 23)
        self.assertIn("no model was kept", done.stderr)
        self.assertIn("on the own disk of slot 0's node, and is lost with its pod", done.stderr)
        self.assertEqual(self.calls_of("create") + self.calls_of("delete"), [])

    def test_a_model_with_other_parameters_is_refused(self):
        self.complete()
        for other in (self.model[:-1] + b"\x01", b"no model at all"):
            self.write("tar", archive([("model.safetensors", other)]))
            self.answer("^exec ", stdout_file="tar")
            done = self.muster("fetch", "digits")
            self.assertEqual(done.returncode, 22)
            self.assertIn(self.sha256, done.stderr)
            self.assertEqual(os.listdir(self.path("muster-fetch/digits")), ["model.safetensors.refused"])
            self.assertEqual(self.fetched("muster-fetch/digits/model.safetensors.refused"), other)
        self.assertEqual(len(self.pods_deleted()), 2)

    def test_what_was_fetched_before_stays_until_all_of_the_job_has_come(self):
        self.complete()
        os.makedirs(self.path("muster-fetch/digits"))
        self.write("muster-fetch/digits/model.safetensors", b"older")
        self.write("muster-fetch/digits/record.jsonl", b"older, too")
        whole = archive([("model.safetensors", self.model), ("record.jsonl", b"{}\n")])
        self.write("cut", whole[:whole.index(b"record.jsonl") + 100])
        self.write("other", archive([("model.safetensors", self.model[:-1] + b"\x01"), ("record.jsonl", b"{}\n")]))
        self.write("tar", whole)
        self.answer("^exec ", stdout_file="cut", times=3)
        self.answer("^exec ", stdout_file="other", times=1)
        self.answer("^exec ", stdout_file="tar")
        for code, left in ((4, []), (22, ["model.safetensors.refused"])):
            done = self.muster("fetch", "digits")
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(sorted(os.listdir(self.path("muster-fetch/digits"))), ["model.safetensors", *left, "record.jsonl"])
            self.assertEqual(self.fetched("muster-fetch/digits/model.safetensors"), b"older")
            self.assertEqual(self.fetched("muster-fetch/digits/record.jsonl"), b"older, too")
        self.assertEqual(self.muster("fetch", "digits").returncode, 0)
        self.assertEqual(self.fetched("muster-fetch/digits/model.safetensors"), self.model)
        self.assertEqual(self.fetched("muster-fetch/digits/record.jsonl"), b"{}\n")

    def test_a_cut_stream_is_asked_for_again(self):
        self.complete()
        whole = archive([("model.safetensors", self.model)])
        self.write("cut", whole[:9000])
        self.write("tar", whole)
        self.answer("^exec ", stdout_file="cut", times=1)
        self.answer("^exec ", stdout_file="tar")
        done = self.muster("fetch", "digits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("its end did not come; trying again", done.stderr)
        self.assertEqual(os.listdir(self.path("muster-fetch/digits")), ["model.safetensors"])

    def test_an_archive_that_reaches_out_of_its_directory_writes_nothing(self):
        evil = [archive([("../evil", b"x")]), archive([("/tmp/evil", b"x")]), archive([("a/../../evil", b"x")]),
                archive([("link", b"")], tarfile.SYMTYPE, linkname="/etc"), archive([("dev", b"")], tarfile.CHRTYPE)]
        for number, content in enumerate(evil):
            self.rules = []
            self.cluster(job(RUNNING, checkpoint={"step": 200, "durable": True}))
            self.rules[0]["stdout"] = json.dumps(job(RUNNING, checkpoint={"step": 200, "durable": True}))
            self.write("tar", content)
            self.answer("^exec ", stdout_file="tar")
            done = self.muster("fetch", "digits", "--output", f"out{number}", "--image", "x")
            self.assertEqual(done.returncode, 4, done.stderr)
            self.assertRegex(done.stderr, "not allowed|no regular file")
            self.assertFalse(os.path.exists(self.path("evil")))
            self.assertFalse(os.path.exists(self.path(f"out{number}")))

    def test_an_interrupt_deletes_the_pod(self):
        self.complete()
        os.mkfifo(self.path("stream"))
        self.answer("^exec ", fifo="stream")
        process = self.start("fetch", "digits")
        with open(self.path("stream"), "wb") as stream:
            stream.write(archive([("model.safetensors", self.model)])[:9000])
            stream.flush()
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=DEADLINE)
        self.assertEqual((process.returncode, err), (130, "muster: interrupted\n"))
        self.assertEqual(len(self.pods_deleted()), 1)
        left = [file for _, _, files in os.walk(self.path("muster-fetch")) for file in files]
        self.assertEqual(left, [])

    def test_a_terminal_that_closes_deletes_the_pod(self):
        """It tells all its programs of that twice, and the second time the pod is being deleted."""
        for name in ("stream", "deleting"):
            os.mkfifo(self.path(name))
        self.answer("delete pod digits-fetch", fifo="deleting")
        self.complete()
        self.answer("^exec ", fifo="stream")
        deleting = os.open(self.path("deleting"), os.O_RDWR)
        process = self.start("fetch", "digits", start_new_session=True)
        with open(self.path("stream"), "wb"):
            os.killpg(process.pid, signal.SIGHUP)
            self.wait_until(self.pods_deleted)
            for number in (signal.SIGHUP, signal.SIGINT):
                os.killpg(process.pid, number)
            os.close(deleting)
            _, err = process.communicate(timeout=DEADLINE)
        self.assertEqual(process.returncode, 130, err)
        self.assertNotIn("could not be deleted", err)
        self.assertEqual(len(self.pods_deleted()), 1)

    def test_a_pod_that_cannot_run_is_told_and_deleted(self):
        self.answer("get pod digits-fetch", pod(9, {"waiting": {"reason": "ErrImageNeverPull", "message": "no image"}},
                                                phase="Pending"))
        self.complete()
        done = self.muster("fetch", "digits")
        self.assertEqual(done.returncode, 4)
        self.assertRegex(done.stderr, "cannot run: ErrImageNeverPull: no image")
        self.assertEqual(len(self.pods_deleted()), 1)

    def test_bad_flags_are_usage(self):
        for arguments in (["fetch"], ["fetch", "digits", "--timeout", "x"], ["logs", "digits", "--slot", "-1"],
                          ["get", "-o", "xml"], ["describe"]):
            done = self.muster(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertTrue(re.search(r"\S", done.stderr), arguments)


def node(name, cpu="4"):
    return {"apiVersion": "v1", "kind": "Node",
            "metadata": {"name": name, "uid": name, "creationTimestamp": "2026-11-21T09:00:00Z"},
            "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"},
                       "conditions": [{"type": "Ready", "status": "True"}]}}


if __name__ == "__main__":
    PluginTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
