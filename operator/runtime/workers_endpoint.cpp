#include "operator/runtime/workers_endpoint.h"

#include "common/contract.h"
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "operator/runtime/endpoint_handler.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kForwardsMax = 128;
/// Less than a worker waits for its own post.
constexpr milliseconds kForwardTimeout{4'000};
/// A complete gang's answer names all its workers.
constexpr std::size_t kMaxAnswerBytes = std::size_t{16} * 1024 * 1024;

http::Response unavailable(const std::string& message) {
  http::Response response;
  response.status = 503;
  response.body = dump_json(Json{{"reason", "Unavailable"}, {"message", message}});
  return response;
}

/// What the leader said, for the worker: its status and body; of its headers the one that matters.
http::Response passed_on(http::Response&& answer) {
  http::Response response;
  response.status = answer.status;
  response.content_type = std::move(answer.content_type);
  response.body = std::move(answer.body);
  for (auto& [name, value] : answer.headers) {
    if (name == "retry-after") response.headers.emplace_back("Retry-After", std::move(value));
  }
  return response;
}

class HttpWorkersEndpoint final : public WorkersEndpoint {
 public:
  ~HttpWorkersEndpoint() override { stop(); }

  Status start(WorkersEndpointOptions options) {
    http::ServerOptions server_options;
    server_options.address = options.address;
    server_options.port = options.port;
    server_options.tls = options.tls;
    server_options.body_bytes_max = contract::kEndpointMaxBodyBytes;
    EndpointHandler::Forward forward;
    if (options.leader_address) {
      MUSTER_CHECK(options.ca_bundle && options.tls);
      ca_bundle_ = options.ca_bundle;
      client_ = std::make_unique<http::AsyncClient>(kForwardsMax);
      forward = [this](const http::Request& request, const std::string& address,
                       const http::Responder& respond) { hand_on(request, address, respond); };
    }
    handler_ = std::make_unique<EndpointHandler>(
        std::move(options),
        [this](milliseconds delay, std::function<void()> task) {
          server_->run_after(delay, std::move(task));
        },
        std::move(forward));
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
  Status replace_identity(const http::TlsIdentity& identity) override {
    return server_->replace_identity(identity);
  }
  void set_gang(GangInfo gang) override { handler_->set_gang(std::move(gang)); }
  void remove_gang(const std::string& job) override { handler_->remove_gang(job); }
  void stop() override {
    if (!server_) return;
    handler_->stop();
    server_->stop();
    if (client_) client_->stop();
  }

 private:
  void hand_on(const http::Request& request, const std::string& address,
               const http::Responder& respond) {
    http::Call call;
    call.method = request.method;
    call.url = "https://" + address + request.path;
    call.body = request.body;
    call.bearer_token = std::string(request.bearer_token());
    call.headers = {{std::string(contract::kHeaderForwarded), "1"}};
    call.ca_certificate = ca_bundle_();
    call.server_name = contract::kServiceEndpoint;
    call.timeout = kForwardTimeout;
    call.body_bytes_max = kMaxAnswerBytes;
    client_->exchange(std::move(call), [respond](Result<http::Response> answer) {
      if (answer) return respond(passed_on(std::move(*answer)));
      respond(unavailable("the leading replica does not answer: " + answer.error().message()));
    });
  }

  std::mutex starting_;
  std::function<std::string()> ca_bundle_;
  std::unique_ptr<http::AsyncClient> client_;
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
