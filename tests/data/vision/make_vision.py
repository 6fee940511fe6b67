#!/usr/bin/env python3
"""Copies what the tests read of the reference outputs of models with vision.

Usage: make_vision.py ORACLE_FOLDER

Writes mask_cases.json, MODEL/ID.json and MODEL/ID.safetensors beside this script, without the tensors that no test
reads, and the checkpoints to ../checkpoints. The form of the files is described in README.md.
"""
import json
import pathlib
import shutil
import struct
import sys

CHECKPOINTS = {"tiny-a": "tiny-vision", "tiny-b": "tiny-vision-b", "tiny-m": "tiny-vision-m"}
UNREAD = ("cross_attention_mask", ".px8x8", "trace.vision.patch", "trace.vision.pre_tile", "trace.text.cross_k.",
          "trace.text.cross_v.")


def copy_tensors(source, target):
    raw = source.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    kept, body = {}, b""
    for name in sorted(header, key=lambda n: header[n]["data_offsets"]):
        if any(part in name for part in UNREAD):
            continue
        begin, end = header[name]["data_offsets"]
        kept[name] = dict(header[name], data_offsets=[len(body), len(body) + end - begin])
        body += raw[8 + length + begin:8 + length + end]
    text = json.dumps(kept, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + body)


def main():
    oracle = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).parent
    for model, folder in CHECKPOINTS.items():
        checkpoint = here.parent / "checkpoints" / folder
        checkpoint.mkdir(exist_ok=True)
        for path in sorted((oracle / "checkpoints" / model / "hf").iterdir()):
            shutil.copyfile(path, checkpoint / path.name)
    shutil.copyfile(oracle / "prep" / "mask_cases.json", here / "mask_cases.json")
    for model in CHECKPOINTS:
        target = here / model
        target.mkdir(exist_ok=True)
        for path in sorted((oracle / "requests" / model).glob("*.json")):
            request = json.loads(path.read_text(encoding="utf-8"))
            kept = {key: request[key] for key in ("id", "messages", "raw", "prompt_token_ids", "images",
                                                  "image_intervals", "greedy_token_ids", "top2") if key in request}
            (target / path.name).write_text(json.dumps(kept) + "\n", encoding="utf-8")
            copy_tensors(path.with_suffix(".safetensors"), target / path.with_suffix(".safetensors").name)


if __name__ == "__main__":
    main()
