"""The structures in which figures and captions occur or are hard, one by one."""

import resource

import pytest

from biovl.articles import jats
from biovl.articles.content import ArticleContent, FigureContent, Graphic
from biovl.articles.jats import read_article
from biovl.core import xml as foreign_xml
from biovl.core.records import Span

XLINK = b'xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:mml="http://www.w3.org/1998/Math/MathML"'


def article(body: str, *, front: str = "", rest: str = "", attributes: str = "") -> ArticleContent:
    xml = (
        f"<article {XLINK.decode()} {attributes}><front><article-meta>{front}</article-meta></front>"
        f"<body>{body}</body>{rest}</article>"
    )
    reading = read_article(xml.encode())
    assert reading.defect is None, reading
    assert reading.content is not None
    return reading.content


def figure(inner: str, **kwargs: str) -> FigureContent:
    (only,) = article(f'<fig id="f1">{inner}</fig>', **kwargs).figures
    return only


def caption(inner: str) -> str:
    return figure(f"<caption>{inner}</caption><graphic xlink:href='a'/>").caption


# --- captions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("<p>Plain.</p>", "Plain."),
        ("<title>Title.</title><p>One.</p><p>Two.</p>", "Title.\nOne.\nTwo."),
        ("<title>Title only</title>", "Title only"),
        ("bare text", "bare text"),
        ("", ""),
        ("<p> </p>", ""),
        ("<p>the <italic>p</italic> and <italic>N</italic></p>", "the p and N"),
        (
            "<p>nested <italic>in <bold>bold <sup>up</sup></bold></italic> end</p>",
            "nested in bold up end",
        ),
        (
            "<p>Student's <italic>t</italic>-test (C).<italic>N</italic>=3</p>",
            "Student's t-test (C).N=3",
        ),
        ("<p>line\n      broken\t text</p>", "line broken text"),
        ("<p>non\u00a0breaking thin\u2009space</p>", "non breaking thin space"),
        ("<p>a<break/>b</p>", "a b"),
        ("<p>x <xref ref-type='bibr' rid='b1'>12</xref>, see</p>", "x 12, see"),
        (
            "<p>Items: <list><list-item><label>A</label><p>one</p></list-item>"
            "<list-item><p>two</p></list-item></list></p>",
            "Items:\nA one\ntwo",
        ),
        ("<p>link <ext-link xlink:href='http://x'>http://x</ext-link>.</p>", "link http://x."),
        ("<p>H<sub>2</sub>O &amp; &lt;5 &#945;</p>", "H2O & <5 α"),
        ("<p>text<?pi data?> and<!-- a comment --> more</p>", "text and more"),
        ("<p>cdata <![CDATA[a < b & c]]></p>", "cdata a < b & c"),
        (
            "<p>small caps <sc>dna</sc> <styled-content style='x'>red</styled-content></p>",
            "small caps dna red",
        ),
        ("<p>symbol <inline-graphic xlink:href='i1'/> squares</p>", "symbol \ufffc squares"),
        ("<p>text<fn><p>A note.</p></fn>goes on</p>", "text\nA note.\ngoes on"),
        (
            "<p>see<media><label>Video 1</label><caption><p>Runs.</p></caption></media></p>",
            "see\nVideo 1 Runs.",
        ),
        (
            "<p>with <inline-graphic xlink:href='i1'><alt-text>box</alt-text></inline-graphic> alt</p>",
            "with box alt",
        ),
    ],
)
def test_caption_text_is_exact(inner: str, text: str) -> None:
    assert caption(inner) == text


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        (
            "<inline-formula><mml:math><mml:mi>x</mml:mi><mml:mo>=</mml:mo><mml:mn>1</mml:mn></mml:math></inline-formula>",
            "x=1",
        ),
        ("<mml:math><mml:mfrac><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:mfrac></mml:math>", "1/2"),
        (
            "<mml:math><mml:mfrac><mml:mrow><mml:mi>a</mml:mi><mml:mo>+</mml:mo><mml:mi>b</mml:mi></mml:mrow>"
            "<mml:mi>c</mml:mi></mml:mfrac></mml:math>",
            "(a+b)/c",
        ),
        ("<mml:math><mml:msup><mml:mn>10</mml:mn><mml:mn>6</mml:mn></mml:msup></mml:math>", "10^6"),
        ("<mml:math><mml:msup><mml:mi>x</mml:mi><mml:mn>2</mml:mn></mml:msup></mml:math>", "x2"),
        ("<mml:math><mml:msqrt><mml:mn>2</mml:mn></mml:msqrt></mml:math>", "√(2)"),
        (
            "<mml:math><mml:mroot><mml:mi>x</mml:mi><mml:mn>3</mml:mn></mml:mroot></mml:math>",
            "(x)^(1/3)",
        ),
        (
            "<mml:math><mml:msubsup><mml:mi>x</mml:mi><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:msubsup></mml:math>",
            "x1^2",
        ),
        (
            "<mml:math><mml:mo>(</mml:mo><mml:mi>a</mml:mi><mml:msup><mml:mo>)</mml:mo><mml:mn>2</mml:mn></mml:msup></mml:math>",
            "(a)^2",
        ),
        (
            "<mml:math><mml:msup><mml:mfenced><mml:mi>a</mml:mi></mml:mfenced><mml:mi>n</mml:mi></mml:msup></mml:math>",
            "(a)^n",
        ),
        (
            "<mml:math><mml:mfrac><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:mfrac><mml:mi>c</mml:mi></mml:math>",
            "(1/2)c",
        ),
        (
            "<mml:math><mml:mi>y</mml:mi><mml:mo>=</mml:mo><mml:mfrac><mml:mn>1</mml:mn><mml:mn>2</mml:mn></mml:mfrac></mml:math>",
            "y=1/2",
        ),
        (
            "<mml:math><mml:mfrac><mml:mn>1</mml:mn><mml:mrow><mml:mrow><mml:mi>a</mml:mi><mml:mo>+</mml:mo>"
            "<mml:mi>b</mml:mi></mml:mrow></mml:mrow></mml:mfrac></mml:math>",
            "1/(a+b)",
        ),
        (
            "<mml:math><mml:mfenced><mml:mi>a</mml:mi><mml:mi>b</mml:mi></mml:mfenced></mml:math>",
            "(a,b)",
        ),
        (
            "<mml:math><mml:semantics><mml:mi>k</mml:mi><mml:annotation>\\kappa</mml:annotation></mml:semantics></mml:math>",
            "k",
        ),
        (
            "<tex-math>\\documentclass{minimal}\\usepackage{amsmath}\\begin{document}$$x^2$$\\end{document}</tex-math>",
            "x^2",
        ),
        (
            "<tex-math>\\documentclass{minimal}\\begin{document} }{}\\begin{equation*}x^2\\end{equation*}\\end{document}</tex-math>",
            "x^2",
        ),
        (
            "<tex-math>\\documentclass{aastex}\\begin{document}\\begin{align*}x^2\\end{align*}\\end{document}</tex-math>",
            "x^2",
        ),
        (
            "<tex-math>\\begin{document}\\newcommand{\\bialpha}{\\boldsymbol{\\alpha}}\\newcommand{\\bimu}"
            "{\\boldsymbol{\\mu}}\\begin{equation}\\tag{1}x^2\\\\(y)\\end{equation}\\end{document}</tex-math>",
            "\\tag{1}x^2\\\\(y)",
        ),
        ("<tex-math>\\begin{document}\\(x^2\\)\\end{document}</tex-math>", "x^2"),
        (
            "<inline-formula><alternatives><tex-math>\\documentclass{minimal}\\begin{document}$$k$$\\end{document}</tex-math>"
            "<mml:math><mml:mi>k</mml:mi></mml:math><inline-graphic xlink:href='e1.gif'/></alternatives></inline-formula>",
            "k",
        ),
        ("<inline-formula><inline-graphic xlink:href='e1.gif'/></inline-formula>", "\ufffc"),
    ],
)
def test_a_formula_has_one_reading(formula: str, text: str) -> None:
    assert caption(f"<p>of {formula} here</p>") == f"of {text} here"


