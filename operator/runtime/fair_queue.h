// Work in line, in the order in which it came for each namespace, and one of each namespace in
// turn: whoever makes ten thousand jobs delays others by one work a turn, not by all of theirs.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <string>
#include <utility>

namespace muster::runtime {

/// Threads: the caller's lock.
template <typename T>
class FairQueue {
 public:
  void push(const std::string& namespace_name, T one) {
    std::deque<T>& line = lines_[namespace_name];
    if (line.empty()) turns_.push_back(namespace_name);
    line.push_back(std::move(one));
    ++size_;
  }
  /// Of a queue that is not empty.
  T pop() {
    const auto line = lines_.find(turns_.front());
    turns_.pop_front();
    T one = std::move(line->second.front());
    line->second.pop_front();
    --size_;
    if (line->second.empty()) {
      lines_.erase(line);
    } else {
      turns_.push_back(line->first);
    }
    return one;
  }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void clear() {
    lines_.clear();
    turns_.clear();
    size_ = 0;
  }

 private:
  std::map<std::string, std::deque<T>> lines_;  ///< none is empty
  std::deque<std::string> turns_;               ///< whose turn is next; each namespace once
  std::size_t size_ = 0;
};

}  // namespace muster::runtime
