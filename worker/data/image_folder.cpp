#include "worker/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/utf8.h"
#include "worker/data/file.h"
#include "worker/data/picture.h"

namespace muster::data {
namespace {

namespace fs = std::filesystem;

struct Entry {
  std::string name;
  bool is_directory;
};

/// What is in a directory, in the order of the names, but for what is hidden.
Result<std::vector<Entry>> entries_of(const std::string& directory) {
  std::vector<Entry> out;
  std::error_code error;
  fs::directory_iterator next(directory, error);
  for (; !error && next != fs::directory_iterator(); next.increment(error)) {
    std::string name = next->path().filename().string();
    if (name.starts_with('.')) continue;
    if (out.size() == kMaxPictures) {
      return bad_data(directory, ErrorCode::kTooLarge,
                      "has more than " + std::to_string(kMaxPictures) + " files");
    }
    std::error_code ignored;  // A link to nothing is found to be no picture.
    out.push_back({std::move(name), next->is_directory(ignored)});
  }
  if (error) {
    const bool is_missing = error == std::errc::no_such_file_or_directory;
    return bad_data(directory, is_missing ? ErrorCode::kNotFound : ErrorCode::kIo,
                    "cannot be listed: " + error.message())
        .with_exit_code(exit_code_of_unread(error.value()));
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

/// The classes of a training set.
Result<std::vector<std::string>> classes_of(const std::string& directory) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Entry> entries, entries_of(directory));
  std::vector<std::string> classes;
  for (const Entry& entry : entries) {
    if (!entry.is_directory) continue;
    if (!is_utf8(entry.name)) {
      return bad_data(directory + "/" + entry.name, ErrorCode::kInvalid,
                      "the name of a class must be UTF-8; rename the directory");
    }
    classes.push_back(entry.name);
  }
  if (classes.empty()) {
    return bad_data(directory, ErrorCode::kInvalid,
                    "has no directories; must have one for each class, with its pictures");
  }
  if (classes.size() > std::size_t{kMaxClasses}) {
    return bad_data(directory, ErrorCode::kTooLarge,
                    "has " + std::to_string(classes.size()) +
                        " directories, one for each class; must be at most " +
                        std::to_string(kMaxClasses));
  }
  return classes;
}

/// All pictures, class by class.
Result<std::vector<PictureFile>> files_of(const std::string& directory,
                                          const std::vector<std::string>& classes) {
  std::vector<PictureFile> files;
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Entry> entries, entries_of(directory));
  for (const Entry& of_class : entries) {
    if (!of_class.is_directory) continue;
    const std::string path = directory + "/" + of_class.name;
    const auto found = std::lower_bound(classes.begin(), classes.end(), of_class.name);
    if (found == classes.end() || *found != of_class.name) {
      return bad_data(path, ErrorCode::kInvalid, "is no class of the training set");
    }
    MUSTER_ASSIGN_OR_RETURN(const std::vector<Entry> pictures, entries_of(path));
    if (pictures.empty()) return bad_data(path, ErrorCode::kInvalid, "has no pictures");
    for (const Entry& picture : pictures) {
      if (picture.is_directory) {
        return bad_data(path + "/" + picture.name, ErrorCode::kInvalid,
                        "is a directory within that of a class, which must have pictures alone");
      }
      files.push_back({picture.name, static_cast<std::uint8_t>(found - classes.begin())});
    }
    if (files.size() > kMaxPictures) {
      return bad_data(directory, ErrorCode::kTooLarge,
                      "has more than " + std::to_string(kMaxPictures) + " pictures");
    }
  }
  if (files.empty()) return bad_data(directory, ErrorCode::kInvalid, "has no pictures");
  return files;
}

Result<Dataset> read_pictures(const ImageFolder& folder, std::vector<std::string> classes) {
  MUSTER_CHECK((folder.height == 0) == (folder.width == 0) && folder.height <= kMaxImageSide &&
               folder.width <= kMaxImageSide && folder.threads >= 1);
  MUSTER_ASSIGN_OR_RETURN(std::vector<PictureFile> files, files_of(folder.directory, classes));
  Dataset out;
  for (const PictureFile& file : files) out.labels.push_back(file.label);
  out.classes = std::max(2, static_cast<int>(classes.size()));
  out.class_names = classes;
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<PictureFiles> pictures,
                          PictureFiles::open(folder, std::move(classes), std::move(files)));
  out.count = pictures->count();
  out.height = pictures->height();
  out.width = pictures->width();
  out.channels = folder.is_gray ? 1 : kColors;
  out.features = pictures->values();
  if (!folder.is_checked_by_others) MUSTER_RETURN_IF_ERROR(pictures->check_all(folder.most_memory));
  out.pictures = std::move(pictures);
  return out;
}

std::string size_of(const Dataset& set) {
  return std::to_string(set.height) + " x " + std::to_string(set.width) + " x " +
         std::to_string(set.channels);
}

}  // namespace

Result<Dataset> load_image_folder(const ImageFolder& folder) {
  MUSTER_ASSIGN_OR_RETURN(std::vector<std::string> classes, classes_of(folder.directory));
  return read_pictures(folder, std::move(classes));
}

Result<Dataset> load_test_image_folder(const ImageFolder& folder, const Dataset& train) {
  MUSTER_ASSIGN_OR_RETURN(Dataset test, read_pictures(folder, train.class_names));
  if (size_of(test) != size_of(train)) {
    return bad_data(folder.directory, ErrorCode::kInvalid,
                    "its pictures are " + size_of(test) + ", those of the training set " +
                        size_of(train) + "; they must be equal");
  }
  return test;
}

}  // namespace muster::data
