#!/usr/bin/env python3
"""Every test of Muster, in steps; called by scripts/test after the packages are installed.

    tests/all.py [--only STEP[,STEP...]] [--list] [--again]

A step builds only what it runs, beside the tests of those before it. Programs for sanitizers and the other compiler, and those of
the unit tests that do the same every time, are not run again where their instructions and inputs are those that have passed
before on this machine: their random cases come from a fixed seed. Nor are the tests of whole clusters, for their length, where
programs, chart, images and tests are those that have passed before. --again runs them all. MUSTER_TEST_SECONDS says when the run
will be ended: a cluster's test that would not be done is skipped.
Output of a passing check is one line; of a failing one, its first and last lines.
At the end what passing tests have measured and each failure, in a few lines, are told again: often nothing else of a long run is kept.
The last line reads `N passed, N failed`: doctest cases, ctest programs of other kinds, and checks.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

import neon

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FUZZ_SECONDS = int(os.environ.get("MUSTER_FUZZ_SECONDS", "5"))
COMPILED = (".cpp", ".h", ".cu", ".cuh")  # what is in a program already
# Programs that are built and run again under each sanitizer or compiler.
ASAN_TESTS = ["test_bpe", "test_common", "test_api", "test_core", "test_placement", "test_queue", "test_kube", "test_agent", "test_kube_rest",
              "test_embedded", "test_kubelet", "test_http", "test_endpoint", "test_runtime", "test_kernels",
              "test_cuda_kernels", "test_cuda_training", "test_comm", "test_comm_tcp", "test_data", "test_engine", "test_sentinel", "test_worker",
              "test_cli", "test_cli_kube", "test_cli_plan", "test_contract_embedded", "test_sim", "sim_seeds"]
# Cases that do the same thousands of times: they took half of all the time there, and others go the same ways.
ASAN_LEAVES_OUT = {"test_sim": "two thousand jobs*,of many jobs' progress*,whatever goes wrong once*,whatever fails on the way*,"
                               "*is changed ends as one that was made so*,whatever somebody changes*,two fields that are changed at once*,"
                               "others who write a job ten times*",
                   "test_sentinel": "uneven stages and slices*,whose network is slow*,an even gang has no slow trainer*,"
                                    "who is slow is named within 20 steps*",
                   "test_cuda_kernels": "*larger tiles*,*over more than a block*,*between them*,further rows*",
                   "test_cuda_training": "*GPT*,*bfloat16*",
                   "test_engine": "*stands still at each place*,*nor do moments*,*dies at each place*of 2 to 8*,random joins*at random places*,"
                                  "*golden hash of a transformer*,slot 0 leaves*,nothing happens*,more node sums than*,*by heart*,"
                                  "one of those who share layers dies*,*a process of one copy dies*,*each slice keeps its rows*,"
                                  "gradients are those of finite differences*",
                   "test_worker": "a processor without x86-64-v3*"}
ASAN_ARGUMENTS = {program: [f"--test-case-exclude={cases}"] for program, cases in ASAN_LEAVES_OUT.items()}
# So many as take about a minute. That each fault was met often is for the whole run to say.
ASAN_ARGUMENTS["sim_seeds"] = ["--seeds", "30", "--least", "0"]
# Of a program that ASan runs, what is also run as it is installed, where both are run: compiling and running the rest twice would
# be a sixth of all the time. None: all of it, because the compiler's bits are looked at, or only a quarter of its random cases
# are taken under ASan (`tries` of test_main.h).
RELEASE_CASES = {**ASAN_LEAVES_OUT, "test_engine": ASAN_LEAVES_OUT["test_engine"] + ",*golden*,*instruction set*",
                 "test_kernels": None, "test_placement": None, "test_queue": None, "sim_seeds": None}
# Without the stacks of where memory was taken and given back: keeping those is a quarter of the time. Whoever wants to know runs
# the program that failed without it.
QUICK_ALLOCATIONS = "malloc_context_size=1"
# cpprestsdk's threads outlive main, and with them OpenSSL's error queue of each.
LEAKY_LIBRARY_TESTS = {"test_kube_rest"}
TSAN_TESTS = ["test_comm", "test_comm_tcp", "test_data", "test_http", "test_endpoint", "test_runtime", "test_kubelet", "test_sentinel"]
# Half an hour of one processor, in two parts: the files that take most of it, and the others.
TSAN_ENGINE_FILES = "*elastic*,*sharded*,*split*"
# Whether two threads meet is the scheduler's choice: that these passed once says little of the next time.
RACES_EVERY_TIME = {"test_comm", "test_comm_tcp"}
# It does not see that a timed lock is taken from a holder that died, and calls its unlocking wrong.
ROBUST_LOCK_TESTS = {"test_sentinel"}
TESTS_AT_ONCE = 2
SANITIZED_AT_ONCE = 3  # that of the sentinels waits for clocks, and would keep a processor idle for minutes
PROGRAM_SECONDS = 1800  # under a sanitizer, on a machine that has other work
# Of the unit programs those that neither wait for a clock nor for a process, and whose threads take turns or meet in one place:
# with the same instructions and inputs they do the same again.
SAME_EVERY_TIME = {"sim_seeds", "recovery_seeds", "membership_seeds", "membership_seeds_of_100", "test_sim", "test_engine", "test_kernels", "test_cuda_kernels", "test_core",
                   "test_api", "test_placement", "test_queue", "test_bpe", "test_data"}
# One of them alone at the end would leave a processor idle.
LONGEST_FIRST = ["test_engine", "test_sentinel", "test_sim", "recovery_seeds", "sim_seeds", "membership_seeds",
                 "faults_resources", "faults_places", "faults_network", "faults_silence"]
FAULTS_AT_ONCE = 3  # they wait more than they work
# What another compiler may change: the bits, where it optimises most. That whole trainings have them, too, is for the sanitizers' tests
# of the engine, which the same compiler builds.
CLANG_TESTS = ["test_kernels"]
# What is printed of a failing check: so many lines of so many characters; and again at the end.
LINES_FIRST, LINES_LAST, LINES_AGAIN = 100, 300, 15
CHARACTERS = 1000
FAILURES_AGAIN = 40
# A line of common/log.h, as it is or as ctest prints it.
PRODUCT_LOG = re.compile(r'(\d+: )?\{"time":"[^"]*","level":"')


class Options:
    again = False
    chosen = ()  # steps
    beside_last = ()  # those of them that are taken beside the last check of the nodes
    started = None  # of time.monotonic()
    ends = None  # of time.monotonic(), where whoever runs this ends it then


class ThisThread(threading.local):
    gives_way = False  # whether what it runs gives way to all else


ThisThread.own = ThisThread()


class Totals:
    lock = threading.Lock()  # around all that follows, and around a check's lines
    passed = 0
    failed = 0
    skipped = []
    measured = []  # what passing checks tell for whoever reads the whole run
    failures = []  # (name, the end of what it printed)


# What a test says that it cannot try here: a line of its own, or doctest's; or unittest's, with -v. Behind ctest's number.
SKIPPED = re.compile(r"^(?:\d+: )?(?:.*MESSAGE: )?skipped: (.*)$", re.M)
SKIPPED_BY_UNITTEST = re.compile(r"^(?:\d+: )?(\w+) \(.*\.\.\. skipped (['\"])(.*)\2$", re.M)
# What a test has measured and asserts nothing of: a line of its own.
MEASURED = re.compile(r"^(?:\d+: )?measured: (.*)$", re.M)


class StepFailed(Exception):
    pass


def run(command, timeout=1800, cwd=ROOT, env=None):
    """Output of a command; StepFailed with it when it fails."""
    giving_way = ["nice", "-n", "19"] if ThisThread.own.gives_way else []
    try:
        done = subprocess.run(giving_way + command, cwd=cwd, env=env, timeout=timeout, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
        raise StepFailed(f"{' '.join(command)}: not done in {timeout} s\n"
                         + (out.decode(errors="replace") if isinstance(out, bytes) else out)) from None
    except OSError as error:
        raise StepFailed(f"{command[0]}: {error.strerror}") from None
    if done.returncode != 0:
        raise StepFailed(f"{' '.join(command)[:200]}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def configure(preset):
    run(["cmake", "--preset", preset])


def build(preset, targets=()):
    configure(preset)
    command = ["cmake", "--build", "--preset", preset]
    if targets:
        command += ["--target", *targets]
    run(command, timeout=3600)


def count(output):
    """(passed, failed) cases that a doctest or unittest program printed; None when it printed neither."""
    cases = re.search(r"test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", output)
    if cases:
        return int(cases.group(1)), int(cases.group(2))
    ran = re.findall(r"^Ran (\d+) tests? in ", output, re.M)
    if not ran:
        return None
    wrong = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", output))
    skipped = sum(int(n) for n in re.findall(r"skipped=(\d+)", output))
    return max(0, sum(map(int, ran)) - wrong - skipped), wrong


def skips(output):
    """What a program says that it could not try; of unittest without -v so many nameless ones."""
    told = [what.strip() for what in SKIPPED.findall(output)]
    named = [f"{test}: {reason}" for test, _, reason in SKIPPED_BY_UNITTEST.findall(output)]
    number = sum(int(n) for n in re.findall(r"^(?:\d+: )?OK \(.*skipped=(\d+)", output, re.M))
    return told + named + ["a test that is not named"] * (number - len(named))


def with_cases(program, output):
    """`output` of a doctest program. StepFailed when no case was run: a filter that nothing matches is no failure to doctest."""
    if count(output) in (None, (0, 0)):
        raise StepFailed(f"{program}: ran no test case\n{output}")
    return output


def printed(output):
    """The beginning and the end of a failing check's output."""
    lines = [line if len(line) <= CHARACTERS else line[:CHARACTERS] + " ..." for line in output.splitlines()]
    left_out = len(lines) - LINES_FIRST - LINES_LAST
    if left_out > 0:
        lines[LINES_FIRST:-LINES_LAST] = [f"... {left_out} lines left out ..."]
    return "\n".join(lines)


