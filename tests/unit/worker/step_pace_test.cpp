#include "worker/step_pace.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "common/contract.h"

using namespace muster;
using worker::parse_step_pace;

TEST_CASE("a pace is a number of milliseconds, and none or 0 is no pace") {
  CHECK_FALSE(parse_step_pace("")->operator bool());
  CHECK_FALSE(parse_step_pace("0")->operator bool());
  CHECK((*parse_step_pace("25"))() == milliseconds(25));
  CHECK((*parse_step_pace("60000"))() == milliseconds(60'000));
}

TEST_CASE("a pace that cannot be right is refused by the variable's name") {
  for (const char* text :
       {"-1", "60001", "5ms", "fast", "5 ", "0x5", "99999999999999999999", "relative/file"}) {
    CAPTURE(text);
    const auto pace = parse_step_pace(text);
    REQUIRE_FALSE(pace);
    CHECK(pace.error().message().find("MUSTER_PACE_MS: is \"") == 0);
    CHECK(pace.error().exit_code() == contract::exit_code::kUsage);
  }
}

TEST_CASE("a pace in a file follows what is written there") {
  const std::string path = "/tmp/muster-pace-" + std::to_string(::getpid());
  const auto pace = parse_step_pace(path);
  REQUIRE(pace);
  CHECK((*pace)() == milliseconds(0));  // there is no file yet
  const auto write = [&](const char* text) { std::ofstream(path) << text; };
  write("7\n");
  CHECK((*pace)() == milliseconds(7));
  write("nonsense");
  CHECK((*pace)() == milliseconds(0));
  write("12");
  CHECK((*pace)() == milliseconds(12));
  std::remove(path.c_str());
}
