#include "operator/embedded/pod_log.h"

#include <doctest/doctest.h>

#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::embedded {
namespace {

using test::content_of;

TEST_CASE("a pod's log keeps its bound with one older generation") {
  const test::TemporaryDirectory directory;
  const std::string path = directory.path + "/a.log";
  PodLog log(path, 10);
  log.append("12345");
  log.append("67890");
  CHECK(content_of(path) == "1234567890");
  log.append("abc");
  CHECK(content_of(path) == "abc");
  CHECK(content_of(path + ".1") == "1234567890");
  log.append("defghijk");
  CHECK(content_of(path) == "defghijk");
  CHECK(content_of(path + ".1") == "abc");
  CHECK(log.tail() == "1234567890abcdefghijk");
}

TEST_CASE("the tail is the last 2 KiB, whatever the pieces") {
  const test::TemporaryDirectory directory;
  PodLog log(directory.path + "/a.log", 1 << 20);
  std::string all;
  for (int i = 0; i < 2000; ++i) {
    const std::string piece = std::to_string(i) + "\n";
    log.append(piece);
    all += piece;
  }
  CHECK(log.tail() == all.substr(all.size() - PodLog::kTailBytes));
  const std::string large(5000, 'x');
  log.append(large);
  CHECK(log.tail() == large.substr(0, PodLog::kTailBytes));
}

TEST_CASE("a log that cannot be written loses bytes, not the tail") {
  PodLog log("/no/such/directory/a.log", 100);
  log.append("said");
  CHECK(log.tail() == "said");
}

}  // namespace
}  // namespace muster::embedded
