"""A job of `muster run` whose real processes a test may kill, stop, starve and cut off, and what must be true of it after.

Each worker is started through a small script of the test's, beside a copy of `muster`, so that it may get another
network, processor quota, program or data than the rest. The operator and its kubelet live in the process `muster`: who
stops it takes operator and API server away at once.

The oracle (Job.end): every step once and in order, each with the SHA-256 and loss of an undisturbed run of one worker,
the model and the optimiser's state byte-equal, and no restart of the gang unless the test says how many.
"""

import collections
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE = 120
POLL_SECONDS = 0.005
# Steps of a run that ends when a test has done with it all that it wants, however long that takes.
ENDLESS = 100_000_000
# Of a checkpoint; they have no byte that depends on anything but the training.
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"
# spec.training of all layers there are: what a step makes depends on statistics over a batch, on masks, and on moments.
CNN = {"model": {"cnn": {"channels": [4, 8], "kernelSize": 3, "normalization": "Batch", "hidden": [32], "dropout": "0.25"}},
       "optimizer": {"adamw": {"learningRate": "0.003", "weightDecay": "0.05"}}, "gradientClipping": {"maxNorm": "1.0"}}
WRAPPER = """#!/bin/sh
case "$1" in --*) exec "{worker}" "$@";; esac
WORKER="{worker}" ENTER=""
. "{directory}/all"
if [ -e "{directory}/slot-$MUSTER_SLOT" ]; then . "{directory}/slot-$MUSTER_SLOT"; fi
exec $ENTER "$WORKER" "$@"
"""


ENTERS = "trains in a membership"


class Timeout(AssertionError):
    pass


def wait_for(what, condition, seconds=DEADLINE, check=None):
    """The first true answer of `condition`."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        if check:
            check()
        if time.monotonic() > deadline:
            raise Timeout(f"{what}: not so after {seconds} s")
        time.sleep(POLL_SECONDS)


def read(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def replace(path, text):
    """Readers see the old text or the new one."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.rename(path + ".new", path)


def stat_of(pid):
    """(state, parent, start time) of a process; None when there is none."""
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], int(fields[1]), int(fields[19])) if len(fields) > 19 else None


def children_of(pid):
    found = []
    for task in os.listdir(f"/proc/{pid}/task") if os.path.isdir(f"/proc/{pid}/task") else []:
        found += [int(child) for child in read(f"/proc/{pid}/task/{task}/children").split()]
    return found


def signal_all(pids, number):
    """All at once, as nearly as a process can."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def steps_of(job):
    """Every step's line of the record, one after the other: a day's are too many to keep."""
    with open(os.path.join(job.output, "checkpoints", "record.jsonl"), encoding="ascii") as file:
        for line in file:
            if line.startswith('{"step"'):
                yield json.loads(line)


class Worker:
    """One worker as it is now: its sentinel and that one's trainers, with start times, so that a pid means one process."""

    def __init__(self, pid):
        variables = dict(line.partition("=")[::2] for line in read(f"/proc/{pid}/environ").split("\0"))
        self.slot, self.attempt = int(variables["MUSTER_SLOT"]), int(variables["MUSTER_ATTEMPT"])
        self.sentinel = pid
        self.trainers = children_of(pid)
        self.identity = tuple((one, (stat_of(one) or (0, 0, 0))[2]) for one in (pid, *self.trainers))

    def pids(self):
        return [self.sentinel, *self.trainers]


class Workers(dict):
    """Worker by slot."""

    def __missing__(self, slot):
        raise AssertionError(f"no worker of slot {slot} runs, only of {sorted(self)}")


