// A kubectl of the user's as a child: its output and errors on two pipes. It stays in muster's
// process group and keeps its terminal, because logins may ask there; it dies with muster.
#pragma once

#include <poll.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.h"
#include "common/file.h"
#include "common/result.h"

namespace muster::cli {

struct KubeProcessSpec {
  std::string program;                   ///< path of the program
  std::vector<std::string> arguments;    ///< without the program's name
  std::vector<std::string> environment;  ///< "NAME=value"
  std::string input;                     ///< its standard input
  bool has_input = false;                ///< false: it inherits muster's
  /// SIGINT and SIGHUP, which a terminal sends to all of muster's process group, do not end it.
  bool ignores_interrupt = false;
};

/// It is over once its program has ended and both pipes are closed, or the program has ended and
/// for kEndGrace no more output came: what it leaves behind (ssh's ControlPersist, a login's
/// browser, a tunnel) may keep the pipes open for days. All that lay in them at its end is taken,
/// and the grace is for helpers that pass its words on, as a wrapper's `2> >(grep -v noise >&2)`.
///
/// Threads: one; the process is killed when the thread that started it ends.
class KubeProcess {
 public:
  static constexpr milliseconds kEndGrace{500};
  static constexpr std::size_t kMostErrors = std::size_t{16} << 10;  ///< bytes; more is dropped

  /// Blocks: until the program is being run (milliseconds). Errors: kIo with the system's words.
  static Result<KubeProcess> start(const KubeProcessSpec& spec);
  KubeProcess(KubeProcess&& other) noexcept;
  KubeProcess& operator=(KubeProcess&& other) noexcept;
  /// Kills a process that still runs.
  ~KubeProcess() { kill_and_reap(); }

  /// For poll(): once one of these is ready, hear() has something to do. The output comes first.
  std::array<pollfd, 3> waits() const;
  /// When hear() has something to do although none of them is ready.
  std::optional<MonoTime> due() const;

  struct Words {
    std::string_view output;  ///< in the buffer
    bool has_errors = false;  ///< there were some
    bool is_silent() const { return output.empty() && !has_errors; }
  };
  /// What it has said since the last time; of the output as much as fits into `buffer`, and with an
  /// empty one nothing, which holds the program back. Blocks: no.
  Words hear(MonoTime now, std::span<char> buffer);
  const std::string& errors() const { return words_; }  ///< the beginning of all of them
  /// Of one that is over, all of which was heard; 128 + signal when a signal ended it.
  std::optional<int> exit_code() const { return is_over_ ? exit_code_ : std::nullopt; }

 private:
  KubeProcess() = default;
  void reap();
  void kill_and_reap();

  int pid_ = -1;  ///< -1: reaped
  UniqueFd pidfd_, output_, errors_;
  std::string words_;
  std::optional<int> exit_code_;
  MonoTime quiet_since_;  ///< of one that has ended: then, or when its output last had something
  bool is_over_ = false;
};

}  // namespace muster::cli
