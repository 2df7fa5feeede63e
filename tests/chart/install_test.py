#!/usr/bin/env python3
"""The chart on a real API server: what it refuses and to whom, the operator's rights, upgrades, and what stays.

MUSTER_OPERATOR names the program of the test that runs it; default build/release/bin/muster-operator.
"""

import base64
import glob
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import textwrap
import unittest
import urllib.error
import urllib.request

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/cluster"))
from control_plane import ControlPlane, fetch, kube_tools  # noqa: E402
from processes import free_ports, wait_for  # noqa: E402

CHART = os.path.join(ROOT, "charts/muster")
VALUES = sorted(glob.glob(os.path.join(CHART, "ci/*-values.yaml")))
DEFINITIONS = os.path.join(ROOT, "tests/chart/monitoring_definitions.yaml")
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
OPERATOR_PROGRAM = os.environ.get("MUSTER_OPERATOR", os.path.join(ROOT, "build/release/bin/muster-operator"))
OPERATOR = "system:serviceaccount:muster:muster-operator"
RELEASE_BYTES_MAX = 512 * 1024
POLICY_SECONDS = 60   # A policy counts about a second after it was made.

AUDIT_POLICY = f"""apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users: ["{OPERATOR}"]
- level: None
"""
# Rights that the life of one job with one worker has no use for, and what they are for.
OTHER_USES = {
    "a worker that joins, and a scrape, ask for their rights": [
        "create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io"],
    "a restart, a suspension": ["delete pods"],
    "elastic jobs": [f"{verb} poddisruptionbudgets.policy" for verb in ("get", "create", "patch", "delete")],
    "what an operator before this one left half done": ["get pods", "get services"],
    "news that comes again": ["get events", "patch events"],
    "queues": ["patch trainingqueues/status.muster.dev"],
    "asked for by OwnerReferencesPermissionEnforcement": ["update trainingjobs/finalizers.muster.dev"],
}

PLANE = None


def setUpModule():
    global PLANE
    directory = tempfile.mkdtemp(prefix="muster-chart-", dir=MEMORY)
    unittest.addModuleCleanup(shutil.rmtree, directory, ignore_errors=True)
    with open(f"{directory}/audit.yaml", "w", encoding="utf-8") as file:
        file.write(AUDIT_POLICY)
    PLANE = ControlPlane(f"{directory}/plane", controller_manager=True, extra={"kube-apiserver": [
        f"--audit-policy-file={directory}/audit.yaml", f"--audit-log-path={directory}/audit.log"]})
    PLANE.audit_log = f"{directory}/audit.log"
    unittest.addModuleCleanup(PLANE.stop)
    PLANE.start()
    PLANE.kubectl("create", "namespace", "muster")
    PLANE.kubectl("label", "namespace", "muster", "pod-security.kubernetes.io/enforce=restricted")
    for namespace in ("team", "other"):
        PLANE.kubectl("create", "namespace", namespace)
    PLANE.user("alice", ["team"])
    # Through the cluster's own role, into which the chart's is put.
    PLANE.kubectl("create", "rolebinding", "edit", "-n", "team", "--clusterrole=edit", "--user=alice")
    PLANE.kubectl("create", "rolebinding", "edit", "-n", "other", "--clusterrole=edit", "--user=alice")


def helm(*arguments, program="helm", check=True):
    done = subprocess.run([os.path.join(kube_tools([program]), program), "--namespace", "muster", *arguments],
                          env=PLANE.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"helm {' '.join(arguments)}: {done.stdout}")
    return done.stdout


def call(method, path, body=None, user="admin", content_type="application/json", node=None):
    """(status code, message or object) of one request as a person with a client certificate or a service account, whose
    token was made on a node."""
    is_account = user.startswith("system:serviceaccount:")
    name = "admin" if user == "admin" or is_account else f"user-{user}"
    context = ssl.create_default_context(cafile=PLANE.ca_file)
    context.load_cert_chain(PLANE.authority.path(f"{name}.crt"), PLANE.authority.path(f"{name}.key"))
    request = urllib.request.Request(PLANE.url + path, method=method, headers={"Content-Type": content_type},
                                     data=None if body is None else json.dumps(body).encode())
    if is_account:
        request.add_header("Impersonate-User", user)
    if node:
        request.add_header("Impersonate-Extra-authentication.kubernetes.io%2fnode-name", node)
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=context))
        with opener.open(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)["message"]


JOBS = "/apis/muster.dev/v1alpha1/namespaces/team/trainingjobs"
PODS = "/api/v1/namespaces/team/pods"


def job(name="a", spec=None, **worker):
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"worker": {"command": ["true"], **worker}, **(spec or {})}}


def on_nodes(*terms):
    """The affinity of a job for nodes that one of these lists of expressions selects."""
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": list(term)} for term in terms]}}}


def pod(name="p", labels=None, owners=None):
    return {"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": labels or {}, "ownerReferences": owners or []},
            "spec": {"containers": [{"name": "worker", "image": "x"}]}}


DRY = "?dryRun=All&fieldValidation=Strict"
TOLERATE_ALL = [{"operator": "Exists"}]


def wait_for_policies():
    wait_for("the policy for jobs counts", lambda: call("POST", JOBS + DRY, job(tolerations=TOLERATE_ALL),
                                                        "alice")[0] == 422, POLICY_SECONDS)
    wait_for("the policy for pods counts", lambda: call("POST", PODS + DRY, pod(labels={"muster.dev/job-uid": "u"}),
                                                        "alice")[0] == 422, POLICY_SECONDS)


def install(*arguments, program="helm", chart=CHART):
    """What helm says after it."""
    said = helm("install", "muster", chart, *arguments, program=program)
    wait_for("the kind is served", lambda: call("GET", JOBS)[0] == 200, POLICY_SECONDS)
    wait_for("alice may edit", lambda: call("GET", JOBS, user="alice")[0] == 200, POLICY_SECONDS)
    return said


def uninstall(program="helm"):
    helm("uninstall", "muster", program=program)
    PLANE.kubectl("delete", "secret", "-n", "muster", "muster-master")


