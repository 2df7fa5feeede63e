#include "operator/runtime/token_review.h"

#include <doctest/doctest.h>

#include <future>

#include "common/contract.h"
#include "tests/unit/endpoint/fake_api.h"

using namespace muster;
using namespace muster::runtime;

namespace {

struct ReviewWorld {
  ManualClock clock;
  test::FakeApi api;
  ReviewerOptions options;
  std::unique_ptr<Reviewer> reviewer;
  std::unique_ptr<Authenticator> authenticator;

  ReviewWorld() {
    api.answer = [](api::Kind, const Json&) { return test::pod_token("ns", "pod-0"); };
  }

  void start() {
    options.client = &api;
    options.clock = &clock;
    reviewer = Reviewer::start(options);
    authenticator = make_token_review_authenticator(*reviewer);
  }

  Result<Caller> caller(const std::string& token) {
    if (!reviewer) start();
    std::promise<Result<Caller>> answer;
    authenticator->authenticate({token},
                                [&](const Result<Caller>& caller) { answer.set_value(caller); });
    return answer.get_future().get();
  }

  std::string refusal(const std::string& token, ErrorCode code) {
    const auto answer = caller(token);
    if (answer) return "accepted";
    CHECK(answer.error().code() == code);
    return answer.error().message();
  }
};

}  // namespace

TEST_CASE("a pod's token is asked about with its audience and becomes pod, uid and namespace") {
  ReviewWorld world;
  Json asked;
  world.api.answer = [&](api::Kind kind, const Json& review) {
    CHECK(kind == api::Kind::kTokenReview);
    asked = review;
    return test::pod_token("ns", "pod-0");
  };
  const auto caller = world.caller("the.token");
  REQUIRE(caller);
  CHECK(caller->pod_namespace == "ns");
  CHECK(caller->pod_name == "pod-0");
  CHECK(caller->pod_uid == "uid-of-pod-0");
  CHECK(asked == Json{{"apiVersion", "authentication.k8s.io/v1"},
                      {"kind", "TokenReview"},
                      {"spec", {{"token", "the.token"}, {"audiences", Json::array({"muster"})}}}});
  CHECK(api::collection_path(api::Kind::kTokenReview, "") ==
        "/apis/authentication.k8s.io/v1/tokenreviews");
  CHECK(api::collection_path(api::Kind::kSubjectAccessReview, "") ==
        "/apis/authorization.k8s.io/v1/subjectaccessreviews");
}

TEST_CASE("an answer is remembered for its time, a refusal for a shorter one, each token apart") {
  ReviewWorld world;
  world.api.answer = [&](api::Kind, const Json& review) {
    return test::token_of(review) == "good" ? test::pod_token("ns", "pod-0") : test::no_token();
  };
  CHECK(world.caller("good"));
  CHECK(world.caller("good"));
  CHECK(world.refusal("bad", ErrorCode::kUnauthorized) ==
        "the API server does not accept the token: invalid bearer token");
  CHECK_FALSE(world.caller("bad"));
  CHECK(world.api.asked == 2);
  world.clock.advance(world.options.no_for);
  CHECK_FALSE(world.caller("bad"));
  CHECK(world.caller("good"));
  CHECK(world.api.asked == 3);
  world.clock.advance(world.options.yes_for - world.options.no_for);
  CHECK(world.caller("good"));
  CHECK(world.api.asked == 4);
}

TEST_CASE("what is remembered is bounded: the oldest is asked about again") {
  ReviewWorld world;
  world.options.accepted_max = 2;
  for (const char* token : {"a", "b", "c", "c", "b"}) CHECK(world.caller(token));
  CHECK(world.api.asked == 3);
  CHECK(world.caller("a"));
  CHECK(world.api.asked == 4);
}

TEST_CASE("refused tokens, of which anybody has as many as he likes, push no accepted one out") {
  ReviewWorld world;
  world.options.accepted_max = world.options.refused_max = 2;
  world.api.answer = [&](api::Kind, const Json& review) {
    return test::token_of(review) == "good" ? test::pod_token("ns", "pod-0") : test::no_token();
  };
  CHECK(world.caller("good"));
  for (const char* token : {"a", "b", "c", "c", "b"}) CHECK_FALSE(world.caller(token));
  CHECK(world.api.asked == 4);
  CHECK_FALSE(world.caller("a"));
  CHECK(world.api.asked == 5);
  world.api.answer = [](api::Kind, const Json&) {
    return Error(ErrorCode::kUnavailable, "connection refused");
  };
  CHECK(world.caller("good"));
}

TEST_CASE("a token that is accepted no more is refused, and the other way round") {
  ReviewWorld world;
  bool is_accepted = true;
  world.api.answer = [&](api::Kind, const Json&) {
    return is_accepted ? test::pod_token("ns", "pod-0") : test::no_token();
  };
  for (const bool accepted : {true, false, true}) {
    is_accepted = accepted;
    CHECK(world.caller("token").has_value() == accepted);
    CHECK(world.caller("token").has_value() == accepted);
    world.clock.advance(accepted ? world.options.yes_for : world.options.no_for);
  }
  CHECK(world.api.asked == 3);
}

