#!/usr/bin/env python3
"""Each rule of the CRDs (x-kubernetes-validations) has a case that it has to refuse. Needs no cluster.

refusals_test.py and contract_test.py send the cases to real API servers. A case is a rule's own when it names the rule's field and
has words that, of all rules of that field, this one's message alone has.
"""

import collections
import glob
import os
import re
import sys
import unittest

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from refusals_changes import CHANGES  # noqa: E402
from refusals_manifests import CASES, CLUSTER_WIDE  # noqa: E402
from refusals_world import ROOT  # noqa: E402

# place: the field that the API server names, with [] for any item. message: or what it is made from.
Rule = collections.namedtuple("Rule", "kind place message")


def rules_below(schema, path, kind):
    for one in schema.get("x-kubernetes-validations", []):
        message = one.get("message") or one.get("messageExpression") or one["rule"]
        # Rules of a whole object name the field themselves.
        place, message = (path + one.get("fieldPath", ""), message) if path else message.split(": ", 1)
        yield Rule(kind, place, message)
    for name, field in schema.get("properties", {}).items():
        yield from rules_below(field, f"{path}.{name}" if path else name, kind)
    for several in ("items", "additionalProperties"):
        if isinstance(schema.get(several), dict):
            yield from rules_below(schema[several], f"{path}[]", kind)


def rules():
    found = []
    for path in sorted(glob.glob(os.path.join(ROOT, "crds/*.yaml"))):
        with open(path, encoding="utf-8") as file:
            spec = yaml.safe_load(file)["spec"]
        for version in spec["versions"]:
            found += rules_below(version["schema"]["openAPIV3Schema"], "", spec["names"]["kind"])
    return found


def expected():
    """(kind, place, words) of each refusal that a table expects."""
    refusals = [(case.body["kind"], case.words) for case in [*CASES, *CLUSTER_WIDE]
                if case.code == 422 and isinstance(case.body, dict)]
    refusals += [("TrainingJob", change.words) for change in CHANGES if change.words]
    return [(kind, re.sub(r"\[[^]]*\]", "[]", words[0].removesuffix(": ")), words[1:]) for kind, words in refusals]


def without_case(found):
    """Those of the rules that no table has a case of."""
    cases, missing = expected(), []
    for rule in found:
        others = [one.message for one in found if one[:2] == rule[:2] and one is not rule]
        own = [word for kind, place, words in cases if (kind, place) == rule[:2]
               for word in words if word in rule.message and not any(word in other for other in others)]
        if not own:
            missing.append(rule)
    return missing


class Rules(unittest.TestCase):
    def test_every_rule_has_a_case_of_its_own(self):
        found = rules()
        self.assertEqual({rule.kind for rule in found}, {"TrainingJob", "TrainingQueue", "TopologyConfig"})
        self.assertEqual(without_case(found), [])
        print(f"{len(found)} rules, {len(expected())} refusals")

    def test_a_rule_without_a_case_is_seen(self):
        found = rules()
        for new in (Rule("TrainingJob", "spec.worker.count", "must be even"),       # in no case
                    Rule("TrainingJob", "spec.worker", "threads is fewer than processes"),   # its field has cases of others
                    Rule("TrainingQueue", "spec.worker", "count is fewer than min")):   # another kind has the same
            with self.subTest(message=new.message):
                self.assertEqual(without_case([*found, new]), [new])

    def test_a_case_for_two_rules_is_none_of_either(self):
        few = next(rule for rule in rules() if rule.message.startswith("count is fewer than min"))
        again = few._replace(message=f"{few.message}, or take both out")
        self.assertEqual(without_case([*rules(), again]), [few, again])


if __name__ == "__main__":
    unittest.main()
