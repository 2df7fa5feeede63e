"""For each alert: series under which it fires, holds its tongue, and comes to rest; promtool plays them.

A case is (series, checks): series map a selector to promtool's notation (one value a minute), checks are (time, how
many fire then). "_x10" repeats a value so often more.
"""

import os
import subprocess
import tempfile

# Of two releases in a cluster, each in a namespace of its own; Prometheus calls both by the name of their Service.
M, OTHER = 'namespace="m",job="m",instance="a"', 'namespace="other",job="m",instance="z"'
INFO = {f'muster_build_info{{{M},version="1"}}': "1x400", f'muster_build_info{{{OTHER},version="1"}}': "1x400"}
JOB = 'namespace="n",training_job="j"'
CASES = {
    "MusterOperatorDown": (
        {f'muster_build_info{{{M},version="1"}}': "1x10 _x20 1x20",
         f'muster_build_info{{{OTHER},version="1"}}': "1x60"},
        [("10m", 0), ("14m", 0), ("25m", 1), ("35m", 0)]),
    "MusterNoLeader": (
        # Neither another controller's leader nor another release's must hide that ours is gone.
        {**INFO,
         'muster_build_info{namespace="m",job="m",instance="b",version="1"}': "1x60",
         f'leader_election_master_status{{{M},name="muster-operator"}}': "1x10 0x49",
         'leader_election_master_status{namespace="m",job="m",instance="b",name="muster-operator"}': "0x30 1x29",
         f'leader_election_master_status{{{OTHER},name="muster-operator"}}': "1x60",
         'leader_election_master_status{namespace="m",job="other",instance="c",name="other"}': "1x60"},
        [("10m", 0), ("11m", 0), ("20m", 1), ("35m", 0)]),
    "MusterGuardrailMissing": (
        {f'muster_guardrail_missing{{{M},guardrail="muster-jobs"}}': "0x10 1x20 0x20",
         'muster_guardrail_missing{namespace="m",job="m",instance="b",guardrail="muster-jobs"}': "0x10 1x20 0x20",
         f'muster_guardrail_missing{{{OTHER},guardrail="muster-team-jobs"}}': "0x60"},
        [("10m", 0), ("14m", 0), ("20m", 1), ("35m", 0)]),
    "MusterCaExpires": (
        # 30 days are 2,592,000 s; another CA comes after 40 minutes. The other release's lasts.
        {f'muster_ca_expiry_timestamp_seconds{{{M}}}': "2593200x40 315360000x20",
         f'muster_ca_expiry_timestamp_seconds{{{OTHER}}}': "315360000x60"},
        [("20m", 0), ("24m", 0), ("30m", 1), ("45m", 0)]),
    "MusterReconcileErrors": (
        {**INFO,
         f'controller_runtime_reconcile_errors_total{{{M},controller="t"}}': "0x30 0+6x60 360x60",
         f'controller_runtime_reconcile_total{{{M},controller="t",result="success"}}': "0+30x160",
         f'controller_runtime_reconcile_total{{{M},controller="t",result="error"}}': "0x30 0+6x60 360x60",
         # A release with much to do, and all of it well.
         f'controller_runtime_reconcile_errors_total{{{OTHER},controller="t"}}': "0x160",
         f'controller_runtime_reconcile_total{{{OTHER},controller="t",result="success"}}': "0+900x160",
         'controller_runtime_reconcile_errors_total{namespace="m",job="other",instance="c",controller="t"}': "0+90x160"},
        [("29m", 0), ("40m", 0), ("80m", 1), ("120m", 0)]),
    "MusterWorkqueueBacklog": (
        # Both releases fall behind, and one catches up.
        {**INFO, f'workqueue_depth{{{M},name="trainingjob"}}': "3x20 150x40 2x40",
         f'workqueue_depth{{{OTHER},name="trainingjob"}}': "3x20 150x60 2x20",
         'workqueue_depth{namespace="m",job="other",instance="c",name="trainingjob"}': "900x80"},
        [("20m", 0), ("30m", 0), ("50m", 2), ("70m", 1), ("90m", 0)]),
    "MusterApiErrors": (
        {**INFO, f'rest_client_requests_total{{{M},code="200",method="GET",host="h"}}': "0+60x160",
         f'rest_client_requests_total{{{M},code="503",method="GET",host="h"}}': "0x30 0+10x50 500x60",
         f'rest_client_requests_total{{{M},code="<error>",method="GET",host="h"}}': "0x30 0+10x50 500x60",
         f'rest_client_requests_total{{{M},code="404",method="GET",host="h"}}': "0+60x160",
         f'rest_client_requests_total{{{OTHER},code="200",method="GET",host="h"}}': "0+900x160",
         'rest_client_requests_total{namespace="m",job="other",instance="c",code="500",method="GET",host="h"}': "0+90x160"},
        [("29m", 0), ("35m", 0), ("70m", 1), ("110m", 0)]),
    "MusterJobPendingTooLong": (
        {f'muster_job_pending_seconds{{{JOB},awaits="Room"}}': "0+60x60 stale",
         f"muster_job_pending_seconds{{{JOB}}}": "_x61 0x90",
         'muster_job_pending_seconds{namespace="n",training_job="patient",awaits="Room"}': "900x150",
         'muster_job_pending_seconds{namespace="n",training_job="behind",awaits="Turn"}': "0+60x150",
         # Its turn comes after 70 minutes, and then its pods do not start.
         'muster_job_pending_seconds{namespace="n",training_job="next",awaits="Turn"}': "0+60x70 stale",
         'muster_job_pending_seconds{namespace="n",training_job="next",awaits="Workers"}': "_x71 4260+60x80"},
        [("30m", 0), ("40m", 1), ("62m", 0), ("90m", 0), ("104m", 0), ("110m", 1)]),
    "MusterJobStalled": (
        # Steps until minute 10, none until 40, then again; another job makes one all the time.
        {f"muster_job_progress_timestamp_seconds{{{JOB}}}": "0+60x10 600x30 2460+60x20",
         'muster_job_progress_timestamp_seconds{namespace="n",training_job="busy"}': "0+60x60"},
        [("19m", 0), ("22m", 0), ("30m", 1), ("45m", 0)]),
    "MusterRestartLoop": (
        {f"muster_job_restarts_total{{{JOB}}}": "0x10 1x5 2x5 3x100",
         # Two more within the hour, of which half an hour is known.
         'muster_job_restarts_total{namespace="n",training_job="twice"}': "5x10 6x5 7x100",
         'muster_job_restarts_total{namespace="n",training_job="once"}': "0x10 1x110"},
        [("12m", 0), ("30m", 1), ("100m", 0)]),
    "MusterStragglerRank": (
        {**{f'muster_worker_phase_seconds_sum{{{JOB},slot="{slot}",process="0",phase="compute"}}':
            "0+6x130" for slot in range(3)},
         **{f'muster_worker_phase_seconds_sum{{{JOB},slot="{slot}",process="0",phase="communicate"}}': "0+90x130"
            for slot in range(3)},
         # A spare computes nothing.
         f'muster_worker_phase_seconds_sum{{{JOB},slot="3",process="0",phase="data"}}': "0+1x130",
         f'muster_worker_logical_rank_computations_total{{{JOB},slot="3",process="0"}}': "0x130",
         # Its steps are as long as the others', with a quarter of the work.
         **{f'muster_worker_logical_rank_computations_total{{{JOB},slot="{slot}",process="0"}}':
            "0+240x20 4800+60x50 7800+240x60" if slot == 2 else "0+240x130" for slot in range(3)},
         # Of two processes one needs twice as long.
         **{f'muster_worker_phase_seconds_sum{{namespace="n",training_job="pair",slot="{slot}",process="0",phase="compute"}}':
            "0+6x130" for slot in range(2)},
         **{f'muster_worker_logical_rank_computations_total{{namespace="n",training_job="pair",slot="{slot}",process="0"}}':
            "0+240x20 4800+120x50 10800+240x60" if slot == 1 else "0+240x130" for slot in range(2)}},
        [("20m", 0), ("30m", 0), ("60m", 2), ("100m", 0)]),
    "MusterCheckpointTooOld": (
        {f"muster_job_checkpoint_timestamp_seconds{{{JOB}}}": "0x90 5400x30",
         f'muster_job_condition{{{JOB},type="Running",status="true"}}': "1x120",
         'muster_job_checkpoint_timestamp_seconds{namespace="n",training_job="over"}': "0x120",
         'muster_job_condition{namespace="n",training_job="over",type="Running",status="true"}': "0x200",
         # Its checkpoint was old already when it went on after a long wait; the next one comes in time.
         'muster_job_checkpoint_timestamp_seconds{namespace="n",training_job="resumed"}': "0x160 9600x60",
         'muster_job_condition{namespace="n",training_job="resumed",type="Running",status="true"}': "0x120 1x100",
         # Its first checkpoint never comes, but at the end; the others want none, have no step yet, or wait.
         'muster_job_checkpoint_step{namespace="n",training_job="never"}': "_x100 -1x100 50x20",
         'muster_job_phase_seconds_total{namespace="n",training_job="never",phase="Running"}': "_x100 0+60x120",
         'muster_job_condition{namespace="n",training_job="never",type="Running",status="true"}': "_x100 1x120",
         'muster_job_phase_seconds_total{namespace="n",training_job="unwanted",phase="Running"}': "0+60x220",
         'muster_job_condition{namespace="n",training_job="unwanted",type="Running",status="true"}': "1x220",
         'muster_job_checkpoint_step{namespace="n",training_job="waits"}': "-1x220",
         'muster_job_phase_seconds_total{namespace="n",training_job="waits",phase="Running"}': "0x220",
         'muster_job_phase_seconds_total{namespace="n",training_job="waits",phase="Waiting"}': "0+60x220",
         'muster_job_condition{namespace="n",training_job="waits",type="Running",status="true"}': "0x220"},
        [("60m", 0), ("65m", 0), ("80m", 1), ("95m", 0), ("160m", 0), ("180m", 1), ("210m", 0)]),
    "MusterGoodputLow": (
        {f"muster_job_productive_seconds_total{{{JOB}}}": "0+54x90 4860+12x120 6300+54x120",
         f'muster_job_phase_seconds_total{{{JOB},phase="Running"}}': "0+60x330",
         f"muster_job_progress_timestamp_seconds{{{JOB}}}": "0+60x330",
         # Two hours in a queue, then it trains well.
         'muster_job_productive_seconds_total{namespace="n",training_job="queued"}': "0x120 0+54x210",
         'muster_job_phase_seconds_total{namespace="n",training_job="queued",phase="Waiting"}': "0+60x120 7200x210",
         'muster_job_phase_seconds_total{namespace="n",training_job="queued",phase="Running"}': "0x120 0+60x210",
         'muster_job_progress_timestamp_seconds{namespace="n",training_job="queued"}': "_x121 7200+60x210",
         # A suspended job spends nothing.
         'muster_job_productive_seconds_total{namespace="n",training_job="asleep"}': "0x330",
         'muster_job_phase_seconds_total{namespace="n",training_job="asleep",phase="Suspended"}': "0+60x330",
         'muster_job_progress_timestamp_seconds{namespace="n",training_job="asleep"}': "0x330"},
        [("90m", 0), ("120m", 0), ("152m", 0), ("190m", 1), ("300m", 0)]),
    "MusterQueueBudgetNearlySpent": (
        {'muster_queue_spent{training_queue="q",currency="USD",job="m",instance="a"}': "0+10x100 0x20",
         'muster_queue_budget{training_queue="q",currency="USD",job="m",instance="a"}': "1000x120",
         'muster_queue_spent{training_queue="thrifty",currency="USD",job="m",instance="a"}': "0+1x120",
         'muster_queue_budget{training_queue="thrifty",currency="USD",job="m",instance="a"}': "1000x120",
         # Without a budget there is nothing to spend.
         'muster_queue_used{training_queue="free",resource="cpu",job="m",instance="a"}': "9x120"},
        [("89m", 0), ("93m", 0), ("98m", 1), ("110m", 0)]),
    "MusterLossNotFinite": (
        # It is kept, and its other series go 15 minutes after its end, as do all of one that is deleted.
        {f'muster_job_failure{{{JOB},reason="Numerics"}}': "_x5 1x200",
         f"muster_job_workers{{{JOB}}}": "2x5 0x15 stale",
         'muster_job_failure{namespace="n",training_job="deleted",reason="Numerics"}': "_x5 1x10 stale",
         'muster_job_workers{namespace="n",training_job="deleted"}': "2x5 0x10 stale",
         'muster_job_failure{namespace="n",training_job="k",reason="PeerLost"}': "1x200",
         'muster_job_workers{namespace="n",training_job="k"}': "2x200",
         # It ended long before this Prometheus began.
         'muster_job_failure{namespace="n",training_job="old",reason="Numerics"}': "1x200"},
        [("4m", 0), ("10m", 2), ("30m", 1), ("70m", 1), ("90m", 0), ("200m", 0)]),
    "MusterGpuXid": (
        {'DCGM_FI_DEV_XID_ERRORS{Hostname="n1",gpu="0"}': "0x10 79x40",
         'DCGM_FI_DEV_XID_ERRORS{Hostname="n1",gpu="1"}': "13x50"},   # an old one, from before the last start
        [("9m", 0), ("15m", 1), ("40m", 0)]),
}


