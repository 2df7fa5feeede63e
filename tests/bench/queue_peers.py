"""Who is measured by queues.py: Muster's operator, Kueue with Jobs, Kueue's scheduler under its own runner, clients alone.

The workloads are those of Kueue's own measure, read from the file of its module: cohorts of queues, in each of them sets of
workloads that are made one after the other with a pause. All peers get the same sets, Kueue as that file.
"""

import copy
import csv
import json
import os
import sys
import time

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from operator_peers import SECONDS, TRAINING, Muster, is_true  # noqa: E402
import kueue  # noqa: E402
from processes import wait_for  # noqa: E402
from cluster_load import LoadError, StreamLoad, Watch, written_what  # noqa: E402

JOBS = "/apis/muster.dev/v1alpha1/trainingjobs"
TEMPLATE = "bench-template"
CLIENTS = 8


class Generator:
    """Kueue's workloads, every `scale`th of them, with runtimes divided by `faster`."""

    def __init__(self, scale, faster):
        self.source = kueue.module()
        path = os.path.join(self.source, "test", "performance", "scheduler", "configs", "baseline", "generator.yaml")
        with open(path, encoding="utf-8") as file:
            self.config = yaml.safe_load(file)
        for queues in (one for cohort in self.config["cohorts"] for one in cohort["queuesSets"]):
            for one in queues["workloadsSets"]:
                one["count"] = max(1, one["count"] // scale)
                for workload in one["workloads"]:
                    workload["runtimeMs"] = max(1, workload["runtimeMs"] // faster)

    def queues(self):
        """(name, cohort, set) of each; its name is that of its namespace, too."""
        for cohort in self.config["cohorts"]:
            for index in range(cohort["count"]):
                name = f"{cohort['className']}-{index}"
                for place, queues in enumerate(cohort["queuesSets"]):
                    for number in range(queues["count"]):
                        yield f"{queues['className']}-{place}-{number}-{name}", name, queues

    def streams(self):
        """(seconds between two, [(namespace, name, workload)]) of each set of each queue."""
        for namespace, _, queues in self.queues():
            for place, one in enumerate(queues["workloadsSets"]):
                yield one["creationIntervalMs"] / 1000, [
                    (namespace, f"{workload['className']}-{place}-{number}-{index}", workload)
                    for number in range(one["count"]) for index, workload in enumerate(one["workloads"])]

    def requests(self, path, job):
        """Streams of a load that makes them: job(namespace, name, workload) at path(namespace)."""
        return [(pause, [(f"{namespace}/{name}", "POST", path(namespace), job(namespace, name, workload), "application/json")
                         for namespace, name, workload in stream]) for pause, stream in self.streams()]

    def workloads(self):
        return [workload for _, stream in self.streams() for workload in stream]

    def classes(self):
        return {workload["className"]: workload["priority"] for _, _, workload in self.workloads()}


def job_of(namespace, name, workload):
    worker = {"count": 1, "image": "example.invalid/train:1", "resources": {"cpu": str(workload["request"]), "memory": "64Mi"},
              "env": [{"name": "BENCH_RUNTIME", "value": f"{workload['runtimeMs']}ms"}]}
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"namespace": namespace, "name": name},
            "spec": {"queueName": namespace, "priorityClassName": workload["className"], "worker": worker, "training": TRAINING}}


def jobs_path(namespace):
    return f"/apis/muster.dev/v1alpha1/namespaces/{namespace}/trainingjobs"


def install_queues(plane, generator, objects):
    """Its priority classes, and of each queue the namespace and what objects(name, cohort, set) gives."""
    items = [{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}
             for name, value in generator.classes().items()]
    for name, cohort, queues in generator.queues():
        items += [{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, *objects(name, cohort, queues)]
    plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for name, _, _ in generator.queues():
        wait_for(f"namespace {name} has its account",
                 lambda name=name: plane.get(f"/api/v1/namespaces/{name}/serviceaccounts/default"), SECONDS)


class Queued:
    """What Muster and the clients beside it have in common: kinds, namespaces, priority classes, queues."""

    kind = "trainingjobs"
    pod_parts = 3  # of a pod's name, after its job's

    def __init__(self, program, scale, faster):
        self.muster = Muster(program, trains=True)
        self.generator = Generator(scale, faster)
        self.daemon = None

    def install(self, plane):
        self.muster.install(plane)
        install_queues(plane, self.generator, self.queue)

    @staticmethod
    def queue(name, cohort, queues):
        yield {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingQueue", "metadata": {"name": name}, "spec": {
            "cohort": cohort, "resources": [{"name": "cpu", "nominal": str(queues["nominalQuota"]),
                                             "borrowingLimit": str(queues["borrowingLimit"])}]}}


