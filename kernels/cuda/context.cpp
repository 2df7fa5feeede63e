#include "kernels/cuda/context.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <string>

#include "kernels/cuda/known_devices.h"

namespace muster::kernels::cuda {
namespace {

/// Of the device's memory, for CUDA itself and scratch(): so much for each process, and at least
/// that share of all.
constexpr std::size_t kReserveLeast = std::size_t{512} << 20, kReserveShare = 16;

/// Whether all is done: some 0.1 ms.
constexpr int kQueries = 100;
/// Between two signs of life.
constexpr std::size_t kZeroedAtOnce = std::size_t{256} << 20;

cudaError_t count_devices(int& count) {
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());  // no operation's
  return error == cudaSuccess && count == 0 ? cudaErrorNoDevice : error;
}

std::string mebibytes(std::size_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

/// a - b, or 0.
std::size_t left(std::size_t a, std::size_t b) { return a > b ? a - b : 0; }

/// Of a device with so much memory, of which others and CUDA have left `unused`. Processes that
/// begin at once find different amounts; those that begin late have theirs, where nobody else has
/// taken it.
std::size_t share_of_memory(std::size_t unused, std::size_t total, std::size_t processes) {
  const std::size_t reserve = std::max(kReserveLeast * processes, total / kReserveShare);
  const std::size_t own = left(total, reserve) / processes;
  return std::max<std::size_t>(1, std::min(own, left(unused, kReserveLeast)));
}

}  // namespace

int device_count() {
  int count = 0;
  return count_devices(count) == cudaSuccess ? count : 0;
}

const char* why_no_device() {
  int count = 0;
  const cudaError_t error = count_devices(count);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

Context::Context(DeviceShare share, Products products)
    : kernels::Context(products), impl_(std::make_unique<Impl>()) {
  // What others have left on this thread is not this context's.
  static_cast<void>(cudaGetLastError());
  impl_->open(share);
}

void Context::Impl::open(const DeviceShare& share) {
  place.type = cudaMemLocationTypeDevice;
  place.id = share.device;
  cudaDeviceProp found{};
  int is_shared = 0;
  note(cudaGetDeviceProperties(&found, share.device));
  note(cudaDeviceGetAttribute(&is_shared, cudaDevAttrConcurrentManagedAccess, share.device));
  facts = {found.name, peak_flops(found.name)};
  if (found.major < kCapability) {
    refuse(cudaErrorNoKernelImageForDevice, "the GPU (" + facts.name + ") has compute capability " +
                                                std::to_string(found.major) + "." +
                                                std::to_string(found.minor));
  }
  if (is_shared == 0) {
    refuse(cudaErrorNotSupported,
           "the host may not reach the device's memory while that computes "
           "(concurrentManagedAccess is 0, as under WSL and on some virtual GPUs)");
  }
  if (first_error == cudaSuccess) note(cudaSetDevice(share.device));
  for (cudaStream_t* const one : {&stream, &copying}) {
    if (first_error == cudaSuccess) note(cudaStreamCreateWithFlags(one, cudaStreamNonBlocking));
  }
  // Who waits for one takes no processor meanwhile.
  const auto create = [this](cudaEvent_t& event) {
    if (first_error != cudaSuccess) return;
    note(cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming));
  };
  for (cudaEvent_t& part : parts) create(part);
  create(copied);
  std::size_t unused = 0, total = 0;
  if (first_error == cudaSuccess) note(cudaMemGetInfo(&unused, &total));
  if (first_error != cudaSuccess) return;
  most = share_of_memory(unused, total, static_cast<std::size_t>(std::max(1, share.processes)));
}

// Nobody is left to tell of an error here; outputs that matter were fetched after finish().
Context::~Context() {
  for (const cudaEvent_t part : impl_->parts) {
    if (part != nullptr) static_cast<void>(cudaEventDestroy(part));
  }
  if (impl_->copied != nullptr) static_cast<void>(cudaEventDestroy(impl_->copied));
  if (impl_->scratch != nullptr) static_cast<void>(cudaFree(impl_->scratch));
  for (const cudaStream_t one : {impl_->stream, impl_->copying}) {
    if (one != nullptr) static_cast<void>(cudaStreamDestroy(one));
  }
}

/// Only what a device has done is a sign of life: who waits for one that hangs gives none, and is
/// ended as any other process that hangs.
void Context::await_part() {
  Impl& impl = *impl_;
  impl.note(cudaEventSynchronize(impl.parts[impl.oldest]));
  impl.oldest = (impl.oldest + 1) % impl.parts.size();
  --impl.behind;
  if (impl.first_error == cudaSuccess) tell_alive();
}

std::uint64_t Context::keep_pace() {
  Impl& impl = *impl_;
  if (impl.first_error == cudaSuccess && impl.behind == impl.parts.size()) await_part();
  if (impl.first_error != cudaSuccess) return impl.ended;
  impl.note(
      cudaEventRecord(impl.parts[(impl.oldest + impl.behind) % impl.parts.size()], impl.stream));
  ++impl.behind;
  return ++impl.ended;
}

void Context::await_all() {
  while (impl_->first_error == cudaSuccess && impl_->behind > 0) await_part();
  if (impl_->first_error == cudaSuccess) impl_->await(impl_->stream, impl_->parts[impl_->oldest]);
}

// Most are moments, for which it takes too long to fall asleep; no processor is kept for the
// others.
void Context::Impl::await(cudaStream_t all_of, cudaEvent_t event) {
  for (int i = 0; i < kQueries; ++i) {
    const cudaError_t state = cudaStreamQuery(all_of);
    if (state != cudaErrorNotReady) return note(state);
    static_cast<void>(cudaGetLastError());  // that it is not ready is none
  }
  note(cudaEventRecord(event, all_of));
  if (first_error == cudaSuccess) note(cudaEventSynchronize(event));
}

const char* Context::finish() {
  await_all();
  if (impl_->first_error == cudaSuccess) return nullptr;
  return impl_->words.empty() ? cudaGetErrorString(impl_->first_error) : impl_->words.c_str();
}

void* Context::allocate(std::size_t bytes) {
  bytes = std::max<std::size_t>(bytes, 1);
  void* const memory = impl_->allocate_of_device(bytes);
  return memory != nullptr ? memory : impl_->allocate_of_host(bytes);
}

// Managed memory: pages go where they are used, and the host may fill in a batch's rows. What only
// the device uses stays on it, which more than it has could not.
void* Context::Impl::allocate_of_device(std::size_t bytes) {
  if (first_error != cudaSuccess) return nullptr;
  if (bytes > most - held) {
    refuse(cudaErrorMemoryAllocation,
           "out of memory: " + mebibytes(bytes + held) + " are wanted, and this process may have " +
               mebibytes(most) + " of the device's, beside what others have");
    return nullptr;
  }
  void* memory = nullptr;
  note(cudaMallocManaged(&memory, bytes, cudaMemAttachGlobal));
  if (first_error != cudaSuccess) return nullptr;
  of_device[memory] = bytes;
  held += bytes;
  return memory;
}

// Nobody computes with it: pages that are not touched are not taken.
void* Context::Impl::allocate_of_host(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  of_host[memory] = bytes;
  return memory;
}

void Context::release(void* memory) {
  if (memory == nullptr) return;
  if (const auto host = impl_->of_host.find(memory); host != impl_->of_host.end()) {
    munmap(memory, host->second);
    impl_->of_host.erase(host);
    return;
  }
  if (const auto found = impl_->of_device.find(memory); found != impl_->of_device.end()) {
    impl_->held -= found->second;
    impl_->of_device.erase(found);
  }
  impl_->note(cudaFree(memory));
}

DeviceFacts Context::facts() const { return impl_->facts; }

std::size_t Context::memory_most() const { return impl_->most; }
std::size_t Context::memory_held() const { return impl_->held; }

// By the device, which is to have the pages: it is given them before, because with one touch after
// the other it takes far longer for them than for their bits.
void Context::zero(void* memory, std::size_t bytes) {
  Impl& impl = *impl_;
  auto* const all = static_cast<std::byte*>(memory);
  for (std::size_t done = 0; done < bytes && impl.first_error == cudaSuccess;
       done += kZeroedAtOnce) {
    const std::size_t some = std::min(kZeroedAtOnce, bytes - done);
    impl.note(cudaMemPrefetchAsync(all + done, some, impl.place, 0, impl.stream));
    impl.note(cudaMemsetAsync(all + done, 0, some, impl.stream));
    keep_pace();
  }
  await_all();
}

void Context::copy(void* to, const void* from, std::size_t bytes) {
  if (impl_->first_error != cudaSuccess || bytes == 0) return;
  impl_->note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, impl_->stream));
}

