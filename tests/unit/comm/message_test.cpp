#include "worker/comm/message.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>

#include "common/rng.h"
#include "tests/test_main.h"
#include "worker/comm/crc32c.h"

using namespace muster;
using namespace muster::comm;

namespace {

// `bytes` cut into pieces at random, empty ones among them.
Message cut(Rng& rng, std::vector<unsigned char>& bytes) {
  Message message;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t length = std::min<std::size_t>(rng.below(40), bytes.size() - at);
    message.add(bytes.data() + at, length);
    at += length;
  }
  return message;
}

}  // namespace

TEST_CASE("a message of many pieces reads as the bytes one after the other") {
  Rng rng(test::seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<unsigned char> bytes(1 + rng.below(500));
    for (unsigned char& b : bytes) b = static_cast<unsigned char>(rng());
    const Message message = cut(rng, bytes);
    REQUIRE(message.bytes() == bytes.size());

    PiecePosition position;
    std::size_t done = 0;
    while (done < bytes.size()) {
      const std::size_t want = 1 + rng.below(bytes.size() - done);
      REQUIRE(message.crc(position, want) == crc32c(0, bytes.data() + done, want));
      std::vector<iovec> out;
      const std::size_t got = message.collect(position, want, 3, out);
      REQUIRE(out.size() <= 3);
      REQUIRE(got > 0);
      std::vector<unsigned char> read;
      for (const iovec& piece : out) {
        const auto* from = static_cast<const unsigned char*>(piece.iov_base);
        read.insert(read.end(), from, from + piece.iov_len);
      }
      REQUIRE(read ==
              std::vector<unsigned char>(bytes.begin() + static_cast<std::ptrdiff_t>(done),
                                         bytes.begin() + static_cast<std::ptrdiff_t>(done + got)));
      position = message.advance(position, got);
      done += got;
    }
  }
}

TEST_CASE("a message is copied into one cut elsewhere") {
  Rng rng(test::seed());
  for (int round = 0; round < 200; ++round) {
    std::vector<unsigned char> from(rng.below(300));
    for (unsigned char& b : from) b = static_cast<unsigned char>(rng());
    std::vector<unsigned char> to(from.size());
    copy(cut(rng, from), cut(rng, to));
    REQUIRE(from == to);
  }
}
