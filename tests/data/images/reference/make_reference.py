#!/usr/bin/env python3
"""Copies pictures of the reference data for vision, and what its preparation makes of them.

Usage: make_reference.py ORACLE_FOLDER    (writes beside itself)

canvases.json, per picture: for tiles of 560, 448 and 56 pixels the arrangement, the resized size and the SHA-256 of the
canvas (uint8 RGB, row-major) that is cut into tiles. Of lossy pictures (PICTURE.tiles) instead the tiles of 56 pixels,
uint8 [tiles, 3, 56, 56]: other decoders may give other values.
over_white.json: of pictures with transparency, the SHA-256 of their pixels (uint8 RGB, row-major) laid over white.
"""
import json
import pathlib
import shutil
import struct
import sys

LOSSY = ("sub420.jpg", "sub422.jpg", "progressive.jpg", "cmyk.jpg", "grey.jpg", "exif_6.jpg", "lossy.webp")
LOSSY_BYTES, LOSSLESS_BYTES = 100_000, 70_000  # larger pictures are left out


def tensor(path, name):
    raw = path.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    begin, end = json.loads(raw[8:8 + length])[name]["data_offsets"]
    return raw[8 + length + begin:8 + length + end]


def main():
    oracle = pathlib.Path(sys.argv[1])
    here = pathlib.Path(__file__).parent
    tiles = oracle / "prep" / "tiles_u8_T56.safetensors"
    canvases = {}
    over_white = {}
    for picture in json.loads((oracle / "prep" / "images.json").read_text(encoding="utf-8")):
        name = pathlib.PurePath(picture["name"]).name
        if picture["lossless"]:
            # What 16-bit grey becomes is not what the reference has (README, Images).
            if picture["bytes"] > LOSSLESS_BYTES or name.startswith("grey16"):
                continue
            canvases[name] = {size: {key: picture[size][key] for key in
                                     ("grid_hw", "aspect_ratio_id", "resized_hw", "canvas_u8_sha256")}
                              for size in ("T560", "T448", "T56")}
            if "over_white_sha256" in picture["variants"]:
                over_white[name] = picture["variants"]["over_white_sha256"]
        elif name in LOSSY and picture["bytes"] <= LOSSY_BYTES:
            (here / (name + ".tiles")).write_bytes(tensor(tiles, name))
        else:
            continue
        shutil.copyfile(oracle / "images" / picture["name"], here / name)
    for file, values in (("canvases.json", canvases), ("over_white.json", over_white)):
        (here / file).write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
