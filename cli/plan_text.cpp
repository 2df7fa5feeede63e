#include "cli/plan_text.h"

#include <algorithm>
#include <map>

#include "cli/cost_words.h"
#include "cli/kube_objects.h"
#include "cli/progress_view.h"
#include "cli/terminal_text.h"
#include "common/list_text.h"

namespace muster::cli {
namespace {

constexpr std::size_t kMostNames = 5;
constexpr std::size_t kMostRows = 32;
const std::string kIndent = "  ";

std::string names(const std::vector<api::ObjectKey>& jobs) {
  return list_text(jobs, kMostNames, [](const api::ObjectKey& job) { return job.text(); });
}

std::string workers_text(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " worker" : " workers");
}

class PlanPage {
 public:
  PlanPage(const PlanForecast& forecast, const Display& display, WallTime now)
      : forecast_(forecast), display_(display), now_(now) {}

  std::string write() {
    const api::TrainingJob& job = forecast_.job;
    const bool starts = forecast_.starts_now;
    out_ = coloured(job.meta.name, Colour::kHead, display_) + " in namespace " +
           job.meta.namespace_name + ": " +
           coloured(starts                        ? "would start now"
                    : forecast_.why_never.empty() ? "would wait"
                                                  : "would never start as it is",
                    starts ? Colour::kGood : Colour::kBusy, display_) +
           "\n";
    if (!forecast_.why.empty()) paragraph(forecast_.why);
    if (!starts) paragraph(start_words(forecast_, now_));
    write_step();
    write_cost();
    write_displaced();
    write_places();
    return out_;
  }

 private:
  void paragraph(const std::string& text) {
    out_ += kIndent + wrapped(printable(text), display_.width, kIndent) + "\n";
  }
  void write_step();
  void write_cost();
  void write_displaced();
  void write_places();

  const PlanForecast& forecast_;
  const Display& display_;
  WallTime now_;
  std::string out_;
};

/// Of a program of the user's own nobody knows what a step is.
void PlanPage::write_step() {
  const api::TrainingJob& job = forecast_.job;
  if (!job.spec.training || job.status.placement.empty()) return;
  if (const auto& step = forecast_.step) {
    paragraph("predicted step: " + step->milliseconds + " ms, if its workers compute as fast as " +
              step->measured.text() + "'s and nobody else sends");
    return;
  }
  const std::string takes =
      "predicted step: not known; that takes a job here that has trained the same with as many "
      "workers";
  paragraph(takes + (forecast_.exchange ? ". Its exchange alone would take " + *forecast_.exchange +
                                              " ms, if nobody else sends"
                                        : ", and a network of which something is known"));
}

void PlanPage::write_cost() {
  const auto& cost = forecast_.job.status.cost;
  if (!cost) return;
  std::string text = "cost: " + rate_words(*cost);
  if (const auto& most = forecast_.cost_at_most; most && most->unknown_seconds == 0) {
    text += "; at most " + money_text(*most->amount, most->currency) + " by its deadline (" +
            format_time(*forecast_.over_by) + "), with these workers";
  } else if (cost->rate_per_hour) {
    text += "; in all not known, because nothing says when it ends (spec.activeDeadlineSeconds)";
  }
  paragraph(text);
}

void PlanPage::write_displaced() {
  for (const PlanDisplaced& one : forecast_.displaced) {
    const std::string change =
        one.workers_after == 0
            ? "would be stopped"
            : "would shrink from " + workers_text(static_cast<std::size_t>(one.workers_before)) +
                  " to " + std::to_string(one.workers_after);
    paragraph(one.job.text() + " " + change + (one.why.empty() ? "" : ": " + one.why));
  }
}

void PlanPage::write_places() {
  const auto& placement = forecast_.job.status.placement;
  if (placement.empty()) return;
  struct Place {
    std::vector<int> slots;
    std::string domain;
  };
  std::vector<std::pair<std::string, Place>> nodes;  // in the order of slots
  std::map<std::string, std::size_t> index;
  for (const api::SlotPlacement& slot : placement) {
    const auto [found, is_new] = index.try_emplace(slot.node, nodes.size());
    if (is_new) nodes.push_back({slot.node, {{}, slot.domain}});
    nodes[found->second].second.slots.push_back(slot.slot);
  }
  out_ += "\n";
  Table table({"NODE", ">WORKERS", "SLOTS", "DOMAIN"});
  for (std::size_t i = 0; i < std::min(nodes.size(), kMostRows); ++i) {
    const auto& [node, place] = nodes[i];
    const bool is_range =
        place.slots.back() - place.slots.front() + 1 == static_cast<int>(place.slots.size());
    std::string slots = std::to_string(place.slots.front());
    if (place.slots.size() > 1 && is_range) {
      slots += "-" + std::to_string(place.slots.back());
    } else if (place.slots.size() > 1) {
      slots += ", ...";
    }
    table.add({{node.empty() ? "wherever the scheduler puts it" : node},
               {std::to_string(place.slots.size())},
               {slots},
               {place.domain}});
  }
  out_ += table.take(display_);
  if (nodes.size() > kMostRows) {
    out_ += "and " + std::to_string(nodes.size() - kMostRows) + " nodes more\n";
  }
}

}  // namespace

