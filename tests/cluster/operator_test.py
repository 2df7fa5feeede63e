#!/usr/bin/env python3
"""muster-operator against a real kube-apiserver; the tests play the kubelet.

    tests/cluster/operator_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster-operator

Which replica wrote what is read from the API server's audit log: every replica has a user of its own.
"""

import collections
import http.client
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from control_plane import ROOT, ControlPlane  # noqa: E402
from pki import Authority  # noqa: E402
from processes import ClusterError, tail, wait_for  # noqa: E402

SECONDS = 120
TRIES = 5
NOT_INSTALLED = ("topologies", "hypernodes", "workloads")  # of Kueue, KAI and Volcano: looked for once a minute
# (seconds of a lease, within how many of them it must be renewed): a leader that gets no processor for so long ends, as promised.
HELD = (90, 60)
TAKEN_OVER = (20, 10)  # for the tests that wait for its end
AUDIT_POLICY = """apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete]
- level: Metadata
  verbs: [list]
- level: Metadata
  verbs: [watch]
  omitStages: [ResponseComplete]
- level: None
"""
BIN_DIR = "build/release/bin"
PLANE = None


def setUpModule():
    global PLANE
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = tempfile.mkdtemp(prefix="muster-operator-test-", dir=memory)
    unittest.addModuleCleanup(shutil.rmtree, directory, ignore_errors=True)
    with open(f"{directory}/audit.yaml", "w", encoding="utf-8") as file:
        file.write(AUDIT_POLICY)
    # Of the controllers only those that pods and jobs need: the one for nodes would miss their kubelets.
    controllers = ["serviceaccount-controller", "garbage-collector-controller", "namespace-controller"]
    PLANE = ControlPlane(f"{directory}/plane", controller_manager=True, extra={
        "kube-apiserver": [f"--audit-policy-file={directory}/audit.yaml", f"--audit-log-path={directory}/audit.log"],
        "kube-controller-manager": [f"--controllers={','.join(controllers)}"]})
    PLANE.audit_log = f"{directory}/audit.log"
    PLANE.start()
    unittest.addModuleCleanup(PLANE.stop)
    PLANE.kubectl("apply", "-f", f"{ROOT}/crds")
    wait_for("the kind is served", lambda: PLANE.get("/apis/muster.dev/v1alpha1/trainingjobs"), SECONDS)
    add_node("node-1")


def add_node(name):
    PLANE.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))
    amounts = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    condition = {"type": "Ready", "status": "True", "reason": "Test", "lastHeartbeatTime": "2026-01-01T00:00:00Z",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}
    patch("node", name, {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}}, "status")
    # Admission marks every new node; the node controller, which does not run here, would take the mark away.
    patch("node", name, {"spec": {"taints": None}})


def patch(kind, name, body, subresource=None, namespace="default"):
    arguments = [f"--subresource={subresource}"] if subresource else []
    PLANE.kubectl("patch", kind, name, "-n", namespace, "--type=merge", "-p", json.dumps(body), *arguments)


def get(kind, name, namespace="default"):
    return PLANE.kubectl_json("get", kind, name, "-n", namespace)


def gang(job, count, namespace="default"):
    """The pods of a job, once there are `count` of them."""
    def whole():
        pods = pods_of(job, namespace)
        return pods if len(pods) == count else None
    try:
        return wait_for(f"{job} has {count} pods", whole, SECONDS)
    except ClusterError as error:
        status = json.dumps(get("trainingjob", job, namespace).get("status"), indent=1)
        raise AssertionError(f"{error}\n{status}") from None


def bind(pod):
    name = pod["metadata"]["name"]
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
               "target": {"apiVersion": "v1", "kind": "Node", "name": "node-1"}}
    PLANE.kubectl("create", "--raw", f"/api/v1/namespaces/default/pods/{name}/binding", "-f", "-",
                  stdin=json.dumps(binding))


def token_of(pod):
    """A token as the kubelet would mount it."""
    return PLANE.kubectl("create", "token", pod["spec"]["serviceAccountName"], "--audience=muster", "--bound-object-kind=Pod",
                         f"--bound-object-name={pod['metadata']['name']}", f"--bound-object-uid={pod['metadata']['uid']}").strip()


def pods_of(job, namespace="default"):
    return PLANE.kubectl_json("get", "pods", "-n", namespace, "-l", f"muster.dev/job-name={job}")["items"]


def conditions_of(job):
    return {one["type"]: one for one in job.get("status", {}).get("conditions", [])}


def wait_condition(job, condition, namespace="default"):
    def holds():
        found = get("trainingjob", job, namespace)
        return found if conditions_of(found).get(condition, {}).get("status") == "True" else None
    return wait_for(f"{job} is {condition}", holds, SECONDS)


def audit(**wanted):
    """Audit records whose user, verb, resource, name ... are as wanted. A list is one too where it comes as the beginning of a
    watch; one that was refused as such, and what is watched behind a list, are none."""
    found = []
    with open(PLANE.audit_log, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if record["verb"] == "watch":
                if "sendInitialEvents=true" not in record["requestURI"] or record["responseStatus"]["code"] >= 400:
                    continue
                record["verb"] = "list"
            reference = record.get("objectRef", {})
            facts = {"user": record["user"]["username"], "verb": record["verb"], "code": record["responseStatus"]["code"],
                     **{key: reference.get(key, "") for key in ("resource", "subresource", "name", "namespace")}}
            if all(facts[key] == value for key, value in wanted.items()):
                found.append(record)
    return found


def hello(name, count=2, **spec):
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"worker": {"count": count, "image": "example.invalid/hello:1", "command": ["sh", "-c", "true"],
                                "resources": {"cpu": "100m", "memory": "64Mi"}}, **spec}}


