// ---- laying out: strips in which every table stands right of one and below another it is made of
let views = [], strips = [], order = [];
const shownAt = new Map(); // a cell → the elements of the page that show it
const isTurned = s => Boolean(s.product?.isTurned);
const isNarrow = () => $("main").clientWidth < 520;
const MOST_WRITTEN = 1600; // cells of a table; a larger one is drawn
const WIDE = 16, FEW = 4; // columns of a vector: of more the first few are shown, until all are asked for
const whole = new Set(); // the stages of which all are
const isCut = (s, axis) => s.wide?.[axis] && [s.rows, s.cols][axis] > WIDE && !whole.has(s) && !isAsked(s);
const placesShown = (s, axis) => range(isCut(s, axis) ? FEW : [s.rows, s.cols][axis]);
const isPicture = s => placesShown(s, 0).length * placesShown(s, 1).length > MOST_WRITTEN && !isAsked(s);
const SHADE = 14; // pixels of a cell without digits
let decimals = 4; // at most
const standing = () => new Set(strips.flat().flatMap(piece => [piece.stage, ...piece.tops])); // also of another layer
let digit = 9; // pixels of one
let tight = 1; // of small type what is around a number is smaller, too
let fewest = 12; // letters of the names of columns, of which a line has more where there is room

function findStrips() {
  let strip = [];
  strips = [];
  order = stages.filter(s => isHere(s) && keys(s.sources).length);
  for (const s of order) {
    const read = sourcesOf(s), [start] = read, { stage: before, left } = strip.at(-1) ?? {};
    if (before?.isWork && !s.isWork) {
      strips.push((strip = [{ stage: s, tops: [] }])); // with what it is computed from further down
      continue;
    }
    const belongs = before && s.heading === before.heading && (s.group === before.group || !strip[1]);
    const isSibling = belongs && s.product && before.product && start === left && s.group === before.group;
    const isNext = belongs && read.includes(before) && (!s.product || start === before) && s.n === before.n;
    if (!isSibling && !isNext) strips.push((strip = [{ stage: start, tops: [] }]));
    const last = strip.at(-1).stage, own = isSibling ? start : last, others = strip.map(piece => piece.stage);
    const tops = isTurned(s) ? [read[1] ?? start] : read.filter(source => source !== own && !others.includes(source));
    strip.push({ stage: s, left: own, tops, isBare: !tops.length && last.rows === s.rows && !s.vector });
  }
  const inStrips = standing();
  for (const s of stages) if (!inStrips.has(s) && isHere(s)) strips.push([{ stage: s, tops: [] }]);
}

// Strips too wide for the page are cut; a product stays beside its left factor, which is repeated.
function cutStrip(strip, room) {
  const lines = [[]];
  for (const piece of strip) {
    const line = lines.at(-1), left = piece.stage.product && strip.find(other => other.stage === piece.left);
    if (!line.length || widthOf([...line, piece]) <= room) line.push(piece);
    else lines.push(left && widthOf([left, piece]) <= room ? [{ ...left, tops: [] }, piece] : [piece]);
  }
  return lines;
}

// How wide a table and those above it are: the digits of a cell, the letters of a row's name.
function measure(piece, letters = LETTERS.at(-1)) {
  const { stage, tops } = piece, tables = [[stage, false], ...tops.map(top => [top, isTurned(stage)])];
  const longest = isColumn => max(...tables.flatMap(([s, turned]) => (turned === isColumn ? s.rowNames : s.colNames).map(lettersOf)));
  piece.cell = piece.isShade ? 1 : max(2, stage.words ? 12 : min(longest(true) + 1, letters), min(40, max(...tables.map(([s]) => s.longest))));
  piece.label = min(longest(false), 9);
  piece.step = piece.isShade ? SHADE : piece.cell * digit + 10 * tight + 1;
  piece.edge = (piece.isBare ? 4 : piece.label * digit + 14 * tight + 4) + (hasSums(piece) ? 4 * digit + 10 * tight + 1 : 0);
  piece.width = piece.edge + (isPicture(stage) ? 256 : placesShown(stage, 1).length * piece.step);
}
const hasSums = piece => piece.stage.sums === "rows" && !isAsked(piece.stage) && !piece.isShade && !isNarrow();
const namesOf = piece => (piece?.isBare ? piece.label * digit + 14 * tight : 0); // at the start of a line they stand there
const widthOf = line => sum(line.map(piece => piece.width)) + namesOf(line[0]) + ((isNarrow() ? 8 : 24) * tight + 2) * line.length;

