#include "operator/runtime/certificates.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "common/contract.h"
#include "common/file.h"
#include "common/http/client.h"
#include "common/http/server.h"
#include "common/json.h"
#include "common/log.h"
#include "tests/tls_material.h"

using namespace muster;
using namespace muster::runtime;

namespace {

namespace fs = std::filesystem;

/// A master directory that is right until the test changes it.
struct CertificateWorld {
  std::string directory = "/tmp/muster-master-XXXXXX";
  http::TlsIdentity ca = test::authority();
  ManualClock clock{test::now()};
  std::unique_ptr<Trust> trust;

  CertificateWorld() {
    REQUIRE(mkdtemp(directory.data()) != nullptr);
    write("ca.crt", ca.certificate);
    write("ca.key", ca.key);
    write("master-key", std::string(64, '7') + "\n");
  }
  ~CertificateWorld() {
    if (trust) trust->stop();
    fs::remove_all(directory);
  }
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(directory + "/" + name) << text;
  }
  void start() {
    // Never by itself within the test: refresh() is called by hand.
    auto started =
        Trust::start({directory, {"127.0.0.1", "localhost"}, &clock, milliseconds(3'600'000)});
    REQUIRE_MESSAGE(started, (started ? "" : started.error().message()));
    trust = std::move(*started);
  }
  std::string wrong() const {
    const auto secret = read_master(directory);
    if (secret) return "right";
    CHECK(secret.error().exit_code() == contract::exit_code::kUsage);
    const std::string& message = secret.error().message();
    CHECK(message.starts_with(directory + "/"));
    return message.substr(directory.size() + 1);
  }
};

