#include "tests/recovery/files.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "common/contract.h"
#include "common/file.h"
#include "common/json.h"

namespace muster::sim {
namespace {

namespace fs = std::filesystem;
constexpr const char* kManifest = "manifest.json";

/// Of a pass over the digits, 1,437 samples in batches of 64, after which there is an evaluation.
constexpr std::int64_t kStepsOfPass = 22;

bool is_evaluated(const engine::TrainingConfig& config, std::int64_t step) {
  const bool is_due = step == config.steps || (step > 0 && step % kStepsOfPass == 0);
  return config.has_test && is_due;
}

fs::path record_of(const std::string& directory) {
  return fs::path(directory) / contract::kRecordFile;
}

}  // namespace

FilesBefore look_at(const std::string& directory) {
  FilesBefore seen;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (fs::exists(entry.path() / kManifest)) seen.checkpoints.insert(entry.path().filename());
  }
  if (fs::exists(record_of(directory))) seen.record_bytes = fs::file_size(record_of(directory));
  return seen;
}

void tear(const std::string& directory, const FilesBefore& before) {
  for (const std::string& name : look_at(directory).checkpoints) {
    if (before.checkpoints.contains(name)) continue;
    const fs::path made = fs::path(directory) / name;
    fs::remove(made / kManifest);
    const fs::path model = made / contract::kModelFile;
    if (fs::exists(model)) fs::resize_file(model, fs::file_size(model) / 2);
  }
  const fs::path record = record_of(directory);
  if (!fs::exists(record) || fs::file_size(record) <= before.record_bytes + 7) return;
  fs::resize_file(record, fs::file_size(record) - 7);
}

std::string wrong_in_record(const std::string& directory, const Lesson& lesson) {
  const auto read = read_file(record_of(directory).string(), std::size_t{1} << 24);
  if (!read) return "no record: " + read.error().message();
  std::int64_t step = 0, evaluated = 0;
  std::size_t from = 0;
  const auto lacks_evaluation = [&] {
    return is_evaluated(lesson.config, step) && evaluated != step;
  };
  for (std::size_t to = 0; (to = read->find('\n', from)) != std::string::npos; from = to + 1) {
    const auto line = parse_json(std::string_view(*read).substr(from, to - from));
    if (!line || !line->is_object()) return "the record has a line that is none";
    if (line->contains("evaluation")) {
      const std::int64_t of = (*line)["evaluation"].value("step", std::int64_t{-1});
      if (of != step || std::exchange(evaluated, of) == of) {
        return "the record has the evaluation of step " + std::to_string(of) + " behind step " +
               std::to_string(step) + ", or twice";
      }
      continue;
    }
    if (lacks_evaluation()) {
      return "the record has no evaluation of step " + std::to_string(step);
    }
    const std::int64_t there = line->value("step", std::int64_t{-1});
    if (there != ++step) {
      return "the record has step " + std::to_string(there) + " where " + std::to_string(step) +
             " is due";
    }
    const auto right = lesson.expected->find(step);
    if (right == lesson.expected->end() || line->value("sha256", "") != right->second.parameters) {
      return "the record has another hash of step " + std::to_string(step);
    }
  }
  if (lacks_evaluation()) return "the record has no evaluation of step " + std::to_string(step);
  if (step == lesson.config.steps && from == read->size()) return "";
  return "the record ends after step " + std::to_string(step);
}

}  // namespace muster::sim
