// crds/*.yaml against operator/api: the API server and this module must agree on every field, bound
// and default. Rules between fields (CEL) need a real API server.
#include <doctest/doctest.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <functional>

#include "common/contract.h"
#include "operator/api/topology_config.h"
#include "operator/api/training_job.h"
#include "operator/api/training_queue.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

namespace {

Json scalar_of(const YAML::Node& node) {
  const std::string text = node.Scalar();
  if (node.Tag() == "!") return text;  // it stands in quotes
  if (text == "true" || text == "false") return text == "true";
  if (!text.empty() && text.find_first_not_of("-0123456789") == std::string::npos) {
    return std::stoll(text);
  }
  return text;
}

Json json_of(const YAML::Node& node) {
  if (node.IsMap()) {
    Json object = Json::object();
    for (const auto& entry : node) object[entry.first.Scalar()] = json_of(entry.second);
    return object;
  }
  if (node.IsSequence()) {
    Json array = Json::array();
    for (const auto& item : node) array.push_back(json_of(item));
    return array;
  }
  return scalar_of(node);
}

/// A definition with the documents that between them have every field, and what this module makes
/// of a document.
struct Definition {
  Json crd;
  std::vector<Json> full, least;
  Result<Json> (*written)(const Json& document);
  /// Filled in here from other fields, so that no schema can say it.
  std::vector<std::string> derived;

  const Json& version() const { return crd["spec"]["versions"][0]; }
  const Json& schema() const { return version()["schema"]["openAPIV3Schema"]; }
  std::string refusal(const Json& document) const {
    const auto made = written(document);
    return made ? "" : made.error().message();
  }
};

std::vector<Json> full_jobs() {
  const Json by_steps = with(with(full_training_job(), "/spec/training/epochs", nullptr),
                             "/spec/training/steps", 1000);
  const Json cnn{{"channels", {8, 16}},
                 {"kernelSize", 5},
                 {"normalization", "None"},
                 {"hidden", {32}},
                 {"dropout", "0.5"}};
  const Json with_cnn = with(full_training_job(), "/spec/training/model", Json{{"cnn", cnn}});
  const Json adamw = *parse_json(R"({"learningRate": "0.001", "beta1": "0.9", "beta2": "0.999",
                                     "epsilon": "1e-8", "weightDecay": "0.01"})");
  const Json schedule{{"cosine", {{"warmupSteps", 100}, {"finalShare", "0.1"}}}};
  const Json both =
      with(with_cnn, "/spec/training/optimizer", Json{{"adamw", adamw}, {"schedule", schedule}});
  return {full_training_job(),
          full_program_job(),
          host_network_job(),
          free_shape_job(),
          by_steps,
          both,
          gpt_training_job(),
          token_training_job(),
          table_training_job(),
          picture_training_job(),
          grouped_training_job()};
}

template <typename Kind>
Result<Json> written_of(const Result<Kind>& parsed) {
  if (!parsed) return parsed.error();
  return to_json(*parsed);
}

const Definition& jobs() {
  static const Definition kJobs{
      json_of(YAML::LoadFile("crds/trainingjob.yaml")),
      full_jobs(),
      {least_training_job(), least_program_job()},
      [](const Json& document) { return written_of(parse_training_job(document)); },
      {"/spec/worker/min", "/spec/worker/max", "/spec/worker/processes", "/spec/worker/threads"}};
  return kJobs;
}

const Definition& queues() {
  static const Definition kQueues{
      json_of(YAML::LoadFile("crds/trainingqueue.yaml")),
      {full_training_queue()},
      {least_training_queue()},
      [](const Json& document) { return written_of(parse_training_queue(document)); },
      {}};
  return kQueues;
}

const Definition& topologies() {
  static const Definition kTopologies{
      json_of(YAML::LoadFile("crds/topologyconfig.yaml")),
      {full_topology_config()},
      {least_topology_config()},
      [](const Json& document) { return written_of(parse_topology_config(document)); },
      {}};
  return kTopologies;
}

