"""What an article says of a figure: in a fixed order, each sentence once, from where."""

from typing import Any

from biovl.annotate.longcap.context import acronyms_in, context_caption, context_of

ABSTRACT = (
    "Many knees hurt every year. Arthroscopic meniscus repair restored stability of the knees of "
    "forty runners. We conclude that more research is needed."
)
BODY = "\n".join(
    [
        "Runners were recruited in the city over three winters by posters.",
        "Repair took an hour, and runners went home on the next morning.",
        "All knees were examined by two surgeons who did not know of each other.",
        "Numbers were compared by tests that are common, and plotted by a program.",
    ]
)


def mention(text: str, reference: str = "Fig. 2", container: str = "body") -> dict[str, Any]:
    """Return a stored paragraph that cites the figure once."""
    start = text.index(reference)
    ref = {"start": start, "end": start + len(reference), "panels": [], "implied": False}
    return {"text": text, "refs": [ref], "superscripts": [], "container": container}


def told(
    caption: str, mentions: list[dict[str, Any]], abstract: str | None = ABSTRACT
) -> list[Any]:
    pieces = context_of(caption, [], mentions, abstract, BODY)
    return [(piece.source, piece.text) for piece in pieces]


def test_caption_citing_sentences_and_the_abstracts_stand_in_this_order() -> None:
    paragraph = (
        "Nothing here. The torn meniscus was sutured with two threads (Fig. 2). Nothing more."
    )
    assert told("Arthroscopic repair of a meniscus, and its stability.", [mention(paragraph)]) == [
        ("caption", "Arthroscopic repair of a meniscus, and its stability."),
        ("body", "The torn meniscus was sutured with two threads."),
        (
            "abstract",
            "Arthroscopic meniscus repair restored stability of the knees of forty runners.",
        ),
    ]


def test_each_sentence_stands_once() -> None:
    twice = "The torn meniscus was sutured with two threads (Fig. 2)."
    found = told(
        "A meniscus. The torn meniscus was sutured with two threads.",
        [mention(twice), mention(twice), mention("It was left like this for a year (Fig. 2).")],
        abstract=None,
    )
    assert found[1:] == [("body", "It was left like this for a year.")]


def test_of_a_panel_only_what_is_said_of_it_counts() -> None:
    cited = mention("Tumours shrank (Fig. 2A) and the mice lived (Fig. 2B) for long.", "Fig. 2B")
    cited["statement"] = "and the mice lived (Fig. 2B) for long."
    assert told("Survival.", [cited], None)[1:] == [("body", "and the mice lived for long.")]


def test_a_sentence_that_a_formula_breaks_is_told_from_its_beginning() -> None:
    cited = mention("The mean m is\nm = s / n,\nwhere s, the sum (Fig. 2), is large. It fell.")
    assert told("A sum.", [cited], None)[1:] == [
        ("body", "The mean m is m = s / n, where s, the sum, is large.")
    ]


def test_sentences_without_beginning_or_end_are_left_out() -> None:
    # Some publishers end the paragraph before a formula, and begin another behind it.
    broken = [
        "where s, the sum of Fig. 2, is large",
        "and runs from the apex to the base (see Fig. 2).",
        "The curve of Fig. 2 is modelled by:",
        "The fit in Fig. 2 is, in the steady state,",
    ]
    assert told("A sum.", [mention(text) for text in broken], None) == [("caption", "A sum.")]
    whole = ["mRNA levels fell (Fig. 2).", "unc-13 is lost in Fig. 2", "p53 levels fell in Fig. 2:"]
    found = told("A sum.", [mention(text) for text in whole], None)[1:]
    assert [text for _, text in found] == [
        "mRNA levels fell.",
        "unc-13 is lost in Fig. 2",
        "p53 levels fell in Fig. 2",
    ]


def test_captions_and_tables_that_cite_the_figure_say_nothing_of_it() -> None:
    other = mention("The same knees as in Fig. 2 after a year.", container="caption")
    boxed = mention("The thread is of silk, as in Fig. 2.", container="box")
    assert told("A meniscus.", [other, boxed], None) == [
        ("caption", "A meniscus."),
        ("box", "The thread is of silk, as in Fig. 2."),
    ]


def test_an_abstract_that_says_nothing_of_the_figure_gives_nothing() -> None:
    assert told("Flow of the posters through the city.", []) == [
        ("caption", "Flow of the posters through the city.")
    ]
    assert told("Knees and runners, years and research.", [])[1:] == []


def test_the_abstracts_sentence_is_of_the_caption_and_not_of_words_that_are_everywhere() -> None:
    # What citing sentences say alone, two words, or words of every other sentence do not count.
    cited = mention("Arthroscopic meniscus repair restored stability of their knees (Fig. 2).")
    assert [source for source, _ in told("A drawing of the tools.", [cited])] == ["caption", "body"]
    assert [source for source, _ in told("Stability of a meniscus.", [])] == ["caption"]
    common = (
        "Repair of the knees of runners by surgeons. " * 3 + "Knees of runners after repair. " * 9
    )
    pieces = context_of("Repair of the knees of runners.", [], [], ABSTRACT, common)
    assert [piece.source for piece in pieces] == ["caption"]


def test_a_figure_without_caption_has_what_cites_it() -> None:
    assert told("", [mention("The torn meniscus was sutured (Fig. 2).")], None) == [
        ("body", "The torn meniscus was sutured.")
    ]
    assert told("", [], ABSTRACT) == []


def test_the_context_caption_has_a_line_for_each_source() -> None:
    mentions = [mention("It was cut in half (Fig. 2)."), mention("It was sewn up (Fig. 2).")]
    assert context_caption(context_of("A meniscus.", [], mentions, None, None)) == (
        "A meniscus.\nIt was cut in half. It was sewn up."
    )


def test_powers_are_readable_and_what_was_published_is_kept() -> None:
    paragraph = mention("We gave 106 cells (Fig. 2).")
    paragraph["superscripts"] = [{"start": 10, "end": 11}]
    (_, piece) = context_of("Cells.", [], [paragraph], None, None)
    assert (piece.text, piece.published) == ("We gave 10^6 cells.", "We gave 10^6 cells (Fig. 2).")


def test_acronyms_of_all_texts_of_the_article_are_known() -> None:
    texts = ("magnetic resonance imaging (MRI)", "computed tomography (CT)", "US images")
    known = acronyms_in(*texts, listed="PET: positron emission tomography")
    assert [item.short for item in known] == ["CT", "MRI", "PET"]
