import io
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from lxml import etree
from PIL import Image

from biovl.assemble.card import dataset_card
from biovl.assemble.hub import hub_license
from biovl.assemble.origin import origin
from biovl.assemble.statistics import statistics
from biovl.assemble.tally import merge, tally
from tests.assemble.corpora import HARVESTED, pair, pairs

RECORD = pa.schema(
    [
        pa.field("caption", pa.string()),
        pa.field("doi", pa.string()),
        pa.field("keywords", pa.list_(pa.string())),
        pa.field("width_px", pa.int64()),
        pa.field("retracted", pa.bool_()),
    ]
)


def manifest(**shards: int) -> dict[str, Any]:
    return {
        "code": "biovl 1.2.3",
        "config": {
            "rules": [{"name": "has_caption"}, {"name": "min_side", "px": 64}],
            "split": {
                "val_permyriad": 9,
                "test_permyriad": 496,
                "least_articles": 50,
                "most_articles": None,
            },
            "duplicates": {"near": True, "max_distance": 4},
            "image": {"short_side_px": None, "jpeg_quality": 90},
            "text": "caption",
        },
        "inputs": [{"name": "figures", "uri": "/secret/place", "fingerprint": "12ab"}],
        "counts": {"shards": {"train": 0, "val": 0, "test": 0, **shards}},
        "notes": {"image": "as published"},
    }


def card(rows: list[dict[str, Any]], made: dict[str, Any] | None = None, **dropped: int) -> str:
    stats = statistics(tally(pairs(rows)), harvested=HARVESTED, dropped=dropped)
    made = made or manifest(**dict.fromkeys(stats["splits"], 1))
    return dataset_card(made, stats, record=RECORD, plots=["cohort.png"])


def front_matter(text: str) -> dict[str, Any]:
    _, values, _ = text.split("---\n", 2)
    found: dict[str, Any] = yaml.safe_load(values)
    return found


