#include "cli/tar_reader.h"

#include <algorithm>
#include <optional>

#include "cli/terminal_text.h"

namespace muster::cli {
namespace {

constexpr std::size_t kNameAt = 0, kNameBytes = 100;
constexpr std::size_t kSizeAt = 124, kSizeBytes = 12;
constexpr std::size_t kSumAt = 148, kSumBytes = 8;
constexpr std::size_t kTypeAt = 156;
constexpr std::size_t kMagicAt = 257;
constexpr std::size_t kPrefixAt = 345, kPrefixBytes = 155;

Error corrupt(const std::string& what) {
  return Error(ErrorCode::kCorrupt, "the archive that came is not right: " + what);
}

/// A field of text up to its first NUL.
std::string_view text_of(std::string_view field) { return field.substr(0, field.find('\0')); }

/// Octal digits, ended by a NUL or space; nothing when there is anything else.
std::optional<std::int64_t> octal_of(std::string_view field) {
  std::int64_t value = 0;
  std::size_t digits = 0;
  for (; digits < field.size() && field[digits] >= '0' && field[digits] <= '7'; ++digits) {
    value = value * 8 + (field[digits] - '0');
  }
  const bool has_end = std::all_of(field.begin() + static_cast<std::ptrdiff_t>(digits), field.end(),
                                   [](char c) { return c == '\0' || c == ' '; });
  return digits > 0 && digits < 12 && has_end ? std::optional(value) : std::nullopt;
}

/// As GNU tar writes what ustar has no digits for: a byte 0x80, and the number in base 256.
std::optional<std::int64_t> size_of(std::string_view field) {
  if (field.front() != '\x80') return octal_of(field);
  std::int64_t value = 0;
  for (const char c : field.substr(1)) {
    if (value >> 48 != 0) return std::nullopt;
    value = value * 256 + static_cast<unsigned char>(c);
  }
  return value;
}

std::int64_t sum_of(std::string_view header) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool is_sum = i >= kSumAt && i < kSumAt + kSumBytes;
    sum += is_sum ? ' ' : static_cast<unsigned char>(header[i]);
  }
  return sum;
}

std::string name_of(std::string_view header) {
  const std::string_view name = text_of(header.substr(kNameAt, kNameBytes));
  const std::string_view prefix = text_of(header.substr(kPrefixAt, kPrefixBytes));
  return prefix.empty() ? std::string(name) : std::string(prefix) + "/" + std::string(name);
}

}  // namespace

bool is_plain_relative_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name.front() == '/') return false;
  for (std::size_t begin = 0; begin <= name.size();) {
    const std::size_t end = std::min(name.find('/', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    if (part.empty() || part == "." || part == "..") return false;
    begin = end + 1;
  }
  return std::all_of(name.begin(), name.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte >= 0x20 && byte != 0x7f && c != '\\';
  });
}

Status TarReader::take_header() {
  const std::string_view header(header_.data(), header_.size());
  if (header.find_first_not_of('\0') == std::string_view::npos) {
    ++zero_blocks_;
    return {};
  }
  if (zero_blocks_ > 0) return corrupt("something follows its end");
  if (header.substr(kMagicAt, 5) != "ustar") return corrupt("it is no ustar archive");
  const auto sum = octal_of(header.substr(kSumAt, kSumBytes));
  if (!sum || *sum != sum_of(header)) return corrupt("the checksum of a header does not fit");
  return take_entry();
}

Status TarReader::take_entry() {
  const std::string_view header(header_.data(), header_.size());
  const std::string name = name_of(header);
  const std::string quoted = "\"" + printable(name) + "\"";
  const char type = header[kTypeAt];
  if (type != '0' && type != '\0') return corrupt(quoted + " is no regular file");
  if (!is_plain_relative_name(name)) return corrupt(quoted + " is a name that is not allowed");
  const auto size = size_of(header.substr(kSizeAt, kSizeBytes));
  if (!size) return corrupt("the size of " + quoted + " cannot be read");
  if (*size > bytes_left_) {
    return Error(ErrorCode::kTooLarge, "the archive that came holds more than was agreed");
  }
  if (names_.size() >= kMostFiles) {
    return Error(ErrorCode::kTooLarge,
                 "the archive that came holds more than " + std::to_string(kMostFiles) + " files");
  }
  if (!names_.insert(name).second) return corrupt(quoted + " comes twice");
  bytes_left_ -= *size;
  file_left_ = *size;
  padding_left_ =
      static_cast<std::size_t>((kBlock - static_cast<std::size_t>(*size) % kBlock) % kBlock);
  is_in_file_ = true;
  return sink_.begin_file(name, *size);
}

Status TarReader::feed(std::string_view bytes) {
  for (;;) {
    if (is_in_file_ && file_left_ == 0) {
      is_in_file_ = false;
      MUSTER_RETURN_IF_ERROR(sink_.end_file());
    }
    if (bytes.empty()) return {};
    if (is_in_file_) {
      const auto length = static_cast<std::size_t>(
          std::min<std::int64_t>(file_left_, static_cast<std::int64_t>(bytes.size())));
      MUSTER_RETURN_IF_ERROR(sink_.data(bytes.substr(0, length)));
      file_left_ -= static_cast<std::int64_t>(length);
      bytes.remove_prefix(length);
    } else if (padding_left_ > 0) {
      const std::size_t length = std::min(padding_left_, bytes.size());
      padding_left_ -= length;
      bytes.remove_prefix(length);
    } else {
      const std::size_t length = std::min(kBlock - header_bytes_, bytes.size());
      std::copy_n(bytes.begin(), length,
                  header_.begin() + static_cast<std::ptrdiff_t>(header_bytes_));
      header_bytes_ += length;
      bytes.remove_prefix(length);
      if (header_bytes_ < kBlock) return {};
      header_bytes_ = 0;
      MUSTER_RETURN_IF_ERROR(take_header());
    }
  }
}

Status TarReader::finish() const {
  if (is_whole() && header_bytes_ == 0) return {};
  return corrupt("its end did not come");
}

}  // namespace muster::cli
