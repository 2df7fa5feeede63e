// The golden hash (docs/numerics.md): what training examples/digits.yaml to its
// end gives, on every machine, whatever the workers. It changes only with the contract's version.
#pragma once

namespace muster::test {

inline constexpr const char* kDigitsGolden =
    "f469d9fcde6bcaeb00a49ba16347187b445165455e7198747f7c87363f860f1d";
/// The same of examples/digits-cnn.yaml: convolution, batch normalisation, dropout.
inline constexpr const char* kDigitsCnnGolden =
    "292db2a94283e9711330da6f3c297bd72e16038076b3ec723f1e645f5c1d81cc";
/// The same of a GPT of two blocks after 12 steps with AdamW and clipping (small_gpt() of the
/// engine's tests).
inline constexpr const char* kSmallGptGolden =
    "77beb0907be3c84a457aceeab5137ad3c1c0db134f759f970ef0b02980f8064d";
/// The same with dropout 0.25 and attentionDropout 0.125 (dropped_gpt()).
inline constexpr const char* kDroppedGptGolden =
    "7d7eef045dca1897b4d7a6e2aa6ff9673ab8377b1059f7ef74d8859c5cd2b192";
/// The same as kSmallGptGolden with products of bfloat16, by bf16-chain/1.
inline constexpr const char* kSmallGptBfloat16Golden =
    "571e3633afba44861a1792b541fa595fdd28040abaee6c3c42cb22b3d3d155e4";
inline constexpr int kDigitsSteps = 20 * 22;

}  // namespace muster::test
