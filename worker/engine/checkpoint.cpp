#include "worker/engine/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "common/contract.h"
#include "common/log.h"
#include "worker/data/file.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/files.h"
#include "worker/engine/safetensors.h"

namespace muster::engine {
namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;
constexpr std::size_t kStepDigits = 12;
constexpr std::size_t kMaxManifestBytes = std::size_t{256} << 20;
constexpr std::size_t kMaxTensorBytes = std::size_t{1} << 40;
constexpr const char* kModel = "model.safetensors";
constexpr const char* kOptimizer = "optimizer.safetensors";
constexpr const char* kManifest = "manifest.json";

Error checkpoint_error(ErrorCode code, const std::string& path, const std::string& message) {
  return Error(code, path + ": " + message).with_exit_code(contract::exit_code::kCheckpoint);
}

/// A flat buffer whose tensors have the model's names behind `prefix`.
struct FlatRef {
  std::string prefix;
  std::span<const float> values;
};

/// What a file holds: buffers, and values that stand in its metadata.
struct Content {
  std::vector<FlatRef> buffers;
  std::map<std::string, std::string> metadata;
};

/// Decimal text that reads back as the same double.
std::string text_of(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value);
  return {text, error == std::errc() ? end : text};
}

std::string metadata_name(const OptimizerState::Scalar& scalar) { return "muster." + scalar.name; }

Content content_of(const OptimizerState& optimizer) {
  Content content;
  for (const auto& buffer : optimizer.buffers) {
    content.buffers.push_back({buffer.prefix, buffer.values});
  }
  for (const auto& scalar : optimizer.scalars) {
    content.metadata[metadata_name(scalar)] = text_of(scalar.value);
  }
  return content;
}

/// Tensors of a flat buffer follow one another there as they do in the file.
Result<Sha256Digest> write_tensors(const std::string& path, std::span<const Tensor> shape,
                                   Content content, std::string_view numerics) {
  std::vector<TensorRef> tensors;
  for (const FlatRef& buffer : content.buffers) {
    for (const Tensor& tensor : shape) {
      tensors.push_back({buffer.prefix + tensor.name, tensor.shape,
                         buffer.values.subspan(tensor.offset, tensor.size)});
    }
  }
  content.metadata["format"] = "pt";
  content.metadata["muster.contract"] = std::string(numerics);
  const std::string head = safetensors_header(tensors, content.metadata);
  std::vector<std::span<const std::byte>> pieces{std::as_bytes(std::span(head))};
  for (const FlatRef& buffer : content.buffers) pieces.push_back(std::as_bytes(buffer.values));
  return write_file(path, pieces);
}

/// Of all buffers' blocks, one buffer after the other.
std::vector<Sha256Digest> digests_of(const Content& content) {
  std::vector<Sha256Digest> all;
  for (const FlatRef& buffer : content.buffers) {
    const auto digests = block_digests(buffer.values);
    all.insert(all.end(), digests.begin(), digests.end());
  }
  return all;
}

Json hex_list(const std::vector<Sha256Digest>& digests) {
  Json list = Json::array();
  for (const auto& digest : digests) list.push_back(to_hex(digest));
  return list;
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
                                words(value) + " now; use the same, or another checkpoint path");
  }
  return {};
}

/// A flat buffer to be filled from tensors with the model's names behind `prefix`.
struct FlatTarget {
  std::string prefix;
  std::span<float> values;
};

/// What is looked for in a file.
struct Wanted {
  std::vector<FlatTarget> buffers;
  std::vector<OptimizerState::Scalar>* scalars = nullptr;
};

Status read_scalars(const SafetensorsFile& file, const std::string& path,
                    std::vector<OptimizerState::Scalar>& scalars) {
  for (auto& scalar : scalars) {
    const auto found = file.metadata.find(metadata_name(scalar));
    const std::string text = found == file.metadata.end() ? "" : found->second;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), scalar.value);
    const bool is_number = error == std::errc() && end == text.data() + text.size();
    // Of a product of factors below 1 nothing else comes out.
    if (is_number && scalar.value >= 0 && scalar.value <= 1) continue;
    return checkpoint_error(ErrorCode::kCorrupt, path,
                            "its " + metadata_name(scalar) + " is missing or not from 0 to 1");
  }
  return {};
}

