#!/usr/bin/env python3
"""`muster run` as a user runs it: real processes, real files, real signals.

    tests/run/run_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster and muster-worker

Nothing here sleeps: a test waits for a line, a signal's effect or the end of a process, with a deadline.
"""

import csv
import filecmp
import gzip
import json
import os
import re
import select
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests/faults")]
from job import read, replace, wait_for  # noqa: E402
from pictures import gray_png  # noqa: E402
from slow_test import PROMISED, promised_by  # noqa: E402

DEADLINE = 120
LONG = ["--set", "spec.training.epochs=400", "--hash-every", "100"]   # paced long enough to be interrupted
PACE_MS = 20
TRIES = 5

with open(os.path.join(ROOT, "tests/golden.h"), encoding="utf-8") as header:
    GOLDEN, GOLDEN_CNN = re.findall(r"[0-9a-f]{64}", header.read())[:2]


def processes_of(directory):
    """Pids of processes whose environment names `directory`, but for this one."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if directory.encode() in file.read():
                    found.append(int(name))
        except OSError:
            pass
    return found


class RunTest(unittest.TestCase):
    bin_dir = "build/release/bin"

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-run-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        shutil.copytree(os.path.join(ROOT, "examples"), self.path("examples"))
        self.digits = self.path("examples/digits.yaml")

    def tearDown(self):
        self.assertEqual(processes_of(self.directory), [], "processes outlived their run")

    def path(self, name):
        return os.path.join(self.directory, name)

    def muster(self):
        return os.path.join(self.bin_dir, "muster")

    def run_muster(self, *arguments):
        """Runs to the end; gives (exit code, stdout, stderr)."""
        done = subprocess.run([self.muster(), *arguments], cwd=self.directory, text=True, timeout=DEADLINE,
                              stdin=subprocess.DEVNULL, capture_output=True)
        return done.returncode, done.stdout, done.stderr

    def train(self, output, *arguments):
        """A training that must complete; gives its report."""
        code, out, err = self.run_muster("run", self.digits, "--output", self.path(output), *arguments)
        self.assertEqual(code, 0, out + err)
        return self.report(output)

    def report(self, output):
        with open(self.path(output + "/report.json"), encoding="utf-8") as file:
            return json.load(file)

    def start(self, *arguments, through=()):
        process = subprocess.Popen([*through, self.muster(), *arguments], cwd=self.directory, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def await_line(self, stream, pattern):
        """Reads lines until one matches."""
        seen = []

        def is_late(*_):
            self.fail(f"no line {pattern!r} within {DEADLINE} s after:\n{''.join(seen[-100:])}")

        before = signal.signal(signal.SIGALRM, is_late)
        signal.alarm(DEADLINE)
        try:
            while True:
                line = stream.readline()
                if not line:
                    self.fail(f"no line {pattern!r} before the end of:\n{''.join(seen[-100:])}")
                seen.append(line)
                if re.search(pattern, line):
                    return line
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    def end_of(self, process):
        """(exit code, rest of stdout, rest of stderr)"""
        out, err = process.communicate(timeout=DEADLINE)
        return process.returncode, out, err

    def interrupted(self, output, *arguments, number=signal.SIGINT):
        """Starts a training, interrupts it at work, and gives the step of its checkpoint."""
        self.set_pace(PACE_MS)
        process = self.start("run", self.digits, "--output", self.path(output), *arguments)
        self.await_line(process.stderr, r"^step ")
        process.send_signal(number)
        self.set_pace(0)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 130, out + err)
        said = re.match(r"Interrupted: checkpoint of step (\d+); the same command goes on from there\n", out)
        self.assertTrue(said, out)
        return int(said.group(1))

    def own_job(self, script, name="own", **worker):
        """Writes a manifest of an own program and gives its path."""
        manifest = {"apiVersion": "muster.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name},
                    "spec": {"worker": {"command": ["/bin/sh", "-c", script], **worker},
                             "restart": {"policy": "Never"}}}
        path = self.path(name + ".yaml")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(manifest, file)   # JSON is YAML
        return path

    def start_workers_through(self, *lines):
        """From now on a worker is started by a script of these lines, whose last says how the program `$@` is run."""
        built = os.path.abspath(RunTest.bin_dir)
        programs = self.path("bin")
        os.makedirs(programs, exist_ok=True)
        shutil.copy(os.path.join(built, "muster"), programs)
        with open(os.path.join(programs, "muster-worker"), "w", encoding="utf-8") as file:
            file.write("\n".join(["#!/bin/sh", f'set -- "{built}/muster-worker" "$@"', *lines, ""]))
        os.chmod(os.path.join(programs, "muster-worker"), 0o755)
        self.bin_dir = programs

    def set_pace(self, pace_ms):
        """Least milliseconds of the steps from now on, of workers that are started after the first call. Paced, a run has time
        for what is done to it, however slow the machine is."""
        replace(self.path("pace"), str(pace_ms))
        if self.bin_dir == RunTest.bin_dir:
            self.start_workers_through(f'export MUSTER_PACE_MS="{self.path("pace")}"', 'exec "$@"')

    def record(self, output):
        """The lines of the run's record that are whole."""
        text = read(self.path(output + "/checkpoints/record.jsonl"))
        return [line for line in (json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()) if "step" in line]

    def fifo(self, name="fifo"):
        """A named pipe: (path, reader). Its end of file says that no process holds it any more."""
        os.mkfifo(self.path(name))
        reader = os.open(self.path(name), os.O_RDONLY | os.O_NONBLOCK)
        self.addCleanup(os.close, reader)
        return self.path(name), reader

    def fifo_line(self, reader):
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([reader], [], [], DEADLINE)
            self.assertTrue(ready, f"nothing came, only {text!r}")
            byte = os.read(reader, 1)
            if not byte:
                return None
            text += byte
        return text.decode().rstrip("\n")


