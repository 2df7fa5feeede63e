#include "worker/engine/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "common/contract.h"
#include "common/log.h"
#include "common/model_files.h"
#include "worker/data/file.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/files.h"
#include "worker/engine/safetensors.h"

namespace muster::engine {
namespace {

namespace fs = std::filesystem;

/// Those of version 1 also list the checksums of all blocks, which nobody needs. A build that needs
/// them takes a version that it does not know for another's, and leaves it where it is.
constexpr int kFormatVersion = 2, kVersionWithBlocks = 1;
constexpr std::size_t kStepDigits = 12;
/// So that a file that is no manifest does not take all memory. With the checksums of all blocks
/// that is one of 20 billion parameters with AdamW's moments.
constexpr std::size_t kMaxManifestBytes = std::size_t{1} << 30;
/// Whole blocks, so that a piece has their checksums.
constexpr std::size_t kPieceElements = std::size_t{64} * kernels::kBlockElements;
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kManifest = "manifest.json";

Error checkpoint_error(ErrorCode code, const std::string& path, const std::string& message) {
  return Error(code, path + ": " + message).with_exit_code(contract::exit_code::kCheckpoint);
}

/// Decimal text that reads back as the same double.
std::string text_of(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, error == std::errc() ? end : text};
}

std::string metadata_name(const std::string& scalar) { return "muster." + scalar; }

/// What a file holds: buffers whose tensors have the model's names behind a prefix, and values that
/// stand in its metadata.
struct FilePlan {
  std::vector<std::string> prefixes;
  std::vector<StatePiece> pieces;
  std::map<std::string, std::string> metadata;
};

FilePlan plan_model(const ModelShape& shape) { return {{""}, state_pieces(shape, 0), {}}; }

FilePlan plan_optimizer(const ModelShape& shape, const OptimizerState& layout) {
  FilePlan plan;
  for (const auto& buffer : layout.buffers) plan.prefixes.push_back(buffer.prefix);
  for (const StatePiece& piece : state_pieces(shape, layout.buffers.size())) {
    if (piece.buffer > 0) plan.pieces.push_back(piece);
  }
  for (const auto& scalar : layout.scalars) {
    plan.metadata[metadata_name(scalar.name)] = text_of(scalar.value);
  }
  return plan;
}

/// A source of values whose hash is known once all of them were read.
class HashedSource final : public StateSource {
 public:
  explicit HashedSource(StateSource& source) : source_(source) {}
  Result<std::span<const float>> read(const StatePiece& piece) override {
    MUSTER_ASSIGN_OR_RETURN(const auto values, source_.read(piece));
    const auto digests = block_digests(values);
    blocks_.insert(blocks_.end(), digests.begin(), digests.end());
    return values;
  }
  Sha256Digest digest() const { return combine(blocks_); }

