#!/usr/bin/env python3
"""Runs every ```sh block of README.md, line by line, in a clean clone of this checkout in a new directory.

Left out: the line `scripts/test`, which is what runs this. A block's expected output may follow in a
```text block: each of its lines that is not `...` must appear in the block's output, in order; `<...>`
stands for anything.
"""

import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEFT_OUT = ("scripts/test",)


def blocks(text):
    """(sh block, expected text or None) in order."""
    found = list(re.finditer(r"^```(sh|text)\n(.*?)^```$", text, re.S | re.M))
    for i, match in enumerate(found):
        if match.group(1) == "sh":
            after = found[i + 1] if i + 1 < len(found) else None
            expected = after.group(2) if after and after.group(1) == "text" else None
            yield match.group(2), expected


def missing_line(expected, output):
    """The first expected line that does not come, in order, in the output; None when all do."""
    at = 0
    lines = output.splitlines()
    for want in expected.splitlines():
        if want.strip() in ("", "..."):
            continue
        pattern = ".*".join(re.escape(part) for part in re.split(r"<[^<>]*>", want.strip()))
        while at < len(lines) and not re.search(pattern, lines[at]):
            at += 1
        if at == len(lines):
            return want
        at += 1
    return None


def main():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    ran = 0
    with tempfile.TemporaryDirectory(prefix="muster-readme-") as directory:
        clone = os.path.join(directory, "muster")
        subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], check=True)
        for block, expected in blocks(readme):
            lines = [l for l in block.splitlines() if l.strip() and not l.startswith("git clone")
                     and not l.startswith("cd muster") and not l.startswith(LEFT_OUT)]
            if not lines:
                continue
            done = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", "\n".join(lines)], cwd=clone,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, errors="replace", timeout=3600)
            if done.returncode != 0:
                print(f"README block failed with {done.returncode}:\n{block}\n{done.stdout}")
                return 1
            absent = missing_line(expected, done.stdout) if expected else None
            if absent:
                print(f"README promises the line\n  {absent}\nbut the block\n{block}printed\n{done.stdout}")
                return 1
            ran += len(lines)
    print(f"{ran} README lines ran")
    return 0 if ran else 1


if __name__ == "__main__":
    sys.exit(main())
