// A cluster in one process whose operator gives jobs their turn in queues, which `muster run` does
// not: API server in memory, the operator, and a kubelet that starts processes. Its /metrics is
// what the dashboards' panels of queues are asked about.
//   queue_world OBJECTS.json PRICES.yaml DIRECTORY PORT
// OBJECTS.json: a list of TrainingQueues and TrainingJobs, made in its order.
#include <signal.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "common/contract.h"
#include "operator/embedded/api_server.h"
#include "operator/embedded/process_kubelet.h"
#include "operator/runtime/metrics.h"
#include "operator/runtime/metrics_server.h"
#include "operator/runtime/operator.h"
#include "operator/runtime/price_file.h"

using namespace muster;

namespace {

constexpr seconds kStartMost{20};
constexpr milliseconds kGrace{2000};
constexpr int kReadsHeld = 3;
constexpr seconds kHeldMost{20};

/// Keeps the first write of a job until the metrics were read some times meanwhile: otherwise a job
/// is in hand for a millisecond, in which nobody reads.
class HeldWrite final : public kube::HttpTransport {
 public:
  explicit HeldWrite(kube::HttpTransport& inner) : inner_(inner) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (request.method == "PATCH" && request.path.find("/trainingjobs/") != std::string::npos) {
      hold_first();
    }
    return inner_.send(request);
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    return inner_.open_stream(request);
  }
  void on_read() {
    const std::lock_guard lock(mutex_);
    ++reads_;
    changed_.notify_all();
  }

 private:
  void hold_first() {
    std::unique_lock lock(mutex_);
    if (std::exchange(was_held_, true)) return;
    changed_.wait_for(lock, kHeldMost,
                      [this, most = reads_ + kReadsHeld] { return reads_ >= most; });
  }

  kube::HttpTransport& inner_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int reads_ = 0;          // guarded by mutex_
  bool was_held_ = false;  // guarded by mutex_
};

class QueueWorld {
 public:
  Status start(const std::string& prices, const std::string& directory, int port) {
    auto read = runtime::read_price_file(prices);
    if (!read) return read.error();
    prices_ = std::move(*read);
    embedded::ProcessKubeletOptions kubelet;
    kubelet.client = client_.get();
    kubelet.transport = &server_;
    kubelet.clock = &clock_;
    kubelet.allocatable = {{"cpu", "64"}, {"memory", "64Gi"}, {"pods", "64"}};
    kubelet.log_directory = kubelet.working_directory = directory;
    MUSTER_ASSIGN_OR_RETURN(kubelet_, embedded::ProcessKubelet::start(std::move(kubelet)));
    runtime::OperatorOptions options;
    options.client = client_.get();
    options.clock = &clock_;
    options.pods.default_image = "none";
    options.sees_queues = true;
    options.master_keys.current = std::string(64, '7');
    options.metrics = &metrics_;
    options.prices = &prices_;
    MUSTER_ASSIGN_OR_RETURN(operator_, runtime::Operator::start(std::move(options)));
    MUSTER_RETURN_IF_ERROR(operator_->wait_synced(clock_.mono_now() + kStartMost));
    metrics_.set_leader(true);
    runtime::MetricsServerOptions page;
    page.address = "127.0.0.1";
    page.port = port;
    page.render = [this] {
      std::string text = metrics_.render();
      transport_.on_read();
      return text;
    };
    MUSTER_ASSIGN_OR_RETURN(page_, runtime::MetricsServer::start(std::move(page)));
    return {};
  }

  Status create(const Json& object) {
    const bool is_queue = object.value("kind", "") == contract::kKindTrainingQueue;
    const auto made = is_queue ? client_->create(api::Kind::kTrainingQueue, "", object)
                               : client_->create(api::Kind::kTrainingJob, "default", object);
    return made ? Status() : Status(made.error());
  }

  void stop() {
    if (kubelet_) kubelet_->stop(kGrace);
    if (operator_) operator_->stop();
    if (page_) page_->stop();
  }

 private:
  SystemClock clock_;
  embedded::ApiServer server_{{&clock_}};
  HeldWrite transport_{server_};
  std::unique_ptr<kube::ApiClient> client_ = kube::make_rest_client(transport_);
  runtime::Metrics metrics_{{&clock_, "queue-world"}};
  api::PriceList prices_;
  std::unique_ptr<embedded::ProcessKubelet> kubelet_;
  std::unique_ptr<runtime::Operator> operator_;
  std::unique_ptr<runtime::MetricsServer> page_;
};

Status create_all(QueueWorld& world, const std::string& file) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  MUSTER_ASSIGN_OR_RETURN(const Json objects, parse_json(text));
  for (const Json& object : objects) MUSTER_RETURN_IF_ERROR(world.create(object));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("queue_world OBJECTS.json PRICES.yaml DIRECTORY PORT\n", stderr);
    return 2;
  }
  // Before any thread, so that none of them takes the signal.
  sigset_t stop;
  ::sigemptyset(&stop);
  ::sigaddset(&stop, SIGTERM);
  ::sigaddset(&stop, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &stop, nullptr);
  QueueWorld world;
  Status status = world.start(argv[2], argv[3], std::atoi(argv[4]));
  if (status) status = create_all(world, argv[1]);
  int signal = 0;
  if (status) {
    ::sigwait(&stop, &signal);
  } else {
    std::fprintf(stderr, "queue_world: %s\n", status.error().message().c_str());
  }
  world.stop();
  return status ? 0 : 1;
}
