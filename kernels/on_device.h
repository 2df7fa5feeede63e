// MUSTER_ON_DEVICE: before a function that both the processor and a GPU compute, in the same bits.
#pragma once

#ifdef __CUDACC__
#define MUSTER_ON_DEVICE __host__ __device__
#else
#define MUSTER_ON_DEVICE
#endif
