#!/usr/bin/env python3
"""`muster run -` and `muster prove -`: the manifest comes from standard input, which can be read once.

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

    def run_muster(self, text, *arguments):
        done = subprocess.run([self.muster, *arguments], cwd=self.directory, input=text, text=True, timeout=DEADLINE,
                              capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def start(self):
        process = subprocess.Popen([self.muster, "run", "-"], cwd=self.directory, text=True, stdin=subprocess.PIPE,
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
        code, out, err = self.run_muster(TEXTS, "prove", "-", "--workers", "1,2", "--kills", "0", "--pace", "0")
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

    def test_help_waits_for_nothing(self):
        process = subprocess.Popen([self.muster, "run", "-", "--help"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.wait(DEADLINE), 0)

    def test_a_run_from_standard_input_says_that_it_cannot_read_it_again(self):
        process = self.start()
        process.stdin.write(OWN % 1000)
        process.stdin.close()
        for line in process.stderr:
            if "Running" in line or "run" in line:
                break
        process.send_signal(signal.SIGUSR1)
        said = next(line for line in process.stderr if line.startswith("Not resized"))
        self.assertEqual(said, "Not resized: the manifest came from standard input, which cannot be read again\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(DEADLINE), 130)


if __name__ == "__main__":
    StandardInput.muster = os.path.join(os.path.abspath(sys.argv.pop(1)), "muster")
    unittest.main()
