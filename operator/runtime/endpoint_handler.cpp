#include "operator/runtime/endpoint_handler.h"

#include <algorithm>

#include "common/contract.h"
#include "common/json.h"
#include "operator/runtime/token_claims.h"

namespace muster::runtime {
namespace {

http::Response answer(int status, const Json& body) {
  http::Response response;
  response.status = status;
  response.body = dump_json(body);
  return response;
}

/// A refusal: `reason` for the worker's code, `message` for people.
http::Response refusal(int status, std::string_view reason, const std::string& message) {
  return answer(status, Json{{"reason", reason}, {"message", message}});
}

http::Response refusal_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::kUnauthorized:
      return refusal(401, "Unauthorized", error.message());
    case ErrorCode::kForbidden:
      return refusal(403, "Forbidden", error.message());
    case ErrorCode::kInvalid:
      return refusal(400, "Invalid", error.message());
    default:
      return refusal(503, "Unavailable", error.message());
  }
}

/// Addresses and DNS names; anything else never reaches another worker.
bool is_host(const std::string& host) {
  return !host.empty() && host.size() <= 253 && std::all_of(host.begin(), host.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == ':' || c == '-' || c == '_';
  });
}

bool is_decimal(const std::string& text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '+' || c == 'e';
  });
}

bool is_hex(const std::string& text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

/// What the message codec does not know: values that are passed on into objects and to workers.
Status check_texts(const ProgressReport& report) {
  const auto wrong = [](const char* field, const char* rule) {
    return Error(ErrorCode::kInvalid, std::string("progress.") + field + ": " + rule);
  };
  if (!is_decimal(report.loss)) return wrong("loss", "must be a decimal number");
  if (!is_decimal(report.accuracy)) return wrong("accuracy", "must be a decimal number");
  if (!is_hex(report.model_sha256)) return wrong("modelSHA256", "must be hexadecimal");
  if (!is_hex(report.data_sha256)) return wrong("dataSHA256", "must be hexadecimal");
  if (!report.host.empty() && !is_host(report.host)) {
    return wrong("host", "must be an address or a DNS name");
  }
  return {};
}

constexpr const char* kOtherWorker = "the token belongs to another worker";

std::string describe(const std::string& host, const std::vector<int>& ports) {
  std::string text = host;
  for (const int port : ports) text += ":" + std::to_string(port);
  return text;
}

/// How a join's answer begins.
constexpr std::string_view kBeginsAtOnce = R"({"beginAfterMs":0)";

std::string build_join_body(const GangInfo& info, std::vector<JoinPeer> peers, bool is_joining,
                            bool checks_data) {
  JoinResponse response;
  response.complete = true;
  response.present = response.expected = static_cast<int>(peers.size());
  response.epoch = info.epoch;
  response.peers = std::move(peers);
  response.job_uid = info.job_uid;
  response.job_key = info.job_key;
  auto training = parse_json(info.training);
  MUSTER_CHECK_MSG(training.has_value(), "a gang's training is JSON");
  response.training = std::move(*training);
  response.threads = info.threads;
  response.joining = is_joining;
  response.checks_data = checks_data;
  return dump_json(to_json(response));
}

bool starts(const GangInfo& info, int slot) {
  return info.start_attempt < 0 || info.attempt_of_slot.at(slot) <= info.start_attempt;
}

/// The same start of the same job, whoever has come and gone since. The job key is not compared: a
/// gang keeps the one it began with (knows_better), so that a replaced master key does not part its
/// workers.
bool is_same_gang(const GangInfo& a, const GangInfo& b) {
  const bool same_start = a.start_attempt >= 0 && a.start_attempt == b.start_attempt;
  return a.job_uid == b.job_uid &&
         (same_start || (a.epoch == b.epoch && a.attempt_of_slot == b.attempt_of_slot)) &&
         a.processes == b.processes && a.threads == b.threads && a.training == b.training;
}

/// Whether what is told of the same gang now is its own key, where another one stood in for it.
bool knows_better(const GangInfo& now, const GangInfo& before) {
  return now.is_key_sure && !before.is_key_sure;
}

class LocalAuthenticator final : public Authenticator {
 public:
  explicit LocalAuthenticator(std::string token) : token_(std::move(token)) {}
  void authenticate(const Credential& credential, Done done) override {
    if (token_.empty() || !http::equal_in_constant_time(credential.bearer_token, token_)) {
      return done(Error(ErrorCode::kUnauthorized,
                        "the bearer token is not the one this endpoint was started with"));
    }
    done(Caller{});
  }

 private:
  const std::string token_;
};

}  // namespace

