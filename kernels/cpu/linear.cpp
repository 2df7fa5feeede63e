// y = x w + b and dx = dy w^T: rows of the left matrix are read in place, the right matrix is
// packed into panels that all threads share.
#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Steps of a chain before the next tile takes its turn, so that a panel stays in the first cache.
constexpr std::size_t kStepsBlock = 256;
/// Floats of A that are computed against all panels of a group before the next rows: a share of the
/// second cache.
std::size_t rows_floats() { return second_cache_floats() / 2; }
/// Up to here a panel's rows are all computed at once.
std::size_t few_rows_max() { return second_cache_floats() / 512; }

/// A range of panels, and where they lie packed; or in place when no panel is worth packing.
struct Group {
  std::size_t first, end;
  const float* packed;
  std::size_t packed_first;  // offset of panel `first`
};

const float* column_of(const Product& product, std::size_t column) {
  return product.b + column * (product.transposed ? product.b_stride : 1);
}

/// Whether panel is read where it lies: its columns are whole vectors and few rows meet it.
bool in_place(const Product& product, const TileTable& tiles, const Panel& panel) {
  return !product.transposed && product.rows <= 2 * tiles.rows &&
         panel.columns == panel.vectors * tiles.lanes;
}

/// Some steps of a panel of B.
struct RightPanel {
  const float* from;
  std::size_t stride;
  float* copy = nullptr;  // where the first tile packs it; or nullptr: read as it lies
  Ahead ahead = {};       // what is wanted after it
};

/// One panel of B over some rows and steps.
void compute_panel(const Product& product, const TileTable& tiles, const Panel& panel,
                   const RightPanel& b, Range rows, Range steps) {
  const bool final = steps.end == product.steps;
  Tile tile{};
  tile.a_stride = product.a_stride;
  tile.b = b.from;
  tile.b_stride = b.stride;
  tile.b_copy = b.copy;
  tile.steps = steps.end - steps.begin;
  tile.c_stride = product.columns;
  tile.next_stride = product.columns;
  tile.columns = panel.columns;
  tile.reload = product.goes_on || steps.begin != 0;
  tile.bias = final && product.bias != nullptr ? product.bias + panel.first : nullptr;
  tile.relu = final && product.relu;
  const std::size_t count = (rows.end - rows.begin + tiles.rows - 1) / tiles.rows;
  for (std::size_t row = rows.begin; row < rows.end; row += tiles.rows) {
    const std::size_t at = row * product.columns + panel.first;
    tile.a = product.a + row * product.a_stride + steps.begin;
    tile.c = product.c + at;
    tile.mask = final && product.mask != nullptr ? product.mask + at : nullptr;
    tile.rows = least(tiles.rows, rows.end - row);
    const bool more = row + 2 * tiles.rows <= rows.end;
    tile.next = more ? tile.c + tiles.rows * product.columns : nullptr;
    b.ahead.share((row - rows.begin) / tiles.rows, count, tile);
    tiles.by_rows[panel.vectors - 1](tile);
    if (tile.b_copy == nullptr) continue;
    tile.b = tile.b_copy;
    tile.b_stride = panel.columns;
    tile.b_copy = nullptr;
  }
}

void compute_block(const Product& product, const TileTable& tiles, const Panels& panels,
                   const Group& group, std::size_t index, Range rows, Range steps) {
  const Panel panel = panels[index];
  if (in_place(product, tiles, panel)) {
    const float* b = product.b + steps.begin * product.b_stride + panel.first;
    compute_panel(product, tiles, panel, {b, product.b_stride}, rows, steps);
  } else {
    const std::size_t width = panel.vectors * tiles.lanes;
    const float* packed =
        group.packed + (panels.packed_size(index, product.steps) - group.packed_first);
    compute_panel(product, tiles, panel, {packed + steps.begin * width, width}, rows, steps);
  }
}

void pack_panel(const Product& product, const TileTable& tiles, const Panel& panel, Range steps,
                float* out) {
  const std::size_t width = panel.vectors * tiles.lanes;
  const std::size_t count = steps.end - steps.begin;
  const float* from =
      column_of(product, panel.first) + steps.begin * (product.transposed ? 1 : product.b_stride);
  if (product.transposed) {
    tiles.pack_transposed(from, product.b_stride, count, panel.columns, width, out);
  } else {
    tiles.pack(from, product.b_stride, count, panel.columns, width, out);
  }
}

/// What pack_panel would read.
Ahead unpacked(const Product& product, const Panel& panel, Range steps) {
  const std::size_t count = steps.end - steps.begin;
  const float* from = column_of(product, panel.first);
  if (product.transposed) return {from + steps.begin, panel.columns, count, product.b_stride};
  return {from + steps.begin * product.b_stride, count, panel.columns, product.b_stride};
}

