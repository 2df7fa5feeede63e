#include "common/split.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace {

using namespace muster;

TEST_CASE("the splits that a worker says would fit are read back as it has told them") {
  const std::vector<Split> fits{{1, 2}, {2, 1}, {2, 2}, {64, 64}};
  const std::string sentence = needs_split_sentence("it needs 142 MiB and may have 110 MiB", fits);
  CHECK(sentence ==
        "it needs 142 MiB and may have 110 MiB; tensor x pipeline that fit: 1x2, 2x1, 2x2, 64x64");
  CHECK(read_needs_split(sentence) == fits);
  CHECK(read_needs_split("slot 3: " + sentence + "\n") == fits);
  const std::vector<Split> many(2 * kMaxSplitsTold, Split{3, 4});
  CHECK(read_needs_split(needs_split_sentence("", many)) ==
        std::vector<Split>(kMaxSplitsTold, Split{3, 4}));
}

TEST_CASE("of a sentence that no worker would write nothing is taken on trust") {
  const auto read = [](const std::string& list) {
    return read_needs_split("why; tensor x pipeline that fit: " + list);
  };
  for (const char* list : {"", " 1x2", "0x2", "2x0", "65x1", "1x65", "-1x2", "x2", "2", "2x", "2y2",
                           "99999999999x1", "1 x 2"}) {
    CAPTURE(list);
    CHECK(read(list).empty());
  }
  CHECK(read("1x2, 0x3, 2x2") == std::vector<Split>{{1, 2}});
  CHECK(read("1x2,2x2") == std::vector<Split>{{1, 2}});
  CHECK(read_needs_split("").empty());
  CHECK(read_needs_split("1x2, 2x1").empty());
  std::string many = "1x1";
  for (int i = 0; i < 1000; ++i) many += ", 1x1";
  CHECK(read(many).size() == kMaxSplitsTold);
}

}  // namespace
