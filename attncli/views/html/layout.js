// ---- laying out: strips in which every table stands right of one and below another it is made of
let views = [], strips = [], order = [];
const cellsAt = new Map(); // "stage|row|column" → the cells of the page that show it
const keyOf = (s, i, j) => `${s.id}|${i}|${j}`;
const isProduct = s => Boolean(s.product);
const isTurned = s => Boolean(s.product?.isTurned);
const isNarrow = () => $("main").clientWidth < 520;
const isPicture = s => s.rows * s.cols > 1600; // drawn, not written
const SHADE = 14; // pixels of a cell without digits
let decimals = 4; // at most
let digit = 9; // pixels of one

function findStrips() {
  let strip = null;
  strips = [];
  order = stages.filter(s => isHere(s) && Object.keys(s.sources).length);
  for (const s of order) {
    const read = sourcesOf(s), last = strip?.at(-1), before = last?.stage;
    const isSibling = last && isProduct(s) && isProduct(before) && read[0] === last.left && s.group === before.group;
    const isNext = before && read.includes(before) && (!isProduct(s) || read[0] === before) && s.n === before.n;
    const belongs = before && s.heading === before.heading && (s.group === before.group || !strip[1]);
    if (!(belongs && (isSibling || isNext))) {
      strip = [{ stage: read[0], tops: [] }];
      strips.push(strip);
    }
    const left = isSibling && belongs ? read[0] : strip.at(-1).stage, standing = strip.map(piece => piece.stage);
    const tops = isTurned(s) ? [read[1] ?? read[0]] : read.filter(source => source !== left && !standing.includes(source));
    strip.push({ stage: s, left, tops, isBare: !tops.length && strip.at(-1).stage.rows === s.rows && !s.vector });
  }
  const standing = new Set(strips.flat().flatMap(piece => [piece.stage, ...piece.tops]));
  for (const s of stages) if (!standing.has(s) && isHere(s)) strips.push([{ stage: s, tops: [] }]);
}

// Strips too wide for the page are cut; a product stays beside its left factor, which is repeated.
function cutStrip(strip, room) {
  const lines = [[]];
  strip.forEach((piece, at) => {
    const line = lines.at(-1), next = strip[at + 1], fits = more => widthOf([...line, ...more]) <= room;
    const takesNext = next && isProduct(next.stage) && next.left === piece.stage && widthOf([piece, next]) <= room && at > 0;
    if (!line.length || fits(takesNext ? [piece, next] : [piece])) return line.push(piece);
    const left = strip.find(other => other.stage === piece.left), isRepeated = isProduct(piece.stage) && left && !takesNext;
    lines.push(isRepeated && widthOf([left, piece]) <= room ? [{ ...left, tops: [] }, piece] : [piece]);
  });
  return lines;
}

// How wide a table and those above it are: the digits of a cell, the letters of a row's name.
function measure(piece) {
  const { stage, tops } = piece, tables = [[stage, false], ...tops.map(top => [top, isTurned(stage)])];
  const lengths = names => names.map(label => Math.min(label.name.length, 12) + (label.at ? 1 : 0));
  const columns = tables.flatMap(([s, turned]) => lengths(turned ? s.rowNames : s.colNames));
  const rows = tables.flatMap(([s, turned]) => lengths(turned ? s.colNames : s.rowNames));
  const digits = ([s]) => (isPicture(s) ? 0 : isAsked(s) ? 6 : s.cells.reduce((most, text) => Math.max(most, text.length), 0));
  const widest = Math.max(...tables.map(digits)), least = stage.words ? 12 : Math.min(Math.max(...columns), 5);
  piece.cell = piece.isShade ? 1 : Math.max(2, Math.min(widest, 40), least);
  piece.label = Math.min(Math.max(...rows), 9);
  const beside = hasSums(piece) ? 4 * digit + 11 : 0;
  const width = isPicture(stage) ? 256 : stage.cols * (piece.isShade ? SHADE : piece.cell * digit + 11);
  piece.width = width + (piece.isBare ? 4 : piece.label * digit + 14) + beside;
}
const hasSums = piece => piece.stage.sums === "rows" && !piece.isShade && !isNarrow();
const widthOf = line => sum(line.map(piece => piece.width)) + (isNarrow() ? 10 : 26) * line.length;

