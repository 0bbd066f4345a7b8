"""Settings of the search service.

``serve run serve.app:build model=DIR index=DIR limits.k_max=500``
"""

from typing import Literal

from pydantic import Field

from biovl.articles import rights
from serve.http.settings import Auth, Checked, Limits, Rate


class Rights(Checked):
    """Whose images are sent. Texts always are, with a link to their article."""

    images: Literal["allowed", "unstated", "all"] = "allowed"
    """allowed: those that their licence allows to pass on, and that credit no third party.
    unstated: also those of which nothing is stated, as in a table of your own images. all: every
    one. With the last two, whoever runs the service says that they have the right."""

    @property
    def accepted(self) -> frozenset[str]:
        """Reasons of ``biovl.articles.rights`` that keep no image back; retractions are shown."""
        stated = {"allowed": (), "unstated": (rights.NOT_STATED,), "all": rights.REASONS}
        return frozenset((rights.RETRACTED, *stated[self.images]))


class Batch(Checked):
    """How many inputs of concurrent requests are embedded at once."""

    images_max: int = 32
    texts_max: int = 64
    wait_ms: float = 0
    """How long to wait for more while the executor is free; only a GPU gains by it."""
    queue_max: int = 512


class Replicas(Checked):
    """Of the deployments of ``layout: split``, or of the one of ``fused``."""

    http: int | tuple[int, int] = 1
    encoder: int | tuple[int, int] = 1
    """A pair is the least and the most of an autoscaling deployment."""
    search: int | tuple[int, int] = 1
    encoder_gpus: float = 0
    """Of each replica; 0 computes on the CPU. A fraction shares one GPU."""
    encoder_cpus: float = 1
    search_cpus: float = 1
    http_cpus: float = 1


class Settings(Checked):
    """The whole service."""

    model: str
    """A published model, local or ``s3://``."""
    index: str | None = None
    """A published index of that model; without one there is no search."""
    corpus: str | None = None
    """The corpus that full images are read from; by default where the index's manifest says."""
    layout: Literal["fused", "split"] = "fused"
    """fused: one process does all, for a laptop. split: deployments that scale on their own."""
    name: str = "biovl"
    auth: Auth = Auth()
    limits: Limits = Limits()
    rate: Rate = Rate()
    rights: Rights = Rights()
    batch: Batch = Batch()
    replicas: Replicas = Replicas()
    cors_origins: tuple[str, ...] = ()
    proxy: bool = True
    """Whether ``/v1/proxy`` answers."""
    cache_folder: str | None = None
    """Where copies of ``s3://`` folders are kept; a temporary folder by default."""
    log_format: Literal["json", "text"] = "json"
    poll_s: float = Field(default=1.0, gt=0)
    """How often replicas look whether another model or index was asked for."""
