#include "tests/membership/world.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <utility>

namespace muster::sim {
namespace {

using namespace muster::sentinel;

constexpr std::uint64_t kOutline = std::uint64_t{5} << 32, kDigest = kOutline + 77;
/// Of another spec or set, and of other pictures in files of the same names and sizes.
constexpr std::uint64_t kOtherDigest = (std::uint64_t{6} << 32) + 77,
                        kOtherPicturesDigest = 78 + kOutline;
constexpr milliseconds kFaultTime{4'000};
constexpr milliseconds kCalmTime{120'000};
constexpr milliseconds kStill{800};
/// Who is asked to leave is killed after so long. Of whole copies nobody may need it.
constexpr milliseconds kGrace{20'000};
constexpr int kUsualWorkers = 5;  ///< at most
constexpr std::size_t kMostJoiners = 11;

MembershipOptions quick() {
  MembershipOptions options;
  options.one_observer = milliseconds(600);
  options.gather_leaves = milliseconds(200);
  options.gather_files = milliseconds(400);
  options.gather_start = milliseconds(2'000);
  options.holder = milliseconds(2'000);
  options.probation = milliseconds(200);
  options.forgiveness = milliseconds(2'000);
  options.lost = milliseconds(20'000);
  return options;
}

struct Event {
  std::function<void()> run;
};
/// Of one time in the order in which they were put there.
using Events = std::multimap<MonoTime, Event>;

enum class Life { kRuns, kFrozen, kRefuses, kSilent, kEnded };

struct Node {
  WorkerId id;
  std::unique_ptr<Membership> membership;
  Life life = Life::kRuns;
  std::uint64_t digest = kDigest;
  std::int64_t incarnation = 0;
  bool is_ready = false;
  bool is_leaving = false;
  bool is_refused = false;
  std::uint64_t load = 0;  ///< counts loads, so that an old one's end is told from the newest's
  std::int64_t told_epoch = 0;
  View told;
  std::int64_t seen_epoch = 0;
  std::optional<Events::iterator> tick;      ///< that is due
  std::vector<std::function<void()>> inbox;  ///< while frozen
  std::vector<std::int64_t> newest_from;     ///< by sender: the number of its newest that has come

  bool lives() const { return life == Life::kRuns || life == Life::kFrozen; }
};

class World {
 public:
  World(std::uint64_t seed, bool is_loud)
      : rng_(seed),
        is_loud_(is_loud),
        has_domains_(seed % 2 == 1),
        tells_steps_(seed % 4 >= 2),
        options_(quick()) {
    options_.copy_processes = seed % 8 >= 4 ? 2 : 1;
  }

  MembershipResult run(int workers) {
    plan(workers);
    start_gang();
    const MonoTime fault_end = now_ + kFaultTime;
    for (int i = 0; i < plan_.faults; ++i) {
      at(milliseconds(rng_.below(static_cast<std::uint64_t>(kFaultTime.count()))),
         [this] { fault(); });
    }
    run_until(fault_end);
    calm();
    const MonoTime deadline = now_ + kCalmTime;
    MonoTime still_since = now_;
    while (result_.wrong.empty() && now_ < deadline) {
      run_until(now_ + milliseconds(100));
      if (!explain_unrest().empty()) still_since = now_;
      if (now_ - still_since >= kStill) break;
    }
    const std::string unrest = explain_unrest();
    if (result_.wrong.empty() && !unrest.empty()) fail("no rest after the faults: " + unrest);
    return result_;
  }

 private:
  // ---- Time

  void at(nanoseconds delay, std::function<void()> run) {
    events_.emplace(now_ + delay, Event{std::move(run)});
  }
  void run_until(MonoTime until) {
    while (result_.wrong.empty() && !events_.empty() && events_.begin()->first <= until) {
      now_ = events_.begin()->first;
      const Event event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event.run();
    }
    now_ = until;
  }
  bool chance(double probability) { return rng_.unit() < probability; }
  milliseconds span(std::uint64_t from, std::uint64_t to) {
    return milliseconds(from + rng_.below(to - from + 1));
  }

  // ---- The world's rules

  void fail(const std::string& what) {
    if (result_.wrong.empty()) result_.wrong = what;
  }
  void say(const std::string& what) {
    if (!is_loud_) return;
    std::printf("%8.1f ms  %s\n",
                std::chrono::duration<double, std::milli>(now_.time_since_epoch()).count(),
                what.c_str());
  }
  static std::string text(WorkerId id) {
    return std::to_string(id.slot) + "." + std::to_string(id.attempt);
  }
  static std::string text(const View& view) {
    std::string all = "view " + std::to_string(view.epoch) + " after " + std::to_string(view.base);
    for (const Seat& seat : view.seats) {
      all += " " + text(seat.id);
      for (const auto& one : seat.trainers) all += "#" + std::to_string(one.incarnation);
    }
    return all + (view.stop ? " stop" : "") + (view.urgent_epoch == view.epoch ? " urgent" : "");
  }

  /// Two views may share a number or a predecessor only when nobody who lives had a seat in the
  /// other: what the dead decided among themselves is as if it had never been.
  void check_unique(std::map<std::int64_t, std::pair<View, std::set<std::size_t>>>& seen,
                    std::int64_t key, std::size_t index, const View& view, const char* what) {
    const auto found = seen.find(key);
    if (found == seen.end()) {
      seen[key] = {view, {}};
      if (find_seat(view, nodes_[index]->id) != nullptr) seen[key].second.insert(index);
      return;
    }
    auto& [known, holders] = found->second;
    // One that has no seat in it may hear late of what the dead decided.
    if (!(known == view) && find_seat(view, nodes_[index]->id) == nullptr) return;
    if (known == view) {
      if (find_seat(view, nodes_[index]->id) != nullptr) holders.insert(index);
      return;
    }
    for (const std::size_t holder : holders) {
      if (nodes_[holder]->lives() && holder != index) {
        fail(std::string("two views ") + what + " " + std::to_string(key) + ": " + text(known) +
             " at " + text(nodes_[holder]->id) + " and " + text(view) + " at " +
             text(nodes_[index]->id));
      }
    }
    known = view;
    holders = {index};
  }

  void check_view(std::size_t index) {
    Node& node = *nodes_[index];
    const View& view = node.membership->view();
    if (view.epoch == node.seen_epoch) return;
    if (view.epoch < node.seen_epoch) fail(text(node.id) + " went back to " + text(view));
    node.seen_epoch = view.epoch;
    say(text(node.id) + " knows " + text(view));
    check_unique(by_epoch_, view.epoch, index, view, "of number");
    if (view.base > 0) check_unique(by_base_, view.base, index, view, "after");
    if (has_trainers(view) && view.digest != kDigest) fail("the wrong digest leads");
    for (const Seat& seat : view.seats) {
      const Node* other = find(seat.id);
      if (other == nullptr) return fail("a seat for nobody in " + text(view));
      if (!seat.trainers.empty() && !is_same_training(other->digest, view.digest)) {
        fail("another digest trains in " + text(view));
      }
      check_domain(seat, view);
    }
  }

  /// Workers know where they run; in a gang that began without domains nobody says it, as older
  /// builds could not read it.
  void check_domain(const Seat& seat, const View& view) {
    const Domain right = has_domains_ ? domain_of_slot(seat.id.slot) : kUnknownDomain;
    // A newcomer is let in when it knows the view before, and with it whether domains are told.
    if (seat.domain != right) fail("a wrong domain of " + text(seat.id) + " in " + text(view));
  }

  Node* find(WorkerId id) {
    const auto found = index_.find(id);
    return found == index_.end() ? nullptr : nodes_[found->second].get();
  }

  // ---- Nodes

  /// Everything that happens to a node goes through here, so that outputs are taken every time.
  void tell(std::size_t index, const std::function<void(Membership&)>& what) {
    Node& node = *nodes_[index];
    if (node.life == Life::kFrozen) {
      if (node.inbox.size() < 2'000) {
        node.inbox.push_back([this, index, what] { tell(index, what); });
      }
      return;
    }
    if (node.life != Life::kRuns) return;
    what(*node.membership);
    check_view(index);
    act(index);
    schedule_tick(index);
  }

  void schedule_tick(std::size_t index) {
    Node& node = *nodes_[index];
    if (node.life != Life::kRuns) return;
    const MonoTime due = std::max(node.membership->next_tick(), now_ + nanoseconds(1));
    if (node.tick) {
      // Each message puts it off: of many workers, who tell each other much, most events would be
      // ticks that were put off.
      auto moved = events_.extract(*node.tick);
      moved.key() = due;
      node.tick = events_.insert(std::move(moved));
      return;
    }
    const auto on_tick = [this, index] {
      Node& late = *nodes_[index];
      late.tick.reset();
      if (late.life != Life::kRuns) return;
      tell(index, [this](Membership& one) {
        // Whether or not others live, and could be in it: nothing may depend on its truth.
        if (tells_steps_) one.stepped(now_, one.view().epoch);
        one.tick(now_);
      });
    };
    node.tick = events_.emplace(due, Event{on_tick});
  }

  void act(std::size_t index) {
    Node& node = *nodes_[index];
    for (Output& output : node.membership->take_outputs()) {
      if (node.life != Life::kRuns) return;
      if (auto* send = std::get_if<Send>(&output)) {
        transmit(index, std::move(*send));
      } else if (auto* decided = std::get_if<Decided>(&output)) {
        on_decided(index, decided->view);
      } else if (auto* ask = std::get_if<AskWitness>(&output)) {
        ask_witness(index, *ask);
      } else if (std::get_if<Fenced>(&output) != nullptr) {
        ++result_.events["fenced"];
        say(text(node.id) + " is fenced");
        if (node.is_leaving) return end(index);
        load_trainer(index);
      } else if (std::get_if<PeersLost>(&output) != nullptr) {
        say(text(node.id) + " finds nobody");
        for (const Seat& seat : node.membership->view().seats) {
          const Node* other = find(seat.id);
          // Two that were both left behind are of no use to each other.
          const bool is_useful =
              !node.membership->is_member() || other->seen_epoch > node.seen_epoch;
          if (other != &node && other->lives() && other->membership->is_member() && is_useful) {
            fail(text(node.id) + " gave up, but " + text(seat.id) + " lives");
          }
        }
        ++result_.events["peers lost"];
        end(index);
      } else if (std::get_if<Refused>(&output) != nullptr) {
        if (is_same_training(node.digest, kDigest)) fail("a fitting newcomer was refused");
        ++result_.events["refused"];
        end(index);
      }
    }
  }

  void on_decided(std::size_t index, const View& view) {
    Node& node = *nodes_[index];
    if (view.epoch <= node.told_epoch) fail(text(node.id) + " was told an older view");
    node.told_epoch = view.epoch;
    node.told = view;
    ++result_.events["decided"];
    if (view.stop) {
      ++result_.events["stopped"];
      at(span(1'000, 1'500), [this, index] { end(index); });
    } else if (find_seat(view, node.id) == nullptr) {
      ++result_.events["left"];
      at(span(0, 500), [this, index] { end(index); });
    } else {
      enter_soon(index, view.epoch);
    }
  }

  /// Trainers enter a view when all of it are there, some later than others.
  void enter_soon(std::size_t index, std::int64_t epoch) {
    at(span(1, 200), [this, index, epoch] {
      const Node& node = *nodes_[index];
      if (node.told_epoch != epoch || !node.lives()) return;
      bool is_in = false, are_all_there = true;
      for (const Seat& seat : node.told.seats) {
        const Node* other = find(seat.id);
        is_in = is_in || (other == &node && !seat.trainers.empty());
        for (const TrainerPlace& one : seat.trainers) {
          are_all_there = are_all_there && other->life == Life::kRuns && other->is_ready &&
                          other->told_epoch == epoch && other->incarnation == one.incarnation;
        }
      }
      if (is_in && !are_all_there) return enter_soon(index, epoch);
      if (!is_in) return;
      ++result_.events["entered"];
      tell(index, [epoch](Membership& one) { one.entered(epoch); });
    });
  }

  void end(std::size_t index) {
    Node& node = *nodes_[index];
    if (node.life == Life::kFrozen) at(milliseconds(100), [this, index] { end(index); });
    if (node.life != Life::kRuns) return;
    node.membership->goodbye(now_);
    for (Output& output : node.membership->take_outputs()) {
      if (auto* send = std::get_if<Send>(&output)) transmit(index, std::move(*send));
    }
    if (node.life == Life::kRuns) node.life = Life::kEnded;
    say(text(node.id) + " ends");
    trainer_lost(node.id);
  }

  void add_node(WorkerId id, std::unique_ptr<Membership> membership, std::uint64_t digest) {
    auto node = std::make_unique<Node>();
    node->id = id;
    node->digest = digest;
    node->membership = std::move(membership);
    node->seen_epoch = node->membership->view().epoch;
    index_[id] = nodes_.size();
    nodes_.push_back(std::move(node));
    load_trainer(nodes_.size() - 1);
    schedule_tick(nodes_.size() - 1);
  }

  static Domain domain_of_slot(int slot) { return 1 + static_cast<Domain>(slot / 2); }
  static Seat seat_of(WorkerId id) {
    return {
        id, "host-" + std::to_string(id.slot), 1'000 + id.attempt, 1, {}, domain_of_slot(id.slot)};
  }

  void load_trainer(std::size_t index) {
    Node& node = *nodes_[index];
    if (node.load > 0) ++node.incarnation;
    node.is_ready = false;
    const std::uint64_t load = ++node.load;
    trainer_lost(node.id);
    tell(index,
         [this, index](Membership& one) { one.set_trainers(now_, {}, nodes_[index]->digest); });
    at(span(10, 700), [this, index, load] { become_ready(index, load); });
  }

  void become_ready(std::size_t index, std::uint64_t load) {
    Node& late = *nodes_[index];
    if (late.load != load || !late.lives()) return;
    if (late.life == Life::kFrozen) {  // its trainer is frozen, too
      at(milliseconds(100), [this, index, load] { become_ready(index, load); });
      return;
    }
    late.is_ready = true;
    tell(index, [this, &late](Membership& one) {
      one.set_trainers(now_, {{0, late.incarnation, 1}}, late.digest);
    });
  }

  /// Those who train with it see their connections break, sooner or later.
  void trainer_lost(WorkerId id) {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = *nodes_[i];
      const Seat* seat = find_seat(node.told, id);
      if (node.id == id || !node.lives() || seat == nullptr || seat->trainers.empty()) continue;
      const std::int64_t epoch = node.told.epoch;
      at(span(0, 300), [this, i, epoch] {
        if (!nodes_[i]->is_ready || nodes_[i]->told_epoch != epoch) return;
        tell(i, [this, epoch](Membership& one) { one.broken(now_, epoch); });
      });
    }
  }

  void die(std::size_t index, Life how) {
    Node& node = *nodes_[index];
    if (!node.lives() || !is_faulty_) return;
    say(text(node.id) + (how == Life::kRefuses ? " is killed" : " loses power"));
    node.life = how;
    ++result_.events[how == Life::kRefuses ? "killed" : "power lost"];
    trainer_lost(node.id);
    if (chance(0.7)) {
      at(span(300, 3'000), [this, slot = node.id.slot] { replace(slot); });
    }
  }

  /// The operator's part: another attempt of a slot, told where the newest of all slots were.
  void replace(int slot) {
    std::map<int, WorkerId> newest;
    for (const auto& node : nodes_)
      newest[node->id.slot] = std::max(newest[node->id.slot], node->id);
    if (newest.contains(slot) && find(newest[slot])->lives()) return;
    if (nodes_.size() >= std::max(kUsualWorkers, plan_.workers) + kMostJoiners) return;
    const WorkerId id{slot, static_cast<int>(++stored_epoch_)};
    std::vector<Contact> contacts;
    for (const auto& [other, other_id] : newest) {
      if (other != slot) {
        const Seat seat = seat_of(other_id);
        contacts.push_back({other_id, seat.host, seat.sentinel_port});
      }
    }
    if (contacts.empty()) return;
    ++result_.events["joiner"];
    const bool is_misfit = chance(0.25), is_even = id.attempt % 2 == 0;
    const std::uint64_t digest = is_misfit ? (is_even ? kOtherDigest : kOtherPicturesDigest)
                                           : (is_even ? kOutline : kDigest);
    say(text(id) + " comes" + (is_misfit ? " with another digest" : ""));
    add_node(id, std::make_unique<Membership>(options_, seat_of(id), contacts, stored_epoch_, now_),
             digest);
  }

  // ---- Network

  bool is_cut(WorkerId from, WorkerId to) const {
    const auto found = cuts_.find({from.slot, to.slot});
    return found != cuts_.end() && found->second > now_;
  }

  void transmit(std::size_t from, Send send) {
    ++result_.messages;
    auto& covered = result_.coverage[send.message.body.index()];
    const bool is_decision = send.message.body.index() >= 1 && send.message.body.index() <= 5;
    if (is_decision && !nodes_[from]->membership->is_member() &&
        nodes_[from]->seen_epoch == send.message.epoch) {
      fail("a newcomer took part in a decision");
    }
    // What is sent goes its way through bytes, as in the real world.
    auto message = decode_message(encode(send.message));
    if (!message) return fail("a message does not survive its encoding");
    const bool is_seldom = send.message.body.index() >= 7 || send.message.body.index() == 3;
    const double death =
        send.message.body.index() == 0 ? 0.0002 : plan_.death * (is_seldom ? 4 : 1);
    if (is_faulty_ && chance(death * plan_.rarity)) {
      ++covered[4];
      die(from, chance(0.5) ? Life::kRefuses : Life::kSilent);
      return;
    }
    const auto to = index_.find(send.to);
    if (to == index_.end()) return;  // at the start, before the other is there
    // A cut that begins just now: else what is said seldom would hardly ever meet one.
    if (is_faulty_ && is_seldom && plan_.loss > 0 && chance(0.1 * plan_.rarity)) {
      ++result_.events["cut at a message"];
      cut(send.message.from.slot, send.to.slot, span(1, 300));
    }
    if (is_cut(send.message.from, send.to)) {
      ++covered[3];
      return;
    }
    if (is_faulty_ && chance(is_seldom ? 4 * plan_.loss : plan_.loss)) {
      ++covered[0];
      return;
    }
    const int copies = is_faulty_ && chance(is_seldom ? 4 * plan_.twice : plan_.twice) ? 2 : 1;
    if (copies == 2) ++covered[2];
    for (int i = 0; i < copies; ++i) {
      microseconds delay(100 + rng_.below(900));
      if (is_faulty_ && chance(plan_.late)) {
        ++covered[1];
        delay = span(1, 250);
      }
      Message copy = i + 1 < copies ? *message : std::move(*message);
      const std::int64_t number = result_.messages;
      at(delay, [this, from, index = to->second, number, arriving = std::move(copy)] {
        note_order(from, *nodes_[index], number);
        deliver(from, index, arriving);
      });
    }
  }

  void note_order(std::size_t from, Node& to, std::int64_t number) {
    if (to.newest_from.size() <= from) to.newest_from.resize(from + 1);
    std::int64_t& newest = to.newest_from[from];
    if (number < newest) ++result_.events["overtaken"];
    newest = std::max(newest, number);
  }

  void deliver(std::size_t from, std::size_t to, const Message& message) {
    Node& node = *nodes_[to];
    auto& covered = result_.coverage[message.body.index()];
    if (node.life == Life::kRefuses || node.life == Life::kEnded) {
      if (is_cut(node.id, nodes_[from]->id)) return;
      at(microseconds(200), [this, from, id = node.id] {
        tell(from, [this, id](Membership& one) { one.refused(now_, id); });
      });
      return;
    }
    const bool is_beat = message.body.index() == 0;
    const bool is_seldom = message.body.index() >= 7 || message.body.index() == 3;
    const double freezing = is_seldom ? 0.15 : 0.01;
    if (is_faulty_ && !is_beat && chance(freezing * plan_.rarity)) freeze(to, span(50, 1'000));
    if (node.life == Life::kFrozen) ++covered[6];
    const double death = is_beat ? 0.0002 : plan_.death * (is_seldom ? 6 : 1);
    if (is_faulty_ && node.lives() && chance(death * plan_.rarity)) {
      ++covered[5];
      die(to, chance(0.5) ? Life::kRefuses : Life::kSilent);
      return;
    }
    tell(to, [this, message](Membership& one) { one.receive(now_, message); });
  }

  void ask_witness(std::size_t index, AskWitness ask) {
    ++result_.events["asked"];
    if (!has_witness_) return;
    at(span(1, 60), [this, index, ask] {
      if (!has_witness_) return;
      const Membership::WitnessAnswer answer = judge(ask);
      say(text(nodes_[index]->id) + " asks for " + std::to_string(ask.next_epoch) + ": " +
          (answer.granted ? "granted" : "refused"));
      if (is_faulty_ && chance(0.1)) return;
      at(span(1, 60), [this, index, answer] {
        tell(index, [this, answer](Membership& one) { one.witness(now_, answer); });
      });
    });
  }

  Membership::WitnessAnswer judge(const AskWitness& ask) {
    if (grant_.epoch > ask.epoch || (grant_.epoch == ask.epoch && !is_grant_dead(ask))) {
      const bool is_same = grant_.next_epoch == ask.next_epoch && grant_.epoch == ask.epoch &&
                           grant_.members == ask.members;
      ++result_.events[is_same ? "granted again" : "refused by witness"];
      return {is_same, grant_.next_epoch, grant_.members};
    }
    const auto from = by_epoch_.find(ask.epoch);
    if (from == by_epoch_.end()) return {false, stored_epoch_, {}};
    if (ask.from_members != slots_of(from->second.first)) fail("the witness is told other members");
    std::size_t present = 0;
    bool is_rest_dead = std::none_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      return node->lives() && node->membership->is_member() && node->seen_epoch > ask.epoch;
    });
    for (const Seat& seat : from->second.first.seats) {
      const bool is_in = std::binary_search(ask.members.begin(), ask.members.end(), seat.id.slot);
      if (is_in) ++present;
      if (!is_in && find(seat.id)->lives()) is_rest_dead = false;
    }
    if (present * 2 < from->second.first.seats.size() && !is_rest_dead) {
      ++result_.events["minority refused"];
      return {false, stored_epoch_, {}};
    }
    ++result_.events["granted"];
    grant_ = ask;
    stored_epoch_ = std::max(stored_epoch_, ask.next_epoch);
    return {true, ask.next_epoch, ask.members};
  }

  /// Whether all whom the last grant would go on with, and this one not, are gone, and left nobody
  /// who knows what came of it.
  bool is_grant_dead(const AskWitness& ask) {
    if (grant_.members == ask.members) return false;
    for (const auto& node : nodes_) {
      if (node->lives() && node->seen_epoch > ask.epoch) return false;
    }
    for (const Seat& seat : by_epoch_[grant_.epoch].first.seats) {
      const int slot = seat.id.slot;
      const auto& again = ask.members;
      if (std::binary_search(again.begin(), again.end(), slot)) continue;
      const auto& members = grant_.members;
      if (std::binary_search(members.begin(), members.end(), slot) && find(seat.id)->lives()) {
        return false;
      }
    }
    return true;
  }

  // ---- Plan and faults

  void plan(int workers) {
    plan_.workers = static_cast<int>(1 + rng_.below(kUsualWorkers));
    if (plan_.workers == 1 && chance(0.7)) plan_.workers = 3;
    if (workers > 0) plan_.workers = workers;
    if (workers > kUsualWorkers) plan_.rarity = std::pow(1.0 * kUsualWorkers / workers, 2);
    plan_.faults = static_cast<int>(2 + rng_.below(9));
    plan_.loss = chance(0.5) ? 0.2 * rng_.unit() : 0;
    plan_.late = chance(0.5) ? 0.3 * rng_.unit() : 0;
    plan_.twice = chance(0.5) ? 0.2 * rng_.unit() : 0;
    plan_.death = chance(0.5) ? 0.04 : 0.002;
    plan_.has_witness = has_witness_ = chance(0.8);
  }

  void start_gang() {
    View first;
    first.epoch = stored_epoch_ = static_cast<std::int64_t>(1 + rng_.below(5));
    for (int slot = 0; slot < plan_.workers; ++slot) {
      first.seats.push_back(seat_of({slot, 0}));
      if (!has_domains_) first.seats.back().domain = kUnknownDomain;
    }
    by_epoch_[first.epoch] = {first, {}};
    for (const Seat& seat : first.seats) {
      add_node(seat.id, std::make_unique<Membership>(options_, seat, first, now_), kDigest);
    }
  }

  std::size_t any() { return rng_.below(nodes_.size()); }
  int any_slot() { return nodes_[any()]->id.slot; }

  void cut(int from, int to, milliseconds time) { cuts_[{from, to}] = now_ + time; }

  void fault() {
    const std::size_t index = any();
    Node& node = *nodes_[index];
    switch (rng_.below(14)) {
      case 0:
        return die(index, Life::kRefuses);
      case 1:
        return die(index, Life::kSilent);
      case 2:
      case 3:
        return lose_trainer(index);
      case 4:
        return freeze(index, span(50, 1'500));
      case 5:
        return cut_in_two();
      case 6: {
        ++result_.events["pair cut"];
        const int a = any_slot(), b = any_slot();
        const milliseconds time = span(200, 3'000);
        cut(a, b, time);
        return cut(b, a, time);
      }
      case 7:
        ++result_.events["one way cut"];
        return cut(any_slot(), any_slot(), span(200, 3'000));
      case 8:
        ++result_.events["isolated"];
        for (const auto& other : nodes_) {
          cut(node.id.slot, other->id.slot, milliseconds(1'500));
          if (rng_.below(2) == 0) cut(other->id.slot, node.id.slot, milliseconds(1'500));
        }
        return;
      case 9:
        return leave(index);
      case 10:
        return replace(static_cast<int>(nodes_.size()));
      case 11:
        return replace(static_cast<int>(rng_.below(nodes_.size() + 1)));
      case 12:
        return break_communicator(index);
      default:
        if (rng_.below(6) == 0) return leave_all();
        ++result_.events["witness toggled"];
        has_witness_ = !has_witness_;
    }
  }

  void lose_trainer(std::size_t index) {
    if (nodes_[index]->life != Life::kRuns || nodes_[index]->is_leaving) return;
    ++result_.events["trainer lost"];
    say("the trainer of " + text(nodes_[index]->id) + " dies");
    load_trainer(index);
  }

  void break_communicator(std::size_t index) {
    const std::int64_t epoch = nodes_[index]->told_epoch;
    if (epoch == 0) return;
    ++result_.events["communicator broken"];
    tell(index, [this, epoch](Membership& one) { one.broken(now_, epoch); });
  }

  void cut_in_two() {
    const std::uint64_t side = rng_();
    const milliseconds time = span(300, 3'000);
    bool is_any_cut = false;
    for (const auto& a : nodes_) {
      for (const auto& b : nodes_) {
        if ((side >> (a->id.slot % 60) & 1) != (side >> (b->id.slot % 60) & 1)) {
          cut(a->id.slot, b->id.slot, time);
          is_any_cut = true;
        }
      }
    }
    if (is_any_cut) ++result_.events["partition"];
  }

  void freeze(std::size_t index, milliseconds time) {
    Node& node = *nodes_[index];
    if (node.life != Life::kRuns) return;
    ++result_.events["frozen"];
    say(text(node.id) + " freezes");
    node.life = Life::kFrozen;
    at(time, [this, index] { thaw(index); });
  }

  void thaw(std::size_t index) {
    Node& node = *nodes_[index];
    if (node.life != Life::kFrozen) return;
    say(text(node.id) + " thaws");
    node.life = Life::kRuns;
    const auto inbox = std::exchange(node.inbox, {});
    if (rng_.below(2) == 0) tell(index, [this](Membership& one) { one.tick(now_); });
    for (const auto& one : inbox) one();
    schedule_tick(index);
  }

  void leave(std::size_t index) {
    Node& node = *nodes_[index];
    if (node.life != Life::kRuns || node.is_leaving) return;
    ++result_.events["leave"];
    say(text(node.id) + " wants to leave");
    node.is_leaving = true;
    if (!node.membership->is_member()) return end(index);
    tell(index, [this](Membership& one) { one.leave(now_); });
    // With the only whole copy of a split model somebody may wait for what never comes.
    if (options_.copy_processes == 1) return;
    at(kGrace, [this, index] {
      if (!nodes_[index]->lives()) return;
      ++result_.events["grace over"];
      end(index);
    });
  }

  void leave_all() {
    ++result_.events["all leave"];
    for (std::size_t i = 0; i < nodes_.size(); ++i) leave(i);
  }

  void calm() {
    is_faulty_ = false;
    has_witness_ = true;
    cuts_.clear();
    for (std::size_t i = 0; i < nodes_.size(); ++i) thaw(i);
    say("calm");
  }

  /// What is not yet as it must end: all who live in one view with all their trainers.
  std::string explain_unrest() {
    const Node* first = nullptr;
    for (const auto& one : nodes_) {
      if (!one->lives()) continue;
      if (first == nullptr) first = one.get();
      const View& view = one->membership->view();
      if (one->is_leaving) return text(one->id) + " has not left";
      if (!one->membership->is_member()) return text(one->id) + " is not in";
      if (view.epoch != first->membership->view().epoch) return text(one->id) + " lags";
      if (!one->is_ready) return "the trainer of " + text(one->id) + " is not ready";
      const Seat* seat = find_seat(view, one->id);
      if (seat->trainers != std::vector<TrainerPlace>{{0, one->incarnation, 1}}) {
        return "the trainer of " + text(one->id) + " is not in";
      }
    }
    if (first == nullptr) return "";
    for (const Seat& seat : first->membership->view().seats) {
      if (!find(seat.id)->lives()) return text(seat.id) + " is dead, and in";
    }
    return "";
  }

  Rng rng_;
  bool is_loud_;
  bool has_domains_;  ///< the gang begins with them
  bool tells_steps_;  ///< that are made, of whoever is alone or cut off, too
  MembershipOptions options_;
  MembershipResult result_;
  MembershipPlan plan_;
  MonoTime now_{seconds(1)};
  Events events_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::map<WorkerId, std::size_t> index_;
  std::map<std::pair<int, int>, MonoTime> cuts_;
  bool is_faulty_ = true, has_witness_ = true;
  AskWitness grant_{-1, -1, {}};
  std::int64_t stored_epoch_ = 0;
  std::map<std::int64_t, std::pair<View, std::set<std::size_t>>> by_epoch_, by_base_;
};

}  // namespace

MembershipResult run_membership_seed(std::uint64_t seed, bool is_loud, int workers) {
  World world(seed, is_loud);
  return world.run(workers);
}

}  // namespace muster::sim
