// The trainer's side of membership: which trainers make the next steps together. Who belongs is
// agreed by the sentinels; the engine only follows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "common/sha256.h"
#include "worker/comm/communicator.h"

namespace muster::engine {

/// One membership, with the number that the sentinels agreed on.
struct View {
  std::int64_t epoch = 0;
  int rank = -1;           ///< own place among the members; -1: not one of them any more
  std::vector<int> slots;  ///< by rank: the worker it belongs to
  /// By rank: the process' number among all that the job may have, whoever is there; ascending.
  /// Empty: the rank.
  std::vector<int> numbers{};
  /// By rank: what it is lost together with (ShardPlan::domains); empty: of none.
  std::vector<std::uint64_t> domains{};
  bool stop = false;  ///< all stop at the boundary where they enter, with a checkpoint
  int size() const { return static_cast<int>(slots.size()); }
  int number_of(int of) const {
    return numbers.empty() ? of : numbers.at(static_cast<std::size_t>(of));
  }
};

/// How a trainer came into a membership.
struct Entry {
  std::int64_t epoch = 0;
  std::int64_t step = 0;          ///< the step that all members stand at
  int recomputed = 0;             ///< logical ranks of the next step that somebody else had done
  std::uint64_t state_bytes = 0;  ///< received from another member
  double stall_seconds = 0;       ///< from the last finished work until here
  /// Why the members have gone back to a checkpoint to get here; empty where they have not.
  std::string returned;
  std::int64_t returned_from = 0;  ///< the step that they stood at before
};

/// What must be equal for all: spec and data.
struct Subject {
  Sha256Digest outline{};                ///< as far as it is known before pictures are decoded
  std::optional<Sha256Digest> contents;  ///< of all data, once it is known
};

/// Threads: one.
class Membership {
 public:
  virtual ~Membership() = default;

  /// Data is loaded and the first state is made. Again when more is known of the subject.
  virtual void ready(const Subject& subject) = 0;

  /// The newest view after epoch `after`. Blocks: until there is one, however long it takes: who
  /// waits may be the last that has the state, which would be lost with its process. Errors carry
  /// an exit code: nobody is left who could make one.
  /// With a `deadline`, for who has no state, it is kPeerLost then.
  virtual Result<View> next(std::int64_t after, std::optional<MonoTime> deadline) = 0;

  /// The epoch of a newer view that this process can enter without a wait: its members are
  /// connected with it, or it is none of them. 0: there is none. When all members of the present
  /// view name the same, they enter it at the next step boundary; until this is called again they
  /// can, unless somebody is lost. Called in every step. Does not block. Errors carry an exit code:
  /// this process will never be able to enter any.
  virtual Result<std::int64_t> prepared_epoch() = 0;

  /// The view that prepared_epoch() named last, to be connected and entered now; nothing when
  /// somebody was lost since: see what next() says.
  virtual std::optional<View> prepared(std::int64_t epoch) = 0;

  /// Whether this process belongs to the view that prepared_epoch() named last, or, where somebody
  /// was lost since, to the newest one.
  virtual bool is_staying() const = 0;

  /// The same, and to the newest view that it has been told of: before the one that is prepared is
  /// entered all may pass it over, and who is out of a newer one leaves with no other step.
  virtual bool will_stay() const { return is_staying(); }

  /// Whether this process's worker was asked to leave, though no view may be without it yet. Does
  /// not block.
  virtual bool is_leaving() const { return false; }
  /// In the view `epoch`, which was entered last: who is asked to leave of the workers in `slots`
  /// takes nothing along that those who stay have not got, or that all have not agreed on, if it is
  /// to save it. Again when that changes; with each entry it is nobody again.
  virtual void spares(std::int64_t epoch, const std::vector<int>& slots) {
    static_cast<void>(epoch);
    static_cast<void>(slots);
  }

  /// Whether a newer view than the present one stops all: what takes long and can be left to
  /// whoever goes on is better ended. Called between the parts of such work. Does not block.
  virtual bool is_stop_near() const { return false; }

  /// The members of `view`, connected. It is aborted from elsewhere as soon as a member of it is
  /// known to be gone. Blocks: not for a view of prepared(), else until connected, or until a newer
  /// view makes it pointless. Errors: as make_tcp_communicator; all of them mean: see what next()
  /// says.
  virtual Result<std::unique_ptr<comm::Communicator>> connect(const View& view) = 0;

  /// The members of `epoch` cannot go on together.
  virtual void broken(std::int64_t epoch, const Error& why) = 0;
  virtual void entered(const Entry& entry) = 0;
  /// The members of `epoch` are connected, and this process makes no step in it: it waits for a
  /// view with those who are missing.
  enum class Missing {
    kCopy,   ///< others that have one copy of the model with it
    kFiles,  ///< the process that keeps the files
    kState,  ///< the same, and nobody has a state until it comes
  };
  virtual void waits(std::int64_t epoch, Missing missing) = 0;
};

/// A membership that never changes, over one communicator: its first failure is the end.
class FixedMembership final : public Membership {
 public:
  /// `communicator` outlives it.
  explicit FixedMembership(comm::Communicator& communicator) : communicator_(communicator) {}
  void ready(const Subject&) override {}
  Result<View> next(std::int64_t after, std::optional<MonoTime> deadline) override;
  Result<std::int64_t> prepared_epoch() override { return 0; }
  std::optional<View> prepared(std::int64_t) override { return std::nullopt; }
  bool is_staying() const override { return true; }
  Result<std::unique_ptr<comm::Communicator>> connect(const View& view) override;
  void broken(std::int64_t epoch, const Error& why) override;
  void entered(const Entry&) override {}
  void waits(std::int64_t, Missing) override {}

 private:
  static constexpr std::int64_t kEpoch = 1;
  comm::Communicator& communicator_;
  std::unique_ptr<Error> failure_;
};

}  // namespace muster::engine
