#include "operator/kube/inflow.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <utility>

#include "common/check.h"
#include "common/log.h"

namespace muster::kube {
namespace {

using Held = std::shared_ptr<Inflow>;

void free_held(void*, void* held, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<Held*>(held);
}

/// Where a context has its inflow.
int index_of_held() {
  static const int index = SSL_CTX_get_ex_new_index(0, nullptr, nullptr, nullptr, &free_held);
  return index;
}

/// OpenSSL tells of each record's head before its content is handed on, and of much else.
void on_message(int is_sent, int, int kind, const void* bytes, std::size_t size, SSL* connection,
                void* inflow) {
  if (is_sent != 0 || kind != SSL3_RT_HEADER || size < SSL3_RT_HEADER_LENGTH) return;
  const auto* const head = static_cast<const unsigned char*>(bytes);
  const std::size_t length = std::size_t{head[3]} * 256 + head[4];
  auto& counted = *static_cast<Inflow*>(inflow);
  if (counted.take(length)) return;
  log_warning("the API server sent more than an answer may be, and its connection is closed",
              {{"bytes_max", counted.bytes_most()}});
  // What is being read fails with the error; had it none, a request might be sent once more.
  ERR_raise(ERR_LIB_SSL, SSL_R_EXCESSIVE_MESSAGE_SIZE);
  SSL_set_shutdown(connection, SSL_get_shutdown(connection) | SSL_RECEIVED_SHUTDOWN);
}

}  // namespace

void bound_inflow(SSL_CTX* context, std::shared_ptr<Inflow> inflow) {
  auto held = std::make_unique<Held>(std::move(inflow));
  SSL_CTX_set_msg_callback(context, &on_message);
  SSL_CTX_set_msg_callback_arg(context, held->get());
  MUSTER_CHECK(SSL_CTX_set_ex_data(context, index_of_held(), held.get()) == 1);
  held.release();
}

void restart_inflow(SSL* connection) {
  const void* const held = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(connection), index_of_held());
  MUSTER_CHECK(held != nullptr);
  (*static_cast<const Held*>(held))->restart();
}

}  // namespace muster::kube
