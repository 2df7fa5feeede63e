"""What the tests of refusals share: a real API server with the chart on it, tenants, hand-made nodes, the operator.

There is no kubelet: nodes are objects with a patched status, and what a kubelet would report is patched into pods.
"""

import atexit
import base64
import json
import os
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from control_plane import ControlPlane, kube_tools
from processes import ClusterError, Daemon, wait_for

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
API = "/apis/muster.dev/v1alpha1"
CLUSTER_WIDE_KINDS = {"TrainingQueue": "trainingqueues", "TopologyConfig": "topologyconfigs"}
MERGE = "application/merge-patch+json"
OPERATOR = "system:serviceaccount:muster:muster-operator"
ANSWER_SECONDS = 60   # For what takes a second on an idle machine.
READ_BYTES_MAX = 64 * 1024 * 1024


def operator_program():
    """The operator that was built last, or what MUSTER_OPERATOR names; None when there is none."""
    found = [os.environ.get("MUSTER_OPERATOR", "")]
    found += [os.path.join(ROOT, "build", preset, "bin", "muster-operator") for preset in ("release", "dev")]
    return next((path for path in found if path and os.access(path, os.X_OK)), None)


def job(name="a", spec=None, **worker):
    """The least job of a user's own program; `worker` adds to spec.worker, `spec` to spec."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"worker": {"command": ["true"], **worker}, **(spec or {})}}


def training(name="a", worker=None, spec=None, **fields):
    """The least job of the built-in engine; `fields` adds to spec.training."""
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"worker": worker or {}, **(spec or {}), "training": {
                "epochs": 2, "model": {"mlp": {"hidden": [8]}}, "data": {"train": {"idx": {"images": "a", "labels": "b"}}},
                "optimizer": {"sgd": {"learningRate": "0.1"}}, **fields}}}


class World:
    """A control plane with its controllers, the chart installed as `muster`, and namespaces of two tenants.

    Namespaces: team-a (alice may edit) and team-b (bob). `alice` and `bob` hold the cluster's role `edit` there.
    """

    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="muster-refusals-", dir=MEMORY)
        self.plane = ControlPlane(os.path.join(self.directory, "plane"), controller_manager=True,
                                  # Nodes made by hand have no kubelet whose silence would count.
                                  extra={"kube-controller-manager": ["--controllers=*,-node-lifecycle-controller",
                                                                     "--resource-quota-sync-period=5s"]})
        self.contexts = {}

    def start(self):
        try:
            plane = self.plane.start()
            for namespace in ("muster", "team-a", "team-b"):
                plane.kubectl("create", "namespace", namespace)
                plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
            for person, namespace in (("alice", "team-a"), ("bob", "team-b")):
                plane.user(person, [namespace])
                plane.kubectl("create", "rolebinding", "edit", "-n", namespace, "--clusterrole=edit", f"--user={person}")
            self.helm("install", "muster", os.path.join(ROOT, "charts/muster"))
            for path in (self.jobs("team-a"), *(f"{API}/{kind}" for kind in CLUSTER_WIDE_KINDS.values())):
                self.wait("the kind is served", lambda where=path: self.call("GET", where)[0] == 200)
            for person, namespace in (("alice", "team-a"), ("bob", "team-b")):
                self.wait(f"{person} may edit jobs",
                          lambda who=person, where=namespace: self.call("GET", self.jobs(where), user=who)[0] == 200)
            bare = {"metadata": {"name": "p", "labels": {"muster.dev/job-uid": "u"}},
                    "spec": {"containers": [{"name": "c", "image": "x"}]}}
            self.wait("the policy for pods counts", lambda: "only Muster's operator" in str(
                self.call("POST", "/api/v1/namespaces/default/pods?dryRun=All", bare)[1]))
            bad = job(tolerations=[{"operator": "Exists"}])
            self.wait("the policy for jobs counts",
                      lambda: self.call("POST", self.jobs("team-a") + "?dryRun=All", bad)[0] == 422)
            return self
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self.plane.stop()
        if os.environ.get("MUSTER_KEEP"):
            print(f"kept: {self.directory}")
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def helm(self, *arguments):
        program = os.path.join(kube_tools(["helm"]), "helm")
        done = subprocess.run([program, "--namespace", "muster", *arguments], env=self.plane.environment(),
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=300, check=False)
        if done.returncode != 0:
            raise ClusterError(f"helm {' '.join(arguments)}: {done.stdout}")

    @staticmethod
    def wait(what, condition, seconds=None):
        return wait_for(what, condition, seconds or ANSWER_SECONDS)

    @staticmethod
    def jobs(namespace, name=""):
        return f"{API}/namespaces/{namespace}/trainingjobs" + (f"/{name}" if name else "")

    @staticmethod
    def pods(namespace, name=""):
        return f"/api/v1/namespaces/{namespace}/pods" + (f"/{name}" if name else "")

    def context(self, user):
        if user not in self.contexts:
            context = ssl.create_default_context(cafile=self.plane.ca_file)
            name = {"admin": "admin", "": ""}.get(user, f"user-{user}")
            if name:
                context.load_cert_chain(self.plane.authority.path(f"{name}.crt"),
                                        self.plane.authority.path(f"{name}.key"))
            self.contexts[user] = context
        return self.contexts[user]

    @staticmethod
    def exchange(opener, request, tries=3):
        """(text, status code, warnings)."""
        try:
            with opener.open(request, timeout=30) as answer:
                return (answer.read(READ_BYTES_MAX).decode(errors="replace"), answer.status,
                        answer.headers.get_all("Warning") or [])
        except urllib.error.HTTPError as error:
            return error.read(READ_BYTES_MAX).decode(errors="replace"), error.code, []
        except urllib.error.URLError:
            # Who is sent too much answers and hangs up before all of it has come, and the answer may be lost with the
            # connection. A request that was not sent whole was not carried out.
            if tries == 1:
                raise
            return World.exchange(opener, request, tries - 1)

    def call(self, method, path, body=None, user="admin", content_type="application/json", token=None):
        """(status code, object or the refusal's message) of one request; `body`: an object, or bytes as they are.

        As a person with a client certificate, as a service account by its full name (through impersonation), or with
        a token alone.
        """
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.plane.url + path, method=method, data=data,
                                         headers={"Content-Type": content_type})
        if user.startswith("system:serviceaccount:"):
            request.add_header("Impersonate-User", user)
            user = "admin"
        if token is not None:
            request.add_header("Authorization", f"Bearer {token}")
            user = ""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                             urllib.request.HTTPSHandler(context=self.context(user)))
        text, code, warnings = self.exchange(opener, request)
        try:
            answer = json.loads(text)
        except ValueError:
            return code, text
        if code >= 400:
            return code, answer.get("message", text)
        if warnings:
            answer["warnings"] = warnings
        return code, answer

    def patch(self, path, body, user="admin"):
        return self.call("PATCH", path, body, user, MERGE)

    def made(self, method, path, body=None, user="admin", content_type="application/json"):
        """The object of a request that must succeed."""
        code, answer = self.call(method, path, body, user, content_type)
        if code >= 300:
            raise ClusterError(f"{method} {path}: {code} {answer}")
        return answer

    def node(self, name, cpu="64", memory="256Gi", labels=None, **more):
        """A Ready node that nobody runs."""
        self.made("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name,
                                                                                  **(labels or {})}}})
        amounts = {"cpu": cpu, "memory": memory, "pods": "110", **more}
        self.made("PATCH", f"/api/v1/nodes/{name}/status", {"status": {
            "capacity": amounts, "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "ByHand", "message": ""}]}},
            content_type=MERGE)
        # The taint "not-ready" is put on by admission, and taken off by a controller that would watch a Lease.
        self.made("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": None}}, content_type=MERGE)

    def pods_of(self, namespace, name):
        found = self.made("GET", self.pods(namespace) + f"?labelSelector=muster.dev/job-name={name}")["items"]
        return sorted(found, key=lambda pod: pod["metadata"]["name"])

    def wait_pods(self, namespace, name, count):
        return self.wait(f"{namespace}/{name} has {count} pods", lambda: len(self.pods_of(namespace, name)) == count
                         and self.pods_of(namespace, name))

    def report(self, pod, status):
        """Writes what a kubelet would into a pod's status."""
        meta = pod["metadata"]
        return self.made("PATCH", self.pods(meta["namespace"], meta["name"]) + "/status", {"status": status},
                         content_type=MERGE)

    def run_pod(self, pod):
        """The pod's containers have started."""
        running = {"name": "worker", "image": "x", "imageID": "", "ready": True, "restartCount": 0, "started": True,
                   "state": {"running": {"startedAt": now()}}}
        return self.report(pod, {"phase": "Running", "startTime": now(), "podIP": "127.0.0.1",
                                 "containerStatuses": [running]})

    def end_pod(self, pod, exit_code=0, message="", reason=""):
        """Its container has ended."""
        end = {"exitCode": exit_code, "reason": reason or ("Completed" if exit_code == 0 else "Error"),
               "message": message, "startedAt": now(), "finishedAt": now()}
        ended = {"name": "worker", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "started": False,
                 "state": {"terminated": end}}
        return self.report(pod, {"phase": "Succeeded" if exit_code == 0 else "Failed", "containerStatuses": [ended]})

    def condition(self, namespace, name, kind):
        """A condition of a job; {} while there is none."""
        code, found = self.call("GET", self.jobs(namespace, name))
        if code != 200:
            return {}
        conditions = found.get("status", {}).get("conditions", [])
        return next((one for one in conditions if one["type"] == kind), {})

    def wait_condition(self, namespace, name, kind, status, reason=None, seconds=None):
        def holds():
            found = self.condition(namespace, name, kind)
            return found if found.get("status") == status and reason in (None, found.get("reason")) else None
        try:
            return self.wait(f"{namespace}/{name}: {kind} is {status} {reason or ''}", holds, seconds)
        except ClusterError as error:
            found = self.call("GET", self.jobs(namespace, name))[1]
            raise ClusterError(f"{error}; status: {json.dumps(found.get('status'))[:2000]}") from None

    def complete(self, namespace, name, count):
        """Plays the kubelets of an undisturbed job to its end: the proof that the operator still serves it."""
        for pod in self.wait_pods(namespace, name, count):
            self.run_pod(pod)
        self.wait_condition(namespace, name, "Running", "True")
        for pod in self.pods_of(namespace, name):
            self.end_pod(pod)
        self.wait_condition(namespace, name, "Complete", "True")

    def remove_jobs(self, *namespaces):
        for namespace in namespaces:
            self.plane.kubectl("delete", "trainingjobs", "-n", namespace, "--all", "--wait=false", check=False)
            self.plane.kubectl("delete", "pods", "-n", namespace, "--all", "--force", "--grace-period=0", check=False)
            self.wait(f"{namespace} is empty", lambda where=namespace: not self.made("GET", self.jobs(where))["items"])


def now():
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


SHARED = []


def shared():
    """One world for all tests of a run, whichever module they stand in; it goes when the run ends."""
    if not SHARED:
        SHARED.append(World().start())
        atexit.register(SHARED[0].stop)
    return SHARED[0]


class Operator:
    """The operator's program with the rights that the chart gives it, between `with` and its end."""

    def __init__(self, world, *flags):
        self.world, self.flags, self.daemon = world, list(flags), None

    def __enter__(self):
        world = self.world
        master = os.path.join(world.directory, "master")
        os.makedirs(master, exist_ok=True)
        secret = world.made("GET", "/api/v1/namespaces/muster/secrets/muster-master")["data"]
        for name, text in secret.items():
            with open(os.open(os.path.join(master, name), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(base64.b64decode(text))
        kubeconfig = world.plane.service_account("muster", "muster-operator")
        command = [operator_program(), f"--kubeconfig={kubeconfig}", "--health-probe-bind-address=127.0.0.1:0",
                   "--metrics-bind-address=0", "--endpoint-bind-address=127.0.0.1:0", f"--master-dir={master}",
                   "--endpoint-url=https://127.0.0.1:1", *self.flags]
        environment = {**os.environ, "POD_NAME": "operator-under-test", "POD_NAMESPACE": "muster",
                       "POD_IP": "127.0.0.1"}
        self.daemon = Daemon(world.directory, "operator", command, environment, dies_with_us=True)
        self.daemon.start()
        try:
            self.daemon.wait_ready(lambda: '"started"' in self.log(), ANSWER_SECONDS)
        except BaseException:
            self.daemon.stop(10)
            raise
        return self

    def __exit__(self, *_):
        self.daemon.stop(20)
        # Whatever strangers have put into words: each line is an object. A last one without an end was cut by a kill.
        for line in self.log().split("\n")[:-1]:
            try:
                json.loads(line)
            except ValueError:
                raise ClusterError(f"the operator logged what is not JSON: {line}") from None

    def alive(self):
        return self.daemon.alive()

    def log(self):
        with open(self.daemon.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def peak_mib(self):
        """The most memory that it ever had at a time."""
        with open(f"/proc/{self.daemon.pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmHWM:")) / 1024
