// Client, watcher and store together against the embedded server, with faults between them.
#include "operator/kube/store.h"

#include <doctest/doctest.h>

#include <string>

#include "common/rng.h"
#include "operator/embedded/api_server.h"
#include "operator/kube/api_client.h"
#include "tests/test_main.h"

namespace muster::kube {
namespace {

struct Thing {
  api::ObjectMeta meta;
  bool operator==(const Thing&) const = default;
};

Result<Thing> parse_thing(const Json& json) {
  if (!json.is_object() || !json.contains("metadata") || !json["metadata"].contains("name")) {
    return Error(ErrorCode::kInvalid, "metadata.name is missing");
  }
  Thing thing;
  thing.meta.name = json["metadata"]["name"];
  thing.meta.namespace_name = json["metadata"]["namespace"];
  thing.meta.resource_version = json["metadata"]["resourceVersion"];
  return thing;
}

Json thing(const std::string& name, const std::string& version) {
  return {{"metadata", {{"name", name}, {"namespace", "ns"}, {"resourceVersion", version}}}};
}

using Type = WatchEvent::Type;
using Keys = std::vector<api::ObjectKey>;

/// The reader of one watch as the runtime has it, step by step, with faults.
class FaultyReader {
 public:
  FaultyReader(ApiClient& client, std::uint64_t seed)
      : client_(client), rng_(seed), watcher_(seed, options(seed)) {}

  /// One request, or one line of the open stream. `faults`: how many of 100 go wrong.
  void step(MonoTime& now, std::uint64_t faults) {
    if (stream_ != nullptr) {
      read_line(now, faults);
      if (!watcher_.streaming()) stream_.reset();
      return;
    }
    const auto request = watcher_.next(now);
    const bool fails = rng_.below(100) < faults;
    if (const auto* wait = std::get_if<WaitRequest>(&request)) {
      now = wait->until;
    } else if (const auto* list = std::get_if<ListRequest>(&request)) {
      ListOptions options;
      options.limit = 3;
      options.continue_token = list->continue_token;
      take(watcher_.on_list(
          now, fails ? Result<ListPage>(any_error()) : client_.list(api::Kind::kPod, options)));
    } else {
      open(now, std::get<WatchRequest>(request), fails);
    }
  }

  /// Reads without faults until the open stream has no more to say; false when that takes too long.
  bool settle(MonoTime& now) {
    quiet_ = false;
    for (int i = 0; i < 200 && !quiet_; ++i) step(now, 0);
    return quiet_;
  }
  const Store<Thing>& store() const { return store_; }
  const Watcher& watcher() const { return watcher_; }

 private:
  Error any_error() {
    static constexpr ErrorCode kCodes[] = {ErrorCode::kUnavailable, ErrorCode::kGone,
                                           ErrorCode::kTooManyRequests,
                                           ErrorCode::kDeadlineExceeded, ErrorCode::kForbidden};
    return {kCodes[rng_.below(std::size(kCodes))], "fault"};
  }

  static WatcherOptions options(std::uint64_t seed) {
    WatcherOptions options;
    options.streams_lists = seed % 2 == 0;
    return options;
  }

  void open(MonoTime now, const WatchRequest& wanted, bool fails) {
    WatchOptions options;
    options.resource_version = wanted.resource_version;
    options.begins_with_list = wanted.begins_with_list;
    auto opened = fails ? Result<std::unique_ptr<HttpStream>>(any_error())
                        : client_.watch(api::Kind::kPod, options);
    take(watcher_.on_watch_opened(now, opened ? Status() : Status(opened.error())));
    if (opened) stream_ = std::move(*opened);
    quiet_ = false;
  }

  void read_line(MonoTime now, std::uint64_t faults) {
    auto line = stream_->next_line(milliseconds(0));
    if (!line && line.error().code() == ErrorCode::kDeadlineExceeded) {
      quiet_ = true;
      if (rng_.below(100) < faults) {
        take(watcher_.on_end(now, rng_.below(2) == 0 ? Status() : Status(any_error())));
      }
      return;
    }
    quiet_ = false;
    if (!line || !*line) {
      take(watcher_.on_end(now, line ? Status() : Status(line.error())));
      return;
    }
    std::string text = **line;
    const auto fault = rng_.below(100);
    if (fault < faults) {
      mangle(now, text);
      return;
    }
    if (fault < 2 * faults) take(watcher_.on_line(now, text));  // every line may come twice
    take(watcher_.on_line(now, text));
    if (rng_.below(100) < 20) last_good_ = text;
  }

