#!/usr/bin/env python3
"""Hashes of the tensors that `caravan convert` must write for the small vision models, computed without it.

Usage: make_expected_vision_weights.py OUTPUT.json NAME=META_FOLDER ...

Reads the model-parallel files of Meta's form with numpy, joins their shares, applies the canonical names and layouts
(wo and w2 transposed, tile tables as the eight cells that some arrangement of tiles uses), and writes the SHA-256 of
every tensor's bytes. All forms of a model have the same values.
"""
import hashlib
import json
import pathlib
import sys

import numpy as np

from make_expected_weights import torch_archive

CELLS = [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1), (2, 0), (3, 0)]
TEXT = {"attn_norm": "attention_norm.weight", "wq": "attention.wq.weight", "wk": "attention.wk.weight",
        "wv": "attention.wv.weight", "wo": "attention.wo.weight", "ffn_norm": "ffn_norm.weight",
        "w1": "feed_forward.w1.weight", "w3": "feed_forward.w3.weight", "w2": "feed_forward.w2.weight"}
CROSS = TEXT | {"q_norm": "attention.q_norm.weight", "k_norm": "attention.k_norm.weight", "gate_attn": "gate_attn",
                "gate_ffn": "gate_ffwd"}
LOCAL = {"norm1": "ln_1.weight", "norm1.bias": "ln_1.bias", "wq": "attn.wq.weight", "wk": "attn.wk.weight",
         "wv": "attn.wv.weight", "wo": "attn.wo.weight", "norm2": "ln_2.weight", "norm2.bias": "ln_2.bias",
         "w1": "mlp.c_fc.weight", "w1.bias": "mlp.c_fc.bias", "w2": "mlp.c_proj.weight", "w2.bias": "mlp.c_proj.bias"}
GLOBAL = LOCAL | {"gate_attn": "gate_attn", "gate_ffn": "gate_ffn"}
ENCODER = "vision_model.vision_encoder."
SINGLE = {"text.embed": "text_model.tok_embeddings.weight", "text.embed_extra": "text_model.learnable_embedding.weight",
          "text.final_norm": "text_model.norm.weight", "text.head": "text_model.output.weight",
          "vision.patch": ENCODER + "conv1._linear.weight", "vision.class": ENCODER + "class_embedding",
          "vision.position": ENCODER + "positional_embedding",
          "vision.position_tile": ENCODER + "gated_positional_embedding",
          "vision.position_gate": ENCODER + "gated_positional_embedding_gate",
          "vision.pre_tile": ENCODER + "pre_tile_pos_embed.embedding",
          "vision.pre_tile_gate": ENCODER + "pre_tile_pos_embed.gate",
          "vision.post_tile": ENCODER + "post_tile_pos_embed.embedding",
          "vision.post_tile_gate": ENCODER + "post_tile_pos_embed.gate",
          "vision.norm_pre": ENCODER + "ln_pre.weight", "vision.norm_pre.bias": ENCODER + "ln_pre.bias",
          "vision.norm_post": ENCODER + "ln_post.weight", "vision.norm_post.bias": ENCODER + "ln_post.bias",
          "vision.projector": "vision_model.vision_projection.weight",
          "vision.projector.bias": "vision_model.vision_projection.bias"}
BY_COLUMNS = ("attention.wo.weight", "attn.wo.weight", "feed_forward.w2.weight", "mlp.c_proj.weight")
CUT_VECTORS = ("mlp.c_fc.bias", "vision_projection.bias")


def joined(name, arrays):
    if name.endswith(BY_COLUMNS):
        return np.concatenate(arrays, 1)
    whole = name.endswith("positional_embedding") or arrays[0].ndim > 2
    if not whole and (arrays[0].ndim == 2 or name.endswith(CUT_VECTORS)):
        return np.concatenate(arrays)
    assert all(np.array_equal(arrays[0], array) for array in arrays), name
    return arrays[0]


def names(found):
    yield from SINGLE.items()
    for ours, meta, parts in (("text.layer", "text_model.layers", TEXT),
                              ("text.cross", "text_model.cross_attention_layers", CROSS),
                              ("vision.local", ENCODER + "transformer.resblocks", LOCAL),
                              ("vision.global", ENCODER + "global_transformer.resblocks", GLOBAL)):
        layer = 0
        while any(name.startswith(f"{meta}.{layer}.") for name in found):
            yield from ((f"{ours}.{layer}.{part}", f"{meta}.{layer}.{name}") for part, name in parts.items())
            layer += 1


def expected(folder):
    shares = [dict(torch_archive(path)) for path in sorted(folder.glob("consolidated.*.pth"))]
    kinds = {kind for share in shares for _, kind in share.values()}
    assert len(kinds) == 1, kinds
    dtype = {"F32": "fp32", "BF16": "bf16"}[kinds.pop()]
    found = {name: joined(name, [share[name][0] for share in shares]) for name in shares[0]}
    for ours, name in names(found):
        array = found.pop(name)
        if ours in ("vision.position_tile", "vision.pre_tile", "vision.post_tile"):
            array = np.concatenate([array[cell] for cell in CELLS])
        if ours.endswith((".wo", ".w2")):
            array = array.T
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        yield ours, {"dtype": dtype, "shape": list(array.shape), "sha256": digest}
    assert not found, found.keys()


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    models = []
    for name, folder in (argument.split("=", 1) for argument in sys.argv[2:]):
        tensors = (f"  {json.dumps(ours)}: {json.dumps(entry)}" for ours, entry in expected(pathlib.Path(folder)))
        models.append(f" {json.dumps(name)}: {{\n" + ",\n".join(tensors) + "\n }")
    pathlib.Path(sys.argv[1]).write_text("{\n" + ",\n".join(models) + "\n}\n")


if __name__ == "__main__":
    main()
