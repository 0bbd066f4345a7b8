"""Retrieval: perfect, guessing and by hand; texts that several images share; parts of the pool."""

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from sklearn import metrics as sk

from biovl.benchmark import leak_report, leakage, selection
from biovl.benchmark import ranks as ranking
from biovl.benchmark.comparison import differences
from biovl.benchmark.datasets import Pairs
from biovl.benchmark.tasks.retrieval import Config, Retrieval
from biovl.core.errors import ArtifactError, ConfigError
from tests.benchmark.encoded import Listed, embedded, random_rows


def pairs(texts: list[str], **about: list) -> Pairs:
    return selection.pairs(
        name="pool",
        images=Listed(len(texts)),
        texts=texts,
        ids=[f"image-{row}" for row in range(len(texts))],
        about=pa.table(about) if about else None,
    )


def judged(data: Pairs, image_ND: np.ndarray, text_MD: np.ndarray, **more):
    task = Retrieval(Config(data="x", ks=more.pop("ks", (1, 5)), resamples=200))
    vectors = dict(zip(data.texts, text_MD, strict=True))
    return task.evaluate(data, embedded(image_ND, vectors, **more))


def scores(outcome) -> dict[str, float]:
    return {score.name: score.value for score in outcome.scores}


def test_a_perfect_model_scores_one_also_where_images_share_a_text() -> None:
    data = pairs(["a", "b", "a", "c", "d", "e"])
    text_MD = random_rows(5)
    found = scores(judged(data, text_MD[data.text_of_image], text_MD))
    assert {found[name] for name in found if "recall" in name or "mrr" in name} == {1.0}
    assert {found[name] for name in found if "median" in name and "/" not in name} == {1.0}


def test_two_models_differ_in_scores_alone() -> None:
    """The rank of each match is published beside the scores, and is none: lower is better."""
    data, text_MD = pairs(list("abcdefgh")), random_rows(8)
    good, bad = (
        judged(data, text_MD[order], text_MD) for order in (np.arange(8), np.roll(range(8), 1))
    )
    found = differences(good.predictions, bad.predictions, resamples=20, seed=0)
    assert found.keys() <= scores(good).keys()
    assert {name for name in found if found[name]["value"] > 0} == set()


def test_scores_without_leaked_pairs_leave_out_queries_and_keep_the_pool() -> None:
    # Images 0 and 1 find the text of each other, images 2 and 3 their own.
    data = pairs(["a", "b", "a", "c"])
    image_ND = np.array([[0.6, 0.8, 0], [0.8, 0.6, 0], [1, 0, 0], [0, 0, 1]], np.float32)
    outcome = judged(data, image_ND, np.eye(3, dtype=np.float32), ks=(1,))
    leaked = leakage.NearDuplicates(
        by=leakage.SAME_FILE, row_P=np.array([2]), corpus_ids=["f"], closeness_P=np.ones(1)
    )
    found = leakage.leaks(leak_report.image_ids(data), [leaked])
    without = leak_report.scores_without(data, outcome.predictions, found, resamples=9, seed=0)
    # Images 0, 1 and 3, and the texts "b" and "c": the text "a" is also that of the leaked image.
    recalls = {one.name: (one.value, one.count) for one in without if "recall" in one.name}
    assert recalls == {
        f"image_to_text_recall_at_1{leak_report.PART}": (pytest.approx(1 / 3), 3),
        f"text_to_image_recall_at_1{leak_report.PART}": (0.5, 2),
    }


def test_ks_that_all_exceed_the_pool_are_rejected() -> None:
    data, text_MD = pairs(["a", "b", "c"]), random_rows(3)
    assert "image_to_text_recall_at_1" in scores(judged(data, text_MD, text_MD, ks=(1, 1_000)))
    with pytest.raises(ConfigError, match="has 3 readable images, fewer than the least k, 1000"):
        judged(data, text_MD, text_MD, ks=(1_000,))


def test_a_random_model_scores_chance_within_its_interval() -> None:
    data = pairs([f"text {row}" for row in range(400)])
    outcome = judged(data, random_rows(400, seed=1), random_rows(400, seed=2), ks=(1, 10, 50))
    for score in outcome.scores:
        if "recall" in score.name and "/" not in score.name:
            chance = int(score.name.rpartition("_")[2]) / 400
            # Of 1 / 400 there may be no hit at all.
            assert score.low - 0.01 <= chance <= score.high + 0.01, score


def test_places_are_those_of_the_full_matrix_where_images_share_texts() -> None:
    rng = np.random.default_rng(3)
    own_N = np.concatenate([np.arange(7), rng.integers(0, 7, 6)])
    image_ND, text_MD = random_rows(13, 4, seed=4), random_rows(7, 4, seed=5)
    of_images, of_texts = ranking.places(image_ND, text_MD, own_N)
    similarity_NM = image_ND @ text_MD.T
    for row in range(13):
        expected = (similarity_NM[row] > similarity_NM[row, own_N[row]] + 1e-6).sum()
        assert of_images.nearer_N[row] == expected
    for text in range(7):
        best = similarity_NM[own_N == text, text].max()
        expected = (similarity_NM[own_N != text, text] > best + 1e-6).sum()
        assert of_texts.nearer_N[text] == expected
        assert of_texts.tied_N[text] == 0


