#include "worker/engine/pretrained.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include "common/check.h"
#include "common/contract.h"
#include "common/json.h"
#include "common/model_files.h"
#include "kernels/ops.h"
#include "worker/data/file.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/safetensors.h"

namespace muster::engine {
namespace {

constexpr std::size_t kMaxConfigBytes = std::size_t{1} << 20;
/// Whole blocks of a hash.
constexpr std::size_t kScanElements = std::size_t{64} * kernels::kBlockElements;
/// Of two tensors that are compared.
constexpr std::size_t kComparedBytes = std::size_t{1} << 20;
constexpr const char* kPrefix = "transformer.";
constexpr const char* kHead = "lm_head.weight";

/// What the system fails to read may be right.
Error unread_weights(const Error& error) {
  return error.exit_code() == contract::exit_code::kDisk
             ? error
             : error.with_exit_code(contract::exit_code::kCheckpoint);
}

Error refused_weights(const std::string& path, const std::string& message) {
  return Error(ErrorCode::kInvalid, path + ": " + message)
      .with_exit_code(contract::exit_code::kCheckpoint);
}

/// A field of config.json and what it must be. Where it may be left out, that is what it is then.
struct ConfigRule {
  const char* field;
  Json wanted;
  const char* spec = nullptr;  ///< the field of spec.training.model.gpt that says the same
};

std::vector<ConfigRule> rules_of(const GptConfig& config) {
  return {{"n_layer", config.layers, "layers"},
          {"n_head", config.heads, "heads"},
          {"n_embd", config.width, "width"},
          {"n_positions", config.context_length, "contextLength"},
          {"vocab_size", config.vocabulary_size, "vocabularySize"},
          {"activation_function", "gelu_new"},
          {"n_inner", nullptr},
          {"tie_word_embeddings", true},
          {"add_cross_attention", false},
          {"scale_attn_weights", true},
          {"scale_attn_by_inverse_layer_idx", false}};
}

Status check_config(const Json& json, const GptConfig& config, const std::string& path) {
  const auto found_in = [&](const char* field) {
    const auto at = json.find(field);
    return at == json.end() ? Json() : *at;
  };
  if (!json.is_object() || found_in("model_type") != "gpt2") {
    return refused_weights(path, "its model_type must be \"gpt2\"");
  }
  for (const ConfigRule& rule : rules_of(config)) {
    const bool is_inner = std::string_view(rule.field) == "n_inner";
    const Json found = found_in(rule.field);
    if (found == rule.wanted || (rule.spec == nullptr && found.is_null())) continue;
    if (is_inner && found == 4 * config.width) continue;
    const std::string wanted =
        is_inner ? "null or " + std::to_string(4 * config.width) : dump_json(rule.wanted);
    return refused_weights(
        path, std::string(rule.field) + " is " +
                  (found.is_null() ? "missing" : dump_json(found).substr(0, 64)) + "; must be " +
                  wanted +
                  (rule.spec == nullptr ? std::string(", as in GPT-2")
                                        : std::string(", spec.training.model.gpt.") + rule.spec));
  }
  const Json epsilon = found_in("layer_norm_epsilon");
  if (!epsilon.is_null() &&
      !(epsilon.is_number() && static_cast<float>(epsilon.get<double>()) == 1e-5f)) {
    return refused_weights(path, "layer_norm_epsilon must be 1e-05, as in GPT-2");
  }
  return {};
}

std::string sizes_of(const std::vector<std::size_t>& shape) {
  std::string text;
  for (const std::size_t size : shape) text += (text.empty() ? "" : " x ") + std::to_string(size);
  return text.empty() ? "nothing" : text;
}

using Tensors = std::map<std::string, SafetensorsFile::Tensor>;

/// By the names of the published checkpoints.
Result<Tensors> without_prefix(const SafetensorsFile& file, const std::string& path) {
  Tensors tensors;
  for (const auto& [name, tensor] : file.tensors) {
    const bool has_prefix = name.starts_with(kPrefix);
    const std::string plain = has_prefix ? name.substr(std::strlen(kPrefix)) : name;
    if (!tensors.emplace(plain, tensor).second) {
      return refused_weights(path, "has the tensor " + plain + " twice, with and without \"" +
                                       kPrefix + "\" in front");
    }
  }
  return tensors;
}

/// Of the masks of older versions, which hold no weights.
bool is_mask(const std::string& name) {
  return name.starts_with("h.") &&
         (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias"));
}

Status check_tensor(const SafetensorsFile::Tensor& found, const Tensor& tensor,
                    const std::string& path) {
  if (found.dtype != "F32") {
    return refused_weights(path, "its tensor " + tensor.name + " has the dtype " + found.dtype +
                                     "; must be F32, so save the model in float32");
  }
  if (found.shape != tensor.shape) {
    return refused_weights(path, "its tensor " + tensor.name + " is " + sizes_of(found.shape) +
                                     "; must be " + sizes_of(tensor.shape));
  }
  return {};
}

/// What parse_safetensors() looks at, so that whatever cannot be read of it is told before.
Status read_header(const SavedFile& file) {
  std::array<std::uint8_t, kSafetensorsLengthBytes> length{};
  if (file.bytes().size() < length.size()) return {};
  MUSTER_RETURN_IF_ERROR(file.read(file.bytes().first(length.size()), length));
  return file.read_front(length.size() +
                         std::min(safetensors_header_bytes(length), kMaxSafetensorsHeader));
}

/// Of tensors of one size.
Result<bool> are_equal(const SavedFile& file, std::span<const std::uint8_t> one,
                       std::span<const std::uint8_t> other) {
  std::vector<std::uint8_t> pieces[2];
  for (std::size_t begin = 0; begin < one.size(); begin += kComparedBytes) {
    const std::size_t size = std::min(kComparedBytes, one.size() - begin);
    for (auto& piece : pieces) piece.resize(size);
    MUSTER_RETURN_IF_ERROR(file.read(one.subspan(begin, size), pieces[0]));
    MUSTER_RETURN_IF_ERROR(file.read(other.subspan(begin, size), pieces[1]));
    if (pieces[0] != pieces[1]) return false;
  }
  return true;
}

/// What is left when the model's own tensors are taken out.
Status check_others(const SavedFile& file, const Tensors& tensors,
                    const SafetensorsFile::Tensor& table, const std::string& path) {
  for (const auto& [name, tensor] : tensors) {
    if (is_mask(name)) continue;
    if (name != kHead) {
      return refused_weights(
          path, "has the tensor " + name.substr(0, 64) + ", which is none of this model's");
    }
    bool is_tied = tensor.dtype == table.dtype && tensor.shape == table.shape;
    if (is_tied) {
      MUSTER_ASSIGN_OR_RETURN(is_tied, are_equal(file, tensor.bytes, table.bytes));
    }
    if (!is_tied) {
      return refused_weights(path, std::string("its tensor ") + kHead +
                                       " is not wte.weight; the head must be tied to it");
    }
  }
  return {};
}

}  // namespace

Result<Pretrained> Pretrained::open(const std::string& directory, const GptConfig& config,
                                    const ModelShape& shape) {
  MUSTER_CHECK(shape.reads_tokens());
  const std::string config_path = directory + "/" + std::string(contract::kModelConfigFile);
  auto text = data::read_file(config_path, kMaxConfigBytes);
  if (!text) return unread_weights(text.error());
  const auto json = parse_json(std::string(text->begin(), text->end()));
  if (!json) return refused_weights(config_path, json.error().message());
  MUSTER_RETURN_IF_ERROR(check_config(*json, config, config_path));
  const std::string path = directory + "/" + std::string(contract::kModelFile);
  auto file = SavedFile::open(path);
  if (!file) return unread_weights(file.error());
  Pretrained model(*std::move(file));
  MUSTER_RETURN_IF_ERROR(model.place(shape, path));
  MUSTER_RETURN_IF_ERROR(model.judge(shape, path));
  return model;
}

/// Finds the model's tensors, and that there are no others.
Status Pretrained::place(const ModelShape& shape, const std::string& path) {
  if (const Status header = read_header(file_); !header) return unread_weights(header.error());
  const auto file = parse_safetensors(file_.bytes());
  if (!file) return refused_weights(path, file.error().message());
  MUSTER_ASSIGN_OR_RETURN(Tensors tensors, without_prefix(*file, path));
  SafetensorsFile::Tensor table;
  for (const Tensor& tensor : shape.tensors()) {
    const auto found = tensors.find(tensor.name);
    if (found == tensors.end()) {
      return refused_weights(path, "has no tensor " + tensor.name);
    }
    MUSTER_RETURN_IF_ERROR(check_tensor(found->second, tensor, path));
    tensors_.push_back({tensor.offset, tensor.size, found->second.bytes});
    if (tensor.offset == 0) table = found->second;
    tensors.erase(found);
  }
  std::ranges::sort(tensors_, {}, &Placed::offset);
  const Status others = check_others(file_, tensors, table, path);
  return others ? others : unread_weights(others.error());
}

/// That all values are finite, and what they are by their hash: in one pass over the file.
Status Pretrained::judge(const ModelShape& shape, const std::string& path) {
  std::vector<Sha256Digest> digests;
  std::vector<float> piece;
  for (std::size_t begin = 0; begin < shape.values(); begin += kScanElements) {
    piece.resize(std::min(kScanElements, shape.values() - begin));
    MUSTER_RETURN_IF_ERROR(read({begin, begin + piece.size()}, piece));
    const auto bad = std::ranges::find_if(piece, [](float v) { return !std::isfinite(v); });
    if (bad != piece.end()) {
      const std::size_t at = begin + static_cast<std::size_t>(bad - piece.begin());
      const auto of = std::ranges::find_if(shape.tensors(), [&](const Tensor& tensor) {
        return at >= tensor.offset && at < tensor.offset + tensor.size;
      });
      return refused_weights(path, "its tensor " + of->name + " has a value that is not finite");
    }
    const auto of_piece = block_digests(piece);
    digests.insert(digests.end(), of_piece.begin(), of_piece.end());
  }
  sha256_ = to_hex(combine(digests));
  return {};
}

Status Pretrained::read(ElementRange range, std::span<float> out) const {
  MUSTER_CHECK(out.size() == range.size());
  const auto behind = std::ranges::upper_bound(tensors_, range.begin, {}, &Placed::offset);
  for (auto one = behind - 1; !out.empty(); ++one) {
    const std::size_t skipped = range.begin - one->offset;
    const std::size_t some = std::min(out.size(), one->size - skipped);
    const auto piece = out.first(some);
    const std::span bytes(reinterpret_cast<std::uint8_t*>(piece.data()), piece.size_bytes());
    // Tensors stand at any byte of a file.
    const Status got = file_.read(one->bytes.subspan(skipped * sizeof(float), bytes.size()), bytes);
    if (!got) return unread_weights(got.error());
    out = out.subspan(some);
    range.begin += some;
  }
  return {};
}

}  // namespace muster::engine
