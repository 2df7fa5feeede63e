#include "operator/runtime/certificates.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "common/contract.h"
#include "common/file.h"
#include "common/log.h"

namespace muster::runtime {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} * 1024;
constexpr std::size_t kMasterKeyDigits = 64;
constexpr seconds kValidFor{30 * 24 * 3600};
/// Clocks differ: what is issued now is valid a little earlier.
constexpr seconds kSkew{300};
/// So long before a CA ends it is said that another one is needed.
constexpr seconds kWarnBefore{30 * 24 * 3600};

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* value) const {
    kFree(value);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freed<X509_EXTENSION_free>>;
using Number = std::unique_ptr<BIGNUM, Freed<BN_free>>;

Error internal(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  ERR_clear_error();
  return {ErrorCode::kInternal, std::string(what) + ": " + text.data()};
}

Bio bio_of(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const auto size = BIO_get_mem_data(bio, &bytes);
  return {bytes, static_cast<std::size_t>(size)};
}

Result<std::string> pem_of(X509* certificate) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || PEM_write_bio_X509(bio.get(), certificate) != 1) return internal("write PEM");
  return text_of(bio.get());
}

Result<std::string> pem_of(EVP_PKEY* key) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio ||
      PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) != 1) {
    return internal("write PEM");
  }
  return text_of(bio.get());
}

Certificate read_certificate(const std::string& pem) {
  Certificate certificate(PEM_read_bio_X509(bio_of(pem).get(), nullptr, nullptr, nullptr));
  ERR_clear_error();
  return certificate;
}

Key read_key(const std::string& pem) {
  // An encrypted key must not ask for its password on a terminal.
  const auto no_password = [](char*, int, int, void*) { return -1; };
  Key key(PEM_read_bio_PrivateKey(bio_of(pem).get(), nullptr, no_password, nullptr));
  ERR_clear_error();
  return key;
}

bool is_address(const std::string& name) {
  std::array<unsigned char, 16> bytes{};
  return inet_pton(AF_INET, name.c_str(), bytes.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1;
}

/// Names are put into a comma-separated list; nothing that could begin another entry may pass.
bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 253 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_' || c == '*';
  });
}

Status add_extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  if (!extension || X509_add_ext(certificate, extension.get(), -1) != 1) {
    return internal("certificate extension");
  }
  return {};
}

Status set_serial(X509* certificate) {
  const Number number(BN_new());
  if (!number || BN_rand(number.get(), 127, BN_RAND_TOP_ANY, BN_RAND_BOTTOM_ANY) != 1 ||
      BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) == nullptr) {
    return internal("serial number");
  }
  return {};
}

std::time_t unix_time(WallTime time) {
  return static_cast<std::time_t>(
      std::chrono::duration_cast<seconds>(time.time_since_epoch()).count());
}

Result<std::string> alternative_names(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) {
    if (!is_address(name) && !is_name(name)) {
      return Error(ErrorCode::kInvalid,
                   "\"" + name.substr(0, 64) + "\" is neither a DNS name nor a numeric address");
    }
    if (!list.empty()) list += ",";
    list += (is_address(name) ? "IP:" : "DNS:") + name;
  }
  return list;
}

struct Issuer {
  X509* certificate;  ///< nullptr: the subject signs itself
  EVP_PKEY* key;
};

