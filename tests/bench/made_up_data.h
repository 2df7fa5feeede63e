// Data of any shape for programs that time the engine: the values mean nothing.
#pragma once

#include <stdlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/rng.h"
#include "common/token_shard.h"

namespace muster::bench {

/// A directory of one's own, gone with the object.
class Scratch {
 public:
  Scratch() : path_((std::filesystem::temp_directory_path() / "bench-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) != nullptr) return;
    std::perror("no directory for made-up data");
    std::exit(1);
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void write_idx(const std::string& path, const std::vector<std::uint32_t>& shape,
                      const std::vector<char>& values) {
  std::ofstream out(path, std::ios::binary);
  const char magic[] = {0, 0, 8, static_cast<char>(shape.size())};
  out.write(magic, 4);
  for (const std::uint32_t size : shape) {
    for (int shift = 24; shift >= 0; shift -= 8) out.put(static_cast<char>(size >> shift));
  }
  out.write(values.data(), static_cast<std::streamsize>(values.size()));
}

/// "images" and "labels", each image of the shape given.
inline void write_images(const std::string& directory, std::uint32_t count,
                         const std::vector<std::uint32_t>& shape, int classes) {
  Rng rng(1);
  std::vector<std::uint32_t> all{count};
  std::size_t values = count;
  for (const std::uint32_t size : shape) {
    all.push_back(size);
    values *= size;
  }
  std::vector<char> images(values), labels(count);
  for (char& value : images) value = static_cast<char>(rng.below(256));
  for (char& label : labels) {
    label = static_cast<char>(rng.below(static_cast<std::uint64_t>(classes)));
  }
  write_idx(directory + "/images", all, images);
  write_idx(directory + "/labels", {count}, labels);
}

/// "text", bytes for so many samples.
inline void write_text(const std::string& directory, int samples, int context) {
  Rng rng(1);
  std::ofstream out(directory + "/text", std::ios::binary);
  for (int i = 0; i < samples * context + 1; ++i) out.put(static_cast<char>(rng.below(256)));
}

/// "shard", for so many samples of tokens that are below `vocabulary`, 65,536 at most.
inline void write_shard(const std::string& directory, int samples, int context, int vocabulary) {
  Rng rng(1);
  const token_shard::Format format = token_shard::kFormats[0];
  const int count = samples * context + 1;
  std::vector<std::uint32_t> header(token_shard::kHeaderBytes / sizeof(std::uint32_t), 0);
  header[0] = format.magic;
  header[1] = format.version;
  header[2] = static_cast<std::uint32_t>(count);
  std::vector<std::uint16_t> tokens(static_cast<std::size_t>(count));
  for (std::uint16_t& token : tokens) {
    token = static_cast<std::uint16_t>(rng.below(static_cast<std::uint64_t>(vocabulary)));
  }
  std::ofstream out(directory + "/shard", std::ios::binary);
  out.write(reinterpret_cast<const char*>(header.data()), token_shard::kHeaderBytes);
  out.write(reinterpret_cast<const char*>(tokens.data()),
            static_cast<std::streamsize>(tokens.size() * sizeof(std::uint16_t)));
}

}  // namespace muster::bench
