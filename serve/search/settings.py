"""Settings of the search service.

``serve run serve.app:build model=DIR index=DIR limits.k_max=500``
"""

from typing import Literal

from pydantic import Field

from biovl.articles import rights
from serve.http.settings import Auth, Checked, Limits, Rate


class Rights(Checked):
    """Images that may be sent to clients. Texts are always sent, with a link to their article."""

    images: Literal["allowed", "unstated", "all"] = "allowed"
    """Images to send. allowed: those whose licence permits redistribution and that credit no third
    party. unstated: also images without a stated licence, such as your own. all: every image. With
    the last two, the operator declares that they have the right to do so."""

    @property
    def accepted(self) -> frozenset[str]:
        """Reasons to withhold an image (``biovl.articles.rights``) that these settings ignore."""
        stated = {"allowed": (), "unstated": (rights.NOT_STATED,), "all": rights.REASONS}
        return frozenset((rights.RETRACTED, *stated[self.images]))


class BatchSettings(Checked):
    """Dynamic batching in the encoder, over concurrent requests."""

    images_max: int = 32
    """Maximum images per batch."""
    texts_max: int = 64
    """Maximum texts per batch."""
    wait_ms: float = 0
    """Maximum wait for a full batch while the encoder is idle, in milliseconds; useful on GPUs
    only."""
    queue_max: int = 512
    """Maximum images, and maximum texts, in the encoder's queue; further requests are answered with
    503."""


class Replicas(Checked):
    """Number and resources of replicas, per deployment; ``layout: fused`` has only ``http``."""

    http: int | tuple[int, int] = 1
    encoder: int | tuple[int, int] = 1
    """Number of encoder replicas, or [min, max] for autoscaling."""
    search: int | tuple[int, int] = 1
    encoder_gpus: float = 0
    """GPUs per encoder replica; 0 runs on the CPU, a fraction shares one GPU."""
    encoder_cpus: float = 1
    search_cpus: float = 1
    http_cpus: float = 1


class Settings(Checked):
    """Settings of the search service."""

    model: str
    """A model published by pretrain or merge, local or ``s3://``."""
    index: str | None = None
    """An index published for that model, local or ``s3://``; None: search is disabled."""
    corpus: str | None = None
    """The corpus to read full images from, local or ``s3://``; None: the one in the index's
    manifest."""
    layout: Literal["fused", "split"] = "fused"
    """``fused``: one deployment, for a laptop; ``split``: deployments that scale independently."""
    name: str = "biovl"
    """Name of the service, in ``/v1/info`` and of the application. Responses name the model by its
    folder."""
    auth: Auth = Auth()
    """Settings of authentication by API keys."""
    limits: Limits = Limits()
    """Limits of a single request."""
    rate: Rate = Rate()
    """Rate limits of requests and pixels."""
    rights: Rights = Rights()
    """Images that may be sent to clients."""
    batch: BatchSettings = BatchSettings()
    """Batching of the encoder."""
    replicas: Replicas = Replicas()
    """Number and resources of the replicas."""
    cors_origins: tuple[str, ...] = ()
    """Origins of web pages that may call the service from a browser (CORS); empty: none."""
    proxy: bool = True
    """Whether to serve ``/v1/proxy``."""
    cache_folder: str | None = None
    """Folder for local copies of ``s3://`` folders; None: a temporary folder."""
    log_format: Literal["json", "text"] = "json"
    """Format of the access log: ``json``, one object per line, or ``text``."""
    poll_s: float = Field(default=1.0, gt=0)
    """Seconds between a replica's queries to the coordinator about reloads."""
