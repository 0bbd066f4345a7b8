"""Models for MTEB (Massive Text Embedding Benchmark, with its image tasks MIEB).

    import mteb
    from biovl.benchmark.mteb_model import register

    register("model", name="ann/small")
    mteb.evaluate(mteb.get_model("ann/small"), mteb.get_task("PatchCamelyonZeroShot"))

Images are decoded and preprocessed as by ``biovl benchmark``, from the pixels that MTEB passes on.
Needs the extra ``biovl[mteb]``.
"""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from mteb.models import EncoderProtocol, ModelMeta
from mteb.models.abs_encoder import AbsEncoder
from mteb.models.model_implementations import MODEL_REGISTRY
from mteb.models.model_meta import ScoringFunction
from PIL import Image

from biovl.benchmark import encoders
from biovl.core.errors import BiovlError, ConfigError
from biovl.core.workers import Precision
from biovl.images.decode import decode_rgb

# Shapes: B images or texts of a batch, N of a data set, D embedding.

_PNG_MODES = ("1", "L", "LA", "I", "I;16", "P", "RGB", "RGBA")


class MtebEncoder(AbsEncoder):
    """A model in MTEB's encoder protocol; embeddings are unit vectors."""

    def __init__(
        self,
        model_name: str,
        revision: str | None = None,
        *,
        uri: str,
        device: str | None = None,
        precision: Precision = "float32",
        **kwargs: Any,
    ) -> None:
        """Load a model.

        Args:
            model_name: Name in MTEB's results.
            revision: Ignored: ``uri`` is the version.
            uri: Folder or name of the model, as for ``biovl benchmark``.
            device: Device; None: a GPU if there is one.
            precision: Precision of the towers.
            kwargs: Ignored.

        Raises:
            ArtifactError: If the model does not exist, or its weights cannot be read.
        """
        device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self.model_name = model_name
        self.loaded: encoders.BenchmarkModel = encoders.load(
            uri, device=device, precision=precision
        )

    def encode(
        self,
        inputs: Any,
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **kwargs: Any,
    ) -> np.ndarray:
        """Return unit embeddings of a data loader's texts, images, or normalised sums of both.

        Returns:
            float32, [N, D].

        Raises:
            BiovlError: If an image cannot be decoded, or the model has no text tower.
        """
        rows = []
        for batch in inputs:
            parts = []
            if "text" in batch:
                if not self.loaded.has_text:
                    raise BiovlError(f"{self.model_name} has no text tower")
                # Labels that MTEB reads from files end with a newline, which some tokenizers keep.
                parts.append(self.loaded.embed_texts([text.strip() for text in batch["text"]]))
            if "image" in batch:
                parts.append(self.embed_images(batch["image"]))
            if not parts:
                raise ConfigError(f"{task_metadata.name} has neither texts nor images")
            sum_BD = np.sum(parts, axis=0)
            rows.append(sum_BD / np.linalg.norm(sum_BD, axis=1, keepdims=True))
        embedding_ND: np.ndarray = np.concatenate(rows).astype(np.float32)
        return embedding_ND

    def embed_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        """Return unit embeddings of decoded images. float32, [B, D].

        Raises:
            BiovlError: If an image has a mode or size that the job ``benchmark`` would leave out.
        """
        pixels = [self.loaded.crop(_pixels(image)) for image in images]
        return self.loaded.embed_pixels(np.stack(pixels))


def _pixels(image: Image.Image) -> np.ndarray:
    """Return an image in RGB by the rules of benchmark for alpha, palettes and 16 bits."""
    stream = io.BytesIO()
    plain = image if image.mode in _PNG_MODES else image.convert("RGB")
    exif = {"exif": image.info["exif"]} if image.info.get("exif") else {}
    plain.save(stream, "PNG", compress_level=0, **exif)
    decoded = decode_rgb(stream.getvalue())
    if decoded.pixels is None:
        raise BiovlError(f"image cannot be used: {decoded.defect}")
    pixels: np.ndarray = decoded.pixels
    return pixels


def load_for_mteb(model_name: str, revision: str | None = None, **kwargs: Any) -> EncoderProtocol:
    """Return a model as MTEB loads it, see ``MtebEncoder``."""
    # MTEB sets the encoder's metadata after loading.
    return cast(EncoderProtocol, MtebEncoder(model_name, revision, **kwargs))


def model_meta(uri: str, name: str, *, precision: Precision = "float32") -> ModelMeta:
    """Return the description of a model for MTEB; its weights are not loaded.

    Args:
        uri: Folder or name of the model, as for ``biovl benchmark``.
        name: Name in MTEB's results, ``USER/NAME``.
        precision: Precision of the towers.

    Raises:
        ArtifactError: If a folder does not contain a supported model.
    """
    known = encoders.describe(uri)
    where = str(Path(uri).expanduser().resolve()) if Path(uri).expanduser().exists() else uri
    return ModelMeta(
        loader=load_for_mteb,
        loader_kwargs={"uri": where, "precision": precision},
        name=name,
        # MTEB stores results by revision: other weights have other results.
        revision=known.fingerprint,
        release_date=None,
        languages=["eng-Latn"],
        modalities=["image", "text"] if known.has_text else ["image"],
        n_parameters=None,
        memory_usage_mb=None,
        max_tokens=None,
        embed_dim=None,
        license=None,
        open_weights=None,
        public_training_code=None,
        public_training_data=None,
        framework=["PyTorch"],
        similarity_fn_name=ScoringFunction.COSINE,
        use_instructions=False,
        training_datasets=None,
    )


def register(uri: str, name: str, *, precision: Precision = "float32") -> ModelMeta:
    """Make a model available to ``mteb.get_model(name)`` in this process, and return its metadata.

    Args:
        uri: Folder or name of the model, as for ``biovl benchmark``.
        name: Name in MTEB's results, ``USER/NAME``.
        precision: Precision of the towers.

    Raises:
        ArtifactError: If a folder does not contain a supported model.
        ConfigError: If MTEB has another model of this name.
    """
    known = MODEL_REGISTRY.get(name)
    if known is not None and known.loader is not load_for_mteb:
        raise ConfigError(f"MTEB has a model called {name} already: choose another name")
    meta = model_meta(uri, name, precision=precision)
    MODEL_REGISTRY[name] = meta
    return meta