class Installed(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        install()
        wait_for_policies()

    @classmethod
    def tearDownClass(cls):
        uninstall()

    def refused(self, sentence, body, path=JOBS, method="POST"):
        code, message = call(method, path + DRY, body, "alice")
        self.assertEqual(code, 422, message)
        self.assertIn(sentence, message)
        self.assertIn("denied request", message)

    def taken(self, body, path=JOBS):
        code, message = call("POST", path + DRY, body, "alice")
        self.assertEqual(code, 201, message)

    def test_honest_jobs_are_taken(self):
        self.taken(job())
        self.taken(job(spec={"priorityClassName": "high"}, serviceAccountName="default",
                       nodeSelector={"disk": "fast"}, tolerations=[{"key": "gpu", "operator": "Exists"}]))
        for example in ("digits", "hello"):
            with open(f"{ROOT}/examples/{example}.yaml", encoding="utf-8") as file:
                self.taken(yaml.safe_load(file))
        # Nobody takes it for a worker by these.
        self.taken(pod(labels={"app": "mine", "muster.dev/job-name": "digits", "muster.dev/slot": "0", "muster.dev/attempt": "0"}), PODS)

    def test_s3_a_service_account_needs_the_right_to_use_it(self):
        sentence = 'spec.worker.serviceAccountName: you may not use the service account "strong"'
        self.refused(sentence, job(serviceAccountName="strong"))
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "user"}, "rules": [
            {"apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["strong"], "verbs": ["use"]}]}
        PLANE.kubectl("create", "-n", "team", "-f", "-", stdin=json.dumps(role))
        self.refused(sentence, job(serviceAccountName="strong"))
        PLANE.kubectl("create", "rolebinding", "user", "-n", "team", "--role=user", "--user=alice")
        wait_for("the right counts", lambda: call("POST", JOBS + DRY, job(serviceAccountName="strong"),
                                                  "alice")[0] == 201, 30)
        self.refused('"stronger"', job(serviceAccountName="stronger"))
        elsewhere = "/apis/muster.dev/v1alpha1/namespaces/other/trainingjobs"
        self.refused('"strong"', job(serviceAccountName="strong"), elsewhere)

    def test_s3_only_what_an_update_changes_is_judged(self):
        self.assertEqual(call("POST", JOBS, job("made", serviceAccountName="strong"))[0], 201)   # by an administrator
        patch = {"spec": {"suspend": True}}
        code, message = call("PATCH", JOBS + "/made", patch, "alice", "application/merge-patch+json")
        self.assertEqual(code, 200, message)
        patch = {"spec": {"worker": {"serviceAccountName": "stronger"}}}
        code, message = call("PATCH", JOBS + "/made", patch, "alice", "application/merge-patch+json")
        self.assertEqual(code, 422, message)
        self.assertEqual(call("DELETE", JOBS + "/made", user="alice")[0], 200)

    def test_s3_who_may_not_use_an_account_changes_nothing_of_what_runs_with_it(self):
        # By an administrator; alice may use neither account.
        made = job("guarded", serviceAccountName="guarded", env=[{"name": "A", "value": "1"}], min=1, max=4,
                   resources={"cpu": "1", "memory": "1Gi"})
        self.assertEqual(call("POST", JOBS, made)[0], 201)
        self.addCleanup(call, "DELETE", JOBS + "/guarded")

        def patch(body, user="alice"):
            return call("PATCH", JOBS + "/guarded" + DRY, body, user, "application/merge-patch+json")

        for worker in ({"command": ["evil"]}, {"args": ["evil"]}, {"image": "evil"}, {"env": [{"name": "A", "value": "2"}]},
                       {"env": None}, {"initContainers": [{"name": "i", "command": ["evil"]}]},
                       {"envFrom": [{"secretRef": {"name": "s"}}]}, {"count": 2, "command": ["evil"]}):
            code, message = patch({"spec": {"worker": worker}})
            self.assertEqual(code, 422, (worker, message))
            self.assertIn('you may not use the service account "guarded", nor change what a job with it runs', message)
            code, message = patch({"spec": {"worker": worker}}, "admin")
            self.assertEqual(code, 200, (worker, message))
        for spec in ({"suspend": True}, {"worker": {"count": 2, "max": 3}}, {"worker": {"min": None}}, {"priorityClassName": "high"},
                     {"activeDeadlineSeconds": 60}, {"ttlSecondsAfterFinished": 60},
                     {"worker": {"serviceAccountName": None, "command": ["mine"]}}):
            code, message = patch({"spec": spec})
            self.assertEqual(code, 200, (spec, message))

    def test_s2_the_nodes_network_was_opened_for_nobody(self):
        self.refused("spec.worker.hostNetwork", job(hostNetwork=True))
        self.taken(job(hostNetwork=False))

    def test_s10_what_is_the_control_planes_is_refused(self):
        self.refused("spec.priorityClassName: ", job(spec={"priorityClassName": "system-node-critical"}))
        self.refused("must name a key", job(tolerations=TOLERATE_ALL))
        self.refused("must name a key", job(tolerations=[{"key": "a", "operator": "Exists"},
                                                         {"operator": "Exists", "effect": "NoSchedule"}]))
        taint = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
        self.refused("control plane", job(tolerations=[taint]))
        self.refused("spec.worker.nodeSelector: ", job(nodeSelector={"node-role.kubernetes.io/control-plane": ""}))
        here = {"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}
        elsewhere = {**here, "operator": "DoesNotExist"}
        self.refused("spec.worker.affinity: ", job(affinity=on_nodes([elsewhere], [elsewhere, here])))
        code, message = call("POST", JOBS + DRY, job(affinity=on_nodes([elsewhere])), "alice")
        self.assertEqual(code, 201, message)
        code, message = call("POST", JOBS + DRY, job(nodeName="node-1"), "alice")
        self.assertEqual(code, 400, message)
        self.assertIn("nodeName", message)

    def test_s11_only_the_operator_makes_pods_of_jobs(self):
        # An owner that is there: else the pod is collected as garbage at any moment.
        code, owner = call("POST", JOBS, job("owner"), "alice")
        self.assertEqual(code, 201, owner)
        self.addCleanup(call, "DELETE", JOBS + "/owner")
        uid = owner["metadata"]["uid"]
        labels = {"muster.dev/job-uid": uid}
        owners = [{"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "name": "owner", "uid": uid,
                   "controller": True}]
        self.refused("muster.dev/job-uid", pod(labels=labels), PODS)
        self.refused("metadata.ownerReferences: ", pod(owners=owners), PODS)
        self.assertEqual(call("POST", PODS + DRY, pod(labels=labels))[0], 422)   # administrators, too
        code, message = call("POST", PODS, pod("member", labels, owners), OPERATOR)
        self.assertEqual(code, 201, message)
        merge = "application/merge-patch+json"
        self.assertEqual(call("POST", PODS, pod("plain"), "alice")[0], 201)
        code, message = call("PATCH", PODS + "/plain", {"metadata": {"labels": labels}}, "alice", merge)
        self.assertEqual(code, 422, message)
        code, message = call("PATCH", PODS + "/plain", {"metadata": {"ownerReferences": owners}}, "alice", merge)
        self.assertEqual(code, 422, message)
        self.assertIn("metadata.ownerReferences: ", message)
        unlabelled = {"metadata": {"labels": {"muster.dev/job-uid": None}}}
        code, message = call("PATCH", PODS + "/member", unlabelled, "alice", merge)
        self.assertEqual(code, 422, message)
        code, message = call("PATCH", PODS + "/member", {"metadata": {"annotations": {"note": "kept"}}}, "alice", merge)
        self.assertEqual(code, 200, message)
        for name in ("plain", "member"):
            PLANE.kubectl("delete", "pod", "-n", "team", name, "--force", "--grace-period=0", "--ignore-not-found")

    def test_s13_tenants_do_not_write_status(self):
        self.assertEqual(call("POST", JOBS, job("honest"), "alice")[0], 201)
        forged = {"status": {"phase": "Complete"}}
        code, message = call("PATCH", JOBS + "/honest/status", forged, "alice", "application/merge-patch+json")
        self.assertEqual(code, 403, message)
        self.assertIn('cannot patch resource "trainingjobs/status"', message)
        scale = {"spec": {"replicas": 1}}
        code, message = call("PATCH", JOBS + "/honest/scale", scale, "alice", "application/merge-patch+json")
        self.assertEqual(code, 200, message)
        code, message = call("PATCH", JOBS + "/honest/status", forged, OPERATOR, "application/merge-patch+json")
        self.assertEqual(code, 200, message)
        self.assertEqual(call("DELETE", JOBS + "/honest", user="alice")[0], 200)

    def test_s5_the_operators_rights_are_the_golden_files(self):
        def rights(namespace, user):
            review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview",
                      "spec": {"namespace": namespace}}
            code, answer = call("POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", review, user)
            self.assertEqual(code, 201, answer)
            found = answer["status"]
            self.assertFalse(found["incomplete"])
            lines = set()
            for rule in found["resourceRules"]:
                for group in rule.get("apiGroups", []):
                    for resource in rule.get("resources", []):
                        names = "".join(f" {name}" for name in sorted(rule.get("resourceNames", [])))
                        lines.add(f"{' '.join(sorted(rule['verbs']))}: {resource}{'.' + group if group else ''}{names}")
            return lines | {f"{rule['verbs']} {path}" for rule in found["nonResourceRules"]
                            for path in rule.get("nonResourceURLs", [])}

        with open(os.path.join(ROOT, "tests/chart/rbac.golden"), encoding="utf-8") as file:
            golden = file.read().split("# watch")[0].splitlines()[1:]
        for namespace in ("muster", "team", "kube-system"):
            everyone = rights(namespace, f"system:serviceaccount:{namespace}:nobody")
            expected = {line.split(": ", 1)[1] for line in golden if line.split(": ")[0] in ("*", namespace)}
            self.assertEqual(rights(namespace, OPERATOR) - everyone, expected)
        for words in (["get", "secrets"], ["create", "pods", "--subresource=exec"],
                      ["get", "pods", "--subresource=log"], ["update", "trainingjobs"],
                      ["create", "trainingjobs"], ["delete", "nodes"]):
            answer = PLANE.kubectl(f"--as={OPERATOR}", "auth", "can-i", *words, "-n", "muster", check=False)
            self.assertIn("no", answer.split(), words)

    def test_the_operators_pods_are_taken_where_restricted_is_enforced(self):
        wait_for("both pods are made", lambda: len(PLANE.kubectl_json("get", "pods", "-n", "muster")["items"]) == 2, 60)
        events = PLANE.kubectl("get", "events", "-n", "muster", "-o", "jsonpath={.items[*].reason}")
        self.assertNotIn("FailedCreate", events)

    def test_the_policies_expressions_have_the_right_types(self):
        def checked(name):
            policy = PLANE.kubectl_json("get", "validatingadmissionpolicy", name)
            return policy.get("status", {}).get("observedGeneration") == policy["metadata"]["generation"]

        for name in ("muster-jobs", "muster-pods"):
            wait_for(f"{name} is checked", lambda name=name: checked(name), 60)
            status = PLANE.kubectl_json("get", "validatingadmissionpolicy", name)["status"]
            self.assertEqual(status["typeChecking"].get("expressionWarnings", []), [])

    def test_what_helm_test_makes_is_taken(self):
        rendered = helm("template", "muster", CHART, "--show-only", "templates/tests/test.yaml",
                        "--kube-version", "v1.36.0")
        paths = {"TrainingJob": "/apis/muster.dev/v1alpha1/namespaces/muster/trainingjobs",
                 "Pod": "/api/v1/namespaces/muster/pods"}
        objects = [one for one in yaml.safe_load_all(rendered) if one]
        self.assertEqual(sorted(one["kind"] for one in objects), ["Pod", "TrainingJob"])
        for one in objects:
            code, message = call("POST", paths[one["kind"]] + DRY, one)
            self.assertEqual(code, 201, message)

    def test_upgrades_keep_the_master_secret_and_everything_that_did_not_change(self):
        before = PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")
        deployment = PLANE.kubectl_json("get", "deployment", "-n", "muster", "muster-operator")
        for _ in range(2):
            helm("upgrade", "muster", CHART)
        after = PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")
        self.assertEqual(after["data"], before["data"])
        again = PLANE.kubectl_json("get", "deployment", "-n", "muster", "muster-operator")
        self.assertEqual(again["metadata"]["generation"], deployment["metadata"]["generation"])

    def test_the_release_fits_into_its_secret(self):
        release = PLANE.kubectl_json("get", "secret", "-n", "muster", "-l", "owner=helm")["items"][0]
        size = len(release["data"]["release"])
        print(f"release: {size} of {RELEASE_BYTES_MAX} bytes")
        self.assertLess(size, RELEASE_BYTES_MAX)


class OperatorRuns(unittest.TestCase):
    """The operator as a process of this machine, with the chart's flags, rights and master Secret."""

    def setUp(self):
        install()
        self.addCleanup(PLANE.kubectl, "delete", "crd", "trainingjobs.muster.dev", "--ignore-not-found")
        self.addCleanup(uninstall)
        self.directory = tempfile.mkdtemp(prefix="muster-operator-")
        self.addCleanup(shutil.rmtree, self.directory)
        wait_for_policies()

    def start(self, *more):
        """The process, with more flags, once it is ready, and the port of its endpoint."""
        for name, value in PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")["data"].items():
            with open(os.path.join(self.directory, name), "wb") as file:
                file.write(base64.b64decode(value))
        deployment = PLANE.kubectl_json("get", "deployment", "-n", "muster", "muster-operator")
        flags = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        health, metrics, endpoint = free_ports(3)
        replaced = {"--health-probe-bind-address": f"127.0.0.1:{health}", "--master-dir": self.directory,
                    "--metrics-bind-address": f"127.0.0.1:{metrics}",
                    "--endpoint-bind-address": f"127.0.0.1:{endpoint}"}
        names = [flag.split("=")[0] for flag in flags]
        self.assertLessEqual(set(replaced), set(names))
        flags = [f"{name}={replaced[name]}" if name in replaced else flag for name, flag in zip(names, flags)]
        kubeconfig = PLANE.service_account("muster", "muster-operator")
        self.log = os.path.join(self.directory, "log")
        env = {"POD_NAME": "muster-operator-0", "POD_IP": "127.0.0.1", "POD_NAMESPACE": "muster"}
        with open(self.log, "wb") as log:
            process = subprocess.Popen([OPERATOR_PROGRAM, f"--kubeconfig={kubeconfig}", *flags, *more], env=env,
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait(30)))

        def is_ready():
            self.assertIsNone(process.poll(), self.said())
            return b"" != fetch(f"http://127.0.0.1:{health}/readyz")

        wait_for("the operator is ready", is_ready, 60)
        return process, endpoint

    def said(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def test_a_job_lives_and_ends_with_the_charts_rights_alone(self):
        process, endpoint = self.start()
        tls = ssl.create_default_context(cafile=os.path.join(self.directory, "ca.crt"))
        with socket.create_connection(("127.0.0.1", endpoint), timeout=10) as plain:
            with tls.wrap_socket(plain, server_hostname="muster-endpoint.muster.svc") as connection:
                self.assertGreaterEqual(connection.version(), "TLSv1.2")
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}}
        self.assertEqual(call("POST", "/api/v1/nodes", node)[0], 201)
        self.addCleanup(call, "DELETE", "/api/v1/nodes/node-1")
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "10"}
        status = {"status": {"capacity": amounts, "allocatable": amounts,
                             "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}}
        merge = "application/merge-patch+json"
        self.assertEqual(call("PATCH", "/api/v1/nodes/node-1/status", status, content_type=merge)[0], 200)
        # What the node controller put there while the node was not ready, it may take away late.
        call("PATCH", "/api/v1/nodes/node-1", {"spec": {"taints": None}}, content_type=merge)
        body = job("lives", {"ttlSecondsAfterFinished": 1}, image="example.com/none:1", resources={"cpu": "100m"})
        self.assertEqual(call("POST", JOBS, body, "alice")[0], 201)

        def pods():
            return call("GET", PODS + "?labelSelector=muster.dev/job-name=lives")[1]["items"]

        wait_for(f"the pod is made\n{self.said()[-3000:]}", pods, 60)
        name = pods()[0]["metadata"]["name"]
        ended = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": "2026-01-01T00:00:00Z"}}
        status = {"status": {"phase": "Succeeded", "containerStatuses": [
            {"name": "worker", "image": "x", "imageID": "x", "ready": False, "restartCount": 0, "state": ended}]}}
        code, message = call("PATCH", f"{PODS}/{name}/status", status, content_type=merge)
        self.assertEqual(code, 200, message)
        wait_for("the job is complete and deleted", lambda: call("GET", JOBS + "/lives")[0] == 404, 60)
        events = PLANE.kubectl("get", "events", "-n", "team", "-o", "jsonpath={.items[*].reason}").split()
        self.assertIn("Completed", events)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.said()[-3000:])
        self.assertNotRegex(self.said(), "(?i)forbidden|cannot (get|list|watch|create|patch|update|delete) resource")
        used, granted = self.used(), self.granted()
        self.assertEqual(used - granted, set())
        # Lists come as the beginning of a watch, and in pages where a server cannot or a stream breaks off.
        lists = {right.replace("watch", "list", 1) for right in granted if right.startswith("watch ")}
        self.assertEqual(lists - granted, set())
        self.assertEqual(granted - used - lists, {right for rights in OTHER_USES.values() for right in rights})

    @staticmethod
    def used():
        """"verb resource" of everything that the operator has asked the API server for."""
        found = set()
        with open(PLANE.audit_log, encoding="utf-8") as file:
            for record in map(json.loads, file):
                about = record.get("objectRef")
                if about is None or record["user"]["username"] != OPERATOR:
                    continue
                resource = "/".join(filter(None, (about["resource"], about.get("subresource"))))
                found.add(f"{record['verb']} {'.'.join(filter(None, (resource, about.get('apiGroup'))))}")
        return found

    @staticmethod
    def granted():
        """The same of its rights. Who may list may read each: `get` is no right of its own there."""
        found = set()
        with open(os.path.join(ROOT, "tests/chart/rbac.golden"), encoding="utf-8") as file:
            for line in file.read().split("# watch")[0].splitlines()[1:]:
                _, verbs, resource = line.split(": ")
                verbs = verbs.split()
                if {"get", "list"} <= set(verbs) and resource != "pods":
                    verbs.remove("get")
                found |= {f"{verb} {resource.split()[0]}" for verb in verbs}
        return found

    def test_s31_a_policy_that_is_gone_is_said(self):
        process, _ = self.start()
        wait_for("both policies are seen", lambda: self.said().count("a guardrail stands") == 2, 30)
        process.terminate()
        process.wait(30)
        PLANE.kubectl("delete", "validatingadmissionpolicybinding", "muster-pods")
        process, _ = self.start()
        wait_for("one is missed", lambda: "a guardrail is missing" in self.said(), 30)
        (line,) = [json.loads(line) for line in self.said().splitlines() if "a guardrail is missing" in line]
        self.assertEqual((line["level"], line["policy"]), ("error", "muster-pods"))
        self.assertIn("validatingadmissionpolicybindings/muster-pods is not there", line["error"])
        self.assertEqual(self.said().count("a guardrail stands"), 1)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.said()[-3000:])

    def test_s31_a_policy_that_was_narrowed_is_as_it_was_after_what_the_runbook_says(self):
        excluded = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}]
        PLANE.kubectl("patch", "validatingadmissionpolicybinding", "muster-pods", "--type=merge",
                      "-p", json.dumps({"spec": {"matchResources": {"excludeResourceRules": excluded}}}))
        process, _ = self.start()
        wait_for("it is missed", lambda: "a guardrail is missing" in self.said(), 30)
        (line,) = [json.loads(line) for line in self.said().splitlines() if "a guardrail is missing" in line]
        self.assertIn("validatingadmissionpolicybindings/muster-pods leaves out", line["error"])
        self.assertIn("delete", line["help"])
        process.terminate()
        process.wait(30)
        with open(f"{ROOT}/docs/runbooks/MusterGuardrailMissing.md", encoding="utf-8") as file:
            (delete, upgrade) = re.findall(r"^(?:kubectl|helm) (.*)$", file.read().replace("\\\n", ""), re.M)
        PLANE.kubectl(*delete.split())
        helm(*upgrade.replace("charts/muster", CHART).split())
        process, _ = self.start()
        wait_for("both stand", lambda: self.said().count("a guardrail stands") == 2, 30)
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.said()[-3000:])

    def test_pod_groups_that_the_cluster_has_ceased_to_serve_are_not_made(self):
        process, _ = self.start("--pod-groups=v1alpha2")   # as a chart that was installed before the cluster's upgrade
        self.assertIn("no PodGroups are created", self.said())
        process.terminate()
        self.assertEqual(process.wait(30), 0, self.said()[-3000:])


