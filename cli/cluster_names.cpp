#include "cli/cluster_names.h"

#include <algorithm>

#include "cli/kube_query.h"
#include "operator/api/fields.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMostNames = 500;
constexpr milliseconds kNamesDeadline{3'000};
/// Of names: those of more jobs than anybody picks one of by its beginning.
constexpr std::size_t kMostOutput = std::size_t{4} << 20;
constexpr std::size_t kMostContextBytes = 253;

/// What comes in front of each name of `-o name`.
std::string_view head_of(ClusterNames::Kind kind) {
  switch (kind) {
    case ClusterNames::Kind::kJobs:
      return "trainingjob.muster.dev/";
    case ClusterNames::Kind::kNamespaces:
      return "namespace/";
    case ClusterNames::Kind::kContexts:
    case ClusterNames::Kind::kNone:
      break;
  }
  return "";
}

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// A context may have any name; of those with other characters a shell would have to be told how
/// to quote them.
bool is_context(std::string_view name) {
  return !name.empty() && name.size() <= kMostContextBytes && is_plain(name.front()) &&
         std::ranges::all_of(name, [](char c) {
           return is_plain(c) || std::string_view("-._@").find(c) != std::string_view::npos;
         });
}

}  // namespace

std::vector<std::string> names_in(std::string_view output, const ClusterNames& wanted) {
  const std::string_view head = head_of(wanted.kind);
  std::vector<std::string> names;
  // A line without its end is the beginning of one.
  for (std::size_t end = output.find('\n');
       end != std::string_view::npos && names.size() < kMostNames; end = output.find('\n')) {
    std::string_view name = output.substr(0, end);
    output.remove_prefix(end + 1);
    if (!name.starts_with(head)) continue;
    name.remove_prefix(head.size());
    const bool is_name = wanted.kind == ClusterNames::Kind::kContexts
                             ? is_context(name)
                             : api::matches(api::NameRule::kSubdomain, name);
    if (is_name && name.starts_with(wanted.prefix)) names.emplace_back(name);
  }
  return names;
}

std::vector<std::string> cluster_names(Kubectl& kubectl, const ClusterNames& wanted) {
  KubectlCall call;
  switch (wanted.kind) {
    case ClusterNames::Kind::kNone:
      return {};
    case ClusterNames::Kind::kJobs:
      call.arguments = {"get", kJobResource};
      break;
    case ClusterNames::Kind::kNamespaces:
      call.arguments = {"get", "namespaces"};
      call.is_namespaced = false;
      break;
    case ClusterNames::Kind::kContexts:
      call.arguments = {"config", "get-contexts"};
      call.is_namespaced = false;
      break;
  }
  call.arguments.insert(call.arguments.end(), {"--output=name", "--request-timeout=2s"});
  call.has_input = true;  // empty: whoever logs in by typing must not be asked in between
  call.deadline = kNamesDeadline;
  call.max_output = kMostOutput;
  std::string output;
  const auto take = [&output](std::string_view piece) -> Status {
    output += piece;
    return {};
  };
  // What came before an error is as good as without one.
  (void)kubectl.stream(call, take);
  return names_in(output, wanted);
}

}  // namespace muster::cli
