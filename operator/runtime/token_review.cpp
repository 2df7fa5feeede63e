#include "operator/runtime/token_review.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>

#include "common/contract.h"
#include "common/json.h"
#include "common/log.h"
#include "common/sha256.h"
#include "operator/runtime/fair_queue.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMaxTokenBytes = std::size_t{8} * 1024;
constexpr std::size_t kMaxListItems = 64;
constexpr std::size_t kMaxTextBytes = 1024;
constexpr std::string_view kServiceAccountPrefix = "system:serviceaccount:";
constexpr std::string_view kExtraPodName = "authentication.kubernetes.io/pod-name";
constexpr std::string_view kExtraPodUid = "authentication.kubernetes.io/pod-uid";

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>().substr(0, kMaxTextBytes) : std::string();
}

std::vector<std::string> texts(const Json& value) {
  std::vector<std::string> list;
  if (!value.is_array()) return list;
  for (const Json& item : value) {
    if (list.size() == kMaxListItems) break;
    if (item.is_string()) list.push_back(text(item));
  }
  return list;
}

/// An error of the call itself: the asker may come again. A right that the operator lacks, or a
/// request it should not have made, does not make a worker's token wrong.
Error unavailable(const Error& error) {
  return {ErrorCode::kUnavailable, "the API server did not say (" +
                                       std::string(to_string(error.code())) +
                                       "): " + error.message().substr(0, kMaxTextBytes)};
}

Result<TokenOwner> owner_of(const Json& review, const std::string& audience) {
  const Json& status = member(review, {"status"});
  if (member(status, {"authenticated"}) != true) {
    const std::string why = text_at(status, {"error"}).substr(0, 256);
    return Error(ErrorCode::kUnauthorized,
                 "the API server does not accept the token" + (why.empty() ? "" : ": " + why));
  }
  // An API server that does not look at audiences names none: the token may be for another service.
  const auto audiences = texts(member(status, {"audiences"}));
  if (!audience.empty() &&
      std::find(audiences.begin(), audiences.end(), audience) == audiences.end()) {
    return Error(ErrorCode::kUnauthorized, "the token is not for audience \"" + audience + "\"");
  }
  const Json& user = member(status, {"user"});
  TokenOwner owner;
  owner.user = text(member(user, {"username"}));
  owner.uid = text(member(user, {"uid"}));
  owner.groups = texts(member(user, {"groups"}));
  const Json& extra = member(user, {"extra"});
  if (extra.is_object()) {
    for (const auto& [key, values] : extra.items()) {
      if (owner.extra.size() == kMaxListItems) break;
      owner.extra[key.substr(0, kMaxTextBytes)] = texts(values);
    }
  }
  return owner;
}

/// A question with everybody who waits for its answer.
struct Question {
  std::string key;   ///< digest of what is asked
  std::string line;  ///< in which it waits
  api::Kind kind = api::Kind::kTokenReview;
  Json object;
  std::string audience;
  MonoTime asked_at{};
  std::vector<Reviewer::OwnerDone> owner_done;
  std::vector<Reviewer::RightDone> right_done;

  std::size_t askers() const { return owner_done.size() + right_done.size(); }
};

struct Answer {
  std::optional<Result<TokenOwner>> owner;
  Status right;
  MonoTime good_until{};
  bool is_worth_keeping = false;
  bool is_yes = false;
};

void tell(Question& question, const Answer& answer) {
  for (const auto& done : question.owner_done) done(*answer.owner);
  for (const auto& done : question.right_done) done(answer.right);
}

Answer failed(const Error& error) { return {Result<TokenOwner>(error), error, {}, false, false}; }

Answer too_many() {
  return failed(Error(ErrorCode::kUnavailable, "too many tokens wait to be checked; post again"));
}

std::string key_of(std::string_view what) {
  const Sha256Digest digest = sha256(what);
  return to_hex(digest);
}

/// Answers that are good for one time, so that the oldest is the first to expire. Threads: one.
class AnswerMemory {
 public:
  explicit AnswerMemory(std::size_t most) : most_(most) {}
  /// Nothing when there is none, or it is not good any more.
  const Answer* find(const std::string& key, MonoTime now) const {
    const auto found = answers_.find(key);
    const bool is_good = found != answers_.end() && now < found->second.answer.good_until;
    return is_good ? &found->second.answer : nullptr;
  }
  void forget(const std::string& key) {
    const auto found = answers_.find(key);
    if (found == answers_.end()) return;
    order_.erase(found->second.place);
    answers_.erase(found);
  }
  /// It is not there yet.
  void add(const std::string& key, const Answer& answer) {
    while (order_.size() >= most_) {
      answers_.erase(order_.front());
      order_.pop_front();
    }
    order_.push_back(key);
    answers_.emplace(key, Remembered{answer, std::prev(order_.end())});
  }

