"""Content hashes and perceptual hashes of images."""

import hashlib
import warnings

import imagehash
from PIL import Image


def sha256_hex(data: bytes) -> str:
    """Return the SHA-256 of the published bytes, 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def phash_hex(image: Image.Image) -> str:
    """Return the 64-bit perceptual hash of an image, 16 hexadecimal digits.

    Source:
        ImageHash's ``phash``: signs of the lowest 8 x 8 cosine frequencies of a 32 x 32 thumbnail.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(imagehash.phash(image))
