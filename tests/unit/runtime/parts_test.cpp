// Mailbox, job keys, retries, health probes.
#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "common/http/client.h"
#include "operator/runtime/health.h"
#include "operator/runtime/job_key.h"
#include "operator/runtime/mailbox.h"
#include "operator/runtime/retry.h"

using namespace muster;
using namespace muster::runtime;

namespace {
ProgressReport report(std::int64_t step) {
  ProgressReport made;
  made.step = step;
  return made;
}
}  // namespace

TEST_CASE("a job's key is the HMAC of its uid") {
  const auto key = job_key(std::string(64, '0'), "");
  REQUIRE(key.has_value());
  // Python: hmac.new(bytes(32), b"", "sha256").hexdigest()
  CHECK(*key == "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
  CHECK(*job_key(std::string(64, '0'), "a") != *key);
  CHECK(*job_key(std::string(64, 'A'), "a") == *job_key(std::string(64, 'a'), "a"));
}

TEST_CASE("master keys are told apart by an id, and a gang is given the one of its start") {
  const MasterKeys keys{std::string(64, 'a'), std::string(64, 'b')};
  const std::string now = *key_id(keys.current), before = *key_id(keys.previous);
  CHECK(now.size() == 16);
  CHECK(now != before);
  CHECK(*key_id(std::string(64, 'A')) == now);
  CHECK(key_of(keys, now) == keys.current);
  CHECK(key_of(keys, before) == keys.previous);
  CHECK(key_of(keys, "") == keys.current);
  CHECK(key_of({keys.current, ""}, before) == keys.current);
}

TEST_CASE("a master key that is none is refused") {
  for (const std::string& wrong :
       {std::string(), std::string(63, '0'), std::string(65, '0'), std::string(64, 'g')}) {
    const auto key = job_key(wrong, "uid");
    REQUIRE_FALSE(key.has_value());
    CHECK(key.error().message() == "master key: must be 64 hexadecimal digits");
  }
}

TEST_CASE("the mailbox keeps order and holds posters back while it is full") {
  Mailbox mailbox(2);
  CHECK(mailbox.post(report(1)));
  CHECK(mailbox.post(report(2)));
  CHECK_FALSE(mailbox.try_post(report(3)));
  std::atomic<bool> posted{false};
  std::thread poster([&] {
    CHECK(mailbox.post(report(3)));
    posted = true;
  });
  std::vector<std::int64_t> steps;
  while (steps.size() < 3) {
    mailbox.wait(seconds(10));
    for (const auto& message : mailbox.drain()) {
      steps.push_back(std::get<ProgressReport>(message).step);
    }
  }
  poster.join();
  CHECK(posted);
  CHECK(steps == std::vector<std::int64_t>{1, 2, 3});
}

TEST_CASE("of what watches bring only so much waits inside, and other messages pass it") {
  const auto batch = [](std::size_t bytes) {
    return WatchBatch{api::Kind::kPod, std::vector<kube::WatchEvent>(1), bytes};
  };
  Mailbox mailbox(1000);
  CHECK(mailbox.post(batch(2 * kWatchedBytesMost)));  // larger than all that may wait, and alone
  CHECK(mailbox.drain().size() == 1);
  CHECK(mailbox.post(batch(kWatchedBytesMost - 1)));
  CHECK(mailbox.post(batch(1)));
  CHECK(mailbox.post(report(1)));
  std::atomic<bool> is_in{false};
  std::thread poster([&] { is_in = mailbox.post(batch(1)); });
  for (int i = 0; i < 1000 && !is_in; ++i) std::this_thread::yield();
  CHECK_FALSE(is_in);
  CHECK(mailbox.try_post(report(2)));
  CHECK(mailbox.drain().size() == 4);
  poster.join();
  CHECK(is_in);
  CHECK(mailbox.drain().size() == 1);
}

TEST_CASE("closing the mailbox lets everybody go") {
  Mailbox mailbox(1);
  CHECK(mailbox.post(report(1)));
  std::thread poster([&] { CHECK_FALSE(mailbox.post(report(2))); });
  mailbox.close();
  poster.join();
  CHECK_FALSE(mailbox.post(report(3)));
  mailbox.drain();
  mailbox.wait(seconds(3600));  // returns at once
}

TEST_CASE("what is refused is told from what may succeed another time") {
  CHECK(is_refused(ErrorCode::kForbidden));
  CHECK(is_refused(ErrorCode::kInvalid));
  CHECK_FALSE(is_refused(ErrorCode::kUnavailable));
  CHECK_FALSE(is_refused(ErrorCode::kTooManyRequests));
  CHECK_FALSE(is_refused(ErrorCode::kConflict));
}

TEST_CASE("a probe says why not, and nothing but the two is there") {
  std::atomic<bool> is_alive = true, is_ready = false;
  HealthOptions options;
  options.not_alive = [&] { return std::string(is_alive ? "" : "nothing is decided"); };
  options.not_ready = [&] { return std::string(is_ready ? "" : "nothing is listed"); };
  const auto health = Health::start(options);
  REQUIRE(health);
  const auto ask = [&](const std::string& path, const std::string& method = "GET") {
    http::Call call;
    call.method = method;
    call.url = "http://127.0.0.1:" + std::to_string((*health)->port()) + path;
    call.timeout = seconds(20);
    const auto answer = http::Client().exchange(call);
    REQUIRE_MESSAGE(answer, (answer ? "" : answer.error().message()));
    return std::to_string(answer->status) + " " + answer->body;
  };
  CHECK(ask("/healthz") == "200 ok\n");
  CHECK(ask("/readyz") == "500 nothing is listed\n");
  is_ready = true;
  is_alive = false;
  CHECK(ask("/healthz") == "500 nothing is decided\n");
  CHECK(ask("/readyz") == "200 ok\n");
  for (const char* path : {"/", "/metrics", "/healthz/", "/debug/pprof/"}) {
    CHECK(ask(path) == "404 /healthz or /readyz\n");
  }
  CHECK(ask("/healthz", "POST") == "405 GET only\n");
}
