"""Manifests that must not be taken, as a table: what is wrong, what the API server answers, and with which words.

The numbers are those of the list of bad input in issue 4: 30 cases, each with all its variants. Each rule of the schemas
(x-kubernetes-validations) has a case here, or one of a change in refusals_changes.py: refusals_rules_test.py.
"""

import collections
import json

from refusals_world import job, training

# body: an object, or a JSON text where an object cannot say it (then `yaml` is the same as YAML). `words`: all of them
# stand in the refusal; the first names the field. `ignored`: the answer without strict field validation, when it is
# another: 201 means that the field is dropped. `number`: 0 where the list of issue 4 has none.
Case = collections.namedtuple("Case", "number what body words code ignored yaml", defaults=(422, None, None))

COUNT = "spec.worker.count"
CPU, MEMORY = "spec.worker.resources.cpu", "spec.worker.resources.memory"
QUANTITY = "should match"
LEAST = "greater than or equal to"
MOST = "less than or equal to"
SIZES = "must be from 1Mi to 64Ti"
MIB = 1 << 20
DISK = {"name": "v", "emptyDir": {}}
DIGEST = "@sha256:" + "0" * 64


def with_spec(spec, **more):
    return {**job(), "spec": spec, **more}


def raw(body, text, number):
    """(JSON, YAML) of `body` where the number 77 is `number` as it stands."""
    assert json.dumps(body).count("77") == 1
    return json.dumps(body).replace("77", number), text


def counts():
    kinds = [("a word", "four"), ("a truth value", True), ("a fraction", 1.5), ("a list", []), ("an object", {}),
             ("a number in quotes", "2")]
    rows = [Case(1, f"count is {what}", job(count=value), [COUNT, "must be of type"]) for what, value in kinds]
    rows += [Case(2, f"count {value}", job(count=value), [COUNT, f"should be {LEAST} 1"]) for value in (0, -1)]
    rows += [Case(2, f"count {value}", job(count=value), [COUNT, f"should be {MOST} 4096"])
             for value in (4097, 2**31, 2**63)]
    text, same = raw(job(count=77), None, "1e400")
    # Not valid JSON for Go: refused before any field is known.
    rows.append(Case(2, "count 1e400", text, ["1e400"], 400, yaml=same))
    return rows


def fields():
    rows = [Case(3, "an unknown field", job(gpus=1), ['unknown field "spec.worker.gpus"'], 400, 201),
            Case(3, "a field in the wrong case", job(Count=1), ['unknown field "spec.worker.Count"'], 400, 201),
            Case(3, "a section in the wrong case", with_spec({"worker": {"image": "a"}, "Training": {}}),
                 ['unknown field "spec.Training"'], 400, 201),
            Case(3, "an unknown field beside spec", {**job(), "specs": {}}, ['unknown field "specs"'], 400, 201)]
    text = ('{"apiVersion":"muster.dev/v1alpha1","kind":"TrainingJob","metadata":{"name":"a"},'
            '"spec":{"worker":{"command":["a"],"count":1,"count":2}}}')
    twice = ("apiVersion: muster.dev/v1alpha1\nkind: TrainingJob\nmetadata: {name: a}\n"
             "spec:\n  worker:\n    command: [a]\n    count: 1\n    count: 2\n")
    rows.append(Case(4, "a key twice", text, ["count"], 400, 201, twice))
    program = "must have training (the built-in engine)"
    rows += [Case(5, "an empty spec", with_spec({}), ["spec: ", program]),
             Case(5, "spec is null", with_spec(None), ["spec: Required value"]),
             Case(5, "no spec", {key: value for key, value in job().items() if key != "spec"}, ["spec: Required value"]),
             Case(5, "neither image, command nor training", with_spec({"worker": {"count": 1}}), ["spec: ", program]),
             Case(5, "command and training", training(worker={"command": ["a"]}),
                  ["spec: ", "worker.command and worker.args must be left out"]),
             Case(5, "training in the nodes' network", training(worker={"hostNetwork": True}),
                  ["spec: ", "worker.hostNetwork must be left out"])]
    return rows


def images():
    bad = ["", " ", "a b", "a\tb", "Team/Image", "registry.example.com/Team/image", "https://example.com/a", "a::b",
           "a:b:c", "a@sha256:zz", "a" + DIGEST[:-1], "a@md5:" + "0" * 64, "-a", "a/", "/a", "a//b", "a..b", "a:" + "t" * 129,
           "a:-t", "a\nb", "a" * 513]
    rows = [Case(6, f"image {value[:24]!r}", job(image=value), ["spec.worker.image"]) for value in bad]
    rows += [Case(6, f"image of {len(value)} characters", job(image=value), ["spec.worker.image", "at most 255"])
             for value in ("a" * 300, "a/" * 127 + "b:t", "a" * 256 + DIGEST)]
    return rows


def pulling():
    at = "spec.worker.imagePullPolicy"
    return [Case(6, f"a pull policy {value!r}", job(imagePullPolicy=value), [at, *words])
            for value, words in (("always", ["Unsupported value"]), ("", ["Unsupported value"]), (True, ["of type string"]))]


def resources():
    rows = []
    for value in ("1x", "-1", "", "10ZiB", "1e3k", "1 ", "0x10", "Inf", "NaN"):
        rows += [Case(8, f"{field.rpartition('.')[2]} {value!r}", job(resources={field.rpartition(".")[2]: value}),
                      [field, QUANTITY]) for field in (CPU, MEMORY)]
    rows += [Case(8, f"cpu {value!r}", job(resources={"cpu": value}), [CPU, "must be from 1m to 1024"])
             for value in (0, "0", "1025", "0.5m", -1)]
    rows += [Case(8, f"{name} {value!r}", job(resources={name: value}), [f"spec.worker.resources.{name}", SIZES])
             for name in ("memory", "ephemeralStorage") for value in (0, "0", "64Pi", "1", "1023Ki")]
    rows += [Case(8, f"shared memory of {value}", job(shmSize=value), ["spec.worker.shmSize", SIZES]) for value in ("1023Ki", "65Ti")]
    rows += [Case(8, f"an emptyDir of {value}", job(volumes=[{"name": "v", "emptyDir": {"sizeLimit": value}}]),
                  ["spec.worker.volumes[0].emptyDir.sizeLimit", SIZES]) for value in ("1023Ki", "65Ti")]
    # Without quotes in YAML, 1e99 is a number.
    rows += [Case(8, f"{name} {value}", job(resources={name: value}), [field])
             for name, field in (("cpu", CPU), ("memory", MEMORY)) for value in ("1e99", "1e-9")]
    rows += [Case(8, f"{name} is {value!r}", job(resources={name: value}), [field, "must be of type integer,string"])
             for name, field in (("cpu", CPU), ("memory", MEMORY)) for value in (1.5, True, [])]
    gpus = "spec.worker.resources.gpus"
    rows += [Case(9, f"{part} beside what is both", job(resources={part: {"cpu": "1"}}),
                  [f'unknown field "spec.worker.resources.{part}"'], 400, 201) for part in ("limits", "requests")]
    rows += [Case(9, "half a GPU", job(resources={"gpus": 0.5}), [gpus, "must be of type"]),
             Case(9, "GPUs in quotes", job(resources={"gpus": "1"}), [gpus, "must be of type"]),
             Case(9, "GPUs below 0", job(resources={"gpus": -1}), [gpus, f"{LEAST} 0"]),
             Case(9, "65 GPUs", job(resources={"gpus": 65}), [gpus, f"{MOST} 64"])]
    names = ["", "gpu", "cpu", "nvidia.com/", "/gpu", "NVIDIA.com/gpu", "a/b/c", "a..b/gpu", "a.com/" + "g" * 64,
             "a b/gpu", "a.com/g\nb"]
    rows += [Case(9, f"GPU resource {value[:16]!r}", job(resources={"gpuResource": value}),
                  ["spec.worker.resources.gpuResource"]) for value in names]
    rows += [Case(9, f"GPU resource {value}", job(resources={"gpuResource": value}),
                  ["spec.worker.resources.gpuResource", "must be a device plugin's name"])
             for value in ("kubernetes.io/batch-cpu", "pods.kubernetes.io/x", "requests.a.com/gpu")]
    devices = "spec.worker.resources.devices"
    rows += [Case(9, f"device {value[:16]!r}", job(resources={"devices": {value: 1}}), [devices, "every resource must be a name"])
             for value in ["hugepages-2Mi"] + names]
    rows += [Case(9, f"device {value}", job(resources={"devices": {value: 1}}), [devices, "must be device plugins' names"])
             for value in ("requests.a.com/gpu", "kubernetes.io/batch-cpu")]
    rows += [Case(9, f"{amount!r} of a device", job(resources={"devices": {"rdma/hca": amount}}), [devices])
             for amount in (0, -1, 1025, "1", 0.5)]
    rows += [Case(9, "17 kinds of devices", job(resources={"devices": {f"a.com/d{i}": 1 for i in range(17)}}), [devices]),
             Case(9, "the GPUs once more", job(resources={"gpus": 1, "devices": {"nvidia.com/gpu": 1}}),
                  [devices, "gpus"])]
    return rows


