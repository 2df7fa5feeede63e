// Any bytes are read as an archive or refused in a sentence; no file is given whose name could
// leave its directory, and none gets more bytes than were announced.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "cli/tar_reader.h"
#include "common/check.h"

namespace {

class Checked final : public muster::cli::TarSink {
 public:
  muster::Status begin_file(const std::string& name, std::int64_t bytes) override {
    MUSTER_CHECK(left_ == 0);
    MUSTER_CHECK(!name.empty() && name.front() != '/');
    MUSTER_CHECK(("/" + name + "/").find("/../") == std::string::npos);
    MUSTER_CHECK(bytes >= 0 && bytes <= 65'536);
    left_ = bytes;
    return {};
  }
  muster::Status data(std::string_view piece) override {
    left_ -= static_cast<std::int64_t>(piece.size());
    MUSTER_CHECK(left_ >= 0);
    return {};
  }
  muster::Status end_file() override {
    MUSTER_CHECK(left_ == 0);
    return {};
  }

 private:
  std::int64_t left_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // The first byte says in which pieces the rest comes.
  const std::size_t piece = data[0] == 0 ? size : data[0];
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  Checked sink;
  muster::cli::TarReader reader(sink, 65'536);
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    const muster::Status fed = reader.feed(bytes.substr(at, piece));
    if (fed) continue;
    MUSTER_CHECK(!fed.error().message().empty());
    return 0;
  }
  (void)reader.finish();
  return 0;
}
