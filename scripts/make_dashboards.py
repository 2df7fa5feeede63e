#!/usr/bin/env python3
"""Makes charts/muster/dashboards/*.json, so that what a panel shows stands here in one line and not in forty.

    scripts/make_dashboards.py [--check]     --check: exit 1 when a dashboard is not up to date

Grafana's classic JSON, schemaVersion 39. tests/dashboards holds the rules and runs every query.
"""

import json
import sys

from generated import publish

FOLDER = "charts/muster/dashboards"
WIDTH = 24
RATE = "[$__rate_interval]"

SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Dashboard:
    """Panels flow from left to right and break where a row is full."""

    def __init__(self, uid, title, description, variables):
        self.uid, self.title, self.description = uid, title, description
        self.variables = [datasource_variable(), *variables]
        self.panels = []
        self.x = self.y = self.height = 0

    def row(self, title):
        self._break()
        self._add({"type": "row", "title": title, "collapsed": False, "panels": []}, WIDTH, 1)
        self._break()

    def series(self, title, description, unit, queries, w=8, h=7, stack=False, low=0, log=False):
        custom = {"lineWidth": 1, "fillOpacity": 30 if stack else 0, "showPoints": "never", "spanNulls": False,
                  "stacking": {"mode": "normal" if stack else "none", "group": "A"}}
        if log:
            custom["scaleDistribution"] = {"type": "log", "log": 10}
        defaults = {"unit": unit, "custom": custom}
        if low is not None and not log:
            defaults["min"] = low
        self._panel("timeseries", title, description, defaults, queries, w, h, {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"}})

    def stat(self, title, description, unit, query, w=4, h=4, legend="", decimals=None, good=None):
        """`good`: (green from, red below) for ratios where more is better."""
        defaults = {"unit": unit}
        if decimals is not None:
            defaults["decimals"] = decimals
        if good:
            defaults["color"] = {"mode": "thresholds"}
            defaults["thresholds"] = {"mode": "absolute", "steps": [
                {"color": "red", "value": None}, {"color": "orange", "value": good[1]},
                {"color": "green", "value": good[0]}]}
        self._panel("stat", title, description, defaults, [(query, legend)], w, h, {
            "colorMode": "value", "graphMode": "area", "textMode": "value_and_name" if legend else "value",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}})

    def bars(self, title, description, unit, query, legend, w=8, h=7):
        self._panel("bargauge", title, description, {"unit": unit, "min": 0}, [(query, legend)], w, h, {
            "orientation": "horizontal", "displayMode": "basic",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}})

    def states(self, title, description, query, legend, w=WIDTH, h=6):
        defaults = {"unit": "none", "custom": {"fillOpacity": 70, "lineWidth": 0}, "mappings": [
            {"type": "value", "options": {"0": {"text": "no", "color": "transparent", "index": 0},
                                          "1": {"text": "yes", "color": "blue", "index": 1}}}]}
        self._panel("state-timeline", title, description, defaults, [(query, legend)], w, h, {
            "mergeValues": True, "showValue": "never", "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": False}})

    def heat(self, title, description, unit, query, w=8, h=7):
        self._panel("heatmap", title, description, {}, [(query, "{{le}}")], w, h, {
            "calculate": False, "yAxis": {"unit": unit}, "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 64},
            "legend": {"show": True}, "tooltip": {"mode": "single", "yHistogram": False}},
            {"unit": unit}, {"format": "heatmap"})

    def table(self, title, description, columns, w=WIDTH, h=8):
        """`columns`: (name, unit, query), each by namespace and training_job. A row is what has the same values of both: a
        join by one field would take jobs of the same name for one. The name leads to the job's own dashboard."""
        link = ("/d/muster-job?var-datasource=${datasource}&var-namespace=${__data.fields.namespace}"
                "&var-training_job=${__data.fields.training_job}&${__url_time_range}")
        overrides = [{"matcher": {"id": "byName", "options": "training_job"},
                      "properties": [{"id": "links", "value": [{"title": "Look at this job", "url": link}]}]}]
        overrides += [{"matcher": {"id": "byName", "options": f"Value #{chr(65 + i)}"},
                       "properties": [{"id": "displayName", "value": name}, {"id": "unit", "value": unit}]}
                      for i, (name, unit, _) in enumerate(columns)]
        self._panel("table", title, description, {"unit": "none"}, [(q, "") for _, _, q in columns], w, h,
                    {"showHeader": True, "cellHeight": "sm"}, None, {"format": "table", "instant": True, "range": False},
                    overrides, [{"id": "merge", "options": {}}, {"id": "organize", "options": {"excludeByName": {"Time": True}}}])

    def _panel(self, kind, title, description, defaults, queries, w, h, options, more_defaults=None, target=None,
               overrides=(), transformations=()):
        panel = {
            "type": kind, "title": title, "description": description, "datasource": SOURCE,
            "fieldConfig": {"defaults": {**defaults, **(more_defaults or {})}, "overrides": list(overrides)},
            "options": options,
            "targets": [{"refId": chr(65 + i), "datasource": SOURCE, "expr": query, "legendFormat": legend,
                         "range": True, "instant": False, **(target or {})}
                        for i, (query, legend) in enumerate(queries)]}
        if transformations:
            panel["transformations"] = list(transformations)
        self._add(panel, w, h)

    def _break(self):
        self.y += self.height
        self.x = self.height = 0

    def _add(self, panel, w, h):
        if self.x + w > WIDTH:
            self._break()
        panel = {"id": len(self.panels) + 1, **panel, "gridPos": {"x": self.x, "y": self.y, "w": w, "h": h}}
        self.panels.append(panel)
        self.x += w
        self.height = max(self.height, h)

    def json(self):
        return json.dumps({
            "id": None, "uid": self.uid, "title": self.title, "description": self.description, "tags": ["muster"],
            "schemaVersion": 39, "version": 1, "editable": False, "graphTooltip": 1, "refresh": "30s",
            "time": {"from": "now-1h", "to": "now"}, "timezone": "", "timepicker": {}, "weekStart": "", "fiscalYearStartMonth": 0,
            "annotations": {"list": []},
            "links": [{"type": "dashboards", "title": "Muster", "tags": ["muster"], "asDropdown": True,
                       "includeVars": True, "keepTime": True, "targetBlank": False, "icon": "external link",
                       "tooltip": "", "url": ""}],
            "templating": {"list": self.variables}, "panels": self.panels}, indent=1) + "\n"