class Job:
    """`muster run` of the digits with `workers`, in `directory`. Threads: one."""

    references = {}

    def __init__(self, directory, bin_dir, workers, steps, most=None, pace_ms=5, seed=7, spec=None, training=None):
        self.directory, self.bin_dir, self.steps, self.seed = directory, bin_dir, steps, seed
        self.process, self.log = None, os.path.join(directory, "muster.log")
        self.output = os.path.join(directory, "out")
        self.manifest = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": "faults"}, "spec": {
            "worker": {"count": workers, "min": 1, "max": most or workers, **(spec or {})},
            "training": {
                "seed": seed, "logicalRanks": 16, "batchSize": 64, "steps": steps, "model": {"mlp": {"hidden": [128]}},
                "data": {"train": {"idx": {"images": "data/digits-train-images.idx.gz",
                                           "labels": "data/digits-train-labels.idx.gz"}}},
                "optimizer": {"sgd": {"learningRate": "0.05", "momentum": "0.9"}},
                "checkpoint": {"path": "/unused", "everySteps": 100}, **(training or {})},
            "restart": {"policy": "OnFailure", "maxRestarts": 100, "backoffSeconds": 0}}}
        shutil.copytree(os.path.join(ROOT, "examples", "data"), os.path.join(directory, "data"), dirs_exist_ok=True)
        programs = os.path.join(directory, "bin")
        os.makedirs(programs, exist_ok=True)
        shutil.copy(os.path.join(bin_dir, "muster"), programs)
        self.worker_program = os.path.join(bin_dir, "muster-worker")
        with open(os.path.join(programs, "muster-worker"), "w", encoding="utf-8") as file:
            file.write(WRAPPER.format(worker=self.worker_program, directory=directory))
        os.chmod(os.path.join(programs, "muster-worker"), 0o755)
        self.pace_file = os.path.join(directory, "pace")
        self.set_pace(pace_ms)
        self.set_all(f"export MUSTER_PACE_MS={self.pace_file}" if pace_ms else "")
        self.write_manifest()

    def set_pace(self, pace_ms):
        """Least milliseconds of the steps from now on. Paced, a run has time for what a test waits for, however slow the
        machine is; end() lets it go."""
        replace(self.pace_file, str(pace_ms))

    def write_manifest(self):
        replace(os.path.join(self.directory, "job.json"), json.dumps(self.manifest))

    def set_all(self, script):
        """Shell lines before any worker begins; may set WORKER (its program) and ENTER (what it is started by)."""
        self._script("all", script)

    def set_slot(self, slot, script):
        """The same for one slot, after those of all."""
        self._script(f"slot-{slot}", script)

    def _script(self, name, script):
        replace(os.path.join(self.directory, name), script + "\n")

    def start(self, *arguments, env=None):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(self.directory, "bin", "muster"), "run", os.path.join(self.directory, "job.json"),
                 "--output", self.output, *arguments], cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log,
                stderr=log, env={**os.environ, **(env or {})}, start_new_session=True)
        return self

    # ---- What is there

    def alive(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the run ended with {self.process.returncode} too early:\n{read(self.log)[-3000:]}")

    def wait_for(self, what, condition, seconds=DEADLINE):
        try:
            return wait_for(what, condition, seconds, self.alive)
        except Timeout as error:
            raise Timeout(f"{error}\n{read(self.log)[-2000:]}\n{self.logs()[-6000:]}") from None

    def workers(self):
        """Worker by slot, of those whose sentinel runs."""
        found = Workers()
        for pid in children_of(self.process.pid):
            try:
                worker = Worker(pid)
            except (KeyError, ValueError, OSError):
                continue  # it ended while it was looked at, or has not begun
            if stat_of(pid) and stat_of(pid)[0] != "Z":
                found[worker.slot] = worker
        return found

    def with_trainer(self, slot):
        """The slot's worker, once it has a trainer. Looked at once a try: a process that begins a program has no environment
        for a moment, and is no worker then."""
        def found():
            worker = self.workers().get(slot)
            return worker if worker and worker.trainers else None
        return self.wait_for(f"slot {slot} has a trainer", found)

    def trainer(self, slot):
        """Pid of the slot's only trainer, once there is one."""
        return self.with_trainer(slot).trainers[0]

    def wait_anew(self, slot, old):
        """Waits until the slot has another trainer than `old`, the process it had."""
        def is_anew():
            worker = self.workers().get(slot)
            return worker and worker.trainers not in ([old], [])
        self.wait_for(f"slot {slot} has another trainer", is_anew)

    def identities(self, slots):
        workers = self.workers()
        return {slot: workers[slot].identity for slot in slots if slot in workers}

    def record(self):
        """The lines of the record that are whole."""
        text = read(os.path.join(self.output, "checkpoints", "record.jsonl"))
        return [line for line in (json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()) if "step" in line]

    def last(self):
        """The newest line of the record; an empty one before there is any."""
        path = os.path.join(self.output, "checkpoints", "record.jsonl")
        try:
            with open(path, "rb") as file:
                file.seek(max(0, os.path.getsize(path) - 4096))
                lines = file.read().split(b"\n")[:-1]
        except OSError:
            return {"step": 0, "workers": 0}
        for line in reversed(lines):
            if line.startswith(b'{"step"'):
                return json.loads(line)
        return {"step": 0, "workers": 0}

    def step(self):
        return self.last()["step"]

    def wait_step(self, step, seconds=DEADLINE):
        """Waits until that step is recorded; the newest one."""
        return self.wait_for(f"step {step}", lambda: self.step() >= step and self.step(), seconds)

    def wait_trained_by(self, workers, more=3):
        """Waits until `more` steps from now on have been made by exactly so many workers."""
        first = self.step() + more
        return self.wait_for(f"{workers} workers train",
                             lambda: self.last()["workers"] == workers and self.step() >= first and self.step())

    def logs(self):
        """All that the workers have logged, in the order of their names."""
        folder = os.path.join(self.output, "logs")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        return "".join(read(os.path.join(folder, name)) for name in names if name.endswith(".log"))

    def log_of(self, slot, attempt=0):
        folder = os.path.join(self.output, "logs")
        names = [name for name in os.listdir(folder) if name.endswith(f"-{slot}-{attempt}.log")]
        return read(os.path.join(folder, names[0])) if names else ""

    def wait_said(self, slot, pattern):
        """Waits until the slot's worker has logged it; any worker where `slot` is None. What is logged comes through a pipe, and may
        come after its effects."""
        return self.wait_for(f"slot {slot} logs {pattern!r}",
                             lambda: re.search(pattern, self.logs() if slot is None else self.log_of(slot)))

    def entered(self, slot=None):
        """How often a trainer, or one of that slot, has said that it entered a membership."""
        return (self.logs() if slot is None else self.log_of(slot)).count(ENTERS)

    def newest_epoch(self, slot, message):
        """The last membership of which the slot's worker has logged that; 0 before any."""
        return max(map(int, re.findall(rf'"message":"{message}".*?"epoch":(\d+)', self.log_of(slot))), default=0)

    def wait_entered(self, times, slot=None):
        """Waits until it was said so often; how often it was. Who trains may come to say so after the first steps."""
        return self.wait_for(f"{times} have said that they train", lambda: self.entered(slot) >= times and self.entered(slot))

    # ---- What is done to it

    def kill(self, *slots, what="worker"):
        """SIGKILL of everything of those slots at once, or of their `trainers` or `sentinel`s."""
        workers = self.workers()
        pids = []
        for slot in slots:
            worker = workers[slot]
            pids += {"worker": worker.pids(), "trainer": worker.trainers, "sentinel": [worker.sentinel]}[what]
        assert pids, f"nobody to kill in {slots}"
        # A death is mended within milliseconds, and this process may lose the processor between two signals for longer.
        signal_all(pids, signal.SIGSTOP)
        signal_all(pids, signal.SIGKILL)

    def stop(self, *slots, what="worker"):
        """SIGSTOP, sentinel first; gives what to pass to go_on()."""
        workers = self.workers()
        pids = [pid for slot in slots for pid in (workers[slot].pids() if what == "worker" else workers[slot].trainers)]
        signal_all(pids, signal.SIGSTOP)
        return pids

    @staticmethod
    def go_on(pids):
        signal_all(pids, signal.SIGCONT)

    def resize(self, count):
        self.manifest["spec"]["worker"]["count"] = count
        self.write_manifest()
        self.process.send_signal(signal.SIGUSR1)

    # ---- The end

    def wait(self):
        """(exit code, what was said)"""
        try:
            code = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise Timeout(f"the run does not end at step {self.step()}\n{read(self.log)[-3000:]}\n"
                          f"{self.logs()[-6000:]}") from None
        return code, read(self.log)

    def report(self):
        return json.loads(read(os.path.join(self.output, "report.json")))

    def model(self):
        with open(os.path.join(self.output, MODEL), "rb") as file:
            return file.read()

    def saved(self, name, step):
        """A file of the checkpoint of that step."""
        with open(os.path.join(self.output, "checkpoints", f"step-{step:012}", name), "rb") as file:
            return file.read()

    def optimizer(self):
        """The optimiser's state after the last step."""
        return self.saved(OPTIMIZER, self.steps)

    def reference(self):
        """(records, model, optimiser's state) of an undisturbed run of one worker."""
        training = json.dumps(self.manifest["spec"]["training"], sort_keys=True)
        if training not in Job.references:
            with tempfile.TemporaryDirectory(prefix="muster-faults-") as directory:
                job = Job(directory, self.bin_dir, 1, self.steps, pace_ms=0, seed=self.seed,
                          training=self.manifest["spec"]["training"])
                shutil.copytree(os.path.join(self.directory, "data"), os.path.join(directory, "data"), dirs_exist_ok=True)
                job.start("--quiet")
                code, said = job.wait()
                if code != 0:
                    raise AssertionError(f"the undisturbed run: {said}")
                Job.references[training] = job.record(), job.model(), job.optimizer()
        return Job.references[training]

    def end(self, restarts=0):
        """Waits for the end and holds everything against the undisturbed run; the report."""
        self.set_pace(0)
        code, said = self.wait()
        report = self.report() if os.path.exists(os.path.join(self.output, "report.json")) else {}
        if code != 0:
            raise AssertionError(f"exit code {code}\n{said[-3000:]}\n{self.logs()[-6000:]}")
        self.check(self.model())
        if report["restarts"] != restarts:
            raise AssertionError(f"{report['restarts']} restarts of the gang, not {restarts}\n{said[-3000:]}")
        return report

    def check(self, model):
        """Holds record, model and the optimiser's state against the undisturbed run."""
        facts = lambda lines: [(line["step"], line["loss"], line["sha256"], line["samples"]) for line in lines]
        records, right, optimizer = self.reference()
        made = self.record()
        if [line["step"] for line in made] != list(range(1, self.steps + 1)):
            raise AssertionError(f"not every step once and in order: {[line['step'] for line in made]}")
        wrong = [one[0] for one, other in zip(facts(made), facts(records)) if one != other]
        if wrong or len(made) != len(records):
            raise AssertionError(f"the first step that differs is {wrong[:1] or 'missing'}")
        if model != right:
            raise AssertionError("the models differ")
        if self.optimizer() != optimizer:
            raise AssertionError("the optimiser's states differ")

    def close(self):
        """Ends what is left, whatever happened; SIGKILL for muster ends its workers."""
        if self.process is None:
            return
        pids = [pid for worker in self.workers().values() for pid in worker.pids()]
        signal_all(pids, signal.SIGCONT)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(DEADLINE)
        wait_for("no process outlives its run", lambda: not any(
            stat_of(pid) and stat_of(pid)[0] != "Z" for pid in pids), 30)


class FaultTest(unittest.TestCase):
    bin_dir = os.path.join(ROOT, "build", "release", "bin")

    def job(self, workers, steps=2000, **rest):
        """A job that is not yet started."""
        directory = tempfile.mkdtemp(prefix="muster-faults-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        job = Job(directory, self.bin_dir, workers, steps, **rest)
        self.addCleanup(job.close)
        return job

    def training(self, workers, steps=2000, **rest):
        """A job whose workers all train."""
        job = self.job(workers, steps, **rest).start()
        job.wait_trained_by(workers)
        return job

    def assert_undisturbed(self, job, slots, before):
        """The processes of these slots are those of before."""
        self.assertEqual(job.identities(slots), {slot: before[slot] for slot in slots}, job.logs()[-20000:])

    def ended_by_request(self, job):
        """Stops the run with a checkpoint, and lets it end at the step after; how many steps so many workers made."""
        job.process.send_signal(signal.SIGINT)
        code, said = job.wait()
        self.assertEqual(code, 130, said)
        steps = job.step()
        with tempfile.TemporaryDirectory(prefix="muster-faults-") as directory:
            training = {key: value for key, value in job.manifest["spec"]["training"].items() if key != "steps"}
            calm = Job(directory, self.bin_dir, 1, steps, pace_ms=0, seed=job.seed, training=training).start("--quiet")
            code, said = wait_for("the undisturbed run ends", lambda: calm.process.poll() is not None and calm.wait(),
                                  DEADLINE + steps / 500)
            self.assertEqual(code, 0, said)
            facts = lambda line: line and (line["step"], line["loss"], line["sha256"], line["samples"])
            by_workers = collections.Counter()
            for number, (made, right) in enumerate(itertools.zip_longest(steps_of(job), steps_of(calm)), 1):
                self.assertEqual(facts(made), facts(right))
                self.assertEqual(made["step"], number)
                by_workers[made["workers"]] += 1
            self.assertEqual(number, steps)
            for name in (MODEL, OPTIMIZER):
                self.assertTrue(job.saved(name, steps) == calm.saved(name, steps), f"{name} of step {steps} is another one")
        return by_workers

    @staticmethod
    def needs_root():
        return os.geteuid() != 0 and "needs root (namespaces, cgroups)"


def main():
    if len(sys.argv) < 2:
        sys.exit("usage: FILE BIN_DIR [unittest arguments]")
    FaultTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
