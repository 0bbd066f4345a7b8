"""Near duplicates between a benchmark and a corpus, by file, by looks and by vectors."""

import io
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

from biovl.assemble import duplicates
from biovl.benchmark import image_hashes, leak_report, leakage
from biovl.benchmark.datasets import Questions
from biovl.images.hashing import sha256_hex
from biovl.index.search import Index
from tests.benchmark.memory import MemoryImages, random_unit
from tests.index.small_index import figure, publish


def drawing(seed, size=(120, 90)):
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(image)
    for _ in range(25):
        x, y, w, h = (rng.random(4) * [size[0], size[1], 50, 40]).astype(int)
        draw.ellipse([x, y, x + w, y + h], fill=tuple(rng.integers(0, 255, 3).tolist()))
    return image


def encoded(image, kind="PNG", **options):
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_files_and_pictures_encoded_anew_are_found_and_others_are_not() -> None:
    ours = [encoded(drawing(n)) for n in range(5)] + [b"", b"no image"]
    benchmark = image_hashes.looks([f"b{n}" for n in range(7)], ours)
    theirs = [
        ours[0],
        encoded(drawing(1), "JPEG", quality=60),
        encoded(drawing(2).resize((60, 45))),
        encoded(drawing(2, (120, 60))),
        encoded(drawing(77)),
        encoded(Image.new("RGB", (120, 90))),
        b"",
    ]
    corpus = image_hashes.looks([f"c{n}" for n in range(7)], theirs)
    found = leakage.leaks(benchmark["id"].to_pylist(), image_hashes.Hashes(benchmark).near(corpus))
    by = {(row["id"], row["corpus_id"], row["by"]) for row in found.pairs.to_pylist()}
    assert by == {
        ("b0", "c0", leakage.SAME_FILE),
        ("b0", "c0", leakage.HASH),
        ("b1", "c1", leakage.HASH),
        ("b2", "c2", leakage.HASH),
    }
    assert found.counts == {
        "images": 7,
        "leaked": {leakage.SAME_FILE: 1, leakage.HASH: 3, "any": 3},
        "corpus_images": 3,
        "elsewhere": 0,
    }
    assert found.leaked() == {"b0", "b1", "b2"}
    assert set(found.pairs["corpus_id"].to_pylist()) == {"c0", "c1", "c2"}


def hashes(values, prefix, widths=None):
    return pa.table(
        {
            "id": [f"{prefix}{n}" for n in range(len(values))],
            "sha256": pa.nulls(len(values), pa.string()),
            "phash": [f"{int(value):016x}" for value in values],
            "width_px": widths if widths is not None else [100] * len(values),
            "height_px": [100] * len(values),
        },
        image_hashes.LOOKS,
    )


def test_every_pair_within_the_distance_is_found_once(monkeypatch) -> None:
    monkeypatch.setattr(image_hashes, "_CHUNK", 300)
    rng = np.random.default_rng(0)
    ours = rng.integers(0, 2**64, 500, np.uint64)
    theirs = rng.integers(0, 2**64, 2_000, np.uint64)
    for row in range(600):
        flips = np.uint64(0)
        for bit in rng.choice(64, row % 7, replace=False):
            flips |= np.uint64(1) << np.uint64(bit)
        theirs[row] = ours[rng.integers(500)] ^ flips
    widths = rng.choice([100, 101, 110], 2_000).tolist()
    distance = np.bitwise_count(ours[:, None] ^ theirs[None])
    fits = np.abs(np.log(np.array(widths) / 100)) <= np.log1p(duplicates.MAX_ASPECT_GAP)
    telling = duplicates.informative(ours)[:, None] & duplicates.informative(theirs)
    expected = np.argwhere((distance <= 4) & fits & telling)
    *_, near = image_hashes.Hashes(hashes(ours, "b")).near(hashes(theirs, "c", widths))
    pairs = sorted(zip(near.row_P.tolist(), (int(c[1:]) for c in near.corpus_ids), strict=True))
    assert pairs == [tuple(pair) for pair in expected.tolist()]
    assert len(pairs) > 200


def test_a_benchmark_is_read_and_compared_with_harvested_figures(tmp_path) -> None:
    # More than are read at once.
    files = tuple(encoded(drawing(n, (64, 48))) for n in range(3)) * 100
    ids = [f"b{n}" for n in range(300)]
    benchmark = image_hashes.looks_of(ids, MemoryImages(files))
    assert benchmark["id"].to_pylist() == ids
    assert len(set(benchmark["phash"].to_pylist())) == 3
    columns = ["figure_id", "image_sha256", "phash", "width_px", "height_px"]
    figures = benchmark.slice(1, 1).rename_columns(columns).append_column("image", [[b""]])
    pq.write_table(figures, tmp_path / "part.parquet")
    (corpus,) = image_hashes.looks_of_figures(str(tmp_path))
    found = leakage.leaks(ids, image_hashes.Hashes(benchmark).near(corpus))
    assert set(found.pairs["corpus_id"].to_pylist()) == {"b1"}
    assert found.counts["leaked"] == {leakage.HASH: 100, leakage.SAME_FILE: 100, "any": 100}


