"""Corpora as the papers made them, and what following the papers costs."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml

from biovl.assemble import config as assemble_config
from biovl.assemble import not_applied, rules
from biovl.assemble.card import dataset_card
from biovl.assemble.config import AS_PUBLISHED, LISTED_TOPICS, AssembleConfig, DuplicateConfig
from biovl.assemble.statistics import statistics
from biovl.assemble.tally import merge, tally
from tests.assemble.corpora import HARVESTED, pair, pairs
from tests.assemble.test_card import RECORD, manifest

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("figure_id", "kind", "image_sha256", "phash", "defect")),
        *((name, pa.int64()) for name in ("width_px", "height_px", "caption_chars")),
        *((name, pa.bool_()) for name in ("retracted", "superseded", "uncaptioned")),
        *((name, pa.bool_()) for name in ("third_party", "redistributable")),
        ("image_format", pa.string()),
        ("global_concepts", pa.list_(pa.string())),
    ]
)


def image(number: int, **values: Any) -> dict[str, Any]:
    """Return an ordinary figure, with an image of its own."""
    ordinary = {
        "figure_id": f"F{number:04}",
        "kind": "figure",
        "image_sha256": f"{number + 1:064x}"[::-1],
        "phash": None,
        "defect": None,
        "width_px": 700,
        "height_px": 500,
        "caption_chars": 90,
        "retracted": None,
        "superseded": False,
        "uncaptioned": False,
        "third_party": False,
        "redistributable": True,
        "image_format": "jpeg",
        "global_concepts": None,
    }
    return {**ordinary, **values}


def counted(
    rows: list[dict[str, Any]], split: list[str] | None = None, **changes: Any
) -> dict[str, Any]:
    base = assemble_config.biomedica_24m()
    config = AssembleConfig(
        figures="f",
        out="o",
        rules=changes.pop("rules", base.rules),
        retracted=changes.pop("retracted", "keep"),
        duplicates=DuplicateConfig(**changes) if changes else base.duplicates,
    )
    table = pa.Table.from_pylist(rows, SCHEMA).select(not_applied.columns_read(config))
    return not_applied.count(config, table, np.array(split or ["train"] * len(rows), object))


def test_the_recipes_of_papers_drop_what_the_papers_do_not_have_and_nothing_more() -> None:
    rows = [
        image(0, retracted=True, width_px=9, kind="author-response", third_party=True),
        image(1, caption_chars=0),
        image(2, image_format="png"),
        image(3, defect="image does not decode"),
        image(4, superseded=True),
        image(5, uncaptioned=True),
        image(6, global_concepts=["Maps"]),
        image(7, global_concepts=["Maps", "Plots and Charts"]),
        image(8, global_concepts=["Tables"]),
    ]

    def kept(recipe: str) -> set[int]:
        found = rules.rejections(
            pa.Table.from_pylist(rows, SCHEMA), rules.make_rules(AS_PUBLISHED[recipe]().rules)
        )
        return set(np.flatnonzero(~found.is_valid().to_numpy(zero_copy_only=False)).tolist())

    assert kept("biomedica_24m") == kept("biomedica_8m") == {0, 5, 6, 7, 8}
    assert kept("pmc_15m") == {0, 6, 7, 8}
    assert kept("biomedica_6m") == {6}


def test_the_other_topics_are_those_of_the_taxonomy() -> None:
    taxonomy = Path(assemble_config.__file__).parents[1] / "concepts" / "taxonomy.yaml"
    names = set(yaml.safe_load(taxonomy.read_text())["concepts"])
    (others,) = [r for r in assemble_config.biomedica_6m().rules if r.name == "none_of"]
    assert {*LISTED_TOPICS, *others.settings["forbidden"]} == names
    assert not set(LISTED_TOPICS) & set(others.settings["forbidden"])


def test_the_listed_topics_have_more_images_than_the_paper_says() -> None:
    # BIOMEDICA, table 16, in the order of LISTED_TOPICS.
    sizes = [1_928_158, 2_517_332, 904_632, 2_919_995, 1_128_082, 324_265, 272_399, 457_141]
    assert sum(sizes) == 10_452_004 != 6_602_752


def test_each_omitted_step_is_counted_on_its_own() -> None:
    rows = [
        image(0, retracted=True, width_px=63),
        image(1, width_px=500, height_px=40),
        image(2, kind="author-response", third_party=True),
        image(3, image_sha256=image(4)["image_sha256"], redistributable=None),
        image(4),
        image(5, retracted=False),
    ]
    assert counted(rows) == {
        "pairs": 6,
        "default_steps": {
            "figure kind not figure or scheme or graphical-abstract or supplement or extended-data": 1,
            "article retracted": 1,
            "shorter side under 64 px": 2,
            "longer side over 10 times the shorter": 1,
            "same file as another pair": 1,
            "looks like another pair": 0,
        },
        "any_default_step": 4,
        "also_in_train": {"val": 0, "test": 0},
        "rights": {"credits a third party": 1, "licence does not allow redistribution": 1},
    }


def test_a_corpus_with_all_steps_reports_nothing() -> None:
    assert (
        counted([image(0)], rules=assemble_config.DEFAULT_RULES, retracted="drop", near=True) == {}
    )


def test_only_what_is_omitted_is_counted() -> None:
    rows = [image(0, phash="ff00ff00ff00ff00"), image(1, phash="ff00ff00ff00ff01")]
    settings = {"rules": assemble_config.DEFAULT_RULES, "retracted": "drop", "near": False}
    assert counted(rows, **settings)["default_steps"] == {"looks like another pair": 1}


def test_images_of_val_and_test_that_are_also_in_train_are_counted() -> None:
    same = {"image_sha256": "a" * 64}
    alike = {"phash": "ff00ff00ff00ff00"}
    rows = [
        image(0, **same), image(1, **same), image(2, **same),
        image(3, **alike), image(4, **alike), image(5), image(6),
    ]  # fmt: skip
    split = ["test", "train", "val", "test", "train", "test", "train"]
    assert counted(rows, split)["also_in_train"] == {"val": 1, "test": 2}
    # Two equal images of test repeat each other, and nothing of train.
    assert counted(rows, ["test"] * 6 + ["train"])["also_in_train"] == {"val": 0, "test": 0}


@pytest.mark.parametrize("seed", range(5))
def test_counts_equal_a_count_pair_by_pair(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        image(
            number,
            image_sha256=f"{rng.randrange(25):02d}" * 32,
            width_px=rng.choice([30, 700]),
            retracted=rng.choice([True, False, None]),
            third_party=rng.random() < 0.2,
        )
        for number in range(60)
    ]
    # A file has one size.
    sizes = {row["image_sha256"]: row["width_px"] for row in rows}
    rows = [{**row, "width_px": sizes[row["image_sha256"]]} for row in rows]
    split = [rng.choice(["train", "val", "test"]) for _ in rows]
    found = counted(rows, split)
    files = [row["image_sha256"] for row in rows]
    repeats = [files[:at].count(file) > 0 for at, file in enumerate(files)]
    small = [row["width_px"] < 64 for row in rows]
    retracted = [row["retracted"] is True for row in rows]
    assert found["default_steps"]["same file as another pair"] == sum(repeats)
    assert found["default_steps"]["shorter side under 64 px"] == sum(small)
    assert found["default_steps"]["article retracted"] == sum(retracted)
    is_wide = [10 * row["width_px"] < 500 for row in rows]
    every = zip(repeats, small, retracted, is_wide, strict=True)
    assert found["any_default_step"] == sum(any(row) for row in every)
    train = {file for file, name in zip(files, split, strict=True) if name == "train"}
    for name in ("val", "test"):
        inside = [file in train for file, own in zip(files, split, strict=True) if own == name]
        assert found["also_in_train"][name] == sum(inside)


def test_the_card_has_a_table_of_what_was_not_applied() -> None:
    stats = statistics(
        tally(pairs([pair("A"), pair("B", split="test")])),
        harvested=HARVESTED,
        dropped={},
        not_applied=counted([image(0, retracted=True), image(1)], ["train", "test"]),
    )
    made = manifest(train=1, test=1)
    made["config"]["duplicates"] = {"exact": False, "near": False, "max_distance": 4}
    text = dataset_card(made, stats, record=RECORD, plots=[])
    assert "## Steps that were not applied" in text
    assert "| article retracted | 1 | 50.0% |" in text
    assert "Duplicates are kept." in text
    assert "on the 2 pairs" in text
    everything = statistics(merge([]), harvested=HARVESTED, dropped={})
    assert "not applied" not in dataset_card(manifest(), everything, record=RECORD, plots=[])


def test_near_duplicates_cannot_be_removed_without_exact_ones() -> None:
    with pytest.raises(ValueError, match="near=true requires exact=true"):
        DuplicateConfig(exact=False)
