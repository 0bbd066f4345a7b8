"""Where licences hide, what they are called, and what they allow."""

import csv
import tarfile
from pathlib import Path

import pytest
from lxml import etree

from biovl.articles.content import License
from biovl.articles.licenses import (
    PUBLIC_DOMAIN,
    RESERVED,
    group_of,
    license_from_text,
    license_of,
)

NAMESPACES = (
    'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:ali="http://www.niso.org/schemas/ali/1.0/"'
)
BY = "http://creativecommons.org/licenses/by/4.0/"
ATTRIBUTION = (
    "distributed under the terms of the Creative Commons Attribution License, which permits"
)


def stated(inner: str) -> License:
    return license_of([etree.fromstring(f"<permissions {NAMESPACES}>{inner}</permissions>")])


@pytest.mark.parametrize(
    "inner",
    [
        f'<license xlink:href="{BY}"><license-p>Open access</license-p></license>',
        f"<license><ali:license_ref>{BY}</ali:license_ref></license>",
        f"<license><ali:license_ref>\n  {BY}\n</ali:license_ref></license>",
        f'<license><license-p>By <ext-link xlink:href="{BY}">this</ext-link></license-p></license>',
        f'<license><p>See <ext-link xlink:href="{BY}">this</ext-link>.</p></license>',
        f"<license><license-p>See <uri>{BY}</uri>.</license-p></license>",
        f"<license><license-p>See ({BY}).</license-p></license>",
        f'<copyright-statement><ext-link xlink:href="{BY}">by</ext-link></copyright-statement>',
        "<license><license-p>A Creative Commons Attribution 4.0 licence</license-p></license>",
        "<copyright-statement>Creative Commons Attribution 4.0 (CC BY).</copyright-statement>",
        '<license license-type="CC BY 4.0"/>',
    ],
)
def test_a_licence_is_found_wherever_it_hides(inner: str) -> None:
    found = stated(inner)
    assert (found.spdx, found.group) == ("CC-BY-4.0", "commercial")


def test_the_namespace_of_a_licence_reference_may_lack_its_slash() -> None:
    inner = f'<a:license_ref xmlns:a="http://www.niso.org/schemas/ali/1.0">{BY}</a:license_ref>'
    assert stated(f"<license>{inner}</license>").url == BY


def test_early_articles_state_it_in_a_bare_copyright_statement() -> None:
    statement = etree.fromstring(
        f"<copyright-statement>© 2004 Ransom et al. An article {ATTRIBUTION}</copyright-statement>"
    )
    assert license_of([statement]) == License("CC-BY", None, "commercial")