def datasource_variable():
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "refresh": 1,
            "hide": 0, "includeAll": False, "multi": False, "options": [], "regex": "", "current": {}}


def variable(name, label, query, many=True, all_value=".+"):
    """`all_value`: what All stands for; None: any value of the list, and nothing else."""
    made = {"name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "hide": 0, "regex": "", "options": [],
            "includeAll": many, "multi": many, "current": {}}
    if many:
        if all_value:
            made["allValue"] = all_value
        made["current"] = {"selected": True, "text": ["All"], "value": ["$__all"]}
    return made


def quantile(q, metric, matchers, by=()):
    groups = ", ".join(["le", *by])
    return f"histogram_quantile({q}, sum by ({groups}) (rate({metric}_bucket{{{matchers}}}{RATE})))"


def mean(metric, matchers, by=()):
    """Beside a quantile: that one says the same for all values within a bucket, as a quick API server's are."""
    total = f"sum by ({', '.join(by)}) " if by else "sum"
    return f"{total}(rate({metric}_sum{{{matchers}}}{RATE})) / {total}(rate({metric}_count{{{matchers}}}{RATE}))"


OP = 'job=~"$job", instance=~"$instance"'
JOB = 'namespace=~"$namespace", training_job=~"$training_job"'
RANK = JOB + ', slot=~"$slot"'
ACTIVE = 'phase!~"Suspended|Complete|Failed"'


