"""Pieces of a step: what tasks return, and the batch that is made of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from biovl.core.errors import ArtifactError
from biovl.pretrain.pairs import Loaded
from biovl.pretrain.pieces import join_pieces, pack_piece

PX = 4


def loaded(pairs: int, seed: int, replaced: dict[str, int] | None = None) -> Loaded:
    rng = np.random.default_rng(seed)
    captions = [rng.integers(0, 99, 1 + n % 3).astype(np.int32) for n in range(pairs)]
    return Loaded(rng.integers(0, 256, (pairs, PX, PX, 3), np.uint8), captions, replaced or {})


def test_the_batch_of_a_step_has_the_pairs_of_its_pieces_in_order() -> None:
    parts = [loaded(3, 0, {"a": 1}), loaded(5, 1), loaded(1, 2, {"a": 1, "b": 2})]
    joined = join_pieces([pack_piece(number, part) for number, part in enumerate(parts)], PX)
    batch = joined.batch
    assert batch.pixels_BHWC.shape == (9, PX, PX, 3)
    expected = np.concatenate([part.pixels_BHWC for part in parts])
    assert np.array_equal(batch.pixels_BHWC.numpy(), expected)
    captions = [ids.tolist() for part in parts for ids in part.tokens]
    assert [ids.tolist() for ids in batch.tokens_T.split(batch.lengths_B.tolist())] == captions
    assert batch.tokens_T.dtype == batch.lengths_B.dtype == torch.int32
    assert joined.replaced == {"a": 2, "b": 2}
    # Memory of the object store is read-only; that of a batch is not.
    batch.pixels_BHWC.zero_()
    batch.tokens_T.zero_()


def test_embeddings_of_a_teacher_arrive_with_their_pairs() -> None:
    rng = np.random.default_rng(0)
    given = rng.normal(size=(9, 2, 5)).astype(np.float16)
    parts = [loaded(3, 0), loaded(6, 1)]
    parts = [replace(parts[0], teacher_B2E=given[:3]), replace(parts[1], teacher_B2E=given[3:])]
    batch = join_pieces([pack_piece(n, part) for n, part in enumerate(parts)], PX).batch
    assert batch.teacher_B2E is not None
    assert batch.teacher_B2E.dtype == torch.float16
    assert np.array_equal(batch.teacher_B2E.numpy(), given)
    assert [len(part.teacher_B2E) for part in batch.split(4)] == [4, 4, 1]  # type: ignore[arg-type]
    assert join_pieces([pack_piece(0, loaded(3, 0))], PX).batch.teacher_B2E is None


def test_the_error_of_a_piece_is_that_of_its_step() -> None:
    pieces = [pack_piece(0, loaded(3, 0)), pack_piece(1, "train/00000.tar cannot be read")]
    with pytest.raises(ArtifactError, match="00000"):
        join_pieces(pieces, PX)
