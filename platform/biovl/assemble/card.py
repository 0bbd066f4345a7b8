"""The dataset card of a corpus, ``README.md``: contents, provenance and limitations."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from biovl.assemble.biomedica import biomedica_section
from biovl.assemble.hub import HUB_SPLITS, front_matter
from biovl.assemble.origin import Origin, origin
from biovl.core.markdown import percent, size, table
from biovl.core.shards import embedding_kind

PLOTS = "plots"
"""Folder of the plots, next to the card."""

_IN_CARD = 20
"""Rows of a long table; ``stats.json`` has the rest."""

_LENGTHS = {
    "caption_tokens": "caption, CLIP tokens",
    "caption_chars": "caption, characters",
    "text_tokens": "text of the pair, CLIP tokens",
    "text_chars": "text of the pair, characters",
    "mention_chars": "all paragraphs that cite an image, characters",
    "reference_tokens": "one paragraph that cites an image, CLIP tokens",
    "reference_chars": "one paragraph that cites an image, characters",
    "full_text_tokens": "full text, CLIP tokens",
    "full_text_chars": "full text, characters",
    "width_px": "image width, px",
    "height_px": "image height, px",
    "area_px": "image area, px²",
}
_HAVE_A_TOTAL = [name for name in _LENGTHS if not name.endswith("_px")]

_CAPTIONS_OF_PLOTS = {
    "cohort.png": "From all that was seen to the pairs of each split, and what was left out",
    "caption_lengths.png": "Tokens of captions by length, and what each context window wastes",
    "text_lengths.png": "Tokens of the pairs' texts by length, and what each context window wastes",
    "image_sizes.png": "Images by size",
    "figures_per_article.png": "Images that belong together: of one article or record",
    "licenses.png": "Images by licence",
    "years.png": "Images by year of publication",
    "drops.png": "Figures left out, by reason",
    "global_concepts.png": "Figures harvested and pairs kept, by global concept",
    "local_concepts.png": "Figures harvested and pairs kept, by local concept",
    "panel_type.png": "Figures harvested and pairs kept, by type of panels",
    "panel_subtype.png": "Figures harvested and pairs kept, by what several panels hold",
    "image_type.png": "Figures harvested and pairs kept, by type of image",
}

_TEXT_CHOICES = {
    "caption": "its caption",
    "caption+mentions": "its caption, then each body paragraph that cites the figure, a line each",
    "context_caption": "its caption, the sentences that cite it and the abstract's nearest one",
    "expanded_caption": "its caption with acronyms spelled out",
    "long_caption": "its caption as a model enriched it from the article, checked on the image",
}

_NAMES: dict[Origin, str] = {
    "literature": "Figures and captions of the biomedical literature",
    "own": "Images and captions",
    "synthetic": "Synthetic figures and captions",
}

_RECORDS: dict[Origin, tuple[str, str]] = {
    "literature": ("biomedical articles", "a figure of an article"),
    "own": ("records", "an image that a table names"),
    "synthetic": ("synthetic articles", "a synthetic figure"),
}
"""What a group of images is, and what an image is, by kind of source."""

_WHOLES: dict[Origin, str] = {"literature": "articles", "own": "records", "synthetic": "articles"}
"""Short name of groups of images, by kind of source."""

_LICENCES = """Every pair is under the licence of its own row. The groups are PMC's: commercial \
use allowed (CC0, CC BY, CC BY-SA, CC BY-ND), noncommercial use only (CC BY-NC and its variants), \
other (custom, reserved or none stated). An article whose images carry two licences counts under \
both."""

_OWN_LICENCES = """Every pair is under the licence that the table states for its row. Where it \
states none, nothing permits passing the image on."""
_SYNTHETIC = """**All of it is synthetic.** biovl has generated these articles, figures, captions \
and licences to show and to test itself. They report no study, show no patient and teach a model \
nothing about medicine."""

_NEAR_DUPLICATES = """* **Near duplicates** are found by a perceptual hash: crops, single panels \
that were published again, and changed colours escape it. Images of public benchmarks may be among \
the pairs."""

_FIGURES = """* **Compound figures.** An image is a figure as published. Many have several panels, \
and the caption speaks of all of them: a pair then says that a text describes an image, not which \
part describes which."""
_PANELS = """* **Panels.** An image is a panel that was cut out of a figure by its labels and its \
layout (`cut_out` in `index.parquet`), or a figure that was not. The caption of a panel is what \
the figure's says of it and of all panels. Some cuts and captions are wrong: they were not looked \
at. A cut is arguably a derivative work, which some licences (ND) do not allow to pass on."""

