#!/usr/bin/env python3
"""Dashboards and alerts: linted, every query against a real Prometheus that scrapes real runs, every alert by promtool.

    tests/dashboards/dashboard_test.py [--lint] [BIN_DIR] [unittest arguments]

BIN_DIR holds muster, muster-worker and queue_world (default build/release/bin). --lint: only what needs no process. Prometheus and
promtool come from PATH or from where scripts/install-deps --cluster has put them. All ports are on loopback.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import alert_cases   # noqa: E402
from live import ROOT, VARIABLES, World, tool   # noqa: E402

sys.path.insert(0, os.path.join(ROOT, "scripts"))
import make_metrics_reference   # noqa: E402

DASHBOARDS = sorted(glob.glob(os.path.join(ROOT, "charts/muster/dashboards/*.json")))
RULES = sorted(glob.glob(os.path.join(ROOT, "charts/muster/rules/*.yaml")))
PANELS = {"timeseries", "stat", "table", "bargauge", "heatmap", "state-timeline", "row"}
# Metrics of others that may be used, and whose they are.
EXPORTERS = {
    "kube_node_status_allocatable": "kube-state-metrics",
    "kube_pod_container_resource_requests": "kube-state-metrics",
    "kube_pod_status_phase": "kube-state-metrics",
    "DCGM_FI_DEV_GPU_UTIL": "NVIDIA DCGM exporter",
    "DCGM_FI_DEV_FB_USED": "NVIDIA DCGM exporter",
    "DCGM_FI_DEV_POWER_USAGE": "NVIDIA DCGM exporter",
    "DCGM_FI_DEV_XID_ERRORS": "NVIDIA DCGM exporter",
}
# Counters shown as they are: how often a job was restarted in its life, or what deaths have cost it, is what its owner
# asks for; a mean since the start is what a rare event allows.
PLAIN_COUNTERS = {"muster_worker_stall_seconds_total", "muster_worker_respawns_total",
                  "muster_worker_recomputed_logical_ranks_total", "muster_worker_state_bytes_total",
                  "muster_job_restarts_total", "muster_job_repeated_steps_total", "muster_job_shrinks_total",
                  "muster_job_preemptions_total", "muster_job_lost_process_seconds_total",
                  "muster_job_productive_seconds_total", "muster_job_phase_seconds_total", "muster_gang_start_seconds",
                  "muster_schedule_seconds"}
# Matchers that every selector of ours must have, by dashboard: a dashboard of many must not mix them up. The cluster
# dashboard shows everything on purpose.
MATCHERS = {"muster-operator": ["job", "instance"], "muster-job": ["namespace", "training_job"], "muster-cluster": []}
FUNCTIONS = {"sum", "rate", "max", "min", "by", "on", "ignoring", "group_left", "histogram_quantile", "quantile", "time",
             "topk", "count", "max_over_time", "min_over_time", "and", "or", "unless", "without", "increase", "changes", "absent", "label_values", "bool"}

# Of what a laptop has not; tests/cluster/monitors_test.py scrapes them.
IN_CLUSTERS_ONLY = {"muster_ca_expiry_timestamp_seconds", "muster_guardrail_missing"}

METRICS = {name: (kind, labels) for _, name, kind, labels, _ in make_metrics_reference.metrics()}


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def panels(dashboard):
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def base(name):
    """The metric of a series' name."""
    short = re.sub(r"_(bucket|sum|count)$", "", name)
    return short if short in METRICS and METRICS[short][0] == "histogram" else name


