#include "worker/engine/training.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <thread>

#include "common/contract.h"
#include "common/json.h"
#include "common/model_files.h"
#include "kernels/ops.h"
#include "tests/full_disk.h"
#include "tests/golden.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/picture_bytes.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/reference_state.h"
#include "tests/unit/engine/run_files.h"
#include "worker/comm/shared_communicator.h"
#include "worker/data/dataset.h"

using namespace muster;
using namespace muster::engine;
namespace cpu = muster::kernels::cpu;
using muster::test::bytes_of;
using muster::test::record_of;

namespace {

/// SHA-256 of the parameters of examples/digits.yaml after its last step, by fp32-chain/1: on every
/// machine, instruction set, compiler, number of processes and threads.
const std::string kGolden = test::kDigitsGolden;
constexpr std::int64_t kTrainedSteps = test::kDigitsSteps;

TrainingConfig digits() {
  TrainingConfig config;
  config.seed = 7;
  config.epochs = 20;
  config.mlp.hidden = {128};
  config.train = {"digits-train-images.idx.gz", "digits-train-labels.idx.gz"};
  config.test = {"digits-test-images.idx.gz", "digits-test-labels.idx.gz"};
  config.has_test = true;
  config.sgd = {0.1f, 0.9f};
  config.data_root = "examples/data";
  return config;
}

/// examples/digits-cnn.yaml.
TrainingConfig digits_cnn() {
  TrainingConfig config = digits();
  config.epochs = 10;
  config.cnn = CnnConfig{{16, 32}, 3, true, {64}, 0.25f};
  config.sgd = {0.05f, 0.9f};
  return config;
}

using Outcome = std::optional<Result<TrainingSummary>>;

/// Runs the training on `processes` ranks; `on_step` is called on every rank.
struct Run {
  TrainingConfig config = digits();
  int processes = 1;
  std::function<void(comm::Communicator&, const StepReport&, std::atomic<bool>&)> on_step;
  std::function<void(int, TrainingConfig&)> differ;  ///< per rank
  std::function<void(std::string_view)> on_files;    ///< of every rank

  std::vector<Outcome> outcomes() const {
    std::vector<Outcome> results(static_cast<std::size_t>(processes));
    test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
      TrainingConfig own = config;
      if (differ) differ(communicator.rank(), own);
      std::atomic<bool> stop = false;
      TrainingHooks hooks;
      hooks.stop = &stop;
      hooks.on_files = on_files;
      hooks.on_step = [&](const StepReport& report) {
        if (on_step) on_step(communicator, report, stop);
      };
      const SystemClock clock;
      results[static_cast<std::size_t>(communicator.rank())] =
          run_training(own, communicator, clock, hooks);
      // As a process does when its trainer ends with an error: its connections close.
      if (!results[static_cast<std::size_t>(communicator.rank())]->has_value()) {
        communicator.abort();
      }
    });
    return results;
  }

  /// The summaries of all ranks, which must have ended well.
  std::vector<TrainingSummary> summaries() const {
    std::vector<TrainingSummary> all;
    for (const Outcome& outcome : outcomes()) {
      REQUIRE_MESSAGE(outcome->has_value(),
                      (outcome->has_value() ? "" : outcome->error().message()));
      all.push_back(**outcome);
    }
    return all;
  }

  /// Exit codes and sentences of all ranks, which must have failed.
  std::vector<Error> errors() const {
    std::vector<Error> all;
    for (const Outcome& outcome : outcomes()) {
      REQUIRE_FALSE(outcome->has_value());
      all.push_back(outcome->error());
    }
    return all;
  }
};

void check_golden(const std::vector<TrainingSummary>& summaries) {
  std::uint64_t computations = 0;
  for (const TrainingSummary& summary : summaries) {
    CHECK(summary.complete);
    CHECK(summary.step == kTrainedSteps);
    CHECK(summary.model_sha256 == kGolden);
    CHECK(summary.accuracy == summaries[0].accuracy);
    CHECK(summary.accuracy >= 0.97);
    computations += summary.logical_rank_computations;
  }
  CHECK(computations == 16 * kTrainedSteps);
}

}  // namespace

TEST_CASE("tests are made after epochs, after steps where that is said, and at the end") {
  const auto tested = [](std::int64_t every_steps) {
    const test::TempDirectory directory;
    Run run;
    run.config.epochs = 0;
    run.config.steps = 50;  // of 22 an epoch
    run.config.evaluate_every_steps = every_steps;
    run.config.checkpoint_path = directory.path();
    run.processes = 2;
    run.summaries();
    std::map<std::int64_t, std::string> loss;
    for (const std::string& line : record_of(directory.path())) {
      const Json json = *parse_json(line);
      if (!json.contains("evaluation")) continue;
      const Json& told = json["evaluation"];
      CHECK(loss.emplace(told["step"].get<std::int64_t>(), told["loss"]).second);
    }
    return loss;
  };
  const auto by_epochs = tested(0);
  const auto by_steps = tested(20);
  std::vector<std::int64_t> steps;
  for (const auto& [step, loss] : by_steps) {
    steps.push_back(step);
    if (by_epochs.contains(step)) CHECK(by_epochs.at(step) == loss);
  }
  CHECK(steps == std::vector<std::int64_t>{20, 22, 40, 44, 50});
  CHECK(by_epochs.size() == 3);
}

