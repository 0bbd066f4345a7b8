"""A small harvest with every reason to leave a figure out."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from biovl.core import records
from biovl.core.artifacts import Draft, Manifest
from biovl.core.records import Article, Figure, Mention, Reference
from biovl.images.decode import inspect
from biovl.images.hashing import sha256_hex

CUT_OFF = "2025-06-01"
_WORDS = (
    "tumour lesion kidney liver spleen cortex retina femur vessel nerve plaque stain section scan"
).split()


def words(seed: int, count: int = 9) -> str:
    return " ".join(np.random.default_rng(seed).choice(_WORDS, count).tolist())


def picture(seed: int, kind: str = "PNG", **options: Any) -> bytes:
    """Return an image with large shapes, so that it has a telling hash."""
    small = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(small).resize((96, 96), Image.Resampling.BICUBIC).save(stream, kind, **options)
    return stream.getvalue()


def article(name: str, **changes: Any) -> dict[str, Any]:
    number = sum(ord(letter) * (n + 1) for n, letter in enumerate(name)) * 7919
    return {
        "article_id": name,
        "version": None,
        "pmid": None,
        "doi": f"10.5555/{name}",
        "title": f"On the {words(number, 7)} of {name}",
        "abstract": None,
        "journal": "Journal of Sections",
        "published": "2025-07-15",
        "article_type": "research-article",
        "language": "en",
        "license": "CC-BY-4.0",
        "license_url": "https://creativecommons.org/licenses/by/4.0/",
        "license_group": "commercial",
        "redistributable": True,
        "derivatives_allowed": True,
        "citation": f"Author of {name}. 2025.",
        "full_text": None,
        "figure_count": 1,
        "source_uri": f"s3://bucket/{name}",
        "xml_sha256": None,
        "retracted": False,
        "defect": None,
        "defect_detail": None,
        **changes,
    }


def figure(of: dict[str, Any], number: int = 1, **changes: Any) -> dict[str, Any]:
    seed = sum(ord(letter) * (n + 1) for n, letter in enumerate(of["source_uri"])) * 13 + number
    data = changes.pop("image", None) or picture(seed)
    look = inspect(data)
    citing = f"The {words(seed + 1)} was unchanged in all of them (Fig. {number}A)."
    start = citing.index("Fig.")
    inherited = ("license", "license_group", "redistributable", "derivatives_allowed", "retracted")
    return {
        **dict.fromkeys(("xml_id", "parent_figure_id", "alt_text", "credit", "section")),
        "figure_id": f"{of['source_uri'].rpartition('/')[2]}-F{number}",
        "article_id": of["article_id"],
        "source_uri": of["source_uri"],
        "kind": "figure",
        "figure_label": f"Figure {number}",
        "caption": f"Figure {number}. (A) The {words(seed)} of a mouse.",
        "caption_bold": [],
        "caption_superscripts": [],
        "mentions": [
            Mention(
                text=f"Mice were used. {citing}",
                refs=[Reference(start + 16, start + 23, ["A"], False)],
                superscripts=[],
                container="body",
            )
        ],
        "graphic_href": "f1",
        "image_name": "f1.png",
        "image": data,
        "image_format": "png",
        "image_mode": "RGB",
        "size_bytes": len(data),
        "width_px": look.width_px,
        "height_px": look.height_px,
        "image_sha256": sha256_hex(data),
        "phash": look.phash,
        "defect": None,
        "defect_detail": None,
        **{name: of[name] for name in inherited},
        **changes,
    }


def publish_harvest(
    folder: Path, articles: list[dict[str, Any]], figures: list[dict[str, Any]]
) -> Path:
    """Publish a harvest in two units, as the job does."""
    draft = Draft.begin(str(folder), "figures", {"of": len(figures)}, [], defaults={})
    files = {}
    for unit in range(2):
        own = articles[unit::2]
        uris = {one["source_uri"] for one in own}
        rows = [one for one in figures if one["source_uri"] in uris]
        for table, record, values in (
            ("articles", Article, own),
            ("figures", Figure, rows),
        ):
            name = f"{table}/part-{unit:06d}-000.parquet"
            (folder / table).mkdir(parents=True, exist_ok=True)
            made = records.table(record, [record(**row) for row in values])
            pq.write_table(made, folder / name, row_group_size=3)
            files[name] = {"rows": len(values), "size_bytes": (folder / name).stat().st_size}
    draft.publish(Manifest(kind="figures", config={"of": len(figures)}, counts={}, files=files))
    return folder
