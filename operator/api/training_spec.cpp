// spec.training: what the built-in engine trains. The worker validates it again.
#include <algorithm>
#include <charconv>
#include <span>

#include "common/contract.h"
#include "common/split.h"
#include "common/training_bounds.h"
#include "operator/api/fields.h"
#include "operator/api/spec_json.h"

namespace muster::api {
namespace {

namespace bounds = training_bounds;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool take_digits(std::string_view& text) {
  const std::size_t before = text.size();
  while (!text.empty() && is_digit(text.front())) text.remove_prefix(1);
  return text.size() < before;
}

/// digits[.digits][e[+-]digits], with an optional sign. Empty when `text` is none.
std::optional<double> parse_decimal(std::string_view text) {
  std::string_view rest = text;
  if (!rest.empty() && rest.front() == '-') rest.remove_prefix(1);
  if (!take_digits(rest)) return std::nullopt;
  if (!rest.empty() && rest.front() == '.') {
    rest.remove_prefix(1);
    if (!take_digits(rest)) return std::nullopt;
  }
  if (!rest.empty() && (rest.front() == 'e' || rest.front() == 'E')) {
    rest.remove_prefix(1);
    if (!rest.empty() && (rest.front() == '+' || rest.front() == '-')) rest.remove_prefix(1);
    if (!take_digits(rest)) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (!rest.empty() || error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return value;
}

/// Reads a decimal string into `text` (kept as written) and its value as the engine's float.
/// Empty after an error or when absent.
std::optional<float> read_decimal(JsonReader& in, const Json& json, const char* field,
                                  std::string& text, const char* example) {
  if (in.has(field) && json[field].is_number()) {
    in.fail(field, std::string("must be a decimal in quotes, such as \"") + example + "\"");
    return std::nullopt;
  }
  in.optional(field, text, kMaxDecimalBytes);
  if (!in.has(field) || !in.status()) return std::nullopt;
  const auto value = parse_decimal(text);
  if (!value) {
    in.fail(field, in_quotes(text) + " is not a decimal; write it like \"" + example + "\"");
    return std::nullopt;
  }
  return static_cast<float>(*value);
}

/// What a list of sizes may be.
struct SizeBounds {
  std::size_t items;
  int most;
};

void read_sizes(JsonReader& in, const char* field, SizeBounds bounds, Json& out) {
  read_list(in, field, bounds.items, [&](const Json& item, const std::string& at) -> Status {
    const bool fits = item.is_number_integer() && item >= 1 && item <= bounds.most;
    if (!fits) {
      return Error(ErrorCode::kInvalid,
                   at + ": must be an integer from 1 to " + std::to_string(bounds.most));
    }
    out[field].push_back(item.get<int>());
    return {};
  });
}

void read_dropout(JsonReader& in, const Json& json, const char* field, Json& out) {
  std::string text = "0";
  const auto share = read_decimal(in, json, field, text, "0.25");
  if (share && !(*share >= 0 && *share < 1)) {
    in.fail(field, "must be from 0 to below 1, not " + in_quotes(text));
  }
  out[field] = text;
}

void read_attention_dropout(JsonReader& in, const Json& json, Json& out) {
  const char* const field = "attentionDropout";
  std::string text = "0";
  const auto share = read_decimal(in, json, field, text, "0.1");
  if (share && !(*share >= 0 && *share <= bounds::kMaxAttentionDropout)) {
    in.fail(field, "must be from 0 to 0.999, not " + in_quotes(text));
  }
  out[field] = text;
}

Status read_mlp(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  out = Json{{"hidden", Json::array()}};
  if (!in.has("hidden")) in.fail("hidden", "is required: the widths of the hidden layers");
  read_sizes(in, "hidden", {bounds::kMaxLayers, bounds::kMaxLayerWidth}, out);
  if (in.status() && out["hidden"].empty()) in.fail("hidden", "must have at least one layer");
  read_dropout(in, json, "dropout", out);
  in.no_other_fields();
  return in.status();
}

Status read_cnn(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  out = Json{{"channels", Json::array()}, {"hidden", Json::array()}};
  if (!in.has("channels")) in.fail("channels", "is required: how many each stage makes");
  read_sizes(in, "channels", {bounds::kMaxCnnStages, bounds::kMaxChannels}, out);
  if (in.status() && out["channels"].empty()) in.fail("channels", "must have at least one stage");
  int side = 3;
  in.optional("kernelSize", side, {1, bounds::kMaxKernelSize});
  if (in.status() && side % 2 == 0) {
    in.fail("kernelSize",
            "must be odd, not " + std::to_string(side) + ", so that a kernel has a middle");
  }
  std::string normalization = "Batch";
  optional_enum(in, "normalization", normalization, {"Batch", "None"});
  read_sizes(in, "hidden", {bounds::kMaxLayers, bounds::kMaxLayerWidth}, out);
  read_dropout(in, json, "dropout", out);
  in.no_other_fields();
  out["kernelSize"] = side;
  out["normalization"] = normalization;
  return in.status();
}

Status read_gpt(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  int layers = 0, heads = 0, width = 0, context_length = 0;
  in.required("layers", layers, {1, bounds::kMaxBlocks});
  in.required("heads", heads, {1, bounds::kMaxHeads});
  in.required("width", width, {1, bounds::kMaxGptWidth});
  in.required("contextLength", context_length, {1, bounds::kMaxContextLength});
  int vocabulary_size = bounds::kByteTokens;
  in.optional("vocabularySize", vocabulary_size, {2, bounds::kMaxVocabularySize});
  Json dropouts;
  read_dropout(in, json, "dropout", dropouts);
  read_attention_dropout(in, json, dropouts);
  if (in.status() && width % heads != 0) {
    in.fail("width", "is " + std::to_string(width) + ", not a multiple of heads (" +
                         std::to_string(heads) + ")");
  }
  in.no_other_fields();
  out = Json{
      {"layers", layers}, {"heads", heads}, {"width", width}, {"contextLength", context_length}};
  // Left out where it was, so that workers of an older version can read the rest.
  if (in.has("vocabularySize")) out["vocabularySize"] = vocabulary_size;
  for (const auto& [field, share] : dropouts.items()) {
    if (in.has(field)) out[field] = share;
  }
  return in.status();
}

Status read_model(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  const auto read = [&](const char* name,
                        Status (*member)(const Json&, const std::string&, Json&)) {
    read_object(in, name, [&](const Json& object, const std::string& at) {
      Json model;
      const Status status = member(object, at, model);
      out = Json{{name, std::move(model)}};
      return status;
    });
  };
  read("mlp", read_mlp);
  read("cnn", read_cnn);
  read("gpt", read_gpt);
  in.no_other_fields();
  one_of(in, {"mlp", "cnn", "gpt"});
  return in.status();
}

/// A file of the worker. Empty when it can be one, else what is wrong.
std::string path_refused(const std::string& path) {
  if (path.empty()) return "must be a path";
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 0x7f; };
  if (std::any_of(path.begin(), path.end(), is_control)) {
    return "must not contain control characters";
  }
  const std::size_t scheme = path.find("://");
  const auto is_scheme_letter = [](char c) {
    return is_digit(c) || is_letter(c) || c == '+' || c == '.' || c == '-';
  };
  if (scheme != std::string::npos && is_letter(path.front()) &&
      std::all_of(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(scheme),
                  is_scheme_letter)) {
    return "must be a path, not a URL; put the data into the image or on a claim";
  }
  return "";
}

/// An object of `fields` that are paths, all required.
Status read_paths(const Json& json, const std::string& path,
                  std::initializer_list<const char*> fields, Json& out) {
  SpecReader in(json, path);
  out = Json::object();
  std::vector<std::string> files(fields.size());
  auto file = files.begin();
  for (const char* field : fields) in.required(field, *file++, bounds::kMaxPathBytes);
  in.no_other_fields();
  file = files.begin();
  for (const char* field : fields) {
    const std::string why = path_refused(*file);
    if (in.status() && !why.empty()) in.fail(field, why);
    out[field] = std::move(*file++);
  }
  return in.status();
}

Status read_shards(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  out = Json{{"files", Json::array()}};
  if (!in.has("files")) in.fail("files", "is required: the shards, at least one");
  read_list(
      in, "files", bounds::kMaxShards, [&](const Json& item, const std::string& at) -> Status {
        const std::string file = item.is_string() ? item.get<std::string>() : "";
        const std::string why = path_refused(file);
        if (!why.empty()) return Error(ErrorCode::kInvalid, at + ": " + why);
        if (file.size() > bounds::kMaxPathBytes) {
          return Error(ErrorCode::kInvalid, at + ": must have at most " +
                                                std::to_string(bounds::kMaxPathBytes) + " bytes");
        }
        out["files"].push_back(file);
        return {};
      });
  if (in.status() && out["files"].empty()) in.fail("files", "must have at least one shard");
  in.no_other_fields();
  return in.status();
}

/// The usual word of a table's field, and the other one.
constexpr struct {
  const char *field, *usual, *other;
} kTableRules[] = {
    {"scale", "None", "Standard"}, {"words", "Refused", "OneHot"}, {"missing", "Refused", "Mean"}};

/// A test table is read by its training table's rules.
Status read_table(const Json& json, const std::string& path, bool is_test, Json& out) {
  SpecReader in(json, path);
  std::string file, label;
  in.required("file", file, bounds::kMaxPathBytes);
  in.required("label", label, bounds::kMaxColumnBytes);
  Json rules = Json::object();
  for (const auto& [field, usual, other] : kTableRules) {
    if (is_test || !in.has(field)) continue;
    std::string word;
    optional_enum(in, field, word, {usual, other});
    rules[field] = word;
  }
  in.no_other_fields();
  const std::string why = path_refused(file);
  if (in.status() && !why.empty()) in.fail("file", why);
  const bool is_shown = std::none_of(label.begin(), label.end(), [](char c) {
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
  });
  if (in.status() && (label.empty() || !is_shown)) {
    in.fail("label", "must be the name of a column, without control characters");
  }
  out = Json{{"file", file}, {"label", label}};
  out.update(rules);
  return in.status();
}

Status read_image_folder(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  std::string directory;
  in.required("directory", directory, bounds::kMaxPathBytes);
  const std::string why = path_refused(directory);
  if (in.status() && !why.empty()) in.fail("directory", why);
  out = Json{{"directory", directory}};
  for (const char* side : {"height", "width"}) {
    int pixels = 0;
    in.optional(side, pixels, {1, bounds::kMaxImageSide});
    if (in.has(side)) out[side] = pixels;
  }
  if (in.has("height") != in.has("width")) {
    in.fail("", "must have both height and width, or neither");
  }
  std::string colors;
  optional_enum(in, "colors", colors, {"RGB", "Gray"});
  if (in.has("colors")) out["colors"] = colors;
  in.no_other_fields();
  return in.status();
}

Status read_source(const Json& json, const std::string& path, bool is_test, Json& out) {
  SpecReader in(json, path);
  const auto read = [&](const char* kind, const auto& reader) {
    read_object(in, kind, [&](const Json& object, const std::string& at) {
      Json fields;
      const Status status = reader(object, at, fields);
      out = Json{{kind, std::move(fields)}};
      return status;
    });
  };
  read("idx", [](const Json& object, const std::string& at, Json& files) {
    return read_paths(object, at, {"images", "labels"}, files);
  });
  read("imageFolder", read_image_folder);
  read("csv", [is_test](const Json& object, const std::string& at, Json& table) {
    return read_table(object, at, is_test, table);
  });
  read("text", [](const Json& object, const std::string& at, Json& files) {
    return read_paths(object, at, {"file"}, files);
  });
  read("tokens", read_shards);
  in.no_other_fields();
  one_of(in, {"idx", "imageFolder", "csv", "text", "tokens"});
  return in.status();
}

Status read_data(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  out = Json::object();
  if (!in.has("train")) in.fail("train", "is required: what to train on");
  for (const char* split : {"train", "test"}) {
    read_object(in, split, [&](const Json& object, const std::string& at) {
      return read_source(object, at, std::string_view(split) == "test", out[split]);
    });
  }
  read_object(in, "vocabulary", [&](const Json& object, const std::string& at) {
    return read_paths(object, at, {"directory"}, out["vocabulary"]);
  });
  if (in.has("vocabulary") && !(out.contains("train") && out["train"].contains("tokens"))) {
    in.fail("vocabulary", "is for tokens alone");
  }
  in.no_other_fields();
  return in.status();
}

Status read_pretrained(const Json& json, const std::string& path, std::string& out) {
  Json paths;
  MUSTER_RETURN_IF_ERROR(read_paths(json, path, {"directory"}, paths));
  out = paths["directory"].get<std::string>();
  return {};
}

/// A field that is a decimal string. `fits` is asked about the engine's float.
struct DecimalField {
  const char* name;
  const char* fallback;  ///< nullptr: required
  const char* example;
  const char* range;  ///< in words
  bool (*fits)(float);
};

constexpr const char* kLearningRateRange = "above 0 and at most 1000";
bool is_learning_rate(float value) { return value > 0 && value <= 1000; }
/// 1 - beta^t, by which AdamW divides, must not vanish.
bool is_beta(float value) { return value >= 0 && value <= 0.999999F; }

const DecimalField kSgdFields[] = {
    {"learningRate", nullptr, "0.1", kLearningRateRange, is_learning_rate},
    {"momentum", "0", "0.9", "from 0 to below 1", [](float v) { return v >= 0 && v < 1; }}};

const DecimalField kAdamwFields[] = {
    {"learningRate", nullptr, "0.001", kLearningRateRange, is_learning_rate},
    {"beta1", "0.9", "0.9", "from 0 to 0.999999", is_beta},
    {"beta2", "0.999", "0.999", "from 0 to 0.999999", is_beta},
    {"epsilon", "1e-8", "1e-8", "from 1e-20 to 1", [](float v) { return v >= 1e-20F && v <= 1; }},
    {"weightDecay", "0.01", "0.01", "from 0 to 1", [](float v) { return v >= 0 && v <= 1; }}};

const DecimalField kClippingFields[] = {{"maxNorm", nullptr, "1.0", "from 1e-9 to 1e9",
                                         [](float v) { return v >= 1e-9F && v <= 1e9F; }}};

const DecimalField kFinalShare = {"finalShare", "0", "0.1", "from 0 to 1",
                                  [](float v) { return v >= 0 && v <= 1; }};

/// `out` has the field as it was written.
void read_field(JsonReader& in, const Json& json, const DecimalField& field, Json& out) {
  std::string text = field.fallback == nullptr ? "" : field.fallback;
  if (field.fallback == nullptr && !in.has(field.name)) {
    in.fail(field.name, std::string("is required, such as \"") + field.example + "\"");
  }
  const auto value = read_decimal(in, json, field.name, text, field.example);
  if (value && !field.fits(*value)) {
    in.fail(field.name, std::string("must be ") + field.range + ", not " + in_quotes(text));
  }
  out[field.name] = text;
}

/// Reads an object that has decimal strings and nothing else.
Status read_decimals(const Json& json, const std::string& path,
                     std::span<const DecimalField> fields, Json& out) {
  SpecReader in(json, path);
  out = Json::object();
  for (const DecimalField& field : fields) read_field(in, json, field, out);
  in.no_other_fields();
  return in.status();
}

Status read_adamw(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  std::string decayed = "All";
  out = Json::object();
  for (const DecimalField& field : kAdamwFields) read_field(in, json, field, out);
  in.optional("weightDecayOf", decayed, 64);
  if (in.status() && decayed != "All" && decayed != "Matrices") {
    in.fail("weightDecayOf", "must be All or Matrices, not " + in_quotes(decayed));
  }
  // Left out where it says nothing, so that workers of an older version can read the rest.
  if (decayed != "All") out["weightDecayOf"] = decayed;
  in.no_other_fields();
  return in.status();
}

Status read_cosine(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  std::int64_t warmup = 0;
  in.optional("warmupSteps", warmup, {0, bounds::kMaxSteps});
  out = Json{{"warmupSteps", warmup}};
  read_field(in, json, kFinalShare, out);
  in.no_other_fields();
  return in.status();
}

Status read_schedule(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  out = Json::object();
  if (!in.has("cosine")) in.fail("cosine", "is required: the one schedule there is");
  read_object(in, "cosine", [&](const Json& object, const std::string& at) {
    return read_cosine(object, at, out["cosine"]);
  });
  in.no_other_fields();
  return in.status();
}

Status read_optimizer(const Json& json, const std::string& path, Json& out) {
  SpecReader in(json, path);
  out = Json::object();
  read_object(in, "sgd", [&](const Json& object, const std::string& at) {
    return read_decimals(object, at, kSgdFields, out["sgd"]);
  });
  read_object(in, "adamw", [&](const Json& object, const std::string& at) {
    return read_adamw(object, at, out["adamw"]);
  });
  read_object(in, "schedule", [&](const Json& object, const std::string& at) {
    return read_schedule(object, at, out["schedule"]);
  });
  in.no_other_fields();
  one_of(in, {"sgd", "adamw"});
  return in.status();
}

Status read_checkpoint(const Json& json, const std::string& path, CheckpointSpec& out) {
  SpecReader in(json, path);
  optional_name(in, "path", out.path, NameRule::kAbsolutePath);
  optional_name(in, "volumeClaimName", out.volume_claim_name, NameRule::kSubdomain);
  in.optional("everySteps", out.every_steps, {1, bounds::kMaxSteps});
  in.optional("keep", out.keep, {1, 100});
  in.no_other_fields();
  return in.status();
}

/// A word of an enumeration of which only `supported` works now.
void read_supported(JsonReader& in, const char* field, std::string& out,
                    std::string_view supported) {
  in.optional(field, out, 64);
  if (in.status() && out != supported) {
    in.fail(field, "must be " + std::string(supported) + ", the only one supported now, not " +
                       in_quotes(out));
  }
}

void read_parallelism(JsonReader& in, TrainingSpec& out) {
  read_object(in, "parallelism", [&](const Json& object, const std::string& at) {
    SpecReader split(object, at);
    split.optional("mode", out.parallelism_mode, 64);
    split.optional("tensor", out.split.tensor, {1, kMaxSplit});
    split.optional("pipeline", out.split.pipeline, {1, kMaxSplit});
    split.no_other_fields();
    if (!split.status()) return split.status();
    const bool is_auto = out.parallelism_mode == "Auto";
    if (!is_auto && out.parallelism_mode != "Fixed") {
      split.fail("mode", "must be Fixed or Auto, not " + in_quotes(out.parallelism_mode));
    }
    for (const auto& [field, processes] :
         {std::pair("tensor", out.split.tensor), std::pair("pipeline", out.split.pipeline)}) {
      if (processes == 1 || !is_auto) continue;
      split.fail(field, "must be left out with mode: Auto, which chooses it");
    }
    return split.status();
  });
}

/// Tokens are of a vocabulary that is said; a text is of bytes.
void check_vocabulary(JsonReader& in, const Json& gpt, const std::string& kind) {
  const std::string field = "model.gpt.vocabularySize";
  const bool is_given = gpt.contains("vocabularySize");
  if (kind == "tokens" && !is_given) {
    in.fail(field, "is required, because the data are tokens; GPT-2 has 50257");
  }
  if (kind == "text" && is_given && gpt["vocabularySize"] != bounds::kByteTokens) {
    in.fail(field, "must be " + std::to_string(bounds::kByteTokens) +
                       " or left out, because the data are the bytes of a text");
  }
}

/// A gpt learns from text or tokens, the other models from images, and an mlp from a table, too.
void check_data_suits_model(JsonReader& in, const TrainingSpec& training) {
  const std::string model = training.model.begin().key();
  const bool is_gpt = model == "gpt";
  for (const char* split : {"train", "test"}) {
    if (!training.data.contains(split)) continue;
    const std::string kind = training.data[split].begin().key();
    const bool is_of_gpt = kind == "text" || kind == "tokens";
    if (is_of_gpt != is_gpt || (kind == "csv" && model == "cnn")) {
      const char* const right = is_gpt           ? "text or tokens"
                                : model == "cnn" ? "idx or imageFolder"
                                                 : "idx, imageFolder or csv";
      in.fail(std::string("data.") + split,
              std::string("must be ") + right + ", because the model is " + model);
    }
    if (is_gpt) check_vocabulary(in, training.model["gpt"], kind);
  }
  for (const char* kind : {"imageFolder", "csv"}) {
    if (!in.status() || !training.data.contains("test")) break;
    if (training.data["train"].contains(kind) != training.data["test"].contains(kind)) {
      in.fail("data.test", std::string("must be ") + kind + " where data.train is, and only there");
    }
  }
  if (!is_gpt && !training.pretrained.empty()) {
    in.fail("pretrained", "is for a gpt alone, and the model is " + model);
  }
  if (!is_gpt && training.activations != "Kept") {
    in.fail("activations", "Recomputed is for a gpt alone, and the model is " + model);
  }
  if (!is_gpt) return;
  const int context_length = training.model["gpt"]["contextLength"].get<int>();
  const int samples_max = bounds::kMaxBatchTokens / context_length;
  if (training.batch_size > samples_max) {
    in.fail("batchSize", "must be at most " + std::to_string(samples_max) + ", not " +
                             std::to_string(training.batch_size) +
                             ", because the contextLength is " + std::to_string(context_length) +
                             " and a step has at most " + std::to_string(bounds::kMaxBatchTokens) +
                             " tokens");
  }
}

/// Whether every layer that is divided can be divided by so many.
void check_tensor(JsonReader& in, const TrainingSpec& training) {
  const int tensor = training.split.tensor;
  if (tensor == 1) return;
  const std::string field = "parallelism.tensor";
  const Json& model = training.model.begin().value();
  if (training.model.contains("cnn")) {
    return in.fail(field, "must be 1, because the model is cnn; convolutions cannot be divided");
  }
  const auto check = [&](const std::string& what, const Json& size) {
    if (size.get<int>() % tensor == 0) return;
    in.fail(field, "is " + std::to_string(tensor) + ", but model." + what + " has " + size.dump() +
                       "; must divide it");
  };
  if (training.model.contains("gpt")) return check("gpt.heads", model["heads"]);
  for (const Json& width : model["hidden"]) check("mlp.hidden", width);
}

ModelDepth depth_of(const Json& model) {
  const auto count = [](const Json& list) { return static_cast<int>(list.size()); };
  ModelDepth depth;
  if (model.contains("gpt")) depth.blocks = model["gpt"]["layers"].get<int>();
  if (model.contains("mlp")) depth.hidden = count(model["mlp"]["hidden"]);
  if (model.contains("cnn")) {
    const Json& cnn = model["cnn"];
    depth.convolutions = count(cnn["channels"]);
    if (cnn["normalization"] == "Batch") depth.normalisations = depth.convolutions;
    depth.hidden = count(cnn["hidden"]);
  }
  return depth;
}

/// Whether there is something of the model for every stage.
void check_pipeline(JsonReader& in, const TrainingSpec& training) {
  const int stages = training.split.pipeline, most = stages_at_most(depth_of(training.model));
  if (stages <= most) return;
  in.fail("parallelism.pipeline", "is " + std::to_string(stages) +
                                      ", but the model can be cut into at most " +
                                      std::to_string(most) + " stages");
}

/// How many steps some epochs have depends on the data, which the workers know.
void check_schedule(JsonReader& in, const TrainingSpec& training) {
  const Json::json_pointer at("/schedule/cosine/warmupSteps");
  if (training.steps == 0 || !training.optimizer.contains(at)) return;
  const auto warmup = training.optimizer.at(at).get<std::int64_t>();
  if (warmup <= training.steps) return;
  in.fail("optimizer.schedule.cosine.warmupSteps",
          "is " + std::to_string(warmup) + ", but the training has " +
              std::to_string(training.steps) + " steps; must be at most their number");
}

void check_training(JsonReader& in, const TrainingSpec& training) {
  if (!in.status()) return;
  const int ranks = training.logical_ranks;
  if ((ranks & (ranks - 1)) != 0) {
    in.fail("logicalRanks",
            "must be a power of two (1, 2, 4, 8, ...), not " + std::to_string(ranks));
  }
  if (training.batch_size % ranks != 0) {
    in.fail("batchSize", "is " + std::to_string(training.batch_size) +
                             ", not a multiple of logicalRanks (" + std::to_string(ranks) + ")");
  }
  const int rank_size = training.batch_size / ranks;
  if (training.micro_batch_size != 0 && training.micro_batch_size < rank_size) {
    in.fail("microBatchSize", "must be at least " + std::to_string(rank_size) +
                                  ", the samples of a logical rank (batchSize / logicalRanks), "
                                  "not " +
                                  std::to_string(training.micro_batch_size));
  }
  if (in.has("epochs") == in.has("steps")) {
    in.fail("", in.has("epochs") ? "has both epochs and steps; leave one out"
                                 : "must have epochs or steps: how long to train");
  }
  check_data_suits_model(in, training);
  check_tensor(in, training);
  check_pipeline(in, training);
  check_schedule(in, training);
}

}  // namespace

Status read_training(const Json& json, const std::string& path, TrainingSpec& out) {
  SpecReader in(json, path);
  // The one field that pods are made of: what is wrong with it is said before all else.
  read_object(in, "checkpoint", [&](const Json& object, const std::string& at) {
    return read_checkpoint(object, at, out.checkpoint.emplace());
  });
  read_supported(in, "algorithm", out.algorithm, "Backpropagation");
  read_supported(in, "mode", out.mode, "Strict");
  in.optional("seed", out.seed, {0, kMaxExactInteger});
  in.optional("logicalRanks", out.logical_ranks, {1, contract::kMaxLogicalRanks});
  in.optional("batchSize", out.batch_size, {1, bounds::kMaxBatchSize});
  in.optional("microBatchSize", out.micro_batch_size, {1, bounds::kMaxBatchSize});
  in.optional("epochs", out.epochs, {1, bounds::kMaxEpochs});
  in.optional("steps", out.steps, {1, bounds::kMaxSteps});
  for (const char* field : {"model", "data", "optimizer"}) {
    if (!in.has(field)) in.fail(field, "is required");
  }
  read_object(in, "model", [&](const Json& object, const std::string& at) {
    return read_model(object, at, out.model);
  });
  read_object(in, "data", [&](const Json& object, const std::string& at) {
    return read_data(object, at, out.data);
  });
  read_object(in, "pretrained", [&](const Json& object, const std::string& at) {
    return read_pretrained(object, at, out.pretrained);
  });
  read_object(in, "optimizer", [&](const Json& object, const std::string& at) {
    return read_optimizer(object, at, out.optimizer);
  });
  read_object(in, "gradientClipping", [&](const Json& object, const std::string& at) {
    return read_decimals(object, at, kClippingFields, out.gradient_clipping);
  });
  read_object(in, "evaluation", [&](const Json& object, const std::string& at) {
    SpecReader evaluation(object, at);
    evaluation.optional("everyEpochs", out.evaluation_every_epochs, {1, bounds::kMaxEpochs});
    evaluation.optional("everySteps", out.evaluation_every_steps, {1, bounds::kMaxSteps});
    evaluation.optional("maxSamples", out.evaluation_max_samples, {1, bounds::kMaxTestSamples});
    evaluation.no_other_fields();
    return evaluation.status();
  });
  optional_enum(in, "onNonFinite", out.on_non_finite, {"RollBack", "Stop"});
  optional_enum(in, "optimizerState", out.optimizer_state, {"Replicated", "Sharded"});
  optional_enum(in, "activations", out.activations, {"Kept", "Recomputed"});
  optional_enum(in, "precision", out.precision, {"Float32", "BFloat16"});
  in.optional("buddies", out.buddies, {1, 2});
  if (out.buddies > 1 && out.optimizer_state != "Sharded") {
    in.fail("buddies", "is for optimizerState: Sharded alone; leave it out or use that");
  }
  read_parallelism(in, out);
  in.no_other_fields();
  check_training(in, out);
  return in.status();
}

Json training_to_json(const TrainingSpec& training) {
  Json json{
      {"algorithm", training.algorithm},
      {"mode", training.mode},
      {"seed", training.seed},
      {"logicalRanks", training.logical_ranks},
      {"batchSize", training.batch_size},
      {"model", training.model},
      {"data", training.data},
      {"optimizer", training.optimizer},
      {"evaluation", {{"everyEpochs", training.evaluation_every_epochs}}},
      {"optimizerState", training.optimizer_state},
      {"parallelism", {{"tensor", training.split.tensor}, {"pipeline", training.split.pipeline}}}};
  if (!training.gradient_clipping.is_null()) {
    json["gradientClipping"] = training.gradient_clipping;
  }
  // Left out where they say nothing, so that workers of an older version can read the rest.
  if (training.evaluation_every_steps != 0) {
    json["evaluation"]["everySteps"] = training.evaluation_every_steps;
  }
  if (training.evaluation_max_samples != 0) {
    json["evaluation"]["maxSamples"] = training.evaluation_max_samples;
  }
  if (training.parallelism_mode != "Fixed") {
    json["parallelism"]["mode"] = training.parallelism_mode;
  }
  if (!training.pretrained.empty()) json["pretrained"] = Json{{"directory", training.pretrained}};
  if (training.micro_batch_size != 0) json["microBatchSize"] = training.micro_batch_size;
  if (training.on_non_finite != "RollBack") json["onNonFinite"] = training.on_non_finite;
  if (training.activations != "Kept") json["activations"] = training.activations;
  if (training.precision != "Float32") json["precision"] = training.precision;
  if (training.buddies != 1) json["buddies"] = training.buddies;
  if (training.epochs > 0) json["epochs"] = training.epochs;
  if (training.steps > 0) json["steps"] = training.steps;
  if (training.checkpoint) {
    const CheckpointSpec& checkpoint = *training.checkpoint;
    json["checkpoint"] = Json{{"path", checkpoint.path},
                              {"everySteps", checkpoint.every_steps},
                              {"keep", checkpoint.keep}};
    if (!checkpoint.volume_claim_name.empty()) {
      json["checkpoint"]["volumeClaimName"] = checkpoint.volume_claim_name;
    }
  }
  // Where how it is split was chosen here, it is not written there.
  if (training.as_written.is_object()) json.merge_patch(training.as_written);
  return json;
}

}  // namespace muster::api
