#include "tests/unit/engine/gpt_in_double.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <string>

#include "common/check.h"
#include "common/rng.h"

namespace muster::test {
namespace {

using Vector = std::vector<double>;
using Rows = std::vector<Vector>;  ///< by position
using engine::LayerKind;

/// The tensors of a model by their names.
class Named {
 public:
  Named(const engine::ModelShape& shape, const Vector& values) : shape_(shape), values_(values) {}

  const double* of(const std::string& name) const { return values_.data() + tensor(name).offset; }
  const engine::Tensor& tensor(const std::string& name) const {
    const auto& all = shape_.tensors();
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
    MUSTER_CHECK_MSG(found != all.end(), name);
    return *found;
  }
  bool has_block(std::size_t block) const {
    const std::string name = "h." + std::to_string(block) + ".ln_1.weight";
    return std::any_of(shape_.tensors().begin(), shape_.tensors().end(),
                       [&](const auto& one) { return one.name == name; });
  }
  /// Of the layer of that name; of the dropout behind the embedding where it is empty.
  const engine::LayerShape* dropping(const std::string& name) const {
    return dropping_of(
        [&](const auto& one) { return one.name == name && one.kind != LayerKind::kAttention; });
  }
  /// Of that block's attention.
  const engine::LayerShape* dropping_weights(std::size_t block) const {
    return dropping_of(
        [&](const auto& one) { return one.kind == LayerKind::kAttention && block-- == 0; });
  }
  std::size_t heads() const {
    for (const auto& layer : shape_.layers()) {
      if (layer.heads > 0) return layer.heads;
    }
    return 1;
  }

 private:
  template <typename Is>
  const engine::LayerShape* dropping_of(Is is) const {
    const auto& all = shape_.layers();
    const auto found = std::find_if(all.begin(), all.end(), is);
    return found == all.end() || !(found->dropout > 0) ? nullptr : &*found;
  }

  const engine::ModelShape& shape_;
  const Vector& values_;
};

Rows normalised(const Named& named, const std::string& name, const Rows& x) {
  const double* const weight = named.of(name + ".weight");
  const double* const bias = named.of(name + ".bias");
  Rows y = x;
  for (Vector& row : y) {
    double mean = 0, variance = 0;
    for (const double v : row) mean += v / static_cast<double>(row.size());
    for (const double v : row)
      variance += (v - mean) * (v - mean) / static_cast<double>(row.size());
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = (row[c] - mean) / std::sqrt(variance + 1e-5f) * weight[c] + bias[c];
    }
  }
  return y;
}

/// Weights are (in, out), as GPT-2 stores them.
Rows projected(const Named& named, const std::string& name, const Rows& x) {
  const auto& shape = named.tensor(name + ".weight").shape;
  const double* const weight = named.of(name + ".weight");
  const double* const bias = named.of(name + ".bias");
  Rows y;
  for (const Vector& row : x) {
    Vector out(shape[1]);
    for (std::size_t n = 0; n < shape[1]; ++n) {
      out[n] = bias[n];
      for (std::size_t k = 0; k < shape[0]; ++k) {
        out[n] += row[k] * weight[k * shape[1] + n];
      }
    }
    y.push_back(std::move(out));
  }
  return y;
}

/// What becomes of the weight of position i for position j, of all T.
using Kept = std::function<double(std::size_t head, std::size_t i, std::size_t j)>;

/// docs/numerics.md, "Attention's dropout"; of an evaluation all stay as they are.
Kept kept_weights(const engine::LayerShape* layer, const std::optional<TrainedRow>& trained,
                  std::size_t T) {
  if (layer == nullptr || !trained) return [](auto...) { return 1.0; };
  const std::uint64_t key = dropout_key(*layer, trained->batch);
  const std::uint32_t row = row_of(trained->batch, trained->row);
  const double share = double{layer->dropout};
  return [=](std::size_t head, std::size_t i, std::size_t j) {
    const std::size_t at = (head * T + i) * ((T + 7) / 8 * 8) + j;
    const std::uint32_t word = random_bits(key, RngStream::kDropout, row, at / 2);
    const std::uint32_t half = at % 2 == 0 ? word % 65536 : word / 65536;
    return half / 65536.0 < share ? 0.0 : 1 / (1 - share);
  };
}

Rows attended(const Rows& qkv, std::size_t heads, const Kept& kept) {
  const std::size_t width = qkv[0].size() / 3, size = width / heads;
  Rows y(qkv.size(), Vector(width));
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t i = 0; i < qkv.size(); ++i) {
      Vector share;
      for (std::size_t j = 0; j <= i; ++j) {
        double score = 0;
        for (std::size_t d = 0; d < size; ++d) {
          score += qkv[i][head * size + d] * qkv[j][width + head * size + d];
        }
        share.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
      }
      double total = 0;
      for (const double s : share) total += s;
      for (std::size_t j = 0; j <= i; ++j) {
        const double weight = share[j] / total * kept(head, i, j);
        for (std::size_t d = 0; d < size; ++d) {
          y[i][head * size + d] += weight * qkv[j][2 * width + head * size + d];
        }
      }
    }
  }
  return y;
}

