"""Decode and preprocess images in the process that receives the request, within limits."""

import asyncio
import contextlib
import ctypes
import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from PIL import Image

from biovl.images.decode import (
    EMPTY,
    MIN_SIDE_PX,
    TOO_LARGE,
    TOO_SMALL,
    TRUNCATED,
    UNDECODABLE,
    decode_rgb,
    stated_size_px,
)
from biovl.models.encoder import Preparation
from serve.http.pixels import PixelBudget, megapixels
from serve.http.problems import Problem
from serve.http.request_context import Exchange
from serve.http.settings import Limits
from serve.search.engine import Engine, PreparedImages

_DAMAGED = (EMPTY, TRUNCATED, UNDECODABLE)


_LARGE_MEGAPIXELS = 8.0
"""Larger images are decoded one at a time: each takes up to 13 bytes of memory per pixel."""
_ENOUGH = 4
"""Large images are first reduced by an integer factor, to at least so many times the model's side
length. Measured for 63 megapixels: 0.6 s of CPU instead of 1.0 as WebP, 0.03 as JPEG."""


class Preparer:
    """Thread pool that decodes images: one thread per core, and one more for large images."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._threads = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="decode")
        self._for_large = ThreadPoolExecutor(1, thread_name_prefix="decode-large")

    async def __call__(self, images: Sequence[bytes], preparation: Preparation) -> list[np.ndarray]:
        """Return preprocessed images: uint8, shape [H, W, 3] each.

        Raises:
            Problem: 415 if a file is not an image, 422 if it is corrupt, too small or too large.
        """
        loop = asyncio.get_running_loop()
        sizes = [megapixels(data) for data in images]
        work = [
            loop.run_in_executor(
                self._for_large if size > _LARGE_MEGAPIXELS else self._threads,
                functools.partial(self._prepared, data, number, preparation, size),
            )
            for number, (data, size) in enumerate(zip(images, sizes, strict=True))
        ]
        try:
            return list(await asyncio.gather(*work))
        finally:
            for one in work:
                one.cancel()
            if max(sizes, default=0) > _LARGE_MEGAPIXELS:
                # The caller may be cancelled while an image is still being decoded.
                with contextlib.suppress(RuntimeError):  # the threads have stopped
                    self._for_large.submit(_give_back_memory)

    def close(self) -> None:
        """Stop the decoding threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._for_large.shutdown(wait=False, cancel_futures=True)

    def _prepared(
        self, data: bytes, number: int, preparation: Preparation, size: float
    ) -> np.ndarray:
        self._check_size(data, number)
        is_large = size > _LARGE_MEGAPIXELS
        enough_px = _ENOUGH * preparation.image_size if is_large else None
        decoded = decode_rgb(data, enough_px=enough_px)
        if decoded.pixels is None:
            raise _unusable(number, decoded.defect or UNDECODABLE)
        return preparation.crop(decoded.pixels)

    def _check_size(self, data: bytes, number: int) -> None:
        """Reject images that need too much memory, by their headers."""
        try:
            size = stated_size_px(data)
        except Image.DecompressionBombError as error:
            raise _unusable(number, TOO_LARGE) from error
        if size is None:
            # The decoder reports the error.
            return
        width, height = size
        megapixels = width * height / 1e6
        if megapixels > self._limits.image_megapixels:
            reason = (
                f"{TOO_LARGE}: {width} x {height} px are {megapixels:.1f} megapixels, "
                f"{self._limits.image_megapixels:g} are allowed"
            )
            raise _unusable(number, reason)
        if min(width, height) < MIN_SIDE_PX:
            reason = f"{TOO_SMALL}: {width} x {height} px, at least {MIN_SIDE_PX} a side"
            raise _unusable(number, reason)


def _give_back_memory() -> None:
    """Return freed memory to the system: glibc keeps the memory of large images for reuse."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.cache
def _malloc_trim() -> Any:
    # Specific to glibc; other allocators return memory by themselves.
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


def _unusable(number: int, reason: str) -> Problem:
    is_image = reason in _DAMAGED or reason.startswith((TOO_LARGE, TOO_SMALL))
    detail = f"image {number} (counted from 0) is not usable: {reason}"
    return Problem(
        422 if is_image else 415,
        "unusable-image" if is_image else "not-an-image",
        detail if is_image else f"{detail}; send JPEG, PNG, TIFF, WebP, GIF or BMP",
        errors=[{"loc": ["images", number], "msg": reason}],
    )


async def prepare_images(
    engine: Engine, budget: PixelBudget, exchange: Exchange, images: Sequence[bytes]
) -> PreparedImages:
    """Return the preprocessed images of a request. All endpoints decode images with this function.

    Raises:
        Problem: 422 or 429 if the request has too many pixels, before any image is decoded; those
            of ``Engine.prepare``.
    """
    if not images:
        return PreparedImages()
    if not exchange.are_pixels_counted:
        await budget.spend(exchange.caller, images)
        exchange.are_pixels_counted = True
    with exchange.stage("decode"):
        return await engine.prepare(images)
