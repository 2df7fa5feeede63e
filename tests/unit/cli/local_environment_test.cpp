#include "cli/local_environment.h"

#include <doctest/doctest.h>

#include <set>

namespace muster::cli {
namespace {

TEST_CASE("own programs find each other on loopback") {
  std::map<std::string, std::string> environment = {
      {"MASTER_ADDR", "job-x-0-0.job-x.default.svc"},
      {"MASTER_PORT", "29500"},
      {"PET_RDZV_ENDPOINT", "job-x-0-0.job-x.default.svc:29500"},
      {"TF_CONFIG",
       R"({"cluster":{"worker":["a:29500","b:29500"]},"task":{"index":1,"type":"worker"}})"},
      {"RANK", "1"}};
  adapt_to_loopback(environment, {4001, 4002});
  CHECK(environment ==
        std::map<std::string, std::string>{
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", "4001"},
            {"PET_RDZV_ENDPOINT", "127.0.0.1:4001"},
            {"TF_CONFIG", R"({"cluster":{"worker":["127.0.0.1:4001","127.0.0.1:4002"]},)"
                          R"("task":{"index":1,"type":"worker"}})"},
            {"RANK", "1"}});
}

TEST_CASE("what is not set stays unset, and what is no TF_CONFIG stays as it is") {
  std::map<std::string, std::string> environment = {{"TF_CONFIG", "{"}};
  adapt_to_loopback(environment, {4001});
  CHECK(environment == std::map<std::string, std::string>{{"TF_CONFIG", "{"}});
  adapt_to_loopback(environment, {});
  CHECK(environment.size() == 1);
}

TEST_CASE("free ports are different ones") {
  auto ports = free_ports(20);
  REQUIRE(ports);
  CHECK(std::set<int>(ports->begin(), ports->end()).size() == 20);
  CHECK(free_ports(0)->empty());
}

}  // namespace
}  // namespace muster::cli