class Golden(RunTest):
    # By number of workers what each of them holds: sum nodes of the 16 logical ranks, elements to add up (whole blocks).
    HELD = {1: [(1, 9614)], 2: [(1, 4096), (1, 5518)], 3: [(1, 4096), (2, 4096), (2, 1422)],
            4: [(1, 0), (1, 4096), (1, 4096), (1, 1422)]}

    def bytes_of_a_step(self, workers):
        """All workers' together: a node's elements go to their owners, what the owner added up goes to all (expected_bytes)."""
        held = self.HELD[workers]
        elements = 64 * 128 + 128 + 128 * 10 + 10 + 4   # four statistics stand behind the gradient
        self.assertEqual(sum(own for _, own in held), elements)
        return 4 * sum(nodes * (elements - own) + own * (workers - 1) for nodes, own in held)

    def test_the_digits_example_ends_with_a_model_and_the_whole_story(self):
        code, out, err = self.run_muster("run", self.digits)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out, r"^Complete: 440 steps\ntest accuracy 0\.97\d\d\n"
                              r"model \S+/muster-out/digits/model\.safetensors\nreport \S+/report\.json\n$")
        self.assertIn("2 of 2 workers run", err)
        self.assertIn("step ", err)
        report = self.report("muster-out/digits")
        self.assertEqual(report["sha256"], GOLDEN)
        self.assertEqual(report["byStep"][-1]["sha256"], GOLDEN)
        self.assertEqual(report["status"], "Complete")
        self.assertEqual(report["steps"], 440)
        self.assertEqual([s["step"] for s in report["byStep"]], list(range(1, 441)))
        self.assertTrue(all(len(s["sha256"]) == 64 for s in report["byStep"]))
        self.assertEqual(report["epochs"], 20)
        self.assertEqual(len(report["evaluations"]), 20)
        self.assertGreaterEqual(report["accuracy"], 0.97)
        self.assertEqual(report["logicalRankComputations"], 16 * 440)
        self.assertEqual(report["workersOverTime"], [{"step": 1, "workers": 2}])
        self.assertEqual(report["restarts"], 0)
        self.assertGreater(report["sentBytes"], 0)
        self.assertGreater(report["samplesPerSecond"], 0)
        self.assertGreater(report["startToFirstStepSeconds"], 0)
        self.assertIn("Complete", [c["type"] for c in report["conditions"] if c["status"] == "True"])
        files = sorted(os.listdir(self.path("muster-out/digits")))
        self.assertEqual(files, ["checkpoints", "job.json", "lock", "logs", "model.safetensors", "report.json"])

    def test_any_number_of_workers_gives_the_golden_bits(self):
        models = set()
        for count in (1, 2, 3, 4):
            report = self.train(f"w{count}", "--quiet", "--set", f"spec.worker.count={count}")
            self.assertEqual(report["sha256"], GOLDEN, f"{count} workers")
            self.assertEqual(report["logicalRankComputations"], 16 * 440)
            self.assertEqual(report["workersOverTime"], [{"step": 1, "workers": count}])
            # Beside the gradients 440 steps need headers, the comparisons of the copies and the evaluations' sums.
            expected = 440 * self.bytes_of_a_step(count)
            self.assertGreaterEqual(report["sentBytes"], expected, f"{count} workers")
            self.assertLessEqual(report["sentBytes"], 1.02 * expected, f"{count} workers")
            with open(self.path(f"w{count}/model.safetensors"), "rb") as file:
                models.add(file.read())
        self.assertEqual(len(models), 1, "the model's files differ")

    def test_two_processes_per_worker_and_two_threads_give_the_golden_bits(self):
        report = self.train("p2", "--quiet", "--set", "spec.worker.processes=2", "--set", "spec.worker.threads=2")
        self.assertEqual(report["sha256"], GOLDEN)
        self.assertEqual(report["workersOverTime"], [{"step": 1, "workers": 4}])

    def test_convolution_batch_normalisation_and_dropout_have_golden_bits_too(self):
        self.digits = self.path("examples/digits-cnn.yaml")
        for count in (1, 3):
            report = self.train(f"c{count}", "--quiet", "--set", f"spec.worker.count={count}")
            self.assertEqual(report["sha256"], GOLDEN_CNN, f"{count} workers")
            self.assertGreaterEqual(report["accuracy"], 0.97)

    def test_a_table_trains_with_the_same_bits_on_any_number_of_workers(self):
        for example, least in (("iris", 0.93), ("penguins", 0.97)):
            self.digits = self.path(f"examples/{example}.yaml")
            reports = [self.train(f"{example}{count}", "--quiet", "--set", f"spec.worker.count={count}") for count in (1, 2, 3)]
            self.assertEqual(len({report["sha256"] for report in reports}), 1)
            self.assertGreaterEqual(reports[0]["accuracy"], least)
        # What docs/data.md says of how to use the model is another's computing of the same; of one that does not know all yet.
        short = self.train("short", "--quiet", "--set", "spec.training.epochs=1", "--set",
                           "spec.training.optimizer={sgd: {learningRate: \"0.005\"}}")
        self.assertLess(short["accuracy"], 1)
        with open(os.path.join(ROOT, "docs", "data.md"), encoding="utf-8") as file:
            (program,) = re.findall(r"^```python\n(.*?)^```", file.read(), re.M | re.S)
        said = subprocess.run([sys.executable, "-W", "ignore", "-c", program.replace("muster-out/penguins", self.path("short"))],
                              cwd=self.path(""), text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual((said.stdout, said.stderr), (f"test accuracy {short['accuracy']:.4f}\n", ""))
        with open(self.path("penguins1/inputs.json"), encoding="utf-8") as file:
            inputs = json.load(file)
        self.assertEqual([(one["column"], one.get("word")) for one in inputs],
                         [("island", "Biscoe"), ("island", "Dream"), ("island", "Torgersen"), ("bill_length_mm", None),
                          ("bill_depth_mm", None), ("flipper_length_mm", None), ("body_mass_g", None), ("sex", "FEMALE"),
                          ("sex", "MALE")])
        with open(self.path("examples/data/penguins-train.csv"), encoding="ascii") as file:
            grams = [float(row["body_mass_g"]) for row in csv.DictReader(file) if row["body_mass_g"]]
        self.assertAlmostEqual(inputs[6]["mean"], statistics.mean(grams), 6)
        self.assertAlmostEqual(inputs[6]["deviation"], statistics.pstdev(grams), 6)

    def test_pictures_train_the_bits_of_the_same_images_and_one_that_is_none_is_named(self):
        with gzip.open(self.path("examples/data/digits-train-images.idx.gz")) as file:
            pixels = file.read()[16:]
        with gzip.open(self.path("examples/data/digits-train-labels.idx.gz")) as file:
            labels = file.read()[8:]
        order = sorted(range(len(labels)), key=lambda i: (labels[i], i))   # that of the directories and files
        for i in order:
            os.makedirs(self.path(f"pictures/digit-{labels[i]}"), exist_ok=True)
            image = pixels[64 * i:64 * (i + 1)]
            with open(self.path(f"pictures/digit-{labels[i]}/{i:04}.png"), "wb") as file:
                file.write(gray_png([image[at:at + 8] for at in range(0, 64, 8)]))
        with open(self.path("images"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, len(order), 8, 8) +
                       b"".join(pixels[64 * i:64 * (i + 1)] for i in order))
        with open(self.path("labels"), "wb") as file:
            file.write(struct.pack(">II", 0x801, len(order)) + bytes(labels[i] for i in order))
        files = f"idx: {{images: {self.path('images')}, labels: {self.path('labels')}}}"
        folder = f"imageFolder: {{directory: {self.path('pictures')}, colors: Gray}}"
        reports = [self.train(f"p{i}", "--quiet", "--set", "spec.training.epochs=5", "--set", f"spec.worker.count={count}",
                              "--set", f"spec.training.data={{train: {{{data}}}, test: {{{data}}}}}")
                   for i, (count, data) in enumerate(((1, files), (1, folder), (3, folder)))]
        self.assertEqual(len({report["sha256"] for report in reports}), 1)
        self.assertGreaterEqual(reports[1]["accuracy"], 0.97)
        with open(self.path("pictures/digit-3/notes.txt"), "w", encoding="utf-8") as file:
            file.write("looks like an 8")
        code, out, err = self.run_muster("run", self.digits, "--quiet", "--set",
                                         f"spec.training.data={{train: {{{folder}}}}}")
        self.assertEqual(code, 21, out + err)
        self.assertRegex(out, r"digit-3/notes\.txt: is neither a PNG nor a JPEG file")

    def test_images_too_small_for_the_stages_are_refused_by_the_fields_name(self):
        self.digits = self.path("examples/digits-cnn.yaml")
        code, out, err = self.run_muster("run", self.digits, "--set", "spec.training.model.cnn.channels=[2, 2, 2, 2]")
        self.assertEqual(code, 20, out + err)
        self.assertIn("spec.training.model.cnn.channels: has 4 stages, each of which halves its images", out + err)

    def test_adamw_on_clipped_gradients_has_the_same_bits_on_any_number_of_workers(self):
        adamw = ["--quiet", "--set", "spec.training.epochs=3",
                 "--set", 'spec.training.optimizer={adamw: {learningRate: "0.003", weightDecay: "0.05"}}']
        clipped = [*adamw, "--set", 'spec.training.gradientClipping={maxNorm: "1.0"}']
        hashes = {self.train(f"adamw{count}", *clipped, "--set", f"spec.worker.count={count}")["sha256"]
                  for count in (1, 3)}
        self.assertEqual(len(hashes), 1)
        self.assertNotIn(self.train("unclipped", *adamw)["sha256"], hashes)
        # A run goes on from a checkpoint of its own optimiser only.
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("adamw1"), *adamw)
        self.assertNotEqual(code, 0)
        self.assertIn("belongs to another job: spec.training.gradientClipping differs", out + err)

    def test_hashes_come_as_often_as_asked(self):
        report = self.train("rare", "--quiet", "--hash-every", "0")
        self.assertEqual(report["sha256"], GOLDEN)
        hashed = [s["step"] for s in report["byStep"] if "sha256" in s]
        self.assertEqual(hashed, [])
        report = self.train("seldom", "--quiet", "--hash-every", "100")
        self.assertEqual([s["step"] for s in report["byStep"] if "sha256" in s], [100, 200, 300, 400])


