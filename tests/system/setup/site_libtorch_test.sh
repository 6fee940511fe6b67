#!/usr/bin/env bash
# A LibTorch of the site, named by CMAKE_PREFIX_PATH or LibTorch_ROOT, is taken instead of the project's own copy, as a
# whole, and one that is too old is refused. Configures only: the stand-in has no code.
#
#   site_libtorch_test.sh CMAKE SOURCE_FOLDER [CMAKE_OPTION...]
set -euo pipefail

cmake=$1 source_folder=$2
shift 2
options=("$@")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
site=$work/site

fail() {
  echo "FAILED: $*" >&2
  cat "$work/output" >&2
  exit 1
}

# make_site MAJOR MINOR
make_site() {
  mkdir -p "$site/include/ATen/core" "$site/include/torch" "$site/lib"
  touch "$site/include/ATen/core/Tensor.h" "$site/lib/libc10.so" "$site/lib/libtorch_cpu.so"
  printf '#define TORCH_VERSION_MAJOR %s\n#define TORCH_VERSION_MINOR %s\n#define TORCH_VERSION_PATCH 0\n' "$1" "$2" \
    >"$site/include/torch/version.h"
}

# configure OPTION...
configure() {
  rm -rf "$work/build"
  "$cmake" -S "$source_folder" -B "$work/build" -G Ninja -DCARAVAN_BUILD_TESTS=OFF "${options[@]}" "$@" \
    >"$work/output" 2>&1
}

make_site 2 1
for named in "-DCMAKE_PREFIX_PATH=$site" "-DLibTorch_ROOT=$site"; do
  configure "$named" || fail "$named did not configure"
  for found in "LibTorch_INCLUDE_DIR:PATH=$site/include" "LibTorch_cpu:FILEPATH=$site/lib/libtorch_cpu.so" \
    "LibTorch_c10:FILEPATH=$site/lib/libc10.so"; do
    grep -Fxq "$found" "$work/build/CMakeCache.txt" || fail "$named: the cache lacks $found"
  done
  ! grep -q "$source_folder/.deps" "$work/build/build.ninja" || fail "$named: the build names the project's own copy"
done

make_site 1 13
if configure "-DCMAKE_PREFIX_PATH=$site"; then fail "version 1.13 was taken"; fi
grep -q '"1\.13\.0", but required is at least "2\.1"' <(tr -s ' \n' ' ' <"$work/output") || fail "the message names no versions"

# The script that fetches one leaves it alone.
mkdir "$work/tree"
cp -r "$source_folder/jobs" "$work/tree"
for variable in CMAKE_PREFIX_PATH LibTorch_ROOT; do
  env -u LibTorch_ROOT -u CMAKE_PREFIX_PATH "$variable=$site" bash "$work/tree/jobs/install-libtorch.sh" \
    >"$work/output" 2>&1 || fail "install-libtorch.sh failed"
  grep -Fq "the site's, in $site" "$work/output" || fail "install-libtorch.sh did not see $variable"
done
echo "the site's LibTorch is taken"
