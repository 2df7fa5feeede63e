#include <setjmp.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda_on_host/cuda_runtime_api.h"

#if defined(__SANITIZE_ADDRESS__)
#define MUSTER_FIBERS_ARE_TOLD 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define MUSTER_FIBERS_ARE_TOLD 1
#endif
#endif
#ifdef MUSTER_FIBERS_ARE_TOLD
#include <sanitizer/common_interface_defs.h>
#endif

/// Work in its order.
struct CUstream_st {
  std::deque<std::function<void()>> queued;
  std::uint64_t done = 0;  ///< before the first in the queue
};
/// What stood on the stream when the event was recorded.
struct CUevent_st {
  CUstream_st* stream = nullptr;
  std::uint64_t last = 0;
};

namespace on_host {
namespace {

constexpr std::size_t kStackBytes = 128 << 10;
constexpr unsigned kWarp = 32;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "a kernel on the host: %s\n", what);
  std::abort();
}

/// Those who wait for each other; `round` goes up when all have come.
struct Barrier {
  unsigned members = 0, arrived = 0;
  std::uint64_t round = 0;
};

/// Where somebody left off.
struct Place {
  ucontext_t context{};
  jmp_buf left;
  bool is_begun = true;
};

/// Goes on at `to`, until somebody goes on at `from`. swapcontext asks the kernel for the mask of
/// signals each time, which takes most of the time there; but the sanitizer knows of no other.
[[gnu::noinline]] void go(Place& from, Place& to) {
#ifdef MUSTER_FIBERS_ARE_TOLD
  swapcontext(&from.context, &to.context);
#else
  if (_setjmp(from.left) != 0) return;
  if (to.is_begun) _longjmp(to.left, 1);
  to.is_begun = true;
  setcontext(&to.context);
#endif
}

struct Fiber {
  Place place;
  std::unique_ptr<std::byte[]> stack{new std::byte[kStackBytes]};
  unsigned thread = 0;  ///< that it is within, by number in the block
  Barrier* waits_for = nullptr;
  std::uint64_t round = 0;
  void* fake_stack = nullptr;
};

struct Warp {
  Barrier barrier;
  std::uint64_t places[kWarp] = {};
};

/// The block under way. A fiber runs threads one after another; where one waits, the next fiber
/// goes on with those that have not begun.
class Block {
 public:
  void run(dim3 size, std::uint64_t number, const std::function<void()>& body);
  void wait(Barrier& barrier);
  Barrier all;
  std::vector<Warp> warps;
  Fiber* current = nullptr;

 private:
  static void enter();
  static std::unique_ptr<Fiber> make_fiber();
  std::unique_ptr<Fiber> take();
  void loop();
  void resume(Fiber& fiber);
  void leave();
  void begin(unsigned thread);

  const std::function<void()>* body_ = nullptr;
  std::vector<unsigned> order_;
  std::size_t begun_ = 0, ended_ = 0;
  std::vector<std::unique_ptr<Fiber>> idle_, waiting_;
  Place scheduler_;
  void* fake_stack_ = nullptr;
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
};

thread_local Block block;

void Block::enter() {
  Block& self = block;
#ifdef MUSTER_FIBERS_ARE_TOLD
  __sanitizer_finish_switch_fiber(nullptr, &self.stack_, &self.stack_bytes_);
#endif
  for (;;) {
    self.loop();
    self.current->waits_for = nullptr;
    self.leave();
  }
}

void Block::begin(unsigned thread) {
  current->thread = thread;
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
               thread / blockDim.x / blockDim.y};
}

void Block::loop() {
  while (begun_ < order_.size()) {
    begin(order_[begun_++]);
    (*body_)();
    ++ended_;
  }
}

void Block::resume(Fiber& fiber) {
  current = &fiber;
#ifdef MUSTER_FIBERS_ARE_TOLD
  __sanitizer_start_switch_fiber(&fake_stack_, fiber.stack.get(), kStackBytes);
#endif
  go(scheduler_, fiber.place);
#ifdef MUSTER_FIBERS_ARE_TOLD
  __sanitizer_finish_switch_fiber(fake_stack_, nullptr, nullptr);
#endif
}

void Block::leave() {
  Fiber& self = *current;
#ifdef MUSTER_FIBERS_ARE_TOLD
  __sanitizer_start_switch_fiber(&self.fake_stack, stack_, stack_bytes_);
#endif
  go(self.place, scheduler_);
#ifdef MUSTER_FIBERS_ARE_TOLD
  __sanitizer_finish_switch_fiber(self.fake_stack, &stack_, &stack_bytes_);
#endif
}

void Block::wait(Barrier& barrier) {
  if (++barrier.arrived == barrier.members) {
    barrier.arrived = 0;
    ++barrier.round;
    return;
  }
  current->waits_for = &barrier;
  current->round = barrier.round;
  leave();
  begin(current->thread);
}

