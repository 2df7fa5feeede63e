#include "operator/embedded/process_kubelet.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <functional>
#include <mutex>

#include "operator/embedded/api_server.h"
#include "operator/embedded/child_process.h"
#include "operator/embedded/watch_thread.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::embedded {
namespace {

constexpr seconds kDeadline{30};
constexpr int kPodDeadlineMs = 30'000;

/// A named pipe by which programs tell the test where they are: a line says "here", the end of the
/// file says that every process that held it has ended.
class Fifo {
 public:
  explicit Fifo(std::string path) : path_(std::move(path)) {
    REQUIRE(::mkfifo(path_.c_str(), 0600) == 0);
    fd_ = ::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    REQUIRE(fd_ >= 0);
  }
  ~Fifo() { ::close(fd_); }
  Fifo(const Fifo&) = delete;
  Fifo& operator=(const Fifo&) = delete;

  /// The next line without its end; "" at the end of the file.
  std::string line() {
    for (;;) {
      const std::size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        std::string line = buffer_.substr(0, end);
        buffer_.erase(0, end + 1);
        return line;
      }
      pollfd polled{fd_, POLLIN, 0};
      REQUIRE(::poll(&polled, 1, kPodDeadlineMs) == 1);
      char piece[512];
      const ssize_t got = ::read(fd_, piece, sizeof piece);
      if (got <= 0) return "";
      buffer_.append(piece, static_cast<std::size_t>(got));
    }
  }

 private:
  std::string path_, buffer_;
  int fd_ = -1;
};

/// An API server, a kubelet and what a watcher of pods sees.
class Cluster {
 public:
  Cluster() {
    ProcessKubeletOptions options;
    options.client = client.get();
    options.transport = &server;
    options.clock = &clock;
    options.allocatable = {{"cpu", "8"}, {"memory", "1Gi"}, {"pods", "110"}};
    options.gpus = {"GPU-a", "3", "GPU-c"};
    options.worker_program = "/bin/pwd";
    options.base_environment = {{"PATH", "/usr/bin:/bin"}};
    options.extra_env = {{"FIFO", directory.path + "/fifo"}};
    options.log_directory = directory.path;
    options.working_directory = directory.path;
    auto started = ProcessKubelet::start(options);
    if (!started) FAIL(started.error().message());
    kubelet = std::move(*started);
    WatchThreadOptions watch;
    watch.client = client.get();
    watch.clock = &clock;
    watcher = std::make_unique<WatchThread>(watch, [this](const kube::WatchEvent& event) {
      const std::scoped_lock lock(mutex);
      is_listed = is_listed || event.type == kube::WatchEvent::Type::kInitDone;
      changed.notify_all();
      if (event.object.is_null()) return;
      const std::string name = event.object["metadata"]["name"];
      pods[name] = event.type == kube::WatchEvent::Type::kDelete ? Json() : event.object;
    });
    // A pod that comes and goes before would not be seen.
    std::unique_lock lock(mutex);
    REQUIRE(changed.wait_for(lock, kDeadline, [this] { return is_listed; }));
  }
  ~Cluster() {
    watcher->stop();
    kubelet->stop(milliseconds(0));
  }
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  void create(const std::string& name, const std::string& script, const Json& spec = {}) {
    Json container = {{"name", "worker"}, {"image", "any"}};
    if (!script.empty()) container["command"] = Json::array({"/bin/sh", "-c", script});
    Json pod = {{"apiVersion", "v1"},
                {"kind", "Pod"},
                {"metadata", {{"name", name}, {"namespace", "default"}}},
                {"spec",
                 {{"restartPolicy", "Never"},
                  {"terminationGracePeriodSeconds", 3000},
                  {"containers", Json::array({container})}}}};
    if (spec.is_object()) pod["spec"].update(spec);
    auto created = client->create(api::Kind::kPod, "default", pod);
    if (!created) FAIL(created.error().message());
  }

  void remove(const std::string& name, int grace_seconds = -1) {
    kube::DeleteOptions options;
    options.grace_period_seconds = grace_seconds;
    const Status removed = client->remove(api::Kind::kPod, {"default", name}, options);
    if (!removed) FAIL(removed.error().message());
  }

  /// The pod once `wanted` holds of it; null = gone.
  Json await(const std::string& name, const std::function<bool(const Json&)>& wanted) {
    std::unique_lock lock(mutex);
    const bool came = changed.wait_for(lock, kDeadline, [&] {
      const auto found = pods.find(name);
      return found != pods.end() && wanted(found->second);
    });
    INFO("last state: " << dump_json(pods[name]));
    REQUIRE(came);
    return pods[name];
  }
  Json await_phase(const std::string& name, const std::string& phase) {
    return await(name, [&](const Json& pod) {
      return pod.is_object() && pod.contains("status") && pod["status"].value("phase", "") == phase;
    });
  }
  Json await_end(const std::string& name, const std::string& phase) {
    Json end = await_phase(name, phase)["status"]["containerStatuses"][0]["state"]["terminated"];
    end.erase("finishedAt");
    return end;
  }
  void await_gone(const std::string& name) {
    await(name, [](const Json& pod) { return pod.is_null(); });
  }

