#!/usr/bin/env python3
"""The images as docker/build makes them from programs that are built already (size, settings, contents, digests), and which it takes.

    tests/chart/image_test.py [--binaries DIR]     default build/release/bin
    tests/chart/image_test.py --from-source        those that it compiles in an image of their own, instead: some ten minutes
"""

import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BINARIES = os.path.join(ROOT, "build/release/bin")
# By name the program in it. That for GPUs is made of the same worker here, which has no kernels for them.
IMAGES = {"muster-operator": "muster-operator", "muster-worker": "muster-worker", "muster-worker-cuda": "muster-worker"}
IMAGE_BYTES_MAX = 60 * 1000 * 1000
# Its image of Debian with the compilers is kept there.
FROM_SOURCE = os.path.join(ROOT, "build/images-from-source")
FROM_SOURCE_SECONDS = 3600
DATA = "usr/share/muster/data"
DRIVER = "libcuda.so.1"
# What NVIDIA's driver asks the C library for.
PARTS_OF_LIBC = ["libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"]


class Image:
    """An image of an OCI archive."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.tar = tarfile.open(fileobj=io.BytesIO(file.read()))
        (entry,) = self.json("index.json")["manifests"]
        self.digest = entry["digest"]
        self.name = entry["annotations"]["org.opencontainers.image.ref.name"]
        manifest = self.blob_json(entry["digest"])
        self.config = self.blob_json(manifest["config"]["digest"])
        self.layers = [tarfile.open(fileobj=self.tar.extractfile(self.blob(layer["digest"])), mode="r:gz")
                       for layer in manifest["layers"]]
        self.compressed = sum(layer["size"] for layer in manifest["layers"])

    def json(self, name):
        return json.load(self.tar.extractfile(name))

    def blob(self, digest):
        return "blobs/sha256/" + digest.removeprefix("sha256:")

    def blob_json(self, digest):
        data = self.tar.extractfile(self.blob(digest)).read()
        if "sha256:" + hashlib.sha256(data).hexdigest() != digest:
            raise AssertionError(f"{digest} has other bytes")
        return json.loads(data)

    def members(self):
        return {member.name.rstrip("/"): member for layer in self.layers for member in layer.getmembers()}

    def unpack(self, directory):
        for layer in self.layers:
            layer.extractall(directory)
        os.chmod(directory, 0o755)


def run_inside(root, *command, env=None):
    """Output of a program of an unpacked image, as the user that the image names."""
    chroot = shutil.which("chroot", path=os.environ.get("PATH", "") + ":/usr/sbin")
    done = subprocess.run([chroot, "--userspec=65532:65532", "--groups=", root, *command], env=env or {}, timeout=60,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}: {done.stdout}")
    return done.stdout


def build(directory, *arguments, timeout=600):
    command = [os.path.join(ROOT, "docker/build"), "--output", directory, *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=timeout, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout)
    return done.stdout


def images_of(directory, names):
    return {name: Image(os.path.join(directory, f"{name}.tar")) for name in names}


def build_all(directory):
    """The images of the output directory, by name."""
    packed = ["--binaries", BINARIES]
    print(build(directory, *packed) + build(directory, *packed, "--image", "muster-worker-cuda"), end="")
    return images_of(directory, IMAGES)


def needs_root_and_buildah():
    if os.getuid() != 0 or shutil.which("buildah") is None:
        print("skipped: images were not built: that needs root and buildah")
        raise unittest.SkipTest("needs root and buildah")


def make_driver(directory):
    """What asks the loader for as much as NVIDIA's driver does, and does nothing."""
    os.makedirs(directory, exist_ok=True)
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", os.path.join(directory, DRIVER), "-Wl,--no-as-needed",
                    *[f"-l:{name}" for name in PARTS_OF_LIBC]], check=True, timeout=60)


