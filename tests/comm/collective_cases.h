// What every transport must do: the same cases for ranks connected by memory and by TCP. A rank is
// a thread.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/rng.h"
#include "tests/test_main.h"
#include "worker/comm/communicator.h"

namespace muster::test {

using Ranks = std::vector<std::unique_ptr<comm::Communicator>>;

/// Longer than any machine needs; only a hang reaches it.
inline constexpr seconds kPatience{60};

/// Runs `body(rank)` for all ranks at once and returns what each returned.
inline std::vector<Status> on_all(int size, const std::function<Status(int)>& body) {
  std::vector<Status> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { results[static_cast<std::size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

inline std::string text_of(const Status& status) {
  return status ? "ok"
                : std::string(to_string(status.error().code())) + ": " + status.error().message();
}

/// Byte `i` of what rank `from` sends to rank `to` in `step`: a mix that differs between all of
/// them.
inline std::byte payload(int from, int to, std::uint64_t step, std::size_t i) {
  const std::uint64_t key =
      seed() * 1'000'003 + step * 4099 + static_cast<std::uint64_t>(from * 64 + to) + (i << 20);
  return static_cast<std::byte>(key * 0x9E3779B97F4A7C15ull >> 53);
}

/// Length of what rank `from` sends to `to`: nothing, a byte, odd lengths, more than a frame.
inline std::size_t length(int from, int to, std::uint64_t step) {
  constexpr std::size_t kLengths[] = {0, 1, 17, 4096 * 4, 262'144, 262'145, 700'001, 9999};
  return kLengths[(static_cast<std::size_t>(from) * 3 + static_cast<std::size_t>(to) + step) % 8];
}

inline Status one_all_to_all(comm::Communicator& self, std::uint64_t step, MonoTime deadline,
                             std::size_t& wrong) {
  const int size = self.size();
  const int rank = self.rank();
  std::vector<std::vector<std::byte>> out(static_cast<std::size_t>(size));
  std::vector<std::vector<std::byte>> in(static_cast<std::size_t>(size));
  std::vector<std::span<const std::byte>> sends;
  std::vector<std::span<std::byte>> receives;
  for (int peer = 0; peer < size; ++peer) {
    auto& to = out[static_cast<std::size_t>(peer)];
    to.resize(length(rank, peer, step));
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = payload(rank, peer, step, i);
    in[static_cast<std::size_t>(peer)].resize(length(peer, rank, step));
    sends.emplace_back(to);
    receives.emplace_back(in[static_cast<std::size_t>(peer)]);
  }
  MUSTER_RETURN_IF_ERROR(comm::all_to_all(self, step, sends, receives, deadline));
  for (int peer = 0; peer < size; ++peer) {
    const auto& from = in[static_cast<std::size_t>(peer)];
    for (std::size_t i = 0; i < from.size(); ++i) wrong += from[i] != payload(peer, rank, step, i);
  }
  return {};
}

inline Status one_all_gather(comm::Communicator& self, std::uint64_t step, MonoTime deadline,
                             std::size_t& wrong) {
  std::vector<std::size_t> offsets{0};
  for (int rank = 0; rank < self.size(); ++rank) {
    offsets.push_back(offsets.back() + length(rank, 0, step));
  }
  std::vector<std::byte> buffer(offsets.back());
  const auto own = static_cast<std::size_t>(self.rank());
  for (std::size_t i = offsets[own]; i < offsets[own + 1]; ++i) {
    buffer[i] = payload(self.rank(), 0, step, i);
  }
  MUSTER_RETURN_IF_ERROR(comm::all_gather(self, step, buffer, offsets, deadline));
  for (int rank = 0; rank < self.size(); ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    for (std::size_t i = offsets[index]; i < offsets[index + 1]; ++i) {
      wrong += buffer[i] != payload(rank, 0, step, i);
    }
  }
  return {};
}

inline Status one_broadcast(comm::Communicator& self, std::uint64_t step, MonoTime deadline,
                            std::size_t& wrong) {
  const int root = static_cast<int>(step % static_cast<std::uint64_t>(self.size()));
  std::vector<std::byte> buffer(length(root, 0, step));
  for (std::size_t i = 0; i < buffer.size() && self.rank() == root; ++i) {
    buffer[i] = payload(root, 0, step, i);
  }
  MUSTER_RETURN_IF_ERROR(comm::broadcast(self, step, root, buffer, deadline));
  for (std::size_t i = 0; i < buffer.size(); ++i) wrong += buffer[i] != payload(root, 0, step, i);
  return {};
}

inline void run_collectives(Ranks& ranks, const Clock& clock) {
  const int size = static_cast<int>(ranks.size());
  std::vector<std::size_t> wrong(ranks.size());
  const auto results = on_all(size, [&](int rank) -> Status {
    comm::Communicator& self = *ranks[static_cast<std::size_t>(rank)];
    std::size_t& errors = wrong[static_cast<std::size_t>(rank)];
    if (self.rank() != rank || self.size() != size) ++errors;
    const MonoTime deadline = clock.mono_now() + kPatience;
    for (std::uint64_t step = 1; step <= 9; ++step) {
      MUSTER_RETURN_IF_ERROR(one_all_to_all(self, step, deadline, errors));
      MUSTER_RETURN_IF_ERROR(one_all_gather(self, step, deadline, errors));
      MUSTER_RETURN_IF_ERROR(one_broadcast(self, step, deadline, errors));
      MUSTER_RETURN_IF_ERROR(comm::barrier(self, step, deadline));
    }
    return {};
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CHECK_MESSAGE(results[rank], text_of(results[rank]));
    CHECK(wrong[rank] == 0);
  }
}

/// Rank 0 sends 3 pieces, rank 1 receives them as 2, and the other way round.
inline void run_uneven_pieces(Ranks& ranks, const Clock& clock) {
  std::vector<std::vector<std::byte>> got(2, std::vector<std::byte>(300'000));
  const auto results = on_all(2, [&](int rank) -> Status {
    std::vector<std::byte> out(300'000);
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = payload(rank, 1 - rank, 1, i);
    std::vector<std::byte>& in = got[static_cast<std::size_t>(rank)];
    const int peer = 1 - rank;
    const std::vector<comm::SendBuffer> sends{{peer, out.data(), 7},
                                              {peer, out.data() + 7, 0},
                                              {peer, out.data() + 7, 280'000},
                                              {peer, out.data() + 280'007, out.size() - 280'007}};
    const std::vector<comm::ReceiveBuffer> receives{{peer, in.data(), 100'000},
                                                    {peer, in.data() + 100'000, 200'000}};
    MUSTER_ASSIGN_OR_RETURN(auto work, ranks[static_cast<std::size_t>(rank)]->start(
                                           1, comm::Memory::kHost, sends, receives));
    return work->wait(clock.mono_now() + kPatience);
  });
  for (int rank = 0; rank < 2; ++rank) {
    const auto index = static_cast<std::size_t>(rank);
    CHECK_MESSAGE(results[index], text_of(results[index]));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got[index].size(); ++i) {
      wrong += got[index][i] != payload(1 - rank, rank, 1, i);
    }
    CHECK(wrong == 0);
  }
}

/// Both groups are started before either is waited for, and waited for in the other order.
inline void run_two_groups(Ranks& ranks, const Clock& clock) {
  std::vector<std::size_t> wrong(2);
  const auto results = on_all(2, [&](int rank) -> Status {
    const int peer = 1 - rank;
    constexpr std::size_t kBytes = 3'000'000;
    std::vector<std::unique_ptr<comm::Work>> works;
    std::vector<std::vector<std::byte>> out(2, std::vector<std::byte>(kBytes));
    std::vector<std::vector<std::byte>> in(2, std::vector<std::byte>(kBytes));
    for (std::size_t group = 0; group < 2; ++group) {
      for (std::size_t i = 0; i < kBytes; i += 97) out[group][i] = payload(rank, peer, group, i);
      const comm::SendBuffer send{peer, out[group].data(), kBytes};
      const comm::ReceiveBuffer receive{peer, in[group].data(), kBytes};
      MUSTER_ASSIGN_OR_RETURN(
          auto work, ranks[static_cast<std::size_t>(rank)]->start(group, comm::Memory::kHost,
                                                                  {&send, 1}, {&receive, 1}));
      works.push_back(std::move(work));
    }
    MUSTER_RETURN_IF_ERROR(works[1]->wait(clock.mono_now() + kPatience));
    MUSTER_RETURN_IF_ERROR(works[0]->wait(clock.mono_now() + kPatience));
    for (std::size_t group = 0; group < 2; ++group) {
      for (std::size_t i = 0; i < kBytes; i += 97) {
        wrong[static_cast<std::size_t>(rank)] += in[group][i] != payload(peer, rank, group, i);
      }
    }
    return {};
  });
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK_MESSAGE(results[rank], text_of(results[rank]));
    CHECK(wrong[rank] == 0);
  }
}

/// Rank 0 of three waits for what comes from rank 1, while rank 2 has sent nothing, and then for
/// rank 2, which ends instead.
inline void run_waits_for_some(Ranks& ranks, const Clock& clock) {
  REQUIRE(ranks.size() == 3);
  constexpr std::size_t kBytes = 700'001;  // more than a frame
  std::vector<std::byte> out(kBytes, std::byte{7}), first(kBytes), second(kBytes);
  const comm::ReceiveBuffer receives[] = {{1, first.data(), kBytes}, {2, second.data(), kBytes}};
  const auto in_time = [&] { return clock.mono_now() + kPatience; };
  auto work = ranks[0]->start(1, comm::Memory::kHost, {}, receives);
  REQUIRE(work);
  std::thread sender([&] {
    const comm::SendBuffer send{0, out.data(), kBytes};
    auto sent = ranks[1]->start(1, comm::Memory::kHost, {&send, 1}, {});
    REQUIRE(sent);
    const Status is_sent = (*sent)->wait(in_time());
    CHECK_MESSAGE(is_sent, text_of(is_sent));
  });
  const std::vector<int> from_first{1}, from_second{2};
  const Status is_there = (*work)->wait_for(from_first, in_time());
  CHECK_MESSAGE(is_there, text_of(is_there));
  CHECK(first == out);
  sender.join();
  CHECK((*work)->wait_for({}, in_time()));
  std::thread ender([&] { ranks[2]->abort(); });
  const Status never = (*work)->wait_for(from_second, in_time());
  ender.join();
  REQUIRE_FALSE(never);
  CHECK(never.error().code() == ErrorCode::kAborted);
}

/// Rank 2 waits for rank 1, the first of a subset, who sends nothing; nor is rank 0, which it is
/// owed nothing by, taken for it.
inline void run_waits_for_some_of_subset(Ranks& ranks, const Clock& clock) {
  REQUIRE(ranks.size() == 3);
  const auto subset = comm::make_subset(*ranks[2], {1, 2}, 1);
  std::byte in{};
  const comm::ReceiveBuffer receive{0, &in, 1};
  const auto work = subset->start(1, comm::Memory::kHost, {}, {&receive, 1});
  REQUIRE(work);
  const std::vector<int> first{0};
  const Status never = (*work)->wait_for(first, clock.mono_now());
  REQUIRE_FALSE(never);
  CHECK(never.error().code() == ErrorCode::kDeadlineExceeded);
}

/// Rank 0 sends 10 bytes where rank 1 expects 1,000, and waits for an answer that cannot come.
inline void run_length_mismatch(Ranks& ranks, const Clock& clock) {
  const auto results = on_all(2, [&](int rank) -> Status {
    std::vector<std::byte> out(1000);
    std::vector<std::byte> in(1000);
    const std::span<std::byte> none;
    const std::span<const std::byte> nothing;
    std::vector<std::span<const std::byte>> sends{nothing, nothing};
    std::vector<std::span<std::byte>> receives{none, none};
    if (rank == 0) {
      sends[1] = std::span<const std::byte>(out).first(10);
      receives[1] = in;
    } else {
      receives[0] = in;
    }
    return comm::all_to_all(*ranks[static_cast<std::size_t>(rank)], 1, sends, receives,
                            clock.mono_now() + kPatience);
  });
  REQUIRE_FALSE(results[0]);
  REQUIRE_FALSE(results[1]);
  CHECK_MESSAGE(results[1].error().code() == ErrorCode::kCorrupt, text_of(results[1]));
  CHECK(results[1].error().message().find("10 bytes") != std::string::npos);
  CHECK_MESSAGE(results[0].error().code() == ErrorCode::kAborted, text_of(results[0]));
}

/// Ranks 0 and 1 wait; another thread aborts rank 2.
inline void run_abort(Ranks& ranks, const Clock& clock) {
  const auto results = on_all(3, [&](int rank) -> Status {
    comm::Communicator& self = *ranks[static_cast<std::size_t>(rank)];
    MUSTER_RETURN_IF_ERROR(comm::barrier(self, 1, clock.mono_now() + kPatience));
    if (rank == 2) {
      self.abort();
      self.abort();
    }
    return comm::barrier(self, 2, clock.mono_now() + kPatience);
  });
  for (const Status& result : results) {
    REQUIRE_FALSE(result);
    CHECK_MESSAGE(result.error().code() == ErrorCode::kAborted, text_of(result));
  }
}

/// Counts of an uneven all_to_all and an all_gather, with at most `overhead` bytes a message.
inline void run_bytes_sent(Ranks& ranks, const Clock& clock, std::uint64_t overhead) {
  const int size = static_cast<int>(ranks.size());
  std::vector<std::uint64_t> sent(ranks.size());
  std::vector<std::uint64_t> due(ranks.size());
  const auto results = on_all(size, [&](int rank) -> Status {
    comm::Communicator& self = *ranks[static_cast<std::size_t>(rank)];
    const auto index = static_cast<std::size_t>(rank);
    const std::uint64_t before = self.sent_bytes();
    for (int peer = 0; peer < size; ++peer) {
      if (peer != rank) due[index] += length(rank, peer, 5);
    }
    due[index] += length(rank, 0, 6) * static_cast<std::uint64_t>(size - 1);
    std::size_t wrong = 0;
    MUSTER_RETURN_IF_ERROR(one_all_to_all(self, 5, clock.mono_now() + kPatience, wrong));
    MUSTER_RETURN_IF_ERROR(one_all_gather(self, 6, clock.mono_now() + kPatience, wrong));
    sent[index] = self.sent_bytes() - before;
    return {};
  });
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    CHECK_MESSAGE(results[rank], text_of(results[rank]));
    CHECK(sent[rank] >= due[rank]);
    CHECK(sent[rank] <= due[rank] + overhead);
  }
}

/// Ranks that meet in rows and in columns, row 0 far more often than the others: who is in no group
/// of transfers counts none.
inline void run_subsets(Ranks& ranks, const Clock& clock) {
  constexpr int kRows = 2, kColumns = 3;
  REQUIRE(ranks.size() == kRows * kColumns);
  std::vector<std::size_t> wrong(ranks.size());
  const auto results = on_all(kRows * kColumns, [&](int rank) -> Status {
    comm::Communicator& all = *ranks[static_cast<std::size_t>(rank)];
    const int row = rank / kColumns, column = rank % kColumns;
    const auto in_row =
        comm::make_subset(all, {row * kColumns, row * kColumns + 1, row * kColumns + 2}, 1);
    const auto in_column = comm::make_subset(all, {column, kColumns + column}, 2);
    CHECK(in_row->rank() == column);
    CHECK(in_column->rank() == row);
    CHECK(in_column->size() == kRows);
    std::size_t& bad = wrong[static_cast<std::size_t>(rank)];
    const MonoTime deadline = clock.mono_now() + kPatience;
    for (std::uint64_t step = 1; step <= 8; ++step) {
      for (int times = row == 0 ? 3 : 1; times > 0; --times) {
        MUSTER_RETURN_IF_ERROR(one_all_to_all(*in_row, step, deadline, bad));
      }
      MUSTER_RETURN_IF_ERROR(one_all_to_all(*in_column, step, deadline, bad));
    }
    return comm::barrier(all, 9, deadline);
  });
  for (const Status& result : results) CHECK(text_of(result) == "ok");
  for (const std::size_t bad : wrong) CHECK(bad == 0);
}

}  // namespace muster::test
