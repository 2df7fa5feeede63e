// JSON objects one after another, as `kubectl get --watch -o json` writes them. Bounded. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "common/result.h"

namespace muster::cli {

class JsonStream {
 public:
  static constexpr std::size_t kLargest = std::size_t{8} << 20;  ///< bytes of one object

  /// Hands on each object that is whole, in order. Errors: kTooLarge; kCorrupt when something
  /// stands between the objects; what `take` returns.
  Status feed(std::string_view bytes, const std::function<Status(std::string_view)>& take);

 private:
  bool step(char c);  ///< whether an object ends with it
  std::string document_;
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace muster::cli
