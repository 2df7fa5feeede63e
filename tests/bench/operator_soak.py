#!/usr/bin/env python3
"""How the operator's memory grows while jobs of 4 workers come, run, end and are deleted at a steady rate.

    tests/bench/operator_soak.py BIN_DIR --minutes N [--rate JOBS_A_SECOND] [--bound MIB_AN_HOUR]

The control plane and KWOK's nodes are those of operators.py, without its audit log. After the warm-up, a fifth of the time
(at most 10 minutes), resident memory is read every 10 s, and of it what is the process' own and no file's (heap and stacks).
The slope is that of least squares through the means of at most 20 blocks of neighbours, which depend on each other less than
the readings do; its error is twice its standard error. Exit code 1: the slope of resident memory exceeds the bound by more
than its error. 2: it could not be measured.
"""

import argparse
import math
import os
import signal
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from operator_peers import Muster, is_true  # noqa: E402
from operators import QUICK, Bench, end_on_signal  # noqa: E402
from cluster_load import LoadError, Watch  # noqa: E402
from processes import ClusterError  # noqa: E402

BOUND = 1e6 / 2**20  # MiB an hour: 1 MB
RUNS_SECONDS = 10
KEPT_SECONDS = 10  # a job that is over
WINDOW = 100  # jobs at a time at most
LOOK_SECONDS = 10
BLOCKS = 20
REST_SECONDS = 300
NO_AUDIT = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None}]\n"


class Ending(Muster):
    """Jobs whose pods end well after a while."""

    def job(self, name):
        job = super().job(name)
        job["spec"]["worker"]["env"] = [{"name": "BENCH_RUNTIME", "value": f"{RUNS_SECONDS}s"}]
        return job


class Jobs:
    """Those that are there: since when each is complete, as its watch tells."""

    def __init__(self, api, path):
        self.api, self.path = api, path
        self.lock = threading.Lock()
        self.since = {}  # name -> None, or when it was shown complete; guarded by lock
        self.asked = set()  # names whose deletion was asked for
        self.made = self.complete = self.deleted = self.left_out = 0
        self.watch = Watch(api, path, self.note)

    def note(self, now, kind, job):
        name = job["metadata"]["name"]
        with self.lock:
            if kind == "DELETED":
                self.deleted += self.since.pop(name, self) is not self
            elif name in self.since and self.since[name] is None and is_true(job, Muster.complete):
                self.since[name] = now
                self.complete += 1

    def make(self, job):
        with self.lock:
            if len(self.since) >= WINDOW:
                self.left_out += 1
                return
            self.since[job["metadata"]["name"]] = None
        self.made += 1
        self.api.call("POST", self.path, job)

    def delete_old(self, now):
        with self.lock:
            self.asked &= self.since.keys()
            old = [name for name, since in self.since.items()
                   if since is not None and now - since >= KEPT_SECONDS and name not in self.asked]
        for name in old:
            self.asked.add(name)
            self.api.call("DELETE", f"{self.path}/{name}", {"propagationPolicy": "Background"})

    def any(self):
        if self.watch.failure:
            raise LoadError(self.watch.failure)
        with self.lock:
            return bool(self.since)


def own_mib(pid):
    """Resident memory that is no file's: heap and stacks."""
    with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("Anonymous:"))


def slope_of(points):
    """(slope, twice its standard error) of (x, y) through the means of blocks; ClusterError when there are too few."""
    size = max(1, len(points) // BLOCKS)
    blocks = [points[first:first + size] for first in range(0, len(points) - size + 1, size)]
    if len(blocks) < 3:
        raise ClusterError(f"{len(points)} readings are too few for a slope; take more minutes")
    means = [(sum(x for x, _ in block) / size, sum(y for _, y in block) / size) for block in blocks]
    middle_x, middle_y = (sum(values) / len(means) for values in zip(*means))
    spread = sum((x - middle_x) ** 2 for x, _ in means)
    slope = sum((x - middle_x) * (y - middle_y) for x, y in means) / spread
    left = sum((y - middle_y - slope * (x - middle_x)) ** 2 for x, y in means)
    return slope, 2 * math.sqrt(left / (len(means) - 2) / spread)


class Soak(Bench):
    audit_policy = NO_AUDIT
    flags = {"kube-controller-manager": QUICK}
    stages = (f"{HERE}/kwok_complete.yaml",)

    def steady(self):
        """Jobs at a steady rate for the time, then until the last is gone."""
        jobs, looks = Jobs(self.api, self.peer.jobs), []
        began = next_job = time.monotonic()
        end = began + 60 * self.arguments.minutes
        self.result["warm_up_s"] = min(600, 12 * self.arguments.minutes)
        next_look = began + self.result["warm_up_s"]
        while (now := time.monotonic()) < end or jobs.any():
            if now >= next_job and now < end:
                jobs.make(self.peer.job(f"soak-{jobs.made}"))
                next_job += 1 / self.arguments.rate
            jobs.delete_old(now)
            if next_look <= now < end:
                looks.append((now, self.figures()["rss_mib"], own_mib(self.peer.daemon.pid)))
                next_look += LOOK_SECONDS
            self.limit()
            time.sleep(0.02)
        jobs.watch.ended = True
        self.result["looks"] = looks
        self.result["jobs"] = {name: getattr(jobs, name) for name in ("made", "complete", "deleted", "left_out")}


def tell(result, bound):
    """Prints the line of a run; whether its slope is within the bound."""
    looks, jobs = result["looks"], result["jobs"]
    slope, error = slope_of([(at / 3600, rss) for at, rss, _ in looks])
    own, own_error = slope_of([(at / 3600, mib) for at, _, mib in looks])
    is_right = slope - error <= bound
    print(f"resident {slope:+.2f} +- {error:.2f} MiB/h, of it its own {own:+.2f} +- {own_error:.2f} MiB/h "
          f"({'at most' if is_right else 'NOT at most'} {bound:.2f}); {looks[0][1]:.1f} to {looks[-1][1]:.1f} MiB in "
          f"{(looks[-1][0] - looks[0][0]) / 60:.0f} min after {result['warm_up_s'] / 60:.0f} min; jobs of {Muster.workers} workers: "
          f"{jobs['made']} made, {jobs['complete']} seen complete, {jobs['deleted']} deleted, {jobs['left_out']} left out with {WINDOW} there",
          flush=True)
    return is_right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir")
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--rate", type=float, default=1.0, help="jobs a second")
    parser.add_argument("--bound", type=float, default=BOUND, help="MiB an hour")
    parser.add_argument("--keep-logs", help="directory for the programs' logs")
    parser.set_defaults(jobs=0, stop_after=None)
    arguments = parser.parse_args()
    arguments.limit = 60 * arguments.minutes + REST_SECONDS
    signal.signal(signal.SIGTERM, end_on_signal)
    try:
        result = Soak(arguments, Ending(os.path.abspath(f"{arguments.bin_dir}/muster-operator"))).run([Soak.steady])
        return 0 if tell(result, arguments.bound) else 1
    except (ClusterError, LoadError, OSError, subprocess.SubprocessError) as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
