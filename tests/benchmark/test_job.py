"""The benchmark job as a whole: judged, killed and rerun, vectors used again, scores recomputed."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sklearn import metrics as sk

from biovl.benchmark import config as benchmark_config
from biovl.benchmark import encoders
from biovl.benchmark.config import BenchmarkConfig
from biovl.benchmark.job import benchmark
from biovl.core import config as configs
from biovl.core.artifacts import Manifest
from biovl.core.errors import ArtifactError, BiovlError, ConfigError
from biovl.core.shards import read_pair
from biovl.index.config import IndexConfig
from biovl.index.job import index
from biovl.models import encoder
from biovl.sample.kinds import make_kinds
from tests.benchmark.test_encoders import save_dinov2
from tests.index.test_job import save_model
from tests.runtime.folders import content
from tests.runtime.interrupting import counted, interrupted

ROOT = Path(__file__).parents[2]
KINDS = ("fundus", "histology", "bars")

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and class folders, one image of which is damaged."""
    folder = tmp_path_factory.mktemp("benchmark")
    save_model(folder / "ours")
    save_dinov2(folder / "dino")
    make_kinds(folder / "kinds", each=6, kinds=KINDS)
    (folder / "kinds/images/fundus/damaged.jpg").write_bytes(b"\xff\xd8\xff and no more")
    return folder


def settings(place: Path, out: Path, **changes: object) -> dict:
    whole = {"out": str(out), "cache": str(place / "cache"), "per_unit": 8, "resamples": 100}
    return {**whole, "models.ours": str(place / "ours"), **changes}


def run(place: Path, out: Path, recipe: str, **changes: object) -> tuple[Manifest, str]:
    said = io.StringIO()
    plain = configs.recipe_settings(benchmark_config.RECIPES[recipe]())
    values = {**plain, **settings(place, out, **changes)}
    return benchmark(configs.build(BenchmarkConfig, values), progress=said), said.getvalue()


def kept(folder: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in folder.glob("*/vectors.npy")}


@pytest.fixture(scope="module")
def judged(place: Path, ray_session: None) -> tuple[Path, Manifest, str]:
    out = place / "report"
    manifest, said = run(
        place,
        out,
        "zero_shot",
        **{"models.dino": str(place / "dino"), "data": str(place / "kinds/images")},
    )
    return out, manifest, said


def test_the_report_holds_scores_a_table_plots_and_every_prediction(judged, place: Path) -> None:
    out, manifest, said = judged
    assert manifest.counts["unreadable"] == 1
    table = (out / "table.md").read_text()
    assert table in said
    assert "1 image does not decode" in table
    assert "* zero_shot, dino: " in table
    for name in ("plots/scores.png", "plots/ours/zero_shot-confusion.png"):
        assert Image.open(out / name).width > 300
    assert {"torch", "numpy"} <= manifest.notes["versions"].keys()
    assert {item.name for item in manifest.inputs} == {
        "model ours",
        "model dino",
        "data zero_shot",
    }


def test_scores_are_those_of_an_independent_computation(judged, place: Path) -> None:
    out, _, _ = judged
    model = encoder.load(str(place / "ours"))
    files = [
        path
        for path in sorted((place / "kinds/images").glob("*/*.jpg"))
        if path.name != "damaged.jpg"
    ]
    classes = sorted(KINDS)
    image_ND = model.embed_images([path.read_bytes() for path in files])
    prompts = [["this is an image of {}", "{} presented in image"][n] for n in (0, 1)]
    class_CD = np.stack(
        [model.embed_texts([p.format(name) for p in prompts]).mean(0) for name in classes]
    )
    class_CD /= np.linalg.norm(class_CD, axis=1, keepdims=True)
    label = [classes.index(path.parent.name) for path in files]
    similarity = image_ND @ class_CD.T
    scores = {
        row["name"]: row["value"] for row in json.loads((out / "scores.json").read_text())["scores"]
    }
    assert scores["accuracy"] == pytest.approx(sk.accuracy_score(label, similarity.argmax(1)))
    predictions = pq.read_table(out / "predictions/ours/zero_shot.parquet")
    readable = predictions.filter(predictions["predicted"].is_valid())
    assert (len(predictions), len(readable)) == (19, 18)
    np.testing.assert_allclose(readable["similarity"].to_pylist(), similarity, atol=1e-5)
    assert scores["auroc"] == pytest.approx(
        sk.roc_auc_score(label, readable["probability"].to_pylist(), multi_class="ovr"), abs=1e-6
    )


