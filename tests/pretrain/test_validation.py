"""Judging a checkpoint: on pairs that may not be there, and on other data."""

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from torch.nn.functional import cross_entropy

from biovl.benchmark import in_memory
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, BiovlError, ConfigError, TrainingError
from biovl.core.plugins import Plugin
from biovl.core.shards import ShardWriter
from biovl.models import encoder
from biovl.pretrain import config as pretrain_config
from biovl.pretrain import validation_job
from biovl.pretrain.card_sections import scores_section
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.models import build
from biovl.pretrain.tower_setup import check_pooled_token, towers_of
from biovl.pretrain.validation import TASKS, describe_scores, validate
from biovl.runtime.checkpoints import Checkpoints


@pytest.mark.parametrize(
    ("unreadable", "error", "message"),
    [
        ("stop", ArtifactError, r"val/00000\.tar, pair p0 "),
        ("replace", TrainingError, r"\b3 "),
    ],
)
def test_a_split_of_which_nothing_can_be_read_is_named(
    tmp_path: Path, unreadable: str, error: type[Exception], message: str
) -> None:
    rows = [(f"p{number}", "val", "val/00000.tar", number * 512, 512, 2) for number in range(3)]
    names = "pair_id split shard offset size text_tokens".split()
    pq.write_table(pa.table(list(zip(*rows, strict=True)), names), tmp_path / "index.parquet")
    changes = {"corpus": str(tmp_path), "out": str(tmp_path), "data.unreadable": unreadable}
    config = configs.build(
        PretrainConfig, {**configs.recipe_settings(pretrain_config.tiny()), **changes}
    )
    checkpoints = Checkpoints(config.out)
    model = build(config.model, with_weights=True).model
    checkpoints.save({"steps_done": 1, "model": model.state_dict()})
    checkpoints.wait()
    with pytest.raises(error, match=message):
        validate(config, 1, torch.device("cpu"))


@pytest.mark.parametrize("is_made_again", [True, False])
def test_scores_of_a_checkpoint_that_a_rollback_discards_meanwhile_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_made_again: bool
) -> None:
    changes = {"corpus": "corpus", "out": str(tmp_path)}
    config = configs.build(
        PretrainConfig, {**configs.recipe_settings(pretrain_config.tiny()), **changes}
    )
    checkpoints = Checkpoints(config.out)

    def save(weight: float) -> None:
        checkpoints.save({"steps_done": 4, "model": {"weight": torch.tensor([weight])}})
        checkpoints.wait()

    def roll_back(*_: object) -> dict[str, float]:
        checkpoints.discard_after(3)
        if is_made_again:
            save(2.0)
        return {"loss": 1.0}

    save(1.0)
    monkeypatch.setattr(validation_job, "validate", lambda *_: {"loss": 2.0})
    assert validation_job.scores_of(config, 4, torch.device("cpu")) == {"loss": 2.0}
    monkeypatch.setattr(validation_job, "validate", roll_back)
    with pytest.raises(TrainingError, match="step 4 was discarded by a rollback"):
        validation_job.scores_of(config, 4, torch.device("cpu"))


def bert_words(folder: Path) -> str:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "probe", "red", "square"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "config.json").write_text('{"model_type": "bert"}')
    return str(folder)


@pytest.mark.parametrize(
    ("text_cfg", "mode", "refused"),
    [
        ({}, "packed", "eos_id=3"),
        ({"pool_type": "eos"}, "packed", "eos_id=3"),
        ({"pool_type": "eos", "eos_id": 3}, "packed", None),
        ({}, "padded", None),
    ],
)
def test_training_pools_the_token_that_the_published_model_pools(
    tmp_path: Path, text_cfg: dict[str, object], mode: str, refused: str | None
) -> None:
    settings = configs.recipe_settings(pretrain_config.tiny())
    changes = {
        **{f"model.text_cfg.{name}": value for name, value in text_cfg.items()},
        **{"model.tokenizer": bert_words(tmp_path), "step.text": mode},
        **{"corpus": "corpus", "out": "out"},
    }
    config = configs.build(PretrainConfig, {**settings, **changes})
    built = build(config.model, with_weights=True)
    if refused:
        with pytest.raises(ConfigError, match=refused):
            check_pooled_token(built, config.step)
        return
    check_pooled_token(built, config.step)
    towers = towers_of(built, config.step, torch.device("cpu"))
    ids = built.tokenizer.encode(["a probe", "red", "a red square"])
    tokens_T = torch.from_numpy(np.concatenate(ids))
    trained_BD = towers.text(tokens_T, torch.tensor([len(row) for row in ids], dtype=torch.int32))
    published_BD = encoder.Encoder(built).embed_tokens(ids)
    np.testing.assert_allclose(trained_BD.detach().numpy(), published_BD, atol=1e-5)


COLOURS = {"red": (200, 20, 10), "dark_blue": (10, 20, 90), "green": (10, 180, 30)}


