#include "worker/engine/saved_file.h"

#include <algorithm>
#include <utility>

#include "common/check.h"
#include "kernels/ops.h"
#include "worker/data/file.h"
#include "worker/engine/block_hash.h"
#include "worker/engine/in_pieces.h"

namespace muster::engine {
namespace {

/// Whole blocks, so that a piece has their checksums.
static_assert(kPieceValues % kernels::kBlockElements == 0);

std::span<std::uint8_t> bytes_of_values(std::span<float> values) {
  return {reinterpret_cast<std::uint8_t*>(values.data()), values.size_bytes()};
}

}  // namespace

Result<SavedFile> SavedFile::open(const std::string& path) {
  MUSTER_ASSIGN_OR_RETURN(data::RegularFile file, data::open_regular(path));
  MUSTER_ASSIGN_OR_RETURN(MappedFile mapped,
                          MappedFile::map(file.fd.get(), file.stamp.bytes, path));
  return SavedFile(path, std::move(file.fd), std::move(mapped));
}

Status SavedFile::read(std::span<const std::uint8_t> bytes, std::span<std::uint8_t> out) const {
  const auto offset = static_cast<std::uint64_t>(bytes.data() - mapped_.bytes().data());
  const std::size_t size = mapped_.bytes().size();
  MUSTER_CHECK(bytes.size() == out.size() && offset <= size && out.size() <= size - offset);
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, data::read_at(fd_.get(), offset, out, path_));
  if (got == out.size()) return {};
  return Error(ErrorCode::kCorrupt, path_ + ": has become shorter since it was opened");
}

Status SavedFile::read_front(std::size_t count) const {
  std::vector<std::uint8_t> piece;
  Status status;
  in_pieces(std::min(count, bytes().size()), nullptr, [&](std::size_t begin, std::size_t end) {
    if (!status) return;
    piece.resize(end - begin);
    status = read(bytes().subspan(begin, end - begin), piece);
  });
  return status;
}

Result<Sha256Digest> SavedFile::sha256(const std::function<void()>& on_alive) const {
  Sha256 hash;
  std::vector<std::uint8_t> piece;
  Status status;
  in_pieces(bytes().size(), on_alive, [&](std::size_t begin, std::size_t end) {
    if (!status) return;
    piece.resize(end - begin);
    status = read(bytes().subspan(begin, end - begin), piece);
    hash.update(std::as_bytes(std::span(piece)));
  });
  if (!status) return status.error();
  return hash.finish();
}

Result<std::vector<Sha256Digest>> SavedFile::block_digests(std::span<const float> values) const {
  std::vector<Sha256Digest> digests;
  std::vector<float> piece;
  Status status;
  in_pieces(values.size(), nullptr, [&](std::size_t begin, std::size_t end) {
    if (!status) return;
    piece.resize(end - begin);
    status = read(values.subspan(begin, end - begin), piece);
    const auto of_piece = engine::block_digests(piece);
    digests.insert(digests.end(), of_piece.begin(), of_piece.end());
  });
  if (!status) return status.error();
  return digests;
}

Status SavedFile::read(std::span<const float> values, std::span<float> out) const {
  return read(std::span(reinterpret_cast<const std::uint8_t*>(values.data()), values.size_bytes()),
              bytes_of_values(out));
}

}  // namespace muster::engine
