#!/usr/bin/env python3
"""Writes the small inputs of the checkpoint fuzz targets.

Usage: make_checkpoint_corpus.py CORPUS_FOLDER [CARAVAN]

Standard library only. The HDF5 input is a tiny model that the program CARAVAN converts; without it the input stays.
"""
import base64
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import zipfile


def text(value):
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def call(module, name):
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def number(n):
    return b"K" + bytes([n]) if n < 256 else b"J" + struct.pack("<i", n)


def tensor(key, kind, elements, offset, shape, strides):
    tuple_of = lambda numbers: b"(" + b"".join(number(n) for n in numbers) + b"t"
    storage = b"(" + text("storage") + call("torch", kind) + text(key) + text("cpu") + number(elements) + b"tQ"
    return (call("torch._utils", "_rebuild_tensor_v2") + b"(" + storage + number(offset) + tuple_of(shape) +
            tuple_of(strides) + b"\x89" + call("collections", "OrderedDict") + b")RtR")


def state_dict(entries, ordered=False):
    begin = call("collections", "OrderedDict") + b")R" if ordered else b"}"
    return begin + b"(" + b"".join(text(name) + value for name, value in entries) + b"u"


def pickles():
    plain = tensor("0", "FloatStorage", 6, 0, (2, 3), (3, 1))
    shared = tensor("0", "FloatStorage", 6, 1, (2, 2), (1, 2))
    yield "plain", b"\x80\x02" + state_dict([("w", plain), ("v", shared)], True) + b"."
    nested = state_dict([("model", state_dict([("w", plain)])), ("epoch", b"K\x03"), ("rate", b"G" + struct.pack(">d", 1))])
    yield "nested", b"\x80\x02" + nested + b"."
    short = lambda s: b"\x8c" + bytes([len(s)]) + s + b"\x94"
    yield "protocol4", (b"\x80\x04\x95" + struct.pack("<Q", 60) + b"}\x94(" + short(b"w") + short(b"torch._utils") +
                        short(b"_rebuild_tensor_v2") + b"\x93((" + short(b"storage") + short(b"torch") +
                        short(b"HalfStorage") + b"\x93" + short(b"0") + short(b"cpu") + b"K\x04tQK\x00K\x04\x85K\x01\x85" +
                        b"\x89}tRu.")
    yield "forbidden", b"\x80\x02" + state_dict([("w", call("os", "system") + b"(" + text("true") + b"tR")]) + b"."
    memo = b"q\x01" + b"h\x01"
    yield "memo", b"\x80\x02}q\x00(" + text("a") + memo + b"0" + plain + text("list") + b"](K\x01K\x02e" + b"u" + \
        b"}(" + text("_metadata") + b"}ub."


def archives():
    pickle = dict(pickles())["plain"]
    for name, entries in (("torch", [("m/data.pkl", pickle), ("m/byteorder", b"little"), ("m/data/0", bytes(24))]),
                          ("empty", []), ("other", [("a.txt", b"text")])):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for entry, data in entries:
                archive.writestr(zipfile.ZipInfo(entry), data)
        yield name, out.getvalue()
        if name == "torch":  # damage is found by the readers behind the checksums, too
            content = bytearray(out.getvalue())
            at = content.find(b"PK\1\2")
            while at >= 0:
                content[at + 16:at + 20] = bytes(4)
                at = content.find(b"PK\1\2", at + 1)
            yield "no_checksums", bytes(content)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        with archive.open(zipfile.ZipInfo("m/data.pkl"), "w", force_zip64=True) as entry:
            entry.write(pickle)
    yield "zip64", out.getvalue()


