"""What is saved loads in stock open_clip with equal embeddings, and here without the network."""

import io
import json
import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import open_clip as stock
import pytest
import torch
from PIL import Image

from biovl.core import config
from biovl.core.errors import ArtifactError, BiovlError
from biovl.models import encoder
from biovl.models.builders import open_clip

VISION = {"layers": 2, "width": 64, "head_width": 32, "patch_size": 16, "image_size": 48}
NATIVE_TEXT = {"width": 32, "heads": 2, "layers": 2, "context_length": 16}
CAPTIONS = ["A chest CT.", "Histology of the liver, H&E, scale bar 50 µm; " * 5, "x"]


def an_image(mode="RGB", size=(80, 60), file_format="PNG", seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (*size[::-1], len(mode)), np.uint8)
    stream = io.BytesIO()
    Image.fromarray(values.squeeze(), mode).save(stream, file_format)
    return stream.getvalue()


def bert_folder(folder: Path, words=("a", "chest", "ct", "of", "the", "liver", ".", ",")) -> Path:
    folder.mkdir()
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    (folder / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    shape = {"model_type": "bert", "vocab_size": len(vocabulary), "hidden_size": 32}
    shape |= {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    shape |= {"max_position_embeddings": 40}
    (folder / "config.json").write_text(json.dumps(shape))
    return folder


def native(**changes):
    torch.manual_seed(1)
    settings = {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": NATIVE_TEXT, **changes}
    return open_clip.build(config.build(open_clip.Config, settings))


def with_bert(folder: Path, **changes):
    text = {"hf_model_name": str(folder), "hf_pooler_type": "cls_last_hidden_state_pooler"}
    return native(text_cfg=text, tokenizer=str(folder), context_length=20, **changes)


def saved(built, folder: Path) -> Path:
    encoder.save(folder, built, built.model.state_dict())
    return folder


def stock_embeddings(folder, images, captions):
    model, _, prepare = stock.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = stock.get_tokenizer(f"local-dir:{folder}")
    pixels = torch.stack([prepare(Image.open(io.BytesIO(data))) for data in images])
    with torch.no_grad():
        model.eval()
        image_ND = model.encode_image(pixels, normalize=True)
        text_ND = model.encode_text(tokenizer(captions), normalize=True)
        return image_ND.numpy(), text_ND.numpy(), float(model.logit_scale.exp())


def agree(folder):
    images = [an_image(seed=1), an_image(size=(33, 90), file_format="BMP", seed=2)]
    images.append(an_image(mode="L", seed=3))
    image_ND, text_ND, scale = stock_embeddings(folder, images, CAPTIONS)
    ours = encoder.load(str(folder))
    np.testing.assert_allclose(ours.embed_images(images), image_ND, atol=2e-6)
    np.testing.assert_allclose(ours.embed_texts(CAPTIONS), text_ND, atol=2e-6)
    assert ours.logit_scale == pytest.approx(scale)
    assert ours.dim == image_ND.shape[1]


def test_native_towers_load_in_stock_open_clip_with_equal_embeddings(tmp_path):
    built = native(image_mean=[0.1, 0.2, 0.3], image_std=[0.5, 0.6, 0.7], patch_dropout=0.5)
    folder = saved(built, tmp_path / "model")
    agree(folder)
    said = json.loads((folder / "open_clip_config.json").read_text())
    assert said["preprocess_cfg"]["mean"] == [0.1, 0.2, 0.3]
    assert "patch_dropout" not in said["model_cfg"]["vision_cfg"]


def test_a_bert_tower_loads_in_stock_open_clip_with_equal_embeddings(tmp_path):
    folder = saved(with_bert(bert_folder(tmp_path / "bert")), tmp_path / "model")
    agree(folder)


def test_a_sigmoid_models_bias_is_kept(tmp_path):
    folder = saved(native(init_logit_bias=-10, init_logit_scale=2.3), tmp_path / "model")
    model, _, _ = stock.create_model_and_transforms(f"local-dir:{folder}")
    assert model.logit_bias.item() == -10
    agree(folder)


def test_the_values_saved_are_the_ones_given(tmp_path):
    built = native()
    doubled = {name: tensor * 2 for name, tensor in built.model.state_dict().items()}
    encoder.save(tmp_path, built, doubled)
    assert encoder.load(str(tmp_path)).model.logit_scale == 2 * built.model.logit_scale


def test_a_model_loads_here_when_its_text_tower_is_named_nowhere(tmp_path):
    source = bert_folder(tmp_path / "bert")
    before = with_bert(source)
    folder = saved(before, tmp_path / "model")
    expected = encoder.Encoder(before).embed_texts(CAPTIONS)
    values = json.loads((folder / "open_clip_config.json").read_text())
    values["model_cfg"]["text_cfg"]["hf_model_name"] = "nobody/has-this"
    values["model_cfg"]["text_cfg"]["hf_tokenizer_name"] = "nobody/has-this"
    (folder / "open_clip_config.json").write_text(json.dumps(values))
    np.testing.assert_allclose(encoder.load(str(folder)).embed_texts(CAPTIONS), expected, atol=1e-6)
    # What is trained from it has the same names: on the hub, open_clip loads the tokenizer by it.
    again = open_clip.build(open_clip.Config(architecture=str(folder), weights=str(folder)))
    path = saved(again, tmp_path / "again") / "open_clip_config.json"
    assert json.loads(path.read_text())["model_cfg"]["text_cfg"] == values["model_cfg"]["text_cfg"]


def test_modernbert_is_saved_and_loaded_here(tmp_path):
    bert = bert_folder(tmp_path / "words")
    shape = {"model_type": "modernbert", "vocab_size": 13, "hidden_size": 32, "pad_token_id": 0}
    shape |= {"num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 48}
    built = native(
        text_cfg={"hf_model_name": "some/modernbert", "hf_proj_type": "linear"},
        text_transformer=shape,
        tokenizer=str(bert),
    )
    folder = saved(built, tmp_path / "model")
    expected = encoder.Encoder(built).embed_texts(CAPTIONS)
    np.testing.assert_allclose(encoder.load(str(folder)).embed_texts(CAPTIONS), expected, atol=1e-6)


def test_texts_embed_alike_whatever_stands_beside_them(tmp_path):
    for built in (native(), with_bert(bert_folder(tmp_path / "bert"))):
        model = encoder.Encoder(built)
        alone = np.concatenate([model.embed_texts([caption]) for caption in CAPTIONS])
        np.testing.assert_allclose(model.embed_texts(CAPTIONS, batch_size=2), alone, atol=2e-6)
        np.testing.assert_allclose(np.linalg.norm(alone, axis=1), 1, atol=1e-6)


def test_nothing_embeds_as_nothing():
    model = encoder.Encoder(native())
    assert model.embed_images([]).shape == (0, 24)
    assert model.embed_texts([]).shape == (0, 24)


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"", "empty"), (b"%PDF-1.4", "pdf"), (an_image()[:200], "truncated|decode")],
)
def test_an_unusable_image_is_named_with_its_reason(data, reason):
    with pytest.raises(BiovlError, match=f"image 1 .*{reason}"):
        encoder.Encoder(native()).embed_images([an_image(), data])


def test_a_folder_that_is_no_model_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"open_clip_config\.json"):
        encoder.load(str(tmp_path))


