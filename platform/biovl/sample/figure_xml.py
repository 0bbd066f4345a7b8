"""Render figures as JATS, including the structures that are hard to parse."""

from collections.abc import Iterable

from biovl.sample.prose import Manuscript, PlacedFigure, xref


def figures_xml(m: Manuscript, figures: Iterable[PlacedFigure]) -> list[str]:
    """Return the XML of each figure; empty if the XML of the previous figure contains it."""
    figures = list(figures)
    written = []
    for i, figure in enumerate(figures):
        structure = figure.slot.structure
        before = figures[i - 1].slot.structure if i else ""
        after = figures[i + 1] if i + 1 < len(figures) else None
        if structure == "child" or (structure == "member" and before == "member"):
            written.append("")
        elif structure == "member" and after is not None:
            written.append(
                f'<fig-group id="FG{figure.number}"><label>{figure.label}</label><caption><title>'
                f"{figure.caption.title}</title></caption>"
                f"{figure_xml(m, figure, label='(A)')}"
                f"{figure_xml(m, after, label='(B)')}</fig-group>\n"
            )
        elif after is not None and after.slot.structure == "child":
            written.append(figure_xml(m, figure, inside=figure_xml(m, after)))
        else:
            written.append(figure_xml(m, figure))
    return written


def figure_xml(
    m: Manuscript, figure: PlacedFigure, *, label: str | None = None, inside: str = ""
) -> str:
    """Return the ``<fig>`` element of a figure, with ``inside`` nested in it."""
    structure = figure.slot.structure
    label = label or figure.label
    attributes = f' id="{figure.xml_id}"' if figure.xml_id else ""
    if structure == "child":
        attributes += ' specific-use="child-fig"'
    credit = ""
    if structure == "reused":
        credit = (
            "<attrib>Reproduced from ref. 1 under the Creative Commons Attribution License."
            "</attrib>"
        )
    doi = f"10.5555/{m.flavour.name}.{m.serial}.g{figure.number:03}"
    object_id = f'<object-id pub-id-type="doi">{doi}</object-id>'
    return (
        f'<fig{attributes} position="float">'
        f"{object_id if m.flavour.name in ('plos', 'elife') else ''}"
        f"{f'<label>{label}</label>' if label else ''}{_caption(m, figure)}{credit}"
        f"{graphics_xml(figure)}{inside}</fig>\n"
    )


def _caption(m: Manuscript, figure: PlacedFigure) -> str:
    if figure.slot.structure == "no_caption":
        return ""
    title = f"<title>{figure.caption.title}</title>" if figure.caption.title else ""
    paragraphs = list(figure.caption.paragraphs)
    if m.flavour.name == "elife":
        link = f"http://dx.doi.org/10.7554/{m.serial}.{figure.number:03}"
        uri = f'<ext-link ext-link-type="doi" xlink:href="{link}">{link}</ext-link>'
        paragraphs.append(f"<bold>DOI:</bold> {uri}")
    if figure.number > 1 and figure.slot.structure == "paragraphs":
        first = m.figures[0]
        paragraphs.append(f"Conditions are those of {xref(str(first.label).rstrip('.:'), first)}.")
    return f"<caption>{title}{''.join(f'<p>{text}</p>' for text in paragraphs)}</caption>"


def graphics_xml(figure: PlacedFigure) -> str:
    """Return the ``<graphic>`` elements of a figure."""
    if figure.slot.structure == "video":
        return f'<media mimetype="video" mime-subtype="mp4" xlink:href="{figure.hrefs[0]}"/>'
    if figure.slot.structure == "alternatives":
        screen, paper = figure.hrefs
        return (
            f'<alternatives><graphic specific-use="print" xlink:href="{paper}"/>'
            f'<graphic specific-use="web" xlink:href="{screen}"/></alternatives>'
        )
    return "".join(
        f'<graphic mimetype="image" position="float" xlink:href="{href}"/>' for href in figure.hrefs
    )