@pytest.mark.parametrize(
    ("formula", "text"),
    [
        # Tables: matrices, cases, lines of an equation.
        (
            "[<mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
            "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable>]",
            "[1 2; 3 4]",
        ),
        (
            "{<mtable><mtr><mtd><mn>1</mn></mtd><mtd>if<mspace width='1em'/><mi>x</mi></mtd></mtr>"
            "<mtr><mtd><mn>0</mn></mtd><mtd>otherwise</mtd></mtr></mtable>",
            "{1 if x; 0 otherwise",
        ),
        (
            "<mtable><mtr><mtd>x</mtd></mtr><mtr><mtd>=3,</mtd></mtr><mtr><mtd>y</mtd></mtr></mtable>",
            "x =3, y",
        ),
        (
            "<mtable><mtr><mtd>x</mtd><mtd>=2</mtd></mtr><mtr><mtd/><mtd>−1</mtd></mtr></mtable>",
            "x =2 −1",
        ),
        (
            "<mtable><mtr><mtd>x</mtd></mtr><mtr><mtd><mrow/><mspace width='2em'/>−1</mtd></mtr>"
            "</mtable>",
            "x −1",
        ),
        # Powers.
        ("<msup><mn>2</mn><mi>N</mi></msup><mo>−</mo><mn>1</mn>", "2^N−1"),
        ("<msup><mn>2</mn><mrow><mi>N</mi><mo>−</mo><mn>1</mn></mrow></msup>", "2^(N−1)"),
        ("<msup><mn>2</mn><mrow><mo>−</mo><mi>N</mi></mrow></msup>", "2^−N"),
        ("<msup><mn>2</mn><mfrac><mn>1</mn><mn>3</mn></mfrac></msup>", "2^(1/3)"),
        ("<msup><mi>PO4</mi><mrow><mn>3</mn><mo>−</mo></mrow></msup>", "PO4^3−"),
        ("<msup><mn>21</mn><mtext>st</mtext></msup>", "21st"),
        ("<msup><mn>37</mn><mo>°</mo></msup><mi>C</mi>", "37°C"),
        ("<msup><mn>0</mn><mo>′</mo></msup>", "0′"),
        ("<msup><mi>T2</mi><mo>*</mo></msup>", "T2*"),
        ("<msup><mfrac><mn>1</mn><mn>2</mn></mfrac><mn>3</mn></msup>", "(1/2)^3"),
        ("<msup><msqrt><mi>x</mi></msqrt><mn>3</mn></msup>", "√(x)^3"),
        ("<msup><mroot><mi>x</mi><mn>3</mn></mroot><mn>2</mn></msup>", "((x)^(1/3))^2"),
        ("<mn>2</mn><msup><mrow/><mn>3</mn></msup>", "2^3"),
        ("<mi>m</mi><msup><mrow/><mn>2</mn></msup>", "m2"),
        # Limits of sums; signs above and below names are none.
        (
            "<munderover><mo>∑</mo><mrow><mi>i</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi>"
            "</munderover><msub><mi>x</mi><mi>i</mi></msub>",
            "∑_(i=1)^n xi",
        ),
        ("<msubsup><mo>∫</mo><mn>0</mn><mi>T</mi></msubsup><mi>f</mi>", "∫_0^T f"),
        ("<msub><mo>∑</mo><mi>i</mi></msub><mi>x</mi><mo>+</mo><mi>y</mi>", "∑_i x+y"),
        ("<munder><mo>max</mo><mi>k</mi></munder><mi>p</mi>", "max_k p"),
        (
            "<mrow><munderover><mo>∑</mo><mi>i</mi><mi>n</mi></munderover></mrow><mi>x</mi>",
            "∑_i^n x",
        ),
        ("<msubsup><mo>∑</mo><mi>i</mi><mrow/></msubsup><mi>f</mi>", "∑_i f"),
        ("(<msub><mo>∑</mo><mi>i</mi></msub>)", "(∑_i)"),
        ("<munder><mi>AB</mi><mo>_</mo></munder><mo>=</mo><mn>3</mn>", "AB_=3"),
        ("<munderover><mi>x</mi><mo>˜</mo><mo>^</mo></munderover>", "x˜^"),
        ("<mover><mi>x</mi><mo>¯</mo></mover><mo>=</mo><mn>1</mn>", "x¯=1"),
        ("<msup><mi>min</mi><mrow><mo>−</mo><mn>1</mn></mrow></msup><mi>x</mi>", "min−1x"),
        # Fractions and roots.
        ("(<mfrac linethickness='0pt'><mi>n</mi><mi>k</mi></mfrac>)", "(n choose k)"),
        (
            "<mfrac><msqrt><mi>a</mi><mo>+</mo><mi>b</mi></msqrt><mn>2</mn></mfrac>",
            "√(a+b)/2",
        ),
    ],
)
def test_signs_without_which_a_formula_would_be_misread(formula: str, text: str) -> None:
    namespace = "http://www.w3.org/1998/Math/MathML"
    assert (
        caption(f"<p>of <math xmlns='{namespace}'>{formula}</math> here</p>") == f"of {text} here"
    )


def test_the_base_of_a_power_may_be_in_front_of_the_formula() -> None:
    power = (
        "<inline-formula><alternatives><tex-math>$$^{-3}$$</tex-math><mml:math><mml:msup><mml:mrow/>"
        "<mml:mrow><mml:mo>-</mml:mo><mml:mn>3</mml:mn></mml:mrow></mml:msup></mml:math>"
        "</alternatives></inline-formula>"
    )
    assert caption(f"<p>10{power} M, cm{power}</p>") == "10^-3 M, cm-3"
    assert caption(f"<p><italic>10</italic>{power} M</p>") == "10^-3 M"
    assert caption(f"<title>In 2010</title><p>{power}</p>") == "In 2010\n-3"


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        # A label inside the caption, in every way that publishers put it there.
        ("<p><bold>Figure 1</bold>Cells grow.</p>", "Figure 1 Cells grow."),
        ("<p><bold>Figure 1</bold>siRNA works.</p>", "Figure 1 siRNA works."),
        ("<p><bold>Fig. 2.</bold>A scheme.</p>", "Fig. 2. A scheme."),
        ("<title><bold>Figure S3</bold>.<italic>In vivo</italic></title>", "Figure S3. In vivo"),
        ("<title>Figure 1<bold>Cells grow.</bold></title>", "Figure 1 Cells grow."),
        ("<p>Figure 1Cells grow.</p>", "Figure 1 Cells grow."),
        ("<p>FIG. 4:Cells grow.</p>", "FIG. 4: Cells grow."),
        ("<title>Figure 1</title><p>Cells grow.</p>", "Figure 1\nCells grow."),
        ("<title>Growth.</title><p>Figure 1.Cells grow.</p>", "Growth.\nFigure 1. Cells grow."),
        ("<label>Figure 1</label><p>Cells grow.</p>", "Figure 1 Cells grow."),
        ("<p><label>Figure 1</label>Cells grow.</p>", "Figure 1 Cells grow."),
        ("<p>Growth<label>A</label>Cells grow.</p>", "Growth A Cells grow."),
        # What is no label stays as it is.
        ("<p>Fig. 1A, B and Figure 2.1 show cells.</p>", "Fig. 1A, B and Figure 2.1 show cells."),
        ("<p><bold>Figure 3</bold>B shows</p>", "Figure 3B shows"),
        ("<p>Figure 1a</p>", "Figure 1a"),
        # What stands beside a block, or is one.
        ("Cells<p>grow</p>fast<p>here</p>", "Cells\ngrow\nfast\nhere"),
        ("<bold>Cells</bold><p>grow</p>", "Cells\ngrow"),
        ("<title>Cells</title>grow", "Cells\ngrow"),
        ("<sec><title>Cells</title><p>grow</p></sec><sec><p>fast</p></sec>", "Cells\ngrow\nfast"),
        ("<p>see<list><list-item><label>(a)</label>one</list-item></list></p>", "see\n(a) one"),
        ("<p>a<hr/>b<break/>c</p>", "a b c"),
        (
            "<p>Cells<inline-graphic xlink:href='i'><alt-text>a box</alt-text></inline-graphic>grow</p>",
            "Cells a box grow",
        ),
    ],
)
def test_texts_that_publishers_put_side_by_side_do_not_run_together(inner: str, text: str) -> None:
    assert caption(inner) == text


