import concurrent.futures
import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biovl.core.artifacts import Input, fingerprint
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.shards import ShardWriter
from biovl.index.corpus import NOTE, path_from_index
from biovl.index.query import Filter, Hit, Query, QueryPart, Results, Years
from biovl.index.search import Index
from tests.index.small_index import figure, publish, unit

RNG = np.random.default_rng(0)
IMAGES_ND, CAPTIONS_ND = unit(RNG, 3_000, 32), unit(RNG, 3_000, 32)


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("published") / "index"
    return publish(
        folder,
        IMAGES_ND,
        captions_ND=CAPTIONS_ND,
        factory="IVF32,SQ8",
        settings={"nprobe": 8},
    )


@pytest.fixture(scope="module")
def index(uri: str) -> Index:
    return Index.open(uri)


def near(vector_D: np.ndarray, **given: Any) -> Query:
    return Query(parts=(QueryPart(vector_D=vector_D),), **given)


def ids(found: Results) -> list[str]:
    return [hit.figure_id for hit in found.hits]


def name(row: int) -> str:
    return f"PMC{row // 3}_f{row}"


def exact_ids(vectors_ND: np.ndarray, query_D: np.ndarray, k: int) -> list[str]:
    scores_N = vectors_ND.astype(np.float16).astype(np.float32) @ query_D
    return [name(row) for row in np.argsort(-scores_N)[:k].tolist()]


def test_an_image_finds_itself_first_with_what_is_known_of_it(index: Index) -> None:
    hit = index.search(near(IMAGES_ND[7], k=3)).hits[0]
    assert isinstance(hit, Hit)
    assert (hit.figure_id, hit.rank, hit.matched) == (name(7), 1, ("images",))
    assert hit.score == pytest.approx(1, abs=0.01)
    assert hit.about["caption"] == figure(7)["caption"]


def test_thumbnails_stay_those_of_the_index_when_another_takes_its_place(tmp_path: Path) -> None:
    rows = [figure(row, thumbnail_offset=3 * row, thumbnail_size=3) for row in range(2)]
    uri = publish(tmp_path / "index", IMAGES_ND[:2], rows=rows, thumbnails=b"onetwo")
    opened = Index.open(uri)
    shutil.rmtree(tmp_path / "index")
    publish(tmp_path / "index", IMAGES_ND[:2], rows=rows, thumbnails=b"sixten")
    assert opened.thumbnail(name(1)) == b"two"
    assert Index.open(uri).thumbnail(name(1)) == b"ten"


def test_an_exact_search_finds_what_brute_force_does(index: Index) -> None:
    query_D = unit(RNG, 1, 32)[0]
    assert ids(index.search(near(query_D, k=50, exact=True))) == exact_ids(IMAGES_ND, query_D, 50)
    over = index.search(near(query_D, k=50, exact=True, over=("captions",)))
    assert ids(over) == exact_ids(CAPTIONS_ND, query_D, 50)


def test_parts_are_added_by_weight(index: Index) -> None:
    parts = (
        QueryPart(vector_D=IMAGES_ND[1], weight=2),
        QueryPart(vector_D=CAPTIONS_ND[2], kind="text", weight=0.5),
        QueryPart(figure_id=name(3), weight=-1),
    )
    total_D = 2 * IMAGES_ND[1] + 0.5 * CAPTIONS_ND[2] - IMAGES_ND[3].astype(np.float16)
    total_D /= np.linalg.norm(total_D)
    assert ids(index.search(Query(parts=parts, exact=True))) == exact_ids(IMAGES_ND, total_D, 20)


def test_a_figure_alone_finds_others_like_it_and_not_itself(index: Index) -> None:
    found = ids(index.search(Query(parts=(QueryPart(figure_id=name(5)),), exact=True)))
    assert found == exact_ids(IMAGES_ND, IMAGES_ND[5], 21)[1:]


def test_parts_of_weight_0_are_as_if_they_were_absent(index: Index) -> None:
    figure, other = QueryPart(figure_id=name(5)), QueryPart(figure_id=name(6), weight=0)
    text = QueryPart(vector_D=CAPTIONS_ND[2], kind="text", weight=0)
    alone = ids(index.search(Query(parts=(figure,), exact=True)))
    assert ids(index.search(Query(parts=(figure, other, text), exact=True))) == alone


