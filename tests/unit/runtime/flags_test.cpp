#include "operator/main_flags.h"

#include <doctest/doctest.h>

using namespace muster;
using namespace muster::operator_main;

namespace {

/// What a development run needs beside the flags under test.
Result<CommandLine> parse(std::vector<std::string> more) {
  more.insert(more.begin(), {"--endpoint-bind-address", "127.0.0.1:0"});
  return parse_command_line(std::move(more));
}

std::string refusal(std::vector<std::string> more) {
  const auto line = parse(std::move(more));
  REQUIRE_FALSE(line);
  CHECK(line.error().message().find('\n') == std::string::npos);
  return line.error().message();
}

}  // namespace

TEST_CASE("the flags of the chart are understood") {
  const auto line = parse_command_line({"--leader-elect=false",
                                        "--leader-elect-lease-duration=30s",
                                        "--leader-elect-renew-deadline=20s",
                                        "--leader-elect-retry-period=500ms",
                                        "--leader-elect-resource-namespace=muster",
                                        "--leader-elect-resource-name=x",
                                        "--namespace=ml",
                                        "--metrics-bind-address=:8443",
                                        "--metrics-secure=false",
                                        "--health-probe-bind-address=:8081",
                                        "--endpoint-bind-address=:9443",
                                        "--endpoint-url=https://muster-endpoint.muster.svc:9443",
                                        "--master-dir=/etc/muster/master",
                                        "--worker-image=w:1",
                                        "--pod-groups=v1beta1",
                                        "--worker-metrics-port=9095",
                                        "--kube-api-qps=0.5",
                                        "--price-list=/etc/muster/prices/prices.yaml",
                                        "--pod-metadata=team,example.com/*",
                                        "--host-network-namespaces=hpc,team-a",
                                        "--resync-period=5m",
                                        "--pod-start-timeout=20m",
                                        "--log-level=debug"});
  REQUIRE_MESSAGE(line, line.error().message());
  const Flags& flags = line->flags;
  CHECK_FALSE(flags.leader_elect);
  CHECK(flags.lease_duration == seconds(30));
  CHECK(flags.retry_period == milliseconds(500));
  CHECK(flags.namespace_name == "ml");
  CHECK(flags.metrics.port == 8443);
  CHECK(flags.metrics.host.empty());
  CHECK_FALSE(flags.metrics_secure);
  CHECK(flags.kube_api_qps == 0.5);
  CHECK(flags.worker_metrics_port == 9095);
  CHECK(flags.pod_groups == "v1beta1");
  CHECK(flags.resync_period == seconds(300));
  CHECK(flags.pod_start_timeout == std::chrono::minutes(20));
  CHECK(flags.price_list == "/etc/muster/prices/prices.yaml");
  CHECK(flags.pod_metadata == std::vector<std::string>{"team", "example.com/*"});
  CHECK(flags.host_network_namespaces == std::vector<std::string>{"hpc", "team-a"});
  CHECK(flags.log_level == LogLevel::kDebug);
}

TEST_CASE("defaults are those of other operators") {
  const auto line = parse({});
  REQUIRE(line);
  CHECK(line->flags.leader_elect);
  CHECK(line->flags.lease_duration == seconds(15));
  CHECK(line->flags.health.port == 8081);
  CHECK(line->flags.metrics_secure);
}

TEST_CASE("of a flag that is given again the last value counts, and all names of policies") {
  const auto line =
      parse({"--log-level=info", "--leader-elect=true", "--resync-period=5m", "--kube-api-qps=7",
             "--namespace=a", "--metrics-bind-address=:1", "--metrics-secure=true",
             "--worker-metrics-port=1", "--admission-policies=one,two",
             // What further arguments of the chart say of them.
             "--log-level=debug", "--leader-elect=false", "--resync-period=1m", "--kube-api-qps=0",
             "--namespace=b", "--metrics-bind-address=:2", "--no-metrics-secure",
             "--worker-metrics-port=2", "--admission-policies=three"});
  REQUIRE_MESSAGE(line, line.error().message());
  const Flags& flags = line->flags;
  CHECK(flags.log_level == LogLevel::kDebug);
  CHECK_FALSE(flags.leader_elect);
  CHECK(flags.resync_period == seconds(60));
  CHECK(flags.kube_api_qps == 0);
  CHECK(flags.namespace_name == "b");
  CHECK(flags.metrics.port == 2);
  CHECK_FALSE(flags.metrics_secure);
  CHECK(flags.worker_metrics_port == 2);
  CHECK(flags.admission_policies == std::vector<std::string>{"one", "two", "three"});
  CHECK(refusal({"--namespace", "a", "--namespace", "B"}).find("--namespace") == 0);
}

