import os
from pathlib import Path

import numpy as np
import pytest
from pyarrow import fs as pafs

from biovl.errors import ArtifactError
from biovl.filesystems import open_location
from biovl.retrieval.opened import Index
from biovl.retrieval.query import Part, Query
from tests.retrieval.small_index import publish, unit

VECTORS_ND = unit(np.random.default_rng(0), 50, 16)


def uploaded(folder: Path, uri: str) -> None:
    filesystem, path = open_location(uri)
    pafs.copy_files(str(folder), path, destination_filesystem=filesystem)


def test_an_index_in_a_bucket_is_copied_once_and_opened(bucket_uri: str, tmp_path: Path) -> None:
    local = Path(publish(tmp_path / "index", VECTORS_ND))
    uploaded(local, f"{bucket_uri}/once")
    cache = tmp_path / "cache"
    for _ in range(2):
        index = Index.open(f"{bucket_uri}/once", str(cache))
        found = index.search(Query(parts=(Part(vector_D=VECTORS_ND[3]),), k=1))
        assert [hit.figure_id for hit in found.hits] == ["PMC1_f3"]
    (copy,) = cache.iterdir()
    assert sorted(os.listdir(copy)) == sorted(os.listdir(local))
    open_location(bucket_uri)[0].delete_file(f"{open_location(bucket_uri)[1]}/once/images.faiss")
    assert len(Index.open(f"{bucket_uri}/once", str(cache))) == 50


def test_a_copy_that_was_damaged_is_refused(bucket_uri: str, tmp_path: Path) -> None:
    uploaded(Path(publish(tmp_path / "index", VECTORS_ND)), f"{bucket_uri}/damaged")
    Index.open(f"{bucket_uri}/damaged", str(tmp_path / "cache"))
    (copy,) = (tmp_path / "cache").iterdir()
    (copy / "images.faiss").write_bytes(b"")
    with pytest.raises(ArtifactError, match="0 bytes, expected"):
        Index.open(f"{bucket_uri}/damaged", str(tmp_path / "cache"))
