// What the same bits on any number of workers cost: the engine's training step beside some that
// only want to be fast. One process of several (tests/bench/determinism.py starts them, each under
// its quota); all make the steps of all kinds in turn, and rank 0 prints their seconds.
//
//   determinism_bench RANK PORT,PORT,... [--seconds 60] [--shape 784-2000-2000-2000-2000-10]
//                     [--batch 256] [--logical-ranks 16] [--gigabits 0] [--latency-us 0]
//
// strict:     gradients by logical rank, summed on the fixed tree, as the engine trains: buckets go
//             their way during the backward pass.
// sharded:    as strict, but each keeps the optimiser's state of what it owns and of one other's.
// after:      as strict, but nothing is sent before the backward pass is done.
// overlapped: one gradient over all rows of the process, in the engine's buckets.
// fast:       the same gradient, summed as the pieces lie, in one group of transfers.
// piped:      the same in pieces of 4 MiB, the next of which is under way while one is added.
//
// With --gigabits, every wait lasts as long as links of that speed would take (modelled_wire.h).
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"
#include "tests/bench/modelled_wire.h"
#include "tests/bench/rank_program.h"
#include "worker/comm/communicator.h"
#include "worker/engine/exchange.h"
#include "worker/engine/model.h"
#include "worker/engine/node_sums.h"
#include "worker/engine/optimizer.h"
#include "worker/engine/sharded_exchange.h"

namespace {

using namespace muster;
using bench::numbers;
using bench::or_die;

constexpr std::size_t kPieceFloats = std::size_t{1} << 20;
constexpr int kWarmUpRounds = 2;
constexpr int kRoundsLeast = 5, kRoundsMost = 1000;

struct Options {
  int rank = 0;
  std::vector<int> ports;
  std::vector<std::size_t> widths{784, 2000, 2000, 2000, 2000, 10};
  int batch = 256, logical_ranks = 16;
  double seconds = 60;
  bench::Wire wire;
  int processes() const { return static_cast<int>(ports.size()); }
};

/// The sum of all processes' gradients in whatever order: each adds its own part of every piece.
class FastAllReduce {
 public:
  FastAllReduce(comm::Communicator& communicator, std::size_t piece)
      : communicator_(communicator), piece_(piece) {}

  void sum(std::vector<float>& values, std::uint64_t step, MonoTime deadline) {
    const std::size_t pieces = (values.size() + piece_ - 1) / piece_;
    const auto others = static_cast<std::size_t>(communicator_.size() - 1);
    for (auto& received : received_) received.resize(others * (piece_ / communicator_.size() + 1));
    auto scatter = start_scatter(values, 0, step);
    std::unique_ptr<comm::Work> gather;
    for (std::size_t p = 0; p < pieces; ++p) {
      or_die(scatter->wait(deadline));
      if (p + 1 < pieces) {
        scatter = start_scatter(values, p + 1, step);
        scatter->proceed_alone();
      }
      add(values, p);
      if (gather) or_die(gather->wait(deadline));
      gather = start_gather(values, p, step);
    }
    or_die(gather->wait(deadline));
  }

 private:
  engine::ElementRange part(const std::vector<float>& values, std::size_t piece, int rank) const {
    const std::size_t begin = piece * piece_, size = std::min(piece_, values.size() - begin);
    const auto cut = [&](int r) {
      return begin +
             size * static_cast<std::size_t>(r) / static_cast<std::size_t>(communicator_.size());
    };
    return {cut(rank), cut(rank + 1)};
  }

  std::unique_ptr<comm::Work> start_scatter(std::vector<float>& values, std::size_t piece,
                                            std::uint64_t step) {
    const auto own = part(values, piece, communicator_.rank());
    std::vector<comm::SendBuffer> sends;
    std::vector<comm::ReceiveBuffer> receives;
    std::size_t at = 0;
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      if (peer == communicator_.rank()) continue;
      const auto theirs = part(values, piece, peer);
      sends.push_back({peer, values.data() + theirs.begin, theirs.size() * sizeof(float)});
      receives.push_back({peer, received_[piece % 2].data() + at, own.size() * sizeof(float)});
      at += own.size();
    }
    return or_die(communicator_.start(step, comm::Memory::kHost, sends, receives));
  }

