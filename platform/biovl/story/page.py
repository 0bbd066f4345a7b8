"""The page: its head, some large numbers, and the sections."""

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from biovl.story.markup import Html, element, joined
from biovl.story.reading import Story
from biovl.story.sections import SECTIONS

_LOOK = Path(__file__).with_name("style.css")

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'"
"""Whatever a caption says, a browser loads and runs nothing for this page."""


def render(story: Story, sections: Sequence[ModuleType] = SECTIONS) -> str:
    """Return a whole HTML document that refers to nothing outside itself.

    Args:
        story: What is told; what is not published yet is left out.
        sections: In their order.
    """
    told = [(module, body) for module in sections if (body := module.body(story)) is not None]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("title", f"{_title(story)} · biovl"),
        element("style", Html(_LOOK.read_text())),
    )
    places = [element("a", module.TITLE, href=f"#{_id(module)}") for module, _ in told]
    body = element(
        "body",
        element(
            "header",
            element("span", _logo(), element("b", "biovl"), class_="brand"),
            element("nav", places, aria_label="Sections"),
            class_="top",
        ),
        element(
            "main",
            element(
                "section",
                element("h1", _title(story)),
                element("p", _lead(story), class_="lead"),
                element("ul", [_tile(*fact) for fact in _facts(story)], class_="tiles"),
                class_="hero",
            ),
            [
                element("section", element("h2", module.TITLE), body, id=_id(module))
                for module, body in told
            ],
        ),
        element(
            "footer",
            element("p", f"Made from {story.folder}/ by {_code(story)}."),
            element("p", "Figures belong to their authors, under the licence beside each."),
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _id(module: ModuleType) -> str:
    return module.__name__.rpartition(".")[2].replace("_", "-")


def _title(story: Story) -> str:
    kinds = {chapter.manifest.kind for chapter in story.chapters}
    if "index" in kinds:
        return "From articles to a search engine for figures"
    return "From articles to a model" if "model" in kinds else "From articles to pairs"


def _lead(story: Story) -> str:
    recipe = f"Recipe {story.notes.recipe}: " if story.notes.recipe else ""
    names = ", ".join(chapter.step for chapter in story.chapters)
    known = [chapter.seconds for chapter in story.chapters if chapter.seconds is not None]
    minutes = f" in {sum(known) / 60:,.1f} minutes of work" if known else ""
    return f"{recipe}{names}{minutes}." if names else "Nothing is published yet."


def _facts(story: Story) -> list[tuple[str, str]]:
    """Return the large numbers: each with what it counts."""
    found: list[tuple[str, str]] = []
    figures, corpus = story.of("figures"), story.of("corpus")
    model, index = story.of("model"), story.of("index")
    if figures:
        found.append((f"{figures.manifest.counts['articles']['usable']:,}", "articles read"))
        found.append((f"{figures.manifest.counts['figures']['seen']:,}", "figures in them"))
    if corpus:
        found.append((f"{sum(corpus.manifest.counts['pairs'].values()):,}", "image-text pairs"))
    if model:
        found.append((f"{model.manifest.counts['steps']:,}", "steps of training"))
        scores = model.manifest.notes.get("validation")
        if scores:
            right = scores["text_to_image_recall_at_10"]
            by_chance = scores["chance_recall_at_10"]
            found.append((f"{right:.0%}", f"right image among 10; {by_chance:.0%} by chance"))
    if index:
        found.append((f"{index.manifest.notes['rows']:,}", "figures to search"))
    return found


def _tile(number: str, what: str) -> Html:
    return element("li", element("strong", number), element("span", what))


def _code(story: Story) -> str:
    return joined({chapter.manifest.code: None for chapter in story.chapters}) or "biovl"


def _logo() -> Html:
    lines = element(
        "g",
        element("rect", x=6.5, y=7.5, width=13, height=13, rx=2.5),
        element("circle", cx=20, cy=20, r=5, class_="lens"),
        element("path", d="m23.8 23.8 3 3"),
        element("path", d="M6.8 17.5 10.5 14l3 2.5"),
        class_="strokes",
    )
    box = element("rect", width=32, height=32, rx=7, class_="box")
    return element("svg", box, lines, view_box="0 0 32 32", width=26, height=26, aria_hidden="true")
