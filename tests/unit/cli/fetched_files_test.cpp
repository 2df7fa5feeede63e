#include "cli/fetched_files.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>

#include "common/contract.h"
#include "tests/unit/kubelet/temporary_directory.h"

namespace muster::cli {
namespace {

using test::content_of;
namespace fs = std::filesystem;

FetchedFiles fetch_into(const std::string& directory) {
  return {directory, [](const std::string& name) { return name; }, ""};
}

void give(FetchedFiles& files, const std::string& name) {
  const std::string text = "new";
  REQUIRE(files.begin_file(name, static_cast<std::int64_t>(text.size())));
  REQUIRE(files.data(text));
  REQUIRE(files.end_file());
}

TEST_CASE("what is refused is where it is said to be, also if a directory has the name for it") {
  for (const bool is_taken : {false, true}) {
    CAPTURE(is_taken);
    const test::TemporaryDirectory directory;
    const std::string model = directory.path + "/model.safetensors";
    if (is_taken) fs::create_directory(model + ".refused");
    std::string kept;
    {
      FetchedFiles files = fetch_into(directory.path);
      give(files, "model.safetensors");
      give(files, "record.jsonl");
      kept = files.set_aside(files.files()[0]);
    }
    CHECK(kept == model + (is_taken ? ".part" : ".refused"));
    CHECK(content_of(kept) == "new");
    CHECK_FALSE(fs::exists(directory.path + "/record.jsonl.part"));
  }
}

TEST_CASE("two that write into one directory do not take each other's files") {
  const test::TemporaryDirectory directory;
  const std::string place = directory.path + "/here", model = place + "/model.safetensors";
  {
    FetchedFiles first = fetch_into(place);
    REQUIRE(first.begin_file("model.safetensors", 3));
    REQUIRE(first.data("ne"));
    {
      FetchedFiles second = fetch_into(place);
      for (const char* name : {"model.safetensors", "record.jsonl"}) {
        const Status begun = second.begin_file(name, 5);
        REQUIRE_FALSE(begun);
        CHECK(begun.error().exit_code() == contract::exit_code::kUsage);
        CHECK(begun.error().message() ==
              place + ": another `muster fetch` writes here; give another --output");
      }
    }
    REQUIRE(first.data("w"));
    REQUIRE(first.end_file());
    REQUIRE(first.keep());
  }
  CHECK(content_of(model) == "new");
  CHECK(std::distance(fs::directory_iterator(place), {}) == 1);
  FetchedFiles third = fetch_into(place);
  give(third, "model.safetensors");
  CHECK(third.keep());
}

TEST_CASE("no fetched file takes its name where a directory has one of the names") {
  const test::TemporaryDirectory directory;
  fs::create_directory(directory.path + "/record.jsonl");
  {
    FetchedFiles files = fetch_into(directory.path);
    for (const char* name : {"config.json", "model.safetensors", "record.jsonl"}) give(files, name);
    CHECK_FALSE(files.keep());
  }
  CHECK(std::distance(fs::directory_iterator(directory.path), {}) == 1);
}

}  // namespace
}  // namespace muster::cli
