"""The tables of BIOMEDICA for a corpus, with the numbers of the paper, as Markdown."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from itertools import zip_longest
from typing import Any

import yaml

from biovl.assemble.balance import UNLABELLED
from biovl.core.markdown import percent, table

_LENGTHS = {
    "caption_tokens": "caption, tokens",
    "caption_chars": "caption, characters",
    "reference_tokens": "figure reference, tokens",
    "reference_chars": "figure reference, characters",
    "full_text_tokens": "full text, tokens",
    "full_text_chars": "full text, characters",
    "width_px": "image width, px",
    "height_px": "image height, px",
    "area_px": "image area, px²",
}
_GROUPS = ("other", "commercial", "noncommercial")
_CREATIVE_COMMONS = re.compile(r"CC-BY(-NC)?(-SA|-ND)?(?=-\d|$)")


@cache
def paper() -> dict[str, Any]:
    """Return the published tables of BIOMEDICA, by name."""
    text = resources.files("biovl.assemble").joinpath("biomedica_tables.yaml").read_text()
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def tables(stats: Mapping[str, Any]) -> str:
    """Return tables 6, 7, 14, 16 and 17 of BIOMEDICA, and figure 1 of BMC-LongCLIP.

    Args:
        stats: Content of a corpus's ``stats.json``.
    """
    sections = [
        _counts(stats),
        _lengths(stats),
        _mesh_terms(stats),
        _concepts(stats),
        _licenses(stats),
        _windows(stats),
    ]
    return "\n\n".join(sections) + "\n"


def _counts(stats: Mapping[str, Any]) -> str:
    corpus, harvested = stats["corpus"], stats["harvested"]
    here = {
        "Articles": harvested["articles"]["seen"],
        "Articles with images": corpus["articles"],
        "Images": corpus["images"],
        "Captions": corpus["captions"],
        "Figure references": corpus["mentions"],
        "Global concepts": _concept_count(stats, "global_concepts"),
        "Local concepts": _concept_count(stats, "local_concepts"),
    }
    rows = [[name, here[name], number] for name, number in paper()["table_6"].items()]
    return f"""## Table 6: counts

Articles are all that were harvested; articles with images have a pair in the corpus.

{table(["", "here", "paper"], rows)}"""


def _concept_count(stats: Mapping[str, Any], column: str) -> int | None:
    labels: Mapping[str, Mapping[str, int]] | None = stats["labels"].get(column)
    if labels is None:
        return None
    return sum(counts["pairs"] > 0 for name, counts in labels.items() if name != UNLABELLED)


def _lengths(stats: Mapping[str, Any]) -> str:
    rows = []
    for name, about in _LENGTHS.items():
        own = stats["lengths"][name]
        total = own["total"] if own["count"] and not name.endswith("_px") else None
        here = [own[part] for part in ("min", "max", "median", "iqr")]
        rows.append([about, *here, total, own["mean"], own["std"], *paper()["table_7"][name]])
    parts = ["min", "max", "median", "IQR", "total"]
    heads = ["", *parts, "mean", "std", *(f"paper: {part}" for part in parts)]
    return f"""## Table 7: lengths

Tokens here are CLIP's BPE, without start and end token; those of the paper are of tiktoken, with \
an encoding that it does not name. A figure reference is one body paragraph that cites an image. \
Full texts are those of articles with an image in the corpus; their tokens are counted with \
full_text_tokens=true.

{table(heads, rows)}"""


def _mesh_terms(stats: Mapping[str, Any]) -> str:
    found = stats["mesh_terms"]
    here = [(row["term"], row["articles"]) for row in found["top"]]
    nothing: tuple[str, None] = ("", None)
    rows = [
        [number, *own, *theirs]
        for number, (own, theirs) in enumerate(
            zip_longest(here, paper()["table_14"].items(), fillvalue=nothing), start=1
        )
    ]
    return f"""## Table 14: MeSH terms

{found["articles"]:,} articles have {found["terms"]:,} terms, {found["distinct"]:,} of them \
different. Terms come from PubMed (biovl enrich). The paper counts articles without terms as "None".

{table(["", "here", "articles", "paper", "paper: articles"], rows)}"""


def _concepts(stats: Mapping[str, Any]) -> str:
    title = "## Table 16: images by global concept and licence group"
    found = stats["labels_by_license_group"].get("global_concepts")
    if found is None:
        return f"{title}\n\nThe corpus has no labels: columns=[…] with those of biovl resolve."
    images = stats["corpus"]["images"]
    published = paper()["table_16"]
    of_paper = sum(numbers[-1] for numbers in published.values())

    def row(name: str) -> list[Any]:
        own = [found.get(name, {}).get(group, 0) for group in _GROUPS]
        theirs = published.get(name)
        share = percent(sum(own) / images) if images else "–"
        return [
            *(name, *own, sum(own), share),
            *(theirs or [None] * 4),
            percent(theirs[-1] / of_paper) if theirs else "–",
        ]

    others = sorted(found.keys() - published.keys() - {UNLABELLED})
    last = [UNLABELLED] if UNLABELLED in found else []
    groups = ["other", "commercial", "noncommercial", "total", "share"]
    heads = ["", *groups, *(f"paper: {name}" for name in groups)]
    return f"""{title}

An image with several concepts counts under each; in the paper the totals add up to \
{of_paper:,} images, so each seems to count once.

{table(heads, [row(name) for name in [*published, *others, *last]])}"""


def _licenses(stats: Mapping[str, Any]) -> str:
    found: Counter[str] = Counter()
    for licence in stats["licenses"]:
        found[license_family(licence["license"])] += licence["articles"]
    published = paper()["table_17"]
    whole, of_paper = sum(found.values()), sum(published.values())
    rows = [
        [
            *(name, found[name], percent(found[name] / whole) if whole else "–"),
            *(number, percent(number / of_paper)),
        ]
        for name, number in published.items()
    ]
    return f"""## Table 17: articles by licence

Here: articles with an image in the corpus. In the paper: all articles.

{table(["", "here", "share", "paper", "paper: share"], rows)}"""


def license_family(spdx: str | None) -> str:
    """Return the row of table 17 for a licence: ``CC BY-NC`` for ``CC-BY-NC-4.0``, or ``Other``."""
    if (spdx or "").startswith("CC0"):
        return "CC0"
    found = _CREATIVE_COMMONS.match(spdx or "")
    return f"CC BY{''.join(filter(None, found.groups()))}" if found else "Other"


def _windows(stats: Mapping[str, Any]) -> str:
    rows: list[Sequence[Any]] = [
        [
            f"{window} tokens",
            *(lost["tokens_wasted"], percent(lost["share_of_tokens_wasted"])),
            percent(lost["share_of_texts_truncated"]),
        ]
        # Keys of stats.json are in the order of texts: 154 before 77.
        for window, lost in sorted(
            stats["windows"]["caption"].items(), key=lambda item: int(item[0])
        )
    ]
    return f"""## BMC-LongCLIP, figure 1: tokens of captions beyond a context

In the paper, for its 6 M pairs: 55 % of the tokens with a context of 77, 2.2 % with 512, and 127 \
tokens per caption on average.

{table(["context", "tokens wasted", "share of tokens", "captions truncated"], rows)}"""
