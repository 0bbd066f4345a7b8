// What went wrong, said where it is seen and read out.

import { apiKey, keepKey } from "./api.js";
import { $, el, icon } from "./dom.js";

let again = new Set();
let countdown;

export function clearNotice() {
  clearInterval(countdown);
  again.clear();
  $("notice").hidden = true;
  $("notice").replaceChildren();
}

/** Shows a notice of a kind, info or error, with a title and lines below it. */
export function showNotice(kind, title, ...lines) {
  clearInterval(countdown);
  $("notice").className = `notice ${kind}`;
  $("notice").replaceChildren(
    el("div", {}, el("strong", {}, title), ...lines),
    el("button", { type: "button", class: "quiet", "aria-label": "Dismiss", onclick: clearNotice }, icon("close")),
  );
  $("notice").hidden = false;
}

/** Something that the reader should know and that is nobody's fault. */
export const tell = (title, detail = "") => showNotice("info", title, el("p", {}, detail));

/** That the service is busy and is asked again by itself. */
export function waiting(problem) {
  let left = Math.ceil(problem.wait_s);
  const seconds = el("span", {}, `${left} s`);
  showNotice(
    "info",
    problem.title,
    el("p", {}, problem.detail),
    // Only the first number is read out; a voice that counts down is a nuisance.
    el("p", { "aria-live": "off" }, "Trying again in ", seconds, "."),
  );
  countdown = setInterval(() => {
    left = Math.max(0, left - 1);
    seconds.textContent = `${left} s`;
  }, 1000);
}

/** Shows a problem; retry() is what the reader wanted. */
export function report(problem, retry) {
  if (problem.name === "AbortError") return;
  if (!("status" in problem)) throw problem;
  if (problem.status === 401) {
    askForKey(problem, retry);
    return;
  }
  const errors = problem.errors.map(({ loc, msg, ...other }) =>
    el("li", {}, [Array.isArray(loc) ? loc.join(".") : loc, msg ?? JSON.stringify(other)].filter(Boolean).join(": ")),
  );
  if (retry) again.add(retry);
  showNotice(
    "error",
    problem.title,
    problem.detail ? el("p", {}, problem.detail) : null,
    errors.length ? el("ul", {}, errors) : null,
    el(
      "p",
      { class: "aside" },
      problem.requestId ? `Request ${problem.requestId}` : null,
      retry ? el("button", { type: "button", class: "link", onclick: tryAgain }, "Try again") : null,
      problem.status === 403 && apiKey() ? el("button", { type: "button", class: "link", onclick: () => askForKey(problem) }, "Use another key") : null,
    ),
  );
}

function tryAgain() {
  const wanted = [...again];
  clearNotice();
  for (const retry of wanted) retry();
}

function askForKey(problem, retry) {
  const refused = apiKey() !== "";
  if (retry) again.add(retry);
  $("key-note").textContent = refused
    ? `The key was not accepted: ${problem.detail || problem.title}`
    : "Kept in this tab until it is closed, and sent to this service only.";
  $("key-form").classList.toggle("refused", refused);
  if ($("key-form").hidden) {
    $("key-form").hidden = false;
    $("key").focus();
  }
}

export function startNotices() {
  $("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    keepKey($("key").value.trim());
    $("key").value = "";
    $("key-form").hidden = true;
    tryAgain();
  });
  addEventListener("online", () => again.size && tryAgain());
}
