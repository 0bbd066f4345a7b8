// The contact sheet: 30 figures, their captions below, and one of them large.

import { $, beginning, el, number } from "./dom.js";

let members = [];
let shown = 0;

const buttons = () => [...$("sheet").querySelectorAll("button")];
const spokenCaption = (member) => beginning(member.caption, 200) || `Figure ${member.rank + 1}, without a caption`;

function columns() {
  return getComputedStyle($("sheet")).gridTemplateColumns.split(" ").length;
}

function read(member) {
  $("caption").textContent = member.caption || "(no caption)";
  $("caption").scrollTop = 0;
}

function figure(member, index) {
  const inside = member.thumbnail
    ? el("img", { src: member.thumbnail, alt: "" })
    : el("span", { class: "no-image" }, "No image");
  return el(
    "li",
    {},
    el(
      "button",
      {
        type: "button", class: "zoom", tabIndex: index ? -1 : 0,
        "aria-label": spokenCaption(member),
        onclick: () => enlarge(index),
        onfocus: () => read(member),
        onmouseenter: () => read(member),
      },
      inside,
    ),
  );
}

export function showSheet(cluster) {
  members = cluster.members;
  $("sheet").replaceChildren(...members.map(figure));
  $("caption").textContent = "";
}

function goTo(index) {
  const all = buttons();
  const there = Math.max(0, Math.min(all.length - 1, index));
  all.forEach((button, at) => (button.tabIndex = at === there ? 0 : -1));
  all[there]?.focus();
}

/** Arrow keys go over the figures, also from where nothing else needs them. */
export function arrow(key, from) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns(), ArrowDown: columns() };
  const at = buttons().indexOf(from);
  goTo(at < 0 ? 0 : at + steps[key]);
}

function enlarge(index) {
  shown = (index + members.length) % members.length;
  const member = members[shown];
  $("enlarged-title").textContent = `Figure ${shown + 1} of ${members.length}`;
  $("enlarged-image").replaceChildren(
    member.thumbnail ? el("img", { src: member.thumbnail, alt: spokenCaption(member) }) : el("span", { class: "no-image" }, "No image"),
  );
  $("enlarged-caption").textContent = member.caption || "(no caption)";
  $("enlarged-about").textContent = [
    member.row_id,
    member.width_px ? `${number(member.width_px)} × ${number(member.height_px)} pixels, shown small` : null,
    member.distance === null ? null : `${member.distance.toFixed(2)} from the centre`,
  ].filter(Boolean).join(" · ");
  if (!$("enlarged").open) $("enlarged").showModal();
}

export function startSheet() {
  $("enlarged-before").addEventListener("click", () => enlarge(shown - 1));
  $("enlarged-after").addEventListener("click", () => enlarge(shown + 1));
  $("enlarged-close").addEventListener("click", () => $("enlarged").close());
  $("enlarged").addEventListener("click", (event) => event.target === $("enlarged") && $("enlarged").close());
  $("enlarged").addEventListener("close", () => goTo(shown));
  $("enlarged").addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    event.preventDefault();
    enlarge(shown + step);
  });
}