def png(colour: tuple[int, int, int], number: int = 0, width: int = 64) -> bytes:
    pixels = np.full((64, width, 3), colour, np.uint8)
    pixels[: 4 + number] = 255
    # Outside the center crop of a wide image.
    pixels[:, 64 + colour[0] // 8 :] = 255
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Class folders with four images each, and one file that is no image."""
    for name, colour in COLOURS.items():
        (tmp_path / "colours" / name).mkdir(parents=True)
        for number in range(4):
            (tmp_path / "colours" / name / f"{number}.png").write_bytes(png(colour, number))
    (tmp_path / "colours/red/broken.png").write_bytes(b"no image")
    return tmp_path / "colours"


def write_val(corpus: Path, width: int = 64) -> None:
    (corpus / "val").mkdir(parents=True)
    rows = []
    with (corpus / "val/00000.tar").open("wb") as stream:
        shard = ShardWriter(stream)
        for number, (name, colour) in enumerate(COLOURS.items()):
            about = json.dumps({"caption": name, "mentions": []}).encode()
            files = {"png": png(colour, width=width), "txt": name.encode(), "json": about}
            place = shard.add(f"p{number}", files)
            rows.append((f"p{number}", "val", "val/00000.tar", place.offset, place.size, 2))
        shard.finish()
    names = "pair_id split shard offset size text_tokens".split()
    pq.write_table(pa.table(list(zip(*rows, strict=True)), names), corpus / "index.parquet")


def test_images_of_val_are_prepared_as_by_the_published_model(tmp_path: Path) -> None:
    write_val(tmp_path / "corpus", width=192)
    plain = configs.recipe_settings(pretrain_config.tiny())
    built = build(
        configs.build(PretrainConfig, {**plain, "corpus": "", "out": ""}).model, with_weights=True
    )
    squash = dataclasses.replace(built, preprocess={"resize_mode": "squash"})
    encoder.save(tmp_path / "model", squash, built.model.state_dict())
    model = {
        "name": "open_clip",
        "architecture": str(tmp_path / "model"),
        "weights": str(tmp_path / "model"),
    }
    changes = {"corpus": str(tmp_path / "corpus"), "out": str(tmp_path / "out"), "model": model}
    config = configs.build(PretrainConfig, {**plain, **changes})
    checkpoints = Checkpoints(config.out)
    checkpoints.save({"steps_done": 1, "model": built.model.state_dict()})
    checkpoints.wait()
    loss = validate(config, 1, torch.device("cpu"))["loss"]

    published = encoder.load(str(tmp_path / "model"))
    images = [png(colour, width=192) for colour in COLOURS.values()]
    similarities_NN = published.embed_images(images) @ published.embed_texts(list(COLOURS)).T
    logits_NN = torch.tensor(similarities_NN * published.logit_scale)
    each_way = [cross_entropy(way, torch.arange(3)) for way in (logits_NN, logits_NN.T)]
    assert loss == pytest.approx(float(sum(each_way)) / 2, rel=1e-4)


def test_other_data_is_scored_as_by_the_published_model(tmp_path: Path, folder: Path) -> None:
    write_val(tmp_path / "corpus")
    plain = configs.recipe_settings(pretrain_config.tiny())
    changes = {
        "corpus": str(tmp_path / "corpus"),
        "out": str(tmp_path / "out"),
        "validation.tasks": {
            "colours": {"name": "zero_shot", "data": str(folder), "templates": ["a {} image"]}
        },
    }
    config = configs.build(PretrainConfig, {**plain, **changes})
    torch.manual_seed(1)
    built = build(config.model, with_weights=True)
    checkpoints = Checkpoints(config.out)
    checkpoints.save({"steps_done": 1, "model": built.model.state_dict()})
    checkpoints.wait()
    scores = validate(config, 1, torch.device("cpu"))

    encoder.save(tmp_path / "model", built, built.model.state_dict())
    model = encoder.load(str(tmp_path / "model"))
    classes = sorted(COLOURS)
    text_CD = model.embed_texts([f"a {name.replace('_', ' ')} image" for name in classes])
    files = [folder / name / f"{number}.png" for name in classes for number in range(4)]
    image_ND = model.embed_images([file.read_bytes() for file in files])
    right = (image_ND @ text_CD.T).argmax(1) == np.repeat(np.arange(3), 4)
    assert scores["colours/accuracy"] == pytest.approx(right.mean())
    assert scores["colours/chance"] == pytest.approx(1 / 3)
    # The scores of val are those without a task.
    without = validate(
        configs.build(PretrainConfig, {**plain, **changes, "validation.tasks": {}}),
        1,
        torch.device("cpu"),
    )
    assert {name: value for name, value in scores.items() if "/" not in name} == without
    assert f"colours accuracy {right.mean():.1%}" in describe_scores(0, scores)
    assert "colours: accuracy" in scores_section({0: scores, 1: without | scores}, 0)
    assert "colours" not in scores_section({0: without}, 0)


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (Plugin("linear_probe", {"data": "x"}), ConfigError),
        (Plugin("zero_shot", {"data": "x", "prompt": "pcam"}), ConfigError),
        (Plugin("zero_shot", {"data": "nowhere"}), ArtifactError),
    ],
)
def test_a_task_that_cannot_be_scored_is_named(task: Plugin, error: type[BiovlError]) -> None:
    with pytest.raises(error, match=r"validation\.tasks\.mine"):
        in_memory.open_tasks({"mine": task}, TASKS)
