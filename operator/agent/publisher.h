// Keeps the annotation of one node equal to what its sysfs says. One thread calls it again and
// again; it starts none and waits for nothing but the API server's answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/result.h"
#include "common/rng.h"
#include "operator/kube/api_client.h"

namespace muster::agent {

/// Looks that find nothing new ask the API server this seldom whether the annotation still stands:
/// ten thousand agents that all asked each minute would be most of its requests.
inline constexpr int kLooksBetweenReads = 10;

struct PublisherOptions {
  kube::ApiClient* client = nullptr;  ///< outlives the publisher
  std::string node;                   ///< its own
  std::string sysfs = "/sys";
  milliseconds period{60'000};
  milliseconds retry_least{5'000};  ///< after a first failure; doubled with each one after it
  milliseconds retry_most{300'000};
  std::uint64_t seed = 1;  ///< of the jitter, so that agents do not ask in step
};

/// What came of one look, and how long to wait before the next one.
struct Look {
  Status status;
  milliseconds wait{0};
};

class Publisher {
 public:
  explicit Publisher(PublisherOptions options);

  /// Reads sysfs, and writes the annotation when it is another. What goes wrong is logged, too, and
  /// leaves what stands. Blocks: on sysfs, and for two exchanges at most.
  Look look();

 private:
  Status publish();
  Status bring(const std::string& text);
  milliseconds back_off(const Error& error);
  milliseconds jittered(milliseconds wait);

  const PublisherOptions options_;
  Rng rng_;
  std::optional<std::string> published_;  ///< what stood at the last read
  int looks_since_read_ = 0;
  int failures_ = 0;  ///< in a row
};

}  // namespace muster::agent
