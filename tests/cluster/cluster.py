"""A whole Kubernetes cluster on this machine: control plane, CoreDNS and any number of real nodes.

Outside its directory a cluster has a bridge, its nodes' cables, routes and cgroups, all named by its tag, and nothing
else: firewall rules, mounts and pods' interfaces live in the nodes' namespaces. Needs root. Clusters of different
directories run side by side.
"""

import ipaddress
import json
import os
import re
import shutil
import socket
import tempfile
import time

import image
import leftovers
from control_plane import ControlPlane, kube_tools
from node import NODE, PAUSE, VOLUMES, Node, forgo_ipv6
from pki import write_kubeconfig
from processes import ClusterError, Daemon, fetch, free_ports, run, start_time

NETWORKS = range(100, 250)  # A cluster's addresses are 10.N.0.0/16.
NODES_MAX = 50
LOCK_SECONDS = 60
GONE_SECONDS = 30
PACKAGES = {"containerd": "containerd", "runc": "runc", "iptables": "iptables", "ip": "iproute2",
            "nsenter": "util-linux", "unshare": "util-linux", "openssl": "openssl", "gcc": "gcc",
            "/usr/bin/python3": "python3", "/bin/busybox": "busybox"}

REGISTRY = """version: 0.1
log: {level: warn}
storage: {filesystem: {rootdirectory: %(directory)s}}
http: {addr: %(address)s}
"""
COREFILE = """cluster.local:%(port)d in-addr.arpa:%(port)d {
  bind %(address)s
  errors
  ready 127.0.0.1:%(ready)d
  kubernetes {
    kubeconfig "%(kubeconfig)s"
    pods insecure
    ttl 5
  }
  cache 5
}
.:%(port)d {
  bind %(address)s
  template ANY ANY {
    rcode NXDOMAIN
  }
}
"""


def start_of_machine():
    """Another text after each start of the machine, or of the container that we see as one."""
    with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
        return f"{file.read().strip()} {start_time(1)}"


