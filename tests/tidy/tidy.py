#!/usr/bin/env python3
"""The house's rules as a test: who includes whom, forbidden calls, lengths, sources in CMake, libm symbols.

    tests/tidy/tidy.py [--objects BUILD_DIR]      exit 1 and one line per finding
"""

import argparse
import collections
import glob
import os
import re
import subprocess
import sys

import rules

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CODE = (".h", ".cpp", ".cu", ".cuh")
PRODUCT = ("common/", "operator/", "worker/", "kernels/", "cli/")


def module_of(path):
    """The module a file belongs to: the longest key of MAY_INCLUDE that is a directory of it."""
    found = [m for m in rules.MAY_INCLUDE if path.startswith(m + "/")]
    return max(found, key=len) if found else None


def strip(text):
    """Comments and the contents of strings replaced by spaces; line breaks and columns stay."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"\((?:.|\n)*?\)"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group(0)), text)


def check_includes(path, text):
    module = module_of(path)
    if module is None:
        return
    allowed = set(rules.MAY_INCLUDE[module]) | {module}
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r'\s*#include "([^"]+)"', line)
        if not match:
            continue
        target = module_of(match.group(1))
        if match.group(1).startswith("tests/"):
            yield f"{path}:{number}: product code includes {match.group(1)}"
        elif match.group(1) in rules.MAY_INCLUDE_HEADERS.get(module, []):
            continue
        elif target is not None and target not in allowed:
            yield f"{path}:{number}: {module} may not include {target} ({match.group(1)})"


def check_forbidden(path, text):
    # Includes are looked for in the raw text, because strip() blanks "..." but not <...>.
    code = strip(text)
    for number, line in enumerate(code.split("\n"), 1):
        for pattern, allowed, instead in rules.FORBIDDEN:
            if pattern.search(line) and not any(path.startswith(a) for a in allowed):
                yield f"{path}:{number}: {pattern.search(line).group(0).strip()}: use {instead}"
        module = module_of(path)
        extra = []
        if module in rules.NUMERIC_MODULES:
            extra += rules.FORBIDDEN_NUMERIC
        if module in rules.PURE_MODULES:
            extra += rules.FORBIDDEN_PURE
        for pattern, instead in extra:
            if pattern.search(line):
                yield f"{path}:{number}: {pattern.search(line).group(0)} in {module}: use {instead}"
    for number, line in enumerate(text.split("\n"), 1):
        if "TODO" in line and not re.search(r"TODO\(#\d+\): ", line) and "//" in line:
            yield f"{path}:{number}: TODO without an issue: TODO(#12): reason"


def functions(code):
    """(first line, last line) of every function body in stripped code."""
    stack, head_start, line_of = [], 0, [0]
    line = 1
    for i, c in enumerate(code):
        if c == "\n":
            line += 1
        elif c == "{":
            head = code[head_start:i]
            inside = any(kind == "function" for kind, _ in stack)
            if inside:
                kind = "block"
            elif re.search(r"\bnamespace\b|\bextern\s", head):
                kind = "namespace"
            elif re.search(r"\b(class|struct|union|enum)\b[^()]*$", head):
                kind = "type"
            elif ")" in head:
                kind = "function"
            else:
                kind = "block"
            first = line - head.lstrip().count("\n")
            stack.append((kind, first))
            head_start = i + 1
        elif c == "}":
            if stack:
                kind, first = stack.pop()
                if kind == "function":
                    yield first, line
            head_start = i + 1
        elif c == ";":
            head_start = i + 1


def check_lengths(path, text):
    lines = text.split("\n")
    if len(lines) - 1 > rules.MAX_FILE_LINES:
        yield f"{path}: {len(lines) - 1} lines; split it by what it decides (at most {rules.MAX_FILE_LINES})"
    for number, line in enumerate(lines, 1):
        if len(line) > rules.MAX_LINE_CHARS and "http" not in line and 'R"' not in line:
            yield f"{path}:{number}: line of {len(line)} characters (at most {rules.MAX_LINE_CHARS})"
    if path.startswith(PRODUCT):
        code = re.sub(r"^\s*#.*?(?<!\\)$", lambda m: re.sub(r"[^\n]", " ", m.group(0)), strip(text), flags=re.S | re.M)
        for first, last in functions(code):
            if last - first + 1 > rules.MAX_FUNCTION_LINES:
                yield (f"{path}:{first}: function of {last - first + 1} lines "
                       f"(at most {rules.MAX_FUNCTION_LINES})")


def check_cmake(paths, cmake_text_of):
    """Every source file stands by its name in a CMake file of its directory or a parent."""
    for path in paths:
        if not path.endswith((".cpp", ".cu")):
            continue
        directory = os.path.dirname(path)
        while True:
            text = cmake_text_of(directory)
            relative = os.path.relpath(path, directory or ".")
            if text is not None and re.search(r"(^|[\s(\"/])" + re.escape(relative) + r"($|[\s)\"])", text):
                break
            if not directory:
                yield f"{path}: in no CMakeLists.txt; it is never built"
                break
            directory = os.path.dirname(directory)


def check_hidden(texts):
    """No constant of an anonymous namespace hides a header's: sources are compiled in batches, and the next one would mean it."""
    of_headers = collections.defaultdict(set)
    for path, text in texts.items():
        if path.endswith(".h"):
            for name in re.findall(r"^inline constexpr [^=;{(]*?\b(k[A-Z]\w*)\b", text, re.M):
                of_headers[name].update(re.findall(r"^namespace ([\w:]+) \{", text, re.M))
    for path, text in texts.items():
        own = re.search(r"^namespace \{$(.*?)^\}  // namespace$", text, re.M | re.S)
        if not path.endswith(".cpp") or not own:
            continue
        around = [name + "::" for name in re.findall(r"^namespace ([\w:]+) \{", text, re.M)]
        for name in re.findall(r"^constexpr [^=;{(]*?\b(k[A-Z]\w*)\b", own.group(1), re.M):
            if any(one.startswith(header + "::") for header in of_headers[name] for one in around):
                yield f"{path}: {name} hides a header's constant from what is compiled in one batch with it"


