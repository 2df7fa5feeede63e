#include "common/messages.h"

#include <doctest/doctest.h>

using namespace muster;

TEST_CASE("messages survive the wire") {
  const JoinRequest request{"default/digits", 3, 2,       "127.0.0.1", {4001, 4002},
                            "fp32-chain/1",   9, "node-3"};
  CHECK(dump_json(to_json(*parse_join_request(to_json(request)))) == dump_json(to_json(request)));
  JoinRequest patient = request;
  patient.begins_together = true;
  CHECK(parse_join_request(to_json(patient))->begins_together);

  JoinResponse response;
  response.complete = true;
  response.begin_after_ms = 4'250;
  response.peers = {{0, "a", {1}}, {1, "b", {2, 3}, 9, 2, "node-3"}};
  response.training = Json{{"seed", 7}};
  CHECK(dump_json(to_json(*parse_join_response(to_json(response)))) ==
        dump_json(to_json(response)));

  ProgressReport report;
  report.job = "default/digits";
  report.step = 5;
  report.samples_per_second = 1.5;
  report.step_seconds = 0.25;
  report.exchange_seconds = 0.125;
  report.sent_bytes = 123;
  report.membership_epoch = 4;
  report.members = {0, 2};
  report.changes = {{4, 17, "Lost", 1, "its trainer was killed", 12, 30}};
  report.waiting = "the witness";
  report.busy_seconds = 20;
  report.busy_checkpoint = true;
  report.busy_path = "/checkpoints";
  report.slow_percent = 40;
  report.slow_cause = "network";
  report.slow_process = 1;
  report.slow_rank = 5;
  report.host = "10.0.0.2";
  report.ports = {4001, 4002};
  report.sentinel_port = 5001;
  report.parts = {{{1000, 4, 2048, 3, 12, 8, 512}, 0.5, 0.25, 0.125}, {}};
  CHECK(dump_json(to_json(*parse_progress_report(to_json(report)))) == dump_json(to_json(report)));

  const WitnessRequest ask{"default/digits", 1, 3, 4, 5, {1, 2}, {0, 1, 2}};
  CHECK(dump_json(to_json(*parse_witness_request(to_json(ask)))) == dump_json(to_json(ask)));
  const WitnessResponse answer{true, 5, {1, 2}};
  CHECK(dump_json(to_json(*parse_witness_response(to_json(answer)))) == dump_json(to_json(answer)));
}

TEST_CASE("of a report nothing is refused for its words") {
  ProgressReport report;
  report.job = "default/digits";
  report.membership_epoch = 4;
  // Hundreds of silent workers are named one by one.
  report.waiting = "silent are slots " + std::string(300, '7');
  report.busy_path = std::string("a\0b", 3);
  report.changes = {{4, 17, "Lost", 1, std::string(300, 'x'), 12, 30}};
  const auto told = parse_progress_report(to_json(report));
  REQUIRE_MESSAGE(told, told.error().message());
  CHECK(told->membership_epoch == 4);
  CHECK(told->waiting == report.waiting.substr(0, 256));
  CHECK(told->busy_path == "a?b");
  CHECK(told->changes[0].reason.size() == 256);
}

TEST_CASE("what an older build does not say is not known") {
  Json join = to_json(JoinRequest{"default/digits", 0, 0, "h", {1}, "c"});
  join.erase("domain");
  join.erase("beginsTogether");
  CHECK(parse_join_request(join)->domain.empty());
  CHECK_FALSE(parse_join_request(join)->begins_together);
  JoinResponse response;
  response.complete = true;
  response.peers = {{0, "a", {1}, 9, 2, "node-3"}};
  Json answer = to_json(response);
  answer["peers"][0].erase("domain");
  answer.erase("beginAfterMs");
  CHECK(parse_join_response(answer)->peers[0].domain.empty());
  CHECK(parse_join_response(answer)->begin_after_ms == 0);
  ProgressReport report;
  report.job = "default/digits";
  report.changes = {{4, 17, "Lost", 1, "", 12, 30}};
  Json told = to_json(report);
  told["changes"][0].erase("delayMs");
  told.erase("slowProcess");
  told.erase("slowRank");
  CHECK(parse_progress_report(told)->changes[0].delay_ms == -1);
  CHECK(parse_progress_report(told)->slow_process == -1);
  CHECK(parse_progress_report(told)->slow_rank == -1);
}

TEST_CASE("hostile messages are refused with the field") {
  Json from_far = to_json(JoinRequest{"default/digits", 0, 0, "h", {1}, "c"});
  from_far["domain"] = std::string(254, 'n');
  CHECK(parse_join_request(from_far).error().message().find("join.domain") == 0);
  from_far["domain"] = 7;
  CHECK(parse_join_request(from_far).error().message().find("join.domain") == 0);
  JoinResponse many;
  many.peers = {{0, "a", {1}, 9, 2, std::string(254, 'n')}};
  CHECK(parse_join_response(to_json(many)).error().message().find("join response.peers.domain") ==
        0);
  Json join = to_json(JoinRequest{"default/digits", 0, 0, "h", {1}, "c"});
  Json told = to_json(ProgressReport{});
  told["job"] = "default/digits";
  told["parts"] = Json::array({{{"turns", -1}}});
  CHECK(parse_progress_report(told).error().message().find("progress.parts.turns") == 0);
  told["parts"] = Json::array({{{"updateSeconds", "1"}}});
  CHECK(parse_progress_report(told).error().message().find("progress.parts.updateSeconds") == 0);
  told["parts"] = std::vector<Json>(kMaxReportedParts + 1, Json::object());
  CHECK(parse_progress_report(told).error().message() == "progress.parts: has more than 16 items");
  told["parts"] = Json::array();
  told["slowProcess"] = kMaxProcesses;
  CHECK(parse_progress_report(told).error().message().find("progress.slowProcess") == 0);
  join["ports"] = Json::array({0});
  CHECK(parse_join_request(join).error().message().find("join.ports") == 0);
  join["ports"] = Json::array();
  for (int i = 0; i < 100; ++i) join["ports"].push_back(1);
  CHECK(parse_join_request(join).error().message() == "join.ports: has more than 64 items");
  join["slot"] = -1;
  CHECK_FALSE(parse_join_request(join));
  CHECK_FALSE(parse_join_request(Json(3)));

  Json ask = to_json(WitnessRequest{"default/digits", 0, 0, 1, 2, {0}});
  ask["members"] = Json::array({2, 1});
  CHECK(parse_witness_request(ask).error().message() ==
        "witness.members: must be slots in ascending order");
  ask["members"] = Json::array();
  CHECK(parse_witness_request(ask).error().message() == "witness.members: is required");
  ask["members"] = Json::array({1, 4});
  ask["fromMembers"] = Json::array({0, 1, 2});
  CHECK(parse_witness_request(ask).error().message() ==
        "witness.fromMembers: must have all of members");
  ask["fromMembers"] = Json::array({1, 0});
  CHECK(parse_witness_request(ask).error().message() ==
        "witness.fromMembers: must be slots in ascending order");
  // Workers of older releases do not tell.
  ask.erase("fromMembers");
  CHECK(parse_witness_request(ask)->from_members.empty());
  Json report = to_json(ProgressReport{});
  report["job"] = "default/digits";
  report["changes"] = Json::array({Json{{"epoch", 1}, {"kind", "Lost"}, {"slot", 5000}}});
  CHECK(parse_progress_report(report).error().message().find("progress.changes.slot") == 0);
}
