import io
import json
import random
import tarfile
from argparse import Namespace
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from packaging.version import Version
from PIL import Image

from biovl.assemble.hub import _features
from biovl.core import shards
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.shards import PairLocation, ShardWriter, read_pair, read_ranges, read_shard

LONG = "PMC1_" + "f" * 150
Pairs = list[tuple[str, dict[str, bytes]]]


def encoded(color: tuple[int, int, int], kind: str) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (20, 10), color).save(stream, kind)
    return stream.getvalue()


def pair(number: int, key: str, kind: str = "jpg") -> tuple[str, dict[str, bytes]]:
    image = encoded((number * 40 % 256, 0, 0), {"jpg": "JPEG", "png": "PNG"}[kind])
    text = f"caption {number}: β-actin"
    about = {"figure_id": key, "doi": None if number < 5 else "10.1/x"}
    return key, {kind: image, "txt": text.encode(), "json": json.dumps(about).encode()}


MIXED = [
    pair(n, LONG if n == 2 else f"PMC{n}_f1", "png" if n % 3 == 1 else "jpg") for n in range(8)
]


def shard_of(pairs: Pairs) -> tuple[bytes, list[PairLocation]]:
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    places = [writer.add(key, files) for key, files in pairs]
    writer.finish()
    return stream.getvalue(), places


def saved(folder: Path, pairs: Pairs, name: str = "00000.tar") -> tuple[str, list[PairLocation]]:
    data, places = shard_of(pairs)
    (folder / name).write_bytes(data)
    return str(folder / name), places


def test_every_pair_can_be_read_by_its_place(tmp_path: Path) -> None:
    uri, places = saved(tmp_path, MIXED)
    for (_, files), place in zip(MIXED, places, strict=True):
        assert read_pair(uri, place.offset, place.size) == files


def test_places_follow_each_other_without_gaps() -> None:
    _, places = shard_of(MIXED)
    ends = [place.offset + place.size for place in places]
    assert [place.offset for place in places] == [0, *ends[:-1]]


def test_a_shard_is_read_in_order_with_its_places(tmp_path: Path) -> None:
    uri, places = saved(tmp_path, MIXED)
    found = [(stored.key, stored.files, stored.place) for stored in read_shard(uri)]
    assert found == [(*one, place) for one, place in zip(MIXED, places, strict=True)]


def test_the_same_pairs_give_the_same_bytes_and_nothing_of_the_machine() -> None:
    data, _ = shard_of(MIXED)
    assert data == shard_of(MIXED)[0]
    assert len(data) % tarfile.RECORDSIZE == 0
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            assert (member.mtime, member.uid, member.gid, member.uname) == (0, 0, 0, "")


def test_a_shard_of_copies_is_the_shard_that_was_copied() -> None:
    data, places = shard_of(MIXED)
    stream = io.BytesIO()
    writer = ShardWriter(stream)
    copies = [writer.copy(data[place.offset :][: place.size]) for place in places]
    writer.finish()
    assert stream.getvalue() == data
    assert copies == places


def test_an_empty_shard_is_a_tar_of_nothing(tmp_path: Path) -> None:
    uri, _ = saved(tmp_path, [])
    assert list(read_shard(uri)) == []
    with tarfile.open(uri) as archive:
        assert archive.getnames() == []


@pytest.mark.parametrize("key", ["", "PMC1.f1", "a/b", "../a", "ß", "a b"])
def test_a_key_that_readers_would_take_for_another_is_refused(key: str) -> None:
    with pytest.raises(ValueError, match="key"):
        ShardWriter(io.BytesIO()).add(key, {"txt": b""})


# What stock readers make of it.


def test_tarfile_reads_a_shard(tmp_path: Path) -> None:
    uri, _ = saved(tmp_path, MIXED)
    with tarfile.open(uri) as archive:
        found = {member.name: archive.extractfile(member).read() for member in archive}
    assert found == {f"{key}.{kind}": data for key, f in MIXED for kind, data in f.items()}


def test_webdataset_reads_a_shard(tmp_path: Path) -> None:
    import webdataset

    uri, _ = saved(tmp_path, MIXED)
    found = list(webdataset.WebDataset(uri, shardshuffle=False))
    assert [sample["__key__"] for sample in found] == [key for key, _ in MIXED]
    for sample, (_, files) in zip(found, MIXED, strict=True):
        assert {kind: sample[kind] for kind in files} == files


