// The operator as one object: watch threads, the loop thread that decides, the applier. `muster
// run` and muster-operator differ only in the transport, the authenticator and the pod options they
// give it.
#pragma once

#include <memory>
#include <string>

#include "common/clock.h"
#include "common/messages.h"
#include "common/result.h"
#include "operator/kube/api_client.h"
#include "operator/runtime/deciding_options.h"

namespace muster::runtime {

struct OperatorOptions : DecidingOptions {
  kube::ApiClient* client = nullptr;  ///< outlives the operator
  std::string namespace_name;         ///< watched namespace; empty = all
  /// Watches Kueue's Workloads where they are installed: why a gang is not admitted.
  bool sees_kueue = false;
};

class Operator {
 public:
  /// Starts all threads. Blocks: no.
  static Result<std::unique_ptr<Operator>> start(OperatorOptions options);
  virtual ~Operator() = default;

  /// Until every store is synced. Blocks: until then or `deadline`.
  virtual Status wait_synced(MonoTime deadline) = 0;
  /// A worker's report, given by the endpoint's callback; kept as the newest of its job and written
  /// to status by the progress budget. False: too much waits, and it is lost. Threads: any. Blocks:
  /// no.
  virtual bool post_progress(const ProgressReport& report) = 0;
  /// A worker's question to the witness, likewise; answered once it is decided and written, or
  /// refused at once when too much waits. Threads: any. Blocks: no.
  virtual void post_witness(const WitnessRequest& request, WitnessAnswer answer) = 0;
  /// Lets the operator decide from now on. Threads: any. Blocks: only while the mailbox is full.
  virtual void lead() = 0;
  /// Whether every store is synced; once true, always true. Threads: any.
  virtual bool synced() const = 0;
  /// When the deciding thread last came round. Threads: any.
  virtual MonoTime last_step() const = 0;
  /// Ends all threads; no write is begun after it was called. Blocks: until they have ended.
  virtual void stop() = 0;
};

}  // namespace muster::runtime
