#!/usr/bin/env bash
# Caravan's tokenizers beside the Python packages tokenizers, tiktoken and sentencepiece: the same text
# on one thread in the same run, and whether the ids are the same.
#
#   compare_tokenizers.sh BENCH_TOKENIZER [TEXT_FILE [TOKENIZER_FILE...]]
#
# BENCH_TOKENIZER is the program of that name in the build folder. Without TEXT_FILE the English licence
# texts of Debian are used; without tokenizers those of tests/data/text, and Llama 3's and Llama 2's
# where models/ has them. Needs Python 3 with venv, and the package index once: the packages go into
# ${CARAVAN_BENCH_VENV:-$TMPDIR/caravan-bench-venv}.
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
if (($# < 1)) || [[ ! -x $1 ]]; then
  echo "usage: $0 BENCH_TOKENIZER [TEXT_FILE [TOKENIZER_FILE...]]; BENCH_TOKENIZER must be a program" >&2
  exit 64
fi
bench=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
venv=${CARAVAN_BENCH_VENV:-${TMPDIR:-/tmp}/caravan-bench-venv}
seconds=${SECONDS_EACH:-3}

text=${2:-$work/english.txt}
if (($# < 2)); then
  cat /usr/share/common-licenses/{GPL-3,GPL-2,LGPL-2.1,GFDL-1.3,Apache-2.0,MPL-1.1,MPL-2.0,Artistic} >"$text"
fi
tokenizers=("${@:3}")
if ((${#tokenizers[@]} == 0)); then
  tokenizers=("$root"/tests/data/text/{bpe-small,spm-small}/tokenizer.{model,json}
    "$root"/tests/data/text/smollm-small/tokenizer.json)
  for model in "$root"/models/llama{3,2}/tokenizer.model; do
    if [[ -f $model ]]; then tokenizers+=("$model"); fi
  done
fi

if [[ ! -x $venv/bin/python ]]; then python3 -m venv "$venv"; fi
"$venv/bin/pip" --quiet --disable-pip-version-check install \
  tokenizers==0.23.3 tiktoken==0.14.0 sentencepiece==0.2.3

cat >"$work/others.py" <<'PYTHON'
"""Prints library, tokenizer file, million characters per second and a checksum of the ids."""
import base64
import sys
import time

import sentencepiece
import tiktoken
from tokenizers import Tokenizer

PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
           r"|\s*[\r\n]+|\s+(?!\S)|\s+")


def encoder(path):
    if path.endswith(".json"):
        tokenizer = Tokenizer.from_file(path)
        return "tokenizers", lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    content = open(path, "rb").read()
    if b"\0" in content:
        model = sentencepiece.SentencePieceProcessor(model_proto=content)
        return "sentencepiece", model.encode
    lines = [line.split() for line in content.splitlines() if line]
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    encoding = tiktoken.Encoding(path, pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})
    return "tiktoken", encoding.encode_ordinary


def checksum(ids):
    value = 0xCBF29CE484222325
    for i in ids:
        value = (value ^ i) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


text = open(sys.argv[1], encoding="utf-8", newline="").read()
for path in sys.argv[3:]:
    name, encode = encoder(path)
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < float(sys.argv[2]):
        begin = time.perf_counter()
        ids = encode(text)
        best = min(best, time.perf_counter() - begin)
    print(name, path, f"{len(text) / best / 1e6:.2f}", checksum(ids), sep="\t")
PYTHON

"$bench" "$text" "$seconds" "${tokenizers[@]}" >"$work/caravan.tsv"
TOKENIZERS_PARALLELISM=false RAYON_NUM_THREADS=1 \
  "$venv/bin/python" "$work/others.py" "$text" "$seconds" "${tokenizers[@]}" >"$work/others.tsv"

echo "Million characters per second on one thread, $(wc -m <"$text") characters of text:"
paste "$work/caravan.tsv" "$work/others.tsv" | awk -F'\t' '
  BEGIN { printf "%-28s %10s %10s %-14s %7s  %s\n", "tokenizer", "caravan", "other", "", "ratio", "ids" }
  {
    n = split($1, part, "/")
    printf "%-28s %10.2f %10.2f %-14s %6.1fx  %s\n", part[n - 1] "/" part[n], $4, $8, $6, $4 / $8,
      $5 == $9 ? "same" : "DIFFERENT"
  }'
