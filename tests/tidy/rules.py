"""What each module may include and call. ARCHITECTURE.md tells why; this file is what is enforced."""

import re

# A module is a directory; the longest prefix wins. "main" modules are the programs' entry files.
# module -> modules whose headers it may include (itself always).
MAY_INCLUDE = {
    "common": [],
    "common/bpe": ["common"],
    "common/http": ["common"],
    "kernels": [],
    "worker/comm": ["common"],
    "worker/data": ["common"],
    "worker/engine": ["common", "common/bpe", "worker/comm", "worker/data", "kernels"],
    "worker/sentinel": ["common", "common/http"],
    "worker": ["common", "common/http", "worker/sentinel", "worker/comm", "worker/engine", "kernels"],
    "operator/api": ["common"],
    "operator/core": ["common", "operator/api"],
    "operator/kube": ["common", "operator/api"],
    "operator/agent": ["common", "operator/api", "operator/kube"],
    "operator/embedded": ["common", "operator/api", "operator/kube"],
    "operator/runtime": ["common", "common/http", "operator/api", "operator/core", "operator/kube"],
    "operator": ["common", "operator/agent", "operator/api", "operator/kube", "operator/runtime"],
    "cli": ["common", "common/bpe", "common/http", "operator/api", "operator/kube", "operator/embedded", "operator/runtime"],
}

# Single headers beyond that: module -> headers.
MAY_INCLUDE_HEADERS = {"kernels": ["common/philox.h"]}

# pattern, where it is allowed (path prefixes), what to use instead
FORBIDDEN = [
    (re.compile(r"\bcpprest/|\bpplx\b|web::"), ["operator/kube/rest_transport.cpp"], "HttpTransport; cpprestsdk stays behind one file"),
    (re.compile(r"#include <nlohmann/json\.hpp>"), ["common/json.h"], '"common/json.h"'),
    (re.compile(r"#include <yaml-cpp/"), ["common/yaml_reader", "tests/unit/api/"], "common/yaml_reader.h"),
    (re.compile(r"#include <spdlog/"), ["common/log.cpp"], '"common/log.h"'),
    (re.compile(r"#include <boost/"), ["common/http/"], '"common/http/..."'),
    (re.compile(r"#include <(hwy/|immintrin)"), ["kernels/", "worker/comm/crc32c"], "kernels/"),
    (re.compile(r"#include <prometheus/"), ["worker/sentinel/metrics", "operator/runtime/metrics"], "the binary's Metrics struct"),
    (re.compile(r"#include <(nccl|cuda)"), ["worker/comm/nccl_", "kernels/cuda/"], "Communicator or kernels/"),
    (re.compile(r"(system_clock|steady_clock|high_resolution_clock)::now\b|\bclock_gettime\b|\bgettimeofday\b|\btime\((NULL|nullptr|0)\)"),
     ["common/clock.cpp", "tests/bench/"], "Clock (common/clock.h)"),
    (re.compile(r"\bsleep_for\b|\bsleep_until\b|\busleep\(|\bnanosleep\("), [], "a wait with a deadline on what is waited for"),
    (re.compile(r"\brandom_device\b|\bsrand\(|[^_\w]rand\(\)"), [], "Rng (common/rng.h)"),
    (re.compile(r"\bstd::(uniform_\w+_distribution|normal_distribution|shuffle|mt19937)\b"), [], "Rng (common/rng.h)"),
    (re.compile(r"\bgetenv\b"), ["worker/main.cpp", "operator/main.cpp", "cli/main.cpp", "tests/contract/real_contract.cpp"], "main reads the environment once"),
    (re.compile(r"\bstd::c(out|err)\b"), [], "log.h, or std::fputs to the user in cli/"),
    (re.compile(r"\.detach\(\)"), [], "a joined thread"),
    (re.compile(r"-ffast-math|-Ofast|funsafe-math"), ["tests/tidy/"], "nothing: the numerics contract forbids it"),
]

# Numerics: neither standard math functions nor unordered iteration where bits are made.
NUMERIC_MODULES = ["kernels", "worker/data", "worker/engine"]
FORBIDDEN_NUMERIC = [
    (re.compile(r"\bstd::(exp|log|sin|cos|tan|tanh|erf|pow|exp2|log2|cbrt|expf|logf|powf)\b"), "kernels' own math functions"),
    (re.compile(r"\bstd::unordered_(map|set)\b"), "std::map: iteration order must not vary"),
    (re.compile(r"\bhn::(Min|Max|ApproximateReciprocal\w*)\b"), "compare and select; IEEE division"),
    (re.compile(r"\batomic(Add|Sub|CAS|Exch|Min|Max)\w*|\batomic_ref\b|\batomic<(float|double)>"),
     "a chain or a tree: who comes first must not decide the bits"),
]

# An operation for a GPU stands in a file of the name of its twin's, the processor's; of these files of the processor, in one of those.
GPU_FILES = {"elementwise": ["add", "dropout", "gelu", "scale"]}

# Core is pure: no IO, threads, clock, environment.
PURE_MODULES = ["operator/core", "operator/api"]
FORBIDDEN_PURE = [
    (re.compile(r"#include <(thread|mutex|condition_variable|atomic|future|fstream|filesystem|iostream|unistd\.h|sys/.*|cstdio)>"),
     "nothing: this module decides and does no IO"),
    (re.compile(r"\blog_(info|warning|error|debug)\("), "a reason in the plan"),
]

MAX_FILE_LINES = 1000
MAX_FUNCTION_LINES = 70
MAX_LINE_CHARS = 100

# Undefined symbols that objects of these targets may take from libm.
LIBM_TARGETS = ["muster_kernels", "muster_data", "muster_comm", "muster_engine"]
LIBM_ALLOWED = {"sqrt", "sqrtf", "fma", "fmaf"}
