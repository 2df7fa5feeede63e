// What the sentinel learns about the machine: processor features and memory kills.
#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "worker/sentinel/cpu.h"
#include "worker/sentinel/memory.h"

using namespace muster::sentinel;

TEST_CASE("a processor with every feature lacks nothing") {
  CHECK(missing_cpu_features({~0U, ~0U, ~0U, ~std::uint64_t{0}}).empty());
  CHECK(describe_missing_cpu_features({}).empty());
}

TEST_CASE("each missing feature is named") {
  struct Case {
    CpuBits bits;
    const char* name;
  };
  const auto all = ~std::uint64_t{0};
  for (const Case& one : std::initializer_list<Case>{{{~(1U << 28), ~0U, ~0U, all}, "AVX"},
                                                     {{~0U, ~(1U << 5), ~0U, all}, "AVX2"},
                                                     {{~0U, ~(1U << 3), ~0U, all}, "BMI1"},
                                                     {{~0U, ~(1U << 8), ~0U, all}, "BMI2"},
                                                     {{~(1U << 29), ~0U, ~0U, all}, "F16C"},
                                                     {{~(1U << 12), ~0U, ~0U, all}, "FMA"},
                                                     {{~0U, ~0U, ~(1U << 5), all}, "LZCNT"},
                                                     {{~(1U << 22), ~0U, ~0U, all}, "MOVBE"}}) {
    CHECK(missing_cpu_features(one.bits) == std::vector<std::string>{one.name});
  }
  CHECK(missing_cpu_features({~0U, ~0U, ~0U, 2}).size() == 1);
  CHECK(describe_missing_cpu_features({"AVX2", "FMA"})
            .starts_with("this machine's processor lacks AVX2, FMA; muster-worker needs"));
}

TEST_CASE("memory is bounded by the machine and every control group above") {
  std::string root = "/tmp/muster-cgroup-XXXXXX";
  REQUIRE(mkdtemp(root.data()) != nullptr);
  const std::string unified = root + "/sys/fs/cgroup";
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(unified + "/pods/pod");
  std::filesystem::create_directories(unified + "/memory/a/b");
  CHECK(memory_limit(root) == -1);
  std::ofstream(root + "/proc/meminfo") << "Slab: 1 kB\nMemTotal:  4096 kB\nMemFree: 1 kB\n";
  CHECK(memory_limit(root) == 4096 * 1024);
  std::ofstream(root + "/proc/self/cgroup") << "0::/pods/pod\n";
  std::ofstream(unified + "/pods/pod/memory.max") << "max\n";
  CHECK(memory_limit(root) == 4096 * 1024);
  std::ofstream(unified + "/pods/memory.max") << "300000\n";
  CHECK(memory_limit(root) == 300000);
  std::ofstream(unified + "/pods/pod/memory.max") << "200000\n";
  CHECK(memory_limit(root) == 200000);
  // Inside a container the path leads nowhere, and the mount is the group.
  std::ofstream(root + "/proc/self/cgroup") << "0::/\n";
  std::ofstream(unified + "/memory.max") << "100000\n";
  CHECK(memory_limit(root) == 100000);
  std::ofstream(root + "/proc/self/cgroup") << "7:memory:/a/b\n";
  std::ofstream(unified + "/memory/a/memory.limit_in_bytes") << "50000\n";
  std::ofstream(unified + "/memory/a/b/memory.limit_in_bytes") << "9223372036854771712\n";
  CHECK(memory_limit(root) == 50000);
  std::filesystem::remove_all(root);
}

TEST_CASE("processors are bounded by the quota of every control group above") {
  std::string root = "/tmp/muster-cgroup-XXXXXX";
  REQUIRE(mkdtemp(root.data()) != nullptr);
  const std::string unified = root + "/sys/fs/cgroup";
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(unified + "/pods/pod");
  std::filesystem::create_directories(unified + "/cpu/a/b");
  CHECK(processor_limit(root) == -1);
  std::ofstream(root + "/proc/self/cgroup") << "0::/pods/pod\n";
  std::ofstream(unified + "/pods/pod/cpu.max") << "max 100000\n";
  CHECK(processor_limit(root) == -1);
  std::ofstream(unified + "/pods/cpu.max") << "150000 100000\n";
  CHECK(processor_limit(root) == 1.5);
  std::ofstream(unified + "/pods/pod/cpu.max") << "50000 100000\n";
  CHECK(processor_limit(root) == 0.5);
  std::ofstream(unified + "/pods/cpu.max") << "25000 100000\n";
  CHECK(processor_limit(root) == 0.25);
  std::ofstream(root + "/proc/self/cgroup") << "9:cpuset:/\n4:cpu,cpuacct:/a/b\n";
  std::ofstream(unified + "/cpu/a/cpu.cfs_quota_us") << "400000\n";
  std::ofstream(unified + "/cpu/a/cpu.cfs_period_us") << "100000\n";
  std::ofstream(unified + "/cpu/a/b/cpu.cfs_quota_us") << "-1\n";
  std::ofstream(unified + "/cpu/a/b/cpu.cfs_period_us") << "100000\n";
  CHECK(processor_limit(root) == 4);
  std::filesystem::remove_all(root);
}

TEST_CASE("more threads than a worker has processors for are told with both") {
  CHECK(describe_few_processors(-1, 64).empty());
  CHECK(describe_few_processors(4, 4).empty());
  CHECK(describe_few_processors(0.5, 1).empty());  // fewer than one thread there is not
  CHECK(describe_few_processors(1.5, 2).empty());
  const std::string said = describe_few_processors(1.5, 3);
  CHECK(said.starts_with("the worker's processes have 3 threads, but may use no more than 1500m"));
}

TEST_CASE("memory kills are counted in either version of control groups") {
  std::string root = "/tmp/muster-cgroup-XXXXXX";
  REQUIRE(mkdtemp(root.data()) != nullptr);
  std::filesystem::create_directories(root + "/proc/self");
  std::filesystem::create_directories(root + "/sys/fs/cgroup/pod");
  std::filesystem::create_directories(root + "/sys/fs/cgroup/memory");
  CHECK(count_memory_kills(root) == -1);
  std::ofstream(root + "/proc/self/cgroup") << "0::/pod\n";
  CHECK(count_memory_kills(root) == -1);
  std::ofstream(root + "/sys/fs/cgroup/pod/memory.events") << "low 0\noom 3\noom_kill 2\n";
  CHECK(count_memory_kills(root) == 2);
  std::ofstream(root + "/proc/self/cgroup") << "8:cpu:/x\n7:memory:/elsewhere\n";
  std::ofstream(root + "/sys/fs/cgroup/memory/memory.oom_control")
      << "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n";
  CHECK(count_memory_kills(root) == 5);
  std::filesystem::remove_all(root);
}
