// A model that somebody has trained before is where a training begins, or is refused.
#include "worker/engine/pretrained.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"
#include "tests/descriptor_of.h"
#include "tests/no_descriptors.h"
#include "tests/test_main.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/engine/elastic_trial.h"
#include "tests/unit/engine/ranks.h"
#include "tests/unit/engine/run_files.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/safetensors.h"
#include "worker/engine/sample.h"

using namespace muster;
using namespace muster::engine;
using test::bytes_of;

namespace {

const GptConfig kSmall{2, 2, 8, 4, 20};

void write_text(const std::string& path, const std::string& text) {
  test::write_bytes(path, {text.begin(), text.end()});
}

/// A directory as transformers leave one, of which a test changes a part.
struct Published {
  Published() : shape(ModelShape::gpt(kSmall, 20)), values(shape.values()) {
    initialise(shape, 5, values);
    for (const Tensor& tensor : shape.tensors()) {
      tensors[tensor.name] = {
          tensor.shape,
          std::vector<float>(values.begin() + std::ptrdiff_t(tensor.offset),
                             values.begin() + std::ptrdiff_t(tensor.offset + tensor.size))};
    }
    config = gpt2_config(kSmall, 20);
  }

  void write() const {
    std::vector<TensorRef> refs;
    for (const auto& [name, tensor] : tensors) {
      refs.push_back({name, tensor.first, tensor.second.size()});
    }
    std::string file = safetensors_header(refs, {{"format", "pt"}});
    for (const TensorRef& ref : refs) {
      const auto bytes = std::as_bytes(std::span(tensors.at(ref.name).second));
      file.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    write_text(directory / "model.safetensors", file);
    write_text(directory / "config.json", dump_json(config));
  }

  /// What is loaded, or the sentence of why not.
  Result<std::vector<float>> load() const {
    std::vector<float> loaded(shape.values(), -1.0f);
    MUSTER_ASSIGN_OR_RETURN(const auto model, Pretrained::open(directory.path(), kSmall, shape));
    MUSTER_RETURN_IF_ERROR(model.read({0, loaded.size()}, loaded));
    CHECK(model.sha256() == to_hex(combine(block_digests(loaded))));
    return loaded;
  }
  std::string refused() const {
    write();
    const auto loaded = load();
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error().exit_code() == contract::exit_code::kCheckpoint);
    const std::string& sentence = loaded.error().message();
    CHECK(sentence.starts_with(directory.path() + "/"));
    return sentence.substr(directory.path().size() + 1);
  }

  test::TempDirectory directory;
  ModelShape shape;
  std::vector<float> values;
  std::map<std::string, std::pair<std::vector<std::size_t>, std::vector<float>>> tensors;
  Json config;
};

Result<TrainingSummary> trained_once(const TrainingConfig& config, int processes) {
  std::vector<std::optional<Result<TrainingSummary>>> all(static_cast<std::size_t>(processes));
  test::on_all_ranks(processes, [&](comm::Communicator& communicator) {
    const SystemClock clock;
    all[static_cast<std::size_t>(communicator.rank())] =
        run_training(config, communicator, clock, {});
  });
  return *all[0];
}

double last_loss(const std::string& directory) {
  const auto lines = test::record_of(directory);
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    const Json json = *parse_json(*line);
    if (!json.contains("evaluation")) continue;
    return std::stod(json["evaluation"]["loss"].get<std::string>());
  }
  return -1;
}

}  // namespace

