// What the metrics say about jobs, as plain data: series are made of it only when somebody scrapes,
// so that a thousand jobs cost little in between.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/messages.h"
#include "operator/api/training_job.h"

namespace muster::runtime {

/// Threads: one at a time.
class JobBook {
 public:
  struct Now {
    MonoTime mono;
    WallTime wall;
  };

  /// Gives the seconds from creation (or resumption) until all workers run, once, when that is
  /// seen to happen. `queue`: the TrainingQueue, one that is there, that gives the job its turn;
  /// empty: none.
  std::optional<double> add(const api::TrainingJob& job, std::string_view queue, Now now);
  void add(const api::ObjectKey& key, const ProgressReport& report, Now now);
  void add(const api::ObjectKey& key, const api::JobCost& cost);
  void remove(const api::ObjectKey& key) { jobs_.erase(key); }

  /// The families of all jobs in the text format. Of jobs that ended longer ago than
  /// kEndedShown there is only what they came to: thousands may be kept, and each costs a scrape
  /// forty series.
  std::string render(Now now) const;
  static constexpr seconds kEndedShown{15 * 60};

 private:
  struct Job {
    std::string uid;
    bool is_training = false;
    bool saves = false;  ///< its spec asks for checkpoints
    int batch_size = 0;
    // Of words that are always there: every page is made of a copy.
    std::vector<std::pair<std::string_view, std::string_view>> conditions;  ///< type, status
    std::string_view phase;
    std::string_view awaits;  ///< while it is pending: what comes next
    std::string failure;
    int workers = 0, target_workers = 0, restarts = 0;
    api::TakenBack taken_back;
    std::optional<double> cost;  ///< absent: not known
    std::string currency;
    std::int64_t total_steps = 0;
    std::optional<std::int64_t> step;
    std::int64_t most_steps = 0;  ///< the furthest that any attempt came
    std::int64_t checkpoint_step = -1;
    std::int64_t written_checkpoint_step = -1;  ///< in the status that was seen last
    WallTime checkpoint_at{}, progress_at{};
    MonoTime phase_since{}, pending_since{}, reported_at{};
    std::map<std::string_view, double> phase_seconds;
    double productive_seconds = 0;
    std::int64_t repeated_steps = 0;
    int start_attempt = -1;  ///< that the gang last started with; negative = not known
    int attempt = -1;        ///< likewise, of the newest report
    /// The newest return to a checkpoint within an attempt: the membership and the step that it
    /// went on in and from, and the step known then. Until that is passed, a lower step is no old
    /// one.
    struct Return {
      std::int64_t epoch = -1, step = -1, known_step = -1;
    } returned;
    std::optional<MonoTime> ended_at;
    /// Since when its workers are awaited; absent once they ran, or when that was not seen.
    std::optional<MonoTime> wanted_since;

    bool is_true(std::string_view type) const;
    bool is_pending() const;
    bool is_past(MonoTime now) const { return ended_at && now - *ended_at > kEndedShown; }
    bool is_behind_return() const { return step && *step <= returned.known_step; }
    void go_back(const ProgressReport& report);
    void skip_returns(const ProgressReport& report);
  };

  class Page;
  struct Family {
    std::string_view name;
    const char* help;
    bool is_counter;
    bool is_of_past = false;  ///< also of jobs that ended long ago
  };

  /// Whether it is the one that speaks for all: the lowest slot that trains.
  static bool speaks(const Job& job, const ProgressReport& report);
  static void take_status(Job& job, const api::TrainingJob& seen, Now now);

  template <typename Add>
  void each(Page& page, const Family& family, Add&& add) const;
  void render_state(Page& page) const;
  void render_checkpoint(Page& page) const;
  void render_times(Page& page) const;

  std::map<api::ObjectKey, Job> jobs_;
};

}  // namespace muster::runtime
