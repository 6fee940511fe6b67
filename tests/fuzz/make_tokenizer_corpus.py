#!/usr/bin/env python3
"""Writes corpus/tokenizer_import: small files that the importers accept (fuzz_tokenizer_import.cpp).

Usage: make_tokenizer_corpus.py     (standard library only)
"""
import base64
import json
import os
import struct

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "tokenizer_import")
SPACE = "\u2581"
PIECES = [SPACE, "a", "b", "ab", SPACE + "a", "l", "ll", "\u00e9"]


def byte_pieces():
    return [f"<0x{i:02X}>" for i in range(256)]


def write(name, kind, content):
    with open(os.path.join(HERE, name), "wb") as file:
        file.write(kind.encode() + content)


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def byte_level():
    return {"added_tokens": [{"id": 6, "content": "<s>", "special": True}, {"id": 7, "content": "it's"}],
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {}}]},
            "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "\u0120": 2, "ab": 3, "\u0120a": 4, "l": 5},
                      "merges": ["a b", ["\u0120", "a"]]}}


def space_kind(**parts):
    names = ["<unk>", "<s>", "</s>"] + byte_pieces() + PIECES
    file = {"added_tokens": [{"id": 1, "content": "<s>", "special": True}],
            "decoder": {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]},
            "model": {"type": "BPE", "byte_fallback": True, "unk_token": "<unk>",
                      "vocab": {name: i for i, name in enumerate(names)},
                      "merges": ["a b", SPACE + " a", "l l"]}}
    file.update(parts)
    return file


def field(number, content):
    size, length = len(content), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + content


def piece(name, score, kind):
    return field(1, field(1, name.encode()) + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind]))


def sentencepiece():
    model = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3)
    model += b"".join(piece(name, 0, 6) for name in byte_pieces())
    model += b"".join(piece(name, -i, 1) for i, name in enumerate(PIECES)) + piece("[INST]", 0, 4) + piece("~x", 0, 5)
    return model + field(2, b"\x18\x02\x98\x02\x01") + field(3, b"\x18\x01\x20\x00")


def gguf(model, tokens, more):
    lines = [f"model {model}", "pre smollm"] + [f"token {kind} {score} {name}" for kind, score, name in tokens] + more
    return "\n".join(lines).encode()


def main():
    os.makedirs(HERE, exist_ok=True)
    config = {"eos_token": {"content": "</s>"}, "added_tokens_decoder": {"8": {"content": "</s>", "special": True}}}
    write("json_byte_level", "0", compact(byte_level()) + b"\0" + compact(config) + b"\0" + compact({"x": 9}))
    write("json_side_files", "0", compact(byte_level()) + b"\0\0" + compact({"<pad>": 8}) + b"\0" +
          compact({"pad_token": "<pad>", "bos_token": {"content": "<s>"}}))
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
    write("json_normalizer", "0", compact(space_kind(normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": SPACE}, replace]})))
    write("json_metaspace", "0", compact(space_kind(pre_tokenizer={
        "type": "Metaspace", "replacement": SPACE, "prepend_scheme": "first", "split": True})))
    words = [bytes([i]) for i in range(256)] + [b"ab", b" a", b"ll", b"Hello"]
    write("tiktoken", "1", b"".join(base64.b64encode(w) + b" %d\n" % i for i, w in enumerate(words)))
    write("sentencepiece", "2", sentencepiece())
    write("gguf_gpt2", "3", gguf("gpt2", [(1, 0, n) for n in ["a", "b", "\u0120", "ab", "\u0120a"]] + [(3, 0, "<s>"), (4, 0, "it's")],
                                 ["merge a b", "merge \u0120 a", "id bos 5"]))
    write("gguf_llama", "3", gguf("llama", [(2, 0, "<unk>"), (3, 0, "<s>"), (3, 0, "</s>")] + [(6, 0, n) for n in byte_pieces()] +
                                  [(1, -i, n) for i, n in enumerate(PIECES)] + [(4, 0, "[INST]"), (5, 0, "x")], ["id bos 1", "id eos 2"]))
    write("chat_language", "4", b"{# all of the language -#}\n{%- set ns = namespace(n=0, t=[1, 2][0]) %}{% set d = {'a': 'b'} %}"
          b"{% for m in messages[1:] if m.role == 'user' %}{% set ns.n = ns.n + loop.index0 * 2 - 1 %}{% else %}x{% endfor %}"
          b"{% for k, v in d.items() %}{{ k ~ v[:1] | upper }}{% endfor %}{% if ns.n is odd or not (d.get('c') in ['x', none]) %}"
          b"{{ messages[-1]['content'].split('a')[0] | replace('b', 'c') | trim if d is mapping else raise_exception('no') }}"
          b"{% elif messages | selectattr('role', 'equalto', 'user') | list | length > 3 // 2 %}{{ strftime_now('%d') }}{% endif %}"
          b"{% set text %} {{- d | tojson }} {% endset %}{{ text | default('e') }}")
    write("chat_chatml", "4", b"{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + \"<|im_end|>\\n\"}}{% endfor %}"
          b"{# a comment #}{% if x %}<|im_start|>system\nYou are small<|im_end|>\n{% endif %}")
    write("chat_llama", "4", b"{{- bos_token }}{%- set x = '<|start_header_id|>system<|end_header_id|>\\n\\n' %}"
          b"{{- \"Cutting Knowledge Date: December 2023\\n\" }}{{- 'Today Date: ' }}{{ m | trim }}{{ '<|eot_id|>' }}")


main()