def test_spans_are_offsets_into_a_caption_whose_label_was_set_apart() -> None:
    found = figure(
        "<caption><p><bold>Figure 1</bold>Cells at 10<sup>6</sup>. <bold>(A)</bold> Left.</p>"
        "</caption><graphic xlink:href='a'/>"
    )
    assert found.label == "Figure 1"
    assert [found.caption[span.start : span.end] for span in found.caption_bold] == [
        *("Figure 1", "(A)")
    ]
    assert [found.caption[span.start : span.end] for span in found.caption_superscripts] == ["6"]


def test_bold_and_superscript_spans_are_offsets_into_the_caption() -> None:
    found = figure(
        "<caption><title>Growth.</title><p><bold>(A)</bold> 10<sup>6</sup> cells. "
        "<bold>( <italic>B</italic> )</bold> after</p></caption><graphic xlink:href='a'/>"
    )
    assert found.caption == "Growth.\n(A) 106 cells. ( B ) after"
    assert [found.caption[s.start : s.end] for s in found.caption_bold] == ["(A)", "( B )"]
    assert [found.caption[s.start : s.end] for s in found.caption_superscripts] == ["6"]


def test_spans_beside_spaces_and_line_ends_leave_no_space_behind() -> None:
    found = figure(
        "<caption><p>a <bold> b </bold> c <bold>d </bold></p><p><bold> e</bold> f</p></caption>"
    )
    assert found.caption == "a b c d\ne f"
    assert [found.caption[s.start : s.end] for s in found.caption_bold] == ["b", "d", "e"]


def test_paragraphs_beside_the_caption_end_the_legend() -> None:
    for legend in (
        "<p>Legend.</p>",
        "<statement><p>Legend.</p></statement>",
        "<fn><p>Legend.</p></fn>",
    ):
        found = figure(f"<caption><title>T.</title></caption><graphic xlink:href='a'/>{legend}")
        assert found.caption == "T.\nLegend."


@pytest.mark.parametrize(
    ("published", "caption"),
    [
        # JoVE
        (
            "<p><fig id='f'><graphic xlink:href='a'/></fig><bold>Figure 1. Cells.</bold> In <sup>2"
            "</sup>H. <ext-link>Please click here to view a larger version of this figure.</ext-link></p>",
            "Figure 1. Cells. In 2H.",
        ),
        (
            "<p> <fig id='f'><graphic xlink:href='a'/></fig> </p>"
            "<p><xref ref-type='fig' rid='f'>Figure 1</xref>. Cells.</p><p>Figure 2. Roots.</p>",
            "Figure 1. Cells.",
        ),
        ("<p><fig id='f'><graphic xlink:href='a'/></fig></p><p>Figure 1 shows cells.</p>", ""),
        ("<p><fig id='f'><graphic xlink:href='a'/></fig> and Figure 2. Cells grew.</p>", ""),
        ("<p>Cells grew.<fig id='f'><graphic xlink:href='a'/></fig>Figure 1. They died.</p>", ""),
        ("<p><fig id='f'><caption><p>Own.</p></caption></fig>Figure 1. Cells.</p>", "Own."),
        ("<p><bold>Figure 1. Legend.</bold><fig id='f'/>We <b>grew</b> cells.</p>", ""),
        # Captions before their figures
        ("<p>Figure 1. Cells.</p><p><fig id='f'/></p><p>Figure 2. Roots.</p>", ""),
    ],
)
def test_a_caption_after_its_figure_is_the_figures(published: str, caption: str) -> None:
    content = article(f"{published}<p>The end.</p>")
    (found,) = content.figures
    assert (found.caption, found.label) == (caption, "Figure 1" if caption[:1] == "F" else None)
    assert content.full_text is not None
    assert content.full_text.lower().count("cells") == 1
    assert content.full_text.endswith("The end.")


def test_text_after_a_figure_with_a_label_is_text() -> None:
    content = article(
        "<p><fig id='f'><label>Figure 1.</label><graphic xlink:href='a'/></fig>We <b>grew</b> cells"
        " (<xref rid='f'>Figure 1A</xref>).</p>"
    )
    (found,) = content.figures
    assert (found.label, found.caption) == ("Figure 1", "")
    assert [mention.text for mention in found.mentions] == ["We grew cells (Figure 1A)."]
    assert "We grew cells" in (content.full_text or "")


def test_object_ids_attributions_and_permissions_are_not_caption() -> None:
    found = figure(
        "<object-id>10.7554/x</object-id><caption><p>C.</p></caption><graphic xlink:href='a'/>"
        "<attrib>Courtesy of X</attrib><permissions><copyright-statement>© Y</copyright-statement></permissions>"
        "<alt-text>alt</alt-text>"
    )
    assert found.caption == "C."
    assert found.credit == "Courtesy of X\n© Y"
    assert found.alt_text == "alt"


@pytest.mark.parametrize(
    ("inner", "alt_text"),
    [
        ("<alt-text>A liver</alt-text><graphic xlink:href='a'/>", "A liver"),
        ("<graphic xlink:href='a'><alt-text>A liver</alt-text></graphic>", "A liver"),
        ("<media xlink:href='a'><long-desc>A liver</long-desc></media>", "A liver"),
        (
            "<alternatives><graphic xlink:href='a'><alt-text>A liver</alt-text></graphic>"
            "<graphic xlink:href='b'><alt-text>A liver</alt-text></graphic></alternatives>",
            "A liver",
        ),
        (
            "<graphic xlink:href='a'><alt-text>A liver</alt-text></graphic>"
            "<graphic xlink:href='b'><alt-text>A lung</alt-text><long-desc>x</long-desc></graphic>",
            "A liver\nA lung",
        ),
        (
            "<label>Fig. 3.</label><alt-text>Fig. 3</alt-text><graphic xlink:href='a'>"
            "<long-desc>A liver</long-desc></graphic>",
            "A liver",
        ),
        (
            "<caption><p><inline-graphic xlink:href='i'><alt-text>box</alt-text></inline-graphic>"
            "</p></caption><graphic xlink:href='a'/>",
            None,
        ),
    ],
)
def test_alt_texts_are_found_at_the_figure_and_its_images(inner: str, alt_text: str | None) -> None:
    assert figure(inner).alt_text == alt_text


def test_a_legend_in_the_attribution_ends_the_caption() -> None:
    legend = "(A) Scheme of cells in growth medium. (B) Oil Red O staining. Scale bar = 100 μm."
    found = figure(
        "<caption><p>Growth of cells</p></caption><graphic xlink:href='a'/>"
        f"<attrib>{legend.replace('(A)', '<bold>(A)</bold>')}</attrib><attrib>© Y</attrib>"
    )
    assert (found.caption, found.credit) == (f"Growth of cells\n{legend}", "© Y")
    assert [found.caption[span.start : span.end] for span in found.caption_bold] == ["(A)"]


@pytest.mark.parametrize("language", ["en", "EN", "en-US"])
def test_the_caption_in_the_articles_language_is_taken(language: str) -> None:
    found = figure(
        "<caption xml:lang='es'><p>uno</p></caption><caption xml:lang='en'><p>one</p></caption>",
        attributes=f'xml:lang="{language}"',
    )
    assert found.caption == "one"


def test_a_figure_without_caption_never_takes_another_ones() -> None:
    content = article(
        "<fig id='f1'><label>Figure 1</label><caption><p>first</p></caption><graphic xlink:href='a'/></fig>"
        "<fig id='f2'><label>Figure 2</label><graphic xlink:href='b'/></fig>"
    )
    assert [f.caption for f in content.figures] == ["first", ""]


# --- figures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        "<sec><title>R</title>{}</sec>",
        "<sec><p>text {} more</p></sec>",
        "{}",
        "<boxed-text><p>{}</p></boxed-text>",
        "<disp-quote>{}</disp-quote>",
        "<list><list-item>{}</list-item></list>",
        "<p><fn>{}</fn></p>",
    ],
)
def test_figures_are_found_wherever_they_stand(place: str) -> None:
    content = article(
        place.format("<fig id='f1'><caption><p>C</p></caption><graphic xlink:href='a'/></fig>")
    )
    assert [(f.xml_id, f.caption, f.graphics) for f in content.figures] == [
        ("f1", "C", [Graphic(["a"])])
    ]


