"""External labellers: tiny classifiers in the real formats, whose words and labels are known."""

import random

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, BertModel, BertTokenizer

from biovl.benchmark import labellers
from biovl.benchmark.chexpert_findings import FINDINGS
from biovl.benchmark.labellers.chexbert import HEADS
from biovl.core.errors import ArtifactError, ConfigError
from biovl.core.plugins import Plugin

WORDS = ("edema", "fracture", "cardiomegaly", "pneumonia", "filler")
NAMES = ("Edema", "Fracture", "Cardiomegaly", "Pneumonia")
LENGTH = 24
TINY = {
    "hidden_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "intermediate_size": 4,
    "max_position_embeddings": LENGTH,
}


def save_tokenizer(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text(
        "\n".join(("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS))
    )
    BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)


def write_sum(bert):
    """Make the first token's vector hold, in dimension n, how much of the text is word n."""
    with torch.no_grad():
        for tensor in bert.parameters():
            tensor.zero_()
        bert.embeddings.LayerNorm.weight.fill_(1)
        for place in range(len(WORDS)):
            bert.embeddings.word_embeddings.weight[5 + place, place] = 1
        layer = bert.encoder.layer[0]
        layer.attention.self.value.weight.copy_(torch.eye(64))
        layer.attention.output.dense.weight.copy_(10 * torch.eye(64))
        layer.attention.output.LayerNorm.weight.fill_(1)
        layer.output.LayerNorm.weight.fill_(1)


def save_classifier(folder, labels, problem="multi_label_classification"):
    """Save a classifier that gives a label to texts with its word, in the order of ``labels``."""
    save_tokenizer(folder)
    config = BertConfig(
        vocab_size=5 + len(WORDS),
        id2label=dict(enumerate(labels)),
        label2id={name: number for number, name in enumerate(labels)},
        problem_type=problem,
        **TINY,
    )
    model = BertForSequenceClassification(config)
    write_sum(model.bert)
    with torch.no_grad():
        model.bert.pooler.dense.weight.copy_(torch.eye(64))
        for row, label in enumerate(labels):
            place = next((n for n, word in enumerate(WORDS) if word in label.lower()), len(WORDS))
            model.classifier.weight[row].zero_()
            model.classifier.weight[row, place] = 20
            model.classifier.bias[row] = -4
    model.eval().save_pretrained(folder)
    return model


def label(texts, device="cpu", **settings):
    labeller = labellers.make(Plugin("classifier", settings))
    return labeller.load(device)(texts)


def said(found):
    return [{name for name, state in row.items() if state == "positive"} for row in found.states]


TEXTS = ["edema", "fracture filler pneumonia", "filler", "", "cardiomegaly edema filler filler"]
EXPECTED = [{"Edema"}, {"Fracture", "Pneumonia"}, set(), set(), {"Cardiomegaly", "Edema"}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("labellers")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_labels_are_known_by_name_in_any_order(folder, seed: int) -> None:
    names = list(NAMES)
    random.Random(seed).shuffle(names)
    path = folder / f"shuffled{seed}"
    save_classifier(path, names)
    found = label(TEXTS, path=str(path), batch=2)
    assert said(found) == EXPECTED
    assert [labellers.positive(row, NAMES) for row in found.states][1] == [False, True, False, True]


def test_probabilities_and_batches_are_those_of_the_model_itself(folder) -> None:
    path = folder / "itself"
    model = save_classifier(path, NAMES)
    tokenizer = BertTokenizer.from_pretrained(path)
    texts = [" ".join(random.Random(n).choices(WORDS, k=n % 7)) for n in range(30)]
    with torch.no_grad():
        p_NL = np.array(
            [model(**tokenizer(text, return_tensors="pt")).logits[0].sigmoid() for text in texts]
        )
    assert 0.1 < (p_NL >= 0.5).mean() < 0.9
    for threshold, batch in ((0.5, 1), (0.5, 8), (0.9, 64)):
        found = label(texts, path=str(path), threshold=threshold, batch=batch)
        theirs = [{NAMES[at] for at in np.flatnonzero(row >= threshold)} for row in p_NL]
        assert said(found) == theirs


def test_the_end_of_a_long_text_is_cut_and_counted(folder) -> None:
    path = folder / "cut"
    save_classifier(path, NAMES)
    fits = "filler " * (LENGTH - 3) + "edema"
    found = label([fits, "fracture", "filler " * 40 + "edema"], path=str(path), threshold=0.02)
    assert found.truncated == 1
    assert ("Edema" in said(found)[0], "Edema" in said(found)[2]) == (True, False)


def test_unknown_labels_are_refused_with_both_lists(folder) -> None:
    path = folder / "unknown"
    save_classifier(path, ("LABEL_0", "edema", "No Finding", "Fractures"))
    labeller = labellers.make(Plugin("classifier", {"path": str(path)}))
    with pytest.raises(
        ConfigError, match=r"\['Fracture'\] are unknown.*'Edema', 'Fracture'.*'LABEL_0'"
    ):
        labellers.check_findings(("Edema", "Fracture"), labeller)
    named = {"path": str(path), "names": {"Fractures": "Fracture"}}
    labellers.check_findings(("Edema", "Fracture"), labellers.make(Plugin("classifier", named)))
    with pytest.raises(ConfigError, match=r"\['Breaks'\] are not labels.*'LABEL_0'"):
        _ = labellers.make(Plugin("classifier", {**named, "names": {"Breaks": "x"}})).findings
    twice = {"path": str(path), "names": {"LABEL_0": "Edema"}}
    with pytest.raises(ConfigError, match="several labels of one name"):
        labellers.check_findings(("Edema",), labellers.make(Plugin("classifier", twice)))


def test_models_that_do_not_classify_findings_are_refused(folder) -> None:
    one_of = folder / "one_of"
    save_classifier(one_of, NAMES, problem="single_label_classification")
    with pytest.raises(ConfigError, match="excludes the others"):
        _ = labellers.make(Plugin("classifier", {"path": str(one_of)})).findings
    headless = folder / "headless"
    save_tokenizer(headless)
    BertModel(BertConfig(vocab_size=10, **TINY)).save_pretrained(headless)
    with pytest.raises(ArtifactError, match=r"lacks 2 tensors .* not trained to classify"):
        label(["edema"], path=str(headless))
    with pytest.raises(ArtifactError, match="cannot be loaded as a text classifier"):
        label(["edema"], path=str(folder))
    with pytest.raises(ConfigError, match="threshold"):
        label(["edema"], path=str(folder), threshold=1)


def save_chexbert(path, prefix="module."):
    """Save a checkpoint in the published layout: positive, negative, uncertain by the first words.

    A text with a finding's word has it; with ``filler`` too, it is uncertain.
    """
    bert = BertModel(BertConfig(vocab_size=5 + len(WORDS), **TINY))
    write_sum(bert)
    tensors = {f"{prefix}bert.{name}": value.clone() for name, value in bert.state_dict().items()}
    tensors[f"{prefix}bert.embeddings.position_ids"] = torch.arange(LENGTH)[None]
    for number, name in enumerate(HEADS):
        weight = torch.zeros(2 if name == "No Finding" else 4, 64)
        bias = torch.tensor([1.0, 0, 0, 0][: len(weight)])
        if name in NAMES:
            weight[0, len(WORDS) - 1] = 3.0
            weight[1, NAMES.index(name)] = 10
            weight[3, [NAMES.index(name), len(WORDS) - 1]] = torch.tensor([9.0, 3.0])
        tensors[f"{prefix}linear_heads.{number}.weight"] = weight
        tensors[f"{prefix}linear_heads.{number}.bias"] = bias
    torch.save({"epoch": 3, "model_state_dict": tensors, "optimizer_state_dict": {}}, path)


@pytest.mark.parametrize("prefix", ["module.", ""])
def test_a_checkpoint_of_chexbert_is_read_in_its_published_layout(folder, prefix: str) -> None:
    save_tokenizer(folder / "tokenizer")
    path = folder / "chexbert.pth"
    save_chexbert(path, prefix)
    settings = {"path": str(path), "tokenizer": str(folder / "tokenizer"), "batch": 2}
    labeller = labellers.make(Plugin("chexbert", settings))
    labellers.check_findings(FINDINGS, labeller)
    texts = ["edema", "fracture pneumonia", "", "cardiomegaly filler filler", "filler " * 40]
    found = labeller.load("cpu")(texts)
    assert found.truncated == 1
    assert found.states == [
        {"Edema": "positive"},
        {"Fracture": "positive", "Pneumonia": "positive"},
        {},
        {"Cardiomegaly": "uncertain"},
        {},
    ]
    assert labellers.positive(found.states[3], ["Cardiomegaly"]) == [False]


def test_chexbert_answers_as_its_authors_code_does(folder) -> None:
    # As models/bert_labeler.py and label.py: one report at a time, the first token, argmax.
    torch.manual_seed(0)
    save_tokenizer(folder / "tokenizer")
    bert = BertModel(BertConfig(vocab_size=5 + len(WORDS), **TINY)).eval()
    heads = [torch.nn.Linear(64, 2 if name == "No Finding" else 4) for name in HEADS]
    tensors = {f"module.bert.{name}": value for name, value in bert.state_dict().items()}
    for number, head in enumerate(heads):
        for name, value in head.state_dict().items():
            tensors[f"module.linear_heads.{number}.{name}"] = value
    torch.save({"model_state_dict": tensors}, folder / "random.pth")
    tokenizer = BertTokenizer.from_pretrained(folder / "tokenizer")
    texts = [" ".join(random.Random(n).choices(WORDS, k=1 + n % 30)) for n in range(40)]
    meaning = ("blank", "positive", "negative", "uncertain")
    expected = []
    with torch.no_grad():
        for text in texts:
            ids = tokenizer.encode(text, truncation=False)
            ids = ids if len(ids) <= LENGTH else [*ids[: LENGTH - 1], tokenizer.sep_token_id]
            first = bert(torch.tensor([ids]))[0][:, 0]
            expected.append([meaning[int(head(first).argmax())] for head in heads])
    settings = {"path": str(folder / "random.pth"), "tokenizer": str(folder / "tokenizer")}
    found = labellers.make(Plugin("chexbert", {**settings, "batch": 7})).load("cpu")(texts)
    assert [[row.get(name, "blank") for name in HEADS] for row in found.states] == expected
    assert len({state for row in expected for state in row}) == 4


class Opened:
    """Something that a checkpoint must not contain."""

    def __reduce__(self):
        return print, ("run",)


def test_checkpoints_that_are_not_chexberts_are_refused(folder, capsys) -> None:
    def load(path):
        return labellers.make(Plugin("chexbert", {"path": str(path)})).load("cpu")

    path = folder / "bad.pth"
    with pytest.raises(ArtifactError, match="does not exist"):
        load(folder / "none.pth")
    torch.save({"model_state_dict": {}, "more": Opened()}, path)
    with pytest.raises(ArtifactError, match="cannot be read as tensors"):
        load(path)
    assert "run" not in capsys.readouterr().out
    torch.save({"state": 1}, path)
    with pytest.raises(ArtifactError, match="has no model_state_dict"):
        load(path)
    save_chexbert(path)
    whole = torch.load(path, weights_only=True)
    del whole["model_state_dict"]["module.linear_heads.13.bias"]
    torch.save(whole, path)
    with pytest.raises(ArtifactError, match=r"not CheXbert's checkpoint .*linear_heads.13.bias"):
        load(path)


def test_functions_are_labellers_too() -> None:
    ours = labellers.make("biovl.benchmark.chexpert_findings:label")
    assert "Edema" in ours.findings
    assert said(ours.load("cpu")(["Fracture. No edema."])) == [{"Fracture"}]
    with pytest.raises(ConfigError, match="labellers has no plug-in called 'bert'"):
        labellers.make(Plugin("bert"))
