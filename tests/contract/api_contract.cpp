#include "tests/contract/api_contract.h"

#include <utility>

namespace muster::contract_test {
namespace {

std::string text_at(const Json& object, const char* field) {
  if (!object.is_object() || !object.contains(field)) return {};
  const Json& value = object[field];
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string collection(const std::string& base, const std::string& namespace_name,
                       const std::string& plural, const std::string& name) {
  return base + "/namespaces/" + namespace_name + "/" + plural + (name.empty() ? "" : "/" + name);
}

Answer exchange(kube::HttpRequest request) {
  auto response = contract_transport().send(request);
  REQUIRE_MESSAGE(response, request.path);
  Answer answer;
  answer.code = response->code;
  auto body = parse_json(response->body);
  REQUIRE_MESSAGE(body, response->body);
  answer.body = std::move(*body);
  return answer;
}

}  // namespace

std::string Answer::reason() const { return text_at(body, "reason"); }
std::string Answer::message() const { return text_at(body, "message"); }
std::string Answer::meta(const char* field) const {
  return body.contains("metadata") ? text_at(body["metadata"], field) : std::string();
}

Answer call(const std::string& method, const std::string& path, const Json& body) {
  kube::HttpRequest request;
  request.method = method;
  request.path = path;
  if (!body.is_null()) {
    request.content_type = "application/json";
    request.body = dump_json(body);
  }
  return exchange(std::move(request));
}

Answer call_text(const std::string& method, const std::string& path, std::string body) {
  kube::HttpRequest request;
  request.method = method;
  request.path = path;
  request.content_type = "application/json";
  request.body = std::move(body);
  return exchange(std::move(request));
}

Answer patch(const std::string& path, const Json& merge_patch) {
  kube::HttpRequest request;
  request.method = "PATCH";
  request.path = path;
  request.content_type = "application/merge-patch+json";
  request.body = dump_json(merge_patch);
  return exchange(std::move(request));
}

std::string pods_path(const std::string& namespace_name, const std::string& name) {
  return collection("/api/v1", namespace_name, "pods", name);
}
std::string jobs_path(const std::string& namespace_name, const std::string& name) {
  return collection("/apis/muster.dev/v1alpha1", namespace_name, "trainingjobs", name);
}
std::string services_path(const std::string& namespace_name, const std::string& name) {
  return collection("/api/v1", namespace_name, "services", name);
}
std::string queues_path(const std::string& name) {
  return "/apis/muster.dev/v1alpha1/trainingqueues" + (name.empty() ? "" : "/" + name);
}

Json queue(const std::string& name) {
  return {{"apiVersion", "muster.dev/v1alpha1"},
          {"kind", "TrainingQueue"},
          {"metadata", {{"name", name}}},
          {"spec", Json::object()}};
}
Json pod(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"restartPolicy", "Never"},
            {"containers", {{{"name", "worker"}, {"image", "example.invalid/worker:1"}}}}}}};
}
Json bound_pod(const std::string& name) {
  auto wish = pod(name);
  wish["spec"]["nodeName"] = "node-of-nobody";
  return wish;
}

Json job(const std::string& name) {
  return {{"apiVersion", "muster.dev/v1alpha1"},
          {"kind", "TrainingJob"},
          {"metadata", {{"name", name}}},
          {"spec",
           {{"worker",
             {{"count", 1},
              {"image", "example.invalid/worker:1"},
              {"command", Json::array({"true"})}}}}}};
}

Json service(const std::string& name) {
  return {{"apiVersion", "v1"},
          {"kind", "Service"},
          {"metadata", {{"name", name}}},
          {"spec", {{"clusterIP", "None"}, {"selector", {{"app", "x"}}}}}};
}

Json owned_by(Json object, const Json& owner) {
  object["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", owner["apiVersion"]},
                                                        {"kind", owner["kind"]},
                                                        {"name", owner["metadata"]["name"]},
                                                        {"uid", owner["metadata"]["uid"]},
                                                        {"controller", true}}});
  return object;
}

std::string Event::name() const {
  return text_at(object.value("metadata", Json::object()), "name");
}
std::string Event::resource_version() const {
  return text_at(object.value("metadata", Json::object()), "resourceVersion");
}

Watch::Watch(const std::string& collection_path, const std::string& query) {
  kube::HttpRequest request;
  request.path = collection_path + "?watch=true" + (query.empty() ? "" : "&" + query);
  auto opened = contract_transport().open_stream(request);
  REQUIRE(opened);
  code_ = opened->head.code;
  stream_ = std::move(opened->stream);
}

std::optional<Event> Watch::next() {
  REQUIRE(stream_ != nullptr);
  auto line = stream_->next_line(seconds(60));
  REQUIRE_MESSAGE(line, (line ? "" : line.error().message()));
  if (!*line) return std::nullopt;
  auto json = parse_json(**line);
  REQUIRE_MESSAGE(json, **line);
  return Event{text_at(*json, "type"), (*json)["object"]};
}

std::optional<Event> Watch::wait_for(const std::string& type, const std::string& name) {
  while (auto event = next()) {
    if (event->type == type && event->name() == name) return event;
  }
  return std::nullopt;
}

}  // namespace muster::contract_test
