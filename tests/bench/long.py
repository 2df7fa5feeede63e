#!/usr/bin/env python3
"""Long runs that no test waits for: each stops by itself, prints what it has checked, and keeps that as JSON.

    tests/bench/long.py starved|scaled|leaks|soak|seeds|recovery|operator [--amount N] [--seed S] [--bin DIR] [--out FILE]

    starved  600 s    a worker with a fifth of a processor and four threads: nobody is evicted (fault 12)
    scaled   300 s    1 to 16 workers, resized all the time under random kills, leaves and silences, one about every 2.5 s (fault 25)
    leaks    1,000    faults one after the other: no descriptor, thread or memory is left (fault 25)
    soak     86,400 s scaled for a day
    seeds    1,000,000 of the simulation of membership, from 10,000 on
    recovery 1,000,000 of the simulation of trainers, likewise
    operator 60 min   jobs come and go, one a second, at an operator on a real kube-apiserver: its memory grows by less than
                      1 MB an hour

--amount: so many seconds, faults, seeds or minutes instead. The first four hold every step against an undisturbed run of one
worker. Where anything does not hold the command fails, and the JSON says so.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FAULTS = os.path.join(ROOT, "tests", "faults")
SOAK = [sys.executable, os.path.join(FAULTS, "soak_test.py"), "BIN"]
# By name: amount, seconds that one of it may take (and REST_SECONDS the rest), the variable that says it, the command.
RUNS = {
    "starved": (600, 5, "MUSTER_STARVE_SECONDS", [sys.executable, os.path.join(FAULTS, "resources_test.py"), "BIN",
                                                  "Scarce.test_a_starved_worker_with_many_threads_is_not_evicted"]),
    "scaled": (300, 3, "MUSTER_SOAK_SECONDS", [*SOAK, "Soak.test_scaled_all_the_time_under_random_kills"]),
    "leaks": (1000, 10, "MUSTER_FAULTS", [*SOAK, "Soak.test_after_many_faults_the_survivors_hold_no_more_than_before"]),
    "soak": (86400, 2, "MUSTER_SOAK_SECONDS", [*SOAK, "Soak.test_scaled_all_the_time_under_random_kills"]),
    "seeds": (1_000_000, 1, None, ["BIN/../tests/membership_seeds", "--first", "10000", "--threads", str(os.cpu_count()),
                                   "--seeds"]),
    "recovery": (1_000_000, 1, None, ["BIN/../tests/recovery_seeds", "--first", "10000", "--threads", str(os.cpu_count()),
                                      "--seeds"]),
    "operator": (60, 60, None, [sys.executable, os.path.join(ROOT, "tests", "bench", "operator_soak.py"), "BIN", "--minutes"]),
}
REST_SECONDS = 900
LINES_KEPT = 60


def run(command, variables, limit):
    """(exit code, lines); every line is printed as it comes. Negative when it took too long and was killed."""
    lines = []
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **variables}, stdin=subprocess.DEVNULL, text=True,
                               errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    timer = threading.Timer(limit, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
        return process.wait(), lines
    finally:
        timer.cancel()
        process.kill()
        process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=RUNS)
    parser.add_argument("--amount", type=int, help="seconds, faults, seeds or minutes")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000), help="of all choices")
    parser.add_argument("--bin", default=os.path.join(ROOT, "build", "release", "bin"))
    parser.add_argument("--out", help="docs/benchmarks/DATE-NAME.json where it is not given")
    arguments = parser.parse_args()
    usual, each, variable, command = RUNS[arguments.name]
    amount = arguments.amount or usual
    out = arguments.out or os.path.join(ROOT, "docs", "benchmarks", f"{time.strftime('%Y-%m-%d')}-{arguments.name}.json")
    command = [word.replace("BIN", os.path.abspath(arguments.bin)) for word in command] + ([] if variable else [str(amount)])
    print(f"{arguments.name}: {amount}, seed {arguments.seed}", flush=True)
    load, since = os.getloadavg(), time.monotonic()
    variables = {"MUSTER_SEED": str(arguments.seed), **({variable: str(amount)} if variable else {})}
    code, lines = run(command, variables, amount * each + REST_SECONDS)
    revision = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True, capture_output=True, check=False).stdout.strip()
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"name": arguments.name, "amount": amount, "seed": arguments.seed, "revision": revision,
                   "ended": time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()), "seconds": round(time.monotonic() - since, 1),
                   "processors": os.cpu_count(), "load_before": load, "load_after": os.getloadavg(), "is_right": code == 0,
                   "exit_code": code, "said": lines[-LINES_KEPT:]}, file, indent=1)
    print(f"{'right' if code == 0 else 'WRONG'} after {time.monotonic() - since:.0f} s; kept in {os.path.relpath(out)}")
    return 0 if code == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
