// The step that the operator predicts beside the step that real workers make: each worker is a
// process with the engine in it, on a host of its own in a shaped network (shaped_network.h).
// tests/bench/step_time.py runs it for several models and networks. Prints one line of JSON.
//
//   step_time_bench --model mlp-digits|cnn|gpt-tiny|mlp-2m|mlp-14m|mlp-14m-512 --workers 4 [--racks
//   1]
//     [--megabits 200] [--oversubscription 1] [--latency-us 200] [--uplink-latency-us 0]
//     [--queue-kib 8192] [--congestion reno] [--seconds 10] [--tensor 1] [--pipeline 1]
//     [--overlap 0|1] [--processes 1] [--by-host 1|0]
//
// What is predicted knows nothing of the run: the model's size, what one worker alone needs to
// compute its share of a batch, and what the links of the plan can do. Of a model that is split it
// is known what its workers themselves took to compute their parts, as the operator is told it, and
// what they count that they send, but not how long that took. --processes: of each worker, which
// share a host. --by-host 0: they exchange gradients as if each were on a host of its own.
// --overlap 0: gradients go out when the whole backward pass is made, --overlap 1: while it goes
// on; with either workers are not kept to a processor, where nothing would move meanwhile.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/json.h"
#include "operator/core/split_forecast.h"
#include "operator/core/step_forecast.h"
#include "operator/core/step_time.h"
#include "operator/core/topology.h"
#include "tests/bench/made_up_data.h"
#include "tests/bench/rank_program.h"
#include "tests/bench/shaped_network.h"
#include "worker/engine/training.h"

namespace {

using namespace muster;
using bench::or_die;

constexpr int kPort = 7000;
constexpr int kWarmUpSteps = 3, kStepsLeast = 8;
constexpr int kProcessors = 2;
constexpr std::size_t kAllBlocks = std::size_t{1} << 30;  // more than any model has

struct Options {
  std::string model = "mlp-2m";
  bench::NetworkPlan plan;
  double seconds = 10;
  int tensor = 1, pipeline = 1;
  int processes = 1;
  bool is_by_host = true;
  std::optional<bool> overlap = {};

