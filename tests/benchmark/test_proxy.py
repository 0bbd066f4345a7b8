"""Public pairs in the place of private images: agreement of findings, and what guessing scores."""

import io
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
import sklearn.metrics
from PIL import Image

from biovl.benchmark import (
    agreement,
    comparison,
    identity,
    labellers,
    proxy_data,
    proxy_pool,
    selection,
)
from biovl.benchmark.chexpert_findings import FINDINGS
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.embedding import Texts
from biovl.benchmark.encoders import ModelDescription
from biovl.benchmark.report import TaskResult
from biovl.benchmark.tasks import SelectionRun, proxy
from biovl.benchmark.warn import warnings_of
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin
from tests.benchmark.memory import MemoryImages, embedded, random_unit
from tests.benchmark.toy_questions import write_model

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

NO_INDEX = BenchmarkConfig(out="out", model="m", benchmarks=("pcam",))


def pairs(kinds, name, reports=REPORTS, about=None):
    return selection.pairs(
        name=name,
        images=MemoryImages((b"",) * len(kinds), name),
        texts=[reports[kind] for kind in kinds],
        ids=[f"{name}-{number}" for number in range(len(kinds))],
        about=about,
    )


def sets(private=120, public=200, seed=0):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, private), rng.integers(0, 4, public)
    return proxy_data.sources(pairs(kinds[0], "clinic"), pairs(kinds[1], "papers")), np.concatenate(
        kinds
    )


@dataclass
class Selecting:
    """What the job does for a selection, with embeddings by source."""

    vectors: dict = field(default_factory=dict)
    tables: list = field(default_factory=list)
    has_text: bool = True

    def run(self):
        model = ModelDescription(uri="m", kind="ours", has_text=self.has_text, fingerprint="f")
        return SelectionRun(
            models={"memory": model}, embed=self.embed, label=self.label, publish=self.tables.append
        )

    def embed(self, model, source):
        if isinstance(source, Texts):
            return np.stack([self.vectors[text] for text in source.texts])
        return self.vectors[source.fingerprint]

    def label(self, labeller, texts):
        return labellers.make(labeller).load("cpu")(texts)


def task_of(**settings):
    return proxy.build(proxy.Config(private="", public="", **settings))


def judged(data, image_ND, unreadable=(), **settings):
    task = task_of(**settings)
    labelled = task.select(data, Selecting().run())
    return task.evaluate(labelled, embedded(image_ND, unreadable=unreadable))


def test_a_model_that_finds_the_same_kind_agrees_in_everything() -> None:
    data, kinds = sets()
    for neighbours in (1, 5):
        outcome = judged(data, np.eye(4)[kinds], neighbours=neighbours)
        scores = [s for s in outcome.scores if not s.name.startswith("chance")]
        assert {(s.value, s.low, s.high) for s in scores} == {(1, 1, 1)}
        assert Image.open(io.BytesIO(outcome.plots["findings"])).width > 300
        assert not warnings(outcome)
    names = [score.name for score in outcome.scores]
    assert names[:3] == ["f1", "recall", "precision"]
    assert names[6] == "f1/Cardiomegaly"
    assert len(names) == 6 * (1 + 3)
    assert "Fracture" in outcome.notes["without_score"]
    assert outcome.notes["private_with"]["Cardiomegaly"] == (kinds[:120] == 1).sum()


def warnings(outcome):
    scores = [{**vars(score)} for score in outcome.scores]
    return warnings_of([TaskResult(model="m", task="proxy", scores=scores, notes=outcome.notes)])


@pytest.mark.parametrize("neighbours", [1, 3])
@pytest.mark.parametrize("model", ["random", "constant"])
def test_a_model_that_tells_nothing_scores_like_random_images(model: str, neighbours: int) -> None:
    data, _ = sets(private=400)
    image_ND = random_unit(600) if model == "random" else np.tile(random_unit(1), (600, 1))
    outcome = judged(data, image_ND, neighbours=neighbours)
    by_name = {score.name: score for score in outcome.scores}
    for name, score in by_name.items():
        if not name.startswith("chance"):
            # 3 standard errors: many scores are compared.
            error = (score.high - score.low) / (2 * 1.96)
            assert abs(score.value - by_name[f"chance_{name}"].value) < 3 * error, name
    if neighbours == 1:
        shares = outcome.notes["public_share"]
        assert by_name["chance_recall/Cardiomegaly"].value == shares["Cardiomegaly"]
    assert [text for text in warnings(outcome) if "no better than chance" in text]