def top(metric, matchers=JOB, by="namespace, training_job"):
    """One value a job: after a change of leader two operators may have said something."""
    return f"max by ({by}) ({metric}{{{matchers}}})"


def goodput(matchers):
    """Productive over passed time, of jobs that are neither suspended nor over."""
    return (f"sum by (namespace, training_job) (rate(muster_job_productive_seconds_total{{{matchers}}}{RATE})) / "
            f"(sum by (namespace, training_job) (rate(muster_job_phase_seconds_total{{{matchers}, {ACTIVE}}}{RATE})) > 0)")


def per_step(phases, by, matchers=RANK):
    """Seconds of a mean step in `phases`, by rank."""
    return (f'sum by ({by}) (rate(muster_worker_phase_seconds_sum{{{matchers}, phase=~"{phases}"}}{RATE})) / '
            f"sum by ({by}) (rate(muster_worker_step_seconds_count{{{matchers}}}{RATE}))")


def operator():
    # Every controller of a cluster serves most of these names: All is what serves muster_build_info, too.
    d = Dashboard("muster-operator", "Muster / Operator", "What the operator does and how well it keeps up.", [
        variable("job", "Scrape job", "label_values(muster_build_info, job)", all_value=None),
        variable("instance", "Replica", 'label_values(muster_build_info{job=~"$job"}, instance)', all_value=None)])
    d.row("Replicas")
    d.stat("Leaders", "Replicas that lead, one of each release. Other than that for long: look at MusterNoLeader.", "none",
           f"sum(leader_election_master_status{{{OP}}})")
    d.stat("Uptime", "Time since each replica began, with its version.", "s",
           f"(time() - process_start_time_seconds{{{OP}}}) * on (job, instance) group_left (version) "
           f"muster_build_info{{{OP}}}", legend="{{instance}} {{version}}", w=8)
    d.series("Jobs", "Jobs that the leader of each release takes care of, by phase.", "none",
             [(f"sum by (phase) (max by (namespace, phase) (muster_jobs{{{OP}}}))", "{{phase}}")], w=12, h=8, stack=True)
    d.row("Reconciliation")
    d.series("Looks", "Looks at jobs a second, by result, and plans that were not carried out.", "ops", [
        (f"sum by (result) (rate(controller_runtime_reconcile_total{{{OP}}}{RATE}))", "{{result}}"),
        (f"sum(rate(controller_runtime_reconcile_errors_total{{{OP}}}{RATE}))", "errors")])
    d.series("Time of a look", "From taking a job in hand until its plan is carried out; writes included.", "s", [
        (mean("controller_runtime_reconcile_time_seconds", OP), "mean"),
        (quantile(0.5, "controller_runtime_reconcile_time_seconds", OP), "median"),
        (quantile(0.99, "controller_runtime_reconcile_time_seconds", OP), "99 %")])
    d.series("Jobs in hand", "Jobs in hand now, and plans that may be carried out at a time.", "none", [
        (f"sum(controller_runtime_active_workers{{{OP}}})", "in hand"),
        (f"sum(controller_runtime_max_concurrent_reconciles{{{OP}}})", "plans at a time")])
    d.series("Queue", "Jobs that wait for a look.", "none",
             [(f"workqueue_depth{{{OP}}}", "{{instance}}"),
              (f"rate(workqueue_adds_total{{{OP}}}{RATE})", "{{instance}} put on, a second"),
              (f"rate(workqueue_retries_total{{{OP}}}{RATE})", "{{instance}} put back after a failure, a second")])
    d.series("Time in the queue", "How long jobs wait for their look, and how long they are in hand.", "s", [
        (mean("workqueue_queue_duration_seconds", OP), "waiting, mean"),
        (quantile(0.99, "workqueue_queue_duration_seconds", OP), "waiting, 99 %"),
        (mean("workqueue_work_duration_seconds", OP), "in hand, mean"),
        (quantile(0.99, "workqueue_work_duration_seconds", OP), "in hand, 99 %")])
    d.series("Unfinished work", "Time of the jobs now in hand: summed, and of the longest. Growing means stuck.", "s", [
        (f"workqueue_unfinished_work_seconds{{{OP}}}", "{{instance}} sum"),
        (f"workqueue_longest_running_processor_seconds{{{OP}}}", "{{instance}} longest")])
    d.row("API server")
    d.series("Requests", "Exchanges a second by method and answer; <error> where none came.", "reqps",
             [(f"sum by (method, code) (rate(rest_client_requests_total{{{OP}}}{RATE}))", "{{method}} {{code}}")])
    d.series("Time of a request", "Until the answer; of watches until their headers.", "s", [
        (mean("rest_client_request_duration_seconds", OP, ["verb"]), "{{verb}} mean"),
        (quantile(0.99, "rest_client_request_duration_seconds", OP, ["verb"]), "{{verb}} 99 %")])
    d.series("Status writes and watches",
             "Writes of job status by kind; lists begun anew and lines that were no event, which should be none; what is "
             "free added up anew, as nodes come and go.", "ops", [
                 (f"sum by (pass) (rate(muster_status_writes_total{{{OP}}}{RATE}))", "{{pass}}"),
                 (f"sum by (kind) (rate(muster_watch_relists_total{{{OP}}}{RATE}))", "{{kind}} listed again"),
                 (f"sum by (kind) (rate(muster_watch_bad_lines_total{{{OP}}}{RATE}))", "{{kind}} bad lines"),
                 (f"sum by (reason) (rate(muster_inventory_remade_total{{{OP}}}{RATE}))", "inventory anew: {{reason}}")])
    d.row("Workers and placement")
    d.series("Workers' posts", "Joins and reports a second, by answer; 4xx are refusals.", "reqps",
             [(f"sum by (path, code) (rate(muster_endpoint_requests_total{{{OP}}}{RATE}))", "{{path}} {{code}}")])
    d.series("Placement", "One look at all waiting gangs and the nodes: the mean since the operator began, and 99 % lately.",
             "s", [(f"sum(muster_schedule_seconds_sum{{{OP}}}) / sum(muster_schedule_seconds_count{{{OP}}})", "mean"),
                   (quantile(0.99, "muster_schedule_seconds", OP), "99 %, lately")])
    d.series("Gang start", "From a job's creation until all its workers run: the mean since the operator began, and the "
             "median and 99 % of those that started lately.", "s", [
                 (f"sum(muster_gang_start_seconds_sum{{{OP}}}) / sum(muster_gang_start_seconds_count{{{OP}}})", "mean"),
                 (quantile(0.5, "muster_gang_start_seconds", OP), "median, lately"),
                 (quantile(0.99, "muster_gang_start_seconds", OP), "99 %, lately")])
    d.row("Process")
    d.series("Processor", "Processor seconds a second.", "none",
             [(f"rate(process_cpu_seconds_total{{{OP}}}{RATE})", "{{instance}}")])
    d.series("Memory", "Resident and virtual memory.", "bytes", [
        (f"process_resident_memory_bytes{{{OP}}}", "{{instance}} resident"),
        (f"process_virtual_memory_bytes{{{OP}}}", "{{instance}} virtual")], log=True)
    d.series("Descriptors", "Open descriptors, and how many may be.", "none", [
        (f"process_open_fds{{{OP}}}", "{{instance}} open"), (f"process_max_fds{{{OP}}}", "{{instance}} limit")], log=True)
    return d


