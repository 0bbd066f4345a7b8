// What the tabs share that ask about one image: a form at the left, what was found at the right.

import { ask } from "./api.js";
import { $, bar, el, percent } from "./dom.js";
import { clearNotice, report, waiting } from "./notice.js";
import { pictureWell } from "./picture.js";

/**
 * Fills a tab. request() makes the body but for the image, draw(answer) the nodes of the result.
 * Returns what gives it an image.
 */
export function imageTool({ panel, path, title, lead, fields, submit, resultName, request, draw, take }) {
  const well = pictureWell(take);
  const result = el("div", { class: "result", role: "region", "aria-label": resultName, "aria-live": "polite" });
  let own = null;
  let running = null;

  async function run() {
    if (!own) {
      result.replaceChildren(el("p", { class: "hint" }, "Choose an image first."));
      well.node.querySelector("button").focus();
      return;
    }
    running?.abort();
    const abort = (running = new AbortController());
    clearNotice();
    result.setAttribute("aria-busy", "true");
    try {
      const answer = await ask(path, { body: { image: own.data, ...request() }, signal: abort.signal, waiting });
      clearNotice();
      result.replaceChildren(...draw(answer, result));
    } catch (problem) {
      if (problem.name !== "AbortError") result.replaceChildren();
      report(problem, run);
    } finally {
      if (running === abort) result.setAttribute("aria-busy", "false");
    }
  }

  const form = el("form", { class: "tool" }, el("h1", {}, title), el("p", { class: "lead" }, lead), well.node, fields, el("button", { type: "submit", class: "primary" }, submit));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    run();
  });
  $(panel).append(el("div", { class: "tool-columns" }, form, result));
  return (picture) => {
    own = picture;
    well.put(own);
    return run();
  };
}

/** Names with bars; each row is [name, share from 0 to 1, what stands at the right]. */
export function barTable([name, share, last], rows) {
  const head = (text) => el("th", { scope: "col" }, text);
  return el(
    "table",
    { class: "bars" },
    el("thead", {}, el("tr", {}, head(name), head(share), el("td"), head(last))),
    el(
      "tbody",
      {},
      rows.map(([label, part, right]) =>
        el("tr", {}, el("th", { scope: "row" }, label), el("td", {}, bar(part, `${share} of ${label}`)), el("td", { class: "figure" }, percent(part)), el("td", { class: "figure" }, right)),
      ),
    ),
  );
}

export const linesOf = (area) => area.value.split("\n").map((line) => line.trim()).filter(Boolean);

/** A part of a form that most do not need: an area of lines and what they mean. */
export function lines(summary, label, note, properties) {
  const area = el("textarea", { "aria-label": label, spellcheck: false, ...properties });
  return [area, el("details", {}, el("summary", {}, summary), area, el("p", { class: "aside" }, note))];
}
