// The classify tab: which of some classes an image is, without training for them.

import { ask } from "./api.js";
import { beginning, el, icon } from "./dom.js";
import { report } from "./notice.js";
import { barTable, imageTool, lines, linesOf } from "./tool.js";

const CLASSES = ["chest X-ray", "brain MRI", "histopathology slide", "western blot", "bar chart"];

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
    // Enter also ends the composition of a word, as of Chinese or Japanese.
    if (event.isComposing) return;
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

function request() {
  if (node.benchmark.value) return { benchmark: node.benchmark.value };
  const templates = linesOf(node.templates);
  const classes = [...node.classes.querySelectorAll("input")].map((input) => input.value.trim()).filter(Boolean);
  return templates.length ? { classes, templates } : { classes };
}

function drawn({ results: [{ classes }], templates }) {
  const truncated = classes.filter((one) => one.truncated).map((one) => beginning(one.name, 60));
  return [
    el("h2", {}, `Most probable: ${classes[0].name}`),
    barTable(["Class", "Probability", "Cosine"], classes.map((one) => [one.name, one.probability, one.similarity.toFixed(3)])),
    el("p", { class: "aside" }, `Probabilities are among these classes only. Prompts: ${templates.join(" | ")}`),
    truncated.length ? el("p", { class: "hint" }, `Longer than the model reads, so that the end was left out: ${truncated.join("; ")}`) : null,
  ].filter(Boolean);
}

/** Offers the classes of named benchmarks. */
async function offerBenchmarks() {
  try {
    const { benchmarks } = await ask("v1/classify/benchmarks");
    node.benchmark.replaceChildren(
      node.benchmark.firstElementChild,
      ...benchmarks.map(({ name, title, classes }) => el("option", { value: name }, `${beginning(title, 60)} (${classes.length} classes)`)),
    );
    node.benchmark.parentElement.hidden = benchmarks.length === 0;
  } catch (problem) {
    report(problem, offerBenchmarks);
  }
}

/** Fills the tab; returns what takes an image. */
export function start(take) {
  node.classes = el("ol", { class: "classes", "aria-label": "Classes" }, CLASSES.map(classRow));
  node.add = el("button", { type: "button", class: "link", onclick: () => addAfter(null, [""]) }, icon("plus"), "Add a class");
  node.benchmark = el("select", { id: "benchmark" }, el("option", { value: "" }, "My own, below"));
  const [templates, details] = lines("Prompt templates", "Templates, one per line", "One per line; {} stands for the class. Left empty, the service uses its own.", {
    id: "templates",
    rows: 2,
    placeholder: "this is an image of {}",
  });
  node.templates = templates;
  const own = el("div", {}, el("p", { class: "label" }, "Classes, one per line"), node.classes, node.add, details);
  node.benchmark.addEventListener("change", () => (own.hidden = node.benchmark.value !== ""));
  offerBenchmarks();
  return imageTool({
    panel: "panel-classify",
    path: "v1/classify",
    title: "Classify an image",
    lead: "Name some classes and see which one the model finds most likely. It was not trained for them.",
    fields: [el("div", { class: "field", hidden: true }, el("label", { for: "benchmark" }, "Classes of"), node.benchmark), own],
    submit: "Classify",
    resultName: "Classes found",
    request,
    draw: drawn,
    take,
  });
}
