#!/usr/bin/env python3
"""Public traces in the form that `muster simulate` reads, and the clusters that they came from.

    tests/bench/traces.py kalos    converted_kalos_trace.csv            --out DIR [--nodes 160] [--faster 1]
    tests/bench/traces.py tiresias 60_job.csv                           --out DIR [--nodes 8]
    tests/bench/traces.py openb    openb_pod_list.csv openb_node_list.csv --out DIR [--most 2000] [--nodes 24]
    tests/bench/traces.py sia      workload-1.csv TRACES                --out DIR [--nodes 16]
    tests/bench/traces.py gavel    max_min_fairness.trace physical_cluster_throughputs.json --out DIR [--nodes 6]
    tests/bench/traces.py philly   philly.csv                           --out DIR [--nodes 64] [--only ee9e8c]

Writes jobs.csv and cluster.json. Nodes of the made clusters have --gpus (8; sia's 4) and stand in racks of --rack (8),
as OCI's labels would say; those of openb are the trace's own, the first --nodes of them, without a network. --lingjun
topo.csv puts the jobs on Lingjun's hosts instead, of --gpus each: a rack is an access switch (ASW), a block what is
above it (PSW). --faster N divides the time between two submissions by N.

kalos     github.com/hyunnnchoi/AcmeTrace, data/converted_trace: LLM jobs of the Acme data centre (8 GPUs a worker); it
          ran as long as its iterations took (computing and networking time of each are the converter's, not measured)
tiresias  github.com/SymbioticLab/Tiresias, simulator: jobs of 1 to 8 GPUs; a worker a GPU
openb     github.com/alibaba/clusterdata, cluster-trace-gpu-v2023: pods; a share of a GPU counts as a whole one
sia       github.com/siasosp23/artifacts, sia-simulator/workloads: jobs drawn from Philly's, Helios' and a newer trace,
          each one of six models; a worker a GPU. TRACES is sia-simulator/traces there, with what the authors measured
          of each model on AWS. How long a job ran is made of that: with its own batch and GPUs, on as few nodes of 4
          T4s as hold them, until the last epoch of the published runs, slowed as the authors found real runs slower
          than their profiles. A batch that does not fit the GPUs is accumulated; between two measured batches a line
          is drawn. That Sia changes batch and GPUs on the way is left out
gavel     github.com/stanford-futuredata/gavel, scheduler/traces/physical_cluster and, beside scheduler/traces,
          physical_cluster_throughputs.json: a job ran its steps at the speed measured on as many V100s, whatever else
          the cluster had; a worker a GPU
philly    github.com/siasosp23/artifacts, sia-simulator/traces/philly.csv: Microsoft's Philly, from which Sia's and
          Gavel's larger traces are drawn, as long as each job ran; a worker a GPU. --only takes one virtual cluster.
          How large that was is not published there: --nodes is a guess
lingjun   github.com/alibaba/alibaba-lingjun-dataset-2023, data/topo.csv: where 847 hosts stand; that each has 8 GPUs is
          a guess
"""

import argparse
import bisect
import csv
import datetime
import functools
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


def made_node(name, gpus, block, rack):
    return node(name, "128", "1Ti", gpus, {"oci.oraclecloud.com/host.network_block_id": block,
                                           "oci.oraclecloud.com/host.rack_id": rack})


def made_nodes(arguments, count, gpus=8):
    """As many nodes, or as asked for; or where Lingjun's hosts stand."""
    gpus = arguments.gpus or gpus
    if arguments.lingjun:
        hosts = enumerate(rows_of(arguments.lingjun))
        return [made_node(f"n{i:04}", gpus, host["PSW"], host["ASW"]) for i, host in hosts]
    rack = arguments.rack
    return [made_node(f"n{i:04}", gpus, f"b{i // (8 * rack)}", f"r{i // rack}") for i in range(arguments.nodes or count)]


def gpu_gang(name, submit, duration, gpus):
    """A worker a GPU, where a trace says nothing of processors and memory."""
    return {"name": name, "submit": submit, "duration": duration, "workers": gpus, "gpus": 1, "cpu": "4",
            "memory": "16Gi"}


def kalos(arguments):
    jobs = []
    for row in rows_of(arguments.files[0]):
        each = float(row["iteration_computing_time"]) + float(row["iteration_networking_time"])
        gpus = int(float(row["gpu_per_worker"]))
        jobs.append({"name": f"kalos-{row['job_id']}", "submit": float(row["arrival_time"]),
                     "duration": int(row["num_iteration"]) * each, "workers": int(row["gpu_workers"]), "gpus": gpus,
                     "cpu": f"{int(float(row['cpu_per_gpu_worker']))}", "memory": "64Gi"})
    return jobs, made_nodes(arguments, 160)


def tiresias(arguments):
    jobs = [gpu_gang(f"tiresias-{row['job_id']}", float(row["submit_time"]), float(row["duration"]),
                     int(row["num_gpu"])) for row in rows_of(arguments.files[0])]
    return jobs, made_nodes(arguments, 8)


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
    return jobs, nodes[:arguments.nodes or len(nodes)]


