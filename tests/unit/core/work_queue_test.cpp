#include "operator/core/work_queue.h"

#include <doctest/doctest.h>

#include "tests/test_main.h"

using namespace muster;
using core::WorkQueue;

namespace {
const MonoTime kStart{seconds(100)};
api::ObjectKey key(const std::string& name) { return {"ns", name}; }
}  // namespace

TEST_CASE("a key that is added twice waits once") {
  WorkQueue queue(1);
  queue.add(key("a"));
  queue.add(key("b"));
  queue.add(key("a"));
  CHECK(queue.pop(kStart) == key("a"));
  CHECK(queue.pop(kStart) == key("b"));
  CHECK_FALSE(queue.pop(kStart).has_value());
}

TEST_CASE("a key in hand is not given out again before it is done, and then once") {
  WorkQueue queue(1);
  queue.add(key("a"));
  REQUIRE(queue.pop(kStart).has_value());
  queue.add(key("a"));
  queue.add(key("a"));
  CHECK_FALSE(queue.pop(kStart).has_value());
  queue.done(key("a"));
  CHECK(queue.pop(kStart) == key("a"));
  queue.done(key("a"));
  CHECK_FALSE(queue.pop(kStart).has_value());
}

TEST_CASE("of several delays the earliest counts, and an add overtakes them") {
  WorkQueue queue(1);
  queue.add_at(key("a"), kStart + seconds(10));
  queue.add_at(key("a"), kStart + seconds(5));
  queue.add_at(key("a"), kStart + seconds(20));
  CHECK(queue.next_due() == kStart + seconds(5));
  CHECK_FALSE(queue.pop(kStart + seconds(4)).has_value());
  CHECK(queue.pop(kStart + seconds(5)) == key("a"));
  queue.done(key("a"));
  CHECK_FALSE(queue.next_due().has_value());
  queue.add_at(key("b"), kStart + seconds(10));
  queue.add(key("b"));
  CHECK(queue.pop(kStart) == key("b"));
  CHECK_FALSE(queue.next_due().has_value());
}

TEST_CASE("delayed keys come out in the order in which they are due") {
  WorkQueue queue(1);
  queue.add_at(key("a"), kStart + seconds(3));
  queue.add_at(key("b"), kStart + seconds(1));
  CHECK(queue.pop(kStart + seconds(9)) == key("b"));
  CHECK(queue.pop(kStart + seconds(9)) == key("a"));
}

