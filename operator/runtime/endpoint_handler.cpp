#include "operator/runtime/endpoint_handler.h"

#include <algorithm>

#include "common/contract.h"
#include "common/json.h"

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
  return {};
}

constexpr const char* kOtherWorker = "the token belongs to another worker";

std::string describe(const JoinRequest& request) {
  std::string text = request.host;
  for (const int port : request.ports) text += ":" + std::to_string(port);
  return text;
}

std::string build_complete_body(const GangInfo& info, std::vector<JoinPeer> peers) {
  JoinResponse response;
  response.complete = true;
  response.present = response.expected = static_cast<int>(peers.size());
  response.epoch = info.epoch;
  response.peers = std::move(peers);
  response.job_uid = info.job_uid;
  response.job_key = info.job_key;
  response.training = info.training;
  response.threads = info.threads;
  return dump_json(to_json(response));
}

/// The job key is not compared: an epoch keeps the one it began with, so that a replaced master key
/// does not part a gang that is gathering.
bool is_same_gang(const GangInfo& a, const GangInfo& b) {
  return a.job_uid == b.job_uid && a.epoch == b.epoch && a.attempt_of_slot == b.attempt_of_slot &&
         a.processes == b.processes && a.threads == b.threads && a.training == b.training;
}

class LocalAuthenticator final : public Authenticator {
 public:
  explicit LocalAuthenticator(std::string token) : token_(std::move(token)) {}
  void authenticate(const std::string& bearer_token, Done done) override {
    if (token_.empty() || !http::equal_in_constant_time(bearer_token, token_)) {
      return done(Error(ErrorCode::kUnauthorized,
                        "the bearer token is not the one this endpoint was started with"));
    }
    done(Caller{});
  }