class Interrupt(RunTest):
    def test_ctrl_c_leaves_a_checkpoint_and_the_same_command_ends_with_the_same_bits(self):
        whole = self.train("whole", "--quiet", *LONG)
        for number in (signal.SIGINT, signal.SIGTERM):
            step = self.interrupted("cut", *LONG, number=number)
            report = self.report("cut")
            self.assertEqual(report["status"], "Interrupted")
            self.assertEqual(report["checkpointStep"], step)
            self.assertEqual(report["steps"], step)
            self.assertFalse(os.path.exists(self.path("cut/model.safetensors")))
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("cut"),
                                         "--set", "spec.worker.count=3", *LONG)
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"Resuming from step {step} ", err)
        report = self.report("cut")
        self.assertEqual(report["resumedFromStep"], step)
        self.assertEqual(report["sha256"], whole["sha256"])
        self.assertEqual([(s["step"], s["loss"], s.get("sha256")) for s in report["byStep"]],
                         [(s["step"], s["loss"], s.get("sha256")) for s in whole["byStep"]])
        self.assertEqual(report["workersOverTime"][-1]["workers"], 3)

    def test_what_a_worker_leaves_behind_ends_with_the_run(self):
        fifo, reader = self.fifo()
        job = self.own_job(f"setsid sh -c 'exec 3> {fifo}; echo up >&3; sleep 1000 & sleep 1000' & read line < {self.path('go')}")
        os.mkfifo(self.path("go"))
        process = self.start("run", job, "--output", self.path("out"))
        self.assertEqual(self.fifo_line(reader), "up")
        with open(self.path("go"), "w", encoding="utf-8") as go:
            go.write("on\n")
        code, out, err = self.end_of(process)
        self.assertEqual(code, 0, out + err)
        self.assertIsNone(self.fifo_line(reader), "nobody holds it any more")

    def test_a_hang_up_stops_a_run_but_for_one_under_nohup(self):
        for through, ends, said in [([], 130, "Stopping; interrupt again"), (["nohup"], 0, "Complete")]:
            name = f"run{ends}"
            fifo, reader = self.fifo(name + ".up")
            job = self.own_job(f"exec 3> {fifo}; echo up >&3; read line < {self.path(name)}", name)
            os.mkfifo(self.path(name))
            process = self.start("run", job, "--output", self.path(name + ".out"), through=through)
            self.assertEqual(self.fifo_line(reader), "up")
            process.send_signal(signal.SIGHUP)
            if through:
                with open(self.path(name), "w", encoding="utf-8") as go:
                    go.write("on\n")
            code, out, err = self.end_of(process)
            self.assertEqual(code, ends, out + err)
            self.assertIn(said, out + err)

    def test_a_second_ctrl_c_kills_at_once(self):
        fifo, reader = self.fifo()
        job = self.own_job(f"trap '' TERM; exec 3> {fifo}; echo up >&3; sleep 1000", terminationGracePeriodSeconds=600)
        process = self.start("run", job, "--output", self.path("out"))
        self.assertEqual(self.fifo_line(reader), "up")
        self.await_line(process.stderr, "Running:")
        process.send_signal(signal.SIGINT)
        self.await_line(process.stderr, "Stopping; interrupt again")
        process.send_signal(signal.SIGINT)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 130, out + err)
        self.assertIsNone(self.fifo_line(reader))
        self.assertEqual(self.report("out")["status"], "Interrupted")

    def test_no_worker_outlives_a_killed_muster(self):
        self.set_pace(PACE_MS)
        process = self.start("run", self.digits, "--output", self.path("out"), *LONG)
        self.await_line(process.stderr, r"^step ")
        pids = [p for p in processes_of(self.directory) if p != process.pid]
        self.assertGreaterEqual(len(pids), 4, "two sentinels and two trainers")
        ends = [os.pidfd_open(p) for p in pids]
        process.kill()
        for end in ends:
            ready, _, _ = select.select([end], [], [], DEADLINE)
            self.assertTrue(ready, "a worker outlived muster")
            os.close(end)
        self.end_of(process)
        self.set_pace(0)
        # What it left is an unfinished run: the same command completes it.
        self.assertEqual(self.train("out", "--quiet", *LONG)["status"], "Complete")


class Kill(RunTest):
    ARGUMENTS = [*LONG, "--set", "spec.restart.backoffSeconds=0"]

    def pids(self, is_trainer):
        """Of this run's trainers, or of its sentinels."""
        found = []
        for pid in processes_of(self.directory):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    words = file.read()
            except OSError:
                continue
            if b"muster-worker" in words and (b"--trainer" in words) == is_trainer:
                found.append(pid)
        return sorted(found)

    @staticmethod
    def slot_of(pid):
        with open(f"/proc/{pid}/environ", "rb") as file:
            return int(re.search(rb"(?:^|\0)MUSTER_SLOT=(\d+)\0", file.read()).group(1))

    def killed(self, is_trainer):
        """A run of which a worker, or its trainer, is killed while it trains; its report."""
        whole = self.train("whole", "--quiet", *self.ARGUMENTS)
        self.set_pace(PACE_MS)
        process = self.start("run", self.digits, "--output", self.path("cut"), *self.ARGUMENTS)
        self.await_line(process.stderr, r"^step ")
        before = self.pids(True)
        self.assertEqual(len(before), 2)
        victim = self.pids(is_trainer)[-1]
        slot = self.slot_of(victim)
        os.kill(victim, signal.SIGKILL)
        for _ in range(TRIES if is_trainer else 0):
            first = len(self.record("cut")) + 3
            wait_for("both train again", lambda: len(self.record("cut")) > first and self.record("cut")[-1]["workers"] == 2)
            # On a busy machine it may be back before the other has come to the end of a step.
            if any(line["workers"] == 1 for line in self.record("cut")):
                break
            os.kill(next(pid for pid in self.pids(True) if self.slot_of(pid) == slot), signal.SIGKILL)
        self.set_pace(0)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(err, rf"(?m)^Warning: worker {slot} ", "it is not said whom the run lost")
        report = self.report("cut")
        self.assertEqual(report["restarts"], 0, "somebody who lived was started again")
        self.assertEqual(report["sha256"], whole["sha256"])
        self.assertEqual([s["step"] for s in report["byStep"]], list(range(1, len(whole["byStep"]) + 1)))
        self.assertEqual([s["loss"] for s in report["byStep"]], [s["loss"] for s in whole["byStep"]])
        return report

    def test_a_killed_trainer_stops_nobody_and_the_bits_are_the_same(self):
        report = self.killed(is_trainer=True)
        self.assertIn(1, {w["workers"] for w in report["workersOverTime"]}, "the survivor made no step alone")

    def test_a_killed_worker_stops_nobody_and_the_bits_are_the_same(self):
        self.killed(is_trainer=False)
        # Its replacement may be ready before the first step without it is made.
        logs = sorted(os.listdir(self.path("cut/logs")))
        self.assertEqual(len(logs), 3, logs)
        with open(self.path(f"cut/logs/{logs[-1]}"), encoding="utf-8") as file:
            self.assertIn('"joins a gang that trains"', file.read())


