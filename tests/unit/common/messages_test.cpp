#include "common/messages.h"

#include <doctest/doctest.h>

using namespace muster;

TEST_CASE("messages survive the wire") {
  const JoinRequest request{"default/digits", 3, 2, "127.0.0.1", {4001, 4002}, "fp32-chain/1"};
  CHECK(dump_json(to_json(*parse_join_request(to_json(request)))) == dump_json(to_json(request)));

  JoinResponse response;
  response.complete = true;
  response.peers = {{0, "a", {1}}, {1, "b", {2, 3}}};
  response.training = Json{{"seed", 7}};
  CHECK(dump_json(to_json(*parse_join_response(to_json(response)))) ==
        dump_json(to_json(response)));

  ProgressReport report;
  report.job = "default/digits";
  report.step = 5;
  report.samples_per_second = 1.5;
  report.sent_bytes = 123;
  CHECK(dump_json(to_json(*parse_progress_report(to_json(report)))) == dump_json(to_json(report)));
}

TEST_CASE("hostile messages are refused with the field") {
  Json join = to_json(JoinRequest{"default/digits", 0, 0, "h", {1}, "c"});
  join["ports"] = Json::array({0});
  CHECK(parse_join_request(join).error().message().find("join.ports") == 0);
  join["ports"] = Json::array();
  for (int i = 0; i < 100; ++i) join["ports"].push_back(1);
  CHECK(parse_join_request(join).error().message() == "join.ports: has more than 64 items");
  join["slot"] = -1;
  CHECK_FALSE(parse_join_request(join));
  CHECK_FALSE(parse_join_request(Json(3)));
}
