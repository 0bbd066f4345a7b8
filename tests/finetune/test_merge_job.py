"""Merge as a whole: a folder that stock open_clip loads, scores of every alpha, resumed, refused."""

import io
import json
from pathlib import Path

import numpy as np
import open_clip as stock
import pytest
import torch
from PIL import Image

from biovl.benchmark.retrieval import evaluate_retrieval
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest, fingerprint
from biovl.core.errors import ArtifactError
from biovl.core.folders import Folder
from biovl.core.shards import ShardWriter
from biovl.finetune.merge_config import MergeConfig
from biovl.finetune.merge_job import merge
from biovl.models import encoder
from biovl.models.builders import open_clip
from tests.runtime.folders import content
from tests.runtime.typed import run_command

VISION = {"layers": 1, "width": 32, "head_width": 16, "patch_size": 16, "image_size": 32}
TEXT = {"width": 32, "heads": 2, "layers": 1, "context_length": 16}
COLOURS = [(40 * r, 80 * g, 120 * b) for r in range(3) for g in range(2) for b in range(2)]


def png(colour):
    stream = io.BytesIO()
    Image.new("RGB", (40, 36), colour).save(stream, "PNG")
    return stream.getvalue()


def caption(number):
    return f"panel {number} of the atlas"


def save_model(folder: Path, seed: int, vision=VISION, text=TEXT, logit_scale=2.0) -> Path:
    torch.manual_seed(seed)
    settings = {"embed_dim": 16, "vision_cfg": vision, "text_cfg": text}
    built = open_clip.build(
        configs.build(open_clip.Config, {**settings, "init_logit_scale": logit_scale})
    )
    encoder.save(folder, built, built.model.state_dict())
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("merge")
    return save_model(folder / "base", 1), save_model(folder / "tuned", 2, logit_scale=3.0)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("merge") / "corpus"
    draft = Draft.begin(str(folder), "corpus", {})
    for shard, numbers in enumerate((range(7), range(7, 12))):
        with draft.folder.writer(f"val/{shard:05d}.tar") as stream:
            writer = ShardWriter(stream)
            for number in numbers:
                files = {"png": png(COLOURS[number]), "txt": caption(number).encode()}
                writer.add(f"pair{number}", files)
            writer.finish()
    counts = {"pairs": {"train": 0, "val": 12, "test": 0}}
    draft.publish(Manifest(kind="corpus", config={}, counts=counts))
    return folder


def run(models: tuple[Path, Path], out: Path, **settings: object) -> Manifest:
    base, tuned = models
    whole = {"base": str(base), "tuned": str(tuned), "out": str(out), **settings}
    return merge(configs.build(MergeConfig, whole), progress=io.StringIO())


def stock_outputs(folder: Path):
    model, _, prepare = stock.create_model_and_transforms(f"local-dir:{folder}")
    tokenizer = stock.get_tokenizer(f"local-dir:{folder}")
    pixels = torch.stack([prepare(Image.open(io.BytesIO(png(colour)))) for colour in COLOURS])
    model.eval()
    with torch.no_grad():
        texts = tokenizer([caption(number) for number in range(12)])
        return model.encode_image(pixels), model.encode_text(texts), model.logit_scale.exp()


@pytest.mark.parametrize(("alpha", "like"), [(0, "base"), (1, "tuned")])
def test_an_end_is_the_model_itself_in_stock_open_clip(models, tmp_path, alpha, like) -> None:
    run(models, tmp_path / "out", alpha=alpha)
    expected = stock_outputs(models[0].parent / like)
    for ours, theirs in zip(stock_outputs(tmp_path / "out"), expected, strict=True):
        assert torch.equal(ours, theirs)


def test_a_model_between_two_has_the_mean_of_their_weights(models, tmp_path) -> None:
    manifest = run(models, tmp_path / "out", alpha=0.5)
    base, tuned, merged = (
        stock.create_model(f"local-dir:{folder}").state_dict()
        for folder in (*models, tmp_path / "out")
    )
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, (base[name] + tuned[name]) / 2, rtol=1e-6, atol=1e-7)
    assert manifest.kind == "model"
    assert manifest.counts["alpha"] == 0.5
    assert manifest.counts["parameters"] == sum(
        p.numel() for p in stock.create_model(f"local-dir:{models[0]}").parameters()
    )
    assert merged["logit_scale"].item() == pytest.approx(2.5)


