"""The URL of a pair's licence is that of its figure."""

import pyarrow as pa
import pytest

from biovl.assemble.pairs import article_facts, candidates
from biovl.core import records
from biovl.core.records import Article, Figure
from biovl.harvest.rows import rows
from biovl.harvest.sources import Package
from biovl.split.rows import figure_of

BY, BY_NC_ND = (f"https://creativecommons.org/licenses/{name}/4.0/" for name in ("by", "by-nc-nd"))


def harvested() -> tuple[pa.Table, pa.Table]:
    """Return two figures, of which the first has its own licence, and their article."""
    of_article, own = (
        f'<permissions><license xlink:href="{url}"/></permissions>' for url in (BY, BY_NC_ND)
    )
    figures = "".join(
        f"<fig id='f{n}'><caption><p>C</p></caption>{rights}<graphic xlink:href='f{n}'/></fig>"
        for n, rights in enumerate((own, ""))
    )
    xml = (
        "<article xmlns:xlink='http://www.w3.org/1999/xlink'><front><article-meta>"
        f"{of_article}</article-meta></front><body>{figures}</body></article>"
    )
    *found, article = rows(Package(name="P", uri="u", xml=xml.encode()))
    return records.table(Figure, found).drop_columns("image"), records.table(Article, [article])


def urls(figures: pa.Table, articles: pa.Table) -> list[str | None]:
    made = candidates(figures, article_facts(articles, figures), "caption")
    return made["license_url"].to_pylist()


def test_a_figure_with_its_own_licence_has_its_url() -> None:
    assert urls(*harvested()) == [BY_NC_ND, BY]


@pytest.mark.parametrize("is_split", [False, True])
def test_figures_of_earlier_versions_have_the_url_of_the_same_licence_only(is_split: bool) -> None:
    figures, articles = harvested()
    figures = figures.drop_columns("license_url")
    if is_split:
        # What split makes of them has the column, without values.
        read = [figure_of(row) for row in figures.to_pylist()]
        figures = records.table(Figure, read).drop_columns("image")
    assert urls(figures, articles) == [None, BY]
