// Frames over one TCP connection per pair of ranks, or through a memory lane where both are on one
// machine: then the connection carries one byte to wake the other, and closes when it has ended.
//
// All state is under one mutex. Whoever has the poller's role waits on epoll and moves bytes: the
// thread in Work::wait when it can, so that an exchange costs no switch between threads, else the
// communicator's own thread, where a large one is to go on while the caller computes. start()
// itself moves the first frame of each peer.
//
// Bytes go between the kernel and the caller's buffers without a copy in between. A frame is read
// together with its header, because both sides know how long the next frame is.
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>

#include "worker/comm/communicator.h"
#include "worker/comm/frame.h"
#include "worker/comm/handshake.h"
#include "worker/comm/message.h"
#include "worker/comm/socket.h"

namespace muster::comm {
namespace {

// What a socket surely buffers: a group whose transfers are this small needs nobody to move bytes
// while the caller computes.
constexpr std::size_t kKernelBufferedBytes = std::size_t{64} * 1024;
constexpr std::size_t kIovecMax = 64;
constexpr std::size_t kGroupsMax = 64;
// Events are edge-triggered and every waiter has its own deadline; this bound only keeps a lost
// event from becoming a hang.
constexpr milliseconds kPollMax{1000};

struct Group {
  std::size_t transfers_left = 0;
  std::size_t greatest = 0;              // bytes of one transfer
  std::optional<MonoTime> waited_since;  // absent until somebody waits for it
};

// One message under way in one direction.
struct Transfer {
  std::shared_ptr<Group> group;
  std::uint64_t step = 0;
  std::uint64_t sequence = 0;
  Message message;
  std::size_t done = 0;    // payload bytes moved
  PiecePosition position;  // where `done` is
  // The frame under way.
  bool frame_open = false;
  PiecePosition frame_begin;
  std::size_t frame_bytes = 0;  // payload
  std::size_t frame_done = 0;
  FrameHeaderBytes header{};
  std::size_t header_done = 0;
};

struct Connection {
  UniqueFd fd;
  std::uint32_t session = 0;
  std::unique_ptr<MemoryLane> lane;
  std::deque<Transfer> out;
  std::deque<Transfer> in;
  double waited_seconds = 0;
  ArrivalMeter arriving;
  bool readable = true;
  bool writable = true;
  bool has_ended = false;  // of a lane: what the peer wrote before may still stand in it
};

// What sendmsg and recvmsg say, of a lane, too.
struct Moved {
  ssize_t bytes = -1;
  int error = 0;
};

/// Whether how long it takes to come says something of a network.
bool is_timed(const Connection& connection, const Transfer& transfer) {
  return !connection.lane && transfer.message.bytes() >= kLargeMessage;
}

/// By rank, the first of those under its address.
std::vector<int> hosts_of(const std::vector<PeerAddress>& peers) {
  std::map<std::string_view, int> first;
  std::vector<int> hosts;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    hosts.push_back(first.emplace(peers[rank].host, static_cast<int>(rank)).first->second);
  }
  return hosts;
}

class TcpCore {
 public:
  TcpCore(const TcpOptions& options, Peers peers);
  ~TcpCore();
  Status open();

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(connections_.size()); }
  bool shares_memory() const { return shares_memory_; }
  const std::vector<int>& hosts() const { return hosts_; }
  std::uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }

  Result<std::shared_ptr<Group>> start(int channel, std::uint64_t step, MessagesByPeer messages);
  void proceed_alone(const Group& group);
  /// `ranks`: as Work::wait_for; nullptr: for the whole group.
  Status wait(Group& group, MonoTime deadline, const std::span<const int>* ranks = nullptr);
  std::vector<double> waited_seconds();
  std::vector<Arrivals> take_arrivals();
  void abort(const std::string& why);
  /// Aborts unless the group is complete.
  void abandon(const Group& group);

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run_thread();
  void progress();
  bool can_move() const;
  bool is_there(const Group& group, const std::span<const int>* ranks) const;
  /// As ArrivalMeter has it.
  std::uint64_t watch() const { return is_waiting_ || in_background_ ? watches_ : 0; }
  void note_pause() { watches_ += watch() == 0 ? 1 : 0; }
  void poll_once(Lock& lock, milliseconds timeout);
  Moved move_out(std::size_t peer);
  Moved move_in(std::size_t peer);
  Moved by_lane(std::size_t peer, const Result<MemoryLane::Moved>& moved);
  void write_some(std::size_t peer);
  void read_some(std::size_t peer);
  void note_arrival(Connection& connection) const;
  void open_outgoing_frame(Transfer& transfer, const Connection& connection);
  bool check_header(std::size_t peer);
  bool check_payload(std::size_t peer);
  void refuse(std::size_t peer, const std::string& what);
  void finish_front(std::deque<Transfer>& queue);
  void fail(ErrorCode code, std::string message);
  void fail_lost(std::size_t peer, const std::string& why);
  void fail_unanswered();
  std::string late_peers() const;

  const int rank_;
  const std::uint64_t epoch_;
  const Clock& clock_;
  const std::function<void()> on_wait_;
  const std::vector<int> hosts_;
  bool shares_memory_ = true;
  UniqueFd epoll_;
  UniqueFd wake_;  // an eventfd, written once: when the communicator has failed
  std::atomic<std::uint64_t> sent_bytes_;
  std::thread thread_;

  std::mutex mutex_;
  // All below: under mutex_.
  std::condition_variable work_for_thread_;
  std::condition_variable changed_;      // a group is complete, or what is waited for of one is,
                                         // or all have failed
  std::vector<Connection> connections_;  // by rank; the own one has no descriptor
  GroupNumbers numbers_;
  std::uint64_t moved_bytes_ = 0;  // both ways
  std::size_t groups_ = 0;         // not complete
  bool in_background_ = false;     // the thread is to move bytes while groups_ > 0
  bool polling_ = false;           // someone has the poller's role
  bool awaits_part_ = false;       // someone waits for a part of a group
  bool is_waiting_ = false;        // someone is in wait()
  std::uint64_t watches_ = 1;      // another number whenever nobody has looked for a while
  bool stopping_ = false;
  std::optional<Error> failure_;
  std::vector<iovec> iovecs_;
};