@pytest.mark.parametrize(
    "rest",
    [
        "<floats-group>{}</floats-group>",
        "<floats-wrap>{}</floats-wrap>",
        "<back><app-group><app>{}</app></app-group></back>",
    ],
)
def test_figures_outside_the_body_are_found(rest: str) -> None:
    content = article("", rest=rest.format("<fig id='f1'><caption><p>C</p></caption></fig>"))
    assert [f.caption for f in content.figures] == ["C"]


def test_members_of_a_group_have_its_caption_before_their_own() -> None:
    content = article(
        "<fig-group id='g'><label>Figure 3</label><caption><p>Both.</p></caption>"
        "<fig id='a'><label>(A)</label><caption><p>Left.</p></caption><graphic xlink:href='x'/></fig>"
        "<fig id='b'><label>(B)</label><graphic xlink:href='y'/></fig></fig-group>"
        "<p>See <xref rid='g'>Figure 3</xref>.</p>"
    )
    assert [f.caption for f in content.figures] == ["Both.\nLeft.", "Both."]
    assert [len(f.mentions) for f in content.figures] == [1, 1]


def test_a_thumbnail_next_to_an_image_is_no_image() -> None:
    pair = (
        "<graphic content-type='image' xlink:href='a.jpg'/>"
        "<graphic content-type='thumb' xlink:href='a.gif'/>"
    )
    content = article(
        f"<fig>{pair}<graphic xlink:href='b.jpg'/></fig><fig><p>{pair}</p></fig>"
        f"<fig><p><alternatives>{pair}</alternatives></p></fig>"
        "<fig><graphic content-type='thumb' xlink:href='c.gif'/></fig>"
        "<fig><graphic xlink:href='thumb_left.jpg'/><graphic content-type='fingerprint' xlink:href='d'/></fig>",
        front=f"<abstract abstract-type='graphical'><p><alternatives>{pair}</alternatives></p></abstract>",
    )
    one, image = Graphic(["a.jpg"]), Graphic(["a.jpg"], ["a.gif"])
    assert [f.graphics for f in content.figures] == [
        [one, Graphic(["b.jpg"])],
        [one],
        [image],
        [Graphic(["c.gif"])],
        [Graphic(["thumb_left.jpg"]), Graphic(["d"])],
        [image],
    ]


def test_the_image_of_a_group_belongs_to_its_captions_in_all_languages() -> None:
    content = article(
        "<fig-group id='g'><fig xml:lang='pt'><caption><p>Forno.</p></caption></fig>"
        "<fig xml:lang='en'><caption><p>Oven.</p></caption></fig><alternatives>"
        "<graphic xlink:href='a.tif'/><graphic xlink:href='a.thumbnail.jpg'/></alternatives></fig-group>"
        # A video shows itself.
        "<fig-group><fig id='v'><media mimetype='video' xlink:href='v.mp4'/></fig><graphic xlink:href='b'/></fig-group>"
        # Of several images it is unknown which figure they are of.
        "<fig-group id='h'><fig id='x'/><graphic xlink:href='1'/><graphic xlink:href='2'/></fig-group>"
    )
    image = Graphic(["a.tif"], ["a.thumbnail.jpg"])
    assert [(f.caption, f.graphics) for f in content.figures] == [
        ("Forno.", [image]),
        ("Oven.", [image]),
        ("", []),
        ("", []),
    ]


def test_a_supplement_inside_a_figure_keeps_its_own_caption_and_graphic() -> None:
    content = article(
        "<fig id='f1'><label>Figure 1.</label><caption><p>Parent.</p></caption><graphic xlink:href='p'/>"
        "<p content-type='supplemental-figure'><fig id='f1s1' specific-use='child-fig'>"
        "<label>Figure 1—figure supplement 1.</label><caption><p>Child.</p></caption>"
        "<graphic xlink:href='c'/></fig></p></fig>"
    )
    parent, child = content.figures
    assert (parent.caption, parent.graphics, parent.label) == (
        "Parent.",
        [Graphic(["p"])],
        "Figure 1",
    )
    assert (child.caption, child.graphics, child.kind) == ("Child.", [Graphic(["c"])], "supplement")
    assert child.parent_key == parent.key


def test_several_graphics_are_several_images_and_alternatives_are_one() -> None:
    found = figure(
        "<graphic xlink:href='g1a'/><graphic xlink:href='g1b'/>"
        "<alternatives><graphic specific-use='thumbnail' xlink:href='t'/><graphic xlink:href='full'/></alternatives>"
    )
    assert found.graphics == [Graphic(["g1a"]), Graphic(["g1b"]), Graphic(["full"], ["t"])]


def test_the_href_is_not_the_first_attribute() -> None:
    assert figure(
        "<graphic mimetype='image' content-type='web-only' xlink:href='x.g001'/>"
    ).graphics == [Graphic(["x.g001"])]


def test_a_figure_that_is_a_video_says_so() -> None:
    found = figure("<label>Video 1.</label><media mimetype='video' xlink:href='v.mp4'/>")
    assert (found.kind, found.graphics, found.has_video) == ("video", [], True)


def test_figures_without_id_have_a_stable_key() -> None:
    content = article(
        "<fig><caption><p>a</p></caption></fig><fig><caption><p>b</p></caption></fig>"
    )
    assert [(f.xml_id, f.key) for f in content.figures] == [(None, "fig-1"), (None, "fig-2")]


def test_figures_of_a_translation_are_no_responses() -> None:
    content = article(
        "<fig id='f1'><caption><p>Coração</p></caption></fig>",
        rest="<sub-article article-type='translation' xml:lang='en'><body>"
        "<fig id='f1'><caption><p>Heart</p></caption></fig></body></sub-article>",
    )
    assert [figure.kind for figure in content.figures] == ["figure", "translation"]


def test_figures_of_a_reply_do_not_mix_with_the_articles() -> None:
    content = article(
        "<fig id='fig1'><caption><p>main</p></caption></fig><p>See <xref rid='fig1'>Fig 1</xref>.</p>",
        rest="<sub-article><body><fig id='fig1'><caption><p>reply</p></caption></fig>"
        "<p>Reply <xref rid='fig1'>Fig 1</xref>.</p></body></sub-article>",
    )
    main, reply = content.figures
    assert (main.kind, reply.kind) == ("figure", "author-response")
    assert main.key != reply.key
    assert [m.text for m in main.mentions] == ["See Fig 1."]
    assert [(m.text, m.container) for m in reply.mentions] == [("Reply Fig 1.", "response")]
    assert content.full_text is not None
    assert "Reply" not in content.full_text


@pytest.mark.parametrize(
    ("label", "kind"),
    [("Figure 1.", "figure"), ("Scheme 2", "scheme"), ("Extended Data Fig. 3", "extended-data")],
)
def test_the_label_tells_the_kind(label: str, kind: str) -> None:
    assert figure(f"<label>{label}</label><graphic xlink:href='a'/>").kind == kind


@pytest.mark.parametrize(
    ("title", "label", "kind"),
    [
        ("ABOUT AUTHORS", "", "portrait"),
        ("About the author", "", "portrait"),
        ("Authors’ biographies", "", "portrait"),
        ("About the authors", "<label>Figure 3</label>", "figure"),
        ("About authorship", "", "figure"),
    ],
)
def test_images_in_a_section_about_the_authors_are_portraits(
    title: str, label: str, kind: str
) -> None:
    content = article(
        f"<sec><title>{title}</title><fig>{label}<caption><p>A. Lee</p></caption>"
        "<graphic xlink:href='a'/></fig></sec>"
    )
    assert [only.kind for only in content.figures] == [kind]


def test_a_label_missing_from_its_element_is_read_from_the_caption() -> None:
    found = figure("<caption><p>Figure 3. Cells.</p></caption>")
    assert (found.label, found.caption) == ("Figure 3", "Figure 3. Cells.")


