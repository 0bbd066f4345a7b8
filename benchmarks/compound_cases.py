"""Figures, captions and sentences with their truth: drawn ones, and those of folders.

A folder has ``panels.jsonl``, ``captions.jsonl`` and ``citances.jsonl``, or some of them, one case
per line. A text or an image that a line lacks is looked up by article and figure in published
articles: ``packages/`` and ``nxml.tar.gz`` of ``--shared``.
"""

import hashlib
import io
import json
import re
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from biovl.articles.citances.extraction import citances
from biovl.core.records import Figure, Span
from biovl.harvest.rows import rows
from biovl.harvest.sources import Package
from biovl.harvest.sources.packages import Config, build
from biovl.images import decode
from biovl.images.boxes import Box
from biovl.sample.compound.figures import Compound, make_compound
from biovl.split.rows import figure_of

VERSION = 2
"""Changes if the scores of an unchanged method change."""

FIRST_SEED = 50_000
"""Drawn figures begin where the seeds used for training and trials end."""

FOLDS = 4
_SHARED_SETS = {"captions": "captions.jsonl", "zou": "zou_subcaptions.jsonl"}
_PUBLISHER = re.compile(rb"<publisher-name>\s*([^<]+?)\s*</publisher-name>")


@dataclass(frozen=True)
class TruePanel:
    """A panel; its label and the label's box if it has them, and its part of the caption."""

    label: str | None
    box: Box
    label_box: Box | None
    own: str
    """The text about this panel alone."""
    text: str
    """The text about it: preamble, own part and trailing text."""


@dataclass(frozen=True)
class Case:
    """A figure and its true panels; none or one if it is not compound."""

    set: str
    article: str
    publisher: str
    row: Figure
    panels: tuple[TruePanel, ...]
    has_trailing: bool = True
    """Whether the text that follows all parts was told from the last one."""

    @property
    def name(self) -> str:
        """Article and figure."""
        return self.row.figure_id

    @cached_property
    def pixels(self) -> np.ndarray:
        """RGB, uint8, shape [H, W, 3]."""
        pixels = decode.decode_rgb(self.row.image or b"").pixels
        if pixels is None:
            raise ValueError(f"the image of {self.name} does not decode")
        return pixels

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of the caption, each once."""
        return tuple(dict.fromkeys(panel.label for panel in self.panels if panel.label))


@dataclass(frozen=True)
class CaptionCase:
    """A caption and the text of each label: with what holds for all, and the own part if known."""

    set: str
    article: str
    publisher: str
    name: str
    caption: str
    texts: dict[str, str]
    own: dict[str, str] | None
    bold: tuple[Span, ...] = ()
    cited: tuple[str, ...] = ()


@dataclass(frozen=True)
class CitanceCase:
    """A sentence and what it cites."""

    set: str
    article: str
    publisher: str
    sentence: str
    cited: frozenset[tuple[str, str, str]]
    """Kind, figure and panel; the panel is empty for the figure as a whole."""


def fold_of(article: str) -> int:
    """Return the fold of an article, 0..3."""
    return hashlib.blake2b(article.encode()).digest()[0] % FOLDS


# Drawn figures.


def drawn(stratum: str, figures: int) -> Iterator[Case]:
    """Yield drawn figures of a stratum."""
    for seed in range(FIRST_SEED, FIRST_SEED + figures):
        yield case_of(make_compound(seed, stratum))


def case_of(figure: Compound) -> Case:
    """Return a drawn figure as a case; its name is its stratum and seed."""
    name = f"{figure.stratum}-{figure.seed}"
    panels = tuple(
        TruePanel(
            panel.label,
            panel.box,
            panel.label_box,
            panel.sub_caption,
            _joined(figure.preamble, panel.sub_caption, figure.trailing),
        )
        for panel in figure.panels
    )
    stream = io.BytesIO()
    Image.fromarray(figure.pixels).save(stream, "PNG", compress_level=1)
    row = _row(name, figure.caption, stream.getvalue())
    # The last part may end with a scale bar, which may well be that of all panels.
    return Case(figure.stratum, name, "", row, panels, has_trailing=False)


def write(cases: Iterable[Case], folder: Path) -> int:
    """Write cases to a folder as ``read`` reads them; return their number."""
    (folder / "images").mkdir(parents=True, exist_ok=True)
    lines = []
    for case in cases:
        image = f"images/{case.name}.png"
        (folder / image).write_bytes(case.row.image or b"")
        panels = [
            {
                "label": panel.label,
                "box": _corners(panel.box),
                "label_box": panel.label_box and _corners(panel.label_box),
                "own": panel.own,
                "text": panel.text,
            }
            for panel in case.panels
        ]
        line = {"set": case.set, "article": case.article, "figure": "", "image": image}
        lines.append({**line, "caption": case.row.caption, "panels": panels})
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (folder / "panels.jsonl").write_text(text)
    return len(lines)


# Folders, and the articles behind them.


class Articles:
    """Figures of published articles by article and id, read when they are needed."""

    def __init__(self, shared: Path | None) -> None:
        self.shared = shared
        self._known: dict[str, tuple[str, list[Figure]]] = {}

    @cached_property
    def _xml(self) -> dict[str, bytes]:
        """Articles without images, by folder."""
        if self.shared is None:
            return {}
        with tarfile.open(self.shared / "nxml.tar.gz") as archive:
            return {
                Path(member.name).parts[1]: stream.read()
                for member in archive
                if (stream := archive.extractfile(member))
            }

    def figures(self, article: str) -> tuple[str, list[Figure]]:
        """Return an article's publisher and figures; none if the article is not there."""
        if article not in self._known:
            publisher, found = "", list[Figure]()
            # A package can be read until the next one is requested.
            for package in self._packages(article):
                found += [row for row in rows(package) if isinstance(row, Figure)]
                named = _PUBLISHER.search(package.xml or b"")
                publisher = " ".join(unescape(named[1].decode()).split()) if named else publisher
            self._known[article] = publisher, found
        return self._known[article]

    def _packages(self, article: str) -> Iterator[Package]:
        path = self.shared and self.shared / "packages" / f"{article}.tar.gz"
        if path and path.exists():
            source = build(Config(path=str(path)))
            for address in source.addresses():
                yield from source.read(address)
        elif article in self._xml:
            yield Package(name=article, uri=article, xml=self._xml[article])

    def figure(self, line: Mapping[str, Any]) -> tuple[str, Figure] | None:
        """Return the publisher and the row of the figure that a line names, if it is unchanged."""
        publisher, found = self.figures(line.get("article", ""))
        # A line with a caption has an image of its own.
        image = "" if "caption" in line else Path(line.get("image") or "").name
        for row in found:
            same = Path(row.image_name or "").name == image if image else True
            # A figure without an id in the XML has its number.
            is_named = line.get("figure") in (row.xml_id, row.figure_id.rpartition("_")[2])
            if is_named and same and _is_same(row.caption, line):
                return publisher, row
        return None