TEST_CASE("back-off doubles from failure to failure, within bounds, until it is forgotten") {
  WorkQueue queue(test::seed(), {milliseconds(50), milliseconds(60'000)});
  nanoseconds most = milliseconds(50);
  for (int failure = 0; failure < 40; ++failure) {
    queue.add_backed_off(key("a"), kStart);
    REQUIRE(queue.next_due().has_value());
    const nanoseconds delay = *queue.next_due() - kStart;
    CHECK(delay >= most / 2);
    CHECK(delay <= most);
    most = std::min<nanoseconds>(most * 2, milliseconds(60'000));
    CHECK(queue.pop(kStart + seconds(100)) == key("a"));
    queue.done(key("a"));
  }
  CHECK(queue.failures(key("a")) == 40);
  queue.forget(key("a"));
  queue.add_backed_off(key("a"), kStart);
  CHECK(*queue.next_due() - kStart <= milliseconds(50));
}

TEST_CASE("whatever the order of calls, no key is lost and none is in two hands") {
  Rng rng(test::seed());
  WorkQueue queue(rng());
  std::map<api::ObjectKey, bool> wanted, in_hand;
  MonoTime now = kStart;
  for (int i = 0; i < 20'000; ++i) {
    const auto one = key(std::string(1, static_cast<char>('a' + rng.below(6))));
    switch (rng.below(5)) {
      case 0:
        queue.add(one);
        wanted[one] = true;
        break;
      case 1:
        queue.add_at(one, now + milliseconds(rng.below(50)));
        wanted[one] = true;
        break;
      case 2:
        if (const auto got = queue.pop(now)) {
          CHECK_FALSE(in_hand[*got]);
          CHECK(wanted[*got]);
          in_hand[*got] = true;
          wanted[*got] = false;
        }
        break;
      case 3:
        queue.done(one);
        in_hand[one] = false;
        break;
      default:
        now += milliseconds(rng.below(20));
    }
  }
  now += seconds(1);
  for (auto& [one, held] : in_hand) queue.done(one);
  while (const auto got = queue.pop(now)) wanted[*got] = false;
  for (const auto& [one, still] : wanted) CHECK_MESSAGE(!still, one.name);
}

TEST_CASE("what is no news about a key waits for its back-off, and no longer") {
  WorkQueue queue(1, {seconds(10), seconds(10)});
  queue.add_after_back_off(key("a"), kStart);
  REQUIRE(queue.pop(kStart) == key("a"));
  queue.add_backed_off(key("a"), kStart);
  queue.done(key("a"));
  queue.add_after_back_off(key("a"), kStart);
  CHECK_FALSE(queue.pop(kStart).has_value());
  // News brings it back at once; the rest still waits, and is not forgotten.
  queue.add(key("a"));
  REQUIRE(queue.pop(kStart) == key("a"));
  queue.done(key("a"));
  queue.add_after_back_off(key("a"), kStart);
  CHECK_FALSE(queue.pop(kStart).has_value());
  REQUIRE(queue.pop(kStart + seconds(10)) == key("a"));
  queue.done(key("a"));
  queue.forget(key("a"));
  queue.add_after_back_off(key("a"), kStart);
  CHECK(queue.pop(kStart) == key("a"));
}

TEST_CASE("whether a key is in its back-off can be asked") {
  WorkQueue queue(1, {seconds(10), seconds(10)});
  CHECK_FALSE(queue.backs_off(key("a"), kStart));
  queue.add_backed_off(key("a"), kStart, seconds(30));
  CHECK(queue.backs_off(key("a"), kStart + seconds(29)));
  CHECK_FALSE(queue.backs_off(key("a"), kStart + seconds(30)));
  CHECK_FALSE(queue.backs_off(key("b"), kStart));
  queue.forget(key("a"));
  CHECK_FALSE(queue.backs_off(key("a"), kStart));
}

TEST_CASE("a time that comes does not end a back-off") {
  WorkQueue queue(1, {seconds(10), seconds(10)});
  queue.add(key("a"));
  REQUIRE(queue.pop(kStart) == key("a"));
  queue.done(key("a"));
  queue.add_backed_off(key("a"), kStart, seconds(30));
  for (const int second : {1, 2, 29}) {
    queue.add_at(key("a"), kStart + seconds(second));
    CHECK_FALSE(queue.pop(kStart + seconds(second)).has_value());
    CHECK(queue.next_due() == kStart + seconds(30));
  }
  CHECK(queue.pop(kStart + seconds(30)) == key("a"));
}

TEST_CASE("when a key returns whose time came while it was in hand depends on how that ended") {
  WorkQueue queue(1, {seconds(10), seconds(10)});
  queue.add(key("a"));
  REQUIRE(queue.pop(kStart) == key("a"));
  queue.add_at(key("a"), kStart + seconds(1));
  CHECK_FALSE(queue.pop(kStart + seconds(1)).has_value());
  CHECK_FALSE(queue.next_due().has_value());
  MonoTime due = kStart + seconds(1);
  bool is_news = false, failed = false;
  SUBCASE("well") {}
  SUBCASE("with a failure") { failed = true; }
  SUBCASE("with a failure, and there was news") { is_news = failed = true; }
  if (is_news) queue.add(key("a"));
  queue.done(key("a"));
  if (failed) queue.add_backed_off(key("a"), kStart + seconds(1), seconds(30));
  if (failed && !is_news) due += seconds(30);
  for (int second = 1; second < 40; ++second) {
    const MonoTime now = kStart + seconds(second);
    CHECK(queue.pop(now).has_value() == (now == due));
  }
}
