#include "worker/sentinel/postman.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "common/check.h"
#include "common/contract.h"
#include "common/json.h"
#include "common/log.h"
#include "common/rng.h"
#include "worker/sentinel/environment.h"
#include "worker/sentinel/launch.h"

namespace muster::sentinel {
namespace {

constexpr std::size_t kMaxJoinAnswerBytes = std::size_t{16} * 1024 * 1024;

/// A text of the endpoint's answer; empty where there is none. The answer may be anything.
std::string text_of(const http::Response& response, const char* field) {
  const auto json = parse_json(response.body);
  if (!json || !json->is_object()) return {};
  const auto found = json->find(field);
  if (found == json->end() || !found->is_string()) return {};
  return found->get<std::string>().substr(0, 1024);
}

/// The endpoint's sentence about a refusal, or its status.
std::string message_of(const http::Response& response) {
  const std::string message = text_of(response, "message");
  return message.empty() ? "status " + std::to_string(response.status) : message;
}

int exit_code_of_refusal(const http::Response& response) {
  return text_of(response, "reason") == "ContractRefused" ? contract::exit_code::kCpuOrContract
                                                          : contract::exit_code::kInternal;
}

}  // namespace

Postman::Postman(PostmanOptions options)
    : options_(std::move(options)), event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  MUSTER_CHECK(options_.clock != nullptr && event_fd_ >= 0);
  if (!options_.look_up) options_.look_up = addresses_of;
  thread_ = std::thread([this] { run(); });
}

Postman::~Postman() {
  finish(milliseconds(0));
  close(event_fd_);
}

void Postman::run() {
  Result<Joined> joined = join();
  const bool is_joined = joined.has_value();
  {
    const std::lock_guard lock(mutex_);
    joined_ = std::move(joined);
  }
  (void)eventfd_write(event_fd_, 1);
  if (is_joined) report_until_finished();
  const std::lock_guard lock(mutex_);
  is_finished_ = true;
  changed_.notify_all();
}

bool Postman::wait(milliseconds time) {
  std::unique_lock lock(mutex_);
  return !changed_.wait_for(lock, time, [this] { return is_stopping_; });
}

Result<Postman::Joined> Postman::join() {
  MonoTime deadline = options_.clock->mono_now() + options_.join_deadline;
  Rng jitter(options_.seed);
  milliseconds backoff = options_.backoff_first;
  Joined joined{options_.request, {}};
  joined.request.begins_together = true;
  std::string last_failure = "the gang is incomplete";
  while (options_.clock->mono_now() < deadline) {
    Result<std::optional<JoinResponse>> answer = std::optional<JoinResponse>();
    if (joined.request.host.empty()) {
      const Status found = find_endpoint();
      auto host = found ? own_address(addresses_) : Result<std::string>(found.error());
      if (host) joined.request.host = std::move(*host);
      if (!host) answer = host.error();
      if (!host) addresses_.clear();  // it may have others by now
    }
    if (answer) answer = post_join(joined.request);
    if (answer && *answer && (*answer)->complete) {
      joined.response = std::move(**answer);
      if (wait(milliseconds(joined.response.begin_after_ms))) return joined;
      return Error(ErrorCode::kAborted, "stopped before the gang was to begin");
    }
    if (!answer && answer.error().code() != ErrorCode::kUnavailable) return answer.error();
    milliseconds pause{0};
    std::string state;
    if (answer && *answer) {
      const JoinResponse& waiting = **answer;
      state = std::to_string(waiting.present) + " of " + std::to_string(waiting.expected) +
              " workers are there";
      pause = milliseconds(waiting.retry_after_ms);
      backoff = options_.backoff_first;
      // A pod may be prepared for long (its image, its disk): the operator, which sees why, decides
      // whether the others wait.
      deadline = options_.clock->mono_now() + options_.join_deadline;
    } else {
      state = answer ? "no answer" : answer.error().message();
      pause = milliseconds(backoff.count() / 2 + static_cast<std::int64_t>(jitter.below(
                                                     static_cast<std::uint64_t>(backoff.count()))));
      backoff = std::min(backoff * 2, options_.backoff_most);
    }
    if (state != last_state_) log_info("waiting to join", {{"state", state}});
    last_state_ = last_failure = state;
    if (!wait(pause)) return Error(ErrorCode::kAborted, "stopped before the gang was complete");
  }
  return Error(ErrorCode::kDeadlineExceeded,
               "the workers' endpoint has told nothing of the gang for " +
                   std::to_string(
                       std::chrono::duration_cast<seconds>(options_.join_deadline).count()) +
                   " s: " + last_failure)
      .with_exit_code(contract::exit_code::kPeerLost);
}

