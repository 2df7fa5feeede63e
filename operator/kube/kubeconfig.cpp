#include "operator/kube/kubeconfig.h"

#include <algorithm>

#include "common/contract.h"
#include "common/json.h"
#include "common/yaml_reader.h"
#include "operator/kube/base64.h"
#include "operator/kube/small_file.h"

namespace muster::kube {
namespace {

constexpr std::size_t kMaxEntries = 1000;
constexpr std::size_t kMaxText = 4096;
constexpr std::size_t kMaxData = std::size_t{256} * 1024;

class Kubeconfig {
 public:
  Kubeconfig(const Json& root, std::string directory)
      : root_(root), directory_(std::move(directory)) {}

  Result<ClusterAccess> read() {
    JsonReader top(root_, "");
    std::string kind = "Config", version = "v1", current;
    top.optional("kind", kind);
    top.optional("apiVersion", version);
    top.optional("current-context", current);
    MUSTER_RETURN_IF_ERROR(top.status());
    if (kind != "Config" || version != "v1") {
      return Error(ErrorCode::kInvalid, "must have apiVersion v1 and kind Config");
    }
    if (current.empty()) {
      return Error(ErrorCode::kInvalid,
                   "current-context: is missing; `kubectl config use-context NAME` sets it");
    }
    MUSTER_ASSIGN_OR_RETURN(const Json context, entry("contexts", "context", current));
    JsonReader in(context, "contexts." + current);
    std::string cluster, user;
    in.required("cluster", cluster);
    in.optional("user", user);
    in.optional("namespace", access_.namespace_name, 63);
    MUSTER_RETURN_IF_ERROR(in.status());
    MUSTER_RETURN_IF_ERROR(read_cluster(cluster));
    if (!user.empty()) MUSTER_RETURN_IF_ERROR(read_user(user));
    return std::move(access_);
  }

 private:
  /// The member `inner` of the item called `name` in the list `list`; null counts as empty.
  Result<Json> entry(const std::string& list, const std::string& inner, const std::string& name) {
    JsonReader top(root_, "");
    const Json* items = top.array(list, kMaxEntries);
    MUSTER_RETURN_IF_ERROR(top.status());
    if (items != nullptr) {
      for (const Json& item : *items) {
        if (!item.is_object()) continue;
        const auto found = item.find("name");
        if (found == item.end() || *found != name) continue;
        JsonReader in(item, list + "." + name);
        const Json* value = in.object(inner);
        MUSTER_RETURN_IF_ERROR(in.status());
        return value == nullptr ? Json::object() : *value;
      }
    }
    return Error(ErrorCode::kInvalid, list + ": has no entry called \"" + name + "\"");
  }

  Status read_cluster(const std::string& name) {
    MUSTER_ASSIGN_OR_RETURN(const Json cluster, entry("clusters", "cluster", name));
    JsonReader in(cluster, "clusters." + name);
    std::string& url = access_.transport.url;
    in.required("server", url, kMaxText);
    // Which of them may be talked to, and that it is a URL, the transport says.
    if (!url.starts_with("https://") && !url.starts_with("http://")) {
      in.fail("server", "must be https://HOST:PORT");
    }
    bool skip = false;
    in.optional("insecure-skip-tls-verify", skip);
    if (skip) {
      in.fail("insecure-skip-tls-verify",
              "is refused: an API server that is not verified could be anyone's; give "
              "certificate-authority");
    }
    refuse(in, "proxy-url", "requests go to the API server directly");
    refuse(in, "tls-server-name", "use a server name that stands in the certificate");
    read_pem(in, "certificate-authority", access_.transport.ca);
    MUSTER_RETURN_IF_ERROR(in.status());
    if (url.starts_with("https:") && access_.transport.ca.empty()) {
      return Error(ErrorCode::kInvalid,
                   in.path() + ": must have certificate-authority or certificate-authority-data");
    }
    return {};
  }

  Status read_user(const std::string& name) {
    MUSTER_ASSIGN_OR_RETURN(const Json user, entry("users", "user", name));
    JsonReader in(user, "users." + name);
    refuse(in, "exec",
           "programs named in a kubeconfig are not started; use a token or a client certificate");
    refuse(in, "auth-provider", "use a token or a client certificate");
    refuse(in, "username", "use a token or a client certificate");
    refuse(in, "password", "use a token or a client certificate");
    for (const char* field : {"as", "as-uid", "as-groups", "as-user-extra"}) {
      refuse(in, field, "impersonation is not supported");
    }
    RestTransportOptions& out = access_.transport;
    in.optional("token", out.token, kMaxData);
    in.optional("tokenFile", out.token_file, kMaxText);
    out.token_file = absolute(out.token_file);
    const bool printable = std::all_of(out.token.begin(), out.token.end(),
                                       [](unsigned char c) { return c > 0x20 && c < 0x7f; });
    if (!printable) in.fail("token", "must be printable ASCII without blanks");
    read_pem(in, "client-certificate", out.client_certificate);
    read_pem(in, "client-key", out.client_key);
    if (out.client_certificate.empty() != out.client_key.empty()) {
      in.fail("client-certificate", "must stand together with client-key");
    }
    return in.status();
  }

  static void refuse(JsonReader& in, const char* field, const std::string& instead) {
    if (in.has(field)) in.fail(field, "is refused: " + instead);
  }

  /// `field`-data (base64) wins over `field` (a path), as in kubectl.
  void read_pem(JsonReader& in, const std::string& field, PemSource& out) {
    std::string path, data;
    in.optional(field, path, kMaxText);
    in.optional(field + "-data", data, kMaxData);
    if (!data.empty()) {
      std::erase_if(data, [](char c) { return c == '\n' || c == '\r' || c == ' '; });
      auto text = decode_base64(data);
      if (!text) return in.fail(field + "-data", "must be base64");
      out.text = std::move(*text);
    } else {
      out.file = absolute(path);
    }
  }

  std::string absolute(const std::string& path) const {
    if (path.empty() || path.front() == '/' || directory_.empty()) return path;
    return directory_ + "/" + path;
  }

  const Json& root_;
  const std::string directory_;
  ClusterAccess access_;
};

}  // namespace

Result<ClusterAccess> parse_kubeconfig(std::string_view text, const std::string& name,
                                       const std::string& directory) {
  YamlBounds bounds;
  bounds.bytes_max = kSmallFileBytesMax;
  bounds.what = "kubeconfig";
  auto root = parse_yaml(text, name, bounds);
  if (!root) return root.error().with_exit_code(contract::exit_code::kUsage);
  if (!root->is_object()) {
    return Error(ErrorCode::kInvalid, name + ": is no kubeconfig; it must be a map")
        .with_exit_code(contract::exit_code::kUsage);
  }
  auto access = Kubeconfig(*root, directory).read();
  if (!access) {
    // Names in the file are quoted in sentences, and a sentence is one line.
    std::string sentence = name + ": " + access.error().message();
    std::replace_if(
        sentence.begin(), sentence.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; },
        ' ');
    return Error(ErrorCode::kInvalid, std::move(sentence))
        .with_exit_code(contract::exit_code::kUsage);
  }
  return access;
}

Result<ClusterAccess> read_kubeconfig(const std::string& path) {
  auto text = read_small_file(path);
  if (!text) return text.error().with_exit_code(contract::exit_code::kUsage);
  const auto slash = path.rfind('/');
  return parse_kubeconfig(*text, path, slash == std::string::npos ? "." : path.substr(0, slash));
}

}  // namespace muster::kube
