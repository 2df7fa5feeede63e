// Entering a membership: what its members tell each other, where they all stand then, who gives the
// state to whom, and who finishes what of the step that was under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/sha256.h"
#include "worker/comm/communicator.h"
#include "worker/data/picture_files.h"
#include "worker/engine/assignment.h"
#include "worker/engine/hosts.h"
#include "worker/engine/record.h"
#include "worker/engine/shard.h"

namespace muster::engine {

/// Everything that a step leaves behind besides parameters and optimiser state. Fixed layout: it
/// crosses the wire between equal builds (the contract is checked at joining).
struct Standing {
  std::int64_t step = 0;  ///< steps done
  std::int64_t settled_step =
      0;  ///< up to where evaluations and checkpoints that were due are done
  std::int64_t evaluated_step = -1;
  std::int64_t checkpoint_step = -1;
  std::int64_t restored_step = -1;
  std::int64_t is_stopping = 0;  ///< 1: training ends here, on request
  double accuracy = -1;
  float evaluated_loss = 0;
  float loss = 0;  ///< of the last step
  /// How often all have gone back to a checkpoint because their copies were not alike.
  std::int64_t lineage = 0;
};

/// What a member says of itself.
struct Greeting {
  Standing standing;
  Sha256Digest spec{}, data{};      ///< equal for all; data: to train on and to test with
  bool is_checked = true;           ///< it knows its data; else that is to be told it
  bool has_state = false;           ///< parameters and optimiser state are of `standing.step`
  std::uint64_t record_bytes = 0;   ///< of lines that it keeps for the process with the files
  LineNumbers record_lines;         ///< of these; between them nothing is missing
  std::vector<RankRange> computed;  ///< nodes of the step after `standing.step` that it holds
  // Where the optimiser's state is sharded; what is not whole is of `held` alone.
  Ranges held;                     ///< whose optimiser state and parameters it has
  bool is_whole = true;            ///< all parameters are of `standing.step`
  std::optional<Standing> logged;  ///< where it can come to by itself: it has the gradients
  bool is_leaving = false;         ///< it was asked to, and is to keep nothing any more
  std::int64_t trained_epoch = 0;  ///< of the last membership that it has trained in; 0: none
  /// It came from there with all of that one, after a step that they have made together, and takes
  /// it for granted that they say what it says: see Greetings::foresee().
  bool foresees = false;
};

/// What must hold of a greeting's lists.
struct GreetingBounds {
  int logical_ranks = 1;
  std::size_t trained = 0;  ///< parameters that have optimiser state
};

/// What all members conclude from all greetings, each for itself.
struct EntryPlan {
  Standing standing;        ///< of all members from now on
  std::vector<int> source;  ///< by rank: who gives it the state; itself: it has it
  /// By rank: 1 for who is given the state while the others make the next step. It computes and
  /// owns nothing of that step, but is told what comes out of it.
  std::vector<std::uint8_t> learns;
  bool is_fresh = true;   ///< nobody holds anything of the next step
  Assignment assignment;  ///< of the next step alone
};

bool has_any_state(const std::vector<Greeting>& greetings);

/// A state that some have found wrong is nobody's any more, whoever has not heard of it: greetings
/// of an older lineage than the newest, which is returned, lose their state and what goes with it.
std::int64_t keep_newest_lineage(std::vector<Greeting>& greetings);

/// Pure; where the optimiser's state is sharded. Finds the newest step at which the members
/// together have everything, counting those who can make its update by themselves, and rewrites the
/// greetings as of that step: who is not there and cannot come there has no state. A step that
/// nobody has made the update of is not looked at: it can still be made anew by all, and those who
/// could make it keep the state before it. Without such a step nobody has a state.
std::vector<Greeting> at_newest_whole_step(std::size_t trained, std::vector<Greeting> greetings);

/// Pure; where the model is split, each copy between `stages` processes, whose greetings follow
/// each other. What a group says as one: it has the newest state that anybody stands at, or the
/// newest that one of its own does, if all its processes do, or can come to it by themselves; a
/// node of the next step it has where all of them do. Otherwise it has nothing: no copy can be put
/// together from parts of different steps.
std::vector<Greeting> greetings_of_groups(const std::vector<Greeting>& greetings, int stages);
/// The same where the optimiser's state of each part is sharded between the copies of its place, of
/// which `trained[place]` elements have one: of the newest step that some group has come to and at
/// which the groups have everything together, as at_newest_whole_step(). What they hold is that of
/// `place`.
std::vector<Greeting> greetings_of_sharded_groups(const std::vector<std::size_t>& trained,
                                                  int place,
                                                  const std::vector<Greeting>& greetings);
/// Errors: kConflict with an exit code: the processes of a group are about different things.
Status check_group(const std::vector<Greeting>& greetings, int stages, int group);

/// What the members bring, from such greetings.
std::vector<Keeper> keepers_of(const std::vector<Greeting>& greetings);

/// Pure; somebody has the state. Its holders are those with the most steps (they are at most one
/// step ahead of the other survivors, and their bits are what the others would have come to);
/// everybody else takes it from one of them, of its own host where there is one, in turn. Where
/// some of them have an evaluation or a checkpoint, all take it over. Errors: kConflict with an
/// exit code for a rank whose spec or data are not those of the state's holder.
Result<EntryPlan> plan_entry(int logical_ranks, const std::vector<Greeting>& greetings, int rank,
                             const Hosts& hosts = {});

/// Pure. Whether all who are behind may learn as `plan.learns` says: those who have the state were
/// training before, and nobody else has one that is to be kept until the newer one is whole.
bool may_learn(const EntryPlan& plan, const std::vector<Greeting>& greetings);
/// Makes learners of them.
void let_learn(EntryPlan& plan, int logical_ranks, const std::vector<Greeting>& greetings);

/// The greetings of a membership, while they are told.
class Greetings {
 public:
  Greetings(Greetings&&) noexcept;
  Greetings& operator=(Greetings&&) noexcept;
  ~Greetings();