Result<std::optional<JoinResponse>> Postman::post_join(const JoinRequest& request) {
  const auto answer = post(contract::kPathJoin, dump_json(to_json(request)));
  if (!answer) {
    switch (answer.error().code()) {
      case ErrorCode::kAborted:
        return Error(ErrorCode::kAborted, "stopped before the gang was complete");
      case ErrorCode::kUnsupported:
      case ErrorCode::kInvalid:
        return answer.error().with_exit_code(contract::exit_code::kUsage);
      default:
        return Error(ErrorCode::kUnavailable, answer.error().message());
    }
  }
  switch (answer->status) {
    case 200: {
      const auto json = parse_json(answer->body);
      auto response = json ? parse_join_response(*json) : Result<JoinResponse>(json.error());
      if (!response) return response.error().with("the endpoint's answer to join");
      return std::optional(std::move(*response));
    }
    case 400:
    case 403:
    case 409:
    case 413:
      return Error(ErrorCode::kForbidden,
                   "the endpoint refused this worker: " + message_of(*answer))
          .with_exit_code(exit_code_of_refusal(*answer));
    // A token not accepted now (401) is renewed and read again; not yet known (404); too fast
    // (429); stopping or not ready (503).
    default:
      return Error(ErrorCode::kUnavailable, message_of(*answer));
  }
}

/// Once for all posts, as long as the endpoint is there: so a name server that gives no answer
/// holds up neither reports nor the end. Nothing ends the system's resolver, so who stops does not
/// ask it, and tries where it was answered before.
Status Postman::find_endpoint() {
  if (!addresses_.empty()) return {};
  MUSTER_ASSIGN_OR_RETURN(const http::Url url, http::parse_url(options_.endpoint));
  Result<std::vector<std::string>> found =
      Error(ErrorCode::kUnavailable, url.host + " is not looked up at the end");
  if (wait(milliseconds(0))) found = options_.look_up(url.host);
  if (!found && answered_.empty()) return found.error();
  addresses_ = found ? *std::move(found) : std::vector<std::string>{answered_};
  // Of several the others may never have answered.
  const auto last = std::ranges::find(addresses_, answered_);
  if (last != addresses_.end()) std::rotate(addresses_.begin(), last, last + 1);
  return {};
}

Result<http::Response> Postman::post(std::string_view path, const std::string& body) {
  MUSTER_RETURN_IF_ERROR(find_endpoint());
  auto token = read_token(options_.token_file);
  if (!token) return token.error();
  http::Call call;
  call.method = "POST";
  call.url = options_.endpoint + std::string(path);
  call.address = addresses_.front();
  call.body = body;
  call.bearer_token = std::move(*token);
  call.ca_certificate = options_.ca_certificate;
  call.timeout = options_.post_timeout;
  call.body_bytes_max = kMaxJoinAnswerBytes;
  auto answer = client_.exchange(call);
  if (answer) answered_ = addresses_.front();
  if (!answer) addresses_.erase(addresses_.begin());  // it may have another by now
  return answer;
}

std::optional<Result<Postman::Joined>> Postman::take_joined() {
  const std::lock_guard lock(mutex_);
  return joined_;
}

void Postman::set_report(const ProgressReport& report, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  unsent_ = report;
  unsent_number_ = number;
  is_report_new_ = true;
  was_refused_ = false;
  changed_.notify_all();
}

std::uint64_t Postman::told() const {
  const std::lock_guard lock(mutex_);
  return told_;
}

void Postman::ask_witness(const WitnessRequest& request) {
  const std::lock_guard lock(mutex_);
  question_ = request;
  changed_.notify_all();
}

std::optional<WitnessResponse> Postman::take_witness_answer() {
  const std::lock_guard lock(mutex_);
  eventfd_t count = 0;
  (void)eventfd_read(event_fd_, &count);
  return std::exchange(answer_, std::nullopt);
}