def write_shard(path: Path, kinds: list[str]) -> None:
    """Write a shard with a pair of each kind; fields are null in the first and filled later."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for number, kind in enumerate(kinds):
            image = io.BytesIO()
            Image.new("RGB", (8, 6), (number, 0, 0)).save(image, "JPEG" if kind == "jpg" else "PNG")
            record = {
                "caption": f"caption {number}",
                "doi": f"10.1/{number}" if number else None,
                "keywords": ["retina"] if number else [],
                "width_px": 8,
                "retracted": True if number else None,
            }
            for suffix, data in {
                kind: image.getvalue(),
                "txt": f"text {number}".encode(),
                "json": json.dumps(record).encode(),
            }.items():
                member = tarfile.TarInfo(f"{path.parent.name}-{number}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))


def load(folder: Path, cache: Path) -> Any:
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset(str(folder), cache_dir=str(cache))


def test_a_corpus_of_panels_is_not_said_to_be_of_figures_as_published() -> None:
    of_figures, of_panels = (
        card([pair("A"), pair("B", cut_out=is_cut), pair("C", cut_out=None)])
        for is_cut in (False, True)
    )
    assert "**Compound figures.**" in of_figures
    assert "**Panels.**" not in of_figures
    assert "or a panel of one (1)" in of_panels
    assert "**Panels.**" in of_panels
    assert "**Compound figures.**" not in of_panels


def test_datasets_loads_every_split_of_a_corpus_with_jpeg_beside_png(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write_shard(folder / "train/00000.tar", ["jpg"] * 6)
    write_shard(folder / "train/00001.tar", ["png", "jpg", "png"])
    write_shard(folder / "val/00000.tar", ["png"])
    write_shard(folder / "test/00000.tar", ["jpg", "png"])
    rows = [pair(split, split=split) for split in ("train", "val", "test")]
    (folder / "README.md").write_text(card(rows, manifest(train=2, val=1, test=1)))
    loaded = load(folder, tmp_path / "cache")
    assert {split: len(found) for split, found in loaded.items()} == {
        "train": 9,
        "validation": 1,
        "test": 2,
    }
    first, last = loaded["train"][0], loaded["train"][8]
    assert first["jpg"].size == (8, 6)
    assert first["png"] is None
    assert first["json"]["doi"] is None
    assert (last["png"].size, last["jpg"], last["txt"]) == ((8, 6), None, "text 2")
    assert last["json"] == {
        "caption": "caption 2",
        "doi": "10.1/2",
        "keywords": ["retina"],
        "width_px": 8,
        "retracted": True,
    }


def test_shards_are_loaded_by_their_format_with_the_types_of_the_card(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    folder, cache = tmp_path / "corpus", str(tmp_path / "cache")
    write_shard(folder / "train/00000.tar", ["jpg", "png", "jpg"])
    (folder / "README.md").write_text(card([pair("A")]))
    features = datasets.load_dataset_builder(str(folder), cache_dir=cache).info.features
    files = {"train": str(folder / "train/*.tar")}
    loaded = datasets.load_dataset(
        "webdataset", data_files=files, features=features, cache_dir=cache
    )["train"]
    assert loaded["txt"][:] == ["text 0", "text 1", "text 2"]
    assert [row["doi"] for row in loaded["json"]] == [None, "10.1/1", "10.1/2"]


def test_datasets_loads_a_corpus_with_a_single_split(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    write_shard(folder / "train/00000.tar", ["jpg"])
    (folder / "README.md").write_text(card([pair("A")]))
    loaded = load(folder, tmp_path / "cache")
    assert {split: len(found) for split, found in loaded.items()} == {"train": 1}


def test_splits_without_shards_are_not_promised() -> None:
    (configuration,) = front_matter(card([pair("A", split="val")]))["configs"]
    assert configuration["data_files"] == [{"split": "validation", "path": "val/*.tar"}]
    empty = statistics(merge([]), harvested=HARVESTED, dropped={})
    text = dataset_card(manifest(), empty, record=RECORD, plots=[])
    assert "configs" not in front_matter(text)


def test_smaller_images_are_all_jpeg() -> None:
    made = manifest(train=1)
    made["config"]["image"]["short_side_px"] = 288
    text = card([pair("A")], made)
    names = [field["name"] for field in front_matter(text)["dataset_info"]["features"]]
    assert names == ["jpg", "txt", "json", "__key__", "__url__"]
    assert ".png`" not in text.partition("## The fields of BIOMEDICA")[0]


@pytest.mark.parametrize(
    ("spdx", "name"),
    [
        ("CC-BY-4.0", "cc-by-4.0"),
        ("CC0-1.0", "cc0-1.0"),
        ("CC-BY", "other"),
        ("CC-BY-3.0-IGO", "other"),
        (None, "other"),
    ],
)
def test_licences_are_named_as_on_the_hub(spdx: str | None, name: str) -> None:
    assert hub_license(spdx) == name


def test_the_front_matter_tells_licences_languages_and_size() -> None:
    rows = [
        pair("A", language="pt-BR"),
        pair("B", license=None, license_group="other", language=None),
        pair("C", license="CC-BY", language="English"),
    ]
    found = front_matter(card(rows))
    assert found["license"] == ["cc-by-4.0", "other"]
    assert found["language"] == ["pt"]
    assert found["size_categories"] == ["n<1K"]


def test_the_size_category_has_its_upper_end_outside() -> None:
    assert front_matter(card([pair("A")] * 1000))["size_categories"] == ["1K<n<10K"]


def test_the_card_says_how_the_corpus_was_made() -> None:
    text = card([pair("A")], **{"no caption": 1234})
    assert "`min_side`, px 64" in text
    assert "| no caption | 1,234 |" in text
    assert "| `figures` | `12ab` |" in text
    assert "0.09 % to val, 4.96 % to test" in " ".join(text.replace(" of them", "").split())
    assert "/secret/place" not in text


@pytest.mark.parametrize(
    ("journals", "expected", "others"),
    [
        (["eLife", None], ["biomedical literature", "biomedical articles"], ["synthetic"]),
        (["eLife", "SMC (synthetic)"], ["biomedical literature"], ["synthetic"]),
        (
            [None, None],
            ["Images and captions", "2 records"],
            ["literature", "article's", "journal"],
        ),
        (["A (synthetic)", "B (synthetic)"], ["is synthetic", "2 synthetic articles"], ["medical"]),
    ],
)
def test_a_card_says_where_its_figures_come_from(
    journals: list[str | None], expected: list[str], others: list[str]
) -> None:
    text = card([pair(str(n), journal=journal) for n, journal in enumerate(journals)])
    about, _, limits = text.partition("## Loading")
    about += limits[limits.index("## Limitations") :]
    about = about.split("---\n", 2)[2] if "medical" in others else about
    assert all(words in about for words in expected)
    assert not any(words in about for words in others)


def test_every_article_of_the_sample_is_known_to_be_synthetic(
    put_packages: Callable[[Path, int], None], tmp_path: Path
) -> None:
    put_packages(tmp_path, 12)
    journals = [
        etree.parse(next(folder.glob("*.*xml"))).findtext(".//journal-title")
        for folder in tmp_path.iterdir()
        if folder.is_dir()
    ]
    found = statistics(
        tally(pairs([pair(str(n), journal=name) for n, name in enumerate(journals)])),
        harvested=HARVESTED,
        dropped={},
    )
    assert len(journals) == 6
    assert origin(found) == "synthetic"


def test_a_window_is_shown_with_the_share_that_it_wastes() -> None:
    text = card([pair("A", caption_tokens=100, text_tokens=150)])
    assert "| 77 tokens | 100.0% | 25.0% | 100.0% | 50.0% |" in text


def test_names_from_articles_cannot_break_a_table_or_start_markup() -> None:
    text = card([pair("A", journal="Left | right\n# <b>Title")])
    assert "| Left \\| right # &lt;b>Title | 1 |" in text


def test_the_command_for_open_clip_names_every_shard() -> None:
    several = card([pair("A")] * 3, manifest(train=12))
    assert "--train-data 'corpus/train/{00000..00011}.tar'" in several
    assert "--train-num-samples 3 " in several
    assert "--train-data 'corpus/train/00000.tar'" in card([pair("A")])


def test_a_plot_that_was_not_drawn_is_not_shown() -> None:
    text = card([pair("A")])
    assert "](plots/cohort.png)" in text
    assert "plots/years.png" not in text


def test_a_type_that_datasets_cannot_be_told_is_refused() -> None:
    stats = statistics(tally(pairs([pair("A")])), harvested=HARVESTED, dropped={})
    record = pa.schema([pa.field("when", pa.date32())])
    with pytest.raises(ValueError, match="date32"):
        dataset_card(manifest(train=1), stats, record=record, plots=[])


def test_long_lists_are_cut_and_say_where_the_rest_is() -> None:
    text = card([pair(str(n), journal=f"Journal {n}", article_type=f"t{n}") for n in range(60)])
    assert text.count("| Journal ") == 20
    assert "and 40 more (`stats.json` lists the first 50)" in text
    assert "and 40 more (`stats.json` lists all)" in text


def test_a_card_of_a_table_of_ones_own_does_not_speak_of_articles() -> None:
    text = card([pair(str(number), journal=None, license=None) for number in range(3)])
    prose = re.sub(r"`[^`]*`|!\[.*", "", text)
    found = [line for line in prose.splitlines() if re.search("article|literature|PMC", line)]
    assert found == []


def test_warnings_are_listed() -> None:
    made = manifest(train=1)
    made["notes"]["warnings"] = ["val has 3 pairs", "one licence group"]
    assert "\nWarnings:\n\n* val has 3 pairs\n* one licence group\n" in card([pair("A")], made)
