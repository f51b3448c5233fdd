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
  const hidden = new Set(boxes.filter((box) => !box.checked).map((box) => box.value)); // "A + B" has no box
  for (const element of all("[data-dataset]")) element.classList.toggle("filtered", hidden.has(element.dataset.dataset));
  // A row cannot be removed from a figure: it is faded. Its label begins with the name of the dataset.
  const left = boxes.filter((box) => !box.checked).map((box) => `${box.value}: `);
  for (const band of all(".pair .role-mark [aria-label]"))
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

// The side bar: where the reader is, and folded on narrow screens.
const contents = document.querySelector(".contents");
const entries = all(".contents a").map((link) => ({ link, target: document.getElementById(link.hash.slice(1)) }));
const isWide = matchMedia("(min-width: 75rem)");

function markPlace() {
  const seen = entries.filter(({ target }) => target.checkVisibility());
  const atEnd = scrollY > 0 && scrollY + innerHeight >= document.documentElement.scrollHeight - 2;
  const above = seen.filter(({ target }) => atEnd || target.getBoundingClientRect().top <= innerHeight / 3);
  const here = above.at(-1)?.link;
  for (const { link } of entries) {
    if (link === here) link.setAttribute("aria-current", "location");
    else link.removeAttribute("aria-current");
  }
  contents.querySelector(".here").textContent = here?.textContent ?? "";
}

function foldContents() {
  if (contents) contents.open = isWide.matches;
}

// A link to a folded section, or into one, opens it.
function unfold(hash) {
  for (let fold = document.getElementById(hash.slice(1)); fold; fold = fold.parentElement)
    if (fold.tagName === "DETAILS") fold.open = true;
}

const colours = document.querySelector(".colours");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.style.colorScheme || (prefersDark.matches ? "dark" : "light")) === "dark";

function nameColours() {
  colours.textContent = isDark() ? "Light colours" : "Dark colours";
}

function switchColours() {
  const chosen = isDark() ? "light" : "dark";
  document.documentElement.style.colorScheme = chosen;
  try { localStorage.setItem("evaluator-colours", chosen); } catch { /* no storage, as in a notebook: not remembered */ }
  nameColours();
}

// Every figure is a file to take away, and so are its data. report/figures.py puts both on the page.
function save(name, type, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function svgFile(svg) {
  const copy = svg.cloneNode(true);
  const paper = document.createElementNS(svg.namespaceURI, "rect");
  for (const [name, value] of [["width", "100%"], ["height", "100%"], ["fill", "#ffffff"]]) paper.setAttribute(name, value);
  copy.prepend(paper);
  for (const band of copy.querySelectorAll(".left-out")) band.classList.remove("left-out");
  return new XMLSerializer().serializeToString(copy);
}

function figureName(drawn) {
  const definition = drawn.closest("[data-definitions]")?.dataset.definitions;
  const caption = drawn.closest("figure")?.querySelector("figcaption")?.firstChild?.textContent;
  const number = drawn.parentElement.querySelectorAll(".drawn").length > 1 ? [...drawn.parentElement.querySelectorAll(".drawn")].indexOf(drawn) + 1 : "";
  return [drawn.closest("[id]")?.id, definition, caption, number].filter(Boolean).join(" ");
}

function offer(drawn) {
  const name = figureName(drawn);
  const file = name.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "").slice(0, 100) || "figure";
  const row = document.createElement("div");
  row.className = "take";
  const files = {
    SVG: () => save(`${file}.svg`, "image/svg+xml", svgFile(drawn.querySelector("svg"))),
    CSV: () => save(`${file}.csv`, "text/csv", drawn.dataset.csv),
  };
  for (const [kind, take] of Object.entries(files)) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.setAttribute("aria-label", `${kind} of the figure ${name}`);
    button.addEventListener("click", take);
    row.append(button);
  }
  drawn.append(row);
}

// A print has every section open.
let unfolded = [];
addEventListener("beforeprint", () => {
  unfolded = all("main details:not([open])");
  for (const fold of unfolded) fold.open = true;
});
addEventListener("afterprint", () => {
  for (const fold of unfolded) fold.open = false;
});

for (const input of all("input[name=definition]")) input.addEventListener("change", () => choose(input.value));
for (const box of all("input[name=dataset]")) box.addEventListener("change", showDatasets);
for (const header of all(".metrics thead th")) header.querySelector(".sort")?.addEventListener("click", () => sortBy(header));
filter?.querySelector(".all").addEventListener("click", () => {
  for (const box of all("input[name=dataset]")) box.checked = true;
  showDatasets();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  tip.hidden = true;
  closeFilter();
  if (!isWide.matches) foldContents();
});
document.addEventListener("click", (event) => {
  if (!filter?.contains(event.target)) closeFilter();
  const link = event.target.closest("a[href^='#']");
  if (link) unfold(link.hash);
  if (!isWide.matches && (link || !contents?.contains(event.target))) foldContents();
});
document.addEventListener("pointermove", showTip);
document.addEventListener("pointerdown", showTip);
let marking = false;
document.addEventListener("scroll", () => {
  tip.hidden = true;
  if (!contents || marking) return;
  marking = true;
  requestAnimationFrame(() => { marking = false; markPlace(); });
}, { passive: true });

const controls = document.querySelector(".controls");
if (controls) controls.hidden = false;
const checked = document.querySelector("input[name=definition]:checked");
if (checked) choose(checked.value);
showDatasets(); // a browser may restore the boxes of the page on a reload

for (const drawn of all(".drawn")) offer(drawn);
colours.hidden = false;
colours.addEventListener("click", switchColours);
prefersDark.addEventListener("change", nameColours);
isWide.addEventListener("change", foldContents);
nameColours();
foldContents();
if (contents) new ResizeObserver(markPlace).observe(document.querySelector("main"));
if (location.hash) {
  unfold(location.hash);
  document.getElementById(location.hash.slice(1))?.scrollIntoView();
}
