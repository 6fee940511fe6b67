#!/usr/bin/env python3
"""Makes corpus/image: small files whose headers promise more than there is. The good pictures are in tests/data/images.

Usage: make_image_corpus.py OUTPUT_FOLDER
"""
import pathlib
import struct
import sys
import zlib


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, colour, bits):
    head = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 1)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")


def gif(width, height, frame_width, frame_height):
    return (b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + b"abcdef" + b"\x21\xf9\x04\x01\0\0\0\0" +
            b"," + struct.pack("<HHHHB", 3, 3, frame_width, frame_height, 0x40) + b"\x02\x02\x44\x01\0;")


def bmp(width, height, bits, compression, size=40, pixels=b"\x05\x01\0\2\3\4\0\0\0\1"):
    head = struct.pack("<IiiHHIIiiII", size, width, height, 1, bits, compression, 0, 0, 0, 0, 0)
    masks = struct.pack("<IIII", 0xff000000, 0x00fff000, 0x1, 0x2)
    return b"BM" + struct.pack("<IHHI", 0, 0, 0, 70) + head + masks + pixels


def tiff(order, tags):
    body = struct.pack(order + "H", len(tags))
    for tag, kind, count, value in tags:
        body += struct.pack(order + "HHII", tag, kind, count, value)
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", 8) + body + b"\0" * 4 + b"\x55" * 64


def tiff_tags(width, height, extra):
    return [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)] + extra


STRIPS = [(273, 4, 1, 100), (277, 3, 1, 1), (278, 4, 1, 8), (279, 4, 1, 64)]
FILES = {
    "png_wide": png(2**31 - 1, 2, 2, 8), "png_zero": png(0, 4, 2, 8), "png_large": png(1000, 1000, 6, 16),
    "png_odd": png(5, 5, 3, 16), "gif_large": gif(65535, 65535, 65535, 65535), "gif_outside": gif(9, 9, 900, 900),
    "gif_screen": gif(640, 480, 5, 5), "bmp_masks": bmp(9, 9, 32, 3), "bmp_rle8": bmp(40, 40, 8, 1),
    "bmp_rle4": bmp(40, 40, 4, 2), "bmp_large": bmp(2**31 - 1, -2**31, 24, 0), "bmp_header": bmp(3, 3, 24, 0, size=124),
    "tiff_strip": tiff("<", tiff_tags(8, 8, STRIPS)), "tiff_large": tiff(">", tiff_tags(2**32 - 1, 2**32 - 1, STRIPS)),
    "tiff_tile": tiff("<", tiff_tags(64, 64, [(277, 3, 1, 1), (322, 4, 1, 2**30), (323, 4, 1, 2**30), (324, 4, 1, 100)])),
    "tiff_bands": tiff("<", tiff_tags(8, 8, [(273, 4, 1, 100), (277, 3, 1, 65535), (278, 4, 1, 8), (279, 4, 1, 64)])),
    "jpeg_large": b"\xff\xd8\xff\xc0\0\x0b\x08\xff\xdc\xff\xdc\x01\x01\x11\0\xff\xda\0\x08\x01\x01\0\0\x3f\0\x55\xff\xd9",
    "webp_large": b"RIFF\x26\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xffVP8L\x08\0\0\0\x2f\xff\xff\xff\x0f\0\0\0",
}


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in FILES.items():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
