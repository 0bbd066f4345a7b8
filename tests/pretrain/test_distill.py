"""Distillation from stored embeddings: from annotate to a step of training, without Ray."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Categorical

from biovl.annotate import pieces
from biovl.annotate.annotators import clip
from biovl.annotate.batches import RowBatch
from biovl.assemble.config import AssembleConfig, small
from biovl.assemble.job import check_columns
from biovl.assemble.pairs import CANDIDATE_SCHEMA
from biovl.core import config as configs
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from biovl.core.shards import read_pair
from biovl.models import encoder
from biovl.pretrain.batches import Batch
from biovl.pretrain.config import (
    BatchConfig,
    DataConfig,
    DistillConfig,
    OptimConfig,
    PretrainConfig,
    StepConfig,
)
from biovl.pretrain.loop import Trainer, train
from biovl.pretrain.mixture import find_teacher
from biovl.pretrain.models import build
from biovl.pretrain.order import read_places
from biovl.pretrain.pairs import Loaded, StoredTeacher, load_pairs
from biovl.pretrain.schedule import Plan
from biovl.pretrain.tower_setup import towers_of
from biovl.runtime.workers import Workers
from tests.annotate.small_models import save_clip, scene
from tests.assemble.test_kept_columns import assemble, harvest
from tests.pretrain.local_batches import local_batches

PAIRS = 24
DISTILL = DistillConfig(weight=1.0, temperature=0.05)
NO_EMBEDDING = "17.png"


class Made:
    """A teacher, figures, columns of its embeddings, and a corpus of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.teacher = folder, save_clip(folder / "teacher")
        rows = ["image,caption"]
        for number in range(PAIRS):
            scene(number, 64, 64).save(folder / f"{number}.png")
            rows.append(f"{number}.png,Scene {number} of colours.")
        (folder / "t.csv").write_text("\n".join(rows) + "\n")
        harvest(folder, folder / "figures")
        self.figures = pq.read_table(folder / "figures/figures/part-000000-000.parquet")
        self.columns = [self.annotate("image"), self.annotate("text")]
        self.corpus = self.assemble("corpus", embeddings=["clip_image", "clip_text"])

    def annotate(self, of: str) -> str:
        """Write a column of the teacher in two batches; one text has none."""
        annotator = clip.build(clip.Config(weights=str(self.teacher), of=of))  # type: ignore[arg-type]
        model = annotator.load("cpu", "float32")
        rows = self.figures.to_pylist()
        lacking = {NO_EMBEDDING} if of == "text" else set()
        made = [
            "no text" if row["image_name"] in lacking else annotator.prepare(row) for row in rows
        ]
        tables = []
        for first in (0, 10):
            batch = made[first : 10 if first == 0 else None]
            usable = [value for value in batch if not isinstance(value, str)]
            defects = [value if isinstance(value, str) else None for value in batch]
            prepared = RowBatch(part=0, first=first, prepared=np.stack(usable), defects=defects)
            tables.append(pieces.compute(annotator, model, prepared))
        out = self.folder / f"clip_{of}"
        out.mkdir()
        pq.write_table(pa.concat_tables(tables), out / "part-000000-000.parquet")
        return str(out)

    def assemble(self, name: str, columns: bool = True, **settings: object) -> Path:
        return assemble(
            *(self.folder / "figures", self.folder / name, (), self.columns if columns else ()),
            **{"split.test_permyriad": 0, "split.least_articles": 0, **settings},
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("distill"))


def run_config(made: Made, distill: DistillConfig = DISTILL) -> PretrainConfig:
    about = json.loads((made.teacher / "open_clip_config.json").read_text())["model_cfg"]
    names = ("embed_dim", "vision_cfg", "text_cfg")
    return PretrainConfig(
        corpus=str(made.corpus),
        out="",
        model=Plugin("open_clip", {name: about[name] for name in names}),
        epochs=30,
        batch=BatchConfig(pairs=12),
        optim=OptimConfig(peak_lr=3e-3, warmup_steps=5),
        step=StepConfig(distill=distill),
        data=DataConfig(crop_scale=(1.0, 1.0), crop_ratio=(1.0, 1.0), run_pairs=1),
    )


def test_each_pair_is_loaded_with_the_vectors_of_its_teacher(made: Made) -> None:
    places, teacher = read_places(str(made.corpus), "train"), encoder.load(str(made.teacher))
    stored = find_teacher(DISTILL, [str(made.corpus)])
    assert stored is not None
    assert (stored.columns, stored.dim) == (("clip_image", "clip_text"), 16)
    built = build(run_config(made).model, with_weights=False)
    loaded = load_pairs(
        *(places, np.arange(len(places))),
        **{"seed": 0, "epoch": 0, "image_px": 32, "data": DataConfig()},
        tokenizer=built.tokenizer,
        teacher=stored,
    )
    assert loaded.teacher_B2E is not None
    of_id = {row["figure_id"]: row for row in made.figures.to_pylist()}
    rows = [of_id[name] for name in places.pair_id.to_pylist()]
    images = teacher.embed_images([row["image"] for row in rows])
    texts = teacher.embed_texts([row["caption"] for row in rows])
    assert len({image.tobytes() for image in images}) == len(images)
    np.testing.assert_allclose(loaded.teacher_B2E[:, 0], images, atol=1e-3)
    np.testing.assert_allclose(loaded.teacher_B2E[:, 1], texts, atol=1e-3)


