#include "worker/data/text.h"

#include <utility>

#include "common/check.h"
#include "worker/data/file.h"

namespace muster::data {

Result<Dataset> load_text(const std::string& path, std::size_t context, std::uint64_t most_memory) {
  MUSTER_CHECK(context >= 1);
  MUSTER_ASSIGN_OR_RETURN(auto file, read_file(path, kMaxTextBytes, most_memory));
  if (file.size() <= context) {
    const std::string found =
        file.empty() ? "is empty" : "has " + std::to_string(file.size()) + " bytes";
    return bad_data(path, ErrorCode::kInvalid,
                    found + "; a text for a context of " + std::to_string(context) +
                        " must have at least " + std::to_string(context + 1) + " bytes");
  }
  Dataset dataset;
  dataset.count = (file.size() - 1) / context;
  dataset.features = context;
  dataset.targets = context;
  dataset.classes = kMaxClasses;
  dataset.width = context;
  dataset.images = std::move(file);
  return dataset;
}

}  // namespace muster::data
