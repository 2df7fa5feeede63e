#include "operator/runtime/workers_endpoint.h"

#include "common/contract.h"
#include "common/http/server.h"
#include "operator/runtime/endpoint_handler.h"

namespace muster::runtime {
namespace {

class HttpWorkersEndpoint final : public WorkersEndpoint {
 public:
  ~HttpWorkersEndpoint() override { stop(); }

  Status start(WorkersEndpointOptions options) {
    http::ServerOptions server_options;
    server_options.address = options.address;
    server_options.port = options.port;
    server_options.body_bytes_max = contract::kEndpointMaxBodyBytes;
    handler_ = std::make_unique<EndpointHandler>(
        std::move(options), [this](milliseconds delay, std::function<void()> task) {
          server_->run_after(delay, std::move(task));
        });
    // Requests wait for the pointer below: the first may arrive before start() has returned.
    const std::lock_guard lock(starting_);
    auto server = http::Server::start(
        server_options, [this](const http::Request& request, const http::Responder& respond) {
          {
            const std::lock_guard wait(starting_);
          }
          handler_->handle(request, respond);
        });
    if (!server) return server.error().with("workers' endpoint");
    server_ = std::move(*server);
    return {};
  }

  std::string url() const override { return server_->url(); }
  void set_gang(GangInfo gang) override { handler_->set_gang(std::move(gang)); }
  void remove_gang(const std::string& job) override { handler_->remove_gang(job); }
  void stop() override {
    if (!server_) return;
    handler_->stop();
    server_->stop();
  }

 private:
  std::mutex starting_;
  std::unique_ptr<EndpointHandler> handler_;
  std::unique_ptr<http::Server> server_;
};

}  // namespace

Result<std::unique_ptr<WorkersEndpoint>> make_workers_endpoint(WorkersEndpointOptions options) {
  auto endpoint = std::make_unique<HttpWorkersEndpoint>();
  MUSTER_RETURN_IF_ERROR(endpoint->start(std::move(options)));
  return std::unique_ptr<WorkersEndpoint>(std::move(endpoint));
}

}  // namespace muster::runtime
