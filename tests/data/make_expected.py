#!/usr/bin/env python3
"""Turns reference outputs (NAME.npz with NAME.json) into one JSON file per checkpoint that the C++ tests read.

Usage: make_expected.py ORACLE_FOLDER OUTPUT_FOLDER [NAME ...]

ORACLE_FOLDER holds expected/NAME.npz and expected/NAME.json; without names every text checkpoint that the tests
have is converted. Needs numpy. The form of the output is described in expected/README.md.
"""
import base64
import json
import math
import pathlib
import sys

import numpy as np

NAMES = ["tiny-llama3", "tiny-llama31", "tiny-llama31-bf16", "tiny-llama32", "tiny-uneven",
         "tiny-llama31-gguf-F32", "tiny-llama31-gguf-F16", "tiny-llama31-gguf-Q8_0", "tiny-llama31-gguf-Q4_0",
         "tiny-llama31-gguf-Q4_1", "tiny-llama31-gguf-Q5_1", "tiny-llama32-gguf-F16", "tiny-llama2-meta",
         "tiny-llama31-meta", "tiny-llama31-meta-bf16", "tiny-llama31-tune", "tiny-llama31-tune-bf16",
         "tiny-k256-gguf-Q4_K", "tiny-k256-gguf-Q4_K_M", "tiny-k256-gguf-Q5_K", "tiny-k256-gguf-Q6_K", "tiny-llama2",
         "tiny-llama2-gguf-F16", "tiny-fullvocab"]


def packed(array):
    """Little-endian float32 values, row-major, as base64."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f4").tobytes()).decode("ascii")


def numbers(array):
    """Shortest decimal forms that give the same float32 again; NaN becomes null."""
    return [None if math.isnan(v) else float(str(np.float32(v))) for v in array]


def convert(oracle, name):
    about = json.loads((oracle / "expected" / f"{name}.json").read_text(encoding="utf-8"))
    data = np.load(oracle / "expected" / f"{name}.npz")
    offsets = data["prompt_offsets"]
    prompts = []
    for index, source in enumerate(about["prompts"]):
        span = slice(int(offsets[index]), int(offsets[index + 1]))
        prompt = {"name": source["name"], "bos": source["bos"]}
        if source["ntok"] is None:
            prompt["text"] = source["text"]  # the ids are those of the whole text
        prompt["ids"] = data["prompt_ids"][span].tolist()
        prompt["prompt_logprobs"] = numbers(data["prompt_logprobs"][span])
        prompt["prompt_argmax"] = data["prompt_argmax"][span].tolist()
        prompt["last_logsumexp"] = numbers(data["last_logsumexp"][index:index + 1])[0]
        prompt["greedy_ids"] = data["greedy_ids"][index].tolist()
        prompt["greedy_gaps"] = numbers(data["greedy_gaps"][index])
        prompt["greedy_logprobs"] = numbers(data["greedy_logprobs"][index])
        prompt["stop_step"] = int(data["stop_step"][index])
        if "last_top100_ids" in data:  # a full vocabulary: the best only
            prompt["last_top_ids"] = data["last_top100_ids"][index].tolist()
            prompt["last_top_logits"] = numbers(data["last_top100_logits"][index])
        else:
            prompt["last_logits"] = packed(data["last_logits"][index])
        prompts.append(prompt)
    out = {"checkpoint": about["checkpoint"], "variant": about["variant"], "architecture": about["arch"],
           "stop_ids": about["stop_ids"], "batches": about["batches"], "prompts": prompts}
    if "trace_hidden" in data:
        hidden = data["trace_hidden"]
        out["trace"] = {"prompt": int(data["trace_prompt"][0]), "shape": list(hidden.shape), "hidden": packed(hidden)}
    return out


def write(path, value):
    """JSON with one line per prompt and per top-level field, so that a change shows as a small difference."""
    fields = []
    for key, field in value.items():
        if key == "prompts":
            lines = ",\n".join("  " + json.dumps(prompt, separators=(",", ":")) for prompt in field)
            fields.append(f' "prompts": [\n{lines}\n ]')
        else:
            fields.append(f" {json.dumps(key)}: {json.dumps(field, separators=(',', ':'))}")
    path.write_text("{\n" + ",\n".join(fields) + "\n}\n", encoding="utf-8")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    oracle, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    out.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[3:] or NAMES:
        write(out / f"{name}.json", convert(oracle, name))


if __name__ == "__main__":
    main()
