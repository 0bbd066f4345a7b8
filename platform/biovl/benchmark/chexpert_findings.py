"""Rule-based labeller of chest radiograph reports: CheXpert's 13 findings and ``No Finding``.

A phrase mentions a finding, and the words around it make the mention positive, uncertain or
negative. The label of a finding is that of its strongest mention, positive before uncertain before
negative; a finding without a mention is blank. The phrases below were written from the published
description. Other labellers can replace ``label``.

Source:
    Irvin et al. 2019 (CheXpert), arXiv:1901.07031, section 2, for the findings, their hierarchy and
    the three stages: mention, classification, aggregation.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

State = Literal["positive", "uncertain", "negative"]

NO_FINDING = "No Finding"
SUPPORT_DEVICES = "Support Devices"

_NOT_OF_OTHERS = "".join(
    f"(?<!{place} )"
    for place in "pericardial joint hip knee ankle elbow shoulder subdural ear".split()
)
_HEART = r"(?:heart(?: size)?|cardiac (?:silhouette|shadow|size)(?: size)?)"
_MEDIASTINUM = r"(?:cardio-?)?mediastin(?:um|al (?:silhouettes?|contours?))"
# "Mildly to moderately enlarged", but not "normal and the aorta is enlarged".
_IS = r"(?:is|are|appears?|remains?)(?: (?!and\b|with\b)\w+){0,3}?"
_MENTIONS: Mapping[str, str] = {
    "Enlarged Cardiomediastinum": (
        r"(?:enlarged|widened|wide|prominent|enlargement of the|widening of the)"
        rf"(?: superior| upper)? {_MEDIASTINUM}"
        rf"|mediastinal (?:widening|enlargement)|{_MEDIASTINUM} {_IS} (?:enlarged|widened)"
    ),
    "Cardiomegaly": (
        r"cardiomegaly|cardiac enlargement"
        r"|(?:enlarged|enlargement of the) (?:heart|cardiac (?:silhouette|shadow))"
        rf"|{_HEART} {_IS} (?:enlarged|increased)|cardiothoracic ratio (?:is )?increased"
    ),
    "Lung Opacity": (
        r"(?:lung |pulmonary |airspace |air-space |interstitial |ground[- ]glass |reticular "
        r"|alveolar |hazy |patchy |bibasilar |basal |lobe )*opaci(?:ty|ties|fications?)"
        r"|infiltrat(?:e|es|ion|ions)|airspace disease|air-space disease|interstitial markings"
        r"|ground[- ]glass|white[- ]?out"
    ),
    "Lung Lesion": (
        r"(?:lung|pulmonary|lobe|hilar|cavitary|cavitating|spiculated)(?: \w+)? "
        r"(?:mass|masses|nodules?|lesions?|tumou?rs?)|nodules?|masses|mass|lung cancer"
        r"|lung metastas[ei]s|pulmonary metastas[ei]s|granulomas?"
    ),
    "Edema": (
        r"(?:pulmonary |interstitial |alveolar |lung )?o?edema|vascular congestion"
        r"|pulmonary congestion|venous congestion|kerley(?: b)? lines|cephali[sz]ation"
        r"|fluid overload|volume overload"
    ),
    "Consolidation": r"consolidations?|consolidated|consolidative",
    "Pneumonia": r"(?:broncho|pleuro)?pneumoni(?:a|ae|as|c)|infectious process|lung infection",
    "Atelectasis": r"atelecta(?:sis|ses|tic)|(?:lobar|lung|lobe|segmental) collapse|collapsed lung",
    "Pneumothorax": r"(?:hydro)?pneumothora(?:x|ces)",
    "Pleural Effusion": (
        rf"(?:pleural |{_NOT_OF_OTHERS})effusions?(?! in the pericard)"
        r"|pleural (?:and|or) pericardial effusions?|pleural fluid|h(?:a?e)mothorax|hydrothorax"
        r"|blunt(?:ing|ed)(?: of)?(?: the)?(?: (?:left|right|bilateral|lateral|posterior))*"
        r" costophrenic"
    ),
    "Pleural Other": (
        r"pleural (?:thickening|plaques?|scarring|calcifications?|based)|fibrothorax"
        r"|(?:bi)?apical (?:pleural )?(?:cap|capping|thickening)|empyema"
    ),
    "Fracture": r"fractur(?:e|es|ed)",
    "Support Devices": (
        r"(?:endotracheal|tracheostomy|nasogastric|orogastric|enteric|feeding|chest|et|ng|og)"
        r" tubes?|(?:central|venous|picc|arterial|subclavian|jugular)(?: venous)?"
        r" (?:lines?|catheters?)|pacemakers?|picc|port-?a-?cath|mediport|swan-?ganz"
        r"|(?:sternal|sternotomy) wires"
        r"|(?:prosthetic|mechanical) valves?|valve (?:replacement|prosthesis)"
        r"|(?:intra-aortic )?balloon pump|defibrillators?|icd|stents?|catheters?|pacer|drains?"
    ),
}

FINDINGS: tuple[str, ...] = tuple(_MENTIONS)
"""Names of the 13 findings other than ``No Finding``."""

_MENTION = {name: re.compile(rf"\b(?:{phrases})\b") for name, phrases in _MENTIONS.items()}

# Phrases without the finding's name.
_NORMAL: Mapping[str, re.Pattern[str]] = {
    "Cardiomegaly": re.compile(
        rf"\b{_HEART}(?: and [\w ]{{1,40}}?)?"
        r" (?:is|are|appears?|remains?) (?:\w+ )?(?:normal|unremarkable|not enlarged)"
        r"|\bnormal (?:heart|cardiac)(?: size| silhouette)?|\bheart is not enlarged"
    ),
    "Enlarged Cardiomediastinum": re.compile(
        rf"\b{_MEDIASTINUM}(?: and [\w ]{{1,40}}?)?"
        r" (?:is|are|appears?|remains?) (?:\w+ )?(?:normal|unremarkable|stable|within normal)"
        r"|\bnormal (?:cardio)?mediastin"
    ),
    "Lung Opacity": re.compile(
        r"\b(?:lungs|lung fields)(?: \w+)? (?:are|is|appear) (?:\w+ )?clear"
    ),
    "Pleural Effusion": re.compile(r"\bcostophrenic (?:angles?|sulci) (?:are|is) (?:sharp|clear)"),
}

# Lines that begin with a heading or a bullet begin a sentence; other line breaks are anywhere.
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|\n\s*\n|\n(?=[^\n:]{2,40}:|\s*[-*•]\s)")
_HEADING = re.compile(rf"\b(?:{'|'.join(_MENTIONS.values())}) ?:$")
_BEFORE, _AFTER = 300, 100
"""Characters before and after a mention that determine its state."""
# "No effusion but a pneumothorax": the negation ends before the second mention.
_CONTRAST = re.compile(
    r"\b(?:but|however|although|though|whereas|while|except|otherwise|yet|there (?:is|are)|"
    r"with (?:new|persistent|stable|increased|small|mild|moderate|large))\b"
    r"|, (?:and )?(?:the|a|an|heart|cardiac|mild|moderate|severe|small|stable|unchanged"
    r"|persistent)\b"
)
_UNCERTAIN_BEFORE = re.compile(
    r"\b(?:may|might|could|possib(?:le|ly)|probabl[ey]|likely|suspected|suspicio(?:n|us)|question"
    r"(?:able)?|concern(?:ing)? for|suggest(?:s|ive|ing)?|cannot (?:be )?(?:exclude|rule out)"
    r"|can ?not (?:exclude|rule out)|not (?:exclude|rule out)|rule out|r/o|equivocal|presumed"
    r"|differential|versus|vs|potential(?:ly)?|consider|unlikely(?=[^,]*$))\b|\?"
)
_UNCERTAIN_AFTER = re.compile(
    r"^[^,]{0,60}?\b(?:(?:cannot|can ?not|not|never|couldn't|can't) (?:be |been )?"
    r"(?:entirely |completely )?(?:excluded|ruled out)|unlikely"
    r"|is (?:questioned|difficult)"
    r"|(?:are|is|would be) (?:(?:less|more|most|very) )?(?:possible|likely|suspected|considered))\b"
    r"|^\s*(?:\?|(?:versus|vs)\b)|^ ?[:–-] ?(?:\?|(?:possibl[ey]|probabl[ey]|likely|suspected"
    r"|questionable|equivocal|uncertain|indeterminate|maybe|may|cannot)\b)"
)
# "No change in the effusion", "no doubt about" and "not only" negate no finding.
_NO_NEGATION = re.compile(
    r"\b(?:no|not|without)(?: (?:a|an|any|significant|substantial|appreciable|interval|definite"
    r"|major|relevant|important|other))* (?:changes?|doubt|only|increase|decrease|improvement"
    r"|worsening|progression)\b"
)
# In "no pneumothorax, effusion has increased", the mention begins a clause.
_CHANGES = re.compile(
    r"^ (?:has|have) (?:\w+ )?(?:in|de)creased|^ (?:has|have) (?:worsened|developed)"
)
# "No edema, and effusions are present" and "no edema and a small effusion", but neither "no edema,
# effusion, and mass" nor "removal of a line and a tube".
_NEXT_CLAUSE = r"[^,]*, and\b|(?: (?!(?:an?|the)\b)[^, ]+)+ and an? "
_NEGATIVE_BEFORE = re.compile(
    r"\b(?:no|not|without|never|absen(?:ce of|t)|free of|clear of|negative for|denies|lack of"
    r"|neither|nor|resol(?:ved|ution of)|exclud(?:es|ed|ing)|rul(?:es|ed|ing) out|rather than"
    rf"|removal of|removed)\b(?!{_NEXT_CLAUSE})"
)
_NEGATIVE_AFTER = re.compile(
    r"^[^,]{0,40}?\b(?:(?:is|are|was|were|has been|have been) (?:no longer|absent|excluded"
    r"|ruled out|resolved|removed)"
    r"|(?:has|have) (?!not |partial|partly|incomplete)(?:\w+ )?(?:resolved|cleared)"
    r"|not (?:been )?(?:(?!well |fully |as )\w+ )?(?:seen|identified|present|evident|visuali[sz]ed"
    r"|demonstrated|visible|detected|found|noted|apparent|appreciated|observed|suspected))"
    r"|^ (?!not |never |partial|partly|incomplete)(?:\w+ )?(?:removed|resolved|excluded"
    r"|ruled out)\b"
    r"|^ ?[:–-] ?(?:none|nil|absent|negative|removed|resolved|no(?! \w))\b"
)
_ITEM = rf"(?:\w+ )?(?:{'|'.join(_MENTIONS.values())})"
# "Consolidation, effusion and edema are absent": what follows the list is about all of it.
_REST_OF_LIST = re.compile(rf"^(?:, {_ITEM})+,? (?:and|or) {_ITEM}(?= (?:are|were|have)\b)")
# "Edema: no evidence" negates the edema, "chest tube: no pneumothorax" not the tube.
_NO_FINDING_AFTER = re.compile(r"^ ?: ?no\b")

_STRENGTH = {"negative": 0, "uncertain": 1, "positive": 2}


def label(text: str) -> dict[str, State]:
    """Return the state of each finding that a report mentions.

    ``No Finding`` is positive if nothing but support devices is positive or uncertain; otherwise it
    is absent.
    """
    states: dict[str, State] = {}

    def tell(name: str, state: State) -> None:
        if name not in states or _STRENGTH[state] > _STRENGTH[states[name]]:
            states[name] = state

    for sentence in _sentences(text.lower()):
        for name, pattern in _NORMAL.items():
            if pattern.search(sentence):
                tell(name, "negative")
        for name, pattern in _MENTION.items():
            for mention in pattern.finditer(sentence):
                start, end = mention.span()
                before = sentence[max(start - _BEFORE, 0) : end]
                after = sentence[end : end + _AFTER]
                if not (after.lstrip().startswith(":") and pattern.search(after)):
                    tell(name, _state(before, after, is_device=name == SUPPORT_DEVICES))
    is_abnormal = any(
        state != "negative" for name, state in states.items() if name != SUPPORT_DEVICES
    )
    if text.strip() and not is_abnormal:
        states[NO_FINDING] = "positive"
    return states


def _sentences(text: str) -> Iterator[str]:
    """Return the sentences of a text; a finding and a colon belong to what follows."""
    heading = ""
    for part in _SENTENCE.split(text):
        sentence = heading + " ".join(part.split())
        heading = f"{sentence} " if not heading and _HEADING.search(sentence[-_AFTER:]) else ""
        if not heading:
            yield sentence
    yield heading.strip()


def _state(before: str, after: str, *, is_device: bool) -> State:
    """Return the state of a mention from the words around it in its sentence.

    Args:
        before: The text up to and including the mention: ``, heart is enlarged`` begins a clause.
        after: The text after the mention.
        is_device: Whether the mention is of a support device.
    """
    answers, _, before = before.rpartition(": ")
    before = _NO_NEGATION.sub("", _CONTRAST.split(before)[-1])
    # In "effusion: no, edema: mild", the second mention begins a clause as well.
    if _CHANGES.match(after) or (answers and after.lstrip().startswith(":")):
        before = before.rpartition(",")[2]
    after = _REST_OF_LIST.sub("", _NO_NEGATION.sub("", _CONTRAST.split(after)[0]))
    if _UNCERTAIN_BEFORE.search(before) or _UNCERTAIN_AFTER.search(after):
        return "uncertain"
    if _NEGATIVE_BEFORE.search(before) or _NEGATIVE_AFTER.search(after):
        return "negative"
    if not is_device and _NO_FINDING_AFTER.search(after):
        return "negative"
    return "positive"
