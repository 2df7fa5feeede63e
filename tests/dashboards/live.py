"""A Prometheus of its own, scraping two `muster run`s, an operator with queues and an exporter's stand-in, all on loopback."""

import glob
import http.server
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.parse
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# What a scrape a second makes of Grafana's variables.
VARIABLES = {"$__rate_interval": "10s", "$__range": "60s", "$__interval": "1s", "$namespace": ".+", "$slot": ".+",
             "$job": ".+", "$instance": ".+", "$node": ".+", "$training_job": "digits"}


# How the chart's PodMonitor has workers scraped; tests/chart/chart_test.py compares. That a target says in which namespace it is,
# discovery does in a cluster.
OF_WORKERS = {"honor_labels": False, "metric_relabel_configs": [
    {"action": "keep", "source_labels": ["__name__"], "regex": "muster_worker_.*"},
    {"action": "labeldrop", "regex": "exported_.*"}]}
# What a tenant's program that poses as a worker says of another's job.
FORGED = """muster_worker_loss{namespace="default",job="muster-metrics",training_job="forged",slot="0",process="0"} 1
muster_job_restarts_total{namespace="default",training_job="forged"} 9
"""
# Of a controller that is not ours.
CONTROLLER = """leader_election_master_status{name="cert-manager-controller"} 1
workqueue_depth{name="certificates",controller="certificates"} 77
"""


def tool(name):
    """The path of prometheus or promtool."""
    cached = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
                          "muster/prometheus/usr/bin", name)
    found = shutil.which(name) or (cached if os.path.exists(cached) else None)
    if not found:
        raise SystemExit(f"{name}: not found; scripts/install-deps --cluster brings it")
    return found


def free_ports(count):
    """The first of `count` ports in a row that nobody listens on now."""
    for _ in range(100):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first = probe.getsockname()[1]
        held = []
        try:
            for port in range(first, first + count):
                one = socket.socket()
                held.append(one)
                one.bind(("127.0.0.1", port))
            return first
        except OSError:
            continue
        finally:
            for one in held:
                one.close()
    raise SystemExit(f"no {count} free ports in a row")


class Exporters(http.server.BaseHTTPRequestHandler):
    """What kube-state-metrics and the DCGM exporter would say of one node with a GPU, a little more each time; a forger; and
    another controller."""
    scrapes = 0

    def do_GET(self):
        if self.path == "/forged":
            self.answer(FORGED)
            return
        if self.path == "/controller":
            self.answer(CONTROLLER)
            return
        Exporters.scrapes += 1
        n = Exporters.scrapes % 8
        text = "".join(f"{line}\n" for line in (
            'kube_node_status_allocatable{node="n1",resource="cpu",unit="core"} 8',
            'kube_node_status_allocatable{node="n1",resource="memory",unit="byte"} 1e10',
            'kube_node_status_allocatable{node="n1",resource="nvidia_com_gpu",unit="integer"} 8',
            *(f'kube_pod_container_resource_requests{{node="n1",namespace="default",pod="p",container="c",resource="{resource}"}} {many}'
              for resource, many in (("cpu", n), ("memory", f"{n}e9"), ("nvidia_com_gpu", n))),
            # Of a job that has ended, whose pods stay until it is deleted.
            'kube_pod_container_resource_requests{node="n1",namespace="default",pod="ended",container="c",resource="nvidia_com_gpu"} 8',
            *(f'kube_pod_status_phase{{namespace="default",pod="{pod}",phase="{phase}"}} {int(phase == is_in)}'
              for pod, is_in in (("p", "Running"), ("ended", "Succeeded"))
              for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown")),
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",Hostname="n1"}} {n}0',
            f'DCGM_FI_DEV_FB_USED{{gpu="0",Hostname="n1"}} {n}000',
            f'DCGM_FI_DEV_POWER_USAGE{{gpu="0",Hostname="n1"}} {n}1',
            'DCGM_FI_DEV_XID_ERRORS{gpu="0",Hostname="n1"} 0'))
        self.answer(text)

    def answer(self, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


FAILING = """
apiVersion: muster.dev/v1alpha1
kind: TrainingJob
metadata: {name: fails}
spec:
  worker: {count: 1, command: [sh, -c, "exit 3"]}
  restart: {policy: OnFailure, maxRestarts: 100, backoffSeconds: 2}
"""

# EUR 1 a second and processor.
PRICES = '{currency: EUR, tiers: [{name: all, prices: [{resource: cpu, perHour: "3600"}]}]}\n'


def queue(name, cpu, **more):
    resources = [{"name": "cpu", "nominal": cpu}, {"name": "memory", "nominal": "4Gi"}]
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name},
            "spec": {"cohort": "lab", "resources": resources, **more}}


