#include "operator/api/training_job.h"

#include <doctest/doctest.h>

#include "common/contract.h"
#include "common/rng.h"
#include "operator/api/pod.h"
#include "tests/restricted.h"
#include "tests/test_main.h"
#include "tests/unit/api/jobs.h"

using namespace muster;
using namespace muster::api;
using namespace muster::test;

TEST_CASE("the least manifest gets every default") {
  const TrainingJob job = *parse_training_job(least_training_job());
  CHECK(job.spec.worker == WorkerSpec{});
  TrainingSpec training;
  training.epochs = 20;
  training.model = Json{{"mlp", {{"hidden", {128}}, {"dropout", "0"}}}};
  training.data = Json{{"train", {{"idx", {{"images", "a"}, {"labels", "b"}}}}}};
  training.optimizer = Json{{"sgd", {{"learningRate", "0.1"}, {"momentum", "0"}}}};
  CHECK(training_to_json(*job.spec.training) == training_to_json(training));
  CHECK(*job.spec.training == training);
  CHECK(job.spec.restart == RestartSpec{});
  CHECK(job.spec.managed_by == "muster.dev/operator");
  CHECK(job.status == TrainingJobStatus{});
}

TEST_CASE("a gpt that learns from text is taken as it is written") {
  const Json json = gpt_training_job();
  const auto job = parse_training_job(json);
  REQUIRE_MESSAGE(job, job.error().message());
  CHECK(job->spec.training->model == json["spec"]["training"]["model"]);
  CHECK(job->spec.training->data == json["spec"]["training"]["data"]);
  CHECK(refusal(with(json, "/spec/training/data/test", nullptr)) == "");
  // The most tokens of a step, and a head as wide as the model.
  CHECK(refusal(with(json, "/spec/training/batchSize", 1 << 18)) == "");
  CHECK(refusal(with(json, "/spec/training/model/gpt/heads", 1)) == "");
}

TEST_CASE("a table is read, for an mlp alone, and its column is one that can be shown") {
  const Json json = table_training_job();
  auto job = parse_training_job(json);
  REQUIRE_MESSAGE(job, job.error().message());
  CHECK(job->spec.training->data == json["spec"]["training"]["data"]);
  const std::string train = "spec.training.data.train";
  const auto said = [&](const std::string& pointer, const Json& value) {
    return refusal(with(json, "/spec/training/" + pointer, value));
  };
  CHECK(said("model", Json{{"cnn", {{"channels", {8}}}}})
            .starts_with(train + ": must be idx or imageFolder, because the model is cnn"));
  CHECK(said("data/train/csv/label", "").starts_with(train + ".csv.label: must be the name of"));
  CHECK(said("data/train/csv/label", "a\tb").starts_with(train + ".csv.label: must be the name"));
  CHECK(said("data/train/csv/label", std::string(257, 'a')).starts_with(train + ".csv.label: "));
  CHECK(said("data/train/csv/file", "s3://a/b")
            .starts_with(train + ".csv.file: must be a path, not a URL"));
  CHECK(said("data/train/csv/separator", ";")
            .starts_with(train + ".csv.separator: unknown field; known here: file, label, "
                                 "scale, words, missing"));
  CHECK(said("data/train/csv/scale", "Robust") ==
        train + ".csv.scale: must be None or Standard, not \"Robust\"");
  CHECK(said("data/train/csv/words", "Refused") == "");
  CHECK(said("data/train/csv/words", "Hashed").find("must be Refused or OneHot") !=
        std::string::npos);
  CHECK(said("data/train/csv/missing", "Median").find("must be Refused or Mean") !=
        std::string::npos);
  CHECK(said("data/test/csv/words", "OneHot")
            .starts_with("spec.training.data.test.csv.words: unknown field; known here: file, "
                         "label"));
  CHECK(said("data/train", Json{{"idx", {{"images", "a"}, {"labels", "b"}}}})
            .starts_with("spec.training.data.test: must be csv where data.train is"));
}

TEST_CASE("a directory of pictures is read, with a size of both sides and colors that are known") {
  const Json json = picture_training_job();
  auto job = parse_training_job(json);
  REQUIRE_MESSAGE(job, job.error().message());
  CHECK(job->spec.training->data == json["spec"]["training"]["data"]);
  const std::string folder = "spec.training.data.train.imageFolder";
  const auto said = [&](const std::string& pointer, const Json& value) {
    return refusal(with(json, "/spec/training/data/train/imageFolder" + pointer, value));
  };
  CHECK(said("/directory", nullptr).starts_with(folder + ".directory: is required"));
  CHECK(said("/directory", "s3://a").starts_with(folder + ".directory: must be a path, not a URL"));
  CHECK(said("/height", nullptr) == folder + ": must have both height and width, or neither");
  CHECK(said("/height", 2049).starts_with(folder + ".height: must be from 1 to 2048"));
  CHECK(said("/width", 0).starts_with(folder + ".width: must be from 1 to 2048"));
  CHECK(said("/colors", "gray") == folder + ".colors: must be RGB or Gray, not \"gray\"");
  CHECK(said("/channels", 3).starts_with(folder + ".channels: unknown field"));
  CHECK(refusal(with(json, "/spec/training/data/test",
                     Json{{"idx", {{"images", "a"}, {"labels", "b"}}}}))
            .starts_with("spec.training.data.test: must be imageFolder where data.train is"));
}

