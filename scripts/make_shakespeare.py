#!/usr/bin/env python3
"""Makes examples/data/shakespeare-{train,test}.txt: 40,000 lines of Shakespeare's plays, as plain bytes.

    scripts/make_shakespeare.py INPUT [--output DIR]

INPUT is the text known as tiny Shakespeare: data/tinyshakespeare/input.txt of
https://github.com/karpathy/char-rnn (1,115,394 bytes). The first 90 % of the bytes are for training, the others
for testing, as nanoGPT divides them, so that losses can be compared.
"""

import argparse
import hashlib
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INPUT_BYTES = 1_115_394
INPUT_SHA256 = "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"


def read_input(path):
    try:
        with open(path, "rb") as file:
            text = file.read(INPUT_BYTES + 1)
    except OSError as error:
        sys.exit(f"make_shakespeare: {path}: {error.strerror}; it must be the file tinyshakespeare/input.txt")
    if hashlib.sha256(text).hexdigest() != INPUT_SHA256:
        sys.exit(f"make_shakespeare: {path} is not the text that the example was made from; it must have "
                 f"{INPUT_BYTES} bytes with the SHA-256 {INPUT_SHA256}")
    return text


def write(path, content):
    with open(path, "wb") as file:
        file.write(content)
    print(f"{os.path.relpath(path)}: {len(content)} bytes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input")
    parser.add_argument("--output", default=os.path.join(ROOT, "examples", "data"))
    arguments = parser.parse_args()
    text = read_input(arguments.input)
    os.makedirs(arguments.output, exist_ok=True)
    train = len(text) * 9 // 10
    write(os.path.join(arguments.output, "shakespeare-train.txt"), text[:train])
    write(os.path.join(arguments.output, "shakespeare-test.txt"), text[train:])


if __name__ == "__main__":
    main()
