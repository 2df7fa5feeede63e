"""Changes of jobs that are there, as a table: cases 26 to 28 of the list of bad input in issue 4.

No operator is needed for these; what it would have written into a job's status stands in the row.
"""

import collections

from refusals_manifests import IDX
from refusals_world import job, training

# body: the job as it is made. status: written into it then. first: changes of its spec that are taken before. patch: the
# change of its spec that is judged. words: all of them stand in the refusal, the first names the field; none: it is taken.
# path: of the subresource that is patched.
Change = collections.namedtuple("Change", "number what body patch words status first path", defaults=((), ""))

STARTED = {"membershipEpoch": 1}
OVER = {kind: {**STARTED, "conditions": [{"type": kind, "status": "True", "reason": reason,
                                          "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
        for kind, reason in (("Complete", "Completed"), ("Failed", "WorkerFailed"))}
NEVER, LATER = "cannot change; delete the job", "set suspend to true first"
SUSPENDED = {"suspend": True}


def trained():
    """Case 26: what cannot change once a job has trained, or only while it is suspended."""
    fixed = training("fixed", worker={"count": 2, "min": 1, "max": 4, "image": "a"})

    def row(what, patch, *words, first=(), status=None):
        return Change(26, what, fixed, patch, words, STARTED if status is None else status, first)

    rows = [row("the seed", {"training": {"seed": 8}}, "spec.training.seed", NEVER),
            row("logicalRanks", {"training": {"logicalRanks": 32}}, "spec.training.logicalRanks", NEVER),
            row("the model", {"training": {"model": {"mlp": {"hidden": [9]}}}}, "spec.training.model", NEVER),
            row("another model", {"training": {"model": {"mlp": None, "cnn": {"channels": [8]}}}}, "spec.training.model", NEVER),
            row("the precision", {"training": {"precision": "BFloat16"}}, "spec.training", "precision " + NEVER),
            row("who takes care of it", {"managedBy": "example.com/other"}, "spec.managedBy", NEVER),
            row("topology", {"topology": {"preferred": "rack"}}, "spec", LATER),
            row("the checkpoints' place", {"training": {"checkpoint": {"path": "/b"}}}, "spec", LATER),
            row("the data", {"training": {"data": {"test": IDX}}}, "spec", LATER),
            row("restart", {"restart": {"maxRestarts": 9}}, "spec", LATER),
            row("scheduling", {"scheduling": "Unplaced"}, "spec", LATER)]
    rows += [row(f"{what} of workers", {"worker": patch}, "spec.worker", LATER) for what, patch in (
        ("another image", {"image": "b"}), ("no image", {"image": None}), ("the processor", {"resources": {"cpu": "2"}}),
        ("a variable", {"env": [{"name": "A"}]}),
        ("all variables of a Secret", {"envFrom": [{"secretRef": {"name": "s"}}]}), ("places", {"nodeSelector": {"a": "b"}}),
        ("the account", {"serviceAccountName": "default"}),
        ("when images are pulled", {"imagePullPolicy": "Always"}), ("processes", {"processes": 2}))]
    program = job("program")
    rows.append(Change(26, "an own program becomes the engine", program,
                       {"worker": {"command": None}, "training": training()["spec"]["training"]},
                       ["spec", "training cannot be added or taken away"], STARTED))
    # Suspended, the same is taken, but for what can never change; so is all of it before the first epoch.
    repair = {"worker": {"image": "b", "nodeSelector": {"a": "b"}}, "restart": {"maxRestarts": 9}}
    rows += [row("a repair while it is suspended", repair, first=[SUSPENDED]),
             row("a repair while its workers leave", repair, "spec", LATER, first=[SUSPENDED],
                 status={**STARTED, "placement": [{"slot": 0, "attempt": 0, "node": "n"}]}),
             row("a repair before it has trained", repair, status={}),
             row("a repair and the suspension at once", {**repair, **SUSPENDED}, "spec", LATER),
             row("a repair that ends the suspension", {**repair, "suspend": False}, first=[SUSPENDED]),
             row("the seed while it is suspended", {"training": {"seed": 8}}, "spec.training.seed", NEVER, first=[SUSPENDED]),
             row("the seed before it has trained", {"training": {"seed": 8}}, "spec.training.seed", NEVER, status={}),
             row("the queue, the class and the deadlines", {"queueName": "q", "priorityClassName": "high",
                                                            "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 0})]
    return rows


def ahead():
    """Case 26: a job that went ahead of the first of its queue, because it is over by then, keeps to its word."""
    body = job("ahead", spec={"activeDeadlineSeconds": 60})
    status = {**STARTED, "wentAhead": True, "placement": [{"slot": 0, "attempt": 0, "node": "n"}]}

    def row(what, seconds, *words, status=status):
        return Change(26, what, body, {"activeDeadlineSeconds": seconds}, words, status)

    lowered = ["spec.activeDeadlineSeconds", "can only be lowered"]
    return [row("more time for one that went ahead", 61, *lowered),
            row("all time for one that went ahead", None, *lowered),
            row("less time for one that went ahead", 59),
            row("more time for one that waited for its turn", 61, status={**status, "wentAhead": False}),
            row("more time for one that has no places any more", 61, status={**status, "placement": []})]


def ranges():
    """Case 27: a running job stays within its range."""
    elastic = job("elastic", count=2, min=2, max=4)

    def row(what, patch, *words, path=""):
        return Change(27, what, elastic, patch, words, STARTED, path=path)

    few, many, least = "count is fewer than min", "count is more than max", "greater than or equal to 1"
    rows = [row("fewer than min", {"worker": {"count": 1}}, "spec.worker", few),
            row("more than max", {"worker": {"count": 5}}, "spec.worker", many),
            row("none", {"worker": {"count": 0}}, "spec.worker", least),
            row("a least number above", {"worker": {"min": 3}}, "spec.worker", few),
            row("a highest number below", {"worker": {"min": 1, "max": 1}}, "spec.worker", many),
            # A change that repairs nothing else is not refused for what was wrong before it.
            row("both ends at once", {"worker": {"min": 1, "count": 1}}),
            row("within its range", {"worker": {"count": 4}})]
    rows += [row(f"scaled to {replicas}", {"replicas": replicas}, *words, path="/scale")
             for replicas, words in ((1, ["spec.worker", few]), (5, ["spec.worker", many]), (0, ["spec.worker", least]), (4, []))]
    return rows


def split():
    """Case 27: a job keeps to whole copies of its model, also where the operator has split it."""
    body = training("split", worker={"count": 4, "min": 2, "max": 4}, parallelism={"mode": "Auto"})
    halves = {**STARTED, "parallelism": {"tensor": 1, "pipeline": 2}}
    words = ["status.parallelism", "must divide"]

    def row(what, patch, *words, status=halves, first=(), path=""):
        return Change(27, what, body, patch, words, status, first, path)

    return [row("half a copy", {"worker": {"count": 3}}, *words),
            row("half a copy at least", {"worker": {"min": 1}}, *words),
            row("a whole copy", {"worker": {"count": 2}}),
            row("scaled to half a copy", {"replicas": 3}, *words, path="/scale"),
            row("scaled to a copy", {"replicas": 2}, path="/scale"),
            row("any number where copies are whole", {"worker": {"count": 3}}, status=STARTED),
            row("any number where nobody chose", {"training": {"parallelism": {"mode": "Fixed"}}, "worker": {"count": 3}},
                first=[SUSPENDED]),
            row("another mode while it trains", {"training": {"parallelism": {"mode": "Fixed"}}}, "spec", LATER)]


def ended():
    """Case 28: a job that has ended may be edited in vain; the operator's part is tested with the operator."""
    body = job("ended")
    rows = []
    for kind, status in OVER.items():
        rows += [Change(28, f"another image of one that is {kind}", body, {"worker": {"image": "b"}}, ["spec.worker", LATER], status),
                 Change(28, f"one that is {kind} suspended", body, SUSPENDED, [], status)]
    return rows


CHANGES = [*trained(), *ahead(), *ranges(), *split(), *ended()]
