#include "tests/sim/simulation.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "common/contract.h"
#include "operator/runtime/job_key.h"
#include "tests/restricted.h"
#include "tests/sim/cluster.h"
#include "tests/sim/process.h"

namespace muster::sim {
namespace {

constexpr int kEvents = 300;
constexpr int kCalmRounds = 240;
constexpr int kMaxTurns = 4000;
constexpr int kDrainRounds = 100;
/// After so many, whatever an operator waits for to be seen was seen or is given up.
constexpr int kSeeingRounds = 24;
/// After so many, whatever an operator has written itself was seen or is given up.
constexpr int kUnseenRounds = 8;
/// Whoever sees that the last pod of a gang runs says so within that time.
constexpr seconds kShownWithin{1};
constexpr seconds kResync{300};
/// While time passes those who elect look after the Lease so often.
constexpr seconds kLook{2};
/// So long after all trouble somebody leads: a Lease lasts 15 s from when it was seen.
constexpr seconds kLeaderMost{40};

/// Of one job in the time after all trouble: it is spared for five minutes each time.
constexpr int kCalmPreemptionsMost = 1 + kCalmRounds * 5 / 300;

/// What was last seen of a job.
struct Before {
  std::int64_t epoch = 0, observed = 0, checkpoint = -1;
  int restarts = 0, replacements = 0, target = 0;
  std::string ended;
  bool suspended = false;
  std::set<std::pair<int, int>> placed;  ///< slot and attempt
  std::set<int> members;                 ///< slots of those who trained
  api::TakenBack taken_back;
};

/// All that ever was decided, or may have been, for one job.
struct Given {
  std::set<std::string> pods;  ///< names, by slot and attempt
  int most = 0;                ///< places at once
};

class Simulation {
 public:
  explicit Simulation(std::uint64_t seed)
      : moves_least_(seed % 3 == 0),
        drains_(seed % 4 == 1),
        manner_(seed),
        rng_(seed),
        aside_rng_(~seed ^ 2),
        faults_(seed + 1),
        server_({&clock_, seed}),
        cluster_(seed + 2, drains_, clock_, server_) {
    faults_.meanwhile = [this] { cluster_.event(); };
    faults_.foreign_write = [this](const std::string& path) { cluster_.foreign_write(path); };
    faults_.judge = [this](const kube::HttpRequest& request) { return judge(request); };
    faults_.without_quota.insert("poor");
    faults_.not_installed = cluster_.not_installed();
    manner_.sees_topologies = cluster_.has_racks();
    elects_now_ = manner_.elects;
    start();
  }

  SeedResult run() {
    check();
    for (int i = 0; i < kEvents && ok(); ++i) {
      event();
      event_aside();
      ++result_.events;
      check();
    }
    if (ok()) calm();
    if (ok()) rest();
    if (ok()) check_secrets();
    result_.wrong = wrong_.empty() ? faults_.wrong : wrong_;
    result_.coverage = faults_.coverage;
    for (const auto& [uid, before] : seen_) result_.restarts += before.restarts;
    result_.joins = cluster_.joins();
    result_.emptied = cluster_.emptied();
    result_.kept = cluster_.kept();
    result_.lost = cluster_.lost();
    result_.secrets = secrets_;
    result_.required = judged_.required;
    result_.required_joins = judged_.joined;
    return result_;
  }

 private:
  bool ok() const { return wrong_.empty() && faults_.wrong.empty(); }
  void say(std::string what) {
    if (wrong_.empty()) wrong_ = std::move(what);
  }

  // ---- Operators

  void start() {
    const std::string identity = "operator-" + std::to_string(++result_.operators);
    processes_.push_back(
        std::make_unique<Process>(clock_, server_, faults_, rng_(), manner_, identity, judged_));
    // One that begins when all is well has a clock that is right.
    if (!faults_.on) processes_.back()->clock.heal();
  }
  Process& any() { return *processes_[rng_.below(processes_.size())]; }
  /// To whom workers speak.
  Process& listener() {
    Process& one = any();
    if (!elects_now_) return one;
    for (auto& process : processes_) {
      if (process->electing->leads()) return *process;
    }
    return one;
  }
  void bury() {
    for (const auto& process : processes_) {
      if (process->is_over()) search_metrics(*process);
    }
    std::erase_if(processes_, [](const auto& process) { return process->is_over(); });
    if (processes_.empty()) start();
  }

  // ---- Who leads

