// PriceList: what nodes cost by the hour. A file of the administrator's and no object of the
// cluster; docs/cost.md describes it field by field. What a job costs by it: operator/core/cost.h.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/decimal.h"

namespace muster::api {

/// The price of a whole node; a job pays for the part of it that it takes.
inline constexpr const char* kNodePrice = "node";

/// A part of the week in which all prices of a tier are multiplied by `factor`.
struct PriceHours {
  int from_minute = 0, to_minute = 0;  ///< since Monday 00:00; `to` excluded
  Billionths factor = kOne;
  bool operator==(const PriceHours&) const = default;
};

/// From so many hours that a job has used on, until the next step.
struct PriceStep {
  Billionths from_hours = 0;
  Billionths factor = kOne;
  bool operator==(const PriceStep&) const = default;
};

struct Price {
  std::string resource;  ///< node, cpu, memory (by GiB) or an extended resource
  Billionths per_hour = 0;
  std::vector<PriceStep> volume;  ///< ascending, the first from 0
  bool operator==(const Price&) const = default;
};

struct PriceTier {
  std::string name;
  std::map<std::string, std::string> nodes;  ///< labels of its nodes; empty: every node
  std::vector<Price> prices;                 ///< resources differ
  std::vector<PriceHours> hours;             ///< in order, the whole week
  bool operator==(const PriceTier&) const = default;
};

struct PriceList {
  std::string currency;
  std::chrono::minutes utc_offset{0};  ///< of the hours of the week
  std::vector<PriceTier> tiers;        ///< names differ
  bool operator==(const PriceList&) const = default;
};

inline constexpr std::size_t kMaxTiers = 64;
inline constexpr std::size_t kMaxPricesOfTier = 8;
inline constexpr int kMinutesOfWeek = 7 * 24 * 60;

/// Reads and validates a price list; every week and every volume is covered once. Errors: kInvalid
/// naming the field and what would be right.
Result<PriceList> parse_price_list(const Json& json);

/// A currency as price lists name it: three capital letters (ISO 4217).
bool is_currency(const std::string& text);

}  // namespace muster::api
