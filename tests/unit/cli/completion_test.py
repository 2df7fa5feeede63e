#!/usr/bin/env python3
"""What a shell completes of `muster`: what its --help lists, and the names of what is in the cluster.

    tests/unit/cli/completion_test.py BIN_DIR [unittest arguments]

bash is always asked, zsh and fish where they are installed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FAKE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "fakes", "kubectl.py")
DEADLINE = 60
# What bash has for the last of the words, and how it asks for it.
BASH = ('source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _muster; printf "%s\\n" "${COMPREPLY[@]}"; '
        "complete -p muster")
# A zsh that is typed into; what it has for the line stands between two marks, a word each line.
ZSH = """
zmodload zsh/zpty
zpty line zsh -f
zpty -w line "PS1= ; PS2= ; autoload -U compinit; compinit -D -u; source $1"
zpty -w line 'compadd() { if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)* ]]; then builtin compadd "$@"; return; fi
  typeset -a hits; builtin compadd -A hits "$@"; ((${#hits})) && print -rl -- "<${(@)^hits}>"; builtin compadd "$@"; }'
zpty -w line "zle -C ask complete-word ask; ask() { print START; _main_complete; print END; zle kill-whole-line; }; bindkey '^X' ask"
zpty -n -w line "$2"$'\C-x'
while zpty -r line text; do
  print -rn -- $text
  if [[ $text == END* ]]; then break; fi
done
zpty -d line
"""


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
    def run_muster(cls, *arguments, env=None):
        return subprocess.run([cls.muster, *arguments], text=True, capture_output=True, timeout=DEADLINE, check=True,
                              env={**os.environ, **(env or {})}).stdout

    def asked(self, *words, env=None):
        """What the program itself says: the words, and whether a file may stand there, too."""
        done = subprocess.run([self.muster, "complete-words", *words], text=True, capture_output=True, timeout=DEADLINE,
                              check=True, stdin=subprocess.DEVNULL, env={**os.environ, **(env or {})})
        self.assertEqual(done.stderr, "")
        *lines, how = done.stdout.splitlines()
        self.assertIn(how, (":0", ":4"))
        return {line.partition("\t")[0] for line in lines}, how == ":0"

    def completed(self, *words, env=None, program=None):
        """What bash has for the last of these words."""
        script = self.run_muster("completion", "bash")
        done = subprocess.run(["bash", "-c", BASH, "bash", "/dev/stdin", program or self.muster, *words], text=True,
                              input=script, capture_output=True, timeout=DEADLINE, check=True,
                              env={**os.environ, **(env or {})})
        self.assertEqual(done.stderr, "")
        *found, how = done.stdout.splitlines()
        self.assertEqual(how, "complete -o default -F _muster muster")
        return {word for word in found if word}

    def cluster(self, *rules):
        """The environment of a kubectl that answers so, and what it was asked."""
        directory = tempfile.mkdtemp(prefix="muster-completion-")
        self.addCleanup(shutil.rmtree, directory, ignore_errors=True)
        with open(os.path.join(directory, "rules.json"), "w", encoding="utf-8") as file:
            json.dump(rules, file)

        def calls():
            try:
                with open(os.path.join(directory, "calls.jsonl"), encoding="utf-8") as file:
                    return [json.loads(line)["args"] for line in file]
            except FileNotFoundError:
                return []
        return {"KUBECTL": FAKE, "FAKE_KUBECTL": directory}, calls

    def jobs(self, *names):
        return self.cluster({"args": "get trainingjobs.muster.dev --output=name",
                             "stdout": "".join(f"trainingjob.muster.dev/{name}\n" for name in names)})

    def test_bash_completes_every_command(self):
        self.assertGreater(len(self.commands), 10)
        self.assertEqual(self.completed(""), set(self.commands))
        self.assertEqual(self.completed("re"), {"resume"})
        self.assertEqual(self.completed("--"), {"--help", "--version"})

    def test_bash_completes_every_flag(self):
        for command in self.commands:
            flags = flags_in(self.help[command])
            self.assertIn("--help", flags)
            self.assertEqual(self.completed(command, "-"), flags)
            self.assertEqual(self.completed(command, "x", "--he"), {"--help"})
        self.assertIn("--set", self.completed("run", "job.yaml", "--s"))
        self.assertEqual(self.completed("nonsense", "-"), set())

    def test_what_takes_a_file_is_left_to_the_shell_and_nothing_else(self):
        files, nothing = (set(), True), (set(), False)
        for line in (["run", ""], ["plan", "ex"], ["tokenize", "a", ""], ["simulate", "--cluster", ""], ["run", "--output="],
                     ["run", "--set", "a=3", ""], ["get", "--kubeconfig", "x"], ["run", "--quiet", "--", "-"]):
            self.assertEqual(self.asked(*line), files, line)
        for line in (["run", "job.yaml", ""], ["run", "--set", ""], ["prove", "--kills", ""], ["nonsense", ""], ["xyz"]):
            self.assertEqual(self.asked(*line), nothing, line)

    def test_a_flag_with_a_choice_of_words_is_completed_with_them(self):
        self.assertEqual(self.asked("completion", ""), ({"bash", "zsh", "fish"}, False))
        self.assertEqual(self.asked("get", "-o", ""), ({"wide", "json", "yaml", "name"}, False))
        self.assertEqual(self.asked("get", "-oj"), ({"-ojson"}, False))
        self.assertEqual(self.asked("get", "--output=j"), ({"--output=json"}, False))
        # As bash cuts it.
        self.assertEqual(self.asked("get", "--output", "=", "j"), ({"json"}, False))
        self.assertEqual(self.asked("get", "--output", "="), ({"wide", "json", "yaml", "name"}, False))
        self.assertEqual(self.asked("run", "--set", "a", "=", "3", "--log-level", "i"), ({"info"}, False))
        self.assertEqual(self.asked("run", "--set", "a", "=", "3", ""), (set(), True))

    def test_names_of_jobs_are_completed_where_one_is_taken(self):
        env, calls = self.jobs("digits", "digits-2", "own.x")
        for command in ("get", "describe", "logs", "suspend", "resume", "fetch"):
            self.assertEqual(self.completed(command, "", env=env), {"digits", "digits-2", "own.x"})
        self.assertEqual(self.completed("logs", "-f", "dig", env=env), {"digits", "digits-2"})
        self.assertEqual(self.asked("get", "own.x", "d", env=env), ({"digits", "digits-2"}, False))
        before = len(calls())
        for line in (["logs", "--tail", ""], ["logs", "digits", ""], ["run", ""], ["get", "-"], ["describe", "--"], ["g"]):
            self.assertEqual(self.asked(*line, env=env)[0] & {"digits", "digits-2", "own.x"}, set())
        self.assertEqual(len(calls()), before)

    def test_they_are_those_of_the_cluster_that_the_line_names(self):
        env, calls = self.jobs("digits")
        for line in (["-n", "lab", "--context=home"], ["--namespace", "=", "lab", "--context", "home"],
                     ["-nlab", "-f", "--context", "home"]):
            self.assertEqual(self.completed("logs", *line, "dig", env=env), {"digits"})
            self.assertEqual(calls()[-1], ["--context=home", "--namespace=lab", "get", "trainingjobs.muster.dev",
                                           "--output=name", "--request-timeout=2s"])
        self.asked("logs", "--kubeconfig", "$(touch /tmp/x) y", "", env=env)
        self.assertEqual(calls()[-1][0], "--kubeconfig=$(touch /tmp/x) y")

    def test_namespaces_and_contexts_are_completed(self):
        env, calls = self.cluster({"args": "get namespaces --output=name", "stdout": "namespace/lab\nnamespace/kube-system\n"},
                                  {"args": "config get-contexts --output=name", "stdout": "me@lab\narn:aws/lab\n$(x)\n-x\n"})
        self.assertEqual(self.asked("get", "-n", "", env=env), ({"lab", "kube-system"}, False))
        self.assertEqual(self.asked("logs", "--namespace=l", env=env), ({"--namespace=lab"}, False))
        self.assertEqual(self.asked("plan", "--context", "", env=env), ({"me@lab"}, False))
        self.asked("get", "-n", "lab", "--context", "me@lab", "-n", "", env=env)
        self.assertEqual(calls()[-1][:3], ["--context=me@lab", "get", "namespaces"])

    def test_what_is_no_name_is_never_printed(self):
        bad = ["$(exit)", "-o", "A", "a b", "a;b", "`x`", "é", "a" * 254, "", "a\x1b[31m", "../x", "*"]
        env, _ = self.jobs(*bad, "good", "a" * 253)
        self.assertEqual(self.completed("get", "", env=env), {"good", "a" * 253})
        env, _ = self.cluster({"args": "get", "stdout": "pod/digits\ndigits\ntrainingjob.muster.dev/own\ntrainingjob.muster.dev/ha"})
        self.assertEqual(self.asked("get", "", env=env), ({"own"}, False))  # the last line is the beginning of one

    def test_of_very_many_names_some_hundreds_are_printed(self):
        env, _ = self.jobs(*(f"job-{number}" for number in range(10_000)))
        self.assertEqual(len(self.asked("get", "", env=env)[0]), 500)
        self.assertEqual(self.asked("get", "job-9999", env=env), ({"job-9999"}, False))

    def test_a_cluster_that_cannot_be_reached_has_no_jobs_and_says_nothing(self):
        env, _ = self.cluster({"args": "", "stderr": "Unable to connect to the server: dial tcp\n", "code": 1})
        self.assertEqual(self.completed("logs", "", env=env), set())
        self.assertEqual(self.asked("logs", "", env=env), (set(), False))
        self.assertEqual(self.asked("logs", "", env={"KUBECTL": "/nonexistent/kubectl"}), (set(), False))
        self.assertEqual(self.completed("logs", "", program="/nonexistent/muster"), set())

    def test_one_that_never_answers_is_not_waited_for(self):
        env, _ = self.cluster({"args": "", "stdout": "trainingjob.muster.dev/early\n", "fifo": "never"})
        os.mkfifo(os.path.join(env["FAKE_KUBECTL"], "never"))
        self.assertEqual(self.asked("logs", "", env=env), ({"early"}, False))

    def test_kubectl_completes_what_stands_behind_its_plugin(self):
        env, calls = self.jobs("digits", "own")
        link = os.path.join(env["FAKE_KUBECTL"], "kubectl_complete-muster")
        os.symlink(os.path.abspath(self.muster), link)
        for words, said in ((["logs", "-n", "lab", "d"], "digits\n:4\n"), (["re"], ":4\n"), (["plan", ""], ":0\n"), (["--v"], ":4\n")):
            done = subprocess.run([link, *words], text=True, capture_output=True, timeout=DEADLINE, check=True, env={**os.environ, **env})
            self.assertEqual(done.stderr, "")
            self.assertTrue(done.stdout.endswith(said), done.stdout)
        self.assertEqual(calls()[-1][0], "--namespace=lab")

    def assert_completes(self, completed, calls, file):
        """`completed(line)`: what a shell finds, beside the file of that name, for jobs digits and own.x; `calls()`: of kubectl."""
        self.assertEqual(completed("muster "), set(self.commands))
        self.assertEqual(completed("muster logs --"), {flag for flag in flags_in(self.help["logs"]) if flag.startswith("--")})
        self.assertEqual(completed("muster logs -n lab "), {"digits", "own.x"})
        self.assertEqual(calls()[-1][0], "--namespace=lab")
        self.assertEqual(completed("muster get --output=j"), {"--output=json"})
        self.assertIn(file, completed("muster run "))
        self.assertEqual(completed("muster prove --kills "), set())

    @unittest.skipUnless(shutil.which("fish"), "no fish is installed")
    def test_fish_completes_words_names_and_files(self):
        env, calls = self.jobs("digits", "own.x")
        directory = env["FAKE_KUBECTL"]
        script = os.path.join(directory, "muster.fish")
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.run_muster("completion", "fish"))
        path = f"{os.path.dirname(self.muster)}:{os.environ['PATH']}"

        def completed(line):
            done = subprocess.run(["fish", "--no-config", "-c", 'source "$argv[1]"; complete -C "$argv[2]"', script, line],
                                  text=True, capture_output=True, timeout=DEADLINE, check=True, cwd=directory,
                                  env={**os.environ, **env, "PATH": path, "HOME": directory})
            self.assertEqual(done.stderr, "")
            return {one.partition("\t")[0] for one in done.stdout.splitlines()}
        self.assert_completes(completed, calls, "muster.fish")

    @unittest.skipUnless(shutil.which("zsh"), "no zsh is installed")
    def test_zsh_completes_words_names_and_files(self):
        env, calls = self.jobs("digits", "own.x")
        directory = env["FAKE_KUBECTL"]
        script = os.path.join(directory, "muster.zsh")
        with open(script, "w", encoding="utf-8") as file:
            file.write(self.run_muster("completion", "zsh"))
        path = f"{os.path.dirname(self.muster)}:{os.environ['PATH']}"

        def completed(line):
            done = subprocess.run(["zsh", "-f", "-c", ZSH, "zsh", script, line], text=True, capture_output=True,
                                  timeout=DEADLINE, check=True, cwd=directory, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **env, "PATH": path, "HOME": directory, "TERM": "dumb"})
            return set(re.findall(r"<([^>\r\n]*)>", done.stdout.rpartition("START")[2]))
        self.assert_completes(completed, calls, "muster.zsh")

    def test_another_shell_is_named(self):
        done = subprocess.run([self.muster, "completion", "csh"], text=True, capture_output=True, timeout=DEADLINE, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn('SHELL: must be one of bash, zsh, fish, and not "csh"', done.stderr)


if __name__ == "__main__":
    CompletionTest.muster = os.path.join(os.path.abspath(sys.argv.pop(1)), "muster")
    unittest.main()