def test_the_same_again_is_published_already_and_elsewhere_ends_in_the_same_bytes(
    judged, place: Path
) -> None:
    out, manifest, _ = judged
    before = kept(place / "cache")
    changes = {"models.dino": str(place / "dino"), "data": str(place / "kinds/images")}
    again, said = run(place, out, "zero_shot", **changes)
    assert again.counts == manifest.counts
    assert "embedding" not in said
    _, said = run(place, place / "elsewhere", "zero_shot", **changes)
    assert "embedding" not in said
    assert content(place / "elsewhere") == content(out)
    assert kept(place / "cache") == before
    with pytest.raises(ArtifactError, match=r"seed: \d+ -> 5"):
        run(place, out, "zero_shot", **changes, seed=5)


def test_an_interrupted_run_goes_on_and_vectors_are_made_once(judged, place: Path) -> None:
    out, _, _ = judged
    killed = place / "killed"
    changes = {
        "models.dino": str(place / "dino"),
        "data": str(place / "kinds/images"),
        "cache": str(place / "cache-2"),
    }
    with interrupted("embedding with ours: unit"):
        run(place, killed, "zero_shot", **changes)
    assert not (killed / "manifest.json").exists()
    with counted() as stages:
        run(place, killed, "zero_shot", **changes)
    done_before, total = stages["embedding with ours: unit"]
    assert 1 <= done_before <= total
    assert content(killed) == content(out)


def test_a_corpus_is_searched_and_two_models_are_compared(
    ray_session: None, place: Path, sample_corpus: Path
) -> None:
    save_model(place / "theirs", seed=2)
    manifest, said = run(
        place,
        place / "searched",
        "retrieval",
        **{"corpus": str(sample_corpus), "models.theirs": str(place / "theirs"), "per_unit": 64},
    )
    assert manifest.counts["models"] == 2
    assert "## Differences" in said
    found = json.loads((place / "searched/scores.json").read_text())
    names = {row["name"] for row in found["scores"]}
    assert {"image_to_text_recall_at_1", "text_to_image_mrr"} <= names
    assert any("/licence" in name for name in names)
    assert any("/tokens" in name for name in names)
    model = encoders.load(str(place / "ours"))
    table = pq.read_table(place / "searched/predictions/ours/retrieval.parquet")
    assert 0 < found["notes"][0]["truncated_share"] <= 1
    assert found["notes"][0]["context"] == model.context
    value = next(row["value"] for row in found["scores"] if row["model"] == "ours")
    assert table["image_to_text_recall_at_1"].drop_null().to_numpy().mean() == value


def test_what_a_model_was_trained_on_is_told(
    ray_session: None, place: Path, sample_corpus: Path
) -> None:
    out = place / "index"
    values = {"model": str(place / "ours"), "corpus": str(sample_corpus), "out": str(out)}
    whole = {**values, "recall.queries": 10, "recall.floor": 0, "over": ["images"]}
    index(configs.build(IndexConfig, whole), progress=io.StringIO())
    pairs = pq.read_table(sample_corpus / "index.parquet", filters=[("split", "=", "train")])
    kinds = place / "leaky"
    shutil.copytree(place / "kinds/images", kinds)
    for row in pairs.slice(0, 2).to_pylist():
        files = read_pair(str(sample_corpus / row["shard"]), row["offset"], row["size"])
        name, data = next((k, v) for k, v in files.items() if k not in ("txt", "json"))
        (kinds / f"fundus/{row['pair_id']}.{name}").write_bytes(data)
    _, said = run(place, place / "leaks", "zero_shot", data=str(kinds), index=str(out))
    assert "## Near duplicates in the training corpus" in said
    found = pq.read_table(place / "leaks/leaks/ours/zero_shot.parquet")
    same = found.filter(pc.equal(found["by"], "same file"))
    assert set(same["corpus_id"].to_pylist()) == set(pairs["pair_id"].to_pylist()[:2])
    scores = json.loads((place / "leaks/scores.json").read_text())["scores"]
    assert "accuracy/without near duplicates" in {row["name"] for row in scores}


