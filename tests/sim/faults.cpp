#include "tests/sim/faults.h"

#include <utility>

#include "common/json.h"

namespace muster::sim {
namespace {

constexpr std::size_t kOldLists = 8;
/// News that comes again is rare, so what can go wrong with it goes wrong often.
constexpr std::uint64_t kRareEvent = 15;
/// Likewise a Lease that is not there; one that is there is renewed every two seconds.
constexpr std::uint64_t kRareNewLease = 6, kRareLease = 300;

std::string without_query(const std::string& path) { return path.substr(0, path.find('?')); }

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  std::string part;
  for (const char c : without_query(path) + "/") {
    if (c != '/') {
      part += c;
    } else if (!part.empty()) {
      parts.push_back(std::move(part));
      part.clear();
    }
  }
  return parts;
}

/// The plural of the kind a path is about, with its group where two have the same.
std::string plural_of(const std::string& path) {
  const auto parts = parts_of(path);
  for (const auto& part : parts) {
    for (const char* plural :
         {"trainingjobs", "pods", "nodes", "services", "events", "leases", "poddisruptionbudgets",
          "trainingqueues", "priorityclasses", "persistentvolumes", "persistentvolumeclaims",
          "topologyconfigs", "hypernodes", "podgroups"}) {
      if (part == plural) return plural;
    }
    if (part == "topologies") return part + "." + parts[1];
    // Those of the cluster's scheduler are written, Kueue's are watched.
    if (part == "workloads") {
      return parts[1] == "scheduling.k8s.io" ? part : part + "." + parts[1];
    }
  }
  return "";
}

kube::HttpResponse refusal(int code, const std::string& reason, const std::string& message) {
  const Json body{{"kind", "Status"},   {"apiVersion", "v1"}, {"status", "Failure"},
                  {"message", message}, {"reason", reason},   {"code", code}};
  return {code, dump_json(body), std::nullopt};
}

/// Of so many writes one meets each of the three faults. What is seldom done goes wrong often.
std::uint64_t one_in(const std::string& write) {
  if (write == "delete trainingjobs") return 3;
  if (write == "create services") return 40;
  if (write == "delete poddisruptionbudgets") return 4;
  if (write == "patch poddisruptionbudgets") return 5;
  if (write == "create podgroups" || write == "create workloads") return 20;
  return write == "create poddisruptionbudgets" ? 12 : 60;
}

/// Loses lines, and is then told that history is gone: a missed event is seen by listing alone.
/// Says lines again, at once or much later, and the newer of two before the older.
class FaultyStream final : public kube::HttpStream {
 public:
  FaultyStream(std::unique_ptr<kube::HttpStream> real, Faults& faults, std::string plural)
      : real_(std::move(real)), faults_(faults), plural_(std::move(plural)) {}

  Result<std::optional<std::string>> next_line(milliseconds idle) override {
    if (held_) return std::exchange(held_, std::nullopt);
    if (missed_ && (!faults_.on || faults_.hit(4))) return gone();
    // Asked twice at least by who takes all that is there.
    if (faults_.hit(120)) return Error(ErrorCode::kUnavailable, "the stream was cut");
    if (faults_.hit(240)) return gone();
    auto line = real_->next_line(idle);
    if (line && *line && !missed_ && faults_.hit(25)) {
      missed_ = true;
      ++faults_.coverage.views[plural_][0];
      return Error(ErrorCode::kDeadlineExceeded, "no line");
    }
    // After a hole nothing more is told: later events would hide it.
    if (missed_ && line && *line) return Error(ErrorCode::kDeadlineExceeded, "no line");
    return line && *line ? disordered(**line) : line;
  }
  void close() override { real_->close(); }

 private:
  Result<std::optional<std::string>> gone() {
    ++faults_.coverage.views[plural_][2];
    missed_ = false;
    const Json status{{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}};
    return std::optional<std::string>(dump_json(Json{{"type", "ERROR"}, {"object", status}}));
  }
  /// The line, or another one and the line behind it.
  std::optional<std::string> disordered(const std::string& line) {
    const auto said = [&](std::size_t column, std::string now, std::string then) {
      ++faults_.coverage.views[plural_][column];
      held_ = std::move(then);
      return std::optional(std::move(now));
    };
    if (faults_.hit(40)) return said(3, line, line);
    if (!early_.empty() && faults_.hit(80)) return said(3, line, early_);
    if (early_.empty() || faults_.hit(8)) early_ = line;
    // Of most kinds there are seldom two lines at once.
    const bool is_busy = plural_ == "pods" || plural_ == "trainingjobs";
    if (!faults_.hit(is_busy ? 25 : 4)) return line;
    auto next = real_->next_line(milliseconds(0));
    return next && *next ? said(4, std::move(**next), line) : line;
  }

  std::unique_ptr<kube::HttpStream> real_;
  Faults& faults_;
  std::string plural_;
  bool missed_ = false;
  std::optional<std::string> held_;  ///< said next, whatever comes
  std::string early_;                ///< one that was said some time ago
};

}  // namespace

void Coverage::add(const Coverage& other) {
  for (const auto& [name, counts] : other.writes) {
    for (std::size_t i = 0; i < counts.size(); ++i) writes[name][i] += counts[i];
  }
  for (const auto& [name, counts] : other.views) {
    for (std::size_t i = 0; i < counts.size(); ++i) views[name][i] += counts[i];
  }
  requests += other.requests;
  conflicts_made += other.conflicts_made;
  refused += other.refused;
}

