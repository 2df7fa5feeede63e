#!/usr/bin/env python3
"""Makes examples/data/iris-*.csv: Fisher's irises as scikit-learn carries them, with names of the columns.

    scripts/make_iris.py [WHEEL] [--output DIR]

WHEEL is a scikit-learn wheel; without one, the pinned version is downloaded as for make_digits.py. Only
sklearn/datasets/data/iris.csv is read from it. The test set is every fifth flower (i % 5 == 0), the training set the
others, in the order of the file; the measures are as they stand there, and species have the names of the file's first line.
"""

import hashlib
import os
import sys
import zipfile

from make_digits import make

CSV = "sklearn/datasets/data/iris.csv"
CSV_SHA256 = "f13ffa8fdd56fd8e6c8d16d4081a3fbd3114bcd0aae4256c43205169cd9d1449"
COLUMNS = "sepal_length,sepal_width,petal_length,petal_width,species"


def read_rows(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(CSV)
    if hashlib.sha256(text).hexdigest() != CSV_SHA256:
        sys.exit(f"make_iris: {CSV} of {wheel} is not the file that the example was made from")
    first, *rows = text.decode().splitlines()
    species = first.split(",")[2:]  # behind the numbers of rows and of columns
    return [f"{measures},{species[int(number)]}" for measures, number in (row.rsplit(",", 1) for row in rows)]


def write_set(directory, name, rows):
    path = os.path.join(directory, f"iris-{name}.csv")
    with open(path, "w", encoding="ascii", newline="") as file:
        file.write("\n".join([COLUMNS, *rows, ""]))
    print(f"{os.path.relpath(path)}: {len(rows)} flowers")


if __name__ == "__main__":
    make(__doc__, read_rows, write_set)
