"""Ranks, recall and the validation loss: worked out by hand, or by the plainest definition."""

import math

import numpy as np
import pytest
import torch

from biovl.benchmark import ranks
from biovl.benchmark.ranks import MatchRanks, expected_ranks, hits, places
from biovl.benchmark.retrieval import evaluate_retrieval, info_nce


def unit(rows):
    rows = torch.as_tensor(rows, dtype=torch.float32)
    return rows / rows.norm(dim=1, keepdim=True)


def random_pairs(count, dim=16, seed=0):
    numbers = torch.Generator().manual_seed(seed)
    text_ND = torch.randn(count, dim, generator=numbers)
    image_ND = text_ND + torch.randn(count, dim, generator=numbers)
    return unit(image_ND), unit(text_ND)


def placed(nearer, tied):
    return MatchRanks(np.array(nearer), np.array(tied), np.ones_like(nearer))


def test_places_of_three_pairs_worked_out_by_hand() -> None:
    # Similarities, images by texts:  .6 .8  0
    #                                 1  0   0
    #                                 0  0   1
    image_ND = torch.tensor([[0.6, 0.8, 0], [1, 0, 0], [0, 0, 1]])
    of_images, of_texts = places(image_ND, torch.eye(3))
    assert of_images.nearer_N.tolist() == [1, 1, 0]
    assert of_images.tied_N.tolist() == [0, 1, 0]
    assert of_texts.nearer_N.tolist() == [1, 1, 0]
    assert of_texts.tied_N.tolist() == [0, 1, 0]


@pytest.mark.parametrize("tile", [1, 7, 50, 97, 4_096])
def test_tiles_do_not_matter(tile: int, monkeypatch) -> None:
    monkeypatch.setattr(ranks, "_CPU_TILE", tile)
    image_ND, text_ND = random_pairs(97)
    similarity = image_ND.double() @ text_ND.double().T
    for found, scores in zip(places(image_ND, text_ND), (similarity, similarity.T), strict=True):
        nearer = (scores > scores.diagonal()[:, None]).sum(1)
        assert found.nearer_N.tolist() == nearer.tolist()
        assert not found.tied_N.any()


def test_a_repeated_caption_is_no_hit_and_shares_its_place() -> None:
    captions = unit([[1, 0], [1, 0], [0, 1]])
    of_images, _ = places(captions, captions)
    assert of_images.nearer_N.tolist() == [0, 0, 0]
    assert of_images.tied_N.tolist() == [1, 1, 0]
    assert hits(of_images, 1).mean() == pytest.approx((1 / 2 + 1 / 2 + 1) / 3)
    assert hits(of_images, 2).mean() == 1


def test_a_model_to_which_all_is_alike_scores_what_guessing_does() -> None:
    same = unit(torch.ones(40, 96) + 0.1 * torch.arange(96))
    scores = evaluate_retrieval(same, same, 20.0)
    for k in (1, 5, 10):
        assert scores[f"image_to_text_recall_at_{k}"] == pytest.approx(k / 40)
        assert scores[f"text_to_image_recall_at_{k}"] == scores[f"image_to_text_recall_at_{k}"]
        assert scores[f"chance_recall_at_{k}"] == k / 40
    assert scores["loss"] == pytest.approx(scores["chance_loss"]) == pytest.approx(math.log(40))
    assert scores["image_to_text_median_rank"] == 20.5


def test_recall_counts_matches_among_the_k_nearest() -> None:
    found = placed([0, 1, 4, 9, 2, 0, 0, 0, 0, 0], [0] * 10)
    assert hits(found, 1).mean() == pytest.approx(0.6)
    assert hits(found, 2).mean() == pytest.approx(0.7)
    assert hits(found, 5).mean() == pytest.approx(0.9)
    assert hits(found, 10).mean() == 1


def test_of_three_tied_items_two_fit_among_the_three_nearest_after_one() -> None:
    assert hits(placed([1, 9, 9, 9], [2, 0, 0, 0]), 3).mean() == pytest.approx(2 / 3 / 4)


@pytest.mark.parametrize("k", [0, 4])
def test_more_items_than_there_are_cannot_be_retrieved(k: int) -> None:
    with pytest.raises(ValueError, match=rf"1\.\.3, .*{k}$"):
        evaluate_retrieval(torch.eye(3), torch.eye(3), 1.0, ks=(1, k))