  std::unique_ptr<comm::Work> start_gather(std::vector<float>& values, std::size_t piece,
                                           std::uint64_t step) {
    const auto own = part(values, piece, communicator_.rank());
    std::vector<comm::SendBuffer> sends;
    std::vector<comm::ReceiveBuffer> receives;
    for (int peer = 0; peer < communicator_.size(); ++peer) {
      if (peer == communicator_.rank()) continue;
      const auto theirs = part(values, piece, peer);
      sends.push_back({peer, values.data() + own.begin, own.size() * sizeof(float)});
      receives.push_back({peer, values.data() + theirs.begin, theirs.size() * sizeof(float)});
    }
    return or_die(communicator_.start(step, comm::Memory::kHost, sends, receives));
  }

  void add(std::vector<float>& values, std::size_t piece) {
    const auto own = part(values, piece, communicator_.rank());
    float* const sum = values.data() + own.begin;
    for (int other = 0; other + 1 < communicator_.size(); ++other) {
      const float* const theirs =
          received_[piece % 2].data() + static_cast<std::size_t>(other) * own.size();
      for (std::size_t i = 0; i < own.size(); ++i) sum[i] += theirs[i];
    }
  }

  comm::Communicator& communicator_;
  std::size_t piece_;
  std::vector<float> received_[2];
};

engine::Buckets buckets_of(const engine::ModelShape& shape) {
  return engine::Buckets(shape.values(), shape.layer_starts(),
                         engine::TrainingConfig().bucket_blocks);
}

/// Who keeps the optimiser's state of what, with one buddy each.
engine::Shards shards_of(const Options& options, const engine::ModelShape& shape) {
  std::vector<int> slots;
  for (int rank = 0; rank < options.processes(); ++rank) slots.push_back(rank);
  engine::Ownership ownership(buckets_of(shape), options.processes());
  return engine::make_shards(slots, {std::move(ownership), shape.parameters(), 1});
}

/// The gradients of one process and their sum over all of them, as the engine makes it.
class Sum {
 public:
  Sum(const Options& options, const engine::ModelShape& shape, engine::Buckets buckets,
      int logical_ranks, std::optional<engine::Keeping> keeping = {})
      : rows_per_rank_(static_cast<std::size_t>(options.batch / logical_ranks)),
        sums_(shape.values()) {
    const engine::Assignment assignment =
        or_die(engine::assign(logical_ranks, options.processes()));
    sums_.hold(assignment.nodes[static_cast<std::size_t>(options.rank)]);
    std::vector<float*> buffers;
    std::size_t row = 0;
    for (std::size_t k = 0; k < sums_.count(); ++k) {
      buffers.push_back(sums_.buffer(k).data());
      const auto ranks = static_cast<std::size_t>(sums_.node(k).size());
      nodes_.push_back({row, ranks, buffers.back(), static_cast<std::size_t>(sums_.node(k).first)});
      row += ranks * rows_per_rank_;
    }
    engine::Reduction reduction{engine::Ownership(std::move(buckets), options.processes()),
                                shape.parameters(), false, std::move(keeping)};
    exchange_.emplace(assignment, options.rank, std::move(reduction), buffers, memory_);
  }

  engine::Model::Batch batch() const { return {1, 0, rows_per_rank_, nodes_}; }
  engine::GradientExchange& exchange() { return *exchange_; }

 private:
  std::size_t rows_per_rank_;
  engine::NodeSums sums_;
  std::vector<engine::Model::Node> nodes_;
  std::vector<float> memory_;
  std::optional<engine::GradientExchange> exchange_;
};

