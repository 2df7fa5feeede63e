#include "worker/sentinel/launch.h"

#include <doctest/doctest.h>

using namespace muster;
using namespace muster::sentinel;

namespace {

JoinRequest request() { return {"ns/job", 1, 0, "10.0.0.2", {21, 22}, "fp32-chain/1"}; }

JoinResponse response() {
  JoinResponse value;
  value.complete = true;
  value.epoch = 5;
  value.peers = {{4, "10.0.0.5", {51, 52}}, {0, "10.0.0.1", {11, 12}}, {1, "10.0.0.2", {21, 22}}};
  value.job_uid = "uid";
  value.job_key = std::string(64, 'a');
  value.training = Json{{"seed", 7}};
  value.threads = 3;
  return value;
}

}  // namespace

TEST_CASE("ranks count processes over slots in slot order") {
  WorkerConfig config;
  config.checkpoint_path = "/c";
  config.hash_every = 0;
  const auto launches = plan_trainers(config, request(), response());
  REQUIRE(launches);
  REQUIRE(launches->size() == 2);
  CHECK((*launches)[0].rank == 2);
  CHECK((*launches)[1].rank == 3);
  CHECK((*launches)[1].local_rank == 1);
  REQUIRE((*launches)[0].peers.size() == 6);
  CHECK((*launches)[0].peers[0].port == 11);
  CHECK((*launches)[0].peers[3].port == 22);
  CHECK((*launches)[0].peers[4].host == "10.0.0.5");
  CHECK((*launches)[0].epoch == 5);
}

TEST_CASE("a launch survives its way to the trainer") {
  WorkerConfig config;
  config.checkpoint_path = "/c";
  config.hash_every = 0;
  config.log_level = LogLevel::kWarning;
  config.gpus = 2;
  const auto launches = plan_trainers(config, request(), response());
  REQUIRE(launches);
  const Json before = to_json((*launches)[1]);
  const auto parsed = parse_json(dump_json(before));
  REQUIRE(parsed);
  const auto after = parse_trainer_launch(*parsed);
  REQUIRE(after);
  CHECK(to_json(*after) == before);
  CHECK(after->hash_every == 0);
  CHECK(after->gpus == 2);
  Json wrong = before;
  wrong["rank"] = 6;
  CHECK_FALSE(parse_trainer_launch(wrong));
}

TEST_CASE("an answer that contradicts itself or the request is refused") {
  const auto message = [](const JoinResponse& answer) {
    const auto launches = plan_trainers({}, request(), answer);
    return launches ? std::string("taken") : launches.error().message();
  };
  const std::string front = "the endpoint's answer to join: ";
  JoinResponse twice = response();
  twice.peers[0].slot = 0;
  CHECK(message(twice) == front + "slot 0 stands in it twice");
  JoinResponse uneven = response();
  uneven.peers[0].ports.pop_back();
  CHECK(message(uneven) == front + "slot 4 has another number of processes");
  JoinResponse moved = response();
  moved.peers[2].host = "10.0.0.9";
  CHECK(message(moved) == front + "this worker's address in it is not its own");
  JoinResponse absent = response();
  absent.peers.pop_back();
  CHECK(message(absent) == front + "this worker's slot is not in it");
  JoinResponse untrained = response();
  untrained.training = nullptr;
  CHECK(message(untrained) == front + "it has no training");
}

TEST_CASE("the own address towards loopback is loopback") {
  const auto addresses = addresses_of("127.0.0.1");
  REQUIRE(addresses);
  CHECK(*addresses == std::vector<std::string>{"127.0.0.1"});
  const auto address = own_address(*addresses);
  REQUIRE(address);
  CHECK(*address == "127.0.0.1");
  CHECK(*own_address({"no address", "127.0.0.1"}) == "127.0.0.1");
  CHECK_FALSE(own_address({"no address"}));
}
