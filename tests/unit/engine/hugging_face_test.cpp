// A GPT-2 that Hugging Face's transformers have written (make_hugging_face_reference.py) has their
// logits here, and a checkpoint of a training that began with it is what they have written.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/file.h"
#include "common/json.h"
#include "kernels/ops.h"
#include "tests/unit/data/shard_bytes.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/reference_state.h"
#include "worker/engine/model.h"
#include "worker/engine/pretrained.h"
#include "worker/engine/safetensors.h"
#include "worker/engine/training.h"

using namespace muster;
using namespace muster::engine;

namespace {

const std::string kTheirs = "tests/unit/engine/hugging_face";
const GptConfig kTheirModel{2, 2, 16, 12, 40};
constexpr std::size_t kTheirRows = 3, kTheirContext = 12, kTheirTokens = 40;
constexpr std::size_t kMaxTheirBytes = std::size_t{1} << 20;

std::string text_of_file(const std::string& path) {
  auto read = read_file(path, kMaxTheirBytes);
  REQUIRE_MESSAGE(read, read.error().message());
  return *std::move(read);
}

struct TensorFile {
  explicit TensorFile(const std::string& path) : bytes(text_of_file(path)) {
    auto parsed =
        parse_safetensors({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    REQUIRE_MESSAGE(parsed, parsed.error().message());
    file = *std::move(parsed);
  }
  std::string bytes;
  SafetensorsFile file;
};

std::string without_prefix_of_theirs(const std::string& name) {
  const std::string prefix = "transformer.";
  return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
}

/// Trains from their model in steps that are too small to move a value, each of which is saved.
void save_their_model(const test::TempDirectory& directory, const std::string& path) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 16 * 2 * kTheirContext + 1; ++i) {
    tokens.push_back(i * i % kTheirTokens);
  }
  test::write_bytes(directory / "shard", test::shard_bytes(tokens));
  TrainingConfig config = test::small_gpt(2);
  config.gpt = kTheirModel;
  config.batch_size = 16;
  config.data_root = directory.path();
  config.train = {"", "", "", {"shard"}};
  config.pretrained = std::filesystem::absolute(kTheirs).string();
  config.adamw->learning_rate = 1e-30F;
  config.checkpoint_path = path;
  config.checkpoint_every_steps = 1;
  test::on_all_ranks(2, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    TrainingHooks hooks;
    hooks.saves_in_place = true;
    const auto end = run_training(config, communicator, clock, hooks);
    REQUIRE_MESSAGE(end.has_value(), end.error().message());
  });
}

void check_same_tensors(const SafetensorsFile& ours, const SafetensorsFile& theirs) {
  CHECK(ours.metadata.at("format") == theirs.metadata.at("format"));
  CHECK(ours.tensors.size() == theirs.tensors.size());
  for (const auto& [name, tensor] : theirs.tensors) {
    CAPTURE(name);
    const auto found = ours.tensors.find(without_prefix_of_theirs(name));
    REQUIRE(found != ours.tensors.end());
    CHECK(found->second.dtype == tensor.dtype);
    CHECK(found->second.shape == tensor.shape);
    CHECK(std::ranges::equal(found->second.bytes, tensor.bytes));
  }
}

/// `defaults`: what transformers take for a field that is left out.
void check_same_config(const Json& ours, const Json& theirs, const Json& defaults) {
  CHECK(ours.at("torch_dtype") == theirs.at("dtype"));
  for (const auto& [field, value] : theirs.items()) {
    if (field == "dtype" || field == "transformers_version") continue;
    const Json taken = ours.contains(field) ? ours.at(field) : defaults.at(field);
    CHECK_MESSAGE(taken == value, field);
  }
  for (const auto& [field, value] : ours.items()) {
    CHECK_MESSAGE((field == "torch_dtype" || defaults.contains(field)), field);
  }
}

}  // namespace

TEST_CASE("a model that transformers have written has their logits") {
  const ModelShape shape = ModelShape::gpt(kTheirModel, kTheirTokens);
  const auto theirs = Pretrained::open(kTheirs, kTheirModel, shape);
  REQUIRE_MESSAGE(theirs, theirs.error().message());
  std::vector<float> values(shape.values());
  REQUIRE(theirs->read({0, values.size()}, values));
  kernels::cpu::Context context(1);
  Model model(shape, kTheirRows, context);
  for (std::size_t i = 0; i < kTheirRows * kTheirContext; ++i) {
    model.tokens()[i] = static_cast<std::int32_t>((i * i * 7 + 3 * i) % kTheirTokens);
  }
  model.use(values);
  model.forward(kTheirRows);
  const TensorFile right(kTheirs + "/logits.safetensors");
  const auto& logits = right.file.tensors.at("logits");
  REQUIRE(logits.dtype == "F64");
  REQUIRE(logits.bytes.size() == kTheirRows * kTheirContext * kTheirTokens * sizeof(double));
  double worst = 0;
  for (std::size_t at = 0; at < kTheirRows * kTheirContext; ++at) {
    const std::span<const float> ours = model.logits(at);
    REQUIRE(ours.size() == kTheirTokens);
    for (std::size_t token = 0; token < kTheirTokens; ++token) {
      double exact = 0;
      std::memcpy(&exact, &logits.bytes[(at * kTheirTokens + token) * sizeof exact], sizeof exact);
      const double off = std::abs(static_cast<double>(ours[token]) - exact);
      worst = off <= worst ? worst : off;  // a NaN is the worst of all
    }
  }
  // The logits are those in double; so far from them transformers are in fp32. Source of the rule:
  // Dao et al., FlashAttention, arXiv:2205.14135, its tests.
  const double times = worst / std::stod(right.file.metadata.at("error"));
  CHECK(times <= 2);
  MESSAGE("at most " << times << " times transformers' error");
}

TEST_CASE("a checkpoint of what transformers have written is what they have written") {
  const test::TempDirectory directory;
  save_their_model(directory, directory / "out");
  const TensorFile theirs(kTheirs + "/model.safetensors"), right(kTheirs + "/logits.safetensors");
  const Json config = *parse_json(text_of_file(kTheirs + "/config.json"));
  const Json defaults = *parse_json(right.file.metadata.at("defaults"));
  int checkpoints = 0;
  for (const auto& entry : std::filesystem::directory_iterator(directory / "out")) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    // The finished model stands beside them.
    if (!name.starts_with("step-")) continue;
    ++checkpoints;
    check_same_tensors(TensorFile(entry.path().string() + "/model.safetensors").file, theirs.file);
    check_same_config(*parse_json(text_of_file(entry.path().string() + "/config.json")), config,
                      defaults);
  }
  CHECK(checkpoints == 2);
  check_same_tensors(TensorFile(directory / "out/model.safetensors").file, theirs.file);
}
