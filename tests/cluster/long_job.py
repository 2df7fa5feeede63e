"""A training job that is long enough for something to happen to it, and what its model must be afterwards."""

import collections
import datetime
import fcntl
import glob
import hashlib
import itertools
import json
import os
import re
import shutil

import installed
from installed import MUSTER, OPERATOR, ROOT, InstalledTest
from processes import ClusterError, run, wait_for

# Long enough for something to happen to it; every test of a fault uses it, so the laptop trains it once. It lasts by its
# workers' little share of a processor and not by its steps: several clusters have two processors between them.
LONG_STEPS = 40_000
CPU, CPU_WHILE_OPERATORS_DIE = "160m", "90m"
# What a write of status changes that tells of nothing but how far training has come; and how seldom such writes come.
PROGRESS, PROGRESS_SECONDS = {"progress", "checkpoint", "model", "dataSHA256"}, 15
# What the life of an undisturbed job may cost beside them.
STATUS_WRITES_MOST = 6
ENTERS = "trains in a membership"  # in a worker's log
# Who was lost, and why, of a change of the membership; what is told of any change behind that.
LOST = r"WorkerLost .*worker {slot} was lost at step \d+ \({reason}\)"
STALL = r"; training stood still for (?P<stall>\d+) ms(, the step took \d+ ms longer than usual)?; membership epoch \d+"


def long_job(name, steps=None, cpu=None, most=2):
    """The digits job with many steps, as JSON. While operators die it lasts longer, until one of them has done anything."""
    steps = steps or LONG_STEPS
    cpu = cpu or (CPU_WHILE_OPERATORS_DIE if installed.operators_die() else CPU)
    return {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": {
        "worker": {"count": 2, "max": most, "resources": {"cpu": cpu, "memory": "128Mi"}},
        "training": {
            "seed": 7, "logicalRanks": 16, "batchSize": 64, "steps": steps, "model": {"mlp": {"hidden": [128]}},
            "data": {"train": {"idx": {"images": "data/digits-train-images.idx.gz",
                                       "labels": "data/digits-train-labels.idx.gz"}}},
            "optimizer": {"sgd": {"learningRate": "0.01", "momentum": "0.9"}},
            "checkpoint": {"volumeClaimName": name, "everySteps": 1000}},
        "restart": {"policy": "OnFailure", "maxRestarts": 3, "backoffSeconds": 1}}}


def claim(name):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "100Mi"}}}}


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def steps_of(path):
    """The lines of a record that are of steps. One that is only half written is none yet."""
    with open(path, encoding="utf-8") as file:
        return [line for line in map(json.loads, (text for text in file if text.endswith("\n"))) if "step" in line and "loss" in line]


