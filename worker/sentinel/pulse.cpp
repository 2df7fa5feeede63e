#include "worker/sentinel/pulse.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <utility>

namespace muster::sentinel {

struct PulsePage {
  pthread_mutex_t life;
  std::atomic<std::uint64_t> beats{0};
  std::atomic<std::uint32_t> is_held{0};
  std::atomic<std::uint32_t> is_dead{0};
  std::atomic<std::uint32_t> is_evaluating{0};
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

namespace {

Error io_error(const char* what, int code) {
  return Error(ErrorCode::kIo, std::string(what) + ": " + std::strerror(code));
}

Result<PulsePage*> map_page(int fd) {
  void* at = mmap(nullptr, sizeof(PulsePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at == MAP_FAILED) return io_error("map the trainer's pulse", errno);
  return static_cast<PulsePage*>(at);
}

}  // namespace

Result<Pulse> Pulse::open(int fd) {
  auto page = map_page(fd);
  close(fd);
  if (!page) return page.error();
  const int wrong = pthread_mutex_trylock(&(*page)->life);
  if (wrong != 0) {
    munmap(*page, sizeof(PulsePage));
    return io_error("take the trainer's pulse", wrong);
  }
  (*page)->is_held = 1;
  return Pulse(*page);
}

// The lock stays taken and the page mapped until the process ends: that end is what it tells.
Pulse::~Pulse() = default;
Pulse::Pulse(Pulse&& other) noexcept : page_(other.page_) {}

void Pulse::beat() { page_->beats.fetch_add(1, std::memory_order_relaxed); }

void Pulse::set_evaluating(bool is_evaluating) {
  page_->is_evaluating.store(is_evaluating ? 1 : 0, std::memory_order_relaxed);
}

Result<std::unique_ptr<PulseMonitor>> PulseMonitor::make() {
  const int fd = memfd_create("muster-pulse", MFD_CLOEXEC);
  if (fd < 0) return io_error("memfd_create", errno);
  if (ftruncate(fd, sizeof(PulsePage)) != 0) {
    const int code = errno;
    close(fd);
    return io_error("size the trainer's pulse", code);
  }
  auto page = map_page(fd);
  if (!page) {
    close(fd);
    return page.error();
  }
  new (*page) PulsePage();
  pthread_mutexattr_t kind;
  pthread_mutexattr_init(&kind);
  pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
  const int wrong = pthread_mutex_init(&(*page)->life, &kind);
  pthread_mutexattr_destroy(&kind);
  std::unique_ptr<PulseMonitor> monitor(new PulseMonitor(fd, *page));
  if (wrong != 0) return io_error("make the trainer's pulse", wrong);
  return monitor;
}

PulseMonitor::~PulseMonitor() {
  munmap(page_, sizeof(PulsePage));
  close(fd_);
}

std::uint64_t PulseMonitor::beats() const { return page_->beats.load(std::memory_order_relaxed); }

bool PulseMonitor::is_evaluating() const {
  return page_->is_evaluating.load(std::memory_order_relaxed) != 0;
}

PulseMonitor::Life PulseMonitor::wait(milliseconds timeout) {
  if (page_->is_dead != 0) return Life::kDead;
  if (page_->is_held == 0) return Life::kNotYet;
  // Of the clock behind MonoTime: when the system's is set, nobody waits longer or shorter.
  const nanoseconds deadline = (SystemClock().mono_now() + timeout).time_since_epoch();
  const auto whole = std::chrono::duration_cast<seconds>(deadline);
  timespec until{};
  until.tv_sec = whole.count();
  until.tv_nsec = (deadline - whole).count();
  const int got = timeout.count() > 0
                      ? pthread_mutex_clocklock(&page_->life, CLOCK_MONOTONIC, &until)
                      : pthread_mutex_trylock(&page_->life);
  if (got == ETIMEDOUT || got == EBUSY) return Life::kAlive;
  // The holder's end left it to us, or (is_held is written after it is taken) it was let go.
  page_->is_dead = 1;
  if (got == EOWNERDEAD || got == 0) {
    if (got == EOWNERDEAD) (void)pthread_mutex_consistent(&page_->life);
    (void)pthread_mutex_unlock(&page_->life);
  }
  return Life::kDead;
}

}  // namespace muster::sentinel
