// Typed calls to the API server. Every call is one HTTP exchange; nothing is retried here: the loop
// decides.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/json.h"
#include "common/result.h"
#include "operator/api/object_meta.h"
#include "operator/api/unread.h"
#include "operator/kube/http_transport.h"

namespace muster::kube {

struct ListOptions {
  std::string namespace_name;  ///< empty = all
  std::string label_selector;
  int limit = 100;  ///< page size; kTooLarge where several objects have too many bytes
  std::string continue_token;
  std::span<const LeftOut> left_out = api::kUnreadOfAny;  ///< of the objects; outlives the list
};

struct ListPage {
  std::vector<Json> items;  ///< each with apiVersion and kind filled in
  std::string resource_version;
  std::string continue_token;  ///< empty = last page
  std::size_t bytes = 0;       ///< of the text it was
};

struct WatchOptions {
  std::string namespace_name;
  std::string label_selector;
  std::string resource_version;
  seconds timeout{300};  ///< server ends the watch after this
  /// Everything that is there comes first, then a bookmark that says so. kInvalid where the server
  /// cannot.
  bool begins_with_list = false;
};

/// Preconditions of a delete; empty fields are not checked.
struct DeleteOptions {
  std::string uid;
  int grace_period_seconds = -1;  ///< negative = the object's own
  std::string resource_version{};
};

/// Threads: any. Blocks: one exchange. Errors by HTTP code: 400/422 kInvalid, 401 kUnauthorized,
/// 403 kForbidden, 404 kNotFound, 409 kConflict or (reason AlreadyExists) kAlreadyExists, 410
/// kGone, 413 kTooLarge, 429 kTooManyRequests, 504 and no answer in time kDeadlineExceeded, other
/// 5xx and no connection kUnavailable. The message is the server's, cut at 1 KiB.
/// Objects come without api::kUnreadOfAny, or what a list is asked to leave out.
class ApiClient {
 public:
  virtual ~ApiClient() = default;
  virtual Result<ListPage> list(api::Kind kind, const ListOptions& options) = 0;
  /// Lines are for a Watcher. Blocks: until the stream stands.
  virtual Result<std::unique_ptr<HttpStream>> watch(api::Kind kind,
                                                    const WatchOptions& options) = 0;
  virtual Result<Json> get(api::Kind kind, const api::ObjectKey& key) = 0;
  virtual Result<Json> create(api::Kind kind, const std::string& namespace_name,
                              const Json& object) = 0;
  /// As create, for who needs nothing of the answer.
  virtual Status add(api::Kind kind, const std::string& namespace_name, const Json& object) = 0;
  /// Merge patch (RFC 7386) of the main resource or, with `subresource` "status", of the status. A
  /// `metadata.resourceVersion` inside the patch is a precondition (409). A `metadata.uid` is none:
  /// another than the object's is invalid (422), and passed over in a patch of the status.
  virtual Result<Json> merge_patch(api::Kind kind, const api::ObjectKey& key,
                                   const std::string& subresource, const Json& patch) = 0;
  virtual Status remove(api::Kind kind, const api::ObjectKey& key,
                        const DeleteOptions& options) = 0;
};

/// Longer than the 34 s after which an API server ends a write by itself: an admission webhook that
/// nobody answers for holds a write for as long as its timeoutSeconds (30 at most), and is passed
/// over then if its failurePolicy says so, but only while the client still waits.
inline constexpr milliseconds kPatientWrite{40'000};

/// The client over any transport; used unchanged against the embedded and the real API server.
/// The transport outlives it. `write_timeout`: of every exchange that is no read.
std::unique_ptr<ApiClient> make_rest_client(HttpTransport& transport,
                                            milliseconds write_timeout = HttpRequest{}.timeout);

}  // namespace muster::kube
