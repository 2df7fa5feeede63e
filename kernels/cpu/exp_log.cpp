#include "kernels/cpu/exp_f32.h"
#include "kernels/cpu/log_f64.h"
#include "kernels/cpu/table.h"
#include "kernels/ops.h"

namespace muster::kernels::cpu {

float exp_f32(float x) { return exp_one(x); }

void exp_f32(const float* x, std::size_t n, float* out) { vectors().exp(x, n, out); }

double log_f64(double x) { return log_one(x); }

float log_f32(float x) { return static_cast<float>(log_f64(static_cast<double>(x))); }

}  // namespace muster::kernels::cpu
