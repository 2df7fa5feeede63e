// Every NCCL call is non-blocking and every wait polls with a deadline, because NCCL itself waits
// for lost peers for ever. Ids, streams and events do not leave this file.
#include "worker/comm/nccl_communicator.h"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>

#include "common/contract.h"

namespace muster::comm {
namespace {

// Neither NCCL nor an event wakes a thread, so they are asked this often. abort() wakes at once.
constexpr microseconds kAskAgain{20};
// How long the start of a group may hold up the next one (NCCL connects two ranks at their first
// transfer), and how long the last transfers may take to leave.
constexpr seconds kIssueFor{30};
constexpr seconds kFinalizeFor{5};

Error cuda_error(const char* call, cudaError_t error) {
  return Error(ErrorCode::kIo, std::string(call) + ": " + cudaGetErrorString(error))
      .with_exit_code(contract::exit_code::kDevice);
}

bool is_fine(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

// The state of one group on the stream.
struct Group {
  enum class Stage { kIssuing, kRunning, kDone };
  Stage stage = Stage::kIssuing;
  cudaEvent_t event = nullptr;
  Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    if (event != nullptr) static_cast<void>(cudaEventDestroy(event));
  }
};

class NcclCore {
 public:
  NcclCore(const NcclOptions& options)
      : rank_(options.host->rank()),
        size_(options.host->size()),
        device_(options.device),
        clock_(*options.clock) {}
  ~NcclCore();
  Status open(const NcclOptions& options);

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::uint64_t sent_bytes() const { return sent_bytes_.load(std::memory_order_relaxed); }
  Result<std::shared_ptr<Group>> start(std::span<const SendBuffer> sends,
                                       std::span<const ReceiveBuffer> receives);
  Status wait(Group& group, MonoTime deadline);
  void abort(const std::string& why);
  void abandon(const Group& group);

 private:
  using Lock = std::unique_lock<std::mutex>;
  Status settle(Lock& lock, MonoTime deadline, const char* what);
  Status finish_issuing(Lock& lock, Group& group, MonoTime deadline);
  ncclResult_t issue(std::span<const SendBuffer> sends, std::span<const ReceiveBuffer> receives);
  Error fail(ErrorCode code, const std::string& message);
  Error fail_nccl(const char* what, ncclResult_t result);

  const int rank_;
  const int size_;
  const int device_;
  const Clock& clock_;
  std::atomic<std::uint64_t> sent_bytes_{0};

  std::mutex mutex_;
  // All below: under mutex_.
  std::condition_variable aborted_;
  ncclComm_t comm_ = nullptr;  // nullptr once aborted
  cudaStream_t stream_ = nullptr;
  std::shared_ptr<Group> issuing_;
  std::optional<Error> failure_;
};

// A new thread has no device, and every CUDA call is about the current one.
Status use_device(int device) {
  const cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) return {};
  return Error(ErrorCode::kUnsupported,
               "GPU " + std::to_string(device) + ": " + cudaGetErrorString(error))
      .with_exit_code(contract::exit_code::kDevice);
}

Status NcclCore::open(const NcclOptions& options) {
  MUSTER_RETURN_IF_ERROR(use_device(device_));
  ncclUniqueId id{};
  if (rank_ == 0) {
    const ncclResult_t made = ncclGetUniqueId(&id);
    if (made != ncclSuccess) return fail_nccl("make NCCL's id", made);
  }
  MUSTER_RETURN_IF_ERROR(broadcast(*options.host, 0, 0, std::as_writable_bytes(std::span(&id, 1)),
                                   options.connect_deadline));
  Lock lock(mutex_);
  const cudaError_t made = cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking);
  if (made != cudaSuccess) return cuda_error("create a stream", made);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t begun = ncclCommInitRankConfig(&comm_, size_, id, rank_, &config);
  if (!is_fine(begun)) return fail_nccl("connect the GPUs", begun);
  return settle(lock, options.connect_deadline, "connect the GPUs");
}