class QueuedMuster(Queued):
    """Jobs of the built-in engine with one worker each, which are over when KWOK ends their pod."""

    user = finisher = Muster.user

    def start(self, plane):
        seconds = self.muster.start(plane)
        self.daemon = self.muster.daemon
        return seconds

    def metrics(self):
        return self.muster.metrics()

    def generate(self, bench):
        """Until every job is over; seconds until each was shown admitted."""
        lives = Lives(bench.api, JOBS, lambda job: is_true(job, "Admitted"))
        found = lives.load_and_wait(bench, self.generator.requests(jobs_path, job_of), len(self.generator.workloads()))
        bench.result["preempted"] = self.muster.metric("muster_job_preemptions_total")
        return found


class Lives:
    """When each job was first seen, and shown admitted, which `is_admitted` says of it."""

    def __init__(self, api, path, is_admitted):
        self.is_admitted = is_admitted
        self.seen, self.complete, self.failed = {}, 0, None
        self.watch = Watch(api, path, self.note)

    def note(self, now, kind, job):
        if kind == "DELETED":
            return
        key = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        one = self.seen.setdefault(key, {"first": now})
        if "admitted" not in one and self.is_admitted(job):
            one["admitted"] = now
        if "complete" not in one and is_true(job, "Complete"):
            one["complete"] = now
            self.complete += 1
        if is_true(job, "Failed"):
            self.failed = f"{key} has failed: {json.dumps(job['status'])[:1000]}"

    def check(self):
        if self.failed or self.watch.failure:
            raise LoadError(self.failed or self.watch.failure)

    def load_and_wait(self, bench, streams, count):
        """Sends the streams and waits until all are over; seconds until each was shown admitted, since it was first seen."""
        StreamLoad(bench.api, streams).wait(bench.limit())
        wait_for(f"{count} jobs are complete", lambda: self.complete == count, bench.limit(), self.check)
        self.watch.ended = True
        return {key: one["admitted"] - one["first"] for key, one in self.seen.items()}


