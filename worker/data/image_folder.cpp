#include "worker/data/image_folder.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/contract.h"
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
    return bad_data(
        directory,
        error == std::errc::no_such_file_or_directory ? ErrorCode::kNotFound : ErrorCode::kIo,
        "cannot be listed: " + error.message());
  }
  std::sort(out.begin(), out.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return out;
}

struct File {
  std::string path;
  std::uint8_t label;
};

/// The classes of a training set.
Result<std::vector<std::string>> classes_of(const std::string& directory) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Entry> entries, entries_of(directory));
  std::vector<std::string> classes;
  for (const Entry& entry : entries) {
    if (entry.is_directory) classes.push_back(entry.name);
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
Result<std::vector<File>> files_of(const std::string& directory,
                                   const std::vector<std::string>& classes) {
  std::vector<File> files;
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
      files.push_back(
          {path + "/" + picture.name, static_cast<std::uint8_t>(found - classes.begin())});
    }
    if (files.size() > kMaxPictures) {
      return bad_data(directory, ErrorCode::kTooLarge,
                      "has more than " + std::to_string(kMaxPictures) + " pictures");
    }
  }
  if (files.empty()) return bad_data(directory, ErrorCode::kInvalid, "has no pictures");
  return files;
}

Result<Picture> read_picture(const ImageFolder& folder, const std::string& path) {
  auto file = read_file(path, kMaxPictureBytes);
  if (!file) return file.error().with_exit_code(contract::exit_code::kData);
  MUSTER_ASSIGN_OR_RETURN(Picture picture, decode_picture(*file, path));
  if (folder.height != 0) picture = scaled(picture, folder.height, folder.width);
  return picture;
}

/// Takes the size of the first picture for all, and makes room for them.
Status set_size(const Picture& first, std::size_t count, const ImageFolder& folder,
                const std::string& path, Dataset& out) {
  if (first.height > kMaxImageSide || first.width > kMaxImageSide) {
    return bad_data(path, ErrorCode::kTooLarge,
                    "is " + std::to_string(first.height) + " x " + std::to_string(first.width) +
                        "; pictures of more than " + std::to_string(kMaxImageSide) +
                        " pixels a side need height and width, to be scaled to");
  }
  out.height = first.height;
  out.width = first.width;
  out.channels = folder.is_gray ? 1 : kColors;
  out.features = out.height * out.width * out.channels;
  if (count > kMaxImageFolderBytes / out.features) {
    return bad_data(folder.directory, ErrorCode::kTooLarge,
                    std::to_string(count) + " pictures of " + std::to_string(out.features) +
                        " values are more than " + std::to_string(kMaxImageFolderBytes) +
                        " bytes; scale them with height and width");
  }
  out.count = count;
  out.images.resize(count * out.features);
  out.labels.reserve(count);
  return {};
}

/// Copies a picture of the set's size to its place.
Status put(const Picture& picture, const ImageFolder& folder, const std::string& path,
           std::size_t index, Dataset& out) {
  if (picture.height != out.height || picture.width != out.width) {
    return bad_data(path, ErrorCode::kInvalid,
                    "is " + std::to_string(picture.height) + " x " + std::to_string(picture.width) +
                        ", the first one " + std::to_string(out.height) + " x " +
                        std::to_string(out.width) +
                        "; with height and width they are scaled to one size");
  }
  const auto place = out.images.begin() + static_cast<std::ptrdiff_t>(index * out.features);
  if (folder.is_gray) {
    std::ranges::copy(gray_of(picture), place);
  } else {
    std::ranges::copy(picture.colors, place);
  }
  return {};
}

/// Decodes all but the first on all threads; of several errors the one of the first file.
Status decode_others(const ImageFolder& folder, const std::vector<File>& files, Dataset& out) {
  std::atomic<std::size_t> next = 1;
  std::mutex mutex;
  std::size_t wrong = files.size();
  Status status;
  const auto work = [&] {
    // A file is taken before all behind it, so that none ahead of an error is left out.
    for (std::size_t i = next++; i < files.size(); i = next++) {
      const auto picture = read_picture(folder, files[i].path);
      const Status done =
          picture ? put(*picture, folder, files[i].path, i, out) : Status(picture.error());
      if (done) continue;
      const std::lock_guard lock(mutex);
      if (i < wrong) {
        wrong = i;
        status = done;
      }
      next = files.size();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 1; i < folder.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  return status;
}

Result<Dataset> read_pictures(const ImageFolder& folder, std::vector<std::string> classes) {
  MUSTER_CHECK((folder.height == 0) == (folder.width == 0) && folder.height <= kMaxImageSide &&
               folder.width <= kMaxImageSide && folder.threads >= 1);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<File> files, files_of(folder.directory, classes));
  MUSTER_ASSIGN_OR_RETURN(const Picture first, read_picture(folder, files[0].path));
  Dataset out;
  MUSTER_RETURN_IF_ERROR(set_size(first, files.size(), folder, files[0].path, out));
  MUSTER_RETURN_IF_ERROR(put(first, folder, files[0].path, 0, out));
  MUSTER_RETURN_IF_ERROR(decode_others(folder, files, out));
  for (const File& file : files) out.labels.push_back(file.label);
  out.classes = std::max(2, static_cast<int>(classes.size()));
  out.class_names = std::move(classes);
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
