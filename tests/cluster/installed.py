"""A real cluster with the chart installed, for tests of what users do: two nodes, both images, a namespace `team`.

One cluster serves all tests of a process; each file's main() takes it down, and fails when something stays behind.
Needs root and the release programs (build/release/bin, or where MUSTER_BIN says). For work on a test, MUSTER_CLUSTER names
the directory of a cluster that has everything already (~/.cache/muster/clusters/NAME); it stands on afterwards.
"""

import glob
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import unittest

import image
from cluster import Cluster
from control_plane import kube_tools
from killer import Killer
from processes import ClusterError, run, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("MUSTER_BIN") or os.path.join(ROOT, "build", "release", "bin")
MUSTER = os.path.join(BIN, "muster")
CHART = os.path.join(ROOT, "charts", "muster")
SHELL = "muster.dev/shell:test"
OPERATOR = "system:serviceaccount:muster:muster-operator"
# The longest pause between two deaths of operators: as long as a dead one's lease lasts. After shorter ones hardly any ever leads.
KILLER_PAUSE_SECONDS = 15.0
EXTRA = {
    "kube-controller-manager": ["--node-monitor-grace-period=16s", "--node-monitor-period=2s"],
    # A container that is killed again and again comes back soon enough to be killed again.
    "kubelet-configuration": {"crashLoopBackOff": {"maxContainerRestartPeriod": "2s"}}}


class _World:
    """What the tests of this process share; made by the first that asks."""

    directory = cluster = killer = None
    is_installed = False
    stalls = []


def directory():
    """A directory of the process, removed at its end."""
    if _World.directory is None:
        _World.directory = tempfile.mkdtemp(prefix="muster-installed-")
    return _World.directory


def cluster():
    """The cluster, with or without the chart in it."""
    if _World.cluster is not None:
        return _World.cluster
    if os.environ.get("MUSTER_CLUSTER"):
        _World.cluster, _World.is_installed = Cluster.attach(os.environ["MUSTER_CLUSTER"]), True
        return _World.cluster
    made = make_cluster(os.path.join(directory(), "state"))
    made.up()
    _World.cluster = made
    return made


def make_cluster(state, dies_with_us=True):
    audit = [f"--audit-policy-file={HERE}/audit_policy.yaml", f"--audit-log-path={state}/log/audit.log"]
    return Cluster(state, nodes=2, dies_with_us=dies_with_us, extra={**EXTRA, "kube-apiserver": audit})


def audited():
    """The records of the audit log so far, in order. One that is only half written is none yet."""
    with open(os.path.join(cluster().directory, "log", "audit.log"), encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def writes(records=None):
    """Of these records, or all so far: (verb, resource, namespace, name, HTTP code, user), in order."""
    found = []
    for event in audited() if records is None else records:
        if event["verb"] in ("list", "watch"):
            continue
        what = event.get("objectRef", {})
        found.append((event["verb"], "/".join(filter(None, [what.get("resource"), what.get("subresource")])),
                      what.get("namespace"), what.get("name"), event["responseStatus"]["code"],
                      event["user"]["username"]))
    return found


def lists(records):
    """What the operators have listed, by these records. For kinds that are not there they ask once a minute, and are refused."""
    return [event["requestURI"] for event in records if event["user"]["username"] == OPERATOR
            and event["responseStatus"]["code"] < 400
            and (event["verb"] == "list" or event["verb"] == "watch" and "sendInitialEvents=true" in event["requestURI"])]


def helm(*arguments, check=True, seconds=300, program="helm"):
    """`program`: helm is Helm 3, helm4 the next."""
    return run([os.path.join(kube_tools([program]), program), *arguments, "--namespace", "muster"], seconds=seconds,
               env=cluster().plane.environment(), check=check)


def operator_logs():
    return cluster().plane.kubectl("-n", "muster", "logs", "-l", "app.kubernetes.io/component=operator", "--tail=40",
                                   "--prefix", check=False)


def images():
    """Directory of both images' archives, built once."""
    made = os.path.join(directory(), "images")
    if not os.path.isdir(made):
        run([os.path.join(ROOT, "docker", "build"), "--output", made, "--binaries", BIN], seconds=600)
    return made


def install():
    """Loads the images and installs the chart, unless both are done."""
    there = cluster()
    if _World.is_installed:
        return
    shell = image.shell_image(os.path.join(directory(), "shell.tar"), SHELL)
    for archive in [*glob.glob(images() + "/*.tar"), shell]:
        there.load(archive)
    try:
        helm("install", "muster", CHART, "--create-namespace", "--wait", "--timeout", "3m")
    except ClusterError as error:
        pods = there.kubectl("-n", "muster", "describe", "pods", check=False)
        raise ClusterError(f"{error}\n{pods[-6000:]}\n{operator_logs()}") from None
    _World.is_installed = True


def uninstall(program="helm"):
    """Takes the chart out; the next that needs it installs it again."""
    helm("uninstall", "muster", "--wait", "--timeout", "2m", program=program)
    _World.is_installed = False


def plugin(*arguments, namespace="team"):
    """`kubectl muster ...` in that namespace, as users type it: the command and its environment."""
    folder = os.path.join(directory(), "plugins")
    os.makedirs(folder, exist_ok=True)
    link = os.path.join(folder, "kubectl-muster")
    if not os.path.islink(link):
        os.symlink(MUSTER, link)
    env = cluster().plane.environment()
    # kubectl looks for plugins along PATH.
    env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
    return [os.path.join(cluster().plane.bin, "kubectl"), "muster", *arguments, "-n", namespace], env


def operators():
    """The operators' pods. OSError when the API server does not answer."""
    return json.loads(cluster().plane.get(
        "/api/v1/namespaces/muster/pods?labelSelector=app.kubernetes.io/component%3Doperator"))["items"]


def operators_die():
    """Whether they are killed at random moments while the tests run."""
    return _World.killer is not None


def note_stall(fault, milliseconds):
    """How long the workers of a job say that they stood still. Nothing is asserted of it; main() tells it whoever reads the whole run."""
    _World.stalls.append(f"{fault} {milliseconds} ms")


def kill(pod):
    """SIGKILL for all of a pod's worker container; returns whether anything was there."""
    killed = False
    for pid in pids_of(pod):
        try:
            os.kill(pid, signal.SIGKILL)
            killed = True
        except ProcessLookupError:  # With process 1 all others of the container go.
            pass
    return killed


def pids_of(pod):
    """Pids of a pod's worker container, on this machine."""
    uid = pod["metadata"]["uid"]
    found = []
    for path in glob.glob("/proc/[0-9]*/cgroup"):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
            in_pod = uid in text or uid.replace("-", "_") in text
            with open(path.replace("cgroup", "comm"), encoding="utf-8") as file:
                name = file.read().strip()
        except OSError:
            continue
        if in_pod and name != "pause":
            found.append(int(path.split("/")[2]))
    return found


class _Timed(unittest.TextTestResult):
    """Says of each test how long it took."""

    def startTest(self, test):
        self.started = time.monotonic()
        super().startTest(test)

    def stopTest(self, test):
        super().stopTest(test)
        self.stream.writeln(f"    {time.monotonic() - self.started:.0f} s")


def main(*modules, operators_killed=False):
    """Runs the tests of the modules (of the caller's file, when none is named) and takes the cluster down.

    `operators_killed`: while the operators' processes are killed at random moments.
    """
    runner = unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=_Timed)
    failed = True
    try:
        if operators_killed:
            install()
            _World.killer = Killer(operators, kill, KILLER_PAUSE_SECONDS)
            _World.killer.start()
        if modules:
            suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(name) for name in modules)
            failed = not runner.run(suite).wasSuccessful()
        else:
            failed = not unittest.main(testRunner=runner, exit=False).result.wasSuccessful()
        if operators_die():
            _World.killer.end()
            print(f"{len(_World.killer.kills)} kills: {_World.killer.kills}")
            failed = failed or not _World.killer.kills
    finally:
        started = time.monotonic()
        if operators_die():
            _World.killer.end()
        if _World.cluster is not None and not os.environ.get("MUSTER_CLUSTER"):
            ours, _ = _World.cluster.down()
            if ours:
                print("FAILED: the cluster left behind: " + "; ".join(ours[:10]))
                failed = True
        if _World.directory is not None:
            shutil.rmtree(_World.directory, ignore_errors=True)
        print(f"taken down in {time.monotonic() - started:.0f} s")
        if _World.stalls:
            print("measured: stall told on real nodes: " + ", ".join(_World.stalls))
    sys.exit(1 if failed else 0)