# Of each model, from sia-simulator's applications.py and simulator_config.py: epochs of a run, and how much slower than its
# profile a real one was.
SIA_MODELS = {"bert": (2, 1.2), "cifar10": (100, 1.8), "deepspeech2": (80, 1.2), "imagenet": (90, 1.2),
              "ncf": (10, 1.5), "yolov3": (50, 1.2)}
SIA_NODE_GPUS = 4  # of g4dn.12xlarge, which placements-aws.csv is of


@functools.cache
def sia_profile(traces, model):
    """By placement, as `244` says it of three nodes: what was measured, as (batch of a GPU, step, exchange of it), ascending."""
    profile = {}
    for row in rows_of(os.path.join(traces, model, "placements-aws.csv")):
        measured = tuple(float(row[name]) for name in ("local_bsz", "step_time", "sync_time"))
        profile.setdefault(row["placement"], []).append(measured)
    return {placement: sorted(measured) for placement, measured in profile.items()}


def sia_step(measured, each):
    """Seconds of a step with so large a batch a GPU, and of the exchange in it."""
    batches = [one[0] for one in measured]
    each = min(max(each, batches[0]), batches[-1])
    after = bisect.bisect_left(batches, each)
    if batches[after] == each:
        return measured[after][1:]
    (low, *first), (high, *second) = measured[after - 1], measured[after]
    share = (each - low) / (high - low)
    return tuple(a + share * (b - a) for a, b in zip(first, second))


@functools.cache
def sia_duration(traces, model, gpus, batch):
    epochs, slower = SIA_MODELS[model]
    rest = gpus % SIA_NODE_GPUS
    measured = sia_profile(traces, model)[(str(rest) if rest else "") + str(SIA_NODE_GPUS) * (gpus // SIA_NODE_GPUS)]
    each = math.ceil(batch / gpus)
    parts = math.ceil(each / measured[-1][0])  # of a batch that does not fit; they exchange once
    step, exchange = sia_step(measured, math.ceil(each / parts))
    steps = int(rows_of(os.path.join(traces, model, f"validation-{batch}.csv"))[epochs - 1]["iteration"])
    return steps * (parts * step - (parts - 1) * exchange) * slower


def sia(arguments):
    workload, traces = arguments.files
    jobs = []
    for row in rows_of(workload):
        gpus = int(row["num_replicas"])
        duration = sia_duration(traces, row["application"], gpus, int(row["batch_size"]))
        jobs.append(gpu_gang(f"sia-{row['name']}", float(row["time"]), round(duration, 3), gpus))
    return jobs, made_nodes(arguments, 16, SIA_NODE_GPUS)


def gavel(arguments):
    """A line: model, command, directory, how it is told its steps, whether it reads data, steps, GPUs, weight, target,
    arrival."""
    trace, throughputs = arguments.files
    with open(throughputs, encoding="utf-8") as file:
        speeds = json.load(file)["v100"]
    jobs = []
    with open(trace, encoding="utf-8", newline="") as file:
        lines = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        for number, (model, *_, steps, gpus, _weight, _target, arrival) in enumerate(lines):
            speed = speeds[f"('{model}', {int(gpus)})"]["null"]  # steps a second, nothing else on the GPUs
            jobs.append(gpu_gang(f"gavel-{number}", float(arrival), round(int(steps) / speed, 3), int(gpus)))
    return jobs, made_nodes(arguments, 6)


def philly(arguments):
    jobs = []
    for number, row in enumerate(rows_of(arguments.files[0])):
        if arguments.only in (None, row["cluster"]):
            begin = datetime.datetime.fromisoformat(row["timestamp"]).replace(tzinfo=datetime.timezone.utc)
            jobs.append(gpu_gang(f"philly-{number}", begin.timestamp(), float(row["duration"]), int(row["num_gpus"])))
    return jobs, made_nodes(arguments, 64)


# How each is read, and of how many files.
KINDS = {"kalos": (kalos, 1), "tiresias": (tiresias, 1), "openb": (openb, 2), "sia": (sia, 2), "gavel": (gavel, 2),
         "philly": (philly, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("files", nargs="+")
    parser.add_argument("--out", required=True)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--rack", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=0, help="of each made node")
    parser.add_argument("--lingjun", metavar="TOPO", help="hosts and where they stand, instead of made racks")
    parser.add_argument("--only", help="of philly, the jobs of one virtual cluster")
    parser.add_argument("--faster", type=float, default=1)
    parser.add_argument("--queue", help="of all jobs; it is in cluster.json and may use all of it")
    parser.add_argument("--min", type=float, default=1, help="of each job, as a share of its workers; below 1 it is elastic")
    parser.add_argument("--deadline", type=float, default=0, help="of each job, as a multiple of what it took")
    parser.add_argument("--most", type=int, default=0, help="only the first so many jobs")
    arguments = parser.parse_args()
    read, files = KINDS[arguments.kind]
    if len(arguments.files) != files:
        sys.exit(f"traces.py: {arguments.kind} takes another number of files (--help)")
    jobs, nodes = read(arguments)
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
