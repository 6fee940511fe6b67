#!/usr/bin/env bash
# The whole test suite, from a bare Debian 12: installs what is missing, builds, and runs every test; then unit and MPI
# tests once more under the address and undefined-behaviour sanitizers. Run it again at any time.
#
#   bash tests/run.sh
#   CARAVAN_SKIP_SANITIZERS=1 bash tests/run.sh     without the second build
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
cores=$(bash jobs/usable-cpus.sh)
# Checkouts in different folders share compiled files.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR=$PWD

step() { printf '\n== %s [%d s]\n' "$*" "$SECONDS"; }

step "install"
bash jobs/install-dependencies.sh --with-tests
bash jobs/get-models.sh smollm2 llama3-tokenizer

step "style"
bash tests/style.sh

step "build"
cmake --preset release -DCARAVAN_BUILD_TESTS=ON --log-level=WARNING >/dev/null
cmake --build --preset release --parallel "$cores"

if [ "${CARAVAN_SKIP_SANITIZERS-0}" != 1 ]; then
  step "build with sanitizers"
  cmake --preset asan --log-level=WARNING >/dev/null
  cmake --build --preset asan --parallel "$cores"
  step "unit and mpi tests with sanitizers"
  ctest --preset asan --parallel "$cores"
fi

step "all tests"
ctest --preset release --parallel "$cores"