def groups():
    at, racks = "spec.topology.groups", {"required": "rack"}

    def grouped(*of, split=None, worker=None):
        model = {"mlp": {"hidden": [12]}}
        return training(worker={"count": 6, **(worker or {})}, parallelism=split or {"tensor": 2}, model=model,
                        spec={"topology": {"groups": [{"of": one, **racks} for one in of]}})

    both = grouped("Tensor")
    both["spec"]["topology"]["groups"][0]["preferred"] = "block"
    neither = grouped("Tensor")
    del neither["spec"]["topology"]["groups"][0]["required"]
    stages = {"pipeline": 2}
    return [Case(11, "groups of no kind", grouped("Expert"), [f"{at}[0].of", "Unsupported value"]),
            Case(11, "groups twice", grouped("Tensor", "Tensor"), [f"{at}[1]", "Duplicate value"]),
            Case(11, "an empty list of groups", grouped(), [at, "at least 1 items"]),
            Case(11, "groups with both levels", both, [f"{at}[0]: ", "exactly one of"]),
            Case(11, "groups with no level", neither, [f"{at}[0]: ", "exactly one of"]),
            Case(11, "groups in which all workers would be together", grouped("Pipeline", "Data", split=stages),
                 [f"{at}: ", "must not have both Pipeline and Data"]),
            Case(11, "groups of a program", job(spec={"topology": {"groups": [{"of": "Data", **racks}]}}),
                 [f"{at}: ", "how a program of your own divides its model"]),
            Case(11, "groups of layers that are whole", grouped("Tensor", split=stages),
                 [f"{at}: ", "Tensor needs training.parallelism.tensor above 1"]),
            Case(11, "groups of stages where there is one", grouped("Data"),
                 [f"{at}: ", "Pipeline and Data need training.parallelism.pipeline above 1"]),
            Case(11, "groups that share a worker", grouped("Tensor", split={"tensor": 3}, worker={"processes": 2}),
                 [f"{at}: ", "so that each group has workers of its own"]),
            Case(11, "groups of larger workers", grouped("Tensor", worker={"shape": "Free"}),
                 [f"{at}: ", "must be left out with worker.shape: Free"])]


def names():
    rows = []
    for value in ("", "a/b/c", "a" * 64, "Rack", "-a", "a-", "a_b", "a b", "a\n"):
        rows += [Case(11, f"topology {kind} {value[:8]!r}", job(spec={"topology": {kind: value}}),
                      [f"spec.topology.{kind}"]) for kind in ("required", "preferred")]
    rows += [Case(11, "topology with both", job(spec={"topology": {"required": "a", "preferred": "a"}}),
                  ["spec.topology: ", "exactly one of"]),
             Case(11, "topology with none", job(spec={"topology": {}}), ["spec.topology: ", "exactly one of"])]
    rows += groups()
    rows += [Case(13, f"a name of {len(value)} characters", job(value), ["metadata.name", "at most 40"])
             for value in ("a" * 41, "a" * 63, "a" * 64, "a" * 253)]
    rows += [Case(13, f"the name {value!r}", job(value), ["metadata.name"])
             for value in ("a.b", "1a", "A", "a_", "-a", "a-", "a/b", "a\n", "a" * 254)]
    return rows


def texts():
    rows = [Case(15, "100,000 args", job(args=["a"] * 100_000), ["spec.worker.args", "at most 256 items"]),
            Case(15, "65 words of a command", job(command=["a"] * 65), ["spec.worker.command", "at most 64 items"]),
            Case(15, "an argument of 1 MiB", job(args=["a" * MIB]), ["spec.worker.args[0]", "more than 8192"]),
            Case(15, "49,153 characters in small pieces", job(args=["a" * 8192] * 6), ["spec.worker: ", "at most 49152"]),
            Case(15, "long values of env", job(env=[{"name": f"A{i}", "value": "a" * 8192} for i in range(6)]),
                 ["spec.worker: ", "at most 49152"]),
            Case(15, "long texts before the worker", job(args=["a" * 8192] * 3, initContainers=[
                {"name": "i", "image": "a", "args": ["a" * 8192] * 4}]), ["spec.worker: ", "at most 49152"]),
            Case(15, "129 variables", job(env=[{"name": f"A{i}", "value": "1"} for i in range(129)]),
                 ["spec.worker.env", "at most 128 items"]),
            Case(15, "a NUL in an argument", job(args=["a\0b"]), ["spec.worker.args[0]"]),
            Case(15, "a NUL in a command", job(command=["a\0b"]), ["spec.worker.command[0]"]),
            Case(15, "a NUL in env", job(env=[{"name": "A", "value": "a\0"}]), ["spec.worker.env[0].value"]),
            Case(15, "a command without words", job(command=[]), ["spec.worker.command", "at least 1 items"]),
            Case(15, "a command without a program", job(command=[""]), ["spec.worker.command", "must name a program"]),
            Case(15, "a command that is no list", job(command="true"), ["spec.worker.command", "of type array"]),
            Case(15, "a number as an argument", job(args=[1]), ["spec.worker.args[0]", "of type string"])]
    return rows


