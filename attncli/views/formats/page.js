"use strict";
// The tables are there already, written by attncli. This script lights up what a cell was computed
// from, chooses heads, layers and batch entries, and draws the overview. It writes no arithmetic of
// its own, and asks for nothing from elsewhere.

const byId = id => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const main = document.querySelector("main"), tools = byId("tools"), say = byId("say");

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function tell(text) {
  say.hidden = !text;
  say.textContent = text;
}

// ---- the data

async function unpack(id) {
  const packed = Uint8Array.from(atob(byId(id).textContent), char => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// Numbers whose first bytes come first, then their second ones, and so on.
function numbersOf(planes, size) {
  const count = planes.length / size, bytes = new Uint8Array(planes.length);
  for (let place = 0; place < size; place++)
    for (let at = 0; at < count; at++) bytes[at * size + place] = planes[place * count + at];
  return size === 4 ? new Float32Array(bytes.buffer) : new Uint16Array(bytes.buffer);
}

// The fewest digits from which a float32 is read back the same.
function exact(x) {
  if (!Number.isFinite(x)) return Number.isNaN(x) ? "NaN" : x > 0 ? "inf" : "-inf";
  for (let digits = 6; digits < 9; digits++)
    if (Math.fround(+x.toPrecision(digits)) === x) return String(+x.toPrecision(digits));
  return String(+x.toPrecision(9));
}

// ---- pointing at a cell

let meta, numbers;

// The row or column that a cell reads: see Lit in attncli's views/reads.py. Null is all of them.
function indexRead(lit, cell) {
  if (lit === "all") return null;
  if (typeof lit === "number") return lit;
  return typeof lit === "string" ? cell[lit] : lit[1][cell.place[lit[0]]];
}

const shown = (indices, wanted) =>
  [...indices.keys()].filter(at => indices[at] !== null && (wanted === null || indices[at] === wanted));

function unlight() {
  for (const cell of all(".here, .from, .lit")) cell.classList.remove("here", "from", "lit");
}

function light(section, row, column) {
  const own = meta.sections[section.id], table = section.querySelector("table");
  const i = own.rows[row], j = own.columns[column];
  unlight();
  table.rows[row + 1].cells[column + 1].classList.add("here");
  table.rows[row + 1].cells[0].classList.add("lit");
  table.rows[0].cells[column + 1].classList.add("lit");
  const before = (indices, end) => indices.slice(0, end).filter(at => at !== null).length;
  const cell = { i, j, place: { i: before(own.rows, row), j: before(own.columns, column) } };
  for (const [id, rowRead, columnRead] of own.reads) {
    const source = meta.sections[id], cells = byId(id).querySelector("table").rows;
    for (const r of shown(source.rows, indexRead(rowRead, cell)))
      for (const c of shown(source.columns, indexRead(columnRead, cell)))
        cells[r + 1].cells[c + 1].classList.add("from");
  }
}

// What is said of a cell: its arithmetic, as --cell has it, and its number to the last digit.
function said(section, row, column) {
  const own = meta.sections[section.id], table = section.querySelector("table");
  const names = [table.rows[row + 1].cells[0], table.rows[0].cells[column + 1]].map(th => th.textContent.trim())
    .filter((name, place) => place === 1 ? !own.vector : name !== own.symbol);  // a vector's row or column has its symbol's name
  const width = own.columns.filter(at => at !== null).length;
  const at = own.rows.slice(0, row).filter(at => at !== null).length * width
    + own.columns.slice(0, column).filter(at => at !== null).length;
  const lines = own.work?.[at] ? [own.work[at]] : [];
  if (own.start !== null) lines.push(`${own.symbol}[${names.join(",")}] = ${exact(numbers[own.start + at])}`);
  const flags = ["head", "batch"].filter(axis => section.dataset[axis]).map(axis => ` --${axis} ${section.dataset[axis]}`);
  const cell = `${own.rows[row] + 1},${own.columns[column] + 1}`;
  if (own.derived && !own.work) lines.push(`how: --stage ${own.name} --cell ${cell}${flags.join("")}`);
  return lines.join("\n");
}

function point(td) {
  const section = td.closest("section"), own = section && meta.sections[section.id];
  const row = td.parentElement.rowIndex - 1, column = td.cellIndex - 1;
  if (section.id === "detail" && td.title) tell(td.title);
  if (!own || row < 0 || column < 0) return;
  if (typeof own.rows[row] !== "number" || typeof own.columns[column] !== "number") return;
  light(section, row, column);
  tell(said(section, row, column));
}

const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

function move(event) {
  const td = event.target.closest("section td, .overview td"), step = MOVES[event.key];
  if (event.key === "Escape") {
    unlight();
    tell("");
  }
  if (!td || !step) return;
  const table = td.closest("table");
  const next = table.rows[td.parentElement.rowIndex + step[0]]?.cells[td.cellIndex + step[1]];
  if (next?.tagName !== "TD" || next.cellIndex === 0) return;
  event.preventDefault();
  focusOn(table, next);
}

// One cell of each table is reached by Tab, the others by the arrow keys.
function focusOn(table, td) {
  makeReachable(table, td);
  inside(td).focus();
}

const inside = td => td.querySelector("button") ?? td;

function makeReachable(table, td = table.rows[table.rows.length > 1 ? 1 : 0]?.cells[1]) {
  for (const other of all("button, [tabindex]", table)) other.tabIndex = -1;
  if (td) inside(td).tabIndex = 0;
}

// ---- choosing a head, layer or batch entry

const AXES = [["layer", "layers"], ["batch", "batch entries"], ["head", "heads"]];
const choice = {};

const isAt = (place, chosen) =>
  AXES.every(([axis]) => !place[axis] || !chosen[axis] || String(place[axis]).split(" ").includes(chosen[axis]));

function choose(changes, scrolls = false) {
  Object.assign(choice, changes);
  for (const [axis] of AXES) {
    const select = byId(`choose-${axis}`);
    if (select) select.value = choice[axis] ?? "";
  }
  for (const part of all("[data-head], [data-batch], [data-layer]", main)) part.hidden = !isAt(part.dataset, choice);
  for (const button of all(".overview button")) button.ariaPressed = String(isAt(button.place, choice));
  showDetail();
  if (steps().length && !steps().includes(current)) current = null;
  showStep();
  const words = AXES.map(([axis]) => choice[axis] && `${axis} ${choice[axis]}`).filter(Boolean).join(", ");
  if (Object.keys(changes).length) tell(`shown: ${words || "all"}`);
  if (scrolls) (byId("detail") ?? all("section:not([hidden])").find(isWeights))?.scrollIntoView({ block: "start" });
}

const isWeights = section => meta.sections[section.id]?.name.split(".").pop() === "weights";

function makeChoosers(places) {
  for (const [axis, plural] of AXES) {
    const values = new Set(places.flatMap(place => (place[axis] ? String(place[axis]).split(" ") : [])));
    if (values.size < 2) continue;
    const sorted = [...values].sort((a, b) => a - b);
    const options = sorted.map(value => element("option", { value, textContent: `${axis} ${value} of ${values.size}` }));
    options.push(element("option", { value: "", textContent: `all ${plural}` }));
    const select = element("select", { id: `choose-${axis}`, ariaLabel: axis }, ...options);
    select.addEventListener("change", () => choose({ [axis]: select.value }));
    tools.append(select);
    choice[axis] = sorted[0];
  }
}

// ---- one stage after another

let current = null, hidesLater = false;
const steps = () => all("section").filter(section => !section.hidden && section.id !== "detail");
const stepOutput = element("output", { ariaLive: "polite" });

function go(by) {
  const list = steps(), at = list.indexOf(current) + by;
  if (!list.length) return;
  current = list[current === null && by < 0 ? list.length - 1 : Math.min(Math.max(at, 0), list.length - 1)];
  showStep();
  current.scrollIntoView({ block: "nearest" });
  current.querySelector(".stage").focus({ preventScroll: true });
}

function showStep() {
  const list = steps(), at = list.indexOf(current);
  list.forEach((section, place) => {
    section.classList.toggle("current", section === current);
    section.style.display = hidesLater && current && place > at ? "none" : "";
  });
  stepOutput.textContent = current ? `${at + 1} of ${list.length}` : "";
}

function makeSteps() {
  const later = element("input", { type: "checkbox", id: "later" });
  later.addEventListener("change", () => {
    hidesLater = later.checked;
    if (hidesLater && !current) go(1);
    else showStep();
  });
  const button = (text, label, by) =>
    element("button", { type: "button", textContent: text, ariaLabel: label, onclick: () => go(by) });
  tools.append(element("span", {}, button("◀", "previous stage", -1), " stage ", stepOutput, " ", button("▶", "next stage", 1)));
  tools.append(element("label", { htmlFor: "later" }, later, " hide later stages"));
}

// ---- copying a table

const rowsOf = table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim()));

