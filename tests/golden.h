// The golden hash (ARCHITECTURE.md, "Numerics contract"): what training examples/digits.yaml to its
// end gives, on every machine, whatever the workers. It changes only with the contract's version.
#pragma once

namespace muster::test {

inline constexpr const char* kDigitsGolden =
    "f469d9fcde6bcaeb00a49ba16347187b445165455e7198747f7c87363f860f1d";
inline constexpr int kDigitsSteps = 20 * 22;

}  // namespace muster::test
