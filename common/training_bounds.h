// What spec.training may say at most. The operator and the worker each hold every job against them,
// because neither trusts the other; the schema of the definition has the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster::training_bounds {

inline constexpr std::size_t kMaxLayers = 64;  ///< hidden ones
inline constexpr int kMaxLayerWidth = 65'536;
inline constexpr std::size_t kMaxCnnStages = 12;  ///< of a cnn
inline constexpr int kMaxChannels = 4096;
inline constexpr int kMaxKernelSize = 15;
inline constexpr int kMaxBlocks = 96;  ///< of a gpt
inline constexpr int kMaxHeads = 128;
inline constexpr int kMaxGptWidth = 16'384;
inline constexpr int kMaxContextLength = 4096;
inline constexpr int kByteTokens = 256;  ///< of a text
inline constexpr int kMaxVocabularySize = 1 << 20;
/// Weights of attention are drawn by 16 bits: of those that stay there are within 2 % as many as
/// there should be, and above 65535/65536 none would be left.
inline constexpr float kMaxAttentionDropout = 0.999F;
inline constexpr int kMaxBatchSize = 1 << 24;
/// Of one step, samples x contextLength: how many were foretold right is counted in a float.
inline constexpr int kMaxBatchTokens = 1 << 24;
inline constexpr std::size_t kMaxPathBytes = 4096;
inline constexpr std::size_t kMaxShards = 256;       ///< of tokens, in one set: open files
inline constexpr std::size_t kMaxImageSide = 2048;   ///< pixels in a row or column of a picture
inline constexpr std::size_t kMaxColumnBytes = 256;  ///< name of a column of a table
inline constexpr std::int64_t kMaxEpochs = 1'000'000;
inline constexpr std::int64_t kMaxSteps = 1'000'000'000'000;
inline constexpr std::int64_t kMaxTestSamples = 1'000'000'000;

}  // namespace muster::training_bounds
