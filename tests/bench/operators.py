#!/usr/bin/env python3
"""The operator on 100 KWOK nodes beside its peers: from apply to pods created, bound and job shown Running.

    tests/bench/operators.py --muster build/release/bin/muster-operator [--only muster,lifted,...] [--jobs 500]
    tests/bench/operators.py --print [docs/benchmarks/2026-11-25-operators.json]

Every peer gets a fresh control plane (etcd without fsync on a tmpfs, kube-apiserver with its audit log, stock
controller-manager, scheduler and KWOK; the scheduler's own client limit is lifted, else it would be what is measured),
ten jobs of 4 workers one at a time, then --jobs of them at full speed from 8 client threads. Muster's jobs are then
ended (the bench writes the pods' status), those of own programs deleted, and the idle operator is looked at; `restart`
measures its start beside 2,000 running jobs. One JSON file per peer is kept in --out; what is not run again is read from there.
(Not operator.py: Python has a module of that name.)
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from operator_peers import ROOT, Bare, Muster, TrainingOperator  # noqa: E402
from cluster_load import Api, Audit, Load, LoadError, Watch, process_figures  # noqa: E402
from control_plane import ControlPlane  # noqa: E402
from processes import ClusterError, wait_for  # noqa: E402
from kwok import make_node, start_kwok, wait_ready  # noqa: E402
from training_operator import PeerError  # noqa: E402

NODES = 100
THREADS = 8
QUICK = ["--kube-api-qps=3000", "--kube-api-burst=3000"]  # for clients of the control plane that limit themselves
SINGLES = 10
PODS = "/api/v1/namespaces/default/pods"
PEERS = ["muster", "muster-engine", "bare", "bare-placed", "lifted", "shipped", "restart"]
# Writes that the load client answers for itself.
CLIENT = "bench-client"
AUDIT_POLICY = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
"""


class Observed:
    """When each job's pods were created, bound and running, and when the job was shown Running and complete."""

    def __init__(self, peer, api):
        self.peer = peer
        self.lock = threading.Lock()
        self.pods = {}  # pod name -> [job, created, bound, running]
        self.jobs = {}  # job name -> {"running": time, "complete": time}
        self.counts = {"created": {}, "bound": {}, "pods_running": {}}  # -> job -> times
        self.watches = [Watch(api, PODS, self.note_pod)]
        if peer.jobs:
            self.watches.append(Watch(api, peer.jobs, self.note_job))

    def note_pod(self, now, kind, pod):
        job = self.peer.job_name(pod)
        if kind == "DELETED" or not job:
            return
        seen = self.pods.setdefault(pod["metadata"]["name"], set())
        facts = {"created": True, "bound": bool(pod["spec"].get("nodeName")),
                 "pods_running": pod.get("status", {}).get("phase") == "Running"}
        for fact, holds in facts.items():
            if holds and fact not in seen:
                seen.add(fact)
                with self.lock:
                    self.counts[fact].setdefault(job, []).append(now)

    def note_job(self, now, kind, job):
        if kind == "DELETED":
            return
        seen = self.jobs.setdefault(job["metadata"]["name"], {})
        if "running" not in seen and self.peer.running(job):
            seen["running"] = now
        if "complete" not in seen:
            conditions = job.get("status", {}).get("conditions", [])
            if any(one["type"] == self.peer.complete and one["status"] == "True" for one in conditions):
                seen["complete"] = now

    def check(self):
        for watch in self.watches:
            if watch.failure:
                raise LoadError(watch.failure)

    def when(self, fact, job):
        """When all pods of the job were so, or the job was shown so; None when that is not yet."""
        if fact in self.counts:
            with self.lock:
                times = self.counts[fact].get(job, [])
            return times[self.peer.workers - 1] if len(times) >= self.peer.workers else None
        return self.jobs.get(job, {}).get(fact)

    def wait(self, fact, jobs, seconds):
        left = list(jobs)

        def all_so():
            while left and self.when(fact, left[-1]) is not None:
                left.pop()
            return not left
        wait_for(f"{fact} of {len(left)} jobs", all_so, seconds, self.check)

    def end(self):
        for watch in self.watches:
            watch.ended = True