TEST_CASE("what is no gpt, and data that is not for it, are refused with the field named") {
  struct Case {
    const char* pointer;
    Json value;
    std::string sentence;
  };
  const std::string model = "spec.training.model.gpt.", data = "spec.training.data.";
  const Json idx{{"idx", {{"images", "a"}, {"labels", "b"}}}};
  const std::vector<Case> cases = {
      {"model/gpt/layers", 97, model + "layers: must be from 1 to 96"},
      {"model/gpt/heads", 129, model + "heads: must be from 1 to 128"},
      {"model/gpt/width", 16'385, model + "width: must be from 1 to 16384"},
      {"model/gpt/contextLength", 4097, model + "contextLength: must be from 1 to 4096"},
      {"model/gpt/contextLength", nullptr, model + "contextLength: is required"},
      {"model/gpt/width", 200, model + "width: is 200, not a multiple of heads (12)"},
      {"model/gpt/vocabulary", 256,
       model + "vocabulary: unknown field; known here: layers, heads, width, contextLength, "
               "vocabularySize, dropout, attentionDropout"},
      {"model/gpt/dropout", "1", model + "dropout: must be from 0 to below 1, not \"1\""},
      {"model/gpt/dropout", 0.1, model + "dropout: "},
      {"model/gpt/attentionDropout", "1",
       model + "attentionDropout: must be from 0 to 0.999, not \"1\""},
      {"model/gpt/attentionDropout", "0.9991",
       model + "attentionDropout: must be from 0 to 0.999, not \"0.9991\""},
      {"model/gpt/attentionDropout", 0.1, model + "attentionDropout: must be a decimal in quotes"},
      {"model/gpt/vocabularySize", 50'257,
       model + "vocabularySize: must be 256 or left out, because the data are the bytes of a text"},
      {"data/train", idx, data + "train: must be text or tokens, because the model is gpt"},
      {"data/test", idx, data + "test: must be text or tokens, because the model is gpt"},
      {"model", Json{{"cnn", {{"channels", {8}}}}},
       data + "train: must be idx or imageFolder, because the model is cnn"},
      {"data/train/text/file", "", data + "train.text.file: must be a path"},
      {"data/train/text/file", nullptr, data + "train.text.file: is required"},
      {"data/train/text/file", "s3://a/b", data + "train.text.file: must be a path, not a URL"},
      {"data/test/text/file", "a\nb", data + "test.text.file: must not contain control characters"},
      {"data/test/text/labels", "b", data + "test.text.labels: unknown field; known here: file"},
      {"batchSize", (1 << 18) + 16,
       "spec.training.batchSize: must be at most 262144, not 262160, because the contextLength is "
       "64 and a step has at most 16777216 tokens"},
  };
  for (const Case& one : cases) {
    const std::string pointer = std::string("/spec/training/") + one.pointer;
    const std::string sentence = refusal(with(gpt_training_job(), pointer, one.value));
    CHECK_MESSAGE(sentence.starts_with(one.sentence), pointer << " said: " << sentence);
  }
}

TEST_CASE(
    "a gpt that learns from tokens is taken as it is written, and refused with the field named") {
  const Json json = token_training_job();
  const auto job = parse_training_job(json);
  REQUIRE_MESSAGE(job, job.error().message());
  CHECK(job->spec.training->model == json["spec"]["training"]["model"]);
  CHECK(job->spec.training->data == json["spec"]["training"]["data"]);
  CHECK(job->spec.training->pretrained == "gpt2");
  struct Case {
    const char* pointer;
    Json value;
    std::string sentence;
  };
  const std::string pretrained = "spec.training.pretrained";
  const std::string vocabulary = "spec.training.model.gpt.vocabularySize: ";
  const std::string train = "spec.training.data.train", files = train + ".tokens.files";
  const std::vector<Case> cases = {
      {"model/gpt/vocabularySize", nullptr,
       vocabulary + "is required, because the data are tokens; GPT-2 has 50257"},
      {"model/gpt/vocabularySize", 1, vocabulary + "must be from 2 to 1048576"},
      {"model/gpt/vocabularySize", (1 << 20) + 1, vocabulary + "must be from 2 to 1048576"},
      {"data/test", Json{{"text", {{"file", "a"}}}},
       vocabulary + "must be 256 or left out, because the data are the bytes of a text"},
      {"data/train/tokens/files", Json::array(), files + ": must have at least one shard"},
      {"data/train/tokens/files", nullptr, files + ": is required"},
      {"data/train/tokens/files", Json(std::vector<std::string>(257, "a")),
       files + ": has more than 256 items"},
      {"data/train/tokens/files/1", "", files + "[1]: must be a path"},
      {"data/train/tokens/files/1", 7, files + "[1]: must be a path"},
      {"data/train/tokens/files/0", "s3://a/b", files + "[0]: must be a path, not a URL"},
      {"data/train/tokens/files/0", std::string(4097, 'a'),
       files + "[0]: must have at most 4096 bytes"},
      {"data/vocabulary", Json::object(), "spec.training.data.vocabulary.directory: is required"},
      {"data/vocabulary/directory", "hf://gpt2",
       "spec.training.data.vocabulary.directory: must be a path, not a URL"},
      {"pretrained", Json::object(), pretrained + ".directory: is required"},
      {"pretrained/directory", "", pretrained + ".directory: must be a path"},
      {"pretrained/directory", "hf://gpt2", pretrained + ".directory: must be a path, not a URL"},
      {"pretrained/file", "a", pretrained + ".file: unknown field; known here: directory"},
      {"data/train/text", Json{{"file", "a"}},
       train + ": must have exactly one of idx, imageFolder, csv, text or"},
      {"model", Json{{"mlp", {{"hidden", {8}}}}},
       train + ": must be idx, imageFolder or csv, because the model is mlp"},
  };
  for (const Case& one : cases) {
    const std::string pointer = std::string("/spec/training/") + one.pointer;
    const std::string sentence = refusal(with(token_training_job(), pointer, one.value));
    CHECK_MESSAGE(sentence.starts_with(one.sentence), pointer << " said: " << sentence);
  }
}

TEST_CASE("AdamW gets its defaults, and every decimal of it has its bounds") {
  const std::string at = "spec.training.optimizer.adamw.";
  const auto with_adamw = [](const char* adamw) {
    return with(least_training_job(), "/spec/training/optimizer",
                Json{{"adamw", *parse_json(adamw)}});
  };
  const auto job = parse_training_job(with_adamw(R"({"learningRate": "0.001"})"));
  REQUIRE_MESSAGE(job, job.error().message());
  CHECK(job->spec.training->optimizer ==
        *parse_json(R"({"adamw": {"learningRate": "0.001", "beta1": "0.9", "beta2": "0.999",
                                  "epsilon": "1e-8", "weightDecay": "0.01"}})"));
  struct Bounds {
    const char* field;
    std::vector<const char*> inside, outside;
    const char* cure;
  };
  const std::vector<Bounds> all = {
      {"learningRate", {"1e-30", "1000"}, {"0", "1001", "-1"}, "above 0 and at most 1000"},
      {"beta1", {"0", "0.999999"}, {"0.9999991", "1", "-0.1"}, "from 0 to 0.999999"},
      {"beta2", {"0", "0.999999"}, {"0.9999991", "1", "-0.1"}, "from 0 to 0.999999"},
      {"epsilon", {"1e-20", "1"}, {"0", "0.9e-20", "1.1"}, "from 1e-20 to 1"},
      {"weightDecay", {"0", "1"}, {"-0.1", "1.1"}, "from 0 to 1"},
  };
  for (const Bounds& bounds : all) {
    Json json = with_adamw(R"({"learningRate": "0.001"})");
    Json& field = json["spec"]["training"]["optimizer"]["adamw"][bounds.field];
    for (const char* value : bounds.inside) {
      field = value;
      CHECK_MESSAGE(parse_training_job(json), bounds.field << " " << value);
    }
    for (const char* value : bounds.outside) {
      field = value;
      CHECK_MESSAGE(names(refusal(json), at + bounds.field, bounds.cure), refusal(json));
    }
    field = 0.5;
    CHECK_MESSAGE(names(refusal(json), at + bounds.field, "in quotes"), refusal(json));
  }
  const std::string of_weights =
      refusal(with_adamw(R"({"learningRate": "0.001", "weightDecayOf": "Weights"})"));
  CHECK_MESSAGE(names(of_weights, at + "weightDecayOf", "must be All or Matrices"), of_weights);
  const std::string unknown =
      refusal(with_adamw(R"({"learningRate": "0.001", "momentum": "0.9"})"));
  CHECK_MESSAGE(names(unknown, at + "momentum", "learningRate, beta1, beta2, epsilon, weightDecay"),
                unknown);
}

