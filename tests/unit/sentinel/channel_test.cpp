#include "worker/sentinel/channel.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::sentinel;

TEST_CASE("what a trainer sends arrives as it was") {
  const auto pair = make_channel();
  REQUIRE(pair);
  {
    ChannelWriter writer(pair->writer);
    StepRecord step;
    step.step = 1;
    step.loss = 0.25;
    writer.add_step(step);
    SummaryMessage summary;
    summary.is_final = true;
    summary.step = 7;
    summary.model_sha256 = std::string(64, 'a');
    summary.checkpoint_path = std::string(5000, 'p');
    writer.send_summary(summary);
    writer.send_failure(21, "a sentence");
  }
  auto steps = receive(pair->reader);
  REQUIRE((steps && *steps));
  const auto& group = std::get<StepsMessage>(**steps);
  REQUIRE(group.steps.size() == 1);
  CHECK(group.steps[0].loss == 0.25);
  CHECK(group.usage.resident_bytes > 0);
  auto summary = receive(pair->reader);
  REQUIRE((summary && *summary));
  const auto& end = std::get<SummaryMessage>(**summary);
  CHECK(end.is_final);
  CHECK(end.step == 7);
  CHECK(end.model_sha256 == std::string(64, 'a'));
  CHECK(end.checkpoint_path == std::string(kMaxPathBytes - 1, 'p'));
  auto failure = receive(pair->reader);
  REQUIRE((failure && *failure));
  CHECK(std::get<FailureMessage>(**failure).exit_code == 21);
  CHECK(std::get<FailureMessage>(**failure).sentence == "a sentence");
  const auto nothing = receive(pair->reader);
  REQUIRE(nothing);
  CHECK_FALSE(nothing->has_value());
  close(pair->reader);
}

TEST_CASE("the first step goes out at once, the others in groups, none is lost at the end") {
  const auto pair = make_channel();
  REQUIRE(pair);
  ChannelWriter writer(pair->writer);
  StepRecord step;
  step.step_seconds = 0.001;
  const auto steps_in_next = [&]() -> std::size_t {
    auto message = receive(pair->reader);
    REQUIRE(message);
    return *message ? std::get<StepsMessage>(**message).steps.size() : 0;
  };
  writer.add_step(step);
  CHECK(steps_in_next() == 1);
  for (int i = 0; i < 63; ++i) writer.add_step(step);
  CHECK(steps_in_next() == 0);
  writer.add_step(step);
  CHECK(steps_in_next() == StepsMessage::kMaxSteps);
  step.step_seconds = 0.2;
  writer.add_step(step);
  CHECK(steps_in_next() == 1);
  step.step_seconds = 0.001;
  writer.add_step(step);
  writer.send_failure(1, "end");
  CHECK(steps_in_next() == 1);
  close(pair->reader);
}

TEST_CASE("bytes that are no message are refused") {
  Rng rng(test::seed());
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    std::vector<std::byte> bytes(rng.below(256));
    for (auto& byte : bytes) byte = static_cast<std::byte>(rng.below(4));
    if (!decode(bytes.data(), bytes.size())) ++refused;
  }
  CHECK(refused > 1900);
  std::vector<std::byte> cut = encode(FailureMessage{1, "x"});
  CHECK(decode(cut.data(), cut.size()));
  cut.pop_back();
  CHECK_FALSE(decode(cut.data(), cut.size()));
}

TEST_CASE("a sentinel that does not read costs the trainer reports, never a wait") {
  const auto pair = make_channel();
  REQUIRE(pair);
  ChannelWriter writer(pair->writer);
  StepRecord step;
  step.step_seconds = 1;
  for (int i = 0; i < 100'000; ++i) writer.add_step(step);
  close(pair->reader);
  writer.add_step(step);  // and one that is gone costs no signal
}
