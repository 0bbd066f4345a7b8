"""Figures of harvested articles that may be in the task, and why others are left out."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from biovl.articles import rights
from biovl.articles.captions import readable
from biovl.assemble.duplicates import superseded
from biovl.benchmark.figure_retrieval.config import FigureRetrievalConfig
from biovl.benchmark.figure_retrieval.queries import caption_query, mention_query
from biovl.core.artifacts import Manifest
from biovl.core.folders import Folder
from biovl.core.records import Mention, Reference, Span
from biovl.core.tables import open_part, parts_of

EARLIER, UNDATED = "published before the cut-off", "publication date missing or not precise enough"
SUPERSEDED, HAD_VERSION = "a newer version is there", "an earlier version before the cut-off"
PREPRINT, UNREADABLE = "preprint", "article unreadable"
SAME_TITLE = "an article of the same title before the cut-off"
OTHER_GROUP = "another licence group"
CHANGES = "licence does not permit changed texts"
NO_FIGURE, DEFECT = "not a figure of the article's own", "image has a defect"
FORMAT = "image format that browsers do not show"
NO_CAPTION, NO_MENTION = "caption too short", "no sentence that cites it alone"

_FORMATS = ("jpeg", "png", "gif", "webp")
# Journals of Cold Spring Harbor Laboratory Press have 10.1101, too: 10.1101/gr.275871.121.
_PREPRINT_DOI = re.compile(
    r"10\.(?:1101/\d|21203|48550|2139/ssrn|20944/preprints|31219|31234|26434|36227|55458|64898)"
)
_PREPRINT_SERVERS = re.compile(
    r"\b(?:biorxiv|medrxiv|arxiv|chemrxiv|research square|preprints?(?:\.org)?|ssrn|osf)\b", re.I
)
_ARTICLES = (
    *("source_uri", "article_id", "version", "doi", "pmid", "title", "journal", "published"),
    *("article_type", "license", "license_url", "license_group", "citation", "defect"),
    *("redistributable", "derivatives_allowed", "retracted"),
)
_FIGURES = (
    *("figure_id", "article_id", "source_uri", "kind", "figure_label", "caption", "mentions"),
    *("caption_superscripts", "credit", "image_name", "image_format", "width_px", "height_px"),
    *("image_sha256", "phash"),
    *("license", "license_url", "license_group", "redistributable", "derivatives_allowed"),
    *("third_party", "retracted", "defect"),
)


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A figure that may be part of the retrieval task."""

    figure_id: str
    article_id: str
    part: str
    """File of its row in the harvest."""
    row: int
    """Row in the file."""
    caption: str
    """Query: the caption without the label."""
    mention: str
    """Query: the citing sentence without references."""
    suffix: str
    """Suffix of the image file."""
    look: Mapping[str, Any]
    """Row of ``image_hashes.LOOKS``."""
    credits: Mapping[str, str]
    """Article, citation and licence; no value is null."""


@dataclass
class Harvest:
    """Candidates of a harvest, and what was left out."""

    candidates: list[Candidate] = field(default_factory=list)
    articles: Counter[str] = field(default_factory=Counter)
    """Number of articles left out, by reason."""
    figures: dict[str, str] = field(default_factory=dict)
    """Reason for each figure that is left out, of articles that are used."""
    unknown_retraction: int = 0
    """Articles of candidates of which nobody states whether they are retracted."""


def read_harvest(config: FigureRetrievalConfig, manifest: Manifest) -> Harvest:
    """Return the candidates of a harvest; reads no image."""
    folder, found = Folder(config.figures), Harvest()
    articles = _articles(folder)
    used = _used(config, articles, found)
    for part in parts_of(manifest):
        rows = _read(folder, part, _FIGURES)
        places = pc.index_in(rows["source_uri"], pa.array(list(used), pa.string()))
        for place in pc.indices_nonzero(places.is_valid()).to_pylist():
            row = rows.slice(place, 1).to_pylist()[0]
            article = used[row["source_uri"]]
            made = _candidate(config, row, article, part, place)
            if isinstance(made, str):
                found.figures[row["figure_id"]] = made
            else:
                found.candidates.append(made)
    ids = {one.article_id for one in found.candidates}
    found.unknown_retraction = sum(
        article["retracted"] is None for article in used.values() if article["article_id"] in ids
    )
    return found


def first_day(published: str | None) -> str:
    """Return the earliest day that a publication date can mean; empty without a date."""
    return f"{published}-01-01"[: len("2025-01-01")] if published else ""


def title_key(title: str | None) -> str:
    """Return a title without case and punctuation; empty if it is too short to identify."""
    words = re.findall(r"\w+", (title or "").casefold())
    return " ".join(words) if len(words) >= 5 else ""


def _articles(folder: Folder) -> pa.Table:
    tables = [
        _read(folder, f"articles/{name}", _ARTICLES)
        for name in folder.names("articles", ".parquet")
    ]
    return pa.concat_tables(tables, promote_options="default")