const std::vector<const Definition*>& definitions() {
  static const std::vector<const Definition*> kAll{&jobs(), &queues(), &topologies()};
  return kAll;
}

/// "/spec/worker/env/2/name" as it stands in a sentence: "spec.worker.env[2].name".
std::string sentence_path(const std::string& pointer) {
  std::string path;
  const Json::json_pointer whole(pointer);
  for (auto at = whole; !at.empty(); at = at.parent_pointer()) {
    const std::string step = at.back();
    const bool is_index = step.find_first_not_of("0123456789") == std::string::npos;
    const std::string text = is_index ? "[" + step + "]" : "." + step;
    path.insert(0, text);
  }
  return path.substr(1);
}

/// One place of a document that a schema describes.
struct Place {
  const Definition* of;
  Json document;
  std::string pointer;
};

using Visit = std::function<void(const Json& schema, const std::string& generic,
                                 const std::vector<Place>& places)>;

/// Calls `visit` for every property and item schema with all places of the full documents that it
/// describes; `generic` has a * for an index.
void walk(const Json& schema, const std::string& generic, const std::vector<Place>& places,
          const Visit& visit) {
  if (!generic.empty()) visit(schema, generic, places);
  if (schema.contains("properties")) {
    for (const auto& [name, property] : schema["properties"].items()) {
      if (generic.empty() && name != "spec" && name != "status") continue;
      std::vector<Place> below;
      for (const auto& place : places) {
        const std::string pointer = place.pointer + "/" + name;
        if (place.document.contains(Json::json_pointer(pointer))) {
          below.push_back({place.of, place.document, pointer});
        }
      }
      walk(property, generic + "/" + name, below, visit);
    }
  }
  if (schema.contains("items")) {
    std::vector<Place> below;
    for (const auto& place : places) {
      const std::size_t size = place.document[Json::json_pointer(place.pointer)].size();
      for (std::size_t i = 0; i < size; ++i) {
        below.push_back({place.of, place.document, place.pointer + "/" + std::to_string(i)});
      }
    }
    walk(schema["items"], generic + "/*", below, visit);
  }
}

void walk(const Definition& of, const Visit& visit) {
  std::vector<Place> places;
  for (const Json& document : of.full) places.push_back({&of, document, ""});
  walk(of.schema(), "", places, visit);
}

void walk(const Visit& visit) {
  for (const Definition* one : definitions()) walk(*one, visit);
}

std::string refusal_of(const Place& place, const Json& value) {
  return place.of->refusal(with(place.document, place.pointer, value));
}

bool names(const std::string& sentence, const Place& place) {
  return sentence.starts_with(sentence_path(place.pointer));
}

/// A sentence about a bound, not about how two fields fit together.
bool is_about_bound(const std::string& sentence) {
  for (const char* words :
       {"must be from", "longer than", " items", "must be 1 to", "at most 1024", "must be an"}) {
    if (sentence.find(words) != std::string::npos) return true;
  }
  return false;
}

Json wrong_type(const Json& schema) {
  if (schema.contains("x-kubernetes-int-or-string")) return true;
  return schema["type"] == "string" ? Json(7) : Json("wrong");
}

/// Every pointer of `json` that `schema` does not describe.
void undescribed(const Json& json, const Json& schema, const std::string& at,
                 std::vector<std::string>& out) {
  if (schema.contains("additionalProperties")) return;
  for (const auto& [key, value] : json.items()) {
    const std::string where = at + "/" + key;
    const Json* below = nullptr;
    if (json.is_array() && schema.contains("items")) below = &schema["items"];
    if (json.is_object() && schema.contains("properties") && schema["properties"].contains(key)) {
      below = &schema["properties"][key];
    }
    if (below == nullptr) {
      out.push_back(where);
    } else if (value.is_structured()) {
      undescribed(value, *below, where, out);
    }
  }
}

}  // namespace