/// One process' model, state and gradients, and the steps of each kind.
class Bench {
 public:
  Bench(const Options& options, comm::Communicator& communicator, const Clock& clock)
      : options_(options),
        communicator_(communicator),
        clock_(clock),
        shape_(engine::ModelShape::mlp(options.widths)),
        rows_(static_cast<std::size_t>(options.batch / options.processes())),
        model_(shape_, rows_, context_),
        parameters_(shape_.values()),
        gradient_(shape_.values()),
        optimizer_(config(), shape_.parameters()),
        strict_(options, shape_, buckets_of(shape_), options.logical_ranks),
        after_(options, shape_, engine::Buckets(shape_.values()), options.logical_ranks),
        shards_(shards_of(options, shape_)),
        keeping_(engine::keeping_of(shards_, shards_.held())),
        gifts_(engine::plan_gifts({keeping_}, options.rank)),
        part_of_state_(config(), shards_.held(options.rank)),
        sharded_(options, shape_, buckets_of(shape_), options.logical_ranks, keeping_),
        overlapped_(options, shape_, buckets_of(shape_), options.processes()),
        whole_(communicator, shape_.values()),
        piped_(communicator, kPieceFloats) {
    engine::initialise(shape_, 1, parameters_);
    Rng rng(static_cast<std::uint64_t>(options.rank) + 1);
    for (float& value : model_.input()) value = static_cast<float>(rng.below(256)) / 255.0f;
    for (auto& label : model_.labels())
      label = static_cast<std::int32_t>(rng.below(options.widths.back()));
  }

  void strict() { exchange_by(strict_); }
  void after() { exchange_by(after_); }
  void sharded() {
    sum_up(sharded_);
    std::vector<std::uint8_t> said(static_cast<std::size_t>(communicator_.size()));
    or_die(engine::confirm(communicator_, said, ++step_, deadline(), nullptr));
    part_of_state_.update(context_, sharded_.exchange().gradients(), 1.0f, trained());
    or_die(
        engine::gather_parameters(communicator_, gifts_, ++step_, trained(), deadline(), nullptr));
  }
  void overlapped() { exchange_by(overlapped_); }
  void fast() { reduce_by(whole_); }
  void piped() { reduce_by(piped_); }

  /// All have come to the end of what they did before.
  void meet() { or_die(comm::barrier(communicator_, ++step_, deadline())); }

 private:
  static engine::TrainingConfig config() {
    engine::TrainingConfig config;
    config.sgd = {0.001f, 0.9f};
    return config;
  }
  MonoTime deadline() const { return clock_.mono_now() + seconds(120); }

  void compute(const engine::Model::Batch& batch, const engine::Model::Finished& finished) {
    model_.use(parameters_);
    model_.forward(batch);
    model_.losses_with_gradient(batch, 1.0f / static_cast<float>(options_.batch));
    model_.backward(batch, finished);
  }

  void sum_up(Sum& sum) {
    sum.exchange().begin(communicator_, context_, ++step_, nullptr);
    compute(sum.batch(), [&](std::size_t first) { sum.exchange().advance(first, deadline()); });
    or_die(sum.exchange().finish(deadline()));
  }

  void exchange_by(Sum& sum) {
    sum_up(sum);
    optimizer_.update(context_, sum.exchange().gradients(), 1.0f, trained());
  }

  void reduce_by(FastAllReduce& reduce) {
    const std::vector<engine::Model::Node> nodes{{0, 1, gradient_.data(), 0}};
    compute({1, 0, rows_, nodes}, nullptr);
    reduce.sum(gradient_, ++step_, deadline());
    optimizer_.update(context_, std::span(gradient_).first(shape_.parameters()), 1.0f, trained());
  }

  std::span<float> trained() { return std::span(parameters_).first(shape_.parameters()); }