def _used(
    config: FigureRetrievalConfig, articles: pa.Table, found: Harvest
) -> dict[str, dict[str, Any]]:
    """Return the articles of the task by ``source_uri``."""
    published = articles["published"].to_pylist()
    late = [first_day(day) >= config.after for day in published]
    # "2025" is neither before nor after a day in June.
    unclear = [
        not late[n] and (not day or f"{day}-99-99"[: len(config.after)] >= config.after)
        for n, day in enumerate(published)
    ]
    versions = superseded(
        articles["article_id"].to_pylist(),
        articles["version"].to_pylist(),
        pc.is_null(articles["defect"]).to_numpy(zero_copy_only=False),
    )
    early = articles.filter(pa.array([not one for one in late]))
    known_ids = set(early["article_id"].to_pylist())
    titles = {title_key(title) for title in early["title"].to_pylist()} - {""}
    used = {}
    for n, row in enumerate(articles.to_pylist()):
        reason = (
            (UNDATED if unclear[n] else EARLIER)
            if not late[n]
            else SUPERSEDED
            if versions[n]
            else _article_reason(config, row, known_ids, titles)
        )
        if reason is None:
            used[row["source_uri"]] = row
        else:
            found.articles[reason] += 1
    return used


def _article_reason(
    config: FigureRetrievalConfig, row: Mapping[str, Any], known: set[str], titles: set[str]
) -> str | None:
    if row["defect"] is not None:
        return UNREADABLE
    if row["article_id"] in known:
        return HAD_VERSION
    if is_preprint(row):
        return PREPRINT
    if title_key(row["title"]) in titles:
        return SAME_TITLE
    return _rights_reason(config, row)


def is_preprint(row: Mapping[str, Any]) -> bool:
    """Return whether an article is a preprint by its type, DOI or journal."""
    return (
        "preprint" in (row["article_type"] or "").lower()
        or _PREPRINT_DOI.match(row["doi"] or "") is not None
        or _PREPRINT_SERVERS.search(row["journal"] or "") is not None
    )


def _rights_reason(config: FigureRetrievalConfig, row: Mapping[str, Any]) -> str | None:
    reason = rights.reason_to_withhold(row)
    if reason is None and row["license_group"] not in config.license_groups:
        return OTHER_GROUP
    if reason is None and not row.get("derivatives_allowed"):
        return CHANGES
    return reason


def _candidate(
    config: FigureRetrievalConfig,
    row: Mapping[str, Any],
    article: Mapping[str, Any],
    part: str,
    place: int,
) -> Candidate | str:
    """Return a figure as a candidate, or the reason why it is none."""
    reason = _figure_reason(config, row)
    if reason is not None:
        return reason
    caption = caption_query(
        readable_caption(row["caption"], row["caption_superscripts"]), config.min_words
    )
    if caption is None:
        return NO_CAPTION
    mentions = [
        Mention(
            text=one["text"],
            refs=[Reference(**ref) for ref in one["refs"]],
            superscripts=[Span(**span) for span in one["superscripts"]],
            container=one["container"],
        )
        for one in row["mentions"]
    ]
    mention = mention_query(mentions, row["figure_label"], config.min_words)
    if mention is None:
        return NO_MENTION
    return Candidate(
        figure_id=row["figure_id"],
        article_id=row["article_id"],
        part=part,
        row=place,
        caption=caption,
        mention=mention,
        suffix="jpg" if row["image_format"] == "jpeg" else row["image_format"],
        look={
            "id": row["figure_id"],
            "sha256": row["image_sha256"],
            **{name: row[name] for name in ("phash", "width_px", "height_px")},
        },
        credits={
            "article_id": row["article_id"],
            "figure_label": row["figure_label"] or "",
            **{
                name: article[name] or ""
                for name in ("title", "journal", "published", "doi", "pmid", "citation")
            },
            "license": row["license"] or "",
            "license_url": _license_url(row, article) or "",
        },
    )


def _license_url(row: Mapping[str, Any], article: Mapping[str, Any]) -> str | None:
    """Return the URL of a figure's licence. Earlier harvests have that of its article only."""
    own: str | None = row.get("license_url")
    of_article: str | None = article["license_url"]
    return own or (of_article if row["license"] == article["license"] else None)


def readable_caption(caption: str, superscripts: Sequence[Mapping[str, int]]) -> str:
    """Return a harvested caption with its exponents marked by ``^``; see ``captions.readable``."""
    return readable(caption, [Span(**span) for span in superscripts])


def _figure_reason(config: FigureRetrievalConfig, row: Mapping[str, Any]) -> str | None:
    if row["kind"] != "figure":
        return NO_FIGURE
    if row["defect"] is not None:
        return DEFECT
    if row["image_format"] not in _FORMATS:
        return FORMAT
    return _rights_reason(config, row)


def _read(folder: Folder, name: str, columns: Sequence[str]) -> pa.Table:
    """Return those of the columns that a file has; older folders lack some."""
    with open_part(folder, name) as file:
        present = [column for column in columns if column in file.schema_arrow.names]
        return file.read(columns=present)


def looks_of_harvest(folder: Folder, manifest: Manifest) -> Iterator[pa.Table]:
    """Yield hashes, article and caption of all figures of a harvest, part by part."""
    names = (
        *("figure_id", "article_id", "caption", "caption_superscripts"),
        *("image_sha256", "phash", "width_px", "height_px"),
    )
    for part in parts_of(manifest):
        yield _read(folder, part, names)