class InstalledTest(unittest.TestCase):
    """A case that has the cluster and the chart in it, and a namespace under that profile of Pod Security."""

    maxDiff = None
    namespace, profile = "team", "restricted"

    @classmethod
    def setUpClass(cls):
        install()
        cls.cluster, cls.directory = cluster(), directory()
        cls.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cls.namespace, "labels": {
            "pod-security.kubernetes.io/enforce": cls.profile}}})
        wait_for("the namespace has its account", lambda: cls.kubectl("get", "serviceaccount", "default", check=False)
                 .startswith("NAME"), 60)

    @classmethod
    def kubectl(cls, *arguments, check=True, seconds=120, stdin=None):
        return cls.cluster.plane.kubectl("-n", cls.namespace, *arguments, check=check, seconds=seconds, stdin=stdin)

    @classmethod
    def muster(cls, *arguments, seconds=120):
        command, env = plugin(*arguments, namespace=cls.namespace)
        return run(command, seconds=seconds, env=env)

    # What is asked again and again is asked directly: each kubectl costs a tenth of a second of a processor.

    @classmethod
    def job(cls, name):
        """OSError when it is not there."""
        return json.loads(cls.cluster.plane.get(f"/apis/muster.dev/v1alpha1/namespaces/{cls.namespace}/trainingjobs/{name}"))

    @classmethod
    def status(cls, name):
        """The job's status; nothing before the operator has looked at it."""
        return cls.job(name).get("status", {})

    @classmethod
    def pods(cls, name):
        return json.loads(cls.cluster.plane.get(
            f"/api/v1/namespaces/{cls.namespace}/pods?labelSelector=muster.dev/job-name%3D{name}"))["items"]

    @classmethod
    def apply(cls, *objects):
        cls.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def ended(self, name, condition="Complete", seconds=300):
        """Waits for the job's condition; what the cluster knows about it is the failure's text."""
        def is_over():
            job = self.job(name)
            found = {item["type"] for item in job.get("status", {}).get("conditions", []) if item["status"] == "True"}
            if condition not in found and found & {"Complete", "Failed"}:
                raise ClusterError(f"{name} is {' and '.join(sorted(found))}, not {condition}")
            return condition in found

        try:
            wait_for(f"{name} is {condition}", is_over, seconds * (2 if operators_die() else 1))
        except ClusterError as error:
            logs = self.kubectl("logs", "-l", f"muster.dev/job-name={name}", "--prefix", "--tail=20", check=False)
            raise AssertionError(f"{error}\n{self.kubectl('describe', 'tjob', name, check=False)}\n"
                                 f"{self.kubectl('get', 'pods', '-o', 'wide', check=False)}\n{logs}\n"
                                 f"{operator_logs()}") from None

    @staticmethod
    def kill(pod):
        return kill(pod)

    @staticmethod
    def pids_of(pod):
        return pids_of(pod)
