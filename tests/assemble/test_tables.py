"""The tables of BIOMEDICA for a corpus: their numbers are those counted one by one."""

import json
import random
import statistics as standard
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from biovl.assemble import balance
from biovl.assemble.statistics import labels, labels_by_license_group, statistics
from biovl.assemble.tables import license_family, paper, tables
from biovl.assemble.tables_command import tables_of
from biovl.assemble.tally import ValueCounts, merge, tally
from biovl.core.artifacts import to_json
from biovl.core.errors import ArtifactError
from tests.assemble.corpora import HARVESTED, pair, pairs

CONCEPTS = ["Microscopy", "Maps", "Plots and Charts", "Natural Images"]
LICENCES = {"CC-BY-4.0": "commercial", "CC-BY-NC-ND-4.0": "noncommercial", None: "other"}


def random_pairs(count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        article = rng.randrange(1 + count // 3)
        paragraphs = [rng.randrange(1, 900) for _ in range(rng.randrange(4))]
        rows.append(
            pair(
                f"A{article}",
                license=(licence := list(LICENCES)[article % 3]),
                license_group=LICENCES[licence],
                mention_count=len(paragraphs),
                mention_token_counts=paragraphs,
                mention_char_counts=[4 * tokens for tokens in paragraphs],
                mention_chars=4 * sum(paragraphs),
                full_text_chars=0 if article % 5 == 0 else 1000 + article,
                full_text_tokens=0 if article % 5 == 0 else 300 + article % 7,
                width_px=rng.randrange(1, 4000),
                height_px=rng.randrange(1, 4000),
                mesh_terms=[["Humans"], ["Mice", "Brain"], None][article % 3],
            )
        )
    return rows


def described(values: list[int]) -> dict[str, Any]:
    """Return the numbers of table 7 for a list of lengths, from the definitions."""
    first, third = np.quantile(values, 0.25), np.quantile(values, 0.75)
    return {
        "count": len(values),
        "min": min(values),
        "max": max(values),
        "mean": pytest.approx(standard.fmean(values)),
        "std": pytest.approx(standard.pstdev(values)),
        "median": pytest.approx(standard.median(values)),
        "first_quartile": pytest.approx(first),
        "third_quartile": pytest.approx(third),
        "iqr": pytest.approx(third - first),
        "total": sum(values),
    }


@pytest.mark.parametrize("seed", range(3))
def test_lengths_in_pieces_are_those_counted_one_by_one(seed: int) -> None:
    rows = random_pairs(90, seed)
    pieces = [pairs(rows[start : start + 7]) for start in range(0, 90, 7)]
    found = statistics(merge(map(tally, pieces)), harvested=HARVESTED, dropped={})["lengths"]
    tokens = [number for row in rows for number in row["mention_token_counts"]]
    assert found["reference_tokens"] == described(tokens)
    assert found["reference_chars"] == described([4 * number for number in tokens])
    texts = {row["article_id"]: row for row in rows if row["full_text_chars"]}.values()
    assert found["full_text_tokens"] == described([row["full_text_tokens"] for row in texts])
    assert found["full_text_chars"] == described([row["full_text_chars"] for row in texts])
    assert found["area_px"] == described([row["width_px"] * row["height_px"] for row in rows])


def test_the_deviation_of_huge_numbers_is_exact_enough() -> None:
    counts = ValueCounts(np.array([10**9, 10**9 + 2]), np.array([5, 5]))
    assert counts.summary()["std"] == pytest.approx(1.0)


def test_a_corpus_of_an_earlier_version_has_no_lengths_of_paragraphs() -> None:
    old = pairs([pair("A")]).drop_columns(["mention_token_counts", "full_text_tokens"])
    found = statistics(tally(old), harvested=HARVESTED, dropped={})["lengths"]
    assert found["reference_tokens"]["count"] == found["full_text_tokens"]["count"] == 0
    assert found["caption_tokens"]["count"] == 1


def test_full_texts_whose_tokens_were_not_counted_have_none() -> None:
    found = statistics(tally(pairs([pair("A")])), harvested=HARVESTED, dropped={})["lengths"]
    assert found["full_text_chars"]["count"] == 1
    assert found["full_text_tokens"]["count"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_labels_by_licence_group_are_those_counted_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    rows = [
        (rng.sample(CONCEPTS, rng.randrange(3)) or None, rng.choice(list(LICENCES.values())))
        for _ in range(200)
    ]
    found: Counter[tuple[str, str]] = Counter()
    for start in range(0, 200, 30):
        piece = rows[start : start + 30]
        concepts = pa.array([names for names, _ in piece], pa.list_(pa.string()))
        # As in an index: one chunk or several.
        groups = pa.chunked_array([pa.array([group for _, group in piece])])
        found += balance.counts_by_group(pa.chunked_array([concepts]), groups)
    expected: Counter[tuple[str, str]] = Counter()
    for names, group in rows:
        expected.update((name, group) for name in names or [balance.UNLABELLED])
    assert found == expected
    by_group = labels_by_license_group({"global_concepts": found})["global_concepts"]
    assert by_group["Maps"]["commercial"] == expected["Maps", "commercial"]
    figures = {"global_concepts": {"Maps": 1000}}
    counted = labels(figures, figures, {"global_concepts": found})["global_concepts"]["Maps"]
    assert counted["pairs"] == sum(n for (name, _), n in expected.items() if name == "Maps")


@pytest.mark.parametrize(
    ("spdx", "family"),
    [
        ("CC-BY-4.0", "CC BY"),
        ("CC-BY-NC-SA-3.0", "CC BY-NC-SA"),
        ("CC-BY-NC-ND-4.0", "CC BY-NC-ND"),
        ("CC-BY-ND-4.0", "CC BY-ND"),
        ("CC-BY-SA-3.0-IGO", "CC BY-SA"),
        ("CC0-1.0", "CC0"),
        ("CC-PDDC", "Other"),
        (None, "Other"),
    ],
)
def test_licences_are_those_of_table_17(spdx: str | None, family: str) -> None:
    assert license_family(spdx) == family
    assert family in paper()["table_17"]


def test_the_numbers_of_the_paper_contradict_each_other_as_noted() -> None:
    concepts = paper()["table_16"]
    assert sum(numbers[-1] for numbers in concepts.values()) == 24_070_000
    assert [name for name, (*groups, total) in concepts.items() if sum(groups) != total] == [
        "Plots and Charts"
    ]
    assert sum(concepts["Plots and Charts"][:3]) == 12_363_223
    assert sum(paper()["table_17"].values()) == 6_042_430
    assert len(paper()["table_14"]) == 50


def cells(text: str, start: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def printed(rows: list[dict[str, Any]], **more: Any) -> str:
    stats = statistics(tally(pairs(rows)), harvested=HARVESTED, dropped={}, **more)
    return tables(json.loads(to_json(stats)))


def test_tables_have_the_corpus_next_to_the_paper() -> None:
    found = Counter(
        {("Maps", "commercial"): 2, ("Maps", "other"): 1, ("Natural Images", "other"): 1}
    )
    figures = {"global_concepts": {"Maps": 9, "Natural Images": 1}}
    text = printed(
        [
            pair("A", caption_tokens=10, mesh_terms=["Brain"]),
            pair("B", caption_tokens=30, license="CC-BY-NC-4.0"),
            pair("C", caption_tokens=20),
            pair("C", caption_tokens=20),
        ],
        labels=labels(figures, figures, {"global_concepts": found}),
        labels_by_license_group=labels_by_license_group({"global_concepts": found}),
    )
    assert cells(text, "Articles with images") == ["Articles with images", "3", "5,050,473"]
    assert cells(text, "Global concepts") == ["Global concepts", "2", "13"]
    assert cells(text, "caption, tokens")[1:8] == ["10", "30", "20", "5", "80", "20", "7.1"]
    assert cells(text, "caption, tokens")[8:] == ["1", "12,389", "64", "134", "2,840,000,000"]
    assert cells(text, "full text, tokens")[1:3] == ["–", "–"]
    assert cells(text, "1") == ["1", "Brain", "1", "Humans", "2,189,713"]
    assert cells(text, "Maps")[1:6] == ["1", "2", "0", "3", "75.0%"]
    assert cells(text, "Maps")[6:] == ["18,700", "264,092", "41,473", "324,265", "1.3%"]
    assert cells(text, "Natural Images")[4:7] == ["1", "25.0%", "–"]
    assert cells(text, "CC BY") == ["CC BY", "2", "66.7%", "3,795,419", "62.8%"]
    # As read from the file, with sorted keys.
    contexts = [line.split()[1] for line in text.splitlines() if " tokens | " in line]
    assert contexts[-4:] == ["77", "154", "256", "512"]
    assert cells(text, "77 tokens") == ["77 tokens", "0", "0.0%", "0.0%"]


def test_a_corpus_without_labels_or_without_pairs_has_tables() -> None:
    assert "The corpus has no labels" in printed([pair("A")])
    assert cells(printed([]), "CC BY")[1:3] == ["0", "–"]


def test_what_is_no_corpus_or_an_old_one_is_answered(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError):
        tables_of(str(tmp_path))
    manifest = {"kind": "corpus", "config": {}, "counts": {}, "inputs": [], "code": "t"}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / "stats.json").write_text("{}")
    with pytest.raises(ArtifactError, match="an earlier version of biovl counted less"):
        tables_of(str(tmp_path))
