#!/usr/bin/env python3
"""`muster` and `muster-operator` decide with the same libraries, as the build itself tells.

    tests/tidy/links.py BUILD_DIR     exit 1 when one of them lacks a library of the operator
"""

import re
import subprocess
import sys

BOTH = {"muster_common", "muster_api", "muster_core", "muster_kube", "muster_runtime", "muster_endpoint", "muster_http"}
ONLY_OPERATOR = {"muster_kube_rest"}   # the cpprestsdk transport, once it is there
ONLY_CLI = {"muster_embedded"}


def libraries(build, binary):
    out = subprocess.run(["ninja", "-C", build, "-t", "inputs", f"bin/{binary}"], capture_output=True, text=True)
    if out.returncode != 0:
        sys.exit(f"links: ninja does not know bin/{binary} in {build}: {out.stderr.strip()}")
    return set(re.findall(r"lib(muster_\w+)\.a", out.stdout))


def main():
    build = sys.argv[1]
    cli, operator = libraries(build, "muster"), libraries(build, "muster-operator")
    wrong = []
    for name, linked in (("muster", cli), ("muster-operator", operator)):
        for library in sorted(BOTH - linked):
            wrong.append(f"{name} does not link {library}")
    wrong += [f"muster links {l}" for l in sorted(cli & ONLY_OPERATOR)]
    wrong += [f"muster-operator links {l}" for l in sorted(operator & ONLY_CLI)]
    for line in wrong:
        print(f"links: {line}")
    print(f"links: both link {', '.join(sorted(cli & operator))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