def test_images_captions_and_words_are_joined_by_reciprocal_rank(index: Index) -> None:
    query_D, text = unit(RNG, 1, 32)[0], "p53"
    both = near(query_D, over=("images", "captions"), words=text, exact=True)
    lists = {
        "images": exact_ids(IMAGES_ND, query_D, 100),
        "captions": exact_ids(CAPTIONS_ND, query_D, 100),
        "words": ids(index.search(Query(words=text, k=100))),
    }
    gains: dict[str, float] = {}
    for ranked in lists.values():
        for rank, figure_id in enumerate(ranked, 1):
            gains[figure_id] = gains.get(figure_id, 0) + 1 / (60 + rank)
    hits = index.search(both).hits
    assert [hit.score for hit in hits] == pytest.approx(sorted(gains.values())[::-1][:20])
    for hit in hits:
        assert hit.score == pytest.approx(gains[hit.figure_id])
        assert hit.matched == tuple(n for n, ranked in lists.items() if hit.figure_id in ranked)


def test_words_alone_rank_by_bm25(index: Index) -> None:
    found = index.search(Query(words="IL-6 ultrasound", k=5))
    assert all("IL-6" in hit.about["caption"] for hit in found.hits)
    assert {hit.matched for hit in found.hits} == {("words",)}
    assert not index.search(Query(words="zebra")).hits


WAYS = {
    "images": {"parts": (QueryPart(vector_D=unit(RNG, 1, 32)[0]),)},
    "similar": {"parts": (QueryPart(figure_id=name(9)),)},
    "joined": {
        "parts": (QueryPart(vector_D=unit(RNG, 1, 32)[0], kind="text"),),
        "over": ("images", "captions"),
        "words": "heart IL-6",
    },
    "words": {"words": "heart"},
    "filtered": {
        "parts": (QueryPart(vector_D=unit(RNG, 1, 32)[0]),),
        "filter": Filter(license_group=("commercial", "other"), year=Years(gte=2001)),
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [7, 50, 200])
def test_pages_fit_together(index: Index, way: str, size: int) -> None:
    depth = 1_000
    whole = index.search(Query(**WAYS[way], k=depth)).hits
    pages = [
        index.search(Query(**WAYS[way], k=size, offset=offset)).hits
        for offset in range(0, depth, size)
    ]
    paged = [hit for page in pages for hit in page][:depth]
    assert paged == list(whole)
    assert len({hit.figure_id for hit in whole}) == len(whole) == depth
    assert [hit.rank for hit in whole] == list(range(1, depth + 1))


@pytest.mark.parametrize("way", ["images", "joined", "similar"])
def test_a_filter_holds_and_is_counted(index: Index, way: str) -> None:
    wanted = Filter(image_type=("x-ray",), journal=("Journal 1", "Journal 2"))
    fitting = [
        row for row in range(3_000) if figure(row)["image_type"] == "x-ray" and row % 5 in (1, 2)
    ]
    found = index.search(Query(**WAYS[way], filter=wanted, k=3_000))
    assert found.matching == len(fitting)
    assert set(ids(found)) == {name(row) for row in fitting}


def test_a_filter_that_nothing_fits_finds_nothing(index: Index) -> None:
    found = index.search(near(IMAGES_ND[0], filter=Filter(journal=("none",)), words="p53"))
    assert (list(found.hits), found.matching) == ([], 0)


def test_a_filter_that_one_figure_fits_finds_it(index: Index) -> None:
    wanted = Filter(article_id=("PMC3",), kind=("figure",), image_type=("plot",))
    found = index.search(near(IMAGES_ND[0], filter=wanted))
    assert ids(found) == [name(11)]


def test_pages_behind_the_end_are_empty(index: Index) -> None:
    assert not index.search(near(IMAGES_ND[0], offset=3_000)).hits
    assert len(index.search(near(IMAGES_ND[0], offset=2_990)).hits) == 10


def test_settings_are_those_of_the_manifest_unless_given(index: Index) -> None:
    assert index.search(near(IMAGES_ND[0])).plan == "ivf nprobe=8"
    assert index.search(near(IMAGES_ND[0], settings={"nprobe": 3})).plan == "ivf nprobe=3"
    assert index.recall("images", "image") == 0.99
    assert index.recall("images", "text") is None


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (Query(), "parts or words"),
        (near(np.full(32, np.nan, np.float32)), "NaN"),
        (near(np.full(32, np.inf, np.float32)), "NaN"),
        (near(np.ones(16, np.float32)), r"\(16,\).*\(32,\)"),
        (near(np.zeros(32, np.float32)), "weights"),
        (
            Query(parts=(QueryPart(figure_id=name(0)), QueryPart(figure_id=name(0), weight=-1))),
            "weights",
        ),
        (Query(parts=(QueryPart(figure_id="nobody"),)), "'nobody'"),
        (Query(parts=(QueryPart(),)), "vector .*figure"),
        (
            Query(parts=(QueryPart(figure_id=name(0), weight=float("nan")),)),
            "weight .*nan",
        ),
        (near(IMAGES_ND[0], k=0), r"k .*\b0 and 0$"),
        (near(IMAGES_ND[0], offset=-1), r"offset .* -1\b"),
    ],
)
def test_what_cannot_be_searched_is_refused(index: Index, query: Query, reason: str) -> None:
    with pytest.raises(BiovlError, match=reason):
        index.search(query)


