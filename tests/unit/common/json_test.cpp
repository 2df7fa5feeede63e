#include "common/json.h"

#include <doctest/doctest.h>

using namespace muster;

TEST_CASE("text that is not one JSON value is refused with the place") {
  CHECK(parse_json(R"({"a": [1, 2]})"));
  for (const char* text : {"", "{", "{} {}", "[1,]", "{\"a\":1,\"a\":2}", "nan", "\"\xff\""}) {
    CAPTURE(text);
    const auto parsed = parse_json(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code() == ErrorCode::kInvalid);
  }
  CHECK(parse_json("{\"a\":1,\"a\":2}").error().message().find("twice") != std::string::npos);
}

TEST_CASE("depth is bounded, so that writing it again cannot overflow the stack") {
  CHECK(parse_json(std::string(60, '[') + std::string(60, ']')));
  CHECK_FALSE(parse_json(std::string(100'000, '[') + std::string(100'000, ']')));
}

TEST_CASE("the members of one name are left out, whatever they hold and wherever they stand") {
  const char* text =
      R"({"m":[{"a":{"m":1}},"]"],"a":{"m":{"a":1,"a":2},"b":[{"m":null,"c":2},{"m":"x"}]},"d":1})";
  const auto parsed = parse_json(text, "m");
  REQUIRE(parsed);
  CHECK(dump_json(*parsed) == R"({"a":{"b":[{"c":2},{}]},"d":1})");
  CHECK(parse_json(R"({"m":1})")->contains("m"));
  CHECK_FALSE(parse_json(R"({"m":[1,]})", "m"));
  CHECK_FALSE(parse_json(R"({"m":1,"a":1,"a":2})", "m"));
  CHECK(*parse_json(R"(["m"])", "m") == Json::array({"m"}));
  // An empty key is a key like others: nothing is passed over in silence.
  CHECK(dump_json(*parse_json(R"({"":{"":1},"a":2})")) == R"({"":{"":1},"a":2})");
}

TEST_CASE("bytes that are not UTF-8 are replaced, not thrown at") {
  CHECK(dump_json(Json("\xff")) == "\"\xEF\xBF\xBD\"");
}

TEST_CASE("a reader takes numbers only when they fit and are integers") {
  const auto read = [](const char* text) {
    const Json json = *parse_json(text);
    JsonReader in(json, "spec");
    int count = -1;
    in.required("count", count, {1, 100});
    return in.status() ? std::to_string(count) : in.status().error().message();
  };
  CHECK(read(R"({"count": 7})") == "7");
  CHECK(read(R"({"count": 3000000000})") == "spec.count: must be from 1 to 100, not 3000000000");
  CHECK(read(R"({"count": 18446744073709551615})") ==
        "spec.count: must be from 1 to 100, not 18446744073709551615");
  CHECK(read(R"({"count": 0})") == "spec.count: must be from 1 to 100, not 0");
  CHECK(read(R"({"count": 1.5})") == "spec.count: must be an integer");
  CHECK(read(R"({"count": "7"})") == "spec.count: must be an integer");
  CHECK(read(R"({"count": null})") == "spec.count: is required");
  CHECK(read(R"([])") == "spec: must be an object");
}

TEST_CASE("an unknown field is named, with those that are known") {
  const Json json = *parse_json(R"({"count": 7, "cuont": 1})");
  JsonReader in(json, "spec.worker");
  int count = 0;
  in.required("count", count, {1, 100});
  in.no_other_fields();
  REQUIRE_FALSE(in.status());
  CHECK(in.status().error().message() == "spec.worker.cuont: unknown field; known here: count");
}
