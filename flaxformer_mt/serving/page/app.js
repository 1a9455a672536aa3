// The page: reads what is typed, asks the server, and lets the parts show the answer.

import { get, post, useKey } from "./api.js";
import * as alternatives from "./alternatives.js";
import * as attention from "./attention.js";
import * as desk from "./desk.js";
import * as languages from "./languages.js";
import { live } from "./live.js";
import { recall, remember } from "./stored.js";
import { setUpTheme } from "./theme.js";

const byId = (id) => document.getElementById(id);
const source = byId("source");
const target = byId("target");
const status = byId("status");
const KEY_STATUSES = [401, 403];
let settings = null;
let warm = false; // whether the server has said so
let chosen = null; // the sentence whose alternatives and attention are shown

const change = live({
  ask: (text, signal) =>
    text.trim() === ""
      ? Promise.resolve(null)
      : post("translate", question(text), signal),
  show(answer, text) {
    target.classList.remove("waiting", "stale");
    say("");
    if (answer === null) return empty();
    const translation = answer.translations[0];
    desk.show(text, translation);
    byId("copy").hidden = false;
    if (translation.sentences.some((each) => each.split)) {
      say("A sentence was too long for the model: translated in pieces.");
    }
    chosen = null;
    select(translation.sentences.length ? desk.shownSentences()[0] : null);
  },
  wait() {
    target.classList.add("waiting");
    say("Translating …");
    if (!warm) tellOfWarmUp();
  },
  fail(error) {
    target.classList.remove("waiting");
    byId("key-form").hidden = !(settings.keyRequired && KEY_STATUSES.includes(error.status));
    say(error.retryAfter ? `${error.message} Trying again …` : error.message, true);
  },
});

async function tellOfWarmUp() {
  const health = await get("health").catch((refused) => refused.content ?? {});
  warm = health.status !== "warming";
  if (warm || !target.classList.contains("waiting")) return;
  const steps = health.of ? ` (${health.done} of ${health.of})` : "";
  say(`Translating … The model is warming up${steps}, so the first answers take longer.`);
}

function say(text, bad = false) {
  status.textContent = text;
  status.classList.toggle("bad", bad);
}

function empty() {
  desk.clear();
  byId("copy").hidden = true;
  alternatives.hide();
  attention.hide();
  chosen = null;
}

function select(sentence) {
  if (sentence === chosen) return;
  chosen = sentence;
  desk.mark(sentence);
  if (sentence === null) {
    alternatives.hide();
    return attention.hide();
  }
  alternatives.show(sentence, {
    several: desk.shownSentences().length > 1,
    choose(rank) {
      desk.choose(sentence, rank);
      desk.mark(sentence);
      attend(sentence);
    },
  });
  attend(sentence);
}

function attend(sentence) {
  // The tag of a direction, or a code that the sentence took over from one before it.
  const read = [sentence.code, sentence.source].filter(Boolean).join(" ");
  attention.show(read, sentence.hypotheses[sentence.chosen].text);
}

function question(text) {
  const n_best = Math.min(4, settings.limits.n_best);
  return { text, n_best, alignment: true, ...languages.chosen(), ...wishes() };
}

// Terms and forbidden phrases. A line of terms that has no "=" yet is still being typed.
function wishes() {
  if (!settings.limits.constraints) return {};
  const pairs = linesOf(byId("terms")).map((line) => line.split("=", 2).map((part) => part.trim()));
  const whole = pairs.filter(([term, translation]) => term && translation);
  byId("terms").setAttribute("aria-invalid", whole.length < pairs.length);
  const forbid = linesOf(byId("forbid"));
  return {
    ...(whole.length && { terms: Object.fromEntries(whole) }),
    ...(forbid.length && { forbid }),
  };
}

const linesOf = (area) => area.value.split("\n").map((line) => line.trim()).filter(Boolean);

// What is typed survives a reload of the page, in this tab only.
const STORED = { source: "flaxformer-text", terms: "flaxformer-terms", forbid: "flaxformer-forbid" };

function typed({ now = false } = {}) {
  desk.edited();
  target.classList.add("stale");
  alternatives.age();
  attention.age();
  const count = [...source.value].length;
  byId("count").textContent = count ? `${count} of ${settings.limits.characters} characters` : " ";
  byId("clear").hidden = count === 0;
  for (const [id, name] of Object.entries(STORED)) remember("sessionStorage", name, byId(id).value);
  change(source.value, { now });
}

function fill(text) {
  source.value = text;
  typed({ now: true });
}

function setUp() {
  const { model, examples } = settings;
  languages.setUp(settings, () => typed({ now: true }));
  byId("wishes").hidden = !settings.limits.constraints;
  byId("model").textContent = `${model.name} · weights: ${model.weights}`;
  byId("examples").hidden = examples.length === 0;
  byId("examples").replaceChildren(
    ...examples.map((text) => {
      const button = Object.assign(document.createElement("button"), {
        type: "button",
        textContent: text,
      });
      button.addEventListener("click", () => fill(text));
      return button;
    }),
  );
  byId("key-form").hidden = !settings.keyRequired;
  attention.setUp(model);
}

for (const id of Object.keys(STORED)) byId(id).addEventListener("input", () => settings && typed());
byId("clear").addEventListener("click", () => {
  fill("");
  source.focus();
});
byId("copy").addEventListener("click", async () => {
  const done = await navigator.clipboard.writeText(target.textContent).then(
    () => "Copied.",
    () => "This browser doesn't allow the page to copy.",
  );
  say(done);
});
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(byId("key").value);
  byId("key-form").hidden = true;
  typed({ now: true });
});
desk.whenChosen(select);
setUpTheme(byId("theme"), attention.redraw);
try {
  settings = await get("frontend/settings");
  setUp();
  for (const [id, name] of Object.entries(STORED)) byId(id).value ||= recall("sessionStorage", name) ?? "";
  byId("wishes").open = Object.keys(wishes()).length > 0;
  if (source.value) typed({ now: true });
} catch (error) {
  say(error.message, true);
}
