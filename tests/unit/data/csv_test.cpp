#include "worker/data/csv.h"

#include <doctest/doctest.h>

#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "common/contract.h"
#include "tests/unit/data/idx_bytes.h"
#include "tests/unit/data/sentence.h"
#include "worker/data/csv_records.h"
#include "worker/data/loader.h"
#include "worker/data/prefetch.h"

using namespace muster;
using namespace muster::data;
using namespace muster::test;

namespace {

Dataset table_of(std::string_view text, const std::string& label = "label") {
  auto result = parse_csv(text, {"x.csv", label, {}});
  REQUIRE_MESSAGE(result, result.error().message());
  return std::move(*result);
}

/// The sentence of the error without the name of the file.
std::string wrong_with(std::string_view text, const std::string& label = "label") {
  return sentence_behind("x.csv: ", parse_csv(text, {"x.csv", label, {}}));
}

std::vector<std::string> names_of(const Dataset& table) {
  std::vector<std::string> names;
  for (const TableColumn& column : table.columns) names.push_back(column.name);
  return names;
}

/// The test table of `text`, kept at `path`.
Result<Dataset> test_table(const std::string& path, std::string_view text, const Dataset& train) {
  write_bytes(path, Bytes(text.begin(), text.end()));
  return load_test_csv({path, "label", {}}, train);
}

}  // namespace

TEST_CASE("one column of a table is the label, the others are features in their order") {
  const Dataset table = table_of("a,label,b\n1.5,2,-3\n4,0,5e-1\n");
  CHECK(table.count == 2);
  CHECK(table.features == 2);
  CHECK(table.width == 2);
  CHECK(table.height == 1);
  CHECK(table.targets == 1);
  CHECK(table.classes == 3);
  CHECK(names_of(table) == std::vector<std::string>{"a", "b"});
  CHECK(table.values == std::vector<float>{1.5F, -3, 4, 0.5F});
  CHECK(table.labels == std::vector<std::uint8_t>{2, 0});
  CHECK_FALSE(table.is_text());
  CHECK(table_of("a,label\n1,0\n").classes == 2);
}

TEST_CASE("numbers become the nearest float, whatever their spelling") {
  const Dataset table = table_of("a,b,c,d,e,f,g,label\n0.1, +7\t,1e-60,16777217,-0,.5,3.1e-5000,1");
  CHECK(table.values == std::vector<float>{0.1F, 7, 0, 16777216, 0, 0.5F, 0});
  CHECK(wrong_with("a,label\n1e400,0\n").find("must be a decimal number") != std::string::npos);
}

TEST_CASE("lines end as they like, empty ones are none, and fields may be quoted") {
  const std::vector<float> values{1, 2};
  CHECK(table_of("a,label\r\n1,0\r\n\r\n2,1").values == values);
  CHECK(table_of("\xEF\xBB\xBF\"a\",\"label\"\n\"1\",0\n\n\n2,\"1\"\r\n").values == values);
  CHECK(names_of(table_of("\"a, \"\"b\"\"\nc\", label \n1,0\n2,1\n")) ==
        std::vector<std::string>{"a, \"b\"\nc"});
}

