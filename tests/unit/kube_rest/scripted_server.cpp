#include "tests/unit/kube_rest/scripted_server.h"

#include <arpa/inet.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "common/check.h"

namespace muster::test {

void make_certificate(const ScriptedTls& tls) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  X509_set_version(certificate, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), tls.begins);
  X509_gmtime_adj(X509_getm_notAfter(certificate), tls.ends);
  X509_set_pubkey(certificate, key);
  X509_NAME* name = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("scripted"), -1, -1, 0);
  X509_set_issuer_name(certificate, name);
  X509_EXTENSION* names =
      X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, tls.names.c_str());
  X509_add_ext(certificate, names, -1);
  X509_EXTENSION_free(names);
  MUSTER_CHECK(X509_sign(certificate, key, EVP_sha256()) > 0);
  const auto write = [&](const char* file_name, auto writer) {
    std::FILE* file = std::fopen((tls.directory + file_name).c_str(), "w");
    MUSTER_CHECK(file != nullptr);
    MUSTER_CHECK(writer(file) == 1);
    std::fclose(file);
  };
  write("/ca.pem", [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
  write("/key.pem", [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
  X509_free(certificate);
  EVP_PKEY_free(key);
}

namespace {

/// Asks for another handshake; whether the client has taken part in it.
bool shake_hands_again(SSL* tls, const std::atomic<bool>& stopping) {
  if (SSL_renegotiate(tls) != 1 || SSL_do_handshake(tls) != 1) return false;
  while (SSL_renegotiate_pending(tls) == 1) {
    char byte = 0;
    const int count = SSL_peek(tls, &byte, 1);
    const bool is_wrong = count <= 0 && SSL_get_error(tls, count) != SSL_ERROR_WANT_READ;
    if (is_wrong || stopping) return false;
  }
  return true;
}

}  // namespace

struct ScriptedServer::Tls {
  SSL_CTX* context = nullptr;
  const bool asks_again;
  explicit Tls(const ScriptedTls& tls) : asks_again(tls.asks_again) {
    make_certificate(tls);
    context = SSL_CTX_new(TLS_server_method());
    // OpenSSL writes to a client that has gone as to a file.
    std::signal(SIGPIPE, SIG_IGN);
    if (tls.version_most != 0) {
      // Old versions are offered by nobody who does not ask for them in as many words.
      SSL_CTX_set_min_proto_version(context, TLS1_VERSION);
      SSL_CTX_set_max_proto_version(context, tls.version_most);
      SSL_CTX_set_cipher_list(context, "ALL:@SECLEVEL=0");
    }
    const std::string chain = tls.directory + "/ca.pem", key = tls.directory + "/key.pem";
    MUSTER_CHECK(SSL_CTX_use_certificate_chain_file(context, chain.c_str()) == 1);
    MUSTER_CHECK(SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) == 1);
  }
  ~Tls() { SSL_CTX_free(context); }
};

bool has_ipv6() {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  const int tried = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool is_there =
      tried >= 0 && bind(tried, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  if (tried >= 0) close(tried);
  return is_there;
}

ScriptedServer::ScriptedServer(std::function<ScriptedAnswer(const std::string&)> answer,
                               const ScriptedTls& tls)
    : answer_(std::move(answer)), is_ipv6_(tls.is_ipv6) {
  if (!tls.directory.empty()) tls_ = std::make_unique<Tls>(tls);
  listen_ = socket(is_ipv6_ ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in6 six{};
  six.sin6_family = AF_INET6;
  six.sin6_addr = in6addr_loopback;
  sockaddr_in four{};
  four.sin_family = AF_INET;
  four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* address = is_ipv6_ ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = is_ipv6_ ? sizeof six : sizeof four;
  MUSTER_CHECK(bind(listen_, address, size) == 0);
  MUSTER_CHECK(listen(listen_, 16) == 0);
  getsockname(listen_, address, &size);
  port_ = ntohs(is_ipv6_ ? six.sin6_port : four.sin_port);
  thread_ = std::thread([this] { serve(); });
}

ScriptedServer::~ScriptedServer() {
  stopping_ = true;
  thread_.join();
  for (auto& conversation : conversations_) conversation.join();
  close(listen_);
}

std::string ScriptedServer::url() const {
  const std::string host = is_ipv6_ ? "[::1]" : "127.0.0.1";
  return (tls_ ? "https://" : "http://") + host + ":" + std::to_string(port_);
}

std::vector<std::string> ScriptedServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void ScriptedServer::serve() {
  while (!stopping_) {
    pollfd ready{listen_, POLLIN, 0};
    if (poll(&ready, 1, 20) <= 0) continue;
    const int socket = accept4(listen_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) conversations_.emplace_back([this, socket] { converse(socket); });
  }
}

void ScriptedServer::converse(int socket) {
  const timeval patience{0, 50'000};
  setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  SSL* tls = nullptr;
  bool open = true;
  if (tls_) {
    tls = SSL_new(tls_->context);
    SSL_set_fd(tls, socket);
    const timeval handshake{2, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &handshake, sizeof handshake);
    open = SSL_accept(tls) == 1;
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  std::string received;
  char bytes[4096];
  while (open && !stopping_) {
    const long count =
        tls != nullptr ? SSL_read(tls, bytes, sizeof bytes) : recv(socket, bytes, sizeof bytes, 0);
    if (count == 0) break;
    if (count < 0) {
      if (tls != nullptr ? SSL_get_error(tls, static_cast<int>(count)) == SSL_ERROR_WANT_READ
                         : (errno == EAGAIN || errno == EWOULDBLOCK)) {
        continue;
      }
      break;
    }
    received.append(bytes, static_cast<std::size_t>(count));
    const auto head = received.find("\r\n\r\n");
    if (head == std::string::npos) continue;
    std::size_t body = 0;
    if (const auto at = received.find("Content-Length:"); at < head) {
      body = std::stoul(received.substr(at + 15));
    }
    if (received.size() < head + 4 + body) continue;
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(received);
    }
    if (tls_ && tls_->asks_again && !shake_hands_again(tls, stopping_)) break;
    const ScriptedAnswer answer = answer_(received);
    received.clear();
    const auto give = [&](const std::string& piece) {
      const int size = static_cast<int>(piece.size());
      return tls != nullptr ? SSL_write(tls, piece.data(), size) > 0
                            : send(socket, piece.data(), piece.size(), MSG_NOSIGNAL) > 0;
    };
    for (const auto& piece : answer.pieces) give(piece);
    while (answer.more && !stopping_) {
      const std::string piece = answer.more();
      if (piece.empty() || !give(piece)) break;
    }
    open = answer.stay_open;
  }
  if (tls != nullptr) SSL_free(tls);
  close(socket);
}

}  // namespace muster::test