def last_words(output):
    """The end of it, without what the product has logged, after its first line: that names the command and its end."""
    first, *rest = output.splitlines() or [""]
    said = [line for line in rest if line.strip() and not PRODUCT_LOG.match(line)]
    return [line[:CHARACTERS] for line in [first, *said[-LINES_AGAIN:]]]


def fail(name, error, cases=1):
    """Counts a failure and prints it, now and in a few lines at the end."""
    Totals.failed += cases
    Totals.failures.append((name, last_words(str(error))))
    print(f"FAIL {name}\n{printed(str(error))}", flush=True)


def print_failures():
    for name, words in Totals.failures[:FAILURES_AGAIN]:
        print("\n    ".join([f"FAIL {name}", *words]))
    if len(Totals.failures) > FAILURES_AGAIN:
        print(f"and {len(Totals.failures) - FAILURES_AGAIN} more")


def check(name, function, *arguments):
    """Runs one check; counts it, or the cases it printed."""
    started = time.monotonic()
    try:
        output = function(*arguments) or ""
    except StepFailed as error:
        passed, failed = count(str(error)) or (0, 1)
        with Totals.lock:
            Totals.passed += passed
            fail(f"{name} ({time.monotonic() - started:.0f} s)", error, max(1, failed))
        return
    with Totals.lock:
        Totals.passed += (count(output) or (1, 0))[0]
        Totals.skipped += [f"{name}: {what}" for what in skips(output)]
        Totals.measured += [f"{name}: {what}" for what in MEASURED.findall(output)]
        print(f"ok   {name} ({time.monotonic() - started:.0f} s)", flush=True)


