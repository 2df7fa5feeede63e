#include "worker/data/idx.h"

#include <algorithm>
#include <span>

#include "worker/data/gzip.h"

namespace muster::data {
namespace {

constexpr std::uint8_t kUnsignedByte = 0x08;

struct Header {
  std::vector<std::uint32_t> shape;
  std::uint64_t values = 0;
  std::size_t bytes = 0;
};

std::string hex_of(std::span<const std::uint8_t> bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<Header> parse_header(std::span<const std::uint8_t> head, IdxKind kind,
                            const std::string& name) {
  const bool images = kind == IdxKind::kImages;
  const std::string wanted = images ? "00000802 or 00000803 (images of unsigned bytes)"
                                    : "00000801 (labels of unsigned bytes)";
  if (head.size() < 4) {
    return bad_data(name, ErrorCode::kCorrupt, "is cut within its header; copy the file again");
  }
  const int rank = head[3];
  const bool rank_fits = images ? rank == 2 || rank == 3 : rank == 1;
  if (head[0] != 0 || head[1] != 0 || head[2] != kUnsignedByte || !rank_fits) {
    return bad_data(name, ErrorCode::kInvalid,
                    "starts with " + hex_of(head.first(4)) + "; an IDX file of " +
                        (images ? "images" : "labels") + " starts with " + wanted);
  }
  Header header;
  header.bytes = 4 + 4 * static_cast<std::size_t>(rank);
  if (head.size() < header.bytes) {
    return bad_data(name, ErrorCode::kCorrupt, "is cut within its header; copy the file again");
  }
  header.values = 1;
  for (int i = 0; i < rank; ++i) {
    const std::uint8_t* at = head.data() + 4 + 4 * i;
    const std::uint32_t size = std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 |
                               std::uint32_t{at[2]} << 8 | std::uint32_t{at[3]};
    if (size == 0) {
      return bad_data(
          name, ErrorCode::kInvalid,
          "dimension " + std::to_string(i + 1) + " of its header is 0; must be at least 1");
    }
    header.shape.push_back(size);
    if (header.values > kMaxIdxBytes / size) {
      return bad_data(name, ErrorCode::kTooLarge,
                      "its header describes more than " + std::to_string(kMaxIdxBytes) + " bytes");
    }
    header.values *= size;
  }
  if (header.values / header.shape.front() > kMaxFeatures) {
    return bad_data(
        name, ErrorCode::kTooLarge,
        "its header describes images of more than " + std::to_string(kMaxFeatures) + " values");
  }
  if (header.values + header.bytes > kMaxIdxBytes) {
    return bad_data(name, ErrorCode::kTooLarge,
                    "its header describes more than " + std::to_string(kMaxIdxBytes) + " bytes");
  }
  return header;
}

std::string described(const Header& header) {
  std::string text;
  for (const std::uint32_t size : header.shape) {
    text += (text.empty() ? "" : " x ") + std::to_string(size);
  }
  return text;
}

Result<IdxArray> parse_gzip(std::span<const std::uint8_t> file, IdxKind kind,
                            const std::string& name, std::uint64_t most_memory) {
  GzipStream stream(file, name);
  std::uint8_t head[16];
  std::span<std::uint8_t> magic(head, 4);
  MUSTER_ASSIGN_OR_RETURN(std::size_t have, stream.read(magic));
  const std::size_t rank = have == 4 && head[3] >= 1 && head[3] <= 3 ? head[3] : 0;
  if (rank != 0) {
    MUSTER_ASSIGN_OR_RETURN(const std::size_t more,
                            stream.read(std::span(head).subspan(4, 4 * rank)));
    have += more;
  }
  MUSTER_ASSIGN_OR_RETURN(const Header header,
                          parse_header(std::span(head).first(have), kind, name));
  if (header.values + header.bytes > stream.bytes_max()) {
    return bad_data(name, ErrorCode::kCorrupt,
                    "its header says " + described(header) + ", more than a gzip file of " +
                        std::to_string(file.size()) + " bytes can hold");
  }
  MUSTER_RETURN_IF_ERROR(check_memory_for(name, file.size() + header.values, most_memory));
  IdxArray array{header.shape, std::vector<std::uint8_t>(header.values)};
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, stream.read(array.values));
  if (got != header.values) {
    return bad_data(name, ErrorCode::kCorrupt,
                    "its header says " + described(header) + " = " + std::to_string(header.values) +
                        " bytes, but only " + std::to_string(got) + " follow");
  }
  MUSTER_RETURN_IF_ERROR(stream.finish());
  return array;
}

Result<IdxArray> parse_plain(std::vector<std::uint8_t> file, IdxKind kind,
                             const std::string& name) {
  MUSTER_ASSIGN_OR_RETURN(
      const Header header,
      parse_header(std::span(file).first(std::min<std::size_t>(file.size(), 16)), kind, name));
  const std::uint64_t follow = file.size() - header.bytes;
  if (follow != header.values) {
    return bad_data(name, follow < header.values ? ErrorCode::kCorrupt : ErrorCode::kInvalid,
                    "its header says " + described(header) + " = " + std::to_string(header.values) +
                        " bytes, but " + std::to_string(follow) + " follow");
  }
  // Moving the values down keeps one copy of a large file in memory, not two.
  file.erase(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(header.bytes));
  return IdxArray{header.shape, std::move(file)};
}

}  // namespace

Result<IdxArray> parse_idx(std::vector<std::uint8_t> file, IdxKind kind, const std::string& name,
                           std::uint64_t most_memory) {
  if (file.empty()) {
    return bad_data(name, ErrorCode::kInvalid, "is empty; must be an IDX file, plain or gzip");
  }
  if (is_gzip(file)) return parse_gzip(file, kind, name, most_memory);
  return parse_plain(std::move(file), kind, name);
}

Result<IdxArray> read_idx(const std::string& path, IdxKind kind, std::uint64_t most_memory) {
  MUSTER_ASSIGN_OR_RETURN(auto file, read_file(path, kMaxIdxBytes, most_memory));
  return parse_idx(std::move(file), kind, path, most_memory);
}

}  // namespace muster::data