Status load_tensors(const std::string& path, const Json& expected, std::span<const Tensor> shape,
                    const Json& blocks, const Wanted& wanted) {
  const auto corrupt = [&](const std::string& message) {
    return checkpoint_error(ErrorCode::kCorrupt, path, message);
  };
  auto read = data::read_file(path, kMaxTensorBytes);
  if (!read) return read.error().with_exit_code(contract::exit_code::kCheckpoint);
  auto file = parse_safetensors(*read);
  if (!file) return file.error().with(path).with_exit_code(contract::exit_code::kCheckpoint);
  if (file->tensors.size() != shape.size() * wanted.buffers.size()) {
    return corrupt("has tensors of another model");
  }
  Content content;
  for (const FlatTarget& buffer : wanted.buffers) {
    for (const Tensor& tensor : shape) {
      const std::string name = buffer.prefix + tensor.name;
      const auto found = file->tensors.find(name);
      if (found == file->tensors.end() || found->second.shape != tensor.shape ||
          found->second.dtype != "F32") {
        return corrupt("its tensor " + name + " is missing or has another shape or dtype");
      }
      std::memcpy(buffer.values.data() + tensor.offset, found->second.bytes.data(),
                  found->second.bytes.size());
    }
    content.buffers.push_back({buffer.prefix, buffer.values});
  }
  if (wanted.scalars != nullptr) {
    MUSTER_RETURN_IF_ERROR(read_scalars(*file, path, *wanted.scalars));
  }
  const Json found = hex_list(digests_of(content));
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (blocks.size() != found.size() || blocks[i] != found[i]) {
      return corrupt("block " + std::to_string(i) + " does not match its checksum in " + kManifest);
    }
  }
  if (expected != to_hex(sha256(std::as_bytes(std::span(*read))))) {
    return corrupt(std::string("does not match its checksum in ") + kManifest);
  }
  return {};
}

}  // namespace

CheckpointStore::CheckpointStore(CheckpointOptions options) : options_(std::move(options)) {}

std::string CheckpointStore::directory_of(std::int64_t step) const {
  std::string digits = std::to_string(step);
  digits.insert(0, kStepDigits - std::min(kStepDigits, digits.size()), '0');
  return options_.path + "/step-" + digits;
}