def at_once(number, function, items):
    """function(item) of each, so many at the same time."""
    def rank(item):
        return LONGEST_FIRST.index(item) if item in LONGEST_FIRST else len(LONGEST_FIRST)

    def as_who_asks(gives_way):
        ThisThread.own.gives_way = gives_way

    with concurrent.futures.ThreadPoolExecutor(number, initializer=as_who_asks, initargs=[ThisThread.own.gives_way]) as pool:
        list(pool.map(function, sorted(items, key=rank)))


def sources(*suffixes):
    out = run(["git", "ls-files", "-co", "--exclude-standard"])
    return [p for p in out.splitlines() if p.endswith(suffixes) and os.path.exists(os.path.join(ROOT, p))]


def ctest_entries(preset):
    """(name, command) of every test that ctest knows in a preset."""
    import json
    found = json.loads(run(
        ["ctest", "--test-dir", f"build/{preset}", "--show-only=json-v1"]))
    return [t["name"] for t in found["tests"] if "command" in t]


class Ahead(threading.Thread):
    """Builds what later steps want beside the tests of earlier ones, in the processor time that those leave: they wait for
    clocks and for each other, or are the last of their step. What fails to build is told by the step, which builds it again."""

    def __init__(self, steps, builds):
        super().__init__(daemon=True)
        self.builds = {step: builds[step] for step in steps if step in builds}
        self.done = {step: threading.Event() for step in self.builds}
        self.start()

    def run(self):
        ThisThread.own.gives_way = True
        for step, wanted in self.builds.items():
            try:
                wanted()
            except StepFailed:
                pass
            self.done[step].set()

    def wait_for(self, step):
        """Until nothing of it is being built."""
        if step in self.done:
            self.done[step].wait()


