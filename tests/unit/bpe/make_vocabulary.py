#!/usr/bin/env python3
"""Makes the vocabulary of the tests (vocabulary/vocab.json, vocabulary/merges.txt) and what Hugging Face's tokenizers
make of some texts by it (golden.json).

    tests/unit/bpe/make_vocabulary.py         wants the package tokenizers; the files were made with 0.23.3

It is a byte-level BPE as GPT-2's, of 800 tokens, learned from Shakespeare's plays and a few lines of other languages.
"""

import json
import os
import random

import tokenizers

HERE = os.path.dirname(os.path.abspath(__file__))
PLAYS = os.path.join(HERE, "..", "..", "..", "examples", "data", "shakespeare-test.txt")
OTHERS = ["Привет, мир! Как дела?\n", "こんにちは世界。お元気ですか?\n", "naïve café, déjà vu, Übergröße\n", "१२३ ٤٥٦ ⅷ ²³ ½\n",
          "    indented = [1, 2, 3]\n"]
TEXTS = ["", " ", "\n", "a", " a", "  a", "\t\ta", "a ", "a  ", "a\n\n b", "Hello, world!", "I'm you're he's we'd they'll I've don't",
         "'S 'RE ''s 's's can''t", "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak.\n",
         "x=1234567890;y=3.14", "१२३ ٤٥٦ ⅷ ²³ ½ ①", "naïve café", "e\u0301 n\u0303 \u0301", "Привет, мир!", "こんにちは世界。",
         "\u00a0a\u3000b\u2003 c\u2028d\u0085e", "\u200bzero\u200dwidth\ufeff", "\x00\x01\x1c\x1d\x7f", "🙂👍🏽 👨‍👩‍👧", "<|endoftext|>",
         "a<|endoftext|>b", "..." * 20, " " * 33 + "x", "\r\n\r\n", "ªº ⓐ ⅰ Ⅷ ǅ ʰ 々 〇", "_snake_case__", "$$$ €5 £6", "a" * 300,
         "word\u1680ogham", "\U0001d7d8\U0001d400\U000105c0\U0010ffff"]
# All of them are what they are since long, in every version of Unicode that is about.
ALPHABET = "aeinorst ABET  \n\t'.,-019²½ßéжИ中の한٣ ͡\u0301\u00a0\u3000🙂_"
RANDOM_TEXTS = 200


def main():
    tokenizer = tokenizers.ByteLevelBPETokenizer(add_prefix_space=False)
    with open(PLAYS, encoding="utf-8") as file:
        lines = file.readlines()
    tokenizer.train_from_iterator(lines + OTHERS * 20, vocab_size=800, min_frequency=2, special_tokens=["<|endoftext|>"],
                                  show_progress=False)
    tokenizer.save_model(os.path.join(HERE, "vocabulary"))
    # Read anew, so that special tokens are none any more: what is spelt like one is text.
    again = tokenizers.ByteLevelBPETokenizer.from_file(os.path.join(HERE, "vocabulary", "vocab.json"),
                                                       os.path.join(HERE, "vocabulary", "merges.txt"), add_prefix_space=False)
    draw = random.Random(7)
    texts = TEXTS + ["".join(draw.choices(ALPHABET, k=draw.randint(1, 40))) for _ in range(RANDOM_TEXTS)]
    rows = [json.dumps({"text": text, "tokens": again.encode(text).ids}) for text in texts]
    with open(os.path.join(HERE, "golden.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