TEST_CASE(
    "what is no table of numbers is refused with the line, the column and what would be right") {
  CHECK(wrong_with("") == "is empty; its first line must name its columns");
  CHECK(wrong_with("\n\n") == "is empty; its first line must name its columns");
  CHECK(wrong_with("a,label\n") == "has no row behind the names of its columns");
  CHECK(wrong_with("label\n1\n") == "has no column besides the label \"label\"");
  CHECK(wrong_with("a;label\n1;0\n") ==
        "its first line has no column \"label\", which is to be the label, but \"a;label\"");
  CHECK(wrong_with("label,a,label\n") == "has 2 columns \"label\"; must have one");
  CHECK(wrong_with("a,label\n1,0\n\n1,0,2\n") ==
        "line 4 has 3 columns, the first line 2; they must be equal");
  CHECK(wrong_with("label,a\n0\n") == "line 2 has 1 columns, the first line 2; they must be equal");
  CHECK(wrong_with("\"a\nb\",label\n1,0\n,1\n") ==
        "line 4: column \"a?b\" is \"\"; must be a decimal number, unless csv.missing is Mean");
  CHECK(wrong_with("a,label\n1,0\nred,1\n") ==
        "line 3: column \"a\" is \"red\"; must be a decimal number, unless csv.words is OneHot");
  for (const char* value :
       {"x", "nan", "inf", "0x10", "1e99", "1 2", "--1", "1,5\"", "++1", "+-1", "-"}) {
    CAPTURE(value);
    CHECK(wrong_with("a,label\n\"" + std::string(value) + "\",0\n") != "");
  }
  for (const char* label : {"256", "-1", "1.0", "9999999999"}) {
    CAPTURE(label);
    CHECK(wrong_with("a,label\n1," + std::string(label) + "\n").find("from 0 to 255") !=
          std::string::npos);
  }
  CHECK(wrong_with("a,label\n\"1,0\n") == "line 2 begins a quoted field without an end");
  CHECK(wrong_with("a,label\n\"1\"2,0\n") ==
        "line 2 goes on behind a quoted field; must have a comma there");
}

TEST_CASE("labels that are names are numbered in their order, whatever the rows' order") {
  const Dataset table = table_of("a,label\n1,virginica\n2, Setosa\n3,virginica\n4,\"a, b\"\n");
  CHECK(table.class_names == std::vector<std::string>{"Setosa", "a, b", "virginica"});
  CHECK(table.labels == std::vector<std::uint8_t>{2, 0, 2, 1});
  CHECK(table.classes == 3);
  CHECK(table_of("a,label\n1,only\n").classes == 2);
  CHECK(table_of("a,label\n1,0\n").class_names.empty());
}

TEST_CASE("labels are all names or all numbers, and there are as many as a byte counts") {
  CHECK(wrong_with("a,label\n1,setosa\n2,1\n") ==
        "line 3: column \"label\" is \"1\"; labels must be all names, or all whole numbers");
  CHECK(wrong_with("a,label\n1,1\n2,l\n") ==
        "line 3: column \"label\" is \"l\"; labels must be whole numbers from 0 to 255, or all of "
        "them names");
  CHECK(wrong_with("a,label\n1," + std::string(257, 'n') + "\n")
            .ends_with("; the name of a class must have at most 256 bytes"));
  std::string text = "a,label\n";
  for (int i = 0; i < 256; ++i) text += "1,c" + std::to_string(i) + "\n";
  const Dataset most = table_of(text + "1,c0\n");
  CHECK(most.classes == 256);
  CHECK(most.labels.front() == 0);
  CHECK(most.labels[255] == 174);  // c255 comes behind c254 and before c26
  CHECK(
      wrong_with(text + "1,d\n") ==
      "line 258: column \"label\" is \"d\"; is one more than the 256 classes that there may be at "
      "most");
}

TEST_CASE("a label that is missing is no class of its own, and is refused where it stands") {
  const Dataset of_names = table_of("a,label\n1,x\n2,y\n");
  for (const std::string missing : {"", "?", "NA", "#N/A", "n/a", "nan", "None", "null"}) {
    CAPTURE(missing);
    const std::string wrong = "line 3: column \"label\" is \"" + missing +
                              "\"; a label must not be missing: leave the row out, or name the "
                              "class otherwise";
    for (const std::string known : {"x", "1"}) {
      CHECK(wrong_with("a,label\n1," + known + "\n2," + missing + "\n3," + known + "\n") == wrong);
    }
    const std::string first = "a,label\n\n1," + missing + "\n2,x\n";
    CHECK(wrong_with(first) == wrong);
    CHECK(sentence_behind("x.csv: ", parse_csv(first, {"x.csv", "label", {}}, &of_names)) == wrong);
  }
}

