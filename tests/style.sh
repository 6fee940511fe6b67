#!/usr/bin/env bash
# Style of all tracked files: C++ by clang-format, shell scripts by shellcheck. Changes nothing.
#
#   bash tests/style.sh               seconds
#   bash tests/style.sh --tidy BUILD  and clang-tidy over all sources, with BUILD/compile_commands.json: many minutes
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
version=$(clang-format --version | grep -o 'version [0-9]*')
if [ "$version" != "version 14" ]; then
  echo "style.sh: the code is formatted by clang-format 14, found $version" >&2
  exit 69
fi
git ls-files -z -- '*.h' '*.cpp' '*.inl' '*.cu' | xargs -0 -r clang-format --dry-run --Werror
git ls-files -z -- '*.sh' .ci/run | xargs -0 -r shellcheck
if [ "${1-}" = --tidy ]; then
  git ls-files -z -- 'src/*.cpp' | xargs -0 -r -n 1 -P "$(nproc)" clang-tidy --quiet -p "${2:?folder of the build}"
fi