  const Options& options_;
  comm::Communicator& communicator_;
  const Clock& clock_;
  kernels::cpu::Context context_{1};
  engine::ModelShape shape_;
  std::size_t rows_;
  engine::Model model_;
  std::vector<float> parameters_, gradient_;
  engine::Optimizer optimizer_;
  Sum strict_, after_;
  engine::Shards shards_;
  engine::Keeping keeping_;
  engine::Gifts gifts_;
  engine::Optimizer part_of_state_;
  Sum sharded_, overlapped_;
  FastAllReduce whole_, piped_;
  std::uint64_t step_ = 0;
};

/// Processor time of this process, all threads.
double processor_seconds() {
  timespec used{};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

void measure(const Options& options, Bench& bench, comm::Communicator& communicator,
             const Clock& clock) {
  const std::array<std::pair<const char*, std::function<void()>>, 6> kinds{
      {{"strict", [&] { bench.strict(); }},
       {"sharded", [&] { bench.sharded(); }},
       {"after", [&] { bench.after(); }},
       {"overlapped", [&] { bench.overlapped(); }},
       {"fast", [&] { bench.fast(); }},
       {"piped", [&] { bench.piped(); }}}};
  const MonoTime until = clock.mono_now() + std::chrono::duration_cast<nanoseconds>(
                                                std::chrono::duration<double>(options.seconds));
  for (int round = -kWarmUpRounds; round < kRoundsMost; ++round) {
    std::map<std::string, double> taken;
    for (std::size_t k = 0; k < kinds.size(); ++k) {
      // Each comes first, second and so on.
      const auto turn = static_cast<std::size_t>(round + kWarmUpRounds) + k;
      const auto& [name, step] = kinds[turn % kinds.size()];
      bench.meet();
      const MonoTime start = clock.mono_now();
      const double used = processor_seconds();
      step();
      bench.meet();
      taken[name] = seconds_of(clock.mono_now() - start);
      taken[std::string(name) + "_processor"] = processor_seconds() - used;
    }
    if (round < 0) continue;
    if (options.rank == 0) {
      const char* before = "{";
      for (const auto& [name, seconds] : taken) {
        std::printf("%s\"%s\": %.6f", std::exchange(before, ", "), name.c_str(), seconds);
      }
      std::printf("}\n");
    }
    // Rank 0 alone looks at the clock, so that all make the same number of rounds.
    std::byte more{round + 1 < kRoundsLeast || clock.mono_now() < until};
    or_die(
        comm::broadcast(communicator, 0, 0, std::span(&more, 1), clock.mono_now() + seconds(120)));
    if (more == std::byte{0}) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (argc < 3 || argc % 2 == 0) {
    std::fprintf(stderr,
                 "determinism_bench: usage: RANK PORT,PORT,... [--seconds S] [--shape W-W] "
                 "[--batch N] [--logical-ranks L]\n");
    return 2;
  }
  options.rank = std::atoi(argv[1]);
  for (const std::size_t port : numbers(argv[2], ','))
    options.ports.push_back(static_cast<int>(port));
  for (int i = 3; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--seconds") {
      options.seconds = std::atof(argv[i + 1]);
    } else if (flag == "--shape") {
      options.widths = numbers(argv[i + 1], '-');
    } else if (flag == "--batch") {
      options.batch = std::atoi(argv[i + 1]);
    } else if (flag == "--logical-ranks") {
      options.logical_ranks = std::atoi(argv[i + 1]);
    } else if (flag == "--gigabits") {
      options.wire.bytes_per_second = std::atof(argv[i + 1]) * 1e9 / 8;
    } else if (flag == "--latency-us") {
      options.wire.latency_seconds = std::atof(argv[i + 1]) * 1e-6;
    } else {
      std::fprintf(stderr, "determinism_bench: unknown option %s\n", argv[i]);
      return 2;
    }
  }
  const SystemClock clock;
  const auto real =
      or_die(comm::make_tcp_communicator(bench::tcp_options(options.rank, options.ports, clock)));
  bench::ModelledWire wire(*real, options.wire, clock);
  comm::Communicator& communicator = options.wire.bytes_per_second > 0 ? wire : *real;
  Bench bench(options, communicator, clock);
  measure(options, bench, communicator, clock);
  return 0;
}
