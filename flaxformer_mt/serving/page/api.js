// The server's API, by addresses relative to the page: it may live below any path.

import { recall, remember } from "./stored.js";

const STORED_KEY = "flaxformer-api-key";

export class Refused extends Error {
  constructor(status, message, retryAfter) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

export function useKey(key) {
  remember("sessionStorage", STORED_KEY, key);
}

export const get = (path) => ask(path, {});

export function post(path, payload, signal) {
  const headers = { "content-type": "application/json" };
  const key = recall("sessionStorage", STORED_KEY);
  if (key) headers["x-api-key"] = key;
  return ask(path, { method: "POST", headers, body: JSON.stringify(payload), signal });
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "The server cannot be reached.", 3);
  }
  const content = await response.json().catch(() => ({}));
  if (response.ok) return content;
  const seconds = Number(response.headers.get("retry-after")) || 0;
  throw Object.assign(
    new Refused(response.status, content.error ?? `The server answered ${response.status}.`, seconds),
    { content },
  );
}
