#!/usr/bin/env python3
"""Perplexity of a text under checkpoints and options of `caravan run`: a table, one row each, against the first.

    python3 tests/bench/perplexity.py build/src/app/caravan TEXT MODEL.h5 "MODEL.h5 --kv-dtype bf16" int4.h5

The text is cut at ends of paragraphs into pieces of about 4,000 characters, and each is scored alone: a completion with
max_tokens 0, echo and logprobs. The first token of a piece has nothing before it and does not count.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

PIECE = 4000


def pieces(text):
    piece = ""
    for paragraph in text.split("\n\n"):
        if piece and len(piece) + len(paragraph) > PIECE:
            yield piece
            piece = ""
        piece += paragraph + "\n\n"
    yield piece


def log_probabilities(program, options, requests, scratch):
    output = scratch / "scores.jsonl"
    model, *rest = options.split()
    subprocess.run([program, "run", "--model", model, "--input", str(requests), "--output", str(output), "--overwrite",
                    "--log-level", "warning", *rest], check=True)
    values = []
    for line in output.read_text().splitlines():
        choice = json.loads(line)["response"]["body"]["choices"][0]
        values += choice["logprobs"]["token_logprobs"][1:]
    return values


def main():
    program, text, *rows = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        requests = scratch / "pieces.jsonl"
        with requests.open("w") as file:
            for number, piece in enumerate(pieces(pathlib.Path(text).read_text())):
                body = {"prompt": piece, "max_tokens": 0, "echo": True, "logprobs": 1}
                file.write(json.dumps({"custom_id": f"piece-{number}", "url": "/v1/completions", "body": body}) + "\n")
        print("| checkpoint and options | tokens | perplexity | against the first | mean difference of a log-probability |")
        print("|---|---|---|---|---|")
        first = None
        for options in rows:
            values = log_probabilities(program, options, requests, scratch)
            first = first or values
            perplexity, base = (math.exp(-sum(v) / len(v)) for v in (values, first))
            difference = sum(abs(a - b) for a, b in zip(values, first, strict=True)) / len(values)
            print(f"| {options} | {len(values)} | {perplexity:.4f} | {100 * (perplexity / base - 1):+.2f} % | {difference:.4f} |",
                  flush=True)


if __name__ == "__main__":
    main()