def test_only_what_was_trained_on_leaks_and_nothing_is_its_own_duplicate(tmp_path) -> None:
    names = ["train", "test", "panel_p1", "gone"]
    files = [encoded(drawing(n)) for n in range(4)]
    rows = [
        figure(n, figure_id=name, split="test" if name == "test" else "train")
        for n, name in enumerate(names[:3])
    ]
    index = Index.open(publish(tmp_path / "index", random_unit(3), rows=rows))
    # The benchmark is the test figure, and copies of another test, panel, train and lost figure.
    ours = image_hashes.looks(["test", "a", "b", "c", "d"], [files[n] for n in (1, 1, 2, 0, 3)])
    figures = image_hashes.looks(["train", "test", "panel", "gone"], files)
    found = leakage.leaks(
        ours["id"].to_pylist(),
        image_hashes.Hashes(ours).near(figures),
        partial(leak_report.trained_on, index),
    )
    by_file = found.pairs.filter(pc.equal(found.pairs["by"], leakage.SAME_FILE)).to_pylist()
    assert [(row["id"], row["corpus_id"], row["trained_on"]) for row in by_file] == [
        ("a", "test", False),
        ("b", "panel", True),
        ("c", "train", True),
        ("d", "gone", False),
        # For the next corpus, which leaves it out.
        ("test", "test", False),
    ]
    assert found.leaked() == {"b", "c"}
    assert (found.counts["leaked"]["any"], found.counts["elsewhere"]) == (2, 2)


def test_nothing_leaks_into_an_empty_corpus() -> None:
    benchmark = image_hashes.looks(["a"], [encoded(drawing(0))])
    found = leakage.leaks(
        ["a"], image_hashes.Hashes(benchmark).near(image_hashes.LOOKS.empty_table())
    )
    assert found.counts == {"images": 1, "leaked": {"any": 0}, "corpus_images": 0, "elsewhere": 0}


def test_scores_without_leaked_images_are_means_of_the_others() -> None:
    data = SimpleNamespace(images=MemoryImages([b"a", b"b", b"c", b"d"]), ids=["a", "b", "c", "d"])
    table = pa.table({"id": data.ids, "accuracy": [1.0, 1.0, 0.0, None]})
    first = leakage.NearDuplicates(
        by=leakage.SAME_FILE, row_P=np.array([0]), corpus_ids=["f"], closeness_P=np.ones(1)
    )
    found = leakage.leaks(data.ids, [first])
    (score,) = leak_report.scores_without(data, table, found, resamples=100, seed=0)
    assert (score.name, score.value, score.count) == (f"accuracy{leak_report.PART}", 0.5, 2)
    none = leakage.leaks(data.ids, [])
    assert leak_report.scores_without(data, table, none, resamples=100, seed=0) == []


def test_a_question_leaks_with_its_image() -> None:
    # As many questions as images, in another order: ids of questions name no images.
    data = Questions(
        name="q",
        images=MemoryImages([b"a", b"b", b"c"]),
        image_of=np.array([2, 0, 1]),
        questions=["?"] * 3,
        answers=["yes"] * 3,
        kinds=np.array(["closed"] * 3),
        splits=np.array(["test"] * 3),
        ids=["test/0", "test/1", "test/2"],
        image_names=["apple", "mango", "zebra"],
    )
    zebra = leakage.NearDuplicates(
        by=leakage.SAME_FILE, row_P=np.array([2]), corpus_ids=["f"], closeness_P=np.ones(1)
    )
    found = leakage.leaks(leak_report.image_ids(data), [zebra])
    assert found.leaked() == {"zebra"}
    answers = pa.table({"id": data.ids, "accuracy": [1.0, 0.0, 0.0]})
    (score,) = leak_report.scores_without(data, answers, found, resamples=100, seed=0)
    assert (score.value, score.count) == (0.0, 2)
    # Without names, images have numbers, which are not those of questions either.
    numbered = replace(data, image_names=[])
    found = leakage.leaks(leak_report.image_ids(numbered), [zebra])
    assert found.leaked() == {"2"}
    assert leak_report.leaked_ids(numbered, answers, found) == {"test/0"}


def test_an_only_question_names_its_image() -> None:
    data = SimpleNamespace(
        images=MemoryImages([b"a", b"b"]), image_of=np.arange(2), ids=["p1/q", "p2/q"]
    )
    assert leak_report.image_ids(data) == ["p1/q", "p2/q"]
    second = leakage.NearDuplicates(
        by=leakage.SAME_FILE, row_P=np.array([1]), corpus_ids=["f"], closeness_P=np.ones(1)
    )
    found = leakage.leaks(leak_report.image_ids(data), [second])
    assert leak_report.leaked_ids(data, pa.table({"id": data.ids}), found) == {"p2/q"}


def test_an_index_tells_files_and_vectors_of_what_was_trained_on(tmp_path) -> None:
    vectors = random_unit(60, seed=3)
    files = [b"%d" % row for row in range(60)]
    rows = [
        figure(row, image_sha256=sha256_hex(files[row]), split="train" if row % 2 else "test")
        for row in range(60)
    ]
    index = Index.open(publish(tmp_path / "index", vectors, rows=rows))
    ours = np.concatenate([vectors[[4, 7]], random_unit(1, seed=9), np.full((1, 32), np.nan)])
    benchmark = image_hashes.looks(["a", "b", "c", "d"], [files[6], files[9], b"new", b""])
    found = leakage.leaks(
        ["a", "b", "c", "d"],
        [
            *image_hashes.Hashes(benchmark).near(image_hashes.looks_of_index(index)),
            *leakage.near_in_index(ours, index),
        ],
    )
    assert [(p["id"], p["corpus_id"], p["by"]) for p in found.pairs.to_pylist()] == [
        ("b", rows[9]["figure_id"], leakage.SAME_FILE),
        ("b", rows[7]["figure_id"], leakage.EMBEDDING),
    ]
