#include "worker/engine/checkpoint.h"

#include <doctest/doctest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <sstream>
#include <utility>

#include "common/contract.h"
#include "common/rng.h"
#include "tests/full_disk.h"
#include "tests/unit/data/idx_bytes.h"
#include "worker/engine/copies.h"
#include "worker/engine/saver.h"

using namespace muster;
using namespace muster::engine;
namespace fs = std::filesystem;

namespace {

const ModelShape kShape = ModelShape::mlp(std::vector<std::size_t>{30, 150, 10});

TrainingConfig config_of(bool is_adamw) {
  TrainingConfig config;
  if (is_adamw) config.adamw = AdamwConfig();
  return config;
}

struct State {
  std::vector<float> parameters;
  OptimizerState optimizer;
  explicit State(std::uint64_t seed, bool is_adamw = false)
      : optimizer(Optimizer(config_of(is_adamw), kShape.parameters()).state()) {
    Rng rng(seed);
    for (std::size_t i = 0; i < kShape.parameters(); ++i) {
      parameters.push_back(static_cast<float>(rng.unit()));
      for (auto& buffer : optimizer.buffers) {
        buffer.values[i] = static_cast<float>(rng.unit());
      }
    }
    for (auto& scalar : optimizer.scalars) scalar.value = rng.unit();
  }
  bool operator==(const State& other) const {
    return parameters == other.parameters &&
           bit_sum(parameters, optimizer) == bit_sum(other.parameters, other.optimizer);
  }
};

Status save_state(CheckpointStore& store, std::int64_t step, const State& state) {
  StateInMemory source(state.parameters, &state.optimizer);
  return store.save(step, state.optimizer, source);
}
Status save_state(CheckpointStore&& store, std::int64_t step, const State& state) {
  return save_state(store, step, state);
}

struct Fixture {
  test::TempDirectory directory;
  CheckpointStore store(int keep = 2, const Json& seed = 7, const std::string& uid = "u") const {
    return CheckpointStore(
        {directory.path(), keep, kShape, Json{{"spec.training.seed", seed}}, uid});
  }
  std::string step(std::int64_t step) const {
    std::string digits = std::to_string(step);
    return directory / ("step-" + std::string(12 - digits.size(), '0') + digits);
  }
  void save(std::int64_t step, int keep = 2) const {
    const State state(static_cast<std::uint64_t>(step));
    REQUIRE(save_state(store(keep), step, state).has_value());
  }
  /// Step of the checkpoint found, after comparing its values.
  std::int64_t loaded(const Json& seed = 7) const {
    State state(0);
    const auto step = store(2, seed).load(state.parameters, state.optimizer);
    REQUIRE(step.has_value());
    if (!*step) return -1;
    CHECK(state == State(static_cast<std::uint64_t>(**step)));
    return **step;
  }
  Error refused(const Json& seed = 7) const {
    State state(0);
    const auto step = store(2, seed).load(state.parameters, state.optimizer);
    REQUIRE_FALSE(step.has_value());
    CHECK(step.error().exit_code() == contract::exit_code::kCheckpoint);
    return step.error();
  }
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void overwrite(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

std::vector<std::string> names_in(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    names.push_back(fs::relative(entry.path(), path).string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> names_of_steps(const Fixture& fixture) {
  std::vector<std::string> names = names_in(fixture.directory.path());
  std::erase_if(names, [](const std::string& name) {
    CHECK(name.find(".tmp") == std::string::npos);
    return name.find('/') != std::string::npos;
  });
  return names;
}

/// A state in whose midst, once, something else happens; it may fail after that.
class Meanwhile final : public StateSource {
 public:
  Meanwhile(const State& state, std::function<void()> happens, bool fails = false)
      : state_(state), happens_(std::move(happens)), fails_(fails) {}
  Result<std::span<const float>> read(const StatePiece& piece) override {
    if (const auto happens = std::exchange(happens_, nullptr)) {
      happens();
      if (fails_) return Error(ErrorCode::kUnavailable, "gone");
    }
    const std::span<const float> all =
        piece.buffer == 0
            ? std::span<const float>(state_.parameters)
            : std::span<const float>(state_.optimizer.buffers[piece.buffer - 1].values);
    return all.subspan(piece.range.begin, piece.range.size());
  }

 private:
  const State& state_;
  std::function<void()> happens_;
  bool fails_;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("the newest checkpoint is found, and the newest few are kept") {
  const Fixture fixture;
  CHECK(fixture.loaded() == -1);
  for (const std::int64_t step : {100, 200, 300}) fixture.save(step);
  CHECK(fixture.loaded() == 300);
  CHECK_FALSE(fs::exists(fixture.step(100)));
  CHECK(names_in(fixture.directory.path()) ==
        std::vector<std::string>{
            "step-000000000200", "step-000000000200/manifest.json",
            "step-000000000200/model.safetensors", "step-000000000200/optimizer.safetensors",
            "step-000000000300", "step-000000000300/manifest.json",
            "step-000000000300/model.safetensors", "step-000000000300/optimizer.safetensors"});
}

TEST_CASE("the same state has the same bytes, whoever saves it") {
  const Fixture a;
  const Fixture b;
  const State state(1);
  REQUIRE(save_state(a.store(2, 7, "one"), 5, state).has_value());
  REQUIRE(save_state(b.store(3, 7, "other"), 5, state).has_value());
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    CHECK(content(a.step(5) + file) == content(b.step(5) + file));
  }
}

TEST_CASE("AdamW's moments and powers of beta come back as they were saved") {
  const Fixture fixture;
  const State saved(1, true);
  REQUIRE(save_state(fixture.store(), 5, saved).has_value());
  State found(2, true);
  const auto step = fixture.store().load(found.parameters, found.optimizer);
  REQUIRE(step.has_value());
  CHECK(**step == 5);
  CHECK(found == saved);
  CHECK(found.optimizer.scalars[0].value == saved.optimizer.scalars[0].value);
  CHECK(found.optimizer.scalars[1].value == saved.optimizer.scalars[1].value);
  const std::string text = content(fixture.step(5) + "/optimizer.safetensors");
  for (const char* name : {"\"m.layers.0.weight\"", "\"v.layers.1.bias\"", "\"muster.beta1Power\"",
                           "\"muster.beta2Power\""}) {
    CHECK(has(text, name));
  }
}

TEST_CASE("a state of AdamW without its powers of beta is damaged, and so is one of another kind") {
  const Fixture fixture;
  const State sgd(1);
  REQUIRE(save_state(fixture.store(), 5, sgd).has_value());
  State adamw(2, true);
  const auto other = fixture.store().load(adamw.parameters, adamw.optimizer);
  REQUIRE_FALSE(other.has_value());
  CHECK(has(other.error().message(), "optimizer.safetensors: has tensors of another model"));

  const State saved(3, true);
  for (const auto& [value, replacement] :
       {std::pair("muster.beta2Power", "muster.beta3Power"), std::pair("\"0.", "\"1.")}) {
    CAPTURE(value);
    REQUIRE(save_state(fixture.store(), 6, saved).has_value());
    const std::string path = fixture.step(6) + "/optimizer.safetensors";
    std::string text = content(path);
    const auto at = text.find(value);
    REQUIRE(at != std::string::npos);
    overwrite(path, text.replace(at, std::string_view(value).size(), replacement));
    const auto refused = fixture.store().load(adamw.parameters, adamw.optimizer);
    REQUIRE_FALSE(refused.has_value());
    CHECK(has(refused.error().message(), "is missing or not from 0 to 1"));
  }
}

TEST_CASE("what was not given counts as null, and null as not given") {
  std::optional<Fixture> fixture(std::in_place);
  const auto store = [&](const Json& identity) {
    return CheckpointStore({fixture->directory.path(), 2, kShape, identity, "u"});
  };
  const auto sentence = [&](const Json& identity) {
    State state(0);
    const auto step = store(identity).load(state.parameters, state.optimizer);
    return step ? std::string() : step.error().message();
  };
  const State state(1);
  const char* norm = "spec.training.gradientClipping.maxNorm";
  REQUIRE(save_state(store(Json{{"spec.training.optimizer", "sgd"}}), 1, state).has_value());
  CHECK(sentence(Json{{"spec.training.optimizer", "sgd"}, {norm, nullptr}}).empty());
  CHECK(has(sentence(Json{{"spec.training.optimizer", "adamw"}}),
            "spec.training.optimizer was \"sgd\" when it was saved and is \"adamw\" now"));
  CHECK(has(sentence(Json{{norm, "1"}}), "was not given when it was saved and is \"1\" now"));
  fixture.emplace();
  REQUIRE(save_state(store(Json{{norm, "1"}}), 2, state).has_value());
  CHECK(has(sentence(Json{{norm, nullptr}}), "was \"1\" when it was saved and is not given now"));
}

TEST_CASE("a damaged checkpoint is passed over when an older one is whole") {
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors", "/manifest.json"}) {
    for (const int damage : {0, 1, 2, 3}) {
      CAPTURE(file);
      CAPTURE(damage);
      const Fixture fixture;
      fixture.save(100);
      fixture.save(200);
      const std::string path = fixture.step(200) + file;
      std::string text = content(path);
      if (damage == 0) fs::remove(path);
      if (damage == 1) overwrite(path, "");
      if (damage == 2) overwrite(path, text.substr(0, text.size() / 2));
      if (damage == 3) {
        text[text.size() - 20] ^= 1;
        overwrite(path, text);
      }
      CHECK(fixture.loaded() == 100);
    }
  }
}

TEST_CASE("files of two checkpoints are not one") {
  for (const std::string mixed : {"model.safetensors", "optimizer.safetensors", "manifest.json",
                                  "model.safetensors "
                                  "optimizer.safetensors"}) {
    CAPTURE(mixed);
    const Fixture fixture;
    fixture.save(500);
    fixture.save(501);
    for (const char* file : {"model.safetensors", "optimizer.safetensors", "manifest.json"}) {
      if (!has(mixed, file)) continue;
      overwrite(fixture.step(501) + "/" + file, content(fixture.step(500) + "/" + file));
    }
    CHECK(fixture.loaded() == 500);
  }
}

TEST_CASE("when none is whole, the newest is named with what is wrong") {
  const Fixture fixture;
  fixture.save(200);
  std::string text = content(fixture.step(200) + "/model.safetensors");
  text[text.size() - 1] ^= 1;
  overwrite(fixture.step(200) + "/model.safetensors", text);
  const Error error = fixture.refused();
  CHECK(has(error.message(), fixture.step(200) + "/model.safetensors"));
  CHECK(has(error.message(), "does not match its checksum in manifest.json"));
}

TEST_CASE("a checkpoint of another job is refused by the field that differs") {
  const Fixture fixture;
  fixture.save(100);
  CHECK(
      has(fixture.refused(8).message(), "spec.training.seed was 7 when it was saved and is 8 now"));
  CHECK(fixture.refused(8).code() == ErrorCode::kConflict);
  // A path is a directory that is mounted on the claim's own root: another one is the same place.
  CHECK(
      has(fixture.refused(8).message(), "another claim (spec.training.checkpoint.volumeClaimName"));
  CHECK_FALSE(has(fixture.refused(8).message(), "checkpoint path"));
  // It is refused even though an older one might fit: a newer state would be lost silently.
  const std::string manifest = fixture.step(100) + "/manifest.json";
  std::string text = content(manifest);
  const auto at = text.find("fp32-chain/1");
  overwrite(manifest, text.replace(at, 12, "fp32-chain/0"));
  CHECK(has(fixture.refused().message(), "contract is \"fp32-chain/0\""));
}

TEST_CASE("damaged newer checkpoints do not outlive the next whole one") {
  const Fixture fixture;
  fixture.save(100, 1);
  fixture.save(200, 3);
  overwrite(fixture.step(200) + "/model.safetensors", "");
  CheckpointStore store = fixture.store(1);
  State state(0);
  CHECK(store.load(state.parameters, state.optimizer).value() == 100);
  REQUIRE(save_state(store, 150, state).has_value());
  CHECK(names_of_steps(fixture) == std::vector<std::string>{"step-000000000150"});
}

TEST_CASE("damaged older checkpoints take no place of whole ones") {
  const Fixture fixture;
  fixture.save(200);
  fixture.save(237);
  overwrite(fixture.step(237) + "/model.safetensors", "");
  CheckpointStore store = fixture.store(2);
  State state(0);
  CHECK(store.load(state.parameters, state.optimizer).value() == 200);
  REQUIRE(save_state(store, 300, state).has_value());
  CHECK(names_of_steps(fixture) ==
        std::vector<std::string>{"step-000000000200", "step-000000000300"});
  // Made again, it is whole.
  REQUIRE(save_state(store, 237, state).has_value());
  CHECK(names_of_steps(fixture) ==
        std::vector<std::string>{"step-000000000200", "step-000000000237", "step-000000000300"});
}

TEST_CASE("what cannot be read now is neither damaged nor gone") {
  for (const std::string name : {"", "model.safetensors", "manifest.json"}) {
    CAPTURE(name);
    const Fixture fixture;
    fixture.save(100);
    fixture.save(200);
    std::string path = fixture.directory.path();
    if (name.empty()) {
      path += "/file";
      overwrite(path, "x");
    } else {
      // Whoever opens it goes round in circles.
      fs::remove(fixture.step(200) + "/" + name);
      fs::create_symlink(name, fixture.step(200) + "/" + name);
    }
    CheckpointStore store({path, 2, kShape, Json{{"spec.training.seed", 7}}, "u"});
    State state(0);
    const auto loaded = store.load(state.parameters, state.optimizer);
    REQUIRE_FALSE(loaded.has_value());
    CHECK(loaded.error().exit_code() == contract::exit_code::kDisk);
    CHECK(has(loaded.error().message(), path));
    if (!name.empty()) CHECK(has(loaded.error().message(), fixture.step(200) + "/" + name));
  }
}

TEST_CASE("what a disk fails to give of a checkpoint is an error, and ends no process") {
  const Fixture fixture;
  fixture.save(100);
  const State state(100);
  const auto found = fixture.store().find(state.optimizer);
  REQUIRE(found.has_value());
  REQUIRE(found->has_value());
  const SavedState& saved = **found;
  std::vector<float> read(kShape.values());
  REQUIRE(saved.read(saved.parameters, read));
  CHECK(read == state.parameters);
  // The pages are gone: whoever looked at them would end with SIGBUS, as of a disk's own error.
  const std::string path = fixture.step(100) + "/model.safetensors";
  fs::resize_file(path, 0);
  const Status gone = saved.read(saved.parameters, read);
  REQUIRE_FALSE(gone);
  CHECK(gone.error().message() == path + ": has become shorter since it was opened");
  CHECK_FALSE(saved.files[0].sha256());
  CHECK_FALSE(saved.files[0].block_digests(saved.parameters));
  CHECK(saved.files[1].sha256());
}

TEST_CASE("a checkpoint of an earlier build, whose manifest lists blocks, too, is read") {
  const Fixture fixture;
  fixture.save(100);
  const std::string path = fixture.step(100) + "/manifest.json";
  CHECK((*parse_json(content(path)))["formatVersion"] == 2);
  // As they were written, and as no build has written them.
  for (const Json& blocks : {Json{"00", "11"}, Json(7), Json::object(), Json()}) {
    Json manifest = *parse_json(content(path));
    manifest["formatVersion"] = 1;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
      manifest["files"][file]["blocks"] = blocks;
    }
    overwrite(path, dump_json(manifest) + "\n");
    CHECK(fixture.loaded() == 100);
  }
}

TEST_CASE("a manifest without a file's checksum is none") {
  for (const char* damage : {R"({"files": 7})", R"({"files": {"model.safetensors": []}})",
                             R"({"files": {"optimizer.safetensors": {"sha256": null}}})",
                             R"({"parametersSha256": 1})"}) {
    CAPTURE(damage);
    const Fixture fixture;
    fixture.save(100);
    const std::string path = fixture.step(100) + "/manifest.json";
    Json manifest = *parse_json(content(path));
    manifest.merge_patch(*parse_json(damage));
    overwrite(path, dump_json(manifest) + "\n");
    CHECK(fixture.refused().code() == ErrorCode::kCorrupt);
  }
}

TEST_CASE("who is late with a checkpoint disturbs nothing of who has trained on since") {
  const Fixture fixture;
  const State state(100);
  std::vector<std::int64_t> others;
  std::vector<std::string> left;
  std::int64_t newest = 0;
  SUBCASE("the same step") {
    others = {100};
    left = {"step-000000000100"};
    newest = 100;
  }
  SUBCASE("later ones") {
    others = {110, 120, 130};
    left = {"step-000000000120", "step-000000000130"};
    newest = 130;
  }
  CheckpointStore late = fixture.store();
  Meanwhile source(state, [&] {
    for (const std::int64_t step : others) fixture.save(step);
  });
  const Status saved = late.save(100, state.optimizer, source);
  // Where the others keep only later ones its directory is gone.
  CHECK(saved.has_value() == (newest == 100));
  CHECK(fixture.loaded() == newest);
  CHECK(names_of_steps(fixture) == left);
}

TEST_CASE("who is late with a checkpoint and is lost over it leaves the other's whole") {
  const Fixture fixture;
  fixture.save(100);
  const State state(100);
  CheckpointStore late = fixture.store(1);
  std::int64_t meanwhile = -1;
  Meanwhile source(state, [&] { meanwhile = fixture.loaded(); }, true);
  CHECK_FALSE(late.save(100, state.optimizer, source));
  CHECK(meanwhile == 100);
  CHECK(fixture.loaded() == 100);
}

TEST_CASE("of two trainings in one directory the first to save has it, and loses nothing") {
  const Fixture fixture;
  fixture.save(100);
  const State state(200);
  for (const std::int64_t step : {50, 100, 200}) {
    CAPTURE(step);
    const Status refused = save_state(fixture.store(2, 8), step, state);
    REQUIRE_FALSE(refused);
    CHECK(refused.error().exit_code() == contract::exit_code::kCheckpoint);
    CHECK(has(refused.error().message(), "seed was 7 when it was saved and is 8 now; use the "));
    CHECK(has(refused.error().message(), "spec.training.checkpoint.volumeClaimName"));
    CHECK(names_of_steps(fixture) == std::vector<std::string>{"step-000000000100"});
    CHECK(fixture.loaded() == 100);
  }
}

TEST_CASE("who is late with its first checkpoint finds that another training has saved its own") {
  const Fixture fixture;
  const State state(100);
  CheckpointStore late = fixture.store(2, 8);
  Meanwhile source(state, [&] { fixture.save(50); });
  const Status refused = late.save(100, state.optimizer, source);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code() == contract::exit_code::kCheckpoint);
  CHECK(names_of_steps(fixture) == std::vector<std::string>{"step-000000000050"});
  CHECK(fixture.loaded() == 50);
}

TEST_CASE("an older checkpoint of another training is not removed, and takes no place") {
  const Fixture fixture;
  const Fixture other;
  const State state(150);
  REQUIRE(save_state(other.store(2, 8), 150, state));
  for (const std::int64_t step : {100, 200}) fixture.save(step);
  fs::copy(other.step(150), fixture.step(150));
  fixture.save(300, 3);
  CHECK(names_of_steps(fixture) ==
        std::vector<std::string>{"step-000000000100", "step-000000000150", "step-000000000200",
                                 "step-000000000300"});
  fixture.save(400, 1);
  CHECK(names_of_steps(fixture) ==
        std::vector<std::string>{"step-000000000150", "step-000000000400"});
}

TEST_CASE(
    "who comes to the end late keeps later checkpoints, and one that fails keeps the other's") {
  const Fixture fixture;
  const State state(100);
  CheckpointStore late = fixture.store(1);
  fixture.save(110, 9);
  REQUIRE(save_state(late, 100, state).has_value());
  CHECK(fixture.loaded() == 110);
  Meanwhile failing(state, [&] { fixture.save(110, 9); }, true);
  CHECK_FALSE(late.save(110, state.optimizer, failing).has_value());
  CHECK(fixture.loaded() == 110);
}

TEST_CASE("what another process has begun of a file is not left beside the whole one") {
  const Fixture fixture;
  fs::create_directories(fixture.step(100));
  const std::string begun = fixture.step(100) + "/model.safetensors.0123456789abcdef.tmp";
  overwrite(begun, "half");
  overwrite(fixture.step(100) + "/model.safetensors.note.tmp", "not one of ours");
  fixture.save(100);
  CHECK_FALSE(fs::exists(begun));
  CHECK(fs::exists(fixture.step(100) + "/model.safetensors.note.tmp"));
}

TEST_CASE("a full disk ends with its own exit code, and the old checkpoint stays") {
  const Fixture fixture;
  fixture.save(100);
  const auto before = names_in(fixture.directory.path());
  const State state(3);
  for (const rlim_t bytes : {0u, 1000u, 20'000u}) {
    Status saved;
    {
      const test::FullDisk full(bytes);
      saved = save_state(fixture.store(), 200, state);
    }
    REQUIRE_FALSE(saved.has_value());
    CHECK(saved.error().exit_code() == contract::exit_code::kDisk);
    CHECK(has(saved.error().message(), fixture.step(200) + "/model.safetensors: cannot write: "));
    CHECK(names_in(fixture.directory.path()) == before);
    CHECK(fixture.loaded() == 100);
  }
}

TEST_CASE("a checkpoint that cannot be read while its step is saved anew stays as it is") {
  const Fixture fixture;
  fixture.save(100);
  const std::string manifest = fixture.step(100) + "/manifest.json", whole = content(manifest);
  // Not names_in(), which goes where links lead.
  const auto names = [&] {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(fixture.step(100))) {
      found.insert(entry.path().filename().string());
    }
    return found;
  };
  const auto before = names();
  // Whoever opens it goes round in circles.
  fs::remove(manifest);
  fs::create_symlink("manifest.json", manifest);
  const State state(100);
  CheckpointStore store = fixture.store();
  const Status saved = save_state(store, 100, state);
  REQUIRE_FALSE(saved);
  CHECK(saved.error().exit_code() == contract::exit_code::kDisk);
  CHECK(has(saved.error().message(), manifest + ": cannot open: "));
  CHECK(names() == before);
  fs::remove(manifest);
  overwrite(manifest, whole);
  CHECK(fixture.loaded() == 100);
  CHECK(save_state(store, 100, state));
}

TEST_CASE("a checkpoint path that cannot be written is named") {
  const Fixture fixture;
  overwrite(fixture.directory / "file", "x");
  const State state(1);
  CheckpointStore store({fixture.directory / "file/below", 2, kShape, Json::object(), ""});
  const Status saved = save_state(store, 1, state);
  REQUIRE_FALSE(saved.has_value());
  CHECK(saved.error().exit_code() == contract::exit_code::kDisk);
  CHECK(has(saved.error().message(), "file/below"));
}

TEST_CASE("a bit that flips in a state while it is saved leaves no checkpoint of it") {
  const Fixture fixture;
  for (const bool is_adamw : {false, true}) {
    for (const int where : {0, 1, 2}) {
      CAPTURE(is_adamw);
      CAPTURE(where);
      State state(1, is_adamw);
      const std::uint64_t sum = bit_sum(state.parameters, state.optimizer);
      SummedState summed(state.parameters, state.optimizer, sum);
      const std::int64_t step = is_adamw ? 200 : 100;
      if (where == 0) {
        CHECK(fixture.store().save(step, state.optimizer, summed));
        CHECK(fs::exists(fixture.step(step)));
        continue;
      }
      fs::remove_all(fixture.step(step));
      float& value =
          where == 1 ? state.parameters[77] : state.optimizer.buffers.back().values.back();
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) ^ 1u);
      const Status saved = fixture.store().save(step, state.optimizer, summed);
      REQUIRE_FALSE(saved);
      CHECK(saved.error().exit_code() == contract::exit_code::kMemory);
      CHECK(has(saved.error().message(), "a bit has flipped"));
      CHECK_FALSE(fs::exists(fixture.step(step)));
    }
  }
}

TEST_CASE("a model that does not fit on the disk leaves nothing of itself behind") {
  const Fixture fixture;
  fixture.save(100);
  const auto before = names_in(fixture.directory.path());
  const State state(1);
  StateInMemory model(state.parameters);
  {
    const test::FullDisk full(1000);
    const auto written = fixture.store().write_model(model);
    REQUIRE_FALSE(written.has_value());
    CHECK(written.error().exit_code() == contract::exit_code::kDisk);
  }
  CHECK(names_in(fixture.directory.path()) == before);
  CHECK(fixture.store().write_model(model).has_value());
}
