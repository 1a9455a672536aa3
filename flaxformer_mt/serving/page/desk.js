// The two sheets: what is typed, what it becomes, and which words belong together.

import { gaps, spansOf, writeWords } from "./words.js";

const source = document.getElementById("source");
const mirror = document.getElementById("mirror");
const target = document.getElementById("target");
const links = document.getElementById("links");

// Sentences as they are shown: { source, hypotheses, chosen, sourceWords, targetWords, element }.
let sentences = [];
let current = null; // { sentence, side, index } of the word that is pointed at
let onChoice = () => {};

export const sourceText = () => source.value;
export const shownSentences = () => sentences;
export const whenChosen = (listener) => (onChoice = listener);

// Shows the answer to `text`. The source's words are elements of the mirror behind the text area.
export function show(text, answer) {
  sentences = answer.sentences.map((each) => ({ ...each, chosen: 0 }));
  const between = gaps(text, sentences.map((each) => each.source));
  const joints = gaps(answer.text, sentences.map((each) => each.hypotheses[0].text)) ?? between;
  mirror.replaceChildren();
  target.replaceChildren();
  current = null;
  sentences.forEach((sentence, number) => {
    mirror.append(between === null ? "" : between[number]);
    const words = sentence.hypotheses[0].alignment?.source_words ?? [];
    sentence.sourceWords = writeWords(mirror, sentence.source, spansOf(sentence.source, words));
    sentence.sourceWords.forEach((word, index) => place(word, sentence, "source", index));
    target.append(joints === null ? "" : joints[number]); // the translation's, not the source's
    sentence.element = document.createElement("span");
    sentence.element.className = "sentence";
    target.append(sentence.element);
    write(sentence);
  });
  mirror.append(between === null ? "" : between.at(-1));
  target.append(joints === null ? "" : joints.at(-1)); // with a quotation's closing mark
  makeReachable();
  light(null);
}

export function clear() {
  sentences = [];
  current = null;
  mirror.textContent = source.value;
  target.replaceChildren();
  light(null);
}

// The text has changed: what is known of its words holds no longer.
export function edited() {
  mirror.textContent = source.value;
  sentences.forEach((sentence) => (sentence.sourceWords = []));
  light(null);
}

export function choose(sentence, rank) {
  sentence.chosen = rank;
  write(sentence);
  makeReachable();
  light(null);
}

export function mark(sentence) {
  for (const each of sentences) {
    each.element.classList.toggle("chosen", sentences.length > 1 && each === sentence);
  }
}

function write(sentence) {
  const { text, alignment } = sentence.hypotheses[sentence.chosen];
  sentence.element.replaceChildren();
  const spans = spansOf(text, alignment?.target_words ?? []);
  sentence.targetWords = writeWords(sentence.element, text, spans);
  sentence.targetWords.forEach((word, index) => {
    word.tabIndex = -1;
    place(word, sentence, "target", index);
  });
}

const places = new WeakMap();
const place = (element, sentence, side, index) => places.set(element, { sentence, side, index });

// One stop for the tabulator; arrow keys go on from there.
function makeReachable() {
  const words = target.querySelectorAll(".word");
  if (words.length) words[0].tabIndex = 0;
}

function light(at) {
  current = at;
  for (const element of document.querySelectorAll(".word.lit, .word.at")) {
    element.classList.remove("lit", "at");
  }
  links.replaceChildren();
  if (at === null) return;
  const { sentence, side, index } = at;
  const own = side === "source" ? sentence.sourceWords : sentence.targetWords;
  const other = side === "source" ? sentence.targetWords : sentence.sourceWords;
  own[index]?.classList.add("at");
  const alignment = sentence.hypotheses[sentence.chosen].alignment;
  const [from, to] = side === "source" ? [0, 1] : [1, 0];
  const partners = (alignment?.links ?? []).filter((link) => link[from] === index);
  for (const link of partners) {
    const partner = other[link[to]];
    if (!partner || !own[index]) continue;
    partner.classList.add("lit");
    draw(side === "source" ? own[index] : partner, side === "source" ? partner : own[index]);
  }
  describe(at, partners.map((link) => other[link[to]]?.textContent).filter(Boolean));
}

