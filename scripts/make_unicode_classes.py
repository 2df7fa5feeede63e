#!/usr/bin/env python3
"""Makes common/bpe/unicode_classes.cpp: which characters are letters (\\p{L}), numbers (\\p{N}) and white space.

    scripts/make_unicode_classes.py [--check]

From the tables of Python's unicodedata, which must be those of Unicode 14.0.0 (Python 3.11): another version would cut
some texts into other tokens. White space is the property White_Space, which unicodedata does not have.
"""

import sys
import unicodedata

from generated import publish

VERSION = "14.0.0"
OTHER, LETTER, NUMBER, SPACE = range(4)
SPACES = {*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}

HEAD = f"""// Made by scripts/make_unicode_classes.py from Unicode {VERSION}; not to be edited.
#include "common/bpe/unicode_classes.h"

#include <algorithm>
#include <array>

namespace muster::bpe {{
namespace {{

/// Where another class begins: code point x 4 + class.
// clang-format off
constexpr std::array<std::uint32_t, COUNT> kBorders{{
"""
TAIL = """};
// clang-format on

}  // namespace

CharacterClass class_of(char32_t character) {
  // The last border at or below the character; the first one is that of 0.
  const auto after = std::upper_bound(kBorders.begin(), kBorders.end(), character * 4 + 3);
  return static_cast<CharacterClass>(*(after - 1) & 3);
}

}  // namespace muster::bpe
"""


def class_of(code):
    if code in SPACES:
        return SPACE
    return {"L": LETTER, "N": NUMBER}.get(unicodedata.category(chr(code))[0], OTHER)


def main():
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"make_unicode_classes: this Python has Unicode {unicodedata.unidata_version}; must be {VERSION}")
    borders, before = [], None
    for code in range(0x110000):
        now = class_of(code)
        if now != before:
            borders.append(code * 4 + now)
        before = now
    numbers = [f"{border:#x}" for border in borders]
    lines, line = [], "   "
    for number in numbers:
        if len(line) + len(number) + 2 > 100:
            lines.append(line)
            line = "   "
        line += f" {number},"
    lines.append(line.rstrip(","))
    return publish({"common/bpe/unicode_classes.cpp": HEAD.replace("COUNT", str(len(borders))) + "\n".join(lines) + TAIL})


if __name__ == "__main__":
    sys.exit(main())
