// ---- A stage is one formula, that of attncli: its number and the cells that it reads follow from it.
//   scores: ["sum d", ["*", { q: ["b", "h", "i", "d"] }, { k: ["b", "h", "j", "d"] }]], at b, h, i, j
// attncli/formats/html/tree.py says how the tree is written. Each node becomes a function `run` of the
// places of all letters, such as { b: 0, h: 1, i: 2, j: 0 }, and what reads a cell has `back`, too: it
// adds to each cell that is read by how much the number changes with it, times `by`.

const { abs, exp, floor, log, max, min } = Math, { assign, entries, keys, values } = Object;
const FUNCTIONS = {
  "+": (a, b) => a + b, "-": (a, b) => a - b, "*": (a, b) => a * b, "/": (a, b) => a / b, neg: a => -a,
  "//": (a, b) => floor(a / b), "%": (a, b) => a - b * floor(a / b), "**": (a, b) => (b === 2 ? a * a : a ** b),
  "==": (a, b) => a === b, "!=": (a, b) => a !== b, "<": (a, b) => a < b, "<=": (a, b) => a <= b,
  ">": (a, b) => a > b, ">=": (a, b) => a >= b, and: (a, b) => a && b, or: (a, b) => a || b, not: a => !a,
  if: (a, b, c) => (c ? a : b), ln: log, degrees: a => (a * 180) / Math.PI,
  arccos: a => Math.acos(min(max(a, -1), 1)), // but for rounding
};
const SPECIAL = { Infinity, "-Infinity": -Infinity, NaN };
const numberOfText = x => SPECIAL[x] ?? x;
const range = n => [...Array(n).keys()];
const sum = numbers => numbers.reduce((total, x) => total + x, 0);

const byName = new Map(); // dotted name → stage
let sums = 0; // how many nodes run along letters
let recorded = null; // the cells that are read, while they are asked for, and their sides
let substitute = null; // what gives other numbers for cells, while those are asked for

const sizeOf = (stage, letter) => stage.sizes[letter] ?? 1;

// Makes the functions of a stage from its tree.
function prepare(stage) {
  stage.sources = {};
  stage.operands = [];
  const n = min(stage.at.length, stage.shape.length);
  const axes = n ? stage.at.slice(-n) : [], shape = n ? stage.shape.slice(-n) : [];
  stage.placesAt = flat => {
    const places = {};
    for (let axis = n - 1; axis >= 0; axis--) {
      setLetters(stage, places, axes[axis], flat % shape[axis]);
      flat = floor(flat / shape[axis]);
    }
    return places;
  };
  stage.product = null;
  stage.tree = compiled(stage, stage.is, false);
  return stage;
}

// Puts letters that are side by side at a place of their axis.
function setLetters(stage, places, letters, at) {
  for (let back = letters.length - 1; back >= 0; back--) {
    const size = sizeOf(stage, letters[back]);
    places[letters[back]] = at % size;
    at = floor(at / size);
  }
  return places;
}

