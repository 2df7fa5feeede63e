#!/usr/bin/env python3
"""Writes gpt_reference.safetensors: what PyTorch finds for a small GPT, for torch_reference_test.cpp to be held against.

    build/bench/venv/bin/python tests/unit/engine/make_gpt_reference.py     (PyTorch 2.15.0; see tests/bench/run)

Losses and gradients are those of the whole model in double. Beside them, in the file's metadata, stands for each how far PyTorch
itself is from that in fp32 and under bfloat16 autocast, on one thread. First values, tokens and labels follow from integers, so that the test
makes them anew.
"""

import json
import os
import struct

import numpy
import torch
from torch.nn import functional as F

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, ROWS = 2, 2, 32, 24, 48, 8
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpt_reference.safetensors")


def mixed(stream, count):
    """`count` numbers of 32 bits of stream `stream`."""
    x = (numpy.arange(count, dtype=numpy.uint64) + numpy.uint64(stream * 1000003)) & numpy.uint64(0xFFFFFFFF)
    for _ in range(2):
        x ^= x >> numpy.uint64(16)
        x = (x * numpy.uint64(0x45D9F3B)) & numpy.uint64(0xFFFFFFFF)
    return x ^ (x >> numpy.uint64(16))


def between_halves(stream, count):
    """Multiples of 2^-24 in [-1/2, 1/2): the same in every precision."""
    return (mixed(stream, count) >> numpy.uint64(8)).astype(numpy.float64) * 2.0 ** -24 - 0.5


def shapes():
    found = {"wte.weight": (VOCABULARY, WIDTH), "wpe.weight": (CONTEXT, WIDTH)}
    for layer in range(LAYERS):
        for name, shape in (("ln_1.weight", (WIDTH,)), ("ln_1.bias", (WIDTH,)), ("attn.c_attn.weight", (WIDTH, 3 * WIDTH)),
                            ("attn.c_attn.bias", (3 * WIDTH,)), ("attn.c_proj.weight", (WIDTH, WIDTH)),
                            ("attn.c_proj.bias", (WIDTH,)), ("ln_2.weight", (WIDTH,)), ("ln_2.bias", (WIDTH,)),
                            ("mlp.c_fc.weight", (WIDTH, 4 * WIDTH)), ("mlp.c_fc.bias", (4 * WIDTH,)),
                            ("mlp.c_proj.weight", (4 * WIDTH, WIDTH)), ("mlp.c_proj.bias", (WIDTH,))):
            found[f"h.{layer}.{name}"] = shape
    return {**found, "ln_f.weight": (WIDTH,), "ln_f.bias": (WIDTH,)}


def first_values(stream, name, shape):
    """In [-1/2, 1/2), and a normalisation's scales in [1/2, 3/2)."""
    values = between_halves(stream, int(numpy.prod(shape))).reshape(shape)
    return values + 1.0 if "ln_" in name and name.endswith("weight") else values


def losses(p, tokens, labels):
    rows, length = tokens.shape
    x = p["wte.weight"][tokens] + p["wpe.weight"][:length]
    for layer in range(LAYERS):
        def of(name):
            return p[f"h.{layer}.{name}"]

        def linear(x, name):
            return F.linear(x, of(f"{name}.weight").t(), of(f"{name}.bias"))

        def norm(x, name):
            return F.layer_norm(x, (WIDTH,), of(f"{name}.weight"), of(f"{name}.bias"), 1e-5)

        q, k, v = (part.view(rows, length, HEADS, WIDTH // HEADS).transpose(1, 2)
                   for part in linear(norm(x, "ln_1"), "attn.c_attn").split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + linear(y.transpose(1, 2).reshape(rows, length, WIDTH), "attn.c_proj")
        x = x + linear(F.gelu(linear(norm(x, "ln_2"), "mlp.c_fc"), approximate="tanh"), "mlp.c_proj")
    x = F.layer_norm(x, (WIDTH,), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    logits = F.linear(x, p["wte.weight"])
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")


def results(dtype, autocast):
    """{name: values in double} of the losses and of each gradient of their mean."""
    p = {name: torch.tensor(first_values(stream, name, shape), dtype=dtype, requires_grad=True)
         for stream, (name, shape) in enumerate(shapes().items())}
    tokens, labels = (torch.tensor((mixed(stream, ROWS * CONTEXT) % numpy.uint64(VOCABULARY)).astype(numpy.int64)).view(ROWS, CONTEXT)
                      for stream in (101, 102))
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        loss = losses(p, tokens, labels)
    loss.float().mean().backward() if autocast else loss.mean().backward()
    return {"loss": loss.detach().double(), **{name: value.grad.double() for name, value in p.items()}}


def main():
    torch.set_num_threads(1)
    exact = results(torch.float64, False)
    metadata = {"source": f"make_gpt_reference.py, PyTorch {torch.__version__}"}
    for kind, dtype, autocast in (("float32", torch.float32, False), ("bfloat16", torch.float32, True)):
        for name, values in results(dtype, autocast).items():
            metadata[f"{kind}.{name}"] = f"{(values - exact[name]).abs().max().item():.6e}"
    header, data = {"__metadata__": dict(sorted(metadata.items()))}, b""
    for name, values in exact.items():
        raw = values.contiguous().numpy().astype("<f8").tobytes()
        header[name] = {"dtype": "F64", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(OUT, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    print(json.dumps(metadata, indent=1))


if __name__ == "__main__":
    main()
