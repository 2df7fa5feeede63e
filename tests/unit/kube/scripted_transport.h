// A transport that answers from a script and remembers what it was asked.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "operator/kube/http_transport.h"

namespace muster::kube::test {

class ScriptedTransport final : public HttpTransport {
 public:
  std::deque<Result<HttpResponse>> answers;
  std::vector<HttpRequest> requests;

  void answer(int code, std::string body) {
    HttpResponse response;
    response.code = code;
    response.body = std::move(body);
    answers.emplace_back(std::move(response));
  }

  Result<HttpResponse> send(const HttpRequest& request) override {
    requests.push_back(request);
    MUSTER_CHECK(!answers.empty());
    auto answer = std::move(answers.front());
    answers.pop_front();
    return answer;
  }

  Result<Stream> open_stream(const HttpRequest& request) override {
    MUSTER_ASSIGN_OR_RETURN(HttpResponse head, send(request));
    return Stream{std::move(head), nullptr};
  }
};

}  // namespace muster::kube::test