TEST_CASE("who has a part of a model reads that part of the file") {
  Published published;
  published.write();
  const auto model = Pretrained::open(published.directory.path(), kSmall, published.shape);
  REQUIRE_MESSAGE(model, model.error().message());
  const std::size_t all = published.values.size();
  for (const std::size_t begin : {std::size_t{0}, std::size_t{1}, all / 3, all - 1}) {
    for (const std::size_t end : {begin, begin + 1, (begin + all) / 2, all}) {
      std::vector<float> out(end - begin);
      REQUIRE(model->read({begin, end}, out));
      CHECK(std::equal(out.begin(), out.end(),
                       published.values.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
}

TEST_CASE("weights with or without their prefix are taken bit by bit") {
  Published plain;
  plain.write();
  const auto loaded = plain.load();
  REQUIRE_MESSAGE(loaded, loaded.error().message());
  CHECK(*loaded == plain.values);
  Published prefixed;
  prefixed.tensors.clear();
  for (const auto& [name, tensor] : plain.tensors) {
    prefixed.tensors["transformer." + name] = tensor;
  }
  // What follows from the rest: the tied head, and the masks that older versions saved.
  prefixed.tensors["lm_head.weight"] = plain.tensors["wte.weight"];
  prefixed.tensors["transformer.h.0.attn.bias"] = {{1, 1, 2, 2}, {1, 0, 1, 1}};
  prefixed.tensors["transformer.h.1.attn.masked_bias"] = {{}, {-1e4f}};
  prefixed.config.erase("activation_function");
  prefixed.config["n_inner"] = 32;
  prefixed.write();
  const auto again = prefixed.load();
  REQUIRE_MESSAGE(again, again.error().message());
  CHECK(*again == plain.values);
}

TEST_CASE("a configuration of another model is refused with its field and that of the job") {
  const std::map<std::string, std::string> all = {{"n_layer", "layers"},
                                                  {"n_head", "heads"},
                                                  {"n_embd", "width"},
                                                  {"n_positions", "contextLength"},
                                                  {"vocab_size", "vocabularySize"}};
  for (const auto& [field, of_spec] : all) {
    Published other;
    const std::string was = dump_json(other.config[field]);
    other.config[field] = 96;
    CHECK(other.refused() == "config.json: " + field + " is 96; must be " + was +
                                 ", spec.training.model.gpt." + of_spec);
    other.config.erase(field);
    CHECK(other.refused().starts_with("config.json: " + field + " is missing; must be " + was));
  }
  const std::vector<std::pair<std::string, Json>> computes_else = {
      {"activation_function", "relu"}, {"tie_word_embeddings", false},
      {"scale_attn_weights", false},   {"scale_attn_by_inverse_layer_idx", true},
      {"add_cross_attention", true},   {"n_inner", 33},
      {"layer_norm_epsilon", 1e-6},    {"layer_norm_epsilon", "small"}};
  for (const auto& [field, value] : computes_else) {
    Published other;
    other.config[field] = value;
    const std::string sentence = other.refused();
    CHECK_MESSAGE(sentence.starts_with("config.json: " + field + " "), sentence);
    CHECK_MESSAGE(sentence.ends_with(", as in GPT-2"), sentence);
  }
  Published llama;
  llama.config["model_type"] = "llama";
  CHECK(llama.refused() == "config.json: its model_type must be \"gpt2\"");
  llama.config = Json::array();
  CHECK(llama.refused() == "config.json: its model_type must be \"gpt2\"");
}

TEST_CASE("tensors that are missing, of another shape or not the model's are refused by name") {
  {
    Published other;
    other.tensors.erase("h.1.attn.c_proj.bias");
    CHECK(other.refused() == "model.safetensors: has no tensor h.1.attn.c_proj.bias");
  }
  {
    Published other;  // as nn.Linear has it, transposed
    other.tensors["h.0.mlp.c_fc.weight"].first = {32, 8};
    CHECK(other.refused() ==
          "model.safetensors: its tensor h.0.mlp.c_fc.weight is 32 x 8; must be 8 x 32");
  }
  {
    Published other;
    other.tensors["h.2.ln_1.weight"] = other.tensors["h.1.ln_1.weight"];
    CHECK(other.refused() ==
          "model.safetensors: has the tensor h.2.ln_1.weight, which is none of this model's");
  }
  {
    Published other;
    other.tensors["lm_head.weight"] = other.tensors["wte.weight"];
    other.tensors["lm_head.weight"].second[7] += 1;
    CHECK(other.refused() ==
          "model.safetensors: its tensor lm_head.weight is not wte.weight; the head must be tied "
          "to it");
  }
  {
    Published other;
    other.tensors["transformer.ln_f.bias"] = other.tensors["ln_f.bias"];
    CHECK(other.refused() ==
          "model.safetensors: has the tensor ln_f.bias twice, with and without \"transformer.\" in "
          "front");
  }
  {
    Published other;
    other.tensors["wpe.weight"].second[3] = INFINITY;
    CHECK(other.refused() ==
          "model.safetensors: its tensor wpe.weight has a value that is not finite");
  }
}

TEST_CASE("files that are missing, cut or of another dtype are refused") {
  Published published;
  published.write();
  const std::string whole = bytes_of(published.directory / "model.safetensors");
  const auto refused = [&] {
    const auto loaded = published.load();
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error().exit_code() == contract::exit_code::kCheckpoint);
    return loaded.error().message();
  };
  std::string integers = whole;
  for (auto at = integers.find("F32"); at != integers.npos; at = integers.find("F32")) {
    integers.replace(at, 3, "I32");
  }
  write_text(published.directory / "model.safetensors", integers);
  CHECK(refused() == published.directory / "model.safetensors: its tensor wte.weight has the " +
                         "dtype I32; must be F32, so save the model in float32");
  write_text(published.directory / "model.safetensors", whole.substr(0, whole.size() - 1));
  CHECK(refused().starts_with(published.directory / "model.safetensors: "));
  std::filesystem::remove(published.directory / "model.safetensors");
  CHECK(refused().starts_with(published.directory / "model.safetensors: "));
  write_text(published.directory / "config.json", "{");
  CHECK(refused().starts_with(published.directory / "config.json: "));
  std::filesystem::remove(published.directory / "config.json");
  CHECK(refused().starts_with(published.directory / "config.json: "));
}

TEST_CASE("weights that the system fails to read are not wrong") {
  Published published;
  published.write();
  const std::string path = published.directory / "model.safetensors";
  {
    const test::NoDescriptors none;
    const auto failed = published.load();
    REQUIRE_FALSE(failed);
    CHECK(failed.error().exit_code() == contract::exit_code::kDisk);
    CHECK(failed.error().message() ==
          published.directory / "config.json: cannot open: Too many open files");
  }
  const auto model = Pretrained::open(published.directory.path(), kSmall, published.shape);
  REQUIRE(model);
  // Its descriptor leads to what answers each read at that place with an I/O error.
  const UniqueFd broken(::open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  REQUIRE(::dup2(broken.get(), test::descriptor_of(path)) >= 0);
  std::vector<float> values(published.values.size());
  const Status failed = model->read({0, values.size()}, values);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().exit_code() == contract::exit_code::kDisk);
  CHECK(failed.error().message() == path + ": cannot read: Input/output error");
}

TEST_CASE("weights that become shorter while they are open end nothing but what reads them") {
  Published published;
  published.write();
  const std::string path = published.directory / "model.safetensors";
  const auto model = Pretrained::open(published.directory.path(), kSmall, published.shape);
  REQUIRE(model);
  std::filesystem::resize_file(path, 0);
  std::vector<float> values(published.values.size());
  const Status gone = model->read({0, values.size()}, values);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().exit_code() == contract::exit_code::kCheckpoint);
  CHECK(gone.error().message() == path + ": has become shorter since it was opened");
}

TEST_CASE("what is no file in the place of weights is refused, and nobody waits for a writer") {
  for (const std::string name : {"config.json", "model.safetensors"}) {
    CAPTURE(name);
    Published published;
    published.write();
    const std::string path = published.directory / name;
    std::filesystem::remove(path);
    REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
    const auto pipe = published.load();
    REQUIRE_FALSE(pipe);
    CHECK(pipe.error().exit_code() == contract::exit_code::kCheckpoint);
    CHECK(pipe.error().message() == path + ": is not a regular file");
    std::filesystem::remove(path);
    // Whoever opens it goes round in circles, and will the next time.
    std::filesystem::create_symlink(name, path);
    const auto circle = published.load();
    REQUIRE_FALSE(circle);
    CHECK(circle.error().exit_code() == contract::exit_code::kCheckpoint);
  }
}

TEST_CASE("a trained model started from has the loss that it ended with, whoever goes on with it") {
  const test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(12);
  config.test.text = "shakespeare-test.txt";
  config.test.images.clear();
  config.test.labels.clear();
  config.has_test = true;
  config.checkpoint_path = directory / "first";
  const auto first = trained_once(config, 1);
  REQUIRE_MESSAGE(first, first.error().message());
  // Steps too small to move a value: what is evaluated behind the first is what was started from.
  TrainingConfig next = config;
  next.pretrained = config.checkpoint_path;
  next.checkpoint_path = directory / "still";
  next.steps = 1;
  next.adamw->learning_rate = 1e-30f;
  const auto still = trained_once(next, 2);
  REQUIRE_MESSAGE(still, still.error().message());
  CHECK(still->model_sha256 == first->model_sha256);
  CHECK(last_loss(directory / "still") == last_loss(directory / "first"));
  CHECK(last_loss(directory / "still") > 0);
  // And from there on the bits do not depend on the workers, with files or without.
  next.adamw->learning_rate = 0.001f;
  next.steps = 6;
  next.checkpoint_path.clear();
  const auto expected = trained_once(next, 1);
  REQUIRE_MESSAGE(expected, expected.error().message());
  CHECK(expected->model_sha256 != first->model_sha256);
  for (const int processes : {2, 3}) {
    for (const bool is_sharded : {false, true}) {
      next.is_sharded = is_sharded;
      next.checkpoint_path = directory / ("next-" + std::to_string(processes * 2 + is_sharded));
      CHECK(trained_once(next, processes)->model_sha256 == expected->model_sha256);
    }
  }
}

TEST_CASE("a checkpoint is where another training may begin, as a finished model is") {
  const test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(4);
  config.checkpoint_path = directory / "first";
  config.checkpoint_every_steps = 2;
  config.checkpoint_keep = 2;
  REQUIRE(trained_once(config, 1));
  TrainingConfig next = config;
  next.checkpoint_path.clear();
  next.pretrained = directory / "first";
  const auto from_model = trained_once(next, 1);
  REQUIRE_MESSAGE(from_model, from_model.error().message());
  next.pretrained = directory / "first/step-000000000004";
  const auto from_checkpoint = trained_once(next, 1);
  REQUIRE_MESSAGE(from_checkpoint, from_checkpoint.error().message());
  CHECK(from_checkpoint->model_sha256 == from_model->model_sha256);
}

TEST_CASE("a checkpoint goes on only from the weights that its training began with") {
  const test::TempDirectory directory;
  TrainingConfig config = test::small_gpt(2);
  config.checkpoint_path = directory / "first";
  REQUIRE(trained_once(config, 1));
  TrainingConfig next = config;
  next.pretrained = directory / "first";
  next.checkpoint_path = directory / "next";
  const auto expected = trained_once(next, 1);
  REQUIRE(expected);
  next.steps = 4;
  const auto resumed = trained_once(next, 2);
  REQUIRE_MESSAGE(resumed, resumed.error().message());
  CHECK(resumed->restored_step == 2);
  next.pretrained.clear();
  const auto refused = trained_once(next, 1);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code() == contract::exit_code::kCheckpoint);
  CHECK(refused.error().message().find("SHA-256 of spec.training.pretrained was") !=
        std::string::npos);
}
