"""Build pairs from figures and articles: columns for rules, and the JSON record of a pair."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from biovl.articles.captions import readable
from biovl.assemble.config import TextChoice
from biovl.core import records
from biovl.core.records import Article, Figure, Span
from biovl.core.shards import embedding_kind, pack_embedding
from biovl.models.clip_tokens import clip_token_counts

LONG_TEXTS = ("context_caption", "expanded_caption", "long_caption")
"""Columns of generated captions. Existing ones are also stored in a pair's record, for pretrain to
choose from."""

LICENSE_URL = "license_url"

_ARTICLE_COLUMNS = (
    "version pmid doi title journal published article_type language keywords subjects "
    "citation mesh_terms cited_by_pmids retracted"
).split()
_PUBMED_COLUMNS = pa.schema(
    [
        pa.field("publication_types", pa.list_(pa.string())),
        pa.field("pubmed_published", pa.string()),
        pa.field("entrez_status", pa.string()),
    ]
)
"""Filled for enriched articles; null for others."""

ARTICLE_COLUMNS = [
    *_ARTICLE_COLUMNS,
    *("license", LICENSE_URL, "source_uri", "defect", "full_text"),
]
"""Columns of ``articles/`` that candidates need."""

FIGURE_COLUMNS = records.column_names(Figure, without=["image"])
"""Columns of ``figures/`` that candidates need."""

# Columns in both tables are read from the article.
_KEPT_FIGURE_COLUMNS = [
    name for name in FIGURE_COLUMNS if name != "mentions" and name not in _ARTICLE_COLUMNS
]

CANDIDATE_SCHEMA = pa.schema(
    [
        *(records.schema(Figure).field(name) for name in _KEPT_FIGURE_COLUMNS),
        *(records.schema(Article).field(name) for name in _ARTICLE_COLUMNS),
        *_PUBMED_COLUMNS,
        pa.field("article_defect", pa.string()),
        # Whether the image is a panel cut out of a figure, which may be a derivative of it.
        pa.field("cut_out", pa.bool_(), nullable=False),
        pa.field("mention_count", pa.int32(), nullable=False),
        pa.field("mention_chars", pa.int32(), nullable=False),
        # Of each citing paragraph: the figure references of BIOMEDICA's table 7.
        pa.field("mention_char_counts", pa.list_(pa.int32()), nullable=False),
        pa.field("mention_token_counts", pa.list_(pa.int32()), nullable=False),
        pa.field("full_text_chars", pa.int32(), nullable=False),
        pa.field("full_text_tokens", pa.int32()),
        pa.field("caption_chars", pa.int32(), nullable=False),
        pa.field("caption_tokens", pa.int32(), nullable=False),
        pa.field("text_chars", pa.int32(), nullable=False),
        pa.field("text_tokens", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("mention_texts", pa.list_(pa.string()), nullable=False),
    ]
)
"""Columns for rules and for the pair's record. ``text`` is the text of training."""

_MENTIONS = "mention_texts"
PAIR_SCHEMA = pa.schema(
    [
        *(
            CANDIDATE_SCHEMA.field(name)
            for name in (
                "figure_id article_id figure_label kind caption title journal published "
                "article_type language license license_url license_group doi pmid citation "
                "keywords subjects mesh_terms source_uri image_name image_sha256 width_px "
                "height_px credit"
            ).split()
        ),
        CANDIDATE_SCHEMA.field(_MENTIONS).with_name("mentions"),
    ]
)
"""Content of a pair's ``.json``: source, licence and texts."""


GROUP = "group_id"
PANEL_BOX = "box_px"
"""Column of ``panels/``: the box of a panel in its figure; null for a figure that is not split."""


def whole_of(rows: pa.Table) -> pa.ChunkedArray:
    """Return each row's group, or its article: rows that share one are in the same split."""
    return pc.coalesce(rows[GROUP], rows["article_id"])


