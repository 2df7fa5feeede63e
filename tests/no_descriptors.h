// A process that may open no more files, as where a limit is reached.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>

namespace muster::test {

/// No descriptor can be opened as long as it lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const rlimit none{0, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace muster::test
