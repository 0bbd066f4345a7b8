// The classify tab: which of some classes an image is, without training for them.

import { ask } from "./api.js";
import { $, bar, el, icon, percent, start } from "./dom.js";
import { clearNotice, report, waiting } from "./notice.js";
import { pictureWell } from "./picture.js";

const CLASSES = ["chest X-ray", "brain MRI", "histopathology slide", "western blot", "bar chart"];

let own = null;
let well;
let running = null;
const node = {};

function classRow(name) {
  const input = el("input", { type: "text", value: name, "aria-label": "Class", maxlength: 400 });
  const row = el(
    "li",
    {},
    input,
    el("button", { type: "button", class: "quiet", "aria-label": `Remove the class ${name}`, onclick: () => leave(row) }, icon("close")),
  );
  input.addEventListener("input", () => row.lastElementChild.setAttribute("aria-label", `Remove the class ${input.value}`));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      addAfter(row, [""]);
    } else if (event.key === "Backspace" && !input.value && node.classes.children.length > 1) {
      event.preventDefault();
      leave(row);
    }
  });
  // A list pasted into one line becomes lines.
  input.addEventListener("paste", (event) => {
    const lines = (event.clipboardData?.getData("text") ?? "").split(/\r?\n/).map((line) => line.trim()).filter(Boolean);
    if (lines.length < 2) return;
    event.preventDefault();
    addAfter(row, lines);
    if (!input.value) row.remove();
  });
  return row;
}

function addAfter(row, names) {
  const rows = names.map(classRow);
  if (row) row.after(...rows);
  else node.classes.append(...rows);
  rows.at(-1).firstElementChild.focus();
}

function leave(row) {
  const next = row.previousElementSibling ?? row.nextElementSibling;
  row.remove();
  (next?.firstElementChild ?? node.add).focus();
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function request() {
  const body = { image: own.data };
  if (node.benchmark.value) return { ...body, benchmark: node.benchmark.value };
  const templates = lines(node.templates.value);
  body.classes = [...node.classes.querySelectorAll("input")].map((input) => input.value.trim()).filter(Boolean);
  return templates.length ? { ...body, templates } : body;
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
  try {
    const answer = await ask("v1/classify", { body: request(), signal: abort.signal, waiting });
    clearNotice();
    draw(answer);
  } catch (problem) {
    if (problem.name !== "AbortError") node.result.replaceChildren();
    report(problem, run);
  } finally {
    if (running === abort) node.result.setAttribute("aria-busy", "false");
  }
}

function draw(answer) {
  const { classes } = answer.results[0];
  node.result.replaceChildren(
    el("h2", {}, "Most probable: ", el("span", {}, classes[0].name)),
    el(
      "table",
      { class: "bars" },
      el("thead", {}, el("tr", {}, ["Class", "Probability", "", "Cosine"].map((name) => (name ? el("th", { scope: "col" }, name) : el("td"))))),
      el(
        "tbody",
        {},
        classes.map((one) =>
          el("tr", {}, el("th", { scope: "row" }, one.name), el("td", { class: "bar-cell" }, bar(one.probability, `Probability of ${one.name}`)), el("td", { class: "figure" }, percent(one.probability)), el("td", { class: "figure" }, one.similarity.toFixed(3))),
        ),
      ),
    ),
    el("p", { class: "aside" }, `Probabilities are among these classes only. Prompts: ${answer.templates.join(" | ")}`),
  );
}

export function classifyPicture(picture) {
  own = picture;
  well.put(own);
  return run();
}

/** Offers the classes of named benchmarks: [{name, title, classes}]. */
export function setBenchmarks(benchmarks) {
  node.benchmark.replaceChildren(node.benchmark.firstElementChild, ...benchmarks.map(({ name, title, classes }) => el("option", { value: name }, `${start(title, 60)} (${classes.length} classes)`)));
  node.benchmark.closest(".field").hidden = benchmarks.length === 0;
}

export function startClassify(take) {
  well = pictureWell(take);
  node.classes = el("ol", { class: "classes", "aria-label": "Classes" }, CLASSES.map(classRow));
  node.add = el("button", { type: "button", class: "link", onclick: () => addAfter(null, [""]) }, icon("plus"), "Add a class");
  node.benchmark = el("select", { id: "benchmark" }, el("option", { value: "" }, "My own, below"));
  node.templates = el("textarea", { id: "templates", rows: 2, placeholder: "this is an image of {}", spellcheck: false });
  node.result = el("div", { class: "result", role: "region", "aria-label": "Classes found", "aria-live": "polite" });
  const ownClasses = el(
    "div",
    {},
    el("p", { class: "label" }, "Classes, one per line"),
    node.classes,
    node.add,
    el("details", {}, el("summary", {}, "Prompt templates"), el("label", { class: "unseen", for: "templates" }, "Templates, one per line"), node.templates, el("p", { class: "aside" }, "One per line; {} stands for the class. Left empty, the service uses its own.")),
  );
  node.benchmark.addEventListener("change", () => (ownClasses.hidden = node.benchmark.value !== ""));
  const form = el(
    "form",
    { class: "tool" },
    el("h1", {}, "Classify an image"),
    el("p", { class: "lead" }, "Name some classes and see which one the model finds most likely. It was not trained for them."),
    well.node,
    el("div", { class: "field", hidden: true }, el("label", { for: "benchmark" }, "Classes of"), node.benchmark),
    ownClasses,
    el("button", { type: "submit", class: "primary" }, "Classify"),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $("panel-classify").append(el("div", { class: "tool-columns" }, form, node.result));
}
