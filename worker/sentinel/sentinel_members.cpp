// What a worker does with the other sentinels: it tells them of its trainers, and its trainers of
// what was agreed.
#include <signal.h>

#include <algorithm>
#include <utility>

#include "common/log.h"
#include "worker/sentinel/part_pace.h"
#include "worker/sentinel/sentinel_worker.h"
#include "worker/sentinel/told_view.h"

namespace muster::sentinel {
namespace {

namespace exit_code = contract::exit_code;

constexpr const char* kOtherKeySentence =
    "the workers that train do not let this one in: it has another key than they have, or is of "
    "another job; all get one key when the job is suspended and resumed";

/// With the domains where all are known: a build that knows of none could not read of another's.
View first_view(const JoinResponse& response) {
  View view;
  view.epoch = response.epoch;
  const bool has_domains = std::none_of(response.peers.begin(), response.peers.end(),
                                        [](const JoinPeer& peer) { return peer.domain.empty(); });
  for (const JoinPeer& peer : response.peers) {
    view.seats.push_back({{peer.slot, peer.attempt},
                          peer.host,
                          peer.sentinel_port,
                          static_cast<int>(peer.ports.size()),
                          {},
                          has_domains ? domain_of(peer.domain, peer.rack) : kUnknownDomain});
  }
  std::sort(view.seats.begin(), view.seats.end(),
            [](const Seat& a, const Seat& b) { return a.id < b.id; });
  return view;
}

/// Whether each trainer keeps a part of the state; not where the spec says nonsense.
bool keeps_shards(const Json& training) {
  if (!training.is_object()) return false;
  const auto state = training.find("optimizerState");
  return state != training.end() && state->is_string() && state->get<std::string>() == "Sharded";
}

bool keeps_checkpoints(const Json& training) {
  if (!training.is_object()) return false;
  const auto checkpoint = training.find("checkpoint");
  return checkpoint != training.end() && checkpoint->is_object();
}

}  // namespace

void SentinelWorker::begin_membership(const Postman::Joined& joined) {
  host_ = joined.request.host;
  const JoinResponse& response = joined.response;
  const WorkerId id{config_.slot, config_.attempt};
  mesh_->set_seal(MeshSeal(response.job_key, response.job_uid, id));
  Seat self{id,
            host_,
            request_.sentinel_port,
            config_.processes,
            {},
            domain_of(request_.domain, request_.rack)};
  MembershipOptions options = options_.membership;
  options.copy_processes = split_of(response.training).processes();
  options.is_sharded = keeps_shards(response.training);
  // Where `muster run` keeps files, whatever the spec says. Of what several have parts of, one
  // alone can save nothing.
  const bool has_files = !config_.checkpoint_path.empty() || keeps_checkpoints(response.training);
  options.compares_files = has_files && !options.is_sharded && options.copy_processes == 1;
  file_workers_ = file_workers(options, config_.processes);
  if (!response.joining) {
    View first = first_view(response);
    // The endpoint may not tell attempts of a gang that starts; one's own is known.
    for (Seat& seat : first.seats) {
      if (seat.id.slot != self.id.slot) continue;
      self.domain = seat.domain;
      seat = self;
    }
    membership_.emplace(options, self, std::move(first), now());
    return;
  }
  std::vector<Contact> contacts;
  for (const JoinPeer& peer : response.peers) {
    contacts.push_back({{peer.slot, peer.attempt}, peer.host, peer.sentinel_port});
  }
  membership_.emplace(options, self, std::move(contacts), response.epoch, now());
}

void SentinelWorker::take_mesh() {
  // What the trainers have said before anybody was lost counts when it is decided who goes on.
  for (std::size_t i = 0; i < processes_.size(); ++i) take_messages(i);
  Mesh::Received received = mesh_->receive();
  membership_->receive(now(), received.messages);
  if (received.is_more) membership_->note_backlog();
  for (const WorkerId& id : received.refused) membership_->refused(now(), id);
  for (const WorkerId& id : received.unauthorized) membership_->unauthorized(now(), id);
  for (const std::string& host : received.strangers) note_stranger(host);
  if (const auto answer = postman_->take_witness_answer()) {
    membership_->witness(now(), {answer->granted, answer->epoch, answer->members});
  }
  if (now() >= membership_->next_tick()) membership_->tick(now());
  act();
}

void SentinelWorker::note_stranger(const std::string& host) {
  if (!membership_->is_member() || !strangers_.note(now(), host)) return;
  log_warning("what a stranger says is refused: it has another key, or is of another job",
              {{"host", host}, {"refused", mesh_->drops().unauthorized}});
  changes_.add_stranger(told_view_, host, membership_->self());
  report();
}

void SentinelWorker::act() {
  bool has_news = false;
  // What is done here may leave more to do.
  for (auto outputs = membership_->take_outputs(); !outputs.empty();
       outputs = membership_->take_outputs()) {
    for (Output& output : outputs) {
      if (auto* send = std::get_if<Send>(&output)) {
        mesh_->send(send->to, send->host, send->port, send->message);
      } else if (auto* decided = std::get_if<Decided>(&output)) {
        on_view(decided->view);
      } else if (auto* ask = std::get_if<AskWitness>(&output)) {
        WitnessRequest request{config_.job,     config_.slot, config_.attempt,  ask->epoch,
                               ask->next_epoch, ask->members, ask->from_members};
        postman_->ask_witness(request);
      } else if (std::get_if<Fenced>(&output) != nullptr) {
        on_fenced();
      } else if (auto* lost = std::get_if<PeersLost>(&output)) {
        end_with({exit_code::kPeerLost, lost->reason});
      } else if (auto* refused = std::get_if<Refused>(&output)) {
        // One that has trained was let in before: what is wrong with it stops nobody else, and who
        // takes its place is told the same.
        end_with({was_in_view_ ? exit_code::kInternal : exit_code::kData,
                  "the workers that train do not let this one in: " + refused->reason});
      } else if (std::get_if<LeftBehind>(&output) != nullptr) {
        log_info("the others have finished the job, and nothing is left to do here");
        is_left_behind_ = true;
        kill_running();
      } else if (std::get_if<OtherKey>(&output) != nullptr) {
        end_with({exit_code::kKeyRefused, kOtherKeySentence});
      } else if (auto* newcomer = std::get_if<RefusedNewcomer>(&output)) {
        changes_.add_refused(told_view_, newcomer->id, newcomer->reason);
        has_news = true;
      }
    }
  }
  const bool was_member = std::exchange(was_member_, membership_->is_member());
  if (waiting_ != membership_->waiting()) {
    waiting_ = membership_->waiting();
    if (!waiting_.empty()) log_info("membership waits", {{"state", waiting_}});
    // Who is let in tells of it with its first step.
    has_news = has_news || book_.has_news() || !waiting_.empty() || was_member;
  }
  if (has_news) report();
}

void SentinelWorker::on_view(const View& view) {
  changes_.add(told_view_.epoch > 0 ? told_view_ : View{}, view, membership_->self());
  told_view_ = view;
  const Seat* const own = find_seat(view, membership_->self());
  was_in_view_ = was_in_view_ || (own != nullptr && !own->trainers.empty());
  log_info("membership", {{"epoch", view.epoch},
                          {"workers", view.seats.size()},
                          {"stop", view.stop},
                          {"urgent", view.urgent_epoch == view.epoch}});
  metrics_.set_membership(view.epoch, static_cast<int>(view.seats.size()));
  for (TrainerProcess& process : processes_) {
    tell(process, view);
    // Nobody waits for one that trains alone; else the next verdict comes with the next steps.
    if (view.seats.size() < 2 && config_.processes < 2) process.slow = SlowWatch();
    metrics_.set_step_delay(process.launch.local_rank, microseconds(0));
  }
  if (view.stop && !is_stopping_) {
    is_stopping_ = true;
    kill_at_ = std::min(kill_at_.value_or(MonoTime::max()), now() + options_.stop_grace);
  }
  if (view.stop || own == nullptr) stop_untold();
  if (book_.has_news()) report();
}

void SentinelWorker::tell(TrainerProcess& process, const View& view) {
  auto message = message_of(view, {membership_->self(), process.launch.local_rank,
                                   process.launch.incarnation, process.told_epoch});
  if (!message || !process.is_running || !process.views) return;
  process.told_epoch = view.epoch;
  process.set_members(static_cast<int>(message->peers.size()));
  message->leaves = is_stopping_;
  process.views->set(*message);
}

void SentinelWorker::on_fenced() {
  const std::int64_t epoch = membership_->view().epoch;
  if (is_stopping_) {
    log_warning("the others went on without this worker, which was about to leave",
                {{"epoch", epoch}});
    is_cut_off_ = true;
    return kill_running();
  }
  log_warning("the others went on without this worker; its trainers start anew",
              {{"epoch", epoch}});
  for (TrainerProcess& process : processes_) {
    process.is_ready = false;
    if (!process.is_running) continue;
    process.killed_for = KilledFor::kFence;
    (void)kill(-process.trainer.pid, SIGKILL);
  }
}

void SentinelWorker::end_with(Outcome outcome) {
  if (is_killed_) return;
  ends_.push_back(std::move(outcome));
  kill_running();
}

void SentinelWorker::update_ready() {
  if (!membership_) return;
  std::vector<TrainerPlace> ready;
  for (const TrainerProcess& process : processes_) {
    const auto index = static_cast<std::size_t>(process.launch.local_rank);
    if (!process.is_ready || process.killed_for != KilledFor::kNothing) continue;
    ready.push_back({process.launch.local_rank, process.launch.incarnation, request_.ports[index]});
  }
  membership_->set_trainers(now(), std::move(ready), digest_);
  act();
}

void SentinelWorker::say_goodbye() {
  if (!membership_) return;
  membership_->goodbye(now());
  act();
}

}  // namespace muster::sentinel