TEST_CASE("every field of the schema is described and bounded") {
  int fields = 0;
  walk([&](const Json& schema, const std::string& generic, const std::vector<Place>&) {
    ++fields;
    CAPTURE(generic);
    CHECK(schema.value("description", "").size() > 3);
    const std::string type = schema.value("type", "");
    if (type == "string") {
      const bool bounded =
          schema.contains("maxLength") || schema.contains("enum") || schema.contains("format");
      CHECK(bounded);
    } else if (type == "integer") {
      CHECK(schema.contains("minimum"));
      CHECK(schema.contains("maximum"));
      CHECK(schema.contains("format"));
    } else if (type == "array") {
      CHECK(schema.contains("maxItems"));
      CHECK(schema.contains("x-kubernetes-list-type"));
    } else if (type == "object") {
      const bool bounded = schema.contains("properties") || schema.contains("maxProperties");
      CHECK(bounded);
    } else if (type != "boolean") {
      CHECK(schema.contains("x-kubernetes-int-or-string"));
    }
  });
  MESSAGE("fields of the schema: ", fields);
  CHECK(fields > 150);
}

TEST_CASE("no field names a namespace: whatever is named is of the object's own, or of none") {
  walk([](const Json& schema, const std::string& generic, const std::vector<Place>&) {
    const std::string name = generic.substr(generic.rfind('/') + 1);
    // Of a queue, which administrators write: whose jobs it takes.
    const bool is_of_queue = generic == "/spec/namespaces";
    CHECK_MESSAGE((is_of_queue || name.find("amespace") == std::string::npos), generic);
    // Nor is there an object that takes any field, that one among them.
    CHECK_FALSE_MESSAGE(schema.contains("x-kubernetes-preserve-unknown-fields"), generic);
    CHECK_FALSE_MESSAGE(schema.contains("x-kubernetes-embedded-resource"), generic);
  });
}

TEST_CASE("every field of the schema is read, and a wrong type is refused by its name") {
  int tried = 0;
  walk([&](const Json& schema, const std::string& generic, const std::vector<Place>& places) {
    // A field that stands in no full document of the tests is one that nothing here checks.
    CHECK_MESSAGE(!places.empty(), generic);
    for (const Place& place : places) {
      const std::string sentence = refusal_of(place, wrong_type(schema));
      CHECK_MESSAGE(names(sentence, place), place.pointer << " said: " << sentence);
      ++tried;
    }
  });
  MESSAGE("wrong types tried: ", tried);
}

TEST_CASE("a field that the schema does not have is refused wherever it stands") {
  int tried = 0;
  walk([&](const Json& schema, const std::string& generic, const std::vector<Place>& places) {
    if (!schema.contains("properties")) return;
    for (const Place& place : places) {
      // What another version of the operator has written is read as far as it is known.
      if (place.pointer.starts_with("/status")) continue;
      const Json document = with(place.document, place.pointer + "/nonsense", 1);
      const std::string sentence = place.of->refusal(document);
      CHECK_MESSAGE(names(sentence, place), generic << " said: " << sentence);
      CHECK_MESSAGE(sentence.find("nonsense") != std::string::npos, generic << ": " << sentence);
      ++tried;
    }
  });
  MESSAGE("unknown fields tried: ", tried);
  CHECK(tried > 30);
}

