// A model that is split into stages trains to the same bits as one that is not, whatever the number
// of stages and of copies.
#include "worker/engine/pipeline_training.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/check.h"
#include "tests/golden.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/reference_state.h"
#include "worker/data/text.h"
#include "worker/engine/memory_needs.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// What all processes of a split training share.
struct SplitJob {
  TrainingConfig config;
  data::Dataset data;
  ModelShape whole;
  std::unique_ptr<data::Loader> loader;

  explicit SplitJob(const TrainingConfig& of) : config(of) {
    const auto path = [&](const std::string& name) { return config.data_root + "/" + name; };
    data = config.gpt ? *data::load_text(path(config.train.text),
                                         static_cast<std::size_t>(config.gpt->context_length))
                      : *data::load_dataset({path(config.train.images), path(config.train.labels)});
    whole = *ModelShape::of(config, {data.height, data.width, 1}, data.classes);
    loader = std::make_unique<data::Loader>(
        data::LoaderOptions{config.seed, data.count, config.logical_ranks, config.batch_size});
  }
};

struct Split {
  int copies = 1, stages = 1;
};

/// One process of it, on a thread of its own.
using SplitProcess = std::function<void(PipelineTraining&, int copy, int stage)>;

using Ranks = std::vector<std::unique_ptr<comm::Communicator>>;
using Connect = std::function<Ranks(int size, const Clock& clock)>;

/// Over loopback, as between pods: the transport that gives every group of transfers a number.
Ranks connect_by_tcp(int size, const Clock& clock) {
  std::vector<comm::ListenSocket> listening;
  std::vector<comm::PeerAddress> peers;
  for (int rank = 0; rank < size; ++rank) {
    listening.push_back(*comm::listen_tcp("127.0.0.1", 0));
    peers.push_back({"127.0.0.1", listening.back().port});
  }
  Ranks ranks(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      comm::TcpOptions options;
      options.rank = rank;
      options.listen_fd = listening[static_cast<std::size_t>(rank)].fd;
      options.peers = peers;
      options.job_key = std::string(64, 'a');
      options.job_uid = "uid";
      options.epoch = 1;
      options.connect_deadline = clock.mono_now() + seconds(60);
      options.shares_memory = size % 2 == 0;
      options.clock = &clock;
      ranks[static_cast<std::size_t>(rank)] = *comm::make_tcp_communicator(options);
    });
  }
  threads.clear();  // all are there
  return ranks;
}

void on_all_stages(const SplitJob& job, Split split, const SplitProcess& body,
                   const Connect& connect = comm::make_local_communicators) {
  const SystemClock clock;
  std::vector<Ranks> groups, copies;
  for (int c = 0; c < split.copies; ++c) groups.push_back(connect(split.stages, clock));
  for (int s = 0; s < split.stages; ++s) copies.push_back(connect(split.copies, clock));
  std::vector<std::jthread> threads;
  for (int c = 0; c < split.copies; ++c) {
    for (int s = 0; s < split.stages; ++s) {
      threads.emplace_back([&, c, s] {
        const auto copy = static_cast<std::size_t>(c), stage = static_cast<std::size_t>(s);
        PipelineTraining training(job.config, job.whole, *plan_stages(job.whole, split.stages),
                                  {*groups[copy][stage], *copies[stage][copy]}, clock);
        body(training, c, s);
      });
    }
  }
}

void check_steps(const SplitJob& job, Split split,
                 const Connect& connect = comm::make_local_communicators) {
  const bool expects_norm = job.config.gradient_norm_max > 0;
  const auto& expected = test::reference(job.config);
  std::mutex mutex;
  int wrong = 0, seen = 0;
  const SplitProcess process = [&](PipelineTraining& training, int, int) {
    for (std::int64_t step = 1; step <= job.config.steps; ++step) {
      MUSTER_CHECK(training.step(job.data, *job.loader, job.config.steps).has_value());
      const auto hash = training.hash();
      const std::lock_guard lock(mutex);
      ++seen;
      wrong += hash && *hash == expected.at(step).parameters ? 0 : 1;
      wrong += expects_norm == (training.gradient_norm() > 0) ? 0 : 1;
    }
  };
  on_all_stages(job, split, process, connect);
  CHECK(wrong == 0);
  CHECK(seen == split.copies * split.stages * job.config.steps);
}

