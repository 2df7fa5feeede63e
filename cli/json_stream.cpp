#include "cli/json_stream.h"

#include "common/contract.h"

namespace muster::cli {

bool JsonStream::step(char c) {
  if (in_string_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (c == '\\') {
      is_escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return false;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  return (c == '}' || c == ']') && --depth_ == 0;
}

Status JsonStream::feed(std::string_view bytes,
                        const std::function<Status(std::string_view)>& take) {
  for (const char c : bytes) {
    if (depth_ == 0) {
      if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
      if (c != '{') {
        return Error(ErrorCode::kCorrupt, "kubectl wrote something between two objects")
            .with_exit_code(contract::exit_code::kCluster);
      }
    }
    document_ += c;
    if (document_.size() > kLargest) {
      return Error(ErrorCode::kTooLarge, "an object of more than 8 MiB came from the cluster")
          .with_exit_code(contract::exit_code::kCluster);
    }
    if (!step(c)) continue;
    const std::string document = std::move(document_);
    document_.clear();
    MUSTER_RETURN_IF_ERROR(take(document));
  }
  return {};
}

}  // namespace muster::cli
