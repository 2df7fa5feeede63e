#include "common/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/json.h"

namespace muster {
namespace {

struct Ended {
  int status = 0;  ///< as waitpid tells it
  std::vector<std::string> lines;
};

/// What a process of its own writes to stderr that does `what` and then ends.
Ended in_a_process(const std::function<void()>& what) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // doctest's handler would tell of it
    dup2(ends[1], STDERR_FILENO);
    what();
    _exit(0);
  }
  REQUIRE(child > 0);
  close(ends[1]);
  std::string text;
  char buffer[4096];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  Ended ended;
  REQUIRE(waitpid(child, &ended.status, 0) == child);
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    ended.lines.push_back(text.substr(at, end - at));
  }
  return ended;
}

TEST_CASE("a line of the log is JSON whatever it tells, and has an end") {
  const std::string hostile = "\"}\n{\x1b[2J\\ \xff\xc3";
  const Ended ended = in_a_process([&] {
    configure_log(LogLevel::kInfo, {{"component", "test"}, {"slot", 3}});
    log_info("one", {{"hostile", hostile}, {"long", std::string(5000, 'x')}, {"n", 7}});
    log_warning(hostile, {{"yes", true}});
  });
  REQUIRE(ended.lines.size() == 2);
  const auto first = parse_json(ended.lines[0]);
  REQUIRE(first);
  CHECK((*first)["message"] == "one");
  CHECK((*first)["level"] == "info");
  CHECK((*first)["component"] == "test");
  CHECK((*first)["slot"] == 3);
  CHECK((*first)["n"] == 7);
  CHECK((*first)["long"].get<std::string>() == std::string(1024, 'x') + "...");
  // Bytes that are not ASCII stand one by one as what they are in Latin-1.
  CHECK((*first)["hostile"] == "\"}\n{\x1b[2J\\ \u00ff\u00c3");
  const auto second = parse_json(ended.lines[1]);
  REQUIRE(second);
  CHECK((*second)["level"] == "warning");
  CHECK((*second)["yes"] == true);
}

TEST_CASE("what is below the level is not written") {
  const auto all = [] {
    log_debug("a");
    log_info("b");
    log_warning("c");
    log_error("d");
  };
  CHECK(in_a_process([&] {
          configure_log(LogLevel::kDebug, {});
          all();
        }).lines.size() == 4);
  const Ended errors = in_a_process([&] {
    configure_log(LogLevel::kError, {});
    all();
  });
  REQUIRE(errors.lines.size() == 1);
  CHECK(errors.lines[0].find("\"message\":\"d\"") != std::string::npos);
}

TEST_CASE("a reader that stands still is not waited for where lines may be left out") {
  const Ended ended = in_a_process([] {
    int ends[2];
    if (pipe2(ends, O_NONBLOCK) != 0) _exit(1);
    const std::string page(4096, 'x');
    for (const std::size_t piece : {page.size(), std::size_t{1}}) {
      while (write(ends[1], page.data(), piece) > 0) {
      }
    }
    fcntl(ends[1], F_SETFL, O_WRONLY);
    dup2(ends[1], STDERR_FILENO);
    configure_log(LogLevel::kInfo, {}, OnStillReader::kDrops);
    alarm(10);  // ends whoever waits
    log_info("nobody reads this");
  });
  CHECK(ended.status == 0);
}

TEST_CASE("a terminal that nobody reads is not waited for where lines may be left out") {
  const Ended ended = in_a_process([] {
    const int master = posix_openpt(O_RDWR | O_NOCTTY);
    grantpt(master);
    unlockpt(master);
    dup2(open(ptsname(master), O_WRONLY | O_NOCTTY), STDERR_FILENO);
    if (isatty(STDERR_FILENO) != 1) _exit(1);
    configure_log(LogLevel::kInfo, {}, OnStillReader::kDrops);
    alarm(20);  // ends whoever waits
    for (int i = 0; i < 1'000; ++i) log_info("nobody reads this", {{"number", i}});
  });
  CHECK(ended.status == 0);
}

TEST_CASE("no line is left out for a reader that is late") {
  constexpr int kLines = 2'000;  // more than a pipe holds
  const Ended ended = in_a_process([] {
    int ends[2];
    if (pipe(ends) != 0) _exit(1);
    const pid_t reader = fork();
    if (reader == 0) {
      close(ends[1]);
      int lines = 0;
      char buffer[16'384];
      for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0; usleep(10'000)) {
        lines += static_cast<int>(std::count(buffer, buffer + n, '\n'));
      }
      _exit(lines == kLines ? 0 : 1);
    }
    close(ends[0]);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    configure_log(LogLevel::kInfo, {}, OnStillReader::kDrops);
    for (int i = 0; i < kLines; ++i) log_info("a line of many", {{"number", i}});
    close(STDERR_FILENO);
    int status = 1;
    waitpid(reader, &status, 0);
    _exit(status == 0 ? 0 : 1);
  });
  CHECK(ended.status == 0);
}

TEST_CASE("a line that a pipe might take in parts goes without its fields, others go as they are") {
  const std::string long_text(1000, '\n');
  const Ended ended = in_a_process([&] {
    configure_log(LogLevel::kInfo, {{"slot", 3}}, OnStillReader::kDrops);
    log_info("one", {{"long", long_text}});
    log_info("two", {{"short", "x"}});
  });
  REQUIRE(ended.lines.size() == 2);
  const auto first = parse_json(ended.lines[0]), second = parse_json(ended.lines[1]);
  REQUIRE(first);
  REQUIRE(second);
  CHECK((*first)["message"] == "one");
  CHECK((*first)["slot"] == 3);
  CHECK_FALSE(first->contains("long"));
  CHECK((*second)["short"] == "x");
}

TEST_CASE("a broken invariant ends the process and says which and where") {
  const Ended ended = in_a_process([] { MUSTER_CHECK_MSG(1 + 1 == 3, "sums"); });
  REQUIRE(WIFSIGNALED(ended.status));
  CHECK(WTERMSIG(ended.status) == SIGABRT);
  REQUIRE_FALSE(ended.lines.empty());
  for (const char* part : {"1 + 1 == 3", "sums", "log_test.cpp"}) {
    CHECK_MESSAGE(ended.lines[0].find(part) != std::string::npos, ended.lines[0]);
  }
  CHECK(in_a_process([] { MUSTER_CHECK(1 + 1 == 2); }).status == 0);
}

}  // namespace
}  // namespace muster
