// Runs seeds of the membership simulation: those that are kept, then --seeds N (4000) from --first
// S (1) in --threads T (2), or --seed S alone, telling what happens. Fails when a rule was broken,
// and when some kind of message met some fault, or the network was cut, a message overtaken, a
// worker frozen or another fault there fewer than --least N (20) times: a run that tried nothing
// proves nothing. With --workers N before all that each world has so many, and only the
// seeds that are asked for run.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "tests/membership/kept_seeds.h"
#include "tests/membership/world.h"
#include "tests/seeds.h"

namespace {

using muster::sim::kNetworkFaults;
using muster::sim::MembershipResult;

struct Totals {
  std::mutex mutex;
  muster::sim::MessageCoverage coverage{};
  std::map<std::string, std::int64_t> events;
  std::int64_t messages = 0;
  std::map<std::uint64_t, std::string> wrong;

  void add(std::uint64_t seed, const MembershipResult& result) {
    const std::lock_guard lock(mutex);
    for (std::size_t kind = 0; kind < coverage.size(); ++kind) {
      for (std::size_t i = 0; i < kNetworkFaults.size(); ++i) {
        coverage[kind][i] += result.coverage[kind][i];
      }
    }
    for (const auto& [name, count] : result.events) events[name] += count;
    messages += result.messages;
    if (!result.wrong.empty()) wrong.emplace(seed, result.wrong);
  }
};

/// What must have happened besides.
constexpr std::array kEventsLeast = {"overtaken", "partition", "pair cut",        "one way cut",
                                     "isolated",  "frozen",    "power lost",      "trainer lost",
                                     "fenced",    "granted",   "minority refused"};

/// Whether each number is large enough.
bool print(const Totals& totals, std::uint64_t least) {
  bool is_enough = true;
  for (std::size_t kind = 0; kind < totals.coverage.size(); ++kind) {
    static const std::array<const char*, muster::sentinel::kMessageKinds> kNames{
        "Beat", "Prepare", "Promise", "Nack", "Accept", "Accepted", "Commit", "Bye", "Refusal"};
    std::cout << "  " << kNames[kind] << ":";
    for (std::size_t i = 0; i < kNetworkFaults.size(); ++i) {
      const std::int64_t count = totals.coverage[kind][i];
      std::cout << " " << kNetworkFaults[i] << " " << count
                << (i + 1 < kNetworkFaults.size() ? "," : "");
      if (count < static_cast<std::int64_t>(least)) is_enough = false;
    }
    std::cout << "\n";
  }
  return is_enough;
}

}  // namespace

int main(int argc, char** argv) {
  muster::test::SeedOptions options{.seeds = 4000};
  int workers = 0;
  if (argc > 2 && std::string_view(argv[1]) == "--workers") {
    workers = std::clamp(std::atoi(argv[2]), 1, 1'000);
    argv[2] = argv[0];
    argc -= 2;
    argv += 2;
  }
  if (!muster::test::read_seed_options(argc, argv, "membership_seeds", options)) return 2;
  Totals totals;
  for (const muster::test::KeptSeed& kept : muster::sim::kKeptSeeds) {
    if (options.is_alone || workers > 0) break;
    MembershipResult result = muster::sim::run_membership_seed(kept.seed, false);
    if (!result.wrong.empty()) result.wrong += std::string(" (kept: ") + kept.showed + ")";
    totals.add(kept.seed, result);
  }
  muster::test::for_each_seed(options, [&](std::uint64_t seed) {
    totals.add(seed, muster::sim::run_membership_seed(seed, options.is_alone, workers));
  });
  std::cout << options.seeds << " seeds from " << options.first << ": " << totals.messages
            << " messages";
  for (const auto& [name, count] : totals.events) std::cout << ", " << count << " " << name;
  std::cout << "\n";
  const bool is_enough =
      print(totals, options.least) && std::ranges::all_of(kEventsLeast, [&](const char* name) {
        return totals.events[name] >= static_cast<std::int64_t>(options.least);
      });
  muster::test::tell_failed(argv[0], totals.wrong);
  if (!is_enough) {
    std::cout << "FAILED: a fault was met, or came, fewer than " << options.least << " times\n";
  }
  return totals.wrong.empty() && is_enough ? 0 : 1;
}