milliseconds join_pause(std::size_t waiting, std::size_t gangs) {
  const auto turn = milliseconds(1000 * waiting * gangs / kJoinsPerSecond);
  return std::clamp(turn - kJoinHold, milliseconds(0), kJoinPauseMost);
}

std::unique_ptr<Authenticator> make_local_authenticator(std::string token) {
  return std::make_unique<LocalAuthenticator>(std::move(token));
}

EndpointHandler::EndpointHandler(WorkersEndpointOptions options, RunAfter run_after,
                                 Forward forward)
    : options_(std::move(options)), run_after_(std::move(run_after)), forward_(std::move(forward)) {
  MUSTER_CHECK(options_.clock != nullptr && options_.authenticator != nullptr && run_after_);
}

void EndpointHandler::handle(const http::Request& request, const http::Responder& plain) {
  http::Responder respond = plain;
  if (options_.on_answer) {
    respond = [plain, told = options_.on_answer, path = request.path](http::Response response) {
      told(path, response.status);
      plain(std::move(response));
    };
  }
  const auto post = post_of(request.path);
  if (!post) {
    return respond(refusal(404, "NotFound", "there is no such path here"));
  }
  if (request.method != "POST") {
    return respond(refusal(405, "MethodNotAllowed", "only POST is served here"));
  }
  const std::string token(request.bearer_token());
  if (token.empty()) {
    return respond(refusal(401, "Unauthorized", "a bearer token is needed"));
  }
  if (answer_elsewhere(request, respond)) return;
  options_.authenticator->authenticate(
      credential_of(token), [this, gate = gate_, post = *post, body = request.body,
                             respond](const Result<Caller>& caller) {
        const std::shared_lock lock(gate->mutex);
        if (gate->is_closed) {
          return respond(refusal(503, "Unavailable", "the endpoint is stopping"));
        }
        handle_post(post, body, caller, respond);
      });
}

Credential EndpointHandler::credential_of(const std::string& token) {
  Credential credential{token, claimed_pod_uid(token)};
  const std::lock_guard lock(mutex_);
  if (!pod_uids_.contains(credential.known_pod_uid)) credential.known_pod_uid.clear();
  return credential;
}

void EndpointHandler::know_pods(const GangInfo& gang) {
  for (const auto& [slot, pod] : gang.pod_of_slot) pod_uids_.insert(pod.uid);
}

void EndpointHandler::forget_pods(const GangInfo& gang) {
  for (const auto& [slot, pod] : gang.pod_of_slot) pod_uids_.erase(pod.uid);
}

std::optional<EndpointHandler::Post> EndpointHandler::post_of(std::string_view path) {
  if (path == contract::kPathJoin) return Post::kJoin;
  if (path == contract::kPathProgress) return Post::kProgress;
  if (path == contract::kPathWitness) return Post::kWitness;
  return std::nullopt;
}

void EndpointHandler::close_gate() {
  const std::unique_lock lock(gate_->mutex);
  gate_->is_closed = true;
}

bool EndpointHandler::answer_elsewhere(const http::Request& request,
                                       const http::Responder& respond) {
  if (!options_.leader_address || !forward_) return false;
  const std::string leader = options_.leader_address();
  if (leader.empty()) return false;
  if (!request.header(contract::kHeaderForwarded).empty()) {
    // Two replicas disagree about who leads, for a moment: handing on could go round for ever.
    respond(refusal(503, "Unavailable", "this replica does not lead; post again"));
  } else {
    forward_(request, leader, respond);
  }
  return true;
}