  void mangle(MonoTime now, const std::string& text) {
    switch (rng_.below(4)) {
      case 0:  // cut inside the line: the stream breaks and hands out nothing
        take(watcher_.on_end(now, Error(ErrorCode::kUnavailable, "cut")));
        break;
      case 1:  // a transport that hands out half a line all the same
        take(watcher_.on_line(now, text.substr(0, rng_.below(text.size()))));
        break;
      case 2:
        take(watcher_.on_line(now, "garbage"));
        break;
      default:  // an old line again, out of order
        if (!last_good_.empty()) take(watcher_.on_line(now, last_good_));
        take(watcher_.on_line(now, text));
    }
    // What became of `text` is unknown: a line lost in an open stream would be the server's lie, so
    // the stream ends here.
    take(watcher_.on_end(now, Error(ErrorCode::kUnavailable, "cut")));
  }

  void take(const std::vector<WatchEvent>& events) {
    for (const auto& event : events) (void)store_.apply(event);
  }

  ApiClient& client_;
  Rng rng_;
  Watcher watcher_;
  Store<Thing> store_{parse_thing};
  std::unique_ptr<HttpStream> stream_;
  std::string last_good_;
  bool quiet_ = false;
};

Json pod(const std::string& name) {
  return {{"metadata", {{"name", name}}},
          {"spec", {{"containers", {{{"name", "worker"}, {"image", "x"}}}}}}};
}

/// One random write.
void disturb(ApiClient& client, embedded::ApiServer& server, Rng& rng) {
  const std::string name = "p" + std::to_string(rng.below(12));
  switch (rng.below(8)) {
    case 0:
    case 1:
    case 2:
      (void)client.create(api::Kind::kPod, "ns", pod(name));
      break;
    case 3:
    case 4:
      (void)client.merge_patch(
          api::Kind::kPod, {"ns", name}, "",
          {{"metadata", {{"labels", {{"x", std::to_string(rng.below(1000))}}}}}});
      break;
    case 5:
    case 6:
      (void)client.remove(api::Kind::kPod, {"ns", name}, {});
      break;
    default:
      if (rng.below(6) == 0) server.compact();
      if (rng.below(6) == 0) server.cut_streams();
  }
}

std::map<api::ObjectKey, std::string> versions_on(ApiClient& client) {
  std::map<api::ObjectKey, std::string> versions;
  ListOptions options;
  options.limit = 0;
  const auto page = client.list(api::Kind::kPod, options);
  REQUIRE(page);
  for (const Json& item : page->items) {
    const auto parsed = parse_thing(item);
    versions[parsed->meta.key()] = parsed->meta.resource_version;
  }
  return versions;
}

std::map<api::ObjectKey, std::string> versions_in(const Store<Thing>& store) {
  std::map<api::ObjectKey, std::string> versions;
  for (const auto& [key, value] : store.all()) versions[key] = value.meta.resource_version;
  return versions;
}

}  // namespace

TEST_CASE(
    "an object at which a library throws is one that cannot be read, and no other's trouble") {
  Store<Thing> store([](const Json& json) {
    // Of no number: what nlohmann/json throws.
    if (json.contains("poison")) (void)json["poison"].get<int>();
    return parse_thing(json);
  });
  Json poison = thing("a", "1");
  poison["poison"] = "x";
  CHECK(store.apply({Type::kApply, poison}).empty());
  CHECK(store.apply({Type::kApply, thing("b", "2")}) == Keys{{"ns", "b"}});
  const auto unreadable = store.take_news_of_unreadable();
  REQUIRE(unreadable.size() == 1);
  CHECK(unreadable[0].first == api::ObjectKey{"ns", "a"});
  CHECK(unreadable[0].second.starts_with("an exception: "));
}

TEST_CASE("a store tells which objects appeared, changed or vanished") {
  Store<Thing> store(parse_thing);
  CHECK_FALSE(store.synced());
  (void)store.apply({Type::kInitStart, nullptr});
  CHECK(store.apply({Type::kInitApply, thing("a", "1")}).empty());
  (void)store.apply({Type::kInitApply, thing("b", "2")});
  CHECK(store.all().empty());
  CHECK(store.apply({Type::kInitDone, nullptr}) == Keys{{"ns", "a"}, {"ns", "b"}});
  CHECK(store.synced());
  CHECK(store.apply({Type::kApply, thing("c", "3")}) == Keys{{"ns", "c"}});
  CHECK(store.apply({Type::kDelete, thing("a", "4")}) == Keys{{"ns", "a"}});
  CHECK(store.find({"ns", "a"}) == nullptr);
  CHECK(store.find({"ns", "c"})->meta.resource_version == "3");
}

TEST_CASE("what has become unreadable is forgotten when it is deleted") {
  Store<Thing> store([](const Json& json) -> Result<Thing> {
    if (json["metadata"].contains("annotations")) return Error(ErrorCode::kInvalid, "too many");
    return parse_thing(json);
  });
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "1")});
  (void)store.apply({Type::kInitDone, nullptr});
  Json unreadable = thing("a", "2");
  unreadable["metadata"]["annotations"] = Json::object();
  CHECK(store.apply({Type::kApply, unreadable}).empty());
  CHECK(store.find({"ns", "a"})->meta.resource_version == "1");
  CHECK(store.apply({Type::kDelete, unreadable}) == Keys{{"ns", "a"}});
  CHECK(store.find({"ns", "a"}) == nullptr);
  CHECK(store.apply({Type::kDelete, Json{{"metadata", Json::object()}}}).empty());
  CHECK(store.skipped() == 2);
}

