#include "common/json.h"

#include <doctest/doctest.h>

#include <array>

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

TEST_CASE("what a list of names and parents leaves out is passed over, whatever it holds") {
  constexpr std::array kOut{LeftOut{"a", "m"}, LeftOut{"b", "m"}, LeftOut{"b", "n"}};
  const auto parse = [&](const char* text) { return parse_json(text, kOut); };
  const auto parsed = parse(
      R"({"a":{"m":{"a":1,"a":2},"n":1,"b":[{"m":null,"c":2},[{"n":["]"]}],{"d":{"m":3}}]},"m":4})");
  REQUIRE(parsed);
  CHECK(dump_json(*parsed) == R"({"a":{"b":[{"c":2},[{}],{"d":{"m":3}}],"n":1},"m":4})");
  // Once the one that was left out has ended, the name of who stands around it counts again.
  CHECK(dump_json(*parse(R"({"b":[{"m":[{"x":[]}],"n":{},"o":1},{"m":{}}],"n":5})")) ==
        R"({"b":[{"o":1},{}],"n":5})");
  CHECK(parse_json(R"({"a":{"m":1}})")->at("a").contains("m"));
  CHECK_FALSE(parse(R"({"a":{"m":[1,]}})"));
  CHECK_FALSE(parse(R"({"a":{"m":1,"b":1,"b":2}})"));
  CHECK(*parse(R"({"a":["m"]})") == Json{{"a", Json::array({"m"})}});
  // An empty key is a key like others: nothing is passed over in silence.
  CHECK(dump_json(*parse_json(R"({"":{"":1},"a":2})")) == R"({"":{"":1},"a":2})");
  CHECK(dump_json(*parse(R"({"":{"m":1},"m":2})")) == R"({"":{"m":1},"m":2})");
}

namespace {

std::string nested(int levels) {
  const auto count = static_cast<std::size_t>(levels);
  return std::string(count, '[') + std::string(count, ']');
}

}  // namespace

TEST_CASE("what is left out may be as deep as a server lets it be, and what is built may not") {
  constexpr std::array kOut{LeftOut{"a", "m"}, LeftOut{"l", "", {}, 1}};
  const auto parse = [&](const std::string& text) { return parse_json(text, kOut); };
  const std::string deep = nested(10'000);
  CHECK(dump_json(*parse(R"({"a":{"m":)" + deep + R"(,"n":1}})")) == R"({"a":{"n":1}})");
  CHECK(dump_json(*parse(R"({"l":[1,)" + deep + R"(,2],"b":3})")) == R"({"b":3,"l":[1]})");
  CHECK_FALSE(parse(R"({"a":{"n":)" + nested(100) + "}}"));
  CHECK_FALSE(parse(R"({"l":[)" + nested(100) + "]}"));
  CHECK_FALSE(parse(R"({"a":{"m":)" + nested(kMaxLeftOutDepth) + "}}"));
  // The depth counts that has been left out at its end, and no more.
  CHECK(parse(R"({"a":{"m":)" + deep + R"(,"n":)" + nested(kMaxJsonDepth - 2) + "}}"));
  CHECK_FALSE(parse(R"({"a":{"m":)" + deep + R"(,"n":)" + nested(kMaxJsonDepth - 1) + "}}"));
}

TEST_CASE("of what a server tells nothing that is too deep, or no text, hides the rest") {
  const std::string deep = nested(10'000);
  const auto told = parse_told_json(R"([{"b":)" + deep + R"(,"c":2},)" + deep + ",3]");
  REQUIRE(told);
  CHECK(told->at(0).at("c") == 2);
  CHECK(told->at(2) == 3);
  // It can be written and read again: nothing that was built is over the bound.
  CHECK(parse_json(dump_json(*told)));
  // An object that is too deep is as if it were not there.
  std::string objects = "1";
  for (int i = 0; i < 1000; ++i) objects = R"({"x":)" + objects + R"(,"y":2})";
  const auto inner = parse_told_json(objects);
  REQUIRE(inner);
  CHECK(parse_json(dump_json(*inner)));
  CHECK(inner->at("y") == 2);
  const auto odd = parse_told_json("[{\"a\":\"\xff\"},{\"\xe2\x82\":1},\"\xc3\xbc\"]");
  REQUIRE(odd);
  CHECK(dump_json(*odd) == "[{\"a\":\"?\"},{\"??\":1},\"\xc3\xbc\"]");
  for (const char* text : {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "{\"a\":\"\xff\""}) {
    CHECK_FALSE(parse_told_json(text));
  }
}

TEST_CASE("of what is left out but for some members these alone are built") {
  static constexpr std::array<std::string_view, 2> kKept{"x", "y"};
  constexpr std::array kOut{LeftOut{"a", "", kKept}};
  const auto parsed =
      parse_json(R"({"a":{"m":{"x":1},"x":{"m":1},"":2,"xy":3,"y":4},"m":{"a":5}})", kOut);
  REQUIRE(parsed);
  CHECK(dump_json(*parsed) == R"({"a":{"x":{"m":1},"y":4},"m":{"a":5}})");
}

TEST_CASE("of a list of which only the first are wanted no more are built") {
  static constexpr std::array<std::string_view, 1> kKept{"x"};
  constexpr std::array kOut{LeftOut{"a", "", kKept, 2}};
  const auto parsed = parse_json(
      R"({"a":[{"x":1,"y":2},{},{"x":[1,{"x":2}]},[3],4],"x":{"a":[[],5,[6]],"b":[1,2,3]}})", kOut);
  REQUIRE(parsed);
  CHECK(dump_json(*parsed) == R"({"a":[{"x":1},{}],"x":{"a":[[],5],"b":[1,2,3]}})");
  CHECK_FALSE(parse_json(R"({"a":[1,2,{"b":1]})", kOut));
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

TEST_CASE("words are read whatever they are, and cut between two characters") {
  Json json{{"message", std::string("a\0b", 3)}, {"long", "x"}, {"odd", 7}, {"none", nullptr}};
  for (int i = 0; i < 1000; ++i) json["long"].get_ref<std::string&>() += "\xc3\xbc";
  JsonReader in(json, "status");
  std::string message, longer, odd = "as it was", none = "as it was";
  in.words("message", message);
  in.words("long", longer, 100);
  in.words("odd", odd);
  in.words("none", none);
  in.no_other_fields();
  CHECK(in.status());
  CHECK(message == "a?b");
  CHECK(longer == json["long"].get<std::string>().substr(0, 99));
  CHECK(odd == "as it was");
  CHECK(none == "as it was");
}

TEST_CASE("a member is found at its path, whatever stands there instead") {
  const Json value = *parse_json(R"({"a": {"b": "text", "n": 3}, "l": [1]})");
  CHECK(text_at(value, {"a", "b"}) == "text");
  CHECK(member(value, {"a", "n"}) == 3);
  CHECK(text_at(value, {"a", "n"}).empty());
  CHECK(member(value, {"a", "b", "c"}).is_null());
  CHECK(member(value, {"l", "b"}).is_null());
  CHECK(member(value, {"none"}).is_null());
  CHECK(member(Json(), {"a"}).is_null());
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
