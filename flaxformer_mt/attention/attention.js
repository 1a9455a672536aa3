
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const stage = document.getElementById("stage");
  const reading = document.getElementById("reading");
  const FAINTEST = 0.005;
  const ROW = 24, WIDEST = 320, NARROWEST = 70, THICKEST = 4.2;
  const kinds = new Map(data.kinds.map((each) => [each.kind, { ...each, weights: decoded(each.weights) }]));
  const picked = { ...data.opens, view: "lines", heads: new Set(data.opens.heads) };
  let at = { row: picked.row, column: null }; // where the pointer or the keys are
  let kept = picked.row; // a row that stays isolated after the pointer has gone

  function decoded(text) {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float64Array.from({ length: bytes.length / 2 }, (_, i) => view.getUint16(2 * i, true) / data.units);
  }

  const kind = () => kinds.get(picked.kind);
  const heads = () => [...picked.heads].filter((head) => head < kind().shape[1]).sort((a, b) => a - b);

  function weight(head, row, column) {
    const { shape: [, count, rows, columns], weights } = kind();
    return weights[((picked.layer * count + head) * rows + row) * columns + column];
  }

  function mean(row, column) {
    const chosen = heads();
    return chosen.reduce((sum, head) => sum + weight(head, row, column), 0) / Math.max(chosen.length, 1);
  }

  const percent = (value) => `${(100 * value).toFixed(1)} %`;

  // Radio buttons, or boxes to tick: what the keyboard needs is there already.
  function choices(id, values, { type = "radio", chosen, pick, face = (value) => value, colour }) {
    const box = document.getElementById(id);
    for (const old of box.querySelectorAll("label, button")) old.remove();
    for (const value of values) {
      const input = make("input", { type, name: id, checked: chosen(value) });
      input.dataset.value = value;
      input.addEventListener("change", () => pick(value, input.checked));
      const span = make("span", { textContent: face(value) });
      const label = make("label");
      label.append(input, span);
      if (colour) label.style.setProperty("--own", colour(value));
      box.append(label);
    }
    return box;
  }

  function make(tag, properties = {}) {
    return Object.assign(document.createElement(tag), properties);
  }

  function writePickers() {
    choices("kinds", [...kinds.keys()], {
      chosen: (name) => name === picked.kind,
      face: (name) => ({ encoder: "encoder", decoder: "decoder", cross: "decoder over source" })[name],
      pick(name) {
        picked.kind = name;
        picked.layer = Math.min(picked.layer, kind().shape[0] - 1);
        forget();
        writePickers();
        document.querySelector(`#kinds [data-value="${name}"]`).focus();
      },
    });
    choices("layers", range(kind().shape[0]), {
      chosen: (layer) => layer === picked.layer,
      face: (layer) => layer + 1,
      pick(layer) {
        picked.layer = layer;
        draw();
      },
    });
    choices("heads", range(kind().shape[1]), {
      type: "checkbox",
      chosen: (head) => picked.heads.has(head),
      face: (head) => head + 1,
      colour: (head) => data.colours[head],
      pick(head, wanted) {
        if (wanted) picked.heads.add(head);
        else picked.heads.delete(head);
        draw();
      },
    }).append(headButton("all", () => true), headButton("none", () => false));
    choices("views", ["lines", "heat map"], {
      chosen: (view) => view === picked.view,
      pick(view) {
        picked.view = view;
        draw();
      },
    });
    draw();
  }

  function headButton(name, wanted) {
    const button = make("button", { type: "button", textContent: name });
    button.addEventListener("click", () => {
      picked.heads = new Set(range(kind().shape[1]).filter(wanted));
      for (const box of document.querySelectorAll("#heads input")) box.checked = wanted();
      draw();
    });
    return button;
  }

  const range = (count) => Array.from({ length: count }, (_, number) => number);

  function forget() {
    at = { row: null, column: null };
    kept = null;
  }

  function draw() {
    stage.replaceChildren(picked.view === "lines" ? lines() : heat());
    if (picked.view === "lines") fit();
    light();
  }

  // On a phone the lines get what the pieces leave, so that both sides are seen.
  function fit() {
    const box = stage.firstElementChild;
    const canvas = box.querySelector("canvas");
    const { paddingLeft, paddingRight } = getComputedStyle(stage);
    const inside = stage.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight);
    const room = Math.floor(inside - (box.offsetWidth - canvas.offsetWidth));
    size(canvas, Math.max(NARROWEST, Math.min(WIDEST, room)), canvas.offsetHeight);
  }

  function pieces(name, labels, side, length, { numbers = false } = {}) {
    const box = make("div", { className: `pieces ${name}` });
    labels.forEach((label, place) => {
      const span = make("span", { textContent: label });
      span.style[side] = `${length}px`;
      if (numbers) span.append(make("i"));
      const here = name === "rows" ? { row: place, column: null } : { row: kept, column: place };
      span.addEventListener("pointerenter", () => move(here));
      span.addEventListener("click", () => {
        if (name === "rows") kept = kept === place ? null : place;
        move(here);
      });
      box.append(span);
    });
    return box;
  }

  const caption = (text, name) => make("div", { className: `caption ${name}`, textContent: text });

  function lines() {
    const { rows, columns, sides } = kind();
    const box = make("div", { className: "lines" });
    const canvas = make("canvas");
    size(canvas, WIDEST, ROW * Math.max(rows.length, columns.length));
    box.append(
      caption(sides[0], "rows-caption"), caption("", ""), caption(sides[1], ""),
      pieces("rows", rows, "height", ROW), canvas,
      pieces("columns", columns, "height", ROW, { numbers: true }),
    );
    box.addEventListener("pointerleave", () => move({ row: kept, column: null }));
    return box;
  }

  function drawLines(canvas) {
    const { rows, columns } = kind();
    const pen = prepared(canvas);
    const width = canvas.offsetWidth;
    const strokes = [];
    const chosen = heads();
    const lane = 0.8 * ROW / chosen.length; // of each head: lines of two lie side by side
    for (const head of chosen) {
      for (let row = 0; row < rows.length; row++) {
        if (at.row !== null && row !== at.row) continue;
        for (let column = 0; column < columns.length; column++) {
          if (at.column !== null && column !== at.column) continue;
          const share = weight(head, row, column);
          if (share >= FAINTEST) strokes.push({ head, row, column, share });
        }
      }
    }
    strokes.sort((a, b) => a.share - b.share); // the strongest on top
    for (const { head, row, column, share } of strokes) {
      const off = (chosen.indexOf(head) - (chosen.length - 1) / 2) * lane;
      const room = lane * width / Math.hypot(width, (column - row) * ROW); // steep lines are closer
      pen.globalAlpha = share;
      pen.strokeStyle = data.colours[head];
      pen.lineWidth = Math.min(THICKEST, room) * (1 + 6 * share) / 7;
      pen.beginPath();
      pen.moveTo(0, (row + 0.5) * ROW + off);
      pen.lineTo(width, (column + 0.5) * ROW + off);
      pen.stroke();
    }
  }

  function heat() {
    const { rows, columns } = kind();
    const cell = columns.length > 40 ? 16 : 22;
    const box = make("div", { className: "heat" });
    const canvas = make("canvas");
    canvas.dataset.cell = cell;
    size(canvas, cell * columns.length, cell * rows.length);
    canvas.addEventListener("pointermove", (event) => {
      const frame = canvas.getBoundingClientRect();
      move({
        row: within(Math.floor((event.clientY - frame.top) / cell), rows.length),
        column: within(Math.floor((event.clientX - frame.left) / cell), columns.length),
      });
    });
    canvas.addEventListener("pointerleave", () => move({ row: kept, column: null }));
    box.append(pieces("columns", columns, "width", cell), pieces("rows", rows, "height", cell), canvas);
    return box;
  }

  // Square roots are drawn: most weights are small, and none should vanish.
  function drawHeat(canvas) {
    const { rows, columns } = kind();
    const cell = Number(canvas.dataset.cell);
    const pen = prepared(canvas);
    pen.fillStyle = getComputedStyle(canvas).color;
    for (let row = 0; row < rows.length; row++) {
      for (let column = 0; column < columns.length; column++) {
        pen.globalAlpha = Math.sqrt(mean(row, column));
        pen.fillRect(column * cell + 1, row * cell + 1, cell - 2, cell - 2);
      }
    }
  }

  function size(canvas, width, height) {
    const sharp = Math.max(1, Math.round(devicePixelRatio));
    Object.assign(canvas, { width: width * sharp, height: height * sharp });
    Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
    canvas.getContext("2d").scale(sharp, sharp);
  }

  function prepared(canvas) {
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    return pen;
  }

  const within = (place, count) => Math.max(0, Math.min(count - 1, place));

  function move(to) {
    at = to;
    light();
  }

  function light() {
    const [rows, columns] = [".rows", ".columns"].map((name) => [...stage.querySelector(name).children]);
    rows.forEach((span, row) => {
      span.classList.toggle("at", row === at.row);
      span.classList.toggle("off", picked.view === "lines" && at.row !== null && row !== at.row);
    });
    columns.forEach((span, column) => {
      span.classList.toggle("at", column === at.column);
      const number = span.querySelector("i");
      if (number) number.textContent = at.row === null ? "" : percent(mean(at.row, column));
    });
    const canvas = stage.querySelector("canvas");
    if (picked.view === "lines") drawLines(canvas);
    else drawHeat(canvas);
    tell();
  }

  function tell() {
    const { rows, columns, name, shape } = kind();
    const chosen = heads();
    const strong = (text) => make("b", { textContent: text });
    if (!chosen.length) reading.textContent = "No head selected.";
    else if (at.row === null) {
      const word = chosen.length > 1 ? "heads" : "head";
      reading.textContent = `${name}, layer ${picked.layer + 1} of ${shape[0]}, ${word} ` +
        `${chosen.map((head) => head + 1).join(", ")}. Point at a piece, tap it, or use the arrow keys.`;
    } else if (at.column !== null) {
      const each = chosen.map((head) => `head ${head + 1}: ${percent(weight(head, at.row, at.column))}`);
      const also = chosen.length > 1 ? ` (mean; ${each.join(", ")})` : "";
      reading.replaceChildren(strong(rows[at.row]), " gives ", strong(columns[at.column]),
        ` ${percent(mean(at.row, at.column))} of its attention${also}`);
    } else {
      const best = range(columns.length).sort((a, b) => mean(at.row, b) - mean(at.row, a)).slice(0, 5);
      const listed = best.map((column) => `${columns[column]} ${percent(mean(at.row, column))}`);
      reading.replaceChildren(strong(rows[at.row]), ` looks most at: ${listed.join(" · ")}`);
    }
  }

  stage.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") forget();
    else if (!step) return;
    else {
      const { rows, columns } = kind();
      const [down, right] = step;
      const row = at.row === null ? 0 : within(at.row + down, rows.length);
      const before = at.column === null ? (right < 0 ? columns.length : -1) : at.column;
      at = { row, column: right ? within(before + right, columns.length) : at.column };
      kept = row;
    }
    event.preventDefault();
    light();
  });
  const form = document.getElementById("pickers");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", light);
  addEventListener("resize", draw);
  writePickers();
})();
