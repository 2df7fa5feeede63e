#!/usr/bin/env python3
"""Public traces in the form that `muster simulate` reads, and the clusters that they came from.

    tests/bench/traces.py kalos    converted_kalos_trace.csv            --out DIR [--nodes 160] [--faster 1]
    tests/bench/traces.py tiresias 60_job.csv                           --out DIR [--nodes 8]
    tests/bench/traces.py openb    openb_pod_list.csv openb_node_list.csv --out DIR [--most 2000]

Writes jobs.csv and cluster.json. Nodes of the made clusters have 8 GPUs and stand in racks of --rack (8), as OCI's labels
would say; those of openb are the trace's own, without a network. --faster N divides the time between two submissions by N.

kalos     github.com/hyunnnchoi/AcmeTrace, data/converted_trace: LLM jobs of the Acme data centre (8 GPUs a worker); it ran
          as long as its iterations took (computing and networking time of each are the converter's, not measured)
tiresias  github.com/SymbioticLab/Tiresias, simulator: jobs of 1 to 8 GPUs; a worker a GPU
openb     github.com/alibaba/clusterdata, cluster-trace-gpu-v2023: pods; a share of a GPU counts as a whole one
"""

import argparse
import csv
import json
import math
import os
import sys

GPU = "nvidia.com/gpu"


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def node(name, cpu, memory, gpus, labels):
    amounts = {"cpu": cpu, "memory": memory, "pods": "250"}
    if gpus:
        amounts[GPU] = str(gpus)
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name, "labels": labels},
            "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}}


def made_nodes(count, rack):
    return [node(f"n{i:04}", "128", "1Ti", 8, {"oci.oraclecloud.com/host.network_block_id": f"b{i // (8 * rack)}",
                                              "oci.oraclecloud.com/host.rack_id": f"r{i // rack}"})
            for i in range(count)]


def kalos(arguments):
    jobs = []
    for row in rows_of(arguments.files[0]):
        each = float(row["iteration_computing_time"]) + float(row["iteration_networking_time"])
        gpus = int(float(row["gpu_per_worker"]))
        jobs.append({"name": f"kalos-{row['job_id']}", "submit": float(row["arrival_time"]),
                     "duration": int(row["num_iteration"]) * each, "workers": int(row["gpu_workers"]), "gpus": gpus,
                     "cpu": f"{int(float(row['cpu_per_gpu_worker']))}", "memory": "64Gi"})
    return jobs, made_nodes(arguments.nodes or 160, arguments.rack)


def tiresias(arguments):
    jobs = [{"name": f"tiresias-{row['job_id']}", "submit": float(row["submit_time"]), "duration": float(row["duration"]),
             "workers": int(row["num_gpu"]), "gpus": 1, "cpu": "4", "memory": "16Gi"} for row in rows_of(arguments.files[0])]
    return jobs, made_nodes(arguments.nodes or 8, arguments.rack)


def openb(arguments):
    jobs = []
    for row in rows_of(arguments.files[0]):
        begin = row["scheduled_time"] or row["creation_time"]
        if not row["deletion_time"] or not begin:
            continue  # still there when the trace was taken
        jobs.append({"name": row["name"], "submit": float(row["creation_time"]),
                     "duration": max(1.0, float(row["deletion_time"]) - float(begin)), "workers": 1,
                     "gpus": int(row["num_gpu"]), "cpu": f"{max(1, int(row['cpu_milli']))}m",
                     "memory": f"{max(1, int(row['memory_mib']))}Mi"})
    nodes = [node(row["sn"], f"{row['cpu_milli']}m", f"{row['memory_mib']}Mi", int(row["gpu"]), {})
             for row in rows_of(arguments.files[1])]
    return jobs, nodes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["kalos", "tiresias", "openb"])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--rack", type=int, default=8)
    parser.add_argument("--faster", type=float, default=1)
    parser.add_argument("--queue", help="of all jobs; it is in cluster.json and may use all of it")
    parser.add_argument("--min", type=float, default=1, help="of each job, as a share of its workers; below 1 it is elastic")
    parser.add_argument("--deadline", type=float, default=0, help="of each job, as a multiple of what it took")
    parser.add_argument("--most", type=int, default=0, help="only the first so many jobs")
    arguments = parser.parse_args()
    if len(arguments.files) != (2 if arguments.kind == "openb" else 1):
        sys.exit(f"traces.py: {arguments.kind} takes another number of files (--help)")
    jobs, nodes = {"kalos": kalos, "tiresias": tiresias, "openb": openb}[arguments.kind](arguments)
    jobs.sort(key=lambda job: job["submit"])
    jobs = jobs[:arguments.most or len(jobs)]
    first = jobs[0]["submit"]
    for job in jobs:
        job["submit"] = round((job["submit"] - first) / arguments.faster, 3)
        job["queue"] = arguments.queue or ""
        job["min"] = max(1, math.ceil(job["workers"] * arguments.min))
        job["deadline"] = round(job["duration"] * arguments.deadline, 3) or ""
    if arguments.queue:
        nodes.append({"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue",
                      "metadata": {"name": arguments.queue, "uid": arguments.queue, "resourceVersion": "1"},
                      "spec": {"resources": [{"name": GPU, "nominal": str(sum(
                          int(one["status"]["allocatable"].get(GPU, 0)) for one in nodes))}]}})
    os.makedirs(arguments.out, exist_ok=True)
    with open(os.path.join(arguments.out, "jobs.csv"), "w", encoding="utf-8", newline="") as file:
        columns = ["name", "submit", "duration", "workers", "min", "gpus", "cpu", "memory", "queue", "deadline"]
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(jobs)
    with open(os.path.join(arguments.out, "cluster.json"), "w", encoding="utf-8") as file:
        json.dump({"apiVersion": "v1", "kind": "List", "items": nodes}, file)
    print(f"{len(jobs)} jobs, {len(nodes)} nodes in {arguments.out}")


if __name__ == "__main__":
    main()
