#include "operator/embedded/pod_program.h"

#include <cstdlib>

#include "common/contract.h"
#include "operator/embedded/lenient_json.h"

namespace muster::embedded {
namespace {

const Json* worker_container(const Json& pod) {
  const Json* containers = member(member(&pod, "spec"), "containers");
  if (containers == nullptr || !containers->is_array()) return nullptr;
  for (const Json& container : *containers) {
    if (text(member(&container, "name")) == contract::kContainerName) return &container;
  }
  return nullptr;
}

/// $(NAME) becomes the variable's value, $$ a dollar; a name that is not set stays as written.
std::string expand(const std::string& input, const std::map<std::string, std::string>& variables) {
  std::string output;
  for (std::size_t i = 0; i < input.size(); ++i) {
    if (input[i] == '$' && i + 1 < input.size() && input[i + 1] == '$') {
      output += input[i++];
      continue;
    }
    const std::size_t end = input[i] == '$' ? input.find(')', i) : std::string::npos;
    if (end != std::string::npos && input[i + 1] == '(') {
      const auto found = variables.find(input.substr(i + 2, end - i - 2));
      output += found != variables.end() ? found->second : input.substr(i, end - i + 1);
      i = end;
      continue;
    }
    output += input[i];
  }
  return output;
}

/// A fieldRef's value, as the downward API gives it.
Result<std::string> field_of_pod(const Json& pod, const std::string& path,
                                 const PodProgramOptions& options) {
  const Json* metadata = member(&pod, "metadata");
  for (const char* field : {"name", "namespace", "uid"}) {
    if (path == std::string("metadata.") + field) return text(member(metadata, field));
  }
  for (const char* field : {"labels", "annotations"}) {
    const std::string start = std::string("metadata.") + field + "['";
    if (path.starts_with(start) && path.ends_with("']")) {
      const std::string key = path.substr(start.size(), path.size() - start.size() - 2);
      return text(member(member(metadata, field), key));
    }
  }
  if (path == "spec.nodeName") return options.node_name;
  if (path == "spec.serviceAccountName") return std::string("default");
  for (const char* address : {"status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"}) {
    if (path == address) return std::string("127.0.0.1");
  }
  return Error(ErrorCode::kInvalid, "fieldRef " + path + " has no value in a local run");
}

Result<std::string> value_of_variable(const Json& pod, const Json& variable,
                                      const PodProgramOptions& options,
                                      const std::map<std::string, std::string>& before) {
  const Json* source = member(&variable, "valueFrom");
  if (source == nullptr || source->is_null())
    return expand(text(member(&variable, "value")), before);
  const Json* field = member(source, "fieldRef");
  if (field != nullptr) {
    const std::string path = text(member(field, "fieldPath"));
    auto value = field_of_pod(pod, path, options);
    return value ? value : value.error().with("env " + text(member(&variable, "name")));
  }
  return Error(ErrorCode::kInvalid,
               "env " + text(member(&variable, "name")) +
                   " takes its value from the cluster (Secret, ConfigMap or resources), which a "
                   "local run does not have; give it a value");
}

int gpus_of(const Json& container) {
  const Json* wanted = member(member(member(&container, "resources"), "limits"), "nvidia.com/gpu");
  if (wanted == nullptr) return 0;
  return wanted->is_number_integer() ? wanted->get<int>() : std::atoi(text(wanted).c_str());
}

Status read_strings(const Json* list, std::vector<std::string>& out,
                    const std::map<std::string, std::string>& variables) {
  if (list == nullptr || list->is_null()) return {};
  if (!list->is_array()) return Error(ErrorCode::kInvalid, "command and args must be lists");
  for (const Json& item : *list) out.push_back(expand(text(&item), variables));
  return {};
}

}  // namespace

Result<PodProgram> program_of_pod(const Json& pod, const PodProgramOptions& options) {
  const Json* container = worker_container(pod);
  if (container == nullptr) {
    return Error(ErrorCode::kInvalid, "the pod has no container named worker");
  }
  std::map<std::string, std::string> own, known;
  // Those that ConfigMaps and Secrets would give are among muster's own, or nowhere.
  const Json* const sources = member(container, "envFrom");
  if (sources != nullptr && !sources->empty()) known = options.base_environment;
  const auto add = [&](const std::string& name, const std::string& value) {
    own.insert_or_assign(name, value);
    known.insert_or_assign(name, value);
  };
  const Json* variables = member(container, "env");
  if (variables != nullptr && variables->is_array()) {
    for (const Json& variable : *variables) {
      MUSTER_ASSIGN_OR_RETURN(const std::string value,
                              value_of_variable(pod, variable, options, known));
      add(text(member(&variable, "name")), value);
    }
  }
  for (const auto& [name, value] : options.extra_env) add(name, value);
  PodProgram program;
  const bool is_own = member(container, "command") != nullptr;
  if (is_own && !own.contains("CUDA_VISIBLE_DEVICES")) program.gpus = gpus_of(*container);
  MUSTER_RETURN_IF_ERROR(read_strings(member(container, "command"), program.argv, known));
  if (program.argv.empty()) {
    if (options.worker_program.empty()) {
      return Error(ErrorCode::kInvalid,
                   "the pod names an image and no command; a local run starts programs of this "
                   "machine only");
    }
    program.argv.push_back(options.worker_program);
  }
  MUSTER_RETURN_IF_ERROR(read_strings(member(container, "args"), program.argv, known));
  program.environment = options.base_environment;
  for (auto& [name, value] : own) program.environment.insert_or_assign(name, std::move(value));
  return program;
}

}  // namespace muster::embedded
