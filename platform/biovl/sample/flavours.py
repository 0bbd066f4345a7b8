"""Conventions of six publishers for JATS and package files, as data."""

from dataclasses import dataclass, field

_XLINK = 'xmlns:xlink="http://www.w3.org/1999/xlink"'
_MML = 'xmlns:mml="http://www.w3.org/1998/Math/MathML"'
_ALI = 'xmlns:ali="http://www.niso.org/schemas/ali/1.0/"'
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'

CC_BY = (
    '<license license-type="open-access" xlink:href="https://creativecommons.org/licenses/by/4.0/">'
    "<license-p>This is an open access article under the terms of the Creative Commons Attribution "
    "License.</license-p></license>"
)
CC0 = (
    "<license><license-p>This work is made available under the "
    '<ext-link ext-link-type="uri" xlink:href="https://creativecommons.org/publicdomain/zero/1.0/">'
    "Creative Commons CC0</ext-link> public domain dedication.</license-p></license>"
)
CC_BY_REF = (
    '<ali:free_to_read xmlns:ali="http://www.niso.org/schemas/ali/1.0/"/><license>'
    '<ali:license_ref xmlns:ali="http://www.niso.org/schemas/ali/1.0/">'
    "http://creativecommons.org/licenses/by/4.0/</ali:license_ref>"
    "<license-p>Use is unrestricted if the original author and source are credited.</license-p>"
    "</license>"
)
CC_BY_NC_ND = (
    "<license><license-p><bold>Open Access</bold> This article is licensed under a Creative "
    "Commons Attribution-NonCommercial-NoDerivatives 4.0 International License "
    "(http://creativecommons.org/licenses/by-nc-nd/4.0/).</license-p></license>"
)
CC_BY_NC = (
    '<license license-type="open-access" '
    'xlink:href="http://creativecommons.org/licenses/by-nc/4.0/" xml:lang="es">'
    "<license-p>Este es un artículo publicado en acceso abierto bajo una licencia Creative "
    "Commons.</license-p></license>"
)
NO_REUSE = (
    "<license><p>The copyright holder for this preprint is the author. It is <ext-link "
    'ext-link-type="uri" xlink:href="https://www.example.org/about/FAQ">not certified by peer '
    "review</ext-link>. All rights reserved. No reuse allowed without permission.</p></license>"
)


@dataclass(frozen=True)
class Slot:
    """Position of a figure in an article: the JATS around it, and the files of its graphic."""

    structure: str
    files: str
    panels: int | None = None
    """Number of panels; None: random."""


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """Conventions of one publisher.

    In format strings, ``{}`` is the figure's number; in ``stem`` the first ``{}`` is the article's.
    """

    name: str
    journal: str
    prolog: str
    root: str
    licenses: tuple[str, ...]
    """Licences of this publisher's articles, used in turn."""
    slots: tuple[Slot, ...]
    label: str
    word: str
    words: str
    """Abbreviation for several figures: ``Figs.``"""
    figure_id: str
    stem: str
    letters: str
    date: str
    place: str = "sec"
    """Place of the figures in the XML: ``sec``, in sections, or ``floats``, in a floats-group."""
    language: str = "en"
    article_types: tuple[str, ...] = field(default=("research-article",))
    suffix: str = ".nxml"


_DAY = (
    '<pub-date pub-type="epub"><day>{day}</day><month>{month}</month><year>{year}</year></pub-date>'
)
_YEAR = '<pub-date pub-type="collection"><year>{year}</year></pub-date>'