std::string start_words(const PlanForecast& forecast, WallTime now) {
  if (!forecast.why_never.empty()) {
    return "expected start: never on these nodes as they are, even if nothing else were on them: " +
           forecast.why_never;
  }
  const auto& unending = forecast.unending;
  const std::string silent =
      unending.empty() ? "" : "; " + names(unending) + " do not say when they end";
  if (forecast.starts_now) return "expected start: now, as soon as the operator has seen the room";
  if (!forecast.starts_at) {
    return "expected start: not known" +
           (unending.empty() ? ": no end of a running job would make room for it" : silent);
  }
  const double in = std::chrono::duration<double>(*forecast.starts_at - now).count();
  const std::string when = "expected start: in " + duration_text(std::max(0.0, in)) + " (" +
                           format_time(*forecast.starts_at) + "), when ";
  if (forecast.awaited.empty()) {
    return when + "the rules of queues make room for it, whether or not another job has ended";
  }
  return when + names(forecast.awaited) + (forecast.awaited.size() == 1 ? " has" : " have") +
         " ended by their own word" + silent;
}

std::string plan_text(const PlanForecast& forecast, const Display& display, WallTime now) {
  return PlanPage(forecast, display, now).write();
}

Json plan_json(const PlanForecast& forecast) {
  Json json{{"job", forecast.job.meta.key().text()},
            {"startsNow", forecast.starts_now},
            {"why", forecast.why},
            {"placement", Json::array()},
            {"displaced", Json::array()}};
  for (const api::SlotPlacement& slot : forecast.job.status.placement) {
    Json one{{"slot", slot.slot}, {"node", slot.node}};
    if (!slot.domain.empty()) one["domain"] = slot.domain;
    json["placement"].push_back(std::move(one));
  }
  for (const PlanDisplaced& one : forecast.displaced) {
    json["displaced"].push_back({{"job", one.job.text()},
                                 {"workersBefore", one.workers_before},
                                 {"workersAfter", one.workers_after},
                                 {"why", one.why}});
  }
  if (forecast.job.spec.training && !forecast.job.status.placement.empty()) {
    Json& told = json["predictedStepMilliseconds"];
    if (forecast.step) told = forecast.step->milliseconds;
    if (forecast.exchange) json["predictedExchangeMilliseconds"] = *forecast.exchange;
  }
  if (const auto& cost = forecast.job.status.cost) {
    Json& told =
        json["cost"] = {{"currency", cost->currency}, {"perHour", nullptr}, {"atMost", nullptr}};
    if (cost->rate_per_hour) told["perHour"] = api::billionths_text(*cost->rate_per_hour);
    if (!cost->rate_per_hour) told["unknown"] = cost->unknown;
    const auto& most = forecast.cost_at_most;
    if (most && most->unknown_seconds == 0) told["atMost"] = api::billionths_text(*most->amount);
  }
  if (forecast.starts_now) return json;
  json["expectedStart"] = nullptr;
  if (forecast.starts_at) json["expectedStart"] = format_time(*forecast.starts_at);
  if (!forecast.why_never.empty()) json["never"] = forecast.why_never;
  json["after"] = Json::array();
  for (const auto& job : forecast.awaited) json["after"].push_back(job.text());
  json["endUnknown"] = Json::array();
  for (const auto& job : forecast.unending) json["endUnknown"].push_back(job.text());
  return json;
}

}  // namespace muster::cli
