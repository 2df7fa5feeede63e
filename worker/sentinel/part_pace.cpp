#include "worker/sentinel/part_pace.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace muster::sentinel {
namespace {

/// The graph's costs are guesses where memory and not arithmetic takes the time, and know nothing
/// of updates.
constexpr double kForecastTimes = 2;
constexpr double kMostPercentOfPart = 10'000;
/// A network so many times as slow as usual is slow. By less the sizes of messages alone may make
/// one seem slower: more of a smaller one's time is latency.
constexpr double kSlowTimes = 4;
/// A peer may say anything: microseconds of a day.
constexpr double kMostOfDay = 86'400e6;

/// What one trainer does alone in a step, in microseconds.
struct Alone {
  int rank = 0;
  Part part;
  double work = 1;                          ///< in kRankUnits
  double whole = 0, usual = 0;              ///< of a usual step
  double compute = 0, data = 0, files = 0;  ///< in seven steps of eight
  double starved = 0;
  std::span<const Wait> waits;
  double all() const { return compute + data + files; }
  double of_work() const { return usual / work; }
};

double micros(microseconds time) {
  return std::clamp(static_cast<double>(time.count()), 0.0, kMostOfDay);
}

/// The lower median, of one at least.
double lower_median(std::vector<double> values) {
  const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What is usual among some, each for itself.
struct UsualAlone {
  std::size_t count = 0;
  double of_work = 0, data = 0, files = 0;
};

UsualAlone usual_among(const std::vector<const Alone*>& likes) {
  const auto over = [&](auto of) {
    std::vector<double> values;
    for (const Alone* one : likes) values.push_back(of(*one));
    return lower_median(std::move(values));
  };
  return {likes.size(), over([](const Alone& one) { return one.of_work(); }),
          over([](const Alone& one) { return one.data; }),
          over([](const Alone& one) { return one.files; })};
}

/// With whom a trainer is compared: those with the same part in other copies, or of the same stage
/// in the only one, itself included.
class Likes {
 public:
  /// `all`: one at least.
  explicit Likes(const std::vector<Alone>& all) {
    for (const Alone& one : all) is_one_copy_ = is_one_copy_ && one.part.copy == all[0].part.copy;
    std::map<std::pair<int, int>, std::vector<const Alone*>> groups;
    std::vector<const Alone*> everybody;
    for (const Alone& one : all) {
      groups[key_of(one)].push_back(&one);
      everybody.push_back(&one);
    }
    all_ = usual_among(everybody);
    for (const auto& [key, likes] : groups) usual_.emplace(key, usual_among(likes));
    if (!is_one_copy_ || groups.size() < 2) return;
    std::vector<double> stages;  // of the fastest of each
    for (const auto& [key, likes] : groups) {
      double least = likes[0]->of_work();
      for (const Alone* one : likes) least = std::min(least, one->of_work());
      stages.push_back(least);
    }
    forecast_ = kForecastTimes * lower_median(std::move(stages));
  }

  /// As long as it may take.
  double expected(const Alone& self) const {
    const double like = usual_.at(key_of(self)).of_work;
    return (forecast_ ? std::min(like, *forecast_) : like) * self.work;
  }

  Cause cause_of(const Alone& self, double excess) const {
    const UsualAlone& own = usual_.at(key_of(self));
    const UsualAlone& likes = own.count < 2 ? all_ : own;
    const double data = std::max(0.0, self.data - likes.data);
    const double files = std::max(0.0, self.files - likes.files);
    const std::array<std::pair<double, Cause>, 3> causes = {
        {{excess - data - files, Cause::kCompute}, {data, Cause::kData}, {files, Cause::kFiles}}};
    return std::ranges::max_element(causes, {}, [](const auto& one) { return one.first; })->second;
  }

 private:
  std::pair<int, int> key_of(const Alone& one) const {
    return {one.part.stage, is_one_copy_ ? 0 : one.part.slice};
  }

  bool is_one_copy_ = true;
  std::map<std::pair<int, int>, UsualAlone> usual_;
  UsualAlone all_;
  std::optional<double> forecast_;  ///< what a unit of work may take on any stage
};

/// Of those with a part, by rank; nothing where one of them has told none.
std::optional<std::vector<Alone>> list_alone(const std::vector<Pace>& paces,
                                             const std::vector<Part>& parts) {
  std::map<int, const Pace*> by_rank;
  for (const Pace& pace : paces) {
    const bool is_new = by_rank.emplace(pace.rank, &pace).second;
    if (!is_new || pace.epoch != paces.front().epoch) return std::nullopt;
  }
  std::vector<Alone> all;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    if (parts[rank].copy < 0) continue;
    const auto found = by_rank.find(static_cast<int>(rank));
    if (found == by_rank.end()) return std::nullopt;
    const Pace& pace = *found->second;
    all.push_back({static_cast<int>(rank), parts[rank],
                   static_cast<double>(std::max(1, pace.logical_ranks)), micros(pace.whole),
                   micros(pace.usual_wait), micros(pace.compute), micros(pace.data),
                   micros(pace.files), micros(pace.starved), pace.waits});
  }
  return all;
}

/// How long a MiB of large messages takes between those who have told it, in microseconds.
class Network {
 public:
  explicit Network(const std::vector<Alone>& all) {
    for (const Alone& one : all) ends_[one.rank];
    std::vector<double> fastest;
    for (const Alone& one : all) {
      add_ways_to(one);
      if (const auto& in = ends_.at(one.rank).in) fastest.push_back(*in);
    }
    if (!fastest.empty()) usual_ = lower_median(std::move(fastest));
  }