 private:
  StateSource& source_;
  std::vector<Sha256Digest> blocks_;
};

/// Tensors of a flat buffer follow one another there as they do in the file. Its SHA-256.
Result<Sha256Digest> write_tensors(const std::string& path, std::span<const Tensor> shape,
                                   FilePlan plan, std::string_view numerics, StateSource& source) {
  std::vector<TensorRef> tensors;
  for (const std::string& prefix : plan.prefixes) {
    for (const Tensor& tensor : shape) {
      tensors.push_back({prefix + tensor.name, tensor.shape, tensor.size});
    }
  }
  plan.metadata["format"] = "pt";
  plan.metadata["muster.contract"] = std::string(numerics);
  const std::string head = safetensors_header(tensors, plan.metadata);
  bool has_head = false;
  auto piece = plan.pieces.begin();
  const NextPiece next = [&]() -> Result<std::span<const std::byte>> {
    if (!std::exchange(has_head, true)) return std::as_bytes(std::span(head));
    if (piece == plan.pieces.end()) return std::span<const std::byte>();
    MUSTER_ASSIGN_OR_RETURN(const auto values, source.read(*piece++));
    return std::as_bytes(values);
  };
  return write_file(path, next);
}

/// Step of a checkpoint directory's name, -1 for any other name.
std::int64_t step_of(const std::string& name) {
  if (name.size() != 5 + kStepDigits || !name.starts_with("step-") ||
      name.find_first_not_of("0123456789", 5) != std::string::npos) {
    return -1;
  }
  std::int64_t step = 0;
  for (const char digit : name.substr(5)) step = step * 10 + (digit - '0');
  return step;
}

/// Compares what must be equal, and names the first field that is not. Null: not given.
Status compare_identity(const Json& saved, const Json& wanted, const std::string& path) {
  const auto words = [](const Json& value) {
    return value.is_null() ? std::string("not given") : dump_json(value);
  };
  for (const auto& [field, value] : wanted.items()) {
    const auto at = saved.find(field);
    const Json found = at == saved.end() ? Json() : *at;
    if (found == value) continue;
    return checkpoint_error(ErrorCode::kConflict, path,
                            field + " was " + words(found) + " when it was saved and is " +
                                words(value) + " now; use the same, or " + kAnotherPlace);
  }
  return {};
}

/// What is looked for in a file.
struct Wanted {
  std::vector<std::string> prefixes;
  std::span<const Tensor> shape;
  std::vector<std::string> scalars;
};

Status read_scalars(const SafetensorsFile& file, const std::string& path,
                    const std::vector<std::string>& names, std::vector<double>& scalars) {
  for (const std::string& name : names) {
    const auto found = file.metadata.find(metadata_name(name));
    const std::string text = found == file.metadata.end() ? "" : found->second;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    // Of a product of factors below 1 nothing else comes out.
    if (!is_number || !(value >= 0 && value <= 1)) {
      return checkpoint_error(ErrorCode::kCorrupt, path,
                              "its " + metadata_name(name) + " is missing or not from 0 to 1");
    }
    scalars.push_back(value);
  }
  return {};
}

/// The buffers of a file, each of them in one stretch: nobody else writes such files.
Result<std::vector<std::span<const float>>> find_buffers(const SafetensorsFile& file,
                                                         const std::string& path,
                                                         const Wanted& wanted) {
  const auto corrupt = [&](const std::string& message) {
    return checkpoint_error(ErrorCode::kCorrupt, path, message);
  };
  if (file.tensors.size() != wanted.shape.size() * wanted.prefixes.size()) {
    return corrupt("has tensors of another model");
  }
  std::vector<std::span<const float>> buffers;
  for (const std::string& prefix : wanted.prefixes) {
    const std::uint8_t* first = nullptr;
    std::size_t elements = 0;
    for (const Tensor& tensor : wanted.shape) {
      const std::string name = prefix + tensor.name;
      const auto found = file.tensors.find(name);
      if (found == file.tensors.end() || found->second.shape != tensor.shape ||
          found->second.dtype != "F32") {
        return corrupt("its tensor " + name + " is missing or has another shape or dtype");
      }
      const std::uint8_t* const at = found->second.bytes.data();
      if (elements == 0) first = at;
      if (at != first + elements * sizeof(float) ||
          reinterpret_cast<std::uintptr_t>(at) % alignof(float) != 0) {
        return corrupt("its tensor " + name + " does not lie behind the one before");
      }
      elements += tensor.size;
    }
    // Aligned, and the bytes of floats.
    buffers.emplace_back(reinterpret_cast<const float*>(first), elements);
  }
  return buffers;
}

/// Adds what `path` holds to `state`; `expected`: its SHA-256, in hexadecimal.
Status load_tensors(const std::string& path, const Json& expected, const Wanted& wanted,
                    SavedState& state) {
  auto saved = SavedFile::open(path);
  if (!saved) return saved.error().with_exit_code(contract::exit_code::kCheckpoint);
  // First, so that whatever cannot be read of it is told before anybody looks into its pages.
  MUSTER_ASSIGN_OR_RETURN(const Sha256Digest whole, saved->sha256());
  auto file = parse_safetensors(saved->bytes());
  if (!file) return file.error().with(path).with_exit_code(contract::exit_code::kCheckpoint);
  MUSTER_ASSIGN_OR_RETURN(const auto buffers, find_buffers(*file, path, wanted));
  MUSTER_RETURN_IF_ERROR(read_scalars(*file, path, wanted.scalars, state.scalars));
  if (expected != to_hex(whole)) {
    return checkpoint_error(ErrorCode::kCorrupt, path,
                            std::string("does not match its checksum in ") + kManifest);
  }
  state.buffers.insert(state.buffers.end(), buffers.begin(), buffers.end());
  state.files.push_back(*std::move(saved));
  return {};
}

}  // namespace

Status SavedState::read(std::span<const float> values, std::span<float> out) const {
  const auto* const at = reinterpret_cast<const std::uint8_t*>(values.data());
  const auto file = std::find_if(files.begin(), files.end(), [&](const SavedFile& one) {
    return at >= one.bytes().data() && at < one.bytes().data() + one.bytes().size();
  });
  MUSTER_CHECK(file != files.end() || values.empty());
  return values.empty() ? Status() : file->read(values, out);
}

