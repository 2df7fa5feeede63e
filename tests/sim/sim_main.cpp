// Runs seeds of the simulation: --seeds N (1000) from --first S (1) in --threads T (2), or --seed S
// alone. Fails when a rule was broken, and when some fault was tried fewer than --least N (20)
// times: a run that tried nothing proves nothing.
#include <iostream>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/log.h"
#include "tests/seeds.h"
#include "tests/sim/simulation.h"

namespace {

using muster::sim::Coverage;
using muster::sim::SeedResult;

struct Totals {
  std::mutex mutex;
  Coverage coverage;
  std::int64_t events = 0, operators = 0, restarts = 0;
  std::map<std::string, std::int64_t> elastic;
  std::map<std::uint64_t, std::string> wrong;

  void add(std::uint64_t seed, const SeedResult& result) {
    const std::lock_guard lock(mutex);
    coverage.add(result.coverage);
    events += result.events;
    operators += result.operators;
    restarts += result.restarts;
    elastic["replaced"] += result.replacements;
    elastic["resized"] += result.resizes;
    elastic["joined"] += result.joins;
    elastic["asked the witness"] += result.questions;
    elastic["told yes"] += result.granted;
    elastic["given by queues"] += result.queued;
    elastic["seen to borrow"] += result.borrowed;
    elastic["shrunk for others"] += result.shrinks;
    elastic["preempted"] += result.preemptions;
    elastic["came back after that"] += result.resumed;
    if (!result.wrong.empty()) wrong[seed] = result.wrong;
  }
};

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

}  // namespace

int main(int argc, char** argv) {
  muster::test::SeedOptions options{.seeds = 1000};
  if (!muster::test::read_seed_options(argc, argv, "sim_seeds", options)) return 2;
  muster::configure_log(options.seeds == 1 ? muster::LogLevel::kInfo : muster::LogLevel::kError,
                        {});
  Totals totals;
  muster::test::for_each_seed(
      options, [&](std::uint64_t seed) { totals.add(seed, muster::sim::run_seed(seed)); });
  std::cout << options.seeds << " seeds from " << options.first << ": " << totals.events
            << " events, " << totals.operators << " operators, " << totals.coverage.requests
            << " requests, " << totals.restarts << " restarts, " << totals.coverage.conflicts_made
            << " conflicts, " << totals.coverage.refused << " refused for quota\n";
  const bool writes =
      print(totals.coverage.writes, {"crash before", "crash after", "reply lost"},
            {"create pods", "create services", "create events", "patch events", "delete pods",
             "patch trainingjobs/status", "delete trainingjobs", "patch trainingqueues/status"},
            options.least);
  const bool views = print(totals.coverage.views, {"missed", "stale", "410"},
                           {"trainingjobs", "pods", "nodes", "trainingqueues"}, options.least);
  bool elastic = true;
  std::cout << "  workers:";
  for (const auto& [what, count] : totals.elastic) {
    std::cout << " " << what << " " << count;
    if (count < static_cast<std::int64_t>(options.least)) elastic = false;
  }
  std::cout << "\n";
  muster::test::tell_failed(argv[0], totals.wrong);
  if (!writes || !views || !elastic) {
    std::cout << "FAILED: a fault was tried fewer than " << options.least << " times\n";
  }
  return totals.wrong.empty() && writes && views && elastic ? 0 : 1;
}
