// The board: rows of #board-data that the filters choose, as a table and as a plot. The address keeps the choice.
(() => {
  const source = document.getElementById("board-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const runs = new Map(data.runs.map((run) => [run.id, run]));
  const form = document.querySelector(".board-filters");
  const table = document.querySelector("table.board");
  const place = (row) => `${row.suite} / ${row.part}`;
  const unique = (values) => [...new Set(values)];
  const text = (tag, content, style = "") => {
    const element = document.createElement(tag);
    element.textContent = content;
    if (style) element.className = style;
    return element;
  };
  const billions = (n) => (n == null ? "–" : `${Number((n / 1e9).toPrecision(3))} B`);
  const count = (n) => (n == null ? "–" : Number(n).toLocaleString("en"));

  function fill(name, values, all) {
    const select = form.elements[name];
    const options = all ? ["", ...values] : values;
    select.replaceChildren(...options.map((value) => new Option(value === "" ? all : value, value)));
  }
  fill("place", unique(data.rows.map(place)));
  fill("method", unique(data.rows.map((row) => row.method)).sort((a, b) => (b === "vanilla") - (a === "vanilla")));
  fill("definition", unique(data.rows.map((row) => row.definition)));
  fill("dataset", unique(data.rows.flatMap((row) => Object.keys(row.values))).sort((a, b) => (b === "mean") - (a === "mean")));
  fill("family", unique([...data.runs, ...data.published].map((run) => run.family)).sort(), "all");
  if (data.published.length) form.elements.definition.value = "published";
  for (const [name, value] of new URLSearchParams(location.search)) if (form.elements[name]) form.elements[name].value = value;
  for (const select of form.querySelectorAll("select")) if (select.selectedIndex < 0) select.selectedIndex = 0;

  function chosen() {
    const wanted = Object.fromEntries(new FormData(form));
    const fits = (one) => (!wanted.family || one.family === wanted.family)
      && (!wanted.low || one.n_parameters >= wanted.low * 1e9) && (!wanted.high || one.n_parameters <= wanted.high * 1e9);
    const rows = data.rows.filter((row) => place(row) === wanted.place && row.method === wanted.method
      && row.definition === wanted.definition && row.values[wanted.dataset] != null && fits(runs.get(row.run)))
      .map((row) => ({...runs.get(row.run), ...row, value: row.values[wanted.dataset], ranked: wanted.dataset === "mean"}));
    const published = wanted.dataset !== "mean" || wanted.definition !== "published" ? [] : data.published.filter((row) => row.suite === wanted.place.split(" / ")[0]
      && row.method === wanted.method && fits(row));
    return [rows.sort((a, b) => b.value - a.value), published, wanted];
  }

  function draw() {
    const [rows, published, wanted] = chosen();
    const groups = unique(rows.map((row) => row.group));
    const titles = ["Model", "Ranking", "Rank", wanted.dataset === "mean" ? "Mean accuracy" : wanted.dataset, "95% interval", "Parameters", "Shots", "Queries", "Seconds", "Tokens"];
    const head = document.createElement("tr");
    head.append(...titles.map((title, at) => text("th", title, at < 2 ? "" : "number")));
    table.tHead.replaceChildren(head);
    const all = [...rows, ...published.map((row) => ({...row, published: true}))].sort((a, b) => b.value - a.value);
    table.tBodies[0].replaceChildren(...all.map((row) => {
      const line = document.createElement("tr");
      const cell = (content, style = "number") => {
        const td = document.createElement("td");
        td.className = style;
        if (row.page) {
          const link = text("a", content);
          link.href = row.page;
          td.append(link);
        } else td.textContent = content;
        line.append(td);
      };
      if (row.published) line.className = "published"; else line.id = row.id;
      cell(row.form && row.form !== "plain prompts" ? `${row.model}, ${row.form}` : row.model, "");
      cell(row.published ? "published" : row.group ? letter(groups.indexOf(row.group)) : "–", "");
      cell(row.ranked && row.rank ? (row.rank[0] === row.rank[1] ? row.rank[0] : `${row.rank[0]}–${row.rank[1]}`) : "–");
      cell(row.value.toFixed(3));
      cell(row.ranked && row.interval[0] != null ? row.interval.map((end) => end.toFixed(3)).join("–") : "–");
      cell(billions(row.n_parameters));
      cell(row.shots ?? "–"); cell(row.queries ?? "–"); cell(count(row.seconds)); cell(count(row.tokens));
      return line;
    }));
    plot(rows, wanted.x === "n_parameters" ? published : [], wanted);
  }

  function letter(at) {
    return (at >= 26 ? letter(Math.floor(at / 26) - 1) : "") + String.fromCharCode(65 + at % 26);
  }

  function plot(rows, published, wanted) {
    const shown = [...rows, ...published].filter((row) => row[wanted.x] > 0);
    const box = document.querySelector(".board-plot");
    box.replaceChildren();
    if (!shown.length) return;
    const [width, height, left, bottom] = [640, 280, 44, 34];
    const xs = shown.map((row) => Math.log10(row[wanted.x])), ys = shown.map((row) => row.value);
    const [x0, x1] = [Math.min(...xs) - .15, Math.max(...xs) + .15], [y0, y1] = [Math.min(...ys) - .04, Math.max(...ys) + .04];
    const x = (value) => left + (width - left - 8) * (Math.log10(value) - x0) / (x1 - x0);
    const y = (value) => (height - bottom) * (y1 - value) / (y1 - y0) + 6;
    const make = (tag, attributes, content) => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
      if (content != null) element.textContent = content;
      return element;
    };
    const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Accuracy by " + form.elements.x.selectedOptions[0].text});
    for (let tick = Math.ceil(y0 * 10) / 10; tick < y1; tick += .1) {
      svg.append(make("line", {x1: left, x2: width - 8, y1: y(tick), y2: y(tick)}), make("text", {x: left - 6, y: y(tick) + 4, "text-anchor": "end"}, tick.toFixed(1)));
    }
    for (let power = Math.ceil(x0); power <= x1; power++) {
      const label = Intl.NumberFormat("en", {notation: "compact"}).format(10 ** power);
      svg.append(make("line", {x1: x(10 ** power), x2: x(10 ** power), y1: 6, y2: y(y0)}), make("text", {x: x(10 ** power), y: height - 18, "text-anchor": "middle"}, label));
    }
    svg.append(make("text", {x: (width + left) / 2, y: height - 2, "text-anchor": "middle"}, form.elements.x.selectedOptions[0].text));
    for (const row of shown) {
      const point = make("circle", {cx: x(row[wanted.x]), cy: y(row.value), r: row.run ? 4.5 : 3.5, class: row.run ? "run" : "published"});
      point.append(make("title", {}, `${row.model}: ${row.value.toFixed(3)}, ${billions(row.n_parameters)}`));
      const [low, high] = row.ranked ? row.interval : [null, null];
      if (low != null) svg.append(make("line", {x1: x(row[wanted.x]), x2: x(row[wanted.x]), y1: y(low), y2: y(high), class: "ends"}));
      const link = row.page ? make("a", {href: row.page}) : svg;
      link.append(point);
      if (row.page) svg.append(link);
    }
    box.append(svg);
  }

  form.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  draw();
})();
