#!/usr/bin/env python3
"""`muster run -` and `muster prove -`: the manifest comes from standard input, or a pipe, which can be read once.

    tests/run/standard_input_test.py BIN_DIR [unittest arguments]
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

DEADLINE = 120
OWN = ("apiVersion: muster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: own}\n"
       "spec: {worker: {command: [sh, -c, 'pwd > where; exec sleep %s']}}\n")
TEXTS = """
apiVersion: muster.dev/v1alpha1
kind: TrainingJob
metadata: {name: texts}
spec:
  training:
    steps: 3
    batchSize: 16
    model: {gpt: {layers: 1, heads: 1, width: 8, contextLength: 8}}
    data: {train: {text: {file: text.txt}}}
    optimizer: {sgd: {learningRate: "0.1"}}
"""


class StandardInput(unittest.TestCase):
    muster = "build/release/bin/muster"

    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="muster-input-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.directory, name)

    def run_muster(self, text, *arguments, pass_fds=()):
        done = subprocess.run([self.muster, *arguments], cwd=self.directory, input=text, text=True, timeout=DEADLINE,
                              capture_output=True, check=False, pass_fds=pass_fds)
        return done.returncode, done.stdout, done.stderr

    def substituted(self, text):
        """A descriptor that gives the text once, as a shell's <(...) does."""
        reader, writer = os.pipe()
        self.addCleanup(os.close, reader)
        with open(writer, "w", encoding="utf-8") as file:
            file.write(text)
        return reader

    def start(self, command="run", file="-"):
        process = subprocess.Popen([self.muster, command, file], cwd=self.directory, text=True, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(lambda: [pipe.close() for pipe in (process.stdin, process.stdout, process.stderr)])
        self.addCleanup(process.kill)
        return process

    def test_a_job_from_standard_input_runs_where_muster_was_started(self):
        code, out, err = self.run_muster(OWN % 0, "run", "-")
        self.assertEqual(code, 0, out + err)
        with open(self.path("where"), encoding="utf-8") as file:
            self.assertEqual(file.read(), os.path.realpath(self.directory) + "\n")
        self.assertTrue(os.path.exists(self.path("muster-out/own/report.json")))

    def test_two_runs_are_proved_equal_of_what_was_read_once(self):
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write("to be or not to be " * 50)
        small = ["--workers", "1,2", "--kills", "0", "--pace", "0"]
        pipe = self.substituted(TEXTS)
        for text, file, fds in ((TEXTS, "-", ()), ("", f"/dev/fd/{pipe}", (pipe,))):
            with self.subTest(file):
                code, out, err = self.run_muster(text, "prove", file, *small, pass_fds=fds)
                self.assertEqual(code, 0, out + err)
                self.assertIn("EQUAL: 3 of 3 steps", out)

    def test_what_is_wrong_is_said_of_standard_input(self):
        for text, code, sentence in (("", 20, "standard input:1: is empty"), ("[1]", 20, "standard input: must be a map"),
                                     ("kind: a\nkind: b\n", 20, 'standard input:2: the key "kind"'),
                                     ("a" * (257 << 10), 20, "standard input: is larger than 262144 bytes"),
                                     ((OWN % 0).replace("command:", "cmd:"), 20, "standard input: spec.worker.cmd: "),
                                     ((OWN % 0).replace("{worker", "{suspend: true, worker"), 20,
                                      "standard input: spec.suspend: must be false")):
            with self.subTest(sentence):
                got, out, err = self.run_muster(text, "run", "-")
                self.assertEqual((got, out), (code, ""), err)
                self.assertTrue(err.startswith("muster: " + sentence), err)
                self.assertEqual(os.listdir(self.directory), [])
        code, out, err = self.run_muster(OWN % 0, "prove", "-")
        self.assertEqual((code, out), (20, ""), err)
        self.assertTrue(err.startswith("muster: standard input: spec.training: is missing"), err)

    def test_who_waits_for_standard_input_can_be_interrupted(self):
        process = self.start()
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(DEADLINE), -signal.SIGINT)

    def test_who_waits_for_the_writer_of_a_pipe_can_be_interrupted(self):
        os.mkfifo(self.path("job.fifo"))
        for command in ("run", "prove", "plan"):
            with self.subTest(command):
                process = self.start(command, "job.fifo")
                # Opened once muster has opened it to read, and never written to.
                with open(self.path("job.fifo"), "wb"):
                    process.send_signal(signal.SIGINT)
                    self.assertEqual(process.wait(DEADLINE), -signal.SIGINT)

    def test_help_waits_for_nothing(self):
        process = subprocess.Popen([self.muster, "run", "-", "--help"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.wait(DEADLINE), 0)

    def test_a_run_of_what_is_read_once_says_that_it_cannot_read_it_again(self):
        os.mkfifo(self.path("job.fifo"))
        for file, name in (("-", "standard input"), ("job.fifo", "job.fifo")):
            with self.subTest(name):
                process = self.start(file=file)
                with open(self.path(file), "w", encoding="utf-8") if file != "-" else process.stdin as manifest:
                    manifest.write(OWN % 1000)
                for line in process.stderr:
                    if "Running" in line or "run" in line:
                        break
                process.send_signal(signal.SIGUSR1)
                said = next(line for line in process.stderr if line.startswith("Not resized"))
                self.assertEqual(said, f"Not resized: the manifest came from {name}, which cannot be read again\n")
                process.send_signal(signal.SIGINT)
                self.assertEqual(process.wait(DEADLINE), 130)


if __name__ == "__main__":
    StandardInput.muster = os.path.join(os.path.abspath(sys.argv.pop(1)), "muster")
    unittest.main()