def test_a_pool_is_selected_for_private_images_and_a_killed_run_goes_on(
    ray_session: None, place: Path, sample_corpus: Path
) -> None:
    pairs = pq.read_table(sample_corpus / "index.parquet", filters=[("split", "=", "train")])
    clinic = place / "clinic"
    (clinic / "seeds").mkdir(parents=True)
    rows = ["image,caption,patient"]
    for number, row in enumerate(pairs.slice(0, 8).to_pylist()):
        files = read_pair(str(sample_corpus / row["shard"]), row["offset"], row["size"])
        name, data = next((k, v) for k, v in files.items() if k not in ("txt", "json"))
        (clinic / f"JaneDoe{number}.{name}").write_bytes(data)
        (clinic / f"seeds/{number}.{name}").write_bytes(data)
        finding = "Edema" if number % 2 else "Fracture"
        rows.append(f"JaneDoe{number}.{name},INDICATION: fall. FINDINGS: {finding}.,p{number // 2}")
    (clinic / "reports.csv").write_text("\n".join(rows))
    task = {
        "name": "proxy",
        "private": str(clinic / "reports.csv"),
        "public": str(sample_corpus),
        "seeds": str(clinic / "seeds"),
        **{"candidates": 20, "pool": 12, "patient": "patient", "findings": ["Edema", "Fracture"]},
    }
    save_model(place / "third", seed=2)
    changes = {"tasks": {"proxy": task}, "models.theirs": str(place / "third"), "per_unit": 16}
    manifest, said = run(place, place / "proxy", "proxy", **changes)
    assert manifest.counts["models"] == 2
    for one in ("labelling texts", "chance f1", "less consistent with its caption"):
        assert one in said
    # The same pool for both models, selected by the first.
    selected = pq.read_table(place / "proxy/selection/proxy.parquet")
    assert (len(selected), pc.sum(selected["kept"]).as_py()) == (20, 12)
    assert pc.max(selected["similarity"]).as_py() == pytest.approx(1, abs=1e-5)
    near = [
        pq.read_table(place / f"proxy/predictions/{model}/proxy.parquet")
        for model in ("ours", "theirs")
    ]
    pool = {f"public/{row['id']}" for row in selected.to_pylist() if row["kept"]}
    assert {
        name for table in near for row in table["neighbours"].to_pylist() for name in row
    } <= pool
    # Nothing of the private images is published but what is found about row n.
    published = content(place / "proxy")
    texts = [path.read_bytes().decode("latin-1") for path in (place / "proxy").rglob("*.*")]
    texts += [said, *(str(table.to_pylist()) for table in (selected, *near))]
    assert not any("JaneDoe" in text or "INDICATION" in text for text in texts)
    changes["cache"] = str(place / "cache-3")
    with interrupted("labelling texts: unit"):
        run(place, place / "killed-proxy", "proxy", **changes)
    run(place, place / "killed-proxy", "proxy", **changes)
    assert content(place / "killed-proxy") == published
    # An index made with the selector spares embedding the corpus.
    built = place / "proxy-index"
    values = {"model": str(place / "ours"), "corpus": str(sample_corpus), "out": str(built)}
    whole = {**values, "recall.queries": 10, "recall.floor": 0, "over": ["images"]}
    index(configs.build(IndexConfig, whole), progress=io.StringIO())
    indexed = {**changes, "tasks": {"proxy": {**task, "index": str(built)}}}
    run(place, place / "by-index", "proxy", **indexed)
    same = pq.read_table(place / "by-index/selection/proxy.parquet")
    # Its vectors are float16: images at the border may differ, similarities hardly.
    assert len(set(same["id"].to_pylist()) & set(selected["id"].to_pylist())) > 14
    np.testing.assert_allclose(same["similarity"], selected["similarity"], atol=2e-3)
    wrong = {**indexed, "tasks": {"proxy": {**task, "index": str(built), "selector": "theirs"}}}
    with pytest.raises(ConfigError, match="not made with the selector"):
        run(place, place / "by-another", "proxy", **wrong)


def test_models_between_two_are_judged_and_drawn(judged, place: Path) -> None:
    save_model(place / "tuned", seed=5)
    ends = {"base": str(place / "ours"), "tuned": str(place / "tuned"), "alphas": [0, 0.5, 1]}
    changes = {"wise_ft": ends, "data": str(place / "kinds/images")}
    out = place / "between"
    plain = {
        **configs.recipe_settings(benchmark_config.RECIPES["zero_shot"]()),
        **settings(place, out, **changes),
    }
    del plain["models.ours"]
    benchmark(configs.build(BenchmarkConfig, plain), progress=io.StringIO())
    found = json.loads((out / "scores.json").read_text())
    assert [score["model"] for score in found["scores"] if score["name"] == "accuracy"] == [
        *("alpha-0", "alpha-0.5", "alpha-1")
    ]
    assert {(d["model"], d["ahead_of"]) for d in found["differences"]} == {("alpha-1", "alpha-0")}
    assert (out / "plots" / "wise_ft.png").stat().st_size > 5_000
    # The base is the model that was judged before.
    before = json.loads((place / "report" / "scores.json").read_text())["scores"]
    assert [s["value"] for s in found["scores"] if s["model"] == "alpha-0"] == [
        score["value"] for score in before if score["model"] == "ours"
    ]


