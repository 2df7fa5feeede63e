#include "operator/kube/watcher.h"

#include <doctest/doctest.h>

#include "operator/api/unread.h"
#include "tests/test_main.h"

namespace muster::kube {
namespace {

using Type = WatchEvent::Type;

Json object(const std::string& name, const std::string& version) {
  return {{"apiVersion", "v1"},
          {"kind", "Pod"},
          {"metadata", {{"name", name}, {"namespace", "ns"}, {"resourceVersion", version}}}};
}

std::string line(const std::string& type, const Json& body) {
  return dump_json({{"type", type}, {"object", body}});
}

std::string gone_line() {
  return line("ERROR", {{"kind", "Status"}, {"code", 410}, {"reason", "Expired"}});
}

ListPage page(std::vector<Json> items, const std::string& version, const std::string& token = "") {
  return {std::move(items), version, token};
}

std::vector<Type> types(const std::vector<WatchEvent>& events) {
  std::vector<Type> out;
  for (const auto& event : events) out.push_back(event.type);
  return out;
}

template <typename T>
bool asks(const Watcher& watcher, MonoTime now) {
  return std::holds_alternative<T>(watcher.next(now));
}
std::string watched_version(const Watcher& watcher, MonoTime now) {
  return std::get<WatchRequest>(watcher.next(now)).resource_version;
}
milliseconds wait_of(const Watcher& watcher, MonoTime now) {
  const auto request = watcher.next(now);
  const auto* wait = std::get_if<WaitRequest>(&request);
  return wait == nullptr ? milliseconds(0)
                         : std::chrono::duration_cast<milliseconds>(wait->until - now);
}

const MonoTime kStart{seconds(100)};
const Error kCut(ErrorCode::kUnavailable, "cut");
const Error kLarge(ErrorCode::kTooLarge, "a line, or a page");
const Error kGone(ErrorCode::kGone, "too old resource version");

/// A watcher that has listed one object at version 10 and has an open stream.
Watcher streaming_watcher() {
  Watcher watcher(muster::test::seed());
  (void)watcher.on_list(kStart, page({object("a", "5")}, "10"));
  (void)watcher.on_watch_opened(kStart, {});
  REQUIRE(watcher.streaming());
  return watcher;
}

}  // namespace

TEST_CASE("a watcher lists all pages, then watches from the list's version") {
  Watcher watcher(muster::test::seed());
  CHECK(std::get<ListRequest>(watcher.next(kStart)).continue_token.empty());
  CHECK(types(watcher.on_list(kStart, page({object("a", "5")}, "10", "more"))) ==
        std::vector{Type::kInitStart, Type::kInitApply});
  CHECK_FALSE(watcher.synced());
  CHECK(std::get<ListRequest>(watcher.next(kStart)).continue_token == "more");
  CHECK(types(watcher.on_list(kStart, page({object("b", "6")}, "10"))) ==
        std::vector{Type::kInitApply, Type::kInitDone});
  CHECK(watcher.synced());
  CHECK(watched_version(watcher, kStart) == "10");
  CHECK(watcher.relists() == 0);
}

namespace {

Watcher list_streaming_watcher() {
  WatcherOptions options;
  options.streams_lists = true;
  return Watcher(muster::test::seed(), options);
}

std::string end_of_list(const std::string& version) {
  return line(
      "BOOKMARK",
      {{"metadata",
        {{"resourceVersion", version}, {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}});
}

bool asks_for_streamed_list(const Watcher& watcher, MonoTime now) {
  const auto request = watcher.next(now);
  const auto* watch = std::get_if<WatchRequest>(&request);
  return watch != nullptr && watch->begins_with_list && watch->resource_version.empty();
}

}  // namespace

TEST_CASE("a list may come as the beginning of a watch, which goes on behind it") {
  auto watcher = list_streaming_watcher();
  CHECK(asks_for_streamed_list(watcher, kStart));
  CHECK(types(watcher.on_watch_opened(kStart, {})) == std::vector{Type::kInitStart});
  // In no order of their versions.
  CHECK(types(watcher.on_line(kStart, line("ADDED", object("a", "9")))) ==
        std::vector{Type::kInitApply});
  CHECK(types(watcher.on_line(kStart, line("ADDED", object("b", "5")))) ==
        std::vector{Type::kInitApply});
  CHECK(watcher.on_line(kStart, line("BOOKMARK", object("", "9"))).empty());
  CHECK_FALSE(watcher.synced());
  CHECK(types(watcher.on_line(kStart, end_of_list("12"))) == std::vector{Type::kInitDone});
  CHECK(watcher.synced());
  CHECK(watcher.streaming());
  CHECK(types(watcher.on_line(kStart, line("MODIFIED", object("a", "13")))) ==
        std::vector{Type::kApply});
  (void)watcher.on_end(kStart + seconds(300), {});
  CHECK(watched_version(watcher, kStart + seconds(300)) == "13");
  CHECK(watcher.relists() == 0);
}

TEST_CASE("what changes while a streamed list comes is part of it, and never older than before") {
  auto watcher = list_streaming_watcher();
  (void)watcher.on_watch_opened(kStart, {});
  (void)watcher.on_line(kStart, line("ADDED", object("a", "9")));
  CHECK(types(watcher.on_line(kStart, line("MODIFIED", object("a", "13")))) ==
        std::vector{Type::kInitApply});
  CHECK(types(watcher.on_line(kStart, line("DELETED", object("b", "14")))) ==
        std::vector{Type::kDelete});
  SUBCASE("the end of the list is newer") {
    CHECK(types(watcher.on_line(kStart, end_of_list("14"))) == std::vector{Type::kInitDone});
    CHECK(watched_version(watcher, kStart) == "14");
  }
  SUBCASE("the end of the list is older") {
    CHECK(watcher.on_line(kStart, end_of_list("12")).empty());
    CHECK_FALSE(watcher.streaming());
  }
  SUBCASE("an object of the list comes once more") {
    CHECK(watcher.on_line(kStart, line("ADDED", object("a", "9"))).empty());
    CHECK_FALSE(watcher.streaming());
  }
}

TEST_CASE("a server that streams no lists is asked for pages, from then on") {
  auto watcher = list_streaming_watcher();
  CHECK(watcher.on_watch_opened(kStart, Error(ErrorCode::kInvalid, "forbidden")).empty());
  CHECK(asks<ListRequest>(watcher, kStart));
  (void)watcher.on_list(kStart, page({object("a", "5")}, "10"));
  (void)watcher.on_watch_opened(kStart, {});
  (void)watcher.on_line(kStart, gone_line());
  CHECK(asks<ListRequest>(watcher, kStart + seconds(60)));
}

TEST_CASE("a streamed list that breaks off is begun anew in pages, the next one is streamed") {
  auto watcher = list_streaming_watcher();
  (void)watcher.on_watch_opened(kStart, {});
  (void)watcher.on_line(kStart, line("ADDED", object("a", "9")));
  SUBCASE("by the network") { CHECK(watcher.on_end(kStart, kCut).empty()); }
  SUBCASE("by its end") { CHECK(watcher.on_end(kStart, {}).empty()); }
  SUBCASE("by an error") { CHECK(watcher.on_line(kStart, gone_line()).empty()); }
  SUBCASE("by garbage") { CHECK(watcher.on_line(kStart, "garbage").empty()); }
  CHECK_FALSE(watcher.streaming());
  CHECK_FALSE(watcher.synced());
  const MonoTime later = kStart + seconds(60);
  CHECK(asks<ListRequest>(watcher, later));
  CHECK(types(watcher.on_list(later, page({object("a", "9")}, "10"))) ==
        std::vector{Type::kInitStart, Type::kInitApply, Type::kInitDone});
  (void)watcher.on_watch_opened(later, {});
  (void)watcher.on_line(later, gone_line());
  CHECK(asks_for_streamed_list(watcher, later + seconds(60)));
}

TEST_CASE("a list whose end does not come is taken in pages after a minute, as every later one") {
  auto watcher = list_streaming_watcher();
  (void)watcher.on_watch_opened(kStart, {});
  (void)watcher.on_line(kStart, line("ADDED", object("a", "9")));
  const MonoTime late = kStart + seconds(60);
  watcher.on_quiet(late - milliseconds(1));
  (void)watcher.on_line(late - milliseconds(1), line("BOOKMARK", object("", "9")));
  CHECK(watcher.streaming());
  SUBCASE("nothing comes") { watcher.on_quiet(late); }
  SUBCASE("changes come") { (void)watcher.on_line(late, line("MODIFIED", object("a", "13"))); }
  SUBCASE("bookmarks come") { (void)watcher.on_line(late, line("BOOKMARK", object("", "13"))); }
  CHECK_FALSE(watcher.streaming());
  CHECK_FALSE(watcher.synced());
  const MonoTime later = late + seconds(60);
  CHECK(asks<ListRequest>(watcher, later));
  (void)watcher.on_list(later, page({object("a", "9")}, "10"));
  CHECK(watcher.synced());
  (void)watcher.on_watch_opened(later, {});
  (void)watcher.on_line(later, gone_line());
  CHECK(asks<ListRequest>(watcher, later + seconds(60)));
}

TEST_CASE("a list that comes steadily is waited for, but not for ever") {
  auto watcher = list_streaming_watcher();
  (void)watcher.on_watch_opened(kStart, {});
  MonoTime now = kStart;
  const auto add = [&] {
    now += seconds(50);
    return watcher.on_line(now, line("ADDED", object("a", "9")));
  };
  for (int i = 0; i < 11; ++i) REQUIRE(types(add()) == std::vector{Type::kInitApply});
  SUBCASE("to its end") {
    CHECK(types(watcher.on_line(now, end_of_list("12"))) == std::vector{Type::kInitDone});
    (void)watcher.on_line(now, gone_line());
    CHECK(asks_for_streamed_list(watcher, now + seconds(60)));
  }
  SUBCASE("without an end") {
    (void)add();
    CHECK_FALSE(watcher.streaming());
    CHECK(asks<ListRequest>(watcher, now + seconds(60)));
  }
}

TEST_CASE("an end that comes late ends the list all the same") {
  auto watcher = list_streaming_watcher();
  (void)watcher.on_watch_opened(kStart, {});
  CHECK(types(watcher.on_line(kStart + seconds(70), end_of_list("12"))) ==
        std::vector{Type::kInitDone});
  CHECK(watcher.streaming());
  watcher.on_quiet(kStart + seconds(80));
  CHECK(watcher.streaming());
}

TEST_CASE("a streamed list that cannot be opened now is asked for again, after a wait") {
  auto watcher = list_streaming_watcher();
  (void)watcher.on_watch_opened(kStart, kCut);
  CHECK(wait_of(watcher, kStart) >= milliseconds(800));
  CHECK(asks_for_streamed_list(watcher, kStart + seconds(60)));
}

TEST_CASE("a server that says when to come again is not asked before") {
  // Longer than any wait of a watcher's own.
  REQUIRE(WatcherOptions().backoff_most < seconds(60));
  const Error busy = Error(ErrorCode::kTooManyRequests, "x").with_retry_after(60);
  Watcher listing(muster::test::seed());
  (void)listing.on_list(kStart, busy);
  CHECK(wait_of(listing, kStart) >= seconds(60));
  Watcher watching(muster::test::seed());
  (void)watching.on_list(kStart, page({object("a", "5")}, "10"));
  (void)watching.on_watch_opened(kStart, busy);
  CHECK(wait_of(watching, kStart) >= seconds(60));
  auto streaming = list_streaming_watcher();
  (void)streaming.on_watch_opened(kStart, busy);
  CHECK(wait_of(streaming, kStart) >= seconds(60));
}

TEST_CASE("events reach the store and move the version") {
  auto watcher = streaming_watcher();
  const auto added = watcher.on_line(kStart, line("ADDED", object("b", "11")));
  const auto modified = watcher.on_line(kStart, line("MODIFIED", object("b", "12")) + "\r");
  const auto deleted = watcher.on_line(kStart, line("DELETED", object("b", "13")));
  CHECK(types(added) == std::vector{Type::kApply});
  CHECK(types(modified) == std::vector{Type::kApply});
  CHECK(types(deleted) == std::vector{Type::kDelete});
  CHECK(deleted[0].object == object("b", "13"));
  CHECK(watcher.streaming());
  CHECK(watched_version(watcher, kStart) == "13");
}

TEST_CASE("a bookmark moves the version and nothing else") {
  auto watcher = streaming_watcher();
  CHECK(watcher.on_line(kStart, line("BOOKMARK", object("", "20"))).empty());
  CHECK(watched_version(watcher, kStart) == "20");
  CHECK(watcher.on_line(kStart, line("BOOKMARK", object("", "20"))).empty());
  CHECK(watcher.on_line(kStart, line("BOOKMARK", {{"metadata", Json::object()}})).empty());
  CHECK(watcher.streaming());
  CHECK(watched_version(watcher, kStart) == "20");
}

TEST_CASE("a watch that ends in its time resumes at once where it was") {
  auto watcher = streaming_watcher();
  (void)watcher.on_line(kStart, line("ADDED", object("b", "11")));
  const MonoTime later = kStart + seconds(300);
  (void)watcher.on_end(later, {});
  CHECK_FALSE(watcher.streaming());
  CHECK(watched_version(watcher, later) == "11");
  CHECK(watcher.relists() == 0);

  (void)watcher.on_watch_opened(later, {});
  (void)watcher.on_end(later + seconds(300), {});  // a quiet one
  CHECK(watched_version(watcher, later + seconds(300)) == "11");
}

TEST_CASE("a watch that ends at once without a line is not asked for in a tight loop") {
  auto watcher = streaming_watcher();
  (void)watcher.on_end(kStart, {});
  CHECK(wait_of(watcher, kStart) >= milliseconds(800));
}

TEST_CASE("a watch that breaks or falls silent waits, then resumes where it was") {
  for (const auto code : {ErrorCode::kUnavailable, ErrorCode::kDeadlineExceeded}) {
    auto watcher = streaming_watcher();
    (void)watcher.on_line(kStart, line("ADDED", object("b", "11")));
    (void)watcher.on_end(kStart, Error(code, "x"));
    const auto wait = wait_of(watcher, kStart);
    CHECK(wait >= milliseconds(800));
    CHECK(wait <= milliseconds(1600));
    CHECK(watched_version(watcher, kStart + wait + milliseconds(1)) == "11");
  }
}

namespace {

/// The open watch says nothing until it is taken for dead; returns when it may be opened anew.
MonoTime fall_silent(Watcher& watcher, MonoTime since) {
  watcher.on_quiet(since + seconds(90) - milliseconds(1));
  CHECK(watcher.streaming());
  watcher.on_quiet(since + seconds(90));
  CHECK_FALSE(watcher.streaming());
  return since + seconds(120);
}

}  // namespace

TEST_CASE("two silent watches in a row lead to a new list: the server's history was set back") {
  auto watcher = streaming_watcher();
  MonoTime now = fall_silent(watcher, kStart);
  CHECK(watched_version(watcher, now) == "10");
  (void)watcher.on_watch_opened(now, {});
  now = fall_silent(watcher, now);
  CHECK(asks<ListRequest>(watcher, now));
  CHECK(types(watcher.on_list(now, page({object("a", "3")}, "4"))) ==
        std::vector{Type::kInitStart, Type::kInitApply, Type::kInitDone});
  CHECK(watched_version(watcher, now) == "4");
}

TEST_CASE("a watch that has told something was not silent, when it falls silent later") {
  auto watcher = streaming_watcher();
  MonoTime now = kStart;
  for (int i = 0; i < 3; ++i) {
    now = fall_silent(watcher, now);
    CHECK(watched_version(watcher, now) == (i == 0 ? "10" : "11"));
    (void)watcher.on_watch_opened(now, {});
    (void)watcher.on_line(now, line("BOOKMARK", object("", "11")));
  }
  CHECK(watcher.relists() == 0);
}

TEST_CASE("a line that is too large leads to a list in pages: the next watch would begin with it") {
  WatcherOptions options;
  options.streams_lists = true;
  Watcher watcher(muster::test::seed(), options);
  MonoTime now = kStart;
  (void)watcher.on_watch_opened(now, {});
  (void)watcher.on_line(
      now, line("BOOKMARK", {{"metadata",
                              {{"resourceVersion", "10"},
                               {"annotations", {{"k8s.io/initial-events-end", "true"}}}}}}));
  REQUIRE(watched_version(watcher, now) == "10");
  (void)watcher.on_end(now, kLarge);
  CHECK(wait_of(watcher, now) >= milliseconds(800));
  now += seconds(2);
  CHECK(asks<ListRequest>(watcher, now));
  (void)watcher.on_list(now, page({object("a", "11")}, "12"));
  CHECK(watched_version(watcher, now) == "12");
  CHECK(watcher.relists() == 1);
}

TEST_CASE("410 in every form leads to a new list, after a wait, and the old content stays") {
  auto watcher = streaming_watcher();
  SUBCASE("when the watch is opened") {
    (void)watcher.on_end(kStart, {});
    CHECK(watcher.on_watch_opened(kStart, kGone).empty());
  }
  SUBCASE("as an event") { CHECK(watcher.on_line(kStart, gone_line()).empty()); }
  SUBCASE("as an event without a code") {
    CHECK(watcher.on_line(kStart, line("ERROR", {{"reason", "Expired"}})).empty());
  }
  SUBCASE("at the end of the stream") { CHECK(watcher.on_end(kStart, kGone).empty()); }
  CHECK_FALSE(watcher.streaming());
  CHECK(watcher.synced());
  const auto wait = wait_of(watcher, kStart);
  CHECK(wait >= milliseconds(800));
  const MonoTime later = kStart + wait + milliseconds(1);
  CHECK(std::get<ListRequest>(watcher.next(later)).continue_token.empty());
  CHECK(types(watcher.on_list(later, page({}, "50"))) ==
        std::vector{Type::kInitStart, Type::kInitDone});
  CHECK(watched_version(watcher, later) == "50");
  CHECK(watcher.relists() == 1);
}

TEST_CASE("a continue token that is expired, or that nobody knows, starts the list again") {
  for (const auto code : {ErrorCode::kGone, ErrorCode::kInvalid}) {
    Watcher watcher(muster::test::seed());
    (void)watcher.on_list(kStart, page({object("a", "5")}, "10", "more"));
    CHECK(watcher.on_list(kStart, Error(code, "the continue token")).empty());
    const MonoTime later = kStart + seconds(2);
    CHECK(std::get<ListRequest>(watcher.next(later)).continue_token.empty());
    CHECK(types(watcher.on_list(later, page({object("b", "12")}, "20"))) ==
          std::vector{Type::kInitStart, Type::kInitApply, Type::kInitDone});
  }
}

namespace {

int asked_at_once(const Watcher& watcher, MonoTime now) {
  return std::get<ListRequest>(watcher.next(now)).limit;
}

}  // namespace

TEST_CASE("a page that is too large is asked for at once in smaller ones, down to one object") {
  WatcherOptions options;
  options.page_most = 5;
  Watcher watcher(muster::test::seed(), options);
  MonoTime now = kStart;
  CHECK(asked_at_once(watcher, now) == 5);
  (void)watcher.on_list(now, kLarge);
  CHECK(asked_at_once(watcher, now) == 2);
  (void)watcher.on_list(now, kLarge);
  CHECK(asked_at_once(watcher, now) == 1);
  (void)watcher.on_list(now, kLarge);  // smaller there is none
  CHECK(asks<WaitRequest>(watcher, now));
  now += seconds(2);
  CHECK(asked_at_once(watcher, now) == 1);
  for (const int next : {2, 4, 5}) {
    (void)watcher.on_list(now, page({object("a", "5")}, "10", "more" + std::to_string(next)));
    CHECK(asked_at_once(watcher, now) == next);
  }
}

TEST_CASE("a page that does not come in time is asked for in smaller ones, after a wait") {
  Watcher watcher(muster::test::seed());
  MonoTime now = kStart;
  for (const int next : {50, 25, 12, 6, 3, 1, 1}) {
    (void)watcher.on_list(now, Error(ErrorCode::kDeadlineExceeded, "x"));
    CHECK(asks<WaitRequest>(watcher, now));
    now += seconds(60);
    CHECK(asked_at_once(watcher, now) == next);
  }
}

TEST_CASE("a page that fails is asked for again, and the list goes on") {
  Watcher watcher(muster::test::seed());
  (void)watcher.on_list(kStart, page({object("a", "5")}, "10", "more"));
  (void)watcher.on_list(kStart, kCut);
  CHECK(asks<WaitRequest>(watcher, kStart));
  const MonoTime later = kStart + seconds(2);
  CHECK(std::get<ListRequest>(watcher.next(later)).continue_token == "more");
  CHECK(types(watcher.on_list(later, page({object("b", "6")}, "10"))) ==
        std::vector{Type::kInitApply, Type::kInitDone});
}

TEST_CASE("a list without a version, or one that turns in a circle, is no list") {
  Watcher watcher(muster::test::seed());
  CHECK(watcher.on_list(kStart, page({object("a", "5")}, "")).empty());
  MonoTime now = kStart + seconds(60);
  (void)watcher.on_list(now, page({object("a", "5")}, "10", "same"));
  CHECK(watcher.on_list(now, page({object("a", "5")}, "10", "same")).empty());
  CHECK_FALSE(watcher.synced());
  CHECK(asks<WaitRequest>(watcher, now));
}

TEST_CASE("a line that is no event ends the watch, which resumes where it was") {
  const std::string lines[] = {
      "not json",
      "7",
      "[]",
      "{}",
      R"({"type":"ADDED"})",
      R"({"type":"ADDED","object":7})",
      R"({"type":"ADDED","object":{"metadata":{}}})",
      R"({"type":"ADDED","object":{"metadata":{"resourceVersion":""}}})",
      R"({"type":"ADDED","object":{"metadata":{"resourceVersion":11}}})",
      line("RENAMED", object("b", "11")),
      line("added", object("b", "11")),
      R"({"type":7,"object":{"metadata":{"resourceVersion":"11"}}})",
  };
  for (const auto& text : lines) {
    CAPTURE(text);
    auto watcher = streaming_watcher();
    CHECK(watcher.on_line(kStart, text).empty());
    CHECK_FALSE(watcher.streaming());
    CHECK(watcher.bad_lines() == 1);
    CHECK(watcher.on_line(kStart, line("ADDED", object("b", "11"))).empty());
    CHECK(asks<WaitRequest>(watcher, kStart));
    CHECK(watched_version(watcher, kStart + seconds(2)) == "10");
  }
}

TEST_CASE("no object makes a watch blind by what stands deep in it") {
  const std::string deep = std::string(9'990, '[') + std::string(9'990, ']');
  for (const char* field : {"managedFields", "else"}) {
    Watcher watcher(muster::test::seed(), {.left_out = api::unread_of(api::Kind::kPod)});
    (void)watcher.on_list(kStart, page({object("a", "5")}, "10"));
    (void)watcher.on_watch_opened(kStart, {});
    const std::string odd = R"({"type":"ADDED","object":{"metadata":{"name":"b","namespace":"ns",)"
                            R"("resourceVersion":"11",")" +
                            std::string(field) + R"(":[{"fieldsV1":)" + deep + "}]}}}";
    const auto events = watcher.on_line(kStart, odd);
    REQUIRE(events.size() == 1);
    CHECK(events[0].object["metadata"]["name"] == "b");
    CHECK(watcher.on_line(kStart, line("ADDED", object("c", "12"))).size() == 1);
    CHECK(watcher.bad_lines() == 0);
  }
}

