#include "worker/sentinel/environment.h"

#include <doctest/doctest.h>

#include <map>

#include "common/contract.h"

using namespace muster;
using namespace muster::sentinel;

namespace {

using Variables = std::map<std::string, std::string>;

Variables good() {
  return {{"MUSTER_JOB", "ns/job"},
          {"MUSTER_SLOT", "1"},
          {"MUSTER_ATTEMPT", "2"},
          {"MUSTER_WORKERS", "3"},
          {"MUSTER_ENDPOINT", "http://127.0.0.1:80/"},
          {"MUSTER_TOKEN_FILE", "/t"}};
}

Result<WorkerConfig> parse(const Variables& variables) {
  return parse_environment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

}  // namespace

TEST_CASE("the environment becomes a configuration, with defaults for what may be absent") {
  const auto config = parse(good());
  REQUIRE(config);
  CHECK(config->namespace_name == "ns");
  CHECK(config->job_name == "job");
  CHECK(config->slot == 1);
  CHECK(config->attempt == 2);
  CHECK(config->workers == 3);
  CHECK(config->processes == 1);
  CHECK(config->endpoint == "http://127.0.0.1:80");
  CHECK(config->bind_address == "0.0.0.0");
  CHECK(config->bind_port == 0);
  CHECK(config->termination_log == "/dev/termination-log");
  CHECK(config->data_root == "/usr/share/muster");
  CHECK(config->metrics_port == 0);
  CHECK(config->node.empty());
  CHECK_FALSE(config->hash_every.has_value());
}

TEST_CASE("bind addresses may carry a port") {
  const auto bind = [](const std::string& text) {
    Variables variables = good();
    variables["MUSTER_BIND"] = text;
    const auto config = parse(variables);
    if (!config) return std::string("refused");
    return config->bind_address + " " + std::to_string(config->bind_port);
  };
  CHECK(bind("127.0.0.1") == "127.0.0.1 0");
  CHECK(bind("127.0.0.1:7000") == "127.0.0.1 7000");
  CHECK(bind("::1") == "::1 0");
  CHECK(bind("[::1]") == "::1 0");
  CHECK(bind("[::1]:7000") == "::1 7000");
  for (const char* bad : {"localhost", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:-1", "[::1",
                          "[::1]7000", "1.2.3:80", "127.0.0.1:80x"}) {
    CAPTURE(bad);
    CHECK(bind(bad) == "refused");
  }
}

TEST_CASE("without an address a worker listens on all of the family that its pod's own is of") {
  const auto bind = [](const std::string& pod_ip, const std::string& given) {
    Variables variables = good();
    variables["MUSTER_POD_IP"] = pod_ip;
    variables["MUSTER_BIND"] = given;
    return parse(variables)->bind_address;
  };
  CHECK(bind("", "") == "0.0.0.0");
  CHECK(bind("10.0.0.7", "") == "0.0.0.0");
  CHECK(bind("fd00:10::7", "") == "::");
  CHECK(bind("fd00:10::7", "127.0.0.1:7000") == "127.0.0.1");
}

TEST_CASE("a missing or wrong variable is named, with what would be right") {
  struct Case {
    const char* name;
    const char* value;  ///< nullptr = not set
    const char* message;
  };
  for (const Case& one : std::initializer_list<Case>{
           {"MUSTER_JOB", nullptr,
            "MUSTER_JOB is not set; it is needed, for example default/digits"},
           {"MUSTER_JOB", "job", "MUSTER_JOB must be <namespace>/<name>, not \"job\""},
           {"MUSTER_JOB", "a/b/c", "MUSTER_JOB must be <namespace>/<name>, not \"a/b/c\""},
           {"MUSTER_SLOT", nullptr,
            "MUSTER_SLOT is not set; it is needed, a number from 0 to 4095"},
           {"MUSTER_SLOT", "x", "MUSTER_SLOT must be a number from 0 to 4095, not \"x\""},
           {"MUSTER_SLOT", "4096", "MUSTER_SLOT must be a number from 0 to 4095, not \"4096\""},
           {"MUSTER_ATTEMPT", "-1",
            "MUSTER_ATTEMPT must be a number from 0 to 1000000000, not \"-1\""},
           {"MUSTER_WORKERS", "0", "MUSTER_WORKERS must be a number from 1 to 4096, not \"0\""},
           {"MUSTER_PROCESSES", "65", "MUSTER_PROCESSES must be a number from 1 to 64, not \"65\""},
           {"MUSTER_GPUS", "two", "MUSTER_GPUS must be a number from 0 to 64, not \"two\""},
           {"MUSTER_ENDPOINT", "127.0.0.1",
            "MUSTER_ENDPOINT is wrong: \"127.0.0.1\" begins with neither http:// nor https://; a "
            "URL like http://127.0.0.1:8080 is needed"},
           {"MUSTER_ENDPOINT", "https://muster-endpoint.muster.svc:9443",
            "MUSTER_CA_CERT is not set; an https endpoint is trusted by its CA alone"},
           {"MUSTER_CA_CERT", "-----BEGIN CERTIFICATE-----",
            "MUSTER_ENDPOINT must begin with https:// where MUSTER_CA_CERT is set"},
           {"MUSTER_POD_IP", "pod-0", "MUSTER_POD_IP must be a numeric address, not \"pod-0\""},
           {"MUSTER_NODE", "node 1",
            "MUSTER_NODE must be a node's name: letters, digits, '-', '.' and '_', at most 253 of "
            "them"},
           {"MUSTER_TOKEN_FILE", nullptr,
            "MUSTER_TOKEN_FILE is not set; it is needed, for example "
            "/var/run/secrets/muster/token"},
           {"MUSTER_LOG_LEVEL", "loud",
            "MUSTER_LOG_LEVEL must be debug, info, warning or error, not \"loud\""},
           {"MUSTER_HASH_EVERY", "1.5",
            "MUSTER_HASH_EVERY must be a number from 0 to 9007199254740992, not \"1.5\""},
           {"MUSTER_METRICS_PORT", "65536",
            "MUSTER_METRICS_PORT must be a number from 0 to 65535, not \"65536\""}}) {
    CAPTURE(one.name);
    Variables variables = good();
    variables.erase(one.name);
    if (one.value != nullptr) variables[one.name] = one.value;
    const auto config = parse(variables);
    REQUIRE_FALSE(config);
    CHECK(config.error().message() == one.message);
    CHECK(config.error().exit_code() == contract::exit_code::kUsage);
  }
}

TEST_CASE("in a cluster the CA of the endpoint and the pod's own address are given") {
  Variables variables = good();
  variables["MUSTER_ENDPOINT"] = "https://muster-endpoint.muster.svc:9443";
  // Larger than any other variable may be: several certificates while a CA is replaced.
  const std::string bundle = "-----BEGIN CERTIFICATE-----\n" + std::string(20'000, 'x');
  variables["MUSTER_CA_CERT"] = bundle;
  variables["MUSTER_POD_IP"] = "fd00::7";
  variables["MUSTER_NODE"] = "ip-10-0-0-7.eu.internal";
  const auto config = parse(variables);
  REQUIRE(config);
  CHECK(config->ca_certificate == bundle);
  CHECK(config->pod_ip == "fd00::7");
  CHECK(config->node == "ip-10-0-0-7.eu.internal");
  variables["MUSTER_NODE"] = std::string(254, 'n');
  CHECK_FALSE(parse(variables));
  variables.erase("MUSTER_NODE");
  variables["MUSTER_CA_CERT"] = "garbage";
  const auto garbage = parse(variables);
  REQUIRE_FALSE(garbage);
  CHECK(garbage.error().message() == "MUSTER_CA_CERT must be a certificate in PEM");
  variables["MUSTER_CA_CERT"] = std::string(70'000, 'x');
  CHECK_FALSE(parse(variables));
}

TEST_CASE("a token file is read without its newline, and an empty one is refused by name") {
  CHECK_FALSE(read_token("/nowhere/token"));
  const auto empty = read_token("/dev/null");
  REQUIRE_FALSE(empty);
  CHECK(empty.error().message() ==
        "token file /dev/null is empty; it must hold the bearer token of the endpoint");
}