/// What this process logs while it lives.
class Logged {
 public:
  explicit Logged(std::string path) : path_(std::move(path)), before_(dup(STDERR_FILENO)) {
    const UniqueFd file(open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    REQUIRE((file && before_));
    REQUIRE(dup2(file.get(), STDERR_FILENO) >= 0);
    configure_log(LogLevel::kInfo, {});
  }
  ~Logged() {
    configure_log(LogLevel::kError, {});  // as tests/test_main.cpp has it
    (void)dup2(before_.get(), STDERR_FILENO);
  }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

  /// Lines of that level so far, each of which names `word`.
  int count(const std::string& level, const std::string& word) const {
    std::ifstream file(path_);
    int found = 0;
    for (std::string line; std::getline(file, line);) {
      const auto json = parse_json(line);
      if (!json || (*json)["level"] != level) continue;
      CHECK(line.find(word) != std::string::npos);
      ++found;
    }
    return found;
  }

 private:
  std::string path_;
  UniqueFd before_;
};

constexpr seconds kDay{24 * 3600};

/// Whether a server's certificate is still believed at that time.
bool is_valid_at(const http::TlsIdentity& identity, WallTime time) {
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(
      BIO_new_mem_buf(identity.certificate.data(), static_cast<int>(identity.certificate.size())),
      BIO_free);
  const std::unique_ptr<X509, decltype(&X509_free)> certificate(
      PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  REQUIRE(certificate);
  std::time_t at = std::chrono::duration_cast<seconds>(time.time_since_epoch()).count();
  return X509_cmp_time(X509_get0_notAfter(certificate.get()), &at) > 0;
}

/// Whether a client that trusts `bundle` alone gets an answer from a server with `identity`.
bool is_trusted(const http::TlsIdentity& identity, const std::string& bundle,
                const std::string& name = "127.0.0.1") {
  http::ServerOptions options;
  options.tls = identity;
  auto server = http::Server::start(
      options, [](const http::Request&, const http::Responder& respond) { respond({}); });
  REQUIRE(server);
  http::Client client;
  http::Call call;
  call.url = (*server)->url();
  call.ca_certificate = bundle;
  call.server_name = name;
  call.timeout = seconds(20);
  return client.exchange(call).has_value();
}

}  // namespace

TEST_CASE("a replica issues itself a certificate that workers with the CA trust, by each name") {
  CertificateWorld world;
  world.start();
  CHECK(world.trust->master_keys() == MasterKeys{std::string(64, '7'), ""});
  CHECK(world.trust->ca_bundle() == world.ca.certificate);
  CHECK(is_trusted(world.trust->identity(), world.trust->ca_bundle()));
  CHECK(is_trusted(world.trust->identity(), world.trust->ca_bundle(), "localhost"));
  CHECK_FALSE(is_trusted(world.trust->identity(), world.trust->ca_bundle(), "other"));
  CHECK_FALSE(is_trusted(world.trust->identity(), test::authority().certificate));
  const auto names = serving_names("muster", {"10.0.0.7", ""});
  for (const char* name : {"muster-endpoint.muster.svc", "muster-endpoint.muster",
                           "muster-endpoint", "muster-metrics.muster.svc", "10.0.0.7"}) {
    CHECK(std::count(names.begin(), names.end(), name) == 1);
  }
  const auto issued = issue_certificate(
      world.ca, {"x", names, test::now() - test::kHour, test::now() + test::kHour, false});
  REQUIRE(issued);
  CHECK(is_trusted(*issued, world.ca.certificate, "muster-endpoint.muster.svc"));
  CHECK(is_trusted(*issued, world.ca.certificate, "10.0.0.7"));
}

TEST_CASE(
    "each wrong file of the master directory is named with what is wrong, never its content") {
  CertificateWorld world;
  CHECK(world.wrong() == "right");
  for (const char* file : {"ca.crt", "ca.key", "master-key"}) {
    const CertificateWorld other;
    fs::remove(other.directory + "/" + file);
    CHECK(other.wrong() == std::string(file) + ": cannot open: No such file or directory");
  }
  world.write("master-key", std::string(63, '7'));
  CHECK(world.wrong() == "master-key must hold 64 hexadecimal digits");
  world.write("master-key", std::string(63, '7') + "g");
  CHECK(world.wrong() == "master-key must hold 64 hexadecimal digits");
  world.write("master-key", std::string(64, '7'));
  world.write("previous-master-key", "secret-garbage");
  CHECK(world.wrong() == "previous-master-key must hold 64 hexadecimal digits");
  fs::remove(world.directory + "/previous-master-key");
  world.write("ca.crt", "secret-garbage");
  CHECK(world.wrong() == "ca.crt holds no certificate in PEM");
  world.write("ca.crt", test::server_of(world.ca).certificate);
  CHECK(world.wrong() == "ca.crt is not the certificate of a CA");
  world.write("ca.crt", std::string(65 * 1024, 'x'));
  CHECK(world.wrong() == "ca.crt: is larger than 65536 bytes");
  world.write("ca.crt", world.ca.certificate);
  world.write("ca.key", "secret-garbage");
  CHECK(world.wrong() == "ca.key holds no unencrypted private key in PEM");
  world.write("ca.key", test::authority().key);
  CHECK(world.wrong() == "ca.key is not the key of " + world.directory + "/ca.crt");
  world.write("ca.key", world.ca.key);
  world.write("previous-ca.crt", world.ca.certificate);
  CHECK(world.wrong() == "previous-ca.key holds no unencrypted private key in PEM");
  fs::remove(world.directory + "/ca.key");
  fs::create_directory(world.directory + "/ca.key");
  CHECK(world.wrong() == "ca.key: cannot read: Is a directory");
}

TEST_CASE("the serving certificate is issued anew half-way through its thirty days") {
  CertificateWorld world;
  world.start();
  std::vector<http::TlsIdentity> seen;
  world.trust->on_identity([&](const http::TlsIdentity& one) { seen.push_back(one); });
  REQUIRE(seen.size() == 1);
  REQUIRE(world.trust->refresh());
  world.clock.advance(seconds(15 * 24 * 3600 - 1));
  REQUIRE(world.trust->refresh());
  CHECK(seen.size() == 1);
  world.clock.advance(seconds(1));
  REQUIRE(world.trust->refresh());
  REQUIRE(seen.size() == 2);
  CHECK_FALSE(seen[0] == seen[1]);
  CHECK(seen[1] == world.trust->identity());
}

TEST_CASE("a CA that expires is named before and after, and no certificate of it lasts longer") {
  CertificateWorld world;
  const auto make_ca = [&](seconds valid_for) {
    const auto made =
        make_authority("ca", world.clock.wall_now() - kDay, world.clock.wall_now() + valid_for);
    REQUIRE(made);
    world.write("ca.crt", made->certificate);
    world.write("ca.key", made->key);
  };
  const Logged logged(world.directory + "/log");
  const WallTime began = world.clock.wall_now();
  make_ca(40 * kDay);
  world.start();
  CHECK(is_valid_at(world.trust->identity(), began + 30 * kDay - seconds(2)));
  CHECK_FALSE(is_valid_at(world.trust->identity(), began + 30 * kDay + seconds(2)));
  CHECK(logged.count("warning", "/ca.crt") == 0);
  make_ca(10 * kDay);
  for (int again = 0; again < 3; ++again) REQUIRE(world.trust->refresh());
  CHECK(is_valid_at(world.trust->identity(), began + 10 * kDay - seconds(2)));
  CHECK_FALSE(is_valid_at(world.trust->identity(), began + 10 * kDay + seconds(2)));
  CHECK(std::chrono::abs(world.trust->authority_end() - (began + 10 * kDay)) <= seconds(1));
  CHECK(logged.count("warning", "/ca.crt") == 1);
  CHECK(logged.count("error", "/ca.crt") == 0);
  world.clock.advance(10 * kDay + seconds(1));
  for (int again = 0; again < 3; ++again) REQUIRE(world.trust->refresh());
  CHECK(logged.count("error", "/ca.crt") == 1);
  CHECK(logged.count("warning", "/ca.crt") == 1);
  make_ca(3650 * kDay);
  REQUIRE(world.trust->refresh());
  CHECK(is_valid_at(world.trust->identity(), world.clock.wall_now() + 29 * kDay));
  CHECK(logged.count("error", "/ca.crt") == 1);
  CHECK(logged.count("warning", "/ca.crt") == 1);
}

TEST_CASE("after a rotation workers of the old CA and of the new one both trust a replica") {
  // The same name for both, as a chart gives it, and another one.
  for (const char* name : {"test-ca", "next-ca"}) {
    CertificateWorld world;
    world.start();
    int changes = -1;
    world.trust->on_identity([&](const http::TlsIdentity&) { ++changes; });
    const http::TlsIdentity next = test::authority(name);
    world.write("ca.crt", next.certificate);
    world.write("ca.key", next.key);
    world.write("previous-ca.crt", world.ca.certificate);
    world.write("previous-ca.key", world.ca.key);
    world.write("master-key", std::string(64, '8'));
    world.write("previous-master-key", std::string(64, '7') + "\n");
    REQUIRE(world.trust->refresh());
    CHECK(changes == 1);
    CHECK(world.trust->master_keys() == MasterKeys{std::string(64, '8'), std::string(64, '7')});
    const http::TlsIdentity served = world.trust->identity();
    CHECK(is_trusted(served, world.ca.certificate));
    CHECK(is_trusted(served, next.certificate));
    CHECK(is_trusted(served, world.trust->ca_bundle()));
    // A pod made now trusts a replica that has not seen the change yet.
    CHECK(is_trusted(test::server_of(world.ca), world.trust->ca_bundle()));
    CHECK_FALSE(is_trusted(served, test::authority(name).certificate));
    // With the old CA taken away, its workers are not believed to be ours any more.
    fs::remove(world.directory + "/previous-ca.crt");
    fs::remove(world.directory + "/previous-ca.key");
    REQUIRE(world.trust->refresh());
    CHECK_FALSE(is_trusted(world.trust->identity(), world.ca.certificate));
    CHECK(is_trusted(world.trust->identity(), next.certificate));
  }
}

TEST_CASE("a directory that becomes wrong leaves what was read before") {
  CertificateWorld world;
  world.start();
  const http::TlsIdentity before = world.trust->identity();
  world.write("ca.crt", "garbage");
  CHECK_FALSE(world.trust->refresh());
  CHECK(world.trust->identity() == before);
  CHECK(world.trust->ca_bundle() == world.ca.certificate);
  world.trust->stop();
  const auto failed = Trust::start({world.directory, {}, &world.clock, milliseconds(3'600'000)});
  CHECK_FALSE(failed);
}

TEST_CASE("a name that could begin another entry of the certificate is refused") {
  const CertificateWorld world;
  for (const char* name : {"a,DNS:b", "", "a b", "a\nb", "IP:1.2.3.4"}) {
    CHECK_FALSE(
        issue_certificate(world.ca, {"x", {name}, test::now(), test::now() + test::kHour, false}));
  }
}
