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
    "!!! ??? ... (((())))",
]


def test_counts_equal_those_of_open_clips_tokenizer() -> None:
    reference = SimpleTokenizer()
    expected = [len(reference.encode(text)) for text in TEXTS]
    assert clip_token_counts(TEXTS).tolist() == expected


def test_counting_together_equals_counting_one_by_one() -> None:
    assert clip_token_counts(TEXTS).tolist() == [int(clip_token_counts([t])[0]) for t in TEXTS]