def test_equal_vectors_are_all_found_in_one_order(tmp_path: Path) -> None:
    same_ND = np.repeat(unit(RNG, 1, 32), 300, axis=0)
    vectors_ND = np.concatenate([same_ND, unit(RNG, 700, 32)])
    index = Index.open(publish(tmp_path / "index", vectors_ND, factory="IVF8,SQfp16"))
    pages = [ids(index.search(near(same_ND[0], k=30, offset=o))) for o in range(0, 300, 30)]
    assert {i for page in pages for i in page} == {name(row) for row in range(300)}


@pytest.mark.parametrize("count", [0, 1, 2])
def test_an_index_of_hardly_anything(count: int, tmp_path: Path) -> None:
    index = Index.open(publish(tmp_path / "index", IMAGES_ND[:count]))
    assert len(index) == count
    found = index.search(near(IMAGES_ND[0], k=5, over=("images",), words="lung"))
    assert set(ids(found)) == {name(row) for row in range(count)}
    assert index.figures([name(0), "nobody"]) == [figure(0) if count else None, None]
    similar = Query(parts=(QueryPart(figure_id=name(0)),))
    if count:
        assert len(index.search(similar).hits) == count - 1


def test_threads_get_the_answers_of_one(index: Index) -> None:
    queries = [
        near(
            vector_D, k=20, filter=Filter(year=Years(gte=2000 + n % 20)), settings={"nprobe": 1 + n}
        )
        for n, vector_D in enumerate(unit(RNG, 60, 32))
    ]
    alone = [ids(index.search(query)) for query in queries]
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        assert [ids(found) for found in threads.map(index.search, queries * 3)] == alone * 3


def test_an_image_is_read_from_its_shard_and_a_thumbnail_from_the_index(tmp_path: Path) -> None:
    (tmp_path / "corpus/train").mkdir(parents=True)
    with (tmp_path / "corpus/train/00000.tar").open("wb") as stream:
        writer = ShardWriter(stream)
        writer.add("before", {"jpg": b"no", "txt": b"no"})
        place = writer.add("a", {"png": b"\x89PNG", "txt": b"text", "json": b"{}"})
        writer.finish()
    rows = [
        figure(0, offset=place.offset, size=place.size, thumbnail_offset=3, thumbnail_size=3),
        figure(1, shard="gone.tar"),
    ]
    index = Index.open(publish(tmp_path / "index", IMAGES_ND[:2], rows=rows))
    assert index.image(name(0)) == b"\x89PNG"
    assert index.thumbnail(name(0)) == index.image(name(0), "thumbnail") == b"two"
    assert index.thumbnail(name(1)) is None
    assert index.thumbnail("nobody") is None
    for figure_id in (name(1), "nobody"):
        with pytest.raises(ArtifactError):
            index.image(figure_id)
    (tmp_path / "corpus").rename(tmp_path / "moved")
    assert index.image(name(0), "full", str(tmp_path / "moved")) == b"\x89PNG"


def test_the_image_of_another_figure_is_not_shown_for_one(tmp_path: Path) -> None:
    (tmp_path / "corpus/train").mkdir(parents=True)
    with (tmp_path / "corpus/train/00000.tar").open("wb") as stream:
        writer = ShardWriter(stream)
        about = {"figure_id": name(1)}
        files = {"png": b"\x89PNG", "json": json.dumps(about).encode(), "clip.npy": b"vector"}
        place = writer.add("a", files)
        writer.finish()
    at = {"offset": place.offset, "size": place.size}
    panel, next_ = f"{name(1)}_panel-a", f"{name(1)}0"
    others = [figure(2, **at, figure_id=panel), figure(3, **at, figure_id=next_)]
    rows = [figure(0, **at), figure(1, **at), *others]
    index = Index.open(publish(tmp_path / "index", IMAGES_ND[:4], rows=rows))
    assert index.image(name(1)) == index.image(panel) == b"\x89PNG"
    for other in (name(0), next_):
        with pytest.raises(ArtifactError, match=rf"\.tar .*{other}"):
            index.image(other)


