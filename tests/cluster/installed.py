"""A real cluster with the chart installed, for tests of what users do: two nodes, both images, a namespace `team`.

Needs root and the release programs (build/release/bin, or where MUSTER_BIN says). For work on a test, MUSTER_CLUSTER names
the directory of a cluster that has everything already (~/.cache/muster/clusters/NAME); it stands on afterwards.
"""

import glob
import json
import os
import shutil
import tempfile
import unittest

import image
from cluster import Cluster
from control_plane import kube_tools
from processes import ClusterError, run, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("MUSTER_BIN") or os.path.join(ROOT, "build", "release", "bin")
MUSTER = os.path.join(BIN, "muster")
SHELL = "muster.dev/shell:test"


class InstalledTest(unittest.TestCase):
    """One cluster and one installation for all cases of a class."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="muster-installed-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        if os.environ.get("MUSTER_CLUSTER"):
            cls.cluster = Cluster.attach(os.environ["MUSTER_CLUSTER"])
        else:
            cls._install()
        cls.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team", "labels": {
            "pod-security.kubernetes.io/enforce": "restricted"}}})
        wait_for("the namespace has its account", lambda: cls.kubectl("get", "serviceaccount", "default", check=False)
                 .startswith("NAME"), 60)

    @classmethod
    def _install(cls):
        images = os.path.join(cls.directory, "images")
        run([os.path.join(ROOT, "docker", "build"), "--output", images, "--binaries", BIN], seconds=600)
        cls.cluster = Cluster(os.path.join(cls.directory, "state"), nodes=2, extra={
            "kube-controller-manager": ["--node-monitor-grace-period=16s", "--node-monitor-period=2s"]})
        cls.enterClassContext(cls.cluster)
        shell = image.shell_image(os.path.join(cls.directory, "shell.tar"), SHELL)
        for archive in [*glob.glob(images + "/*.tar"), shell]:
            cls.cluster.load(archive)
        helm = os.path.join(kube_tools(["helm"]), "helm")
        try:
            run([helm, "install", "muster", os.path.join(ROOT, "charts", "muster"), "--namespace", "muster",
                 "--create-namespace", "--wait", "--timeout", "3m"], seconds=240, env=cls.cluster.plane.environment())
        except ClusterError as error:
            pods = cls.cluster.kubectl("-n", "muster", "describe", "pods", check=False)
            raise ClusterError(f"{error}\n{pods[-6000:]}\n{cls.operator_logs()}") from None

    @classmethod
    def kubectl(cls, *arguments, check=True, seconds=120, stdin=None):
        return cls.cluster.plane.kubectl("-n", "team", *arguments, check=check, seconds=seconds, stdin=stdin)

    @classmethod
    def muster(cls, *arguments, seconds=120):
        return run([MUSTER, *arguments, "-n", "team"], seconds=seconds, env=cls.cluster.plane.environment())

    @classmethod
    def job(cls, name):
        return json.loads(cls.kubectl("get", "tjob", name, "-o", "json"))

    @classmethod
    def pods(cls, name):
        return json.loads(cls.kubectl("get", "pods", "-l", f"muster.dev/job-name={name}", "-o", "json"))["items"]

    @classmethod
    def apply(cls, *objects):
        cls.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    @classmethod
    def operator_logs(cls):
        return cls.cluster.plane.kubectl("-n", "muster", "logs", "-l", "app.kubernetes.io/component=operator",
                                         "--tail=40", "--prefix", check=False)

    def ended(self, name, condition="Complete", seconds=300):
        """Waits for the job's condition; what the cluster knows about it is the failure's text."""
        def is_over():
            job = json.loads(self.cluster.plane.get(f"/apis/muster.dev/v1alpha1/namespaces/team/trainingjobs/{name}"))
            found = {item["type"] for item in job.get("status", {}).get("conditions", []) if item["status"] == "True"}
            if condition not in found and found & {"Complete", "Failed"}:
                raise ClusterError(f"{name} is {' and '.join(sorted(found))}, not {condition}")
            return condition in found

        try:
            wait_for(f"{name} is {condition}", is_over, seconds)
        except ClusterError as error:
            logs = self.kubectl("logs", "-l", f"muster.dev/job-name={name}", "--prefix", "--tail=20", check=False)
            raise AssertionError(f"{error}\n{self.kubectl('describe', 'tjob', name, check=False)}\n"
                                 f"{self.kubectl('get', 'pods', '-o', 'wide', check=False)}\n{logs}\n"
                                 f"{self.operator_logs()}") from None

    def pids_of(self, pod):
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