TEST_CASE("a schedule warms up within the steps there are, where these are known") {
  const Json adamw = *parse_json(
      R"({"adamw": {"learningRate": "1e-3"}, "schedule": {"cosine": {"warmupSteps": 700}}})");
  Json json = with(full_training_job(), "/spec/training/optimizer", adamw);
  CHECK(parse_training_job(json));  // of epochs only the data tells how many steps they have
  json = with(with(json, "/spec/training/epochs", nullptr), "/spec/training/steps", 700);
  CHECK(parse_training_job(json));
  json = with(json, "/spec/training/steps", 300);
  const std::string sentence = refusal(json);
  CHECK_MESSAGE(names(sentence, "spec.training.optimizer.schedule.cosine.warmupSteps",
                      "is 700, but the training has 300 steps; must be at most their number"),
                sentence);
}

TEST_CASE("defaults follow the fields they depend on") {
  const auto worker = [](const char* text) {
    Json json = least_program_job();
    json["spec"]["worker"].update(*parse_json(text));
    return parse_training_job(json)->spec.worker;
  };
  CHECK(worker(R"({"count": 3})").min == 3);
  CHECK(worker(R"({"count": 3})").max == 3);
  CHECK(worker(R"({"count": 3, "max": 5})").min == 3);
  CHECK(worker(R"({"resources": {"gpus": 4}})").processes == 4);
  CHECK(worker(R"({"resources": {"gpus": 4}, "processes": 2})").processes == 2);
  CHECK(worker(R"({"resources": {"cpu": "7900m"}, "processes": 2})").threads == 3);
  CHECK(worker(R"({"resources": {"cpu": 8}})").threads == 8);
  CHECK(worker(R"({"resources": {"cpu": "500m"}, "processes": 2})").threads == 1);
  CHECK(worker(R"({"resources": {"cpu": "8"}, "threads": 2})").threads == 2);
}

TEST_CASE("what is read is written, and read again as the same") {
  const Json by_steps = with(with(full_training_job(), "/spec/training/epochs", nullptr),
                             "/spec/training/steps", 1000);
  const Json by_adamw =
      with(full_training_job(), "/spec/training/optimizer",
           *parse_json(R"({"adamw": {"learningRate": "1e-3", "weightDecay": "0.1"}})"));
  for (const Json& json : {least_training_job(), least_program_job(), full_training_job(),
                           full_program_job(), host_network_job(), by_steps, by_adamw}) {
    const auto job = parse_training_job(json);
    REQUIRE_MESSAGE(job, job.error().message());
    const Json written = to_json(*job);
    Json merged = written;
    merged.merge_patch(json);
    CHECK(merged == written);  // nothing that was given is lost
    const auto again = parse_training_job(written);
    REQUIRE_MESSAGE(again, again.error().message());
    CHECK(*again == *job);
    CHECK(to_json(*again) == written);
  }
  // A document in which nothing is left to a default comes back as it is.
  CHECK(to_json(*parse_training_job(full_training_job())) == full_training_job());
}

