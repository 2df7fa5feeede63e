// Lines of a watch stream, each line of the input one; with an odd number of bytes the first stream
// begins with a list. Whatever a server sends, the watcher never moves back, hands on only objects
// with a version, ends no list that has not begun, and asks for something that makes sense.
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "common/check.h"
#include "operator/kube/watcher.h"
#include "tests/fuzz/cut.h"

using namespace muster;

namespace {

void check_request(const kube::Watcher& watcher, MonoTime now) {
  const auto request = watcher.next(now);
  if (const auto* watch = std::get_if<kube::WatchRequest>(&request)) {
    MUSTER_CHECK(watch->resource_version.empty() == watch->begins_with_list);
  } else if (const auto* wait = std::get_if<kube::WaitRequest>(&request)) {
    MUSTER_CHECK(wait->until > now && wait->until <= now + seconds(30));
  }
}

/// Lists an empty collection until the watcher wants to watch, then opens the watch; or opens one
/// that begins with a list: then true.
bool open(kube::Watcher& watcher, MonoTime& now) {
  bool is_listing = false;
  for (int i = 0; i < 3 && !watcher.streaming(); ++i) {
    now += seconds(31);
    if (std::holds_alternative<kube::ListRequest>(watcher.next(now))) {
      kube::ListPage page;
      page.resource_version = "10";
      (void)watcher.on_list(now, std::move(page));
    }
    is_listing = !watcher.on_watch_opened(now, {}).empty();
  }
  MUSTER_CHECK(watcher.streaming());
  return is_listing;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  using Type = kube::WatchEvent::Type;
  kube::WatcherOptions options;
  options.streams_lists = size % 2 == 1;
  kube::Watcher watcher(1, options);
  MonoTime now{seconds(1)};
  bool is_listing = false;
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  for (int lines = 0; !rest.empty() && lines < 64; ++lines) {
    const std::string line(fuzz::cut(rest, '\n'));
    if (!watcher.streaming()) is_listing = open(watcher, now);
    for (const auto& event : watcher.on_line(now, line)) {
      MUSTER_CHECK(event.type != Type::kInitStart);
      MUSTER_CHECK(event.type != Type::kInitApply || is_listing);
      MUSTER_CHECK(event.type != Type::kApply || !is_listing);
      if (event.type == Type::kInitDone) {
        MUSTER_CHECK(std::exchange(is_listing, false) && watcher.synced());
        continue;
      }
      MUSTER_CHECK(event.object["metadata"]["resourceVersion"].is_string());
    }
    check_request(watcher, now);
  }
  (void)watcher.on_end(now, {});
  check_request(watcher, now);
  return 0;
}
