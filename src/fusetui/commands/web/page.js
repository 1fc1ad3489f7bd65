"use strict";
// Tables are sorted by the exact figures that their cells hold.
const key = (cell) => {
  const exact = cell.querySelector("data");
  return exact ? Number(exact.value) : cell.textContent.toLowerCase();
};
for (const button of document.querySelectorAll("thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), body = button.closest("table").tBodies[0];
    const before = head.getAttribute("aria-sort"), column = head.cellIndex;
    const isFigure = head.className === "figure";
    const down = before ? before === "ascending" : isFigure;
    for (const one of head.parentNode.cells) one.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const order = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1);
    const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
    rows.sort(([a], [b]) => (a === "") - (b === "") || order(a, b));
    body.append(...rows.map(([, row]) => row));
  });
}
// A timeline shows a part of its time: what changes is the view box of the drawing.
const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]];
const told = (ns, span) => {
  const [scale, unit] = UNITS.find(([size]) => Math.max(span, 1) >= size);
  return (ns / scale).toFixed(Math.max(0, Math.ceil(2 - Math.log10(span / scale)))) + " " + unit;
};
for (const figure of document.querySelectorAll("figure")) {
  const svg = figure.querySelector("svg"), view = svg.parentNode, ruler = figure.querySelector(".ruler");
  const said = figure.querySelector("output"), { width: whole, height } = svg.viewBox.baseVal;
  const total = Number(figure.dataset.ns), slices = [...svg.querySelectorAll("rect")];
  const least = Math.max(whole / total, whole / 2000);
  let begin = 0, span = whole, from = null;
  const show = (left, wide) => {
    span = Math.min(whole, Math.max(least, wide));
    begin = Math.min(whole - span, Math.max(0, left));
    svg.setAttribute("viewBox", `${begin} 0 ${span} ${height}`);
    const ns = (share) => ((begin + share * span) / whole) * total;
    [...ruler.children].forEach((one, n, all) => {
      one.textContent = told(ns(n / (all.length - 1)), (span / whole) * total);
    });
    for (const old of view.querySelectorAll("span.name")) old.remove();
    const scale = view.clientWidth / span;
    for (const slice of slices) {
      const [x, y, wide] = ["x", "y", "width"].map((name) => slice[name].baseVal.value);
      const left = Math.max(0, (x - begin) * scale);
      const right = Math.min(view.clientWidth, (x + wide - begin) * scale);
      if (right - left < 50) continue;
      const name = document.createElement("span");
      name.className = `name ${slice.className.baseVal}`;
      name.setAttribute("aria-hidden", "true");
      name.textContent = slice.textContent.split("\n")[0];
      Object.assign(name.style, { left: left + "px", top: y + "px", width: right - left + "px" });
      view.append(name);
    }
  };
  const zoom = (factor, at = 0.5) => show(begin + at * span * (1 - factor), span * factor);
  const moves = {
    in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, whole),
    left: () => show(begin - span / 4, span), right: () => show(begin + span / 4, span),
  };
  const keys = { w: "in", "+": "in", s: "out", "-": "out", a: "left", d: "right", 0: "all" };
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  };
  for (const button of figure.querySelectorAll("button")) {
    button.addEventListener("click", moves[button.value]);
  }
  figure.addEventListener("keydown", (event) => {
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) moves[keys[event.key]]();
  });
  svg.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event));
  }, { passive: false });
  svg.addEventListener("pointerdown", (event) => { from = at(event); });
  svg.addEventListener("pointerup", (event) => {
    const [left, right] = [from ?? 0, at(event)].sort((a, b) => a - b);
    if (from !== null && right - left > 0.01) show(begin + left * span, (right - left) * span);
    from = null;
  });
  svg.addEventListener("dblclick", moves.all);
  svg.addEventListener("pointerover", (event) => {
    if (event.target.tagName === "rect") said.textContent = event.target.textContent;
  });
  addEventListener("resize", () => show(begin, span));
  figure.querySelector("[hidden]").hidden = false;
  show(0, whole);
}
