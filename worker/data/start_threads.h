// Threads for work that any number of them does.
#pragma once

#include <functional>
#include <thread>
#include <vector>

namespace muster::data {

/// `most` threads that do `work`, or fewer where the system gives no more: whoever starts them does
/// what is left itself. `work` throws nothing. Each is joined when it is destroyed.
std::vector<std::jthread> start_threads(int most, const std::function<void()>& work);

}  // namespace muster::data
