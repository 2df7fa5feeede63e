#include "operator/main_run.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "common/contract.h"
#include "operator/kube/transport_guards.h"
#include "operator/runtime/certificates.h"
#include "operator/runtime/elector.h"
#include "operator/runtime/guardrails.h"
#include "operator/runtime/health.h"
#include "operator/runtime/job_key.h"
#include "operator/runtime/metrics.h"
#include "operator/runtime/metrics_server.h"
#include "operator/runtime/metrics_transport.h"
#include "operator/runtime/operator.h"
#include "operator/runtime/price_file.h"
#include "operator/runtime/token_review.h"

namespace muster::operator_main {
namespace {

namespace codes = contract::exit_code;

/// The deciding thread comes round every second; a probe must not kill it for one slow moment.
constexpr seconds kStuckAfter{120};
/// For the writes that are under way when this process is asked to end: with the release of the
/// Lease less than the time that its pod has for that.
constexpr seconds kLastWritesMost{8};
constexpr const char* kDefaultNamespace = "muster";

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

/// Whether the cluster serves the PodGroups of this version, or may: what it does not say is taken
/// for yes. The flag is as old as the chart's last upgrade; the cluster may be younger. Blocks: one
/// exchange.
bool may_serve_pod_groups(kube::HttpTransport& transport, const std::string& version) {
  constexpr int kUnknown = 404;
  kube::HttpRequest request;
  request.path = "/apis/scheduling.k8s.io/" + version;
  const auto answer = transport.send(request);
  if (!answer || answer->code != kUnknown) return true;
  log_warning("no PodGroups are created: the cluster does not serve this version of them",
              {{"version", version}, {"help", "helm upgrade finds the one that it serves"}});
  return false;
}

/// A flag set once by another thread, that poll() can wait for.
class Alarm {
 public:
  Alarm() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    MUSTER_CHECK(descriptor_ >= 0);
  }
  ~Alarm() { ::close(descriptor_); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  void ring() const {
    const std::uint64_t one = 1;
    (void)!::write(descriptor_, &one, sizeof one);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

class Process {
 public:
  Process(const Flags& flags, const Surroundings& surroundings)
      : flags_(flags), surroundings_(surroundings) {}

  Status start();
  /// Until a signal or the loss of the Lease. Returns the exit code.
  int wait(int signal_fd);
  void stop();

 private:
  Status connect();
  Status read_prices();
  Status start_trust();
  Status start_endpoint();
  Status start_health();
  Status start_metrics();
  void start_elector();
  Status start_operator();
  void start_guardrails();
  std::string endpoint_url() const;
  std::string not_ready() const;
  std::string not_alive() const;
  std::string identity() const;
  std::string leader_address() const;

  const Flags& flags_;
  const Surroundings& surroundings_;
  const SystemClock clock_;
  const Alarm lost_;
  std::string namespace_;  ///< the operator's own
  std::optional<api::PriceList> prices_;
  std::uint64_t seed_ = 1;

  // In this order each uses those above it.
  std::unique_ptr<runtime::Metrics> metrics_;
  std::unique_ptr<kube::HttpTransport> calls_, lease_calls_;
  std::unique_ptr<kube::HttpTransport> measured_calls_, measured_lease_calls_;
  std::unique_ptr<kube::HttpTransport> limited_, fenced_;
  std::unique_ptr<kube::ApiClient> client_;
  std::unique_ptr<kube::ApiClient> reviews_;  ///< not fenced: standbys look at tokens too
  std::unique_ptr<runtime::Trust> trust_;     ///< nullptr without --master-dir
  runtime::MasterKeys master_keys_;
  std::unique_ptr<runtime::Reviewer> reviewer_;
  std::unique_ptr<runtime::Authenticator> authenticator_;
  std::atomic<const runtime::Elector*> known_elector_{nullptr};
  std::atomic<runtime::Operator*> reported_to_{nullptr};
  std::unique_ptr<runtime::WorkersEndpoint> endpoint_;
  std::unique_ptr<runtime::Elector> elector_;
  std::unique_ptr<kube::ClosingFence> fence_;
  std::unique_ptr<runtime::Operator> operator_;
  std::unique_ptr<runtime::Guardrails> guardrails_;
  std::unique_ptr<runtime::Health> health_;
  std::unique_ptr<runtime::MetricsServer> metrics_server_;
};

Status Process::connect() {
  auto access = cluster_access(flags_, surroundings_);
  if (!access) return access.error();
  namespace_ = surroundings_.pod_namespace;
  if (namespace_.empty()) namespace_ = access->namespace_name;
  if (namespace_.empty()) namespace_ = kDefaultNamespace;
  access->transport.clock = &clock_;
  access->transport.user_agent = "muster-operator/" MUSTER_VERSION;
  for (auto* transport : {&calls_, &lease_calls_}) {
    auto made = kube::make_rest_transport(access->transport);
    if (!made) return made.error().with_exit_code(codes::kUsage);
    *transport = std::move(*made);
  }
  runtime::MetricsOptions metrics;
  metrics.clock = &clock_;
  metrics.version = MUSTER_VERSION;
  metrics.leader_name = flags_.lease_name;
  metrics_ = std::make_unique<runtime::Metrics>(metrics);
  const std::string& url = access->transport.url;
  const std::string host = url.substr(url.find("//") + 2);
  measured_calls_ = runtime::make_measured_transport({calls_.get(), metrics_.get(), &clock_, host});
  measured_lease_calls_ =
      runtime::make_measured_transport({lease_calls_.get(), metrics_.get(), &clock_, host});
  ::getrandom(&seed_, sizeof seed_, 0);
  return {};
}

Status Process::read_prices() {
  if (flags_.price_list.empty()) return {};
  auto prices = runtime::read_price_file(flags_.price_list);
  if (!prices) return prices.error().with("--price-list");
  prices_ = std::move(*prices);
  return {};
}

Status Process::start_endpoint() {
  reviews_ = kube::make_rest_client(*measured_calls_);
  runtime::ReviewerOptions reviewer;
  reviewer.client = reviews_.get();
  reviewer.clock = &clock_;
  reviewer_ = runtime::Reviewer::start(reviewer);
  authenticator_ = runtime::make_token_review_authenticator(*reviewer_);
  runtime::WorkersEndpointOptions options;
  if (trust_) {
    options.tls = trust_->identity();
    options.ca_bundle = [this] { return trust_->ca_bundle(); };
    options.leader_address = [this] { return leader_address(); };
  }
  options.address = listen_host(flags_.endpoint, surroundings_.pod_ip);
  options.port = flags_.endpoint.port;
  options.clock = &clock_;
  options.authenticator = authenticator_.get();
  options.on_progress = [this](const ProgressReport& report) {
    runtime::Operator* const decider = reported_to_.load();
    return decider == nullptr || decider->post_progress(report);
  };
  options.on_witness = [this](const WitnessRequest& request, runtime::WitnessAnswer answer) {
    if (runtime::Operator* decider = reported_to_.load()) {
      return decider->post_witness(request, std::move(answer));
    }
    answer(Error(ErrorCode::kUnavailable, "the operator is starting; ask again"));
  };
  options.on_answer = [this](std::string_view path, int code) {
    metrics_->on_endpoint(path, code);
  };
  auto made = runtime::make_workers_endpoint(std::move(options));
  if (!made) return made.error().with("--endpoint-bind-address");
  endpoint_ = std::move(*made);
  if (trust_) {
    trust_->on_identity([this](const http::TlsIdentity& identity) {
      if (const Status replaced = endpoint_->replace_identity(identity); !replaced) {
        log_error("the endpoint keeps its old certificate",
                  {{"error", replaced.error().message()}});
      }
    });
  }
  return {};
}

/// What the endpoint and the metrics prove themselves with; nothing without --master-dir.
Status Process::start_trust() {
  if (flags_.master_dir.empty()) {
    MUSTER_ASSIGN_OR_RETURN(master_keys_.current, runtime::random_key());
    return {};
  }
  std::vector<std::string> more;
  for (const std::string& name : {surroundings_.pod_ip, flags_.endpoint_server_name}) {
    if (!name.empty()) more.push_back(name);
  }
  runtime::TrustOptions options;
  options.master_dir = flags_.master_dir;
  options.names = runtime::serving_names(namespace_, more);
  options.clock = &clock_;
  auto started = runtime::Trust::start(std::move(options));
  if (!started) return started.error().with("--master-dir").with_exit_code(codes::kUsage);
  trust_ = std::move(*started);
  trust_->on_identity(
      [this](const http::TlsIdentity&) { metrics_->set_ca_end(trust_->authority_end()); });
  master_keys_ = trust_->master_keys();
  return {};
}

/// Of another replica that leads; empty when this one does, or nobody.
std::string Process::leader_address() const {
  const runtime::Elector* elector = known_elector_.load();
  if (elector == nullptr || elector->leading()) return "";
  const std::string holder = elector->holder();
  return holder == identity() ? "" : runtime::address_of_identity(holder);
}

/// "<pod name>@<ip>:<endpoint port>": unlike any other live process, and where workers' posts can
/// be forwarded to.
std::string Process::identity() const {
  const std::string url = endpoint_->url();
  const std::string port = url.substr(url.rfind(':'));
  const std::string name = surroundings_.pod_name.empty() ? host_name() : surroundings_.pod_name;
  const std::string ip =
      surroundings_.pod_ip.empty() ? listen_host(flags_.endpoint, "") : surroundings_.pod_ip;
  return name + "@" + (ip.find(':') == std::string::npos ? ip : "[" + ip + "]") + port;
}

void Process::start_elector() {
  runtime::ElectorOptions options;
  options.transport = measured_lease_calls_.get();
  options.clock = &clock_;
  options.seed = seed_;
  options.election.lease = {flags_.lease_namespace.empty() ? namespace_ : flags_.lease_namespace,
                            flags_.lease_name};
  options.election.identity = identity();
  options.election.lease_duration = std::chrono::duration_cast<seconds>(flags_.lease_duration);
  options.election.renew_deadline = flags_.renew_deadline;
  options.election.retry_period = flags_.retry_period;
  options.on_leading = [this] {
    metrics_->set_leader(true);
    if (runtime::Operator* decider = reported_to_.load()) decider->lead();
  };
  options.on_lost = [this] {
    metrics_->set_leader(false);
    lost_.ring();
  };
  elector_ = runtime::Elector::start(std::move(options));
  known_elector_.store(elector_.get());
}

Status Process::start_operator() {
  kube::HttpTransport* transport = measured_calls_.get();
  if (flags_.kube_api_qps > 0) {
    limited_ = kube::make_limited_transport(*transport, flags_.kube_api_qps, clock_);
    transport = limited_.get();
  }
  // Before anybody waits for a leader.
  const bool has_groups =
      !flags_.pod_groups.empty() && may_serve_pod_groups(*transport, flags_.pod_groups);
  if (flags_.leader_elect) {
    start_elector();
  } else {
    metrics_->set_leader(true);
  }
  fence_ = std::make_unique<kube::ClosingFence>(elector_.get());
  fenced_ = kube::make_fenced_transport(*transport, *fence_, clock_);
  client_ = kube::make_rest_client(*fenced_, kube::kPatientWrite);
  runtime::OperatorOptions options;
  options.client = client_.get();
  options.endpoint = endpoint_.get();
  options.clock = &clock_;
  options.pods.endpoint_url = endpoint_url();
  if (trust_) {
    options.trust = [this] {
      return runtime::WorkerTrust{trust_->ca_bundle(), trust_->master_keys()};
    };
  }
  options.pods.default_image = flags_.worker_image;
  options.pods.worker_metrics_port = flags_.worker_metrics_port;
  options.pods.copied_names = flags_.pod_metadata;
  options.pods.host_network_namespaces = flags_.host_network_namespaces;
  if (has_groups) {
    options.pods.pod_groups =
        flags_.pod_groups == "v1beta1" ? api::Kind::kPodGroup : api::Kind::kPodGroupV1Alpha2;
  }
  options.metrics = metrics_.get();
  if (prices_) options.prices = &*prices_;
  options.namespace_name = flags_.namespace_name;
  options.sees_nodes = flags_.namespace_name.empty();
  options.sees_volumes = options.sees_nodes;
  options.sees_queues = options.sees_nodes;
  options.sees_topologies = options.sees_nodes;
  options.sees_kueue = true;
  options.is_leader = !flags_.leader_elect;
  options.master_keys = master_keys_;
  options.seed = seed_;
  // Two replicas never share a name, so events tell which one wrote them.
  const std::string who = identity();
  options.reporting_instance = who.substr(0, who.find('@'));
  options.resync = std::chrono::ceil<seconds>(flags_.resync_period);
  options.pod_start_timeout = std::chrono::ceil<seconds>(flags_.pod_start_timeout);
  auto started = runtime::Operator::start(std::move(options));
  if (!started) return started.error();
  operator_ = std::move(*started);
  reported_to_.store(operator_.get());
  // The Lease may have been won before there was an operator to tell.
  if (elector_ && elector_->leading()) operator_->lead();
  return {};
}

void Process::start_guardrails() {
  if (flags_.admission_policies.empty()) return;
  runtime::GuardrailsOptions options;
  options.transport = measured_calls_.get();
  options.metrics = metrics_.get();
  options.policies = flags_.admission_policies;
  options.watched_namespace = flags_.namespace_name;
  guardrails_ = runtime::Guardrails::start(std::move(options));
}

std::string Process::endpoint_url() const {
  if (!flags_.endpoint_url.empty()) return flags_.endpoint_url;
  if (!trust_) return endpoint_->url();
  return "https://muster-endpoint." + namespace_ + ".svc:9443";
}

std::string Process::not_ready() const {
  const runtime::Operator* decider = reported_to_.load();
  return decider != nullptr && decider->synced() ? "" : "jobs, pods and nodes are not listed yet";
}

std::string Process::not_alive() const {
  const runtime::Operator* decider = reported_to_.load();
  if (decider == nullptr || clock_.mono_now() - decider->last_step() < kStuckAfter) return "";
  return "nothing was decided for " + std::to_string(kStuckAfter.count()) + " s";
}

Status Process::start_health() {
  if (flags_.health.is_off) return {};
  runtime::HealthOptions options;
  options.address = listen_host(flags_.health, surroundings_.pod_ip);
  options.port = flags_.health.port;
  options.not_alive = [this] { return not_alive(); };
  options.not_ready = [this] { return not_ready(); };
  auto started = runtime::Health::start(options);
  if (!started) return started.error().with("--health-probe-bind-address");
  health_ = std::move(*started);
  log_info("health probes are served", {{"port", health_->port()}});
  return {};
}

Status Process::start_metrics() {
  if (flags_.metrics.is_off) return {};
  if (flags_.metrics_secure && !trust_) {
    log_warning(
        "metrics are not served: without --master-dir there is no certificate, and "
        "--metrics-secure=false was not given");
    return {};
  }
  runtime::MetricsServerOptions options;
  options.address = listen_host(flags_.metrics, surroundings_.pod_ip);
  options.port = flags_.metrics.port;
  options.render = [this] { return metrics_->render(); };
  if (flags_.metrics_secure) {
    options.tls = trust_->identity();
    options.reviewer = reviewer_.get();
  }
  auto started = runtime::MetricsServer::start(std::move(options));
  if (!started) return started.error().with("--metrics-bind-address");
  metrics_server_ = std::move(*started);
  log_info("metrics are served", {{"port", metrics_server_->port()}});
  if (!flags_.metrics_secure) return {};
  trust_->on_identity([this](const http::TlsIdentity& identity) {
    if (const Status replaced = metrics_server_->replace_identity(identity); !replaced) {
      log_error("metrics keep their old certificate", {{"error", replaced.error().message()}});
    }
  });
  return {};
}

Status Process::start() {
  MUSTER_RETURN_IF_ERROR(read_prices());
  MUSTER_RETURN_IF_ERROR(connect());
  MUSTER_RETURN_IF_ERROR(start_trust());
  MUSTER_RETURN_IF_ERROR(start_endpoint());
  MUSTER_RETURN_IF_ERROR(start_health());
  MUSTER_RETURN_IF_ERROR(start_metrics());
  MUSTER_RETURN_IF_ERROR(start_operator());
  start_guardrails();
  log_info("started", {{"version", MUSTER_VERSION},
                       {"namespace", namespace_},
                       {"identity", identity()},
                       {"endpoint", endpoint_->url()}});
  return {};
}

int Process::wait(int signal_fd) {
  std::array<pollfd, 2> waits{pollfd{signal_fd, POLLIN, 0}, pollfd{lost_.descriptor(), POLLIN, 0}};
  constexpr int kAgainAfterMs = 60'000;
  for (;;) {
    const int ready = ::poll(waits.data(), waits.size(), kAgainAfterMs);
    if (ready < 0 && errno != EINTR) {
      log_error("poll failed", {{"error", std::strerror(errno)}});
      return codes::kInternal;
    }
    if (ready <= 0) continue;
    if (waits[1].revents != 0) return codes::kLeaseLost;
    if (waits[0].revents != 0) return codes::kComplete;
  }
}

/// First nobody writes any more, then the Lease is given up; probes are answered to the end.
void Process::stop() {
  if (fence_) fence_->close_at(clock_.mono_now() + kLastWritesMost);
  if (operator_) operator_->stop();
  if (elector_) elector_->stop();
  if (guardrails_) guardrails_->stop();
  reported_to_.store(nullptr);
  if (endpoint_) endpoint_->stop();
  if (reviewer_) reviewer_->stop();
  if (trust_) trust_->stop();
  if (metrics_server_) metrics_server_->stop();
  if (health_) health_->stop();
}

}  // namespace

Result<kube::ClusterAccess> cluster_access(const Flags& flags, const Surroundings& surroundings) {
  auto access = flags.kubeconfig.empty()
                    ? kube::in_cluster_access(surroundings.kubernetes_service_host,
                                              surroundings.kubernetes_service_port,
                                              kube::kServiceAccountDirectory)
                    : kube::read_kubeconfig(flags.kubeconfig);
  if (!access) return access.error().with_exit_code(codes::kUsage);
  return access;
}

int run(const Flags& flags, const Surroundings& surroundings, int signal_fd) {
  configure_log(flags.log_level, {{"component", "muster-operator"}});
  Process process(flags, surroundings);
  if (const Status started = process.start(); !started) {
    process.stop();
    std::fprintf(stderr, "muster-operator: %s\n", started.error().message().c_str());
    const int code = started.error().exit_code();
    return code == 0 ? codes::kInternal : code;
  }
  const int code = process.wait(signal_fd);
  log_info("ending", {{"exit_code", code}});
  process.stop();
  log_info("ended", {{"exit_code", code}});
  return code;
}

}  // namespace muster::operator_main
