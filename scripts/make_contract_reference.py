#!/usr/bin/env python3
"""docs/reference/contract.md from common/contract.h: environment, labels, endpoint, events, metrics.

    scripts/make_contract_reference.py [--check]     --check: exit 1 when the page is stale
"""

import os
import re
import sys

from generated import ROOT, publish

HEADER = os.path.join(ROOT, "common/contract.h")
PAGE = "docs/reference/contract.md"


def constants(text):
    """(section, name, value, comment) of every constant, in order."""
    text = re.sub(r"=\s*\n\s*", "= ", text)   # a declaration the formatter broke over two lines
    section, comment = "", []
    for line in text.split("\n"):
        if match := re.match(r"// ---- (.*)$", line):
            section = match.group(1)
        elif match := re.match(r"/// (.*)$", line):
            comment.append(match.group(1))
            continue
        elif match := re.match(r'inline constexpr \S+ (k\w+) = "?([^";]*)"?;$', line):
            yield section, match.group(1), match.group(2), " ".join(comment)
        comment = []


def page():
    with open(HEADER, encoding="utf-8") as file:
        text = file.read()
    out = ["# The contract between operator, worker and tools", "",
           "Made from `common/contract.h` by `scripts/make_contract_reference.py`; do not edit.",
           "Exit codes: [exit-codes.md](exit-codes.md)."]
    current, missing = None, []
    for section, name, value, comment in constants(text):
        if not comment:
            missing.append(name)
        if section.startswith("Exit codes"):
            continue
        if section != current:
            current = section
            out += ["", f"## {section}", "", "| name | meaning |", "|---|---|"]
        out.append(f"| `{value}` | {comment} |")
    return "\n".join(out) + "\n", missing


def main():
    text, missing = page()
    if missing:
        print(f"contract.h: without a comment: {', '.join(missing)}")
        return 1
    return publish({PAGE: text})


if __name__ == "__main__":
    sys.exit(main())
