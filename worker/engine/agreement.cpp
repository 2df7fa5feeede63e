#include "worker/engine/agreement.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "common/contract.h"

namespace muster::engine {
namespace {

std::int32_t code_of(const Status& status) {
  if (status) return 0;
  const int code = status.error().exit_code();
  return code != 0 ? code : contract::exit_code::kInternal;
}

/// One value of every process, by rank.
template <typename T>
Result<std::vector<T>> gather(comm::Communicator& communicator, const T& own, std::uint64_t step,
                              MonoTime deadline) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(communicator.size()), 1);
  auto all = gather_lists(communicator, std::vector<T>{own}, counts, step, deadline);
  if (!all) return peer_error(all.error());
  return all;
}

/// Ends as a lost peer does, so that the process with the cause is the one a person is told about.
Error failed_elsewhere(std::size_t rank, const char* what, int code) {
  return Error(ErrorCode::kAborted, "process " + std::to_string(rank) + " could not " + what +
                                        " (exit code " + std::to_string(code) + "); see its log")
      .with_exit_code(contract::exit_code::kPeerLost);
}

}  // namespace

Error peer_error(const Error& error) {
  return error.exit_code() != 0 ? error : error.with_exit_code(contract::exit_code::kPeerLost);
}

Status agree_equal(comm::Communicator& communicator, const Sha256Digest& digest, const char* what,
                   int exit_code, MonoTime deadline) {
  MUSTER_ASSIGN_OR_RETURN(const auto digests, gather(communicator, digest, 0, deadline));
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    if (digests[rank] != digests[0]) {
      return Error(ErrorCode::kConflict, "process " + std::to_string(rank) +
                                             " and process 0 have " + "different " + what +
                                             "; they must be the same")
          .with_exit_code(exit_code);
    }
  }
  return {};
}

Result<std::vector<std::uint8_t>> gather_flags(comm::Communicator& communicator, bool own,
                                               std::uint64_t step, MonoTime deadline) {
  return gather(communicator, std::uint8_t{own}, step, deadline);
}

Result<std::vector<std::vector<std::uint64_t>>> gather_sums(comm::Communicator& communicator,
                                                            const std::vector<std::uint64_t>& own,
                                                            std::uint64_t step, MonoTime deadline) {
  const std::vector<std::size_t> counts(static_cast<std::size_t>(communicator.size()), own.size());
  MUSTER_ASSIGN_OR_RETURN(const auto all, gather_lists(communicator, own, counts, step, deadline));
  std::vector<std::vector<std::uint64_t>> sums;
  for (auto from = all.begin(); from != all.end(); from += std::ssize(own)) {
    sums.emplace_back(from, from + std::ssize(own));
  }
  return sums;
}

Result<std::vector<Ranges>> gather_ranges(comm::Communicator& communicator, const Ranges& own,
                                          std::size_t elements, std::uint64_t step,
                                          MonoTime deadline) {
  MUSTER_ASSIGN_OR_RETURN(const auto told, gather(communicator, own.size(), step, deadline));
  const std::vector<std::size_t> counts(told.begin(), told.end());
  const auto corrupt = [] {
    return Error(ErrorCode::kCorrupt, "a process has ranges that cannot be right");
  };
  if (std::ranges::max(counts) > blocks_of(elements)) return corrupt();
  MUSTER_ASSIGN_OR_RETURN(const Ranges all,
                          gather_lists(communicator, own, counts, step, deadline));
  std::vector<Ranges> by_rank;
  auto next = all.begin();
  for (const std::size_t count : counts) {
    const auto end = next + static_cast<std::ptrdiff_t>(count);
    if (!are_ranges(by_rank.emplace_back(next, end), elements)) return corrupt();
    next = end;
  }
  return by_rank;
}

Status follow(comm::Communicator& communicator, int root, const Status& own, const char* what,
              std::uint64_t step, MonoTime deadline) {
  if (communicator.size() == 1) return own;
  const bool is_root = communicator.rank() == root;
  std::int32_t code = is_root ? code_of(own) : 0;
  const Status sent = comm::broadcast(communicator, step, root,
                                      std::as_writable_bytes(std::span(&code, 1)), deadline);
  if (is_root && !own) return own;
  if (!sent) return peer_error(sent.error());
  if (code != 0) return failed_elsewhere(static_cast<std::size_t>(root), what, code);
  return {};
}

}  // namespace muster::engine
