#include "operator/runtime/metrics_transport.h"

#include "common/check.h"

namespace muster::runtime {
namespace {

class Measured final : public kube::HttpTransport {
 public:
  explicit Measured(MeasuredTransport options) : options_(std::move(options)) {}

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const MonoTime before = options_.clock->mono_now();
    auto response = options_.inner->send(request);
    tell(request, response ? response->code : 0, before);
    return response;
  }

  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    const MonoTime before = options_.clock->mono_now();
    auto stream = options_.inner->open_stream(request);
    tell(request, stream ? stream->head.code : 0, before);
    return stream;
  }

 private:
  void tell(const kube::HttpRequest& request, int code, MonoTime before) {
    const std::chrono::duration<double> took = options_.clock->mono_now() - before;
    options_.metrics->on_rest({request.method, options_.host, code, took.count()});
  }

  MeasuredTransport options_;
};

}  // namespace

std::unique_ptr<kube::HttpTransport> make_measured_transport(MeasuredTransport options) {
  MUSTER_CHECK(options.inner != nullptr && options.metrics != nullptr && options.clock != nullptr);
  return std::make_unique<Measured>(std::move(options));
}

}  // namespace muster::runtime
