// The collectives of a training step between processes of this machine; beside Gloo's by
// tests/bench/collectives.py.
//
//   collectives_bench RANK PORT,PORT,... [--transport memory|tcp] [--bytes N,N,...] [--seconds 0.2]
//
// all_reduce: the engine's sum of gradients on the fixed tree, one logical rank a process, in its
// buckets. all_gather: each process' piece of the buffer goes to all.  broadcast: the buffer of one
// goes to all, in turn. Rank 0 prints {"operation": ..., "bytes": of the whole buffer, "seconds":
// of one call} for each.
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/bench/rank_program.h"
#include "worker/engine/exchange.h"

namespace {

using namespace muster;
using bench::or_die;

constexpr int kWarmUpCalls = 3, kCallsLeast = 5;

struct Options {
  int rank = 0;
  std::vector<int> ports;
  std::vector<std::size_t> bytes{4096, 65536, 262144, 1048576, 4194304, 16777216, 67108864};
  double seconds = 0.2;
  bool shares_memory = true;
};

class Bench {
 public:
  Bench(const Options& options, comm::Communicator& communicator, const Clock& clock)
      : options_(options), communicator_(communicator), clock_(clock) {}

  void all_reduce(std::size_t bytes) {
    const std::size_t elements = bytes / sizeof(float);
    std::vector<float> values(elements, 1.0f);
    // Layers of 1 MiB, as a model's would be cut.
    std::vector<std::size_t> layers;
    for (std::size_t at = 0; at < elements; at += std::size_t{1} << 18) layers.push_back(at);
    engine::Buckets buckets(elements, layers, 256);
    const engine::Assignment assignment =
        or_die(engine::assign(communicator_.size(), communicator_.size()));
    std::vector<float> memory;
    engine::GradientExchange exchange(
        assignment, options_.rank,
        {engine::Ownership(std::move(buckets), communicator_.size()), elements}, {values.data()},
        memory);
    measure("all_reduce", bytes,
            [&] { or_die(exchange.sum(communicator_, context_, ++step_, deadline(), nullptr)); });
    for (const engine::Gradient& gradient : exchange.gradients()) {
      MUSTER_CHECK(gradient.values[0] == static_cast<float>(communicator_.size()));
    }
  }

  void all_gather(std::size_t bytes) {
    std::vector<std::byte> values(bytes);
    std::vector<std::size_t> offsets;
    const auto processes = static_cast<std::size_t>(communicator_.size());
    for (std::size_t rank = 0; rank <= processes; ++rank) {
      offsets.push_back(bytes * rank / processes);
    }
    measure("all_gather", bytes,
            [&] { or_die(comm::all_gather(communicator_, ++step_, values, offsets, deadline())); });
  }

  void broadcast(std::size_t bytes) {
    std::vector<std::byte> values(bytes);
    int root = 0;
    measure("broadcast", bytes, [&] {
      or_die(comm::broadcast(communicator_, ++step_, root, values, deadline()));
      root = (root + 1) % communicator_.size();
    });
  }

 private:
  MonoTime deadline() const { return clock_.mono_now() + seconds(120); }

  /// Calls one after another; rank 0 says how many, so that all make the same number.
  void measure(const char* operation, std::size_t bytes, const std::function<void()>& call) {
    for (int i = 0; i < kWarmUpCalls; ++i) call();
    const MonoTime first = clock_.mono_now();
    call();
    const double guess = seconds_of(clock_.mono_now() - first);
    std::uint64_t calls = kCallsLeast;
    if (guess > 0) calls = std::max(calls, static_cast<std::uint64_t>(options_.seconds / guess));
    std::array<std::byte, sizeof calls> told{};
    std::memcpy(told.data(), &calls, sizeof calls);
    or_die(comm::broadcast(communicator_, ++step_, 0, told, deadline()));
    std::memcpy(&calls, told.data(), sizeof calls);
    or_die(comm::barrier(communicator_, ++step_, deadline()));
    const MonoTime start = clock_.mono_now();
    for (std::uint64_t i = 0; i < calls; ++i) call();
    or_die(comm::barrier(communicator_, ++step_, deadline()));
    if (options_.rank != 0) return;
    std::printf("{\"operation\": \"%s\", \"bytes\": %zu, \"seconds\": %.9f}\n", operation, bytes,
                seconds_of(clock_.mono_now() - start) / static_cast<double>(calls));
  }

  const Options& options_;
  comm::Communicator& communicator_;
  const Clock& clock_;
  kernels::cpu::Context context_{1};
  std::uint64_t step_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 3 || argc % 2 == 0) {
    std::fprintf(stderr,
                 "collectives_bench: usage: RANK PORT,PORT,... [--bytes N,N] [--seconds S]\n");
    return 2;
  }
  options.rank = std::atoi(argv[1]);
  for (const std::size_t port : bench::numbers(argv[2], ',')) {
    options.ports.push_back(static_cast<int>(port));
  }
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--transport") {
      options.shares_memory = std::string(argv[i + 1]) == "memory";
    } else if (flag == "--bytes") {
      options.bytes = bench::numbers(argv[i + 1], ',');
    } else if (flag == "--seconds") {
      options.seconds = std::atof(argv[i + 1]);
    } else {
      std::fprintf(stderr, "collectives_bench: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  const SystemClock clock;
  comm::TcpOptions tcp = bench::tcp_options(options.rank, options.ports, clock);
  tcp.shares_memory = options.shares_memory;
  const auto communicator = or_die(comm::make_tcp_communicator(tcp));
  Bench bench(options, *communicator, clock);
  for (const std::size_t bytes : options.bytes) {
    bench.all_reduce(bytes);
    bench.all_gather(bytes);
    bench.broadcast(bytes);
  }
  return 0;
}