@pytest.mark.parametrize(
    ("text", "spdx"),
    [
        ("CC BY 4.0", "CC-BY-4.0"),
        ("CC BY 4", "CC-BY-4.0"),
        ("CCBY4.0", "CC-BY-4.0"),
        ("cc-by", "CC-BY"),
        ("cc_by_nc_4.0", "CC-BY-NC-4.0"),
        ("CC BY NC ND 4.0", "CC-BY-NC-ND-4.0"),
        ("CCBY-NC-ND", "CC-BY-NC-ND"),
        ("CC0", "CC0-1.0"),
        ("CC BY 2012 Smith et al.", "CC-BY"),
        ("https://spdx.org/licenses/CC-BY-SA-4.0.html", "CC-BY-SA-4.0"),
        ("creativecommons.org/licenses/by-nc/4.0", "CC-BY-NC-4.0"),
        ("http://creativecommons.org/licenses/by-nd-nc/1.0/", "CC-BY-NC-ND-1.0"),
        ("http://creativecommons.org/licenses/publicdomain/", "CC-PDDC"),
        ("http://creativecommons.org/publicdomain/mark/1.0/", "CC-PDM-1.0"),
        ("https://creativecommons.org/publicdomain/zero/1.0/", "CC0-1.0"),
        # Wiley, SAGE and others write the licence's type in one word.
        ("creativeCommonsBy", "CC-BY"),
        ("creativeCommonsBy-nc-nd", "CC-BY-NC-ND"),
        ("creative-commons-attribution", "CC-BY"),
        # Prose.
        (ATTRIBUTION, "CC-BY"),
        ("Creative Commons Attribution Non-Commercial License", "CC-BY-NC"),
        ("Creative Commons Non-Commercial License", "CC-BY-NC"),
        ("Creative Commons Deed, Attribution 2.5", "CC-BY-2.5"),
        ("the Creative Commons by Attribution (CC-BY) license", "CC-BY"),
        ("Creative Commons Attribution (CC BY-NC) license", "CC-BY-NC"),
        ("Creative Commons Attribution – Non Commercial (unported, v3.0) License", "CC-BY-NC-3.0"),
        ("Creative Commons Attribution‐NonCommercial‐NoDerivs License", "CC-BY-NC-ND"),
        ("Creative Commons Attribution-Noncommercial-Share Alike 3.0 Unported", "CC-BY-NC-SA-3.0"),
        ("CC BY-NonCommercial 4.0", "CC-BY-NC-4.0"),
        ("Creative Commons Attribution 4.0 Non-Commercial License", "CC-BY-NC-4.0"),
        (
            "Creative Commons Attribution 4.0 International NonCommercial-NoDerivatives",
            "CC-BY-NC-ND-4.0",
        ),
        ("CC BY 4.0 Deed | Attribution-NonCommercial", "CC-BY-NC-4.0"),
        ("Creative Commons Attribution and Non-Commercial License", "CC-BY-NC"),
        ("Creative Commons Attribution Noncommerical License", "CC-BY-NC"),
        ("Creative Commons Attribution 4.0. Non-commercial re-use is welcome, too", "CC-BY-4.0"),
        ("a licença Creative Commons Attribution, que permite uso", "CC-BY"),
        ("Creative Commons Atribuição-NãoComercial-CompartilhaIgual 4.0", "CC-BY-NC-SA-4.0"),
        (
            "Licencia Creative Commons Atribución-NoComercial-SinDerivadas 4.0 Internacional",
            "CC-BY-NC-ND-4.0",
        ),
        ("the Creative Commons CC0 public domain dedication", "CC0-1.0"),
        ("the Creative Commons Public Domain Declaration, which stipulates that", "CC0-1.0"),
        ("This is a U.S. Government work and lies in the public domain", PUBLIC_DOMAIN),
        ("© 2004, American Society for Cell Biology, All Rights Reserved", RESERVED),
        ("Reprinted from Smith et al. (2003), with permission from Elsevier", RESERVED),
        # These say nothing about what is allowed.
        ("open-access", None),
        ("TDM", None),
        ("NO-CC CODE", None),
        ("licensed under Creative Commons. By accessing the work", None),
        ("available under Creative Commons by the authors", None),
        ("http://creativecommons.org/licenses/bylaws", None),
        ("", None),
    ],
)
def test_the_names_of_licences(text: str, spdx: str | None) -> None:
    assert license_from_text(text).spdx == spdx


@pytest.mark.parametrize(
    ("text", "spdx"),
    [
        ("https://creativecommons.org/licenses/by-nc-nd/3.0/igo/legalcode.", "CC-BY-NC-ND-3.0-IGO"),
        ("CC BY-NC-SA 3.0 IGO", "CC-BY-NC-SA-3.0-IGO"),
        ("Creative Commons Attribution 3.0 IGO License", "CC-BY-3.0-IGO"),
        ("http://creativecommons.org/licenses/by/3.0/de/", "CC-BY-3.0-DE"),
        # SPDX has no identifier for this port.
        ("http://creativecommons.org/licenses/by/2.0/uk/", "CC-BY-2.0"),
    ],
)
def test_a_port_is_named_where_spdx_names_it(text: str, spdx: str) -> None:
    assert license_from_text(text).spdx == spdx


def test_of_a_link_and_prose_the_one_that_allows_less_holds() -> None:
    stricter = BY.replace("by", "by-nc")
    for link, words, holds in (
        (stricter, "Attribution 3.0", License("CC-BY-NC-4.0", stricter, "noncommercial")),
        (BY, "Attribution 3.0", License("CC-BY-4.0", BY, "commercial")),
        (BY, "Attribution Non-Commercial 3.0", License("CC-BY-NC-3.0", None, "noncommercial")),
    ):
        prose = f"<license-p>Creative Commons {words} License</license-p>"
        assert stated(f'<license xlink:href="{link}">{prose}</license>') == holds


def test_of_two_links_the_one_that_allows_less_holds() -> None:
    stricter = BY.replace("by", "by-nc-nd")
    assert stated(f'<license xlink:href="{stricter}"/><license xlink:href="{BY}"/>') == License(
        "CC-BY-NC-ND-4.0", stricter, "noncommercial"
    )


