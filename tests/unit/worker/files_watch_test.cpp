// Which work on files is told of, and when.
#include "worker/files_watch.h"

#include <doctest/doctest.h>

using namespace muster;
using muster::worker::FilesWatch;
using Thread = FilesWatch::Thread;

namespace {

constexpr MonoTime kStart{seconds(1'000)};

std::string told(FilesWatch& watch, int second) {
  const auto message = watch.take(kStart + seconds(second));
  if (!message) return "";
  return (message->is_checkpoint ? "checkpoint " : "files ") + message->path + " " +
         std::to_string(message->seconds);
}

}  // namespace

TEST_CASE("work on files is told of when it takes long, when twice as long, and when it is over") {
  FilesWatch watch;
  CHECK(told(watch, 0).empty());
  watch.set(Thread::kTraining, "/data", kStart);
  CHECK(watch.is_busy(Thread::kTraining));
  CHECK(told(watch, 9).empty());
  CHECK(told(watch, 10) == "files /data 10");
  CHECK(told(watch, 19).empty());
  CHECK(told(watch, 20) == "files /data 20");
  CHECK(told(watch, 39).empty());
  CHECK(told(watch, 41) == "files /data 40");
  watch.set(Thread::kTraining, "", kStart + seconds(45));
  CHECK_FALSE(watch.is_busy(Thread::kTraining));
  CHECK(told(watch, 45) == "files  0");
  CHECK(told(watch, 500).empty());
}

TEST_CASE("work on files that is over in time is told to nobody, however often it is done") {
  FilesWatch watch;
  for (int second = 0; second < 90; second += 9) {
    watch.set(Thread::kTraining, "/data", kStart + seconds(second));
    watch.set(Thread::kSaving, "/checkpoints", kStart + seconds(second));
    CHECK(told(watch, second + 8).empty());
    watch.set(Thread::kTraining, "", kStart + seconds(second + 8));
    watch.set(Thread::kSaving, "", kStart + seconds(second + 8));
    CHECK(told(watch, second + 8).empty());
  }
}

TEST_CASE("a checkpoint and the record beside the steps are told of as one, till both are over") {
  FilesWatch watch;
  watch.set(Thread::kRecording, "/checkpoints", kStart);
  CHECK(told(watch, 30) == "checkpoint /checkpoints 30");
  watch.set(Thread::kSaving, "/checkpoints", kStart + seconds(35));
  CHECK(told(watch, 60) == "checkpoint /checkpoints 60");
  CHECK(told(watch, 65) == "checkpoint /checkpoints 30");
  watch.set(Thread::kRecording, "", kStart + seconds(66));
  CHECK(told(watch, 66).empty());
  watch.set(Thread::kSaving, "", kStart + seconds(67));
  CHECK(told(watch, 67) == "checkpoint  0");
  CHECK(told(watch, 500).empty());
}

TEST_CASE(
    "a checkpoint beside the steps may take longer, and is told of beside the training thread") {
  FilesWatch watch;
  watch.set(Thread::kSaving, "/checkpoints", kStart);
  CHECK(told(watch, 29).empty());
  CHECK(told(watch, 30) == "checkpoint /checkpoints 30");
  watch.set(Thread::kTraining, "/checkpoints", kStart + seconds(40));
  CHECK(told(watch, 50) == "files /checkpoints 10");
  CHECK(told(watch, 60) == "files /checkpoints 20");
  CHECK(told(watch, 60) == "checkpoint /checkpoints 60");
  // What begins at once after it is other work.
  watch.set(Thread::kSaving, "", kStart + seconds(61));
  watch.set(Thread::kSaving, "/checkpoints", kStart + seconds(61));
  CHECK(told(watch, 61) == "checkpoint  0");
  CHECK(told(watch, 79).empty());
}