TEST_CASE("an event cut at any byte is not acted on") {
  const std::string whole = line("ADDED", object("b", "11"));
  for (std::size_t bytes = 1; bytes < whole.size(); ++bytes) {
    auto watcher = streaming_watcher();
    CHECK(watcher.on_line(kStart, whole.substr(0, bytes)).empty());
    CHECK(watched_version(watcher, kStart + seconds(2)) == "10");
  }
}

TEST_CASE("blank lines are nothing") {
  auto watcher = streaming_watcher();
  for (const char* text : {"", "\r", "  "}) CHECK(watcher.on_line(kStart, text).empty());
  CHECK(watcher.streaming());
  CHECK(watcher.bad_lines() == 0);
}

TEST_CASE("a line that poisons every watch from here is passed by a new list") {
  auto watcher = streaming_watcher();
  MonoTime now = kStart;
  for (int i = 0; i < 3; ++i) {
    CHECK(asks<WatchRequest>(watcher, now));
    (void)watcher.on_watch_opened(now, {});
    (void)watcher.on_line(now, "poison");
    now += seconds(31);
  }
  CHECK(asks<ListRequest>(watcher, now));
}

TEST_CASE("an event from before leads to a new list, so that no object goes back") {
  auto watcher = streaming_watcher();
  (void)watcher.on_line(kStart, line("MODIFIED", object("a", "20")));
  SUBCASE("a change") {
    CHECK(watcher.on_line(kStart, line("MODIFIED", object("a", "15"))).empty());
  }
  SUBCASE("a bookmark") {
    CHECK(watcher.on_line(kStart, line("BOOKMARK", object("", "15"))).empty());
  }
  CHECK_FALSE(watcher.streaming());
  CHECK(asks<ListRequest>(watcher, kStart + seconds(2)));
}

