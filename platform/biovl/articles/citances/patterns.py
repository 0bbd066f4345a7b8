"""Patterns of figure references: their words and signs.

All repetitions in the patterns are bounded, so that matching takes linear time.
"""

import re

DASH = r"\-–—‒‐‑−"

HEAD = re.compile(
    r"""
    (?<![A-Za-z])(?:
      (?P<electronic>e-?|[sS](?=Fig))?(?P<figure>
        (?:Fig(?:ure|ura)?|FIG(?:URE)?|fig(?:ure|ura)?)(?P<plural>s|S|\(s\)|\.s|es)?\.?)
      | (?P<scheme>(?:Scheme|SCHEME|scheme)(?P<schemes>s|S)?)
      | [Pp]anels?(?=\s\d{1,2}[A-Za-z](?![A-Za-z]))
    )
    (?:\s?(?:no\.?|n°|\#|number)(?=\s?\d))?(?P<gap>[\s~]{0,2}|-(?=\d))
    (?=\(?(?:\d|[A-Z]{1,3}[-\s]?\d|[A-D]\.\d|[IVX]+\b|[A-Z]\b))
    """,
    re.VERBOSE,
)
NUMBER = re.compile(
    rf"""
    (?P<prefix>(?:S[-\s.]?|(?:SI|ES|EV|ED|[AEBCDW])-?|[A-D]\.)(?=\d))?
    (?P<digits>\d{{1,3}}(?:\.\d{{1,2}}(?![\d{DASH}]))?)(?!\d)
    (?P<supplement>\s?[{DASH}]{{1,2}}\s?[Ff]igure\s[Ss]upplements?\s?(?P<of>\d{{1,2}}))?
    """,
    re.VERBOSE,
)
ROMAN_NUMBER = re.compile(r"(?P<roman>X{0,2}(?:IX|IV|V?I{1,3}|V|X))(?![\w-])(?!\.\s?[a-z])")
LETTER_NUMBER = re.compile(
    r"(?P<letter>[A-Z])(?=(?:\s?(?:,|and|&|–|-)\s?[A-Z]){0,9}\s(?:in|of)\sS\d)"
)
NOT_A_FIGURE = re.compile(
    rf"\s?[{DASH}]{{1,2}}\s?(?:source|video|animation|movie|table|fold|shape)"
    rf"|[\s{DASH}](?:shaped?|like|pattern|configuration|knot)\b",
    re.IGNORECASE,
)
# A letter, some letters that are panels or parts of one, a letter with a digit or a prime.
LABEL = re.compile(
    r"(?P<open>[(\[]\s?)?"
    r"(?P<label>[A-Za-z](?:[A-Za-z]{1,3}|\d{1,2}(?![\d.])|['′’″`]{1,3})?)(?![^\W_])"
    r"(?P<close>\s?[)\]])?"
)
PART = re.compile(
    r"\s?\(\s?(?P<part>[ivx]{1,4}|[a-h])(?:\s?\)|(?=\s?[,–-]))"
    r"|\s(?P<roman>i{1,3}|iv|v|vi{1,3}|ix)(?=\s?[,;)–-])"
)
# Panels of a panel: "1C, panels A–D".
INNER_PANELS = re.compile(
    rf"\s?[{DASH}]?,?\s?\(?(?:[Ss]ub-?)?(?:[Pp]anels?|[Pp]arts?)\s"
    r"(?=[(\[]?(?:[A-Za-z]|[ivx]{2,4})(?![A-Za-z]))"
)
FOOTNOTE = re.compile(r"[†‡§¶]+")
# "3 a) and b)": a bracket that belongs to the label.
HALF_BRACKET = re.compile(
    rf"\)(?=(?:\s?[,&{DASH}]\s?(?:(?:and|or)\s)?|\s(?:and|or|to)\s)\d{{0,2}}[A-Za-z]\))"
)
STAIN = re.compile(r"H\s?(?:&|/|and)\s?E\b")
SAME_LETTER = re.compile(r"\d{1,2}(?![\w.])")
APART = re.compile(
    rf"(?P<sign>\s?[{DASH}.,:;]?\s?)(?P<word>(?:sub-?)?(?:[Pp]anels?|PANELS?|[Pp]arts?)\s)?"
)
JOINT = re.compile(
    rf"""
    (?P<range>\s?[{DASH}]\s? | \s(?:to|through|thru)\s)
    | (?P<versus>\s?,?\s(?:vs\.?|versus|compared\s(?:to|with)|relative\sto|
        (?:and\s)?with(?=\s\d{1, 2}[A-Za-z]\b))\s)
    | \s?(?P<sign>[,;&/+])\s?(?:(?:and|or|&|as\swell\sas)\s(?:also\s)?|&\s?)?
    | \s(?P<word>and/or|and|or|&|as\swell\sas|[ey](?=\s\d))\s
    | (?P<none>)(?=\s?\([A-Za-z]\))\s?
    """,
    re.VERBOSE,
)
HEAD_AGAIN = re.compile(r"\(?(?:[Ff]ig(?:ure)?s?|FIG(?:URE)?S?)\.?\s?(?=[SA]?\d)")