// Texts as markdown and csv write them: attncli has written those that are not written as they are.
const inMarkdown = text => meta.escaped[text]?.[0] ?? text;
const inCsv = text => meta.escaped[text]?.[1] ?? text;

function asMarkdown([head, ...rows]) {
  const line = cells => `| ${cells.join(" | ")} |`;
  const body = rows.map(([name, ...cells]) => line([`**${inMarkdown(name)}**`, ...cells.map(inMarkdown)]));
  return [line(head.map(inMarkdown)), line([":--", ...head.slice(1).map(() => "--:")]), ...body, ""].join("\n");
}

const asCsv = rows => rows.map(cells => cells.map(inCsv).join(",") + "\n").join("");

const FORMS = { markdown: asMarkdown, csv: asCsv };

async function copy(section, form) {
  const rows = rowsOf(section.querySelector("table"));
  const text = form === "LaTeX" ? `${meta.sections[section.id].latex}\n` : FORMS[form](rows);
  const area = element("textarea", { value: text, ariaLabel: "the table" });
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not allowed here, as in a frame: the older way
    main.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  tell(`copied as ${form}`);
}

function makeCopies(section) {
  const name = meta.sections[section.id].name;
  const buttons = ["markdown", "LaTeX", "csv"].map(form =>
    element("button", { type: "button", textContent: form, ariaLabel: `copy ${name} as ${form}`, onclick: () => copy(section, form) }));
  if (section.querySelector("table")) section.append(element("p", { className: "copy" }, "copy as", ...buttons));
}