def ranges():
    few, many = "count is fewer than min", "count is more than max"
    rows = [Case(16, "min above max", job(count=3, min=4, max=2), ["spec.worker: ", few, many]),
            Case(16, "count below min", job(count=1, min=2, max=3), ["spec.worker: ", few]),
            Case(16, "count above max", job(count=4, min=2, max=3), ["spec.worker: ", many]),
            Case(16, "min 0", job(min=0), ["spec.worker.min", f"{LEAST} 1"]),
            Case(16, "max 4097", job(max=4097), ["spec.worker.max", f"{MOST} 4096"]),
            Case(16, "a split beside mode Auto", training(worker={"count": 2}, parallelism={"mode": "Auto", "pipeline": 2}),
                 ["spec.training.parallelism", "must be left out with mode Auto"]),
            Case(16, "mode Auto", training(worker={"count": 3}, parallelism={"mode": "Auto"}), ["worker.count"], 201),
            Case(16, "mode Auto with shards",
                 training(worker={"count": 3}, parallelism={"mode": "Auto"}, optimizerState="Sharded"),
                 ["optimizerState"], 201),
            Case(16, "another mode", training(parallelism={"mode": "auto"}),
                 ["spec.training.parallelism.mode", "Unsupported value"]),
            Case(16, "more workers than logical ranks", training(worker={"count": 3}, logicalRanks=2),
                 ["spec: ", "training.logicalRanks is fewer"]),
            Case(16, "workers that are no whole copies", training(worker={"count": 3}, parallelism={"pipeline": 2}),
                 ["spec: ", "training.parallelism: tensor x pipeline must divide"]),
            Case(16, "at least half a copy", training(worker={"count": 4, "min": 1}, parallelism={"tensor": 2}),
                 ["spec: ", "training.parallelism: tensor x pipeline must divide"]),
            Case(16, "more workers than a view has room for",
                 training(worker={"max": 568}, logicalRanks=1024, batchSize=1024),
                 ["spec: ", "worker.max must, with training, be at most 59000"]),
            Case(16, "larger workers of a gang that may be smaller", training(worker={"max": 4, "shape": "Free"}),
                 ["spec.worker: ", "with shape: Free, min and max must be left out"]),
            Case(16, "larger workers with claims on devices",
                 job(count=2, shape="Free", resourceClaims=[{"name": "c", "resourceClaimName": "x"}]),
                 ["spec.worker: ", "with shape: Free, resourceClaims must be left out"]),
            Case(16, "larger workers in their nodes' network", job(count=2, shape="Free", hostNetwork=True),
                 ["spec: ", "worker.shape: Free needs scheduling: Placed and no hostNetwork"]),
            Case(16, "growing beyond count in no queue", training(worker={"max": 4, "growsTo": "Max"}),
                 ["spec: ", "worker.growsTo: Max needs training, queueName and scheduling"]),
            Case(17, "min alone above the default of count", job(min=2), ["spec.worker: ", few]),
            Case(17, "max alone below count", job(count=3, max=2), ["spec.worker: ", many])]
    one = {"name": "A", "value": "1"}
    mount = {"name": "v", "mountPath": "/d"}
    port = {"name": "p", "containerPort": 1}
    twice = "Duplicate value"
    rows += [Case(18, "a variable twice", job(env=[one, one]), ["spec.worker.env[1]", twice]),
             Case(18, "a volume twice", job(volumes=[DISK, DISK]), ["spec.worker.volumes[1]", twice]),
             Case(18, "a mount path twice", job(volumes=[DISK], volumeMounts=[mount, mount]),
                  ["spec.worker.volumeMounts[1]", twice]),
             Case(18, "a port's name twice", job(ports=[port, {**port, "containerPort": 2}]),
                  ["spec.worker.ports[1]", twice]),
             Case(18, "a port's number twice", job(ports=[port, {**port, "name": "q"}]),
                  ["spec.worker.ports: ", "may stand once"]),
             Case(18, "a claim twice", job(resourceClaims=[{"name": "c", "resourceClaimName": "x"}] * 2),
                  ["spec.worker.resourceClaims[1]", twice])]
    return rows


RESERVED = ["MUSTER_JOB", "MUSTER_", "RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TF_CONFIG",
            "PET_RDZV_ID", "PET_NNODES", "LD_PRELOAD", "LD_AUDIT", "NVIDIA_VISIBLE_DEVICES", "NCCL_COMM_ID",
            "NCCL_RAS_ADDR"]


def taken_from():
    """Variables of whole ConfigMaps and Secrets."""
    at, secret = "spec.worker.envFrom", {"secretRef": {"name": "s"}}
    rows = [Case(19, f"variables from {what}", job(envFrom=[value]), [f"{at}[0]", *words]) for what, value, words in (
        ("two places", {**secret, "configMapRef": {"name": "c"}}, ["exactly one of"]),
        ("nowhere", {"prefix": "A_"}, ["exactly one of"]),
        ("another namespace", {"secretRef": {"name": "team-b/s"}}, ["secretRef.name"]),
        ("a Secret without a name", {"secretRef": {}}, ["secretRef.name", "Required value"]),
        ("a prefix that is none", {**secret, "prefix": "A="}, ["prefix"]))]
    rows += [Case(19, f"variables of {what} for who has GPUs", job(resources={"gpus": 1}, envFrom=[value]),
                  [f"{at}: ", "NVIDIA_VISIBLE_DEVICES"])
             for what, value in (("no prefix", secret), ("a prefix that leads to others' GPUs", {**secret, "prefix": "NVIDIA_"}))]
    return rows + [Case(19, "variables of 17 places", job(envFrom=[secret] * 17), [at, "at most 16 items"])]


POD_NAME = {"fieldRef": {"fieldPath": "metadata.name"}}
SECRET_KEY = {"secretKeyRef": {"name": "s", "key": "k"}}
LEFT_OUT = "value must be left out when valueFrom is set"


