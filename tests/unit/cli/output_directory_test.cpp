#include "cli/output_directory.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/files.h"
#include "common/check.h"
#include "common/contract.h"
#include "tests/full_disk.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

using test::content_of;
namespace fs = std::filesystem;

Json job() {
  return Json{{"metadata", {{"name", "digits"}}},
              {"spec",
               {{"worker", {{"count", 2}, {"threads", 1}}},
                {"training", {{"seed", 7}, {"batchSize", 64}}},
                {"restart", {{"maxRestarts", 3}}}}}};
}

void put(const std::string& path, const std::string& text) {
  fs::create_directories(fs::path(path).parent_path());
  REQUIRE(write_file_atomically(path, text));
}

std::string refusal(const std::string& path, const Json& wanted) {
  auto directory = OutputDirectory::open(path, wanted);
  if (directory) return "opened";
  CHECK(directory.error().exit_code() == contract::exit_code::kUsage);
  return directory.error().message();
}

TEST_CASE("fields that change no bits may differ between two runs of a directory") {
  Json other = job();
  other["spec"]["worker"]["count"] = 4;
  other["spec"]["worker"]["min"] = 1;
  other["spec"]["worker"]["resources"] = {{"cpu", "2"}};
  other["spec"]["restart"]["maxRestarts"] = 0;
  other["spec"]["activeDeadlineSeconds"] = 60;
  CHECK(differences(job(), other).empty());
  other["spec"]["training"]["seed"] = 8;
  other["spec"]["training"].erase("batchSize");
  other["spec"]["worker"]["command"] = {"x"};
  other["metadata"]["name"] = "letters";
  CHECK(differences(job(), other) ==
        std::vector<std::string>{"metadata.name", "spec.training.batchSize", "spec.training.seed",
                                 "spec.worker.command"});
  CHECK(differences(job(), Json(3)) == std::vector<std::string>{"(whole)"});
}

TEST_CASE("what is for pods, queues and schedulers alone makes no other job of a run") {
  Json other = job();
  for (const char* field : {"nodeSelector", "volumes", "tolerations", "envFrom"}) {
    other["spec"]["worker"][field] = {{"a.b", "c"}};
  }
  other["spec"]["worker"]["image"] = "mine";
  other["spec"]["worker"]["growsTo"] = "Max";
  other["spec"]["worker"]["hostNetwork"] = true;
  other["spec"]["worker"]["initContainers"] = {{{"name", "fetch"}}};
  other["spec"]["topology"] = {{"required", "rack"}};
  other["spec"]["scheduling"] = "Unplaced";
  CHECK(differences(job(), other).empty());
  CHECK(differences(other, job()).empty());
  other["spec"]["worker"]["args"] = {"y"};
  other["spec"]["worker"]["env"] = {{{"name", "A"}, {"value", "1"}}};
  CHECK(differences(job(), other) ==
        std::vector<std::string>{"spec.worker.args", "spec.worker.env"});
  other["spec"]["worker"] = nullptr;
  CHECK(differences(job(), other) == std::vector<std::string>{"spec.worker"});
}

TEST_CASE("fields of a training that no checkpoint is compared by may differ as well") {
  Json other = job();
  other["spec"]["worker"]["processes"] = 2;
  Json& training = other["spec"]["training"];
  training["microBatchSize"] = 4;
  training["activations"] = "Recomputed";
  training["optimizerState"] = "Sharded";
  training["buddies"] = 2;
  training["onNonFinite"] = "Stop";
  training["parallelism"] = {{"pipeline", 2}};
  training["checkpoint"] = {{"everySteps", 10}, {"keep", 5}};
  training["evaluation"] = {{"everyEpochs", 2}};
  CHECK(differences(job(), other).empty());
  training["precision"] = "BFloat16";
  training["logicalRanks"] = 8;
  CHECK(differences(job(), other) ==
        std::vector<std::string>{"spec.training.logicalRanks", "spec.training.precision"});
}

TEST_CASE("how long to train may differ while no schedule is stretched over it") {
  Json before = job(), longer = job();
  before["spec"]["training"]["epochs"] = 20;
  longer["spec"]["training"]["steps"] = 900;
  CHECK(differences(before, longer).empty());
  const std::vector<std::string> both{"spec.training.epochs", "spec.training.steps"};
  CHECK(differences(before, longer, Length::kFixed) == both);
  for (Json* of : {&before, &longer}) {
    (*of)["spec"]["training"]["optimizer"]["schedule"]["cosine"]["warmupSteps"] = 10;
  }
  CHECK(differences(before, longer) == both);
}

