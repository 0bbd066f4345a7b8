"""Loading pairs: what is drawn, what is read, and what happens to a pair that cannot be."""

import io
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from biovl.core.errors import ArtifactError, StorageError
from biovl.core.shards import ShardWriter
from biovl.images.transforms import resize_center_crop
from biovl.pretrain import shard_reading
from biovl.pretrain.config import DataConfig
from biovl.pretrain.order import epoch_order, read_places
from biovl.pretrain.pairs import Loaded, load_pairs, load_validation

PX = 32
PAIRS, SHARD_PAIRS = 40, 10


class Words:
    """A tokenizer whose ids are bytes, between 1 and 2."""

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        return [np.array([1, *text.encode(), 2], np.int32) for text in texts]


def crop(pixels: np.ndarray) -> np.ndarray:
    return resize_center_crop(Image.fromarray(pixels), PX)


def words(loaded: Loaded) -> list[str]:
    return [bytes(ids[1:-1].astype(np.uint8)).decode() for ids in loaded.tokens]


def encoded(number: int) -> bytes:
    rng = np.random.default_rng(number)
    image = Image.fromarray(rng.integers(0, 256, (40 + number % 7, 50, 3), np.uint8))
    stream = io.BytesIO()
    image.save(stream, "PNG" if number % 5 == 0 else "JPEG")
    return stream.getvalue()


def files(number: int) -> dict[str, bytes]:
    about = {
        "caption": f"caption {number}",
        "mentions": [f"first {number}", f"second {number}"][: number % 3],
        "long_caption": None,
        "context_caption": f"context {number}",
    }
    kind = "png" if number % 5 == 0 else "jpg"
    return {
        kind: encoded(number),
        "txt": f"text {number}".encode(),
        "json": json.dumps(about).encode(),
    }


def write_corpus(
    corpus: Path, files_of: Callable[[int], dict[str, bytes]] = files, split: str = "train"
) -> str:
    rows = []
    for first in range(0, PAIRS, SHARD_PAIRS):
        name = f"{split}/{first // SHARD_PAIRS:05d}.tar"
        (corpus / name).parent.mkdir(parents=True, exist_ok=True)
        with (corpus / name).open("wb") as stream:
            shard = ShardWriter(stream)
            for number in range(first, first + SHARD_PAIRS):
                place = shard.add(f"p{number}", files_of(number))
                rows.append((f"p{number}", split, name, place.offset, place.size, 2))
            shard.finish()
    names = "pair_id split shard offset size text_tokens".split()
    pq.write_table(pa.table(list(zip(*rows, strict=True)), names), corpus / "index.parquet")
    return str(corpus)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("pairs"))


def load(
    corpus: str, rows: Sequence[int], *, seed: int = 0, epoch: int = 0, **data: object
) -> Loaded:
    return load_pairs(
        read_places(corpus, "train"),
        np.array(rows, np.int64),
        seed=seed,
        epoch=epoch,
        image_px=PX,
        data=DataConfig(**data),  # type: ignore[arg-type]
        tokenizer=Words(),
    )


def test_pairs_come_in_the_order_asked_for_with_their_own_texts(corpus: str) -> None:
    order = epoch_order(read_places(corpus, "train"), seed=0, epoch=0, run_pairs=4).tolist()
    loaded = load(corpus, order)
    assert words(loaded) == [f"text {row}" for row in order]
    assert loaded.pixels_BHWC.shape == (PAIRS, PX, PX, 3)
    assert loaded.pixels_BHWC.dtype == np.uint8
    assert loaded.replaced == {}


def test_what_a_pair_becomes_does_not_depend_on_what_it_is_loaded_with(corpus: str) -> None:
    chances = {"caption": 0.5, "mentions": 0.5}
    whole = load(corpus, range(PAIRS), text=chances)
    for rows in ([7], [39, 3, 21], list(range(12, 29))):
        part = load(corpus, rows, text=chances)
        assert np.array_equal(part.pixels_BHWC, whole.pixels_BHWC[rows])
        assert words(part) == [words(whole)[row] for row in rows]


def test_crops_differ_between_epochs_and_seeds(corpus: str) -> None:
    crops = [load(corpus, [3], seed=s, epoch=e).pixels_BHWC for s in range(2) for e in range(2)]
    assert len({crop.tobytes() for crop in crops}) == 4


def test_each_text_is_drawn_as_often_as_asked(corpus: str) -> None:
    chances = {"text": 0.2, "caption": 0.5, "mentions": 0.3}
    drawn: Counter[str] = Counter()
    for epoch in range(40):
        # Pairs 2, 5, 8 … have two mentions.
        drawn.update(
            text.split()[0]
            for text in words(load(corpus, [2, 5, 8, 11, 14], epoch=epoch, text=chances))
        )
    expected = {"text": 40, "caption": 100, "first": 30, "second": 30}
    assert drawn.keys() == expected.keys()
    # Four standard deviations of a count.
    for name, count in expected.items():
        assert abs(drawn[name] - count) < 4 * np.sqrt(count * (1 - count / 200))