class Beside:
    """Takes steps beside a `with` that leaves processors idle, and gives way to it."""

    def __init__(self, steps):
        def take_all():
            ThisThread.own.gives_way = True
            for name in steps:
                take(name)

        self.thread = threading.Thread(target=take_all)

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.thread.join()


def compilations():
    """(taken from the compiler cache, made) by this user until now; zeros where no ccache tells."""
    try:
        counts = dict(line.split("\t") for line in run(["ccache", "--print-stats"]).splitlines())
    except (StepFailed, ValueError):  # It is told beside the results, and none of them hangs on it.
        return 0, 0
    return sum(int(counts.get(kind, 0)) for kind in ("direct_cache_hit", "preprocessed_cache_hit")), int(counts.get("cache_miss", 0))


def step_style():
    files = sources(".h", ".cpp")
    check("clang-format", run, ["clang-format-19", "--dry-run", "-Werror", *files])
    check("tidy", run, [sys.executable, "tests/tidy/tidy.py"])
    for script in ("make_contract_reference", "make_chart_readme", "make_dashboards", "make_metrics_reference"):
        check(script, run, [sys.executable, f"scripts/{script}.py", "--check"])
    check("breakages are in place", run, [sys.executable, "tests/breakages/run", "--check"])
    check("tidy self-test", run, [sys.executable, "tests/tidy/tidy_test.py"])
    check("what a failing test says", run, [sys.executable, "tests/all_test.py"])
    check("public traces", run, [sys.executable, "tests/bench/traces_test.py"])
    check("rules of the definitions and their cases", run, [sys.executable, "tests/cluster/refusals_rules_test.py"])


def for_asan_alone():
    """The programs that this run builds and runs with sanitizers alone."""
    return set(ASAN_TESTS) - set(RELEASE_CASES) if {"unit", "asan"} <= set(Options.chosen) else set()


def step_unit():
    check("build release", build_release)

    def tried(name):
        output = run(["ctest", "--test-dir", "build/release", "-R", f"^{name}$", "--verbose", "--no-tests=error"], 1000)
        return with_cases(name, output) if name.startswith("test_") else output

    def one(name):
        program = f"build/release/tests/{name.partition('_of_')[0]}"
        if "asan" in Options.chosen and RELEASE_CASES.get(name):
            check_program(f"{name} (release, what ASan leaves out)", [program, f"--test-case={RELEASE_CASES[name]}"], {})
        elif name in SAME_EVERY_TIME:
            check_unless_passed(name, stamp("passed", program, inputs_digest(), "ctest", name), lambda: tried(name))
        else:
            check(name, tried, name)

    names = [name for name in ctest_entries("release") if name not in for_asan_alone()]
    at_once(TESTS_AT_ONCE, one, [name for name in names if not name.startswith("faults_")])
    at_once(FAULTS_AT_ONCE, one, [name for name in names if name.startswith("faults_")])
    check("both binaries link the same operator", run, [sys.executable, "tests/tidy/links.py", "build/release"])
    check("libm symbols", run, [sys.executable, "tests/tidy/tidy.py", "--objects", "build/release"])


def is_run_from_release(program):
    """Whether this run starts it: `program` as bin/muster or tests/test_core."""
    name = os.path.basename(program)
    if "cluster" in Options.chosen and name in CONTRACT_OF_CLUSTER:
        return True
    return name not in for_asan_alone() if "unit" in Options.chosen else program.startswith("bin/")


def build_release():
    """All programs, but for those that are not run from there."""
    configure("release")
    rules = run(["ninja", "-C", "build/release", "-t", "targets", "all"])
    programs = re.findall(r"^(\S+): CXX_EXECUTABLE_LINKER_", rules, re.M)
    build("release", [program for program in programs if is_run_from_release(program)])