  /// Each looks after the Lease. Who leads is told so; who led and has lost it ends.
  void elect() {
    if (!elects_now_) return;
    for (auto& process : processes_) {
      Electing& one = *process->electing;
      if (faults_.on && aside_rng_.below(one.hangs ? 8 : 60) == 0) one.hangs = !one.hangs;
      if (one.step()) (void)process->op.mailbox.try_post(runtime::Lead{});
    }
    bury();
    const auto leaders =
        std::count_if(processes_.begin(), processes_.end(),
                      [](const auto& process) { return process->electing->leads(); });
    result_.elected = std::max<std::int64_t>(result_.elected, leaders);
    if (leaders > 1 && manner_.has_right_clocks) say("two lead, and no clock is wrong");
  }
  /// Time passes, and those who elect do not sleep meanwhile.
  void pass(nanoseconds time) {
    while (elects_now_ && time > kLook) {
      clock_.advance(kLook);
      time -= kLook;
      elect();
    }
    clock_.advance(time);
    elect();
  }
  /// Somebody writes the Lease, or deletes it.
  void lease_event() {
    kube::ApiClient& user = cluster_.user();
    const auto write = [&](const Json& patch) {
      (void)user.merge_patch(api::Kind::kLease, lease_key(), "", patch);
    };
    switch (aside_rng_.below(manner_.has_right_clocks ? 1 : 4)) {
      case 0:
        return write({{"metadata", {{"annotations", {{"example.com/seen", "yes"}}}}}});
      case 1:
        return (void)user.remove(api::Kind::kLease, lease_key(), {});
      case 2:
        return write({{"spec", {{"holderIdentity", "somebody"}}}});
      default:
        return write({{"spec", {{"holderIdentity", ""}}}});
    }
  }
  /// What is drawn by dice of its own, in the worlds that have it.
  void event_aside() {
    if (manner_.sees_kueue && aside_rng_.below(12) == 0) cluster_.kueue_event();
    if (!manner_.elects) return;
    if (aside_rng_.below(40) == 0) lease_event();
    elect();
    // While nobody leads little happens but that time passes.
    if (is_nobody_leading()) pass(kLook);
  }
  bool is_nobody_leading() const {
    return std::none_of(processes_.begin(), processes_.end(),
                        [](const auto& process) { return process->electing->leads(); });
  }
  /// When nothing is amiss any more one of them leads before long, and leads on alone.
  void elect_for_good() {
    for (auto& process : processes_) process->electing->hangs = false;
    const MonoTime end = clock_.mono_now() + kLeaderMost;
    while (is_nobody_leading()) {
      if (clock_.mono_now() >= end) return say("nobody leads, and nothing is amiss");
      pass(kLook);
    }
    // Of two that lead still one has lost at its next look.
    const auto leader = std::find_if(processes_.begin(), processes_.end(), [](const auto& process) {
      return process->electing->leads();
    });
    std::iter_swap(processes_.begin(), leader);
    processes_.resize(1);
    processes_[0]->electing->lead_on();
    elects_now_ = false;
  }

  // ---- Their turns

  /// One thing of what could happen next in one of them.
  void turn() {
    OneOperator& op = any().op;
    const std::size_t which = rng_.below(op.pumps.size() + 2);
    if (which < op.pumps.size()) {
      (void)op.pumps[which]->step(milliseconds(0));
    } else if (which == op.pumps.size()) {
      op.next = op.loop->step();
    } else {
      (void)op.executor.work();
    }
    bury();
  }
  void settle(Process& process) {
    OneOperator& op = process.op;
    bool busy = true;
    for (int turns = 0; busy && turns < kMaxTurns; ++turns) {
      busy = false;
      for (auto& pump : op.pumps) {
        while (pump->step(milliseconds(0)) == kube::WatchPump::Did::kWork) {
          busy = true;
          if (++turns > kMaxTurns) break;
        }
      }
      op.next = op.loop->step();
      if (op.executor.work()) busy = true;
      if (op.next <= process.clock.mono_now()) busy = true;
    }
    if (busy) say("the operator never comes to rest");
  }
  void settle() {
    for (std::size_t i = 0; i < processes_.size(); ++i) settle(*processes_[i]);
  }

  void event() {
    if (moves_least_ && rng_.below(6) == 0) {
      cluster_.least_event();
      settle(any());
      return bury();
    }
    if (drains_ && rng_.below(6) == 0) {
      cluster_.drain_event();
      for (int i = 0; i < 6; ++i) turn();
      // A drain takes its time, and those who train speak meanwhile.
      if (rng_.below(2) == 0) post_reports(listener());
      if (rng_.below(3) == 0) pass(seconds(rng_.below(16)));
      return;
    }
    if (cluster_.has_racks() && rng_.below(5) == 0) {
      cluster_.racks_event();
      faults_.not_installed = cluster_.not_installed();
      for (int i = 0; i < 6; ++i) turn();
      return;
    }
    switch (rng_.below(30)) {
      case 0:
        if (rng_.below(3) == 0) processes_.erase(processes_.begin());
        bury();
        return;
      case 1:
        // Two that both think that they lead: the worst that any lease can give.
        if (processes_.size() < 2 && rng_.below(2) == 0) start();
        if (processes_.size() > 1 && rng_.below(3) == 0) processes_.pop_back();
        return;
      case 2:
        if (rng_.below(3) == 0) any().clock.leap(rng_);
        return;
      case 3:
      case 4:
      case 5: {
        const std::uint64_t luck = rng_.below(60);
        const std::uint64_t most = luck == 0 ? 600'000 : luck < 8 ? 60'000 : 4'000;
        return pass(milliseconds(rng_.below(most)));
      }
      case 6:
        return cluster_.user_event();
      case 7:
        if (rng_.below(5) == 0) server_.compact();
        return;
      case 8:
      case 9:
        (void)listener().op.mailbox.try_post(cluster_.report());
        post_reports(listener());
        ask_witness();
        return;
      case 10:
      case 11:
      case 12:
      case 13:
      case 14:
      case 15:
      case 16:
        return cluster_.event();
      default:
        for (int i = 0; i < 6; ++i) turn();
    }
  }

