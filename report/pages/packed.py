"""A PDF made smaller: what describes its structure is packed and compressed, which typst leaves undone.

A tagged PDF has an object for each cell, link and list item of the document; written out one by one, with a line of
the cross-reference table each, they weigh more than all text, figures and fonts.
"""

from __future__ import annotations

import re
import zlib
from itertools import pairwise

# Objects of one stream: a reader unpacks a whole stream for any of them.
_TOGETHER = 200
_WIDTHS = (1, 4, 2)


def pack(pdf: bytes) -> bytes:
    """The same objects in object streams, with a cross-reference stream (ISO 32000-1, 7.5.7 and 7.5.8).

    A PDF whose cross-reference is no plain table is given back as it is: it has been packed. Raises ValueError
    for what is no PDF.
    """
    start = int(pdf[pdf.rindex(b"startxref") :].split()[1])
    if not pdf.startswith(b"xref", start):
        return pdf
    table, _, trailer = pdf[start:].partition(b"trailer")
    size, objects = _objects(pdf, table, start)
    out = bytearray(pdf[: min(place for place, _ in objects.values())])
    entries = {0: (0, 0, 65535)}
    plain = []
    for number, (_, body) in objects.items():
        # A stream stays; so does a bare number, which may be a stream's length.
        if body.endswith(b"endstream") or body.isdigit():
            entries[number] = (1, len(out), 0)
            out += b"%d 0 obj\n%b\nendobj\n" % (number, body)
        else:
            plain.append((number, body))
    for begin in range(0, len(plain), _TOGETHER):
        some, places, at = plain[begin : begin + _TOGETHER], [], 0
        for index, (number, body) in enumerate(some):
            places.append(b"%d %d" % (number, at))
            entries[number] = (2, size, index)
            at += len(body) + 1
        head = b" ".join(places) + b"\n"
        about = b"/Type/ObjStm/N %d/First %d" % (len(some), len(head))
        entries[size] = (1, len(out), 0)
        out += _stream(size, about, head + b"\n".join(body for _, body in some))
        size += 1
    entries[size] = (1, len(out), 0)
    rows = b"".join(
        b"".join(
            value.to_bytes(width) for value, width in zip(entries.get(number, (0, 0, 65535)), _WIDTHS, strict=True)
        )
        for number in range(size + 1)
    )
    kept = re.sub(rb"/Size \d+", b"", trailer[trailer.index(b"<<") + 2 : trailer.rindex(b">>")]).strip()
    about = b"/Type/XRef/Size %d/W[%d %d %d]%b" % (size + 1, *_WIDTHS, kept)
    place = len(out)
    out += _stream(size, about, rows)
    out += b"startxref\n%d\n%%%%EOF\n" % place
    return bytes(out)


def _objects(pdf: bytes, table: bytes, end: int) -> tuple[int, dict[int, tuple[int, bytes]]]:
    """How many numbers the table has, and of each object where it begins and what it holds. Raises ValueError."""
    words = table.split()
    first, size = int(words[1]), int(words[2])
    entries = words[3:]
    if first != 0 or len(entries) != 3 * size:
        raise ValueError("a cross-reference table of several parts")
    places = sorted((int(entries[3 * one]), one) for one in range(size) if entries[3 * one + 2] == b"n")
    objects = {}
    for (place, number), (after, _) in pairwise([*places, (end, size)]):
        _, _, body = pdf[place:after].partition(b"obj")
        objects[number] = (place, body[: body.rindex(b"endobj")].strip())
    return size, objects


def _stream(number: int, about: bytes, text: bytes) -> bytes:
    packed = zlib.compress(text, 9)
    return b"%d 0 obj\n<<%b/Filter/FlateDecode/Length %d>>stream\n%b\nendstream\nendobj\n" % (
        number,
        about,
        len(packed),
        packed,
    )