TEST_CASE("a finished run is not trained anew, its model lost, for one of another length") {
  const test::TemporaryDirectory base;
  Json longer = job();
  longer["spec"]["training"]["steps"] = 900;
  {
    REQUIRE(OutputDirectory::open(base.path, job()));
  }
  put(base.path + "/report.json", R"({"status": "Complete"})");
  put(base.path + "/model.safetensors", "model");
  CHECK(refusal(base.path, longer).find("spec.training.steps differs") != std::string::npos);
  CHECK(fs::exists(base.path + "/model.safetensors"));
  put(base.path + "/report.json", R"({"status": "Interrupted"})");
  CHECK(refusal(base.path, longer) == "opened");
}

TEST_CASE("a place where no directory can be made is named, and is usage") {
  const test::TemporaryDirectory base;
  for (const std::string& place :
       {std::string("/proc/never"), base.path + "/" + std::string(300, 'x')}) {
    CHECK(refusal(place, job()).starts_with(place + ": cannot create directory: "));
  }
}

TEST_CASE("another spec is refused by the names of what differs, and nothing is touched") {
  const test::TemporaryDirectory base;
  const std::string path = base.path + "/a/out";
  {
    REQUIRE(OutputDirectory::open(path, job()));
  }
  put(path + "/checkpoints/step-000000000100/manifest.json", "{}");
  put(path + "/report.json", R"({"status": "Complete"})");
  Json other = job();
  other["spec"]["training"]["seed"] = 8;
  CHECK(refusal(path, other) ==
        path +
            ": belongs to another job: spec.training.seed differs; "
            "give another --output, or remove the directory, with which its "
            "checkpoints are lost");
  CHECK(fs::exists(path + "/checkpoints/step-000000000100/manifest.json"));
  CHECK(fs::exists(path + "/report.json"));
  CHECK(parse_json(content_of(path + "/job.json")).value() == job());
}

TEST_CASE("an unfinished run goes on from its newest whole checkpoint") {
  const test::TemporaryDirectory base;
  {
    REQUIRE(OutputDirectory::open(base.path, job()));
  }
  put(base.path + "/checkpoints/step-000000000100/manifest.json", "{}");
  put(base.path + "/checkpoints/step-000000000200/manifest.json", "{}");
  put(base.path + "/checkpoints/step-000000000300/model.safetensors", "no manifest yet");
  put(base.path + "/checkpoints/step-x/manifest.json", "{}");
  put(base.path + "/report.json", R"({"status": "Interrupted"})");
  auto directory = OutputDirectory::open(base.path, job());
  REQUIRE(directory);
  CHECK(directory->resumed_from_step() == 200);
  CHECK_FALSE(fs::exists(directory->report()));
}

TEST_CASE("a finished run is trained anew, and its model stays until there is another") {
  const test::TemporaryDirectory base;
  {
    REQUIRE(OutputDirectory::open(base.path, job()));
  }
  put(base.path + "/checkpoints/step-000000000100/manifest.json", "{}");
  put(base.path + "/model.safetensors", "model");
  put(base.path + "/sample.txt", "To be");
  put(base.path + "/config.json", "{}");
  put(base.path + "/logs/a.log", "x");
  put(base.path + "/report.json", R"({"status": "Complete"})");
  auto directory = OutputDirectory::open(base.path, job());
  REQUIRE(directory);
  CHECK(directory->resumed_from_step() == -1);
  CHECK_FALSE(fs::exists(directory->model()));
  CHECK_FALSE(fs::exists(directory->sample()));
  CHECK_FALSE(fs::exists(base.path + "/config.json"));
  CHECK_FALSE(fs::exists(directory->report()));
  CHECK(fs::is_empty(directory->checkpoints()));
  CHECK(fs::is_empty(directory->logs()));
  CHECK(directory->has_previous_model());
  CHECK(directory->previous_model() == directory->path() + "/previous/model.safetensors");
  CHECK(content_of(directory->previous_model()) == "model");
  CHECK(content_of(base.path + "/previous/sample.txt") == "To be");
  CHECK(content_of(base.path + "/previous/config.json") == "{}");
  CHECK(content_of(base.path + "/previous/report.json") == R"({"status": "Complete"})");
  CHECK_FALSE(directory->take_model().value());
  CHECK(directory->has_previous_model());
  put(directory->checkpoints() + "/model.safetensors", "newer");
  CHECK(directory->take_model().value());
  CHECK(content_of(directory->model()) == "newer");
  CHECK_FALSE(fs::exists(base.path + "/previous"));
}