NcclCore::~NcclCore() {
  Lock lock(mutex_);
  if (comm_ != nullptr && is_fine(ncclCommFinalize(comm_)) &&
      settle(lock, clock_.mono_now() + kFinalizeFor, "finalize")) {
    ncclCommDestroy(comm_);
    comm_ = nullptr;
  }
  if (comm_ != nullptr) ncclCommAbort(comm_);
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(stream_));
}

/// Until NCCL has no call in progress. An error has failed the communicator.
Status NcclCore::settle(Lock& lock, MonoTime deadline, const char* what) {
  while (true) {
    if (failure_) return *failure_;
    ncclResult_t state = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &state);
    if (asked != ncclSuccess) return fail_nccl(what, asked);
    if (state == ncclSuccess) return {};
    if (state != ncclInProgress) return fail_nccl(what, state);
    if (clock_.mono_now() >= deadline) {
      return fail(ErrorCode::kDeadlineExceeded, std::string(what) + ": not done by the deadline");
    }
    aborted_.wait_for(lock, kAskAgain);
  }
}

ncclResult_t NcclCore::issue(std::span<const SendBuffer> sends,
                             std::span<const ReceiveBuffer> receives) {
  ncclResult_t result = ncclGroupStart();
  for (const SendBuffer& send : sends) {
    if (send.bytes == 0 || !is_fine(result)) continue;
    result = ncclSend(send.data, send.bytes, ncclUint8, send.peer, comm_, stream_);
    sent_bytes_.fetch_add(send.bytes, std::memory_order_relaxed);
  }
  for (const ReceiveBuffer& receive : receives) {
    if (receive.bytes == 0 || !is_fine(result)) continue;
    result = ncclRecv(receive.data, receive.bytes, ncclUint8, receive.peer, comm_, stream_);
  }
  // The group is closed after an error too, or the next one would go on inside it.
  const ncclResult_t ended = ncclGroupEnd();
  return is_fine(result) ? ended : result;
}

Result<std::shared_ptr<Group>> NcclCore::start(std::span<const SendBuffer> sends,
                                               std::span<const ReceiveBuffer> receives) {
  const auto is_peer = [&](int peer) { return peer >= 0 && peer < size_ && peer != rank_; };
  for (const SendBuffer& send : sends) MUSTER_CHECK(is_peer(send.peer));
  for (const ReceiveBuffer& receive : receives) MUSTER_CHECK(is_peer(receive.peer));
  MUSTER_RETURN_IF_ERROR(use_device(device_));
  Lock lock(mutex_);
  if (failure_) return *failure_;
  if (const auto before = std::move(issuing_); before != nullptr) {
    MUSTER_RETURN_IF_ERROR(finish_issuing(lock, *before, clock_.mono_now() + kIssueFor));
  }
  auto group = std::make_shared<Group>();
  const cudaError_t made = cudaEventCreateWithFlags(&group->event, cudaEventDisableTiming);
  if (made != cudaSuccess) return cuda_error("create an event", made);
  const ncclResult_t issued = issue(sends, receives);
  if (!is_fine(issued)) return fail_nccl("start a group of transfers", issued);
  issuing_ = group;
  return group;
}

/// The event may stand on the stream only after NCCL has put its kernels there.
Status NcclCore::finish_issuing(Lock& lock, Group& group, MonoTime deadline) {
  if (group.stage != Group::Stage::kIssuing) return {};
  MUSTER_RETURN_IF_ERROR(settle(lock, deadline, "start a group of transfers"));
  const cudaError_t recorded = cudaEventRecord(group.event, stream_);
  if (recorded != cudaSuccess) {
    return fail(ErrorCode::kIo, cuda_error("record an event", recorded).message());
  }
  group.stage = Group::Stage::kRunning;
  return {};
}

