// The private tab: what indexed figures say about an image that is not to be kept.

import { card, grid } from "./card.js";
import { el, icon } from "./dom.js";
import { barTable, imageTool, lines, linesOf } from "./tool.js";

let open = () => {};
const node = {};

/** "pneumonia: opacity, consolidation" per line to {name: words}; lines of one name are joined. */
function classesOf(rows) {
  const classes = new Map();
  for (const row of rows) {
    // "1:3" and "5,10-MTHF" are parts of a name.
    const [head, ...rest] = row.split(/(?<!\d):|:(?!\d)/);
    const name = head.trim();
    if (!name) continue;
    const words = rest.join(":").split(/(?<!\d),|,(?!\d)/).map((part) => part.trim()).filter(Boolean);
    classes.set(name, [...(classes.get(name) ?? []), ...(words.length ? words : [name])]);
  }
  return Object.fromEntries(classes);
}

function request() {
  const rows = linesOf(node.words);
  const body = { k: Number(node.k.value) };
  return rows.length ? { ...body, classes: classesOf(rows) } : body;
}

function drawn({ votes, evidence, disclosure }, result) {
  const list = grid();
  list.append(...evidence.map((hit, i) => card(hit, "cosine", (event) => open(evidence, i, "cosine", event.currentTarget))));
  const mark = (button, vote) => {
    const on = button.getAttribute("aria-pressed") === "false";
    for (const other of result.querySelectorAll("[aria-pressed]")) other.setAttribute("aria-pressed", "false");
    button.setAttribute("aria-pressed", on);
    for (const item of list.children) item.classList.toggle("dim", on && !vote.figures.includes(item.dataset.figure));
  };
  const rows = votes.map((vote) => {
    const voters = el("button", { type: "button", class: "link", "aria-pressed": "false", title: "Mark the figures that voted for it" }, `${vote.figures.length} of ${evidence.length}`);
    voters.addEventListener("click", () => mark(voters, vote));
    return [vote.name, vote.share, voters];
  });
  return [
    el("p", { class: "disclosure" }, icon("shield"), el("span", {}, disclosure)),
    el("h2", {}, votes.length ? "What its neighbours are" : "Its neighbours vote for none of the classes"),
    ...(votes.length ? [barTable(["Label", "Share of votes", "Figures"], rows)] : []),
    el("h2", {}, evidence.length ? "The figures that voted" : "No figure was found"),
    list,
  ];
}

/** Fills the tab; returns what takes an image. */
export function start(take, openFigure) {
  open = openFigure;
  node.k = el("input", { id: "neighbours", type: "number", min: 1, max: 100, value: 10, required: true });
  const [words, details] = lines(
    "Vote on my own classes",
    "Classes and the words that stand for them in captions, one class per line",
    "One class per line, then the words that stand for it in captions. Left empty, the concepts of the figures vote.",
    { id: "proxy-classes", rows: 4, placeholder: "pneumonia: consolidation, opacity\nnormal: normal, unremarkable" },
  );
  node.words = words;
  return imageTool({
    panel: "panel-private",
    path: "v1/proxy",
    title: "Compare a private image",
    lead: "The most similar indexed figures stand in for your image: their labels vote, and only they are shown.",
    fields: [
      el("p", { class: "promise" }, icon("shield"), el("span", {}, `The image is sent to the service at ${location.host} and compared there in memory. Images are never kept, logged or sent outside this service.`)),
      el("div", { class: "field" }, el("label", { for: "neighbours" }, "Neighbours that vote"), node.k),
      details,
    ],
    submit: "Compare",
    resultName: "Comparison",
    request,
    draw: drawn,
    take,
  });
}
