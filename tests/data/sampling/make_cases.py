#!/usr/bin/env python3
"""Sampling vectors for the sampler's test: logits, parameters and exact probabilities as JSON.

Usage: make_cases.py ORACLE_FOLDER     (a folder with sampling.json and sampling.npz)
Writes cases.json beside this script. Probabilities come from float64 arithmetic; those below 1e-9 are left out
(all are there where `ids` is missing).
"""
import json
import os
import sys

import numpy as np

SKIPPED = {"meta_top_p"}  # another definition of top_p, which the program does not offer


def main():
    source = sys.argv[1]
    with open(os.path.join(source, "sampling.json")) as file:
        description = json.load(file)
    arrays = np.load(os.path.join(source, "sampling.npz"))
    result = {"logits": {}, "cases": []}
    for name in sorted({case["logits"] for case in description["cases"]}):
        # Nine digits give a float32 back exactly.
        result["logits"][name] = [float(f"{x:.9g}") for x in arrays["logits_" + name]]
    for case in description["cases"]:
        if SKIPPED & case.keys():
            continue
        p = arrays["p_" + case["id"]]
        ids = np.flatnonzero(p > 1e-9)
        kept = {key: value for key, value in case.items() if key != "tie_dependent"}
        if len(ids) < len(p):
            kept["ids"] = [int(i) for i in ids]
        kept["p"] = [round(float(p[i]), 9) for i in ids]
        result["cases"].append(kept)
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.json")
    with open(target, "w") as file:
        file.write('{"logits": {\n')
        file.write(",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in result["logits"].items()))
        file.write('},\n"cases": [\n')
        file.write(",\n".join(json.dumps(case) for case in result["cases"]))
        file.write("]}\n")


if __name__ == "__main__":
    main()
