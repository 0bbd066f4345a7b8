import contextlib
import gc
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import fs as pafs

from biovl.core import folders
from biovl.core.artifacts import Manifest
from biovl.core.errors import ArtifactError
from biovl.core.filesystems import open_location
from biovl.index import files
from biovl.index.copies import check_sizes
from biovl.index.query import Query, QueryPart
from biovl.index.search import Index
from tests.index.small_index import publish, unit

VECTORS_ND = unit(np.random.default_rng(0), 50, 16)


def flip_bit(path: Path, place: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[place] ^= 1 << (place % 8)
    path.write_bytes(data)


def uploaded(folder: Path, uri: str) -> None:
    filesystem, path = open_location(uri)
    pafs.copy_files(str(folder), path, destination_filesystem=filesystem)


def test_an_index_in_a_bucket_is_copied_once_and_opened(bucket_uri: str, tmp_path: Path) -> None:
    local = Path(publish(tmp_path / "index", VECTORS_ND))
    uploaded(local, f"{bucket_uri}/once")
    cache = tmp_path / "cache"
    for _ in range(2):
        index = Index.open(f"{bucket_uri}/once", str(cache))
        found = index.search(Query(parts=(QueryPart(vector_D=VECTORS_ND[3]),), k=1))
        assert [hit.figure_id for hit in found.hits] == ["PMC1_f3"]
    (copy,) = cache.iterdir()
    assert sorted(os.listdir(copy)) == sorted(os.listdir(local))
    open_location(bucket_uri)[0].delete_file(f"{open_location(bucket_uri)[1]}/once/images.faiss")
    assert len(Index.open(f"{bucket_uri}/once", str(cache))) == 50


@pytest.mark.parametrize("is_shorter", [True, False])
def test_a_copy_that_was_damaged_is_made_anew(
    is_shorter: bool, bucket_uri: str, tmp_path: Path
) -> None:
    uri, cache = f"{bucket_uri}/damaged-{is_shorter}", tmp_path / "cache"
    whole = Path(publish(tmp_path / "index", VECTORS_ND)) / "images.faiss"
    uploaded(whole.parent, uri)
    Index.open(uri, str(cache))
    (copy,) = cache.iterdir()
    data = whole.read_bytes()
    (copy / "images.faiss").write_bytes(b"" if is_shorter else bytes(len(data)))
    for _ in range(2):
        assert len(Index.open(uri, str(cache))) == 50
    assert [path.name for path in cache.iterdir()] == [copy.name]
    assert (copy / "images.faiss").read_bytes() == data


def test_what_is_damaged_in_the_bucket_is_refused_and_not_kept(
    bucket_uri: str, tmp_path: Path
) -> None:
    local = Path(publish(tmp_path / "index", VECTORS_ND))
    (local / "images.faiss").write_bytes(b"short")
    uploaded(local, f"{bucket_uri}/short")
    with pytest.raises(ArtifactError, match=r"images\.faiss .*5 bytes"):
        Index.open(f"{bucket_uri}/short", str(tmp_path / "cache"))
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_a_killed_process_had_copied_is_deleted_by_the_next(
    bucket_uri: str, tmp_path: Path
) -> None:
    uploaded(Path(publish(tmp_path / "index", VECTORS_ND)), f"{bucket_uri}/left")
    left = tmp_path / "cache" / ".unfinished-abc"
    left.mkdir(parents=True)
    (left / "images.f16.npy").write_bytes(bytes(100))
    Index.open(f"{bucket_uri}/left", str(tmp_path / "cache"))
    assert not left.exists()


def test_two_processes_copy_an_index_once(bucket_uri: str, tmp_path: Path) -> None:
    uploaded(Path(publish(tmp_path / "index", VECTORS_ND)), f"{bucket_uri}/both")
    script = (
        "import sys; from biovl.index.search import Index; "
        "assert len(Index.open(sys.argv[1], sys.argv[2])) == 50"
    )
    command = [sys.executable, "-c", script, f"{bucket_uri}/both", str(tmp_path / "cache")]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_without_a_cache_a_copy_goes_with_its_index(
    bucket_uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded(Path(publish(tmp_path / "index", VECTORS_ND)), f"{bucket_uri}/for-now")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    index = Index.open(f"{bucket_uri}/for-now")
    assert len(list((tmp_path / "temporary").iterdir())) == 1
    del index
    gc.collect()
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("name", ["../stolen", "/stolen", "words/../../stolen"])
def test_a_manifest_that_names_files_elsewhere_is_refused(name: str, tmp_path: Path) -> None:
    manifest = Manifest(kind="index", config={}, counts={}, files={name: {"size_bytes": 1}})
    with pytest.raises(ArtifactError, match=re.escape(name)):
        check_sizes(tmp_path, manifest)


def test_one_damaged_bit_anywhere_is_noticed_and_its_file_is_named(tmp_path: Path) -> None:
    whole = Path(
        publish(tmp_path / "index", VECTORS_ND, captions_ND=VECTORS_ND[::-1], checksums=True)
    )
    assert len(Index.open(str(whole))) == 50
    rng = np.random.default_rng(0)
    files = [path for path in sorted(whole.rglob("*")) if path.is_file()]
    assert len(files) > 15
    for path in files:
        data = path.read_bytes()
        for place in {0, len(data) - 1, *rng.integers(0, len(data), 3).tolist()} if data else ():
            flip_bit(path, place)
            with pytest.raises(ArtifactError, match=re.escape(path.name)):
                Index.open(str(whole))
            path.write_bytes(data)
        # The manifest ends in a newline, which says nothing.
        path.write_bytes(data[:-2])
        if data:
            with pytest.raises(ArtifactError, match=re.escape(path.name)):
                Index.open(str(whole))
        path.write_bytes(data)
    assert len(Index.open(str(whole))) == 50


def test_a_damaged_bit_of_a_copy_is_repaired_and_one_of_the_bucket_refused(
    bucket_uri: str, tmp_path: Path
) -> None:
    local = Path(publish(tmp_path / "index", VECTORS_ND, checksums=True))
    uri, cache = f"{bucket_uri}/bits", tmp_path / "cache"
    uploaded(local, uri)
    Index.open(uri, str(cache))
    (copy,) = cache.iterdir()
    flip_bit(copy / "images.f16.npy", 200)
    Index.open(uri, str(cache))
    assert (copy / "images.f16.npy").read_bytes() == (local / "images.f16.npy").read_bytes()
    flip_bit(local / "thumbnails.bin", 2)
    uploaded(local, f"{bucket_uri}/bits-2")
    with pytest.raises(ArtifactError, match=r"thumbnails\.bin .*SHA-256"):
        Index.open(f"{bucket_uri}/bits-2", str(tmp_path / "cache-2"))
    assert list((tmp_path / "cache-2").iterdir()) == []


def test_an_index_of_an_earlier_version_is_opened_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert len(Index.open(publish(tmp_path / "old", VECTORS_ND))) == 50
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    assert len(Index.open(publish(tmp_path / "new", VECTORS_ND, checksums=True))) == 50
    assert caplog.text == ""


def test_files_are_sent_to_a_bucket_a_few_blocks_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Bucket:
        """Counts the blocks that Arrow would hold, as it does until it is told to send them."""

        type_name = "s3"
        held = most = 0

        def open_output_stream(self, path: str) -> Any:
            return contextlib.nullcontext(self)

        def write(self, block: bytes) -> None:
            self.held += 1
            self.most = max(self.most, self.held)

        def flush(self) -> None:
            self.held = 0

    bucket = Bucket()
    monkeypatch.setattr(folders, "open_location", lambda _: (bucket, "bucket/index"))
    monkeypatch.setattr(folders, "_BLOCK_BYTES", 4)
    (tmp_path / "words").mkdir()
    (tmp_path / "words/values.arrow").write_bytes(bytes(1_000))
    described = files.publish_files("s3://bucket/index", tmp_path)
    assert described["words/values.arrow"]["size_bytes"] == 1_000
    assert bucket.most <= 8
