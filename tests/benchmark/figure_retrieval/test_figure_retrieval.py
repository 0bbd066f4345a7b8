"""The figure retrieval task: what is in it, what is not and why, and that all readers agree."""

import json
from pathlib import Path
from typing import Any

import datasets
import mteb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
import yaml
from mteb._hf_integration.eval_model import HFEvalMeta
from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader

from biovl.benchmark import data as opening
from biovl.benchmark import encoders
from biovl.benchmark.figure_retrieval import candidates, leaks
from biovl.benchmark.figure_retrieval.config import FigureRetrievalConfig
from biovl.benchmark.figure_retrieval.job import figure_retrieval
from biovl.benchmark.figure_retrieval.mteb_task import figure_retrieval_task
from biovl.benchmark.mteb_model import register
from biovl.benchmark.tasks import EmbeddedBenchmark
from biovl.benchmark.tasks.retrieval import Config, Retrieval
from biovl.core import config as configs
from biovl.core.artifacts import Draft, Manifest
from biovl.core.errors import ConfigError, NothingUsable
from biovl.core.plugins import Plugin
from biovl.core.records import Span
from biovl.publish.config import PublishConfig
from biovl.publish.job import dry_run_text
from biovl.publish.kinds import KINDS, contents
from tests.benchmark.figure_retrieval.harvested import (
    CUT_OFF,
    article,
    figure,
    picture,
    publish_harvest,
)
from tests.benchmark.memory import random_unit
from tests.index.test_job import save_model

SUBSETS = ("caption", "mention")
GOOD = [article(f"PMC{number}") for number in range(100, 124)]


