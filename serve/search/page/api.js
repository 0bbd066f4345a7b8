// What the page asks of the service, and what it makes of answers that are not the good ones.

const KEY = "biovl-key";
const ATTEMPTS = 5;
const LONGEST_WAIT_S = 60;

/** The API key of this tab; "" without one. */
export const apiKey = () => sessionStorage.getItem(KEY) ?? "";
export const keepKey = (key) => sessionStorage.setItem(KEY, key);

/** An answer that says what is wrong (RFC 9457), or that there was none (status 0). */
export class Problem extends Error {
  constructor({ status, title, detail = "", request_id = "", errors = [] }, wait_s = null) {
    super(title);
    Object.assign(this, { status, title, detail, requestId: request_id, errors, wait_s });
  }
}

/** Addresses are relative to the page, so that it also works behind a prefix. */
const address = (path) => new URL(path, document.baseURI);

// The key goes to the service that the page came from, and nowhere else.
const headersFor = (url) =>
  apiKey() && url.origin === location.origin ? { Authorization: `Bearer ${apiKey()}` } : {};

async function problemOf(response) {
  const after = response.headers.get("Retry-After");
  const wait_s = after === null ? null : Number(after);
  const text = await arrived(response.text());
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    // Of a server in front of the service, as JSON without a title may be.
  }
  const unknown = { title: `The service answered ${response.status}`, detail: text.slice(0, 200) };
  return new Problem({ ...(body?.title ? body : unknown), status: response.status }, wait_s);
}

const pause = (seconds, signal) =>
  new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, seconds * 1000);
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });

/** An answer that is not of the service. */
function ofAnotherServer() {
  const detail = "A page came instead of data. If there is a sign-in in front of the service, load this page again to sign in.";
  return new Problem({ status: 200, title: "Something else has answered", detail });
}

/** Waits for an answer, or a part of one; what stands in its place becomes a problem. */
async function arrived(waited) {
  try {
    return await waited;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (error.name === "SyntaxError") throw ofAnotherServer();
    throw new Problem(
      navigator.onLine
        ? { status: 0, title: "The service does not answer", detail: "It may be restarting. Nothing of your query is lost." }
        : { status: 0, title: "You are offline", detail: "The search is repeated when the connection is back." },
    );
  }
}

/**
 * Answers with the JSON of a path: GET, or POST where there is a body.
 * A service that is busy is asked again when it says so; waiting(problem) is told each time.
 */
export async function ask(path, { body, signal, waiting, headers = {} } = {}) {
  const url = address(path);
  for (let attempt = 1; ; attempt += 1) {
    const options = { signal, headers: { ...headers, ...headersFor(url) } };
    if (body) {
      options.method = "POST";
      options.body = JSON.stringify(body);
      options.headers["Content-Type"] = "application/json";
    }
    const response = await arrived(fetch(url, options));
    if (response.ok) return arrived(response.json());
    const problem = await problemOf(response);
    const busy = [429, 503].includes(problem.status) && problem.wait_s !== null;
    if (!busy || attempt === ATTEMPTS || !(problem.wait_s <= LONGEST_WAIT_S)) throw problem;
    waiting?.(problem);
    await pause(Math.max(problem.wait_s, 0.2), signal);
  }
}

const blobs = new Map();

async function blobOf(url) {
  const response = await arrived(fetch(url, { headers: headersFor(url) }));
  if (!response.ok) throw await problemOf(response);
  const blob = await arrived(response.blob());
  if (!blob.type.startsWith("image/")) throw ofAnotherServer();
  return URL.createObjectURL(blob);
}

/** Where an image of the service is. A proxy that removes a prefix of the path is not in its address. */
export const imageAddress = (path) => address(path.slice(Math.max(0, path.indexOf("v1/figures/"))));

/** What an <img> may show for an image of the service: with a key a blob, as src sends no header. */
export async function imageSource(path) {
  const url = imageAddress(path);
  if (!apiKey()) return url.href;
  if (!blobs.has(url.href)) {
    const source = blobOf(url);
    blobs.set(url.href, source);
    source.catch(() => blobs.delete(url.href));
  }
  if (blobs.size > 300) {
    const [oldest, source] = blobs.entries().next().value;
    blobs.delete(oldest);
    source.then(URL.revokeObjectURL, () => {});
  }
  return blobs.get(url.href);
}
