// Where the page begins: tabs, addresses, and what is served.

import { Problem, ask } from "./api.js";
import { closeFigure, openById, openFigure, startDetail } from "./detail.js";
import { $, number } from "./dom.js";
import { startFilters } from "./filters.js";
import { report, startNotices } from "./notice.js";
import { listenForFiles, readPicture } from "./picture.js";
import { addConcept, searchFresh, searchFromAddress, setFacets, startSearch, takePicture } from "./search.js";

const TABS = ["search", "classify", "private"];
// Loaded when their tab is first looked at: most readers only search.
const TOOLS = { classify: () => import("./classify.js"), private: () => import("./private.js") };
const tools = {};

let tab = "search";
let searched = { state: null, address: location.pathname };
let image_mib = null;

function showTab(name) {
  tab = name;
  for (const each of TABS) {
    $(`tab-${each}`).setAttribute("aria-selected", each === name);
    $(`tab-${each}`).tabIndex = each === name ? 0 : -1;
    $(`panel-${each}`).hidden = each !== name;
  }
  if (name in TOOLS) toolOf(name);
}

/** What takes an image in a tab, once the tab is there; null where it could not be loaded. */
function toolOf(name) {
  tools[name] ??= TOOLS[name]()
    .then((module) => module.start(take, openInAddress))
    .catch((error) => {
      tools[name] = null;
      const problem = new Problem({ status: 0, title: "This part of the page could not be loaded", detail: error.message });
      report(problem, () => toolOf(name));
      return null;
    });
  return tools[name];
}

/** Chosen by the reader: the tab has an address, and back leads to the one before. */
function goToTab(name) {
  if (name === tab) return;
  if (tab === "search") searched = { state: history.state, address: addressWith(null) };
  if (name === "search") history.pushState(searched.state, "", searched.address);
  else history.pushState(null, "", `?tab=${name}`);
  showTab(name);
  if (name === "search") fromAddress();
}

async function take(file) {
  closeFigure();
  try {
    const picture = await readPicture(file, image_mib);
    const give = tab === "search" ? takePicture : await toolOf(tab);
    await give?.(picture);
  } catch (problem) {
    report(problem);
  }
}

// ---- a figure that lies open is part of the address too

const parameters = () => new URLSearchParams(location.search);

function addressWith(figureId) {
  const now = parameters();
  if (figureId) now.set("open", figureId);
  else now.delete("open");
  const text = now.toString();
  return text ? `?${text}` : location.pathname;
}

function openInAddress(hits, index, scale, from) {
  history.pushState({ ...history.state, opened: true }, "", addressWith(hits[index].figure_id));
  openFigure(hits, index, scale, from);
}

function figureClosed() {
  if (!parameters().has("open")) return;
  if (history.state?.opened) history.back();
  else history.replaceState(history.state, "", addressWith(null));
}

const leaveFigureFor = (action) => {
  // The new search takes the place of the open figure in the history.
  history.replaceState({ ...history.state, opened: true }, "", addressWith(null));
  closeFigure();
  showTab("search");
  action();
  scrollTo(0, 0);
};

/** Draws what the address says; called at the start and by back and forward. */
function fromAddress() {
  const now = parameters();
  showTab(TABS.includes(now.get("tab")) ? now.get("tab") : "search");
  const figureId = now.get("open");
  now.delete("open");
  if (tab === "search") searchFromAddress(now, history.state);
  if (!figureId) closeFigure();
  else if (!$("detail").open) openById(figureId);
}

// ---- what is served

async function load() {
  try {
    const [info, { data }] = await Promise.all([ask("v1/info"), ask("v1/models")]);
    image_mib = info.limits.image_mib;
    $("tab-private").hidden = !info.proxy;
    const [model] = data;
    const index = model?.index;
    $("served").textContent = [
      model ? `Model ${model.id}@${model.version}` : "No model is loaded",
      index ? `index ${index.version}` : "no index: images can be classified, not searched",
      index?.figures ? `${number(index.figures)} figures` : null,
    ].filter(Boolean).join(" · ");
    if (index) setFacets(await ask("v1/facets"), index.figures);
  } catch (problem) {
    report(problem, load);
  }
}

function startTabs() {
  for (const name of TABS) $(`tab-${name}`).addEventListener("click", () => goToTab(name));
  document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const there = TABS.filter((name) => !$(`tab-${name}`).hidden);
    const next = there[(there.indexOf(tab) + step + there.length) % there.length];
    goToTab(next);
    $(`tab-${next}`).focus();
  });
}

// "/" goes to the search box, as on many sites of papers and code.
function startShortcuts() {
  addEventListener("keydown", (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (tab !== "search") goToTab("search");
    $("q").select();
  });
}

startNotices();
startFilters();
startTabs();
startShortcuts();
startSearch(openInAddress);
startDetail({
  similar: (figure) => leaveFigureFor(() => searchFresh({ similar: figure.figure_id })),
  concept: (concept) => leaveFigureFor(() => addConcept(concept)),
  moved: (figureId) => history.replaceState(history.state, "", addressWith(figureId)),
  closed: figureClosed,
});
listenForFiles(take);
$("search-file").addEventListener("change", () => {
  const [file] = $("search-file").files;
  if (file) take(file);
  $("search-file").value = "";
});
addEventListener("popstate", fromAddress);
fromAddress();
load();
