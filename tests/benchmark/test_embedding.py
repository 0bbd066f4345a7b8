"""Embeddings of a source: what makes them others, and what is no embedding."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from biovl.benchmark.classification import auroc
from biovl.benchmark.datasets import folder
from biovl.benchmark.embedding import EmbeddingTask, Texts, embed_images, embed_texts
from biovl.core.errors import ArtifactError
from tests.benchmark.encoded import Listed


class Diverged:
    """A model of which the second image or text is NaN."""

    dim, has_text, logit_scale, context = 4, True, 1.0, 77

    def crop(self, pixels_HWC: np.ndarray) -> np.ndarray:
        return pixels_HWC

    def embed_pixels(self, pixels_BHWC: np.ndarray) -> np.ndarray:
        return self.embed_texts([""] * len(pixels_BHWC))

    def embed_texts(self, texts: list[str]) -> np.ndarray:
        rows = np.full((len(texts), 4), 0.5, np.float32)
        rows[1:2] = np.nan
        return rows


def test_a_model_that_has_diverged_has_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = Diverged()
    monkeypatch.setattr("biovl.benchmark.encoders.prepare", lambda model, data: np.zeros((2, 2, 3)))
    monkeypatch.setattr(Listed, "read", lambda self, start, stop: [b"image"] * (stop - start))
    with pytest.raises(ArtifactError, match="not finite"):
        embed_images(model, Listed(3), 0, 3, batch=2, threads=1)
    with pytest.raises(ArtifactError, match="not finite"):
        embed_texts(model, ["a", "b"], batch=2)


def test_scores_without_an_order_have_no_auroc() -> None:
    # Sorted by label, as scores of equal rows are: NaN would be above all, in their order.
    scored_K2 = np.array([[0, np.nan], [0, np.nan], [1, np.nan]])
    with pytest.raises(ValueError, match="NaN"):
        auroc(scored_K2, np.ones((1, 3)))


def test_folders_of_equal_names_sizes_and_times_are_embedded_each(tmp_path: Path) -> None:
    tasks = []
    for name, level in (("given", 10), ("changed", 200)):
        for number in range(4):
            path = tmp_path / name / f"class{number % 2}" / f"{number}.bmp"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4), (level, number, 0)).save(path)
            os.utime(path, (315_532_800, 315_532_800))
        data = folder.build(folder.Config(path=str(tmp_path / name)))
        model: Any = type("Model", (), {"fingerprint": "m", "kind": "biovl"})
        tasks.append(EmbeddingTask(model=model, source=data.images, cache="cache"))
    given, changed = tasks
    assert given.source.fingerprint == changed.source.fingerprint
    assert given.uri != changed.uri


def test_images_are_embedded_once_however_their_folder_is_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        path = tmp_path / "images" / f"class{number}" / "0.png"
        path.parent.mkdir(parents=True)
        Image.new("RGB", (16, 16), (number, 0, 0)).save(path)
    (tmp_path / "link").symlink_to("images")
    monkeypatch.chdir(tmp_path)
    model: Any = type("Model", (), {"fingerprint": "m", "kind": "biovl"})
    typed = (str(tmp_path / "images"), "images", "./images/", "link")
    tasks = [
        EmbeddingTask(
            model=model, source=folder.build(folder.Config(path=path)).images, cache="cache"
        )
        for path in typed
    ]
    assert len({task.uri for task in tasks}) == 1
    # A worker may have another directory.
    uri = tasks[1].uri
    monkeypatch.chdir("/")
    assert tasks[1].uri == uri


def test_texts_are_the_same_wherever_they_are_from() -> None:
    model: Any = type("Model", (), {"fingerprint": "m", "kind": "biovl"})
    one, other = (EmbeddingTask(model=model, source=Texts(("a",)), cache="c") for _ in range(2))
    assert one.uri == other.uri
