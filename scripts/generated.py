"""What the scripts share that make files of the project: each file is written, or with --check compared."""

import argparse
import difflib
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def publish(files, arguments=None):
    """Writes `files` (path in the project -> text). With --check nothing is written, and what differs is shown.

    `arguments`: the command line; the program's own when it is left out.

    Returns the exit code: 1 when --check found a file that is not what would be made.
    """
    main = sys.modules["__main__"]
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="fail when a file is not up to date")
    is_check, stale = parser.parse_args(arguments).check, []
    for path, text in files.items():
        full = os.path.join(ROOT, path)
        if not is_check:
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        old = ""
        if os.path.exists(full):
            with open(full, encoding="utf-8") as file:
                old = file.read()
        if old != text:
            stale.append(path)
            print("".join(difflib.unified_diff(old.splitlines(True), text.splitlines(True), path, "made anew")))
    if stale:
        print(f"{', '.join(stale)}: stale; run scripts/{os.path.basename(main.__file__)}")
    return 1 if stale else 0
