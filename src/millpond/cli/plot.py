"""Lines over time as a PNG, with nothing but numpy: enough to see that a roll-up looks as it should.

    signature, then chunks of: length u32, type 4 bytes, content, CRC-32 of type and content
    IHDR  width u32, height u32, depth 8, colour 2 (RGB), 0, 0, 0
    IDAT  zlib of rows: filter byte 0, then width * 3 bytes

Pure, but for the file at the end. Driven by pipeline_demo.py.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

WIDTH: Final = 900
HEIGHT: Final = 320
MARGIN: Final = 50
COLOURS: Final = ((31, 119, 180), (255, 127, 14), (44, 160, 44), (214, 39, 40))
_GREY: Final = (215, 215, 215)
_BLACK: Final = (40, 40, 40)
_SCALE: Final = 2
_ROWS: Final = {
    "0": "75557", "1": "26227", "2": "71747", "3": "71717", "4": "55711", "5": "74717", "6": "74757", "7": "71111",
    "8": "75757", "9": "75717", ".": "00002", "-": "00700", "k": "45665", "M": "57755", "p": "06564", "a": "03557",
    "v": "05552", "g": "03517",
}  # fmt: skip
"""Each of five rows of three points, as an octal digit."""

Pixels = NDArray[np.uint8]


def draw(lines: Mapping[str, Sequence[float]]) -> Pixels:
    """Each line over the whole width; its name, of letters that are in _ROWS, in its colour."""
    pixels = np.full((HEIGHT, WIDTH, 3), 255, np.uint8)
    top = max((max(values) for values in lines.values() if values), default=1.0) or 1.0
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = _y(share)
        pixels[y, MARGIN : WIDTH - 10] = _GREY
        _text(pixels, _short(top * share), 4, y - 5, _BLACK)
    for number, (name, values) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        _text(pixels, name, MARGIN + 60 * number, 8, colour)
        places = [
            (MARGIN + place * (WIDTH - 10 - MARGIN) // max(1, len(values) - 1), _y(value / top))
            for place, value in enumerate(values)
        ]
        for (x1, y1), (x2, y2) in pairwise(places):
            steps = max(abs(x2 - x1), abs(y2 - y1), 1)
            xs, ys = np.linspace(x1, x2, steps + 1).astype(int), np.linspace(y1, y2, steps + 1).astype(int)
            pixels[ys, xs] = pixels[ys + 1, xs] = colour
    return pixels


def _y(share: float) -> int:
    return round(HEIGHT - 20 - share * (HEIGHT - 60))


def _short(number: float) -> str:
    if number >= 1_000_000:
        return f"{number / 1_000_000:.3g}M"
    return f"{number / 1000:.3g}k" if number >= 1000 else f"{number:.3g}"


def _text(pixels: Pixels, text: str, x: int, y: int, colour: tuple[int, int, int]) -> None:
    for letter in text:
        for row, bits in enumerate(_ROWS.get(letter, "00000")):
            for column in range(3):
                if int(bits, 8) >> (2 - column) & 1:
                    top, left = y + row * _SCALE, x + column * _SCALE
                    pixels[top : top + _SCALE, left : left + _SCALE] = colour
        x += 4 * _SCALE


def save(pixels: Pixels, path: Path) -> None:
    height, width, _ = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, width * 3)], axis=1)
    head = struct.pack("!IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b""))
    with path.open("wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n")
        for kind, content in chunks:
            out.write(struct.pack("!I", len(content)) + kind + content)
            out.write(struct.pack("!I", zlib.crc32(kind + content)))
