"""Weights from elsewhere arrive whole, or the load is refused and says what is missing."""

import hashlib
import json
import shutil
from pathlib import Path

import open_clip as stock
import pytest
import timm
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertForMaskedLM, ModernBertConfig, ModernBertForMaskedLM

from biovl.core import config
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.folders import Folder
from biovl.core.plugins import Plugin
from biovl.models import encoder, text_configs, weight_files, weights
from biovl.models.builders import open_clip
from biovl.pretrain.models import check_weights

VISION = {"layers": 2, "width": 64, "head_width": 32, "patch_size": 16, "image_size": 48}
NATIVE_TEXT = {"width": 32, "heads": 2, "layers": 2, "context_length": 16}
TIMM = {"timm_model_name": "test_vit", "timm_pool": "", "timm_proj": "linear", "image_size": 160}
SHAPE = {
    **{"vocab_size": 30, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 48, "max_position_embeddings": 40},
}
BERT_TEXT = {"hf_model_name": "some/bert", "hf_pooler_type": "cls_last_hidden_state_pooler"}


def settings(**changes):
    base = {"embed_dim": 24, "vision_cfg": VISION, "text_cfg": NATIVE_TEXT}
    return config.build(open_clip.Config, {**base, **changes})


def build(seed=1, **changes):
    torch.manual_seed(seed)
    return open_clip.build(settings(**changes)).model


@pytest.fixture
def vocabulary(tmp_path):
    folder = tmp_path / "words"
    folder.mkdir()
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{n}" for n in range(25))]
    (folder / "vocab.txt").write_text("\n".join(words))
    (folder / "config.json").write_text(json.dumps({"model_type": "bert", **SHAPE}))
    return folder


def two_towers(vocabulary, seed=1, **changes):
    return build(
        seed,
        vision_cfg=TIMM,
        text_cfg=BERT_TEXT,
        text_transformer={"model_type": "bert", **SHAPE},
        tokenizer=str(vocabulary),
        context_length=20,
        **changes,
    )


def write(state, path: Path) -> str:
    path.parent.mkdir(exist_ok=True, parents=True)
    if path.suffix == ".safetensors":
        save_file({name: tensor.clone().contiguous() for name, tensor in state.items()}, path)
    else:
        torch.save(state, path)
    return str(path)


def same(one, two, prefix=""):
    left = {name: value for name, value in one.state_dict().items() if name.startswith(prefix)}
    right = two.state_dict()
    assert left
    return all(torch.equal(value, right[name]) for name, value in left.items())


@pytest.mark.parametrize("name", ["a.pt", "b.bin", "c.safetensors"])
def test_a_whole_model_comes_from_one_file(tmp_path, name):
    trained = build(seed=2)
    assert same(build(weights=write(trained.state_dict(), tmp_path / name)), trained)


def test_a_checkpoint_of_open_clips_training_is_unwrapped(tmp_path):
    trained = build(seed=2)
    state = {f"module.{name}": tensor for name, tensor in trained.state_dict().items()}
    path = write({"epoch": 3, "state_dict": state}, tmp_path / "epoch_3.pt")
    assert same(build(weights=path), trained)


def test_a_plain_clip_as_openai_and_commonpool_publish_it_is_converted(tmp_path):
    torch.manual_seed(2)
    plain = stock.model.CLIP(24, VISION, NATIVE_TEXT)
    state = {**plain.state_dict(), "context_length": torch.tensor(16)}
    loaded = build(weights=write(state, tmp_path / "model.safetensors"))
    assert torch.equal(loaded.text.positional_embedding, plain.positional_embedding)
    tokens = torch.randint(1, 100, (2, 16))
    assert torch.equal(loaded.encode_text(tokens), plain.encode_text(tokens))
    assert torch.equal(loaded.logit_scale, plain.logit_scale)


def test_a_plain_clip_gives_single_towers_too(tmp_path):
    torch.manual_seed(2)
    plain = stock.model.CLIP(24, VISION, NATIVE_TEXT)
    path = write(plain.state_dict(), tmp_path / "clip.safetensors")
    loaded = build(image_weights=path)
    assert torch.equal(loaded.visual.conv1.weight, plain.visual.conv1.weight)
    assert not torch.equal(loaded.text.token_embedding.weight, plain.token_embedding.weight)
    other = build(text_weights=path)
    assert torch.equal(other.text.token_embedding.weight, plain.token_embedding.weight)
    assert torch.equal(other.text.text_projection, plain.text_projection)


