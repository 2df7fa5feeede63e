#include "common/http/tls_context.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/address.hpp>

namespace muster::http {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr std::size_t kMaxPemBytes = std::size_t{256} * 1024;

Error wrong(const char* what, const error_code& code) {
  return {ErrorCode::kInvalid, std::string(what) + ": " + code.message()};
}

Status restrict(asio::ssl::context& context) {
  SSL_CTX* const native = context.native_handle();
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  SSL_CTX_set_session_cache_mode(native, SSL_SESS_CACHE_OFF);
  // Whoever is connected and waits holds no buffers: 34 KiB each.
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  if (SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION) != 1) {
    return Error(ErrorCode::kInternal, "OpenSSL refuses TLS 1.2 as the least version");
  }
  return {};
}

bool is_address(const std::string& name) {
  error_code wrong_form;
  (void)asio::ip::make_address(name, wrong_form);
  return !wrong_form;
}

}  // namespace

Result<TlsContext> make_server_context(const TlsIdentity& identity) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  MUSTER_RETURN_IF_ERROR(restrict(*context));
  // No session is resumed, so that a replaced identity shows at the next connection.
  SSL_CTX_set_num_tickets(context->native_handle(), 0);
  error_code code;
  (void)context->use_certificate_chain(asio::buffer(identity.certificate), code);
  if (code) return wrong("the serving certificate is no PEM certificate", code);
  (void)context->use_private_key(asio::buffer(identity.key), asio::ssl::context::pem, code);
  if (code) return wrong("the serving key is no PEM key of the serving certificate", code);
  return context;
}

Result<TlsContext> make_client_context(const std::string& ca_certificate) {
  if (ca_certificate.empty() || ca_certificate.size() > kMaxPemBytes) {
    return Error(ErrorCode::kInvalid, "https needs the CA's certificate in PEM, at most 256 KiB");
  }
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_client);
  MUSTER_RETURN_IF_ERROR(restrict(*context));
  error_code code;
  (void)context->add_certificate_authority(asio::buffer(ca_certificate), code);
  if (code) return wrong("the CA's certificate is no PEM certificate", code);
  (void)context->set_verify_mode(asio::ssl::verify_peer, code);
  if (code) return wrong("verification of the peer", code);
  return context;
}

Status expect_name(SSL* ssl, const std::string& name) {
  X509_VERIFY_PARAM* const parameters = SSL_get0_param(ssl);
  X509_VERIFY_PARAM_set_hostflags(
      parameters, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS | X509_CHECK_FLAG_NEVER_CHECK_SUBJECT);
  if (is_address(name)) {
    if (X509_VERIFY_PARAM_set1_ip_asc(parameters, name.c_str()) != 1) {
      return Error(ErrorCode::kInternal, "OpenSSL does not take the address " + name);
    }
    return {};
  }
  // OpenSSL's macro for this casts away const; it copies the name.
  std::string shown = name;
  if (SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, shown.data()) != 1 ||
      X509_VERIFY_PARAM_set1_host(parameters, name.c_str(), name.size()) != 1) {
    ERR_clear_error();
    return Error(ErrorCode::kInvalid, "\"" + name.substr(0, 64) + "\" is no name of a server");
  }
  return {};
}

std::string verification_error(SSL* ssl, const std::string& name) {
  const auto code = SSL_get_verify_result(ssl);
  switch (code) {
    case X509_V_OK:
      return {};
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is not for " + name;
    default:
      return std::string("its certificate is not trusted: ") + X509_verify_cert_error_string(code);
  }
}

}  // namespace muster::http
