// What programs that run many seeds of a simulation share: their options, threads and the way they
// tell which seed failed.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace muster::test {

/// A seed that once broke a rule, run before all others for ever. It means what it meant only while
/// the simulation draws the same: whoever changes that looks for new ones that show the same.
struct KeptSeed {
  std::uint64_t seed;
  const char* commit;  ///< that it was found upon
  const char* showed;
};

struct SeedOptions {
  std::uint64_t seeds = 0;  ///< how many, one after the other
  std::uint64_t first = 1;
  std::uint64_t threads = 2;
  std::uint64_t least = 20;  ///< how often each fault must have been met
  bool is_alone = false;     ///< --seed: one seed, to be looked at
};

/// Reads [--seeds N] [--first S] [--threads T] [--least N] | --seed S. Says the usage and is false
/// for anything else.
inline bool read_seed_options(int argc, char** argv, const char* program, SeedOptions& options) {
  bool is_right = argc % 2 == 1;
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
      options = {1, value, 1, 0, true};
    } else {
      is_right = false;
    }
  }
  if (!is_right) {
    std::cerr << "usage: " << program
              << " [--seeds N] [--first S] [--threads T] [--least N] | --seed S\n";
  }
  return is_right;
}

/// Keeps the calling thread, and those it makes, on one of the processors that it may have: threads
/// of a world take turns, and handing one to another processor costs more than many turns do.
inline void keep_to_one_processor(std::uint64_t number) {
  cpu_set_t allowed, one;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  std::vector<int> processors;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &allowed)) processors.push_back(i);
  }
  CPU_ZERO(&one);
  CPU_SET(processors[number % processors.size()], &one);
  static_cast<void>(sched_setaffinity(0, sizeof one, &one));  // it is slower without
}

/// Calls run(seed) for every seed, from several threads at once.
template <typename Run>
void for_each_seed(const SeedOptions& options, const Run& run) {
  std::atomic<std::uint64_t> next{0};
  std::vector<std::jthread> threads;
  for (std::uint64_t i = 0; i < options.threads; ++i) {
    threads.emplace_back([&, i] {
      keep_to_one_processor(i);
      for (std::uint64_t index = next++; index < options.seeds; index = next++) {
        run(options.first + index);
      }
    });
  }
}

/// Seeds that broke a rule, each with the command that runs it again; the first twenty.
inline void tell_failed(const char* program, const std::map<std::uint64_t, std::string>& wrong) {
  int told = 0;
  for (const auto& [seed, what] : wrong) {
    if (++told > 20) break;
    std::cout << "FAILED seed " << seed << ": " << what << "\n  again with: " << program
              << " --seed " << seed << "\n";
  }
  if (!wrong.empty()) std::cout << wrong.size() << " seeds failed\n";
}

}  // namespace muster::test