TEST_CASE("versions are compared as numbers, not as text") {
  Watcher watcher(muster::test::seed());
  (void)watcher.on_list(kStart, page({}, "9"));
  (void)watcher.on_watch_opened(kStart, {});
  CHECK(watcher.on_line(kStart, line("ADDED", object("b", "10"))).size() == 1);
  CHECK(watcher.streaming());
}

TEST_CASE("an error event that is not 410 waits and resumes where it was") {
  auto watcher = streaming_watcher();
  (void)watcher.on_line(kStart, line("ERROR", {{"code", 500}, {"reason", "InternalError"}}));
  CHECK_FALSE(watcher.streaming());
  CHECK(asks<WaitRequest>(watcher, kStart));
  CHECK(watched_version(watcher, kStart + seconds(2)) == "10");
}

TEST_CASE("a server that refuses for ever is asked ever more slowly, up to the most") {
  struct Row {
    const char* name;
    bool lists;
  };
  for (const Row& row : {Row{"no list", false}, Row{"lists, then 410 for ever", true}}) {
    CAPTURE(row.name);
    Watcher watcher(muster::test::seed());
    MonoTime now = kStart;
    milliseconds longest{0}, tenth{0};
    for (int i = 0; i < 60; ++i) {
      if (row.lists) {
        REQUIRE(asks<ListRequest>(watcher, now));
        (void)watcher.on_list(now, page({}, "10"));
        (void)watcher.on_watch_opened(now, {});
        (void)watcher.on_line(now, gone_line());
      } else {
        (void)watcher.on_list(now, kCut);
      }
      const auto wait = wait_of(watcher, now);
      CHECK(wait >= milliseconds(800));
      CHECK(wait <= milliseconds(30'000));
      longest = std::max(longest, wait);
      if (i < 2) tenth = std::max(tenth, wait);
      now += wait + milliseconds(1);
    }
    CHECK(tenth <= milliseconds(3'200));
    CHECK(longest > milliseconds(20'000));
  }
}

TEST_CASE("after a good event a failure waits little again") {
  Watcher watcher(muster::test::seed());
  MonoTime now = kStart;
  for (int i = 0; i < 10; ++i) (void)watcher.on_list(now, kCut);
  now += seconds(31);
  (void)watcher.on_list(now, page({}, "10"));
  (void)watcher.on_watch_opened(now, {});
  (void)watcher.on_line(now, line("ADDED", object("b", "11")));
  (void)watcher.on_end(now, kCut);
  CHECK(wait_of(watcher, now) <= milliseconds(1'600));
}

TEST_CASE("watchers with other seeds do not come back together") {
  Watcher first(1), second(2);
  (void)first.on_list(kStart, kCut);
  (void)second.on_list(kStart, kCut);
  CHECK(wait_of(first, kStart) != wait_of(second, kStart));
}

}  // namespace muster::kube
