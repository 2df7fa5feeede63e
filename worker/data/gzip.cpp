#include "worker/data/gzip.h"

#include <algorithm>

#include "worker/data/file.h"

namespace muster::data {
namespace {

/// Deflate cannot make a byte stand for more than this many (RFC 1951: 258 bytes by 2 bits).
constexpr std::uint64_t kMaxDeflateRatio = 1032;

}  // namespace

GzipStream::GzipStream(std::span<const std::uint8_t> file, const std::string& name)
    : file_(file), name_(name) {
  // 15 window bits, and 16 for the gzip wrapper, whose CRC and length zlib then checks.
  ready_ = ::inflateInit2(&zlib_, 15 + 16) == Z_OK;
}

GzipStream::~GzipStream() {
  if (ready_) ::inflateEnd(&zlib_);
}

std::uint64_t GzipStream::bytes_max() const { return file_.size() * kMaxDeflateRatio; }

Result<std::size_t> GzipStream::read(std::span<std::uint8_t> out) {
  if (!ready_) return bad_data(name_, ErrorCode::kInternal, "zlib does not start");
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
      return bad_data(name_, ErrorCode::kCorrupt, "the gzip stream is cut; copy the file again");
    } else if (code != Z_OK) {
      return bad_data(name_, ErrorCode::kCorrupt,
                      std::string("the gzip stream is damaged (") +
                          (zlib_.msg != nullptr ? zlib_.msg : "unknown") +
                          "); copy the file again");
    }
  }
  return filled;
}

Status GzipStream::finish() {
  std::uint8_t extra = 0;
  MUSTER_ASSIGN_OR_RETURN(const std::size_t more, read({&extra, 1}));
  if (more != 0) {
    return bad_data(name_, ErrorCode::kInvalid, "has more bytes than its header says");
  }
  if (used_ != file_.size()) {
    return bad_data(name_, ErrorCode::kInvalid,
                    std::to_string(file_.size() - used_) +
                        " bytes follow the gzip stream; the file must be one gzip member");
  }
  return {};
}

}  // namespace muster::data
