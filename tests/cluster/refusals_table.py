#!/usr/bin/env python3
"""The tables of bad manifests and bad changes as lines of JSON, for tests/contract: every API server shall judge them alike.

A line of a manifest: what, text (the request's body), code, field. A line of a queue or a topology: what, kind (in the plural),
body, code, field. A line of a change: what, body, status, first, patch, code, field. The code is the one without strict field
validation; the field stands where the code is 422.
"""

import json

from refusals_changes import CHANGES
from refusals_manifests import CASES, CLUSTER_WIDE, TAKEN
from refusals_world import CLUSTER_WIDE_KINDS

# What is each server's own: Muster's reader refuses a key that stands twice even where the API server warns; less than a
# thousandth of a processor is rounded up, as Kubernetes itself does, before it is judged; and how much is read of a request
# is no matter of the manifest.
NOT_ALIKE = ("a key twice", "cpu '0.5m'", "cpu 1e-9", "an object of 3.1 MiB")


def text_of(body):
    """As it is sent; bytes that are no UTF-8 cannot stand in a line."""
    return body.decode("utf-8") if isinstance(body, bytes) else body if isinstance(body, str) else json.dumps(body)


def field_of(case):
    return case.words[0].partition(": ")[0]


def main():
    for case in CASES:
        if case.what in NOT_ALIKE:
            continue
        code = case.code if case.ignored is None else case.ignored
        print(json.dumps({"what": f"{case.number}: {case.what}", "text": text_of(case.body), "code": code,
                          "field": field_of(case) if code == 422 else ""}))
    for case in CLUSTER_WIDE:
        print(json.dumps({"what": case.what, "kind": CLUSTER_WIDE_KINDS[case.body["kind"]], "body": case.body, "code": case.code,
                          "field": field_of(case)}))
    for case in TAKEN:
        if not isinstance(case.body, bytes):
            print(json.dumps({"what": f"{case.number}: {case.what}", "text": text_of(case.body), "code": 201, "field": ""}))
    for change in CHANGES:
        if not change.path:
            print(json.dumps({"what": f"{change.number}: {change.what}", "body": change.body, "status": change.status,
                              "first": list(change.first), "patch": change.patch, "code": 422 if change.words else 200,
                              "field": change.words[0] if change.words else ""}))


if __name__ == "__main__":
    main()
