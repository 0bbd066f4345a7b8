"""Render a synthetic article as JATS, as its publisher would deposit it."""

from biovl.sample.figure_xml import figure_xml, figures_xml, graphics_xml
from biovl.sample.prose import SECTIONS, Manuscript, PlacedFigure, citing_paragraphs, sentence, xref
from biovl.sample.words import Topic, upper_first

_AUTHORS = ("Ångström|Mia", "O’Neil|Sean", "García-Pérez|Lucía", "Nguyen|Thi Hoa", "Kowalski|Jan")
_APART = ("child", "response", "graphical", "video", "member")
"""Kinds of figures outside the numbered series."""


def write_article(manuscript: Manuscript) -> bytes:
    """Return the JATS XML of an article, UTF-8."""
    flavour = manuscript.flavour
    kind = flavour.article_types[manuscript.turn % len(flavour.article_types)]
    floats = ""
    if flavour.place == "floats":
        placed = "".join(figures_xml(manuscript, _own(manuscript)))
        floats = f"<floats-group>{placed}</floats-group>"
    parts = (
        f"{flavour.prolog}<article {flavour.root.format(type=kind)}>\n",
        f"<front>{_front(manuscript)}</front>\n<body>{_body(manuscript)}</body>\n",
        f"<back>{_back(manuscript)}</back>\n{floats}{_response(manuscript)}</article>\n",
    )
    return "".join(parts).encode()


def _own(manuscript: Manuscript) -> list[PlacedFigure]:
    apart = ("response", "graphical")
    return [figure for figure in manuscript.figures if figure.slot.structure not in apart]


def _title(topic: Topic, language: str) -> str:
    if language == "es":
        return f"Efecto de {topic.drug} sobre {topic.marker} en {topic.disease_es}"
    return (
        f"<italic>{topic.gene}</italic> and {topic.marker} in {topic.disease}: effects of "
        f"{topic.drug} on CD8<sup>+</sup> cells of the {topic.organ}"
    )


def pmid(serial: int) -> int:
    """Return a synthetic PMID: eight digits, far above those that PubMed has assigned."""
    return 99_000_000 + serial % 1_000_000


def _front(m: Manuscript) -> str:
    flavour, topic = m.flavour, m.topic
    year, month, day = 2009 + (m.serial * 5) % 16, 1 + m.serial % 12, 1 + m.serial * 7 % 28
    prefix = m.pmcid if flavour.name in ("plos", "biorxiv") else m.pmcid.removeprefix("PMC")
    ids = {
        "pmid": str(pmid(m.serial)),
        "pmc": prefix,
        "doi": f"10.5555/{flavour.name}.{m.serial}",
        "publisher-id": f"{flavour.name}-{m.serial}",
    }
    # Preprints are not in MEDLINE.
    ids = {
        name: value for name, value in ids.items() if (name, flavour.name) != ("pmid", "biorxiv")
    }
    authors = "".join(
        f'<contrib contrib-type="author"><name><surname>{surname}</surname>'
        f"<given-names>{given}</given-names></name>{_portrait(m) if i == 0 else ''}"
        f'<xref ref-type="aff" rid="aff1"/></contrib>'
        for i, (surname, given) in enumerate(name.split("|") for name in _AUTHORS[m.turn % 3 :])
    )
    issn = "<issn pub-type='epub'>0000-0000</issn>"
    permissions = (
        f"<permissions><copyright-statement>© {year} biovl. This article is "
        "synthetic.</copyright-statement>"
        f"{flavour.licenses[m.turn % len(flavour.licenses)]}</permissions>"
    )
    return (
        "<journal-meta><journal-title-group>"
        f"<journal-title>{flavour.journal} (synthetic)</journal-title>"
        f"</journal-title-group>{issn}</journal-meta>\n<article-meta>"
        + "".join(f'<article-id pub-id-type="{k}">{v}</article-id>' for k, v in ids.items())
        + '<article-categories><subj-group subj-group-type="heading"><subject>Research Article'
        f"</subject><subj-group><subject>{topic.organ.capitalize()}</subject></subj-group>"
        "</subj-group></article-categories>"
        f"<title-group><article-title>{_title(topic, flavour.language)}</article-title>"
        f"{_translated_title(m)}</title-group>"
        f"<contrib-group>{authors}<aff id='aff1'><label>1</label>Institute of Examples</aff>"
        f"</contrib-group>{flavour.date.format(day=day, month=month, year=year)}"
        f"<volume>{year - 2000}</volume><issue>{month}</issue><elocation-id>e{m.serial % 10000}"
        f"</elocation-id>{permissions}{_abstracts(m)}{_keywords(m)}</article-meta>"
    )


