"use strict";
// The page works without this script, which hides and sorts what is in it and shows tooltips.

const all = (selector, within = document) => [...within.querySelectorAll(selector)];

function choose(definition) {
  for (const element of all("[data-definitions]"))
    element.classList.toggle("not-chosen", !element.dataset.definitions.split(" ").includes(definition));
}

const filter = document.querySelector(".filter");

function showDatasets() {
  if (!filter) return;
  const boxes = all("input[name=dataset]");
  const shown = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  filter.querySelector("output").value = shown.size === boxes.length ? "all" : `${shown.size} of ${boxes.length}`;
  document.body.classList.toggle("some-datasets", shown.size < boxes.length); // means remain over all datasets
  for (const element of all("[data-dataset]")) element.classList.toggle("filtered", !shown.has(element.dataset.dataset));
  // A row cannot be removed from a figure: it is faded. Its label begins with the name of the dataset.
  const left = boxes.filter((box) => !box.checked).map((box) => `${box.value}: `);
  for (const band of all(".interval-figure .role-mark [aria-label]"))
    band.classList.toggle("left-out", left.some((name) => band.getAttribute("aria-label").startsWith(name)));
}

function closeFilter() {
  if (filter) filter.open = false;
}

function sortBy(header) {
  const body = header.closest("table").tBodies[0];
  const column = header.cellIndex;
  const descending = header.ariaSort ? header.ariaSort === "ascending" : column > 0;
  for (const other of header.parentElement.cells) other.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const value = (row) => row.cells[column].dataset.value;
  const isDefined = (row) => value(row) !== undefined && value(row) !== "nan";
  const rows = [...body.rows].filter(isDefined).sort((a, b) => compare(value(a), value(b)));
  // Missing and undefined values are last in both directions.
  body.append(...(descending ? rows.reverse() : rows), ...[...body.rows].filter((row) => !isDefined(row)));
}

function compare(a, b) {
  return Number.isNaN(Number(a)) || Number.isNaN(Number(b)) ? a.localeCompare(b) : Number(a) - Number(b);
}

const tip = document.querySelector(".tip");

function showTip(event) {
  const target = event.target.closest("[data-tip], .role-mark [aria-label]");
  tip.hidden = !target;
  if (!target) return;
  tip.textContent = target.dataset.tip ?? target.getAttribute("aria-label");
  const { width, height } = tip.getBoundingClientRect();
  const page = document.documentElement;
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 12, page.clientWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + height + 24 > page.clientHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
}

for (const input of all("input[name=definition]")) input.addEventListener("change", () => choose(input.value));
for (const box of all("input[name=dataset]")) box.addEventListener("change", showDatasets);
for (const header of all(".metrics thead th")) header.querySelector(".sort")?.addEventListener("click", () => sortBy(header));
filter?.querySelector(".all").addEventListener("click", () => {
  for (const box of all("input[name=dataset]")) box.checked = true;
  showDatasets();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") { tip.hidden = true; closeFilter(); }
});
document.addEventListener("click", (event) => { if (!filter?.contains(event.target)) closeFilter(); });
document.addEventListener("pointermove", showTip);
document.addEventListener("pointerdown", showTip);
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

const controls = document.querySelector(".controls");
if (controls) controls.hidden = false;
const checked = document.querySelector("input[name=definition]:checked");
if (checked) choose(checked.value);
showDatasets(); // a browser may restore the boxes of the page on a reload
