"""Fields of BIOMEDICA's records, and where our folders store them."""

from biovl.core.markdown import table

FIELDS = {
    "image": "`.jpg` or `.png` of the pair",
    "caption": "`caption` in the index and in the `.json`; the `.txt` is what is trained on",
    "image_file_name": "index `image_name`",
    "image_size": "index `width_px`, `height_px` (as published)",
    "image_hash": "index `image_sha256` (of the published file), `phash` (of its look)",
    "image_set": "the rows of the index with the same `article_id`",
    "image_context": "`.json` `mentions`; with the place of each reference in `figures/`",
    "image_cluster_id, image_label_id": "a column of an annotator, where one was given",
    "image_panel_type, image_panel_subtype": "a column of an annotator, where one was given",
    "image_primary_label, image_secondary_label": "a column of an annotator, where one was given",
    "DINOv2 embedding": "a column of the annotator `dinov2`, where it was given",
    "PMC-CLIP embedding": "unavailable: there is no annotator for PMC-CLIP",
    "article_accession_id": "index `article_id`",
    "article_title": "index `title`",
    "article_journal": "index `journal`",
    "article_date": "index `published`, at the precision that was published",
    "article_abstract": "`abstract` in `articles/`",
    "article_mesh_terms": "index `mesh_terms`; null until enriched from PubMed",
    "article_keywords": "index `keywords`",
    "article_reference_ids, article_reference_list": "`reference_pmids` in `articles/` (what it "
    "cites); index `cited_by_pmids` (what cites it; null until enriched)",
    "article_reference_count": "the length of these lists",
    "article_subject": "index `subjects`",
    "article_citation": "index `citation`",
    "article_license": "index `license` (SPDX), `license_url`, `license_group`",
    "article_text": "`full_text` in `articles/`",
}


def biomedica_section() -> str:
    """Return the dataset card's section with the table of fields."""
    rows = [
        [", ".join(f"`{name}`" for name in names.split(", ")) if "_" in names else names, place]
        for names, place in FIELDS.items()
    ]
    return f"""## The fields of BIOMEDICA

Where to find what BIOMEDICA's records hold. `articles/` and `figures/` are in the input that this \
corpus was made from; join them by `source_uri`.

{table(["BIOMEDICA", "here"], rows)}"""
