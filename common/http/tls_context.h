// OpenSSL contexts from PEM texts: the only place that says which TLS is spoken. Internal to
// common/http.
#pragma once

#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <memory>
#include <string>

#include "common/http/tls.h"
#include "common/result.h"

namespace muster::http {

using TlsContext = std::shared_ptr<boost::asio::ssl::context>;

/// TLS 1.2 or later, no renegotiation, no session tickets. Errors: kInvalid, without any of the
/// key.
Result<TlsContext> make_server_context(const TlsIdentity& identity);
/// Trusts `ca_certificate` (PEM, one or more) alone. Errors: kInvalid.
Result<TlsContext> make_client_context(const std::string& ca_certificate);
/// Makes `ssl` accept nothing but a certificate for `name`, a DNS name or a numeric address, named
/// in the certificate's subject alternative names. Errors: kInvalid, kInternal.
Status expect_name(SSL* ssl, const std::string& name);
/// Why the verification of the peer failed, in words; empty when it did not.
std::string verification_error(SSL* ssl, const std::string& name);

}  // namespace muster::http