TEST_CASE("a table may be a gzip member, and one that is cut is told") {
  const TempDirectory directory;
  const std::string path = directory / "x.csv.gz", text = "a,label\n1,0\n2,1\n";
  const Bytes packed = gzip_bytes({text.begin(), text.end()});
  write_bytes(path, packed);
  const auto table = load_csv({path, "label", {}});
  REQUIRE_MESSAGE(table, table.error().message());
  CHECK(table->values == std::vector<float>{1, 2});
  write_bytes(path, Bytes(packed.begin(), packed.end() - 9));
  CHECK(load_csv({path, "label", {}}).error().message() ==
        path + ": the gzip stream is cut; copy the file again");
  CHECK(load_csv({directory / "none", "label", {}}).error().exit_code() ==
        contract::exit_code::kData);
}

TEST_CASE("a test table has the columns and the labels of its training table") {
  const TempDirectory directory;
  const Dataset train = table_of("a,b,label\n1,2,0\n3,4,2\n");
  const std::string path = directory / "test.csv";
  const auto tested = [&](std::string_view text) { return test_table(path, text, train); };
  const auto fitting = tested("label,a,b\n1,5,6\n");
  REQUIRE_MESSAGE(fitting, fitting.error().message());
  CHECK(fitting->classes == 3);
  CHECK(tested("b,a,label\n1,2,0\n").error().message() ==
        path +
            ": its columns, without the label, are not those of the training set; names and "
            "order must be the same");
  CHECK(tested("a,b,label\n1,2,3\n").error().message() ==
        path +
            ": line 2: column \"label\" is \"3\"; the labels of the training set are from 0 to 2");
  CHECK(tested("a,b,label\n1,2,x\n").error().message() ==
        path +
            ": line 2: column \"label\" is \"x\"; a label must be a whole number from 0 to 255, "
            "as in the training set");
}

TEST_CASE("a test table's names are the classes of its training table") {
  const TempDirectory directory;
  const Dataset train = table_of("a,label\n1,x\n2,z\n3,y\n");
  const std::string path = directory / "test.csv";
  const auto tested = [&](std::string_view text) { return test_table(path, text, train); };
  const auto fitting = tested("a,label\n1,z\n2,y\n");
  REQUIRE_MESSAGE(fitting, fitting.error().message());
  CHECK(fitting->labels == std::vector<std::uint8_t>{2, 1});
  CHECK(fitting->classes == 3);
  for (const char* label : {"w", "1"}) {
    CAPTURE(label);
    CHECK(tested("a,label\n1,x\n2," + std::string(label) + "\n").error().message() ==
          path + ": line 3: column \"label\" is \"" + label +
              "\"; must be a class of the training set");
  }
}

TEST_CASE("the hash of a table is that of its numbers and labels, whatever their spelling") {
  const Dataset table = table_of("a,label\n1.5,0\n-2,1\n");
  CHECK(hash_of(table) == hash_of(table_of("a,label\r\n\"+15e-1\",0\r\n-2.0,1")));
  CHECK(hash_of(table) != hash_of(table_of("a,label\n1.5,1\n-2,0\n")));
  CHECK(hash_of(table) != hash_of(table_of("a,label\n1.5,0\n2,1\n")));
  CHECK(to_hex(hash_of(table)) ==
        to_hex(sha256(std::string("\x00\x00\xC0\x3F\x00\x00\x00\xC0\x00\x01", 10))));
}

namespace {

const TableRules kWords{.takes_words = true}, kScaled{.is_scaled = true},
    kMissing{.fills_missing = true}, kAll{true, true, true};

Dataset table_by(const TableRules& rules, std::string_view text) {
  auto result = parse_csv(text, {"x.csv", "label", rules});
  REQUIRE_MESSAGE(result, result.error().message());
  return std::move(*result);
}

std::string wrong_by(const TableRules& rules, std::string_view text,
                     const Dataset* train = nullptr) {
  return sentence_behind("x.csv: ", parse_csv(text, {"x.csv", "label", rules}, train));
}

using Values = std::vector<float>;

}  // namespace

