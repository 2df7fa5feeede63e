// ApiClient over any HttpTransport: paths, queries and bodies out, typed errors and objects in.
#include <algorithm>
#include <utility>

#include "operator/api/fields.h"
#include "operator/kube/api_client.h"

namespace muster::kube {
namespace {

constexpr std::size_t kMaxMessageBytes = 1024;
/// Of a page that has several objects. One alone may be as large as the transport takes.
constexpr std::size_t kMaxPageBytes = std::size_t{4} << 20;
constexpr seconds::rep kMaxRetryAfter = 300;  // a server cannot silence its clients for longer

/// A path with its query, in the order the parameters were added.
class Target {
 public:
  explicit Target(std::string path) : text_(std::move(path)) {}
  Target& add(const char* name, const std::string& value) {
    if (value.empty()) return *this;
    text_ += first_ ? '?' : '&';
    first_ = false;
    text_ += std::string(name) + "=" + api::percent_encoded(value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  bool first_ = true;
};

ErrorCode code_of(int http_code, const std::string& reason) {
  switch (http_code) {
    case 401:
      return ErrorCode::kUnauthorized;
    case 403:
      return ErrorCode::kForbidden;
    case 404:
      return ErrorCode::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? ErrorCode::kAlreadyExists : ErrorCode::kConflict;
    case 410:
      return ErrorCode::kGone;
    case 413:
      return ErrorCode::kTooLarge;
    case 429:
      return ErrorCode::kTooManyRequests;
    case 504:
      return ErrorCode::kDeadlineExceeded;
    case 405:
    case 406:
    case 415:
      return ErrorCode::kUnsupported;
    default:
      break;
  }
  if (http_code >= 400 && http_code < 500) return ErrorCode::kInvalid;
  // Redirects are refused: credentials must not follow them to another host.
  if (http_code >= 300 && http_code < 400) return ErrorCode::kUnsupported;
  return ErrorCode::kUnavailable;
}

/// The error of an answer that is not 2xx. The body is a metav1.Status, or anything at all.
Error error_of(const HttpResponse& response) {
  std::string message, reason;
  if (const auto body = parse_json(response.body)) {
    message = text_at(*body, {"message"});
    reason = text_at(*body, {"reason"});
  }
  if (message.empty()) message = "HTTP " + std::to_string(response.code) + " without a message";
  const Error error(code_of(response.code, reason), api::cut(message, kMaxMessageBytes));
  if (!response.retry_after) return error;
  const auto asked = std::clamp<seconds::rep>(response.retry_after->count(), 0, kMaxRetryAfter);
  return error.with_retry_after(static_cast<int>(asked));
}

bool is_success(int code) { return code >= 200 && code < 300; }

class RestClient final : public ApiClient {
 public:
  RestClient(HttpTransport& transport, milliseconds write_timeout)
      : transport_(transport), write_timeout_(write_timeout) {}

  Result<ListPage> list(api::Kind kind, const ListOptions& options) override {
    Target target(api::collection_path(kind, options.namespace_name));
    if (options.limit > 0) target.add("limit", std::to_string(options.limit));
    target.add("continue", options.continue_token).add("labelSelector", options.label_selector);
    HttpRequest request;
    request.path = target.text();
    MUSTER_ASSIGN_OR_RETURN(const HttpResponse response, transport_.send(request));
    const std::size_t bytes = response.body.size();
    if (options.limit > 1 && bytes > kMaxPageBytes) {
      return Error(ErrorCode::kTooLarge, "a page of at most " + std::to_string(options.limit) +
                                             " objects has " + std::to_string(bytes) + " bytes");
    }
    MUSTER_ASSIGN_OR_RETURN(Json body, body_of(response, options.left_out));
    MUSTER_ASSIGN_OR_RETURN(ListPage page, page_of(kind, std::move(body)));
    page.bytes = bytes;
    return page;
  }

  Result<std::unique_ptr<HttpStream>> watch(api::Kind kind, const WatchOptions& options) override {
    Target target(api::collection_path(kind, options.namespace_name));
    target.add("watch", "true")
        .add("allowWatchBookmarks", "true")
        .add("resourceVersion", options.resource_version)
        .add("timeoutSeconds", std::to_string(options.timeout.count()))
        .add("labelSelector", options.label_selector);
    if (options.begins_with_list) {
      target.add("sendInitialEvents", "true").add("resourceVersionMatch", "NotOlderThan");
    }
    HttpRequest request;
    request.path = target.text();
    MUSTER_ASSIGN_OR_RETURN(HttpTransport::Stream opened, transport_.open_stream(request));
    if (!is_success(opened.head.code)) return error_of(opened.head);
    if (opened.stream == nullptr) {
      return Error(ErrorCode::kUnavailable, "HTTP " + std::to_string(opened.head.code) +
                                                " without a stream in answer to a watch");
    }
    return std::move(opened.stream);
  }

  Result<Json> get(api::Kind kind, const api::ObjectKey& key) override {
    HttpRequest request;
    request.path = api::object_path(kind, key);
    return object_of(kind, exchange(request));
  }

  Result<Json> create(api::Kind kind, const std::string& namespace_name,
                      const Json& object) override {
    return object_of(kind, exchange(create_request(kind, namespace_name, object)));
  }

  Status add(api::Kind kind, const std::string& namespace_name, const Json& object) override {
    MUSTER_ASSIGN_OR_RETURN(const HttpResponse response,
                            transport_.send(create_request(kind, namespace_name, object)));
    if (!is_success(response.code)) return error_of(response);
    return {};
  }

  Result<Json> merge_patch(api::Kind kind, const api::ObjectKey& key,
                           const std::string& subresource, const Json& patch) override {
    HttpRequest request = write_request("PATCH");
    request.path = api::object_path(kind, key);
    if (!subresource.empty()) request.path += "/" + subresource;
    request.content_type = "application/merge-patch+json";
    request.body = dump_json(patch);
    return object_of(kind, exchange(request));
  }

  Status remove(api::Kind kind, const api::ObjectKey& key, const DeleteOptions& options) override {
    Json body = {
        {"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"propagationPolicy", "Background"}};
    if (!options.uid.empty()) body["preconditions"]["uid"] = options.uid;
    if (!options.resource_version.empty()) {
      body["preconditions"]["resourceVersion"] = options.resource_version;
    }
    if (options.grace_period_seconds >= 0) {
      body["gracePeriodSeconds"] = options.grace_period_seconds;
    }
    HttpRequest request = write_request("DELETE");
    request.path = api::object_path(kind, key);
    request.content_type = "application/json";
    request.body = dump_json(body);
    MUSTER_ASSIGN_OR_RETURN(const HttpResponse response, transport_.send(request));
    if (!is_success(response.code)) return error_of(response);
    return {};
  }

 private:
  HttpRequest write_request(const char* method) const {
    HttpRequest request;
    request.method = method;
    request.timeout = write_timeout_;
    return request;
  }
  HttpRequest create_request(api::Kind kind, const std::string& namespace_name,
                             const Json& object) const {
    HttpRequest request = write_request("POST");
    request.path = api::collection_path(kind, namespace_name);
    request.content_type = "application/json";
    request.body = dump_json(object);
    return request;
  }

  /// One exchange whose answer is a JSON object.
  Result<Json> exchange(const HttpRequest& request) {
    MUSTER_ASSIGN_OR_RETURN(const HttpResponse response, transport_.send(request));
    return body_of(response, api::kUnreadOfAny);
  }

  static Result<Json> body_of(const HttpResponse& response, std::span<const LeftOut> left_out) {
    if (!is_success(response.code)) return error_of(response);
    auto body = parse_told_json(response.body, left_out);
    if (!body || !body->is_object()) {
      // A proxy's page, or an answer that was cut: the same request may do better later.
      return Error(ErrorCode::kUnavailable, "HTTP " + std::to_string(response.code) +
                                                " with a body that is no object" +
                                                (body ? "" : ": " + body.error().message()));
    }
    return std::move(*body);
  }

  static void fill_type(api::Kind kind, Json& object) {
    const api::KindInfo& info = api::info_of(kind);
    object["apiVersion"] = info.api_version;
    object["kind"] = info.kind;
  }

  static Result<Json> object_of(api::Kind kind, Result<Json> answer) {
    if (answer) fill_type(kind, *answer);
    return answer;
  }

  /// Built-in kinds come without apiVersion and kind inside a list.
  static Result<ListPage> page_of(api::Kind kind, Json body) {
    ListPage page;
    const auto items = body.find("items");
    const auto metadata = body.find("metadata");
    if (items == body.end() || metadata == body.end() || !metadata->is_object() ||
        !(items->is_array() || items->is_null())) {
      return Error(ErrorCode::kUnavailable, std::string("the answer to a list of ") +
                                                api::info_of(kind).plural + " is not a list");
    }
    page.resource_version = text_at(*metadata, {"resourceVersion"});
    page.continue_token = text_at(*metadata, {"continue"});
    if (items->is_null()) return page;
    page.items.reserve(items->size());
    for (Json& item : *items) {
      if (item.is_object()) fill_type(kind, item);
      page.items.push_back(std::move(item));
    }
    return page;
  }

  HttpTransport& transport_;
  const milliseconds write_timeout_;
};

}  // namespace

std::unique_ptr<ApiClient> make_rest_client(HttpTransport& transport, milliseconds write_timeout) {
  return std::make_unique<RestClient>(transport, write_timeout);
}

}  // namespace muster::kube