TEST_CASE("a model stays over all runs after it that come to none") {
  const test::TemporaryDirectory base;
  {
    REQUIRE(OutputDirectory::open(base.path, job()));
  }
  put(base.path + "/model.safetensors", "model");
  for (const char* status : {"Complete", "Failed", "Complete", "Interrupted"}) {
    CAPTURE(status);
    const std::string report = R"({"status": ")" + std::string(status) + "\"}";
    put(base.path + "/report.json", report);
    const auto directory = OutputDirectory::open(base.path, job());
    REQUIRE(directory);
    CHECK_FALSE(fs::exists(directory->report()));
    CHECK(content_of(directory->previous_model()) == "model");
    CHECK(content_of(base.path + "/previous/report.json") == R"({"status": "Complete"})");
  }
}

TEST_CASE("wherever a start was cut off, the model of the run before is whole, and no older one") {
  const std::vector<std::pair<std::string, std::string>> results{
      {"model.safetensors", "model"},
      {"config.json", "{}"},
      {"sample.txt", "To be"},
      {"report.json", R"({"status": "Complete"})"}};
  const std::vector<std::string> older{"model.safetensors", "classes.json", "report.json"};
  // Of those of the older run so many are gone, then so many of the newer one are moved.
  for (std::size_t done = 0; done <= older.size() + results.size(); ++done) {
    CAPTURE(done);
    const test::TemporaryDirectory base;
    {
      REQUIRE(OutputDirectory::open(base.path, job()));
    }
    const std::string previous = base.path + "/previous/";
    for (std::size_t i = done; i < older.size(); ++i) put(previous + older[i], "older");
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto& [name, content] = results[i];
      put((older.size() + i < done ? previous : base.path + "/") + name, content);
    }
    const auto directory = OutputDirectory::open(base.path, job());
    REQUIRE(directory);
    CHECK(directory->resumed_from_step() == -1);
    for (const auto& [name, content] : results) {
      CHECK(content_of(previous + name) == content);
      CHECK_FALSE(fs::exists(base.path + "/" + name));
    }
    CHECK_FALSE(fs::exists(previous + "classes.json"));
  }
}

TEST_CASE("of the report of a run that has ended nothing is built of its steps") {
  const test::TemporaryDirectory base;
  {
    REQUIRE(OutputDirectory::open(base.path, job()));
  }
  // So deep that whoever builds it refuses it.
  const std::string deep = std::string(kMaxJsonDepth, '[') + std::string(kMaxJsonDepth, ']');
  for (const auto& [status, is_left] :
       {std::pair("Interrupted", true), std::pair("Complete", false)}) {
    put(base.path + "/model.safetensors", "model");
    put(base.path + "/report.json",
        R"({"byStep": [{"step": 1}, )" + deep + R"(], "status": ")" + std::string(status) + "\"}");
    {
      REQUIRE(OutputDirectory::open(base.path, job()));
    }
    CHECK(fs::exists(base.path + "/model.safetensors") == is_left);
  }
}

TEST_CASE("two runs in one directory are refused while the first lives") {
  const test::TemporaryDirectory base;
  {
    auto first = OutputDirectory::open(base.path, job());
    REQUIRE(first);
    CHECK(refusal(base.path, job()) ==
          base.path +
              ": another `muster run` is writing here; wait for it or give another "
              "--output");
  }
  CHECK(refusal(base.path, job()) == "opened");
}

