#include "cli/job_follower.h"

#include <doctest/doctest.h>

namespace muster::cli {
namespace {

kube::WatchEvent note(const std::string& job, const char* type, Json text) {
  return {kube::WatchEvent::Type::kApply,
          {{"involvedObject", {{"kind", "TrainingJob"}, {"name", job}}},
           {"type", type},
           {"message", std::move(text)}}};
}

TEST_CASE("warnings about the job are news, each once") {
  JobFollower follower("digits");
  follower.post_note(note("digits", "Warning", "worker 0 ended with exit code 29"));
  follower.post_note(note("digits", "Warning", "worker 0 ended with exit code 29"));
  follower.post_note(note("digits", "Normal", "the gang starts"));
  follower.post_note(note("another", "Warning", "worker 1 ended"));
  follower.post_note(note("digits", "Warning", "worker 1 ended"));
  const JobFollower::News news = follower.take();
  CHECK(news.warnings ==
        std::vector<std::string>{"worker 0 ended with exit code 29", "worker 1 ended"});
  CHECK_FALSE(news.job);
  follower.post_note(note("digits", "Warning", "worker 1 ended"));
  CHECK(follower.take().warnings.empty());
}

TEST_CASE("that the job failed is not warned of: the run ends with that sentence") {
  JobFollower follower("digits");
  kube::WatchEvent failed = note("digits", "Warning", "worker 0 ended with exit code 21");
  failed.object["reason"] = "Failed";
  follower.post_note(failed);
  CHECK(follower.take().warnings.empty());
}

TEST_CASE("what is no event, or is gone, warns of nothing") {
  JobFollower follower("digits");
  kube::WatchEvent gone = note("digits", "Warning", "worker 0 ended");
  gone.type = kube::WatchEvent::Type::kDelete;
  follower.post_note(gone);
  follower.post_note({kube::WatchEvent::Type::kInitDone, nullptr});
  follower.post_note({kube::WatchEvent::Type::kApply, {{"involvedObject", "digits"}}});
  follower.post_note(note("digits", "Warning", 7));
  CHECK(follower.take().warnings.empty());
}

TEST_CASE("of many warnings the newest are kept") {
  JobFollower follower("digits");
  for (std::size_t i = 0; i <= JobFollower::kWarningsMost; ++i) {
    follower.post_note(note("digits", "Warning", "warning " + std::to_string(i)));
  }
  const std::vector<std::string> kept = follower.take().warnings;
  REQUIRE(kept.size() == JobFollower::kWarningsMost);
  CHECK(kept.front() == "warning 1");
  CHECK(kept.back() == "warning " + std::to_string(JobFollower::kWarningsMost));
}

}  // namespace
}  // namespace muster::cli