  void post_reports(Process& process) {
    for (auto& report : cluster_.honest_reports()) {
      (void)process.op.mailbox.try_post(std::move(report));
    }
  }

  /// Of two sides of one membership the witness says yes to one.
  void ask_witness() {
    auto asked = cluster_.question();
    if (!asked) return;
    ++result_.questions;
    auto answered = std::make_shared<bool>(false);
    const auto on_answer = [this, answered, uid = asked->first,
                            request = asked->second](const Result<WitnessResponse>& said) {
      if (std::exchange(*answered, true)) say("the witness answered twice");
      if (!said || !said->granted || cluster_.was_forged(uid)) return;
      ++result_.granted;
      const auto [first, is_new] = granted_.try_emplace({uid, request.epoch}, request.members);
      if (!is_new && first->second != request.members) say("the witness said yes to both sides");
      for (const auto& job : cluster_.jobs()) {
        const bool stored =
            job.meta.uid != uid ||
            (job.status.witness.has_value() && job.status.witness->epoch >= request.next_epoch);
        // A gang that starts anew meanwhile has forgotten it, and has an epoch beyond.
        if (!stored && job.status.membership_epoch <= request.next_epoch) {
          say("the witness said yes before it was stored");
        }
      }
      cluster_.go_on(uid, request);
    };
    (void)listener().op.mailbox.try_post(runtime::WitnessPost{asked->second, on_answer});
  }

  // ---- What must hold of every request

  std::string judge(const kube::HttpRequest& request) {
    if (request.method == "GET") return "";
    const std::string name = write_name(request);
    static const std::set<std::string> kAllowed{"create pods",
                                                "create services",
                                                "create events",
                                                "patch events",
                                                "delete pods",
                                                "patch trainingjobs/status",
                                                "delete trainingjobs",
                                                "patch trainingqueues/status",
                                                "create poddisruptionbudgets",
                                                "patch poddisruptionbudgets",
                                                "delete poddisruptionbudgets",
                                                "create podgroups",
                                                "create workloads",
                                                "create leases",
                                                "patch leases"};
    if (!kAllowed.contains(name)) return name + " is nothing an operator may do";
    for (const auto& secret : secrets_) {
      if (request.body.find(secret) != std::string::npos) return name + " holds a secret";
    }
    auto body = parse_json(request.body);
    if (!body) return name + " has no body";
    static const Json::json_pointer kFinalizers("/metadata/finalizers");
    if (body->contains(kFinalizers)) return name + " keeps an object from going";
    if (name == "create pods") return judge_pod(*body);
    if (name.ends_with("poddisruptionbudgets")) return judge_budget(request, *body);
    if (name == "create podgroups") return judge_group(*body);
    if (name == "patch leases" && !(*body)["metadata"].contains("resourceVersion")) {
      return "the Lease is written blindly";
    }
    if (name == "patch events") return judge_repeat(*body);
    if (name == "delete pods") return judge_delete(request, *body);
    if (name == "delete trainingjobs") {
      const Json& conditions = (*body)["preconditions"];
      if (!conditions.is_object() || !conditions.contains("uid")) return name + " without a uid";
      if (!conditions.contains("resourceVersion")) return name + " whatever it is by now";
      return judge_end(conditions);
    }
    if (name == "patch trainingjobs/status" || name == "patch trainingqueues/status") {
      const Json& meta = (*body)["metadata"];
      if (!meta.contains("uid") || !meta.contains("resourceVersion")) {
        return name + " without uid and resourceVersion";
      }
      if (body->size() != 2) return name + " writes more than status";
    }
    if (name != "patch trainingjobs/status") return "";
    note_places(request, *body);
    return judge_take_back(*body);
  }

  /// Pods may follow from these places, should they be stored.
  void note_places(const kube::HttpRequest& request, const Json& body) {
    const Json places = test::at_or_null(test::at_or_null(body, "status"), "placement");
    if (!places.is_array()) return;
    api::TrainingJob job;
    const std::string path = request.path.substr(0, request.path.rfind('/'));
    job.meta.name = path.substr(path.rfind('/') + 1);
    job.meta.uid = body["metadata"].value("uid", "");
    Given& given = given_[job.meta.uid];
    given.most = std::max(given.most, static_cast<int>(places.size()));
    for (const Json& one : places) {
      given.pods.insert(api::pod_name(job, one.value("slot", -1), one.value("attempt", -1)));
    }
  }

  /// The job of that uid if it is still as it was read; none whose status was forged.
  std::optional<api::TrainingJob> job_as_read(const Json& meta) {
    for (const auto& job : cluster_.jobs()) {
      const bool is_it = meta.value("uid", "") == job.meta.uid &&
                         meta.value("resourceVersion", "") == job.meta.resource_version;
      if (is_it && !cluster_.was_forged(job.meta.uid)) return job;
    }
    return std::nullopt;
  }

