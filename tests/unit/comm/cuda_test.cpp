// The seam to CUDA. Without a GPU: that it links, starts and says what is missing.
#include <doctest/doctest.h>

#include <cstdio>
#include <vector>

#include "common/contract.h"
#include "kernels/cuda/ops.h"
#include "tests/comm/collective_cases.h"
#include "tests/test_main.h"
#include "worker/comm/nccl_communicator.h"

using namespace muster;

namespace {

const SystemClock kClock;

}  // namespace

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
    kernels::cuda::Context gpu({rank});
    std::vector<std::byte> out(1'000'000);
    std::vector<std::byte> in(out.size());
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = test::payload(rank, peer, 1, i);
    void* device_out = gpu.allocate(out.size());
    void* device_in = gpu.allocate(in.size());
    gpu.put(device_out, out.data(), out.size());
    const comm::SendBuffer send{peer, device_out, out.size()};
    const comm::ReceiveBuffer receive{peer, device_in, in.size()};
    {
      MUSTER_ASSIGN_OR_RETURN(auto work,
                              nccl->start(1, comm::Memory::kCuda, {&send, 1}, {&receive, 1}));
      MUSTER_RETURN_IF_ERROR(work->wait(kClock.mono_now() + test::kPatience));
    }
    if (!gpu.fetch(gpu.keep_pace(), in.data(), device_in, in.size())) {
      return Error(ErrorCode::kInternal, gpu.finish());
    }
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