// ---- the weights of every head

let weights, colours, palette;  // of pairs: background and text
const isDark = matchMedia("(prefers-color-scheme: dark)");
const TABLE = 64;  // rows and columns up to which the weights of a head are a table

function valueOf(map, at) {
  const stored = weights[map.start + at];
  return !meta.maps.unit ? stored : stored === 0xffff ? NaN : stored * meta.maps.unit;
}

// The square root, so that small weights of many keys can be told apart.
const shadeOf = x => Math.round(Math.sqrt(Math.min(Math.max(x, 0), 1)) * (palette.length - 1));

function paint(map) {
  const [n, m] = map.size, canvas = element("canvas", { width: m, height: n });
  const context = canvas.getContext("2d"), image = context.createImageData(m, n);
  const pixels = new DataView(image.data.buffer);
  for (let at = 0; at < n * m; at++) {
    const x = valueOf(map, at);
    if (!Number.isNaN(x)) pixels.setUint32(4 * at, colours[shadeOf(x)]);
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

const placeName = map =>
  [map.block, ...AXES.map(([axis]) => map.place[axis] && `${axis} ${map.place[axis]}`)].filter(Boolean).join(", ");

function makeOverview() {
  const maps = meta.maps.entries, rows = new Map();
  for (const map of maps) {
    const { head, layer, ...rest } = map.place;
    const name = [map.block, ...Object.entries(rest).map(([axis, at]) => `${axis} ${at}`)].filter(Boolean).join(", ");
    if (!rows.has(name)) rows.set(name, []);
    rows.get(name).push(map);
  }
  const table = element("table", { className: "overview" });
  const heads = [...new Set(maps.map(map => map.place.head).filter(Boolean))];
  const headings = heads.map(head => element("th", { scope: "col", textContent: `head ${head}` }));
  if (heads.length) table.append(element("tr", {}, element("td"), ...headings));
  for (const [name, own] of rows) {
    const buttons = own.map(map => {
      const button = element("button", { type: "button", ariaLabel: `weights: ${placeName(map)}`, ariaPressed: "false" }, paint(map));
      button.place = map.place;
      button.addEventListener("click", () => choose(placeOf(map), true));
      return element("td", {}, button);
    });
    const title = name ? element("th", { scope: "row", textContent: name }) : element("td");
    table.append(element("tr", {}, title, ...buttons));
  }
  const words = "Rows are queries, columns are keys; shaded by the square root of the weight.";
  const left = meta.maps.left ? ` Left out: the weights of ${meta.maps.left} more heads (--head N).` : "";
  const rounded = meta.maps.unit ? ` Weights of heads that are not shown below are rounded to ${meta.maps.decimals} decimals.` : "";
  const box = element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: "weights of all heads" }, table);
  const view = element("div", { id: "overview" }, element("h2", { textContent: "The weights of all heads" }),
    element("p", { className: "quiet", textContent: words + left + rounded }), box);
  makeReachable(table);
  main.insertBefore(view, all("main > section, main > div, main > details")[0]);
}

