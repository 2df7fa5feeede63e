"""Kueue as it is, beside a control plane of the tests: its manager, its definitions, its webhooks on the loopback interface.

One of its integrations is switched on: of plain pods, or of Jobs. Kueue makes an authority of its own and a certificate for a
Service's name, which nobody serves here; so what it finds mounted is a certificate of that authority for the loopback address.
"""

import base64
import json
import os

import yaml
from control_plane import ROOT
from kwok import DOWNLOAD_SECONDS
from pki import Authority
from processes import fetch, free_ports, run, wait_for

SECONDS = 120
NAMESPACE = "kueue-system"
SECRET = "kueue-webhook-server-cert"
SERVICE = f"kueue-webhook-service.{NAMESPACE}.svc"
INTEGRATIONS = {"pod": "", "batch/job": "batch"}  # by name: the API group of what it takes
CONVERTED = ("localqueues", "clusterqueues", "workloads", "cohorts", "multikueueclusters")  # its certificates want these


def module():
    """The directory of the module that scripts/kube-tools builds."""
    go = run([os.path.join(ROOT, "scripts", "go-toolchain")], DOWNLOAD_SECONDS).strip()
    tools = ["-C", os.path.join(ROOT, "tests", "cluster", "tools")]
    run([go, "mod", "download", *tools, "sigs.k8s.io/kueue"], DOWNLOAD_SECONDS)
    return run([go, "list", *tools, "-mod=readonly", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue"], SECONDS).strip().splitlines()[-1]


def read_all(path):
    with open(path, encoding="utf-8") as file:
        return [one for one in yaml.safe_load_all(file) if one]


def definitions(source, url):
    """Its kinds; versions of some are converted by the manager."""
    folder = os.path.join(source, "config", "components", "crd", "bases")
    found = [one for name in sorted(os.listdir(folder)) for one in read_all(os.path.join(folder, name))]
    for one in found:
        if one["spec"]["names"]["plural"] in CONVERTED:
            one["spec"]["conversion"] = {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"], "clientConfig": {"url": f"{url}/convert"}}}
    return found


def webhooks(source, url, integration):
    """Those for what it takes and for its own kinds, by URL; the cluster's own pods are left alone, as its installation has it."""
    configurations = read_all(os.path.join(source, "config", "components", "webhook", "manifests.yaml"))
    for one in configurations:
        one["metadata"]["name"] = f"kueue-{one['metadata']['name']}"
        one["webhooks"] = [hook for hook in one["webhooks"]
                           if hook["rules"][0]["apiGroups"] in ([INTEGRATIONS[integration]], ["kueue.x-k8s.io"])]
        for hook in one["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": url + path}
            if path.endswith("--v1-pod"):
                hook["namespaceSelector"] = {"matchExpressions": [{
                    "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", NAMESPACE]}]}
    return configurations


def mount_certificate(plane, folder):
    """What a kubelet would do with the Secret, once Kueue has filled it; with a certificate that suits."""
    content = wait_for("Kueue has made its authority", lambda: plane.kubectl_json(
        "get", "secret", "-n", NAMESPACE, SECRET).get("data"), SECONDS)
    for name in ("ca.key", "ca.crt"):
        with open(os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
            file.write(base64.b64decode(content[name]))
    Authority(folder).issue("tls", SERVICE, names=[SERVICE], addresses=["127.0.0.1"])


def start_kueue(plane, integration="pod"):
    """Its manager, once it admits. The control plane's `programs` must have kueue."""
    source = module()
    port, health = free_ports(2)
    url, folder = f"https://127.0.0.1:{port}", os.path.join(plane.directory, "kueue")
    os.makedirs(folder, mode=0o700)
    config = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": NAMESPACE,
              "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"}, "metrics": {"bindAddress": "0"},
              "webhook": {"host": "127.0.0.1", "port": port, "certDir": folder},
              "internalCertManagement": {"enable": True, "webhookServiceName": "kueue-webhook-service",
                                         "webhookSecretName": SECRET},
              "leaderElection": {"leaderElect": False}, "clientConnection": {"qps": 300, "burst": 500},
              "integrations": {"frameworks": [integration]}}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file)
    plane.kubectl("create", "namespace", NAMESPACE)
    objects = [{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}},
               *definitions(source, url), *webhooks(source, url, integration)]
    plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
    manager = plane.daemon("kueue", [f"{plane.bin}/kueue", f"--config={folder}/config.json",
                                     "--feature-gates=VisibilityOnDemand=false,MultiKueue=false",
                                     f"--kubeconfig={plane.user('kueue', ['system:masters'])}"])
    mount_certificate(plane, folder)
    manager.wait_ready(lambda: fetch(f"http://127.0.0.1:{health}/readyz"), SECONDS)
    wait_for("its kinds are served", lambda: plane.get("/apis/kueue.x-k8s.io/v1beta2/workloads"), SECONDS)
    return manager