_LIMITATIONS: dict[Origin, str] = {
    "literature": f"""## Limitations

* **Rights.** The licence of an image is the figure's own where its publisher states one in the \
XML, else the article's. Material of third parties inside a figure may be under other terms that \
nobody wrote down for machines; `credit` holds what the figure says of its origin. Check before \
you redistribute. Licences that ask for attribution are met with `citation` and `doi`, which \
every pair carries.
{_FIGURES}
* **Captions are not descriptions.** They are written for readers of the article; they name what \
cannot be seen (methods, statistics, numbers of patients) and leave out what can.
* **Mentions** are whole paragraphs. A paragraph that cites a figure may be mostly about another \
one.
{_NEAR_DUPLICATES}
* **Not a sample of medicine.** It holds what open-access journals print: by country, language, \
disease and modality it is biased towards that. Patients are shown as their articles show them.
* **Errors of the source stay.** Text is as published, mistakes included; articles may have been \
corrected or retracted since (`retracted` is null where it is not known).""",
    "own": f"""## Limitations

* **Rights and privacy.** Images and texts are those of the table that was read. No published \
licence applies unless the table states one, and nothing was removed from pixels or texts: what \
identifies a person in the source identifies them here.
* **Texts** are as the table has them, mistakes included.
{_NEAR_DUPLICATES}
* **Not a sample of medicine.** It holds what its source holds, and is biased as its source is.""",
    "synthetic": f"## Limitations\n\n{_SYNTHETIC}",
}


