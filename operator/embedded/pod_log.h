// What a pod's processes write: a file of bounded size (one older generation is kept beside it) and
// the tail in memory, for the termination message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace muster::embedded {

class PodLog {
 public:
  static constexpr std::size_t kTailBytes = 2048;

  /// `path`.1 takes the older half once `path` would grow over `max_bytes`.
  PodLog(std::string path, std::size_t max_bytes);
  ~PodLog();
  PodLog(const PodLog&) = delete;
  PodLog& operator=(const PodLog&) = delete;

  /// Appends. A disk that refuses is logged once and the bytes are dropped: a full disk must not
  /// stop the worker through its output.
  void append(std::string_view bytes);
  /// The last kTailBytes written.
  const std::string& tail() const { return tail_; }

 private:
  void open(bool truncate);
  void complain(const char* doing);

  std::string path_;
  std::size_t max_bytes_;
  std::size_t size_ = 0;
  int fd_ = -1;
  bool complained_ = false;
  std::string tail_;
};

}  // namespace muster::embedded
