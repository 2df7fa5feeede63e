// The front of the embedded API server: one request in, one answer out, under one lock.
#include "operator/embedded/api_server.h"

#include <charconv>
#include <utility>

#include "operator/embedded/api_state.h"
#include "operator/embedded/api_stream.h"
#include "operator/embedded/api_verbs.h"
#include "operator/embedded/selector.h"

namespace muster::embedded {
namespace {

/// kube-apiserver's bound on a request's body.
constexpr std::size_t kMaxBodyBytes = std::size_t{3} << 20;
constexpr int kMaxStreams = 4096;
constexpr std::int64_t kDefaultWatchSeconds = 1800;

kube::HttpResponse answer(int code, std::string body) {
  kube::HttpResponse response;
  response.code = code;
  response.body = std::move(body);
  return response;
}

kube::HttpResponse answer(int code, const Outcome<VersionPtr>& outcome) {
  if (refused(outcome)) return to_response(std::get<Refusal>(outcome));
  return answer(code, std::get<VersionPtr>(outcome)->text);
}

kube::HttpResponse success(int code) {
  return answer(code, dump_json({{"kind", "Status"},
                                 {"apiVersion", "v1"},
                                 {"metadata", Json::object()},
                                 {"status", "Success"},
                                 {"code", code}}));
}

Refusal not_allowed() {
  return {405, "MethodNotAllowed",
          "the server does not allow this method on the requested resource"};
}

bool wants_watch(const Target& target) {
  const std::string watch = target.parameter("watch");
  return watch == "true" || watch == "1";
}

/// The media type without its parameters must be `right`.
std::optional<Refusal> check_content_type(const kube::HttpRequest& request, const char* right) {
  const std::string given = request.content_type.substr(0, request.content_type.find(';'));
  if (given == right) return std::nullopt;
  return Refusal{415, "UnsupportedMediaType",
                 "the body of the request was in an unknown format - accepted media types "
                 "include: " +
                     std::string(right)};
}

Outcome<Json> parse_body(const kube::HttpRequest& request) {
  if (request.body.size() > kMaxBodyBytes) {
    return Refusal{413, "RequestEntityTooLarge",
                   "Request entity too large: limit is " + std::to_string(kMaxBodyBytes)};
  }
  if (request.body.empty()) return Json();
  auto body = parse_json(request.body);
  if (!body) return bad_request("the body of the request: " + body.error().message());
  return std::move(*body);
}

std::string verb_of(const kube::HttpRequest& request, const Target& target) {
  if (request.method == "POST") return "create";
  if (request.method == "PUT") return "update";
  if (request.method == "PATCH") return "patch";
  if (request.method == "DELETE") return "delete";
  if (request.method != "GET") return "";
  if (!target.name.empty()) return "get";
  return wants_watch(target) ? "watch" : "list";
}

void count(ApiState& state, const std::string& verb, const Target& target) {
  std::string name = verb + " " + target.type->plural;
  if (!target.subresource.empty()) name += "/" + target.subresource;
  ++state.request_counts[name];
}

kube::HttpResponse remove(ApiState& state, const Target& target, const Json& options) {
  const auto outcome = delete_object(state, target, options);
  if (refused(outcome)) return to_response(std::get<Refusal>(outcome));
  const VersionPtr still = state.table_of(*target.type).find(target.key());
  return still == nullptr ? success(200) : answer(200, still->text);
}

kube::HttpResponse read(ApiState& state, const Target& target, const std::string& verb) {
  if (verb == "get") return answer(200, get_object(state, target));
  if (verb == "watch") return to_response(bad_request("a watch must be opened as a stream"));
  auto list = list_objects(state, target);
  if (refused(list)) return to_response(std::get<Refusal>(list));
  return answer(200, std::move(std::get<0>(list)));
}

kube::HttpResponse write(ApiState& state, const kube::HttpRequest& request, const Target& target,
                         const std::string& verb) {
  const bool may_be_untyped = verb == "delete" && request.body.empty();
  if (!may_be_untyped) {
    const char* right = verb == "patch" ? "application/merge-patch+json" : "application/json";
    if (auto refusal = check_content_type(request, right)) return to_response(*refusal);
  }
  auto body = parse_body(request);
  if (refused(body)) return to_response(std::get<Refusal>(body));
  Json& object = std::get<0>(body);
  if (verb == "create" && target.subresource == "binding") {
    const auto refusal = bind_pod(state, target, object);
    return refusal ? to_response(*refusal) : success(201);
  }
  if (verb == "create") return answer(201, create_object(state, target, std::move(object)));
  if (verb == "update") return answer(200, update_object(state, target, std::move(object)));
  if (verb == "patch") return answer(200, patch_object(state, target, object));
  return remove(state, target, object);
}

/// Whether the verb exists on what the path names.
bool is_allowed(const Target& target, const std::string& verb) {
  if (target.subresource == "binding") return verb == "create";
  if (verb == "create") {
    return target.name.empty() && (!target.type->namespaced || !target.namespace_name.empty());
  }
  if (verb == "list" || verb == "watch") return true;
  if (target.name.empty()) return false;
  if (target.subresource == "status") return verb == "get" || verb == "update" || verb == "patch";
  return verb == "get" || verb == "update" || verb == "patch" || verb == "delete";
}

/// As apimachinery's ValidateListOptions has it, for a watch.
std::optional<Refusal> check_initial_events(const std::string& initial, const std::string& match) {
  const auto invalid = [](const std::string& sentence) {
    return Refusal{422, "Invalid", "ListOptions is invalid: " + sentence};
  };
  if (initial.empty()) {
    if (match.empty()) return std::nullopt;
    return invalid(
        "resourceVersionMatch: Forbidden: is forbidden for watch unless sendInitialEvents is "
        "provided");
  }
  if (initial != "true" && initial != "1") {
    return invalid("sendInitialEvents: the embedded API server knows of true alone");
  }
  if (match == "NotOlderThan") return std::nullopt;
  return invalid("resourceVersionMatch: must be NotOlderThan with sendInitialEvents");
}

Outcome<StreamOptions> stream_options(ApiState& state, Table& table, const Target& target) {
  auto selector = Selector::parse(*target.type, target.parameter("labelSelector"),
                                  target.parameter("fieldSelector"));
  if (refused(selector)) return std::get<Refusal>(selector);
  auto timeout = number_parameter(target, "timeoutSeconds", kDefaultWatchSeconds);
  if (refused(timeout)) return std::get<Refusal>(timeout);
  StreamOptions options;
  options.namespace_name = target.namespace_name;
  options.selector = std::move(std::get<0>(selector));
  options.timeout = seconds(std::get<0>(timeout));
  const std::string bookmarks = target.parameter("allowWatchBookmarks");
  options.bookmarks = bookmarks == "true" || bookmarks == "1";
  const std::string initial = target.parameter("sendInitialEvents");
  const std::string match = target.parameter("resourceVersionMatch");
  if (auto refusal = check_initial_events(initial, match)) return *refusal;
  const std::string from = target.parameter("resourceVersion");
  if (from.empty() || from == "0") {
    options.tells_initial_end = !initial.empty() && options.bookmarks;
    options.from = state.revision();
    for (const auto& [key, version] : table.objects) {
      const bool in_namespace =
          target.namespace_name.empty() || key.namespace_name == target.namespace_name;
      if (in_namespace && options.selector.matches(*version)) options.initial.push_back(version);
    }
    return options;
  }
  const auto [stop, error] = std::from_chars(from.data(), from.data() + from.size(), options.from);
  if (error != std::errc() || stop != from.data() + from.size()) {
    return bad_request("resourceVersion: must be a whole number (got \"" + from.substr(0, 64) +
                       "\")");
  }
  // A real server says so inside a stream that it has already opened with 200.
  if (options.from < table.compacted) {
    options.error_at_once =
        Refusal{410, "Expired",
                "too old resource version: " + from + " (" + std::to_string(table.compacted) + ")"};
  }
  return options;
}

}  // namespace

struct ApiServer::Impl {
  explicit Impl(const ApiServerOptions& options) : state(std::make_shared<ApiState>(options)) {}
  std::shared_ptr<ApiState> state;
};

ApiServer::ApiServer(const ApiServerOptions& options) : impl_(std::make_unique<Impl>(options)) {}

ApiServer::~ApiServer() { cut_streams(); }

Result<kube::HttpResponse> ApiServer::send(const kube::HttpRequest& request) {
  auto target = parse_target(request.path);
  if (refused(target)) return to_response(std::get<Refusal>(target));
  const Target& aim = std::get<0>(target);
  ApiState& state = *impl_->state;
  const std::string verb = verb_of(request, aim);
  const std::lock_guard lock(state.mutex);
  if (verb.empty() || !is_allowed(aim, verb)) return to_response(not_allowed());
  if (!aim.parameter("dryRun").empty()) {
    return to_response(bad_request("dryRun is not supported by the embedded API server"));
  }
  count(state, verb, aim);
  if (request.method == "GET") return read(state, aim, verb);
  auto response = write(state, request, aim, verb);
  state.collect_garbage();
  return response;
}

Result<kube::HttpTransport::Stream> ApiServer::open_stream(const kube::HttpRequest& request) {
  const auto refuse = [](const Refusal& refusal) { return Stream{to_response(refusal), nullptr}; };
  auto target = parse_target(request.path);
  if (refused(target)) return refuse(std::get<Refusal>(target));
  const Target& aim = std::get<0>(target);
  if (request.method != "GET" || !aim.name.empty() || !wants_watch(aim)) {
    return refuse(bad_request("a stream must be a watch of a collection"));
  }
  ApiState& state = *impl_->state;
  const std::lock_guard lock(state.mutex);
  count(state, "watch", aim);
  if (state.open_streams >= kMaxStreams) {
    return refuse({429, "TooManyRequests", "too many open watches"});
  }
  Table& table = state.table_of(*aim.type);
  auto options = stream_options(state, table, aim);
  if (refused(options)) return refuse(std::get<Refusal>(options));
  return Stream{answer(200, std::string()),
                std::make_unique<ApiStream>(impl_->state, table, std::move(std::get<0>(options)))};
}

void ApiServer::compact() {
  const std::lock_guard lock(impl_->state->mutex);
  impl_->state->compact();
}

void ApiServer::cut_streams() {
  const std::lock_guard lock(impl_->state->mutex);
  ++impl_->state->stream_generation;
  impl_->state->changed.notify_all();
}

std::uint64_t ApiServer::resource_version() const {
  const std::lock_guard lock(impl_->state->mutex);
  return impl_->state->revision();
}

std::map<std::string, std::int64_t> ApiServer::request_counts() const {
  const std::lock_guard lock(impl_->state->mutex);
  return impl_->state->request_counts;
}

}  // namespace muster::embedded
