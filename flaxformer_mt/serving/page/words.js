// Words of a text as elements, so that they can light up.

// Where each of `words` stands in `text`, one after another: [start, end]. The server has split
// the text at white space; looking for them leaves open what exactly that is.
export function spansOf(text, words) {
  const spans = [];
  let from = 0;
  for (const word of words) {
    const start = text.indexOf(word, from);
    if (start < 0) return [];
    from = start + word.length;
    spans.push([start, from]);
  }
  return spans;
}

// Appends `text` to `parent` with an element for each span; returns the elements.
export function writeWords(parent, text, spans, tag = "span") {
  let from = 0;
  const elements = spans.map(([start, end]) => {
    parent.append(text.slice(from, start));
    const element = document.createElement(tag);
    element.className = "word";
    element.textContent = text.slice(start, end);
    parent.append(element);
    from = end;
    return element;
  });
  parent.append(text.slice(from));
  return elements;
}

// The text between a text's sentences: one string more than there are sentences, or null when
// they are not in it (any more).
export function gaps(text, sentences) {
  const found = spansOf(text, sentences);
  if (found.length !== sentences.length) return null;
  const ends = [0, ...found.map(([, end]) => end)];
  const starts = [...found.map(([start]) => start), text.length];
  return ends.map((end, index) => text.slice(end, starts[index]));
}