std::unique_ptr<Fiber> Block::make_fiber() {
  auto fiber = std::make_unique<Fiber>();
  ucontext_t& context = fiber->place.context;
  getcontext(&context);
  context.uc_stack = {fiber->stack.get(), 0, kStackBytes};
  context.uc_link = nullptr;
  makecontext(&context, &Block::enter, 0);
  fiber->place.is_begun = false;
  return fiber;
}

std::unique_ptr<Fiber> Block::take() {
  if (idle_.empty()) return make_fiber();
  std::unique_ptr<Fiber> fiber = std::move(idle_.back());
  idle_.pop_back();
  return fiber;
}

void Block::run(dim3 size, std::uint64_t number, const std::function<void()>& body) {
  const unsigned threads = size.x * size.y * size.z;
  if (threads == 0 || threads > 1024) fail("a block has 1 to 1024 threads");
  body_ = &body;
  order_.resize(threads);
  std::iota(order_.begin(), order_.end(), 0U);
  if (number % 3 == 1) std::reverse(order_.begin(), order_.end());
  if (number % 3 == 2) std::rotate(order_.begin(), order_.begin() + threads / 2, order_.end());
  begun_ = ended_ = 0;
  all = {threads, 0, 0};
  warps.assign((threads + kWarp - 1) / kWarp, {});
  for (unsigned w = 0; w < warps.size(); ++w) {
    warps[w].barrier.members = std::min(kWarp, threads - w * kWarp);
  }
  while (begun_ < threads) {
    std::unique_ptr<Fiber> fiber = take();
    resume(*fiber);
    (fiber->waits_for != nullptr ? waiting_ : idle_).push_back(std::move(fiber));
  }
  while (!waiting_.empty()) {
    bool is_stuck = true;
    auto now = std::move(waiting_);
    waiting_.clear();
    for (auto& fiber : now) {
      if (fiber->waits_for->round != fiber->round) {
        is_stuck = false;
        fiber->waits_for = nullptr;
        resume(*fiber);
      }
      (fiber->waits_for != nullptr ? waiting_ : idle_).push_back(std::move(fiber));
    }
    if (is_stuck) fail("threads wait at a barrier that others of the block or warp never reach");
  }
  if (ended_ != threads) fail("a thread was lost");
}

std::atomic<int> managed_access = 1, not_ready = 0;

struct Identity {
  std::mutex mutex;
  std::string name;
  int major = 0, minor = 0;

  Identity() {
    const char* const said = std::getenv(kDevice);
    read(said != nullptr ? said : kProcessor);
  }
  void read(const char* capability_and_name) {
    const std::lock_guard lock(mutex);
    std::istringstream words(capability_and_name);
    char dot = 0;
    words >> major >> dot >> minor >> std::ws;
    std::getline(words, name);
  }
};

Identity& identity() {
  static Identity of_device;
  return of_device;
}

std::atomic<cudaError_t> driver_error = cudaSuccess;
std::atomic<bool> has_failed = false;
std::atomic<std::size_t> set_by_device = 0, prefetched = 0, to_device = 0, to_host = 0, waits = 0;
/// As the runtime keeps it: until it is asked for.
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t keep(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

struct Memory {
  std::mutex mutex;
  std::map<const void*, std::size_t> sizes;
  std::size_t left = SIZE_MAX, total = kMemory;

  bool has(const void* address) {
    const std::lock_guard lock(mutex);
    const auto next = sizes.upper_bound(address);
    if (next == sizes.begin()) return false;
    const auto& [first, size] = *std::prev(next);
    return static_cast<const std::byte*>(address) < static_cast<const std::byte*>(first) + size;
  }
};

Memory& memory() {
  static Memory of_device;
  return of_device;
}

/// Those on which this thread has put something that is not done.
thread_local std::set<CUstream_st*> busy;

void put(CUstream_st* stream, std::function<void()> work) {
  stream->queued.push_back(std::move(work));
  busy.insert(stream);
}

/// Until `last` things that were put on the stream are done.
void do_until(CUstream_st* stream, std::uint64_t last) {
  while (!stream->queued.empty() && stream->done < last) {
    stream->queued.front()();
    stream->queued.pop_front();
    ++stream->done;
  }
  if (stream->queued.empty()) busy.erase(stream);
}

void wait_until(CUstream_st* stream, std::uint64_t last) {
  if (stream->done < last) ++waits;
  do_until(stream, last);
}

std::uint64_t last_of(const CUstream_st* stream) { return stream->done + stream->queued.size(); }

void do_all_of_thread() {
  while (!busy.empty()) do_until(*busy.begin(), last_of(*busy.begin()));
}

void run(dim3 blocks, dim3 threads, const std::function<void()>& body) {
  thread_local std::uint64_t launches = 0;
  ++launches;
  gridDim = blocks;
  blockDim = threads;
  for (unsigned z = 0; z < blocks.z; ++z) {
    for (unsigned y = 0; y < blocks.y; ++y) {
      for (unsigned x = 0; x < blocks.x; ++x) {
        blockIdx = {x, y, z};
        block.run(threads, launches + x, body);
      }
    }
  }
}

}  // namespace

