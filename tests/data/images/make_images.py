#!/usr/bin/env python3
"""Makes the pictures of this folder and what they decode to (expected.json).

Usage: make_images.py    (needs Pillow 13 and numpy; writes beside itself; the files here come from Pillow 13.0.0, numpy 2.4)

expected.json:
  pictures  per file: size, `rgb` = base64 of ImageOps.exif_transpose(image).convert("RGB"), row-major, where there is
            a colour profile by ImageCms (LittleCMS; relative colorimetric with black point compensation), alpha left
            out; `over_white` likewise with alpha, over white; `tolerance` in steps of 255 for lossy formats and
            colour profiles; `tiles` for tile size 28, at most 4 tiles: arrangement, resized size and SHA-256 of the
            float32 values [tiles, 3, 28, 28]
  resize    sizes and SHA-256 of Pillow's bilinear resize of a picture whose values are byte(pattern) below
layouts.csv is not made here: it holds the arrangements that the preprocessing of llama-models (image_transform.py) and
of transformers (image_processing_mllama.py) agree on, for about 1000 sizes.
"""
import base64
import hashlib
import io
import json
import pathlib
import struct
import zlib

import numpy as np
from PIL import Image, ImageCms, ImageOps

HERE = pathlib.Path(__file__).resolve().parent
W, H = 37, 23
TILE = 28
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
rng = np.random.default_rng(20250301)


