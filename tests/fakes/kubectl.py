#!/usr/bin/env python3
"""A kubectl that answers from a list, for tests of the commands that reach a cluster through it.

$FAKE_KUBECTL is a directory with rules.json, a list of objects:
    args      regular expression that must be found in the arguments, joined by spaces
    stdout    text it writes; or stdout_file: a file of that directory; or fifo: one whose text it passes on as it comes
    stderr    text; code: exit code (default 0); asks: text on stderr before all else
    leaves    a fifo: beside it a process holds its errors open until nobody has the fifo open for writing
    times     for so many calls only (default: all); then the next rule that fits answers
Each call adds its arguments and standard input to calls.jsonl; one without a rule ends with 99.
"""

import fcntl
import json
import os
import re
import shutil
import signal
import sys

directory = os.environ["FAKE_KUBECTL"]
arguments = sys.argv[1:]
joined = " ".join(arguments)


def choose():
    """The rule that answers, and the call's record, in one step: calls come side by side."""
    with open(os.path.join(directory, "calls.jsonl"), "a+", encoding="utf-8") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        log.seek(0)
        used = [json.loads(line)["rule"] for line in log]
        with open(os.path.join(directory, "rules.json"), encoding="utf-8") as file:
            rules = json.load(file)
        chosen = next((number for number, rule in enumerate(rules) if re.search(rule["args"], joined)
                       and used.count(number) < rule.get("times", 1 << 30)), -1)
        stdin = sys.stdin.read() if "--filename" in arguments else ""
        log.write(json.dumps({"args": arguments, "stdin": stdin, "rule": chosen}) + "\n")
        return rules[chosen] if chosen >= 0 else None


def leave_behind(fifo):
    """As ssh's ControlPersist or a login's browser."""
    with open(os.path.join(directory, fifo), "rb") as file:
        if os.fork() == 0:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            file.read()
            os._exit(0)


def main():
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as kubectl ends when nobody reads its output
    rule = choose()
    if rule is None:
        sys.stderr.write(f"fake kubectl: no rule for: {joined}\n")
        return 99
    sys.stderr.write(rule.get("asks", ""))
    sys.stderr.flush()
    if "leaves" in rule:
        leave_behind(rule["leaves"])
    sys.stdout.write(rule.get("stdout", ""))
    sys.stdout.flush()
    if "stdout_file" in rule:
        with open(os.path.join(directory, rule["stdout_file"]), "rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
    if "fifo" in rule:
        with open(os.path.join(directory, rule["fifo"]), "rb", buffering=0) as file:
            while piece := file.read(65536):
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
    sys.stderr.write(rule.get("stderr", ""))
    return rule.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