void launch(cudaStream_t stream, dim3 blocks, dim3 threads, std::function<void()> body) {
  static const char* const fails = std::getenv(kFails);
  if (fails != nullptr && unlink(fails) == 0) has_failed = true;
  if (has_failed) return;
  put(stream, [blocks, threads, body = std::move(body)] { run(blocks, threads, body); });
}

Traffic traffic() { return {to_device, to_host, waits}; }
std::size_t under_way() {
  std::size_t all = 0;
  for (const CUstream_st* const stream : busy) all += stream->queued.size();
  return all;
}
void wait_for_block() { block.wait(block.all); }
void wait_for_warp() { block.wait(block.warps[block.current->thread / kWarp].barrier); }
unsigned lane() { return block.current->thread % kWarp; }
std::uint64_t& place_of(unsigned lane) {
  return block.warps[block.current->thread / kWarp].places[lane];
}
void set_device(const char* capability_and_name) { identity().read(capability_and_name); }
void set_managed_access(bool is_concurrent) { managed_access = is_concurrent ? 1 : 0; }
void set_driver_error(cudaError_t error) { driver_error = error; }
void set_not_ready(int queries) { not_ready = queries; }
std::size_t bytes_set() { return set_by_device; }
std::size_t bytes_prefetched() { return prefetched; }
void set_memory_left(std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().left = bytes;
}
void set_memory(std::size_t bytes) {
  const std::lock_guard lock(memory().mutex);
  memory().total = bytes;
}

}  // namespace on_host

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInsufficientDriver:
      return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorNotSupported:
      return "operation not supported";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
  }
  return "unknown error";
}

// The one there is may be hidden, as any other.
cudaError_t cudaGetDeviceCount(int* count) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const bool is_hidden = visible != nullptr && *visible == '\0';
  *count = is_hidden ? 0 : 1;
  if (on_host::driver_error != cudaSuccess) return on_host::keep(on_host::driver_error);
  return on_host::keep(is_hidden ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  if (device != 0) return on_host::keep(cudaErrorInvalidDevice);
  *value = on_host::managed_access;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int device) {
  if (device != 0) return on_host::keep(cudaErrorInvalidDevice);
  on_host::Identity& own = on_host::identity();
  const std::lock_guard lock(own.mutex);
  *found = {};
  own.name.copy(found->name, sizeof found->name - 1);
  found->major = own.major;
  found->minor = own.minor;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return on_host::keep(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  on_host::do_until(stream, on_host::last_of(stream));
  delete stream;
  return cudaSuccess;
}
// Who asks again and again is one who waits.
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (on_host::not_ready == 0) {
    on_host::wait_until(stream, on_host::last_of(stream));
    return cudaSuccess;
  }
  --on_host::not_ready;
  return on_host::keep(cudaErrorNotReady);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream, on_host::last_of(stream)};
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->stream != nullptr) on_host::wait_until(event->stream, event->last);
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  on_host::Memory& all = on_host::memory();
  const std::lock_guard lock(all.mutex);
  *total = all.total;
  *free = std::min(all.left, all.total);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  on_host::Memory& all = on_host::memory();
  const std::lock_guard lock(all.mutex);
  if (bytes > all.left) return on_host::keep(cudaErrorMemoryAllocation);
  *memory = std::malloc(bytes);
  if (*memory == nullptr) return on_host::keep(cudaErrorMemoryAllocation);
  // Not a number, so that who reads what it has not written is found out.
  std::memset(*memory, 0xFF, bytes);
  all.sizes[*memory] = bytes;
  if (all.left != SIZE_MAX) all.left -= bytes;
  return cudaSuccess;
}

cudaError_t cudaMallocManaged(void** memory, std::size_t bytes, unsigned) {
  return cudaMalloc(memory, bytes);
}

// Nobody uses it any more then.
cudaError_t cudaFree(void* memory) {
  on_host::do_all_of_thread();
  on_host::Memory& all = on_host::memory();
  const std::lock_guard lock(all.mutex);
  const auto found = all.sizes.find(memory);
  if (found == all.sizes.end()) on_host::fail("memory is freed that is not the device's");
  if (all.left != SIZE_MAX) all.left += found->second;
  all.sizes.erase(found);
  std::free(memory);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                            cudaStream_t stream) {
  const bool is_to_device = on_host::memory().has(to), is_from = on_host::memory().has(from);
  if (is_to_device && !is_from) on_host::to_device += bytes;
  if (is_from && !is_to_device) on_host::to_host += bytes;
  on_host::put(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  on_host::put(stream, [=] {
    std::memset(memory, value, bytes);
    on_host::set_by_device += bytes;
  });
  return cudaSuccess;
}

cudaError_t cudaMemPrefetchAsync(const void*, std::size_t bytes, cudaMemLocation, unsigned,
                                 cudaStream_t stream) {
  on_host::put(stream, [=] { on_host::prefetched += bytes; });
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = std::exchange(on_host::last_error, cudaSuccess);
  return on_host::has_failed ? cudaErrorLaunchFailure : error;  // a failed device stays so
}