FLAVOURS = (
    Flavour(
        name="pmc",
        journal="Journal of Sample Medicine",
        prolog=_XML + '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Archiving and '
        'Interchange DTD v1.2 20190208//EN" "JATS-archivearticle1.dtd">\n'
        "<?properties open_access?>\n<?DTDIdentifier.IdentifierValue -//NLM//DTD?>\n",
        root=f'{_XLINK} {_MML} article-type="{{type}}"',
        licenses=(CC_BY, CC_BY_NC_ND),
        slots=(
            Slot("plain", "jpg+gif"),
            Slot("in_p", "jpg+gif"),
            Slot("paragraphs", "png", 3),
            Slot("parts", "jpg", 4),
        ),
        label="Figure {}.",
        word="Figure",
        words="Figures",
        figure_id="F{}",
        stem="jsm-{}-g{:03}",
        letters="ABCDEF",
        date=_DAY + _YEAR,
        article_types=("research-article", "case-report", "review-article"),
    ),
    Flavour(
        name="plos",
        journal="Public Sample Library",
        prolog=_XML + '<!DOCTYPE article PUBLIC "-//NLM//DTD Journal Publishing DTD v3.0 20080202//'
        'EN" "http://dtd.nlm.nih.gov/publishing/3.0/journalpublishing3.dtd">\n',
        root=f'{_XLINK} {_MML} article-type="{{type}}" dtd-version="3.0" xml:lang="en"',
        licenses=(CC0, CC_BY),
        slots=(
            Slot("plain", "jpg+tif", 4),
            Slot("plain", "jpg", 2),
            Slot("no_label", "jpg"),
            Slot("plain", "tif", 1),
        ),
        label="Fig {}",
        word="Fig",
        words="Figs",
        figure_id="psl-g{:03}",
        stem="psl.{}.g{:03}",
        letters="ABCDEF",
        date=_YEAR + _DAY,
        suffix=".xml",
    ),
    Flavour(
        name="elife",
        journal="sLife",
        prolog=_XML + '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Archiving and '
        'Interchange DTD v1.1 20151215//EN" "JATS-archivearticle1.dtd">\n',
        root=f'{_XLINK} {_MML} {_ALI} article-type="{{type}}" dtd-version="1.1"',
        licenses=(CC_BY_REF,),
        slots=(
            Slot("plain", "jpg", 6),
            Slot("child", "jpg"),
            Slot("plain", "jpg+tif"),
            Slot("plain", "jpg"),
            Slot("video", "mp4"),
            Slot("response", "jpg", 1),
        ),
        label="Figure {}.",
        word="Figure",
        words="Figures",
        figure_id="fig{}",
        stem="slife-{}-fig{}",
        letters="ABCDEF",
        date='<pub-date date-type="publication" publication-format="electronic"><day>{day}</day>'
        "<month>{month}</month><year>{year}</year></pub-date>",
        suffix=".xml",
    ),
    Flavour(
        name="springer",
        journal="SMC Example Research",
        prolog=_XML + '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Archiving and '
        'Interchange DTD with MathML3 v1.3 20210610//EN" "JATS-archivearticle1-3-mathml3.dtd">\n',
        root=f'{_XLINK} {_MML} article-type="{{type}}" xml:lang="en"',
        licenses=(CC_BY_NC_ND, CC_BY),
        slots=(
            Slot("reused", "jpg"),
            Slot("alternatives", "jpg+print", 4),
            Slot("member", "jpg", 1),
            Slot("member", "jpg", 1),
            Slot("list", "png", 3),
        ),
        label="Fig. {}",
        word="Fig.",
        words="Figs.",
        figure_id="Fig{}",
        stem="SMC_{}_Fig{}_HTML",
        letters="abcdef",
        date='<pub-date date-type="pub" publication-format="electronic" '
        'iso-8601-date="{year}-{month:02}-{day:02}"><day>{day}</day><month>{month}</month>'
        "<year>{year}</year></pub-date>",
        article_types=("review-article", "research-article"),
    ),
    Flavour(
        name="scielo",
        journal="Revista de Ejemplos Médicos",
        prolog=_XML + '<!DOCTYPE article PUBLIC "-//NLM//DTD JATS (Z39.96) Journal Publishing DTD '
        'v1.1 20151215//EN" "JATS-journalpublishing1.dtd">\n',
        root=f'{_XLINK} {_MML} article-type="{{type}}" dtd-version="1.1" '
        'specific-use="sps-1.9" xml:lang="es"',
        licenses=(CC_BY_NC,),
        slots=(
            Slot("plain", "cmyk", 2),
            Slot("plain", "case"),
            Slot("no_caption", "jpg", 1),
            Slot("in_p", "jpg"),
        ),
        label="Figura {}",
        word="Figura",
        words="Figuras",
        figure_id="f{}",
        stem="rem-{}-gf{:02}",
        letters="ABCDEF",
        date='<pub-date pub-type="epub-ppub"><month>{month:02}</month><year>{year}</year>'
        "</pub-date>",
        language="es",
        suffix=".xml",
    ),
    Flavour(
        name="biorxiv",
        journal="sampleRxiv",
        prolog="<?xml version='1.0' encoding='utf-8'?>\n",
        root=f'xmlns="https://jats.nlm.nih.gov/ns/archiving/1.4/" {_XLINK} {_MML} {_ALI} '
        'article-type="preprint" dtd-version="1.4" xml:lang="EN"',
        licenses=(NO_REUSE, CC_BY_REF),
        slots=(
            Slot("reencoded", "jpg", 2),
            Slot("plain", "tif16", 1),
            Slot("plain", "png16", 1),
            Slot("no_id", "webp"),
            Slot("graphical", "jpg", 1),
        ),
        label="Figure {}:",
        word="Fig.",
        words="Figs.",
        figure_id="fig{}",
        stem="{}v1_fig{}",
        letters="abcdef",
        date='<pub-date pub-type="epub"><year>{year}</year></pub-date>',
        place="floats",
    ),
)
