#include "worker/comm/handshake.h"

#include <openssl/rand.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <list>
#include <string>

#include "common/log.h"

namespace muster::comm {
namespace {

// A connection that has not proven itself takes one of so many places; the oldest gives way. So
// strangers can slow a start down but not prevent it. There is room for twice the peers, all of
// whom may dial at once.
constexpr std::size_t kUnprovenLeast = 64;
// If the first packet of a dial is lost, the system sends another one only after a second, in which
// all ranks would stand; so it is given up before, and dialed anew. Each try waits twice as long as
// the one before, up to kUnprovenFor, because answers of some networks take longer.
constexpr milliseconds kFirstPatience{200};
constexpr milliseconds kFirstRetry{10};
constexpr milliseconds kLastRetry{200};

enum class Stage {
  kConnecting,  // dialer: until the socket is writable
  kHello,       // listener: reads Hello
  kAnswer,      // dialer: reads Answer
  kProof,       // listener: reads Proof
  kAccept,      // dialer: reads Accept
};

// One connection on its way.
struct Attempt {
  UniqueFd fd;
  Stage stage = Stage::kHello;
  int rank = -1;  // of the peer; -1 until an accepted one has said Hello
  MonoTime give_up;
  Hello hello;
  Answer answer;
  std::unique_ptr<MemoryLane> lane;  // offered, or found
  std::vector<std::byte> in;
  std::size_t wanted = 0;  // bytes of the message that is being read
  std::vector<std::byte> out;
  bool dialed() const { return stage != Stage::kHello && stage != Stage::kProof; }
};

// What is known about one lower rank.
struct Dial {
  MonoTime next;
  milliseconds pause = kFirstRetry;
  milliseconds patience = kFirstPatience;  // until the peer's system has answered
  bool under_way = false;
  bool unauthorized = false;
  std::string last_error = "not tried";
};

enum class Outcome { kGoesOn, kDone, kClosed };

class Connector {
 public:
  Connector(const TcpOptions& options, const JobKey& key, int listen_fd,
            RefusedConnections& refused)
      : options_(options),
        key_(key),
        listen_fd_(listen_fd),
        refused_(refused),
        dials_(static_cast<std::size_t>(options.rank)) {
    peers_.by_rank.resize(options.peers.size());
    for (Dial& dial : dials_) dial.next = options.clock->mono_now();
  }

  Result<Peers> run();

 private:
  std::size_t missing() const;
  Status start_dials(MonoTime now);
  Status accept_all(MonoTime now);
  void expire(MonoTime now);
  Status wait_for_events(MonoTime now);
  void handle(std::list<Attempt>::iterator attempt, short events);
  Outcome advance(Attempt& attempt, short events);
  Outcome read_message(Attempt& attempt);
  Outcome take_message(Attempt& attempt);
  Outcome on_hello(Attempt& attempt);
  Outcome on_answer(Attempt& attempt);
  Outcome on_proof(Attempt& attempt);
  Outcome on_accept(Attempt& attempt);
  LaneOffer offer_lane(Attempt& attempt);
  void take_lane(Attempt& attempt, const LaneOffer& offer);
  Outcome flush(Attempt& attempt);
  Outcome close_because(Attempt& attempt, std::uint64_t& counter, const std::string& why);
  void expect(Attempt& attempt, Stage stage, std::size_t bytes);
  void retry_later(int rank, MonoTime now);
  void lose(std::size_t rank, MonoTime now);
  Nonce fresh_nonce();
  Error timed_out() const;

  const TcpOptions& options_;
  const JobKey& key_;
  int listen_fd_;
  RefusedConnections& refused_;
  std::vector<Dial> dials_;      // by rank, the lower ones only
  std::list<Attempt> attempts_;  // oldest first
  Peers peers_;
};

template <std::size_t N>
std::span<const std::byte, N> fixed(const std::vector<std::byte>& bytes) {
  MUSTER_CHECK(bytes.size() == N);
  return std::span<const std::byte, N>(bytes.data(), N);
}

template <std::size_t N, typename Message>
void append(std::vector<std::byte>& out, const Message& message) {
  std::array<std::byte, N> bytes{};
  encode(message, bytes);
  out.insert(out.end(), bytes.begin(), bytes.end());
}

Result<Peers> Connector::run() {
  while (missing() > 0) {
    const MonoTime now = options_.clock->mono_now();
    if (now >= options_.connect_deadline) return timed_out();
    if (options_.on_wait) options_.on_wait();
    MUSTER_RETURN_IF_ERROR(start_dials(now));
    MUSTER_RETURN_IF_ERROR(wait_for_events(now));
  }
  return std::move(peers_);
}

std::size_t Connector::missing() const {
  std::size_t count = 0;
  for (const PeerConnection& peer : peers_.by_rank) count += peer.fd ? 0 : 1;
  return count - 1;  // The own rank has no connection.
}

Nonce Connector::fresh_nonce() {
  Nonce nonce{};
  MUSTER_CHECK_MSG(RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()),
                              static_cast<int>(nonce.size())) == 1,
                   "the system has no random bytes");
  return nonce;
}

