# Finds nvcc, the CUDA runtime and NCCL: in MUSTER_CUDA_TOOLCHAIN (what scripts/cuda-toolchain.sh
# makes), whose wheels CMake's own CUDA support does not know. Defines MUSTER_NVCC and the targets
# muster_cudart and muster_nccl.
include_guard(GLOBAL)

set(MUSTER_CUDA_TOOLCHAIN ${PROJECT_SOURCE_DIR}/build/cuda-toolchain CACHE PATH
    "Directory made by scripts/cuda-toolchain.sh")
file(GLOB muster_cuda_roots ${MUSTER_CUDA_TOOLCHAIN}/lib/python3*/site-packages/nvidia)
find_program(MUSTER_NVCC nvcc PATHS ${muster_cuda_roots} PATH_SUFFIXES cu13/bin NO_DEFAULT_PATH)
find_path(MUSTER_CUDART_INCLUDE cuda_runtime_api.h
  PATHS ${muster_cuda_roots} PATH_SUFFIXES cu13/include NO_DEFAULT_PATH)
find_library(MUSTER_CUDART libcudart_static.a
  PATHS ${muster_cuda_roots} PATH_SUFFIXES cu13/lib NO_DEFAULT_PATH)
find_path(MUSTER_NCCL_INCLUDE nccl.h
  PATHS ${muster_cuda_roots} PATH_SUFFIXES nccl/include NO_DEFAULT_PATH)
find_library(MUSTER_NCCL libnccl.so.2
  PATHS ${muster_cuda_roots} PATH_SUFFIXES nccl/lib NO_DEFAULT_PATH)
foreach(found MUSTER_NVCC MUSTER_CUDART_INCLUDE MUSTER_CUDART MUSTER_NCCL_INCLUDE MUSTER_NCCL)
  if(NOT ${found})
    message(FATAL_ERROR "${found} is not in ${MUSTER_CUDA_TOOLCHAIN}; run scripts/cuda-toolchain.sh, "
                        "or set MUSTER_CUDA_TOOLCHAIN to the directory it made")
  endif()
endforeach()

add_library(muster_cudart STATIC IMPORTED GLOBAL)
set_target_properties(muster_cudart PROPERTIES
  IMPORTED_LOCATION ${MUSTER_CUDART}
  INTERFACE_INCLUDE_DIRECTORIES ${MUSTER_CUDART_INCLUDE}
  INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS};rt;Threads::Threads")
add_library(muster_nccl SHARED IMPORTED GLOBAL)
set_target_properties(muster_nccl PROPERTIES
  IMPORTED_LOCATION ${MUSTER_NCCL}
  INTERFACE_INCLUDE_DIRECTORIES ${MUSTER_NCCL_INCLUDE}
  INTERFACE_LINK_LIBRARIES muster_cudart)