void EndpointHandler::handle_post(Post post, const std::string& text, const Result<Caller>& caller,
                                  const http::Responder& respond) {
  if (!caller) return respond(refusal_of(caller.error()));
  const auto body = parse_json(text);
  if (!body) return respond(refusal_of(body.error().with("body")));
  if (post == Post::kJoin) {
    auto message = parse_join_request(*body);
    if (!message) return respond(refusal_of(message.error()));
    return join(std::move(*message), *caller, respond);
  }
  if (post == Post::kWitness) {
    const auto question = parse_witness_request(*body);
    if (!question) return respond(refusal_of(question.error()));
    return witness(*question, *caller, respond);
  }
  const auto message = parse_progress_report(*body);
  if (!message) return respond(refusal_of(message.error()));
  if (const Status texts = check_texts(*message); !texts) {
    return respond(refusal_of(texts.error()));
  }
  progress(*message, *caller, respond);
}

std::optional<http::Response> EndpointHandler::refuse_pod(const GangInfo& info, int slot,
                                                          int attempt, const Caller& caller) {
  if (caller.pod_uid.empty()) return std::nullopt;
  const auto forbidden = refusal(403, "Forbidden", kOtherWorker);
  if (caller.pod_namespace != info.job.substr(0, info.job.find('/'))) return forbidden;
  const auto expected = info.attempt_of_slot.find(slot);
  const auto pod = info.pod_of_slot.find(slot);
  const bool is_pod_known = pod != info.pod_of_slot.end();
  if (is_pod_known && pod->second.uid == caller.pod_uid && pod->second.name == caller.pod_name) {
    return std::nullopt;
  }
  // A pod that was just made may post before its operator has seen it.
  if (expected != info.attempt_of_slot.end() && expected->second == attempt && !is_pod_known) {
    return refusal(503, "Unavailable", "the worker's pod is not known here yet; post again");
  }
  return forbidden;
}

std::optional<http::Response> EndpointHandler::refuse(const std::string& job, int slot, int attempt,
                                                      const Caller& caller) {
  if (is_stopping_) return refusal(503, "Unavailable", "the endpoint is stopping");
  const auto found = gangs_.find(job);
  if (found == gangs_.end()) {
    // A token bound to a pod learns only about its own namespace.
    if (!caller.pod_uid.empty() && caller.pod_namespace != job.substr(0, job.find('/'))) {
      return refusal(403, "Forbidden", kOtherWorker);
    }
    return refusal(404, "NotFound", "no gang of job \"" + job + "\" is expected now");
  }
  Gang& gang = found->second;
  if (auto other = refuse_pod(gang.info, slot, attempt, caller)) return other;
  const auto worker = gang.workers.find(slot);
  if (worker == gang.workers.end()) {
    return refusal(409, "SlotRefused",
                   "slot " + std::to_string(slot) + " is not in the gang of " +
                       std::to_string(gang.workers.size()) + " workers of job \"" + job + "\"");
  }
  if (const int expected = gang.info.attempt_of_slot.at(slot); attempt != expected) {
    return refusal(409, "AttemptRefused",
                   "slot " + std::to_string(slot) + " is at attempt " + std::to_string(expected) +
                       ", this worker is attempt " + std::to_string(attempt) +
                       (attempt < expected ? ": it was replaced" : ""));
  }
  Worker& poster = worker->second;
  const MonoTime now = options_.clock->mono_now();
  const std::chrono::duration<double> passed = now - poster.posts_at;
  poster.posts_left =
      std::min<double>(kPostsPerSecond, poster.posts_left + passed.count() * kPostsPerSecond);
  poster.posts_at = now;
  if (poster.posts_left < 1) {
    auto slow_down = refusal(429, "TooManyRequests",
                             "more than " + std::to_string(kPostsPerSecond) +
                                 " posts a second from slot " + std::to_string(slot));
    slow_down.headers.emplace_back("Retry-After", "1");
    return slow_down;
  }
  poster.posts_left -= 1;
  return std::nullopt;
}

