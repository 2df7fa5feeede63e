// Whether the lists of the stages fit together: held by letting them run beside each other, with no
// more memory than each says that it needs.
#include "worker/engine/pipeline_schedule.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using namespace muster::engine;

namespace {

constexpr int kStagesMost = 8, kMicroBatchesMost = 32;

using enum PipelineAction;

bool is_transfer(const PipelineOperation& one) { return one.peer >= 0; }
bool is_pass(const PipelineOperation& one) {
  return one.action == kForward || one.action == kBackward;
}

/// The stages beside each other. Nothing is buffered between them: a stage ends a tick when those
/// it has transfers with have come to that tick, too.
class Pipe {
 public:
  explicit Pipe(const PipelineShape& shape) : shape_(shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      stages_.push_back({pipeline_operations(shape, stage)});
    }
  }

  /// Empty, or what is wrong.
  std::string run() {
    for (bool moves = true; moves && wrong_.empty();) {
      moves = false;
      for (int s = 0; s < shape_.stages; ++s) moves = advance(s) || moves;
    }
    for (int s = 0; s < shape_.stages && wrong_.empty(); ++s) {
      if (at(s).tick < pipeline_ticks(shape_)) fail(s, "waits for ever");
      check_all_done(s);
    }
    return wrong_;
  }

  int idle_ticks(int stage) const {
    int busy = 0;
    for (const auto& one : stages_[static_cast<std::size_t>(stage)].list) busy += is_pass(one);
    return pipeline_ticks(shape_) - (shape_.is_tied ? 2 : 0) - busy;
  }

 private:
  struct Stage {
    std::vector<PipelineOperation> list;
    int tick = 0;
    bool has_computed = false;        ///< all of the tick, and its group of transfers is begun
    std::set<int> inputs{}, alive{};  ///< there, not yet computed; between forward and backward
    std::set<int> gradients{};        ///< of outputs, there
    std::set<int> embedded{}, tables{}, embedding_gradients{};
    std::map<PipelineAction, std::set<int>> done{};
    std::size_t alive_most = 0;
  };
  Stage& at(int stage) { return stages_[static_cast<std::size_t>(stage)]; }
  bool is_last(int stage) const { return stage + 1 == shape_.stages; }
  bool is_fed(int stage) const { return stage > 0 || shape_.is_tied; }

  void fail(int stage, const std::string& what) {
    if (!wrong_.empty()) return;
    wrong_ =
        "stage " + std::to_string(stage) + ", tick " + std::to_string(at(stage).tick) + ": " + what;
  }
  void expect(int stage, bool condition, const char* what) {
    if (!condition) fail(stage, what);
  }

  std::vector<PipelineOperation> of_tick(int stage) {
    std::vector<PipelineOperation> some;
    for (const auto& one : at(stage).list) {
      if (one.tick == at(stage).tick) some.push_back(one);
    }
    return some;
  }

  bool advance(int s) {
    Stage& stage = at(s);
    if (stage.tick >= pipeline_ticks(shape_)) return false;
    if (!stage.has_computed) {
      int passes = 0;
      for (const auto& one : of_tick(s)) {
        if (!is_transfer(one)) compute(s, one);
        passes += is_pass(one);
      }
      expect(s, passes <= 1, "computes two passes in one tick");
      stage.has_computed = true;
      return true;
    }
    for (const auto& one : of_tick(s)) {
      if (!is_transfer(one)) continue;
      const Stage& peer = at(one.peer);
      if (peer.tick < stage.tick || (peer.tick == stage.tick && !peer.has_computed)) return false;
    }
    for (const auto& one : of_tick(s)) {
      if (is_transfer(one)) transfer(s, one);
    }
    ++stage.tick;
    stage.has_computed = false;
    return true;
  }

  void compute(int s, const PipelineOperation& one) {
    Stage& stage = at(s);
    const int m = one.micro_batch;
    expect(s, stage.done[one.action].insert(m).second, "does something twice");
    switch (one.action) {
      case kForward:
        expect(s, !is_fed(s) || stage.inputs.erase(m) == 1, "computes what it was not given");
        stage.alive.insert(m);
        stage.alive_most = std::max(stage.alive_most, stage.alive.size());
        break;
      case kBackward:
        expect(s, is_last(s) || stage.gradients.erase(m) == 1, "goes back without a gradient");
        expect(s, stage.alive.erase(m) == 1, "goes back before it went forward");
        if (shape_.is_tied && is_last(s)) stage.tables.insert(m);
        break;
      case kEmbed:
        stage.embedded.insert(m);
        break;
      default:
        expect(s,
               stage.embedding_gradients.erase(m) == 1 && stage.tables.erase(m) == 1 &&
                   stage.embedded.erase(m) == 1,
               "ends a table that is not begun");
    }
    expect(s, stage.embedded.size() <= static_cast<std::size_t>(embedded_most(shape_)),
           "keeps too many tokens");
    expect(s, stage.tables.size() <= static_cast<std::size_t>(tables_most(shape_)),
           "keeps too many tables");
  }

