"""Long captions from harvested articles: one figure per article, its caption with inline mentions.

Source: BMC-LongCLIP (arXiv:2510.03978), section 2 and appendix C: articles of 2025, "exactly one
unique image-caption pair" of each, "concatenating inline references with figure captions"; 1,000
articles, 510 tokens of BioClinical-ModernBERT on average.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.assemble.duplicates import superseded
from biovl.assemble.steps import candidates_of
from biovl.benchmark import selection
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.datasets.reports import drawn_key
from biovl.benchmark.stored_images import Chosen, Column, hash_of
from biovl.core.artifacts import fingerprint, read_manifest
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.harvests import HarvestPart
from biovl.core.tables import parts_of, read_table

OTHER_YEAR, NOT_DRAWN = "of another year", "not drawn: one figure of an article"
DEFECT, NO_MENTION, REPEATED = "image has a defect", "no mention", "text or image of another"
TOO_MANY, RETRACTED = "not drawn: enough articles", "article retracted"
SUPERSEDED = "a newer version is there"
_KEPT = ("figure_id", "article_id", "text", "caption_tokens", "text_tokens", "license_group")


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of the dataset: long captions of harvested articles."""

    path: str
    """The folder published by harvest, local or ``s3://``."""
    years: tuple[int, ...] = (2025,)
    """Years of publication, which should be later than a model's training data; empty: all."""
    articles: int = 1_000
    """Number of articles to draw; 0: all."""
    seed: int = 0
    """Seed of the draw."""


def build(config: Config) -> Pairs:
    """Return one pair per article, with distinct images and texts; captions come before mentions.

    Of several versions of an article, the newest usable one is read.

    Raises:
        ArtifactError: If there are no suitable figures.
    """
    manifest = read_manifest(config.path, "figures")
    names = parts_of(manifest)
    left_out, usable, first = Counter[str](), list[dict[str, Any]](), 0
    older = _older_versions(Folder(config.path))
    for name in names:
        rows = candidates_of(HarvestPart(config.path, name, (), (), ()), "caption+mentions")
        for at, row in enumerate(rows.to_pylist()):
            reason = _reason(row, config.years, older)
            if reason is None:
                values = {name: row[name] for name in _KEPT}
                usable.append({**values, "sha": row["image_sha256"], "row": first + at})
            else:
                left_out[reason] += 1
        first += len(rows)
    chosen = _drawn(usable, config, left_out)
    if not chosen:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(left_out.items()))
        raise ArtifactError(f"{config.path} has no figure to draw: {reasons or 'it is empty'}")
    images = Column(
        config.path,
        tuple((name, manifest.files[name]["rows"]) for name in names),
        "image",
        hash_of(fingerprint(config.path), "image"),
    )
    texts = [str(row["text"]) for row in chosen]
    about = pa.Table.from_pylist([{name: row[name] for name in _KEPT[3:]} for row in chosen])
    return selection.pairs(
        name="long_captions",
        images=Chosen(images, np.array([row["row"] for row in chosen], np.int64)),
        texts=texts,
        ids=[str(row["figure_id"]) for row in chosen],
        about=about,
        left_out=+left_out,
    )


def _older_versions(folder: Folder) -> set[str]:
    """Return the ``source_uri`` of each article of which a newer usable version is there."""
    # Of all units at once: versions of an article may be in different ones.
    articles = pa.concat_tables(
        read_table(folder, f"articles/{part}", ("source_uri", "article_id", "version", "defect"))
        for part in folder.names("articles", ".parquet")
    )
    gives_way = superseded(
        articles["article_id"].to_pylist(),
        articles["version"].to_pylist(),
        pc.is_null(articles["defect"]).to_numpy(zero_copy_only=False),
    )
    return set(articles["source_uri"].filter(pa.array(gives_way)).to_pylist())


def _reason(row: Mapping[str, Any], years: Sequence[int], older: Set[str]) -> str | None:
    if row["source_uri"] in older:
        return SUPERSEDED
    if row["retracted"]:
        return RETRACTED
    if years and (row["published"] or "")[:4] not in {str(year) for year in years}:
        return OTHER_YEAR
    if row["defect"] is not None:
        return DEFECT
    return NO_MENTION if not row["mention_count"] else None


def _drawn(
    usable: Sequence[dict[str, Any]], config: Config, left_out: Counter[str]
) -> list[dict[str, Any]]:
    """Return one figure per article, in the order of the table."""
    order = sorted(usable, key=lambda row: drawn_key(row["figure_id"], config.seed))
    chosen, used = list[dict[str, Any]](), set[tuple[str, object]]()
    for row in order:
        if ("article", row["article_id"]) in used:
            left_out[NOT_DRAWN] += 1
        elif ("image", row["sha"]) in used or ("text", row["text"]) in used:
            left_out[REPEATED] += 1
        elif config.articles and len(chosen) == config.articles:
            left_out[TOO_MANY] += 1
        else:
            chosen.append(row)
            used |= {("article", row["article_id"]), ("image", row["sha"]), ("text", row["text"])}
    return sorted(chosen, key=lambda row: int(row["row"]))