def _portrait(m: Manuscript) -> str:
    if "portrait" not in m.extras:
        return ""
    return f'<bio><p><graphic xlink:href="{m.extras["portrait"]}"/>The first author.</p></bio>'


def _translated_title(m: Manuscript) -> str:
    if m.flavour.language == "en":
        return ""
    title = _title(m.topic, "en")
    return (
        f'<trans-title-group xml:lang="en"><trans-title>{title}</trans-title></trans-title-group>'
    )


def _abstracts(m: Manuscript) -> str:
    topic, language = m.topic, m.flavour.language
    said = [sentence(topic, language, m.turn + i) for i in range(4)]
    if m.flavour.name in ("pmc", "springer"):
        titles = ("Background", "Methods", "Results", "Conclusions")
        text = "".join(
            f"<sec><title>{title}</title><p>{line}</p></sec>"
            for title, line in zip(titles, said, strict=True)
        )
    else:
        text = f"<p>{' '.join(said)}</p>"
    abstracts = f"<abstract>{text}</abstract>"
    if language != "en":
        translated = " ".join(sentence(topic, "en", i) for i in range(3))
        abstracts += f'<trans-abstract xml:lang="en"><p>{translated}</p></trans-abstract>'
    for figure in m.figures:
        if figure.slot.structure == "graphical":
            abstracts += (
                f'<abstract abstract-type="graphical"><title>Graphical abstract</title><p>'
                f'{figure.caption.title}<fig id="ga1" position="anchor">'
                f"{graphics_xml(figure)}</fig>"
                "</p></abstract>"
            )
    return abstracts


def _keywords(m: Manuscript) -> str:
    topic = m.topic
    words = (topic.disease, topic.drug, f"<italic>{topic.gene}</italic>", topic.marker)
    if m.flavour.language == "es":
        words = (topic.disease_es, topic.drug, topic.gene, topic.organ_es)
    group = "".join(f"<kwd>{word}</kwd>" for word in words)
    return f'<kwd-group kwd-group-type="author" xml:lang="{m.flavour.language}">{group}</kwd-group>'


def _body(m: Manuscript) -> str:
    language, topic = m.flavour.language, m.topic
    introduction, methods, results, discussion = SECTIONS[language]
    cited = '<xref ref-type="bibr" rid="B1">1</xref>'
    series = [f for f in m.figures if f.slot.structure not in _APART and f.xml_id]
    figures = dict(zip(map(id, _own(m)), figures_xml(m, _own(m)), strict=True))
    sections = []
    for i, figure in enumerate(series):
        paragraphs = citing_paragraphs(figure, series, m.flavour, topic, 3 * (m.serial + i))
        xml = "" if m.flavour.place == "floats" else figures.pop(id(figure))
        if figure.slot.structure == "in_p":
            paragraphs[0] += f"{xml} {sentence(topic, language, i)}"
            xml = ""
        text = "".join(f"<p>{paragraph}</p>\n" for paragraph in paragraphs)
        sections.append(f"<sec><title>{topic.marker} {i + 1}</title>{text}{xml}</sec>\n")
    others = "" if m.flavour.place == "floats" else "".join(figures.values())
    # References occur in lists, tables and their notes as well as in paragraphs.
    item = f"{sentence(topic, language, 1)} ({xref(m.flavour.word + ' 1', series[0])})"
    apart = [f for f in _own(m) if f.slot.structure in _APART]
    also = "".join(
        f"<p>{upper_first(f.subject)} agreed ({xref(str(f.label).rstrip('.:'), f)}).</p>"
        for f in apart
    )
    return (
        f"<sec><title>1 {introduction}</title><p>{sentence(topic, language, 0)} [{cited}]</p></sec>"
        f"<sec><title>2 {methods}</title><p>{sentence(topic, language, 2)} {_formula(m)}</p>"
        f"{_table(m, series[-1])}</sec>\n"
        f"<sec><title>3 {results}</title>{''.join(sections)}{others}</sec>\n"
        f'<sec><title>4 {discussion}</title><list list-type="bullet"><list-item><p>{item}</p>'
        f"</list-item><list-item><p>{sentence(topic, language, 3)}</p></list-item></list>"
        f"{also}</sec>"
    )


