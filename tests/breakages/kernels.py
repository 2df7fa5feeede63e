"""Breakages of the operations under the numerics contract."""
from breakage import Breakage

TILES = "kernels/cpu/gemm_tiles.cpp"
LINEAR = "kernels/cpu/linear.cpp"
WEIGHTS = "kernels/cpu/linear_weights.cpp"
RANK_BLOCKS = "kernels/cpu/rank_blocks.h"
PAIRS = "kernels/cpu/bfloat16.h"
BFLOAT16_STEP = "kernels/cpu/bfloat16_step.h"
PAIRS_FUSED = "kernels/cpu/bfloat16_fused-inl.h"
PAIRS_NEON = "kernels/cpu/bfloat16_neon.cpp"
PAIRS_DOT = "kernels/cpu/bfloat16_avx512_dot.cpp"
PAIRS_PRODUCT = "kernels/cpu/bfloat16_product.cpp"
SOFTMAX = "kernels/cpu/softmax.cpp"
ATTENTION = "kernels/cpu/attention.cpp"
ATTENTION_BACKWARD = "kernels/cpu/attention_backward.cpp"
BATCH_NORM = "kernels/cpu/batch_norm.cpp"
LAYER_NORM = "kernels/cpu/layer_norm.cpp"
EMBEDDING = "kernels/cpu/embedding.cpp"
POOLING = "kernels/cpu/pooling.cpp"
CONVOLUTION = "kernels/cpu/convolution.cpp"
REDUCE = "kernels/cpu/reduce.cpp"

NEON = "neon"  # the kernels' tests on ARM


def kernel(name, file, right, wrong):
    return Breakage(name, file, right, wrong, "test_kernels")


def on_arm(name, file, right, wrong):
    return Breakage(name, file, right, wrong, NEON)


def cuda(name, file, right, wrong):
    return Breakage(name, "kernels/cuda/" + file, right, wrong, "test_cuda_kernels")


