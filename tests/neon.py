#!/usr/bin/env python3
"""Builds the kernels and their tests for 64-bit ARM and runs those of matrix products and dropout there, by qemu's user mode:
NEON must give the bits of the scalar chains, in fp32 and in bfloat16, and nothing else of the tests runs it on an x86-64 machine.

    tests/neon.py [--build]      build/neon; --build: nothing is run
"""

import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DIRECTORY = os.path.join(ROOT, "build", "neon")
PROGRAM = os.path.join(DIRECTORY, "test_kernels")
COMPILER, RUNNER = "aarch64-linux-gnu-g++", "qemu-aarch64-static"
# As cmake/muster.cmake has them; the definitions are kernels/CMakeLists.txt's.
FLAGS = ["-std=c++20", "-O2", "-ffp-contract=off", "-fno-fast-math", "-Wall", "-Wextra", "-Werror", "-Wno-psabi", "-I."]
# Headers that are the same for every machine; the rest of /usr/include is this one's.
HEADERS = ["hwy", "doctest"]
TESTS = ["attention_test.cpp", "linear_test.cpp", "reduce_test.cpp", "context_test.cpp", "transformer_test.cpp"]
OPTIONS = ["--test-case=*product*,*gradient*,*sum*,*chain*,*row*,*target*,*dropout*"]
MAIN = """#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include "tests/test_main.h"

std::uint64_t muster::test::seed() { return 1; }
"""


def definitions():
    with open("kernels/CMakeLists.txt", encoding="utf-8") as file:
        return ["-D" + one.replace("\\", "") for one in re.findall(r"\bHWY_\w+=(?:\\\(.*?\\\)|\w+)", file.read())]


def compiled(source):
    made = os.path.join(DIRECTORY, source.replace("/", "-") + ".o")
    launcher = [shutil.which("ccache")] if shutil.which("ccache") else []
    subprocess.run([*launcher, COMPILER, *FLAGS, *definitions(), f"-isystem{DIRECTORY}/include", "-c", source, "-o", made], check=True)
    return made


def build():
    os.chdir(ROOT)
    os.makedirs(os.path.join(DIRECTORY, "include"), exist_ok=True)
    for name in HEADERS:
        link = os.path.join(DIRECTORY, "include", name)
        if not os.path.islink(link):
            os.symlink(f"/usr/include/{name}", link)
    start = os.path.join(DIRECTORY, "main.cpp")
    with open(start, "w", encoding="utf-8") as file:
        file.write(MAIN)
    sources = [*sorted(glob.glob("kernels/cpu/*.cpp")), *(f"tests/unit/kernels/{name}" for name in TESTS), start]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    subprocess.run([COMPILER, "-static", "-pthread", *objects, "-o", PROGRAM], check=True)


if __name__ == "__main__":
    build()
    if sys.argv[1:] != ["--build"]:
        sys.exit(subprocess.run([RUNNER, PROGRAM, *OPTIONS], check=False).returncode)
