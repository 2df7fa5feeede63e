// Lines of a watch stream, each line of the input one: whatever a server sends, the watcher never
// moves back, hands on only objects with a version, and asks for something that makes sense.
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "operator/kube/watcher.h"

using namespace muster;

namespace {

void check_request(const kube::Watcher& watcher, MonoTime now) {
  const auto request = watcher.next(now);
  if (const auto* watch = std::get_if<kube::WatchRequest>(&request)) {
    MUSTER_CHECK(!watch->resource_version.empty());
  } else if (const auto* wait = std::get_if<kube::WaitRequest>(&request)) {
    MUSTER_CHECK(wait->until > now && wait->until <= now + seconds(30));
  }
}

/// Lists an empty collection until the watcher wants to watch, then opens the watch.
void open(kube::Watcher& watcher, MonoTime& now) {
  for (int i = 0; i < 3 && !watcher.streaming(); ++i) {
    now += seconds(31);
    if (std::holds_alternative<kube::ListRequest>(watcher.next(now))) {
      kube::ListPage page;
      page.resource_version = "10";
      (void)watcher.on_list(now, std::move(page));
    }
    (void)watcher.on_watch_opened(now, {});
  }
  MUSTER_CHECK(watcher.streaming());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  kube::Watcher watcher(1);
  MonoTime now{seconds(1)};
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  for (int lines = 0; !rest.empty() && lines < 64; ++lines) {
    const std::size_t end = rest.find('\n');
    const std::string line(rest.substr(0, end));
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (!watcher.streaming()) open(watcher, now);
    for (const auto& event : watcher.on_line(now, line)) {
      MUSTER_CHECK(event.type == kube::WatchEvent::Type::kApply ||
                   event.type == kube::WatchEvent::Type::kDelete);
      MUSTER_CHECK(event.object["metadata"]["resourceVersion"].is_string());
    }
    check_request(watcher, now);
  }
  (void)watcher.on_end(now, {});
  check_request(watcher, now);
  return 0;
}
