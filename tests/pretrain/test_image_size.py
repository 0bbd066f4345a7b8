"""Which corpora are large enough for a model, and the command that makes one that is."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biovl.assemble import config as assemble_config
from biovl.assemble.config import AssembleConfig
from biovl.core import config as configs
from biovl.core.arguments import from_command_line
from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.images.transforms import random_box
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import DataConfig, PretrainConfig, identity
from biovl.pretrain.image_size import assemble_command, check_resolution, needed_px, stored_px
from biovl.pretrain.job import dry_run_text, pretrain
from biovl.pretrain.models import describe
from tests.sweep.corpora import index_only


def made_by(recipe: str = "small", **changes: Any) -> dict[str, Any]:
    """Return the configuration that the manifest of a corpus has."""
    values = {
        **configs.recipe_settings(assemble_config.RECIPES[recipe]()),
        "figures": "figures",
        "out": "corpus",
        **changes,
    }
    plain = configs.to_plain(configs.build(AssembleConfig, values))
    del plain["out"]
    return plain


def run(
    corpus: str | list[str], out: str = "out", recipe: str = "tiny", **changes: Any
) -> PretrainConfig:
    values = {
        **configs.recipe_settings(pretrain_config.RECIPES[recipe]()),
        "corpus": corpus,
        "out": out,
        **changes,
    }
    return configs.build(PretrainConfig, values)


@pytest.mark.parametrize(
    ("image_px", "least_share", "px"),
    # 1 / 0.9 of the input: a crop of 0.9 of a square cannot be as narrow as 3:4. Of a quarter it
    # can: 1 / sqrt(0.25 * 0.75).
    [(224, 0.9, 249), (384, 0.9, 427), (336, 0.9, 374), (64, 0.25, 148), (384, 1.0, 384)],
)
def test_what_a_model_needs_is_the_side_of_its_smallest_crop(
    image_px: int, least_share: float, px: int
) -> None:
    data = DataConfig(crop_scale=(least_share, 1.0))
    assert needed_px(image_px, data) == px
    check_resolution("c", {"image": {"short_side_px": px}}, image_px=image_px, data=data)
    with pytest.raises(ConfigError, match=rf"\b{px - 1} px.*\b{px} px"):
        check_resolution("c", {"image": {"short_side_px": px - 1}}, image_px=image_px, data=data)


@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (1.0, 1.0), (0.25, 0.5), (2.0, 3.0)])
@pytest.mark.parametrize("least_share", [0.25, 0.9])
def test_no_crop_is_enlarged(ratio: tuple[float, float], least_share: float) -> None:
    data = DataConfig(crop_scale=(least_share, 1.0), crop_ratio=ratio)
    rng, px = np.random.default_rng(0), needed_px(224, data)
    for size in ((px, px), (2 * px, px), (px, 5 * px)):
        boxes = [random_box(*size, data.crop_scale, ratio, rng) for _ in range(1000)]
        # Sides are rounded.
        assert min(min(box.width, box.height) for box in boxes) >= 223


@pytest.mark.parametrize("config", [{}, {"image": None}, {"image": {"short_side_px": None}}])
def test_images_as_published_and_manifests_that_name_no_limit_fit_every_model(
    config: dict[str, Any],
) -> None:
    check_resolution("c", config, image_px=1024, data=DataConfig(crop_scale=(0.1, 1.0)))


@pytest.mark.parametrize("recipe", sorted(pretrain_config.RECIPES))
def test_recipes_of_pretrain_fit_the_corpora_that_are_made_for_them(recipe: str) -> None:
    ending = recipe.removeprefix("bmca_clip_")
    own = {"balanced": "concept_balanced", "filtered": "concept_filtered"}.get(ending, "training")
    # Its factors are those of two corpora.
    corpus = ["c", "d"] if recipe == "bmc_longclip_plus" else "c"
    config = run(corpus, recipe=recipe)
    image_px = describe(config.model).image_size
    fits = stored_px(made_by(own))
    assert fits == 288
    if recipe == "biomedclip_384":
        assert needed_px(image_px, config.data) == 427
    else:
        assert needed_px(image_px, config.data) <= fits


def test_the_command_in_the_message_makes_the_same_corpus_with_larger_images() -> None:
    made = made_by(
        "concept_filtered",
        columns=["my labels", "other"],
        seed=7,
        **{"image.short_side_px": 288, "split.val_permyriad": 50},
    )
    # What publish adds where it selects rows; it is no setting of assemble.
    made["selected"] = {"license_groups": ["commercial"]}
    with pytest.raises(ConfigError) as refused:
        check_resolution("s3://b/corpus/", made, image_px=384, data=DataConfig())
    (line,) = re.findall(r"biovl assemble.*", str(refused.value))
    words = shlex.split(line)
    assert words[2] == "concept_filtered"
    config, _ = from_command_line(
        AssembleConfig, assemble_config.RECIPES, about=None, arguments=words[2:]
    )
    plain = configs.to_plain(config)
    assert plain.pop("out") == "s3://b/corpus-448"
    del made["selected"]
    changes = configs.differences(made, plain)
    assert changes == ["image.short_side_px: 288 -> 448"]


def test_of_a_configuration_of_another_version_the_command_keeps_what_it_knows() -> None:
    made = {"figures": "f", "image": {"short_side_px": 288}, "split": {"val_percent": 3}}
    command = assemble_command("c", made, 427)
    assert "--set figures=f" in command
    assert "image.short_side_px=448" in command


@pytest.mark.parametrize("stored", [288, 426])
def test_a_run_and_its_dry_run_refuse_a_corpus_that_is_stored_too_small(
    stored: int, tmp_path: Path
) -> None:
    config = made_by("training", **{"image.short_side_px": stored})
    corpus = index_only(tmp_path / "corpus", [20] * 64, config=config)
    out = tmp_path / "model"
    given = run(corpus, str(out), recipe="biomedclip_384", **{"batch.pairs": 32})
    with pytest.raises(ConfigError, match=r"biovl assemble default .*short_side_px=448"):
        dry_run_text(given)
    small = run(corpus, str(out), **{"model.image_size": 384, "data.crop_scale": [0.9, 1]})
    for job in (dry_run_text, pretrain):
        with pytest.raises(ConfigError, match=r"427 px"):
            job(small)
    assert not out.exists()
    assert dry_run_text(configs.override(small, {"data.small_images": "enlarge"}))
    assert dry_run_text(configs.override(small, {"model.image_size": 192}))


def test_whether_small_images_are_allowed_is_no_other_run() -> None:
    plain = configs.to_plain(run("c"))
    other = configs.to_plain(run("c", **{"data.small_images": "enlarge"}))
    assert identity(plain)[0] == identity(other)[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model.weights": "/nowhere/model.safetensors"}, r"model\.weights: .*/nowhere"),
        ({"model.text_weights": "./nowhere"}, r"model\.text_weights: .*/nowhere"),
        ({"model.architecture": "ViT-B-32", "model.weights": "openia"}, "openai"),
        ({"trackers": [{"name": "tensorbord"}]}, "tensorbord"),
        ({"workers.count": 33}, r"workers\.count: .*32 pairs for 33 "),
    ],
)
def test_a_dry_run_reports_what_would_fail_on_workers(
    changes: dict[str, Any], said: str, tmp_path: Path
) -> None:
    corpus = index_only(tmp_path / "corpus", [20] * 64)
    with pytest.raises(BiovlError, match=said):
        dry_run_text(run(corpus, str(tmp_path / "model"), **changes))


def test_names_on_the_hub_and_tags_are_taken_as_they_are(tmp_path: Path) -> None:
    corpus = index_only(tmp_path / "corpus", [20] * 64)
    assert dry_run_text(run(corpus, "o", recipe="biomedclip_rn50", **{"batch.pairs": 8}))
    assert dry_run_text(run(corpus, "o", **{"model.text_weights": "owner/name"}))


def test_a_folder_that_is_no_corpus_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(
        json.dumps({"kind": "figures", "config": {}, "counts": {}, "inputs": []})
    )
    with pytest.raises(ArtifactError, match="figures, expected corpus"):
        dry_run_text(run(str(tmp_path)))