TEST_CASE("the golden hash: the same bits for 1, 2, 3 and 4 workers") {
  for (int processes = 1; processes <= 4; ++processes) {
    CAPTURE(processes);
    Run run;
    run.processes = processes;
    const auto summaries = run.summaries();
    check_golden(summaries);
    MESSAGE(processes << " workers: accuracy " << summaries[0].accuracy << ", loss "
                      << summaries[0].loss << ", " << summaries[0].model_sha256);
  }
}

TEST_CASE("the golden hash: the same bits where each worker keeps a part of the state") {
  for (int processes = 1; processes <= 4; ++processes) {
    CAPTURE(processes);
    Run run;
    run.processes = processes;
    run.config.is_sharded = true;
    check_golden(run.summaries());
  }
}

TEST_CASE("the golden hash: the same bits on one and two threads") {
  Run run;
  run.config.threads = 2;
  check_golden(run.summaries());
}

TEST_CASE("the golden hash: the same bits on every instruction set") {
  const cpu::Target best = cpu::best_target();
  for (const cpu::Target target :
       {cpu::Target::kScalar, cpu::Target::kAvx2, cpu::Target::kAvx512, cpu::Target::kNeon}) {
    if (!cpu::has_target(target)) {
      MESSAGE("skipped: this machine or build has no " << std::string(cpu::name_of(target)));
      continue;
    }
    CAPTURE(std::string(cpu::name_of(target)));
    cpu::force_target(target);
    Run run;
    run.processes = 2;
    check_golden(run.summaries());
  }
  cpu::force_target(best);
}

TEST_CASE("convolution, batch normalisation and dropout: the same bits whoever computes them") {
  Run run;
  run.config = digits_cnn();
  for (int processes = 1; processes <= 4; ++processes) {
    CAPTURE(processes);
    run.processes = processes;
    run.config.threads = 1 + processes % 2;
    // Three buckets, of which two are sent while gradients are still computed; or one.
    run.config.bucket_blocks = processes % 2 == 0 ? 256 : 1;
    for (const TrainingSummary& summary : run.summaries()) {
      CHECK(summary.model_sha256 == test::kDigitsCnnGolden);
      CHECK(summary.accuracy >= 0.97);
      if (processes == 1) MESSAGE("accuracy " << summary.accuracy << ", " << summary.model_sha256);
    }
  }
}

TEST_CASE("a table of the images' numbers trains the model that the images do") {
  const test::TempDirectory directory;
  const auto write_table = [&](const std::string& name, const std::string& of_class,
                               const data::Dataset& images) {
    std::vector<float> row(images.features);
    std::ofstream file(directory.path() + "/" + name);
    for (std::size_t i = 0; i < images.features; ++i) file << "p" << i << ",";
    file << "digit\n";
    for (std::size_t i = 0; i < images.count; ++i) {
      cpu::bytes_to_unit(images.image(i), images.features, row.data());
      for (const float value : row) {
        char text[32];
        file.write(text, std::to_chars(text, text + sizeof text, value).ptr - text) << ",";
      }
      file << of_class << int{images.labels[i]} << "\n";
    }
  };
  const auto paths = [](const std::string& name) {
    return data::DatasetPaths{"examples/data/digits-" + name + "-images.idx.gz",
                              "examples/data/digits-" + name + "-labels.idx.gz"};
  };
  const data::Dataset train = *data::load_dataset(paths("train"));
  // Names have the order of the numbers.
  for (const std::string of_class : {"", "digit "}) {
    CAPTURE(of_class);
    write_table("train.csv", of_class, train);
    write_table("test.csv", of_class, *data::load_test_dataset(paths("test"), train));
    Run run;
    run.processes = 2;
    run.config.data_root = directory.path();
    run.config.train = {.csv = "train.csv", .label = "digit"};
    run.config.test = {.csv = "test.csv", .label = "digit"};
    if (!of_class.empty()) run.config.most_data_held = 0;  // rows stay in their files
    run.config.checkpoint_path = directory / ("out" + of_class);
    const std::string path = run.config.checkpoint_path + "/" + std::string(contract::kClassesFile);
    std::filesystem::create_directory(run.config.checkpoint_path);
    std::ofstream(path) << "of another job\n";
    for (const TrainingSummary& summary : run.summaries()) {
      CHECK(summary.model_sha256 == kGolden);
      CHECK(summary.accuracy >= 0.97);
    }
    CHECK(std::filesystem::exists(path) == !of_class.empty());
    if (of_class.empty()) continue;
    std::ifstream file(path);
    CHECK(Json::parse(file) == Json({"digit 0", "digit 1", "digit 2", "digit 3", "digit 4",
                                     "digit 5", "digit 6", "digit 7", "digit 8", "digit 9"}));
  }
}

