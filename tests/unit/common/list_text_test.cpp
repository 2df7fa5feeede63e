#include "common/list_text.h"

#include <doctest/doctest.h>

#include <map>
#include <vector>

using muster::list_text;

TEST_CASE("of a list so many are named, and how many more there are") {
  const std::vector<std::string> names{"a", "b", "c"};
  CHECK(list_text(names, 4) == "a, b, c");
  CHECK(list_text(names, 3) == "a, b, c");
  CHECK(list_text(names, 2) == "a, b and 1 more");
  CHECK(list_text(std::vector<std::string>{}, 2).empty());
  const std::map<std::string, int> counts{{"a", 2}, {"b", 1}, {"c", 4}};
  CHECK(list_text(counts, 1, [](const auto& one) {
          return one.first + " (" + std::to_string(one.second) + ")";
        }) == "a (2) and 2 more");
}
