// A GPT's losses and gradients beside PyTorch's, found in double by make_gpt_reference.py: no
// further from them than twice what PyTorch is itself in the same arithmetic. Source of the rule:
// Dao et al., FlashAttention, arXiv:2205.14135, its tests.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "common/file.h"
#include "kernels/ops.h"
#include "worker/engine/model.h"
#include "worker/engine/safetensors.h"

using namespace muster;
using namespace muster::engine;

namespace {

constexpr std::size_t kTorchRows = 8, kTorchContext = 24, kTorchVocabulary = 48;
constexpr std::size_t kMaxReferenceBytes = std::size_t{1} << 20;

std::uint32_t torch_mixed(std::uint32_t stream, std::size_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) + stream * 1'000'003u;
  for (int round = 0; round < 2; ++round) x = (x ^ (x >> 16)) * 0x45D9F3Bu;
  return x ^ (x >> 16);
}

std::vector<float> torch_first_values(const ModelShape& shape) {
  std::vector<float> values(shape.values());
  std::uint32_t stream = 0;
  for (const Tensor& tensor : shape.tensors()) {
    const bool is_scale =
        tensor.name.find("ln_") != std::string::npos && tensor.name.ends_with("weight");
    for (std::size_t i = 0; i < tensor.size; ++i) {
      values[tensor.offset + i] = static_cast<float>(torch_mixed(stream, i) >> 8) * 0x1p-24f - 0.5f;
      if (is_scale) values[tensor.offset + i] += 1.0f;
    }
    ++stream;
  }
  return values;
}

/// The losses, behind which stand the gradients of their mean.
struct FoundByUs {
  std::vector<float> losses, gradient;
};

FoundByUs found_by_us(const ModelShape& shape, kernels::Products products, std::size_t ranks) {
  kernels::cpu::Context context(1, products);
  Model model(shape, kTorchRows, context);
  for (std::size_t i = 0; i < kTorchRows * kTorchContext; ++i) {
    model.tokens()[i] = static_cast<std::int32_t>(torch_mixed(101, i) % kTorchVocabulary);
    model.labels()[i] = static_cast<std::int32_t>(torch_mixed(102, i) % kTorchVocabulary);
  }
  const std::vector<float> values = torch_first_values(shape);
  FoundByUs found;
  found.gradient.resize(shape.values());
  const std::vector<Model::Node> nodes{{0, ranks, found.gradient.data(), 0}};
  const Model::Batch batch{1, 0, kTorchRows / ranks, nodes};
  model.use(values);
  model.forward(batch);
  model.losses_with_gradient(batch, 1.0f / static_cast<float>(kTorchRows * kTorchContext));
  model.backward(batch);
  found.losses.assign(model.loss().begin(), model.loss().end());
  return found;
}

struct TorchReference {
  std::string bytes;
  SafetensorsFile file;

  TorchReference() {
    auto read = read_file("tests/unit/engine/gpt_reference.safetensors", kMaxReferenceBytes);
    REQUIRE(read);
    bytes = *std::move(read);
    auto parsed =
        parse_safetensors({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
    REQUIRE(parsed);
    file = *std::move(parsed);
  }
  double value(const std::string& name, std::size_t i) const {
    double out = 0;
    std::memcpy(&out, file.tensors.at(name).bytes.data() + i * sizeof out, sizeof out);
    return out;
  }
  /// How far PyTorch is from it in that arithmetic, at worst.
  double torch_error(const std::string& kind, const std::string& name) const {
    return std::stod(file.metadata.at(kind + "." + name));
  }
  double error_of(const std::string& name, const float* ours) const {
    double worst = 0;
    const std::size_t count = file.tensors.at(name).bytes.size() / sizeof(double);
    for (std::size_t i = 0; i < count; ++i) {
      const double off = std::abs(static_cast<double>(ours[i]) - value(name, i));
      worst = off <= worst ? worst : off;  // a NaN is the worst of all
    }
    return worst;
  }
};

}  // namespace

TEST_CASE("a transformer is as near to the truth as PyTorch is, in fp32 and in bfloat16") {
  const TorchReference reference;
  const ModelShape shape = ModelShape::gpt({2, 2, 32, kTorchContext}, kTorchVocabulary);
  for (const auto products : {kernels::Products::kFloat32, kernels::Products::kBfloat16}) {
    const bool is_half = products == kernels::Products::kBfloat16;
    const std::string kind = is_half ? "bfloat16" : "float32";
    for (const std::size_t ranks : {1u, 8u}) {
      const FoundByUs found = found_by_us(shape, products, ranks);
      // One logical rank adds the rows of a bias' gradient in one chain of 192, PyTorch pairwise.
      const double most = is_half || ranks > 1 ? 2 : 8;
      double worst = 0;
      const auto compare = [&](const std::string& name, const float* ours) {
        CAPTURE(kind);
        CAPTURE(name);
        const double times = reference.error_of(name, ours) / reference.torch_error(kind, name);
        CHECK(times <= most);
        worst = std::max(worst, times);
      };
      compare("loss", found.losses.data());
      for (const Tensor& tensor : shape.tensors()) {
        compare(tensor.name, &found.gradient[tensor.offset]);
      }
      MESSAGE(kind << ", " << ranks << " logical ranks: at most " << worst
                   << " times PyTorch's error");
    }
  }
}