def once_on_this_machine(made_from, make):
    """make(), a line of text, once for all processes that ask for what is made from the same."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(cache, "muster", "laptop-models", hashlib.sha256("\0".join(made_from).encode()).hexdigest())
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        made = file.read()
        if not made:
            made = make()
            file.write(made)
    return made


class LongJobTest(InstalledTest):
    laptop_models = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster.clean_volumes()

    def apply_with_claim(self, manifest):
        """Applies a job and the claim of its name; both go at the test's end."""
        name = manifest["metadata"]["name"]
        self.addCleanup(self.kubectl, "delete", "pvc", name, "--ignore-not-found", "--wait=false", check=False)
        self.addCleanup(self.kubectl, "delete", "tjob", name, "--ignore-not-found", check=False)
        self.apply(claim(name), manifest)

    def step(self, name):
        return self.status(name).get("progress", {}).get("step", 0)

    def workers(self, name):
        """As "2/2": those that run, of those that are wanted."""
        return self.status(name).get("workers", "")

    def start_long(self, name, **rest):
        """Starts the long job and waits until it has made steps and a checkpoint."""
        self.apply_with_claim(long_job(name, **rest))
        wait_for(f"{name} trains", lambda: self.step(name) > 2000, 240)

    def assert_trains(self, name):
        """That what was just done was done to workers that train: none has ended, whatever has been told of it yet."""
        for pod in self.pods(name):
            (worker,) = pod["status"]["containerStatuses"]
            self.assertEqual(list(worker["state"]), ["running"], f"{name} was over too soon")
            self.assertTrue(self.pids_of(pod), f"{name} was over too soon")

    def containers(self, name):
        """What a restart of a worker would change: pods, containers and their restart counts."""
        return sorted((pod["metadata"]["uid"], status["containerID"], status["restartCount"])
                      for pod in self.pods(name) for status in pod["status"]["containerStatuses"])

    # ---- What a job costs, by the API server's own account

    def status_writes(self, name, records=None):
        """What each write of the job's status by an operator changed, in order."""
        def is_one(event):
            what = event.get("objectRef", {})
            return (event["user"]["username"] == OPERATOR and event["verb"] == "patch" and event["responseStatus"]["code"] < 300
                    and [what.get(key) for key in ("resource", "subresource", "namespace", "name")]
                    == ["trainingjobs", "status", self.namespace, name])

        return [event["requestObject"]["status"] for event in (installed.audited() if records is None else records) if is_one(event)]

    def assert_progress_is_seldom_written(self, name):
        """By the times that status gives: only with what else has changed it comes sooner. How many writes were of it alone."""
        told, alone = None, 0
        for status in self.status_writes(name):
            text = (status.get("progress") or {}).get("updatedAt")
            if not text:
                continue
            now = datetime.datetime.fromisoformat(text)
            if told and set(status) <= PROGRESS:
                self.assertGreaterEqual((now - told).total_seconds(), PROGRESS_SECONDS, f"{told}: {status}")
                alone += 1
            told = now
        return alone

    @staticmethod
    def account():
        """What assert_cost() counts from: the records, and which operators have started."""
        return len(installed.audited()), LongJobTest.operator_starts()

    @staticmethod
    def operator_starts():
        return sorted((pod["metadata"]["uid"], status["restartCount"]) for pod in installed.operators()
                      for status in pod["status"]["containerStatuses"])

    def assert_cost(self, name, since, workers):
        """Of a job of the built-in engine that nothing has happened to: its pods, few writes of its status, and no list."""
        begin, starts = since
        records = installed.audited()[begin:]
        cost = collections.Counter((verb, kind) for verb, kind, namespace, its_name, code, user in installed.writes(records)
                                   if user == OPERATOR and namespace == self.namespace and code < 300
                                   and (its_name == name or (its_name or "").startswith(f"{name}-")))
        written = self.status_writes(name, records)
        self.assertEqual(cost, {("create", "pods"): workers, ("patch", "trainingjobs/status"): len(written)})
        changes = [status for status in written if not set(status) <= PROGRESS]
        self.assertLessEqual(len(changes), STATUS_WRITES_MOST, changes)
        # One that did not get a processor for long has ended, and begins anew.
        if starts == self.operator_starts():
            self.assertEqual(installed.lists(records), [])

    # ---- What a job's volume says of it, which needs no API server

    def find_volume(self, name):
        """Where the claim's volume is on this machine: "node1-v3" is v3 of node 1."""
        claim_volume = wait_for("its claim is bound", lambda: self.kubectl(
            "get", "pvc", name, "-o", "jsonpath={.spec.volumeName}"), 120)
        node, number = claim_volume[len("node"):].split("-v")
        self.volume = os.path.join(self.cluster.node(int(node)).storage, "lib/muster/volumes", "v" + number)

    def records(self):
        return glob.glob(os.path.join(self.volume, "**", "record.jsonl"), recursive=True)

    def recorded(self):
        """The newest step in the record of the job started last, read on its volume."""
        newest = 0
        for path in self.records():
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - 4096))
                lines = file.read().split(b"\n")
            if len(lines) > 2 and lines[-2].startswith(b'{"step"'):
                newest = max(newest, json.loads(lines[-2])["step"])
        return newest

    def assert_trains_on(self, seconds=20, last=LONG_STEPS):
        """Steps are made now, and `last` is far away."""
        before = self.recorded()
        self.assertLess(before, last - 1000, "the job is nearly over: it has to be longer")
        wait_for("training goes on", lambda: self.recorded() > before + 100, seconds)

    # ---- What was made for a job

    def made_once(self, name, writes, kinds=None):
        """What the operators have made for the job, by the API server's own account, as (kind, "-SLOT-ATTEMPT" of a pod), in order: each
        once, and what was tried again was refused. Where an operator died between its request and the answer, the server may have
        made the object and account for it with an error of its own."""
        tried = [(kind, made_name, code) for verb, kind, namespace, made_name, code, user in writes
                 if verb == "create" and user == OPERATOR and namespace == self.namespace and (kinds is None or kind in kinds)
                 and re.fullmatch(rf"{name}-[0-9a-z]{{5}}(-\d+-\d+)?", made_name or "")]
        made = [(kind, made_name) for kind, made_name, code in tried if code == 201]
        self.assertEqual(len(made), len(set(made)), tried)
        there = set(made) | {(kind, made_name) for kind, made_name, code in tried if code == 409 or code >= 499}
        return sorted((kind, made_name.removeprefix(name)[6:]) for kind, made_name in there)

    def slots_made(self, name, writes):
        """The slots of the pods that were made for the job, in order: one as often as it was given a worker."""
        return sorted(int(suffix.split("-")[1]) for _, suffix in self.made_once(name, writes, ["pods"]))

    def laptop_model(self, steps=None):
        """SHA-256 of the job's model as `muster run` makes it."""
        steps = steps or LONG_STEPS
        if steps not in LongJobTest.laptop_models:
            LongJobTest.laptop_models[steps] = self.laptop_model_of(long_job(f"long-{steps}", steps))
        return LongJobTest.laptop_models[steps]

    def laptop_model_of(self, manifest):
        """SHA-256 of any job's model, of the digits, as `muster run` makes it with one worker."""
        name = manifest["metadata"]["name"]
        manifest["spec"]["worker"].update(count=1, min=1, max=1)
        path = os.path.join(self.directory, f"{name}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        for data in glob.glob(os.path.join(ROOT, "examples", "data", "*.gz")):
            os.makedirs(os.path.join(self.directory, "data"), exist_ok=True)
            shutil.copy(data, os.path.join(self.directory, "data"))

        def train():
            out = os.path.join(self.directory, f"laptop-{name}")
            run([MUSTER, "run", path, "--quiet", "--hash-every", "0", "--output", out], seconds=600)
            return sha256(os.path.join(out, "model.safetensors"))

        programs = [sha256(os.path.join(os.path.dirname(MUSTER), program)) for program in ("muster", "muster-worker")]
        return once_on_this_machine([*programs, sha256(path)], train)

    def part_of_a_node(self, fifths):
        """So many fifths of its memory: of two, two workers have room on a node and the third has to go to the other."""
        text = self.cluster.kubectl("get", "node", "node1", "-o", "jsonpath={.status.allocatable.memory}")
        self.assertTrue(text.endswith("Ki"), text)
        return f"{int(text[:-2]) * fifths // 5}Ki"

    def log_on_disk(self, pod):
        """What a pod's worker has said; that needs no API server."""
        node, meta = self.cluster.node(int(pod["spec"]["nodeName"][len("node"):])), pod["metadata"]
        text = ""
        for path in sorted(glob.glob(os.path.join(
                node.storage, "log", "pods", f"{meta['namespace']}_{meta['name']}_{meta['uid']}", "*", "*.log"))):
            with open(path, encoding="utf-8") as file:
                text += file.read()
        return text

    def newest_epoch(self, pod, message):
        """The last membership of which the pod's worker has logged that; 0 before any."""
        return max(map(int, re.findall(rf'"message":"{message}".*?"epoch":(\d+)', self.log_on_disk(pod))), default=0)

    def assert_told(self, name, sentence, seconds=60):
        """The match in `describe`. What workers tell of a change comes with one of their next reports."""
        text = ""

        def told():
            nonlocal text
            text = self.kubectl("describe", "tjob", name)
            return re.search(sentence, text)
        try:
            return wait_for(sentence, told, seconds)
        except ClusterError as error:
            self.fail(f"{error}\n{text}")

    def note_stall(self, name, fault, reason="[a-z ]+", slot=r"\d"):
        """How long the job's workers say that they stood still when one was lost for that reason, where that is told: a trainer may be
        back before the others have come to the end of a step."""
        told = re.search(LOST.format(slot=slot, reason=reason) + STALL, self.kubectl("describe", "tjob", name))
        if told:
            installed.note_stall(fault, told["stall"])

    def assert_no_warnings(self, name):
        """Of the job; its pods' events are the kubelets'. That a worker is slow a full machine sees to."""
        events = json.loads(self.kubectl("get", "events", "-o", "json"))["items"]
        ours = [event for event in events if event["involvedObject"].get("name") == name
                and event["involvedObject"].get("kind") == "TrainingJob"]
        self.assertTrue(ours)
        self.assertEqual([(event["reason"], event["message"]) for event in ours
                          if event["type"] != "Normal" and event["reason"] != "WorkerSlow"], [])

    def fetched_model(self, name):
        out = os.path.join(self.directory, "fetched-" + name)
        self.muster("fetch", name, "--output", out, seconds=180)
        return sha256(os.path.join(out, "model.safetensors"))

    def assert_every_step_once(self, name, last=None):
        """In the record that the long job keeps beside its model; after fetched_model()."""
        steps = [line["step"] for line in steps_of(os.path.join(self.directory, "fetched-" + name, "record.jsonl"))]
        self.assertEqual((steps[0], steps[-1]), (1, last or LONG_STEPS))
        wrong = next((step for step, after in itertools.pairwise(steps) if after != step + 1), None)
        self.assertIsNone(wrong, "behind this one a step lacks, or stands twice")

    def assert_as_on_the_laptop(self, name):
        """Of a long job that has ended: its model, and each of its steps."""
        self.assertEqual(self.fetched_model(name), self.laptop_model())
        self.assert_every_step_once(name)

    def processes_of(self, pods):
        """The process ids of each pod's worker, by the pod's uid."""
        return {pod["metadata"]["uid"]: set(self.pids_of(pod)) for pod in pods}