def sleeper(queue_name, name, cpu, time_s):
    worker = {"count": 1, "command": ["sleep", str(time_s)], "resources": {"cpu": cpu, "memory": "1Gi"}}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
            "spec": {"queueName": queue_name, "worker": worker}}


# Two of research's jobs wait until product's has ended; then they borrow what it held. Of one second, names make the order.
QUEUES = [queue("product", "2"), queue("research", "1", budget={"currency": "EUR", "amount": "1000"}),
          sleeper("product", "p", "2", 20), sleeper("research", "r1", "1", 40), sleeper("research", "r2", "1", 25),
          sleeper("research", "r3", "1", 30)]


class World:
    def __init__(self, bin_dir):
        self.bin_dir = bin_dir
        self.directory = tempfile.mkdtemp(prefix="muster-dashboards-")
        self.processes = []
        self.pages = []
        self.answers = {}
        self.server = None
        self.began = time.time()

    def path(self, name):
        return os.path.join(self.directory, name)

    def launch(self, name, *command):
        log = open(self.path(name + ".log"), "w", encoding="utf-8")
        process = subprocess.Popen(command, cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    def start(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporters)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        first = free_ports(9)
        training, workers, failing, queues, self.port = first, [first + 1, first + 2], first + 4, first + 7, first + 8
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
                  "rule_files": sorted(glob.glob(os.path.join(ROOT, "charts/muster/rules/*.yaml"))),
                  "scrape_configs": [self.scrape("muster-metrics", [training, failing, queues]),
                                     self.scrape("muster-workers", workers, "default", **OF_WORKERS),
                                     self.scrape("muster-forger", [self.server.server_address[1]], "elsewhere",
                                                 metrics_path="/forged", **OF_WORKERS),
                                     self.scrape("cert-manager", [self.server.server_address[1]], metrics_path="/controller"),
                                     self.scrape("exporters", [self.server.server_address[1]])]}
        with open(self.path("prometheus.yml"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.launch("prometheus", tool("prometheus"), "--config.file=" + self.path("prometheus.yml"),
                    "--storage.tsdb.path=" + self.path("tsdb"), f"--web.listen-address=127.0.0.1:{self.port}",
                    "--log.level=warn")
        self.wait_until(self.ready, 60)
        shutil.copytree(os.path.join(ROOT, "examples"), self.path("examples"))
        with open(self.path("fails.yaml"), "w", encoding="utf-8") as file:
            file.write(FAILING)
        with open(self.path("prices.yaml"), "w", encoding="utf-8") as file:
            file.write(PRICES)
        with open(self.path("queues.json"), "w", encoding="utf-8") as file:
            json.dump(QUEUES, file)
        os.mkdir(self.path("queues"))
        self.launch("queues", os.path.join(self.bin_dir, "queue_world"), "queues.json", "prices.yaml", self.path("queues"),
                    str(queues))
        muster = os.path.join(self.bin_dir, "muster")
        self.launch("fails", muster, "run", "fails.yaml", "--metrics-port", str(failing))
        # One after the other, so that figures of all operators together change.
        self.wait_until(lambda: self.range('muster_jobs{phase="Restarting"} == 1'), 60)
        self.launch("digits", muster, "run", "examples/digits.yaml", "--output", self.path("out"), "--hash-every", "50",
                    "--metrics-port", str(training), "--price-list", "prices.yaml",
                    "--set", "spec.training.epochs=1000000",
                    "--set", "spec.restart.backoffSeconds=2",
                    # Slow to learn, so that figures move, and slow in steps, so that a restart repeats some.
                    "--set", 'spec.training.optimizer.sgd.learningRate="0.0005"',
                    "--set", "spec.training.model.mlp.hidden=[2048]", "--set", "spec.training.checkpoint.everySteps=5000")
        self.await_between_checkpoints()
        self.pages = [self.fetch(f"http://127.0.0.1:{port}/metrics") for port in (training, failing, queues, *workers)]
        # One worker dies and the others train on; then nobody is left, and the gang starts again.
        os.kill(self.worker_pid(slot=1), signal.SIGKILL)
        self.wait_until(lambda: self.range("min(muster_worker_members) == 1"), 60)
        self.wait_until(lambda: self.get("/api/v1/query", query="count(muster_worker_members == 2) == 2")["result"], 60)
        self.await_between_checkpoints()
        for slot in (0, 1):
            os.kill(self.worker_pid(slot), signal.SIGKILL)
        self.wait_until(lambda: self.range('muster_job_repeated_steps_total{training_job="digits"} > 0'), 90)
        self.wait_until(lambda: self.range("muster_queue_spent > 0 and on (training_queue) muster_queue_admitted_jobs == 0"), 90)

    def await_between_checkpoints(self):
        """Until a restart repeats steps that were reported: a report's age and more away from either checkpoint."""
        step = "max(muster_worker_step)"
        self.wait_until(lambda: self.get("/api/v1/query", query=f"{step} > 5000 and {step} % 5000 > 1500 < 3000")["result"], 180)

    @staticmethod
    def scrape(name, ports, namespace=None, **rules):
        labels = {"namespace": namespace} if namespace else {}
        return {"job_name": name, "honor_labels": True, **rules,
                "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports], "labels": labels}]}

    def worker_pid(self, slot):
        """The sentinel of the training's worker: the first process with its environment."""
        wanted = [self.directory.encode(), f"MUSTER_SLOT={slot}\0".encode(), b"MUSTER_JOB=default/digits\0"]
        for name in sorted((n for n in os.listdir("/proc") if n.isdigit()), key=int):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    environment = file.read()
            except OSError:
                continue
            if all(text in environment for text in wanted):
                return int(name)
        raise AssertionError(f"no worker of slot {slot} runs:\n" + open(self.path("digits.log"), encoding="utf-8").read())

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self.server:
            self.server.shutdown()
            self.server.server_close()
        shutil.rmtree(self.directory, ignore_errors=True)

    # ---- Asking

    def wait_until(self, wanted, most):
        """Asks again about once a second, as that is how often there is something new."""
        deadline = time.monotonic() + most
        pause = threading.Event()
        while not wanted():
            if time.monotonic() > deadline:
                return False
            for process in self.processes:
                if process.poll() is not None:
                    with open(self.path("digits.log"), encoding="utf-8") if os.path.exists(self.path("digits.log")) else \
                            open(self.path("prometheus.log"), encoding="utf-8") as log:
                        raise AssertionError(f"{process.args[:3]} has ended with {process.returncode}:\n{log.read()}")
            pause.wait(1)
        return True

    @staticmethod
    def fetch(url):
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.read().decode()

    def ready(self):
        try:
            self.fetch(f"http://127.0.0.1:{self.port}/-/ready")
            return True
        except OSError:
            return False

    def get(self, path, **parameters):
        url = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            return json.loads(self.fetch(url))["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    @staticmethod
    def expand(text, values=None):
        values = values or VARIABLES
        for name in sorted(values, key=len, reverse=True):
            text = text.replace(name, values[name])
        return text

    def range(self, expr):
        """Series of a query over the whole time so far."""
        return self.get("/api/v1/query_range", query=self.expand(expr), start=self.began, end=time.time(), step="1s")["result"]

    def label_values(self, selector, label):
        return self.get(f"/api/v1/label/{label}/values", **{"match[]": self.expand(selector), "start": self.began,
                                                             "end": time.time()})

    def names(self):
        return set(self.get("/api/v1/label/__name__/values"))

    def scrapes(self):
        return int(float(self.range("sum(count_over_time(up[1h]))")[0]["values"][-1][1]))

    @staticmethod
    def moves(series):
        """Whether the value of any one series changes. That one begins or ends says nothing: an operator that starts later does that
        to every query, also of figures that nobody ever sets."""
        return any(len({value for _, value in one["values"] if not math.isnan(float(value))}) > 1 for one in series)