def available(preset, names):
    """Those of `names` that are targets of the preset."""
    configure(preset)
    targets = run(["ninja", "-C", f"build/{preset}", "-t", "targets", "all"])
    missing = [n for n in names if not re.search(rf"^{n}:", targets, re.M)]
    if missing:
        raise StepFailed(f"{preset}: no target {', '.join(missing)}")
    return names


@functools.cache
def inputs_digest():
    """Of all files that a test program may read when it runs: no test in Python, and of the documents the reference pages alone."""
    def is_read(path):
        is_prose = (path.endswith(".md") or path.startswith("docs/")) and not path.startswith("docs/reference/")
        return not is_prose and not path.endswith((*COMPILED, "_test.py"))

    return digest_of(path for path in sources("") if is_read(path) and not os.path.islink(os.path.join(ROOT, path)))


def digest_of(paths):
    """Of the files' names and contents."""
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path}\0".encode() + hashlib.sha256(bytes_of(os.path.join(ROOT, path))).digest())
    return digest.hexdigest()


def instructions(program):
    with tempfile.NamedTemporaryFile() as stripped:
        run(["llvm-objcopy-19", "--strip-debug", program, stripped.name])
        return bytes_of(stripped.name)


def bytes_of(path):
    with open(path, "rb") as file:
        return file.read()


def stamp(kind, program, *conditions):
    """The file that says that these very instructions came through on this machine, under the same conditions."""
    # A static program cannot be stripped, and the only one has nothing for debuggers.
    own = bytes_of(program) if program == neon.PROGRAM else instructions(program)
    digest = hashlib.sha256(own)
    for named in sorted(set(re.findall(rb"/[\w./+-]+/build/[\w./+-]+", own))):
        if os.path.isfile(named) and os.access(named, os.X_OK):  # a program that it starts
            digest.update(hashlib.sha256(instructions(named.decode())).digest())
    return kept(kind, digest.hexdigest(), *conditions)


def kept(kind, *conditions):
    """The file of this machine that says `kind` of these conditions."""
    digest = hashlib.sha256("\0".join(map(str, conditions)).encode())
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "muster", kind, digest.hexdigest())


