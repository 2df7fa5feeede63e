// Runs seeds of the simulation: those that are kept, then --seeds N (1000) from --first S (1) in
// --threads T (2), or --seed S alone. Fails when a rule was broken, when some fault was tried fewer
// than --least N (20) times (a run that tried nothing proves nothing), when the operators kept
// descriptors, threads or memory, and when a log has a secret in it.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/log.h"
#include "tests/seeds.h"
#include "tests/sim/kept_seeds.h"
#include "tests/sim/simulation.h"

namespace {

using muster::sim::Coverage;
using muster::sim::SeedResult;

struct Totals {
  std::mutex mutex;
  Coverage coverage;
  std::int64_t events = 0, operators = 0, restarts = 0;
  std::int64_t two_led = 0;  ///< worlds in which clocks were too far apart for one leader
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
    elastic["placed as required"] += result.required;
    elastic["joined as required"] += result.required_joins;
    elastic["came to spare"] += result.spares;
    elastic["trained to spare"] += result.spares_joined;
    elastic["left, no more to spare"] += result.spares_left;
    elastic["nodes emptied"] += result.emptied;
    elastic["nodes not emptied"] += result.kept;
    elastic["worlds that elected"] += result.elected > 0 ? 1 : 0;
    two_led += result.elected > 1 ? 1 : 0;
    elastic["nodes lost under workers"] += result.lost;
    elastic["said to run in time"] += result.shown;
    if (!result.wrong.empty()) wrong[seed] = result.wrong;
  }
};

/// One table; whether each of its numbers is large enough.
template <std::size_t N>
bool print(const std::map<std::string, std::array<std::int64_t, N>>& table,
           const std::array<const char*, N>& heads, const std::vector<std::string>& rows,
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

/// Whether all that a run of seeds must have tried was tried often enough; prints how often.
bool print(const Totals& totals, std::uint64_t least) {
  bool enough = print(totals.coverage.writes, {"crash before", "crash after", "reply lost"},
                      {"create pods", "create services", "create events", "patch events",
                       "create poddisruptionbudgets", "patch poddisruptionbudgets",
                       "delete poddisruptionbudgets", "delete pods", "patch trainingjobs/status",
                       "delete trainingjobs", "patch trainingqueues/status", "create podgroups",
                       "create workloads", "create leases", "patch leases"},
                      least);
  enough &= print(
      totals.coverage.views, {"missed", "stale", "410", "repeated", "swapped"},
      {"trainingjobs", "pods", "nodes", "trainingqueues", "priorityclasses", "persistentvolumes",
       "persistentvolumeclaims", "topologyconfigs", "topologies.kueue.x-k8s.io",
       "topologies.kai.scheduler", "hypernodes", "workloads.kueue.x-k8s.io"},
      least);
  std::cout << "  workers:";
  for (const auto& [what, count] : totals.elastic) {
    std::cout << " " << what << " " << count;
    if (count < static_cast<std::int64_t>(least)) enough = false;
  }
  std::cout << " worlds in which two were elected " << totals.two_led << "\n";
  const auto conflicts = static_cast<std::uint64_t>(totals.coverage.conflicts_made);
  return enough && conflicts >= least;
}

/// What this process holds of the machine.
struct Held {
  std::ptrdiff_t descriptors = 0, threads = 0;
  std::size_t heap_bytes = 0;  ///< in use; 0 under a sanitizer, which looks for itself
};

Held held() {
  const auto count = [](const char* directory) {
    return std::distance(std::filesystem::directory_iterator(directory), {});
  };
  return {count("/proc/self/fd"), count("/proc/self/task"), mallinfo2().uordblks};
}

/// Of a run of any length: what the program itself keeps (totals, the log's buffers).
constexpr std::size_t kGrowthMost = 1 << 20;
/// So many seeds before the first count: libraries make on the first use what they keep.
constexpr std::uint64_t kWarmSeeds = 4;

/// Whether all is given back.
bool is_given_back(const Held& before, const Held& after) {
  std::cout << "  held before and after: descriptors " << before.descriptors << " "
            << after.descriptors << ", threads " << before.threads << " " << after.threads
            << ", heap KiB " << before.heap_bytes / 1024 << " " << after.heap_bytes / 1024 << "\n";
  return after.descriptors == before.descriptors && after.threads == before.threads &&
         after.heap_bytes <= before.heap_bytes + kGrowthMost;
}

/// Seeds whose log is written whole, into a file, and searched for what nobody may be told.
constexpr std::uint64_t kLoggedSeeds = 5;

bool tells_no_secret(std::uint64_t first) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), &std::fclose);
  const int real = dup(STDERR_FILENO);
  if (!file || real < 0 || dup2(fileno(file.get()), STDERR_FILENO) < 0) return false;
  muster::configure_log(muster::LogLevel::kDebug, {});
  std::vector<std::string> secrets;
  for (std::uint64_t i = 0; i < kLoggedSeeds; ++i) {
    const auto result = muster::sim::run_seed(first + i);
    secrets.insert(secrets.end(), result.secrets.begin(), result.secrets.end());
  }
  muster::configure_log(muster::LogLevel::kError, {});
  (void)dup2(real, STDERR_FILENO);
  (void)close(real);
  std::rewind(file.get());
  std::string log(1 << 16, ' '), all;
  while (const std::size_t bytes = std::fread(log.data(), 1, log.size(), file.get())) {
    all.append(log, 0, bytes);
  }
  const bool is_quiet = std::none_of(secrets.begin(), secrets.end(), [&](const auto& secret) {
    return all.find(secret) != std::string::npos;
  });
  std::cout << "  " << secrets.size() << " secrets looked for in " << all.size() / 1024
            << " KiB of log\n";
  return is_quiet && !secrets.empty() && all.find("\"a plan\"") != std::string::npos;
}

}  // namespace

