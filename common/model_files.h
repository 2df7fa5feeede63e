// Files that a finished training leaves beside the model, where its engine writes any.
#pragma once

#include <array>
#include <string_view>

namespace muster::contract {

/// What a model of text wrote when it was asked to go on from an empty line. Bytes of a model's
/// choice, never to be trusted.
inline constexpr std::string_view kSampleFile = "sample.txt";
/// What Hugging Face's transformers need to know of a model to load it.
inline constexpr std::string_view kModelConfigFile = "config.json";
/// The names of the classes, where they have any: a JSON array, in the order of the model's
/// outputs.
inline constexpr std::string_view kClassesFile = "classes.json";
/// What a table's columns are to the model: a JSON array, in the order of its inputs.
inline constexpr std::string_view kInputsFile = "inputs.json";
/// The vocabulary whose tokens a model reads and writes, as Hugging Face's tokenizers load it.
inline constexpr std::string_view kVocabularyFile = "vocab.json";
inline constexpr std::string_view kMergesFile = "merges.txt";
/// All of them.
inline constexpr std::array kFilesBesideModel{kModelConfigFile, kSampleFile,     kClassesFile,
                                              kInputsFile,      kVocabularyFile, kMergesFile};

}  // namespace muster::contract
