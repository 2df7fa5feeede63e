#!/usr/bin/env python3
"""Loads a GPT that `muster run` has trained with Hugging Face's transformers, as it lies in the output directory, and
holds its loss and accuracy on the test text against those that report.json tells.

    tests/bench/hugging_face.py DIR TEXT      DIR: of `muster run`; TEXT: the file of spec.training.data.test

Wants PyTorch and transformers. Exit code 1 where the two do not agree.
"""

import json
import os
import sys

import torch
from transformers import GPT2LMHeadModel

# Of a mean over a hundred thousand losses of about 2, each with the error of a hundred fp32 operations.
LOSS_TOLERANCE = 1e-5
# Where two logits are as good as equal, either may be the greatest.
ACCURACY_TOLERANCE = 1e-4


def main():
    directory, text_file = sys.argv[1:]
    with open(os.path.join(directory, "report.json"), encoding="utf-8") as file:
        ours = json.load(file)["evaluations"][-1]
    model, told = GPT2LMHeadModel.from_pretrained(directory, output_loading_info=True)
    wrong = {kind: sorted(names) for kind, names in told.items() if names}
    if wrong:
        raise SystemExit(f"not loaded as it is: {wrong}")
    context = model.config.n_positions
    with open(text_file, "rb") as file:
        text = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    samples = (len(text) - 1) // context
    tokens = text[:samples * context].view(samples, context)
    labels = text[1:samples * context + 1].view(samples, context)
    loss, right = 0.0, 0
    with torch.no_grad():
        for part, expected in zip(tokens.split(64), labels.split(64)):
            logits = model(part).logits.double()
            loss += torch.nn.functional.cross_entropy(logits.flatten(0, 1), expected.flatten(), reduction="sum").item()
            right += (logits.argmax(2) == expected).sum().item()
    count = samples * context
    loss, accuracy = loss / count, right / count
    print(f"transformers: loss {loss:.7f}, accuracy {accuracy:.6f}; ours: {float(ours['loss']):.7f}, {ours['accuracy']:.6f}"
          f" ({count} bytes)")
    agree = abs(loss - float(ours["loss"])) <= LOSS_TOLERANCE and abs(accuracy - ours["accuracy"]) <= ACCURACY_TOLERANCE
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