class Memory(RunTest):
    WIDE = ["--quiet", "--set", "spec.training.epochs=1", "--set", "spec.training.model.mlp.hidden=[1024, 1024, 1024]", "--set",
            'spec.training.optimizer={adamw: {learningRate: "0.001"}}', "--set", "spec.worker={count: 1, processes: 6}"]
    # Of the largest of a command's processes, and of those that these have waited for.
    PEAK = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")

    SENTINEL = 11 << 20  # its part is foreseen with each process, and a 32nd of all beside it

    def test_no_process_takes_much_more_than_it_has_foreseen_also_for_its_checkpoints(self):
        for state, stages, every in (("Replicated", 1, 10), ("Replicated", 1, 100), ("Replicated", 2, 100),
                                     ("Sharded", 1, 10), ("Sharded", 1, 100), ("Sharded", 2, 100)):
            with self.subTest(state=state, stages=stages, every=every):
                output = self.path(f"{state}{stages}-{every}")
                fields = [f"optimizerState={state}", f"parallelism.pipeline={stages}", f"checkpoint.everySteps={every}"]
                chosen = [word for field in fields for word in ("--set", "spec.training." + field)]
                done = subprocess.run([sys.executable, "-c", self.PEAK, self.muster(), "run", self.digits, "--output", output,
                                       *self.WIDE, *chosen], text=True, timeout=DEADLINE, capture_output=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                peak, foreseen = int(done.stdout) * 1024, 0
                for name in os.listdir(output + "/logs"):
                    with open(f"{output}/logs/{name}", encoding="utf-8") as file:
                        foreseen = max([foreseen, *(int(needs) for needs in re.findall(r'"needsBytes":([0-9]+)', file.read()))])
                foreseen = foreseen * 32 // 33 - self.SENTINEL
                # A second optimiser's state would be a fifth to a third of it.
                self.assertLess(abs(peak / foreseen - 1), 0.13, (peak, foreseen))


class Text(RunTest):
    STEPS = ["--set", "spec.training.steps=40", "--set", "spec.training.batchSize=8", "--set", "spec.training.logicalRanks=8",
             "--set", "spec.training.optimizer.schedule.cosine.warmupSteps=40"]

    def test_a_gpt_learns_a_text_shows_tokens_a_second_and_writes_some_of_its_own(self):
        output = self.path("gpt")
        code, out, err = self.run_muster("run", self.path("examples/gpt-tiny.yaml"), "--output", output, *self.STEPS)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(err, r"step \d+/40 .*tokens/s")
        report = self.report("gpt")
        # 256 bytes by chance; the letters' frequencies alone take it from 5.5 to about 3.3.
        self.assertLess(float(report["byStep"][-1]["loss"]), 3.5)
        self.assertEqual(report["tokensPerSecond"], report["samplesPerSecond"] * 64)
        with open(output + "/sample.txt", "rb") as file:
            written = file.read()
        self.assertEqual(len(written), 512)
        self.assertIn(f"sample {output}/sample.txt\n", out)
        with open(output + "/config.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file)["model_type"], "gpt2")
        # As others load it: the names of GPT-2's checkpoints at the front of the file.
        with open(output + "/model.safetensors", "rb") as file:
            head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(head["h.3.attn.c_attn.weight"]["shape"], [128, 384])
        self.assertEqual(head["wte.weight"]["shape"], [256, 128])

    def test_a_text_becomes_tokens_that_a_gpt_learns_and_goes_on_from(self):
        vocabulary = os.path.join(ROOT, "tests/unit/bpe/vocabulary")
        with open(os.path.join(vocabulary, "vocab.json"), encoding="utf-8") as file:
            size = len(json.load(file))
        for split in ("train", "test"):
            code, out, err = self.run_muster("tokenize", self.path(f"examples/data/shakespeare-{split}.txt"), "--vocabulary",
                                             vocabulary, "--output", self.path(f"examples/{split}.bin"))
            self.assertEqual(code, 0, out + err)
            self.assertRegex(out, rf"/{split}\.bin: \d+ tokens of \d+ bytes; vocabularySize {size}\n$")
        self.digits = self.path("examples/gpt-tiny.yaml")
        tokens = [*self.STEPS, "--quiet", "--set", f"spec.training.model.gpt.vocabularySize={size}",
                  "--set", f"spec.training.data={{train: {{tokens: {{files: [train.bin]}}}}, test: {{tokens: {{files: [test.bin]}}}}, "
                           f"vocabulary: {{directory: {vocabulary}}}}}"]
        report = self.train("tokens1", *tokens, "--set", "spec.worker.count=1")
        self.assertEqual(self.train("tokens8", *tokens, "--set", "spec.worker.count=8")["sha256"], report["sha256"])
        self.assertGreater(os.path.getsize(self.path("tokens1/sample.txt")), 512)
        for name in ("vocab.json", "merges.txt"):
            self.assertTrue(filecmp.cmp(self.path(f"tokens1/{name}"), os.path.join(vocabulary, name), shallow=False))
        again = self.train("again", *tokens, "--set", f"spec.training.pretrained={{directory: {self.path('tokens1')}}}")
        # The average of some steps, because each has other samples.
        first, last = ([float(step["loss"]) for step in one["byStep"]] for one in (again, report))
        self.assertLess(abs(sum(first[:5]) - sum(last[-5:])) / 5, 0.3)
        for flag, sentence in (("--vocabulary", "vocab.json: cannot open"), ("--output", "cannot create")):
            arguments = {"--vocabulary": vocabulary, "--output": self.path("x.bin"), flag: self.path("nowhere/x")}
            code, out, err = self.run_muster("tokenize", self.path("examples/data/shakespeare-test.txt"),
                                             *(word for pair in arguments.items() for word in pair))
            self.assertEqual(code, 21 if flag == "--vocabulary" else 29, out + err)
            self.assertIn(sentence, err)

    def test_a_gpt_is_proved_under_kills_and_resizes(self):
        code, out, err = self.run_muster("prove", self.path("examples/gpt-tiny.yaml"), "--workers", "1,3", "--kills", "3",
                                         "--seed", "3", "--pace", "250", *self.STEPS)
        self.assertEqual(code, 0, out + err)
        self.assertIn("EQUAL: 40 of 40 steps have the same parameters, the models are byte-equal (", out)
        self.assertIn(" 3 of 3 kills, ", out)

    def test_a_text_that_cannot_be_right_is_refused_by_name(self):
        text = "spec.training.data.train.text.file"
        for value, code_expected, sentence in (("nothing.txt", 21, "nothing.txt"), ("data", 21, "data")):
            code, out, err = self.run_muster("run", self.path("examples/gpt-tiny.yaml"), "--output", self.path("bad-" + value),
                                             "--set", f"{text}={value}", "--set", "spec.restart.policy=Never")
            self.assertEqual(code, code_expected, out + err)
            self.assertIn(sentence, out + err)


class Joiner(RunTest):
    def test_a_worker_with_other_data_is_not_let_in_and_the_others_train_on(self):
        arguments = ["--set", "spec.training.epochs=1000000", "--hash-every", "1000000",
                     "--set", "spec.restart.backoffSeconds=1", "--set", "spec.training.checkpoint.everySteps=1000000"]
        process = self.start("run", self.digits, "--output", self.path("out"), *arguments)
        self.await_line(process.stderr, r"^step ")
        labels_file = self.path("examples/data/digits-train-labels.idx.gz")
        with gzip.open(labels_file) as file:
            labels = bytearray(file.read())
        labels[-1] = (labels[-1] + 1) % 10
        with gzip.open(labels_file + ".new", "wb") as file:
            file.write(labels)
        shutil.copy(labels_file, labels_file + ".right")
        os.replace(labels_file + ".new", labels_file)
        victim = next(pid for pid in processes_of(self.directory) if self.is_sentinel(pid, 1))
        os.kill(victim, signal.SIGKILL)
        self.await_line(process.stderr, r"1 of 2 workers run.*worker 1 was not let in: DataInvalid .*do not let this one in")
        os.replace(labels_file + ".right", labels_file)
        self.await_line(process.stderr, r"2 of 2 workers run")
        process.send_signal(signal.SIGINT)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 130, out + err)
        report = self.report("out")
        self.assertEqual(report["restarts"], 0)
        workers = [w["workers"] for w in report["workersOverTime"]]
        self.assertEqual((workers[0], workers[1], workers[-1]), (2, 1, 2), workers)

    @staticmethod
    def is_sentinel(pid, slot):
        with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/environ", "rb") as environment:
            command = words.read()
            return b"muster-worker" in command and b"--trainer" not in command and \
                f"MUSTER_SLOT={slot}\0".encode() in environment.read()


class Straggler(RunTest):
    # Steps of a tenth of a second: long enough that 20 of them are more than the sentinels need to compare notes.
    SLOW = ["--set", "spec.training.epochs=100000", "--set", "spec.training.model.mlp.hidden=[2048, 1024]",
            "--set", "spec.training.checkpoint.everySteps=1000000", "--hash-every", "1000000", "--log-level", "info"]

    def log_of(self, slot):
        for name in os.listdir(self.path("out/logs")):
            if re.search(rf"-{slot}-0\.log$", name):
                with open(self.path("out/logs/" + name), encoding="utf-8") as file:
                    return file.read()
        return ""

    def trainer_of(self, slot):
        for pid in processes_of(self.directory):
            with open(f"/proc/{pid}/cmdline", "rb") as words, open(f"/proc/{pid}/environ", "rb") as environment:
                if b"--trainer" in words.read() and f"MUSTER_SLOT={slot}\0".encode() in environment.read():
                    return pid
        self.fail(f"no trainer of worker {slot}")

    def test_a_worker_short_of_processor_time_is_named_within_20_steps_with_its_cause(self):
        process = self.start("run", self.digits, "--output", self.path("out"), *self.SLOW)
        # Those before tell what is usual.
        wait_for("some steps", lambda: len(self.record("out")) >= 5)
        trainer, processor = self.trainer_of(1), max(os.sched_getaffinity(0))
        # The trainer gets a seventh of one processor.
        for _ in range(2):
            burner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            self.addCleanup(burner.wait)
            self.addCleanup(burner.kill)
            os.sched_setaffinity(burner.pid, {processor})
        for thread in os.listdir(f"/proc/{trainer}/task"):
            os.sched_setaffinity(int(thread), {processor})
            os.setpriority(os.PRIO_PROCESS, int(thread), os.getpriority(os.PRIO_PROCESS, burner.pid) + 5)
        before = len(self.record("out"))
        self.await_line(process.stderr, r"worker 1 slows the gang by \d+ %: compute")
        process.send_signal(signal.SIGINT)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 130, out + err)
        said = [json.loads(line) for line in self.log_of(1).splitlines() if "holds the others up" in line]
        first = next(line for line in said if line["step"] > before)
        self.assertEqual(first["cause"], "compute", said)
        last = promised_by({line["step"]: line["seconds"] for line in self.record("out") if line["step"] <= first["step"]}, before,
                           PROMISED)
        print(f"named {first['step'] - before} steps after: {first['percent']} %, {first['delay_ms']} ms a step; the first {PROMISED} "
              f"slow steps were over {f'{last - before} after' if last else 'later'}")
        if last:
            self.assertLessEqual(first["step"], last, said)
        # A busy machine may have slowed another one, too, but nobody's network or data.
        for slot in (0, 1):
            for line in self.log_of(slot).splitlines():
                if "holds the others up" in line:
                    self.assertIn(json.loads(line)["cause"], ("compute", "files"), line)


