#include "cli/cluster_names.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/test_main.h"

namespace muster::cli {
namespace {

using Found = std::vector<std::string>;
using Kind = ClusterNames::Kind;

TEST_CASE("names to complete are those of the kind that begin with what is there") {
  const std::string output = "trainingjob.muster.dev/digits\ntrainingjob.muster.dev/own.x\n";
  CHECK(names_in(output, {Kind::kJobs, ""}) == Found{"digits", "own.x"});
  CHECK(names_in(output, {Kind::kJobs, "d"}) == Found{"digits"});
  CHECK(names_in(output, {Kind::kNamespaces, ""}).empty());
  CHECK(names_in("namespace/lab\n", {Kind::kNamespaces, "l"}) == Found{"lab"});
  CHECK(names_in("me@lab\n", {Kind::kContexts, ""}) == Found{"me@lab"});
  // The last one may be the beginning of a longer one.
  CHECK(names_in("namespace/lab\nnamespace/kube-", {Kind::kNamespaces, ""}) == Found{"lab"});
}

TEST_CASE("what a shell would read as more than a name is no name to complete") {
  for (const char* bad : {"", "$(exit)", "`x`", "a;b", "a b", "-o", "../x", "*", "\xc3\xa9",
                          "a\x1b[31m", "a\tb", "a\r"}) {
    CAPTURE(bad);
    CHECK(names_in("trainingjob.muster.dev/" + std::string(bad) + "\n", {Kind::kJobs, ""}).empty());
    CHECK(names_in(std::string(bad) + "\n", {Kind::kContexts, ""}).empty());
  }
  const std::string longest(253, 'a');
  CHECK(names_in(longest + "\n" + longest + "a\n", {Kind::kContexts, ""}) == Found{longest});
}

TEST_CASE("of very many names some hundreds are completed") {
  std::string output;
  for (int i = 0; i < 10'000; ++i) output += "namespace/n" + std::to_string(i) + "\n";
  CHECK(names_in(output, {Kind::kNamespaces, ""}).size() == 500);
  CHECK(names_in(output, {Kind::kNamespaces, "n9999"}) == Found{"n9999"});
}

}  // namespace
}  // namespace muster::cli