def test_a_model_in_a_bucket_embeds_as_the_one_on_disk(tmp_path, bucket, bucket_uri):
    folder = saved(with_bert(bert_folder(tmp_path / "bert")), tmp_path / "model")
    for path in folder.iterdir():
        bucket(f"some/model/{path.name}", path.read_bytes())
    there = encoder.load(f"{bucket_uri}/some/model")
    here = encoder.load(str(folder))
    assert (there.embed_texts(CAPTIONS) == here.embed_texts(CAPTIONS)).all()
    file = f"{bucket_uri}/some/model/open_clip_model.safetensors"
    onward = native(image_weights=file).model.visual.conv1.weight
    assert torch.equal(onward, here.model.visual.conv1.weight)
    with pytest.raises(ArtifactError, match=r"open_clip_config\.json"):
        encoder.load(f"{bucket_uri}/nothing")


def test_another_models_tensors_are_not_saved(tmp_path):
    built = native()
    state = dict(built.model.state_dict())
    state["extra"] = state.pop("logit_scale")
    with pytest.raises(ArtifactError, match="extra"):
        encoder.save(tmp_path, built, state)


@pytest.mark.parametrize("mode", ["shortest", "longest", "squash"])
def test_prepared_pixels_are_what_stock_open_clip_sees(tmp_path, mode):
    folder = saved(native(image_mean=[0.1, 0.2, 0.3]), tmp_path / "model")
    said = json.loads((folder / encoder.CONFIG).read_text())
    said["preprocess_cfg"]["resize_mode"] = mode
    (folder / encoder.CONFIG).write_text(json.dumps(said))
    _, _, prepare = stock.create_model_and_transforms(f"local-dir:{folder}")
    preparation = encoder.load_preparation(str(folder))
    for size in ((80, 60), (33, 90), (48, 48)):
        data = an_image(size=size)
        pixels_HWC = preparation.prepare(data)
        assert pixels_HWC.dtype == np.uint8
        assert pixels_HWC.shape == (48, 48, 3)
        mean, std = (np.array(v, np.float32) for v in (preparation.mean, preparation.std))
        scaled = (pixels_HWC.astype(np.float32) / np.float32(255) - mean) / std
        expected = prepare(Image.open(io.BytesIO(data))).permute(1, 2, 0).numpy()
        np.testing.assert_array_equal(scaled, expected)