def test_scores_of_chance_are_the_means_over_random_neighbours() -> None:
    rng = np.random.default_rng(0)
    has_PL, public_QL = rng.random((80, 3)) < 0.3, rng.random((50, 3)) < [0.1, 0.4, 0]
    group_P = np.arange(80)
    for neighbours in (1, 2, 5):
        drawn = []
        for _ in range(150):
            near_PK = np.array([rng.choice(50, neighbours, replace=False) for _ in range(80)])
            predicted_PL = public_QL[near_PK].mean(1) >= 0.5
            sums = agreement.counts(has_PL, predicted_PL, group_P).sum(0)
            drawn.append(sums[:3] / sums[3:6])
        chance = agreement.by_chance(has_PL, public_QL, neighbours)
        np.testing.assert_allclose(chance["recall"], np.mean(drawn, 0), atol=0.03)
        assert chance["f1"][2] == chance["recall"][2] == chance["precision"][2] == 0


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
        assert row["id"] == f"private/{number}"
        near = [
            SAYS[kinds[8 + int(name.removeprefix("public/papers-"))]] for name in row["neighbours"]
        ]
        assert len(near) == 3
        assert set(row["predicted"]) == near[0] | near[1]


def test_neighbours_are_those_of_the_full_matrix(monkeypatch) -> None:
    monkeypatch.setattr(proxy_pool, "_ROWS", 7)
    monkeypatch.setattr(proxy_pool, "_COLUMNS", 11)
    private_PD, public_QD = random_unit(20, seed=1), random_unit(50, seed=2)
    near_PK, similarity_PK = proxy_pool.nearest(private_PD, public_QD, 4, seed=0)
    similarity = private_PD @ public_QD.T
    assert near_PK.tolist() == np.argsort(-similarity, axis=1)[:, :4].tolist()
    assert similarity_PK == pytest.approx(np.take_along_axis(similarity, near_PK, 1))


def test_another_labeller_takes_the_place_of_ours() -> None:
    data, kinds = sets()
    outcome = judged(
        data, np.eye(4)[kinds], labeller=f"{__name__}:loud", findings=("small", "large")
    )
    assert [s.name for s in outcome.scores[6::6]] == ["f1/small", "f1/large"]
    with pytest.raises(ConfigError, match="'nowhere:label'"):
        task_of(labeller="nowhere:label").data()


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
        task_of(findings=("Edema", "Effusions")).data()
    with pytest.raises(ConfigError, match="same finding"):
        task_of(findings=("Pleural Effusion", "pleural_effusion")).data()


def test_a_finding_that_no_report_has_is_undefined_and_not_zero() -> None:
    private = pairs([0, 0, 3], "clinic")
    data = proxy_data.sources(private, pairs([0, 1, 3], "papers"))
    outcome = judged(data, np.eye(4)[[0, 0, 1, 0, 1, 3]])
    value = {score.name: score.value for score in outcome.scores}
    # Cardiomegaly is predicted once, wrongly, and no report has it.
    assert "f1/Cardiomegaly" not in value
    assert value["f1"] == value["f1/Pleural Effusion"] == 1
    assert "Cardiomegaly" in outcome.notes["without_score"]
    assert outcome.notes["left_out"]["findings that no private report has (undefined)"] == 12
    healthy = proxy_data.sources(pairs([3, 3], "clinic"), pairs([0, 1], "papers"))
    with pytest.raises(ArtifactError, match="no private report has a positive finding"):
        judged(healthy, np.eye(4))