TEST_CASE("a column of words becomes an input for each word, in their order") {
  const Dataset table =
      table_by(kWords, "a,color,label,b\n1, red,0,7\n2,\"Blue\",1,8\n3,red ,0,9\n");
  CHECK(table.features == 4);
  CHECK(table.width == 4);
  CHECK(table.values == Values{1, 0, 1, 7, 2, 1, 0, 8, 3, 0, 1, 9});
  CHECK(dump_json(inputs_json(table.columns)) ==
        R"([{"column":"a"},{"column":"color","word":"Blue"},{"column":"color","word":"red"},)"
        R"({"column":"b"}])");
  // One word among numbers, wherever it stands, makes words of them all.
  CHECK(table_by(kWords, "a,label\n1,0\n10,0\nx,0\n2,0\n").values ==
        Values{1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 0, 0, 1, 0});
  CHECK(table_by(kWords, "a,label\n1,0\n10,0\n").values == Values{1, 10});
}

TEST_CASE("numbers are scaled by the mean and the deviation of the training table") {
  const Dataset table = table_by(kScaled, "a,b,label\n1,5,0\n3,5,1\n5,5,0\n7,5,1\n");
  const auto deviations = [](double of) { return static_cast<float>(of / std::sqrt(5.0)); };
  CHECK(table.values ==
        Values{deviations(-3), 0, deviations(-1), 0, deviations(1), 0, deviations(3), 0});
  CHECK(table.columns[0].mean == 4);
  CHECK(table.columns[0].deviation == std::sqrt(5.0));
  CHECK(table.columns[1].deviation == 1);  // all are equal, and nothing is divided by 0
  const auto test = parse_csv("a,b,label\n4,6,0\n14,5,0\n", {"x.csv", "label", {}}, &table);
  REQUIRE_MESSAGE(test, test.error().message());
  CHECK(test->values == Values{0, 1, deviations(10), 0});
  CHECK(inputs_json(table.columns)[1] == Json{{"column", "b"}, {"mean", 5.0}, {"deviation", 1.0}});
}

TEST_CASE("numbers that differ in digits that no float has are told apart once they are scaled") {
  const Dataset days = table_by(kScaled, "a,label\n100000001,0\n+100000002,1\n1.00000003e8,0\n");
  const auto step = static_cast<float>(std::sqrt(1.5));
  CHECK(days.values == Values{-step, 0, step});
  CHECK(days.columns[0].mean == 100000002);
}

TEST_CASE("the mean of a column stands for its missing numbers, and none of its words for a word") {
  for (const std::string missing :
       {"", " ", "?", "NA", "<NA>", "N/A", "#N/A", "n/a", "NaN", "nan", "None", "NULL", "null"}) {
    CAPTURE(missing);
    CHECK(table_by(kMissing, "a,label\n1,0\n" + missing + ",1\n2,0\n").values == Values{1, 1.5, 2});
    CHECK(table_by(kAll, "a,label\nx,0\n" + missing + ",1\nx,0\n").values == Values{1, 0, 1});
    CHECK(wrong_by(kWords, "a,label\nx,0\n" + missing + ",1\n") ==
          "line 3: column \"a\" is \"" + missing +
              "\"; must be a decimal number or a word, unless csv.missing is Mean");
  }
  // A scaled one is 0, which says nothing, also where the mean is no float.
  CHECK(table_by(kAll, "a,label\n0.1,0\n,1\n0.7,0\n0.3,0\n").values[1] == 0);
  CHECK(table_by(kAll, "a,label\n1,0\n,1\n3,0\n").values == Values{-1, 0, 1});
  CHECK(inputs_json(table_by(kMissing, "a,label\n1,0\n,1\n2,0\n").columns) ==
        Json::array({{{"column", "a"}, {"missing", 1.5}}}));
  CHECK(wrong_by(kMissing, "a,label\n1,0\nnone,1\n") ==
        "line 3: column \"a\" is \"none\"; must be a decimal number, unless csv.words is OneHot");
  CHECK(wrong_by(kAll, "a,b,label\n1,,0\n2,?,1\n") ==
        "column \"b\" has no value in any row; leave it out");
  CHECK(wrong_by(kAll, "a,label\n") == "has no row behind the names of its columns");
}

