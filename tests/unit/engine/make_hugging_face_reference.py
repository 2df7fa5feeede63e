#!/usr/bin/env python3
"""Writes hugging_face/: a GPT-2 as Hugging Face's transformers save it, and its logits, for hugging_face_test.cpp to be held against.

    python3 -m venv VENV && VENV/bin/pip install torch==2.15.0 transformers==5.24.0 numpy
    VENV/bin/python tests/unit/engine/make_hugging_face_reference.py

config.json and model.safetensors are save_pretrained()'s own. logits.safetensors has the logits of that model in double; in its metadata
stand the versions, how far transformers themselves are from that in fp32, and the fields that transformers take for what a config.json
leaves out. Values are drawn from SEED, none of them small or zero, so that each tensor shows in the logits; tokens follow from integers, so
that the test makes them anew.
"""

import json
import os
import shutil
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import GPT2Config, GPT2LMHeadModel

LAYERS, HEADS, WIDTH, CONTEXT, VOCABULARY, ROWS, SEED = 2, 2, 16, 12, 40, 3, 7
OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hugging_face")
# What muster writes of a model into config.json (gpt2_config of worker/engine/sample.cpp).
FIELDS = ("model_type", "architectures", "n_layer", "n_head", "n_embd", "n_positions", "vocab_size", "layer_norm_epsilon",
          "activation_function", "tie_word_embeddings", "embd_pdrop", "attn_pdrop", "resid_pdrop", "bos_token_id", "eos_token_id")


def tokens():
    return torch.tensor([(i * i * 7 + 3 * i) % VOCABULARY for i in range(ROWS * CONTEXT)]).view(ROWS, CONTEXT)


def logits_of(model):
    with torch.no_grad():
        return model.eval()(tokens()).logits


def loaded_as_muster_writes_it():
    """From the names and fields alone that a directory of Muster has: that they are all that transformers need."""
    with tempfile.TemporaryDirectory() as directory:
        with open(os.path.join(OUT, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**{name: config[name] for name in FIELDS}, "torch_dtype": "float32"}, file)
        tensors = load_file(os.path.join(OUT, "model.safetensors"))
        save_file({name.removeprefix("transformer."): value for name, value in tensors.items()},
                  os.path.join(directory, "model.safetensors"), {"format": "pt"})
        model, told = GPT2LMHeadModel.from_pretrained(directory, output_loading_info=True)
        wrong = {kind: sorted(names) for kind, names in told.items() if names}
        if wrong:
            raise SystemExit(f"not loaded as Muster writes it: {wrong}")
        return model


def main():
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    config = GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=CONTEXT, vocab_size=VOCABULARY, embd_pdrop=0.0,
                        attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.uniform_(0.1, 0.4).mul_(torch.randint(0, 2, value.shape) * 2 - 1)
            if "ln_" in name and name.endswith("weight"):
                value.add_(1)
    shutil.rmtree(OUT, ignore_errors=True)
    model.save_pretrained(OUT)
    saved = set(os.listdir(OUT))
    for name in saved - {"config.json", "model.safetensors"}:
        os.remove(os.path.join(OUT, name))
    logits = logits_of(model)
    if not torch.equal(logits_of(loaded_as_muster_writes_it()), logits):
        raise SystemExit("as Muster writes it the model computes something else")
    exact = logits_of(model.double())
    metadata = {"source": "make_hugging_face_reference.py", "torch": torch.__version__, "transformers": transformers.__version__,
                "seed": str(SEED), "error": f"{(logits.double() - exact).abs().max().item():.6e}",
                "defaults": json.dumps(GPT2Config().to_dict(), sort_keys=True)}
    save_file({"logits": exact.contiguous()}, os.path.join(OUT, "logits.safetensors"), metadata)
    print(json.dumps({**metadata, "saved": sorted(saved), "greatest": exact.abs().max().item()}, indent=1))


if __name__ == "__main__":
    main()