Status Connector::start_dials(MonoTime now) {
  for (std::size_t rank = 0; rank < dials_.size(); ++rank) {
    Dial& dial = dials_[rank];
    if (dial.under_way || peers_.by_rank[rank].fd || now < dial.next) continue;
    auto fd = start_connect(options_.peers[rank]);
    // What this process lacks no other try can give it.
    if (!fd && fd.error().code() == ErrorCode::kIo) return fd.error();
    if (!fd) {
      dial.last_error = fd.error().message();
      retry_later(static_cast<int>(rank), now);
      continue;
    }
    dial.under_way = true;
    Attempt attempt;
    attempt.fd = *std::move(fd);
    attempt.stage = Stage::kConnecting;
    attempt.rank = static_cast<int>(rank);
    attempt.give_up = std::min<MonoTime>(now + dial.patience, options_.connect_deadline);
    attempts_.push_back(std::move(attempt));
  }
  return {};
}

void Connector::retry_later(int rank, MonoTime now) {
  Dial& dial = dials_[static_cast<std::size_t>(rank)];
  dial.under_way = false;
  dial.next = now + dial.pause;
  dial.pause = std::min(2 * dial.pause, kLastRetry);
}

Status Connector::accept_all(MonoTime now) {
  // Bounded, so that a flood of strangers cannot keep this thread from the peers.
  const std::size_t unproven_max = std::max(kUnprovenLeast, 2 * options_.peers.size());
  for (std::size_t i = 0; i < unproven_max; ++i) {
    UniqueFd fd(accept4(listen_fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd && is_own_lack(errno)) return Error(ErrorCode::kIo, errno_text("accept", errno));
    if (!fd) return {};
    if (!set_connection_options(fd.get())) continue;
    const auto accepted = [](const Attempt& a) { return !a.dialed(); };
    if (static_cast<std::size_t>(std::count_if(attempts_.begin(), attempts_.end(), accepted)) >=
        unproven_max) {
      attempts_.erase(std::find_if(attempts_.begin(), attempts_.end(), accepted));
      ++refused_.silent;
    }
    Attempt attempt;
    attempt.fd = std::move(fd);
    attempt.give_up = now + kUnprovenFor;
    expect(attempt, Stage::kHello, kHelloBytes);
    attempts_.push_back(std::move(attempt));
  }
  return {};
}

void Connector::expire(MonoTime now) {
  for (auto it = attempts_.begin(); it != attempts_.end();) {
    const auto attempt = it++;
    if (now < attempt->give_up) continue;
    if (attempt->dialed()) {
      Dial& dial = dials_[static_cast<std::size_t>(attempt->rank)];
      const bool is_silent = attempt->stage == Stage::kConnecting;
      dial.last_error = is_silent ? "no answer" : "no answer to the handshake";
      if (is_silent) dial.patience = std::min<milliseconds>(2 * dial.patience, kUnprovenFor);
      retry_later(attempt->rank, now);
    } else {
      ++refused_.silent;
    }
    attempts_.erase(attempt);
  }
}

Status Connector::wait_for_events(MonoTime now) {
  MonoTime wake = options_.connect_deadline;
  for (std::size_t rank = 0; rank < dials_.size(); ++rank) {
    const Dial& dial = dials_[rank];
    if (!dial.under_way && !peers_.by_rank[rank].fd) wake = std::min(wake, dial.next);
  }
  std::vector<pollfd> polled{{listen_fd_, POLLIN, 0}, {options_.cancel_fd, POLLIN, 0}};
  // A peer may die after its handshake and come back with a new connection; without watching, its
  // place would stay taken.
  for (const PeerConnection& peer : peers_.by_rank) polled.push_back({peer.fd.get(), POLLRDHUP, 0});
  std::vector<std::list<Attempt>::iterator> order;
  for (auto it = attempts_.begin(); it != attempts_.end(); ++it) {
    wake = std::min(wake, it->give_up);
    const bool writes = it->stage == Stage::kConnecting || !it->out.empty();
    polled.push_back({it->fd.get(), static_cast<short>(writes ? POLLOUT : POLLIN), 0});
    order.push_back(it);
  }
  const auto pause = std::chrono::ceil<milliseconds>(std::max(wake - now, nanoseconds{0}));
  const int timeout_ms = static_cast<int>(std::min<std::int64_t>(pause.count(), 1000));
  if (poll(polled.data(), polled.size(), timeout_ms) < 0 && errno != EINTR) {
    return Error(ErrorCode::kIo, errno_text("poll", errno));
  }
  if ((polled[1].revents & POLLIN) != 0) {
    return Error(ErrorCode::kAborted, "connecting was called off");
  }
  const MonoTime after = options_.clock->mono_now();
  constexpr std::size_t kFirstPeer = 2;
  const std::size_t first_attempt = kFirstPeer + peers_.by_rank.size();
  for (std::size_t rank = 0; rank < peers_.by_rank.size(); ++rank) {
    if (polled[kFirstPeer + rank].revents != 0) lose(rank, after);
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (polled[first_attempt + i].revents != 0) handle(order[i], polled[first_attempt + i].revents);
  }
  expire(after);
  return polled[0].revents != 0 ? accept_all(after) : Status();
}

void Connector::lose(std::size_t rank, MonoTime now) {
  peers_.by_rank[rank].fd.reset();
  if (rank < dials_.size()) {
    dials_[rank].last_error = "closed the connection after the handshake";
    retry_later(static_cast<int>(rank), now);
  }
}

void Connector::handle(std::list<Attempt>::iterator attempt, short events) {
  const Outcome outcome = advance(*attempt, events);
  if (outcome == Outcome::kGoesOn) return;
  const bool dialed = attempt->dialed();
  const int rank = attempt->rank;
  if (outcome == Outcome::kDone) {
    PeerConnection& peer = peers_.by_rank[static_cast<std::size_t>(rank)];
    peer.fd = std::move(attempt->fd);
    peer.session = session_of(key_, options_.job_uid, attempt->hello, attempt->answer);
    peer.lane = std::move(attempt->lane);
    if (dialed) dials_[static_cast<std::size_t>(rank)].under_way = false;
  } else if (dialed) {
    retry_later(rank, options_.clock->mono_now());
  }
  attempts_.erase(attempt);
}

Outcome Connector::advance(Attempt& attempt, short events) {
  if (attempt.stage == Stage::kConnecting) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
    Dial& dial = dials_[static_cast<std::size_t>(attempt.rank)];
    if (error != 0) {
      dial.last_error = errno_text("connect", error);
      return Outcome::kClosed;
    }
    attempt.hello = Hello{.from = static_cast<std::uint32_t>(options_.rank),
                          .to = static_cast<std::uint32_t>(attempt.rank),
                          .size = static_cast<std::uint32_t>(options_.peers.size()),
                          .epoch = static_cast<std::uint64_t>(options_.epoch),
                          .nonce = fresh_nonce()};
    append<kHelloBytes>(attempt.out, attempt.hello);
    expect(attempt, Stage::kAnswer, kAnswerBytes);
    attempt.give_up =
        std::min(options_.clock->mono_now() + kUnprovenFor, options_.connect_deadline);
    return flush(attempt);
  }
  if (!attempt.out.empty()) {
    const Outcome flushed = flush(attempt);
    if (flushed != Outcome::kGoesOn || !attempt.out.empty()) return flushed;
  }
  if ((events & (POLLIN | POLLHUP | POLLERR)) == 0) return Outcome::kGoesOn;
  return read_message(attempt);
}