std::optional<http::Response> EndpointHandler::refuse_join(const Gang& gang, const Worker& worker,
                                                           const JoinRequest& request,
                                                           const Caller& caller) const {
  const std::string slot = "slot " + std::to_string(request.slot);
  if (gang.info.training.empty()) {
    return refusal(409, "NotBuiltIn", "this job runs its own program; its workers do not join");
  }
  if (request.contract != contract::kNumericsContract) {
    return refusal(409, "ContractRefused",
                   "this job trains under numerics contract " +
                       std::string(contract::kNumericsContract) + ", " + slot + " has \"" +
                       request.contract.substr(0, 64) +
                       "\": give every worker the image of one release");
  }
  if (static_cast<int>(request.ports.size()) != gang.info.processes) {
    return refusal(409, "ProcessesRefused",
                   slot + " brings " + std::to_string(request.ports.size()) +
                       " processes, the job has " + std::to_string(gang.info.processes) +
                       " per worker");
  }
  // Of the gang's first membership all others have the address already.
  const bool is_fixed = !gang.start_body.empty() && starts(gang.info, request.slot);
  if (!is_fixed || !worker.address) return std::nullopt;
  if (worker.address->host != request.host || worker.address->ports != request.ports ||
      worker.pod_uid != caller.pod_uid) {
    return refusal(409, "AddressRefused",
                   slot + " has joined from " +
                       describe(worker.address->host, worker.address->ports) +
                       " and the gang is complete; " + describe(request.host, request.ports) +
                       " comes too late");
  }
  return std::nullopt;
}

