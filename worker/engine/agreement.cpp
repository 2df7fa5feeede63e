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

/// Gathers one value from every process into values[rank].
template <typename T>
Status gather(comm::Communicator& communicator, std::uint64_t step, std::vector<T>& values,
              MonoTime deadline) {
  std::vector<std::size_t> offsets;
  for (std::size_t rank = 0; rank <= values.size(); ++rank) offsets.push_back(rank * sizeof(T));
  const Status status = comm::all_gather(
      communicator, step, std::as_writable_bytes(std::span(values)), offsets, deadline);
  if (!status) return peer_error(status.error());
  return {};
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
  if (communicator.size() == 1) return {};
  std::vector<Sha256Digest> digests(static_cast<std::size_t>(communicator.size()));
  digests[static_cast<std::size_t>(communicator.rank())] = digest;
  MUSTER_RETURN_IF_ERROR(gather(communicator, 0, digests, deadline));
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
  std::vector<std::uint8_t> flags(static_cast<std::size_t>(communicator.size()));
  flags[static_cast<std::size_t>(communicator.rank())] = own ? 1 : 0;
  if (communicator.size() > 1) {
    MUSTER_RETURN_IF_ERROR(gather(communicator, step, flags, deadline));
  }
  return flags;
}

Result<std::vector<std::vector<std::uint64_t>>> gather_sums(comm::Communicator& communicator,
                                                            const std::vector<std::uint64_t>& own,
                                                            std::uint64_t step, MonoTime deadline) {
  const auto processes = static_cast<std::size_t>(communicator.size());
  const auto rank = static_cast<std::size_t>(communicator.rank());
  std::vector<std::uint64_t> all(processes * own.size());
  std::copy(own.begin(), own.end(), all.begin() + static_cast<std::ptrdiff_t>(rank * own.size()));
  std::vector<std::size_t> offsets;
  for (std::size_t r = 0; r <= processes; ++r) {
    offsets.push_back(r * own.size() * sizeof(std::uint64_t));
  }
  MUSTER_RETURN_IF_ERROR(comm::all_gather(
      communicator, step, std::as_writable_bytes(std::span(all)), offsets, deadline));
  std::vector<std::vector<std::uint64_t>> sums;
  for (auto from = all.begin(); from != all.end(); from += std::ssize(own)) {
    sums.emplace_back(from, from + std::ssize(own));
  }
  return sums;
}

Result<std::vector<Ranges>> gather_ranges(comm::Communicator& communicator, const Ranges& own,
                                          std::size_t elements, std::uint64_t step,
                                          MonoTime deadline) {
  if (communicator.size() == 1) return std::vector<Ranges>{own};
  MUSTER_ASSIGN_OR_RETURN(const auto counts,
                          gather_sums(communicator, {own.size()}, step, deadline));
  std::uint64_t most = 0;
  for (const auto& one : counts) most = std::max(most, one[0]);
  const auto corrupt = [] {
    return Error(ErrorCode::kCorrupt, "a process has ranges that cannot be right");
  };
  if (most > blocks_of(elements)) return corrupt();
  std::vector<std::uint64_t> told;
  for (const ElementRange range : own) told.insert(told.end(), {range.begin, range.end});
  told.resize(2 * std::max<std::uint64_t>(1, most));
  MUSTER_ASSIGN_OR_RETURN(const auto ends, gather_sums(communicator, told, step, deadline));
  std::vector<Ranges> all;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    auto& ranges = all.emplace_back();
    for (std::size_t i = 0; i < counts[rank][0]; ++i) {
      ranges.push_back({ends[rank][2 * i], ends[rank][2 * i + 1]});
    }
    if (!are_ranges(ranges, elements)) return corrupt();
  }
  return all;
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
