#!/bin/bash
# Speed of `caravan convert` beside a plain copy of the same bytes, and its peak memory (where there is GNU time).
#
#   convert_speed.sh BUILD SCRATCH [LAYERS [SHARDS [ROUNDS]]]
#
# Makes a checkpoint of the shape of Llama 3.1 8B (bf16; 16 GB with its 32 layers) in SCRATCH, copies and
# converts it in turn, each from a cold page cache (as root; else the cache stays as it is) and up to the
# sync, and prints both rates and the ratio of their medians. The conversion also reads everything back and
# checks it. SCRATCH needs twice the size and is removed at the end.
set -euo pipefail
if [ $# -lt 2 ]; then
  sed -n '4,9s/^# \{0,1\}//p' "$0" >&2
  exit 64
fi
build=$1
scratch=$2
layers=${3:-32}
shards=${4:-4}
rounds=${5:-3}
data=$(cd "$(dirname "$0")/../data/checkpoints" && pwd)

mkdir "$scratch" # fails where it exists: it is removed below
trap 'rm -rf "$scratch"' EXIT
"$build/tests/bench/make_synthetic_checkpoint" "$scratch/source" "$data/tiny-llama31" "$shards" "$layers"
bytes=$(cat "$scratch"/source/*.safetensors | wc -c)
echo "$(awk "BEGIN { printf \"%.2f\", $bytes / 1e9 }") GB in $shards files, $(nproc) CPUs"

cool() {
  rm -rf "$scratch/copy" "$scratch/model.h5"
  sync
  { echo 3 > /proc/sys/vm/drop_caches; } 2> /dev/null || true
}

# measure NAME COMMAND...: prints MB/s, and adds it to the list NAME
measure() {
  local name=$1 begin end rate
  shift
  cool
  begin=$(date +%s%N)
  "$@"
  end=$(date +%s%N)
  rate=$(awk "BEGIN { printf \"%.0f\", $bytes * 1e3 / ($end - $begin) }")
  echo "$name $rate MB/s"
  echo "$rate" >> "$scratch/$name.rates"
}

plain_copy() { cp -r "$scratch/source" "$scratch/copy" && sync -f "$scratch/copy"; }
timer=()
if [ -x /usr/bin/time ]; then timer=(/usr/bin/time --append --format %M --output "$scratch/peaks"); fi
convert() { "${timer[@]}" "$build/src/app/caravan" convert "$scratch/source" "$scratch/model.h5" 2> "$scratch/log"; }
median() { sort -n "$scratch/$1.rates" | awk '{ rate[NR] = $1 } END { print rate[int((NR + 1) / 2)] }'; }

echo "cp -r SOURCE COPY && sync -f COPY; caravan convert SOURCE MODEL.h5"
for ((round = 0; round < rounds; ++round)); do
  measure copy plain_copy
  measure convert convert
done
if [ -f "$scratch/peaks" ]; then
  sort -n "$scratch/peaks" | awk 'END { printf "peak memory of convert: %.0f MiB (most of all rounds)\n", $1 / 1024 }'
fi
awk "BEGIN { printf \"convert / copy = %.2f (medians of $rounds)\n\", $(median convert) / $(median copy) }"
