#!/usr/bin/env python3
"""The chart without a cluster: what Helm renders from it, and what it refuses."""

import base64
import collections
import copy
import glob
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.join(ROOT, "tests/dashboards")]
import alert_cases  # noqa: E402
import live  # noqa: E402
import restricted  # noqa: E402

CHART = os.path.join(ROOT, "charts/muster")
CASES = sorted(glob.glob(os.path.join(CHART, "ci/*-values.yaml")))
GOLDEN = os.path.join(ROOT, "tests/chart/rbac.golden")
RELEASE_BYTES_MAX = 512 * 1024   # A release is one Secret, which may hold 1 MiB.
# Which Kubernetes to render for; a Helm that was built from source says 1.20 of itself.
KUBE_VERSION = ["--kube-version", "v1.36.0"]


# What a leaf of values.yaml is changed to where it takes not every text: the first of these that its pattern takes.
MARK = "marked-7x"
TEXTS = (MARK, f"--{MARK}", "sha256:" + "7" * 64, "XTS", "+07:30", "07:30", "7.25")
# All that can be switched on is, and nothing hides what another value says: a digest a tag, a Secret of one's own the chart's.
ALL_ON = {"replicaCount": 1, "nodeAgent": {"enabled": True}, "networkPolicy": {"workerNamespaces": ["team-a"]},
          "metrics": {name: {"enabled": True} for name in ("serviceMonitor", "podMonitor", "prometheusRule")},
          "grafana": {"dashboards": {"enabled": True}}}
POD_GROUPS = "scheduling.k8s.io/v1beta1/PodGroup"


class Strict(yaml.SafeLoader):
    """Refuses a name that stands twice in a mapping, as kustomize does."""

    def construct_mapping(self, node, deep=False):
        names = [name.value for name, _ in node.value]
        if twice := {name for name in names if names.count(name) > 1}:
            raise AssertionError(f"{sorted(twice)} stand twice{node.start_mark}")
        return super().construct_mapping(node, deep)


class Helm:
    def __init__(self):
        found = subprocess.run([os.path.join(ROOT, "scripts/kube-tools"), "helm"], stdout=subprocess.PIPE, text=True,
                               timeout=4000, check=True)
        self.program = os.path.join(found.stdout.strip(), "helm")

    def run(self, *arguments):
        return subprocess.run([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=120, check=False)

    def template(self, values=None, namespace="muster", overrides=None, served=()):
        """(exit code, text) of rendering the chart with a file of values or with `overrides`, for a cluster that serves
        these kinds, too."""
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            yaml.safe_dump(overrides or {}, file)
            file.flush()
            files = ["-f", values] if values else []
            done = self.run("template", "muster", CHART, "--namespace", namespace, *KUBE_VERSION, *files,
                            "-f", file.name, *(f"--api-versions={kind}" for kind in served))
        return done.returncode, done.stdout

    def objects(self, values=None, overrides=None, served=()):
        code, text = self.template(values, overrides=overrides, served=served)
        if code != 0:
            raise AssertionError(text)
        return [one for one in yaml.load_all(text, Strict) if one]


HELM = None
SCHEMA = None   # of the values


def setUpModule():
    global HELM, SCHEMA
    HELM = Helm()
    SCHEMA = json.loads(read("charts/muster/values.schema.json"))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def only(objects, kind, name=None):
    found = [one for one in objects if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    if len(found) != 1:
        raise AssertionError(f"{len(found)} objects {kind} {name}")
    return found[0]


def merged(below, above):
    """`below` with what `above` says otherwise, as Helm merges values."""
    if not (isinstance(below, dict) and isinstance(above, dict)):
        return above
    return {**below, **{name: merged(below.get(name), value) for name, value in above.items()}}


def at(path, value):
    """Values of which that one is said."""
    for name in reversed(path):
        value = {name: value}
    return value


def leaves(values, path=()):
    """(path, value) of all values that hold no others."""
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*path, name))
        else:
            yield (*path, name), value


def resolved(schema):
    return SCHEMA["definitions"][schema["$ref"].removeprefix("#/definitions/")] if "$ref" in schema else schema


def schema_at(path):
    """What the schema says of a value; nothing where whoever reads it is free."""
    schema = SCHEMA
    for name in path:
        schema = resolved(schema.get("properties", {}).get(name) or schema.get("additionalProperties") or {})
    return schema


def texts(value):
    """Every text and number in a value, and the names in it that are marks."""
    if isinstance(value, dict):
        return [text for name, below in value.items() for text in ([name] if MARK in name else []) + texts(below)]
    return [text for below in value for text in texts(below)] if isinstance(value, list) else [str(value)]


def another(schema, value=None):
    """Another valid value than that: of a list or map one with nothing but marks in it."""
    if "enum" in schema:
        return next(one for one in schema["enum"] if one != value)
    kind = schema.get("type") or {str: "string", bool: "boolean", int: "integer", list: "array"}.get(type(value), "object")
    if kind == "boolean":
        return not value
    if kind in ("integer", "number") or isinstance(value, int):
        return value + 1
    if kind == "array":
        return [another(resolved(schema.get("items", {"type": "object"})))]
    if kind == "object":
        names = schema.get("properties") or {MARK: {"type": "string"}}
        return {name: another(resolved(below)) for name, below in names.items()}
    if number := re.fullmatch(r"(\d+)([A-Za-z]+)", value or ""):   # a duration or quantity
        return f"{int(number.group(1)) + 1}{number.group(2)}"
    return next(text for text in TEXTS if text != value and re.search(schema.get("pattern", ""), text))


def rights(objects, account="muster-operator"):
    """Lines "where verbs what", sorted: everything that a ServiceAccount gets."""
    rules = {(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]): one.get("rules") or []
             for one in objects if one["kind"] in ("Role", "ClusterRole")}
    lines = set()
    for binding in objects:
        if binding["kind"] not in ("RoleBinding", "ClusterRoleBinding"):
            continue
        if all(subject["name"] != account for subject in binding["subjects"]):
            continue
        where = binding["metadata"].get("namespace")
        role = binding["roleRef"]
        for rule in rules[(role["kind"], where if role["kind"] == "Role" else None, role["name"])]:
            for group in rule.get("apiGroups", [""]):
                for resource in rule.get("resources", rule.get("nonResourceURLs")):
                    names = "".join(f" {name}" for name in sorted(rule.get("resourceNames", [])))
                    lines.add(f"{where or '*'}: {' '.join(sorted(rule['verbs']))}: "
                              f"{resource}{'.' + group if group else ''}{names}")
    return sorted(lines)


