// The n-best list of a sentence: choosing one puts it into the translation.

const section = document.getElementById("alternatives");
const list = document.getElementById("hypotheses");
const about = document.getElementById("alternatives-of");

export function hide() {
  section.hidden = true;
}

// The text has changed: until the next translation arrives, the list is the previous one's.
export function age() {
  section.classList.add("stale");
}

// `choose(rank)` is called when another translation is wanted.
export function show(sentence, { several, choose }) {
  section.hidden = sentence.hypotheses.length < 2;
  section.classList.remove("stale");
  about.hidden = !several;
  about.textContent = several ? `of “${shortened(sentence.source)}”` : "";
  const best = sentence.hypotheses[0].log_prob;
  list.replaceChildren(
    ...sentence.hypotheses.map((hypothesis, rank) => {
      const input = Object.assign(document.createElement("input"), {
        type: "radio",
        name: "hypothesis",
        checked: rank === sentence.chosen,
      });
      input.addEventListener("change", () => choose(rank));
      const said = element("span", "said", hypothesis.text);
      const score = element(
        "span",
        "score",
        `score ${signed(hypothesis.score, 3)} · log p ${signed(hypothesis.log_prob, 2)}`,
      );
      // How probable the model finds it, beside the best one.
      const meter = Object.assign(document.createElement("meter"), {
        min: 0,
        max: 1,
        value: Math.min(1, Math.exp(hypothesis.log_prob - best)),
      });
      meter.setAttribute("aria-label", "probability, relative to the first");
      const label = document.createElement("label");
      label.append(input, said, score, meter);
      const item = document.createElement("li");
      item.append(label);
      return item;
    }),
  );
}

const signed = (value, digits) => value.toFixed(digits).replace("-", "−");
const shortened = (text) => (text.length > 80 ? `${text.slice(0, 80)}…` : text);

function element(tag, name, text) {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}
