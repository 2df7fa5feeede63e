// The arguments of every command that reads a job from a file.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace muster::cli {

inline void add_job_file(CLI::App& command, std::string& file,
                         std::vector<std::string>& overrides) {
  command.add_option("FILE", file, "manifest of a TrainingJob (YAML or JSON); - is standard input")
      ->required();
  command
      .add_option(
          "--set", overrides,
          "replace one value of the manifest: path=value, the value as YAML; may be repeated")
      ->type_name("PATH=VALUE")
      ->allow_extra_args(false);
}

}  // namespace muster::cli
