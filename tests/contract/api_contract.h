// What Muster relies on in an API server, as tests that know nothing but HTTP. The same objects are
// linked into one program per server; the program supplies make_contract_transport().
//
// Tests never assume that a consequence (garbage collection, a bookmark) is immediate: they wait
// for it on a watch with a deadline.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <optional>
#include <string>

#include "common/json.h"
#include "operator/kube/api_client.h"
#include "operator/kube/http_transport.h"

namespace muster::contract_test {

/// A server that is ready, shared by the tests of the program.
kube::HttpTransport& contract_transport();
/// A namespace nobody used before, there and ready.
std::string new_namespace();

struct Answer {
  int code = 0;
  Json body;
  std::string reason() const;
  std::string message() const;
  /// metadata.<field> as text; numbers printed.
  std::string meta(const char* field) const;
};

/// One exchange; the body of the answer must be JSON.
Answer call(const std::string& method, const std::string& path, const Json& body = nullptr);
/// The same with a body that need not be JSON.
Answer call_text(const std::string& method, const std::string& path, std::string body);
Answer patch(const std::string& path, const Json& merge_patch);

std::string pods_path(const std::string& namespace_name, const std::string& name = "");
std::string jobs_path(const std::string& namespace_name, const std::string& name = "");
std::string services_path(const std::string& namespace_name, const std::string& name = "");
/// Queues have no namespace; tests name theirs after one of their own.
std::string queues_path(const std::string& name = "");

/// The least pod, job and service that a server takes.
Json pod(const std::string& name);
/// The same on a node that nobody runs.
Json bound_pod(const std::string& name);
Json job(const std::string& name);
Json service(const std::string& name);
Json queue(const std::string& name);
/// `object` with a controller reference to `owner` (an object as the server returned it).
Json owned_by(Json object, const Json& owner);

struct Event {
  std::string type;
  Json object;
  std::string name() const;
  std::string resource_version() const;
};

/// An open watch of a collection.
class Watch {
 public:
  /// `query`: what follows "watch=true".
  explicit Watch(const std::string& collection, const std::string& query = "");
  /// The next event within a minute (a real server collects garbage of a new kind that late);
  /// nullopt at the end of the stream.
  std::optional<Event> next();
  /// The next event of this type for this name; bookmarks and others are passed over.
  std::optional<Event> wait_for(const std::string& type, const std::string& name);
  int code() const { return code_; }

 private:
  int code_ = 0;
  std::unique_ptr<kube::HttpStream> stream_;
};

}  // namespace muster::contract_test