 private:
  struct Remembered {
    Answer answer;
    std::list<std::string>::iterator place;  ///< in order_
  };
  std::size_t most_;
  std::list<std::string> order_;  ///< keys of answers_, oldest first
  std::unordered_map<std::string, Remembered> answers_;
};

class ThreadedReviewer final : public Reviewer {
 public:
  explicit ThreadedReviewer(ReviewerOptions options)
      : options_(options), accepted_(options.accepted_max), refused_(options.refused_max) {
    MUSTER_CHECK(options_.client != nullptr && options_.clock != nullptr && options_.threads >= 1);
    for (int i = 0; i < options_.threads; ++i)
      threads_.emplace_back([this] { answer_questions(); });
  }
  ~ThreadedReviewer() override { stop(); }

  void who(const TokenQuestion& asked, OwnerDone done) override {
    const std::string &token = asked.token, &audience = asked.audience;
    if (token.empty() || token.size() > kMaxTokenBytes) {
      return done(Error(ErrorCode::kUnauthorized, token.empty()
                                                      ? "a bearer token is needed"
                                                      : "the bearer token is over 8 KiB"));
    }
    Question question;
    // Only the digest is kept: what is remembered cannot be used as a token.
    question.key = key_of("who\n" + audience + "\n" + token);
    question.audience = audience;
    question.line = asked.line;
    question.object = Json{{"apiVersion", "authentication.k8s.io/v1"},
                           {"kind", "TokenReview"},
                           {"spec", {{"token", token}}}};
    if (!audience.empty()) question.object["spec"]["audiences"] = Json::array({audience});
    question.owner_done.push_back(std::move(done));
    ask(std::move(question));
  }

  void may(const TokenOwner& owner, const std::string& verb, const std::string& path,
           RightDone done) override {
    Question question;
    question.kind = api::Kind::kSubjectAccessReview;
    question.object = Json{{"apiVersion", "authorization.k8s.io/v1"},
                           {"kind", "SubjectAccessReview"},
                           {"spec",
                            {{"user", owner.user},
                             {"uid", owner.uid},
                             {"groups", owner.groups},
                             {"extra", owner.extra},
                             {"nonResourceAttributes", {{"path", path}, {"verb", verb}}}}}};
    question.key = key_of("may\n" + dump_json(question.object));
    question.line = "rights of " + owner.user;
    question.right_done.push_back(std::move(done));
    ask(std::move(question));
  }

