// The table of queries: only rows in view are in the page, so that sorting and scrolling are as fast for ten thousand
// queries as for ten. Datasets are unpacked when they are first chosen. This script runs after page.js, in the same
// scope; report/query_rows.py makes the data.

const packedDatasets = JSON.parse(document.querySelector("#query-data").textContent);
const search = document.querySelector(".query-search");
const windowed = document.querySelector(".window");
const queryRows = windowed.querySelector("tbody");
const detail = document.querySelector(".detail");
const ROW_HEIGHT = 48; // of .queries .row
const EXTRA_ROWS = 8; // drawn above and below those in view
const columns = all(".queries thead th").map((header) => header.dataset);

let dataset; // the chosen one, unpacked
let shown = []; // indices of the queries that pass the filters, in order
let sorting = { column: columns[0].column, descending: false };
let chosen = -1; // index of the query in the detail

const named = (name) => search.elements[name];
const run = () => dataset.runs[named("run").value];
const method = () => run().methods[named("method").value];
const labelsOf = (query) => dataset.spaces[dataset.space[query]];
const textOf = (query) => dataset.pieces[dataset.text[query]].trim();
const columnOf = (name) => (name === "text" ? lowerCase() : method()[name] ?? dataset[name]);
const lowerCase = () => (dataset.lowerCase ??= dataset.id.map((_, query) => textOf(query).toLowerCase()));

function isRight(query, answers = method()) {
  const pred = answers.pred[query];
  return pred === null ? null : answers.right?.[query] ?? pred === dataset.gold[query];
}

function options(select, names, first = []) {
  const before = select.selectedOptions[0]?.text;
  select.replaceChildren(...[...first, ...names.entries()].map(([value, name]) => new Option(name, value)));
  const same = [...select.options].find((option) => option.text === before);
  if (same) select.value = same.value;
}

async function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.data), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).json();
}

async function chooseDataset() {
  const packed = packedDatasets[named("dataset").value];
  dataset = await (packed.unpacked ??= unpack(packed));
  chosen = -1;
  detail.replaceChildren();
  options(named("run"), dataset.runs.map((each) => each.name));
  const isShared = dataset.spaces.length === 1;
  for (const name of ["gold", "pred"]) {
    options(named(name), isShared ? dataset.spaces[0] : [], [["", "all"]]);
    named(name).parentElement.hidden = !isShared; // choices that differ from query to query cannot be filtered by
  }
  chooseRun();
}

function chooseRun() {
  options(named("method"), run().methods.map((each) => each.name));
  pick();
}

// Filter and sort, then begin at the top.
function pick() {
  const { gold } = dataset;
  const { pred } = method();
  const [wantedGold, wantedPred, correct] = [named("gold").value, named("pred").value, named("correct").value];
  const text = named("text").value.trim().toLowerCase();
  shown = [];
  for (let query = 0; query < gold.length; query++) {
    if (pred[query] === null && !run().prompt[query] && !run().scores[query]) continue; // not asked, or not on the page
    if (wantedGold !== "" && gold[query] !== Number(wantedGold)) continue;
    if (wantedPred !== "" && pred[query] !== Number(wantedPred)) continue;
    if (correct && isRight(query) !== (correct === "right")) continue;
    if (text && !lowerCase()[query].includes(text)) continue;
    shown.push(query);
  }
  order();
}

function order() {
  const values = columnOf(sorting.column);
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
  const total = dataset.gold.length;
  named("count").value = `${shown.length.toLocaleString("en")} of ${total.toLocaleString("en")} queries`;
  windowed.querySelector("table").ariaRowCount = shown.length + 1;
  windowed.scrollTop = 0;
  draw();
  if (chosen >= 0) tell(chosen);
}

function draw() {
  if (!dataset) return;
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

const labelName = (query, value) => (value === null ? "–" : labelsOf(query)[value]);
const decimals = (value, digits) => value?.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }) ?? "–";

// An element with a class and a text, or with elements inside.
function made(tag, className, ...inside) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...inside);
  return element;
}