  /// Only who is over goes, and wants to.
  std::string judge_end(const Json& conditions) {
    const auto job = job_as_read(conditions);
    if (!job) return "";
    if (!job->status.finished()) return "job " + job->meta.name + " is deleted, and not over";
    if (!job->spec.ttl_seconds_after_finished) return "job " + job->meta.name + " was to stay";
    return "";
  }

  /// Who shrinks keeps its least, and fewer than it had; who is preempted leaves as a whole.
  std::string judge_take_back(const Json& body) {
    const Json& status = body["status"];
    if (!status.contains("takenBack")) return "";
    const auto job = job_as_read(body["metadata"]);
    if (!job) return "";
    const api::TakenBack& before = job->status.taken_back;
    const std::size_t had = job->status.placement.size();
    const std::size_t keeps = status.contains("placement") ? status["placement"].size() : had;
    const Json& taken = status["takenBack"];
    if (taken.value("preemptions", before.preemptions) > before.preemptions) {
      if (had == 0 || keeps > 0) return "job " + job->meta.name + " is preempted in part";
    }
    if (taken.value("shrinks", before.shrinks) > before.shrinks) {
      const bool is_right = keeps < had && static_cast<int>(keeps) >= job->spec.worker.min;
      if (!is_right) return "job " + job->meta.name + " shrinks to " + std::to_string(keeps);
    }
    return "";
  }

  /// Of an event that is there only its count moves, from the version that was read.
  std::string judge_repeat(const Json& body) {
    const Json& series = body["series"];
    const bool is_repeat = body.size() == 4 && body["metadata"].size() == 1 &&
                           body["metadata"].contains("resourceVersion") && series.size() == 2 &&
                           series.contains("lastObservedTime") && series["count"] >= 2 &&
                           body["count"] == series["count"] && body.contains("lastTimestamp");
    return is_repeat ? "" : "patch events does more than count";
  }

  /// A group is of a job, of no more than a gang, and made when its Workload is there.
  std::string judge_group(const Json& body) {
    const Json meta = test::at_or_null(body, "metadata");
    const std::string name = meta.value("name", "");
    std::string uid;
    for (const Json& owner : test::at_or_null(meta, "ownerReferences")) {
      if (owner.value("controller", false)) uid = owner.value("uid", "");
    }
    for (const auto& job : cluster_.jobs()) {
      if (job.meta.uid != uid || cluster_.was_forged(uid)) continue;
      const Json policy = test::at_or_null(test::at_or_null(body, "spec"), "schedulingPolicy");
      const Json least = test::at_or_null(test::at_or_null(policy, "gang"), "minCount");
      const bool is_gang = least.is_number_integer() && least >= 2 && least <= kNodeCpus;
      if (!is_gang) return "group " + name + " is of no gang";
      const auto workload = cluster_.user().get(api::Kind::kWorkload, {kNamespace, name});
      if (!workload) return "group " + name + " is made before its Workload";
      return "";
    }
    return uid.empty() ? "group " + name + " is of no job" : "";
  }

  std::string judge_budget(const kube::HttpRequest& request, const Json& body) {
    const Json meta = test::at_or_null(body, "metadata");
    const Json least = test::at_or_null(test::at_or_null(body, "spec"), "minAvailable");
    if (request.method == "POST") {
      for (const Json& owner : test::at_or_null(meta, "ownerReferences")) {
        if (owner.value("controller", false)) return judge_least(owner.value("uid", ""), least);
      }
      return "a budget of no job";
    }
    if (request.method == "DELETE") {
      const Json conditions = test::at_or_null(body, "preconditions");
      return test::at_or_null(conditions, "uid").is_string()
                 ? ""
                 : "a budget is deleted without its uid";
    }
    if (!meta.contains("resourceVersion")) return "a budget is written blindly";
    for (const auto& [name, uid] : cluster_.budgets()) {
      if (request.path.ends_with("/" + name)) return judge_least(uid, least);
    }
    return "";
  }

  /// An operator that sees late writes what was right before. Those who run and do not train yet
  /// are counted on top of that, at most all of a gang.
  std::string judge_least(const std::string& uid, const Json& least) {
    std::set<Json> ever = leasts_[uid];
    for (const auto& job : cluster_.jobs()) {
      if (job.meta.uid == uid) ever.insert(job.spec.worker.min);
    }
    if (ever.empty()) return "a budget of no job";
    if (!least.is_number_integer()) return "a budget without a number";
    const bool is_right = std::any_of(ever.begin(), ever.end(), [&](const Json& one) {
      return one <= least && least.get<int>() <= one.get<int>() + kNodeCpus;
    });
    return is_right ? "" : "a budget of another number than spec's";
  }