// A node of the tree; a guard only says which terms count, and is no operand.
function compiled(stage, is, isGuard) {
  if (typeof is === "number" || is in SPECIAL) {
    const x = numberOfText(is);
    return { op: "number", run: () => x };
  }
  if (typeof is === "string") return { op: is[1] ? "parameter" : "place", run: places => places[is] ?? stage.params[is] ?? 0 };
  if (!Array.isArray(is)) return compiledCell(stage, ...entries(is)[0], isGuard);
  const [op, letters] = is[0].split(" ");
  if (op === "size") return { op, letter: is[1], run: () => sizeOf(stage, is[1]) };
  if (letters) return compiledOver(stage, op, letters, is.slice(1), isGuard);
  const order = op === "if" ? [2, 3, 1] : range(is.length).slice(1); // what decides comes last
  const args = order.map(at => compiled(stage, is[at], isGuard));
  const [a, b, c] = args.map(arg => arg.run), apply = FUNCTIONS[op] ?? Math[op];
  const run = c ? places => (c(places) ? a(places) : b(places)) : b ? places => apply(a(places), b(places)) : places => apply(a(places));
  const back = (places, by, add) => {
    const numbers = args.map(arg => arg.run(places));
    args.forEach((arg, n) => arg.back?.(places, by * slope(x => apply(...numbers.with(n, x)), numbers[n]), add));
  };
  return { op, args, run, back };
}
// By how much a function changes with its argument, where it has an edge, on the flatter side.
function slope(of, x) {
  const step = 1e-6 * max(1, abs(x)), y = of(x), up = of(x + step) - y, down = y - of(x - step);
  return (abs(up) < abs(down) ? up : down) / step;
}
function compiledCell(stage, name, index, isGuard) {
  const source = stage.arrays?.[name] ?? byName.get(stage.reads[name]), text = JSON.stringify([name, index]);
  const axes = index.slice(-source.shape.length), shape = source.shape.slice(-axes.length);
  const along = axes.map((axis, n) => placeAlong(stage, axis, shape[n]));
  if (!isGuard && byName.has(source.id)) {
    stage.sources[name] = source;
    if (!stage.operands.includes(text)) stage.operands.push(text);
  }
  const node = { op: "cell", source, axes, last: axes.at(-1), side: stage.operands[0] === text ? "left" : "top" };
  node.at = places => along.reduce((at, place, n) => at * shape[n] + place(places), 0);
  node.run = places => {
    const at = node.at(places);
    if (source.id) recorded?.set(cellOf(source, at), node.side);
    return substitute && source.id ? substitute(cellOf(source, at)) : source.data[at];
  };
  if (source.id) node.back = (places, by, add) => add(cellOf(source, node.at(places)), by);
  return node;
}

// Where an axis of a cell is: at letters side by side, a fixed place, or a computed one.
function placeAlong(stage, axis, size) {
  if (typeof axis === "number" || size === 1) return () => (size > 1 ? axis : 0);
  if (Array.isArray(axis)) {
    const { run } = compiled(stage, axis[0], true);
    return places => Math.trunc(min(max(run(places) || 0, 0), size - 1));
  }
  const letters = [...axis];
  return places => letters.reduce((at, letter) => at * sizeOf(stage, letter) + (places[letter] ?? 0), 0);
}

