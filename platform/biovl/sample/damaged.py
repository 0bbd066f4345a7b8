"""Packages with one defect each; the name of the package states it."""

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from biovl.sample.flavours import FLAVOURS, Slot
from biovl.sample.packages import PackageFiles, make_article, write_archive, write_folder

_ONE_FIGURE = replace(FLAVOURS[0], slots=(Slot("plain", "jpg", 1),))
_FIRST_INDEX = 900
"""Above the ids of valid articles."""

_SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><circle r="4"/></svg>'


def make_damaged_packages(folder: Path, *, seed: int = 0) -> list[Path]:
    """Write packages that each have one defect; return their paths.

        folder/
          damaged-truncated-image/          a truncated JPEG
          damaged-parent-path.tar.gz        an archive with a member called ../../escaped.jpg …

    Each contains one article with one figure, which would be usable without the defect.
    """
    paths = []
    for i, (name, damage) in enumerate(_IN_FOLDERS.items()):
        package = make_article(_FIRST_INDEX + i, _ONE_FIGURE, seed=seed)
        paths.append(write_folder(folder / f"damaged-{name}", damage(package)))
    package = make_article(_FIRST_INDEX + len(_IN_FOLDERS), _ONE_FIGURE, seed=seed)
    escaping = package.files | {"../../escaped.jpg": package.files[_image_name(package)]}
    paths.append(write_archive(folder / "damaged-parent-path.tar.gz", package.pmcid, escaping))
    package = make_article(_FIRST_INDEX + len(_IN_FOLDERS) + 1, _ONE_FIGURE, seed=seed)
    cut = write_archive(folder / "damaged-cut-archive.tar.gz", package.pmcid, package.files)
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    return [*paths, cut]


def _image_name(package: PackageFiles) -> str:
    return f"{package.figures[0][0].hrefs[0]}.jpg"


def _without_image(package: PackageFiles) -> dict[str, bytes]:
    image = _image_name(package)
    return {name: data for name, data in package.files.items() if name != image}


def _with_xml(package: PackageFiles, change: Callable[[bytes], bytes]) -> dict[str, bytes]:
    xml = change(package.files[package.xml_name])
    if xml == package.files[package.xml_name]:
        raise RuntimeError("nothing in this XML was damaged")
    return package.files | {package.xml_name: xml}


def _truncated_image(package: PackageFiles) -> dict[str, bytes]:
    image = package.files[_image_name(package)]
    return package.files | {_image_name(package): image[: len(image) // 2]}


def _bomb_image(package: PackageFiles) -> dict[str, bytes]:
    """Return a package whose PNG of a hundred bytes has 60,000 by 60,000 pixels: 10 GB decoded."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    body = chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    name = _image_name(package).replace(".jpg", ".png")
    return _without_image(package) | {name: b"\x89PNG\r\n\x1a\n" + header + body}


def _svg_graphic(package: PackageFiles) -> dict[str, bytes]:
    return _without_image(package) | {_image_name(package).replace(".jpg", ".svg"): _SVG}


def _malformed_xml(package: PackageFiles) -> dict[str, bytes]:
    return _with_xml(package, lambda xml: xml.replace(b"</body>", b"", 1))


def _no_figures(package: PackageFiles) -> dict[str, bytes]:
    def without(xml: bytes) -> bytes:
        start, end = xml.index(b"<fig "), xml.index(b"</fig>") + len(b"</fig>")
        return xml[:start] + xml[end:]

    return _with_xml(package, without)


def _with_entities(declared: bytes, package: PackageFiles, used: bytes) -> dict[str, bytes]:
    def change(xml: bytes) -> bytes:
        start, end = xml.index(b"<!DOCTYPE"), xml.index(b"<?properties")
        xml = xml[:start] + b"<!DOCTYPE article [" + declared + b"]>\n" + xml[end:]
        return xml.replace(b"<abstract>", b"<abstract><p>" + used + b"</p>", 1)

    return _with_xml(package, change)


def _external_entity(package: PackageFiles) -> dict[str, bytes]:
    return _with_entities(b'<!ENTITY x SYSTEM "file:///etc/passwd">', package, b"&x;")


def _entity_bomb(package: PackageFiles) -> dict[str, bytes]:
    levels = b"".join(b'<!ENTITY e%d "%s">' % (i, b"&e%d;" % (i - 1) * 30) for i in range(1, 7))
    return _with_entities(b'<!ENTITY e0 "ha">' + levels, package, b"&e6;")


def _no_xml(package: PackageFiles) -> dict[str, bytes]:
    return {name: data for name, data in package.files.items() if name != package.xml_name}


def _empty(package: PackageFiles) -> dict[str, bytes]:
    return {}


_IN_FOLDERS: dict[str, Callable[[PackageFiles], dict[str, bytes]]] = {
    "truncated-image": _truncated_image,
    "missing-image": _without_image,
    "bomb-image": _bomb_image,
    "svg-graphic": _svg_graphic,
    "malformed-xml": _malformed_xml,
    "no-figures": _no_figures,
    "external-entity": _external_entity,
    "entity-bomb": _entity_bomb,
    "no-xml": _no_xml,
    "empty": _empty,
}
