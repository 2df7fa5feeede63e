#!/usr/bin/env python3
"""A bit of the training state flips in the memory of one worker: it is noticed, and nothing of it is left in the end.

    tests/faults/memory_test.py BIN_DIR [unittest arguments]

The test writes into the trainer's memory as a particle would, from outside (/proc/PID/mem). It finds the place by what
lies there: the bytes of the newest checkpoint. It searches while the trainer runs, and stops it only to look once more at what
it found: a trainer that stands still for the time of a search may be taken for hung.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from job import FaultTest, main, read  # noqa: E402

EVERY = 10
PACE_MS = 200
# Where in the first layer's weights: of a pixel that is not always 0.
ELEMENT = 20 * 128 + 5
NEEDLE_BYTES = 4096


def newest_checkpoint(job):
    """(step, directory) of the newest complete one, or nothing."""
    folder = os.path.join(job.output, "checkpoints")
    names = sorted(name for name in os.listdir(folder) if name.startswith("step-")) if os.path.isdir(folder) else []
    complete = [name for name in names if os.path.exists(os.path.join(folder, name, "manifest.json"))]
    return (int(complete[-1].split("-")[1]), os.path.join(folder, complete[-1])) if complete else None


def largest_tensor(path):
    """Its bytes in a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = [one for name, one in json.loads(data[8:start]).items() if name != "__metadata__"]
    begin, end = max((one["data_offsets"] for one in tensors), key=lambda offsets: offsets[1] - offsets[0])
    return data[start + begin:start + end]


def places_of(pid, needle):
    """Addresses in the memory that the process may write."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in read(f"/proc/{pid}/maps").splitlines():
            span, rights = line.split()[:2]
            if not rights.startswith("rw") or line.endswith(("[stack]", "[vvar]", "[vdso]")):
                continue
            begin, end = (int(one, 16) for one in span.split("-"))
            memory.seek(begin)
            try:
                data = memory.read(end - begin)
            except OSError:
                continue
            at = data.find(needle)
            while at >= 0:
                found.append(begin + at)
                at = data.find(needle, at + 1)
    return found


def lies_at(pid, address, needle):
    try:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return memory.read(len(needle)) == needle
    except OSError:
        return False


def flip(pid, address, bit):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(address)
        byte = memory.read(1)[0]
        memory.seek(address)
        memory.write(bytes([byte ^ (1 << bit)]))


class Memory(FaultTest):
    def flipped(self, job, slot, file):
        """Flips a bit of what the newest checkpoint's `file` holds, in the slot's trainer; the step it stands at."""
        job.set_pace(PACE_MS)
        victim, looked_at = job.trainer(slot), 0

        def newest_needle():
            """(step, bytes) of a checkpoint that was not looked at yet, or nothing."""
            newest = newest_checkpoint(job)
            if not newest or newest[0] <= looked_at:
                return None
            return newest[0], largest_tensor(os.path.join(newest[1], file))[4 * ELEMENT:][:NEEDLE_BYTES]

        def find():
            """What lies where a checkpoint's bytes were, and has moved on with the steps after it: copies do not."""
            nonlocal looked_at
            if not (newest := newest_needle()):
                return None
            looked_at, needle = newest
            found = places_of(victim, needle)
            job.wait_step(looked_at + 3)
            return [place for place in found if not lies_at(victim, place, needle)]

        def strike():
            nonlocal looked_at
            if not (newest := newest_needle()):
                return None
            looked_at, needle = newest
            stopped = job.stop(slot, what="trainers")
            try:
                places = [place for place in found if lies_at(victim, place, needle)]
                for place in places:
                    flip(victim, place + 2, 3)  # a high bit of the fraction
                return looked_at if places else None
            finally:
                job.go_on(stopped)

        found = job.wait_for("the state is found in memory", find)
        step = job.wait_for("a trainer that stands at its newest checkpoint", strike)
        job.set_pace(5)
        return step

    def train(self, workers):
        return self.training(workers, training={"checkpoint": {"path": "/unused", "everySteps": EVERY}})

    def went_back(self, job, slot, step):
        """How many workers have said that they go back from the step of the next comparison."""
        found = 0
        for line in job.log_of(slot).splitlines():
            if "copies of the training state differ" in line:
                found += json.loads(line)["step"] == step + EVERY
        return found

    def wait_went_back(self, job, step, wanted):
        """Waits until so many of each slot have said it."""
        job.wait_for(f"{wanted} go back", lambda: [self.went_back(job, slot, step) for slot in range(len(wanted))] == wanted)

    def test_of_three_workers_the_one_whose_parameters_flip_is_named_and_started_again(self):
        self.one_of_three("model.safetensors")

    def test_of_three_workers_the_one_whose_optimiser_state_flips_is_named_and_started_again(self):
        self.one_of_three("optimizer.safetensors")

    def one_of_three(self, file):
        job = self.train(3)
        survivors, sentinel, victim = job.identities([0, 2]), job.workers()[1].sentinel, job.trainer(1)
        step = self.flipped(job, 1, file)
        job.wait_anew(1, victim)
        job.wait_trained_by(3)
        for said in ("a bit has flipped in its memory", "MemoryFaulty"):
            job.wait_said(1, said)
        self.wait_went_back(job, step, [1, 0, 1])
        self.assertEqual(job.workers()[1].sentinel, sentinel)
        self.assert_undisturbed(job, [0, 2], survivors)
        job.end()

    def test_of_two_workers_nobody_is_named_and_both_go_back_to_the_checkpoint(self):
        job = self.train(2)
        before = job.identities([0, 1])
        step = self.flipped(job, 1, "model.safetensors")
        job.wait_step(step + 2 * EVERY)
        self.wait_went_back(job, step, [1, 1])
        self.assert_undisturbed(job, [0, 1], before)
        job.end()

    def test_the_worker_with_the_files_flips_and_the_others_wait_for_the_one_in_its_place(self):
        job = self.train(3)
        survivors, victim = job.identities([1, 2]), job.trainer(0)
        self.flipped(job, 0, "optimizer.safetensors")
        job.wait_anew(0, victim)
        job.wait_trained_by(3)
        job.wait_said(0, "a bit has flipped in its memory")
        self.assert_undisturbed(job, [1, 2], survivors)
        job.end()


if __name__ == "__main__":
    main()