def make(figures: Path, out: Path, **changes: Any) -> Manifest:
    values = {"figures": str(figures), "out": str(out), "after": CUT_OFF, **changes}
    return figure_retrieval(configs.build(FigureRetrievalConfig, values))


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a task of 24 figures."""
    folder = tmp_path_factory.mktemp("task")
    publish_harvest(folder / "figures", GOOD, [figure(one) for one in GOOD])
    make(folder / "figures", folder / "task")
    return folder / "task"


def ids(task: Path) -> set[str]:
    table = pq.read_table(task / "corpus/test-00000-of-00001.parquet", columns=["id"])
    return set(table["id"].to_pylist())


def left_out(task: Path) -> dict[str, str]:
    table = pq.read_table(task / "left_out.parquet")
    return dict(zip(table["figure_id"].to_pylist(), table["reason"].to_pylist(), strict=True))


def queries(task: Path, subset: str) -> dict[str, str]:
    table = pq.read_table(task / f"{subset}/queries/test-00000-of-00001.parquet")
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


ARTICLES = {
    "published before the cut-off": {"published": "2025-05-31"},
    "publication date missing or not precise enough": {"published": "2025"},
    "preprint": {"doi": "10.1101/2025.06.03.123", "published": "2025-06-03"},
    "retracted": {"retracted": True},
    "licence does not allow redistribution": {"redistributable": False},
    "nothing says that it may be given on": {"redistributable": None, "license": None},
    "licence does not permit changed texts": {"derivatives_allowed": False},
    "another licence group": {"license_group": "noncommercial", "license": "CC-BY-NC-4.0"},
    "article unreadable": {"defect": "xml is malformed"},
}


def test_every_article_left_out_has_its_reason(tmp_path: Path) -> None:
    bad = {
        name: article(f"PMC9{n}", **changes) for n, (name, changes) in enumerate(ARTICLES.items())
    }
    # Of two versions the newer is used, unless the older was there before the cut-off.
    newest = [article("PMC50", version=v, source_uri=f"s3://bucket/PMC50.{v}") for v in "12"]
    before = [
        article("PMC51", version="1", published="2025-02", source_uri="s3://bucket/PMC51.1"),
        article("PMC51", version="2", source_uri="s3://bucket/PMC51.2"),
    ]
    # The journal's version of a preprint from before the cut-off.
    preprint = article("PMC60", published="2024-01", title="Sections of all plaques in one liver")
    in_journal = article("PMC61", title="Sections of all Plaques, in one liver.")
    every = [*GOOD[:3], *bad.values(), *newest, *before, preprint, in_journal]
    publish_harvest(tmp_path / "figures", every, [figure(one) for one in every])
    manifest = make(tmp_path / "figures", tmp_path / "task")
    expected = dict.fromkeys(bad, 1)
    expected["published before the cut-off"] = 3
    expected["a newer version is there"] = 1
    expected["an earlier version before the cut-off"] = 1
    expected["an article of the same title before the cut-off"] = 1
    assert manifest.counts["articles_left_out"] == expected
    assert ids(tmp_path / "task") == {f"PMC{n}-F1" for n in (100, 101, 102)} | {"PMC50.2-F1"}


@pytest.mark.parametrize(
    ("doi", "expected"),
    [
        ("10.1101/2021.01.02.425071", True),
        ("10.1101/123456", True),
        ("10.64898/2025.12.01.1", True),
        ("10.1101/gr.275871.121", False),
        ("10.1101/gad.348174.120", False),
        ("10.5555/1101", False),
    ],
)
def test_preprints_are_told_from_journals_of_the_same_publisher(doi: str, expected: bool) -> None:
    article = {"article_type": "research-article", "doi": doi, "journal": "A Journal"}
    assert candidates.is_preprint(article) is expected


def test_every_figure_left_out_has_its_reason(tmp_path: Path) -> None:
    old = article("PMC1", published="2023-03-04")
    others = [article(f"PMC2{number:02}") for number in range(9)]
    twin = picture(77)
    figures = [
        figure(old, image=picture(5)),
        figure(old, 2, caption="Figure 2. The same words in an old article, exactly, of a liver."),
        # The look of an image of an old article, in another encoding.
        figure(others[0], image=picture(5, "JPEG", quality=70), image_format="jpeg"),
        figure(
            others[1], caption="Figure 1: The same words in an old article, exactly, of a liver."
        ),
        figure(others[2], credit="Reprinted with permission from Elsevier.", third_party=True),
        figure(others[3], kind="graphical-abstract"),
        figure(others[4], caption="Figure 1. Mice."),
        figure(others[5], mentions=[]),
        figure(others[6], defect="image is truncated"),
        figure(others[7], image=twin),
        figure(others[8], image=twin),
        figure(GOOD[0]),
        figure(GOOD[0], 2),
    ]
    publish_harvest(tmp_path / "figures", [old, *others, GOOD[0]], figures)
    manifest = make(tmp_path / "figures", tmp_path / "task")
    found = left_out(tmp_path / "task")
    assert {name: found[f"PMC2{n:02}-F1"] for n, name in enumerate("abcdefg")} == {
        "a": "image also in another article",
        "b": "caption also in another article",
        "c": "credits a third party",
        "d": "not a figure of the article's own",
        "e": "caption too short",
        "f": "no sentence that cites it alone",
        "g": "image has a defect",
    }
    # One of two figures with the same image, and one of two of the same article.
    assert len(ids(tmp_path / "task") & {"PMC207-F1", "PMC208-F1"}) == 1
    assert len(ids(tmp_path / "task") & {"PMC100-F1", "PMC100-F2"}) == 1
    assert manifest.counts["figures"] == 2
    assert sum(manifest.counts["figures_left_out"].values()) == len(found) == 9
    readme = (tmp_path / "task/README.md").read_text()
    assert "| credits a third party | – | 1 |" in readme


MARKED = {
    "caption": "Figure 1. Spleens with 2 × 105 cells of a mouse on the third day.",
    "caption_superscripts": [Span(29, 30)],
}
UNMARKED = {"caption": MARKED["caption"]}
# "Figure 1" with a footnote: its number is no part of the label.
FOOTNOTE = {
    "caption": "Figure 11 Spleens with many cells of a mouse on the third day.",
    "caption_superscripts": [Span(8, 9)],
}
FORMULA = {"caption": "Figure 1. Spleens with \ufffc times the cells of a mouse on the third day."}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (MARKED, MARKED),
        (MARKED, UNMARKED),
        (UNMARKED, MARKED),
        (FOOTNOTE, FOOTNOTE),
        (FORMULA, FORMULA),
    ],
)
def test_captions_of_other_articles_are_found_with_powers_and_formulas(
    old: dict[str, Any], new: dict[str, Any], tmp_path: Path
) -> None:
    articles = [article("PMC1", published="2023-03-04"), article("PMC2"), GOOD[0]]
    figures = [figure(articles[0], **old), figure(articles[1], **new), figure(GOOD[0])]
    publish_harvest(tmp_path / "figures", articles, figures)
    make(tmp_path / "figures", tmp_path / "task")
    assert left_out(tmp_path / "task") == {"PMC2-F1": "caption also in another article"}


def test_what_models_were_trained_on_is_left_out(tmp_path: Path, task: Path) -> None:
    figures = [figure(one) for one in GOOD]
    publish_harvest(tmp_path / "figures", GOOD, figures)
    known = [
        GOOD[0],
        article("other-1", doi=GOOD[1]["doi"], published="2024"),
        article("other-2", title=GOOD[2]["title"].upper(), published="2024"),
        article("other-3", published="2024"),
    ]
    shown = figure(known[3], image=figures[3]["image"])
    publish_harvest(tmp_path / "train", known, [figure(one) for one in known[:3]] + [shown])
    make(tmp_path / "figures", tmp_path / "task", training=[str(tmp_path / "train")])
    assert left_out(tmp_path / "task") == {
        "PMC100-F1": "article in the training data",
        "PMC101-F1": "article in the training data",
        "PMC102-F1": "title in the training data",
        "PMC103-F1": "image in the training data",
    }


def test_the_articles_and_files_of_an_index_are_left_out(
    tmp_path: Path, task: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = [figure(one) for one in GOOD]
    columns = {
        "article_id": [first["article_id"], "PMC1"],
        "doi": [None, None],
        "pmid": [None, None],
        "title": ["Another title of five words", None],
        "figure_id": ["a", "b"],
        "image_sha256": ["0" * 64, second["image_sha256"]],
        "width_px": [96, 96],
        "height_px": [96, 96],
    }

    class KnownIndex:
        @classmethod
        def open(cls, uri: str) -> "KnownIndex":
            return cls()

        def column(self, name: str) -> pa.ChunkedArray:
            return pa.chunked_array([columns[name]])

    monkeypatch.setattr(leaks, "Index", KnownIndex)
    Draft.begin(str(tmp_path / "index"), "index", {}, [], defaults={}).publish(
        Manifest(kind="index", config={}, counts={})
    )
    make(task.parent / "figures", tmp_path / "task", training=[str(tmp_path / "index")])
    assert left_out(tmp_path / "task") == {
        "PMC100-F1": "article in the training data",
        "PMC101-F1": "image in the training data",
    }


def test_queries_have_no_labels_and_keep_their_content(task: Path) -> None:
    texts = [text for subset in SUBSETS for text in queries(task, subset).values()]
    assert not any("Fig" in text for text in texts)
    assert all("(A) The" in text for text in queries(task, "caption").values())
    assert all(text.endswith("in all of them.") for text in queries(task, "mention").values())


def test_the_same_settings_give_the_same_bytes_and_another_seed_another_draw(
    tmp_path: Path, task: Path
) -> None:
    source = task.parent / "figures"
    make(source, tmp_path / "again")
    for path in sorted(task.rglob("*.*")):
        name = path.relative_to(task)
        assert (tmp_path / "again" / name).read_bytes() == path.read_bytes(), name
    drawn = [
        ids(tmp_path / name)
        for name in "ab"
        if make(source, tmp_path / name, articles=5, seed=ord(name))
    ]
    assert [len(one) for one in drawn] == [5, 5]
    assert drawn[0] != drawn[1]


def test_credits_have_the_url_of_the_figures_own_licence() -> None:
    ours, own = article("a"), "https://creativecommons.org/licenses/by/3.0/"
    for row, expected in (
        (figure(ours, license_url=own, license="CC-BY-3.0"), own),
        (figure(ours, license_url=None), ours["license_url"]),
        (figure(ours, license_url=None, license="CC-BY-3.0"), None),
    ):
        assert candidates._license_url(row, ours) == expected


def test_the_library_datasets_and_mteb_read_the_folder(
    task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    rows = datasets.load_dataset(str(task), "credits", split="test")
    assert set(rows["license"]) == {"CC-BY-4.0"}
    assert all("Author of" in text for text in rows["citation"])
    loaded = RetrievalDatasetLoader(str(task), None, split="test", config="mention").load()
    assert loaded["corpus"][0]["image"].size == (96, 96)
    assert {query: list(own) for query, own in loaded["relevant_docs"].items()} == {
        f"mention-{figure}": [figure] for figure in ids(task)
    }
    meta = HFEvalMeta.model_validate(yaml.safe_load((task / "eval.yaml").read_text()))
    assert [one.id for one in meta.tasks] == [
        "BiomedicalFigureRetrieval_caption_test",
        "BiomedicalFigureRetrieval_mention_test",
    ]


def embed(model: Path, task: Path, subset: str) -> tuple[Any, EmbeddedBenchmark]:
    data = opening.open_pairs(Plugin("queries", {"path": str(task), "subset": subset}))
    loaded = encoders.load(str(model))
    files = data.images.read(0, len(data.images))
    return data, EmbeddedBenchmark(
        image_ND=loaded.embed_pixels(np.stack([encoders.prepare(loaded, one) for one in files])),
        unreadable={},
        text=loaded.embed_texts,
        logit_scale=1.0,
        model="small",
        has_text=True,
    )


@pytest.mark.parametrize("subset", SUBSETS)
def test_our_scores_those_of_mteb_and_of_trec_on_beirs_files_agree(
    task: Path, subset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    model = save_model(tmp_path / "model")
    register(str(model), "ann/figures")
    result = mteb.evaluate(
        mteb.get_model("ann/figures"),
        figure_retrieval_task(str(task)),
        cache=None,
        co2_tracker=False,
        show_progress_bar=False,
    )
    (theirs,) = [row for row in result.task_results[0].scores["test"] if row["hf_subset"] == subset]
    data, vectors = embed(model, task, subset)
    outcome = Retrieval(Config(data="x", ks=(1, 5, 10), resamples=20)).evaluate(data, vectors)
    ours = {score.name: score.value for score in outcome.scores}

    beir = task / "beir" / subset
    texts = {
        row["_id"]: row["text"]
        for row in map(json.loads, (beir / "queries.jsonl").read_text().splitlines())
    }
    documents = [json.loads(line) for line in (beir / "corpus.jsonl").read_text().splitlines()]
    assert all((task / one["metadata"]["image"]).is_file() for one in documents)
    qrels: dict[str, dict[str, int]] = {}
    for line in (beir / "qrels/test.tsv").read_text().splitlines()[1:]:
        query, figure_id, relevance = line.split("\t")
        qrels.setdefault(query, {})[figure_id] = int(relevance)
    loaded = encoders.load(str(model))
    files = [(task / one["metadata"]["image"]).read_bytes() for one in documents]
    image_ND = loaded.embed_pixels(np.stack([encoders.prepare(loaded, one) for one in files]))
    near_QN = loaded.embed_texts(list(texts.values())) @ image_ND.T
    run = {
        query: {one["_id"]: float(near) for one, near in zip(documents, row, strict=True)}
        for query, row in zip(texts, near_QN, strict=True)
    }
    judged = pytrec_eval.RelevanceEvaluator(qrels, {"recall.1,5,10", "ndcg_cut.10"}).evaluate(run)
    trec = {
        name: np.mean([row[name] for row in judged.values()]) for name in judged[next(iter(judged))]
    }
    for k in (1, 5, 10):
        assert ours[f"text_to_image_recall_at_{k}"] == pytest.approx(trec[f"recall_{k}"])
        assert theirs[f"recall_at_{k}"] == pytest.approx(trec[f"recall_{k}"], abs=1e-5)
    assert ours["text_to_image_ndcg_at_10"] == pytest.approx(trec["ndcg_cut_10"])
    assert theirs["main_score"] == pytest.approx(trec["ndcg_cut_10"], abs=1e-5)


def test_a_random_model_scores_chance(task: Path) -> None:
    data = opening.open_pairs(str(task))
    count, hits = len(data.ids), list[float]()
    for seed in range(30):
        rows = random_unit(2 * count, seed=seed)
        texts = dict(zip(data.texts, rows[count:], strict=True))
        vectors = EmbeddedBenchmark(
            image_ND=rows[:count],
            unreadable={},
            text=lambda wanted, texts=texts: np.stack([texts[one] for one in wanted]),
            logit_scale=1.0,
            model="random",
            has_text=True,
        )
        outcome = Retrieval(Config(data="x", ks=(5,), resamples=2)).evaluate(data, vectors)
        hits.append(next(s.value for s in outcome.scores if s.name == "text_to_image_recall_at_5"))
    assert np.mean(hits) == pytest.approx(5 / count, abs=0.04)
    assert "recall@1 4.17%" in (task / "README.md").read_text()


def test_the_task_may_be_published(task: Path) -> None:
    found = contents(str(task), KINDS["figure_retrieval"])
    assert found.left_out == []
    values = {"folder": str(task), "repo": "ann/figures", "public": True}
    assert "refused" not in dry_run_text(configs.build(PublishConfig, values))


def test_nothing_left_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    publish_harvest(tmp_path / "figures", GOOD[:2], [figure(one) for one in GOOD[:2]])
    with pytest.raises(NothingUsable, match="'published before the cut-off': 2"):
        make(tmp_path / "figures", tmp_path / "task", after="2026-01-01")
    for day in ("2025", "2025-13-45"):
        with pytest.raises(ConfigError, match="after must be a day"):
            make(tmp_path / "figures", tmp_path / "task", after=day)