def a_corpus(folder: Path, *, image: bytes = b"\x89PNG", manifest: str = "{}") -> list[dict]:
    """Write a corpus of one pair; return its rows."""
    (folder / "train").mkdir(parents=True)
    with (folder / "train/00000.tar").open("wb") as stream:
        writer = ShardWriter(stream)
        place = writer.add("a", {"png": image, "txt": b"text", "json": b"{}"})
        writer.finish()
    (folder / "manifest.json").write_text(manifest)
    return [figure(0, offset=place.offset, size=place.size)]


def of_corpus(uri: str, folder: Path) -> list[Input]:
    return [
        Input(name="model", uri="model", fingerprint="m" * 64),
        Input(name="corpus", uri=uri, fingerprint=fingerprint(str(folder))),
    ]


@pytest.mark.parametrize("out", ["index", "indexes/of/today"])
def test_a_relative_corpus_is_found_from_any_working_folder(
    out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As earlier versions wrote it: relative to the working folder, and no note.
    rows = a_corpus(tmp_path / "data" / "corpus")
    inputs = of_corpus("data/corpus", tmp_path / "data" / "corpus")
    uri = publish(tmp_path / "data" / out, IMAGES_ND[:1], rows=rows, inputs=inputs)
    elsewhere = tmp_path / "elsewhere"
    a_corpus(elsewhere / "data" / "corpus", image=b"another", manifest='{"another": 1}')
    for working in (tmp_path, elsewhere, Path("/")):
        monkeypatch.chdir(working)
        assert Index.open(uri).image(name(0)) == b"\x89PNG"
        assert Index.open(os.path.relpath(uri)).image(name(0)) == b"\x89PNG"
    # Moved together.
    (tmp_path / "data").rename(tmp_path / "moved")
    (tmp_path / "moved" / "data").mkdir()
    (tmp_path / "moved" / "corpus").rename(tmp_path / "moved" / "data" / "corpus")
    moved = Index.open(str(tmp_path / "moved" / out))
    assert moved.image(name(0)) == b"\x89PNG"
    assert moved.images_problem() is None


def test_a_corpus_noted_relative_to_the_index_is_found_where_no_parent_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = a_corpus(tmp_path / "home" / "corpus")
    monkeypatch.chdir(tmp_path / "home")
    noted = path_from_index("corpus", str(tmp_path / "disk" / "index"))
    assert noted == "../../home/corpus"
    uri = publish(
        tmp_path / "disk" / "index",
        IMAGES_ND[:1],
        rows=rows,
        inputs=of_corpus("corpus", tmp_path / "home" / "corpus"),
        notes={NOTE: noted},
    )
    (tmp_path / "current").symlink_to(uri)
    monkeypatch.chdir("/")
    for way in (uri, str(tmp_path / "current")):
        assert Index.open(way).image(name(0)) == b"\x89PNG"
    assert path_from_index("/data/corpus", uri) is None
    assert path_from_index("s3://bucket/corpus", uri) is None
    assert path_from_index("corpus", "s3://bucket/index") is None


def test_somebody_may_say_where_the_corpus_is_but_another_corpus_is_not_taken_for_it(
    tmp_path: Path,
) -> None:
    corpus = tmp_path / "corpus"
    rows = a_corpus(corpus)
    inputs = of_corpus("/nowhere/corpus", corpus)
    uri = publish(tmp_path / "index", IMAGES_ND[:1], rows=rows, inputs=inputs)
    assert "/nowhere/corpus" in (Index.open(uri).images_problem() or "")
    assert Index.open(uri, corpus=str(corpus)).image(name(0)) == b"\x89PNG"
    a_corpus(tmp_path / "other", image=b"another", manifest='{"another": 1}')
    inputs = of_corpus(str(corpus), corpus)
    uri = publish(tmp_path / "index-2", IMAGES_ND[:1], rows=rows, inputs=inputs)
    other = str(tmp_path / "other")
    assert Index.open(uri, corpus=other).image(name(0)) == b"\x89PNG"


@pytest.mark.parametrize("shard", ["../secret.tar", "/secret.tar", "train/../../secret.tar"])
def test_a_shard_elsewhere_is_not_read(shard: str, tmp_path: Path) -> None:
    rows = [figure(0, shard=shard)]
    index = Index.open(publish(tmp_path / "index", IMAGES_ND[:1], rows=rows))
    with pytest.raises(ArtifactError, match=name(0)):
        index.image(name(0))


@pytest.mark.parametrize("factory", ["IVF32,PQ8x4", "PCA16,IVF32,SQ8", "IVF32,RaBitQ", "SQ4"])
def test_an_index_of_coarse_codes_is_opened_and_its_scores_are_cosines(
    factory: str, tmp_path: Path
) -> None:
    rng = np.random.default_rng(5)
    around_ND = unit(rng, 40, 32)[rng.integers(0, 40, 3_000)]
    vectors_ND = around_ND + 0.08 * rng.standard_normal((3_000, 32)).astype(np.float32)
    vectors_ND /= np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    index = Index.open(publish(tmp_path / "index", vectors_ND, factory=factory))
    scores = [index.search(near(vector_D, k=1)).hits[0].score for vector_D in vectors_ND[:100]]
    assert 0.5 < max(scores) <= 1


def test_facets_and_licences_are_counted(index: Index) -> None:
    licences = {"commercial": 1000, "noncommercial": 1000, "other": 1000}
    assert index.facets()["license_group"] == licences
    assert sum(index.facets()["year"].values()) == sum(row % 7 != 0 for row in range(3_000))


def damaged(uri: str, folder: Path) -> Path:
    return Path(shutil.copytree(uri, folder / "damaged"))


@pytest.mark.parametrize(
    "file", ["images.faiss", "captions.f16.npy", "table.arrow", "filters/year.codes.npy"]
)
def test_a_file_cut_short_or_missing_is_refused(uri: str, file: str, tmp_path: Path) -> None:
    folder = damaged(uri, tmp_path)
    data = (folder / file).read_bytes()
    (folder / file).write_bytes(data[:-1])
    with pytest.raises(ArtifactError, match=rf"{file} .*\b{len(data) - 1} .*\b{len(data)}\b"):
        Index.open(str(folder))
    (folder / file).unlink()
    with pytest.raises(ArtifactError, match=rf"{file} .*None"):
        Index.open(str(folder))


@pytest.mark.parametrize("file", ["images.faiss", "images.f16.npy", "words/words.json"])
def test_files_of_another_index_are_refused(uri: str, file: str, tmp_path: Path) -> None:
    folder = damaged(uri, tmp_path)
    other = publish(tmp_path / "other", IMAGES_ND[:2_999], factory="IVF32,SQ8")
    shutil.copy(Path(other) / file, folder / file)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["files"] = {}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ArtifactError, match=r"\b3000 .*\b2999\b"):
        Index.open(str(folder))