TcpCore::TcpCore(const TcpOptions& options, Peers peers)
    : rank_(options.rank),
      epoch_(static_cast<std::uint64_t>(options.epoch)),
      clock_(*options.clock),
      on_wait_(options.on_wait),
      hosts_(hosts_of(options.peers)),
      sent_bytes_(peers.sent_bytes),
      connections_(peers.by_rank.size()) {
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    connections_[i].fd = std::move(peers.by_rank[i].fd);
    connections_[i].session = peers.by_rank[i].session;
    connections_[i].lane = std::move(peers.by_rank[i].lane);
    if (connections_[i].fd && !connections_[i].lane) shares_memory_ = false;
  }
  iovecs_.reserve(kIovecMax);
}

Status TcpCore::open() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_ || !wake_) return Error(ErrorCode::kIo, errno_text("epoll_create1", errno));
  const auto watch = [&](int fd, std::uint32_t events, std::uint64_t id) {
    epoll_event event{};
    event.events = events;
    event.data.u64 = id;
    return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
  };
  bool watched = watch(wake_.get(), EPOLLIN, connections_.size());
  for (std::size_t i = 0; i < connections_.size(); ++i) {
    if (!connections_[i].fd) continue;
    watched =
        watched && watch(connections_[i].fd.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, i);
  }
  if (!watched) return Error(ErrorCode::kIo, errno_text("epoll_ctl", errno));
  thread_ = std::thread([this] { run_thread(); });
  return {};
}