  std::string judge_pod(const Json& body) {
    const auto pod = api::parse_pod(body);
    if (!pod) return "a pod that cannot be read: " + pod.error().message();
    const auto findings = test::restricted_findings(test::at_or_null(body, "spec"));
    if (!findings.empty()) return "pod " + pod->meta.name + " is not restricted: " + findings[0];
    if (mounts_disk(body) && !pod->required_node.empty() && pod->required_node != kDiskNode) {
      return "pod " + pod->meta.name + " cannot reach its volume";
    }
    const auto* owner = pod->meta.controller();
    if (owner == nullptr) return "pod " + pod->meta.name + " has no owner";
    // Nor for places that somebody else wrote into the status.
    if (pod->slot() >= largest_[owner->uid]) {
      return "pod " + pod->meta.name + " is beyond spec.worker.max";
    }
    for (const auto& job : cluster_.jobs()) {
      if (job.meta.uid != owner->uid || cluster_.was_forged(owner->uid)) continue;
      if (pod->attempt() >= job.status.membership_epoch) {
        return "pod " + pod->meta.name + " was made before its attempt was decided";
      }
    }
    return "";
  }

  static bool mounts_disk(const Json& pod) {
    const Json volumes = test::at_or_null(test::at_or_null(pod, "spec"), "volumes");
    return std::any_of(volumes.begin(), volumes.end(), [](const Json& volume) {
      return test::at_or_null(test::at_or_null(volume, "persistentVolumeClaim"), "claimName") ==
             kDisk;
    });
  }

  std::string judge_delete(const kube::HttpRequest& request, const Json& body) {
    const auto conditions = body.find("preconditions");
    if (conditions == body.end() || !conditions->contains("uid")) {
      return "a pod is deleted without its uid";
    }
    for (const auto& pod : cluster_.pods()) {
      if (Json(pod.meta.uid) != (*conditions)["uid"]) continue;
      const auto* owner = pod.meta.controller();
      if (owner == nullptr || !jobs_ever_.contains(owner->uid)) {
        return "a stranger's pod is deleted: " + request.path;
      }
      for (const auto& job : cluster_.jobs()) {
        const bool current = job.meta.uid == owner->uid && !job.status.finished() &&
                             !cluster_.was_forged(owner->uid) && is_member(pod, job);
        if (current) return "a pod of the current attempt is deleted: " + pod.meta.name;
      }
    }
    return "";
  }

  static bool is_of(const api::Pod& pod, const api::TrainingJob& job) {
    const auto* owner = pod.meta.controller();
    return owner != nullptr && owner->uid == job.meta.uid;
  }
  /// Neither ended nor asked to leave.
  static bool is_live(const api::Pod& pod, const api::TrainingJob& job) {
    return is_of(pod, job) && !pod.ended() && !pod.meta.deletion_time;
  }

  static bool is_member(const api::Pod& pod, const api::TrainingJob& job) {
    return std::any_of(
        job.status.placement.begin(), job.status.placement.end(), [&](const auto& placement) {
          return pod.meta.name == api::pod_name(job, placement.slot, placement.attempt);
        });
  }

  // ---- What must hold after every event

  void check() {
    if (server_.resource_version() == checked_) return;
    checked_ = server_.resource_version();
    const auto pods = cluster_.pods();
    for (const auto& job : cluster_.jobs()) {
      if (jobs_ever_.insert(job.meta.uid).second) {
        const auto key = runtime::job_key(kMasterKey, job.meta.uid);
        if (key) secrets_.push_back(*key);
      }
      leasts_[job.meta.uid].insert(job.spec.worker.min);
      int& largest = largest_[job.meta.uid];
      largest = std::max(largest, job.spec.worker.max);
      check_job(job);
      check_pods(job, pods);
    }
  }

  void check_job(const api::TrainingJob& job) {
    const auto& status = job.status;
    Before& before = seen_[job.meta.uid];
    const std::string who = "job " + job.meta.name + ": ";
    const std::int64_t step = status.checkpoint ? status.checkpoint->step : -1;
    std::string ended = status.is_true("Complete") ? "Complete" : "";
    if (status.is_true("Failed")) ended += "Failed";
    if (!cluster_.was_forged(job.meta.uid)) {
      if (status.membership_epoch < before.epoch) say(who + "its epoch went back");
      if (status.restarts < before.restarts) say(who + "its restarts went back");
      if (status.observed_generation < before.observed) say(who + "observedGeneration went back");
      if (step < before.checkpoint) say(who + "its checkpoint went back");
      if (!before.ended.empty() && ended != before.ended) say(who + "it did not stay ended");
      if (ended == "CompleteFailed") say(who + "it is complete and failed");
      for (const auto& placement : status.placement) {
        if (placement.attempt >= status.membership_epoch) say(who + "an attempt of no epoch");
      }
      // Only those who train, or trained until now, may be fewer than decided on.
      const bool whole = status.placement.empty() || status.is_true("Running") ||
                         !before.members.empty() || status.finished() || job.spec.suspend ||
                         static_cast<int>(status.placement.size()) == status.target_workers;
      if (!whole) {
        say(who + "a part of a gang has places: " + dump_json(api::status_to_json(status)));
      }
      check_least(job, before);
      check_most(job);
      check_spare(job);
      check_placement(job, before);
      check_taken_back(job, before);
    }
    result_.replacements += std::max(0, status.replacements - before.replacements);
    result_.resizes += before.target > 0 && status.target_workers != before.target ? 1 : 0;
    count_spares(status, before);
    before = {status.membership_epoch,
              status.observed_generation,
              step,
              status.restarts,
              status.replacements,
              status.target_workers,
              ended,
              job.spec.suspend,
              placed(status),
              members(status),
              status.taken_back};
  }

