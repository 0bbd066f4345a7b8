"""Merge two models: interpolate, evaluate on a corpus if configured, publish as a model.

One process: a sweep is a few passes over the val pairs. Every score is stored in the draft, from
which an interrupted job resumes.
"""

import hashlib
import itertools
import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from torch import Tensor

from biovl.benchmark import encoders
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.merge_plots import sweep_plot
from biovl.benchmark.retrieval import KS, evaluate_retrieval, mean_recall_at_1
from biovl.core.artifacts import (
    Draft,
    Input,
    Manifest,
    find_manifest,
    fingerprint,
    read_manifest,
    to_json,
)
from biovl.core.chance import retrieval_warning
from biovl.core.errors import ArtifactError, BiovlError
from biovl.core.filesystems import below
from biovl.core.folders import Folder
from biovl.core.shards import read_shard
from biovl.finetune.merge_config import MergeConfig
from biovl.finetune.start import base_folder
from biovl.models import encoder
from biovl.models.builders.open_clip import Built
from biovl.models.encoder import Encoder
from biovl.models.weight_files import local_copy
from biovl.models.wise_ft import (
    check_same_architecture,
    interpolate,
    model_card,
    read_model,
)
from biovl.runtime.job import Job, entry_point
from biovl.runtime.progress import Progress

KIND = "model"
FORMAT = 1
"""Version of the published bytes; raise it when a change alters them. See ``Draft.begin``."""
BATCH_PAIRS = 64
"""Pairs per forward pass."""

_HASHED = (".safetensors", ".bin", ".pt", ".pth", ".json", ".txt", ".model")
"""Suffixes of the files of a model."""


@entry_point
def merge(config: MergeConfig, *, progress: TextIO = sys.stderr) -> Manifest:
    """Interpolate two models, and publish the result as a model.

        out/
          open_clip_config.json  open_clip_model.safetensors …   stock open_clip loads local-dir:out
          sweep.json       with a corpus: the scores of every alpha, and the selected one
          plots/sweep.png  plot of the scores
          README.md        the model card
          manifest.json    alpha, its scores, and the merged models

    Without ``alpha``, the best by the mean of both recalls at 1 is published; of equal scores, the
    point nearest to ``base``.

    Raises:
        ArtifactError: If a model or corpus cannot be read, the architectures differ, or ``out``
            holds another artifact or is being written by another process.
        StorageError: If a disk or bucket fails; the same command resumes the job.
    """
    with ExitStack() as stack:
        given = [_Given(name, getattr(config, name), stack) for name in ("base", "tuned")]
        inputs = [model.as_input() for model in given]
        if config.corpus is not None:
            pairs = read_manifest(config.corpus, "corpus").counts["pairs"]
            # Before the draft is created, which would reject the corrected command.
            if not pairs[config.split]:
                raise ArtifactError(f"{config.corpus} has no {config.split} pairs to choose by")
            inputs.append(
                Input(name="corpus", uri=config.corpus, fingerprint=fingerprint(config.corpus))
            )
        job = Job.of(config, KIND, inputs, output_format=FORMAT)
        published = job.find_published()
        if published is not None:
            return published
        merger = Merger(*(model.folder() for model in given))
        draft = stack.enter_context(job.begin())
        report = Progress("merge", progress)
        found = _sweep(config, merger, draft, report)
        alpha = config.points[0] if found is None else found["chosen"]
        files = merger.save(alpha, draft.folder)
        scores, warning = None, None
        if found is not None:
            draft.folder.write("sweep.json", to_json(found))
            draft.folder.write("plots/sweep.png", sweep_plot(found))
            scores = next(point for point in found["points"] if point["alpha"] == alpha)
            warning = retrieval_warning(scores, f"of {config.split}")
        warnings = [warning] if warning else []
        report.warn(warnings)
        manifest = job.manifest(
            counts={"alpha": alpha, "parameters": merger.parameters},
            files=files,
            notes={
                "merged": "(1 - alpha) base + alpha tuned, every tensor "
                "(WiSE-FT, arXiv:2109.01903)",
                "validation": scores,
                "weights_sha256": files[encoder.WEIGHTS]["sha256"],
            },
            warnings=warnings,
        )
        draft.folder.write("README.md", model_card(manifest, found).encode())
        return draft.publish(manifest)


class Merger:
    """The weights of two models, and one model that receives interpolated weights."""

    def __init__(self, base: Path, tuned: Path) -> None:
        self._built = read_model(tuned, tuned)
        if base.is_dir():
            start = read_model(base, base)
            check_same_architecture(start, self._built)
        else:
            start = read_model(tuned, base)
        self._base: dict[str, Tensor] = start.model.state_dict()
        self._tuned = {name: t.clone() for name, t in self._built.model.state_dict().items()}
        # Fail before anything is scored.
        interpolate(self._base, self._tuned, 1)
        described = json.loads((tuned / encoder.CONFIG).read_text(encoding="utf-8"))
        self._preprocess: dict[str, Any] = described.get("preprocess_cfg", {})
        self.parameters = sum(p.numel() for p in self._built.model.parameters())

    def encoder_at(self, alpha: float) -> Encoder:
        """Return the model interpolated at ``alpha``; the next call overwrites its weights."""
        self._built.model.load_state_dict(interpolate(self._base, self._tuned, alpha))
        device = "cuda" if torch.cuda.is_available() else "cpu"
        return Encoder(self._built, preprocess=self._preprocess, device=device)

    def save(self, alpha: float, folder: Folder) -> dict[str, Any]:
        """Write the model interpolated at ``alpha``, configured as tuned; return its files."""
        state = interpolate(self._base, self._tuned, alpha)
        with tempfile.TemporaryDirectory(prefix="biovl-merged-") as name:
            _save(Path(name), self._built, state, self._preprocess)
            return folder.upload(Path(name))