CheckpointStore::CheckpointStore(CheckpointOptions options) : options_(std::move(options)) {}

std::string CheckpointStore::directory_of(std::int64_t step) const {
  std::string digits = std::to_string(step);
  digits.insert(0, kStepDigits - std::min(kStepDigits, digits.size()), '0');
  return options_.path + "/step-" + digits;
}

/// Where a directory cannot be read nobody knows that there are none.
Result<CheckpointStore::Steps> CheckpointStore::steps() const {
  Steps steps;
  std::error_code error;
  for (fs::directory_iterator it(options_.path, error), end; !error && it != end;
       it.increment(error)) {
    const std::int64_t step = step_of(it->path().filename().string());
    if (step < 0) continue;
    const fs::path manifest = it->path() / kManifest;
    steps[step] = fs::exists(manifest, error);
    if (error) return disk_error(manifest.string(), "look at", error.value());
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return disk_error(options_.path, "look for checkpoints", error.value());
  }
  return steps;
}

/// That the newest whole checkpoint is of this training. An older one, or one that cannot be read,
/// holds nobody up: what a job begins with is looked at more closely by find().
Status CheckpointStore::check_newest() const {
  const auto found = steps();
  if (!found) return {};  // said by remove_old()
  for (const auto& [step, is_complete] : *found) {
    if (!is_complete) continue;
    const auto manifest = read_manifest(step);
    if (manifest) return {};
    if (manifest.error().code() == ErrorCode::kConflict) return manifest.error();
  }
  return {};
}

Status CheckpointStore::write_step(const std::string& directory, std::int64_t step,
                                   const OptimizerState& layout, StateSource& source) {
  MUSTER_RETURN_IF_ERROR(check_newest());
  MUSTER_RETURN_IF_ERROR(make_directories(directory));
  // One of this training has the same files: it stays whole, whatever becomes of this one.
  const auto there = read_manifest(step);
  const auto failed_with = [&](ErrorCode code) { return !there && there.error().code() == code; };
  const bool is_damaged = damaged_.contains(step);
  if (!is_damaged && failed_with(ErrorCode::kIo)) {
    return there.error().with_exit_code(contract::exit_code::kDisk);  // it may be whole
  }
  if (is_damaged || (!there && !failed_with(ErrorCode::kNotFound))) {
    ::unlink((directory + "/" + kManifest).c_str());
  }
  const ModelShape& shape = options_.shape;
  HashedSource values(source);
  MUSTER_ASSIGN_OR_RETURN(const Sha256Digest model,
                          write_tensors(directory + "/" + kModel, shape.tensors(),
                                        plan_model(shape), options_.contract, values));
  MUSTER_ASSIGN_OR_RETURN(const Sha256Digest optimizer,
                          write_tensors(directory + "/" + kOptimizer, shape.trained(),
                                        plan_optimizer(shape, layout), options_.contract, source));
  if (!options_.model_config.empty()) {
    const std::string path = directory + "/" + std::string(contract::kModelConfigFile);
    MUSTER_ASSIGN_OR_RETURN(const auto ignored, write_file(path, options_.model_config));
    static_cast<void>(ignored);
  }
  MUSTER_RETURN_IF_ERROR(sync_directory(directory));
  const auto about = [](const Sha256Digest& file) { return Json{{"sha256", to_hex(file)}}; };
  // The files took a while, in which another training may have saved its first one.
  MUSTER_RETURN_IF_ERROR(check_newest());
  const Json manifest{{"formatVersion", kFormatVersion},
                      {"contract", options_.contract},
                      {"step", step},
                      {"identity", options_.identity},
                      {"jobUid", options_.job_uid},
                      {"parametersSha256", to_hex(values.digest())},
                      {"files", {{kModel, about(model)}, {kOptimizer, about(optimizer)}}}};
  MUSTER_ASSIGN_OR_RETURN(const auto ignored,
                          write_file(directory + "/" + kManifest, dump_json(manifest) + "\n"));
  static_cast<void>(ignored);
  MUSTER_RETURN_IF_ERROR(sync_directory(directory));
  return sync_directory(options_.path);
}

