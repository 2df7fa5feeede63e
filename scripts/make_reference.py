#!/usr/bin/env python3
"""Makes docs/reference/manifest.md, queue.md and topology.md from crds/; --check fails when one is not up to date."""

import os
import sys

import yaml

from generated import ROOT, publish

# (definition, page, title)
PAGES = (("crds/trainingjob.yaml", "docs/reference/manifest.md", "The manifest of a TrainingJob"),
         ("crds/trainingqueue.yaml", "docs/reference/queue.md", "The manifest of a TrainingQueue"),
         ("crds/topologyconfig.yaml", "docs/reference/topology.md", "The manifest of a TopologyConfig"))


def cell(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def type_of(schema):
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    kind = schema["type"]
    if kind == "array":
        return "list of " + {"object": "objects", "string": "strings", "integer": "integers"}[schema["items"]["type"]]
    if "additionalProperties" in schema:
        return "map of strings"
    if schema.get("format") == "date-time":
        return "time"
    if "enum" in schema:
        return " or ".join(schema["enum"])
    return kind


def shown(value):
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    return f'`"{value}"`' if isinstance(value, str) and value.replace(".", "").isdigit() else f"`{value}`"


def bounds_of(schema):
    parts = []
    if "minimum" in schema:
        low, high = schema["minimum"], schema["maximum"]
        parts.append(f"{low:,}" if low == high else f"{low:,} to {high:,}")
    if "maxLength" in schema and not schema.get("x-kubernetes-int-or-string"):
        parts.append(f"at most {schema['maxLength']:,} characters")
    if "maxItems" in schema:
        parts.append(f"{schema['minItems']} to {schema['maxItems']:,} items" if "minItems" in schema
                     else f"at most {schema['maxItems']:,} items")
    if schema.get("type") == "array" and "minimum" in schema["items"]:
        parts.append("each " + bounds_of(schema["items"]))
    if "maxProperties" in schema:
        parts.append(f"at most {schema['maxProperties']} entries")
    return ", ".join(parts)


def rows(schema, path):
    """(path, type, default, bounds, description) of every field below `schema`, parents first."""
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        default = field.get("default")
        if name in required:
            default = "required"
        elif default is None or default == {}:
            default = ""
        else:
            default = shown(default)
        yield here, type_of(field), default, bounds_of(field), field.get("description", "")
        if field.get("type") == "array":
            yield from rows(field["items"], here + "[]")
        else:
            yield from rows(field, here)


def rules(schema, path):
    """(path, message) of every rule that a pattern or a bound does not say already."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield path, rule["message"]
    for name, field in schema.get("properties", {}).items():
        yield from rules(field, f"{path}.{name}" if path else name)
    if "items" in schema:
        yield from rules(schema["items"], path + "[]")


def table(schema, path):
    lines = ["| field | type | default | bounds | meaning |", "|---|---|---|---|---|"]
    for where, kind, default, bounds, text in rows(schema, path):
        lines.append(f"| `{where}` | {cell(kind)} | {cell(default)} | {cell(bounds)} | {cell(text)} |")
    return lines


def page(source, title):
    with open(os.path.join(ROOT, source), encoding="utf-8") as file:
        crd = yaml.safe_load(file)
    version = crd["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    names = crd["spec"]["names"]
    lines = [
        f"# {title}", "",
        f"Made from `{source}` by `scripts/make_reference.py`; do not edit.", "",
        f"`apiVersion: {crd['spec']['group']}/{version['name']}`, `kind: {names['kind']}`, "
        f"short name `{', '.join(names['shortNames'])}`, category `{', '.join(names['categories'])}`.", "",
        cell(schema["description"]), "",
        "## spec", "", cell(schema["properties"]["spec"]["description"]), ""]
    lines += table(schema["properties"]["spec"], "")
    lines += ["", "## Rules between fields", "", "| where | rule |", "|---|---|"]
    seen = set()
    found = [("metadata" if m.startswith("metadata") else "spec", m) for _, m in
             ((p, r["message"]) for p, r in (("", r) for r in schema.get("x-kubernetes-validations", [])))]
    found += list(rules(schema["properties"]["spec"], ""))
    for where, message in found:
        line = f"| {'`' + where + '`' if where else '`spec`'} | {cell(message)} |"
        if line not in seen:
            lines.append(line)
        seen.add(line)
    if "status" in schema["properties"]:
        lines += ["", "## status", "", cell(schema["properties"]["status"]["description"]), ""]
        lines += table(schema["properties"]["status"], "")
    lines += ["", f"## What `kubectl get {names['shortNames'][0]}` shows", "", "| column | with | meaning |", "|---|---|---|"]
    for column in version["additionalPrinterColumns"]:
        wide = "`-o wide`" if column.get("priority") else ""
        lines.append(f"| {column['name'].upper()} | {wide} | {cell(column['description'])} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(publish({target: page(source, title) for source, target, title in PAGES}))
