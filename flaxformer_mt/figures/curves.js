
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const reading = document.getElementById("reading");
  const WIDTH = 460, HEIGHT = 250, LEFT = 52, BOTTOM = 34, TOP = 8, RIGHT = 10;
  const shown = { axis: data.axis, runs: new Set(data.runs.keys()) };

  function make(tag, properties = {}) {
    return Object.assign(document.createElement(tag), properties);
  }

  function drawn(tag, attributes, text = "") {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.textContent = text;
    return element;
  }

  function choice(box, type, name, face, checked, pick, colour) {
    const input = make("input", { type, name, checked });
    input.addEventListener("change", () => pick(input.checked));
    const label = make("label");
    if (colour) label.style.setProperty("--own", colour);
    label.append(input, make("span", { textContent: face }));
    document.getElementById(box).append(label);
  }

  const number = (value) => {
    const size = Math.abs(value);
    if (size >= 1e9) return `${(value / 1e9).toPrecision(4) / 1} G`;
    if (size >= 1e6) return `${(value / 1e6).toPrecision(4) / 1} M`;
    if (size >= 1e4) return `${(value / 1e3).toPrecision(4) / 1} k`;
    return `${Number(value.toPrecision(4))}`;
  };

  // 1, 2 or 5 times a power of ten apart; on a logarithmic scale those numbers themselves.
  function ticks(low, high, logarithmic) {
    const found = [];
    if (logarithmic) {
      const powers = Math.ceil(Math.log10(high)) - Math.floor(Math.log10(low));
      for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
        for (const digit of powers > 2 ? [1] : [1, 2, 5]) found.push(digit * 10 ** power);
      }
    } else {
      const rough = (high - low) / 6 || 1;
      const power = 10 ** Math.floor(Math.log10(rough));
      const step = power * [1, 2, 5, 10].find((each) => each * power >= rough);
      for (let at = Math.ceil(low / step); at * step <= high * (1 + 1e-9); at++) found.push(at * step);
    }
    return found.filter((value) => value >= low && value <= high * (1 + 1e-9));
  }

  function points(panel) {
    const found = [];
    data.runs.forEach((run, place) => {
      if (!shown.runs.has(place)) return;
      for (const curve of run.curves.filter((each) => each.panel === panel)) {
        const at = curve.at[shown.axis];
        found.push({
          run: place,
          kind: curve.kind,
          points: curve.values.map((value, i) => (value === null || at[i] === null ? null : [at[i], value])),
        });
      }
    });
    return found;
  }

  function draw() {
    document.getElementById("panels").replaceChildren(...data.panels.map(panelOf));
  }

  function panelOf(panel, place) {
    const box = make("section", { className: "panel" });
    box.append(make("h2", { textContent: panel.title }));
    const svg = drawn("svg", {
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "application",
      "aria-label": `${panel.title} against ${data.axes[shown.axis]}. Arrow keys move along the curves.`,
    });
    box.append(svg);
    const curves = points(place);
    const all = curves.flatMap((curve) => curve.points.filter(Boolean));
    if (!all.length) {
      svg.append(drawn("text", { x: LEFT, y: HEIGHT / 2 }, "nothing to show"));
      return box;
    }
    const x = scale(0, Math.max(...all.map((each) => each[0])), LEFT, WIDTH - RIGHT, false);
    const values = all.map((each) => each[1]);
    const y = scale(Math.min(...values), Math.max(...values), HEIGHT - BOTTOM, TOP, panel.logarithmic);
    for (const value of ticks(y.low, y.high, panel.logarithmic)) {
      svg.append(drawn("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }));
      svg.append(drawn("text", { x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, number(value)));
    }
    for (const value of ticks(0, x.high, false)) {
      svg.append(drawn("text", { x: x(value), y: HEIGHT - BOTTOM + 16, "text-anchor": "middle" }, number(value)));
    }
    const name = data.axes[shown.axis].split(" (")[0];
    svg.append(drawn("text", { x: (LEFT + WIDTH) / 2, y: HEIGHT - 2, "text-anchor": "middle" }, name));
    const marks = [];
    for (const curve of curves) {
      const colour = data.colours[curve.run];
      let open = false;
      const path = curve.points.map((each) => {
        // A point without neighbours is a dot: a line of no length with round ends.
        const command = each && `${open ? "L" : "M"}${x(each[0]).toFixed(2)} ${y(each[1]).toFixed(2)}${open ? "" : "h0"}`;
        open = each !== null;
        return command ?? "";
      });
      svg.append(drawn("path", { class: `curve ${curve.kind}`, d: path.join(""), stroke: colour }));
      for (const each of curve.points.filter(Boolean)) {
        if (curve.kind === "valid") svg.append(drawn("circle", { cx: x(each[0]), cy: y(each[1]), r: 2.6, fill: colour }));
        marks.push({ ...curve, at: each, x: x(each[0]), y: y(each[1]) });
      }
    }
    marks.sort((a, b) => a.x - b.x || a.run - b.run);
    follow(svg, panel, marks);
    return box;
  }

  function scale(low, high, from, to, logarithmic) {
    if (low === high) [low, high] = logarithmic ? [low / 2, high * 2] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
    const by = logarithmic ? Math.log : (value) => value;
    const place = (value) => from + ((by(value) - by(low)) / (by(high) - by(low))) * (to - from);
    return Object.assign(place, { low, high });
  }

  function follow(svg, panel, marks) {
    const ring = drawn("circle", { r: 5, fill: "none", class: "at", visibility: "hidden" });
    svg.append(ring);
    let current = null;
    function tell(place) {
      current = place;
      const mark = marks[place];
      ring.setAttribute("cx", mark.x);
      ring.setAttribute("cy", mark.y);
      ring.setAttribute("visibility", "visible");
      const axis = data.axes[shown.axis].split(" (")[0];
      reading.textContent = `${data.runs[mark.run].name}: ${panel.name.replaceAll("_", " ")} ` +
        `(${mark.kind}) ${number(mark.at[1])} at ${number(mark.at[0])} ${axis}`;
    }
    svg.addEventListener("pointermove", (event) => {
      const frame = svg.getBoundingClientRect();
      const [px, py] = [event.clientX - frame.left, event.clientY - frame.top].map((each) => (each * WIDTH) / frame.width);
      const far = (mark) => Math.hypot(mark.x - px, mark.y - py);
      tell(marks.reduce((best, mark, place) => (far(mark) < far(marks[best]) ? place : best), 0));
    });
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      event.preventDefault();
      tell(current === null ? 0 : Math.max(0, Math.min(marks.length - 1, current + step)));
    });
  }

  for (const [axis, name] of Object.entries(data.axes)) {
    choice("axes", "radio", "axis", name, axis === shown.axis, () => {
      shown.axis = axis;
      draw();
    });
  }
  data.runs.forEach((run, place) => choice("runs", "checkbox", "runs", run.label, true, (wanted) => {
    if (wanted) shown.runs.add(place);
    else shown.runs.delete(place);
    draw();
  }, data.colours[place]));
  const form = document.getElementById("pickers");
  form.addEventListener("submit", (event) => event.preventDefault());
  form.hidden = false;
  draw();
})();