  /// None is placed with fewer than min, and nobody who trains is sent away from so few. There may
  /// be fewer where min was raised under them, or where one that died has no new place yet.
  void check_least(const api::TrainingJob& job, const Before& before) {
    const std::size_t now = job.status.placement.size();
    const auto least = static_cast<std::size_t>(std::max(1, job.spec.worker.min));
    const bool goes_on = now > 0 && !job.status.finished() && !job.spec.suspend;
    if (!goes_on || now >= least) return;
    std::set<int> slots;
    for (const auto& placement : job.status.placement) slots.insert(placement.slot);
    const bool all_stay =
        std::includes(slots.begin(), slots.end(), before.members.begin(), before.members.end());
    if (before.placed.empty() || !all_stay) {
      say("job " + job.meta.name + " has " + std::to_string(now) + " places of at least " +
          std::to_string(least));
    }
  }

  /// None has more places, a spare's among them, or a larger size than its spec ever allowed.
  void check_most(const api::TrainingJob& job) {
    const int most = largest_[job.meta.uid];
    const auto& places = job.status.placement;
    const bool is_beyond = std::any_of(places.begin(), places.end(),
                                       [&](const auto& place) { return place.slot >= most; });
    if (!is_beyond && job.status.target_workers <= most) return;
    say("job " + job.meta.name + " is larger than the " + std::to_string(most) +
        " of its spec.worker.max: " + dump_json(api::status_to_json(job.status)));
  }

  /// Beyond its size a gang has one worker at most, and that where nodes are emptied.
  void check_spare(const api::TrainingJob& job) {
    const auto size = static_cast<std::size_t>(job.status.target_workers);
    if (job.status.placement.size() <= size) return;
    const std::string who = "job " + job.meta.name;
    if (job.status.placement.size() > size + 1) say(who + " has more than one worker to spare");
    if (!drains_) say(who + " has a worker to spare for no drain");
  }

  /// Of changes of the size alone nothing is counted.
  void count_spares(const api::TrainingJobStatus& status, const Before& before) {
    const int size = status.target_workers;
    if (before.target != size || status.placement.empty() || before.placed.empty()) return;
    const auto beyond = [&](int slot) { return slot >= size; };
    const bool had = beyond(before.placed.rbegin()->first);
    const bool has = beyond(status.placement.back().slot);
    const auto members_now = members(status);
    const bool trained = !before.members.empty() && beyond(*before.members.rbegin());
    const bool trains = !members_now.empty() && beyond(*members_now.rbegin());
    result_.spares += has && !had ? 1 : 0;
    result_.spares_left += had && !has ? 1 : 0;
    result_.spares_joined += trains && !trained ? 1 : 0;
  }

  void check_taken_back(const api::TrainingJob& job, const Before& before) {
    const api::TakenBack &now = job.status.taken_back, &then = before.taken_back;
    result_.shrinks += std::max(0, now.shrinks - then.shrinks);
    result_.preemptions += std::max(0, now.preemptions - then.preemptions);
    const bool waited = before.placed.empty() && then.preemptions > 0;
    result_.resumed += waited && !job.status.placement.empty() ? 1 : 0;
    if (now.shrinks < then.shrinks || now.preemptions < then.preemptions ||
        now.lost_process_seconds < then.lost_process_seconds) {
      say("job " + job.meta.name + ": what was taken back from it is less than before");
    }
  }

  static std::set<std::pair<int, int>> placed(const api::TrainingJobStatus& status) {
    std::set<std::pair<int, int>> found;
    for (const auto& placement : status.placement) found.emplace(placement.slot, placement.attempt);
    return found;
  }

  static std::set<int> members(const api::TrainingJobStatus& status) {
    std::set<int> found;
    for (const auto& placement : status.placement) {
      if (placement.member) found.insert(placement.slot);
    }
    return found;
  }

  void check_placement(const api::TrainingJob& job, const Before& before) {
    const auto& status = job.status;
    const std::string who = "job " + job.meta.name + ": ";
    const auto now = placed(status);
    if (now.size() != status.placement.size()) say(who + "a slot is placed twice");
    if (status.replacements < before.replacements) say(who + "its replacements went back");
    for (const auto& one : now) {
      if (before.placed.contains(one)) continue;
      if (before.suspended && job.spec.suspend) say(who + "it was placed while suspended");
      // An attempt that was given out before may never be given again.
      if (before.epoch > 0 && one.second < before.epoch) say(who + "an attempt came again");
    }
  }

