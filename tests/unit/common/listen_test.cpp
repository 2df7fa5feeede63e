#include "common/listen.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "common/contract.h"
#include "common/file.h"
#include "tests/raw_socket.h"

namespace muster {
namespace {

TEST_CASE("a port that is taken is named, with the exit code for ports") {
  const auto first = listen_tcp("127.0.0.1", 0);
  REQUIRE(first);
  const UniqueFd taken(first->fd);
  const auto second = listen_tcp("127.0.0.1", first->port);
  REQUIRE_FALSE(second);
  CHECK(second.error().code() == ErrorCode::kIo);
  CHECK(second.error().exit_code() == contract::exit_code::kPort);
  CHECK(second.error().message() ==
        "listen on 127.0.0.1 port " + std::to_string(first->port) + ": Address already in use");
}

TEST_CASE("an address that is not numeric and a port out of range are refused") {
  const auto name = listen_tcp("no such host", 0);
  REQUIRE_FALSE(name);
  CHECK(name.error().message().find("must be numeric") != std::string::npos);
  CHECK_FALSE(listen_tcp("127.0.0.1", 65536));
  CHECK_FALSE(listen_tcp("127.0.0.1", -1));
}

TEST_CASE("more than a thousand may wait to be accepted at once") {
  constexpr std::size_t kDials = 1100;
  const std::string most = *read_file("/proc/sys/net/core/somaxconn", 64);
  rlimit files{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
  if (std::stoul(most) < kDials || files.rlim_max < 2 * kDials) {
    MESSAGE("skipped: the system lets fewer wait, or a process have fewer connections");
    return;
  }
  const rlimit before = files;
  files.rlim_cur = std::max<rlim_t>(files.rlim_cur, 2 * kDials);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &files) == 0);
  const auto listener = listen_tcp("127.0.0.1", 0);
  REQUIRE(listener);
  const UniqueFd fd(listener->fd);
  std::vector<std::unique_ptr<test::RawSocket>> dials;
  bool all_are_in = true;
  while (all_are_in && dials.size() < kDials) {
    dials.push_back(std::make_unique<test::RawSocket>(listener->port));
    all_are_in = dials.back()->ok();
  }
  CHECK(all_are_in);
  REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
}

}  // namespace
}  // namespace muster