def dataset_card(
    manifest: Mapping[str, Any],
    stats: Mapping[str, Any],
    *,
    record: pa.Schema,
    plots: Sequence[str],
) -> str:
    """Return the text of the card.

    Args:
        manifest: Content of the corpus' ``manifest.json``: ``config``, ``inputs``,
            ``counts.shards``, ``notes`` (with ``warnings``) and ``code`` are read.
        stats: Result of ``statistics``.
        record: The fields of a pair's ``.json`` and their types, see ``hub.front_matter``.
        plots: Names of the files in ``plots/`` next to the card.

    Raises:
        ValueError: If a field of ``record`` has a type that ``datasets`` does not support.
    """
    resized = manifest["config"]["image"]["short_side_px"] is not None
    kinds = ["jpg"] if resized else ["jpg", "png"]
    of = origin(stats)
    name = _NAMES[of]
    sections = [
        front_matter(
            stats, record=record, image_kinds=kinds, name=name, embeddings=_embeddings(manifest)
        ),
        f"# {name}",
        _SYNTHETIC if of == "synthetic" else "",
        _contents(manifest, stats, kinds, record, of),
        _loading(manifest["counts"]["shards"], stats["splits"], kinds),
        _making(manifest, stats, _WHOLES[of]),
        _not_applied(stats),
        _licences(stats, of),
        _statistics(stats, of),
        _pictures(plots),
        biomedica_section() if of == "literature" else "",
        _LIMITATIONS[of].replace(_FIGURES, _PANELS) if _of_panels(stats) else _LIMITATIONS[of],
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _contents(
    manifest: Mapping[str, Any],
    stats: Mapping[str, Any],
    kinds: Sequence[str],
    record: pa.Schema,
    of: Origin,
) -> str:
    records, image = _RECORDS[of]
    if _of_panels(stats):
        image = f"{image}, or a panel of one ({stats['corpus']['panels']:,})"
    corpus, splits = stats["corpus"], stats["splits"]
    text = _TEXT_CHOICES[manifest["config"]["text"]]
    shards = manifest["counts"]["shards"]
    suffixes = " or ".join(f"`.{kind}`" for kind in kinds)
    rows = [
        [split, held["pairs"], held["articles"], shards[split], size(held["size_bytes"])]
        for split, held in splits.items()
    ]
    fields = ", ".join(f"`{field}`" for field in record.names)
    files = "".join(
        f" `.{embedding_kind(column)}` is its embedding `{column}`."
        for column in _embeddings(manifest)
    )
    return f"""{corpus["images"]:,} pairs of an image and a text, from {corpus["articles"]:,} \
{records}. An image is {image}; the text is {text}.

{table(["split", "pairs", _WHOLES[of], "shards", "size"], rows)}

Images of one of the {_WHOLES[of]}, or of a group that the source names, are in the same split. \
Pairs are shuffled, these images apart.

* `train/`, `val/`, `test/`: WebDataset shards. A pair is `<pair_id>` with {suffixes} (the \
image), `.txt` (the text) and `.json` (what is known of it).
* `index.parquet`: a row for every pair with all metadata and its shard, offset and size in \
bytes, so that any pair can be read without its shard.
* `stats.json`, `plots/`: what is below, in numbers and drawn. `manifest.json`: how it was made.

The `.json` holds {fields}.{files}"""


def _of_panels(stats: Mapping[str, Any]) -> bool:
    """Return whether any image was cut out of a figure; earlier statistics do not count them."""
    return bool(stats["corpus"].get("panels"))


def _embeddings(manifest: Mapping[str, Any]) -> Sequence[str]:
    """Return the columns of embeddings that a pair stores; most corpora have none."""
    columns: Sequence[str] = manifest["config"].get("embeddings", ())
    return columns


def _loading(shards: Mapping[str, int], splits: Mapping[str, Any], kinds: Sequence[str]) -> str:
    """Say how to load the first split there is, with three libraries."""
    if not splits:
        return ""
    split = next(iter(splits))
    last = shards[split] - 1
    tars = f"{split}/{{00000..{last:05d}}}.tar" if last else f"{split}/00000.tar"
    of_hub = ", ".join(f"`{HUB_SPLITS[name]}`" for name in splits)
    null = " Of `jpg` and `png` one is null in each row." if len(kinds) > 1 else ""
    return f"""## Loading

With `datasets`, where the splits are called {of_hub}.{null}

```python
from datasets import load_dataset

pairs = load_dataset("corpus", split="{HUB_SPLITS[split]}", streaming=True)
```

With `webdataset`:

```python
import webdataset as wds

tars = "corpus/{tars}"
pairs = wds.WebDataset(tars, shardshuffle=False).decode("pil").to_tuple("{";".join(kinds)}", "txt")
```

With `open_clip`:

```
python -m open_clip_train.main --dataset-type webdataset --train-data 'corpus/{tars}' \\
    --train-num-samples {splits[split]["pairs"]} --model ViT-B-16
```"""


def _making(manifest: Mapping[str, Any], stats: Mapping[str, Any], wholes: str) -> str:
    config = manifest["config"]
    inputs = [[f"`{item['name']}`", f"`{item['fingerprint']}`"] for item in manifest["inputs"]]
    rules = [
        f"{number}. `{rule['name']}`"
        + "".join(f", {key} {_value(value)}" for key, value in rule.items() if key != "name")
        for number, rule in enumerate(config["rules"], start=1)
    ]
    dropped = [[reason, count] for reason, count in stats["dropped"].items()]
    about = {key: value for key, value in manifest["notes"].items() if key != "warnings"}
    notes = [f"* {key}: {value}" for key, value in about.items()]
    warnings = [f"* {warning}" for warning in manifest["notes"].get("warnings", ())]
    seen = stats["harvested"]
    split = config["split"]
    val, test = (f"{split[f'{name}_permyriad'] / 100:g} %" for name in ("val", "test"))
    least, most = split["least_articles"], split["most_articles"]
    bounds = [f"at least {least:,}, as far as a tenth of all gives them"] if least else []
    bounds += [f"at most {most:,}"] if most is not None else []
    each = f" ({'; '.join(bounds)} {wholes} each)" if bounds else ""
    parts = [
        "## How it was made",
        f"By {manifest['code']}, from {seen['articles']['seen']:,} {wholes} with "
        f"{seen['figures']['seen']:,} images. The inputs, by the hash of their manifests:",
        table(["input", "SHA-256"], inputs),
        "An image is kept if it passes these rules, in this order:",
        "\n".join(rules) or "(no rules)",
        f"{_duplicates(config)} {wholes.capitalize()} go to splits by a "
        f"hash of their id, or of the group that the source names: {val} of them to val, {test} to "
        f"test{each}, the rest to train.",
        "What was left out, each image under the first reason that applied:",
        table(["reason", "images"], dropped) if dropped else "(nothing)",
        "\n".join(notes),
        "\n".join(["Warnings:", "", *warnings]) if warnings else "",
    ]
    return "\n\n".join(part for part in parts if part)


def _duplicates(config: Mapping[str, Any]) -> str:
    if not config["duplicates"].get("exact", True):
        return "Duplicates are kept."
    duplicates = "images that look alike" if config["duplicates"]["near"] else "equal files"
    return f"Of {duplicates} one is kept, across splits too."


def _not_applied(stats: Mapping[str, Any]) -> str:
    """Return the section about omitted steps; empty if there are none."""
    # Statistics of earlier versions do not have it.
    found = stats.get("not_applied")
    if not found:
        return ""
    images, here = found["pairs"], stats["corpus"]["images"]
    rows = [
        *(
            [reason, count, _share(count, images)]
            for reason, count in found["default_steps"].items()
        ),
        ["any of these", found["any_default_step"], _share(found["any_default_step"], images)],
        *([reason, count, _share(count, images)] for reason, count in found["rights"].items()),
    ]
    repeated = [
        f"{count:,} images of {split}"
        for split, count in found.get("also_in_train", {}).items()
        if count
    ]
    leaks = (
        f"\n\n**{' and '.join(repeated)} are also in train**, as the same file or as a near "
        "duplicate."
        if repeated
        else ""
    )
    return f"""## Steps that were not applied

This corpus keeps pairs that biovl's default recipe drops. Each step is counted on its own, on \
{"the" if images == here else "all"} {images:,} pairs\
{"" if images == here else ", from which those here were selected"}; the last two are about \
rights, and in no recipe.

{table(["would be dropped as", "pairs", "share"], rows)}{leaks}"""


def _share(count: int, of: int) -> str:
    return percent(count / of) if of else "–"


def _licences(stats: Mapping[str, Any], of: Origin) -> str:
    rows = [
        [row["license"] or "none stated", row["license_group"], row["articles"], row["images"]]
        for row in stats["licenses"]
    ]
    groups = [
        [row["license_group"], row["articles"], row["images"]] for row in stats["license_groups"]
    ]
    return f"""## Licences

{_OWN_LICENCES if of == "own" else _LICENCES}

{table(["group", _WHOLES[of], "images"], groups)}

{table(["licence", "group", _WHOLES[of], "images"], rows)}"""


def _statistics(stats: Mapping[str, Any], of: Origin) -> str:
    harvested, corpus = stats["harvested"], stats["corpus"]
    counts = [
        [_WHOLES[of], harvested["articles"]["seen"], corpus["articles"]],
        ["images", harvested["figures"]["seen"], corpus["images"]],
        ["captions", "", corpus["captions"]],
        [
            "paragraphs that cite an image (in the corpus, of the body)",
            harvested["mentions"],
            corpus["mentions"],
        ],
    ]
    lengths = [
        [
            what,
            *(found[part] for part in ("min", "max", "mean", "median", "iqr")),
            found["total"] if name in _HAVE_A_TOTAL else "",
        ]
        for name, what in _LENGTHS.items()
        for found in [stats["lengths"][name]]
        if found["count"]
    ]
    windows = [
        [
            f"{window} tokens",
            *(percent(stats["windows"][of][window][f"share_of_{what}"]) for of, what in _LOSSES),
        ]
        for window in stats["windows"]["caption"]
    ]
    heads = ["captions truncated", "caption tokens wasted", "texts truncated", "text tokens wasted"]
    parts = [
        "## Statistics",
        table(["", "harvested", "in the corpus"], counts),
        table(["", "min", "max", "mean", "median", "IQR", "total"], lengths),
        "Tokens are CLIP's, without start and end token. A window of n tokens holds these two and "
        "n − 2 tokens of a text: a longer text is truncated, and its other tokens are wasted.",
        table(["window", *heads], windows),
        _ranking("language", _WHOLES[of], stats["languages"], "language"),
        *(_rankings_of_articles(stats) if of != "own" else ()),
    ]
    return "\n\n".join(parts)


def _rankings_of_articles(stats: Mapping[str, Any]) -> list[str]:
    journals, terms = stats["journals"], stats["mesh_terms"]
    return [
        _ranking("article type", "articles", stats["article_types"], "article_type"),
        _ranking("journal", "articles", journals["top"], "journal", of=journals["distinct"]),
        _ranking("MeSH term", "articles", terms["top"], "term", of=terms["distinct"])
        if terms["top"]
        else "MeSH terms are not filled in.",
    ]


_LOSSES = [
    (of, what) for of in ("caption", "text") for what in ("texts_truncated", "tokens_wasted")
]


def _ranking(
    title: str,
    wholes: str,
    rows: Sequence[Mapping[str, Any]],
    fact: str,
    of: int | None = None,
) -> str:
    """Return a table of the most frequent values, with a line about those left out."""
    shown = [[row[fact] or "not stated", row["articles"]] for row in rows[:_IN_CARD]]
    ranking = table([title, wholes], shown)
    distinct = of or len(rows)
    listed = "all" if len(rows) == distinct else f"the first {len(rows)}"
    more = f"\n\nand {distinct - len(shown):,} more (`stats.json` lists {listed})"
    return ranking + more if distinct > len(shown) else ranking


def _pictures(plots: Sequence[str]) -> str:
    shown = [(_CAPTIONS_OF_PLOTS[name], name) for name in _CAPTIONS_OF_PLOTS if name in plots]
    return "\n\n".join(f"![{caption}]({PLOTS}/{name})" for caption, name in shown)


def _value(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