def test_a_graphical_abstract_has_the_abstract_as_caption_and_no_label() -> None:
    content = article(
        "",
        front="<abstract abstract-type='graphical'><p>In brief.</p><p><graphic xlink:href='ga'/></p></abstract>",
    )
    (only,) = content.figures
    assert (only.kind, only.label, only.caption, only.graphics) == (
        "graphical-abstract",
        None,
        "In brief.",
        [Graphic(["ga"])],
    )


def test_a_figure_in_a_graphical_abstract_has_its_text_as_caption() -> None:
    content = article(
        "",
        front="<abstract abstract-type='graphical'><title>GA</title><p>In brief.<fig id='g'><graphic xlink:href='a'/></fig></p></abstract>",
    )
    (only,) = content.figures
    assert (only.kind, only.caption) == ("graphical-abstract", "In brief.")


def test_the_doi_of_a_figure_is_no_part_of_its_caption() -> None:
    doi = "<p><bold>DOI:</bold> <ext-link>http://dx.doi.org/10.7554/eLife.1.003</ext-link></p>"
    assert caption(f"<p>Cells.</p>{doi}") == "Cells."
    assert article("", front=f"<abstract><p>Cells.</p>{doi}</abstract>").abstract == "Cells."
    data = "<p>DOI: http://dx.doi.org/10.5061/dryad.1 has the data.</p>"
    assert caption(data) == "DOI: http://dx.doi.org/10.5061/dryad.1 has the data."


def test_source_data_listed_in_a_caption_are_no_part_of_it() -> None:
    data = (
        "<supplementary-material><object-id>10.7554/eLife.1.004</object-id>"
        "<label>Figure 1—source data 1.</label><caption><title>(A) Numbers.</title>"
        "<p><bold>DOI:</bold> http://dx.doi.org/10.7554/eLife.1.004</p></caption>"
        "<media xlink:href='s1.xlsx'/></supplementary-material>"
    )
    assert caption(f"<title>Cells.</title><p>(A) Roots.</p><p>{data}</p>") == "Cells.\n(A) Roots."
    listed = "Roots\n10.7554/eLife.1.004 Figure 1—source data 1. (A) Numbers."
    assert (article(f"<p>Roots{data}</p>").full_text or "").startswith(listed)


def test_the_title_of_a_graphical_abstract_is_no_caption() -> None:
    for image in ("<fig id='g'><graphic xlink:href='a'/></fig>", "<graphic xlink:href='a'/>"):
        content = article(
            "",
            front="<abstract abstract-type='graphical'><title>Graphical abstract</title>"
            f"<p>{image}</p></abstract>",
        )
        assert [only.caption for only in content.figures] == [""]


def test_images_of_tables_formulas_and_authors_are_not_figures() -> None:
    content = article(
        "<table-wrap><graphic xlink:href='t'/></table-wrap><disp-formula><graphic xlink:href='e'/></disp-formula>"
        "<p><graphic xlink:href='logo'/></p>",
        rest="<back><bio><graphic xlink:href='face'/></bio></back>",
    )
    assert content.figures == []


def test_the_sections_around_a_figure_are_kept() -> None:
    content = article(
        "<sec><title>Results</title><sec><title>Growth <sup>a</sup></title><fig id='f'/></sec></sec>"
    )
    assert content.figures[0].section == "Results > Growth a"


# --- mentions ---------------------------------------------------------------------------------

FIGS = "".join(
    f"<fig id='F{n}'><label>Figure {n}</label><caption><p>c{n}</p></caption></fig>"
    for n in range(1, 8)
)


def mentions(paragraph: str) -> dict[str, list[tuple[str, list[str], bool]]]:
    """Return for each figure cited: the text referred by, the panels, and whether it is implied."""
    content = article(f"<sec>{paragraph}{FIGS}</sec>")
    return {
        f.xml_id or "": [
            (m.text[r.start : r.end], r.panels, r.implied) for m in f.mentions for r in m.refs
        ]
        for f in content.figures
        if f.mentions
    }


@pytest.mark.parametrize(
    ("paragraph", "expected"),
    [
        (
            "<p>As <xref ref-type='fig' rid='F1'>Figure 1</xref> shows.</p>",
            {"F1": [("Figure 1", [], False)]},
        ),
        ("<p>(<italic><xref rid='F1'>Fig. 1</xref></italic>)</p>", {"F1": [("Fig. 1", [], False)]}),
        ("<p>x<sup><xref rid='F2'>2</xref></sup></p>", {"F2": [("2", [], False)]}),
        (
            "<p><list><list-item><p>In <xref rid='F1'>Fig. 1</xref></p></list-item></list></p>",
            {"F1": [("Fig. 1", [], False)]},
        ),
        (
            "<p><xref rid='F1 F2'>Figs 1 and 2</xref></p>",
            {"F1": [("Figs 1 and 2", [], False)], "F2": [("Figs 1 and 2", [], False)]},
        ),
        (
            "<p><xref rid='F1'>Fig. 1</xref>, again <xref rid='F1'>Fig. 1</xref></p>",
            {"F1": [("Fig. 1", [], False), ("Fig. 1", [], False)]},
        ),
        ("<p><xref rid='F1'>Fig. 2</xref>d, e show</p>", {"F1": [("Fig. 2", ["d", "e"], False)]}),
        ("<p><xref rid='F1'>Fig. 1A</xref> and</p>", {"F1": [("Fig. 1A", ["A"], False)]}),
        (
            "<p><xref rid='F1'>Fig. 1A</xref>,<xref rid='F1'>B</xref></p>",
            {"F1": [("Fig. 1A", ["A"], False), ("B", ["B"], False)]},
        ),
        (
            "<p>Figs. <xref rid='F3'>3</xref>–<xref rid='F5'>5</xref></p>",
            {"F3": [("3", [], False)], "F4": [("3–5", [], True)], "F5": [("5", [], False)]},
        ),
        (
            "<p><xref rid='F3'>Figs 3–5</xref></p>",
            {
                "F3": [("Figs 3–5", [], False)],
                "F4": [("Figs 3–5", [], True)],
                "F5": [("Figs 3–5", [], True)],
            },
        ),
        (
            "<p><xref rid='F3 F5'>Figs 3–5</xref></p>",
            {
                "F3": [("Figs 3–5", [], False)],
                "F4": [("Figs 3–5", [], True)],
                "F5": [("Figs 3–5", [], False)],
            },
        ),
        (
            "<p><xref rid='F3'>3</xref>, <xref rid='F5'>5</xref></p>",
            {"F3": [("3", [], False)], "F5": [("5", [], False)]},
        ),
        (
            "<p>compare <xref rid='F3'>Figure 3F</xref> to <xref rid='F5'>Figure 5A</xref></p>",
            {"F3": [("Figure 3F", ["F"], False)], "F5": [("Figure 5A", ["A"], False)]},
        ),
        ("<p>empty <xref rid='F1'/> text</p>", {"F1": [("", [], False)]}),
        (
            "<p><xref ref-type='table' rid='T1'>Table 1</xref>, <xref ref-type='bibr' rid='b1'>1</xref></p>",
            {},
        ),
        (
            "<p>no ref-type <xref rid='F1'>Fig</xref>; odd one <xref ref-type='scheme' rid='F2'>Scheme</xref></p>",
            {"F1": [("Fig", [], False)], "F2": [("Scheme", [], False)]},
        ),
        ("<p><xref rid='nowhere'>Fig. 9</xref></p>", {}),
    ],
)
def test_references_are_found(paragraph: str, expected: dict) -> None:
    assert mentions(paragraph) == expected


def test_a_range_of_supplements_implies_those_between_its_ends() -> None:
    supplements = "".join(
        f"<fig id='s{i}'><label>Figure 2—figure supplement {i}.</label></fig>" for i in range(1, 5)
    )
    content = article(
        "<p>See <xref rid='s1'>Figure 2—figure supplements 1–4</xref>.</p>"
        f"<fig id='f2'><label>Figure 2.</label>{supplements}</fig>"
    )
    implied = {f.xml_id: [r.implied for m in f.mentions for r in m.refs] for f in content.figures}
    assert implied == {"f2": [], "s1": [False], "s2": [True], "s3": [True], "s4": [True]}


