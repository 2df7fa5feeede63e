// Lines that are written while whoever adds them goes on.
#include "worker/engine/line_writer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <new>
#include <string>
#include <thread>

#include "common/contract.h"

using namespace muster;
using namespace muster::engine;

namespace {

/// A file whose disk answers when the test lets it.
class SlowFile {
 public:
  Status write(std::string_view lines) {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.notify_all();
    CHECK(changed_.wait_for(lock, seconds(60), [&] { return answers_ > 0; }));
    --answers_;
    changed_.notify_all();
    if (is_full_) return Error(ErrorCode::kIo, "full").with_exit_code(contract::exit_code::kDisk);
    text_ += lines;
    return {};
  }
  LineWriter::Options options() {
    return {[this](std::string_view lines) { return write(lines); }};
  }
  void answer(int times = 1) {
    change([&] { answers_ += times; });
  }
  void fill() {
    change([&] { is_full_ = true; });
  }
  /// Until it has been asked so often.
  void wait_asked(int times) {
    std::unique_lock lock(mutex_);
    CHECK(changed_.wait_for(lock, seconds(60), [&] { return asked_ >= times; }));
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  template <typename Change>
  void change(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
  int asked_ = 0, answers_ = 0;
  bool is_full_ = false;
};

std::string line(int number) { return "line " + std::to_string(number) + "\n"; }

}  // namespace

TEST_CASE("lines are added while the disk gives no answer, and written in their order") {
  SlowFile file;
  LineWriter writer(file.options());
  std::string all;
  for (int number = 0; number < 100; ++number) {
    if (number == 1) file.wait_asked(1);
    CHECK(writer.add(line(number)).empty());
    all += line(number);
  }
  CHECK(writer.added() == 100);
  CHECK_FALSE(*writer.wait(1, milliseconds(1)));
  CHECK(writer.unwritten() == all);
  file.answer();
  file.wait_asked(2);
  CHECK(*writer.wait(1, seconds(60)));
  CHECK(line(0) + writer.unwritten() == all);
  CHECK_FALSE(*writer.wait(2, milliseconds(1)));
  CHECK(file.text() == line(0));
  file.answer();
  CHECK(writer.wait(100).has_value());
  CHECK(file.text() == all);
  CHECK(writer.unwritten().empty());
}

TEST_CASE("of lines that wait for the disk the newest MiB is kept") {
  SlowFile file;
  LineWriter writer(file.options());
  const std::string padding(1'000, 'x');
  const auto long_line = [&](int number) { return std::to_string(number) + padding + "\n"; };
  CHECK(writer.add(long_line(0)).empty());
  file.wait_asked(1);
  std::string dropped, all;
  for (int number = 1; number <= 3'000; ++number) {
    dropped += writer.add(long_line(number));
    all += long_line(number);
  }
  CHECK_FALSE(dropped.empty());
  CHECK(dropped.ends_with("\n"));
  file.answer(2);
  CHECK(writer.wait(writer.added()).has_value());
  // The one that is being written is none of those that wait.
  const std::string kept = file.text().substr(long_line(0).size());
  CHECK(dropped + kept == all);
  CHECK(kept.size() <= kLinesKeptMost);
  CHECK(kept.size() > kLinesKeptMost - 2 * padding.size());
}

TEST_CASE("many lines that are waited for are written, however many they are") {
  SlowFile file;
  LineWriter writer(file.options());
  std::string lines;
  while (lines.size() < 2 * kLinesKeptMost) lines += line(7);
  file.answer();
  CHECK(writer.write(lines).has_value());
  CHECK(file.text() == lines);
}

TEST_CASE("a line that cannot be written is told, and no later one is written") {
  for (const bool is_beside : {true, false}) {
    CAPTURE(is_beside);
    SlowFile file;
    auto options = file.options();
    options.is_beside = is_beside;
    LineWriter writer(std::move(options));
    file.answer(9);
    writer.add(line(1));
    CHECK(writer.wait(1).has_value());
    file.fill();
    writer.add(line(2));
    CHECK(writer.wait(2).error().exit_code() == contract::exit_code::kDisk);
    CHECK(writer.wait(2, seconds(60)).error().message() == "full");
    CHECK(writer.add(line(3)).empty());
    CHECK_FALSE(writer.wait(writer.added()).has_value());
    CHECK_FALSE(writer.write(line(4)).has_value());
    CHECK(file.text() == line(1));
  }
}

TEST_CASE("who ends waits for the disk, which has all lines then") {
  SlowFile file;
  {
    LineWriter writer(file.options());
    for (int number = 0; number < 50; ++number) writer.add(line(number));
    file.answer(50);
  }
  CHECK(file.text().ends_with(line(49)));
  CHECK(std::ranges::count(file.text(), '\n') == 50);
}

TEST_CASE("lines that are not wanted any more are not written, and nobody waits for them") {
  SlowFile file;
  LineWriter writer(file.options());
  writer.add(line(0));
  file.wait_asked(1);
  writer.add(line(1));
  writer.discard();
  file.answer();
  CHECK(writer.wait(2).has_value());
  CHECK(file.text() == line(0));
}

TEST_CASE("without a thread of its own, lines wait while they are held") {
  SlowFile file;
  file.answer(9);
  bool is_held = true;
  auto options = file.options();
  options.is_beside = false;
  options.is_held = [&] { return is_held; };
  {
    LineWriter writer(options);
    writer.add(line(0));
    CHECK_FALSE(*writer.wait(1, seconds(60)));
    is_held = false;
    CHECK(*writer.wait(1, milliseconds(0)));
    is_held = true;
    writer.add(line(1));
  }
  CHECK(file.text() == line(0));  // as of a process that was killed
}

TEST_CASE("a want of memory while lines are written is an error and no end without a word") {
  LineWriter::Options options;
  options.write = [](std::string_view) -> Status { throw std::bad_alloc(); };
  LineWriter writer(options);
  CHECK(writer.add("1\n").empty());
  const Status waited = writer.wait(1);
  REQUIRE_FALSE(waited);
  CHECK(waited.error().exit_code() == contract::exit_code::kOutOfMemory);
}
