// The context of a device: memory, errors, and the table of its operations.
#include <algorithm>
#include <string>

#include "kernels/memory.h"
#include "kernels/operations.h"
#include "tests/unit/cuda/cases.h"

#ifdef MUSTER_CUDA_ON_HOST
#include "cuda_runtime_api.h"
#endif

using namespace muster;
using namespace muster::test;
namespace cpu = kernels::cpu;
namespace cuda = kernels::cuda;

TEST_CASE("a context of a device that is not there says so and does nothing") {
  cuda::Context context({cuda::device_count()});
  void* const memory = context.allocate(16);
  std::memset(memory, 0, 16);  // the host's, in its place
  cuda::scale(context, 4, 0.5F, nullptr);
  CHECK(context.finish() != nullptr);
  context.release(memory);
}

TEST_CASE("what failed on this thread before is no error of the next context") {
  if (!has_gpu("a context after one that failed")) return;
  CHECK(cuda::Context({cuda::device_count()}).finish() != nullptr);
  cuda::Context context;
  DeviceFloats x(context, {1.0F, 2.0F});
  // Both live: an error of one is not the other's either.
  cuda::Context another({cuda::device_count()});
  context.operations().scale(context, 2, 0.5F, x.data());
  CHECK(x.values() == Floats{0.5F, 1.0F});
}

#ifdef MUSTER_CUDA_ON_HOST
TEST_CASE("why there is no device is told in CUDA's words, and is no error of a context") {
  CHECK(cuda::why_no_device() == nullptr);
  on_host::set_driver_error(cudaErrorInsufficientDriver);
  CHECK(cuda::device_count() == 0);
  CHECK(cuda::why_no_device() ==
        std::string("CUDA driver version is insufficient for CUDA runtime version"));
  on_host::set_driver_error(cudaSuccess);
  CHECK(cuda::device_count() == 1);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("a device older than the kernels is refused by its name") {
  on_host::set_device("8.6 NVIDIA A10");
  CHECK(cuda::Context().finish() == std::string("the GPU (NVIDIA A10) has compute capability 8.6"));
  on_host::set_device("10.0 NVIDIA B200");
  CHECK(cuda::Context().finish() == nullptr);
  on_host::set_device(on_host::kProcessor);
  CHECK(cuda::Context().finish() == nullptr);
}

TEST_CASE("of devices that are known by name it is known what they can do at most") {
  const auto most = [](const char* device) {
    on_host::set_device(device);
    const kernels::DeviceFacts facts = cuda::Context().facts();
    on_host::set_device(on_host::kProcessor);
    CHECK(std::string(device).ends_with(" " + facts.name));
    return facts.flops_most;
  };
  CHECK(most("9.0 NVIDIA H100 80GB HBM3") == 989e12);
  CHECK(most("9.0 NVIDIA H200") == 989e12);
  CHECK(most("9.0 NVIDIA H100 PCIe") == 756e12);
  CHECK(most("9.0 NVIDIA H200 NVL") == 835e12);
  CHECK(most("9.0 NVIDIA H100 80GB HBM3 MIG 1g.10gb") == 0);
  CHECK(most("10.0 NVIDIA B200") == 0);
  CHECK(cpu::Context(1).facts().name.empty());
}

TEST_CASE("a device whose memory the host reaches at times alone is refused in words") {
  on_host::set_managed_access(false);
  const std::string said = cuda::Context().finish();
  on_host::set_managed_access(true);
  CHECK(said.starts_with("the host may not reach the device's memory while that computes"));
}

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

/// What one of some processes may have of a device on which so much is unused.
std::size_t memory_of_process(int processes, std::size_t total, std::size_t unused) {
  on_host::set_memory(total);
  on_host::set_memory_left(unused);
  const std::size_t most = cuda::Context({0, processes}).memory_most();
  on_host::set_memory_left(SIZE_MAX);
  on_host::set_memory(on_host::kMemory);
  return most;
}

}  // namespace

TEST_CASE("each process of a device leaves its part to CUDA, or all a sixteenth together") {
  CHECK(memory_of_process(1, 1024 * kMiB, SIZE_MAX) == 512 * kMiB);
  CHECK(memory_of_process(4, 8192 * kMiB, SIZE_MAX) == (8192 - 4 * 512) / 4 * kMiB);
  CHECK(memory_of_process(1, 81920 * kMiB, SIZE_MAX) == (81920 - 5120) * kMiB);
  CHECK(memory_of_process(4, 81920 * kMiB, SIZE_MAX) == (81920 - 5120) / 4 * kMiB);
  CHECK(memory_of_process(3, 1024 * kMiB, SIZE_MAX) == 1);
}

TEST_CASE("a process gets no more than what others have left of the device's memory") {
  const std::size_t own = (81920 - 5120) / 2 * kMiB;
  // Who begins last, when the other has its share, and CUDA and scratch what is kept for them.
  CHECK(memory_of_process(2, 81920 * kMiB, 81920 * kMiB - own - 4 * 512 * kMiB) == own);
  CHECK(memory_of_process(2, 81920 * kMiB, 20000 * kMiB) == (20000 - 512) * kMiB);
  for (const std::size_t unused : {std::size_t{0}, 512 * kMiB}) {
    CHECK(memory_of_process(2, 81920 * kMiB, unused) == 1);
  }
}

