#include "cli/report.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "common/contract.h"
#include "tests/unit/data/idx_bytes.h"

namespace muster::cli {
namespace {

TEST_CASE("a record is read up to the first line that is cut or damaged") {
  const std::string whole =
      R"({"step":1,"epoch":0,"loss":"2.5","samples":64,"workers":2,"sha256":"ab","seconds":0.5})"
      "\n"
      R"({"evaluation":{"step":1,"accuracy":0.75,"loss":"0.9"}})"
      "\n"
      R"({"step":2,"epoch":1,"loss":"2.25","samples":64,"workers":3,"seconds":0.5})"
      "\n";
  const RunRecord record = parse_run_record(whole);
  REQUIRE(record.steps.size() == 2);
  CHECK(record.steps[0].sha256 == "ab");
  CHECK(record.steps[1].loss == "2.25");
  CHECK(record.steps[1].workers == 3);
  REQUIRE(record.evaluations.size() == 1);
  CHECK(record.evaluations[0].accuracy == 0.75);
  // Cut anywhere, it loses lines and nothing else.
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const RunRecord cut = parse_run_record(std::string_view(whole).substr(0, length));
    const std::size_t lines = static_cast<std::size_t>(
        std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length), '\n'));
    CHECK(cut.steps.size() + cut.evaluations.size() == lines);
  }
  CHECK(parse_run_record("{}\n" + whole).steps.empty());
  CHECK(parse_run_record("[1]\n").steps.empty());
  CHECK(parse_run_record("{\"evaluation\":3}\n").evaluations.empty());
}

TEST_CASE("the end of a record tells the newest step, whatever its length and wherever it is cut") {
  const test::TempDirectory directory;
  const std::string path = directory / "record.jsonl";
  CHECK(newest_recorded_step(path) == 0);
  std::string text;
  for (int step = 1; step <= 300; ++step) {
    text += R"({"step":)" + std::to_string(step) + R"(,"samples":64,"seconds":0.5})" + "\n";
    if (step % 7 == 0) text += R"({"evaluation":{"step":)" + std::to_string(step) + "}}\n";
    std::ofstream(path) << text << R"({"step":)";
    REQUIRE(newest_recorded_step(path) == step);
  }
}

TEST_CASE("a record that is too long to be read tells of its last steps") {
  const test::TempDirectory directory;
  const std::string path = directory / "record.jsonl";
  const std::string last = R"({"step":300,"epoch":2,"loss":"2.25","samples":64,"seconds":0.5})"
                           "\n"
                           R"({"evaluation":{"step":300,"accuracy":0.5}})"
                           "\n";
  {
    std::ofstream file(path);
    for (int step = 1; step < 300; ++step) {
      file << R"({"step":)" << step << R"(,"samples":64,"seconds":0.25})" << "\n";
    }
    file << last;
  }
  const auto end = read_end_of_record(path, last.size() + 10);  // and of the line before a part
  REQUIRE(end);
  CHECK(end->steps.size() == 1);
  const Json report = make_report({{"spec", {{"training", Json::object()}}}}, {}, *end);
  CHECK(report["steps"] == 300);
  CHECK(report["epochs"] == 3);
  CHECK(report["loss"] == "2.25");
  CHECK(report["accuracy"] == 0.5);
  CHECK(report["samplesPerSecond"] == 128.0);
  CHECK(read_end_of_record(path)->steps.size() == 300);
}

TEST_CASE("no record is an empty one; a directory is an error") {
  auto none = read_run_record("/nowhere/record.jsonl");
  REQUIRE(none);
  CHECK(none->steps.empty());
  CHECK_FALSE(read_run_record("/"));
  none = read_end_of_record("/nowhere/record.jsonl");
  REQUIRE(none);
  CHECK(none->steps.empty());
  CHECK_FALSE(read_end_of_record("/"));
}

