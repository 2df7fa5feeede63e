// The commands that talk to a cluster, as parts of the command line: flags, help, and what to run.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "common/clock.h"

namespace CLI {
class App;
}

namespace muster::cli {

/// What main knows about the process.
struct KubeEnvironment {
  std::map<std::string, std::string> variables;
  const Clock* clock = nullptr;
  int signal_fd = -1;  ///< as Kubectl::Setting's
  bool stdout_is_terminal = false;
  std::size_t width = 0;  ///< of the terminal, in columns; 0: not known
};

class KubeCommands {
 public:
  /// Adds get, describe, logs, suspend, resume, fetch and plan to `app`. Keep it until run().
  explicit KubeCommands(CLI::App& app);
  ~KubeCommands();
  KubeCommands(const KubeCommands&) = delete;
  KubeCommands& operator=(const KubeCommands&) = delete;

  /// Whether one of them was given.
  bool is_chosen() const;
  /// Whether it starts no kubectl: then nothing asks for signals, and they must end it by
  /// themselves.
  bool is_offline() const;
  /// Runs it and returns the exit code. Blocks: on the cluster.
  int run(const KubeEnvironment& environment);

 private:
  struct Options;
  std::unique_ptr<Options> options_;
};

}  // namespace muster::cli