def job():
    d = Dashboard("muster-job", "Muster / Job", "One training: how it learns, where its time goes, what happened to it.", [
        variable("namespace", "Namespace", "label_values(muster_job_condition, namespace)", many=False),
        variable("training_job", "Job", 'label_values(muster_job_condition{namespace=~"$namespace"}, training_job)',
                 many=False),
        variable("slot", "Worker", f"label_values(muster_worker_steps_total{{{JOB}}}, slot)")])
    d.row("Now")
    d.stat("Progress", "Steps done of all.", "percentunit",
           f"{top('muster_job_step')} / {top('muster_job_total_steps')}", decimals=1)
    d.stat("Loss", "Mean over the last batch.", "none", top("muster_worker_loss", RANK), decimals=4)
    d.stat("Time left", "At the speed of the last minutes.", "s",
           f"({top('muster_job_total_steps')} - {top('muster_job_step')}) / "
           f"(max by (namespace, training_job) (rate(muster_worker_steps_total{{{RANK}}}{RATE})) > 0)")
    d.stat("Goodput", "Time spent in steps made for the first time, over the time that passed.", "percentunit",
           goodput(JOB), decimals=0, good=(0.8, 0.5))
    d.stat("Checkpoint age", "Time since the newest complete checkpoint: what a lost gang would lose.", "s",
           f"time() - {top('muster_job_checkpoint_timestamp_seconds')}")
    d.stat("Without a step", "Time since a running training was last seen to make a step.", "s",
           f"time() - {top('muster_job_progress_timestamp_seconds')}")
    d.states("What happened", "Conditions of the job over time; after a failure its reason.",
             f'max by (type) (muster_job_condition{{{JOB}, status="true"}})', "{{type}}", w=16)
    d.series("Restarts", "Gang restarts, steps made again because of them, and failures by reason.", "none", [
        (top("muster_job_restarts_total"), "restarts"),
        (top("muster_job_repeated_steps_total"), "steps made again"),
        (top("muster_job_failure", by="reason"), "last failure: {{reason}}"),
        (top("muster_job_shrinks_total"), "shrinks for others"),
        (top("muster_job_preemptions_total"), "preemptions"),
        (top("muster_job_lost_process_seconds_total"), "process seconds lost to preemptions, at most")], h=6)
    d.series("Cost", "What the job has cost by the operator's price list; nothing where that is not known.", "none", [
        (top("muster_job_cost", by="currency"), "{{currency}}")], h=6)
    d.row("Learning")
    d.series("Loss over time", "Mean loss of the global batch.", "none", [(top("muster_worker_loss", RANK), "loss")], low=None)
    d.series("Accuracy", "On the test data, at the last evaluation.", "percentunit",
             [(top("muster_worker_accuracy_ratio", RANK), "accuracy")], low=None)
    d.series("Throughput", "Samples a second, all workers together: as counted, and as the workers see it.", "none", [
        (f"max by (namespace, training_job) (rate(muster_worker_samples_total{{{RANK}}}{RATE}))", "counted"),
        (top("muster_worker_samples_per_second", RANK), "seen")])
    d.series("Step", "Newest step of the job, of each worker, and of the newest checkpoint.", "none", [
        (top("muster_job_step"), "job"), (top("muster_worker_step", RANK, "slot"), "worker {{slot}}"),
        (top("muster_job_checkpoint_step"), "checkpoint"),
        (top("muster_worker_checkpoint_step", RANK, "slot"), "checkpoint of worker {{slot}}")], low=None)
    d.series("Workers", "Workers that run, and the gang as decided.", "none", [
        (top("muster_job_workers"), "running"), (top("muster_job_target_workers"), "decided")])
    d.series("Where the time went", "Seconds a second in each phase, and in steps made for the first time.", "percentunit", [
        (f"sum by (phase) (rate(muster_job_phase_seconds_total{{{JOB}}}{RATE}))", "{{phase}}"),
        (f"sum(rate(muster_job_productive_seconds_total{{{JOB}}}{RATE}))", "productive")])
    d.row("Steps")
    d.series("Step time", "Of all ranks.", "s", [
        (quantile(0.5, "muster_worker_step_seconds", RANK), "median"),
        (quantile(0.99, "muster_worker_step_seconds", RANK), "99 %")])
    d.heat("Step times", "How many steps took how long.", "s",
           f"sum by (le) (rate(muster_worker_step_seconds_bucket{{{RANK}}}{RATE}))")
    d.series("Time by phase", "Seconds of a mean step in each phase; record, evaluate and checkpoint spread over all steps.",
             "s", [(f"sum by (phase) (rate(muster_worker_phase_seconds_sum{{{RANK}}}{RATE})) / on () group_left "
                    f"sum(rate(muster_worker_step_seconds_count{{{RANK}}}{RATE}))", "{{phase}}")], stack=True)
    d.series("Work of a step by rank", "Data and compute: what a rank does alone. Who is above the others holds them up.",
             "s", [(per_step("data|compute", "slot, process"), "slot {{slot}} process {{process}}")])
    d.bars("Stragglers", "Work of each rank's step over the median of all ranks: 1 is even, 2 is twice as slow.", "none",
           f"({per_step('data|compute', 'slot, process')}) / on () group_left () "
           f"quantile(0.5, {per_step('data|compute', 'slot, process')})", "slot {{slot}} process {{process}}")
    d.series("Share of communication", "Of a step's time, by rank. The slowest rank waits least.", "percentunit", [
        (f'sum by (slot, process) (rate(muster_worker_phase_seconds_sum{{{RANK}, phase="communicate"}}{RATE})) / '
         f"sum by (slot, process) (rate(muster_worker_step_seconds_sum{{{RANK}}}{RATE}))",
         "slot {{slot}} process {{process}}")])
    d.row("Membership")
    d.series("Who trains together", "Number of the membership, which only grows, the workers in it, and processes that wait "
             "for the rest of their copy of a split model.", "none", [
                 (top("muster_worker_membership_epoch", RANK), "epoch"), (top("muster_worker_members", RANK), "workers"),
                 (f"sum by (namespace, training_job) (muster_worker_waits_for_copy{{{RANK}}})", "waiting processes")])
    d.series("Standing still", "Seconds that a process stood still for changes of membership, and trainers started again.",
             "none", [(top("muster_worker_stall_seconds_total", RANK, "slot, process"), "slot {{slot}} process {{process}} seconds"),
                      (top("muster_worker_respawns_total", RANK, "slot, process"), "slot {{slot}} process {{process}} respawns")])
    d.series("Newest stall", "What the newest change of membership took from each process.", "s", [
        (top("muster_worker_last_stall_seconds", RANK, "slot, process"), "slot {{slot}} process {{process}}")])
    d.series("Newest change's delay", "How much longer the step of the newest change took than the median of those before.",
             "s", [(top("muster_worker_change_delay_seconds", RANK, "slot, process"), "slot {{slot}} process {{process}}")])
    d.series("Step delay", "How much longer the others wait for a rank in a usual step than for each other. Status names "
             "who slows the gang by a fifth.", "s", [
                 (top("muster_worker_step_delay_seconds", RANK, "slot, process"), "slot {{slot}} process {{process}}")])
    d.series("Effective training time", "Time spent in steps made for the first time, over all time that the job was not "
             "suspended.", "percentunit", [
                 (f"sum by (namespace, training_job) (muster_job_productive_seconds_total{{{JOB}}}) / "
                  f'sum by (namespace, training_job) (muster_job_phase_seconds_total{{{JOB}, '
                  f'phase!~"Suspended|Complete|Failed"}})', "{{training_job}}")])
    d.series("Taken over", "Logical ranks computed for the lost, bytes of state received, and blocks of sharded state that have too "
             "few copies: while there are any, another death may send training back to the newest checkpoint.", "none", [
                 (f"sum(muster_worker_recomputed_logical_ranks_total{{{RANK}}})", "logical ranks"),
                 (f"sum(muster_worker_state_bytes_total{{{RANK}}})", "bytes"),
                 (top("muster_worker_state_blocks_short", RANK), "blocks with too few copies")], log=True)
    d.row("Checkpoints and starts")
    d.series("Checkpoint and evaluation", "How long one takes.", "s", [
        (f'sum by (phase) (rate(muster_worker_phase_seconds_sum{{{RANK}, phase=~"checkpoint|evaluate"}}{RATE})) / '
         f'(sum by (phase) (rate(muster_worker_phase_seconds_count{{{RANK}, phase=~"checkpoint|evaluate"}}{RATE})) > 0)',
         "{{phase}}")])
    d.series("Time before the first step", "Of each worker: until the gang was whole, then until data and checkpoint were "
             "loaded.", "s", [(top("muster_worker_start_seconds", RANK, "slot, stage"), "worker {{slot}} {{stage}}")])
    d.series("Waiting", "How long the job has been waiting for its workers, and time since its last step.", "s", [
        (top("muster_job_pending_seconds"), "for workers"),
        (f"time() - {top('muster_job_progress_timestamp_seconds')}", "since the last step")])
    d.row("Resources")
    d.series("Processors", "Processor seconds a second, by rank.", "none", [
        (f"sum by (slot, process) (rate(muster_worker_cpu_seconds_total{{{RANK}}}{RATE}))",
         "slot {{slot}} process {{process}}")])
    d.series("Memory", "Resident memory of the trainers.", "bytes", [
        (f"muster_worker_resident_memory_bytes{{{RANK}}}", "slot {{slot}} process {{process}}")])
    d.series("Network and shares", "Bytes sent to the other workers, and logical ranks computed, a second.", "Bps", [
        (f"sum by (slot, process) (rate(muster_worker_sent_bytes_total{{{RANK}}}{RATE}))", "slot {{slot}} process {{process}}"),
        (f"sum by (slot) (rate(muster_worker_logical_rank_computations_total{{{RANK}}}{RATE}))",
         "slot {{slot}} logical ranks")])
    return d


