#!/usr/bin/env python3
"""A real Prometheus in the cluster scrapes what the chart's ServiceMonitor and PodMonitor select, as its operator would.

The monitors are translated to scrape configurations field by field; a field that is not known here fails the test.
Needs root and the release programs.
"""

import base64
import json
import os
import re
import sys
import time
import unittest
import urllib.parse

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import image  # noqa: E402
import installed  # noqa: E402
from control_plane import kube_tools  # noqa: E402
from installed import CHART, helm  # noqa: E402
from long_job import LongJobTest  # noqa: E402
from processes import ClusterError, fetch, wait_for  # noqa: E402

IMAGE = "muster.dev/prometheus:test"
SPACE = "monitoring"
PORT = 9090
CA_FILE = "/etc/prometheus/ca.crt"
SCRAPE_SECONDS = 2
SET = ",".join(f"metrics.{monitor}.{field}" for monitor in ("serviceMonitor", "podMonitor")
               for field in ("enabled=true", f"interval={SCRAPE_SECONDS}s", f"scrapeTimeout={SCRAPE_SECONDS}s"))


def sanitized(label):
    return re.sub(r"[^A-Za-z0-9_]", "_", label)


def keep(labels, regex):
    return {"action": "keep", "source_labels": labels, "regex": regex}


