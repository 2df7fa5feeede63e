// One post after another into the workers' endpoint, each line of the input one body: whatever a
// worker sends, every request is answered exactly once or parked, and nothing breaks.
#include <cstdint>
#include <string_view>

#include "common/check.h"
#include "common/contract.h"
#include "operator/runtime/endpoint_handler.h"

using namespace muster;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  ManualClock clock;
  const auto authenticator = runtime::make_local_authenticator("t");
  int answers = 0, requests = 0;
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
  while (!rest.empty() && requests < 64) {
    const std::size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    http::Request request;
    request.method = "POST";
    request.path = contract::kPathJoin;
    if (line.starts_with('p')) request.path = contract::kPathProgress;
    if (line.starts_with('w')) request.path = contract::kPathWitness;
    if (request.path != contract::kPathJoin) line.remove_prefix(1);
    request.headers = {{"authorization", "Bearer t"}};
    request.body = line;
    ++requests;
    handler.handle(request, [&answers](const http::Response&) { ++answers; });
    clock.advance(milliseconds(50));
  }
  handler.stop();
  MUSTER_CHECK(answers == requests);
  return 0;
}
