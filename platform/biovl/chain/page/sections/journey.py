"""Section with the input and output counts of each step, and the reasons of dropped rows."""

from biovl.chain.page.flow import Flow, flows
from biovl.chain.page.markup import Html, element
from biovl.chain.page.reading import Chapter, Story

TITLE = "What became of everything"


def body(story: Story) -> Html | None:
    """Return bars for every step, with the reason of every dropped row."""
    if not story.chapters:
        return None
    # Articles and figures are counted in different units.
    most: dict[bool, int] = {}
    for chapter in story.chapters:
        for flow in flows(chapter.manifest):
            most[flow.what == "articles"] = max(most.get(flow.what == "articles", 1), flow.seen)
    lead = element(
        "p",
        "Nothing is lost in silence: what came in is what went out and what was left out, each "
        "with its reason.",
        class_="lead",
    )
    return element("div", lead, element("ol", _steps(story, most), class_="steps"))


def _steps(story: Story, most: dict[bool, int]) -> list[Html]:
    return [
        element(
            "li",
            element(
                "div",
                element("h3", chapter.step),
                element("code", f"{chapter.uri}/"),
                _time(chapter),
                class_="step",
            ),
            element(
                "div",
                [_flow(flow, most[flow.what == "articles"]) for flow in flows(chapter.manifest)],
                class_="flows",
            ),
        )
        for chapter in story.chapters
    ]


def _time(chapter: Chapter) -> Html | None:
    if chapter.seconds is None:
        return None
    minutes, seconds = divmod(round(chapter.seconds), 60)
    hours, rest = divmod(minutes, 60)
    text = f"{hours} h {rest} min" if hours else f"{minutes} min {seconds} s"
    return element("span", text if minutes else f"{seconds} s", class_="aside")


def _flow(flow: Flow, most: int) -> Html:
    share = 100 * flow.kept / most
    # Keep even one dropped article among millions visible.
    lost = max(100 * (flow.seen - flow.kept) / most, 0.6 if flow.seen > flow.kept else 0)
    bar = element(
        "div",
        element("span", class_="kept", style=f"width:{share:.2f}%"),
        element("span", class_="lost", style=f"width:{lost:.2f}%"),
        class_="bar-line",
        aria_hidden="true",
    )
    words = element(
        "p",
        element("strong", f"{flow.kept:,}"),
        f" {flow.kept_are} of {flow.seen:,} {flow.what}"
        if flow.kept != flow.seen or flow.dropped
        else f" {flow.what}",
        element("span", f" · {flow.note}", class_="soft") if flow.note else None,
    )
    return element("div", words, bar, _into(flow), _reasons(flow), class_="flow")


def _into(flow: Flow) -> Html | None:
    if not flow.into:
        return None
    parts = [element("span", f"{name} {count:,}") for name, count in flow.into.items()]
    return element("p", parts, class_="into")


def _reasons(flow: Flow) -> Html | None:
    if not flow.dropped:
        return None
    ordered = sorted(flow.dropped.items(), key=lambda item: -item[1])
    total = sum(flow.dropped.values())
    return element(
        "details",
        element("summary", f"{total:,} left out, for {_reasons_said(len(ordered))}"),
        element(
            "ul",
            [
                element("li", element("span", f"{count:,}"), element("bdi", reason))
                for reason, count in ordered
            ],
            class_="reasons",
        ),
        open=len(ordered) <= 8,
    )


def _reasons_said(count: int) -> str:
    return "one reason" if count == 1 else f"{count} reasons"
