#include <algorithm>

#include "kernels/cpu/context_impl.h"
#include "kernels/dropout.h"

namespace muster::kernels::cpu {

void drop(Context& context, std::size_t rows, const Drop& by, float* values) {
  parallel_for(context, rows, [&](std::size_t row, std::size_t) {
    float* const of_row = values + row * by.columns;
    const std::size_t end = by.first_column + by.columns;
    for (std::size_t c = by.first_column; c < end; c = c / 4 * 4 + 4) {
      const auto words = drop_words(by, row, c / 4);
      for (std::size_t i = c; i < std::min(c / 4 * 4 + 4, end); ++i) {
        float& value = of_row[i - by.first_column];
        value = dropped(by, words[i % 4], value);
      }
    }
  });
}

}  // namespace muster::kernels::cpu
