"""Write synthetic articles as packages in the layout of PMC: folders and archives."""

import gzip
import io
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from biovl.sample.articles import write_article
from biovl.sample.figures import DrawnFigure, caption_of, draw_figure, encode, thumbnail
from biovl.sample.flavours import FLAVOURS, Flavour, Slot
from biovl.sample.prose import Manuscript, PlacedFigure
from biovl.sample.words import TOPICS, Rng, pick

FIRST_PMCID = 9_990_000_001
"""Real PMCIDs and PMIDs have eight digits."""

_REUSED_IN, _REUSED_FROM = 3, (0, 0)
_REENCODED_IN, _REENCODED_FROM = 5, (1, 1)


@dataclass(frozen=True)
class PackageFiles:
    """Files of one synthetic article, in the layout of PMC."""

    pmcid: str
    xml_name: str
    files: dict[str, bytes]
    """Content of every file in the package, including the XML, by name."""
    figures: tuple[tuple[PlacedFigure, DrawnFigure], ...]


def make_packages(folder: Path, *, articles: int = 24, seed: int = 0) -> list[Path]:
    """Write PMC packages whose captions describe the figures; return their paths in order.

        folder/
          PMC9990000001/            XML, images, PDF
          PMC9990000002.tar.gz      the same in an archive: every second article

    The six publishers of ``flavours.FLAVOURS`` alternate. Equal seeds give equal bytes; fewer
    articles are the first ones of a larger sample. The fourth article repeats a figure of the first
    (the same bytes), the sixth one of the second (re-encoded).
    """
    earlier: list[PackageFiles] = []
    paths = []
    for index in range(articles):
        flavour = FLAVOURS[index % len(FLAVOURS)]
        package = make_article(index, flavour, seed=seed, earlier=earlier)
        earlier.append(package)
        paths.append(
            write_archive(folder / f"{package.pmcid}.tar.gz", package.pmcid, package.files)
            if index % 2
            else write_folder(folder / package.pmcid, package.files)
        )
    return paths


def make_article(
    index: int, flavour: Flavour, *, seed: int, earlier: Sequence[PackageFiles] = ()
) -> PackageFiles:
    """Return the package of an article, which may repeat figures of ``earlier`` packages."""
    rng = np.random.default_rng((seed, index))
    serial = FIRST_PMCID + index
    pmcid = f"PMC{serial}"
    topic = TOPICS[(index * 5 + seed) % len(TOPICS)]
    files: dict[str, bytes] = {}
    figures: list[tuple[PlacedFigure, DrawnFigure]] = []
    number = 0
    for position, slot in enumerate(flavour.slots, start=1):
        structure = slot.structure
        if structure == "reused" and index == _REUSED_IN:
            article, which = _REUSED_FROM
            drawn, quality = earlier[article].figures[which][1], 88
        elif structure == "reencoded" and index == _REENCODED_IN:
            article, which = _REENCODED_FROM
            drawn, quality = earlier[article].figures[which][1], 60
        else:
            panels = slot.panels or int(pick(rng, (1, 1, 2, 2, 3, 4)))
            drawn = draw_figure(topic, rng, panels=panels, letters=flavour.letters)
            quality = 88
        second = len(figures) > 0 and figures[-1][0].slot.structure == "member"
        if structure not in ("child", "response", "graphical", "video") and not (
            structure == "member" and second
        ):
            number += 1
        stem = flavour.stem.format(serial, position)
        hrefs, images = _published(drawn, slot, stem, quality, rng)
        files |= images
        caption = caption_of(
            drawn,
            rng,
            flow=structure if structure in ("paragraphs", "list") else "paragraph",
            spanish=flavour.language == "es",
        )
        panel = drawn.panels[0]
        figures.append(
            (
                PlacedFigure(
                    slot,
                    number,
                    _xml_id(flavour, slot, number, second=second),
                    _label(flavour, slot, number),
                    hrefs,
                    caption,
                    drawn.letters,
                    panel.spanish if flavour.language == "es" else panel.subject,
                ),
                drawn,
            )
        )
    extras, others = _extras(flavour, serial, rng)
    manuscript = Manuscript(
        serial, pmcid, flavour, index // len(FLAVOURS), topic, tuple(f for f, _ in figures), extras
    )
    xml_name = f"{flavour.name}-{serial}{flavour.suffix}"
    files |= others | {xml_name: write_article(manuscript)}
    return PackageFiles(pmcid, xml_name, files, tuple(figures))