class Cluster:
    """`with Cluster(directory, nodes=2) as cluster:` for tests, up() and down() for the command line.

    As a context manager everything dies with the calling thread, and what is not a process is removed at the end;
    ClusterError then, if anything was left behind. `extra`: program -> further arguments, and under
    "kubelet-configuration" further fields of that. `plane` has kubectl(), user() and the like.
    """

    def __init__(self, directory, nodes=1, dies_with_us=True, extra=None):
        if not 1 <= nodes <= NODES_MAX:
            raise ClusterError(f"a cluster has 1 to {NODES_MAX} nodes, not {nodes}")
        self.directory = os.path.abspath(directory)
        self.dies_with_us, self.extra = dies_with_us, extra or {}
        self.base = self.before = self.plane = self.machine = self.maker = None
        self.count, self.nodes = nodes, []  # They are named once the addresses are known.

    # Everything that follows from the number that was chosen.
    def _derive(self, base):
        self.base, self.tag, self.network = base, f"mu{base}", f"10.{base}"
        self.bridge, self.gateway = f"{self.tag}br", f"{self.network}.0.1"
        self.pod_subnet, self.service_subnet = f"{self.network}.0.0/17", f"{self.network}.128.0/20"
        self.dns_address = f"{self.network}.128.10"
        self.pause_archive = os.path.join(self.directory, "pause.tar")
        self.nodes = [Node(self, number) for number in range(1, self.count + 1)]

    def __enter__(self):
        self.up()
        return self

    def __exit__(self, kind, *_):
        ours, _ = self.down()
        if ours and kind is None:
            raise ClusterError("the cluster left behind: " + "; ".join(ours[:10]))

    @classmethod
    def attach(cls, directory):
        """The cluster that was brought up in that directory, whole or in part."""
        try:
            with open(os.path.join(directory, "cluster.json"), encoding="utf-8") as file:
                saved = json.load(file)
        except (OSError, ValueError):
            raise ClusterError(f"no cluster in {directory}; scripts/cluster up makes one") from None
        cluster = cls(directory, saved["nodes"], saved["dies_with_us"])
        cluster._derive(saved["base"])
        cluster.before, cluster.machine, cluster.maker = saved["before"], saved.get("machine"), saved.get("maker")
        if os.path.exists(os.path.join(directory, "plane.json")):
            cluster.plane = ControlPlane.attach(cluster.directory)
        return cluster

    def up(self):
        """Brings everything up, or nothing: what was made is removed when a part fails."""
        self._check_machine()
        if os.path.exists(os.path.join(self.directory, "cluster.json")):
            there = Cluster.attach(self.directory)
            if there.runs():
                raise ClusterError(f"there is a cluster in {self.directory}; scripts/cluster down takes it down")
            left, _ = there.down()
            if left:
                raise ClusterError("of a cluster that runs no more there is left: " + "; ".join(left[:10]))
        if os.path.isdir(self.directory) and os.listdir(self.directory):
            raise ClusterError(f"{self.directory} is not empty; name another --state")
        try:
            os.makedirs(self.directory, mode=0o700, exist_ok=True)
            self._claim_network()
            image.pause_image(self.pause_archive, PAUSE)
            self.plane = ControlPlane(self.directory, True, True, host=self.gateway,
                                      service_subnet=self.service_subnet, dies_with_us=self.dies_with_us,
                                      extra=self.extra, programs=["kubelet", "kube-proxy", "coredns"])
            self.plane.start()
            self._publish_services()
            for node in self.nodes:
                node.start()
            for node in self.nodes:
                node.ready()
            self._check_cables()
            self._publish_volumes()
        except BaseException as error:
            # An interruption needs no explaining, so it leaves nothing at all.
            kept = self._keep_logs() if isinstance(error, ClusterError) else None
            left, _ = self.down()
            if kept:
                raise ClusterError(f"{error}\nEverything was taken down again; logs: {kept}"
                                   + "".join(f"\nleft behind: {line}" for line in left)) from None
            raise

    @staticmethod
    def _check_machine():
        if os.geteuid() != 0:
            raise ClusterError("real nodes need root (namespaces, mounts, cgroups); run it with sudo")
        missing = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
        if missing:
            raise ClusterError(f"not installed: {', '.join(missing)}; run scripts/install-deps --cluster")

    def _claim_network(self):
        """Takes the first 10.N.0.0/16 that no route of the machine touches, and makes the bridge that holds it."""
        with socket.socket(socket.AF_UNIX) as lock:  # Gone with the process, however that ends.
            deadline = time.monotonic() + LOCK_SECONDS
            while True:
                try:
                    lock.bind("\0muster-cluster-network")
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise ClusterError(f"another cluster has been choosing its addresses for {LOCK_SECONDS} s") \
                            from None
                    time.sleep(0.05)
            routes = run(["ip", "-4", "route", "show", "table", "all"])
            taken = [ipaddress.ip_network(text, strict=False)
                     for text in re.findall(r"\b10\.\d+\.\d+\.\d+(?:/\d+)?", routes)]
            for base in NETWORKS:
                wanted = ipaddress.ip_network(f"10.{base}.0.0/16")
                used = any(wanted.overlaps(network) for network in taken)
                if not used and not os.path.exists(f"/sys/class/net/mu{base}br"):
                    break
            else:
                raise ClusterError("no 10.N.0.0/16 from 10.100 to 10.249 is free of routes on this machine")
            self._derive(base)
            self.before = leftovers.snapshot(self.directory, self.tag)
            self.machine, self.maker = start_of_machine(), [os.getpid(), start_time(os.getpid())]
            with open(os.path.join(self.directory, "cluster.json"), "w", encoding="utf-8") as file:
                json.dump({"base": base, "nodes": self.count, "dies_with_us": self.dies_with_us,
                           "before": self.before, "machine": self.machine, "maker": self.maker}, file)
            run(["ip", "link", "add", self.bridge, "type", "bridge"])
            forgo_ipv6(self.bridge)
            run(["ip", "address", "add", f"{self.gateway}/24", "dev", self.bridge])
            run(["ip", "link", "set", self.bridge, "up"])

    def apply(self, *objects):
        self.plane.kubectl("apply", "--server-side", "-f", "-", stdin=json.dumps(
            {"apiVersion": "v1", "kind": "List", "items": list(objects)}))

    def _publish_services(self):
        """The cluster's name service and the API server, as services that pods reach."""
        plane = self.plane
        (dns,), (ready,) = free_ports(1, self.gateway), free_ports(1)
        corefile = os.path.join(self.directory, "Corefile")
        certificate, key = plane.authority.issue("coredns", "system:coredns")
        kubeconfig = write_kubeconfig(os.path.join(self.directory, "coredns.kubeconfig"), plane.url, plane.ca_file,
                                      "coredns", certificate, key)
        with open(corefile, "w", encoding="utf-8") as file:
            file.write(COREFILE % {"port": dns, "address": self.gateway, "ready": ready, "kubeconfig": kubeconfig})

        def piece(api, kind, name, namespace=None, labels=None, **rest):
            metadata = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": labels or {}}
            return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}

        def endpoints(service, namespace, ports):
            return piece("discovery.k8s.io/v1", "EndpointSlice", service, namespace,
                         {"kubernetes.io/service-name": service}, addressType="IPv4", ports=ports,
                         endpoints=[{"addresses": [self.gateway], "conditions": {"ready": True}}])

        names = [("dns", "UDP"), ("dns-tcp", "TCP")]
        self.apply(
            piece("rbac.authorization.k8s.io/v1", "ClusterRole", "system:coredns", rules=[
                {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
                {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]),
            piece("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "system:coredns",
                  roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
                  subjects=[{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}]),
            piece("v1", "Service", "kube-dns", "kube-system", {"k8s-app": "kube-dns"}, spec={
                "clusterIP": self.dns_address,
                "ports": [{"name": name, "protocol": kind, "port": 53, "targetPort": dns} for name, kind in names]}),
            endpoints("kube-dns", "kube-system",
                      [{"name": name, "protocol": kind, "port": dns} for name, kind in names]),
            endpoints("kubernetes", "default",
                      [{"name": "https", "protocol": "TCP", "port": int(plane.url.rsplit(":", 1)[1])}]))
        daemon = plane.daemon("coredns", [os.path.join(plane.bin, "coredns"), "-conf", corefile])
        daemon.wait_ready(lambda: fetch(f"http://127.0.0.1:{ready}/ready") == b"OK", 60)

    def _publish_volumes(self):
        """Some volumes on each node, and the class that claims get when they name none."""
        volumes = [{
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"{node.name}-v{number}"},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local",
                     "persistentVolumeReclaimPolicy": "Retain", "local": {"path": f"{NODE}/volumes/v{number}"},
                     "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                         {"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}]}]}}}}
            for node in self.nodes for number in range(1, VOLUMES + 1)]
        self.apply({"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "provisioner":
                    "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer",
                    "metadata": {"name": "local", "annotations": {
                        "storageclass.kubernetes.io/is-default-class": "true"}}}, *volumes)

    def _check_cables(self):
        """Whether the machine lets the nodes talk: bridged packets pass its firewall, which is not ours to change."""
        for one, other in zip(self.nodes, self.nodes[1:]):
            for source, target in ((one, other), (other, one)):
                if not source.reaches(target):
                    raise ClusterError(f"{source.name} does not reach {target.name}: the machine's firewall drops what "
                                       f"it forwards (`iptables -S FORWARD`); accept it on {self.tag}br, or set "
                                       "net.bridge.bridge-nf-call-iptables to 0")

    def clean_volumes(self):
        """Empties the volumes whose claims are gone and offers them again; returns their names."""
        cleaned = []
        for volume in self.plane.kubectl_json("get", "persistentvolumes")["items"]:
            name = volume["metadata"]["name"]
            if volume["status"].get("phase") == "Released":
                node, number = name[len("node"):].split("-v")
                self.node(int(node)).clean_volume(int(number))
                self.kubectl("patch", "persistentvolume", name, "--type=json",
                             '--patch=[{"op": "remove", "path": "/spec/claimRef"}]')
                cleaned.append(name)
        return cleaned

    def _keep_logs(self):
        """Copies the logs out of the directory, which is about to go."""
        source = os.path.join(self.directory, "log")
        if not os.path.isdir(source):
            return "none were written"
        target = tempfile.mkdtemp(prefix="muster-cluster-log-")
        shutil.copytree(source, target, dirs_exist_ok=True)
        return target

    def runs(self):
        """Whether a program of it runs, or who brings it up. None does after a restart of the machine."""
        return bool(self.maker and start_time(self.maker[0]) == self.maker[1]) or any(
            Daemon.load(self.directory, name).alive() for name in Daemon.names(self.directory))

    def down(self):
        """Ends and removes everything; returns what is left (ours, others; see leftovers.left_behind)."""
        if self.base is None:
            return [], []
        if self.machine != start_of_machine() and not self.runs():
            # Outside of the directory there is nothing of it: what bears its marks is another's, with the same addresses.
            shutil.rmtree(self.directory)
            return [], []
        problems = []
        for node in self.nodes:
            try:
                node.remove()
            except ClusterError as error:
                problems.append(str(error))
        for name in reversed(Daemon.names(self.directory)):
            try:
                Daemon.load(self.directory, name).kill()
            except ClusterError as error:
                problems.append(str(error))
        if os.path.exists(f"/sys/class/net/{self.bridge}"):
            run(["ip", "link", "del", self.bridge], check=False)
        deadline = time.monotonic() + GONE_SECONDS
        while True:  # The kernel clears namespaces away in its own time.
            ours, others = leftovers.left_behind(self.before, leftovers.snapshot(self.directory, self.tag), self.directory,
                                                 self.tag, self.network)
            ours += leftovers.still_held(self.directory)
            if not ours or time.monotonic() > deadline:
                break
            time.sleep(0.2)
        if not ours and not problems:
            # Only now: the directory knows what there is to remove.
            shutil.rmtree(self.directory, ignore_errors=True)
            if os.path.exists(self.directory):
                problems.append(f"{self.directory} cannot be removed whole")
        return problems + ours, others

    def node(self, number):
        if not 1 <= number <= len(self.nodes):
            raise ClusterError(f"this cluster has the nodes 1 to {len(self.nodes)}, not {number}")
        return self.nodes[number - 1]

    def load(self, archive):
        """Brings an image archive into every node that is on; returns the images' names."""
        if not os.path.isfile(archive):
            raise ClusterError(f"{archive}: no such file")
        names = []
        for node in self.nodes:
            if node.running():
                names = node.load(archive)
        return names

    def registry(self):
        """Starts a registry on the bridge, plain HTTP, that all nodes pull from; its HOST:PORT. Once per cluster."""
        path = os.path.join(self.directory, "registry.yaml")
        if os.path.exists(path):
            raise ClusterError("this cluster has a registry")
        program = os.path.join(kube_tools(["registry"]), "registry")
        (port,) = free_ports(1, self.gateway)
        address = f"{self.gateway}:{port}"
        with open(path, "w", encoding="utf-8") as file:
            file.write(REGISTRY % {"directory": json.dumps(os.path.join(self.directory, "registry")),
                                   "address": json.dumps(address)})
        daemon = Daemon(self.directory, "registry", [program, "serve", path], {"OTEL_TRACES_EXPORTER": "none"},
                        self.dies_with_us).start()
        daemon.wait_ready(lambda: fetch(f"http://{address}/v2/") == b"{}", 60)
        for node in self.nodes:
            node.pull_without_tls(address)
        return address

    def api_stop(self):
        """Takes the API server away; etcd, nodes and pods stay."""
        self.plane.api().stop()

    def api_start(self):
        self.plane.api().start()
        self.plane.wait_api_ready()

    def status(self):
        """Lines of (name, state) of everything that should run."""
        return [(name, "running" if Daemon.load(self.directory, name).alive() else "not running")
                for name in Daemon.names(self.directory)]

    def kubectl(self, *arguments, **rest):
        return self.plane.kubectl(*arguments, **rest)