def before_the_worker():
    """Containers that run before the worker's."""
    at, words = "spec.worker.initContainers", "at most the worker's"
    one = {"name": "i", "image": "a"}

    def row(what, field, *said, more=None, **wrong):
        return Case(19, f"before the worker {what}", job(initContainers=[{**one, **wrong}], **(more or {})), [at + field, *said])

    secret = {"secretRef": {"name": "s"}}
    small = {"cpu": "10m", "memory": "8Mi"}
    rows = [row("what is started again on failure", "[0].restartPolicy", "Unsupported value", restartPolicy="OnFailure"),
            row("a sidecar of no size", "[0]", "are required of a sidecar", restartPolicy="Always"),
            row("a sidecar of half a size", "[0]", "are required of a sidecar", restartPolicy="Always", resources={"cpu": "10m"}),
            row("a sidecar with a GPU", "[0]", "must be left out of a sidecar", more={"resources": {"gpus": 1}},
                restartPolicy="Always", resources={**small, "gpus": 1}),
            row("the worker itself", "[0].name", "must not be worker", name="worker"),
            row("one of Muster's own", "[0].name", "must not be worker", name="muster-token"),
            row("a name that is none", "[0].name", name="A_"),
            row("a bad image", "[0].image", image="A b"),
            row("an image of 300 characters", "[0].image", "at most 255", image="a" * 300),
            row("a command without a program", "[0].command", "must name a program", command=[""]),
            row("a directory that is none", "[0].workingDir", "as a part", workingDir="/a/../b"),
            row("a value beside its source", "[0].env[0]", LEFT_OUT, env=[{"name": "A", "value": "1", "valueFrom": POD_NAME}]),
            row("a value from two places", "[0].env[0].valueFrom", "exactly one of",
                env=[{"name": "A", "valueFrom": {**SECRET_KEY, **POD_NAME}}]),
            row("variables from two places", "[0].envFrom[0]", "exactly one of",
                envFrom=[{**secret, "configMapRef": {"name": "c"}}]),
            row("a reserved variable", "[0].env[0]", "closed to jobs", env=[{"name": "MUSTER_SLOT", "value": "1"}]),
            row("a closed mount", "[0].volumeMounts[0].mountPath", "must not be in /proc",
                more={"volumes": [DISK]}, volumeMounts=[{"name": "v", "mountPath": "/proc/1"}]),
            row("a mount that leaves its place", "[0].volumeMounts[0].mountPath", "as a part",
                more={"volumes": [DISK]}, volumeMounts=[{"name": "v", "mountPath": "/a/../b"}]),
            row("a path out of the volume", "[0].volumeMounts[0].subPath", 'must not contain ".."',
                more={"volumes": [DISK]}, volumeMounts=[{"name": "v", "mountPath": "/d", "subPath": "a/../.."}]),
            row("more GPUs than the worker's", ": ", words, resources={"gpus": 1}),
            row("another device", ": ", words, resources={"devices": {"rdma/hca": 1}}),
            # Which the worker cannot have either, so that there is one more reason to refuse them.
            row("a device without a domain", "[0].resources.devices", "every resource must be a name", resources={"devices": {"hca": 1}}),
            row("a device of the cluster's own", "[0].resources.devices", "must be device plugins' names",
                resources={"devices": {"kubernetes.io/batch-cpu": 1}}),
            row("variables of no prefix for GPUs", "[0]", "NVIDIA_VISIBLE_DEVICES", more={"resources": {"gpus": 1}},
                resources={"gpus": 1}, envFrom=[secret]),
            row("too many processors", "[0].resources.cpu", "must be from 1m to 1024", resources={"cpu": "1025"}),
            *(row(f"{value} of {name}", f"[0].resources.{name}", SIZES, resources={name: value})
              for name in ("memory", "ephemeralStorage") for value in ("1023Ki", "65Ti"))]
    rows += [Case(19, "before the worker nothing", job(initContainers=[{"name": "i"}]), [at + "[0]", "command is required"]),
             Case(19, "before the worker one twice", job(initContainers=[one, one]), [at + "[1]", "Duplicate value"]),
             Case(19, "before the worker nine", job(initContainers=[{**one, "name": f"i{n}"} for n in range(9)]),
                  [at, "at most 8 items"]),
             Case(20, "before the worker a mount without its volume", job(initContainers=[
                 {**one, "volumeMounts": [{"name": "v", "mountPath": "/d"}]}]),
                  ["spec.worker: ", "every initContainers[].volumeMounts[].name must name one of volumes"]),
             Case(20, "before the worker a mount at /dev/shm", job(volumes=[DISK], shmSize="1Gi", initContainers=[
                 {**one, "volumeMounts": [{"name": "v", "mountPath": "/dev/shm"}]}]),
                  ["spec.worker: ", "shmSize and a volumeMount of initContainers"])]
    return rows


def places():
    rows = [Case(19, f"the variable {value[:8]!r}", job(env=[{"name": value, "value": "1"}]),
                 ["spec.worker.env[0].name"]) for value in ("A=B", "A B", "", "1A", "A\n", "A\0", "Ä", "A" * 257)]
    rows += [Case(19, f"the variable {value}", job(env=[{"name": value, "value": "1"}]),
                  ["spec.worker.env[0]", "is set by Muster or closed to jobs"]) for value in RESERVED]
    rows += [Case(19, "a value from two places", job(env=[{"name": "A", "valueFrom": {**SECRET_KEY, **POD_NAME}}]),
                  ["spec.worker.env[0].valueFrom", "exactly one of"]),
             Case(19, "a value beside its source", job(env=[{"name": "A", "value": "1", "valueFrom": POD_NAME}]),
                  ["spec.worker.env[0]", LEFT_OUT])]
    rows.append(Case(19, "a pod's field that is none", job(env=[{"name": "A", "valueFrom": {
        "fieldRef": {"fieldPath": "spec.containers"}}}]), ["spec.worker.env[0].valueFrom.fieldRef.fieldPath"]))
    rows += taken_from() + before_the_worker()
    at = "spec.worker.volumeMounts[0].mountPath"
    parts = ("/a/..", "/a/../b", "/../b", "/a/./b", "/./proc", "/a/.")
    rows += [Case(20, f"a mount at {value[:16]!r}", job(volumes=[DISK], volumeMounts=[{"name": "v", "mountPath": value}]),
                  [at, *(["as a part"] if value in parts else [])])
             for value in ("", "d", "/", "a/b", "/a:b", "/a//b", "/a/", "/a b", "/a\nb", "/a\0", "/a\x1b[1m", *parts,
                           "/" + "a" * 1024)]
    rows += [Case(20, f"a mount at {value}", job(volumes=[DISK], volumeMounts=[{"name": "v", "mountPath": value}]),
                  [at, "must not be in /proc"])
             for value in ("/proc", "/proc/1", "/sys", "/dev", "/dev/fd", "/var", "/run", "/var/run", "/var/run/secrets",
                           "/run/secrets", "/var/run/secrets/muster.dev", "/run/secrets/muster.dev/token",
                           "/var/run/secrets/kubernetes.io/serviceaccount")]
    rows += [Case(20, f"a path in a volume {value!r}",
                  job(volumes=[DISK], volumeMounts=[{"name": "v", "mountPath": "/d", "subPath": value}]),
                  ["spec.worker.volumeMounts[0].subPath", *(['must not contain ".."'] if ".." in value else [])])
             for value in ("", "/a", "..", "a/../..", "a:b", "a\0")]
    rows += [Case(20, f"a file of a ConfigMap {value!r}",
                  job(volumes=[{"name": "v", "configMap": {"name": "c", "items": [{"key": "k", "path": value}]}}]),
                  ["spec.worker.volumes[0].configMap.items[0].path"]) for value in ("", "/etc/a", "../a", "a/..", "a\0")]
    rows += [Case(20, "a mount without its volume", job(volumeMounts=[{"name": "v", "mountPath": "/d"}]),
                  ["spec.worker: ", "every volumeMounts[].name must name one of volumes"]),
             Case(20, "a volume of Muster's name", job(volumes=[{"name": "muster-token", "emptyDir": {}}]),
                  ["spec.worker.volumes[0].name", 'must not start with "muster-"']),
             Case(20, "a volume from two places", job(volumes=[{**DISK, "secret": {"secretName": "s"}}]),
                  ["spec.worker.volumes[0]", "exactly one of"]),
             Case(20, "two owners of /dev/shm", job(volumes=[DISK], shmSize="1Gi", volumeMounts=[
                 {"name": "v", "mountPath": "/dev/shm"}]), ["spec.worker: ", "shmSize and a volumeMount at /dev/shm"])]
    return rows