class Bench:
    """One peer on a control plane of its own."""

    audit_policy = AUDIT_POLICY
    programs = ["kwok"]
    flags = {}  # program -> further ones
    stages = ()  # of KWOK, beside its own
    nodes_count, lease_seconds = NODES, 40

    def __init__(self, arguments, peer):
        self.arguments, self.peer = arguments, peer
        self.result = {"peer": peer.name, "jobs": arguments.jobs, "began": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()),
                       "load_average_before": os.getloadavg()}

    def limit(self):
        """Seconds left of the peer's."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise ClusterError(f"{self.peer.name}: not done in {self.arguments.limit} s")
        return left

    def run(self, phases):
        self.deadline = time.monotonic() + self.arguments.limit
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        directory = tempfile.mkdtemp(prefix="muster-bench-", dir=memory)
        plane = None
        try:
            with open(f"{directory}/audit.yaml", "w", encoding="utf-8") as file:
                file.write(self.audit_policy)
            plane = self.plane = ControlPlane(f"{directory}/plane", controller_manager=True, scheduler=True, extra={
                "kube-apiserver": [f"--audit-policy-file={directory}/audit.yaml", f"--audit-log-path={directory}/audit.log",
                                   "--audit-log-maxsize=4000"], "kube-scheduler": QUICK, **self.flags},
                programs=self.programs)
            plane.start()
            self.audit = Audit(f"{directory}/audit.log")
            self.api = Api(plane.url, plane.ca_file, *plane.authority.issue("bench", CLIENT, ["system:masters"]))
            self.add_nodes()
            self.peer.install(plane)
            self.result["start_s"] = self.peer.start(plane)
            for phase in phases:
                self.say(phase.__name__)
                phase(self)
                if phase.__name__ == self.arguments.stop_after:
                    break
        finally:
            if plane:
                plane.stop()
            if hasattr(self.peer, "clean"):
                self.peer.clean()
            if self.arguments.keep_logs:
                shutil.copytree(f"{directory}/plane/log", f"{self.arguments.keep_logs}/{self.peer.name}", dirs_exist_ok=True)
            shutil.rmtree(directory, ignore_errors=True)
        self.result["load_average_after"] = os.getloadavg()
        return self.result

    def say(self, what):
        print(f"  {time.strftime('%H:%M:%S', time.gmtime())} {self.peer.name}: {what}", file=sys.stderr, flush=True)

    def add_nodes(self):
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
        self.nodes = [f"node-{index:03}" for index in range(self.nodes_count)]
        self.load_all([(name, "POST", "/api/v1/nodes", make_node(name, amounts, self.node_labels(index)), "application/json")
                       for index, name in enumerate(self.nodes)])
        start_kwok(self.plane, further=self.stages, lease_seconds=self.lease_seconds)
        wait_ready(self.plane, self.nodes_count, min(120 + self.nodes_count / 10, self.limit()))

    @staticmethod
    def node_labels(_index):
        return {}

    def load_all(self, requests):
        return Load(self.api, requests, THREADS).wait(self.limit())

    def requests(self, names):
        """What applies these jobs."""
        if self.peer.jobs:
            return [(name, "POST", self.peer.jobs, self.peer.job(name), "application/json") for name in names]
        return [(pod["metadata"]["name"], "POST", PODS, pod, "application/json")
                for name in names for pod in self.peer.pods(name, self.nodes)]

    def figures(self):
        return process_figures(self.peer.daemon.pid) if self.peer.daemon else {"cpu_s": 0.0, "rss_mib": 0.0, "peak_mib": 0.0}

    def others(self):
        return {daemon.name: process_figures(daemon.pid)["cpu_s"] for daemon in self.plane.daemons if daemon.alive()}

    def shown(self):
        return "running" if self.peer.jobs else "pods_running"

    def times(self, observed, began, names):
        """Percentiles over jobs, from a job's first request."""
        found = {}
        for fact in ("created", "bound", "pods_running", "running"):
            spans = [observed.when(fact, name) - began[name] for name in names if observed.when(fact, name) is not None]
            if spans:
                found[fact] = percentiles(spans)
        if self.peer.jobs:
            found["running_behind_pods"] = percentiles(
                [max(0.0, observed.when("running", name) - observed.when("pods_running", name)) for name in names])
        return found

    def load(self, names):
        return self.load_all(self.requests(names))

    def first_of(self, began, names):
        return began if self.peer.jobs else {name: min(began[f"{name}-{slot}"] for slot in range(self.peer.workers)) for name in names}

    def singles(self):
        """Jobs one at a time, after a first one that is not counted: who has just started waits for what it watches, and an API server
        sends the list of a kind that nobody has touched yet after up to two seconds."""
        observed = Observed(self.peer, self.api)
        began = {}
        names = [f"single-{index}" for index in range(SINGLES)]
        for name in ["single-first", *names]:
            sent, _ = self.load([name])
            began.update(self.first_of(sent, [name]))
            observed.wait(self.shown(), [name], min(120, self.limit()))
            observed.wait("pods_running", [name], min(120, self.limit()))
        observed.end()
        self.result["singles"] = self.times(observed, began, names)

    def burst(self):
        """All at full speed."""
        names = self.names = [f"burst-{index}" for index in range(self.arguments.jobs)]
        settle(self.audit)
        observed = self.observed = Observed(self.peer, self.api)
        self.audit.begin()
        before, others = self.figures(), self.others()
        sent, answered = self.load(names)
        observed.wait(self.shown(), names, self.limit())
        observed.wait("pods_running", names, self.limit())
        began = self.first_of(sent, names)
        start = min(began.values())
        end = max(observed.when(self.shown(), name) for name in names)
        after, others_after = self.figures(), self.others()
        if self.arguments.keep_logs and hasattr(self.peer, "metrics"):
            os.makedirs(self.arguments.keep_logs, exist_ok=True)
            with open(f"{self.arguments.keep_logs}/{self.peer.name}.metrics", "w", encoding="utf-8") as file:
                file.write(self.peer.metrics())
        settle(self.audit)
        burst = self.result["burst"] = self.times(observed, began, names)
        burst.update({
            "apply_s": answered - start, "seconds": end - start, "jobs_per_s": len(names) / (end - start),
            "pods_created_per_s": self.peer.workers * len(names) / (max(observed.when("created", name) for name in names) - start),
            "operator_cpu_s": after["cpu_s"] - before["cpu_s"], "operator_peak_mib": after["peak_mib"],
            "cpu_s": {name: round(others_after[name] - others.get(name, 0.0), 2) for name in others_after}})
        self.count_writes(burst, names)

    def count_writes(self, into, names):
        written, refused = self.audit.sums()
        into["writes_per_job"] = {user: round(sum(of.values()) / len(names), 2) for user, of in sorted(written.items())}
        into["writes_per_job_all"] = round(sum(sum(of.values()) for of in written.values()) / len(names), 2)
        into["own_writes"] = written.get(self.peer.user, {})
        own = sum(count for what, count in into["own_writes"].items() if not what.endswith("leases"))
        into["own_writes_per_job"] = round(own / len(names), 3)
        into["refused"] = refused

    def complete(self):
        """Ends every pod as its kubelet would, until all jobs are shown complete; the writes of a whole life."""
        done = {"phase": "Succeeded", "containerStatuses": None}
        requests = []
        for name in self.observed.pods:
            pod = json.loads(self.plane.get(f"{PODS}/{name}"))
            statuses = pod["status"]["containerStatuses"]
            for one in statuses:
                one.update(ready=False, started=False, state={"terminated": {"exitCode": 0, "reason": "Completed"}})
            requests.append((name, "PATCH", f"{PODS}/{name}/status", {"status": {**done, "containerStatuses": statuses}},
                             "application/merge-patch+json"))
        Load(self.api, requests, THREADS).wait(self.limit())
        self.observed.wait("complete", self.names, self.limit())
        settle(self.audit)
        life = self.result["life"] = {}
        self.count_writes(life, self.names)
        self.result["life"]["operator_peak_mib"] = self.figures()["peak_mib"]

    def delete(self):
        self.observed.end()
        for path in (self.peer.jobs, PODS):
            names = self.api.names(path)
            options = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            Load(self.api, [(name, "DELETE", f"{path}/{name}", options, "application/json") for name in names],
                 THREADS).wait(self.limit())
        services = "/api/v1/namespaces/default/services"
        wait_for("everything is gone", lambda: not self.api.names(PODS) and len(self.api.names(services)) == 1, self.limit())
        settle(self.audit)

    def idle(self, name):
        """CPU over --idle-seconds, and memory at their end. Sleeping is what is measured here."""
        before, began = self.figures(), time.monotonic()
        time.sleep(self.arguments.idle_seconds)
        after, took = self.figures(), time.monotonic() - began
        self.result[name] = {"seconds": took, "millicores": 1000 * (after["cpu_s"] - before["cpu_s"]) / took,
                             "rss_mib": after["rss_mib"]}

    def idle_fresh(self):
        self.idle("idle_fresh")

    def idle_after(self):
        self.idle("idle_after")

    def fill(self):
        """The jobs that a restart finds."""
        names = self.names = [f"kept-{index}" for index in range(self.arguments.restart_jobs)]
        observed = Observed(self.peer, self.api)
        sent, _ = self.load(names)
        observed.wait("running", names, self.limit())
        self.result["fill_s"] = max(observed.when("running", name) for name in names) - min(sent.values())
        self.result["fill_figures"] = self.figures()
        observed.end()
        settle(self.audit)

    def restart(self):
        """In order; the Lease is given up."""
        self.peer.daemon.stop()
        self.audit.begin()
        began = time.monotonic()
        ready = self.peer.start(self.plane)
        wait_for("every job was looked at", lambda: self.peer.metric("controller_runtime_reconcile_total") >= len(self.names),
                 self.limit())
        looked = time.monotonic() - began
        figures = self.figures()
        time.sleep(self.arguments.idle_seconds / 4)
        own = self.audit.sums()[0].get(self.peer.user, {})
        self.result["restart"] = {
            "jobs": len(self.names), "ready_s": ready, "all_looked_at_s": looked, **figures, "own_writes": own,
            "writes": sum(count for what, count in own.items() if not what.endswith("leases"))}