  void stop() override {
    FairQueue<Question> left;
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      std::swap(left, waiting_);
      changed_.notify_all();
    }
    const Answer answer = failed(Error(ErrorCode::kUnavailable, "the operator is stopping"));
    while (!left.empty()) {
      Question question = left.pop();
      tell(question, answer);
    }
    for (auto& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

 private:
  void ask(Question question) {
    std::optional<Answer> at_once;
    std::optional<Question> displaced;
    {
      const std::lock_guard lock(mutex_);
      const MonoTime now = options_.clock->mono_now();
      for (const AnswerMemory* memory : {&accepted_, &refused_}) {
        if (const Answer* known = memory->find(question.key, now)) at_once = *known;
      }
      if (!at_once && is_stopping_) {
        at_once = failed(Error(ErrorCode::kUnavailable, "the operator is stopping"));
      }
      if (!at_once && is_line_full(question.line)) {
        at_once = failed(Error(ErrorCode::kUnavailable,
                               "too many tokens of one origin wait to be checked; post again"));
      }
      if (!at_once && joined_another(question)) return;
      if (!at_once && waiting_.size() >= options_.waiting_max) {
        // Lines of others are as many as they have pods: no line keeps out a shorter one.
        const std::deque<Question>* own = waiting_.line(question.line);
        displaced = waiting_.pop_of_longest((own == nullptr ? 0 : own->size()) + 1);
        if (!displaced) at_once = too_many();
      }
      if (!at_once) line_up(question, now);
    }
    if (displaced) tell(*displaced, too_many());
    if (at_once) tell(question, *at_once);
  }

  /// mutex_ is held.
  void line_up(Question& question, MonoTime now) {
    question.asked_at = now;
    const std::string line = question.line;
    waiting_.push(line, std::move(question));
    changed_.notify_one();
  }

  /// mutex_ is held.
  bool is_line_full(const std::string& name) {
    const std::deque<Question>* line = waiting_.line(name);
    if (line == nullptr) return false;
    std::size_t askers = 0;
    for (const Question& one : *line) askers += one.askers();
    return askers >= (name.empty() ? options_.nameless_max : options_.line_max);
  }

  /// Whether the same question waits already and its askers are now one more. mutex_ is held.
  bool joined_another(Question& question) {
    std::deque<Question>* line = waiting_.line(question.line);
    if (line == nullptr) return false;
    for (Question& other : *line) {
      if (other.key != question.key) continue;
      std::move(question.owner_done.begin(), question.owner_done.end(),
                std::back_inserter(other.owner_done));
      std::move(question.right_done.begin(), question.right_done.end(),
                std::back_inserter(other.right_done));
      return true;
    }
    return false;
  }

  void answer_questions() {
    while (true) {
      Question question;
      {
        std::unique_lock lock(mutex_);
        // An hour is as good as for ever, and keeps the rule that every wait ends.
        if (!changed_.wait_for(lock, std::chrono::hours(1),
                               [this] { return is_stopping_ || !waiting_.empty(); })) {
          continue;
        }
        if (is_stopping_) return;
        question = waiting_.pop();
      }
      const Answer answer = answer_of(question);
      if (answer.is_worth_keeping) remember(question.key, answer);
      tell(question, answer);
    }
  }

  Answer answer_of(const Question& question) {
    if (options_.clock->mono_now() - question.asked_at > options_.wait_most) {
      return failed(Error(ErrorCode::kUnavailable,
                          "the API server was too slow to be asked in time; post again"));
    }
    const auto review = options_.client->create(question.kind, "", question.object);
    if (!review) {
      log_limited(review.error());
      return failed(unavailable(review.error()));
    }
    Answer answer;
    answer.is_worth_keeping = true;
    if (question.kind == api::Kind::kTokenReview) {
      answer.owner = owner_of(*review, question.audience);
      answer.is_yes = answer.owner->has_value();
    } else {
      answer.is_yes = member(*review, {"status", "allowed"}) == true;
      if (!answer.is_yes) {
        answer.right = Error(ErrorCode::kForbidden, "the token's user lacks the right");
      }
    }
    answer.good_until =
        options_.clock->mono_now() + (answer.is_yes ? options_.yes_for : options_.no_for);
    return answer;
  }

  /// One line when the API server begins to fail, not one a question.
  void log_limited(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(last_error_, error.message()) == error.message()) return;
    log_warning("a token or right could not be reviewed", {{"error", error.message()}});
  }

  void remember(const std::string& key, const Answer& answer) {
    const std::lock_guard lock(mutex_);
    last_error_.clear();
    accepted_.forget(key);
    refused_.forget(key);
    (answer.is_yes ? accepted_ : refused_).add(key, answer);
  }

  const ReviewerOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;  ///< this and the following are guarded by mutex_
  FairQueue<Question> waiting_;
  AnswerMemory accepted_, refused_;
  std::string last_error_;
  std::vector<std::thread> threads_;
};

/// The one value of an extra; empty where there is none, or more than one.
std::string extra_of(const TokenOwner& owner, std::string_view key) {
  const auto found = owner.extra.find(std::string(key));
  if (found == owner.extra.end() || found->second.size() != 1) return {};
  return found->second.front();
}

Result<Caller> caller_of(const TokenOwner& owner) {
  Caller caller;
  caller.pod_name = extra_of(owner, kExtraPodName);
  caller.pod_uid = extra_of(owner, kExtraPodUid);
  if (owner.user.starts_with(kServiceAccountPrefix)) {
    const std::string rest = owner.user.substr(kServiceAccountPrefix.size());
    caller.pod_namespace = rest.substr(0, rest.find(':'));
  }
  if (caller.pod_name.empty() || caller.pod_uid.empty() || caller.pod_namespace.empty()) {
    return Error(ErrorCode::kForbidden,
                 "the token is not bound to a pod: workers use the one that is mounted for them");
  }
  return caller;
}

class ReviewingAuthenticator final : public Authenticator {
 public:
  explicit ReviewingAuthenticator(Reviewer& reviewer) : reviewer_(reviewer) {}
  void authenticate(const Credential& credential, Done done) override {
    const std::string& pod = credential.known_pod_uid;
    reviewer_.who({credential.bearer_token, std::string(contract::kTokenAudience),
                   pod.empty() ? pod : "pod " + pod},
                  [done = std::move(done)](const Result<TokenOwner>& owner) {
                    done(owner ? caller_of(*owner) : Result<Caller>(owner.error()));
                  });
  }

 private:
  Reviewer& reviewer_;
};

}  // namespace

std::unique_ptr<Reviewer> Reviewer::start(ReviewerOptions options) {
  return std::make_unique<ThreadedReviewer>(options);
}

std::unique_ptr<Authenticator> make_token_review_authenticator(Reviewer& reviewer) {
  return std::make_unique<ReviewingAuthenticator>(reviewer);
}

}  // namespace muster::runtime
