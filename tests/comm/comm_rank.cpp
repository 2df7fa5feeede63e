// One rank as a process of its own, for tests that kill and stop ranks: takes the listening socket
// from its parent, meets the others and exchanges until it is told the number of rounds, or fails.
//
//   comm_rank LISTEN_FD RANK ROUNDS BYTES WAIT_MS tcp|memory PORT...
//
// Standard output: a line "connected", a line "round" after each of the first rounds, then
// "done" or the error's code. ROUNDS 0 = until an error.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "common/clock.h"
#include "worker/comm/communicator.h"

namespace {

using namespace muster;
using namespace muster::comm;

constexpr int kRoundLinesMax = 3;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

Status exchange(Communicator& self, long rounds, std::size_t bytes, milliseconds wait) {
  const SystemClock clock;
  const auto size = static_cast<std::size_t>(self.size());
  std::vector<std::byte> out(bytes * size, std::byte{1});
  std::vector<std::byte> in(bytes * size);
  std::vector<std::span<const std::byte>> sends;
  std::vector<std::span<std::byte>> receives;
  for (std::size_t peer = 0; peer < size; ++peer) {
    sends.push_back(std::span<const std::byte>(out).subspan(peer * bytes, bytes));
    receives.push_back(std::span<std::byte>(in).subspan(peer * bytes, bytes));
  }
  for (long round = 0; rounds == 0 || round < rounds; ++round) {
    MUSTER_RETURN_IF_ERROR(all_to_all(self, static_cast<std::uint64_t>(round), sends, receives,
                                      clock.mono_now() + wait));
    if (round < kRoundLinesMax) say("round");
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) return 2;
  const SystemClock clock;
  TcpOptions options;
  options.listen_fd = std::atoi(argv[1]);
  options.rank = std::atoi(argv[2]);
  options.shares_memory = std::string(argv[6]) == "memory";
  for (int i = 7; i < argc; ++i) options.peers.push_back({"127.0.0.1", std::atoi(argv[i])});
  options.job_key = std::string(64, '7');
  options.job_uid = "0b5c7a4e-uid";
  options.epoch = 3;
  options.connect_deadline = clock.mono_now() + seconds(60);
  options.clock = &clock;
  auto communicator = make_tcp_communicator(options);
  if (!communicator) {
    say(std::string(to_string(communicator.error().code())));
    return 1;
  }
  say("connected");
  const Status status =
      exchange(**communicator, std::atol(argv[3]), static_cast<std::size_t>(std::atol(argv[4])),
               milliseconds(std::atol(argv[5])));
  say(status ? "done" : std::string(to_string(status.error().code())));
  return status ? 0 : 1;
}
