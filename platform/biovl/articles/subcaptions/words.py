"""Words around a label that show if its text precedes or follows it, or if it is a reference."""

import re

SEPARATORS = " \t\n\xa0,;:.–—-|=)]"
REFERRING = re.compile(
    r"\b(?:in|of|from|as|to|than|see|panels?|between|for|by|with|on)\s?\(?$", re.IGNORECASE
)
# "Panel (A) shows the head, while (B) shows the tail": the label is the subject.
SUBJECT = re.compile(r"(?:\b(?:while|whereas|and|but|panels?)|[,;:])\s$", re.IGNORECASE)
NOUN = re.compile(r"\s*panels?\s+", re.IGNORECASE)
# In front of the first label: "Title. Notes: (A) Growth.", "Figure 1: (A) Growth.".
NOTES = re.compile(
    r"\s*(?:(?:notes?|legend)\s?:|fig(?:ure|\.)?\s?\d{1,3}\s?[:|])\s*", re.IGNORECASE
)
COMPARING = re.compile(
    r"\b(?:as\sin\s(?:the\s)?panels?|(?:described|shown|seen|see|as|same|similar|identical|"
    r"compared|according|like|than|that|those|corresponds?|corresponding)"
    r"(?:\s(?:as|in|to|with|for))*|"
    r"(?:corresponds?\sto|match(?:es)?|follows?)\s(?:\w+\s){0,4}(?:in|of|from))\s?\(?$",
    re.IGNORECASE,
)
# "Means are shown in (A) and (B)", unlike "as shown in (A)".
SHOWN_IN = re.compile(
    r"\A[^,;]{3,50}\s(?:is|are|was|were)\s(?:also\s)?(?:shown|displayed|presented|plotted|given)\sin\s"
    r"(?:the\s)?(?:panels?\s)?\(?\Z"
)
REFERRING_ON = re.compile(r"(?:,|\b(?:and|or))\s?$", re.IGNORECASE)
COMPLEMENT = re.compile(
    r"(?:[:;,(]|\b(?:and|or|of|the|with|by|under|from|at|for|to|in|on|using|between|showing|demonstrating|"
    r"representing|illustrating|depicting|a|an|"
    r"then|while|through|into|via|after|before|during|that|as|against|versus|vs\.?))\s?$",
    re.IGNORECASE,
)
CONJUNCTION = re.compile(r"\b(?:and|or|both|either|but|then)\s$", re.IGNORECASE)
ITEM_END = re.compile(r"(?:[,;]|\b(?:and|or))\s\Z")
ASIDE = r"\s?(?:\([^()]{1,40}\)\s)?"
VERBS = (
    r"shows?|showed|showing|demonstrates?|demonstrated|demonstrating|indicates?|indicated|"
    r"indicating|reveals?|revealed|revealing|is|are|was|were|has|have|had|represents?|displays?|"
    r"depicts?|illustrates?|confirms?|confirmed|presents?|lacks?|lacked|contains?|contained|"
    r"exhibits?|exhibited|fails?|failed|remains?|remained|appears?|appeared"
)
VERB = re.compile(rf"{ASIDE}(?:{VERBS})\b", re.IGNORECASE)
ANY_VERB = re.compile(rf"\b(?:{VERBS})\b", re.IGNORECASE)
PREDICATE = re.compile(
    rf"{ASIDE}(?:{VERBS}|can|did|does|do|obtained|shown|suggests?|after|before|"
    r"of|in|for|at|from|with|during|on|by|under|as|using|to|per|between|among|over|through|along|"
    r"within|versus|against|views?|following)\b",
    re.IGNORECASE,
)
POST_BEHIND = re.compile(r"\s?(?:[,;.:]|$|\b(?:and|or|as well as|but|while|whereas)\b)")
JOINT_BEFORE = re.compile(
    r"\s*(?:[,;.:]\s*)?(?:(?:and|or|but|while|whereas|as well as)\s+)?", re.IGNORECASE
)
CLAUSE = re.compile(r"[,;]\s(?:and\s|but\s|while\s|whereas\s)?|\s(?:and|but|while|whereas)\s")
# The end of an item that begins the next clause, in which more labels follow: "; or subjected to",
# "; lane 1 of".
NEXT_LEAD = re.compile(
    r"(?:[;,]\s(?:and|or)\s(?:\w+\s){1,4}|;\s(?:[\w-]+\s){1,8}(?:of|in|with)\s)\Z"
)
# The end of an item that begins another list: ", and XPS spectra of"; not ", followed by".
NEXT_HEAD = re.compile(
    r"[;,]\s(?:(?:and|or)\s)?(?!(?:and|or|\w+ed|of|in|for|on|at|by|with|from|to|under|between|using|"
    r"after|during|lanes?)\s)(?:[^\s,;()]+\s){1,12}(?:of|in|for|on|at|by|with|from|to|under|between|using|"
    r"after|during|showing)(?:\s(?:the|an?))?\s\Z"
)
# Kinds of images, also as the second part of a word.
VIEW = re.compile(
    r"(?:\b|micro|sono|radio)(?:images?|imaging|photo(?:micro)?graphs?|"
    r"(?:micro|radio)?graphs?|x-rays?|CT|MRI|PET|OCT|ultrasound|ultrasonography|sonograms?|scans?|"
    r"histology|histopathology|dermoscopy|cytology|diagrams?|scheme|schematics?|plots?|"
    r"heat\s?maps?|maps?|curves?|spectra|spectrum|(?:\w{0,9}chromato|histo)grams?|views?|"
    r"quantification|overview|workflow|illustrations?|drawings?|blots?)\b",
    re.IGNORECASE,
)
ABOUT_IT = re.compile(r"(?:It|This|These|There|Note|The same|They|Here|Its)\b")
# What several panels have, each its own: averages, a statistical test, levels of significance.
EACH_ITS_OWN = (
    re.compile(
        r"(?:the\s)?(?:data|values?|results?)\s(?:\w+\s){0,3}(?:are|is|represents?)\s(?:\w+\s){0,3}"
        r"(?:means?|averages?)\b",
        re.IGNORECASE,
    ),
    re.compile(
        r"[^.;]{0,60}\b(?:ANOVA|t[\s-]?tests?|Mann[\s-]Whitney|Wilcoxon|Kruskal|"
        r"mixed[\s-]effects)\b|"
        r"\(?(?:[*∗⁎＊#†‡]|ns\b|n\.s|p\s?[<=>]|(?:all\s|the\s)*asterisks?\b|different\sletters\b)",
        re.IGNORECASE,
    ),
    re.compile(
        r"(?:all\s|the\s)?(?:scale\s?)?bars?\b[^.;]{0,30}\d\s?(?:[µμn]?m|mm|cm)\b",
        re.IGNORECASE,
    ),
    re.compile(r"[\[(]?(?:reprinted|reproduced|adapted|modified)\b", re.IGNORECASE),
)
STAIN = re.compile(
    r"\(?(?:H\s?&\s?E|ha?ematoxylin)\b[^.]{0,60}(?:(?:×|\bx)\s?\d|\bbars?\b)", re.IGNORECASE
)
STAINED = re.compile(r"H\s?&\s?E\b|ematoxylin|\bstain|×\s?\d|\bx\d", re.IGNORECASE)
# What one plot shows: "Bars show luciferase activity", "Each dot is one mouse".
MARKS = (
    r"(?:(?:(?:horizontal|vertical|dashed|dotted|solid)\s)?(?:lines|dots|boxes|whiskers|squares|"
    r"circles|triangles)|(?:horizontal|vertical)\sbars)\s(?:represent|indicate|show|denote|mark|correspond)\b"
)
PLOT = re.compile(
    r"(?:the\s)?(?:bar\s(?:graph|chart|plot)|scale\sof\s|[xy][\s-]axis\b)|"
    r"bars\s(?:show|representing)\s(?!(?:the\s)?(?:means?|averages?|medians?|s\.?[de]))|"
    r"each\s(?:data\s)?(?:dot|point)\b|(?:the\s)?"
    rf"{MARKS}|"
    r"significantly\s(?:up|down)|in\seach\scase\b",
    re.IGNORECASE,
)
