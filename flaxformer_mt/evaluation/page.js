
"use strict";
(() => {
  const list = document.getElementById("examples");
  const order = document.getElementById("order");
  const filter = document.getElementById("filter");
  const count = document.getElementById("count");
  const items = [...list.children];
  const texts = new Map(
    items.map((item) => [item, item.querySelector("dl").textContent.toLowerCase()]));

  function show() {
    const [key, direction] = order.value.split("-");
    const sign = direction === "ascending" ? 1 : -1;
    const line = (item) => Number(item.dataset.line);
    const by = (a, b) =>
      sign * (Number(a.dataset[key]) - Number(b.dataset[key])) || line(a) - line(b);
    const wanted = filter.value.trim().toLowerCase();
    let shown = 0;
    for (const item of items.sort(by)) {
      item.hidden = !texts.get(item).includes(wanted);
      shown += item.hidden ? 0 : 1;
      list.append(item);
    }
    count.textContent = `${shown} of ${items.length} shown`;
  }

  const controls = document.getElementById("controls");
  controls.hidden = false;
  controls.addEventListener("submit", (event) => event.preventDefault());
  order.addEventListener("change", show);
  filter.addEventListener("input", show);
  show();
})();