def hit_by_clip_benchmark(near_QI: np.ndarray, is_pair_QI: np.ndarray, k: int) -> np.ndarray:
    """CLIP_benchmark's recall@k: whether one of a query's pairs is among its k best items."""
    best_Qk = np.argsort(-near_QI, axis=1)[:, :k]
    return np.take_along_axis(is_pair_QI, best_Qk, axis=1).any(1)


@pytest.mark.parametrize("captions", [1, 5])
def test_recall_is_that_of_clip_benchmark_in_both_directions(captions: int) -> None:
    images, texts = 40, 40 * captions
    image_ND, text_MD = random_rows(images, 6, seed=7), random_rows(texts, 6, seed=8)
    # As CLIP_benchmark has them: the captions of an image follow one another.
    image_of_text_M = np.repeat(np.arange(images), captions)
    first_N = np.arange(images) * captions
    further_F2 = np.array(
        [[image_of_text_M[text], text] for text in range(texts) if text % captions], np.int64
    ).reshape(-1, 2)
    of_images, of_texts = ranking.places(image_ND, text_MD, first_N, further_F2)
    near_NM = image_ND.astype(np.float64) @ text_MD.T
    is_pair_NM = image_of_text_M == np.arange(images)[:, None]
    for k in (1, 5, 10):
        theirs = hit_by_clip_benchmark(near_NM, is_pair_NM, k)
        assert ranking.hits(of_images, k).tolist() == theirs.tolist()
        theirs = hit_by_clip_benchmark(near_NM.T, is_pair_NM.T, k)
        assert ranking.hits(of_texts, k).tolist() == theirs.tolist()
        top = sk.top_k_accuracy_score(image_of_text_M, near_NM.T, k=k, labels=np.arange(images))
        assert ranking.hits(of_texts, k).mean() == pytest.approx(top)


def test_further_images_of_a_text_that_are_as_near_are_no_competitors() -> None:
    image_ND = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    _, of_texts = ranking.places(image_ND, np.eye(3, dtype=np.float32)[[0, 1]], np.array([0, 0, 1]))
    assert of_texts.nearer_N.tolist() == [0, 0]
    assert of_texts.tied_N.tolist() == [0, 0]


def test_a_model_to_which_all_is_alike_scores_what_guessing_scores() -> None:
    data = pairs([f"text {row}" for row in range(10)])
    same = np.ones((10, 4), np.float32) / 2
    found = scores(judged(data, same, same))
    assert found["image_to_text_recall_at_1"] == pytest.approx(0.1)
    assert found["text_to_image_recall_at_5"] == pytest.approx(0.5)
    assert found["image_to_text_mrr"] == pytest.approx(sum(1 / n for n in range(1, 11)) / 10)
    gains = 1 / np.log2(np.arange(2, 12))
    assert found["image_to_text_ndcg_at_10"] == pytest.approx(gains.sum() / 10)
    assert found["image_to_text_median_rank"] == 5.5


def test_places_are_those_of_the_full_matrix_where_images_have_several_texts() -> None:
    rng = np.random.default_rng(3)
    image_ND, text_MD = random_rows(9, 4, seed=4), random_rows(30, 4, seed=5)
    first_N, further_F2 = np.arange(9), np.stack([rng.integers(0, 9, 21), np.arange(9, 30)], axis=1)
    of_images, of_texts = ranking.places(image_ND, text_MD, first_N, further_F2)
    is_pair_NM = np.zeros((9, 30), bool)
    is_pair_NM[first_N, first_N] = True
    is_pair_NM[further_F2[:, 0], further_F2[:, 1]] = True
    near_NM = image_ND @ text_MD.T
    for ranks, near, pairs_of in (
        (of_images, near_NM, is_pair_NM),
        (of_texts, near_NM.T, is_pair_NM.T),
    ):
        best = np.where(pairs_of, near, -2).max(1)
        assert ranks.nearer_N.tolist() == (near > best[:, None] + 1e-6).sum(1).tolist()
        assert ranks.tied_N.tolist() == [0] * len(near)


def test_any_of_the_captions_of_an_image_is_right() -> None:
    data = selection.pairs(
        name="pool",
        images=Listed(2),
        texts=[["a", "b", "c"], ["d"]],
        ids=["image-0", "image-1"],
    )
    # The first image is nearest to its third caption, its other captions to the second image.
    text_MD = np.eye(2, dtype=np.float32)[[1, 1, 0, 1]]
    text_MD[3] = [0.6, 0.8]
    outcome = judged(data, np.eye(2, dtype=np.float32), text_MD, ks=(1,))
    found = scores(outcome)
    assert found["image_to_text_recall_at_1"] == 0.5
    assert found["text_to_image_recall_at_1"] == 0.5
    assert (outcome.notes["images"], outcome.notes["texts"]) == (2, 4)
    assert outcome.predictions["id"].to_pylist()[2:] == [
        f"text_to_image/{name}" for name in ("image-0", "image-0#2", "image-0#3", "image-1")
    ]
    # Three of four captions of the first image, one of four of the second.
    chance = {"image_to_text_recall_at_1": 0.5, "text_to_image_recall_at_1": 0.5}
    assert outcome.notes["chance"] == pytest.approx(chance)


