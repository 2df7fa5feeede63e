#!/usr/bin/env python3
"""Many jobs at once: Kueue's own measure with Muster beside Kueue, and what an operator has to bear in a large cluster.

    tests/bench/queues.py --muster build/release/bin/muster-operator [--only generator,memory,shapes,gangs] [--scale 10]

`generator`: the 15,000 workloads of Kueue's own measure (30 queues in 5 cohorts, three classes of priority and size; every
--scale-th of them), as they are and with runtimes / 10, for
  muster      TrainingQueues and TrainingJobs of one worker; pods are created, bound, and ended by KWOK after the runtime;
  kueue-jobs  Kueue v0.19.2 and Jobs of one pod, which the Job controller makes and KWOK ends;
  kueue       Kueue's scheduler under its own runner, which makes no pods;
  same        clients without an operator that write, at full speed, of each job what Muster has written of one before;
  pods        clients that only create the pods.
`memory`: 10,000 jobs of two workers on 1,000 nodes, and a restart beside them. `shapes`: 10,000 pods as jobs of 1, 20, 500
and 4,096 (the most a job may have). `gangs`: 1,000 jobs of 4, each within one rack, on 5,000 nodes.

Every run gets a control plane of its own, as in operators.py: etcd without fsync on a tmpfs, kube-apiserver with its audit
log, controller-manager, scheduler and KWOK. Times and writes of `generator` are the audit log's, from the first creation to
the last job's end. One JSON file per run is kept in --out; what is not run again is read from there.
"""

import argparse
import datetime
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from operators import AUDIT_POLICY, QUICK, Bench, measure_all, pair, percentiles, settle  # noqa: E402
from operator_peers import ROOT, Muster  # noqa: E402
from queue_peers import TEMPLATE, Clients, Gangs, Kept, Kueue, KueueJobs, QueuedMuster  # noqa: E402
from cluster_load import Audit, LoadError, sums_of, written_what  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
# Of the template also what is written.
RECORDING = AUDIT_POLICY.replace("rules:\n", f"""rules:
- level: Request
  verbs: [create, update, patch, delete]
  users: [{Muster.user}]
  namespaces: [{TEMPLATE}]
""")
AFTER = 2.0  # Seconds behind the last end in which writes are still counted.


class GeneratorBench(Bench):
    audit_policy = RECORDING
    programs = ["kwok", "kueue", "minimalkueue", "kueue-runner"]
    flags = {"kube-controller-manager": QUICK}
    stages = (f"{HERE}/kwok_complete.yaml",)

    def generate(self):
        self.audit_all = self.audit
        settle(self.audit)
        self.audit = Audit(self.audit_all.path)
        before = self.others()
        started = time.monotonic()
        admitted = self.peer.generate(self)
        took = time.monotonic() - started
        settle(self.audit)
        after, count = self.others(), len(self.peer.generator.workloads())
        records = [one for one in self.audit.writes() if one["responseStatus"]["code"] < 400]
        first, last = span_of(records, self.peer)
        within = [one for one in records if received(one) <= last + AFTER]
        written = sums_of(within)[0]
        created = {key_of(one): received(one) for one in records if written_what(one) == f"create {self.peer.kind}"}
        found = self.result["generator"] = {
            "workloads": count, "seconds": last - first, "per_s": count / (last - first), "wall_s": took,
            "writes_per_workload": {user: round(sum(of.values()) / count, 3) for user, of in sorted(written.items())},
            "writes_per_workload_all": round(sum(sum(of.values()) for of in written.values()) / count, 2),
            "writes": written, "cpu_s": {name: round(after[name] - before.get(name, 0.0), 2) for name in after}}
        if admitted:
            found["admitted"] = percentiles(admitted.values())
        for fact, what in (("created", "create pods"), ("bound", "create pods/binding")):
            spans = spans_of(records, what, created, self.peer.pod_parts)
            if spans:
                found[fact] = {**percentiles(spans), "count": len(spans)}
        if self.peer.daemon:
            found["peak_mib"] = self.figures()["peak_mib"]