def test_the_median_rank_counts_half_of_the_tied_before_the_match() -> None:
    assert np.median(expected_ranks(placed([0, 3, 7], [0, 1, 0]))) == 4.5
    assert np.median(expected_ranks(placed([0, 1], [0, 0]))) == 1.5


def test_a_model_of_no_numbers_finds_nothing() -> None:
    image_ND, text_ND = random_pairs(12)
    scores = evaluate_retrieval(image_ND * math.nan, text_ND, 1.0)
    assert scores["image_to_text_recall_at_10"] == scores["text_to_image_recall_at_10"] == 0
    assert math.isnan(scores["loss"])


def by_definition(image_ND, text_ND, scale):
    """Row by row from the equation, in Python's own floats."""
    logits = (scale * image_ND.double() @ text_ND.double().T).tolist()
    count = len(logits)
    total = 0.0
    for n in range(count):
        total += math.log(sum(math.exp(logits[n][m]) for m in range(count))) - logits[n][n]
        total += math.log(sum(math.exp(logits[m][n]) for m in range(count))) - logits[n][n]
    return total / (2 * count)


def test_the_loss_of_one_batch_matches_its_definition() -> None:
    image_ND, text_ND = random_pairs(30)
    expected = by_definition(image_ND, text_ND, 14.3)
    assert info_nce(image_ND, text_ND, 14.3, block=30) == pytest.approx(expected, rel=1e-6)
    assert info_nce(image_ND, text_ND, 14.3) == pytest.approx(expected, rel=1e-6)


def test_the_loss_of_two_blocks_is_their_mean() -> None:
    image_ND, text_ND = random_pairs(20)
    halves = [by_definition(image_ND[s], text_ND[s], 5.0) for s in (slice(10), slice(10, 20))]
    assert info_nce(image_ND, text_ND, 5.0, block=10) == pytest.approx(sum(halves) / 2, rel=1e-6)


def test_pairs_left_over_count_once_and_against_a_whole_block() -> None:
    image_ND, text_ND = random_pairs(7)
    whole = by_definition(image_ND[:5], text_ND[:5], 5.0)
    last = (5.0 * image_ND[2:].double() @ text_ND[2:].double().T).numpy()
    rows = np.log(np.exp(last).sum(1)) - last.diagonal()
    columns = np.log(np.exp(last).sum(0)) - last.diagonal()
    expected = (5 * whole + (rows + columns)[3:].sum() / 2) / 7
    assert info_nce(image_ND, text_ND, 5.0, block=5) == pytest.approx(expected, rel=1e-6)


def test_a_large_block_is_computed_in_pieces() -> None:
    image_ND, text_ND = random_pairs(1_500, dim=4)
    logits = 3.0 * image_ND.double() @ text_ND.double().T
    own = torch.arange(1_500)
    entropy = torch.nn.functional.cross_entropy
    expected = float(entropy(logits, own) + entropy(logits.T, own)) / 2
    assert info_nce(image_ND, text_ND, 3.0, block=1_500) == pytest.approx(expected, rel=1e-6)


def test_halves_of_pairs_must_be_as_many() -> None:
    image_ND, text_ND = random_pairs(5)
    with pytest.raises(ValueError, match=r"\(5, .*\(4, "):
        evaluate_retrieval(image_ND, text_ND[:4], 1.0)
    with pytest.raises(ValueError, match="pairs"):
        info_nce(image_ND[:0], text_ND[:0], 1.0)


def test_scores_are_those_of_both_directions() -> None:
    image_ND, text_ND = random_pairs(50, dim=8)
    similarity = (image_ND.double() @ text_ND.double().T).numpy()
    scores = evaluate_retrieval(image_ND.numpy(), text_ND.numpy(), 10.0, ks=(1, 3), loss_block=25)
    for name, matrix in (("image_to_text", similarity), ("text_to_image", similarity.T)):
        order = np.argsort(-matrix, axis=1)
        for k in (1, 3):
            hits = [n in order[n, :k] for n in range(50)]
            assert scores[f"{name}_recall_at_{k}"] == pytest.approx(np.mean(hits))
    assert scores["pairs"] == 50
    assert scores["loss_block"] == 25
    with pytest.raises(ValueError, match=r"1\.\.4,"):
        evaluate_retrieval(image_ND[:4], text_ND[:4], 1.0)
