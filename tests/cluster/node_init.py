#!/usr/bin/env python3
"""Process 1 of a node: makes the node's own view of the file system and reaps orphans until it is killed.

    unshare --mount --net --pid --fork --kill-child node_init.py STORAGE

runs it in mount, network and process namespaces of its own. STORAGE (the node's disk) appears as /var/lib and
/var/log; /run is empty and in memory. So a killed node leaves no mount, link or process behind, and one that is
started again finds its disk and nothing else, as after a loss of power. Writes "ready" to its output.
"""

import ctypes
import os
import signal
import subprocess
import sys

MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
LIBC = ctypes.CDLL(None, use_errno=True)

# What a kubelet wants of the whole machine's kernel, and writes where it is not so. The node sees these values and the
# machine keeps its own.
TUNABLES = {"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
            "kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000"}


def mount(source, target, kind=None, flags=0, options=None):
    def text(value):
        return value.encode() if value else None

    if LIBC.mount(text(source), text(target), text(kind), flags, text(options)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {source} on {target}: {os.strerror(number)}")


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        file.write(value)


def make_view(storage):
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc")
    mount(f"{storage}/log", "/var/log", None, MS_BIND)
    mount(f"{storage}/lib", "/var/lib", None, MS_BIND)  # Last of the two: the storage may lie under /var/lib.
    mount("tmpfs", "/run", "tmpfs", 0, "mode=755")
    for name, value in TUNABLES.items():
        if os.path.exists(f"/proc/sys/{name}"):
            fake = f"/run/sysctl-{name.replace('/', '-')}"
            write(fake, value + "\n")
            mount(fake, f"/proc/sys/{name}", None, MS_BIND)


def make_network():
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True, timeout=20)
    write("/proc/sys/net/ipv4/ip_forward", "1")
    # Service traffic inside a node enters and leaves by different addresses.
    write("/proc/sys/net/ipv4/conf/all/rp_filter", "0")
    write("/proc/sys/net/ipv4/conf/default/rp_filter", "0")


def main():
    if len(sys.argv) != 2 or os.getpid() != 1:
        raise SystemExit("node_init.py: runs as process 1 of a namespace: unshare --pid --fork node_init.py STORAGE")
    try:
        make_view(sys.argv[1])
        make_network()
    except (OSError, subprocess.SubprocessError) as error:
        raise SystemExit(f"node_init.py: {error}") from None
    print("ready", flush=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigtimedwait({signal.SIGCHLD}, 5)


if __name__ == "__main__":
    main()
