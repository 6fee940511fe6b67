#!/usr/bin/env bash
# Configures the tree with CARAVAN_WITH_CUDA=ON and builds and runs the module cuda with its tests.
#
#   build_cuda.sh CMAKE SOURCE BUILD [CMAKE_OPTION...]
# Ends with 77, "skipped", where there is no toolkit.
set -euo pipefail

cmake=$1 source=$2 build=$3
shift 3
toolkit=${CUDAToolkit_ROOT-${CUDA_HOME-/usr/local/cuda}}
if ! command -v nvcc >/dev/null && [ ! -x "$toolkit/bin/nvcc" ]; then
  echo "skipped: no CUDA toolkit here (no nvcc in PATH or in $toolkit/bin)"
  exit 77
fi
"$cmake" -S "$source" -B "$build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCARAVAN_WITH_CUDA=ON "$@"
"$cmake" --build "$build" --target cuda_device_test cuda_runtime_test
"$build/tests/unit/cuda/cuda_device_test"
"$build/tests/unit/cuda/cuda_runtime_test"