function describe({ sentence, side, index }, partners) {
  if (side !== "target") return;
  const word = sentence.targetWords[index];
  word.setAttribute("aria-description", partners.length ? `from: ${partners.join(", ")}` : "");
}

// A curve from a source word to a target word: below both where the sheets lie side by side, from
// one to the other where they lie one above the other.
function draw(from, to) {
  const frame = links.getBoundingClientRect();
  const a = from.getClientRects()[0];
  const b = to.getClientRects()[0];
  if (!a || !b) return;
  const beside = target.getBoundingClientRect().left > source.getBoundingClientRect().left + 10;
  const x1 = a.left + a.width / 2 - frame.left;
  const x2 = b.left + b.width / 2 - frame.left;
  const y1 = a.bottom - frame.top - 2;
  const y2 = (beside ? b.bottom - 2 : b.top + 2) - frame.top;
  const bend = beside ? Math.min(70, 22 + Math.abs(x2 - x1) * 0.05) : (y2 - y1) / 2;
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const end = beside ? y2 + bend : y2 - bend;
  path.setAttribute("d", `M${x1},${y1} C${x1},${y1 + bend} ${x2},${end} ${x2},${y2}`);
  links.append(path);
}

// --- pointing ------------------------------------------------------------------------------------

function wordAt(x, y) {
  // The mirror is behind the text area, whose words are no elements.
  const hit = document.elementsFromPoint(x, y).find((element) => places.has(element));
  return hit ? places.get(hit) : null;
}

function same(a, b) {
  return a?.sentence === b?.sentence && a?.side === b?.side && a?.index === b?.index;
}

function point(at) {
  if (!same(at, current)) light(at);
}

source.addEventListener("pointermove", (event) => {
  if (event.pointerType === "mouse") point(wordAt(event.clientX, event.clientY));
});
source.addEventListener("pointerleave", () => light(null));
target.addEventListener("pointermove", (event) => point(wordAt(event.clientX, event.clientY)));
target.addEventListener("pointerleave", (event) => {
  if (event.pointerType === "mouse") light(null);
});
target.addEventListener("click", (event) => {
  const at = wordAt(event.clientX, event.clientY);
  const element = event.target.closest(".sentence");
  const sentence = at?.sentence ?? sentences.find((each) => each.element === element);
  if (sentence) onChoice(sentence);
  if (at) light(at);
});

// The word that the caret is in, for who types or taps.
document.addEventListener("selectionchange", () => {
  if (document.activeElement !== source || !sentences.length) return;
  const range = sentenceRanges().find(([start, end]) => {
    return start <= source.selectionStart && source.selectionStart <= end;
  });
  if (!range) return light(null);
  const [start, , sentence] = range;
  onChoice(sentence);
  const caret = source.selectionStart - start;
  const words = sentence.hypotheses[0].alignment?.source_words ?? [];
  const index = spansOf(sentence.source, words).findIndex(([from, to]) => {
    return from <= caret && caret <= to;
  });
  light(index < 0 || !sentence.sourceWords.length ? null : { sentence, side: "source", index });
});

function sentenceRanges() {
  const found = spansOf(source.value, sentences.map((each) => each.source));
  return found.map(([start, end], index) => [start, end, sentences[index]]);
}

target.addEventListener("focusin", (event) => {
  const at = places.get(event.target);
  if (!at) return;
  onChoice(at.sentence);
  light(at);
});
target.addEventListener("focusout", () => light(null));
target.addEventListener("keydown", (event) => {
  const words = [...target.querySelectorAll(".word")];
  const index = words.indexOf(document.activeElement);
  if (index < 0) return;
  const to = { ArrowRight: index + 1, ArrowDown: index + 1, ArrowLeft: index - 1,
    ArrowUp: index - 1, Home: 0, End: words.length - 1 }[event.key];
  if (event.key === "Escape") light(null);
  if (to === undefined) return;
  event.preventDefault();
  const next = words[Math.max(0, Math.min(words.length - 1, to))];
  words[index].tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
});

addEventListener("resize", () => light(null));
