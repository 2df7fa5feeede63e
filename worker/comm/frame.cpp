#include "worker/comm/frame.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>
#include <vector>

#include "worker/comm/crc32c.h"

namespace muster::comm {
namespace {

// The last character is the version of the protocol: another version is another protocol.
constexpr std::uint32_t kFrameMagic = 0x3146534Du;   // "MSF1"
constexpr std::uint32_t kHelloMagic = 0x3148534Du;   // "MSH1"
constexpr std::uint32_t kAnswerMagic = 0x3141534Du;  // "MSA1"
constexpr std::uint32_t kProofMagic = 0x3250534Du;   // "MSP2"
constexpr std::uint32_t kAcceptMagic = 0x324B534Du;  // "MSK2"

// Sizes are fixed by the callers' array types, so neither side checks bounds at run time.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(at) {}
  template <typename T>
  void integer(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) *at_++ = static_cast<std::byte>(value >> (8 * i));
  }
  void bytes(std::span<const std::byte> from) {
    std::memcpy(at_, from.data(), from.size());
    at_ += from.size();
  }

 private:
  std::byte* at_;
};

class Reader {
 public:
  explicit Reader(const std::byte* at) : at_(at) {}
  template <typename T>
  T integer() {
    T value = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      value = static_cast<T>(value | static_cast<T>(static_cast<T>(*at_++) << (8 * i)));
    }
    return value;
  }
  void bytes(std::span<std::byte> to) {
    std::memcpy(to.data(), at_, to.size());
    at_ += to.size();
  }

 private:
  const std::byte* at_;
};

