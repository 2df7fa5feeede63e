#include "worker/sentinel/environment.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstring>

#include "common/contract.h"
#include "common/file.h"
#include "common/http/message.h"
#include "common/messages.h"

namespace muster::sentinel {
namespace {

constexpr std::size_t kMaxValueBytes = 4096;
constexpr std::size_t kMaxCaBytes = std::size_t{64} * 1024;
constexpr std::size_t kMaxTokenBytes = std::size_t{16} * 1024;

/// Reads variables one by one and keeps the first error.
class Reader {
 public:
  explicit Reader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  /// nullopt when it is not set; an empty value counts as not set.
  std::optional<std::string> text(std::string_view name, std::size_t bytes_max = kMaxValueBytes) {
    const char* value = lookup_(name.data());
    if (value == nullptr || *value == '\0') return std::nullopt;
    if (std::strlen(value) > bytes_max) {
      fail(name, "is longer than " + std::to_string(bytes_max) + " bytes");
      return std::nullopt;
    }
    return value;
  }

  std::string required(std::string_view name, const char* example) {
    auto value = text(name);
    if (!value) fail(name, std::string("is not set; it is needed, for example ") + example);
    return value.value_or("");
  }

  std::optional<std::int64_t> number(std::string_view name, std::int64_t least, std::int64_t most) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    std::int64_t number = 0;
    const auto [end, wrong] = std::from_chars(value->data(), value->data() + value->size(), number);
    if (wrong != std::errc() || end != value->data() + value->size() || number < least ||
        number > most) {
      fail(name, "must be a number from " + std::to_string(least) + " to " + std::to_string(most) +
                     ", not \"" + value->substr(0, 64) + "\"");
      return std::nullopt;
    }
    return number;
  }

  int required_number(std::string_view name, int least, int most) {
    if (lookup_(name.data()) == nullptr) {
      fail(name, "is not set; it is needed, a number from " + std::to_string(least) + " to " +
                     std::to_string(most));
    }
    return static_cast<int>(number(name, least, most).value_or(least));
  }

  void fail(std::string_view name, const std::string& message) {
    if (error_) return;
    error_ = Error(ErrorCode::kInvalid, std::string(name) + " " + message)
                 .with_exit_code(contract::exit_code::kUsage);
  }
  const std::optional<Error>& error() const { return error_; }