  void check_pods(const api::TrainingJob& job, const std::vector<api::Pod>& pods) {
    int current = 0, live = 0;
    for (const auto& pod : pods) {
      if (!is_of(pod, job) || pod.ended()) continue;
      current += is_member(pod, job) ? 1 : 0;
      live += is_live(pod, job) ? 1 : 0;
    }
    if (cluster_.was_forged(job.meta.uid)) return;
    const int places = static_cast<int>(job.status.placement.size());
    if (current > std::max(places, job.status.target_workers))
      say("job " + job.meta.name + " has too many workers");
    // Beside those who have a place: a gang on its way out, and one of before that was made late,
    // by an operator that leads no more, and that is not seen yet.
    const Given& given = given_[job.meta.uid];
    for (const auto& pod : pods) {
      if (is_live(pod, job) && !given.pods.contains(pod.meta.name)) {
        say("job " + job.meta.name + " has a pod of no place: " + pod.meta.name);
      }
    }
    if (live > places + 2 * given.most) {
      say("job " + job.meta.name + " has " + std::to_string(live) + " live pods, " +
          std::to_string(places) + " places now and never more than " + std::to_string(given.most));
    }
  }

  /// A lone operator that has had time to see everything lets nobody stay who has no place.
  void check_at_rest(int round) {
    if (processes_.size() != 1 || round < kSeeingRounds) return;
    const auto pods = cluster_.pods();
    for (const auto& job : cluster_.jobs()) {
      if (cluster_.was_forged(job.meta.uid)) continue;
      for (const auto& pod : pods) {
        if (is_live(pod, job) && !is_member(pod, job)) {
          say("job " + job.meta.name + " keeps pod " + pod.meta.name + ", which has no place");
        }
      }
    }
  }

  /// One operator that has seen everything never lets a queue's jobs hold more than before beyond
  /// what the queue has and its cohort lends.
  void check_queues() {
    if (processes_.size() != 1) return;
    std::map<std::string, std::int64_t> held;
    for (const auto& job : cluster_.jobs()) {
      if (job.status.finished()) continue;
      held[job.spec.queue_name] += static_cast<std::int64_t>(job.status.placement.size()) * 1000;
    }
    std::int64_t over = 0, idle = 0, grown = 0;
    for (const auto& queue : cluster_.queues()) {
      const std::int64_t now = held[queue.meta.name];
      if (queue.spec.resources.empty()) continue;
      const std::int64_t nominal = queue.spec.resources[0].nominal;
      over += std::max<std::int64_t>(0, now - nominal);
      idle += std::max<std::int64_t>(0, nominal - now);
      if (now > nominal) grown += std::max<std::int64_t>(0, now - queue_held_[queue.meta.name]);
      result_.queued += now > queue_held_[queue.meta.name] ? 1 : 0;
      result_.borrowed += now > nominal ? 1 : 0;
    }
    queue_held_ = std::move(held);
    // What was given before the trouble ended may be more: quotas were lowered, and two decided.
    if (std::exchange(queues_looked_at_, true) && over > idle && grown > 0) {
      std::string who = "jobs of queues took more than is lent:";
      for (const auto& job : cluster_.jobs()) {
        who += " " + job.meta.name + " of " + job.spec.queue_name + " has " +
               std::to_string(job.status.placement.size()) + ";";
      }
      say(who);
    }
  }

  /// A lone operator says so as soon as all workers of a gang run, whatever befell others before.
  /// Of those that train it is said as they join.
  void check_shown(int round) {
    if (processes_.size() != 1 || round < kUnseenRounds) return;
    const auto pods = cluster_.pods();
    for (const auto& job : cluster_.jobs()) {
      const bool is_over = job.status.finished() || job.spec.suspend || job.meta.deletion_time;
      if (job.spec.training || is_over || cluster_.was_forged(job.meta.uid)) continue;
      const auto running = std::count_if(pods.begin(), pods.end(), [&](const api::Pod& pod) {
        return pod.phase == api::PodPhase::kRunning && is_live(pod, job) && is_member(pod, job);
      });
      if (running == 0 || running != std::ssize(job.status.placement)) continue;
      if (!job.status.is_true("Running")) {
        say("job " + job.meta.name +
            " is not said to run: " + dump_json(api::status_to_json(job.status)));
      }
      const bool is_new = shown_.emplace(job.meta.uid, job.status.membership_epoch).second;
      result_.shown += is_new ? 1 : 0;
    }
  }

  // ---- The end

  bool all_ended() const {
    const auto jobs = cluster_.jobs();
    return std::all_of(jobs.begin(), jobs.end(),
                       [](const auto& job) { return job.status.finished(); });
  }

  /// Each node is emptied while all train on.
  void drain() {
    for (int round = 0; round < kDrainRounds && ok(); ++round) {
      for (auto& process : processes_) post_reports(*process);
      settle();
      check();
      check_at_rest(round);
      check_queues();
      if (std::string wrong = cluster_.drain_round(); !wrong.empty()) say(std::move(wrong));
      clock_.advance(seconds(5));
    }
  }

