#!/usr/bin/env python3
"""Ids of texts around added tokens with the options single_word, lstrip and rstrip, by the `tokenizers` library.

Usage: make_added_options.py > vectors/added_options.jsonl      (tokenizers 0.23)
Each line: a tokenizer file, the parts that replace those of it, and texts with their ids (special tokens recognised).
"""
import copy
import itertools
import json
import os
import random
import sys

from tokenizers import Tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
OPTIONS = ("single_word", "lstrip", "rstrip")
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
PARTS = ["qz", "<w>", "\U0001f600", " ", "  ", "\n", "\t", "\u00a0", "\u3000", "\u2028", "\x1c", "\u200b", "\u200d", "a", "_", "7", "\u0301",
         "\u4f60", "-", ".", "\u24d0", "\u00b2", "x", "\u2581"]


def token(base, number, content, options, normalized, special=False):
    entry = {"id": base + number, "content": content, "normalized": normalized, "special": special}
    entry.update({name: name in options for name in OPTIONS})
    return entry


def texts(generator):
    fixed = ["", "qz", "aqz", "qza", "a qz b", "a  qz  b", "\n qz\t\n", "qzqz", "qz qz  qz", " qz<w> qz <w>", "a.qz-b", "<w> <w>  <w>",
             "_qz", "qz_", "7qz", "qz\u0301", "\u4f60qz", "qz\u4f60", "\u00b2qz\u00b2", "\u24d0qz", "\u200dqz", "\u200bqz", " \x1c qz \x1c "]
    drawn = ["".join(generator.choices(PARTS, weights=[6, 3] + [1] * (len(PARTS) - 2), k=generator.randint(2, 14)))
             for _ in range(20)]
    return fixed + drawn


def main():
    generator = random.Random(20240726)
    for name, older in (("bpe-small", False), ("spm-small", True), ("spm-small", False)):
        base = json.load(open(os.path.join(HERE, name, "tokenizer.json"), encoding="utf-8"))
        space_parts = {} if older or name == "bpe-small" else {"normalizer": None, "pre_tokenizer": METASPACE}
        size = 1 + max(itertools.chain(base["model"]["vocab"].values(), (entry["id"] for entry in base["added_tokens"])))
        for count in range(len(OPTIONS) + 1):
            for options in itertools.combinations(OPTIONS, count):
                for normalized in (False, True) if older else (False,):
                    added = [token(size, 0, "qz", options, normalized), token(size, 1, "<w>", options[:1], normalized),
                             token(size, 2, "\U0001f600", options, False, special=True)]
                    parts = dict(space_parts, added_tokens=base["added_tokens"] + added)
                    file = copy.deepcopy(base)
                    file.update(parts)
                    tokenizer = Tokenizer.from_str(json.dumps(file))
                    cases = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False).ids}
                             for text in texts(generator)]
                    json.dump({"tokenizer": name, "parts": dict(space_parts, added=added), "cases": cases}, sys.stdout,
                              separators=(",", ":"))
                    print()


main()
