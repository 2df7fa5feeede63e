"""Attacks by tenants (A) and workers (B) that the API server itself refuses, numbered as in issue 4: S1 to S17."""

import concurrent.futures
import functools
import os
import unittest

import yaml

from refusals_operator import RESTRICTED
from refusals_world import ROOT, job, shared, training

FLOOD = 1000
QUOTA = 20
ABSENT = [  # S1, S2, S10: what a job's author might wish for and can never say
    "securityContext", "podSecurityContext", "hostPID", "hostIPC", "hostUsers", "hostAliases", "nodeName",
    "sidecars", "ephemeralContainers", "containers", "template", "podTemplate", "podSpecPatch",
    "automountServiceAccountToken", "shareProcessNamespace", "dnsConfig", "lifecycle", "livenessProbe",
    "annotations", "labels", "namespace", "privileged", "capabilities", "procMount", "sysctls", "hostname",
    "overhead", "priority", "setHostnameAsFQDN", "volumeDevices", "workingDir", "stdin"]
IN_CONTAINERS = ["securityContext", "ports", "lifecycle", "livenessProbe", "volumeDevices", "stdin", "resizePolicy"]
VOLUMES = ["hostPath", "nfs", "iscsi", "csi", "projected", "downwardAPI", "flexVolume", "gitRepo", "ephemeral", "image"]
# A name is that of an object of the job's own namespace, and nothing that leads elsewhere.
NOT_A_NAME = ["team-b/x", "../x", "x/..", "team-b:x", "/x", "X", "x" * 254, ""]


def references():
    """(field, name -> a job that names an object there) of every place of a manifest where an object is named."""
    for kind, name in (("persistentVolumeClaim", "claimName"), ("configMap", "name"), ("secret", "secretName")):
        yield (f"spec.worker.volumes[0].{kind}.{name}",
               lambda value, kind=kind, name=name: job(volumes=[{"name": "v", kind: {name: value}}]))
    for source in ("secretKeyRef", "configMapKeyRef"):
        yield (f"spec.worker.env[0].valueFrom.{source}.name", lambda value, source=source: job(
            env=[{"name": "A", "valueFrom": {source: {"name": value, "key": "k"}}}]))
        yield (f"spec.worker.initContainers[0].env[0].valueFrom.{source}.name", lambda value, source=source: job(
            initContainers=[{"name": "i", "image": "a", "env": [{"name": "A", "valueFrom": {source: {"name": value, "key": "k"}}}]}]))
    yield "spec.worker.imagePullSecrets[0].name", lambda value: job(imagePullSecrets=[{"name": value}])
    for one in ("resourceClaimName", "resourceClaimTemplateName"):
        yield (f"spec.worker.resourceClaims[0].{one}",
               lambda value, one=one: job(resourceClaims=[{"name": "c", one: value}]))
    yield "spec.training.checkpoint.volumeClaimName", lambda value: training(checkpoint={"volumeClaimName": value})
    for field in ("runtimeClassName", "schedulerName"):
        yield f"spec.worker.{field}", lambda value, field=field: job(**{field: value})
    for field in ("queueName", "priorityClassName"):
        yield f"spec.{field}", lambda value, field=field: job(spec={field: value})
    # Another account than the namespace's first needs a right of its own.
    yield "spec.worker.serviceAccountName", lambda value: job(
        serviceAccountName="default" if value == "x" else value)


@functools.cache
def schema():
    with open(os.path.join(ROOT, "crds/trainingjob.yaml"), encoding="utf-8") as file:
        return yaml.safe_load(file)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fields_at(path):
    """The names that the definition gives to fields there, below spec.worker; a number is a place in a list."""
    at = schema()
    for step in ("spec", "worker", *path):
        at = at["items"] if isinstance(step, int) else at["properties"][step]
    return set(at["properties"])


