// Watching over a client: kinds that need not be there, and streams that fall silent.
#include "operator/kube/watch_pump.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "operator/embedded/api_server.h"

using namespace muster;
using Event = kube::WatchEvent::Type;

namespace {

/// An API server on which TopologyConfig is installed sooner or later.
struct LateKind final : kube::HttpTransport {
  ManualClock clock;
  embedded::ApiServer server{{&clock}};
  int answer = 404;  ///< 0: it is there
  int asked = 0;

  bool streams_lists = true;
  bool has_next_pages = true;
  int page_most = 100;

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    ++asked;
    const bool is_next = request.path.find("continue=") != std::string::npos;
    if (is_next && !has_next_pages) return kube::HttpResponse{404, "{}", std::nullopt};
    if (answer != 0) return kube::HttpResponse{answer, "{}", std::nullopt};
    return server.send(request);
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    const bool is_list = request.path.find("sendInitialEvents") != std::string::npos;
    if (is_list && !streams_lists) return Stream{{422, "{}", std::nullopt}, nullptr};
    if (is_list) ++asked;
    if (answer != 0) return Stream{{answer, "{}", std::nullopt}, nullptr};
    return server.open_stream(request);
  }

  std::unique_ptr<kube::ApiClient> client = kube::make_rest_client(*this);
  std::vector<Event> seen;
  std::unique_ptr<kube::WatchPump> pump;

  void start(bool is_optional, std::size_t* batches = nullptr) {
    kube::WatchPumpOptions options;
    options.client = client.get();
    options.clock = &clock;
    options.kind = api::Kind::kTopologyConfig;
    options.watcher = kube::lean_watcher(options.kind);
    options.is_optional = is_optional;
    options.watcher.page_most = page_most;
    options.sink = [this, batches](const kube::WatchBatch& batch) {
      if (batches != nullptr) ++*batches;
      for (const auto& event : batch.events) seen.push_back(event.type);
    };
    pump = std::make_unique<kube::WatchPump>(std::move(options));
  }
  void turn() {
    while (pump->step(milliseconds(0)) == kube::WatchPump::Did::kWork) {
    }
  }
  void comes_after_its_back_off() {
    REQUIRE(pump->wake());
    clock.advance(*pump->wake() - clock.mono_now());
    turn();
    CHECK(seen == std::vector<Event>{Event::kInitStart, Event::kInitApply, Event::kInitDone});
  }
  void install(const char* name = "own") {
    answer = 0;
    const Json level{{"name", "rack"}, {"nodeLabel", "example.com/rack"}};
    const Json config{{"apiVersion", "muster.dev/v1alpha1"},
                      {"kind", "TopologyConfig"},
                      {"metadata", {{"name", name}}},
                      {"spec", {{"levels", Json::array({level})}}}};
    REQUIRE(kube::make_rest_client(server)->add(api::Kind::kTopologyConfig, "", config));
  }
};

using Events = std::vector<Event>;

TEST_CASE("of a kind that is not there the list is empty until it is") {
  LateKind world;
  SUBCASE("nobody has installed it") { world.answer = 404; }
  SUBCASE("nor does the server stream lists") {
    world.answer = 404;
    world.streams_lists = false;
  }
  world.start(true);
  world.turn();
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitDone});
  CHECK(world.asked == 1);

  // Looked for again now and then; nothing is told twice.
  REQUIRE(world.pump->wake());
  CHECK(*world.pump->wake() == world.clock.mono_now() + seconds(60));
  world.clock.advance(seconds(60));
  world.turn();
  CHECK(world.seen.size() == 2);
  CHECK(world.asked == 2);

  world.install();
  world.clock.advance(seconds(60));
  world.turn();
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitDone, Event::kInitStart,
                             Event::kInitApply, Event::kInitDone});
}