Outcome Connector::flush(Attempt& attempt) {
  if (attempt.out.empty()) return Outcome::kGoesOn;
  const ssize_t sent =
      send(attempt.fd.get(), attempt.out.data(), attempt.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (errno == EAGAIN || errno == EINTR) return Outcome::kGoesOn;
    return close_because(attempt, refused_.garbage, errno_text("send", errno));
  }
  peers_.sent_bytes += static_cast<std::uint64_t>(sent);
  attempt.out.erase(attempt.out.begin(), attempt.out.begin() + sent);
  return Outcome::kGoesOn;
}

void Connector::expect(Attempt& attempt, Stage stage, std::size_t bytes) {
  attempt.stage = stage;
  attempt.in.clear();
  attempt.wanted = bytes;
}

Outcome Connector::read_message(Attempt& attempt) {
  // Never reads past the message: what follows the last one belongs to the communicator.
  const std::size_t have = attempt.in.size();
  attempt.in.resize(attempt.wanted);
  const ssize_t got =
      recv(attempt.fd.get(), attempt.in.data() + have, attempt.wanted - have, MSG_DONTWAIT);
  const int error = errno;
  attempt.in.resize(have + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  if (got < 0 && (error == EAGAIN || error == EINTR)) return Outcome::kGoesOn;
  if (got <= 0) {
    return close_because(
        attempt, refused_.garbage,
        got == 0 ? "closed the connection during the handshake" : errno_text("receive", error));
  }
  return attempt.in.size() < attempt.wanted ? Outcome::kGoesOn : take_message(attempt);
}

Outcome Connector::take_message(Attempt& attempt) {
  switch (attempt.stage) {
    case Stage::kHello:
      return on_hello(attempt);
    case Stage::kAnswer:
      return on_answer(attempt);
    case Stage::kProof:
      return on_proof(attempt);
    case Stage::kAccept:
      return on_accept(attempt);
    case Stage::kConnecting:
      break;
  }
  MUSTER_CHECK_MSG(false, "no message is read while connecting");
  return Outcome::kClosed;
}

Outcome Connector::on_hello(Attempt& attempt) {
  const auto hello = decode_hello(fixed<kHelloBytes>(attempt.in));
  if (!hello) return close_because(attempt, refused_.garbage, hello.error().message());
  attempt.hello = *hello;
  if (hello->epoch != static_cast<std::uint64_t>(options_.epoch) ||
      hello->size != options_.peers.size()) {
    return close_because(attempt, refused_.epoch, "is of another epoch or size");
  }
  const bool expected = hello->to == static_cast<std::uint32_t>(options_.rank) &&
                        hello->from > hello->to && hello->from < options_.peers.size();
  if (!expected || peers_.by_rank[hello->from].fd) {
    return close_because(attempt, refused_.rank, "has a rank that is not expected");
  }
  attempt.rank = static_cast<int>(hello->from);
  attempt.answer = Answer{.rank = static_cast<std::uint32_t>(options_.rank),
                          .epoch = static_cast<std::uint64_t>(options_.epoch),
                          .nonce = fresh_nonce(),
                          .proof = {}};
  attempt.answer.proof =
      make_proof(key_, "listener", options_.job_uid, attempt.hello, attempt.answer);
  append<kAnswerBytes>(attempt.out, attempt.answer);
  expect(attempt, Stage::kProof, kProofBytes);
  return flush(attempt);
}

Outcome Connector::on_answer(Attempt& attempt) {
  const auto answer = decode_answer(fixed<kAnswerBytes>(attempt.in));
  if (!answer) return close_because(attempt, refused_.garbage, answer.error().message());
  attempt.answer = *answer;
  const Proof right = make_proof(key_, "listener", options_.job_uid, attempt.hello, *answer);
  if (!equal(right, answer->proof)) {
    dials_[static_cast<std::size_t>(attempt.rank)].unauthorized = true;
    return close_because(attempt, refused_.unauthorized, "does not hold this job's key");
  }
  if (answer->rank != attempt.hello.to || answer->epoch != attempt.hello.epoch) {
    return close_because(attempt, refused_.rank, "is another rank or of another epoch");
  }
  dials_[static_cast<std::size_t>(attempt.rank)].unauthorized = false;
  append<kProofBytes>(attempt.out, Introduction{make_proof(key_, "dialer", options_.job_uid,
                                                           attempt.hello, *answer),
                                                offer_lane(attempt)});
  expect(attempt, Stage::kAccept, kAcceptBytes);
  // The peer is proven and may count this connection as made: giving it up now and dialing again
  // would look like a second process of this rank.
  attempt.give_up = options_.connect_deadline;
  return flush(attempt);
}

Outcome Connector::on_proof(Attempt& attempt) {
  const auto introduction = decode_introduction(fixed<kProofBytes>(attempt.in));
  if (!introduction) {
    return close_because(attempt, refused_.garbage, introduction.error().message());
  }
  const Proof right = make_proof(key_, "dialer", options_.job_uid, attempt.hello, attempt.answer);
  if (!equal(right, introduction->proof)) {
    return close_because(attempt, refused_.unauthorized, "does not hold this job's key");
  }
  if (peers_.by_rank[static_cast<std::size_t>(attempt.rank)].fd) {
    return close_because(attempt, refused_.rank, "is a second process of a connected rank");
  }
  take_lane(attempt, introduction->lane);
  // A few bytes into the empty buffer of a new connection: they fit or the connection is broken.
  append<kAcceptBytes>(attempt.out, Accept{attempt.lane != nullptr});
  const Outcome flushed = flush(attempt);
  if (flushed != Outcome::kGoesOn) return flushed;
  return attempt.out.empty() ? Outcome::kDone
                             : close_because(attempt, refused_.garbage, "takes no bytes");
}

Outcome Connector::on_accept(Attempt& attempt) {
  const auto accept = decode_accept(fixed<kAcceptBytes>(attempt.in));
  const bool is_possible = accept && (attempt.lane || !accept->lane_is_taken);
  if (!is_possible) return close_because(attempt, refused_.garbage, "answered in another protocol");
  if (!accept->lane_is_taken) attempt.lane.reset();
  if (attempt.lane) attempt.lane->close_offer();
  return Outcome::kDone;
}

LaneOffer Connector::offer_lane(Attempt& attempt) {
  if (!options_.shares_memory || !has_one_address(attempt.fd.get())) return {};
  auto lane =
      MemoryLane::make(make_proof(key_, "lane", options_.job_uid, attempt.hello, attempt.answer),
                       MemoryLane::ring_bytes(options_.peers.size() - 1));
  if (!lane) return {};  // the connection carries everything, too
  attempt.lane = *std::move(lane);
  return attempt.lane->offer();
}

void Connector::take_lane(Attempt& attempt, const LaneOffer& offer) {
  if (offer.pid == 0 || !options_.shares_memory || !has_one_address(attempt.fd.get())) return;
  auto lane = MemoryLane::open(
      offer, make_proof(key_, "lane", options_.job_uid, attempt.hello, attempt.answer));
  if (lane) attempt.lane = *std::move(lane);
}

Outcome Connector::close_because(Attempt& attempt, std::uint64_t& counter, const std::string& why) {
  if (attempt.dialed()) dials_[static_cast<std::size_t>(attempt.rank)].last_error = why;
  // A dial that fails is tried again and is nobody refused, unless the other side is a stranger.
  if (!attempt.dialed() || &counter == &refused_.unauthorized) ++counter;
  return Outcome::kClosed;
}

Error Connector::timed_out() const {
  std::string text = "not connected by the deadline:";
  constexpr std::size_t kNamedMax = 8;
  std::size_t named = 0;
  ErrorCode code = ErrorCode::kUnavailable;
  for (std::size_t rank = 0; rank < peers_.by_rank.size(); ++rank) {
    if (peers_.by_rank[rank].fd || rank == static_cast<std::size_t>(options_.rank)) continue;
    const PeerAddress& address = options_.peers[rank];
    const bool dialed = rank < dials_.size();
    if (dialed && dials_[rank].unauthorized) code = ErrorCode::kUnauthorized;
    if (++named > kNamedMax) continue;
    text += " rank " + std::to_string(rank) + " at " + address.host + ":" +
            std::to_string(address.port) +
            (dialed ? " (" + dials_[rank].last_error + ")" : " (did not connect)") + ";";
  }
  if (named > kNamedMax) text += " and " + std::to_string(named - kNamedMax) + " more;";
  text.pop_back();
  return Error(code, text);
}

}  // namespace

Result<Peers> connect_peers(const TcpOptions& options, const JobKey& key, int listen_fd,
                            RefusedConnections& refused) {
  auto peers = Connector(options, key, listen_fd, refused).run();
  const std::uint64_t total =
      refused.garbage + refused.unauthorized + refused.epoch + refused.rank + refused.silent;
  if (total > 0) {
    log_warning("refused connections while the ranks met", {{"rank", options.rank},
                                                            {"garbage", refused.garbage},
                                                            {"unauthorized", refused.unauthorized},
                                                            {"epoch", refused.epoch},
                                                            {"wrong_rank", refused.rank},
                                                            {"silent", refused.silent}});
  }
  return peers;
}

}  // namespace muster::comm
