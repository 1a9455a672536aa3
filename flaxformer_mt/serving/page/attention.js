// The attention of one sentence: kind, layer and head are picked, one map is shown large.

import { post } from "./api.js";
import { drawHeat, mean } from "./heat.js";

const section = document.getElementById("attention");
const map = document.getElementById("map");
const reading = document.getElementById("reading");
const heads = document.getElementById("heads");
const KINDS = {
  cross: "Cross: the decoder, producing a piece of the translation, looks at the source",
  encoder: "Encoder: each piece of the source looks at the whole source",
  decoder: "Decoder: each piece of the translation looks at those before it",
};

const picked = { kind: "cross", layer: null, head: "mean" };
let layersOf = {};
let pair = null; // { text, translation }
let answer = null;
let asking = null;
let aged = false; // whether the text has changed since
let cursor = null; // { row, column }
const known = new Map(); // answers for this pair

export function setUp(model) {
  layersOf = {
    cross: model.decoder_layers,
    encoder: model.encoder_layers,
    decoder: model.decoder_layers,
  };
  choices(document.getElementById("kinds"), "kind", Object.keys(KINDS), picked.kind, (kind) => {
    picked.kind = kind;
    picked.layer = Math.min(picked.layer, layersOf[kind] - 1);
    writeLayers();
    load();
  });
  picked.layer = layersOf.cross - 1;
  writeLayers();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
}

export function hide() {
  section.hidden = true;
  asking?.abort(); // what is on its way is of a text that is gone
  asking = pair = answer = null;
}

// The text has changed: until the next translation arrives, the picture is the previous one's.
export function age() {
  aged = true;
  section.classList.add("stale");
}

export function show(text, translation) {
  aged = false;
  if (pair && pair.text === text && pair.translation === translation) {
    section.classList.remove("stale");
    return;
  }
  pair = { text, translation };
  known.clear();
  load();
}

export const redraw = () => answer && draw();

function writeLayers() {
  const numbers = Array.from({ length: layersOf[picked.kind] }, (_, layer) => layer);
  const box = document.getElementById("layers");
  choices(box, "layer", numbers, picked.layer, (layer) => {
    picked.layer = layer;
    load();
  });
}

function choices(box, name, values, chosen, pick) {
  for (const old of box.querySelectorAll("label")) old.remove();
  for (const value of values) {
    const input = Object.assign(document.createElement("input"), {
      type: "radio",
      name,
      checked: value === chosen,
    });
    input.addEventListener("change", () => pick(value));
    const label = document.createElement("label");
    const face = document.createElement("span");
    face.textContent = typeof value === "number" ? value + 1 : KINDS[value].split(":")[0];
    label.append(input, face);
    box.append(label);
  }
}

async function load() {
  if (pair === null) return;
  asking?.abort();
  const mine = (asking = new AbortController());
  const key = `${picked.kind} ${picked.layer}`;
  try {
    let found = known.get(key);
    if (!found) {
      const { kind, layer } = picked;
      found = await post("attention", { ...pair, kind, layer }, mine.signal);
    }
    if (asking !== mine) return;
    known.set(key, found);
    answer = found;
    cursor = null;
    section.hidden = false;
    section.classList.toggle("stale", aged); // another layer of an old translation is old, too
    draw();
  } catch (error) {
    if (asking !== mine || error.name === "AbortError") return;
    answer = null;
    map.onkeydown = null;
    map.replaceChildren();
    for (const old of heads.querySelectorAll("label")) old.remove();
    reading.textContent = error.message;
    section.classList.toggle("stale", aged);
    section.hidden = false; // also the first time: whoever asks for another layer may get it
  }
}

function draw() {
  if (answer === null) return;
  document.getElementById("kind-meaning").textContent = KINDS[answer.kind].split(": ")[1];
  const all = [["mean", mean(answer.weights)], ...answer.weights.entries()];
  if (!all.some(([name]) => name === picked.head)) picked.head = "mean";
  drawHeads(all);
  drawMap(all.find(([name]) => name === picked.head)[1]);
}

