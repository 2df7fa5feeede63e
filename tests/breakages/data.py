"""Breakages of reading what a model learns from."""
from breakage import Breakage

CSV = "worker/data/csv.cpp"
COLUMN = "worker/data/table_column.cpp"
PICTURE = "worker/data/picture.cpp"
PNG = "worker/data/png.cpp"
JPEG = "worker/data/jpeg.cpp"
FOLDER = "worker/data/image_folder.cpp"
PICTURES = "worker/data/picture_files.cpp"
AHEAD = "worker/data/read_ahead.h"
TOKENS = "worker/data/tokens.cpp"

BREAKAGES = [
    Breakage("two quotes within a field stand for none", CSV,
             "      field += '\"';  // two of them stand for one\n", "", "test_data"),
    Breakage("a number too small for a float is refused", COLUMN,
             "return wide && std::abs(*wide) < 1 ? std::optional(0.0F) : std::nullopt;", "return std::nullopt;", "test_data"),
    Breakage("a number may have two signs", COLUMN, "    if (text.starts_with('-')) return std::nullopt;  // which from_chars would take for the sign\n", "",
             "test_data"),
    Breakage("a row may lack columns", CSV, "if (fields.size() != header_.size()) {", "if (fields.size() > header_.size()) {",
             "test_data"),
    Breakage("lines within quotes are not counted", CSV,
             "lines_ += static_cast<std::size_t>(std::count(field.begin(), field.end(), '\\n'));", "", "test_data"),
    Breakage("a test table may have other columns", CSV, "return name == column.name;",
             "return name.size() == column.name.size();", "test_data"),
    Breakage("words have the order in which they are met", COLUMN, ".words = {words_.begin(), words_.end()}",
             ".words = {words_.rbegin(), words_.rend()}", "test_data"),
    Breakage("a word that is not known is the one behind it", COLUMN, "found != column.words.end() && *found == text",
             "found != column.words.end()", "test_data"),
    Breakage("one word among numbers is refused", COLUMN, "  has_words_ = true;\n", "", "test_data"),
    Breakage("a missing number is 0", COLUMN, "number = column.mean;", "number = 0.0;", "test_data"),
    Breakage("missing numbers count for the mean", COLUMN, "  if (is_missing(text)) return \"\";\n  if (has_words_)",
             "  if (is_missing(text)) return (++numbers_, \"\");\n  if (has_words_)", "test_data"),
    Breakage("the deviation is a sample's", COLUMN, "std::sqrt(squares_ / static_cast<double>(numbers_))",
             "std::sqrt(squares_ / static_cast<double>(numbers_ - 1))", "test_data"),
    Breakage("equal numbers are divided by 0", COLUMN, "  if (deviation > 0) column.deviation = deviation;\n",
             "  column.deviation = deviation;\n", "test_data"),
    Breakage("a test table has means of its own", CSV, "    table.columns = train->columns;\n",
             "    MUSTER_ASSIGN_OR_RETURN(table.columns, survey(rows, {true, true, true}));\n", "test_data"),
    Breakage("an input need not be finite", COLUMN, "if (std::abs(*number) > double{std::numeric_limits<float>::max()}) {", "if (false) {", "test_data"),
    Breakage("names are numbered as they are met", CSV, "for (std::uint8_t& label : labels_) label = in_order[label];", "",
             "test_data"),
    Breakage("a number among names makes a class", CSV, "if (float_of(text)) return", "if (text.empty()) return", "test_data"),
    Breakage("a label that is missing is a class of its own", CSV, "if (is_missing(text)) {", "if (text.empty()) {",
             "test_data"),
    Breakage("a test table may have a class that its training table lacks", CSV,
             'if (train_) return "must be a class of the training set";', "", "test_data"),
    Breakage("an interlaced picture is half read", PNG, "pass < passes;", "pass < (passes + 1) / 2;", "test_data"),
    Breakage("16 bits are scaled and not cut", PNG, "png_set_strip_16(png_);", "png_set_scale_16(png_);", "test_data"),
    Breakage("a JPEG that is cut becomes gray below", JPEG, "TJPF_RGB, kFlags) != 0) {",
             "TJPF_RGB, kFlags) != 0 && tjGetErrorCode(turbo.get()) == TJERR_FATAL) {", "test_data"),
    Breakage("a picture of any size is read", PICTURE, "height * width <= max_pixels", "height > 0", "test_data"),
    Breakage("means are rounded down", PICTURE, "(sum + area / 2) / area", "sum / area", "test_data"),
    Breakage("the last pixel that is covered counts not", PICTURE, "return (end_ + length_ - 1) / length_;",
             "return std::max(first() + 1, end_ / length_);", "test_data"),
    Breakage("pixels that are covered whole count as one", PICTURE, "sum[c] * whole +", "sum[c] +", "test_data"),
    Breakage("the sums of another row are taken", PICTURE, "if (std::exchange(summed, row) != row) sum_across(",
             "if (std::exchange(summed, row) == picture.height) sum_across(", "test_data"),
    Breakage("luma is rounded down", PICTURE, " + 32768U) >> 16", ") >> 16", "test_data"),
    Breakage("a picture that has changed is trained on", PICTURES, "if (hash_of_values(out) == hashes_[index]) return {};", "return {};",
             "test_data"),
    Breakage("pictures in their files have another hash than in memory", PICTURES,
             "  hash.update(std::as_bytes(std::span(labels)));\n", "", "test_data"),
    Breakage("a piece of the pictures is checked in the place of another", PICTURES, "decode_from(first, piece));", "decode_from(0, piece));",
             "test_data"),
    Breakage("samples are made ahead of all room", AHEAD, "!to_make_.empty() && held_ < options_.most", "!to_make_.empty()", "test_data"),
    Breakage("what went wrong ahead is told to nobody", "worker/data/read_ahead.cpp", "return taken.status;", "return {};", "test_data"),
    Breakage("classes stand in the order of the disk", FOLDER, "[](const Entry& a, const Entry& b) { return a.name < b.name; }",
             "[](const Entry& a, const Entry& b) { return a.name > b.name; }", "test_data"),
    Breakage("hidden files are pictures", FOLDER, "    if (name.starts_with('.')) continue;\n", "", "test_data"),
    Breakage("a test set numbers its classes anew", FOLDER, "static_cast<std::uint8_t>(found - classes.begin())",
             "static_cast<std::uint8_t>(files.size() > 255 ? 255 : files.size())", "test_data"),
    Breakage("a test set may have a class of its own", FOLDER, "if (found == classes.end() || *found != of_class.name) {",
             "if (found == classes.end() && classes.empty()) {", "test_data"),
    Breakage("the samples of another step are read ahead", "worker/data/prefetch.cpp", "  loader.samples(step, ranks, indices);\n",
             "  loader.samples(step + 1, ranks, indices);\n", "test_data"),
    Breakage("nothing is read ahead", TOKENS, "POSIX_FADV_WILLNEED", "POSIX_FADV_NORMAL", "test_data"),
]