def smooth(width=W, height=H):
    """A gradient with blocks: compresses well, has edges, no two corners alike."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack([x * 255 // (width - 1), y * 255 // (height - 1), (x + 2 * y) * 3 % 256], -1).astype(np.uint8)
    rgb[2:7, 3:12] = (250, 20, 30)
    rgb[10:18, 20:30] = (10, 40, 240)
    return rgb


def noise(shape):
    return rng.integers(0, 256, shape, dtype=np.uint8)


# PNG by hand: what Pillow cannot write (16-bit colour, interlacing).
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(samples, colour_type, bits, interlaced=False, extra=b""):
    """samples: [height, width, channels] of the stored values"""
    def rows(part):
        if bits == 16:
            return b"".join(b"\0" + row.astype(">u2").tobytes() for row in part)
        if bits == 8:
            return b"".join(b"\0" + row.astype(np.uint8).tobytes() for row in part)
        result = b""
        for row in part:
            values = row.reshape(-1)
            unpacked = ((values[:, None] >> np.arange(bits - 1, -1, -1)) & 1).astype(np.uint8)
            result += b"\0" + np.packbits(unpacked.reshape(-1)).tobytes()
        return result
    passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in passes] if interlaced else [samples]
    data = b"".join(rows(part) for part in parts if part.size)
    head = struct.pack(">IIBBBBB", samples.shape[1], samples.shape[0], bits, colour_type, 0, 0, int(interlaced))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(data, 9)) +
            chunk(b"IEND", b""))


# BMP by hand: the forms that Pillow reads but does not write.
def bmp(width, height, bits, compression, pixels, palette=b"", masks=b"", os2=False):
    head = struct.pack("<IHHHH", 12, width, height, 1, bits) if os2 else struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(pixels), 0, 0, len(palette) // 4, 0)
    offset = 14 + len(head) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", offset + len(pixels), 0, 0, offset) + head + masks + palette + pixels


def padded_rows(rows):
    return b"".join(row + b"\0" * (-len(row) % 4) for row in rows)


def rle8(indices):
    result = b""
    for row in indices[::-1]:
        at = 0
        while at < len(row):
            run = 1
            while at + run < len(row) and row[at + run] == row[at] and run < 255:
                run += 1
            if run == 1 and len(row) - at >= 5:  # an absolute run of five
                result += bytes([0, 5, *row[at:at + 5], 0])
                at += 5
            else:
                result += bytes([run, row[at]])
                at += run
        result += b"\0\0"
    return result + b"\0\1"


def rle4(indices):
    result = b""
    for row in indices[::-1]:
        at = 0
        while at < len(row):
            run = min(2, len(row) - at)
            result += bytes([run, (row[at] << 4) | (row[at + 1] if run > 1 else 0)])
            at += run
        result += b"\0\0"
    return result + b"\0\1"


def fixed(value):
    return struct.pack(">i", round(value * 65536))


def curve(gamma):
    return b"curv\0\0\0\0" + struct.pack(">IH", 1, round(gamma * 256)) + b"\0\0"


def icc(kind, space, connection, tags):
    """A profile of ICC.1:2001, version 2. kind: its class; space, connection: of colours; tags: name -> data"""
    text = b"test profile\0"
    tags = {b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + b"\0" * 79,
            b"cprt": b"text\0\0\0\0none\0\0\0\0",
            b"wtpt": b"XYZ \0\0\0\0" + fixed(0.9642) + fixed(1.0) + fixed(0.8249), **tags}
    table, body, places = b"", b"", {}
    start = 128 + 4 + 12 * len(tags)
    for name, data in tags.items():
        if data not in places:  # tags may share their data
            places[data] = start + len(body)
            body += data + b"\0" * (-len(data) % 4)
        table += name + struct.pack(">II", places[data], len(data) + -len(data) % 4)
    size = start + len(body)
    head = (struct.pack(">I", size) + b"none" + struct.pack(">I", 0x02400000) + kind + space + connection +
            struct.pack(">6H", 2025, 1, 1, 0, 0, 0) + b"acsp" + b"\0" * 28 + fixed(0.9642) + fixed(1.0) + fixed(0.8249))
    return head + b"\0" * (128 - len(head)) + struct.pack(">I", len(tags)) + table + body


def profile(primaries, gamma):
    """primaries: XYZ (D50) of red, green, blue"""
    def xyz(values):
        return b"XYZ \0\0\0\0" + b"".join(fixed(v) for v in values)
    return icc(b"mntr", b"RGB ", b"XYZ ", {
        b"rXYZ": xyz(primaries[0]), b"gXYZ": xyz(primaries[1]), b"bXYZ": xyz(primaries[2]), b"rTRC": curve(gamma),
        b"gTRC": curve(gamma), b"bTRC": curve(gamma)})


def ink_profile():
    """Lab for CMYK by a table of three steps of each ink, as printers' profiles have it but for its size."""
    inks = np.array([[0.15, 0.3, 0.75], [0.75, 0.15, 0.25], [0.9, 0.85, 0.12], [0.08, 0.07, 0.06]])  # X, Y, Z let through
    grid = np.stack(np.meshgrid(*[np.linspace(0, 1, 3)] * 4, indexing="ij"), -1).reshape(-1, 4)
    xyz = np.prod(1 - grid[:, :, None] * (1 - inks[None]), axis=1)  # of white
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], -1)
    stored = np.rint(np.stack([lab[:, 0] * 652.8, (lab[:, 1] + 128) * 256, (lab[:, 2] + 128) * 256], -1)).astype(">u2")
    ends = struct.pack(">2H", 0, 65535)
    unit = b"".join(fixed(i == j) for i in range(3) for j in range(3))
    table = (b"mft2\0\0\0\0" + bytes([4, 3, 3, 0]) + unit + struct.pack(">2H", 2, 2) + ends * 4 + stored.tobytes() +
             ends * 3)
    return icc(b"prtr", b"CMYK", b"Lab ", {b"A2B0": table, b"A2B1": table, b"A2B2": table})


WIDE = profile(((0.6, 0.31, 0.02), (0.21, 0.63, 0.07), (0.15, 0.06, 0.735)), 1.8)  # colours beyond sRGB
LINEAR_GREY = icc(b"mntr", b"GRAY", b"XYZ ", {b"kTRC": curve(1.0)})
INKS = ink_profile()
SRGB = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
SRGB[24:36] = struct.pack(">6H", 2025, 1, 1, 0, 0, 0)  # its date, to be the same in every run
SRGB = bytes(SRGB)
GREY_RAMP = np.arange(W * H).reshape(H, W) * 65535 // (W * H - 1)


