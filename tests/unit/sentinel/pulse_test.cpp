#include "worker/sentinel/pulse.h"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/process.h"

using namespace muster;
using namespace muster::sentinel;

TEST_CASE("a page tells how far its trainer is, and its death before it is reaped") {
  auto monitor = PulseMonitor::make();
  REQUIRE(monitor);
  CHECK((*monitor)->wait(milliseconds(0)) == PulseMonitor::Life::kNotYet);
  int ready[2];
  REQUIRE(pipe(ready) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    auto pulse = Pulse::open(dup((*monitor)->fd()));
    if (!pulse) _exit(1);
    for (int i = 0; i < 3; ++i) pulse->beat();
    if (write(ready[1], "r", 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  REQUIRE(read(ready[0], &byte, 1) == 1);
  CHECK((*monitor)->beats() == 3);
  CHECK((*monitor)->wait(milliseconds(0)) == PulseMonitor::Life::kAlive);
  CHECK((*monitor)->wait(milliseconds(1)) == PulseMonitor::Life::kAlive);
  kill(child, SIGKILL);
  CHECK((*monitor)->wait(seconds(30)) == PulseMonitor::Life::kDead);
  CHECK((*monitor)->wait(milliseconds(0)) == PulseMonitor::Life::kDead);
  CHECK(waitpid(child, nullptr, 0) == child);
  close(ready[0]);
  close(ready[1]);
}