  void calm() {
    faults_.on = false;
    faults_.without_quota.clear();
    if (rng_.below(2) == 0 && !manner_.elects) processes_.resize(1);
    for (auto& process : processes_) process->clock.heal();
    if (manner_.elects) elect_for_good();
    if (!ok()) return;
    cluster_.calm();
    check();
    if (drains_) drain();
    std::map<std::string, int> preempted;
    for (const auto& [uid, before] : seen_) preempted[uid] = before.taken_back.preemptions;
    for (int round = 0; round < kCalmRounds && ok(); ++round) {
      for (auto& process : processes_) post_reports(*process);
      settle();
      check();
      check_at_rest(round);
      check_queues();
      check_shown(round);
      clock_.advance(seconds(4));
      cluster_.good_round();
      clock_.advance(kShownWithin);
      if (round > 8 && all_ended()) break;
    }
    if (!ok()) return;
    for (const auto& job : cluster_.jobs()) {
      check_end(job);
      const bool is_often =
          job.status.taken_back.preemptions - preempted[job.meta.uid] > kCalmPreemptionsMost;
      if (is_often && !cluster_.was_forged(job.meta.uid)) say("preempted again and again");
    }
  }

  std::string pods_text(const api::TrainingJob& job) const {
    std::string text = "; pods:";
    for (const auto& pod : cluster_.pods()) {
      const auto* owner = pod.meta.controller();
      if (owner == nullptr || owner->uid != job.meta.uid) continue;
      text += " " + pod.meta.name + " phase " + std::to_string(static_cast<int>(pod.phase)) +
              (pod.meta.deletion_time ? " leaving" : "") + " on " + pod.node_name + ",";
    }
    return text;
  }

  void check_end(const api::TrainingJob& job) {
    const auto& status = job.status;
    const std::string said =
        "job " + job.meta.name + " at the end: " + dump_json(api::status_to_json(status));
    if (!status.finished()) return say("never ended; " + said + pods_text(job));
    if (status.is_true("Failed") && !cluster_.may_fail(job.meta.uid)) say("failed; " + said);
    if (cluster_.was_forged(job.meta.uid)) return;
    const bool right = !status.is_true("Running") && !status.is_true("Restarting") &&
                       !status.is_true("Suspended") && status.replicas == 0 &&
                       status.phase == (status.is_true("Complete") ? "Complete" : "Failed") &&
                       status.workers == "0/" + std::to_string(status.target_workers) &&
                       !status.restart_at;
    if (!right) say("not as it ends undisturbed; " + said);
  }

  /// Nothing that can be read holds a key.
  void check_secrets() {
    const std::string all = cluster_.everything();
    for (const auto& secret : secrets_) {
      if (all.find(secret) != std::string::npos) say("a secret can be read from the API server");
    }
    for (const auto& process : processes_) search_metrics(*process);
  }
  void search_metrics(const Process& process) {
    const std::string page = process.metrics ? process.metrics->render() : "";
    for (const auto& secret : secrets_) {
      if (page.find(secret) != std::string::npos) say("a secret stands in the metrics");
    }
  }

  std::int64_t writes() const {
    std::int64_t sum = 0;
    for (const auto& process : processes_) sum += process->transport.writes();
    return sum;
  }

  void rest() {
    // Times that a wrong clock wrote are over.
    clock_.advance(seconds(7300));
    for (int i = 0; i < 20; ++i) {
      clock_.advance(seconds(5));
      settle();
      cluster_.good_round();
    }
    settle();
    check();
    const std::int64_t before = writes();
    for (int resync = 0; resync < 10 && ok(); ++resync) {
      clock_.advance(kResync + seconds(1));
      settle();
    }
    if (writes() != before) say("writes at the fixpoint: " + std::to_string(writes() - before));
    for (const auto& pod : cluster_.pods()) {
      if (!pod.ended()) say("a pod is left over: " + pod.meta.name);
    }
    for (const auto& process : processes_) {
      const std::string missing = process->told.missing(cluster_.user());
      if (!missing.empty()) say(missing);
    }
  }

  /// Jobs get other least sizes; elsewhere none, so that they can shrink to what they have.
  const bool moves_least_;
  const bool drains_;
  Manner manner_;
  ManualClock clock_;
  Rng rng_;
  Rng aside_rng_;  ///< of what came later, so that seeds are else what they were
  Faults faults_;
  embedded::ApiServer server_;
  Cluster cluster_;
  Judged judged_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::map<std::string, Before> seen_;  ///< by uid
  std::map<std::string, Given> given_;  ///< by uid
  /// Members that the witness let go on, by job and the epoch they came from.
  std::map<std::pair<std::string, std::int64_t>, std::vector<int>> granted_;
  std::map<std::string, std::int64_t> queue_held_;  ///< when last looked, in thousandths
  bool queues_looked_at_ = false;
  std::set<std::pair<std::string, std::int64_t>> shown_;  ///< gangs, by uid and epoch
  bool elects_now_ = false;
  std::set<std::string> jobs_ever_;
  std::map<std::string, std::set<Json>> leasts_;  ///< each min that a job ever had, by uid
  std::map<std::string, int> largest_;            ///< the largest max, likewise
  std::vector<std::string> secrets_{std::string(kMasterKey)};
  std::uint64_t checked_ = 0;
  std::string wrong_;
  SeedResult result_;
};

}  // namespace

SeedResult run_seed(std::uint64_t seed) { return Simulation(seed).run(); }

}  // namespace muster::sim