def safetensors():
    def of(header, data):
        blob = json.dumps(header).encode()
        return struct.pack("<Q", len(blob)) + blob + data
    yield "two", of({"__metadata__": {"format": "pt"}, "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
                     "b": {"dtype": "BF16", "shape": [3], "data_offsets": [16, 22]}}, bytes(22))
    yield "types", of({name: {"dtype": name, "shape": [1, 2], "data_offsets": [16 * i, 16 * i + 2 * size]} for i, (name, size) in
                       enumerate((("F64", 8), ("F16", 2), ("U8", 1), ("I32", 4), ("F8_E4M3", 1), ("BOOL", 1)))}, bytes(96))
    yield "empty", of({}, b"")
    yield "many", of({f"t{i}": {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i in range(60)}, bytes(240))
    yield "ints", of({"i": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}, bytes(8))
    yield "overlap", of({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
                         "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12))


def weight_indexes():
    shards = {"model.norm.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}
    of = lambda weight_map: json.dumps({"metadata": {"total_size": 8}, "weight_map": weight_map}).encode()
    yield "right", of(shards)
    yield "elsewhere", of({**shards, "lm_head.weight": "a.safetensors"})
    yield "missing", of({**shards, "model.embed_tokens.weight": "c.safetensors"})
    yield "outside", of({**shards, "lm_head.weight": "../b.safetensors"})
    yield "number", of({**shards, "lm_head.weight": 1})
    yield "empty", of({})
    yield "list", b"[]"


def gguf(version, keys, tensors):
    """Keys are (name, type, bytes), tensors (name, dims, type, bytes)."""
    string = lambda s: struct.pack("<Q", len(s)) + s.encode()
    head, info, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)), b"", b""
    for key, kind, value in keys:
        head += string(key) + struct.pack("<I", kind) + value
    for name, dims, kind, content in tensors:
        data += bytes(-len(data) % 32)
        info += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += content
    whole = head + info
    return whole + bytes(-len(whole) % 32) + data


def gguf_text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def ggufs():
    keys = [("general.architecture", 8, gguf_text("llama")), ("general.alignment", 4, struct.pack("<I", 32)),
            ("f", 6, struct.pack("<f", 1.5)), ("flag", 7, b"\x01"), ("big", 11, struct.pack("<q", -1)),
            ("tokens", 9, struct.pack("<IQ", 8, 2) + gguf_text("a") + gguf_text("bc")),
            ("scores", 9, struct.pack("<IQ", 6, 2) + struct.pack("<ff", 1, 2))]
    tensors = [("f32", (4, 2), 0, bytes(32)), ("q4_0", (32,), 2, bytes(18)), ("q6_k", (256, 1), 14, bytes(210)),
               ("iq4_xs", (256,), 23, bytes(136))]
    for version in (2, 3):
        yield f"version{version}", gguf(version, keys, tensors)
    blocks = {"f16": (1, 1, 2), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22), "q5_1": (7, 32, 24), "q8_0": (8, 32, 34),
              "q2_k": (10, 256, 84), "q3_k": (11, 256, 110), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176),
              "iq4_nl": (20, 32, 18), "f64": (28, 1, 8), "bf16": (30, 1, 2)}
    yield "types", gguf(3, keys[:1], [(name, (elements, 2), kind, bytes(2 * size)) for name, (kind, elements, size) in blocks.items()])
    arrays = [("general.architecture", 8, gguf_text("llama")), ("split.no", 2, struct.pack("<H", 0)),
              ("split.count", 2, struct.pack("<H", 2)), ("split.tensors.count", 5, struct.pack("<i", 1))]
    for kind, form in ((0, "B"), (1, "b"), (2, "H"), (3, "h"), (4, "I"), (5, "i"), (6, "f"), (7, "B"), (10, "Q"), (11, "q"), (12, "d")):
        arrays.append((f"a{kind}", 9, struct.pack(f"<IQ{3}{form}", kind, 3, 1, 0, 1)))
    arrays.append(("texts", 9, struct.pack("<IQ", 8, 50) + b"".join(gguf_text("t" * i) for i in range(50))))
    yield "arrays", gguf(3, arrays, [])


