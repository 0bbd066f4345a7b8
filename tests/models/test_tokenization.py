"""Token ids are those of stock open_clip, padding removed."""

import json
import pickle

import numpy as np
import open_clip
import pytest

from biovl.core.errors import ArtifactError, ConfigError
from biovl.models import tokenization

WORDS = "the patient has a small nodule in left lung ##s scan of chest 3 . , ( ) tumor cell".split()
TEXTS = [
    "Axial CT of the chest.",
    "  The patient&#39;s   left lung\nhas a small nodule (p < 0.05, n = 12).",
    "Î¼m scale bar &amp;amp; Î±-SMA staining",  # mojibake, which ftfy repairs
    "µm, β-catenin, 5 ﬁbroblasts — naïve CD4⁺ <start_of_text> 'S ſ",
    "",
    "tumor " * 600,
]


@pytest.fixture
def bert_folder(tmp_path):
    """A folder as the hub's older BERTs are: a vocabulary and the model's shape, no more."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *"bcdefghijklmnop"]
    (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    config = {"model_type": "bert", "vocab_size": len(vocabulary)}
    (tmp_path / "config.json").write_text(json.dumps(config))
    return tmp_path


@pytest.mark.parametrize("context", [3, 16, 77])
def test_clip_ids_are_those_of_open_clip(context):
    ours = tokenization.make("", context).encode(TEXTS)
    stock = open_clip.SimpleTokenizer()(TEXTS, context_length=context)
    for mine, row in zip(ours, stock.numpy(), strict=True):
        assert mine.dtype == np.int32
        assert (np.pad(mine, (0, context - len(mine))) == row).all()


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("context", [3, 16, 256])
def test_ids_of_a_hugging_face_folder_are_those_of_open_clip(bert_folder, context, side):
    settings = {"tokenizer_class": "BertTokenizer", "truncation_side": side}
    (bert_folder / "tokenizer_config.json").write_text(json.dumps(settings))
    ours = tokenization.make(str(bert_folder), context).encode(TEXTS)
    stock = open_clip.tokenizer.HFTokenizer(str(bert_folder), context_length=context)(TEXTS)
    for mine, row in zip(ours, stock.numpy(), strict=True):
        assert (np.pad(mine, (0, context - len(mine))) == row).all()


def test_a_known_word_of_a_folder_with_only_a_vocabulary_is_known(bert_folder):
    (ids,) = tokenization.make(str(bert_folder), 77).encode(["The patient has a nodule"])
    unknown, first = 1, 5
    assert list(ids) == [
        2,
        *(first + WORDS.index(w) for w in "the patient has a nodule".split()),
        3,
    ]
    assert unknown not in ids


def test_padding_that_a_text_spells_is_no_token(bert_folder):
    tokenizer = tokenization.make(str(bert_folder), 16)
    spelled, plain = tokenizer.encode(["a [PAD] nodule [PAD]", "a nodule"])
    assert tokenizer.pad_id not in spelled
    assert list(spelled) == list(plain)


def test_a_long_text_keeps_its_end_token(bert_folder):
    for source, end in (("", 49407), (str(bert_folder), 3)):
        (ids,) = tokenization.make(source, 10).encode(["tumor " * 50])
        assert len(ids) == 10
        assert ids[-1] == end


def test_a_tokenizer_travels_to_workers(bert_folder, tmp_path):
    for source in ("", str(bert_folder)):
        tokenizer = tokenization.make(source, 12)
        there = pickle.loads(pickle.dumps(tokenizer))
        for here, away in zip(tokenizer.encode(TEXTS), there.encode(TEXTS), strict=True):
            assert (here == away).all()
        there.save(tmp_path / "saved")
    (ids,) = tokenization.make(str(tmp_path / "saved"), 40).encode(["tumor " * 50])
    assert len(ids) == 40


def test_sizes_are_those_the_tower_needs(bert_folder):
    clip, bert = tokenization.make("", 77), tokenization.make(str(bert_folder), 256)
    assert (clip.vocab_size, clip.pad_id, clip.context_length) == (49_408, 0, 77)
    assert (bert.vocab_size, bert.pad_id, bert.context_length) == (5 + len(WORDS) + 15, 0, 256)


def test_a_saved_tokenizer_is_the_same_again(bert_folder, tmp_path):
    tokenizer = tokenization.make(str(bert_folder), 12)
    saved = tmp_path / "saved"
    tokenizer.save(saved)
    again = tokenization.make(str(saved), 12)
    for one, two in zip(tokenizer.encode(TEXTS), again.encode(TEXTS), strict=True):
        assert (one == two).all()
    # What was saved knows no context of its own: another model may read further.
    (ids,) = tokenization.make(str(saved), 40).encode(["tumor " * 50])
    assert len(ids) == 40


def test_words_are_not_kept_for_ever(monkeypatch):
    monkeypatch.setattr(tokenization, "_MOST_WORDS_KEPT", 5)
    tokenizer = tokenization.ClipTokenizer()
    texts = ["carcinoma metastasis biopsy", "<end_of_text> histology", "lymphoma"]
    first = [tokenizer.encode([text])[0] for text in texts]
    second = [tokenizer.encode([text])[0] for text in texts]
    assert all((a == b).all() for a, b in zip(first, second, strict=True))
    assert len(tokenizer._reference.cache) < 12


def test_a_folder_without_a_vocabulary_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ArtifactError, match="holds"):
        tokenization.make(str(tmp_path), 77)


def test_a_context_without_room_for_a_word_is_refused():
    with pytest.raises(ConfigError, match=r"\b3\b.* 2\b"):
        tokenization.make("", 2)