class NodeAgents(unittest.TestCase):
    """A node agent as a process of this machine, with the chart's rights and policy."""

    ACCOUNT = "system:serviceaccount:muster:muster-node-agent"
    MERGE = "application/merge-patch+json"

    def setUp(self):
        install("--set", "nodeAgent.enabled=true")
        self.addCleanup(PLANE.kubectl, "delete", "crd", "trainingjobs.muster.dev", "--ignore-not-found")
        self.addCleanup(uninstall)
        for name in ("n1", "n2"):
            node = {"apiVersion": "v1", "kind": "Node",
                    "metadata": {"name": name, "annotations": {"theirs": "1"}, "labels": {"rack": "1"}}}
            self.assertEqual(call("POST", "/api/v1/nodes", node)[0], 201)
            self.addCleanup(call, "DELETE", f"/api/v1/nodes/{name}")
        wait_for("the policy for node agents counts",
                 lambda: self.patch({"metadata": {"labels": {"rack": "2"}}})[0] == 422, POLICY_SECONDS)

    def patch(self, body, name="n1", node="n1"):
        return call("PATCH", f"/api/v1/nodes/{name}?dryRun=All", body, self.ACCOUNT, self.MERGE, node)

    def test_s32_an_agent_writes_one_annotation_of_its_own_node_and_nothing_else(self):
        annotation = {"metadata": {"annotations": {"muster.dev/pcie": "x"}}}
        for node in ("n1", None):   # None: a cluster whose tokens do not name it
            code, message = self.patch(annotation, node=node)
            self.assertEqual(code, 200, message)
        code, message = self.patch(annotation, node="n2")
        self.assertEqual(code, 422, message)
        self.assertIn("its own node only", message)
        for body in ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"labels": None}},
                     {"metadata": {"annotations": {"a": "b"}}}, {"metadata": {"annotations": {"theirs": "2"}}},
                     {"metadata": {"annotations": {"theirs": None}}}, {"metadata": {"finalizers": ["a.b/c"]}},
                     {"spec": {"unschedulable": True}}, {"spec": {"podCIDR": "10.0.0.0/24"}},
                     {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}):
            code, message = self.patch(body)
            self.assertEqual(code, 422, body)
            self.assertIn("the annotation muster.dev/pcie only", message)
        for method, path in (("DELETE", "/api/v1/nodes/n1"), ("GET", "/api/v1/nodes"), ("GET", "/api/v1/pods"),
                             ("PATCH", "/api/v1/nodes/n1/status")):
            body = {"status": {}} if method == "PATCH" else None
            self.assertEqual(call(method, path, body, self.ACCOUNT, self.MERGE)[0], 403, path)

    def test_the_policys_expressions_have_the_right_types(self):
        def status():
            policy = PLANE.kubectl_json("get", "validatingadmissionpolicy", "muster-node-agent")
            return policy.get("status", {}), policy["metadata"]["generation"]

        wait_for("it is checked", lambda: status()[0].get("observedGeneration") == status()[1], 60)
        self.assertEqual(status()[0]["typeChecking"].get("expressionWarnings", []), [])

    def test_the_agents_pods_are_taken_where_restricted_is_enforced(self):
        template = PLANE.kubectl_json("get", "daemonset", "-n", "muster", "muster-node-agent")["spec"]["template"]
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": template["spec"]}
        code, message = call("POST", "/api/v1/namespaces/muster/pods?dryRun=All", body)
        self.assertEqual(code, 201, message)

    def test_an_agent_describes_its_node_and_ends_when_told(self):
        with tempfile.TemporaryDirectory(prefix="muster-sysfs-") as root:
            device = "pci0000:00/0000:00:02.0"
            os.makedirs(f"{root}/devices/{device}")
            os.makedirs(f"{root}/bus/pci/devices")
            os.symlink(f"../../../devices/{device}", f"{root}/bus/pci/devices/0000:00:02.0")
            for name, text in (("class", "0x030200"), ("vendor", "0x10de"), ("numa_node", "1")):
                with open(f"{root}/devices/{device}/{name}", "w", encoding="utf-8") as file:
                    file.write(text + "\n")
            kubeconfig = PLANE.service_account("muster", "muster-node-agent")
            process = subprocess.Popen([OPERATOR_PROGRAM, "--node-agent=n1", f"--kubeconfig={kubeconfig}",
                                        f"--sysfs={root}", "--node-agent-period=1s"], env={}, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.addCleanup(lambda: process.poll() is None and (process.kill(), process.wait(30)))

            def annotation():
                return call("GET", "/api/v1/nodes/n1")[1]["metadata"]["annotations"].get("muster.dev/pcie")

            wait_for("the node is described", annotation, 60)
            self.assertEqual(json.loads(annotation()), {"version": 1, "switches": [], "nics": [], "gpus": [
                {"address": "0000:00:02.0", "numa": 1}]})
            process.terminate()
            said = process.communicate(timeout=30)[0]
            self.assertEqual(process.returncode, 0, said)
            self.assertEqual(said.count("is published"), 1, said)


class Values(unittest.TestCase):
    def test_what_each_set_of_values_renders_is_taken(self):
        PLANE.kubectl("apply", "-f", DEFINITIONS)
        self.addCleanup(PLANE.kubectl, "delete", "-f", DEFINITIONS)
        kinds = {f"{kind}.monitoring.coreos.com" for kind in ("servicemonitors", "podmonitors", "prometheusrules")}
        wait_for("the Prometheus operator's kinds are served", lambda: kinds <= set(PLANE.kubectl(
            "api-resources", "--api-group=monitoring.coreos.com", "-o", "name", check=False).split()), 60)
        given, spaces = set(), {"muster", "team"}
        for values in VALUES:
            rendered = helm("template", "muster", CHART, "--skip-tests", "--kube-version", "v1.36.0", "-f", values)
            objects = [one for one in yaml.safe_load_all(rendered) if one]
            for space in sorted({one["metadata"].get("namespace", "muster") for one in objects} - spaces):
                PLANE.kubectl("create", "namespace", space)
                self.addCleanup(PLANE.kubectl, "delete", "namespace", space, "--wait=false")
                spaces.add(space)
            with self.subTest(os.path.basename(values)):
                self.assertEqual(self.apply(objects).count("(server dry run)"), len(objects))
            given |= {(one["kind"], one["metadata"]["name"]) for one in objects}
        # What no other test gives to an API server.
        self.assertLessEqual({("NetworkPolicy", "muster-workers"), ("ConfigMap", "muster-dashboard-job"), ("ConfigMap", "extra"),
                              ("ServiceMonitor", "muster-operator"), ("PodMonitor", "muster-workers"),
                              ("PrometheusRule", "muster")}, given)
        self.typing_errors_are_refused()

    def apply(self, objects, check=True):
        """What the API server says of them; nothing is kept. Applied by the server, because to that a field that it does not know
        is an error, and so is a name that stands twice in a list."""
        return PLANE.kubectl("apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", check=check,
                             stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))

    def typing_errors_are_refused(self):
        monitor = {"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": {"name": "m", "namespace": "team"}}
        for endpoint, said in (({"honourLabels": True}, "honourLabels"), ({"interval": "15"}, "spec.endpoints[0].interval"),
                               ({"relabelings": [{"action": "forget"}]}, "spec.endpoints[0].relabelings[0].action")):
            self.assertIn(said, self.apply([{**monitor, "spec": {"selector": {}, "endpoints": [endpoint]}}], check=False))


