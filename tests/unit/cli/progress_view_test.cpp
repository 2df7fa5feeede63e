#include "cli/progress_view.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

namespace muster::cli {
namespace {

/// A FILE whose content can be read.
class Memory {
 public:
  Memory() : file_(::open_memstream(&data_, &size_)) {}
  ~Memory() {
    std::fclose(file_);
    std::free(data_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::FILE* file() { return file_; }
  std::string text() {
    std::fflush(file_);
    return {data_, size_};
  }

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::FILE* file_;
};

/// A terminal of so many columns that nobody sits at.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : master_(::posix_openpt(O_RDWR | O_NOCTTY)) {
    ::grantpt(master_);
    ::unlockpt(master_);
    file_ = ::fdopen(::open(::ptsname(master_), O_WRONLY | O_NOCTTY), "w");
    resize(columns);
  }
  ~Terminal() {
    std::fclose(file_);
    ::close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;
  void resize(unsigned short columns) const {
    const winsize size{24, columns, 0, 0};
    ::ioctl(master_, TIOCSWINSZ, &size);
  }
  std::FILE* file() { return file_; }
  /// What has come since the last call.
  std::string text() const {
    std::array<char, 4096> text{};
    const ssize_t length = ::read(master_, text.data(), text.size());
    return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
  }

 private:
  int master_;
  std::FILE* file_;
};

TEST_CASE("the progress line leaves out what is not known yet") {
  ProgressReport report;
  report.step = 1;
  CHECK(progress_text(report, {}) == "step 1  epoch 0");
  report.total_steps = 440;
  report.epoch = 3;
  report.loss = "0.1234";
  report.accuracy = "0.9611";
  report.samples_per_second = 51234.5;
  report.eta_seconds = 2.1;
  CHECK(progress_text(report, {"2/2", 0}) ==
        "step 1/440  epoch 3  loss 0.1234  accuracy 0.9611  51234 samples/s  ETA 3 s  workers 2/2");
  // Of texts it is the tokens that tell the speed.
  CHECK(
      progress_text(report, {"2/2", 64}) ==
      "step 1/440  epoch 3  loss 0.1234  accuracy 0.9611  3279008 tokens/s  ETA 3 s  workers 2/2");
  report.loss = "\x1b[31m";
  CHECK(progress_text(report, {}).find('\x1b') == std::string::npos);
}

TEST_CASE("durations are rounded up and readable") {
  CHECK(duration_text(0) == "0 s");
  CHECK(duration_text(59.2) == "1 min 00 s");
  CHECK(duration_text(125) == "2 min 05 s");
  CHECK(duration_text(3720) == "1 h 02 min");
  CHECK(duration_text(-3) == "0 s");
  CHECK(duration_text(1e300).ends_with(" min"));
}

TEST_CASE("on a terminal the line is rewritten in place and never left half covered") {
  Memory memory;
  const ManualClock clock;
  {
    ProgressView view(memory.file(), ViewMode::kTerminal, clock);
    view.progress("step 100");
    view.progress("step 9");
    view.say(
        "Restarting: x\x1b[2J\xc2\x9b"
        "2J");
    view.progress("step 10");
  }
  CHECK(memory.text() == "\rstep 100\rstep 9  \nRestarting: x [2J  2J\n\rstep 10\n");
}

TEST_CASE("the live line stays within the columns of its terminal, also of one that is resized") {
  Terminal terminal(12);
  const ManualClock clock;
  ProgressView view(terminal.file(), ViewMode::kTerminal, clock);
  view.progress("step 1000/2000");
  CHECK(terminal.text() == "\rstep 1000/2");
  terminal.resize(8);
  view.progress("step 9");
  CHECK(terminal.text() == "\rstep 9 ");
  view.progress("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc");
  CHECK(terminal.text() == "\r\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc");
  terminal.resize(0);  // as one that does not know
  view.progress(std::string(100, 'a'));
  CHECK(terminal.text() == "\r" + std::string(79, 'a'));
}

TEST_CASE("a live line that says nothing new is not written again") {
  Memory memory;
  const ManualClock clock;
  ProgressView view(memory.file(), ViewMode::kTerminal, clock);
  view.progress("step 1");
  view.progress("step 1");
  view.say("now");
  view.progress("step 1");
  CHECK(memory.text() == "\rstep 1\nnow\n\rstep 1");
}

TEST_CASE("the live line is ended once before another stream writes") {
  Memory memory;
  const ManualClock clock;
  ProgressView view(memory.file(), ViewMode::kTerminal, clock);
  view.progress("step 1");
  view.end_line();
  view.end_line();
  CHECK(memory.text() == "\rstep 1\n");
}

TEST_CASE("elsewhere a line comes every two seconds, and what happens at once") {
  Memory memory;
  ManualClock clock;
  ProgressView view(memory.file(), ViewMode::kLines, clock);
  view.progress("a");
  clock.advance(milliseconds(1999));
  view.progress("b");
  view.say("now");
  clock.advance(milliseconds(1));
  view.progress("c");
  clock.advance(milliseconds(3000));
  view.progress("c");
  CHECK(memory.text() == "a\nnow\nc\n");
}

TEST_CASE("quiet says nothing") {
  Memory memory;
  const ManualClock clock;
  ProgressView view(memory.file(), ViewMode::kQuiet, clock);
  view.progress("a");
  view.say("b");
  CHECK(memory.text().empty());
}

}  // namespace
}  // namespace muster::cli