void Postman::report_until_finished() {
  Rng jitter(options_.seed);
  const milliseconds backoff_first = std::max(options_.report_interval, options_.backoff_first);
  milliseconds backoff = backoff_first;
  MonoTime next_report = options_.clock->mono_now();
  MonoTime next_again = next_report, next_word = next_report;
  bool has_told_membership = false;
  while (true) {
    std::optional<ProgressReport> report;
    std::optional<WitnessRequest> question;
    std::uint64_t number = 0;
    bool is_last = false;
    {
      std::unique_lock lock(mutex_);
      const auto due = [&] {
        if (was_refused_) return next_again;
        const bool is_word = !has_told_membership && unsent_->membership_epoch > 0;
        return is_word ? next_word : next_report;
      };
      // An hour is as good as for ever, and keeps the rule that every wait ends.
      const nanoseconds pause =
          unsent_ ? due() - options_.clock->mono_now() : nanoseconds(std::chrono::hours(1));
      changed_.wait_for(lock, std::max(pause, nanoseconds(0)),
                        [&] { return is_stopping_ || question_ || is_report_new_; });
      is_report_new_ = false;
      is_last = is_stopping_;
      question = std::exchange(question_, std::nullopt);
      const bool is_due = unsent_ && (is_last || options_.clock->mono_now() >= due());
      if (!question && is_due) {
        report = std::exchange(unsent_, std::nullopt);
        number = unsent_number_;
      }
      if (!question && !report && is_last) return;
    }
    if (question) send_question(*question);
    if (!report) continue;
    const auto pause = send_report(*report, number);
    const MonoTime now = options_.clock->mono_now();
    next_word = now + pause.value_or(milliseconds(0));
    next_report = now + std::max(pause.value_or(milliseconds(0)), options_.report_interval);
    if (pause) {
      has_told_membership |= report->membership_epoch > 0;
      backoff = backoff_first;
    } else if (!is_last) {
      const auto most = static_cast<std::uint64_t>(backoff.count());
      next_again =
          std::max(next_report,
                   now + backoff / 2 + milliseconds(static_cast<std::int64_t>(jitter.below(most))));
      backoff = std::min(backoff * 2, options_.report_backoff_most);
      put_back(*report, number);
    }
  }
}

void Postman::put_back(const ProgressReport& report, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (unsent_) return;
  unsent_ = report;
  unsent_number_ = number;
  was_refused_ = true;
}

std::optional<milliseconds> Postman::send_report(const ProgressReport& report,
                                                 std::uint64_t number) {
  const auto answer = post(contract::kPathProgress, dump_json(to_json(report)));
  const std::string state = !answer                 ? answer.error().message()
                            : answer->status == 200 ? ""
                                                    : message_of(*answer);
  std::optional<milliseconds> pause;
  if (state.empty()) {
    pause = milliseconds(0);
    const auto json = parse_json(answer->body);
    const auto taken =
        json ? parse_progress_response(*json) : Result<ProgressResponse>(json.error());
    if (taken) pause = milliseconds(taken->next_after_ms);
    const std::lock_guard lock(mutex_);
    told_ = std::max(told_, number);
  }
  if (state == last_report_state_) return pause;
  // Training goes on without the endpoint.
  log_warning(state.empty() ? "progress is reported again" : "progress was not taken",
              {{"state", state}});
  last_report_state_ = state;
  return pause;
}

void Postman::send_question(const WitnessRequest& request) {
  const auto answer = post(contract::kPathWitness, dump_json(to_json(request)));
  if (!answer || answer->status != 200) {
    log_warning("the witness does not answer",
                {{"state", answer ? message_of(*answer) : answer.error().message()}});
    return;
  }
  const auto json = parse_json(answer->body);
  const auto response =
      json ? parse_witness_response(*json) : Result<WitnessResponse>(json.error());
  if (!response) {
    log_warning("the witness' answer is none", {{"error", response.error().message()}});
    return;
  }
  log_info("the witness has answered",
           {{"granted", response->granted}, {"epoch", response->epoch}});
  {
    const std::lock_guard lock(mutex_);
    answer_ = *response;
  }
  (void)eventfd_write(event_fd_, 1);
}

void Postman::finish(milliseconds timeout) {
  {
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    changed_.notify_all();
    (void)changed_.wait_for(lock, timeout, [this] { return is_finished_; });
  }
  client_.abort();
  if (thread_.joinable()) thread_.join();
}

}  // namespace muster::sentinel
