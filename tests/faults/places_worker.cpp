// muster-worker, but that its trainers follow orders of a test: who comes to a place that there is
// an order for gets a real signal exactly there. The shipped worker watches no places.
//
// An order is a file at-SLOT-PLACE (PLACE: engine::point) in the folder MUSTER_TEST_PLACES, and
// holds a line: KILL or STOP for the trainer that comes there, TERM for its sentinel. Who follows
// it has renamed it to at-SLOT-PLACE.taken before, so that nobody else does, least of all the
// trainer that is started in its place, and adds a line: its process id, its sentinel's and the
// step.
#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/contract.h"
#include "common/descriptor_limit.h"
#include "common/log.h"
#include "worker/sentinel/environment.h"
#include "worker/sentinel/sentinel.h"
#include "worker/step_pace.h"
#include "worker/trainer.h"

using namespace muster;

namespace {

std::string value_of(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? "" : value;
}

void follow(const std::string& order, std::int64_t step) {
  const std::string taken = order + ".taken";
  if (std::rename(order.c_str(), taken.c_str()) != 0) return;  // there is none
  std::string name;
  std::ifstream(taken) >> name;
  std::ofstream(taken, std::ios::app) << getpid() << ' ' << getppid() << ' ' << step << '\n';
  if (name == "TERM") {
    (void)kill(getppid(), SIGTERM);
  } else {
    // To this thread alone: it does not come back before it has happened.
    (void)raise(name == "STOP" ? SIGSTOP : SIGKILL);
  }
}

int run_worker() {
  const auto config =
      sentinel::parse_environment([](const char* name) { return std::getenv(name); });
  if (!config) {
    log_error("worker refused to start", {{"error", config.error().message()}});
    return config.error().exit_code();
  }
  configure_log(config->log_level,
                {{"component", "sentinel"}, {"job", config->job}, {"slot", config->slot}});
  raise_descriptor_limit();
  const SystemClock clock;
  sentinel::SentinelOptions options;
  options.config = *config;
  options.trainer = {"/proc/self/exe", {"muster-worker", "--trainer"}};
  options.clock = &clock;
  options.seed = static_cast<std::uint64_t>(getpid());
  return sentinel::run_sentinel(options);
}

}  // namespace

int main(int argc, char**) {
  if (argc == 1) return run_worker();
  const std::string orders =
      value_of("MUSTER_TEST_PLACES") + "/at-" + value_of(contract::kEnvSlot) + "-";
  return worker::run_trainer(SystemClock(), worker::parse_step_pace(value_of(contract::kEnvPaceMs)),
                             "", [&orders](std::string_view place, std::int64_t step) {
                               follow(orders + std::string(place), step);
                             });
}
