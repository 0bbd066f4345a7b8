"""Judging a checkpoint on pairs that may not be there."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from biovl.core import config as configs
from biovl.core.errors import ArtifactError, TrainingError
from biovl.pretrain import config as pretrain_config
from biovl.pretrain.config import PretrainConfig
from biovl.pretrain.models import build
from biovl.pretrain.validation import validate
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
