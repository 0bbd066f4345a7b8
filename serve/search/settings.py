"""Settings of the search service.

``serve run serve.app:build model=DIR index=DIR limits.k_max=500``
"""

from typing import Literal

from pydantic import Field

from biovl.articles import rights
from serve.http.settings import Auth, Checked, Limits, Rate


class Rights(Checked):
    """Which images may be sent. Texts are always sent, with a link to their article."""

    images: Literal["allowed", "unstated", "all"] = "allowed"
    """allowed: images whose licence permits redistribution and that credit no third party.
    unstated: also images without a stated licence, such as your own. all: every image. With the
    last two, the operator declares that they have the right to do so."""

    @property
    def accepted(self) -> frozenset[str]:
        """Reasons of ``biovl.articles.rights`` for which images are sent nevertheless."""
        stated = {"allowed": (), "unstated": (rights.NOT_STATED,), "all": rights.REASONS}
        return frozenset((rights.RETRACTED, *stated[self.images]))


class BatchSettings(Checked):
    """Dynamic batching of the encoder, over concurrent requests."""

    images_max: int = 32
    """Maximum images per batch."""
    texts_max: int = 64
    """Maximum texts per batch."""
    wait_ms: float = 0
    """How long to wait for a full batch while the encoder is idle, in milliseconds; useful on a GPU
    only."""
    queue_max: int = 512
    """Maximum images, or texts, that wait for the encoder; further requests are answered with
    503."""


class Replicas(Checked):
    """Number and resources of replicas, per deployment; ``layout: fused`` has only ``http``."""

    http: int | tuple[int, int] = 1
    encoder: int | tuple[int, int] = 1
    """Number of replicas, or [min, max] for autoscaling."""
    search: int | tuple[int, int] = 1
    encoder_gpus: float = 0
    """GPUs per replica; 0 runs on the CPU, a fraction shares one GPU."""
    encoder_cpus: float = 1
    search_cpus: float = 1
    http_cpus: float = 1


class Settings(Checked):
    """Settings of the search service."""

    model: str
    """A published model, local or ``s3://``."""
    index: str | None = None
    """A published index of that model; without one, search is disabled."""
    corpus: str | None = None
    """The corpus to read full images from; by default the one in the index's manifest."""
    layout: Literal["fused", "split"] = "fused"
    """fused: a single process, for a laptop. split: deployments that scale independently."""
    name: str = "biovl"
    auth: Auth = Auth()
    limits: Limits = Limits()
    rate: Rate = Rate()
    rights: Rights = Rights()
    batch: BatchSettings = BatchSettings()
    replicas: Replicas = Replicas()
    cors_origins: tuple[str, ...] = ()
    proxy: bool = True
    """Whether to serve ``/v1/proxy``."""
    cache_folder: str | None = None
    """Folder for local copies of ``s3://`` folders; a temporary folder by default."""
    log_format: Literal["json", "text"] = "json"
    poll_s: float = Field(default=1.0, gt=0)
    """Interval at which replicas poll the coordinator for a reload, in seconds."""
