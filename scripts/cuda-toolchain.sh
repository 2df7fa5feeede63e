#!/usr/bin/env bash
# Installs the CUDA compiler, runtime and NCCL as pinned wheels from PyPI (about 410 MB) into
# build/cuda-toolchain, so that the cuda preset compiles on a machine without a GPU or CUDA.
# Does nothing when they are there.
#   scripts/cuda-toolchain.sh [DIRECTORY]
set -euo pipefail
cd "$(dirname "$0")/.."
directory=${1:-build/cuda-toolchain}

# One release of CUDA 13.0, for drivers of 13.0 and later.
wheels=(
  nvidia-cuda-nvcc==13.0.88
  nvidia-cuda-crt==13.0.88
  nvidia-nvvm==13.0.88
  nvidia-cuda-cccl==13.0.85
  nvidia-cuda-runtime==13.0.96
  nvidia-nccl-cu13==2.32.3
)

stamp="$directory/installed"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "${wheels[*]}" ]; then
  echo "CUDA toolchain: $directory"
  exit 0
fi
if ! python3 -c 'import ensurepip' 2>/dev/null; then
  echo "scripts/cuda-toolchain.sh: needs python3-venv; run scripts/install-deps --tests" >&2
  exit 1
fi
rm -rf "$directory"
python3 -m venv "$directory"
"$directory/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --no-deps "${wheels[@]}"
printf '%s' "${wheels[*]}" >"$stamp"
echo "CUDA toolchain: $directory"
