// The flags of muster-operator: names and defaults as users of controller-runtime programs know
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "common/result.h"

namespace muster::operator_main {

/// "host:port" with a numeric host.
struct BindAddress {
  std::string host;  ///< empty: every address, see listen_host
  int port = 0;
  bool is_off = false;  ///< "0": not served
  bool is_loopback() const { return host.starts_with("127.") || host == "::1"; }
};

struct Flags {
  std::string kubeconfig;  ///< empty = the pod's own surroundings
  std::string namespace_name;
  bool leader_elect = true;
  milliseconds lease_duration{15'000};  ///< whole seconds
  milliseconds renew_deadline{10'000};
  milliseconds retry_period{2'000};
  std::string lease_namespace;  ///< empty = the operator's own
  std::string lease_name = "muster-operator";
  BindAddress metrics{"", 8443, false};
  bool metrics_secure = true;
  BindAddress health{"", 8081, false};
  BindAddress endpoint{"", 9443, false};
  std::string endpoint_url;  ///< empty = by namespace, or the bound loopback address
  std::string endpoint_server_name;
  std::string master_dir;
  std::string worker_image = "localhost/muster/muster-worker:0.1.0";
  int worker_metrics_port = 0;
  std::string pod_groups;                       ///< v1beta1, v1alpha2, or empty = none are made
  std::vector<std::string> admission_policies;  ///< looked at from time to time; empty = none
  std::vector<std::string> pod_metadata;        ///< PodOptions::copied_names
  std::vector<std::string> host_network_namespaces;  ///< PodOptions
  std::string price_list;                            ///< file; empty = cost is not counted
  double kube_api_qps = 0;                           ///< 0 = no limit
  milliseconds resync_period{300'000};
  milliseconds pod_start_timeout{3'600'000};
  LogLevel log_level = LogLevel::kInfo;
  std::string
      node_agent;  ///< of which node; empty = the operator. Most flags above say nothing then
  std::string sysfs = "/sys";
  milliseconds node_agent_period{60'000};
};

/// What the command line asks for: flags to run with, or a text for stdout and then success.
struct CommandLine {
  Flags flags;
  std::optional<std::string> text;
};

/// `arguments` without the program's name. Errors: kInvalid, one line that names the flag.
Result<CommandLine> parse_command_line(std::vector<std::string> arguments);

/// "15s", "1m30s", "200ms", "1h" as Go writes them, at most 24 hours. Errors: kInvalid.
Result<milliseconds> parse_duration(const std::string& text);

/// ":8443", "127.0.0.1:0", "[::1]:80", or "0" for off. Errors: kInvalid.
Result<BindAddress> parse_bind_address(const std::string& text);

/// What to listen on: the host that was given, else every address of the family that the pod's own
/// is of. "::" takes IPv4, too, where the system has it; on a cluster of IPv6 alone nobody could
/// reach 0.0.0.0.
std::string listen_host(const BindAddress& address, const std::string& pod_ip);

}  // namespace muster::operator_main
