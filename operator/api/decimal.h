// Decimal numbers as texts and back, exactly: amounts of money and of what is paid for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::api {

/// Nine digits after the point. Shape: the number times 10^9, so at most about 9.2 * 10^9.
using Billionths = std::int64_t;
inline constexpr Billionths kOne = 1'000'000'000;

/// "12", "0.5", "-3.25": digits, and up to nine more after a point. Absent: it is none, or too
/// large.
std::optional<Billionths> parse_billionths(std::string_view text);
/// The shortest text that parse_billionths reads as `value`.
std::string billionths_text(Billionths value);

/// As a floating-point number, and back: rounded to the nearest, and held within 0 and the most.
double plain(Billionths value);
Billionths billionths(double value);
/// Of numbers from 0 on; held within the most.
Billionths sum_of(Billionths a, Billionths b);

}  // namespace muster::api