/// Few rows: each thread packs a block of a panel, where it can while its first tile multiplies,
/// and uses it at once, while it is in the first cache. Written out whole, the packed matrix would
/// be read as often as the matrix itself.
void multiply_few_rows(Context& context, const Product& product, const TileTable& tiles,
                       const Panels& panels) {
  const StepBlocks blocks(product.steps, kStepsBlock);
  parallel_for(context, panels.count(), [&](std::size_t index, std::size_t thread) {
    const Panel panel = panels[index];
    const std::size_t width = panel.vectors * tiles.lanes;
    float* packed = thread_scratch(context, thread).reserve((kStepsBlock + 4) * width);
    for (std::size_t block = 0; block < blocks.count(); ++block) {
      const Range steps = blocks.range(block);
      RightPanel b{packed, width};
      if (!product.transposed && panel.columns == width) {
        const float* from = product.b + steps.begin * product.b_stride + panel.first;
        b = {from, product.b_stride, packed};
      } else {
        pack_panel(product, tiles, panel, steps, packed);
      }
      if (block + 1 < blocks.count()) {
        b.ahead = unpacked(product, panel, blocks.range(block + 1));
      } else if (index + 1 < panels.count()) {
        b.ahead = unpacked(product, panels[index + 1], blocks.range(0));
      }
      compute_panel(product, tiles, panel, b, {0, product.rows}, steps);
    }
  });
}

/// Panels of one group over all rows.
void compute_group(Context& context, const Product& product, const TileTable& tiles,
                   const Panels& panels, const Group& group) {
  const Shares shares(static_cast<std::size_t>(context.threads()), product.rows, tiles.rows,
                      rows_of_task(rows_floats(), product.steps, tiles.rows),
                      {group.first, group.end});
  const StepBlocks blocks(product.steps, kStepsBlock);
  parallel_for(context, shares.count(), [&](std::size_t index, std::size_t) {
    const Share share = shares[index];
    for (std::size_t i = share.panels.begin; i < share.panels.end; ++i) {
      for (std::size_t block = 0; block < blocks.count(); ++block) {
        const Range steps = blocks.range(block);
        compute_block(product, tiles, panels, group, i, share.rows, steps);
      }
    }
  });
}

void multiply_many_rows(Context& context, const Product& product, const TileTable& table,
                        const Panels& panels) {
  const std::size_t width = table.lanes * table.vectors_max;
  std::size_t panels_group =
      product.steps == 0 ? panels.count() : kPackedFloats / (product.steps * width);
  if (panels_group == 0) panels_group = 1;
  for (std::size_t first = 0; first < panels.count(); first += panels_group) {
    Group group{first, least(panels.count(), first + panels_group), nullptr, 0};
    group.packed_first = panels.packed_size(group.first, product.steps);
    const std::size_t size = panels.packed_size(group.end, product.steps) - group.packed_first;
    float* packed = shared_scratch(context).reserve(size);
    group.packed = packed;
    parallel_for(context, group.end - group.first, [&](std::size_t index, std::size_t) {
      const Panel panel = panels[group.first + index];
      if (in_place(product, table, panel)) return;
      const std::size_t offset = panels.packed_size(group.first + index, product.steps);
      pack_panel(product, table, panel, {0, product.steps}, packed + (offset - group.packed_first));
    });
    compute_group(context, product, table, panels, group);
  }
}

void multiply(Context& context, const Product& product) {
  if (product.rows == 0 || product.columns == 0) return;
  if (context.products() == Products::kBfloat16) return multiply_pairs(context, product);
  const TileTable& table = tiles();
  const Panels panels(product.columns, table);
  const auto threads = static_cast<std::size_t>(context.threads());
  const bool few_rows = product.rows > 2 * table.rows && product.rows <= few_rows_max();
  if (few_rows && (threads == 1 || panels.count() >= 2 * threads)) {
    multiply_few_rows(context, product, table, panels);
  } else {
    multiply_many_rows(context, product, table, panels);
  }
}

}  // namespace

std::size_t product_scratch_bytes(std::size_t steps, std::size_t columns) {
  const TileTable& table = tiles();
  const std::size_t panel = steps * table.lanes * table.vectors_max;
  const std::size_t at_once = panel > kPackedFloats ? panel : kPackedFloats;
  return least(steps * round_up(columns, table.lanes), at_once) * sizeof(float);
}

void linear_forward(Context& context, std::size_t M, std::size_t N, std::size_t K, const float* x,
                    const float* w, const float* bias, Activation activation, float* y) {
  linear_forward_part(context, M, N, K, {0, K, false}, x, w, bias, activation, y);
}

void linear_forward_part(Context& context, std::size_t M, std::size_t N, std::size_t K,
                         const ChainPart& part, const float* x, const float* w, const float* bias,
                         Activation activation, float* y) {
  multiply(context, {M, N, part.steps, x + part.first, K, w + part.first * N, N, false,
                     part.goes_on, bias, nullptr, activation == Activation::kRelu, y});
}

void linear_backward_input(Context& context, std::size_t M, std::size_t N, std::size_t K,
                           const float* dy, const float* w, const float* relu_output, float* dx) {
  linear_backward_input_part(context, M, N, K, {0, N, false}, dy, w, relu_output, dx);
}

void linear_backward_input_part(Context& context, std::size_t M, std::size_t N, std::size_t K,
                                const ChainPart& part, const float* dy, const float* w,
                                const float* relu_output, float* dx) {
  multiply(context, {M, K, part.steps, dy + part.first, N, w + part.first, N, true, part.goes_on,
                     nullptr, relu_output, false, dx});
}

}  // namespace muster::kernels::cpu