def test_reports_are_labelled_by_their_sections_and_captions_whole() -> None:
    report = "INDICATION: Edema? Fracture. FINDINGS: Cardiomegaly. IMPRESSION: No effusion."
    private = pairs([0, 1], "clinic", (report, "Pneumothorax."))
    data = proxy_data.sources(private, pairs([0], "papers", ("INDICATION: fracture.",)))
    labelled = task_of().select(data, Selecting().run())
    said = [[FINDINGS[at] for at in np.flatnonzero(row)] for row in labelled.positive_NL]
    assert said == [["Cardiomegaly"], ["Pneumothorax"], ["Fracture"]]
    assert labelled.facts["texts"] == {"whole_reports": 1, "truncated_texts": 0}
    whole = task_of(sections=()).select(data, Selecting().run())
    assert whole.positive_NL[0].sum() == 2


def test_private_images_without_a_report_are_left_out_and_counted() -> None:
    private = pairs([0, 1, 2, 1], "clinic", (*REPORTS[:1], " ", *REPORTS[2:]))
    data = proxy_data.sources(private, pairs([0, 2], "papers"))
    outcome = judged(data, np.eye(4)[[0, 2, 0, 2]])
    assert outcome.predictions["id"].to_pylist() == ["private/0", "private/1"]
    assert outcome.notes["left_out"]["private: no text"] == 2
    assert outcome.scores[0].value == 1


def test_another_version_of_a_labeller_is_another_run(tmp_path) -> None:
    (tmp_path / "x.csv").write_text("image,caption\na.png,Edema.\n")
    Image.new("L", (9, 9)).save(tmp_path / "a.png")
    weights = tmp_path / "chexbert.pth"
    weights.write_bytes(b"1")
    table = str(tmp_path / "x.csv")

    def known(**labeller):
        asked = proxy.Config(private=table, public=table, **labeller)
        return identity.inputs(NO_INDEX, {}, {"proxy": proxy.build(asked).data()})[0].fingerprint

    chexbert = Plugin("chexbert", {"path": str(weights)})
    before = known(labeller=chexbert)
    assert known(labeller=chexbert) == before != known()
    weights.write_bytes(b"22")
    assert known(labeller=chexbert) != before


def test_other_patients_and_another_selector_are_another_run(tmp_path) -> None:
    Image.new("L", (9, 9)).save(tmp_path / "a.png")
    table, selector = tmp_path / "x.csv", write_model(tmp_path / "selector")

    def known(patient, **settings):
        table.write_text(f"image,caption,patient\na.png,Edema.,{patient}\n")
        asked = proxy.Config(private=str(table), public=str(table), **settings)
        return identity.inputs(NO_INDEX, {}, {"proxy": proxy.build(asked).data()})[0].fingerprint

    before = known("p1", selector=str(selector))
    assert known("p1", selector=str(selector)) == before != known("p2", selector=str(selector))
    # The name of a model in the run, which is an input itself.
    assert known("p1", selector="ours") != before
    (selector / "note.txt").write_text("other weights")
    assert known("p1", selector=str(selector)) != before


def test_every_text_of_an_image_may_have_a_finding() -> None:
    public = selection.pairs(
        name="papers",
        images=MemoryImages((b"",) * 3, "papers"),
        texts=[["Edema.", "Fracture."], ["Normal."], ["Normal.", "Cardiomegaly."]],
        ids=["0", "1", "2"],
    )
    doing = Selecting({"papers": np.eye(3), "seeds": np.eye(3)[[0, 2]]})
    doing.vectors |= dict.fromkeys(public.texts, np.ones(3))
    data, task = a_pool(pairs([0], "clinic"), public, doing.vectors["seeds"], candidates=2)
    chosen = task.select(data, doing.run())
    said = [[FINDINGS[at] for at in np.flatnonzero(row)] for row in chosen.positive_NL]
    assert said == [["Pleural Effusion"], ["Edema", "Fracture"], ["Cardiomegaly"]]