 private:
  const std::string token_;
};

}  // namespace

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
  const bool is_join = request.path == contract::kPathJoin;
  if (!is_join && request.path != contract::kPathProgress) {
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
  options_.authenticator->authenticate(token, [this, gate = gate_, is_join, body = request.body,
                                               respond](const Result<Caller>& caller) {
    const std::shared_lock lock(gate->mutex);
    if (gate->is_closed) {
      return respond(refusal(503, "Unavailable", "the endpoint is stopping"));
    }
    handle_post(is_join, body, caller, respond);
  });
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

void EndpointHandler::handle_post(bool is_join, const std::string& text,
                                  const Result<Caller>& caller, const http::Responder& respond) {
  if (!caller) return respond(refusal_of(caller.error()));
  const auto body = parse_json(text);
  if (!body) return respond(refusal_of(body.error().with("body")));
  if (is_join) {
    auto message = parse_join_request(*body);
    if (!message) return respond(refusal_of(message.error()));
    return join(std::move(*message), *caller, respond);
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
  if (gang.info.training.is_null()) {
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
  if (gang.complete_body.empty() || !worker.joined) return std::nullopt;
  if (worker.joined->host != request.host || worker.joined->ports != request.ports ||
      worker.pod_uid != caller.pod_uid) {
    return refusal(409, "AddressRefused",
                   slot + " has joined from " + describe(*worker.joined) +
                       " and the gang is complete; " + describe(request) + " comes too late");
  }
  return std::nullopt;
}

void EndpointHandler::join(JoinRequest request, const Caller& caller,
                           const http::Responder& respond) {
  if (!is_host(request.host)) {
    return respond(refusal(400, "Invalid", "join.host: must be an address or a DNS name"));
  }
  Replies replies;
  bool is_now_complete = false;
  const std::string job = request.job;
  std::vector<JoinPeer> peers;
  {
    const std::lock_guard lock(mutex_);
    auto refused = refuse(request.job, request.slot, request.attempt, caller);
    Gang* gang = refused ? nullptr : &gangs_.at(request.job);
    Worker* worker = gang != nullptr ? &gang->workers.at(request.slot) : nullptr;
    if (!refused) refused = refuse_join(*gang, *worker, request, caller);
    if (refused) {
      replies.emplace_back(respond, std::move(*refused));
    } else {
      const int slot = request.slot;
      worker->pod_uid = caller.pod_uid;
      worker->joined = std::move(request);
      if (gang->complete_body.empty()) {
        for (const auto& [index, member] : gang->workers) {
          if (member.joined) peers.push_back({index, member.joined->host, member.joined->ports});
        }
        is_now_complete = peers.size() == gang->workers.size();
        if (is_now_complete) gang->complete_body = build_complete_body(gang->info, peers);
      }
      if (gang->complete_body.empty()) {
        park(job, *worker, slot, respond, replies);
      } else {
        replies.emplace_back(respond, http::Response{.body = gang->complete_body, .headers = {}});
        release(*gang, replies.back().second, replies);
      }
    }
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  if (is_now_complete && options_.on_join) {
    for (const JoinPeer& peer : peers) options_.on_join(job, peer.slot);
  }
}

void EndpointHandler::park(const std::string& job, Worker& worker, int slot,
                           const http::Responder& respond, Replies& replies) {
  if (worker.parked) {
    // The worker posts again: it has given up the earlier exchange. One parked post a worker.
    replies.emplace_back(worker.parked->respond, waiting(gangs_.at(job)));
  }
  const std::uint64_t id = ++next_id_;
  worker.parked = Parked{id, respond};
  run_after_(kJoinHold, [this, job, slot, id] { end_hold(job, slot, id); });
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
    replies.emplace_back(std::move(parked->respond), waiting(gang->second));
    parked.reset();
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): see the declaration.
void EndpointHandler::release(Gang& gang, http::Response response, Replies& replies) {
  for (auto& [slot, worker] : gang.workers) {
    if (!worker.parked) continue;
    replies.emplace_back(std::move(worker.parked->respond), response);
    worker.parked.reset();
  }
}

http::Response EndpointHandler::waiting(const Gang& gang) {
  JoinResponse response;
  response.expected = static_cast<int>(gang.workers.size());
  response.present = static_cast<int>(
      std::count_if(gang.workers.begin(), gang.workers.end(),
                    [](const auto& entry) { return entry.second.joined.has_value(); }));
  response.epoch = gang.info.epoch;
  return answer(200, to_json(response));
}

void EndpointHandler::progress(const ProgressReport& report, const Caller& caller,
                               const http::Responder& respond) {
  std::optional<http::Response> refused;
  {
    const std::lock_guard lock(mutex_);
    refused = refuse(report.job, report.slot, report.attempt, caller);
  }
  if (refused) return respond(std::move(*refused));
  respond(answer(200, Json::object()));
  if (options_.on_progress) options_.on_progress(report);
}

void EndpointHandler::set_gang(GangInfo gang) {
  Replies replies;
  {
    const std::lock_guard lock(mutex_);
    Gang& entry = gangs_[gang.job];
    if (!entry.workers.empty() && is_same_gang(entry.info, gang)) {
      entry.info.pod_of_slot = std::move(gang.pod_of_slot);
      return;
    }
    Gang old = std::move(entry);
    entry = Gang{};
    entry.info = std::move(gang);
    for (const auto& [slot, attempt] : entry.info.attempt_of_slot) {
      entry.workers[slot].posts_at = options_.clock->mono_now();
    }
    // Those still in the new gang post again at once; the others then hear why they are not.
    release(old, waiting(entry), replies);
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
}

void EndpointHandler::remove_gang(const std::string& job) {
  Replies replies;
  {
    const std::lock_guard lock(mutex_);
    const auto found = gangs_.find(job);
    if (found == gangs_.end()) return;
    release(found->second,
            refusal(404, "NotFound", "no gang of job \"" + job + "\" is expected now"), replies);
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
      release(gang, refusal(503, "Unavailable", "the endpoint is stopping"), replies);
    }
  }
  for (auto& [reply, response] : replies) reply(std::move(response));
  close_gate();
}

}  // namespace muster::runtime