def partial_gif(screen, place, transparent):
    """The first frame covers a part of the screen only; another one follows."""
    frame = Image.fromarray(noise((9, 14)) >> 5, "P")
    frame.putpalette(noise(24).tobytes())
    data = saved(frame, "GIF", optimize=False)
    at = 13 + (3 << ((data[10] & 7) + 1))
    table, image = data[13:at], data[data.index(b",", at) + 10:-1]
    control = b"\x21\xf9\x04" + bytes([9 if transparent is not None else 8, 0, 0, transparent or 0, 0])
    block = control + b"," + struct.pack("<HHHHB", *place, 14, 9, 0) + image
    return data[:6] + struct.pack("<HH", *screen) + data[10:11] + b"\x05\0" + table + block + block + b";"


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    tags = Image.Exif()
    tags[0x0112] = orientation
    return tags.tobytes()


def pngs():
    rgb = Image.fromarray(smooth())
    grey = rgb.convert("L")
    alpha = Image.fromarray(noise((H, W)))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    palette = rgb.quantize(40)
    yield "rgb.png", saved(rgb, "PNG")
    yield "noise.png", saved(Image.fromarray(noise((31, 45, 3))), "PNG")
    yield "grey.png", saved(grey, "PNG")
    for bits in (1, 2, 4):
        yield f"grey{bits}.png", png(noise((H, W, 1)) >> (8 - bits), 0, bits)
    yield "grey_interlaced.png", png(noise((H, W, 1)) >> 6, 0, 2, interlaced=True)
    yield "grey_alpha.png", saved(Image.merge("LA", (grey, alpha)), "PNG")
    yield "rgba.png", saved(rgba, "PNG")
    yield "rgba_invisible.png", saved(Image.fromarray(np.dstack([smooth(), np.zeros((H, W), np.uint8)])), "PNG")
    yield "palette.png", saved(palette, "PNG")
    yield "palette_alpha.png", saved(palette, "PNG", transparency=bytes(range(0, 240, 6)))
    yield "palette_key.png", saved(palette, "PNG", transparency=3)
    yield "rgb_key.png", saved(rgb, "PNG", transparency=(250, 20, 30))
    yield "rgb_interlaced.png", png(smooth(), 2, 8, interlaced=True)
    yield "grey16.png", png(GREY_RAMP[:, :, None], 0, 16)
    yield "rgb16.png", png(rng.integers(0, 65536, (H, W, 3)), 2, 16)
    yield "rgba16_interlaced.png", png(rng.integers(0, 65536, (H, W, 4)), 6, 16, interlaced=True)
    yield "gamma.png", png(smooth(), 2, 8, extra=chunk(b"gAMA", struct.pack(">I", 100000)))
    yield "turned.png", saved(rgb, "PNG", exif=exif(6))
    yield "profile_srgb.png", saved(rgb, "PNG", icc_profile=SRGB)
    yield "profile_wide.png", saved(rgb, "PNG", icc_profile=WIDE)
    yield "profile_broken.png", saved(rgb, "PNG", icc_profile=b"not a profile" * 20)
    yield "one_pixel.png", saved(Image.fromarray(noise((1, 1, 3))), "PNG")
    yield "tall.png", saved(Image.fromarray(noise((150, 3, 3))), "PNG")
    yield "wide.png", saved(Image.fromarray(noise((3, 150, 3))), "PNG")


def lossy():
    rgb = Image.fromarray(smooth())
    yield "plain.jpg", saved(rgb, "JPEG", quality=90)
    yield "full_colour.jpg", saved(rgb, "JPEG", quality=90, subsampling=0)
    yield "progressive.jpg", saved(rgb, "JPEG", quality=80, progressive=True)
    yield "restart.jpg", saved(rgb, "JPEG", quality=80, restart_marker_blocks=2)
    yield "grey.jpg", saved(rgb.convert("L"), "JPEG", quality=90)
    yield "cmyk.jpg", saved(rgb.convert("CMYK"), "JPEG", quality=90)
    yield "ycck.jpg", as_ycck(Image.merge("CMYK", (*rgb.split(), rgb.convert("L"))))
    for orientation in range(1, 9):
        yield f"orientation{orientation}.jpg", saved(rgb, "JPEG", quality=90, subsampling=0, exif=exif(orientation))
    yield "plain.webp", saved(rgb, "WEBP", quality=90)


