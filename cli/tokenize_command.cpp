#include "cli/tokenize_command.h"

#include <sys/stat.h>

#include "cli/files.h"
#include "cli/kube_query.h"
#include "cli/tell.h"
#include "common/contract.h"
#include "common/file.h"
#include "common/log.h"
#include "common/token_shard.h"

namespace muster::cli {
namespace {

void append(std::string& bytes, std::uint32_t value, std::size_t width) {
  for (std::size_t byte = 0; byte < width; ++byte) {
    bytes += static_cast<char>(value >> (8 * byte) & 0xff);
  }
}

Error bad_output(const std::string& sentence) {
  return Error(ErrorCode::kInvalid, sentence).with_exit_code(contract::exit_code::kUsage);
}

/// A shard takes the place of what has its name, and /dev/null is needed by others. The shard of an
/// earlier call is no text, but a pattern of the shell may have found it beside them.
Status check_output(const TokenizeOptions& options) {
  struct stat there{};
  if (::stat(options.output.c_str(), &there) != 0) return {};
  if (!S_ISREG(there.st_mode)) {
    return bad_output(options.output +
                      ": is no regular file; --output must name one, or a new one");
  }
  for (const std::string& text : options.texts) {
    struct stat one{};
    if (::stat(text.c_str(), &one) != 0) continue;  // who reads it says so
    if (one.st_dev != there.st_dev || one.st_ino != there.st_ino) continue;
    return bad_output(options.output +
                      ": --output is also one of the texts; it must name another file");
  }
  return {};
}

Status tokenize(const TokenizeOptions& options) {
  MUSTER_RETURN_IF_ERROR(check_output(options));
  MUSTER_ASSIGN_OR_RETURN(const auto vocabulary, bpe::Vocabulary::load(options.vocabulary));
  std::vector<std::int32_t> tokens;
  std::uint64_t bytes = 0;
  for (const std::string& path : options.texts) {
    const auto text = read_file(path, kMaxTokenizedBytes);
    if (!text) return text.error().with_exit_code(contract::exit_code::kData);
    add_text(vocabulary, *text, tokens);
    bytes += text->size();
    if (tokens.size() > token_shard::kMaxTokens) break;
  }
  MUSTER_ASSIGN_OR_RETURN(const std::string shard, make_shard(tokens, vocabulary.size()));
  if (const Status written = write_file_atomically(options.output, shard); !written) {
    return written.error().with_exit_code(contract::exit_code::kDisk);
  }
  print(options.output + ": " + std::to_string(tokens.size()) + " tokens of " +
        std::to_string(bytes) + " bytes; vocabularySize " + std::to_string(vocabulary.size()) +
        "\n");
  return {};
}

}  // namespace

void add_text(const bpe::Vocabulary& vocabulary, std::string_view text,
              std::vector<std::int32_t>& tokens) {
  if (const auto border = vocabulary.find(bpe::kEndOfText)) tokens.push_back(*border);
  vocabulary.encode(text, tokens);
}

Result<std::string> make_shard(std::span<const std::int32_t> tokens, std::size_t vocabulary_size) {
  if (tokens.empty() || tokens.size() > token_shard::kMaxTokens) {
    return Error(ErrorCode::kTooLarge, "the texts have " + std::to_string(tokens.size()) +
                                           " tokens; a shard must have from 1 to " +
                                           std::to_string(token_shard::kMaxTokens) +
                                           ", so make several of them")
        .with_exit_code(contract::exit_code::kData);
  }
  const auto& format = token_shard::kFormats[vocabulary_size <= (1u << 16) ? 0 : 1];
  std::string shard;
  shard.reserve(token_shard::kHeaderBytes + tokens.size() * format.token_bytes);
  append(shard, format.magic, 4);
  append(shard, format.version, 4);
  append(shard, static_cast<std::uint32_t>(tokens.size()), 4);
  shard.resize(token_shard::kHeaderBytes);
  for (const std::int32_t token : tokens) {
    append(shard, static_cast<std::uint32_t>(token), format.token_bytes);
  }
  return shard;
}

int tokenize_command(const TokenizeOptions& options) {
  configure_log(LogLevel::kError, {{"component", "muster-tokenize"}});
  const Status status = tokenize(options);
  (void)flush();
  return status ? contract::exit_code::kComplete : tell_error(status.error());
}

}  // namespace muster::cli
