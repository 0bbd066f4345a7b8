"""Fine-tuning as a whole: judged before and after, resumed, and refused."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import open_clip as stock
import pytest
import torch
from safetensors.torch import load_file

from biovl.benchmark import encoders, open_clip_models
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, read_manifest
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from biovl.finetune import config as finetune_config
from biovl.finetune import job, start
from biovl.finetune.config import FinetuneConfig, FinetuneOptim
from biovl.finetune.job import dry_run_text, finetune
from biovl.models import encoder
from biovl.models.builders import open_clip
from biovl.models.wise_ft import interpolate
from biovl.pretrain import publishing
from biovl.sample.kinds import make_kinds
from tests.runtime.interrupting import interrupted

VISION = {"layers": 2, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 2, "context_length": 77}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    torch.manual_seed(1)
    settings = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
    built = open_clip.build(configs.build(open_clip.Config, settings))
    encoder.save(folder, built, built.model.state_dict())
    return folder


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kinds")
    make_kinds(folder, each=4, kinds=("fundus", "histology"))
    return folder / "images"


def settings(base: Path | str, corpus: Path, out: Path, **changes: object) -> FinetuneConfig:
    plain = configs.recipe_settings(finetune_config.tiny())
    own = {
        **{"model": str(base), "corpus": str(corpus), "out": str(out)},
        **{"epochs": 2, "batch.pairs": 16, "resamples": 100, "alphas": [0, 0.5, 1]},
    }
    return configs.build(FinetuneConfig, {**plain, **own, **changes})


@pytest.fixture(scope="module")
def done(
    base: Path, kinds: Path, sample_corpus: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[FinetuneConfig, Manifest]:
    """A run that was stopped after training, and went on."""
    retained = {"kinds": {"name": "zero_shot", "data": str(kinds)}}
    out = tmp_path_factory.mktemp("finetuned") / "out"
    config = settings(base, sample_corpus, out, retained=retained, retained_loss=1.0)
    with interrupted("scoring", 2):
        finetune(config, progress=io.StringIO())
    assert not (out / "manifest.json").exists()
    trained = (out / "tuned/manifest.json").stat().st_mtime_ns
    manifest = finetune(config, progress=io.StringIO())
    assert (out / "tuned/manifest.json").stat().st_mtime_ns == trained
    return config, manifest


@pytest.mark.ray
def test_the_published_weights_are_between_the_given_and_the_tuned_model(
    done: tuple[FinetuneConfig, Manifest], base: Path
) -> None:
    config, manifest = done
    given, tuned, published = (
        load_file(Path(folder) / encoder.WEIGHTS)
        for folder in (base, f"{config.out}/tuned", config.out)
    )
    for name, tensor in interpolate(given, tuned, manifest.counts["alpha"]).items():
        assert torch.equal(published[name], tensor), name
    assert any(not torch.equal(given[name], tuned[name]) for name in given)
    stock.create_model_and_transforms(f"local-dir:{config.out}")
    assert manifest.kind == "model"


@pytest.mark.ray
def test_scores_before_and_after_are_those_of_the_two_models(
    done: tuple[FinetuneConfig, Manifest], base: Path
) -> None:
    config, manifest = done
    scores = json.loads((Path(config.out) / "report/scores.json").read_text())["scores"]
    by_model = {(each["task"], each["name"], each["model"]): each["value"] for each in scores}
    rows = manifest.notes["scores"]
    assert {row["task"] for row in rows} == {"test", "kinds"}
    for row in rows:
        key = row["task"], row["score"]
        assert (row["before"], row["after"]) == (by_model[*key, "before"], by_model[*key, "after"])
    test = manifest.notes["test"]
    assert manifest.counts["verdict"] == test["verdict"]
    assert test["difference"] == pytest.approx(test["after"] - test["before"])
    # Two epochs on a random model: the verdict is said where it happens.
    assert bool(manifest.warnings) == (test["verdict"] != "better")


@pytest.mark.ray
def test_a_finished_run_is_not_repeated_and_its_draft_is_gone(
    done: tuple[FinetuneConfig, Manifest],
) -> None:
    config, _ = done
    assert finetune(config, progress=io.StringIO()) == read_manifest(config.out, "model")
    assert not (Path(config.out) / ".draft").exists()
    with pytest.raises(ArtifactError):
        finetune(configs.override(config, {"epochs": 3}), progress=io.StringIO())


@pytest.mark.ray
def test_a_retained_task_that_cannot_be_scored_ends_the_run(
    base: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    retained = {"kinds": {"name": "zero_shot", "data": str(tmp_path / "nowhere")}}
    config = settings(base, sample_corpus, tmp_path / "out", retained=retained)
    with pytest.raises(ArtifactError, match="nowhere"):
        finetune(config, progress=io.StringIO())
    # Found before anything was trained: the corrected command may use the folder.
    assert not (tmp_path / "out").exists()


def test_the_estimate_is_that_of_the_training(
    base: Path, sample_corpus: Path, tmp_path: Path
) -> None:
    assert "pairs to train on" in dry_run_text(settings(base, sample_corpus, tmp_path / "out"))


@pytest.fixture
def tag(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The same model under a name of open_clip, with a file of weights."""
    described = json.loads((base / encoder.CONFIG).read_text())["model_cfg"]
    (tmp_path / "Tiny-16.json").write_text(json.dumps(described))
    monkeypatch.setattr(stock.factory, "_MODEL_CONFIGS", dict(stock.factory._MODEL_CONFIGS))
    monkeypatch.setattr(
        stock.factory, "_MODEL_CONFIG_PATHS", list(stock.factory._MODEL_CONFIG_PATHS)
    )
    stock.add_model_config(tmp_path / "Tiny-16.json")
    return f"Tiny-16/{base / encoder.WEIGHTS}"


