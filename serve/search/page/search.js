// The search tab: what is asked, its address, and what was found.

import { ask } from "./api.js";
import { card, grid, skeletons } from "./card.js";
import { $, el, icon, number, percent, picture, withheld } from "./dom.js";
import { exportButtons } from "./export.js";
import { asked, drawConditions, drawFilters, emptyFilter, filterFromAddress, filterToAddress, typedFilter } from "./filters.js";
import { clearNotice, report, tell, waiting } from "./notice.js";
import { preview } from "./picture.js";

const PAGE = 24;
const REMEMBERED = 12;
const EXAMPLES = [
  "chest radiograph with pleural effusion",
  "H&E stained tumour tissue",
  "Kaplan–Meier survival curves",
  "brain MRI with a lesion",
  "western blot with loading control",
  "bar chart with error bars",
];

const blank = () => ({ q: "", similar: "", picture: null, over: "images", words: false, weight: 0.5, filter: emptyFilter() });

let query = blank();
let facets = {};
let figuresServed = null;
let running = null;
let ran = null;
let shown = null;
let open = () => {};
const pictures = new Map();
const answers = new Map();

const isEmpty = () => !query.q && !query.similar && !query.picture;
const isMixed = () => Boolean(query.q && (query.similar || query.picture));

// ---- what is asked

function request() {
  const body = { k: PAGE, over: query.over === "both" ? ["images", "captions"] : [query.over], filter: asked(query.filter) };
  if (query.q) body.text = query.q;
  if (query.q && query.words) body.words = true;
  if (query.picture) body.image = query.picture.data;
  else if (query.similar) body.figure_id = query.similar;
  if (isMixed()) {
    const image = Number(query.weight);
    body.weights = { text: Number((1 - image).toFixed(2)), [query.picture ? "image" : "figure_id"]: image };
  }
  return body;
}

/** A cosine, or a sum of reciprocal ranks where several rankings were joined. */
const scaleOf = (body) => (body.words || body.over.length > 1 ? "ranks" : "cosine");

/** Two queries of the same key have the same answer. */
const keyOf = () => JSON.stringify({ ...request(), image: query.picture?.id });

// ---- the address: texts, filters and figure ids, never images; these are in the history of the tab

function address() {
  const parameters = new URLSearchParams();
  if (query.q) parameters.set("q", query.q);
  if (query.similar && !query.picture) parameters.set("similar", query.similar);
  if (query.over !== "images") parameters.set("over", query.over);
  if (query.words) parameters.set("words", "1");
  if (query.similar && isMixed() && query.weight !== 0.5) parameters.set("weight", query.weight);
  filterToAddress(query.filter, parameters);
  const text = parameters.toString();
  return text ? `?${text}` : location.pathname;
}

/** Takes the query of the address; what is not understood is as if it were not there. */
export function searchFromAddress(parameters, kept) {
  const weight = Number(kept?.weight ?? parameters.get("weight"));
  query = {
    q: parameters.get("q") ?? "",
    similar: parameters.get("similar") ?? "",
    picture: pictures.get(kept?.picture) ?? null,
    over: ["captions", "both"].includes(parameters.get("over")) ? parameters.get("over") : "images",
    words: parameters.get("words") === "1",
    weight: weight >= 0.05 && weight <= 0.95 ? weight : 0.5,
    filter: filterFromAddress(parameters),
  };
  if (keyOf() === ran) return undefined;
  drawForm();
  return run().then(() => {
    const isGone = kept?.picture && !query.picture && $("notice").hidden;
    if (isGone) tell("The image of this search is gone", "Images are kept in memory only. Add it again to repeat the search.");
  });
}

/** Puts the query into the address and asks. */
function go() {
  const state = query.picture ? { picture: query.picture.id, weight: query.weight } : {};
  // A figure that lies open has its own entry: the new search takes its place.
  const same = address() === (location.search || location.pathname) && state.picture === history.state?.picture && state.weight === history.state?.weight;
  const replace = same || history.state?.opened;
  history[replace ? "replaceState" : "pushState"](state, "", address());
  return run();
}

/** What was typed since the last search: the form is drawn anew, and would lose it. */
const typed = () => ({ q: $("q").value.trim(), filter: typedFilter() ?? query.filter });

/** Changes the query and asks; what was typed meanwhile counts. */
export function search(changes) {
  query = { ...query, ...typed(), ...changes };
  drawForm();
  return go();
}

export const searchFresh = (changes) => search({ ...blank(), filter: typed().filter, over: query.over, ...changes });