class Clients(Queued):
    """No operator: clients at full speed, whatever the quotas. Of each job they write what Muster writes, recorded of one
    job before, or (`pods`) create its pod alone."""

    user = finisher = "bench-client"

    def __init__(self, program, scale, faster, pods):
        super().__init__(program, scale, faster)
        self.pods = pods
        if pods:
            self.kind = "pods"

    def start(self, _plane):
        return 0.0

    def install(self, plane):
        super().install(plane)
        plane.kubectl("create", "namespace", TEMPLATE)
        wait_for("the template's namespace has its account",
                 lambda: plane.get(f"/api/v1/namespaces/{TEMPLATE}/serviceaccounts/default"), SECONDS)
        self.muster.start(plane)
        _, name, workload = self.generator.workloads()[0]
        job = job_of(TEMPLATE, TEMPLATE, workload)
        job["spec"].pop("queueName")
        plane.kubectl("create", "-f", "-", stdin=json.dumps(job))
        wait_for("the template is complete", lambda: is_true(plane.kubectl_json(
            "get", "trainingjob", "-n", TEMPLATE, TEMPLATE), "Complete"), SECONDS)
        self.muster.daemon.stop()
        self.job = job

    def recorded(self, audit):
        """The operator's writes for the template, in order; what names other objects by their uid is left out."""
        found = []
        for record in audit.writes():
            reference = record.get("objectRef", {})
            if reference.get("namespace") != TEMPLATE or record["user"]["username"] != Muster.user:
                continue
            body = record["requestObject"]
            body.get("metadata", {}).pop("resourceVersion", None)
            body.get("metadata", {}).pop("uid", None)
            body.get("metadata", {}).pop("ownerReferences", None)
            pod = written_what(record) == "create pods"
            if self.pods and not pod:
                continue
            method = {"create": "POST", "patch": "PATCH", "update": "PUT", "delete": "DELETE"}[record["verb"]]
            found.append((method, record["requestURI"], body, pod))
        return found

    def requests(self, template, node, namespace, name, workload):
        """Of one job."""
        def told(text):
            text = text.replace(f"/namespaces/{TEMPLATE}/", f"/namespaces/{namespace}/")
            text = text.replace(f'"namespace": "{TEMPLATE}"', f'"namespace": "{namespace}"')
            return text.replace(TEMPLATE, name).replace("node-000", node)

        key = f"{namespace}/{name}"
        if not self.pods:
            yield key, "POST", jobs_path(namespace), job_of(namespace, name, workload), "application/json"
        for method, path, body, pod in template:
            body = json.loads(told(json.dumps(body)))
            if pod:
                body = self.pod_of(body, workload)
            yield (key, method, told(path), body,
                   "application/merge-patch+json" if method == "PATCH" else "application/json")

    @staticmethod
    def pod_of(pod, workload):
        pod = copy.deepcopy(pod)
        pod["spec"]["priorityClassName"] = workload["className"]
        container = pod["spec"]["containers"][0]
        for amounts in container["resources"].values():
            amounts["cpu"] = str(workload["request"])
        for one in container["env"]:
            if one["name"] == "BENCH_RUNTIME":
                one["value"] = f"{workload['runtimeMs']}ms"
        return pod

    def generate(self, bench):
        template = self.recorded(bench.audit_all)
        bench.result["template"] = [f"{method} {path}" for method, path, _, _ in template]
        workloads = self.generator.workloads()
        streams = [(0, [one for index in range(client, len(workloads), CLIENTS)
                        for one in self.requests(template, bench.nodes[index % len(bench.nodes)], *workloads[index])])
                   for client in range(CLIENTS)]
        ended = set()

        def note(_now, kind, pod):
            if kind != "DELETED" and pod["status"].get("phase") == "Succeeded" and pod["metadata"]["namespace"] != TEMPLATE:
                ended.add((pod["metadata"]["namespace"], pod["metadata"]["name"]))

        watch = Watch(bench.api, "/api/v1/pods", note)
        StreamLoad(bench.api, streams).wait(bench.limit())
        wait_for(f"{len(workloads)} pods have ended", lambda: len(ended) == len(workloads), bench.limit())
        watch.ended = True
        return {}


class KueueJobs:
    """Kueue's manager as its installation has it, and Jobs of one pod: the Job controller makes the pods."""

    kind = "jobs"
    pod_parts = 1
    user = "kueue"
    finisher = "system:serviceaccount:kube-system:job-controller"
    own = (user, finisher)  # who does here what Muster's operator does

    def __init__(self, scale, faster):
        self.generator = Generator(scale, faster)

    def install(self, plane):
        """With its manager: queues are checked by its webhooks."""
        self.daemon = kueue.start_kueue(plane, "batch/job")
        plane.kubectl("create", "-f", "-", stdin=json.dumps(
            {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "any"}}))
        install_queues(plane, self.generator, self.queue)

    def start(self, _plane):
        return 0.0

    @staticmethod
    def queue(name, cohort, queues):
        quota = {"name": "cpu", "nominalQuota": str(queues["nominalQuota"]), "borrowingLimit": str(queues["borrowingLimit"])}
        yield {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name}, "spec": {
            "cohortName": cohort, "namespaceSelector": {},
            "preemption": {"reclaimWithinCohort": queues["reclaimWithinCohort"], "withinClusterQueue": queues["withinClusterQueue"]},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [quota]}]}]}}
        yield {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"namespace": name, "name": name},
               "spec": {"clusterQueue": name}}

    @staticmethod
    def job(namespace, name, workload):
        container = {"name": "train", "image": "example.invalid/train:1", "resources": {"requests": {"cpu": str(workload["request"])}},
                     "env": [{"name": "BENCH_RUNTIME", "value": f"{workload['runtimeMs']}ms"}]}
        return {"apiVersion": "batch/v1", "kind": "Job",
                "metadata": {"namespace": namespace, "name": name, "labels": {"kueue.x-k8s.io/queue-name": namespace}},
                "spec": {"parallelism": 1, "completions": 1, "suspend": True, "template": {"spec": {
                    "restartPolicy": "Never", "priorityClassName": workload["className"], "containers": [container]}}}}

    def generate(self, bench):
        lives = Lives(bench.api, "/apis/batch/v1/jobs", lambda job: not job["spec"].get("suspend"))
        return lives.load_and_wait(bench, self.generator.requests(
            lambda namespace: f"/apis/batch/v1/namespaces/{namespace}/jobs", self.job), len(self.generator.workloads()))


