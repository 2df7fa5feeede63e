#include "cli/kube_process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "cli/kubectl.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

constexpr milliseconds kGrace = KubeProcess::kEndGrace;
constexpr int kEventDeadlineMs = 60'000;

MonoTime after(milliseconds time) { return MonoTime(time); }

/// A shell as kubectl; its $GATE is a pipe with a name that this has open.
class Program {
 public:
  explicit Program(const std::string& script, KubeProcessSpec spec = {})
      : process_(start(script, std::move(spec))) {}

  void open_gate() { REQUIRE(::write(gate_.get(), "go\n", 3) == 3); }
  KubeProcess& operator*() { return process_; }

  /// Waits until there is something to hear, and hears it.
  void hear(MonoTime now, std::span<char> room) {
    auto waits = process_.waits();
    if (room.empty()) waits[0].fd = -1;
    REQUIRE(::poll(waits.data(), waits.size(), kEventDeadlineMs) > 0);
    output += process_.hear(now, room).output;
  }
  void hear(MonoTime now) { hear(now, buffer_); }
  /// Hears it until its program has ended; time stands still.
  void hear_its_end(MonoTime now, std::span<char> room) {
    while (!process_.due() && !process_.exit_code()) hear(now, room);
  }
  void hear_its_end(MonoTime now) { hear_its_end(now, buffer_); }
  /// What there is to hear without waiting.
  void hear_now(MonoTime now) { output += process_.hear(now, buffer_).output; }

  std::string output;

 private:
  KubeProcess start(const std::string& script, KubeProcessSpec spec) {
    const std::string gate = directory_.path + "/gate";
    REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
    gate_ = UniqueFd(::open(gate.c_str(), O_RDWR | O_CLOEXEC));
    spec.program = "/bin/sh";
    spec.arguments = {"-c", script};
    spec.environment = {"GATE=" + gate, "PATH=/usr/bin:/bin"};
    auto process = KubeProcess::start(spec);
    REQUIRE(process);
    return std::move(*process);
  }

  test::TemporaryDirectory directory_;
  UniqueFd gate_;
  KubeProcess process_;
  std::array<char, 65536> buffer_;
};

TEST_CASE("a kubectl that has ended is over, whoever holds its pipes open") {
  for (const char* held : {"", ">/dev/null", "2>/dev/null"}) {
    CAPTURE(held);
    Program program("exec 3<$GATE; cat <&3 " + std::string(held) +
                    " & echo answer; echo words >&2; exit 3");
    program.hear_its_end(after(milliseconds(0)));
    program.hear_now(after(kGrace - milliseconds(1)));
    CHECK_FALSE((*program).exit_code());
    CHECK((*program).due() == after(kGrace));
    program.hear_now(after(kGrace));
    CHECK((*program).exit_code() == 3);
    CHECK_FALSE((*program).due());
    CHECK(program.output == "answer\n");
    CHECK((*program).errors() == "words\n");
  }
}

TEST_CASE("one that leaves nothing behind is over at once") {
  Program program("echo answer; kill -9 $$");
  while (!(*program).exit_code()) program.hear(after(milliseconds(0)));
  CHECK((*program).exit_code() == 128 + 9);
  CHECK(program.output == "answer\n");
}

TEST_CASE("neither Ctrl-C nor a terminal that closes ends one that clears up after them") {
  for (const int number : {SIGINT, SIGHUP}) {
    CAPTURE(number);
    // Whoever started the tests may have it ignored.
    const auto before = std::signal(number, SIG_DFL);
    for (const bool ignores : {false, true}) {
      CAPTURE(ignores);
      KubeProcessSpec spec;
      spec.ignores_interrupt = ignores;
      Program program("kill -" + std::to_string(number) + " $$; echo deleted", spec);
      while (!(*program).exit_code()) program.hear(after(milliseconds(0)));
      CHECK((*program).exit_code() == (ignores ? 0 : 128 + number));
      CHECK(program.output == (ignores ? "deleted\n" : ""));
    }
    std::signal(number, before);
  }
}

TEST_CASE("what a helper passes on a moment after its end is heard") {
  Program program(
      "(read word <$GATE; echo late; echo words >&2; read word <$GATE; echo later) & exit 0");
  program.hear_its_end(after(milliseconds(0)));
  program.open_gate();
  while (program.output != "late\n") program.hear(after(kGrace - milliseconds(1)));
  program.open_gate();
  // The time of silence begins anew.
  while (!(*program).exit_code()) program.hear(after(2 * kGrace - milliseconds(2)));
  CHECK(program.output == "late\nlater\n");
  CHECK((*program).errors() == "words\n");
}

TEST_CASE("one that is held back is not over before all of its output was heard") {
  Program program("exec 3<$GATE; cat <&3 >/dev/null & echo answer; exit 0");
  program.hear_its_end(after(milliseconds(0)), {});
  (void)(*program).hear(after(10 * kGrace), {});
  CHECK_FALSE((*program).exit_code());
  program.hear_now(after(10 * kGrace));
  CHECK(program.output == "answer\n");
  CHECK_FALSE((*program).exit_code());
  program.hear_now(after(11 * kGrace));
  CHECK((*program).exit_code() == 0);
}

TEST_CASE("errors without end are cut") {
  Program program("head -c 1000000 /dev/zero | tr '\\0' x >&2");
  while (!(*program).exit_code()) program.hear(after(milliseconds(0)));
  CHECK((*program).errors() == std::string(KubeProcess::kMostErrors, 'x'));
}

TEST_CASE("a call is given up after a silence, which a login that has spoken may draw out") {
  KubectlCall call;
  call.deadline = milliseconds(900'000);
  call.silence = milliseconds(60'000);
  KubectlProgress progress{after(milliseconds(1000)), after(milliseconds(1000))};
  const auto due = [&] { return limit_of(call, progress)->due; };
  CHECK(due() == after(milliseconds(61'000)));
  progress.heard = after(milliseconds(50'000));
  CHECK(due() == after(milliseconds(110'000)));
  progress.has_words = true;
  CHECK(due() == after(milliseconds(350'000)));
  CHECK(limit_of(call, progress)->length == milliseconds(300'000));
  // It is in.
  progress.has_output = true;
  CHECK(due() == after(milliseconds(110'000)));
  progress.heard = after(milliseconds(890'000));
  CHECK(due() == after(milliseconds(901'000)));
  call.deadline = milliseconds(0);
  CHECK(due() == after(milliseconds(950'000)));
  call.silence = milliseconds(0);
  CHECK_FALSE(limit_of(call, progress));
}

}  // namespace
}  // namespace muster::cli