function drawHeads(all) {
  // Kept when only their pictures change, so that the keyboard's focus stays.
  const labels = [...heads.querySelectorAll("label")];
  if (labels.length !== all.length) {
    for (const old of labels) old.remove();
    for (const [name] of all) {
      const input = Object.assign(document.createElement("input"), { type: "radio", name: "head" });
      input.addEventListener("change", () => {
        picked.head = name;
        draw();
      });
      const label = document.createElement("label");
      label.append(input, document.createElement("canvas"), name === "mean" ? "mean" : name + 1);
      heads.append(label);
    }
  }
  [...heads.querySelectorAll("label")].forEach((label, index) => {
    const [name, weights] = all[index];
    label.querySelector("input").checked = name === picked.head;
    drawHeat(label.querySelector("canvas"), weights, { cell: 4 });
  });
}

function drawMap(weights) {
  const { rows, columns } = answer;
  const widest = Math.max(...rows.map((piece) => shown(piece).length)) * 8 + 24;
  const room = (map.parentElement.clientWidth - widest) / columns.length;
  const cell = Math.floor(Math.max(18, Math.min(36, room)));
  const canvas = document.createElement("canvas");
  const top = labels("columns", columns, "width", cell);
  const side = labels("rows", rows, "height", cell);
  const corner = document.createElement("div");
  map.replaceChildren(corner, top, side, canvas);
  canvas.style.width = `${columns.length * cell}px`;
  canvas.style.height = `${rows.length * cell}px`;
  drawHeat(canvas, weights, { cell, gap: 1 });
  canvas.addEventListener("pointermove", (event) => {
    const box = canvas.getBoundingClientRect();
    move(
      Math.floor((event.clientY - box.top) / cell),
      Math.floor((event.clientX - box.left) / cell),
      weights,
    );
  });
  map.onkeydown = (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!(event.key in step)) return;
    event.preventDefault();
    const [down, right] = step[event.key];
    if (cursor) move(cursor.row + down, cursor.column + right, weights);
    else move(0, 0, weights);
  };
  if (cursor) move(cursor.row, cursor.column, weights);
  else summarise();
}

function labels(name, pieces, side, cell) {
  const box = document.createElement("div");
  box.className = name;
  for (const piece of pieces) {
    const label = document.createElement("span");
    label.textContent = shown(piece);
    label.style[side] = `${cell}px`;
    box.append(label);
  }
  return box;
}

const MARKS = { "</s>": "‹end›", "<s>": "‹begin›" };

// SentencePiece marks the beginning of a word; marking those that go on with one is easier to read.
function shown(piece) {
  if (piece in MARKS) return MARKS[piece];
  if (piece.startsWith("▁")) return piece.slice(1).replaceAll("▁", " ") || "▁";
  return /\p{L}|\p{N}/u.test(piece) ? `-${piece}` : piece;
}

function move(row, column, weights) {
  row = Math.max(0, Math.min(answer.rows.length - 1, row));
  column = Math.max(0, Math.min(answer.columns.length - 1, column));
  cursor = { row, column };
  const [top, side] = [map.querySelector(".columns"), map.querySelector(".rows")];
  [...top.children].forEach((each, index) => each.classList.toggle("at", index === column));
  [...side.children].forEach((each, index) => each.classList.toggle("at", index === row));
  const share = `${(weights[row][column] * 100).toFixed(1)} %`;
  const strong = (text) => Object.assign(document.createElement("b"), { textContent: text });
  reading.replaceChildren(
    strong(shown(answer.rows[row])),
    " gives ",
    strong(shown(answer.columns[column])),
    ` ${share} of its attention`,
  );
}

function summarise() {
  const name = picked.head === "mean" ? "the mean of all heads" : `head ${picked.head + 1}`;
  const kind = KINDS[picked.kind].split(":")[0];
  reading.textContent = `${kind} attention, layer ${picked.layer + 1}, ${name}.`;
}