def article_facts(articles: pa.Table, figures: pa.Table, *, count_tokens: bool = False) -> pa.Table:
    """Return the required columns of the articles of some figures, without long texts.

    Args:
        articles: ``ARTICLE_COLUMNS`` of ``articles/``.
        figures: Only column ``source_uri`` is read.
        count_tokens: Whether to count the tokens of full texts; otherwise they are null.
    """
    own = articles.filter(pc.is_in(articles["source_uri"], figures["source_uri"].unique()))
    for field in _PUBMED_COLUMNS:
        if field.name not in own.column_names:
            own = own.append_column(field, pa.nulls(len(own), field.type))
    chars = pc.fill_null(pc.utf8_length(own["full_text"]), 0).cast(pa.int32())
    tokens = pa.nulls(len(own), pa.int32())
    if count_tokens:
        # One text at a time as Python string: an archive's articles have gigabytes of text.
        texts = (text.as_py() or "" for text in own["full_text"])
        tokens = pa.array(clip_token_counts(texts), pa.int32())
    own = own.drop_columns("full_text").append_column("full_text_chars", chars)
    return own.append_column("full_text_tokens", tokens)


def with_pubmed(articles: pa.Table, answers: pa.Table) -> pa.Table:
    """Return articles with the metadata of PubMed, in the columns of a corpus.

    Args:
        articles: ``ARTICLE_COLUMNS`` of a part of ``articles/``.
        answers: The same part as published by enrich, row for row.
    """
    terms = answers["mesh_terms"].combine_chunks()
    descriptors = pc.struct_field(terms.flatten(), "descriptor")
    lengths = pc.fill_null(pc.list_value_length(terms), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    known = {
        "mesh_terms": pa.ListArray.from_arrays(offsets, descriptors, mask=terms.is_null()),
        # True if either source says so, null if neither knows.
        "retracted": pc.or_(
            pc.coalesce(articles["retracted"], answers["retracted_in_pubmed"]),
            pc.coalesce(answers["retracted_in_pubmed"], articles["retracted"]),
        ),
    }
    if "cited_by_pmids" in answers.column_names:
        known["cited_by_pmids"] = answers["cited_by_pmids"]
    for name, column in known.items():
        articles = articles.set_column(articles.column_names.index(name), name, column)
    for field in _PUBMED_COLUMNS:
        articles = articles.append_column(field, answers[field.name])
    return articles


def pair_schema(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a pair's ``.json``, for candidates with additional columns."""
    found = [pa.field(name, pa.string()) for name in LONG_TEXTS if name in columns]
    return pa.schema([*PAIR_SCHEMA, *found])


def is_vector(kind: pa.DataType) -> bool:
    """Return whether a column of this type holds embeddings."""
    return bool(pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type))


def candidates(
    figures: pa.Table,
    articles: pa.Table,
    text: TextChoice,
    written: Sequence[str | None] | None = None,
) -> pa.Table:
    """Return one candidate per figure, in order, with the columns of its article.

    Args:
        figures: Rows of ``figures/``; the image column is not needed.
        articles: ``article_facts`` of every article of the figures.
        text: Source of a pair's text.
        written: Texts of the column, one of ``LONG_TEXTS``, that ``text`` selects; a figure without
            a text there uses its caption.
    """
    places = {uri: row for row, uri in enumerate(articles["source_uri"].to_pylist())}
    rows = pa.array([places[uri] for uri in figures["source_uri"].to_pylist()], pa.int64())
    joined = articles.take(rows)
    captions = [
        readable(caption, _spans(spans))
        for caption, spans in zip(
            figures["caption"].to_pylist(),
            figures["caption_superscripts"].to_pylist(),
            strict=True,
        )
    ]
    mentions = [
        [
            readable(mention["text"], _spans(mention["superscripts"]))
            for mention in cited
            if mention["container"] == "body"
        ]
        for cited in figures["mentions"].to_pylist()
    ]
    if written is None:
        texts = [pair_text(c, m, text) for c, m in zip(captions, mentions, strict=True)]
    else:
        texts = [long or caption for long, caption in zip(written, captions, strict=True)]
    is_of_panels = PANEL_BOX in figures.column_names
    derived: dict[str, Any] = {
        LICENSE_URL: _license_urls(figures, joined),
        "article_defect": joined["defect"],
        "cut_out": figures[PANEL_BOX].is_valid() if is_of_panels else [False] * len(figures),
        "mention_count": [len(cited) for cited in mentions],
        "mention_chars": [sum(map(len, cited)) for cited in mentions],
        "mention_char_counts": [[len(mention) for mention in cited] for cited in mentions],
        "mention_token_counts": _token_counts(mentions),
        "full_text_chars": joined["full_text_chars"],
        "full_text_tokens": joined["full_text_tokens"],
        "caption_chars": [len(caption) for caption in captions],
        "caption_tokens": clip_token_counts(captions),
        "text_chars": [len(content) for content in texts],
        "text_tokens": clip_token_counts(texts),
        "text": texts,
        "mention_texts": mentions,
    }
    columns = []
    for column in CANDIDATE_SCHEMA:
        if column.name in derived:
            columns.append(_column(derived[column.name], column.type))
        elif column.name in _KEPT_FIGURE_COLUMNS:
            columns.append(figures[column.name].combine_chunks())
        else:
            columns.append(joined[column.name].combine_chunks())
    return pa.Table.from_arrays(columns, schema=CANDIDATE_SCHEMA)


def caption_instead(rows: pa.Table, text: TextChoice) -> pa.ChunkedArray | None:
    """Return why each row uses its caption instead of a generated text; null if it does not.

    Args:
        rows: Status and defect columns that annotate publishes with its texts.
        text: Source of a pair's text.

    Returns:
        Shape [N], string; None if ``text`` is not generated, or its defect column is missing.
    """
    if text not in LONG_TEXTS:
        return None
    # Expanded captions are computed with context captions.
    main = "context_caption" if text == "expanded_caption" else text
    status, defect = f"{main}_status", f"{main}_defect"
    if defect not in rows.column_names:
        return None
    if status not in rows.column_names:
        return rows[defect]
    failed = pc.if_else(pc.equal(rows[status], "ok"), None, rows[status])
    return pc.coalesce(failed, rows[defect])


def count_texts(rows: pa.Table, text: TextChoice, counter: Counter[str]) -> None:
    """Count the pairs with a generated text, and the reasons why others have their caption."""
    reasons = caption_instead(rows, text)
    if reasons is not None:
        for reason, count in Counter(reasons.to_pylist()).items():
            counter[text if reason is None else f"caption: {reason}"] += count


def _token_counts(mentions: Sequence[Sequence[str]]) -> pa.Array:
    """Return the tokens of each paragraph of each figure, as a column of lists."""
    offsets = np.cumsum([0, *map(len, mentions)])
    counts = clip_token_counts([mention for cited in mentions for mention in cited])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(counts, pa.int32()))