def _formula(m: Manuscript) -> str:
    equation = m.extras.get("equation")
    if equation:
        return (
            f'<inline-graphic xlink:href="{equation}"/> <disp-formula id="E1"><graphic '
            f'xlink:href="{equation}"/><label>(1)</label></disp-formula>'
        )
    preamble = "\\documentclass[12pt]{minimal}\\usepackage{amsmath}"
    tex = f"{preamble}\\begin{{document}}$$x_i^2$$\\end{{document}}"
    return (
        f'<inline-formula id="IEq1"><alternatives><tex-math id="M1">{tex}</tex-math><mml:math>'
        "<mml:msubsup><mml:mi>x</mml:mi><mml:mi>i</mml:mi><mml:mn>2</mml:mn></mml:msubsup>"
        "</mml:math></alternatives></inline-formula>"
    )


def _table(m: Manuscript, figure: PlacedFigure) -> str:
    if "table" in m.extras:
        content = f'<graphic xlink:href="{m.extras["table"]}"/>'
    else:
        row = f"<tr><td>{m.topic.marker}</td><td>{xref(m.flavour.word, figure)}</td></tr>"
        content = f"<table><tbody>{row}</tbody></table>"
    return (
        '<table-wrap id="T1"><label>Table 1</label><caption><p>'
        f"{sentence(m.topic, m.flavour.language, 4)}</p></caption>{content}</table-wrap>"
    )


def _response(m: Manuscript) -> str:
    answers = [figure for figure in m.figures if figure.slot.structure == "response"]
    if not answers:
        return ""
    text = "".join(
        f"<p>We agree and show it in {xref('Author response image 1', figure)}.</p>"
        f"{figure_xml(m, figure)}"
        for figure in answers
    )
    return (
        '<sub-article article-type="reply" id="SA2"><front-stub><article-id pub-id-type="doi">'
        f"10.5555/{m.flavour.name}.{m.serial}.sa2</article-id><title-group><article-title>Author "
        f"response</article-title></title-group></front-stub><body>{text}</body></sub-article>\n"
    )


def _back(m: Manuscript) -> str:
    references = "".join(
        f'<ref id="B{i}"><label>{i}</label><element-citation publication-type="journal"><source>J '
        f"Sample</source><year>{2000 + i}</year>"
        f'<pub-id pub-id-type="pmid">{pmid((m.serial * 3 + i * 7) % 24 + 1)}</pub-id>'
        "</element-citation></ref>"
        for i in range(1, 5)
    )
    supplement = ""
    if "supplement" in m.extras:
        supplement = (
            '<sec sec-type="supplementary-material"><title>Supplement</title>'
            '<supplementary-material id="S1"><label>S1 File</label>'
            f'<media xlink:href="{m.extras["supplement"]}"/></supplementary-material></sec>'
        )
    return f"<ack><p>We thank everyone.</p></ack>{supplement}<ref-list>{references}</ref-list>"
