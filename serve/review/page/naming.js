// Global and local concepts: one field finds both, and a local one brings its global one along.

import { $, el, icon } from "./dom.js";

let entries = [];
let above = new Map();
let aliases = {};
let chosen = { global: [], local: [] };
let found = [];
let active = -1;
let changed = () => {};

/** As the service compares names: without case, white space and dashes. */
const plain = (name) => name.normalize("NFKC").toLowerCase().replace(/[\s\p{Pd}\u2212\p{Cf}\p{Cc}]/gu, "");

export function setTaxonomy(conceptsByGlobal, otherNames) {
  aliases = otherNames;
  above = new Map();
  entries = Object.entries(conceptsByGlobal).flatMap(([name, below]) => {
    for (const local of below) above.set(local, [...(above.get(local) ?? []), name]);
    return [{ global: name, local: null }, ...below.map((local) => ({ global: name, local }))];
  });
}

export const chosenConcepts = () => ({ global_concepts: [...chosen.global], local_concepts: [...chosen.local] });

export function setConcepts({ global_concepts, local_concepts }) {
  chosen = { global: [...global_concepts], local: [...local_concepts] };
  $("find").value = "";
  list();
}

const isChosen = ({ global, local }) =>
  local === null ? chosen.global.includes(global) : chosen.local.includes(local) && chosen.global.includes(global);

function add({ global, local }) {
  if (!chosen.global.includes(global)) chosen.global.push(global);
  if (local !== null && !chosen.local.includes(local)) chosen.local.push(local);
}

function takeAway({ global, local }) {
  if (local !== null) {
    chosen.local = chosen.local.filter((name) => name !== local);
    return;
  }
  chosen.global = chosen.global.filter((name) => name !== global);
  chosen.local = chosen.local.filter((name) => above.get(name)?.some((one) => chosen.global.includes(one)));
}

const toggle = (entry) => change(entry, isChosen(entry));

function change(entry, goes) {
  (goes ? takeAway : add)(entry);
  $("find").value = "";
  const name = entry.local ?? entry.global;
  $("spoken").textContent = goes ? `${name} taken away` : `${name} added`;
  list();
  changed();
}

export function takeLastAway() {
  const local = chosen.local.at(-1);
  const global = chosen.global.at(-1);
  if (local) change({ global: null, local }, true);
  else if (global) change({ global, local: null }, true);
}

/** Smaller is nearer: the whole name, its beginning, that of a word, anywhere; null: not at all. */
function distance(wanted, entry) {
  const name = entry.local ?? entry.global;
  const words = name.split(/[\s-]+/).map(plain);
  const own = plain(name);
  if (own === wanted) return 0;
  if (own.startsWith(wanted)) return 1;
  if (words.some((_, at) => words.slice(at).join("").startsWith(wanted))) return 2;
  const other = Object.entries(aliases).some(([alias, meant]) => alias.startsWith(wanted) && plain(meant) === own);
  if (other) return 3;
  return own.includes(wanted) ? 4 : null;
}

function matches() {
  const wanted = plain($("find").value);
  if (!wanted) return entries;
  return entries
    .map((entry, at) => ({ entry, at, near: distance(wanted, entry) }))
    .filter(({ near }) => near !== null)
    .sort((one, other) => one.near - other.near || (one.entry.local !== null) - (other.entry.local !== null) || one.at - other.at)
    .map(({ entry }) => entry);
}

function chip(name, entry) {
  const level = entry.local === null ? "global" : "local";
  return el(
    "button",
    { type: "button", class: `chip ${level}`, "aria-label": `Take away ${level} concept ${name}`, onclick: () => change(entry, true) },
    name,
    icon("close"),
  );
}

function list() {
  found = matches();
  const isSearch = $("find").value.trim() !== "";
  active = isSearch && found.length ? 0 : -1;
  $("options").replaceChildren(
    ...found.map((entry, at) =>
      el(
        "li",
        {
          role: "option", id: `option-${at}`, "aria-selected": isChosen(entry),
          class: entry.local === null ? "above" : isSearch ? "" : "below",
          onmousedown: (event) => event.preventDefault(),
          onclick: () => toggle(entry),
        },
        el("span", {}, entry.local ?? entry.global),
        isSearch ? el("span", { class: "of" }, entry.local === null ? "global" : entry.global) : null,
      ),
    ),
  );
  if (!found.length) $("options").append(el("li", { class: "none" }, "No concept of the taxonomy has this in its name."));
  $("chosen-global").replaceChildren(...chosen.global.map((name) => chip(name, { global: name, local: null })));
  // Votes from before a change of the taxonomy may have names that it lacks now.
  $("chosen-local").replaceChildren(...chosen.local.map((name) => chip(name, { global: null, local: name })));
  $("options").scrollTop = 0;
  mark();
}

function mark() {
  [...$("options").children].forEach((option, at) => option.classList.toggle("at", at === active));
  const there = $(`option-${active}`);
  if (there) $("find").setAttribute("aria-activedescendant", there.id);
  else $("find").removeAttribute("aria-activedescendant");
  there?.scrollIntoView({ block: "nearest" });
}

function move(step) {
  if (!found.length) return;
  active = active < 0 && step < 0 ? found.length - 1 : (active + step + found.length) % found.length;
  mark();
}

/** Calls changedNow() whenever other concepts are chosen, leave() when the field is left by Esc. */
export function startNaming(changedNow, leave) {
  changed = changedNow;
  $("find").addEventListener("input", list);
  $("find").addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    const isEmpty = $("find").value === "";
    if (event.key === "ArrowDown") move(1);
    else if (event.key === "ArrowUp") move(-1);
    else if (event.key === "Enter") {
      if (active >= 0) toggle(found[active]);
    } else if (event.key === "Backspace" && isEmpty) takeLastAway();
    else if (event.key === "Escape") {
      if (isEmpty) leave();
      $("find").value = "";
      list();
    } else return;
    event.preventDefault();
  });
}
