// The price list: what is read, and the one sentence for what cannot be right.
#include "operator/api/price_list.h"

#include <doctest/doctest.h>

using namespace muster;
using namespace muster::api;

namespace {

Json list() {
  return *parse_json(R"({
    "currency": "EUR", "utcOffset": "+01:00",
    "tiers": [
      {"name": "h100", "nodes": {"gpu": "h100"},
       "prices": [
         {"resource": "nvidia.com/gpu", "perHour": "2.5",
          "volume": [{"from": 0, "to": 1000, "factor": "1"}, {"from": "1000", "factor": "0.8"}]},
         {"resource": "memory", "perHour": 1}],
       "hours": [
         {"days": "Mon-Fri", "from": "07:00", "to": "21:00", "factor": "1"},
         {"days": "Mon-Fri", "from": "21:00", "to": "07:00", "factor": "0.6"},
         {"days": "Sat-Sun", "from": "07:00", "to": "07:00", "factor": "0.5"}]},
      {"name": "rest", "nodes": {"gpu": "none"}, "prices": [{"resource": "node", "perHour": "0.4"}]}
    ]})");
}

std::string refusal(const char* pointer, Json value) {
  Json json = list();
  json[Json::json_pointer(pointer)] = std::move(value);
  const auto read = parse_price_list(json);
  return read ? "" : read.error().message();
}

}  // namespace

