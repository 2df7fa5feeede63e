#include "cli/local_environment.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "common/json.h"

namespace muster::cli {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr std::size_t kGpusMost = 64;

/// A socket bound to a free port, which stays taken until the socket is closed.
int bound_socket(int& port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(fd, generic, length) != 0 || ::getsockname(fd, generic, &length) != 0) {
    ::close(fd);
    return -1;
  }
  port = ntohs(address.sin_port);
  return fd;
}

void replace(std::map<std::string, std::string>& environment, const char* name,
             const std::string& value) {
  if (const auto found = environment.find(name); found != environment.end()) {
    found->second = value;
  }
}

std::string loopback_tf_config(const std::string& text, const std::vector<int>& ports) {
  auto config = parse_json(text);
  if (!config) return text;
  const Json::json_pointer place("/cluster/worker");
  if (!config->contains(place) || !config->at(place).is_array()) return text;
  // An elastic job has ports for as many as there may be, and lists those that there are.
  const std::size_t count = std::min(config->at(place).size(), ports.size());
  Json workers = Json::array();
  for (std::size_t i = 0; i < count; ++i) {
    workers.push_back(std::string(kLoopback) + ":" + std::to_string(ports[i]));
  }
  (*config)["cluster"] = {{"worker", std::move(workers)}};
  return dump_json(*config);
}

}  // namespace

Result<std::vector<int>> free_ports(int count) {
  std::vector<int> ports, sockets;
  int failure = 0;
  for (int i = 0; i < count; ++i) {
    int port = 0;
    const int fd = bound_socket(port);
    if (fd < 0) {
      failure = errno;
      break;
    }
    sockets.push_back(fd);
    ports.push_back(port);
  }
  for (const int fd : sockets) ::close(fd);
  if (failure != 0) {
    return Error(ErrorCode::kIo, "cannot find " + std::to_string(count) +
                                     " free ports: " + std::generic_category().message(failure));
  }
  return ports;
}

std::vector<std::string> visible_gpus(const std::map<std::string, std::string>& environment,
                                      const std::string& driver) {
  std::vector<std::string> names;
  if (const auto listed = environment.find("CUDA_VISIBLE_DEVICES"); listed != environment.end()) {
    std::istringstream devices(listed->second);
    for (std::string one; names.size() < kGpusMost && std::getline(devices, one, ',');) {
      if (one.empty() || one[0] == '-') break;
      names.push_back(one);
    }
    return names;
  }
  std::error_code none;
  for (std::filesystem::directory_iterator gpu(driver, none), end; !none && gpu != end;
       gpu.increment(none)) {
    if (names.size() < kGpusMost) names.push_back(std::to_string(names.size()));
  }
  return names;
}

void adapt_to_loopback(std::map<std::string, std::string>& environment,
                       const std::vector<int>& ports) {
  if (ports.empty()) return;
  const std::string port = std::to_string(ports.front());
  for (const char* name : {"MASTER_ADDR", "PET_MASTER_ADDR"}) replace(environment, name, kLoopback);
  for (const char* name : {"MASTER_PORT", "PET_MASTER_PORT"}) replace(environment, name, port);
  replace(environment, "PET_RDZV_ENDPOINT", std::string(kLoopback) + ":" + port);
  if (const auto found = environment.find("TF_CONFIG"); found != environment.end()) {
    found->second = loopback_tf_config(found->second, ports);
  }
}

}  // namespace muster::cli
