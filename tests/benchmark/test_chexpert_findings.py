"""What reports say of findings, sentence by sentence."""

import pytest

from biovl.benchmark.chexpert_findings import FINDINGS, NO_FINDING, label

SAID = [
    ("There is a small left pleural effusion.", {"Pleural Effusion": "positive"}),
    ("No pleural effusion or pneumothorax.", {"Pleural Effusion": "n", "Pneumothorax": "n"}),
    (
        "No focal consolidation, effusion, or pneumothorax is seen.",
        {"Consolidation": "n", "Pleural Effusion": "n", "Pneumothorax": "n"},
    ),
    ("No effusion, but a large pneumothorax.", {"Pleural Effusion": "n", "Pneumothorax": "p"}),
    (
        "Without pneumothorax. Moderate cardiomegaly.",
        {"Pneumothorax": "n", "Cardiomegaly": "p"},
    ),
    ("Pneumonia cannot be excluded.", {"Pneumonia": "u"}),
    ("Right basilar opacity, possibly pneumonia.", {"Lung Opacity": "p", "Pneumonia": "u"}),
    (
        "Opacity may represent atelectasis versus pneumonia.",
        {
            "Lung Opacity": "p",
            "Atelectasis": "u",
            "Pneumonia": "u",
        },
    ),
    ("The pneumothorax has resolved.", {"Pneumothorax": "n"}),
    ("Pulmonary edema is not seen.", {"Edema": "n"}),
    ("The heart is enlarged with interstitial oedema.", {"Cardiomegaly": "p", "Edema": "p"}),
    ("Heart size is normal. The lungs are clear.", {"Cardiomegaly": "n", "Lung Opacity": "n"}),
    ("The cardiomediastinal silhouette is unremarkable.", {"Enlarged Cardiomediastinum": "n"}),
    ("Widened mediastinum.", {"Enlarged Cardiomediastinum": "p"}),
    ("Nodule in the right upper lobe.", {"Lung Lesion": "p"}),
    ("Bilateral ground-glass opacities.", {"Lung Opacity": "p"}),
    ("Left apical pleural thickening.", {"Pleural Other": "p"}),
    ("Displaced rib fracture.", {"Fracture": "p"}),
    ("No acute fracture.", {"Fracture": "n"}),
    ("Endotracheal tube in place.", {"Support Devices": "p"}),
    ("Interval removal of the chest tube.", {"Support Devices": "n"}),
    ("Blunting of the left costophrenic angle.", {"Pleural Effusion": "p"}),
    ("Free of consolidation.", {"Consolidation": "n"}),
    ("No edema, heart is enlarged.", {"Edema": "n", "Cardiomegaly": "p"}),
    ("No pneumothorax, a small effusion.", {"Pneumothorax": "n", "Pleural Effusion": "p"}),
    (
        "No evidence of pneumonia, edema or mass.",
        {"Pneumonia": "n", "Edema": "n", "Lung Lesion": "n"},
    ),
    ("Findings suggestive of heart failure with pulmonary edema.", {"Edema": "u"}),
    ("Chest X-ray shows bilateral infiltrates (arrows).", {"Lung Opacity": "p"}),
    ("Lower lobe collapse?", {"Atelectasis": "u"}),
    # What does not change is there.
    ("No significant change in moderate left pleural effusion.", {"Pleural Effusion": "p"}),
    ("No interval change in the left pneumothorax.", {"Pneumothorax": "p"}),
    ("The pneumothorax has not resolved.", {"Pneumothorax": "p"}),
    ("Left pleural effusion has not cleared.", {"Pleural Effusion": "p"}),
    ("Left effusion is not significantly changed.", {"Pleural Effusion": "p"}),
    (
        "There is no pneumothorax, effusion has increased",
        {"Pneumothorax": "n", "Pleural Effusion": "p"},
    ),
    ("Effusion has partially resolved.", {"Pleural Effusion": "p"}),
    # Answers to headings.
    (
        "Pneumothorax: None. Pleural effusion: No. Edema: absent.",
        {"Pneumothorax": "n", "Pleural Effusion": "n", "Edema": "n"},
    ),
    (
        "Pneumothorax : none\nEffusion:none\nEdema: mild\nConsolidation - no",
        {"Pneumothorax": "n", "Pleural Effusion": "n", "Edema": "p", "Consolidation": "n"},
    ),
    (
        "- no effusion\n- edema\n- effusions - none",
        {"Pleural Effusion": "n", "Edema": "p"},
    ),
    ("No effusion, or edema: stable.", {"Pleural Effusion": "n", "Edema": "n"}),
    ("Effusion: no, edema: mild.", {"Pleural Effusion": "n", "Edema": "p"}),
    ("Consolidation: No consolidation.", {"Consolidation": "n"}),
    ("Consolidation: left lower lobe consolidation.", {"Consolidation": "p"}),
    ("Cardiomegaly: not present. Fracture: no evidence.", {"Cardiomegaly": "n", "Fracture": "n"}),
    ("Pneumonia: possible. Edema: ?", {"Pneumonia": "u", "Edema": "u"}),
    ("Pleural effusion: no change.", {"Pleural Effusion": "p"}),
    ("Pleural effusion: no significant interval change.", {"Pleural Effusion": "p"}),
    ("Lungs: small effusion. Edema: mild", {"Pleural Effusion": "p", "Edema": "p"}),
    ("Impression: pneumonia", {"Pneumonia": "p"}),
    ("No pneumothorax: small effusion.", {"Pneumothorax": "n", "Pleural Effusion": "p"}),
    ("Chest tube: no pneumothorax.", {"Support Devices": "p", "Pneumothorax": "n"}),
    ("Known pneumothorax - no effusion.", {"Pneumothorax": "p", "Pleural Effusion": "n"}),
    ("Chest tube removed; effusion resolved", {"Support Devices": "n", "Pleural Effusion": "n"}),
    # What is unlikely is not excluded.
    ("Pneumonia is unlikely.", {"Pneumonia": "u"}),
    ("Pneumonia: unlikely", {"Pneumonia": "u"}),
    ("Unlikely pneumonia.", {"Pneumonia": "u"}),
    ("Pneumonia is less likely.", {"Pneumonia": "u"}),
    ("Pneumonia unlikely, effusion present.", {"Pneumonia": "u", "Pleural Effusion": "p"}),
    # Degrees of enlargement.
    ("The heart is mildly to moderately enlarged.", {"Cardiomegaly": "p"}),
    ("Cardiac silhouette size is mildly enlarged.", {"Cardiomegaly": "p"}),
    ("Cardiac silhouette size is normal.", {"Cardiomegaly": "n"}),
    ("The heart is not significantly enlarged.", {"Cardiomegaly": "n"}),
    ("The heart is normal and the aorta is enlarged.", {"Cardiomegaly": "n"}),
    ("The cardiomediastinal silhouette is mildly enlarged.", {"Enlarged Cardiomediastinum": "p"}),
    (
        "The cardiac and mediastinal silhouettes are mildly enlarged.",
        {"Enlarged Cardiomediastinum": "p"},
    ),
    # Where a negation ends.
    (
        "There is no pleural effusion or pneumothorax, and the cardiac silhouette is enlarged.",
        {"Pleural Effusion": "n", "Pneumothorax": "n", "Cardiomegaly": "p"},
    ),
    (
        "There is no focal consolidation, and bibasilar atelectasis is present.",
        {"Consolidation": "n", "Atelectasis": "p"},
    ),
    (
        "There is no pneumothorax and a small left pleural effusion is present.",
        {"Pneumothorax": "n", "Pleural Effusion": "p"},
    ),
    (
        "Lungs are clear, no pneumothorax, and heart size is mildly enlarged.",
        {"Lung Opacity": "n", "Pneumothorax": "n", "Cardiomegaly": "p"},
    ),
    (
        "No edema, mass, and the heart is enlarged.",
        {"Edema": "n", "Lung Lesion": "n", "Cardiomegaly": "p"},
    ),
    (
        "No consolidation, effusion, and pneumothorax.",
        {"Consolidation": "n", "Pleural Effusion": "n", "Pneumothorax": "n"},
    ),
    ("No effusion, and no edema.", {"Pleural Effusion": "n", "Edema": "n"}),
    ("Removal of a chest tube and a feeding tube.", {"Support Devices": "n"}),
    ("No evidence of an effusion and a mass.", {"Pleural Effusion": "n", "Lung Lesion": "n"}),
    # What is not said of a finding does not make it absent.
    ("The effusion is not well assessed on this single view.", {"Pleural Effusion": "p"}),
    ("The left effusion is not larger.", {"Pleural Effusion": "p"}),
    ("Pulmonary edema is not worse than yesterday.", {"Edema": "p"}),
    ("The pneumothorax is not as large as before.", {"Pneumothorax": "p"}),
    ("The endotracheal tube is not in optimal position.", {"Support Devices": "p"}),
    ("The mass is not well seen.", {"Lung Lesion": "p"}),
    ("Pneumothorax is not clearly visible.", {"Pneumothorax": "n"}),
    ("A fracture has not been identified.", {"Fracture": "n"}),
    ("Pneumonia has not been excluded.", {"Pneumonia": "u"}),
    # What follows a list is about all of it.
    (
        "Consolidation, effusion and pneumothorax are absent.",
        {"Consolidation": "n", "Pleural Effusion": "n", "Pneumothorax": "n"},
    ),
    (
        "Edema, left effusion and atelectasis are present.",
        {"Edema": "p", "Pleural Effusion": "p", "Atelectasis": "p"},
    ),
    # Effusions elsewhere.
    ("Pericardial effusion. Large knee effusion.", {}),
    ("Pericardial and pleural effusions.", {"Pleural Effusion": "p"}),
    ("Pleural and pericardial effusions.", {"Pleural Effusion": "p"}),
    ("Left effusion.", {"Pleural Effusion": "p"}),
]