def _save(
    folder: Path, built: Built, state: Mapping[str, Tensor], preprocess: Mapping[str, Any]
) -> None:
    encoder.save(folder, built, state)
    path = folder / encoder.CONFIG
    described = json.loads(path.read_text(encoding="utf-8"))
    # Preprocessing belongs to the tuned model.
    described["preprocess_cfg"] |= preprocess
    path.write_text(json.dumps(described, indent=1) + "\n", encoding="utf-8")


def _sweep(
    config: MergeConfig, merger: Merger, draft: Draft, report: Progress
) -> dict[str, Any] | None:
    """Return the scores of every alpha and the chosen one; None without a corpus."""
    if config.corpus is None:
        return None
    points = []
    for alpha in config.points:
        name = f"scores/{alpha}"
        if draft.read_note(name) is None:
            draft.note(name, _scores(config, merger.encoder_at(alpha), alpha, report))
        points.append({"alpha": alpha, **(draft.read_note(name) or {})})
    best = max(points, key=lambda point: (mean_recall_at_1(point), -point["alpha"]))
    return {
        "split": config.split,
        "pairs": best["pairs"],
        "points": points,
        "best": best["alpha"],
        "chosen": best["alpha"] if config.alpha is None else config.alpha,
        "chosen_by": "mean R@1 of both directions" if config.alpha is None else "alpha was given",
    }


def _scores(
    config: MergeConfig, model: Encoder, alpha: float, report: Progress
) -> dict[str, float]:
    corpus = str(config.corpus)
    pairs = read_manifest(corpus, "corpus").counts["pairs"][config.split]
    count = min(config.pairs or pairs, pairs)
    report.stage(f"scoring alpha {alpha:g}, pairs", count)
    images, texts = [], []
    pairs_left = _pairs(corpus, config.split, count)
    while batch := list(itertools.islice(pairs_left, BATCH_PAIRS)):
        images.append(model.embed_images([image for image, _ in batch]))
        texts.append(model.embed_texts([text for _, text in batch]))
        for _ in batch:
            report.add()
    if not images:
        raise ArtifactError(f"{corpus} has no {config.split} pairs to score models on")
    image_ND, text_ND = np.concatenate(images), np.concatenate(texts)
    ks = [k for k in KS if k <= len(image_ND)]
    return evaluate_retrieval(image_ND, text_ND, model.logit_scale, ks=ks)


def _pairs(corpus: str, split: str, count: int) -> Iterator[tuple[bytes, str]]:
    """Yield image and text of the first pairs of a split; a corpus is shuffled."""
    shards = Folder(corpus).names(split, ".tar")
    stored = (
        (shard, pair) for shard in shards for pair in read_shard(below(corpus, f"{split}/{shard}"))
    )
    for shard, pair in itertools.islice(stored, count):
        image = pair.files.get("jpg", pair.files.get("png"))
        if image is None or "txt" not in pair.files:
            raise ArtifactError(f"{corpus}/{split}/{shard}: {pair.key} has no image or no text")
        yield image, pair.files["txt"].decode()


class _Given:
    """A model to merge: a folder, a weight file, or a name whose weights are read when needed."""

    def __init__(self, setting: str, uri: str, stack: ExitStack) -> None:
        self._setting, self._uri, self._stack = setting, uri, stack
        self._path = stack.enter_context(local_copy(uri))
        self._known: ModelDescription | None = None
        if self._path is None:
            try:
                self._known = encoders.describe(uri)
            except BiovlError as error:
                raise ArtifactError(
                    f"{setting}: {uri} does not exist; give a folder in open_clip's local-dir: "
                    "layout, or a name with its weights"
                    + (", or a file of weights" if setting == "base" else "")
                    + f". Found: {error}"
                ) from error

    def as_input(self) -> Input:
        """Return the model as an input of the manifest."""
        if self._path is not None:
            return _input(self._setting, self._uri, self._path)
        assert self._known is not None
        return Input(name=self._setting, uri=self._uri, fingerprint=self._known.fingerprint)

    def folder(self) -> Path:
        """Return the local folder or weight file; a model given by name is copied first."""
        if self._path is None:
            assert self._known is not None
            copied = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="biovl-named-"))
            self._path = Path(base_folder(self._known, f"{copied}/model"))
        return self._path


def _input(name: str, uri: str, path: Path) -> Input:
    """Return a model as an input, identified by its manifest, or by its bytes if it has none."""
    if path.is_dir():
        if find_manifest(str(path)) is not None:
            read_manifest(str(path), KIND)
            return Input(name=name, uri=uri, fingerprint=fingerprint(str(path)))
        files = sorted(item for item in path.iterdir() if item.name.endswith(_HASHED))
    else:
        files = [path]
    whole = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            whole.update(
                f"{file.name} {hashlib.file_digest(stream, 'sha256').hexdigest()}\n".encode()
            )
    return Input(name=name, uri=uri, fingerprint=whole.hexdigest())
