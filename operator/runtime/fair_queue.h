// Work in lines, of each in the order in which it came, and one of each line in turn: whoever makes
// ten thousand jobs, whose line is their namespace, delays others by one work a turn, not by all of
// theirs.
#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace muster::runtime {

/// Threads: the caller's lock.
template <typename T>
class FairQueue {
 public:
  void push(const std::string& name, T one) {
    std::deque<T>& line = lines_[name];
    if (line.empty()) turns_.push_back(name);
    line.push_back(std::move(one));
    ++size_;
  }
  /// Of a queue that is not empty.
  T pop() { return pop(turns_.begin()); }
  /// The next of a line that `may` go on; nothing where there is none.
  template <typename May>
  std::optional<T> pop_if(const May& may) {
    const auto turn = std::find_if(turns_.begin(), turns_.end(), may);
    if (turn == turns_.end()) return std::nullopt;
    return pop(turn);
  }
  /// The last of the longest line, in which more than `least` wait (1 or more); nothing where there
  /// is none.
  std::optional<T> pop_of_longest(std::size_t least) {
    const auto longest = std::max_element(
        lines_.begin(), lines_.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    if (longest == lines_.end() || longest->second.size() <= least) return std::nullopt;
    T one = std::move(longest->second.back());
    longest->second.pop_back();
    --size_;
    return one;
  }
  /// What waits in one line, the first first; nullptr: nothing.
  std::deque<T>* line(const std::string& name) {
    const auto found = lines_.find(name);
    return found == lines_.end() ? nullptr : &found->second;
  }
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }
  void clear() {
    lines_.clear();
    turns_.clear();
    size_ = 0;
  }

 private:
  using Turns = std::deque<std::string>;

  T pop(typename Turns::iterator turn) {
    const auto line = lines_.find(*turn);
    turns_.erase(turn);
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

  std::map<std::string, std::deque<T>> lines_;  ///< none is empty
  Turns turns_;                                 ///< whose turn is next; each line once
  std::size_t size_ = 0;
};

}  // namespace muster::runtime