class Attacks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = shared()

    def post(self, body, validation="Strict", user="alice", namespace="team-a"):
        return self.world.call("POST", self.world.jobs(namespace) + f"?dryRun=All&fieldValidation={validation}", body, user)

    def absent(self, body, *path):
        """The field does not exist: strict validation says so, and without it nothing of it is stored."""
        # Of a field that exists a value of the wrong type is refused, too: that would show nothing.
        self.assertNotIn(path[-1], fields_at(path[:-1]))
        code, answer = self.post(body)
        self.assertEqual(code, 400, answer)
        self.assertIn("unknown field", answer)
        self.assertIn(path[-1], answer)
        code, answer = self.post(body, "Ignore")
        self.assertIn(code, (201, 422), answer)   # 422: what is left is no job
        if code == 201:
            at = answer["spec"]["worker"]
            for step in path[:-1]:
                at = at[step]
            self.assertNotIn(path[-1], at)

    def test_s1_s2_there_is_no_field_for_it(self):
        for field in ABSENT:
            with self.subTest(field=field):
                self.absent(job(**{field: {"privileged": True}}), field)
        for field in VOLUMES:
            with self.subTest(volume=field):
                body = job(volumes=[{"name": "v", "emptyDir": {}, field: {"path": "/"}}])
                self.absent(body, "volumes", 0, field)
        for field in IN_CONTAINERS:
            with self.subTest(init_container=field):
                for sidecar in ({}, {"restartPolicy": "Always", "resources": {"cpu": "1m", "memory": "1Mi"}}):
                    body = job(initContainers=[{"name": "i", "image": "a", **sidecar, field: {"privileged": True}}])
                    self.absent(body, "initContainers", 0, field)
        for field in ("podAffinity", "podAntiAffinity"):
            self.absent(job(affinity={field: {}}), "affinity", field)
        for port in ("hostPort", "hostIP"):
            self.absent(job(ports=[{"name": "p", "containerPort": 80, port: 80}]), "ports", 0, port)
        self.absent(job(volumes=[{"name": "v", "emptyDir": {}}], volumeMounts=[
            {"name": "v", "mountPath": "/d", "mountPropagation": "Bidirectional"}]), "volumeMounts", 0, "mountPropagation")

    def test_s1_nobody_is_root(self):
        for field, value, where in (("runAsUser", 0, ""), ("runAsGroup", 0, ""), ("fsGroup", 0, ""),
                                    ("supplementalGroups", [2000, 0], "[1]")):
            with self.subTest(field=field):
                code, answer = self.post(job(**{field: value}))
                self.assertEqual(code, 422, answer)
                self.assertIn(f"spec.worker.{field}{where}", answer)
                self.assertIn("greater than or equal to 1", answer)

    def test_s1_nor_can_the_pod_be_made_without_a_job(self):
        bad = {"metadata": {"name": "p"}, "spec": {"hostPID": True, "containers": [
            {"name": "worker", "image": "x", "securityContext": {"privileged": True}}]}}
        code, answer = self.world.call("POST", self.world.pods("team-a"), bad, "alice")
        self.assertEqual(code, 403, answer)
        self.assertIn('violates PodSecurity "restricted', answer)

    def test_s4_nothing_names_another_namespace(self):
        key = {"name": "s", "key": "k", "namespace": "team-b"}
        for source in ("secretKeyRef", "configMapKeyRef"):
            self.absent(job(env=[{"name": "A", "valueFrom": {source: key}}]), "env", 0, "valueFrom", source, "namespace")
        for kind, name in (("persistentVolumeClaim", "claimName"), ("configMap", "name"), ("secret", "secretName")):
            body = job(volumes=[{"name": "v", kind: {name: "x", "namespace": "team-b"}}])
            self.absent(body, "volumes", 0, kind, "namespace")
        self.absent(job(imagePullSecrets=[{"name": "x", "namespace": "team-b"}]), "imagePullSecrets", 0, "namespace")
        self.absent(job(resourceClaims=[{"name": "c", "resourceClaimName": "x", "namespace": "team-b"}]),
                    "resourceClaims", 0, "namespace")
        for field, body in references():
            self.assertEqual(self.post(body("x"))[0], 201, field)
            for wrong in NOT_A_NAME:
                with self.subTest(field=field, name=wrong[:16]):
                    code, answer = self.post(body(wrong))
                    self.assertEqual(code, 422, answer)
                    self.assertIn(field, answer)
        code, answer = self.post({**job(), "metadata": {"name": "a", "namespace": "team-b"}})
        self.assertEqual(code, 400, answer)
        self.assertIn("does not match the namespace", answer)
        code, answer = self.post(job(), namespace="team-b")
        self.assertEqual(code, 403, answer)

    def test_s9_a_flood_of_jobs_meets_a_quota(self):
        world = self.world
        path = "/api/v1/namespaces/team-a/resourcequotas"
        world.made("POST", path, {"metadata": {"name": "jobs"}, "spec": {
            "hard": {"count/trainingjobs.muster.dev": str(QUOTA)}}})
        self.addCleanup(world.remove_jobs, "team-a")
        self.addCleanup(world.call, "DELETE", path + "/jobs")
        # Every 30 s the controller looks for kinds that are new to it.
        world.wait("the quota counts", lambda: "used" in world.made("GET", path + "/jobs").get("status", {}), 180)

        def one(index):
            return world.call("POST", world.jobs("team-a"), job(f"flood-{index}", {"suspend": True}), "alice")

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(one, range(FLOOD)))
        codes = [code for code, _ in answers]
        self.assertEqual((codes.count(201), codes.count(403)), (QUOTA, FLOOD - QUOTA), sorted(set(codes)))
        self.assertIn("exceeded quota: jobs", next(answer for code, answer in answers if code == 403))
        code, answer = self.post(job("mine"), user="bob", namespace="team-b")
        self.assertEqual(code, 201, answer)
        print(f"{FLOOD} jobs asked for, {QUOTA} made")

    def test_s13_children_and_status_are_not_the_tenants_to_write(self):
        code, answer = self.world.call("PUT", self.world.jobs("team-a", "a") + "/status", job(), "alice")
        self.assertEqual(code, 403, answer)
        self.assertIn("trainingjobs/status", answer)
        # At creation it may stand there and counts for nothing.
        code, answer = self.post({**job(), "status": {"phase": "Complete", "membershipEpoch": 7}})
        self.assertEqual(code, 201, answer)
        self.assertNotIn("status", answer)

    def test_s17_a_workers_account_may_do_nothing(self):
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": {"namespace": "team-a"}}
        path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
        account = "system:serviceaccount:team-a:default"
        status = self.world.made("POST", path, review, account)["status"]
        self.assertFalse(status["incomplete"])
        granted = {(verb, group, resource) for rule in status["resourceRules"] for verb in rule["verbs"]
                   for group in rule["apiGroups"] for resource in rule["resources"]}
        self.assertEqual(granted, {("create", "authorization.k8s.io", "selfsubjectaccessreviews"),
                                   ("create", "authorization.k8s.io", "selfsubjectrulesreviews"),
                                   ("create", "authentication.k8s.io", "selfsubjectreviews")})
        for method, where in (("GET", self.world.pods("team-a")), ("GET", self.world.jobs("team-a")),
                              ("GET", "/api/v1/namespaces/team-a/secrets"), ("GET", "/api/v1/nodes"),
                              ("POST", self.world.pods("team-a")), ("DELETE", self.world.jobs("team-a", "a")),
                              ("GET", "/apis/coordination.k8s.io/v1/namespaces/muster/leases/muster-operator")):
            body = {"metadata": {"name": "p"}, "spec": RESTRICTED} if method == "POST" else None
            code, answer = self.world.call(method, where, body, account)
            self.assertEqual(code, 403, f"{method} {where}: {answer}")

    def test_s17_a_workers_token_is_none_for_the_api_server(self):
        token = self.world.plane.kubectl("create", "token", "-n", "team-a", "default", "--audience=muster").strip()
        for path in ("/api/v1/namespaces", self.world.jobs("team-a"), "/version", "/apis"):
            code, answer = self.world.call("GET", path, token=token)
            self.assertEqual(code, 401, f"{path}: {answer}")
        # The same account's token for the API server is one: what fails above is the audience.
        token = self.world.plane.kubectl("create", "token", "-n", "team-a", "default").strip()
        self.assertEqual(self.world.call("GET", "/apis", token=token)[0], 200)
        self.assertEqual(self.world.call("GET", self.world.jobs("team-a"), token=token)[0], 403)

    def test_s10_system_classes_and_all_taints(self):
        for body, words in ((job(spec={"priorityClassName": "system-cluster-critical"}), "spec.priorityClassName"),
                            (job(tolerations=[{"operator": "Exists"}]), "spec.worker.tolerations"),
                            (job(nodeSelector={"node-role.kubernetes.io/control-plane": ""}), "spec.worker.nodeSelector")):
            code, answer = self.post(body)
            self.assertEqual(code, 422, answer)
            self.assertIn(words, answer)
        self.absent(job(nodeName="node-1"), "nodeName")
