# What every target of Muster shares: language level, warnings, numerics flags, sanitizers, ccache and mold.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(MUSTER_CCACHE ccache)
if(MUSTER_CCACHE)
  # Relative to the checkout, so that another clone finds what this one has compiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      ${MUSTER_CCACHE})
endif()
find_program(MUSTER_MOLD mold)
if(MUSTER_MOLD)
  add_link_options(-fuse-ld=mold)
endif()

find_package(Threads REQUIRED)

# Two thirds of a compiler's time here go into headers that every file includes: files of one target are compiled
# together, so that these are read once. Names in anonymous namespaces must therefore differ within a target.
option(MUSTER_UNITY "Compile the files of a target in batches" ON)
set(MUSTER_BATCH_MOST 20)

# The numerics contract (docs/numerics.md): a product and a sum are fused only where the code says so.
# This holds for every object of the project, not just the kernels.
add_compile_options(-ffp-contract=off -fno-fast-math)

if(MUSTER_SANITIZE)
  string(REPLACE "," ";" sanitizers "${MUSTER_SANITIZE}")
  add_compile_options(-fsanitize=${MUSTER_SANITIZE} -fno-omit-frame-pointer -g1 -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${MUSTER_SANITIZE})
  if("address" IN_LIST sanitizers)
    # Frames that outlive their function, for each of which there is a second way to be laid out, are a sixth of the compiler's
    # time and a fifth of the tests'.
    add_compile_options(-fsanitize-address-use-after-return=never)
  endif()
  if("undefined" IN_LIST sanitizers)
    # Checks before each access are a third of the compiler's time. The address sanitizer sees an access to null or beyond an
    # object when it happens, nothing here is cast to a derived class, and what reads from raw bytes checks their alignment:
    # muster_checks_alignment.
    add_compile_options(-fno-sanitize=null,object-size,vptr,alignment)
  endif()
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # A file needs less than this many KiB, and collecting garbage before would be a tenth of the compiler's time.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1048576>)
endif()

# What -O3 adds is wanted in loops over numbers, and those are in kernels/, which asks for it itself.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")

set(MUSTER_WARNINGS
    -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wold-style-cast -Wcast-align
    -Woverloaded-virtual -Wnull-dereference -Wformat=2 -Wimplicit-fallthrough -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside its own headers once it has inlined them, at -O2 and above.
  list(APPEND MUSTER_WARNINGS -Wno-null-dereference -Wno-restrict -Wno-maybe-uninitialized
       -Wno-stringop-overflow -Wno-array-bounds -Wno-dangling-pointer -Wno-stringop-overread)
  if(MUSTER_UNITY)
    # GCC takes the anonymous namespace of a file in a batch for one of a header.
    list(APPEND MUSTER_WARNINGS -Wno-subobject-linkage)
  endif()
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # libstdc++ 12's own stable_sort calls what C++17 deprecated.
  list(APPEND MUSTER_WARNINGS -Wno-deprecated-declarations)
  if(MUSTER_UNITY)
    # Clang takes what another file of a batch declares for shadowed; GCC, by which each file is compiled too, does not.
    list(APPEND MUSTER_WARNINGS -Wno-shadow)
  endif()
endif()

function(muster_options target)
  target_compile_options(${target} PRIVATE ${MUSTER_WARNINGS})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR})
endfunction()

