// Bytes from a peer: headers and handshake messages. What is accepted must say the same when it is
// written again, and be inside its bounds.
#include <cstring>
#include <vector>

#include "common/check.h"
#include "worker/comm/frame.h"

namespace {

using namespace muster::comm;

template <std::size_t N>
std::span<const std::byte, N> first(const std::vector<std::byte>& bytes) {
  return std::span<const std::byte, N>(bytes.data(), N);
}

void try_frame(const std::vector<std::byte>& bytes) {
  const auto header = muster::comm::decode_frame_header(first<kFrameHeaderBytes>(bytes));
  if (!header) return;
  MUSTER_CHECK(header->payload_bytes > 0 && header->payload_bytes <= kFramePayloadMax);
  MUSTER_CHECK(header->payload_bytes <= header->message_bytes);
  FrameHeaderBytes again;
  encode(*header, again);
  MUSTER_CHECK(std::memcmp(again.data(), bytes.data(), again.size()) == 0);
}

// The checksum keeps random bytes out, so the fields behind it are tried with a right one.
void try_frame_with_checksum(const std::vector<std::byte>& bytes) {
  FrameHeader header;
  std::memcpy(&header.session, bytes.data(), 4);
  std::memcpy(&header.epoch, bytes.data() + 4, 8);
  std::memcpy(&header.step, bytes.data() + 12, 8);
  std::memcpy(&header.sequence, bytes.data() + 20, 8);
  std::memcpy(&header.message_bytes, bytes.data() + 28, 8);
  std::memcpy(&header.payload_bytes, bytes.data() + 36, 4);
  std::memcpy(&header.payload_crc, bytes.data() + 40, 4);
  FrameHeaderBytes encoded;
  encode(header, encoded);
  const auto decoded = decode_frame_header(encoded);
  const bool possible = header.payload_bytes > 0 && header.payload_bytes <= kFramePayloadMax &&
                        header.payload_bytes <= header.message_bytes;
  MUSTER_CHECK(decoded.has_value() == possible);
  MUSTER_CHECK(!possible || *decoded == header);
}

template <std::size_t N, typename Message>
void check_same(const Message& message, const std::vector<std::byte>& bytes) {
  std::array<std::byte, N> again{};
  encode(message, again);
  MUSTER_CHECK(std::memcmp(again.data(), bytes.data(), N) == 0);
}

void try_handshake(const std::vector<std::byte>& bytes) {
  if (const auto hello = decode_hello(first<kHelloBytes>(bytes)); hello) {
    check_same<kHelloBytes>(*hello, bytes);
  }
  if (const auto answer = decode_answer(first<kAnswerBytes>(bytes)); answer) {
    check_same<kAnswerBytes>(*answer, bytes);
  }
  if (const auto introduction = decode_introduction(first<kProofBytes>(bytes)); introduction) {
    check_same<kProofBytes>(*introduction, bytes);
  }
  if (const auto accept = decode_accept(first<kAcceptBytes>(bytes)); accept) {
    check_same<kAcceptBytes>(*accept, bytes);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // An own allocation of the exact length, so that reading past it is seen.
  std::vector<std::byte> bytes(kAnswerBytes);
  std::memcpy(bytes.data(), data, size < bytes.size() ? size : bytes.size());
  bytes.shrink_to_fit();
  try_frame(bytes);
  try_frame_with_checksum(bytes);
  try_handshake(bytes);
  static_cast<void>(parse_job_key({reinterpret_cast<const char*>(data), size}).has_value());
  return 0;
}