class Kueue:
    """minimalkueue, Kueue's scheduler without its webhooks and integrations, and Kueue's runner, which makes the workloads and
    ends each of them after its runtime. There are no pods."""

    kind = "workloads"
    pod_parts = 0
    user = "kueue"
    finisher = "kueue-runner"

    def __init__(self, scale, faster):
        self.generator = Generator(scale, faster)

    def install(self, plane):
        folder = os.path.join(self.generator.source, "config", "components", "crd", "bases")
        plane.kubectl("create", "-f", folder)
        # It looks its kinds up once, and ends where one is not there.
        names = [one["metadata"]["name"].split(".")[0] for one in plane.kubectl_json("get", "crds")["items"]]

        def told():
            told = plane.kubectl("api-resources", "--cached=false", "-o", "name", check=False)
            return all(f"{name}.kueue.x-k8s.io" in told for name in names)

        wait_for("its kinds are served", told, SECONDS)
        wait_for("workloads are served", lambda: plane.get("/apis/kueue.x-k8s.io/v1beta2/workloads"), SECONDS)

    def start(self, plane):
        self.plane = plane
        began = time.monotonic()
        self.daemon = plane.daemon("minimalkueue", [f"{plane.bin}/minimalkueue", "--kubeconfig", plane.user(self.user, ["system:masters"])])
        return time.monotonic() - began

    def generate(self, bench):
        folder = os.path.join(self.plane.directory, "runner")
        os.makedirs(folder)
        with open(f"{folder}/generator.yaml", "w", encoding="utf-8") as file:
            yaml.safe_dump(self.generator.config, file)
        runner = self.plane.daemon("kueue-runner", [
            f"{self.plane.bin}/kueue-runner", f"-o={folder}", f"-generatorConfig={folder}/generator.yaml", "-qps=1000",
            "-burst=2000", f"-timeout={int(bench.limit())}s", "-zap-log-level=error"],
            {"KUBECONFIG": self.plane.user(self.finisher, ["system:masters"]), "PROJECT_DIR": self.generator.source})
        table = f"{folder}/wlStates.csv"
        count = len(self.generator.workloads())

        def written():
            """Its last file; ended when it was written whole."""
            return os.path.exists(table) and len(rows_of(table)) == count

        def check():
            self.daemon.check()
            if not os.path.exists(table):
                runner.check()

        wait_for("Kueue's runner is through", written, bench.limit(), check)
        unfinished = [row["name"] for row in rows_of(table) if int(row["ms to finish"]) <= 0]
        if unfinished:
            raise LoadError(f"{len(unfinished)} workloads were not seen to finish")
        with open(f"{folder}/summary.yaml", encoding="utf-8") as file:
            bench.result["summary"] = yaml.safe_load(file)
        return {f"{row['namespace']}/{row['name']}": int(row["ms to admitted"]) / 1000 for row in rows_of(table)}


def rows_of(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


class Kept(Muster):
    """Jobs of two workers that run on."""

    workers = 2

    def __init__(self, program):
        super().__init__(program, trains=True)


class Gangs(Muster):
    """Jobs of `workers` each of the built-in engine, within one rack where `rack`."""

    def __init__(self, program, workers, rack=False):
        super().__init__(program, trains=True)
        self.workers, self.rack = workers, rack

    def job(self, name):
        job = super().job(name)
        ranks = 16
        while ranks < self.workers:
            ranks *= 2
        job["spec"]["training"] = {**TRAINING, "logicalRanks": ranks, "batchSize": 4 * ranks}
        if self.rack:
            job["spec"]["topology"] = {"required": "rack"}
            job["spec"]["worker"]["resources"] = {"cpu": "40", "memory": "64Mi"}
        return job