def nodes():
    """Which nodes the workers may stand on, and what they are given there."""
    affinity, at = "requiredDuringSchedulingIgnoredDuringExecution", "spec.worker.affinity.nodeAffinity"
    term, tolerations = f"{at}.{affinity}.nodeSelectorTerms[0]", "spec.worker.tolerations[0]"

    def of_term(one):
        return job(affinity={"nodeAffinity": {affinity: {"nodeSelectorTerms": [one]}}})

    rows = [Case(11, f"nodes by the label {name[:16]!r}", job(nodeSelector={name: "b"}),
                 ["spec.worker.nodeSelector", "every label must be a name"]) for name in ("a b", "", "/a", "a/b/c", "a" * 64)]
    rows += [Case(11, f"a term with {what}", of_term(one), [term, "must have matchExpressions or matchFields"])
             for what, one in (("nothing", {}), ("empty lists", {"matchExpressions": [], "matchFields": []}))]
    exists, whole = "values are required, but must be left out", "must be one whole number"
    rows += [Case(11, f"{operator} {values}", of_term({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]}),
                  [f"{term}.matchExpressions[0]", words])
             for operator, values, words in (("Exists", ["b"], exists), ("In", [], exists), ("Gt", ["b"], whole),
                                             ("Lt", ["1", "2"], whole))]
    rows += [Case(11, f"a toleration {what}", job(tolerations=[one]), [tolerations, words]) for what, one, words in (
        ("of no key", {"effect": "NoSchedule"}, "key is required unless operator is Exists"),
        ("of a value that is not asked for", {"key": "a", "operator": "Exists", "value": "b"}, "value must be left out"),
        ("for a time", {"key": "a", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5},
         "tolerationSeconds needs effect NoExecute"))]
    rows += [Case(18, "a port by its number", job(ports=[{"name": "80", "containerPort": 80}]),
                  ["spec.worker.ports[0].name", "must have at least one letter"])]
    both = {"resourceClaimName": "one", "resourceClaimTemplateName": "other"}
    return rows + [Case(18, f"a claim {what}", job(resourceClaims=[{"name": "c", **one}]),
                        ["spec.worker.resourceClaims[0]", "must have exactly one of"])
                   for what, one in (("of nothing", {}), ("by its name and from a template", both))]


def numbers():
    rows = []
    for field, least, most in (("activeDeadlineSeconds", 1, 2**31 - 1), ("ttlSecondsAfterFinished", 0, 2**31 - 1)):
        rows += [Case(23, f"{field} {least - 1}", job(spec={field: least - 1}), [f"spec.{field}", f"{LEAST} {least}"]),
                 Case(23, f"{field} 10^12", job(spec={field: 10**12}), [f"spec.{field}", f"{MOST} {most}"]),
                 Case(23, f"{field} in quotes", job(spec={field: "5"}), [f"spec.{field}", "must be of type integer"])]
    for field, most in (("backoffSeconds", 3600), ("maxRestarts", 1000)):
        rows += [Case(23, f"{field} -1", job(spec={"restart": {field: -1}}), [f"spec.restart.{field}", f"{LEAST} 0"]),
                 Case(23, f"{field} 10^12", job(spec={"restart": {field: 10**12}}),
                      [f"spec.restart.{field}", f"{MOST} {most}"])]
    grace = "terminationGracePeriodSeconds"
    rows += [Case(23, f"{grace} {value}", job(**{grace: value}), [f"spec.worker.{grace}"]) for value in (-1, 0, 10**12)]
    for field in ("everySteps", "keep"):
        rows += [Case(24, f"{field} {value}", training(checkpoint={field: value}),
                      [f"spec.training.checkpoint.{field}", f"{LEAST} 1"]) for value in (0, -1)]
        rows.append(Case(24, f"{field} 10^13", training(checkpoint={field: 10**13}),
                         [f"spec.training.checkpoint.{field}", MOST]))
    rows += [Case(24, f"{field} {value}", training(**{field: value}), [f"spec.training.{field}"])
             for field, value in (("epochs", 0), ("seed", -1))]
    rows += [Case(24, "logicalRanks 12", training(logicalRanks=12, batchSize=60),
                  ["spec.training.logicalRanks", "must be a power of two"]),
             Case(24, "batchSize 63", training(batchSize=63), ["spec.training: ", "batchSize must be a multiple"]),
             Case(24, "fewer samples at once than a rank has", training(microBatchSize=3),
                  ["spec.training: ", "microBatchSize must be at least"]),
             Case(24, "epochs and steps", training(steps=5), ["spec.training: ", "must have exactly one of epochs and steps"]),
             Case(24, "two copies of all of a state", training(buddies=2),
                  ["spec.training: ", "buddies is for optimizerState: Sharded alone"])]
    for rate in ("0", "-1", "1001", "1e999", "NaN", "Inf", "0x1", "1,5", "", "0." + "1" * 40):
        words = ["must be above 0 and at most 1000"] if rate in ("0", "1001") else []
        rows.append(Case(24, f"learning rate {rate[:8]!r}", training(optimizer={"sgd": {"learningRate": rate}}),
                         ["spec.training.optimizer.sgd.learningRate", *words]))
    rows.append(Case(24, "a learning rate without quotes", training(optimizer={"sgd": {"learningRate": 0.1}}),
                     ["spec.training.optimizer.sgd.learningRate", "of type string"]))
    return rows + optimizers()


def optimizers():
    at = "spec.training.optimizer"
    rate = {"learningRate": "0.001"}
    one_of = [f"{at}: ", "must have exactly one of sgd or adamw"]
    rows = [Case(24, "no optimiser", training(optimizer={}), one_of),
            Case(24, "two optimisers", training(optimizer={"sgd": rate, "adamw": rate}), one_of),
            Case(24, "AdamW without a learning rate", training(optimizer={"adamw": {}}), [f"{at}.adamw.learningRate"]),
            Case(24, "momentum 1", training(optimizer={"sgd": {**rate, "momentum": "1"}}),
                 [f"{at}.sgd.momentum", "must be from 0 to below 1"]),
            Case(24, "a learning rate that ends above where it began",
                 training(optimizer={"sgd": rate, "schedule": {"cosine": {"finalShare": "1.5"}}}),
                 [f"{at}.schedule.cosine.finalShare", "must be from 0 to 1"])]
    for field, values, words in (("learningRate", ("0", "-1", "1001", "NaN", ""), ""),
                                 ("beta1", ("1", "0.9999991", "-0.1", "1e999"), "must be from 0 to 0.999999"),
                                 ("beta2", ("1", "0.9999991", "-0.1", "0x1"), "must be from 0 to 0.999999"),
                                 ("epsilon", ("0", "0.9e-20", "2", "-1e-8"), "must be from 1e-20 to 1"),
                                 ("weightDecay", ("1.1", "-0.1", "1,5"), "must be from 0 to 1")):
        for value in values:
            # The pattern refuses what is no decimal before the rule is asked.
            is_decimal = all(c in "0123456789.e-" for c in value[1:]) and value[:1].isdigit() and value != "1e999"
            rows.append(Case(24, f"{field} of AdamW {value!r}", training(optimizer={"adamw": {**rate, field: value}}),
                             [f"{at}.adamw.{field}", *([words] if is_decimal else [])]))
    norm = "spec.training.gradientClipping.maxNorm"
    rows += [Case(24, f"clipping at {value!r}", training(gradientClipping={"maxNorm": value}), [norm, "must be from 1e-9 to 1e9"])
             for value in ("0", "0.9e-9", "1.1e+9")]
    # Without quotes in YAML, 1e10 is a number.
    rows += [Case(24, f"clipping at {value!r}", training(gradientClipping={"maxNorm": value}), [norm])
             for value in ("1e-10", "1e10", "-1", "Inf", "", 1)]
    rows.append(Case(24, "clipping at nothing", training(gradientClipping={}), [norm, "Required value"]))
    return rows


