// @ts-check
// Requests to the services, through the gateway, with the user's token. A refusal is a RequestError with the service's reason.
import { token } from "./session.js";

export class RequestError extends Error {
  /** @param {any} problem @param {number} status */
  constructor(problem, status) {
    super(problem.detail ?? `HTTP ${status}`);
    this.reason = problem.reason ?? "";
    this.status = status;
    this.field = problem.field;
    this.blocking = problem.blocking ?? [];
  }
}

/** @param {string} method @param {string} path `service/v1/...` @param {any} [body] @param {AbortSignal} [signal] */
export async function call(method, path, body, signal) {
  /** @type {Record<string, string>} */
  const headers = token() ? { Authorization: `Bearer ${token()}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method === "POST") headers["Idempotency-Key"] = uniqueKey();
  let answer;
  try {
    answer = await fetch(`/api/${path}`, { method, headers, body: body === undefined ? undefined : JSON.stringify(body), signal });
  } catch (wrong) {
    if (signal?.aborted) throw wrong;
    throw new RequestError({ detail: "the console's gateway does not answer; retrying", reason: "Unavailable" }, 503);
  }
  const text = await answer.text();
  let found = {};
  try { found = text ? JSON.parse(text) : {}; } catch { found = { detail: text.slice(0, 200) }; }
  if (!answer.ok) throw new RequestError(found, answer.status);
  return /** @type {any} */ (found);
}

/** A unique key. Not by crypto.randomUUID, which over plain HTTP browsers offer only for localhost. */
const uniqueKey = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => call("GET", path, undefined, signal);

/** Every item of a collection, page after page. @param {string} path @param {AbortSignal} [signal] @returns {Promise<any[]>} */
export async function list(path, signal) {
  const items = [];
  let page = "";
  do {
    const found = await get(`${path}${path.includes("?") ? "&" : "?"}pageSize=1000${page}`, signal);
    items.push(...found.items);
    page = found.nextPageToken ? `&pageToken=${encodeURIComponent(found.nextPageToken)}` : "";
  } while (page);
  return items;
}

/** The name of a key `project/name`, with its project as a query. @param {string} collection @param {string} key @param {string} [part] */
export function resourcePath(collection, key, part = "") {
  const [project, name] = key.includes("/") ? key.split("/") : ["default", key];
  return `${collection}/${encodeURIComponent(name)}${part}?project=${encodeURIComponent(project)}`;
}
