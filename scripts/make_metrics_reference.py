#!/usr/bin/env python3
"""Makes docs/reference/metrics.md from common/contract.h, the dashboards and the alerts.

    scripts/make_metrics_reference.py [--check]     --check: exit 1 when the page is not up to date

Exit 1 also when a metric stands in no dashboard and no alert: a figure that nobody looks at is not kept.
"""

import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from generated import ROOT, publish   # noqa: E402
from make_contract_reference import HEADER, constants   # noqa: E402

PAGE = "docs/reference/metrics.md"
CHART = os.path.join(ROOT, "charts/muster")
HEAD = """# Metrics

Made from `common/contract.h` by `scripts/make_metrics_reference.py`; do not edit.

The operator serves `/metrics` on `--metrics-bind-address`, by default over TLS to those whose token may read the URL
`/metrics`. Each worker of the built-in engine serves `/metrics` plainly on the container port `metrics`; its series
hold no free text. `muster run --metrics-port N` serves the operator's on 127.0.0.1:N and those of the worker of slot i
on N + 1 + i.

A job's series go away with the job, a queue's with the queue. Of a job that ended more than 15 minutes ago there is only what it
came to: its conditions that are true, the reason of its failure, what it has cost. Of several replicas of the operator only the
leader has series of jobs and queues. Scrape the operator with `honor_labels`, because `namespace` means the job's; workers without,
because there the target's `namespace` is the job's, and what runs as a worker may be anybody's program. The chart's PodMonitor takes
`muster_worker_...` alone from them, and only from pods with the label `muster.dev/job-uid`. Dashboards: `charts/muster/dashboards`;
alerts: `charts/muster/rules`, each with a page in [runbooks](../runbooks).

Of the names that stock dashboards of controllers ask for, three are not there, because what they count cannot happen, and
a zero that never moves would say that somebody looked. A panic (`controller_runtime_reconcile_panics_total`): a broken
invariant ends the process, and Kubernetes counts its restarts; what a library throws at one job is an error of that job's, and is
counted as one. A reconcile that takes too long
(`controller_runtime_reconcile_timeouts_total`): a look at a job waits for nobody, and every exchange with the API server
has a deadline, whose passing is an error. A terminal error (`controller_runtime_terminal_reconcile_errors_total`):
whatever the API server refuses is tried again, ever more rarely; a spec that cannot be used is no error of the operator's
but the job's end, `Failed` with reason `InvalidSpec`.
"""


def metrics():
    """(section, name, type, labels, meaning) of every metric of the contract."""
    with open(HEADER, encoding="utf-8") as file:
        text = file.read()
    text = text[text.index("namespace metric {"):]
    for section, _, name, comment in constants(text):
        found = re.match(r"(Counter|Gauge|Histogram)(?: by ([a-z_, ]+))?: (.*)$", comment)
        if not found:
            sys.exit(f"contract.h: {name}: its comment must begin with Counter, Gauge or Histogram, then its labels")
        kind, labels, meaning = found.groups()
        labels = [label.strip() for label in labels.split(",")] if labels else []
        if common := re.search(r"\(labels: (.*)\)", section):
            labels = common.group(1).split(", ") + labels
        yield section, name, kind.lower(), labels, meaning


def shown_in():
    """metric -> dashboards and alert files that name it."""
    found = {}
    for folder in ("dashboards", "rules"):
        for file_name in sorted(os.listdir(os.path.join(CHART, folder))):
            with open(os.path.join(CHART, folder, file_name), encoding="utf-8") as file:
                text = file.read()
            label = os.path.splitext(file_name)[0] + (" alerts" if folder == "rules" else "")
            for word in set(re.findall(r"[a-z][a-z0-9_]+", text)):
                for name in {word, re.sub(r"_(bucket|sum|count)$", "", word)}:
                    found.setdefault(name, [])
                    if label not in found[name]:
                        found[name].append(label)
    return found


def page():
    shown = shown_in()
    lines, current, unseen = [HEAD.rstrip("\n")], None, []
    for section, name, kind, labels, meaning in metrics():
        if section != current:
            current = section
            lines += ["", f"## {re.sub(r' *[(]labels:.*', '', section)}", "",
                      "| name | type | labels | meaning | shown in |", "|---|---|---|---|---|"]
        where = ", ".join(shown.get(name, []))
        if not where:
            unseen.append(name)
        lines.append(f"| `{name}` | {kind} | {', '.join(f'`{label}`' for label in labels)} | "
                     f"{meaning[0].upper() + meaning[1:]} | {where} |")
    return "\n".join(lines) + "\n", unseen


def main():
    text, unseen = page()
    if unseen:
        print(f"in no dashboard and no alert: {', '.join(unseen)}")
        return 1
    return publish({PAGE: text})


if __name__ == "__main__":
    sys.exit(main())
