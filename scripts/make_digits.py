#!/usr/bin/env python3
"""Makes examples/data/: the UCI digits that scikit-learn carries, as gzip IDX files.

    scripts/make_digits.py [WHEEL] [--output DIR]

WHEEL is a scikit-learn wheel; without one, the pinned version is downloaded with pip into a temporary
directory. Nothing is installed: only sklearn/datasets/data/digits.csv.gz is read from it.

Pixels of 0..16 become bytes: round(v x 255 / 16), ties up ((v x 255 + 8) // 16; the only tie is v = 8). The
test set is every fifth image (i % 5 == 0), the training set the others, in the order of the file. The gzip
files carry neither time nor name, so that the same input gives the same bytes.
"""

import argparse
import gzip
import hashlib
import io
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WHEEL = "scikit-learn==1.5.2"
CSV = "sklearn/datasets/data/digits.csv.gz"
CSV_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
SIDE, CLASSES = 8, 10


def download(directory):
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:",
                    "--python-version", "3.11", "--platform", "manylinux2014_x86_64", "-d", directory, WHEEL],
                   check=True)
    (name,) = [n for n in os.listdir(directory) if n.endswith(".whl")]
    return os.path.join(directory, name)


def read_rows(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = gzip.decompress(archive.read(CSV))
    if hashlib.sha256(text).hexdigest() != CSV_SHA256:
        sys.exit(f"make_digits: {CSV} of {wheel} is not the file that the example was made from")
    rows = [[int(float(v)) for v in line.split(",")] for line in text.decode().splitlines()]
    for number, row in enumerate(rows):
        if len(row) != SIDE * SIDE + 1 or not all(0 <= v <= 16 for v in row[:-1]) or not 0 <= row[-1] < CLASSES:
            sys.exit(f"make_digits: row {number} is not {SIDE * SIDE} pixels of 0..16 and a label")
    return rows


def write(path, content):
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, compresslevel=9, mtime=0) as out:
        out.write(content)
    with open(path, "wb") as file:
        file.write(packed.getvalue())
    print(f"{os.path.relpath(path)}: {len(content)} bytes, {len(packed.getvalue())} packed")


def write_set(directory, name, rows):
    pixels = bytes((v * 255 + 8) // 16 for row in rows for v in row[:-1])
    labels = bytes(row[-1] for row in rows)
    write(os.path.join(directory, f"digits-{name}-images.idx.gz"),
          struct.pack(">4B3I", 0, 0, 8, 3, len(rows), SIDE, SIDE) + pixels)
    write(os.path.join(directory, f"digits-{name}-labels.idx.gz"), struct.pack(">4BI", 0, 0, 8, 1, len(rows)) + labels)


def make(description, read_rows, write_set):
    """Writes what a wheel has into files of two sets: every fifth row (i % 5 == 0) is for testing."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", nargs="?")
    parser.add_argument("--output", default=os.path.join(ROOT, "examples", "data"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rows = read_rows(arguments.wheel or download(directory))
    os.makedirs(arguments.output, exist_ok=True)
    write_set(arguments.output, "train", [row for i, row in enumerate(rows) if i % 5 != 0])
    write_set(arguments.output, "test", [row for i, row in enumerate(rows) if i % 5 == 0])


if __name__ == "__main__":
    make(__doc__, read_rows, write_set)