TEST_CASE("a token for another audience, of no pod or without one namespace is refused") {
  ReviewWorld world;
  Json answer = test::pod_token("ns", "pod-0");
  world.api.answer = [&](api::Kind, const Json&) { return answer; };
  // An API server that ignores audiences names none: a token for the API itself would pass.
  answer["status"].erase("audiences");
  CHECK(world.refusal("1", ErrorCode::kUnauthorized) == "the token is not for audience \"muster\"");
  answer["status"]["audiences"] = Json::array({"https://kubernetes.default.svc"});
  CHECK(world.refusal("2", ErrorCode::kUnauthorized) == "the token is not for audience \"muster\"");
  const std::string unbound =
      "the token is not bound to a pod: workers use the one that is mounted for them";
  answer = test::pod_token("ns", "pod-0");
  answer["status"]["user"].erase("extra");
  CHECK(world.refusal("3", ErrorCode::kForbidden) == unbound);
  answer = test::pod_token("ns", "pod-0");
  answer["status"]["user"]["extra"]["authentication.kubernetes.io/pod-uid"].push_back("another");
  CHECK(world.refusal("4", ErrorCode::kForbidden) == unbound);
  answer = test::pod_token("ns", "pod-0");
  answer["status"]["user"]["username"] = "kubernetes-admin";
  CHECK(world.refusal("5", ErrorCode::kForbidden) == unbound);
  CHECK(world.refusal(std::string(8 * 1024 + 1, 'x'), ErrorCode::kUnauthorized) ==
        "the bearer token is over 8 KiB");
}

TEST_CASE("an answer that is no review is a refusal, never a pass") {
  ReviewWorld world;
  int token = 0;
  for (const Json& answer :
       {Json(), Json::array(), Json{{"status", 7}}, Json{{"status", {{"authenticated", "true"}}}},
        Json{{"status", {{"authenticated", true}, {"audiences", "muster"}}}},
        Json{{"status",
              {{"authenticated", true},
               {"audiences", Json::array({1, "muster"})},
               {"user", Json::array()}}}}}) {
    world.api.answer = [&](api::Kind, const Json&) { return answer; };
    CHECK_FALSE(world.caller("token" + std::to_string(token++)));
  }
}

TEST_CASE("an API server that is away or refuses the question is not the worker's fault") {
  ReviewWorld world;
  for (const ErrorCode code : {ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded,
                               ErrorCode::kForbidden, ErrorCode::kUnauthorized}) {
    world.api.answer = [code](api::Kind, const Json&) { return Error(code, "no"); };
    CHECK(world.refusal("token", ErrorCode::kUnavailable) ==
          "the API server did not say (" + std::string(to_string(code)) + "): no");
  }
  CHECK(world.api.asked == 4);  // nothing of that is remembered
}

TEST_CASE("an API server that hangs holds up neither askers nor more than the bound of them") {
  ReviewWorld world;
  std::promise<void> begun, go_on;
  auto released = go_on.get_future().share();
  std::atomic<bool> is_first = true;
  world.api.answer = [&](api::Kind, const Json&) {
    if (is_first.exchange(false)) begun.set_value();
    released.wait();
    return test::pod_token("ns", "pod-0");
  };
  world.options.threads = 1;
  world.options.waiting_max = 2;
  world.start();
  std::promise<Result<Caller>> first, second, same, late;
  const auto into = [](std::promise<Result<Caller>>& promise) {
    return [&promise](const Result<Caller>& caller) { promise.set_value(caller); };
  };
  world.authenticator->authenticate({"first"}, into(first));
  begun.get_future().wait();
  world.authenticator->authenticate({"second"}, into(second));
  world.authenticator->authenticate({"late"}, into(late));
  world.authenticator->authenticate({"second"}, into(same));  // shares the place of the other
  std::optional<ErrorCode> over;
  world.authenticator->authenticate({"over"}, [&](const Result<Caller>& caller) {
    if (!caller) over = caller.error().code();
  });
  CHECK(over == ErrorCode::kUnavailable);
  go_on.set_value();
  CHECK(first.get_future().get());
  CHECK(second.get_future().get());
  CHECK(same.get_future().get());
  CHECK(late.get_future().get());
  CHECK(world.api.asked == 3);
}

