// A "kubelet" that starts pods as processes of this machine: for `muster run`. It registers one
// node, runs the `worker` container of every pod bound to it, watches it, stops it with SIGTERM and
// after the grace period SIGKILL, and reports phase, exit code, signal and termination message as a
// node would. It is also the scheduler of that node: a pod whose required node it is gets bound.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/result.h"
#include "operator/kube/api_client.h"

namespace muster::embedded {

struct ProcessKubeletOptions {
  kube::ApiClient* client = nullptr;         ///< outlives the kubelet
  kube::HttpTransport* transport = nullptr;  ///< of bindings, which a client does not make
  const Clock* clock = nullptr;              ///< outlives the kubelet
  std::string node_name = "local";
  /// What the node offers; a laptop shares its processors, so cpu may be more than it has.
  std::map<std::string, std::string> allocatable;
  /// What CUDA_VISIBLE_DEVICES calls the node's GPUs. A program of a pod's own that asks for some
  /// sees those that no other such program has.
  std::vector<std::string> gpus;
  /// Program run for pods of the built-in image; others run their own command.
  std::string worker_program;
  std::map<std::string, std::string> base_environment;  ///< of every process, under the pod's own
  std::vector<std::pair<std::string, std::string>> extra_env;  ///< over the pod's own
  /// Last word on a program's environment; empty = none. Called on the kubelet's thread.
  std::function<void(std::map<std::string, std::string>&)> adapt_environment;
  std::string log_directory;                          ///< one file per pod: <pod name>.log
  std::string working_directory;                      ///< of every process
  std::size_t log_bytes_max = std::size_t{16} << 20;  ///< of a pod's log; one older file is kept
};

class ProcessKubelet {
 public:
  static Result<std::unique_ptr<ProcessKubelet>> start(ProcessKubeletOptions options);
  virtual ~ProcessKubelet() = default;
  /// Process ids of the running pods by pod name; each leads a process group of its own.
  virtual std::map<std::string, int> running() const = 0;
  /// Stops every process (SIGTERM, then SIGKILL after `grace`) and all threads. No process outlives
  /// this.
  virtual void stop(milliseconds grace) = 0;
};

}  // namespace muster::embedded
