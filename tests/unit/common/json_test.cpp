#include "common/json.h"

#include <doctest/doctest.h>

#include <array>

#include "common/json_cut.h"
#include "common/rng.h"
#include "tests/test_main.h"

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

TEST_CASE("of what a server tells nothing is read of members that are left out") {
  static constexpr std::array<std::string_view, 1> kKept{"x"};
  constexpr std::array kOut{LeftOut{"a", "m"}, LeftOut{"b", "", kKept}};
  const auto cut = [&](const char* text) { return cut_left_out(text, kOut); };
  CHECK(cut(R"({"a":{"m":[1,{"]":"\"}"}],"n":1},"m":2})") == R"({"a":{"n":1},"m":2})");
  CHECK(cut(R"({"a": {"n": 1, "m" : -1.5e3 } })") == R"({"a": {"n": 1} })");
  CHECK(cut(R"({"a":{"m":"","m":{}}})") == R"({"a":{}})");
  CHECK(cut(R"({"b":[{"y":1,"x":{"y":2},"z":3},[{"y":4}]]})") == R"({"b":[{"x":{"y":2}},[{}]]})");
  // Another key may be meant than stands there.
  CHECK(cut(R"({"a":{"\u006d":1},"b":{"\u0078":1,"y":2}})") ==
        R"({"a":{"\u006d":1},"b":{"\u0078":1}})");
  CHECK(dump_json(*parse_told_json(R"({"a":{"\u006d":1},"b":{"\u0078":1}})", kOut)) ==
        R"({"a":{},"b":{"x":1}})");
  CHECK(dump_json(*parse_told_json(R"({"a":{"m":[1,,tru],"n":1}})", kOut)) == R"({"a":{"n":1}})");
  // What is odd around them is as odd without them.
  for (const char* text :
       {R"({"a":{"m":1,}})", R"({"a":{,"m":1}})", R"({"a":{"n":1,,"m":2}})",
        R"({"a":{"n":1,"m":2,}})", R"({"a":{"n":1 "m":2}})", R"({"a":{5 "m":2}})",
        R"({"a":{"m" 2}})", R"({"a":{"m":}})", R"({"a":{"m":1]})", R"({"a":{"m":[1})",
        R"({"a":{"m":"})", R"({"a":{"m")", R"({"a":{"m":1)", R"({"a":{"m":1,"n":2,"n":3}})"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_told_json(text, kOut));
  }
  const std::string deep(static_cast<std::size_t>(kMaxLeftOutDepth), '[');
  CHECK_FALSE(parse_told_json(deep, kOut));
  CHECK_FALSE(parse_told_json(R"({"a":{"m":)" + nested(kMaxLeftOutDepth) + "}}", kOut));
  CHECK(parse_told_json(R"({"a":{"m":)" + nested(kMaxLeftOutDepth - 2) + "}}", kOut));
}

namespace {

std::string random_text(Rng& rng, int depth) {
  const auto pick = [&](std::vector<std::string> of) { return of[rng.below(of.size())]; };
  const auto space = [&] { return pick({"", "", "", " ", "\n\t"}); };
  if (depth == 0 || rng.below(4) == 0) {
    return pick(
        {"1", "-2.5e3", "true", "null", "\"\"", "\"x\"", R"("]},\"{[")", R"("\\")", "[]", "{}"});
  }
  const bool is_object = rng.below(3) != 0;
  std::string text = is_object ? "{" : "[";
  for (std::uint64_t left = rng.below(5); left > 0; --left) {
    if (is_object) {
      text += space() + pick({R"("a")", R"("b")", R"("l")", R"("m")", R"("n")", R"("x")",
                              R"("\u006d")", R"("\u0061")", R"("")"});
      text += space() + ":";
    }
    text += space() + random_text(rng, depth - 1) + space();
    if (left > 1) text += ",";
  }
  return text + (is_object ? "}" : "]");
}

}  // namespace

TEST_CASE("over random text: what is cut before reading is what would be left out") {
  static constexpr std::array<std::string_view, 2> kKept{"x", "a"};
  constexpr std::array kOut{LeftOut{"a", "m"}, LeftOut{"b", "", kKept}, LeftOut{"l", "", {}, 2},
                            LeftOut{"x", "n"}};
  Rng rng(test::seed());
  int read = 0, shorter = 0;
  for (int round = 0; round < test::tries(4000); ++round) {
    const std::string text = random_text(rng, 5);
    const auto told = parse_told_json(text, kOut), strict = parse_json(text, kOut);
    CAPTURE(text);
    REQUIRE(told.has_value() == strict.has_value());
    if (!told) continue;
    CHECK(*told == *strict);
    const auto cut = cut_left_out(text, kOut);
    CHECK(*parse_json(cut, kOut) == *strict);
    ++read;
    shorter += cut.size() < text.size() ? 1 : 0;
    // Whatever else becomes of the text, what it says is said of it without this, too.
    std::string changed = text;
    const std::size_t at = rng.below(changed.size());
    changed[at] = std::string("{}[],:\"\\a1 ")[rng.below(11)];
    const auto as_read = parse_json(changed, kOut);
    if (!as_read) continue;
    const auto as_told = parse_told_json(changed, kOut);
    REQUIRE(as_told);
    CHECK(*as_told == *as_read);
  }
  CHECK(read > test::tries(1500));
  CHECK(shorter > test::tries(100));
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
