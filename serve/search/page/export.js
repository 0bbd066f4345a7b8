// The figures shown, as a table for a spreadsheet or as JSON for a program.

import { imageAddress } from "./api.js";
import { el, icon } from "./dom.js";

const COLUMNS = [
  "rank", "score", "figure_id", "article_id", "figure_label", "caption", "title", "journal", "year", "license",
  "license_group", "license_url", "stated_license", "third_party", "credit", "retracted", "citation", "doi", "pmid",
  "url", "image_url", "withheld", "concepts", "labels",
];

function cell(value) {
  const text = Array.isArray(value) ? value.join("; ") : String(value ?? "");
  // Spreadsheets run what begins with one of these.
  const safe = /^[=+\-@\t\r]/.test(text) && typeof value !== "number" ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

const absolute = (hit) => ({
  ...hit,
  image_url: hit.image_url && imageAddress(hit.image_url).href,
  thumbnail_url: hit.thumbnail_url && imageAddress(hit.thumbnail_url).href,
});

const csv = (hits) => [COLUMNS, ...hits.map((hit) => COLUMNS.map((name) => hit[name]))].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";

function save(text, type, name) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export function exportButtons(hits) {
  const all = () => hits.map(absolute);
  const button = (name, action) => el("button", { type: "button", class: "link", "aria-label": `Save the figures shown as ${name}`, onclick: action }, icon("down"), name);
  return el(
    "span",
    { class: "exports" },
    // The mark at the start tells spreadsheets that the file is UTF-8.
    button("CSV", () => save(`\ufeff${csv(all())}`, "text/csv;charset=utf-8", "figures.csv")),
    button("JSON", () => save(JSON.stringify(all(), null, 2), "application/json", "figures.json")),
  );
}
