#!/usr/bin/env python3
"""What `muster` says of values that its flags cannot have: one sentence that names the flag and what would be right.

    tests/run/flags_test.py BIN_DIR [unittest arguments]
"""

import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DEADLINE = 60
# What an empty value stands for there: kubectl reads it as not given.
KUBECTL_READS = {"--namespace", "--context", "--kubeconfig", "--selector"}
ARGUMENTS = {"run": ["x"], "prove": ["x"], "simulate": [], "tokenize": ["x"], "get": [], "describe": ["x"], "logs": ["x"],
             "suspend": ["x"], "resume": ["x"], "fetch": ["x"], "plan": ["x"]}
JOB = ("apiVersion: muster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: own}\n"
       "spec: {worker: {command: [sh, -c, 'true']}}\n")


class Flags(unittest.TestCase):
    muster = "build/release/bin/muster"

    def run_muster(self, *arguments):
        """Runs to the end; gives (exit code, stdout, stderr)."""
        done = subprocess.run([self.muster, *arguments], text=True, timeout=DEADLINE, stdin=subprocess.DEVNULL, capture_output=True,
                              check=False)
        return done.returncode, done.stdout, done.stderr

    def assert_refused(self, sentence, *arguments):
        code, out, err = self.run_muster(*arguments)
        self.assertEqual((code, out), (2, ""), f"{arguments}: {err}")
        self.assertRegex(err, rf"^muster: {sentence}", arguments)

    def flags_of(self, command):
        """Name, and whether it takes a value, of each flag that --help lists."""
        _, out, _ = self.run_muster(command, "--help")
        for name, value in re.findall(r"^  (?:-\w,)?(--[\w-]+)( \S+)?", out, re.M):
            if name != "--help":
                yield name, bool(value)

    def test_every_flag_refuses_an_empty_value_by_its_name(self):
        seen = 0
        for command, arguments in ARGUMENTS.items():
            for flag, takes_value in self.flags_of(command):
                seen += 1
                # Without a refusal the next word would be the value.
                self.assert_refused(f"{flag}: must not be empty behind =", command, *arguments, flag + "=", "--help")
                if not takes_value:
                    self.assert_refused(f'{flag}: must be true or false, and not "-1"', command, *arguments, flag + "=-1")
                    continue
                self.assert_refused(rf"{flag}: needs a value \(.+\), and none is given", command, *arguments, flag)
                if flag not in KUBECTL_READS:
                    self.assert_refused(rf"{flag}: must (not be empty|be .*\w)", command, *arguments, flag, "")
        self.assertGreater(seen, 50)

    def test_an_empty_argument_is_refused_by_its_name(self):
        for command in ("run", "prove", "plan"):
            self.assert_refused("FILE: must not be empty", command, "")
        self.assert_refused("JOBS: must not be empty", "simulate", "", "--cluster", "x")
        self.assert_refused("JOB: must not be empty", "describe", "")
        self.assert_refused("TEXT: must not be empty", "tokenize", "a", "", "--vocabulary", "v", "--output", "o")

    def test_a_value_of_another_kind_is_refused_with_what_would_be_right(self):
        for words, sentence in [
                (["prove", "x", "--workers", ","], r"--workers: needs a value \(N,\.\.\., 1 to 64\), and none is given"),
                (["prove", "x", "--workers", "1,x"], r'--workers: must be a whole number from 1 to 64, and not "x"'),
                (["prove", "x", "--seed", "-1"], r'--seed: must be a whole number from 0 to 18446744073709551615, and not "-1"'),
                (["prove", "x", "--seed", "18446744073709551616"], r"--seed: must be a whole number"),
                (["prove", "x", "--kills", "010"], r'--kills: must be a whole number from 0 to 2000, and not "010"'),
                (["prove", "x", "--pace", "2.5"], r"--pace: must be a whole number from 0 to 60000"),
                (["logs", "x", "--tail", "-2"], r'--tail: must be a whole number from -1 to 1000000000, and not "-2"'),
                (["logs", "x", "--slot", "4096"], r"--slot: must be a whole number from 0 to 4095"),
                (["simulate", "--rules", "fifo"], r'--rules: must be one of muster, .*pods, and not "fifo"'),
                (["plan", "x", "-o", "yaml"], r'--output: must be json, and not "yaml"'),
                (["get", "-o", "\x1b[1m"], r'--output: must be one of wide, json, yaml, name, and not "[^\x1b]*"')]:
            self.assert_refused(sentence, *words)

    def test_values_at_the_borders_are_taken(self):
        for words in (["prove", "--seed", "18446744073709551615", "--workers", "1,64"], ["prove", "--seed", "0"],
                      ["run", "--hash-every", "1099511627776", "--quiet=true"], ["run", "--metrics-port", "65535"]):
            self.assert_refused("absent: cannot open", words[0], "absent", *words[1:])

    def test_a_place_where_no_directory_can_be_made_is_usage(self):
        with tempfile.TemporaryDirectory(prefix="muster-flags-") as directory:
            job = os.path.join(directory, "job.yaml")
            with open(job, "w", encoding="utf-8") as file:
                file.write(JOB)
            for place in ("/proc/never", os.path.join(directory, "x" * 300)):
                self.assert_refused(f"{place}: cannot create directory: ", "run", job, "--output", place)

    def test_a_shard_takes_the_place_of_no_device_pipe_or_directory(self):
        with tempfile.TemporaryDirectory(prefix="muster-flags-") as directory:
            pipe = os.path.join(directory, "pipe")
            os.mkfifo(pipe)
            vocabulary = os.path.join(ROOT, "tests/unit/bpe/vocabulary")
            for place in (pipe, directory):
                self.assert_refused(f"{place}: is no regular file; --output must name one", "tokenize", os.path.join(ROOT, "README.md"),
                                    "--vocabulary", vocabulary, "--output", place)
            self.assertTrue(stat.S_ISFIFO(os.stat(pipe).st_mode))
            self.assertEqual(os.listdir(directory), ["pipe"])

    def test_a_shard_takes_the_place_of_none_of_its_texts(self):
        with tempfile.TemporaryDirectory(prefix="muster-flags-") as directory:
            book = os.path.join(directory, "book.txt")
            with open(book, "w", encoding="utf-8") as file:
                file.write("To be")
            self.assert_refused(f"{book}: --output is also one of the texts; it must name another file", "tokenize", book,
                                "--vocabulary", os.path.join(ROOT, "tests/unit/bpe/vocabulary"), "--output", book)
            with open(book, encoding="utf-8") as file:
                self.assertEqual(file.read(), "To be")


if __name__ == "__main__":
    Flags.muster = os.path.join(os.path.abspath(sys.argv.pop(1)), "muster")
    unittest.main()
