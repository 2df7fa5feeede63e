#include "worker/sentinel/part_pace.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
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

template <typename Of>
double usual_over(const std::vector<const Alone*>& likes, Of of) {
  std::vector<double> values;
  for (const Alone* one : likes) values.push_back(of(*one));
  return lower_median(std::move(values));
}

/// With whom a trainer is compared, itself included.
class Likes {
 public:
  explicit Likes(const std::vector<Alone>& all) : all_(all) {
    std::set<int> copies;
    for (const Alone& one : all) {
      copies.insert(one.part.copy);
      const auto [stage, is_first] = of_stage_.emplace(one.part.stage, one.of_work());
      if (!is_first) stage->second = std::min(stage->second, one.of_work());
    }
    is_one_copy_ = copies.size() == 1;
  }

  /// Those with the same part in other copies, or of the same stage in the only one.
  std::vector<const Alone*> of(const Alone& self) const {
    std::vector<const Alone*> likes;
    for (const Alone& one : all_) {
      const bool is_same =
          one.part.stage == self.part.stage && (is_one_copy_ || one.part.slice == self.part.slice);
      if (is_same) likes.push_back(&one);
    }
    return likes;
  }

  /// As long as it may take.
  double expected(const Alone& self) const {
    const double like = usual_over(of(self), [](const Alone& one) { return one.of_work(); });
    if (!is_one_copy_ || of_stage_.size() < 2) return like * self.work;
    std::vector<double> stages;
    for (const auto& [stage, of_work] : of_stage_) stages.push_back(of_work);
    return std::min(like, kForecastTimes * lower_median(std::move(stages))) * self.work;
  }

 private:
  const std::vector<Alone>& all_;
  std::map<int, double> of_stage_;  ///< for each unit of work, of the fastest of each stage
  bool is_one_copy_ = true;
};

Cause cause_of_part(const Alone& self, std::vector<const Alone*> likes,
                    const std::vector<Alone>& all, double excess) {
  if (likes.size() < 2) {
    likes.clear();
    for (const Alone& one : all) likes.push_back(&one);
  }
  const double data = self.data - usual_over(likes, [](const Alone& one) { return one.data; });
  const double files = self.files - usual_over(likes, [](const Alone& one) { return one.files; });
  const std::array<std::pair<double, Cause>, 3> causes = {
      {{excess - std::max(0.0, data) - std::max(0.0, files), Cause::kCompute},
       {data, Cause::kData},
       {files, Cause::kFiles}}};
  return std::ranges::max_element(causes, {}, [](const auto& one) { return one.first; })->second;
}

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
    verdict.cause = cause_of_part(one, likes.of(one), *all, excess);
  }
  return verdicts;
}

}  // namespace muster::sentinel