  int ranks() const { return plan.hosts * processes; }
  /// Ranks that a processor has.
  double sharing() const { return std::max(1.0, static_cast<double>(ranks()) / kProcessors); }
};

Options options_of(int argc, char** argv) {
  std::map<std::string, std::string> texts{
      {"--model", "mlp-2m"},   {"--workers", "4"},          {"--racks", "1"},
      {"--megabits", "200"},   {"--latency-us", "200"},     {"--uplink-latency-us", "0"},
      {"--queue-kib", "8192"}, {"--oversubscription", "1"}, {"--congestion", "reno"},
      {"--seconds", "10"},     {"--tensor", "1"},           {"--pipeline", "1"},
      {"--overlap", ""},       {"--processes", "1"},        {"--by-host", "1"}};
  for (int i = 1; i < argc; i += 2) {
    if (!texts.contains(argv[i]) || i + 1 == argc) {
      std::fprintf(stderr, "step_time_bench: %s: unknown option, or one without its value\n",
                   argv[i]);
      std::exit(2);
    }
    texts[argv[i]] = argv[i + 1];
  }
  const auto number = [&](const char* name) { return std::atof(texts[name].c_str()); };
  Options options;
  options.model = texts["--model"];
  options.seconds = number("--seconds");
  if (!texts["--overlap"].empty()) options.overlap = texts["--overlap"] == "1";
  options.tensor = static_cast<int>(number("--tensor"));
  options.pipeline = static_cast<int>(number("--pipeline"));
  options.processes = static_cast<int>(number("--processes"));
  options.is_by_host = number("--by-host") != 0;
  options.plan.hosts = static_cast<int>(number("--workers"));
  options.plan.racks = static_cast<int>(number("--racks"));
  options.plan.card_bytes_per_second = number("--megabits") * 1e6 / 8;
  options.plan.oversubscription = number("--oversubscription");
  options.plan.latency_seconds = number("--latency-us") * 1e-6;
  options.plan.uplink_latency_seconds = number("--uplink-latency-us") * 1e-6;
  options.plan.queue_bytes = static_cast<std::size_t>(number("--queue-kib")) * 1024;
  options.plan.congestion = texts["--congestion"];
  return options;
}

engine::TrainingConfig config_of(const std::string& model, const std::string& directory) {
  engine::TrainingConfig config;
  config.steps = 1'000'000'000;
  config.batch_size = 64;
  config.logical_ranks = 16;
  config.data_root = directory;
  config.sgd = {0.01f, 0.9f};
  config.hash_every_steps = 0;
  config.train = {"images", "labels"};
  if (model == "mlp-digits") {
    config.mlp.hidden = {128};
    bench::write_images(directory, 1024, {8, 8}, 10);
  } else if (model == "cnn") {
    config.cnn.emplace().channels = {16, 32};
    config.cnn->hidden = {256};
    bench::write_images(directory, 1024, {28, 28}, 10);
  } else if (model == "mlp-2m") {
    config.mlp.hidden = {1024, 1024};
    bench::write_images(directory, 1024, {28, 28}, 10);
  } else if (model == "mlp-14m" || model == "mlp-14m-512") {
    config.mlp.hidden = {2000, 2000, 2000, 2000};
    config.batch_size = model == "mlp-14m" ? 32 : 512;
    bench::write_images(directory, 1024, {28, 28}, 10);
  } else if (model == "gpt-tiny") {
    config.train = {};
    config.train.text = "text";
    config.batch_size = 16;
    config.gpt = engine::GptConfig{4, 4, 128, 64, 256};
    config.adamw = engine::AdamwConfig{0.001f, 0.9f, 0.99f, 1e-8f, 0.1f};
    config.gradient_norm_max = 1;
    bench::write_text(directory, 256, 64);
  } else {
    std::fprintf(stderr, "step_time_bench: --model %s is not known\n", model.c_str());
    std::exit(2);
  }
  return config;
}

/// Before all else on the machine, where that is allowed: what others do there is not measured. Its
/// threads take turns on the processor where they wait, so that nothing moves while one computes.
void keep_to_processor(int processor) {
  sched_param first{};
  first.sched_priority = 1;
  sched_setscheduler(0, SCHED_FIFO, &first);
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(processor, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// What a rank has to tell: the seconds of each step, and their parts on the mean.
Json train(const Options& options, const engine::TrainingConfig& config,
           comm::Communicator& communicator, const Clock& clock) {
  std::atomic<bool> stop = false;
  std::vector<double> steps;
  double reported = 0, compute = 0, data = 0, communicate = 0, update = 0, in_turns = 0;
  PartCounts part;
  std::uint64_t sent = 0, sent_before = 0;
  std::int64_t parameters = 0;
  MonoTime start, last;
  engine::TrainingHooks hooks;
  hooks.stop = &stop;
  hooks.on_start = [&](const engine::TrainingSummary& summary) {
    parameters = summary.model_parameters;
  };
  hooks.on_step = [&](const engine::StepReport& report) {
    const MonoTime now = clock.mono_now();
    if (report.step <= kWarmUpSteps) {
      start = last = now;
      sent_before = report.sent_bytes;
      return;
    }
    steps.push_back(seconds_of(now - std::exchange(last, now)));
    reported += report.step_seconds;
    compute += report.compute_seconds;
    data += report.data_seconds;
    communicate += report.communicate_seconds;
    update += report.update_seconds;
    in_turns += report.turn_seconds;
    part = report.part;
    sent = report.sent_bytes - sent_before;
    const bool is_over = seconds_of(now - start) >= options.seconds &&
                         steps.size() >= static_cast<std::size_t>(kStepsLeast);
    if (is_over && communicator.rank() == 0) stop = true;
  };
  const auto result = engine::run_training(config, communicator, clock, hooks);
  if (!result) bench::die(result.error());
  const auto count = static_cast<double>(std::max<std::size_t>(1, steps.size()));
  return {{"steps", steps},
          {"parameters", parameters},
          {"reported", reported / count},
          {"compute", (compute + data) / count},
          {"communicate", communicate / count},
          {"update", update / count},
          {"sentBytes", static_cast<double>(sent) / count},
          {"part",
           {{"parameters", part.parameters},
            {"microBatches", part.micro_batches},
            {"handedOnBytes", part.handed_on_bytes},
            {"sums", part.sums},
            {"turns", part.turns},
            {"busyTurns", part.busy_turns},
            {"turnBytes", part.turn_bytes},
            {"turnSeconds", in_turns / count}}}};
}

/// The end of a child: never back into the parent's code.
[[noreturn]] void tell(const std::string& path, const Json& json) {
  std::ofstream(path) << dump_json(json);
  std::_Exit(0);
}

pid_t start_child(const std::function<void()>& body) {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) bench::die(Error(ErrorCode::kIo, "fork"));
  if (child > 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(1);
  body();
  std::_Exit(1);
}

void must_end_well(pid_t child, const char* what) {
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  bench::die(Error(ErrorCode::kAborted, std::string(what) + " has failed"));
}

Json read_told(const std::string& path) {
  std::ifstream in(path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  return or_die(parse_json(text));
}

/// One worker with the whole batch, on one processor, without a network.
Json train_alone(const Options& options, const engine::TrainingConfig& config,
                 const std::string& path) {
  const pid_t child = start_child([&] {
    keep_to_processor(0);
    const SystemClock clock;
    Options alone = options;
    alone.seconds = std::min(2.0, options.seconds);
    const auto group = comm::make_local_communicators(1, clock);
    tell(path, train(alone, config, *group[0], clock));
  });
  must_end_well(child, "the worker alone");
  return read_told(path);
}

/// A message with room for one descriptor.
struct Carrier {
  Carrier() {
    message.msg_iov = &io;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
  }
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  char byte = 0;
  iovec io{&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
};

void send_descriptor(int socket, int descriptor) {
  Carrier carrier;
  msghdr& message = carrier.message;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  if (sendmsg(socket, &message, 0) != 1) std::_Exit(1);
}

int receive_descriptor(int socket) {
  Carrier carrier;
  msghdr& message = carrier.message;
  int descriptor = -1;
  const bool is_there = recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (!is_there || header == nullptr) {
    bench::die(Error(ErrorCode::kAborted, "a worker has no network: root and /dev/net/tun?"));
  }
  std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
  return descriptor;
}

std::string path_of(const std::string& directory, int rank) {
  return directory + "/rank" + std::to_string(rank);
}

void be_process(const Options& options, engine::TrainingConfig config, int rank,
                const std::string& path) {
  if (!options.overlap) keep_to_processor(rank % kProcessors);
  const SystemClock clock;
  comm::TcpOptions tcp;
  tcp.rank = rank;
  for (int peer = 0; peer < options.ranks(); ++peer) {
    tcp.peers.push_back(
        {bench::address_of(peer / options.processes), kPort + peer % options.processes});
  }
  const comm::PeerAddress& own = tcp.peers[static_cast<std::size_t>(rank)];
  tcp.listen_fd = or_die(listen_tcp(own.host, own.port)).fd;
  tcp.job_key = std::string(64, '0');
  tcp.job_uid = "bench";
  tcp.epoch = 1;
  tcp.connect_deadline = clock.mono_now() + seconds(60);
  tcp.clock = &clock;
  const auto communicator = or_die(comm::make_tcp_communicator(tcp));
  config.processes = options.ranks();
  if (!options.is_by_host) config.host_blocks = kAllBlocks;
  if (!options.overlap.value_or(true)) config.bucket_blocks = kAllBlocks;
  config.slices = options.tensor;
  config.stages = options.pipeline;
  config.place = rank % config.group_size();
  tell(path, train(options, config, *communicator, clock));
}

/// A host of its own, with its processes in it.
[[noreturn]] void be_worker(const Options& options, const engine::TrainingConfig& config, int host,
                            int socket, const std::string& directory) {
  send_descriptor(socket, or_die(bench::enter_network(options.plan, host)));
  std::vector<pid_t> processes;
  for (int rank = host * options.processes; rank < (host + 1) * options.processes; ++rank) {
    processes.push_back(
        start_child([&] { be_process(options, config, rank, path_of(directory, rank)); }));
  }
  for (const pid_t process : processes) must_end_well(process, "a process");
  std::_Exit(0);
}

/// What the ranks told, and the network's counts.
Json train_together(const Options& options, const engine::TrainingConfig& config,
                    const std::string& directory) {
  std::vector<pid_t> children;
  std::vector<int> devices, ends;
  for (int host = 0; host < options.plan.hosts; ++host) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
      bench::die(Error(ErrorCode::kIo, "socketpair"));
    }
    children.push_back(start_child([&] {
      close(pair[0]);  // so that the parent sees this one's end
      be_worker(options, config, host, pair[1], directory);
    }));
    close(pair[1]);
    devices.push_back(receive_descriptor(pair[0]));
    close(pair[0]);
    ends.push_back(static_cast<int>(syscall(SYS_pidfd_open, children.back(), 0)));
  }
  const SystemClock clock;
  bench::ShapedNetwork network(options.plan, devices, clock);
  const Status ran = network.run(ends, clock.mono_now() + seconds(400));
  if (!ran) {
    for (const pid_t child : children) kill(child, SIGKILL);
    bench::die(ran.error());
  }
  Json out;
  for (const pid_t child : children) must_end_well(child, "a worker");
  for (int rank = 0; rank < options.ranks(); ++rank) {
    out["ranks"].push_back(read_told(path_of(directory, rank)));
  }
  const bench::NetworkCounts& counts = network.counts();
  out["network"] = {{"packets", counts.packets},
                    {"dropped", counts.dropped},
                    {"bytesFrom", counts.bytes_from},
                    {"busySeconds", counts.busy_seconds}};
  return out;
}

core::Topology topology_of(const bench::NetworkPlan& plan) {
  core::TopologyInput input;
  core::TopologyLevel& rack = input.levels.emplace_back();
  rack.key = rack.name = "rack";
  rack.oversubscription = plan.oversubscription;
  rack.latency_seconds = plan.latency_seconds;
  for (int host = 0; host < plan.hosts; ++host) {
    const std::string name(1, static_cast<char>('a' + host));
    input.nodes.push_back({name, {{0, "r" + std::to_string(plan.rack_of(host))}}});
  }
  input.host.bytes_per_second = plan.card_bytes_per_second * bench::kPayloadShare;
  input.host.latency_seconds = plan.latency_seconds + plan.uplink_latency_seconds;
  return or_die(core::build_topology(std::move(input)));
}

/// Layers with parameters.
int layers_of(const engine::TrainingConfig& config) {
  if (config.gpt) return 4 * config.gpt->layers + 2;
  const engine::CnnConfig cnn = config.cnn.value_or(engine::CnnConfig{});
  return static_cast<int>(cnn.channels.size() + cnn.hidden.size() + config.mlp.hidden.size()) + 1;
}

Json predicted(const Options& options, const engine::TrainingConfig& config, const Json& alone) {
  const bench::NetworkPlan& plan = options.plan;
  // Workers share the processors, which workers on hosts of their own do not.
  const double shared = options.sharing();
  const double passes = alone["compute"].get<double>() / options.ranks() * shared;
  core::StepWork work;
  work.gradient_bytes = 4.0 * alone["parameters"].get<double>();
  work.compute_seconds = passes + alone["update"].get<double>() * shared;
  const core::Topology topology = topology_of(plan);
  std::vector<core::HostShare> hosts;
  for (int host = 0; host < plan.hosts; ++host) hosts.push_back({host, 1});
  const core::StepModel model(topology, work);
  const core::StepTime time = core::forecast_step(
      model, hosts,
      {config.logical_ranks, layers_of(config), core::kBackwardShare * passes, options.processes});
  return {{"step", time.step_seconds},
          {"exchange", time.exchange_seconds},
          {"compute", work.compute_seconds},
          {"plainStep", model.predict(hosts).step_seconds}};
}

/// As the operator foretells it: with what the workers themselves took to compute their parts. They
/// share the processors here, and wait for them where each would have its own.
Json predicted_split(const Options& options, const engine::TrainingConfig& config,
                     const Json& ranks) {
  core::SplitWork work{{options.tensor, options.pipeline},
                       options.processes,
                       config.logical_ranks,
                       config.gradient_norm_max > 0,
                       {}};
  const double shared = options.sharing();
  const auto places = static_cast<std::size_t>(work.split.processes());
  work.parts.resize(places);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Json& told = ranks[rank];
    const auto number = [](const Json& of, const char* name) {
      return of.at(name).get<std::int64_t>();
    };
    const Json& part = told.at("part");
    const PartReport report{
        {number(part, "parameters"), number(part, "microBatches"), number(part, "handedOnBytes"),
         number(part, "sums"), number(part, "turns"), number(part, "busyTurns"),
         number(part, "turnBytes")},
        shared * told.at("compute").get<double>(),
        shared * part.at("turnSeconds").get<double>(),
        shared * told.at("update").get<double>()};
    PartReport& most = work.parts[rank % places];
    if (report.compute_seconds >= most.compute_seconds) most = report;
  }
  std::vector<int> nodes;
  for (int host = 0; host < options.plan.hosts; ++host) nodes.push_back(host);
  const auto step = core::split_step_seconds(topology_of(options.plan), work, nodes);
  return step ? Json{{"step", *step}} : Json();
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const bench::Scratch directory;
  const engine::TrainingConfig config = config_of(options.model, directory.path());
  const Json alone = train_alone(options, config, directory.path() + "/alone");
  Json out = train_together(options, config, directory.path());
  out["model"] = options.model;
  out["parameters"] = alone["parameters"];
  const bool is_split = options.tensor * options.pipeline > 1;
  out["predicted"] =
      is_split ? predicted_split(options, config, out["ranks"]) : predicted(options, config, alone);
  out["alone"] = {{"compute", alone["compute"]}, {"update", alone["update"]}};
  std::printf("%s\n", dump_json(out).c_str());
  return 0;
}