def profiled():
    """Colour profiles for each kind of channels."""
    rgb = Image.fromarray(smooth())
    grey = rgb.convert("L")
    alpha = Image.fromarray(np.add.outer(np.arange(H) * 7, np.arange(W) * 2).astype(np.uint8))
    rgba = Image.merge("RGBA", (*rgb.split(), alpha))
    cmyk = Image.merge("CMYK", (*rgb.split(), Image.fromarray(np.tile(np.arange(W, dtype=np.uint8) * 5, (H, 1)))))
    twice = np.array(257, np.int64)  # 16-bit samples of the same colours
    icc_chunk = {name: chunk(b"iCCP", b"test\0\0" + zlib.compress(data)) for name, data in
                 (("grey", LINEAR_GREY), ("wide", WIDE))}
    yield "profile_grey.png", saved(grey, "PNG", icc_profile=LINEAR_GREY)
    yield "profile_grey.jpg", saved(grey, "JPEG", quality=95, icc_profile=LINEAR_GREY)
    yield "profile_grey_alpha.png", saved(Image.merge("LA", (grey, alpha)), "PNG", icc_profile=LINEAR_GREY)
    yield "profile_grey16.png", png(np.asarray(grey)[:, :, None] * twice, 0, 16, extra=icc_chunk["grey"])
    yield "profile_rgb16.png", png(np.asarray(rgb) * twice, 2, 16, extra=icc_chunk["wide"])
    yield "profile_rgba16.png", png(np.asarray(rgba) * twice, 6, 16, extra=icc_chunk["wide"])
    yield "profile_rgba.png", saved(rgba, "PNG", icc_profile=WIDE)
    yield "profile_palette.png", saved(rgb.quantize(40), "PNG", icc_profile=WIDE)
    yield "profile_rgba.webp", saved(rgba, "WEBP", lossless=True, exact=True, icc_profile=WIDE)
    yield "profile_rgba.tiff", saved(rgba, "TIFF", compression="tiff_lzw", icc_profile=WIDE)
    yield "profile_cmyk.tiff", saved(cmyk, "TIFF", compression="tiff_lzw", icc_profile=INKS)
    yield "profile_cmyk.jpg", saved(cmyk, "JPEG", quality=95, icc_profile=INKS)


def as_ycck(cmyk):
    """A JPEG whose Adobe marker says YCCK, with the same coefficients: another picture, but a valid one."""
    data = bytearray(saved(cmyk, "JPEG", quality=90))
    at = data.index(b"Adobe")
    data[at + 11] = 2
    return bytes(data)