TEST_CASE("what has become unreadable stays as outdated, also in a list, and is told once") {
  const auto outdate = [](Thing& thing) {
    return std::exchange(thing.meta.labels["outdated"], "yes") != "yes";
  };
  Store<Thing> store(
      [](const Json& json) -> Result<Thing> {
        if (json["metadata"].contains("annotations")) return Error(ErrorCode::kInvalid, "too many");
        return parse_thing(json);
      },
      outdate);
  const auto list = [&](const Json& object) {
    (void)store.apply({Type::kInitStart, nullptr});
    (void)store.apply({Type::kInitApply, object});
    return store.apply({Type::kInitDone, nullptr});
  };
  const auto is_outdated = [&] {
    return store.find({"ns", "a"})->meta.labels.contains("outdated");
  };
  using News = std::vector<std::pair<api::ObjectKey, std::string>>;
  Json unreadable = thing("a", "2");
  unreadable["metadata"]["annotations"] = Json::object();
  CHECK(list(unreadable).empty());  // nothing is known of it
  CHECK(store.find({"ns", "a"}) == nullptr);
  CHECK(store.take_news_of_unreadable() == News{{{"ns", "a"}, "too many"}});
  CHECK(list(thing("a", "3")) == Keys{{"ns", "a"}});
  CHECK(store.apply({Type::kApply, unreadable}) == Keys{{"ns", "a"}});
  CHECK(is_outdated());
  CHECK(store.apply({Type::kApply, unreadable}).empty());
  CHECK(store.take_news_of_unreadable() == News{{{"ns", "a"}, "too many"}});
  CHECK(store.take_news_of_unreadable().empty());
  CHECK(list(unreadable).empty());
  CHECK(is_outdated());
  CHECK(store.take_news_of_unreadable().empty());
  CHECK(store.apply({Type::kApply, thing("a", "4")}) == Keys{{"ns", "a"}});
  CHECK_FALSE(is_outdated());
  // A list that it is not in says that it is gone.
  (void)store.apply({Type::kApply, unreadable});
  CHECK(list(thing("b", "5")) == Keys{{"ns", "a"}, {"ns", "b"}});
  CHECK(store.find({"ns", "a"}) == nullptr);
}

TEST_CASE("what is unreadable is told of a few, whoever makes how many, and forgotten with them") {
  Store<Thing> store(
      [](const Json&) -> Result<Thing> { return Error(ErrorCode::kInvalid, "too many"); });
  constexpr std::size_t kMost = 1024;
  for (int i = 0; i < 2 * static_cast<int>(kMost); ++i) {
    (void)store.apply({Type::kApply, thing("a", "1")});
    (void)store.apply({Type::kDelete, thing("a", "1")});
  }
  CHECK(store.take_news_of_unreadable().size() == kMost);
  for (int i = 0; i < static_cast<int>(kMost); ++i) {
    (void)store.apply({Type::kApply, thing("b" + std::to_string(i), "1")});
  }
  CHECK(store.take_news_of_unreadable().size() == kMost);
  // They went while nobody looked.
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("b7", "1")});
  (void)store.apply({Type::kInitDone, nullptr});
  (void)store.apply({Type::kApply, thing("b7", "2")});
  (void)store.apply({Type::kApply, thing("c", "2")});
  using News = std::vector<std::pair<api::ObjectKey, std::string>>;
  CHECK(store.take_news_of_unreadable() == News{{{"ns", "c"}, "too many"}});
}

