#include "operator/agent/publisher.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "operator/api/pcie.h"
#include "operator/api/pod.h"
#include "operator/embedded/api_server.h"
#include "tests/unit/agent/sysfs_tree.h"

using namespace muster;
using namespace muster::test;

namespace {

/// The API server, or in its place an answer with `code`; below 0: no connection. `method`: what
/// alone is answered so; empty = everything.
class Troubled final : public kube::HttpTransport {
 public:
  explicit Troubled(kube::HttpTransport& server) : server_(server) {}
  int code = 0;
  std::string method;
  std::optional<seconds> retry_after;

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const bool is_meant = method.empty() || method == request.method;
    if (code == 0 || !is_meant) return server_.send(request);
    if (code < 0) return Error(ErrorCode::kUnavailable, "no connection");
    return kube::HttpResponse{code, R"({"kind":"Status","message":"not you"})", retry_after};
  }
  Result<Stream> open_stream(const kube::HttpRequest&) override {
    return Error(ErrorCode::kInternal, "nobody watches here");
  }

 private:
  kube::HttpTransport& server_;
};

struct Node {
  Node() {
    add_two_switches(tree);
    api::Node node;
    node.meta.name = "n1";
    node.meta.annotations["other"] = "stays";
    REQUIRE(client->add(api::Kind::kNode, "", api::to_json(node)));
    const auto made = client->get(api::Kind::kNode, {"", "n1"});
    REQUIRE(made);
  }

  agent::PublisherOptions options() const {
    agent::PublisherOptions out;
    out.client = client.get();
    out.node = "n1";
    out.sysfs = tree.root();
    return out;
  }

  api::ObjectMeta meta() const {
    const auto json = client->get(api::Kind::kNode, {"", "n1"});
    REQUIRE(json);
    const auto node = api::parse_node(*json);
    REQUIRE(node);
    return node->meta;
  }

  std::int64_t count(const std::string& request) const {
    const auto counts = server.request_counts();
    const auto found = counts.find(request);
    return found == counts.end() ? 0 : found->second;
  }

  SysfsTree tree;
  ManualClock clock;
  embedded::ApiServer server{{.clock = &clock}};
  Troubled api{server};
  std::unique_ptr<kube::ApiClient> client = kube::make_rest_client(api);
};

}  // namespace

TEST_CASE("a node is described with one write, and then with none") {
  Node node;
  agent::Publisher publisher(node.options());
  for (int i = 0; i < 35; ++i) {
    const agent::Look look = publisher.look();
    REQUIRE(look.status);
    CHECK(look.wait >= seconds(60));
    CHECK(look.wait <= seconds(66));
  }
  CHECK(node.count("patch nodes") == 1);
  const auto pcie = api::pcie_of(node.meta());
  REQUIRE(pcie);
  CHECK(pcie->switches.size() == 2);
  CHECK(pcie->gpus.size() == 8);
  CHECK(node.meta().annotations.at("other") == "stays");
}

TEST_CASE("looks that find nothing new seldom ask the API server") {
  Node node;
  agent::Publisher publisher(node.options());
  REQUIRE(publisher.look().status);
  const auto before = node.count("get nodes");
  for (int i = 0; i < 2 * agent::kLooksBetweenReads; ++i) REQUIRE(publisher.look().status);
  CHECK(node.count("get nodes") == before + 2);
}

TEST_CASE("an agent that begins anew writes nothing that stands") {
  Node node;
  REQUIRE(agent::Publisher(node.options()).look().status);
  REQUIRE(agent::Publisher(node.options()).look().status);
  CHECK(node.count("patch nodes") == 1);
}

TEST_CASE("a machine that has changed is described anew with one write") {
  Node node;
  agent::Publisher publisher(node.options());
  REQUIRE(publisher.look().status);
  node.tree.add("pci0000:80/0000:80:01.0", kGpu);
  for (int i = 0; i < 15; ++i) REQUIRE(publisher.look().status);
  CHECK(node.count("patch nodes") == 2);
  CHECK(api::pcie_of(node.meta())->gpus.size() == 9);
}

TEST_CASE("what somebody else made of the annotation is put right") {
  Node node;
  agent::Publisher publisher(node.options());
  REQUIRE(publisher.look().status);
  const Json theirs{
      {"metadata", {{"annotations", {{std::string(contract::kAnnotationPcie), nullptr}}}}}};
  REQUIRE(node.client->merge_patch(api::Kind::kNode, {"", "n1"}, "", theirs));
  for (int i = 0; i < agent::kLooksBetweenReads; ++i) REQUIRE(publisher.look().status);
  CHECK(api::pcie_of(node.meta()).has_value());
}

TEST_CASE("an API server that refuses or is away is asked ever more seldom, until it answers") {
  struct Trouble {
    int code;
    std::string method;
    ErrorCode error;
  };
  for (const auto& trouble :
       {Trouble{403, "PATCH", ErrorCode::kForbidden}, Trouble{409, "PATCH", ErrorCode::kConflict},
        Trouble{403, "", ErrorCode::kForbidden}, Trouble{-1, "", ErrorCode::kUnavailable}}) {
    Node node;
    node.api.code = trouble.code;
    node.api.method = trouble.method;
    agent::Publisher publisher(node.options());
    seconds expected(5);
    for (int i = 0; i < 40; ++i) {
      const agent::Look look = publisher.look();
      REQUIRE_FALSE(look.status);
      CHECK(look.status.error().code() == trouble.error);
      CHECK(look.status.error().message().starts_with("node n1: "));
      CHECK(look.wait >= expected);
      CHECK(look.wait <= expected * 11 / 10 + seconds(1));
      expected = std::min(expected * 2, seconds(300));
    }
    node.api.code = 0;
    const agent::Look look = publisher.look();
    REQUIRE(look.status);
    CHECK(look.wait <= seconds(66));
    CHECK(api::pcie_of(node.meta()).has_value());
    CHECK(node.count("patch nodes") == 1);
    // The next trouble begins from the least wait.
    node.api.code = -1;
    node.api.method = "";
    node.tree.add("pci0000:80/0000:80:01.0", kGpu);
    CHECK(publisher.look().wait <= seconds(6));
  }
}

TEST_CASE("a server that asks to be left alone is left alone for so long") {
  Node node;
  node.api.code = 429;
  node.api.retry_after = seconds(120);
  CHECK(agent::Publisher(node.options()).look().wait >= seconds(120));
}

TEST_CASE("a machine that cannot be read leaves what stands") {
  Node node;
  agent::Publisher publisher(node.options());
  REQUIRE(publisher.look().status);
  std::filesystem::remove_all(node.tree.root() + "/bus");
  const agent::Look look = publisher.look();
  REQUIRE_FALSE(look.status);
  CHECK(look.status.error().code() == ErrorCode::kNotFound);
  CHECK(look.wait <= seconds(6));
  CHECK(node.count("patch nodes") == 1);
  CHECK(api::pcie_of(node.meta()).has_value());
}

TEST_CASE("a node that is not there is looked for again") {
  Node node;
  auto options = node.options();
  options.node = "n2";
  agent::Publisher publisher(options);
  CHECK(publisher.look().status.error().code() == ErrorCode::kNotFound);
  api::Node late;
  late.meta.name = "n2";
  REQUIRE(node.client->add(api::Kind::kNode, "", api::to_json(late)));
  CHECK(publisher.look().status);
}
