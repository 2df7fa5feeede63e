"""One real node: kubelet, containerd, runc, CNI and kube-proxy in namespaces of its own on this machine.

The node's process 1 (node_init.py) holds its mount, network and process namespaces; killing it is the node's loss of
power. Outside of them a node has a directory (its disk), one end of a cable (a veth in the cluster's bridge), a route
to its pods and a group in every cgroup hierarchy. Pods are routed, not bridged, so that traffic to services is
translated also between two pods of one node. NetworkPolicy is not enforced.
"""

import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import time

import leftovers
from pki import write_kubeconfig
from processes import ClusterError, Daemon, SELDOM_COLLECTED, fetch, run, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
PAUSE = "muster.dev/pause:1"
HIDDEN = ("/var/lib/", "/var/log/", "/run/")  # What a node does not see of the machine.
CNI_PROGRAMS = ("/usr/lib/cni", "/opt/cni/bin")
CGROUPS = "/sys/fs/cgroup"
NODE = "/var/lib/muster"  # Where the node's own files are, as the node sees them.
VOLUMES = 8
KUBELET_PORT = 10250
PROXY_PORT = 10256  # Of its health.

CONTAINERD = """version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
                    "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs",
                    "io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing"]
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "%(pause)s"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "%(snapshotter)s"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "%(cni)s"
    conf_dir = "/var/lib/muster/cni"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "/var/lib/muster/registries"
"""


