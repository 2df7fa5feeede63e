// How GPT-2 cuts a text before it looks for tokens: no token reaches over such a border.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster::bpe {

/// Bytes of the piece that `text` begins with; the rest is cut without regard to it. A piece is the
/// first that fits of: an apostrophe with s, t, re, ve, m, ll or d; letters, numbers, or characters
/// that are neither nor white space, each with one space ahead of them where there is one; white
/// space, without its last character where something else follows. A byte that is no UTF-8 is a
/// character that is none of these. Requires that text is not empty.
/// Source: openai/gpt-2, src/encoder.py, the pattern; its white space is Unicode's White_Space.
std::size_t first_piece(std::string_view text);

}  // namespace muster::bpe