def test_a_link_from_a_sign_has_the_panels_around_it() -> None:
    sign = "<xref ref-type='fig' rid='f1'> ▸</xref>"
    content = article(
        f"<p>(Fig. 1{sign} <italic>a</italic>) (Figs. 1b–1d {sign}) (Fig. 1{sign}(<italic>e</italic>))"
        f" (Figs. 2A ▸ and 1{sign}) of 5 g ({sign}) (Fig. 2A and{sign}).</p>"
        "<fig id='f1'><label>Figure 1</label></fig>"
    )
    (mention,) = content.figures[0].mentions
    cited = [["a"], ["b", "c", "d"], ["e"], [], [], []]
    assert [reference.panels for reference in mention.refs] == cited


def test_a_reference_in_a_reference_to_the_same_figure_is_none_of_its_own() -> None:
    content = article(
        "<p>See <xref rid='f'>Figure <xref rid='f'>3</xref></xref>A,B and "
        "<xref rid='f g'>Figures <xref rid='f'>3</xref>C and <xref rid='g'>4</xref></xref>D.</p>"
        "<fig id='f'><label>Figure 3</label></fig><fig id='g'><label>Figure 4</label></fig>"
    )
    cited = [
        [(m.text[r.start : r.end], r.panels) for m in f.mentions for r in m.refs]
        for f in content.figures
    ]
    both = ("Figures 3C and 4", [])
    assert cited == [[("Figure 3", ["A", "B"]), both, ("3", ["C"])], [both, ("4", ["D"])]]


def test_a_reference_to_a_figure_in_two_languages_names_panels_of_both() -> None:
    content = article(
        "<p>(<xref rid='g'>Figura 1A</xref>) <xref rid='h'>Figs 2A</xref></p>"
        "<fig-group id='g'><fig id='pt'><label>Figura 1</label></fig>"
        "<fig id='en'><label>Figure 1</label></fig></fig-group>"
        "<fig-group id='h'><fig id='f2'><label>Fig. 2</label></fig>"
        "<fig id='f3'><label>Fig. 3</label></fig></fig-group>"
    )
    panels = {f.xml_id: [r.panels for m in f.mentions for r in m.refs] for f in content.figures}
    assert panels == {"pt": [["A"]], "en": [["A"]], "f2": [[]], "f3": [[]]}


def test_a_paragraph_does_not_hold_the_figure_that_stands_in_it() -> None:
    content = article(
        "<p>Before <xref rid='f'>Fig. 1</xref>.<fig id='f'><caption><p>Inside.</p></caption></fig>After.</p>"
    )
    (mention,) = content.figures[0].mentions
    assert mention.text == "Before Fig. 1. After."
    assert content.full_text == "Before Fig. 1. After.\nInside."


def test_a_mention_is_the_whole_paragraph_with_exact_offsets() -> None:
    content = article(
        "<p>At 10<sup>6</sup> cells ( <bold><xref rid='f'> Fig. <italic>1</italic></xref></bold> ),\n  growth.</p><fig id='f'/>"
    )
    (mention,) = content.figures[0].mentions
    assert mention.text == "At 106 cells ( Fig. 1 ), growth."
    assert [mention.text[r.start : r.end] for r in mention.refs] == ["Fig. 1"]
    assert [mention.text[s.start : s.end] for s in mention.superscripts] == ["6"]
    assert mention.container == "body"


@pytest.mark.parametrize(
    ("inner", "container"),
    [
        (
            "<table-wrap><table-wrap-foot><fn><p>{}</p></fn></table-wrap-foot></table-wrap>",
            "footnote",
        ),
        ("<table-wrap><table><tr><td><p>{}</p></td></tr></table></table-wrap>", "table"),
        ("<table-wrap><table><tr><td>{}</td></tr></table></table-wrap>", "table"),
        ("<boxed-text><p>{}</p></boxed-text>", "box"),
        ("<sec><title>About {}</title></sec>", "body"),
        ("<fig id='g'><caption><p>{}</p></caption></fig>", "caption"),
    ],
)
def test_a_mention_says_where_it_stands(inner: str, container: str) -> None:
    content = article("<fig id='f'/>" + inner.format("<xref rid='f'>Fig. 1</xref>"))
    assert [m.container for m in content.figures[0].mentions] == [container]


def test_a_reference_in_an_inner_paragraph_belongs_to_that_paragraph() -> None:
    content = article(
        "<p>Outer <xref rid='f'>Fig. 1</xref><list><list-item><p>inner <xref rid='f'>1B</xref></p></list-item></list></p>"
        "<fig id='f'/>"
    )
    found = {m.text: [m.text[r.start : r.end] for r in m.refs] for m in content.figures[0].mentions}
    assert found == {"Outer Fig. 1\ninner 1B": ["Fig. 1"], "inner 1B": ["1B"]}


def test_powers_in_title_abstract_and_text_have_a_caret_and_other_fields_keep_their_spans() -> None:
    content = article(
        "<p>At 10<sup>6</sup> cells (<xref rid='f'>Fig. 1</xref>), 2<sup>nd</sup> m<sup>2</sup>.</p>"
        "<fig id='f'><caption><p>10<sup>−3</sup> M</p></caption><permissions><license><license-p>"
        "CC BY <sup>4.0</sup></license-p></license></permissions></fig>",
        front="<title-group><article-title>10<sup>6</sup></article-title></title-group>"
        "<abstract><p>From 10<sup>4</sup>–10<sup>11</sup> GCE/mL</p></abstract>",
    )
    (only,) = content.figures
    assert content.abstract == "From 10^4–10^11 GCE/mL"
    assert content.full_text == "At 10^6 cells (Fig. 1), 2nd m2.\n10^−3 M\nCC BY 4.0"
    assert (content.title, only.caption, only.caption_superscripts) == (
        "10^6",
        "10−3 M",
        [Span(2, 4)],
    )
    assert only.mentions[0].text == "At 106 cells (Fig. 1), 2nd m2."
    assert only.license is not None
    assert only.license.spdx == "CC-BY-4.0"


def test_a_graphical_abstract_has_the_superscripts_of_its_text() -> None:
    (only,) = article(
        "",
        front="<abstract abstract-type='graphical'><p>10<sup>6</sup> cells</p>"
        "<graphic xlink:href='g'/></abstract>",
    ).figures
    assert (only.caption, only.caption_superscripts) == ("106 cells", [Span(2, 3)])


# --- front matter -----------------------------------------------------------------------------


def test_front_matter() -> None:
    xml = b"""<article xml:lang="EN" article-type="case-report"><front>
      <journal-meta><journal-title-group><journal-title>Int J &amp; Co 3</journal-title></journal-title-group></journal-meta>
      <article-meta><article-id pub-id-type="pmid">123</article-id><article-id pub-id-type="pmc">77</article-id>
      <article-id pub-id-type="doi">10.1/x</article-id>
      <article-categories><subj-group><subject>Case</subject><subj-group><subject>Eye</subject></subj-group></subj-group></article-categories>
      <title-group><article-title>On <italic>E. coli</italic> and Ca<sup>2+</sup></article-title></title-group>
      <pub-date pub-type="collection"><year>2010</year></pub-date>
      <pub-date pub-type="ppub"><month>8</month><year>2011</year></pub-date>
      <pub-date pub-type="epub"><day>18</day><month>7</month><year>2011</year></pub-date>
      <volume>6</volume><issue>7</issue><fpage>1</fpage><lpage>9</lpage>
      <abstract abstract-type="graphical"><p>no</p></abstract>
      <abstract><sec><title>Aim</title><p>A.</p></sec><sec><title>Result</title><p>B.</p></sec></abstract>
      <trans-abstract xml:lang="es"><p>otro</p></trans-abstract>
      <kwd-group><kwd>one</kwd><kwd><italic>two</italic></kwd></kwd-group><kwd-group><kwd>three</kwd></kwd-group>
      </article-meta></front><body><p>Text.</p></body>
      <back><ref-list><ref><pub-id pub-id-type="pmid">9</pub-id><pub-id pub-id-type="doi">d</pub-id></ref>
      <ref><pub-id pub-id-type="pmid">8</pub-id></ref><ref><pub-id pub-id-type="pmid">9</pub-id></ref></ref-list></back></article>"""
    content = read_article(xml).content
    assert content is not None
    assert (content.pmcid, content.pmid, content.doi) == ("PMC77", "123", "10.1/x")
    assert (content.language, content.article_type) == ("en", "case-report")
    assert content.journal == "Int J & Co 3"
    assert content.title == "On E. coli and Ca2+"
    assert content.abstract == "Aim\nA.\nResult\nB."
    assert content.keywords == ["one", "two", "three"]
    assert content.subjects == ["Case", "Eye"]
    assert content.published == "2011-07-18"
    assert content.citation == "Int J & Co 3. 2011-07-18; 6(7):1-9"
    assert content.reference_pmids == ["9", "8"]
    assert content.full_text == "Text."
    assert content.abbreviations is None