def others():
    rgb = Image.fromarray(smooth())
    rgba = rgb.copy()
    rgba.putalpha(Image.fromarray(noise((H, W))))
    palette = rgb.quantize(30)
    yield "lossless.webp", saved(rgb, "WEBP", lossless=True)
    yield "alpha.webp", saved(rgba, "WEBP", lossless=True, exact=True)
    frames = [rgb.transpose(Image.Transpose.ROTATE_180), rgb]
    yield "animated.webp", saved(rgb, "WEBP", lossless=True, save_all=True, append_images=frames)
    yield "plain.gif", saved(palette, "GIF", interlace=0)
    yield "interlaced.gif", saved(palette, "GIF", interlace=1)
    yield "transparent.gif", saved(palette, "GIF", transparency=palette.getpixel((25, 12)))
    yield "animated.gif", saved(palette, "GIF", save_all=True, append_images=[f.quantize(30) for f in frames])
    yield "animated_transparent.gif", saved(palette, "GIF", save_all=True, transparency=2,
                                            append_images=[f.quantize(30) for f in frames])
    yield "plain.bmp", saved(rgb, "BMP")
    yield "grey.bmp", saved(rgb.convert("L"), "BMP")
    yield "black_white.bmp", saved(rgb.convert("1"), "BMP")
    yield "alpha.bmp", saved(rgba, "BMP")
    yield "palette.bmp", saved(palette, "BMP")
    colours = noise((16, 4))
    colours[:, 3] = 0
    indices = noise((H, W)) >> 4
    blocks = np.repeat(noise((H, 10)) >> 4, 4, axis=1)[:, :W]
    blocks[:, 20:] = indices[:, 20:]
    nibbles = [np.packbits(((np.append(r, [0] * (W % 2))[:, None] >> np.arange(3, -1, -1)) & 1).astype(np.uint8).ravel())
               for r in indices[::-1]]
    yield "palette4.bmp", bmp(W, H, 4, 0, padded_rows(r.tobytes() for r in nibbles), colours.tobytes())
    yield "rle8.bmp", bmp(W, H, 8, 1, rle8(blocks.tolist()), colours.tobytes())
    yield "rle4.bmp", bmp(W, H, 4, 2, rle4(indices.tolist()), colours.tobytes())
    words = rng.integers(0, 65536, (H, W)).astype("<u2")
    yield "rgb555.bmp", bmp(W, H, 16, 0, padded_rows(r.tobytes() for r in words))
    yield "rgb565.bmp", bmp(W, H, 16, 3, padded_rows(r.tobytes() for r in words),
                            masks=struct.pack("<III", 0xf800, 0x07e0, 0x001f))
    flipped = padded_rows(r[:, ::-1].tobytes() for r in smooth())
    yield "top_down.bmp", bmp(W, -H, 24, 0, flipped)
    yield "os2.bmp", bmp(W, H, 24, 0, flipped, os2=True)
    yield "plain.tiff", saved(rgb, "TIFF")
    yield "lzw.tiff", saved(rgb, "TIFF", compression="tiff_lzw")
    yield "deflate.tiff", saved(rgb, "TIFF", compression="tiff_adobe_deflate")
    yield "cmyk.tiff", saved(rgb.convert("CMYK"), "TIFF")
    yield "palette.tiff", saved(palette, "TIFF")
    yield "black_white.tiff", saved(rgb.convert("1"), "TIFF")
    yield "rgba.tiff", saved(rgba, "TIFF")
    yield "grey16.tiff", saved(Image.fromarray(GREY_RAMP.astype(np.uint16)), "TIFF")
    yield "turned.tiff", saved(rgb, "TIFF", tiffinfo={0x0112: 3})
    yield "cmyk_rgb_profile.tiff", saved(rgb.convert("CMYK"), "TIFF", icc_profile=WIDE)
    yield "partial.gif", partial_gif((31, 17), (5, 3), None)
    yield "partial_transparent.gif", partial_gif((31, 17), (17, 8), 3)
    yield "partial_outside.gif", partial_gif((20, 10), (12, 6), None)


def decoded(name, data):
    image = Image.open(io.BytesIO(data))
    if image.mode == "I;16":  # Pillow would clip at 255; we keep the high byte, as for 16-bit colour
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if follows_profile(name):
        image = ImageCms.profileToProfile(image.convert(COLOURS.get(image.mode, image.mode)),
                                          ImageCms.ImageCmsProfile(io.BytesIO(Image.open(io.BytesIO(data)).info["icc_profile"])),
                                          ImageCms.createProfile("sRGB"), outputMode="RGB",
                                          renderingIntent=ImageCms.Intent.RELATIVE_COLORIMETRIC,
                                          flags=ImageCms.Flags.BLACKPOINTCOMPENSATION)
    return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


COLOURS = {"LA": "L", "RGBA": "RGB", "P": "RGB"}  # without alpha


def follows_profile(name):
    return name.startswith("profile_") and name not in ("profile_srgb.png", "profile_broken.png")


