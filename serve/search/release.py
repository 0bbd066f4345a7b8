"""A release: a published model with its index, located and loaded.

``holder`` switches to another release when the coordinator (``http/coordinator``) requests it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from biovl.core import artifacts
from biovl.core.errors import ArtifactError
from biovl.index.query import Query, QueryPart
from biovl.index.search import Index
from biovl.models.encoder import Encoder, Preparation, load, load_preparation
from serve.http.coordinator import ReleaseTarget


def find(model: str, index: str | None) -> ReleaseTarget:
    """Return the fingerprints of the model and index published in two folders.

    Raises:
        ArtifactError: If a folder is not published, or the index is of another model.
    """
    artifacts.read_manifest(model, "model")
    model_fingerprint = artifacts.fingerprint(model)
    if index is None:
        return ReleaseTarget(
            model=model, index=None, model_fingerprint=model_fingerprint, index_fingerprint=None
        )
    manifest = artifacts.read_manifest(index, "index")
    of = {item.fingerprint for item in manifest.inputs if item.name == "model"}
    if of != {model_fingerprint}:
        models = ", ".join(sorted(of)) or "no model"
        raise ArtifactError(
            f"{index} is an index of the model {models}, but {model} is {model_fingerprint}: serve "
            "an index with the model that embedded it, or build an index with this model"
        )
    return ReleaseTarget(
        model=model,
        index=index,
        model_fingerprint=model_fingerprint,
        index_fingerprint=artifacts.fingerprint(index),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Release:
    """A model and its index, as far as a replica has loaded them."""

    target: ReleaseTarget
    preparation: Preparation
    encoder: Encoder | None
    index: Index | None
    model_notes: Mapping[str, Any]
    """Notes of the model's manifest."""

    def check(self) -> None:
        """Run a self-test: embed a text and search with it.

        Raises:
            ArtifactError: If the embedding is not a unit vector, or the search has no results.
        """
        vector_D = np.zeros(self.index.manifest.notes["dim"] if self.index else 1, np.float32)
        vector_D[0] = 1
        if self.encoder is not None:
            tokens = self.preparation.encode(["a self-query"])
            vector_D = self.encoder.embed_tokens(tokens)[0]
            norm = float(np.linalg.norm(vector_D))
            if abs(norm - 1) > 1e-2:
                raise ArtifactError(
                    f"{self.target.model}: the embedding of a text has norm {norm:.3g}, expected 1"
                )
        if self.index is not None and self.index.manifest.notes["rows"]:
            found = self.index.search(
                Query(parts=(QueryPart(vector_D=vector_D, kind="text"),), k=1)
            )
            if not found.hits:
                raise ArtifactError(f"{self.target.index}: a test search has no results")


def load_release(
    target: ReleaseTarget,
    *,
    encoder: bool = True,
    index: bool = True,
    device: str = "cpu",
    cache_folder: str | None = None,
    corpus: str | None = None,
) -> Release:
    """Load a release, and warm it up: the first request is then as fast as later ones.

    Args:
        target: Folders and expected fingerprints.
        encoder: Whether to load the weights.
        index: Whether to open the index.
        device: Device of the encoder.
        cache_folder: Folder for local copies of ``s3://`` folders.
        corpus: Corpus to read full images from; by default the one in the index's manifest.

    Raises:
        ArtifactError: If the fingerprints differ, or the release cannot be used.
    """
    _refuse_changed(target.model, target.model_fingerprint)
    loaded = load(target.model, device=device) if encoder else None
    opened = None
    if index and target.index is not None and target.index_fingerprint is not None:
        _refuse_changed(target.index, target.index_fingerprint)
        opened = Index.open(target.index, cache_folder, corpus)
        if opened.model_fingerprint != target.model_fingerprint:
            raise ArtifactError(
                f"{target.index} is an index of the model {opened.model_fingerprint}, and "
                f"{target.model} is {target.model_fingerprint}"
            )
    release = Release(
        target=target,
        preparation=loaded.preparation if loaded else load_preparation(target.model),
        encoder=loaded,
        index=opened,
        model_notes=artifacts.read_manifest(target.model, "model").notes,
    )
    if loaded is not None:
        side = loaded.preparation.image_size
        loaded.embed_pixels(np.zeros((1, side, side, 3), np.uint8))
    release.check()
    return release


def _refuse_changed(uri: str, expected: str) -> None:
    found = artifacts.fingerprint(uri)
    if found != expected:
        raise ArtifactError(
            f"{uri} has the fingerprint {found[:12]}, expected {expected[:12]}: reload"
        )