# muster_batches(variable target a.cpp ...): the files that are compiled, each of which includes some of the target's.
# CMake's own batches name whole paths, and another clone's compiler cache would find nothing.
function(muster_batches variable target)
  list(LENGTH ARGN count)
  if(NOT MUSTER_UNITY OR count LESS 2)
    set(${variable} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  # As many as are needed, of one size: the longest decides when a target is ready.
  math(EXPR parts "(${count} + ${MUSTER_BATCH_MOST} - 1) / ${MUSTER_BATCH_MOST}")
  math(EXPR size "(${count} + ${parts} - 1) / ${parts}")
  set(batches "")
  set(text "")
  set(taken 0)
  foreach(source ${ARGN})
    file(REAL_PATH ${source} path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(APPEND text "#include \"${path}\"\n")
    math(EXPR taken "${taken} + 1")
    math(EXPR left "${taken} % ${size}")
    if(left EQUAL 0 OR taken EQUAL count)
      set(batch ${CMAKE_CURRENT_BINARY_DIR}/batches/${target}_${taken}.cpp)
      file(CONFIGURE OUTPUT ${batch} CONTENT "${text}" @ONLY)
      list(APPEND batches ${batch})
      set(text "")
    endif()
  endforeach()
  set(${variable} ${batches} PARENT_SCOPE)
endfunction()

# muster_library(name SOURCES a.cpp ... [PUBLIC lib ...] [PRIVATE lib ...] [FILE_BY_FILE] [FUZZED])
# FUZZED: a fuzzer is guided by what runs in it. The tests under sanitizers share these objects: one build instead of two is
# worth their counters.
function(muster_library name)
  cmake_parse_arguments(ARG "FILE_BY_FILE;FUZZED" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  set(compiled ${ARG_SOURCES})
  if(NOT ARG_FILE_BY_FILE)
    muster_batches(compiled ${name} ${ARG_SOURCES})
  endif()
  add_library(muster_${name} STATIC ${compiled})
  add_library(muster::${name} ALIAS muster_${name})
  muster_options(muster_${name})
  target_link_libraries(muster_${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
  if(MUSTER_FUZZ AND ARG_FUZZED)
    target_compile_options(muster_${name} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# Code that makes numbers of raw bytes, its own or of a shared page.
function(muster_checks_alignment target)
  if("undefined" IN_LIST sanitizers)
    target_compile_options(${target} PRIVATE -fsanitize=alignment)
  endif()
endfunction()

# muster_executable(name SOURCES a.cpp ... [PRIVATE lib ...]): the file is called `name`.
function(muster_executable name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE" ${ARGN})
  muster_batches(compiled ${name} ${ARG_SOURCES})
  add_executable(${name} ${compiled})
  muster_options(${name})
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
endfunction()

# Sanitizers' code of what does not compute much compiles in half the time when it is not optimised.
# `sanitizer`: under this one alone, where the tests of another compute.
function(muster_quick_to_compile target)
  if(MUSTER_SANITIZE AND (ARGC EQUAL 1 OR "${ARGV1}" STREQUAL "${MUSTER_SANITIZE}"))
    target_compile_options(${target} PRIVATE -O0)
  endif()
endfunction()

# muster_test(name SOURCES a_test.cpp ... [COMPUTES b_test.cpp ...] [PRIVATE lib ...]): a doctest program, one ctest entry.
# What computes much itself is optimised. The others are not: that compiles in a third of the time for sanitizers, and the library
# under test is as ever.
function(muster_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;COMPUTES;PRIVATE;LABELS" ${ARGN})
  muster_batches(compiled ${name} ${ARG_SOURCES})
  muster_batches(computing ${name}_computing ${ARG_COMPUTES})
  set_property(SOURCE ${compiled} APPEND PROPERTY COMPILE_OPTIONS -O0)
  add_executable(${name} ${compiled} ${computing})
  muster_options(${name})
  target_link_libraries(${name} PRIVATE muster_test_main ${ARG_PRIVATE})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT 900 LABELS "${ARG_LABELS}")
endfunction()

# muster_fuzzer(name SOURCES a_fuzz.cpp [PRIVATE lib ...]): corpus in tests/fuzz/corpus/<name>.
function(muster_fuzzer name)
  if(NOT MUSTER_FUZZ)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;PRIVATE" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  muster_options(${name})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer-no-link)
  target_link_libraries(${name} PRIVATE ${ARG_PRIVATE} -fsanitize=fuzzer)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
  set_property(GLOBAL APPEND PROPERTY MUSTER_FUZZERS ${name})
endfunction()
