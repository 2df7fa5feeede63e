#include "common/caught.h"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "common/contract.h"

using namespace muster;

namespace {

template <typename Thrown>
Error error_of(const Thrown& thrown) {
  try {
    throw thrown;
  } catch (...) {
    return caught_error();
  }
}

}  // namespace

TEST_CASE("an exception becomes an error that says what is lacking") {
  const Error memory = error_of(std::bad_alloc());
  CHECK(memory.exit_code() == contract::exit_code::kOutOfMemory);
  CHECK(memory.message().find("spec.worker.resources.memory") != std::string::npos);
  const Error thread =
      error_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  CHECK(thread.exit_code() == contract::exit_code::kInternal);
  CHECK(thread.message().starts_with("the system gives no more threads; raise the limit of "));
  const Error file = error_of(std::system_error(std::make_error_code(std::errc::io_error)));
  CHECK(file.message() == std::make_error_code(std::errc::io_error).message());
  const Error other = error_of(std::runtime_error("no thread"));
  CHECK(other.exit_code() == contract::exit_code::kInternal);
  CHECK(other.message() == "no thread");
  CHECK(error_of(7).exit_code() == contract::exit_code::kInternal);
}

TEST_CASE(
    "an exception in what is done for one of many is that one's error, unless memory is out") {
  const auto broken = []() -> Result<int> { throw std::out_of_range("map::at"); };
  const Result<int> thrown = run_apart(broken);
  REQUIRE_FALSE(thrown.has_value());
  CHECK(thrown.error().code() == ErrorCode::kInternal);
  CHECK(thrown.error().message() == "an exception: map::at");
  CHECK(run_apart([]() -> Result<int> { return 7; }).value() == 7);
  CHECK_FALSE(run_apart([]() -> Status { throw 7; }).has_value());
  CHECK_THROWS_AS((void)run_apart([]() -> Status { throw std::bad_alloc(); }), std::bad_alloc);
}
