// Memory of a context, owned.
#pragma once

#include <cstddef>
#include <span>
#include <type_traits>
#include <utility>

#include "kernels/ops.h"

namespace muster::kernels {

/// Values that operations of one context work on; all bits 0 at first. Moves, does not copy. The
/// context outlives it.
template <typename Value>
class Memory {
  static_assert(std::is_trivially_copyable_v<Value>);

 public:
  Memory() = default;
  Memory(Context& context, std::size_t count) : context_(&context), count_(count) {
    if (count == 0) return;
    values_ = static_cast<Value*>(context.allocate(count * sizeof(Value)));
    context.zero(values_, count * sizeof(Value));
  }
  ~Memory() { release(); }
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept {
    Memory taken(std::move(other));
    swap(taken);
    return *this;
  }

  Value* data() const { return values_; }
  std::size_t size() const { return count_; }
  std::span<Value> span() const { return {values_, count_}; }

 private:
  void release() {
    if (values_ != nullptr) context_->release(values_);
  }
  void swap(Memory& other) {
    std::swap(context_, other.context_);
    std::swap(values_, other.values_);
    std::swap(count_, other.count_);
  }

  Context* context_ = nullptr;
  Value* values_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace muster::kernels
