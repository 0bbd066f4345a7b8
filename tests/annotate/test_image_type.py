"""The nearest keyword is the one with the largest cosine; types are named by the file of keywords."""

from pathlib import Path

import numpy as np
import pytest

from biovl.annotate.annotators import image_type
from biovl.core.errors import ConfigError
from biovl.models import encoder
from tests.annotate.small_models import png, save_clip, scene


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_clip(tmp_path_factory.mktemp("clip") / "model")


def test_an_image_is_of_the_type_of_its_nearest_keyword(model: Path, tmp_path: Path) -> None:
    keywords = tmp_path / "keywords.yaml"
    keywords.write_text("one: [red cells, blue]\ntwo: [a bar chart]\n")
    config = image_type.Config(
        weights=str(model), keywords=str(keywords), prompt="this is a photo of {}"
    )
    annotator = image_type.build(config)
    images = [png(scene(seed)) for seed in range(6)]
    prepared = np.stack([annotator.prepare({"image": image}) for image in images])
    found = annotator.load("cpu", "float32")(prepared)
    clip = encoder.load(str(model))
    words = ["red cells", "blue", "a bar chart"]
    texts = clip.embed_texts([f"this is a photo of {word}" for word in words])
    cosines = clip.embed_images(images) @ texts.T
    of = np.array(["one", "one", "two"], object)
    assert found["image_type"].tolist() == of[cosines.argmax(1)].tolist()
    np.testing.assert_allclose(found["image_type_score"], cosines.max(1), atol=1e-6)


def test_our_types_are_the_thirty_of_the_taxonomy_each_with_keywords() -> None:
    keywords = image_type.read_keywords()
    assert len(keywords) == 30
    assert keywords["magnetic resonance"][0] == "magnetic resonance imaging"
    every = [word for words in keywords.values() for word in words]
    assert len(every) == len(set(every))


@pytest.mark.parametrize(
    "text", ["- a\n- b\n", "one: two\n", "one: []\n", "one: [1]\n", "", "one: [a\n"]
)
def test_a_file_that_holds_something_else_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "keywords.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)):
        image_type.read_keywords(str(path))


def test_a_file_that_is_not_there_and_a_prompt_without_a_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keywords"):
        image_type.read_keywords(str(tmp_path / "none.yaml"))
    with pytest.raises(ValueError, match="prompt"):
        image_type.Config(weights="w", prompt="a photo")
