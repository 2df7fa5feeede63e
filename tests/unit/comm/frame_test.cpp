#include "worker/comm/frame.h"

#include <doctest/doctest.h>

#include <cstring>

#include "common/rng.h"
#include "tests/test_main.h"

using namespace muster;
using namespace muster::comm;

namespace {

FrameHeader some_header() {
  FrameHeader header;
  header.session = 0x01020304u;
  header.epoch = 7;
  header.step = 1'000'000'007;
  header.sequence = 99;
  header.message_bytes = 300'000;
  header.payload_bytes = 262'144;
  header.payload_crc = 0xDEADBEEFu;
  return header;
}

JobKey key_of(char digit) { return *parse_job_key(std::string(64, digit)); }

Hello some_hello() {
  Hello hello{.from = 2, .to = 1, .size = 3, .epoch = 5, .nonce = {}};
  hello.nonce[3] = std::byte{42};
  return hello;
}

Answer some_answer() {
  Answer answer{.rank = 1, .epoch = 5, .nonce = {}, .proof = {}};
  answer.nonce[31] = std::byte{17};
  return answer;
}

}  // namespace

TEST_CASE("a frame header survives the wire") {
  FrameHeaderBytes bytes;
  encode(some_header(), bytes);
  const auto back = decode_frame_header(bytes);
  REQUIRE(back);
  CHECK(*back == some_header());
}

TEST_CASE("a frame header has these bytes on the wire") {
  // Made with another implementation; both sides of a connection may be of different builds.
  const std::string wire(
      "\x4d\x53\x46\x31\x07\x00\x00\x00\x03\x00\x00\x00\x00\x00"
      "\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00"
      "\x00\x00\x00\x00\x64\x00\x00\x00\x00\x00\x00\x00\x64\x00"
      "\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\xe1\xdc\x83\xe6",
      kFrameHeaderBytes);
  const FrameHeader header{.session = 7,
                           .epoch = 3,
                           .step = 1,
                           .sequence = 1,
                           .message_bytes = 100,
                           .payload_bytes = 100,
                           .payload_crc = 5};
  FrameHeaderBytes bytes;
  encode(header, bytes);
  CHECK(std::memcmp(bytes.data(), wire.data(), wire.size()) == 0);
}