TEST_CASE("pictures train, gray or in colors, held or not, the same with 1 to 3 processes") {
  const test::TempDirectory directory;
  const data::Dataset digits_train = *data::load_dataset(
      {"examples/data/digits-train-images.idx.gz", "examples/data/digits-train-labels.idx.gz"});
  // Every class has its tint.
  for (std::size_t i = 0; i < digits_train.count; ++i) {
    const int label = digits_train.labels[i];
    test::Bytes pixels;
    for (std::size_t at = 0; at < digits_train.features; ++at) {
      const int value = digits_train.image(i)[at];
      for (const int share : {label % 3, label % 2, 2}) {
        pixels.push_back(static_cast<std::uint8_t>(value * share / 2));
      }
    }
    const std::string of_class = directory / std::to_string(label);
    std::filesystem::create_directory(of_class);
    test::write_bytes(of_class + "/" + std::to_string(i) + ".png", test::png_bytes(8, 8, pixels));
  }
  for (const bool is_gray : {false, true}) {
    CAPTURE(is_gray);
    std::string expected;
    for (int processes = 1; processes <= 3; ++processes) {
      Run run;
      run.processes = processes;
      run.config = digits_cnn();
      run.config.epochs = 2;
      run.config.data_root = directory.path();
      run.config.train = {.folder = ".", .is_gray = is_gray};
      run.config.test = run.config.train;
      if (processes % 2 == 0) run.config.most_data_held = 0;
      for (const TrainingSummary& summary : run.summaries()) {
        if (expected.empty()) expected = summary.model_sha256;
        CHECK(summary.model_sha256 == expected);
        CHECK(summary.accuracy >= 0.9);
      }
    }
  }
}

TEST_CASE("who joins is told what the others have found of their pictures") {
  const test::TempDirectory right, wrong;
  for (const test::TempDirectory* const directory : {&right, &wrong}) {
    for (const char* name : {"train", "test"}) {
      for (int i = 0; i < 48; ++i) {
        const std::string of_class = *directory / name + (i % 3 == 0 ? "/a" : "/b");
        std::filesystem::create_directories(of_class);
        const auto value = static_cast<std::uint8_t>(directory == &wrong && i == 7 ? 1 : 3 * i);
        test::Bytes file = test::png_bytes(8, 8, test::Bytes(192, value));
        file.resize(500);  // what comes behind a picture is not looked at
        test::write_bytes(of_class + "/" + std::to_string(i), file);
      }
    }
  }
  Run run;
  run.config.train = {.folder = "train"};
  run.config.test = {.folder = "test"};
  run.config.data_root = right.path();
  run.config.batch_size = 16;
  run.config.epochs = 2;
  const TrainingSummary expected = run.summaries()[0];
  CHECK_FALSE(expected.data_sha256.empty());
  run.processes = 3;
  for (const std::uint64_t most_held : {std::uint64_t{0}, data::kMostHeldBytes}) {
    run.config.most_data_held = most_held;
    for (int first = 0; first < 3; ++first) {
      CAPTURE(first);
      run.differ = [&](int rank, TrainingConfig& own) { own.is_joining = rank >= first; };
      for (const TrainingSummary& summary : run.summaries()) {
        CHECK(summary.model_sha256 == expected.model_sha256);
        CHECK(summary.data_sha256 == expected.data_sha256);
        CHECK(summary.accuracy == expected.accuracy);
      }
      run.differ = [&](int rank, TrainingConfig& own) {
        own.is_joining = rank >= first;
        if (rank == 2) own.data_root = wrong.path();
      };
      // Where nobody knows all decode all, and tell each other.
      const Error error = run.errors()[2];
      if (first == 0) {
        CHECK(error.message().starts_with("process 2 and process 0 have different data, "));
      } else {
        CHECK(error.message().find("/b/7: is not the picture that the job's other workers") !=
              std::string::npos);
      }
      CHECK(error.exit_code() == contract::exit_code::kDisk);
    }
  }
}

TEST_CASE("convolution, batch normalisation and dropout: the same bits on every instruction set") {
  const cpu::Target best = cpu::best_target();
  std::string expected;
  for (const cpu::Target target :
       {cpu::Target::kScalar, cpu::Target::kAvx2, cpu::Target::kAvx512, cpu::Target::kNeon}) {
    if (!cpu::has_target(target)) continue;
    CAPTURE(std::string(cpu::name_of(target)));
    cpu::force_target(target);
    Run run;
    run.config = digits_cnn();
    run.config.epochs = 1;
    run.processes = 2;
    const auto summaries = run.summaries();
    if (expected.empty()) expected = summaries[0].model_sha256;
    CHECK(summaries[0].model_sha256 == expected);
  }
  cpu::force_target(best);
}