  SystemClock clock;
  test::TemporaryDirectory directory;
  Fifo fifo{directory.path + "/fifo"};
  ApiServer server{{&clock}};
  std::unique_ptr<kube::ApiClient> client = kube::make_rest_client(server);
  std::unique_ptr<ProcessKubelet> kubelet;
  std::unique_ptr<WatchThread> watcher;
  std::mutex mutex;
  std::condition_variable changed;
  bool is_listed = false;
  std::map<std::string, Json> pods;
};

Json pinned_to(const char* node) {
  const Json field = {
      {"key", "metadata.name"}, {"operator", "In"}, {"values", Json::array({node})}};
  const Json terms = Json::array({{{"matchFields", Json::array({field})}}});
  return {
      {"affinity",
       {{"nodeAffinity",
         {{"requiredDuringSchedulingIgnoredDuringExecution", {{"nodeSelectorTerms", terms}}}}}}}};
}

TEST_CASE("the node is registered, ready and with what it offers") {
  Cluster cluster;
  auto node = cluster.client->get(api::Kind::kNode, {"", "local"});
  REQUIRE(node);
  CHECK((*node)["status"]["allocatable"]["memory"] == "1Gi");
  CHECK((*node)["status"]["conditions"][0]["type"] == "Ready");
  CHECK((*node)["status"]["conditions"][0]["status"] == "True");
}

TEST_CASE("a pod runs, is bound and running on the way, and its end is told") {
  Cluster cluster;
  cluster.create("good", "echo started > $FIFO; sleep 1000", pinned_to("local"));
  CHECK(cluster.fifo.line() == "started");
  const Json running = cluster.await_phase("good", "Running");
  CHECK(running["spec"]["nodeName"] == "local");
  CHECK(running["status"]["podIP"] == "127.0.0.1");
  CHECK(cluster.kubelet->running().contains("good"));

  cluster.create("fine", "echo out", pinned_to("local"));
  CHECK(cluster.await_end("fine", "Succeeded") == Json{{"exitCode", 0}, {"reason", "Completed"}});
  CHECK(test::content_of(cluster.directory.path + "/fine.log") == "out\n");
  cluster.create("unpinned", "exit 0");
  cluster.await_phase("unpinned", "Succeeded");
  // The built-in program, in the working directory.
  cluster.create("builtin", "", pinned_to("local"));
  cluster.await_phase("builtin", "Succeeded");
  CHECK(test::content_of(cluster.directory.path + "/builtin.log") == cluster.directory.path + "\n");
}

TEST_CASE("a failure is told with its code, its signal and its last words") {
  Cluster cluster;
  cluster.create("code", "echo why >&2; exit 21");
  CHECK(cluster.await_end("code", "Failed") ==
        Json{{"exitCode", 21}, {"reason", "Error"}, {"message", "why\n"}});
  cluster.create("signal", "kill -SEGV $$$$");
  CHECK(cluster.await_end("signal", "Failed") ==
        Json{{"exitCode", 128 + SIGSEGV}, {"signal", SIGSEGV}, {"reason", "Error"}});
  cluster.create("words", "echo noise; printf last > $MUSTER_TERMINATION_LOG; exit 3");
  CHECK(cluster.await_end("words", "Failed")["message"] == "last");
  cluster.create("report", "echo noise; printf '{\"step\":1}' > $MUSTER_TERMINATION_LOG");
  CHECK(cluster.await_end("report", "Succeeded")["message"] == "{\"step\":1}");
  cluster.create("long", "yes x | head -c 9000 > $MUSTER_TERMINATION_LOG; exit 1");
  const std::string longest = cluster.await_end("long", "Failed")["message"];
  CHECK(longest.size() == 4096);
  cluster.create("link", "ln -sf /etc/passwd $MUSTER_TERMINATION_LOG; echo mine; exit 1");
  CHECK(cluster.await_end("link", "Failed")["message"] == "mine\n");
  for (const auto& entry : std::filesystem::directory_iterator(cluster.directory.path)) {
    CHECK(entry.path().extension() != ".termination");
  }
}

TEST_CASE("what a program left behind in another session ends with its pod") {
  const OrphanGuard guard;
  Cluster cluster;
  cluster.create("left",
                 "mkfifo go; setsid sh -c 'exec 3> $FIFO; echo up >&3; echo > go; exec sleep 1000' "
                 "& read line < go");
  CHECK(cluster.fifo.line() == "up");
  cluster.await_phase("left", "Succeeded");
  CHECK(cluster.fifo.line().empty());  // until nobody holds it
}