void Context::Impl::copy_beside(void* to, const void* from, std::size_t bytes) {
  if (first_error != cudaSuccess || bytes == 0) return;
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copying));
  if (first_error == cudaSuccess) await(copying, copied);
}

void Context::put(void* to, const void* from, std::size_t bytes) {
  impl_->copy_beside(to, from, bytes);
}

// The host waits for the part itself, not the other stream for it: each part is a sign of life.
bool Context::fetch(std::uint64_t part, void* to, const void* from, std::size_t bytes) {
  Impl& impl = *impl_;
  while (impl.first_error == cudaSuccess && impl.behind > 0 && part > impl.ended - impl.behind) {
    await_part();
  }
  impl.copy_beside(to, from, bytes);
  return impl.first_error == cudaSuccess;
}

float* scratch(Context& context, std::size_t count) {
  Context::Impl& impl = context.impl();
  const std::size_t bytes = count * sizeof(float);
  if (impl.first_error == cudaSuccess && bytes > impl.scratch_bytes) {
    // cudaFree waits for whoever uses it still.
    if (impl.scratch != nullptr) impl.note(cudaFree(impl.scratch));
    impl.scratch = nullptr;
    impl.scratch_bytes = 0;
    impl.note(cudaMalloc(&impl.scratch, bytes));
    if (impl.first_error == cudaSuccess) impl.scratch_bytes = bytes;
  }
  return impl.first_error == cudaSuccess ? static_cast<float*>(impl.scratch) : nullptr;
}

}  // namespace muster::kernels::cuda