// As many decimals, as large a type and as long names of columns as let the attention stand in as few
// lines as possible. Of more columns than a sentence has, tables between the scores and the weights
// have their shades alone where they do not fit.
const SIZES = [[4, 1.5], [4, 1.3], ...[4, 3, 2].flatMap(most => [1.1, 1, 0.9].map(size => [most, size])), [2, 0.8]];
const SMALLEST = [2, 0.7]; // on a laptop, where all of the attention then stands in one line
const LETTERS = [12, 9, 7, 5, 4]; // of the name of a column
const SENTENCE = 16; // columns of a table that always has its digits
function chooseSize(first, room) {
  const width = $("probe").offsetWidth / 20;
  const measureAll = ([most, size], letters) => {
    if (most !== decimals) for (const s of standing()) write(s, most);
    decimals = most;
    digit = width * size;
    tight = min(1, size);
    for (const piece of strips.flat()) measure(piece, letters);
  };
  decimals = 0;
  const isLaptop = room > 1200 && room < 1400;
  const sizes = isNarrow() ? [[3, 0.82], [2, 0.82]] : isLaptop ? [...SIZES, SMALLEST] : SIZES, isMap = ({ stage }) => stage.cols === part("scores")?.cols && !isAsked(stage) && !stage.isShare;
  let best = null;
  for (const size of sizes)
    for (const letters of LETTERS) {
      measureAll(size, letters);
      const wide = first.filter(piece => piece.width > room).length, several = cutStrip(first, room).length;
      if (size === SMALLEST && several > 1) continue;
      const lines = several + 99 * wide + (several > 1 && size[1] > 1 ? 0.5 : 0); // of several lines the first ones fit the screen
      if (!best || lines < best.lines) best = { size, letters, lines };
    }
  measureAll(best.size, (fewest = best.letters));
  html.style.setProperty("--size", `${best.size[1]}rem`);
  html.style.setProperty("--tight", tight);
  const isMany = part("weights")?.cols > SENTENCE && part("weights").cols <= 40;
  if (best.lines < 2 || isNarrow() || $("main").style.width || !isMany) return;
  for (const isShade of [piece => isMap(piece) && !piece.stage.product, isMap]) {
    for (const piece of first.slice(1)) piece.isShade = isShade(piece);
    for (const piece of first) measure(piece, best.letters);
    if (widthOf(first) <= room) return;
  }
}

function measureLine(line, room) {
  const fits = letters => (line.forEach(piece => measure(piece, letters)), widthOf(line) <= room);
  LETTERS.some(fits) || fits(fewest);
  return line;
}

// The decimals of a stage, and the letters of its longest number.
function write(s, most) {
  s.decimals = decimalsOf(s, most);
  s.longest = isAsked(s) ? 6 : 0;
  if (!isPicture(s)) (s.words ?? s.data).forEach(x => (s.longest = max(s.longest, num(x, s.decimals).length)));
}
const isOfWork = strip => Boolean(strip.at(-1).stage.isWork); // what is seen only beside the arithmetic in a terminal
const firstStrip = () => strips.find(strip => strip.some(piece => piece.stage === part("scores"))) ?? strips.find(strip => !isOfWork(strip)) ?? strips[0];
function layOut() {
  setLargest();
  findStrips();
  views = [];
  const main = $("main"), words = globalThis.wordsPanel?.(), seen = new Set(), room = main.clientWidth;
  const first = firstStrip();
  chooseSize(first ?? [], room);
  main.after($("words"));
  fill(main);
  let title = null;
  for (const strip of new Set(first && [first, ...strips.filter(strip => !isOfWork(strip)), ...strips])) {
    const { heading } = (strip[1] ?? strip[0]).stage, box = el("section", { class: "strip" }, heading && heading !== title && el("h2", { text: heading }));
    title = heading;
    box.append(...cutStrip(strip, room).map(line => lineOf(measureLine(line, room), seen)));
    box.stages = (strip[1] ? strip.slice(1) : strip).map(piece => piece.stage);
    main.append(box);
    if (strip === first && words) main.append(words);
  }
  drawMap();
  paint();
}
function lineOf(line, seen) {
  return el("div", { class: "line" }, line.map((piece, at) => {
    const { stage, tops } = piece, isBare = at > 0 && piece.isBare;
    piece.room = $("main").clientWidth - widthOf(line.slice(0, at)) - (at ? 0 : namesOf(piece)) - 12;
    const stack = el("div", { class: "above" }, tops.map(top => viewOf(top, piece, isTurned(stage), seen, false)));
    const own = el("div", { class: isBare ? "own bare" : "own" }, viewOf(stage, piece, false, seen, true));
    stack.style.gridColumn = own.style.gridColumn = at + 1;
    return [stack, own];
  }));
}