TEST_CASE(
    "what is begun anew keeps nothing of the run before, of whatever job, but never of one that "
    "runs") {
  const test::TemporaryDirectory base;
  Json other = job();
  other["spec"]["training"]["seed"] = 8;
  put(base.path + "/photos/photo.jpg", "x");
  CHECK_FALSE(OutputDirectory::open(base.path + "/photos", job(), Earlier::kRemoved));
  CHECK(fs::exists(base.path + "/photos/photo.jpg"));
  const std::string path = base.path + "/out";
  {
    auto first = OutputDirectory::open(path, job());
    REQUIRE(first);
    put(first->checkpoints() + "/step-000000000100/manifest.json", "{}");
    put(path + "/model.safetensors", "model");
    CHECK_FALSE(OutputDirectory::open(path, other, Earlier::kRemoved));
    CHECK(fs::exists(first->checkpoints() + "/step-000000000100/manifest.json"));
  }
  auto second = OutputDirectory::open(path, other, Earlier::kRemoved);
  REQUIRE(second);
  CHECK(second->resumed_from_step() == -1);
  CHECK(fs::is_empty(second->checkpoints()));
  CHECK_FALSE(fs::exists(path + "/model.safetensors"));
  CHECK(parse_json(content_of(path + "/job.json")).value() == other);
  CHECK_FALSE(OutputDirectory::open(path, other));
}

TEST_CASE("a directory of something else, a file and a damaged job.json are refused") {
  const test::TemporaryDirectory base;
  put(base.path + "/photo.jpg", "x");
  CHECK(refusal(base.path, job()) ==
        base.path + ": holds files that are not of a `muster run`; give another --output");
  CHECK_FALSE(fs::exists(base.path + "/lock"));
  put(base.path + "/out/job.json", "{");
  CHECK(refusal(base.path + "/out", job()).find("job.json cannot be read") != std::string::npos);
  auto file = OutputDirectory::open(base.path + "/photo.jpg", job());
  REQUIRE_FALSE(file);
  CHECK(file.error().message().starts_with(base.path + "/photo.jpg: "));
}

