// The languages above the sheets: two names or, for a model of several directions, two lists.

import { recall, remember } from "./stored.js";

const byId = (id) => document.getElementById(id);
const lists = { source: byId("source-language"), target: byId("target-language") };
// The choice survives a reload of the page, in this tab only.
const STORED = { source: "flaxformer-source-language", target: "flaxformer-target-language" };
let languages = []; // { code, name, direction, targets }, if there are several directions

// What a request says of its languages: nothing, if the model has one direction.
export const chosen = () =>
  languages.length ? { source: lists.source.value, target: lists.target.value } : {};

// `changed()` is called when others are chosen.
export function setUp(settings, changed) {
  const { source, target } = settings.language;
  const { source_direction, target_direction } = settings.model;
  speak({ ...source, direction: source_direction }, { ...target, direction: target_direction });
  if (!settings.languages) return;

  languages = settings.languages;
  fill(lists.source, languages.filter((each) => each.targets.length));
  pick("source", source.code);
  pick("source", recall("sessionStorage", STORED.source));
  fillTargets(recall("sessionStorage", STORED.target) ?? target.code);
  for (const [side, list] of Object.entries(lists)) {
    byId(`${side}-name`).className = "unseen"; // still the name of its sheet
    list.hidden = false;
    list.addEventListener("change", () => {
      if (side === "source") fillTargets(lists.target.value);
      for (const [name, of] of Object.entries(lists)) remember("sessionStorage", STORED[name], of.value);
      speakAsChosen();
      changed();
    });
  }
  speakAsChosen();
}

const named = (code) => languages.find((each) => each.code === code);
const speakAsChosen = () => speak(named(lists.source.value), named(lists.target.value));

function fill(list, of) {
  list.replaceChildren(...of.map(({ code, name }) => new Option(name, code)));
}

// The targets of the chosen source; `code` is chosen, if it is one of them.
function fillTargets(code) {
  fill(lists.target, named(lists.source.value).targets.map(named));
  pick("target", code);
}

function pick(side, code) {
  if ([...lists[side].options].some((option) => option.value === code)) lists[side].value = code;
}

// Makes the page one of these two languages.
function speak(source, target) {
  document.title = `${source.name} → ${target.name}`;
  byId("source-name").textContent = source.name;
  byId("target-name").textContent = target.name;
  for (const id of ["source", "mirror"]) {
    Object.assign(byId(id), { lang: source.code, dir: source.direction });
  }
  Object.assign(byId("target"), { lang: target.code, dir: target.direction });
  byId("source").placeholder = `Type or paste a text in ${source.name}`;
}