double gelu(double x) {
  const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}

void add(Rows& to, const Rows& what) {
  for (std::size_t t = 0; t < to.size(); ++t) {
    for (std::size_t c = 0; c < to[t].size(); ++c) to[t][c] += what[t][c];
  }
}

/// All positions of a sequence are one row of what drops.
Rows dropped(const engine::LayerShape* layer, const std::optional<TrainedRow>& trained, Rows x) {
  if (layer == nullptr || !trained) return x;
  Vector flat;
  for (const Vector& row : x) flat.insert(flat.end(), row.begin(), row.end());
  drop(*layer, trained->batch, trained->row, flat);
  auto next = flat.begin();
  for (Vector& row : x) {
    for (double& value : row) value = *next++;
  }
  return x;
}

}  // namespace

Rows gpt_logits(const engine::ModelShape& shape, const Vector& values,
                const std::vector<std::int32_t>& tokens, const std::optional<TrainedRow>& trained) {
  const Named named(shape, values);
  const auto& table = named.tensor("wte.weight").shape;
  const double* const tokens_table = named.of("wte.weight");
  const double* const positions = named.of("wpe.weight");
  Rows stream;
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    Vector row(table[1]);
    for (std::size_t c = 0; c < table[1]; ++c) {
      row[c] = tokens_table[static_cast<std::size_t>(tokens[t]) * table[1] + c] +
               positions[t * table[1] + c];
    }
    stream.push_back(std::move(row));
  }
  stream = dropped(named.dropping(""), trained, std::move(stream));
  const auto add_branch = [&](const std::string& last, const Rows& x) {
    add(stream, dropped(named.dropping(last), trained, projected(named, last, x)));
  };
  for (std::size_t block = 0; named.has_block(block); ++block) {
    const std::string name = "h." + std::to_string(block) + ".";
    const Rows qkv =
        projected(named, name + "attn.c_attn", normalised(named, name + "ln_1", stream));
    const Kept kept = kept_weights(named.dropping_weights(block), trained, tokens.size());
    add_branch(name + "attn.c_proj", attended(qkv, named.heads(), kept));
    Rows wide = projected(named, name + "mlp.c_fc", normalised(named, name + "ln_2", stream));
    for (Vector& row : wide) std::transform(row.begin(), row.end(), row.begin(), gelu);
    add_branch(name + "mlp.c_proj", wide);
  }
  Rows logits;
  for (const Vector& row : normalised(named, "ln_f", stream)) {
    Vector of_all(table[0]);
    for (std::size_t n = 0; n < table[0]; ++n) {
      for (std::size_t c = 0; c < table[1]; ++c) {
        of_all[n] += row[c] * tokens_table[n * table[1] + c];
      }
    }
    logits.push_back(std::move(of_all));
  }
  return logits;
}

double gpt_loss(const engine::ModelShape& shape, const Vector& values, const ModelBatch& batch,
                bool evaluates) {
  const std::size_t length = shape.targets();
  double total = 0;
  for (std::size_t row = 0; row < batch.rows(); ++row) {
    const auto begin = batch.tokens.begin() + static_cast<std::ptrdiff_t>(row * length);
    std::optional<TrainedRow> trained;
    if (!evaluates) trained.emplace(TrainedRow{batch, row});
    const Rows logits =
        gpt_logits(shape, values, {begin, begin + static_cast<std::ptrdiff_t>(length)}, trained);
    for (std::size_t t = 0; t < length; ++t) {
      total += loss_of(logits[t], batch.labels[row * length + t]);
    }
  }
  return total / static_cast<double>(batch.rows() * length);
}

}  // namespace muster::test