BREAKAGES = [
    kernel("what fills no block is left out of a running sum", REDUCE, "  if (held_ > 0) all.push(sum(block_.data(), held_));\n", ""),
    kernel("threads that the system did not give are counted on", "kernels/cpu/context.cpp",
           "    impl_->of_thread.resize(impl_->threads.size() + 1);\n", ""),
    kernel("an operation begins once a thread of the pool has come", "kernels/cpu/context.cpp",
           "    inside.store(0, std::memory_order_release);\n    publish();\n",
           "    inside.store(0, std::memory_order_release);\n    publish();\n    while (inside.load() == 0) relax();\n"),
    kernel("an operation ends while others are at its tasks", "kernels/cpu/context.cpp",
           "if (inside.fetch_add(kClosed, std::memory_order_acq_rel) == 0) return;",
           "if (inside.fetch_add(kClosed, std::memory_order_acq_rel) >= 0) return;"),
    kernel("what a task has thrown is forgotten", "kernels/cpu/context.cpp",
           "      if (!error) error = std::current_exception();\n", ""),
    kernel("bfloat16 is cut off, not rounded", BFLOAT16_STEP, "(bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16", "bits >> 16"),
    kernel("ties of bfloat16 go up", BFLOAT16_STEP, "(bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16", "(bits + 0x8000U) >> 16"),
    kernel("what fills the last pair of a left operand is +0", PAIRS, "kLeftFill = 0x8000", "kLeftFill = 0"),
    kernel("multiply-adds keep denormal results", PAIRS_FUSED, "mode | kFlushToZero | kDenormalsAreZero", "mode | kDenormalsAreZero"),
    kernel("multiply-adds add the later step first", PAIRS_FUSED, "fused(a.low, b.low, fused(a.high, b.high, sum))",
           "fused(a.high, b.high, fused(a.low, b.low, sum))"),
    kernel("the second step of a left pair is taken for its first", PAIRS_PRODUCT, "    second[i] = pairs[i] << 16;", "    second[i] = first[i];"),
    kernel("tiles of a bfloat16 gradient read the columns of the first", PAIRS_PRODUCT,
           "(row - left.first) / table.rows * left.tile_words", "(row - left.first) / table.rows * left.tile_words * 0"),
    kernel("rows meet the later step first", PAIRS_DOT, "_mm512_rol_epi32(__builtin_bit_cast(I, packed), 16)",
           "__builtin_bit_cast(I, packed)"),
    kernel("what rounds up to the least normal number is flushed", BFLOAT16_STEP, ">= kLeast * 0x1p64F)", "> kLeast * 0x1p64F)"),
    kernel("what lies just below the least normal number stays", BFLOAT16_STEP, "if (magnitude == kLeast &&", "if (magnitude == kLeast ||"),
    on_arm("NEON keeps denormal results", PAIRS_NEON, "set_control(mode | kFlushToZero);", "set_control(mode | kFlushToZero * 0);"),
    on_arm("NEON is not asked what it has flushed", PAIRS_NEON, "if ((status() & kUnderflow) != 0) sum_exactly",
           "if ((status() & kUnderflow << 8) != 0) sum_exactly"),
    on_arm("the second vector of an exact tile begins as the first", PAIRS_NEON, "tile.goes_on ? load(start + (i * kWidth + j) * kVector)",
           "tile.goes_on ? load(start + (i * kWidth + 0) * kVector)"),
    on_arm("NEON keeps what lies just below the least normal number", PAIRS_NEON, "vdupq_n_f32(0x1p-62F)));", "vdupq_n_f32(0x1p-63F)));"),
    on_arm("NEON rounds ties of bfloat16 down", PAIRS_NEON, "vaddq_u32(vaddq_u32(value, vdupq_n_u32(0x7FFFU)), odd)",
           "vaddq_u32(vaddq_u32(value, vdupq_n_u32(0x7FFFU)), vandq_u32(odd, vdupq_n_u32(0)))"),
    kernel("blocks of a bfloat16 chain begin at zero", PAIRS_PRODUCT, "product.goes_on || steps.begin != 0;", "product.goes_on;"),
    kernel("a part of a bfloat16 chain begins at zero", PAIRS_PRODUCT, "product.goes_on || steps.begin != 0;", "steps.begin != 0;"),
    kernel("a bfloat16 edge goes on from nothing", PAIRS_PRODUCT, "if (!whole_ && tile.goes_on) copy_in(edge_);", ""),
    kernel("bfloat16 ranks are not merged along the tree", PAIRS_PRODUCT, "(bits & 1) != 0", "(bits & 2) != 0"),
    kernel("further rows of a bfloat16 gradient begin at zero", PAIRS_PRODUCT,
           "if (links.from == nullptr && tile.goes_on) cells.copy_in(sums);", ""),
    kernel("so much of attention may be dropped that nothing stays", "common/training_bounds.h", "kMaxAttentionDropout = 0.999F",
           "kMaxAttentionDropout = 0.99999F"),
    kernel("the bias of a whole tile is left out", TILES, "    if (tile.bias != nullptr) {\n      MUSTER_EACH_ROW(MUSTER_BIAS)",
           "    if (tile.bias == tile.c) {\n      MUSTER_EACH_ROW(MUSTER_BIAS)"),
    kernel("the bias of an edge is left out", TILES, "if (tile.bias != nullptr) value = add(value, load_first(mask, tile.bias + j));", ""),
    kernel("a chain does not go on from where its last block ended", TILES, "  if (tile.reload) {\n    if (whole) {",
           "  if (tile.reload && tile.steps == 0) {\n    if (whole) {"),
    kernel("the copy of a panel has its first vector twice", TILES, "if constexpr (kWidth > 1) store(b1, copy + kVector);",
           "if constexpr (kWidth > 1) store(b0, copy + kVector);"),
    kernel("the copy of a panel is one step late", TILES, "    copy += kWidth * kVector;                                \\\n",
           "    copy += b == tile.b ? 0 : kWidth * kVector;              \\\n"),
    kernel("sums of logical ranks are not merged along the tree", TILES,
           "for (std::size_t bits = rank; (bits & 1) != 0; bits >>= 1) {", "for (std::size_t bits = rank; (bits & 2) != 0; bits >>= 1) {"),
    kernel("ReLU is forgotten at the edge", TILES, "if (tile.relu) value = where_positive(value, value);", ""),
    kernel("the mask of ReLU's gradient is that of the first outputs", TILES, "load_first(mask, tile.mask + at)", "load_first(mask, tile.mask)"),
    kernel("each block of a chain begins at zero", LINEAR, "product.goes_on || steps.begin != 0;", "product.goes_on;"),
    kernel("a part of a chain begins at zero", LINEAR, "product.goes_on || steps.begin != 0;", "steps.begin != 0;"),
    kernel("each block of a chain adds the bias", LINEAR, "tile.bias = final && product.bias != nullptr",
           "tile.bias = product.bias != nullptr"),
    kernel("the first tile alone sees the packed panel", LINEAR, "    tile.b_stride = panel.columns;\n", ""),
    kernel("blocks of weight gradients do not meet their left neighbours", RANK_BLOCKS,
           "links.lefts = static_cast<std::size_t>(std::countr_one(piece.block));", "links.lefts = 0;"),
    kernel("parts of one rank's chain begin at zero", RANK_BLOCKS, "Links links{piece.part != 0 ? top : nullptr,", "Links links{nullptr,"),
    kernel("columns of x behind the last are copied from the next row", WEIGHTS,
           "out[i] = i < rest ? from[i] : 0.0F;", "out[i] = i + 1 < rest ? from[i] : 0.0F;"),
    kernel("softmax does not take the greatest away", SOFTMAX, "table.exp_sum(row, N, max, gradient ? row : nullptr)",
           "table.exp_sum(row, N, 0.0F, gradient ? row : nullptr)"),
    kernel("the gradient of the loss forgets the label", SOFTMAX, "(of_label - 1.0F) * scale", "of_label * scale"),
    kernel("a label of another slice counts as the first", SOFTMAX, "if (own.has(label)) row[label - own.first] =",
           "row[own.has(label) ? label - own.first : 0] ="),
    kernel("of equal logits the last one wins", SOFTMAX, "greatest = greatest && logits[i] <= of_label;",
           "greatest = greatest && logits[i] < of_label;"),
    kernel("a position attends to all but itself", ATTENTION, "loops.divide_and_scale(block[i], i + 1, total[at], 1.0F);",
           "loops.divide_and_scale(block[i], i, total[at], 1.0F);"),
    kernel("the gradient of attention's softmax forgets the mean", ATTENTION_BACKWARD,
           "table.score_gradient(p, i + 1, mean, row.scale, dp);", "table.score_gradient(p, i + 1, 0.0F * mean, row.scale, dp);"),
    kernel("the variance of a row is divided by one less", LAYER_NORM, "std::sqrt(squares / n + epsilon)",
           "std::sqrt(squares / (n - 1.0F) + epsilon)"),
    kernel("the gradient of layer normalisation does not average", LAYER_NORM, "products.finish() / n", "products.finish()"),
    kernel("the slope of GELU has another cubic part", "kernels/cpu/gelu.h", "kGeluSlope = 3.0F * kGeluCubic",
           "kGeluSlope = 2.0F * kGeluCubic"),
    kernel("all sequences have the positions of the first row", EMBEDDING, "positions + m % T * C", "positions + m / T * C"),
    kernel("gradients of positions are not merged along the tree", EMBEDDING, "(bits & 1) != 0", "(bits & 2) != 0"),
    kernel("a block's squares are its first lane's", "kernels/cpu/reduce.cpp", "out[block] = lane_tree(lanes);", "out[block] = lanes[0];"),
    kernel("the running variance is not the unbiased one", BATCH_NORM, "squares[c] / n_less_one", "squares[c] / n"),
    kernel("of equal pixels the last one gets the gradient", POOLING, "const bool is_greater = window.at[i][c] > greatest;",
           "const bool is_greater = window.at[i][c] >= greatest;"),
    kernel("patches take their upper edge from the image before", CONVOLUTION,
           "if (y + ky < half || y + ky >= image.height + half) {", "if (y + ky >= image.height + half) {"),
    kernel("logical ranks of a sum of nodes are taken one too few", "kernels/cpu/sum_nodes.cpp",
           "    stack[depth - 1] = target;\n", ""),
    kernel("further rows of a rank begin their chains anew", WEIGHTS, "tile.reload = gradient.goes_on && piece.part == 0;",
           "tile.reload = gradient.goes_on && piece.part == 1;"),
    Breakage("the head's gradient is that of its last positions alone", "worker/engine/model_gpt.cpp", "    if (done == 0) {",
             "    if (done < positions) {", "test_engine"),
    # On a GPU: each is seen by the processor that takes its place (tests/cuda_on_host).
    cuda("past its steps a chain gets +0", "product.h", 
         "next_a = reader_a.next(steps, 0.0F), next_b = reader_b.next(steps, -0.0F);",
         "next_a = reader_a.next(steps, 0.0F), next_b = reader_b.next(steps, 0.0F);"),
    cuda("a strip is read before all of it is there", "product.h",
         "    strips_b[at].put(operands<kProducts>(next_b));\n    __syncthreads();\n",
         "    strips_b[at].put(operands<kProducts>(next_b));\n"),
    cuda("bfloat16 is not rounded", "product.h", "std::bit_cast<float>(cpu::round_bfloat16(four.at[j]) << 16)", "four.at[j]"),
    cuda("what a ReLU put out as 0 has a gradient", "linear.cu",
         "product.mask[row * product.b.count + column] > 0.0F ?", "product.mask[row * product.b.count + column] >= 0.0F ?"),
    cuda("further rows begin at zero", "linear_weights.cu", "kGoesOn && tile.has(i, j);", "false;"),
    cuda("a position meets the one behind it", "attention.cu",
         "if (from + tile_column(k) > begin + tile_row() + r) continue;",
         "if (from + tile_column(k) > begin + tile_row() + r + 1) continue;"),
    cuda("the greatest score may be -0", "attention.cu", "__fadd_rn(own[r], 0.0F);", "own[r];"),
    cuda("lanes are added up from the nearest on", "row_sum.h",
         "for (unsigned half = kHalfWarp / 2; half > 0; half /= 2) {\n    lane =",
         "for (unsigned half = 1; half < kHalfWarp; half *= 2) {\n    lane ="),
    cuda("an earlier equal logit keeps the label from being first", "softmax.cu",
         "(i < label ? logit < of_label : logit <= of_label)", "(i > label ? logit < of_label : logit <= of_label)"),
    cuda("rows of another slice are added to", "embedding.cu", "if (row < of.own.count && ", "if ("),
    Breakage("all nodes have the gradients of the first", "worker/engine/model.cpp",
             "node_gradients_.data() + n * shape_.values() + first,", "node_gradients_.data() + first,", "test_cuda_training"),
    Breakage("subtrees of a convolution's gradient are added one after another", "worker/engine/model.cpp",
             "(bits & 1) != 0; bits >>= 1, --waiting)", "waiting > 0; bits >>= 1, --waiting)", "test_engine"),
    Breakage("the rest of a logical rank's patches begins its chains anew", "worker/engine/model.cpp",
             "    if (row > first_row) {\n", "    if (row > end) {\n", "test_engine"),
    Breakage("patches of all rows are foreseen", "worker/engine/model.cpp",
             "std::size_t of_layer = rows * patch_size(layer);", "std::size_t of_layer = rows_max_ * patch_size(layer);", "test_engine"),
    Breakage("each thread hashes the first blocks", "worker/engine/block_hash.cpp", "digests[i] = digest_of(blocks[i]);",
             "digests[i] = digest_of(blocks[i - first]);", "test_engine"),
    Breakage("patches of further threads are not foreseen", "worker/engine/model.cpp",
             "const PatchRoom room = PatchRoom::of_host(threads);", "const PatchRoom room = PatchRoom::of_host(threads > 0);", "test_engine"),
    Breakage("patches of many channels are laid out beyond what a host has for them", "worker/engine/model.cpp",
             "std::min((pixels + of_image - 1) / of_image, most / of_row);", "(pixels + of_image - 1) / of_image;", "test_engine"),
    Breakage("a device has the values of the first step for ever", "worker/engine/step.cpp",
             "  if (!passes_.empty()) model_->use(parameters_);",
             "  if (!passes_.empty() && standing_.step == 0) model_->use(parameters_);", "test_cuda_training"),
    Breakage("values are brought to a device in each pass", "worker/engine/step.cpp",
             "  MUSTER_RETURN_IF_ERROR(model_->forward(batch, when_at(point::kLayer)));",
             "  model_->use(parameters_);\n  MUSTER_RETURN_IF_ERROR(model_->forward(batch, when_at(point::kLayer)));",
             "test_cuda_training"),
    Breakage("a layer is computed with the last step's values", "worker/engine/model.cpp",
             "    bring(shape_.layers()[l], rows.batch);\n    run_layer(pass_of(l, rows));\n",
             "    run_layer(pass_of(l, rows));\n    static_cast<void>(context_.finish());\n    bring(shape_.layers()[l], rows.batch);\n",
             "test_cuda_training"),
    Breakage("a device stands still while gradients are fetched", "worker/engine/model.cpp",
             "if (waiting.size() > kLayersAhead) fetch_first();", "fetch_first();", "test_cuda_training"),
    cuda("a process has what others have taken, too", "context.cpp", "std::min(own, left(unused, kReserveLeast))", "own"),
    cuda("processes of a device leave as much to CUDA as one does", "context.cpp", "kReserveLeast * processes", "kReserveLeast"),
    cuda("gradients are fetched before they are computed", "context.cpp", "part > impl.ended - impl.behind) {", "part > impl.ended) {"),
    cuda("values are brought when all is computed", "context.cpp", "  impl_->copy_beside(to, from, bytes);\n",
         "  await_all();\n  impl_->copy_beside(to, from, bytes);\n"),
    Breakage("a branch learns from what was dropped of it", "worker/engine/model_gpt.cpp", "  drop(pass, own);\n", "", "test_engine"),
    Breakage("all that a GPT drops is drawn alike", "worker/engine/model_shape.cpp",
             "shape.layers_.back().number = shape.dropouts_++;", "shape.layers_.back().number = 0;", "test_engine"),
    Breakage("an embedding's gradient is not dropped", "worker/engine/model.cpp", "        drop(pass, dy);\n", "", "test_engine"),
    Breakage("the columns of a dropped row are drawn with 32 bits", "kernels/cpu/vector_layers.cpp",
             "Call c1 = hn::ShiftRight<32>(c0);", "Call c1 = hn::Xor(c0, c0);", "test_kernels"),
    Breakage("an evaluation drops, too", "worker/engine/model_gpt.cpp", "if (layer.dropout > 0 && pass.batch != nullptr) drop(",
             "if (layer.dropout > 0) drop(", "test_engine"),
    kernel("all of attention's heads drop alike", "kernels/dropout.h", "((by.first_head + head) * T + i) * blocks",
           "(by.first_head * T + i) * blocks"),
    kernel("attention's softmax learns from what was dropped of its weights", ATTENTION_BACKWARD,
           "  if (factors != nullptr) table.keep(factors, i + 1, dp);\n", ""),
    kernel("attention's values learn from weights that were dropped", ATTENTION_BACKWARD,
           "  if (factors != nullptr) table.keep(factors, i + 1, p);\n", ""),
    Breakage("a slice drops the weights of the first heads", "worker/engine/model_shape.cpp",
             "      if (layer.kind == LayerKind::kAttention) layer.first_column = index * layer.heads;\n", "", "test_engine"),
    cuda("a block of weights is handed on from the next lane", "attention_tiles.h",
         "first_lane + half * kTileColumns + k)", "first_lane + half * kTileColumns + (k + 1) % kTileColumns)"),
    Breakage("a dropout alone is a stage", "worker/engine/stage_plan.cpp",
             "if (has_tensors && !whole.is_within_branch(l - 1)) borders.push_back(l);",
             "if (!whole.is_within_branch(l - 1)) borders.push_back(l);", "test_engine"),
]