TEST_CASE("a process gets its share of the device's memory and no more") {
  on_host::set_memory(1028 * kMiB);
  cuda::Context context({0, 2});
  CHECK(context.memory_most() == 2 * kMiB);
  void* const first = context.allocate(kMiB);
  void* const second = context.allocate(kMiB);
  CHECK(context.memory_held() == 2 * kMiB);
  CHECK(context.finish() == nullptr);
  context.release(first);
  void* const third = context.allocate(kMiB);
  CHECK(context.finish() == nullptr);
  void* const refused = context.allocate(kMiB);
  REQUIRE(context.finish() != nullptr);
  CHECK(context.finish() == std::string("out of memory: 3 MiB are wanted, and this process may "
                                        "have 2 MiB of the device's, beside what others have"));
  for (void* const memory : {second, third, refused}) context.release(memory);
  CHECK(context.memory_held() == 0);
  on_host::set_memory(on_host::kMemory);
}

TEST_CASE("that a device is not ready at once is no error") {
  cuda::Context context;
  for (const int queries : {1, 1'000'000}) {
    on_host::set_not_ready(queries);
    CHECK(context.finish() == nullptr);
    on_host::set_not_ready(0);
    DeviceFloats x(context, {1.0F});
    context.operations().scale(context, 1, 0.5F, x.data());
    CHECK(x.values() == Floats{0.5F});
  }
}

TEST_CASE("a device makes its memory zero itself, with signs of life") {
  cuda::Context context;
  std::size_t signs = 0;
  context.set_on_alive([&] { ++signs; });
  const std::size_t before = on_host::bytes_set(), given = on_host::bytes_prefetched();
  const kernels::Memory<float> memory(context, 1000);
  CHECK(on_host::bytes_set() - before == 4000);
  CHECK(on_host::bytes_prefetched() - given == 4000);
  CHECK(signs == 1);
  CHECK(std::ranges::count(memory.span(), 0.0F) == 1000);
}

TEST_CASE("what is fetched is of the part asked for, and later ones go on meanwhile") {
  cuda::Context context;
  const kernels::Operations& on = context.operations();
  DeviceFloats x(context, {8.0F, 4.0F}), y(context, {1.0F, 1.0F}), z(context, {0.0F, 0.0F});
  on.scale(context, 2, 0.5F, x.data());
  const std::uint64_t part = context.keep_pace();
  on.scale(context, 2, 0.5F, y.data());
  context.copy(z.data(), y.data(), 2 * sizeof(float));
  const std::size_t later = on_host::under_way();
  Floats fetched(2);
  CHECK(later == 3);
  CHECK(context.fetch(part, fetched.data(), x.data(), 2 * sizeof(float)));
  CHECK(fetched == Floats{4.0F, 2.0F});
  CHECK(on_host::under_way() == 2);
  const Floats given{3.0F, 5.0F};
  context.put(x.data(), given.data(), 2 * sizeof(float));
  CHECK(on_host::under_way() == 2);
  CHECK(z.values() == Floats{0.5F, 0.5F});
  CHECK(x.values() == given);
  // Long complete.
  CHECK(context.fetch(part, fetched.data(), y.data(), 2 * sizeof(float)));
  CHECK(fetched == Floats{0.5F, 0.5F});
}

TEST_CASE("a device that has failed fetches nothing, and says so") {
  cuda::Context context({cuda::device_count()});
  const Floats memory{1.0F};
  Floats fetched{2.0F};
  CHECK_FALSE(context.fetch(context.keep_pace(), fetched.data(), memory.data(), sizeof(float)));
  CHECK(fetched[0] == 2.0F);
}

TEST_CASE("where the device has no memory left the host's is given, and finish says so") {
  cuda::Context context;
  void* const first = context.allocate(1000);
  on_host::set_memory_left(100);
  void* const second = context.allocate(1000);
  std::memset(second, 1, 1000);
  REQUIRE(context.finish() != nullptr);
  CHECK(context.finish() == std::string("out of memory"));
  context.release(second);
  context.release(first);
  on_host::set_memory_left(SIZE_MAX);
}
#endif

TEST_CASE("a table has an operation for each name, of each kind of device") {
  if (!has_gpu("a table of operations")) return;
  cuda::Context gpu;
  cpu::Context host;
  Rng rng(seed());
  const Floats a = some(rng, 1000), b = some(rng, 1000);
  DeviceFloats x(gpu, a), y(gpu, b);
  Floats expected(a.size());
  host.operations().add(host, a.size(), a.data(), b.data(), expected.data());
  gpu.operations().add(gpu, a.size(), x.data(), y.data(), x.data());
  CHECK(different(x.values(), expected) == 0);
}
