// Asking the API server whose a bearer token is (TokenReview) and what that user may do
// (SubjectAccessReview), on threads of its own, with a short memory. Nobody who asks waits.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "operator/kube/api_client.h"
#include "operator/runtime/workers_endpoint.h"

namespace muster::runtime {

struct ReviewerOptions {
  kube::ApiClient* client = nullptr;  ///< outlives the reviewer
  const Clock* clock = nullptr;       ///< outlives the reviewer
  int threads = 2;
  /// Questions not yet asked; over it the last of the longest line is told kUnavailable.
  std::size_t waiting_max = 256;
  /// Askers of one line that wait at most, likewise; of the line without a name, which is that of
  /// all whom nobody knows, more.
  std::size_t line_max = 16;
  std::size_t nameless_max = 64;
  /// Accepted tokens and rights remembered; the oldest go first. With fewer than there are workers
  /// each of their reports would be a question.
  std::size_t accepted_max = 32'768;
  /// Refused ones, which have no room but their own: anybody can make them up.
  std::size_t refused_max = 256;
  seconds yes_for{60};            ///< how long an accepted token or right is believed
  seconds no_for{10};             ///< how long a refused one is
  milliseconds wait_most{4'000};  ///< a question that waited longer is not asked any more
};

/// The user a token belongs to, as the API server knows it.
struct TokenOwner {
  std::string user;
  std::string uid;
  std::vector<std::string> groups;
  std::map<std::string, std::vector<std::string>> extra;
};

/// Whose a token is.
struct TokenQuestion {
  std::string token;
  std::string audience;  ///< empty: the API server's own
  /// In which it waits: of each line one question is asked in turn, so that who fills one, with
  /// tokens that he made up, delays those in others by one question a turn.
  std::string line{};
};

/// Answers come on the caller's thread when they are remembered, else on one of the reviewer's; a
/// refusal for want of room also on that of another caller, who gets the room. No caller holds a
/// lock that an answer takes. Each question is answered once. Threads: any for every method.
/// Blocks: no, but stop().
class Reviewer {
 public:
  using OwnerDone = std::function<void(const Result<TokenOwner>&)>;
  using RightDone = std::function<void(const Status&)>;

  static std::unique_ptr<Reviewer> start(ReviewerOptions options);
  virtual ~Reviewer() = default;

  /// Errors: kUnauthorized (not accepted), kUnavailable (too many wait, or the API server was not
  /// there, or refused to look).
  virtual void who(const TokenQuestion& asked, OwnerDone done) = 0;
  /// Whether `owner` may `verb` the non-resource `path`; each owner has a line. Errors: kForbidden,
  /// kUnavailable.
  virtual void may(const TokenOwner& owner, const std::string& verb, const std::string& path,
                   RightDone done) = 0;
  /// Answers what is still waiting with kUnavailable. Blocks: until calls under way have ended.
  virtual void stop() = 0;
};

/// Accepts pod-bound tokens for the audience contract::kTokenAudience. `reviewer` outlives it.
std::unique_ptr<Authenticator> make_token_review_authenticator(Reviewer& reviewer);

}  // namespace muster::runtime
