#include "operator/main_flags.h"

#include <arpa/inet.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <functional>
#include <map>

#include "common/contract.h"
#include "operator/api/fields.h"
#include "operator/api/pod.h"

namespace muster::operator_main {
namespace {

using api::matches;
using api::NameRule;

constexpr milliseconds kMostDuration = std::chrono::hours(24);
constexpr milliseconds kLeastPodStart = std::chrono::minutes(1);
constexpr milliseconds kMostLease = std::chrono::hours(1);
constexpr std::size_t kMostPodMetadata = 64;

Error invalid(const std::string& what) { return {ErrorCode::kInvalid, what}; }

/// The flags as texts, before they are understood one by one.
struct Texts {
  std::map<std::string, std::string> by_flag;
  std::string log_level = "info";
};

struct Unit {
  const char* name;
  std::int64_t milliseconds;
};
constexpr Unit kUnits[] = {{"ms", 1}, {"s", 1000}, {"m", 60'000}, {"h", 3'600'000}};

Status take_duration(const Texts& texts, const std::string& flag, milliseconds& out) {
  const auto found = texts.by_flag.find(flag);
  if (found == texts.by_flag.end()) return {};
  auto duration = parse_duration(found->second);
  if (!duration) return duration.error().with("--" + flag);
  out = *duration;
  return {};
}

Status take_address(const Texts& texts, const std::string& flag, BindAddress& out) {
  const auto found = texts.by_flag.find(flag);
  if (found == texts.by_flag.end()) return {};
  auto address = parse_bind_address(found->second);
  if (!address) return address.error().with("--" + flag);
  out = std::move(*address);
  return {};
}

/// The check of a flag whose every value is a name of this kind.
std::function<std::string(const std::string&)> must_be(NameRule rule, const char* sentence) {
  return [rule, sentence](const std::string& name) { return matches(rule, name) ? "" : sentence; };
}

/// A name without what could lead out of its place in a path.
bool is_node_name(const std::string& text) {
  return !text.empty() && text.size() <= 253 && text.front() != '.' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

Status check_node_agent(const CLI::App& app, const Flags& flags) {
  const bool is_asked = app.count("--node-agent") > 0;
  if (is_asked && !is_node_name(flags.node_agent)) {
    return invalid("--node-agent: must be the name of a node");
  }
  for (const char* flag : {"--sysfs", "--node-agent-period"}) {
    if (!is_asked && app.count(flag) > 0)
      return invalid(std::string(flag) + ": needs --node-agent");
  }
  if (flags.node_agent_period < seconds(1)) {
    return invalid("--node-agent-period: must be at least 1s");
  }
  return {};
}

Status check_namespace(const CLI::App& app, const std::string& flag, const std::string& value) {
  if (app.count("--" + flag) == 0 || matches(NameRule::kLabel, value)) return {};
  return invalid("--" + flag + ": must be the name of a namespace; leave the flag out for " +
                 (flag == "namespace" ? "all" : "the operator's own"));
}

Status check_lease(const Flags& flags) {
  if (flags.lease_duration < seconds(1) || flags.lease_duration > kMostLease ||
      flags.lease_duration % seconds(1) != milliseconds(0)) {
    return invalid("--leader-elect-lease-duration: must be whole seconds from 1s to 1h");
  }
  if (flags.renew_deadline >= flags.lease_duration) {
    return invalid(
        "--leader-elect-renew-deadline: must be shorter than --leader-elect-lease-duration");
  }
  // The factor is the jitter of the period.
  if (flags.retry_period < milliseconds(1) || flags.retry_period * 6 / 5 >= flags.renew_deadline) {
    return invalid(
        "--leader-elect-retry-period: must be over 0 and 1.2 times shorter than "
        "--leader-elect-renew-deadline");
  }
  return {};
}

Status understand(const CLI::App& app, const Texts& texts, Flags& flags) {
  MUSTER_RETURN_IF_ERROR(take_duration(texts, "leader-elect-lease-duration", flags.lease_duration));
  MUSTER_RETURN_IF_ERROR(take_duration(texts, "leader-elect-renew-deadline", flags.renew_deadline));
  MUSTER_RETURN_IF_ERROR(take_duration(texts, "leader-elect-retry-period", flags.retry_period));
  MUSTER_RETURN_IF_ERROR(take_duration(texts, "resync-period", flags.resync_period));
  MUSTER_RETURN_IF_ERROR(take_duration(texts, "pod-start-timeout", flags.pod_start_timeout));
  MUSTER_RETURN_IF_ERROR(take_duration(texts, "node-agent-period", flags.node_agent_period));
  MUSTER_RETURN_IF_ERROR(take_address(texts, "metrics-bind-address", flags.metrics));
  MUSTER_RETURN_IF_ERROR(take_address(texts, "health-probe-bind-address", flags.health));
  MUSTER_RETURN_IF_ERROR(take_address(texts, "endpoint-bind-address", flags.endpoint));
  MUSTER_RETURN_IF_ERROR(check_namespace(app, "namespace", flags.namespace_name));
  MUSTER_RETURN_IF_ERROR(
      check_namespace(app, "leader-elect-resource-namespace", flags.lease_namespace));
  if (flags.leader_elect) MUSTER_RETURN_IF_ERROR(check_lease(flags));
  // The range check lets NaN through, which compares with nothing.
  if (!(flags.kube_api_qps >= 0)) return invalid("--kube-api-qps: must be a number, 0 or more");
  if (flags.resync_period < seconds(1)) return invalid("--resync-period: must be at least 1s");
  if (flags.pod_start_timeout < kLeastPodStart) {
    return invalid("--pod-start-timeout: must be at least 1m");
  }
  if (flags.pod_metadata.size() > kMostPodMetadata) {
    return invalid("--pod-metadata: must be " + std::to_string(kMostPodMetadata) + " at most");
  }
  if (flags.endpoint.is_off) return invalid("--endpoint-bind-address: workers cannot do without");
  MUSTER_RETURN_IF_ERROR(check_node_agent(app, flags));
  const bool serves_endpoint = flags.node_agent.empty();
  if (serves_endpoint && flags.master_dir.empty() && !flags.endpoint.is_loopback()) {
    return invalid(
        "--endpoint-bind-address: must be a loopback address (127.0.0.1:0) without --master-dir, "
        "because the endpoint then has no TLS");
  }
  static const std::map<std::string, LogLevel> kLevels{{"debug", LogLevel::kDebug},
                                                       {"info", LogLevel::kInfo},
                                                       {"warning", LogLevel::kWarning},
                                                       {"error", LogLevel::kError}};
  flags.log_level = kLevels.at(texts.log_level);
  return {};
}

/// Flags that are understood after parsing: what they look like, and their default.
struct LateFlag {
  const char* name;
  const char* type;
  const char* help;
};
constexpr LateFlag kLateFlags[] = {
    {"leader-elect-lease-duration", "DURATION",
     "how long a standby waits for a silent leader (default 15s)"},
    {"leader-elect-renew-deadline", "DURATION",
     "a leader that cannot renew for this long gives up (default 10s)"},
    {"leader-elect-retry-period", "DURATION",
     "time between two tries to get or renew the lease (default 2s)"},
    {"metrics-bind-address", "[HOST]:PORT",
     "address of the metrics; 0 = not served, port 0 = any free one (default :8443)"},
    {"health-probe-bind-address", "[HOST]:PORT",
     "address of /healthz and /readyz; 0 = not served, port 0 = any free one (default :8081)"},
    {"endpoint-bind-address", "[HOST]:PORT",
     "address of the workers' endpoint; port 0 = any free one (default :9443)"},
    {"resync-period", "DURATION",
     "how often every job is reconciled without a reason (default 300s)"},
    {"pod-start-timeout", "DURATION",
     "a worker whose pod its node has not started for this long gives up its place, and so does a "
     "gang that cannot begin without it (default 1h)"},
    {"node-agent-period", "DURATION", "how often the node agent reads sysfs (default 60s)"},
};

void add_cluster_flags(CLI::App& app, Flags& flags) {
  app.add_option("--kubeconfig", flags.kubeconfig,
                 "kubeconfig of the cluster (default: the pod's own service account)")
      ->type_name("FILE");
  app.add_option("--namespace", flags.namespace_name, "watch this namespace only (default: all)")
      ->type_name("NAME");
  app.add_flag("--leader-elect,!--no-leader-elect", flags.leader_elect,
               "only the holder of a Lease writes (default true)");
  app.add_option("--leader-elect-resource-namespace", flags.lease_namespace,
                 "namespace of the Lease (default: the operator's own)")
      ->type_name("NAME");
  app.add_option("--leader-elect-resource-name", flags.lease_name,
                 "name of the Lease (default muster-operator)")
      ->type_name("NAME")
      ->check(must_be(NameRule::kLabel, "must be the name of a Lease"));
  app.add_option("--kube-api-qps", flags.kube_api_qps,
                 "most requests a second to the API server; 0 = no limit (default 0)")
      ->type_name("NUMBER")
      ->check(CLI::Range(0.0, 1e6));
}

void add_node_agent_flags(CLI::App& app, Flags& flags) {
  app.add_option(
         "--node-agent", flags.node_agent,
         "run as the agent of this node instead of the operator: it keeps the node's "
         "annotation muster.dev/pcie as sysfs has it; of the other flags only --kubeconfig, "
         "--log-level and the agent's own count (default: none)")
      ->type_name("NODE");
  app.add_option("--sysfs", flags.sysfs, "where the node agent reads (default /sys)")
      ->type_name("DIR");
}

void add_serving_flags(CLI::App& app, Flags& flags, Texts& texts) {
  app.add_flag("--metrics-secure,!--no-metrics-secure", flags.metrics_secure,
               "serve metrics over TLS, to those whom the API server authorizes (default true)");
  app.add_option(
         "--endpoint-url", flags.endpoint_url,
         "the endpoint's URL for workers (default https://muster-endpoint.<namespace>.svc:9443)")
      ->type_name("URL");
  app.add_option("--endpoint-server-name", flags.endpoint_server_name,
                 "an additional name in the endpoint's certificate (default: none)")
      ->type_name("NAME");
  app.add_option("--master-dir", flags.master_dir,
                 "directory with ca.crt, ca.key and master-key; without it the endpoint is plain "
                 "HTTP on loopback, for development (default: none)")
      ->type_name("DIR");
  app.add_option("--worker-image", flags.worker_image,
                 "image of built-in workers (default localhost/muster/muster-worker:0.1.0)")
      ->type_name("IMAGE");
  app.add_option("--worker-metrics-port", flags.worker_metrics_port,
                 "port of the workers' metrics; 0 = none (default 0)")
      ->type_name("NUMBER")
      ->check(CLI::Range(0, 65'535));
  app.add_option(
         "--pod-groups", flags.pod_groups,
         "version of scheduling.k8s.io whose PodGroup makes the cluster's scheduler bind "
         "the pods of a gang together or not at all: v1beta1 (Kubernetes 1.37) or v1alpha2 "
         "(1.36, with the feature gate GenericWorkload); leave out where the cluster has none "
         "(default: none)")
      ->type_name("VERSION")
      ->check(CLI::IsMember({"v1beta1", "v1alpha2"}));
  app.add_option("--admission-policies", flags.admission_policies,
                 "ValidatingAdmissionPolicies that must exist, each with a binding of its name; a "
                 "missing one is reported in log and metrics; may be repeated (default: none)")
      ->type_name("NAME,NAME...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check(must_be(NameRule::kSubdomain, "must be names of policies with commas between"));
  app.add_option(
         "--pod-metadata", flags.pod_metadata,
         "labels and annotations that pods copy from their job's metadata: names, or prefixes "
         "that end with *; never below muster.dev, kubernetes.io (except "
         "app.kubernetes.io) and k8s.io; may be repeated (default: none)")
      ->type_name("NAME,NAME...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check([](const std::string& names) {
        const Status right = api::check_copied_names(names);
        return right ? std::string() : right.error().message();
      });
  app.add_option(
         "--host-network-namespaces", flags.host_network_namespaces,
         "namespaces whose own programs may use the network of their nodes "
         "(spec.worker.hostNetwork), * for all; may be repeated, and a name that is given twice "
         "counts once (default: none)")
      ->type_name("NAME,NAME...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->delimiter(',')
      ->check([](const std::string& name) {
        return matches(NameRule::kLabel, name) || name == "*"
                   ? std::string()
                   : "must be names of namespaces with commas between, or *";
      });
  app.add_option("--price-list", flags.price_list,
                 "what nodes cost (YAML), read once at the start, for status.cost of jobs "
                 "(default: none)")
      ->type_name("FILE");
  app.add_option("--log-level", texts.log_level, "lowest level that is logged (default info)")
      ->type_name("LEVEL")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}));
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Result<milliseconds> parse_duration(const std::string& text) {
  const Error wrong = invalid("must be a duration like 15s, 1m30s or 200ms, at most 24h");
  milliseconds sum{0};
  const char* at = text.data();
  const char* const end = at + text.size();
  if (at == end) return wrong;
  while (at != end) {
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0 || number > kMostDuration.count()) return wrong;
    const char* letters = stop;
    while (letters != end && *letters >= 'a' && *letters <= 'z') ++letters;
    const std::string unit(stop, letters);
    const auto found = std::find_if(std::begin(kUnits), std::end(kUnits),
                                    [&](const Unit& one) { return unit == one.name; });
    if (found == std::end(kUnits)) return wrong;
    sum += milliseconds(number * found->milliseconds);
    if (sum > kMostDuration) return wrong;
    at = letters;
  }
  return sum;
}

Result<BindAddress> parse_bind_address(const std::string& text) {
  if (text == "0") return BindAddress{"", 0, true};
  const Error wrong = invalid("must be [HOST]:PORT with a numeric host, like :8443, or 0 for off");
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return wrong;
  BindAddress address;
  const std::string port = text.substr(colon + 1);
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size()) return wrong;
  if (address.port < 0 || address.port > 65'535) return wrong;
  std::string host = text.substr(0, colon);
  if (host.empty()) return address;
  unsigned char bytes[16];
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (inet_pton(AF_INET6, host.c_str(), bytes) != 1) return wrong;
  } else if (inet_pton(AF_INET, host.c_str(), bytes) != 1) {
    return wrong;
  }
  address.host = host;
  return address;
}

std::string listen_host(const BindAddress& address, const std::string& pod_ip) {
  if (!address.host.empty()) return address.host;
  return pod_ip.find(':') == std::string::npos ? "0.0.0.0" : "::";
}

Result<CommandLine> parse_command_line(std::vector<std::string> arguments) {
  CommandLine line;
  Texts texts;
  CLI::App app{"The operator of Muster: gathers workers and keeps them in step.",
               "muster-operator"};
  // The chart's extraArgs come after its own, and may be about the same flag.
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_cluster_flags(app, line.flags);
  add_serving_flags(app, line.flags, texts);
  add_node_agent_flags(app, line.flags);
  for (const auto& flag : kLateFlags) {
    app.add_option("--" + std::string(flag.name), texts.by_flag[flag.name], flag.help)
        ->type_name(flag.type);
  }
  app.set_version_flag("--version",
                       "muster-operator " MUSTER_VERSION " " + std::string(contract::kApiVersion));
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    line.text = app.help();
    return line;
  } catch (const CLI::CallForVersion& version) {
    line.text = std::string(version.what()) + "\n";
    return line;
  } catch (const CLI::ParseError& error) {
    return invalid(first_line(error.what()));
  }
  std::erase_if(texts.by_flag, [&](const auto& flag) { return app.count("--" + flag.first) == 0; });
  MUSTER_RETURN_IF_ERROR(understand(app, texts, line.flags));
  return line;
}

}  // namespace muster::operator_main
