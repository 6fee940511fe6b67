#!/usr/bin/env python3
"""Random blocks of GGUF's quantizations and their values as the gguf package decodes them.

Usage: make_blocks.py OUTPUT.json          (needs numpy and gguf)

The bits are random (PCG64, seed 20260101) but for the 16-bit scales, which are drawn from +-[0.01, 2].
"""
import base64
import json
import pathlib
import sys

import gguf
import numpy as np

BLOCKS = 4
# Offsets of the 16-bit floating point fields in a block.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0]}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    random = np.random.Generator(np.random.PCG64(20260101))
    out = {}
    for name, offsets in SCALES.items():
        kind = gguf.GGMLQuantizationType[name]
        blocks = random.integers(0, 256, (BLOCKS, gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
        for offset in offsets:
            scales = (random.uniform(0.01, 2, BLOCKS) * random.choice([-1, 1], BLOCKS)).astype("<f2")
            blocks[:, offset:offset + 2] = scales.view(np.uint8).reshape(BLOCKS, 2)
        values = gguf.quants.dequantize(blocks, kind).astype("<f4")
        assert np.isfinite(values).all(), name
        out[name] = {"blocks": base64.b64encode(blocks.tobytes()).decode("ascii"),
                     "values": base64.b64encode(values.tobytes()).decode("ascii")}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(entry)}" for name, entry in out.items())
    pathlib.Path(sys.argv[1]).write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