  /// Microseconds that what comes to `rank` in a step, or as much that goes from it, takes longer
  /// than over a usual network; 0 where it may be others' that is slow.
  double excess(int rank) const {
    const End& end = ends_.at(rank);
    double time = 0;
    if (is_slow(end.in) && can_blame_receiver(end)) time = *end.in;
    if (is_slow(end.out) && can_blame_sender(rank, end)) time = std::max(time, *end.out);
    return time > 0 ? end.mebibytes * (time - usual_) : 0;
  }

 private:
  struct End {
    std::map<int, double> from;     ///< by who sends, as far as told
    std::optional<double> in, out;  ///< the fastest; of out as far as told
    double mebibytes = 0;           ///< that come in a usual step
  };

  void add_ways_to(const Alone& one) {
    End& end = ends_.at(one.rank);
    double amount = 0;
    for (const Wait& wait : one.waits) {
      const double time = std::max(1.0, micros(wait.time));
      if (wait.rank == one.rank) amount = time;
      const auto sender = ends_.find(wait.rank);
      if (wait.rank == one.rank || sender == ends_.end()) continue;
      end.from[wait.rank] = time;
      end.in = std::min(end.in.value_or(time), time);
      sender->second.out = std::min(sender->second.out.value_or(time), time);
    }
    if (end.in) end.mebibytes = amount / *end.in;
  }

  bool is_slow(std::optional<double> time) const { return time && *time > kSlowTimes * usual_; }
  /// Of the one direction it is known, and of the other nothing else.
  bool is_fast(std::optional<double> one, std::optional<double> other) const {
    return one && !is_slow(one) && !is_slow(other);
  }

  /// One who sends to it does so fast enough to others.
  bool can_blame_receiver(const End& end) const {
    return std::ranges::any_of(end.from, [&](const auto& way) {
      const End& sender = ends_.at(way.first);
      return is_fast(sender.out, sender.in);
    });
  }
  /// One whom it sends to is sent fast enough by others. Not all tell of all who send to them:
  /// those whom it is sent by itself must have told.
  bool can_blame_sender(int rank, const End& end) const {
    bool is_told = false;
    for (const auto& [peer, time] : end.from) {
      const End& receiver = ends_.at(peer);
      const auto way = receiver.from.find(rank);
      if (way == receiver.from.end() || !is_slow(way->second)) return false;
      is_told = is_told || is_fast(receiver.in, receiver.out);
    }
    return is_told;
  }

  std::map<int, End> ends_;
  double usual_ = 0;
};

}  // namespace

Split split_of(const Json& training) {
  Split split;
  const auto parallelism = training.is_object() ? training.find("parallelism") : training.end();
  if (parallelism == training.end() || !parallelism->is_object()) return split;
  for (const auto& [name, into] :
       {std::pair("tensor", &split.tensor), std::pair("pipeline", &split.pipeline)}) {
    const auto field = parallelism->find(name);
    if (field == parallelism->end() || !field->is_number_integer()) continue;
    const auto value = field->get<std::int64_t>();
    if (value >= 1 && value <= kMaxSplit) *into = static_cast<int>(value);
  }
  return split;
}

std::vector<Part> parts_of(const View& view, const Split& split) {
  const int size = split.processes();
  std::vector<int> numbers;
  std::map<int, int> members;  // by copy
  for (const Seat& seat : view.seats) {
    for (const TrainerPlace& one : seat.trainers) {
      numbers.push_back(seat.id.slot * seat.processes + one.local_rank);
      ++members[numbers.back() / size];
    }
  }
  std::vector<Part> parts;
  for (const int number : numbers) {
    const int copy = number / size, place = number % size;
    if (members[copy] != size) {
      parts.emplace_back();
    } else {
      parts.push_back({copy, place / split.tensor, place % split.tensor});
    }
  }
  return parts;
}

std::vector<Slowness> judge_parts(const std::vector<Pace>& paces, const std::vector<Part>& parts) {
  const auto all = list_alone(paces, parts);
  if (!all || all->size() < 2) return {};
  const Likes likes(*all);
  const Network network(*all);
  // The longest part of all, were nobody slow, what a step takes, and what each of them waits.
  double longest = 0, waited = kMostOfDay;
  std::vector<double> wholes, starved;
  for (const Alone& one : *all) {
    longest = std::max(longest, std::min(one.all(), likes.expected(one)));
    waited = std::clamp(one.whole - one.usual, 0.0, waited);
    wholes.push_back(one.whole);
    starved.push_back(one.starved);
  }
  const double whole = lower_median(std::move(wholes));
  const double usually_starved = lower_median(std::move(starved));
  std::vector<Slowness> verdicts(parts.size());
  for (const Alone& one : *all) {
    const double excess = std::max(0.0, one.all() - likes.expected(one));
    double delay = std::clamp(one.all() - longest, 0.0, excess);
    Cause cause = likes.cause_of(one, excess);
    const double late = std::min(network.excess(one.rank), waited);
    if (late > delay) {
      delay = late;
      // Messages, too, come and go late where a process is slow or short of processor time.
      const double short_of_time = one.starved - usually_starved;
      if (short_of_time > excess) cause = Cause::kCompute;
      if (2 * std::max(excess, short_of_time) < late) cause = Cause::kNetwork;
    }
    const double without = std::max({whole - delay, whole / 100, 1.0});
    Slowness& verdict = verdicts[static_cast<std::size_t>(one.rank)];
    verdict.delay = microseconds(static_cast<std::int64_t>(delay));
    verdict.percent = static_cast<int>(std::min(kMostPercentOfPart, 100 * delay / without));
    verdict.cause = cause;
  }
  return verdicts;
}

}  // namespace muster::sentinel