const placeOf = map => Object.fromEntries(Object.entries(map.place).map(([axis, at]) => [axis, String(at)]));

// The weights of the chosen head where the page has no table of all of them.
function showDetail() {
  byId("detail")?.remove();
  if (!meta.maps) return;
  const map = meta.maps.entries.find(map => isAt(map.place, choice));
  const own = steps().find(section => isWeights(section) && isAt(map.place, section.dataset));
  if (!map || (own && !meta.sections[own.id].rows.concat(meta.sections[own.id].columns).includes(null))) return;
  const [rowNames, columnNames] = map.labels.map(at => meta.maps.labels[at]);
  const section = element("section", { id: "detail" }, element("h2", { className: "stage", tabIndex: -1, textContent: `weights: ${placeName(map)}` }));
  section.append(Math.max(...map.size) <= TABLE ? detailTable(map, rowNames, columnNames) : picture(map, rowNames, columnNames));
  for (const table of all("table", section)) makeReachable(table);
  byId("overview").after(section);
}

function detailTable(map, rowNames, columnNames) {
  const heading = (name, scope) => element("th", { scope }, element("bdi", { textContent: name }));
  const table = element("table", {}, element("tr", {}, element("td"), ...columnNames.map(name => heading(name, "col"))));
  rowNames.forEach((name, row) => {
    const cells = columnNames.map((_, column) => {
      const x = valueOf(map, row * columnNames.length + column);
      if (Number.isNaN(x)) return element("td", { className: "mark", textContent: "///" });
      const td = element("td", { textContent: x === 0 && !meta.maps.unit ? "0" : x.toFixed(meta.maps.decimals) });
      [td.style.background, td.style.color] = palette[shadeOf(x)];
      td.title = `A[${name},${columnNames[column]}] = ${meta.maps.unit ? td.textContent : exact(x)}`;
      return td;
    });
    table.append(element("tr", {}, heading(name, "row"), ...cells));
  });
  return element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: "weights of the head" }, table);
}

function picture(map, rowNames, columnNames) {
  const canvas = paint(map);
  canvas.className = "picture";
  canvas.role = "img";
  canvas.ariaLabel = `weights: ${placeName(map)}, ${map.size.join(" × ")}`;
  canvas.addEventListener("pointermove", event => {
    const row = Math.min(Math.floor((event.offsetY / canvas.clientHeight) * map.size[0]), map.size[0] - 1);
    const column = Math.min(Math.floor((event.offsetX / canvas.clientWidth) * map.size[1]), map.size[1] - 1);
    const x = valueOf(map, Math.max(row, 0) * map.size[1] + Math.max(column, 0));
    const number = Number.isNaN(x) ? "masked" : meta.maps.unit ? x.toFixed(meta.maps.decimals) : exact(x);
    tell(`A[${rowNames[row]},${columnNames[column]}] = ${number}`);
  });
  return canvas;
}

// ---- at the start

async function start() {
  const [text, planes, stored] = await Promise.all(["meta", "numbers", "maps"].map(unpack));
  meta = JSON.parse(new TextDecoder().decode(text));
  numbers = numbersOf(planes, 4);
  for (const table of all("section table")) makeReachable(table);
  for (const section of all("section")) makeCopies(section);
  const places = all("[data-head], [data-batch], [data-layer]", main).map(part => part.dataset);
  if (meta.maps) {
    palette = meta.maps.palettes[Number(isDark.matches)];
    colours = palette.map(([hex]) => parseInt(`${hex.slice(1)}ff`, 16));
    isDark.addEventListener("change", () => location.reload());
    weights = numbersOf(stored, meta.maps.unit ? 2 : 4);
    makeOverview();
  }
  makeChoosers(places.concat((meta.maps?.entries ?? []).map(map => map.place)));
  if (all("section").length > 1) makeSteps();
  tools.hidden = !tools.children.length;
  choose({});
  for (const kind of ["pointerover", "click", "focusin"])
    document.addEventListener(kind, event => {
      const td = event.target.closest?.("section td");
      if (td) point(td);
    });
  document.addEventListener("keydown", move);
  document.documentElement.dataset.ready = "1";
  try {  // within a notebook the frame is as tall as the page, up to a limit
    if (frameElement) frameElement.style.height = `${Math.min(document.documentElement.scrollHeight + 40, 900)}px`;
  } catch { /* a frame of another origin has a fixed height */ }
}

start();
