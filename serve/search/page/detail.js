// One figure, large: what it shows, where it is from, how to cite and reuse it.

import { ask } from "./api.js";
import { $, GROUPS, el, figurePicture, icon, licenceBadge, linkOut, retractedBadge, spoken } from "./dom.js";
import { SCALES, scoreText } from "./card.js";
import { report } from "./notice.js";

let list = { hits: [], scale: "cosine" };
let at = 0;
let opener = null;
let act = {};

const dialog = () => $("detail");

async function copy(text, button) {
  if (navigator.clipboard) await navigator.clipboard.writeText(text);
  else {
    // The clipboard is not given to pages over plain http: select and copy as of old.
    const area = el("textarea", { value: text, class: "unseen" });
    button.after(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  button.lastElementChild.textContent = "Copied";
  setTimeout(() => (button.lastElementChild.textContent = "Copy citation"), 2000);
}

const row = (name, ...values) => [el("dt", {}, name), el("dd", {}, values)];

function articleLinks(figure) {
  const doi = figure.doi && linkOut(`https://doi.org/${figure.doi}`, `doi:${figure.doi}`);
  const pmid = figure.pmid && linkOut(`https://pubmed.ncbi.nlm.nih.gov/${encodeURIComponent(figure.pmid)}/`, `PMID ${figure.pmid}`);
  const article = figure.url && linkOut(figure.url, figure.article_id);
  return [article ?? el("span", {}, figure.article_id), doi, pmid].filter(Boolean);
}

function licenceNote(figure) {
  if (figure.third_party) {
    const stated = figure.stated_license ? ` The licence of the article, ${figure.stated_license}, may not cover it.` : "";
    return `This figure credits a third party.${stated} Ask the rights holder, or look at the article.`;
  }
  if (!figure.license && !figure.stated_license) return "Nothing says that it may be passed on.";
  return `${GROUPS[figure.license_group] ?? GROUPS.other}, by the licence of the article. A figure may carry terms of its own.`;
}

function facts(figure) {
  const terms = figure.concepts.map((concept) =>
    el("li", {}, el("button", { type: "button", class: "chip", title: "Show only figures of this concept", onclick: () => act.concept(concept) }, concept)),
  );
  return el(
    "dl",
    {},
    row("Article", el("span", { class: "links" }, articleLinks(figure))),
    figure.citation ? row("Citation", figure.citation) : null,
    row(
      "Licence",
      `${figure.license ?? (figure.stated_license ? "None known for this figure" : "None stated")} `,
      figure.license_url ? linkOut(figure.license_url, "Terms") : null,
      el("p", { class: "aside" }, licenceNote(figure)),
    ),
    figure.credit ? row("Credit", figure.credit) : null,
    terms.length ? row("Concepts", el("ul", { class: "terms" }, terms)) : null,
    figure.image_type ? row("Image type", figure.image_type) : null,
    figure.mesh_terms.length ? row("MeSH", figure.mesh_terms.join(" · ")) : null,
    figure.labels.length ? row("Labels", figure.labels.join(" · ")) : null,
    figure.width_px ? row("Size", `${figure.width_px} × ${figure.height_px} px`) : null,
    row("Figure id", el("code", {}, figure.figure_id)),
  );
}

function drawn(figure, { hits, scale }) {
  const large = figurePicture(figure, figure.image_url, { alt: spoken(figure, 400) });
  const zoom = figure.image_url ? el("button", { type: "button", class: "zoom", "aria-pressed": "false", "aria-label": "Show in original size", title: "Original size" }, large) : large;
  if (figure.image_url) zoom.addEventListener("click", () => zoom.setAttribute("aria-pressed", zoom.getAttribute("aria-pressed") === "false"));
  const step = (by, name, drawing) =>
    el("button", { type: "button", class: "quiet", disabled: !hits[at + by], "aria-label": name, title: name, onclick: () => move(by) }, icon(drawing));
  const copying = el("button", { type: "button", onclick: () => copy(figure.citation, copying) }, icon("copy"), el("span", { role: "status" }, "Copy citation"));
  return [
    el(
      "header",
      {},
      el("h2", { id: "detail-title", tabIndex: -1 }, figure.figure_label ?? "Figure"),
      el("span", { class: "where" }, hits.length > 1 ? `${at + 1} of ${hits.length}` : ""),
      hits.length > 1 ? step(-1, "Previous figure", "left") : null,
      hits.length > 1 ? step(1, "Next figure", "right") : null,
      el("button", { type: "button", class: "quiet", "aria-label": "Close", title: "Close (Esc)", onclick: closeFigure }, icon("close")),
    ),
    el("div", { class: "large" }, zoom),
    el(
      "div",
      { class: "text" },
      el(
        "div",
        { class: "actions" },
        el("button", { type: "button", class: "primary", onclick: () => act.similar(figure) }, icon("similar"), el("span", {}, "Find similar")),
        figure.citation ? copying : null,
      ),
      figure.retracted ? el("p", { class: "retraction", role: "note" }, "The article of this figure was retracted.") : null,
      figure.title ? el("p", { class: "title" }, figure.title) : null,
      el("p", { class: "aside" }, el("bdi", {}, [figure.journal, figure.year].filter(Boolean).join(" · ")), " ", retractedBadge(figure), " ", licenceBadge(figure)),
      el("p", { class: "whole-caption" }, figure.caption || "This figure has no caption."),
      facts(figure),
      "score" in figure ? el("p", { class: "aside" }, `Rank ${figure.rank} · ${SCALES[scale].toLowerCase()} ${scoreText(figure, scale)} · found by ${figure.matched.join(", ")}`) : null,
    ),
  ];
}

function draw() {
  dialog().replaceChildren(...drawn(list.hits[at], list));
}

function move(by) {
  if (!list.hits[at + by]) return;
  at += by;
  draw();
  dialog().querySelector("h2").focus();
  act.moved(list.hits[at].figure_id);
}

/** Opens a figure of a list of hits; focus goes back to where it came from. */
export function openFigure(hits, index, scale, from = null) {
  list = { hits, scale };
  at = index;
  opener = from;
  draw();
  if (!dialog().open) dialog().showModal();
  dialog().querySelector("h2").focus();
}

/** Opens the figure of an address, which no search on the page has shown. */
export async function openById(figureId) {
  try {
    const { figure } = await ask(`v1/figures/${encodeURIComponent(figureId)}`);
    // The reader may have gone back meanwhile.
    const named = new URLSearchParams(location.search).get("open");
    if (named === figureId) openFigure([figure], 0, "cosine");
  } catch (problem) {
    report(problem, () => openById(figureId));
  }
}

export function closeFigure() {
  if (dialog().open) dialog().close();
}

/** actions: similar(figure), concept(name), moved(figure id), closed(). */
export function startDetail(actions) {
  act = actions;
  dialog().addEventListener("close", () => {
    const shown = list.hits[at]?.figure_id;
    const other = shown && document.querySelector(`.card[data-figure="${CSS.escape(shown)}"] .open`);
    (other ?? opener)?.focus();
    dialog().replaceChildren();
    act.closed();
  });
  dialog().addEventListener("click", (event) => event.target === dialog() && closeFigure());
  dialog().addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
      event.preventDefault();
      move(event.key === "ArrowLeft" ? -1 : 1);
    }
  });
}