def settle(audit, seconds=60):
    """Until nobody but heartbeats writes for 3 s, or `seconds` are over."""
    deadline = time.monotonic() + seconds
    size, since = None, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - since < 3:
        time.sleep(0.5)
        written = audit.sums()[0]
        now = sum(count for of in written.values() for what, count in of.items()
                  if not what.endswith(("leases", "nodes/status")))
        if now != size:
            size, since = now, time.monotonic()


def percentiles(values):
    values = sorted(values)
    return {"p50": statistics.median(values), "p99": values[min(len(values) - 1, int(0.99 * len(values)))], "max": values[-1]}


def make_peer(name, program):
    return {"muster": lambda: Muster(program), "restart": lambda: Muster(program),
            "muster-engine": lambda: Muster(program, trains=True), "lifted": lambda: TrainingOperator(True),
            "shipped": lambda: TrainingOperator(False), "bare": lambda: Bare(program, False),
            "bare-placed": lambda: Bare(program, True)}[name]()


PHASES = {"muster": [Bench.idle_fresh, Bench.singles, Bench.burst, Bench.complete, Bench.delete, Bench.idle_after],
          "muster-engine": [Bench.singles, Bench.burst, Bench.complete],
          "restart": [Bench.fill, Bench.restart]}
TITLES = {"muster": "Muster, own programs", "muster-engine": "Muster, built-in engine"}


