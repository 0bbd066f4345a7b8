// A figure in a grid, and the grid.

import { el, figurePicture, licenceBadge, retractedBadge, spoken } from "./dom.js";

/** Which number ranks the figures: it depends on what was asked. */
export function scoreText(hit, scale) {
  return scale === "cosine" ? hit.score.toFixed(3) : hit.score.toPrecision(3);
}

export const SCALES = {
  cosine: "Cosine similarity",
  ranks: "Sum of reciprocal ranks",
};

export function card(hit, scale, open) {
  return el(
    "li",
    { class: "card", "data-figure": hit.figure_id },
    el(
      "div",
      { class: "thumb" },
      figurePicture(hit, hit.thumbnail_url, { alt: spoken(hit), loading: "lazy" }),
    ),
    el(
      "div",
      { class: "about" },
      el(
        "p",
        { class: "rank" },
        el("span", {}, el("span", { class: "unseen" }, "Rank "), `#${hit.rank}`),
        el("span", { title: SCALES[scale] }, el("span", { class: "unseen" }, `${SCALES[scale]} `), scoreText(hit, scale)),
      ),
      el(
        "h3",
        {},
        // The button covers the card: one target for the pointer, one stop for the keyboard.
        el("button", { type: "button", class: "open", onclick: open, "aria-haspopup": "dialog" }, hit.figure_label ?? "Figure"),
      ),
      el("p", { class: "caption" }, hit.caption || hit.title || ""),
      el(
        "p",
        { class: "source" },
        el("span", { class: "journal", title: hit.journal }, hit.journal ?? ""),
        hit.year ? el("span", { class: "year" }, String(hit.year)) : null,
        retractedBadge(hit),
        licenceBadge(hit),
      ),
    ),
  );
}

const STEPS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: null, ArrowUp: null, Home: -1e6, End: 1e6 };

/** An empty grid whose cards are also walked through by arrow keys. */
export function grid() {
  const list = el("ol", { class: "grid" });
  list.addEventListener("keydown", (event) => {
    if (!(event.key in STEPS) || !event.target.matches(".open")) return;
    const buttons = [...list.querySelectorAll(".open")];
    const columns = getComputedStyle(list).gridTemplateColumns.split(" ").length;
    const step = STEPS[event.key] ?? (event.key === "ArrowDown" ? columns : -columns);
    const next = Math.min(buttons.length - 1, Math.max(0, buttons.indexOf(event.target) + step));
    event.preventDefault();
    buttons[next].focus();
  });
  return list;
}

export function skeletons(count) {
  const list = el("ol", { class: "grid", "aria-hidden": "true" });
  for (let i = 0; i < count; i += 1) {
    list.append(el("li", { class: "card skeleton" }, el("div", { class: "thumb" }), el("div", { class: "about" }, el("i"), el("i"), el("i"))));
  }
  return list;
}