@pytest.mark.skipif(
    Version(version("webdataset")) > Version("0.2.86"),
    reason="open_clip 3.3 asks for webdataset up to 0.2.86 and fails at a shard's end with others",
)
@pytest.mark.parametrize("workers", [0, 1])
def test_open_clip_trains_on_a_shard(tmp_path: Path, workers: int) -> None:
    from open_clip_train.data import get_wds_dataset

    # With a file that open_clip does not use.
    more = {"clip_image.npy": shards.pack_embedding(np.ones(3, np.float16))}
    uri, _ = saved(tmp_path, [(key, {**files, **more}) for key, files in MIXED])
    arguments = Namespace(
        train_data=uri,
        train_num_samples=len(MIXED),
        train_data_upsampling_factors=None,
        dataset_resampled=False,
        seed=0,
        batch_size=4,
        workers=workers,
        world_size=1,
    )
    data = get_wds_dataset(
        arguments,
        preprocess_img=lambda image: np.asarray(image)[0, 0].astype(float),
        is_train=True,
        tokenizer=lambda text: [int(text.split(":")[0].removeprefix("caption "))],
    )
    seen = {}
    for images, texts in data.dataloader:
        seen |= dict(
            zip(np.asarray(texts).tolist(), np.asarray(images)[:, 0].tolist(), strict=True)
        )
    # Each text arrived with its own image.
    assert sorted(seen) == list(range(8))
    assert all(abs(red - number * 40 % 256) < 8 for number, red in seen.items())


EMBEDDING = np.array([0.5, -0.25, 0.125], np.float16)
EMBEDDED = [
    (key, {**files, "clip_image.npy": shards.pack_embedding(EMBEDDING * n)})
    for n, (key, files) in enumerate([pair(n, f"PMC{n}_f1") for n in range(3)])
]


def test_webdataset_decodes_embeddings(tmp_path: Path) -> None:
    import webdataset

    uri, _ = saved(tmp_path, EMBEDDED)
    found = list(webdataset.WebDataset(uri, shardshuffle=False).decode("pil"))
    for n, sample in enumerate(found):
        np.testing.assert_array_equal(sample["clip_image.npy"], EMBEDDING * n)
        assert sample["jpg"].size == (20, 10)


def test_hugging_face_datasets_loads_embeddings_when_told_their_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Features

    record = pa.schema([("figure_id", pa.string()), ("doi", pa.string())])
    told = _features(record, ["jpg"], ["clip_image"])
    features = Features._from_yaml_list(told)
    found = loaded(tmp_path, EMBEDDED, monkeypatch, features=features)
    assert found["clip_image.npy"][2] == (EMBEDDING * 2).tolist()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        shards.pack_embedding(EMBEDDING)[:-1],
        shards.pack_embedding(EMBEDDING).replace(b"NUMPY", b"NUMPI"),
        shards.pack_embedding(EMBEDDING).replace(b"'descr'", b"'descr("),
        shards.pack_embedding(EMBEDDING[None]),
        shards.pack_embedding(np.arange(3)),
    ],
)
def test_what_is_no_embedding_is_rejected(data: bytes) -> None:
    assert shards.parse_embedding(shards.pack_embedding(EMBEDDING)).tolist() == EMBEDDING.tolist()
    with pytest.raises(ValueError, match=r"NumPy's format|vector of floats"):
        shards.parse_embedding(data)


def test_hugging_face_datasets_loads_shards_of_one_kind_of_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = loaded(tmp_path, [pair(n, f"PMC{n}_f1") for n in range(4)], monkeypatch)
    assert [row["json"]["figure_id"] for row in found] == [f"PMC{n}_f1" for n in range(4)]
    assert found[3]["jpg"].size == (20, 10)


def test_hugging_face_datasets_loads_mixed_shards_when_told_their_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Features, Image, Value

    text = Value("string")
    features = Features(
        {
            **{"jpg": Image(), "png": Image(), "txt": text, "__key__": text, "__url__": text},
            "json": {"figure_id": text, "doi": text},
        }
    )
    found = loaded(tmp_path, MIXED, monkeypatch, features=features)
    assert found["txt"] == [files["txt"].decode() for _, files in MIXED]
    assert [row["json"]["doi"] for row in found] == [None] * 5 + ["10.1/x"] * 3
    for row, (_, files) in zip(found, MIXED, strict=True):
        assert (row["jpg"] is None, row["png"] is None) == ("jpg" not in files, "png" not in files)


def loaded(tmp_path: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch, **settings: object):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    uri, _ = saved(tmp_path, pairs)
    return datasets.load_dataset(
        "webdataset",
        data_files={"train": [uri]},
        split="train",
        cache_dir=str(tmp_path / "cache"),
        **settings,
    )


# Buckets.


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    boto3.client("s3").create_bucket(Bucket="corpus")
    yield "s3://corpus/train"
    server.stop()


def test_a_shard_in_a_bucket_is_written_and_read_like_a_local_one(bucket: str) -> None:
    filesystem, path = pafs.FileSystem.from_uri(f"{bucket}/00000.tar")
    with filesystem.open_output_stream(path) as stream:
        writer = ShardWriter(stream)
        places = [writer.add(key, files) for key, files in MIXED]
        writer.finish()
    uri = f"{bucket}/00000.tar"
    for (_, files), place in zip(MIXED, places, strict=True):
        assert read_pair(uri, place.offset, place.size) == files
    assert [(stored.key, stored.files) for stored in read_shard(uri)] == MIXED
    with pytest.raises(ArtifactError, match=r"00001\.tar"):
        read_pair(f"{bucket}/00001.tar", 0, 512)