TEST_CASE("a wrong field is named, with what would be right") {
  const std::vector<WrongField> cases = {
      {"/apiVersion", "\"v1\"", "apiVersion", "must be muster.dev/v1alpha1"},
      {"/kind", "\"Pod\"", "kind", "must be TrainingJob"},
      {"/sepc", "{}", "sepc", "unknown field"},
      {"/metadata/name", "\"\"", "metadata.name", "must not be empty"},
      {"/metadata/name", "\"Digits\"", "metadata.name", "lower-case"},
      {"/metadata/name", "\"3d\"", "metadata.name", "start with a letter"},
      {"/metadata/name", "\"a-23456789-123456789-123456789-123456789-\"", "metadata.name",
       "longer than 40"},
      {"/metadata/namespace", "\"a/b\"", "metadata.namespace", "lower-case"},
      {"/metadata/labels", "{\"a\": 1}", "metadata.labels.a", "string"},
      {"/spec", "[]", "spec", "object"},
      {"/spec/worker", "3", "spec.worker", "object"},
      {"/spec/workers", "3", "spec.workers", "unknown field"},
      {"/spec/worker/count", "0", "spec.worker.count", "from 1 to 4096"},
      {"/spec/worker/count", "\"2\"", "spec.worker.count", "integer"},
      {"/spec/worker/count", "5", "spec.worker.count", "more than max (4)"},
      {"/spec/worker/min", "3", "spec.worker.count", "fewer than min (3)"},
      {"/spec/worker/processes", "65", "spec.worker.processes", "from 1 to 64"},
      {"/spec/worker/threads", "0", "spec.worker.threads", "from 1 to 1024"},
      {"/spec/worker/max", "17", "spec.training.logicalRanks", "fewer than the 34 processes"},
      {"/spec/worker/resources/cpu", "0.5", "spec.worker.resources.cpu", "in quotes"},
      {"/spec/worker/resources/cpu", "\"0\"", "spec.worker.resources.cpu", "from 1m"},
      {"/spec/worker/resources/cpu", "\"-1\"", "spec.worker.resources.cpu", "negative"},
      {"/spec/worker/resources/memory", "\"1 GB\"", "spec.worker.resources.memory", "512Mi"},
      {"/spec/worker/resources/memory", "\"1Ki\"", "spec.worker.resources.memory", "from 1Mi"},
      {"/spec/worker/resources/ephemeralStorage", "\"much\"",
       "spec.worker.resources.ephemeralStorage", "512Mi"},
      {"/spec/worker/resources/ephemeralStorage", "\"65Ti\"",
       "spec.worker.resources.ephemeralStorage", "to 64Ti"},
      {"/spec/worker/resources/gpus", "-1", "spec.worker.resources.gpus", "from 0 to 64"},
      {"/spec/worker/resources/gpuResource", "\"gpu\"", "spec.worker.resources.gpuResource",
       "domain"},
      {"/spec/worker/image", "\"a b\"", "spec.worker.image", "must be an image"},
      {"/spec/worker/resources/gpuResource", "\"kubernetes.io/x\"",
       "spec.worker.resources.gpuResource", "device plugin"},
      {"/spec/worker/resources/gpuResource", "\"requests.a.com/x\"",
       "spec.worker.resources.gpuResource", "device plugin"},
      {"/spec/worker/resources/devices", "{\"efa\": 1}", "spec.worker.resources.devices.efa",
       "like \"rdma/hca\""},
      {"/spec/worker/resources/devices", "{\"a.kubernetes.io/x\": 1}",
       "spec.worker.resources.devices.a.kubernetes.io/x", "device plugin"},
      {"/spec/worker/resources/devices", "{\"amd.com/gpu\": 1}",
       "spec.worker.resources.devices.amd.com/gpu", "gpus"},
      {"/spec/worker/resources/devices", "{\"rdma/hca\": 0}",
       "spec.worker.resources.devices.rdma/hca", "from 1 to 1024"},
      {"/spec/worker/resources/devices", "{\"rdma/hca\": \"1\"}",
       "spec.worker.resources.devices.rdma/hca", "from 1 to 1024"},
      {"/spec/worker/resources/devices", "[]", "spec.worker.resources.devices", "object"},
      {"/spec/training/data/train/idx/images", "\"s3://a/b\"",
       "spec.training.data.train.idx.images", "must be a path"},
      {"/spec/training/data/test/idx/labels", "\"a\\nb\"", "spec.training.data.test.idx.labels",
       "control characters"},
      {"/spec/training/checkpoint/path", "\"/a/./b\"", "spec.training.checkpoint.path",
       "absolute path"},
      {"/spec/training/checkpoint/path", "\"/run/secrets\"", "spec.training.checkpoint.path",
       "must not be in"},
      {"/spec/worker/command", "[\"sh\"]", "spec.worker.command", "left out"},
      {"/spec/worker/args", "[\"-v\"]", "spec.worker.args", "left out"},
      {"/spec/worker/hostNetwork", "true", "spec.worker.hostNetwork", "left out"},
      {"/spec/training/algorithm", "\"ForwardForward\"", "spec.training.algorithm",
       "must be Backpropagation"},
      {"/spec/training/mode", "\"Fast\"", "spec.training.mode", "must be Strict"},
      {"/spec/training/optimizerState", "\"Split\"", "spec.training.optimizerState",
       "must be Replicated or Sharded, not \"Split\""},
      {"/spec/training/optimizerState", "\"sharded\"", "spec.training.optimizerState",
       "must be Replicated or Sharded"},
      {"/spec/training/onNonFinite", "\"Skip\"", "spec.training.onNonFinite",
       "must be RollBack or Stop, not \"Skip\""},
      {"/spec/training/activations", "\"Lost\"", "spec.training.activations",
       "must be Kept or Recomputed, not \"Lost\""},
      {"/spec/training/activations", "\"Recomputed\"", "spec.training.activations",
       "is for a gpt alone, and the model is mlp"},
      {"/spec/training/precision", "\"Half\"", "spec.training.precision",
       "must be Float32 or BFloat16, not \"Half\""},
      {"/spec/training/buddies", "3", "spec.training.buddies", "from 1 to 2"},
      {"/spec/training/optimizerState", "\"Replicated\"", "spec.training.buddies",
       "is for optimizerState: Sharded alone"},
      {"/spec/training/parallelism/mode", "\"auto\"", "spec.training.parallelism.mode",
       "must be Fixed or Auto, not \"auto\""},
      {"/spec/training/parallelism/tensor", "65", "spec.training.parallelism.tensor",
       "from 1 to 64"},
      {"/spec/training/parallelism/pipeline", "65", "spec.training.parallelism.pipeline",
       "from 1 to 64"},
      {"/spec/training/seed", "-1", "spec.training.seed", "from 0"},
      {"/spec/training/logicalRanks", "24", "spec.training.logicalRanks", "power of two"},
      {"/spec/training/batchSize", "100", "spec.training.batchSize", "multiple of logicalRanks"},
      {"/spec/training/microBatchSize", "3", "spec.training.microBatchSize", "at least 4"},
      {"/spec/training/microBatchSize", "0", "spec.training.microBatchSize", "from 1"},
      {"/spec/training/steps", "5", "spec.training", "both epochs and steps"},
      {"/spec/training/epochs", "0", "spec.training.epochs", "from 1"},
      {"/spec/training/epochs", "null", "spec.training", "must have epochs or steps"},
      {"/spec/training/model", "null", "spec.training.model", "required"},
      {"/spec/training/model", "{}", "spec.training.model", "mlp"},
      {"/spec/training/model", "{\"mlp\": {\"hidden\": [8]}, \"cnn\": {\"channels\": [8]}}",
       "spec.training.model", "exactly one of mlp, cnn or gpt"},
      {"/spec/training/model", "{\"cnn\": {}}", "spec.training.model.cnn.channels", "is required"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": []}}", "spec.training.model.cnn.channels",
       "at least one"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8, 4097]}}",
       "spec.training.model.cnn.channels[1]", "from 1 to 4096"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8], \"kernelSize\": 4}}",
       "spec.training.model.cnn.kernelSize", "must be odd, not 4"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8], \"kernelSize\": 17}}",
       "spec.training.model.cnn.kernelSize", "from 1 to 15"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8], \"normalization\": \"batch\"}}",
       "spec.training.model.cnn.normalization", "Batch"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8], \"batchNorm\": true}}",
       "spec.training.model.cnn.batchNorm", "unknown field"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8], \"hidden\": [0]}}",
       "spec.training.model.cnn.hidden[0]", "from 1"},
      {"/spec/training/model", "{\"cnn\": {\"channels\": [8], \"dropout\": \"1\"}}",
       "spec.training.model.cnn.dropout", "below 1"},
      {"/spec/training/model/mlp/dropout", "0.1", "spec.training.model.mlp.dropout", "in quotes"},
      {"/spec/training/model/mlp/dropout", "\"-0.1\"", "spec.training.model.mlp.dropout", "from 0"},
      {"/spec/training/model/mlp/dropout", "\"half\"", "spec.training.model.mlp.dropout",
       "not a decimal"},
      {"/spec/training/model", "{\"gpt\": {}}", "spec.training.model.gpt.layers", "is required"},
      {"/spec/training/model", "{\"rnn\": {}}", "spec.training.model.rnn",
       "known here: mlp, cnn, gpt"},
      {"/spec/training/model/mlp/hidden", "[]", "spec.training.model.mlp.hidden", "at least one"},
      {"/spec/training/model/mlp/hidden", "[8, 0]", "spec.training.model.mlp.hidden[1]", "from 1"},
      {"/spec/training/model/mlp/hidden", "[1e3]", "spec.training.model.mlp.hidden[0]", "integer"},
      {"/spec/training/pretrained", "{\"directory\": \"a\"}", "spec.training.pretrained",
       "is for a gpt alone, and the model is mlp"},
      {"/spec/training/data/vocabulary", "{\"directory\": \"a\"}", "spec.training.data.vocabulary",
       "is for tokens alone"},
      {"/spec/training/data", "{}", "spec.training.data.train", "required"},
      {"/spec/training/data/train", "{}", "spec.training.data.train",
       "exactly one of idx, imageFolder, csv, text or tokens"},
      {"/spec/training/data/train/text", "{\"file\": \"a\"}", "spec.training.data.train",
       "exactly one of idx, imageFolder, csv, text or tokens"},
      {"/spec/training/data/train", "{\"text\": {\"file\": \"a\"}}", "spec.training.data.train",
       "must be idx, imageFolder or csv, because the model is mlp"},
      {"/spec/training/data/test", "{\"tsv\": {}}", "spec.training.data.test.tsv", "unknown"},
      {"/spec/training/data/test", "{\"csv\": {}}", "spec.training.data.test.csv.file", "required"},
      {"/spec/training/data/test", "{\"csv\": {\"file\": \"a\"}}",
       "spec.training.data.test.csv.label", "required"},
      {"/spec/training/data/test", "{\"csv\": {\"file\": \"a\", \"label\": \"b\"}}",
       "spec.training.data.test", "must be csv where data.train is, and only there"},
      {"/spec/training/data/train/idx/labels", "null", "spec.training.data.train.idx.labels",
       "required"},
      {"/spec/training/optimizer", "{\"adam\": {}}", "spec.training.optimizer.adam",
       "known here: sgd, adamw, schedule"},
      {"/spec/training/optimizer/schedule", "{}", "spec.training.optimizer.schedule.cosine",
       "required"},
      {"/spec/training/optimizer/schedule", "{\"cosine\": {\"warmupSteps\": -1}}",
       "spec.training.optimizer.schedule.cosine.warmupSteps", "from 0"},
      {"/spec/training/optimizer/schedule", "{\"cosine\": {\"finalShare\": \"1.5\"}}",
       "spec.training.optimizer.schedule.cosine.finalShare", "from 0 to 1"},
      {"/spec/training/optimizer/schedule", "{\"linear\": {}}",
       "spec.training.optimizer.schedule.cosine", "required"},
      {"/spec/training/optimizer", "{}", "spec.training.optimizer", "exactly one of sgd or adamw"},
      {"/spec/training/optimizer/adamw", "{\"learningRate\": \"0.1\"}", "spec.training.optimizer",
       "exactly one of sgd or adamw"},
      {"/spec/training/optimizer", "{\"adamw\": {}}", "spec.training.optimizer.adamw.learningRate",
       "required"},
      {"/spec/training/gradientClipping", "{}", "spec.training.gradientClipping.maxNorm",
       "required"},
      {"/spec/training/gradientClipping", "{\"maxNorm\": \"0\"}",
       "spec.training.gradientClipping.maxNorm", "from 1e-9 to 1e9"},
      {"/spec/training/gradientClipping", "{\"maxNorm\": 1}",
       "spec.training.gradientClipping.maxNorm", "in quotes"},
      {"/spec/training/gradientClipping", "{\"maxNorm\": \"1e10\"}",
       "spec.training.gradientClipping.maxNorm", "from 1e-9 to 1e9"},
      {"/spec/training/gradientClipping", "{\"maxNorm\": \"1\", \"maxValue\": \"1\"}",
       "spec.training.gradientClipping.maxValue", "known here: maxNorm"},
      {"/spec/training/optimizer/sgd/learningRate", "0.1",
       "spec.training.optimizer.sgd.learningRate", "in quotes"},
      {"/spec/training/optimizer/sgd/learningRate", "\"0,1\"",
       "spec.training.optimizer.sgd.learningRate", "not a decimal"},
      {"/spec/training/optimizer/sgd/learningRate", "\"-0.1\"",
       "spec.training.optimizer.sgd.learningRate", "above 0"},
      {"/spec/training/optimizer/sgd/learningRate", "\"1e-60\"",
       "spec.training.optimizer.sgd.learningRate", "above 0"},
      {"/spec/training/optimizer/sgd/learningRate", "\"inf\"",
       "spec.training.optimizer.sgd.learningRate", "not a decimal"},
      {"/spec/training/optimizer/sgd/momentum", "\"1\"", "spec.training.optimizer.sgd.momentum",
       "below 1"},
      {"/spec/training/optimizer/sgd/schedule", "{}", "spec.training.optimizer.sgd.schedule",
       "unknown field"},
      {"/spec/training/evaluation/everyEpochs", "0", "spec.training.evaluation.everyEpochs",
       "from 1"},
      {"/spec/training/evaluation/everySteps", "0", "spec.training.evaluation.everySteps",
       "from 1"},
      {"/spec/training/evaluation/maxSamples", "0", "spec.training.evaluation.maxSamples",
       "from 1"},
      {"/spec/training/checkpoint/path", "\"ckpt\"", "spec.training.checkpoint.path", "absolute"},
      {"/spec/training/checkpoint/path", "\"/a/../b\"", "spec.training.checkpoint.path",
       "absolute"},
      {"/spec/training/checkpoint/path", "\"/proc\"", "spec.training.checkpoint.path",
       "must not be in /proc"},
      {"/spec/training/checkpoint/keep", "0", "spec.training.checkpoint.keep", "from 1"},
      {"/spec/training/checkpoint/everySteps", "0", "spec.training.checkpoint.everySteps",
       "from 1"},
      {"/spec/training/checkpoint/volumeClaimName", "\"A\"",
       "spec.training.checkpoint.volumeClaimName", "lower-case"},
      {"/spec/restart/policy", "\"Always\"", "spec.restart.policy", "OnFailure or Never"},
      {"/spec/restart/maxRestarts", "-1", "spec.restart.maxRestarts", "from 0"},
      {"/spec/restart/backoffSeconds", "4000", "spec.restart.backoffSeconds", "to 3600"},
      {"/spec/topology", "{}", "spec.topology", "exactly one of preferred or required"},
      {"/spec/topology/required", "\"zone\"", "spec.topology", "exactly one"},
      {"/spec/scheduling", "\"Now\"", "spec.scheduling", "Placed or Unplaced"},
      {"/spec/queueName", "\"\"", "spec.queueName", "1 to 63"},
      {"/spec/priorityClassName", "\"High\"", "spec.priorityClassName", "lower-case"},
      {"/spec/suspend", "\"yes\"", "spec.suspend", "true or false"},
      {"/spec/activeDeadlineSeconds", "0", "spec.activeDeadlineSeconds", "from 1"},
      {"/spec/ttlSecondsAfterFinished", "-1", "spec.ttlSecondsAfterFinished", "from 0"},
      {"/spec/managedBy", "\"me\"", "spec.managedBy", "domain"},
      {"/status/replicas", "\"2\"", "status.replicas", "integer"},
      {"/status/conditions/0/status", "\"Yes\"", "status.conditions[0].status", "True, False"},
  };
  check_refused(full_training_job(), "", "", cases);
  MESSAGE("wrong fields refused by name: ", cases.size());
}

