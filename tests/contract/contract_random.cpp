// Random operations whose answers do not depend on which server gives them. The program prints them
// as lines "transcript: ..."; tests/cluster/contract_test.py compares those of two servers.
#include <array>
#include <cstdio>
#include <map>

#include "common/rng.h"
#include "tests/contract/api_contract.h"
#include "tests/test_main.h"

namespace muster::contract_test {
namespace {

constexpr int kRounds = 8;
constexpr int kOperations = 60;

class Session {
 public:
  Session(std::uint64_t seed, std::string namespace_name)
      : rng_(seed), namespace_(std::move(namespace_name)) {}

  void step() {
    const bool is_job = rng_.below(3) != 0;
    const std::string name = pick({"a", "b", "c"});
    const std::string path = is_job ? jobs_path(namespace_, name) : pods_path(namespace_, name);
    const std::string all = is_job ? jobs_path(namespace_) : pods_path(namespace_);
    const std::string what = (is_job ? "job " : "pod ") + name;
    switch (rng_.below(9)) {
      case 0:
      case 1:
        return tell("create " + what, path, call("POST", all, is_job ? a_job(name) : a_pod(name)));
      case 2:
        return tell("get " + what, path, call("GET", path));
      case 3:
        return tell("label " + what, path, patch(path, labels(path)));
      case 4:
        return tell("spec " + what, path, patch(path, spec_patch(is_job)));
      case 5:
        return tell("status " + what, path, patch(path + "/status", status_patch(path)));
      case 6:
        return replace(what, path);
      case 7:
        return remove(what, path);
      default:
        return list((is_job ? "jobs" : "pods"), all);
    }
  }

 private:
  struct Seen {
    std::string version, version_before, uid;
  };

  std::string pick(std::initializer_list<const char*> words) {
    return *(words.begin() + rng_.below(words.size()));
  }
  bool one_in(std::uint64_t n) { return rng_.below(n) == 0; }

  Json a_job(const std::string& name) {
    Json wish = job(name);
    if (one_in(3)) wish["metadata"]["labels"] = {{"colour", pick({"red", "blue"})}};
    if (one_in(4)) wish["spec"]["suspend"] = true;
    if (one_in(5)) wish["spec"]["unknown"] = 1;
    if (one_in(6)) wish["spec"]["worker"]["count"] = 0;
    if (one_in(8)) wish["spec"].erase("worker");
    if (one_in(8)) wish["status"] = {{"phase", "Complete"}};
    return wish;
  }
  Json a_pod(const std::string& name) {
    Json wish = pod(name);
    if (one_in(3)) wish["metadata"]["labels"] = {{"colour", pick({"red", "blue"})}};
    if (one_in(6)) wish["metadata"]["labels"] = {{"colour", "no colour"}};
    if (one_in(8)) wish["spec"]["containers"] = Json::array();
    return wish;
  }
  /// Sometimes under the version that was seen last, or the one before.
  Json under_version(Json body, const std::string& path) {
    const Seen& seen = seen_[path];
    if (one_in(3) && !seen.version.empty()) {
      body["metadata"]["resourceVersion"] =
          one_in(2) && !seen.version_before.empty() ? seen.version_before : seen.version;
    }
    return body;
  }
  Json labels(const std::string& path) {
    Json value = one_in(3) ? Json(nullptr) : Json(pick({"red", "blue", "not a value"}));
    return under_version({{"metadata", {{"labels", {{"colour", value}}}}}}, path);
  }
  Json spec_patch(bool is_job) {
    if (!is_job) return {{"spec", {{"restartPolicy", "Always"}}}};
    switch (rng_.below(4)) {
      case 0:
        return {{"spec", {{"suspend", one_in(2)}}}};
      case 1:
        return {{"spec", {{"worker", {{"count", rng_.below(3)}}}}}};
      case 2:
        return {{"spec", {{"restart", nullptr}}}};
      default:
        return {{"spec", {{"activeDeadlineSeconds", one_in(2) ? Json(60) : Json("soon")}}}};
    }
  }
  Json status_patch(const std::string& path) {
    return under_version({{"status", {{"phase", pick({"Running", "Failed"})}}},
                          {"metadata", {{"labels", {{"ignored", "x"}}}}},
                          {"spec", {{"suspend", true}}}},
                         path);
  }

  void replace(const std::string& what, const std::string& path) {
    Json body = call("GET", path).body;
    if (body["kind"] == "Status") return;
    body["metadata"]["labels"]["colour"] = pick({"red", "green"});
    if (one_in(3) && !seen_[path].version_before.empty()) {
      body["metadata"]["resourceVersion"] = seen_[path].version_before;
    }
    tell("replace " + what, path, call("PUT", path, body));
  }
  void remove(const std::string& what, const std::string& path) {
    Json options = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}};
    if (one_in(3)) options["preconditions"] = {{"uid", "11111111-1111-4111-8111-111111111111"}};
    if (one_in(3) && !seen_[path].uid.empty())
      options["preconditions"] = {{"uid", seen_[path].uid}};
    const auto answer = call("DELETE", path, options);
    say("delete " + what + " " + std::to_string(answer.code) + " " +
        (answer.code >= 400 ? answer.reason() : ""));
  }
  void list(const std::string& what, const std::string& all) {
    const std::string selector = pick({"", "?labelSelector=colour%3Dred", "?labelSelector=colour"});
    const auto answer = call("GET", all + selector);
    std::string names;
    for (const Json& item : answer.body["items"]) names += " " + item["metadata"]["name"].dump();
    say("list " + what + selector + names);
  }

  void tell(const std::string& what, const std::string& path, const Answer& answer) {
    std::string line = what + " " + std::to_string(answer.code);
    if (answer.code >= 400) return say(line + " " + answer.reason());
    Seen& seen = seen_[path];
    const std::string version = answer.meta("resourceVersion"), uid = answer.meta("uid");
    line += uid == seen.uid ? "" : " new";
    line += version == seen.version ? " same" : " changed";
    if (version != seen.version) {
      seen.version_before = uid == seen.uid ? seen.version : "";
      seen.version = version;
    }
    seen.uid = uid;
    const Json& meta = answer.body["metadata"];
    line += " labels " + meta.value("labels", Json::object()).dump();
    if (answer.body["kind"] == "TrainingJob") {
      line += " generation " + answer.meta("generation") + " spec " + answer.body["spec"].dump() +
              " status " + answer.body.value("status", Json()).dump();
    } else {
      line += " phase " + answer.body["status"]["phase"].dump();
    }
    say(line);
  }
  static void say(const std::string& line) { std::printf("transcript: %s\n", line.c_str()); }

  Rng rng_;
  const std::string namespace_;
  std::map<std::string, Seen> seen_;
};

}  // namespace

TEST_CASE("random operations are answered") {
  for (int round = 0; round < kRounds; ++round) {
    Session session(test::seed() * 1000 + static_cast<std::uint64_t>(round), new_namespace());
    for (int i = 0; i < kOperations; ++i) session.step();
  }
}

}  // namespace muster::contract_test
