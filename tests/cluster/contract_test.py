#!/usr/bin/env python3
"""The contract suite (tests/contract) against a real kube-apiserver, as it runs against the embedded one.

    tests/cluster/contract_test.py DIRECTORY [arguments]

DIRECTORY holds test_contract_real and test_contract_embedded; both get the arguments (`--seed N`) and must answer the
random operations of the suite with the same lines.
"""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_plane import ROOT, ControlPlane  # noqa: E402
from processes import wait_for  # noqa: E402

SECONDS = 600
PREFIX = "transcript: "


def run(program, environment):
    """Exit code and transcript; everything else the program says is passed on."""
    done = subprocess.run([os.path.join(sys.argv[1], program), *sys.argv[2:]], cwd=ROOT, env=environment, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
    lines = done.stdout.splitlines()
    for line in lines:
        if not line.startswith(PREFIX):
            print(line)
    return done.returncode, [line[len(PREFIX):] for line in lines if line.startswith(PREFIX)]


def compare(environment):
    real_code, real = run("test_contract_real", environment)
    embedded_code, embedded = run("test_contract_embedded", environment)
    for number, (ours, theirs) in enumerate(zip(embedded, real)):
        if ours != theirs:
            print(f"operation {number} is answered differently\n  embedded: {ours}\n  real:     {theirs}")
            return 1
    print(f"{len(real)} random operations on the real server, {len(embedded)} on the embedded one, the same answers"
          if len(real) == len(embedded) else "one server answered fewer operations")
    return 1 if real_code or embedded_code or len(real) != len(embedded) or not real else 0


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="muster-contract-test-", dir=memory)
    # Of the controllers only those the suite is about: pods bound to nodes that never were stay as they are.
    controllers = "serviceaccount-controller,garbage-collector-controller,namespace-controller"
    try:
        with ControlPlane(directory, controller_manager=True,
                          extra={"kube-controller-manager": [f"--controllers={controllers}"]}) as plane:
            plane.kubectl("apply", "-f", f"{ROOT}/crds")
            for kind in ("trainingjobs", "trainingqueues", "topologyconfigs"):
                wait_for("the kind is served", lambda kind=kind: plane.get(f"/apis/muster.dev/v1alpha1/{kind}"), SECONDS)
            return compare(plane.environment())
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
