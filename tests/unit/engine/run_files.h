// What a training leaves in its directory, for comparing two of them.
#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "common/json.h"

namespace muster::test {

/// The record without what may differ between runs: times and the number of workers.
inline std::vector<std::string> record_of(const std::string& directory) {
  std::ifstream in(directory + "/record.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    Json json = *parse_json(line);
    json.erase("seconds");
    json.erase("workers");
    lines.push_back(dump_json(json));
  }
  return lines;
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace muster::test
