#!/usr/bin/env python3
"""A real Kubernetes control plane without nodes: etcd and kube-apiserver, on request controller-manager and scheduler.

    python3 tests/cluster/control_plane.py [--controller-manager] [--scheduler] -- COMMAND...

runs COMMAND with KUBECONFIG (an administrator's), PATH and KUBEBUILDER_ASSETS (the programs' directory) set and ends
with its exit code. Ports of the loopback interface, an own authority and an own directory: any number of them run side
by side, without root. Nothing outlives the command.
"""

import argparse
import http.client
import io
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from pki import Authority, write_kubeconfig  # noqa: E402
from processes import ClusterError, Daemon, SELDOM_COLLECTED, fetch, free_ports, run  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READY_SECONDS = 120  # An idle machine takes 5 s.
TOOLS_SECONDS = 4000  # Of a first call, which builds the programs.
PORT_TRIES = 3
MOST_BYTES = 1 << 24  # of an answer that is read
SERVICE_SUBNET = "10.96.0.0/16"


def kube_tools(names):
    """The directory that holds these programs."""
    done = subprocess.run([os.path.join(ROOT, "scripts", "kube-tools"), *names], text=True, stdout=subprocess.PIPE,
                          timeout=TOOLS_SECONDS, check=False)
    if done.returncode != 0:
        raise ClusterError("scripts/kube-tools does not provide " + ", ".join(names))
    return done.stdout.strip()


