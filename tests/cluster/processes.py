"""Programs in the background for the cluster tests: started with a log, known by pid and start time, stopped by pid.

A Daemon is described by a file, run/NAME.json under its directory, so that a later call (`scripts/cluster down`) can
stop or restart what an earlier one started. No wait here is without a deadline.
"""

import ctypes
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request

# Between two looks: short at first, for what is nearly there, then longer, for a look costs the API server, and whoever
# else waits for a processor.
POLL_SECONDS, POLL_SECONDS_MOST, POLL_GROWS = 0.05, 0.5, 1.3
# With several clusters at once, on a machine that others use too, all takes longer; nothing is lost by waiting.
PATIENCE = 2
PR_SET_PDEATHSIG = 1
# Of programs in Go: several clusters at once want their processors more than memory; an API server starts in a quarter less of theirs.
SELDOM_COLLECTED = {"GOGC": "400"}


class ClusterError(Exception):
    """Something did not come up, or would not go away; the text says what, for a reader who did not write this."""


def wait_for(what, condition, seconds, check=None):
    """The first true answer of `condition`; ClusterError when there is none in PATIENCE times `seconds`, which are those of a
    machine with nothing else to do.

    `check` is called before each try and may raise: a wait for a program that has died ends at once. A condition may
    raise OSError for "not yet"; the last one is part of the error.
    """
    seconds *= PATIENCE
    deadline = time.monotonic() + seconds
    last, pause = "", POLL_SECONDS
    while True:
        if check:
            check()
        try:
            answer = condition()
            if answer:
                return answer
        except OSError as error:
            last = f" (last: {error})"
        if time.monotonic() > deadline:
            raise ClusterError(f"{what}: not so after {seconds:.0f} s{last}")
        time.sleep(pause)
        pause = min(POLL_SECONDS_MOST, pause * POLL_GROWS)


def run(command, seconds=60, stdin=None, env=None, check=True):
    """Output of a command, both streams; ClusterError with it when it fails or takes too long."""
    shown = " ".join(command)[:300]
    try:
        done = subprocess.run(command, text=True, errors="replace", input=stdin, timeout=seconds, env=env,
                              stdin=subprocess.DEVNULL if stdin is None else None,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except FileNotFoundError:
        raise ClusterError(f"{command[0]} is not installed; run scripts/install-deps --cluster") from None
    except subprocess.TimeoutExpired:
        raise ClusterError(f"{shown}: not done in {seconds} s") from None
    if check and done.returncode != 0:
        raise ClusterError(f"{shown}: exit code {done.returncode}\n{done.stdout.strip()[-3000:]}")
    return done.stdout


def free_ports(count, host="127.0.0.1"):
    """Ports of `host` that nobody listens on now, outside the range that outgoing connections take theirs from.

    Another process may still take one before the caller does: who listens retries with others.
    """
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="utf-8") as file:
            top = int(file.read().split()[0])
    except (OSError, ValueError):
        top = 32768
    low, high = (10240, top) if top > 16384 else (1024, 65536)
    ports = []
    for _ in range(1000):
        port = random.randrange(low, high)
        with socket.socket() as candidate:
            try:
                candidate.bind((host, port))
            except OSError:
                continue
        if port not in ports:
            ports.append(port)
        if len(ports) == count:
            return ports
    raise ClusterError(f"{host} has no {count} free ports between {low} and {high}")


def fetch(url, seconds=5, context=None):
    """The body of a GET, without any proxy; OSError (urllib.error.HTTPError) when it is refused."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}),
                                         urllib.request.HTTPSHandler(context=context))
    with opener.open(url, timeout=seconds) as answer:
        return answer.read(1 << 24)


def start_time(pid):
    """When the process started, in clock ticks since boot; None when it is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def tail(path, lines=15):
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - 65536))
            text = file.read().decode(errors="replace")
    except OSError as error:
        return f"    ({error.strerror}: {path})"
    return "\n".join(f"    {line[:400]}" for line in text.splitlines()[-lines:]) or f"    (nothing in {path})"