def of_release(text, namespace):
    """Rules as the chart makes them for a release in this namespace (tests/chart holds the chart to it)."""
    return text.replace('absent(muster_build_info{namespace=~".*"})',
                        f'label_replace(absent(muster_build_info{{namespace=~"{namespace}|"}}), "namespace", "{namespace}", "", "")')


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def document(rules, cases):
    lines = ["rule_files:", *[f"- {quoted(path)}" for path in rules], "evaluation_interval: 1m", "tests:"]
    for name, (series, checks) in cases.items():
        lines += ["- interval: 1m", f"  name: {name}", "  input_series:"]
        for selector, values in series.items():
            lines += [f"  - series: {quoted(selector)}", f"    values: {quoted(values)}"]
        lines.append("  promql_expr_test:")
        for at, count in checks:
            firing = f'ALERTS{{alertname="{name}",alertstate="firing"}}'
            lines += [f"  - expr: {quoted(f'count({firing})')}", f"    eval_time: {at}"]
            lines.append(f"    exp_samples: [{{labels: '{{}}', value: {count}}}]" if count else "    exp_samples: []")
    return "\n".join(lines) + "\n"


def run(promtool, rules, cases=None):
    """What promtool has to object; empty when all is well."""
    wrong = []
    with tempfile.TemporaryDirectory() as directory:
        played = []
        for path in rules:
            played.append(os.path.join(directory, os.path.basename(path)))
            with open(path, encoding="utf-8") as origin, open(played[-1], "w", encoding="utf-8") as file:
                file.write(of_release(origin.read(), "m"))
        for name, case in (cases or CASES).items():
            test = os.path.join(directory, "test.yaml")
            with open(test, "w", encoding="utf-8") as file:
                file.write(document(played, {name: case}))
            done = subprocess.run([promtool, "test", "rules", test], text=True, capture_output=True,
                                  env={**os.environ, "TZ": "UTC"})
            if done.returncode != 0:
                wrong.append(f"{name}:\n{done.stdout}{done.stderr}")
    return "\n".join(wrong)