TEST_CASE("what the schema bounds is bounded here alike") {
  int bounds = 0;
  const auto refused = [&](const Place& place, const Json& value) {
    ++bounds;
    const std::string sentence = refusal_of(place, value);
    CHECK_MESSAGE(names(sentence, place), place.pointer << " = " << dump_json(value).substr(0, 40)
                                                        << " said: " << sentence);
  };
  const auto within = [&](const Place& place, const Json& value) {
    ++bounds;
    const std::string sentence = refusal_of(place, value);
    const bool refused_for_bound = names(sentence, place) && is_about_bound(sentence);
    CHECK_MESSAGE(!refused_for_bound, place.pointer << " = " << dump_json(value).substr(0, 40)
                                                    << " said: " << sentence);
  };
  walk([&](const Json& schema, const std::string&, const std::vector<Place>& places) {
    for (const Place& place : places) {
      if (schema.contains("minimum")) {
        within(place, schema["minimum"]);
        refused(place, schema["minimum"].get<std::int64_t>() - 1);
      }
      if (schema.contains("maximum")) {
        within(place, schema["maximum"]);
        refused(place, schema["maximum"].get<std::int64_t>() + 1);
      }
      if (schema.contains("enum")) {
        for (const Json& word : schema["enum"]) CHECK(!names(refusal_of(place, word), place));
        refused(place, "Nonsense");
      }
      if (schema.contains("minLength") && place.pointer.starts_with("/spec")) refused(place, "");
      if (schema.contains("maxLength")) {
        const auto length = schema["maxLength"].get<std::size_t>();
        refused(place, std::string(length + 1, 'a'));
        if (!schema.contains("pattern")) within(place, std::string(length, 'a'));
      }
      if (schema.contains("maxItems")) {
        const Json item = place.document[Json::json_pointer(place.pointer)][0];
        const auto items = schema["maxItems"].get<std::size_t>();
        within(place, Json(items, item));
        refused(place, Json(items + 1, item));
      }
      if (schema.contains("minItems")) refused(place, Json::array());
      if (schema.contains("maxProperties")) {
        Json entries = Json::object();
        for (int i = 0; i <= schema["maxProperties"].get<int>(); ++i) {
          entries["k" + std::to_string(i)] = "v";
        }
        refused(place, entries);
      }
    }
  });
  MESSAGE("bounds tried: ", bounds);
  CHECK(bounds > 400);
}

TEST_CASE("as many logical ranks are let in as the engine divides") {
  const Json& ranks = jobs().schema()[Json::json_pointer(
      "/properties/spec/properties/training/properties/logicalRanks")];
  CHECK(ranks["maximum"] == contract::kMaxLogicalRanks);
  const std::string last = ", " + std::to_string(contract::kMaxLogicalRanks) + "]";
  CHECK(ranks["x-kubernetes-validations"][0]["rule"].get<std::string>().ends_with(last));
}

TEST_CASE("the schema's words name all that may change of a job, and all that never may") {
  // What check_update says of them: training_job_update_test.cpp.
  const auto names_all = [](const Json& words, std::initializer_list<const char*> fields) {
    for (const char* field : fields) {
      CHECK_MESSAGE(words.get<std::string>().find(field) != std::string::npos, field);
    }
  };
  names_all(jobs().schema()["properties"]["spec"]["description"],
            {"managedBy", "logicalRanks", "seed", "model", "precision",
             "whether there is a training", "count", "min", "max", "growsTo", "suspend",
             "queueName", "priorityClassName", "activeDeadlineSeconds", "ttlSecondsAfterFinished"});
  int refusals = 0;
  for (const Json& rule : jobs().schema()["x-kubernetes-validations"]) {
    const std::string message = rule["message"];
    if (message.find("once the job has trained") == std::string::npos) continue;
    ++refusals;
    names_all(message, {"count", "min", "max", "growsTo"});
  }
  CHECK(refusals == 2);
}

TEST_CASE("what the schema requires is required here") {
  int required = 0;
  walk([&](const Json& schema, const std::string&, const std::vector<Place>& places) {
    if (!schema.contains("required")) return;
    for (const Place& place : places) {
      for (const Json& field : schema["required"]) {
        // A condition written by another hand may lack what the schema asks of ours.
        const bool is_lenient = place.pointer.starts_with("/status/conditions") &&
                                (field == "reason" || field == "lastTransitionTime");
        if (is_lenient) continue;
        const std::string sentence = place.of->refusal(
            with(place.document, place.pointer + "/" + field.get<std::string>(), nullptr));
        CHECK_MESSAGE(names(sentence, place), place.pointer << "/" << field << ": " << sentence);
        ++required;
      }
    }
  });
  CHECK(required > 20);
}

