"""Any model behind one protocol: ours, open_clip's, and of transformers with and without texts."""

import hashlib
import io
import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers

from biovl.benchmark import embedding, encoders
from biovl.core import config as configs
from biovl.core.artifacts import MANIFEST, Manifest, fingerprint, to_json
from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.models import encoder as ours
from biovl.models.builders import open_clip

VISION = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 1, "context_length": 12}


def photo(width: int = 60, height: int = 40) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def save_ours(folder: Path, *, seed: int = 1) -> Path:
    torch.manual_seed(seed)
    settings = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
    built = open_clip.build(configs.build(open_clip.Config, settings))
    ours.save(folder, built, built.model.state_dict())
    return folder


def save_clip(folder: Path) -> Path:
    import transformers

    tower = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tower |= {"intermediate_size": 32, "projection_dim": 16}
    torch.manual_seed(1)
    transformers.CLIPModel(
        transformers.CLIPConfig(
            text_config={
                **tower,
                **{"vocab_size": 4, "max_position_embeddings": 6},
                **{"bos_token_id": 0, "eos_token_id": 3, "pad_token_id": 1},
            },
            vision_config={**tower, "image_size": 32, "patch_size": 16},
            projection_dim=16,
        )
    ).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"[UNK]": 0, "[PAD]": 1, "cell": 2, "</s>": 3}, "[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="[UNK]", pad_token="[PAD]", eos_token="</s>"
    ).save_pretrained(folder)
    size = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}
    transformers.CLIPImageProcessor(**size).save_pretrained(folder)
    return folder


def save_dinov2(folder: Path) -> Path:
    import transformers

    torch.manual_seed(1)
    tower = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    transformers.Dinov2Model(
        transformers.Dinov2Config(**tower, image_size=28, patch_size=14, mlp_ratio=1)
    ).save_pretrained(folder)
    return folder


def vectors(model: encoders.BenchmarkModel) -> np.ndarray:
    return model.embed_pixels(np.stack([encoders.prepare(model, photo())] * 2))


def test_ours_is_our_encoder_and_equals_stock_open_clip(tmp_path: Path) -> None:
    folder = str(save_ours(tmp_path / "model"))
    model, stock = encoders.load(folder), encoders.load(f"local-dir:{folder}")
    reference = ours.load(folder)
    own = reference.embed_images([photo()])[0]
    np.testing.assert_allclose(vectors(model)[0], own, atol=1e-6)
    np.testing.assert_allclose(vectors(stock), vectors(model), atol=1e-6)
    texts = ["a cell", "a much longer text " * 9]
    np.testing.assert_allclose(stock.embed_texts(texts), model.embed_texts(texts), atol=1e-6)
    assert model.truncated(texts).tolist() == stock.truncated(texts).tolist() == [False, True]
    assert model.context == stock.context == 12
    assert model.logit_scale == pytest.approx(stock.logit_scale)


def test_clip_of_transformers_has_texts(tmp_path: Path) -> None:
    model = encoders.load(str(save_clip(tmp_path / "clip")))
    assert (model.has_text, model.dim, model.context) == (True, 16, 6)
    np.testing.assert_allclose(np.linalg.norm(vectors(model), axis=1), 1, rtol=1e-6)
    alone, beside = model.embed_texts(["cell"]), model.embed_texts(["cell", "cell cell cell"])
    np.testing.assert_allclose(alone[0], beside[0], atol=1e-6)
    assert model.truncated(["cell", "cell " * 9]).tolist() == [False, True]


def test_dinov2_has_none_and_gives_its_class_token(tmp_path: Path) -> None:
    import transformers

    folder = save_dinov2(tmp_path / "dino")
    assert not encoders.describe(str(folder)).has_text
    model = encoders.load(str(folder))
    pixels = encoders.prepare(model, photo())
    reference = transformers.Dinov2Model.from_pretrained(folder).eval()
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    image_CHW = ((pixels / 255 - mean) / std).transpose(2, 0, 1).astype(np.float32)
    with torch.inference_mode():
        token = reference(torch.from_numpy(image_CHW[None])).pooler_output[0].numpy()
    np.testing.assert_allclose(vectors(model)[0], token / np.linalg.norm(token), atol=1e-5)


@pytest.mark.parametrize("projected", [True, False])
def test_an_image_tower_of_clip_gives_its_projection_or_the_normalised_token(
    tmp_path: Path, projected: bool
) -> None:
    import transformers

    folder = save_clip(tmp_path / "clip")
    kind = transformers.CLIPVisionModelWithProjection if projected else transformers.CLIPVisionModel
    reference = kind.from_pretrained(folder).eval()
    with torch.no_grad():
        for name, weight in reference.named_parameters():
            if "post_layernorm" in name:
                weight.copy_(torch.linspace(0.5, 2, len(weight)))
    reference.save_pretrained(tmp_path / "tower")
    transformers.CLIPImageProcessor.from_pretrained(folder).save_pretrained(tmp_path / "tower")
    model = encoders.load(str(tmp_path / "tower"))
    pixels = encoders.prepare(model, photo())
    with torch.inference_mode():
        output = reference(pixel_values=torch.from_numpy(pixels[None]))
    expected = (output.image_embeds if projected else output.pooler_output)[0].numpy()
    assert (model.has_text, model.dim) == (False, 16 if projected else 32)
    np.testing.assert_allclose(vectors(model)[0], expected / np.linalg.norm(expected), atol=1e-5)