def hierarchies():
    """The cgroup file systems of this machine: one under version 2, one per controller under version 1."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        lines = [line.split() for line in file]
    return sorted({line[1] for line in lines if line[2] in ("cgroup", "cgroup2")
                   and (line[1] == CGROUPS or line[1].startswith(CGROUPS + "/"))})


def forgo_ipv6(link):
    """The cluster speaks IPv4 alone. The kernel would give the link an address a second or two after it is up, with a
    route that whoever looks in between finds only afterwards. Nothing to do where there is no IPv6."""
    run(["ip", "link", "set", link, "addrgenmode", "none"], check=False)


class Node:
    """The node of that number, from 1; `cluster` is what it belongs to (tag, network, plane, directory)."""

    def __init__(self, cluster, number):
        self.cluster, self.number = cluster, number
        self.name = f"node{number}"
        self.cable = f"{cluster.tag}n{number}"
        self.group = f"{cluster.tag}-{self.name}"
        self.address = f"{cluster.network}.0.{10 + number}"
        self.pods = f"{cluster.network}.{number}.0/24"
        self.storage = os.path.join(cluster.directory, self.name)

    # The daemons by their role, as last started.
    def daemon(self, role):
        return Daemon.load(self.cluster.directory, f"{self.name}-{role}")

    def running(self):
        try:
            return self.daemon("init").alive()
        except ClusterError:
            return False

    def _enter(self, *command):
        return ["nsenter", f"--target={self.daemon('init').pid}", "--mount", "--net", "--pid", "--", *command]

    def run(self, *command, seconds=60, check=True):
        """Output of a command in the node's namespaces."""
        return run(self._enter(*command), seconds, check=check)

    def start_program(self, role, *command):
        """Starts a daemon in the node's namespaces; the node's end is its end."""
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        return Daemon(self.cluster.directory, f"{self.name}-{role}", self._enter(*command), {**SELDOM_COLLECTED, "PATH": path},
                      self.cluster.dies_with_us, wrapped=True).start()

    def _file(self, name, content):
        """Writes a file of the node's own; returns its path as the node sees it."""
        path = os.path.join(self.storage, "lib", "muster", name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content, indent=1))
        return f"{NODE}/{name}"

    def pull_without_tls(self, registry):
        """Lets the node pull from a registry HOST:PORT that speaks plain HTTP."""
        self._file(f"registries/{registry}/hosts.toml",
                   f'server = "http://{registry}"\n[host."http://{registry}"]\n  capabilities = ["pull", "resolve"]\n')

    def start(self):
        """Turns the node on. Returns when its services run; ready() waits until the API server has heard so."""
        self._write_configuration()
        self._start_init()
        self._connect()
        self._make_cgroups()
        self._start_containerd()
        self._start_kubelet()
        proxy = self.start_program("kube-proxy", os.path.join(self.cluster.plane.bin, "kube-proxy"),
                            f"--config={NODE}/kube-proxy.json")
        proxy.wait_ready(lambda: fetch(f"http://{self.address}:{PROXY_PORT}/healthz"), 120)

    def _write_configuration(self):
        for folder in ("lib/containerd", "lib/kubelet", "lib/cni", "lib/muster/volumes", "log/pods", "log/containers"):
            os.makedirs(os.path.join(self.storage, folder), exist_ok=True)
        for number in range(1, VOLUMES + 1):
            if not os.path.isdir(self._volume(number)):
                self.clean_volume(number)
        programs = next((path for path in CNI_PROGRAMS if os.path.exists(f"{path}/ptp")), None)
        if programs is None:
            raise ClusterError("no CNI plugins in " + " or ".join(CNI_PROGRAMS)
                               + "; run scripts/install-deps --cluster")
        # Overlay over overlay, as inside a container, is refused by the kernel.
        file_system = run(["stat", "-f", "-c", "%T", self.storage]).strip()
        self._file("containerd.toml", CONTAINERD % {
            "pause": PAUSE, "cni": programs, "snapshotter": "native" if "overlay" in file_system else "overlayfs"})
        self._file("cni/10-muster.conflist", {
            "cniVersion": "0.4.0", "name": "muster", "plugins": [
                {"type": "ptp", "ipMasq": False,
                 "ipam": {"type": "host-local", "ranges": [[{"subnet": self.pods}]], "routes": [{"dst": "0.0.0.0/0"}]}},
                {"type": "portmap", "capabilities": {"portMappings": True}}]})
        self._file("resolv.conf", f"nameserver {self.cluster.dns_address}\n")
        plane = self.cluster.plane
        self._write_client(f"system:node:{self.name}", "kubelet", ["system:nodes"])
        self._write_client("system:kube-proxy", "kube-proxy", [])
        with open(plane.ca_file, encoding="utf-8") as file:
            self._file("ca.crt", file.read())
        self._file("kubelet.json", self._kubelet_configuration())
        self._file("kube-proxy.json", {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration", "mode": "iptables",
            "clientConnection": {"kubeconfig": f"{NODE}/kube-proxy.kubeconfig"}, "hostnameOverride": self.name,
            "clusterCIDR": self.cluster.pod_subnet, "detectLocalMode": "ClusterCIDR", "bindAddress": self.address,
            "healthzBindAddress": f"{self.address}:{PROXY_PORT}", "metricsBindAddress": "127.0.0.1:10249",
            # Limits that belong to the whole machine are left alone.
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}})

    def _write_client(self, common_name, program, organizations):
        plane = self.cluster.plane
        path = os.path.join(self.storage, "lib", "muster", f"{program}.kubeconfig")
        certificate, key = plane.authority.issue(f"{self.name}-{program}", common_name, organizations)
        write_kubeconfig(path, plane.url, plane.ca_file, program, certificate, key)

    def _kubelet_configuration(self):
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "address": self.address, "port": KUBELET_PORT, "healthzBindAddress": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True},
                               "x509": {"clientCAFile": f"{NODE}/ca.crt"}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.cluster.dns_address], "clusterDomain": "cluster.local",
            "resolvConf": f"{NODE}/resolv.conf",
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs", "cgroupRoot": f"/{self.group}", "failCgroupV1": False, "failSwapOn": False,
            "enforceNodeAllocatable": [], "serializeImagePulls": False, "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99, "volumePluginDir": "/var/lib/kubelet/plugins-exec",
            # The machine is the user's; its disk being nearly full is no reason to evict pods here.
            "evictionHard": {"memory.available": "32Mi", "nodefs.available": "1%", "nodefs.inodesFree": "1%",
                             "imagefs.available": "1%"},
            "nodeStatusUpdateFrequency": "5s", "shutdownGracePeriod": "0s",
            **self.cluster.extra.get("kubelet-configuration", {})}

    def _start_init(self):
        for path in (self.cluster.plane.bin, HERE):
            if (os.path.realpath(path) + "/").startswith(HIDDEN):
                raise ClusterError(f"a node does not see {path}: put it elsewhere than under {', '.join(HIDDEN)}")
        daemon = Daemon(self.cluster.directory, f"{self.name}-init",
                        ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "/usr/bin/python3",
                         os.path.join(HERE, "node_init.py"), self.storage],
                        dies_with_us=self.cluster.dies_with_us, wrapped=True)
        if os.path.exists(daemon.log):
            os.unlink(daemon.log)
        daemon.start()

        def is_ready():
            with open(daemon.log, encoding="utf-8", errors="replace") as file:
                return "ready" in file.read()

        daemon.wait_ready(is_ready, 30)

    def _connect(self):
        """Plugs the node's cable into the cluster's bridge and tells both sides the ways."""
        if os.path.exists(f"/sys/class/net/{self.cable}"):
            run(["ip", "link", "del", self.cable])
        run(["ip", "link", "add", self.cable, "type", "veth", "peer", "name", "eth0",
             "netns", str(self.daemon("init").pid)])
        forgo_ipv6(self.cable)
        run(["ip", "link", "set", self.cable, "master", self.cluster.bridge, "up"])
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")
        self.run("ip", "route", "add", "default", "via", self.cluster.gateway)
        for other in self.cluster.nodes:
            if other.number != self.number:
                self.run("ip", "route", "add", other.pods, "via", other.address)
        run(["ip", "route", "replace", self.pods, "via", self.address, "dev", self.cluster.bridge])

    def _make_cgroups(self):
        """A root of the node's own: kubelets that share one take each other's pods for orphans."""
        for hierarchy in hierarchies():
            group = os.path.join(hierarchy, self.group)
            try:
                if hierarchy == CGROUPS:
                    self._delegate(hierarchy)
                os.makedirs(group, exist_ok=True)
                if hierarchy == CGROUPS:
                    self._delegate(group)
                for name in ("cpuset.cpus", "cpuset.mems"):
                    source, target = os.path.join(hierarchy, name), os.path.join(group, name)
                    if hierarchy != CGROUPS and os.path.exists(target):
                        with open(source, encoding="utf-8") as file:
                            value = file.read()
                        with open(target, "w", encoding="utf-8") as file:
                            file.write(value)
            except OSError as error:
                raise ClusterError(f"{error.filename or group}: {error.strerror}; a node needs to make cgroups: "
                                   "run as root, outside of containers that forbid it") from None

    @staticmethod
    def _delegate(group):
        """Version 2: lets the children of `group` have what kubelet wants."""
        with open(f"{group}/cgroup.controllers", encoding="utf-8") as file:
            there = file.read().split()
        with open(f"{group}/cgroup.subtree_control", encoding="utf-8") as file:
            missing = set(there) & {"cpu", "cpuset", "memory", "pids", "io", "hugetlb"} - set(file.read().split())
        for controller in sorted(missing):
            with open(f"{group}/cgroup.subtree_control", "w", encoding="utf-8") as file:
                file.write(f"+{controller}")

    def _start_containerd(self):
        containerd = self.start_program("containerd", "containerd", "--config", f"{NODE}/containerd.toml")
        containerd.wait_ready(lambda: "Server:" in self.run("ctr", "version", check=False), 60)
        if PAUSE not in self.images():
            self.load(self.cluster.pause_archive)

    def _start_kubelet(self):
        kubelet = self.start_program(
            "kubelet", os.path.join(self.cluster.plane.bin, "kubelet"), f"--config={NODE}/kubelet.json",
            f"--kubeconfig={NODE}/kubelet.kubeconfig", "--root-dir=/var/lib/kubelet",
            "--cert-dir=/var/lib/kubelet/pki", f"--hostname-override={self.name}", f"--node-ip={self.address}")
        kubelet.wait_ready(self._kubelet_listens, 120)

    def _kubelet_listens(self):
        with socket.create_connection((self.address, KUBELET_PORT), 5):
            return True

    def ready(self, seconds=120):
        """Waits until the API server shows the node as Ready."""
        def is_ready():
            node = json.loads(self.cluster.plane.get(f"/api/v1/nodes/{self.name}"))
            return any(condition["type"] == "Ready" and condition["status"] == "True"
                       for condition in node["status"].get("conditions", []))

        self.daemon("kubelet").wait_ready(is_ready, seconds)

    def reaches(self, other):
        """Whether a connection from this node to the other's kubelet comes about."""
        out = self.run("/bin/sh", "-c", f"timeout 10 /bin/busybox nc {other.address} {KUBELET_PORT} </dev/null && "
                       "echo reached", check=False)
        return "reached" in out

    def images(self):
        return self.run("ctr", "--namespace=k8s.io", "images", "list", "--quiet").split()

    def load(self, archive, seconds=300):
        """Imports an OCI or Docker archive into the node's containerd; returns the names it brought."""
        # Through a pipe: the node does not see every path of the machine.
        with open(archive, "rb") as file:
            try:
                done = subprocess.run(self._enter("ctr", "--namespace=k8s.io", "images", "import", "-"), stdin=file,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds,
                                      check=False)
            except subprocess.TimeoutExpired:
                raise ClusterError(f"{archive} was not imported into {self.name} in {seconds} s") from None
        if done.returncode != 0:
            raise ClusterError(f"{archive} cannot be imported into {self.name}: {done.stdout.strip()[-1000:]}")
        return [line.split()[1] for line in done.stdout.splitlines() if line.startswith("unpacking ")]

    def kubelet_restart(self):
        """Ends and starts kubelet; the node's pods go on."""
        self.daemon("kubelet").stop()
        self._start_kubelet()

    def power_off(self):
        """As when the plug is pulled: nobody is told, nothing is written, nothing runs on."""
        if self.running():
            leftovers.note_holders(self.cluster.directory, self.daemon("init").pid)
        if os.path.exists(f"/sys/class/net/{self.cable}"):
            run(["ip", "link", "set", self.cable, "down"], check=False)
        for pid in self.pod_pids():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.running():
            self.daemon("init").kill()
        for role in ("kube-proxy", "kubelet", "containerd"):
            try:
                daemon = self.daemon(role)
            except ClusterError:
                continue
            daemon.kill()
        wait_for(f"the pods of {self.name} are gone", lambda: not self.pod_pids(), 30)

    def pod_pids(self):
        """The pids in the node's cgroups: its pods."""
        pids = set()
        for hierarchy in hierarchies():
            for path in glob.glob(f"{hierarchy}/{self.group}/**/cgroup.procs", recursive=True):
                try:
                    with open(path, encoding="utf-8") as file:
                        # 0 is a process that our own namespace does not show.
                        pids.update(int(line) for line in file.read().split() if int(line) > 0)
                except OSError:
                    pass
        return pids

    def _volume(self, number):
        return os.path.join(self.storage, "lib", "muster", "volumes", f"v{number}")

    def clean_volume(self, number):
        """Empties a volume that no pod uses any more."""
        volume = self._volume(number)
        shutil.rmtree(volume, ignore_errors=True)
        os.makedirs(volume)
        os.chmod(volume, 0o777)  # As a provisioner does: pods choose their users.

    def remove(self):
        """Turns the node off and removes what it has outside its directory."""
        self.power_off()
        if os.path.exists(f"/sys/class/net/{self.cable}"):
            run(["ip", "link", "del", self.cable], check=False)
        deadline = time.monotonic() + 20
        for hierarchy in hierarchies():
            for folder, _, _ in os.walk(f"{hierarchy}/{self.group}", topdown=False):
                self._remove_group(folder, deadline)

    @staticmethod
    def _remove_group(folder, deadline):
        while True:
            try:
                os.rmdir(folder)
                return
            except FileNotFoundError:
                return
            except OSError as error:
                # Busy for a moment after the last process has ended.
                if time.monotonic() > deadline:
                    raise ClusterError(f"{folder} cannot be removed: {error.strerror}") from None
                time.sleep(0.05)