def test_a_waiver_for_the_data_does_not_loosen_the_article() -> None:
    waiver = "http://creativecommons.org/publicdomain/zero/1.0/"
    found = stated(f"<license><p>See {BY}. For the data, {waiver} applies.</p></license>")
    assert found.spdx == "CC-BY-4.0"


def test_prose_adds_the_version_that_a_code_lacks_or_a_restriction() -> None:
    prose = "<p>Creative Commons Attribution{} 3.0 License</p>"
    coded = '<license license-type="creativeCommonsBy">{}</license>'
    assert stated(coded.format(prose.format(""))).spdx == "CC-BY-3.0"
    assert stated(coded.format(prose.format("-NoDerivs"))).spdx == "CC-BY-ND-3.0"


@pytest.mark.parametrize(
    "licence",
    ["CC-BY 4.0 licence", f'<ext-link xlink:href="{BY}">CC-BY 4.0</ext-link> licence', BY],
)
def test_a_figure_left_out_of_the_licence_is_reserved(licence: str) -> None:
    assert (
        stated(
            "<license><license-p>Panel B is reproduced with permission. It is not covered by the "
            f"{licence} and further reproduction would need permission.</license-p></license>"
        ).spdx
        == RESERVED
    )


def test_the_usual_words_on_third_party_material_take_nothing_back() -> None:
    found = stated(
        "<license><p>Licensed under a Creative Commons Attribution 4.0 International License. If "
        "material is not included in the article’s Creative Commons licence, you will need to "
        "obtain permission from the copyright holder. © 2020, all rights reserved</p></license>"
    )
    assert found.spdx == "CC-BY-4.0"


def test_a_licence_of_the_publishers_own_keeps_its_link() -> None:
    url = "http://www.elsevier.com/open-access/userlicense/1.0/"
    assert stated(f'<license xlink:href="{url}"/>') == License(None, url, "other")


@pytest.mark.parametrize(
    "permissions", [[], [etree.fromstring("<permissions><license/></permissions>")]]
)
def test_nothing_stated_is_no_licence(permissions: list[etree._Element]) -> None:
    assert license_of(permissions) == License(None, None, "other")


@pytest.mark.parametrize(
    ("spdx", "group"),
    [
        ("CC0-1.0", "commercial"),
        ("CC-BY", "commercial"),
        ("CC-BY-4.0", "commercial"),
        ("CC-BY-3.0-IGO", "commercial"),
        ("CC-BY-SA-4.0", "commercial"),
        ("CC-BY-ND-4.0", "commercial"),
        ("CC-BY-NC", "noncommercial"),
        ("CC-BY-NC-SA-3.0-IGO", "noncommercial"),
        ("CC-BY-NC-ND-4.0", "noncommercial"),
        ("CC-PDM-1.0", "other"),
        (PUBLIC_DOMAIN, "other"),
        (RESERVED, "other"),
        ("MIT", "other"),
        (None, "other"),
    ],
)
def test_groups_are_those_of_pmc(spdx: str | None, group: str) -> None:
    assert group_of(spdx) == group


@pytest.mark.shared
def test_licences_of_real_articles_are_those_in_their_list_of_sources(shared_data: Path) -> None:
    with (shared_data / "SOURCES.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        listed = {row["path"].rsplit("/", 1)[-1]: row["licence"] for row in rows}
    differ = {
        article: (listed[article], found.spdx)
        for article, found in _real_licences(shared_data)
        if article in listed
        and listed[article].replace(" (text)", "").replace(" ", "-")
        not in (found.spdx, (found.spdx or "")[: -len("-1.0")])
    }
    # The list takes a public domain mark for CC0, and four dedications by PLOS for CC BY.
    assert sorted(differ.values()) == [
        ("CC BY (text)", "CC0-1.0"),
        ("CC BY (text)", "CC0-1.0"),
        ("CC BY (text)", "CC0-1.0"),
        ("CC BY (text)", "CC0-1.0"),
        ("CC0", "CC-PDM-1.0"),
    ]


def _real_licences(shared_data: Path) -> list[tuple[str, License]]:
    found = []
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    with tarfile.open(shared_data / "nxml.tar.gz") as archive:
        for member in archive:
            if file := archive.extractfile(member):
                meta = etree.parse(file, parser).find(".//front/article-meta")
                # One article is in a namespace, which only the reader takes away.
                if meta is not None:
                    parts = meta.iterchildren("permissions", "license", "copyright-statement")
                    found.append((member.name.split("/")[-2], license_of(list(parts))))
    return found
