#include "cli/get_command.h"

#include <algorithm>
#include <map>
#include <optional>

#include "cli/job_table.h"
#include "cli/json_stream.h"
#include "cli/kube_query.h"
#include "cli/tell.h"
#include "cli/terminal_text.h"
#include "common/contract.h"

namespace muster::cli {
namespace {

namespace codes = contract::exit_code;

/// A watch is given up by the API server now and then, and the next one goes on; when that comes
/// sooner than this, or no API server answers, it waits.
constexpr milliseconds kBetweenWatches{2'000};

/// Of what does not pile up here, bytes.
constexpr std::size_t kWithoutEnd = std::size_t{1} << 40;

/// A narrower terminal would break the lines.
constexpr std::size_t kWidthForBar = 110;

class Get {
 public:
  Get(Kubectl& kubectl, const GetOptions& options, const Display& display)
      : kubectl_(kubectl), options_(options), display_(display), table_(columns()) {}

  int run();

 private:
  JobTableOptions table_options() const {
    return {options_.all_namespaces, options_.output == "wide", display_.width >= kWidthForBar};
  }
  std::vector<std::string> columns() const { return job_columns(table_options()); }
  std::vector<std::string> arguments(const std::vector<std::string>& names) const;
  bool is_wanted(const std::string& name) const;
  int ending(const Error& error) const;
  Status pass_on();
  Status list();
  Status watch();
  Status take_event(std::string_view document);
  void add(const api::TrainingJob& job);

  Kubectl& kubectl_;
  const GetOptions& options_;
  const Display& display_;
  Table table_;
  bool has_rows_ = false;
  /// The row last shown of each job, but for its age.
  std::map<std::string, std::vector<std::string>> shown_;
};

std::vector<std::string> Get::arguments(const std::vector<std::string>& names) const {
  std::vector<std::string> arguments{"get", kJobResource};
  arguments.insert(arguments.end(), names.begin(), names.end());
  if (options_.all_namespaces) arguments.emplace_back("--all-namespaces");
  if (!options_.selector.empty()) arguments.push_back("--selector=" + options_.selector);
  return arguments;
}

bool Get::is_wanted(const std::string& name) const {
  const auto& names = options_.names;
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

void Get::add(const api::TrainingJob& job) {
  const WallTime now = kubectl_.clock().wall_now();
  std::vector<Cell> row = job_row(job, table_options(), now);
  JobTableOptions timeless = table_options();
  timeless.is_wide = false;
  std::vector<std::string> texts;
  for (const Cell& cell : job_row(job, timeless, now)) texts.push_back(cell.text);
  texts.pop_back();  // the age
  auto& last = shown_[job.meta.key().text()];
  if (last == texts) return;
  last = std::move(texts);
  table_.add(std::move(row));
  has_rows_ = true;
}

/// What kubectl itself writes in the form that was asked for.
Status Get::pass_on() {
  KubectlCall call;
  call.arguments = arguments(options_.names);
  call.arguments.insert(call.arguments.end(), {"-o", options_.output});
  call.deadline = milliseconds(0);  // a reader may take its time; a silent kubectl is given up
  if (options_.watches) {
    call.arguments.emplace_back("--watch");
    call.silence = milliseconds(0);
  }
  call.max_output = kWithoutEnd;
  call.tells_all = true;
  std::string line;  // the beginning of one: no character of a terminal is cut in two
  const auto take = [&](std::string_view piece) -> Status {
    line += piece;
    const std::size_t whole = display_.width > 0 ? line.rfind('\n') + 1 : line.size();
    const std::string text = line.substr(0, whole);
    line.erase(0, whole);
    // What a user writes into an object must not move the cursor of another's terminal.
    const bool is_read = print(display_.width > 0 ? printable(text) : text) && flush();
    return is_read ? Status() : interrupted();
  };
  const Status passed = kubectl_.stream(call, take);
  if (!line.empty()) print(printable(line));
  return passed;
}

Status Get::list() {
  std::vector<std::string> call = arguments(options_.names);
  call.insert(call.end(), {"-o", "json"});
  MUSTER_ASSIGN_OR_RETURN(Json answer, ask(kubectl_, call));
  for (Json& object : items_of(std::move(answer))) {
    MUSTER_ASSIGN_OR_RETURN(const JobView view, read_job(std::move(object)));
    add(view.job);
  }
  return {};
}

Status Get::take_event(std::string_view document) {
  MUSTER_ASSIGN_OR_RETURN(Json event, parse_json(document));
  const std::string type = text_at(event, {"type"});
  auto view = read_job(member(event, {"object"}));
  if (!view) return {};  // a bookmark, or an error that ends the watch
  if (!is_wanted(view->job.meta.name)) return {};
  if (type != "DELETED") {
    add(view->job);
  } else if (shown_.erase(view->job.meta.key().text()) > 0) {
    std::vector<Cell> row = job_row(view->job, table_options(), kubectl_.clock().wall_now());
    row[options_.all_namespaces ? 2 : 1] = {"Deleted", Colour::kDim};
    table_.add(std::move(row));
    has_rows_ = true;
  }
  if (has_rows_ && !(print(table_.take(display_)) && flush())) return interrupted();
  has_rows_ = false;
  return {};
}

Status Get::watch() {
  std::string told;  // of this silence
  for (;;) {
    const MonoTime started = kubectl_.clock().mono_now();
    KubectlCall call;
    // kubectl watches one object or all of them.
    call.arguments =
        arguments(options_.names.size() == 1 ? options_.names : std::vector<std::string>());
    call.arguments.insert(call.arguments.end(), {"--watch", "--output-watch-events", "-o", "json"});
    call.deadline = call.silence = milliseconds(0);
    call.max_output = kWithoutEnd;
    JsonStream documents;
    const Status status = kubectl_.stream(call, [&](std::string_view piece) {
      told.clear();
      return documents.feed(piece,
                            [this](std::string_view document) { return take_event(document); });
    });
    if (!status && !is_momentary(status.error())) return status;
    if (!status && status.error().message() != told) {
      told = status.error().message();
      tell("muster: " + told);
    }
    if (!status || kubectl_.clock().mono_now() - started < kBetweenWatches) {
      MUSTER_RETURN_IF_ERROR(pause_for(kubectl_, kBetweenWatches));
    }
  }
}

/// A signal is how a watch ends, and a list that it ends is not whole; a reader that has seen
/// enough ends both.
int Get::ending(const Error& error) const {
  const bool is_asked = error.code() == ErrorCode::kAborted;
  return is_asked && (options_.watches || !kubectl_.take_signal()) ? 0 : tell_error(error);
}

int Get::run() {
  for (const std::string& name : options_.names) {
    if (const Status good = check_job_name(name); !good) return tell_error(good.error());
  }
  if (!options_.output.empty() && options_.output != "wide") {
    const Status passed = pass_on();
    return passed ? 0 : ending(passed.error());
  }
  if (const Status listed = list(); !listed) return tell_error(listed.error());
  if (has_rows_) {
    print(table_.take(display_));
  } else {
    tell(options_.all_namespaces ? std::string("No jobs in any namespace.")
                                 : "No jobs in the namespace " + kubectl_.namespace_in_use() + ".");
  }
  if (!options_.watches) return 0;
  flush();
  has_rows_ = false;
  const Status watched = watch();
  return watched ? 0 : ending(watched.error());
}

}  // namespace

int get_command(Kubectl& kubectl, const GetOptions& options, const Display& display) {
  return Get(kubectl, options, display).run();
}

}  // namespace muster::cli