TEST_CASE("a test table is read by what its training table has") {
  const Dataset train = table_by(kAll, "a,color,label\n1,red,0\n3,blue,1\n");
  const auto test =
      parse_csv("a,color,label\n5,green,0\n?,red,1\n1,,0\n", {"x.csv", "label", {}}, &train);
  REQUIRE_MESSAGE(test, test.error().message());
  CHECK(test->values == Values{3, 0, 0, 0, 0, 1, -1, 0, 0});
  CHECK(wrong_by({}, "a,color,label\nx,red,0\n", &train) ==
        "line 2: column \"a\" is \"x\"; must be a decimal number");
  const Dataset whole = table_by(kWords, "a,color,label\n1,red,0\n");
  CHECK(wrong_by({}, "a,color,label\n1,,0\n", &whole) ==
        "line 2: column \"color\" is \"\"; must be a word");
  CHECK(wrong_by({}, "a,color,label\n,red,0\n", &whole) ==
        "line 2: column \"a\" is \"\"; must be a decimal number");
  const Dataset near = table_by(kScaled, "a,label\n1e-38,0\n2e-38,1\n");
  CHECK(wrong_by({}, "a,label\n3e38,0\n", &near) ==
        "line 2: column \"a\" is \"3e38\"; is too far from the numbers of the training set");
}

TEST_CASE("words are bounded in their length and their number") {
  CHECK(wrong_by(kWords, "a,label\n" + std::string(kMaxWordBytes + 1, 'x') + ",0\n")
            .ends_with("; a word must have at most 256 bytes"));
  std::string text = "id,label\n";
  for (std::size_t i = 0; i < kMaxWords; ++i) text += "w" + std::to_string(i) + ",0\n";
  CHECK(table_by(kWords, text).features == kMaxWords);
  CHECK(
      wrong_by(kWords, text + "w,0\n") ==
      "line 4098: column \"id\" is \"w\"; is one more than the 4096 different words that a column "
      "may have");
}

TEST_CASE("names that are not UTF-8 are refused where they stand, in a sentence that is") {
  const std::string cafe = "caf\xe9";  // as Latin-1 has it
  const std::string right = "save the table as UTF-8";
  CHECK(wrong_with("a," + cafe + ",label\n1,2,0\n") ==
        "line 1: the name of column 2, \"caf?\", is not UTF-8; " + right);
  CHECK(wrong_with("\n\na,label,\"" + cafe + "\"\n1,0,2\n") ==
        "line 3: the name of column 3, \"caf?\", is not UTF-8; " + right);
  CHECK(wrong_with("a,label\n1,x\n2," + cafe + "\n") ==
        "line 3: column \"label\" is \"caf?\"; the name of a class must be UTF-8; " + right);
  CHECK(wrong_by(kWords, "a,label\nx,0\n" + cafe + ",0\n") ==
        "line 3: column \"a\" is \"caf?\"; a word must be UTF-8; " + right);
  // What a test table has beyond its training table is in no file.
  const Dataset train = table_by(kWords, "a,label\ncaf\xc3\xa9,0\n");
  const auto test = parse_csv("a,label\n" + cafe + ",0\n", {"x.csv", "label", {}}, &train);
  REQUIRE_MESSAGE(test, test.error().message());
  CHECK(test->values == Values{0});
  // A character that would be cut in the sentence is left out of it.
  const std::string long_word(39, 'x');
  CHECK(wrong_with("a,label\n" + long_word + "\xc3\xa9,0\n")
            .starts_with("line 2: column \"a\" is \"" + long_word + "...\"; "));
  CHECK(wrong_with("a,label\n" + long_word + "y,0\n")
            .starts_with("line 2: column \"a\" is \"" + long_word + "y\"; "));
}

TEST_CASE("a number is a word, too, where a word comes behind it, and is bounded as one") {
  std::string text = "id,label\n";
  for (std::size_t i = 0; i <= kMaxWords; ++i) text += std::to_string(i) + ",0\n";
  CHECK(table_by(kWords, text).features == 1);
  CHECK(wrong_by(kWords, text + "x,0\n") ==
        "line 4098: column \"id\" is \"4096\"; is one more than the 4096 different words that a "
        "column may have");
  // What no column of this table could be is told before.
  CHECK(wrong_by(kWords, text + "x,0\n,0\n").starts_with("line 4100: column \"id\" is \"\"; "));
  // Of several the one that stands first.
  const std::string long_word(kMaxWordBytes + 1, 'x');
  CHECK(wrong_by(kWords, "a,b,label\n1,x,0\n1," + long_word + ",0\n" + long_word + ",x,0\n")
            .starts_with("line 3: column \"b\" is "));
  CHECK(wrong_by(kWords, "a,b,label\n1,x,0\n" + long_word + "," + long_word + ",0\n")
            .starts_with("line 3: column \"a\" is "));
}