TEST_CASE("a job must say what it runs, and only once") {
  CHECK(refusal(with(least_program_job(), "/spec/worker/command", nullptr))
            .starts_with("spec: must have training"));
  CHECK(refusal(with(least_program_job(), "/spec/worker", Json{{"image", "a"}})) == "");
  CHECK(refusal(with(least_training_job(), "/spec/worker", Json{{"image", "a"}})) == "");
}

TEST_CASE("only what a queue takes back grows beyond its count") {
  const Json job = gpt_training_job();
  CHECK(refusal(job) == "");
  CHECK(refusal(with(job, "/spec/worker/growsTo", "Min")) ==
        "spec.worker.growsTo: must be Count or Max, not \"Min\"");
  const std::string why =
      "spec.worker.growsTo: is Max, which needs training, queueName and scheduling: Placed: a "
      "queue "
      "takes back what is beyond count";
  CHECK(refusal(with(job, "/spec/queueName", nullptr)) == why);
  CHECK(refusal(with(job, "/spec/scheduling", "Unplaced")) == why);
  CHECK(refusal(with(least_program_job(), "/spec/worker/growsTo", "Max")) == why);
  CHECK(refusal(with(least_program_job(), "/spec/worker/growsTo", "Count")) == "");
}

TEST_CASE("a checkpoint's path is nobody else's mount") {
  Json job = full_training_job();
  job["spec"]["worker"]["volumes"] =
      Json::array({Json{{"name", "v"}, {"emptyDir", Json::object()}}});
  job["spec"]["worker"]["volumeMounts"] =
      Json::array({Json{{"name", "v"}, {"mountPath", "/ckpt/deep"}}});
  CHECK(refusal(job).starts_with("spec.training.checkpoint.path: is the mount of volume \"v\""));
  job["spec"]["worker"]["volumeMounts"][0]["mountPath"] = "/other";
  CHECK(refusal(job) == "");
}

