#include "cli/prove_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/rng.h"

namespace muster::cli {
namespace {

/// The rest is for coming to rest in, so that the last of them is struck even where it has to wait
/// for somebody whom it may meet.
constexpr double kDisturbedShare = 0.75;
constexpr std::uint64_t kFreezeLeastMs = 50, kFreezeSpanMs = 900;
/// Longer than the others wait for a sign of life, so that most are left behind and come back.
constexpr std::uint64_t kSilenceLeastMs = 200, kSilenceSpanMs = 1'800;

}  // namespace

std::vector<Disturbance> plan_disturbances(std::uint64_t seed, const std::vector<int>& sizes,
                                           int kills) {
  Rng rng(seed);
  std::vector<Disturbance> plan;
  std::vector<int> left;
  const auto add = [&](Blow blow) {
    Disturbance one;
    one.blow = blow;
    one.choice = rng();
    if (blow == Blow::kResize) {
      if (left.empty()) left = sizes;
      const auto taken = left.begin() + static_cast<std::ptrdiff_t>(rng.below(left.size()));
      one.size = *taken;
      left.erase(taken);
    }
    if (blow == Blow::kFreezeTrainer) {
      one.lasts = milliseconds(kFreezeLeastMs + rng.below(kFreezeSpanMs));
    }
    if (blow == Blow::kFreezeWorker || blow == Blow::kFreezeSentinel) {
      one.lasts = milliseconds(kSilenceLeastMs + rng.below(kSilenceSpanMs));
    }
    one.share = static_cast<double>(plan.size()) + (1 + rng.unit()) / 2;
    plan.push_back(one);
  };
  for (int kill = 0; kill < kills; ++kill) {
    if (!sizes.empty() && kill % 2 == 0) add(Blow::kResize);
    add(kill % 2 == 0 ? Blow::kKillTrainer : Blow::kKillWorker);
    if (kill % 3 == 1) add(Blow::kFreezeTrainer);
    if (kill % 3 == 2) add(Blow::kLeave);
    if (kill % 4 == 3) add(Blow::kFreezeWorker);
    if (kill % 4 == 3) add(Blow::kFreezeSentinel);
  }
  for (Disturbance& one : plan) one.share *= kDisturbedShare / static_cast<double>(plan.size());
  return plan;
}

bool is_kill(const Disturbance& disturbance) {
  return disturbance.blow == Blow::kKillTrainer || disturbance.blow == Blow::kKillWorker;
}

std::vector<std::int64_t> stalls_of(const std::vector<MembershipChange>& changes) {
  std::map<std::int64_t, std::int64_t> longest;  // by epoch
  for (const MembershipChange& change : changes) {
    if (!change.is_of_members()) continue;
    std::int64_t& stall = longest[change.epoch];
    stall = std::max(stall, change.stall_ms);
  }
  std::vector<std::int64_t> stalls;
  for (const auto& [epoch, stall] : longest) stalls.push_back(stall);
  return stalls;
}

std::string describe(const Disturbance& disturbance, int slot) {
  const std::string worker = "worker " + std::to_string(slot);
  const std::string lasts = " for " + std::to_string(disturbance.lasts.count()) + " ms";
  switch (disturbance.blow) {
    case Blow::kResize:
      return "resize to " + std::to_string(disturbance.size);
    case Blow::kKillTrainer:
      return "SIGKILL the trainer of " + worker;
    case Blow::kKillWorker:
      return "SIGKILL all of " + worker;
    case Blow::kFreezeTrainer:
      return "SIGSTOP the trainer of " + worker + lasts;
    case Blow::kFreezeWorker:
      return "SIGSTOP all of " + worker + lasts;
    case Blow::kFreezeSentinel:
      return "SIGSTOP the sentinel of " + worker + lasts;
    case Blow::kLeave:
      return "SIGTERM " + worker;
  }
  return {};
}

bool SignsOfLife::take(const ProgressReport& report) {
  const auto [last, is_first] = last_.try_emplace(report.slot, report.step);
  if (is_first) return report.step > 0;
  return std::exchange(last->second, report.step) != report.step;
}

Verdict compare(const RunRecord& calm, const RunRecord& disturbed, SameFiles same) {
  Verdict verdict;
  const auto differ = [&](std::int64_t step, const std::string& what) {
    verdict.sentence = "DIFFERENT: step " + std::to_string(step) + ": " + what;
    return verdict;
  };
  const std::size_t steps = std::max(calm.steps.size(), disturbed.steps.size());
  for (std::size_t i = 0; i < steps; ++i) {
    const auto step = static_cast<std::int64_t>(i) + 1;
    if (i >= calm.steps.size()) return differ(step, "the undisturbed run did not make it");
    if (calm.steps[i].step != step) return differ(step, "the undisturbed record lacks it");
    if (i >= disturbed.steps.size()) return differ(step, "the disturbed run did not make it");
    if (disturbed.steps[i].step != step) {
      return differ(step, "the disturbed record has step " +
                              std::to_string(disturbed.steps[i].step) + " in its place");
    }
    if (calm.steps[i].sha256.empty() || calm.steps[i].sha256 != disturbed.steps[i].sha256) {
      return differ(step, "parameters " + disturbed.steps[i].sha256.substr(0, 16) + "... against " +
                              calm.steps[i].sha256.substr(0, 16) + "... undisturbed");
    }
    if (calm.steps[i].samples != disturbed.steps[i].samples) {
      return differ(step, "another number of samples");
    }
    ++verdict.compared_steps;
  }
  if (steps == 0) return differ(0, "neither run made a step");
  const std::int64_t last = calm.steps.back().step;
  if (!same.model) return differ(last, "the model files differ");
  if (!same.optimizer) return differ(last, "the optimiser's states differ");
  verdict.is_equal = true;
  verdict.sentence = "EQUAL: " + std::to_string(verdict.compared_steps) + " of " +
                     std::to_string(steps) +
                     " steps have the same parameters, the models are byte-equal (" +
                     calm.steps.back().sha256 + "), and so are the optimiser's states";
  return verdict;
}

}  // namespace muster::cli
