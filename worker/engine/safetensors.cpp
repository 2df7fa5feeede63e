#include "worker/engine/safetensors.h"

#include <algorithm>

#include "common/json.h"

namespace muster::engine {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kMaxRank = 8;

Error corrupt(const std::string& message) { return Error(ErrorCode::kCorrupt, message); }

bool read_size(const Json& json, std::uint64_t& out) {
  if (!json.is_number_unsigned()) return false;
  out = json.get<std::uint64_t>();
  return out <= (std::uint64_t{1} << 53);
}

struct Dtype {
  std::string_view name;
  std::uint64_t bytes;  ///< of one value
};
constexpr Dtype kDtypes[] = {{"F64", 8}, {"I64", 8}, {"U64", 8},  {"F32", 4}, {"I32", 4},
                             {"U32", 4}, {"F16", 2}, {"BF16", 2}, {"I16", 2}, {"U16", 2},
                             {"U8", 1},  {"I8", 1},  {"BOOL", 1}};

struct ByteRange {
  std::uint64_t begin = 0, end = 0;
};

Result<ByteRange> read_tensor(const std::string& name, const Json& json,
                              std::span<const std::uint8_t> data, SafetensorsFile& file) {
  const std::string quoted = "tensor \"" + name.substr(0, 64) + "\"";
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return corrupt(quoted + " must have dtype, shape and data_offsets");
  }
  const auto* const dtype =
      std::find_if(std::begin(kDtypes), std::end(kDtypes),
                   [&](const Dtype& one) { return json["dtype"] == one.name; });
  if (dtype == std::end(kDtypes)) {
    return corrupt(quoted + " has an unknown dtype; must be one such as F32");
  }
  const Json& shape = json["shape"];
  const Json& offsets = json["data_offsets"];
  if (!shape.is_array() || shape.size() > kMaxRank || !offsets.is_array() || offsets.size() != 2) {
    return corrupt(quoted + " has a shape or data_offsets that cannot be right");
  }
  SafetensorsFile::Tensor tensor;
  tensor.dtype = dtype->name;
  std::uint64_t bytes = dtype->bytes;
  for (const Json& dimension : shape) {
    std::uint64_t size = 0;
    if (!read_size(dimension, size)) return corrupt(quoted + " has a shape that cannot be right");
    tensor.shape.push_back(size);
    if (size != 0 && bytes > data.size() / size)
      return corrupt(quoted + " is larger than its file");
    bytes *= size;
  }
  ByteRange extent;
  if (!read_size(offsets[0], extent.begin) || !read_size(offsets[1], extent.end) ||
      extent.begin > extent.end || extent.end > data.size()) {
    return corrupt(quoted + " lies outside of its file");
  }
  if (extent.end - extent.begin != bytes) {
    return corrupt(quoted + " has data_offsets that do not fit its shape");
  }
  tensor.bytes = data.subspan(extent.begin, bytes);
  file.tensors.emplace(name, std::move(tensor));
  return extent;
}

Status read_metadata(const Json& json, SafetensorsFile& file) {
  if (!json.is_object()) return corrupt("__metadata__ must be an object of strings");
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) return corrupt("__metadata__ must be an object of strings");
    file.metadata.emplace(key, value.get<std::string>());
  }
  return {};
}

}  // namespace

std::string safetensors_header(std::span<const TensorRef> tensors,
                               const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::uint64_t offset = 0;
  for (const TensorRef& tensor : tensors) {
    const std::uint64_t end = offset + tensor.elements * sizeof(float);
    header[tensor.name] = {
        {"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = dump_json(header);
  text.append((kAlignment - (text.size() + 8) % kAlignment) % kAlignment, ' ');
  std::string file;
  for (int byte = 0; byte < 8; ++byte) {
    file += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * byte) & 0xff);
  }
  return file + text;
}

std::uint64_t safetensors_header_bytes(
    std::span<const std::uint8_t, kSafetensorsLengthBytes> length) {
  std::uint64_t bytes = 0;
  for (std::size_t byte = 0; byte < length.size(); ++byte) {
    bytes |= std::uint64_t{length[byte]} << (8 * byte);
  }
  return bytes;
}

Result<SafetensorsFile> parse_safetensors(std::span<const std::uint8_t> content) {
  if (content.size() < kSafetensorsLengthBytes) return corrupt("is cut within its first 8 bytes");
  const std::uint64_t length = safetensors_header_bytes(content.first<kSafetensorsLengthBytes>());
  if (length > kMaxSafetensorsHeader || length > content.size() - 8) {
    return corrupt("its header of " + std::to_string(length) + " bytes does not fit the file");
  }
  const auto head = content.subspan(8, length);
  const auto data = content.subspan(8 + length);
  auto json = parse_json(std::string(head.begin(), head.end()));
  if (!json) return corrupt("its header is " + json.error().message());
  if (!json->is_object() || json->size() > kMaxTensors) {
    return corrupt("its header must be an object of tensors");
  }
  SafetensorsFile file;
  std::vector<ByteRange> extents;
  for (const auto& [name, value] : json->items()) {
    if (name == "__metadata__") {
      MUSTER_RETURN_IF_ERROR(read_metadata(value, file));
      continue;
    }
    MUSTER_ASSIGN_OR_RETURN(const ByteRange extent, read_tensor(name, value, data, file));
    extents.push_back(extent);
  }
  std::sort(extents.begin(), extents.end(), [](const ByteRange& a, const ByteRange& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  std::uint64_t end = 0;
  for (const ByteRange& extent : extents) {
    if (extent.begin != end) return corrupt("its tensors overlap or leave a hole");
    end = extent.end;
  }
  if (end != data.size()) return corrupt("has bytes that belong to no tensor, or is cut");
  return file;
}

}  // namespace muster::engine
