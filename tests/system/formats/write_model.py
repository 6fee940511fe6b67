#!/usr/bin/env python3
"""Writes a Caravan checkpoint from a small Hugging Face folder with nothing but h5py and the README's description.

Usage: write_model.py FOLDER MODEL.h5 CHAT_FORMAT
"""
import json
import pathlib
import struct
import sys

import h5py
import numpy as np

BYTES = {"F32": "<f4", "BF16": "<u2"}
LAYER = {"attn_norm": "input_layernorm", "wq": "self_attn.q_proj", "wk": "self_attn.k_proj", "wv": "self_attn.v_proj",
         "wo": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "w1": "mlp.gate_proj", "w3": "mlp.up_proj",
         "w2": "mlp.down_proj"}


def crc32c_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def bf16_type():
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def fixed_text(text):
    data = text.encode()
    return np.array(data, h5py.string_dtype("utf-8", len(data)))


def text_attribute(target, name, text):
    target.attrs[name] = fixed_text(text)


def text_dataset(group, name, text):
    if text:
        group.create_dataset(name, data=fixed_text(text).reshape(1))


def texts(group, name, items):
    blob = b"".join(items)
    if blob:
        group.create_dataset(name, data=np.frombuffer(blob, "u1"))
    group.create_dataset(name + "_offsets", data=np.cumsum([0] + [len(i) for i in items]).astype("<i8"))


def int_attribute(target, name, value):
    target.attrs.create(name, int(value), dtype="<i8")