ROMANS = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix", "x", "xi", "xii")
ORDINALS = frozenset({"st", "nd", "rd", "th"})

_VERBS = r"""
    shows? showed shown is are was were depicts? depicted presents? presented displays? displayed
    demonstrates? represents? indicates? reveals? summari[sz]es? illustrates? gives? compares?
    plots? reports? provides? suggests? confirms? highlights? describes? lists? contains? has have
    respectively also that which
""".split()
_LINKS = "in of for as with by on at from we the where when while but using below above see".split()
CONTINUES = re.compile(rf"\s(?:{'|'.join([*_VERBS, *_LINKS])})\b")
"""Words that clearly continue the sentence after a reference and are not a count or a name."""
# Acta Crystallographica writes "Fig. 2 ▸ b", "Fig. 2 ▸(b)", with a link from the arrow.
ARROW = re.compile(
    rf"\s?[▸▶►]\s?(?=\([a-z]\)|[A-Za-z](?:\s?[^\w\s=<>]|\s(?:and|or|to)\s|$|{CONTINUES.pattern}))"
)
CLOSED = re.compile(r"\s?(?:[)\],;:]|\.(?!\d)|$|\[\d)")
LIST_GOES_ON = re.compile(rf"\s?[,;&/{DASH}]|\s(?:and|or|to|vs|versus|through)\b|\s[ey]\s\d|\s\(")
# After a letter that is not a panel: a statistic, a cell, the initial of a species, "e.g.".
PROSE = re.compile(
    rf"\s?[=<>≤≥≈~±%*]|[{DASH}][A-Za-z]{{2}}|\.\s?[a-z]{{2}}|\.\s?[a-z]\.|\s?\(\d+,\s?\d+\)"
    r"|['’]s\b|\s?/\s?[a-z]{2}"
    r"|\s(?:cells?|lymph\w*|phases?|values?|bars?|scores?|tests?|axis|virus|statistics?)\b",
)
UNIT = re.compile(
    rf"(?:\s?[{DASH}]\s?\d+)?\s?(?:%|°|‰|×|mm|cm|nm|µm|μm|mg|µg|ml|mL|kDa|kb|bp|fold|min|h|hours?|days?|weeks?|months?|"
    r"years?|s|ms|sec|mice|patients|cells|samples|animals|times|out|different|rats|subjects|genes|proteins)"
    rf"(?![^\W\d_])|[{DASH}][A-Za-z]{{2}}|\.\d|,\d{{3}}"
)
# "2A, 3D structure": resembles a number and its panel.
NO_PANEL_WORD = re.compile(
    r"\s(?:structures?|models?|images?|gels?|cultures?|reconstructions?|views?|rRNA|mice|plots?|"
    r"print\w+|visuali\w+|culture|space|NMR|PAGE|domain|cells)\b"
)
# "Fig. 1A for mice and 1B for rats": not "2D structure", nor "24h" and "5g" outside of brackets.
NUMBER_AGAIN = re.compile(
    r"(?<![\w.,–—-])(?![23]D(?!\w|\)))(?P<digits>\d{1,2})"
    r"(?:(?<=\(\d)|(?<=\(\d\d)|(?=[A-Zabcefi-kopqrt-wyz]))(?=[A-Za-z](?!\w))"
)
# "on chromosomes 1A and 2B": of wheat.
CHROMOSOMES = re.compile(
    r"\b(?:chromosomes?|chr\.?)\s(?:\d{1,2}[A-Z],?\s(?:(?:and|or)\s)?){0,8}\Z", re.IGNORECASE
)
NOT_FIGURES = re.compile(
    r"\s(?:[A-Z]\s)?(?:Tables?|Text|Files?|Data(?:set)?s?|Movies?|Videos?|Appendi\w+|Protocols?|"
    r"Methods?|Notes?|phase|sites?|subunits?|protein|cells)\b"
)
NUMBERED_BEHIND = re.compile(r"\s(?:Supplementary\s)?[Ff]ig(?:ure)?s?\b\.?(?!\s?[S\d])")
PLOS = re.compile(r"(?<![\w.-])S\d{1,2}(?!\d)")

