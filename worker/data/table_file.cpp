#include "worker/data/table_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "worker/data/csv_records.h"

namespace muster::data {
namespace {

/// Bytes of rows that are encoded and wait to be taken.
constexpr std::uint64_t kMostRowBytes = std::uint64_t{64} << 20;
/// What is kept beside the values of each of them.
constexpr std::size_t kBytesOfPlace = 192;
/// Of a field that is being read, beside its text.
constexpr std::size_t kBytesOfField = sizeof(std::string);

}  // namespace

TableFile::TableFile(Options options, RegularFile file, std::vector<TableColumn> columns,
                     std::size_t label_at, TableRows rows)
    : options_(std::move(options)),
      file_(std::move(file)),
      columns_(std::move(columns)),
      label_at_(label_at),
      rows_(std::move(rows)) {
  for (const TableColumn& column : columns_) inputs_ += column.inputs();
  ahead_ = std::make_unique<ReadAhead>(
      ReadAhead::Options{options_.threads, rows_at_once(), bytes()},
      [this](std::uint64_t index, std::span<std::uint8_t> out) -> Status {
        std::vector<float> row(inputs_);
        MUSTER_RETURN_IF_ERROR(encode_row(index, row));
        std::memcpy(out.data(), row.data(), out.size());
        return {};
      });
}

/// Each thread has one, whatever may be held: of training and test tables together half of that.
std::size_t TableFile::rows_at_once() const {
  return std::max(static_cast<std::size_t>(options_.threads),
                  static_cast<std::size_t>(std::min(kMostRowBytes, options_.most_held / 4)) /
                      (bytes() + kBytesOfPlace));
}

std::size_t TableFile::memory() const {
  const std::size_t of_row =
      2 * rows_.longest + (columns_.size() + 1) * kBytesOfField + 2 * bytes();
  return rows_.offsets.size() * sizeof(std::uint64_t) + rows_at_once() * (bytes() + kBytesOfPlace) +
         (static_cast<std::size_t>(options_.threads) + 1) * of_row;
}

Status TableFile::encode_row(std::uint64_t index, std::span<float> out) const {
  const auto changed = [&] {
    return bad_data(options_.path, ErrorCode::kCorrupt,
                    "has changed since the worker began; leave it as it is while jobs train");
  };
  const std::uint64_t begin = rows_.offsets[index];
  const std::uint64_t end = index + 1 < rows_.offsets.size() ? rows_.offsets[index + 1] : rows_.end;
  // Empty lines may follow.
  std::vector<std::uint8_t> bytes(std::min(end - begin, rows_.longest));
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got,
                          read_at(file_.fd.get(), begin, bytes, options_.path));
  MUSTER_ASSIGN_OR_RETURN(const FileStamp now, stamp_of(file_.fd.get(), options_.path));
  if (got < bytes.size() || now != file_.stamp) return changed();
  Records records(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()),
                  options_.path, false);
  const auto has_row = records.next();
  const std::vector<std::string>& fields = records.fields();
  if (!has_row || !*has_row || fields.size() != columns_.size() + 1) return changed();
  for (std::size_t c = 0; c < columns_.size(); ++c) {
    const std::size_t inputs = columns_[c].inputs();
    if (!encode(columns_[c], fields[c + (c >= label_at_ ? 1 : 0)], out.first(inputs)).empty()) {
      return changed();
    }
    out = out.subspan(inputs);
  }
  return {};
}

Status TableFile::read(std::uint64_t index, std::span<float> out) const {
  MUSTER_CHECK(index < rows_.offsets.size() && out.size() == inputs_);
  const std::span bytes(reinterpret_cast<std::uint8_t*>(out.data()), out.size_bytes());
  if (options_.on_read) options_.on_read(options_.path);
  const Status done = ahead_->take(index, bytes);
  if (options_.on_read) options_.on_read({});
  return done;
}

}  // namespace muster::data