def asked(matchers, resource):
    """What pods hold of each node: requests are told of those that have ended, too, as long as they are there."""
    live = 'max by (namespace, pod) (kube_pod_status_phase{phase=~"Pending|Running"} == 1)'
    return (f'sum by (node) (kube_pod_container_resource_requests{{{matchers}, resource="{resource}"}} '
            f"* on (namespace, pod) group_left () {live})")


def cluster():
    every = 'namespace=~"$namespace"'
    nodes = 'node=~"$node"'
    d = Dashboard("muster-cluster", "Muster / Cluster", "All trainings at once, and the nodes they run on. Node panels need "
                  "kube-state-metrics, GPU panels NVIDIA's DCGM exporter.", [
                      variable("namespace", "Namespace", "label_values(muster_job_condition, namespace)"),
                      variable("node", "Node", "label_values(kube_node_status_allocatable, node)")])
    d.row("Trainings")
    d.series("Jobs", "Jobs by phase.", "none", [("sum by (phase) (max by (namespace, phase) (muster_jobs))", "{{phase}}")], stack=True)
    d.series("Workers", "Workers that run, and as decided, of all jobs.", "none", [
        (f"sum({top('muster_job_workers', every)})", "running"),
        (f"sum({top('muster_job_target_workers', every)})", "decided")])
    d.series("Waiting and restarting", "The longest waits now, and seconds a second that jobs spend in restarts.", "s", [
        (f"topk(5, {top('muster_job_pending_seconds', every)})", "{{namespace}}/{{training_job}}"),
        (f'sum(rate(muster_job_phase_seconds_total{{{every}, phase="Restarting"}}{RATE}))', "restarting, all")])
    d.series("Throughput", "Samples a second of each job.", "none", [
        (f"max by (namespace, training_job) (rate(muster_worker_samples_total{{{every}}}{RATE}))",
         "{{namespace}}/{{training_job}}")])
    d.series("Goodput", "Productive over passed time of each job.", "percentunit", [
        (goodput(every), "{{namespace}}/{{training_job}}")])
    d.series("Failures", "Jobs by the reason of their last failure, and restarts in all.", "none", [
        (f"count by (reason) ({top('muster_job_failure', every, 'namespace, training_job, reason')})", "{{reason}}"),
        (f"sum({top('muster_job_restarts_total', every)})", "restarts")])
    d.table("Every job", "One line a job; its name leads to its own dashboard.", [
        ("Workers", "none", top("muster_job_workers", every)),
        ("Running", "bool_yes_no", top("muster_job_condition", every + ', type="Running", status="true"')),
        ("Step", "none", top("muster_job_step", every)),
        ("Steps", "none", top("muster_job_total_steps", every)),
        ("Loss", "none", top("muster_worker_loss", every)),
        ("Restarts", "none", top("muster_job_restarts_total", every)),
        ("Checkpoint age", "s", f"time() - {top('muster_job_checkpoint_timestamp_seconds', every)}")])
    d.row("Queues")
    queue, resource, currency = (f"training_queue{more}" for more in ("", ", resource", ", currency"))
    d.series("Jobs of queues", "Jobs that wait for their turn, and those that hold some of the queue.", "none", [
        (top("muster_queue_waiting_jobs", "", queue), "{{training_queue}} waiting"),
        (top("muster_queue_admitted_jobs", "", queue), "{{training_queue}} admitted")], w=6)
    d.series("Use of quota", "Of the queue's nominal quota; more than all of it is borrowed.", "percentunit", [
        (f"{top('muster_queue_used', '', resource)} / ({top('muster_queue_quota', '', resource)} > 0)",
         "{{training_queue}} {{resource}}")], w=6)
    d.series("Borrowed", "What jobs hold beyond their queue's nominal quota: cpu in cores, memory in bytes.", "none", [
        (top("muster_queue_borrowed", "", resource), "{{training_queue}} {{resource}}")], w=6, log=True)
    d.series("Budget spent", "Of what the queue's jobs may cost in this period. Once it is all spent they stop.", "percentunit", [
        (f"{top('muster_queue_spent', '', currency)} / ({top('muster_queue_budget', '', currency)} > 0)",
         "{{training_queue}}")], w=6)
    d.row("Nodes (kube-state-metrics)")
    d.series("Processors asked for", "Of what each node offers, by all pods. From kube-state-metrics.", "percentunit", [
        (f'{asked(nodes, "cpu")} / '
         f'sum by (node) (kube_node_status_allocatable{{{nodes}, resource="cpu"}})', "{{node}}")])
    d.series("Memory asked for", "Of what each node offers, by all pods. From kube-state-metrics.", "percentunit", [
        (f'{asked(nodes, "memory")} / '
         f'sum by (node) (kube_node_status_allocatable{{{nodes}, resource="memory"}})', "{{node}}")])
    d.series("GPUs asked for", "Of what each node offers. From kube-state-metrics.", "percentunit", [
        (f'{asked(nodes, "nvidia_com_gpu")} / '
         f'(sum by (node) (kube_node_status_allocatable{{{nodes}, resource="nvidia_com_gpu"}}) > 0)', "{{node}}")])
    d.row("GPUs (DCGM exporter)")
    gpus = 'Hostname=~"$node"'
    d.series("Use", "By node and GPU. From the DCGM exporter.", "percent",
             [(f"DCGM_FI_DEV_GPU_UTIL{{{gpus}}}", "{{Hostname}} {{gpu}}")])
    d.series("Memory", "Used frame buffer. From the DCGM exporter.", "decmbytes",
             [(f"DCGM_FI_DEV_FB_USED{{{gpus}}}", "{{Hostname}} {{gpu}}")])
    d.series("Power", "From the DCGM exporter.", "watt", [
        (f"DCGM_FI_DEV_POWER_USAGE{{{gpus}}}", "{{Hostname}} {{gpu}}")])
    return d


if __name__ == "__main__":
    sys.exit(publish({f"{FOLDER}/{made.uid.removeprefix('muster-')}.json": made.json()
                      for made in (operator(), job(), cluster())}))