def test_a_transformers_tower_and_its_tokenizer_come_along(tmp_path) -> None:
    words = tmp_path / "bert"
    words.mkdir()
    (words / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\npanel\natlas\n1\n2\n")
    shape = {"model_type": "bert", "vocab_size": 9, "hidden_size": 32, "num_hidden_layers": 1}
    shape |= {"num_attention_heads": 2, "intermediate_size": 48}
    (words / "config.json").write_text(json.dumps(shape))
    text = {"hf_model_name": str(words), "hf_pooler_type": "cls_last_hidden_state_pooler"}
    text |= {"hf_tokenizer_name": str(words), "context_length": 16}
    pair = (
        save_model(tmp_path / "one", 1, text=text),
        save_model(tmp_path / "two", 2, text=text),
    )
    run(pair, tmp_path / "out", alpha=1)
    assert {"tokenizer.json", "config.json"} <= set(content(tmp_path / "out"))
    for ours, theirs in zip(stock_outputs(tmp_path / "out"), stock_outputs(pair[1]), strict=True):
        assert torch.equal(ours, theirs)


def test_models_and_what_is_published_can_be_in_a_bucket(models, bucket_uri, tmp_path) -> None:
    for name, folder in zip(("base", "tuned"), models, strict=True):
        for path in folder.iterdir():
            Folder(f"{bucket_uri}/{name}").write(path.name, path.read_bytes())
    there = {name: f"{bucket_uri}/{name}" for name in ("base", "tuned", "out")}
    merge(configs.build(MergeConfig, {**there, "alpha": 0.5}), progress=io.StringIO())
    run(models, tmp_path / "out", alpha=0.5)
    name = encoder.WEIGHTS
    assert Folder(there["out"]).read(name) == (tmp_path / "out" / name).read_bytes()


def test_a_file_of_weights_will_do_for_what_tuning_began_from(models, tmp_path) -> None:
    run((models[0] / encoder.WEIGHTS, models[1]), tmp_path / "file", alpha=0.3)
    run(models, tmp_path / "folder", alpha=0.3)
    file, folder = (content(tmp_path / name) for name in ("file", "folder"))
    assert file[encoder.WEIGHTS] == folder[encoder.WEIGHTS]
    assert file[encoder.CONFIG] == folder[encoder.CONFIG]


def test_a_sweep_scores_every_alpha_and_publishes_the_best(models, corpus, tmp_path) -> None:
    out = tmp_path / "out"
    manifest = run(models, out, alphas=[1, 0, 0.5], corpus=str(corpus))
    sweep = json.loads((out / "sweep.json").read_text())
    assert [point["alpha"] for point in sweep["points"]] == [0, 0.5, 1]
    assert {point["pairs"] for point in sweep["points"]} == {12}
    for point, folder in zip(sweep["points"][::2], models, strict=True):
        image_ND, text_ND, scale = stock_outputs(folder)
        unit = torch.nn.functional.normalize
        expected = evaluate_retrieval(unit(image_ND), unit(text_ND), float(scale))
        assert point == pytest.approx({**expected, "alpha": point["alpha"]}, rel=1e-4)

    def mean(point):
        return point["image_to_text_recall_at_1"] + point["text_to_image_recall_at_1"]

    best = max(sweep["points"], key=mean)
    assert sweep["chosen"] == min(p["alpha"] for p in sweep["points"] if mean(p) == mean(best))
    assert manifest.counts["alpha"] == sweep["chosen"]
    assert manifest.notes["validation"] == next(
        p for p in sweep["points"] if p["alpha"] == sweep["chosen"]
    )
    card = (out / "README.md").read_text()
    assert f"| {sweep['chosen']:g} (this one) |" in card
    image = Image.open(out / "plots" / "sweep.png")
    assert np.asarray(image.convert("L")).std() > 5
    stock_outputs(out)


def test_of_equal_models_that_nearest_to_the_base_is_published(models, corpus, tmp_path) -> None:
    manifest = run((models[0], models[0]), tmp_path / "out", alphas=[1, 0.5], corpus=str(corpus))
    assert manifest.counts["alpha"] == 0.5


def test_an_alpha_that_is_given_is_published_whatever_the_scores(models, corpus, tmp_path) -> None:
    for alpha in (0.2, 0.8):
        out = tmp_path / str(alpha)
        settings = {"alpha": alpha, "alphas": [0, 1], "corpus": str(corpus), "pairs": 8}
        assert run(models, out, **settings).counts["alpha"] == alpha
        sweep = json.loads((out / "sweep.json").read_text())
        assert [point["alpha"] for point in sweep["points"]] == [0, alpha, 1]
        assert sweep["pairs"] == 8


def test_a_killed_sweep_goes_on_and_ends_in_the_same_bytes(models, corpus, tmp_path) -> None:
    settings = {"alphas": [0, 0.5, 1], "corpus": str(corpus)}

    class Full(io.StringIO):
        """A terminal that goes away when the second alpha begins."""

        def write(self, text: str) -> int:
            if "alpha 0.5" in text:
                raise BrokenPipeError
            return super().write(text)

    whole = {"base": str(models[0]), "tuned": str(models[1]), "out": str(tmp_path / "killed")}
    with pytest.raises(BrokenPipeError):
        merge(configs.build(MergeConfig, {**whole, **settings}), progress=Full())
    said = io.StringIO()
    merge(configs.build(MergeConfig, {**whole, **settings}), progress=said)
    assert "alpha 0," not in said.getvalue()
    assert "alpha 1," in said.getvalue()
    run(models, tmp_path / "whole", **settings)
    assert content(tmp_path / "killed") == content(tmp_path / "whole")


def test_a_finished_merge_is_not_repeated_and_another_is_refused(models, tmp_path) -> None:
    first = run(models, tmp_path / "out", alpha=0.5)
    before = content(tmp_path / "out")
    assert run(models, tmp_path / "out", alpha=0.5).counts == first.counts
    assert content(tmp_path / "out") == before
    with pytest.raises(ArtifactError, match=r"config\.alpha: 0\.5 -> 0\.75"):
        run(models, tmp_path / "out", alpha=0.75)


def test_other_weights_under_the_same_name_are_another_merge(tmp_path) -> None:
    models = save_model(tmp_path / "base", 1), save_model(tmp_path / "tuned", 2)
    run(models, tmp_path / "out", alpha=0.5)
    save_model(tmp_path / "tuned", 3)
    with pytest.raises(ArtifactError, match=r"inputs\.tuned"):
        run(models, tmp_path / "out", alpha=0.5)


def test_a_published_model_is_known_by_its_manifest(models, tmp_path) -> None:
    run(models, tmp_path / "half", alpha=0.5)
    manifest = run((models[0], tmp_path / "half"), tmp_path / "quarter", alpha=0.5)
    kept = {item.name: item.fingerprint for item in manifest.inputs}
    assert kept["tuned"] == fingerprint(str(tmp_path / "half"))
    base, tuned, merged = (
        stock.create_model(f"local-dir:{folder}").state_dict()["text.token_embedding.weight"]
        for folder in (*models, tmp_path / "quarter")
    )
    torch.testing.assert_close(merged, 0.75 * base + 0.25 * tuned)


def test_models_of_two_shapes_are_refused_before_anything_is_begun(models, tmp_path) -> None:
    other = save_model(tmp_path / "other", 1, vision={**VISION, "width": 48})
    with pytest.raises(ArtifactError, match=r"vision_cfg\.width: 48 -> 32"):
        run((other, models[1]), tmp_path / "out", alpha=0.5)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("which", [0, 1])
def test_a_model_that_is_not_there_is_named(models, tmp_path, which) -> None:
    broken = list(models)
    broken[which] = tmp_path / "nothing"
    with pytest.raises(ArtifactError, match="/nothing "):
        run((broken[0], broken[1]), tmp_path / "out", alpha=0.5)


def test_a_split_without_pairs_chooses_nothing(models, corpus, tmp_path) -> None:
    with pytest.raises(ArtifactError, match=r"corpus.* test "):
        run(models, tmp_path / "out", alphas=[0, 1], corpus=str(corpus), split="test")


def test_how_both_prepare_images_is_kept_and_other_ways_are_refused(tmp_path) -> None:
    models = save_model(tmp_path / "base", 1), save_model(tmp_path / "tuned", 2)
    described = json.loads((models[1] / encoder.CONFIG).read_text())
    described["preprocess_cfg"] |= {"resize_mode": "squash", "interpolation": "bilinear"}
    (models[1] / encoder.CONFIG).write_text(json.dumps(described))
    # At alpha 0 it would be the base with other pixels.
    with pytest.raises(ArtifactError, match=r"image\.resize_mode: .shortest. -> .squash"):
        run(models, tmp_path / "out", alpha=0.5)
    (models[0] / encoder.CONFIG).write_text(json.dumps(described))
    run(models, tmp_path / "out", alpha=0.5)
    published = json.loads((tmp_path / "out" / encoder.CONFIG).read_text())
    assert published == described


def test_the_script_prints_what_it_published(models, tmp_path) -> None:
    folders = {"base": str(models[0]), "tuned": str(models[1]), "out": str(tmp_path / "out")}
    summary = run_command("pipelines/merge.py", "wise_ft", alpha=0.5, **folders)
    assert summary["kind"] == "model"
    assert summary["alpha"] == 0.5


def test_a_base_given_by_name_is_merged_as_its_folder_would_be(
    models, tmp_path, monkeypatch
) -> None:
    base, tuned = models
    described = json.loads((base / encoder.CONFIG).read_text())["model_cfg"]
    (tmp_path / "Tiny-17.json").write_text(json.dumps(described))
    for name in ("_MODEL_CONFIGS", "_MODEL_CONFIG_PATHS"):
        own = getattr(stock.factory, name)
        monkeypatch.setattr(stock.factory, name, type(own)(own))
    stock.add_model_config(tmp_path / "Tiny-17.json")
    named = f"Tiny-17/{base / encoder.WEIGHTS}"
    run((named, tuned), tmp_path / "by_name", alpha=0.5)
    run(models, tmp_path / "by_folder", alpha=0.5)
    for found, expected in zip(
        stock_outputs(tmp_path / "by_name"), stock_outputs(tmp_path / "by_folder"), strict=True
    ):
        assert torch.equal(found, expected)
    # The second time no weights are read.
    monkeypatch.setattr("biovl.finetune.merge_job.base_folder", None)
    assert run((named, tuned), tmp_path / "by_name", alpha=0.5).counts["alpha"] == 0.5