def check_twins(texts):
    """Each operation of the table is there for the processor and for a GPU, once, in files beside each other."""
    operations = re.findall(r"^ *X\((\w+)\)", texts["kernels/operations.h"], re.M)
    places = collections.defaultdict(list)
    for path, text in texts.items():
        device, name = os.path.split(path)
        if (device, os.path.splitext(name)[1]) in (("kernels/cpu", ".cpp"), ("kernels/cuda", ".cu")):
            for operation in re.findall(r"^void (\w+)\(Context&", strip(text), re.M):
                places[device, operation].append(os.path.splitext(name)[0])
    for operation in operations:
        of_cpu, of_gpu = (places[device, operation] for device in ("kernels/cpu", "kernels/cuda"))
        if len(of_cpu) != 1 or len(of_gpu) != 1:
            yield (f"kernels/operations.h: {operation} is {len(of_cpu)} times in kernels/cpu and {len(of_gpu)} times in kernels/cuda, "
                   "not once")
        elif of_gpu[0] not in rules.GPU_FILES.get(of_cpu[0], of_cpu):
            yield f"kernels/cuda/{of_gpu[0]}.cu: {operation} stands in {of_cpu[0]}.cpp for the processor; give both files one name"
    used = {name for (device, operation), names in places.items() if operation in operations for name in names if device == "kernels/cuda"}
    for path in texts:
        if path.endswith(".cu") and os.path.basename(path)[:-3] not in used:
            yield f"{path}: has no operation of kernels/operations.h"


def check_pragma(path, text):
    if path.endswith((".h", ".cuh")) and "#pragma once" not in text and "HWY_TARGET_TOGGLE" not in text \
            and "HWY_ONCE" not in text and "HWY_TARGET" not in text:
        yield f"{path}: header without #pragma once"


def libm_symbols():
    for libm in glob.glob("/lib/*/libm.so.6") + glob.glob("/usr/lib/*/libm.so.6"):
        out = subprocess.run(["nm", "-D", "--defined-only", libm], capture_output=True, text=True, check=True)
        return {line.split()[-1].split("@")[0] for line in out.stdout.splitlines() if " W " in line or " T " in line or " i " in line}
    sys.exit("tidy: libm.so.6 not found")


def check_objects(build):
    libm = libm_symbols()
    for target in rules.LIBM_TARGETS:
        archives = glob.glob(f"{build}/**/lib{target}.a", recursive=True)
        if not archives:
            yield f"{target}: no library below {build}"
            continue
        out = subprocess.run(["nm", "-u", archives[0]], capture_output=True, text=True, check=True)
        undefined = {line.split()[-1] for line in out.stdout.splitlines() if line.strip().startswith("U ")}
        for symbol in sorted((undefined & libm) - rules.LIBM_ALLOWED):
            yield f"{target}: takes {symbol} from libm, whose bits differ between machines; use kernels' own"


def tracked():
    out = subprocess.run(["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard"],
                         capture_output=True, text=True, check=True)
    return [p for p in out.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, p))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def findings():
    paths = [p for p in tracked() if p.endswith(CODE)]
    for path in paths:
        text = read(path)
        for check in (check_includes, check_lengths, check_pragma):
            yield from check(path, text)
        if path.startswith(PRODUCT) or path.startswith("tests/"):
            if path.startswith(PRODUCT):
                yield from check_forbidden(path, text)

    def cmake_text_of(directory):
        texts = [read(os.path.relpath(f, ROOT)) for f in glob.glob(os.path.join(ROOT, directory, "CMakeLists.txt"))
                 + glob.glob(os.path.join(ROOT, directory, "*.cmake"))]
        return "\n".join(texts) if texts else None

    yield from check_cmake(paths, cmake_text_of)
    texts = {path: read(path) for path in paths}
    yield from check_hidden(texts)
    yield from check_twins(texts)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", metavar="BUILD_DIR", help="check the built libraries instead of the sources")
    arguments = parser.parse_args()
    found = sorted(set(check_objects(arguments.objects) if arguments.objects else findings()))
    for line in found:
        print(line)
    print(f"tidy: {len(found)} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
