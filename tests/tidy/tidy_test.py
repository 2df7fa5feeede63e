#!/usr/bin/env python3
"""Each rule of tidy is seen refusing what it forbids and passing what it allows."""

import os
import subprocess
import tempfile
import unittest

import links
import tidy


def found(check, path, text):
    return list(check(path, text))


class TidyTest(unittest.TestCase):
    def test_core_does_not_see_kube(self):
        text = '#include "operator/kube/store.h"\n'
        self.assertTrue(found(tidy.check_includes, "operator/core/a.cpp", text))
        self.assertFalse(found(tidy.check_includes, "operator/runtime/a.cpp", text))

    def test_worker_sees_nothing_of_the_operator(self):
        self.assertTrue(found(tidy.check_includes, "worker/engine/a.cpp", '#include "operator/api/pod.h"\n'))

    def test_kernels_see_nothing_but_one_header(self):
        self.assertTrue(found(tidy.check_includes, "kernels/cpu/a.cpp", '#include "common/result.h"\n'))
        self.assertFalse(found(tidy.check_includes, "kernels/cpu/a.cpp", '#include "common/philox.h"\n'))
        self.assertTrue(found(tidy.check_includes, "operator/core/a.cpp", '#include "kernels/ops.h"\n'))

    def test_products_do_not_include_tests(self):
        self.assertTrue(found(tidy.check_includes, "cli/a.cpp", '#include "tests/fakes/x.h"\n'))

    def test_forbidden_calls_are_found_in_code_but_not_in_comments(self):
        for call in ("std::this_thread::sleep_for(x);", "std::chrono::steady_clock::now();", 'getenv("A");',
                     "std::cout << 1;", "thread.detach();", "std::shuffle(a, b, c);", "#include <boost/beast.hpp>",
                     "#include <cpprest/http_client.h>"):
            with self.subTest(call):
                self.assertTrue(found(tidy.check_forbidden, "operator/runtime/a.cpp", call + "\n"))
                self.assertFalse(found(tidy.check_forbidden, "operator/runtime/a.cpp", "// " + call + "\n"))

    def test_one_file_alone_knows_the_rest_library(self):
        include = "#include <cpprest/http_client.h>\n"
        self.assertFalse(found(tidy.check_forbidden, "operator/kube/rest_transport.cpp", include))
        for other in ("operator/kube/rest_transport.h", "operator/kube/rest_client.cpp"):
            self.assertTrue(found(tidy.check_forbidden, other, include), other)

    def test_core_is_pure_and_engine_uses_own_math(self):
        self.assertTrue(found(tidy.check_forbidden, "operator/core/a.cpp", "#include <thread>\n"))
        self.assertTrue(found(tidy.check_forbidden, "worker/engine/a.cpp", "y = std::exp(x);\n"))
        self.assertFalse(found(tidy.check_forbidden, "worker/sentinel/a.cpp", "#include <thread>\n"))

    def test_long_functions_files_and_lines(self):
        body = "int f(int a) {\n" + "  a += 1;\n" * 70 + "  return a;\n}\n"
        self.assertTrue(found(tidy.check_lengths, "cli/a.cpp", "namespace a {\n" + body + "}\n"))
        self.assertTrue(found(tidy.check_lengths, "cli/a.cpp", "struct A {\n" + body + "};\n"))
        short = "int f(int a) {\n" + "  a += 1;\n" * 60 + "  return a;\n}\n"
        self.assertFalse(found(tidy.check_lengths, "cli/a.cpp", "namespace a {\n" + short * 3 + "}\n"))
        self.assertTrue(found(tidy.check_lengths, "cli/a.cpp", "\n" * 1001))
        self.assertTrue(found(tidy.check_lengths, "cli/a.cpp", "x" * 101 + "\n"))

    def test_a_source_in_no_cmake_file(self):
        cmake = {"cli": "muster_library(cli SOURCES a.cpp)", "": "project(x)"}
        self.assertFalse(list(tidy.check_cmake(["cli/a.cpp"], cmake.get)))
        self.assertTrue(list(tidy.check_cmake(["cli/aa.cpp"], cmake.get)))

    def test_a_constant_that_hides_a_headers(self):
        header = "namespace muster::api {\ninline constexpr int kMost = 1, kLeast = 0;\n}\n"
        source = "namespace muster::NAME {\nnamespace {\nconstexpr std::size_t kMost = 2;\n}  // namespace\n}\n"
        for name, is_hidden in (("api", True), ("api::json", True), ("apis", False), ("core", False)):
            with self.subTest(name):
                texts = {"operator/api/a.h": header, "operator/b/b.cpp": source.replace("NAME", name)}
                self.assertEqual(bool(list(tidy.check_hidden(texts))), is_hidden)

    def test_bits_hang_on_no_order_in_which_threads_come(self):
        for call in ("atomicAdd(&sum, x);", "atomicAdd_block(&sum, x);", "std::atomic<float> sum;", "std::atomic_ref sum(x);"):
            with self.subTest(call):
                self.assertTrue(found(tidy.check_forbidden, "kernels/cuda/a.cu", call + "\n"))
                self.assertFalse(found(tidy.check_forbidden, "worker/sentinel/a.cpp", call + "\n"))
        self.assertFalse(found(tidy.check_forbidden, "kernels/cpu/a.cpp", "std::atomic<unsigned> round{0};\n"))

    def test_an_operation_of_a_gpu_stands_beside_its_twin(self):
        one = "void {}(Context& context, float* x) {{}}\n"
        table = {"kernels/operations.h": "#define MUSTER_OPERATIONS(X) \\\n  X(add) \\\n  X(embed)\n",
                 "kernels/cpu/elementwise.cpp": one.format("add"), "kernels/cpu/embedding.cpp": one.format("embed")}
        right = {**table, "kernels/cuda/add.cu": one.format("add"), "kernels/cuda/embedding.cu": one.format("embed")}
        self.assertEqual(list(tidy.check_twins(right)), [])
        for wrong, sentence in (({**right, "kernels/cuda/embedding.cu": ""}, "embed is 1 times in kernels/cpu and 0 times"),
                                ({**right, "kernels/cuda/scale.cu": one.format("add")}, "add is 1 times in kernels/cpu and 2 times"),
                                ({**table, "kernels/cuda/add.cu": one.format("add") + one.format("embed")},
                                 "kernels/cuda/add.cu: embed stands in embedding.cpp"),
                                ({**right, "kernels/cuda/own.cu": one.format("own")}, "kernels/cuda/own.cu: has no operation")):
            with self.subTest(sentence):
                self.assertIn(sentence, "\n".join(tidy.check_twins(wrong)))

    def test_objects_that_take_their_mathematics_from_libm(self):
        for call, is_found in (("expf", True), ("sqrtf", False)):
            with self.subTest(call), tempfile.TemporaryDirectory() as build:
                source = f'extern "C" float {call}(float);\nfloat f(float x) {{ return {call}(x); }}\n'
                made = os.path.join(build, "a.o")
                subprocess.run(["g++", "-O0", "-fno-builtin", "-x", "c++", "-c", "-o", made, "-"], input=source, text=True, check=True)
                for target in tidy.rules.LIBM_TARGETS:
                    subprocess.run(["ar", "rc", os.path.join(build, f"lib{target}.a"), made], check=True)
                told = list(tidy.check_objects(build))
                self.assertEqual(len(told), len(tidy.rules.LIBM_TARGETS) if is_found else 0, told)
                self.assertTrue(all(call in sentence for sentence in told))

    def test_a_library_that_one_binary_has_alone_is_one_of_the_list(self):
        cli, operator = links.BOTH | links.ONLY_CLI, links.BOTH | links.ONLY_OPERATOR
        self.assertEqual(list(links.differences(cli, operator)), [])
        self.assertEqual(list(links.differences(cli | {"muster_own_rules"}, operator - {"muster_core"})),
                         ["muster links muster_own_rules", "muster-operator does not link muster_core"])
        self.assertEqual(list(links.differences(cli - links.BOTH, operator - links.BOTH))[0], "muster does not link muster_api")
        self.assertEqual(list(links.differences(cli | links.ONLY_OPERATOR, operator | {"muster_embedded"})),
                         [*(f"muster links {library}" for library in sorted(links.ONLY_OPERATOR)),
                          "muster-operator links muster_embedded"])

    def test_todo_needs_an_issue(self):
        self.assertTrue(found(tidy.check_forbidden, "cli/a.cpp", "// TODO fix\n"))
        self.assertFalse(found(tidy.check_forbidden, "cli/a.cpp", "// TODO(#12): reason\n"))


if __name__ == "__main__":
    unittest.main()
