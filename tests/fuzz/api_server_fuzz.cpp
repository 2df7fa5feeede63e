// Requests to the embedded API server: each line of the input is "METHOD PATH BODY". Whatever a
// client sends, every answer is JSON with a sensible code, and at the end a watch from the
// beginning rebuilds what the list shows.
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/json.h"
#include "operator/embedded/api_server.h"
#include "tests/fuzz/cut.h"

using namespace muster;
using fuzz::cut;

namespace {

kube::HttpRequest request_of(std::string_view line) {
  kube::HttpRequest request;
  request.method = cut(line, ' ');
  request.path = cut(line, ' ');
  request.body = line;
  request.content_type =
      request.method == "PATCH" ? "application/merge-patch+json" : "application/json";
  return request;
}

std::string name_of(const Json& object) {
  const Json& metadata = object["metadata"];
  return metadata.value("namespace", "") + "/" + metadata["name"].get<std::string>();
}

Json list(embedded::ApiServer& server, const std::string& path) {
  kube::HttpRequest request;
  request.path = path;
  const auto response = server.send(request);
  MUSTER_CHECK(response && response->code == 200);
  auto body = parse_json(response->body);
  MUSTER_CHECK(body);
  return std::move(*body);
}

void check_replay(embedded::ApiServer& server, const std::string& path) {
  std::set<std::string> listed, watched;
  const Json list_now = list(server, path);
  for (const Json& item : list_now["items"]) listed.insert(name_of(item));
  kube::HttpRequest request;
  request.path = path + "?watch=1&resourceVersion=1";
  const auto opened = server.open_stream(request);
  MUSTER_CHECK(opened && opened->stream != nullptr);
  while (true) {
    const auto line = opened->stream->next_line(milliseconds(0));
    if (!line) break;
    MUSTER_CHECK(line->has_value());
    const auto event = parse_json(**line);
    MUSTER_CHECK(event);
    const std::string name = name_of((*event)["object"]);
    if ((*event)["type"] == "DELETED") {
      MUSTER_CHECK(watched.erase(name) == 1);
    } else {
      watched.insert(name);
    }
  }
  MUSTER_CHECK(listed == watched);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  ManualClock clock;
  embedded::ApiServerOptions options;
  options.clock = &clock;
  embedded::ApiServer server(options);
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  for (int requests = 0; !rest.empty() && requests < 64; ++requests) {
    const auto request = request_of(cut(rest, '\n'));
    if (request.path.find("watch=") != std::string::npos) {
      const auto opened = server.open_stream(request);
      MUSTER_CHECK(opened);
      if (opened->stream != nullptr) (void)opened->stream->next_line(milliseconds(0));
    }
    const auto response = server.send(request);
    MUSTER_CHECK(response && response->code >= 200 && response->code < 500);
    MUSTER_CHECK(parse_json(response->body));
    clock.advance(milliseconds(100));
  }
  check_replay(server, "/api/v1/pods");
  check_replay(server, "/api/v1/nodes");
  check_replay(server, "/apis/muster.dev/v1alpha1/trainingjobs");
  return 0;
}
