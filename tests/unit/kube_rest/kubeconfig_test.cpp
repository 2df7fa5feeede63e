#include "operator/kube/kubeconfig.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <fstream>

using namespace muster;

namespace {

/// A kubeconfig of one context; `cluster` and `user` are the lines below those two entries.
std::string config(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: here\n"
         "contexts:\n- name: here\n  context: {cluster: c, user: u, namespace: ml}\n"
         "clusters:\n- name: c\n  cluster:\n" +
         cluster + "users:\n- name: u\n  user:\n" + user;
}

const std::string kCluster =
    "    server: https://10.0.0.1:6443\n    certificate-authority-data: Y2E=\n";
const std::string kUser = "    token: secret-token\n";

std::string refusal(const std::string& text) {
  const auto read = kube::parse_kubeconfig(text, "kc", "/home");
  REQUIRE_FALSE(read);
  CHECK(read.error().exit_code() == 2);
  CHECK(read.error().message().find("secret-token") == std::string::npos);
  CHECK(read.error().message().find('\n') == std::string::npos);
  return read.error().message();
}

std::string file_refusal(const std::string& path) {
  const auto read = kube::read_kubeconfig(path);
  REQUIRE_FALSE(read);
  return read.error().message();
}

}  // namespace

TEST_CASE("the current context gives server, CA, credentials and namespace") {
  const auto read = kube::parse_kubeconfig(config(kCluster, kUser), "kc", "/home");
  REQUIRE_MESSAGE(read, read.error().message());
  CHECK(read->transport.url == "https://10.0.0.1:6443");
  CHECK(read->transport.ca.text == "ca");
  CHECK(read->transport.token == "secret-token");
  CHECK(read->namespace_name == "ml");
}

TEST_CASE("files named relatively stand beside the kubeconfig") {
  const auto read = kube::parse_kubeconfig(
      config("    server: https://h\n    certificate-authority: pki/ca.crt\n",
             "    client-certificate: a.crt\n    client-key: /abs/a.key\n    tokenFile: t\n"),
      "kc", "/home/x");
  REQUIRE_MESSAGE(read, read.error().message());
  CHECK(read->transport.ca.file == "/home/x/pki/ca.crt");
  CHECK(read->transport.client_certificate.file == "/home/x/a.crt");
  CHECK(read->transport.client_key.file == "/abs/a.key");
  CHECK(read->transport.token_file == "/home/x/t");
}

TEST_CASE("what could harm is refused by its name") {
  CHECK(refusal(config(kCluster + "    insecure-skip-tls-verify: true\n", kUser))
            .find("kc: clusters.c.insecure-skip-tls-verify: is refused") == 0);
  CHECK(refusal(config(kCluster + "    proxy-url: http://p\n", kUser)).find("proxy-url") !=
        std::string::npos);
  CHECK(refusal(config(kCluster, "    exec: {command: sh}\n")).find("kc: users.u.exec") == 0);
  CHECK(refusal(config(kCluster, "    auth-provider: {name: x}\n")).find("auth-provider") !=
        std::string::npos);
  CHECK(refusal(config(kCluster, kUser + "    password: secret-token\n")).find("password") !=
        std::string::npos);
  CHECK(refusal(config(kCluster, kUser + "    as: root\n")).find("users.u.as") !=
        std::string::npos);
  CHECK(refusal(config(kCluster, "    token: \"secret-token\\r\\nX-Evil: 1\"\n"))
            .find("users.u.token") != std::string::npos);
}

TEST_CASE("what is missing or wrong is named") {
  CHECK(refusal("").find("kc:1: is empty") == 0);
  CHECK(refusal("[]").find("must be a map") != std::string::npos);
  CHECK(refusal("a: [").find("kc:1: is not YAML") == 0);
  CHECK(refusal("kind: Pod").find("kind Config") != std::string::npos);
  CHECK(refusal("kind: Config").find("current-context: is missing") != std::string::npos);
  CHECK(refusal("current-context: x").find("contexts: has no entry called \"x\"") !=
        std::string::npos);
  CHECK(refusal("current-context: \"x\\ny\"").find("called \"x y\"") != std::string::npos);
  CHECK(refusal("current-context: x\ncontexts: 7").find("contexts") != std::string::npos);
  CHECK(
      refusal(config("    certificate-authority-data: Y2E=\n", kUser)).find("clusters.c.server") !=
      std::string::npos);
  for (const char* server : {"''", "h:6443", "ftp://h"}) {
    CHECK(refusal(config("    server: " + std::string(server) + "\n", kUser))
              .find("kc: clusters.c.server: must be https://HOST:PORT") == 0);
  }
  CHECK(refusal(config("    server: https://h\n", kUser)).find("certificate-authority") !=
        std::string::npos);
  CHECK(refusal(config("    server: https://h\n    certificate-authority-data: '%'\n", kUser))
            .find("certificate-authority-data: must be base64") != std::string::npos);
  CHECK(refusal(config(kCluster, "    client-certificate: a\n")).find("client-key") !=
        std::string::npos);
}

TEST_CASE("an alias bomb and a large file are refused") {
  std::string bomb = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n";
  for (int i = 1; i < 9; ++i) {
    const std::string last = "*a" + std::to_string(i - 1);
    bomb += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + last;
    for (int j = 0; j < 9; ++j) bomb += "," + last;
    bomb += "]\n";
  }
  CHECK(refusal(bomb).find("aliases written out") != std::string::npos);
  CHECK(refusal("a: " + std::string(std::size_t{2} << 20, 'x')).find("bytes") != std::string::npos);
}

TEST_CASE("a kubeconfig that is no file is refused with its path") {
  CHECK(file_refusal("/nonexistent/config") == "/nonexistent/config: No such file or directory");
  CHECK(file_refusal("/tmp") == "/tmp: is a directory; a file is needed");
  CHECK(file_refusal("/dev/null") == "/dev/null: is not a file");
}

TEST_CASE("a pod finds its API server by its surroundings") {
  char name[] = "/tmp/muster-pod-XXXXXX";
  const std::string directory = mkdtemp(name);
  CHECK(kube::in_cluster_access("", "", directory).error().message().find("--kubeconfig") !=
        std::string::npos);
  CHECK(kube::in_cluster_access("a/b", "443", directory).error().message().find("HOST") !=
        std::string::npos);
  CHECK(kube::in_cluster_access("10.0.0.1", "0", directory).error().message().find("PORT") !=
        std::string::npos);
  CHECK(kube::in_cluster_access("10.0.0.1", "443", directory).error().message().find("/token") !=
        std::string::npos);
  std::ofstream(directory + "/token") << "t";
  std::ofstream(directory + "/namespace") << "muster\n";
  const auto v4 = kube::in_cluster_access("10.0.0.1", "443", directory);
  REQUIRE(v4);
  CHECK(v4->transport.url == "https://10.0.0.1:443");
  CHECK(v4->transport.ca.file == directory + "/ca.crt");
  CHECK(v4->namespace_name == "muster");
  CHECK(kube::in_cluster_access("fd00::1", "443", directory)->transport.url ==
        "https://[fd00::1]:443");
  std::system(("rm -rf " + directory).c_str());
}