# What is not a shard.


def tar_of(*members: tarfile.TarInfo | tuple[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for member in members:
            if isinstance(member, tuple):
                name, data = member
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
            else:
                archive.addfile(member)
    return stream.getvalue()


def special(name: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/passwd"
    return info


def claiming(size: int) -> bytes:
    info = tarfile.TarInfo("a.jpg")
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT) + bytes(1024)


def extended(**fields: str) -> bytes:
    info = tarfile.TarInfo("a.jpg")
    info.pax_headers = fields
    return info.tobuf(tarfile.PAX_FORMAT) + bytes(1024)


GOOD = shard_of(MIXED)[0]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "truncated"),
        (b"not a tar", "header at"),
        (b"x" * 10_240, "header at 0:"),
        (GOOD[: 512 + 100], "file at "),
        (GOOD[: len(GOOD) // 512 * 256 // 512 * 512], "file at |truncated"),
        (
            GOOD[:512] + b"\xff" + GOOD[513:1024] + b"\x00" * 256 + GOOD[1100:],
            "header|file at",
        ),
        (tar_of(("/etc/passwd", b"x")), "'?/etc/passwd'?"),
        (tar_of(("../a.jpg", b"x")), r"\.\./a\.jpg"),
        (tar_of(("a/b.jpg", b"x")), "a/b.jpg"),
        (tar_of(("README", b"x")), "README"),
        (tar_of(("a.jpg", b"x"), ("a.jpg", b"y")), "twice"),
        (tar_of(special("a.jpg", tarfile.SYMTYPE)), " a(.jpg)? "),
        (tar_of(special("a.jpg", tarfile.LNKTYPE)), " a(.jpg)? "),
        (tar_of(special("a.jpg", tarfile.CHRTYPE)), " a(.jpg)? "),
        (tar_of(special("a", tarfile.DIRTYPE)), " a(.jpg)? "),
        (claiming(1 << 40), "1099511627776 bytes"),
        (claiming((1 << 30) - 1), "file at "),
        (claiming(-5), "-5 bytes"),
        (extended(path="a.jpg", size="99999999999"), "path"),
        (extended(path="x" * 40_000), r"header .*4\d{4} bytes"),
        (extended(path="../" * 50), r"\.\./\.\./"),
    ],
)
def test_a_tar_that_is_no_shard_is_an_error_with_a_reason(
    tmp_path: Path, data: bytes, told: str
) -> None:
    path = tmp_path / "00000.tar"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match=told):
        list(read_shard(str(path)))


@pytest.mark.parametrize(
    ("offset", "size", "told"),
    [(0, 512, "file at "), (512, 512, r"00000\.tar at 512: "), (0, 1 << 20, "ends before")],
)
def test_a_place_that_holds_no_pair_is_an_error(
    tmp_path: Path, offset: int, size: int, told: str
) -> None:
    uri, _ = saved(tmp_path, MIXED)
    with pytest.raises(ArtifactError, match=told):
        read_pair(uri, offset, size)


def test_a_place_that_holds_two_pairs_is_an_error(tmp_path: Path) -> None:
    uri, (one, two, *_) = saved(tmp_path, MIXED)
    with pytest.raises(ArtifactError, match="2 pairs"):
        read_pair(uri, 0, one.size + two.size)


def test_a_shard_damaged_anywhere_is_read_or_an_error(tmp_path: Path) -> None:
    path = tmp_path / "00000.tar"
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        data = bytearray(GOOD)
        for place in rng.integers(0, 3 * 512, 2):
            data[place] = rng.integers(0, 256)
        path.write_bytes(data)
        # Any other exception fails the test.
        try:
            list(read_shard(str(path)))
        except ArtifactError:
            refused += 1
    assert refused > 100


def test_ranges_come_in_order_whether_read_together_or_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = {name: random.Random(name).randbytes(5_000) for name in ("a.tar", "b.tar")}
    for name, stored in data.items():
        (tmp_path / name).write_bytes(stored)
    # Next to each other, apart, backwards, overlapping, empty, in another file, past the end.
    ranges = [("a.tar", 0, 100), ("a.tar", 100, 50), ("a.tar", 400, 10), ("a.tar", 300, 200)]
    ranges += [("b.tar", 350, 100), ("b.tar", 350, 0), ("a.tar", 0, 5_000), ("a.tar", 4_990, 90)]
    expected = [data[name][offset : offset + size] for name, offset, size in ranges]
    for read_bytes, gap_bytes in ((1 << 20, 1 << 20), (120, 1 << 20), (1 << 20, 0), (1, 0)):
        monkeypatch.setattr(shards, "_READ_BYTES", read_bytes)
        monkeypatch.setattr(shards, "_GAP_BYTES", gap_bytes)
        assert list(read_ranges(Folder(str(tmp_path)), ranges)) == expected