/// A certificate of `subject_key` signed by `issuer`.
Result<Certificate> sign(const Issuer& issuer, EVP_PKEY* subject_key,
                         const CertificateRequest& request) {
  Certificate made(X509_new());
  if (!made || X509_set_version(made.get(), X509_VERSION_3) != 1) return internal("certificate");
  MUSTER_RETURN_IF_ERROR(set_serial(made.get()));
  std::array<unsigned char, 64> common_name{};
  const std::size_t size = std::min(request.common_name.size(), common_name.size());
  std::copy_n(request.common_name.begin(), size, common_name.begin());
  X509_NAME* const name = X509_get_subject_name(made.get());
  if (X509_NAME_add_entry_by_NID(name, NID_commonName, MBSTRING_UTF8, common_name.data(),
                                 static_cast<int>(size), -1, 0) != 1) {
    return internal("certificate's name");
  }
  X509* const signer = issuer.certificate != nullptr ? issuer.certificate : made.get();
  ASN1_TIME_set(X509_getm_notBefore(made.get()), unix_time(request.not_before));
  ASN1_TIME_set(X509_getm_notAfter(made.get()), unix_time(request.not_after));
  if (X509_set_issuer_name(made.get(), X509_get_subject_name(signer)) != 1 ||
      X509_set_pubkey(made.get(), subject_key) != 1) {
    return internal("certificate");
  }
  MUSTER_RETURN_IF_ERROR(
      add_extension(made.get(), signer, NID_basic_constraints,
                    request.is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE"));
  MUSTER_RETURN_IF_ERROR(add_extension(
      made.get(), signer, NID_key_usage,
      request.is_authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature"));
  if (!request.is_authority) {
    MUSTER_RETURN_IF_ERROR(add_extension(made.get(), signer, NID_ext_key_usage, "serverAuth"));
  }
  MUSTER_RETURN_IF_ERROR(add_extension(made.get(), signer, NID_subject_key_identifier, "hash"));
  // By its key: a CA and the one before it may have the same name.
  if (issuer.certificate != nullptr) {
    MUSTER_RETURN_IF_ERROR(
        add_extension(made.get(), signer, NID_authority_key_identifier, "keyid"));
  }
  if (!request.names.empty()) {
    MUSTER_ASSIGN_OR_RETURN(const std::string names, alternative_names(request.names));
    MUSTER_RETURN_IF_ERROR(add_extension(made.get(), signer, NID_subject_alt_name, names));
  }
  if (X509_sign(made.get(), issuer.key, EVP_sha256()) == 0) return internal("sign");
  return made;
}

Result<http::TlsIdentity> make_identity(X509* issuer, EVP_PKEY* issuer_key,
                                        const CertificateRequest& request) {
  const Key key(EVP_EC_gen("P-256"));
  if (!key) return internal("make a key");
  MUSTER_ASSIGN_OR_RETURN(
      const Certificate certificate,
      sign({issuer, issuer_key != nullptr ? issuer_key : key.get()}, key.get(), request));
  http::TlsIdentity made;
  MUSTER_ASSIGN_OR_RETURN(made.certificate, pem_of(certificate.get()));
  MUSTER_ASSIGN_OR_RETURN(made.key, pem_of(key.get()));
  return made;
}

struct Authority {
  Certificate certificate;
  Key key;
};

/// `where`: how the two texts are called in a sentence.
struct PairNames {
  std::string certificate, key;
};

Result<Authority> read_authority(const http::TlsIdentity& pair, const PairNames& where) {
  const auto wrong = [](const std::string& name, const char* rule) {
    return Error(ErrorCode::kInvalid, name + " " + rule);
  };
  Authority authority{read_certificate(pair.certificate), read_key(pair.key)};
  if (!authority.certificate) return wrong(where.certificate, "holds no certificate in PEM");
  if (!authority.key) return wrong(where.key, "holds no unencrypted private key in PEM");
  if (X509_check_ca(authority.certificate.get()) == 0) {
    return wrong(where.certificate, "is not the certificate of a CA");
  }
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    ERR_clear_error();
    return wrong(where.key, ("is not the key of " + where.certificate).c_str());
  }
  return authority;
}

/// What has an end that cannot be read is believed by nobody: it counts as ended long ago.
WallTime end_of(const X509* certificate) {
  std::tm end{};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return WallTime{};
  return WallTime(seconds(timegm(&end)));
}

/// The subject and public key of `next`, signed by `previous`: a path from what `next` issues to
/// those who know `previous` alone.
Result<std::string> cross_sign(const Authority& next, const Authority& previous) {
  Certificate made(X509_dup(next.certificate.get()));
  if (!made) return internal("copy a certificate");
  MUSTER_RETURN_IF_ERROR(set_serial(made.get()));
  // Whose key signed the original is no longer true.
  for (int i = X509_get_ext_by_NID(made.get(), NID_authority_key_identifier, -1); i >= 0;
       i = X509_get_ext_by_NID(made.get(), NID_authority_key_identifier, -1)) {
    X509_EXTENSION_free(X509_delete_ext(made.get(), i));
  }
  MUSTER_RETURN_IF_ERROR(
      add_extension(made.get(), previous.certificate.get(), NID_authority_key_identifier, "keyid"));
  if (X509_set_issuer_name(made.get(), X509_get_subject_name(previous.certificate.get())) != 1 ||
      X509_sign(made.get(), previous.key.get(), EVP_sha256()) == 0) {
    return internal("sign the CA with the one before");
  }
  return pem_of(made.get());
}

/// An absent file is an empty text.
Result<std::string> read_optional(const std::string& path) {
  auto text = read_file(path, kMaxFileBytes);
  if (text || text.error().code() != ErrorCode::kNotFound) return text;
  return std::string();
}

/// Without the line's end that editors leave.
Status check_key(std::string& key, const std::string& path) {
  while (key.ends_with('\n')) key.pop_back();
  if (key.size() == kMasterKeyDigits &&
      key.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos) {
    return {};
  }
  return Error(ErrorCode::kInvalid, path + " must hold 64 hexadecimal digits");
}

Result<MasterSecret> read_all(const std::string& directory) {
  MasterSecret secret;
  const auto path = [&](std::string_view name) { return directory + "/" + std::string(name); };
  const PairNames current{path(contract::kMasterCaCertificate), path(contract::kMasterCaKey)};
  const PairNames before{path(contract::kMasterPreviousCaCertificate),
                         path(contract::kMasterPreviousCaKey)};
  MUSTER_ASSIGN_OR_RETURN(secret.authority.certificate,
                          read_file(current.certificate, kMaxFileBytes));
  MUSTER_ASSIGN_OR_RETURN(secret.authority.key, read_file(current.key, kMaxFileBytes));
  MasterKeys& keys = secret.master_keys;
  MUSTER_ASSIGN_OR_RETURN(keys.current, read_file(path(contract::kMasterKey), kMaxFileBytes));
  MUSTER_ASSIGN_OR_RETURN(keys.previous, read_optional(path(contract::kMasterPreviousKey)));
  MUSTER_ASSIGN_OR_RETURN(secret.previous.certificate, read_optional(before.certificate));
  MUSTER_ASSIGN_OR_RETURN(secret.previous.key, read_optional(before.key));
  MUSTER_RETURN_IF_ERROR(check_key(keys.current, path(contract::kMasterKey)));
  if (!keys.previous.empty()) {
    MUSTER_RETURN_IF_ERROR(check_key(keys.previous, path(contract::kMasterPreviousKey)));
  }
  if (const auto read = read_authority(secret.authority, current); !read) return read.error();
  if (!secret.previous.certificate.empty() || !secret.previous.key.empty()) {
    if (const auto read = read_authority(secret.previous, before); !read) return read.error();
  }
  return secret;
}

}  // namespace

Result<MasterSecret> read_master(const std::string& directory) {
  auto secret = read_all(directory);
  if (!secret) return secret.error().with_exit_code(contract::exit_code::kUsage);
  return secret;
}

Result<http::TlsIdentity> issue_certificate(const http::TlsIdentity& authority,
                                            const CertificateRequest& request) {
  MUSTER_ASSIGN_OR_RETURN(const Authority issuer,
                          read_authority(authority, {"the CA's certificate", "the CA's key"}));
  return make_identity(issuer.certificate.get(), issuer.key.get(), request);
}

Result<http::TlsIdentity> make_authority(const std::string& common_name, WallTime not_before,
                                         WallTime not_after) {
  return make_identity(nullptr, nullptr, {common_name, {}, not_before, not_after, true});
}

std::vector<std::string> serving_names(const std::string& namespace_name,
                                       const std::vector<std::string>& more) {
  std::vector<std::string> names;
  for (const std::string_view service : {contract::kServiceEndpoint, contract::kServiceMetrics}) {
    const std::string name(service);
    for (const char* domain : {".svc.cluster.local", ".svc", ""}) {
      names.push_back(name + "." + namespace_name + domain);
    }
    names.push_back(name);
  }
  names.emplace_back("localhost");
  for (const std::string& name : more) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

namespace {

class WatchingTrust final : public Trust {
 public:
  explicit WatchingTrust(TrustOptions options) : options_(std::move(options)) {}
  ~WatchingTrust() override { stop(); }

  void run() {
    thread_ = std::thread([this] { follow(); });
  }

  http::TlsIdentity identity() const override {
    const std::lock_guard lock(mutex_);
    return identity_;
  }
  std::string ca_bundle() const override {
    const std::lock_guard lock(mutex_);
    return bundle_;
  }
  MasterKeys master_keys() const override {
    const std::lock_guard lock(mutex_);
    return secret_.master_keys;
  }
  WallTime authority_end() const override {
    const std::lock_guard lock(mutex_);
    return authority_end_;
  }

  void on_identity(Listener listener) override {
    const std::lock_guard one_at_a_time(refreshing_);
    http::TlsIdentity now;
    {
      const std::lock_guard lock(mutex_);
      now = identity_;
    }
    listener(now);
    listeners_.push_back(std::move(listener));
  }

  Status refresh() override {
    const std::lock_guard one_at_a_time(refreshing_);
    MUSTER_ASSIGN_OR_RETURN(MasterSecret secret, read_master(options_.master_dir));
    MUSTER_ASSIGN_OR_RETURN(const Authority authority, read_authority(secret.authority, {}));
    const WallTime authority_end = end_of(authority.certificate.get());
    const WallTime now = options_.clock->wall_now();
    tell_end(authority_end, now);
    {
      const std::lock_guard lock(mutex_);
      if (secret == secret_ && now < renew_at_ && now >= issued_at_) return {};
    }
    // Nobody believes it longer than the CA.
    const WallTime end = std::min(now + kValidFor, authority_end);
    MUSTER_ASSIGN_OR_RETURN(http::TlsIdentity identity,
                            make_identity(authority.certificate.get(), authority.key.get(),
                                          {"muster-operator", options_.names, now - kSkew, end}));
    std::string bundle = secret.authority.certificate;
    if (!secret.previous.certificate.empty()) {
      MUSTER_ASSIGN_OR_RETURN(const Authority previous, read_authority(secret.previous, {}));
      MUSTER_ASSIGN_OR_RETURN(const std::string bridge, cross_sign(authority, previous));
      identity.certificate += bridge;
      if (!bundle.ends_with('\n')) bundle += '\n';
      bundle += secret.previous.certificate;
    }
    {
      const std::lock_guard lock(mutex_);
      secret_ = std::move(secret);
      identity_ = identity;
      bundle_ = std::move(bundle);
      authority_end_ = authority_end;
      issued_at_ = now;
      renew_at_ = now + kValidFor / 2;
    }
    log_info("serving certificate issued", {{"valid_until", format_time(end)}});
    for (const Listener& listener : listeners_) listener(identity);
    return {};
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  /// Once when it begins to be near, once when it has passed.
  void tell_end(WallTime end, WallTime now) {
    const bool is_near = now >= end - kWarnBefore, is_over = now >= end;
    const auto told = std::tuple(end, is_near, is_over);
    if (std::exchange(told_end_, told) == told || !is_near) return;
    const auto file = options_.master_dir + "/" + std::string(contract::kMasterCaCertificate);
    log(is_over ? LogLevel::kError : LogLevel::kWarning,
        is_over ? "the CA has expired: no worker believes this operator, joins or reports"
                : "the CA expires soon: from then on no worker can join or report",
        {{"file", file}, {"end", format_time(end)}, {"help", "docs/gitops.md, Replace the CA"}});
  }

  void follow() {
    std::string last_error;
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, options_.refresh_interval, [this] { return is_stopping_; })) {
          return;
        }
      }
      const Status status = refresh();
      const std::string error = status ? "" : status.error().message();
      if (!error.empty() && error != last_error) {
        log_error("the master directory is wrong; what was read before stays", {{"error", error}});
      }
      last_error = error;
    }
  }

  const TrustOptions options_;
  std::mutex refreshing_;                        ///< taken before mutex_
  std::vector<Listener> listeners_;              ///< guarded by refreshing_
  std::tuple<WallTime, bool, bool> told_end_{};  ///< guarded by refreshing_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;  ///< this and the following are guarded by mutex_
  MasterSecret secret_;
  http::TlsIdentity identity_;
  std::string bundle_;
  WallTime issued_at_{}, renew_at_{}, authority_end_{};
  std::thread thread_;
};

}  // namespace

Result<std::unique_ptr<Trust>> Trust::start(TrustOptions options) {
  MUSTER_CHECK(options.clock != nullptr);
  auto trust = std::make_unique<WatchingTrust>(std::move(options));
  MUSTER_RETURN_IF_ERROR(trust->refresh());
  trust->run();
  return std::unique_ptr<Trust>(std::move(trust));
}

}  // namespace muster::runtime
