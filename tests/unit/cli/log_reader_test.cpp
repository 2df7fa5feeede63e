#include "cli/log_reader.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

/// Moves on by `step` whenever it is looked at.
class SteppingClock final : public Clock {
 public:
  MonoTime mono_now() const override { return now_ += step; }
  WallTime wall_now() const override { return {}; }
  nanoseconds step{0};

 private:
  mutable MonoTime now_{seconds(1)};
};

PodView pod_of(int slot) {
  PodView pod;
  pod.slot = slot;
  pod.name = "pod-" + std::to_string(slot);
  pod.has_started = true;
  return pod;
}

/// A reader over a kubectl that tells two lines of pod-0, its own arguments as a line of pod-2,
/// from the second time on, and of pod-3, and one line of any other pod, whose log then neither
/// goes on nor ends.
struct Reading {
  explicit Reading(const LogReaderOptions& options) {
    Kubectl::Setting setting;
    setting.environment["KUBECTL"] = make_kubectl();
    setting.clock = &clock;
    auto found = Kubectl::find(setting);
    REQUIRE(found);
    kubectl.emplace(std::move(*found));
    reader.emplace(*kubectl, options, [this](const PodView& pod, const LogLine& line) {
      lines.push_back(pod.name + ": " + line.text);
      return true;
    });
  }
  std::string make_kubectl() const {
    const std::string path = directory.path + "/kubectl";
    REQUIRE(::mkfifo((directory.path + "/gate").c_str(), 0600) == 0);
    std::ofstream(path) << "#!/bin/sh\ncase \"$*\" in\n"
                           "*pod-0*) printf '2026-11-21T12:00:0%dZ a line\\n' 2 3 ;;\n"
                           "*pod-2*) [ -e $0.asked ] && echo 2026-11-21T12:00:02Z \"$*\"\n"
                           ": >$0.asked ;;\n"
                           "*pod-3*) echo 2026-11-21T12:00:02Z \"$*\" ;;\n"
                           "*) echo 2026-11-21T12:00:01Z first; exec /bin/cat " +
                               directory.path + "/gate ;;\nesac\n";
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  /// Lets so much time go by that any patience is over.
  void turn_for_long() {
    clock.step = seconds(40);
    for (int turns = 0; turns < 9; ++turns) REQUIRE(reader->turn(MonoTime()));
    clock.step = nanoseconds(0);
  }

  test::TemporaryDirectory directory;
  SteppingClock clock;
  std::optional<Kubectl> kubectl;
  std::vector<std::string> lines;
  std::optional<LogReader> reader;
};

TEST_CASE("a kubelet that says nothing more hides the other workers' lines only so long") {
  Reading reading({false, -1, ""});
  LogReader& reader = *reading.reader;
  REQUIRE(reader.add(pod_of(0)));
  REQUIRE(reader.add(pod_of(1)));
  while (reader.count() == 2 || reading.lines.empty()) {
    REQUIRE(reader.turn(reading.clock.mono_now() + seconds(30)));
  }
  CHECK(reading.lines == std::vector<std::string>{"pod-1: first"});
  reading.turn_for_long();
  CHECK_FALSE(reader.is_reading());
  CHECK(reading.lines ==
        std::vector<std::string>{"pod-1: first", "pod-0: a line", "pod-0: a line"});
  CHECK_FALSE(reader.has_failed(pod_of(0)));
  CHECK(reader.has_failed(pod_of(1)));
  CHECK(reader.take_complaints() ==
        std::vector<std::string>{"worker 1: kubectl logs: no answer in 1 min 00 s"});
}

TEST_CASE("of a worker that starts while logs are followed every line is shown") {
  Reading reading({true, 5, "10s"});
  LogReader& reader = *reading.reader;
  // The first is lost before it has told a line.
  for (const int slot : {2, 2, 3}) {
    REQUIRE(reader.add(pod_of(slot)));
    while (reader.is_reading()) REQUIRE(reader.turn(reading.clock.mono_now() + seconds(30)));
  }
  CHECK(reading.lines ==
        std::vector<std::string>{
            "pod-2: logs pod-2 --container=worker --timestamps --follow --tail=5 --since=10s",
            "pod-3: logs pod-3 --container=worker --timestamps --follow"});
}

TEST_CASE("a worker whose log is followed may say nothing for as long as it likes") {
  Reading reading({true, -1, ""});
  REQUIRE(reading.reader->add(pod_of(1)));
  reading.turn_for_long();
  CHECK(reading.reader->is_reading(pod_of(1)));
}

}  // namespace
}  // namespace muster::cli