TcpCore::~TcpCore() {
  abort("the communicator was destroyed");
  {
    const Lock lock(mutex_);
    stopping_ = true;
    work_for_thread_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

Result<std::shared_ptr<Group>> TcpCore::start(int channel, std::uint64_t step,
                                              MessagesByPeer messages) {
  Lock lock(mutex_);
  if (failure_) return *failure_;
  MUSTER_CHECK_MSG(groups_ < kGroupsMax, "too many groups of transfers under way");
  auto group = std::make_shared<Group>();
  const std::uint64_t sequence = numbers_.take(channel);
  const auto post = [&](Message& message, std::deque<Transfer>& queue) {
    if (message.bytes() == 0) return;
    group->greatest = std::max(group->greatest, message.bytes());
    Transfer transfer;
    transfer.group = group;
    transfer.step = step;
    transfer.sequence = sequence;
    transfer.message = std::move(message);
    queue.push_back(std::move(transfer));
    ++group->transfers_left;
  };
  for (std::size_t peer = 0; peer < connections_.size(); ++peer) {
    post(messages.sends[peer], connections_[peer].out);
    post(messages.receives[peer], connections_[peer].in);
  }
  if (group->transfers_left == 0) return group;
  ++groups_;
  progress();
  if (failure_) return *failure_;
  return group;
}

void TcpCore::proceed_alone(const Group& group) {
  const Lock lock(mutex_);
  if (failure_ || group.transfers_left == 0 || group.greatest <= kKernelBufferedBytes) return;
  in_background_ = true;
  if (!polling_) work_for_thread_.notify_one();
}

/// A queue has at most one transfer of a group.
bool TcpCore::is_there(const Group& group, const std::span<const int>* ranks) const {
  if (group.transfers_left == 0) return true;
  return ranks != nullptr && !failure_ && std::ranges::none_of(*ranks, [&](int rank) {
           const auto& due = connections_.at(static_cast<std::size_t>(rank)).in;
           return std::ranges::any_of(due,
                                      [&](const Transfer& t) { return t.group.get() == &group; });
         });
}

Status TcpCore::wait(Group& group, MonoTime deadline, const std::span<const int>* ranks) {
  Lock lock(mutex_);
  const MonoTime began = clock_.mono_now();
  awaits_part_ = ranks != nullptr;
  is_waiting_ = true;
  // Of a part nobody is told who was waited for: what comes from the others costs nothing yet.
  if (!group.waited_since && ranks == nullptr) group.waited_since = began;
  std::uint64_t moved_before = moved_bytes_;
  const auto patience = deadline - began;
  MonoTime look_at = began + kUnansweredMost;
  while (!is_there(group, ranks)) {
    if (failure_) return *failure_;
    const MonoTime now = clock_.mono_now();
    if (now >= look_at) {
      look_at = now + kPollMax;
      fail_unanswered();
      continue;
    }
    const auto left = deadline - now;
    if (left <= nanoseconds{0} && moved_bytes_ - moved_before >= kMovingBytes) {
      moved_before = moved_bytes_;
      deadline = now + patience;
      continue;
    }
    if (left <= nanoseconds{0}) {
      fail(ErrorCode::kDeadlineExceeded, "not complete by the deadline: " + late_peers());
      return *failure_;
    }
    if (on_wait_) on_wait_();
    const auto pause = std::min<nanoseconds>(left, kPollMax);
    if (polling_) {
      changed_.wait_for(lock, pause);
      continue;
    }
    progress();
    if (is_there(group, ranks) || failure_ || polling_) continue;
    poll_once(lock, can_move() ? milliseconds{0} : std::chrono::ceil<milliseconds>(pause));
  }
  is_waiting_ = false;
  note_pause();
  if (in_background_ && !polling_) work_for_thread_.notify_one();
  return {};
}

std::vector<double> TcpCore::waited_seconds() {
  const Lock lock(mutex_);
  std::vector<double> waited;
  for (const Connection& connection : connections_) waited.push_back(connection.waited_seconds);
  return waited;
}

std::vector<Arrivals> TcpCore::take_arrivals() {
  const Lock lock(mutex_);
  std::vector<Arrivals> arrivals;
  for (Connection& connection : connections_) arrivals.push_back(connection.arriving.take());
  return arrivals;
}

void TcpCore::abort(const std::string& why) {
  const Lock lock(mutex_);
  fail(ErrorCode::kAborted, why);
}

void TcpCore::abandon(const Group& group) {
  const Lock lock(mutex_);
  if (group.transfers_left > 0) {
    fail(ErrorCode::kAborted, "a group of transfers was given up before it was complete");
  }
}

void TcpCore::run_thread() {
  Lock lock(mutex_);
  while (!stopping_) {
    if (!in_background_ || polling_ || failure_) {
      work_for_thread_.wait(lock);
      continue;
    }
    progress();
    if (stopping_ || !in_background_ || polling_ || failure_) continue;
    poll_once(lock, can_move() ? milliseconds{0} : kPollMax);
  }
}

// A wake that is left behind is as good as one that comes later: each means only to look again.
void take_wakes(int fd) {
  std::array<std::byte, 256> bytes{};
  [[maybe_unused]] const ssize_t got = recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
}

void TcpCore::poll_once(Lock& lock, milliseconds timeout) {
  constexpr int kEventsMax = 64;
  std::array<epoll_event, kEventsMax> events{};
  polling_ = true;
  lock.unlock();
  const int count =
      epoll_wait(epoll_.get(), events.data(), kEventsMax, static_cast<int>(timeout.count()));
  const int error = errno;
  lock.lock();
  polling_ = false;
  if (count < 0 && error != EINTR) fail(ErrorCode::kIo, errno_text("epoll_wait", error));
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 >= connections_.size()) continue;  // wake_: failure_ is set
    Connection& connection = connections_[event.data.u64];
    const bool ended = (event.events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) != 0;
    const bool woken = connection.lane && (event.events & EPOLLIN) != 0;
    if (woken) take_wakes(connection.fd.get());
    if (ended || (event.events & EPOLLIN) != 0) connection.readable = true;
    if (ended || woken || (event.events & EPOLLOUT) != 0) connection.writable = true;
    connection.has_ended |= ended;
  }
  progress();
}

