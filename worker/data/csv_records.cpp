#include "worker/data/csv_records.h"

#include <algorithm>

namespace muster::data {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

Result<std::unique_ptr<TableText>> TableText::open(const std::string& path,
                                                   std::uint64_t most_memory) {
  std::unique_ptr<TableText> text(new TableText(path));
  MUSTER_ASSIGN_OR_RETURN(text->file_, open_regular(path));
  std::vector<std::uint8_t> head(2);
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, read_at(text->file_.fd.get(), 0, head, path));
  const bool is_packed = got == head.size() && is_gzip(head);
  const std::uint64_t most = is_packed ? kMaxPackedCsvBytes : kMaxCsvBytes;
  if (text->file_.stamp.bytes > most) {
    return bad_data(path, ErrorCode::kTooLarge,
                    "has " + std::to_string(text->file_.stamp.bytes) + " bytes; at most " +
                        std::to_string(most) + " are read" +
                        (is_packed ? " of a gzip file; decompress it" : ""));
  }
  if (is_packed) {
    MUSTER_RETURN_IF_ERROR(check_memory_for(path, text->file_.stamp.bytes, most_memory));
    text->packed_.resize(text->file_.stamp.bytes);
    MUSTER_ASSIGN_OR_RETURN(const std::size_t all,
                            read_at(text->file_.fd.get(), 0, text->packed_, path));
    text->packed_.resize(all);
  }
  text->rewind();
  return text;
}

void TableText::rewind() {
  at_ = 0;
  if (is_packed()) gzip_ = std::make_unique<GzipStream>(packed_, path_);
}

Result<std::size_t> TableText::read(std::span<std::uint8_t> out) {
  std::size_t got = 0;
  if (is_packed()) {
    MUSTER_ASSIGN_OR_RETURN(got, gzip_->read(out));
    if (got < out.size()) MUSTER_RETURN_IF_ERROR(gzip_->finish());
  } else {
    MUSTER_ASSIGN_OR_RETURN(got, read_at(file_.fd.get(), at_, out, path_));
    MUSTER_ASSIGN_OR_RETURN(const FileStamp now, stamp_of(file_.fd.get(), path_));
    if (now != file_.stamp) {
      return bad_data(path_, ErrorCode::kCorrupt,
                      "was written to while it was read; leave it as it is while jobs train");
    }
  }
  at_ += got;
  if (!is_packed() || at_ <= kMaxPackedCsvBytes) return got;
  return bad_data(path_, ErrorCode::kTooLarge,
                  "decodes to more than " + std::to_string(kMaxPackedCsvBytes) +
                      " bytes, which are all held; decompress it, and rows may stay in the file");
}

Records::Records(std::string_view text, const std::string& name, bool is_of_begin)
    : name_(name), rest_(text), is_begun_(true) {
  if (!is_of_begin || !rest_.starts_with(kByteOrderMark)) return;
  rest_.remove_prefix(kByteOrderMark.size());
  bytes_ = kByteOrderMark.size();
}

Result<bool> Records::next() {
  do {
    offset_ += std::exchange(bytes_, 0);
    line_ += std::exchange(lines_, 0);
    for (;;) {
      const std::string_view before = rest_;
      const Status done = read();
      if (text_ != nullptr && (is_cut_ || rest_.empty())) {
        // What follows may belong to it: it is read anew, together with that.
        rest_ = before;
        MUSTER_ASSIGN_OR_RETURN(const bool is_more, read_more());
        if (is_more) continue;
        text_ = nullptr;
        continue;
      }
      MUSTER_RETURN_IF_ERROR(done);
      bytes_ = before.size() - rest_.size();
      if (bytes_ == 0) return false;
      break;
    }
  } while (fields_.size() == 1 && fields_[0].empty());
  return true;
}

/// The next piece of the text behind what is left of it; false: there is none.
Result<bool> Records::read_more() {
  const std::size_t left = rest_.size();
  if (left > kMaxRecordBytes) {
    return bad_data(name_, ErrorCode::kTooLarge,
                    "line " + std::to_string(line_) + " begins a row of more than " +
                        std::to_string(kMaxRecordBytes) + " bytes");
  }
  if (left > 0) std::copy(rest_.begin(), rest_.end(), piece_.begin());
  // Twice as much each time, so that what is read anew stays in proportion.
  piece_.resize(left + std::max(kPieceBytes, left));
  MUSTER_ASSIGN_OR_RETURN(const std::size_t got, text_->read(std::span(piece_).subspan(left)));
  rest_ = {reinterpret_cast<const char*>(piece_.data()), left + got};
  if (!std::exchange(is_begun_, true) && rest_.starts_with(kByteOrderMark)) {
    rest_.remove_prefix(kByteOrderMark.size());
    offset_ = kByteOrderMark.size();
  }
  return got > 0;
}

Status Records::read() {
  fields_.clear();
  lines_ = 0;
  is_cut_ = false;
  while (!rest_.empty()) {
    std::string field;
    if (rest_.starts_with('"')) {
      MUSTER_RETURN_IF_ERROR(read_quoted(field));
    } else {
      const std::size_t end = std::min(rest_.find_first_of(",\n"), rest_.size());
      field = rest_.substr(0, end);
      rest_.remove_prefix(end);
      if (!rest_.starts_with(',') && field.ends_with('\r')) field.pop_back();
    }
    fields_.push_back(std::move(field));
    if (fields_.size() > kMaxCsvColumns) {
      return bad_data(name_, ErrorCode::kTooLarge,
                      "line " + std::to_string(line_) + " has more than " +
                          std::to_string(kMaxCsvColumns) + " columns");
    }
    if (!rest_.starts_with(',')) break;
    rest_.remove_prefix(1);
    if (rest_.empty()) fields_.emplace_back();  // the text ends behind the comma
  }
  if (!rest_.empty()) {
    rest_.remove_prefix(1);  // the end of the line
    ++lines_;
  }
  return {};
}

Status Records::read_quoted(std::string& field) {
  rest_.remove_prefix(1);
  for (;;) {
    const std::size_t end = rest_.find('"');
    if (end == std::string_view::npos) {
      is_cut_ = true;
      return bad_data(name_, ErrorCode::kInvalid,
                      "line " + std::to_string(line_) + " begins a quoted field without an end");
    }
    field += rest_.substr(0, end);
    rest_.remove_prefix(end + 1);
    if (!rest_.starts_with('"')) break;
    field += '"';  // two of them stand for one
    rest_.remove_prefix(1);
  }
  lines_ += static_cast<std::size_t>(std::count(field.begin(), field.end(), '\n'));
  if (rest_.starts_with("\r\n") || rest_ == "\r") rest_.remove_prefix(1);
  if (!rest_.empty() && rest_[0] != ',' && rest_[0] != '\n') {
    return bad_data(name_, ErrorCode::kInvalid,
                    "line " + std::to_string(line_) +
                        " goes on behind a quoted field; must have a comma there");
  }
  return {};
}

}  // namespace muster::data