class ControlPlane:
    """etcd and kube-apiserver (Node, RBAC, NodeRestriction), up between `with` and its end.

    `directory` is made, takes logs, keys and etcd's data, and is left for the caller. It should be on a tmpfs.
    Without the controller manager nobody makes service accounts, so pods may name none (as in Kubernetes' envtest);
    nobody collects garbage either. `extra`: program -> further arguments. `programs`: others that `bin` shall hold.
    """

    SAVED = ["controller_manager", "scheduler", "host", "service_subnet", "service_address", "url", "kubeconfig",
             "ca_file", "bin"]

    def __init__(self, directory, controller_manager=False, scheduler=False, host="127.0.0.1", addresses=(),
                 service_subnet=SERVICE_SUBNET, dies_with_us=True, extra=None,
                 programs=()):
        self.directory = os.path.abspath(directory)
        self.controller_manager, self.scheduler = controller_manager, scheduler
        self.host, self.addresses, self.service_subnet = host, list(addresses), service_subnet
        self.dies_with_us, self.extra = dies_with_us, extra or {}
        self.programs = list(programs)
        self.service_address = service_subnet.split("/", maxsplit=1)[0].rsplit(".", 1)[0] + ".1"
        self.daemons = []
        self.url = self.kubeconfig = self.ca_file = self.bin = None
        self.authority = None
        self._kept = threading.local()

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_):
        self.stop()

    def start(self):
        names = ["etcd", "kube-apiserver", "kubectl"]
        names += ["kube-controller-manager"] if self.controller_manager else []
        names += ["kube-scheduler"] if self.scheduler else []
        self.bin = kube_tools([*names, *self.programs])
        os.makedirs(self.directory, exist_ok=True)
        self._make_keys()
        for attempt in range(PORT_TRIES):
            try:
                self._start_api()
                break
            except ClusterError as error:
                self.stop()
                self.daemons = []
                shutil.rmtree(os.path.join(self.directory, "etcd"), ignore_errors=True)
                if "address already in use" not in str(error) or attempt + 1 == PORT_TRIES:
                    raise
        if self.controller_manager:
            self._start_controller_manager()
        if self.scheduler:
            self._start_scheduler()
        with open(f"{self.directory}/plane.json", "w", encoding="utf-8") as file:
            json.dump({name: getattr(self, name) for name in self.SAVED}, file, indent=1)
        return self

    @classmethod
    def attach(cls, directory):
        """The control plane that another process started there (with dies_with_us=False) and left running."""
        try:
            with open(f"{directory}/plane.json", encoding="utf-8") as file:
                saved = json.load(file)
        except (OSError, ValueError) as error:
            raise ClusterError(f"no control plane in {directory}: {error}") from None
        plane = cls(directory)
        for name in cls.SAVED:
            setattr(plane, name, saved[name])
        plane.authority = Authority(os.path.join(directory, "pki"))
        plane.daemons = [Daemon.load(directory, name) for name in Daemon.names(directory)]
        return plane

    def api(self):
        """The API server's daemon."""
        for daemon in self.daemons:
            if daemon.name == "kube-apiserver":
                return daemon
        raise ClusterError("no kube-apiserver was started")

    def _make_keys(self):
        authority = self.authority = Authority(os.path.join(self.directory, "pki"))
        self.ca_file = authority.path("ca.crt")
        addresses = {"127.0.0.1", self.host, self.service_address, *self.addresses}
        authority.issue("apiserver", "kube-apiserver", addresses=sorted(addresses),
                        names=["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
                               "kubernetes.default.svc.cluster.local"])
        authority.issue("kubelet-client", "muster-kubelet-client", ["system:masters"])
        authority.issue("admin", "muster-admin", ["system:masters"])
        authority.key_pair("service-account")

    def daemon(self, name, command, env=None):
        """Starts a program that stop() ends, in the reverse order of starting."""
        daemon = Daemon(self.directory, name, [*command, *self.extra.get(name, [])], {**SELDOM_COLLECTED, **(env or {})},
                        self.dies_with_us)
        self.daemons.append(daemon)
        return daemon.start()

    def _start_api(self):
        client, peer, unused = free_ports(3)
        (port,) = free_ports(1, self.host)
        etcd = f"http://127.0.0.1:{client}"
        started = self.daemon("etcd", [
            os.path.join(self.bin, "etcd"), f"--data-dir={self.directory}/etcd", "--unsafe-no-fsync",
            f"--listen-client-urls={etcd}", f"--advertise-client-urls={etcd}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
            f"--initial-cluster=default=http://127.0.0.1:{peer}", "--log-level=warn",
            f"--listen-metrics-urls=http://127.0.0.1:{unused}"])
        started.wait_ready(lambda: b'"true"' in fetch(f"http://127.0.0.1:{unused}/health"), READY_SECONDS)
        self.url = f"https://{self.host}:{port}"
        key = self.authority.path
        command = [
            os.path.join(self.bin, "kube-apiserver"), f"--etcd-servers={etcd}", f"--bind-address={self.host}",
            f"--advertise-address={self.host}", f"--secure-port={port}", "--endpoint-reconciler-type=none",
            f"--service-cluster-ip-range={self.service_subnet}", f"--cert-dir={self.directory}",
            f"--tls-cert-file={key('apiserver.crt')}", f"--tls-private-key-file={key('apiserver.key')}",
            f"--client-ca-file={self.ca_file}", "--authorization-mode=Node,RBAC", "--allow-privileged",
            "--enable-admission-plugins=NodeRestriction", f"--service-account-key-file={key('service-account.pub')}",
            f"--service-account-signing-key-file={key('service-account.key')}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--kubelet-client-certificate={key('kubelet-client.crt')}",
            f"--kubelet-client-key={key('kubelet-client.key')}", "--kubelet-preferred-address-types=InternalIP",
            "--shutdown-delay-duration=0s", "--event-ttl=24h"]
        if not self.controller_manager:
            command.append("--disable-admission-plugins=ServiceAccount")
        self.kubeconfig = write_kubeconfig(f"{self.directory}/kubeconfig", self.url, self.ca_file, "admin",
                                           key("admin.crt"), key("admin.key"))
        self.daemon("kube-apiserver", command)
        self.wait_api_ready()

    def wait_api_ready(self):
        self.api().wait_ready(lambda: self.get("/readyz") == b"ok" and self.get("/api/v1/namespaces/default"), READY_SECONDS)

    def get(self, path, seconds=10):
        """The body of a GET as administrator; OSError (urllib.error.HTTPError) when it is refused.

        Each thread keeps its connection: a handshake costs both sides more than most answers. One that the server has closed
        in between is made anew.
        """
        connection = self._connection()
        is_kept = connection.sock is not None
        try:
            return self._ask(connection, path, seconds)
        except ConnectionError:
            if not is_kept:
                raise
        return self._ask(connection, path, seconds)

    def _connection(self):
        """This thread's to today's URL."""
        url, connection = getattr(self._kept, "connection", (None, None))
        if url != self.url:
            context = ssl.create_default_context(cafile=self.ca_file)
            context.load_cert_chain(self.authority.path("admin.crt"), self.authority.path("admin.key"))
            address = urllib.parse.urlsplit(self.url)
            connection = http.client.HTTPSConnection(address.hostname, address.port, context=context)
            self._kept.connection = (self.url, connection)
        return connection

    def _ask(self, connection, path, seconds):
        connection.timeout = seconds
        if connection.sock:
            connection.sock.settimeout(seconds)
        try:
            connection.request("GET", path)  # It connects where it is not connected.
            answer = connection.getresponse()
            body = answer.read(MOST_BYTES)
            if not answer.isclosed():  # There is more of it than is wanted.
                connection.close()
        except http.client.HTTPException as error:
            connection.close()
            raise ConnectionError(f"{self.url}{path}: {error!r}") from error
        except BaseException:
            connection.close()
            raise
        if answer.status >= 400:
            raise urllib.error.HTTPError(self.url + path, answer.status, answer.reason, answer.headers, io.BytesIO(body))
        return body

    def items(self, path, seconds=10):
        """All objects of a list, asked for in pages, because an answer is read up to 16 MiB. Errors: as get."""
        more = ""
        while True:
            page = json.loads(self.get(f"{path}?limit=500&continue={urllib.parse.quote(more)}", seconds))
            yield from page["items"]
            more = page["metadata"].get("continue", "")
            if not more:
                return

    def _client(self, name):
        """A kubeconfig of a component that the cluster's built-in roles know."""
        certificate, key = self.authority.issue(name, f"system:{name}")
        return write_kubeconfig(f"{self.directory}/{name}.kubeconfig", self.url, self.ca_file, name, certificate, key)

    def _start_controller_manager(self):
        (port,) = free_ports(1)
        started = self.daemon("kube-controller-manager", [
            os.path.join(self.bin, "kube-controller-manager"), f"--kubeconfig={self._client('kube-controller-manager')}",
            "--bind-address=127.0.0.1", f"--secure-port={port}", "--leader-elect=false",
            "--use-service-account-credentials", f"--root-ca-file={self.ca_file}",
            f"--service-account-private-key-file={self.authority.path('service-account.key')}",
            f"--cluster-signing-cert-file={self.ca_file}", f"--cluster-signing-key-file={self.authority.path('ca.key')}"])
        started.wait_ready(lambda: unverified(f"https://127.0.0.1:{port}/healthz") == b"ok", READY_SECONDS)
        # Pods cannot be made before their namespace's service account is.
        started.wait_ready(lambda: self.get("/api/v1/namespaces/default/serviceaccounts/default"), READY_SECONDS)

    def _start_scheduler(self):
        (port,) = free_ports(1)
        started = self.daemon("kube-scheduler", [
            os.path.join(self.bin, "kube-scheduler"), f"--kubeconfig={self._client('kube-scheduler')}",
            "--bind-address=127.0.0.1", f"--secure-port={port}", "--leader-elect=false"])
        started.wait_ready(lambda: unverified(f"https://127.0.0.1:{port}/healthz") == b"ok", READY_SECONDS)

    def stop(self):
        for daemon in reversed(self.daemons):
            # The data is thrown away, so etcd need not end in order; the others get a moment.
            daemon.kill() if daemon.name == "etcd" else daemon.stop(5)

    def user(self, name, groups=()):
        """Path of a kubeconfig for a person: a client certificate with this name and these groups."""
        certificate, key = self.authority.issue(f"user-{name}", name, groups)
        return write_kubeconfig(f"{self.directory}/user-{name}.kubeconfig", self.url, self.ca_file, name,
                                certificate, key)

    def service_account(self, namespace, name, seconds=3600):
        """Path of a kubeconfig for a service account, which is made when it is not there: a bound token."""
        found = self.kubectl("get", "serviceaccount", "-n", namespace, name, "--ignore-not-found", "-o", "name")
        if not found.strip():
            self.kubectl("create", "serviceaccount", "-n", namespace, name)
        token = self.kubectl("create", "token", "-n", namespace, name, f"--duration={seconds}s").strip()
        return write_kubeconfig(f"{self.directory}/account-{namespace}-{name}.kubeconfig", self.url, self.ca_file,
                                f"{namespace}-{name}", token=token, namespace=namespace)

    def environment(self):
        """The environment for programs that shall talk to this control plane."""
        return {**os.environ, "KUBECONFIG": self.kubeconfig, "KUBEBUILDER_ASSETS": self.bin,
                "PATH": f"{self.bin}{os.pathsep}{os.environ.get('PATH', '')}"}

    def kubectl(self, *arguments, stdin=None, seconds=60, kubeconfig=None, check=True):
        """Output of kubectl, both streams; ClusterError when it fails and `check`."""
        env = {**self.environment(), "KUBECONFIG": kubeconfig or self.kubeconfig}
        return run([os.path.join(self.bin, "kubectl"), *arguments], seconds, stdin, env, check)

    def kubectl_json(self, *arguments):
        return json.loads(self.kubectl(*arguments, "-o", "json"))


