"""DINOv2 against transformers' own preprocessing and forward."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from biovl.annotate.annotators import NO_IMAGE, NOT_IN_TABLE, dinov2
from biovl.benchmark import encoders
from biovl.core.errors import ArtifactError, BiovlError
from biovl.images import dinov2 as preparation
from biovl.images.decode import TOO_LARGE, TOO_SMALL, UNDECODABLE
from tests.annotate.small_models import DIM, png, save_dinov2, scene


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_dinov2(tmp_path_factory.mktemp("dinov2") / "small")


def embedded(weights: Path, images: list[Image.Image], **settings: object) -> np.ndarray:
    annotator = dinov2.build(dinov2.Config(weights=str(weights), **settings))
    prepared = np.stack([annotator.prepare({"image": png(image)}) for image in images])
    return annotator.load("cpu", "float32")(prepared)["dinov2"]


def by_transformers(weights: Path, images: list[Image.Image]) -> np.ndarray:
    """DINOv2's own settings, as its preprocessor_config.json on the hub has them."""
    from transformers import AutoModel, BitImageProcessorPil

    processor = BitImageProcessorPil(
        size={"shortest_edge": 256},
        crop_size={"height": 224, "width": 224},
        resample=Image.Resampling.BICUBIC,
        image_mean=[0.485, 0.456, 0.406],
        image_std=[0.229, 0.224, 0.225],
        do_convert_rgb=True,
    )
    model = AutoModel.from_pretrained(weights, dtype=torch.float32).eval()
    with torch.inference_mode():
        seen = processor(images, return_tensors="pt")
        return model(**seen).last_hidden_state[:, 0].numpy()


def test_numbers_are_those_of_transformers(weights: Path) -> None:
    images = [scene(1, 301, 200), scene(2, 150, 333), scene(3, 256, 256)]
    ours, theirs = embedded(weights, images), by_transformers(weights, images)
    assert ours.shape == (3, DIM)
    assert np.abs(theirs[0] - theirs[1]).max() > 0.1
    np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_benchmarks_embed_the_very_pixels_that_columns_are_made_of(
    weights: Path, tmp_path: Path
) -> None:
    from transformers import BitImageProcessor

    # What a folder says of its preparation is the same for both, too.
    folder = shutil.copytree(weights, tmp_path / "with_processor")
    BitImageProcessor(size={"shortest_edge": 240}).save_pretrained(folder)
    sizes = [(301, 200), (150, 333), (256, 256), (9, 640), (1000, 12), (28, 28), (97, 61), (8, 8)]
    images = [scene(seed, *size) for seed, size in enumerate(sizes)]
    images += [images[0].convert(mode) for mode in ("L", "RGBA", "P", "1")]
    annotator = dinov2.build(dinov2.Config(weights=str(folder)))
    model = encoders.load(str(folder))
    rows = [annotator.prepare({"image": png(image)}) for image in images]
    seen = [encoders.prepare(model, png(image)) for image in images]
    np.testing.assert_array_equal(seen, rows)
    column = annotator.load("cpu", "float32")(np.stack(rows))["dinov2"]
    column /= np.linalg.norm(column, axis=1, keepdims=True)
    cosine = (column * model.embed_pixels(np.stack(seen))).sum(1)
    np.testing.assert_allclose(cosine, 1, atol=1e-6)
    small = png(Image.new("RGB", (7, 90)))
    with pytest.raises(BiovlError, match=str(annotator.prepare({"image": small}))):
        encoders.prepare(model, small)


@pytest.mark.shared
def test_numbers_of_the_real_weights(shared_data: Path) -> None:
    weights = shared_data / "models" / "dinov2_small"
    if not weights.is_dir():
        pytest.skip("no weights of DINOv2 beside the repository")
    ours = embedded(weights, [scene(1, 301, 200)])
    np.testing.assert_allclose(ours, by_transformers(weights, [scene(1, 301, 200)]), atol=2e-4)
    assert ours.shape == (1, 384)
    np.testing.assert_allclose(ours[0, :4], [-2.13408, 0.54102, 1.27859, -2.81802], atol=2e-3)


