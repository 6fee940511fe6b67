#!/usr/bin/env python3
"""Ids of the forms in which tokenizer.json files of Llama 2's kind treat spaces, by the `tokenizers` library.

Usage: make_space_rules.py > vectors/space_rules.jsonl      (tokenizers 0.23)
Each line: the parts that replace those of spm-small/tokenizer.json, and texts with their ids (special tokens recognised).
"""
import copy
import json
import os
import sys

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
SPACE = "\u2581"
PREPEND = {"type": "Prepend", "prepend": SPACE}
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
TEXTS = ["", " ", "   ", "Hello world", " Hello  world ", "<s>Hello", "<s> Hello</s>  x", "a<s>b c<s><s> d", "\n\nx",
         "x\n y", SPACE, SPACE + "x", "x" + SPACE + SPACE + "y", "12 345", " 12", "qzq call", "a qzq b", "xqzq", "<tool>qzq <tool>",
         " <tool> x", "x<tool>", "<tool>  <tool>", "\u00e9t\u00e9 \u4f60\u597d \U0001f600", "the the<s>the the", "</s></s>"]


def metaspace(scheme, split):
    return {"type": "Metaspace", "replacement": SPACE, "prepend_scheme": scheme, "split": split}


def tool(content, normalized):
    return {"id": 2000, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": normalized,
            "special": False}


def main():
    base = json.load(open(os.path.join(HERE, "spm-small", "tokenizer.json"), encoding="utf-8"))
    added = base["added_tokens"]
    variants = {
        "older": {},
        "older_without_prefix": {"normalizer": {"type": "Sequence", "normalizers": [REPLACE]}},
        "older_single_replace": {"normalizer": REPLACE},
        "older_added": {"added_tokens": added + [tool("<tool>", False)]},
        "older_added_normalized": {"added_tokens": added + [tool("qzq", True)]},
        "older_digits": {"pre_tokenizer": {"type": "Digits", "individual_digits": True}},
    }
    for scheme in ("always", "first", "never"):
        for split in (True, False):
            variants[f"metaspace_{scheme}_{'split' if split else 'whole'}"] = {
                "normalizer": None, "pre_tokenizer": metaspace(scheme, split)}
        variants[f"metaspace_{scheme}_added"] = {"normalizer": None, "pre_tokenizer": metaspace(scheme, False),
                                                 "added_tokens": added + [tool("<tool>", False)]}
    variants["metaspace_old_flag"] = {
        "normalizer": None, "pre_tokenizer": {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}}
    variants["metaspace_normalized"] = {"normalizer": None, "pre_tokenizer": metaspace("first", False),
                                        "added_tokens": added + [tool("qzq", True)]}
    for name, parts in variants.items():
        file = copy.deepcopy(base)
        file.update(parts)
        tokenizer = Tokenizer.from_str(json.dumps(file))
        cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids} for text in TEXTS]
        json.dump({"variant": name, "parts": parts, "cases": cases}, sys.stdout, separators=(",", ":"))
        print()


main()