function queryRow(query, index) {
  const row = made("tr", isRight(query) === false ? "row wrong" : "row");
  row.tabIndex = 0;
  row.dataset.query = query;
  row.ariaRowIndex = index + 2;
  row.ariaSelected = String(query === chosen);
  for (const { column, digits } of columns.slice(0, -1)) {
    const value = columnOf(column)[query];
    const text = digits === undefined ? labelName(query, value) : decimals(value, Number(digits));
    row.append(made("td", digits === undefined ? column : "number", made("div", "text", text)));
  }
  row.append(made("td", "", made("div", "text", textOf(query))));
  return row;
}

function table(titles, rows) {
  const head = made("tr", "", ...titles.map((title) => made("th", "", title)));
  const lines = rows.map(({ cells, mark }) => made("tr", mark, ...cells.map((cell) => made("td", "", cell))));
  return made("div", "box", made("table", "told", made("thead", "", head), made("tbody", "", ...lines)));
}

// Log-likelihoods of the labels, and their probabilities among the labels.
function labelTable(query, scores) {
  const highest = Math.max(...scores.filter((score) => score !== null));
  const shares = scores.map((score) => (score === null ? 0 : Math.exp(score - highest)));
  const total = shares.reduce((sum, share) => sum + share, 0);
  const rows = scores.map((score, label) => ({
    cells: [labelsOf(query)[label], decimals(score, 3), total ? decimals(shares[label] / total, 3) : "–", label === dataset.gold[query] ? "gold" : ""],
  }));
  return table(["Label", "Log-likelihood, nats", "Among the labels", ""], rows);
}

function methodTable(query) {
  const numbers = columns.filter(({ digits }) => digits !== undefined);
  const titles = numbers.map(({ column }) => document.querySelector(`.queries th[data-column="${column}"]`).textContent);
  const rows = run().methods.filter((one) => one.pred[query] !== null).map((one) => ({
    mark: isRight(query, one) ? "" : "wrong",
    cells: [one.name, labelName(query, one.pred[query]), isRight(query, one) ? "right" : "wrong",
      ...numbers.map(({ column, digits }) => decimals(one[column][query], Number(digits)))],
  }));
  return table(["Method", "Predicted", "", ...titles], rows);
}

function promptOf(query) {
  const prompt = (method().prompt ?? run().prompt)[query];
  if (!prompt) return [made("h3", "", "The query; its demonstrations are not on the page"), made("pre", "asked", textOf(query))];
  const pieces = prompt.map((piece, place) => made("span", place === prompt.length - 1 ? "last" : place ? "demonstration" : "", dataset.pieces[piece]));
  return [made("h3", "", `The prompt, with ${prompt.length - 2} demonstration${prompt.length === 3 ? "" : "s"}`), made("pre", "asked", ...pieces)];
}

function tell(query) {
  const scores = (method().scores ?? run().scores)[query];
  detail.replaceChildren(
    made("h3", "", `Query ${dataset.id[query]} of ${dataset.name}, gold ${labelName(query, dataset.gold[query])}`),
    made("div", "tables", ...(scores ? [labelTable(query, scores)] : []), methodTable(query)),
    ...promptOf(query),
  );
}

function read(event) {
  if (event.type === "keydown" && event.key !== "Enter" && event.key !== " ") return;
  const row = event.target.closest(".row");
  if (!row) return;
  event.preventDefault();
  chosen = Number(row.dataset.query);
  for (const other of queryRows.querySelectorAll(".row")) other.ariaSelected = String(other === row);
  tell(chosen);
}

function sortQueries(event) {
  const column = event.target.closest("th")?.dataset.column;
  if (!column) return;
  sorting = { column, descending: sorting.column === column && !sorting.descending };
  order();
}

function change({ target }) {
  if (target === named("dataset")) return chooseDataset();
  return target === named("run") ? chooseRun() : pick();
}

const queryFold = windowed.closest("details");
let isStarted = false;

// Nothing is unpacked before a reader opens the section.
async function start() {
  if (!queryFold.open) return;
  if (isStarted) { draw(); return; }
  isStarted = true;
  try {
    await chooseDataset();
    for (const element of [search, windowed, detail]) element.hidden = false;
    draw();
  } catch {
    document.querySelector(".unreadable").hidden = false;
  }
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
search.addEventListener("change", change);
named("text").addEventListener("input", pick);
search.addEventListener("submit", (event) => event.preventDefault());
options(named("dataset"), packedDatasets.map((each) => each.name));
addEventListener("resize", draw);
queryFold.addEventListener("toggle", start);
start();