// A table with its caption; where a stage stands for the first time it can be reached by a link.
function viewOf(s, piece, turned, seen, isOwn) {
  const isFirst = !seen.has(s) && (isOwn || !s.tree), { isShade } = piece;
  const isPacked = !isOwn && !turned && piece.stage.n > 1 && s.n === 1 && s.cols === piece.stage.cols * headsOf(piece.stage);
  const view = { s, turned, packed: isPacked ? piece.stage.cols : 0, isShade, cells: [], sums: [] };
  view.formula = isOwn && isFirst && span("formula");
  const note = view.formula && s.note && span("note", s.note), more = isOwn && (isCut(s, 0) || isCut(s, 1)) && moreOf(s);
  const caption = el("figcaption", {}, span("symbol", math(s.symbol), turned && el("sup", { text: "T" })), " ", span("kind", s.called), view.formula, note, more);
  const tables = isPicture(s) ? pictureOf(view) : tablesOf(view, piece, isOwn && hasSums(piece)), style = `--cell: ${piece.cell}ch; --label: ${piece.label}ch`;
  view.box = el("figure", { style, class: `view${canEdit(s) ? " editable" : ""}${isShade ? " shades" : ""}` }, el("div", { class: "scroll" }, tables), caption);
  if (isFirst) {
    view.box.id = `at-${s.id}`;
    seen.add(s);
  }
  if (view.cells[0]) view.cells[0].tabIndex = 0;
  views.push(view);
  return view.box;
}
// Of a table of which a few rows or columns are shown: how many, and how to see all.
function moreOf(s) {
  const counts = [0, 1].filter(axis => isCut(s, axis)).map(axis => `${FEW} of ${[s.rows, s.cols][axis]} ${axis ? "columns" : "rows"}`);
  const act = () => (whole.add(s), layOut());
  return span("note", `${counts.join(", ")} `, el("button", { text: "show all", "aria-label": `show all of ${s.short}`, onclick: act }));
}
// On paper a table that is too wide stands in bands of columns, each with the names of the rows.
function tablesOf(view, piece, isSummed) {
  const { room, edge, step } = piece;
  const { s, turned, packed } = view, [rowNames, colNames] = turned ? [s.colNames, s.rowNames] : [s.rowNames, s.colNames];
  const rowsOf = turned ? placesShown(s, 1) : placesShown(s, 0).length < s.rows ? placesShown(s, 0) : rowsAsked(s, s.rows);
  const columnsOf = packed ? range(isCut({ ...s, cols: packed }, 1) ? FEW : packed) : placesShown(s, turned ? 0 : 1);
  const n = columnsOf.length, most = $("main").style.width ? max(1, floor((room - edge) / step)) : n;
  const th = (label, scope, short) => el("th", { scope, title: labelText(label) }, span("label", labelNodes({ ...label, name: short })));
  const shortRows = shortened(rowNames, piece.label), shortColumns = shortened(colNames, piece.cell);
  const kept = (td, list) => list[list.push(td) - 1];
  const cell = (i, j) => kept(el("td", { tabIndex: -1, view, at: turned ? [j, i] : [i, j] }), view.cells);
  return range(Math.ceil(n / most)).map(band => {
    const columns = columnsOf.slice(band * most, band * most + most), hasSum = isSummed && columns.includes(columnsOf.at(-1));
    const head = el("tr", {}, el("td", { class: "corner" }), columns.map(j => th(colNames[j], "col", shortColumns[j])), hasSum && el("th", { class: "sum", scope: "col", text: "Σ" }));
    const rows = rowsOf.map(i => el("tr", {}, th(rowNames[i], "row", shortRows[i]), columns.map(j => cell(i, j)), hasSum && kept(el("td", { class: "sum" }), view.sums)));
    return el("table", { "aria-label": `${s.symbol}${turned ? " transposed" : ""}, ${s.short}`, role: "grid", class: s.words ? "words-of" : "" }, head, rows);
  });
}