/// Moves at most one frame in each direction of each connection.
void TcpCore::progress() {
  const std::size_t groups_before = groups_;
  // Another first peer for each rank, so that not all send to rank 0 at once.
  for (std::size_t i = 1; i < connections_.size() && !failure_; ++i) {
    const std::size_t peer = (static_cast<std::size_t>(rank_) + i) % connections_.size();
    write_some(peer);
    if (!failure_) read_some(peer);
  }
  if (groups_ == 0) in_background_ = false;
  note_pause();
  if (groups_ != groups_before || awaits_part_) changed_.notify_all();
}

/// Whether progress() has something to do without a new event.
bool TcpCore::can_move() const {
  return std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) {
    return (c.readable && !c.in.empty()) || (c.writable && !c.out.empty());
  });
}

// Both sides cut a message the same way, so the receiver knows each frame's length beforehand.
void open_frame(Transfer& transfer) {
  transfer.frame_open = true;
  transfer.header_done = 0;
  transfer.frame_begin = transfer.position;
  transfer.frame_bytes = std::min(kFramePayloadMax, transfer.message.bytes() - transfer.done);
  transfer.frame_done = 0;
}

// Appends what is left of the open frame to `iovecs`.
void collect_frame(Transfer& transfer, std::vector<iovec>& iovecs) {
  iovecs.clear();
  if (transfer.header_done < kFrameHeaderBytes) {
    iovecs.push_back(
        {transfer.header.data() + transfer.header_done, kFrameHeaderBytes - transfer.header_done});
  }
  transfer.message.collect(transfer.position, transfer.frame_bytes - transfer.frame_done, kIovecMax,
                           iovecs);
}

// Notes that `bytes` bytes of the open frame have moved.
void advance_frame(Transfer& transfer, std::size_t bytes) {
  const std::size_t of_header = std::min(bytes, kFrameHeaderBytes - transfer.header_done);
  const std::size_t of_payload = bytes - of_header;
  transfer.header_done += of_header;
  transfer.position = transfer.message.advance(transfer.position, of_payload);
  transfer.frame_done += of_payload;
  transfer.done += of_payload;
}

bool frame_complete(const Transfer& transfer) {
  return transfer.header_done == kFrameHeaderBytes && transfer.frame_done == transfer.frame_bytes;
}

void TcpCore::open_outgoing_frame(Transfer& transfer, const Connection& connection) {
  open_frame(transfer);
  FrameHeader header;
  header.session = connection.session;
  header.epoch = epoch_;
  header.step = transfer.step;
  header.sequence = transfer.sequence;
  header.message_bytes = transfer.message.bytes();
  header.payload_bytes = static_cast<std::uint32_t>(transfer.frame_bytes);
  // Memory that two processes share is as safe as that of one.
  header.payload_crc =
      connection.lane ? 0 : transfer.message.crc(transfer.frame_begin, transfer.frame_bytes);
  encode(header, transfer.header);
}