def pair(times, fact):
    return f"{times[fact]['p50']:.2f} / {times[fact]['p99']:.2f}" if fact in times else ""


def print_table(head, rows):
    if not rows:
        return
    print(f"| {' | '.join(head)} |\n{'|---' * len(head)}|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    print()


def title(result):
    return TITLES.get(result["peer"], result["peer"])


TIMES = ("created", "bound", "pods_running", "running", "running_behind_pods")
TIMES_HEAD = ["pods created p50 / p99 s", "bound", "all running", "shown Running", "behind its last pod"]


def burst_row(result):
    """Of who has no operator its columns are left blank."""
    one, life = result["burst"], result.get("life")
    row = [title(result), *(pair(one, fact) for fact in TIMES), f"{one['jobs_per_s']:.1f}"]
    if not one["operator_peak_mib"]:
        return [*row, f"({one['writes_per_job_all']:.1f})", "", ""]
    whole = f" ({life['operator_peak_mib']:.1f})" if life else ""
    return [*row, f"{one['own_writes_per_job']:.1f} ({one['writes_per_job_all']:.1f})", f"{one['operator_cpu_s']:.1f}",
            f"{one['operator_peak_mib']:.1f}{whole}"]


def writer_of(user):
    if user.startswith(("muster-operator", "training-operator")):
        return "operator"
    return {CLIENT: "client", "kwok": "KWOK"}.get(user) or user.rsplit(":", 1)[-1]


def writes_table(results):
    """Whoever writes less than once for ten jobs is one of the others."""
    rows = {}
    for result in results:
        for part, what in (("burst", ""), ("life", ", whole life")):
            if part in result:
                row = rows.setdefault(title(result) + what, {})
                for user, writes in result[part]["writes_per_job"].items():
                    row[writer_of(user)] = row.get(writer_of(user), 0) + writes
    most = {}
    for row in rows.values():
        for writer, writes in row.items():
            most[writer] = max(writes, most.get(writer, 0))
    writers = sorted((writer for writer in most if most[writer] >= 0.1),
                     key=lambda writer: (writer != "operator", -most[writer], writer))

    def cells(row):
        others = sum(writes for writer, writes in row.items() if writer not in writers)
        return [f"{row[writer]:.2f}" if row.get(writer) else "" for writer in writers] + [f"{others:.2f}", f"{sum(row.values()):.2f}"]

    print_table(["API writes per job, Leases too", *writers, "others", "all"], [[name, *cells(row)] for name, row in rows.items()])


def table(results):
    """The tables of docs/benchmarks.md."""
    bursts = [result for result in results if "burst" in result]
    jobs = "/".join(sorted({str(result["jobs"]) for result in bursts}))
    print_table([f"{jobs} jobs", *TIMES_HEAD, "jobs/s", "own (all) writes per job until Running", "operator CPU s",
                 "peak MiB until Running (whole life)"], [burst_row(result) for result in bursts])
    print_table(["one job at a time", *TIMES_HEAD], [[title(result), *(pair(result["singles"], fact) for fact in TIMES)]
                                                    for result in results if "singles" in result])
    writes_table(bursts)
    for result in results:
        for name in ("life", "idle_fresh", "idle_after", "restart", "fill_figures"):
            if name in result:
                print(f"{result['peer']} {name}: {json.dumps(result[name])}")


def end_on_signal(*_):
    sys.exit(143)


def kept_in(path, known):
    """Results of those that are known, in their order: a file each in a directory, or one each in a file."""
    def read(file):
        with open(file, encoding="utf-8") as content:
            return json.load(content)

    if os.path.isdir(path):
        return [read(f"{path}/{name}.json") for name in known if os.path.exists(f"{path}/{name}.json")]
    found = read(path)
    results = {result["peer"]: result for result in (found.values() if isinstance(found, dict) else found)}
    return [results[name] for name in known if name in results]


def measure_all(out, known, chosen, measure, tell):
    """Keeps measure(name) of those chosen below `out`, a file each, and tells the results of all that are known and kept there,
    in their order. The exit code: 1 when one could not be measured."""
    signal.signal(signal.SIGTERM, end_on_signal)
    os.makedirs(out, exist_ok=True)
    failed = []
    for name in chosen:
        try:
            result = measure(name)
        except (ClusterError, LoadError, PeerError, OSError, subprocess.SubprocessError) as error:
            print(f"{os.path.basename(sys.argv[0])}: {name}: {error}", file=sys.stderr)
            failed.append(name)
            continue
        with open(f"{out}/{name}.json", "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
    results = kept_in(out, known)
    tell(results)
    with open(f"{out}/all.json", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--muster", help="the program muster-operator")
    parser.add_argument("--print", dest="kept", nargs="?", const="", metavar="PATH",
                        help="measure nothing, and print the tables of what --out keeps or of a file of docs/benchmarks")
    parser.add_argument("--only", default=",".join(PEERS), help=f"default all: {','.join(PEERS)}")
    parser.add_argument("--jobs", type=int, default=500)
    parser.add_argument("--restart-jobs", type=int, default=2000)
    parser.add_argument("--idle-seconds", type=float, default=60)
    parser.add_argument("--limit", type=float, default=1500, help="seconds for one peer")
    parser.add_argument("--out", default=os.path.join(ROOT, "build/bench/operators"))
    parser.add_argument("--stop-after", metavar="PHASE", help="leave out what comes after this, e.g. burst")
    parser.add_argument("--keep-logs", help="directory for the programs' logs")
    arguments = parser.parse_args()
    if arguments.kept is not None:
        path = arguments.kept or arguments.out
        try:
            found = kept_in(path, PEERS)
        except (OSError, ValueError, TypeError, KeyError) as error:
            parser.error(f"--print: {path} does not hold a result for each peer: {error}")
        table(found)
        return 0
    if not arguments.muster:
        parser.error("--muster is needed, or --print")
    arguments.muster = os.path.abspath(arguments.muster)
    chosen = arguments.only.split(",")
    if not set(chosen) <= set(PEERS):
        parser.error(f"--only: known are {','.join(PEERS)}")

    def measure(name):
        result = Bench(arguments, make_peer(name, arguments.muster)).run(PHASES.get(name, [Bench.singles, Bench.burst]))
        return {**result, "peer": name}

    return measure_all(arguments.out, PEERS, chosen, measure, table)


if __name__ == "__main__":
    sys.exit(main())
