#!/usr/bin/env python3
"""clang-tidy over every product source of a build directory; a file whose text and headers have not changed since it was
found clean is not looked at again (stamps below $XDG_CACHE_HOME/muster/clang-tidy).

    tests/tidy/clang_tidy.py build/tidy
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "muster/clang-tidy")
SECONDS = 600
INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)
texts = {}


def text_of(path):
    """The file's bytes; none for one that is not of the tree (a generated header)."""
    if path not in texts:
        try:
            with open(os.path.join(ROOT, path), "rb") as file:
                texts[path] = file.read()
        except FileNotFoundError:
            texts[path] = b""
    return texts[path]


def key_of(path, common):
    """Of the file, the project's headers that it includes, directly or not, and what all depend on."""
    seen, waiting = set(), [path]
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        for found in INCLUDE.findall(text_of(one)):
            name = found.decode()
            beside = os.path.normpath(os.path.join(os.path.dirname(one), name))
            waiting.append(name if os.path.exists(os.path.join(ROOT, name)) else beside)
    digest = hashlib.sha256(common)
    for one in sorted(seen):
        digest.update(one.encode() + b"\0" + hashlib.sha256(text_of(one)).digest())
    return digest.hexdigest()


def findings(path, directory, common):
    """What clang-tidy says; empty for a clean file."""
    stamp = os.path.join(CACHE, key_of(path, common))
    if os.path.exists(stamp):
        return ""
    done = subprocess.run(["clang-tidy-19", "--quiet", "-p", directory, path], cwd=ROOT, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        return done.stdout
    with open(stamp, "w", encoding="utf-8"):
        pass
    return ""


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    directory = sys.argv[1]
    os.makedirs(CACHE, exist_ok=True)
    with open(os.path.join(ROOT, directory, "compile_commands.json"), encoding="utf-8") as file:
        known = sorted({os.path.relpath(entry["file"], ROOT) for entry in json.load(file)})
    files = [path for path in known if not path.startswith(("tests/", "build/", ".."))]
    common = b"".join(text_of(path) for path in (".clang-tidy", "cmake/muster.cmake"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        wrong = [text for text in pool.map(lambda path: findings(path, directory, common), files) if text]
    print("\n".join(wrong) if wrong else f"{len(files)} files")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
