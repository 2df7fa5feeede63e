#!/usr/bin/env python3
"""docs/reference/contract.md from common/contract.h: environment, labels, endpoint, events, metrics; and conditions.md
beside it from operator/core/words.h: types and reasons of conditions.

    scripts/make_contract_reference.py [--check]     --check: exit 1 when a page is stale
"""

import os
import re
import sys

from generated import ROOT, publish

HEADER = os.path.join(ROOT, "common/contract.h")
PAGE = "docs/reference/contract.md"
WORDS = os.path.join(ROOT, "operator/core/words.h")
CONDITIONS = "docs/reference/conditions.md"


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


def page(path, head, is_shown):
    """(text, names without a comment) of a page with a table of each section of `path` that is shown."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    out, current, missing = list(head), None, []
    for section, name, value, comment in constants(text):
        if not is_shown(section):
            continue
        if not comment:
            missing.append(name)
        if section != current:
            current = section
            out += ["", f"## {section}", "", "| name | meaning |", "|---|---|"]
        out.append(f"| `{value}` | {comment} |")
    return "\n".join(out) + "\n", missing


def main():
    contract, missing = page(HEADER, [
        "# The contract between operator, worker and tools", "",
        "Made from `common/contract.h` by `scripts/make_contract_reference.py`; do not edit.",
        "Exit codes: [exit-codes.md](exit-codes.md)."], lambda section: not section.startswith("Exit codes"))
    conditions, more_missing = page(WORDS, [
        "# Conditions and their reasons", "",
        "Made from `operator/core/words.h` by `scripts/make_contract_reference.py`; do not edit.",
        "A condition's reason is one of those here or of the [events'](contract.md#event-reasons); in Failed and in",
        "`status.failure.reason` also what an [exit code](exit-codes.md) means, or the cluster's own word, as Evicted."],
        lambda section: section.startswith(("Condition types", "Reasons")))
    if missing or more_missing:
        print(f"without a comment: {', '.join(missing + more_missing)}")
        return 1
    return publish({PAGE: contract, CONDITIONS: conditions})


if __name__ == "__main__":
    sys.exit(main())