def seconds_of(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def received(record):
    return seconds_of(record["requestReceivedTimestamp"])


def answered(record):
    return seconds_of(record["stageTimestamp"])


def key_of(record):
    return f"{record['objectRef'].get('namespace')}/{record['objectRef'].get('name')}"


def span_of(records, peer):
    """From the first creation to the last end: of a workload's or job's status, or of KWOK's word on a pod."""
    first = min(received(one) for one in records if written_what(one) == f"create {peer.kind}")
    ends = [answered(one) for one in records if one["objectRef"].get("resource") in (peer.kind, "pods")
            and one["objectRef"].get("subresource") == "status"
            and one["user"]["username"] in (peer.finisher, "kwok") and one["verb"] in ("patch", "update")]
    return first, max(ends)


def spans_of(records, what, created, pod_parts):
    """Seconds from a job's creation to what was first done for its pod, whose name is the job's and `pod_parts` more."""
    first = {}
    for one in records:
        if written_what(one) == what:
            job = key_of(one).rsplit("-", pod_parts)[0]
            if job in created:
                first.setdefault(job, answered(one) - created[job])
    return list(first.values())


class KeptBench(Bench):
    nodes_count = 1000
    # With its own limit of 20 requests a second it takes two minutes until a thousand new nodes have lost their taint. And on
    # a slow machine KWOK tells late that its nodes are there: they must not be lost for it.
    lease_seconds = 400
    flags = {"kube-controller-manager": ["--node-monitor-grace-period=1h", *QUICK]}


class ShapeBench(Bench):
    nodes_count = 200


class GangBench(Bench):
    """Five rows of 50 racks of 20 nodes."""

    nodes_count = 5000
    # Of so many nodes Leases alone would be 500 writes a second.
    lease_seconds = 2000
    flags = {"kube-controller-manager": ["--node-monitor-grace-period=1h", *QUICK]}

    @staticmethod
    def node_labels(index):
        return {"example.com/row": f"row-{index // 1000}", "example.com/rack": f"rack-{index // 20}"}

    def tell_topology(self):
        self.api.call("POST", "/apis/muster.dev/v1alpha1/topologyconfigs", {
            "apiVersion": "muster.dev/v1alpha1", "kind": "TopologyConfig", "metadata": {"name": "default"}, "spec": {"levels": [
                {"name": "row", "nodeLabel": "example.com/row"}, {"name": "rack", "nodeLabel": "example.com/rack"}]}})

    def look_at_racks(self):
        """Each gang stands in one rack; what one look at all that wait took."""
        racks = {}
        for pod in self.plane.items("/api/v1/namespaces/default/pods"):
            job = self.peer.job_name(pod)
            racks.setdefault(job, set()).add(int(pod["spec"]["nodeName"].split("-")[1]) // 20)
        spread = [job for job in self.names if len(racks.get(job, ())) != 1]
        if spread:
            raise LoadError(f"{len(spread)} gangs do not stand in one rack, {spread[0]} for one")
        looks = self.peer.metric("muster_schedule_seconds_count")
        self.result["schedule"] = {"looks": looks, "mean_ms": 1000 * self.peer.metric("muster_schedule_seconds_sum") / looks}


SHAPES = {"10000x1": (10000, 1), "500x20": (500, 20), "20x500": (20, 500), "1x4096": (1, 4096)}
GENERATED = ["muster", "kueue-jobs", "kueue", "same", "pods"]
GROUPS = {"generator": GENERATED + [f"{name}-tenth" for name in GENERATED], "memory": ["memory"], "shapes": list(SHAPES),
          "gangs": ["gangs"]}
RUNS = [name for names in GROUPS.values() for name in names]


def make_peer(name, arguments):
    if name in SHAPES:
        arguments.jobs, workers = SHAPES[name]
        return Gangs(arguments.muster, workers)
    if name == "gangs":
        arguments.jobs = 1000
        return Gangs(arguments.muster, 4, rack=True)
    if name == "memory":
        arguments.restart_jobs = max(1, 10000 // arguments.scale)
        return Kept(arguments.muster)
    what, faster = name.removesuffix("-tenth"), 10 if name.endswith("-tenth") else 1
    return {"muster": lambda: QueuedMuster(arguments.muster, arguments.scale, faster),
            "kueue-jobs": lambda: KueueJobs(arguments.scale, faster),
            "kueue": lambda: Kueue(arguments.scale, faster),
            "same": lambda: Clients(arguments.muster, arguments.scale, faster, pods=False),
            "pods": lambda: Clients(arguments.muster, arguments.scale, faster, pods=True)}[what]()


def make_run(name, arguments):
    """(bench, its phases)."""
    peer = make_peer(name, arguments)
    peer.name = name
    if name in SHAPES:
        return ShapeBench(arguments, peer), [Bench.burst]
    if name == "gangs":
        return GangBench(arguments, peer), [GangBench.tell_topology, Bench.burst, GangBench.look_at_racks]
    if name == "memory":
        return KeptBench(arguments, peer), [Bench.fill, Bench.restart]
    return GeneratorBench(arguments, peer), [GeneratorBench.generate]


def table(results):
    """The tables of docs/benchmarks.md."""
    print("| run | workloads | seconds | workloads/s | admitted p50 / p99 s | pod created | bound "
          "| writes per workload: own (all) | CPU s: own, all | peak MiB |\n" + "|---" * 10 + "|")
    for result in results:
        if "generator" in result:
            one = result["generator"]
            own = sum(one["writes_per_workload"].get(user, 0.0) for user in result.get("own", [result["user"]]))
            print(f"| {result['peer']} | {one['workloads']} | {one['seconds']:.1f} | {one['per_s']:.1f} | " + " | ".join(
                pair(one, fact) for fact in ("admitted", "created", "bound")) +
                f" | {own:.2f} ({one['writes_per_workload_all']:.1f}) | {one['cpu_s'].get(result['daemon'], 0.0):.1f}, "
                f"{sum(one['cpu_s'].values()):.1f} | {one.get('peak_mib', 0):.0f} |")
    print("\n| jobs | pods created p50 / p99 s | bound | all running | job shown Running | pods created/s | jobs/s "
          "| operator CPU s | peak MiB |\n" + "|---" * 9 + "|")
    for result in results:
        if "burst" in result:
            one = result["burst"]
            print(f"| {result['peer']} | " + " | ".join(
                pair(one, fact) for fact in ("created", "bound", "pods_running", "running")) +
                f" | {one['pods_created_per_s']:.1f} | {one['jobs_per_s']:.2f} | {one['operator_cpu_s']:.1f} "
                f"| {one['operator_peak_mib']:.0f} |")
    print()
    for result in results:
        for name in ("fill_s", "fill_figures", "restart", "schedule", "preempted"):
            if name in result:
                print(f"{result['peer']} {name}: {json.dumps(result[name])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--muster", required=True, help="the program muster-operator")
    parser.add_argument("--only", default=",".join(GROUPS),
                        help="groups or runs, default all: " + ", ".join(f"{group} ({' '.join(names)})" for group, names in GROUPS.items()))
    parser.add_argument("--scale", type=int, default=10, help="every so manieth workload or kept job; 1: all (default 10)")
    parser.add_argument("--idle-seconds", type=float, default=20)
    parser.add_argument("--limit", type=float, default=1200, help="seconds for one run")
    parser.add_argument("--out", default=os.path.join(ROOT, "build/bench/queues"))
    parser.add_argument("--keep-logs", help="directory for the programs' logs")
    arguments = parser.parse_args()
    arguments.muster = os.path.abspath(arguments.muster)
    arguments.stop_after, arguments.jobs = None, 0
    chosen = [name for one in arguments.only.split(",") for name in GROUPS.get(one, [one])]
    if not set(chosen) <= set(RUNS):
        parser.error(f"--only: known are {', '.join([*GROUPS, *RUNS])}")

    def measure(name):
        bench, phases = make_run(name, arguments)
        return {**bench.run(phases), "peer": name, "scale": arguments.scale, "user": bench.peer.user,
                "own": list(getattr(bench.peer, "own", (bench.peer.user,))),
                "daemon": bench.peer.daemon.name if bench.peer.daemon else ""}

    return measure_all(arguments.out, RUNS, chosen, measure, table)


if __name__ == "__main__":
    sys.exit(main())
