#include "worker/sentinel/pace.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "common/clock.h"
#include "common/contract.h"

namespace muster::sentinel {
namespace {

/// Very short steps are not kept for all of kPaceTime.
constexpr std::size_t kMostSteps = 512;
constexpr int kSlowPercent = 20, kEvenPercent = 10;
constexpr microseconds kLeastDelay{1'000};
constexpr int kMostPercent = 10'000;
/// Who is waited for so many times as long is far later.
constexpr int kFarTimes = 2;
/// A peer may say anything; nothing that is computed from it may overflow.
constexpr microseconds kMostTime{std::chrono::hours(24)};
constexpr double kMebibyte = 1 << 20;

/// The element that would stand at `place` were they sorted.
template <typename T>
T element_at(std::vector<T>& values, std::size_t place) {
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(place);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// The lower median: of two the smaller, so that one slow trainer of two has somebody to be slower
/// than.
template <typename T>
T usual(std::vector<T> values) {
  return element_at(values, (values.size() - 1) / 2);
}

microseconds to_micros(double seconds) {
  if (!(seconds > 0)) return microseconds(0);
  const double most = std::chrono::duration<double>(kMostTime).count();
  return microseconds(static_cast<std::int64_t>(std::min(seconds, most) * 1e6));
}

microseconds bounded(microseconds time) { return std::clamp(time, microseconds(0), kMostTime); }

microseconds wait_for(const Pace& observer, int rank) {
  const auto found = std::find_if(observer.waits.begin(), observer.waits.end(),
                                  [rank](const Wait& wait) { return wait.rank == rank; });
  return bounded(found == observer.waits.end() ? observer.usual_wait : found->time);
}

/// For the last of these, ascending. What it tells are a few of its waits: however many processes
/// there are, few need to be looked for.
microseconds wait_for_last(const Pace& observer, const std::vector<int>& ranks) {
  microseconds longest{};
  std::size_t told = 0;
  for (const Wait& wait : observer.waits) {
    if (!std::ranges::binary_search(ranks, wait.rank)) continue;
    longest = std::max(longest, bounded(wait.time));
    ++told;
  }
  return told < ranks.size() ? std::max(longest, bounded(observer.usual_wait)) : longest;
}

/// What those elsewhere who wait for all wait for a host: for the last of its `members`. Absent
/// when there are none.
std::optional<microseconds> waited_elsewhere(const std::vector<Pace>& paces,
                                             const std::vector<int>& members) {
  std::vector<microseconds> waits;
  for (const Pace& observer : paces) {
    const bool is_beside = std::ranges::binary_search(members, observer.rank);
    if (is_beside || !observer.waits_for_all) continue;
    waits.push_back(wait_for_last(observer, members));
  }
  return waits.empty() ? std::nullopt : std::optional(usual(std::move(waits)));
}

/// What those of its host wait for `rank`; absent likewise.
std::optional<microseconds> waited_beside(const std::vector<Pace>& paces,
                                          const std::vector<int>& members, int rank) {
  std::vector<microseconds> waits;
  for (const int other : members) {
    const Pace& observer = paces[static_cast<std::size_t>(other)];
    if (other != rank && observer.waits_for_all) waits.push_back(wait_for(observer, rank));
  }
  return waits.empty() ? std::nullopt : std::optional(usual(std::move(waits)));
}

/// By rank; absent where nobody else waits for all. Who is earlier than the last of its host has
/// no part in what others wait for that one.
std::vector<std::optional<microseconds>> waited_for(const std::vector<Pace>& paces,
                                                    const std::vector<int>& host_of) {
  std::map<int, std::vector<int>> hosts;
  for (const Pace& pace : paces) {
    hosts[host_of[static_cast<std::size_t>(pace.rank)]].push_back(pace.rank);
  }
  std::vector<std::optional<microseconds>> waited(paces.size());
  for (const auto& [host, members] : hosts) {
    microseconds last{};
    for (const int rank : members) {
      auto& beside = waited[static_cast<std::size_t>(rank)];
      beside = waited_beside(paces, members, rank);
      last = std::max(last, beside.value_or(microseconds(0)));
    }
    const auto elsewhere = waited_elsewhere(paces, members);
    for (const int rank : members) {
      auto& own = waited[static_cast<std::size_t>(rank)];
      const microseconds earlier = last - own.value_or(microseconds(0));
      if (elsewhere) own = std::max(microseconds(0), *elsewhere - earlier);
    }
  }
  return waited;
}

/// What a usual trainer of this gang takes.
struct Usual {
  microseconds whole{}, data{}, compute{}, files{}, starved{};
  int logical_ranks = 0;
};

Usual usual_of(const std::vector<Pace>& paces) {
  const auto over = [&](auto member) {
    std::vector<std::remove_cvref_t<decltype(paces.front().*member)>> values;
    for (const Pace& pace : paces) values.push_back(pace.*member);
    return usual(std::move(values));
  };
  return {bounded(over(&Pace::whole)), bounded(over(&Pace::data)),    bounded(over(&Pace::compute)),
          bounded(over(&Pace::files)), bounded(over(&Pace::starved)), over(&Pace::logical_ranks)};
}

/// Of its time to compute, what it takes for more logical ranks than a usual trainer has.
microseconds explained_by_share(const Pace& pace, const Usual& usual) {
  if (pace.logical_ranks <= usual.logical_ranks || usual.logical_ranks < 0) return {};
  return bounded(pace.compute) * (pace.logical_ranks - usual.logical_ranks) / pace.logical_ranks;
}

Cause cause_of(const Pace& pace, const Usual& usual, microseconds explained, microseconds delay) {
  // Messages, too, come late from one that is short of processor time.
  const std::array<std::pair<microseconds, Cause>, 4> own = {
      {{bounded(pace.compute) - usual.compute - explained, Cause::kCompute},
       {bounded(pace.starved) - usual.starved, Cause::kCompute},
       {bounded(pace.data) - usual.data, Cause::kData},
       {bounded(pace.files) - usual.files, Cause::kFiles}}};
  const auto& most = *std::max_element(own.begin(), own.end());
  // What it does alone does not take longer: it is its messages that come late.
  return most.first * 2 >= delay ? most.second : Cause::kNetwork;
}

/// What it waited itself for one for whom all wait far longer. A sum that lacks the part of such a
/// one is late, whoever adds it up; over a slow link some get that part later than others.
/// `waits`: by rank, how long each is waited for.
microseconds passed_on(const Pace& pace, const std::vector<microseconds>& waits) {
  const microseconds own = waits[static_cast<std::size_t>(pace.rank)];
  microseconds longest{};
  for (const Wait& wait : pace.waits) {
    const auto peer = static_cast<std::size_t>(wait.rank);
    if (peer >= waits.size() || waits[peer] < kFarTimes * own) continue;
    longest = std::max(longest, std::min(bounded(wait.time), waits[peer]));
  }
  return longest;
}

}  // namespace

void PaceBook::add(const StepSample& sample) {
  if (sample.epoch != epoch_ || waited_before_.size() != sample.waited_seconds.size()) {
    // The first step of a membership: what it cost to get there is in it, too.
    epoch_ = sample.epoch;
    steps_.clear();
    seconds_ = 0;
    waited_before_.assign(sample.waited_seconds.begin(), sample.waited_seconds.end());
    return;
  }
  Entry entry{sample, {}};
  entry.sample.waited_seconds = {};
  entry.waited.reserve(waited_before_.size());
  for (std::size_t i = 0; i < waited_before_.size(); ++i) {
    entry.waited.push_back(static_cast<float>(sample.waited_seconds[i] - waited_before_[i]));
    waited_before_[i] = sample.waited_seconds[i];
  }
  seconds_ += sample.whole_seconds;
  steps_.push_back(std::move(entry));
  const double enough = std::chrono::duration<double>(kPaceTime).count();
  while (steps_.size() > kMostSteps ||
         (steps_.size() > kPaceSteps && seconds_ - steps_.front().sample.whole_seconds >= enough)) {
    seconds_ -= steps_.front().sample.whole_seconds;
    steps_.pop_front();
  }
}

std::optional<Pace> PaceBook::pace() const {
  const double enough = std::chrono::duration<double>(kPaceTime).count();
  if (steps_.size() < kPaceSteps || (seconds_ < enough && steps_.size() < kMostSteps)) {
    return std::nullopt;
  }
  const auto over = [&](auto value_of) {
    std::vector<double> values;
    values.reserve(steps_.size());
    for (const Entry& entry : steps_) values.push_back(value_of(entry.sample));
    return usual(std::move(values));
  };
  const StepSample& last = steps_.back().sample;
  const auto alone = [&](auto value_of) {
    if (!last.is_of_part) return over(value_of);
    std::vector<double> values;
    values.reserve(steps_.size());
    for (const Entry& entry : steps_) values.push_back(value_of(entry.sample));
    return element_at(values, values.size() / 8);
  };
  Pace pace;
  pace.epoch = last.epoch;
  pace.step = last.step;
  pace.rank = last.rank;
  const double share =
      over([](const StepSample& one) { return static_cast<double>(one.logical_ranks); });
  pace.logical_ranks = static_cast<int>(std::clamp(share, 0.0, static_cast<double>(kMostRank)));
  pace.whole = to_micros(over([](const StepSample& one) { return one.whole_seconds; }));
  pace.data = to_micros(alone([](const StepSample& one) { return one.data_seconds; }));
  pace.files = to_micros(alone([](const StepSample& one) { return one.files_seconds; }));
  pace.starved = to_micros(over([](const StepSample& one) { return one.starved_seconds; }));
  pace.compute = to_micros(alone([](const StepSample& one) {
    return one.whole_seconds - one.data_seconds - one.communicate_seconds - one.files_seconds;
  }));
  if (last.is_of_part) {
    pace.usual_wait = to_micros(
        over([](const StepSample& one) { return one.whole_seconds - one.communicate_seconds; }));
    pace.waits = times_of_arrivals();
    return pace;
  }
  std::vector<Wait> waits;
  for (std::size_t peer = 0; peer < waited_before_.size(); ++peer) {
    if (static_cast<int>(peer) == last.rank) continue;
    std::vector<float> times;
    times.reserve(steps_.size());
    for (const Entry& entry : steps_) times.push_back(entry.waited[peer]);
    const float nearly_always = element_at(times, times.size() / 8);
    waits.push_back({static_cast<int>(peer), to_micros(static_cast<double>(nearly_always))});
  }
  if (waits.empty()) return pace;
  pace.waits_for_all = true;
  std::sort(waits.begin(), waits.end(), [](const Wait& a, const Wait& b) {
    return a.time != b.time ? a.time > b.time : a.rank < b.rank;
  });
  pace.usual_wait = waits[waits.size() / 2].time;
  waits.resize(std::min(waits.size(), kMostWaits));
  std::sort(waits.begin(), waits.end(),
            [](const Wait& a, const Wait& b) { return a.rank < b.rank; });
  pace.waits = std::move(waits);
  return pace;
}

/// What part_pace.h says of a part's waits.
std::vector<Wait> PaceBook::times_of_arrivals() const {
  const StepSample& last = steps_.back().sample;
  std::vector<Wait> times;
  for (std::size_t peer = 0; peer < last.arrivals.size(); ++peer) {
    std::vector<double> measured;
    for (const Entry& entry : steps_) {
      if (peer >= entry.sample.arrivals.size()) continue;
      const double rate = entry.sample.arrivals[peer].bytes_per_second;
      if (rate > 0) measured.push_back(kMebibyte / rate);
    }
    // Where it is seldom measured, what is measured are those messages that were late.
    if (measured.size() * 2 < steps_.size()) continue;
    const double best = element_at(measured, measured.size() / 8);
    times.push_back({static_cast<int>(peer), to_micros(best)});
  }
  if (times.empty()) return times;
  std::sort(times.begin(), times.end(), [](const Wait& a, const Wait& b) {
    return a.time != b.time ? a.time < b.time : a.rank < b.rank;
  });
  std::vector<double> bytes;
  for (const Entry& entry : steps_) {
    bytes.push_back(0);
    for (const Arrival& one : entry.sample.arrivals) bytes.back() += one.bytes;
  }
  const double seconds_each = seconds_of(times.front().time);
  const Wait all{last.rank, to_micros(usual(std::move(bytes)) / kMebibyte * seconds_each)};
  if (times.size() >= kMostWaits) times.erase(times.begin() + 1, times.end() - (kMostWaits - 2));
  times.push_back(all);
  std::sort(times.begin(), times.end(),
            [](const Wait& a, const Wait& b) { return a.rank < b.rank; });
  return times;
}

std::string_view name_of(Cause cause) {
  switch (cause) {
    case Cause::kCompute:
      return contract::slow_cause::kCompute;
    case Cause::kData:
      return contract::slow_cause::kData;
    case Cause::kFiles:
      return contract::slow_cause::kFiles;
    case Cause::kNetwork:
      break;
  }
  return contract::slow_cause::kNetwork;
}

std::vector<Slowness> judge_paces(std::vector<Pace> paces, const std::vector<int>& host_of) {
  std::sort(paces.begin(), paces.end(),
            [](const Pace& a, const Pace& b) { return a.rank < b.rank; });
  if (host_of.size() < 2 || paces.size() != host_of.size()) return {};
  for (std::size_t rank = 0; rank < paces.size(); ++rank) {
    const Pace& pace = paces[rank];
    if (pace.rank != static_cast<int>(rank) || pace.epoch != paces.front().epoch) return {};
  }
  std::vector<microseconds> waits;
  for (const auto& wait : waited_for(paces, host_of)) {
    if (!wait) return {};
    waits.push_back(*wait);
  }
  const Usual gang = usual_of(paces);
  const microseconds even = usual(waits);
  std::vector<Slowness> all;
  for (const Pace& pace : paces) {
    const microseconds explained = explained_by_share(pace, gang);
    Slowness one;
    one.delay =
        std::max(microseconds(0), waits[static_cast<std::size_t>(pace.rank)] - even - explained);
    one.cause = cause_of(pace, gang, explained, one.delay);
    if (one.cause == Cause::kNetwork) {
      one.delay = std::max(microseconds(0), one.delay - passed_on(pace, waits));
    }
    const microseconds without =
        std::max({gang.whole - one.delay, gang.whole / 100, microseconds(1)});
    one.percent = static_cast<int>(std::min<std::int64_t>(kMostPercent, 100 * one.delay / without));
    all.push_back(one);
  }
  return all;
}

bool SlowWatch::take(const Slowness& slowness) {
  newest_ = slowness;
  if (is_slow_) {
    is_slow_ = slowness.percent >= kEvenPercent;
    return false;
  }
  is_slow_ = slowness.percent >= kSlowPercent && slowness.delay >= kLeastDelay;
  return is_slow_;
}

}  // namespace muster::sentinel
