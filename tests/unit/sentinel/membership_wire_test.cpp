// Sentinels' messages as bytes: what is said about domains, and to whom.
#include <doctest/doctest.h>

#include <vector>

#include "common/messages.h"
#include "worker/sentinel/membership_message.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

constexpr std::byte kWithDomains{0x80};

View view_with(const std::vector<Domain>& domains) {
  View view;
  view.epoch = 7;
  view.base = 6;
  for (std::size_t slot = 0; slot < domains.size(); ++slot) {
    view.seats.push_back(
        {{static_cast<int>(slot), 1}, "10.0.0.1", 7000, 2, {{0, 3, 21}, {1, 0, 22}}});
    view.seats.back().domain = domains[slot];
  }
  return view;
}

/// One of each kind that has seats.
std::vector<Message> messages_about(const View& view) {
  Beat beat;
  beat.self = view.seats.front();
  beat.unheard = {1, 4};
  return {{{0, 1}, 5, 6, beat},
          {{0, 1}, 6, 6, Promise{{2, 0}, 7, {1, 1}, view}},
          {{0, 1}, 7, 6, Accept{{2, 0}, view}},
          {{0, 1}, 8, 6, Commit{view}}};
}

const View& view_of(const Message& message) {
  if (const auto* promise = std::get_if<Promise>(&message.body)) return promise->accepted;
  if (const auto* accept = std::get_if<Accept>(&message.body)) return accept->view;
  return std::get<Commit>(message.body).view;
}

}  // namespace

TEST_CASE("a view of as many workers as may train together fits a message, and not of many more") {
  for (const int processes : {1, 8, kMaxProcesses}) {
    CAPTURE(processes);
    const auto encoded = [&](int workers) {
      View view;
      view.epoch = view.base = 1;
      Seat seat{{}, std::string(39, 'f'), 65'535, processes, {}, ~Domain{0}};
      for (int p = 0; p < processes; ++p) seat.trainers.push_back({p, 1'000'000, 65'535});
      for (int slot = 0; slot < workers; ++slot) {
        seat.id = {slot, 1'000};
        view.seats.push_back(seat);
        view.previous.push_back(seat.id);
      }
      return encode({{0, 1}, 6, 6, Promise{{2, 0}, 7, {1, 1}, view}});
    };
    const int most = max_trained_workers(processes);
    CHECK_FALSE(encoded(most).empty());
    CHECK(encoded(most * 4 / 3).empty());
  }
}

TEST_CASE("domains survive the wire, also where some are not known") {
  for (const std::vector<Domain>& domains :
       std::vector<std::vector<Domain>>{{1, 2, 1}, {~Domain{0}, 0, 5}, {9}}) {
    const View view = view_with(domains);
    for (const Message& message : messages_about(view)) {
      const auto bytes = encode(message);
      CHECK((bytes[0] & kWithDomains) == kWithDomains);
      const auto again = decode_message(bytes);
      REQUIRE(again);
      if (const auto* beat = std::get_if<Beat>(&again->body)) {
        CHECK(beat->self == view.seats[0]);
      } else {
        CHECK(view_of(*again) == view);
      }
      CHECK(encode(*again) == bytes);
      for (std::size_t size = 0; size < bytes.size(); ++size) {
        CHECK_FALSE(decode_message(std::span(bytes.data(), size)));
      }
    }
  }
}

TEST_CASE("a gang without domains talks as builds do that know of none") {
  const View with = view_with({1, 2, 1});
  const View without = view_with({0, 0, 0});
  for (std::size_t i = 0; i < messages_about(with).size(); ++i) {
    const auto plain = encode(messages_about(without)[i]);
    CHECK((plain[0] & kWithDomains) == std::byte{0});
    const std::size_t seats = i == 0 ? 1 : 3;
    CHECK(plain.size() + 8 * seats == encode(messages_about(with)[i]).size());
    const auto read = decode_message(plain);
    REQUIRE(read);
    if (i > 0) CHECK(view_of(*read) == without);
  }
}

TEST_CASE("a message that promises domains and has none is refused, whatever its kind") {
  auto messages = messages_about(view_with({0, 0}));
  messages.push_back({{0, 1}, 9, 6, Prepare{{2, 0}}});
  messages.push_back({{0, 1}, 10, 6, Bye{}});
  for (const Message& message : messages) {
    auto bytes = encode(message);
    REQUIRE(decode_message(bytes));
    bytes[0] |= kWithDomains;
    CHECK_FALSE(decode_message(bytes));
    bytes[0] = std::byte{0x40};
    CHECK_FALSE(decode_message(bytes));
  }
}
