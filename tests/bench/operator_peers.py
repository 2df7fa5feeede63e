"""Who is measured by operator.py: Muster's operator, kubeflow's training-operator as shipped and lifted, bare clients.

A peer starts its operator on a control plane, says what a job of it looks like, and which fields show that one runs.
"""

import base64
import copy
import json
import os
import shutil
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "cluster"))
sys.path.insert(0, HERE)
from control_plane import ROOT  # noqa: E402
from processes import ClusterError, fetch, free_ports, wait_for  # noqa: E402
import training_operator  # noqa: E402

SECONDS = 120
WORKERS = 4
IMAGE = "example.invalid/train:1"
COMMAND = ["sh", "-c", "sleep 100000"]
RESOURCES = {"cpu": "100m", "memory": "64Mi"}
TRAINING = {"algorithm": "Backpropagation", "batchSize": 64, "logicalRanks": 16, "steps": 100, "model": {"mlp": {"hidden": [128]}},
            "data": {"train": {"idx": {"images": "/data/images", "labels": "/data/labels"}}},
            "optimizer": {"sgd": {"learningRate": "0.1"}}}


def image_environment():
    """What the operator's image sets."""
    with open(f"{ROOT}/docker/Dockerfile.operator", encoding="utf-8") as file:
        return dict(line.split()[1].split("=", 1) for line in file if line.startswith("ENV "))


def is_true(job, condition):
    return any(one["type"] == condition and one["status"] == "True" for one in job.get("status", {}).get("conditions", []))


class Muster:
    """Our operator with its defaults: Lease, endpoint, health, metrics (plain, so that they can be read here).

    Its jobs are programs of their users, which find each other by a Service, or `trains`: of the built-in engine, without one.
    """

    user = "muster-operator"
    jobs = "/apis/muster.dev/v1alpha1/namespaces/default/trainingjobs"
    job_label = "muster.dev/job-name"
    complete = "Complete"
    workers = WORKERS

    def __init__(self, program, trains=False):
        self.name = "muster-engine" if trains else "muster"
        self.program = program
        self.trains = trains
        self.daemon = None
        self.starts = 0

    def install(self, plane):
        plane.kubectl("apply", "-f", f"{ROOT}/crds")
        # A kind that has just been made is refused for a second or two, which is not the operator's.
        for kind in (self.jobs, "/apis/muster.dev/v1alpha1/trainingqueues", "/apis/muster.dev/v1alpha1/topologyconfigs"):
            wait_for(f"{kind} is served", lambda path=kind: plane.get(path), SECONDS)
        self.kubeconfig = plane.user(self.user, ["system:masters"])

    def start(self, plane):
        """Starts it; returns seconds until it was ready."""
        self.health, self.metrics_port = free_ports(2)
        self.starts += 1
        began = time.monotonic()
        self.daemon = plane.daemon(f"muster-operator-{self.starts}", [
            self.program, "--kubeconfig", self.kubeconfig, "--endpoint-bind-address=127.0.0.1:0",
            f"--health-probe-bind-address=127.0.0.1:{self.health}", "--leader-elect-resource-namespace=default",
            f"--metrics-bind-address=127.0.0.1:{self.metrics_port}", "--metrics-secure=false"],
            {**image_environment(), "POD_NAME": "bench", "POD_NAMESPACE": "default", "POD_IP": "127.0.0.1"})
        self.daemon.wait_ready(lambda: fetch(f"http://127.0.0.1:{self.health}/readyz"), SECONDS)
        return time.monotonic() - began

    def metrics(self):
        return fetch(f"http://127.0.0.1:{self.metrics_port}/metrics").decode()

    def metric(self, name):
        """Sum of a metric's series."""
        return sum(float(line.rsplit(" ", 1)[1]) for line in self.metrics().splitlines()
                   if line.startswith((f"{name} ", f"{name}{{")))

    def job(self, name):
        worker = {"count": self.workers, "image": IMAGE, "resources": RESOURCES}
        spec = {"worker": worker, "training": TRAINING} if self.trains else {"worker": {**worker, "command": COMMAND}}
        return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}

    def job_name(self, pod):
        return pod["metadata"]["labels"].get(self.job_label)

    @staticmethod
    def running(job):
        return is_true(job, "Running")


