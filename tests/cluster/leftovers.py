"""What a cluster could leave behind on the machine, as sets of lines that can be compared before and after.

Other clusters may come and go meanwhile, so that what is new is not always ours. Ours is what bears the cluster's marks (its
directory, its tag, its addresses), what held a node's namespaces when that was turned off, and what bears the name of something that
programs of a node make, each in a node's own namespaces and cgroups: outside of these no cluster has such things, and a machine that has a
kubelet of its own had them before.
"""

import json
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


# Where programs of a node keep what they have; in memory and on the node's own disk, as the node sees it.
PLACES = ("/var/lib/kubelet", "/var/lib/containerd", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd")
# What kubelet, containerd, kube-proxy and the CNI plugins call what they make, by kind. Each node has a root of its own for its
# cgroups, and those in another cluster's are that one's.
NAMES = {"mount": re.compile(rf" (({'|'.join(PLACES)})(/\S*)?|(/var)?/run/netns/cni-\S+) "),
         "cgroup": re.compile(r"^(?!.*/mu\d+-node\d).*/(kubepods|k8s\.io|cri-containerd|kubelet)[^/]*(/|$)"),
         "firewall rule": re.compile(r"\b(KUBE|CNI)-|\bkube-proxy\b|\bcni_hostport\b")}
NAMESPACES = ("mnt", "net", "pid", "ipc", "uts", "cgroup")
HELD = "held.jsonl"  # In the cluster's directory: what held its nodes' namespaces, by note_holders().


def _numbered(lines):
    """Each line, and which of its like it is where there are several."""
    seen = {}
    for line in lines:
        seen[line] = seen.get(line, 0) + 1
        yield line if seen[line] == 1 else f"{line} ({seen[line]})"


def _mount_table():
    """(device, path in it, where, kind, source) of each mount that we see."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields, (kind, source) = line.split(), line.split(" - ")[1].split()[:2]
            yield fields[2], fields[3], fields[4], kind, source


def _mounts():
    return [f"{device}:{path} {where} {kind} {source}" for device, path, where, kind, source in _mount_table()]


def _in_its_device(directory):
    """A directory as mounts of it name it; of what is mounted at one place the last counts."""
    best = None
    for device, path, where, _, _ in _mount_table():
        inside = where == "/" or directory == where or directory.startswith(where + "/")
        if inside and (best is None or len(where) >= len(best[2])):
            best = device, path, where
    if best is None:
        return directory
    device, path, where = best
    return f"{device}:{os.path.normpath(os.path.join(path, os.path.relpath(directory, where)))}"


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


def _of_nft(lines):
    """Rules of `nft list ruleset`, each with its table and chain."""
    table = block = ""
    for line in lines:
        line = re.sub(r"counter packets \d+ bytes \d+", "counter", line.strip())
        if line.startswith("table "):
            table, block = line.removesuffix(" {"), ""
            yield table
        elif re.fullmatch(r"(chain|set|map|flowtable) \S+ \{", line):
            block = line.removesuffix(" {")
            yield f"{table} {block}"
        elif line == "}":
            table, block = (table, "") if block else ("", "")
        elif line and not line.startswith("#"):
            yield f"{table} {block}: {line}"


def _of_legacy(family, lines):
    """Rules of `iptables-save`, each with its table."""
    table = ""
    for line in lines:
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith((":", "-")):
            yield f"{family} {table}: " + re.sub(r" ?\[\d+:\d+\]", "", line)


def _firewall():
    rules = list(_of_nft(_lines(["nft", "list", "ruleset"])))
    for family in ("ip", "ip6"):
        # Reading the old interface's rules loads its modules, so only where they are in use.
        try:
            with open(f"/proc/net/{family}_tables_names", encoding="utf-8") as file:
                in_use = file.read().strip()
        except OSError:
            in_use = ""
        if in_use:
            rules += _of_legacy(family, _lines([f"{family}tables-legacy-save"]))
    return rules


def _namespaces_of(pid):
    found = set()
    for kind in NAMESPACES:
        try:
            found.add(os.readlink(f"/proc/{pid}/ns/{kind}"))
        except OSError:
            pass
    return found


def _parent(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def note_holders(directory, init):
    """Notes what holds the namespaces of a node whose process 1 is `init`, and those of its pods: processes, by pid and start, and
    mounts that we see. A namespace's number alone says nothing later: the next one that is made may have it."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    held = {pid: _namespaces_of(pid) for pid in pids}
    try:
        own = os.readlink(f"/proc/{init}/ns/pid")
    except OSError:
        return
    inside = {pid for pid in pids if own in held[pid]}
    parents = {pid: _parent(pid) for pid in pids}
    while grown := {pid for pid in pids if parents[pid] in inside} - inside:  # Pods have process namespaces of their own.
        inside |= grown
    namespaces = set().union(*(held[pid] for pid in inside)) - _namespaces_of(os.getpid())
    lines = []
    for pid in pids:
        started = start_time(pid)
        if started is not None and (pid in inside or held[pid] & namespaces):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    command = file.read().replace("\0", " ").strip()[:160]
            except OSError:
                continue
            lines.append({"pid": pid, "started": started, "command": command})
    lines += [{"mount": where, "namespace": path} for _, path, where, kind, _ in _mount_table() if kind == "nsfs" and path in namespaces]
    with open(os.path.join(directory, HELD), "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def still_held(directory):
    """Of what was noted, what is there yet."""
    try:
        with open(os.path.join(directory, HELD), encoding="utf-8") as file:
            noted = [json.loads(line) for line in file]
    except OSError:
        return []
    mounts = {(where, path) for _, path, where, _, _ in _mount_table()}
    found = [f"process of a node: {one['pid']} {one['command']}" for one in noted
             if "pid" in one and start_time(one["pid"]) == one["started"]]
    found += [f"namespace of a node: {one['namespace']} mounted at {one['mount']}" for one in noted
              if "mount" in one and (one["mount"], one["namespace"]) in mounts]
    return sorted(set(found))


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
        "mount": sorted(_numbered(_mounts())),
        "folder": [place for place in PLACES if os.path.exists(place)],
        "network namespace": sorted(_network_namespaces()),
        "mount namespace": sorted(_namespaces("mnt")),
        "process namespace": sorted(_namespaces("pid")),
        # Without the interface's number and state, which change by themselves.
        "link": sorted({line.split(": ")[1].split("@")[0] for line in _lines(["ip", "-o", "link"]) if ": " in line}),
        # Without the interface's number and how long they are valid.
        "address": sorted({line.split(": ", 1)[-1].split("\\")[0].rstrip() for line in _lines(["ip", "-o", "-4", "address"])}),
        "route": sorted(set(_lines(["ip", "route", "show", "table", "all"]))),
        "cgroup": sorted(_cgroups()),
        "firewall rule": sorted(_numbered(_firewall())),
        "kernel parameter": sorted(sysctls),
        "process": sorted(_processes(marker)),
    }


def left_behind(before, after, directory, tag, network):
    """(ours, others): new things that are the cluster's, and new things that are not. `network` begins all its addresses.

    The machine may be busy with other things; of kernel parameters, which bear no mark, all that is new counts as ours, and of folders,
    which were not there. With MUSTER_STRICT_LEFTOVERS=1 everything does: for who has the machine alone.
    """
    is_alone = os.environ.get("MUSTER_STRICT_LEFTOVERS") == "1"
    marks = re.compile("|".join([re.escape(directory), re.escape(_in_its_device(directory)), rf"\b{re.escape(tag)}",
                                 rf"(?<![\d.]){re.escape(network)}\."]))
    ours, others = [], []
    for kind, lines in after.items():
        known, names = set(before.get(kind, [])), NAMES.get(kind)
        if names and any(names.search(line) for line in known):
            names = None
        for line in lines:
            if line in known:
                continue
            is_ours = (is_alone or kind in ("kernel parameter", "process", "folder") or marks.search(line)
                       or names and names.search(line))
            (ours if is_ours else others).append(f"{kind}: {line}")
    return ours, others
