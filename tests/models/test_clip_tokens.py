from open_clip.tokenizer import SimpleTokenizer

from biovl.models.clip_tokens import clip_token_counts

TEXTS = [
    "",
    "a",
    "Chest X-ray of a 54-year-old man: (A) PA view, (B) lateral view.",
    "The patient's CT  wasn't\nremarkable; p<0.05, n=12 (10^6 cells/mL) — 37 °C, β-actin, Ca2+.",
    "Immunohistochemistry immunofluorescence pneumonoultramicroscopicsilicovolcanoconiosis",
    "Étude rétrospective: características clínicas; 染色 … ½ µm ± 3 σ",
    "x" * 500,
    # Of the last merges.
    "lifespan exceeds interestingly exclude inactive probiotics",
    # What ftfy and the entities of HTML repair.
    "patient’s “lesions” … ﬁbrosis \ufffc = 5; schÃ¶n, A &amp;amp; B &lt; 5 µm\u200b",
    "!!! ??? ... (((())))",
    # Control characters, which ftfy removes.
    "\x07A\x00B\x7f",
]


def test_counts_equal_those_of_open_clips_tokenizer() -> None:
    reference = SimpleTokenizer()
    expected = [len(reference.encode(text)) for text in TEXTS]
    assert clip_token_counts(TEXTS).tolist() == expected


def test_every_merge_of_the_vocabulary_is_one_token() -> None:
    reference = SimpleTokenizer()
    words = [token.removesuffix("</w>") for token in reference.encoder if token.endswith("</w>")]
    plain = [word for word in words if word.isascii() and word.isalpha()]
    assert len(plain) > 20_000
    expected = [len(reference.encode(word)) for word in plain]
    assert clip_token_counts(plain).tolist() == expected


def test_counting_together_equals_counting_one_by_one() -> None:
    assert clip_token_counts(TEXTS).tolist() == [int(clip_token_counts([t])[0]) for t in TEXTS]