// As many decimals, and then as large a type, as let the attention stand in one piece; where none do,
// tables that are made number by number keep their shades alone.
function chooseSize(main, room) {
  const probe = el("td", { text: "0".repeat(20) });
  main.replaceChildren(el("table", {}, el("tr", {}, probe)));
  const first = strips.find(strip => strip.some(piece => piece.stage === part("scores"))) ?? strips[0] ?? [];
  const fits = () => widthOf(first) <= room || (isNarrow() && Math.max(...first.map(piece => piece.width)) <= room);
  const sizes = isNarrow() ? [0.82] : [1.1, 1, 0.9];
  for (decimals of isNarrow() ? [3, 2] : [4, 3, 2]) {
    writeCells();
    for (const size of decimals > 2 || isNarrow() ? sizes : [...sizes, 0.8]) {
      document.documentElement.style.setProperty("--size", `${size}rem`);
      digit = (probe.offsetWidth - 10) / 20;
      strips.flat().forEach(measure);
      if (fits()) return;
    }
  }
  if (isNarrow() || part("weights")?.cols > 40) return;
  const isMap = ({ stage }) => stage.cols === part("scores")?.cols;
  const isBetween = piece => isMap(piece) && !isProduct(piece.stage);
  for (const isShade of [piece => isBetween(piece) && !piece.stage.isShare, isBetween, isMap, () => false]) {
    for (const piece of first.slice(1)) piece.isShade = isShade(piece);
    first.forEach(measure);
    if (fits()) return;
  }
}
function writeCells() {
  for (const s of new Set(strips.flat().flatMap(piece => [piece.stage, ...piece.tops]))) {
    s.decimals = decimalsOf(s, decimals);
    s.cells = isPicture(s) ? [] : Array.from(s.words ?? s.data, x => num(x, s.decimals));
  }
}
function layOut() {
  setLargest();
  findStrips();
  views = [];
  cellsAt.clear();
  const main = $("main"), seen = new Set(), room = main.clientWidth;
  chooseSize(main, room);
  main.replaceChildren();
  let title = null;
  const first = Math.max(0, strips.findIndex(strip => strip.some(piece => piece.stage === part("scores"))));
  for (const strip of [...strips.slice(first, first + 1), ...strips.filter((_, at) => at !== first)]) {
    const { heading } = (strip[1] ?? strip[0]).stage, box = el("section", { class: "strip" }, heading && heading !== title && el("h2", { text: heading }));
    title = heading;
    for (const line of cutStrip(strip, room)) box.append(lineOf(line, seen));
    box.stages = (strip[1] ? strip.slice(1) : strip).map(piece => piece.stage);
    main.append(box);
    if (strip === strips[first]) main.append(globalThis.wordsPanel?.() ?? "");
  }
  globalThis.drawSentence?.();
  drawMap();
  makeTools();
  paint();
}
function lineOf(line, seen) {
  const grid = el("div", { class: "line" });
  line.forEach((piece, at) => {
    const { stage, tops } = piece;
    const stack = el("div", { class: "above" }, tops.map(top => viewOf(top, piece, isTurned(stage), seen, "above")));
    const own = el("div", { class: "own" }, viewOf(stage, piece, false, seen, "own"));
    own.classList.toggle("bare", at > 0 && Boolean(piece.isBare));
    stack.style.gridColumn = own.style.gridColumn = at + 1;
    grid.append(stack, own);
  });
  return grid;
}

// A table with its caption; where a stage stands for the first time it can be reached by a link.
function viewOf(s, piece, turned, seen, place) {
  const isFirst = !seen.has(s) && (place === "own" || !s.tree);
  if (isFirst) seen.add(s);
  const [rowNames, colNames] = turned ? [s.colNames, s.rowNames] : [s.rowNames, s.colNames];
  const isPacked = place === "above" && !turned && piece.stage.n > 1 && s.n === 1 && s.cols === piece.stage.cols * headsOf(piece.stage);
  const view = { s, turned, packed: isPacked ? piece.stage.cols : 0, isShade: piece.isShade, cells: [], sums: [] };
  const symbol = [math(s.symbol), turned && el("sup", { text: "T" })];
  view.formula = place === "own" && isFirst && el("span", { class: "formula" });
  const note = place === "own" && isFirst && s.note && span("note", s.note);
  const caption = el("div", { class: "caption" }, span("symbol", symbol), " ", span("kind", s.called), view.formula, note);
  const table = isPicture(s) ? pictureOf(view) : tableOf(view, rowNames, colNames, place === "own" && hasSums(piece));
  view.box = el("figure", { class: `view${canEdit(s) ? " editable" : ""}${view.isShade ? " shades" : ""}` }, el("div", { class: "scroll" }, table), el("figcaption", {}, caption));
  view.box.style.setProperty("--cell", `${piece.cell}ch`);
  view.box.style.setProperty("--label", `${piece.label}ch`);
  if (isFirst) view.box.id = `at-${s.id}`;
  if (view.cells[0]) view.cells[0].tabIndex = 0;
  views.push(view);
  return view.box;
}
function tableOf(view, rowNames, colNames, hasSum) {
  const { s, turned, packed } = view, columns = range(packed || colNames.length);
  const th = (label, scope) => el("th", { scope, title: labelText(label) }, labelNodes(label));
  const head = el("tr", {}, el("td", { class: "corner" }), columns.map(j => th(colNames[j], "col")), hasSum && el("th", { class: "sum", scope: "col", text: "Σ" }));
  const rows = rowNames.map((label, i) => {
    const cells = columns.map(j => {
      const td = el("td", { tabIndex: -1 });
      td.view = view;
      td.at = turned ? [j, i] : [i, j];
      view.cells.push(td);
      return td;
    });
    const total = hasSum && el("td", { class: "sum" });
    if (total) view.sums.push(total);
    return el("tr", {}, th(label, "row"), cells, total);
  });
  return el("table", { "aria-label": `${s.symbol}${turned ? " transposed" : ""}, ${s.short}`, role: "grid", class: s.words ? "words-of" : "" }, head, rows);
}

