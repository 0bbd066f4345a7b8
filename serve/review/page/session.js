// Who reviews, what is asked of the service in that name, and answers that are not saved yet.

import { Problem, ask, keepKey } from "./api.js";

const NAME = "biovl-reviewer";

/** The reviewer of this tab; "" before signing in. */
export const reviewer = () => sessionStorage.getItem(NAME) ?? "";

export function signIn(name, token) {
  sessionStorage.setItem(NAME, name);
  keepKey(token);
}

export function signOut() {
  sessionStorage.removeItem(NAME);
  keepKey("");
}

/** Asks the service in the name of the reviewer. */
export async function asked(path, options = {}) {
  try {
    return await ask(path, { ...options, headers: { "X-Reviewer": reviewer() } });
  } catch (problem) {
    if (problem.status !== 0) throw problem;
    throw new Problem({ status: 0, title: problem.title, detail: "What you have entered stays on this page; try again in a moment." });
  }
}

// Kept in the tab, so that a reload loses nothing; another reviewer in the tab does not see it.
const place = (cluster) => `biovl-draft:${reviewer()}:${cluster.key}:${cluster.kind === "practice"}`;

export const keepDraft = (cluster, answers) => sessionStorage.setItem(place(cluster), JSON.stringify(answers));
export const dropDraft = (cluster) => sessionStorage.removeItem(place(cluster));

export function draftOf(cluster) {
  try {
    return JSON.parse(sessionStorage.getItem(place(cluster)));
  } catch {
    return null;
  }
}