class BadInput(RunTest):
    def refused(self, code, sentence, *arguments):
        """Refused before anything was written."""
        got, out, err = self.run_muster("run", *arguments, "--output", self.path("never"))
        self.assertEqual(got, code, f"{arguments}: {out}{err}")
        self.assertRegex(err, sentence, arguments)
        self.assertLessEqual(err.count("\n"), 3, err)
        self.assertFalse(os.path.exists(self.path("never")), f"{arguments}: the output directory was made")

    def test_what_cannot_be_right_is_one_sentence_and_nothing_is_written(self):
        rows = [
            ("spec.worker.count=9", r"digits\.yaml: spec\.worker\.count: "),
            ("spec.worker.count=two", r"spec\.worker\.count: "),
            ("spec.worker.count=0", r"spec\.worker\.count: "),
            ("spec.worker.max=17", r"digits\.yaml: spec\.training\.logicalRanks: is 16, fewer than the 17 processes of worker\.max x "
                                   r"worker\.processes; raise logicalRanks or lower them\n$"),
            ("spec.worker.cuont=2", r"spec\.worker\.cuont"),
            ("spec.training.batchSize=65", r"spec\.training\.batchSize: "),
            ("spec.training.logicalRanks=12", r"spec\.training\.logicalRanks: "),
            ("spec.training.optimizer.sgd.learningRate=0.1", r"learningRate: .*(string|quote)"),
            ("spec.training.optimizer={}", r"spec\.training\.optimizer: must have exactly one of sgd or adamw"),
            ("spec.training.optimizer.adamw={}", r"spec\.training\.optimizer\.adamw\.learningRate: is required"),
            ("spec.training.gradientClipping={maxNorm: 1}", r"gradientClipping\.maxNorm: .*quotes"),
            ("spec.training.model={cnn: {}}", r"spec\.training\.model"),
            ("spec.training=", r"digits\.yaml: spec: must have training \(the built-in engine\), or worker\.command or "
                               r"worker\.image \(your own program\)\n$"),
            ("spec.worker.command=[true]", r"spec\.worker\.command"),
            ("spec.suspend=true", r"spec\.suspend: "),
            ("metadata.name=Not_A_Name", r"metadata\.name: "),
            ("kind=Job", r"kind: "),
            ("apiVersion=v1", r"apiVersion: "),
        ]
        for override, sentence in rows:
            self.refused(20, sentence, self.digits, "--set", override)

    def test_a_path_that_is_no_utf_8_is_refused_by_name(self):
        odd = os.fsencode(self.directory) + b"/od\xe9"
        os.mkdir(odd)
        shutil.copy(os.fsencode(self.digits), odd)
        for command in ("run", "prove"):
            for file, output, sentence in [
                    (os.fsencode(self.digits), odd + b"/out", r"od /out: the directory of the run \(--output\) must have a path in UTF-8"),
                    (odd + b"/digits.yaml", b"never", r"od : the manifest's directory must have a path in UTF-8")]:
                done = subprocess.run([self.muster(), command, file, b"--output", output], cwd=self.directory, timeout=DEADLINE,
                                      stdin=subprocess.DEVNULL, capture_output=True)
                self.assertEqual(done.returncode, 2, done)
                self.assertRegex(done.stderr.decode(), sentence)
                self.assertEqual((os.listdir(odd), os.path.exists(self.path("never"))), ([b"digits.yaml"], False))

    def test_files_that_are_no_manifest(self):
        for name, text, code, sentence in [
                ("empty.yaml", "", 20, r"empty\.yaml:1: is empty"),
                ("list.yaml", "[1]", 20, r"list\.yaml: must be a map"),
                ("cut.yaml", "spec: {", 20, r"cut\.yaml:1: is not YAML"),
                ("twice.yaml", "kind: a\nkind: b\n", 20, r"twice\.yaml:2: the key \"kind\" stands here twice")]:
            with open(self.path(name), "w", encoding="utf-8") as file:
                file.write(text)
            self.refused(code, sentence, self.path(name))
        self.refused(2, r"absent\.yaml: cannot open: No such file or directory", self.path("absent.yaml"))

    def test_usage(self):
        self.refused(2, r"--no-such-flag", self.digits, "--no-such-flag")
        self.refused(2, r"--hash-every", self.digits, "--hash-every", "-1")
        self.refused(2, r"--log-level", self.digits, "--log-level", "loud")
        self.refused(2, r"absent\.yaml: cannot open", self.digits, "--price-list", self.path("absent.yaml"))
        self.refused(2, r"--set nonsense: write a path, = and a value", self.digits, "--set", "nonsense")
        self.refused(2, r"^muster: --metrics-port: must be at most 65531, because spec\.worker\.max is 4 ", self.digits,
                     "--metrics-port", "65532")
        for word in ("foo", "runn"):
            code, out, err = self.run_muster(word, self.digits)
            self.assertEqual((code, out), (2, ""))
            self.assertRegex(err, rf'^muster: "{word}" is no command; there are run, prove, .*get.*plan.*\n$')
        # A list takes one word, and not the file behind it.
        for arguments in (["prove", "--workers", "1,3", "absent.yaml", "--kills", "4"],
                          ["simulate", "--cluster", self.digits, "--rules", "muster,pods", "absent.yaml"]):
            code, out, err = self.run_muster(*arguments)
            self.assertEqual((code, out), (2, ""))
            self.assertRegex(err, r"^muster: absent\.yaml: cannot open")
        self.assertEqual(self.run_muster()[0], 2)
        self.assertEqual(self.run_muster("run")[0], 2)
        code, out, _ = self.run_muster("--version")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"^muster \d+\.\d+\.\d+\n$")
        code, out, _ = self.run_muster("run", "--help")
        self.assertEqual(code, 0)
        self.assertIn("muster run examples/digits.yaml", out)

    def test_a_port_that_is_taken_is_named(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            code, out, err = self.run_muster("run", self.digits, "--output", self.path("out"), "--metrics-port", str(port))
        self.assertEqual(code, 28, out + err)
        self.assertRegex(out, rf"^Failed: .*--metrics-port: .*127\.0\.0\.1:{port}: Address already in use")
        self.assertEqual(self.report("out")["exitCode"], 28)
        self.assert_nothing_begun("out")
        self.assertEqual(self.train("out", "--quiet")["sha256"], GOLDEN)

    def test_a_workers_port_that_is_taken_is_named(self):
        one = ["--quiet", "--set", "spec.worker.count=1", "--set", "spec.restart.policy=Never"]
        with self.behind_a_free_port() as taken:
            port = taken.getsockname()[1] - 1
            code, out, err = self.run_muster("run", self.digits, "--output", self.path("out"), "--metrics-port", str(port), *one)
        self.assertEqual(code, 28, out + err)
        self.assertRegex(out, rf"^Failed: .*MUSTER_METRICS_PORT: .*127\.0\.0\.1:{port + 1}: Address already in use")
        self.assertEqual(self.report("out")["exitCode"], 28)
        self.assert_nothing_begun("out")
        self.assertEqual(self.train("out", *one)["sha256"], GOLDEN)

    def behind_a_free_port(self):
        """A socket that listens where the port below was free a moment ago."""
        for _ in range(20):
            taken = socket.create_server(("127.0.0.1", 0))
            try:
                with socket.create_server(("127.0.0.1", taken.getsockname()[1] - 1)):
                    return taken
            except OSError:
                taken.close()
        self.fail("no two ports beside each other are free")

    def assert_nothing_begun(self, output):
        """What a run leaves that never came to its first step."""
        self.assertEqual(sorted(os.listdir(self.path(output))), ["checkpoints", "job.json", "lock", "logs", "report.json"])
        self.assertEqual(os.listdir(self.path(output + "/checkpoints")), [])

    def failed(self, code, sentence, *arguments, job=None):
        got, out, err = self.run_muster("run", job or self.digits, "--output", self.path("out"), *arguments)
        self.assertEqual(got, code, out + err)
        self.assertRegex(out, r"^Failed: ")
        self.assertRegex(out, sentence)
        report = self.report("out")
        self.assertEqual((report["status"], report["exitCode"]), ("Failed", code))
        self.assertFalse(os.path.exists(self.path("out/model.safetensors")))
        left = [name for _, _, files in os.walk(self.path("out")) for name in files if name.endswith(".tmp")]
        self.assertEqual(left, [], "half written")
        shutil.rmtree(self.path("out"))
        return report

    def test_data_that_cannot_be_right_ends_with_21_and_the_files_name(self):
        images = self.path("examples/data/digits-train-images.idx.gz")
        with gzip.open(images) as file:
            plain = file.read()
        for name, content, sentence in [
                ("cut", plain[:-1], r"but only 91967 follow"), ("magic", b"\1" + plain[1:], r"starts with 01000803; an IDX"),
                ("empty", b"", r"is cut within its header"),
                ("bomb", plain + bytes(1 << 26), r"has more bytes than its header says"),
                ("announced bomb", plain[:4] + b"\0\x80\0\0" + plain[8:], r"8388608 x 8 x 8, more than a gzip file of \d+ bytes can hold")]:
            with gzip.open(images, "wb") as file:
                file.write(content)
            report = self.failed(21, rf"digits-train-images\.idx\.gz: .*{sentence}", "--quiet")
            self.assertEqual(report["restarts"], 0, f"{name}: starting again cannot help")
        os.unlink(images)
        self.failed(21, "digits-train-images", "--quiet")

    def test_labels_that_cannot_be_right_end_with_21_and_the_files_name(self):
        for name, change, sentence in [
                ("train", lambda text: text[:4] + (1436).to_bytes(4, "big") + text[8:-1],
                 r"digits-train-labels\.idx\.gz: has 1436 labels, but \S+digits-train-images\.idx\.gz has 1437 images"),
                ("test", lambda text: text[:-1] + b"\x0a",
                 r"digits-test-labels\.idx\.gz: label 359 is 10; the labels of the training set are from 0 to 9")]:
            path = self.path(f"examples/data/digits-{name}-labels.idx.gz")
            with gzip.open(path) as file:
                plain = file.read()
            with gzip.open(path, "wb") as file:
                file.write(change(plain))
            self.failed(21, sentence, "--quiet")
            with gzip.open(path, "wb") as file:
                file.write(plain)

    def test_a_table_that_cannot_be_right_ends_with_21_and_names_line_and_column(self):
        job, path = self.path("examples/iris.yaml"), self.path("examples/data/iris-train.csv")
        with open(path, encoding="ascii") as file:
            right = file.read()
        for changed, sentence in [
                (right.replace("4.9,3.0", "4.9,n/a", 1), r'iris-train\.csv: line 2: column "sepal_width" is "n/a"; must be a decimal'),
                (right.replace("setosa", "7", 1), r'iris-train\.csv: line 3: column "species" is "setosa"; labels must be whole'),
                (right.replace("species", "kind", 1), r'iris-train\.csv: its first line has no column "species"'),
                (right.replace("\n", "\n1,2\n", 1), r"iris-train\.csv: line 2 has 2 columns, the first line 5")]:
            with open(path, "w", encoding="ascii") as file:
                file.write(changed)
            self.failed(21, sentence, "--quiet", job=job)

    def test_a_full_disk_ends_with_29_and_the_files_name_and_nothing_half_written(self):
        for bytes_max, every, steps, sentence in [
                (30000, 100, 440, r"checkpoints/step-000000000100/model\.safetensors: cannot write: File too large"),
                (45000, 1000, 1000, r"checkpoints/record\.jsonl: cannot write: File too large")]:
            # A file of a worker may grow so far, and what is told of more is an error, as on a full disk.
            self.start_workers_through("trap '' XFSZ", f'exec prlimit --fsize={bytes_max} "$@"')
            self.failed(29, sentence, "--quiet", "--set", "spec.worker.count=1", "--set", "spec.restart.policy=Never", "--set",
                        f"spec.training.checkpoint.everySteps={every}", "--set", "spec.training.epochs=", "--set",
                        f"spec.training.steps={steps}", "--hash-every", "0")

    def test_what_a_full_disk_takes_of_log_and_report_is_said_and_how_the_job_ended_as_well(self):
        job = self.own_job("head -c 100000 /dev/zero | tr '\\0' x")
        code, out, err = self.run_muster("run", job, "--output", self.path("whole"))
        self.assertEqual(code, 0, out + err)
        # Room for job.json, and for nothing larger.
        room = os.path.getsize(self.path("whole/job.json")) + 1
        process = self.start("run", job, "--output", self.path("out"),
                             through=["sh", "-c", f"trap '' XFSZ; exec prlimit --fsize={room} \"$@\"", "sh"])
        code, out, err = self.end_of(process)
        self.assertEqual((code, out), (29, "Complete: every worker ended with 0\n"), err)
        self.assertRegex(err, r"out/report\.json\S*: cannot write: File too large")
        self.assertRegex(err, r"pod log not written.*File too large")

    def test_a_job_that_can_never_fit_says_so_and_ends(self):
        self.failed(3, "cannot start on this machine: .*memory", "--set", "spec.worker.resources.memory=60Ti")
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")
        self.failed(3, "cannot start on this machine: .*gpu", "--set", "spec.worker.resources.gpus=1")

    def test_the_deadline_ends_a_job_with_30(self):
        self.failed(30, "Failed: ", "--set", "spec.activeDeadlineSeconds=1",
                    job=self.own_job("sleep 1000", terminationGracePeriodSeconds=1))


class Directory(RunTest):
    def test_a_finished_run_is_trained_anew_with_the_same_bits(self):
        first = self.train("out", "--quiet")
        again = self.train("out", "--quiet", "--set", "spec.worker.count=1")
        self.assertEqual(first["sha256"], again["sha256"])
        self.assertIsNone(again["resumedFromStep"])
        self.assertEqual(again["logicalRankComputations"], 16 * 440)

    def test_a_finished_model_stays_until_a_new_run_has_one(self):
        self.train("out", "--quiet")
        with open(self.path("out/model.safetensors"), "rb") as file:
            model = file.read()
        with socket.create_server(("127.0.0.1", 0)) as taken:
            code, out, err = self.run_muster("run", self.digits, "--output", self.path("out"), "--metrics-port",
                                             str(taken.getsockname()[1]))
        self.assertEqual(code, 28, out + err)
        kept = self.path("out/previous/model.safetensors")
        self.assertIn(f"model of the run before {kept}\n", out)
        with open(kept, "rb") as file:
            self.assertEqual(file.read(), model)
        self.assertEqual(self.report("out/previous")["status"], "Complete")
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("out"), "--quiet")
        self.assertEqual(code, 0, out + err)
        self.assertNotIn("model of the run before", out)
        self.assertFalse(os.path.exists(self.path("out/previous")))

    def test_another_spec_is_refused_by_what_differs(self):
        self.train("out", "--quiet")
        code, _, err = self.run_muster("run", self.digits, "--output", self.path("out"), "--set",
                                       "spec.training.seed=8")
        self.assertEqual(code, 2)
        self.assertIn("belongs to another job: spec.training.seed differs", err)
        self.assertTrue(os.path.exists(self.path("out/model.safetensors")))

    def test_what_shows_in_no_bits_may_differ_when_a_run_goes_on(self):
        whole = self.train("whole", "--quiet", *LONG)
        step = self.interrupted("out", *LONG, "--set", "spec.training.epochs=900", "--set", "spec.training.checkpoint=")
        free = ["spec.worker.processes=2", "spec.training.microBatchSize=8", "spec.training.onNonFinite=Stop",
                "spec.training.optimizerState=Sharded", "spec.training.buddies=2", "spec.training.evaluation.everyEpochs=50",
                "spec.training.checkpoint={everySteps: 1000, keep: 1}"]
        changed = [word for field in free for word in ("--set", field)]
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("out"), *LONG, *changed)
        self.assertEqual(code, 0, out + err)
        self.assertIn(f"Resuming from step {step} ", err)
        self.assertEqual(self.report("out")["resumedFromStep"], step)
        self.assertEqual(self.report("out")["sha256"], whole["sha256"])

    def test_two_runs_in_one_directory_are_refused(self):
        fifo, reader = self.fifo()
        job = self.own_job(f"exec 3> {fifo}; echo up >&3; sleep 1000")
        process = self.start("run", job, "--output", self.path("out"))
        self.assertEqual(self.fifo_line(reader), "up")
        code, _, err = self.run_muster("run", job, "--output", self.path("out"))
        self.assertEqual(code, 2)
        self.assertIn("another `muster run` is writing here", err)
        process.send_signal(signal.SIGINT)
        self.assertEqual(self.end_of(process)[0], 130)

    def test_a_directory_of_something_else_is_left_alone(self):
        before = sorted(os.listdir(self.path("examples")))
        code, _, err = self.run_muster("run", self.digits, "--output", self.path("examples"))
        self.assertEqual(code, 2)
        self.assertIn("holds files that are not of a `muster run`", err)
        self.assertEqual(sorted(os.listdir(self.path("examples"))), before)
        code, _, err = self.run_muster("run", self.digits, "--output", self.digits)
        self.assertEqual(code, 2)
        self.assertIn("digits.yaml", err)

    def test_checkpoints_that_are_damaged_or_of_other_data_end_with_22(self):
        self.interrupted("out", *LONG)
        shutil.copytree(self.path("out"), self.path("damaged"))
        for folder, _, files in os.walk(self.path("damaged/checkpoints")):
            for name in files:
                if name == "model.safetensors":
                    with open(os.path.join(folder, name), "r+b") as file:
                        file.seek(-100, os.SEEK_END)
                        byte = file.read(1)
                        file.seek(-100, os.SEEK_END)
                        file.write(bytes([byte[0] ^ 1]))
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("damaged"), "--quiet", *LONG)
        self.assertEqual(code, 22, out + err)
        logs = ""
        for name in os.listdir(self.path("damaged/logs")):
            with open(self.path("damaged/logs/" + name), encoding="utf-8") as file:
                logs += file.read()
        self.assertRegex(logs, r"checkpoints/step-\d+/model\.safetensors")
        shutil.copytree(self.path("out"), self.path("other"))
        for folder, _, files in os.walk(self.path("other/checkpoints")):
            if "manifest.json" in files:
                with open(os.path.join(folder, "manifest.json"), "r+", encoding="utf-8") as file:
                    text = file.read()
                    self.assertIn("fp32-chain/1", text)
                    file.seek(0)
                    file.write(text.replace("fp32-chain/1", "fp32-chain/0"))
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("other"), "--quiet", *LONG)
        self.assertEqual(code, 22, out + err)
        self.assertRegex(out, r'step-\d+/manifest\.json: contract is "fp32-chain/0"; this build trains by "fp32-chain/1"')
        self.assertFalse(os.path.exists(self.path("other/model.safetensors")))
        labels_file = self.path("examples/data/digits-train-labels.idx.gz")
        with gzip.open(labels_file) as file:
            labels = bytearray(file.read())
        labels[-1] = (labels[-1] + 1) % 10
        with gzip.open(labels_file, "wb") as file:
            file.write(labels)
        code, out, err = self.run_muster("run", self.digits, "--output", self.path("out"), "--quiet", *LONG)
        self.assertEqual(code, 22, out + err)