def models():
    at = "spec.training.model"
    mlp, cnn = {"hidden": [8]}, {"channels": [8]}
    one = "must have exactly one of mlp, cnn or gpt"
    rows = [Case(24, "no model", training(model={}), [at, one]),
            Case(24, "two models", training(model={"mlp": mlp, "cnn": cnn}), [at, one]),
            Case(24, "a model without stages", training(model={"cnn": {}}), [f"{at}.cnn.channels", "Required"]),
            Case(24, "an empty list of stages", training(model={"cnn": {"channels": []}}),
                 [f"{at}.cnn.channels", "at least 1 items"])]
    for field, value, words in (("kernelSize", 4, "must be odd"), ("kernelSize", 17, f"{MOST} 15"),
                                ("normalization", "batch", 'supported values: "Batch", "None"'), ("hidden", [0], f"{LEAST} 1"),
                                ("dropout", "1", "must be from 0 to below 1"), ("dropout", 0.5, "of type string")):
        rows.append(Case(24, f"{field} {value} of a cnn", training(model={"cnn": {**cnn, field: value}}),
                         [f"{at}.cnn.{field}", words]))
    rows += [Case(24, f"dropout {value!r}", training(model={"mlp": {**mlp, "dropout": value}}), [f"{at}.mlp.dropout", *words])
             for value, *words in (("1.0", "must be from 0 to below 1"), ("-0.5",), ("half",), ("",))]
    rows += [Case(24, f"tensor {tensor} of {what}", training(worker={"count": tensor}, parallelism={"tensor": tensor}, **fields),
                  ["spec.training: ", f"parallelism.tensor must {words}"]) for what, tensor, fields, words in (
                      ("a cnn", 2, {"model": {"cnn": cnn}}, "be 1, because the model is cnn"),
                      ("four heads", 3, {"model": {"gpt": GPT}, "data": {"train": TEXT}}, "divide model.gpt.heads"),
                      ("a layer of eight", 3, {}, "divide each of model.mlp.hidden"))]
    rows += [Case(24, f"{stages} stages of {what}", training(worker={"count": stages}, parallelism={"pipeline": stages}, **fields),
                  ["spec.training: ", f"parallelism.pipeline must be at most {words}"]) for what, stages, fields, words in (
                      ("a cnn", 4, {"model": {"cnn": cnn}}, "the layers of model.cnn"),
                      ("a cnn without normalisation", 3, {"model": {"cnn": {**cnn, "normalization": "None"}}}, "the layers of model.cnn"),
                      ("four blocks", 10, {"model": {"gpt": GPT}, "data": {"train": TEXT}}, "2 x model.gpt.layers + 1"),
                      ("an mlp", 3, {}, "the layers of model.mlp"))]
    rows.append(Case(24, "activations of an mlp that are computed again", training(activations="Recomputed"),
                     ["spec.training: ", "activations: Recomputed is for a gpt alone"]))
    return rows


GPT = {"layers": 4, "heads": 4, "width": 128, "contextLength": 64}
TEXT, IDX = {"text": {"file": "a"}}, {"idx": {"images": "a", "labels": "b"}}
TABLE, PICTURES = {"csv": {"file": "a", "label": "b"}}, {"imageFolder": {"directory": "a"}}


def gpts():
    """A model that reads text, and the text."""
    at, data = "spec.training.model.gpt", {"train": TEXT}

    def gpt(without=None, **fields):
        members = {key: value for key, value in {**GPT, **fields}.items() if key != without}
        return training(model={"gpt": members}, data=data)

    rows = [Case(24, f"{field} {value} of a gpt", gpt(**{field: value}), [f"{at}.{field}", words])
            for field, most in (("layers", 96), ("heads", 128), ("width", 16384), ("contextLength", 4096))
            for value, words in ((0, f"{LEAST} 1"), (most + 1, f"{MOST} {most}"))]
    rows += [Case(24, f"a gpt without {field}", gpt(without=field), [f"{at}.{field}", "Required value"]) for field in GPT]
    both, wanted = "must have exactly one of idx, imageFolder, csv, text or tokens", "data.train and data.test must be"
    rows += [Case(24, "heads that do not divide the width", gpt(width=130), [at, "width must be a multiple of heads"]),
             Case(24, "a gpt and a mlp", training(model={"gpt": GPT, "mlp": {"hidden": [8]}}, data=data),
                  ["spec.training.model", "must have exactly one of mlp, cnn or gpt"]),
             Case(24, "more tokens than a step has", training(model={"gpt": GPT}, data=data, batchSize=262160),
                  ["spec.training", "batchSize x model.gpt.contextLength must be at most 16777216"]),
             Case(24, "data of no kind", training(data={"train": {}}), ["spec.training.data.train", both]),
             Case(24, "data of two kinds", training(data={"train": {**TEXT, **IDX}}), ["spec.training.data.train", both]),
             Case(24, "images for a gpt", training(model={"gpt": GPT}), ["spec.training", f"{wanted} text or tokens"]),
             Case(24, "a gpt tested with images", training(model={"gpt": GPT}, data={**data, "test": IDX}),
                  ["spec.training", f"{wanted} text or tokens"]),
             Case(24, "text for an mlp", training(data=data), ["spec.training", f"{wanted} idx, imageFolder or csv"]),
             Case(24, "an mlp tested with text", training(data={"train": IDX, "test": TEXT}),
                  ["spec.training", f"{wanted} idx, imageFolder or csv"]),
             Case(24, "test data of two kinds", training(data={"train": IDX, "test": {**IDX, **TEXT}}),
                  ["spec.training.data.test", both]),
             Case(24, "a table for a gpt", training(model={"gpt": GPT}, data={"train": TABLE}),
                  ["spec.training", f"{wanted} text or tokens"]),
             Case(24, "a table for a cnn", training(model={"cnn": {"channels": [8]}}, data={"train": TABLE}),
                  ["spec.training", f"{wanted} idx or imageFolder, because the model is cnn"]),
             Case(24, "a table's words hashed", training(data={"train": {"csv": {**TABLE["csv"], "words": "Hashed"}}}),
                  ["spec.training.data.train.csv.words", "OneHot"]),
             Case(24, "a table tested with images", training(data={"train": TABLE, "test": IDX}),
                  ["spec.training", "data.test must be csv where data.train is"]),
             Case(24, "a gpt that drops all", training(model={"gpt": {**GPT, "dropout": "1.0"}}, data={"train": TEXT}),
                  ["spec.training.model.gpt.dropout", "must be from 0 to below 1"]),
             Case(24, "a gpt whose attention drops all", training(model={"gpt": {**GPT, "attentionDropout": "1"}}, data={"train": TEXT}),
                  ["spec.training.model.gpt.attentionDropout", "must be from 0 to 0.999"]),
             Case(24, "pictures for a gpt", training(model={"gpt": GPT}, data={"train": PICTURES}),
                  ["spec.training", f"{wanted} text or tokens"]),
             Case(24, "pictures tested with images", training(data={"train": PICTURES, "test": IDX}),
                  ["spec.training", "data.test must be imageFolder where data.train is"]),
             *(Case(25, f"pictures with {fields}", training(data={"train": {"imageFolder": {"directory": "a", **fields}}}),
                    [f"spec.training.data.train.imageFolder{at}", words]) for fields, at, words in (
                        ({"directory": ""}, ".directory", "at least 1"),
                        ({"directory": "s3://a/b"}, ".directory", "must be a path, not a URL"),
                        ({"height": 8}, "", "must have both height and width, or neither"),
                        ({"height": 0, "width": 8}, ".height", f"{LEAST} 1"),
                        ({"height": 8, "width": 2049}, ".width", f"{MOST} 2048"),
                        ({"colors": "CMYK"}, ".colors", "RGB"))),
             *(Case(25, f"the column {label[:20]!r}", training(data={"train": {"csv": {"file": "a", "label": label}}}),
                    ["spec.training.data.train.csv.label"]) for label in ("", "a\tb", "a" * 257))]
    for split in ("train", "test"):
        for value, words in (("", []), ("a\nb", []), ("a" * 4097, []), ("s3://a/b", ["must be a path, not a URL"])):
            rows.append(Case(25, f"text of {split} {value[:20]!r}",
                             training(model={"gpt": GPT}, data={**data, split: {"text": {"file": value}}}),
                             [f"spec.training.data.{split}.text.file", *words]))
    return rows


