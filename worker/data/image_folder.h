// Labelled pictures in files of their own: a directory that has one for each class, named after it,
// with the pictures in it. Classes are numbered from 0 in the order of their names, pictures in
// that of their files' names within a class, byte by byte; names that begin with a dot, and files
// beside the directories of classes, count for nothing.
// Source: the layout of torchvision's ImageFolder and of Hugging Face's imagefolder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/result.h"
#include "worker/data/dataset.h"
#include "worker/data/picture_files.h"

namespace muster::data {

/// Most pictures of a directory.
inline constexpr std::size_t kMaxPictures = std::size_t{1} << 22;
/// Reads a training set: into memory, or once through it where it has more than may be held, so
/// that what is wrong with any picture is known before training; or not yet, where others have
/// checked it.  Errors: kInvalid, kCorrupt,
/// kTooLarge, kNotFound, kIo; one sentence that names the file or the directory, exit code kData,
/// kDisk where the system could not read it, or that of check_memory_for().
/// Blocks: on the disk.
Result<Dataset> load_image_folder(const ImageFolder& folder);

/// Reads the test set that belongs to `train`: the same sizes, no class that `train` lacks.
Result<Dataset> load_test_image_folder(const ImageFolder& folder, const Dataset& train);

}  // namespace muster::data
