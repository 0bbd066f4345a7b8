from pathlib import Path

import bm25s
import numpy as np
import pytest

from biovl.index import postings, words
from biovl.index.filters import Selection
from biovl.index.words import Words, words_of

CAPTIONS = [
    "Expression of IL-6 and p53 in the lung",
    "18F-FDG PET/CT of the lung: uptake in a nodule",
    "IL6 knock-out mice",
    "",
    "Lung lung lung",
]


def opened(captions: list[str], folder: Path) -> Words:
    Words.build(captions, folder)
    return Words.open(folder)


def found(words: Words, text: str, selection: Selection | None = None, k: int = 10) -> list[int]:
    return words.search(text, k, selection or Selection(words.count))[1].tolist()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("IL-6 levels", "il-6 il6 il 6 levels".split()),
        ("p53", ["p53"]),
        ("18F-FDG", "18f-fdg 18ffdg 18f fdg".split()),
        ("TNF\u2010α", "tnf-α tnfα tnf α".split()),
        ("a CT of the lung", ["ct", "lung"]),
        ("(A) 3.5 ± 0.2 mm", "3.5 35 3 5 0.2 02 0 2 mm".split()),
        ("--- // '", []),
    ],
)
def test_names_are_found_whole_and_in_parts(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("query", "rows"),
    [("il-6", {0, 2}), ("IL6", {0, 2}), ("fdg", {1}), ("18F-FDG", {1}), ("P53", {0}), ("6", {0})],
)
def test_captions_are_found_by_their_words(query: str, rows: set[int], tmp_path: Path) -> None:
    assert set(found(opened(CAPTIONS, tmp_path), query)) == rows


def test_more_of_a_word_ranks_higher(tmp_path: Path) -> None:
    words = opened(CAPTIONS, tmp_path)
    assert found(words, "lung")[0] == 4
    assert found(words, "lung", k=1) == [4]


def test_scores_are_bm25(tmp_path: Path) -> None:
    scores, rows = opened(["lung", "lung heart", "bone"], tmp_path).search("lung", 5, Selection(3))
    # Lucene: idf = ln(1 + (N - n + .5) / (n + .5)); tf / (tf + k1 (1 - b + b dl / avgdl)).
    idf = np.log(1 + (3 - 2 + 0.5) / 2.5)
    expected = [idf / (1 + 1.5 * (0.25 + 0.75 * length / (4 / 3))) for length in (1, 2)]
    np.testing.assert_allclose(scores, expected, rtol=1e-5)
    assert rows.tolist() == [0, 1]


@pytest.mark.parametrize("query", ["zebra", "", "the of", "zebra \x00 \ud800"])
def test_words_that_no_caption_holds_find_nothing(query: str, tmp_path: Path) -> None:
    assert found(opened(CAPTIONS, tmp_path), query) == []


def test_unknown_words_beside_known_ones_do_not_matter(tmp_path: Path) -> None:
    assert found(opened(CAPTIONS, tmp_path), "zebra fdg") == [1]


def test_only_selected_captions_are_found(tmp_path: Path) -> None:
    selection = Selection(2, np.packbits([0, 1, 0, 0, 1], bitorder="little"))
    assert found(opened(CAPTIONS, tmp_path), "lung IL-6", selection) == [4, 1]


@pytest.mark.parametrize("captions", [[], [""], ["the"], ["lung"]])
def test_hardly_any_captions(captions: list[str], tmp_path: Path) -> None:
    words = opened(captions, tmp_path)
    assert words.count == len(captions)
    assert found(words, "lung") == ([0] if captions == ["lung"] else [])


def test_the_same_captions_give_the_same_bytes(tmp_path: Path) -> None:
    for name in "ab":
        Words.build(CAPTIONS, tmp_path / name)
    for path in (tmp_path / "a").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_words_counted_in_stretches_give_the_scores_of_bm25s_to_the_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    captions = [
        " ".join(f"w{int(400 * rng.random() ** 3)}" for _ in range(rng.integers(0, 30)))
        for _ in range(500)
    ]
    monkeypatch.setattr(words, "_BLOCK", 64)
    monkeypatch.setattr(words, "_SCORED", 17)
    monkeypatch.setattr(postings, "_HELD", 100)
    Words.build(captions, tmp_path)
    tokens = [words_of(caption) for caption in captions]
    place_of = {word: place for place, word in enumerate(sorted({w for ws in tokens for w in ws}))}
    expected = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
    ids = [[place_of[word] for word in document] for document in tokens]
    expected.index((ids, place_of), create_empty_token=False, show_progress=False)
    for name in ("data", "indices", "indptr"):
        found = np.load(tmp_path / "scores" / f"{name}.csc.index.npy")
        np.testing.assert_array_equal(found, expected.scores[name])
    assert not (tmp_path / "runs").exists()


def test_of_a_long_text_of_frequent_words_the_rarest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = [f"common{number}" for number in range(12)]
    captions = [" ".join(common)] * 9 + [" ".join(["rare", *common])]
    Words.build(captions, tmp_path)
    found = Words.open(tmp_path)
    everything = Selection(len(captions))
    _, rows = found.search(" ".join([*common, "rare"]), 10, everything)
    assert rows[0] == 9
    scores, _ = found.search(" ".join(common), 10, everything)
    whole, _ = found.search(" ".join(common[:8]), 10, everything)
    assert (scores > whole).all()
    # Of a large index eight times all captions are read, so eight words of twelve; each adds the
    # same to a caption.
    monkeypatch.setattr(words, "_READ_AT_LEAST", 0)
    scores, _ = found.search(" ".join(common), 10, everything)
    eight, _ = found.search(" ".join(common[:8]), 10, everything)
    np.testing.assert_array_equal(scores, eight)
