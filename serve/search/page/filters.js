// Which figures may be found. Only fields and values that the index has are offered.

import { $, GROUPS, el, icon, number } from "./dom.js";

const FIELDS = {
  license_group: "Licence",
  image_type: "Image type",
  concept: "Concept",
  panel_type: "Panels",
  panel_subtype: "What the panels hold",
  mesh_term: "MeSH term",
  label: "Label",
  journal: "Journal",
  kind: "Kind",
};
const SHOWN = 6;
const WORTH_SEARCHING = 15;

export const emptyFilter = () => ({
  ...Object.fromEntries(Object.keys(FIELDS).map((field) => [field, []])),
  year: { gte: null, lte: null },
});

/** A filter as the service wants it: without what says nothing. */
export function asked(filter) {
  const wanted = {};
  for (const field of Object.keys(FIELDS)) if (filter[field].length) wanted[field] = filter[field];
  const years = Object.fromEntries(Object.entries(filter.year).filter(([, year]) => year !== null));
  return Object.keys(years).length ? { ...wanted, year: years } : wanted;
}

export function filterToAddress(filter, parameters) {
  for (const field of Object.keys(FIELDS)) for (const value of filter[field]) parameters.append(field, value);
  if (filter.year.gte !== null) parameters.set("from", filter.year.gte);
  if (filter.year.lte !== null) parameters.set("to", filter.year.lte);
}

const yearOf = (text) => (/^\d{4}$/.test(text ?? "") ? Number(text) : null);

export function filterFromAddress(parameters) {
  const filter = emptyFilter();
  for (const field of Object.keys(FIELDS)) filter[field] = parameters.getAll(field);
  filter.year = { gte: yearOf(parameters.get("from")), lte: yearOf(parameters.get("to")) };
  return filter;
}

const called = (field, value) => (field === "license_group" ? (GROUPS[value] ?? value) : value);

/** Words for each condition, and what takes it away: [text, without(filter)]. */
export function conditions(filter) {
  const all = Object.keys(FIELDS).flatMap((field) =>
    filter[field].map((value) => [
      `${FIELDS[field]}: ${called(field, value)}`,
      { ...filter, [field]: filter[field].filter((other) => other !== value) },
    ]),
  );
  const { gte, lte } = filter.year;
  if (gte !== null || lte !== null) {
    const words = gte === lte ? `Year: ${gte}` : gte === null ? `Until ${lte}` : lte === null ? `From ${gte}` : `${gte} to ${lte}`;
    all.push([words, { ...filter, year: { gte: null, lte: null } }]);
  }
  return all;
}

function choices(field, counts, chosen, change) {
  // Names of digits come first in an object, whatever their place in the answer.
  const frequent = Object.keys(counts).sort((a, b) => counts[b] - counts[a]);
  const values = [...new Set([...frequent, ...chosen])];
  const rows = values.map((value) =>
    el(
      "label",
      { class: `choice ${field === "license_group" ? value : ""}` },
      el("input", { type: "checkbox", name: field, value, checked: chosen.includes(value), onchange: change }),
      el("span", { class: "value", title: called(field, value) }, called(field, value)),
      el("span", { class: "count" }, value in counts ? number(counts[value]) : ""),
    ),
  );
  const box = el("div", { class: "choices" }, rows);
  const arrange = (all, words) =>
    rows.forEach((row, i) => {
      const fits = values[i].toLowerCase().includes(words);
      row.hidden = !fits || !(all || words || i < SHOWN || chosen.includes(values[i]));
    });
  arrange(false, "");
  const extras = [];
  if (values.length > SHOWN) {
    let all = false;
    const more = el("button", { type: "button", class: "link", "aria-expanded": "false" }, `All ${values.length}`);
    const find = el("input", { type: "search", class: "find", placeholder: "Find …", "aria-label": `Find in ${FIELDS[field]}`, hidden: true });
    more.addEventListener("click", () => {
      all = !all;
      more.setAttribute("aria-expanded", all);
      more.textContent = all ? "Fewer" : `All ${values.length}`;
      find.hidden = !all || values.length < WORTH_SEARCHING;
      find.value = "";
      arrange(all, "");
    });
    find.addEventListener("input", () => arrange(all, find.value.trim().toLowerCase()));
    box.before(find);
    extras.push(find, box, more);
  } else extras.push(box);
  return el("fieldset", {}, el("legend", {}, FIELDS[field]), extras);
}

function years(counts, chosen, change) {
  const known = Object.keys(counts).map(Number).sort((a, b) => a - b);
  const input = (end, label, hint) =>
    el("input", { type: "number", name: `year-${end}`, min: 1800, max: 2100, step: 1, placeholder: hint, value: chosen[end] ?? "", "aria-label": label, oninput: change });
  return el(
    "fieldset",
    {},
    el("legend", {}, "Year"),
    el("div", { class: "years" }, input("gte", "From year", known[0]), el("span", { "aria-hidden": "true" }, "to"), input("lte", "To year", known.at(-1))),
  );
}

function chosen() {
  const filter = emptyFilter();
  for (const box of $("filters-body").querySelectorAll("input[type=checkbox]:checked")) filter[box.name].push(box.value);
  for (const end of ["gte", "lte"]) filter.year[end] = yearOf($("filters-body").querySelector(`[name=year-${end}]`)?.value);
  return filter;
}

let typing = null;

/** Takes the filter with the year that is being typed; null if none is. */
export function typedFilter() {
  if (typing === null) return null;
  clearTimeout(typing);
  typing = null;
  return chosen();
}

/** Draws the filters of an index; changed(filter) is told what the reader chose. */
export function drawFilters(facets, filter, changed) {
  const body = $("filters-body");
  const change = () => changed(typedFilter() ?? chosen());
  const type = () => {
    clearTimeout(typing);
    typing = setTimeout(change, 500);
  };
  const parts = [];
  for (const field of Object.keys(FIELDS)) {
    const counts = facets[field] ?? {};
    if (field === "journal" && Object.keys(facets.year ?? {}).length) parts.push(years(facets.year, filter.year, type));
    if (Object.keys(counts).length) parts.push(choices(field, counts, filter[field], change));
  }
  body.replaceChildren(...parts);
  $("filters").hidden = parts.length === 0;
}

export function startFilters() {
  $("filters-toggle").addEventListener("click", () => {
    const open = $("filters").classList.toggle("unfolded");
    $("filters-toggle").setAttribute("aria-expanded", open);
  });
}

/** The conditions above the results, each with a button that takes it away. */
export function drawConditions(filter, changed) {
  const all = conditions(filter);
  $("filters-toggle").lastElementChild.textContent = all.length ? `Filters (${all.length})` : "Filters";
  $("active-filters").replaceChildren(
    ...all.map(([words, without]) =>
      el("button", { type: "button", class: "chip", "aria-label": `Remove the filter ${words}`, onclick: () => changed(without) }, el("span", {}, words), icon("close")),
    ),
    ...(all.length > 1 ? [el("button", { type: "button", class: "link", onclick: () => changed(emptyFilter()) }, "Clear all")] : []),
  );
}