Status CheckpointStore::save(std::int64_t step, const OptimizerState& layout, StateSource& source) {
  const std::string directory = directory_of(step);
  if (Status written = write_step(directory, step, layout, source); !written) {
    // Where nobody can tell whether there is a manifest, what is there may be whole.
    std::error_code unknown;
    const bool is_complete = fs::exists(directory + "/" + kManifest, unknown);
    std::error_code ignored;
    if (!is_complete && !unknown) fs::remove_all(directory, ignored);
    return written.error().with("save the checkpoint of step " + std::to_string(step));
  }
  damaged_.erase(step);
  remove_old(step);
  return {};
}

/// A later step is a damaged one that was passed over here, and must not outlive what is whole; or
/// another process saves it, one that has trained on while this one was cut off with a slow disk.
void CheckpointStore::remove_old(std::int64_t newest) const {
  const auto found = steps();
  if (!found) {
    log_warning("old checkpoints are not removed", {{"error", found.error().message()}});
    return;
  }
  int kept = 0;
  for (const auto& [step, is_complete] : *found) {
    const bool is_damaged = damaged_.contains(step);
    if (step > newest && !is_damaged) continue;
    if (is_complete && !is_damaged) {
      const auto manifest = read_manifest(step);
      // What cannot be read now may be another training's, too.
      const bool may_be_others = !manifest && manifest.error().code() != ErrorCode::kCorrupt;
      if (may_be_others || kept++ < options_.keep) continue;
    }
    const fs::path path = directory_of(step);
    std::error_code failed;
    // The manifest goes first, so that a removal cut in the middle leaves no damaged checkpoint.
    fs::remove(path / kManifest, failed);
    fs::remove_all(path, failed);
    if (failed) {
      log_warning("an old checkpoint cannot be removed",
                  {{"path", path.string()}, {"error", failed.message()}});
    }
  }
}

Result<Json> CheckpointStore::read_manifest(std::int64_t step) const {
  const std::string path = directory_of(step) + "/" + kManifest;
  auto read = data::read_file(path, kMaxManifestBytes);
  if (!read) return read.error().with_exit_code(contract::exit_code::kCheckpoint);
  auto manifest = parse_json(std::string(read->begin(), read->end()));
  if (!manifest) {
    return checkpoint_error(ErrorCode::kCorrupt, path, manifest.error().message());
  }
  if (const Json& version = member(*manifest, {"formatVersion"});
      version != kFormatVersion && version != kVersionWithBlocks) {
    return checkpoint_error(
        version.is_number_integer() ? ErrorCode::kConflict : ErrorCode::kCorrupt, path,
        "formatVersion must be " + std::to_string(kVersionWithBlocks) + " or " +
            std::to_string(kFormatVersion) + "; it is " + dump_json(version));
  }
  if (const Json& name = member(*manifest, {"contract"});
      name != contract::kNumericsContract && name != contract::kBfloat16Contract) {
    return checkpoint_error(name.is_string() ? ErrorCode::kConflict : ErrorCode::kCorrupt, path,
                            "contract is " + dump_json(name) + "; this build trains by \"" +
                                std::string(contract::kNumericsContract) + "\" or \"" +
                                std::string(contract::kBfloat16Contract) + "\"");
  }
  const Json& identity = member(*manifest, {"identity"});
  if (!identity.is_object() || member(*manifest, {"step"}) != step) {
    return checkpoint_error(ErrorCode::kCorrupt, path,
                            "identity or step is missing or not that of the directory");
  }
  MUSTER_RETURN_IF_ERROR(compare_identity(identity, options_.identity, path));
  return manifest;
}

Result<SavedState> CheckpointStore::load_step(std::int64_t step,
                                              const OptimizerState& layout) const {
  const std::string directory = directory_of(step);
  MUSTER_ASSIGN_OR_RETURN(const Json manifest, read_manifest(step));
  SavedState state;
  state.step = step;
  MUSTER_RETURN_IF_ERROR(load_tensors(directory + "/" + kModel,
                                      member(manifest, {"files", kModel, "sha256"}),
                                      {{""}, options_.shape.tensors(), {}}, state));
  state.parameters = state.buffers[0];
  state.buffers.clear();
  MUSTER_ASSIGN_OR_RETURN(const auto blocks, state.files[0].block_digests(state.parameters));
  if (const Json& whole = member(manifest, {"parametersSha256"});
      whole != to_hex(combine(blocks))) {
    return checkpoint_error(ErrorCode::kCorrupt, directory + "/" + kManifest,
                            "parametersSha256 is not that of its parameters");
  }
  Wanted wanted{{}, options_.shape.trained(), {}};
  for (const auto& buffer : layout.buffers) wanted.prefixes.push_back(buffer.prefix);
  for (const auto& scalar : layout.scalars) wanted.scalars.push_back(scalar.name);
  MUSTER_RETURN_IF_ERROR(load_tensors(directory + "/" + kOptimizer,
                                      member(manifest, {"files", kOptimizer, "sha256"}), wanted,
                                      state));
  return state;
}