def test_abbreviations_listed_before_and_behind_the_text_are_kept() -> None:
    xml = b"""<article><front><article-meta/><notes><fn-group>
      <fn fn-type="abbr"><p>CT, computed tomography; US, ultrasound</p></fn></fn-group></notes></front>
      <body><p>Text.</p>
      <def-list><def-item><term>HR</term><def><p>heart rate</p></def></def-item></def-list></body>
      <back><glossary><title>Abbreviations</title><def-list>
      <def-item><term><bold>MRI</bold></term><def><p>magnetic <italic>resonance</italic>
      imaging</p></def></def-item>
      <def-item><term>TNF-&#945;:</term><def><p>tumor necrosis factor</p></def></def-item>
      <def-item><term>empty</term></def-item></def-list></glossary>
      <sec><title>List of abbreviations</title><p>BP: blood pressure</p></sec>
      <sec><title>Funding</title><p>NIH: none</p></sec>
      <ref-list><ref><note><p>XX: cited</p></note></ref></ref-list></back>
      <sub-article><back><glossary><p>RR: of the reply</p></glossary></back></sub-article>
      </article>"""
    content = read_article(xml).content
    assert content is not None
    assert (content.abbreviations or "").split("\n") == [
        "CT, computed tomography; US, ultrasound",
        "HR: heart rate",
        "MRI: magnetic resonance imaging",
        "TNF-α: tumor necrosis factor",
        "BP: blood pressure",
    ]


def test_the_layout_of_europe_pmc() -> None:
    content = article(
        "<sec><sec><ref-list><ref><mixed-citation>Lee A. Cells. doi: 10.1/x."
        "<ext-link ext-link-type='doi' xlink:href='10.1/x'/>"
        "<ext-link ext-link-type='pmid' xlink:href='77'/>"
        "<ext-link ext-link-type='pmid' xlink:href='https://pubmed.example/78'/>"
        "</mixed-citation></ref></ref-list></sec></sec>",
        front="<contrib-group content-type='author'><contrib><name><surname>Li</surname></name></contrib>"
        "</contrib-group><contrib-group content-type='editor'><contrib><name><surname>Ed</surname></name>"
        "</contrib></contrib-group><abstract><title>Abstract</title><p>Cells grew.</p>"
        "<sec sec-type='kwd-group'><p><bold>Keywords:</bold> growth, Fe(II, III), cell wall</p></sec>"
        "<sec sec-type='kwd-group'><p><bold>MeSH:</bold> Diabetes, Type 2; Obesity</p></sec>"
        "<sec sec-type='kwd-group'><p><bold>Abbreviations:</bold> CT, tomography</p></sec></abstract>",
    )
    assert content.authors == ["Li"]
    assert content.abstract == "Abstract\nCells grew."
    assert content.keywords == ["growth", "Fe(II, III)", "cell wall", "Diabetes, Type 2", "Obesity"]
    assert content.abbreviations == "CT, tomography"
    assert content.reference_pmids == ["77"]


def test_authors_have_their_given_names_first() -> None:
    content = article(
        "",
        front="""<contrib-group><contrib contrib-type="author"><name><surname>He</surname>
        <given-names>Wenmei</given-names></name></contrib><contrib contrib-type="author"><collab>
        <contrib-group><contrib><name><surname>Li</surname></name></contrib></contrib-group>
        </collab></contrib><contrib contrib-type="editor"><name><surname>Lee</surname></name></contrib>
        <contrib><string-name>Ana de Sá</string-name></contrib><contrib><string-name><surname>Wu</surname>,
        <given-names>Bo</given-names></string-name></contrib><contrib><name-alternatives><name><surname>Sato</surname>
        </name><string-name>佐藤</string-name></name-alternatives><bio><p><string-name>Jane Doe</string-name></p></bio>
        </contrib><contrib contrib-type="editor"><name-alternatives><string-name>Ed</string-name>
        </name-alternatives></contrib></contrib-group>""",
    )
    assert content.authors == ["Wenmei He", "Li", "Ana de Sá", "Bo Wu", "Sato"]


@pytest.mark.parametrize(
    ("published", "keywords"),
    [
        (["Growth, Cell wall, DNA"], ["Growth", "Cell wall", "DNA"]),
        (
            ["Biochemistry, Genetics, and Molecular Biology"],
            ["Biochemistry", "Genetics", "Molecular Biology"],
        ),
        (["Growth; DNA, Plant", "GmTIP2;6"], ["Growth", "DNA, Plant", "GmTIP2;6"]),
        (["Carcinoma, Hepatocellular"], ["Carcinoma, Hepatocellular"]),
        (["Temozolomide (TMZ; Temodar)", "MRI"], ["Temozolomide (TMZ; Temodar)", "MRI"]),
        (["Rats, Fe(II, III), DNA (plant)"], ["Rats", "Fe(II, III)", "DNA (plant)"]),
        (["Receptors, Antigen, T-Cell", "Mice"], ["Receptors, Antigen, T-Cell", "Mice"]),
    ],
)
def test_a_list_in_one_keyword_is_several(published: list[str], keywords: list[str]) -> None:
    words = "".join(f"<kwd>{word}</kwd>" for word in published)
    assert article("", front=f"<kwd-group>{words}</kwd-group>").keywords == keywords


@pytest.mark.parametrize(
    "group",
    [
        "<kwd-group kwd-group-type='abbreviations'>{}</kwd-group>",
        "<kwd-group><title>Abbreviations:</title>{}</kwd-group>",
    ],
)
def test_abbreviations_among_the_keywords_are_no_keywords(group: str) -> None:
    listed = "<kwd>CT, computed tomography</kwd><kwd>US: <italic>ultrasound</italic></kwd>"
    content = article("", front="<kwd-group><kwd>liver</kwd></kwd-group>" + group.format(listed))
    assert content.keywords == ["liver"]
    assert content.abbreviations == "CT, computed tomography\nUS: ultrasound"


@pytest.mark.parametrize(
    ("kinds", "abstract"),
    [
        (["short", "executive-summary", ""], "2"),
        (["toc", "short", "structured"], "2"),
        (["teaser", "executive-summary"], "1"),
        (["toc", "teaser"], None),
    ],
)
def test_the_only_abstract_may_be_called_a_summary(kinds: list[str], abstract: str | None) -> None:
    texts = (
        f"<abstract abstract-type='{kind}'><p>{number}</p></abstract>"
        for number, kind in enumerate(kinds)
    )
    assert article("", front="".join(texts)).abstract == abstract


@pytest.mark.parametrize(
    "mark",
    [
        "<xref ref-type='fn' rid='n'>*</xref>",
        "<xref ref-type='fn' rid='n'><sup>1</sup></xref>",
        "<sup><xref ref-type='fn' rid='n'>1</xref></sup>",
        "<xref ref-type='author-notes' rid='n'>†</xref>",
        "<fn id='n'><label>1</label><p>Part of a thesis.</p></fn>",
    ],
)
def test_footnotes_are_no_part_of_a_title(mark: str) -> None:
    title = f"<title-group><article-title>Growth{mark} of cells{mark}</article-title></title-group>"
    assert article("", front=title).title == "Growth of cells"