TEST_CASE("the report of a training tells the whole story") {
  RunRecord record;
  record.steps = {{1, 0, 64, 2, "2.5", "aa", 0.5},
                  {2, 0, 64, 2, "2.25", "", 0.5},
                  {3, 1, 64, 3, "2", "cc", 1.0}};
  record.evaluations = {{2, 0.5, "1.5"}, {3, 0.75, "1"}};
  RunFacts facts;
  facts.outcome = "Complete";
  facts.message = "done";
  facts.seconds = 2.5;
  facts.start_to_first_step_seconds = 0.25;
  facts.sent_bytes = 1000;
  facts.logical_rank_computations = 48;
  facts.checkpoint_step = 3;
  facts.has_model = true;
  const Json job = {{"metadata", {{"name", "digits"}}},
                    {"spec", {{"training", Json::object()}}},
                    {"status",
                     {{"restarts", 1},
                      {"conditions", Json::array({{{"type", "Complete"}}})},
                      {"progress", {{"totalSteps", 3}}},
                      {"model", {{"parameters", 10}, {"sha256", "dd"}}},
                      {"contract", "fp32-chain/1"},
                      {"dataSHA256", "ee"}}}};
  Json expected = {{"job", "digits"},
                   {"status", "Complete"},
                   {"message", "done"},
                   {"exitCode", 0},
                   {"exitReason", "Completed"},
                   {"seconds", 2.5},
                   {"conditions", Json::array({{{"type", "Complete"}}})},
                   {"restarts", 1},
                   {"failure", nullptr},
                   {"sentBytes", 1000},
                   {"logicalRankComputations", 48},
                   {"model", "model.safetensors"},
                   {"checkpointStep", 3},
                   {"resumedFromStep", nullptr},
                   {"startToFirstStepSeconds", 0.25},
                   {"steps", 3},
                   {"totalSteps", 3},
                   {"epochs", 2},
                   {"loss", "2"},
                   {"accuracy", 0.75},
                   {"samplesPerSecond", 96.0},
                   {"parameters", 10},
                   {"sha256", "dd"},
                   {"dataSHA256", "ee"},
                   {"contract", "fp32-chain/1"},
                   {"evaluations", Json::array({{{"step", 2}, {"accuracy", 0.5}, {"loss", "1.5"}},
                                                {{"step", 3}, {"accuracy", 0.75}, {"loss", "1"}}})},
                   {"workersOverTime",
                    Json::array({{{"step", 1}, {"workers", 2}}, {{"step", 3}, {"workers", 3}}})}};
  CHECK(make_report(job, facts, record) == expected);
  expected["byStep"] =
      Json::array({{{"step", 1}, {"epoch", 0}, {"loss", "2.5"}, {"workers", 2}, {"sha256", "aa"}},
                   {{"step", 2}, {"epoch", 0}, {"loss", "2.25"}, {"workers", 2}},
                   {{"step", 3}, {"epoch", 1}, {"loss", "2"}, {"workers", 3}, {"sha256", "cc"}}});
  const std::string text = report_text(job, facts, record);
  CHECK(parse_json(text).value() == expected);
  // A line a step, behind all that is read of a report.
  CHECK(text.ends_with(
      "  \"byStep\": [\n"
      "    {\"epoch\":0,\"loss\":\"2.5\",\"sha256\":\"aa\",\"step\":1,\"workers\":2},\n"
      "    {\"epoch\":0,\"loss\":\"2.25\",\"step\":2,\"workers\":2},\n"
      "    {\"epoch\":1,\"loss\":\"2\",\"sha256\":\"cc\",\"step\":3,\"workers\":3}\n"
      "  ]\n"
      "}\n"));
  CHECK(parse_json(report_text(job, facts, {})).value()["byStep"] == Json::array());
}

TEST_CASE("the report of a model that reads text tells the tokens a second, too") {
  RunRecord record;
  record.steps = {{1, 0, 16, 2, "2.5", "", 0.25}, {2, 0, 16, 2, "2.25", "", 0.25}};
  const Json job = {
      {"metadata", {{"name", "text"}}},
      {"spec", {{"training", {{"model", {{"gpt", {{"layers", 4}, {"contextLength", 64}}}}}}}}}};
  CHECK(tokens_per_sample(job) == 64);
  const Json report = make_report(job, {}, record);
  CHECK(report["samplesPerSecond"] == 64.0);
  CHECK(report["tokensPerSecond"] == 4096.0);
  // Of a training that made no step neither is known.
  CHECK(make_report(job, {}, {})["tokensPerSecond"] == nullptr);
  CHECK(tokens_per_sample(Json()) == 0);
}

TEST_CASE("the report of a run that never began is whole, too") {
  RunFacts facts;
  facts.outcome = "Failed";
  facts.exit_code = contract::exit_code::kData;
  const Json report = parse_json(report_text(Json(), facts, {})).value();
  CHECK(report["status"] == "Failed");
  CHECK(report["exitReason"] == "DataInvalid");
  CHECK(report["restarts"] == 0);
  CHECK(report["conditions"] == Json::array());
  CHECK_FALSE(report.contains("byStep"));
}

}  // namespace
}  // namespace muster::cli
