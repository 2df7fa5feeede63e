"""What a cluster could leave behind on the machine, as sets of lines that can be compared before and after."""

import os
import re
import shutil
import subprocess

from processes import start_time


def _lines(command):
    if not shutil.which(command[0]):
        return []
    done = subprocess.run(command, text=True, errors="replace", capture_output=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False)
    return done.stdout.splitlines()


def _mounts():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        return [" ".join(line.split()[4:5] + line.split(" - ")[1].split()[:2]) for line in file]


def _cgroups():
    found = []
    for folder, folders, _ in os.walk("/sys/fs/cgroup"):
        found += [os.path.join(folder, name) for name in folders]
    return found


def _processes(marker):
    """Processes that name the cluster's directory or live in its cgroups."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid() or start_time(int(name)) is None:
            continue
        try:
            with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                command = file.read().replace("\0", " ").strip()
            with open(f"/proc/{name}/cgroup", encoding="utf-8", errors="replace") as file:
                groups = file.read()
        except OSError:
            continue
        # The commands that users type name the directory too (`down --state DIR`).
        if (marker["directory"] + "/" in command or f"/{marker['tag']}" in groups) and "scripts/cluster" not in command:
            found.append(f"{name} {command[:160]}")
    return found


def _namespaces(kind):
    """Those that processes hold."""
    found = set()
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                found.add(os.readlink(f"/proc/{name}/ns/{kind}"))
            except OSError:
                pass
    return found


def _network_namespaces():
    """Named ones, and those that processes hold."""
    found = _namespaces("net")
    for folder in ("/run/netns", "/var/run/netns"):
        if os.path.isdir(folder):
            found.update(f"named {name}" for name in os.listdir(folder))
    return found


def _firewall():
    rules = [re.sub(r"counter packets \d+ bytes \d+", "counter", line) for line in _lines(["nft", "list", "ruleset"])]
    for family in ("ip", "ip6"):
        # Reading the old interface's rules loads its modules, so only where they are in use.
        try:
            with open(f"/proc/net/{family}_tables_names", encoding="utf-8") as file:
                in_use = file.read().strip()
        except OSError:
            in_use = ""
        if in_use:
            rules += _lines([f"{family}tables-legacy-save"])
    return [rule for rule in rules if rule.strip() and not rule.startswith("#")]


def snapshot(directory, tag):
    """Everything that is there now. `tag` begins the names of all that the cluster makes outside its directory."""
    marker = {"directory": directory, "tag": tag}
    sysctls = []
    for name in ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
                 "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes", "net/ipv4/ip_forward",
                 "net/netfilter/nf_conntrack_max"):
        try:
            with open(f"/proc/sys/{name}", encoding="utf-8") as file:
                sysctls.append(f"{name} = {file.read().strip()}")
        except OSError:
            pass
    return {
        "mount": sorted(set(_mounts())),
        "network namespace": sorted(_network_namespaces()),
        "mount namespace": sorted(_namespaces("mnt")),
        "process namespace": sorted(_namespaces("pid")),
        # Without the interface's number and state, which change by themselves.
        "link": sorted({line.split(": ")[1].split("@")[0] for line in _lines(["ip", "-o", "link"]) if ": " in line}),
        "route": sorted(set(_lines(["ip", "route", "show", "table", "all"]))),
        "cgroup": sorted(_cgroups()),
        "firewall rule": sorted(set(_firewall())),
        "kernel parameter": sorted(sysctls),
        "process": sorted(_processes(marker)),
    }


def left_behind(before, after, directory, tag):
    """(ours, others): new things that bear the cluster's marks, and new things that do not.

    The machine may be busy with other things; only kernel parameters, which bear no mark, always count as ours. With
    MUSTER_STRICT_LEFTOVERS=1 everything does: for who has the machine alone.
    """
    is_alone = os.environ.get("MUSTER_STRICT_LEFTOVERS") == "1"
    ours, others = [], []
    for kind, lines in after.items():
        for line in lines:
            if line in before.get(kind, []):
                continue
            marked = directory in line or re.search(rf"\b{re.escape(tag)}", line)
            is_ours = marked or is_alone or kind in ("kernel parameter", "process")
            (ours if is_ours else others).append(f"{kind}: {line}")
    return ours, others