def read(folder: Path, articles: Articles) -> Iterator[Case]:
    """Yield the figures of a folder; damaged ones are left out, those not found are reported."""
    for line in _lines(folder / "panels.jsonl"):
        if line.get("damaged"):
            continue
        name = "-".join(filter(None, (line["article"], line.get("figure"))))
        known = articles.figure(line)
        if "caption" in line:
            row = _row(name, line["caption"], (folder / line["image"]).read_bytes())
            row = replace(row, **_hints(known, line))
        elif known is None or known[1].image is None:
            print(f"{folder}: {name} was not found, or has changed", file=sys.stderr)
            continue
        else:
            row = replace(known[1], figure_id=name)
        publisher = known[0] if known else line.get("publisher", "")
        panels = () if line.get("single") else tuple(_panels(line, row.caption))
        set_name = line.get("set") or folder.name
        yield Case(set_name, line["article"], publisher, row, panels)


def read_captions(folder: Path, articles: Articles) -> Iterator[CaptionCase]:
    """Yield the captions of a folder."""
    for line in _lines(folder / "captions.jsonl"):
        known = articles.figure(line)
        if known is None and "caption" not in line:
            print(f"{folder}: {line['article']} {line['figure']} not found", file=sys.stderr)
            continue
        caption = line["caption"] if "caption" in line else known[1].caption
        publisher = known[0] if known else line.get("publisher", "")
        bold = known[1].caption_bold if known else ()
        cited = cited_panels(known[1]) if known else ()
        article = line.get("article") or line["pmcid"]
        own: dict[str, str] = {}
        for part in line["parts"]:
            text = part["text"] if "text" in part else _text(part["spans"], caption)
            for label in part["labels"]:
                own[label] = _joined(own.get(label, ""), text)
        texts = {label: _around(line, caption, text) for label, text in own.items()}
        name = f"{article} {line.get('figure') or line.get('fig_id')}"
        yield CaptionCase(
            *(folder.name, article, publisher, name, caption, texts, own, tuple(bold), cited)
        )