class ProgramsTest(unittest.TestCase):
    """docker/build in a tree of its own, with tools that do nothing but tell."""

    def put(self, name, text):
        path = os.path.join(self.tree, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, 0o755)

    def setUp(self):
        self.tree = tempfile.mkdtemp(prefix="muster-docker-")
        self.addCleanup(shutil.rmtree, self.tree, ignore_errors=True)
        with open(os.path.join(ROOT, "docker/build"), encoding="utf-8") as file:
            self.put("docker/build", file.read())
        self.put("docker/rootfs", '#!/bin/sh\nmkdir -p "$2" && cp "$1" "$2/program"\n')
        self.put("CMakeLists.txt", "project(muster VERSION 0.1.0 LANGUAGES CXX)\n")
        self.put("tools/id", "#!/bin/sh\necho 0\n")
        self.put("tools/cmake", """#!/bin/sh
mkdir -p build/release/bin
for program in muster-operator muster-worker; do echo new > build/release/bin/$program; done
""")
        self.put("tools/buildah", """#!/bin/sh
for word; do
  [ "$before" != --digestfile ] || digest=$word
  case "$word" in
    root=*) cat "${word#root=}/rootfs/program" >> taken ;;
    oci-archive:*) path=${word#oci-archive:}; : > "${path%%:*}"; echo sha256:archive > "$digest" ;;
    docker://*) echo "sha256:registry-${word##*/muster-}" > "$digest" ;;
  esac
  before=$word
done
""")

    def build(self, *arguments):
        done = subprocess.run([os.path.join(self.tree, "docker/build"), *arguments], stdin=subprocess.DEVNULL, timeout=60, text=True,
                              env={**os.environ, "PATH": f"{self.tree}/tools:{os.environ['PATH']}"},
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def taken(self, *arguments):
        self.build(*arguments)
        with open(os.path.join(self.tree, "taken"), encoding="utf-8") as file:
            return file.read().split()

    def test_programs_of_another_day_are_built_again_before_they_are_packed(self):
        for file in ("build.ninja", "bin/muster-operator", "bin/muster-worker"):
            self.put("build/release/" + file, "old\n")
        self.assertEqual(self.taken(), ["new", "new"])

    def test_programs_that_are_not_there_are_built(self):
        self.assertEqual(self.taken(), ["new", "new"])

    def test_programs_that_are_named_are_taken_as_they_are(self):
        for program in ("muster-operator", "muster-worker"):
            self.put("mine/" + program, "mine\n")
        self.assertEqual(self.taken("--binaries", "mine"), ["mine", "mine"])
        self.assertFalse(os.path.exists(os.path.join(self.tree, "build/release")))

    def test_what_is_killed_leaves_no_compiler(self):
        if os.getuid() != 0:
            raise unittest.SkipTest("needs root")
        compiles = os.path.join(self.tree, "compiles")
        self.put("tools/buildah", f"""#!/bin/sh
for word; do [ "$word" != build ] || exec flock {compiles} sh -c 'echo yes > {compiles}; exec sleep 600'; done
""")
        self.put("build/images/debian-12-build.tar", "here\n")
        building = subprocess.Popen([os.path.join(self.tree, "docker/build"), "--from-source"], stdin=subprocess.DEVNULL,
                                    env={**os.environ, "PATH": f"{self.tree}/tools:{os.environ['PATH']}"},
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(building.wait)
        self.addCleanup(building.kill)
        deadline = time.monotonic() + 60
        while not os.path.exists(compiles) or not os.path.getsize(compiles):
            self.assertIsNone(building.poll(), "docker/build ended before it compiled")
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        building.send_signal(signal.SIGKILL)
        with open(compiles, encoding="utf-8") as file:
            subprocess.run(["flock", "--timeout", "60", str(file.fileno())], pass_fds=[file.fileno()], check=True, timeout=120)

    def test_what_is_pushed_is_named_with_the_digest_that_the_registry_has_of_it(self):
        said = self.build("--push", "registry.example.com/team").splitlines()
        for program in ("operator", "worker"):
            self.assertIn(f"registry.example.com/team/muster-{program}:0.1.0@sha256:registry-{program}:0.1.0", said)


class Contents:
    """What holds of all images, however they were made: `images` has them by name."""

    def test_settings_are_those_of_a_careful_pod(self):
        for name, image in self.images.items():
            self.assertEqual(image.name, f"localhost/muster/{name}:0.1.0")
            config = image.config["config"]
            self.assertEqual(config["User"], "65532:65532")
            self.assertEqual(config["Entrypoint"], [f"/usr/bin/{IMAGES[name]}"])
            self.assertNotIn("Cmd", config)
            self.assertEqual(config["StopSignal"], "SIGTERM")
            threads_keep_much = "GLIBC_TUNABLES=glibc.malloc.tcache_count=2" not in config.get("Env", [])
            self.assertEqual(threads_keep_much, name != "muster-operator")
            for label in ("title", "description", "version", "revision", "created", "vendor"):
                self.assertTrue(config["Labels"][f"org.opencontainers.image.{label}"], label)
            self.assertEqual(config["Labels"]["org.opencontainers.image.version"], "0.1.0")

    def test_they_are_small_and_hold_nothing_to_break_out_with(self):
        for name, image in self.images.items():
            members = image.members()
            size = sum(member.size for member in members.values())
            print(f"{name}: {size} bytes unpacked, {image.compressed} packed, {len(members)} files")
            self.assertLess(size, IMAGE_BYTES_MAX)
            programs = [path for path in members if path.startswith("usr/bin/")]
            self.assertEqual(programs, [f"usr/bin/{IMAGES[name]}"])
            for path, member in members.items():
                self.assertEqual((member.uid, member.gid), (0, 0), path)
                self.assertFalse(member.mode & 0o6000, path)
                if member.isfile() or path != "tmp" and member.isdir():
                    self.assertFalse(member.mode & 0o022, path)
            for path in ("etc/passwd", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt"):
                self.assertIn(path, members)

    def test_the_worker_has_the_examples_data_where_manifests_look_for_them(self):
        members = self.images["muster-worker"].members()
        for name in os.listdir(os.path.join(ROOT, "examples/data")):
            self.assertIn(f"{DATA}/{name}", members)
        self.assertNotIn(DATA, self.images["muster-operator"].members())

    def test_programs_run_with_nothing_but_the_image(self):
        for name, image in self.images.items():
            with tempfile.TemporaryDirectory() as root:
                image.unpack(root)
                said = run_inside(root, f"/usr/bin/{IMAGES[name]}", "--version").decode()
                self.assertTrue(said.startswith(f"{IMAGES[name]} 0.1.0"), said)
                if name == "muster-worker":
                    self.check_archive(root)

    def check_archive(self, root):
        """`muster fetch` reads files through the worker's own archive; there is no tar in the image."""
        archived = run_inside(root, "/usr/bin/muster-worker", "--archive", "/" + DATA)
        with tarfile.open(fileobj=io.BytesIO(archived)) as archive:
            self.assertEqual(archive.getnames(), sorted(os.listdir(os.path.join(ROOT, "examples/data"))))
            for name in archive.getnames():
                with open(os.path.join(ROOT, "examples/data", name), "rb") as original:
                    self.assertEqual(archive.extractfile(name).read(), original.read())


class FromSourceTest(Contents, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        needs_root_and_buildah()
        print(build(FROM_SOURCE, "--from-source", timeout=FROM_SOURCE_SECONDS), end="")
        cls.images = images_of(FROM_SOURCE, ["muster-operator", "muster-worker"])

    def test_nothing_is_left_of_the_building_but_the_image_with_the_compilers(self):
        self.assertEqual(sorted(os.listdir(FROM_SOURCE)), ["debian-12-build.tar", "muster-operator.tar", "muster-worker.tar"])


class ImageTest(Contents, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        needs_root_and_buildah()
        cls.directory = tempfile.mkdtemp(prefix="muster-images-")
        cls.addClassCleanup(shutil.rmtree, cls.directory, ignore_errors=True)
        cls.images = build_all(cls.directory)

    def test_nothing_is_left_of_the_building(self):
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(f"{name}.tar" for name in IMAGES))

    def test_building_again_gives_the_same_digests(self):
        with tempfile.TemporaryDirectory() as again:
            for name, image in build_all(again).items():
                self.assertEqual(image.digest, self.images[name].digest)

    def test_the_worker_for_gpus_can_load_a_driver_wherever_nodes_mount_it(self):
        """CUDA's runtime, which is within the worker, opens it when the worker runs; nothing else of the node is mounted."""
        image = self.images["muster-worker-cuda"]
        (libc,) = [path for path in image.members() if path.endswith("/libc.so.6")]
        (loader,) = [path for path in image.members() if "/ld-linux" in path]
        env = dict(setting.split("=", 1) for setting in image.config["config"]["Env"])
        for place in (os.path.dirname(libc), "usr/lib64", "usr/local/nvidia/lib64"):
            with self.subTest(place), tempfile.TemporaryDirectory() as root:
                image.unpack(root)
                make_driver(os.path.join(root, place))
                # Before all else the loader says what it could not load.
                said = run_inside(root, "/" + loader, "--preload", DRIVER, "/usr/bin/muster-worker", "--version", env=env).decode()
                self.assertTrue(said.startswith("muster-worker 0.1.0"), said)

    def test_a_missing_program_makes_no_image(self):
        with tempfile.TemporaryDirectory() as directory:
            done = subprocess.run([os.path.join(ROOT, "docker/rootfs"), "/nowhere/muster-worker", directory + "/root"],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 1)
            self.assertIn("/nowhere/muster-worker: no such program", done.stdout)


if __name__ == "__main__":
    if "--binaries" in sys.argv:
        at = sys.argv.index("--binaries")
        BINARIES = os.path.abspath(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    if "--from-source" in sys.argv:
        sys.argv[sys.argv.index("--from-source")] = "FromSourceTest"
        unittest.main()
    del FromSourceTest
    unittest.main()
