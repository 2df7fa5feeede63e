#!/usr/bin/env python3
"""Makes examples/data/penguins-*.csv of the Palmer penguins.

    scripts/make_penguins.py FILE [DIRECTORY]

FILE is penguins.csv of https://github.com/mwaskom/seaborn-data. The test set is every fifth penguin (i % 5 == 0), the training
set the others, in the order of the file, as they stand there.
"""

import hashlib
import os
import sys

CSV_SHA256 = "e07636bd8af74260099ea2f8678e2eabbf35def579940cc76f67061ee16c06c1"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def main(source, directory=os.path.join(ROOT, "examples", "data")):
    with open(source, "rb") as file:
        text = file.read()
    if hashlib.sha256(text).hexdigest() != CSV_SHA256:
        sys.exit(f"make_penguins: {source} is not the file that the example was made from")
    columns, *rows = text.decode("ascii").splitlines()
    for name, is_test in (("test", True), ("train", False)):
        chosen = [row for i, row in enumerate(rows) if (i % 5 == 0) == is_test]
        path = os.path.join(directory, f"penguins-{name}.csv")
        with open(path, "w", encoding="ascii", newline="") as file:
            file.write("\n".join([columns, *chosen, ""]))
        print(f"{os.path.relpath(path)}: {len(chosen)} penguins")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