  /// Tells the others `own`. Blocks: no. Errors: as Communicator::start. The communicator outlives
  /// it.
  static Result<Greetings> begin(comm::Communicator& communicator, const Greeting& own,
                                 const GreetingBounds& bounds);

  /// All of them by rank. Blocks: until `deadline`. Errors: as comm::Work::wait; kCorrupt when a
  /// greeting cannot be right; kAborted where somebody has foreseen what others do not say: no
  /// two of them would conclude the same.
  Result<std::vector<Greeting>> finish(MonoTime deadline);

  /// The same without a wait for those who have trained with this process: it goes on at once, and
  /// calls confirm() before the step is made. `newcomers` are all others. Nothing where one of them
  /// brings what everybody has to look at; then finish() is to be called. Blocks: for them.
  /// Requires that own.foresees, and that nothing is due of the others before confirm() but what
  /// begins in the same order whatever they have greeted with.
  Result<std::optional<std::vector<Greeting>>> foresee(std::span<const int> newcomers,
                                                       MonoTime deadline);
  /// Whether it was foreseen rightly: else kAborted. The newest checkpoint that anybody knows of.
  /// Blocks and other errors: as finish().
  Result<std::int64_t> confirm(MonoTime deadline);

 private:
  struct Told;
  explicit Greetings(std::unique_ptr<Told> told);
  std::unique_ptr<Told> told_;
};

/// One rank tells another.
struct Telling {
  int from = 0, to = 0;
};

/// Who is told by whom what is in its pictures: those who know it, of them those who train, each in
/// turn. Pure. Requires that somebody knows it.
std::vector<Telling> plan_checks(const std::vector<Greeting>& greetings);
/// Tells and takes what check_all() has found of `sets`, which are as large on all ranks. Blocks
/// and errors: as comm::Work::wait.
Status tell_checks(comm::Communicator& communicator, const std::vector<Telling>& tellings,
                   std::span<data::PictureFiles* const> sets, MonoTime deadline);

/// Who is told whose lines of the record. Pure. The process with the files, `owner`, is told those
/// of the one who has kept them for longest, and, where that lacks the newest, of one who has
/// these, however many keep the same. While it is away (-1), who takes the state from another takes
/// its lines, too: all who keep them may die but the one who came last. Lines of who has no state
/// are of steps that nobody has made; of who is given a newer one, those who give it have all.
std::vector<Telling> plan_telling(const EntryPlan& plan, const std::vector<Greeting>& greetings,
                                  int owner);
/// The lines that this process is told; `own` are those it keeps. Blocks and errors: as
/// comm::Work::wait.
Result<std::vector<std::string>> tell_records(comm::Communicator& communicator,
                                              const std::vector<Greeting>& greetings,
                                              const std::vector<Telling>& tellings,
                                              const std::string& own, MonoTime deadline);

/// Begins to move `state`, whose parts are as long on all ranks, from sources to the others as
/// `plan` says. Until the work is done, who gives leaves the state as it is, and who takes has
/// none.
struct StateTransfer {
  std::unique_ptr<comm::Work> work;
  std::uint64_t received_bytes = 0;  ///< of this rank, when it is done
};
Result<StateTransfer> transfer_state(comm::Communicator& communicator, const EntryPlan& plan,
                                     std::span<const std::span<std::byte>> state);

}  // namespace muster::engine