// One pixel a cell; pointing at it says the number.
function pictureOf(view) {
  const { s, turned } = view, [height, width] = turned ? [s.cols, s.rows] : [s.rows, s.cols];
  const canvas = el("canvas", { width, height, class: "picture", role: "img", "aria-label": `${s.short}, ${s.rows} × ${s.cols}` });
  view.draw = () => drawPixels(canvas, s, shownPlane(s), turned);
  on(canvas, "pointermove", event => {
    const at = (offset, length, n) => Math.max(0, Math.min(n - 1, Math.floor((offset / length) * n)));
    const i = at(event.offsetY, canvas.clientHeight, height), j = at(event.offsetX, canvas.clientWidth, width);
    light([s, shownPlane(s), ...(turned ? [j, i] : [i, j])]);
  });
  return canvas;
}
function drawPixels(canvas, s, plane, turned = false) {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, canvas.width, canvas.height);
  const most = s.value[plane].reduce((a, x) => Math.max(a, Math.abs(x) || 0), 0), shadeAlone = x => shade(x / most, x < 0 ? MINUS : PLUS);
  s.value[plane].forEach((x, at) => {
    const [i, j] = [Math.floor(at / s.cols), at % s.cols];
    context.fillStyle = (s.shade ? shadeOf(s, x) : shadeAlone(x))?.[0] ?? "#8884";
    context.fillRect(turned ? i : j, turned ? j : i, 1, 1);
  });
}

// Numbers, shades and what is hidden; the tables themselves stay.
function paint(isChanged = () => false) {
  cellsAt.clear();
  for (const view of views) {
    const { s } = view, plane = shownPlane(s), isBlank = isHidden(s) || isAsked(s) || (state.edited && isStale(s));
    view.box.classList.toggle("later", isHidden(s));
    if (view.formula) view.formula.replaceChildren(...math(formulaOf(s)));
    if (isBlank) view.draw && view.box.querySelector("canvas").getContext("2d").clearRect(0, 0, 9e4, 9e4);
    else view.draw?.();
    s.decimals = decimalsOf(s, decimals);
    for (const td of view.cells) paintCell(td, view, plane, isBlank, isChanged);
    const total = i => sum([...s.value[plane].subarray(i * s.cols, (i + 1) * s.cols)]);
    view.sums.forEach((td, i) => (td.textContent = isBlank ? "?" : trimmed(total(i), 4)));
  }
  document.body.classList.toggle("asking", state.quiz);
  for (const box of all(".strip")) box.hidden = box.stages.every(isHidden);
  const isWhole = state.step >= order.length && !state.quiz && !state.edited;
  for (const box of all(".closing")) box.hidden = !isWhole;
  globalThis.paintWords?.();
  paintTools();
  markMap();
  light(state.pinned);
}
const FLASH = { backgroundColor: "#ffd54a", color: "#000" };
function paintCell(td, view, plane, isBlank, isChanged) {
  const { s } = view, [i, column] = td.at, j = column + view.packed * state.head, cell = [s, plane, i, j], at = indexOf(cell), x = s.data[at];
  const shades = isBlank || s.words ? null : shadeOf(s, x), key = keyOf(s, i, j);
  td.cell = cell;
  td.style.setProperty("--b", shades?.[0] ?? "");
  td.style.setProperty("--t", shades?.[1] ?? "");
  if (isAsked(s) && view.box.id) askIn(td);
  else td.textContent = isBlank ? "?" : view.isShade ? "" : num(s.words?.[at] ?? x, s.decimals);
  const isNew = isChanged(s, at);
  td.classList.toggle("flash", isNew);
  if (isNew && !isCalm()) td.animate([FLASH, { ...FLASH, offset: 0.3 }, {}], 1500);
  td.classList.toggle("masked", x === -Infinity);
  td.classList.toggle("new", state.edited && !isBlank && differs(x, s.original[at], 1e-12));
  cellsAt.set(key, [...(cellsAt.get(key) ?? []), td]);
}

// The plane that is shown: that of the batch entry and head that are chosen, or of the heads that share it.
const mostHeads = () => Math.max(...stages.filter(isHere).map(headsOf));
const headShown = s => (groupShown()?.tiled ? state.head % headsOf(s) : Math.floor((state.head * headsOf(s)) / mostHeads()));
const shownPlane = s => (s.batches > 1 ? state.batch * headsOf(s) : 0) + headShown(s);
const headWords = (s, p) => [s.batches > 1 && `batch entry ${Math.floor(p / headsOf(s)) + 1}`, headsOf(s) > 1 && `head ${(p % headsOf(s)) + 1}`].filter(Boolean).join(", ");
const lastShown = () => stages.indexOf(order[Math.min(state.step, order.length) - 1]);
const isHidden = s => state.step < order.length && (order.includes(s) || isStale(s)) && stages.indexOf(s) > lastShown();