/// While it lives, what belongs to root is refused, as it is to most users.
class NotRoot {
 public:
  NotRoot() {
    if (was_root_) MUSTER_CHECK(::seteuid(65'534) == 0);
  }
  ~NotRoot() {
    if (was_root_) MUSTER_CHECK(::seteuid(0) == 0);
  }
  NotRoot(const NotRoot&) = delete;
  NotRoot& operator=(const NotRoot&) = delete;

 private:
  bool was_root_ = ::geteuid() == 0;
};

TEST_CASE("a directory that the system keeps from the user is no place for a run") {
  const test::TemporaryDirectory base;
  fs::permissions(base.path, fs::perms(0755));
  const auto refused = [&](const std::string& path, fs::perms permissions) {
    fs::permissions(path, permissions);
    std::string words;
    {
      const NotRoot somebody;
      words = refusal(path, job());
    }
    fs::permissions(path, fs::perms(0755));
    return words;
  };
  const std::string path = base.path + "/out";
  fs::create_directory(path);
  CHECK(refused(path, fs::perms(0555)) == path + "/lock: cannot open: Permission denied");
  CHECK(refused(path, fs::perms(0311)) == path + ": cannot list: Permission denied");
  put(path + "/lock", "");
  fs::permissions(path + "/lock", fs::perms(0444));
  CHECK(refused(path, fs::perms(0755)) == path + "/lock: cannot open: Permission denied");
  CHECK_FALSE(fs::exists(path + "/job.json"));
}

TEST_CASE("after a full disk the same directory is taken again") {
  const test::TemporaryDirectory base;
  const std::string path = base.path + "/out";
  {
    const test::FullDisk full(0);
    auto directory = OutputDirectory::open(path, job());
    REQUIRE_FALSE(directory);
    CHECK(directory.error().exit_code() == contract::exit_code::kDisk);
    CHECK(directory.error().message().find(path + "/job.json") != std::string::npos);
  }
  CHECK(OutputDirectory::open(path, job()));
  // As when the process ends in the middle of writing.
  const std::string cut = base.path + "/cut";
  put(cut + "/lock", "");
  put(cut + "/job.json.tmp", "{\"metad");
  CHECK(OutputDirectory::open(cut, job()));
}

TEST_CASE("the model is moved out of the checkpoints once it is there") {
  const test::TemporaryDirectory base;
  auto directory = OutputDirectory::open(base.path, job());
  REQUIRE(directory);
  CHECK_FALSE(directory->take_model().value());
  put(directory->checkpoints() + "/model.safetensors", "model");
  CHECK(directory->take_model().value());
  CHECK(content_of(directory->model()) == "model");
  CHECK_FALSE(fs::exists(directory->sample()));
  put(directory->checkpoints() + "/model.safetensors", "newer");
  put(directory->checkpoints() + "/sample.txt", "To be");
  put(directory->checkpoints() + "/config.json", "{}");
  CHECK(directory->take_model().value());
  CHECK(content_of(directory->model()) == "newer");
  CHECK(content_of(base.path + "/sample.txt") == "To be");
  CHECK_FALSE(fs::exists(directory->checkpoints() + "/sample.txt"));
  CHECK(content_of(base.path + "/config.json") == "{}");
}

/// An output directory whose checkpoints/ is a link to a directory of memory.
struct Elsewhere {
  test::TemporaryDirectory base, memory{"/dev/shm"};

  Elsewhere() {
    const fs::path link = base.path + "/out/checkpoints";
    {
      REQUIRE(OutputDirectory::open(base.path + "/out", job()));
    }
    fs::remove(link);
    fs::create_directory_symlink(memory.path, link);
  }
  bool is_another_disk() const {
    struct stat one{}, other{};
    REQUIRE(::stat(base.path.c_str(), &one) == 0);
    REQUIRE(::stat(memory.path.c_str(), &other) == 0);
    if (one.st_dev == other.st_dev) MESSAGE("skipped: /dev/shm and /tmp are one file system");
    return one.st_dev != other.st_dev;
  }
};

TEST_CASE("the model is moved from checkpoints on another file system, whole or not at all") {
  const Elsewhere elsewhere;
  if (!elsewhere.is_another_disk()) return;
  auto directory = OutputDirectory::open(elsewhere.base.path + "/out", job());
  REQUIRE(directory);
  put(elsewhere.memory.path + "/model.safetensors", "model");
  put(elsewhere.memory.path + "/config.json", "{}");
  const auto moved = directory->take_model();
  REQUIRE_MESSAGE(moved, moved.error().message());
  CHECK(*moved);
  CHECK(content_of(directory->model()) == "model");
  CHECK(content_of(directory->path() + "/config.json") == "{}");
  CHECK(fs::is_empty(elsewhere.memory.path));
  put(elsewhere.memory.path + "/model.safetensors", "newer");
  {
    const test::FullDisk full(2);
    const auto taken = directory->take_model();
    REQUIRE_FALSE(taken);
    CHECK(taken.error().exit_code() == contract::exit_code::kDisk);
  }
  CHECK(content_of(directory->model()) == "model");
  CHECK_FALSE(fs::exists(directory->model() + ".tmp"));
  CHECK(directory->take_model().value());
  CHECK(content_of(directory->model()) == "newer");
}

TEST_CASE("a finished run is trained anew where its checkpoints were moved to, beside others'") {
  const Elsewhere elsewhere;
  const std::string path = elsewhere.base.path + "/out";
  put(elsewhere.memory.path + "/step-000000000100/manifest.json", "{}");
  put(elsewhere.memory.path + "/record.jsonl", "x");
  put(elsewhere.memory.path + "/lost+found/theirs", "x");
  put(path + "/report.json", R"({"status": "Complete"})");
  const auto directory = OutputDirectory::open(path, job());
  REQUIRE(directory);
  CHECK(directory->resumed_from_step() == -1);
  CHECK(fs::is_symlink(directory->checkpoints()));
  CHECK_FALSE(fs::exists(path + "/previous"));  // there was no model
  CHECK_FALSE(fs::exists(elsewhere.memory.path + "/step-000000000100"));
  CHECK_FALSE(fs::exists(elsewhere.memory.path + "/record.jsonl"));
  CHECK(fs::exists(elsewhere.memory.path + "/lost+found/theirs"));
}

TEST_CASE("a file is replaced whole or not at all") {
  const test::TemporaryDirectory base;
  const std::string path = base.path + "/f";
  REQUIRE(write_file_atomically(path, "old", 0600));
  CHECK((fs::status(path).permissions() & fs::perms::all) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK_FALSE(write_file_atomically(base.path + "/no/f", "new"));
  REQUIRE(write_file_atomically(path, "new"));
  CHECK(content_of(path) == "new");
}

}  // namespace
}  // namespace muster::cli