TEST_CASE("programs that ask for GPUs see those that no other has") {
  Cluster cluster;
  const auto start = [&](const std::string& name, const Json& gpus) {
    // It says what it sees and goes on until it is asked to end; the pipe is held meanwhile.
    const Json container = {
        {"name", "worker"},
        {"image", "any"},
        {"command",
         Json::array({"/bin/sh", "-c",
                      "exec 3> $FIFO; echo ${CUDA_VISIBLE_DEVICES-unset} >&3; exec sleep 1000"})},
        {"resources", {{"limits", gpus}}}};
    cluster.create(name, "", {{"containers", Json::array({container})}});
    return cluster.fifo.line();
  };
  CHECK(start("two", {{"nvidia.com/gpu", "2"}}) == "GPU-a,3");
  CHECK(start("one", {{"nvidia.com/gpu", 1}}) == "GPU-c");
  CHECK(start("none", {{"cpu", "1"}}) == "unset");
  cluster.remove("two");
  cluster.await("two", [](const Json& pod) { return pod.is_null(); });
  CHECK(start("next", {{"nvidia.com/gpu", "1"}}) == "GPU-a");
}

TEST_CASE("a program that cannot be started is a failed pod with a sentence") {
  Cluster cluster;
  const Json container = {
      {"name", "worker"}, {"image", "x"}, {"command", Json::array({"/no/such/program"})}};
  cluster.create("absent", "", {{"containers", Json::array({container})}});
  CHECK(cluster.await_end("absent", "Failed") ==
        Json{{"exitCode", 128},
             {"reason", "StartError"},
             {"message", "cannot start /no/such/program: No such file or directory"}});
  CHECK(cluster.kubelet->running().empty());
}

TEST_CASE("a pod of another node is left alone") {
  Cluster cluster;
  cluster.create("elsewhere", "echo never > $FIFO", pinned_to("other"));
  cluster.create("here", "echo here > $FIFO", pinned_to("local"));
  cluster.await_phase("here", "Succeeded");
  CHECK(cluster.fifo.line() == "here");
  auto pod = cluster.client->get(api::Kind::kPod, {"default", "elsewhere"});
  REQUIRE(pod);
  CHECK_FALSE((*pod)["spec"].contains("nodeName"));
}

TEST_CASE("a deleted pod gets SIGTERM, may finish, and then goes from the API") {
  Cluster cluster;
  cluster.create("polite",
                 "exec 3> $FIFO; trap 'echo stopped >&3; exit 31' TERM; echo up >&3;"
                 "while :; do sleep 1000 & wait $!; done");
  CHECK(cluster.fifo.line() == "up");
  cluster.await_phase("polite", "Running");
  CHECK(cluster.kubelet->running().size() == 1);
  cluster.remove("polite");
  CHECK(cluster.fifo.line() == "stopped");
  cluster.await_gone("polite");
  CHECK(cluster.fifo.line().empty());  // nothing that held the pipe is left
  CHECK(cluster.kubelet->running().empty());
}

TEST_CASE("a pod that ignores SIGTERM is killed after its grace period, children too") {
  Cluster cluster;
  cluster.create("deaf",
                 "trap '' TERM; exec 3> $FIFO; echo up >&3; sh -c 'trap \"\" TERM; echo two >&3;"
                 "sleep 1000' & sleep 1000");
  CHECK(cluster.fifo.line() == "up");
  CHECK(cluster.fifo.line() == "two");
  cluster.remove("deaf", 1);
  cluster.await_gone("deaf");
  CHECK(cluster.fifo.line().empty());
}

TEST_CASE("a pod deleted by force is killed at once") {
  Cluster cluster;
  cluster.create("forced", "trap '' TERM; exec 3> $FIFO; echo up >&3; sleep 1000");
  CHECK(cluster.fifo.line() == "up");
  cluster.remove("forced", 0);
  cluster.await_gone("forced");
  CHECK(cluster.fifo.line().empty());
}

TEST_CASE("stop ends every process, and nothing is started afterwards") {
  Cluster cluster;
  cluster.create("a", "trap '' TERM; exec 3> $FIFO; echo up >&3; sleep 1000");
  cluster.create("b", "exec 3> $FIFO; echo up >&3; sleep 1000");
  CHECK(cluster.fifo.line() == "up");
  CHECK(cluster.fifo.line() == "up");
  cluster.kubelet->stop(milliseconds(50));
  CHECK(cluster.fifo.line().empty());
  CHECK(cluster.kubelet->running().empty());
  cluster.kubelet->stop(milliseconds(50));  // again: nothing happens
}

TEST_CASE("a kubelet sees what happened while its watch was cut or history was forgotten") {
  Cluster cluster;
  for (int round = 0; round < 5; ++round) {
    cluster.server.compact();
    cluster.server.cut_streams();
    const std::string name = "p" + std::to_string(round);
    cluster.create(name, "exit 0");
    cluster.await_phase(name, "Succeeded");
  }
}

TEST_CASE("a program that writes without end neither stops the others nor fills the disk") {
  Cluster cluster;
  cluster.create("loud", "exec 3> $FIFO; echo up >&3; exec yes");
  CHECK(cluster.fifo.line() == "up");
  cluster.create("quiet", "exit 0");
  cluster.await_phase("quiet", "Succeeded");
  cluster.remove("loud", 1);
  cluster.await_gone("loud");
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(cluster.directory.path)) {
    if (entry.is_regular_file()) bytes += entry.file_size();
  }
  CHECK(bytes <= std::uintmax_t{2} * (16 << 20) + 4096);
}

}  // namespace
}  // namespace muster::embedded