def shards():
    """A model that reads tokens, and their files."""
    of_tokens = {**GPT, "vocabularySize": 50257}

    def job_of(files, gpt=None, **data):
        return training(model={"gpt": gpt or of_tokens}, data={"train": {"tokens": {"files": files}}, **data})

    at, size = "spec.training.data.train.tokens.files", "model.gpt.vocabularySize"
    return [Case(24, "tokens without a vocabulary", job_of(["a"], GPT), ["spec.training", f"{size} is required"]),
            Case(24, "a text of a vocabulary", training(model={"gpt": of_tokens}, data={"train": TEXT}),
                 ["spec.training", f"{size} must be 256 or left out"]),
            Case(24, "a vocabulary of one", job_of(["a"], {**GPT, "vocabularySize": 1}), [f"spec.training.{size}", f"{LEAST} 2"]),
            Case(24, "a vocabulary too large", job_of(["a"], {**GPT, "vocabularySize": 1048577}),
                 [f"spec.training.{size}", f"{MOST} 1048576"]),
            Case(24, "no shard", job_of([]), [at]), Case(24, "257 shards", job_of(["a"] * 257), [at]),
            Case(24, "tokens for an mlp", training(data={"train": {"tokens": {"files": ["a"]}}}),
                 ["spec.training", "data.train and data.test must be idx, imageFolder or csv"]),
            Case(24, "a pretrained mlp", training(pretrained={"directory": "a"}),
                 ["spec.training", "pretrained is for a gpt alone"]),
            Case(24, "a vocabulary of a text", training(model={"gpt": GPT}, data={"train": TEXT, "vocabulary": {"directory": "a"}}),
                 ["spec.training.data", "vocabulary is for tokens alone"]),
            *(Case(25, f"{what} by a URL", job_of(["a"], **of_data), [f"spec.training.data.{field}", "must be a path, not a URL"])
              for what, of_data, field in (
                  ("a test's shard", {"test": {"tokens": {"files": ["s3://a/b"]}}}, "test.tokens.files[0]"),
                  ("a vocabulary", {"vocabulary": {"directory": "hf://gpt2"}}, "vocabulary.directory"))),
            *(Case(25, f"pretrained at {value[:20]!r}",
                   training(model={"gpt": GPT}, data={"train": TEXT}, pretrained={"directory": value}),
                   ["spec.training.pretrained.directory", *words])
              for value, words in (("", []), ("a\nb", []), ("hf://gpt2", ["must be a path, not a URL"]))),
            *(Case(25, f"a shard {value[:20]!r}", job_of(["a", value]), [f"{at}[1]", *words])
              for value, words in (("", []), ("a\nb", []), ("a" * 4097, []), ("s3://a/b", ["must be a path, not a URL"])))]


def addresses():
    at = "spec.training.checkpoint.path"
    closed = ("/a/../../b", "/./a", "/proc/1", "/dev/shm", "/sys", "/run/secrets/muster.dev")
    rows = [Case(25, f"checkpoints at {value[:20]!r}", training(checkpoint={"path": value}),
                 [at, *(["nor be in /proc, /sys or /dev"] if value in closed else [])])
            for value in ("", "ckpt", "s3://a/b", "file:///a", "https://u:p@h/x#f", "/a b", "/a\0b", "/a\nb", "/a\x1b[2J",
                          "/" + "a" * 4096, *closed)]
    for field in ("images", "labels"):
        for value, words in (("", []), ("a\0b", []), ("a\nb", []), ("a\x1b[2J", []), ("a" * 4097, []),
                             ("s3://a/b", ["must be a path, not a URL"]),
                             ("https://user:password@h/x#f", ["must be a path, not a URL"]),
                             ("http://169.254.169.254/latest", ["must be a path, not a URL"]),
                             ("file:///etc/passwd", ["must be a path, not a URL"])):
            files = {"images": "a", "labels": "b", field: value}
            rows.append(Case(25, f"{field} {value[:20]!r}", training(data={"train": {"idx": files}}),
                             [f"spec.training.data.train.idx.{field}", *words]))
    elsewhere, size = "must be a path, not a URL", "must have both height and width, or neither"
    train = {"idx": IDX, "csv": TABLE, "imageFolder": PICTURES}
    for kind, wrong, field, words in (("idx", {"images": "s3://a/b"}, ".images", elsewhere),
                                      ("idx", {"labels": "s3://a/b"}, ".labels", elsewhere),
                                      ("csv", {"file": "s3://a/b"}, ".file", elsewhere),
                                      ("imageFolder", {"directory": "s3://a/b"}, ".directory", elsewhere),
                                      ("imageFolder", {"height": 8}, "", size)):
        rows.append(Case(25, f"a test's {kind} with {wrong}",
                         training(data={"train": train[kind], "test": {kind: {**train[kind][kind], **wrong}}}),
                         [f"spec.training.data.test.{kind}{field}", words]))
    rows.append(Case(25, "a table by a URL", training(data={"train": {"csv": {"file": "s3://a/b", "label": "b"}}}),
                     ["spec.training.data.train.csv.file", elsewhere]))
    return rows


def large():
    huge = job()
    huge["metadata"]["annotations"] = {"a": "x" * (300 * 1024)}
    larger = job()
    larger["metadata"]["annotations"] = {"a": "x" * (3 * MIB + (64 << 10))}
    return [Case(29, "an object of 1.4 MB", job(args=["x" * 8000] * 175), ["spec.worker: ", "at most 49152"]),
            Case(29, "annotations of 300 KiB", huge, ["metadata.annotations", "Too long"]),
            # More than the API server reads: it stops before there is a field to name. What it leaves unread is less than
            # the 256 KiB which Go's server takes off a connection before it answers: with more, it closes while the body
            # is under way, and its answer may be lost with the connection.
            Case(29, "an object of 3.1 MiB", larger, ["limit is 3145728"], 413)]


def headers():
    return [Case(30, "another version", {**job(), "apiVersion": "muster.dev/v1"}, ['version'], 400),
            Case(30, "another group", {**job(), "apiVersion": "apps/v1"}, ["apps"], 400),
            Case(30, "another kind", {**job(), "kind": "Deployment"}, ["kind: ", "must be TrainingJob"]),
            Case(30, "no kind", {key: value for key, value in job().items() if key != "kind"}, ["Object 'Kind' is missing"], 400),
            Case(30, "no version", {key: value for key, value in job().items() if key != "apiVersion"}, ["ersion"], 400)]