TEST_CASE("layers with running statistics, interrupted and resumed: the same files") {
  const test::TempDirectory whole;
  const test::TempDirectory parts;
  Run run;
  run.config = digits_cnn();
  run.config.epochs = 3;
  run.config.checkpoint_path = whole.path();
  run.processes = 2;
  const std::string expected = run.summaries()[0].model_sha256;
  run.config.checkpoint_path = parts.path();
  run.processes = 3;
  run.on_step = [](comm::Communicator& communicator, const StepReport& report,
                   std::atomic<bool>& stop) {
    if (communicator.rank() == 1 && report.step == 31) stop = true;
  };
  run.summaries();
  run.on_step = nullptr;
  run.processes = 1;
  const auto resumed = run.summaries();
  CHECK(resumed[0].restored_step == 32);
  CHECK(resumed[0].model_sha256 == expected);
  CHECK(record_of(parts.path()) == record_of(whole.path()));
  for (const char* file : {"/model.safetensors", "/step-000000000066/model.safetensors",
                           "/step-000000000066/optimizer.safetensors"}) {
    CHECK(bytes_of(parts.path() + file) == bytes_of(whole.path() + file));
    CHECK_FALSE(bytes_of(parts.path() + file).empty());
  }
  const std::string model = bytes_of(parts.path() + "/model.safetensors");
  CHECK(model.find("layers.1.running_var") != std::string::npos);
  const std::string optimizer = bytes_of(parts.path() + "/step-000000000066/optimizer.safetensors");
  CHECK(optimizer.find("running") == std::string::npos);
}

TEST_CASE("a checkpoint of another model is refused by the field that differs") {
  const test::TempDirectory directory;
  Run run;
  run.config = digits_cnn();
  run.config.epochs = 1;
  run.config.checkpoint_path = directory.path();
  run.summaries();
  const auto refused = [&] { return run.errors()[0].message(); };
  run.config.cnn->dropout = 0;
  CHECK(refused().find("model.cnn.dropout was \"0.25\"") != std::string::npos);
  run.config = digits_cnn();
  run.config.checkpoint_path = directory.path();
  run.config.cnn->kernel_size = 5;
  CHECK(refused().find("spec.training.model.cnn.kernelSize was 3") != std::string::npos);
  run.config.cnn.reset();
  CHECK(refused().find("spec.training.model.mlp.dropout was not given") != std::string::npos);
}

