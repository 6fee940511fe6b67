#!/usr/bin/env bash
# One batch with two sets of options of `caravan run`, in turn, several rounds: tokens/s of each, and whether the outputs
# are the same bytes.
#
#   bash tests/bench/compare_options.sh "build/src/app/caravan run --model MODEL.h5 --input PROMPTS.jsonl" \
#     "--prefix-sharing off" "--prefix-sharing on" 3
set -euo pipefail

read -r -a command <<<"${1:?command without --output}"
first=${2:?options}
second=${3:?other options}
rounds=${4:-3}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for ((round = 1; round <= rounds; ++round)); do
  for options in "$first" "$second"; do
    read -r -a words <<<"$options"
    rm -f "$scratch"/out.*
    if ! "${command[@]}" "${words[@]}" --output "$scratch/out.jsonl" 2>"$scratch/log"; then
      cat "$scratch/log" >&2
      exit 1
    fi
    rate=$(grep -o '[0-9]* new tokens/s over all' "$scratch/log")
    seconds=$(grep -o 'this run answered.*in [0-9.]* s' "$scratch/log" | grep -o '[0-9.]* s$')
    printf 'round %d, %s: %s, %s, output %s\n' "$round" "$options" "$seconds" "$rate" \
      "$(sha256sum <"$scratch/out.jsonl" | cut -c1-16)"
  done
done