CASES = [*counts(), *fields(), *images(), *pulling(), *resources(), *names(), *texts(), *ranges(), *places(), *nodes(),
         *numbers(), *models(), *gpts(), *shards(), *addresses(), *large(), *headers()]


def cluster_wide(kind, spec, name="a"):
    return {"apiVersion": "muster.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def queues():
    def row(what, field, words, cohort="a", **wrong):
        quota = {"resources": [{"name": "cpu", "nominal": "4", **wrong}]}
        return Case(0, what, cluster_wide("TrainingQueue", {**quota, **({"cohort": cohort} if cohort else {})}), [field, words])

    rows = [row(f"a queue with {field} 2E", f"spec.resources[0].{field}", "must be from 0 to 1E", **{field: "2E"})
            for field in ("nominal", "borrowingLimit", "lendingLimit")]
    rows += [row(f"{field} without a cohort", "spec: ", "cohort: is required", cohort="", **{field: "1"})
             for field in ("borrowingLimit", "lendingLimit")]
    return rows + [Case(0, f"a queue of the name {name[:8]!r}", cluster_wide("TrainingQueue", {}, name),
                        ["metadata.name", "must be at most 63 lower-case letters"]) for name in ("a.b", "a" * 64)]


def topologies():
    rack, decimal = {"name": "rack", "nodeLabel": "example.com/rack"}, "must be a decimal number above 0"

    def row(what, levels, host, field, words):
        return Case(0, what, cluster_wide("TopologyConfig", {"levels": levels, "host": host}), [field, words])

    rows = [row("one label of two levels", [rack, {**rack, "name": "row"}], {}, "spec.levels", "is a label of a level already"),
            row("a level that names the host", [{**rack, "name": "host"}], {}, "spec.levels[0].name", "must not name the host")]
    for value in ("0", "1000001"):
        rows.append(row(f"oversubscription {value}", [{**rack, "oversubscription": value}], {}, "spec.levels[0].oversubscription", decimal))
        rows += [row(f"{field} {value}", [rack], {field: value}, f"spec.host.{field}", decimal)
                 for field in ("gigabitsPerSecond", "localGigabitsPerSecond")]
    return rows


# Of the kinds that have no namespace; only an administrator writes them.
CLUSTER_WIDE = [*queues(), *topologies()]

UNICODE = "/data/\u00fcbung/\u6570\u636e/\U0001f9ea"

# Taken, and why that is right. words: where it stands in spec, and what stands there then.
TAKEN = [
    Case(1, "count is null", job(count=None), ["worker.count", 1], 201),   # Kubernetes: as if it were left out, so the default
    Case(15, "invalid UTF-8", json.dumps(job(args=["ZZ"])).encode().replace(b"ZZ", b"\xff\xfe"),
         ["worker.args", ["\ufffd\ufffd"]], 201),                              # what is stored is valid
    Case(17, "min without max", job(count=2, min=1), ["worker.count", 2], 201),   # both default to count
    Case(17, "max without min", job(count=2, max=3), ["worker.count", 2], 201),
    Case(23, "no second to live after the end", job(spec={"ttlSecondsAfterFinished": 0}), ["worker.count", 1], 201),
    # 0 is a wish like others: the gang starts again within a second, and the first failure that counts is the last.
    Case(23, "no wait before a restart", job(spec={"restart": {"backoffSeconds": 0}}), ["restart.backoffSeconds", 0], 201),
    Case(23, "no restart after a failure", job(spec={"restart": {"maxRestarts": 0}}), ["restart.maxRestarts", 0], 201),
    Case(6, "the longest image", job(image="a" * 255 + DIGEST), ["worker.count", 1], 201),
    Case(6, "an image of a registry", job(image="Registry.example.com:5000/a/b_c--d.e:V1.0" + DIGEST), ["worker.count", 1], 201),
    Case(15, "49,152 characters", job(command=["a"], args=["a" * 8192] * 5 + ["a" * 8191]), ["worker.count", 1], 201),
    Case(24, "a gpt with the most tokens of a step", training(model={"gpt": GPT}, data={"train": TEXT, "test": TEXT},
                                                              batchSize=262144), ["worker.count", 1], 201),
    Case(24, "a gpt over shards of tokens", training(model={"gpt": {**GPT, "vocabularySize": 50257}},
                                                     data={"train": {"tokens": {"files": ["a"] * 256}}}), ["worker.count", 1], 201),
    Case(24, "a stage for each layer", training(worker={"count": 4}, parallelism={"pipeline": 4},
                                                model={"cnn": {"channels": [8], "hidden": [8]}}), ["worker.count", 4], 201),
    # Paths are bytes to Linux: letters of any script are as good as others, and are kept as they came.
    Case(25, "checkpoints at letters of other scripts", training(checkpoint={"path": UNICODE}),
         ["training.checkpoint.path", UNICODE], 201),
    Case(25, "data at letters of other scripts", training(data={"train": {"idx": {"images": UNICODE, "labels": "b"}}}),
         ["training.data.train.idx.images", UNICODE], 201),
]

# Not, or not only, of this table: what the operator decides, and changes of a job that is there. The tests of each case, all
# of refusals_test.py.
ELSEWHERE = {
    7: ["OnlyTheOperatorKnows.test_7_an_image_that_is_not_there"],
    10: ["OnlyTheOperatorKnows.test_10_more_gpus_than_any_node_has"],
    12: ["OnlyTheOperatorKnows.test_12_a_level_of_the_network_that_no_node_has",
         "OnlyTheOperatorKnows.test_12_a_gang_is_placed_once_nodes_say_where_they_are"],
    14: ["OnlyTheOperatorKnows.test_14_jobs_whose_names_continue_each_other"],
    21: ["OnlyTheOperatorKnows.test_21_a_volume_of_a_claim_that_is_not_there",
         "OnlyTheOperatorKnows.test_21_a_secret_that_is_not_there",
         "OnlyTheOperatorKnows.test_21_a_volume_of_a_secret_that_is_not_there"],
    22: ["OnlyTheOperatorKnows.test_22_classes_that_are_not_there"],
    26: ["Changes.test_26_what_cannot_change_once_a_job_has_trained"],
    27: ["Changes.test_27_a_running_job_stays_within_its_range"],
    28: ["Changes.test_28_a_job_that_has_ended_or_is_going_may_be_edited_in_vain",
         "OnlyTheOperatorKnows.test_28_a_job_that_has_ended_stays_ended",
         "OnlyTheOperatorKnows.test_28_a_job_that_is_going_is_suspended_in_vain"],
    30: ["OnlyTheOperatorKnows.test_30_foreign_finalizers_and_owners_are_none_of_its_business"],
}

# Parts of the cases for which the manifest has no field.
WITHOUT_FIELD = {
    9: "requests and limits apart: resources are both",
    11: "topologyKey: topology names a level, never a node's label, so there is nothing with a slash",
    17: "elastic: min and max each default to count",
    18: "roles: all workers are of one kind",
    25: "URIs of checkpoints and data: both are paths; there are no object stores yet",
    26: "topologyKey, checkpoint URI and job kind by name: topology, checkpoint and training are what cannot change",
}