TEST_CASE(
    "of a kind that may not be read the list is empty at once, and it is asked for again soon") {
  LateKind world;
  world.answer = 403;
  world.start(true);
  world.turn();
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitDone});
  SUBCASE("an API server that had just started lets it be read a moment later") {
    world.install();
    world.clock.advance(seconds(1));
  }
  SUBCASE("ever more rarely, at least once a minute") {
    const int asked = world.asked;
    int times = 0;
    for (const int pause : {1, 2, 4, 8, 15, 30, 60, 60}) {
      CAPTURE(pause);
      REQUIRE(world.pump->wake());
      CHECK(*world.pump->wake() == world.clock.mono_now() + seconds(pause));
      world.clock.advance(seconds(pause));
      world.turn();
      ++times;
      CHECK(world.asked == asked + times);
      CHECK(world.seen.size() == 2);
    }
    world.install();
    world.clock.advance(seconds(60));
  }
  SUBCASE("soon again once something else was said") {
    world.clock.advance(seconds(1));
    world.turn();
    world.answer = 404;
    world.clock.advance(seconds(2));
    world.turn();
    CHECK(*world.pump->wake() == world.clock.mono_now() + seconds(60));
    world.answer = 403;
    world.clock.advance(seconds(60));
    world.turn();
    CHECK(*world.pump->wake() == world.clock.mono_now() + seconds(1));
    world.install();
    world.clock.advance(seconds(1));
  }
  world.turn();
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitDone, Event::kInitStart,
                             Event::kInitApply, Event::kInitDone});
}

TEST_CASE("an optional kind that goes between two pages is listed from the first again") {
  LateKind world;
  world.streams_lists = false;
  world.page_most = 1;
  world.install("a");
  world.install("b");
  world.has_next_pages = false;
  world.start(true);
  world.turn();
  CHECK(world.seen ==
        Events{Event::kInitStart, Event::kInitApply, Event::kInitStart, Event::kInitDone});
  world.seen.clear();
  world.has_next_pages = true;
  world.clock.advance(seconds(60));
  world.turn();
  CHECK(world.seen ==
        Events{Event::kInitStart, Event::kInitApply, Event::kInitApply, Event::kInitDone});
}

TEST_CASE(
    "of an optional kind that goes while it is watched nothing is left, and it may come again") {
  LateKind world;
  world.install();
  world.start(true);
  world.turn();
  REQUIRE(world.seen == Events{Event::kInitStart, Event::kInitApply, Event::kInitDone});
  world.seen.clear();
  SUBCASE("nobody has it installed any more") { world.answer = 404; }
  SUBCASE("the operator may not read it any more") { world.answer = 403; }
  world.server.cut_streams();
  const MonoTime began = world.clock.mono_now();
  while (world.seen.empty()) {
    world.turn();
    if (!world.seen.empty()) break;
    REQUIRE(world.pump->wake());
    REQUIRE(world.clock.mono_now() - began < seconds(60));
    world.clock.advance(*world.pump->wake() - world.clock.mono_now());
  }
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitDone});
  CHECK(world.clock.mono_now() - began >= seconds(15));
  world.seen.clear();
  world.answer = 0;
  world.clock.advance(seconds(60));
  world.turn();
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitApply, Event::kInitDone});
}

TEST_CASE("a kind that must be there is waited for") {
  LateKind world;
  world.start(false);
  world.turn();
  CHECK(world.seen.empty());
  CHECK(world.asked == 1);
  world.install();
  world.comes_after_its_back_off();
}

/// A stream on which a line comes only when it is put there.
struct QuietStream final : kube::HttpStream {
  std::optional<std::string>& line;
  explicit QuietStream(std::optional<std::string>& shared) : line(shared) {}
  Result<std::optional<std::string>> next_line(milliseconds) override {
    if (line) return std::exchange(line, std::nullopt);
    return Error(ErrorCode::kDeadlineExceeded, "no line");
  }
  void close() override {}
};

struct QuietServer final : kube::HttpTransport {
  ManualClock clock;
  std::optional<std::string> line;
  int watches = 0, lists = 0;

  Result<kube::HttpResponse> send(const kube::HttpRequest&) override {
    ++lists;
    return kube::HttpResponse{
        200, R"({"kind":"List","metadata":{"resourceVersion":"5"},"items":[]})", std::nullopt};
  }
  Result<Stream> open_stream(const kube::HttpRequest& request) override {
    const bool is_list = request.path.find("sendInitialEvents") != std::string::npos;
    if (is_list) return Stream{{422, "{}", std::nullopt}, nullptr};
    ++watches;
    return Stream{{200, "", std::nullopt}, std::make_unique<QuietStream>(line)};
  }
};

