// Runs seeds of the simulation of trainers: those that are kept, then --seeds N (2000) from --first
// S (1) in --threads T (2), or --seed S alone, telling what happens. Fails when a rule was broken,
// and when a message of some kind met some fault fewer than --least N (20) times, also because no
// such message was sent, or something else that seeds draw (kEventsLeast) came fewer times: a run
// that tried nothing proves nothing.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <mutex>
#include <string>

#include "common/log.h"
#include "tests/recovery/kept_seeds.h"
#include "tests/recovery/world.h"
#include "tests/seeds.h"

namespace {

using muster::sim::kMessageFaultNames;
using muster::sim::kMessagePlaces;
using muster::sim::RecoveryResult;

struct Totals {
  std::mutex mutex;
  RecoveryResult sum;
  std::map<std::uint64_t, std::string> wrong;

  void add(std::uint64_t seed, const RecoveryResult& result) {
    const std::lock_guard lock(mutex);
    for (std::size_t place = 0; place < kMessagePlaces.size(); ++place) {
      sum.messages[place] += result.messages[place];
      for (std::size_t i = 0; i < kMessageFaultNames.size(); ++i) {
        sum.coverage[place][i] += result.coverage[place][i];
      }
    }
    for (const auto& [name, count] : result.events) sum.events[name] += count;
    if (!result.wrong.empty()) wrong.emplace(seed, result.wrong);
  }
};

/// Nothing is sent from here: who comes to them only waits for what was sent before.
constexpr std::array kSilentPlaces = {muster::engine::point::kLogged};

bool is_silent(std::string_view place) {
  return std::find(kSilentPlaces.begin(), kSilentPlaces.end(), place) != kSilentPlaces.end();
}

/// What must have happened besides.
constexpr std::array kEventsLeast = {"divisions by speed",
                                     "sums by speed",
                                     "sums by another speed",
                                     "faults of uneven sums",
                                     "memberships after uneven sums",
                                     "leaves with the files",
                                     "leaves with copied shards",
                                     "went ahead",
                                     "went ahead in vain",
                                     "foreseen wrongly",
                                     "newcomers lost in their first step",
                                     "frozen",
                                     "suspected",
                                     "broken for nothing",
                                     "record held",
                                     "dies over files",
                                     "slow disk",
                                     "worlds of batch statistics and masks",
                                     "faults of many"};

/// Whether each number is large enough: a kind of message that nobody sends any more meets nothing.
bool print(const RecoveryResult& sum, std::uint64_t least) {
  bool is_enough = true;
  for (std::size_t place = 0; place < kMessagePlaces.size(); ++place) {
    if (is_silent(kMessagePlaces[place])) {
      if (sum.messages[place] == 0) continue;
      std::cout << "  messages are sent from a place that is listed as silent:\n";
      is_enough = false;
    }
    std::cout << "  " << kMessagePlaces[place] << ": " << sum.messages[place] << " messages";
    for (std::size_t i = 0; i < kMessageFaultNames.size(); ++i) {
      std::cout << ", " << kMessageFaultNames[i] << " " << sum.coverage[place][i];
      if (sum.coverage[place][i] < static_cast<std::int64_t>(least)) is_enough = false;
    }
    std::cout << "\n";
  }
  return is_enough;
}

}  // namespace

int main(int argc, char** argv) {
  muster::test::SeedOptions options{.seeds = 2000};
  if (!muster::test::read_seed_options(argc, argv, "recovery_seeds", options)) return 2;
  muster::configure_log(options.is_alone ? muster::LogLevel::kInfo : muster::LogLevel::kError, {});
  // Files are synced often: memory takes that better than a disk, and nobody takes its power away.
  const std::string memory = "/dev/shm";
  const std::string base =
      (std::filesystem::is_directory(memory) ? memory
                                             : std::filesystem::temp_directory_path().string()) +
      "/muster-recovery-" + std::to_string(getpid()) + "-";
  const auto lessons = muster::sim::make_lessons();
  Totals totals;
  for (const muster::test::KeptSeed& kept : muster::sim::kKeptRecoveries) {
    if (options.is_alone) break;
    RecoveryResult result =
        muster::sim::run_recovery_seed(kept.seed, lessons, base + std::to_string(kept.seed));
    if (!result.wrong.empty()) result.wrong += std::string(" (kept: ") + kept.showed + ")";
    totals.add(kept.seed, result);
  }
  muster::test::for_each_seed(options, [&](std::uint64_t seed) {
    totals.add(seed, muster::sim::run_recovery_seed(seed, lessons, base + std::to_string(seed),
                                                    options.is_alone));
  });
  std::cout << options.seeds << " seeds from " << options.first << ":";
  const char* between = " ";
  for (const auto& [name, count] : totals.sum.events) {
    std::cout << std::exchange(between, ", ") << count << " " << name;
  }
  std::cout << "\n";
  const bool is_enough =
      print(totals.sum, options.least) && std::ranges::all_of(kEventsLeast, [&](const char* name) {
        return totals.sum.events[name] >= static_cast<std::int64_t>(options.least);
      });
  muster::test::tell_failed(argv[0], totals.wrong);
  if (!is_enough) {
    std::cout << "FAILED: a kind of message is not sent, or is met by a fault, or something of";
    for (const char* name : kEventsLeast) std::cout << " \"" << name << "\"";
    std::cout << " came, fewer than " << options.least << " times\n";
  }
  return totals.wrong.empty() && is_enough ? 0 : 1;
}
