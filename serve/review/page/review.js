// Where the review begins: signing in, clusters one after the other, keys, and progress.

import { $, bar, el, number } from "./dom.js";
import { chosenConcepts, setConcepts, setTaxonomy, startNaming } from "./naming.js";
import { clearNotice, showNotice } from "./notice.js";
import { asked, draftOf, dropDraft, keepDraft, reviewer, signIn, signOut } from "./session.js";
import { arrow, showSheet, startSheet } from "./sheet.js";

const FIELDS = { panel: "panels", global_concepts: "global concepts", local_concepts: "local concepts" };
const SINGLE_KEYS = "biovl-single-keys";

let panels = [];
let cluster = null;
let isOld = false; // one of those answered before, opened to be changed
let isBusy = false;
let recent = [];
let older = -1; // where in recent the reader is; -1: not there
let reservation_s = 900;
let holding;
let hasActed = false;

// ---- what went wrong

const tell = (kind, title, detail, action) =>
  showNotice(kind, title, detail ? el("p", {}, detail) : null, action ? el("p", { class: "aside" }, action) : null);

const button = (text, onclick) => el("button", { type: "button", class: "link", onclick }, text);

function report(problem, retry) {
  if (!("status" in problem)) throw problem;
  if (problem.status === 401 || problem.title === "Another name") {
    askWho(problem.detail || problem.title);
    return;
  }
  if (problem.title === "Cluster changed") {
    tell("error", problem.title, problem.detail, button("Load the page again", () => location.reload()));
    return;
  }
  const action = problem.title === "No place left" ? button("Take the next cluster", () => next()) : retry ? button("Try again", retry) : null;
  tell("error", problem.title, problem.detail, action);
}

/** Does one thing at a time: keys are fast, and a vote must not be sent twice. */
async function doing(action, retry) {
  if (isBusy) return;
  isBusy = true;
  $("work").setAttribute("aria-busy", "true");
  try {
    await action();
  } catch (problem) {
    report(problem, retry);
  } finally {
    isBusy = false;
    $("work").setAttribute("aria-busy", "false");
  }
}

// ---- who reviews

function askWho(why) {
  for (const id of ["work", "done", "progress", "who"]) $(id).hidden = true;
  $("sign-in").hidden = false;
  $("name").value = reviewer() || $("name").value;
  signOut();
  if (why) tell("error", "Not signed in", why);
  $($("name").value ? "token" : "name").focus();
}

async function begin() {
  const found = await asked("v1/review");
  clearNotice();
  panels = found.panels;
  recent = found.recent;
  reservation_s = found.reservation_s;
  holdAlways();
  setTaxonomy(found.concepts_by_global, found.aliases);
  $("name-shown").textContent = found.reviewer;
  $("sign-in").hidden = true;
  $("who").hidden = false;
  $("last-panel").textContent = panels.length;
  drawPanels();
  draw(await asked("v1/next", { body: {} }));
}

// ---- progress

function showProgress({ own, overall }) {
  const isPractice = own.practised < own.practice;
  const [done, of] = isPractice ? [own.practised, own.practice] : [own.votes, own.most ?? overall.clusters];
  const before = isPractice ? "Practice: " : "You: ";
  $("own-text").replaceChildren(before, el("b", {}, number(done)), ` of ${number(of)} clusters`);
  $("own-bar").replaceChildren(bar(of ? done / of : 0, isPractice ? "Practice" : "Your clusters"));
  const parts = [` of ${number(overall.wanted)} votes`, `${number(overall.complete)} of ${number(overall.clusters)} clusters complete`];
  if (overall.ties) parts.push(`${number(overall.ties)} tied`);
  $("all-text").replaceChildren("All: ", el("b", {}, number(overall.votes)), parts.join(" · "));
  $("all-bar").replaceChildren(bar(overall.wanted ? overall.votes / overall.wanted : 0, "All votes"));
  $("progress").hidden = false;
}

// ---- a cluster

function drawPanels() {
  const choices = panels.map((panel, at) =>
    el("label", { class: "panel-choice" }, el("input", { type: "radio", name: "panel", value: at, onchange: keep }), el("kbd", { "aria-hidden": "true" }, at + 1), el("span", {}, panel.question)),
  );
  $("panels").replaceChildren($("panels").querySelector("legend"), ...choices);
}