TEST_CASE("whoever sends tokens that he made up delays others by one question a turn") {
  ReviewWorld world;
  std::promise<void> begun, go_on;
  auto released = go_on.get_future().share();
  std::atomic<bool> is_first = true;
  std::vector<std::string> order;  // of the one thread
  world.api.answer = [&](api::Kind, const Json& review) {
    if (is_first.exchange(false)) begun.set_value();
    released.wait();
    order.push_back(test::token_of(review));
    return test::token_of(review).starts_with("real") ? test::pod_token("ns", "pod-0")
                                                      : test::no_token();
  };
  world.options.threads = 1;
  world.options.nameless_max = 6;
  world.options.line_max = 2;
  world.start();
  world.authenticator->authenticate({"first"}, [](const Result<Caller>&) {});
  begun.get_future().wait();
  std::atomic<int> answered = 0, refused = 0;
  std::promise<void> all;
  const auto count = [&](const Result<Caller>& caller) {
    if (!caller && caller.error().code() == ErrorCode::kUnavailable) ++refused;
    if (++answered == 17) all.set_value();
  };
  // Nobody's, of which some are one token many times, and a known pod's.
  for (int i = 0; i < 5; ++i) {
    world.authenticator->authenticate({"nobody-" + std::to_string(i)}, count);
  }
  for (int i = 0; i < 4; ++i) world.authenticator->authenticate({"nobody-4"}, count);
  for (int i = 0; i < 6; ++i) {
    world.authenticator->authenticate({"bad-" + std::to_string(i), "uid-of-bad"}, count);
  }
  CHECK(refused == 3 + 4);
  // Those of others find room, and come after one of each line that waits.
  world.authenticator->authenticate({"real-a", "uid-of-a"}, count);
  world.authenticator->authenticate({"real-b", "uid-of-b"}, count);
  CHECK(refused == 3 + 4);
  go_on.set_value();
  all.get_future().wait();
  world.reviewer->stop();
  CHECK(order == std::vector<std::string>{"first", "nobody-0", "bad-0", "real-a", "real-b",
                                          "nobody-1", "bad-1", "nobody-2", "nobody-3", "nobody-4"});
}

TEST_CASE("whoever has many pods leaves room for who has one: the longest lines give way") {
  ReviewWorld world;
  std::promise<void> begun, go_on;
  auto released = go_on.get_future().share();
  std::atomic<bool> is_first = true;
  std::vector<std::string> order;  // of the one thread
  world.api.answer = [&](api::Kind, const Json& review) {
    if (is_first.exchange(false)) begun.set_value();
    released.wait();
    order.push_back(test::token_of(review));
    return test::pod_token("ns", "pod-0");
  };
  world.options.threads = 1;
  world.options.waiting_max = 6;
  world.start();
  world.authenticator->authenticate({"first"}, [](const Result<Caller>&) {});
  begun.get_future().wait();
  std::vector<std::string> refused;
  std::atomic<int> left = 9;
  std::promise<void> all;
  const auto ask = [&](const std::string& token, const std::string& pod) {
    world.authenticator->authenticate({token, pod}, [&, token](const Result<Caller>& caller) {
      if (!caller) refused.push_back(token);
      if (--left == 0) all.set_value();
    });
  };
  for (const char* token : {"a1", "a2", "a3"}) ask(token, "uid-a");
  for (const char* token : {"b1", "b2", "b3"}) ask(token, "uid-b");
  ask("c1", "uid-c");
  CHECK(refused == std::vector<std::string>{"a3"});
  ask("d1", "uid-d");
  CHECK(refused == std::vector<std::string>{"a3", "b3"});
  // Nobody has two more than who has one, and so nobody gives way.
  ask("d2", "uid-d");
  CHECK(refused == std::vector<std::string>{"a3", "b3", "d2"});
  go_on.set_value();
  all.get_future().wait();
  world.reviewer->stop();
  CHECK(order == std::vector<std::string>{"first", "a1", "b1", "c1", "d1", "a2", "b2"});
}

TEST_CASE("a question that waited too long is not asked, and stop answers those that wait") {
  ReviewWorld world;
  std::promise<void> begun, go_on;
  auto released = go_on.get_future().share();
  std::atomic<int> calls = 0;
  world.api.answer = [&](api::Kind, const Json&) {
    if (calls++ == 0) begun.set_value();
    released.wait();
    return test::pod_token("ns", "pod-0");
  };
  world.options.threads = 1;
  world.start();
  std::promise<Result<Caller>> first, late, stopped;
  world.authenticator->authenticate({"first"},
                                    [&](const Result<Caller>& one) { first.set_value(one); });
  begun.get_future().wait();
  world.authenticator->authenticate({"late"},
                                    [&](const Result<Caller>& one) { late.set_value(one); });
  world.clock.advance(world.options.wait_most + milliseconds(1));
  go_on.set_value();
  CHECK(first.get_future().get());
  const auto answer = late.get_future().get();
  REQUIRE_FALSE(answer);
  CHECK(answer.error().code() == ErrorCode::kUnavailable);
  CHECK(world.api.asked == 1);
  world.reviewer->stop();
  world.authenticator->authenticate({"stopped"},
                                    [&](const Result<Caller>& one) { stopped.set_value(one); });
  CHECK_FALSE(stopped.get_future().get());
}
