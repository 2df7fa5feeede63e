#!/usr/bin/env python3
"""The peer of gpt_bench: the same GPT in PyTorch, one process.

Prints `tokens_per_second X peak_rss_mib Y`. Per step, as gpt_bench does: take the batch's contexts in a shuffled
order, forward, backward, clip by the global norm, AdamW. The head is tied to the embedding, attention is PyTorch's own.
"""

import argparse
import resource
import time

import torch
from torch import nn
from torch.nn import functional as F

SAMPLES, WARM_UP = 256, 3


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.c_fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, C // self.heads).transpose(1, 2)
                   for part in self.c_attn(self.ln_1(x)).split(C, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.out(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, tokens):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens):
        x = self.blocks(self.wte(tokens) + self.wpe.weight[:tokens.shape[1]])
        return F.linear(self.ln_f(x), self.wte.weight)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="4-4-128-64", help="LAYERS-HEADS-WIDTH-CONTEXT[-TOKENS]")
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compile", action="store_true", help="by torch.compile, in place of eager")
    parser.add_argument("--precision", choices=["Float32", "BFloat16"], default="Float32")
    parser.add_argument("--seconds", type=float, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    layers, heads, width, context, *rest = (int(part) for part in arguments.shape.split("-"))
    tokens = rest[0] if rest else 256
    text = torch.randint(0, tokens, (SAMPLES * context + 1,))
    model = Gpt(layers, heads, width, context, tokens)
    run = torch.compile(model) if arguments.compile else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    steps_per_epoch = SAMPLES // arguments.batch
    step, start = 0, 0.0
    while True:
        if step % steps_per_epoch == 0:
            order = torch.randperm(SAMPLES)
        at = step % steps_per_epoch * arguments.batch
        begins = order[at:at + arguments.batch, None] * context + torch.arange(context)
        # As ours: what layers multiply is rounded, parameters and their updates stay fp32.
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=arguments.precision == "BFloat16"):
            logits = run(text[begins])
            loss = F.cross_entropy(logits.view(-1, tokens), text[begins + 1].view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()  # gpt_bench reports the loss of every step, too
        step += 1
        now = time.perf_counter()
        if step == WARM_UP:
            start = now
        if step > WARM_UP and now - start >= arguments.seconds:
            break
    rate = (step - WARM_UP) * arguments.batch * context / (now - start)
    print(f"tokens_per_second {rate:.0f} peak_rss_mib {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f}")


if __name__ == "__main__":
    main()