@pytest.mark.parametrize(
    ("title", "read"),
    [
        ("A study<sup>‡</sup> ", "A study"),
        ("A study<sup>†, ‡</sup>", "A study"),
        ("The CYP2C19<sup>*</sup>2 allele", "The CYP2C19*2 allele"),
        ("On C<sup>*</sup>-algebras<sup>*</sup>", "On C*-algebras"),
    ],
)
def test_raised_marks_end_a_title_or_are_names(title: str, read: str) -> None:
    front = f"<title-group><article-title>{title}</article-title></title-group>"
    assert article("", front=front).title == read


def test_powers_in_titles_are_marked_and_isotopes_are_not() -> None:
    words = "10<sup>6</sup> cells, <sup>18</sup>F-FDG, Ca<sup>2+</sup> and m<sup>2</sup>"
    title = f"<title-group><article-title>{words}</article-title></title-group>"
    assert article("", front=title).title == "10^6 cells, 18F-FDG, Ca2+ and m2"


@pytest.mark.parametrize(
    ("ids", "pmcid", "version"),
    [
        ("<article-id pub-id-type='pmcid'>PMC12</article-id>", "PMC12", None),
        ("<article-id pub-id-type='pmc'>12</article-id>", "PMC12", None),
        ("<article-id pub-id-type='pmcid-ver'>PMC12.3</article-id>", "PMC12", "3"),
        (
            "<article-id pub-id-type='pmcaid'>12</article-id><article-id pub-id-type='pmcaiid'>99</article-id>",
            "PMC12",
            None,
        ),
        ("<article-id pub-id-type='publisher-id'>PMC5</article-id>", None, None),
        (
            "<related-article><article-id pub-id-type='pmc'>4</article-id></related-article>",
            None,
            None,
        ),
    ],
)
def test_only_the_articles_own_pmcid_counts(
    ids: str, pmcid: str | None, version: str | None
) -> None:
    content = article("", front=ids)
    assert (content.pmcid, content.version) == (pmcid, version)


@pytest.mark.parametrize(
    ("dates", "published"),
    [
        ("<pub-date pub-type='epub'><year>1999</year></pub-date>", "1999"),
        ("<pub-date pub-type='ppub'><month>Jul</month><year>1999</year></pub-date>", "1999-07"),
        ("<pub-date pub-type='ppub'><season>Jul-Sep</season><year>1999</year></pub-date>", "1999"),
        (
            "<pub-date date-type='pub' publication-format='electronic'><day>2</day><month>03</month><year>2020</year></pub-date>",
            "2020-03-02",
        ),
        ("<pub-date pub-type='collection'><year>2001</year></pub-date>", "2001"),
        (
            "<pub-date pub-type='ppub'><year>2010</year></pub-date>"
            "<pub-date pub-type='epub'><day>18</day><month>7</month><year>2010</year></pub-date>"
            "<pub-date pub-type='pub'><day>5</day><month>3</month><year>2010</year></pub-date>",
            "2010-03-05",
        ),
        (
            "<pub-date pub-type='ppub'><year>2010</year></pub-date>"
            "<pub-date pub-type='epub'><day>18</day><month>7</month><year>2011</year></pub-date>",
            "2010",
        ),
        (
            "<pub-date pub-type='pmc-release'><day>1</day><month>1</month><year>2001</year></pub-date>",
            None,
        ),
        ("<pub-date pub-type='epub'><year>in press</year></pub-date>", None),
        (
            "<pub-date pub-type='epub'><day>45</day><month>2</month><year>2001</year></pub-date>",
            "2001-02",
        ),
        (
            "<pub-date pub-type='epub'><day>30</day><month>2</month><year>2001</year></pub-date>",
            "2001-02",
        ),
        ("", None),
    ],
)
def test_the_date_keeps_its_precision(dates: str, published: str | None) -> None:
    assert article("", front=dates).published == published


# --- reading safely ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("xml", "defect"),
    [
        (b"", jats.MALFORMED),
        (b"not xml", jats.MALFORMED),
        (b"<article><body>", jats.MALFORMED),
        (b"<article><body><p>a & b</p></body></article>", jats.MALFORMED),
        (b"<article><p xlink:href='x'/></article>", jats.MALFORMED),
        (b"\x00\x01\x02", jats.MALFORMED),
        (b"<html><body/></html>", jats.NOT_AN_ARTICLE),
        (b"<pmc-articleset><article/><article/></pmc-articleset>", jats.SEVERAL_ARTICLES),
        (
            b"<!DOCTYPE article [<!ENTITY x SYSTEM 'file:///etc/passwd'>]><article><body><p>&x;</p></body></article>",
            jats.DECLARES_ENTITIES,
        ),
        (b"<!DOCTYPE article [<!ENTITY % p SYSTEM 'http://127.0.0.1:9/x'> %p;]><article/>", None),
        (
            b"<!DOCTYPE article [<!ENTITY a 'ha'><!ENTITY b '&a;&a;&a;&a;&a;&a;&a;&a;'>]><article><p>&b;</p></article>",
            jats.DECLARES_ENTITIES,
        ),
        (
            b"<!DOCTYPE article SYSTEM 'x.dtd'><article><body><p>&nosuchthing;</p></body></article>",
            jats.UNKNOWN_ENTITY,
        ),
        (b"<article>" + b"<sec>" * 5000 + b"</sec>" * 5000 + b"</article>", jats.MALFORMED),
    ],
)
def test_what_cannot_be_read_has_a_reason(xml: bytes, defect: str | None) -> None:
    reading = read_article(xml)
    if defect is None:
        assert reading.defect in jats.DEFECTS
    else:
        assert reading.defect == defect
    assert reading.content is None


def test_a_doctype_is_not_fetched_and_its_entities_are_htmls() -> None:
    reading = read_article(
        b'<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//NLM//DTD x//EN" "http://127.0.0.1:9/archivearticle.dtd">'
        b"<article><body><p>a&mdash;b &alpha;<italic>&beta;</italic>c</p></body></article>"
    )
    assert reading.content is not None
    assert reading.content.full_text == "a—b αβc"


@pytest.mark.parametrize(
    "xml",
    [
        b"<pmc-articleset><article><body><p>T</p></body></article></pmc-articleset>",
        b'<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"><GetRecord><record><metadata>'
        b'<article xmlns="https://jats.nlm.nih.gov/ns/archiving/1.4/"><body><p>T</p></body></article>'
        b"</metadata></record></GetRecord></OAI-PMH>",
        b'\n <?xml version="1.0" encoding="utf-8"?><article><body><p>T</p></body></article>',
        "<?xml version='1.0' encoding='utf-16'?><article><body><p>T</p></body></article>".encode(
            "utf-16"
        ),
        b"\xef\xbb\xbf<article><body><p>T</p></body></article>",
    ],
)
def test_wrappers_namespaces_and_encodings(xml: bytes) -> None:
    content = read_article(xml).content
    assert content is not None
    assert content.full_text == "T"


def test_a_wrapped_article_is_read_whole_though_wrappers_and_namespaces_differ() -> None:
    content = read_article(
        b'<a:article xmlns:a="http://jats.nlm.nih.gov" xmlns:xlink="http://www.w3.org/1999/xlink"><a:body>'
        b'<a:fig id="f"><a:caption><a:p>C <a:bold>b</a:bold></a:p></a:caption><a:graphic xlink:href="g"/></a:fig>'
        b"</a:body></a:article>"
    ).content
    assert content is not None
    assert [(f.caption, f.graphics) for f in content.figures] == [("C b", [Graphic(["g"])])]


@pytest.mark.parametrize(
    "xml",
    [b"<article>" + b"<a/>" * 10_000_000 + b"</article>",
     b"<article>" + b"<a b='' c='' d=''/>" * 1_500_000 + b"</article>"],
    ids=["elements", "attributes"],
)  # fmt: skip
def test_xml_whose_tree_would_fill_the_memory_is_not_read(xml: bytes) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reading = read_article(xml)
    assert (reading.content, reading.defect) == (None, "xml too large")
    # The bytes may be copied; the tree would take a gigabyte.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000


def test_xml_of_thirty_megabytes_of_ordinary_text_is_read() -> None:
    paragraph = b"<p>Cells <italic>grow</italic> in <xref rid='b1'>1</xref> " + b"x" * 50 + b"</p>"
    assert foreign_xml.tree_bytes(paragraph * 280_000) < foreign_xml.MAX_TREE_BYTES
