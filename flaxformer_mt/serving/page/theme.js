// Light, dark, or as the system has it; remembered in this browser.

import { recall, remember } from "./stored.js";

const STORED = "flaxformer-theme";
const NAMES = ["system", "light", "dark"];
const FACES = { system: "◐", light: "☀", dark: "☾" };

export function setUpTheme(button, changed = () => {}) {
  const use = (name) => {
    if (name === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    button.textContent = FACES[name];
    button.setAttribute("aria-label", `Colours: ${name}`);
    changed();
  };
  let now = recall("localStorage", STORED) ?? "system";
  if (!NAMES.includes(now)) now = "system";
  use(now);
  button.addEventListener("click", () => {
    now = NAMES[(NAMES.indexOf(now) + 1) % NAMES.length];
    remember("localStorage", STORED, now);
    use(now);
  });
}
