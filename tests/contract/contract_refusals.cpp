// What is refused and what is taken of jobs and of their changes: the tables of tests/cluster, of
// which every API server must say the same, with the same field.
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/contract/api_contract.h"

namespace muster::contract_test {
namespace {

constexpr std::size_t kLeastRows = 400;

/// The lines of JSON that tests/cluster/refusals_table.py prints.
std::vector<Json> table_rows() {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
      popen("python3 tests/cluster/refusals_table.py", "r"), pclose);
  REQUIRE(pipe != nullptr);
  std::string text;
  std::vector<char> piece(std::size_t{1} << 16);
  while (const auto got = std::fread(piece.data(), 1, piece.size(), pipe.get())) {
    text.append(piece.data(), got);
  }
  std::vector<Json> rows;
  for (std::size_t start = 0; start < text.size();) {
    const auto end = text.find('\n', start);
    REQUIRE(end != std::string::npos);
    auto row = parse_json(std::string_view(text).substr(start, end - start));
    REQUIRE_MESSAGE(row, row.error().message());
    rows.push_back(std::move(*row));
    start = end + 1;
  }
  REQUIRE(rows.size() >= kLeastRows);
  return rows;
}

/// The rows that have this field.
std::vector<Json> rows_with(const char* field) {
  static const std::vector<Json> kRows = table_rows();
  std::vector<Json> found;
  for (const Json& row : kRows) {
    if (row.contains(field)) found.push_back(row);
  }
  return found;
}

void check_verdict(const Json& row, const Answer& answer) {
  INFO(row["what"].get<std::string>(), ": ", answer.code, " ", answer.message());
  // 400 or 422: which part of a server has looked first.
  CHECK(answer.code / 100 == row["code"].get<int>() / 100);
  CHECK(answer.message().find(row["field"].get<std::string>()) != std::string::npos);
}

}  // namespace

TEST_CASE("a manifest that cannot be right is refused with its field, and one that can is taken") {
  const auto ns = new_namespace();
  const auto rows = rows_with("text");
  REQUIRE(rows.size() >= kLeastRows);
  for (const Json& row : rows) {
    const auto answer = call_text("POST", jobs_path(ns), row["text"].get<std::string>());
    check_verdict(row, answer);
    if (answer.code == 201) call("DELETE", jobs_path(ns, answer.meta("name")));
  }
}

TEST_CASE("a queue or a topology that cannot be right is refused with its field") {
  const auto rows = rows_with("kind");
  REQUIRE(rows.size() >= 10);
  for (const Json& row : rows) {
    const std::string path = "/apis/muster.dev/v1alpha1/" + row["kind"].get<std::string>();
    check_verdict(row, call("POST", path, row["body"]));
  }
}

TEST_CASE("a change of a job is judged by what the job was and what has become of it") {
  const auto ns = new_namespace();
  const auto rows = rows_with("patch");
  REQUIRE(rows.size() >= 30);
  int count = 0;
  for (const Json& row : rows) {
    Json body = row["body"];
    const std::string name = "change-" + std::to_string(++count);
    body["metadata"]["name"] = name;
    const auto made = call("POST", jobs_path(ns), body);
    REQUIRE_MESSAGE(made.code == 201, row["what"], made.message());
    const auto status = patch(jobs_path(ns, name) + "/status", {{"status", row["status"]}});
    REQUIRE_MESSAGE(status.code == 200, row["what"], status.message());
    for (const Json& change : row["first"]) {
      const auto taken = patch(jobs_path(ns, name), {{"spec", change}});
      REQUIRE_MESSAGE(taken.code == 200, row["what"], taken.message());
    }
    check_verdict(row, patch(jobs_path(ns, name), {{"spec", row["patch"]}}));
  }
}

}  // namespace muster::contract_test
