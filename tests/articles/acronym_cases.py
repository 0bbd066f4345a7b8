"""Acronyms as articles define them, written by hand: what is defined, and what only looks so."""

DEFINED: list[tuple[str, dict[str, str]]] = [
    # In brackets behind the long form.
    (
        "Magnetic resonance imaging (MRI) was done. We used magnetic fields.",
        {"MRI": "magnetic resonance imaging"},
    ),
    ("a chest radiograph by computed tomography (CT)", {"CT": "computed tomography"}),
    ("stained with hematoxylin and eosin (H&E)", {"H&E": "hematoxylin and eosin"}),
    ("cells in phosphate-buffered saline (PBS; pH 7.4)", {"PBS": "phosphate-buffered saline"}),
    ("the mean arterial pressure (MAP, mmHg) rose", {"MAP": "mean arterial pressure"}),
    ("a “synthetic” SBV (sSBV) and a \"magnetic\" resonance scan (MRS)", {
        "MRS": "magnetic resonance scan",
        "sSBV": "synthetic SBV",
    }),
    ("by immunohistochemistry (IHC)", {"IHC": "immunohistochemistry"}),
    ("enzyme-linked immunosorbent assay (ELISA)", {"ELISA": "enzyme-linked immunosorbent assay"}),
    ("the electroencephalogram (EEG) slowed", {"EEG": "electroencephalogram"}),
    ("tumor necrosis factor alpha (TNF-α)", {"TNF-α": "tumor necrosis factor alpha"}),
    ("tumor necrosis factor-α (TNF-α) rose", {"TNF-α": "tumor necrosis factor-α"}),
    ("interferon gamma (IFN-γ)", {"IFN-γ": "interferon gamma"}),
    ("in type 2 diabetes (T2D)", {"T2D": "type 2 diabetes"}),
    ("in two-dimensional (2D) gels", {"2D": "two-dimensional"}),
    ("three dimensional (3D) rendering", {"3D": "three dimensional"}),
    ("regions of interest (ROIs) were drawn", {"ROI": "region of interest"}),
    ("Endothelial cells (ECs) and the endothelial layer", {"EC": "endothelial cell"}),
    ("induced cardiomyopathies (CMPs)", {"CMP": "cardiomyopathy"}),
    ("mechanistic target of rapamycin (mTOR)", {"mTOR": "mechanistic target of rapamycin"}),
    ("small interfering RNA (siRNA)", {"siRNA": "small interfering RNA"}),
    (
        "quantitative reverse transcription PCR (qRT-PCR)",
        {"qRT-PCR": "quantitative reverse transcription PCR"},
    ),
    ("with 18F-fluorodeoxyglucose (FDG)", {"FDG": "fluorodeoxyglucose"}),
    ("non-small cell lung cancer (NSCLC)", {"NSCLC": "non-small cell lung cancer"}),
    (
        "severe acute respiratory syndrome coronavirus 2 (SARS-CoV-2)",
        {"SARS-CoV-2": "severe acute respiratory syndrome coronavirus 2"},
    ),
    ("coronavirus disease 2019 (COVID-19)", {"COVID-19": "coronavirus disease 2019"}),
    (
        "signal transducer and activator of transcription 3 (STAT3)",
        {"STAT3": "signal transducer and activator of transcription 3"},
    ),
    (
        "a receiver operating characteristic (“ROC”) curve",
        {"ROC": "receiver operating characteristic"},
    ),
    ("optical coherence tomography (hereafter OCT)", {"OCT": "optical coherence tomography"}),
    ("body mass index [BMI] was high", {"BMI": "body mass index"}),
    (
        "computed tomography (CT) angiography (CTA)",
        {"CT": "computed tomography", "CTA": "computed tomography angiography"},
    ),
    ("systemic sclerosis (SS)", {"SS": "systemic sclerosis"}),
    ("patients with Alzheimer's disease (AD)", {"AD": "Alzheimer's disease"}),
    ("World Health Organization (WHO)", {"WHO": "World Health Organization"}),
    ("area under the curve (AUC)", {"AUC": "area under the curve"}),
    ("quality of life (QoL)", {"QoL": "quality of life"}),
    ("amyloid beta (Aβ) plaques", {"Aβ": "amyloid beta"}),
    (
        "heart failure with preserved ejection fraction (HFpEF)",
        {"HFpEF": "heart failure with preserved ejection fraction"},
    ),
    # The other way round.
    ("MRI (magnetic resonance imaging) shows", {"MRI": "magnetic resonance imaging"}),
    (
        "with LVEF (left ventricular ejection fraction; %) of 35",
        {"LVEF": "left ventricular ejection fraction"},
    ),
    ("the scan (positron emission tomography, PET)", {"PET": "positron emission tomography"}),
    # Lists.
    (
        "MRI, magnetic resonance imaging; CT, computed tomography.",
        {"MRI": "magnetic resonance imaging", "CT": "computed tomography"},
    ),
    (
        "Bars are means. SD: standard deviation, SEM: standard error of the mean.",
        {"SD": "standard deviation", "SEM": "standard error of the mean"},
    ),
    (
        "LV = left ventricle; RV = right ventricle; LA = left atrium",
        {"LV": "left ventricle", "RV": "right ventricle", "LA": "left atrium"},
    ),
    (
        "OCT indicates optical coherence tomography; IVUS, intravascular ultrasound.",
        {"OCT": "optical coherence tomography", "IVUS": "intravascular ultrasound"},
    ),
    (
        "Abbreviations: ACL, anterior cruciate ligament; and MCL, medial collateral ligament.",
        {"ACL": "anterior cruciate ligament", "MCL": "medial collateral ligament"},
    ),
    (
        "Abbreviations\nABI ankle brachial index\nPAD peripheral arterial disease\nResults were fine.",
        {"ABI": "ankle brachial index", "PAD": "peripheral arterial disease"},
    ),
    (
        "Abbreviations: HC, normal subjects; MDD, major depression.",
        {"HC": "normal subjects", "MDD": "major depression"},
    ),
    (
        "AP, anteroposterior, LAT, lateral, and CR, computed radiography.",
        {"AP": "anteroposterior", "LAT": "lateral", "CR": "computed radiography"},
    ),
    # Two meanings: the more frequent, or none.
    (
        "principal component (PC), principal component (PC) and prostate cancer (PC)",
        {"PC": "principal component"},
    ),
    ("principal component (PC) and prostate cancer (PC)", {}),
    ("Bone marrow (BM), bone-marrow (BM) and basement membrane (BM)", {"BM": "bone marrow"}),
    # What only looks so.
    ("shown before (Fig. 2) and later (Fig. S3)", {}),
    ("in the control group (n = 12) and others (II)", {}),
    ("Leica (Wetzlar, Germany) microscope", {}),
    ("see the left panel (A) and the right panel (B)", {}),
    ("cells were counted (see Methods)", {}),
    ("significant differences (P < 0.05)", {}),
    ("rats received saline (VEH1)", {}),
    ("a specimen of the patient (XZ)", {}),
    ("as stated above (NOT shown)", {}),
    ("CT, PET and MRI scans were read.", {}),
    ("It was stored on ice (ICE)", {}),
    ("a rise in pressure (HR)", {}),
    ("we saw this in mice (SM)", {}),
    ("of the central complex (CX)", {}),
    ("and was thermoelectrically (TE) cooled", {}),
    ("grown in the United States (US)", {}),
    ("over the range (MIN–MAX)", {}),
    ("images of patients (PMC)", {}),
    ("Smith et al. (SA 2010)", {}),
    # Panels of a figure are no short forms, and their letters are no part of a long form.
    ("images of the amygdala and the cortex (A-C)", {}),
    ("the apex and the base (A/B) or the basal cell (A&B)", {}),
    ("axial and coronal scans (A1-C2)", {}),
    ("A-C, axial cuts; D-E, dorsal edges.", {}),
    ("shows blood (A) flow (BF) and left (B, C) ventricle (ii) mass (LVM)", {}),
    ("excitation to inhibition (E/I) and hematoxylin and eosin (H&E)", {"E/I": "excitation to inhibition", "H&E": "hematoxylin and eosin"}),
    ("by the Shapiro–Wilk (S-W) test", {"S-W": "Shapiro–Wilk"}),
    # Long forms are whole: locants stay, names that go on in front are left out.
    ("with 5-aminolevulinic acid (ALA)", {"ALA": "5-aminolevulinic acid"}),
    ("4′,6-diamidino-2-phenylindole (DAPI)", {"DAPI": "4′,6-diamidino-2-phenylindole"}),
    ("4′, 6-diamidino-2-phenylindole (DAPI)", {}),
    ("of 1-palmitoyl-2-oleoyl-sn-glycero-3-phosphocholine (POPC)", {}),
    ("2-(N-morpholino)ethanesulfonic acid (EA)", {}),
    ("exportin-1 (XPO1), calbindin 1 (CALB1)", {"CALB1": "calbindin 1"}),
    ("is the ±standard error of the mean (SEM)", {"SEM": "standard error of the mean"}),
    ("x" * 20 + " n" * 60 + " supramagnetic resonance imaging of the heart and the liver (MRIHL)", {}),
    ("Abbreviations: XDE, immune dysregulation, enteropathy; HC, normal subjects.", {"HC": "normal subjects"}),
    # Two short forms for one phrase: neither is all of it.
    ("single- and multi-wall carbon nanotubes (SWCNT, MWCNT)", {}),
    ("Polycomb or Trithorax Responsive Elements (PREs, TREs)", {}),
    ("limits of quantification (LOQ) and detection (LOD)", {"LOQ": "limits of quantification"}),
    # Possessives, numbers of cited works, plurals that are more than an s.
    ("GlaxoSmithKline’s (GSK’s) 4/400 rule", {}),
    ("Model Intercomparison Project19 (MIP)", {"MIP": "Model Intercomparison Project"}),
    ("synaptotagmin1 (Syt1)", {"Syt1": "synaptotagmin1"}),
    ("endogenous retroviruses (ERVs)", {"ERV": "endogenous retrovirus"}),
    ("perturbagen classes (PCLs) and greenhouse gases (GHGs)", {"PCL": "perturbagen class", "GHG": "greenhouse gas"}),
    ("brain metastases (BMs) of lung diseases (LDs)", {"BM": "brain metastasis", "LD": "lung disease"}),
]  # fmt: skip
"""A text, and what it defines."""

