// Making elements. Text of the service only ever becomes text nodes: captions hold markup.

import { imageSource } from "./api.js";

export const $ = (id) => document.getElementById(id);

/** An element with properties, attributes, listeners (onclick: …) and children (nodes or text). */
export function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.className = value;
    else if (name in node && !name.startsWith("aria")) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

/** A drawing of index.html. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#i-${name}`);
  svg.append(use);
  return svg;
}

/** An image of the service; where there is none, words that say so. */
export function picture(path, { alt, ...properties }) {
  const image = el("img", { alt, decoding: "async", ...properties });
  const missing = () => image.replaceWith(el("span", { class: "no-image" }, "The image is not available"));
  image.addEventListener("error", missing);
  imageSource(path).then((source) => (image.src = source), missing);
  return image;
}

/** Ids of the figures shown whose images are not sent: nobody asks for them again. */
export const withheld = new Set();

/** A figure's image, or why it is not sent; hits name a path or null. */
export function figurePicture(figure, path, properties) {
  if (path) return picture(path, properties);
  withheld.add(figure.figure_id);
  return el("span", { class: "no-image withheld" }, el("span", {}, "Image not shown: "), WITHHELD[figure.withheld] ?? figure.withheld ?? "not available");
}

const WITHHELD = {
  "licence does not allow redistribution": "its licence does not allow it",
  "nothing says that it may be given on": "no licence is stated",
};

/** A mark for figures of retracted articles. */
export const retractedBadge = (figure) => (figure.retracted ? el("span", { class: "badge retracted", title: "The article was retracted" }, "Retracted") : null);

/** A link out, or plain text where the address is not one of the web. */
export function linkOut(address, text) {
  let url = null;
  try {
    url = new URL(address);
  } catch {
    return el("span", {}, text);
  }
  if (!["https:", "http:"].includes(url.protocol)) return el("span", {}, text);
  return el("a", { href: url.href, target: "_blank", rel: "noopener noreferrer" }, text, icon("out"));
}

export const number = (value) => new Intl.NumberFormat("en").format(value);
export const percent = (share) => `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
export const beginning = (text, length) =>
  text.length <= length ? text : `${text.slice(0, length).replace(/\s+\S*$/, "")} …`;

export const GROUPS = {
  commercial: "Commercial use",
  noncommercial: "Non-commercial use",
  other: "Other terms",
};

/** The licence as published, in the colour of its group. */
export function licenceBadge(figure) {
  const spdx = figure.license
    ?.replace(/^CC-/, "CC ")
    .replace(/-(?=\d)/, " ")
    // SPDX's names for what has none: LicenseRef-All-Rights-Reserved.
    .replace(/^LicenseRef-(.)(.*)$/, (_, first, rest) => first + rest.replace(/-/g, " ").toLowerCase());
  const group = figure.license_group in GROUPS ? figure.license_group : "other";
  if (figure.third_party && !spdx) {
    return el("span", { class: "badge other", title: "Credits a third party, whom the article's licence does not bind" }, "Third party");
  }
  return el(
    "span",
    { class: `badge ${group}`, title: GROUPS[group] },
    spdx ?? GROUPS[group],
    el("span", { class: "unseen" }, spdx ? `, ${GROUPS[group]}` : ""),
  );
}

/** "Figure 2: axial CT of …": how a figure is called where it is not seen. */
export const spoken = (figure, length = 140) =>
  [figure.figure_label, beginning(figure.caption, length)].filter(Boolean).join(": ") || figure.figure_id;

/** A bar from 0 to 1. Not <meter>: each browser draws it otherwise. */
export function bar(share, label) {
  const inside = el("span");
  // By script, as the page's policy refuses style attributes.
  inside.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  return el("div", { class: "bar-line", role: "meter", "aria-valuemin": 0, "aria-valuemax": 1, "aria-valuenow": share.toFixed(3), "aria-valuetext": percent(share), "aria-label": label }, inside);
}
