// Any bytes are read as a kubeconfig or refused in one line that begins with the file's name.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "operator/kube/kubeconfig.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto access = muster::kube::parse_kubeconfig(text, "fuzz", "/nowhere");
  if (!access) {
    MUSTER_CHECK(access.error().message().starts_with("fuzz:"));
    MUSTER_CHECK(access.error().exit_code() == 2);
    return 0;
  }
  MUSTER_CHECK(!access->transport.url.empty());
  MUSTER_CHECK(access->transport.token.find_first_of("\r\n") == std::string::npos);
  return 0;
}
