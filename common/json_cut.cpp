#include "common/json_cut.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace muster {
namespace {

constexpr std::string_view kSpaces = " \t\n\r";
constexpr std::size_t kNoEnd = std::string_view::npos;

bool is_of_scalar(char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_letter || (c >= '0' && c <= '9') || c == '-' || c == '+' || c == '.';
}

class Cutter {
 public:
  Cutter(std::string_view text, std::span<const LeftOut> left_out)
      : text_(text), left_out_(left_out) {}

  std::string run() {
    while (at_ < text_.size() && step()) {
    }
    keep_until(text_.size());
    return std::move(kept_);
  }

 private:
  struct Open {
    std::string_view name;  ///< that it, or the list around it, stands under
    bool is_object = false;
  };

  /// False: the rest stays as it is.
  bool step() {
    const char c = text_[at_];
    if (c == '"') return take_string();
    if (c == '{' || c == '[') {
      if (open_.size() >= std::size_t{kMaxLeftOutDepth}) return false;
      std::string_view name;
      if (!open_.empty()) name = open_.back().is_object ? key_ : open_.back().name;
      open_.push_back({name, c == '{'});
      is_key_next_ = c == '{';
    } else if (c == '}' || c == ']') {
      if (open_.empty()) return false;
      open_.pop_back();
      is_key_next_ = false;
    } else if (c == ',') {
      is_key_next_ = !open_.empty() && open_.back().is_object;
    }
    ++at_;
    return true;
  }

  bool take_string() {
    const std::size_t end = end_of_string(at_);
    if (end == kNoEnd) return false;
    if (std::exchange(is_key_next_, false)) {
      key_ = text_.substr(at_ + 1, end - at_ - 2);
      // Another may be meant than stands there.
      const bool is_plain = key_.find('\\') == std::string_view::npos;
      if (is_plain && is_left_out(left_out_, open_.back().name, key_)) return cut_member(end);
    }
    at_ = end;
    return true;
  }

  bool cut_member(std::size_t key_end) {
    const std::size_t colon = after_space(key_end);
    if (colon == text_.size() || text_[colon] != ':') return false;
    const std::size_t end = end_of_value(after_space(colon + 1));
    if (end == kNoEnd) return false;
    std::size_t next = after_space(end);
    if (next == text_.size()) return false;
    const bool is_last = text_[next] == '}';
    if (!is_last) {
      if (text_[next] != ',') return false;
      next = after_space(next + 1);
      if (next == text_.size() || text_[next] != '"') return false;
    }
    keep_until(at_);
    if (is_last && !drop_comma()) return false;
    is_key_next_ = !is_last;
    kept_until_ = at_ = next;
    return true;
  }

  /// Of the member that comes last the comma before it goes with it. Its object begins before both.
  bool drop_comma() {
    const std::size_t last = kept_.find_last_not_of(kSpaces);
    if (kept_[last] == '{') return true;
    if (kept_[last] != ',' || kept_[kept_.find_last_not_of(kSpaces, last - 1)] == '{') return false;
    kept_.resize(last);
    return true;
  }

  void keep_until(std::size_t end) {
    kept_.append(text_.substr(kept_until_, end - kept_until_));
    kept_until_ = end;
  }

  std::size_t after_space(std::size_t at) const {
    return std::min(text_.find_first_not_of(kSpaces, at), text_.size());
  }

  /// Behind the quote that ends it.
  std::size_t end_of_string(std::size_t at) const {
    for (++at; at < text_.size(); at += text_[at] == '\\' ? 2 : 1) {
      if (text_[at] == '"') return at + 1;
    }
    return kNoEnd;
  }

  std::size_t end_of_value(std::size_t at) const {
    if (at == text_.size()) return kNoEnd;
    if (text_[at] == '"') return end_of_string(at);
    if (text_[at] == '{' || text_[at] == '[') return end_of_container(at);
    const std::size_t begin = at;
    while (at < text_.size() && is_of_scalar(text_[at])) ++at;
    return at == begin ? kNoEnd : at;
  }

  std::size_t end_of_container(std::size_t at) const {
    std::size_t depth = open_.size();
    while (at < text_.size()) {
      const char c = text_[at];
      if (c == '"') {
        at = end_of_string(at);
        continue;
      }
      if ((c == '{' || c == '[') && ++depth > std::size_t{kMaxLeftOutDepth}) return kNoEnd;
      if ((c == '}' || c == ']') && --depth == open_.size()) return at + 1;
      ++at;
    }
    return kNoEnd;
  }

  const std::string_view text_;
  const std::span<const LeftOut> left_out_;
  std::string kept_;
  std::size_t kept_until_ = 0;  ///< of text_: what is before is in kept_, or cut
  std::size_t at_ = 0;
  std::vector<Open> open_;
  std::string_view key_;  ///< whose value comes next, inside of an object
  bool is_key_next_ = false;
};

}  // namespace

bool is_left_out(std::span<const LeftOut> left_out, std::string_view parent,
                 std::string_view name) {
  return std::any_of(left_out.begin(), left_out.end(), [&](const LeftOut& one) {
    if (one.parent != parent) return false;
    if (!one.name.empty()) return one.name == name;
    return std::find(one.kept.begin(), one.kept.end(), name) == one.kept.end();
  });
}

std::string cut_left_out(std::string_view text, std::span<const LeftOut> left_out) {
  return Cutter(text, left_out).run();
}

}  // namespace muster