def create(job, namespace="default"):
    PLANE.kubectl("create", "-n", namespace, "-f", "-", stdin=json.dumps(job))


def master_of(case):
    """A directory of an operator's CA and key, for the time of the test."""
    master = tempfile.mkdtemp(prefix="muster-master-")
    case.addCleanup(shutil.rmtree, master, ignore_errors=True)
    Authority(master)
    with open(f"{master}/master-key", "w", encoding="utf-8") as file:
        file.write("5a" * 32)
    return master


class Flood:
    """Hostile clients of a workers' endpoint, on threads, until they are ended or their time is over. What each kind of them was
    refused is counted."""

    CONNECTIONS = 300  # the endpoint lets 256 in
    SLOW = 20
    # By kind, the answers that are a refusal; of the others the end of the connection is one.
    REFUSALS = {"made-up token": (401, 429, 503), "huge body": (413,), "huge header": (431,)}
    KINDS = (*REFUSALS, "slow header", "silence")

    def __init__(self, case, port):
        self.port = port
        self.context = ssl.create_default_context()
        self.context.check_hostname = False
        self.context.verify_mode = ssl.CERT_NONE
        self.lock = threading.Lock()
        self.refused, self.unexpected = collections.Counter(), []  # guarded by lock
        self.over, self.until = threading.Event(), time.monotonic() + 10 * SECONDS
        self.silent, self.slow = [], []  # each of its one thread
        self.threads = [threading.Thread(target=self._go_on, args=(once,), daemon=True)
                        for once in (self._posts, self._be_silent, self._be_slow)]
        case.addCleanup(self.end)
        for thread in self.threads:
            thread.start()

    def end(self):
        self.over.set()
        for thread in self.threads:
            thread.join(SECONDS)
        for connection in (*self.silent, *self.slow):
            connection.close()

    def wait_for_refusals(self, when):
        """Of each kind some, from now on: all are at it."""
        with self.lock:
            before = self.refused.copy()

        def has_more():
            with self.lock:
                return all(self.refused[kind] >= before[kind] + 5 for kind in self.KINDS)

        wait_for(f"the flood is refused {when}", has_more, SECONDS)

    def _go_on(self, once):
        while not self.over.is_set() and time.monotonic() < self.until:
            try:
                once()
            except (OSError, http.client.HTTPException):
                self.over.wait(0.01)  # it has lost its connection to another one

    def _count(self, kind):
        with self.lock:
            self.refused[kind] += 1

    def _connect(self, text):
        """A connection over TLS on which `text` was sent."""
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        try:
            connection = self.context.wrap_socket(connection)
            connection.sendall(text.encode())
        except OSError:
            connection.close()
            raise
        return connection

    def _posts(self):
        token = f"Authorization: Bearer made-up-{time.monotonic_ns()}\r\nContent-Length: 2\r\n\r\n{{}}"
        body = f"Content-Length: {1 << 30}\r\n\r\n{'x' * 20_000}"
        header = f"X-Huge: {'x' * 9_000}\r\n\r\n"
        for kind, rest in zip(self.REFUSALS, (token, body, header)):
            with self._connect(f"POST /v1/join HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{rest}") as connection:
                answer = http.client.HTTPResponse(connection)
                answer.begin()
            if answer.status in self.REFUSALS[kind]:
                self._count(kind)
            else:
                with self.lock:
                    self.unexpected.append((kind, answer.status))

    def _be_silent(self):
        while len(self.silent) < self.CONNECTIONS and not self.over.is_set():
            connection = socket.create_connection(("127.0.0.1", self.port), timeout=10)
            connection.setblocking(False)
            self.silent.append(connection)
        self.silent = self._keep_open(self.silent, "silence")
        self.over.wait(0.05)

    def _be_slow(self):
        while len(self.slow) < self.SLOW and not self.over.is_set():
            connection = self._connect("POST /v1/join HTTP/1.1\r\nX-Slow: ")
            connection.setblocking(False)
            self.slow.append(connection)
        self.slow = self._keep_open(self.slow, "slow header", b"x")
        self.over.wait(0.05)

    def _keep_open(self, connections, kind, sent=b""):
        """Those that the endpoint has left open."""
        kept = []
        for connection in connections:
            try:
                if sent:
                    connection.send(sent)
                connection.recv(1)  # an answer or the end: both are
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                kept.append(connection)
                continue
            except OSError:
                pass
            connection.close()
            self._count(kind)
        return kept


