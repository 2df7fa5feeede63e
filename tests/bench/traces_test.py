#!/usr/bin/env python3
"""Traces of a few lines, made up in the form of each public one, and what traces.py makes of them."""

import csv
import json
import os
import subprocess
import sys
import tempfile
import unittest

TRACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "traces.py")


def gpus_of(node):
    return node["status"]["allocatable"]["nvidia.com/gpu"]


class TracesTest(unittest.TestCase):
    def setUp(self):
        self.home = tempfile.TemporaryDirectory()
        self.addCleanup(self.home.cleanup)

    def file(self, name, text):
        path = os.path.join(self.home.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def jobs(self, *arguments):
        """Of jobs.csv, and the nodes of cluster.json."""
        out = os.path.join(self.home.name, "out")
        done = subprocess.run([sys.executable, TRACES, *arguments, "--out", out], text=True, capture_output=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(out, "jobs.csv"), encoding="utf-8", newline="") as file:
            jobs = list(csv.DictReader(file))
        with open(os.path.join(out, "cluster.json"), encoding="utf-8") as file:
            return jobs, json.load(file)["items"]

    def test_kalos_runs_as_long_as_its_iterations(self):
        trace = self.file("kalos.csv", "job_id,arrival_time,num_iteration,iteration_computing_time,"
                                       "iteration_networking_time,gpu_workers,gpu_per_worker,cpu_per_gpu_worker\n"
                                       "7,60,10,1.5,0.5,4,8.0,16.0\n8,100,1,1,1,1,8,16\n")
        jobs, nodes = self.jobs("kalos", trace, "--faster", "2", "--nodes", "3", "--min", "0.5")
        columns = ("name", "submit", "duration", "workers", "min", "gpus")
        self.assertEqual([tuple(job[column] for column in columns) for job in jobs],
                         [("kalos-7", "0.0", "20.0", "4", "2", "8"), ("kalos-8", "20.0", "2.0", "1", "1", "8")])
        self.assertEqual(len(nodes), 3)

    def test_tiresias_has_a_worker_a_gpu(self):
        trace = self.file("60.csv", "job_id,submit_time,duration,num_gpu\n1,5,30,4\n")
        jobs, nodes = self.jobs("tiresias", trace, "--queue", "all")
        self.assertEqual([jobs[0][column] for column in ("workers", "gpus", "duration", "queue")],
                         ["4", "1", "30.0", "all"])
        self.assertEqual(nodes[-1]["spec"]["resources"], [{"name": "nvidia.com/gpu", "nominal": "64"}])

    def test_openb_leaves_out_pods_that_have_not_ended_and_brings_its_nodes(self):
        pods = self.file("pods.csv", "name,cpu_milli,memory_mib,num_gpu,creation_time,scheduled_time,deletion_time\n"
                                     "a,2000,1024,1,10,15,115\nb,2000,1024,1,10,15,\n")
        listed = self.file("nodes.csv", "sn,cpu_milli,memory_mib,gpu\nopenb-node-0,64000,262144,2\nopenb-node-1,9,9,8\n")
        jobs, nodes = self.jobs("openb", pods, listed)
        self.assertEqual([(job["name"], job["duration"]) for job in jobs], [("a", "100.0")])
        self.assertEqual([(node["metadata"]["name"], gpus_of(node)) for node in nodes],
                         [("openb-node-0", "2"), ("openb-node-1", "8")])
        self.assertEqual(len(self.jobs("openb", pods, listed, "--nodes", "1")[1]), 1)

    def test_sia_runs_its_epochs_at_the_measured_pace(self):
        workload = self.file("workload.csv", "name,time,application,num_replicas,batch_size\nbert-0,5,bert,6,384\n"
                                             "bert-1,9,bert,6,36\nbert-2,10,bert,4,16\n")
        profile = "placement,local_bsz,step_time,sync_time\n24,4,1.0,0.5\n24,8,2.0,0.6\n4,4,3,1\n"
        traces = os.path.dirname(self.file("traces/bert/placements-aws.csv", profile))
        for batch in (384, 36, 16):  # the third line is of an epoch beyond those that are trained
            self.file(f"traces/bert/validation-{batch}.csv", "progress,iteration,metric\n1,50,0\n2,100,0\n3,900,0\n")
        jobs, nodes = self.jobs("sia", workload, os.path.dirname(traces))
        # 384 on 6 GPUs are 64 each, so 8 parts of 8, of which one exchanges; 36 are 6 each, between those of 4 and 8.
        self.assertEqual([float(job["duration"]) for job in jobs],
                         [round(100 * each * 1.2, 3) for each in (8 * 2.0 - 7 * 0.6, 1.5, 3)])
        self.assertEqual([(job["name"], job["submit"], job["workers"]) for job in jobs],
                         [("sia-bert-0", "0.0", "6"), ("sia-bert-1", "4.0", "6"), ("sia-bert-2", "5.0", "4")])
        self.assertEqual({gpus_of(node) for node in nodes}, {"4"})
        self.assertEqual(len(nodes), 16)

    def test_gavel_runs_its_steps_at_the_speed_of_as_many_v100s(self):
        trace = self.file("a.trace", "LM\t\"python3 main.py\tdir\t--steps\t1\t1000\t4\t1\t-1.000000\t0\n"
                                     "LM\tpython3 main.py\tdir\t--steps\t1\t300\t1\t1\t-1.000000\t60\n")
        four, one, slow = {"null": 20.0, "('A3C', 1)": [1.0, 1.0]}, {"null": 10.0}, {"null": 1.0}
        speeds = self.file("speeds.json", json.dumps({"v100": {"('LM', 4)": four, "('LM', 1)": one},
                                                      "k80": {"('LM', 4)": slow, "('LM', 1)": slow}}))
        jobs, _ = self.jobs("gavel", trace, speeds)
        self.assertEqual([(job["submit"], job["duration"], job["workers"]) for job in jobs],
                         [("0.0", "50.0", "4"), ("60.0", "30.0", "1")])

    def test_philly_ran_as_long_as_it_did_and_may_be_one_virtual_cluster(self):
        trace = self.file("philly.csv", "timestamp,duration,num_gpus,gpu_time,cluster\n"
                                        "2017-10-09 07:02:00,66.0,1,66.0,a\n2017-10-09 07:01:00,5.0,16,80.0,b\n"
                                        "2017-10-09 07:01:30,7.0,8,56.0,a\n")
        jobs, _ = self.jobs("philly", trace)
        self.assertEqual([(job["name"], job["submit"], job["duration"], job["workers"]) for job in jobs],
                         [("philly-1", "0.0", "5.0", "16"), ("philly-2", "30.0", "7.0", "8"),
                          ("philly-0", "60.0", "66.0", "1")])
        jobs, _ = self.jobs("philly", trace, "--only", "a")
        self.assertEqual([job["name"] for job in jobs], ["philly-2", "philly-0"])

    def test_lingjun_puts_the_jobs_on_its_hosts(self):
        topology = self.file("topo.csv", "ip,DSW,PSW,ASW\nf00,G6,P10,S14\nf01,G6,P12,S2\n")
        trace = self.file("60.csv", "job_id,submit_time,duration,num_gpu\n1,5,30,4\n")
        _, nodes = self.jobs("tiresias", trace, "--lingjun", topology)
        self.assertEqual([node["metadata"]["labels"] for node in nodes],
                         [{"oci.oraclecloud.com/host." + level: name for level, name in labels}
                          for labels in ((("network_block_id", "P10"), ("rack_id", "S14")),
                                         (("network_block_id", "P12"), ("rack_id", "S2")))])
        self.assertEqual({gpus_of(node) for node in nodes}, {"8"})

    def test_another_number_of_files_is_refused(self):
        done = subprocess.run([sys.executable, TRACES, "gavel", "a.trace", "--out", self.home.name], text=True,
                              capture_output=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("gavel takes another number of files", done.stderr)


if __name__ == "__main__":
    unittest.main()