def _xml_id(flavour: Flavour, slot: Slot, number: int, *, second: bool) -> str | None:
    own = flavour.figure_id.format(number)
    suffix = {"child": "s1", "video": "video1", "member": "b" if second else "a"}
    if slot.structure == "no_id":
        return None
    if slot.structure == "response":
        return "respfig1"
    return own + suffix.get(slot.structure, "")


def _label(flavour: Flavour, slot: Slot, number: int) -> str | None:
    match slot.structure:
        case "no_label" | "graphical":
            return None
        case "child":
            return f"Figure {number}—figure supplement 1."
        case "video":
            return "Video 1."
        case "response":
            return "Author response image 1."
        case _:
            return flavour.label.format(number)


def _published(
    drawn: DrawnFigure, slot: Slot, stem: str, quality: int, rng: Rng
) -> tuple[tuple[str, ...], dict[str, bytes]]:
    """Return the names of a figure's graphics in the XML, and the files in the package."""
    pixels = drawn.pixels
    jpeg = {f"{stem}.jpg": encode(pixels, "JPEG", quality=quality)}
    if slot.structure == "parts":  # a figure over two pages: a row of panels on each
        middle = len(pixels) // 2
        halves = {f"{stem}a.jpg": pixels[:middle], f"{stem}b.jpg": pixels[middle:]}
        return (f"{stem}a", f"{stem}b"), {n: encode(half, "JPEG") for n, half in halves.items()}
    match slot.files:
        case "jpg+gif":
            small = encode(thumbnail(pixels), "GIF")
            return (stem,), jpeg | {f"{stem}.gif": small}
        case "jpg+tif":  # the deposited original and a smaller copy for the screen
            screen = encode(thumbnail(pixels, width_px=pixels.shape[1] * 2 // 3), "JPEG")
            return (stem,), {f"{stem}.jpg": screen, f"{stem}.tif": encode(pixels, "TIFF")}
        case "tif":
            return (f"{stem}.tif",), {f"{stem}.tif": encode(pixels, "TIFF")}
        case "jpg+print":
            paper = encode(pixels, "TIFF", mode="L")
            return (stem, f"{stem}_print"), jpeg | {f"{stem}_print.tif": paper}
        case "png":
            return (stem,), {f"{stem}.png": encode(pixels, "PNG")}
        case "webp":
            return (f"{stem}.webp",), {f"{stem}.webp": encode(pixels, "WEBP")}
        case "cmyk":
            return (stem,), {f"{stem}.jpg": encode(pixels, "JPEG", mode="CMYK")}
        case "tif16":
            return (f"{stem}.tif",), {f"{stem}.tif": encode(pixels, "TIFF", mode="I;16")}
        case "png16":
            return (stem,), {f"{stem}.png": encode(pixels, "PNG", mode="I;16")}
        case "case":
            return (f"{stem}.jpg",), {f"{stem.upper()}.JPG": jpeg[f"{stem}.jpg"]}
        case "mp4":
            return (f"{stem}.mp4",), {f"{stem}.mp4": b"\0\0\0\x18ftypmp42" + rng.bytes(500)}
        case _:
            return (stem,), jpeg


def _extras(flavour: Flavour, serial: int, rng: Rng) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return graphics and files of a package that are not figures, by purpose and by name."""
    pdf = b"%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n"
    grey = np.full((120, 300, 3), 255, np.uint8)
    grey[::20] = 60
    names, files = {"supplement": f"{flavour.name}-{serial}-s001.pdf"}, {f"{serial}.pdf": pdf}
    files[names["supplement"]] = pdf
    if flavour.name in ("pmc", "plos"):
        names["equation"] = flavour.stem.format(serial, 901).replace("g901", "e001")
        files[f"{names['equation']}.gif"] = encode(grey[:30, :90], "GIF")
    if flavour.name in ("plos", "biorxiv"):
        names["table"] = flavour.stem.format(serial, 902).replace("g902", "t001")
        files[f"{names['table']}.jpg"] = encode(grey, "JPEG")
    if flavour.name == "springer":
        names["portrait"] = f"SMC_{serial}_Figa_HTML"
        noise = rng.integers(0, 255, (90, 70, 3), np.uint8)
        files[f"{names['portrait']}.jpg"] = encode(noise, "JPEG")
    return names, files


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    """Write files into a new folder, and return its path."""
    folder.mkdir(parents=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def write_archive(path: Path, top: str, files: dict[str, bytes]) -> Path:
    """Write a .tar.gz with one top-level folder, without times or owners; return its path."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(archive.getvalue(), compresslevel=1, mtime=0))
    return path
