"""Which text of a report is below which heading."""

import pytest

from biovl.benchmark.report_sections import sections


@pytest.mark.parametrize(
    ("report", "found"),
    [
        ("FINDINGS: Clear lungs. IMPRESSION: Normal.", "Clear lungs.\n\nNormal."),
        ("Indication: cough.\nFindings: Clear.\nImpression: Normal.", "Clear.\n\nNormal."),
        ("indication: cough findings: clear lungs impression: normal", "clear lungs\n\nnormal"),
        ("FINDINGS AND IMPRESSION: Normal. DICTATED BY: Lee", "Normal."),
        # Parts of the body are below the heading that precedes them.
        (
            "FINDINGS: LUNGS: Clear. HEART: Large. LINES AND TUBES: None. IMPRESSION: Same.",
            "LUNGS: Clear. HEART: Large. LINES AND TUBES: None.\n\nSame.",
        ),
        (
            "FINDINGS: In frontal and lateral views: an effusion.",
            "In frontal and lateral views: an effusion.",
        ),
        (
            "FINDINGS: PLEURAL EFFUSION: Small. LEFT LUNG: Clear. OTHER: None. IMPRESSION: Same.",
            "PLEURAL EFFUSION: Small. LEFT LUNG: Clear. OTHER: None.\n\nSame.",
        ),
        ("TECHNIQUE: AP. FINDINGS/IMPRESSION: Normal. SIGNED BY: Lee", "Normal."),
        ("Findings and impression: Normal.", "Normal."),
        ("HISTORY: cough", None),
        ("no headings", None),
        ("", None),
    ],
)
def test_findings_and_impression(report: str, found: str | None) -> None:
    assert sections(report, ("findings", "impression")) == found


def test_other_sections_end_at_any_words_in_capitals() -> None:
    report = "BEFUND: LUNGS: Erguss. BEURTEILUNG: Erguss links. DIKTIERT VON: Lee"
    assert sections(report, ("befund",)) == "LUNGS: Erguss."
    assert sections(report, ("befund", "beurteilung")) == "LUNGS: Erguss.\n\nErguss links."