@pytest.mark.parametrize("setting", ["weights", "text_weights"])
def test_longclips_two_tables_of_text_positions_are_one(tmp_path, setting):
    text = {**NATIVE_TEXT, "context_length": 24}
    stock_model = stock.CLIP(24, VISION, text)
    state = stock_model.state_dict()
    state["positional_embedding_res"] = torch.ones(24, 32)
    loaded = build(text_cfg=text, **{setting: write(state, tmp_path / "longclip.pt")})
    positions = loaded.text.positional_embedding
    assert torch.equal(positions[:20], state["positional_embedding"][:20])
    assert torch.equal(positions[20:], torch.ones(4, 32))


def test_another_image_size_interpolates_position_embeddings(tmp_path):
    trained = build(seed=2)
    path = write(trained.state_dict(), tmp_path / "model.pt")
    for changes in ({"weights": path}, {"image_weights": path}):
        larger = build(image_size=80, **changes)
        old, new = trained.visual.positional_embedding, larger.visual.positional_embedding
        assert new.shape == (26, 64)
        assert torch.equal(new[0], old[0])
        assert torch.allclose(new[1:].mean(0), old[1:].mean(0), atol=0.05)
        assert torch.equal(larger.visual.conv1.weight, trained.visual.conv1.weight)


def test_a_raw_timm_file_fills_the_trunk(tmp_path, vocabulary):
    torch.manual_seed(7)
    trunk = timm.create_model("test_vit", num_classes=10)
    path = write(trunk.state_dict(), tmp_path / "timm" / "model.safetensors")
    for source in (path, str(Path(path).parent)):
        loaded = two_towers(vocabulary, image_weights=source)
        assert torch.equal(
            loaded.visual.trunk.blocks[0].attn.qkv.weight, trunk.blocks[0].attn.qkv.weight
        )
        assert torch.equal(loaded.visual.trunk.norm.bias, trunk.norm.bias)


def test_a_timm_file_of_another_size_is_interpolated(tmp_path, vocabulary):
    trunk = timm.create_model("test_vit", num_classes=10, img_size=96)
    path = write(trunk.state_dict(), tmp_path / "timm.pth")
    loaded = two_towers(vocabulary, image_weights=path)
    assert loaded.visual.trunk.pos_embed.shape[1] != trunk.pos_embed.shape[1]
    assert torch.equal(loaded.visual.trunk.cls_token, trunk.cls_token)


def test_a_whole_model_with_a_timm_tower_may_be_continued_at_another_size(tmp_path, vocabulary):
    trained = two_towers(vocabulary, seed=2)
    state = trained.state_dict()
    # As of 96 px: 6 x 6 patches and the class.
    state["visual.trunk.pos_embed"] = torch.ones(1, 37, 64)
    loaded = two_towers(vocabulary, weights=write(state, tmp_path / "small.pt"))
    assert torch.allclose(loaded.visual.trunk.pos_embed, torch.ones(1, 101, 64), atol=1e-5)
    assert same(loaded.text, trained.text)
    assert same(loaded.visual.head, trained.visual.head)


@pytest.mark.parametrize("kind", ["encoder", "masked language model"])
def test_a_raw_transformers_folder_fills_the_transformer(tmp_path, vocabulary, kind):
    torch.manual_seed(7)
    whole = BertForMaskedLM(BertConfig(**SHAPE))
    if kind == "encoder":
        whole.bert.save_pretrained(tmp_path / "hf")
    else:
        whole.save_pretrained(tmp_path / "hf")
    loaded = two_towers(vocabulary, text_weights=str(tmp_path / "hf"))
    inner = loaded.text.transformer
    assert torch.equal(
        inner.embeddings.word_embeddings.weight, whole.bert.embeddings.word_embeddings.weight
    )
    assert torch.equal(
        inner.encoder.layer[1].output.dense.bias, whole.bert.encoder.layer[1].output.dense.bias
    )


def test_a_modernbert_for_masked_words_fills_the_transformer(tmp_path, vocabulary):
    shape = {**SHAPE, "pad_token_id": 0}
    whole = ModernBertForMaskedLM(ModernBertConfig(**shape, bos_token_id=2, eos_token_id=3))
    whole.save_pretrained(tmp_path / "hf")
    loaded = build(
        text_cfg={"hf_model_name": "some/modernbert"},
        text_transformer={"model_type": "modernbert", **shape},
        tokenizer=str(vocabulary),
        context_length=20,
        text_weights=str(tmp_path / "hf"),
    )
    assert {name.split(".")[0] for name, _ in loaded.text.named_parameters()} == {
        "transformer",
        "proj",
    }
    assert all(
        torch.equal(value, loaded.text.transformer.state_dict()[name])
        for name, value in whole.model.state_dict().items()
    )