  /// Of both ends the one that receives is looked at; that the other one sends, too.
  void transfer(int s, const PipelineOperation& one) {
    Stage& stage = at(s);
    const int m = one.micro_batch;
    const bool is_sent = one.action == kSendActivations || one.action == kSendGradient;
    const PipelineAction other = one.action == kSendActivations      ? kReceiveActivations
                                 : one.action == kReceiveActivations ? kSendActivations
                                 : one.action == kSendGradient       ? kReceiveGradient
                                                                     : kSendGradient;
    const auto& theirs = at(one.peer).list;
    const PipelineOperation end{one.tick, other, m, s};
    expect(s, std::count(theirs.begin(), theirs.end(), end) == 1, "has a transfer with nobody");
    if (is_sent) return check_sent(s, one);
    const bool is_of_table = shape_.is_tied && is_last(s) && one.action == kReceiveGradient;
    if (is_of_table) {
      expect(s, stage.embedding_gradients.empty(), "has no room for a gradient");
      stage.embedding_gradients.insert(m);
    } else if (one.action == kReceiveGradient) {
      expect(s, stage.gradients.empty(), "has no room for a gradient");
      stage.gradients.insert(m);
    } else {
      stage.inputs.insert(m);
      const auto held = static_cast<int>(stage.inputs.size() + stage.alive.size());
      expect(s, held <= alive_most(shape_, s), "has no room for an input");
    }
  }

  /// What is sent is there, and is not gone: a stage keeps its output until it goes back.
  void check_sent(int s, const PipelineOperation& one) {
    Stage& stage = at(s);
    const int m = one.micro_batch;
    const bool is_embedding = shape_.is_tied && is_last(s) && one.peer == 0;
    if (one.action == kSendGradient) {
      const auto of = [&](const PipelineOperation& it) {
        return it.tick == one.tick && it.action == kBackward && it.micro_batch == m;
      };
      expect(s, std::any_of(stage.list.begin(), stage.list.end(), of), "sends an old gradient");
    } else if (is_embedding && one.action == kSendActivations) {
      expect(s, stage.embedded.contains(m), "sends what it has not embedded");
    } else {
      expect(s, stage.alive.contains(m), "sends what it has not computed");
    }
  }

  void check_all_done(int s) {
    const auto all = static_cast<std::size_t>(shape_.micro_batches);
    expect(s, at(s).done[kForward].size() == all && at(s).done[kBackward].size() == all,
           "leaves micro-batches out");
    expect(s, static_cast<int>(at(s).alive_most) <= alive_most(shape_, s), "keeps too many alive");
    if (!shape_.is_tied || !is_last(s)) return;
    expect(s, at(s).done[kEmbed].size() == all && at(s).done[kFinishTable].size() == all,
           "leaves embeddings out");
  }

  PipelineShape shape_;
  std::vector<Stage> stages_;
  std::string wrong_;
};

std::vector<PipelineShape> all_shapes() {
  std::vector<PipelineShape> shapes;
  for (const auto pipelining : {Pipelining::kGpipe, Pipelining::kOneForwardOneBackward}) {
    for (int stages = 1; stages <= kStagesMost; ++stages) {
      for (int micro_batches = 1; micro_batches <= kMicroBatchesMost; ++micro_batches) {
        shapes.push_back({stages, micro_batches, pipelining, false});
        if (stages > 1) shapes.push_back({stages, micro_batches, pipelining, true});
      }
    }
  }
  return shapes;
}

}  // namespace

TEST_CASE("the stages of a pipeline come to their end, each pass made once, within their memory") {
  for (const PipelineShape& shape : all_shapes()) {
    CAPTURE(static_cast<int>(shape.pipelining));
    CAPTURE(shape.stages);
    CAPTURE(shape.micro_batches);
    CAPTURE(shape.is_tied);
    REQUIRE(Pipe(shape).run() == "");
  }
}

TEST_CASE("a stage is idle as long as its pipeline takes to fill and to drain") {
  for (const PipelineShape& shape : all_shapes()) {
    const int ticks = pipeline_ticks(shape) - (shape.is_tied ? 2 : 0);
    for (int stage = 0; stage < shape.stages; ++stage) {
      const int idle = Pipe(shape).idle_ticks(stage);
      REQUIRE(idle == 2 * (shape.stages - 1));
      REQUIRE(static_cast<double>(idle) == doctest::Approx(idle_share(shape) * ticks));
    }
  }
}

TEST_CASE("with one forward, one backward no more is alive than stages are to come") {
  CHECK(alive_most({8, 32}, 0) == 8);
  CHECK(alive_most({8, 32}, 7) == 1);
  CHECK(alive_most({8, 3}, 0) == 3);
  CHECK(alive_most({8, 32, Pipelining::kGpipe}, 7) == 32);
}

TEST_CASE("gradients are added up in one order, whatever the schedule") {
  for (const PipelineShape& shape : all_shapes()) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      std::map<PipelineAction, int> next;
      for (const auto& one : pipeline_operations(shape, stage)) {
        if (!is_transfer(one)) REQUIRE(one.micro_batch == next[one.action]++);
      }
    }
  }
}

TEST_CASE("the order of one forward, one backward, written out") {
  std::string text;
  for (const auto& one : pipeline_operations({2, 3}, 0)) {
    if (is_pass(one)) {
      text += (one.action == kForward ? "F" : "B") + std::to_string(one.micro_batch) + "@" +
              std::to_string(one.tick) + " ";
    }
  }
  CHECK(text == "F0@0 F1@1 B0@3 F2@4 B1@5 B2@7 ");
}
