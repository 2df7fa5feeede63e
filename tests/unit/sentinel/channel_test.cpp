#include "worker/sentinel/channel.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <numeric>
#include <vector>

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
    summary.checkpoint_step = 5;
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
  CHECK(end.checkpoint_step == 5);
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
  constexpr std::size_t kMade = 100'000;
  for (std::size_t i = 0; i < kMade; ++i) writer.add_step(step);
  std::size_t came = 0;
  for (auto message = receive(pair->reader); message && *message; message = receive(pair->reader)) {
    came += std::get<StepsMessage>(**message).steps.size();
  }
  CHECK(came > 0);
  CHECK(came < kMade);
  close(pair->reader);
  writer.add_step(step);  // and one that is gone costs no signal
}

TEST_CASE("a trainer's troubles arrive as they were, bounded") {
  const auto pair = make_channel();
  REQUIRE(pair);
  ChannelWriter writer(pair->writer);
  writer.send_ready({std::string(64, 'd'), std::string(64, 'c')});
  writer.send_broken({7});
  writer.send_entered({8, 41, 5, 1'000'000, 0.25, std::string(1'000, 'r')});
  const auto ready = receive(pair->reader);
  REQUIRE((ready && *ready));
  CHECK(std::get<ReadyMessage>(**ready).outline == std::string(64, 'd'));
  CHECK(std::get<ReadyMessage>(**ready).contents == std::string(64, 'c'));
  const auto lost = receive(pair->reader);
  REQUIRE((lost && *lost));
  CHECK(std::get<BrokenMessage>(**lost).epoch == 7);
  const auto entered = receive(pair->reader);
  REQUIRE((entered && *entered));
  CHECK(std::get<EnteredMessage>(**entered).epoch == 8);
  CHECK(std::get<EnteredMessage>(**entered).step == 41);
  CHECK(std::get<EnteredMessage>(**entered).recomputed_logical_ranks == 5);
  CHECK(std::get<EnteredMessage>(**entered).state_bytes == 1'000'000);
  CHECK(std::get<EnteredMessage>(**entered).stall_seconds == 0.25);
  const std::string& returned = std::get<EnteredMessage>(**entered).returned;
  CHECK(returned.size() > kMaxReturnedBytes - 2);
  CHECK(returned == std::string(returned.size(), 'r'));
  const Pace pace{8,
                  41,
                  2,
                  5,
                  microseconds(100),
                  microseconds(1),
                  microseconds(60),
                  microseconds(3),
                  microseconds(9),
                  true,
                  microseconds(7),
                  {{0, microseconds(30)}, {3, microseconds(8)}}};
  writer.send_pace({pace});
  const auto told = receive(pair->reader);
  REQUIRE((told && *told));
  CHECK(std::get<PaceMessage>(**told).pace == pace);
  writer.send_files({40, true, std::string(2'000, 'p')});
  const auto files = receive(pair->reader);
  REQUIRE((files && *files));
  CHECK(std::get<FilesMessage>(**files).seconds == 40);
  CHECK(std::get<FilesMessage>(**files).is_checkpoint);
  CHECK(std::get<FilesMessage>(**files).path == std::string(kMaxPathBytes - 1, 'p'));
  std::vector<int> slots(SparedMessage::kMaxSlots + 1);
  std::iota(slots.begin(), slots.end(), 3);
  writer.send_spared({7, slots});
  const auto spared = receive(pair->reader);
  REQUIRE((spared && *spared));
  slots.pop_back();
  CHECK(std::get<SparedMessage>(**spared).epoch == 7);
  CHECK(std::get<SparedMessage>(**spared).slots == slots);
  close(pair->reader);
}

namespace {

ViewMessage long_view(int peers) {
  ViewMessage view{9, true, false, peers - 1, {}};
  view.leaves = true;
  for (int i = 0; i < peers; ++i) {
    view.peers.push_back({"host-" + std::to_string(i) + std::string(100, 'h'), 1 + i, i / 4, i % 4,
                          std::int64_t{1} << 40, std::uint64_t{1} << 63});
  }
  return view;
}

}  // namespace

TEST_CASE("a view of thousands of processes arrives whole, the newest replaces an unsent one") {
  const auto pair = make_channel();
  REQUIRE(pair);
  ViewSender sender(pair->reader);
  ViewReader reader(pair->writer);
  auto nothing = reader.wait(milliseconds(0));
  REQUIRE(nothing);
  CHECK_FALSE(nothing->has_value());
  const ViewMessage first = long_view(4096);
  const ViewMessage second{10, false, true, -1, {}};
  ViewMessage urgent_second = second;
  urgent_second.urgent = true;  // the first was
  for (const bool is_replaced : {false, true}) {
    CAPTURE(is_replaced);
    sender.set(first);
    CHECK(sender.has_unsent());  // more than the socket holds at once
    if (is_replaced) sender.set(second);
    std::optional<ViewMessage> got;
    while (!got) {
      sender.pump();
      auto taken = reader.wait(milliseconds(0));
      REQUIRE(taken);
      got = std::move(*taken);
    }
    CHECK((*got == (is_replaced ? urgent_second : first)));
  }
  sender.set(second);
  CHECK((**reader.wait(milliseconds(0)) == second));
  close(pair->reader);
  CHECK_FALSE(reader.wait(milliseconds(0)));
  close(pair->writer);
}

TEST_CASE("bytes that are no view are refused") {
  const std::vector<std::byte> whole = encode(long_view(3));
  REQUIRE(decode_view(whole));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes) {
    CHECK_FALSE(decode_view(std::span(whole.data(), bytes)));
  }
  ViewMessage outside = long_view(3);
  outside.rank = 3;
  CHECK_FALSE(decode_view(encode(outside)));
}

TEST_CASE("an urgent view stops those alone who lose somebody, or whose own connections broke") {
  const ViewPeer first{"10.0.0.1", 4001, 0, 0, 1};
  const ViewPeer second{"10.0.0.2", 4001, 1, 0, 1};
  const ViewPeer joiner{"10.0.0.3", 4001, 2, 0, 1};
  const auto view = [](std::int64_t epoch, std::vector<ViewPeer> peers) {
    ViewMessage message;
    message.epoch = epoch;
    message.peers = std::move(peers);
    return message;
  };
  const ViewMessage present = view(5, {first, second});
  const ViewMessage with_joiner = view(6, {first, second, joiner});
  SUBCASE("one of those who train") { CHECK(concerns(view(6, {first}), present, present)); }
  SUBCASE("one of them, while a joiner is being connected") {
    CHECK(concerns(view(7, {first, joiner}), present, with_joiner));
  }
  SUBCASE("one of them was started anew") {
    ViewPeer reborn = second;
    reborn.incarnation = 2;
    CHECK(concerns(view(7, {first, reborn, joiner}), present, with_joiner));
  }
  SUBCASE("the same again: their connections broke") {
    CHECK(concerns(view(6, {first, second}), present, present));
  }
  SUBCASE("a joiner that never trained is lost") {
    CHECK_FALSE(concerns(view(7, {first, second}), present, with_joiner));
  }
  SUBCASE("a joiner could not be connected with all") {
    CHECK_FALSE(concerns(view(7, {first, second, joiner}), present, with_joiner));
  }
}
