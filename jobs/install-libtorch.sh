#!/usr/bin/env bash
# Puts LibTorch into .deps/site: the torch wheel, used as a C++ library, and the two CUDA run-time wheels that its
# CPU library is linked to. 0.6 GB to fetch, 1.2 GB on disk. Nothing outside .deps changes.
#
# A LibTorch of the site is taken instead where LibTorch_ROOT or CMAKE_PREFIX_PATH names one.
set -euo pipefail

wheels=(
  torch==2.11.0
  nvidia-cuda-runtime==13.0.96 # libcudart.so.13
  nvidia-cuda-cupti==13.0.85   # libcupti.so.13
)
needed_mib=3000 # wheels and unpacked files side by side

cd "$(dirname "${BASH_SOURCE[0]}")/.."
site=.deps/site
partial=.deps/partial

IFS=: read -r -a prefixes <<<"${LibTorch_ROOT-}:${CMAKE_PREFIX_PATH-}"
for prefix in "${prefixes[@]}"; do
  if [ -n "$prefix" ] && [ -e "$prefix/include/ATen/core/Tensor.h" ] && [ -e "$prefix/lib/libtorch_cpu.so" ]; then
    echo "LibTorch: the site's, in $prefix"
    exit 0
  fi
done

# The stamp is written last, into a folder that then gets its name by one rename: what has it is complete.
if [ "$(cat "$site/.caravan-wheels" 2>/dev/null)" = "${wheels[*]}" ]; then
  echo "LibTorch: ${wheels[0]#torch==} is in $site"
  exit 0
fi

if ! python3 -m pip --version >/dev/null 2>&1; then
  echo "install-libtorch.sh: needs python3 with pip (Debian: python3-pip), or a LibTorch named by LibTorch_ROOT" >&2
  exit 69
fi
rm -rf "$partial"
mkdir -p "$partial/tmp"
free_mib=$(($(df -Pk "$partial" | awk 'NR == 2 {print $4}') / 1024))
if [ "$free_mib" -lt "$needed_mib" ]; then
  echo "install-libtorch.sh: needs $needed_mib MiB free in $PWD/.deps, found $free_mib" >&2
  exit 73
fi

echo "LibTorch: installing ${wheels[*]} (0.6 GB to fetch)"
# --target leaves the system's Python alone; TMPDIR keeps the unpacked gigabyte out of /tmp and makes pip's last step
# a rename. --no-deps: the wheel's own list would bring 3 GB of CUDA libraries that a CPU build does not touch.
TMPDIR="$PWD/$partial/tmp" python3 -m pip install --quiet --no-input --disable-pip-version-check \
  --root-user-action=ignore --no-deps --no-compile --target "$partial/site" "${wheels[@]}"
echo "${wheels[*]}" >"$partial/site/.caravan-wheels"
rm -rf "$site"
mv "$partial/site" "$site"
rm -rf "$partial"