TEST_CASE("a file that is read in pieces is what it is in one, wherever they are cut") {
  const TempDirectory directory;
  const std::string path = directory / "x.csv", row = "\"a \"\"b\"\"\r\nc\",1.5,\"2\",0\r\n";
  for (std::size_t shift = 0; shift < row.size(); ++shift) {
    CAPTURE(shift);
    std::string text = "w,x" + std::string(shift, 'x') + ",y,label\n";
    const std::size_t piece = std::size_t{1} << 20;
    while (text.size() < piece + 100) text += row;
    text += "d,7,8,1";
    const CsvSource source{path, "label", kWords};
    const auto whole = parse_csv(text, source);
    REQUIRE_MESSAGE(whole, whole.error().message());
    CHECK(whole->features == 4);
    write_bytes(path, Bytes(text.begin(), text.end()));
    const auto pieces = load_csv(source);
    REQUIRE_MESSAGE(pieces, pieces.error().message());
    CHECK(pieces->values == whole->values);
    CHECK(pieces->labels == whole->labels);
  }
  write_bytes(path, {'a', ',', 'l', '\n', '"'});
  std::filesystem::resize_file(path, kMaxRecordBytes + 4 * (std::size_t{1} << 20));
  CHECK(sentence_of(load_csv({path, "l", {}})) ==
        path + ": line 2 begins a row of more than 67108864 bytes");
}

TEST_CASE("rows that stay in their file are what they are in memory") {
  const TempDirectory directory;
  const std::string path = directory / "x.csv";
  std::string text = "\xEF\xBB\xBFw,label,a\n";
  for (int i = 0; i < 60; ++i) {
    text += (i % 7 == 0   ? "\xEF\xBB\xBFred,"
             : i % 3 == 0 ? "\"b,\n\","
                          : "?,") +
            std::to_string(i % 4) + "," + (i % 5 == 0 ? "NA" : std::to_string(i * i)) +
            (i % 6 == 0 ? "\r\n\n\n" : "\n");
  }
  write_bytes(path, Bytes(text.begin(), text.end()));
  CsvSource source{path, "label", kAll};
  const auto held = load_csv(source);
  REQUIRE_MESSAGE(held, held.error().message());
  REQUIRE(held->values.size() == 60 * 3);
  const std::uint64_t bytes = held->values.size() * sizeof(float);
  source.most_held = bytes;
  CHECK(load_csv(source)->values == held->values);
  std::vector<std::string> told;
  source.on_read = [&](std::string_view name) { told.emplace_back(name); };
  for (const auto& [threads, most_held] : {std::pair{1, bytes - 1}, std::pair{3, bytes - bytes}}) {
    source.threads = threads;
    source.most_held = most_held;
    for (const Dataset* const train : {static_cast<const Dataset*>(nullptr), &*held}) {
      const auto set = train == nullptr ? load_csv(source) : load_test_csv(source, *train);
      REQUIRE_MESSAGE(set, set.error().message());
      CHECK(set->values.empty());
      CHECK(set->is_table());
      CHECK(set->count == 60);
      CHECK(set->labels == held->labels);
      CHECK(hash_of(*set) == hash_of(*held));
      CHECK(set->memory() > set->labels.size() + 60 * sizeof(std::uint64_t));
      const Loader loader({7, set->count, 5, 10});
      Values row(3), expected(3);
      for (std::int64_t step = 0; step < 12; ++step) {
        prefetch(*set, loader, step + 1, {0, 5});
        std::array<std::uint64_t, 10> batch{};
        loader.samples(step, {0, 5}, batch);
        for (const std::uint64_t index : batch) {
          REQUIRE(read_row(*set, index, row));
          REQUIRE(read_row(*held, index, expected));
          CHECK(row == expected);
        }
      }
    }
  }
  CHECK(told.size() == 2 * 2 * 2 * 120);
  CHECK(told.front() == path);
  CHECK(told.back() == "");
}