_PLACE = (
    r"(?i:upper(?:most)?|lower(?:most)?|top(?:most)?|bottom|far(?=[\s-](?:lef|righ)t)|left(?:-?most)?|right(?:-?most)?|middle|mid|"
    r"cent(?:er|re|ral)|insets?|inner|outer|first|second|third|fourth|fifth|sixth|last)"
)
_NOUN = (
    r"(?:panels?|rows?|columns?|insets?|images?|graphs?|plots?|parts?|traces?|charts?|pictures?|"
    r"photographs?|photos?|(?:photo)?micrographs?|blots?|gels?|histograms?|heat\s?maps?|schemes?|"
    r"schematics?|cartoons?|spectr(?:a|um)|scans?|views?|sections?|tiers?|maps?|diagrams?|half|side|(?:hand\s)side)"
)
_PLACES = rf"{_PLACE}(?:[\s-]{_PLACE}){{0,2}}"
PLACES_AFTER = re.compile(
    rf"(?P<gap>\s?[,;]\s?|\s?[(\[]|\s|\s?[–-]\s?|\s?:\s)(?:see\s)?(?:the\s)?"
    rf"(?:panels?\s(?:on|at|in)\sthe\s)?(?P<places>{_PLACES}"
    rf"(?:(?:\s?,\s?(?:and\s)?|\s(?:and|or|to|vs\.?)\s|\s?/\s?|\s?&\s?){_PLACES}){{0,3}})"
    rf"(?:-hand(?=\s{_NOUN}))?(?:\s(?:two|three|four)(?=\s{_NOUN}))?"
    rf"(?:[\s-](?P<noun>{_NOUN})(?:\sof\s[a-z]{{2,20}}(?=\)))?)?(?![\w-])(?P<close>[)\]])?"
)
PLACE_JOINT = re.compile(r"(\s?,\s?(?:and\s)?|\s(?:and|or|to|vs\.?)\s|\s?/\s?|\s?&\s?)")
PLACES_BEFORE = re.compile(
    rf"(?<!\w)(?P<places>{_PLACES}(?:(?:\s(?:and|or)\s|\s?/\s?|,\s?){_PLACES}){{0,2}})"
    rf"(?:[\s-]hand)?(?:\s(?P<noun>{_NOUN}))(?:\s(?:shown|displayed|presented))?"
    r"(?:\s(?:of|in|from)\s(?:the\s)?|,\s)$|(?<!\w)(?P<inset>[Ii]nsets?)\s"
    r"(?:(?:at|on)\s(?:the\s)?(?:top|bottom|left|right)\s)?(?:of|in|to|from)\s(?:the\s)?$"
)
PANELS_BEFORE = re.compile(
    r"(?<!\w)(?:[Ss]ub-?)?(?:[Pp]anels?|[Pp]arts?)\s(?P<labels>[(\[]?[A-Za-z](?![A-Za-z])[)\]]?"
    rf"(?:\s?(?:[{DASH},&/]|and|or|to)\s?(?:and\s)?[(\[]?[A-Za-z](?![A-Za-z])[)\]]?){{0,7}})"
    r"(?:\s(?:of|in|from|to|on)\s(?:the\s)?|(?<![)\]]),\s)$"
)
PANEL_WORD = re.compile(
    r"(?<![\w-])(?:[Ss]ub-?)?[Pp]anels?\s(?=[(\[]?(?:[A-Za-z]|[ivx]{2,4})(?![A-Za-z]))"
)
POINTED_AT = re.compile(
    r"\s?,\s?(?:[A-Za-z-]+\s){0,3}(?:arrow(?:head)?s?|asterisks?|stars?|bars?|lines?|curves?|"
    r"circles?|dots?|box(?:es)?|traces?|squares?|triangles?|symbols?|diamonds?|red|green|blue|black|"
    r"white|yellow|gr[ae]y|orange|magenta|cyan|purple)(?=\s?[),;.\]])"
)