class Lifecycle(unittest.TestCase):
    def tearDown(self):
        PLANE.kubectl("delete", "crd", "trainingjobs.muster.dev", "--ignore-not-found")

    def life(self, program):
        install(program=program)
        self.assertEqual(call("POST", JOBS, job("kept"), "alice")[0], 201)
        before = PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")["data"]
        helm("upgrade", "muster", CHART, "--set", "logLevel=debug", program=program)
        helm("rollback", "muster", "1", program=program)
        self.assertEqual(PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")["data"], before)
        helm("uninstall", "muster", program=program)
        left = PLANE.kubectl("get", "deployments,services,serviceaccounts,roles,networkpolicies,poddisruptionbudgets",
                             "-n", "muster", "-o", "name").split()
        self.assertEqual([name for name in left if "muster" in name], [])
        left = PLANE.kubectl("get", "clusterroles,clusterrolebindings,validatingadmissionpolicies,"
                             "validatingadmissionpolicybindings", "-o", "name").split()
        self.assertEqual([name for name in left if "muster-" in name and "kubelet" not in name], [])
        self.assertEqual(call("GET", JOBS + "/kept")[0], 200)
        self.assertEqual(PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")["data"], before)
        install(program=program)   # takes over what stayed
        self.assertEqual(PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")["data"], before)
        uninstall(program)

    def test_helm_3_installs_upgrades_and_leaves_what_jobs_need(self):
        self.life("helm")

    def test_helm_4_installs_upgrades_and_leaves_what_jobs_need(self):
        self.life("helm4")

    def run_page(self, *blocks, program):
        """Does what these blocks of a page say, for the Secret that the chart made."""
        with tempfile.TemporaryDirectory(prefix="muster-keys-") as directory:
            os.symlink(f"{ROOT}/charts", f"{directory}/charts")
            script = "".join(map(textwrap.dedent, blocks)).replace("muster-keys", "muster-master")
            tool = os.path.join(kube_tools([program]), program)
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", f'helm() {{ {tool} "$@"; }}\n{script}'], cwd=directory,
                                  env={**PLANE.environment(), "TMPDIR": directory}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def upgrade_from_a_chart_that_knew_less(self, program):
        def operator():
            (container,) = PLANE.kubectl_json("get", "deployment", "-n", "muster",
                                              "muster-operator")["spec"]["template"]["spec"]["containers"]
            return container

        digest = "sha256:" + "0" * 64
        with open(f"{CHART}/README.md", encoding="utf-8") as file:
            (page,) = [block for block in re.findall(r"^```sh\n(.*?)^```$", file.read(), re.M | re.S) if "image.digest=" in block]
        with tempfile.TemporaryDirectory(prefix="muster-before-") as directory:
            before = shutil.copytree(CHART, f"{directory}/muster")
            for name in ("values.yaml", "templates/_helpers.tpl", "templates/deployment.yaml"):
                with open(f"{before}/{name}", encoding="utf-8") as file:
                    lines = file.readlines()
                kept = [line.replace("memory: 512Mi", "memory: 256Mi") for line in lines if "podStartTimeout" not in line]
                self.assertEqual(len(kept), len(lines) - 1, name)
                with open(f"{before}/{name}", "w", encoding="utf-8") as file:
                    file.writelines(kept)
            install("--set", "logLevel=debug", program=program, chart=before)
        self.addCleanup(uninstall, program)
        self.assertNotIn("--pod-start-timeout", " ".join(operator()["args"]))
        self.run_page(page.replace("sha256:...", digest), program=program)
        after = operator()
        self.assertIn("--pod-start-timeout=1h", after["args"], "a value that the chart has gained")
        self.assertEqual(after["resources"]["limits"]["memory"], "512Mi", "a default that was raised")
        self.assertIn("--log-level=debug", after["args"], "what was set at the installation")
        self.assertTrue(after["image"].endswith("@" + digest), after["image"])

    def test_a_chart_that_has_gained_a_value_is_upgraded_to_as_the_page_says_with_helm_3(self):
        self.upgrade_from_a_chart_that_knew_less("helm")

    def test_a_chart_that_has_gained_a_value_is_upgraded_to_as_the_page_says_with_helm_4(self):
        self.upgrade_from_a_chart_that_knew_less("helm4")

    def replace_ca(self, program):
        def secret():
            return PLANE.kubectl_json("get", "secret", "-n", "muster", "muster-master")

        with open(f"{ROOT}/docs/gitops.md", encoding="utf-8") as file:
            _, look, take_over, another, put, remove, _ = re.findall(r"^ *```sh\n(.*?)^ *```$", file.read(), re.M | re.S)
        install(program=program)
        before = secret()
        deployment = PLANE.kubectl_json("get", "deployment", "-n", "muster", "muster-operator")
        self.assertIn('"helm.sh/resource-policy":"keep"', self.run_page(look, take_over, program=program))
        self.assertEqual(secret()["data"], before["data"])
        again = PLANE.kubectl_json("get", "deployment", "-n", "muster", "muster-operator")
        self.assertEqual(again["metadata"]["generation"], deployment["metadata"]["generation"])
        self.run_page(another, put, program=program)
        after = secret()
        for name in ("ca.crt", "ca.key"):
            self.assertEqual(after["data"].pop(f"previous-{name}"), before["data"][name])
            self.assertNotEqual(after["data"][name], before["data"][name])
        self.assertEqual(after["data"]["master-key"], before["data"]["master-key"])
        for field in ("labels", "annotations"):
            self.assertEqual(after["metadata"][field], before["metadata"][field])
        self.run_page(remove, program=program)
        self.assertEqual(secret()["data"], after["data"])
        helm("rollback", "muster", "1", program=program, check=False)   # whose manifest has the keys of before
        self.assertEqual(secret()["data"], after["data"])
        helm("uninstall", "muster", program=program)
        install(program=program)   # takes over what stayed
        self.assertEqual(secret()["data"], after["data"])
        uninstall(program)

    def test_the_charts_own_keys_are_replaced_as_the_page_says_with_helm_3(self):
        self.replace_ca("helm")

    def test_the_charts_own_keys_are_replaced_as_the_page_says_with_helm_4(self):
        self.replace_ca("helm4")

    def test_an_operator_without_a_lease_ends_before_one_starts_that_takes_it(self):
        def upgraded(enabled, replicas):
            helm("upgrade", "--install", "muster", CHART, "--set", f"leaderElection.enabled={enabled},replicaCount={replicas}")
            return PLANE.kubectl_json("get", "deployment", "-n", "muster", "muster-operator")["spec"]["strategy"]["type"]

        self.addCleanup(uninstall)
        self.assertEqual(upgraded("false", 1), "Recreate")
        self.assertEqual(upgraded("true", 2), "Recreate")
        self.assertEqual(upgraded("true", 2), "RollingUpdate")

    def test_stricter_values_refuse_more(self):
        install("--set", "admissionPolicies.allowedPriorityClasses={high,low}",
                "--set", "admissionPolicies.requireCreatePods=true",
                "--set", "admissionPolicies.images.requireDigest=true",
                "--set", "admissionPolicies.images.allowedPrefixes={registry.example.com/}")
        self.addCleanup(uninstall)
        wait_for_policies()
        digest = "@sha256:" + "0" * 64
        good = job(image="registry.example.com/a" + digest, spec={"priorityClassName": "low"})
        self.assertEqual(call("POST", JOBS + DRY, good, "alice")[0], 201)

        def first(**container):
            return job(image=good["spec"]["worker"]["image"], spec={"priorityClassName": "low"},
                       initContainers=[{"name": "i", "image": good["spec"]["worker"]["image"]}, {"name": "j", **container}])

        self.assertEqual(call("POST", JOBS + DRY, first(command=["true"]), "alice")[0], 201)
        for body, sentence in (
                (job(spec={"priorityClassName": "urgent"}), "must be one of high, low"),
                (job(image="registry.example.com/a:latest"), "must end with a digest"),
                (job(image="evil.example.com/a" + digest), "must begin with one of registry.example.com/"),
                (first(image="registry.example.com/a:latest"), "must end with a digest"),
                (first(image="evil.example.com/a" + digest), "must begin with one of registry.example.com/"),
                (first(image="evil.example.com/a" + digest, restartPolicy="Always", resources={"cpu": "1m", "memory": "1Mi"}),
                 "must begin with one of registry.example.com/")):
            code, message = call("POST", JOBS + DRY, body, "alice")
            self.assertEqual(code, 422, message)
            self.assertIn(sentence, message)
        PLANE.user("bob")
        PLANE.kubectl("create", "rolebinding", "bob", "-n", "team", "--clusterrole=muster-editor", "--user=bob")
        wait_for("bob may edit", lambda: call("GET", JOBS, user="bob")[0] == 200, 30)
        code, message = call("POST", JOBS + DRY, job(), "bob")
        self.assertEqual(code, 422, message)
        self.assertIn("the right to create pods", message)
        made = job("made", spec={"priorityClassName": "low"}, image="registry.example.com/a" + digest)
        self.assertEqual(call("POST", JOBS, made, "alice")[0], 201)
        for spec, expected in (({"worker": {"command": ["evil"]}}, 422), ({"suspend": True}, 200), ({"worker": {"count": 2}}, 200)):
            code, message = call("PATCH", JOBS + "/made" + DRY, {"spec": spec}, "bob", "application/merge-patch+json")
            self.assertEqual(code, expected, message)

    def test_s6_what_pods_copy_of_a_jobs_metadata_is_judged_like_what_they_run(self):
        install("--set", "worker.copiedMetadata={team,vault.example.com/*,c*}")
        self.addCleanup(uninstall)
        wait_for_policies()
        merge = "application/merge-patch+json"
        # By an administrator; alice may not use the account.
        made = job("guarded", serviceAccountName="guarded")
        made["metadata"].update(labels={"team": "a", "free": "1"}, annotations={"vault.example.com/role": "a"})
        self.assertEqual(call("POST", JOBS, made)[0], 201)
        for metadata, expected in (
                ({"labels": {"team": "b"}}, 422), ({"labels": {"team": None}}, 422), ({"labels": {"cost": "1"}}, 422),
                ({"annotations": {"team": "b"}}, 422), ({"annotations": {"vault.example.com/role": "b"}}, 422),
                ({"annotations": {"vault.example.com/other": "b"}}, 422), ({"annotations": None}, 422),
                ({"labels": {"free": None, "more": "1"}}, 200), ({"finalizers": ["example.com/kept"]}, 200),
                # No pod copies what is Kubernetes' own.
                ({"annotations": {"container.apparmor.security.beta.kubernetes.io/worker": "unconfined"}}, 200),
                ({"labels": {"app.kubernetes.io/name": "b"}}, 200)):
            for user, code in (("alice", expected), ("admin", 200)):
                found, message = call("PATCH", JOBS + "/guarded" + DRY, {"metadata": metadata}, user, merge)
                self.assertEqual(found, code, (metadata, message))
        code, message = call("PATCH", JOBS + "/guarded" + DRY, {"spec": {"suspend": True}}, "alice", merge)
        self.assertEqual(code, 200, message)
        policy = PLANE.kubectl_json("get", "validatingadmissionpolicy", "muster-jobs")
        self.assertEqual(policy["status"]["typeChecking"].get("expressionWarnings", []), [])

    def test_a_job_older_than_a_rule_is_suspended_and_deleted_all_the_same(self):
        install()
        self.addCleanup(uninstall)
        wait_for_policies()
        old = job("older", image="registry.example.com/a:latest")
        old["metadata"]["finalizers"] = ["example.com/kept"]
        self.assertEqual(call("POST", JOBS, old, "alice")[0], 201)
        helm("upgrade", "muster", CHART, "--set", "admissionPolicies.images.requireDigest=true",
             "--set", "admissionPolicies.images.allowedPrefixes={elsewhere.example.com/}")
        merge = "application/merge-patch+json"

        def patch(body, parameters=""):
            return call("PATCH", JOBS + "/older" + parameters, body, "alice", merge)

        def let_go():
            code, seen = call("GET", JOBS + "/older")
            left = [one for one in seen["metadata"].get("finalizers", []) if one != "example.com/kept"] if code == 200 else []
            return code == 404 or patch({"metadata": {"finalizers": left}})[0] == 200

        other = {"spec": {"suspend": True, "worker": {"image": "registry.example.com/b:latest"}}}
        try:
            wait_for("the rule counts", lambda: patch(other, DRY)[0] == 422, POLICY_SECONDS)
            code, message = patch({"spec": {"suspend": True}})
            self.assertEqual(code, 200, message)
            self.assertEqual(call("DELETE", JOBS + "/older?propagationPolicy=Foreground", user="alice")[0], 200)
        finally:
            # Else the definition would wait for it. The garbage collector may have taken its own finalizer away by then.
            wait_for("it is let go", let_go, 30)
        wait_for("the garbage collector deletes it", lambda: call("GET", JOBS + "/older")[0] == 404, 60)

    def test_a_namespaced_operator_keeps_to_its_namespace(self):
        said = install("--set", "rbac.namespaced=true,watchNamespace=team")
        self.addCleanup(uninstall)
        for command in ("apply -f", "get trainingjobs", "logs -l"):
            self.assertRegex(said, rf"kubectl {command} .* -n team\n")
        wait_for_policies()
        body = pod(labels={"muster.dev/job-uid": "u"})
        # The policies of an earlier installation may be held for a moment longer.
        wait_for("pods of other namespaces are nobody's business", lambda: call(
            "POST", "/api/v1/namespaces/other/pods" + DRY, body, "alice")[0] == 201, 60)
        for words, answer in ((["create", "pods", "-n", "team"], "yes"), (["create", "pods", "-n", "other"], "no"),
                              (["list", "nodes"], "no"), (["list", "pods", "-n", "other"], "no"),
                              (["create", "tokenreviews.authentication.k8s.io"], "yes")):
            found = PLANE.kubectl(f"--as={OPERATOR}", "auth", "can-i", *words, check=False)
            self.assertIn(answer, found.split(), words)


if __name__ == "__main__":
    unittest.main()