TEST_CASE("images that the stages cannot halve are refused by the field's name") {
  Run run;
  run.config = digits_cnn();
  run.config.cnn->channels = {2, 2, 2, 2};
  const Error error = run.errors()[0];
  CHECK(error.exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(
      error.message() ==
      "spec.training.model.cnn.channels: has 4 stages, each of which halves its images, but those "
      "of digits-train-images.idx.gz, 8 x 8, can be halved only 3 times; leave stages out");
}

namespace {

constexpr std::int64_t kAdamwSteps = 66;

TrainingConfig adamw_digits() {
  TrainingConfig config = digits();
  config.epochs = 3;
  config.adamw = AdamwConfig{0.003f, 0.9f, 0.99f, 1e-8f, 0.05f};
  config.gradient_norm_max = 1.0f;
  return config;
}

/// The hash that all of `summaries` have.
std::string hash_of(const std::vector<TrainingSummary>& summaries) {
  for (const TrainingSummary& summary : summaries) {
    CHECK(summary.complete);
    CHECK(summary.step == kAdamwSteps);
    CHECK(summary.model_sha256 == summaries[0].model_sha256);
  }
  return summaries[0].model_sha256;
}

}  // namespace

TEST_CASE("AdamW with clipping: the same bits for any workers, threads and instruction set") {
  Run run;
  run.config = adamw_digits();
  std::map<std::int64_t, float> norms;
  run.on_step = [&](comm::Communicator&, const StepReport& report, std::atomic<bool>&) {
    norms[report.step] = report.gradient_norm;
  };
  const auto summaries = run.summaries();
  const std::string expected = hash_of(summaries);
  CHECK(summaries[0].accuracy >= 0.9);
  const auto clipped = std::count_if(norms.begin(), norms.end(), [&](const auto& norm) {
    return norm.second > run.config.gradient_norm_max;
  });
  MESSAGE("accuracy " << summaries[0].accuracy << "; " << clipped << " of " << norms.size()
                      << " gradients clipped");
  CHECK(clipped > 0);
  CHECK(clipped < kAdamwSteps);
  const std::map<std::int64_t, float> alone = norms;
  for (int processes = 2; processes <= 4; ++processes) {
    CAPTURE(processes);
    run.processes = processes;
    run.on_step = [&](comm::Communicator&, const StepReport& report, std::atomic<bool>&) {
      CHECK(report.gradient_norm == alone.at(report.step));
    };
    CHECK(hash_of(run.summaries()) == expected);
  }
  run.on_step = nullptr;
  run.processes = 2;
  run.config.threads = 2;
  CHECK(hash_of(run.summaries()) == expected);
  const cpu::Target best = cpu::best_target();
  for (const cpu::Target target :
       {cpu::Target::kScalar, cpu::Target::kAvx2, cpu::Target::kAvx512, cpu::Target::kNeon}) {
    if (!cpu::has_target(target)) continue;
    CAPTURE(std::string(cpu::name_of(target)));
    cpu::force_target(target);
    CHECK(hash_of(run.summaries()) == expected);
  }
  cpu::force_target(best);
  run.config.gradient_norm_max = 0;
  CHECK(hash_of(run.summaries()) != expected);
}

TEST_CASE("a training decays matrices alone where that is said, with replicated state and shards") {
  Run run;
  run.config = adamw_digits();
  run.config.adamw->weight_decay = 0.5f;
  const std::string all = hash_of(run.summaries());
  run.config.adamw->decays_all = false;
  const std::string matrices = hash_of(run.summaries());
  CHECK(matrices != all);
  run.config.is_sharded = true;
  run.processes = 3;
  CHECK(hash_of(run.summaries()) == matrices);
}

TEST_CASE("AdamW interrupted and resumed by another number of workers: same bits and files") {
  const test::TempDirectory whole;
  const test::TempDirectory parts;
  Run run;
  run.config = adamw_digits();
  run.config.checkpoint_path = whole.path();
  const std::string expected = hash_of(run.summaries());
  run.config.checkpoint_path = parts.path();
  run.processes = 3;
  run.on_step = [](comm::Communicator& communicator, const StepReport& report,
                   std::atomic<bool>& stop) {
    if (communicator.rank() == 1 && report.step == 30) stop = true;
  };
  for (const TrainingSummary& summary : run.summaries()) CHECK(summary.step == 31);
  run.processes = 2;
  run.on_step = nullptr;
  const auto resumed = run.summaries();
  CHECK(resumed[0].restored_step == 31);
  CHECK(hash_of(resumed) == expected);
  for (const char* file : {"/model.safetensors", "/step-000000000066/model.safetensors",
                           "/step-000000000066/optimizer.safetensors"}) {
    CHECK(bytes_of(parts.path() + file) == bytes_of(whole.path() + file));
    CHECK_FALSE(bytes_of(parts.path() + file).empty());
  }
}

TEST_CASE("a checkpoint of another optimiser or another clipping is refused by name") {
  const test::TempDirectory directory;
  Run run;
  run.config = adamw_digits();
  run.config.checkpoint_path = directory.path();
  run.summaries();
  const auto refused = [&](const TrainingConfig& config) {
    run.config = config;
    run.config.checkpoint_path = directory.path();
    const Error error = run.errors()[0];
    CHECK(error.exit_code() == contract::exit_code::kCheckpoint);
    return error.message();
  };
  const std::string optimizer = "spec.training.optimizer was \"adamw\" when it was saved and is";
  TrainingConfig config = adamw_digits();
  config.adamw.reset();
  CHECK(refused(config).find(optimizer + " \"sgd\" now") != std::string::npos);
  config = adamw_digits();
  config.gradient_norm_max = 0;
  CHECK(refused(config).find("gradientClipping.maxNorm was \"1\" when it was saved and is not "
                             "given now") != std::string::npos);
  float AdamwConfig::* const fields[] = {&AdamwConfig::learning_rate, &AdamwConfig::beta1,
                                         &AdamwConfig::beta2, &AdamwConfig::epsilon,
                                         &AdamwConfig::weight_decay};
  const char* const names[] = {"learningRate", "beta1", "beta2", "epsilon", "weightDecay"};
  for (std::size_t i = 0; i < 5; ++i) {
    config = adamw_digits();
    (*config.adamw).*fields[i] *= 0.5f;
    CHECK(refused(config).find(std::string("spec.training.optimizer.adamw.") + names[i] +
                               " was ") != std::string::npos);
  }
  config = adamw_digits();
  config.adamw->decays_all = false;
  CHECK(refused(config).find("adamw.weightDecayOf was not given when it was saved and is "
                             "\"Matrices\" now") != std::string::npos);
}

TEST_CASE("a gradient without a finite norm ends the training on all workers alike") {
  Run run;
  run.config = adamw_digits();
  run.config.adamw.reset();
  // One sample a step: soon its gradient has squares beyond a float, and its loss is still below.
  run.config.batch_size = 1;
  run.config.logical_ranks = 1;
  run.config.mlp.hidden = {32};
  run.config.sgd = {5e18f, 0};
  run.config.gradient_norm_max = 1e9f;
  run.processes = 2;
  for (const Error& error : run.errors()) {
    CHECK(error.exit_code() == contract::exit_code::kNumerics);
    CHECK_MESSAGE(error.message().find("the norm of the gradient is inf; a smaller "
                                       "spec.training.optimizer.sgd.learningRate may help") !=
                      std::string::npos,
                  error.message());
  }
}

TEST_CASE("interrupted and resumed by another number of workers: same bits, record and files") {
  const test::TempDirectory whole;
  const test::TempDirectory parts;
  Run run;
  run.config.checkpoint_path = whole.path();
  check_golden(run.summaries());

  run.config.checkpoint_path = parts.path();
  run.processes = 3;
  run.on_step = [](comm::Communicator& communicator, const StepReport& report,
                   std::atomic<bool>& stop) {
    if (communicator.rank() == 1 && report.step == 136) stop = true;
  };
  std::uint64_t computations = 0;
  for (const TrainingSummary& summary : run.summaries()) {
    CHECK_FALSE(summary.complete);
    CHECK(summary.step == 137);
    CHECK(summary.model_path.empty());
    computations += summary.logical_rank_computations;
  }
  run.processes = 2;
  run.on_step = nullptr;
  for (const TrainingSummary& summary : run.summaries()) {
    CHECK(summary.restored_step == 137);
    CHECK(summary.complete);
    CHECK(summary.model_sha256 == kGolden);
    computations += summary.logical_rank_computations;
  }
  CHECK(computations == 16 * kTrainedSteps);
  CHECK(record_of(parts.path()) == record_of(whole.path()));
  CHECK(record_of(whole.path()).size() == kTrainedSteps + 20);
  for (const char* file : {"/model.safetensors", "/step-000000000440/model.safetensors",
                           "/step-000000000440/optimizer.safetensors"}) {
    CHECK(bytes_of(parts.path() + file) == bytes_of(whole.path() + file));
    CHECK_FALSE(bytes_of(parts.path() + file).empty());
  }
}

TEST_CASE("killed and resumed from the last checkpoint: same bits") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.processes = 3;
  run.on_step = [](comm::Communicator& communicator, const StepReport& report, std::atomic<bool>&) {
    if (communicator.rank() == 2 && report.step == 250) communicator.abort();
  };
  for (const Error& error : run.errors()) {
    CHECK(error.exit_code() == contract::exit_code::kPeerLost);
  }
  run.on_step = nullptr;
  run.processes = 4;
  for (const TrainingSummary& summary : run.summaries()) {
    CHECK(summary.restored_step == 200);
    CHECK(summary.model_sha256 == kGolden);
  }
  CHECK(record_of(directory.path()).size() == kTrainedSteps + 20);
}