TEST_CASE("a deletion nobody saw shows when the new list is whole, and not before") {
  Store<Thing> store(parse_thing);
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "1")});
  (void)store.apply({Type::kInitApply, thing("b", "2")});
  (void)store.apply({Type::kInitApply, thing("c", "3")});
  (void)store.apply({Type::kInitDone, nullptr});
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("b", "2")});
  (void)store.apply({Type::kInitApply, thing("d", "7")});
  CHECK(store.all().size() == 3);
  // A list that breaks off and starts again forgets what it had.
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("b", "2")});
  (void)store.apply({Type::kInitApply, thing("c", "9")});
  CHECK(store.apply({Type::kInitDone, nullptr}) == Keys{{"ns", "a"}, {"ns", "c"}});
  CHECK(store.all().size() == 2);
}

TEST_CASE("what vanishes while a list comes is not in it, also where it was listed already") {
  Store<Thing> store(parse_thing);
  (void)store.apply({Type::kInitStart, nullptr});
  for (const char* name : {"a", "b", "c"}) {
    (void)store.apply({Type::kInitApply, thing(name, "1")});
  }
  (void)store.apply({Type::kInitDone, nullptr});
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "1")});
  (void)store.apply({Type::kInitApply, thing("b", "5")});
  (void)store.apply({Type::kInitApply, thing("c", "1")});
  CHECK(store.apply({Type::kDelete, thing("a", "6")}) == Keys{{"ns", "a"}});
  CHECK(store.apply({Type::kDelete, thing("b", "7")}) == Keys{{"ns", "b"}});
  (void)store.apply({Type::kInitApply, thing("b", "8")});  // and comes again
  CHECK(store.apply({Type::kInitDone, nullptr}) == Keys{{"ns", "b"}});
  CHECK(store.find({"ns", "a"}) == nullptr);
  CHECK(store.find({"ns", "b"})->meta.resource_version == "8");
  CHECK(store.find({"ns", "c"}) != nullptr);
}

TEST_CASE("of an object that a list brings twice the last is kept") {
  Store<Thing> store(parse_thing);
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "1")});
  (void)store.apply({Type::kInitDone, nullptr});
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "1")});
  (void)store.apply({Type::kInitApply, thing("a", "3")});
  CHECK(store.apply({Type::kInitDone, nullptr}) == Keys{{"ns", "a"}});
  CHECK(store.find({"ns", "a"})->meta.resource_version == "3");
}

TEST_CASE("an object stays where it is, however often it changes or is listed again") {
  Store<Thing> store(parse_thing);
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "1")});
  (void)store.apply({Type::kInitApply, thing("b", "2")});
  (void)store.apply({Type::kInitDone, nullptr});
  const Thing *a = store.find({"ns", "a"}), *b = store.find({"ns", "b"});
  (void)store.apply({Type::kApply, thing("a", "3")});
  (void)store.apply({Type::kInitStart, nullptr});
  (void)store.apply({Type::kInitApply, thing("a", "4")});
  (void)store.apply({Type::kInitApply, thing("b", "2")});
  (void)store.apply({Type::kInitDone, nullptr});
  CHECK(store.find({"ns", "a"}) == a);
  CHECK(store.find({"ns", "b"}) == b);
  CHECK(a->meta.resource_version == "4");
}

TEST_CASE("an object that cannot be read is skipped and counted") {
  Store<Thing> store(parse_thing);
  CHECK(store.apply({Type::kApply, {{"metadata", Json::object()}}}).empty());
  CHECK(store.skipped() == 1);
}

TEST_CASE(
    "whatever goes wrong, the store ends equal to the server, and never shows less than a "
    "whole list") {
  std::int64_t relists = 0, bad_lines = 0;
  for (std::uint64_t round = 0; round < 40; ++round) {
    const std::uint64_t seed = muster::test::seed() * 1000 + round;
    CAPTURE(seed);
    const ManualClock clock;
    embedded::ApiServer server({.clock = &clock, .seed = seed, .history = 20});
    const auto client = make_rest_client(server);
    Rng rng(seed);
    FaultyReader reader(*client, seed);
    MonoTime now{seconds(1)};
    for (int i = 0; i < 600; ++i) {
      if (rng.below(3) == 0) disturb(*client, server, rng);
      reader.step(now, 12);
    }
    // The world falls quiet; the reader catches up within a bound.
    REQUIRE(reader.settle(now));
    CHECK(reader.store().synced());
    CHECK(versions_in(reader.store()) == versions_on(*client));
    relists += reader.watcher().relists();
    bad_lines += reader.watcher().bad_lines();
  }
  // The faults really happened.
  CHECK(relists > 40);
  CHECK(bad_lines > 40);
}

}  // namespace muster::kube
