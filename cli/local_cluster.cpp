#include "cli/local_cluster.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>

#include "cli/files.h"
#include "cli/local_environment.h"
#include "common/contract.h"
#include "common/http/server.h"
#include "operator/embedded/api_server.h"
#include "operator/embedded/process_kubelet.h"
#include "operator/runtime/job_key.h"
#include "operator/runtime/metrics.h"
#include "operator/runtime/metrics_transport.h"
#include "operator/runtime/operator.h"
#include "operator/runtime/workers_endpoint.h"

namespace muster::cli {
namespace {

constexpr seconds kStartDeadline{10};
constexpr int kProcessorsShared = 64;  ///< workers' processors per real one: a laptop shares them

/// What the machine offers: its memory and GPUs, and processors without counting closely.
std::map<std::string, std::string> allocatable_of_machine(
    const std::map<std::string, std::string>& environment) {
  const auto processors = static_cast<long>(std::max(1U, std::thread::hardware_concurrency()));
  const std::int64_t memory = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return {{"cpu", std::to_string(processors * kProcessorsShared)},
          {"memory", std::to_string(memory)},
          {"nvidia.com/gpu", std::to_string(visible_gpus(environment).size())},
          {"pods", "4096"}};
}

using AdaptEnvironment = std::function<void(std::map<std::string, std::string>&)>;

/// Pods have addresses of their own; processes of one machine share its ports.
AdaptEnvironment worker_ports(AdaptEnvironment before, int first_port) {
  return [before = std::move(before), first_port](std::map<std::string, std::string>& environment) {
    if (before) before(environment);
    const auto slot = environment.find(std::string(contract::kEnvSlot));
    if (slot == environment.end()) return;
    const int port = first_port + std::atoi(slot->second.c_str());
    if (port > 65'535) return;
    environment[std::string(contract::kEnvMetricsPort)] = std::to_string(port);
  };
}

class Cluster final : public LocalCluster {
 public:
  explicit Cluster(LocalClusterOptions options)
      : options_(std::move(options)),
        server_({options_.clock}),
        metrics_({options_.clock, MUSTER_VERSION}),
        measured_(
            runtime::make_measured_transport({&server_, &metrics_, options_.clock, "embedded"})),
        measured_client_(kube::make_rest_client(*measured_)) {}
  ~Cluster() override { stop(milliseconds(0)); }

  Status start();
  kube::ApiClient& client() override { return *client_; }
  std::map<std::string, int> running() const override { return kubelet_->running(); }
  void stop(milliseconds grace) override;

 private:
  Status start_endpoint(const std::string& token);
  Status start_operator();
  Status start_kubelet();
  Status start_metrics();

  LocalClusterOptions options_;
  embedded::ApiServer server_;
  runtime::Metrics metrics_;
  /// The operator's own way to the server; the kubelet and the user have one each.
  std::unique_ptr<kube::HttpTransport> measured_;
  std::unique_ptr<kube::ApiClient> measured_client_;
  std::unique_ptr<kube::ApiClient> client_ = kube::make_rest_client(server_);
  std::unique_ptr<runtime::Authenticator> authenticator_;
  std::atomic<runtime::Operator*> reported_to_{nullptr};
  std::unique_ptr<runtime::WorkersEndpoint> endpoint_;
  std::unique_ptr<runtime::Operator> operator_;
  std::unique_ptr<embedded::ProcessKubelet> kubelet_;
  std::unique_ptr<http::Server> metrics_server_;
};

Status Cluster::start() {
  MUSTER_ASSIGN_OR_RETURN(const std::string token, runtime::random_key());
  MUSTER_RETURN_IF_ERROR(write_file_atomically(options_.token_file, token, 0600));
  MUSTER_RETURN_IF_ERROR(start_endpoint(token));
  // The node is registered before the operator looks: a job must not hear that there is none.
  MUSTER_RETURN_IF_ERROR(start_kubelet());
  MUSTER_RETURN_IF_ERROR(start_metrics());
  return start_operator();
}

Status Cluster::start_metrics() {
  metrics_.set_leader(true);
  if (options_.metrics_port == 0) return {};
  http::ServerOptions server;
  server.port = options_.metrics_port;
  auto started = http::Server::start(
      server, [this](const http::Request& request, const http::Responder& respond) {
        if (request.path == "/metrics") {
          return respond({200, "text/plain; version=0.0.4", metrics_.render(), {}});
        }
        respond({404, "text/plain", "here is /metrics\n", {}});
      });
  if (!started) return started.error().with("--metrics-port");
  metrics_server_ = std::move(*started);
  return {};
}

Status Cluster::start_endpoint(const std::string& token) {
  authenticator_ = runtime::make_local_authenticator(token);
  runtime::WorkersEndpointOptions endpoint;
  endpoint.clock = options_.clock;
  endpoint.authenticator = authenticator_.get();
  endpoint.on_answer = [this](std::string_view path, int code) {
    metrics_.on_endpoint(path, code);
  };
  endpoint.on_progress = [this](const ProgressReport& report) {
    runtime::Operator* const decider = reported_to_.load();
    if (decider != nullptr && !decider->post_progress(report)) return false;
    if (options_.on_progress) options_.on_progress(report);
    return true;
  };
  endpoint.on_witness = [this](const WitnessRequest& request, runtime::WitnessAnswer answer) {
    if (runtime::Operator* decider = reported_to_.load()) {
      return decider->post_witness(request, std::move(answer));
    }
    answer(Error(ErrorCode::kUnavailable, "the operator is starting; ask again"));
  };
  auto made = runtime::make_workers_endpoint(std::move(endpoint));
  if (!made) return made.error().with("the workers' endpoint");
  endpoint_ = std::move(*made);
  return {};
}

Status Cluster::start_operator() {
  runtime::MasterKeys master_keys;
  MUSTER_ASSIGN_OR_RETURN(master_keys.current, runtime::random_key());
  runtime::OperatorOptions options;
  options.client = measured_client_.get();
  options.metrics = &metrics_;
  if (options_.prices) options.prices = &*options_.prices;
  options.endpoint = endpoint_.get();
  options.clock = options_.clock;
  options.pods.endpoint_url = endpoint_->url();
  options.pods.default_image = "muster-worker";
  options.namespace_name = options_.namespace_name;
  options.nodes_may_come = false;
  options.master_keys = std::move(master_keys);
  options.reporting_instance = "muster-run";
  auto started = runtime::Operator::start(std::move(options));
  if (!started) return started.error().with("the operator");
  operator_ = std::move(*started);
  reported_to_.store(operator_.get());
  return operator_->wait_synced(options_.clock->mono_now() + kStartDeadline);
}

Status Cluster::start_kubelet() {
  embedded::ProcessKubeletOptions options;
  options.client = client_.get();
  options.transport = &server_;
  options.clock = options_.clock;
  options.allocatable = allocatable_of_machine(options_.base_environment);
  options.gpus = visible_gpus(options_.base_environment);
  options.worker_program = options_.worker_program;
  options.base_environment = options_.base_environment;
  options.extra_env = options_.extra_env;
  options.extra_env.emplace_back(contract::kEnvTokenFile, options_.token_file);
  options.log_directory = options_.log_directory;
  options.working_directory = options_.working_directory;
  if (options_.ports > 0) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<int> ports, free_ports(options_.ports));
    options.adapt_environment = [ports](std::map<std::string, std::string>& environment) {
      adapt_to_loopback(environment, ports);
    };
  }
  if (options_.metrics_port > 0) {
    options.adapt_environment =
        worker_ports(std::move(options.adapt_environment), options_.metrics_port + 1);
  }
  auto started = embedded::ProcessKubelet::start(std::move(options));
  if (!started) return started.error();
  kubelet_ = std::move(*started);
  return {};
}

/// Workers first, while the endpoint still hears their last reports; then who decides.
void Cluster::stop(milliseconds grace) {
  if (kubelet_) kubelet_->stop(grace);
  if (endpoint_) endpoint_->stop();
  if (operator_) operator_->stop();
  if (metrics_server_) metrics_server_->stop();
  ::unlink(options_.token_file.c_str());
}

}  // namespace

Status LocalCluster::set_workers(const std::string& job, int count) {
  const Json patch{{"spec", {{"worker", {{"count", count}}}}}};
  const auto slash = job.find('/');
  if (slash == std::string::npos) {
    return Error(ErrorCode::kInvalid, "\"" + job + "\" is no <namespace>/<name>");
  }
  const api::ObjectKey key{job.substr(0, slash), job.substr(slash + 1)};
  const auto patched = client().merge_patch(api::Kind::kTrainingJob, key, "", patch);
  return patched ? Status() : Status(patched.error().with("spec.worker.count of " + job));
}

Result<std::unique_ptr<LocalCluster>> LocalCluster::start(LocalClusterOptions options) {
  auto cluster = std::make_unique<Cluster>(std::move(options));
  MUSTER_RETURN_IF_ERROR(cluster->start());
  return std::unique_ptr<LocalCluster>(std::move(cluster));
}

}  // namespace muster::cli