TEST_CASE("work on files is told, so that nobody takes it for a standstill: reading, too") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.config.checkpoint_every_steps = 5;
  std::string story;
  run.on_files = [&](std::string_view path) {
    const bool is_data = path.ends_with("-images.idx.gz");
    story += path.empty() ? '>' : is_data ? 'd' : '<';
    CHECK((path.empty() || is_data || path == directory.path()));
  };
  run.on_step = [&](comm::Communicator&, const StepReport& report, std::atomic<bool>& stop) {
    if (report.step == 1 || report.step == 12) story += 's';
    stop = report.step == 10;
  };
  CHECK(run.summaries()[0].step == 11);
  // Training and test set are read, and what there is; the record is begun, takes what others have
  // kept for it, and its line.
  CHECK(story.substr(0, 15) == "d>d><><><><>s<>");
  story.clear();
  CHECK(run.summaries()[0].restored_step == 11);
  CHECK(story.substr(0, 13) == "d>d><><><><>s");
}

TEST_CASE("the training thread is seen to live between the layers of a step, and while it hashes") {
  const auto told_alive = [](std::vector<int> hidden, std::int64_t hash_every) {
    const test::TempDirectory directory;
    TrainingConfig config = digits();
    config.checkpoint_path = directory.path();
    config.epochs = 0;
    config.steps = 1;
    config.mlp.hidden = std::move(hidden);
    config.hash_every_steps = hash_every;
    int told = 0;
    TrainingHooks hooks;
    hooks.on_alive = [&] { ++told; };
    const SystemClock clock;
    test::on_all_ranks(1, [&](comm::Communicator& communicator) {
      REQUIRE(run_training(config, communicator, clock, hooks).has_value());
    });
    return told;
  };
  // Each layer more is one place more of the forward pass and one of the backward pass.
  CHECK(told_alive({8, 8, 8, 8, 8}, 0) >= told_alive({8, 8, 8}, 0) + 4);
  // A wide layer is computed in many parts, and each of them is told of.
  CHECK(told_alive({2048}, 0) >= told_alive({8}, 0) + 20);
  // It tells after every few of 273 blocks.
  CHECK(told_alive({1024, 1024}, 1) > told_alive({1024, 1024}, 0));
}

TEST_CASE("a finished training that is started again trains nothing") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  check_golden(run.summaries());
  for (const TrainingSummary& summary : run.summaries()) {
    CHECK(summary.complete);
    CHECK(summary.logical_rank_computations == 0);
    CHECK(summary.model_sha256 == kGolden);
    CHECK(summary.accuracy >= 0.97);
  }
}

TEST_CASE("the seed, the learning rate and the logical ranks decide the bits") {
  for (const int field : {0, 1, 2}) {
    Run run;
    run.config.epochs = 0;
    run.config.steps = 10;
    const std::string before = run.summaries()[0].model_sha256;
    if (field == 0) run.config.seed = 8;
    if (field == 1) run.config.sgd.learning_rate = 0.11f;
    if (field == 2) run.config.logical_ranks = 8;
    CHECK(run.summaries()[0].model_sha256 != before);
  }
}

TEST_CASE("a checkpoint of another spec is refused by name, and no worker goes on") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.config.epochs = 1;
  run.processes = 2;
  run.summaries();
  run.config.seed = 8;
  CHECK(run.errors()[0].exit_code() == contract::exit_code::kCheckpoint);
  CHECK(run.errors()[1].exit_code() == contract::exit_code::kPeerLost);
  CHECK(run.errors()[0].message().find("spec.training.seed was 7") != std::string::npos);
  run.config.seed = 7;
  run.config.epochs = 0;
  run.config.steps = 3;
  CHECK(run.errors()[0].message().find("this job ends at step 3; use more epochs or steps, or "
                                       "another claim (spec.training.checkpoint.volumeClaimName") !=
        std::string::npos);
  run.config.steps = 30;
  CHECK(run.summaries()[1].restored_step == 22);
}