class OwnProgram(RunTest):
    def test_a_gang_may_have_more_workers_than_the_soft_limit_of_descriptors_would_let_it(self):
        # Three and more for each; the programs find the limit as it was.
        job = self.own_job('test "$(ulimit -Sn)" = 64', count=24, resources={"memory": "16Mi"})
        code, out, err = self.end_of(self.start("run", job, through=["/bin/sh", "-c", 'ulimit -Sn 64; exec "$@"', "sh"]))
        self.assertEqual(code, 0, out + err)

    def test_own_programs_get_the_environment_and_find_each_other(self):
        with open(self.path("meet.py"), "w", encoding="utf-8") as file:
            file.write("""
import json, os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        server.settimeout(60)
        met = sorted(int(server.accept()[0].recv(8)) for _ in range(world - 1))
    assert met == list(range(1, world)), met
else:
    while True:
        try:
            with socket.create_connection(address, 60) as other:
                other.sendall(str(rank).encode())
            break
        except ConnectionRefusedError:
            pass
with open(f"env-{rank}.json", "w") as out:
    json.dump(dict(os.environ), out)
""")
        job = self.own_job(f"exec {sys.executable} meet.py", count=3, env=[{"name": "MINE", "value": "of $(MUSTER_SLOT)"}])
        code, out, err = self.run_muster("run", job)
        self.assertEqual(code, 0, out + err)
        self.assertRegex(out, "^Complete: every worker ended with 0\n")
        workers = set()
        for rank in range(3):
            with open(self.path(f"env-{rank}.json"), encoding="utf-8") as file:
                env = json.load(file)
            self.assertEqual((env["MUSTER_SLOT"], env["MUSTER_WORKERS"], env["WORLD_SIZE"], env["PET_NNODES"]),
                             (str(rank), "3", "3", "3"))
            self.assertEqual(env["MUSTER_JOB"], "default/own")
            self.assertEqual(env["MINE"], f"of {rank}")
            self.assertEqual(env["PATH"], os.environ["PATH"])
            tf = json.loads(env["TF_CONFIG"])
            self.assertEqual(tf["task"]["index"], rank)
            workers.update(tf["cluster"]["worker"])
        self.assertEqual(len(workers), 3, "every worker has an address of its own")
        report = self.report("muster-out/own")
        self.assertEqual(report["status"], "Complete")
        self.assertNotIn("byStep", report)

    def test_variables_that_pods_would_have_are_known_to_the_command(self):
        job = self.own_job('test "$(TOKEN) $(WHO) $(AT)" = "abc default 127.0.0.1"', envFrom=[{"secretRef": {"name": "s"}}], env=[
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in (("WHO", "spec.serviceAccountName"), ("AT", "status.podIPs"))])
        code, out, err = self.end_of(self.start("run", job, through=["env", "TOKEN=abc"]))
        self.assertEqual(code, 0, out + err)

    def test_a_failure_is_restarted_by_policy_and_then_told_with_its_last_words(self):
        job = self.own_job("echo try >> tries; echo the reason >&2; exit 5")
        restart = "spec.restart={policy: OnFailure, maxRestarts: 2, backoffSeconds: 0}"
        code, out, err = self.run_muster("run", job, "--output", self.path("out"), "--set", restart)
        self.assertEqual(code, 3, out + err)
        self.assertIn("the reason", out)
        with open(self.path("tries"), encoding="utf-8") as file:
            self.assertEqual(file.read(), "try\n" * 3)
        report = self.report("out")
        self.assertEqual(report["restarts"], 2)
        self.assertEqual(report["failure"]["exitCode"], 5)

    def test_the_example_of_pytorch_finds_its_program_beside_its_manifest(self):
        os.mkdir(self.path("bin"))
        with open(self.path("bin/python3"), "w", encoding="utf-8") as stub:   # PyTorch is not needed to see what is started
            stub.write('#!/bin/sh\nfor last; do :; done\n[ "$1 $2" = "-m torch.distributed.run" ] && [ -f "$last" ]\n')
        os.chmod(self.path("bin/python3"), 0o755)
        with unittest.mock.patch.dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"]):
            code, out, err = self.run_muster("run", os.path.join(ROOT, "examples/torch-ddp.yaml"), "--output", self.path("out"))
        self.assertEqual(code, 0, out + err)

    def test_last_words_that_are_no_text_do_not_hide_the_end(self):
        job = self.own_job(r"printf 'a\0b' >&2; exit 3")
        code, out, err = self.run_muster("run", job, "--output", self.path("out"))
        self.assertEqual(code, 3, out + err)
        report = self.report("out")
        self.assertEqual(report["status"], "Failed")
        self.assertEqual(report["failure"]["exitCode"], 3)
        self.assertEqual(report["failure"]["logTail"], "a?b")

    def test_a_program_that_is_not_there_is_named(self):
        job = self.own_job("")
        code, out, err = self.run_muster("run", job, "--output", self.path("out"),
                                         "--set", "spec.worker.command=[/no/such/program]")
        self.assertEqual(code, 3, out + err)
        self.assertIn("cannot start /no/such/program: No such file or directory", out)

    def test_what_only_pods_have_is_ignored_and_said_so(self):
        job = self.own_job("exit 0", image="mine:1", nodeSelector={"disk": "ssd"}, schedulerName="other")
        code, out, err = self.run_muster("run", job, "--set", "spec.topology={required: rack}")
        self.assertEqual(code, 0, out + err)
        self.assertIn("Note: spec.worker.image, spec.worker.nodeSelector, spec.worker.schedulerName and spec.topology are "
                      "ignored", err)

    def test_the_end_tells_what_it_has_cost_or_why_that_is_not_known(self):
        job = self.own_job("exit 0")
        for nodes, said in (({}, r"\d[0-9.]* EUR"), ({"pool": "gpu"}, r"not known: node \S+ is in no tier .*")):
            prices = {"currency": "EUR", "tiers": [
                {"name": "all", "nodes": nodes, "prices": [{"resource": "node", "perHour": "1000"}]}]}
            with open(self.path("prices.yaml"), "w", encoding="utf-8") as file:
                json.dump(prices, file)
            code, out, err = self.run_muster("run", job, "--price-list", self.path("prices.yaml"))
            self.assertEqual(code, 0, out + err)
            self.assertRegex(out, rf"(?m)^cost {said}$")
        self.assertNotIn("cost", self.run_muster("run", job)[1])

    def test_ctrl_c_promises_no_checkpoint_of_an_own_program(self):
        fifo, reader = self.fifo()
        process = self.start("run", self.own_job(f"exec 3> {fifo}; echo up >&3; sleep 1000"))
        self.assertEqual(self.fifo_line(reader), "up")
        process.send_signal(signal.SIGINT)
        code, out, err = self.end_of(process)
        self.assertEqual(code, 130, out + err)
        self.assertIn("Stopping; interrupt again", err)
        self.assertNotIn("with a checkpoint", err)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    RunTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