Result<std::optional<SavedState>> CheckpointStore::find(const OptimizerState& layout) {
  std::optional<Error> newest_damage;
  MUSTER_ASSIGN_OR_RETURN(const auto found, steps());
  for (const auto& [step, is_complete] : found) {
    if (!is_complete) continue;
    auto loaded = load_step(step, layout);
    if (loaded) return std::optional(*std::move(loaded));
    // A checkpoint of another job is whole; an older one of this path would be no better.
    if (loaded.error().code() == ErrorCode::kConflict) return loaded.error();
    // One that cannot be read now may be whole.
    if (loaded.error().code() == ErrorCode::kIo) {
      return loaded.error().with_exit_code(contract::exit_code::kDisk);
    }
    log_warning("a checkpoint is damaged and passed over", {{"error", loaded.error().message()}});
    damaged_.insert(step);
    if (!newest_damage) newest_damage = loaded.error();
  }
  if (newest_damage) {
    return newest_damage->with("no checkpoint is whole; remove them to start from the beginning");
  }
  if (!found.empty()) {
    log_warning("checkpoints were begun and none is complete: training starts from the beginning",
                {{"newest", directory_of(found.begin()->first)}});
  }
  return std::optional<SavedState>();
}

Result<std::optional<std::int64_t>> CheckpointStore::load(std::span<float> parameters,
                                                          OptimizerState& optimizer) {
  MUSTER_ASSIGN_OR_RETURN(const auto found, find(optimizer));
  if (!found) return std::optional<std::int64_t>();
  MUSTER_RETURN_IF_ERROR(found->read(found->parameters, parameters));
  for (std::size_t b = 0; b < optimizer.buffers.size(); ++b) {
    MUSTER_RETURN_IF_ERROR(found->read(found->buffers[b], optimizer.buffers[b].values));
  }
  for (std::size_t i = 0; i < optimizer.scalars.size(); ++i) {
    optimizer.scalars[i].value = found->scalars[i];
  }
  return std::optional(found->step);
}

Result<std::string> CheckpointStore::write_model(StateSource& source) {
  MUSTER_RETURN_IF_ERROR(make_directories(options_.path));
  const std::string path = options_.path + "/" + std::string(contract::kModelFile);
  const auto written = write_tensors(path, options_.shape.tensors(), plan_model(options_.shape),
                                     options_.contract, source);
  if (!written) return written.error();
  MUSTER_RETURN_IF_ERROR(sync_directory(options_.path));
  return path;
}

Result<SavedState> CheckpointStore::read_model(const std::function<void()>& on_alive) const {
  const std::string path = options_.path + "/" + std::string(contract::kModelFile);
  auto saved = SavedFile::open(path);
  if (!saved) {
    return saved.error().with_exit_code(saved.error().code() == ErrorCode::kIo
                                            ? contract::exit_code::kDisk
                                            : contract::exit_code::kCheckpoint);
  }
  MUSTER_RETURN_IF_ERROR(saved->sha256(on_alive));  // whatever cannot be read of it is told here
  auto file = parse_safetensors(saved->bytes());
  if (!file) return file.error().with(path).with_exit_code(contract::exit_code::kCheckpoint);
  MUSTER_ASSIGN_OR_RETURN(const auto buffers,
                          find_buffers(*file, path, {{""}, options_.shape.tensors(), {}}));
  SavedState state;
  state.parameters = buffers[0];
  state.files.push_back(*std::move(saved));
  return state;
}

std::vector<StatePiece> state_pieces(const ModelShape& shape, std::size_t optimizer_buffers) {
  std::vector<StatePiece> pieces;
  for (std::size_t buffer = 0; buffer <= optimizer_buffers; ++buffer) {
    const std::size_t size = buffer == 0 ? shape.values() : shape.parameters();
    for (std::size_t at = 0; at < size; at += kPieceElements) {
      pieces.push_back({buffer, {at, std::min(at + kPieceElements, size)}});
    }
  }
  return pieces;
}

}  // namespace muster::engine
