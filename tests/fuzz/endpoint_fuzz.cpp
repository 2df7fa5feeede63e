// One post after another into the workers' endpoint, each line of the input one body. A line of
// "@METHOD PATH AUTHORIZATION" says what heads the next one, which otherwise is what a worker
// sends. Whatever comes, every request is answered exactly once or parked, and nothing breaks; what
// is no post to a path of the endpoint with the right token is refused at once, with the reason's
// code.
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/check.h"
#include "common/contract.h"
#include "operator/runtime/endpoint_handler.h"
#include "tests/fuzz/cut.h"

using namespace muster;
using fuzz::cut;

namespace {

constexpr int kRequestsMost = 64;

/// A worker's own: its first byte says where it goes, and else it is a join.
http::Request post_of(std::string_view line) {
  http::Request request;
  request.method = "POST";
  request.path = contract::kPathJoin;
  if (line.starts_with('p')) request.path = contract::kPathProgress;
  if (line.starts_with('w')) request.path = contract::kPathWitness;
  if (request.path != contract::kPathJoin) line.remove_prefix(1);
  request.headers = {{"authorization", "Bearer t"}};
  request.body = line;
  return request;
}

http::Request headed(std::string_view head, std::string_view body) {
  http::Request request;
  request.method = cut(head, ' ');
  request.path = cut(head, ' ');
  if (!head.empty()) request.headers = {{"authorization", std::string(head)}};
  request.body = body;
  return request;
}

/// What must be said to it whatever its body is; 0: that depends.
int refused_with(const http::Request& request) {
  const bool is_served = request.path == contract::kPathJoin ||
                         request.path == contract::kPathProgress ||
                         request.path == contract::kPathWitness;
  if (!is_served) return 404;
  if (request.method != "POST") return 405;
  return request.header("authorization") == "Bearer t" ? 0 : 401;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  ManualClock clock;
  const auto authenticator = runtime::make_local_authenticator("t");
  int answers = 0, requests = 0;
  std::array<int, kRequestsMost> status_of{};  // 0: not answered yet
  runtime::EndpointHandler handler(
      {.clock = &clock,
       .authenticator = authenticator.get(),
       .on_progress = {},
       .on_join = {},
       .on_witness =
           [](const WitnessRequest& request, const runtime::WitnessAnswer& answer) {
             WitnessResponse response;
             response.granted = request.slot == 0;
             response.epoch = request.next_epoch;
             answer(response);
           }},
      [](milliseconds, const std::function<void()>&) {});
  runtime::GangInfo gang;
  gang.job = "n/j";
  gang.training = "{}";
  gang.attempt_of_slot = {{0, 0}, {1, 0}};
  handler.set_gang(gang);
  std::string_view rest(reinterpret_cast<const char*>(bytes), size);
  while (!rest.empty() && requests < kRequestsMost) {
    const std::string_view line = cut(rest, '\n');
    const http::Request request =
        line.starts_with('@') ? headed(line.substr(1), cut(rest, '\n')) : post_of(line);
    int& status = status_of.at(static_cast<std::size_t>(requests++));
    handler.handle(request, [&answers, &status](const http::Response& response) {
      ++answers;
      status = response.status;
    });
    if (const int code = refused_with(request); code != 0) MUSTER_CHECK(status == code);
    clock.advance(milliseconds(50));
  }
  handler.stop();
  MUSTER_CHECK(answers == requests);
  return 0;
}
