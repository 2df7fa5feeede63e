#!/usr/bin/env python3
"""The cluster of the tests is a real one: pods, names, services, rights and faults work, and nothing stays behind.

Needs root. One cluster of two nodes serves all cases; it takes about a minute.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import image  # noqa: E402
import leftovers  # noqa: E402
from cluster import Cluster  # noqa: E402
from node import hierarchies  # noqa: E402
from node_init import LIBC, MS_PRIVATE, MS_REC, mount  # noqa: E402
from processes import ClusterError, Daemon, fetch, run, start_time, wait_for  # noqa: E402

SHELL = "muster.dev/shell:test"
SPACE = "restricted"
WEB = ("echo started as $(hostname); while true; do "
       "printf 'HTTP/1.0 200 OK\\r\\n\\r\\n%s\\n' $(hostname) | nc -l -p 8080 >/dev/null; done")
RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
              "readOnlyRootFilesystem": True, "seccompProfile": {"type": "RuntimeDefault"}}


def pod(name, node, command, claim=None):
    """A pod that the `restricted` profile admits, in the headless service "pods"."""
    container = {"name": "shell", "image": SHELL, "imagePullPolicy": "Never", "securityContext": RESTRICTED,
                 "command": ["sh", "-c", command]}
    spec = {"nodeSelector": {"kubernetes.io/hostname": node}, "hostname": name, "subdomain": "pods",
            "terminationGracePeriodSeconds": 0, "restartPolicy": "Never", "containers": [container],
            "securityContext": {"fsGroup": 65532}}
    if claim:
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]
        container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return {"apiVersion": "v1", "kind": "Pod", "spec": spec,
            "metadata": {"name": name, "namespace": SPACE, "labels": {"app": "pods"}}}


class ClusterTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.mkdtemp(prefix="muster-cluster-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.cluster = Cluster(os.path.join(cls.directory, "state"), nodes=2, extra={
            "kube-controller-manager": ["--node-monitor-grace-period=16s", "--node-monitor-period=2s"]})
        cls.enterClassContext(cls.cluster)
        archive = image.shell_image(os.path.join(cls.directory, "shell.tar"), SHELL)
        loaded = cls.cluster.load(archive)
        assert loaded == [SHELL], loaded
        cls.cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE, "labels": {
                "pod-security.kubernetes.io/enforce": "restricted"}}})
        wait_for("the namespace has its account", lambda: cls.kubectl("get", "serviceaccount", "default", check=False)
                 .startswith("NAME"), 60)
        cls.cluster.apply(
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "pods", "namespace": SPACE},
             "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": "pods"},
                      "ports": [{"name": "web", "port": 8080}]}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one", "namespace": SPACE},
             "spec": {"selector": {"app": "pods"}, "ports": [{"name": "web", "port": 80, "targetPort": 8080}]}})
        # A web server that says its pod's name.
        for number in (1, 2):
            cls.start(pod(f"pod{number}", f"node{number}", WEB))

    @classmethod
    def kubectl(cls, *arguments, check=True):
        return cls.cluster.kubectl("-n", SPACE, *arguments, check=check, seconds=120)

    @classmethod
    def start(cls, manifest):
        cls.cluster.apply(manifest)
        name = manifest["metadata"]["name"]
        try:
            cls.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=90s")
        except ClusterError as error:
            raise ClusterError(f"{error}\n{cls.kubectl('describe', 'pod', name)}") from None

    def fetch(self, source, url):
        """What a pod gets from a web server; servers here take one connection at a time, so it tries again."""
        answer = []

        def got():
            answer[:] = [self.kubectl("exec", source, "--", "timeout", "5", "wget", "-q", "-O", "-", url,
                                      check=False).strip()]
            return answer[0].startswith("pod")

        try:
            wait_for(f"{source} gets {url}", got, 60)
        except ClusterError as error:
            raise AssertionError(f"{error}; the last answer: {answer}") from None
        return answer[0]

    def test_pods_reach_each_other_by_their_names_in_both_directions(self):
        self.assertEqual(self.fetch("pod1", "http://pod2.pods:8080/"), "pod2")
        self.assertEqual(self.fetch("pod2", f"http://pod1.pods.{SPACE}.svc.cluster.local:8080/"), "pod1")

    def test_a_service_is_reached_by_its_address_from_every_pod(self):
        for source in ("pod1", "pod2"):
            self.assertIn(self.fetch(source, "http://one/"), ("pod1", "pod2"))

    def test_a_name_outside_of_the_cluster_is_refused_at_once(self):
        out = self.kubectl("exec", "pod1", "--", "nslookup", "example.org.", check=False)
        self.assertIn("NXDOMAIN", out)

    def test_the_api_server_answers_pods_under_its_service_name(self):
        # Debian's busybox speaks too old a TLS; who refuses a plain request in these words is the API server.
        out = self.kubectl("exec", "pod1", "--", "sh", "-c", "printf 'GET / HTTP/1.0\\r\\n\\r\\n' | "
                           "timeout 20 nc kubernetes.default.svc 443", check=False)
        self.assertIn("Client sent an HTTP request to an HTTPS server", out)

    def test_logs_and_exec_go_through_the_kubelets(self):
        self.assertEqual(self.kubectl("logs", "pod2").strip(), "started as pod2")
        self.assertEqual(self.kubectl("exec", "pod1", "--", "id", "-u").strip(), "65532")

    def test_a_pod_that_is_not_restricted_is_refused(self):
        manifest = pod("root", "node1", "true")
        manifest["spec"]["hostNetwork"] = True
        with self.assertRaisesRegex(ClusterError, 'violates PodSecurity "restricted'):
            self.cluster.apply(manifest)

    def test_a_claim_is_bound_on_the_node_of_its_first_pod_and_keeps_what_is_written(self):
        self.cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                            "metadata": {"name": "claim", "namespace": SPACE},
                            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        self.start(pod("writer", "node2", "echo kept > /data/file; exec sleep 1000", "claim"))
        self.kubectl("delete", "pod", "writer", "--now")
        self.start(pod("reader", "node2", "cat /data/file; exec sleep 1000", "claim"))
        self.assertEqual(self.kubectl("logs", "reader").strip(), "kept")
        self.kubectl("delete", "pod", "reader", "--now")
        self.kubectl("delete", "persistentvolumeclaim", "claim")
        cleaned = wait_for("the volume is free again", self.cluster.clean_volumes, 60)
        self.assertRegex(cleaned[0], "node2-v[1-8]")
        number = cleaned[0].split("-v")[1]
        self.assertEqual(os.listdir(f"{self.cluster.node(2).storage}/lib/muster/volumes/v{number}"), [])

    def test_pods_go_on_while_their_kubelet_restarts(self):
        before = json.loads(self.kubectl("get", "pod", "pod1", "-o", "json"))["status"]["containerStatuses"][0]
        self.cluster.node(1).kubelet_restart()
        self.cluster.node(1).ready()
        after = json.loads(self.kubectl("get", "pod", "pod1", "-o", "json"))["status"]["containerStatuses"][0]
        self.assertEqual(before["containerID"], after["containerID"])
        self.assertEqual(after["restartCount"], 0)
        # A kubelet that has just started does not know all its pods yet.
        wait_for("exec works again", lambda: self.kubectl("exec", "pod1", "--", "hostname", check=False) == "pod1\n", 60)

    def test_pods_go_on_while_the_api_server_is_away(self):
        self.cluster.api_stop()
        with self.assertRaises(OSError):
            self.cluster.plane.get("/readyz")
        self.cluster.api_start()
        self.assertEqual(self.fetch("pod1", "http://pod2.pods:8080/"), "pod2")

    def test_a_node_without_power_is_noticed_and_comes_back(self):
        node = self.cluster.node(2)
        self.start(pod("victim", "node2", "exec sleep 100000"))
        pids = node.pod_pids()
        self.assertGreater(len(pids), 2)
        started = time.monotonic()
        node.power_off()
        self.assertFalse(node.running())
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}"), f"pid {pid} of the node lives on")

        def unknown():
            states = self.cluster.plane.kubectl_json("get", "node", "node2")["status"]["conditions"]
            return any(state["type"] == "Ready" and state["status"] == "Unknown" for state in states)

        wait_for("node2 is missed", unknown, 90)
        self.assertGreater(time.monotonic() - started, 5)
        node.start()
        node.ready()
        wait_for("pod2 has ended with its node", lambda: "pod2" not in self.kubectl(
            "get", "pod", "--field-selector=status.phase=Running"), 120)
        self.kubectl("delete", "pod", "pod2", "victim", "--now")
        self.start(pod("pod2", "node2", WEB))
        self.assertEqual(self.fetch("pod1", "http://pod2.pods:8080/"), "pod2")


CLONE_NEWNS, CLONE_NEWNET = 0x20000, 0x40000000


def apart(function):
    """What function() returns where mounts, firewall and addresses are its own, and /var/lib, /var/log and /run are empty."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if LIBC.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
                raise OSError("no namespaces of its own")
            mount(None, "/", None, MS_REC | MS_PRIVATE)
            for folder in ("/var/lib", "/var/log", "/run"):
                mount("tmpfs", folder, "tmpfs")
            run(["ip", "link", "set", "lo", "up"])
            answer = json.dumps({"answer": function()})
        except BaseException as error:  # It must not go on as a second copy of the test.
            answer = json.dumps({"error": repr(error)})
        with os.fdopen(writing, "w") as file:
            file.write(answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = json.loads(file.read())
    os.waitpid(child, 0)
    if "error" in told:
        raise AssertionError(told["error"])
    return told["answer"]


class TraceTest(unittest.TestCase):
    def no_trace(self, before, directory, tag, network):
        """Nothing is there that was not before; the kernel clears namespaces away in its own time."""
        left = []

        def is_clean():
            left[:] = leftovers.left_behind(before, leftovers.snapshot(directory, tag), directory, tag, network)[0]
            return not left

        try:
            wait_for("nothing is left", is_clean, 20)
        except ClusterError:
            self.fail("; ".join(left))

    @staticmethod
    def inhabit(cluster):
        """Starts what makes a node mount, forward and filter: a pod with a claim, a Service and a port of its node's."""
        cluster.load(image.shell_image(os.path.join(cluster.directory, "shell.tar"), SHELL))
        meta, port = {"name": "guest", "namespace": "default"}, 8080
        manifest = pod("guest", "node1", WEB, "guest")
        manifest["metadata"]["namespace"] = meta["namespace"]
        manifest["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
        wait_for("the namespace has its account", lambda: cluster.kubectl("get", "serviceaccount", "default", check=False)
                 .startswith("NAME"), 60)
        cluster.apply({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta,
                       "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
                      {"apiVersion": "v1", "kind": "Service", "metadata": meta,
                       "spec": {"selector": {"app": "pods"}, "ports": [{"port": 80, "targetPort": port}]}}, manifest)
        cluster.kubectl("wait", "pod/guest", "--for=condition=Ready", "--timeout=90s", seconds=120)
        node = cluster.node(1)
        wait_for("it answers at its node's port", lambda: fetch(f"http://{node.address}:{port}/") == b"guest\n", 60)
        wait_for("its Service has rules", lambda: "default/guest" in node.run("iptables", "-w", "-t", "nat", "-S"), 60)

    def test_a_second_cluster_comes_and_goes_beside_the_first_and_leaves_no_trace(self):
        with tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
            with Cluster(os.path.join(directory, "one")) as one:
                two = Cluster(os.path.join(directory, "two"))
                two.up()
                try:
                    self.assertNotEqual(one.network, two.network)
                    self.inhabit(two)
                except BaseException:
                    two.down()
                    raise
                # What a shim would be that outlives its node. It is told, and another down() takes away what the first could not.
                init = two.node(1).daemon("init").pid
                shim = subprocess.Popen(["nsenter", f"--target={init}", "--net", "sleep", "777"], stdin=subprocess.DEVNULL, cwd="/")
                self.addCleanup(shim.kill)
                wait_for("it is in", lambda: os.readlink(f"/proc/{shim.pid}/ns/net") == os.readlink(f"/proc/{init}/ns/net"), 10)
                with unittest.mock.patch("cluster.GONE_SECONDS", 1):
                    self.assertIn(f"process of a node: {shim.pid} sleep 777", two.down()[0])
                shim.kill()
                shim.wait(20)
                before, tag, network = two.before, two.tag, two.network
                self.assertEqual(two.down()[0], [])
                self.assertIn("Ready", one.kubectl("get", "node", "node1"))
                self.no_trace(before, two.directory, tag, network)
            self.assertEqual(os.listdir(directory), [])

    def test_what_is_left_behind_is_found(self):
        with tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
            before = leftovers.snapshot(directory, "mu249")
            daemon = Daemon(directory, "forgotten", ["sh", "-c", f"while true; do sleep 5; done # {directory}/x"],
                            dies_with_us=True).start()
            group = os.path.join(hierarchies()[0], "mu249-node1")
            os.makedirs(group)
            try:
                ours, _ = leftovers.left_behind(before, leftovers.snapshot(directory, "mu249"), directory, "mu249", "10.249")
            finally:
                os.rmdir(group)
                daemon.kill()
            self.assertEqual(sorted(line.split(":")[0] for line in ours), ["cgroup", "process"])

    def test_what_a_node_alone_makes_is_found_though_it_bears_no_mark(self):
        # What it does -> kinds of what is ours, and of what is not.
        leaks = {
            "mkdir -p /var/lib/kubelet/pods/u/secret; mount -t tmpfs tmpfs /var/lib/kubelet/pods/u/secret": ({"mount", "folder"}, set()),
            "mkdir /run/netns; touch /run/netns/cni-7; mount --bind /proc/self/ns/net /run/netns/cni-7": ({"mount"}, {"network namespace"}),
            "mkdir /run/containerd/; touch /run/containerd/s": ({"folder"}, set()),
            # By its path in what is mounted at /run.
            "mkdir -p /run/state/node1/lib /var/lib/other; mount --bind /run/state/node1/lib /var/lib/other": ({"mount"}, set()),
            "iptables -w -t nat -N KUBE-SVC-7": ({"firewall rule"}, {"firewall rule"}),
            "iptables -w -t filter -N CNI-HOSTPORT-DNAT": ({"firewall rule"}, {"firewall rule"}),
            "iptables -w -t filter -A OUTPUT -d 10.249.3.5 -j ACCEPT": ({"firewall rule"}, {"firewall rule"}),
            "ip address add 10.249.3.1/32 dev lo": ({"address", "route"}, set()),
            "ip address add 10.24.9.1/32 dev lo; ip address add 110.249.3.1/32 dev lo": (set(), {"address", "route"}),
            "mkdir /var/lib/others; mount -t tmpfs tmpfs /var/lib/others": (set(), {"mount"}),
            "iptables -w -t filter -A FORWARD -d 10.24.9.5 -j ACCEPT": (set(), {"firewall rule"})}

        def kinds_of(leak):
            before = leftovers.snapshot("/run/state", "mu249")
            run(["sh", "-ec", leak])
            after = leftovers.snapshot("/run/state", "mu249")
            return [sorted({line.split(":")[0] for line in lines} - {"process namespace", "mount namespace", "cgroup"})
                    for lines in leftovers.left_behind(before, after, "/run/state", "mu249", "10.249")]

        for leak, (ours, others) in leaks.items():
            with self.subTest(leak), unittest.mock.patch.dict(os.environ, {"MUSTER_STRICT_LEFTOVERS": "0"}):
                found = apart(lambda: kinds_of(leak))  # pylint: disable=cell-var-from-loop
                self.assertEqual(found[0], sorted(ours))
                self.assertLessEqual(set(found[1]) - {"network namespace"}, others)

    def test_names_count_where_the_machine_had_none_of_them(self):
        def ours(kind, before, new):
            return leftovers.left_behind({kind: before}, {kind: [*before, new]}, "/run/state", "mu249", "10.249")[0]

        chains = "table ip nat chain "
        for kind, before, new, of_us in (
                ("cgroup", [], "/sys/fs/cgroup/kubepods/burstable", True),
                ("cgroup", [], "/sys/fs/cgroup/pids/k8s.io", True),
                ("cgroup", [], "/sys/fs/cgroup/system.slice", False),
                ("cgroup", [], "/sys/fs/cgroup/mu248-node1/kubepods/burstable", False),
                ("cgroup", [], "/sys/fs/cgroup/mu249-node1/kubepods/burstable", True),
                ("cgroup", ["/sys/fs/cgroup/mu248-node1/kubepods"], "/sys/fs/cgroup/kubepods", True),
                ("cgroup", ["/sys/fs/cgroup/kubepods.slice"], "/sys/fs/cgroup/kubepods.slice/x", False),
                ("cgroup", ["/sys/fs/cgroup/kubepods.slice"], "/sys/fs/cgroup/mu249-node1", True),
                ("firewall rule", [], chains + "KUBE-SVC-7", True),
                ("firewall rule", [chains + "KUBE-SERVICES"], chains + "KUBE-SVC-7", False),
                ("firewall rule", [chains + "KUBE-SERVICES"], chains + "KUBE-SVC-7: ip daddr 10.249.128.10 accept", True)):
            with self.subTest(new, before=before), unittest.mock.patch.dict(os.environ, {"MUSTER_STRICT_LEFTOVERS": "0"}):
                self.assertEqual(ours(kind, before, new), [f"{kind}: {new}"] if of_us else [])

    def test_rules_are_told_with_their_table_and_chain_and_without_their_counters(self):
        nft = """table ip nat {
\tchain KUBE-SERVICES {
\t\tip daddr 10.1.0.1 counter packets 7 bytes 77 jump KUBE-SVC-7
\t}

\tchain OUTPUT {
\t\ttype nat hook output priority 0; policy accept;
\t}
}
# Warning: of another's
table ip6 filter {
}
"""
        self.assertEqual(list(leftovers._of_nft(nft.splitlines())), [
            "table ip nat", "table ip nat chain KUBE-SERVICES",
            "table ip nat chain KUBE-SERVICES: ip daddr 10.1.0.1 counter jump KUBE-SVC-7", "table ip nat chain OUTPUT",
            "table ip nat chain OUTPUT: type nat hook output priority 0; policy accept;", "table ip6 filter"])
        legacy = ["# by", "*nat", ":OUTPUT ACCEPT [7:77]", ":KUBE-SVC-7 - [0:0]", "-A OUTPUT -j KUBE-SVC-7", "COMMIT"]
        self.assertEqual(list(leftovers._of_legacy("ip", legacy)),
                         ["ip nat: :OUTPUT ACCEPT", "ip nat: :KUBE-SVC-7 -", "ip nat: -A OUTPUT -j KUBE-SVC-7"])
        self.assertEqual(list(leftovers._numbered(["a", "b", "a"])), ["a", "b", "a (2)"])

    def test_what_holds_a_nodes_namespaces_when_it_is_turned_off_must_be_gone(self):
        def held(directory):
            answers = [leftovers.still_held(directory)]
            node = subprocess.Popen(["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", "echo; sleep 1000; :"],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd="/")
            node.stdout.readline()
            with open(f"/proc/{node.pid}/task/{node.pid}/children", encoding="utf-8") as file:
                init = int(file.read())
            # Neither is in its process namespace, which the kernel clears away.
            shim = subprocess.Popen(["nsenter", f"--target={init}", "--net", "sleep", "777"], stdin=subprocess.DEVNULL, cwd="/")
            wait_for("it is in", lambda: os.readlink(f"/proc/{shim.pid}/ns/net") == os.readlink(f"/proc/{init}/ns/net"), 10)
            pin = os.path.join(directory, "pin")
            run(["touch", pin])
            run(["mount", "--bind", f"/proc/{init}/ns/net", pin])
            leftovers.note_holders(directory, init)
            answers.append(sorted(line.split(":")[0] for line in leftovers.still_held(directory)))
            node.kill()
            node.wait(20)
            node.stdout.close()
            wait_for("the node is gone", lambda: start_time(init) is None, 20)
            answers.append(leftovers.still_held(directory))
            shim.kill()
            shim.wait(20)
            run(["umount", pin])
            leftovers.note_holders(directory, init)  # Of a node that is off nothing is noted.
            return [*answers, leftovers.still_held(directory)]

        with tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
            first, all_of_it, leaked, last = apart(lambda: held(directory))
        self.assertEqual((first, last), ([], []))
        # unshare, process 1 with its sleep, and what is outside.
        self.assertEqual(all_of_it, ["namespace of a node"] + ["process of a node"] * 4)
        self.assertEqual(len(leaked), 2)
        self.assertRegex(leaked[0], r"^namespace of a node: net:\[\d+\] mounted at /\S+/pin$")
        self.assertRegex(leaked[1], r"^process of a node: \d+ sleep 777$")

    def test_who_has_the_machine_alone_is_told_of_what_bears_no_mark(self):
        with tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
            before = leftovers.snapshot(directory, "mu249")
            holder = subprocess.Popen(["unshare", "--mount", "--pid", "--net", "--fork", "sh", "-c", "echo; read line"],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd="/")
            rule = ["-p", "udp", "--dport", "1", "-d", "127.0.0.2", "-j", "ACCEPT"]
            try:
                self.assertEqual(holder.stdout.readline(), b"\n")
                subprocess.run(["iptables", "-w", "-I", "OUTPUT", *rule], check=True, timeout=60)
                after = leftovers.snapshot(directory, "mu249")
            finally:
                subprocess.run(["iptables", "-w", "-D", "OUTPUT", *rule], check=False, timeout=60)
                holder.communicate(timeout=60)
        wanted = {"mount namespace", "process namespace", "network namespace", "firewall rule"}
        for alone in ("1", "0"):
            with unittest.mock.patch.dict(os.environ, {"MUSTER_STRICT_LEFTOVERS": alone}):
                ours, others = leftovers.left_behind(before, after, directory, "mu249", "10.249")
            told, kept = (ours, others) if alone == "1" else (others, ours)
            self.assertLessEqual(wanted, {line.split(":")[0] for line in told})
            self.assertEqual([line for line in kept if line.split(":")[0] in wanted], [])

    def test_a_cluster_whose_making_is_interrupted_or_killed_leaves_nothing(self):
        program = os.path.join(HERE, "..", "..", "scripts", "cluster")
        for number, expected in ((signal.SIGTERM, 143), (signal.SIGKILL, -signal.SIGKILL)):
            with self.subTest(number), tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
                state = os.path.join(directory, "state")
                making = subprocess.Popen([program, "up", "--state", state], stdout=subprocess.DEVNULL,
                                          stderr=subprocess.DEVNULL)
                record = os.path.join(state, "run", "node1-containerd.json")
                wait_for("the node is being made", lambda: os.path.exists(record), 120)
                attached = Cluster.attach(state)
                making.send_signal(number)
                self.assertEqual(making.wait(60), expected)
                down = subprocess.run([program, "down", "--state", state], capture_output=True, text=True, timeout=120)
                self.assertEqual(down.returncode, 0, down.stderr)
                self.assertFalse(os.path.exists(state))
                self.no_trace(attached.before, state, attached.tag, attached.network)

    def test_a_cluster_that_cannot_come_up_whole_is_taken_down_again(self):
        with tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
            state = os.path.join(directory, "state")
            cluster = Cluster(state, extra={"kube-scheduler": ["--no-such-flag"]})
            with self.assertRaisesRegex(ClusterError, "(?s)kube-scheduler has ended.*no-such-flag.*taken down again"
                                        ) as failure:
                cluster.up()
            logs = str(failure.exception).rsplit("logs: ", 1)[1]
            self.addCleanup(shutil.rmtree, logs)
            self.assertFalse(os.path.exists(state))
            self.assertFalse(os.path.exists(f"/sys/class/net/{cluster.bridge}"))
            with open(f"{logs}/kube-scheduler.log", encoding="utf-8") as file:
                self.assertIn("no-such-flag", file.read())

    def test_nodes_that_the_firewall_keeps_apart_are_told_so(self):
        with tempfile.TemporaryDirectory(prefix="muster-cluster-") as directory:
            with Cluster(os.path.join(directory, "state"), nodes=2) as cluster:
                cluster._check_cables()
                # Stands for the machine's own firewall, which is everybody's.
                cluster.node(2).run("iptables", "-I", "INPUT", "-s", cluster.node(1).address, "-j", "DROP")
                with self.assertRaisesRegex(ClusterError, "node1 does not reach node2: the machine's firewall"):
                    cluster._check_cables()


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: the cluster's tests need root")
        sys.exit(0)
    unittest.main()
