#!/usr/bin/env python3
"""Hashes of the tensors that `caravan convert` must write for the small checkpoints, computed without it.

Usage: make_expected_weights.py CHECKPOINT_FOLDER OUTPUT.json

Reads each checkpoint with numpy and the gguf package (whose dequantization is the reference), applies the canonical
names and layouts (q and k interleaved, wo and w2 transposed), and writes the SHA-256 of every tensor's bytes. Vision
models have a maker of their own.
"""
import collections
import hashlib
import json
import pathlib
import pickle
import struct
import sys
import zipfile

import gguf
import numpy as np

# Names in Hugging Face, GGUF, Meta and torchtune form.
LAYER = {"attn_norm": ("input_layernorm", "attn_norm", "attention_norm", "sa_norm"),
         "wq": ("self_attn.q_proj", "attn_q", "attention.wq", "attn.q_proj"),
         "wk": ("self_attn.k_proj", "attn_k", "attention.wk", "attn.k_proj"),
         "wv": ("self_attn.v_proj", "attn_v", "attention.wv", "attn.v_proj"),
         "wo": ("self_attn.o_proj", "attn_output", "attention.wo", "attn.output_proj"),
         "ffn_norm": ("post_attention_layernorm", "ffn_norm", "ffn_norm", "mlp_norm"),
         "w1": ("mlp.gate_proj", "ffn_gate", "feed_forward.w1", "mlp.w1"),
         "w3": ("mlp.up_proj", "ffn_up", "feed_forward.w3", "mlp.w3"),
         "w2": ("mlp.down_proj", "ffn_down", "feed_forward.w2", "mlp.w2")}
TOP = {"text.embed": ("model.embed_tokens.weight", "token_embd.weight", "tok_embeddings.weight", "tok_embeddings.weight"),
       "text.final_norm": ("model.norm.weight", "output_norm.weight", "norm.weight", "norm.scale"),
       "text.head": ("lm_head.weight", "output.weight", "output.weight", "output.weight")}
PREFIX = ("model.layers.", "blk.", "layers.", "layers.")
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


class TensorUnpickler(pickle.Unpickler):
    """torch.save's pickles without torch: a tensor becomes (storage key, type, shape), all of them being dense."""

    def find_class(self, module, name):
        if name == "_rebuild_tensor_v2":
            return lambda storage, offset, shape, *_: (storage[2], storage[1], shape)
        return collections.OrderedDict if name == "OrderedDict" else name

    def persistent_load(self, pid):
        return pid


def torch_archive(path):
    types = {"FloatStorage": "F32", "BFloat16Storage": "BF16"}
    archive = zipfile.ZipFile(path)
    root = next(n for n in archive.namelist() if n.endswith("/data.pkl"))[:-len("data.pkl")]
    for name, (key, storage, shape) in TensorUnpickler(archive.open(root + "data.pkl")).load().items():
        kind = types[storage]
        yield name, (np.frombuffer(archive.read(root + "data/" + key), STYPES[kind]).reshape(shape), kind)


def meta_folder(paths, dim):
    """Model-parallel files joined; the embedding lies along the width where its rows are shorter than `dim`."""
    shares = [dict(torch_archive(path)) for path in paths]
    for name, (first, kind) in shares[0].items():
        by_columns = name.endswith(("attention.wo.weight", "feed_forward.w2.weight")) or (
            name == "tok_embeddings.weight" and first.shape[1] != dim)
        arrays = [share[name][0] for share in shares]
        yield name, (np.concatenate(arrays, int(by_columns)) if first.ndim == 2 else first, kind)


def interleaved(array, head_dim):
    return array.reshape(-1, 2, head_dim // 2, array.shape[-1]).swapaxes(1, 2).reshape(array.shape)


def canonical(found, style, head_dim):
    layers = 1 + max(int(n[len(PREFIX[style]):].split(".")[0]) for n in found if n.startswith(PREFIX[style]))
    names = {k: v[style] for k, v in TOP.items()}
    for i in range(layers):
        names.update({f"text.layer.{i}.{k}": f"{PREFIX[style]}{i}.{v[style]}" +
                      (".scale" if style == 3 and k.endswith("norm") else ".weight") for k, v in LAYER.items()})
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
    for folder in sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("tiny-vision")):
        for path in sorted(folder.glob("*.gguf")):
            out[path.relative_to(root).as_posix()] = dict(canonical(dict(gguf_tensors(path)), 1, 0))
        meta = sorted(folder.glob("consolidated.*.pth"))
        if meta:
            dim = json.loads((folder / "params.json").read_text())["dim"]
            out[folder.name] = dict(canonical(dict(meta_folder(meta, dim)), 2, 0))
        for path in sorted(folder.glob("epoch_*/*.bin")):
            out[path.parent.relative_to(root).as_posix()] = dict(canonical(dict(torch_archive(path)), 3, 0))
        files = sorted(folder.glob("*.safetensors"))
        if files:
            config = json.loads((folder / "config.json").read_text())
            head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
            found = dict(item for path in files for item in safetensors(path))
            style = 3 if "norm.scale" in found else 0
            out[folder.name] = dict(canonical(found, style, head_dim))
    lines = ",\n".join(f" {json.dumps(k)}: {{\n" + ",\n".join(
        f"  {json.dumps(n)}: {json.dumps(t)}" for n, t in v.items()) + "\n }" for k, v in out.items())
    pathlib.Path(sys.argv[2]).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