def over_white(rgb, alpha):
    alpha = alpha[:, :, None].astype(np.int64)
    return ((rgb * alpha + 255 * (255 - alpha) + 127) // 255).astype(np.uint8)


GRIDS = [(h, w) for h in range(1, 5) for w in range(1, 5) if h * w <= 4]


def tiles(rgb):
    """model-card preprocessing with tile size 28, by its definition"""
    height, width = rgb.shape[:2]
    scale = {grid: min(grid[0] * TILE / height, grid[1] * TILE / width) for grid in GRIDS}
    enough = [s for s in scale.values() if s >= 1]
    wanted = min(enough) if enough else max(scale.values())
    grid = min((g for g in GRIDS if scale[g] == wanted), key=lambda g: g[0] * g[1])
    target_h, target_w = (min(max(side, TILE), n * TILE) for side, n in zip((height, width), grid))
    sw, sh = target_w / width, target_h / height
    if sw < sh:
        new_w, new_h = target_w, max(1, min(int(height * sw), target_h))
    else:
        new_h, new_w = target_h, max(1, min(int(width * sh), target_w))
    canvas = np.zeros((grid[0] * TILE, grid[1] * TILE, 3), np.uint8)
    canvas[:new_h, :new_w] = np.asarray(Image.fromarray(rgb).resize((new_w, new_h), Image.Resampling.BILINEAR))
    values = (canvas.astype(np.float32) / np.float32(255) - MEAN) / STD
    cut = values.reshape(grid[0], TILE, grid[1], TILE, 3).transpose(0, 2, 4, 1, 3)
    return {"grid": grid, "id": GRIDS.index(grid) + 1, "resized": [new_w, new_h],
            "sha256": hashlib.sha256(np.ascontiguousarray(cut, "<f4").tobytes()).hexdigest()}


def resize_case(case):
    width, height, new_width, new_height = case
    count = np.arange(width * height * 3, dtype=np.uint64)
    pattern = ((count * np.uint64(2654435761) % np.uint64(1 << 32)) >> np.uint64(24)).astype(np.uint8)
    image = Image.fromarray(pattern.reshape(height, width, 3))
    out = np.asarray(image.resize((new_width, new_height), Image.Resampling.BILINEAR))
    return {"from": [width, height], "to": [new_width, new_height], "sha256": hashlib.sha256(out.tobytes()).hexdigest()}


CASES = [(1, 1, 1, 1), (1, 1, 560, 560), (7, 5, 7, 5), (7, 5, 14, 5), (7, 5, 7, 2), (3, 90, 1, 31), (90, 3, 31, 1),
         (640, 480, 560, 420), (480, 640, 420, 560), (1000, 17, 560, 9), (17, 1000, 9, 560), (1, 2000, 1, 560), (2, 300, 5, 100),
         (1000, 90, 999, 88), (1000, 90, 999, 87), (40, 50, 20, 10), (40, 51, 20, 10), (100, 100, 200, 100), (333, 777, 241, 560),
         (50, 60, 70, 59), (64, 64, 1, 1), (513, 257, 512, 256)]


def main():
    pictures = {}
    for source in (pngs, lossy, others, profiled):
        for name, data in source():
            (HERE / name).write_bytes(data)
            rgb = decoded(name, data)
            about = {"size": [rgb.shape[1], rgb.shape[0]], "rgb": base64.b64encode(rgb.tobytes()).decode()}
            if source is lossy or follows_profile(name):
                about["tolerance"] = 2
            else:
                about["tiles"] = tiles(rgb)
            if follows_profile(name) and "A" in Image.open(io.BytesIO(data)).mode or name == "rgba.tiff":
                alpha = np.asarray(Image.open(io.BytesIO(data)).getchannel("A"))
                about["over_white"] = base64.b64encode(over_white(rgb, alpha).tobytes()).decode()
            pictures[name] = about
    text = json.dumps({"pictures": pictures, "resize": [resize_case(c) for c in CASES]}, indent=1)
    (HERE / "expected.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