export function addConcept(concept) {
  const { filter } = typed();
  return search({ filter: { ...filter, concept: [...new Set([...filter.concept, concept])] } });
}

export function takePicture(own) {
  pictures.set(own.id, own);
  return search({ picture: own, similar: "" });
}

// ---- the form

function drawChips() {
  const chips = [];
  const remove = (name, changes) =>
    el("button", { type: "button", class: "quiet", "aria-label": name, title: name, onclick: () => (search(changes), $("q").focus()) }, icon("close"));
  if (query.picture) {
    chips.push(el("span", { class: "query-chip" }, preview(query.picture), el("span", {}, query.picture.name), remove("Remove the image", { picture: null })));
  } else if (query.similar) {
    const thumbnail = withheld.has(query.similar) ? null : picture(`v1/figures/${encodeURIComponent(query.similar)}/thumbnail`, { alt: "" });
    chips.push(el("span", { class: "query-chip" }, thumbnail, el("span", {}, `Similar to ${query.similar}`), remove("Remove the figure", { similar: "" })));
  }
  $("query-chips").replaceChildren(...chips);
}

function drawForm() {
  $("q").value = query.q;
  $("words").checked = query.words;
  document.querySelector(`[name=over][value=${query.over}]`).checked = true;
  $("weight").value = query.weight;
  $("weight-value").textContent = percent(query.weight);
  $("weight-row").hidden = !isMixed();
  drawChips();
  drawChoices();
  drawActive();
}

const drawChoices = () => drawFilters(facets, query.filter, (filter) => applyFilter(filter));
const drawActive = () => drawConditions(query.filter, (filter) => applyFilter(filter, true));

function applyFilter(filter, redraw = false) {
  query.filter = filter;
  query.q = $("q").value.trim();
  if (redraw) drawChoices();
  drawActive();
  go();
}

// ---- asking

async function run() {
  running?.abort();
  clearNotice();
  shown = null;
  ran = keyOf();
  if (isEmpty()) return drawEmpty();
  document.title = `${query.q || (query.picture ? "By image" : `Similar to ${query.similar}`)} · biovl`;
  const key = ran;
  if (answers.has(key)) return drawFound(answers.get(key));
  const abort = (running = new AbortController());
  const body = request();
  $("search-status").replaceChildren("Searching …");
  $("found").setAttribute("aria-busy", "true");
  $("results").replaceChildren(skeletons(12));
  const began = performance.now();
  try {
    const answer = await ask("v1/search", { body, signal: abort.signal, waiting });
    const found = { body, pages: [answer], hits: answer.results, wall_ms: performance.now() - began, scale: scaleOf(body) };
    // After a reload of the service, what was found before is of the previous index.
    if ([...answers.values()].some(({ pages: [first] }) => first.index !== answer.index)) answers.clear();
    answers.set(key, found);
    if (answers.size > REMEMBERED) answers.delete(answers.keys().next().value);
    clearNotice();
    drawFound(found);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    $("search-status").replaceChildren();
    $("results").replaceChildren();
    report(problem, run);
  } finally {
    if (running === abort) $("found").setAttribute("aria-busy", "false");
  }
}

async function more(found, button) {
  button.disabled = true;
  const cursor = found.pages.at(-1).next_cursor;
  try {
    const answer = await ask("v1/search", { body: { ...found.body, cursor }, waiting });
    clearNotice();
    // The button may have been drawn anew, and pressed again, while this page was on its way.
    if (found.pages.at(-1).next_cursor !== cursor) return;
    const from = found.hits.length;
    found.pages.push(answer);
    found.hits = [...found.hits, ...answer.results];
    if (shown !== found) return;
    drawFound(found, from);
    document.querySelectorAll("#results .open")[from]?.focus();
  } catch (problem) {
    button.disabled = false;
    if (problem.status === 410) return restart(found);
    report(problem, () => more(found, button));
  }
}

/** Asks anew where the index was replaced: its pages do not continue those of the one before. */
async function restart(found) {
  answers.clear();
  if (shown !== found) return;
  await run();
  if (shown) tell("The index was replaced", "These are the first figures of the new one.");
}

// ---- what was found

const isFiltered = (found) => Object.keys(found.body.filter).length > 0;