TEST_CASE("a table that is written to while it is trained on is refused") {
  const TempDirectory directory;
  const std::string path = directory / "x.csv";
  write_bytes(path, {'a', ',', 'l', '\n', '1', ',', '0', '\n', '2', ',', '1', '\n'});
  CsvSource source{path, "l", {}};
  source.most_held = 0;
  const Dataset set = *load_csv(source);
  Values row(1);
  REQUIRE(read_row(set, 1, row));
  CHECK(row[0] == 2);
  std::filesystem::last_write_time(path, std::filesystem::file_time_type{});
  const Status changed = read_row(set, 0, row);
  REQUIRE_FALSE(changed);
  CHECK(changed.error().message() ==
        path + ": has changed since the worker began; leave it as it is while jobs train");
  CHECK(changed.error().exit_code() == contract::exit_code::kData);
}

TEST_CASE("a table that is written to between two looks at it is refused") {
  const TempDirectory directory;
  const std::string path = directory / "x.csv";
  write_bytes(path, {'a', ',', 'l', '\n', '1', ',', '0', '\n'});
  const auto text = *TableText::open(path);
  Bytes piece(4);
  CHECK(*text->read(piece) == 4);
  CHECK(piece == Bytes{'a', ',', 'l', '\n'});
  std::filesystem::resize_file(path, 4);
  const auto rest = text->read(piece);
  REQUIRE_FALSE(rest);
  CHECK(rest.error().message() ==
        path + ": was written to while it was read; leave it as it is while jobs train");
  CHECK(rest.error().exit_code() == contract::exit_code::kData);
  text->rewind();
  CHECK_FALSE(text->read(piece));
}

TEST_CASE("a table that is a gzip member is held whatever there is room for") {
  const TempDirectory directory;
  const std::string path = directory / "x.csv.gz", text = "a,label\n1,0\n2,1\n";
  write_bytes(path, gzip_bytes({text.begin(), text.end()}));
  CsvSource source{path, "label", kScaled};
  source.most_held = 0;
  const auto table = load_csv(source);
  REQUIRE_MESSAGE(table, table.error().message());
  CHECK(table->values == Values{-1, 1});
}

TEST_CASE("a table that takes more memory than there is for it is refused while it is read") {
  const TempDirectory directory;
  CsvSource source{directory / "x.csv", "label", {}};
  std::string text = "a,label\n";
  for (int row = 0; row < 1000; ++row) text += "7,1\n";
  const Bytes plain(text.begin(), text.end()), packed = gzip_bytes(plain);
  const auto read = [&](const Bytes& file, std::uint64_t most_memory) {
    write_bytes(source.path, file);
    source.most_memory = most_memory;
    return load_csv(source);
  };
  const auto is_refused = [&](const Bytes& file, std::uint64_t most_memory) {
    const auto table = read(file, most_memory);
    REQUIRE_FALSE(table);
    CHECK(table.error().exit_code() == contract::exit_code::kInvalidSpec);
    CHECK(table.error().message().starts_with(source.path + ": takes at least "));
  };
  // A number and a label of each row; a packed file is there, too, from the first row on.
  const std::uint64_t values = 1000 * (sizeof(float) + 1);
  is_refused(packed, packed.size() - 1);
  is_refused(packed, packed.size() + 1);
  is_refused(packed, packed.size() + values - 1);
  CHECK(read(packed, packed.size() + 2 * values));
  // Of rows that may stay in their file also where each begins.
  const std::uint64_t offsets = 1000 * sizeof(std::uint64_t);
  is_refused(plain, values + offsets - 1);
  CHECK(read(plain, 2 * values + offsets));
  // Where they stay, that is all of it in the end.
  source.most_held = 100 * sizeof(float);
  CHECK(read(plain, 1500 + offsets + 2 * 1000 * sizeof(float))->values.empty());
  is_refused(plain, 1000 + offsets - 1);
}
