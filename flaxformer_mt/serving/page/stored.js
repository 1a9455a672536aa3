// What the browser keeps for the page. Where it keeps nothing of sites, asking it is an error: then
// things are remembered until the page is left.

const held = new Map();

// `kind` is "localStorage" (this browser) or "sessionStorage" (this tab).
export function recall(kind, name) {
  try {
    return window[kind].getItem(name);
  } catch {
    return held.get(name) ?? null;
  }
}

export function remember(kind, name, value) {
  held.set(name, value);
  try {
    window[kind].setItem(name, value);
  } catch {
    // Held above.
  }
}