def test_a_model_given_by_name_is_copied_once(
    tag: str, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = encoders.describe(tag)
    copied = start.base_folder(known, str(tmp_path / "out" / "base"))
    assert read_manifest(copied, "model").config["downloaded"] == tag
    weights = load_file(Path(copied) / encoder.WEIGHTS)
    for name, tensor in load_file(base / encoder.WEIGHTS).items():
        assert torch.equal(weights[name], tensor), name
    monkeypatch.setattr(publishing, "write_model", None)
    assert start.base_folder(known, copied) == copied


def test_the_inputs_that_the_weights_of_a_tag_need_are_set() -> None:
    found = start.settings_of(encoders.describe("ViT-B-16/openai"))
    assert found["quick_gelu"] is True
    assert found["image_mean"] == pytest.approx([0.48145466, 0.4578275, 0.40821073])
    # As the builder asks for; without them it refuses the weights.
    described = open_clip.describe(configs.build(open_clip.Config, found))
    assert described.model_cfg["quick_gelu"] is True


@pytest.mark.parametrize("model", ["ViT-B-16/untrained", "ViT-B-16/nothing", "Vit-16/openai"])
def test_a_name_without_weights_is_refused(model: str) -> None:
    with pytest.raises(ConfigError):
        start.settings_of(encoders.describe(model))


def test_a_model_in_a_bucket_can_be_built(
    base: Path, bucket: Callable[[str, bytes], None], bucket_uri: str
) -> None:
    for path in base.iterdir():
        bucket(f"finetune/base/{path.name}", path.read_bytes())
    uri = f"{bucket_uri}/finetune/base"
    built = open_clip.build(open_clip.Config(architecture=uri, weights=uri))
    expected = load_file(base / encoder.WEIGHTS)
    for name, tensor in built.model.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize(
    "changes",
    [
        {"alphas": (0.0, 0.5)},
        {"gain_share": 0.0},
        {"retained_loss": -0.1},
        {"resamples": 0},
        {"seed": -1},
        {"retained": {"chest x-ray": Plugin("zero_shot")}},
        {"retained": {"test": Plugin("zero_shot")}},
        {"tasks": {"a": Plugin("zero_shot")}, "retained": {"a": Plugin("zero_shot")}},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(changes: dict) -> None:
    with pytest.raises(ConfigError, match=r"alpha|gain|retained|twice|resamples|seed|names"):
        configs.build(FinetuneConfig, {"model": "m", "corpus": "c", "out": "o", **changes})


@pytest.mark.parametrize(
    "wrong", [{"peak_lr": 0}, {"layer_decay": 0}, {"weight_decay": -1}, {"clip_grad_norm": 0}]
)
def test_settings_that_pretrain_refuses_are_refused_at_once(wrong: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        configs.build(FinetuneOptim, wrong)


@pytest.mark.parametrize(
    ("changes", "accepted"),
    [
        ({"step.micro_batch": 8}, True),
        ({"data.unreadable": "replace"}, True),
        ({"step.loss": "siglip"}, False),
        ({"epochs": 3}, False),
    ],
)
def test_a_begun_run_accepts_what_pretrain_resumes_with(
    changes: dict, accepted: bool, base: Path, tmp_path: Path
) -> None:
    before = settings(base, tmp_path / "corpus", tmp_path / "out")
    draft = Draft.begin(str(tmp_path / "out"), "model", configs.to_plain(before))
    now = configs.override(before, changes)
    plain, changed = configs.to_plain(now), configs.to_plain(before)
    names = {name for name in plain if plain[name] != changed[name]}
    assert job._accepts(now, draft, names) is accepted


def test_the_preparation_of_images_stays_that_of_the_given_model(
    base: Path, tmp_path: Path
) -> None:
    given = json.loads((base / encoder.CONFIG).read_text())
    given["preprocess_cfg"] |= {"resize_mode": "squash", "interpolation": "bilinear"}
    for path in base.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / encoder.CONFIG).write_text(json.dumps(given))
    built = open_clip.build(open_clip.Config(architecture=str(tmp_path)))
    encoder.save(tmp_path / "tuned", built, built.model.state_dict())
    tuned = json.loads((tmp_path / "tuned" / encoder.CONFIG).read_text())
    assert tuned["preprocess_cfg"] == given["preprocess_cfg"]
    tag = {"architecture": "ViT-H-14-quickgelu", "weights": "dfn5b"}
    tag |= open_clip_models.inputs_of(*tag.values())
    described = open_clip.describe(configs.build(open_clip.Config, tag))
    assert described.preprocess["resize_mode"] == "squash"