std::vector<std::int64_t> CheckpointStore::complete_steps() const {
  std::vector<std::int64_t> steps;
  std::error_code error;
  for (fs::directory_iterator it(options_.path, error), end; !error && it != end;
       it.increment(error)) {
    const std::int64_t step = step_of(it->path().filename().string());
    std::error_code unreadable;
    if (step >= 0 && fs::exists(it->path() / kManifest, unreadable)) steps.push_back(step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

Status CheckpointStore::write_step(const std::string& directory, const StateView& state) {
  MUSTER_RETURN_IF_ERROR(make_directories(directory));
  // Until the new manifest is written there is no checkpoint of this step.
  ::unlink((directory + "/" + kManifest).c_str());
  const Content of_model{{{"", state.parameters}}, {}};
  const Content of_optimizer = content_of(state.optimizer);
  MUSTER_ASSIGN_OR_RETURN(
      const auto model, write_tensors(directory + "/" + kModel, options_.shape.tensors(), of_model,
                                      options_.contract));
  MUSTER_ASSIGN_OR_RETURN(const auto optimizer,
                          write_tensors(directory + "/" + kOptimizer, options_.shape.trained(),
                                        of_optimizer, options_.contract));
  MUSTER_RETURN_IF_ERROR(sync_directory(directory));
  const auto parameters = block_digests(state.parameters);
  const Json manifest{
      {"formatVersion", kFormatVersion},
      {"contract", options_.contract},
      {"step", state.step},
      {"identity", options_.identity},
      {"jobUid", options_.job_uid},
      {"parametersSha256", to_hex(combine(parameters))},
      {"files",
       {{kModel, {{"sha256", to_hex(model)}, {"blocks", hex_list(parameters)}}},
        {kOptimizer,
         {{"sha256", to_hex(optimizer)}, {"blocks", hex_list(digests_of(of_optimizer))}}}}}};
  MUSTER_ASSIGN_OR_RETURN(const auto ignored,
                          write_file(directory + "/" + kManifest, dump_json(manifest) + "\n"));
  static_cast<void>(ignored);
  MUSTER_RETURN_IF_ERROR(sync_directory(directory));
  return sync_directory(options_.path);
}

Status CheckpointStore::save(const StateView& state) {
  const std::string directory = directory_of(state.step);
  if (Status written = write_step(directory, state); !written) {
    std::error_code ignored;
    fs::remove_all(directory, ignored);
    return written.error().with("save the checkpoint of step " + std::to_string(state.step));
  }
  remove_old(state.step);
  return {};
}

void CheckpointStore::remove_old(std::int64_t newest) const {
  auto steps = complete_steps();
  // Later steps are damaged ones that load() passed over; they must not outlive what is whole.
  std::erase_if(steps, [&](std::int64_t step) { return step > newest; });
  std::error_code error;
  std::vector<fs::path> old;
  for (fs::directory_iterator it(options_.path, error), end; !error && it != end;
       it.increment(error)) {
    const std::int64_t step = step_of(it->path().filename().string());
    if (step < 0) continue;
    const auto kept = steps.begin() + std::min<std::ptrdiff_t>(options_.keep, std::ssize(steps));
    if (std::find(steps.begin(), kept, step) == kept) old.push_back(it->path());
  }
  for (const auto& path : old) {
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

Status CheckpointStore::load_step(std::int64_t step, std::span<float> parameters,
                                  OptimizerState& optimizer) {
  const std::string directory = directory_of(step);
  const std::string path = directory + "/" + kManifest;
  auto read = data::read_file(path, kMaxManifestBytes);
  if (!read) return read.error().with_exit_code(contract::exit_code::kCheckpoint);
  auto manifest = parse_json(std::string(read->begin(), read->end()));
  if (!manifest) {
    return checkpoint_error(ErrorCode::kCorrupt, path, manifest.error().message());
  }
  const auto member = [&](const Json& object, const char* name) -> const Json& {
    static const Json none;
    const auto found = object.is_object() ? object.find(name) : object.end();
    return object.is_object() && found != object.end() ? *found : none;
  };
  if (const Json& version = member(*manifest, "formatVersion"); version != kFormatVersion) {
    return checkpoint_error(
        version.is_number_integer() ? ErrorCode::kConflict : ErrorCode::kCorrupt, path,
        "formatVersion must be " + std::to_string(kFormatVersion) + "; it is " +
            dump_json(version));
  }
  if (const Json& name = member(*manifest, "contract");
      name != contract::kNumericsContract && name != contract::kBfloat16Contract) {
    return checkpoint_error(name.is_string() ? ErrorCode::kConflict : ErrorCode::kCorrupt, path,
                            "contract is " + dump_json(name) + "; this build trains by \"" +
                                std::string(contract::kNumericsContract) + "\" or \"" +
                                std::string(contract::kBfloat16Contract) + "\"");
  }
  const Json& identity = member(*manifest, "identity");
  if (!identity.is_object() || member(*manifest, "step") != step) {
    return checkpoint_error(ErrorCode::kCorrupt, path,
                            "identity or step is missing or not that of the directory");
  }
  MUSTER_RETURN_IF_ERROR(compare_identity(identity, options_.identity, path));
  const Json& files = member(*manifest, "files");
  const Json& model = member(files, kModel);
  const Json& of_optimizer = member(files, kOptimizer);
  MUSTER_RETURN_IF_ERROR(load_tensors(directory + "/" + kModel, member(model, "sha256"),
                                      options_.shape.tensors(), member(model, "blocks"),
                                      {{{"", parameters}}, nullptr}));
  if (const Json& whole = member(*manifest, "parametersSha256"); whole != block_hash(parameters)) {
    return checkpoint_error(ErrorCode::kCorrupt, path,
                            "parametersSha256 is not that of its parameters");
  }
  Wanted wanted{{}, &optimizer.scalars};
  for (auto& buffer : optimizer.buffers) wanted.buffers.push_back({buffer.prefix, buffer.values});
  return load_tensors(directory + "/" + kOptimizer, member(of_optimizer, "sha256"),
                      options_.shape.trained(), member(of_optimizer, "blocks"), wanted);
}

Result<std::optional<std::int64_t>> CheckpointStore::load(std::span<float> parameters,
                                                          OptimizerState& optimizer) {
  std::optional<Error> newest_damage;
  for (const std::int64_t step : complete_steps()) {
    const Status loaded = load_step(step, parameters, optimizer);
    if (loaded) return std::optional(step);
    // A checkpoint of another job is whole; an older one of this path would be no better.
    if (loaded.error().code() == ErrorCode::kConflict) return loaded.error();
    log_warning("a checkpoint is damaged and passed over", {{"error", loaded.error().message()}});
    if (!newest_damage) newest_damage = loaded.error();
  }
  if (newest_damage) {
    return newest_damage->with("no checkpoint is whole; remove them to start from the beginning");
  }
  return std::optional<std::int64_t>();
}

Result<std::string> CheckpointStore::write_model(std::span<const float> parameters) {
  MUSTER_RETURN_IF_ERROR(make_directories(options_.path));
  const std::string path = options_.path + "/" + std::string(contract::kModelFile);
  MUSTER_ASSIGN_OR_RETURN(
      const auto ignored,
      write_tensors(path, options_.shape.tensors(), {{{"", parameters}}, {}}, options_.contract));
  static_cast<void>(ignored);
  MUSTER_RETURN_IF_ERROR(sync_directory(options_.path));
  return path;
}

}  // namespace muster::engine