function setPanel(answers) {
  document.querySelectorAll("[name=panel]").forEach((radio) => {
    const { panel_type, panel_subtype } = panels[Number(radio.value)];
    radio.checked = panel_type === answers?.panel_type && panel_subtype === answers.panel_subtype;
  });
}

function chosenPanel() {
  const radio = document.querySelector("[name=panel]:checked");
  const { panel_type = null, panel_subtype = null } = radio ? panels[Number(radio.value)] : {};
  return { panel_type, panel_subtype };
}

const answersNow = () => ({ ...chosenPanel(), ...chosenConcepts() });

function keep() {
  $("missing").textContent = "";
  if (cluster && !isBusy) keepDraft(cluster, answersNow());
}

const KINDS = {
  practice: ["Practice", "To get to know the questions; not counted."],
  again: ["Look again", ""],
  vote: ["", ""],
};

function kindText() {
  if (cluster.kind !== "again") return KINDS[cluster.kind][1];
  return `The votes for it tie on ${cluster.ties.map((name) => FIELDS[name] ?? name).join(" and ")}.`;
}

function show(found, isOneOfOld) {
  cluster = found;
  isOld = isOneOfOld;
  $("done").hidden = true;
  $("work").hidden = false;
  $("cluster-title").replaceChildren(
    `Cluster ${cluster.cluster_id} `,
    el("span", { class: "size" }, `${cluster.members.length} of ${number(cluster.size)} figures`),
  );
  const [badge] = KINDS[cluster.kind];
  $("kind").textContent = isOld ? [badge, "Answered"].filter(Boolean).join(", ") : badge;
  $("kind").className = `badge ${cluster.kind}`;
  $("kind").hidden = !$("kind").textContent;
  $("kind-text").textContent = kindText();
  $("skip-text").textContent = isOld ? "Go on" : "Skip";
  $("missing").textContent = "";
  const draft = draftOf(cluster);
  setPanel(draft ?? cluster.answers);
  setConcepts(draft ?? cluster.answers ?? { global_concepts: [], local_concepts: [] });
  if (draft) $("kind-text").textContent += `${$("kind-text").textContent ? " " : ""}Your unsaved answers are here.`;
  $("back").disabled = older + 1 >= recent.length;
  showSheet(cluster);
  // From the top: digits choose panels, letters find concepts.
  $("cluster-title").focus();
}

function showDone({ own }) {
  cluster = null;
  $("work").hidden = true;
  $("done").hidden = false;
  const isEnough = own.most !== null && own.votes >= own.most;
  $("done-title").textContent = isEnough ? "You have answered all that was asked of you" : "Nothing is left for you now";
  $("done-text").textContent = isEnough
    ? `${number(own.votes)} clusters: thank you.`
    : "Every cluster has its votes, or is open with somebody else. There may be more if votes tie.";
  $("done-title").focus();
}

function draw({ cluster: found, progress }) {
  showProgress(progress);
  older = -1;
  if (found) show(found, false);
  else showDone(progress);
}

const placeOf = ({ cluster_id, key, kind }) => ({ cluster_id, key, practice: kind === "practice" });

const next = (skip = null) =>
  doing(async () => {
    draw(await asked("v1/next", { body: { skip } }));
    clearNotice();
  }, () => next(skip));

function skip() {
  if (!cluster) return;
  next(isOld ? null : placeOf(cluster));
}

function back() {
  if (older + 1 >= recent.length) return;
  doing(async () => {
    const { cluster_id, key, practice } = recent[older + 1];
    const found = await asked(`v1/clusters/${cluster_id}?cluster_key=${encodeURIComponent(key)}&practice=${practice}`);
    older += 1;
    clearNotice();
    show(found, true);
  }, back);
}

