import itertools
from collections import Counter

import numpy as np
import pytest

from biovl.assemble import config as assemble_config
from biovl.assemble.config import SplitShares
from biovl.assemble.splits import lay_out, shuffle_keys, splits_of


def split_of(article_id: str, **shares: int) -> str:
    return splits_of([article_id], least=0, most=None, **shares)[article_id]


def test_the_split_of_an_article_never_changes() -> None:
    # Written down: a corpus of tomorrow must not move what was tested on yesterday into train.
    ids = ["PMC7096724", "PMC1", "10.1371/journal.pone.0038869"]
    halves = [split_of(name, val_permyriad=2_000, test_permyriad=4_000) for name in ids]
    assert halves == ["test", "test", "train"]


@pytest.mark.parametrize("recipe", ["pmc_15m", "pmc_15m_filtered"])
def test_the_recipes_of_pmc_15m_have_its_proportions(recipe: str) -> None:
    ids = [f"PMC{number}" for number in range(100_000)]
    split = assemble_config.RECIPES[recipe]().split
    found = Counter(in_splits(ids, split).values())
    assert found["test"] == pytest.approx(726 / 14_639.6 * 100_000, rel=0.05)
    assert found["val"] == pytest.approx(13.6 / 14_639.6 * 100_000, rel=0.25)
    assert sum(found.values()) == 100_000


def in_splits(ids: list[str], split: SplitShares) -> dict[str, str]:
    return dict(
        splits_of(
            ids,
            val_permyriad=split.val_permyriad,
            test_permyriad=split.test_permyriad,
            least=split.least_articles,
            most=split.most_articles,
        )
    )


@pytest.mark.parametrize(
    ("articles", "fewest", "most"),
    [
        (1, 0, 0),
        (2, 0, 0),
        (3, 1, 1),
        (29, 1, 10),
        (100, 10, 25),
        (300, 30, 40),
        (2_000, 60, 140),
        (20_000, 900, 1_100),
        (300_000, 10_000, 10_000),
    ],
)
def test_every_size_of_corpus_has_enough_to_validate_and_test_on(
    articles: int, fewest: int, most: int
) -> None:
    found = Counter(in_splits([f"PMC{n}" for n in range(articles)], SplitShares()).values())
    for split in ("val", "test"):
        assert fewest <= found[split] <= most
    assert found["train"] >= articles / 3


def test_between_the_bounds_the_split_of_an_article_follows_from_its_id_alone() -> None:
    ids = [f"PMC{number}" for number in range(20_000)]
    whole, half = in_splits(ids, SplitShares()), in_splits(ids[::2], SplitShares())
    alone = {name: split_of(name, val_permyriad=500, test_permyriad=500) for name in ids}
    assert whole == alone
    assert half == {name: alone[name] for name in ids[::2]}


def test_filling_up_and_giving_way_follow_the_hashes_and_not_the_order_of_reading() -> None:
    ids = [f"PMC{number}" for number in range(400)]
    by_share = {name: split_of(name, val_permyriad=500, test_permyriad=500) for name in ids}
    filled = in_splits(ids, SplitShares(least_articles=40))
    assert filled == in_splits(ids[::-1], SplitShares(least_articles=40))
    assert Counter(filled.values()) == {"train": 320, "val": 40, "test": 40}
    # Who is in val or test by the share stays there.
    assert all(filled[name] == split for name, split in by_share.items() if split != "train")
    fewer = in_splits(ids, SplitShares(least_articles=0, most_articles=5))
    assert Counter(fewer.values()) == {"train": 390, "val": 5, "test": 5}
    assert all(by_share[name] == split for name, split in fewer.items() if split != "train")


def test_a_share_of_nothing_is_not_filled_up() -> None:
    ids = [f"PMC{number}" for number in range(400)]
    assert set(in_splits(ids, SplitShares(test_permyriad=0)).values()) == {"train", "val"}


def test_a_larger_share_only_takes_from_train() -> None:
    for number in range(2_000):
        article = f"PMC{number}"
        before = split_of(article, val_permyriad=500, test_permyriad=500)
        after = split_of(article, val_permyriad=500, test_permyriad=2_000)
        assert after == before or (before, after) == ("train", "test")


def test_all_of_it_can_be_train() -> None:
    found = {split_of(f"PMC{n}", val_permyriad=0, test_permyriad=0) for n in range(1_000)}
    assert found == {"train"}


def test_keys_follow_from_seed_and_id_alone() -> None:
    ids = [f"PMC{number}_f1" for number in range(100)]
    keys = shuffle_keys(ids, seed=1)
    assert keys.tolist() == [int(shuffle_keys([name], seed=1)[0]) for name in ids]
    assert np.argsort(keys).tolist() != np.argsort(shuffle_keys(ids, seed=2)).tolist()