void EndpointHandler::join(JoinRequest request, const Caller& caller,
                           const http::Responder& respond) {
  if (!is_host(request.host)) {
    return respond(refusal(400, "Invalid", "join.host: must be an address or a DNS name"));
  }
  Replies replies;
  Told told;
  {
    const std::lock_guard lock(mutex_);
    auto refused = refuse(request.job, request.slot, request.attempt, caller);
    Gang* gang = refused ? nullptr : &gangs_.at(request.job);
    Worker* worker = gang != nullptr ? &gang->workers.at(request.slot) : nullptr;
    if (!refused) refused = refuse_join(*gang, *worker, request, caller);
    if (refused) {
      replies.emplace_back(respond, std::move(*refused));
    } else {
      worker->pod_uid = caller.pod_uid;
      worker->waits = true;
      worker->begins_together = request.begins_together;
      worker->away_until = MonoTime{};
      worker->address =
          JoinPeer{request.slot,           std::move(request.host), std::move(request.ports),
                   request.sentinel_port,  request.attempt,         std::move(request.domain),
                   std::move(request.rack)};
      park(*gang, request.slot, respond, replies);
      try_start(*gang);
      release(*gang, replies, told);
      if (worker->parked) {
        run_after_(kJoinHold, [this, job = gang->info.job, slot = request.slot,
                               id = worker->parked->id] { end_hold(job, slot, id); });
      }
    }
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  tell(told);
}

void EndpointHandler::park(Gang& gang, int slot, const http::Responder& respond, Replies& replies) {
  Worker& worker = gang.workers.at(slot);
  if (worker.parked) {
    // The worker posts again: it has given up the earlier exchange. One parked post a worker.
    replies.emplace_back(worker.parked->respond, waiting(gang));
  }
  worker.parked = Parked{++next_id_, respond};
}

void EndpointHandler::end_hold(const std::string& job, int slot, std::uint64_t id) {
  Replies replies;
  {
    const std::lock_guard lock(mutex_);
    const auto gang = gangs_.find(job);
    if (gang == gangs_.end()) return;
    const auto worker = gang->second.workers.find(slot);
    if (worker == gang->second.workers.end()) return;
    auto& parked = worker->second.parked;
    if (!parked || parked->id != id) return;
    const milliseconds pause = pause_of(gang->second);
    worker->second.away_until = options_.clock->mono_now() + pause;
    replies.emplace_back(std::move(parked->respond), waiting(gang->second, pause));
    parked.reset();
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
}

milliseconds EndpointHandler::pause_of(const Gang& gang) const {
  std::size_t asking = 0;
  for (const auto& [slot, worker] : gang.workers) {
    if (!worker.waits) continue;
    // One of an older build begins as soon as it hears of the gang: then all have to hear at once.
    if (!worker.begins_together) return milliseconds(0);
    ++asking;
  }
  return join_pause(asking, waiting_.size());
}

void EndpointHandler::note_waiting(const Gang& gang) {
  const bool waits = std::any_of(gang.workers.begin(), gang.workers.end(),
                                 [](const auto& entry) { return entry.second.waits; });
  if (waits) waiting_.insert(gang.info.job);
  if (!waits) waiting_.erase(gang.info.job);
}

void EndpointHandler::try_start(Gang& gang) const {
  if (gang.has_started) return;
  const MonoTime now = options_.clock->mono_now();
  MonoTime begins_at = now;
  std::vector<JoinPeer> peers;
  for (const auto& [slot, worker] : gang.workers) {
    if (!starts(gang.info, slot)) continue;
    if (!worker.address) return;
    if (worker.away_until > now) begins_at = std::max(begins_at, worker.away_until + kBeginSlack);
    peers.push_back(*worker.address);
  }
  if (peers.empty()) return;
  gang.has_started = true;
  gang.begins_at = begins_at;
  gang.start_body = build_join_body(gang.info, std::move(peers), false, false);
  MUSTER_CHECK_MSG(gang.start_body.starts_with(kBeginsAtOnce), "members are written by name");
}

http::Response EndpointHandler::start_answer(const Gang& gang) const {
  const auto left = std::chrono::ceil<milliseconds>(gang.begins_at - options_.clock->mono_now());
  if (left <= milliseconds(0)) return {.body = gang.start_body, .headers = {}};
  // All of a large gang ask within a short time: one number is exchanged for the other.
  return {.body = std::string(kBeginsAtOnce.substr(0, kBeginsAtOnce.size() - 1)) +
                  std::to_string(left.count()) + gang.start_body.substr(kBeginsAtOnce.size()),
          .headers = {}};
}

std::optional<http::Response> EndpointHandler::answer_join(const Gang& gang, int slot) const {
  const bool is_first = !gang.start_body.empty() && starts(gang.info, slot);
  if (is_first) return start_answer(gang);
  // Everybody who waits is looked at again at each join: of a gang that gathers that costs nothing.
  if (!gang.has_started) return std::nullopt;
  std::vector<JoinPeer> peers;
  bool has_member = false;
  for (const auto& [other, worker] : gang.workers) {
    if (!worker.address) continue;
    peers.push_back(*worker.address);
    if (other == slot) continue;
    has_member |= worker.trains || (!gang.start_body.empty() && starts(gang.info, other));
  }
  // Others that want to be let in cannot let anybody in.
  if (!has_member) return std::nullopt;
  const bool checks_data = gang.info.checking_slots.contains(slot);
  return http::Response{.body = build_join_body(gang.info, std::move(peers), true, checks_data),
                        .headers = {}};
}

void EndpointHandler::release(Gang& gang, Replies& replies, Told& told) {
  for (auto& [slot, worker] : gang.workers) {
    if (!worker.parked) continue;
    auto response = answer_join(gang, slot);
    if (!response) continue;
    replies.emplace_back(std::move(worker.parked->respond), std::move(*response));
    worker.parked.reset();
    worker.waits = false;
    if (std::exchange(worker.was_told, true)) continue;
    told.emplace_back(gang.info.job, slot);
  }
  note_waiting(gang);
}

void EndpointHandler::send_back(Gang& gang, const http::Response& response, Replies& replies) {
  for (auto& [slot, worker] : gang.workers) {
    if (!worker.parked) continue;
    replies.emplace_back(std::move(worker.parked->respond), response);
    worker.parked.reset();
  }
}

void EndpointHandler::tell(const Told& told) const {
  if (!options_.on_join) return;
  for (const auto& [job, slot] : told) options_.on_join(job, slot);
}

http::Response EndpointHandler::waiting(const Gang& gang, milliseconds pause) {
  JoinResponse response;
  response.retry_after_ms = static_cast<int>(pause.count());
  response.expected = static_cast<int>(gang.workers.size());
  response.present = static_cast<int>(
      std::count_if(gang.workers.begin(), gang.workers.end(),
                    [](const auto& entry) { return entry.second.address.has_value(); }));
  response.epoch = gang.info.epoch;
  return answer(200, to_json(response));
}

void EndpointHandler::take_address(Gang& gang, Worker& worker, const ProgressReport& report) {
  const bool is_whole = !report.host.empty() && !gang.info.training.empty() &&
                        static_cast<int>(report.ports.size()) == gang.info.processes;
  if (is_whole) {
    // What its join has said of its node stays: a report does not say it.
    if (!worker.address) worker.address.emplace();
    JoinPeer& address = *worker.address;
    address.slot = report.slot;
    address.attempt = report.attempt;
    address.host = report.host;
    address.ports = report.ports;
    address.sentinel_port = report.sentinel_port;
  }
  worker.trains = report.membership_epoch > 0 &&
                  std::binary_search(report.members.begin(), report.members.end(), report.slot);
  if (worker.trains) gang.has_started = true;
}

void EndpointHandler::progress(const ProgressReport& report, const Caller& caller,
                               const http::Responder& respond) {
  Replies replies;
  Told told;
  std::optional<http::Response> refused;
  ProgressResponse taken;
  {
    const std::lock_guard lock(mutex_);
    refused = refuse(report.job, report.slot, report.attempt, caller);
    const auto turn = milliseconds(1000 * workers_ / kReportsPerSecond);
    if (workers_ > kReportsPerSecond) {
      taken.next_after_ms = static_cast<int>(std::min(turn, kReportPauseMost).count());
    }
    if (!refused) {
      Gang& gang = gangs_.at(report.job);
      take_address(gang, gang.workers.at(report.slot), report);
      release(gang, replies, told);
    }
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  tell(told);
  if (!refused && options_.on_progress && !options_.on_progress(report)) {
    refused = refusal(503, "Unavailable", "the operator has too much to do now; report again");
  }
  respond(refused ? std::move(*refused) : answer(200, to_json(taken)));
}

void EndpointHandler::witness(const WitnessRequest& request, const Caller& caller,
                              const http::Responder& respond) {
  std::optional<http::Response> refused;
  {
    const std::lock_guard lock(mutex_);
    refused = refuse(request.job, request.slot, request.attempt, caller);
  }
  if (refused) return respond(std::move(*refused));
  if (!options_.on_witness) {
    return respond(refusal(503, "Unavailable", "there is no witness here now; ask again"));
  }
  options_.on_witness(request, [respond](const Result<WitnessResponse>& said) {
    respond(said ? answer(200, to_json(*said)) : refusal_of(said.error()));
  });
}

void EndpointHandler::set_gang(GangInfo gang) {
  Replies replies;
  Told told;
  {
    const std::lock_guard lock(mutex_);
    Gang& entry = gangs_[gang.job];
    const bool stays = !entry.workers.empty() && is_same_gang(entry.info, gang);
    // All who started here have the key that they were told, and prove that one to each other.
    const bool has_started_here = !entry.start_body.empty();
    if (stays && (has_started_here || !knows_better(gang, entry.info))) {
      gang.job_key = entry.info.job_key;
      gang.is_key_sure = entry.info.is_key_sure;
    }
    std::map<int, Worker> before = std::exchange(entry.workers, {});
    workers_ += gang.attempt_of_slot.size() - before.size();
    for (const auto& [slot, attempt] : gang.attempt_of_slot) {
      const auto found = before.find(slot);
      const bool same_worker =
          stays && found != before.end() && entry.info.attempt_of_slot.at(slot) == attempt;
      if (same_worker) {
        entry.workers.insert(before.extract(found));
      } else {
        entry.workers[slot].posts_at = options_.clock->mono_now();
      }
    }
    if (!stays) entry.start_body.clear();
    if (!stays) entry.has_started = false;
    forget_pods(entry.info);
    entry.info = std::move(gang);
    know_pods(entry.info);
    // Those still in the gang post again at once; the others then hear why they are not.
    Gang gone;
    gone.workers = std::move(before);
    send_back(gone, waiting(entry), replies);
    try_start(entry);
    release(entry, replies, told);
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  tell(told);
}

void EndpointHandler::remove_gang(const std::string& job) {
  Replies replies;
  {
    const std::lock_guard lock(mutex_);
    const auto found = gangs_.find(job);
    if (found == gangs_.end()) return;
    send_back(found->second,
              refusal(404, "NotFound", "no gang of job \"" + job + "\" is expected now"), replies);
    workers_ -= found->second.workers.size();
    forget_pods(found->second.info);
    waiting_.erase(job);
    gangs_.erase(found);
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
}

void EndpointHandler::stop() {
  Replies replies;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    for (auto& [job, gang] : gangs_) {
      send_back(gang, refusal(503, "Unavailable", "the endpoint is stopping"), replies);
    }
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  close_gate();
}

}  // namespace muster::runtime
