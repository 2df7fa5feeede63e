// The seam to CUDA. Without a GPU: that it links, starts and says what is missing.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstring>
#include <vector>

#include "common/contract.h"
#include "common/rng.h"
#include "kernels/cuda/ops.h"
#include "kernels/ops.h"
#include "tests/comm/collective_cases.h"
#include "tests/test_main.h"
#include "worker/comm/nccl_communicator.h"

using namespace muster;

namespace {

const SystemClock kClock;

bool has_gpu(const char* what) {
  if (kernels::cuda::device_count() > 0) return true;
  std::printf("skipped: %s needs a GPU, and there is none\n", what);
  return false;
}

std::vector<float> some_floats(Rng& rng, std::size_t n) {
  std::vector<float> values(n);
  for (float& value : values) {
    // Any bits, so that denormals, infinities and signed zeros come up; NaN payloads may differ.
    const auto bits = static_cast<std::uint32_t>(rng());
    std::memcpy(&value, &bits, sizeof value);
    if (value != value) value = 0.0f;
  }
  return values;
}

}  // namespace

TEST_CASE("momentum on the GPU gives the bits of the CPU") {
  if (!has_gpu("sgd_momentum")) return;
  Rng rng(test::seed());
  kernels::cuda::Context gpu;
  kernels::cpu::Context cpu;
  for (const std::size_t n : {1u, 255u, 256u, 257u, 100'003u}) {
    const std::vector<float> g = some_floats(rng, n);
    std::vector<float> v = some_floats(rng, n);
    std::vector<float> w = some_floats(rng, n);
    const std::size_t bytes = n * sizeof(float);
    auto* device_g = static_cast<float*>(gpu.allocate(bytes));
    auto* device_v = static_cast<float*>(gpu.allocate(bytes));
    auto* device_w = static_cast<float*>(gpu.allocate(bytes));
    gpu.copy_to_device(device_g, g.data(), bytes);
    gpu.copy_to_device(device_v, v.data(), bytes);
    gpu.copy_to_device(device_w, w.data(), bytes);

    kernels::cuda::sgd_momentum(gpu, n, {0.1f, 0.9f, 0.3f}, device_g, device_v, device_w);
    kernels::cpu::sgd_momentum(cpu, n, {0.1f, 0.9f, 0.3f}, g.data(), v.data(), w.data());

    std::vector<float> got_v(n);
    std::vector<float> got_w(n);
    gpu.copy_to_host(got_v.data(), device_v, bytes);
    gpu.copy_to_host(got_w.data(), device_w, bytes);
    for (float* memory : {device_g, device_v, device_w}) gpu.release(memory);
    const char* error = gpu.finish();
    REQUIRE_MESSAGE(error == nullptr, error);
    std::size_t different = 0;
    for (std::size_t i = 0; i < n; ++i) {
      different += (got_v[i] == got_v[i] || v[i] == v[i]) && std::memcmp(&got_v[i], &v[i], 4) != 0;
      different += (got_w[i] == got_w[i] || w[i] == w[i]) && std::memcmp(&got_w[i], &w[i], 4) != 0;
    }
    CHECK(different == 0);
  }
}

TEST_CASE("a context of a device that is not there says so and does nothing") {
  kernels::cuda::Context context(kernels::cuda::device_count());
  CHECK(context.allocate(16) == nullptr);
  kernels::cuda::sgd_momentum(context, 4, {}, nullptr, nullptr, nullptr);
  CHECK(context.finish() != nullptr);
}

TEST_CASE("NCCL on a device that is not there is unsupported, with the exit code for devices") {
  auto hosts = comm::make_local_communicators(1, kClock);
  const auto made =
      comm::make_nccl_communicator({.host = hosts[0].get(),
                                    .device = kernels::cuda::device_count(),
                                    .connect_deadline = kClock.mono_now() + seconds(60),
                                    .clock = &kClock});
  REQUIRE_FALSE(made);
  CHECK(made.error().code() == ErrorCode::kUnsupported);
  CHECK(made.error().exit_code() == contract::exit_code::kDevice);
}

TEST_CASE("NCCL carries an all-to-all between two GPUs, and a lost rank ends it") {
  if (kernels::cuda::device_count() < 2) {
    std::printf("skipped: NCCL between ranks needs two GPUs\n");
    return;
  }
  auto hosts = comm::make_local_communicators(2, kClock);
  const auto results = test::on_all(2, [&](int rank) -> Status {
    const int peer = 1 - rank;
    MUSTER_ASSIGN_OR_RETURN(auto nccl, comm::make_nccl_communicator(
                                           {.host = hosts[static_cast<std::size_t>(rank)].get(),
                                            .device = rank,
                                            .connect_deadline = kClock.mono_now() + test::kPatience,
                                            .clock = &kClock}));
    kernels::cuda::Context gpu(rank);
    std::vector<std::byte> out(1'000'000);
    std::vector<std::byte> in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = test::payload(rank, peer, 1, i);
    void* device_out = gpu.allocate(out.size());
    void* device_in = gpu.allocate(in.size());
    gpu.copy_to_device(device_out, out.data(), out.size());
    const comm::SendBuffer send{peer, device_out, out.size()};
    const comm::ReceiveBuffer receive{peer, device_in, in.size()};
    {
      MUSTER_ASSIGN_OR_RETURN(auto work,
                              nccl->start(1, comm::Memory::kCuda, {&send, 1}, {&receive, 1}));
      MUSTER_RETURN_IF_ERROR(work->wait(kClock.mono_now() + test::kPatience));
    }
    gpu.copy_to_host(in.data(), device_in, in.size());
    if (gpu.finish() != nullptr) return Error(ErrorCode::kInternal, gpu.finish());
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i] != test::payload(peer, rank, 1, i)) return Error(ErrorCode::kInternal, "bytes");
    }
    // Nobody sends the second time.
    MUSTER_ASSIGN_OR_RETURN(auto lost, nccl->start(2, comm::Memory::kCuda, {}, {&receive, 1}));
    const Status late = lost->wait(kClock.mono_now() + milliseconds(200));
    return late ? Status(Error(ErrorCode::kInternal, "nobody sent")) : Status();
  });
  for (const Status& result : results) CHECK_MESSAGE(result, test::text_of(result));
}