TEST_CASE("decimals are read and written exactly") {
  for (const char* text : {"0", "1", "0.5", "-3.25", "12.000000001", "9223372036.854775807"}) {
    const auto value = parse_billionths(text);
    REQUIRE_MESSAGE(value.has_value(), text);
    CHECK(billionths_text(*value) == text);
  }
  CHECK(parse_billionths("2.50") == 2'500'000'000);
  for (const char* text : {"", "-", ".5", "5.", "1e3", "+1", " 1", "1,5", "0.1234567891",
                           "9223372036.854775808", "99999999999999999999"}) {
    CHECK_MESSAGE(!parse_billionths(text), text);
  }
}

TEST_CASE("a price list is read with hours as the parts of a week, in order") {
  const auto read = parse_price_list(list());
  REQUIRE_MESSAGE(read.has_value(), read.error().message());
  CHECK(read->currency == "EUR");
  CHECK(read->utc_offset == std::chrono::hours(1));
  REQUIRE(read->tiers.size() == 2);
  const PriceTier& tier = read->tiers[0];
  CHECK(tier.nodes == std::map<std::string, std::string>{{"gpu", "h100"}});
  CHECK(tier.prices[0].per_hour == 2'500'000'000);
  CHECK(tier.prices[0].volume == std::vector<PriceStep>{{0, kOne}, {1000 * kOne, 800'000'000}});
  CHECK(tier.prices[1].volume == std::vector<PriceStep>{{0, kOne}});
  // Sunday's part reaches to Monday 07:00, Friday's night to Saturday 07:00.
  CHECK(tier.hours.front() == PriceHours{0, 7 * 60, 500'000'000});
  CHECK(tier.hours[1] == PriceHours{7 * 60, 21 * 60, kOne});
  CHECK(tier.hours.back() == PriceHours{(5 * 24 + 7) * 60, kMinutesOfWeek, 500'000'000});
  CHECK(tier.hours.size() == 12);
  CHECK(read->tiers[1].hours == std::vector<PriceHours>{{0, kMinutesOfWeek, kOne}});
}

TEST_CASE("hours that leave a gap or overlap are refused, with the first minute of it") {
  CHECK(refusal("/tiers/0/hours/2/to", "06:30") ==
        "tiers[0].hours: leaves a gap from Mon 06:30 on: the windows must cover the whole week");
  CHECK(refusal("/tiers/0/hours/1/to", "08:00") ==
        "tiers[0].hours[1]: overlaps window 0 from Tue 07:00 on");
  CHECK(refusal("/tiers/0/hours/2/days", "Sun") ==
        "tiers[0].hours: leaves a gap from Sat 07:00 on: the windows must cover the whole week");
  CHECK(refusal("/tiers/0/hours/2/days", "Fri-Sun").find("tiers[0].hours[2]: overlaps window 0") ==
        0);
  CHECK(refusal("/tiers/0/hours/0/days", "Monday") ==
        "tiers[0].hours[0].days: \"Monday\" is no day; write it like Mon or Mon-Fri");
  for (const char* wrong : {"7:00", "24:01", "12:60", "noon", "ab:cd"}) {
    CHECK(refusal("/tiers/0/hours/0/from", wrong) ==
          "tiers[0].hours[0].from: must be a time of the day in quotes, such as \"07:30\"");
  }
}

TEST_CASE("volume that leaves a gap, overlaps or ends is refused") {
  CHECK(
      refusal("/tiers/0/prices/0/volume/1/from", 1001) ==
      "tiers[0].prices[0].volume[1].from: leaves a gap: must be 1000, where the step before ends");
  CHECK(refusal("/tiers/0/prices/0/volume/1/from", "999.5") ==
        "tiers[0].prices[0].volume[1].from: overlaps: must be 1000, where the step before ends");
  CHECK(refusal("/tiers/0/prices/0/volume/0/from", 1) ==
        "tiers[0].prices[0].volume[0].from: leaves a gap: must be 0");
  CHECK(
      refusal("/tiers/0/prices/0/volume/1/to", 2000) ==
      "tiers[0].prices[0].volume: leaves a gap above 2000 hours: the last step must have no `to`");
  CHECK(refusal("/tiers/0/prices/0/volume/0/to", nullptr) ==
        "tiers[0].prices[0].volume[1].from: the step before has no `to`, so none may follow it");
}

TEST_CASE("every other wrong field is named with what would be right") {
  CHECK(refusal("/tiers/0/prices/0/perHour", "-2.5") ==
        "tiers[0].prices[0].perHour: must not be negative");
  CHECK(refusal("/tiers/0/prices/0/perHour", -1) ==
        "tiers[0].prices[0].perHour: must not be negative");
  CHECK(refusal("/tiers/0/prices/0/perHour", 2.5) ==
        "tiers[0].prices[0].perHour: must be a decimal in quotes, such as \"2.50\"");
  CHECK(refusal("/tiers/0/prices/0/perHour", "cheap") ==
        "tiers[0].prices[0].perHour: must be a decimal from 0 to 1000000, such as \"2.50\"");
  CHECK(refusal("/tiers/0/prices/0/perHour", nullptr) == "tiers[0].prices[0].perHour: is required");
  CHECK(refusal("/tiers/0/prices/0/resource", "gpu") ==
        "tiers[0].prices[0].resource: \"gpu\" is unknown; must be node, cpu, memory or an extended "
        "resource such as nvidia.com/gpu");
  CHECK(refusal("/tiers/0/prices/1/resource", "nvidia.com/gpu").find("stands twice") !=
        std::string::npos);
  CHECK(refusal("/tiers/0/prices", Json::array()) ==
        "tiers[0].prices: must have at least one price");
  CHECK(refusal("/tiers/0/prise", 1).find("tiers[0].prise: unknown field; known here: ") == 0);
  CHECK(refusal("/tiers/1/name", "h100").find("tiers[1].name: tier \"h100\" stands twice") == 0);
  CHECK(refusal("/tiers/1/nodes/gpu", "h100") ==
        "tiers[1].nodes: are those of tier h100, too; a node must be in one tier alone");
  CHECK(refusal("/tiers/1/nodes/gpu", 100).find("tiers[1].nodes.gpu: must be a string") == 0);
  CHECK(refusal("/tiers", nullptr) == "tiers: must have at least one tier");
  CHECK(refusal("/currency", "euro") == "currency: must be three capital letters, such as EUR");
  for (const char* wrong : {"1", "+1:00", "01:00", "+15:00", "+"}) {
    CHECK(refusal("/utcOffset", wrong) ==
          "utcOffset: must be from \"-14:00\" to \"+14:00\", such as \"+01:00\"");
  }
  CHECK(!parse_price_list(Json("prices")));
  CHECK(!parse_price_list(Json()));
}