// One pixel a cell; pointing at it says the number.
function pictureOf(view) {
  const { s, turned } = view, canvas = pixels(s, turned, { class: "picture", role: "img", "aria-label": `${s.short}, ${s.rows} × ${s.cols}` });
  view.canvas = canvas;
  on(canvas, "pointermove", ({ offsetX, offsetY }) => {
    const at = [(offsetY / canvas.offsetHeight) * canvas.height, (offsetX / canvas.offsetWidth) * canvas.width].map(Math.floor);
    light(cellAt(s, shownPlane(s), ...(turned ? at.reverse() : at)));
  });
  return canvas;
}
const pixels = (s, turned, more) => el("canvas", { width: turned ? s.rows : s.cols, height: turned ? s.cols : s.rows, ...more });

function drawPixels(canvas, s, plane, turned = false) {
  const context = canvas.getContext("2d"), most = s.shade ? undefined : mostOf(s);
  context.clearRect(0, 0, canvas.width, canvas.height);
  planeOf(s, plane).forEach((x, at) => {
    const i = floor(at / s.cols), j = at % s.cols;
    context.globalAlpha = isFinite(x) ? strengthOf(s, x, most) : 0.25;
    context.fillStyle = isFinite(x) ? `oklch(0.6 0.14 ${hueOf(s, x)})` : "grey";
    context.fillRect(turned ? i : j, turned ? j : i, 1, 1);
  });
}

// Numbers, shades and what is hidden; the tables themselves stay.
function paint(isChanged = () => false) {
  shownAt.clear();
  for (const td of all(".flash")) td.classList.remove("flash");
  document.body.offsetWidth; // so that what changes again flashes again
  for (const view of views) {
    const { s, canvas } = view, plane = shownPlane(s), isBlank = isHidden(s) || isAsked(s) || (state.edited && isStale(s));
    view.box.classList.toggle("later", isHidden(s));
    if (view.formula) fill(view.formula, math(formulaOf(s)));
    if (canvas) isBlank ? (canvas.width += 0) : drawPixels(canvas, s, plane, view.turned);
    s.decimals = decimalsOf(s, decimals);
    for (const td of view.cells) paintCell(td, view, plane, isBlank, isChanged);
    const total = i => sum([...planeOf(s, plane).subarray(i * s.cols, (i + 1) * s.cols)]);
    view.sums.forEach((td, i) => (td.textContent = isBlank ? unknownText(s) : trimmed(total(i), 4)));
  }
  for (const box of all(".strip")) box.hidden = box.stages.every(isHidden);
  paintSentences(state.step >= order.length && !state.quiz);
  globalThis.paintWords?.();
  paintTools();
  light(state.pinned);
}
const unknownText = s => (isAsked(s) ? "" : "?"); // what is to be filled in is blank where it stands again, too
function paintCell(td, view, plane, isBlank, isChanged) {
  const { s } = view, [i, j] = td.at, cell = cellAt(s, plane, i, j + view.packed * state.head), { at } = cell, x = s.data[at];
  td.cell = cell;
  tint(td, s, isBlank ? NaN : x);
  if (isAsked(s) && view.box.id) askIn(td);
  else td.textContent = isBlank ? unknownText(s) : view.isShade ? "" : num(s.words?.[at] ?? x, s.decimals, s);
  const isNew = state.edited && !isBlank && differs(x, s.original[at], 1e-12), is = { flash: isNew && isChanged(s, at), masked: x === -Infinity, new: isNew };
  for (const name in is) td.classList.toggle(name, is[name]);
  shownAt.set(cell, [...(shownAt.get(cell) ?? []), td]);
}

const isHidden = s => state.step < order.length && (order.includes(s) || isStale(s)) && stages.indexOf(s) > stages.indexOf(lastStage());