// A sum, a largest number, a softmax or the log of a sum of powers along letters.
function compiledOver(stage, op, letters, [is, where, sink, empty], isGuard) {
  const body = compiled(stage, is, isGuard), guard = where && compiled(stage, where, true);
  const last = sink != null && compiled(stage, sink, isGuard);
  const count = [...letters].reduce((all, letter) => all * sizeOf(stage, letter), 1);
  const node = { op, letters, count, body, guard, sink: last, args: last ? [body, last] : [body] }, own = sums++;
  // What all cells of a row have alike is computed once a row, while many of them are asked for.
  const others = [...new Set(JSON.stringify([is, where, sink]).match(/\p{L}/gu))].filter(letter => !letters.includes(letter));
  const isShared = [...stage.at.join("")].some(letter => !others.includes(letter));
  node.counts = places => !guard || guard.run(places);
  node.terms = places => range(count).map(term => setLetters(stage, { ...places }, letters, term));
  const filtered = places => {
    const inner = { ...places }; // one for all terms: there are many
    return Float64Array.from({ length: count }, (_, term) => (node.counts(setLetters(stage, inner, letters, term)) ? body.run(inner) : -Infinity));
  };
  const logSum = places => {
    const all = filtered(places), end = last ? last.run(places) : -Infinity, top = max(...all, end);
    const shift = abs(top) === Infinity ? 0 : top; // −∞ − −∞ would be NaN
    return shift + log(sum(all.map(x => exp(x - shift))) + exp(end - shift));
  };
  const once = (places, number) => {
    const done = isShared && stage.rowsDone, key = done && `${own} ${others.map(letter => places[letter]).join()}`;
    if (done && !done.has(key)) done.set(key, number(places));
    return done ? done.get(key) : number(places);
  };
  const share = places => {
    const whole = once(places, logSum);
    if (guard && whole === -Infinity) return { nan: NaN, uniform: 1 / count }[empty] ?? 0;
    return node.counts(places) ? exp(body.run(places) - whole) : 0;
  };
  const total = places => {
    const inner = { ...places };
    let all = +(op === "prod");
    for (let term = 0; term < count; term++) {
      setLetters(stage, inner, letters, term);
      if (node.counts(inner)) all = op === "prod" ? all * body.run(inner) : all + body.run(inner);
    }
    return all;
  };
  // The sum of products of a row and a column that a formula is, or is made of first.
  const [a, b] = body.op === "*" ? body.args : [], isOwn = axis => [...String(axis)].some(letter => !a.axes.join("").includes(letter));
  if (op === "sum" && a?.op === "cell" && a.last === letters && b.op === "cell" && b.axes.some(isOwn)) stage.product ??= { node, a, b, isTurned: b.last === letters };
  const whole = { sum: total, prod: total, max: places => max(...filtered(places)), lse: logSum }[op];
  node.run = op === "softmax" ? share : places => once(places, whole);
  node.back = (places, by, add) => {
    const number = node.run(places), isShare = op === "softmax", all = isShare ? once(places, logSum) : number, part = isShare ? -by * number : by;
    const times = { sum: () => 1, prod: x => all / x, max: x => +(x === all) }[op] ?? (x => exp(x - all)), follow = (arg, inner) => arg.back?.(inner, part * times(arg.run(inner)), add);
    for (const inner of node.terms(places)) if (node.counts(inner)) follow(body, inner);
    if (last) follow(last, places);
    if (isShare && node.counts(places)) body.back?.(places, by * number, add);
  };
  return node;
}

const sourcesOf = stage => values(stage.sources);

// ---- A cell is there once: stage, place in its data, plane, row, column. A plane is one head of one
// batch entry.
function cellOf(s, at) {
  const row = floor(at / s.cols);
  return (s.all[at] ??= { s, at, p: floor(row / s.rows), i: row % s.rows, j: at % s.cols });
}
const cellAt = (s, p, i, j) => cellOf(s, (p * s.rows + i) * s.cols + j);
const placesOf = ({ s, at }) => s.placesAt(at);
const valueAt = ({ s, at }) => s.data[at];

function compute(stage) {
  stage.rowsDone = new Map(); // what all cells of a row share
  for (let at = 0; at < stage.data.length; at++) stage.data[at] = stage.tree.run(stage.placesAt(at));
  stage.rowsDone = null;
}

// What a cell would be if `other` gave the numbers that it reads, always the same ones with the same `rows`;
// the cells that are read are recorded, each with its side: "left" of the first operand, "top" of the others.
function numberAt(cell, other, form = cell.s, rows = null, reads = null, run = form.tree?.run, ...more) {
  const outer = [substitute, recorded, form.rowsDone];
  [substitute, recorded, form.rowsDone] = [other, reads, rows];
  const x = run?.(form.placesAt(cell.at), ...more);
  [substitute, recorded, form.rowsDone] = outer;
  return x;
}
function readsAt(cell, form = cell.s, other = null, reads = new Map()) {
  numberAt(cell, other, form, null, reads);
  return reads;
}
// By how much a cell changes with each that it reads.
function slopesAt(cell, other, form, rows) {
  const slopes = new Map(), add = (read, by) => by && isFinite(by) && slopes.set(read, (slopes.get(read) ?? 0) + by);
  numberAt(cell, other, form, rows, null, form.tree.back, 1, add);
  return slopes;
}

// The pairs of cells that are multiplied and summed.
function pairsAt(cell) {
  if (!cell.s.product) return [];
  const { node, a, b } = cell.s.product;
  return node.terms(placesOf(cell)).map(inner => [a, b].map(factor => cellOf(factor.source, factor.at(inner))));
}
