import hashlib

import numpy as np
import pytest

from biovl.assemble.duplicates import duplicates_of_listed, hash_bits, superseded, survivors

A, B = 0x0F0F_F0F0_3333_CCCC, 0xFF00_FF00_5A5A_A5A5  # 32 ones each, 32 bits apart


def of(*images: tuple[int, int | None, int, int], **settings: float) -> list[int]:
    """Return the survivors of images given as (content, looks, width, height)."""
    content, looks, width, height = zip(*images, strict=True)
    return found(content, looks, np.array(width), np.array(height), **settings)


def found(content, looks, width: np.ndarray, height: np.ndarray, **settings: float) -> list[int]:
    digests = [
        hashlib.sha256(bytes([number % 256, number // 256])).hexdigest() for number in content
    ]
    hashes = [None if value is None else f"{value:016x}" for value in looks]
    return survivors(hash_bits(digests), hash_bits(hashes), width, height, **settings).tolist()


def flipped(looks: int, bits: int) -> int:
    """Return a hash that differs in so many bits, spread over all of it."""
    return looks ^ sum(1 << (bit * 64 // max(bits, 1)) for bit in range(bits))


def random_hashes(count: int, rng: np.random.Generator) -> np.ndarray:
    """Return hashes with as many ones as zeros, as those of real images. uint64, shape [N]."""
    bits = rng.permuted(np.tile(np.arange(64) % 2, (count, 1)), axis=1).astype(np.uint64)
    return (bits << np.arange(64, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)


def one_by_one(
    content: np.ndarray,
    looks: np.ndarray,
    width: np.ndarray,
    height: np.ndarray,
    distance: int,
    gap: float,
) -> list[int]:
    """Return the survivors by their definition: every row against every survivor before it."""
    result, kept = [0] * len(content), []
    for row in sorted(range(len(content)), key=lambda row: -int(width[row] * height[row])):
        for survivor in kept:
            ratios = sorted([width[row] / height[row], width[survivor] / height[survivor]])
            alike = bin(int(looks[row]) ^ int(looks[survivor])).count("1") <= distance
            if content[row] == content[survivor] or (alike and ratios[1] / ratios[0] <= 1 + gap):
                result[row] = survivor
                break
        else:
            kept.append(row)
            result[row] = row
    return result


def test_equal_bytes_are_one_image() -> None:
    assert of((1, A, 50, 50), (2, B, 50, 50), (1, A, 50, 50)) == [0, 1, 0]


@pytest.mark.parametrize(("bits", "expected"), [(0, [0, 0]), (4, [0, 0]), (5, [0, 1])])
def test_images_within_the_distance_are_one(bits: int, expected: list[int]) -> None:
    assert of((1, A, 90, 50), (2, flipped(A, bits), 90, 50)) == expected


@pytest.mark.parametrize("distance", range(9))
def test_the_distance_can_be_chosen(distance: int) -> None:
    within, beyond = flipped(A, distance), flipped(A, distance + 1)
    assert of((1, A, 9, 5), (2, within, 9, 5), max_distance=distance) == [0, 0]
    assert of((1, A, 9, 5), (2, beyond, 9, 5), max_distance=distance) == [0, 1]


def test_images_of_another_shape_are_different() -> None:
    assert of((1, A, 1000, 500), (2, A, 500, 253)) == [0, 0]
    assert of((1, A, 1000, 500), (2, A, 500, 256)) == [0, 1]
    assert of((1, A, 1000, 500), (2, A, 500, 1000)) == [0, 1]


def test_the_larger_image_survives_and_of_equals_the_first() -> None:
    assert of((1, A, 100, 50), (2, A, 200, 100), (3, A, 200, 100)) == [1, 1, 1]


def test_a_chain_keeps_what_is_not_near_a_survivor() -> None:
    middle, end = flipped(A, 4), flipped(flipped(A, 4), 4) ^ 0xFF0
    assert bin(A ^ end).count("1") > 4
    assert of((1, A, 9, 5), (2, middle, 9, 5), (3, end, 9, 5)) == [0, 0, 2]


def test_an_exact_copy_of_a_near_duplicate_names_the_survivor() -> None:
    near = flipped(A, 2)
    assert of((1, near, 90, 50), (2, A, 900, 500), (1, near, 90, 50)) == [1, 1, 1]


@pytest.mark.parametrize("looks", [None, 0, 1 << 63, (1 << 64) - 1])
def test_images_without_structure_are_only_equal_by_their_bytes(looks: int | None) -> None:
    assert of((1, looks, 50, 50), (2, looks, 50, 50), (2, looks, 50, 50)) == [0, 1, 1]


@pytest.mark.parametrize("distance", [0, 2, 4, 6])
def test_the_survivors_are_those_of_the_definition(distance: int) -> None:
    rng = np.random.default_rng(distance)
    # Clusters of hashes a few bits around some centres, so that chains and ties abound.
    looks = random_hashes(30, rng)[rng.integers(0, 30, 600)]
    for _ in range(4):
        looks ^= np.uint64(1) << rng.integers(0, 64, 600).astype(np.uint64)
    sizes = np.array([(100, 50), (200, 100), (201, 100), (205, 100), (300, 300)])
    width, height = sizes[rng.integers(0, 5, 600)].T
    content = rng.integers(0, 500, 600).astype(np.uint64)
    # Equal bytes are equal images.
    _, source = np.unique(content, return_index=True)
    source = source[np.searchsorted(np.unique(content), content)]
    looks, width, height = looks[source], width[source], height[source]
    expected = one_by_one(content, looks, width, height, distance, 0.02)
    assert found(content, looks, width, height, max_distance=distance) == expected
    assert 30 < len(set(expected)) < 600


@pytest.mark.parametrize("distance", [2, 4, 6])
def test_what_repeats_a_listed_image_is_that_of_the_definition(distance: int) -> None:
    rng = np.random.default_rng(0)
    looks = random_hashes(30, rng)[rng.integers(0, 30, 300)]
    for _ in range(4):
        looks ^= np.uint64(1) << rng.integers(0, 64, 300).astype(np.uint64)
    # Blank pages: without their bytes they are equal to nothing.
    looks[::10] = 0
    sizes = np.array([(100, 50), (200, 100), (205, 100), (300, 300)])
    width, height = sizes[rng.integers(0, 4, 300)].T
    content = rng.integers(0, 250, 300).astype(np.uint64)
    listed = rng.random(300) < 0.05

    def is_repeat(row: int) -> bool:
        return any(
            content[row] == content[other]
            or (
                looks[row] != 0
                and looks[other] != 0
                and int(looks[row] ^ looks[other]).bit_count() <= distance
                and abs(np.log(width[row] / height[row] * height[other] / width[other]))
                <= np.log1p(0.02)
            )
            for other in np.flatnonzero(has_bytes)
        )

    has_bytes = np.isin(content, content[listed])
    found = duplicates_of_listed(listed, content, looks, width, height, max_distance=distance)
    assert found.tolist() == [is_repeat(row) for row in range(300)]
    assert listed.sum() < found.sum() < 200
    none = np.zeros(300, bool)
    assert not duplicates_of_listed(
        none, content, looks, width, height, max_distance=distance
    ).any()


def test_among_many_images_every_near_duplicate_is_found() -> None:
    # More rows need keys of several blocks of bits; the few rows above do with one.
    rng = np.random.default_rng(0)
    looks = random_hashes(10_000, rng)
    looks[9_000:] = looks[:1_000]
    for _ in range(4):
        looks[9_000:] ^= np.uint64(1) << rng.integers(0, 64, 1_000).astype(np.uint64)
    size = np.full(10_000, 500)
    expected = [*range(9_000), *range(1_000)]
    assert found(range(10_000), looks, size, size, max_distance=4) == expected


def test_no_images_have_no_survivors() -> None:
    empty = np.empty(0, np.int64)
    assert survivors(hash_bits([]), hash_bits([]), empty, empty).tolist() == []


def test_of_an_articles_versions_the_newest_usable_one_stays() -> None:
    rows = [
        ("PMC1", "2", True),
        ("PMC1", "10", True),
        ("PMC1", "11", False),
        ("PMC2", None, True),
        ("PMC3", "1", True),
        ("PMC3", "1", True),
        ("PMC4", "1", False),
        ("PMC4", "2", False),
        ("PMC5", None, True),
        ("PMC5", "1.1", True),
    ]
    ids, versions, usable = zip(*rows, strict=True)
    kept = ~superseded(ids, versions, np.array(usable))
    assert np.flatnonzero(kept).tolist() == [1, 3, 4, 7, 9]