class TrainingOperator:
    """kubeflow's training-operator 1.9.0, all its kinds enabled as in its own deployment, without leader election.

    `lifted`: training-operator-limits.patch and 16 threads; else 1 thread and client-go's 20 requests a second.
    Its validating webhook is not called (nothing routes to a Service here), which saves it work.
    """

    jobs = "/apis/kubeflow.org/v1/namespaces/default/pytorchjobs"
    job_label = "training.kubeflow.org/job-name"
    complete = "Succeeded"
    workers = WORKERS
    certificates = "/tmp/k8s-webhook-server"  # Its own constant.

    def __init__(self, lifted):
        self.lifted = lifted
        self.name = "training-operator-lifted" if lifted else "training-operator"
        self.user = self.name
        self.made_certificates = False

    def install(self, plane):
        self.program, crds = training_operator.provide(self.lifted)
        for name in sorted(os.listdir(crds)):
            if name.startswith("kubeflow.org_"):
                plane.kubectl("create", "-f", os.path.join(crds, name))
        wait_for("the kind is served", lambda: plane.get(self.jobs), SECONDS)
        plane.kubectl("create", "namespace", "kubeflow")
        plane.kubectl("create", "secret", "generic", "training-operator-webhook-cert", "-n", "kubeflow")
        # It waits for a configuration of this name; this one matches nothing.
        hook = {"name": "none.training-operator.kubeflow.org", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Ignore", "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{"apiGroups": ["none.invalid"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["nones"]}]}
        plane.kubectl("create", "-f", "-", stdin=json.dumps({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "validator.training-operator.kubeflow.org"}, "webhooks": [hook]}))
        self.kubeconfig = plane.user(self.user, ["system:masters"])

    def start(self, plane):
        health, webhook = free_ports(2)
        if os.path.lexists(self.certificates):
            raise ClusterError(f"{self.certificates} exists; another training-operator may be using it")
        began = time.monotonic()
        self.made_certificates = True
        flags = ["--controller-threads=16"] if self.lifted else []
        self.daemon = plane.daemon(self.name, [
            self.program, f"--kubeconfig={self.kubeconfig}", "--metrics-bind-address=127.0.0.1:0",
            f"--health-probe-bind-address=127.0.0.1:{health}", f"--webhook-server-port={webhook}", *flags])
        secret = self.daemon.wait_ready(lambda: self.secret(plane), SECONDS)
        os.makedirs(f"{self.certificates}/serving-certs", mode=0o700)
        # In a cluster the kubelet mounts the Secret there. The name that is waited for comes last.
        for name in sorted(secret):
            with open(f"{self.certificates}/serving-certs/{name}", "wb") as file:
                file.write(base64.b64decode(secret[name]))
        self.daemon.wait_ready(lambda: fetch(f"http://127.0.0.1:{health}/readyz"), SECONDS)
        return time.monotonic() - began

    @staticmethod
    def secret(plane):
        data = json.loads(plane.get("/api/v1/namespaces/kubeflow/secrets/training-operator-webhook-cert")).get("data")
        return data if data and "tls.key" in data else None

    def clean(self):
        if self.made_certificates:
            shutil.rmtree(self.certificates, ignore_errors=True)

    def job(self, name):
        container = {"name": "pytorch", "image": IMAGE, "command": COMMAND,
                     "resources": {"requests": RESOURCES, "limits": RESOURCES}}

        def replicas(count):
            return {"replicas": count, "restartPolicy": "OnFailure", "template": {"spec": {"containers": [container]}}}

        return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": {"name": name},
                "spec": {"pytorchReplicaSpecs": {"Master": replicas(1), "Worker": replicas(WORKERS - 1)}}}

    def job_name(self, pod):
        return pod["metadata"]["labels"].get(self.job_label)

    @staticmethod
    def running(job):
        return is_true(job, "Running")


class Bare:
    """No operator: the client itself creates the pods that Muster would, `placed` on a node or not."""

    jobs = None
    job_label = "bench/job"
    daemon = user = None
    workers = WORKERS

    def __init__(self, program, placed):
        self.muster = Muster(program)
        self.placed = placed
        self.name = "bare-placed" if placed else "bare"
        self.count = 0

    def install(self, plane):
        """Lets Muster make one gang, and keeps what its pods are like."""
        self.muster.install(plane)
        self.muster.start(plane)
        plane.kubectl("create", "-f", "-", stdin=json.dumps(self.muster.job("template")))
        selector = f"{Muster.job_label}=template"
        pods = wait_for("the template's pods", lambda: (lambda found: found if len(found) == WORKERS else None)(
            plane.kubectl_json("get", "pods", "-l", selector)["items"]), SECONDS)
        self.muster.daemon.stop()
        plane.kubectl("delete", "trainingjob", "template")
        plane.kubectl("delete", "pods", "-l", selector, "--force", "--grace-period=0")
        meta, spec = pods[0]["metadata"], pods[0]["spec"]
        self.labels = {key: value for key, value in meta["labels"].items() if key != Muster.job_label}
        for server_made in ("nodeName", "tolerations", "priority", "preemptionPolicy"):
            spec.pop(server_made, None)
        spec["volumes"] = [one for one in spec.get("volumes", []) if not one["name"].startswith("kube-api-access")]
        for container in spec["containers"]:
            container["volumeMounts"] = [one for one in container.get("volumeMounts", [])
                                         if not one["name"].startswith("kube-api-access")]
        self.annotations = meta.get("annotations", {})
        self.spec = spec

    def start(self, plane):
        return 0.0

    def pods(self, name, nodes):
        """The four pods of one job."""
        found = []
        for slot in range(WORKERS):
            spec = copy.copy(self.spec)
            spec.pop("affinity", None)
            if self.placed:
                term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[self.count % len(nodes)]]}]}
                spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [term]}}}
                self.count += 1
            pod_name = f"{name}-{slot}"
            spec["hostname"] = pod_name
            found.append({"apiVersion": "v1", "kind": "Pod", "spec": spec,
                          "metadata": {"name": pod_name, "labels": {**self.labels, self.job_label: name},
                                       "annotations": self.annotations}})
        return found

    def job_name(self, pod):
        return pod["metadata"]["labels"].get(self.job_label)
