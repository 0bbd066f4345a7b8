// A reader's own image: chosen, dropped or pasted. It stays in memory and goes into no address.

import { Problem } from "./api.js";
import { el, icon } from "./dom.js";

/** {id, name, url (to show), data (to send)} of a file, or throws what is wrong with it. */
export async function readPicture(file, most_mib) {
  if (file.type && !file.type.startsWith("image/")) {
    const detail = `${file.name} is ${file.type}. JPEG, PNG, WebP, GIF and TIFF can be used.`;
    throw new Problem({ status: 0, title: "This is not an image", detail });
  }
  if (most_mib && file.size > most_mib * 2 ** 20) {
    const detail = `${file.name} has ${(file.size / 2 ** 20).toFixed(1)} MiB; at most ${most_mib} MiB are taken.`;
    throw new Problem({ status: 0, title: "The image is too large", detail });
  }
  const address = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  return {
    // Random, as entries of the history outlive the page. randomUUID needs HTTPS.
    id: crypto.getRandomValues(new Uint32Array(4)).join("-"),
    name: file.name || "pasted image",
    url: URL.createObjectURL(file),
    // A file of unknown type is sent bare: the service looks at the bytes.
    data: file.type ? address : address.slice(address.indexOf(",") + 1),
  };
}

/** What stands for an image of the reader; formats that browsers do not show become a drawing. */
export function preview(picture, properties = {}) {
  const image = el("img", { src: picture.url, alt: `Your image: ${picture.name}`, ...properties });
  image.addEventListener("error", () => image.replaceWith(el("span", { class: "no-image" }, icon("image"), picture.name)));
  return image;
}

const dragged = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");

/** Takes files that are dropped anywhere or pasted; gives each to the tab that is open. */
export function listenForFiles(take) {
  let depth = 0;
  const mark = (on) => document.body.classList.toggle("dragging", on);
  const moved = (event, step) => {
    if (!dragged(event)) return;
    depth = Math.max(0, depth + step);
    mark(depth > 0);
  };
  addEventListener("dragenter", (event) => moved(event, 1));
  addEventListener("dragleave", (event) => moved(event, -1));
  addEventListener("dragover", (event) => dragged(event) && event.preventDefault());
  const takeFirst = (event, transfer) => {
    const [file] = transfer?.files ?? [];
    if (!file) return;
    event.preventDefault();
    take(file);
  };
  addEventListener("drop", (event) => {
    depth = 0;
    mark(false);
    takeFirst(event, event.dataTransfer);
  });
  addEventListener("paste", (event) => takeFirst(event, event.clipboardData));
}

/** The place of a tab where an image is put: {node, put(picture)}. */
export function pictureWell(take) {
  const file = el("input", { type: "file", accept: "image/*,.tif,.tiff", class: "unseen", tabIndex: -1, "aria-hidden": "true" });
  file.addEventListener("change", () => {
    if (file.files[0]) take(file.files[0]);
    file.value = "";
  });
  const inside = el("span", { class: "well-inside" });
  const node = el("div", {}, file, el("button", { type: "button", class: "well", onclick: () => file.click() }, inside));
  const put = (picture) =>
    inside.replaceChildren(
      ...(picture
        ? [preview(picture), el("span", { class: "well-note" }, "Choose another image")]
        : [icon("image"), el("b", {}, "Choose an image"), el("span", { class: "well-note" }, "or drop it here, or paste it")]),
    );
  put(null);
  return { node, put };
}