def test_images_of_a_patient_are_resampled_together() -> None:
    rng = np.random.default_rng(0)
    kinds, public = np.repeat(rng.integers(0, 4, 30), 10), rng.integers(0, 4, 100)
    patients = pa.table({"patient": [f"p{n // 10}" for n in range(300)]})
    data = proxy_data.sources(pairs(kinds, "clinic", about=patients), pairs(public, "papers"))
    # All images of a patient have the same neighbour, right or wrong.
    right = np.repeat(rng.random(30) < 0.7, 10)
    image_ND = np.eye(4)[np.concatenate([np.where(right, kinds, (kinds + 1) % 4), public])]
    alone, together = (
        {s.name: s for s in judged(data, image_ND, patient=column).scores}
        for column in ("", "patient")
    )
    for name in ("f1", "recall", "recall/Pleural Effusion"):
        assert together[name].value == alone[name].value
        wider = together[name].high - together[name].low
        assert wider > 2 * (alone[name].high - alone[name].low)
    with pytest.raises(ArtifactError, match="no column subject of patients, only patient"):
        judged(data, image_ND, patient="subject")


@pytest.mark.parametrize("column", ["", "patient"])
def test_two_models_are_compared_on_the_same_images_or_patients(column: str) -> None:
    kinds, public = np.arange(120) // 10 % 4, np.arange(40) % 4
    patients = pa.table({"patient": [f"p{n // 10}" for n in range(120)]})
    data = proxy_data.sources(pairs(kinds, "clinic", about=patients), pairs(public, "papers"))
    perfect = judged(data, np.eye(4)[np.concatenate([kinds, public])], patient=column)
    guessing = judged(data, random_unit(160), patient=column, unreadable=[3])
    tables = {"guessing": guessing.predictions, "perfect": perfect.predictions}
    found = comparison.compare_models({"proxy": tables}, resamples=200, seed=0)
    assert [row["score"] for row in found] == ["f1", "recall", "precision"]
    value = {score.name: score.value for score in guessing.scores}
    for row in found:
        # The image that one model cannot read is left out of both.
        assert row["value"] == pytest.approx(1 - value[row["score"]])
        assert row["low"] > 0
        assert row["p"] < 0.05
        assert row["count"] == (12 if column else 119)


def test_images_without_a_patient_are_patients_of_their_own() -> None:
    kinds = np.arange(40) % 4
    names = ["", None, " ", "01", "1", "1 ", *["p"] * 34]
    data = proxy_data.sources(
        pairs(kinds, "clinic", about=pa.table({"patient": names})), pairs(kinds, "papers")
    )
    outcome = judged(data, random_unit(80), patient="patient")
    assert outcome.predictions["patient"].to_pylist() == [0, 1, 2, 3, 4, 4, *[5] * 34]
    assert outcome.notes["patients"] == 6
    assert "3 images without a patient are resampled one by one" in warnings(outcome)[0]


def test_many_images_of_a_single_patient_are_reported_as_one() -> None:
    kinds = np.arange(40) % 4
    patients = pa.table({"patient": ["p1"] * 40})
    data = proxy_data.sources(pairs(kinds, "clinic", about=patients), pairs(kinds, "papers"))
    outcome = judged(data, random_unit(80), patient="patient")
    assert all(score.low == score.value == score.high for score in outcome.scores)
    assert outcome.notes["patients"] == 1
    assert "one patient" in warnings(outcome)[0]


def a_pool(private, public, seeds, **settings):
    """Select from public images of two modalities, whose captions agree more and less."""
    images = MemoryImages((b"",) * len(seeds), "seeds") if len(seeds) else None
    data = proxy_data.sources(private, public, images)
    return data, task_of(**settings)


def public_of_two_modalities(count=40):
    """Return pairs, image and text vectors: even rows are radiographs, low ones consistent."""
    reports = tuple(f"{REPORTS[n % 4]} Number {n}." for n in range(count))
    public = pairs(range(count), "papers", reports)
    angle = np.linspace(0, np.pi / 2, count)
    image_ND = np.eye(4)[np.arange(count) % 2].astype(np.float32)
    text_ND = np.cos(angle)[:, None] * image_ND + np.sin(angle)[:, None] * np.eye(4)[3]
    return public, image_ND, dict(zip(reports, text_ND.astype(np.float32), strict=True))