TEST_CASE("a loss that is not finite ends the training and is never saved") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.config.checkpoint_every_steps = 1;
  run.config.sgd.learning_rate = 1e30f;
  run.processes = 2;
  for (const Error& error : run.errors()) {
    CHECK(error.exit_code() == contract::exit_code::kNumerics);
  }
  CHECK_FALSE(std::filesystem::exists(directory / "model.safetensors"));
  // Without a checkpoint in between it is the loss that tells.
  run.config.checkpoint_path.clear();
  CHECK(run.errors()[1].message().find("step 2: the loss is") == 0);
}

TEST_CASE(
    "a disk that fills up stops all workers, names its worker alone and keeps the old checkpoint") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.processes = 2;
  std::optional<test::FullDisk> full;
  run.on_step = [&](comm::Communicator& communicator, const StepReport& report,
                    std::atomic<bool>&) {
    if (communicator.rank() != 0 || report.step != 150) return;
    // It is written while training goes on, its manifest last.
    const std::string manifest = directory / "step-000000000100/manifest.json";
    while (!std::filesystem::exists(manifest)) std::this_thread::yield();
    full.emplace(20'000);
  };
  const auto errors = run.errors();
  full.reset();
  CHECK(errors[0].exit_code() == contract::exit_code::kDisk);
  CHECK(errors[1].exit_code() == contract::exit_code::kPeerLost);
  // The first line of the record that does not fit, so that none is lost to those who go on.
  CHECK(errors[0].message().find("record.jsonl: cannot write: File too large") !=
        std::string::npos);
  CHECK_FALSE(std::filesystem::exists(directory / "step-000000000200"));
  run.on_step = nullptr;
  for (const TrainingSummary& summary : run.summaries()) {
    CHECK(summary.restored_step == 100);
    CHECK(summary.model_sha256 == kGolden);
  }
}

TEST_CASE("a checkpoint that does not fit stops all workers") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.config.checkpoint_every_steps = 10;
  run.processes = 2;
  std::optional<test::FullDisk> full;
  run.on_step = [&](comm::Communicator& communicator, const StepReport& report,
                    std::atomic<bool>&) {
    // The record has room for ten more lines, a checkpoint has not.
    if (communicator.rank() == 0 && report.checkpoint_step == 20 && !full) full.emplace(10'000);
  };
  const auto errors = run.errors();
  full.reset();
  CHECK(errors[0].exit_code() == contract::exit_code::kDisk);
  CHECK(errors[1].exit_code() == contract::exit_code::kPeerLost);
  CHECK(std::filesystem::exists(directory / "step-000000000020"));
}

TEST_CASE("one worker without its data stops all, and it alone ends with the exit code of data") {
  Run run;
  run.processes = 3;
  run.differ = [](int rank, TrainingConfig& config) {
    if (rank == 1) config.train.labels = "none.idx";
  };
  const auto errors = run.errors();
  CHECK(errors[1].exit_code() == contract::exit_code::kData);
  for (const int other : {0, 2}) {
    CHECK(errors[static_cast<std::size_t>(other)].exit_code() == contract::exit_code::kPeerLost);
  }
  CHECK(errors[1].message().find("examples/data/none.idx: cannot open") == 0);
  CHECK(errors[0].message().find("rank 1 was lost") != std::string::npos);
}