class ChartTest(unittest.TestCase):
    maxDiff = None

    def test_helm_finds_nothing_to_complain_about(self):
        for path in CASES:
            with self.subTest(os.path.basename(path)):
                done = HELM.run("lint", "--strict", CHART, "-f", path, *KUBE_VERSION)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertNotIn("[WARNING]", done.stdout)

    def test_every_object_is_named_once_and_labelled(self):
        for path in CASES:
            objects = HELM.objects(path)
            keys = [(one["kind"], one["metadata"].get("namespace"), one["metadata"]["name"]) for one in objects]
            self.assertEqual(len(keys), len(set(keys)))
            for one in objects:
                if one["kind"] == "CustomResourceDefinition" or one["metadata"]["name"] == "extra":
                    continue
                labels = one["metadata"]["labels"]
                self.assertEqual(labels["app.kubernetes.io/instance"], "muster", one["metadata"])
                self.assertEqual(labels["app.kubernetes.io/managed-by"], "Helm", one["metadata"])
                self.assertEqual(labels["app.kubernetes.io/name"], "muster", one["metadata"])
                self.assertEqual(labels["app.kubernetes.io/part-of"], "muster", one["metadata"])
                self.assertIn(labels.get("app.kubernetes.io/component"),
                              {None, "operator", "metrics", "node-agent", "test"}, one["metadata"])
                if path.endswith("everything-values.yaml"):
                    self.assertEqual(labels["team"], "a", one["metadata"])

    def test_the_api_server_asks_nobody(self):
        for path in CASES:
            for one in HELM.objects(path):
                with self.subTest(path=os.path.basename(path), kind=one["kind"], name=one["metadata"]["name"]):
                    self.assertNotIn("Webhook", one["kind"])
                    if one["kind"] == "CustomResourceDefinition":
                        self.assertEqual(one["spec"].get("conversion", {}).get("strategy", "None"), "None")
                    for rule in one.get("rules") or []:
                        self.assertNotIn("webhook", " ".join(rule.get("resources", [])))

    def test_what_can_be_left_out_is(self):
        kinds = {one["kind"] for one in HELM.objects(os.path.join(CHART, "ci/minimal-values.yaml"))
                 if "helm.sh/hook" not in one["metadata"].get("annotations", {})}
        self.assertEqual(kinds, {"Deployment", "Service", "ServiceMonitor"})

    def test_every_pod_meets_restricted_and_stands_on_linux(self):
        pods = 0
        for path in CASES:
            for one in HELM.objects(path):
                spec = one["spec"] if one["kind"] == "Pod" else one.get("spec", {}).get("template", {}).get("spec")
                if one["kind"] == "CustomResourceDefinition" or not spec:
                    continue
                pods += 1
                self.assertEqual(restricted.findings(spec), [], f"{path}: {one['metadata']['name']}")
                self.assertEqual(spec["nodeSelector"]["kubernetes.io/os"], "linux", f"{path}: {one['metadata']['name']}")
                for container in spec["containers"]:
                    self.assertIn("limits", container["resources"])
        self.assertGreaterEqual(pods, len(CASES))

    def test_the_check_of_pods_sees_what_is_not_restricted(self):
        good = only(HELM.objects(), "Deployment")["spec"]["template"]["spec"]
        self.assertEqual(restricted.findings(good), [])

        def bad(change):
            spec = copy.deepcopy(good)
            change(spec, spec["containers"][0])
            return restricted.findings(spec)

        self.assertEqual(bad(lambda spec, _: spec.update(hostNetwork=True)), ["spec.hostNetwork is set"])
        self.assertTrue(bad(lambda spec, _: spec["volumes"].append({"name": "x", "hostPath": {"path": "/"}})))
        self.assertTrue(bad(lambda spec, _: spec["securityContext"].pop("seccompProfile")))
        self.assertTrue(bad(lambda spec, _: spec["securityContext"].update(runAsUser=0)))
        self.assertTrue(bad(lambda _, one: one["securityContext"].pop("capabilities")))
        self.assertTrue(bad(lambda _, one: one["securityContext"].pop("allowPrivilegeEscalation")))
        self.assertTrue(bad(lambda _, one: one["securityContext"].update(privileged=True)))
        self.assertTrue(bad(lambda _, one: one["ports"][0].update(hostPort=80)))

    def test_the_operator_has_the_rights_of_the_golden_file_and_no_others(self):
        lines = []
        for name in ("default", "watch", "namespaced"):
            lines += [f"# {name}", *rights(HELM.objects(os.path.join(CHART, f"ci/{name}-values.yaml")))]
        if os.environ.get("MUSTER_UPDATE_GOLDEN"):
            with open(GOLDEN, "w", encoding="utf-8") as file:
                file.write("\n".join(lines) + "\n")
        self.assertEqual(lines, read(GOLDEN).splitlines())
        section = None
        for line in lines:
            if line.startswith("# "):
                section = line[2:]
                continue
            where, verbs, what = line.split(": ")
            self.assertNotIn("*", verbs + what, line)
            self.assertNotRegex(what, r"secrets|exec|attach|proxy|impersonate|roles|webhook|customresource", line)
            self.assertNotRegex(verbs, r"escalate|bind|impersonate", line)
            if where == "*" and section != "default":
                allowed = ("create: (tokenreviews|subjectaccessreviews)[.][a-z.0-9]*|"
                           "get: validatingadmissionpolic(ies|ybindings)[.][a-z.0-9]* muster-[a-z -]*")
                self.assertRegex(f"{verbs}: {what}", f"^({allowed})$")

    def test_tenants_never_write_status(self):
        for one in HELM.objects():
            if one["kind"] == "ClusterRole" and re.search("editor|viewer", one["metadata"]["name"]):
                for rule in one["rules"]:
                    self.assertEqual(rule["apiGroups"], ["muster.dev"])
                    if "trainingjobs/status" in rule["resources"]:
                        self.assertEqual(rule["verbs"], ["get"])

    def test_the_definitions_are_the_projects_and_stay(self):
        for name in ("trainingjob", "trainingqueue", "topologyconfig"):
            self.assertEqual(read(f"charts/muster/files/{name}.yaml"), read(f"crds/{name}.yaml"),
                             "run: cp crds/*.yaml charts/muster/files/")
            kind, plural = "CustomResourceDefinition", f"{name}s.muster.dev"
            rendered = only(HELM.objects(), kind, plural)
            self.assertEqual(rendered["metadata"].pop("annotations"), {"helm.sh/resource-policy": "keep"})
            self.assertEqual(rendered, yaml.safe_load(read(f"crds/{name}.yaml")))
            unkept = only(HELM.objects(overrides={"crds": {"keep": False}}), kind, plural)
            self.assertNotIn("annotations", unkept["metadata"])

    def test_the_master_secret_holds_an_authority_and_a_key(self):
        secret = only(HELM.objects(), "Secret", "muster-master")
        data = {name: base64.b64decode(value) for name, value in secret["data"].items()}
        self.assertEqual(set(data), {"ca.crt", "ca.key", "master-key"})
        self.assertRegex(data["master-key"].decode(), r"^[0-9a-f]{64}$")
        self.assertEqual(secret["metadata"]["annotations"], {"helm.sh/resource-policy": "keep"})
        text = subprocess.run(["openssl", "x509", "-noout", "-text"], input=data["ca.crt"], capture_output=True,
                              timeout=30, check=True).stdout.decode()
        self.assertIn("CA:TRUE", text)
        public = [subprocess.run(["openssl", *command], input=data[name], capture_output=True, timeout=30,
                                 check=True).stdout
                  for command, name in ((["pkey", "-pubout"], "ca.key"), (["x509", "-noout", "-pubkey"], "ca.crt"))]
        self.assertEqual(*public)
        again = only(HELM.objects(), "Secret", "muster-master")
        self.assertNotEqual(again["data"]["master-key"], secret["data"]["master-key"])
        mounted = only(HELM.objects(), "Deployment")["spec"]["template"]["spec"]["volumes"]
        self.assertIn({"name": "master", "secret": {"secretName": "muster-master", "defaultMode": 0o440}}, mounted)

    def test_a_release_fits_into_its_secret(self):
        """What Helm stores: gzip and base64 of all files of the chart and of everything rendered."""
        with tempfile.TemporaryDirectory() as directory:
            everything = os.path.join(CHART, "ci/everything-values.yaml")
            _, manifest = HELM.template(everything)
            files = {}
            for path in glob.glob(CHART + "/**", recursive=True):
                if os.path.isfile(path) and "/ci/" not in path:
                    with open(path, "rb") as file:
                        files[os.path.relpath(path, CHART)] = base64.b64encode(file.read()).decode()
            release = json.dumps({"chart": files, "manifest": manifest, "values": read(everything)}).encode()
            size = len(base64.b64encode(gzip.compress(release)))
        print(f"release: {size} of {RELEASE_BYTES_MAX} bytes")
        self.assertLess(size, RELEASE_BYTES_MAX)

    def test_the_schema_refuses_typing_errors_everywhere(self):
        values = yaml.safe_load(read("charts/muster/values.yaml"))

        def levels(schema, path=()):
            if schema.get("additionalProperties") is False:
                yield path
            for name, below in schema.get("properties", {}).items():
                yield from levels(resolved(below), (*path, name))

        def closed(schema, values, path=()):
            """Every value stands in the schema, so that none is free by mistake."""
            for name, value in values.items():
                self.assertIn(name, schema["properties"], path)
                below = resolved(schema["properties"][name])
                if isinstance(value, dict) and "properties" in below:
                    closed(below, value, (*path, name))

        closed(SCHEMA, values)
        found = list(levels(SCHEMA))
        self.assertGreater(len(found), 20)
        for path in found:
            code, text = HELM.template(overrides=at((*path, "tpyo"), 1))
            self.assertNotEqual(code, 0, f"{'.'.join(path)}.tpyo was taken")
            self.assertIn("tpyo", text)

    def test_every_value_changes_what_is_rendered_and_is_found_there(self):
        def lines(overrides):
            code, text = HELM.template(overrides=merged(ALL_ON, overrides), served=[POD_GROUPS])
            self.assertEqual(code, 0, f"{overrides}: {text[-1000:]}")
            # Without what is drawn by lot.
            return collections.Counter(line for line in text.splitlines() if not re.match(r"  (ca.crt|ca.key|master-key): ", line))

        base, tried = lines({}), 0
        self.assertTrue(base == lines({}), "two renderings of the same differ")
        for path, value in leaves(merged(yaml.safe_load(read("charts/muster/values.yaml")), ALL_ON)):
            other = another(schema_at(path), value)
            with self.subTest(".".join(path), other=other):
                changed = lines(at(path, other))
                self.assertTrue(changed != base, "nothing changes")
                new = "\n".join(changed - base)
                if not isinstance(other, bool):
                    self.assertEqual([text for text in texts(other) if text not in new], [], "are not found")
            tried += 1
        self.assertGreater(tried, 110)

    def test_what_a_value_is_changed_to_is_another_one_that_bears_a_mark(self):
        self.assertEqual(another({"type": "boolean"}, True), False)
        self.assertEqual(another({"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"}, "15s"), "16s")
        self.assertEqual(another({"enum": ["a", "b"]}, "a"), "b")
        self.assertEqual(another(schema_at(["tolerations"]), []), [{MARK: MARK}])
        self.assertEqual(another(schema_at(["podLabels"]), {}), {MARK: MARK})
        self.assertEqual(another(schema_at(["metrics", "readers"]), []), [{"namespace": MARK, "name": MARK}])
        self.assertEqual(texts({MARK: "a", "b": [1, "c"]}), [MARK, "a", "1", "c"])

    def test_values_of_the_operators_pods_stand_in_their_place(self):
        said = {"image": {"pullPolicy": "Always"}, "imagePullSecrets": [{"name": "registry"}], "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "system", "operator": "Exists"}], "affinity": {"podAntiAffinity": {}},
                "topologySpreadConstraints": [{"maxSkew": 3, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "priorityClassName": "high", "podAnnotations": {"team": "a", "kubectl.kubernetes.io/default-container": "b"},
                "podLabels": {"team": "a", "app.kubernetes.io/name": "b"}, "terminationGracePeriodSeconds": 77,
                "leaderElection": {"leaseDuration": "30s", "renewDeadline": "20s", "retryPeriod": "5s"}, "worker": {"metricsPort": 9777},
                "extraArgs": ["--log-level=error"], "extraEnv": [{"name": "TZ", "value": "UTC"}],
                "extraVolumes": [{"name": "tmp", "emptyDir": {}}], "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                "networkPolicy": {"workerNamespaces": ["team-a"]}}
        objects = HELM.objects(overrides=said)
        template = only(objects, "Deployment")["spec"]["template"]
        pod, (container,) = template["spec"], template["spec"]["containers"]
        self.assertEqual(template["metadata"]["annotations"], {"team": "a", "kubectl.kubernetes.io/default-container": "operator"})
        self.assertLessEqual({"team": "a", "app.kubernetes.io/name": "muster"}.items(), template["metadata"]["labels"].items())
        as_said = ("imagePullSecrets", "tolerations", "affinity", "topologySpreadConstraints", "priorityClassName",
                   "terminationGracePeriodSeconds")
        self.assertEqual({name: pod[name] for name in as_said}, {name: said[name] for name in as_said})
        self.assertEqual(pod["nodeSelector"], {"kubernetes.io/os": "linux", "disk": "ssd"})
        self.assertEqual(container["imagePullPolicy"], "Always")
        self.assertLessEqual({"--leader-elect=true", "--leader-elect-lease-duration=30s", "--leader-elect-renew-deadline=20s",
                              "--leader-elect-retry-period=5s", "--worker-metrics-port=9777"}, set(container["args"]))
        # Of a flag that is said twice the operator takes the last.
        self.assertEqual([one for one in container["args"] if one.startswith("--log-level")], ["--log-level=info", "--log-level=error"])
        self.assertEqual(container["args"][-1], "--log-level=error")
        self.assertEqual([one["name"] for one in container["env"]], ["POD_NAME", "POD_NAMESPACE", "POD_IP", "TZ"])
        self.assertEqual(container["env"][-1], said["extraEnv"][0])
        self.assertEqual(container["volumeMounts"][1:], said["extraVolumeMounts"])
        self.assertEqual(pod["volumes"][1:], said["extraVolumes"])
        scraped = only(objects, "NetworkPolicy", "muster-workers")["spec"]["ingress"][1]["ports"]
        self.assertEqual(scraped, [{"port": 9777}])
        # helm test's pod comes onto nodes, and has its image, as the operator's do.
        test = only(objects, "Pod")["spec"]
        self.assertEqual([test[name] for name in ("nodeSelector", "tolerations", "imagePullSecrets")],
                         [pod[name] for name in ("nodeSelector", "tolerations", "imagePullSecrets")])
        self.assertEqual({one["imagePullPolicy"] for one in test["containers"]}, {"Always"})
        alone = HELM.objects(overrides={"leaderElection": {"enabled": False}, "replicaCount": 1})
        self.assertIn("--leader-elect=false", only(alone, "Deployment")["spec"]["template"]["spec"]["containers"][0]["args"])

    def test_what_the_chart_itself_says_of_its_pods_is_said_once(self):
        """The ci values say all of these again; Strict refuses to read what stands twice."""
        objects = HELM.objects(os.path.join(CHART, "ci/everything-values.yaml"))
        self.assertNotIn("not-to-be-overridden", json.dumps(objects))
        for name in ("POD_NAME", "POD_NAMESPACE", "POD_IP"):
            code, text = HELM.template(overrides={"extraEnv": [{"name": "TZ"}, {"name": name, "value": "a"}]})
            self.assertNotEqual(code, 0)
            self.assertIn(f"extraEnv: {name} is the chart's own", text)
        # Nothing is as good as empty.
        none = {"additionalLabels": None, "enabled": True}
        HELM.objects(overrides={"podLabels": None, "podAnnotations": None, "commonLabels": None, "extraEnv": None, "metrics": {
            name: none for name in ("serviceMonitor", "podMonitor", "prometheusRule")}})

    def test_an_account_of_another_name_is_the_one_that_has_the_rights_and_makes_the_pods(self):
        account = {"name": "trainer", "annotations": {"team": "a"}}
        for create in (True, False):
            objects = HELM.objects(overrides={"serviceAccount": {**account, "create": create}, "watchNamespace": "team-a"})
            made = [one["metadata"] for one in objects if one["kind"] == "ServiceAccount"]
            self.assertEqual([(one["name"], one["annotations"]) for one in made], [("trainer", {"team": "a"})] if create else [])
            self.assertEqual(only(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"], "trainer")
            subjects = [one for binding in objects if binding["kind"] in ("RoleBinding", "ClusterRoleBinding")
                        for one in binding["subjects"]]
            self.assertEqual(subjects, [{"kind": "ServiceAccount", "name": "trainer", "namespace": "muster"}] * 3)
            (condition,) = only(objects, "ValidatingAdmissionPolicy", "muster-team-a-pods")["spec"]["matchConditions"]
            self.assertEqual(condition["expression"], "request.userInfo.username != 'system:serviceaccount:muster:trainer'")

    def test_the_clusters_own_roles_get_rights_where_that_is_not_switched_off(self):
        for wanted in (True, False):
            objects = HELM.objects(overrides={"rbac": {"aggregateClusterRoles": wanted}})
            to = {label.rpartition("-")[2]: one["metadata"]["name"] for one in objects if one["kind"] == "ClusterRole"
                  for label in one["metadata"]["labels"] if "aggregate-to" in label}
            self.assertEqual(to, {"admin": "muster-editor", "edit": "muster-editor", "view": "muster-viewer"} if wanted else {})
            self.assertEqual("muster-editor" in {one["metadata"]["name"] for one in objects}, wanted)

    def test_what_prometheus_and_grafana_read_is_where_and_as_the_values_say(self):
        common = {"enabled": True, "namespace": "monitoring", "additionalLabels": {"release": "prometheus"}}
        scraped = {"interval": "77s", "scrapeTimeout": "7s", "relabelings": [{"action": "labeldrop", "regex": "pod"}]}
        objects = HELM.objects(overrides={
            "metrics": {"serviceMonitor": {**common, **scraped}, "podMonitor": {**common, **scraped}, "prometheusRule": common},
            "grafana": {"dashboards": {"enabled": True, "namespace": "monitoring", "label": "dashboards", "labelValue": "yes",
                                       "annotations": {"grafana_folder": "Muster"}}}})
        monitors = {"ServiceMonitor": "endpoints", "PodMonitor": "podMetricsEndpoints"}
        for kind, endpoints in monitors.items():
            (endpoint,) = only(objects, kind)["spec"][endpoints]
            self.assertLessEqual(scraped.items(), endpoint.items(), kind)
        for kind in (*monitors, "PrometheusRule"):
            metadata = only(objects, kind)["metadata"]
            self.assertEqual((metadata["namespace"], metadata["labels"]["release"]), ("monitoring", "prometheus"), kind)
        maps = [one["metadata"] for one in objects if one["kind"] == "ConfigMap" and "dashboard" in one["metadata"]["name"]]
        self.assertEqual([(one["namespace"], one["labels"]["dashboards"], one["annotations"]) for one in maps],
                         [("monitoring", "yes", {"grafana_folder": "Muster"})] * 3)
        self.assertNotIn("grafana_dashboard", json.dumps(maps))

    def test_additional_objects_are_rendered_as_templates(self):
        extra = [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"extra-{number}", "namespace": "{{ .Release.Namespace }}"},
                  "data": {"account": '{{ include "muster.serviceAccount" . }}'}} for number in range(2)]
        objects = HELM.objects(overrides={"extraObjects": extra})
        for number in range(2):
            one = only(objects, "ConfigMap", f"extra-{number}")
            self.assertEqual((one["metadata"]["namespace"], one["data"]), ("muster", {"account": "muster-operator"}))

    def test_a_parent_chart_switches_it_on_and_off_by_a_condition(self):
        with tempfile.TemporaryDirectory(prefix="muster-parent-") as directory:
            shutil.copytree(CHART, f"{directory}/charts/muster")
            version = yaml.safe_load(read("charts/muster/Chart.yaml"))["version"]
            with open(f"{directory}/Chart.yaml", "w", encoding="utf-8") as file:
                yaml.safe_dump({"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [
                    {"name": "muster", "version": version, "condition": "muster.enabled"}]}, file)
            for enabled, found in (("true", ["muster-operator"]), ("false", [])):
                done = HELM.run("template", "muster", directory, *KUBE_VERSION, "--set", f"muster.enabled={enabled}")
                self.assertEqual(done.returncode, 0, done.stdout)
                objects = [one for one in yaml.load_all(done.stdout, Strict) if one]
                self.assertEqual([one["metadata"]["name"] for one in objects if one["kind"] == "Deployment"], found)

    def test_the_schema_refuses_wrong_values(self):
        for overrides in ({"replicaCount": "two"}, {"replicaCount": 0}, {"logLevel": "loud"},
                          {"image": {"pullPolicy": "Sometimes"}}, {"image": {"digest": "sha256:12"}},
                          {"worker": {"metricsPort": 70000}}, {"worker": {"copiedMetadata": ["*"]}},
                          {"worker": {"copiedMetadata": ["a,b"]}}, {"worker": {"hostNetworkNamespaces": ["it's"]}}, {"resyncPeriod": "5 minutes"}, {"extraArgs": ["oops"]},
                          {"watchNamespace": "Team_A"}, {"metrics": {"readers": [{"name": "x"}]}},
                          {"admissionPolicies": {"allowedPriorityClasses": ["it's"]}},
                          {"admissionPolicies": {"images": {"allowedPrefixes": ["'"]}}},
                          {"priceList": {"currency": "euro"}}, {"priceList": {"tiers": [{"name": "a"}]}},
                          {"metrics": {"port": 9443}}, {"metrics": {"port": 80}},
                          {"metrics": {"prometheusRule": {"runbookUrl": "https://example.com/#"}}},
                          {"nodeAgent": {"enabled": "yes"}}, {"nodeAgent": {"period": "minutely"}},
                          {"leaderElection": {"leaseDuration": 15}}):
            code, text = HELM.template(overrides=overrides)
            self.assertNotEqual(code, 0, f"{overrides} was taken")
            self.assertIn(list(overrides)[0], text)

    def test_durations_are_taken_as_the_operator_takes_them(self):
        # Its own bounds: tests/unit/runtime/flags_test.cpp.
        source = read("operator/main_flags.cpp")
        for bound in ("kMostDuration = std::chrono::hours(24)", "kLeastPodStart = std::chrono::minutes(1)",
                      "kMostLease = std::chrono::hours(1)", "retry_period * 6 / 5 >= flags.renew_deadline"):
            self.assertIn(bound, source)

        def election(lease, renewal="10s", retry="2s"):
            return {"leaderElection": {"leaseDuration": lease, "renewDeadline": renewal, "retryPeriod": retry}}

        renewal, retry = "leaderElection.renewDeadline: must be shorter", "leaderElection.retryPeriod: must be"
        for overrides, sentence in (
                ({"resyncPeriod": "999ms"}, "resyncPeriod: must be from 1s to 24h"),
                ({"resyncPeriod": "48h"}, "resyncPeriod: must be from 1s to 24h"),
                ({"resyncPeriod": "99999999h"}, "resyncPeriod: must be from 1s to 24h"),
                ({"resyncPeriod": "100000000ms"}, "resyncPeriod"),
                ({"podStartTimeout": "59s"}, "podStartTimeout: must be from 1m to 24h"),
                ({"nodeAgent": {"period": "0s"}}, "nodeAgent.period: must be from 1s to 24h"),
                (election("61m"), "leaderElection.leaseDuration: must be from 1s to 1h"),
                (election("15500ms"), "leaderElection.leaseDuration: must be whole seconds"),
                (election("10s"), renewal), (election("1h", "60m"), renewal),
                (election("15s", retry="9s"), retry), (election("15s", "12s", "10s"), retry), (election("15s", retry="0s"), retry)):
            code, text = HELM.template(overrides=overrides)
            self.assertNotEqual(code, 0, f"{overrides} was taken")
            self.assertIn(sentence, text)
        for overrides in ({"resyncPeriod": "1000ms"}, {"resyncPeriod": "86400000ms"}, {"resyncPeriod": "24h"}, {"resyncPeriod": "010s"},
                          {"podStartTimeout": "60s"}, {"podStartTimeout": "1440m"}, {"nodeAgent": {"period": "1s"}},
                          election("1h", "59m", "49m"), election("11s"), election("15s", "12001ms", "10s"), election("1s", "2ms", "1ms")):
            code, text = HELM.template(overrides=overrides)
            self.assertEqual(code, 0, f"{overrides}: {text}")

    def test_probes_without_numbers_are_those_of_kubernetes(self):
        for none in (None, {name: None for name in yaml.safe_load(read("charts/muster/values.yaml"))["livenessProbe"]}):
            objects = HELM.objects(overrides={"livenessProbe": none, "readinessProbe": none})
            (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
            self.assertEqual(container["livenessProbe"], {"httpGet": {"path": "/healthz", "port": "health"}})
            self.assertEqual(container["readinessProbe"], {"httpGet": {"path": "/readyz", "port": "health"}})

    def test_two_operators_without_a_leader_are_refused(self):
        code, text = HELM.template(overrides={"leaderElection": {"enabled": False}})
        self.assertNotEqual(code, 0)
        self.assertIn("leaderElection.enabled: false needs replicaCount: 1", text)

    def test_an_upgrade_without_a_leader_ends_the_old_operator_before_it_starts_the_new_one(self):
        alone = only(HELM.objects(overrides={"leaderElection": {"enabled": False}, "replicaCount": 1}), "Deployment")["spec"]
        # The null takes away what the API server filled in for an earlier release, and would refuse beside the type.
        self.assertEqual(alone["strategy"], {"type": "Recreate", "rollingUpdate": None})
        self.assertNotIn("strategy", only(HELM.objects(), "Deployment")["spec"])

    def test_policies_of_the_longest_namespace_have_names_that_the_operator_and_the_api_server_take(self):
        # tests/unit/runtime/flags_test.cpp gives the operator names of this length.
        watched = "n" * 63
        objects = HELM.objects(overrides={"watchNamespace": watched})
        (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        names = [one["metadata"]["name"] for one in objects if one["kind"] == "ValidatingAdmissionPolicy"]
        self.assertEqual(names, [f"muster-{watched}-jobs", f"muster-{watched}-pods"])
        self.assertIn(f"--admission-policies={','.join(names)}", container["args"])
        for one in objects:
            self.assertLessEqual(len(one["metadata"]["name"]), 253)
            for value in one["metadata"].get("labels", {}).values():
                self.assertLessEqual(len(value), 63)

    def test_names_are_those_of_the_contract(self):
        header = read("common/contract.h")
        policies = [json.dumps(one) for one in HELM.objects() if one["kind"] == "ValidatingAdmissionPolicy"]
        label = re.search(r'kLabelJobUid = "([^"]*)"', header).group(1)
        self.assertIn(label, policies[1])
        # Who may not make a pod with an owner may not give it one later.
        self.assertIn("exists(old, old.uid == o.uid && old.apiVersion == o.apiVersion)", policies[1])
        source = read("operator/api/make_pod.cpp")
        everything = HELM.objects(os.path.join(CHART, "ci/everything-values.yaml"))
        selector = only(everything, "PodMonitor")["spec"]["selector"]
        for name, value in selector["matchLabels"].items():
            self.assertIn(f'{{"{name}", "{value}"}}', source)
        self.assertEqual(selector["matchExpressions"], [{"key": label, "operator": "Exists"}])

    def test_a_policy_judges_a_job_by_what_an_update_changes(self):
        objects = HELM.objects(overrides={"admissionPolicies": {
            "allowedPriorityClasses": ["high"], "requireCreatePods": True,
            "images": {"requireDigest": True, "allowedPrefixes": ["registry.example.com/"]}}})
        policy = only(objects, "ValidatingAdmissionPolicy", "muster-jobs")["spec"]
        self.assertEqual([one["expression"] for one in policy["matchConditions"]],
                         ["oldObject == null || object.spec != oldObject.spec"])
        declared = {one["name"]: one["expression"] for one in policy["variables"]}
        self.assertEqual(len(policy["validations"]), 11)
        for one in policy["validations"]:
            unchanged = re.search(r"variables\.(\w+) == variables\.(old\w+) \|\||variables\.runsAsBefore \|\| authorizer",
                                  one["expression"])
            self.assertTrue(unchanged, one["expression"])
            if unchanged.group(1):
                _, before = declared[unchanged.group(2)].split(" : ")
                self.assertEqual(before, declared[unchanged.group(1)].replace("object.", "oldObject."))

    def test_whoever_changes_anything_of_a_job_but_its_size_and_turn_changes_what_it_runs(self):
        policy = only(HELM.objects(overrides={"admissionPolicies": {"requireCreatePods": True}}),
                      "ValidatingAdmissionPolicy", "muster-jobs")["spec"]
        declared = {one["name"]: one["expression"] for one in policy["variables"]}
        about_authors = [one["expression"] for one in policy["validations"] if "authorizer" in one["expression"]]
        self.assertEqual(len(about_authors), 2)
        for expression in about_authors:
            self.assertIn("variables.runsAsBefore || authorizer", expression)
            self.assertNotIn("oldObject", expression)
        free = "k in ['count', 'min', 'max', 'growsTo'] || "
        self.assertEqual(declared["runsAsBefore"], " && ".join([
            "oldObject != null", "object.spec.?training == oldObject.spec.?training",
            f"variables.worker.all(k, {free}k in variables.oldWorker", "variables.worker[k] == variables.oldWorker[k])",
            f"variables.oldWorker.all(k, {free}k in variables.worker)"]))
        self.assertEqual(declared["worker"], "dyn(object.spec).?worker.orValue({})")
        self.assertEqual(declared["oldWorker"].split(" : "), ["oldObject == null ? {}", "dyn(oldObject.spec).?worker.orValue({})"])
        (version,) = yaml.safe_load(read("crds/trainingjob.yaml"))["spec"]["versions"]
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
        self.assertLess({"count", "min", "max", "growsTo"}, set(spec["worker"]["properties"]))
        # None of these says what program runs, or what it sees.
        self.assertEqual(set(spec) - {"worker", "training"},
                         {"restart", "topology", "scheduling", "queueName", "priorityClassName", "suspend",
                          "activeDeadlineSeconds", "ttlSecondsAfterFinished", "managedBy"})

    def test_pods_keep_the_labels_that_their_selectors_look_for(self):
        objects = HELM.objects(os.path.join(CHART, "ci/everything-values.yaml"))
        deployment = only(objects, "Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.assertEqual(labels["team"], "a")
        selectors = [deployment["spec"]["selector"]["matchLabels"],
                     only(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
                     only(objects, "NetworkPolicy", "muster-operator")["spec"]["podSelector"]["matchLabels"]]
        selectors += [one["spec"]["selector"] for one in objects if one["kind"] == "Service"]
        for selector in selectors:
            self.assertLessEqual(selector.items(), labels.items())
        ports = {port["name"]: port["containerPort"]
                 for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
        self.assertEqual(ports, {"endpoint": 9443, "metrics": 9090, "health": 8081})
        monitored = only(objects, "ServiceMonitor")["spec"]["selector"]["matchLabels"]
        services = [one["metadata"]["name"] for one in objects
                    if one["kind"] == "Service" and monitored.items() <= one["metadata"]["labels"].items()]
        self.assertEqual(services, ["muster-metrics"])

    def test_operators_that_are_not_ready_do_not_hold_up_the_drain_of_their_nodes(self):
        budget = only(HELM.objects(), "PodDisruptionBudget")["spec"]
        self.assertEqual((budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]), (1, "AlwaysAllow"))

    def test_what_workers_get_of_their_jobs_metadata_is_a_flag(self):
        asked = {"worker": {"copiedMetadata": ["sidecar.istio.io/inject", "cost-*"]}}
        for overrides, found in (({}, []), (asked, ["--pod-metadata=sidecar.istio.io/inject,cost-*"])):
            (container,) = only(HELM.objects(overrides=overrides), "Deployment")["spec"]["template"]["spec"]["containers"]
            self.assertEqual([one for one in container["args"] if one.startswith("--pod-metadata")], found)

    def test_what_workers_get_of_their_jobs_metadata_is_judged_like_what_they_run(self):
        def policy(overrides):
            found = only(HELM.objects(overrides=overrides), "ValidatingAdmissionPolicy", "muster-jobs")["spec"]
            (condition,) = [one["expression"] for one in found["matchConditions"] if one["name"] == "changes-the-spec"]
            (runs,) = [one["expression"] for one in found["variables"] if one["name"] == "runsAsBefore"]
            return condition, runs

        condition, runs = policy({})
        self.assertNotIn("metadata", condition + runs)
        condition, runs = policy({"worker": {"copiedMetadata": ["sidecar.istio.io/inject", "cost-*"]}})
        for kind in ("labels", "annotations"):
            self.assertIn(f" || object.metadata.?{kind} != oldObject.metadata.?{kind}", condition)
            self.assertIn(f"oldObject.metadata.?{kind}.orValue(", runs)
        self.assertEqual(runs.count("(k in ['sidecar.istio.io/inject'] || ['cost-'].exists(b, k.startsWith(b)))"), 4)

    def test_whose_workers_may_be_in_their_nodes_network_operator_and_policy_are_told_alike(self):
        for namespaces, flag, listed in (([], [], "in []"), (["hpc", "a"], ["--host-network-namespaces=hpc,a"], "in ['hpc','a']"),
                                         (["*"], ["--host-network-namespaces=*"], None)):
            objects = HELM.objects(overrides={"worker": {"hostNetworkNamespaces": namespaces}})
            (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
            self.assertEqual([one for one in container["args"] if one.startswith("--host-network")], flag)
            policy = only(objects, "ValidatingAdmissionPolicy", "muster-jobs")["spec"]
            found = [one["expression"] for one in policy["validations"] if "hostNetwork" in one["expression"]]
            self.assertEqual(len(found), 1 if listed else 0)
            if listed:
                self.assertTrue(found[0].endswith(f"object.metadata.namespace {listed}"), found[0])

    def test_metrics_are_served_where_the_values_say(self):
        for port, annotations in ((8443, None), (9090, {"prometheus.io/scrape": "true"})):
            service = {"annotations": annotations} if annotations else {}
            objects = HELM.objects(overrides={"metrics": {"port": port, "service": service}})
            (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
            self.assertIn(f"--metrics-bind-address=:{port}", container["args"])
            self.assertIn({"name": "metrics", "containerPort": port}, container["ports"])
            metrics = only(objects, "Service", "muster-metrics")
            self.assertEqual(metrics["spec"]["ports"], [{"name": "metrics", "port": port, "targetPort": "metrics"}])
            self.assertEqual(metrics["metadata"].get("annotations"), annotations)
            (asks,) = [one["args"] for one in only(objects, "Pod")["spec"]["containers"] if one["name"] == "metrics"]
            self.assertEqual(asks, ["--probe", f"https://muster-metrics.muster.svc:{port}/metrics"])

    def test_a_token_is_mounted_into_the_operators_pods_alone(self):
        for asked in (False, True):
            objects = HELM.objects(overrides={"serviceAccount": {"automount": asked}})
            self.assertIs(only(objects, "ServiceAccount")["automountServiceAccountToken"], asked)
            self.assertIs(only(objects, "Deployment")["spec"]["template"]["spec"]["automountServiceAccountToken"], True)
            self.assertIs(only(objects, "Pod")["spec"]["automountServiceAccountToken"], False)

    def test_network_policies_let_in_workers_scrapers_and_probes_alone(self):
        objects = HELM.objects(os.path.join(CHART, "ci/everything-values.yaml"))
        # Anybody may give a pod the two labels; a job's uid is the operator's alone to set.
        worker = {"matchLabels": {"app.kubernetes.io/component": "worker", "app.kubernetes.io/managed-by": "muster-operator"},
                  "matchExpressions": [{"key": "muster.dev/job-uid", "operator": "Exists"}]}
        self.assertEqual(only(objects, "PodMonitor")["spec"]["selector"], worker)
        own = {"app.kubernetes.io/name": "muster", "app.kubernetes.io/instance": "muster"}
        scrapers = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
        operator = only(objects, "NetworkPolicy", "muster-operator")["spec"]
        self.assertEqual(operator["policyTypes"], ["Ingress"])
        self.assertEqual(operator["ingress"], [
            {"ports": [{"port": "endpoint"}], "from": [
                {"namespaceSelector": {}, "podSelector": worker},
                {"podSelector": {"matchLabels": own}}]},
            {"ports": [{"port": "metrics"}], "from": [scrapers, {"podSelector": {"matchLabels": own}}]},
            {"ports": [{"port": "health"}]}])
        closed = [one for one in objects
                  if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == "muster-workers"]
        self.assertEqual([one["metadata"]["namespace"] for one in closed], ["team-a", "team-b"])
        for one in closed:
            self.assertEqual(one["spec"]["podSelector"], worker)
            self.assertEqual(one["spec"]["ingress"], [{"from": [{"podSelector": worker}]},
                                                      {"ports": [{"port": 9095}], "from": [scrapers]}])
            self.assertEqual(one["spec"]["policyTypes"], ["Ingress", "Egress"])
            self.assertEqual(one["spec"]["egress"], [
                {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]},
                {"ports": [{"port": 9443}], "to": [
                    {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "muster"}},
                     "podSelector": {"matchLabels": {**own, "app.kubernetes.io/component": "operator"}}}]},
                {"to": [{"podSelector": worker}]}])
        watched = only(HELM.objects(overrides={"watchNamespace": "team-a"}), "NetworkPolicy", "muster-operator")["spec"]
        (workers, _) = watched["ingress"][0]["from"]
        self.assertEqual(workers, {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}, "podSelector": worker})
        print("skipped: NetworkPolicies were read, not tried: a plain bridge network does not enforce them")

    def test_workers_are_kept_from_nothing_outside_unless_that_is_asked_for(self):
        objects = HELM.objects(overrides={"networkPolicy": {"workerNamespaces": ["team-a"]}})
        spec = only(objects, "NetworkPolicy", "muster-workers")["spec"]
        self.assertEqual(spec["policyTypes"], ["Ingress"])
        self.assertNotIn("egress", spec)

    def test_prometheus_shows_its_token_to_whom_the_values_let_it_verify(self):
        def endpoint(**values):
            objects = HELM.objects(overrides={"metrics": {"serviceMonitor": {"enabled": True, **values}}})
            (one,) = only(objects, "ServiceMonitor")["spec"]["endpoints"]
            return {name: one.get(name) for name in ("bearerTokenFile", "authorization", "tlsConfig")}

        token, name = "/var/run/secrets/kubernetes.io/serviceaccount/token", "muster-metrics.muster.svc"
        own = {"serverName": name, "ca": {"secret": {"name": "muster-master", "key": "ca.crt"}}}
        given = {"ca": {"configMap": {"name": "muster-ca", "key": "ca.crt"}}}
        self.assertEqual(endpoint(), {"bearerTokenFile": token, "authorization": None, "tlsConfig": own})
        self.assertEqual(endpoint(namespace="monitoring")["tlsConfig"], {"serverName": name, "insecureSkipVerify": True})
        for namespace in ("", "monitoring"):
            self.assertEqual(endpoint(namespace=namespace, tlsConfig=given)["tlsConfig"], {"serverName": name, **given})
        credentials = {"credentials": {"name": "muster-scraper", "key": "token"}}
        self.assertEqual(endpoint(authorization=credentials),
                         {"bearerTokenFile": None, "authorization": credentials, "tlsConfig": own})

    def test_workers_are_scraped_as_the_test_of_the_dashboards_scrapes_them(self):
        objects = HELM.objects(overrides={"metrics": {"podMonitor": {"enabled": True}}})
        (endpoint,) = only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
        rules = [{{"sourceLabels": "source_labels"}.get(field, field): value for field, value in one.items()}
                 for one in endpoint["metricRelabelings"]]
        self.assertEqual({"honor_labels": endpoint["honorLabels"], "metric_relabel_configs": rules}, live.OF_WORKERS)

    def test_the_price_list_is_the_operators_file_and_a_new_one_starts_it_anew(self):
        values = yaml.safe_load(read("charts/muster/ci/everything-values.yaml"))["priceList"]
        objects = HELM.objects(overrides={"priceList": values})
        data = only(objects, "ConfigMap", "muster-prices")["data"]
        self.assertEqual(yaml.safe_load(data["prices.yaml"]), values)
        pod = only(objects, "Deployment")["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        (mount,) = [one for one in container["volumeMounts"] if one["name"] == "prices"]
        self.assertIn(f"--price-list={mount['mountPath']}/{list(data)[0]}", container["args"])
        self.assertIn({"name": "prices", "configMap": {"name": "muster-prices"}}, pod["spec"]["volumes"])
        values["tiers"][0]["prices"][0]["perHour"] = "2.60"
        again = only(HELM.objects(overrides={"priceList": values}), "Deployment")["spec"]["template"]
        self.assertNotEqual(again["metadata"]["annotations"], pod["metadata"]["annotations"])
        without = [one for one in HELM.objects() if one["kind"] != "CustomResourceDefinition"]
        self.assertNotRegex(json.dumps(without), "(?i)price")

    def test_pod_groups_are_made_where_they_are_served_and_not_switched_off(self):
        old, new = "scheduling.k8s.io/v1alpha2/PodGroup", "scheduling.k8s.io/v1beta1/PodGroup"
        for served, overrides, version in [((), None, None), ((old,), None, "v1alpha2"), ((old, new), None, "v1beta1"),
                                           ((new,), {"podGroups": {"enabled": False}}, None)]:
            objects = HELM.objects(overrides=overrides, served=served)
            (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
            flags = [word for word in container["args"] if word.startswith("--pod-groups")]
            self.assertEqual(flags, [f"--pod-groups={version}"] if version else [])
            self.assertEqual([line for line in rights(objects) if ".scheduling.k8s.io" in line and "create" in line],
                             ["*: create get: podgroups.scheduling.k8s.io", "*: create get: workloads.scheduling.k8s.io"] if version else [])

    def test_node_agents_are_there_when_asked_for_and_have_two_rights(self):
        self.assertNotIn("node-agent", json.dumps(HELM.objects()))
        self.assertEqual(rights(HELM.objects(), "muster-node-agent"), [])
        objects = HELM.objects(overrides={"nodeAgent": {"enabled": True}})
        self.assertEqual(rights(objects, "muster-node-agent"), ["*: get patch: nodes"])
        # The operator may also see whether the agents' policy stands.
        policies = " muster-jobs muster-node-agent muster-pods"
        self.assertEqual(rights(objects), [line.replace(" muster-jobs muster-pods", policies) for line in rights(HELM.objects())])
        self.assertIn(f"*: get: validatingadmissionpolicies.admissionregistration.k8s.io{policies}", rights(objects))
        (operator,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        self.assertIn("--admission-policies=muster-jobs,muster-pods,muster-node-agent", operator["args"])
        agent = only(objects, "DaemonSet", "muster-node-agent")["spec"]
        pod = agent["template"]["spec"]
        self.assertEqual(pod["serviceAccountName"], "muster-node-agent")
        self.assertIs(only(objects, "ServiceAccount", "muster-node-agent")["automountServiceAccountToken"], False)
        self.assertNotIn("volumes", pod)
        (container,) = pod["containers"]
        self.assertEqual(container["image"], only(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"])
        self.assertEqual(container["args"], ["--node-agent=$(NODE_NAME)", "--node-agent-period=60s", "--log-level=info"])
        self.assertEqual(container["env"], [{"name": "NODE_NAME",
                                             "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
        labels = agent["template"]["metadata"]["labels"]
        self.assertLessEqual(agent["selector"]["matchLabels"].items(), labels.items())
        for selector in [one["spec"]["selector"] for one in objects if one["kind"] == "Service"]:
            self.assertFalse(selector.items() <= labels.items())

    def test_a_policy_leaves_node_agents_one_annotation(self):
        annotation = re.search(r'kAnnotationPcie = "([^"]*)"', read("common/contract.h")).group(1)
        objects = HELM.objects(overrides={"nodeAgent": {"enabled": True}})
        policy = only(objects, "ValidatingAdmissionPolicy", "muster-node-agent")["spec"]
        self.assertEqual(policy["failurePolicy"], "Fail")
        self.assertIn("'system:serviceaccount:muster:muster-node-agent'", policy["matchConditions"][0]["expression"])
        self.assertIn(f"k == '{annotation}'", policy["validations"][1]["expression"])
        binding = only(objects, "ValidatingAdmissionPolicyBinding", "muster-node-agent")["spec"]
        self.assertEqual(binding, {"policyName": "muster-node-agent", "validationActions": ["Deny"]})
        off = HELM.objects(overrides={"nodeAgent": {"enabled": True}, "admissionPolicies": {"enabled": False}})
        self.assertNotIn("ValidatingAdmissionPolicy", {one["kind"] for one in off})

    def test_rules_and_dashboards_are_passed_on_unchanged(self):
        objects = HELM.objects(os.path.join(CHART, "ci/everything-values.yaml"))
        groups = []
        for path in sorted(glob.glob(CHART + "/rules/*.yaml")):
            groups += yaml.safe_load(alert_cases.of_release(read(path), "muster"))["groups"]
        for rule in (rule for group in groups for rule in group["rules"]):
            notes = rule.get("annotations", {})
            if "runbook_url" in notes:   # beside the release's namespace, the one thing that is not the project's to know
                notes["runbook_url"] = notes["runbook_url"].replace("docs/runbooks/", "https://example.com/muster/runbooks/")
        self.assertEqual(only(objects, "PrometheusRule")["spec"]["groups"] or [], groups)
        dashboards = sorted(glob.glob(CHART + "/dashboards/*.json"))
        maps = [one for one in objects if one["kind"] == "ConfigMap" and "dashboard" in one["metadata"]["name"]]
        self.assertEqual(len(maps), len(dashboards))
        for one, path in zip(maps, dashboards):
            self.assertEqual(one["metadata"]["labels"]["grafana_dashboard"], "1")
            (text,) = one["data"].values()
            self.assertEqual(json.loads(text), json.loads(read(path)))

    def test_what_users_are_told_to_apply_brings_its_claims(self):
        told = 0
        for page in ("README.md", "charts/muster/README.md", "charts/muster/templates/NOTES.txt"):
            for command in re.findall(r"kubectl apply((?: -f \S+\.yaml)+)", read(page)):
                files = re.findall(r"-f (\S+)", command)
                objects = [one for path in files for one in yaml.safe_load_all(read(path))]
                claims = {one["metadata"]["name"] for one in objects if one["kind"] == "PersistentVolumeClaim"}
                for job in (one for one in objects if one["kind"] == "TrainingJob"):
                    wanted = job["spec"].get("training", {}).get("checkpoint", {}).get("volumeClaimName")
                    self.assertIn(wanted, claims | {None}, f"{page}: {command}")
                    told += 1
        self.assertEqual(told, 3)

    def test_users_are_told_to_install_the_images_that_they_were_told_to_push(self):
        version = re.search(r"^project\(muster VERSION ([0-9.]+)", read("CMakeLists.txt"), re.M).group(1)
        for page in ("README.md", "charts/muster/README.md"):
            (pushed,) = re.findall(r"^ *docker/build --push (\S+)$", read(page), re.M)
            (command,) = re.findall(r"^ *helm install (muster charts/muster (?:.*\\\n)*.*)$", read(page), re.M)
            words = [word for word in command.replace("\\\n", " ").split() if word != "--create-namespace"]
            done = HELM.run("template", "muster", CHART, *words[2:], *KUBE_VERSION)
            self.assertEqual(done.returncode, 0, done.stdout)
            deployment = only([one for one in yaml.safe_load_all(done.stdout) if one], "Deployment")
            (container,) = deployment["spec"]["template"]["spec"]["containers"]
            self.assertEqual(container["image"], f"{pushed}/muster-operator:{version}", page)
            self.assertIn(f"--worker-image={pushed}/muster-worker:{version}", container["args"], page)

    def test_images_that_nobody_named_are_those_that_docker_build_makes_and_no_stranger_can_publish(self):
        version = re.search(r"^project\(muster VERSION ([0-9.]+)", read("CMakeLists.txt"), re.M).group(1)
        (made,) = re.findall(r"^ *name=(\S+)$", read("docker/build"), re.M)
        operator, worker = (made.replace("$image", name).replace("$version", version)
                            for name in ("muster-operator", "muster-worker"))
        objects = HELM.objects(overrides={"nodeAgent": {"enabled": True}})
        (container,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
        self.assertIn(f"--worker-image={worker}", container["args"])
        self.assertIn(f'worker_image = "{worker}"', read("operator/main_flags.h"))
        (agent,) = only(objects, "DaemonSet")["spec"]["template"]["spec"]["containers"]
        asked = [one["image"] for one in only(objects, "Pod")["spec"]["containers"]]
        self.assertEqual([container["image"], agent["image"], *asked], [operator, operator, worker, worker])
        for image in (operator, worker):
            self.assertTrue(image.startswith("localhost/"), image)

    def test_the_pages_tell_of_every_right_of_the_operator(self):
        said = {"persistentvolumeclaims": "claims", "persistentvolumes": "volumes", "hypernodes": "topologies",
                "topologyconfigs": "topologies", "trainingjobs": "jobs", "trainingqueues": "queues",
                "validatingadmissionpolicies": "policies", "validatingadmissionpolicybindings": "policies",
                "leases": "lease", "subjectaccessreviews": "subjectaccessreview", "tokenreviews": "tokenreview"}
        golden = read("tests/chart/rbac.golden").split("# watch")[0]
        resources = {re.match(r"\w+", line.split(": ")[2]).group() for line in golden.splitlines() if ": " in line}
        self.assertGreater(len(resources), 15)
        for page, begin, end in (("charts/muster/README.md", "**Rights.**", "\n\n"), ("docs/security.md", "| operator |", "\n")):
            text = read(page)
            told = re.sub(r"\s", "", text[text.index(begin):].split(end)[0]).lower()
            for resource in sorted(resources | {"podgroups"}):
                self.assertIn(said.get(resource, resource), told, page)

    def test_commands_that_users_are_told_name_the_releases_namespace_which_is_there_by_then(self):
        told = 0
        for path in (*glob.glob(os.path.join(ROOT, "docs/**/*.md"), recursive=True), "README.md", "charts/muster/README.md"):
            for command in re.findall(r"\bhelm (?:install|upgrade|test|uninstall) muster\b(?:\\\n|[^`\n])*", read(path)):
                self.assertRegex(command, r" (-n|--namespace) muster\b", path)
                # With the values of the chart before, one that has gained a value cannot be rendered: install_test.py.
                self.assertNotIn(" --reuse-values", command, path)
                told += 1
        self.assertGreaterEqual(told, 5)
        page = read("docs/gitops.md")   # before anything is installed
        self.assertLess(page.index("kubectl create namespace muster\n"), page.index("kubectl -n muster create"))

    def test_the_readme_says_how_to_delete_every_definition(self):
        names = {yaml.safe_load(read(os.path.relpath(path, ROOT)))["metadata"]["name"]
                 for path in glob.glob(os.path.join(ROOT, "crds/*.yaml"))}
        (command,) = re.findall(r"`kubectl delete crd ([^`]*)`", read("charts/muster/README.md"))
        self.assertEqual(set(command.split()), names)

    def test_the_readme_says_why_it_has_not_all_values_of_other_charts(self):
        (said,) = re.findall(r"\*\*Left out\*\*.*?(?=\n\n)", read("charts/muster/README.md"), re.S)
        said = " ".join(said.split())
        for name, reason in (("logFormat", "logs are JSON, an object a line"),
                             ("clusterDomain", "every address ends in `.svc`, which a pod's own search list completes")):
            self.assertIn(f"`{name}` ({reason}", said)
            self.assertNotIn(name, read("charts/muster/values.yaml"))
        for one in HELM.objects(overrides=ALL_ON):
            self.assertNotIn("cluster.local", str(one))

    def test_the_readme_names_every_value(self):
        subprocess.run([sys.executable, os.path.join(ROOT, "scripts/make_chart_readme.py"), "--check"], timeout=60,
                       check=True)


if __name__ == "__main__":
    unittest.main()