def unverified(url):
    """Health of a component that serves with a certificate of its own making, on the loopback interface."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return fetch(url, 5, context)


def main():
    parser = argparse.ArgumentParser(prog="control_plane.py", description="Runs COMMAND beside a real control plane.")
    parser.add_argument("--controller-manager", action="store_true")
    parser.add_argument("--scheduler", action="store_true")
    parser.add_argument("--directory", help="where logs and keys stay (default: a temporary one, removed)")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND...")
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("no COMMAND after --")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    directory = arguments.directory or tempfile.mkdtemp(prefix="muster-control-plane-", dir=memory)
    child = None
    try:
        started = time.monotonic()
        with ControlPlane(directory, arguments.controller_manager, arguments.scheduler) as plane:
            print(f"control plane at {plane.url} after {time.monotonic() - started:.1f} s", file=sys.stderr, flush=True)
            child = subprocess.Popen(command, env=plane.environment())
            return child.wait()
    except ClusterError as error:
        print(f"control_plane.py: {error}", file=sys.stderr)
        return 1
    except FileNotFoundError as error:
        print(f"control_plane.py: {error.filename}: {error.strerror}", file=sys.stderr)
        return 127
    except KeyboardInterrupt:
        return 130
    finally:
        if child is not None and child.poll() is None:
            child.terminate()
            try:
                child.wait(20)
            except subprocess.TimeoutExpired:
                child.kill()
        if not arguments.directory:
            shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