def read_safetensors(path):
    blob = path.read_bytes()
    size = struct.unpack("<Q", blob[:8])[0]
    for name, entry in json.loads(blob[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + o for o in entry["data_offsets"])
            yield name, np.frombuffer(blob[begin:end], BYTES[entry["dtype"]]).reshape(entry["shape"])


def byte_alphabet():
    """The byte that each letter of a byte-level vocabulary stands for."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(b): b for b in shown}
    hidden = [b for b in range(256) if b not in shown]
    return letters | {chr(256 + i): b for i, b in enumerate(hidden)}


def model_json(config):
    scaling = config.get("rope_scaling") or config.get("rope_parameters") or {}
    llama3 = scaling.get("rope_type") == "llama3"
    heads = config["num_attention_heads"]
    return {"architecture": "llama", "vocab_size": config["vocab_size"], "hidden_size": config["hidden_size"],
            "ffn_size": config["intermediate_size"], "num_layers": config["num_hidden_layers"], "num_heads": heads,
            "num_kv_heads": config.get("num_key_value_heads", heads),
            "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
            "max_positions": config["max_position_embeddings"], "norm_epsilon": config["rms_norm_eps"],
            "rope_theta": config.get("rope_theta") or scaling.get("rope_theta") or 10000.0,
            "rope_scaling": {"kind": "llama3" if llama3 else "none", "factor": scaling.get("factor", 1.0),
                             "low_freq_factor": scaling.get("low_freq_factor", 1.0),
                             "high_freq_factor": scaling.get("high_freq_factor", 4.0),
                             "original_max_positions": scaling.get("original_max_position_embeddings", 8192)},
            "rope_divisors": [], "tied_embeddings": config.get("tie_word_embeddings", False), "attention_bias": False,
            "mlp_bias": False}


def tensors(model, found):
    """Name, values, split and rows of a band of each tensor."""
    head, width = model["head_dim"], model["hidden_size"]

    def side_by_side(rows):
        return rows.reshape(-1, 2, head // 2, width).swapaxes(1, 2).reshape(rows.shape)

    yield "text.embed", found["model.embed_tokens.weight"], "vocabulary", 64
    for n in range(model["num_layers"]):
        for part, source in LAYER.items():
            values = found[f"model.layers.{n}.{source}.weight"]
            split, band = {"q": ("query_heads", head), "k": ("kv_heads", head), "v": ("kv_heads", head),
                           "o": ("query_heads", head)}.get(part[1], ("ffn_columns", 64))
            if part.endswith("norm"):
                split, band = "replicated", width
            if part in ("wq", "wk"):
                values = side_by_side(values)
            yield f"text.layer.{n}.{part}", values.T if part in ("wo", "w2") else values, split, band
    yield "text.final_norm", found["model.norm.weight"], "replicated", width
    if not model["tied_embeddings"]:
        yield "text.head", found["lm_head.weight"], "vocabulary", 64


def write_weights(group, model, found):
    for name, values, split, band in tensors(model, found):
        values = np.ascontiguousarray(values)
        kind = bf16_type() if values.dtype == np.dtype("<u2") else h5py.h5t.IEEE_F32LE
        dataset = h5py.Dataset(h5py.h5d.create(group.id, name.encode(), kind, h5py.h5s.create_simple(values.shape)))
        dataset.id.write(h5py.h5s.ALL, h5py.h5s.ALL, values, mtype=kind)
        text_attribute(dataset, "split", split)
        int_attribute(dataset, "band_rows", band)
        checksums = [crc32c(values[r:r + band].tobytes()) for r in range(0, len(values), band)]
        dataset.attrs.create("crc32c", np.array(checksums, "<u4"))


def token_bytes(vocabulary, added, is_sentencepiece, alphabet):
    tokens = [b""] * (1 + max([*vocabulary.values(), *(t["id"] for t in added)]))
    byte_ids = [0] * 256
    for piece, token in vocabulary.items():
        if any(token == t["id"] for t in added):
            continue
        if not is_sentencepiece:
            tokens[token] = bytes(alphabet[letter] for letter in piece)
        elif len(piece) == 6 and piece.startswith("<0x"):
            byte_ids[int(piece[3:5], 16)] = token
            tokens[token] = bytes([int(piece[3:5], 16)])
        else:
            tokens[token] = piece.replace("\u2581", " ").encode()
    return tokens, byte_ids


def write_tokenizer(group, source, chat_format, template):
    """Of a byte-level BPE as in Llama 3, or of one of Llama 2's kind in the older form (Prepend, Replace)."""
    model, added = source["model"], source["added_tokens"]
    is_sentencepiece = bool(model.get("byte_fallback"))
    tokens, byte_ids = token_bytes(model["vocab"], added, is_sentencepiece, byte_alphabet())
    merges = [m.split(" ") if isinstance(m, str) else m for m in model["merges"]]
    text_attribute(group, "kind", "sentencepiece" if is_sentencepiece else "bpe")
    texts(group, "tokens", tokens)
    group.create_dataset("merges", data=np.array([[model["vocab"][p] for p in m] for m in merges], "<i4"))
    texts(group, "added_tokens", [t["content"].encode() for t in added])
    flags = [[t["id"], t["special"] + 2 * (is_sentencepiece and t["normalized"])] for t in added]
    group.create_dataset("added_token_ids", data=np.array(flags, "<i4"))
    patterns = [] if is_sentencepiece else [source["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"].encode()]
    texts(group, "split_patterns", patterns)
    ids = {t["content"]: t["id"] for t in added}
    int_attribute(group, "ignore_merges", model.get("ignore_merges") or False)
    int_attribute(group, "add_bos", True)
    int_attribute(group, "bos_id", ids.get("<s>", ids.get("<|begin_of_text|>")))
    int_attribute(group, "eos_id", ids.get("</s>", ids.get("<|eot_id|>")))
    if is_sentencepiece:
        int_attribute(group, "unknown_id", ids["<unk>"])
        group.create_dataset("byte_ids", data=np.array(byte_ids, "<i4"))
        text_attribute(group, "space_prefix", "every segment")
        int_attribute(group, "remove_extra_spaces", False)
    text_attribute(group, "chat_format", chat_format)
    text_dataset(group, "chat_template", template)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    read = lambda name: json.loads((folder / name).read_text(encoding="utf-8"))
    config, generation = read("config.json"), read("generation_config.json")
    model = model_json(config)
    found = dict(read_safetensors(folder / "model.safetensors"))
    with h5py.File(sys.argv[2], "w") as file:
        text_attribute(file, "format", "caravan")
        int_attribute(file, "version", 1)
        text_attribute(file, "model", json.dumps(model))
        text_attribute(file, "dtype", "bf16" if found["model.norm.weight"].dtype == np.dtype("<u2") else "fp32")
        for name in ("name", "source", "created_by"):
            text_attribute(file, name, "written with h5py")
        template = read("tokenizer_config.json").get("chat_template", "")
        write_tokenizer(file.create_group("tokenizer"), read("tokenizer.json"), sys.argv[3], template)
        defaults = file.create_group("generation")
        for name in ("temperature", "top_p"):
            if name in generation:
                defaults.attrs.create(name, generation[name], dtype="<f8")
        stops = generation["eos_token_id"]
        defaults.attrs.create("stop_ids", np.array(stops if isinstance(stops, list) else [stops], "<i4"))
        write_weights(file.create_group("weights"), model, found)


if __name__ == "__main__":
    main()