TEST_CASE("a watch that is silent for 90 seconds is opened anew, and any line is a sign of life") {
  QuietServer world;
  const auto client = kube::make_rest_client(world);
  kube::WatchPumpOptions options;
  options.client = client.get();
  options.clock = &world.clock;
  options.kind = api::Kind::kPod;
  options.watcher = kube::lean_watcher(options.kind);
  options.sink = [](const kube::WatchBatch&) {};
  kube::WatchPump pump(std::move(options));
  const auto watches_after = [&](seconds wait) {
    world.clock.advance(wait);
    while (pump.step(milliseconds(0)) == kube::WatchPump::Did::kWork) {
    }
    return world.watches;
  };
  CHECK(watches_after(seconds(0)) == 1);
  CHECK(watches_after(seconds(89)) == 1);
  world.line = R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"6"}}})";
  CHECK(watches_after(seconds(0)) == 1);
  CHECK(watches_after(seconds(89)) == 1);
  CHECK(watches_after(seconds(1)) == 1);
  // After its back-off.
  REQUIRE(pump.wake());
  CHECK(watches_after(seconds(30)) == 2);
  CHECK(watches_after(seconds(89)) == 2);
  // A second one in a row: what there is now is listed.
  CHECK(world.lists == 1);
  CHECK(watches_after(seconds(1)) == 2);
  CHECK(watches_after(seconds(30)) == 3);
  CHECK(world.lists == 2);
}

/// Pods of 3 MiB each, and on its watches a line that no bound lets through.
struct FatServer final : kube::HttpTransport {
  static constexpr int kPods = 5;
  ManualClock clock;
  std::vector<std::string> pages;
  int watches = 0;

  static std::string query(const std::string& path, const std::string& name) {
    const auto at = path.find(name + "=");
    if (at == std::string::npos) return "";
    const auto begin = at + name.size() + 1;
    return path.substr(begin, path.find('&', begin) - begin);
  }
  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    const std::string limit = query(request.path, "limit"), from = query(request.path, "continue");
    pages.push_back(from + "+" + limit);
    const int begin = from.empty() ? 0 : std::stoi(from);
    const int end = std::min(begin + std::stoi(limit), kPods);
    Json list{{"metadata", {{"resourceVersion", "9"}}}, {"items", Json::array()}};
    if (end < kPods) list["metadata"]["continue"] = std::to_string(end);
    for (int i = begin; i < end; ++i) {
      list["items"].push_back({{"metadata", {{"name", std::to_string(i)}}},
                               {"spec", {{"hostname", std::string(3 << 20, 'x')}}}});
    }
    return kube::HttpResponse{200, dump_json(list), std::nullopt};
  }
  struct LongLine final : kube::HttpStream {
    Result<std::optional<std::string>> next_line(milliseconds) override {
      return Error(ErrorCode::kTooLarge, "a line");
    }
    void close() override {}
  };
  Result<Stream> open_stream(const kube::HttpRequest&) override {
    ++watches;
    return Stream{{200, "", std::nullopt}, std::make_unique<LongLine>()};
  }
};

TEST_CASE("what is too large for a line or a page comes in pages that are small enough") {
  FatServer world;
  const auto client = kube::make_rest_client(world);
  std::size_t pods = 0, bytes = 0;
  kube::WatchPumpOptions options;
  options.client = client.get();
  options.clock = &world.clock;
  options.kind = api::Kind::kPod;
  options.watcher = kube::lean_watcher(options.kind);
  options.watcher.page_most = 4;
  options.sink = [&](const kube::WatchBatch& batch) {
    bytes = std::max(bytes, batch.bytes);
    for (const auto& event : batch.events) pods += event.type == Event::kInitApply ? 1 : 0;
  };
  kube::WatchPump pump(std::move(options));
  const auto turn = [&] {
    while (pump.step(milliseconds(0)) == kube::WatchPump::Did::kWork) {
    }
  };
  turn();  // the list that a watch begins with
  CHECK(world.watches == 1);
  REQUIRE(pump.wake());
  world.clock.advance(*pump.wake() - world.clock.mono_now());
  turn();
  CHECK(world.pages == std::vector<std::string>{"+4", "+2", "+1", "1+2", "1+1", "2+2", "2+1", "3+2",
                                                "3+1", "4+2"});
  CHECK(pods == FatServer::kPods);
  CHECK(bytes < (4U << 20));
  CHECK(world.watches == 2);
}

TEST_CASE("a list that a watch begins with is handed on as it comes, in few pieces") {
  LateKind world;
  world.install();
  world.asked = 0;
  std::size_t batches = 0;
  world.start(false, &batches);
  world.turn();
  CHECK(world.seen == Events{Event::kInitStart, Event::kInitApply, Event::kInitDone});
  CHECK(batches == 2);  // at its opening, and what was there
  CHECK(world.asked == 1);
}

TEST_CASE("a server that does not answer says nothing about an optional kind") {
  LateKind world;
  world.answer = 503;
  world.start(true);
  world.turn();
  CHECK(world.seen.empty());
  CHECK(world.asked == 1);
  world.install();
  world.comes_after_its_back_off();
}

}  // namespace
