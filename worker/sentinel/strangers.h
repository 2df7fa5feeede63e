// Who knocks without this job's key, and when that is worth telling: only what lasts, once in a
// while, and of so few at a time that no flood of made-up addresses becomes one of events. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "common/clock.h"

namespace muster::sentinel {

class Strangers {
 public:
  /// Of so many addresses something is remembered; the one that was quiet for longest goes first.
  static constexpr std::size_t kMost = 64;
  /// A worker that wants in goes on for longer; a late datagram, or one of another job that still
  /// looks for the last owner of an address, does not.
  static constexpr milliseconds kLasts{2'000};
  /// Who is quiet for so long begins anew.
  static constexpr milliseconds kPause{1'000};
  /// One address is told of again after so long.
  static constexpr milliseconds kAgain{600'000};
  /// So many are told of in each such time.
  static constexpr milliseconds kWindow{60'000};
  static constexpr int kMostInWindow = 4;

  /// A datagram came from `host` that the job's key does not open. Whether it is to be told now.
  bool note(MonoTime now, const std::string& host);
  std::size_t size() const { return known_.size(); }

 private:
  struct Known {
    MonoTime first{}, newest{};
    std::optional<MonoTime> told;
  };
  Known& find_or_add(MonoTime now, const std::string& host);

  std::map<std::string, Known> known_;
  MonoTime window_{};
  int told_in_window_ = 0;
};

}  // namespace muster::sentinel