def test_the_vit_of_a_classifier_has_no_pooler_and_needs_none(tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(1)
    tower = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    reference = transformers.ViTForImageClassification(
        transformers.ViTConfig(**tower, intermediate_size=32, image_size=224, patch_size=32)
    ).eval()
    reference.save_pretrained(tmp_path / "vit")
    model = encoders.load(str(tmp_path / "vit"))
    pixels = encoders.prepare(model, photo())
    with torch.inference_mode():
        states = reference.vit(pixel_values=torch.from_numpy(pixels[None])).last_hidden_state
    token = states[0, 0].numpy()
    np.testing.assert_allclose(vectors(model)[0], token / np.linalg.norm(token), atol=1e-5)


@pytest.mark.shared
def test_the_real_dinov2_tells_images_apart(shared_data: Path) -> None:
    model = encoders.load(str(shared_data / "models/dinov2_small"))
    assert (model.has_text, model.dim) == (False, 384)
    other = encoders.prepare(model, photo(90, 120))
    both = model.embed_pixels(np.stack([encoders.prepare(model, photo()), other]))
    assert both[0] @ both[1] < 0.999


def test_fingerprints_follow_the_weights(tmp_path: Path) -> None:
    folder = save_ours(tmp_path / "model")
    before = encoders.describe(str(folder)).fingerprint
    assert encoders.describe(str(folder)).fingerprint == before
    config = json.loads((folder / ours.CONFIG).read_text())
    config["preprocess_cfg"]["interpolation"] = "bilinear"
    (folder / ours.CONFIG).write_text(json.dumps(config))
    assert encoders.describe(str(folder)).fingerprint != before


def publish_weights(folder: Path) -> None:
    """Write what pretrain publishes beside the weights, as far as it identifies them."""
    digest = hashlib.sha256((folder / ours.WEIGHTS).read_bytes()).hexdigest()
    manifest = Manifest(kind="model", config={}, counts={}, notes={"weights_sha256": digest})
    (folder / MANIFEST).write_bytes(to_json(asdict(manifest)))


def test_other_weights_beside_the_manifest_of_a_model_are_refused(tmp_path: Path) -> None:
    folder = save_ours(tmp_path / "model")
    publish_weights(folder)
    assert encoders.describe(str(folder)).fingerprint == fingerprint(str(folder))
    other = save_ours(tmp_path / "other", seed=2)
    shutil.copy(other / ours.WEIGHTS, folder)
    for uri in (str(folder), f"local-dir:{folder}"):
        with pytest.raises(ArtifactError, match="SHA-256"):
            encoders.describe(uri)


def test_texts_are_embedded_by_the_model_that_is_there_now(tmp_path: Path) -> None:
    folder, found = tmp_path / "model", []
    for seed in (1, 2):
        shutil.rmtree(folder, ignore_errors=True)
        known = encoders.describe(str(save_ours(folder, seed=seed)))
        found.append(embedding.open_model(known, "float32").embed_texts(["a lung"]))
        alone = encoders.load(str(folder)).embed_texts(["a lung"])
        np.testing.assert_array_equal(found[-1], alone)
    assert not np.allclose(*found)
    # Described by one process, and replaced before another loads it.
    save_ours(folder, seed=3)
    with pytest.raises(ArtifactError, match="replaced"):
        encoders.load(known)


def test_an_unusable_image_says_why(tmp_path: Path) -> None:
    model = encoders.load(str(save_ours(tmp_path / "model")))
    with pytest.raises(BiovlError, match="image is empty"):
        encoders.prepare(model, b"")


def test_untrained_models_are_asked_for_by_that_word_and_are_the_same_each_time() -> None:
    known = encoders.describe("RN50/untrained")
    assert (known.kind, known.has_text) == ("open_clip", True)
    vectors = []
    for seed in range(2):
        torch.manual_seed(seed)
        model = encoders.load("RN50/untrained")
        vectors.append(model.embed_texts(["a chest x-ray", "a brain MRI"]))
    np.testing.assert_array_equal(*vectors)
    assert not np.allclose(*vectors[0])


@pytest.mark.parametrize(
    ("uri", "kind", "message"),
    [
        ("ViT-B-32", ConfigError, "openai, .*ViT-B-32/untrained"),
        ("ViT-B-32/laion", ConfigError, "'laion'.*laion2b_s34b_b79k"),
        ("ViT-B-33", ConfigError, "ViT-B-33.*ViT-B-32"),
        ("/nowhere/model", ArtifactError, "/nowhere/model"),
        ("local-dir:/nowhere", ArtifactError, "/nowhere"),
    ],
)
def test_what_is_no_model_is_refused(uri: str, kind: type, message: str) -> None:
    with pytest.raises(kind, match=message):
        encoders.describe(uri)


def test_folders_of_other_things_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match=r"open_clip_config\.json.* config\.json"):
        encoders.describe(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ArtifactError, match=r"'bert'.*clip, siglip"):
        encoders.describe(str(tmp_path))
