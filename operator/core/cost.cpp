#include "operator/core/cost.h"

#include <algorithm>
#include <cmath>

#include "operator/core/text.h"
#include "operator/core/words.h"

namespace muster::core {
namespace {

using api::Billionths;
using api::billionths;
using api::kOne;
using api::plain;
using api::sum_of;

constexpr seconds kWeek{7 * 24 * 3600};
/// Of an interval between two writes; a status may say anything.
constexpr seconds kMostCounted{10LL * 365 * 24 * 3600};
/// The epoch's first day was a Thursday.
constexpr seconds kMondayToEpoch{3 * 24 * 3600};
constexpr const char* kNoList = "the operator has no price list (--price-list)";
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

seconds second_of_week(const api::PriceList& prices, WallTime time) {
  const seconds since = std::chrono::floor<seconds>(time.time_since_epoch());
  const seconds of_week = (since + prices.utc_offset + kMondayToEpoch) % kWeek;
  return of_week < seconds(0) ? of_week + kWeek : of_week;
}

/// The hours of the week that `of_week` lies in.
const api::PriceHours& hours_at(const api::PriceTier& tier, seconds of_week) {
  const auto minute = std::chrono::floor<std::chrono::minutes>(of_week).count();
  const auto found = std::find_if(tier.hours.begin(), tier.hours.end(),
                                  [&](const auto& one) { return minute < one.to_minute; });
  return found == tier.hours.end() ? tier.hours.back() : *found;
}

/// So many hours at the steps of the volume, after `before` of them: hours times factor.
double at_volume(const api::Price& price, double before, double hours) {
  double weighted = 0;
  for (std::size_t i = 0; i < price.volume.size() && hours > 0; ++i) {
    const bool is_last = i + 1 == price.volume.size();
    const double room = is_last ? hours : plain(price.volume[i + 1].from_hours) - before;
    const double part = std::min(hours, std::max(0.0, room));
    weighted += part * plain(price.volume[i].factor);
    before += part;
    hours -= part;
  }
  return weighted;
}

const api::Price* price_of(const api::PriceList& prices, const api::CostItem& item,
                           const api::PriceTier** tier) {
  for (const api::PriceTier& one : prices.tiers) {
    if (one.name != item.tier) continue;
    *tier = &one;
    for (const api::Price& price : one.prices) {
      if (price.resource == item.resource) return &price;
    }
  }
  return nullptr;
}

void note_unknown(api::JobCost& cost, const std::string& why) {
  cost.rate_per_hour.reset();
  cost.unknown = head_of(why, words::kMaxMessageBytes);
}

// ---- What is used

/// The one tier of a node; else nullptr, and why.
const api::PriceTier* tier_of(const api::PriceList& prices, const api::Node& node,
                              std::string& why) {
  const api::PriceTier* found = nullptr;
  for (const api::PriceTier& tier : prices.tiers) {
    const bool is_in = std::all_of(tier.nodes.begin(), tier.nodes.end(), [&](const auto& wanted) {
      const auto label = node.meta.labels.find(wanted.first);
      return label != node.meta.labels.end() && label->second == wanted.second;
    });
    if (!is_in) continue;
    if (found != nullptr) {
      why = "node " + node.meta.name + " is in two tiers of the price list, " + found->name +
            " and " + tier.name + "; its labels must fit one alone";
      return nullptr;
    }
    found = &tier;
  }
  if (found == nullptr) {
    why = "node " + node.meta.name + " is in no tier of the price list; one must have its labels";
  }
  return found;
}

/// The largest part of any resource of the node that a worker takes.
double part_of_node(const api::Resources& worker, const api::Node& node) {
  double part = 0;
  const auto take = [&](const std::string& resource, std::int64_t amount) {
    const auto has = node.allocatable.find(resource);
    if (amount <= 0 || has == node.allocatable.end() || has->second <= 0) return;
    part = std::max(part, static_cast<double>(amount) / static_cast<double>(has->second));
  };
  take("cpu", worker.cpu_millis);
  take("memory", worker.memory_bytes);
  for (const auto& [resource, amount] : api::PodRequests(worker).devices) take(resource, amount);
  return std::min(part, 1.0);
}

/// What one worker on the node takes of the price.
Billionths units_of(const api::Price& price, const api::Resources& worker, const api::Node& node) {
  if (price.resource == api::kNodePrice) return billionths(part_of_node(worker, node));
  if (price.resource == "cpu") return worker.cpu_millis * (kOne / 1000);
  if (price.resource == "memory") {
    return billionths(static_cast<double>(worker.memory_bytes) / kGiB);
  }
  const auto devices = api::PodRequests(worker).devices;
  const auto device = devices.find(price.resource);
  return device == devices.end() ? 0 : device->second * kOne;
}

using Uses = std::map<std::pair<std::string, std::string>, Billionths>;  // by tier and resource

Uses uses_of(const api::PriceList& prices, const CostUse& use, std::string& why_unknown) {
  Uses uses;
  const api::Resources each = api::pod_resources(use.worker);
  for (const std::string& name : use.node_of_worker) {
    if (name.empty()) continue;
    if (!use.sees_nodes) {
      why_unknown = "this operator sees no nodes, so it does not know which tier they are in";
      return {};
    }
    const auto node = use.nodes.find(name);
    // One that is gone is paid for by nobody; its workers get other places.
    if (node == use.nodes.end()) continue;
    const api::PriceTier* tier = tier_of(prices, *node->second, why_unknown);
    if (tier == nullptr) continue;
    for (const api::Price& price : tier->prices) {
      Billionths& units = uses[{tier->name, price.resource}];
      units = sum_of(units, units_of(price, each, *node->second));
    }
  }
  return uses;
}

/// Of an hour as things are at `now`.
Billionths rate_at(const api::PriceList& prices, const api::JobCost& cost, WallTime now) {
  double rate = 0;
  for (const api::CostItem& item : cost.items) {
    const api::PriceTier* tier = nullptr;
    const api::Price* price = price_of(prices, item, &tier);
    if (price == nullptr || item.units == 0) continue;
    const auto step = std::find_if(price->volume.rbegin(), price->volume.rend(),
                                   [&](const auto& one) { return one.from_hours <= item.hours; });
    rate += plain(price->per_hour) * plain(item.units) * plain(step->factor) *
            plain(hours_at(*tier, second_of_week(prices, now)).factor);
  }
  return billionths(rate);
}

}  // namespace

Billionths cost_of(const api::PriceList& prices, const api::PriceTier& tier,
                   const api::Price& price, const api::CostItem& used, WallTime from, WallTime to) {
  to = std::min(to, from + kMostCounted);
  double hours_before = plain(used.hours);
  double weighted = 0;
  while (from < to) {
    const seconds of_week = second_of_week(prices, from);
    const api::PriceHours& part = hours_at(tier, of_week);
    const seconds left = std::chrono::minutes(part.to_minute) - of_week;
    const WallTime until = std::min(to, from + std::max(left, seconds(1)));
    const double hours =
        plain(used.units) * std::chrono::duration<double>(until - from).count() / 3600.0;
    weighted += at_volume(price, hours_before, hours) * plain(part.factor);
    hours_before += hours;
    from = until;
  }
  return billionths(weighted * plain(price.per_hour));
}

api::JobCost cost_until(api::JobCost cost, const api::PriceList* prices, WallTime now) {
  now = std::chrono::floor<seconds>(now);
  const WallTime from = cost.updated_at.value_or(now);
  // Of a clock that was set back, no second is counted twice.
  if (now <= from) return cost;
  cost.updated_at = now;
  std::string no_list = prices == nullptr ? kNoList : "";
  if (prices != nullptr && prices->currency != cost.currency) {
    no_list = "the price list is in " + prices->currency + " now";
  }
  const seconds time = std::min(kMostCounted, std::chrono::floor<seconds>(now - from));
  std::string why = cost.rate_per_hour ? "" : cost.unknown;
  for (api::CostItem& item : cost.items) {
    if (item.units == 0) continue;
    const api::PriceTier* tier = nullptr;
    const api::Price* price = no_list.empty() ? price_of(*prices, item, &tier) : nullptr;
    if (price == nullptr) {
      why = !no_list.empty() ? no_list
                             : "the price list has no price of " + item.resource + " in a tier " +
                                   item.tier + " any more";
      continue;
    }
    cost.amount = sum_of(cost.amount.value_or(0), cost_of(*prices, *tier, *price, item, from, now));
    const double hours = static_cast<double>(time.count()) / 3600.0;
    item.hours = sum_of(item.hours, billionths(plain(item.units) * hours));
  }
  if (!why.empty()) {
    note_unknown(cost, why);
    cost.unknown_seconds += time.count();
  } else if (no_list.empty()) {
    cost.rate_per_hour = rate_at(*prices, cost, now);
  }
  return cost;
}

api::JobCost with_use(api::JobCost cost, const api::PriceList* prices, const CostUse& use,
                      WallTime now) {
  if (prices != nullptr && cost.currency != prices->currency) {
    // Amounts in two currencies cannot be added.
    cost = api::JobCost{};
    cost.currency = prices->currency;
  }
  now = std::chrono::floor<seconds>(now);
  cost.updated_at = std::max(now, cost.updated_at.value_or(now));
  std::string why_unknown;
  Uses uses;
  if (prices != nullptr) {
    uses = uses_of(*prices, use, why_unknown);
  } else if (!use.node_of_worker.empty()) {
    why_unknown = kNoList;
  }
  std::vector<api::CostItem> items;
  for (const api::CostItem& item : cost.items) {
    const api::PriceTier* tier = nullptr;
    const bool is_kept = prices == nullptr || price_of(*prices, item, &tier) != nullptr;
    if (is_kept) uses.try_emplace({item.tier, item.resource}, 0);
  }
  for (const auto& [what, units] : uses) {
    const auto before = std::find_if(cost.items.begin(), cost.items.end(), [&](const auto& one) {
      return one.tier == what.first && one.resource == what.second;
    });
    const Billionths hours = before == cost.items.end() ? 0 : before->hours;
    if (units > 0 || hours > 0) items.push_back({what.first, what.second, units, hours});
  }
  cost.items = std::move(items);
  if (!why_unknown.empty()) {
    note_unknown(cost, why_unknown);
    return cost;
  }
  // Of a time that is not known, nothing says that it cost nothing; seconds are whole, and so a
  // shorter one shows only in the reason.
  if (cost.unknown_seconds == 0 && cost.unknown.empty()) cost.amount = cost.amount.value_or(0);
  cost.rate_per_hour = prices == nullptr ? 0 : rate_at(*prices, cost, now);
  return cost;
}

}  // namespace muster::core