/// A chain of as many pieces as a group may have processes here.
TrainingConfig deep_digits(std::int64_t steps) {
  TrainingConfig config = test::with_adamw(test::digits(steps));
  config.mlp.hidden = {48, 32, 32, 24, 24, 16, 16};
  return config;
}

/// All products of at most eight processes.
std::vector<Split> splits_of(const ModelShape& whole) {
  std::vector<Split> splits;
  for (int stages = 1; stages <= std::min(8, static_cast<int>(pieces_of(whole))); ++stages) {
    for (int copies = 1; copies * stages <= 8; ++copies) splits.push_back({copies, stages});
  }
  return splits;
}

}  // namespace

TEST_CASE("split into stages: the same bits after every step, whatever the product of sizes") {
  for (auto* const config_of :
       {test::digits, test::digits_with_layers, deep_digits, test::small_gpt}) {
    const SplitJob job(config_of(4));
    CHECK(splits_of(job.whole).back().stages ==
          std::min(8, static_cast<int>(pieces_of(job.whole))));
    for (const Split split : splits_of(job.whole)) {
      CAPTURE(split.copies);
      CAPTURE(split.stages);
      check_steps(job, split);
    }
  }
}

TEST_CASE("split into stages: micro-batches of every size, threads and recomputation") {
  for (auto* const config_of : {test::digits_with_layers, test::small_gpt}) {
    SplitJob job(config_of(3));
    const int rows = job.config.batch_size / job.config.logical_ranks;
    for (const Split split : {Split{1, 2}, Split{2, 3}, Split{3, 2}, Split{1, 5}}) {
      for (const int ranks : {1, 2, 3, 8}) {
        CAPTURE(split.copies);
        CAPTURE(split.stages);
        CAPTURE(ranks);
        job.config.micro_batch_size = ranks * rows;
        job.config.threads = 1 + ranks % 2;
        job.config.recomputes_activations = job.config.gpt && ranks == 2;
        check_steps(job, split);
      }
    }
  }
}

TEST_CASE(
    "split into stages that are connected as pods and as the processes of one: the same bits") {
  SplitJob job(test::small_gpt(3));
  job.config.micro_batch_size = 4;
  for (const Split split : {Split{1, 4}, Split{2, 3}, Split{3, 2}}) {
    CAPTURE(split.stages);
    check_steps(job, split, connect_by_tcp);
  }
}

TEST_CASE("the golden hash of a transformer that is split, a sample at a time") {
  TrainingConfig config = test::small_gpt(12);
  config.micro_batch_size = 2;
  const SplitJob job(config);
  for (const Split split : {Split{1, 5}, Split{2, 4}}) {
    std::mutex mutex;
    std::vector<std::string> hashes;
    on_all_stages(job, split, [&](PipelineTraining& training, int, int) {
      for (int step = 0; step < 12; ++step) {
        MUSTER_CHECK(training.step(job.data, *job.loader, 12).has_value());
      }
      const auto hash = training.hash();
      const std::lock_guard lock(mutex);
      hashes.push_back(hash ? *hash : hash.error().message());
    });
    for (const std::string& hash : hashes) CHECK(hash == test::kSmallGptGolden);
  }
}

TEST_CASE("with no room for the whole model the stages train it, in micro-batches that fit") {
  TrainingConfig config = test::small_gpt(3);
  const SplitJob job(config);
  const auto rows = static_cast<std::size_t>(config.batch_size / config.logical_ranks);
  const MemoryShare alone{*assign(config.logical_ranks, 1), 0, rows};
  SplitJob poor(config);
  poor.config.memory_bytes = memory_needs(config, job.whole, alone, 1).total() - 1;
  REQUIRE(!ranks_that_fit(poor.config, job.whole, alone, 16));
  const StagePlan plan = *plan_stages(job.whole, 4);
  const auto fit = ranks_that_fit(poor.config, plan, alone, 16);
  REQUIRE(fit);
  CHECK(*fit < 16);
  check_steps(poor, {1, 4});
  on_all_stages(poor, {1, 4}, [&](PipelineTraining& training, int, int) {
    MUSTER_CHECK(training.ranks_at_once() == *fit);
  });
  check_steps(poor, {2, 4});
}

