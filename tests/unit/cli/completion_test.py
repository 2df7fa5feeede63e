#!/usr/bin/env python3
"""What a shell completes of `muster` is what its --help lists.

    tests/unit/cli/completion_test.py BIN_DIR [unittest arguments]
"""

import os
import re
import shutil
import subprocess
import sys
import unittest

DEADLINE = 60
ASK = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _muster; printf "%s\\n" "${COMPREPLY[@]}"; '


def flags_in(help_text):
    return {flag for flag in re.findall(r"(?m)^ {2}(-.*?)(?: {2,}|$)", help_text)
            for flag in re.findall(r"(?:^|,)(--?[a-z][a-z-]*)", flag, re.IGNORECASE)}


class CompletionTest(unittest.TestCase):
    muster = "build/dev/bin/muster"

    @classmethod
    def setUpClass(cls):
        cls.help = {"": cls.run_muster("--help")}
        cls.commands = re.findall(r"(?m)^ {2}([a-z]+) {2,}", cls.help[""].partition("Subcommands:")[2])
        for command in cls.commands:
            cls.help[command] = cls.run_muster(command, "--help")

    @classmethod
    def run_muster(cls, *arguments):
        return subprocess.run([cls.muster, *arguments], text=True, capture_output=True, timeout=DEADLINE, check=True).stdout

    def completed(self, *words):
        """What bash has for the last of these words, and how it asks for it."""
        script = self.run_muster("completion", "bash")
        done = subprocess.run(["bash", "-c", ASK + "complete -p muster", "bash", "/dev/stdin", *words], text=True, input=script,
                              capture_output=True, timeout=DEADLINE, check=True)
        self.assertEqual(done.stderr, "")
        *found, how = done.stdout.splitlines()
        self.assertEqual(how, "complete -o default -F _muster muster")
        return {word for word in found if word}

    def test_bash_completes_every_command(self):
        self.assertGreater(len(self.commands), 10)
        self.assertEqual(self.completed("muster", ""), set(self.commands))
        self.assertEqual(self.completed("muster", "re"), {"resume"})
        self.assertEqual(self.completed("muster", "--"), {"--help", "--version"})

    def test_bash_completes_every_flag_and_leaves_the_rest_to_files(self):
        for command in self.commands:
            flags = flags_in(self.help[command])
            self.assertIn("--help", flags)
            self.assertEqual(self.completed("muster", command, "-"), flags)
            self.assertEqual(self.completed("muster", command, "x", "--he"), {"--help"})
            self.assertEqual(self.completed("muster", command, ""),
                             {"bash", "zsh", "fish"} if command == "completion" else set())
        self.assertIn("--set", self.completed("muster", "run", "job.yaml", "--s"))
        self.assertEqual(self.completed("muster", "nonsense", "-"), set())

    def test_the_other_shells_have_the_same_words_and_parse_the_script(self):
        for shell, check in (("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
            script = self.run_muster("completion", shell)
            for command in self.commands:
                self.assertRegex(script, rf"['\s]{command}[:\s)]")
                for flag in flags_in(self.help[command]):
                    name = flag if shell == "zsh" else (f" -l {flag[2:]} " if flag.startswith("--") else f" -s {flag[1:]} ")
                    part = re.search(rf"(?m)^ +{command}\) .*$", script).group() if shell == "zsh" else "\n".join(
                        line for line in script.splitlines() if f"from {command}'" in line)
                    self.assertIn(name, part)
            if shutil.which(shell):
                subprocess.run([*check, "/dev/stdin"], text=True, input=script, timeout=DEADLINE, check=True)

    def test_every_script_survives_what_bash_and_zsh_share_of_quoting(self):
        for shell in ("bash", "zsh"):
            subprocess.run(["bash", "-n"], text=True, input=self.run_muster("completion", shell), timeout=DEADLINE, check=True)

    def test_another_shell_is_named(self):
        done = subprocess.run([self.muster, "completion", "csh"], text=True, capture_output=True, timeout=DEADLINE, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("csh not in {bash,zsh,fish}", done.stderr)


if __name__ == "__main__":
    CompletionTest.muster = os.path.join(os.path.abspath(sys.argv.pop(1)), "muster")
    unittest.main()
