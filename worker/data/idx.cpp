#include "worker/data/idx.h"

#define ZLIB_CONST
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <span>

#include "common/contract.h"
#include "worker/data/file.h"

namespace muster::data {
namespace {

/// Deflate cannot make a byte stand for more than this many (RFC 1951: 258 bytes by 2 bits).
constexpr std::uint64_t kMaxDeflateRatio = 1032;
constexpr std::uint8_t kUnsignedByte = 0x08;

Error bad(const std::string& name, ErrorCode code, const std::string& message) {
  return Error(code, name + ": " + message).with_exit_code(contract::exit_code::kData);
}

/// What the decoded stream comes from: the file itself, or zlib over it.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Fills `out` as far as bytes are left; fewer only at the end. Errors: the stream is damaged.
  virtual Result<std::size_t> read(std::span<std::uint8_t> out) = 0;
  /// Decoded bytes this stream can have at most, header included.
  virtual std::uint64_t bytes_max() const = 0;
  /// After all expected values: nothing may follow.
  virtual Status finish() = 0;
};

class GzipStream final : public Stream {
 public:
  GzipStream(std::span<const std::uint8_t> file, const std::string& name)
      : file_(file), name_(name) {
    // 15 window bits, and 16 for the gzip wrapper, whose CRC and length zlib then checks.
    ready_ = ::inflateInit2(&zlib_, 15 + 16) == Z_OK;
  }
  ~GzipStream() override {
    if (ready_) ::inflateEnd(&zlib_);
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::uint64_t bytes_max() const override { return file_.size() * kMaxDeflateRatio; }

  Result<std::size_t> read(std::span<std::uint8_t> out) override {
    if (!ready_) return bad(name_, ErrorCode::kInternal, "zlib does not start");
    std::size_t filled = 0;
    while (filled < out.size() && !ended_) {
      // zlib counts in 32 bits.
      constexpr std::size_t kMost = std::size_t{1} << 30;
      const std::size_t in = std::min(file_.size() - used_, kMost);
      const std::size_t room = std::min(out.size() - filled, kMost);
      zlib_.next_in = file_.data() + used_;
      zlib_.avail_in = static_cast<uInt>(in);
      zlib_.next_out = out.data() + filled;
      zlib_.avail_out = static_cast<uInt>(room);
      const int code = ::inflate(&zlib_, Z_NO_FLUSH);
      used_ += in - zlib_.avail_in;
      filled += room - zlib_.avail_out;
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code == Z_BUF_ERROR ||
                 (code == Z_OK && used_ == file_.size() && zlib_.avail_out == room && room > 0)) {
        return bad(name_, ErrorCode::kCorrupt, "the gzip stream is cut; copy the file again");
      } else if (code != Z_OK) {
        return bad(name_, ErrorCode::kCorrupt,
                   std::string("the gzip stream is damaged (") +
                       (zlib_.msg != nullptr ? zlib_.msg : "unknown") + "); copy the file again");
      }
    }
    return filled;
  }

  Status finish() override {
    std::uint8_t extra = 0;
    MUSTER_ASSIGN_OR_RETURN(const std::size_t more, read({&extra, 1}));
    if (more != 0) {
      return bad(name_, ErrorCode::kInvalid, "has more bytes than its header says");
    }
    if (used_ != file_.size()) {
      return bad(name_, ErrorCode::kInvalid,
                 std::to_string(file_.size() - used_) +
                     " bytes follow the gzip stream; the file must be one gzip member");
    }
    return {};
  }

 private:
  std::span<const std::uint8_t> file_;
  const std::string& name_;
  z_stream zlib_ = {};
  std::size_t used_ = 0;
  bool ready_ = false;
  bool ended_ = false;
};

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
    return bad(name, ErrorCode::kCorrupt, "is cut within its header; copy the file again");
  }
  const int rank = head[3];
  const bool rank_fits = images ? rank == 2 || rank == 3 : rank == 1;
  if (head[0] != 0 || head[1] != 0 || head[2] != kUnsignedByte || !rank_fits) {
    return bad(name, ErrorCode::kInvalid,
               "starts with " + hex_of(head.first(4)) + "; an IDX file of " +
                   (images ? "images" : "labels") + " starts with " + wanted);
  }
  Header header;
  header.bytes = 4 + 4 * static_cast<std::size_t>(rank);
  if (head.size() < header.bytes) {
    return bad(name, ErrorCode::kCorrupt, "is cut within its header; copy the file again");
  }
  header.values = 1;
  for (int i = 0; i < rank; ++i) {
    const std::uint8_t* at = head.data() + 4 + 4 * i;
    const std::uint32_t size = std::uint32_t{at[0]} << 24 | std::uint32_t{at[1]} << 16 |
                               std::uint32_t{at[2]} << 8 | std::uint32_t{at[3]};
    if (size == 0) {
      return bad(name, ErrorCode::kInvalid,
                 "dimension " + std::to_string(i + 1) + " of its header is 0; must be at least 1");
    }
    header.shape.push_back(size);
    if (header.values > kMaxIdxBytes / size) {
      return bad(name, ErrorCode::kTooLarge,
                 "its header describes more than " + std::to_string(kMaxIdxBytes) + " bytes");
    }
    header.values *= size;
  }
  if (header.values / header.shape.front() > kMaxFeatures) {
    return bad(
        name, ErrorCode::kTooLarge,
        "its header describes images of more than " + std::to_string(kMaxFeatures) + " values");
  }
  if (header.values + header.bytes > kMaxIdxBytes) {
    return bad(name, ErrorCode::kTooLarge,
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
                            const std::string& name) {
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
    return bad(name, ErrorCode::kCorrupt,
               "its header says " + described(header) + ", more than a gzip file of " +
                   std::to_string(file.size()) + " bytes can hold");
  }
  IdxArray array{header.shape, std::vector<std::uint8_t>(header.values)};
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, stream.read(array.values));
  if (got != header.values) {
    return bad(name, ErrorCode::kCorrupt,
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
    return bad(name, follow < header.values ? ErrorCode::kCorrupt : ErrorCode::kInvalid,
               "its header says " + described(header) + " = " + std::to_string(header.values) +
                   " bytes, but " + std::to_string(follow) + " follow");
  }
  // Moving the values down keeps one copy of a large file in memory, not two.
  file.erase(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(header.bytes));
  return IdxArray{header.shape, std::move(file)};
}

}  // namespace

Result<IdxArray> parse_idx(std::vector<std::uint8_t> file, IdxKind kind, const std::string& name) {
  if (file.empty()) {
    return bad(name, ErrorCode::kInvalid, "is empty; must be an IDX file, plain or gzip");
  }
  if (file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b) return parse_gzip(file, kind, name);
  return parse_plain(std::move(file), kind, name);
}

Result<IdxArray> read_idx(const std::string& path, IdxKind kind) {
  auto file = read_file(path, kMaxIdxBytes);
  if (!file) return file.error().with_exit_code(contract::exit_code::kData);
  return parse_idx(std::move(*file), kind, path);
}

}  // namespace muster::data