 private:
  const EnvironmentLookup& lookup_;
  std::optional<Error> error_;
};

bool is_numeric_address(const std::string& text) {
  unsigned char buffer[16];
  return inet_pton(AF_INET, text.c_str(), buffer) == 1 ||
         inet_pton(AF_INET6, text.c_str(), buffer) == 1;
}

/// "1.2.3.4", "1.2.3.4:80", "::1", "[::1]" or "[::1]:80".
bool split_bind(const std::string& text, int processes, WorkerConfig& config) {
  std::string port;
  if (is_numeric_address(text)) {
    config.bind_address = text;
    return true;
  }
  if (text.starts_with('[')) {
    const std::size_t close = text.find(']');
    if (close == std::string::npos) return false;
    config.bind_address = text.substr(1, close - 1);
    if (close + 1 == text.size()) return is_numeric_address(config.bind_address);
    if (text[close + 1] != ':') return false;
    port = text.substr(close + 2);
  } else {
    const std::size_t colon = text.find(':');
    if (colon == std::string::npos) return false;
    config.bind_address = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  const auto [end, wrong] =
      std::from_chars(port.data(), port.data() + port.size(), config.bind_port);
  return is_numeric_address(config.bind_address) && wrong == std::errc() &&
         end == port.data() + port.size() && config.bind_port >= 0 &&
         config.bind_port + processes - 1 <= 65535;
}

void read_job(Reader& in, WorkerConfig& config) {
  config.job = in.required(contract::kEnvJob, "default/digits");
  const std::size_t slash = config.job.find('/');
  config.namespace_name = config.job.substr(0, slash);
  if (slash != std::string::npos) config.job_name = config.job.substr(slash + 1);
  if (config.namespace_name.empty() || config.job_name.empty() ||
      config.job_name.find('/') != std::string::npos) {
    in.fail(contract::kEnvJob,
            "must be <namespace>/<name>, not \"" + config.job.substr(0, 64) + "\"");
  }
  config.workers = in.required_number(contract::kEnvWorkers, 1, kMaxWorkers);
  config.slot = in.required_number(contract::kEnvSlot, 0, kMaxWorkers - 1);
  config.attempt = in.required_number(contract::kEnvAttempt, 0, 1'000'000'000);
  config.processes =
      static_cast<int>(in.number(contract::kEnvProcesses, 1, kMaxProcesses).value_or(1));
  config.gpus = static_cast<int>(in.number(contract::kEnvGpus, 0, kMaxGpus).value_or(0));
}

void read_endpoint(Reader& in, WorkerConfig& config) {
  config.endpoint = in.required(contract::kEnvEndpoint, "http://127.0.0.1:8080");
  const auto url = http::parse_url(config.endpoint);
  if (!url) in.fail(contract::kEnvEndpoint, "is wrong: " + url.error().message());
  while (config.endpoint.ends_with('/')) config.endpoint.pop_back();
  config.ca_certificate = in.text(contract::kEnvCaCert, kMaxCaBytes).value_or("");
  const bool is_https = url && url->tls;
  if (is_https && config.ca_certificate.empty()) {
    in.fail(contract::kEnvCaCert, "is not set; an https endpoint is trusted by its CA alone");
  }
  if (!is_https && !config.ca_certificate.empty()) {
    // Whoever gave a CA wants the token to go nowhere else.
    in.fail(contract::kEnvEndpoint, std::string("must begin with https:// where ") +
                                        contract::kEnvCaCert.data() + " is set");
  }
  if (!config.ca_certificate.empty() &&
      config.ca_certificate.find("-----BEGIN CERTIFICATE-----") == std::string::npos) {
    in.fail(contract::kEnvCaCert, "must be a certificate in PEM");
  }
  config.token_file = in.required(contract::kEnvTokenFile, "/var/run/secrets/muster/token");
  config.pod_ip = in.text(contract::kEnvPodIp).value_or("");
  if (!config.pod_ip.empty() && !is_numeric_address(config.pod_ip)) {
    in.fail(contract::kEnvPodIp,
            "must be a numeric address, not \"" + config.pod_ip.substr(0, 64) + "\"");
  }
}

void read_node(Reader& in, WorkerConfig& config) {
  config.rack = in.text(contract::kEnvRack).value_or("");
  config.node = in.text(contract::kEnvNode).value_or("");
  const bool is_name = config.node.size() <= kMaxDomainBytes &&
                       std::all_of(config.node.begin(), config.node.end(), [](unsigned char c) {
                         return std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
                       });
  if (is_name) return;
  in.fail(contract::kEnvNode, "must be a node's name: letters, digits, '-', '.' and '_', at most " +
                                  std::to_string(kMaxDomainBytes) + " of them");
}

void read_log_level(Reader& in, WorkerConfig& config) {
  const auto text = in.text(contract::kEnvLogLevel);
  if (!text) return;
  if (*text == "debug") {
    config.log_level = LogLevel::kDebug;
  } else if (*text == "info") {
    config.log_level = LogLevel::kInfo;
  } else if (*text == "warning") {
    config.log_level = LogLevel::kWarning;
  } else if (*text == "error") {
    config.log_level = LogLevel::kError;
  } else {
    in.fail(contract::kEnvLogLevel,
            "must be debug, info, warning or error, not \"" + text->substr(0, 64) + "\"");
  }
}

}  // namespace

Result<WorkerConfig> parse_environment(const EnvironmentLookup& lookup) {
  Reader in(lookup);
  WorkerConfig config;
  if (const auto path = in.text(contract::kEnvTerminationLog)) {
    config.termination_log = *path;
    config.is_termination_log_given = true;
  }
  read_log_level(in, config);
  read_job(in, config);
  read_endpoint(in, config);
  read_node(in, config);
  const auto bind = in.text(contract::kEnvBind);
  if (!bind && config.pod_ip.find(':') != std::string::npos) config.bind_address = "::";
  if (bind && !split_bind(*bind, config.processes, config)) {
    in.fail(contract::kEnvBind,
            "must be a numeric address, with a port if one is wanted, like "
            "0.0.0.0 or 0.0.0.0:7000, not \"" +
                bind->substr(0, 64) + "\"");
  }
  config.metrics_port =
      static_cast<int>(in.number(contract::kEnvMetricsPort, 0, 65535).value_or(0));
  config.data_root = in.text(contract::kEnvDataRoot).value_or(config.data_root);
  config.checkpoint_path = in.text(contract::kEnvCheckpointPath).value_or("");
  config.force_target = in.text(contract::kEnvForceTarget).value_or("");
  config.hash_every = in.number(contract::kEnvHashEvery, 0, std::int64_t{1} << 53);
  if (in.error()) return *in.error();
  return config;
}

Result<std::string> read_token(const std::string& path) {
  const std::string name = "token file " + path;
  const std::string should = "; it must hold the bearer token of the endpoint";
  auto token = read_file(path, kMaxTokenBytes);
  if (!token && token.error().code() == ErrorCode::kTooLarge) {
    return Error(ErrorCode::kInvalid, name + " is over 16 KiB" + should);
  }
  if (!token) return Error(ErrorCode::kIo, "token file " + token.error().message());
  while (token->ends_with('\n') || token->ends_with('\r')) token->pop_back();
  if (token->empty()) return Error(ErrorCode::kInvalid, name + " is empty" + should);
  return token;
}

}  // namespace muster::sentinel