std::string write_name(const kube::HttpRequest& request) {
  const std::string verb = request.method == "POST"     ? "create"
                           : request.method == "PATCH"  ? "patch"
                           : request.method == "DELETE" ? "delete"
                                                        : "update";
  std::string name = verb + " " + plural_of(request.path);
  if (without_query(request.path).ends_with("/status")) name += "/status";
  return name;
}

Result<kube::HttpResponse> FaultyTransport::send(const kube::HttpRequest& request) {
  if (crashed_) return Error(ErrorCode::kUnavailable, "the operator is no more");
  ++faults_.coverage.requests;
  if (faults_.wrong.empty() && faults_.judge) faults_.wrong = faults_.judge(request);
  const std::string plural = plural_of(request.path);
  const bool is_new = request.method == "POST";
  if (plural == "events" && !is_new) return send_apart(request, faults_.event_rng, kRareEvent);
  if (plural == "leases") {
    return send_apart(request, faults_.lease_rng, is_new ? kRareNewLease : kRareLease);
  }
  if (faults_.hit(40)) return Error(ErrorCode::kUnavailable, "connect: connection refused");
  return request.method == "GET" ? read(request) : write(request);
}

Result<kube::HttpResponse> FaultyTransport::read(const kube::HttpRequest& request) {
  const std::string where = without_query(request.path);
  const bool is_list = request.path.find("limit=") != std::string::npos;
  if (faults_.not_installed.contains(plural_of(where))) {
    return refusal(404, "NotFound", "the server could not find the requested resource");
  }
  auto& old = faults_.old_lists[where];
  if (is_list && !old.empty() && faults_.hit(3)) {
    ++faults_.coverage.views[plural_of(where)][1];
    return kube::HttpResponse{200, old[faults_.rng.below(old.size())], std::nullopt};
  }
  auto answer = real_.send(request);
  if (is_list && answer && answer->code == 200) {
    if (old.size() == kOldLists) old.erase(old.begin());
    old.push_back(answer->body);
  }
  return answer;
}

/// Of news that comes again and of Leases. They have dice of their own, so that what else befalls a
/// seed's jobs does not hang on how often something was said about them, or who leads was looked
/// at.
Result<kube::HttpResponse> FaultyTransport::send_apart(const kube::HttpRequest& request, Rng& dice,
                                                       std::uint64_t rare) {
  const auto hit = [&](std::uint64_t one_in) { return faults_.on && dice.below(one_in) == 0; };
  if (hit(40)) return Error(ErrorCode::kUnavailable, "connect: connection refused");
  if (request.method == "GET") return real_.send(request);
  auto& counts = faults_.coverage.writes[write_name(request)];
  if (hit(rare)) {
    ++counts[0];
    return crash();
  }
  ++writes_;
  auto answer = real_.send(request);
  if (hit(rare)) {
    ++counts[1];
    return crash();
  }
  if (hit(rare)) {
    ++counts[2];
    return Error(ErrorCode::kDeadlineExceeded, "the reply was lost");
  }
  return answer;
}

Result<kube::HttpResponse> FaultyTransport::crash() {
  crashed_ = true;
  return Error(ErrorCode::kUnavailable, "the operator is no more");
}

Result<kube::HttpResponse> FaultyTransport::write(const kube::HttpRequest& request) {
  const std::string name = write_name(request);
  auto& counts = faults_.coverage.writes[name];
  if (faults_.meanwhile && faults_.hit(12)) faults_.meanwhile();
  const std::uint64_t rare = one_in(name);
  if (faults_.hit(rare)) {
    ++counts[0];
    return crash();
  }
  if (name == "create pods") {
    for (const auto& job : faults_.without_quota) {
      if (request.body.find("\"muster.dev/job-name\":\"" + job + "\"") == std::string::npos)
        continue;
      ++faults_.coverage.refused;
      return refusal(403, "Forbidden",
                     "pods is forbidden: exceeded quota: team, requested: pods=1");
    }
  }
  if (faults_.hit(80)) return refusal(429, "TooManyRequests", "slow down");
  if (faults_.hit(80)) return refusal(503, "ServiceUnavailable", "etcd has no leader");
  if (name == "patch trainingjobs/status" && faults_.foreign_write && faults_.hit(15)) {
    ++faults_.coverage.conflicts_made;
    faults_.foreign_write(request.path);
  }
  ++writes_;
  auto answer = real_.send(request);
  if (faults_.hit(rare - 1)) {
    ++counts[1];
    return crash();
  }
  if (faults_.hit(rare - 2)) {
    ++counts[2];
    return Error(ErrorCode::kDeadlineExceeded, "the reply was lost");
  }
  return answer;
}

Result<kube::HttpTransport::Stream> FaultyTransport::open_stream(const kube::HttpRequest& request) {
  if (crashed_) return Error(ErrorCode::kUnavailable, "the operator is no more");
  if (faults_.hit(10)) return Error(ErrorCode::kUnavailable, "connect: connection refused");
  if (faults_.not_installed.contains(plural_of(request.path))) {
    return Stream{refusal(404, "NotFound", "the server could not find the requested resource"),
                  nullptr};
  }
  const bool is_list = request.path.find("sendInitialEvents") != std::string::npos;
  if (is_list && !faults_.streams_lists) {
    return Stream{refusal(422, "Invalid", "sendInitialEvents: Forbidden"), nullptr};
  }
  auto opened = real_.open_stream(request);
  if (opened && opened->stream) {
    opened->stream =
        std::make_unique<FaultyStream>(std::move(opened->stream), faults_, plural_of(request.path));
  }
  return opened;
}

}  // namespace muster::sim
