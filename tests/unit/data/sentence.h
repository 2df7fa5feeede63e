// What is said of data that cannot be right.
#pragma once

#include <doctest/doctest.h>

#include <string>

#include "common/contract.h"
#include "common/result.h"

namespace muster::test {

/// The sentence of the error, after checking that it is one about the data.
template <typename T>
std::string sentence_of(const Result<T>& result) {
  REQUIRE_FALSE(result.has_value());
  CHECK(result.error().exit_code() == contract::exit_code::kData);
  return result.error().message();
}

/// The same without what must stand in front of it.
template <typename T>
std::string sentence_behind(const std::string& front, const Result<T>& result) {
  const std::string sentence = sentence_of(result);
  REQUIRE(sentence.starts_with(front));
  return sentence.substr(front.size());
}

}  // namespace muster::test