def test_old_names_of_norms_are_understood(tmp_path, vocabulary):
    whole = BertForMaskedLM(BertConfig(**SHAPE))
    torch.nn.init.normal_(whole.bert.embeddings.LayerNorm.weight)
    state = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in whole.state_dict().items()
    }
    loaded = two_towers(vocabulary, text_weights=write(state, tmp_path / "pytorch_model.bin"))
    assert torch.equal(
        loaded.text.transformer.embeddings.LayerNorm.weight, whole.bert.embeddings.LayerNorm.weight
    )


def test_files_in_parts_are_read_by_their_index(tmp_path, vocabulary):
    trained = two_towers(vocabulary, seed=5)
    names = sorted(trained.state_dict())
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for part, inside in parts.items():
        write({name: trained.state_dict()[name] for name in inside}, tmp_path / "m" / part)
    index = {"weight_map": {name: part for part, inside in parts.items() for name in inside}}
    (tmp_path / "m" / "model.safetensors.index.json").write_text(json.dumps(index))
    assert same(two_towers(vocabulary, weights=str(tmp_path / "m")), trained)


def test_a_projection_that_a_backbone_cannot_have_may_be_missing(tmp_path):
    trained = build(seed=2)
    state = {k: v for k, v in trained.visual.state_dict().items() if k != "proj"}
    loaded = build(image_weights=write(state, tmp_path / "visual.pt"))
    assert torch.equal(loaded.visual.conv1.weight, trained.visual.conv1.weight)


def test_files_with_a_strange_prefix_are_refused(tmp_path, vocabulary):
    state = {f"encoder_q.{k}": v for k, v in build(seed=2).visual.state_dict().items()}
    path = write(state, tmp_path / "moco.pt")
    with pytest.raises(ArtifactError, match=r"(?s) 0 of .*encoder_q") as said:
        build(image_weights=path)
    assert "class_embedding" in str(said.value)
    with pytest.raises(ArtifactError, match="only 0"):
        two_towers(vocabulary, text_weights=path)


@pytest.mark.parametrize("setting", ["weights", "image_weights", "text_weights"])
def test_half_of_the_tensors_missing_is_an_error(tmp_path, setting):
    state = build(seed=2).state_dict()
    path = write(dict(list(state.items())[::2]), tmp_path / "half.pt")
    with pytest.raises(ArtifactError, match="missing"):
        build(**{setting: path})


def test_one_large_tensor_missing_is_an_error(tmp_path, vocabulary):
    # One of 150, but half of the numbers.
    state = dict(BertForMaskedLM(BertConfig(**SHAPE)).state_dict())
    del state["bert.embeddings.word_embeddings.weight"]
    with pytest.raises(ArtifactError, match="word_embeddings"):
        two_towers(vocabulary, text_weights=write(state, tmp_path / "a.pt"))


def test_tensors_of_another_shape_are_an_error(tmp_path):
    wider = build(vision_cfg={**VISION, "width": 96}).visual.state_dict()
    with pytest.raises(ArtifactError, match=r"conv1\.weight \[96, 3, 16, 16\].* \[64"):
        build(image_weights=write(wider, tmp_path / "wide.pt"))


def test_a_deeper_model_is_not_a_whole_models_weights(tmp_path):
    deeper = build(vision_cfg={**VISION, "layers": 4})
    with pytest.raises(ArtifactError, match=r"deep\.pt"):
        build(weights=write(deeper.state_dict(), tmp_path / "deep.pt"))


def test_what_is_refused_leaves_the_model_as_it_was(tmp_path):
    model = build()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    half = dict(list(build(seed=2).state_dict().items())[::2])
    with pytest.raises(ArtifactError):
        weights.load_model(model, write(half, tmp_path / "half.pt"))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


class Runs:
    """What a pickle can do to who loads it."""

    def __reduce__(self):
        return (Path.touch, (Path("it_ran"),))


def test_a_file_that_would_run_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": Runs()}, tmp_path / "bad.bin")
    with pytest.raises(ArtifactError, match=r"bad\.bin"):
        build(weights=str(tmp_path / "bad.bin"))
    assert not (tmp_path / "it_ran").exists()


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no archive", b"\x80\x02}q\x00."])
@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_file_that_is_none_is_refused(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ArtifactError):
        build(weights=str(tmp_path / name))


def test_published_weights_are_compared_with_their_checksum(tmp_path):
    trained = build(seed=2)
    path = Path(write(trained.state_dict(), tmp_path / "open_clip_model.safetensors"))
    whole = path.read_bytes()
    notes = {"weights_sha256": hashlib.sha256(whole).hexdigest()}
    (tmp_path / "manifest.json").write_text(json.dumps({"kind": "model", "notes": notes}))
    assert same(build(weights=str(tmp_path)), trained)
    for place in (0.3, 0.6, 0.9):
        changed = bytearray(whole)
        changed[int(place * len(whole))] ^= 1
        path.write_bytes(changed)
        for source in (path, tmp_path):
            with pytest.raises(
                ArtifactError, match=r"open_clip_model\.safetensors .*SHA-256.*manifest\.json"
            ):
                build(weights=str(source))
    # Of somebody else's: nothing is known of it.
    (tmp_path / "manifest.json").write_text('{"name": "a web app"}')
    path.write_bytes(whole)
    assert same(build(weights=str(tmp_path)), trained)