class Replica:
    """One muster-operator with a user of its own in the API server."""

    def __init__(self, case, name, *flags, kubeconfig=None, leads=True, namespace="default", metrics="0", lease=HELD):
        self.name, self.case = name, case
        self.user = f"{name}-{case.id().rsplit('.', 1)[1]}"[:60]
        directory = tempfile.mkdtemp(prefix="muster-operator-")
        case.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        self.log = f"{directory}/log"
        command = [f"{BIN_DIR}/muster-operator", "--kubeconfig", kubeconfig or PLANE.user(self.user, ["system:masters"]),
                   "--endpoint-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0",
                   f"--metrics-bind-address={metrics}", f"--leader-elect-resource-namespace={namespace}",
                   f"--leader-elect-resource-name={case.lease}", f"--leader-elect-lease-duration={lease[0]}s",
                   f"--leader-elect-renew-deadline={lease[1]}s", "--leader-elect-retry-period=200ms", *flags]
        environment = {"PATH": "/nonexistent", "POD_NAME": name, "POD_NAMESPACE": "default", "POD_IP": "127.0.0.1"}
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        case.addCleanup(self.kill)
        if leads:
            self.wait_leading()

    def kill(self):
        """Its log is read to the end, too: whoever collects logs takes each line for an object."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(SECONDS)
        with open(self.log, encoding="utf-8") as file:
            lines = [line for line in file if line.endswith("\n")]  # the kill may have cut the last one
        for line in lines:
            try:
                self.case.assertLessEqual({"time", "level", "message"}, set(json.loads(line)), line)
            except ValueError:
                self.case.fail(f"{self.name} logged what is not JSON: {line}")

    def _check(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.name} ended with {self.process.returncode}:\n{tail(self.log)}")

    def lines(self):
        with open(self.log, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.startswith("{") and line.endswith("}\n")]

    def line(self, message):
        return wait_for(f"{self.name} says {message}",
                        lambda: next((line for line in self.lines() if line["message"] == message), None), SECONDS, self._check)

    def wait_leading(self):
        self.line("leading")
        return self

    def health(self, path):
        """(status, body) of a probe."""
        port = self.line("health probes are served")["port"]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def post(self, path, body, token, ca):
        """(status, answer) of a post to the workers' endpoint, with the server's name checked."""
        port = int(self.line("started")["endpoint"].rsplit(":", 1)[1])
        context = ssl.create_default_context(cadata=ca)
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            with context.wrap_socket(plain, server_hostname="muster-endpoint.default.svc") as secure:
                content = json.dumps(body)
                secure.sendall((f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n"
                                f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n{content}").encode())
                answer = http.client.HTTPResponse(secure)
                answer.begin()
                text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else {}

    def looks(self):
        """At jobs, so far. Needs metrics that are served plainly."""
        port = self.line("metrics are served")["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return sum(float(line.split()[-1]) for line in answer.read().decode().splitlines()
                       if line.startswith("controller_runtime_reconcile_total{"))

    def wait_ready(self):
        wait_for(f"{self.name} is ready", lambda: self.health("/readyz")[0] == 200, SECONDS, self._check)
        return self

    def signal(self, number):
        self.process.send_signal(number)

    def exit_code(self):
        return self.process.wait(SECONDS)


class OperatorTest(unittest.TestCase):
    def setUp(self):
        self.lease = re.sub("[^a-z]+", "-", self.id().rsplit(".", 1)[1])[-50:].strip("-")

    def tearDown(self):
        PLANE.kubectl("delete", "trainingjobs,pods", "--all", "-n", "default", "--force", "--grace-period=0")

    def holder(self):
        return get("lease", self.lease)["spec"].get("holderIdentity", "")

    def run_gang(self, name, count, while_running=lambda: None):
        """Plays scheduler and kubelet for a whole life."""
        pods = gang(name, count)
        for pod in pods:
            bind(pod)
        for index, pod in enumerate(pods):
            self.set_pod(pod, "Running", {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, f"10.0.0.{index + 1}")
        running = wait_condition(name, "Running")
        while_running()
        for pod in pods:
            self.set_pod(pod, "Succeeded", {"terminated": {"exitCode": 0, "reason": "Completed"}}, "10.0.0.1")
        return pods, running, wait_condition(name, "Complete")

    @staticmethod
    def set_pod(pod, phase, state, ip):
        ready = "True" if phase == "Running" else "False"
        patch("pod", pod["metadata"]["name"], {"status": {
            "phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "conditions": [{"type": "Ready", "status": ready}],
            "containerStatuses": [{"name": "worker", "image": "example.invalid/hello:1", "imageID": "", "restartCount": 0,
                                   "ready": phase == "Running", "state": state}]}}, "status")

    def test_a_gang_lives_from_apply_to_complete(self):
        replica = Replica(self, "a", "--resync-period=1s", "--metrics-secure=false", metrics="127.0.0.1:0").wait_ready()
        mine = {"user": replica.user}

        def writes():
            found = [record for record in audit(**mine) if record["verb"] != "list"]
            return [record for record in found if record["objectRef"]["resource"] != "leases"]

        def told(count):
            # Events are written last.
            wait_for("the last news is told", lambda: len(audit(**mine, verb="create", resource="events")) == count, SECONDS)

        def rests():
            """Over ten resyncs nothing is written."""
            at_rest, looks = len(writes()), replica.looks()
            wait_for("ten more looks at the one job", lambda: replica.looks() >= looks + 10, SECONDS)
            self.assertEqual(writes()[at_rest:], [])

        create(hello("whole", 3))
        pods, running, done = self.run_gang("whole", 3, lambda: (told(1), rests()))

        for slot, pod in enumerate(sorted(pods, key=lambda one: one["metadata"]["labels"]["muster.dev/slot"])):
            meta, spec = pod["metadata"], pod["spec"]
            self.assertTrue(meta["name"].endswith(f"-{slot}-0"), meta["name"])
            self.assertEqual(meta["ownerReferences"][0]["kind"], "TrainingJob")
            self.assertEqual(meta["ownerReferences"][0]["uid"], done["metadata"]["uid"])
            self.assertNotIn("finalizers", meta)
            self.assertEqual(spec["restartPolicy"], "Never")
            self.assertEqual(spec["hostname"], meta["name"])
            terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            self.assertIn("node-1", json.dumps(terms))
            environment = {one["name"]: one.get("value") for one in spec["containers"][0]["env"]}
            self.assertEqual(environment["RANK"], str(slot))
            self.assertEqual(environment["WORLD_SIZE"], "3")
            self.assertFalse(spec["containers"][0]["securityContext"]["allowPrivilegeEscalation"])
        self.assertEqual(running["status"]["workers"], "3/3")
        self.assertEqual(done["status"]["phase"], "Complete")
        service = get("service", pods[0]["spec"]["subdomain"])
        self.assertEqual(service["spec"]["clusterIP"], "None")
        self.assertTrue(service["spec"]["publishNotReadyAddresses"])
        # Whatever becomes of the operator, nothing of a job waits for it to be gone.
        self.assertNotIn("finalizers", service["metadata"])
        self.assertNotIn("finalizers", done["metadata"])

        # The cost of a life, and what it is made of.
        told(2)
        made = collections.Counter()
        for record in writes():
            about = record["objectRef"]
            made[f"{record['verb']} {about['resource']}{'/' if 'subresource' in about else ''}"
                 f"{about.get('subresource', '')}"] += 1
        self.assertEqual(made, {"create pods": 3, "create services": 1, "patch trainingjobs/status": 3,
                                "create events": 2})
        reasons = {event["reason"] for event in PLANE.kubectl_json("get", "events")["items"]
                   if event["involvedObject"].get("name") == "whole"}
        self.assertGreaterEqual(reasons, {"GangScheduled", "Completed"})
        refused = [record for record in audit(**mine) if record["responseStatus"]["code"] >= 400 and
                   record["objectRef"]["resource"] not in ("leases", *NOT_INSTALLED)]
        self.assertEqual(refused, [])

        # At rest nothing is written, and nothing is ever listed again.
        def lists():
            return [record["requestURI"] for record in audit(**mine, verb="list")
                    if record["objectRef"]["resource"] not in NOT_INSTALLED]

        version, before = get("trainingjob", "whole")["metadata"]["resourceVersion"], lists()
        self.assertTrue(any("trainingjobs" in uri for uri in before), before)
        rests()
        # Nor is this one while another lives its whole life.
        create(hello("other", 1))
        self.run_gang("other", 1)
        self.assertEqual(get("trainingjob", "whole")["metadata"]["resourceVersion"], version)
        self.assertEqual(lists(), before, "lists after the start")
        # What an autoscaler asks the API server for: of all pods that are there, those of this gang.
        scale = json.loads(PLANE.kubectl("get", "--raw", "/apis/muster.dev/v1alpha1/namespaces/default/trainingjobs/whole/scale"))
        self.assertEqual(scale["status"]["selector"], f"muster.dev/job-uid={done['metadata']['uid']}")
        selected = PLANE.kubectl_json("get", "pods", "--all-namespaces", "-l", scale["status"]["selector"])["items"]
        self.assertEqual({pod["metadata"]["uid"] for pod in selected}, {pod["metadata"]["uid"] for pod in pods})
        self.assertEqual(len(pods_of("other")), 1)

    def test_what_stands_deep_in_anybodys_pod_makes_the_operator_blind_to_no_other(self):
        PLANE.kubectl("create", "namespace", "stranger")
        self.addCleanup(PLANE.kubectl, "delete", "namespace", "stranger", "--wait=false")
        wait_for("the account of pods", lambda: PLANE.kubectl("get", "serviceaccount", "default", "-n", "stranger",
                                                              "--ignore-not-found").strip(), SECONDS)

        def stranger(name):
            fields = {}
            for _ in range(200):
                fields = {"f:x": fields}
            owner = {"manager": "stranger", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
                     "time": "2026-01-01T00:00:00Z", "fieldsV1": fields}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "managedFields": [owner]},
                   "spec": {"containers": [{"name": "c", "image": "example.invalid/hello:1"}]}}
            PLANE.kubectl("create", "--raw", "/api/v1/namespaces/stranger/pods", "-f", "-", stdin=json.dumps(pod))
            stored = PLANE.kubectl("get", "--raw", f"/api/v1/namespaces/stranger/pods/{name}")
            self.assertIn('{"f:x":' * 100, stored.replace(" ", ""), "the API server keeps it")

        stranger("before")  # in the first list
        Replica(self, "a").wait_ready()
        create(hello("first"))
        self.run_gang("first", 2)
        stranger("meanwhile")  # in the watch
        create(hello("second"))
        self.run_gang("second", 2)

    def test_news_that_comes_again_is_counted_on_its_event(self):
        replica = Replica(self, "a").wait_ready()
        create(hello("again"))

        def suspend(value):
            patch("trainingjob", "again", {"spec": {"suspend": value}})
            wait_for(f"suspend is {value}", lambda: conditions_of(get("trainingjob", "again")).get(
                "Suspended", {}).get("status", "False") == str(value), SECONDS)

        def told(reason):
            return [event for event in PLANE.kubectl_json("get", "events")["items"]
                    if event["involvedObject"].get("name") == "again" and event["reason"] == reason]

        gang("again", 2)
        suspend(True)
        wait_for("it is told once", lambda: told("Suspended"), SECONDS)
        (first,) = told("Suspended")
        self.assertNotIn("series", first)
        self.assertEqual((first["count"], first["lastTimestamp"]), (1, first["eventTime"].split(".")[0] + "Z"))
        # As an operator left it that wrote through events.k8s.io.
        old = {"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": first["metadata"]["name"]},
               "regarding": first["involvedObject"], "note": first["message"], "reportingController": first["reportingComponent"],
               **{field: first[field] for field in ("type", "reason", "action", "eventTime", "reportingInstance")}}
        PLANE.kubectl("delete", "event", first["metadata"]["name"])
        PLANE.kubectl("create", "-f", "-", stdin=json.dumps(old))
        self.assertIsNone(told("Suspended")[0].get("lastTimestamp"))
        for count in (2, 3):
            suspend(False)
            gang("again", 2)
            suspend(True)
            wait_for(f"it is told {count} times",
                     lambda count=count: [event.get("series", {}).get("count") for event in told("Suspended")] == [count],
                     SECONDS)
        series = told("Suspended")[0]
        last = series["series"]["lastObservedTime"]
        self.assertLess(series["eventTime"], last)
        self.assertEqual((series["count"], series["lastTimestamp"]), (3, last.split(".")[0] + "Z"))
        self.assertIn("(x3 over ", PLANE.kubectl("describe", "trainingjob", "again"))
        refused = [record for record in audit(user=replica.user, resource="events", verb="patch") if
                   record["responseStatus"]["code"] >= 400]
        self.assertEqual(refused, [])

    def test_a_built_in_job_has_pods_that_a_real_server_takes(self):
        Replica(self, "a").wait_ready()
        PLANE.kubectl("apply", "-f", f"{ROOT}/examples/digits-claim.yaml", "-f", f"{ROOT}/examples/digits.yaml")
        pods = gang("digits", 2)
        self.assertEqual(pods[0]["spec"]["containers"][0]["image"], "localhost/muster/muster-worker:0.1.0")
        sources = json.dumps(pods[0]["spec"]["volumes"])
        self.assertIn('"audience": "muster"', sources)

    def test_pods_come_though_nobody_answers_for_a_webhook_that_may_be_passed_over(self):
        silent = socket.create_server(("127.0.0.1", 0), backlog=64)  # its connections are never taken
        silent.setblocking(False)
        self.addCleanup(silent.close)
        labels = {"muster.dev/job-name": "patient"}
        PLANE.kubectl("create", "-f", "-", stdin=json.dumps({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": {"name": "silent"}, "webhooks": [{
                "name": "silent.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Ignore", "timeoutSeconds": 10, "objectSelector": {"matchLabels": labels},
                "clientConfig": {"url": f"https://127.0.0.1:{silent.getsockname()[1]}/"},
                "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]}]}))
        self.addCleanup(PLANE.kubectl, "delete", "mutatingwebhookconfiguration", "silent")

        def was_asked():
            return bool(select.select([silent], [], [], 0)[0])

        def is_asked():
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "labels": labels},
                   "spec": {"containers": [{"name": "c", "image": "example.invalid/hello:1"}]}}
            PLANE.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
            return was_asked()

        wait_for("the API server asks it", is_asked, SECONDS)
        while was_asked():
            silent.accept()[0].close()
        Replica(self, "a", lease=TAKEN_OVER).wait_ready()
        create(hello("patient", 1))
        gang("patient", 1)
        self.assertTrue(was_asked())

    def test_workers_join_over_tls_with_tokens_of_their_pods_at_any_replica(self):
        master = master_of(self)
        leader = Replica(self, "a", f"--master-dir={master}", lease=TAKEN_OVER).wait_ready()
        standby = Replica(self, "b", f"--master-dir={master}", leads=False, lease=TAKEN_OVER).wait_ready()
        PLANE.kubectl("apply", "-f", f"{ROOT}/examples/digits-claim.yaml", "-f", f"{ROOT}/examples/digits.yaml")
        pods = sorted(gang("digits", 2), key=lambda pod: pod["metadata"]["labels"]["muster.dev/slot"])
        for pod in pods:
            bind(pod)
        environment = {one["name"]: one.get("value") for one in pods[0]["spec"]["containers"][0]["env"]}
        self.assertEqual(environment["MUSTER_ENDPOINT"], "https://muster-endpoint.default.svc:9443")
        self.assertIn("BEGIN CERTIFICATE", environment["MUSTER_CA_CERT"])
        tokens = [token_of(pod) for pod in pods]

        def join(replica, slot, token):
            body = {"job": "default/digits", "slot": slot, "attempt": 0, "host": f"10.0.0.{slot}", "ports": [7000],
                    "contract": environment.get("MUSTER_CONTRACT", "fp32-chain/1")}
            return replica.post("/v1/join", body, token, environment["MUSTER_CA_CERT"])

        self.assertEqual(join(leader, 0, "")[0], 401)
        self.assertEqual(join(leader, 0, "nonsense")[0], 401)
        self.assertEqual(join(leader, 1, tokens[0])[0], 403)
        wait_for("the first is waited for", lambda: join(leader, 0, tokens[0])[0] == 200, SECONDS)
        # The second comes by the standby, which hands it on.
        def whole(replica):
            join(replica, 0, tokens[0])
            code, answer = join(replica, 1, tokens[1])
            return answer if code == 200 and answer.get("complete") else None

        answer = wait_for("both have joined", lambda: whole(standby), SECONDS)
        self.assertEqual([peer["host"] for peer in answer["peers"]], ["10.0.0.0", "10.0.0.1"])
        self.assertRegex(answer["jobKey"], "^[0-9a-f]{64}$")
        # Another master key, and operators that know of the gang what its status says.
        os.rename(f"{master}/master-key", f"{master}/previous-master-key")
        with open(f"{master}/master-key", "w", encoding="utf-8") as file:
            file.write("a5" * 32)
        leader.kill()
        standby.kill()
        later = Replica(self, "c", f"--master-dir={master}", lease=TAKEN_OVER).wait_ready()
        again = wait_for("both have joined again", lambda: whole(later), SECONDS)
        self.assertEqual(again["jobKey"], answer["jobKey"])

    def test_jobs_are_decided_while_the_endpoint_is_flooded(self):
        replica = Replica(self, "a", f"--master-dir={master_of(self)}", "--metrics-secure=false",
                          metrics="127.0.0.1:0").wait_ready()
        looks, calm_seconds = self.decide(replica, [f"calm-{number}" for number in range(10)])
        flood = Flood(self, int(replica.line("started")["endpoint"].rsplit(":", 1)[1]))
        flood.wait_for_refusals("before the jobs come")
        flooded_looks, seconds = self.decide(replica, [f"flooded-{number}" for number in range(10)])
        flood.wait_for_refusals("after all of them have their pods")
        print(f"ten jobs: {looks:.0f} looks and {calm_seconds:.1f} s, under the flood {flooded_looks:.0f} and {seconds:.1f} s")
        # What the endpoint refuses is nothing that the loop would look at; how much of a job's news comes at once may differ.
        self.assertLessEqual(flooded_looks, 2 * looks)
        self.assertEqual(replica.health("/healthz"), (200, "ok\n"))
        self.assertEqual(flood.unexpected, [])
        self.assertEqual(len(audit(user=replica.user, resource="pods", verb="create", code=201)), 40)

    def decide(self, replica, names):
        """How often the operator has looked at jobs when each of these new ones has its two pods, and after how many seconds."""
        before, began = replica.looks(), time.monotonic()
        for name in names:
            create(hello(name))
        for name in names:
            gang(name, 2)
            self.assertEqual(replica.health("/healthz"), (200, "ok\n"))
        return replica.looks() - before, time.monotonic() - began

    def test_metrics_are_served_plainly_where_that_is_asked_for_and_else_to_who_may_read_them(self):
        plain = Replica(self, "a", "--metrics-secure=false", metrics="127.0.0.1:0").wait_ready()
        port = plain.line("metrics are served")["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        self.assertIn('leader_election_master_status{name="%s"} 1' % self.lease, text)
        self.assertRegex(text, r'rest_client_requests_total\{[^}]*code="200"[^}]*method="GET"')
        self.assertRegex(text, r'muster_build_info\{[^}]*version="0\.1\.0"')
        master = master_of(self)
        secure = Replica(self, "b", f"--master-dir={master}", metrics="127.0.0.1:0", leads=False).wait_ready()
        port = secure.line("metrics are served")["port"]
        context = ssl.create_default_context(cafile=f"{master}/ca.crt")
        context.check_hostname = False
        with self.assertRaises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"https://127.0.0.1:{port}/metrics", timeout=10, context=context)
        self.assertEqual(refused.exception.code, 401)

    def test_sigterm_ends_in_order_and_gives_the_lease_up(self):
        first = Replica(self, "a").wait_ready()
        self.assertRegex(self.holder(), r"^a@127\.0\.0\.1:\d+$")
        self.assertEqual(first.health("/healthz"), (200, "ok\n"))
        second = Replica(self, "b", leads=False).wait_ready()
        first.signal(signal.SIGTERM)
        self.assertEqual(first.exit_code(), 0)
        second.wait_leading()
        second.signal(signal.SIGTERM)
        self.assertEqual(second.exit_code(), 0)
        self.assertEqual(self.holder(), "")

    def test_an_operator_that_may_list_nothing_is_alive_and_not_ready(self):
        replica = Replica(self, "a", "--leader-elect=false", leads=False, kubeconfig=PLANE.user("nobody"))

        def refused():
            return {line.get("kind") for line in replica.lines() if "forbidden" in line.get("error", "")}

        wait_for("all three are refused", lambda: {"TrainingJob", "Pod", "Node"} <= refused(), SECONDS)
        self.assertEqual(replica.health("/readyz"), (500, "jobs, pods and nodes are not listed yet\n"))
        self.assertEqual(replica.health("/healthz"), (200, "ok\n"))
        PLANE.kubectl("create", "clusterrolebinding", "nobody", "--clusterrole=cluster-admin", "--user=nobody")
        self.addCleanup(PLANE.kubectl, "delete", "clusterrolebinding", "nobody")
        replica.wait_ready()

    def test_an_operator_that_does_not_believe_its_api_server_is_alive_and_not_ready_until_its_ca_file_is_right(self):
        directory = tempfile.mkdtemp(prefix="muster-operator-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        Authority(directory)  # nobody's here
        ca_file, path = f"{directory}/ca.crt", f"{directory}/kubeconfig"
        with open(PLANE.user("unbelieving", ["system:masters"]), encoding="utf-8") as file:
            config = json.load(file)
        cluster = config["clusters"][0]["cluster"]
        del cluster["certificate-authority-data"]
        cluster["certificate-authority"] = ca_file
        with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="utf-8") as file:
            json.dump(config, file)
        replica = Replica(self, "a", "--leader-elect=false", leads=False, kubeconfig=path)
        said = wait_for("the log names the file", lambda: [line for line in replica.lines() if ca_file in line.get("error", "")],
                        SECONDS)
        self.assertIn("the server must show a certificate", said[0]["error"])
        self.assertEqual(replica.health("/readyz"), (500, "jobs, pods and nodes are not listed yet\n"))
        self.assertEqual(replica.health("/healthz"), (200, "ok\n"))
        self.assertEqual(audit(user="unbelieving"), [])
        shutil.copyfile(PLANE.ca_file, ca_file)
        replica.wait_ready()

    def test_a_standby_takes_over_from_a_leader_that_was_killed(self):
        first = Replica(self, "a", lease=TAKEN_OVER).wait_ready()
        second = Replica(self, "b", leads=False, lease=TAKEN_OVER).wait_ready()
        create(hello("before"))
        gang("before", 2)
        first.signal(signal.SIGKILL)
        create(hello("after"))
        second.wait_leading()
        gang("after", 2)
        self.assertEqual(len(audit(user=second.user, resource="pods", verb="create", code=201)), 2)
        self.assertEqual(len(pods_of("before")), 2)
        wrote = [record for record in audit(user=first.user, resource="trainingjobs") if record["verb"] != "list"]
        self.assertTrue(wrote)
        self.assertEqual(get("lease", self.lease)["spec"]["leaseTransitions"], 1)

    def test_a_leader_that_was_stopped_writes_nothing_when_it_wakes(self):
        first = Replica(self, "a", lease=TAKEN_OVER).wait_ready()
        second = Replica(self, "b", leads=False, lease=TAKEN_OVER).wait_ready()
        first.signal(signal.SIGSTOP)
        create(hello("meanwhile"))
        second.wait_leading()
        gang("meanwhile", 2)
        create(hello("later"))
        gang("later", 2)
        before = len([one for one in audit(user=first.user) if one["verb"] != "list"])
        first.signal(signal.SIGCONT)
        self.assertEqual(first.exit_code(), 34)
        after = [one for one in audit(user=first.user) if one["verb"] != "list"]
        self.assertEqual([one["requestURI"] for one in after[before:] if one["responseStatus"]["code"] < 400], [])
        self.assertEqual([one for one in after[before:] if one["objectRef"]["resource"] != "leases"], [])

    def test_an_api_server_that_was_away_is_followed_again(self):
        replica = Replica(self, "a", "--leader-elect=false", "--metrics-secure=false", leads=False,
                          metrics="127.0.0.1:0").wait_ready()
        port = replica.line("metrics are served")["port"]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            self.assertIn('leader_election_master_status{name="%s"} 1' % self.lease, answer.read().decode())
        api = next(daemon for daemon in PLANE.daemons if daemon.name == "kube-apiserver")
        api.kill()
        api.start()
        PLANE.wait_api_ready()
        create(hello("back"))
        gang("back", 2)
        self.assertEqual(replica.health("/readyz")[0], 200)
        self.assertEqual(len(audit(user=replica.user, resource="pods", verb="create", code=201)), 2)

    def test_an_api_server_that_stands_still_costs_a_leader_no_more_than_its_lease_does(self):
        patient = Replica(self, "a").wait_ready()
        hasty = Replica(self, "b", f"--leader-elect-resource-name={self.lease}-b", lease=TAKEN_OVER).wait_ready()

        def lists():
            return [one["requestURI"] for one in audit(user=patient.user, verb="list")
                    if one["objectRef"]["resource"] not in NOT_INSTALLED]

        before = lists()
        api = next(daemon for daemon in PLANE.daemons if daemon.name == "kube-apiserver")
        api.signal(signal.SIGSTOP)  # its connections stay open, and nobody answers
        try:
            # One has to let go of its lease meanwhile, and can tell nobody; the other finds that it is not answered in time.
            self.assertEqual(hasty.exit_code(), 34)
            patient.line("the leader's Lease cannot be reached")
            self.assertEqual(patient.health("/healthz"), (200, "ok\n"))
        finally:
            api.signal(signal.SIGCONT)
        PLANE.wait_api_ready()
        create(hello("on"))
        gang("on", 2)
        self.assertIsNone(patient.process.poll(), tail(patient.log))
        self.assertEqual(sum(line["message"] == "leading" for line in patient.lines()), 1)
        self.assertEqual(len(audit(user=patient.user, resource="pods", verb="create", code=201)), 2)
        self.assertEqual(audit(user=hasty.user, resource="pods", verb="create"), [])
        self.assertEqual(lists(), before, "its watches go on")

    def test_an_operator_of_one_namespace_needs_no_right_beyond_it(self):
        PLANE.kubectl("create", "namespace", "small")
        wait_for("the account of pods", lambda: PLANE.kubectl("get", "serviceaccount", "default", "-n", "small",
                                                              "--ignore-not-found").strip(), SECONDS)
        self.addCleanup(PLANE.kubectl, "delete", "namespace", "small", "--wait=false")
        rules = [{"apiGroups": ["muster.dev"], "resources": ["trainingjobs"], "verbs": ["get", "list", "watch", "delete"]},
                 {"apiGroups": ["muster.dev"], "resources": ["trainingjobs/status"], "verbs": ["patch"]},
                 {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "delete"]},
                 {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "create"]},
                 {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "create", "patch"]},
                 {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list", "watch"]},
                 {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]}]
        PLANE.kubectl("create", "-f", "-", stdin=json.dumps({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": {"name": "operator", "namespace": "small"}, "rules": rules}))
        PLANE.kubectl("create", "rolebinding", "operator", "-n", "small", "--role=operator", "--user=small-operator")
        Replica(self, "a", "--namespace=small", namespace="small", kubeconfig=PLANE.user("small-operator")).wait_ready()
        create(hello("tiny"), "small")
        pods = gang("tiny", 2, "small")
        self.assertNotIn("nodeAffinity", json.dumps(pods[0]["spec"]))
        denied = [one for one in audit(user="small-operator") if one["responseStatus"]["code"] == 403]
        self.assertEqual([one["requestURI"] for one in denied], [])

    def test_bad_flags_kubeconfigs_and_price_lists_end_with_2_and_one_line(self):
        directory = tempfile.mkdtemp(prefix="muster-operator-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        # Of an API server that would never answer: who is refused has not asked it, and so waited for nobody.
        server = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(server.close)
        old, old_key = Authority(directory).expired("old")

        def kubeconfig(name, user, **authority):
            cluster = {"server": f"https://127.0.0.1:{server.getsockname()[1]}", **authority}
            with open(f"{directory}/{name}", "w", encoding="utf-8") as file:
                json.dump({"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
                           "clusters": [{"name": "a", "cluster": cluster}], "users": [{"name": "a", "user": user}]}, file)

        kubeconfig("exec", {"exec": {"command": "/bin/false"}}, **{"certificate-authority-data": "eA=="})
        kubeconfig("cut", {}, **{"certificate-authority-data": "eA=="})
        kubeconfig("no-ca", {"token": "t"}, **{"certificate-authority": f"{directory}/gone.crt"})
        kubeconfig("unreadable-ca", {"token": "t"}, **{"certificate-authority": directory})
        kubeconfig("old-user", {"client-certificate": old, "client-key": old_key},
                   **{"certificate-authority": f"{directory}/ca.crt"})
        # Of weekends it says nothing. It is refused before the API server is asked for.
        prices = f"{directory}/prices.json"
        with open(prices, "w", encoding="utf-8") as file:
            json.dump({"currency": "EUR", "tiers": [{"name": "all", "prices": [{"resource": "cpu", "perHour": "1"}], "hours": [
                {"days": "Mon-Fri", "from": "00:00", "to": "00:00", "factor": "1"}]}]}, file)
        for flags, words in [
                (["--kubeconfig", f"{directory}/no-ca", f"--price-list={prices}"],
                 f"--price-list: {prices}: tiers[0].hours: leaves a gap from Sat 00:00 on"),
                (["--nonsense"], "--nonsense"), (["--log-level=loud"], "--log-level"),
                (["--leader-elect-lease-duration=1"], "--leader-elect-lease-duration"),
                (["--kubeconfig", f"{directory}/exec"], "users.a.exec"), (["--kubeconfig", directory], "is a directory"),
                (["--kubeconfig", f"{directory}/none"], "No such file"), (["--kubeconfig", f"{directory}/cut"], "PEM"),
                (["--kubeconfig", f"{directory}/no-ca"], f"{directory}/gone.crt: No such file"),
                (["--kubeconfig", f"{directory}/unreadable-ca"], f"{directory}: is a directory"),
                (["--kubeconfig", f"{directory}/old-user"], f"{old}: has expired"),
                ([], "--kubeconfig"), (["--endpoint-bind-address=:9443"], "--endpoint-bind-address")]:
            arguments = flags if "--endpoint-bind-address=:9443" in flags else ["--endpoint-bind-address=127.0.0.1:0", *flags]
            done = self.ends_within_a_second(arguments)
            self.assertEqual(done.returncode, 2, (flags, done.stderr))
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(words, done.stderr)
            self.assertEqual(select.select([server], [], [], 0)[0], [], flags)

    def ends_within_a_second(self, arguments):
        """How an operator ends; the best of a few tries counts, because this machine may have other work."""
        for _ in range(TRIES):
            began = time.monotonic()
            done = subprocess.run([f"{BIN_DIR}/muster-operator", *arguments], env={}, text=True, capture_output=True,
                                  timeout=SECONDS, check=False)
            if time.monotonic() - began < 1:
                return done
        self.fail(f"{arguments}: ended after more than a second {TRIES} times; the last words: {done.stderr}")


if __name__ == "__main__":
    if len(sys.argv) < 2 or not os.path.isdir(sys.argv[1]):
        sys.exit(__doc__)
    BIN_DIR = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=2)
