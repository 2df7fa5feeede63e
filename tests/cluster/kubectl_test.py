#!/usr/bin/env python3
"""kubectl's own verbs on TrainingJobs, typed by a tenant with the cluster's role `edit`, on a real API server.

    tests/cluster/kubectl_test.py [unittest arguments]

The operator runs with the chart's rights; there are no nodes, the tests play the kubelets. What needs nodes (logs, exec,
what an autoscaler does) is tried by job_test.py.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from refusals_operator import WithOperator, small  # noqa: E402
from refusals_world import ROOT, operator_program  # noqa: E402

SECONDS = 180   # The garbage collector learns of a new kind within a minute.
CHILDREN = "pods,services,poddisruptionbudgets"
COLUMNS = ["NAME", "STATUS", "WORKERS", "STEP", "LOSS", "RESTARTS", "AGE"]
WIDE = [*COLUMNS, "ETA", "SAMPLES/S", "CKPT-STEP", "CKPT-AGE", "QUEUE", "DOMAIN", "IMAGE"]
ELSEWHERE = "example.com/other"   # a job that another controller is to take care of: nobody here writes its status


def paths(schema, prefix=()):
    """Every field below a schema, as a path of names; lists are seen through."""
    schema = schema.get("items", schema)
    for name, field in schema.get("properties", {}).items():
        yield (*prefix, name)
        yield from paths(field, (*prefix, name))


def explained(text):
    """The fields that `kubectl explain --recursive` tells of, as paths."""
    found, path = [], []
    for line in text[text.index("FIELDS:"):].splitlines():
        field = re.match(r"( +)(\S+)\t<", line)
        if field:
            depth = len(field.group(1)) // 2 - 1
            path = [*path[:depth], field.group(2)]
            found.append(tuple(path))
    return found


class Verbs(WithOperator):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # What kubectl learns of kinds is published a moment after the kind is served.
        cls.world.wait("kubectl knows the kind", lambda: "KIND:" in cls.world.plane.kubectl("explain", "tjob", check=False))

    def tearDown(self):
        super().tearDown()
        self.kubectl("delete", CHILDREN, "--all", "--force", "--grace-period=0")

    def command(self, *arguments, user="alice", **environment):
        plane = self.world.plane
        kubeconfig = plane.kubeconfig if user == "admin" else f"{plane.directory}/user-{user}.kubeconfig"
        return {"args": [os.path.join(plane.bin, "kubectl"), "-n", "team-a", *arguments], "text": True,
                "env": {**plane.environment(), **environment, "KUBECONFIG": kubeconfig}, "stderr": subprocess.STDOUT}

    def answer(self, *arguments, stdin="", user="alice", **environment):
        """(exit code, what it says on both streams)."""
        done = subprocess.run(**self.command(*arguments, user=user, **environment), input=stdin, stdout=subprocess.PIPE,
                              timeout=SECONDS, check=False)
        return done.returncode, done.stdout

    def kubectl(self, *arguments, **rest):
        code, said = self.answer(*arguments, **rest)
        self.assertEqual(code, 0, said)
        return said

    def muster(self, *arguments):
        """What the tenant's `muster` says; it is built beside the operator."""
        program = os.path.join(os.path.dirname(operator_program()), "muster")
        done = subprocess.run(**{**self.command(), "args": [program, *arguments, "-n", "team-a"]}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def begin(self, *arguments):
        """A kubectl that goes on by itself, and the path of what it says."""
        log = tempfile.NamedTemporaryFile("w+", prefix="muster-kubectl-")
        self.addCleanup(log.close)
        process = subprocess.Popen(**self.command(*arguments), stdin=subprocess.DEVNULL, stdout=log)
        self.addCleanup(process.wait, SECONDS)
        self.addCleanup(process.kill)
        return process, log.name

    def running(self, body, count):
        """The pods of a job whose workers all run."""
        name = self.make(body)
        pods = self.world.wait_pods("team-a", name, count)
        for pod in pods:
            self.world.run_pod(pod)
        self.world.wait_condition("team-a", name, "Running", "True")
        return pods

    def spec(self, name):
        return self.world.made("GET", self.world.jobs("team-a", name))["spec"]

    def children(self, name):
        return self.kubectl("get", CHILDREN, "-l", f"muster.dev/job-name={name}", "-o", "name").split()

    # ---- Changing

    def test_edit_changes_what_may_change_and_says_what_may_not(self):
        name = self.make(small("edited", {"suspend": True}))
        with tempfile.TemporaryDirectory(prefix="muster-kubectl-") as directory:
            code, said = self.answer("edit", "tjob", name, KUBE_EDITOR="sed -i /count:/s/1/0/", TMPDIR=directory)
            self.assertEqual(code, 1, said)
            # What was wrong stands above the text that the editor is given again; that text is kept.
            texts = []
            for kept in os.listdir(directory):
                with open(os.path.join(directory, kept), encoding="utf-8") as file:
                    texts.append(file.read())
            self.assertRegex("".join(texts), r"(?m)^# .*spec\.worker\.count: ")
        self.assertEqual(self.spec(name)["worker"]["count"], 1)
        said = self.kubectl("edit", "tjob", name,
                            KUBE_EDITOR="sed -i -e /count:/s/1/2/ -e /suspend:/s/true/false/")
        self.assertIn(f"trainingjob.muster.dev/{name} edited", said)
        self.world.complete("team-a", name, 2)

    def test_diff_shows_the_change_alone_and_makes_none(self):
        manifest = small("differs", {"suspend": True})
        self.kubectl("apply", "-f", "-", stdin=json.dumps(manifest))
        # What the defaults and the operator have added is no difference.
        self.world.wait_condition("team-a", "differs", "Suspended", "True")
        self.assertEqual(self.answer("diff", "-f", "-", stdin=json.dumps(manifest)), (0, ""))
        manifest["spec"]["worker"]["count"] = 2
        code, said = self.answer("diff", "-f", "-", stdin=json.dumps(manifest))
        self.assertEqual(code, 1, said)
        changes = [line for line in said.splitlines() if re.match(r"[-+] ", line) and "generation:" not in line]
        self.assertEqual([line.split() for line in changes], [["-", "count:", "1"], ["+", "count:", "2"]], said)
        self.assertEqual(self.spec("differs")["worker"]["count"], 1)
        manifest["spec"]["worker"]["count"] = 0
        code, said = self.answer("diff", "-f", "-", stdin=json.dumps(manifest))
        self.assertGreater(code, 1, said)
        self.assertIn("spec.worker.count", said)

    def test_a_dry_run_of_the_server_answers_with_defaults_and_stores_nothing(self):
        said = self.kubectl("apply", "--dry-run=server", "-f", "-", "-o", "jsonpath={.spec.restart}",
                            stdin=json.dumps(small("tried")))
        self.assertEqual(json.loads(said), {"policy": "OnFailure", "maxRestarts": 3, "backoffSeconds": 10})
        code, said = self.answer("apply", "--dry-run=server", "-f", "-", stdin=json.dumps(small("tried", count=0)))
        self.assertEqual(code, 1, said)
        self.assertIn("spec.worker.count", said)
        self.assertEqual(self.world.call("GET", self.world.jobs("team-a", "tried"))[0], 404)

    def test_scale_keeps_to_the_range_and_to_what_it_was_told_is_there(self):
        name = self.make(small("scaled", {"suspend": True}, count=2, min=2, max=4))
        code, said = self.answer("scale", f"tjob/{name}", "--replicas=3", "--current-replicas=4")
        self.assertEqual(code, 1, said)
        self.kubectl("scale", f"tjob/{name}", "--replicas=3", "--current-replicas=2")
        self.assertEqual(self.spec(name)["worker"]["count"], 3)
        code, said = self.answer("scale", f"tjob/{name}", "--replicas=5")
        self.assertEqual(code, 1, said)
        self.assertIn("count is more than max", said)
        self.assertEqual(self.spec(name)["worker"]["count"], 3)

    def test_autoscale_finds_the_scale_of_a_job_and_its_pods(self):
        pods = self.running(small("grown", count=2, min=2, max=4), 2)
        self.addCleanup(self.kubectl, "delete", "hpa", "grown", "--ignore-not-found")
        self.kubectl("autoscale", "tjob/grown", "--min=2", "--max=4", "--cpu=80%")
        scaler = json.loads(self.kubectl("get", "hpa", "grown", "-o", "json"))["spec"]
        self.assertEqual(scaler["scaleTargetRef"], {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "name": "grown"})
        self.assertEqual((scaler["minReplicas"], scaler["maxReplicas"]), (2, 4))
        # By this selector it finds whose processors it has to look at.
        scale = self.world.made("GET", self.world.jobs("team-a", "grown") + "/scale", user="alice")
        self.assertEqual((scale["spec"]["replicas"], scale["status"]["replicas"]), (2, 2))
        found = self.kubectl("get", "pods", "-l", scale["status"]["selector"], "-o", "name").split()
        self.assertEqual(sorted(found), sorted(f"pod/{pod['metadata']['name']}" for pod in pods))

    def test_status_is_patched_by_who_may_and_nothing_else_with_it(self):
        name = self.make(small("patched", {"managedBy": ELSEWHERE, "queueName": "research"}))
        status = {"phase": "Running", "workers": "1/1", "restarts": 2, "placement": [
            {"slot": 0, "attempt": 0, "node": "node-1", "domain": "block-1/rack-2"}],
            "progress": {"step": 40, "totalSteps": 100, "loss": "0.5", "etaSeconds": 42, "samplesPerSecond": "12.5"},
            "checkpoint": {"step": 30, "time": "2026-01-01T00:00:00Z", "durable": True, "path": "/var/lib/muster"}}
        arguments = ["patch", "tjob", name, "--subresource=status", "--type=merge", "-p",
                     json.dumps({"spec": {"suspend": True}, "status": status})]
        code, said = self.answer(*arguments)
        self.assertEqual(code, 1, said)
        self.assertIn('cannot patch resource "trainingjobs/status"', said)
        self.kubectl(*arguments, user="admin")
        self.assertFalse(self.spec(name)["suspend"])
        header, line = self.kubectl("get", "tjob", name, "-o", "wide").splitlines()
        self.assertEqual(header.split(), WIDE)
        row = dict(zip(WIDE, line.split()))
        self.assertRegex(row.pop("AGE"), r"^\d+s$")
        self.assertRegex(row.pop("CKPT-AGE"), r"^\d+d$")
        self.assertEqual(row, {
            "NAME": name, "STATUS": "Running", "WORKERS": "1/1", "STEP": "40", "LOSS": "0.5", "RESTARTS": "2", "ETA": "42",
            "SAMPLES/S": "12.5", "CKPT-STEP": "30", "QUEUE": "research", "DOMAIN": "block-1/rack-2",
            "IMAGE": "example.com/none:1"})
        self.assertEqual(self.kubectl("get", "tjob", name).splitlines()[0].split(), COLUMNS)
        said = self.kubectl("describe", "tjob", name)
        for words in (r"Workers: +1/1\n", r"Restarts: +2\n", r"Checkpoint:\n(    .*\n)* +Step: +30\n", r"Progress:\n(    .*\n)* +Step: +40\n",
                      r"Placement:\n(    .*\n)* +Domain: +block-1/rack-2\n(    .*\n)* +Node: +node-1\n"):
            self.assertRegex(said, words)

    # ---- Looking

    def test_get_watches_each_turn_of_a_job(self):
        name = self.make(small("watched", {"suspend": True}))
        self.world.wait_condition("team-a", name, "Suspended", "True")
        watching, log = self.begin("get", "tjob", name, "-w")

        def statuses():
            with open(log, encoding="utf-8") as file:
                lines = [line.split() for line in file if line.endswith("\n")]
            turns = [line[1] for line in lines]
            return [turn for index, turn in enumerate(turns) if index == 0 or turn != turns[index - 1]]

        self.world.wait("the watch is there", lambda: statuses() == ["STATUS", "Suspended"])
        self.kubectl("patch", "tjob", name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
        self.world.complete("team-a", name, 1)
        self.world.wait("the watch tells of the end", lambda: statuses()[-1] == "Complete")
        self.assertEqual(statuses(), ["STATUS", "Suspended", "Pending", "Running", "Complete"])
        self.assertIsNone(watching.poll())

    def test_describe_tells_of_a_failure_and_events_when_what_happened(self):
        name = self.make(small("told", {"suspend": True, "restart": {"policy": "Never"}}, count=2))
        suspended = self.world.wait_condition("team-a", name, "Suspended", "True")
        self.assertEqual(suspended["observedGeneration"], 1)
        wanted = ["Suspended", "GangScheduled", "Failed"]

        def happened():
            """In the order in which `kubectl describe` shows them."""
            events = self.kubectl("describe", "tjob", name).partition("\nEvents:")[2]
            return [reason for reason in re.findall(r"^ +(?:Normal|Warning) +(\w+) ", events, re.MULTILINE) if reason in wanted]

        def told(count):
            """kubectl knows whole seconds, so that what follows has to come in another."""
            self.world.wait(f"{wanted[count - 1]} is news", lambda: wanted[count - 1] in happened())
            told_by = int(time.time())
            self.world.wait("a second passes", lambda: int(time.time()) > told_by)

        told(1)
        self.kubectl("patch", "tjob", name, "--type=merge", "-p", '{"spec": {"suspend": false}}')
        pods = self.world.wait_pods("team-a", name, 2)
        told(2)
        for pod in pods:
            self.world.run_pod(pod)
        self.world.wait_condition("team-a", name, "Running", "True")
        self.world.end_pod(pods[1], 7, "the reason")
        self.world.wait_condition("team-a", name, "Failed", "True")
        told(3)
        self.assertEqual(happened(), wanted)
        ordered = self.kubectl("events", f"--for=tjob/{name}", "-o", 'jsonpath={range .items[*]}{.reason}{" "}{end}').split()
        self.assertEqual([reason for reason in ordered if reason in wanted], wanted)
        status = self.world.made("GET", self.world.jobs("team-a", name))["status"]
        # All of them are about the spec that the job was resumed with.
        generations = {one["type"]: one["observedGeneration"] for one in status["conditions"]}
        self.assertEqual(generations, {**generations, "Suspended": 2, "Admitted": 2, "Running": 2, "Failed": 2})
        said = self.kubectl("describe", "tjob", name)
        for one in status["conditions"]:
            self.assertRegex(said, rf"Reason: +{one['reason']}\n +Status: +{one['status']}\n +Type: +{one['type']}\n")
        self.assertEqual((status["failure"]["slot"], status["failure"]["exitCode"]), (1, 7))
        for words in (r"Failure:\n", r"Exit Code: +7\n", r"Log Tail: +the reason\n", rf"Node: +{status['failure']['node']}\n",
                      r"Slot: +1\n", r"Warning +Failed +\S+ +muster\.dev/operator +\S", r"Normal +GangScheduled "):
            self.assertRegex(said, words)
        failed = rf"worker 1 \(attempt \d+, pod {pods[1]['metadata']['name']}\) on {status['failure']['node']}, exit code 7 "
        self.assertRegex(self.muster("describe", name), r"Last failure\n +" + failed)

    def test_explain_knows_every_field_of_the_definition(self):
        with open(os.path.join(ROOT, "crds/trainingjob.yaml"), encoding="utf-8") as file:
            schema = yaml.safe_load(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        for part in ("spec", "status"):
            said = self.kubectl("explain", f"tjob.{part}", "--recursive")
            self.assertEqual(sorted(explained(said)), sorted(paths(schema[part])))
        self.assertIn("enum: OnFailure, Never", self.kubectl("explain", "tjob.spec", "--recursive"))

    def test_wait_knows_a_value_a_condition_and_the_end(self):
        name = self.make(small("waited", {"restart": {"policy": "Never"}}, count=2))
        waiting = {what: self.begin("wait", f"tjob/{name}", f"--for={what}", f"--timeout={SECONDS}s")
                   for what in ("jsonpath={.status.replicas}=2", "condition=Failed", "delete")}

        def met(what):
            process, log = waiting.pop(what)
            code = process.wait(SECONDS)
            with open(log, encoding="utf-8") as file:
                self.assertEqual((code, file.read()), (0, f"trainingjob.muster.dev/{name} condition met\n"))
            self.assertEqual([other for other, (process, _) in waiting.items() if process.poll() is not None], [])

        pods = self.world.wait_pods("team-a", name, 2)
        for pod in pods:
            self.world.run_pod(pod)
        met("jsonpath={.status.replicas}=2")
        self.world.end_pod(pods[0], 7)
        met("condition=Failed")
        self.kubectl("delete", "tjob", name)
        met("delete")
        process, log = self.begin("wait", f"tjob/{self.make(small('ends'))}", "--for=condition=Complete", f"--timeout={SECONDS}s")
        self.world.complete("team-a", "ends", 1)
        with open(log, encoding="utf-8") as file:
            self.assertEqual((process.wait(SECONDS), file.read()), (0, "trainingjob.muster.dev/ends condition met\n"))

    # ---- Deleting

    def test_delete_leaves_nothing(self):
        self.running(small("gone", count=2, min=1, max=3), 2)
        self.world.wait("its budget is there", lambda: {child.split("/")[0] for child in self.children("gone")} ==
                        {"pod", "service", "poddisruptionbudget.policy"})
        self.kubectl("delete", "tjob", "gone")
        self.world.wait("all that was its own is gone", lambda: not self.children("gone"), SECONDS)
        self.others_are_undisturbed()
        self.assertEqual(self.children("gone"), [])

    def test_an_orphaned_gang_goes_on(self):
        pods = self.running(small("orphaned", count=2), 2)
        before = self.children("orphaned")
        self.kubectl("delete", "tjob", "orphaned", "--cascade=orphan")
        self.assertEqual(self.world.call("GET", self.world.jobs("team-a", "orphaned"))[0], 404)
        # The operator has had time for a whole other job.
        self.others_are_undisturbed()
        left = self.world.pods_of("team-a", "orphaned")
        self.assertEqual([pod["metadata"]["uid"] for pod in left], [pod["metadata"]["uid"] for pod in pods])
        for pod in left:
            self.assertNotIn("deletionTimestamp", pod["metadata"])
            self.assertNotIn("ownerReferences", pod["metadata"])
        self.assertEqual(self.children("orphaned"), before)

    def test_a_job_of_the_same_name_begins_beside_orphans(self):
        orphans = {pod["metadata"]["uid"] for pod in self.running(small("again"), 1)}
        self.kubectl("delete", "tjob", "again", "--cascade=orphan")
        self.make(small("again"))
        pods = self.world.wait_pods("team-a", "again", 2)
        (own,) = [pod for pod in pods if pod["metadata"]["uid"] not in orphans]
        self.world.run_pod(own)
        self.world.end_pod(own)
        self.world.wait_condition("team-a", "again", "Complete", "True")
        self.assertLess(orphans, {pod["metadata"]["uid"] for pod in self.world.pods_of("team-a", "again")})


if __name__ == "__main__":
    unittest.main()