Error corrupt(const char* what) { return Error(ErrorCode::kCorrupt, what); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void encode(const FrameHeader& header, FrameHeaderBytes& out) {
  Writer writer(out.data());
  writer.integer(kFrameMagic);
  writer.integer(header.session);
  writer.integer(header.epoch);
  writer.integer(header.step);
  writer.integer(header.sequence);
  writer.integer(header.message_bytes);
  writer.integer(header.payload_bytes);
  writer.integer(header.payload_crc);
  writer.integer(std::uint32_t{0});
  writer.integer(crc32c(0, out.data(), kFrameHeaderBytes - 4));
}

Result<FrameHeader> decode_frame_header(std::span<const std::byte, kFrameHeaderBytes> bytes) {
  Reader reader(bytes.data());
  if (reader.integer<std::uint32_t>() != kFrameMagic) return corrupt("not a frame");
  FrameHeader header;
  header.session = reader.integer<std::uint32_t>();
  header.epoch = reader.integer<std::uint64_t>();
  header.step = reader.integer<std::uint64_t>();
  header.sequence = reader.integer<std::uint64_t>();
  header.message_bytes = reader.integer<std::uint64_t>();
  header.payload_bytes = reader.integer<std::uint32_t>();
  header.payload_crc = reader.integer<std::uint32_t>();
  const auto reserved = reader.integer<std::uint32_t>();
  if (reader.integer<std::uint32_t>() != crc32c(0, bytes.data(), kFrameHeaderBytes - 4)) {
    return corrupt("the frame header does not match its checksum");
  }
  if (header.payload_bytes == 0 || header.payload_bytes > kFramePayloadMax ||
      header.payload_bytes > header.message_bytes || reserved != 0) {
    return corrupt("a frame with impossible lengths");
  }
  return header;
}

void encode(const Hello& hello, std::span<std::byte, kHelloBytes> out) {
  Writer writer(out.data());
  writer.integer(kHelloMagic);
  writer.integer(hello.from);
  writer.integer(hello.to);
  writer.integer(hello.size);
  writer.integer(hello.epoch);
  writer.bytes(hello.nonce);
}

Result<Hello> decode_hello(std::span<const std::byte, kHelloBytes> bytes) {
  Reader reader(bytes.data());
  if (reader.integer<std::uint32_t>() != kHelloMagic)
    return corrupt("not a hello of this protocol");
  Hello hello;
  hello.from = reader.integer<std::uint32_t>();
  hello.to = reader.integer<std::uint32_t>();
  hello.size = reader.integer<std::uint32_t>();
  hello.epoch = reader.integer<std::uint64_t>();
  reader.bytes(hello.nonce);
  return hello;
}

void encode(const Answer& answer, std::span<std::byte, kAnswerBytes> out) {
  Writer writer(out.data());
  writer.integer(kAnswerMagic);
  writer.integer(answer.rank);
  writer.integer(answer.epoch);
  writer.bytes(answer.nonce);
  writer.bytes(answer.proof);
}

Result<Answer> decode_answer(std::span<const std::byte, kAnswerBytes> bytes) {
  Reader reader(bytes.data());
  if (reader.integer<std::uint32_t>() != kAnswerMagic) {
    return corrupt("not an answer of this protocol");
  }
  Answer answer;
  answer.rank = reader.integer<std::uint32_t>();
  answer.epoch = reader.integer<std::uint64_t>();
  reader.bytes(answer.nonce);
  reader.bytes(answer.proof);
  return answer;
}

void encode(const Introduction& introduction, std::span<std::byte, kProofBytes> out) {
  Writer writer(out.data());
  writer.integer(kProofMagic);
  writer.bytes(introduction.proof);
  writer.integer(introduction.lane.pid);
  writer.integer(introduction.lane.fd);
}

Result<Introduction> decode_introduction(std::span<const std::byte, kProofBytes> bytes) {
  Reader reader(bytes.data());
  if (reader.integer<std::uint32_t>() != kProofMagic)
    return corrupt("not a proof of this protocol");
  Introduction introduction;
  reader.bytes(introduction.proof);
  introduction.lane.pid = reader.integer<std::uint32_t>();
  introduction.lane.fd = reader.integer<std::uint32_t>();
  return introduction;
}

void encode(const Accept& accept, std::span<std::byte, kAcceptBytes> out) {
  Writer writer(out.data());
  writer.integer(kAcceptMagic);
  writer.integer(std::uint32_t{accept.lane_is_taken});
}

Result<Accept> decode_accept(std::span<const std::byte, kAcceptBytes> bytes) {
  Reader reader(bytes.data());
  if (reader.integer<std::uint32_t>() != kAcceptMagic) {
    return corrupt("not an accept of this protocol");
  }
  const auto lane = reader.integer<std::uint32_t>();
  if (lane > 1) return corrupt("not an accept of this protocol");
  return Accept{lane == 1};
}

Result<JobKey> parse_job_key(std::string_view hex) {
  JobKey key{};
  const Error wrong(ErrorCode::kInvalid, "the job key must be 64 hexadecimal digits");
  if (hex.size() != 2 * key.size()) return wrong;
  for (std::size_t i = 0; i < key.size(); ++i) {
    const int high = hex_digit(hex[2 * i]);
    const int low = hex_digit(hex[2 * i + 1]);
    if (high < 0 || low < 0) return wrong;
    key[i] = static_cast<std::byte>(high * 16 + low);
  }
  return key;
}

Proof make_proof(const JobKey& key, std::string_view role, const std::string& job_uid,
                 const Hello& hello, const Answer& answer) {
  // Fixed-size parts first, so that no two different inputs give the same string.
  std::vector<std::byte> text(kHelloBytes + kAnswerBytes);
  encode(hello, std::span<std::byte, kHelloBytes>(text.data(), kHelloBytes));
  Answer unsigned_answer = answer;
  unsigned_answer.proof = Proof{};
  encode(unsigned_answer,
         std::span<std::byte, kAnswerBytes>(text.data() + kHelloBytes, kAnswerBytes));
  for (const char c : role) text.push_back(static_cast<std::byte>(c));
  text.push_back(std::byte{0});
  for (const char c : job_uid) text.push_back(static_cast<std::byte>(c));

  Proof proof{};
  unsigned int length = 0;
  const unsigned char* made = HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
                                   reinterpret_cast<const unsigned char*>(text.data()), text.size(),
                                   reinterpret_cast<unsigned char*>(proof.data()), &length);
  MUSTER_CHECK(made != nullptr && length == proof.size());
  return proof;
}

bool equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::uint32_t session_of(const JobKey& key, const std::string& job_uid, const Hello& hello,
                         const Answer& answer) {
  const Proof proof = make_proof(key, "session", job_uid, hello, answer);
  return Reader(proof.data()).integer<std::uint32_t>();
}

}  // namespace muster::comm