def leave(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def is_time_for(name, seconds):
    """Whether so many are left of MUSTER_TEST_SECONDS. Else `name` counts as skipped: what is ended from outside says nothing."""
    left = Options.ends - time.monotonic() if Options.ends else seconds
    if left < seconds:
        Totals.skipped.append(f"{name}: {max(0, left):.0f} s are left of MUSTER_TEST_SECONDS, and it may take {seconds}")
    return left >= seconds


def check_unless_passed(name, passed, try_it, every_time=False):
    """Checks what try_it() prints, unless the stamp `passed` is there: then what is kept in it."""
    def try_and_leave():
        text = try_it()
        leave(passed, "\n".join(line for line in text.splitlines() if "test cases:" in line or SKIPPED.match(line)
                                or MEASURED.match(line)))
        return text

    def read_again():
        with open(passed, encoding="utf-8") as file:
            return file.read()

    if os.path.exists(passed) and not (Options.again or every_time):
        check(f"{name}, unchanged since it passed", read_again)
    else:
        check(name, try_and_leave)


def check_program(name, command, options, every_time=False):
    """Runs the program in `command`, with `options` in its environment, unless it has passed like this before."""
    program = next(word for word in command if word.startswith("build/"))
    passed = stamp("passed", program, inputs_digest(), command, sorted(options.items()))

    def tried():
        output = run(command, PROGRAM_SECONDS, ROOT, {**os.environ, **options})
        return with_cases(program, output) if os.path.basename(program).startswith("test_") else output

    check_unless_passed(name, passed, tried, every_time)


def program_tests(preset, names, build_them, env=None, given=None):
    """`given`: a program's arguments."""
    check(f"build {preset}", build_them)

    def one(name):
        options = dict(env or {})
        if name in LEAKY_LIBRARY_TESTS:
            options["ASAN_OPTIONS"] = f"detect_leaks=0:{QUICK_ALLOCATIONS}"
        check_program(f"{name} ({preset})", [f"build/{preset}/tests/{name}", *(given or {}).get(name, [])], options)

    at_once(SANITIZED_AT_ONCE, one, names)


def build_clang():
    build("clang", available("clang", CLANG_TESTS))


def step_clang():
    program_tests("clang", CLANG_TESTS, build_clang)


def build_asan():
    """With the fuzzers where they are wanted: two builds in one directory cannot go on at once."""
    build("asan-ubsan", [*available("asan-ubsan", ASAN_TESTS), *(["fuzzers"] if "fuzz" in Options.chosen else [])])


def step_asan():
    program_tests("asan-ubsan", ASAN_TESTS, build_asan, {"ASAN_OPTIONS": f"detect_leaks=1:abort_on_error=0:{QUICK_ALLOCATIONS}",
                                                         "UBSAN_OPTIONS": "print_stacktrace=1"}, given=ASAN_ARGUMENTS)


def build_tsan():
    build("tsan", available("tsan", TSAN_TESTS))


def check_races(name, arguments=(), note=""):
    options = "halt_on_error=1" + (":report_mutex_bugs=0" if name in ROBUST_LOCK_TESTS else "")
    check_program(f"{name} (tsan{note})", [f"build/tsan/tests/{name}", *arguments], {"TSAN_OPTIONS": options},
                  name in RACES_EVERY_TIME)


def step_tsan():
    check("build tsan", build_tsan)
    # What ASan leaves out of these has one thread.
    at_once(SANITIZED_AT_ONCE, lambda name: check_races(name, ASAN_ARGUMENTS.get(name, ())), TSAN_TESTS)


def step_tsan_engine():
    check("build tsan engine", build, "tsan", ["test_engine"])
    parts = {", most": f"--source-file={TSAN_ENGINE_FILES}", ", rest": f"--source-file-exclude={TSAN_ENGINE_FILES}"}
    at_once(TESTS_AT_ONCE, lambda part: check_races("test_engine", [parts[part]], part), list(parts))


def fuzzers(directory):
    """Names of the fuzzers, one a file of tests/fuzz. StepFailed when one is not in `directory`."""
    files = sorted(file for file in os.listdir(os.path.join(ROOT, "tests/fuzz")) if file.endswith("_fuzz.cpp"))
    names = [f"fuzz_{file.removesuffix('_fuzz.cpp')}" for file in files]
    missing = [name for name in names if not os.access(os.path.join(directory, name), os.X_OK)]
    if missing or not names:
        raise StepFailed(f"{directory}: has no {', '.join(missing) or 'fuzzers'}")
    return names


def step_fuzz():
    check("build fuzzers", build, "asan-ubsan", ["fuzzers"])
    directory = os.path.join(ROOT, "build/asan-ubsan/fuzz")

    def one(name):
        program, found = f"{directory}/{name}", f"build/asan-ubsan/found/{name}"
        os.makedirs(os.path.join(ROOT, found), exist_ok=True)
        check(f"fuzz {name} {FUZZ_SECONDS} s", run,
              [program, f"-max_total_time={FUZZ_SECONDS}", "-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1",
               f"-artifact_prefix={found}/", found, f"tests/fuzz/corpus/{name}"], FUZZ_SECONDS + 120)

    at_once(TESTS_AT_ONCE, one, fuzzers(directory))


def step_clang_tidy():
    run(["cmake", "--preset", "tidy"])
    check("clang-tidy", run, [sys.executable, "tests/tidy/clang_tidy.py", "build/tidy"], 5400)


def build_neon():
    run([sys.executable, "tests/neon.py", "--build"])


def step_neon():
    check("build for ARM", build_neon)
    command = [neon.RUNNER, neon.PROGRAM, *neon.OPTIONS]
    check_unless_passed("kernels on ARM", stamp("passed", neon.PROGRAM, run([neon.RUNNER, "--version"]), command),
                        lambda: with_cases("kernels on ARM", run(command)))


def step_cuda():
    check("CUDA toolchain", run, ["scripts/cuda-toolchain.sh"], 1800)
    check("build cuda", build, "cuda", ["cuda_seam"])
    for program in ("test_cuda", "test_cuda_kernels"):
        check(program + " (cuda)", lambda: with_cases(program, run([f"build/cuda/tests/{program}"])))


def python_test(script, *arguments, timeout=1800):
    check(" ".join([script, *arguments]), run, [sys.executable, script, *arguments], timeout)


def kubernetes_programs():
    run(["scripts/kube-tools", *KUBERNETES_PROGRAMS], 5400)


def step_cluster():
    """What needs a real API server, without nodes, and the images, where root may build them: about a minute each at the
    most, once the programs are built."""
    check("packages", run, ["scripts/install-deps", "--cluster", "--images"])
    check("Kubernetes programs", kubernetes_programs)
    check("build release", build_release)
    python_test("tests/cluster/kube_tools_test.py")
    # Each has a control plane of its own, for whose start it waits, and for its controllers.
    at_once(CLUSTER_AT_ONCE, lambda arguments: python_test(*arguments), CLUSTER_TESTS)


# Of clusters with and without nodes.
KUBERNETES_PROGRAMS = ["etcd", "kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kwok", "kueue", "prometheus",
                       "helm", "helm4", "kubelet", "kube-proxy", "coredns", "registry", "device-plugin"]
CLUSTER_AT_ONCE = 3
CONTRACT_OF_CLUSTER = ("test_contract_real", "test_contract_embedded")  # what contract_test.py starts
# The longest first.
CLUSTER_TESTS = [["tests/cluster/refusals_test.py"],
                 ["tests/cluster/placement_test.py", "build/release/bin"],
                 ["tests/cluster/kueue_test.py", "build/release/bin"],
                 ["tests/cluster/pod_groups_test.py", "build/release/bin"],
                 ["tests/dashboards/dashboard_test.py", "build/release/bin"],
                 ["tests/cluster/contract_test.py", "build/release/tests"],
                 ["tests/chart/install_test.py"],
                 ["tests/cluster/kubectl_test.py"],
                 ["tests/cluster/operator_test.py", "build/release/bin"],
                 ["tests/cluster/plugin_test.py", "build/release/bin"],
                 ["tests/chart/image_test.py"],
                 ["tests/chart/chart_test.py"],
                 ["tests/chart/argo_cd_test.py"],
                 ["tests/cluster/control_plane_test.py"],
                 ["tests/cluster/krew_test.py"]]


def step_nodes():
    """Whole clusters with real nodes and images; needs root."""
    check("packages", run, ["scripts/install-deps", "--cluster", "--images"])
    check("Kubernetes programs", kubernetes_programs)
    check("build release", build_release)

    made_from = cluster_digest()

    def one(arguments, environment=None):
        name, passed = " ".join(arguments), kept("passed", made_from, *arguments)
        if os.path.exists(passed) or is_time_for(name, NODES_SECONDS_QUIET):
            check_unless_passed(name, passed, lambda: run([sys.executable, *arguments], NODES_SECONDS, ROOT,
                                                          {**os.environ, **(environment or {})}))

    python_test("tests/cluster/own_images_test.py", "Laptop")
    # Each has a cluster of its own. Four keep two processors busy; beside a fifth, workers were silent for so long that they were
    # taken for lost.
    at_once(NODES_AT_ONCE, one, NODES_TESTS)
    # Without another cluster, so that whatever is there afterwards and was not before is this one's. It mostly waits.
    with Beside(Options.beside_last):
        one(["tests/cluster/cluster_test.py", "TraceTest"], {"MUSTER_STRICT_LEFTOVERS": "1"})


def cluster_digest():
    """Of all that a whole cluster with nodes is made from: our programs, and the files that install, describe and try them."""
    programs = [hashlib.sha256(instructions(f"build/release/bin/{program}")).hexdigest()
                for program in ("muster", "muster-operator", "muster-worker")]
    folders = ("charts/", "crds/", "docker/", "examples/", "scripts/", "tests/cluster/")
    return " ".join([*programs, digest_of(path for path in sources("") if path.startswith(folders))])


NODES_AT_ONCE = 4
NODES_SECONDS, NODES_SECONDS_QUIET = 2700, 1200  # one of them, on a machine that has other work, and on one that has none
# The longest first. What holds while operators are killed is not tried without that; api_away_test and random_kills_test kill them
# themselves.
# kubectl_test has no such run: edit, diff, explain and get -w are between kubectl and the API server, which answers the same whether an
# operator lives or not. What becomes of a job that was changed (scaled, suspended, deleted) while they die is seen by job_test.
NODES_TESTS = [["tests/cluster/nodes.py", "--operators-killed", "job_test"],
               ["tests/cluster/nodes.py", "--operators-killed", "job_faults_test"],
               ["tests/cluster/nodes.py", "api_away_test", "random_kills_test"],
               ["tests/cluster/nodes.py", "queues_test", "pcie_test"],
               ["tests/cluster/nodes.py", "host_network_test", "rules_test", "own_images_test.BeforeTheWorker"],
               ["tests/cluster/nodes.py", "--operators-killed", "own_images_test.OwnImages"],
               ["tests/cluster/nodes.py", "elastic_faults_test"],
               ["tests/cluster/nodes.py", "installation_test"],
               ["tests/cluster/nodes.py", "split_test", "monitors_test",
                "job_faults_test.JobFaults.test_a_killed_operator_and_a_lost_one_do_not_disturb_training"],
               ["tests/cluster/cluster_test.py", "ClusterTest"],
               ["tests/cluster/try_cluster_test.py"]]


def step_images():
    check("packages", run, ["scripts/install-deps", "--images"])
    python_test("tests/chart/image_test.py", "--from-source", timeout=5400)


def step_readme():
    check("README commands from a clean clone", run, [sys.executable, "tests/readme.py"], 3600)


STEPS = {"style": step_style, "unit": step_unit, "clang": step_clang, "neon": step_neon, "asan": step_asan, "tsan": step_tsan,
         "fuzz": step_fuzz, "cuda": step_cuda, "clang-tidy": step_clang_tidy, "tsan-engine": step_tsan_engine,
         "images": step_images,
         "cluster": step_cluster, "readme": step_readme, "nodes": step_nodes}


# Of processors alone, a minute or two; what they check does not hang on time.
BESIDE_LAST = ("neon", "fuzz")
# What is built of a step before its turn, where others need no more than it.
BUILDS = {"unit": build_release, "clang": build_clang, "neon": build_neon, "asan": build_asan, "tsan": build_tsan,
          "cluster": kubernetes_programs}
# Long, and for those who change what it looks at; --only names it.
LEFT_OUT = ("clang-tidy", "tsan-engine", "images")


def take(name):
    """Takes a step and tells when it began."""
    print(f"-- {name} (at {time.monotonic() - Options.started:.0f} s)", flush=True)
    try:
        STEPS[name]()
    except StepFailed as error:
        with Totals.lock:
            fail(name, error)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="steps, with commas between")
    parser.add_argument("--list", action="store_true", help="names of the steps")
    parser.add_argument("--again", action="store_true", help="also what has not changed since it passed")
    arguments = parser.parse_args()
    Options.again = arguments.again
    if arguments.list:
        print(" ".join(STEPS))
        return 0
    chosen = arguments.only.split(",") if arguments.only else [s for s in STEPS if s not in LEFT_OUT]
    unknown = [s for s in chosen if s not in STEPS]
    if unknown:
        print(f"unknown step {', '.join(unknown)}; known: {' '.join(STEPS)}", file=sys.stderr)
        return 2
    Options.chosen = chosen
    Options.beside_last = [name for name in chosen if name in BESIDE_LAST] if chosen[-1] == "nodes" else []
    Options.started = started = time.monotonic()
    wanted = os.environ.get("MUSTER_TEST_SECONDS")
    if wanted and not wanted.isdecimal():
        print(f"MUSTER_TEST_SECONDS: is {wanted!r}; must be a number of seconds", file=sys.stderr)
        return 2
    Options.ends = started + int(wanted) if wanted else None
    cached, made = compilations()
    ahead = Ahead(chosen, BUILDS)
    for name in chosen:
        ahead.wait_for(name)
        if name not in Options.beside_last:
            take(name)
    for line in Totals.measured:
        print(f"measured: {line}")
    for line in Totals.skipped:
        print(f"skipped: {line}")
    print(f"{len(Totals.skipped)} skipped")
    if not arguments.only:
        print(f"not run: {', '.join(LEFT_OUT)} (scripts/test --only {','.join(LEFT_OUT)})")
    cached, made = (now - before for now, before in zip(compilations(), (cached, made)))
    print(f"all steps took {time.monotonic() - started:.0f} s; {os.cpu_count()} processors; {made} compilations, {cached} from the cache")
    print_failures()
    print(f"{Totals.passed} passed, {Totals.failed} failed")
    return 1 if Totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
