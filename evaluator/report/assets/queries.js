// The table of queries: only rows in view are in the page, so that sorting and scrolling are as fast for ten thousand
// queries as for ten. This script runs after page.js, in the same scope. report/queries.py describes the data.

const queryData = JSON.parse(document.querySelector("#query-data").textContent);
const search = document.querySelector(".query-search");
const windowed = document.querySelector(".window");
const queryRows = windowed.querySelector("tbody");
const detail = document.querySelector(".detail");
const ROW_HEIGHT = 48; // of .queries .row
const EXTRA_ROWS = 8; // drawn above and below those in view
const columns = all(".queries thead th").map((header) => header.dataset);

let shown = []; // indices of the queries that pass the filters, in order
let sorting = { column: columns[0].column, descending: false };
let chosen = -1; // index of the query in the detail

const named = (name) => search.elements[name];
const dataset = () => queryData[named("dataset").value];
const run = () => dataset().runs[named("run").value];
const columnOf = (name) => run()[name] ?? dataset()[name];

function options(select, names, first = []) {
  select.replaceChildren(...[...first, ...names.entries()].map(([value, name]) => new Option(name, value)));
}

function chooseDataset() {
  options(named("run"), dataset().runs.map((each) => each.name));
  for (const name of ["gold", "pred"]) options(named(name), dataset().labels, [["", "all"]]);
  dataset().lowerCase ??= dataset().text.map((text) => text.toLowerCase());
  pick();
}

// Filter and sort, then begin at the top.
function pick() {
  const { lowerCase } = dataset();
  const [gold, pred, correct] = [columnOf("gold"), columnOf("pred"), named("correct").value];
  const [wantedGold, wantedPred, text] = [named("gold").value, named("pred").value, named("text").value.trim().toLowerCase()];
  shown = [];
  for (let index = 0; index < gold.length; index++) {
    if (wantedGold !== "" && gold[index] !== Number(wantedGold)) continue;
    if (wantedPred !== "" && pred[index] !== Number(wantedPred)) continue;
    if (correct && (pred[index] === null || (pred[index] === gold[index]) !== (correct === "right"))) continue;
    if (text && !lowerCase[index].includes(text)) continue;
    shown.push(index);
  }
  order();
}

function order() {
  const values = sorting.column === "text" ? dataset().lowerCase : columnOf(sorting.column);
  const sign = sorting.descending ? -1 : 1;
  shown.sort((a, b) => {
    const [x, y] = [values[a], values[b]];
    // Missing values are last in either direction.
    if (x === null || y === null) return (x === null) - (y === null) || a - b;
    return x < y ? -sign : x > y ? sign : a - b;
  });
  for (const header of all(".queries th")) {
    header.removeAttribute("aria-sort");
    if (header.dataset.column === sorting.column) header.ariaSort = sorting.descending ? "descending" : "ascending";
  }
  const total = columnOf("gold").length;
  named("count").value = `${shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} queries`;
  windowed.querySelector("table").ariaRowCount = shown.length + 1;
  windowed.scrollTop = 0;
  draw();
}

function draw() {
  const seen = Math.ceil(windowed.clientHeight / ROW_HEIGHT);
  const from = Math.max(0, Math.floor(windowed.scrollTop / ROW_HEIGHT) - EXTRA_ROWS);
  const to = Math.min(shown.length, from + seen + 2 * EXTRA_ROWS);
  const rows = [spacer(from)];
  for (let index = from; index < to; index++) rows.push(queryRow(shown[index], index));
  queryRows.replaceChildren(...rows, spacer(shown.length - to));
}

function spacer(rows) {
  const row = document.createElement("tr");
  row.className = "spacer";
  row.ariaHidden = "true";
  row.insertCell().colSpan = columns.length;
  row.style.height = `${rows * ROW_HEIGHT}px`;
  return row;
}

const label = (value) => (value === null ? "–" : dataset().labels[value]);
const decimals = (value, digits) => value?.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) ?? "–";

function queryRow(query, index) {
  const row = document.createElement("tr");
  const [gold, pred] = ["gold", "pred"].map((name) => columnOf(name)[query]);
  row.className = pred !== null && pred !== gold ? "row wrong" : "row";
  row.tabIndex = 0;
  row.dataset.query = query;
  row.ariaRowIndex = index + 2;
  row.ariaSelected = String(query === chosen);
  for (const { column, digits } of columns.slice(0, -1)) {
    const cell = row.insertCell();
    const value = columnOf(column)[query];
    cell.textContent = digits === undefined ? label(value) : decimals(value, Number(digits));
    cell.className = digits === undefined ? column : "number";
  }
  const text = document.createElement("div");
  text.className = "text";
  text.textContent = dataset().text[query];
  row.insertCell().append(text);
  return row;
}

// The probability of each label if the run has them, then the whole prompt, or what the page has of it.
function whole(query) {
  const { id, labels, text, prompts } = dataset();
  const { probabilities, asked } = run();
  const each = probabilities?.[query]?.map((value, index) => `${labels[index]} ${decimals(value, 3)}`).join(", ");
  return [`Query ${id[query]}`, each, prompts?.[asked]?.[query] ?? text[query]].filter(Boolean).join("\n");
}

function read(event) {
  if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  const row = event.target.closest(".row");
  if (!row) return;
  event.preventDefault();
  chosen = Number(row.dataset.query);
  for (const other of queryRows.querySelectorAll(".row")) other.ariaSelected = String(other === row);
  detail.textContent = whole(chosen);
}

function sortQueries(event) {
  const column = event.target.closest("th")?.dataset.column;
  if (!column) return;
  sorting = { column, descending: sorting.column === column && !sorting.descending };
  order();
}

let drawing = false;
windowed.addEventListener("scroll", () => {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => { drawing = false; draw(); });
}, { passive: true });
windowed.querySelector("thead").addEventListener("click", sortQueries);
queryRows.addEventListener("click", read);
queryRows.addEventListener("keydown", read);
search.addEventListener("change", (event) => {
  if (event.target === named("dataset")) {
    chosen = -1;
    detail.textContent = "";
    chooseDataset();
  } else pick();
});
named("text").addEventListener("input", pick);
search.addEventListener("submit", (event) => event.preventDefault());
for (const element of [search, windowed, detail]) element.hidden = false;
options(named("dataset"), queryData.map((each) => each.name));
if (queryData.length) chooseDataset();
addEventListener("resize", draw);
windowed.closest("details")?.addEventListener("toggle", draw); // nothing is in view while it is closed