@pytest.mark.parametrize(("tied", "own"), [(0, 1), (4, 1), (3, 2), (2, 5), (0, 3)])
def test_ties_with_several_matches_are_broken_at_random(tied: int, own: int) -> None:
    nearer, k = 2, 4
    orders = set(itertools.permutations([True] * own + [False] * tied))
    ranks = [nearer + 1 + order.index(True) for order in orders]
    found = ranking.MatchRanks(*(np.array([value]) for value in (nearer, tied, own)))
    assert ranking.hits(found, k)[0] == pytest.approx(np.mean([rank <= k for rank in ranks]))
    assert ranking.reciprocal_ranks(found)[0] == pytest.approx(np.mean([1 / r for r in ranks]))
    assert ranking.expected_ranks(found)[0] == pytest.approx(np.mean(ranks))


def test_a_model_to_which_all_is_alike_scores_chance_where_images_have_several_texts() -> None:
    texts = [[f"{image}/{caption}" for caption in range(5)] for image in range(20)]
    ids = [f"image-{image}" for image in range(20)]
    data = selection.pairs(name="pool", images=Listed(20), texts=texts, ids=ids)
    same = np.ones((1, 4), np.float32) / 2
    outcome = judged(data, np.repeat(same, 20, 0), np.repeat(same, 100, 0), ks=(1, 10))
    found = scores(outcome)
    chance = outcome.notes["chance"]
    assert {name: found[name] for name in chance} == pytest.approx(chance)
    assert found["image_to_text_recall_at_1"] == pytest.approx(0.05)
    missed = math.comb(95, 10) / math.comb(100, 10)
    assert found["image_to_text_recall_at_10"] == pytest.approx(1 - missed)
    assert found["text_to_image_recall_at_10"] == pytest.approx(0.5)


def test_unreadable_images_are_no_queries_and_no_items() -> None:
    data = pairs(["a", "b", "c"])
    text_MD = random_rows(3)
    outcome = judged(data, text_MD, text_MD, unreadable={1: "image is truncated"}, ks=(1, 3))
    assert outcome.notes["images"] == outcome.notes["texts"] == 2
    assert outcome.notes["unreadable"] == 1
    ids = outcome.predictions["id"].to_pylist()
    assert ids == [
        f"{way}/image-{row}" for way in ("image_to_text", "text_to_image") for row in (0, 2)
    ]
    # A pool of two has no third place.
    assert "image_to_text_recall_at_3" not in scores(outcome)
    with pytest.raises(ArtifactError, match=r"\bpool\b"):
        judged(data, text_MD, text_MD, unreadable=dict.fromkeys(range(3), "gone"))


def test_scores_come_from_the_published_predictions() -> None:
    data = pairs([f"text {row}" for row in range(60)])
    image_ND, text_MD = random_rows(60, 4, seed=1), random_rows(60, 4, seed=2)
    outcome = judged(data, image_ND, text_MD, ks=(1, 5))
    found = scores(outcome)
    similarity = image_ND @ text_MD.T
    rank = 1 + (similarity > np.diag(similarity)[:, None]).sum(1)
    assert found["image_to_text_recall_at_5"] == pytest.approx((rank <= 5).mean())
    assert found["image_to_text_mrr"] == pytest.approx((1 / rank).mean())
    for name in ("image_to_text_recall_at_5", "text_to_image_mrr"):
        values = outcome.predictions[name].drop_null().to_numpy()
        assert values.mean() == pytest.approx(found[name])


def test_scores_are_broken_down_by_length_concept_and_licence() -> None:
    data = pairs(
        ["cell", "cell " * 20, "cell " * 80, "lung"],
        global_concepts=[["Microscopy"], ["Microscopy", "Maps"], [], None],
        license_group=["commercial", "commercial", "other", "other"],
    )
    text_MD = random_rows(4)
    outcome = judged(data, text_MD[[1, 0, 2, 3]], text_MD)
    counts = {
        score.name.partition("/")[2]: (score.count, score.value)
        for score in outcome.scores
        if score.name.startswith("image_to_text_recall_at_1/")
    }
    assert counts == {
        "tokens 1-16": (2, 0.5),
        "tokens 17-32": (1, 0.0),
        "tokens 76-152": (1, 1.0),
        "concept Maps": (1, 0.0),
        "concept Microscopy": (2, 0.0),
        "licence commercial": (2, 0.0),
        "licence other": (2, 1.0),
    }
    assert outcome.notes["clip_tokens"] == {"min": 1, "median": 10.5, "mean": 25.5, "max": 80}


def test_either_a_corpus_or_other_pairs_are_searched() -> None:
    with pytest.raises(ConfigError, match=r"corpus.*data"):
        Retrieval(Config()).data()
