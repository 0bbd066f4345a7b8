"""Names on the hub: the commit that they stand for, and a hub that cannot be reached."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import huggingface_hub
import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from biovl.annotate import identity
from biovl.annotate.annotators import dinov2
from biovl.benchmark import encoders
from biovl.benchmark.fusion.loading import open_encoder
from biovl.core import config as configs
from biovl.core.artifacts import Draft
from biovl.core.errors import ArtifactError, ConfigError
from biovl.finetune import start
from biovl.models import encoder, weight_files
from biovl.models import hub as hubs
from biovl.models.builders import open_clip
from biovl.models.weight_identity import fingerprint_of
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.models import build, pinned_model, pins_of, weights_of
from biovl.sweep import job as sweeps
from biovl.sweep.config import SweepConfig
from biovl.sweep.trials import Trial
from tests.annotate.small_models import png, save_clip, save_dinov2, scene
from tests.publish.hub_server import TOKEN, Hub, Repo, running
from tests.sweep.corpora import index_only

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running() as hub:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        files = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def test_a_name_stands_for_other_weights_after_they_are_replaced(hub: Hub) -> None:
    repo = hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    first = encoders.describe("hf-hub:ann/small").fingerprint
    assert encoders.describe("hf-hub:ann/small").fingerprint == first
    repo.files["model.safetensors"] = b"2"
    assert encoders.describe("hf-hub:ann/small").fingerprint != first


def test_weights_of_a_name_are_an_input_of_columns_and_models(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    repo = hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    first = fingerprint_of("ann/small")
    assert first == fingerprint_of("hf-hub:ann/small")
    repo.files["README.md"] = b"a card that was edited"
    assert fingerprint_of("ann/small") == first
    repo.files["model.safetensors"] = b"2"
    assert fingerprint_of("ann/small") not in (first, None)
    (begun,) = inputs = identity.as_input("ann/small", str(tmp_path / "new"))
    assert begun.fingerprint == fingerprint_of("ann/small")
    Draft.begin(str(tmp_path / "new"), "columns", {}, inputs)
    Draft.begin(str(tmp_path / "earlier"), "columns", {})
    assert identity.as_input("ann/small", str(tmp_path / "earlier")) == []
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)
    assert identity.as_input("ann/small", str(tmp_path / "new")) == inputs
    assert identity.as_input("ann/small", str(tmp_path / "earlier")) == []


def test_other_weights_in_a_folder_that_was_begun_are_an_input(hub: Hub, tmp_path: Path) -> None:
    hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    out, folders = str(tmp_path / "out"), [str(tmp_path / name) for name in "ab"]
    for folder in folders:
        Path(folder).mkdir()
        Path(folder, "model.safetensors").write_bytes(folder.encode())
    Draft.begin(out, "columns", {}, identity.as_input(folders[0], out))
    for uri in (folders[1], "ann/small"):
        (found,) = identity.as_input(uri, out)
        assert found.fingerprint == fingerprint_of(uri)


def test_without_a_network_it_is_the_commit_in_the_cache(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    commit = hubs.commit("ann/small")
    assert commit is not None
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)
    assert hubs.commit("ann/small") is None
    cached = tmp_path / "cache/models--ann--small/refs/main"
    cached.parent.mkdir(parents=True)
    cached.write_text(commit)
    assert hubs.commit("ann/small") == commit


def test_weights_on_the_hub_are_looked_for_and_a_hub_out_of_reach_is_an_error(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = hub.repos["models/ann/small"] = Repo(private=False, files={"model.safetensors": b"1"})
    weight_files.check_existence("ann/small")
    repo.files = {"README.md": b""}
    with pytest.raises(ArtifactError, match="no weights"):
        weight_files.check_existence("ann/small")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", NOWHERE)
    with pytest.raises(ArtifactError, match=r"ann/small.*without network"):
        weight_files.check_existence("ann/small")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_pinned_name_loads_the_files_of_then_after_they_are_replaced(
    hub: Hub, tmp_path: Path
) -> None:
    models = [save_dinov2(tmp_path / name, seed) for seed, name in enumerate("ab")]
    repo = hub.repos["models/ann/small"] = Repo(private=False, files=files_of(models[0]))
    pinned = hubs.pinned("ann/small")
    assert pinned == f"ann/small@{repo.sha}" == hubs.pinned(pinned)
    first = fingerprint_of(pinned)
    repo.files = files_of(models[1])
    assert fingerprint_of(pinned) == first != fingerprint_of("ann/small")
    image = png(scene(1))

    def embedded(weights: Path | str) -> np.ndarray:
        annotator = dinov2.build(dinov2.Config(weights=str(weights), size_px=56, resize_px=64))
        prepared = np.stack([annotator.prepare({"image": image})])
        return annotator.load("cpu", "float32")(prepared)["dinov2"]

    for name, model in ((pinned, models[0]), ("ann/small", models[1])):
        np.testing.assert_array_equal(embedded(name), embedded(model))
        stored = load_file(model / "model.safetensors")
        read = weight_files.read(name, weight_files.TOWER)
        assert all(torch.equal(read[key], stored[key]) for key in stored)
    with pytest.raises(ArtifactError):
        dinov2.build(dinov2.Config(weights=f"ann/small@{'0' * 40}"))


def test_only_names_on_the_hub_are_pinned(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    for source in (str(tmp_path / "model"), "s3://corpora/model", "openai", "ann/unknown"):
        assert hubs.pinned(source) == source


def test_workers_of_a_benchmark_load_the_commit_that_was_described(
    hub: Hub, tmp_path: Path
) -> None:
    models = [save_clip(tmp_path / name, seed) for seed, name in enumerate("ab")]
    repo = hub.repos["models/ann/clip"] = Repo(private=False, files=files_of(models[0]))
    known = encoders.describe("hf-hub:ann/clip")
    repo.files = files_of(models[1])
    pixels = np.zeros((1, 3, 32, 32), np.float32)

    def embedded(model: str | encoders.ModelDescription) -> np.ndarray:
        return encoders.load(model).embed_pixels(pixels)

    np.testing.assert_array_equal(embedded(known), embedded(f"local-dir:{models[0]}"))
    now = embedded("hf-hub:ann/clip")
    np.testing.assert_array_equal(now, embedded(f"local-dir:{models[1]}"))
    # The same with the towers of this package, to fine-tune and to answer questions.
    (settings,) = {start.settings_of(known)["weights"]}
    tower = open_encoder(settings, device="cpu").model.state_dict()
    stored = load_file(models[0] / "open_clip_model.safetensors")
    assert all(torch.equal(tower[key], stored[key]) for key in stored)


def test_a_model_whose_commit_was_unknown_and_is_another_now_is_refused(hub: Hub) -> None:
    hub.repos["models/ann/clip"] = Repo(private=False, files={"open_clip_config.json": b"{}"})
    unknown = replace(encoders.describe("hf-hub:ann/clip"), fingerprint="f", revision=None)
    with pytest.raises(ArtifactError):
        encoders.load(unknown)


def test_pretraining_loads_the_initial_weights_that_its_manifest_names(
    hub: Hub, tmp_path: Path
) -> None:
    models = [save_clip(tmp_path / name, seed) for seed, name in enumerate("ab")]
    repo = hub.repos["models/ann/clip"] = Repo(private=False, files=files_of(models[0]))
    settings = {"architecture": "hf-hub:ann/clip", "weights": "hf-hub:ann/clip"}
    config = configs.build(
        PretrainConfig,
        {
            "corpus": str(tmp_path / "corpus"),
            "out": str(tmp_path / "out"),
            "model": {"name": "open_clip", **settings},
            "batch.pairs": 4,
        },
    )
    first, pins = fingerprint_of("ann/clip"), pins_of(config.model, None)
    repo.files = files_of(models[1])
    # A run that resumes loads the commit that it has noted.
    assert pins_of(config.model, pins) == pins != pins_of(config.model, None)
    (found,) = weights_of(config, pins)
    assert (found.uri, found.fingerprint) == ("hf-hub:ann/clip", first)
    built = build(pinned_model(config.model, pins), with_weights=True)
    stored = load_file(models[0] / "open_clip_model.safetensors")
    read = built.model.state_dict()
    assert all(torch.equal(read[key], stored[key]) for key in stored)


def test_all_trials_of_a_sweep_load_the_commit_with_which_it_began(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Trials change to their working folder; undone at the end.
    monkeypatch.chdir(tmp_path)
    models = [save_clip(tmp_path / name, seed) for seed, name in enumerate("ab")]
    repo = hub.repos["models/ann/clip"] = Repo(private=False, files=files_of(models[0]))
    name, out = "hf-hub:ann/clip", str(tmp_path / "sweep")
    config = configs.build(
        SweepConfig,
        {
            "corpus": index_only(tmp_path / "corpus", [20] * 8),
            "out": out,
            "base": {"recipe": "biomedclip_vit_b16_openai", "batch.pairs": 4, "epochs": 2},
            "base.model.architecture": name,
            "base.model.weights": name,
            "grid.optim.peak_lr": [0.1, 0.2],
        },
    )
    first = f"{name}@{repo.sha}"
    loaded = []

    def train(config: PretrainConfig, *, pins: dict[str, str], **_: object) -> None:
        loaded.append(pinned_model(config.model, pins).settings["weights"])
        raise ConfigError("as far as the weights")

    def run(config: SweepConfig, trials: list[Trial], *_: object) -> None:
        trial = trials[len(loaded)]
        plain = configs.to_plain(trial.config)
        sweeps._run_trial(
            {
                "trial": {
                    **{"name": trial.name, "config": plain, "times": [1.0, 2.0], "sweep": out},
                    "working_folder": str(tmp_path),
                }
            }
        )
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "pretrain", train)
    monkeypatch.setattr(sweeps, "_run", run)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            sweeps.sweep(config)
        # The next trial begins after others were uploaded, and the command was interrupted.
        repo.files = files_of(models[1])
    assert loaded == [first, first]


@pytest.mark.parametrize("setting", ["weights", "image_weights"])
def test_weights_on_the_hub_need_the_inputs_that_their_model_states(
    hub: Hub, tmp_path: Path, setting: str
) -> None:
    towers = {
        "embed_dim": 24,
        "vision_cfg": {"layers": 1, "width": 64, "head_width": 32, "patch_size": 16},
        "text_cfg": {"layers": 1, "width": 32, "heads": 2, "context_length": 16},
        "image_size": 32,
    }
    quick = open_clip.build(open_clip.Config(**towers, quick_gelu=True))
    encoder.save(tmp_path / "model", quick, quick.model.state_dict())
    hub.repos["models/ann/quick"] = Repo(private=False, files=files_of(tmp_path / "model"))
    for prefix in ("", "hf-hub:"):
        with pytest.raises(ConfigError, match=r"ann/quick.*quick_gelu=True"):
            open_clip.build(open_clip.Config(**towers, **{setting: f"{prefix}ann/quick"}))
    open_clip.build(open_clip.Config(**towers, **{setting: "ann/quick"}, quick_gelu=True))