TEST_CASE("a spec that is too large is refused with its size") {
  Json job = least_program_job();
  for (int i = 0; i < 9; ++i) job["spec"]["worker"]["args"].push_back(std::string(8192, 'x'));
  CHECK(names(refusal(job), "spec.worker", "73732 characters together, more than 49152"));
  Json& args = job["spec"]["worker"]["args"];
  args.erase(args.begin(), args.begin() + 5);
  CHECK(refusal(job) == "");
  job["spec"]["worker"]["initContainers"] =
      Json::array({Json{{"name", "a"}, {"image", "a"}, {"args", args}}});
  CHECK(names(refusal(job), "spec.worker", "65540 characters together, more than 49152"));
  job = least_program_job();
  std::string wide;
  for (int i = 0; i < 2700; ++i) wide += "\xE2\x82\xAC";  // one character, three bytes
  for (int i = 0; i < 7; ++i) job["spec"]["worker"]["args"].push_back(wide);
  CHECK(refusal(job) == "");
  for (int i = 0; i < 128; ++i) {
    job["spec"]["worker"]["env"].push_back(
        {{"name", "A" + std::to_string(i) + std::string(200, 'x')}, {"value", ""}});
  }
  CHECK(names(refusal(job), "spec", "more than 65536"));
}

TEST_CASE("images are what registries take") {
  const std::string digest = "@sha256:" + std::string(64, '0');
  const auto verdict = [](const std::string& image) {
    return refusal(with(least_program_job(), "/spec/worker/image", image));
  };
  for (const std::string& good :
       {std::string("a"), "a:1" + digest, std::string("library/a.b_c__d--e:V1.0"),
        std::string("localhost:5000/a"), std::string("Registry.example.com/a/b:t"),
        std::string(255, 'a') + digest}) {
    CHECK_MESSAGE(verdict(good).empty(), good);
  }
  for (const std::string& bad : {std::string(" "),           std::string("A"),
                                 std::string("a/B"),         std::string("https://a/b"),
                                 std::string("a::b"),        std::string("a:b:c"),
                                 std::string("a@sha256:zz"), digest,
                                 std::string("a/"),          std::string("/a"),
                                 std::string("a//b"),        std::string("a..b"),
                                 std::string("-a"),          std::string("a-"),
                                 std::string("a_-b"),        std::string("a___b"),
                                 std::string("a:-t"),        "a:" + std::string(129, 't'),
                                 "a" + digest + "0",         std::string("a:123456/b"),
                                 std::string("a:x/b"),       std::string(256, 'a')}) {
    CHECK_MESSAGE(names(verdict(bad), "spec.worker.image", "must be an image"), bad);
  }
}