TEST_CASE("a deep transformer in eight stages has the bits of one process") {
  TrainingConfig config = test::small_gpt(3);
  config.gpt->layers = 4;
  config.micro_batch_size = 2;
  const SplitJob job(config);
  std::string expected;
  test::on_all_ranks(1, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    expected = run_training(config, communicator, clock, {})->model_sha256;
  });
  for (const Split split : {Split{1, 7}, Split{1, 8}}) {
    std::mutex mutex;
    std::vector<std::string> hashes;
    on_all_stages(job, split, [&](PipelineTraining& training, int, int) {
      for (int step = 0; step < 3; ++step) {
        MUSTER_CHECK(training.step(job.data, *job.loader, 3).has_value());
      }
      const auto hash = training.hash();
      const std::lock_guard lock(mutex);
      hashes.push_back(hash ? *hash : hash.error().message());
    });
    REQUIRE(hashes.size() == static_cast<std::size_t>(split.stages));
    for (const std::string& hash : hashes) CHECK(hash == expected);
  }
}

TEST_CASE("a stage keeps its own parameters and no others") {
  const SplitJob job(test::digits_in_buckets(1));
  std::mutex mutex;
  std::size_t kept = 0, most = 0;
  on_all_stages(job, {1, 4}, [&](PipelineTraining& training, int, int) {
    const std::lock_guard lock(mutex);
    kept += training.values().size();
    most = std::max(most, training.values().size());
  });
  CHECK(kept == job.whole.values());
  CHECK(most < job.whole.values());
}

TEST_CASE("a checkpoint of one split is gone on from by any other, and is the one of no split") {
  for (auto* const config_of : {test::digits_with_layers, test::small_gpt}) {
    TrainingConfig config = test::with_adamw(config_of(6));
    const SplitJob job(config);
    const auto& expected = test::reference(config);
    WholeState saved;
    on_all_stages(job, {2, 3}, [&](PipelineTraining& training, int, int) {
      for (int step = 0; step < 3; ++step) {
        MUSTER_CHECK(training.step(job.data, *job.loader, 6).has_value());
      }
      auto whole = training.collect();
      MUSTER_CHECK(whole.has_value());
      if (*whole) saved = **std::move(whole);
    });
    CHECK(test::is_right(expected.at(3), saved.values, saved.optimizer));
    for (const Split split : {Split{1, 1}, Split{1, 4}, Split{3, 2}}) {
      CAPTURE(split.stages);
      std::mutex mutex;
      WholeState last;
      on_all_stages(job, split, [&](PipelineTraining& training, int copy, int stage) {
        const bool is_first = copy == 0 && stage == 0;
        MUSTER_CHECK(training.deal(is_first ? &saved : nullptr, 3).has_value());
        for (int step = 3; step < 6; ++step) {
          MUSTER_CHECK(training.step(job.data, *job.loader, 6).has_value());
        }
        auto whole = training.collect();
        MUSTER_CHECK(whole.has_value());
        const std::lock_guard lock(mutex);
        if (*whole) last = **std::move(whole);
      });
      CHECK(test::is_right(expected.at(6), last.values, last.optimizer));
    }
  }
}

TEST_CASE(
    "the loss of a split training is known to all its processes, and stops all when infinite") {
  TrainingConfig config = test::digits(8);
  config.sgd.learning_rate = 1e30f;
  const SplitJob job(config);
  std::mutex mutex;
  std::vector<std::string> ends;
  on_all_stages(job, {2, 2}, [&](PipelineTraining& training, int, int) {
    Status status;
    while (status && training.steps() < 8) status = training.step(job.data, *job.loader, 8);
    const std::lock_guard lock(mutex);
    ends.push_back(status ? "none" : status.error().message());
  });
  REQUIRE(ends.size() == 4);
  CHECK(ends[0].find(": the loss is ") != std::string::npos);
  for (const std::string& end : ends) CHECK(end == ends[0]);
}
