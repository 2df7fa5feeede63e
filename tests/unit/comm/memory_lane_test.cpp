#include "worker/comm/memory_lane.h"

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::comm;

namespace {

const Proof kProof{std::byte{1}, std::byte{2}};
const std::size_t kRing = MemoryLane::ring_bytes(1);

struct Pair {
  std::unique_ptr<MemoryLane> maker, finder;
};

Pair connected_lanes(std::size_t ring_bytes = kRing) {
  auto maker = MemoryLane::make(kProof, ring_bytes);
  REQUIRE(maker);
  auto finder = MemoryLane::open((*maker)->offer(), kProof);
  REQUIRE(finder);
  (*maker)->close_offer();
  return {*std::move(maker), *std::move(finder)};
}

MemoryLane::Moved write(MemoryLane& lane, std::vector<std::byte> bytes) {
  const iovec piece{bytes.data(), bytes.size()};
  const auto moved = lane.write({&piece, 1});
  REQUIRE(moved);
  return *moved;
}

// As many of `bytes` bytes as there are.
MemoryLane::Moved read(MemoryLane& lane, std::size_t bytes) {
  std::vector<std::byte> into(bytes);
  const iovec piece{into.data(), into.size()};
  const auto moved = lane.read({&piece, 1});
  REQUIRE(moved);
  return *moved;
}

void fill(MemoryLane& lane) {
  while (write(lane, std::vector<std::byte>(kRing)).bytes > 0) continue;
}

}  // namespace

TEST_CASE("what goes into a lane comes out of it in order, both ways, however it is cut") {
  Rng rng(test::seed());
  const Pair lanes = connected_lanes(MemoryLane::ring_bytes(1000));
  std::deque<std::byte> under_way[2];
  std::size_t moved_bytes = 0;
  for (int turn = 0; turn < test::tries(4000); ++turn) {
    const std::size_t way = rng.below(2);
    MemoryLane& from = way == 0 ? *lanes.maker : *lanes.finder;
    MemoryLane& to = way == 0 ? *lanes.finder : *lanes.maker;
    std::vector<std::byte> buffer(rng.below(100'000) + 1);
    const std::size_t cut = rng.below(buffer.size());
    const std::vector<iovec> pieces{{buffer.data(), cut},
                                    {buffer.data() + cut, buffer.size() - cut}};
    if (rng.below(2) == 0) {
      for (std::byte& one : buffer) one = static_cast<std::byte>(rng.below(256));
      const auto moved = from.write(pieces);
      REQUIRE(moved);
      under_way[way].insert(under_way[way].end(), buffer.begin(),
                            buffer.begin() + static_cast<std::ptrdiff_t>(moved->bytes));
      continue;
    }
    const auto moved = to.read(pieces);
    REQUIRE(moved);
    REQUIRE(moved->bytes <= under_way[way].size());
    REQUIRE((moved->bytes > 0 || under_way[way].empty()));
    const auto end = under_way[way].begin() + static_cast<std::ptrdiff_t>(moved->bytes);
    REQUIRE(std::equal(under_way[way].begin(), end, buffer.begin()));
    under_way[way].erase(under_way[way].begin(), end);
    moved_bytes += moved->bytes;
  }
  CHECK(moved_bytes > 10 * MemoryLane::ring_bytes(1000));
}

TEST_CASE("a reader that found nothing is woken by the next write, and by no other") {
  const Pair lanes = connected_lanes();
  CHECK_FALSE(write(*lanes.maker, std::vector<std::byte>(10)).wakes);
  CHECK(read(*lanes.finder, 100).bytes == 10);
  CHECK(read(*lanes.finder, 100).bytes == 0);
  CHECK(write(*lanes.maker, std::vector<std::byte>(10)).wakes);
  CHECK_FALSE(write(*lanes.maker, std::vector<std::byte>(10)).wakes);
  CHECK_MESSAGE(read(*lanes.finder, 100).bytes == 20,
                "and the other direction knows nothing of it");
  CHECK_FALSE(write(*lanes.finder, std::vector<std::byte>(10)).wakes);
}

TEST_CASE("a writer before a full lane is woken once, when half of it is free") {
  const Pair lanes = connected_lanes();
  fill(*lanes.maker);
  std::size_t left = kRing;
  int wakes = 0;
  while (left > 0) {
    const auto moved = read(*lanes.finder, 10'000);
    left -= moved.bytes;
    if (moved.wakes) CHECK(left <= kRing / 2);
    wakes += moved.wakes ? 1 : 0;
  }
  CHECK(wakes == 1);
  CHECK(write(*lanes.maker, std::vector<std::byte>(10)).bytes == 10);
}

TEST_CASE("a lane is found by its proof alone, and nothing else is taken for one") {
  const auto maker = MemoryLane::make(kProof, kRing);
  REQUIRE(maker);
  const LaneOffer offer = (*maker)->offer();
  Proof other = kProof;
  other[31] = std::byte{9};
  const auto wrong = MemoryLane::open(offer, other);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code() == ErrorCode::kUnauthorized);

  const auto code_of = [](const LaneOffer& one) {
    const auto opened = MemoryLane::open(one, kProof);
    REQUIRE_FALSE(opened);
    return opened.error().code();
  };
  const auto own = static_cast<std::uint32_t>(getpid());
  CHECK(code_of({own, 0}) == ErrorCode::kNotFound);          // standard input
  CHECK(code_of({own, 4'000'000}) == ErrorCode::kNotFound);  // nothing
  CHECK(code_of({0xFFFFFFFFu, 3}) == ErrorCode::kNotFound);  // nobody
  const UniqueFd unsealed(memfd_create("muster-lane", MFD_CLOEXEC));
  REQUIRE(ftruncate(unsealed.get(), 4096 + 2 * static_cast<off_t>(kRing)) == 0);
  CHECK(code_of({own, static_cast<std::uint32_t>(unsealed.get())}) == ErrorCode::kNotFound);
  (*maker)->close_offer();
  CHECK(code_of(offer) == ErrorCode::kNotFound);
}

TEST_CASE("counts that cannot be are the other side's nonsense") {
  auto maker = MemoryLane::make(kProof, kRing);
  REQUIRE(maker);
  const auto fd = static_cast<int>((*maker)->offer().fd);
  void* const head = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(head != MAP_FAILED);
  std::memset(static_cast<std::byte*>(head) + sizeof(Proof), 0x55, 4096 - sizeof(Proof));
  munmap(head, 4096);
  std::vector<std::byte> buffer(100);
  const iovec piece{buffer.data(), buffer.size()};
  const auto written = (*maker)->write({&piece, 1});
  const auto got = (*maker)->read({&piece, 1});
  REQUIRE_FALSE(written);
  REQUIRE_FALSE(got);
  CHECK(written.error().code() == ErrorCode::kCorrupt);
  CHECK(got.error().code() == ErrorCode::kCorrupt);
}

TEST_CASE("all lanes of a process together take a few MiB, however many there are") {
  CHECK(MemoryLane::ring_bytes(1) == 1 << 20);
  CHECK(MemoryLane::ring_bytes(3) == 1 << 20);
  for (const std::size_t lanes : {1u, 2u, 3u, 4u, 7u, 15u, 63u}) {
    CHECK(lanes * MemoryLane::ring_bytes(lanes) <= 4u << 20);
  }
  CHECK(MemoryLane::ring_bytes(4095) == 64 << 10);
}
