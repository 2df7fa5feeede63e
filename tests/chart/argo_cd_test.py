#!/usr/bin/env python3
"""What docs/gitops.md says, done: its Lua by the Lua that Argo CD's own understands (5.1), its commands for the chart's keys by
openssl, beside a kubectl that keeps a Secret as a directory.
"""

import json
import os
import re
import subprocess
import tempfile
import textwrap
import unittest

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
KEY = "resource.customizations.health.muster.dev_TrainingJob"


def page():
    with open(os.path.join(ROOT, "docs/gitops.md"), encoding="utf-8") as file:
        return file.read()


def script():
    return yaml.safe_load(page().split("```yaml\n")[1].split("```")[0])["data"][KEY]


def in_lua(value):
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(key)}] = {in_lua(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(in_lua(one) for one in value) + "}"
    return json.dumps(value)


def health_of(**job):
    obj = {"metadata": {"generation": 2}, **job}
    program = (f"local function health(obj)\n{script()}\nend\n"
               f"local found = health({in_lua(obj)})\nprint(found.status)\nprint(found.message)\n")
    done = subprocess.run(["lua5.1", "-"], input=program, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return tuple(done.stdout.splitlines())


def condition(kind, status="True", reason="Because", message="said so"):
    return {"type": kind, "status": status, "reason": reason, "message": message}


class ArgoCd(unittest.TestCase):
    def judged(self, expected, *conditions, observed=2):
        status = {"observedGeneration": observed, "conditions": list(conditions)}
        self.assertEqual(health_of(status=status), expected)

    def test_a_job_nobody_has_looked_at_is_progressing(self):
        said = ("Progressing", "no operator has looked at it yet")
        self.assertEqual(health_of(), said)
        self.assertEqual(health_of(status={"phase": "Pending"}), said)

    def test_a_job_that_waits_or_runs_is_progressing_and_says_how(self):
        self.judged(("Progressing", "needs 2, 1 fits"), condition("Admitted", "False", message="needs 2, 1 fits"))
        self.judged(("Progressing", "2 of 2 run"), condition("Admitted"), condition("Running", message="2 of 2 run"),
                    condition("Suspended", "False"))
        self.judged(("Progressing", "its newest spec is not seen yet"), condition("Running"), observed=1)

    def test_an_end_is_healthy_or_degraded_and_stays_so(self):
        self.judged(("Healthy", "all done"), condition("Running", "False"), condition("Complete", message="all done"))
        failed = condition("Failed", reason="Numerics", message="loss is NaN")
        self.judged(("Degraded", "Numerics: loss is NaN"), condition("Admitted", "False"), failed)
        self.judged(("Degraded", "Numerics: loss is NaN"), failed, observed=1)

    def test_a_suspended_job_is_suspended_and_one_whose_spec_was_repaired_goes_on(self):
        self.judged(("Suspended", "spec.suspend is true"), condition("Admitted", "False"),
                    condition("Suspended", message="spec.suspend is true"))
        self.judged(("Progressing", "said so"), condition("Failed", "False"), condition("Running", "False"))


# Of the Secret muster-keys and its namespace: what is asked for, made, shown, applied or removed.
KUBECTL = """#!/bin/bash
set -euo pipefail
base=$(dirname "$0")
secret=$base/secret
files() { for word; do case "$word" in --from-file=*) realpath "${word#--from-file=}";; esac; done; }
put() { rm -rf "$secret"; mkdir "$secret"; while read -r name; do cp "$name" "$secret"; done; }
case "$*" in
  "-n muster get secret muster-keys -o go-template="*) cat "$secret/$(sed 's/.*"\\(.*\\)".*/\\1/' <<<"${!#}")";;
  "create namespace muster") mkdir "$base/namespace";;
  "-n muster create secret generic muster-keys "*--dry-run=client*) files "$@";;
  "-n muster create secret generic muster-keys "*) [ -e "$base/namespace" ]; [ ! -e "$secret" ]; files "$@" | put;;
  "apply --server-side --force-conflicts -f -") put;;
  "-n muster patch secret muster-keys --type=json -p "*)
    cd "$secret"; grep -o '/data/[^"]*' <<<"${!#}" | xargs -n 1 basename | xargs rm;;
  *) echo "no such command: $*" >&2; exit 1;;
esac
"""


class Keys(unittest.TestCase):
    def openssl(self, *words):
        return subprocess.run(["openssl", *words], cwd=self.directory.name, capture_output=True, check=True, text=True).stdout

    def secret(self):
        held = {}
        for name in os.listdir(f"{self.directory.name}/secret"):
            with open(f"{self.directory.name}/secret/{name}", encoding="utf-8") as file:
                held[name] = file.read()
        return held

    def run_block(self, text):
        """Runs it where a reader stands, which may be a checkout: nothing may be left there."""
        environment = {**os.environ, "TMPDIR": self.directory.name,
                       "PATH": os.pathsep.join([self.directory.name, os.environ["PATH"]])}
        with tempfile.TemporaryDirectory() as checkout:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", textwrap.dedent(text)], cwd=checkout, text=True,
                                  capture_output=True, env=environment, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(checkout), [])

    def assert_authority(self, name):
        self.assertIn("CA:TRUE", self.openssl("x509", "-in", f"secret/{name}.crt", "-noout", "-text"))
        self.assertEqual(self.openssl("x509", "-in", f"secret/{name}.crt", "-noout", "-pubkey"),
                         self.openssl("pkey", "-in", f"secret/{name}.key", "-pubout"))

    def test_the_keys_are_made_and_rotated_by_the_pages_commands(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        with open(f"{self.directory.name}/kubectl", "w", encoding="utf-8") as file:
            file.write(KUBECTL)
        os.chmod(file.name, 0o755)
        # Between them the takeover, which install_test.py tries with Helm.
        make, _, _, another, put, remove, other_key = re.findall(r"^ *```sh\n(.*?)^ *```$", page(), re.M | re.S)
        self.run_block(make)
        before = self.secret()
        self.assertEqual(set(before), {"ca.crt", "ca.key", "master-key"})
        self.assertRegex(before["master-key"], r"^[0-9a-f]{64}\n?$")
        self.assert_authority("ca")
        self.run_block(textwrap.dedent(another) + textwrap.dedent(put))
        after = self.secret()
        self.assertEqual(after.pop("previous-ca.crt"), before["ca.crt"])
        self.assertEqual(after.pop("previous-ca.key"), before["ca.key"])
        self.assertEqual(after["master-key"], before["master-key"])
        self.assertNotEqual(after["ca.key"], before["ca.key"])
        self.assert_authority("ca")
        self.assert_authority("previous-ca")
        self.assertEqual(set(after), set(before))
        self.run_block(remove)
        self.assertEqual(self.secret(), after)
        self.run_block(other_key)
        last = self.secret()
        self.assertEqual(last.pop("previous-master-key"), before["master-key"])
        self.assertNotEqual(last.pop("master-key"), before["master-key"])
        self.assertEqual(last, {name: after[name] for name in ("ca.crt", "ca.key")})


if __name__ == "__main__":
    unittest.main()