int main(int argc, char** argv) {
  muster::test::SeedOptions options{.seeds = 1000};
  if (!muster::test::read_seed_options(argc, argv, "sim_seeds", options)) return 2;
  muster::configure_log(options.seeds == 1 ? muster::LogLevel::kInfo : muster::LogLevel::kError,
                        {});
  const muster::SystemClock clock;
  const auto began = clock.mono_now();
  Totals totals;
  const auto run = [&](std::uint64_t seed) { totals.add(seed, muster::sim::run_seed(seed)); };
  for (const muster::test::KeptSeed& kept : muster::sim::kKeptWorlds) {
    if (options.is_alone) break;
    SeedResult result = muster::sim::run_seed(kept.seed);
    if (!result.wrong.empty()) result.wrong += std::string(" (kept: ") + kept.showed + ")";
    totals.add(kept.seed, result);
  }
  const std::uint64_t warm = std::min(kWarmSeeds, options.seeds);
  for (std::uint64_t i = 0; i < warm; ++i) run(options.first + i);
  const Held before = held();
  auto rest = options;
  rest.first += warm;
  rest.seeds -= warm;
  muster::test::for_each_seed(rest, run);
  const Held after = held();
  std::cout << options.seeds << " seeds from " << options.first << ": " << totals.events
            << " events, " << totals.operators << " operators, " << totals.coverage.requests
            << " requests, " << totals.restarts << " restarts, " << totals.coverage.conflicts_made
            << " conflicts, " << totals.coverage.refused << " refused for quota\n";
  const bool enough = print(totals, options.least);
  const bool given_back = is_given_back(before, after);
  const bool quiet = options.is_alone || tells_no_secret(options.first);
  const auto took = std::chrono::duration_cast<muster::seconds>(clock.mono_now() - began);
  const auto took_at_least = std::max<std::uint64_t>(static_cast<std::uint64_t>(took.count()), 1);
  std::cout << "  took " << took.count() << " s: " << 60 * options.seeds / took_at_least
            << " seeds a minute\n";
  muster::test::tell_failed(argv[0], totals.wrong);
  if (!enough) std::cout << "FAILED: a fault was tried fewer than " << options.least << " times\n";
  if (!given_back) std::cout << "FAILED: something is held that was not held before\n";
  if (!quiet) std::cout << "FAILED: a secret stands in a log, or there was none to look at\n";
  return totals.wrong.empty() && enough && given_back && quiet ? 0 : 1;
}