def test_the_student_learns_the_distribution_of_its_teacher(made: Made) -> None:
    config = run_config(made)
    torch.manual_seed(0)
    built = build(config.model, with_weights=False)
    plan = Plan.of(PAIRS - 1, config.batch, config.epochs)
    towers = towers_of(built, config.step, torch.device("cpu"))
    trainer = Trainer(
        *(towers, built.model, config, plan), device=torch.device("cpu"), workers=Workers()
    )
    batches = list(local_batches(config, plan, built, 0, Workers()))
    losses = [report.loss for report in train(trainer, iter(batches))]
    # The least loss is the entropy of the teacher.
    gaps = np.array(losses) - [entropy(batch) for batch in batches]
    assert gaps.min() > -1e-5
    assert gaps[-5:].mean() < 0.3 * gaps[:5].mean()


def entropy(batch: Batch) -> float:
    assert batch.teacher_B2E is not None
    image, text = F.normalize(batch.teacher_B2E.float(), dim=2).unbind(1)
    similarity = image @ text.T / DISTILL.temperature
    both = (Categorical(logits=logits).entropy().mean() for logits in (similarity, similarity.T))
    return sum(both).item() / 2  # type: ignore[union-attr]


def test_a_figure_without_an_embedding_is_dropped_and_the_index_has_no_vectors(made: Made) -> None:
    pairs = pq.read_table(made.corpus / "index.parquet")
    names = set(pairs["image_name"].to_pylist())
    assert names == {f"{n}.png" for n in range(PAIRS)} - {NO_EMBEDDING}
    assert not {"clip_image", "clip_text"} & set(pairs.column_names)
    dropped = pq.read_table(made.corpus / "dropped.parquet")
    assert dropped["dropped_by"].to_pylist() == ["no clip_text"]


def test_a_corpus_without_embeddings_has_the_bytes_that_it_had(made: Made) -> None:
    with_columns, without = made.assemble("a"), made.assemble("b", columns=False)
    shard = "train/00000.tar"
    assert (with_columns / shard).read_bytes() == (without / shard).read_bytes()
    first = pq.read_table(made.corpus / "index.parquet").to_pylist()[0]
    stored = read_pair(f"{made.corpus}/{first['shard']}", first["offset"], first["size"])
    plain = pq.read_table(without / "index.parquet").to_pylist()[0]
    files = read_pair(f"{without}/{plain['shard']}", plain["offset"], plain["size"])
    assert stored.keys() - files.keys() == {"clip_image.npy", "clip_text.npy"}
    assert {name: stored[name] for name in files} == files


# Errors.


def test_a_corpus_without_the_columns_is_an_error_that_names_the_commands(made: Made) -> None:
    plain = str(made.assemble("plain", columns=False))
    with pytest.raises(ConfigError, match=r"plain stores no .*clip_image.*biovl annotate clip"):
        find_teacher(DISTILL, [str(made.corpus), plain])
    with pytest.raises(ConfigError, match=r"no embeddings other"):
        find_teacher(replace(DISTILL, text="other"), [str(made.corpus)])
    assert find_teacher(DistillConfig(), [plain]) is None


def test_a_pair_whose_embedding_is_damaged_is_unreadable(made: Made, tmp_path: Path) -> None:
    corpus = tmp_path / "damaged"
    shutil.copytree(made.corpus, corpus)
    shard = corpus / "train/00000.tar"
    data = bytearray(shard.read_bytes())
    at = data.index(b"\x93NUMPY")
    data[at : at + 6] = b"??????"
    shard.write_bytes(data)
    places = read_places(str(corpus), "train")
    (row,) = np.flatnonzero((places.offset <= at) & (at < places.offset + places.size))
    built = build(run_config(made).model, with_weights=False)

    def load(policy: str) -> Loaded:
        return load_pairs(
            *(places, np.array([row])),
            **{"seed": 0, "epoch": 0, "image_px": 32},
            data=DataConfig(unreadable=policy),  # type: ignore[arg-type]
            tokenizer=built.tokenizer,
            teacher=StoredTeacher(("clip_image", "clip_text"), 16),
        )

    with pytest.raises(ArtifactError, match="clip_image is no embedding of 16"):
        load("stop")
    assert load("replace").replaced == {"train/00000.tar: clip_image is no embedding of 16": 1}


@pytest.mark.parametrize("names", [["absent"], ["caption"], ["clip_image", "caption_tokens"]])
def test_assemble_stores_columns_of_embeddings_only(names: list[str]) -> None:
    settings = {"figures": "", "out": "", "embeddings": names}
    config = configs.build(AssembleConfig, {**configs.recipe_settings(small()), **settings})
    vectors = pa.field("clip_image", pa.list_(pa.float16(), 4))
    with pytest.raises(ConfigError, match=f"embeddings: {names[-1]} "):
        check_columns(config, pa.schema([*CANDIDATE_SCHEMA, vectors]))


@pytest.mark.parametrize(
    "settings", [{"weight": 1.5}, {"weight": -0.1}, {"weight": 1.0, "temperature": 0.0}]
)
def test_settings_out_of_range_are_rejected(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"weight|temperature"):
        configs.build(DistillConfig, settings)


def test_distillation_needs_infonce() -> None:
    with pytest.raises(ValueError, match="infonce"):
        StepConfig(loss="siglip", distill=DISTILL)
