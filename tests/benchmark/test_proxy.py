"""Public pairs in the place of private images: agreement of findings, and what guessing scores."""

import numpy as np
import pytest
import sklearn.metrics

from biovl.benchmark import selection
from biovl.benchmark.chexpert_findings import FINDINGS
from biovl.benchmark.tasks import proxy
from biovl.core.errors import ArtifactError, ConfigError
from tests.benchmark.memory import MemoryImages, embedded, random_unit

REPORTS = (
    "Large effusion.",
    "Cardiomegaly. No effusion.",
    "Atelectasis and a small effusion.",
    "Normal chest.",
)
SAYS = (
    {"Pleural Effusion"},
    {"Cardiomegaly"},
    {"Atelectasis", "Pleural Effusion"},
    set(),
)


def pairs(kinds, name):
    return selection.pairs(
        name=name,
        images=MemoryImages((b"",) * len(kinds), name),
        texts=[REPORTS[kind] for kind in kinds],
        ids=[str(number) for number in range(len(kinds))],
    )


def sets(private=120, public=200, seed=0):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, private), rng.integers(0, 4, public)
    return proxy.join_pairs(pairs(kinds[0], "clinic"), pairs(kinds[1], "papers")), np.concatenate(
        kinds
    )


def judged(data, image_ND, unreadable=(), **settings):
    task = proxy.build(proxy.Config(private="", public="", **settings))
    return task.evaluate(data, embedded(image_ND, unreadable=unreadable))


def test_a_model_that_finds_the_same_kind_agrees_in_everything() -> None:
    data, kinds = sets()
    for neighbours in (1, 5):
        outcome = judged(data, np.eye(4)[kinds], neighbours=neighbours)
        assert {(s.value, s.low, s.high) for s in outcome.scores} == {(1, 1, 1)}
    names = [score.name for score in outcome.scores]
    assert names[:4] == ["f1", "recall", "precision", "f1/Cardiomegaly"]
    assert len(names) == 3 + 3 * 3
    assert "Fracture" in outcome.notes["without_score"]
    assert outcome.notes["private_with"]["Cardiomegaly"] == (kinds[:120] == 1).sum()


@pytest.mark.parametrize("model", ["random", "constant"])
def test_a_model_that_tells_nothing_recalls_what_drawing_at_random_does(model: str) -> None:
    data, _ = sets(private=400)
    image_ND = random_unit(600) if model == "random" else np.tile(random_unit(1), (600, 1))
    outcome = judged(data, image_ND)
    for score in outcome.scores:
        name = score.name.removeprefix("recall/")
        if name in FINDINGS and name != score.name:
            assert score.low < outcome.notes["public_share"][name] < score.high, score


def test_scores_follow_from_the_predictions_with_scikit_learn() -> None:
    data, _ = sets()
    outcome = judged(data, random_unit(320), unreadable=[5, 300], neighbours=3)
    rows = outcome.predictions.to_pylist()
    assert len(rows) == 119
    assert outcome.notes["unreadable"] == {"private": 1, "public": 1}
    value = {score.name: score.value for score in outcome.scores}
    both = []
    for name in ("Cardiomegaly", "Atelectasis", "Pleural Effusion"):
        has, said = ([name in row[key] for row in rows] for key in ("findings", "predicted"))
        both.append((has, said))
        assert value[f"f1/{name}"] == pytest.approx(sklearn.metrics.f1_score(has, said))
        assert value[f"recall/{name}"] == pytest.approx(sklearn.metrics.recall_score(has, said))
        theirs = sklearn.metrics.precision_score(has, said, zero_division=0)
        assert value[f"precision/{name}"] == pytest.approx(theirs)
        hits = [row[f"recall/{name}"] for row in rows if row[f"recall/{name}"] is not None]
        assert value[f"recall/{name}"] == pytest.approx(np.mean(hits))
    has, said = (np.array([pair[at] for pair in both]).T for at in (0, 1))
    assert value["f1"] == pytest.approx(sklearn.metrics.f1_score(has, said, average="macro"))


def test_findings_of_each_row_are_those_of_its_report_and_neighbours() -> None:
    data, kinds = sets(private=8, public=30)
    rows = judged(data, random_unit(38), neighbours=2).predictions.to_pylist()
    for number, row in enumerate(rows):
        assert set(row["findings"]) == SAYS[kinds[number]]
        near = [SAYS[kinds[8 + int(name.removeprefix("public/"))]] for name in row["neighbours"]]
        assert set(row["predicted"]) == near[0] | near[1]


def test_neighbours_are_those_of_the_full_matrix(monkeypatch) -> None:
    monkeypatch.setattr(proxy, "_ROWS", 7)
    monkeypatch.setattr(proxy, "_COLUMNS", 11)
    private_PD, public_QD = random_unit(20, seed=1), random_unit(50, seed=2)
    near_PK, similarity_PK = proxy.nearest(private_PD, public_QD, 4, seed=0)
    similarity = private_PD @ public_QD.T
    assert near_PK.tolist() == np.argsort(-similarity, axis=1)[:, :4].tolist()
    assert similarity_PK == pytest.approx(np.take_along_axis(similarity, near_PK, 1))


def test_another_labeller_takes_the_place_of_ours() -> None:
    data, kinds = sets()
    outcome = judged(
        data, np.eye(4)[kinds], labeller=f"{__name__}:loud", findings=("small", "large")
    )
    assert [s.name for s in outcome.scores[3::3]] == ["f1/small", "f1/large"]
    with pytest.raises(ConfigError, match="'nowhere:label'"):
        judged(data, np.eye(4)[kinds], labeller="nowhere:label")


def loud(text):
    return {word: "positive" for word in ("small", "large") if word in text.lower()}


def test_too_few_readable_images_are_refused() -> None:
    data, kinds = sets(private=2, public=2)
    with pytest.raises(ArtifactError, match="3 neighbours"):
        judged(data, np.eye(4)[kinds], neighbours=3)


def test_findings_are_known_by_name_however_they_are_spelled() -> None:
    data, kinds = sets()
    outcome = judged(data, np.eye(4)[kinds], findings=("pleural_effusion",))
    assert outcome.notes["private_with"]["pleural_effusion"] == np.isin(kinds[:120], (0, 2)).sum()
    with pytest.raises(ConfigError, match=r"'Effusions'.*Pleural Effusion"):
        proxy.build(proxy.Config(private="", public="", findings=("Edema", "Effusions")))