def selectors(expr):
    """(metric, matchers) of every selector of a query."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: '"' + m.group(0)[1:-1].replace("{", "(").replace("}", ")") + '"', expr)
    bare = re.sub(r"\b(?:by|on|ignoring|without|group_left)\s*\([^)]*\)", " ", bare)
    for found in re.finditer(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?", re.sub(r"\[[^\]]*\]", "", bare)):
        name, matchers = found.groups()
        inside = bare[:found.start()].count("{") > bare[:found.start()].count("}")
        if inside or name in FUNCTIONS or re.fullmatch(r"[0-9].*", name):
            continue
        if bare[:found.start()].count('"') % 2:
            continue
        yield name, matchers or ""


class Lint(unittest.TestCase):
    def each(self):
        self.assertEqual(len(DASHBOARDS), 3)
        for path in DASHBOARDS:
            dashboard = load(path)
            with self.subTest(dashboard=dashboard["title"]):
                yield dashboard

    def test_dashboards_and_reference_are_what_the_scripts_make(self):
        for script in ("make_dashboards.py", "make_metrics_reference.py"):
            done = subprocess.run([sys.executable, os.path.join(ROOT, "scripts", script), "--check"], text=True,
                                  capture_output=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_a_dashboard_can_be_provisioned_anywhere(self):
        uids, titles = set(), set()
        for d in self.each():
            self.assertIsNone(d["id"])
            self.assertNotIn("__inputs", d)
            self.assertNotIn(d["uid"], uids)
            self.assertNotIn(d["title"], titles)
            uids.add(d["uid"])
            titles.add(d["title"])
            self.assertEqual(d["schemaVersion"], 39)
            self.assertIs(d["editable"], False)
            self.assertEqual(d["graphTooltip"], 1)
            self.assertTrue(d["refresh"] and d["time"]["from"] and d["tags"] and d["links"] and d["description"])
        self.assertEqual(uids, set(MATCHERS))

    def test_variables_are_chained_refreshed_and_used(self):
        for d in self.each():
            variables = d["templating"]["list"]
            self.assertEqual((variables[0]["type"], variables[0]["query"]), ("datasource", "prometheus"))
            text = json.dumps(d["panels"]) + json.dumps([v["query"] for v in variables])
            shown = {base(name) for panel in panels(d) for target in panel["targets"] for name, _ in selectors(target["expr"])}
            # Other controllers serve the same names: All must not mean them.
            shared = {name for name in shown if name in METRICS and not name.startswith("muster_")}
            for number, variable in enumerate(variables):
                self.assertRegex(text, rf"\$\{{?{variable['name']}\b", f"variable {variable['name']} is used nowhere")
                if variable["type"] != "query":
                    continue
                self.assertEqual(variable["refresh"], 2, variable["name"])
                self.assertEqual(variable["datasource"]["uid"], "${datasource}")
                if variable["includeAll"]:
                    self.assertEqual(variable.get("allValue"), None if shared else ".+", variable["name"])
                for used in re.findall(r"\$(\w+)", variable["query"]["query"]):
                    self.assertIn(used, [v["name"] for v in variables[:number]], f"{variable['name']} uses ${used} too early")

    def test_a_panel_says_what_it_shows_in_which_unit_and_overlaps_no_other(self):
        for d in self.each():
            ids, titles, cells = set(), set(), set()
            for panel in d["panels"]:
                self.assertIn(panel["type"], PANELS)
                self.assertNotIn(panel["id"], ids)
                ids.add(panel["id"])
                place = panel["gridPos"]
                self.assertLessEqual(place["x"] + place["w"], 24)
                for x in range(place["x"], place["x"] + place["w"]):
                    for y in range(place["y"], place["y"] + place["h"]):
                        self.assertNotIn((x, y), cells, panel["title"])
                        cells.add((x, y))
            for panel in panels(d):
                with self.subTest(panel=panel["title"]):
                    self.assertTrue(panel["title"] and panel["description"])
                    self.assertTrue(panel["description"].endswith("."))
                    self.assertNotIn(panel["title"] + panel["type"], titles)
                    titles.add(panel["title"] + panel["type"])
                    self.assertEqual(panel["datasource"]["uid"], "${datasource}")
                    self.assertTrue(panel["fieldConfig"]["defaults"].get("unit"), "no unit")
                    self.assertTrue(panel["targets"])
                    self.assertEqual(len({t["refId"] for t in panel["targets"]}), len(panel["targets"]))

    def test_a_row_of_a_table_is_one_job_though_others_have_its_name(self):
        tables = [panel for d in self.each() for panel in panels(d) if panel["type"] == "table"]
        self.assertEqual(len(tables), 1)
        for panel in tables:
            self.assertEqual([t["id"] for t in panel["transformations"]], ["merge", "organize"])   # merge: by all labels
            for target in panel["targets"]:
                self.assertIn("by (namespace, training_job)", target["expr"])

    def test_links_lead_to_dashboards_of_ours_with_variables_that_they_have(self):
        variables = {d["uid"]: {v["name"] for v in d["templating"]["list"]} for d in self.each()}
        links = [property["value"] for d in self.each() for panel in panels(d)
                 for override in panel["fieldConfig"]["overrides"]
                 for property in override["properties"] if property["id"] == "links"]
        self.assertEqual(len(links), 1)
        for link in (link for several in links for link in several):
            uid, query = re.fullmatch(r"/d/([a-z-]+)\?(.*)", link["url"]).groups()
            self.assertLessEqual(set(re.findall(r"var-(\w+)=", query)), variables[uid])
            self.assertLessEqual({f"var-{name}=" for name in MATCHERS[uid]}, set(re.findall(r"var-\w+=", query)))

    def test_queries_use_known_metrics_rates_for_counters_and_the_dashboards_matchers(self):
        for d in self.each():
            for panel in panels(d):
                for target in panel["targets"]:
                    expr = target["expr"]
                    with self.subTest(panel=panel["title"], expr=expr):
                        self.assertEqual(target["datasource"]["uid"], "${datasource}")
                        self.assertNotRegex(expr, r"or\s+vector")
                        for window in re.findall(r"\[([^\]]*)\]", expr):
                            self.assertEqual(window, "$__rate_interval")
                        self.check_selectors(d["uid"], expr)

    def check_selectors(self, uid, expr):
        found = list(selectors(expr))
        self.assertTrue(found, "no selector was found")
        for name, matchers in found:
            metric = base(name)
            self.assertTrue(metric in METRICS or metric in EXPORTERS, f"{name} is served by nobody")
            if metric in EXPORTERS:
                continue
            kind, labels = METRICS[metric]
            for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
                self.assertIn(label, [*labels, "job", "instance"], f"{metric} has no label {label}")
            for label in MATCHERS[uid]:
                self.assertRegex(matchers, rf'\b{label}=~"\${label}"')
            if kind == "gauge" or metric in PLAIN_COUNTERS:
                continue
            self.assertRegex(expr, rf"(rate|increase)\({re.escape(name)}\b", f"{name} is a {kind}")

    def test_the_linter_sees_what_it_is_for(self):
        self.assertEqual([n for n, _ in selectors('sum by (phase) (rate(a_total{x=~"b|c{2}"}[5m])) / on () max(d)')],
                         ["a_total", "d"])
        with self.assertRaises(AssertionError):
            self.check_selectors("muster-operator", "muster_jobs")   # no matchers
        with self.assertRaises(AssertionError):
            self.check_selectors("muster-cluster", "muster_nothing")
        with self.assertRaises(AssertionError):
            self.check_selectors("muster-cluster", "sum(workqueue_adds_total)")   # no rate
        with self.assertRaises(AssertionError):
            self.check_selectors("muster-cluster", 'muster_jobs{slot="0"}')   # no such label

    def test_only_a_value_that_changes_is_movement(self):
        def series(*spans):
            return [{"metric": {}, "values": [[began + second, value] for second, value in enumerate(values)]} for began, values in spans]

        self.assertTrue(World.moves(series((0, ["0", "0", "1"]))))
        self.assertTrue(World.moves(series((0, ["0", "0"]), (0, ["NaN", "3", "4"]))))
        for still in ([], [(0, ["1"])], [(0, ["0", "0"]), (1, ["0"])], [(0, ["1", "1"]), (0, ["2", "2"])], [(0, ["NaN", "NaN", "5"])]):
            self.assertFalse(World.moves(series(*still)), still)


class Alerts(unittest.TestCase):
    def alerts(self):
        import yaml
        for path in RULES:
            with open(path, encoding="utf-8") as file:
                for group in yaml.safe_load(file)["groups"]:
                    for rule in group["rules"]:
                        yield rule

    def test_each_alert_says_how_bad_it_is_and_what_to_do(self):
        uids = {load(path)["uid"] for path in DASHBOARDS}
        for rule in self.alerts():
            if "record" in rule:
                self.assertRegex(rule["record"], r"^[a-z_]+:[a-z_]+:[a-z0-9]+$")
                continue
            with self.subTest(alert=rule["alert"]):
                self.assertIn(rule["labels"]["severity"], {"critical", "warning", "info"})
                notes = rule["annotations"]
                self.assertEqual(set(notes), {"summary", "description", "runbook_url", "dashboard"})
                self.assertEqual(notes["runbook_url"], f"docs/runbooks/{rule['alert']}.md")
                with open(os.path.join(ROOT, notes["runbook_url"]), encoding="utf-8") as file:
                    self.assertTrue(file.read().startswith(f"# {rule['alert']}\n"))
                self.assertIn(re.match(r"/d/([a-z-]+)", notes["dashboard"]).group(1), uids)

    def test_rules_use_metrics_that_somebody_serves(self):
        recorded = {rule["record"] for rule in self.alerts() if "record" in rule}
        for rule in self.alerts():
            for name, _ in selectors(rule["expr"]):
                self.assertTrue(base(name) in METRICS or name in EXPORTERS or name in recorded, name)

    def test_every_alert_fires_does_not_fire_and_resolves(self):
        names = [rule["alert"] for rule in self.alerts() if "alert" in rule]
        self.assertEqual(sorted(alert_cases.CASES), sorted(names), "each alert has its case")
        failed = alert_cases.run(tool("promtool"), RULES)
        self.assertEqual(failed, "", "promtool")

    def test_every_query_of_a_dashboard_can_be_parsed(self):
        queries = [World.expand(target["expr"]) for path in DASHBOARDS for panel in panels(load(path))
                   for target in panel["targets"]]
        with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
            json.dump({"groups": [{"name": "queries", "rules": [
                {"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]}]}, file)
            file.flush()
            done = subprocess.run([tool("promtool"), "check", "rules", file.name], text=True, capture_output=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{len(queries)} rules found", done.stdout)

    def test_a_case_that_is_wrong_is_seen(self):
        name = "MusterJobPendingTooLong"
        series, _ = alert_cases.CASES[name]
        failed = alert_cases.run(tool("promtool"), RULES, {name: (series, [("10m", 1)])})
        self.assertIn(name, failed)


class Live(unittest.TestCase):
    """Two real runs, a training of which one worker is killed and later all, and a program that fails; an operator with two
    queues; then every query."""
    bin_dir = os.path.join(ROOT, "build/release/bin")

    @classmethod
    def setUpClass(cls):
        cls.world = World(cls.bin_dir)
        cls.addClassCleanup(cls.world.stop)
        cls.world.start()
        cls.asked = [(load(path)["title"], panel, target)
                     for path in DASHBOARDS for panel in panels(load(path)) for target in panel["targets"]]
        # Until every query has an answer and every panel moves, or for good: what is then missing is told by the tests.
        cls.world.wait_until(lambda: not any(cls.lacking()), 150)

    @classmethod
    def lacking(cls):
        """(targets without a series, panels of which no value has changed yet)."""
        silent, moving = [], {}
        for title, panel, target in cls.asked:
            series = cls.world.range(target["expr"])
            if not series:
                silent.append(target["expr"])
            key = (title, panel["title"])
            moving[key] = moving.get(key, False) or cls.world.moves(series)
        return silent, [key for key, moves in moving.items() if not moves]

    def test_variables_have_values(self):
        for path in DASHBOARDS:
            for variable in load(path)["templating"]["list"]:
                if variable["type"] != "query":
                    continue
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
                self.assertTrue(self.world.label_values(selector, label), variable["query"]["query"])

    def test_every_query_has_an_answer_and_every_panel_moves(self):
        for title, panel, target in self.asked:
            with self.subTest(dashboard=title, panel=panel["title"], expr=target["expr"]):
                series = self.world.range(target["expr"])
                self.assertTrue(series, "no series")
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    self.assertTrue(any(label in one["metric"] for one in series), f"no label {label} for the legend")
        self.assertEqual(self.lacking()[1], [], "panels of which no value changed")
        shown = {(title, panel["title"]) for title, panel, _ in self.asked}
        print(f"{len(self.asked)} queries of {len(shown)} panels answered by {self.world.scrapes()} scrapes")

    def test_all_operators_are_ours_and_no_other_controller(self):
        (operator,) = [d for d in map(load, DASHBOARDS) if d["uid"] == "muster-operator"]
        every = dict(VARIABLES)
        for variable in operator["templating"]["list"]:
            if variable["type"] == "query":
                selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
                # As Grafana takes All.
                every[f"${variable['name']}"] = variable.get("allValue") or "|".join(self.world.label_values(selector, label))
        asked = {panel["title"]: World.expand(panel["targets"][0]["expr"], every) for panel in panels(operator)}
        self.assertIn("cert-manager", {one["metric"]["job"] for one in self.world.range("workqueue_depth")})
        self.assertEqual({one["metric"]["job"] for one in self.world.range(asked["Queue"])}, {"muster-metrics"})
        (leaders,) = self.world.range(asked["Leaders"])
        self.assertLessEqual(max(int(value) for _, value in leaders["values"]), 3)   # one of each of ours

    def test_pods_that_have_ended_hold_nothing_of_their_node(self):
        (cluster,) = [d for d in map(load, DASHBOARDS) if d["uid"] == "muster-cluster"]
        (query,) = [panel["targets"][0]["expr"] for panel in panels(cluster) if panel["title"] == "GPUs asked for"]
        (node,) = self.world.range(query)
        self.assertLessEqual(max(float(value) for _, value in node["values"]), 7 / 8)

    def test_every_metric_of_the_contract_was_served(self):
        served = self.world.names()
        missing = [name for name, (kind, _) in METRICS.items()
                   if name + ("_count" if kind == "histogram" else "") not in served]
        self.assertEqual(set(missing), IN_CLUSTERS_ONLY)

    def test_a_worker_cannot_speak_for_another_namespaces_jobs(self):
        found = [one["metric"] for one in self.world.range('{training_job="forged"}')]
        self.assertEqual(found, [{"__name__": "muster_worker_loss", "namespace": "elsewhere", "job": "muster-forger",
                                  "instance": found[0]["instance"], "training_job": "forged", "slot": "0", "process": "0"}])
        ours = self.world.range('count by (namespace) (muster_worker_step{training_job="digits"})')
        self.assertEqual([one["metric"] for one in ours], [{"namespace": "default"}])

    def test_the_figures_say_what_happened(self):
        def last(expr):
            series = self.world.range(expr)
            self.assertTrue(series, expr)
            return float(series[-1]["values"][-1][1])
        self.assertEqual(last('max(muster_job_restarts_total{training_job="digits"})'), 1)
        self.assertEqual(last('max(max_over_time(muster_job_workers{training_job="digits"}[10m]))'), 2)
        self.assertGreater(last('max(muster_job_repeated_steps_total{training_job="digits"})'), 0)
        self.assertEqual(last('max(max_over_time(muster_job_condition{training_job="digits",type="Restarting",'
                              'status="true"}[10m]))'), 1)
        # The parts of a step make up the step, as of the last scrape that saw one: workers that were just started have made none.
        share = last('sum(muster_worker_phase_seconds_sum{phase=~"data|compute|communicate|update"}) / '
                     "(sum(muster_worker_step_seconds_sum) > 0)")
        self.assertAlmostEqual(share, 1, delta=0.01)
        goodput = last('max(muster_job_productive_seconds_total{training_job="digits"}) / '
                       'sum(max by (phase) (muster_job_phase_seconds_total{training_job="digits"}))')
        self.assertGreater(goodput, 0)
        self.assertLessEqual(goodput, 1)

    def test_the_queues_figures_say_what_happened(self):
        def values(expr):
            series = self.world.range(expr)
            self.assertEqual(len(series), 1, expr)
            return [float(value) for _, value in series[0]["values"]]
        waiting = values('muster_queue_waiting_jobs{training_queue="research"}')
        self.assertIn(2, waiting)
        self.assertEqual(waiting[-1], 0)
        self.assertIn(1, values('muster_queue_admitted_jobs{training_queue="product"}'))
        self.assertEqual(max(values('muster_queue_used{training_queue="product",resource="cpu"}')), 2)
        self.assertEqual(max(values('muster_queue_borrowed{training_queue="research",resource="cpu"}')), 2)
        self.assertEqual(max(values('muster_queue_used{training_queue="research",resource="memory"}')), 3 * 2**30)
        self.assertEqual(values('muster_queue_quota{training_queue="research",resource="memory"}')[-1], 4 * 2**30)
        # The sleepers' 95 s; a pod takes a moment to start and to be seen ended.
        self.assertAlmostEqual(values('muster_queue_spent{training_queue="research",currency="EUR"}')[-1], 95, delta=30)
        self.assertEqual(values('muster_queue_budget{training_queue="research",currency="EUR"}')[-1], 1000)

    def test_rules_are_evaluated_without_an_error(self):
        for group in self.world.get("/api/v1/rules")["groups"]:
            for rule in group["rules"]:
                self.assertNotEqual(rule["health"], "err", f"{rule['name']}: {rule.get('lastError')}")

    def test_what_is_served_keeps_to_the_format(self):
        for text in self.world.pages:
            done = subprocess.run([tool("promtool"), "check", "metrics"], input=text, text=True, capture_output=True)
            # Names that every controller uses, and cannot be others here.
            wrong = [line for line in done.stderr.splitlines()
                     if not line.startswith(("workqueue_", "controller_runtime_", "rest_client_"))]
            self.assertEqual(wrong, [])


def main():
    arguments = sys.argv[1:]
    names = None
    if "--lint" in arguments:
        arguments.remove("--lint")
        names = ["Lint", "Alerts"]
    if arguments and not arguments[0].startswith("-"):
        Live.bin_dir = os.path.abspath(arguments.pop(0))
    unittest.main(argv=[sys.argv[0], *arguments], defaultTest=names, verbosity=2)


if __name__ == "__main__":
    main()
