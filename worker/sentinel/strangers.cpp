#include "worker/sentinel/strangers.h"

#include <algorithm>

namespace muster::sentinel {

Strangers::Known& Strangers::find_or_add(MonoTime now, const std::string& host) {
  const auto found = known_.find(host);
  if (found != known_.end()) return found->second;
  if (known_.size() >= kMost) {
    known_.erase(std::min_element(known_.begin(), known_.end(), [](const auto& a, const auto& b) {
      return a.second.newest < b.second.newest;
    }));
  }
  return known_.emplace(host, Known{now, now, std::nullopt}).first->second;
}

bool Strangers::note(MonoTime now, const std::string& host) {
  Known& one = find_or_add(now, host);
  if (now - one.newest > kPause) one.first = now;
  one.newest = now;
  if (now - one.first < kLasts || (one.told && now - *one.told < kAgain)) return false;
  if (told_in_window_ == 0 || now - window_ >= kWindow) {
    window_ = now;
    told_in_window_ = 0;
  }
  if (told_in_window_ >= kMostInWindow) return false;
  ++told_in_window_;
  one.told = now;
  return true;
}

}  // namespace muster::sentinel
