"""Figures as cards: thumbnail, caption, source and licence."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from biovl.chain.page.markup import parts
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.core.shards import read_pair
from biovl.core.tables import open_part
from biovl.images.decode import decode_rgb
from biovl.images.encode import thumbnail

THUMBNAIL_PX = 240

_COLUMNS = (
    *("pair_id", "article_id", "figure_label", "caption", "journal", "published", "license"),
    *("license_group", "split", "shard", "offset", "size"),
)
_LOOKED_AT = 4_096
"""Figures are selected among the first rows only, so that the index of a large corpus is not read
completely."""


def sample_figures(corpus: str, count: int) -> list[dict[str, Any]]:
    """Return up to ``count`` figures of a corpus, of different articles if possible."""
    folder = Folder(corpus)
    with open_part(folder, "index.parquet") as file:
        batch = next(file.iter_batches(_LOOKED_AT, columns=list(_COLUMNS)), None)
    rows: list[dict[str, Any]] = [] if batch is None else batch.to_pylist()
    of_article: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        of_article.setdefault(row["article_id"], []).append(row)
    articles = list(of_article.values())
    # The n-th figure of the n-th article, so that not all are first figures.
    turns = [
        figures[(number + turn) % len(figures)]
        for turn in range(count)
        for number, figures in enumerate(_spread(articles, count))
        if turn < len(figures)
    ]
    return turns[:count]


def _spread(items: Sequence[Any], count: int) -> list[Any]:
    if len(items) <= count:
        return list(items)
    return [items[number * len(items) // count] for number in range(count)]


def small_image(corpus: str, row: Mapping[str, Any]) -> bytes | None:
    """Return the image of a corpus pair as a small JPEG; None if it cannot be read."""
    try:
        files = read_pair(below(corpus, row["shard"]), row["offset"], row["size"])
    except ArtifactError:
        return None
    for kind, data in files.items():
        if kind not in ("txt", "json"):
            decoded = decode_rgb(data)
            if decoded.pixels is not None:
                return thumbnail(decoded.pixels, longer_side_px=THUMBNAIL_PX)
    return None


def licence(spdx: str | None) -> str:
    """Return the display name of a licence; custom identifiers lose their prefix."""
    return (spdx or "no licence found").removeprefix("LicenseRef-")


def card(about: Mapping[str, Any], image: bytes | None, *, corner: str = "") -> Markup:
    """Return a figure as a card; a click on the caption shows its full text.

    Args:
        about: Columns of a corpus or an index: caption, figure_label, journal, license …
        image: A small JPEG.
        corner: Text next to the label, such as a score.
    """
    label = about.get("figure_label") or "Figure"
    source = " · ".join(filter(None, [about.get("journal"), str(about.get("published") or "")[:4]]))
    group = about.get("license_group")
    if group not in ("commercial", "noncommercial"):
        group = "other"
    return parts.card(about, image, label, source, licence(about.get("license")), group, corner)