def read_zou(folder: Path) -> Iterator[CaptionCase]:
    """Yield Zou's captions, which have the whole text of each panel alone."""
    for line in _lines(folder / "zou_subcaptions.jsonl"):
        texts = {panel["label"]: panel["caption"] for panel in line["panels"] if panel["label"]}
        image = line["image"]
        yield CaptionCase("zou", image, "", image, line["caption"], texts, None)


def read_citances(folder: Path, articles: Articles) -> Iterator[CitanceCase]:
    """Yield the sentences of a folder; one given by its place is looked up in the mentions."""
    for line in _lines(folder / "citances.jsonl"):
        article = line.get("article") or line["pmcid"]
        sentence, publisher = line["sentence"], line.get("publisher", "")
        if not isinstance(sentence, str):
            publisher, found = articles.figures(article)
            texts = {_sha256(m.text): m.text for row in found for m in row.mentions}
            paragraph = line.get("paragraph") or texts.get(line["paragraph_sha256"])
            if paragraph is None:
                print(f"{folder}: a paragraph of {article} was not found", file=sys.stderr)
                continue
            sentence = paragraph[slice(*sentence)]
        refs = ((ref["kind"], ref["figure"], ref["panels"]) for ref in line["refs"])
        yield CitanceCase(folder.name, article, publisher, sentence, cited(refs))


def read_shared(shared: Path) -> Iterator[Case]:
    """Yield the figures of ``cases/panels.jsonl``: the image alone is looked up."""
    for line in _lines(shared / "cases" / "panels.jsonl"):
        with tarfile.open(shared / "packages" / f"{line['package']}.tar.gz") as archive:
            member = next(m for m in archive.getmembers() if Path(m.name).name == line["image"])
            stream = archive.extractfile(member)
            if stream is None:
                raise FileNotFoundError(f"{line['package']} has no file {line['image']}")
            row = _row(f"{line['package']}-{line['image']}", line["caption"], stream.read())
        panels = tuple(_panels(line, line["caption"]))
        yield Case("cases", line["package"], "", row, panels, has_trailing=False)


def cited(figures: Iterable[tuple[str, str, Iterable[str]]]) -> frozenset[tuple[str, str, str]]:
    """Return the panels of references, given as kind, figure and panels."""
    return frozenset(
        (kind, figure, panel)
        for kind, figure, panels in figures
        for panel in (list(panels) or [""])
    )


def cited_panels(row: Figure) -> tuple[str, ...]:
    """Return the panels that sentences of the article cite: a hint for the caption's splitter."""
    found = citances(row.mentions, row.figure_label)
    return tuple({panel.partition(" (")[0] for one in found for panel in one.panels})


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def _row(name: str, caption: str, image: bytes) -> Figure:
    kind = decode.inspect(image).format
    values = {"figure_id": name, "article_id": name, "caption": caption, "image": image}
    return figure_of({**values, "image_format": kind, "derivatives_allowed": True})


def _panels(line: Mapping[str, Any], caption: str) -> Iterator[TruePanel]:
    for panel in line["panels"]:
        at = panel.get("label_box")
        own = panel.get("own", panel.get("caption"))
        if own is None:
            own = _text(panel.get("spans") or (), caption)
        text = panel.get("text") or _around(line, caption, own)
        yield TruePanel(panel["label"], Box(*panel["box"]), Box(*at) if at else None, own, text)


def _around(line: Mapping[str, Any], caption: str, own: str) -> str:
    """Return a part with the text that holds for all parts."""
    before, behind = (_text(line.get(name) or (), caption) for name in ("preamble", "trailing"))
    return _joined(before, own, behind)


def _text(value: str | Sequence[Any], caption: str) -> str:
    """Return a text, or the text between offsets: ``[start, end]`` or a list of these."""
    if isinstance(value, str):
        return value
    spans = [value] if len(value) == 2 and isinstance(value[0], int) else value
    return _joined(*(caption[start:end] for start, end in spans))


def _joined(*texts: str) -> str:
    return " ".join(text.strip() for text in texts if text.strip())


def _hints(known: tuple[str, Figure] | None, line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the article knows of a caption: bold type, and the sentences that cite it."""
    if known is None:
        return {"caption_bold": [Span(*ends) for ends in line.get("bold", ())]}
    names = ("caption_bold", "caption_superscripts", "figure_label", "mentions")
    return {name: getattr(known[1], name) for name in names}


def _is_same(caption: str, line: Mapping[str, Any]) -> bool:
    if "caption" in line:
        return caption == line["caption"]
    return _sha256(caption) == line.get("caption_sha256")


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _corners(box: Box) -> list[float]:
    return [round(value, 1) for value in (box.x0, box.y0, box.x1, box.y1)]