def test_a_preparation_needs_no_weights_and_travels(tmp_path):
    for name, built in (("a", native()), ("b", with_bert(bert_folder(tmp_path / "bert")))):
        folder = saved(built, tmp_path / name)
        whole = encoder.load(str(folder))
        (folder / encoder.WEIGHTS).unlink()
        alone = pickle.loads(pickle.dumps(encoder.load_preparation(str(folder))))
        images = [an_image(seed=seed, size=(70 + seed, 50)) for seed in range(3)]
        prepared = np.stack([alone.prepare(data) for data in images])
        np.testing.assert_array_equal(whole.embed_pixels(prepared), whole.embed_images(images))
        tokens = alone.encode(CAPTIONS)
        assert [t.dtype for t in tokens] == [np.int32] * 3
        np.testing.assert_array_equal(whole.embed_tokens(tokens), whole.embed_texts(CAPTIONS))
        assert alone.image_size == 48
    with pytest.raises(ArtifactError, match=r"open_clip_config\.json"):
        encoder.load_preparation(str(tmp_path))


def test_a_preparation_in_a_bucket_is_read_without_the_weights(tmp_path, bucket, bucket_uri):
    folder = saved(with_bert(bert_folder(tmp_path / "bert")), tmp_path / "model")
    for path in folder.iterdir():
        if path.name != encoder.WEIGHTS:
            bucket(f"light/model/{path.name}", path.read_bytes())
    bucket(f"light/model/{encoder.WEIGHTS}", b"no weights")
    there = encoder.load_preparation(f"{bucket_uri}/light/model")
    here = encoder.load(str(folder)).preparation
    for ours, theirs in zip(there.encode(CAPTIONS), here.encode(CAPTIONS), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_text_that_does_not_fit_the_context_is_known(tmp_path):
    for built in (native(), with_bert(bert_folder(tmp_path / "bert"))):
        preparation = encoder.Encoder(built).preparation
        room = preparation.tokenizer.context_length - 2
        assert not preparation.truncated("")
        assert not preparation.truncated("a " * room)
        assert preparation.truncated("a " * (room + 1))


def test_text_vectors_are_those_of_the_whole_context(tmp_path):
    folder = saved(native(), tmp_path / "model")
    ours = encoder.load(str(folder))
    _, expected, _ = stock_embeddings(folder, [an_image()], ["x"])
    np.testing.assert_allclose(ours.embed_texts(["x"]), expected, atol=2e-6)


def test_images_are_prepared_as_the_model_was_built_for():
    wide = Image.fromarray(np.arange(64 * 256 * 3, dtype=np.uint8).reshape(64, 256, 3))
    built = replace(native(), preprocess={"resize_mode": "squash"})
    side = built.image_size
    pixels_HWC = encoder.Encoder(built).preparation.crop(np.asarray(wide))
    whole = np.asarray(wide.resize((side, side), Image.Resampling.BICUBIC))
    np.testing.assert_allclose(pixels_HWC.astype(int), whole.astype(int), atol=2)


def test_vectors_in_half_precision_are_near_those_in_full():
    built = native()
    images = [an_image(seed=seed) for seed in range(3)]
    full = encoder.Encoder(built)
    half = encoder.Encoder(built, precision="bfloat16")
    for one, other in (
        (full.embed_images(images), half.embed_images(images)),
        (full.embed_texts(CAPTIONS), half.embed_texts(CAPTIONS)),
    ):
        assert other.dtype == np.float32
        assert 0 < np.abs(one - other).max() < 0.03
        np.testing.assert_allclose(np.linalg.norm(other, axis=1), 1, atol=1e-5)


def test_an_endless_line_does_not_fill_the_memory():
    built = native()
    line = np.zeros((1, 600_000, 3), np.uint8)
    pixels_HWC = encoder.Encoder(built).preparation.crop(line)
    assert pixels_HWC.shape == (built.image_size, built.image_size, 3)