Moved TcpCore::move_out(std::size_t peer) {
  Connection& connection = connections_[peer];
  if (connection.lane) return by_lane(peer, connection.lane->write(iovecs_));
  msghdr message{};
  message.msg_iov = iovecs_.data();
  message.msg_iovlen = iovecs_.size();
  const ssize_t sent = sendmsg(connection.fd.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  return {sent, errno};
}

Moved TcpCore::move_in(std::size_t peer) {
  Connection& connection = connections_[peer];
  if (connection.lane) return by_lane(peer, connection.lane->read(iovecs_));
  msghdr message{};
  message.msg_iov = iovecs_.data();
  message.msg_iovlen = iovecs_.size();
  const ssize_t got = recvmsg(connection.fd.get(), &message, MSG_DONTWAIT);
  return {got, errno};
}

Moved TcpCore::by_lane(std::size_t peer, const Result<MemoryLane::Moved>& moved) {
  Connection& connection = connections_[peer];
  if (!moved) {
    fail(ErrorCode::kCorrupt, "rank " + std::to_string(peer) + ": " + moved.error().message());
    return {-1, EINTR};
  }
  if (moved->bytes == 0) return connection.has_ended ? Moved{0, EPIPE} : Moved{-1, EAGAIN};
  // Where it does not fit, others stand there unread, and wake as well.
  const std::byte wake{};
  if (moved->wakes) send(connection.fd.get(), &wake, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return {static_cast<ssize_t>(moved->bytes), 0};
}

void TcpCore::write_some(std::size_t peer) {
  Connection& connection = connections_[peer];
  if (connection.out.empty() || !connection.writable) return;
  Transfer& transfer = connection.out.front();
  if (!transfer.frame_open) open_outgoing_frame(transfer, connection);
  collect_frame(transfer, iovecs_);
  const auto [sent, error] = move_out(peer);
  if (sent <= 0) {
    if (error == EAGAIN) connection.writable = false;
    if (error != EAGAIN && error != EINTR) fail_lost(peer, errno_text("send", error));
    return;
  }
  sent_bytes_.fetch_add(static_cast<std::uint64_t>(sent), std::memory_order_relaxed);
  moved_bytes_ += static_cast<std::uint64_t>(sent);
  advance_frame(transfer, static_cast<std::size_t>(sent));
  if (!frame_complete(transfer)) return;
  transfer.frame_open = false;
  if (transfer.done == transfer.message.bytes()) finish_front(connection.out);
}

void TcpCore::read_some(std::size_t peer) {
  Connection& connection = connections_[peer];
  if (connection.in.empty() || !connection.readable) return;
  Transfer& transfer = connection.in.front();
  if (!transfer.frame_open) open_frame(transfer);
  collect_frame(transfer, iovecs_);
  const auto [got, error] = move_in(peer);
  if (got < 0) {
    if (error == EAGAIN) {
      connection.readable = false;
      connection.arriving.ran_dry(watch());
    }
    if (error != EAGAIN && error != EINTR) fail_lost(peer, errno_text("receive", error));
    return;
  }
  if (got == 0) {
    fail_lost(peer, "it closed the connection");
    return;
  }
  const bool header_was_due = transfer.header_done < kFrameHeaderBytes;
  moved_bytes_ += static_cast<std::uint64_t>(got);
  advance_frame(transfer, static_cast<std::size_t>(got));
  if (connection.arriving.may_begin(watch()) && is_timed(connection, transfer)) {
    connection.arriving.begin(watch(), transfer.done, clock_.mono_now());
  }
  // The header is judged as soon as it is there: of a frame shorter than expected the rest would
  // never come.
  if (header_was_due && transfer.header_done == kFrameHeaderBytes && !check_header(peer)) return;
  if (!frame_complete(transfer) || !check_payload(peer)) return;
  transfer.frame_open = false;
  if (transfer.done < transfer.message.bytes()) return;
  note_arrival(connection);
  finish_front(connection.in);
}

/// All of the front transfer is there.
void TcpCore::note_arrival(Connection& connection) const {
  const Transfer& transfer = connection.in.front();
  const auto since = transfer.group->waited_since;
  if (!since && !is_timed(connection, transfer)) return;
  const MonoTime now = clock_.mono_now();
  // What was there before somebody waited for it has cost nothing.
  if (since) connection.waited_seconds += seconds_of(now - *since);
  if (is_timed(connection, transfer)) {
    connection.arriving.end(watch(), transfer.message.bytes(), now);
  }
}

/// Judges the header of the front transfer's frame. False: the communicator has failed.
bool TcpCore::check_header(std::size_t peer) {
  const Connection& connection = connections_[peer];
  const Transfer& due = connection.in.front();
  const auto header = decode_frame_header(due.header);
  if (!header) {
    refuse(peer, header.error().message());
  } else if (header->session != connection.session || header->epoch != epoch_) {
    refuse(peer, "a frame of another session");
  } else if (header->sequence != due.sequence || header->step != due.step) {
    refuse(peer, "a frame of step " + std::to_string(header->step) + ", group " +
                     std::to_string(header->sequence) + " where group " +
                     std::to_string(due.sequence) + " is due");
  } else if (header->message_bytes != due.message.bytes() ||
             header->payload_bytes != due.frame_bytes) {
    refuse(peer, "a message of " + std::to_string(header->message_bytes) + " bytes where " +
                     std::to_string(due.message.bytes()) + " are due");
  }
  return !failure_;
}

/// Judges the payload of the front transfer's complete frame. False: the communicator has failed.
bool TcpCore::check_payload(std::size_t peer) {
  const Transfer& transfer = connections_[peer].in.front();
  if (connections_[peer].lane) return true;
  const auto header = decode_frame_header(transfer.header);
  MUSTER_CHECK(header.has_value());
  if (transfer.message.crc(transfer.frame_begin, transfer.frame_bytes) != header->payload_crc) {
    refuse(peer, "a frame whose payload does not match its checksum");
  }
  return !failure_;
}

void TcpCore::refuse(std::size_t peer, const std::string& what) {
  fail(ErrorCode::kCorrupt, "rank " + std::to_string(peer) + " sent " + what + " (step " +
                                std::to_string(connections_[peer].in.front().step) + ")");
}

void TcpCore::finish_front(std::deque<Transfer>& queue) {
  if (--queue.front().group->transfers_left == 0) --groups_;
  queue.pop_front();
}

/// The first failure stays. From here on nobody touches a caller's buffer.
void TcpCore::fail(ErrorCode code, std::string message) {
  if (failure_) return;
  failure_.emplace(code, std::move(message));
  for (Connection& connection : connections_) {
    // The peers learn of it at once. The descriptors stay open until the end, because another
    // thread may stand in epoll_wait.
    if (connection.fd) shutdown(connection.fd.get(), SHUT_RDWR);
    connection.in.clear();
    connection.out.clear();
  }
  groups_ = 0;
  in_background_ = false;
  const std::uint64_t one = 1;
  // A full counter is as good: it is readable either way.
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);
  changed_.notify_all();
  work_for_thread_.notify_all();
}

void TcpCore::fail_lost(std::size_t peer, const std::string& why) {
  fail(ErrorCode::kAborted, "rank " + std::to_string(peer) + " was lost: " + why);
}

void TcpCore::fail_unanswered() {
  for (std::size_t peer = 0; peer < connections_.size() && !failure_; ++peer) {
    const int fd = connections_[peer].fd.get();
    if (fd >= 0 && is_unanswered(fd)) fail_lost(peer, "its kernel answers nothing any more");
  }
}

std::string TcpCore::late_peers() const {
  std::string text;
  constexpr int kNamedMax = 8;
  int named = 0;
  for (std::size_t peer = 0; peer < connections_.size() && named < kNamedMax; ++peer) {
    const Connection& connection = connections_[peer];
    if (connection.in.empty() && connection.out.empty()) continue;
    const Transfer& late = connection.in.empty() ? connection.out.front() : connection.in.front();
    text += (named++ == 0 ? "" : ", ") + std::string(connection.in.empty() ? "to" : "from") +
            " rank " + std::to_string(peer) + " " + std::to_string(late.done) + " of " +
            std::to_string(late.message.bytes()) + " bytes (step " + std::to_string(late.step) +
            ")";
  }
  return text;
}

class TcpWork final : public Work {
 public:
  TcpWork(std::shared_ptr<TcpCore> core, std::shared_ptr<Group> group)
      : core_(std::move(core)), group_(std::move(group)) {}
  ~TcpWork() override { core_->abandon(*group_); }
  void proceed_alone() override { core_->proceed_alone(*group_); }
  Status wait(MonoTime deadline) override { return core_->wait(*group_, deadline); }
  Status wait_for(std::span<const int> ranks, MonoTime deadline) override {
    return core_->wait(*group_, deadline, &ranks);
  }

 private:
  std::shared_ptr<TcpCore> core_;
  std::shared_ptr<Group> group_;
};

class TcpCommunicator final : public Communicator {
 public:
  explicit TcpCommunicator(std::shared_ptr<TcpCore> core) : core_(std::move(core)) {}
  ~TcpCommunicator() override { core_->abort("the communicator was destroyed"); }
  int rank() const override { return core_->rank(); }
  int size() const override { return core_->size(); }
  bool shares_memory() const override { return core_->shares_memory(); }
  std::vector<int> hosts() const override { return core_->hosts(); }
  std::uint64_t sent_bytes() const override { return core_->sent_bytes(); }
  std::vector<double> waited_seconds() const override { return core_->waited_seconds(); }
  std::vector<Arrivals> take_arrivals() override { return core_->take_arrivals(); }
  void abort() override { core_->abort("abort() was called"); }
  Result<std::unique_ptr<Work>> start_on(int channel, std::uint64_t step, Memory memory,
                                         std::span<const SendBuffer> sends,
                                         std::span<const ReceiveBuffer> receives) override {
    if (memory != Memory::kHost) {
      return Error(ErrorCode::kUnsupported, "the TCP transport moves host memory only");
    }
    auto group = core_->start(channel, step, by_peer(rank(), size(), sends, receives));
    if (!group) return group.error();
    return std::unique_ptr<Work>(std::make_unique<TcpWork>(core_, *std::move(group)));
  }

 private:
  std::shared_ptr<TcpCore> core_;
};

Status check_options(const TcpOptions& options) {
  const auto invalid = [](const std::string& why) { return Error(ErrorCode::kInvalid, why); };
  MUSTER_CHECK(options.clock != nullptr);
  constexpr std::size_t kRanksMax = 4096;
  if (options.peers.empty() || options.peers.size() > kRanksMax) {
    return invalid("the number of peers must be 1 to " + std::to_string(kRanksMax));
  }
  if (options.rank < 0 || static_cast<std::size_t>(options.rank) >= options.peers.size()) {
    return invalid("rank " + std::to_string(options.rank) + " is not below the number of peers, " +
                   std::to_string(options.peers.size()));
  }
  if (options.listen_fd < 0) return invalid("the listening socket is missing");
  if (options.epoch < 0) return invalid("the membership epoch is negative");
  for (std::size_t rank = 0; rank < options.peers.size(); ++rank) {
    const PeerAddress& peer = options.peers[rank];
    if (peer.host.empty() || peer.port < 1 || peer.port > 65535) {
      return invalid("rank " + std::to_string(rank) + " has no address with a port");
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Communicator>> make_tcp_communicator(const TcpOptions& options) {
  const UniqueFd listen_fd(options.listen_fd);
  MUSTER_RETURN_IF_ERROR(check_options(options));
  MUSTER_ASSIGN_OR_RETURN(const JobKey key, parse_job_key(options.job_key));
  RefusedConnections refused;
  auto peers = connect_peers(options, key, listen_fd.get(), refused);
  if (options.refused != nullptr) *options.refused = refused;
  if (!peers) return peers.error().with("connect rank " + std::to_string(options.rank));
  auto core = std::make_shared<TcpCore>(options, *std::move(peers));
  MUSTER_RETURN_IF_ERROR(core->open());
  return std::unique_ptr<Communicator>(std::make_unique<TcpCommunicator>(std::move(core)));
}

}  // namespace muster::comm