def tiny_model():
    """One layer of width 4 with a byte-level tokenizer of single bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    tokens = [chr(b) if b in printable else chr(256 + others.index(b)) for b in range(256)]
    array = lambda kind, values: struct.pack("<IQ", kind, len(values)) + b"".join(values)
    number = lambda n: struct.pack("<I", n)
    keys = [("general.architecture", 8, gguf_text("llama")), ("tokenizer.ggml.model", 8, gguf_text("gpt2")),
            ("tokenizer.ggml.pre", 8, gguf_text("smollm")),
            ("tokenizer.ggml.tokens", 9, array(8, [gguf_text(t) for t in tokens])),
            ("tokenizer.ggml.merges", 9, array(8, [])), ("tokenizer.ggml.eos_token_id", 4, number(0)),
            ("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5))]
    for name, value in (("context_length", 16), ("embedding_length", 4), ("block_count", 1), ("feed_forward_length", 4),
                        ("attention.head_count", 2), ("attention.head_count_kv", 1)):
        keys.append((f"llama.{name}", 4, number(value)))
    shapes = {"token_embd": (4, 256), "output_norm": (4,), "blk.0.attn_norm": (4,), "blk.0.attn_q": (4, 4),
              "blk.0.attn_k": (4, 2), "blk.0.attn_v": (4, 2), "blk.0.attn_output": (4, 4), "blk.0.ffn_norm": (4,),
              "blk.0.ffn_gate": (4, 4), "blk.0.ffn_up": (4, 4), "blk.0.ffn_down": (4, 4)}
    size = lambda dims: 4 * dims[0] * (dims[1] if len(dims) > 1 else 1)
    return gguf(3, keys, [(f"{n}.weight", dims, 0, bytes(size(dims))) for n, dims in shapes.items()])


def hf_names(layers):
    yield "model.embed_tokens.weight", (VOCABULARY, 4)
    for i in range(layers):
        for name, shape in (("input_layernorm", (4,)), ("self_attn.q_proj", (4, 4)), ("self_attn.k_proj", (2, 4)),
                            ("self_attn.v_proj", (2, 4)), ("self_attn.o_proj", (4, 4)), ("post_attention_layernorm", (4,)),
                            ("mlp.gate_proj", (8, 4)), ("mlp.up_proj", (8, 4)), ("mlp.down_proj", (4, 8))):
            yield f"model.layers.{i}.{name}.weight", shape
    yield "model.norm.weight", (4,)
    yield "lm_head.weight", (VOCABULARY, 4)


def product(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def safetensors_of(shapes):
    header, end = {}, 0
    for name, shape in shapes:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + 2 * product(shape)]}
        end += 2 * product(shape)
    blob = json.dumps(header).encode()
    return struct.pack("<Q", len(blob)) + blob + bytes(end)


def torch_archive(shapes):
    out, entries = io.BytesIO(), []
    with zipfile.ZipFile(out, "w") as archive:
        for i, (name, shape) in enumerate(shapes):
            strides = (shape[1], 1) if len(shape) > 1 else (1,)
            entries.append((name, tensor(str(i), "FloatStorage", product(shape), 0, shape, strides)))
            archive.writestr(zipfile.ZipInfo(f"m/data/{i}"), bytes(4 * product(shape)))
        archive.writestr(zipfile.ZipInfo("m/data.pkl"), b"\x80\x02" + state_dict(entries) + b".")
    content = bytearray(out.getvalue())
    for mark, place in ((b"PK\1\2", 16), (b"PK\3\4", 14)):  # damage is found behind the checksums, too
        at = content.find(mark)
        while at >= 0:
            content[at + place:at + place + 4] = bytes(4)
            at = content.find(mark, at + 1)
    return bytes(content)


VOCABULARY = 24
LETTERS = "abcdefghijklmnopqrst"


def small_tokenizer():
    names = [*LETTERS, "ab"]
    return {"added_tokens": [{"id": 21, "content": "<|im_start|>", "special": True},
                             {"id": 22, "content": "<|im_end|>", "special": True},
                             {"id": 23, "content": "<s>", "special": True}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {n: i for i, n in enumerate(names)}, "merges": ["a b"]}}


def sources():
    """Folders of the kinds that convert reads: each file behind a line with its name."""
    folder = lambda files: b"\n".join(b"%%% " + name.encode() + b"\n" + content for name, content in files.items())
    text_of = lambda value: json.dumps(value).encode()
    config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCABULARY, "hidden_size": 4,
              "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
              "rms_norm_eps": 1e-5, "rope_theta": 1e4, "eos_token_id": [22], "max_position_embeddings": 64}
    template = "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% endfor %}" \
               "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    tokenizer = {"tokenizer.json": text_of(small_tokenizer()),
                 "tokenizer_config.json": text_of({"bos_token": "<s>", "eos_token": "<|im_end|>", "chat_template": template})}
    generation = {"generation_config.json": text_of({"temperature": 0.5, "top_p": 0.9, "eos_token_id": 22})}
    shapes = list(hf_names(2))
    yield "safetensors", folder({"config.json": text_of(config), **generation, **tokenizer, "model.safetensors": safetensors_of(shapes)})
    split = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, (name, _) in enumerate(shapes)}
    yield "sharded", folder({"config.json": text_of({**config, "rope_scaling": {
        "rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 32}}),
        **tokenizer, "special_tokens_map.json": text_of({"eos_token": {"content": "<|im_end|>"}}),
        "model.safetensors.index.json": text_of({"weight_map": split}),
        **{file: safetensors_of([s for s in shapes if split[s[0]] == file]) for file in sorted(set(split.values()))}})
    yield "pickled", folder({"config.json": text_of(config), **tokenizer, "pytorch_model.bin": torch_archive(shapes)})
    words = [base64.b64encode(bytes([i])) + b" %d\n" % i for i in range(256)]
    meta_shapes = [("tok_embeddings.weight", (512, 4)), ("norm.weight", (4,)), ("output.weight", (512, 4))]
    for name, shape in (("attention_norm", (4,)), ("attention.wq", (4, 4)), ("attention.wk", (2, 4)), ("attention.wv", (2, 4)),
                        ("attention.wo", (4, 4)), ("ffn_norm", (4,)), ("feed_forward.w1", (8, 4)), ("feed_forward.w3", (8, 4)),
                        ("feed_forward.w2", (4, 8))):
        meta_shapes.append((f"layers.0.{name}.weight", shape))
    params = {"dim": 4, "n_layers": 1, "n_heads": 2, "n_kv_heads": 1, "multiple_of": 8, "ffn_dim_multiplier": 0.5, "norm_eps": 1e-5,
              "vocab_size": 512, "rope_theta": 500000.0}
    yield "meta", folder({"params.json": text_of(params), "tokenizer.model": b"".join(words),
                          "consolidated.00.pth": torch_archive(meta_shapes)})
    yield "gguf", folder({"tiny.gguf": tiny_model()})


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    root = pathlib.Path(sys.argv[1])
    for target, inputs in (("pickle", pickles()), ("zip", archives()), ("safetensors", safetensors()), ("gguf", ggufs()),
                           ("weight_index", weight_indexes()), ("source", sources())):
        (root / target).mkdir(parents=True, exist_ok=True)
        for name, content in inputs:
            (root / target / name).write_bytes(content)
    if len(sys.argv) == 3:
        (root / "hdf5_metadata").mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "tiny.gguf"
            source.write_bytes(tiny_model())
            target = root / "hdf5_metadata" / "tiny"
            subprocess.run([sys.argv[2], "convert", source, target, "--overwrite"], check=True)


if __name__ == "__main__":
    main()