class Daemon:
    """One program in the background.

    `dies_with_us`: the kernel kills it when the thread that started it ends, however that happens. So a test that is
    killed leaves nothing behind; start such a daemon from a thread that lives as long as it shall.
    `wrapped`: the command (nsenter, unshare) waits for a child of its own, and that one is meant.
    """

    def __init__(self, directory, name, command, env=None, dies_with_us=False, wrapped=False):
        self.directory, self.name, self.command = directory, name, command
        self.env, self.dies_with_us, self.wrapped = env or {}, dies_with_us, wrapped
        self.pid = self.started = None
        self._child = None

    @property
    def log(self):
        return os.path.join(self.directory, "log", f"{self.name}.log")

    def _record(self):
        return os.path.join(self.directory, "run", f"{self.name}.json")

    @classmethod
    def load(cls, directory, name):
        """The daemon of that name as it was last started; ClusterError when there was none."""
        try:
            with open(os.path.join(directory, "run", f"{name}.json"), encoding="utf-8") as file:
                record = json.load(file)
        except (OSError, ValueError) as error:
            raise ClusterError(f"no {name} was started in {directory}: {error}") from None
        daemon = cls(directory, name, record["command"], record["env"], record["dies_with_us"], record["wrapped"])
        daemon.pid, daemon.started = record["pid"], record["started"]
        return daemon

    @staticmethod
    def names(directory):
        """Every daemon started under `directory`, the latest last."""
        folder = os.path.join(directory, "run")
        names = [name for name in (os.listdir(folder) if os.path.isdir(folder) else []) if name.endswith(".json")]
        names.sort(key=lambda name: os.stat(os.path.join(folder, name)).st_mtime_ns)
        return [name[:-len(".json")] for name in names]

    def start(self):
        if self.alive():
            return self
        for folder in ("log", "run"):
            os.makedirs(os.path.join(self.directory, folder), exist_ok=True)
        death = ctypes.CDLL(None).prctl if self.dies_with_us else None

        def before_exec():
            if death:
                death(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

        with open(self.log, "ab") as log:
            try:
                self._child = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                               cwd=self.directory, env={**os.environ, **self.env},
                                               start_new_session=True, preexec_fn=before_exec)
            except OSError as error:
                raise ClusterError(f"{self.name} cannot be started: {self.command[0]}: {error.strerror}") from None
        self.pid, self.started = self._child.pid, start_time(self._child.pid)
        if self.wrapped:
            self.pid = wait_for(f"{self.name} is started", self._grandchild, 30, self.check)
            self.started = start_time(self.pid)
        record = {"pid": self.pid, "started": self.started, "command": self.command, "env": self.env,
                  "dies_with_us": self.dies_with_us, "wrapped": self.wrapped}
        partial = self._record() + ".partial"
        with open(partial, "w", encoding="utf-8") as file:
            json.dump(record, file, indent=1)
        os.rename(partial, self._record())
        return self

    def _grandchild(self):
        parent = self._child.pid
        with open(f"/proc/{parent}/task/{parent}/children", encoding="utf-8") as file:
            children = file.read().split()
        return int(children[0]) if children else None

    def alive(self):
        if self._child is not None:
            self._child.poll()
        return self.pid is not None and self.started is not None and start_time(self.pid) == self.started

    def check(self):
        """ClusterError with the end of its log when it runs no more."""
        if not self.alive():
            raise ClusterError(f"{self.name} has ended; the end of {self.log}:\n{tail(self.log)}")

    def wait_ready(self, condition, seconds=60):
        try:
            return wait_for(f"{self.name} is ready", condition, seconds, self.check)
        except ClusterError as error:
            if "has ended" in str(error):
                raise
            raise ClusterError(f"{error}; the end of {self.log}:\n{tail(self.log)}") from None

    def __del__(self):
        # A later object may have ended what this one started; nothing is lost but Python's warning.
        if self._child is not None and self._child.returncode is None:
            self._child.returncode = 0

    def signal(self, number):
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                pass

    def kill(self):
        """As a loss of power does; returns when it is gone."""
        self.signal(signal.SIGKILL)
        wait_for(f"{self.name} (pid {self.pid}) is gone", lambda: not self.alive(), 20)
        if self._child is not None:
            self._child.wait(20)

    def stop(self, seconds=15):
        """SIGTERM, and SIGKILL after `seconds`."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while self.alive() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.kill()