TEST_CASE("no limit, any free port and a namespace named twice are taken, and the help says so") {
  const auto line = parse({"--kube-api-qps=0", "--metrics-bind-address=:0",
                           "--health-probe-bind-address=127.0.0.1:0",
                           "--host-network-namespaces=hpc,hpc", "--host-network-namespaces=hpc"});
  REQUIRE_MESSAGE(line, line.error().message());
  CHECK(line->flags.kube_api_qps == 0);
  for (const BindAddress& one : {line->flags.metrics, line->flags.health, line->flags.endpoint}) {
    CHECK(one.port == 0);
    CHECK_FALSE(one.is_off);
  }
  CHECK(line->flags.host_network_namespaces == std::vector<std::string>(3, "hpc"));
  // Without an endpoint there would be no workers.
  CHECK(refusal({"--endpoint-bind-address", "0"}).find("--endpoint-bind-address") == 0);
  const std::string help = *parse_command_line({"--help"})->text;
  for (const char* words :
       {"API server; 0 = no limit", "metrics; 0 = not served, port 0 = any free one",
        "/readyz; 0 = not served, port 0 = any free one", "endpoint; port 0 = any free one",
        "a name that is given twice counts once"}) {
    CHECK_MESSAGE(help.find(words) != std::string::npos, words);
  }
}

TEST_CASE("policies are named after the longest namespace there may be") {
  const std::string name = "muster-" + std::string(63, 'n');
  const auto line = parse({"--admission-policies=" + name + "-jobs," + name + "-pods"});
  REQUIRE_MESSAGE(line, line.error().message());
  CHECK(line->flags.admission_policies == std::vector{name + "-jobs", name + "-pods"});
  CHECK(parse({"--namespace", std::string(63, 'n')}));
  for (const std::string& wrong : {std::string(254, 'n'), std::string("a..b"), std::string("A")}) {
    CHECK(refusal({"--admission-policies", wrong}).find("--admission-policies") !=
          std::string::npos);
  }
}

TEST_CASE("help and version are answers") {
  CHECK(parse_command_line({"--version"})->text->find("muster-operator 0.") == 0);
  CHECK(parse_command_line({"--help"})->text->find("--leader-elect") != std::string::npos);
}

TEST_CASE("a bad flag is refused in one line that names it") {
  CHECK(refusal({"--nonsense"}).find("--nonsense") != std::string::npos);
  CHECK(refusal({"stray"}).find("stray") != std::string::npos);
  CHECK(refusal({"--kube-api-qps", "-1"}).find("--kube-api-qps") != std::string::npos);
  CHECK(refusal({"--kube-api-qps", "nan"}).find("--kube-api-qps") != std::string::npos);
  CHECK(refusal({"--log-level", "loud"}).find("--log-level") != std::string::npos);
  CHECK(refusal({"--namespace", ""}).find("--namespace") == 0);
  CHECK(refusal({"--namespace", "Upper"}).find("--namespace") == 0);
  CHECK(refusal({"--worker-metrics-port", "70000"}).find("--worker-metrics-port") !=
        std::string::npos);
  CHECK(refusal({"--health-probe-bind-address", ":70000"}).find("--health-probe-bind-address") ==
        0);
  CHECK(refusal({"--metrics-bind-address", "localhost:1"}).find("--metrics-bind-address") == 0);
  CHECK(refusal({"--leader-elect-lease-duration", "10s"}).find("--leader-elect-renew-deadline") ==
        0);
  CHECK(
      refusal({"--leader-elect-lease-duration", "1500ms"}).find("--leader-elect-lease-duration") ==
      0);
  CHECK(refusal({"--leader-elect-retry-period", "9s"}).find("--leader-elect-retry-period") == 0);
  CHECK(refusal({"--resync-period", "0s"}).find("--resync-period") == 0);
  CHECK(refusal({"--pod-start-timeout", "59s"}).find("--pod-start-timeout") == 0);
  CHECK(refusal({"--pod-metadata", "a,muster.dev/b"}).find("--pod-metadata") != std::string::npos);
  CHECK(refusal({"--pod-metadata", "*"}).find("names of labels") != std::string::npos);
  CHECK(refusal({"--host-network-namespaces", "a,Team_B"}).find("--host-network-namespaces") !=
        std::string::npos);
  std::string names = "a";
  for (int i = 0; i < 64; ++i) names += ",a";
  CHECK(refusal({"--pod-metadata", names}).find("--pod-metadata") == 0);
}

