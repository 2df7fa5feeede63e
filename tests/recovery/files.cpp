#include "tests/recovery/files.h"

#include <algorithm>
#include <filesystem>

#include "common/contract.h"

namespace muster::sim {
namespace {

namespace fs = std::filesystem;
constexpr const char* kManifest = "manifest.json";

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

}  // namespace muster::sim
