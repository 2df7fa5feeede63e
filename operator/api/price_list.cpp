#include "operator/api/price_list.h"

#include <array>

#include "operator/api/fields.h"
#include "operator/api/object_meta_json.h"

namespace muster::api {
namespace {

constexpr std::size_t kMaxHoursOfTier = 64;
constexpr std::size_t kMaxVolumeSteps = 32;
constexpr std::size_t kMaxLabelsOfTier = 16;
constexpr int kMinutesOfDay = 24 * 60;
constexpr std::array<std::string_view, 7> kDays{"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};

/// What a decimal of the list may be.
struct PriceBounds {
  std::int64_t most;  ///< whole
  const char* example;
};
constexpr PriceBounds kPriceBounds{1'000'000, "2.50"};
constexpr PriceBounds kFactorBounds{100, "0.6"};
constexpr PriceBounds kVolumeBounds{1'000'000'000, "1000"};

/// A decimal in quotes, or an integer. YAML's other numbers are not taken: what is binary by the
/// time it comes here was not written so.
void read_price_decimal(JsonReader& in, const Json& json, const char* field,
                        const PriceBounds& bounds, Billionths& out) {
  std::string text;
  std::int64_t number = 0;
  const Json value = in.has(field) ? json[field] : Json();
  if (value.is_number_integer()) {
    text = value.dump();
    if (!text.starts_with('-')) in.optional(field, number, {0, INT64_MAX});
  } else if (value.is_number()) {
    in.fail(field, std::string("must be a decimal in quotes, such as \"") + bounds.example + "\"");
  } else {
    in.optional(field, text, kMaxDecimalBytes);
  }
  if (value.is_null() || !in.status()) return;
  if (text.starts_with('-')) return in.fail(field, "must not be negative");
  const auto read = parse_billionths(text);
  if (read && *read <= bounds.most * kOne) {
    out = *read;
    return;
  }
  in.fail(field, "must be a decimal from 0 to " + std::to_string(bounds.most) + ", such as \"" +
                     bounds.example + "\"");
}

void require_price_decimal(JsonReader& in, const Json& json, const char* field,
                           const PriceBounds& bounds, Billionths& out) {
  if (in.status() && !in.has(field)) in.fail(field, "is required");
  read_price_decimal(in, json, field, bounds, out);
}

// ---- Volume

Status read_price_step(const Json& json, const std::string& path, std::vector<PriceStep>& steps,
                       std::optional<Billionths>& end) {
  JsonReader in(json, path);
  PriceStep step;
  require_price_decimal(in, json, "from", kVolumeBounds, step.from_hours);
  require_price_decimal(in, json, "factor", kFactorBounds, step.factor);
  const std::string right = billionths_text(end.value_or(0));
  if (in.status() && !steps.empty() && !end) {
    in.fail("from", "the step before has no `to`, so none may follow it");
  } else if (in.status() && step.from_hours > end.value_or(0)) {
    in.fail("from", "leaves a gap: must be " + right +
                        (steps.empty() ? "" : ", where the step before ends"));
  } else if (in.status() && step.from_hours < end.value_or(0)) {
    in.fail("from", "overlaps: must be " + right + ", where the step before ends");
  }
  Billionths to = 0;
  read_price_decimal(in, json, "to", kVolumeBounds, to);
  end.reset();
  if (in.has("to")) {
    if (in.status() && to <= step.from_hours) in.fail("to", "must be above `from`");
    end = to;
  }
  in.no_other_fields();
  steps.push_back(step);
  return in.status();
}

void read_volume(JsonReader& in, std::vector<PriceStep>& out) {
  std::optional<Billionths> end;
  read_list(in, "volume", kMaxVolumeSteps, [&](const Json& item, const std::string& at) {
    return read_price_step(item, at, out, end);
  });
  if (in.status() && end) {
    in.fail("volume", "leaves a gap above " + billionths_text(*end) +
                          " hours: the last step must have no `to`");
  }
  if (out.empty()) out.push_back({});
}

bool is_priced_resource(const std::string& name) {
  return name == kNodePrice || name == "cpu" || name == "memory" ||
         matches(NameRule::kDomainPath, name);
}

Status read_price(const Json& json, const std::string& path, Price& out) {
  JsonReader in(json, path);
  in.required("resource", out.resource, 317);
  if (in.status() && !is_priced_resource(out.resource)) {
    in.fail("resource", in_quotes(out.resource) +
                            " is unknown; must be node, cpu, memory or an extended resource such "
                            "as nvidia.com/gpu");
  }
  require_price_decimal(in, json, "perHour", kPriceBounds, out.per_hour);
  read_volume(in, out.volume);
  in.no_other_fields();
  return in.status();
}

// ---- Hours of the week

/// "07:30" as minutes of a day, up to 24:00.
std::optional<int> parse_clock(const std::string& text) {
  const bool has_form = text.size() == 5 && text[2] == ':' && is_digit(text[0]) &&
                        is_digit(text[1]) && is_digit(text[3]) && is_digit(text[4]);
  if (!has_form) return std::nullopt;
  const int hours = (text[0] - '0') * 10 + text[1] - '0';
  const int minutes = (text[3] - '0') * 10 + text[4] - '0';
  const int of_day = hours * 60 + minutes;
  if (minutes > 59 || of_day > kMinutesOfDay) return std::nullopt;
  return of_day;
}

std::string two_digits(int number) { return (number < 10 ? "0" : "") + std::to_string(number); }

std::string clock_text(int minute_of_week) {
  const int minute = minute_of_week % kMinutesOfDay;
  const std::string_view day = kDays.at(static_cast<std::size_t>(minute_of_week / kMinutesOfDay));
  return std::string(day) + " " + two_digits(minute / 60) + ":" + two_digits(minute % 60);
}

void read_clock(JsonReader& in, const char* field, int& out) {
  std::string text;
  in.required(field, text, 16);
  if (!in.status()) return;
  const auto minutes = parse_clock(text);
  if (!minutes) return in.fail(field, "must be a time of the day in quotes, such as \"07:30\"");
  out = *minutes;
}

std::optional<int> day_of(std::string_view text) {
  for (std::size_t i = 0; i < kDays.size(); ++i) {
    if (kDays.at(i) == text) return static_cast<int>(i);
  }
  return std::nullopt;
}

struct Days {
  int first = 0, count = 7;
};

/// "Mon" or "Mon-Fri", also over the week's end.
void read_days(JsonReader& in, Days& out) {
  std::string text;
  in.optional("days", text, 16);
  if (text.empty() || !in.status()) return;
  const std::size_t dash = text.find('-');
  const auto first = day_of(std::string_view(text).substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : day_of(std::string_view(text).substr(dash + 1));
  if (!first || !last) {
    return in.fail("days", in_quotes(text) + " is no day; write it like Mon or Mon-Fri");
  }
  out = {*first, (*last - *first + 7) % 7 + 1};
}

/// The week, minute by minute: whose window it is, and its factor.
struct Week {
  std::vector<int> window = std::vector<int>(kMinutesOfWeek, -1);
  std::vector<Billionths> factors;  ///< by window
};

Status read_window(const Json& json, const std::string& path, Week& week) {
  JsonReader in(json, path);
  Days days;
  int from = 0, to = 0;
  Billionths factor = kOne;
  read_days(in, days);
  read_clock(in, "from", from);
  read_clock(in, "to", to);
  require_price_decimal(in, json, "factor", kFactorBounds, factor);
  in.no_other_fields();
  if (!in.status()) return in.status();
  if (from == kMinutesOfDay)
    return Error(ErrorCode::kInvalid, path + ".from: must be before 24:00");
  const int own = static_cast<int>(week.factors.size());
  week.factors.push_back(factor);
  const int length = to > from ? to - from : to - from + kMinutesOfDay;
  for (int day = days.first; day < days.first + days.count; ++day) {
    for (int minute = 0; minute < length; ++minute) {
      const int at = (day * kMinutesOfDay + from + minute) % kMinutesOfWeek;
      int& owner = week.window[static_cast<std::size_t>(at)];
      if (owner >= 0) {
        return Error(ErrorCode::kInvalid,
                     path + ": overlaps " +
                         (owner == own ? "itself" : "window " + std::to_string(owner)) + " from " +
                         clock_text(at) + " on");
      }
      owner = own;
    }
  }
  return {};
}

void read_hours(JsonReader& in, std::vector<PriceHours>& out) {
  Week week;
  read_list(in, "hours", kMaxHoursOfTier,
            [&](const Json& item, const std::string& at) { return read_window(item, at, week); });
  if (week.factors.empty()) {
    out.push_back({0, kMinutesOfWeek, kOne});
    return;
  }
  for (int minute = 0; minute < kMinutesOfWeek && in.status(); ++minute) {
    const int window = week.window[static_cast<std::size_t>(minute)];
    if (window < 0) {
      in.fail("hours", "leaves a gap from " + clock_text(minute) +
                           " on: the windows must cover the whole week");
      break;
    }
    const Billionths factor = week.factors[static_cast<std::size_t>(window)];
    if (out.empty() || out.back().factor != factor) out.push_back({minute, minute, factor});
    out.back().to_minute = minute + 1;
  }
}

// ---- The list

Status read_tier(const Json& json, const std::string& path, PriceTier& out) {
  JsonReader in(json, path);
  required_name(in, "name", out.name, NameRule::kLabel);
  read_object(in, "nodes", [&](const Json& object, const std::string& at) -> Status {
    if (object.size() > kMaxLabelsOfTier) {
      return Error(ErrorCode::kInvalid,
                   at + ": has more than " + std::to_string(kMaxLabelsOfTier) + " labels");
    }
    return read_string_map(object, at, out.nodes);
  });
  std::vector<std::string> resources;
  read_list(in, "prices", kMaxPricesOfTier, [&](const Json& item, const std::string& at) -> Status {
    Price& price = out.prices.emplace_back();
    MUSTER_RETURN_IF_ERROR(read_price(item, at, price));
    return add_unique(resources, price.resource, at + ".resource", "resource");
  });
  if (in.status() && out.prices.empty()) in.fail("prices", "must have at least one price");
  read_hours(in, out.hours);
  in.no_other_fields();
  return in.status();
}

void read_utc_offset(JsonReader& in, std::chrono::minutes& out) {
  std::string text;
  in.optional("utcOffset", text, 16);
  if (text.empty() || !in.status()) return;
  const auto minutes = parse_clock(text.substr(1));
  const bool has_sign = text[0] == '+' || text[0] == '-';
  if (!has_sign || !minutes || *minutes > 14 * 60) {
    return in.fail("utcOffset", "must be from \"-14:00\" to \"+14:00\", such as \"+01:00\"");
  }
  out = std::chrono::minutes(text[0] == '-' ? -*minutes : *minutes);
}

}  // namespace

bool is_currency(const std::string& text) {
  if (text.size() != 3) return false;
  for (const char c : text) {
    if (c < 'A' || c > 'Z') return false;
  }
  return true;
}

Result<PriceList> parse_price_list(const Json& json) {
  PriceList list;
  JsonReader in(json, "");
  in.required("currency", list.currency, 16);
  if (in.status() && !is_currency(list.currency)) {
    in.fail("currency", "must be three capital letters, such as EUR");
  }
  read_utc_offset(in, list.utc_offset);
  std::vector<std::string> names;
  read_list(in, "tiers", kMaxTiers, [&](const Json& item, const std::string& at) -> Status {
    PriceTier tier;
    MUSTER_RETURN_IF_ERROR(read_tier(item, at, tier));
    MUSTER_RETURN_IF_ERROR(add_unique(names, tier.name, at + ".name", "tier"));
    for (const PriceTier& before : list.tiers) {
      if (before.nodes != tier.nodes) continue;
      return Error(ErrorCode::kInvalid, at + ".nodes: are those of tier " + before.name +
                                            ", too; a node must be in one tier alone");
    }
    list.tiers.push_back(std::move(tier));
    return {};
  });
  if (in.status() && list.tiers.empty()) in.fail("tiers", "must have at least one tier");
  in.no_other_fields();
  MUSTER_RETURN_IF_ERROR(in.status());
  return list;
}

}  // namespace muster::api