function save() {
  if (!cluster) return;
  const answers = answersNow();
  if (answers.panel_type === null) {
    $("missing").textContent = `Choose what panels most figures have (1 to ${panels.length}).`;
    document.querySelector("[name=panel]").focus();
    return;
  }
  if (!answers.global_concepts.length) {
    $("missing").textContent = "Choose a global concept; type to find one.";
    $("find").focus();
    return;
  }
  let isSaved = false;
  doing(async () => {
    const place = placeOf(cluster);
    await asked("v1/votes", { body: { ...place, ...answers } });
    isSaved = true;
    dropDraft(cluster);
    recent = [place, ...recent.filter((one) => one.key !== place.key || one.practice !== place.practice)];
    $("spoken").textContent = `Cluster ${place.cluster_id} saved`;
    clearNotice();
    draw(await asked("v1/next", { body: {} }));
    // Saved twice, a vote that makes a tie would count as the second look at it.
  }, () => (isSaved ? next() : save()));
}

// ---- keys

const isShortcut = () => localStorage.getItem(SINGLE_KEYS) !== "off";

function help() {
  $("single-keys").checked = isShortcut();
  $("help").showModal();
}

const COMMANDS = { ",": back, ".": skip, "?": help };

/** Stops keys while a cluster is saved or the next one loads: they were meant for that one. */
function whileBusy(event) {
  if (!isBusy || $("work").hidden || event.ctrlKey || event.metaKey || event.altKey) return;
  if (/^(Tab|F\d+)$/.test(event.key)) return;
  event.preventDefault();
  event.stopPropagation();
}

function onKey(event) {
  hasActed = true;
  if ($("work").hidden || document.querySelector("dialog[open]") || event.isComposing) return;
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter") {
    event.preventDefault();
    save();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || !isShortcut()) return;
  const isFind = event.target === $("find");
  if (event.key in COMMANDS && !(isFind && $("find").value)) {
    event.preventDefault();
    COMMANDS[event.key]();
  } else if (isFind) {
    return;
  } else if (/^[1-9]$/.test(event.key) && Number(event.key) <= panels.length) {
    event.preventDefault();
    document.querySelectorAll("[name=panel]")[Number(event.key) - 1].checked = true;
    keep();
  } else if (/^\p{L}$/u.test(event.key)) {
    // The letter itself is typed where the focus is by then.
    $("find").focus();
  } else if (event.key.startsWith("Arrow") && event.target.type !== "radio") {
    event.preventDefault();
    arrow(event.key, event.target);
  }
}

// ---- the start

function hold() {
  if (!cluster || isOld || cluster.kind === "practice" || !hasActed || isBusy) return;
  hasActed = false;
  const { cluster_id, key } = cluster;
  asked("v1/hold", { body: { cluster_id, key } }).then(
    ({ held }) => {
      if (held || cluster?.key !== key || isBusy) return;
      const detail = "Your time with it had run out. Your answers may not be saved any more.";
      tell("info", "Somebody else has this cluster now", detail, button("Take the next cluster", () => next()));
    },
    // Where this fails, saving will say so.
    () => {},
  );
}

function holdAlways() {
  clearTimeout(holding);
  holding = setTimeout(() => {
    hold();
    holdAlways();
  }, Math.max(5, reservation_s / 4) * 1000);
}

$("sign-in").addEventListener("submit", (event) => {
  event.preventDefault();
  signIn($("name").value.trim(), $("token").value.trim());
  $("token").value = "";
  // The token is in the tab by now, and no longer in the form.
  const enter = () => doing(begin, enter);
  enter();
});
$("sign-out").addEventListener("click", () => {
  clearNotice();
  askWho("");
});
$("answers").addEventListener("submit", (event) => {
  event.preventDefault();
  save();
});
$("skip").addEventListener("click", skip);
$("back").addEventListener("click", back);
$("look-again").addEventListener("click", () => next());
$("open-help").addEventListener("click", help);
$("help-close").addEventListener("click", () => $("help").close());
$("single-keys").addEventListener("change", () => localStorage.setItem(SINGLE_KEYS, $("single-keys").checked ? "on" : "off"));
addEventListener("keydown", whileBusy, { capture: true });
addEventListener("keydown", onKey);
addEventListener("pointermove", () => (hasActed = true), { passive: true });
startSheet();
startNaming(keep, () => $("cluster-title").focus());
if (reviewer()) doing(begin, () => location.reload());
else askWho("");
