#!/usr/bin/env python3
"""Hashes of the tensors that `caravan convert` must write for the small checkpoints, computed without it.

Usage: make_expected_weights.py CHECKPOINT_FOLDER OUTPUT.json

Reads each checkpoint with numpy and the gguf package (whose dequantization is the reference), applies the canonical
names and layouts (q and k interleaved, wo and w2 transposed), and writes the SHA-256 of every tensor's bytes.
"""
import hashlib
import json
import pathlib
import struct
import sys

import gguf
import numpy as np

LAYER = {"attn_norm": ("input_layernorm", "attn_norm"), "wq": ("self_attn.q_proj", "attn_q"),
         "wk": ("self_attn.k_proj", "attn_k"), "wv": ("self_attn.v_proj", "attn_v"),
         "wo": ("self_attn.o_proj", "attn_output"), "ffn_norm": ("post_attention_layernorm", "ffn_norm"),
         "w1": ("mlp.gate_proj", "ffn_gate"), "w3": ("mlp.up_proj", "ffn_up"), "w2": ("mlp.down_proj", "ffn_down")}
TOP = {"text.embed": ("model.embed_tokens.weight", "token_embd.weight"),
       "text.final_norm": ("model.norm.weight", "output_norm.weight"),
       "text.head": ("lm_head.weight", "output.weight")}
STYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def safetensors(path):
    """Raw arrays (bf16 as uint16) and their type names."""
    blob = path.read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    for name, entry in json.loads(blob[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + o for o in entry["data_offsets"])
        yield name, (np.frombuffer(blob[begin:end], STYPES[entry["dtype"]]).reshape(entry["shape"]), entry["dtype"])


def gguf_tensors(path):
    for tensor in gguf.GGUFReader(path).tensors:
        kind = tensor.tensor_type.name
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        shape = [int(n) for n in reversed(tensor.shape)]
        if kind == "F16":
            values = values.astype("<f2")
        yield tensor.name, (np.asarray(values).reshape(shape), kind if kind in STYPES else "F32")


def interleaved(array, head_dim):
    return array.reshape(-1, 2, head_dim // 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)


def canonical(found, style, head_dim):
    layers = 1 + max(int(n.split(".")[1 + (style == 0)]) for n in found if n.startswith(("blk.", "model.layers.")))
    names = {k: v[style] for k, v in TOP.items()}
    for i in range(layers):
        prefix = ("model.layers.%d.", "blk.%d.")[style] % i
        names.update({f"text.layer.{i}.{k}": prefix + v[style] + ".weight" for k, v in LAYER.items()})
    for name, source in names.items():
        if source not in found:
            assert name == "text.head", source
            continue
        array, kind = found[source]
        part = name.rsplit(".", 1)[1]
        if style == 0 and part in ("wq", "wk"):
            array = interleaved(array, head_dim)
        if part in ("wo", "w2"):
            array = array.T
        data = np.ascontiguousarray(array).tobytes()
        yield name, {"dtype": {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}[kind], "shape": list(array.shape),
                     "sha256": hashlib.sha256(data).hexdigest()}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    root, out = pathlib.Path(sys.argv[1]), {}
    for folder in sorted(p for p in root.iterdir() if p.is_dir()):
        for path in sorted(folder.glob("*.gguf")):
            out[path.relative_to(root).as_posix()] = dict(canonical(dict(gguf_tensors(path)), 1, 0))
        files = sorted(folder.glob("*.safetensors"))
        if files:
            config = json.loads((folder / "config.json").read_text())
            head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
            found = dict(item for path in files for item in safetensors(path))
            out[folder.name] = dict(canonical(found, 0, head_dim))
    lines = ",\n".join(f" {json.dumps(k)}: {{\n" + ",\n".join(
        f"  {json.dumps(n)}: {json.dumps(t)}" for n, t in v.items()) + "\n }" for k, v in out.items())
    pathlib.Path(sys.argv[2]).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