def test_long_captions_are_made_of_harvested_articles(
    ray_session: None, place: Path, sample_corpus: Path
) -> None:
    figures = sample_corpus.parent / "figures"
    data = {"name": "long_captions", "path": str(figures), "years": [], "articles": 5}
    run(place, place / "long", "long_retrieval", data=data, per_unit=64)
    notes = json.loads((place / "long/scores.json").read_text())["notes"][0]
    assert notes["texts"] == 5
    assert notes["left_out"]["not drawn: enough articles"] > 0
    assert notes["clip_tokens"]["median"] > 75
    with pytest.raises(ArtifactError, match="of another year"):
        run(place, place / "none", "long_retrieval", data={**data, "years": [1850]})


class Stopping(io.StringIO):
    """Stands for somebody who ends the run when the first training is done."""

    def write(self, text: str) -> int:
        if "of val" in text:
            raise KeyboardInterrupt
        return super().write(text)


def test_a_tower_is_tuned_and_an_ended_run_goes_on(judged, place: Path) -> None:
    for number, split in enumerate(("train", "val", "test")):
        for kind in KINDS[:2]:
            (place / "tuned-on" / split / kind).mkdir(parents=True)
            images = sorted((place / "kinds/images" / kind).glob("*.jpg"))
            for image in images[2 * number :][:2]:
                shutil.copy(image, place / "tuned-on" / split / kind)
    tuning = {"lrs": [1e-3, 1e-4], "epochs": 1, "least_steps": 2, "batch": 4}
    asked = {
        "data": str(place / "tuned-on"),
        "tasks": {"fine_tune": {"name": "fine_tune", "tuning": tuning}},
    }
    ended = {
        **configs.recipe_settings(benchmark_config.fine_tune()),
        **settings(place, place / "ended", **asked),
    }
    with pytest.raises(KeyboardInterrupt):
        benchmark(configs.build(BenchmarkConfig, ended), progress=Stopping())
    assert not (place / "ended/manifest.json").exists()
    _, said = run(place, place / "ended", "fine_tune", **asked)
    assert said.count("ours fine_tune: 1-0-") == 1
    run(place, place / "undisturbed", "fine_tune", **asked, **{"workers.count": 2})
    assert content(place / "ended") == content(place / "undisturbed")
    found = json.loads((place / "ended/scores.json").read_text())
    (fit,) = found["notes"][0]["fits"]
    assert fit["tried"].keys() == {"0.001", "0.0001"}


def test_a_device_that_is_not_there_is_told(judged, place: Path) -> None:
    changes = {"data": str(place / "kinds/images"), "workers.cpus": 1000}
    if os.environ.get("RAY_ADDRESS", "local") == "local":
        with pytest.raises(ConfigError, match=r"CPUs for .*: 1000 needed"):
            run(place, place / "no-device", "zero_shot", **changes)


def test_what_cannot_be_scored_is_told_before_anything_is_embedded(place: Path) -> None:
    changes = {"data": str(place / "kinds/images"), "models": {"dino": str(place / "dino")}}
    del_ours = {**settings(place, place / "refused"), **changes}
    del_ours.pop("models.ours")
    asked = {**configs.recipe_settings(benchmark_config.zero_shot()), **del_ours}
    with pytest.raises(BiovlError, match=r"dino.*zero_shot"):
        benchmark(configs.build(BenchmarkConfig, asked), progress=io.StringIO())
    with pytest.raises(BiovlError, match=rf"pcam: .*{place}"):
        run(place, place / "missing", "biomedclip", data_root=str(place))
    with pytest.raises(ConfigError, match=r"'nothing'.*zero_shot"):
        run(place, place / "unknown", "zero_shot", **{"tasks": {"x": {"name": "nothing"}}})
    shutil.rmtree(place / "refused", ignore_errors=True)
