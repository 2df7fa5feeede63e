// What a shell may put in place of the word that is being typed behind `muster`.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "cli/cluster_names.h"
#include "cli/kubectl.h"
#include "common/clock.h"

namespace muster::cli {

/// What the shells' scripts call (cli/completion): behind it come the words of the line, without
/// the program's name, the last one being the word to complete.
inline constexpr const char* kCompleteCommand = "complete-words";
/// As what kubectl, 1.26 and later, calls us for the words behind `kubectl muster`.
inline constexpr const char* kKubectlCompletes = "kubectl_complete-muster";

/// A word that may stand there, and one line about it, which may be empty.
struct Candidate {
  std::string word, help;
};

struct Completion {
  std::vector<Candidate> candidates;  ///< each begins with what is there of the word
  ClusterNames names;                 ///< those that fit may stand there, too
  std::string before_name;            ///< "--namespace=", where the name is a part of the word
  std::size_t cut = 0;                ///< bytes of each word that the shell takes for another's
  bool takes_files = false;           ///< what is none of these is a file
  KubectlFlags flags;                 ///< that the line has so far
};

/// What may stand in place of the last of `words`; none is an empty one. A bash cuts words at '='
/// and ':', which come as words of their own: they are put together again. Pure.
Completion complete_words(const CLI::App& app, std::vector<std::string> words);

/// Prints it, a line a word, "WORD" or "WORD\tHELP", and last ":0" (files may stand there, too) or
/// ":4" (nothing else), as kubectl wants it. Says nothing of any error, and returns 0. Blocks: on
/// the cluster, as cluster_names().
int complete_command(const CLI::App& app, const std::vector<std::string>& words,
                     const std::map<std::string, std::string>& environment, const Clock& clock);

}  // namespace muster::cli