def test_vectors_in_another_order_are_refused(uri: str, tmp_path: Path) -> None:
    folder = damaged(uri, tmp_path)
    np.save(folder / "images.f16.npy", np.roll(IMAGES_ND, 1, axis=0).astype(np.float16))
    with pytest.raises(ArtifactError, match=r"images\.f16\.npy"):
        Index.open(str(folder))


def test_vectors_off_by_one_from_the_middle_are_refused(uri: str, tmp_path: Path) -> None:
    folder = damaged(uri, tmp_path)
    moved_ND = IMAGES_ND.copy()
    moved_ND[1_500:] = np.roll(IMAGES_ND[1_500:], 1, axis=0)
    np.save(folder / "images.f16.npy", moved_ND.astype(np.float16))
    with pytest.raises(ArtifactError, match=r"images\.f16\.npy"):
        Index.open(str(folder))


@pytest.mark.parametrize(
    ("file", "header"),
    [
        ("images.f16.npy", b"{'descr': ("),
        ("filters/year.codes.npy", b"{'descr': '|O', "),
        ("lookup/rows.npy", b"{'descr': '<f8', "),
    ],
)
def test_a_header_written_over_is_refused(
    uri: str, file: str, header: bytes, tmp_path: Path
) -> None:
    folder = damaged(uri, tmp_path)
    data = bytearray((folder / file).read_bytes())
    data[10 : 10 + len(header)] = header
    (folder / file).write_bytes(data)
    with pytest.raises(ArtifactError, match=file):
        Index.open(str(folder))


@pytest.mark.parametrize("file", ["words/values.arrow", "table.arrow", "filters/journal.codes.npy"])
def test_what_was_written_over_never_ends_the_process(uri: str, file: str, tmp_path: Path) -> None:
    data = (Path(uri) / file).read_bytes()
    folder = damaged(uri, tmp_path)
    for seed in range(12):
        rng = np.random.default_rng(seed)
        changed = bytearray(data)
        for place in rng.integers(128, len(data), 2_000):
            changed[place] = int(rng.integers(256))
        (folder / file).write_bytes(changed)
        # Others may be right by luck, or wrong in what they say.
        with contextlib.suppress(ArtifactError):
            index = Index.open(str(folder))
            index.search(near(IMAGES_ND[0], k=150, words="lung IL-6"))
            index.search(near(IMAGES_ND[0], filter=Filter(journal=("Journal 1",))))


def test_another_kind_of_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"no manifest\.json"):
        Index.open(str(tmp_path))
