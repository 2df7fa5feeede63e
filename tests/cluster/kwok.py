"""Nodes that are objects only: KWOK answers for their kubelets, and every pod bound to one runs at once."""

import os

from control_plane import ROOT
from processes import run, wait_for

SECONDS = 120
DOWNLOAD_SECONDS = 600
ENDS = os.path.join(ROOT, "tests", "cluster", "kwok_ends.yaml")


def kwok_stages():
    """KWOK's own files that say how its nodes and pods live, of the version that scripts/kube-tools builds."""
    go = run([os.path.join(ROOT, "scripts", "go-toolchain")], DOWNLOAD_SECONDS).strip()
    module = ["-C", os.path.join(ROOT, "tests", "cluster", "tools")]
    run([go, "mod", "download", *module, "sigs.k8s.io/kwok"], DOWNLOAD_SECONDS)
    found = run([go, "list", *module, "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"], SECONDS)
    stages = os.path.join(found.strip().splitlines()[-1], "kustomize", "stage")
    return [os.path.join(stages, path) for path in (
        "node/fast/node-initialize.yaml", "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
        "pod/fast/pod-ready.yaml", "pod/fast/pod-delete.yaml")]


def start_kwok(plane, ends=False, further=(), lease_seconds=40):
    """Plays the kubelet of every node of the control plane, whose `programs` must have kwok.

    `ends`: a pod that is asked to leave ends first, and says so, as with a kubelet; else it is gone at once.
    `further`: files with more stages. Each node's Lease is written anew after a quarter of `lease_seconds`.
    """
    paths = [path for path in kwok_stages() if not (ends and path.endswith("pod-delete.yaml"))]
    stages = [f"--config={path}" for path in [*paths, *([ENDS] if ends else []), *further]]
    plane.daemon("kwok", [f"{plane.bin}/kwok", *stages, f"--kubeconfig={plane.user('kwok', ['system:masters'])}",
                          "--manage-all-nodes", "--cidr=10.128.0.0/14", f"--node-lease-duration-seconds={lease_seconds}"])


def make_node(name, amounts, labels=None):
    return {"apiVersion": "v1", "kind": "Node", "status": {"capacity": amounts, "allocatable": amounts},
            "metadata": {"name": name, "labels": {"type": "kwok", "kubernetes.io/hostname": name, **(labels or {})},
                         "annotations": {"kwok.x-k8s.io/node": "fake"}}}


def wait_ready(plane, count, seconds=SECONDS):
    """Until so many nodes are there, all of them ready and without a taint."""
    def ready():
        nodes = list(plane.items("/api/v1/nodes"))
        return len(nodes) == count and all(
            any(one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions", []))
            and not node["spec"].get("taints") for node in nodes)
    wait_for("all nodes are ready", ready, seconds)
