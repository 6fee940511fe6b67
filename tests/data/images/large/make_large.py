#!/usr/bin/env python3
"""Makes pictures of one colour, many pixels in few bytes, with which is measured what decoding takes.

Usage: make_large.py    (needs Pillow and numpy; writes beside itself; the files here come from Pillow 12.3, numpy 2.4)
"""
import pathlib
import sys

import numpy as np
from PIL import Image

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from make_images import png  # noqa: E402

SIZE = (2400, 2000)
FLAT = (50000, 60)  # fewer rows than are decoded at a time
COLOUR = (90, 160, 30, 200)


def save(name, mode, size=SIZE, **options):
    channels = len(mode) if mode != "P" else 1
    Image.new(mode, size, COLOUR[:channels] if channels > 1 else 3).save(HERE / name, **options)


def main():
    turned = Image.Exif()
    turned[274] = 6
    save("turned.jpg", "RGB", quality=50, optimize=True, exif=turned)
    save("flat.jpg", "RGB", FLAT, quality=50, optimize=True)
    save("progressive.jpg", "RGB", quality=50, subsampling=0, progressive=True)
    save("progressive_cmyk.jpg", "CMYK", quality=50, progressive=True)
    save("rgba.png", "RGBA", optimize=True)
    interlaced = np.full((SIZE[1], SIZE[0], 4), 257 * COLOUR[0])
    (HERE / "rgba16_interlaced.png").write_bytes(png(interlaced, 6, 16, interlaced=True))
    save("lossless.webp", "RGB", lossless=True)
    save("lossless_alpha.webp", "RGBA", lossless=True)
    save("lossy_alpha.webp", "RGBA", quality=20)
    save("rgb.gif", "P")
    save("strip.tiff", "RGB", compression="tiff_adobe_deflate", tiffinfo={278: SIZE[1]})
    save("strip_cmyk.tiff", "CMYK", compression="tiff_adobe_deflate", tiffinfo={278: SIZE[1]})


if __name__ == "__main__":
    main()
