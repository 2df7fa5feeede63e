#include <algorithm>
#include <charconv>

#include "operator/kube/kubeconfig.h"
#include "operator/kube/small_file.h"

namespace muster::kube {
namespace {

bool is_host(const std::string& text) {
  return !text.empty() && text.size() <= 253 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '.' || c == '-' || c == ':' || c == '_';
         });
}

bool is_port(const std::string& text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  return error == std::errc() && end == text.data() + text.size() && port > 0 && port < 65'536;
}

}  // namespace

Result<ClusterAccess> in_cluster_access(const std::string& host, const std::string& port,
                                        const std::string& directory) {
  if (host.empty() || port.empty()) {
    return Error(ErrorCode::kInvalid,
                 "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: this is no pod; "
                 "name a kubeconfig with --kubeconfig FILE");
  }
  if (!is_host(host)) {
    return Error(ErrorCode::kInvalid, "KUBERNETES_SERVICE_HOST: must be a host name or an address");
  }
  if (!is_port(port)) {
    return Error(ErrorCode::kInvalid, "KUBERNETES_SERVICE_PORT: must be a port from 1 to 65535");
  }
  ClusterAccess access;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  access.transport.url = "https://" + (is_ipv6 ? "[" + host + "]" : host) + ":" + port;
  access.transport.ca.file = directory + "/ca.crt";
  access.transport.token_file = directory + "/token";
  // Looked at now, because without a token every call would be refused one by one.
  MUSTER_RETURN_IF_ERROR([&]() -> Status {
    const auto token = read_small_file(access.transport.token_file);
    return token ? Status() : Status(token.error());
  }());
  if (auto name = read_small_file(directory + "/namespace")) {
    access.namespace_name = name->substr(0, name->find_first_of("\r\n \t"));
  }
  return access;
}

}  // namespace muster::kube
