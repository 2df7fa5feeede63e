// The way to the cluster for everything but local runs: the user's own kubectl, so that every login
// works that works there. Nothing here reads a kubeconfig.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/kube_process.h"
#include "common/clock.h"
#include "common/result.h"

namespace muster::cli {

/// What the user says about the cluster; passed on as it is.
struct KubectlFlags {
  std::string namespace_name;
  std::string context;
  std::string kubeconfig;
};

struct KubectlCall {
  std::vector<std::string> arguments;  ///< with the verb first
  std::string input;                   ///< its standard input
  bool has_input = false;
  milliseconds deadline{900'000};                   ///< of the whole call; 0 = none
  milliseconds silence{60'000};                     ///< longest without a word of it; 0 = any
  std::size_t max_output = std::size_t{256} << 20;  ///< bytes; more is an error
  bool ignores_interrupt = false;                   ///< as its kubectl does; for clearing up
  bool keeps_part = false;    ///< what it has printed counts, also when it then ends with an error
  bool tells_all = false;     ///< what it says on its errors is shown also where it succeeds
  bool is_namespaced = true;  ///< false: without the user's --namespace
};

/// kubectl's last words as an error of ours: code, exit code kCluster, one sentence.
Error explain_kubectl(const std::vector<std::string>& arguments, int exit_code,
                      std::string_view errors);

/// That it was given up after so long.
Error no_answer(const std::vector<std::string>& arguments, milliseconds length);

/// How far a call is.
struct KubectlProgress {
  MonoTime started;
  MonoTime heard;  ///< when it last said something, or could not because nobody listened
  bool has_output = false;
  bool has_words = false;  ///< for the user, on its errors: what a login waits for
};
struct KubectlLimit {
  MonoTime due;
  milliseconds length;
};
/// When a call is given up. A login that has said what it waits for has five minutes for it.
std::optional<KubectlLimit> limit_of(const KubectlCall& call, const KubectlProgress& progress);

/// Threads: one. Blocks: every call, until its limits.
class Kubectl {
 public:
  struct Setting {
    std::map<std::string, std::string> environment;  ///< muster's own; KUBECTL and PATH are used
    KubectlFlags flags;
    const Clock* clock = nullptr;
    /// A signalfd of SIGINT, SIGTERM and SIGHUP, which are blocked; -1: none.
    int signal_fd = -1;
  };
  /// Errors: kNotFound: there is no kubectl where $KUBECTL or PATH say.
  static Result<Kubectl> find(const Setting& setting);

  /// Its whole output. Errors: as explain_kubectl; kAborted (exit code kInterrupted) on a signal;
  /// kDeadlineExceeded; kTooLarge.
  Result<std::string> run(const KubectlCall& call);
  /// As run(), but hands the output on piece by piece. An error of `take` ends kubectl and is
  /// returned.
  Status stream(const KubectlCall& call, const std::function<Status(std::string_view)>& take);
  /// A kubectl that the caller listens to.
  Result<KubeProcess> start(const KubectlCall& call) const;

  const Clock& clock() const { return *setting_.clock; }
  int signal_fd() const { return setting_.signal_fd; }
  /// Takes a signal that has come; whether there was one since the start.
  bool take_signal();
  /// For whoever asks the cluster nothing more and has nothing to leave in order: from here on
  /// those signals end the process by themselves, also one that has come and was not taken.
  void let_signals_end() const;
  /// The namespace that kubectl would use, for sentences: the flag, else the context's own.
  std::string namespace_in_use();

 private:
  explicit Kubectl(const Setting& setting) : setting_(setting) {}
  Setting setting_;
  std::string program_;
  std::vector<std::string> environment_;
  bool was_interrupted_ = false;
  std::string namespace_;
};

/// "INTERRUPTED" as everything that a signal stops ends: exit code kInterrupted.
Error interrupted();

}  // namespace muster::cli
