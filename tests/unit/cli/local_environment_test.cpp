#include "cli/local_environment.h"

#include <doctest/doctest.h>

#include <set>

namespace muster::cli {
namespace {

TEST_CASE("GPUs are those that CUDA would show") {
  using Names = std::vector<std::string>;
  const auto listed = [](const char* text) {
    return visible_gpus({{"CUDA_VISIBLE_DEVICES", text}}, "/nowhere");
  };
  CHECK(listed("").empty());
  CHECK(listed("0") == Names{"0"});
  CHECK(listed("GPU-8a5d,GPU-9f12") == Names{"GPU-8a5d", "GPU-9f12"});
  CHECK(listed("3,-1,2") == Names{"3"});
  CHECK(listed(std::string(2000, ',').insert(0, "0").c_str()).size() == 1);
  std::string many = "0";
  for (int i = 1; i < 200; ++i) many += ",0";
  CHECK(listed(many.c_str()).size() == 64);
  CHECK(visible_gpus({}, "/nowhere").empty());
  const std::string driver = std::filesystem::temp_directory_path() / "muster-gpus-XXXXXX";
  std::string made = driver;
  REQUIRE(mkdtemp(made.data()) != nullptr);
  std::filesystem::create_directory(made + "/0000:17:00.0");
  std::filesystem::create_directory(made + "/0000:65:00.0");
  CHECK(visible_gpus({}, made) == Names{"0", "1"});
  CHECK(visible_gpus({{"CUDA_VISIBLE_DEVICES", "0"}}, made) == Names{"0"});
  std::filesystem::remove_all(made);
}

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

TEST_CASE("an elastic job lists the workers that there are, not all that there may be") {
  std::map<std::string, std::string> environment = {
      {"TF_CONFIG", R"({"cluster":{"worker":["a:1","b:1"]},"task":{"index":1,"type":"worker"}})"}};
  adapt_to_loopback(environment, {4001, 4002, 4003, 4004});
  CHECK(environment["TF_CONFIG"] == R"({"cluster":{"worker":["127.0.0.1:4001","127.0.0.1:4002"]},)"
                                    R"("task":{"index":1,"type":"worker"}})");
}

TEST_CASE("what is not set stays unset, and what is no TF_CONFIG stays as it is") {
  std::map<std::string, std::string> environment = {{"TF_CONFIG", "{"}};
  adapt_to_loopback(environment, {4001});
  CHECK(environment == std::map<std::string, std::string>{{"TF_CONFIG", "{"}});
  for (const std::string text : {"[]", "{}", R"({"cluster":3})", R"({"cluster":{"worker":3}})"}) {
    environment["TF_CONFIG"] = text;
    adapt_to_loopback(environment, {4001});
    CHECK(environment["TF_CONFIG"] == text);
  }
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
