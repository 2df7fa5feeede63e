#include "common/http/client.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <mutex>
#include <optional>
#include <thread>

#include "common/http/exchange.h"
#include "common/log.h"

namespace muster::http {

namespace asio = boost::asio;

struct Client::Impl {
  std::mutex mutex;
  bool is_aborted = false;
  asio::io_context* current = nullptr;  ///< of the exchange under way; guarded by mutex
};

Client::Client() : impl_(std::make_unique<Impl>()) {}
Client::~Client() = default;

Result<Response> Client::exchange(const Call& call) {
  asio::io_context io(1);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->is_aborted) return Error(ErrorCode::kAborted, "the client was stopped");
    impl_->current = &io;
  }
  Result<Response> result =
      Error(ErrorCode::kAborted, "stopped while talking to " + call.url.substr(0, 256));
  try {
    auto exchange =
        Exchange::make(io, call, [&](Result<Response> outcome) { result = std::move(outcome); });
    if (exchange) {
      (*exchange)->start();
      io.run();
    } else {
      result = exchange.error();
    }
  } catch (const std::exception& thrown) {
    result = Error(ErrorCode::kInternal, std::string("http client: ") + thrown.what());
  }
  const std::lock_guard lock(impl_->mutex);
  impl_->current = nullptr;
  return result;
}

void Client::abort() {
  const std::lock_guard lock(impl_->mutex);
  impl_->is_aborted = true;
  if (impl_->current != nullptr) impl_->current->stop();
}

struct AsyncClient::Impl {
  explicit Impl(std::size_t in_flight_most)
      : in_flight_max(in_flight_most), work(io.get_executor()), thread([this] { run(); }) {}

  /// One more exchange, if there is room and the client goes on.
  Status enter() {
    const std::lock_guard lock(mutex);
    if (is_stopped) return Error(ErrorCode::kAborted, "the client was stopped");
    if (in_flight >= in_flight_max) {
      return Error(ErrorCode::kTooManyRequests,
                   std::to_string(in_flight_max) + " exchanges are under way already");
    }
    ++in_flight;
    return {};
  }
  void leave() {
    const std::lock_guard lock(mutex);
    --in_flight;
  }

  void run() {
    while (true) {
      try {
        io.run();
        return;
      } catch (const std::exception& thrown) {
        // Only a callback or a lack of memory can get here; the others go on.
        log_error("http client task failed", {{"error", thrown.what()}});
      }
    }
  }

  const std::size_t in_flight_max;
  std::mutex mutex;
  std::size_t in_flight = 0;  ///< guarded by mutex
  bool is_stopped = false;    ///< guarded by mutex
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::thread thread;
};

AsyncClient::AsyncClient(std::size_t in_flight_max)
    : impl_(std::make_unique<Impl>(in_flight_max)) {}
AsyncClient::~AsyncClient() { stop(); }

void AsyncClient::exchange(Call call, Done done) {
  if (const Status room = impl_->enter(); !room) return done(room.error());
  asio::post(impl_->io,
             [impl = impl_.get(), call = std::move(call), done = std::move(done)]() mutable {
               const auto finish = [impl, done](Result<Response> outcome) {
                 impl->leave();
                 done(std::move(outcome));
               };
               try {
                 auto exchange = Exchange::make(impl->io, call, finish);
                 if (!exchange) return finish(exchange.error());
                 (*exchange)->start();
               } catch (const std::exception& thrown) {
                 finish(Error(ErrorCode::kInternal, std::string("http client: ") + thrown.what()));
               }
             });
}

void AsyncClient::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->is_stopped) return;
    impl_->is_stopped = true;
  }
  impl_->work.reset();
  impl_->io.stop();
  impl_->thread.join();
}

}  // namespace muster::http