def pair_text(caption: str, mentions: Sequence[str], choice: TextChoice) -> str:
    """Return a pair's text: its caption, or its caption and the paragraphs that mention it."""
    if choice != "caption+mentions":
        return caption
    return "\n".join(filter(None, [caption, *mentions]))


def pair_json(row: Mapping[str, Any]) -> bytes:
    """Return the content of a pair's ``.json``, from a candidate's row: ``PAIR_SCHEMA``."""
    names = pair_schema(list(row)).names
    values = {name: row[_MENTIONS if name == "mentions" else name] for name in names}
    return json.dumps(values, ensure_ascii=False).encode()


def missing_embedding(vectors: pa.Table, row: int) -> str | None:
    """Return the reason to drop a pair that lacks an embedding; None if it has all."""
    return next((f"no {n}" for n in vectors.column_names if not vectors[n][row].is_valid), None)


def embedding_files(vectors: pa.Table, row: int) -> dict[str, bytes]:
    """Return the files with the embeddings of a pair; no column may be null in its row."""
    return {
        embedding_kind(name): pack_embedding(vectors[name][row].values.to_numpy())
        for name in vectors.column_names
    }


def _license_urls(figures: pa.Table, articles: pa.Table) -> pa.ChunkedArray:
    """Return the URLs of the figures' licences, row by row.

    Figures harvested by earlier versions have none. Their article's applies to the same licence
    only: a figure may have its own.
    """
    is_same = pc.equal(figures["license"], articles["license"])
    of_article = pc.if_else(is_same, articles[LICENSE_URL], pa.scalar(None, pa.string()))
    has_own = LICENSE_URL in figures.column_names
    return pc.coalesce(figures[LICENSE_URL], of_article) if has_own else of_article


def _spans(spans: Sequence[Mapping[str, int]]) -> list[Span]:
    return [Span(span["start"], span["end"]) for span in spans]


def _column(values: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, np.ndarray):
        return pa.array(values).cast(kind)
    return pa.array(values, kind)