TEST_CASE("an endpoint without TLS stays on loopback") {
  const auto line = parse_command_line({});
  REQUIRE_FALSE(line);
  CHECK(line.error().message().find("--endpoint-bind-address: must be a loopback") == 0);
  CHECK(parse_command_line({"--master-dir", "/etc/muster/master"}));
}

TEST_CASE("durations are read as Go writes them") {
  CHECK(*parse_duration("15s") == seconds(15));
  CHECK(*parse_duration("1m30s") == seconds(90));
  CHECK(*parse_duration("200ms") == milliseconds(200));
  CHECK(*parse_duration("24h") == std::chrono::hours(24));
  for (const char* bad : {"", "15", "s", "-1s", "1.5s", "1d", "25h", "99999999999999999999s",
                          "1s 2s", "15S", "23h61m"}) {
    CHECK_MESSAGE(!parse_duration(bad), bad);
  }
}

TEST_CASE("addresses are numeric") {
  CHECK(parse_bind_address(":80")->host.empty());
  CHECK_FALSE(parse_bind_address(":80")->is_loopback());
  CHECK(parse_bind_address("[::1]:80")->host == "::1");
  CHECK(parse_bind_address("[::1]:80")->is_loopback());
  CHECK(parse_bind_address("127.0.0.1:0")->is_loopback());
  CHECK(parse_bind_address("0")->is_off);
  for (const char* bad : {"", "80", ":", ":x", ":-1", "a:1", "::1:80", "[1.2.3.4]:1", ":1 "}) {
    CHECK_MESSAGE(!parse_bind_address(bad), bad);
  }
}

TEST_CASE("without a host every address is listened on, of the family of the pod's own") {
  const auto host = [](const char* flag, const char* pod_ip) {
    return listen_host(*parse_bind_address(flag), pod_ip);
  };
  CHECK(host(":9443", "10.0.0.7") == "0.0.0.0");
  CHECK(host(":9443", "") == "0.0.0.0");
  CHECK(host(":9443", "fd00:10::7") == "::");
  CHECK(host("0.0.0.0:9443", "fd00:10::7") == "0.0.0.0");
  CHECK(host("[::1]:9443", "10.0.0.7") == "::1");
  const auto defaults = parse_command_line({"--master-dir", "/etc/muster/master"});
  REQUIRE(defaults);
  for (const BindAddress& one :
       {defaults->flags.metrics, defaults->flags.health, defaults->flags.endpoint}) {
    CHECK(listen_host(one, "fd00:10::7") == "::");
  }
}

TEST_CASE("the flags of a node agent are understood without those of an operator") {
  const auto line = parse_command_line(
      {"--node-agent=n1.example", "--sysfs=/host/sys", "--node-agent-period=5m"});
  REQUIRE_MESSAGE(line, line.error().message());
  CHECK(line->flags.node_agent == "n1.example");
  CHECK(line->flags.sysfs == "/host/sys");
  CHECK(line->flags.node_agent_period == seconds(300));
  CHECK(parse_command_line({"--node-agent", "n1"})->flags.sysfs == "/sys");
}

TEST_CASE("a node agent's flags that cannot be right are refused by name") {
  for (const char* name : {"", "N1", "../pods", ".", "a/b", "a?b"}) {
    CHECK(refusal({"--node-agent", name}) == "--node-agent: must be the name of a node");
  }
  CHECK(refusal({"--sysfs=/sys"}) == "--sysfs: needs --node-agent");
  CHECK(refusal({"--node-agent-period=1m"}) == "--node-agent-period: needs --node-agent");
  CHECK(refusal({"--node-agent=n1", "--node-agent-period=0s"}) ==
        "--node-agent-period: must be at least 1s");
}