@pytest.mark.parametrize(("text", "states"), SAID, ids=[text for text, _ in SAID])
def test_a_sentence_says_this_of_findings(text: str, states: dict) -> None:
    found = label(text)
    found.pop(NO_FINDING, None)
    assert {name: state[0] for name, state in found.items()} == {
        name: state[0] for name, state in states.items()
    }


def test_the_strongest_mention_of_a_report_decides() -> None:
    text = "No effusion on the left. Possible effusion on the right."
    assert label(text)["Pleural Effusion"] == "uncertain"
    assert label(text + " Large effusion at the base.")["Pleural Effusion"] == "positive"


def test_nothing_but_devices_is_no_finding() -> None:
    assert label("Pacemaker. Lungs are clear. No effusion.")[NO_FINDING] == "positive"
    assert label("Normal chest.") == {NO_FINDING: "positive"}
    assert NO_FINDING not in label("Possible pneumonia.")
    assert NO_FINDING not in label("Cardiomegaly.")
    assert label("  ") == {}


def test_there_are_thirteen_findings_beside_none() -> None:
    assert len(FINDINGS) == 13
    assert NO_FINDING not in FINDINGS


def test_lines_and_spaces_do_not_matter() -> None:
    assert label("FINDINGS:\nSmall  pleural\neffusion") == label("findings: small pleural effusion")


def test_a_heading_at_the_end_is_a_mention() -> None:
    assert label("Edema:") == {"Edema": "positive"}


def test_long_texts_take_no_long_time() -> None:
    assert label("edema: " * 20_000)["Edema"] == "positive"
    assert label("no opacity of the lung and " * 20_000)["Lung Opacity"] == "negative"