TEST_CASE("the schema's defaults are the ones filled in here") {
  int defaults = 0;
  walk([&](const Json& schema, const std::string&, const std::vector<Place>& places) {
    if (!schema.contains("default") || schema["default"].is_object()) return;
    for (const Place& place : places) {
      const auto made = place.of->written(with(place.document, place.pointer, nullptr));
      // Some defaults do not suit the rest of the full documents; the least ones show those.
      if (!made) continue;
      const Json& written = *made;
      CHECK_MESSAGE(written[Json::json_pointer(place.pointer)] == schema["default"], place.pointer);
      ++defaults;
    }
  });
  CHECK(defaults >= 20);
}

TEST_CASE("what is filled in here is a default of the schema, or follows from other fields") {
  for (const Definition* of : definitions()) {
    for (const Json& least : of->least) {
      const Json written = *of->written(least);
      const std::function<void(const Json&, const Json&, const std::string&)> compare =
          [&](const Json& value, const Json& schema, const std::string& at) {
            if (value.is_object()) {
              for (const auto& [key, member] : value.items()) {
                compare(member, schema["properties"][key], at + "/" + key);
              }
            } else if (!least.contains(Json::json_pointer(at)) &&
                       std::find(of->derived.begin(), of->derived.end(), at) == of->derived.end()) {
              CHECK_MESSAGE(schema.value("default", Json()) == value, at);
            }
          };
      compare(written["spec"], of->schema()["properties"]["spec"], "/spec");
    }
  }
}

TEST_CASE("what is written here stands in the schema") {
  for (const Definition* of : definitions()) {
    std::vector<Json> documents = of->full;
    documents.insert(documents.end(), of->least.begin(), of->least.end());
    for (const Json& document : documents) {
      const Json written = *of->written(document);
      for (const char* part : {"spec", "status"}) {
        if (!written.contains(part)) continue;
        std::vector<std::string> unknown;
        undescribed(written[part], of->schema()["properties"][part], std::string("/") + part,
                    unknown);
        CHECK_MESSAGE(unknown.empty(), (unknown.empty() ? "" : unknown.front()));
      }
    }
  }
}

TEST_CASE("kubectl finds what it shows and scales") {
  for (const Definition* of : definitions()) {
    const Json& document = of->full.front();
    const auto resolves = [&](std::string path) {
      for (std::size_t at = 0; (at = path.find_first_of(".[", at)) != std::string::npos; ++at) {
        path[at] = '/';
      }
      std::erase(path, ']');
      if (path == "/metadata/creationTimestamp") return true;
      return document.contains(Json::json_pointer(path));
    };
    const bool has_status = of->schema()["properties"].contains("status");
    CHECK(of->version()["additionalPrinterColumns"].size() > (has_status ? 6 : 2));
    for (const Json& column : of->version()["additionalPrinterColumns"]) {
      CHECK_MESSAGE(resolves(column["jsonPath"]), column["name"]);
      CHECK(column["description"].get<std::string>().size() > 3);
    }
    const Json subresources = of->version().value("subresources", Json::object());
    CHECK(subresources.contains("status") == has_status);
    if (!subresources.contains("scale")) continue;
    for (const auto& [name, path] : subresources["scale"].items()) {
      CHECK_MESSAGE(resolves(path), name);
    }
  }
  CHECK(jobs().crd["metadata"]["name"] == "trainingjobs.muster.dev");
  CHECK(jobs().version()["additionalPrinterColumns"].size() == 13);
  CHECK(queues().crd["metadata"]["name"] == "trainingqueues.muster.dev");
  CHECK(queues().crd["spec"]["scope"] == "Cluster");
  CHECK(topologies().crd["metadata"]["name"] == "topologyconfigs.muster.dev");
  CHECK(topologies().crd["spec"]["scope"] == "Cluster");
}

TEST_CASE("the definition in the chart is the project's") {
  for (const char* name : {"trainingjob", "trainingqueue", "topologyconfig"}) {
    const std::string file = std::string(name) + ".yaml";
    CHECK(json_of(YAML::LoadFile("charts/muster/files/" + file)) ==
          json_of(YAML::LoadFile("crds/" + file)));
  }
}