TEST_CASE("a frame header with any bit turned is refused") {
  FrameHeaderBytes bytes;
  encode(some_header(), bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    FrameHeaderBytes turned = bytes;
    turned[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
    const auto header = decode_frame_header(turned);
    REQUIRE_FALSE(header);
    REQUIRE(header.error().code() == ErrorCode::kCorrupt);
  }
}

TEST_CASE("a frame header with impossible lengths is refused though its checksum is right") {
  const auto refused = [](std::uint32_t payload_bytes, std::uint64_t message_bytes) {
    FrameHeader header = some_header();
    header.payload_bytes = payload_bytes;
    header.message_bytes = message_bytes;
    FrameHeaderBytes bytes;
    encode(header, bytes);
    return !decode_frame_header(bytes).has_value();
  };
  CHECK(refused(0, 100));
  CHECK(refused(0xFFFFFFFFu, ~0ull));
  CHECK(refused(static_cast<std::uint32_t>(kFramePayloadMax) + 1, ~0ull));
  CHECK(refused(101, 100));
  CHECK_FALSE(refused(100, 100));
  CHECK_FALSE(refused(static_cast<std::uint32_t>(kFramePayloadMax), ~0ull));
}

TEST_CASE("random bytes are no frame header") {
  Rng rng(test::seed());
  for (int i = 0; i < 10000; ++i) {
    FrameHeaderBytes bytes;
    for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
    REQUIRE_FALSE(decode_frame_header(bytes));
  }
}

TEST_CASE("the messages of the handshake survive the wire and are not taken for each other") {
  std::array<std::byte, kHelloBytes> hello_bytes;
  encode(some_hello(), hello_bytes);
  const auto hello = decode_hello(hello_bytes);
  REQUIRE(hello);
  CHECK(hello->from == 2);
  CHECK(hello->to == 1);
  CHECK(hello->size == 3);
  CHECK(hello->epoch == 5);
  CHECK(hello->nonce == some_hello().nonce);

  Answer sent = some_answer();
  sent.proof[0] = std::byte{9};
  std::array<std::byte, kAnswerBytes> answer_bytes;
  encode(sent, answer_bytes);
  const auto answer = decode_answer(answer_bytes);
  REQUIRE(answer);
  CHECK(answer->rank == 1);
  CHECK(answer->epoch == 5);
  CHECK(answer->nonce == sent.nonce);
  CHECK(answer->proof == sent.proof);

  std::array<std::byte, kProofBytes> proof_bytes;
  encode(Introduction{sent.proof, {4711, 12}}, proof_bytes);
  const auto introduction = decode_introduction(proof_bytes);
  REQUIRE(introduction);
  CHECK(introduction->proof == sent.proof);
  CHECK(introduction->lane == LaneOffer{4711, 12});

  std::array<std::byte, kAcceptBytes> accept_bytes;
  for (const bool lane_is_taken : {false, true}) {
    encode(Accept{lane_is_taken}, accept_bytes);
    const auto accept = decode_accept(accept_bytes);
    REQUIRE(accept);
    CHECK(accept->lane_is_taken == lane_is_taken);
  }
  accept_bytes[4] = std::byte{2};
  CHECK_FALSE(decode_accept(accept_bytes));
  accept_bytes[4] = std::byte{1};

  CHECK_FALSE(
      decode_hello(std::span<const std::byte, kHelloBytes>(answer_bytes.data(), kHelloBytes)));
  accept_bytes[0] ^= std::byte{1};
  CHECK_FALSE(decode_accept(accept_bytes));
}

TEST_CASE("a proof fits one key, role, job, pair of ranks, epoch and pair of nonces") {
  const Proof right = make_proof(key_of('a'), "listener", "uid-1", some_hello(), some_answer());
  CHECK(equal(right, make_proof(key_of('a'), "listener", "uid-1", some_hello(), some_answer())));
  CHECK_FALSE(
      equal(right, make_proof(key_of('b'), "listener", "uid-1", some_hello(), some_answer())));
  CHECK_FALSE(
      equal(right, make_proof(key_of('a'), "dialer", "uid-1", some_hello(), some_answer())));
  CHECK_FALSE(
      equal(right, make_proof(key_of('a'), "listener", "uid-2", some_hello(), some_answer())));

  const auto with_hello = [&](auto change) {
    Hello hello = some_hello();
    change(hello);
    return equal(right, make_proof(key_of('a'), "listener", "uid-1", hello, some_answer()));
  };
  CHECK_FALSE(with_hello([](Hello& h) { h.from = 0; }));
  CHECK_FALSE(with_hello([](Hello& h) { h.to = 0; }));
  CHECK_FALSE(with_hello([](Hello& h) { h.size = 4; }));
  CHECK_FALSE(with_hello([](Hello& h) { h.epoch = 6; }));
  CHECK_FALSE(with_hello([](Hello& h) { h.nonce[0] = std::byte{1}; }));
  const auto with_answer = [&](auto change) {
    Answer answer = some_answer();
    change(answer);
    return equal(right, make_proof(key_of('a'), "listener", "uid-1", some_hello(), answer));
  };
  CHECK_FALSE(with_answer([](Answer& a) { a.nonce[0] = std::byte{1}; }));
  CHECK_FALSE(with_answer([](Answer& a) { a.epoch = 6; }));
  CHECK_MESSAGE(with_answer([](Answer& a) { a.proof[0] = std::byte{1}; }),
                "the proof does not cover itself");
}

TEST_CASE("a job key that is not 64 hexadecimal digits is refused without being repeated") {
  CHECK(parse_job_key(std::string(32, 'a') + std::string(32, 'F')));
  for (const std::string& wrong :
       {std::string(63, 'a'), std::string(65, 'a'), std::string(), std::string(63, 'a') + "g"}) {
    const auto key = parse_job_key(wrong);
    REQUIRE_FALSE(key);
    CHECK(key.error().code() == ErrorCode::kInvalid);
    CHECK(key.error().message() == "the job key must be 64 hexadecimal digits");
  }
}