def test_a_pool_is_near_the_seeds_and_consistent_with_its_captions() -> None:
    public, image_ND, texts = public_of_two_modalities()
    image_ND[4] = np.nan
    seed_SD = np.array([[np.nan] * 4, [1, 0, 0, 0], [0.9, 0, 0.1, 0]], np.float32)
    doing = Selecting({"papers": image_ND, "seeds": seed_SD, **texts})
    data, task = a_pool(pairs([0], "clinic"), public, seed_SD, candidates=19, pool=6)
    chosen = task.select(data, doing.run())
    # The most consistent of the even rows, without the unreadable one.
    assert chosen.ids[1:] == [f"public/papers-{n}" for n in (0, 2, 6, 8, 10, 12)]
    assert chosen.texts[1].endswith("Number 0.")
    (table,) = doing.tables
    assert (len(table), sum(table["kept"].to_pylist())) == (19, 6)
    assert {int(name.rpartition("-")[2]) % 2 for name in table["id"].to_pylist()} == {0}
    assert set(table["seed"].to_pylist()) == {1}
    assert table["similarity"].to_pylist() == [1] * 19
    reasons = table["left_out"].to_pylist()
    assert reasons.count(proxy_pool.INCONSISTENT) == 13
    facts = chosen.facts["selection"]
    assert (facts["seeds"], facts["unreadable_seeds"]) == (2, 1)
    assert [facts[name] for name in ("public", proxy_pool.UNREADABLE, proxy_pool.FAR)] == [
        *(40, 1, 20),
    ]
    outcome = task.evaluate(chosen, embedded(random_unit(7)))
    assert outcome.notes["left_out"][f"public: {proxy_pool.FAR}"] == 20
    assert not any("clinic" in str(row["id"]) for row in outcome.predictions.to_pylist())


def test_words_select_as_examples_do() -> None:
    public, image_ND, texts = public_of_two_modalities()
    words = {"chest radiograph": np.eye(4, dtype=np.float32)[1]}
    doing = Selecting({"papers": image_ND, **texts, **words})
    data, task = a_pool(
        pairs([0], "clinic"), public, (), queries=("chest radiograph",), candidates=10, pool=10
    )
    chosen = task.select(data, doing.run())
    assert {int(name.rpartition("-")[2]) % 2 for name in chosen.ids[1:]} == {1}
    said = warnings(task.evaluate(chosen, embedded(random_unit(11))))
    assert any("all 10 candidates are kept" in text for text in said)
    assert not any("one patient" in text for text in said)
    with pytest.raises(ValueError, match="either seeds or queries"):
        task_of(seeds="here", queries=("words",))
    doing.has_text = False
    with pytest.raises(ConfigError, match="set selector to a model"):
        task.select(data, doing.run())
    nothing = Selecting({"chest radiograph": np.full(4, np.nan)})
    with pytest.raises(ArtifactError, match="none of the 1 seeds"):
        task.select(data, nothing.run())


def test_the_nearest_to_any_seed_are_those_of_the_full_matrix(monkeypatch) -> None:
    monkeypatch.setattr(proxy_pool, "_TILE", 7)
    seed_SD, public_QD = random_unit(5, seed=1), random_unit(60, seed=2).astype(np.float16)
    found = proxy_pool.near(seed_SD, public_QD, 12, seed=0)
    best_Q = (public_QD.astype(np.float32) @ seed_SD.T).max(1)
    assert found.row_C.tolist() == np.argsort(-best_Q)[:12].tolist()
    assert found.readable == 60


def test_ties_at_the_border_of_a_pool_are_drawn() -> None:
    drawn = [proxy_pool.largest(np.ones(50), 10, seed=seed) for seed in range(40)]
    assert len({row for rows in drawn for row in rows}) == 50
    assert proxy_pool.largest([np.nan, 0.1, 0.3], 5, seed=0).tolist() == [2, 1]


def test_seeds_are_drawn_from_a_folder_of_images(tmp_path) -> None:
    for number in range(6):
        place = tmp_path / f"patient{number % 2}"
        place.mkdir(exist_ok=True)
        Image.new("L", (8, 8), number).save(place / f"{number}.png")
    (tmp_path / "notes.txt").write_text("none")
    assert len(proxy_data.seed_images(str(tmp_path), 0, 0)) == 6
    some, same, other = (proxy_data.seed_images(str(tmp_path), 3, seed) for seed in (0, 0, 1))
    assert len(some.read(0, 3)) == 3
    assert some.fingerprint == same.fingerprint != other.fingerprint
