#include "common/descriptor_limit.h"

namespace muster {

std::uint64_t raise_descriptor_limit(rlimit* found) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (found != nullptr) *found = limit;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

}  // namespace muster
