// The private tab: what public figures say about an image that is not to be kept.

import { ask } from "./api.js";
import { card, grid } from "./card.js";
import { $, bar, el, icon, percent } from "./dom.js";
import { clearNotice, report, waiting } from "./notice.js";
import { pictureWell } from "./picture.js";

let own = null;
let well;
let running = null;
let open = () => {};
const node = {};

/** "pneumonia: opacity, consolidation" per line to {name: words}; null without lines. */
function classesOf(text) {
  const rows = text.split("\n").map((line) => line.trim()).filter(Boolean);
  if (!rows.length) return null;
  return Object.fromEntries(
    rows.map((row) => {
      const [name, ...words] = row.split(/[:,]/).map((part) => part.trim()).filter(Boolean);
      return [name, words.length ? words : [name]];
    }),
  );
}

async function run() {
  if (!own) {
    node.result.replaceChildren(el("p", { class: "hint" }, "Choose an image first."));
    well.node.querySelector("button").focus();
    return;
  }
  running?.abort();
  const abort = (running = new AbortController());
  clearNotice();
  node.result.setAttribute("aria-busy", "true");
  const body = { image: own.data, k: Number(node.k.value) };
  const classes = classesOf(node.words.value);
  if (classes) body.classes = classes;
  try {
    const answer = await ask("v1/proxy", { body, signal: abort.signal, waiting });
    clearNotice();
    draw(answer);
  } catch (problem) {
    if (problem.name !== "AbortError") node.result.replaceChildren();
    report(problem, run);
  } finally {
    if (running === abort) node.result.setAttribute("aria-busy", "false");
  }
}

function draw({ votes, evidence, disclosure }) {
  const list = grid();
  list.append(...evidence.map((hit, i) => card(hit, "cosine", (event) => open(evidence, i, "cosine", event.currentTarget))));
  const choose = (button, vote) => {
    const off = button.getAttribute("aria-pressed") === "true";
    for (const other of node.result.querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", String(!off));
    for (const item of list.children) item.classList.toggle("dim", !off && !vote.figures.includes(item.dataset.figure));
  };
  const rows = votes.map((vote) => {
    const voters = el("button", { type: "button", class: "link", "aria-pressed": "false", title: "Mark the figures that voted for it" }, `${vote.figures.length} of ${evidence.length}`);
    voters.addEventListener("click", () => choose(voters, vote));
    return el("tr", {}, el("th", { scope: "row" }, vote.name), el("td", { class: "bar-cell" }, bar(vote.share, `Share of ${vote.name}`)), el("td", { class: "figure" }, percent(vote.share)), el("td", { class: "figure" }, voters));
  });
  node.result.replaceChildren(
    el("p", { class: "disclosure" }, icon("shield"), el("span", {}, disclosure)),
    el("h2", {}, votes.length ? "What its neighbours are" : "Its neighbours do not vote for any of the classes"),
    votes.length
      ? el("table", { class: "bars" }, el("thead", {}, el("tr", {}, el("th", { scope: "col" }, "Label"), el("th", { scope: "col" }, "Share of votes"), el("td"), el("th", { scope: "col" }, "Figures"))), el("tbody", {}, rows))
      : null,
    el("h2", {}, "The public figures that voted"),
    evidence.length ? list : el("p", {}, "No public figure was found."),
  );
}

export function comparePicture(picture) {
  own = picture;
  well.put(own);
  return run();
}

const LOOPBACK = ["localhost", "127.0.0.1", "[::1]"];

export function startPrivate(take, openFigure) {
  open = openFigure;
  well = pictureWell(take);
  node.k = el("input", { id: "neighbours", type: "number", min: 1, max: 100, value: 10, required: true });
  node.words = el("textarea", { id: "proxy-classes", rows: 4, placeholder: "pneumonia: consolidation, opacity\nnormal: normal, unremarkable", spellcheck: false });
  node.result = el("div", { class: "result", role: "region", "aria-label": "Comparison", "aria-live": "polite" });
  const where = LOOPBACK.includes(location.hostname) ? "the service on this computer" : `the service at ${location.host}`;
  const form = el(
    "form",
    { class: "tool" },
    el("h1", {}, "Compare a private image"),
    el("p", { class: "lead" }, "The most similar public figures stand in for your image: their labels vote, and only they are shown."),
    well.node,
    el("p", { class: "promise" }, icon("shield"), el("span", {}, `The image goes to ${where}, is compared in memory, and is neither stored nor logged nor sent on.`)),
    el("div", { class: "field" }, el("label", { for: "neighbours" }, "Neighbours that vote"), node.k),
    el("details", {}, el("summary", {}, "Vote on my own classes"), el("label", { class: "unseen", for: "proxy-classes" }, "Classes and the words that stand for them in captions, one class per line"), node.words, el("p", { class: "aside" }, "One class per line, then the words that stand for it in captions. Left empty, the concepts of the figures vote.")),
    el("button", { type: "submit", class: "primary" }, "Compare"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("panel-private").append(el("div", { class: "tool-columns" }, form, node.result));
}
