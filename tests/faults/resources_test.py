#!/usr/bin/env python3
"""Workers of a real run lack something: processor time, memory, descriptors, disk, the right clock, the right program.

    tests/faults/resources_test.py BIN_DIR [unittest arguments]
    MUSTER_STARVE_SECONDS (8): how long the starved worker trains; the issue asks for 600
"""

import glob
import gzip
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import cgroup  # noqa: E402
from endpoint import BetweenEndpoint  # noqa: E402
from job import DEADLINE, ROOT, FaultTest, main, read  # noqa: E402
from pictures import gray_png  # noqa: E402
from slow_test import PROMISED, SlowTest, promised_by  # noqa: E402

OTHER_TRAINING = r"DataInvalid .*do not let this one in"
STARVE_SECONDS = int(os.environ.get("MUSTER_STARVE_SECONDS", "8"))
HOG = """
import os, sys
kept, page = [], b"x" * (1 << 20)
try:
    while os.readlink("/proc/%s/exe" % sys.argv[1]):
        kept.append(bytearray(page))
except OSError:
    pass
"""
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
/* The wall clock is off by the seconds in the file OFFSET; every other clock is right. */
int clock_gettime(clockid_t id, struct timespec* now) {
  static int (*real)(clockid_t, struct timespec*);
  if (!real) real = (int (*)(clockid_t, struct timespec*))dlsym(RTLD_NEXT, "clock_gettime");
  int done = real(id, now);
  if (id != CLOCK_REALTIME && id != CLOCK_REALTIME_COARSE) return done;
  char text[32] = {0};
  int file = open(OFFSET, O_RDONLY | O_CLOEXEC);
  if (file >= 0 && read(file, text, sizeof text - 1) > 0) now->tv_sec += atol(text);
  if (file >= 0) close(file);
  return done;
}
"""
HANGING_DISK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
/* While the file HANG is there, nothing that is written ever arrives on the disk. */
int fsync(int file) {
  static int (*real)(int);
  if (!real) real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  while (access(HANG, F_OK) == 0) usleep(20000);
  return real(file);
}
"""


HANGING_RECORD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* While the file HANG is there, no line of the record ever gets to the system. */
ssize_t write(int file, const void* bytes, size_t count) {
  static ssize_t (*real)(int, const void*, size_t);
  char link[64], path[4096] = {0};
  if (!real) real = (ssize_t (*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "record.jsonl"))
    while (access(HANG, F_OK) == 0) usleep(20000);
  return real(file, bytes, count);
}
"""


SLOW_READS = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* While the file SLOW is there each read of a shard of tokens takes 20 ms, and while HANG is there it never ends. */
ssize_t pread(int file, void* bytes, size_t count, off_t offset) {
  static ssize_t (*real)(int, void*, size_t, off_t);
  char link[64], path[4096] = {0};
  if (!real) real = (ssize_t (*)(int, void*, size_t, off_t))dlsym(RTLD_NEXT, "pread");
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  if (readlink(link, path, sizeof path - 1) > 0 && strstr(path, "tokens.bin")) {
    if (access(SLOW, F_OK) == 0) usleep(20000);
    while (access(HANG, F_OK) == 0) usleep(20000);
  }
  return real(file, bytes, count, offset);
}
"""


def preload(source, directory, **defines):
    """A library of that source, with texts defined in it."""
    library = os.path.join(directory, "preloaded.so")
    subprocess.run(["gcc", "-shared", "-fPIC", *(f'-D{name}="{text}"' for name, text in defines.items()), "-x", "c", "-",
                    "-o", library, "-ldl"], input=source, text=True, check=True)
    return library