@pytest.mark.parametrize(
    ("setting", "source", "reason"),
    [
        ("weights", "nowhere", "nowhere"),
        ("image_weights", "/no/such/file.pt", "/no/such/file.pt"),
        ("text_weights", "./folder", "./folder"),
        ("weights", "empty", r"\.safetensors"),
        ("weights", "openai_typo", "laion2b_s32b_b82k"),
    ],
)
def test_weights_that_do_not_exist_are_named_without_reading_any(
    tmp_path, monkeypatch, setting, source, reason
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    described = Plugin("open_clip", {"architecture": "ViT-L-14", setting: source})
    with pytest.raises(ArtifactError, match=reason) as caught:
        check_weights(described)
    assert f"model.{setting}: " in str(caught.value)


def test_weights_that_exist_are_not_read(tmp_path):
    (tmp_path / "model.safetensors").write_bytes(b"these are none")
    for source in (tmp_path, tmp_path / "model.safetensors"):
        weight_files.check_existence(str(source))
    weight_files.check_existence("openai", architecture="ViT-L-14")


def test_weights_in_a_bucket_are_looked_for(bucket_uri):
    Folder(f"{bucket_uri}/model").write("a.safetensors", b"x")
    weight_files.check_existence(f"{bucket_uri}/model/a.safetensors")
    weight_files.check_existence(f"{bucket_uri}/model")
    for missing in (f"{bucket_uri}/model/b.safetensors", f"{bucket_uri}/other"):
        with pytest.raises(ArtifactError, match=missing):
            weight_files.check_existence(missing)


def test_names_that_stand_for_nothing_say_what_was_tried(tmp_path):
    with pytest.raises(ArtifactError, match=r"absent\.pt"):
        build(weights=str(tmp_path / "absent.pt"))
    with pytest.raises(ArtifactError, match=r"'?opnai'? .*RN50 \(openai"):
        weight_files.read("opnai", architecture="RN50")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ArtifactError, match=r"empty .*\.safetensors"):
        build(weights=str(tmp_path / "empty"))


def release(vocabulary, folder: Path, *, old_names: bool) -> Path:
    """A folder as BiomedCLIP's, whose text tower is named on the hub only; small."""
    trained = two_towers(vocabulary, seed=3)
    text = {"hf_model_name": "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"}
    text |= {"hf_tokenizer_name": text["hf_model_name"], "context_length": 20}
    if old_names:
        text |= {"proj": "mlp", "pooler_type": "cls_last_hidden_state_pooler"}
    else:
        text |= {"hf_proj_type": "mlp", "hf_pooler_type": "cls_last_hidden_state_pooler"}
    cfg = {"embed_dim": 24, "vision_cfg": TIMM, "text_cfg": text}
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": cfg, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}})
    )
    # Of transformers before 4.31.
    state = {**trained.state_dict(), "text.transformer.embeddings.position_ids": torch.arange(40)}
    write(state, folder / "open_clip_pytorch_model.bin")
    shutil.copy(vocabulary / "vocab.txt", folder)
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    return folder


@pytest.mark.parametrize("old_names", [False, True])
def test_the_layout_of_biomedclips_release_loads_offline(
    tmp_path, vocabulary, monkeypatch, old_names
):
    name = "microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract"
    assert text_configs.KNOWN[name]["vocab_size"] == 30_522
    monkeypatch.setitem(text_configs.KNOWN, name, {"model_type": "bert", **SHAPE})
    folder = release(vocabulary, tmp_path / "release", old_names=old_names)
    loaded = encoder.load(str(folder))
    assert same(loaded.model, two_towers(vocabulary, seed=3))
    (ids,) = loaded.tokenizer.encode(["w3 w4"])
    assert list(ids) == [2, 8, 9, 3]
    onward = open_clip.build(settings_of_release(folder))
    assert onward.mean == (0.5, 0.5, 0.5)
    assert same(onward.model, loaded.model)


def settings_of_release(folder):
    return config.build(open_clip.Config, {"architecture": str(folder), "weights": str(folder)})


def test_a_misspelt_tower_setting_is_named():
    with pytest.raises(ConfigError, match=r"vision_cfg.*\n  witdh"):
        build(vision_cfg={**VISION, "witdh": 3})
