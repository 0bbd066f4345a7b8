"""Read one pair of a corpus: ``read_pair("corpus/train/00000.tar", offset, size)``."""

from biovl.core.shards import read_pair

__all__ = ["read_pair"]
