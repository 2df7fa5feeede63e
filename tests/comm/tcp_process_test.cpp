// Ranks as processes that are killed, stopped and cut off: an error by the deadline, never a hang.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/comm/tcp_ranks.h"
#include "worker/comm/socket.h"

using namespace muster;
using namespace muster::comm;
using namespace muster::test;

namespace {

struct RankProgram {
  long rounds = 0;
  long bytes = 100'000;
  long wait_ms = 60'000;
};

// A process running comm_rank; killed at the end.
class RankProcess {
 public:
  RankProcess(const TcpOptions& options, const RankProgram& program) {
    int output[2];
    REQUIRE(pipe2(output, O_CLOEXEC) == 0);
    output_ = UniqueFd(output[0]);
    const UniqueFd child_output(output[1]);
    // The child gets the socket under a number that is not close-on-exec.
    constexpr int kChildListenFd = 3;
    std::vector<std::string> words{MUSTER_COMM_RANK,
                                   std::to_string(kChildListenFd),
                                   std::to_string(options.rank),
                                   std::to_string(program.rounds),
                                   std::to_string(program.bytes),
                                   std::to_string(program.wait_ms),
                                   options.shares_memory ? "memory" : "tcp"};
    for (const PeerAddress& peer : options.peers) words.push_back(std::to_string(peer.port));
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    // Standard output first: its source may be number 3.
    posix_spawn_file_actions_adddup2(&actions, child_output.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, options.listen_fd, kChildListenFd);
    const int error =
        posix_spawn(&pid_, MUSTER_COMM_RANK, &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    close(options.listen_fd);
    REQUIRE(error == 0);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;
  ~RankProcess() {
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

  void signal(int number) { kill(pid_, number); }

  // The next line, or "" when the process has ended; fails the test when nothing comes.
  std::string line() {
    std::string text;
    while (true) {
      pollfd polled{output_.get(), POLLIN, 0};
      REQUIRE_MESSAGE(poll(&polled, 1, 60'000) == 1, "a rank hangs");
      char c = 0;
      if (read(output_.get(), &c, 1) != 1 || c == '\n') return text;
      text += c;
    }
  }
  void wait_for(const std::string& wanted) {
    std::string got = line();
    while (got != wanted && !got.empty()) got = line();
    REQUIRE(got == wanted);
  }
  // The line after the rounds.
  std::string verdict() {
    std::string got = line();
    while (got == "connected" || got == "round") got = line();
    return got;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
};

using Processes = std::vector<std::unique_ptr<RankProcess>>;

template <typename Way>
Processes start_processes(int size, const RankProgram& program) {
  Processes processes;
  for (const TcpOptions& options : tcp_options<Way>(size)) {
    processes.push_back(std::make_unique<RankProcess>(options, program));
  }
  return processes;
}

// Forwards bytes between two sockets until told to cut both.
class Relay {
 public:
  Relay(int listen_fd, int to_port) : listen_fd_(listen_fd), to_port_(to_port) {
    REQUIRE(pipe2(stop_, O_CLOEXEC) == 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Relay() {
    cut();
    close(listen_fd_);
    close(stop_[0]);
    close(stop_[1]);
  }
  void cut() {
    if (!thread_.joinable()) return;
    const char byte = 0;
    REQUIRE(write(stop_[1], &byte, 1) == 1);
    thread_.join();
  }

 private:
  void run() {
    pollfd ready[2] = {{listen_fd_, POLLIN, 0}, {stop_[0], POLLIN, 0}};
    if (poll(ready, 2, 60'000) <= 0 || ready[1].revents != 0) return;
    const UniqueFd near(accept(listen_fd_, nullptr, nullptr));
    auto far = start_connect({"127.0.0.1", to_port_});
    if (!near || !far) return;
    if (fcntl(far->get(), F_SETFL, 0) != 0) return;
    pollfd connected{far->get(), POLLOUT, 0};
    if (poll(&connected, 1, 60'000) <= 0) return;
    pollfd polled[3] = {{near.get(), POLLIN, 0}, {far->get(), POLLIN, 0}, {stop_[0], POLLIN, 0}};
    std::vector<char> buffer(65536);
    while (poll(polled, 3, 60'000) > 0 && polled[2].revents == 0) {
      for (int side = 0; side < 2; ++side) {
        if (polled[side].revents == 0) continue;
        const ssize_t got = recv(polled[side].fd, buffer.data(), buffer.size(), 0);
        if (got <= 0) return;
        if (send(polled[1 - side].fd, buffer.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) !=
            got) {
          return;
        }
      }
    }
  }

  int listen_fd_;
  int to_port_;
  int stop_[2] = {-1, -1};
  std::thread thread_;
};

}  // namespace

TEST_CASE_TEMPLATE("processes exchange and end well", Way, Connection, SharedMemory) {
  Processes ranks = start_processes<Way>(3, {.rounds = 50});
  for (auto& rank : ranks) CHECK(rank->verdict() == "done");
}

TEST_CASE_TEMPLATE("a rank killed in the middle of an exchange ends the others at once", Way,
                   Connection, SharedMemory) {
  for (const long bytes : {1000L, 2'000'000L}) {
    for (std::size_t victim = 0; victim < 3; ++victim) {
      Processes ranks = start_processes<Way>(3, {.bytes = bytes});
      for (auto& rank : ranks) rank->wait_for("round");
      ranks[victim]->signal(SIGKILL);
      for (std::size_t rank = 0; rank < 3; ++rank) {
        if (rank != victim) CHECK(ranks[rank]->verdict() == "Aborted");
      }
    }
  }
}

TEST_CASE_TEMPLATE("a rank that is stopped lets the others' deadlines pass, and they say so", Way,
                   Connection, SharedMemory) {
  for (const long bytes : {1000L, 2'000'000L}) {
    Processes ranks = start_processes<Way>(2, {.bytes = bytes, .wait_ms = 1500});
    for (auto& rank : ranks) rank->wait_for("round");
    ranks[1]->signal(SIGSTOP);
    CHECK(ranks[0]->verdict() == "DeadlineExceeded");
    ranks[1]->signal(SIGCONT);
    const std::string woken = ranks[1]->verdict();
    CHECK_MESSAGE((woken == "Aborted" || woken == "DeadlineExceeded"), woken);
  }
}

TEST_CASE_TEMPLATE("a rank stopped for less than the deadline delays the others and harms nothing",
                   Way, Connection, SharedMemory) {
  Processes ranks = start_processes<Way>(2, {.rounds = 200});
  for (auto& rank : ranks) rank->wait_for("round");
  ranks[1]->signal(SIGSTOP);
  ranks[1]->signal(SIGCONT);
  for (auto& rank : ranks) CHECK(rank->verdict() == "done");
}

TEST_CASE_TEMPLATE("a rank killed while the ranks meet may come back and is met", Way, Connection,
                   SharedMemory) {
  std::vector<TcpOptions> options = tcp_options<Way>(3);
  const int spare = fcntl(options[1].listen_fd, F_DUPFD_CLOEXEC, 3);
  RankProcess zero(options[0], {.rounds = 5});
  {
    // Connects with rank 0 and waits for rank 2, which is not there yet.
    RankProcess first(options[1], {.rounds = 5});
    first.signal(SIGKILL);
  }
  options[1].listen_fd = spare;
  RankProcess second(options[1], {.rounds = 5});
  RankProcess two(options[2], {.rounds = 5});
  CHECK(zero.verdict() == "done");
  CHECK(second.verdict() == "done");
  CHECK(two.verdict() == "done");
}

TEST_CASE_TEMPLATE("a cut connection ends both sides although both processes live", Way, Connection,
                   SharedMemory) {
  std::vector<TcpOptions> options = tcp_options<Way>(2);
  const auto door = listen_tcp("127.0.0.1", 0);
  REQUIRE(door);
  Relay relay(door->fd, options[0].peers[0].port);
  options[1].peers[0].port = door->port;
  RankProcess zero(options[0], {});
  RankProcess one(options[1], {});
  zero.wait_for("round");
  one.wait_for("round");
  relay.cut();
  CHECK(zero.verdict() == "Aborted");
  CHECK(one.verdict() == "Aborted");
}
