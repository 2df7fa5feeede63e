#!/usr/bin/env python3
"""scripts/gpu-check where there is no GPU: what it packs, what it says of what fails, and what it takes for a success.

    tests/run/gpu_check_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster and muster-worker; beside it is tests/
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECK = os.path.join(ROOT, "scripts/gpu-check")
OF_THE_SYSTEM = re.compile(r"linux-vdso|/ld-linux|lib(c|m|pthread|dl|rt)\.so")
SEVERAL_LINES = "\n".join(f"line {number}" for number in range(20))
# Steps of 100 samples: the first ones take longer.
RECORD = "\n".join(f'{{"step":{step},"samples":100,"seconds":{seconds}}}' for step, seconds in enumerate([9, 8, 7, 0.2, 0.125, 0.1], 1))
USE = '"message":"use of the GPU","teraflops":12.5,"mfu":0.0126'
TIMES = '"message":"times of steps","dataSeconds":0.001,"computeSeconds":0.1,"communicateSeconds":0.002,"updateSeconds":0.02'
# As `muster run` it leaves a log of a worker, a record and a report.
MUSTER = r"""
while [ $# -gt 0 ]; do
  case "$1" in
    --output) output=$2 ;;
    spec.worker.resources.gpus=*) gpus=${1#*=} ;;
  esac
  shift
done
mkdir -p "$output/logs" "$output/checkpoints"
echo '{TIMES}' > "$output/logs/0.log"
[ "$gpus" -eq 0 ] || echo '{USE}' >> "$output/logs/0.log"
[ "$gpus" -eq 0 ] || echo "SAYS" >> "$output/logs/0.log"
echo 'RECORD' > "$output/checkpoints/record.jsonl"
echo '{"seconds": 7.89, "sha256": "MODEL'"OF_GPUS"'"}' > "$output/report.json"
""".replace("TIMES", TIMES).replace("USE", USE).replace("RECORD", RECORD)


class GpuCheck(unittest.TestCase):
    bin_dir = ""

    def setUp(self):
        directory = tempfile.TemporaryDirectory(prefix="muster-gpu-check-")
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.pack = os.path.join(self.directory, "pack")

    def script(self, path, *lines):
        path = os.path.join(self.directory, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(["#!/bin/bash", *lines, ""]))
        os.chmod(path, 0o755)

    def gpus(self, count):
        self.script("path/nvidia-smi", *[f"[ $1 != -L ] || echo GPU {number}: H100" for number in range(count)],
                    "exit 0" if count else "exit 9")

    def stand_in(self, muster=MUSTER.replace("SAYS", "training on a GPU").replace("OF_GPUS", "")):
        """Programs that pass, in the places of those that are packed."""
        self.gpus(1)
        for name in ("test_cuda_kernels", "test_cuda_training"):
            self.script(f"pack/bin/{name}", "echo '[doctest] Status: SUCCESS!'")
        self.script("pack/bin/cuda_bench", "echo '| forward | 1.0 |'")
        self.script("pack/bin/muster", muster)

    def check(self, *arguments, script=CHECK):
        """(exit code, what it said)"""
        environment = {"PATH": f"{self.directory}/path:{os.environ['PATH']}", "HOME": self.directory}
        done = subprocess.run([script, *arguments], env=environment, cwd=self.directory, text=True, check=False,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300)
        return done.returncode, done.stdout

    def packed(self):
        code, out = self.check("--pack", "pack", "--from", os.path.dirname(self.bin_dir))
        self.assertEqual(code, 0, out)
        return out

    def test_what_is_packed_finds_all_its_libraries_there(self):
        self.gpus(0)
        said = self.packed()
        self.assertRegex(said, r"pack: \d+ MiB, for a C library of GLIBC 2\.\d+ or later")
        self.assertIn("test_cuda is left out of it", said)
        programs = os.listdir(f"{self.pack}/bin")
        self.assertEqual(sorted(programs), ["cuda_bench", "muster", "muster-worker", "test_cuda_kernels", "test_cuda_training"])
        for path in [f"{self.pack}/{each}/{name}" for each in ("bin", "lib") for name in os.listdir(f"{self.pack}/{each}")]:
            linked = subprocess.run(["ldd", path], env={"LD_LIBRARY_PATH": f"{self.pack}/lib"}, check=True, text=True,
                                    capture_output=True).stdout
            for line in linked.splitlines():
                self.assertTrue(OF_THE_SYSTEM.search(line) or f"{self.pack}/lib/" in line, f"{path}: {line}")
        code, out = self.check("--built", script=f"{self.pack}/scripts/gpu-check")
        self.assertEqual((code, out.count("\n")), (1, 1), out)
        self.assertIn("there is no GPU here, or no driver for it; nothing was checked", out)

    def test_what_is_packed_trains_where_it_is_unpacked(self):
        self.gpus(0)
        self.packed()
        self.stand_in_for_tests_alone()
        shutil.copy(os.path.join(os.path.dirname(self.bin_dir), "tests/muster-worker-cuda-on-host"), f"{self.pack}/bin/muster-worker")
        moved = os.path.join(self.directory, "elsewhere")
        os.rename(self.pack, moved)
        code, out = self.check("--built", "--steps", "3", "digits", script=f"{moved}/scripts/gpu-check")
        self.assertEqual(code, 0, out)
        figures = r"[1-9]\d*\.\d samples/s, a step \d+\.\d\d ms \(data \d+\.\d\d, compute \d+\.\d\d, communicate \d+\.\d\d, " \
                  r"update \d+\.\d\d\)(USED), \d+\.\d s from start to end\n"
        used = figures.replace("USED", r", \d+\.\d\d TFLOP/s")   # of what is no GPU nobody knows the most
        self.assertEqual(len(re.findall(f"   with a GPU {used}   without    {figures.replace('USED', '')}", out)), 1, out)
        self.assertEqual(len(re.findall(r"the same model, [0-9a-f]{64}", out)), 1, out)
        self.assertRegex(out, r"\| attention, backward, dropped +\| +\d+\.\d{3} \| +\d+\.\d\d TFLOP/s, +\d+ % of 67 \|")
        self.assertRegex(out, r"\| host to device +\| +\d+\.\d{3} \| +\d+\.\d GB/s \|")
        self.assertIn("test_cuda IS LEFT OUT", out)

    def stand_in_for_tests_alone(self):
        for name in ("muster", "cuda_bench"):
            shutil.move(f"{self.pack}/bin/{name}", self.directory)
        self.stand_in()
        for name in ("muster", "cuda_bench"):
            shutil.move(os.path.join(self.directory, name), f"{self.pack}/bin/{name}")

    def test_what_passes_is_measured(self):
        self.stand_in()
        code, out = self.check("--built", "pack")
        self.assertEqual(code, 0, out)
        self.assertIn("-- cuda_bench\n| forward | 1.0 |\n", out)
        figures = "800.0 samples/s, a step 125.00 ms (data 1.00, compute 100.00, communicate 2.00, update 20.00)"
        end = ", 7.9 s from start to end\n"
        for example in ("digits", "digits-cnn", "gpt-tiny", "gpt-6x384", "mlp-2x4096"):
            self.assertIn(f"-- {example}\n   with a GPU {figures}, 12.50 TFLOP/s, MFU 1.3 %{end}   without    {figures}{end}", out)

    def test_a_batch_that_is_worth_its_copies_is_of_made_up_images(self):
        keeps = ('for one in "$@"; do case "$one" in spec.training.data=*) one=${one#*images: }; '
                 f'cp "${{one%%,*}}" {self.directory} ;; esac; done')
        self.stand_in(keeps + MUSTER.replace("SAYS", "training on a GPU").replace("OF_GPUS", ""))
        code, out = self.check("--built", "pack", "mlp-2x4096")
        self.assertEqual(code, 0, out)
        with open(os.path.join(self.directory, "images"), "rb") as file:
            self.assertEqual(file.read(16), bytes.fromhex("00000803 00002000 00000008 00000008"))
            self.assertEqual(len(file.read()), 8192 * 64)

    def test_a_sanitizer_of_cuda_sees_single_kernels_alone(self):
        self.stand_in()
        self.script("path/compute-sanitizer", 'echo "$@"', "echo '========= ERROR SUMMARY: 0 errors'")
        code, out = self.check("--built", "pack", "--sanitizer", "racecheck")
        self.assertEqual(code, 0, out)
        self.assertIn("-- test_cuda_kernels under racecheck\n--tool racecheck --error-exitcode 1 --report-api-errors no "
                      f"{self.pack}/bin/test_cuda_kernels\n========= ERROR SUMMARY: 0 errors", out)
        for left_out in ("test_cuda_training", "cuda_bench", "digits"):
            self.assertNotIn(left_out, out)
        self.script("path/compute-sanitizer", f"echo '{SEVERAL_LINES}'", "exit 1")
        code, out = self.check("--built", "pack", "--sanitizer", "memcheck")
        self.assertEqual(code, 1, out)
        self.assertIn(SEVERAL_LINES + "\n   test_cuda_kernels under memcheck FAILED\n", out)

    def test_a_sanitizer_that_is_not_here_is_left_out(self):
        if shutil.which("compute-sanitizer", path=os.environ["PATH"] + ":/usr/local/cuda/bin"):
            self.skipTest("compute-sanitizer is here")
        self.stand_in()
        code, out = self.check("--built", "pack", "--sanitizer", "initcheck")
        self.assertEqual(code, 1, out)
        self.assertIn("test_cuda_kernels under initcheck IS LEFT OUT: compute-sanitizer is not here; nothing was checked\n", out)

    def test_a_sanitizer_that_there_is_not_is_refused(self):
        code, out = self.check("--sanitizer", "leakcheck")
        self.assertEqual(code, 2, out)
        self.assertIn("--sanitizer needs memcheck, racecheck, synccheck or initcheck", out)

    def test_a_test_that_fails_is_told_whole_and_the_others_run_all_the_same(self):
        self.stand_in()
        self.script("pack/bin/test_cuda_kernels", f"echo '{SEVERAL_LINES}'", "exit 1")
        code, out = self.check("--built", "pack", "digits")
        self.assertEqual(code, 1, out)
        self.assertIn(SEVERAL_LINES + "\n   test_cuda_kernels FAILED\n-- test_cuda_training\n[doctest]", out)
        self.assertIn("the same model", out)

    def test_what_was_skipped_has_not_passed(self):
        self.stand_in()
        self.script("pack/bin/test_cuda_training", "echo 'skipped: an MLP needs a GPU, and there is none: old driver'",
                    f"echo '{SEVERAL_LINES}'")
        code, out = self.check("--built", "pack", "digits")
        self.assertEqual(code, 1, out)
        self.assertIn("skipped: an MLP needs a GPU, and there is none: old driver\n   test_cuda_training FAILED", out)

    def test_what_was_not_trained_on_the_gpu_or_is_another_model_is_told(self):
        self.stand_in(MUSTER.replace("SAYS", "this build has no kernels").replace("OF_GPUS", ""))
        code, out = self.check("--built", "pack", "digits")
        self.assertEqual(code, 1, out)
        self.assertIn("this build has no kernels\n   digits FAILED: it was not trained on the GPU", out)
        self.stand_in(MUSTER.replace("SAYS", "training on a GPU").replace("OF_GPUS", "$gpus"))
        code, out = self.check("--built", "pack", "digits")
        self.assertEqual(code, 1, out)
        self.assertIn("digits FAILED: another model", out)


if __name__ == "__main__":
    GpuCheck.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