def test_weights_that_timm_saved_give_the_numbers_of_timm(tmp_path: Path) -> None:
    import timm
    from timm.models import save_for_hf

    torch.manual_seed(1)
    shape = {"depth": 1, "embed_dim": DIM, "num_heads": 2}
    model = timm.create_model(
        "vit_small_patch14_dinov2", num_classes=0, global_pool="token", **shape
    ).eval()
    save_for_hf(model, tmp_path, model_args=shape, safe_serialization=True)
    whole = scene(1, 518, 518)
    ours = embedded(tmp_path, [whole], size_px=518, resize_px=518)
    pixels = torch.tensor(np.asarray(whole) / 255, dtype=torch.float32).permute(2, 0, 1)
    mean, std = (torch.tensor(v)[:, None, None] for v in (preparation.MEAN, preparation.STD))
    with torch.inference_mode():
        theirs = model(((pixels - mean) / std)[None]).numpy()
    np.testing.assert_allclose(ours, theirs, atol=1e-4)


def test_crop_keeps_the_middle_and_pad_keeps_all_on_white(weights: Path) -> None:
    image = Image.new("RGB", (400, 200), "black")
    image.paste("red", (0, 0, 60, 200))

    def seen(resize: str) -> np.ndarray:
        return dinov2.build(dinov2.Config(weights=str(weights), resize=resize)).prepare(
            {"image": png(image)}
        )

    cropped, padded = seen("crop"), seen("pad")
    assert cropped.shape == padded.shape == (224, 224, 3)
    assert (cropped == 0).all()
    assert (padded[:56] == 255).all()
    assert (padded[168:] == 255).all()
    assert padded[112, 5].tolist() == [255, 0, 0]
    assert padded[112, 200].tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("cell", "defect"),
    [
        (None, NO_IMAGE),
        ({"bytes": None, "path": "elsewhere.png"}, NOT_IN_TABLE),
        (b"\x89PNG\r\n\x1a\nbroken", UNDECODABLE),
        (png(Image.new("RGB", (1, 1))), TOO_SMALL),
        (png(Image.new("1", (20_000, 20_000))), TOO_LARGE),
    ],
    ids=["null", "path", "broken", "1x1", "20000x20000"],
)
def test_what_is_no_image_is_a_defect(weights: Path, cell: object, defect: str) -> None:
    annotator = dinov2.build(dinov2.Config(weights=str(weights)))
    assert annotator.prepare({"image": cell}) == defect


def test_a_line_of_ten_thousand_pixels_does_not_fill_the_memory(weights: Path) -> None:
    annotator = dinov2.build(dinov2.Config(weights=str(weights)))
    line = {"bytes": png(Image.new("RGB", (10_000, 8))), "path": None}
    assert annotator.prepare({"image": line}).shape == (224, 224, 3)


def test_weights_that_are_not_whole_are_refused_by_name(weights: Path, tmp_path: Path) -> None:
    state = load_file(weights / "model.safetensors")
    name = next(name for name in state if name.endswith("fc1.weight"))
    state["another.weight"] = state.pop(name)
    (tmp_path / "config.json").write_bytes((weights / "config.json").read_bytes())
    save_file(state, tmp_path / "model.safetensors", {"format": "pt"})
    annotator = dinov2.build(dinov2.Config(weights=str(tmp_path)))
    with pytest.raises(ArtifactError, match=r"1 .*fc1\.weight.* 1 .*another\.weight"):
        annotator.load("cpu", "float32")


@pytest.mark.parametrize(
    ("described", "told"),
    [
        (None, r"config\.json"),
        ({"model_type": "bert"}, "'bert'.*model_type.*dinov2"),
        ({"architecture": "vit_tiny_patch14_dinov2_none"}, "vit_tiny_patch14_dinov2_none"),
    ],
)
def test_weights_of_something_else_are_refused(
    tmp_path: Path, described: dict[str, str] | None, told: str
) -> None:
    if described is not None:
        (tmp_path / "config.json").write_text(json.dumps(described))
    with pytest.raises(ArtifactError, match=told):
        dinov2.build(dinov2.Config(weights=str(tmp_path)))


def test_a_size_that_is_no_multiple_of_the_patch_is_refused(weights: Path) -> None:
    with pytest.raises(ArtifactError, match=r"14 px.*annotator\.size_px.*225"):
        dinov2.build(dinov2.Config(weights=str(weights), size_px=225))