EXPANDED: list[tuple[str, dict[str, str], str]] = [
    (
        "MRI of the knee.",
        {"MRI": "magnetic resonance imaging"},
        "Magnetic resonance imaging (MRI) of the knee.",
    ),
    (
        "Axial CT. The CT shows.",
        {"CT": "computed tomography"},
        "Axial computed tomography (CT). The CT shows.",
    ),
    ("Two ECs and an EC.", {"EC": "endothelial cell"}, "Two endothelial cells (ECs) and an EC."),
    ("ROIs are drawn.", {"ROI": "region of interest"}, "Regions of interest (ROIs) are drawn."),
    (
        "PET/CT of the chest.",
        {"PET": "positron emission tomography", "CT": "computed tomography"},
        "Positron emission tomography (PET)/computed tomography (CT) of the chest.",
    ),
    (
        "An MRI-guided biopsy",
        {"MRI": "magnetic resonance imaging"},
        "A magnetic resonance imaging (MRI)-guided biopsy",
    ),
    ("post-MI hearts", {"MI": "myocardial infarction"}, "post-myocardial infarction (MI) hearts"),
    (
        "cells in buffer (PBS)",
        {"PBS": "phosphate-buffered saline"},
        "cells in buffer (phosphate-buffered saline, PBS)",
    ),
    (
        "(A) MRI and (B) CT",
        {"MRI": "magnetic resonance imaging", "CT": "computed tomography"},
        "(A) Magnetic resonance imaging (MRI) and (B) computed tomography (CT)",
    ),
    # Nothing twice.
    (
        "Magnetic resonance imaging (MRI): MRI shows",
        {"MRI": "magnetic resonance imaging"},
        "Magnetic resonance imaging (MRI): MRI shows",
    ),
    (
        "Magnetic resonance images. MRI shows",
        {"MRI": "magnetic resonance image"},
        "Magnetic resonance images. MRI shows",
    ),
    (
        "MRI here. MRI, magnetic resonance imaging.",
        {"MRI": "magnetic resonance imaging"},
        "MRI here. MRI, magnetic resonance imaging.",
    ),
    # Longer names, genes, units.
    ("TNF-α rose", {"TNF": "tumor necrosis factor"}, "TNF-α rose"),
    ("AR-V7 and PAR2 and ARs2", {"AR": "androgen receptor"}, "AR-V7 and PAR2 and ARs2"),
    ("qRT-PCR of liver", {"PCR": "polymerase chain reaction"}, "qRT-PCR of liver"),
    ("ERK1/2 bands", {"ERK1": "extracellular signal-regulated kinase 1"}, "ERK1/2 bands"),
    ("CD4+ and DC+ cells", {"DC": "dendritic cell"}, "CD4+ and DC+ cells"),
    (
        "for 5 MS and 10MIN",
        {"MS": "multiple sclerosis", "MIN": "mildly inflamed node"},
        "for 5 MS and 10MIN",
    ),
    ("a 3 T MR scanner", {"MR": "magnetic resonance"}, "a 3 T magnetic resonance (MR) scanner"),
    ("NO2 and no effect of NO", {"NO": "nitric oxide"}, "NO2 and no effect of nitric oxide (NO)"),
    # Explained otherwise in the caption.
    ("CT, control; TX, treated.", {"CT": "computed tomography"}, "CT, control; TX, treated."),
    ("CT = control tissue", {"CT": "computed tomography"}, "CT = control tissue"),
    (
        "†PP = Prática Profissional",
        {"PP": "professional practice"},
        "†PP = Prática Profissional",
    ),
    ("HR = 1.5", {"HR": "hazard ratio"}, "Hazard ratio (HR) = 1.5"),
    (
        "mRNA of mTOR",
        {"mTOR": "mechanistic target of rapamycin"},
        "mRNA of mechanistic target of rapamycin (mTOR)",
    ),
    ("Cells with SCs.", {"SC": "stem cell ectopy"}, "Cells with stem cell ectopies (SCs)."),
    ("nothing of it", {"MRI": "magnetic resonance imaging"}, "nothing of it"),
    (
        "a EEG at rest. b ECG",
        {"EEG": "electroencephalography"},
        "a electroencephalography (EEG) at rest. b ECG",
    ),
    (
        "Activity. A EEG at rest.",
        {"EEG": "electroencephalography"},
        "Activity. A electroencephalography (EEG) at rest.",
    ),
    (
        "(a) A EEG at rest.",
        {"EEG": "electroencephalography"},
        "(a) An electroencephalography (EEG) at rest.",
    ),
    (
        "A UV image.",
        {"UV": "ultraviolet"},
        "An ultraviolet (UV) image.",
    ),
    ("An MRI.", {"MRI": "magnetic resonance imaging"}, "A magnetic resonance imaging (MRI)."),
]
"""A caption, the acronyms of its article, and the caption with them spelled out."""
