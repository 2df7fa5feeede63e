#!/usr/bin/env python3
"""Start of `muster run` to the end of the first step, 2 workers: median of 7 fresh runs.

The figure is `startToFirstStepSeconds` of report.json; the whole command is timed from outside beside it, as a
bound that needs no trust in our own clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def one(muster, manifest):
    with tempfile.TemporaryDirectory() as directory:
        out = os.path.join(directory, "out")
        started = time.time()
        subprocess.run([muster, "run", manifest, "--output", out, "--quiet"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        whole = time.time() - started
        with open(os.path.join(out, "report.json"), encoding="utf-8") as file:
            report = json.load(file)
        return report["startToFirstStepSeconds"], whole


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--muster", required=True)
    parser.add_argument("--manifest", default="examples/digits.yaml")
    parser.add_argument("--runs", type=int, default=7)
    arguments = parser.parse_args()
    one(arguments.muster, arguments.manifest)
    first, whole = zip(*(one(arguments.muster, arguments.manifest) for _ in range(arguments.runs)))
    for name, values in (("start to first step", first), ("whole run", whole)):
        print(f"{name}: median {statistics.median(values) * 1000:.0f} ms "
              f"(least {min(values) * 1000:.0f}, most {max(values) * 1000:.0f}, {len(values)} runs)")


if __name__ == "__main__":
    main()