def laid_out(
    articles: list[str], *, max_bytes: int = 10**9, max_pairs: int = 10**6, seed: int = 0
) -> tuple[list[list[str]], np.ndarray]:
    """Return the articles of each shard in the order of its pairs, and the bytes of each shard."""
    seen: Counter[str] = Counter()
    pairs = []
    for article in articles:
        seen[article] += 1
        pairs.append(f"{article}_f{seen[article]}")
    size = np.array([1_000 + 37 * (number % 50) for number in range(len(pairs))])
    layout = lay_out(
        shuffle_keys(articles, seed),
        shuffle_keys(pairs, seed),
        size,
        max_bytes=max_bytes,
        max_pairs=max_pairs,
    )
    shards: list[list[str]] = [[] for _ in range(int(layout.shard.max()) + 1)]
    for row in np.lexsort((layout.place, layout.shard)):
        assert layout.place[row] == len(shards[layout.shard[row]])
        shards[layout.shard[row]].append(articles[row])
    return shards, np.bincount(layout.shard, weights=size)


MANY = [f"PMC{number}" for number in range(200) for _ in range(number % 9 + 1)]
LARGE = ["PMC9999"] * 60


def test_every_pair_is_in_one_shard() -> None:
    shards, _ = laid_out(MANY, max_pairs=100)
    assert Counter(article for shard in shards for article in shard) == Counter(MANY)


def test_shards_keep_their_limits() -> None:
    shards, size = laid_out(MANY, max_pairs=100)
    assert max(map(len, shards)) <= 100
    assert len(shards) == -(-len(MANY) // 100)
    shards, size = laid_out(MANY, max_bytes=50_000)
    assert max(size) <= 50_000
    assert len(shards) <= 1.2 * sum(size) / 50_000


def test_figures_of_an_article_are_spread_over_the_shards() -> None:
    shards, _ = laid_out(MANY + LARGE, max_pairs=100)
    for article, count in Counter(MANY + LARGE).items():
        fair = -(-count // len(shards))
        assert max(shard.count(article) for shard in shards) <= fair, article


def test_figures_of_an_article_are_apart_within_a_shard() -> None:
    (shard,), _ = laid_out(MANY + LARGE)
    places = [place for place, article in enumerate(shard) if article == "PMC9999"]
    fair = len(shard) / 60
    assert min(np.diff(places)) > fair / 3
    # A shuffle of single pairs would put 1 + 2 + … of them side by side.
    neighbours = sum(one == other for one, other in itertools.pairwise(shard))
    assert neighbours <= 1


def test_shards_read_side_by_side_show_an_articles_figures_at_different_times() -> None:
    shards, _ = laid_out(MANY, max_pairs=100)
    when: dict[str, list[float]] = {}
    for shard in shards:
        for place, article in enumerate(shard):
            when.setdefault(article, []).append(place / len(shard))
    close = [
        abs(one - other) < 0.05
        for times in when.values()
        for one, other in itertools.combinations(times, 2)
    ]
    # By chance it would be a tenth of them.
    assert len(close) > 2_000
    assert np.mean(close) < 0.05


def test_the_order_of_reading_does_not_matter() -> None:
    articles = shuffle_keys(MANY, 0)
    pairs = shuffle_keys([f"{article}_{n}" for n, article in enumerate(MANY)], 0)
    size = np.arange(len(MANY))
    limits = {"max_bytes": 40_000, "max_pairs": 80}
    whole = lay_out(articles, pairs, size, **limits)
    back = lay_out(articles[::-1], pairs[::-1], size[::-1], **limits)
    np.testing.assert_array_equal(back.shard[::-1], whole.shard)
    np.testing.assert_array_equal(back.place[::-1], whole.place)


def test_another_seed_gives_another_order() -> None:
    assert laid_out(MANY, seed=1)[0] != laid_out(MANY, seed=2)[0]


def test_a_pair_larger_than_a_shard_does_not_shrink_the_others() -> None:
    keys = shuffle_keys([f"PMC{number}" for number in range(100)], 0)
    size = np.array([10] * 99 + [5_000])
    layout = lay_out(keys, keys, size, max_bytes=500, max_pairs=1_000)
    held = np.bincount(layout.shard, weights=size)
    assert len(held) <= 3
    assert sorted(held)[-2] <= 500


def test_no_pairs_need_no_shards() -> None:
    layout = lay_out(*[np.empty(0, np.uint64)] * 3, max_bytes=1, max_pairs=1)
    assert len(layout.shard) == len(layout.place) == 0
