#include "worker/sentinel/part_pace.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace muster::sentinel {
namespace {

/// The graph's costs are guesses where memory and not arithmetic takes the time, and know nothing
/// of updates.
constexpr double kForecastTimes = 2;
constexpr double kMostPercentOfPart = 10'000;
/// A peer may say anything: microseconds of a day.
constexpr double kMostOfDay = 86'400e6;

/// What one trainer does alone in a step, in microseconds.
struct Alone {
  int rank = 0;
  Part part;
  double work = 1;                          ///< in kRankUnits
  double whole = 0, usual = 0;              ///< of a usual step
  double compute = 0, data = 0, files = 0;  ///< in seven steps of eight
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
                   micros(pace.files)});
  }
  return all;
}

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
  // The longest part of all, were nobody slow, and what a step takes.
  double longest = 0;
  std::vector<double> wholes;
  for (const Alone& one : *all) {
    longest = std::max(longest, std::min(one.all(), likes.expected(one)));
    wholes.push_back(one.whole);
  }
  const double whole = lower_median(std::move(wholes));
  std::vector<Slowness> verdicts(parts.size());
  for (const Alone& one : *all) {
    const double excess = std::max(0.0, one.all() - likes.expected(one));
    const double delay = std::clamp(one.all() - longest, 0.0, excess);
    const double without = std::max({whole - delay, whole / 100, 1.0});
    Slowness& verdict = verdicts[static_cast<std::size_t>(one.rank)];
    verdict.delay = microseconds(static_cast<std::int64_t>(delay));
    verdict.percent = static_cast<int>(std::min(kMostPercentOfPart, 100 * delay / without));
    verdict.cause = likes.cause_of(one, excess);
  }
  return verdicts;
}

}  // namespace muster::sentinel
