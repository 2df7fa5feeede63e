"""Builds kubeflow's training-operator, the peer of operator.py, from the Go module proxy: as shipped and lifted.

The module's own go.sum pins what it is made of; the hash below pins the module. Programs are kept in the cache beside
those of scripts/kube-tools.
"""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
MODULE = "github.com/kubeflow/training-operator"
VERSION = "v1.9.0"
SUM = "h1:L+ep5YQT1Pq62O3VjW6G+IRQw+NpFlPRJJj8TgydBhQ="
PATCH = os.path.join(HERE, "training-operator-limits.patch")
BUILD_SECONDS = 3000


class PeerError(Exception):
    """The peer cannot be built; the text says why."""


def run(command, cwd, seconds=BUILD_SECONDS):
    env = {name: value for name, value in os.environ.items() if name != "GOROOT"}
    env.update(CGO_ENABLED="0", GOTOOLCHAIN="local", GOFLAGS="", GOWORK="off")
    try:
        done = subprocess.run(command, cwd=cwd, env=env, text=True, errors="replace", capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerError(f"{command[0]}: {error}") from None
    if done.returncode != 0:
        raise PeerError(f"{' '.join(command)[:200]}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def source(go):
    """The module's directory, read-only, after its hash was compared."""
    found = json.loads(run([go, "mod", "download", "-json", f"{MODULE}@{VERSION}"], "/"))
    if found.get("Sum") != SUM:
        raise PeerError(f"{MODULE}@{VERSION} has the hash {found.get('Sum')}, not the pinned {SUM}")
    return found["Dir"]


def build(go, directory, lifted):
    """Copies, patches when `lifted`, builds; returns the program's path."""
    with open(PATCH, "rb") as file:
        stamp = hashlib.sha256(SUM.encode() + (file.read() if lifted else b"")).hexdigest()[:12]
    target = os.path.join(directory, f"training-operator-{'lifted' if lifted else 'shipped'}-{stamp}")
    if os.access(target, os.X_OK):
        return target
    print(f"Building {os.path.basename(target)} (once; kept in {directory})", file=sys.stderr, flush=True)
    tree = f"{target}.source"
    shutil.rmtree(tree, ignore_errors=True)
    # Modes are not copied: the module cache is read-only.
    shutil.copytree(source(go), tree, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(tree):
        os.chmod(folder, 0o755)
    if lifted:
        run(["patch", "-p1", "-i", PATCH], tree)
    run([go, "build", "-mod=readonly", "-buildvcs=false", "-p", "1", "-trimpath", "-ldflags", "-s -w", "-o", f"{target}.partial",
         "./cmd/training-operator.v1"], tree)
    shutil.rmtree(tree)
    os.rename(f"{target}.partial", target)
    return target


def go_program():
    return run([os.path.join(ROOT, "scripts", "go-toolchain")], ROOT).strip()


def provide(lifted):
    """(program, directory of its CRDs)."""
    go = go_program()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = os.path.join(base, "muster", "peers")
    os.makedirs(directory, exist_ok=True)
    with open(os.path.join(directory, ".lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # Bounded by BUILD_SECONDS of the holder.
        return build(go, directory, lifted), os.path.join(source(go), "manifests", "base", "crds")


if __name__ == "__main__":
    try:
        for one in (False, True):
            print(provide(one)[0])
    except PeerError as error:
        sys.exit(f"training_operator.py: {error}")
