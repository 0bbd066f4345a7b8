"""What the columns of a model of ours hold, against the model itself."""

from pathlib import Path

import numpy as np
import pytest

from biovl.annotate.annotators import NO_IMAGE, NO_TEXT, clip
from biovl.core.errors import ArtifactError
from biovl.models import encoder
from tests.annotate.small_models import png, save_clip, scene


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


def test_images_have_the_vectors_of_the_model(model: Path) -> None:
    images = [png(scene(seed, 70 + seed, 50)) for seed in range(3)]
    annotator = clip.build(clip.Config(weights=str(model)))
    assert (annotator.name, annotator.reads) == ("clip_image", ("image",))
    prepared = np.stack([annotator.prepare({"image": image}) for image in images])
    found = annotator.load("cpu", "float32")(prepared)["clip_image"]
    np.testing.assert_array_equal(found, encoder.load(str(model)).embed_images(images))
    assert annotator.prepare({"image": None}) == NO_IMAGE


def test_texts_have_the_vectors_of_the_model_and_no_image_is_read(model: Path) -> None:
    texts = ["a chest radiograph", "cells", "word " * 60]
    annotator = clip.build(clip.Config(weights=str(model), of="text", text_column="alt_text"))
    assert (annotator.name, annotator.reads) == ("clip_text", ("alt_text",))
    prepared = np.stack([annotator.prepare({"alt_text": text}) for text in texts])
    found = annotator.load("cpu", "float32")(prepared)["clip_text"]
    np.testing.assert_array_equal(found, encoder.load(str(model)).embed_texts(texts))


@pytest.mark.parametrize("text", [None, "", "  \n", 3])
def test_a_row_without_text_is_a_defect(model: Path, text: object) -> None:
    annotator = clip.build(clip.Config(weights=str(model), of="text"))
    assert annotator.prepare({"caption": text}) == NO_TEXT


def test_a_folder_that_holds_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"open_clip_config.json"):
        clip.build(clip.Config(weights=str(tmp_path)))