SUPPLEMENT_BEFORE = re.compile(
    r"""
    (?<![A-Za-z\d-])(?:
      (?:(?:[Oo]nline|[Ww]eb|[Ee]lectronic|[Ee]xtended)[\s-])?
      (?:[Ss]upplement(?:ary|al|ing|s)?|SUPPLEMENT(?:ARY|AL)|[Ss]upp?l?\b\.?|[Ss]upporting|SI\b(?!\s\()|ESM\b|
         [Ee]xtended\s[Dd]ata|[Ee]xpanded\s[Vv]iew|(?:[Oo]nline|[Ww]eb|[Ee]lectronic)(?=\s?$)|
         [Oo]nline\s[Rr]esources?|[Aa]dditional\s[Ff]iles?|Additional(?=\s?$)|[Mm]ultimedia|[Aa]ppendix(?=\sS\d)|S\d{1,2}\s(?:Text|File|Appendix|Data))
      (?:[\s-](?:[Mm]aterials?|[Ii]nformation|[Ii]nfo|[Dd]ata|[Oo]nline|[Ff]iles?|[Cc]ontents?|
         [Rr]esources?|[Dd]igital|[Ss]upplement|[Aa]ppendix)\b\.?){0,3}
      (?:\s?[A-Z]?\d{1,2}[A-Za-z]?\b)?
      [\s,:.({\[–—-]{0,3}(?:see\s|in\s)?
    )$
    """,
    re.VERBOSE,
)
SUPPLEMENT_AFTER = re.compile(
    r",\ssupporting\sinformation(?=\s?[);\].])|"
    r"[)\]]?,?\s(?:in|of|from)\s(?:the\s|our\s)?(?:online\s|electronic\s|web\s)?"
    r"(?:supplement|supporting|additional\sfile|appendix\sS\d|SI\b|ESM\b|S\d{1,2}\s(?:file|text|appendix|data)|"
    r"(?:online|web)\b)",
    re.IGNORECASE,
)
APPENDIX_BEFORE = re.compile(
    rf"(?<![A-Za-z])(?P<name>[Aa]ppendi(?:x|ces)(?:\s[A-Z\d]{{1,2}})?)(?P<sign>[\s,:({DASH}]{{1,3}})$"
)
APPENDIX_AFTER = re.compile(
    r",?\s(?:in|of)\s(?:the\s)?(?:online\s)?appendi(?:x|ces)", re.IGNORECASE
)

_NAME = r"(?:(?:van|von|de|der|den|la|le|di)\s){0,2}[A-Z][\w'’-]+"
_AUTHORS = rf"{_NAME}(?:(?:,?\s(?:and|&)\s|,\s){_NAME}){{0,2}}(?:\set\sal\.?|\sand\scolleagues)?"
OTHER_AFTER = re.compile(
    rf"""
    [)\]]?,?\s(?:of|in|from)\s(?:the\s)?(?!(?:Jan|Febr)uary|Ma(?:rch|y)|April|Ju(?:ne|ly)|August
      |(?:Septem|Octo|Novem|Decem)ber)(?:
      [Rr]ef(?:erence|s|\.|s\.)?\.?\s?[\[(]?\d | \[\d | \(?{_AUTHORS},?\s[\[(]?(?:1[89]|20)\d\d
      | {_NAME}(?:\s(?:and|&)\s{_NAME}|\set\sal) | [Rr]eference | their\s
      | that\s(?:paper|study|work)
    ) | \sthere(?:in\b|(?=\s?[),.;:\]]|\Z))
      | \sof\s(?:that|the\soriginal)\s(?:paper|article|publication|study)
    """,
    re.VERBOSE,
)
OTHER_BEFORE = re.compile(
    rf"""
    (?<!\w)(?:[Tt]heir | {_NAME}(?:\set\sal\.?)?['’]s) \s (?:own\s)?$
    | (?<!\w)(?:{_NAME}|al\.?)\s?,?\s?(?P<year>[\[(])?(?:1[89]|20)\d\d[a-z]?
      (?:(?P<listed>(?(year),|\)?,)\s)|\)?[,:]\s?)(?:pp?\.\s?)?(?:\d+[\d,\s{DASH}]{{0,12}},\s?)?(?:see\s)?$
    | \[\d{{1,3}}[,:]\s?(?:see\s)?$ | [Rr]ef\.?\s?\[?\d{{1,3}}\]?,\s?$
    """,
    re.VERBOSE,
)
