#!/usr/bin/env python3
"""`muster run` of jobs with GPUs, by a worker whose GPU is the processor (tests/cuda_on_host), and by one without kernels.

    tests/run/gpu_test.py BIN_DIR [unittest arguments]     BIN_DIR holds muster and muster-worker; beside it is tests/
"""

import os
import shutil
import sys
import unittest

from run_test import RunTest

ONE_GPU = ["--set", "spec.worker.resources.gpus=1"]
SHORT = ["--set", "spec.training.epochs=1"]
LONG = ["--set", "spec.training.epochs=20", "--hash-every", "100"]   # 440 steps, some 10 s


class Gpu(RunTest):
    def setUp(self):
        super().setUp()
        self.no_kernels = self.bin_dir
        self.bin_dir = self.path("bin")
        os.mkdir(self.bin_dir)
        shutil.copy(os.path.join(self.no_kernels, "muster"), self.bin_dir)
        on_host = os.path.join(self.no_kernels, "../tests/muster-worker-cuda-on-host")
        shutil.copy(on_host, os.path.join(self.bin_dir, "muster-worker"))
        os.environ["CUDA_VISIBLE_DEVICES"] = "0,0,0,0"
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES")

    def log(self, output):
        """Of all its workers."""
        directory = self.path(f"{output}/logs")
        logs = []
        for name in os.listdir(directory):
            with open(os.path.join(directory, name), encoding="utf-8") as file:
                logs.append(file.read())
        return "".join(logs)

    def is_device(self, capability_and_name):
        os.environ["CUDA_ON_HOST_DEVICE"] = capability_and_name
        self.addCleanup(os.environ.pop, "CUDA_ON_HOST_DEVICE", None)

    def test_a_gpu_gives_the_bits_of_processors(self):
        self.is_device("9.0 NVIDIA H200")
        on_gpus = self.train("gpu", *SHORT, *ONE_GPU)
        self.assertRegex(self.log("gpu"), r'"message":"training on a GPU".*"device":"NVIDIA H200"')
        self.assertRegex(self.log("gpu"), r'"message":"use of the GPU".*"device":"NVIDIA H200","teraflops":0\.0[0-9]+,"mfu":0\.0')
        on_processors = self.train("cpu", *SHORT)
        self.assertNotIn("GPU", self.log("cpu"))
        self.assertEqual(on_gpus["sha256"], on_processors["sha256"])
        self.assertEqual(on_gpus["accuracy"], on_processors["accuracy"])
        bfloat16 = ["--set", "spec.training.precision=BFloat16"]
        on_gpus = self.train("gpu-bfloat16", *SHORT, *ONE_GPU, *bfloat16)
        self.assertIn("training on a GPU", self.log("gpu-bfloat16"))
        self.assertEqual(on_gpus["sha256"], self.train("cpu-bfloat16", *SHORT, *bfloat16)["sha256"])

    def test_a_job_on_gpus_is_proved_under_kills_and_resizes(self):
        code, out, err = self.run_muster("prove", self.digits, *SHORT, *ONE_GPU, "--workers", "1,3", "--kills", "1",
                                         "--seed", "5", "--output", self.path("proof"))
        self.assertEqual(code, 0, out + err)

    def test_a_worker_that_sees_no_gpu_ends_with_27_and_what_it_lacks(self):
        hidden = "spec.worker.env=[{name: CUDA_VISIBLE_DEVICES, value: ''}]"
        code, out, err = self.run_muster("run", self.digits, *SHORT, *ONE_GPU, "--set", hidden,
                                         "--set", "spec.restart.policy=Never", "--output", self.path("hidden"))
        self.assertEqual(code, 27, out + err)
        self.assertIn("spec.worker.resources.gpus: CUDA finds no device (no CUDA-capable device is detected); must be a "
                      "node whose GPUs the container sees", out + err)

    def test_a_worker_whose_gpu_is_too_old_ends_with_27_and_says_which_would_do(self):
        self.is_device("8.0 NVIDIA A100-SXM4-80GB")
        code, out, err = self.run_muster("run", self.digits, *SHORT, *ONE_GPU, "--set", "spec.restart.policy=Never",
                                         "--output", self.path("old"))
        self.assertEqual(code, 27, out + err)
        self.assertIn("spec.worker.resources.gpus: the GPU (NVIDIA A100-SXM4-80GB) has compute capability 8.0; must be a node whose "
                      "GPUs the container sees, of compute capability 9.0 or later, with a driver for CUDA 13", out + err)

    def test_each_process_has_a_mig_instance_of_its_own(self):
        # Of which CUDA, and the GPU that is the processor, shows one.
        os.environ["CUDA_VISIBLE_DEVICES"] = "MIG-one,MIG-two"
        two = ["--set", "spec.worker.resources.gpus=2", "--set", "spec.worker.count=1"]
        on_gpus = self.train("mig", *SHORT, *two)
        for name in ("one", "two"):
            self.assertIn(f'"instance":"MIG-{name}"', self.log("mig"))
        self.assertEqual(on_gpus["sha256"], self.train("cpu", *SHORT)["sha256"])

    def test_a_worker_that_sees_fewer_gpus_than_it_holds_ends_with_27_and_says_so(self):
        code, out, err = self.run_muster("run", self.digits, *SHORT, "--set", "spec.worker.resources.gpus=2",
                                         "--set", "spec.restart.policy=Never", "--output", self.path("fewer"))
        self.assertEqual(code, 27, out + err)
        self.assertIn("CUDA finds 1 of the 2 GPUs that the worker holds (of several MIG instances the first, unless "
                      "NVIDIA_VISIBLE_DEVICES names them)", out + err)

    def test_a_gpu_that_fails_ends_its_worker_and_the_others_train_on_with_the_same_bits(self):
        whole = self.train("whole", *LONG)
        fails = self.path("fails")
        os.environ["CUDA_ON_HOST_FAILS"] = fails
        self.addCleanup(os.environ.pop, "CUDA_ON_HOST_FAILS")
        process = self.start("run", self.digits, *LONG, *ONE_GPU, "--set", "spec.restart.backoffSeconds=0",
                             "--output", self.path("failed"))
        self.await_line(process.stderr, r"^step ")
        with open(fails, "w", encoding="utf-8"):
            pass
        code, out, err = self.end_of(process)
        self.assertEqual(code, 0, out + err)
        self.assertFalse(os.path.exists(fails), "no device failed")
        self.assertIn("the GPU failed: unspecified launch failure", self.log("failed"))
        self.assertIn('"exit_code":27,"reason":"DeviceFailed"', self.log("failed"))
        self.assertEqual(self.report("failed")["restarts"], 0, "who lived was started again")
        self.assertEqual(self.report("failed")["sha256"], whole["sha256"])

    def test_what_has_no_kernels_is_trained_on_processors_and_the_log_says_why(self):
        self.train("split", *SHORT, *ONE_GPU, "--set", "spec.training.parallelism={pipeline: 2}",
                   "--set", "spec.worker.min=2")
        self.assertIn("spec.training.parallelism splits the model", self.log("split"))
        self.bin_dir = self.no_kernels
        self.train("other", *SHORT, *ONE_GPU)
        self.assertIn("this build of the worker has no kernels for GPUs", self.log("other"))


if __name__ == "__main__":
    RunTest.bin_dir = os.path.abspath(sys.argv.pop(1))
    unittest.main()