TEST_CASE("workers with different specs or data do not start") {
  Run run;
  run.processes = 2;
  run.differ = [](int rank, TrainingConfig& config) {
    if (rank == 1) config.sgd.momentum = 0.8f;
  };
  const auto refused = run.errors();
  CHECK(refused[1].exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(refused[0].exit_code() == contract::exit_code::kPeerLost);
  const test::TempDirectory directory;
  std::string labels = bytes_of("examples/data/digits-train-labels.idx.gz");
  auto decoded = test::Bytes(1437, 0);
  decoded[3] = 9;
  test::write_bytes(directory / "labels", test::idx_bytes({1437}, decoded));
  run.differ = [&](int rank, TrainingConfig& config) {
    if (rank == 1) config.train.labels = directory / "labels";
  };
  const auto differ = [&] {
    const auto errors = run.errors();
    CHECK(errors[0].exit_code() == contract::exit_code::kPeerLost);
    CHECK(errors[1].exit_code() == contract::exit_code::kData);
    CHECK(errors[1].message() ==
          "process 1 and process 0 have different data, to train on or to test with; they must be "
          "the same");
  };
  differ();
  // Else each would test its part of the model's accuracy with a set of its own.
  test::write_bytes(directory / "test", test::idx_bytes({360}, test::Bytes(360, 3)));
  run.differ = [&](int rank, TrainingConfig& config) {
    if (rank == 1) config.test.labels = directory / "test";
  };
  differ();
}

TEST_CASE("what a training is tested with is no part of what it is, and may be another one later") {
  const test::TempDirectory directory;
  Run run;
  run.config.checkpoint_path = directory.path();
  run.config.epochs = 1;
  const auto train = data::load_dataset(
      {"examples/data/digits-train-images.idx.gz", "examples/data/digits-train-labels.idx.gz"});
  const std::string data_sha256 = to_hex(data::hash_of(*train));
  CHECK(run.summaries()[0].data_sha256 == data_sha256);
  run.config.epochs = 2;
  run.config.test = run.config.train;
  const TrainingSummary other = run.summaries()[0];
  CHECK(other.restored_step == 22);
  CHECK(other.data_sha256 == data_sha256);
}

TEST_CASE("a batch larger than the data is refused") {
  Run run;
  run.config.batch_size = 2048;
  CHECK(run.errors()[0].exit_code() == contract::exit_code::kInvalidSpec);
  CHECK(run.errors()[0].message().find("spec.training.batchSize: is 2048, but") == 0);
}

TEST_CASE("data that take more memory than the process may have are refused by their file") {
  Run run;
  const auto refused = [&](std::size_t memory) {
    run.config.memory_bytes = memory;
    const Error error = run.errors()[0];
    CHECK(error.exit_code() == contract::exit_code::kInvalidSpec);
    return error.message();
  };
  CHECK(refused(100'000) ==
        "examples/data/digits-train-images.idx.gz: takes at least 127410 bytes of memory, of which "
        "this process has 100000 left; spec.worker.resources.memory must be more for each process");
  CHECK(
      refused(127'410 + 1).starts_with("spec.training.model: each of 1 processes needs at least"));
  run.config.train = {.csv = "iris-train.csv", .label = "species"};
  CHECK(refused(1000).starts_with("examples/data/iris-train.csv: takes at least 1"));
  // Of what the test set would take the training set has some.
  run.config = test::small_gpt(1);
  run.config.data_root = "examples/data";
  run.config.test = run.config.train;
  run.config.has_test = true;
  CHECK(refused(111'540 + 7) ==
        "examples/data/shakespeare-test.txt: takes at least 111540 bytes of memory, of which this "
        "process has 7 left; spec.worker.resources.memory must be more for each process");
}

TEST_CASE("a spare without a logical rank and without test data follows to the same model") {
  Run run;
  run.config.has_test = false;
  run.config.logical_ranks = 2;
  run.config.epochs = 0;
  run.config.steps = 5;
  const std::string alone = run.summaries()[0].model_sha256;
  run.processes = 3;
  const auto summaries = run.summaries();
  CHECK(summaries[2].logical_rank_computations == 0);
  for (const TrainingSummary& summary : summaries) CHECK(summary.model_sha256 == alone);
}

TEST_CASE("reports count steps, samples and computations") {
  Run run;
  run.processes = 2;
  run.config.epochs = 2;
  std::atomic<std::int64_t> samples = 0;
  std::atomic<std::int64_t> last = 0;
  run.on_step = [&](comm::Communicator& communicator, const StepReport& report,
                    std::atomic<bool>&) {
    if (communicator.rank() != 0) return;
    CHECK(report.step == last + 1);
    CHECK(report.total_steps == 44);
    CHECK(report.epoch == (report.step - 1) / 22);
    CHECK((report.accuracy >= 0) == (report.step >= 22));
    CHECK(report.logical_rank_computations == static_cast<std::uint64_t>(8 * report.step));
    last = report.step;
    samples += report.samples;
  };
  run.summaries();
  CHECK(samples == 44 * 64);
}

namespace {

/// Two on each of two hosts, of whom each has waited twice as long for the next one.
class TwoHosts final : public comm::SharedCommunicator {
 public:
  explicit TwoHosts(comm::Communicator& real)
      : SharedCommunicator(std::shared_ptr<comm::Communicator>(&real, [](auto*) {})) {}
  std::vector<int> hosts() const override { return {0, 0, 1, 1}; }
  std::vector<double> waited_seconds() const override { return {1, 2, 4, 8}; }
};

}  // namespace

TEST_CASE("reports tell whom a process has waited for, or for which host where those send as one") {
  for (const bool is_by_hosts : {false, true}) {
    CAPTURE(is_by_hosts);
    TrainingConfig config = digits();
    config.epochs = 0;
    config.steps = 2;
    config.host_blocks = is_by_hosts ? 1 : 100;
    const std::vector<double> expected =
        is_by_hosts ? std::vector<double>{1, 2, 12, 12} : std::vector<double>{1, 2, 4, 8};
    std::atomic<int> told = 0, wrong = 0;
    test::on_all_ranks(4, [&](comm::Communicator& communicator) {
      TwoHosts two_hosts(communicator);
      TrainingHooks hooks;
      hooks.on_step = [&](const StepReport& report) {
        if (communicator.rank() != 1) return;  // the first that owns a block
        ++told;
        wrong += report.waited_seconds != expected;
      };
      const SystemClock clock;
      wrong += !run_training(config, two_hosts, clock, hooks).has_value();
    });
    CHECK(told == 2);
    CHECK(wrong == 0);
  }
}
