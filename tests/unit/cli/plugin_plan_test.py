#!/usr/bin/env python3
"""`muster plan`, and `muster simulate` beside it, as a user runs them, over a kubectl that answers from a list.

    tests/unit/cli/plugin_plan_test.py BIN_DIR [unittest arguments]
"""

import json
import os
import signal
import sys
import unittest

from plugin_test import COMPLETE, PluginTest, ROOT, DEADLINE, condition, items, job, node, pod


JOB = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "big"},
       "spec": {"worker": {"count": 3, "command": ["train"], "resources": {"cpu": "2"}}}}


class PlanTest(PluginTest):
    def setUp(self):
        super().setUp()
        self.write("job.json", JOB)

    def write(self, name, value):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(value if isinstance(value, str) else json.dumps(value))

    def test_the_live_cluster_is_asked_for_what_it_has(self):
        self.answer("api-resources", "nodes\ntopologies.kueue.x-k8s.io\ntopologies.other.example\n")
        self.answer("get nodes,", items(node("a"), node("b")))
        self.answer("get pods", items())
        done = self.muster("plan", "job.json", "-n", "lab")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("big in namespace lab: would start now\n", done.stdout)
        self.assertRegex(done.stdout, r"NODE +WORKERS +SLOTS +DOMAIN\na +2 +0-1")
        kinds = next(word for call in self.calls() for word in call["args"] if word.startswith("nodes,")).split(",")
        self.assertIn("topologies.kueue.x-k8s.io", kinds)
        self.assertNotIn("hypernodes.topology.volcano.sh", kinds)

    def test_pods_that_have_ended_are_read_of_jobs_alone(self):
        self.answer("api-resources", "nodes\n")
        self.answer("get nodes,", items(node("a"), node("b")))
        alive = "--field-selector=status.phase!=Succeeded,status.phase!=Failed"
        ended = "--field-selector=status.phase!=Pending,status.phase!=Running,status.phase!=Unknown"
        here = {"apiVersion": "v1", "kind": "Pod", **pod(0)}
        here["spec"] = {"nodeName": "a", "containers": [{"name": "other", "resources": {"requests": {"cpu": "4"}}}]}
        self.answer(f"get pods {alive} ", items(here))
        self.answer(f"get pods --selector=muster.dev/job-uid {ended} ", items())
        done = self.muster("plan", "job.json", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (3, ""))
        self.assertRegex(json.loads(done.stdout)["why"], "needs 3")
        self.assertEqual(len(self.calls_of("get")), 3)

    def test_of_a_cluster_that_is_too_large_it_is_said_what_helps(self):
        with open(self.path("large"), "wb") as file:
            file.truncate((256 << 20) + 1)
        self.answer("api-resources", "nodes\n")
        self.answer("get pods", stdout_file="large")
        done = self.muster("plan", "job.json", "-n", "lab")
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertRegex(done.stderr, "kubectl get: more than 256 MiB came back; save the cluster in a file.* --cluster FILE")
        for line in (["plan", "job.json"], ["simulate"]):
            done = self.muster(*line, "--cluster", "large")
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertRegex(done.stderr, "large: is larger than 268435456 bytes; leave out pods that have ended")

    def test_an_api_service_that_is_down_hides_nothing_of_the_cluster(self):
        self.answer("api-resources", "nodes\ntopologies.kueue.x-k8s.io\n", code=1, stderr=(
            "error: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: the server is currently "
            "unable to handle the request\n"))
        self.answer("get nodes,.*topologies.kueue.x-k8s.io", items(node("a"), node("b")))
        self.answer("get pods", items())
        done = self.muster("plan", "job.json", "-n", "lab")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.rules = []
        self.answer("api-resources", code=1, stderr="Unable to connect to the server: i/o timeout\n")
        done = self.muster("plan", "job.json", "-n", "lab")
        self.assertEqual((done.returncode, done.stdout), (4, ""))
        self.assertIn("no cluster answers", done.stderr)

    def test_a_saved_cluster_needs_no_kubectl(self):
        self.write("cluster.json", items(node("a"), node("b")))
        env = {"PATH": "/nonexistent", "KUBECTL": "/nonexistent/kubectl"}
        done = self.muster("plan", "job.json", "--cluster", "cluster.json", "--set", "spec.worker.count=5", "-o", "json",
                           env=env)
        self.assertEqual((done.returncode, done.stderr), (3, ""))
        told = json.loads(done.stdout)
        self.assertEqual((told["startsNow"], told["expectedStart"], told["job"]), (False, None, "default/big"))
        self.assertIn("needs 5", told["why"])
        self.write("cluster.yaml", """kind: List
items:
- {apiVersion: v1, kind: Node, metadata: {name: a, uid: a, creationTimestamp: "2026-11-21T09:00:00Z"}, status: {allocatable:
    {cpu: "8", memory: 16Gi, pods: "9"}, conditions: [{type: Ready, status: "True"}]}}
""")
        done = self.muster("plan", "job.json", "--cluster", "cluster.yaml", env=env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_step_is_predicted_from_a_job_that_has_trained_the_same(self):
        rack = {"oci.oraclecloud.com/host.network_block_id": "b", "oci.oraclecloud.com/host.rack_id": "r"}
        nodes = [node(name, cpu="1") for name in ("a", "b")]
        for one in nodes:
            one["metadata"]["labels"] = rack
        old = job(COMPLETE, claim=None, targetWorkers=2, membershipEpoch=1, model={"parameters": 1000000},
                  progress={"step": 9, "stepMilliseconds": "40", "exchangeMilliseconds": "10", "updatedAt": "2026-11-21T11:30:00Z"})
        new = {**old, "metadata": {"name": "again"}}
        del new["status"]
        self.write("cluster.json", items(*nodes, old))
        self.write("again.json", new)
        done = self.muster("plan", "again.json", "--cluster", "cluster.json", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        predicted = json.loads(done.stdout)["predictedStepMilliseconds"]
        self.assertGreater(float(predicted), 30)
        self.assertLess(float(predicted), 35)
        text = " ".join(self.muster("plan", "again.json", "--cluster", "cluster.json").stdout.split())
        self.assertIn(f"predicted step: {predicted} ms, if its workers compute as fast as lab/digits's and nobody else sends", text)
        done = self.muster("plan", "again.json", "--cluster", "cluster.json", "--set", "spec.training.batchSize=32")
        self.assertIn("predicted step: not known", done.stdout)

    def test_the_price_list_of_the_examples_tells_a_cost(self):
        labels = {"node.kubernetes.io/instance-type": "n2-standard-8"}
        small = node("a")
        small["metadata"]["labels"] = labels
        self.write("cluster.json", items(small))
        prices = os.path.join(ROOT, "examples/prices.yaml")
        done = self.muster("plan", "job.json", "--cluster", "cluster.json", "--price-list", prices, "--set",
                           "spec.worker.count=1", "--set", "spec.activeDeadlineSeconds=3600", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        cost = json.loads(done.stdout)["cost"]
        self.assertEqual(cost["currency"], "EUR")
        self.assertGreater(float(cost["perHour"]), 0)
        self.assertGreater(float(cost["atMost"]), 0)

    def test_a_price_list_that_cannot_be_right_is_said_with_file_and_field(self):
        self.write("cluster.json", items(node("a")))
        tier = "{name: all, prices: [{resource: cpu, perHour: %s}]%s}"
        for prices, sentence in [
                ("{currency: EUR, tiers: [" + tier % ('"-1"', "") + "]}", "tiers[0].prices[0].perHour: must not be negative"),
                ("{currency: EUR, tiers: [" + tier % ("0.5", "") + "]}", "tiers[0].prices[0].perHour: must be a decimal in"),
                ("{currency: EUR, tiers: [" + tier % ("1", ', hours: [{from: "00:00", to: "23:00", factor: 1}]') + "]}",
                 "tiers[0].hours: leaves a gap from Mon 23:00 on"),
                ("", "prices.yaml"), ("tiers: [", "prices.yaml"), (None, "prices.yaml")]:
            with self.subTest(prices):
                if prices is None:
                    os.remove(self.path("prices.yaml"))
                else:
                    self.write("prices.yaml", prices)
                done = self.muster("plan", "job.json", "--cluster", "cluster.json", "--price-list", "prices.yaml")
                self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
                self.assertIn("prices.yaml", done.stderr)
                self.assertIn(sentence, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_job_is_planned_from_standard_input(self):
        self.write("cluster.json", items(node("a"), node("b")))
        with open(self.path("job.json"), encoding="utf-8") as file:
            text = file.read()
        done = self.muster("plan", "-", "--cluster", "cluster.json", says=text)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, self.muster("plan", "job.json", "--cluster", "cluster.json").stdout)
        done = self.muster("plan", "-", "--cluster", "cluster.json", "--set", "spec.suspend=true", says=text)
        self.assertEqual((done.returncode, done.stdout), (20, ""))
        self.assertIn("standard input: spec.suspend: must be false", done.stderr)

    def test_what_cannot_be_planned_is_said(self):
        self.write("cluster.json", items(node("a"), {**job(), "metadata": {**job()["metadata"], "namespace": "default"}}))
        self.write("nothing.json", items())
        self.write("broken.json", "{")
        for arguments, code, sentence in [
                (["--cluster", "missing.json"], 2, "missing.json"),
                (["--cluster", "broken.json"], 2, "broken.json"),
                (["--cluster", "nothing.json"], 2, "nothing.json: no object has a creationTimestamp"),
                (["--cluster", "cluster.json", "--set", "spec.worker.count=0"], 20, "spec.worker.count"),
                (["--cluster", "cluster.json", "--set", "spec.suspend=true"], 20, "spec.suspend: must be false"),
                (["--cluster", "cluster.json", "--set", "metadata.name=digits"], 2, "has a job default/digits already")]:
            with self.subTest(arguments):
                done = self.muster("plan", "job.json", *arguments)
                self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
                self.assertIn(sentence, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_trace_without_namespaces_is_taken_by_queues_that_name_some(self):
        queue = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue",
                 "metadata": {"name": "product", "uid": "q", "creationTimestamp": "2026-11-21T09:00:00Z"},
                 "spec": {"namespaces": ["product"], "resources": [{"name": "cpu", "nominal": "64"}]}}
        self.write("cluster.json", items(node("a"), queue))
        self.write("jobs.csv", "submit,duration,cpu,queue\n0,60,1,product\n5,60,1,product\n")
        done = self.muster("simulate", "jobs.csv", "--cluster", "cluster.json", "--rules", "muster", "-o", "json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(json.loads(done.stdout)[0]["ended"], 2)


class SignalTest(PluginTest):
    """What only computes is ended by a signal wherever it stands. Pipes tell where that is: a name is opened when it is read."""

    signals = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def ends_by(self, number, process):
        process.send_signal(number)
        self.assertEqual(process.wait(DEADLINE), -number)
        process.communicate()

    def test_a_simulation_of_a_long_trace_is_ended_by_a_signal(self):
        self.write("cluster.json", items(*(node(f"n{number}") for number in range(50))))
        os.mkfifo(self.path("jobs.csv"))
        trace = "submit,duration,workers,cpu\n" + "".join(f"{second},900,4,1\n" for second in range(50_000))
        for number in self.signals:
            with self.subTest(number):
                process = self.start("simulate", "jobs.csv", "--cluster", "cluster.json")
                self.write("jobs.csv", trace)
                self.ends_by(number, process)

    def test_a_plan_over_a_saved_cluster_is_ended_by_a_signal(self):
        self.write("job.json", json.dumps(JOB))
        os.mkfifo(self.path("cluster.json"))
        for number in self.signals:
            with self.subTest(number):
                process = self.start("plan", "job.json", "--cluster", "cluster.json")
                with open(self.path("cluster.json"), "w", encoding="utf-8"):
                    self.ends_by(number, process)

    def test_once_the_cluster_was_read_a_plan_is_ended_by_a_signal(self):
        self.write("job.json", json.dumps(JOB))
        os.mkfifo(self.path("prices.yaml"))
        self.answer("api-resources", "nodes\n")
        self.answer("get nodes,", items(node("a")))
        self.answer("get pods", items())
        for number in self.signals:
            with self.subTest(number):
                process = self.start("plan", "job.json", "--price-list", "prices.yaml")
                with open(self.path("prices.yaml"), "w", encoding="utf-8"):
                    self.ends_by(number, process)

    def test_a_page_with_an_expected_start_is_ended_by_a_signal_while_it_is_computed_and_written(self):
        # More than a pipe holds: whoever has seen its beginning finds it half written.
        waits = job([condition("Admitted", "False", "GangWaiting", "needs 2 workers")], claim="", phase="Waiting")
        self.answer("api-resources", "nodes\n")
        self.answer("get nodes,", items(node("a", cpu="1"), waits))
        self.answer("get trainingjobs", waits)
        self.answer("get pods", items(*(pod(slot, node="n" * 2500) for slot in range(64))))
        self.answer("events", items())
        process = self.start("describe", "digits")
        self.assertEqual(process.stdout.read(6), "digits")
        self.ends_by(signal.SIGINT, process)


if __name__ == "__main__":
    PluginTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
