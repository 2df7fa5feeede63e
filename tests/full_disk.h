// A disk without room, for one test.
#pragma once

#include <sys/resource.h>

#include <csignal>

#include "common/check.h"

namespace muster::test {

/// Files of this process cannot grow beyond `bytes` while it lives: what a full disk looks like.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    MUSTER_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace muster::test