def translate(monitor):
    """The scrape configuration of a ServiceMonitor or PodMonitor with one endpoint."""
    is_service = monitor["kind"] == "ServiceMonitor"
    spec = dict(monitor["spec"])
    (endpoint,) = spec.pop("endpoints" if is_service else "podMetricsEndpoints")
    endpoint = dict(endpoint)
    space = spec.pop("namespaceSelector")
    selector = spec.pop("selector")
    discovery = {"role": "endpointslice" if is_service else "pod"}
    if not space.get("any"):
        discovery["namespaces"] = {"names": space["matchNames"]}
    object_kind = "service" if is_service else "pod"
    rules = []
    for label, value in selector["matchLabels"].items():
        rules.append(keep([f"__meta_kubernetes_{object_kind}_label_{sanitized(label)}"], re.escape(value)))
    for one in selector.get("matchExpressions", []):
        assert one["operator"] == "Exists", f"{monitor['kind']}: not translated: {one}"
        rules.append(keep([f"__meta_kubernetes_{object_kind}_labelpresent_{sanitized(one['key'])}"], "true"))
    port = "__meta_kubernetes_endpointslice_port_name" if is_service else "__meta_kubernetes_pod_container_port_name"
    rules.append(keep([port], endpoint.pop("port")))
    rules.append({"action": "drop", "source_labels": ["__meta_kubernetes_pod_phase"], "regex": "(Failed|Succeeded)"})
    rules += [{"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
              {"source_labels": ["__meta_kubernetes_pod_name"], "target_label": "pod"}]
    config = {"job_name": monitor["metadata"]["name"], "kubernetes_sd_configs": [discovery], "relabel_configs": rules,
              "metrics_path": endpoint.pop("path"), "honor_labels": endpoint.pop("honorLabels"),
              "scrape_interval": endpoint.pop("interval"), "scrape_timeout": endpoint.pop("scrapeTimeout")}
    if "metricRelabelings" in endpoint:
        config["metric_relabel_configs"] = [
            {re.sub(r"([A-Z])", lambda m: "_" + m.group(1).lower(), field): value for field, value in one.items()}
            for one in endpoint.pop("metricRelabelings")]
    if "scheme" in endpoint:
        config["scheme"] = endpoint.pop("scheme")
    if "bearerTokenFile" in endpoint:
        config["authorization"] = {"credentials_file": endpoint.pop("bearerTokenFile")}
    if "tlsConfig" in endpoint:
        tls = dict(endpoint.pop("tlsConfig"))
        assert tls.pop("ca") == {"secret": {"name": "muster-master", "key": "ca.crt"}}, monitor
        config["tls_config"] = {"server_name": tls.pop("serverName"), "ca_file": CA_FILE}
        assert not tls, f"{monitor['kind']}: not translated: {tls}"
    matched = set(selector) - {"matchLabels", "matchExpressions"}
    assert not endpoint and not spec and not matched, f"{monitor['kind']}: not translated: {endpoint} {spec} {matched}"
    return config


class Monitors(LongJobTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        archive = os.path.join(cls.directory, "prometheus.tar")
        program = os.path.join(kube_tools(["prometheus"]), "prometheus")
        image.write_image(archive, IMAGE, {"/bin/prometheus": program}, ["/bin/prometheus"])
        cls.cluster.node(1).load(archive)
        shown = helm("template", "muster", CHART, "--kube-version", "1.36", "--set", SET)
        monitors = {found["kind"]: found for found in yaml.safe_load_all(shown) if found}
        configs = [translate(monitors[kind]) for kind in ("ServiceMonitor", "PodMonitor")]
        # The certificate is looked at: under another name nothing is scraped.
        stranger = json.loads(json.dumps(configs[0]))
        stranger["job_name"], stranger["tls_config"]["server_name"] = "stranger", "elsewhere.muster.svc"
        cls.address = cls.start_prometheus([*configs, stranger])

    @classmethod
    def start_prometheus(cls, configs):
        secret = json.loads(cls.cluster.kubectl("-n", "muster", "get", "secret", "muster-master", "-o", "json"))
        meta = {"name": "prometheus", "namespace": SPACE}
        account = {"kind": "ServiceAccount", **meta}
        rbac = "rbac.authorization.k8s.io"
        container = {
            "name": "prometheus", "image": IMAGE, "imagePullPolicy": "Never",
            "args": ["--config.file=/etc/prometheus/config.json", "--storage.tsdb.path=/data",
                     f"--web.listen-address=:{PORT}"],
            "volumeMounts": [{"name": "config", "mountPath": "/etc/prometheus"}, {"name": "data", "mountPath": "/data"}],
            "readinessProbe": {"httpGet": {"path": "/-/ready", "port": PORT}, "periodSeconds": 1}}
        cls.addClassCleanup(cls.cluster.kubectl, "delete", "namespace", SPACE, "--wait=false", check=False)
        cls.addClassCleanup(cls.cluster.kubectl, "delete", "clusterrolebinding,clusterrole", "prometheus", "scrapers",
                            "--ignore-not-found", check=False)
        cls.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}},
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
            # What the Prometheus operator's documentation gives it, and no right to Muster's metrics.
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "prometheus"}, "rules": [
                {"apiGroups": [""], "resources": ["services", "endpoints", "pods"], "verbs": ["get", "list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["get", "list", "watch"]}]},
            {"apiVersion": f"{rbac}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "prometheus"},
             "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "prometheus"}, "subjects": [account]},
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {
                "config.json": json.dumps({"scrape_configs": configs}),
                "ca.crt": base64.b64decode(secret["data"]["ca.crt"]).decode()}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {
                "serviceAccountName": "prometheus", "nodeSelector": {"kubernetes.io/hostname": "node1"},
                "securityContext": {"fsGroup": 65532}, "containers": [container],
                "volumes": [{"name": "config", "configMap": {"name": "prometheus"}},
                            {"name": "data", "emptyDir": {}}]}})
        try:
            cls.cluster.kubectl("-n", SPACE, "wait", "pod/prometheus", "--for=condition=Ready", "--timeout=90s",
                                seconds=120)
        except ClusterError as error:
            described = cls.cluster.kubectl("-n", SPACE, "describe", "pod", "prometheus", check=False)
            logs = cls.cluster.kubectl("-n", SPACE, "logs", "prometheus", check=False)
            raise ClusterError(f"{error}\n{described}\n{logs}") from None
        pod = json.loads(cls.cluster.kubectl("-n", SPACE, "get", "pod", "prometheus", "-o", "json"))
        return f"http://{pod['status']['podIP']}:{PORT}"

    def targets(self, job):
        found = json.loads(fetch(f"{self.address}/api/v1/targets?state=active"))["data"]["activeTargets"]
        return [target for target in found if target["labels"]["job"] == job]

    def health(self, job, count, expected, seconds=60):
        """Waits until the job has so many targets, all as expected (up, or an error's words)."""
        def is_so():
            found = self.targets(job)
            return len(found) == count and all(
                target["health"] == "up" if expected == "up" else expected in target["lastError"] for target in found)

        try:
            wait_for(f"{count} targets of {job}: {expected}", is_so, seconds)
        except Exception as error:
            raise AssertionError(f"{error}\n{json.dumps(self.targets(job), indent=1)}") from None

    def query(self, text):
        answer = fetch(f"{self.address}/api/v1/query?query={urllib.parse.quote(text)}")
        return [(item["metric"], float(item["value"][1])) for item in json.loads(answer)["data"]["result"]]

    def test_operators_are_scraped_over_tls_by_who_has_the_right(self):
        self.health("muster-operator", 2, "HTTP status 403")
        self.cluster.kubectl("create", "clusterrolebinding", "scrapers", "--clusterrole=muster-metrics-reader",
                             f"--serviceaccount={SPACE}:prometheus")
        self.health("muster-operator", 2, "up")
        self.health("stranger", 2, "x509")
        leads = wait_for("both have been read", lambda: (lambda found: len(found) == 2 and found)(
            self.query("leader_election_master_status")), 30)
        self.assertEqual(sorted(value for _, value in leads), [0, 1])
        self.assertEqual({metric["namespace"] for metric, _ in leads}, {"muster"})
        self.assertEqual(sorted((metric["guardrail"], value) for metric, value in self.query("muster_guardrail_missing")),
                         [("muster-jobs", 0), ("muster-jobs", 0), ("muster-pods", 0), ("muster-pods", 0)])
        # The chart's lasts ten years.
        self.assertEqual([value > time.time() + 9 * 365 * 86400
                          for _, value in self.query("muster_ca_expiry_timestamp_seconds")], [True, True])

    def test_workers_are_scraped_under_their_jobs_names(self):
        self.assertEqual(self.targets("muster-workers"), [])
        since = self.account()
        self.start_long("scraped")
        self.health("muster-workers", 2, "up")
        steps = wait_for("steps are read", lambda: (lambda found: len(found) == 2 and found)(
            self.query('muster_worker_steps_total{training_job="scraped"}')), 30)
        self.assertEqual(sorted((metric["namespace"], metric["slot"], metric["process"]) for metric, _ in steps),
                         [("team", "0", "0"), ("team", "1", "0")])
        self.assertGreater(min(value for _, value in steps), 0)
        self.assertEqual({metric["pod"] for metric, _ in steps},
                         {pod["metadata"]["name"] for pod in self.pods("scraped")})
        self.assertEqual({name for metric, _ in steps for name in metric if name.startswith("exported_")}, set())
        # Nothing has happened to it, nor to the operators.
        self.assert_cost("scraped", since, workers=2)
        self.assert_progress_is_seldom_written("scraped")
        self.kubectl("delete", "tjob", "scraped")
        wait_for("ended workers are not looked for", lambda: not self.targets("muster-workers"), 60)


if __name__ == "__main__":
    installed.main()
