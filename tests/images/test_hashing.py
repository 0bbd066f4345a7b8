"""What tells images apart, against definitions that do not use ours."""

import numpy as np
from imagehash import hex_to_hash
from PIL import Image

from biovl.images.hashing import phash_hex, sha256_hex


def blobs(seed: int) -> Image.Image:
    """Return a smooth picture, as figures are, of 8 x 8 random levels."""
    levels = np.random.default_rng(seed).integers(0, 256, (8, 8), np.uint8)
    return Image.fromarray(levels).resize((200, 200), Image.Resampling.BICUBIC)


def test_content_hash_is_sha256() -> None:
    # FIPS 180-2, appendix B.1
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_hex(b"abc") == expected


def test_a_smaller_or_brighter_copy_is_near_and_another_picture_is_far() -> None:
    original = blobs(0)
    copies = [original.resize((90, 90)), original.point(lambda level: level * 0.8 + 40)]
    others = [blobs(seed) for seed in range(1, 6)]
    first, *hashes = (hex_to_hash(phash_hex(image)) for image in (original, *copies, *others))
    distances = [first - other for other in hashes]
    assert max(distances[:2]) <= 4
    assert min(distances[2:]) >= 16
