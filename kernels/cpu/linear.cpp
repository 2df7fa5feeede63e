// y = x w + b and dx = dy w^T: rows of the left matrix are read in place, the right matrix is
// packed into panels that all threads share.
#include "kernels/cpu/context_impl.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/table.h"

namespace muster::kernels::cpu {
namespace {

/// Steps of a chain before the next tile takes its turn, so that a panel stays in the first cache.
constexpr std::size_t kStepsBlock = 256;
/// Rows that are computed against all panels of a group before the next rows.
constexpr std::size_t kRowsBlock = 256;

struct Product {
  std::size_t rows, columns, steps;
  const float* a;  // (rows, steps)
  const float* b;  // (steps, columns), or (columns, steps) when transposed
  bool transposed;
  const float* bias;
  const float* mask;
  bool relu;
  float* c;  // (rows, columns)
};

/// A range of panels, and where they lie packed; or in place when no panel is worth packing.
struct Group {
  std::size_t first, end;
  const float* packed;
  std::size_t packed_first;  // offset of panel `first`
};

const float* column_of(const Product& product, std::size_t column) {
  return product.b + column * (product.transposed ? product.steps : 1);
}

/// Whether panel is read where it lies: its columns are whole vectors and few rows meet it.
bool in_place(const Product& product, const TileTable& tiles, const Panel& panel) {
  return !product.transposed && product.rows <= 2 * tiles.rows &&
         panel.columns == panel.vectors * tiles.lanes;
}

void compute_block(const Product& product, const TileTable& tiles, const Panels& panels,
                   const Group& group, std::size_t row_begin, std::size_t row_end,
                   std::size_t step_begin, std::size_t step_end) {
  const bool final = step_end == product.steps;
  for (std::size_t index = group.first; index < group.end; ++index) {
    const Panel panel = panels[index];
    const std::size_t width = panel.vectors * tiles.lanes;
    Tile tile{};
    tile.a_stride = product.steps;
    if (in_place(product, tiles, panel)) {
      tile.b = product.b + step_begin * product.columns + panel.first;
      tile.b_stride = product.columns;
    } else {
      tile.b = group.packed + (panels.packed_size(index, product.steps) - group.packed_first) +
               step_begin * width;
      tile.b_stride = width;
    }
    tile.steps = step_end - step_begin;
    tile.c_stride = product.columns;
    tile.columns = panel.columns;
    tile.reload = step_begin != 0;
    tile.bias = final && product.bias != nullptr ? product.bias + panel.first : nullptr;
    tile.relu = final && product.relu;
    tile.ranks = 1;
    for (std::size_t row = row_begin; row < row_end; row += tiles.rows) {
      const std::size_t at = row * product.columns + panel.first;
      tile.a = product.a + row * product.steps + step_begin;
      tile.c = product.c + at;
      tile.mask = final && product.mask != nullptr ? product.mask + at : nullptr;
      tile.rows = least(tiles.rows, row_end - row);
      tiles.by_rows[panel.vectors - 1](tile);
    }
  }
}

void pack_panel(const Product& product, const TileTable& tiles, const Panel& panel, float* out) {
  const std::size_t width = panel.vectors * tiles.lanes;
  const float* from = column_of(product, panel.first);
  if (product.transposed) {
    tiles.pack_transposed(from, product.steps, product.steps, panel.columns, width, out);
  } else {
    tiles.pack(from, product.columns, product.steps, panel.columns, width, out);
  }
}

/// Panels of one group over all rows: rows and, when these are few, panels shared out to threads.
void compute_group(Context& context, const Product& product, const TileTable& tiles,
                   const Panels& panels, const Group& group) {
  const auto threads = static_cast<std::size_t>(context.threads());
  std::size_t rows_task = kRowsBlock / tiles.rows * tiles.rows;
  std::size_t panels_task = group.end - group.first;
  if (threads > 1) {
    const std::size_t share =
        round_up((product.rows + threads * 2 - 1) / (threads * 2), tiles.rows);
    rows_task = least(rows_task, share);
    const std::size_t row_tasks = (product.rows + rows_task - 1) / rows_task;
    if (row_tasks < 2 * threads) {
      const std::size_t cuts = (2 * threads + row_tasks - 1) / row_tasks;
      panels_task = (panels_task + cuts - 1) / cuts;
    }
  }
  const std::size_t row_tasks = (product.rows + rows_task - 1) / rows_task;
  const std::size_t panel_tasks = (group.end - group.first + panels_task - 1) / panels_task;
  parallel_for(context, row_tasks * panel_tasks, [&](std::size_t index, std::size_t) {
    Group part = group;
    part.first = group.first + index % panel_tasks * panels_task;
    part.end = least(group.end, part.first + panels_task);
    const std::size_t row = index / panel_tasks * rows_task;
    const std::size_t row_end = least(product.rows, row + rows_task);
    std::size_t step = 0;
    do {
      const std::size_t step_end = least(product.steps, step + kStepsBlock);
      compute_block(product, tiles, panels, part, row, row_end, step, step_end);
      step = step_end;
    } while (step < product.steps);
  });
}

void multiply(Context& context, const Product& product) {
  if (product.rows == 0 || product.columns == 0) return;
  const TileTable& table = tiles();
  const Panels panels(product.columns, table);
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
      pack_panel(product, table, panel, packed + (offset - group.packed_first));
    });
    compute_group(context, product, table, panels, group);
  }
}

}  // namespace

void linear_forward(Context& context, std::size_t M, std::size_t N, std::size_t K, const float* x,
                    const float* w, const float* bias, Activation activation, float* y) {
  multiply(context, {M, N, K, x, w, false, bias, nullptr, activation == Activation::kRelu, y});
}

void linear_backward_input(Context& context, std::size_t M, std::size_t N, std::size_t K,
                           const float* dy, const float* w, const float* relu_output, float* dx) {
  multiply(context, {M, K, N, dy, w, true, nullptr, relu_output, false, dx});
}

}  // namespace muster::kernels::cpu