def test_long_texts_are_mixed_in_as_often_as_asked_and_the_same_on_every_worker(
    corpus: str,
) -> None:
    chances = {"text": 0.5, "context_caption": 0.5}
    whole = words(load(corpus, range(PAIRS), epoch=3, text=chances))
    assert sum(text.startswith("context") for text in whole) in range(PAIRS // 4, 3 * PAIRS // 4)
    for workers in (2, 3):
        shares = [range(rank, PAIRS, workers) for rank in range(workers)]
        found = {
            row: text
            for rows in shares
            for row, text in zip(
                rows, words(load(corpus, rows, epoch=3, text=chances)), strict=True
            )
        }
        assert [found[row] for row in range(PAIRS)] == whole
    assert words(load(corpus, range(PAIRS), epoch=4, text=chances)) != whole


def test_a_pair_without_the_text_drawn_gives_its_text(corpus: str) -> None:
    assert words(load(corpus, [0, 3], text={"mentions": 1.0})) == ["text 0", "text 3"]
    assert words(load(corpus, [1], text={"long_caption": 1.0})) == ["text 1"]
    assert words(load(corpus, [1], text={"mentions": 1.0})) == ["first 1"]


@pytest.mark.parametrize(
    "record", [b"[]", b'{"mentions": "abc"}', b'{"mentions": 3}', b'{"mentions": [1, null, ""]}']
)
def test_a_record_of_another_kind_gives_the_text(tmp_path: Path, record: bytes) -> None:
    uri = write_corpus(tmp_path, lambda number: {**files(number), "json": record})
    assert words(load(uri, [1], text={"mentions": 1.0})) == ["text 1"]


def test_an_empty_text_is_a_text(tmp_path: Path) -> None:
    uri = write_corpus(tmp_path, lambda number: {**files(number), "txt": b""})
    assert [ids.tolist() for ids in load(uri, [0, 1]).tokens] == [[1, 2], [1, 2]]


def test_validation_draws_nothing(corpus: str) -> None:
    places, rows = read_places(corpus, "train"), np.array([4, 1])
    found = load_validation(
        places, rows, image_px=PX, crop=crop, data=DataConfig(), tokenizer=Words()
    )
    assert words(found) == ["text 4", "text 1"]
    for pixels, row in zip(found.pixels_BHWC, rows.tolist(), strict=True):
        with Image.open(io.BytesIO(encoded(row))) as image:
            assert np.array_equal(pixels, resize_center_crop(image.convert("RGB"), PX))


BROKEN: dict[str, Callable[[int], dict[str, bytes]]] = {
    "image does not decode": lambda number: {**files(number), "jpg": b"\xff\xd8\xff nothing"},
    "graphic is not an image": lambda number: {**files(number), "jpg": b"nothing"},
    "no image": lambda number: {"txt": b"words", "json": b"{}"},
    "no text": lambda number: {"jpg": encoded(number)},
}


@pytest.mark.parametrize("reason", BROKEN)
def test_an_unreadable_pair_stops_with_shard_offset_and_reason_or_is_replaced(
    tmp_path: Path, reason: str
) -> None:
    uri = write_corpus(tmp_path, lambda n: BROKEN[reason](n) if n == 11 else files(n))
    offset = int(read_places(uri, "train").offset[11])
    with pytest.raises(
        ArtifactError, match=rf"train/00001.tar, pair p11 at byte {offset}: {reason}"
    ):
        load(uri, [10, 11, 12])
    loaded = load(uri, [10, 11, 12], unreadable="replace")
    assert loaded.replaced == {f"train/00001.tar: {reason}": 1}
    first, other, last = words(loaded)
    assert (first, last) == ("text 10", "text 12")
    assert other not in ("text 10", "text 11", "text 12")


def test_a_record_that_is_no_json_is_unreadable_where_it_is_needed(tmp_path: Path) -> None:
    uri = write_corpus(tmp_path, lambda number: {**files(number), "json": b"[" * 100_000})
    assert words(load(uri, [1])) == ["text 1"]
    with pytest.raises(ArtifactError, match="record is no JSON"):
        load(uri, [1], text={"caption": 1.0})


def test_a_shard_that_is_gone_cut_or_overwritten_is_named_and_replaced(tmp_path: Path) -> None:
    uri = write_corpus(tmp_path)
    (tmp_path / "train/00000.tar").unlink()
    os.truncate(tmp_path / "train/00001.tar", int(read_places(uri, "train").offset[15]))
    (tmp_path / "train/00002.tar").write_bytes(b"x" * (tmp_path / "train/00002.tar").stat().st_size)
    for row, reason in (
        (3, "train/00000.tar, pair p3 .*: shard cannot be read"),
        (15, "train/00001.tar, pair p15 at byte .*: shard ends before the pair does"),
        (22, "train/00002.tar, pair p22 at byte .*: no pair where the index says"),
    ):
        with pytest.raises(ArtifactError, match=reason):
            load(uri, [row])
    # Pairs of the one good shard and of the good half of another stand for all others.
    loaded = load(uri, [3, 14, 15, 22, 35], unreadable="replace")
    assert sum(loaded.replaced.values()) == 3
    assert {name.partition(":")[0] for name in loaded.replaced} == {
        "train/00000.tar",
        "train/00001.tar",
        "train/00002.tar",
    }
    assert [words(loaded)[n] for n in (1, 4)] == ["text 14", "text 35"]


def test_a_bucket_that_is_away_ends_the_run_and_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = "s3://corpus?endpoint_override=127.0.0.1:1&scheme=http&region=here"
    there = read_places(write_corpus(tmp_path), "train")
    places = replace(there, corpora=(away,) * len(there.shards))
    monkeypatch.setattr(shard_reading, "_RETRIES_AFTER_S", ())
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with pytest.raises(StorageError, match="s3://corpus"):
        load_pairs(
            places,
            np.arange(3),
            seed=0,
            epoch=0,
            image_px=PX,
            data=DataConfig(unreadable="replace"),
            tokenizer=Words(),
        )


def test_replacements_depend_on_the_batch_and_not_on_who_loads_it(tmp_path: Path) -> None:
    uri = write_corpus(tmp_path, lambda n: BROKEN["no image"](n) if n < 10 else files(n))
    places, data = read_places(uri, "train"), DataConfig(unreadable="replace")
    batch = np.arange(5, 25)

    def part(rows: np.ndarray) -> Loaded:
        return load_pairs(
            places,
            rows,
            seed=0,
            epoch=0,
            image_px=PX,
            data=data,
            tokenizer=Words(),
            batch_draws=batch,
        )

    whole = words(part(batch))
    assert whole == words(part(batch[:8])) + words(part(batch[8:]))
    # None of a batch is in it twice.
    assert set(whole[:5]).isdisjoint(whole[5:])


def test_a_corpus_of_nothing_readable_ends_after_some_attempts(tmp_path: Path) -> None:
    uri = write_corpus(tmp_path, BROKEN["no image"])
    with pytest.raises(ArtifactError, match=r"\bp3\b.*no image.*\b16 "):
        load(uri, [3], unreadable="replace")


def test_validation_leaves_out_or_stops(tmp_path: Path) -> None:
    uri = write_corpus(tmp_path, lambda n: BROKEN["no image"](n) if n == 11 else files(n))
    places, rows = read_places(uri, "train"), np.array([10, 11])
    with pytest.raises(ArtifactError, match=r"train/00001.tar, pair p11"):
        load_validation(places, rows, image_px=PX, crop=crop, data=DataConfig(), tokenizer=Words())
    kept = load_validation(
        places,
        rows,
        image_px=PX,
        crop=crop,
        data=DataConfig(unreadable="replace"),
        tokenizer=Words(),
    )
    assert words(kept) == ["text 10"]
    assert kept.replaced == {"train/00001.tar: no image": 1}


def test_a_corpus_in_a_bucket_gives_the_same(
    corpus: str, bucket_uri: str, bucket: Callable[[str, bytes], None]
) -> None:
    for file in Path(corpus).rglob("*"):
        if file.is_file():
            bucket(f"pairs/{file.relative_to(corpus)}", file.read_bytes())
    remote, local = (load(uri, range(0, PAIRS, 3)) for uri in (f"{bucket_uri}/pairs", corpus))
    assert np.array_equal(remote.pixels_BHWC, local.pixels_BHWC)
    assert words(remote) == words(local)
    gone = replace(read_places(f"{bucket_uri}/pairs", "train"), shards=("train/7.tar",) * 4)
    with pytest.raises(ArtifactError, match=r"s3://corpora/pairs/train/7.tar, pair p3 at"):
        load_pairs(
            gone,
            np.array([3]),
            seed=0,
            epoch=0,
            image_px=PX,
            data=DataConfig(),
            tokenizer=Words(),
        )
    with pytest.raises(ArtifactError, match=r"s3://corpora/nowhere/index\.parquet"):
        read_places(f"{bucket_uri}/nowhere", "train")


def test_pairs_that_stand_together_are_read_with_one_request(corpus: str) -> None:
    places = read_places(corpus, "train")
    rows = np.array([30, 9, 4, 31, 10, 5, 7])
    # 9 and 10 are neighbours in the index, but of two shards.
    requests = [rows[run].tolist() for run in shard_reading._runs(places, rows)]
    assert requests == [[4, 5], [7], [9], [10], [30, 31]]


@pytest.mark.parametrize("ratio", [(0.0, 1.0), (-1.0, 1.0), (4 / 3, 3 / 4), (1.0, float("nan"))])
def test_a_range_of_aspect_ratios_is_positive_and_in_order(ratio: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="crop_ratio"):
        DataConfig(crop_ratio=ratio)
