// Runs seeds of the simulation: --seeds N (1000) from --first S (1) in --threads T (2), or --seed S
// alone. Fails when a rule was broken, and when some fault was tried fewer than --least N (20)
// times: a run that tried nothing proves nothing.
#include <atomic>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "common/log.h"
#include "tests/sim/simulation.h"

namespace {

using muster::sim::Coverage;
using muster::sim::SeedResult;

struct Options {
  std::uint64_t seeds = 1000, first = 1, threads = 2, least = 20;
};

struct Totals {
  std::mutex mutex;
  Coverage coverage;
  std::int64_t events = 0, operators = 0, restarts = 0;
  std::map<std::uint64_t, std::string> wrong;

  void add(std::uint64_t seed, const SeedResult& result) {
    const std::lock_guard lock(mutex);
    coverage.add(result.coverage);
    events += result.events;
    operators += result.operators;
    restarts += result.restarts;
    if (!result.wrong.empty()) wrong[seed] = result.wrong;
  }
};

void work(const Options& options, std::atomic<std::uint64_t>& next, Totals& totals) {
  while (true) {
    const std::uint64_t index = next++;
    if (index >= options.seeds) return;
    const std::uint64_t seed = options.first + index;
    totals.add(seed, muster::sim::run_seed(seed));
  }
}

/// One table; whether each of its numbers is large enough.
bool print(const std::map<std::string, std::array<std::int64_t, 3>>& table,
           const std::array<const char*, 3>& heads, const std::vector<std::string>& rows,
           std::uint64_t least) {
  bool enough = true;
  for (const auto& row : rows) {
    const auto found = table.find(row);
    std::cout << "  " << row << ":";
    for (std::size_t i = 0; i < heads.size(); ++i) {
      const std::int64_t count = found == table.end() ? 0 : found->second[i];
      std::cout << " " << heads[i] << " " << count;
      if (count < static_cast<std::int64_t>(least)) enough = false;
    }
    std::cout << "\n";
  }
  return enough;
}

bool read_options(int argc, char** argv, Options& options) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (flag == "--seeds") {
      options.seeds = value;
    } else if (flag == "--first") {
      options.first = value;
    } else if (flag == "--threads") {
      options.threads = value == 0 || value > 64 ? 1 : value;
    } else if (flag == "--least") {
      options.least = value;
    } else if (flag == "--seed") {
      options = {1, value, 1, 0};
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!read_options(argc, argv, options)) {
    std::cerr << "usage: sim_seeds [--seeds N] [--first S] [--threads T] [--least N] | --seed S\n";
    return 2;
  }
  muster::configure_log(options.seeds == 1 ? muster::LogLevel::kInfo : muster::LogLevel::kError,
                        {});
  Totals totals;
  std::atomic<std::uint64_t> next{0};
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < options.threads; ++i) {
    threads.emplace_back([&] { work(options, next, totals); });
  }
  for (auto& thread : threads) thread.join();
  std::cout << options.seeds << " seeds from " << options.first << ": " << totals.events
            << " events, " << totals.operators << " operators, " << totals.coverage.requests
            << " requests, " << totals.restarts << " restarts, " << totals.coverage.conflicts_made
            << " conflicts, " << totals.coverage.refused << " refused for quota\n";
  const bool writes = print(totals.coverage.writes, {"crash before", "crash after", "reply lost"},
                            {"create pods", "create services", "create events", "delete pods",
                             "patch trainingjobs/status", "delete trainingjobs"},
                            options.least);
  const bool views = print(totals.coverage.views, {"missed", "stale", "410"},
                           {"trainingjobs", "pods", "nodes"}, options.least);
  for (const auto& [seed, wrong] : totals.wrong) {
    std::cout << "FAILED seed " << seed << ": " << wrong << "\n  again with: " << argv[0]
              << " --seed " << seed << "\n";
  }
  if (!writes || !views) {
    std::cout << "FAILED: a fault was tried fewer than " << options.least << " times\n";
  }
  return totals.wrong.empty() && writes && views ? 0 : 1;
}