class Scarce(FaultTest):
    @unittest.skipUnless(cgroup.available("cpu"), "needs root and a cpu controller")
    def test_a_starved_worker_with_many_threads_is_not_evicted(self):
        group = cgroup.Group(processors=0.2)
        self.addCleanup(group.close)
        # So large that a step needs more than the 2 ms that the group gets of a step of the least length.
        job = self.job(3, steps=STARVE_SECONDS * 100, pace_ms=10, spec={"threads": 4},
                       training={"model": {"mlp": {"hidden": [1024, 512]}}})
        job.set_slot(1, group.enter)
        self.addCleanup(job.close)
        job.start()
        job.wait_trained_by(3)
        entered, before = job.wait_entered(3), job.identities(range(3))
        # No step is shorter than the pace, and on a slow machine each is longer.
        job.wait_step(job.steps - 50, 120 + 4 * STARVE_SECONDS)
        self.assert_undisturbed(job, range(3), before)
        self.assertEqual(job.entered(), entered, f"somebody was evicted\n{job.logs()[-6000:]}")
        self.assertGreater(group.throttled(), 0, "nobody was starved")
        job.end()

    @unittest.skipUnless(cgroup.available("memory"), "needs root and a memory controller")
    def test_want_of_memory_ends_the_trainer_and_not_its_sentinel(self):
        group = cgroup.Group(memory=256 << 20)
        self.addCleanup(group.close)
        job = self.job(3)
        job.set_slot(1, group.enter)
        self.addCleanup(job.close)
        job.start()
        job.wait_trained_by(3)
        survivors, sentinel, victim = job.identities([0, 2]), job.workers()[1].sentinel, job.trainer(1)
        hog = subprocess.Popen(["/bin/sh", "-c", f"{group.enter}\nexec {sys.executable} -c '{HOG}' {victim}"])
        self.addCleanup(hog.wait)
        self.addCleanup(hog.kill)
        job.wait_anew(1, victim)
        hog.wait(DEADLINE)
        job.wait_trained_by(3)
        self.assertEqual(job.workers()[1].sentinel, sentinel)
        # With memory again, its trainer ends no second time.
        anew = job.identities([1])
        job.wait_step(job.step() + 100)
        self.assert_undisturbed(job, range(3), {**survivors, **anew})
        job.wait_said(1, "want of memory")
        job.end()

    @unittest.skipUnless(cgroup.available("memory"), "needs root and a memory controller")
    def test_who_has_little_memory_takes_fewer_samples_at_once_and_who_has_too_little_is_told(self):
        def run(limit, *fields):
            group = cgroup.Group(memory=limit << 20)
            try:
                output = os.path.join(tempfile.mkdtemp(prefix="muster-faults-"), "out")
                self.addCleanup(shutil.rmtree, os.path.dirname(output), ignore_errors=True)
                sets = " ".join(f"--set spec.{field}" for field in (
                    "worker.count=1", "training.model.gpt.layers=12", "training.model.gpt.width=128", "training.model.gpt.heads=4",
                    "training.model.gpt.contextLength=512", "training.batchSize=16", "training.logicalRanks=16", "training.steps=1",
                    "training.optimizer.schedule=null", "training.data.test=null", *fields))
                done = subprocess.run(["/bin/sh", "-c", f"{group.enter}\nexec {self.bin_dir}/muster run {ROOT}/examples/gpt-tiny.yaml "
                                       f"--quiet --output {output} {sets}"], text=True, capture_output=True, timeout=120)
                logs = "".join(read(log) for log in glob.glob(os.path.join(output, "logs", "*")))
                return done, logs
            finally:
                group.close()

        # All 16 at once take 918 MiB, four of them 302, one 159.
        done, logs = run(400)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('"logicalRanksAtOnce":4', logs)
        done, _ = run(130)  # whole it needs 159
        self.assertEqual(done.returncode, 20, done.stdout + done.stderr)
        self.assertRegex(done.stderr + done.stdout, r"spec.training.model: each of 1 processes needs at least 1[56][0-9] MiB and may have "
                         r"130 MiB; it would fit with spec.training.activations: Recomputed \(1[12][0-9] MiB\), or "
                         r"spec.training.parallelism.pipeline: 2 \(1[12][0-9] MiB\), or "
                         r"spec.training.parallelism.tensor: 2 \((9|10)[0-9] MiB\), or spec.worker.resources.memory of that")
        # In two stages, which share the limit, it trains with less than that for each.
        done, logs = run(264, "worker.processes=2", "training.parallelism.pipeline=2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(logs, r'"needsBytes":1[0-3][0-9]{7},"hasBytes":138412032')
        # Where nobody says how, the operator does, when the workers have said what would fit.
        done, _ = run(264, "worker.count=2", "worker.min=1", "training.parallelism.mode=Auto")
        self.assertEqual(done.returncode, 37, done.stdout + done.stderr)
        self.assertIn("may have 132 MiB; tensor x pipeline that fit: 1x2, 2x1; not started again, because none of these divides "
                      "worker.count, min and max times worker.processes", done.stderr + done.stdout)
        done, logs = run(264, "worker.count=2", "worker.min=2", "training.parallelism.mode=Auto")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(logs, r'"needsBytes":1[0-3][0-9]{7},"hasBytes":138412032')

    @unittest.skipUnless(cgroup.available("memory"), "needs root and a memory controller")
    def test_pictures_that_are_more_than_its_memory_are_trained_on_with_the_same_bits(self):
        directory = tempfile.mkdtemp(prefix="muster-faults-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        for i in range(400):
            name = os.path.join(directory, "pictures", str(i % 2), f"{i:03}.png")
            os.makedirs(os.path.dirname(name), exist_ok=True)
            with open(name, "wb") as file:
                file.write(gray_png([bytes((i * 7 + x * y * (1 + i % 2)) % 256 for x in range(8)) for y in range(8)]))
        pictures = f"{{imageFolder: {{directory: {directory}/pictures, height: 512, width: 512, colors: Gray}}}}"
        fields = ("worker.count=1", "training.model={mlp: {hidden: [4]}}", "training.batchSize=16", "training.logicalRanks=16",
                  "training.epochs=1", "training.gradientClipping={maxNorm: \"1.0\"}",
                  f"training.data={{train: {pictures}, test: {pictures}}}")

        def run(name, enter=":"):
            output = os.path.join(directory, name)
            done = subprocess.run(["/bin/sh", "-c", f"{enter}\nexec \"$@\"", "sh", os.path.join(self.bin_dir, "muster"), "run",
                                   f"{ROOT}/examples/digits.yaml", "--quiet", "--output", output,
                                   *(part for field in fields for part in ("--set", f"spec.{field}"))],
                                  text=True, capture_output=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            return json.loads(read(os.path.join(output, "report.json")))["sha256"]

        held = run("held")
        group = cgroup.Group(memory=160 << 20)  # of 100 MiB for each set
        self.addCleanup(group.close)
        self.assertEqual(run("in-files", group.enter), held)

    def test_a_trainer_without_descriptors_says_so_and_the_others_go_on(self):
        job = self.training(3)
        survivor, poor = job.identities([0]), job.trainer(1)
        resource.prlimit(poor, resource.RLIMIT_NOFILE, (3, 3))  # what is open stays open
        job.kill(2, what="trainer")  # so that connections are made anew
        job.wait_trained_by(3)
        self.assertNotEqual(job.trainer(1), poor)
        job.wait_said(1, r"[Tt]oo many open files|no descriptor")
        self.assert_undisturbed(job, [0], survivor)
        job.end()

    def test_a_joiner_that_finds_no_name_or_lacks_descriptors_says_so_and_nobody_waits_for_it(self):
        job = self.job(2, most=3)
        # One query, of a second: a name server that gives no answer is asked for 10 s and more.
        job.set_slot(2, 'export MUSTER_ENDPOINT=http://nowhere.invalid RES_OPTIONS="timeout:1 attempts:1"')
        self.addCleanup(job.close)
        job.start()
        job.wait_trained_by(2)
        before = job.identities([0, 1])
        job.resize(3)
        job.wait_said(None, "waiting to join.*look up nowhere.invalid")
        job.set_slot(2, "ulimit -n 7")
        job.kill(2)
        job.wait_for("it has tried", lambda: re.search(r"[Tt]oo many open files|no descriptor", job.logs()))
        self.assert_undisturbed(job, [0, 1], before)
        job.end()

    @unittest.skipIf(FaultTest.needs_root(), FaultTest.needs_root())
    def test_a_full_disk_stops_no_training_and_with_room_again_the_model_is_written(self):
        job = self.job(2, steps=500, pace_ms=50)
        job.manifest["spec"]["restart"]["backoffSeconds"] = 1
        job.write_manifest()
        job.start()
        folder = os.path.join(job.output, "checkpoints")
        job.wait_step(20)
        job.process.send_signal(signal.SIGINT)
        self.assertEqual(job.wait()[0], 130)
        kept = shutil.copytree(folder, os.path.join(job.directory, "kept"))
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", folder], check=True)
        shutil.copytree(kept, folder, dirs_exist_ok=True)
        job.start()
        job.wait_for("a checkpoint", lambda: glob.glob(folder + "/step-000000000[1-4]00/model.safetensors"))
        before = job.identities([1])
        filler = os.open(os.path.join(folder, "filler"), os.O_WRONLY | os.O_CREAT)
        try:
            while os.write(filler, b"x" * 4096):
                pass
        except OSError:
            pass
        os.close(filler)
        job.set_pace(5)
        # Slot 0 alone has the files; the others train on to the end and keep what it shall write.
        job.wait_for("the others come to the end", lambda: '"step":501' in job.log_of(1))
        for said in ("No space left on device", '"exit_code":29'):
            job.wait_said(None, said)
        job.wait_for("status says why", lambda: re.search(
            r"Running: .* worker 0 ends again and again: DiskFull .*No space left on device", read(job.log)))
        self.assertTrue(glob.glob(folder + "/step-*/model.safetensors"), "the old checkpoint is gone")
        self.assert_undisturbed(job, [1], before)
        os.unlink(os.path.join(folder, "filler"))
        job.end()  # out of a file system of its own the model is copied


class Hanging(SlowTest):
    @unittest.skipUnless(shutil.which("gcc"), "needs gcc")
    def test_a_disk_that_hangs_stops_no_step_and_status_says_whose_and_where(self):
        job = self.job(2, pace_ms=50, training={"checkpoint": {"path": "/unused", "everySteps": 20}})
        hang = os.path.join(job.directory, "hang")
        job.set_slot(0, f'export LD_PRELOAD="{preload(HANGING_DISK, job.directory, HANG=hang)}"')
        job.start()
        job.wait_trained_by(2)
        before = job.identities([0, 1])
        folder = os.path.join(job.output, "checkpoints")
        open(hang, "w", encoding="utf-8").close()
        step = job.wait_for("a checkpoint is left out", lambda: "a checkpoint is left out" in job.log_of(0) and job.step())
        # Many more are left out, and none of them is waited for.
        job.wait_step(step + 100)
        # What `muster run` says is the message of the condition Running.
        job.wait_for("status says where", lambda: re.search(
            rf"Running: 2 of 2 workers run;.* worker 0 has been busy with a checkpoint or the record in {re.escape(folder)} for more than 30 s",
            read(job.log)))
        step = job.wait_step(job.step() + 20)
        os.unlink(hang)
        job.wait_for("a checkpoint", lambda: glob.glob(folder + "/step-*/manifest.json") and max(
            int(path.split("/")[-2][5:]) for path in glob.glob(folder + "/step-*/manifest.json")) > step)
        job.wait_for("status says that it is over", lambda: "worker 0 has been busy" not in
                     re.findall(r"Running: .*", read(job.log))[-1])
        self.assert_undisturbed(job, [0, 1], before)
        job.end()

    @unittest.skipUnless(shutil.which("gcc"), "needs gcc")
    def test_a_record_that_hangs_stops_no_step_and_lacks_none_when_its_worker_dies(self):
        job = self.job(3, pace_ms=20, training={"checkpoint": {"path": "/unused", "everySteps": 1000}})
        hang = os.path.join(job.directory, "hang")
        job.set_slot(0, f'export LD_PRELOAD="{preload(HANGING_RECORD, job.directory, HANG=hang)}"')
        job.start()
        job.wait_trained_by(3)
        before = job.identities([1, 2])
        open(hang, "w", encoding="utf-8").close()
        said = r"record's disk gives no answer.*\"step\":(\d+)"
        job.wait_for("worker 0 says so", lambda: re.search(said, job.log_of(0)))
        at, written = int(re.search(said, job.log_of(0)).group(1)), job.step()
        self.assertGreater(at, written + 10, "steps have waited for the record")
        job.kill(0)  # with lines that nobody else could write
        os.unlink(hang)
        job.wait_trained_by(3)
        self.assertGreater(job.step(), at)
        self.assert_undisturbed(job, [1, 2], before)
        job.end()

    @unittest.skipUnless(shutil.which("gcc"), "needs gcc")
    def test_whose_shard_of_tokens_is_slow_or_never_read_status_says(self):
        folder = tempfile.mkdtemp(prefix="muster-faults-")
        self.addCleanup(shutil.rmtree, folder)
        shard = os.path.join(folder, "tokens.bin")
        tokens = [number * number % 61 for number in range(20_000)]
        with open(shard, "wb") as file:
            file.write(struct.pack("<256I", 20240520, 1, len(tokens), *[0] * 253) + struct.pack(f"<{len(tokens)}H", *tokens))
        job = self.job(2, steps=800, pace_ms=50, training={
            "batchSize": 16, "model": {"gpt": {"layers": 1, "heads": 2, "width": 32, "contextLength": 8, "vocabularySize": 64}},
            "data": {"train": {"tokens": {"files": [shard]}}}})
        slow, hang = (os.path.join(job.directory, name) for name in ("slow", "hang"))
        job.set_slot(1, f'export LD_PRELOAD="{preload(SLOW_READS, job.directory, SLOW=slow, HANG=hang)}"')
        job.start()
        job.wait_trained_by(2)
        before = job.identities([0, 1])
        job.set_pace(10)  # less than what is slow, which is hidden in longer steps
        quick = job.wait_step(job.step() + 2 * PROMISED)
        open(slow, "w", encoding="utf-8").close()
        job.wait_for("status says who is slow", lambda: re.search(r"worker 1 slows the gang by \d+ %: data", read(job.log)))
        first = job.wait_for("its sentinel has said so", lambda: next(
            (line for line in self.said_by(job, 1) if line["cause"] == "data" and line["step"] > quick), None))
        job.wait_step(first["step"])
        # However busy the machine is, who sleeps over its samples is by far the slowest.
        last = promised_by({line["step"]: line["seconds"] for line in job.record() if line["step"] <= first["step"]}, quick, PROMISED)
        print(f"named {first['step'] - quick} steps after: {first['percent']} %, {first['delay_ms']} ms a step; the first {PROMISED} "
              f"slow steps were over {f'{last - quick} after' if last else 'later'}")
        if last:
            self.assertLessEqual(first["step"], last, first)
        open(hang, "w", encoding="utf-8").close()
        os.unlink(slow)
        job.wait_for("status says who stands, and where", lambda: re.search(
            rf"training stands: worker 1 has been busy with files in {re.escape(shard)} for more than \d0 s", read(job.log)))
        os.unlink(hang)
        job.wait_step(job.step() + 20)
        self.assert_undisturbed(job, [0, 1], before)
        job.end()


class Jump(FaultTest):
    @unittest.skipUnless(shutil.which("gcc"), "needs gcc")
    def test_a_wall_clock_that_jumps_by_hours_changes_nothing(self):
        job = self.job(3)
        offset = os.path.join(job.directory, "offset")
        job.start(env={"LD_PRELOAD": preload(CLOCK, job.directory, OFFSET=offset)})
        job.wait_trained_by(3)
        entered, before = job.wait_entered(3), job.identities(range(3))

        def jump(seconds):
            with open(offset, "w", encoding="utf-8") as file:
                file.write(str(seconds))
            job.wait_step(job.step() + 60)

        jump(3600)
        jump(-7200)
        self.assert_undisturbed(job, range(3), before)
        self.assertEqual(job.entered(), entered, f"somebody was evicted\n{job.logs()[-6000:]}")
        job.kill(1, what="trainer")  # its successor has never known another hour
        job.wait_trained_by(3)
        hours = set(re.findall(r'"\d{4}-\d\d-\d\dT(\d\d):', job.logs()))
        self.assertGreater(len(hours), 1, f"no log has another hour than {hours}")
        jump(0)
        job.end()


class Misfit(FaultTest):
    def refused(self, prepare, reason, said):
        """A third worker that does not fit is refused with a reason in status, and the two who train do not notice."""
        # Status says it while the next attempt waits: the first one comes at once.
        job = self.job(2, most=3, pace_ms=20)
        prepare(job)
        self.addCleanup(job.close)
        job.start()
        job.wait_trained_by(2)
        before = job.identities([0, 1])
        job.resize(3)
        job.wait_for("it is refused", lambda: re.search(reason, job.logs()))
        # What `muster run` says is the message of the condition Running.
        job.wait_for("status says why", lambda: re.search(
            rf"Running: 2 of 3 workers run;.* worker 2 was not let in: {said}", read(job.log)))
        job.wait_step(job.step() + 20)
        self.assert_undisturbed(job, [0, 1], before)
        report = job.end()
        self.assertEqual({entry["workers"] for entry in report["workersOverTime"]}, {2})
        return job

    def test_a_joiner_of_another_numerics_contract_is_refused(self):
        def prepare(job):
            program = os.path.join(job.directory, "other-worker")
            with open(job.worker_program, "rb") as source, open(program, "wb") as target:
                text = source.read()
                self.assertIn(b"fp32-chain/1", text)
                target.write(text.replace(b"fp32-chain/1", b"fp32-chain/9"))
            os.chmod(program, 0o755)
            job.set_slot(2, f'WORKER="{program}"')
        self.refused(prepare, r"fp32-chain/9", r"CpuOrContractRefused .*fp32-chain/1, slot 2 has \"fp32-chain/9\"")

    def test_a_joiner_with_other_data_is_refused_by_those_who_train(self):
        def prepare(job):
            other = os.path.join(job.directory, "other")
            shutil.copytree(os.path.join(job.directory, "data"), os.path.join(other, "data"))
            path = os.path.join(other, "data", "digits-train-labels.idx.gz")
            with gzip.open(path) as file:
                labels = bytearray(file.read())
            labels[-1] = (labels[-1] + 1) % 10
            with gzip.open(path, "wb") as file:
                file.write(labels)
            job.set_slot(2, f"export MUSTER_DATA_ROOT={other}")
        self.refused(prepare, r"do not let this one in", r"DataInvalid .*do not let this one in")

    def test_a_joiner_with_another_model_is_refused_by_those_who_train(self):
        def change(answer):
            answer["training"]["model"]["mlp"]["hidden"] = [64]
        self.refused(lambda job: self.told_otherwise(job, 2, change), r"do not let this one in", OTHER_TRAINING)

    def test_a_joiner_that_is_to_make_other_steps_is_refused_by_those_who_train(self):
        def change(answer):
            answer["training"]["seed"] += 1
        self.refused(lambda job: self.told_otherwise(job, 2, change), r"do not let this one in", OTHER_TRAINING)

    def test_a_joiner_of_another_job_is_told_so_and_named_by_its_address(self):
        def change(answer):
            answer["jobUid"] = "00000000-0000-0000-0000-000000000000"
        job = self.refused(lambda job: self.told_otherwise(job, 2, change), r"or is of another job",
                           r"KeyRefused .*or is of another job")
        self.assertRegex(job.log_of(0), r"what a stranger says is refused.*127\.0\.0\.1")

    def test_a_gang_starts_without_a_worker_whose_pictures_differ_in_their_bytes_alone(self):
        def write(folder, wrong):
            for i in range(100):
                path = os.path.join(folder, "data", "pictures", "ab"[i % 2], str(i))
                os.makedirs(os.path.dirname(path), exist_ok=True)
                gray = 1 if i == wrong else i
                with open(path, "wb") as file:
                    file.write(gray_png([bytes([gray, 2 * i, gray, 2 * i])] * 8).ljust(500, b"\0"))

        job = self.job(3, pace_ms=20, training={
            "batchSize": 64, "logicalRanks": 16, "model": {"mlp": {"hidden": [32]}},
            "data": {"train": {"imageFolder": {"directory": "data/pictures"}}}})
        self.addCleanup(job.close)
        other = os.path.join(job.directory, "other")
        write(job.directory, None)
        write(other, 7)
        job.set_slot(2, f"export MUSTER_DATA_ROOT={other}")
        job.start()
        job.wait_trained_by(2)
        before = job.identities([0, 1])
        # Its next attempt looks at all of them before it asks to be let in.
        job.wait_for("status says why", lambda: re.search(
            r"Running: 2 of 3 workers run;.* worker 2 was not let in: DataInvalid .*its pictures are not those", read(job.log)))
        job.wait_for("it is refused a second time", lambda: len(re.findall(r"its pictures are not those", job.log_of(2))) >= 2)
        self.assert_undisturbed(job, [0, 1], before)
        report = job.end()
        self.assertEqual({entry["workers"] for entry in report["workersOverTime"]}, {2})

    def told_otherwise(self, job, slot, change):
        """The worker of that slot hears from the workers' endpoint what `change` makes of an answer to its join."""
        self.addCleanup(BetweenEndpoint(job, slot, change).close)

    def test_a_joiner_with_another_key_is_told_so_and_named_by_its_address(self):
        def prepare(job):
            program = os.path.join(job.directory, "other-worker")
            with open(job.worker_program, "rb") as source, open(program, "wb") as target:
                text = source.read()
                # What its sentinel's key is derived with: so it has another than those who train.
                self.assertIn(b"muster sentinel mesh", text)
                target.write(text.replace(b"muster sentinel mesh", b"muster sentinel mess"))
            os.chmod(program, 0o755)
            job.set_slot(2, f'WORKER="{program}"')
        job = self.refused(prepare, r"it has another key", r"KeyRefused .*it has another key than they have")
        self.assertRegex(job.log_of(0), r"what a stranger says is refused.*127\.0\.0\.1")


if __name__ == "__main__":
    main()
