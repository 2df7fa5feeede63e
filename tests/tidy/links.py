#!/usr/bin/env python3
"""`muster` and `muster-operator` decide with the same libraries, as the build itself tells.

    tests/tidy/links.py BUILD_DIR     exit 1 when they share less, or one of them has more, than is listed here
"""

import re
import subprocess
import sys

BOTH = {"muster_common", "muster_api", "muster_core", "muster_kube", "muster_runtime", "muster_endpoint", "muster_http", "muster_yaml"}
# How the operator is started, its way to a real API server, and the node agent, which decides nothing.
ONLY_OPERATOR = {"muster_operator_flags", "muster_agent", "muster_kube_rest", "muster_kube_config"}
# The commands, the text of tokens, and what stands in for API server and nodes.
ONLY_CLI = {"muster_cli", "muster_cli_files", "muster_cli_kube", "muster_bpe", "muster_embedded", "muster_kubelet"}


def libraries(build, binary):
    out = subprocess.run(["ninja", "-C", build, "-t", "inputs", f"bin/{binary}"], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"links: ninja does not know bin/{binary} in {build}: {out.stderr.strip()}")
    return set(re.findall(r"lib(muster_\w+)\.a", out.stdout))


def differences(cli, operator):
    """What each lacks of its list, or has beside it."""
    for name, linked, listed in (("muster", cli, BOTH | ONLY_CLI), ("muster-operator", operator, BOTH | ONLY_OPERATOR)):
        yield from (f"{name} does not link {library}" for library in sorted(listed - linked))
        yield from (f"{name} links {library}" for library in sorted(linked - listed))


def main():
    build = sys.argv[1]
    cli, operator = libraries(build, "muster"), libraries(build, "muster-operator")
    wrong = list(differences(cli, operator))
    for line in wrong:
        print(f"links: {line}")
    print(f"links: both link {', '.join(sorted(cli & operator))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
