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
};

class ScriptedServer {
 public:
  /// `answer(request head and body)` says what to send. With `certificate_directory` it speaks TLS
  /// with a key made on the spot for 127.0.0.1; the certificate is written there as ca.pem.
  explicit ScriptedServer(std::function<ScriptedAnswer(const std::string&)> answer,
                          const std::string& certificate_directory = {});
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
  int listen_ = -1, port_ = 0;
  std::atomic<bool> stopping_ = false;
  mutable std::mutex mutex_;
  std::vector<std::string> requests_;
  std::vector<std::thread> conversations_;
  std::thread thread_;
};

}  // namespace muster::test
