// A TCP (or TLS) server on loopback that answers each connection's requests with given bytes: for
// what a real API server would never send.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace muster::test {

struct ScriptedAnswer {
  std::vector<std::string> pieces;  ///< sent one after the other, each in a packet of its own
  bool stay_open = false;           ///< afterwards nothing more comes, and nothing is closed
  /// Asked for one further piece after the other, until it has none or nobody takes them.
  std::function<std::string()> more = {};
};

/// With a directory the server speaks TLS with a key made on the spot; the certificate is written
/// there as ca.pem, and the key as key.pem.
struct ScriptedTls {
  std::string directory = {};
  std::string names = "IP:127.0.0.1";
  long begins = -3600, ends = 3600;  ///< of its validity, in seconds from now
  int version_most = 0;              ///< 0 = the newest
  bool is_ipv6 = false;              ///< the server's address is [::1]
  /// Before it answers it asks for another handshake, which is there up to TLS 1.2.
  bool asks_again = false;
};
/// Whether the machine has [::1].
bool has_ipv6();
/// Writes them.
void make_certificate(const ScriptedTls& tls);

class ScriptedServer {
 public:
  /// `answer(request head and body)` says what to send.
  explicit ScriptedServer(std::function<ScriptedAnswer(const std::string&)> answer,
                          const ScriptedTls& tls = {});
  ~ScriptedServer();
  int port() const { return port_; }
  std::string url() const;
  std::vector<std::string> requests() const;

 private:
  void serve();
  void converse(int socket);

  std::function<ScriptedAnswer(const std::string&)> answer_;
  struct Tls;
  std::unique_ptr<Tls> tls_;
  const bool is_ipv6_;
  int listen_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<std::thread> conversations_;
  std::thread thread_;
};

}  // namespace muster::test
