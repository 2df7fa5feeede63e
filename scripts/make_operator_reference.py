#!/usr/bin/env python3
"""Makes docs/reference/operator.md from what `muster-operator --help` says.

    scripts/make_operator_reference.py [--check] [PROGRAM]     --check: exit 1 when the page is not up to date

PROGRAM: default build/release/bin/muster-operator. Exit 1 also when the help of a flag does not end with its default. The test
operator_reference runs it with --check and the program that was built.
"""

import os
import re
import subprocess
import sys

from generated import ROOT, publish

PAGE = "docs/reference/operator.md"
PROGRAM = os.path.join(ROOT, "build/release/bin/muster-operator")
HELP_COLUMN = 30   # where the text about a flag begins; beside a longer name it stands on the next line
HEAD = """# Flags of `muster-operator`

Made from `muster-operator --help` by `scripts/make_operator_reference.py`; do not edit.

The [chart](../../charts/muster/README.md) sets most of them by its values; more come from `extraArgs`, after its own. Of a flag
that is given again the last value counts. A bad one is refused in one line on stderr that names it, with
[exit code](exit-codes.md) 2. A DURATION is written like `15s`, `1m30s` or `200ms`, at most 24 hours. The HOST of an address is a
number, such as `127.0.0.1` or `[::1]`; without one every address is meant, of IPv6 where the pod's own
(`POD_IP`) is of that.

| flag | default | values | meaning |
|---|---|---|---|
"""


def flags(text):
    """(names and type, what is said) of every flag, in order."""
    lines = text[text.index("Options:\n"):].splitlines()[1:]
    for i, line in enumerate(lines):
        if not line.startswith("  -"):
            continue
        is_long = i + 1 < len(lines) and lines[i + 1].startswith(" " * HELP_COLUMN)
        said = lines[i + 1] if is_long else line[HELP_COLUMN:]
        yield (line if is_long else line[:HELP_COLUMN]).strip(), said.strip()


def values_of(bounds):
    """In words what stands behind a type: "{a,b}" or "INT in [0 - 9]"."""
    if bounds.startswith("{"):
        return ", ".join(f"`{one}`" for one in bounds[1:-1].split(","))
    least, most = re.search(r"\[(\S+) - (\S+)\]", bounds).groups()
    return f"{float(least):,.0f} to {float(most):,.0f}"


def page(text):
    """(page, flags whose help does not say their default)."""
    rows, without = [], []
    for names, said in flags(text):
        if names.startswith(("-h,", "--version")):   # they print a text and end
            continue
        found = re.fullmatch(r"(.*\S) \(default(:?) (.*)\)", said)
        if not found:
            without.append(names)
            continue
        meaning, in_words, default = found.groups()
        default = default if in_words else f"`{default}`"
        # "--a,--no-a{false}", "--a TYPE", "--a TYPE:BOUNDS", "--a TYPE ..."; a colon may also belong to the type.
        flag, bounds = re.fullmatch(r"(.*?)(?:\{false\})?(?::(\{.*\}|\w+ in \[.*\]))?(?: \.\.\.)?", names).groups()
        shown = ", ".join(f"`{one}`" for one in re.split(",(?=--)", flag))
        rows.append(f"| {shown} | {default} | {values_of(bounds) if bounds else ''} | {meaning[0].upper()}{meaning[1:]} |\n")
    return HEAD + "".join(rows), without


def main():
    program = next((one for one in sys.argv[1:] if not one.startswith("-")), PROGRAM)
    said = subprocess.run([program, "--help"], stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    text, without = page(said)
    if without:
        print(f"operator/main_flags.cpp: no default at the end of the help of {', '.join(without)}")
        return 1
    return publish({PAGE: text}, [one for one in sys.argv[1:] if one != program])


if __name__ == "__main__":
    sys.exit(main())
