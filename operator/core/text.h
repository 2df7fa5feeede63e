// Hostile text made fit for status: valid UTF-8, bounded, without control characters. What goes in
// must come back from the API server unchanged, or every comparison with it would find a
// difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster::core {

/// Bytes that are not UTF-8 and control characters (but \n and \t) become '?'.
std::string clean_text(std::string_view text);
/// As clean_text, at most `most` bytes from the front; cut between characters.
std::string head_of(std::string_view text, std::size_t most);
/// As clean_text, at most `most` bytes from the end.
std::string tail_of(std::string_view text, std::size_t most);
/// The first line of head_of().
std::string first_line(std::string_view text, std::size_t most);
/// As clean_text, of the last line that has letters or digits, and is no border such as torchrun
/// ends with: at most `most` bytes from the front.
std::string last_line(std::string_view text, std::size_t most);

/// Whether it may be a condition's or event's reason (CamelCase, at most 128 bytes).
bool is_reason(std::string_view text);
/// Whether it is a decimal number as workers write it ("0.1234", "-1.5e-3", "nan", "inf").
bool is_decimal(std::string_view text);
/// Whether it is a SHA-256 in lower-case hexadecimal.
bool is_sha256(std::string_view text);
/// With `digits` after the point; numbers that are none or out of range become "0".
std::string decimal(double value, int digits);

/// Whether they are the same but for the numbers in them, places such as "6th" not among these.
bool differs_in_numbers_alone(std::string_view a, std::string_view b);

/// "500m" of cpu, "2Gi" of memory, "3" of everything else, from base units.
std::string amount_text(const std::string& resource, std::int64_t amount);

/// FNV-1a, for names that must not change.
std::uint64_t hash_text(std::string_view text);
std::string hex_text(std::uint64_t value);

}  // namespace muster::core