function statusLine(found) {
  const [first] = found.pages;
  const total_ms = first.timings_ms.total ?? found.wall_ms;
  const count = `${found.hits.length} shown of ${number(first.matching)} figures`;
  const parts = [isFiltered(found) ? `${count} that match the filters` : count, `${total_ms < 10 ? total_ms.toFixed(1) : Math.round(total_ms)} ms`];
  const timings = Object.entries(first.timings_ms).map(([stage, ms]) => `${stage} ${ms.toFixed(1)}`).join(" · ");
  const recall = first.recall_at_10;
  const isExact = first.plan.startsWith("exact");
  const how = el(
    "details",
    { class: "how" },
    el("summary", {}, "How it was searched"),
    el(
      "dl",
      {},
      el("dt", {}, "Plan"), el("dd", {}, first.plan),
      recall !== null ? [el("dt", {}, "Recall@10"), el("dd", {}, isExact ? "1 by definition: the search compared every matching figure" : `${recall.toFixed(3)}, measured against exact search when the index was built`)] : null,
      el("dt", {}, "Milliseconds"), el("dd", {}, timings || "not reported"),
      el("dt", {}, "Request"), el("dd", {}, el("code", {}, first.request_id)),
    ),
  );
  return [
    el("p", {}, parts.join(" · "), recall !== null ? el("span", { title: `Share of the ten nearest figures that this index finds, ${isExact ? "1 by definition for an exact search" : "measured when it was built"}` }, ` · recall@10 ${recall.toFixed(2)}`) : null),
    how,
    found.hits.length ? exportButtons(found.hits) : null,
    first.truncated ? el("p", { class: "hint" }, "The text is longer than the model reads: its end was left out.") : null,
  ].filter(Boolean);
}

function drawFound(found, from = 0) {
  const cards = (hits, first) => hits.map((hit, i) => card(hit, found.scale, (event) => open(found.hits, first + i, found.scale, event.currentTarget)));
  shown = found;
  $("search-status").replaceChildren(...statusLine(found));
  if (!found.hits.length) return drawNothing(found);
  let list = $("results").querySelector(".grid:not([aria-hidden])");
  if (from === 0 || !list) {
    list = grid();
    $("results").replaceChildren(list);
    from = 0;
  }
  $("results").querySelector(".more")?.remove();
  list.append(...cards(found.hits.slice(from), from));
  if (found.pages.at(-1).next_cursor) {
    const button = el("button", { type: "button", onclick: () => more(found, button) }, "More figures");
    $("results").append(el("p", { class: "more" }, button));
  }
}

function drawNothing(found) {
  const filtered = isFiltered(found);
  $("results").replaceChildren(
    el(
      "div",
      { class: "empty" },
      el("h2", {}, "No figure found"),
      el("p", {}, filtered ? "No figure fits all filters. Take one away to see more." : "The index holds no such figure."),
      filtered ? el("button", { type: "button", onclick: () => applyFilter(emptyFilter(), true) }, "Clear the filters") : null,
    ),
  );
}

function drawEmpty() {
  document.title = "biovl: search figures";
  $("found").setAttribute("aria-busy", "false");
  $("search-status").replaceChildren();
  const many = figuresServed ? `${number(figuresServed)} figures` : "Figures";
  $("results").replaceChildren(
    el(
      "div",
      { class: "empty" },
      el("h2", {}, "Find figures by what they show"),
      el("p", {}, `${many}, found by their pixels and captions. Describe one in plain words, drop or paste an image, or do both.`),
      el("p", { class: "label" }, "For example"),
      el("ul", { class: "examples" }, EXAMPLES.map((text) => el("li", {}, el("button", { type: "button", class: "chip", onclick: () => search({ q: text }) }, text)))),
    ),
  );
}

/** What the index has values for; known after the page was drawn. */
export function setFacets(counts, figures) {
  facets = counts;
  figuresServed = figures;
  drawChoices();
  if (isEmpty() && !shown) drawEmpty();
}

export function startSearch(openFigure) {
  open = openFigure;
  $("search-form").addEventListener("submit", (event) => {
    event.preventDefault();
    query = { ...query, ...typed() };
    if (isEmpty()) $("q").focus();
    drawForm();
    go();
  });
  $("search-form").addEventListener("change", (event) => {
    if (event.target.name === "over") query.over = event.target.value;
    else if (event.target.id === "words") query.words = event.target.checked;
    else if (event.target.id === "weight") query.weight = Number(event.target.value);
    else return;
    query = { ...query, ...typed() };
    drawForm();
    if (!isEmpty()) go();
  });
  $("weight").addEventListener("input", () => ($("weight-value").textContent = percent(Number($("weight").value))));
  $("search-pick").addEventListener("click", () => $("search-file").click());
}
