#!/usr/bin/env python3
"""charts/muster/README.md: the hand-written page with the table of all values, made from values.yaml.

    scripts/make_chart_readme.py [--check]     --check: exit 1 when the page is stale

A value's comment begins with `# --`; all its lines stand directly above the value.
"""

import json
import os
import re
import sys

import yaml

from generated import ROOT, publish

VALUES = os.path.join(ROOT, "charts/muster/values.yaml")
PAGE = "charts/muster/README.md"
START, END = "<!-- values: made by scripts/make_chart_readme.py -->\n", "<!-- end of values -->\n"


def rows(text):
    """(dotted name, default as JSON, comment) of every value that has a comment."""
    values, path, comment = yaml.safe_load(text), [], None
    for line in text.splitlines():
        if match := re.match(r" *# -- (.*)", line):
            comment = match.group(1)
        elif (match := re.match(r" *# (.*)", line)) and comment:
            comment += " " + match.group(1)
        elif match := re.match(r"( *)([A-Za-z]\w*):", line):
            depth = len(match.group(1)) // 2
            if depth > len(path) or line.startswith(" ") and comment is None and path and path[0] in DOCUMENTED_WHOLE:
                continue
            path = path[:depth] + [match.group(2)]
            if comment is None:
                continue
            value = values
            for name in path:
                value = value[name]
            if depth == 0 and isinstance(value, dict) and value:
                DOCUMENTED_WHOLE.add(path[0])
            yield ".".join(path), json.dumps(value), comment
            comment = None


DOCUMENTED_WHOLE = set()   # top-level values whose comment speaks for all below them


def leaves(values, prefix=()):
    for name, value in values.items():
        if isinstance(value, dict) and value and name not in DOCUMENTED_WHOLE:
            yield from leaves(value, (*prefix, name))
        else:
            yield ".".join((*prefix, name))


def main():
    with open(VALUES, encoding="utf-8") as file:
        text = file.read()
    table = list(rows(text))
    missing = sorted(set(leaves(yaml.safe_load(text))) - {name for name, _, _ in table})
    if missing:
        print(f"charts/muster/values.yaml: no `# --` comment above {', '.join(missing)}", file=sys.stderr)
        return 1
    with open(os.path.join(ROOT, PAGE), encoding="utf-8") as file:
        page = file.read()
    made = "| value | default | meaning |\n|---|---|---|\n" + "".join(
        f"| `{name}` | `{default}` | {comment} |\n" for name, default, comment in table)
    new = page[:page.index(START)] + START + "\n" + made + "\n" + page[page.index(END):]
    return publish({PAGE: new})


if __name__ == "__main__":
    sys.exit(main())