TEST_CASE("a status never grows past what the schema takes") {
  TrainingJob job = *parse_training_job(full_training_job());
  job.status.failure->log_tail = std::string(2047, 'x') + "\xC3\xA4" + "end";
  job.status.conditions[0].message = std::string(100'000, 'y');
  const auto again = parse_training_job(to_json(job));
  REQUIRE_MESSAGE(again, again.error().message());
  CHECK(again->status.failure->log_tail == std::string(2047, 'x'));
  CHECK(again->status.conditions[0].message.size() == 4096);
}

namespace {

/// Every place of a document, as pointers.
void collect(const Json& json, const std::string& at, std::vector<std::string>& out) {
  if (!at.empty()) out.push_back(at);
  if (!json.is_structured()) return;
  for (const auto& [key, value] : json.items()) collect(value, at + "/" + key, out);
}

Json odd_value(Rng& rng) {
  static const std::vector<Json> kValues = {nullptr,
                                            true,
                                            -1,
                                            0,
                                            1,
                                            3,
                                            17,
                                            4097,
                                            1.5,
                                            1e300,
                                            INT64_MAX,
                                            UINT64_MAX,
                                            "",
                                            "a",
                                            "-1",
                                            "0.1",
                                            "/a",
                                            "../..",
                                            "muster-x",
                                            std::string("a\0b", 3),
                                            "\xff",
                                            std::string(5000, 'z'),
                                            "1e99",
                                            Json::array(),
                                            Json::object(),
                                            Json::array({1, "a"}),
                                            Json{{"idx", nullptr}},
                                            Json{{"name", "x"}}};
  return kValues[rng.below(kValues.size())];
}

bool is_in_range(const WorkerSpec& worker) {
  const auto is_size = [](int size) { return size >= 1 && size <= 4096; };
  return is_size(worker.count) && is_size(worker.min) && is_size(worker.max) &&
         worker.processes >= 1 && worker.threads >= 1;
}

}  // namespace

TEST_CASE("ten thousand mutated documents are read or refused, and what is read is stable") {
  Rng rng(seed());
  const std::vector<Json> bases = {
      least_training_job(), least_program_job(),  full_training_job(),  full_program_job(),
      gpt_training_job(),   token_training_job(), table_training_job(), picture_training_job()};
  int accepted = 0, refused = 0, served_with_pods = 0;
  for (int round = 0; round < test::tries(10'000); ++round) {
    Json json = bases[rng.below(bases.size())];
    const int changes = 1 + static_cast<int>(rng.below(3) / 2);
    for (int change = 0; change < changes; ++change) {
      std::vector<std::string> places;
      collect(json, "", places);
      const Json::json_pointer at(places[rng.below(places.size())]);
      if (rng.below(4) == 0 && json[at].is_object()) {
        json[at]["extra"] = odd_value(rng);
      } else {
        json[at] = odd_value(rng);
      }
    }
    const auto job = parse_training_job(json);
    if (!job) {
      ++refused;
      REQUIRE(job.error().code() == ErrorCode::kInvalid);
      REQUIRE_FALSE(job.error().message().empty());
      REQUIRE(job.error().message().size() < 1000);
      // What is served all the same makes no other pods than what is let start.
      const auto [served, verdict] = read_training_job(json);
      REQUIRE(is_in_range(served.spec.worker));
      REQUIRE_FALSE(dump_json(spec_to_json(served.spec)).empty());
      if (verdict || is_about_pods(verdict.error())) continue;
      const Pod pod = make_pod(served, {0, 0, "n", ""}, {});
      REQUIRE_MESSAGE(check_restricted(pod), dump_json(pod.spec));
      REQUIRE_MESSAGE(restricted_findings(pod.spec).empty(), dump_json(pod.spec));
      ++served_with_pods;
      continue;
    }
    ++accepted;
    const Json written = to_json(*job);
    const auto again = parse_training_job(written);
    REQUIRE_MESSAGE(again, again.error().message() << " in " << dump_json(written));
    REQUIRE(*again == *job);
    REQUIRE(to_json(*again) == written);
    const Pod pod = make_pod(*job, {static_cast<int>(rng.below(2)), 0, "n", ""}, {});
    REQUIRE_MESSAGE(check_restricted(pod), dump_json(pod.spec));
    REQUIRE_MESSAGE(restricted_findings(pod.spec).empty(), dump_json(pod.spec));
  }
  MESSAGE("mutated documents: ", accepted, " accepted, ", refused, " refused");
  CHECK(served_with_pods > test::tries(500));
  CHECK(accepted > test::tries(500));
  CHECK(refused > test::tries(5000));
}

TEST_CASE("no more workers train together than one message between them has room for") {
  Json json = with(full_training_job(), "/spec/training/logicalRanks", 4096);
  json["spec"]["training"]["batchSize"] = 4096;
  Json& worker = json["spec"]["worker"];
  worker["min"] = worker["count"] = 1;
  for (const auto& [processes, most] : {std::pair(1, 567), std::pair(8, 273)}) {
    worker["processes"] = processes;
    worker["max"] = most;
    const auto job = parse_training_job(json);
    CHECK_MESSAGE(job.has_value(), (job ? "" : job.error().message()));
    worker["max"] = most + 1;
    const auto refused = parse_training_job(json);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message().starts_with(
        "spec.worker.max: is " + std::to_string(most + 1) +
        "; with spec.training it must be at most " + std::to_string(most) + " where a worker has " +
        std::to_string(processes) + (processes == 1 ? " process, " : " processes, ")));
  }
}

TEST_CASE("so many processes as have one copy of the model divide the workers there may be") {
  struct Sizes {
    int min, count, max, processes, tensor, pipeline;
    std::string_view refused;  ///< what the sentence names; empty: all is well
  };
  for (const Sizes& sizes :
       {Sizes{2, 4, 4, 1, 1, 2, ""}, Sizes{1, 3, 4, 2, 2, 1, ""}, Sizes{1, 3, 4, 4, 2, 2, ""},
        Sizes{1, 4, 4, 1, 1, 2, "worker.min x worker.processes is 1"},
        Sizes{2, 3, 4, 1, 2, 1, "worker.count x worker.processes is 3"},
        Sizes{2, 2, 3, 1, 1, 2, "worker.max x worker.processes is 3"},
        Sizes{2, 3, 4, 2, 2, 2, "worker.count x worker.processes is 6"},
        Sizes{1, 2, 3, 2, 1, 3, "worker.min x worker.processes is 2"}}) {
    CAPTURE(sizes.refused);
    Json json = full_training_job();
    json["spec"]["training"]["parallelism"] = {{"tensor", sizes.tensor},
                                               {"pipeline", sizes.pipeline}};
    Json& worker = json["spec"]["worker"];
    worker["min"] = sizes.min;
    worker["count"] = sizes.count;
    worker["max"] = sizes.max;
    worker["processes"] = sizes.processes;
    const auto job = parse_training_job(json);
    CHECK(job.has_value() == sizes.refused.empty());
    if (job) continue;
    CHECK(job.error().message().find("spec.training.parallelism: tensor x pipeline is ") !=
          std::string::npos);
    CHECK(job.error().message().find(sizes.refused) != std::string::npos);
  }
}

TEST_CASE("layers that cannot be divided by so many are refused by the field's name") {
  Json json = full_training_job();
  Json& training = json["spec"]["training"];
  json["spec"]["worker"]["min"] = json["spec"]["worker"]["count"] = 4;
  training["parallelism"]["tensor"] = 4;
  const auto message = [&] {
    const auto job = parse_training_job(json);
    return job ? std::string() : job.error().message();
  };
  training["model"] = {{"mlp", {{"hidden", {128, 64}}}}};
  CHECK(message().empty());
  training["model"] = {{"mlp", {{"hidden", {128, 66}}}}};
  CHECK(message().ends_with(
      "spec.training.parallelism.tensor: is 4, but model.mlp.hidden has 66; must divide it"));
  training["model"] = {{"cnn", {{"channels", {8}}}}};
  CHECK(
      message().ends_with("spec.training.parallelism.tensor: must be 1, because the model is "
                          "cnn; convolutions cannot be divided"));
  training["data"] = {{"train", {{"text", {{"file", "a"}}}}}};
  training["model"] = {
      {"gpt", {{"layers", 2}, {"heads", 6}, {"width", 24}, {"contextLength", 16}}}};
  CHECK(message().ends_with(
      "spec.training.parallelism.tensor: is 4, but model.gpt.heads has 6; must divide it"));
  training["model"]["gpt"]["heads"] = 8;
  CHECK(message().empty());
}

TEST_CASE("a pipeline of more stages than a model can be cut into is refused") {
  Json json = full_training_job();
  Json& training = json["spec"]["training"];
  const auto refusal = [&](const Json& model, int stages) {
    json["spec"]["worker"]["min"] = json["spec"]["worker"]["count"] = stages;
    json["spec"]["worker"]["max"] = 2 * stages;
    training["model"] = model;
    training["parallelism"] = {{"pipeline", stages}};
    const auto job = parse_training_job(json);
    return job ? std::string() : job.error().message();
  };
  const auto check_most = [&](const Json& model, int most) {
    CAPTURE(model.dump());
    CHECK(refusal(model, most) == "");
    CHECK(refusal(model, most + 1)
              .ends_with("spec.training.parallelism.pipeline: is " + std::to_string(most + 1) +
                         ", but the model can be cut into at most " + std::to_string(most) +
                         " stages"));
  };
  check_most({{"mlp", {{"hidden", {64}}}}}, 2);
  check_most({{"mlp", {{"hidden", {64, 32, 16}}}}}, 4);
  check_most({{"cnn", {{"channels", {8, 8}}}}}, 5);
  check_most({{"cnn", {{"channels", {8, 8}}, {"hidden", {64}}, {"normalization", "None"}}}}, 4);
  training["data"] = {{"train", {{"text", {{"file", "a"}}}}}};
  check_most({{"gpt", {{"layers", 2}, {"heads", 1}, {"width", 8}, {"contextLength", 16}}}}, 5);
}

TEST_CASE("of GPUs that not every image trains on it is said so") {
  const auto said = [](const Json& json) { return about_gpus(parse_training_job(json)->spec); };
  CHECK(said(full_training_job()).starts_with("spec.worker.resources.gpus is 2: of the built-in"));
  CHECK(said(least_training_job()).empty());
  const Json one{{"gpus", 1}};
  CHECK(said(with(least_program_job(), "/spec/worker/resources", one)).empty());
}

TEST_CASE("a split that the operator has chosen counts where spec leaves the choice to it") {
  Json json = with(full_training_job(), "/spec/training/optimizerState", "Replicated");
  Json& training = json["spec"]["training"];
  training.erase("buddies");
  Json& worker = json["spec"]["worker"];
  worker["processes"] = 1;
  json["status"]["parallelism"] = {{"tensor", 2}, {"pipeline", 1}};
  const auto split = [&] { return split_of(*parse_training_job(json)); };
  CHECK(split() == Split{1, 1});
  training["parallelism"] = {{"mode", "Auto"}};
  worker["min"] = 2;
  CHECK(split() == Split{2, 1});
  const auto job = *parse_training_job(json);
  CHECK(*parse_training_job(to_json(job)) == job);
  json["status"].erase("parallelism");
  CHECK(split() == Split{1, 1});

  json["status"]["parallelism"] = {{"tensor", 1}, {"pipeline", 2}};
  worker["count"] = 3;
  const auto refused = parse_training_job(json);
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.error().message().find(
            "status.parallelism: tensor x pipeline is 2, but worker.count x worker.processes is "
            "3; must divide it") != std::string::npos);
  // What an operator would not have written is none of its memory.
  const auto [damaged, verdict] = read_training_job(json);
  CHECK(verdict);
  CHECK_FALSE(damaged.status.split);

  training["parallelism"] = {{"mode", "Auto"}, {"pipeline", 2}};
  CHECK(parse_training_job(json).error().message().find(
            "spec.training.parallelism.pipeline: must be left out with mode: Auto") !=
        std::string::npos);
}