Status NcclCore::wait(Group& group, MonoTime deadline) {
  MUSTER_RETURN_IF_ERROR(use_device(device_));
  Lock lock(mutex_);
  while (group.stage != Group::Stage::kDone) {
    if (failure_) return *failure_;
    MUSTER_RETURN_IF_ERROR(finish_issuing(lock, group, deadline));
    const cudaError_t state = cudaEventQuery(group.event);
    if (state == cudaSuccess) {
      group.stage = Group::Stage::kDone;
      break;
    }
    if (state != cudaErrorNotReady) {
      return fail(ErrorCode::kIo, cuda_error("wait for transfers", state).message());
    }
    // A lost peer shows here, while the kernels on the stream wait for it.
    ncclResult_t remote = ncclSuccess;
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &remote);
    if (asked != ncclSuccess || !is_fine(remote)) {
      return fail_nccl("transfer", asked != ncclSuccess ? asked : remote);
    }
    if (clock_.mono_now() >= deadline) {
      return fail(ErrorCode::kDeadlineExceeded, "transfers are not complete by the deadline");
    }
    aborted_.wait_for(lock, kAskAgain);
  }
  return {};
}

Error NcclCore::fail(ErrorCode code, const std::string& message) {
  if (!failure_) {
    failure_.emplace(code, message);
    issuing_.reset();
    // Ends the kernels that wait on the stream; the buffers are the caller's again afterwards.
    if (comm_ != nullptr) ncclCommAbort(comm_);
    comm_ = nullptr;
    aborted_.notify_all();
  }
  return *failure_;
}

Error NcclCore::fail_nccl(const char* what, ncclResult_t result) {
  return fail(ErrorCode::kAborted, std::string(what) + ": " + ncclGetErrorString(result));
}

void NcclCore::abort(const std::string& why) {
  const Lock lock(mutex_);
  static_cast<void>(fail(ErrorCode::kAborted, why));
}

void NcclCore::abandon(const Group& group) {
  const Lock lock(mutex_);
  if (group.stage != Group::Stage::kDone) {
    static_cast<void>(
        fail(ErrorCode::kAborted, "a group of transfers was given up before it was complete"));
  }
}

class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<NcclCore> core, std::shared_ptr<Group> group)
      : core_(std::move(core)), group_(std::move(group)) {}
  ~NcclWork() override { core_->abandon(*group_); }
  Status wait(MonoTime deadline) override { return core_->wait(*group_, deadline); }

 private:
  std::shared_ptr<NcclCore> core_;
  std::shared_ptr<Group> group_;
};

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(std::shared_ptr<NcclCore> core) : core_(std::move(core)) {}
  int rank() const override { return core_->rank(); }
  int size() const override { return core_->size(); }
  std::uint64_t sent_bytes() const override { return core_->sent_bytes(); }
  void abort() override { core_->abort("abort() was called"); }
  Result<std::unique_ptr<Work>> start_on(int /*channel*/, std::uint64_t /*step*/, Memory memory,
                                         std::span<const SendBuffer> sends,
                                         std::span<const ReceiveBuffer> receives) override {
    if (memory != Memory::kCuda) {
      return Error(ErrorCode::kUnsupported, "the NCCL transport moves device memory only");
    }
    auto group = core_->start(sends, receives);
    if (!group) return group.error();
    return std::unique_ptr<Work>(std::make_unique<NcclWork>(core_, *std::move(group)));
  }

 private:
  std::shared_ptr<NcclCore> core_;
};

}  // namespace

Result<std::unique_ptr<Communicator>> make_nccl_communicator(const NcclOptions& options) {
  MUSTER_CHECK(options.host != nullptr && options.clock != nullptr);
  auto core = std::make_shared<NcclCore>(options);
  if (const Status opened = core->open(options); !opened) {
    return opened.error().with("NCCL rank " + std::to_string(core->rank()));
  }
  return std::unique_ptr<Communicator>(std::make_unique<NcclCommunicator>(std::move(core)));
}

}  // namespace muster::comm
