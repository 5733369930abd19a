// ---- judging what was filled in, as `attncli check --by-hand` does: every stage from what was filled in
// before it, by the same rounding and with the same names of slips (commands/check/by_hand/judge.py)
const BEYOND = 1.05; // of a spread: what is not of the first order
const HIDES = -1e4, EXACT = 1e-6, MOVED = [0.01, 0.1, 10, 100], MOST_NAMED = 3, MOST_JUDGED = 400;
const JUDGED_MAPS = ["scores", "scaled", "capped", "masked", "weights", "dropped"];

const rounded10 = (x, decimals) => Number(fixed(x, decimals));
const halfDecimal = n => 0.5 * 10 ** -n * (1 + 1e-9);
// Half a unit of the last place of a number, which has two decimals or three digits at least.
function halfUnit(x, decimals) {
  const size = max(isFinite(x) ? abs(x) : x === x ? Number.MAX_VALUE : 0, 1e-300);
  return min(halfDecimal(decimals), max(halfDecimal(2), halfDecimal(3) * 10 ** (1 + floor(Math.log10(size)))));
}
function isNear(x, expected, allowed) {
  const least = 1e-9 * max(1, abs(expected));
  if (x === expected || (x !== x && expected !== expected)) return true;
  return abs(x - expected) <= allowed + (isFinite(least) ? least : 0) || (expected === -Infinity && x <= HIDES);
}
// How many decimals are written.
const placesOfText = text => text.match(/^[^.,]*[.,](\d+)$/)?.[1].length ?? 0;

// What cells are by a sheet (stage → place → number), computed once each where nothing gives them. `edits`:
// the formulas that stages have instead; `moved`: a cell that is moved to x. What depends on neither is as
// `base` has it.
function numbersBy(sheet, edits = NO_EDITS, base = null, moved = null, x = NaN) {
  const rows = new Map(), formOf = s => edits.get(s.id) ?? s, changed = moved ? [moved.s] : [...edits.keys()].map(id => byName.get(id));
  const isOpen = memo(s => (base ? changed.some(other => reads(s, other)) : edits.size > 0 || dependsOn(s, sheet)));
  const isSame = memo(cell => base && !edits.has(cell.s.id) && base.readBy(cell).every(read => at(read) === base.at(read)));
  const computed = memo(cell => (isSame(cell) ? base.computed(cell) : numberAt(cell, at, formOf(cell.s), rows)));
  const at = cell => {
    const { s } = cell, written = sheet.get(s);
    if (cell === moved) return x;
    if (written) return written(cell.at);
    if (!isOpen(s)) return base ? base.at(cell) : s.data[cell.at];
    return formOf(s).tree ? computed(cell) : s.data[cell.at];
  };
  const readBy = memo(cell => [...readsAt(cell, formOf(cell.s), at).keys()]);
  const slopesOf = memo(cell => (isSame(cell) ? base.slopesOf(cell) : slopesAt(cell, at, formOf(cell.s), rows)));
  const movesOf = memo(({ read, half }) => [half, -half].map(step => numbersBy(sheet, edits, numbers, read, at(read) + step)));
  const numbers = { at, computed, readBy, slopesOf, movesOf, formOf, sheet };
  return numbers;
}
// What takes long, once for each of what it depends on.
const memo = (compute, known = new Map()) => of => known.get(of) ?? known.set(of, compute(of)).get(of);
const NO_EDITS = new Map();
const reads = (s, other) => s === other || sourcesOf(s).some(source => reads(source, other));
const dependsOn = (s, sheet) => sheet.has(s) || sourcesOf(s).some(source => dependsOn(source, sheet));

// One sheet while it is judged: its stages in the order of the computation, each with its texts by place.
function judged(texts) {
  const sheet = { written: new Map(), unrounded: new Map(), halves: new Map(), texts };
  const result = { mistakes: [], follows: [], right: [], kinds: new Map() };
  for (const s of stages.filter(s => texts.has(s))) {
    const table = tableFrom(s, sheet), wrong = table.cells.filter(({ isWrong }) => isWrong);
    if (wrong.length) result.mistakes.push(...mistakesOf(table, sheet));
    else (!result.mistakes.length || table.cells.every(({ x, right, half }) => isNaN(x) || isNear(x, right, half)) ? result.right : result.follows).push(s);
    for (const one of table.cells) if (one.isFilled) result.kinds.set(one.cell, one.isWrong ? "wrong" : isNear(one.x, one.right, one.half) || result.right.includes(s) ? "right" : "follows");
    keepTable(table, sheet);
  }
  for (const { cells, slips } of result.mistakes)
    if (slips.length && slips.every(({ name }) => /rounded too early|^truncated/.test(name))) for (const { cell } of cells) result.kinds.set(cell, "imprecise");
  return result;
}

// A stage as it was filled in, beside what follows from what was filled in before it, and what is right.
function tableFrom(s, sheet) {
  const texts = sheet.texts.get(s), decimals = max(0, ...[...texts.values()].map(placesOfText));
  const isAll = s.data.length <= MOST_JUDGED, at = isAll ? range(s.data.length) : [...texts.keys()];
  const table = { s, decimals, cells: at.map(place => ({ cell: cellOf(s, place), x: texts.has(place) ? numberOf(texts.get(place)) : NaN, isFilled: texts.has(place) })) };
  const numbers = (table.numbers = numbersBy(new Map(sheet.written))), stepOf = stepsBy(numbers, sheet.halves, decimals); // as it is now: spreads are asked for later
  for (const one of table.cells) {
    if (s.undefined && one.isFilled && isNaN(one.x) && isNaN(valueAt(one.cell))) one.isFilled = false;
    one.half = halfUnit(one.x, decimals);
    one.right = valueAt(one.cell);
    one.expected = numbers.at(one.cell);
    one.spread = memo(() => spreadAt(one.cell, one.expected, numbers, stepOf));
    one.isWrong = one.isFilled && !isNaN(one.x) && ![one.right, one.expected].some(x => isNear(one.x, x, one.half)) && !isNear(one.x, one.expected, one.half + one.spread());
  }
  return table;
}

// What is said of a number by which others are computed: half a unit of its last place, in between as
// if it was filled in, and whether it follows from others itself.
const stepsBy = ({ at, sheet, formOf }, halves, decimals) => memo(read => {
  const { s } = read, x = at(read), isMap = JUDGED_MAPS.includes(s.short), isOpen = !sheet.has(s) && formOf(s).tree && (isMap || dependsOn(s, sheet));
  const half = sheet.has(s) ? halves.get(s)(read.at) : isMap && !isNear(x, rounded10(x, decimals), 0) && halfUnit(x, decimals);
  return { read, half: isFinite(x) ? +half : 0, isOpen };
});
// A cell behind all numbers before it, each after those that it is computed from.
function before(cell, numbers, stepOf) {
  const steps = new Map(), follow = read => {
    const step = read === cell ? { read, half: 0, isOpen: true } : stepOf(read);
    if (step.isOpen) for (const other of numbers.slopesOf(read).keys()) if (!steps.has(other)) follow(other);
    steps.set(read, step);
  };
  follow(cell);
  return [...steps.values()];
}
// How far off rounding puts a cell: each number before it is put up and down by half a unit.
function spreadAt(cell, value, numbers, stepOf) {
  const changes = before(cell, numbers, stepOf).filter(({ half }) => half).map(step => max(...numbers.movesOf(step).map(moved => abs(moved.computed(cell) - value))));
  return sum(changes.filter(isFinite)) * BEYOND;
}
// The same of a slip, by the slopes of its formulas: it may itself round, which turns nothing over.
function spreadOfSlip(cell, numbers, stepOf) {
  const slopes = new Map([[cell, 1]]);
  let spread = 0;
  for (const { read, half, isOpen } of before(cell, numbers, stepOf).reverse()) {
    const by = slopes.get(read) ?? 0;
    spread += abs(by) * half;
    if (isOpen) for (const [other, slope] of numbers.slopesOf(read)) slopes.set(other, (slopes.get(other) ?? 0) + by * slope);
  }
  return spread * BEYOND;
}

// Takes a stage as it was filled in for what comes after it, blank cells as they should be.
function keepTable({ s, decimals, cells }, sheet) {
  const byPlace = new Map(cells.map(one => [one.cell.at, one])), unrounded = numbersBy(sheet.unrounded);
  for (const one of cells) {
    one.isBlank = isNaN(one.x);
    one.number = one.isBlank || (one.x <= HIDES && one.expected === -Infinity) ? one.expected : one.x;
    const isShort = isNear(one.expected, rounded10(one.expected, decimals), 0);
    one.isExact = (isShort || !one.isBlank) && isNear(one.number, one.expected, 0) && one.spread() === 0;
    one.unrounded = one.isWrong ? one.number : unrounded.at(one.cell);
  }
  const areExact = cells.every(one => one.isExact || one.isWrong);
  for (const one of cells) {
    const isExact = one.isExact || (one.isWrong && one.x === Math.round(one.x) && areExact);
    one.keptHalf = isExact ? () => 0 : one.isBlank ? memo(() => halfUnit(one.expected, decimals) + one.spread()) : () => one.half;
  }
  const of = (name, at) => (byPlace.has(at) ? byPlace.get(at)[name] : s.data[at]);
  const hidden = s.short === "masked" && sourcesOf(s).find(source => source.short === "mask");
  if (hidden) {
    const isOne = hidden.data.length === s.data.length, from = at => (of("number", at) === -Infinity ? -Infinity : 0);
    for (const map of [sheet.written, sheet.unrounded]) if (isOne) map.set(hidden, from);
    sheet.halves.set(hidden, () => 0);
  }
  sheet.written.set(s, at => of("number", at));
  sheet.unrounded.set(s, at => of("unrounded", at));
  sheet.halves.set(s, at => byPlace.get(at)?.keptHalf() ?? 0);
}

// ---- the slips

// Every slip that can be made in a stage, or in those before it that are not filled in.
function* otherForms(s, sheet) {
  const { prefix } = s.group, rows = page.slips?.lists[page.slips.of[prefix]] ?? [];
  const isOpen = id => id === s.id || (reads(s, byName.get(id)) && !sheet.written.has(byName.get(id)));
  for (const row of rows) {
    const ids = keys(row.edits).map(name => prefix + name).filter(isOpen);
    if (!ids.length) continue;
    row.formOf ??= memo(id => formOf(byName.get(id), row.edits[id.slice(prefix.length)]));
    for (const [words, params] of row.of) {
      const edits = new Map(ids.map(id => [id, row.formOf(id)]));
      for (const [id, form] of edits) assign(form.params, byName.get(id).params, params);
      yield [{ name: row.name, detail: words }, s.short in row.edits ? row.place : "row", edits];
    }
  }
}
// A stage by another formula, which may read `right`: the stage as it should be, of a mask that which is
// left without its triangle.
function formOf(s, edit) {
  const isTriangle = !s.tree && isSquareCausal(s), right = { ...s, id: `${s.id}, right`, short: "", all: [] };
  if (isTriangle) right.data = new Float64Array(s.data.length);
  const { prefix } = s.group, inBlock = name => (byName.has(prefix + name) ? prefix + name : name);
  const read = Object.fromEntries(entries(edit.reads).map(([name, id]) => [name, inBlock(id)]));
  return prepare({ ...s, ...edit, reads: read, params: {}, arrays: { ...s.arrays, right } });
}

function mistakesOf(table, sheet) {
  const { s, decimals, cells } = table, explained = new Map(), exactly = new Map(), digits = new Map();
  const add = (slip, at, maps = [explained, exactly]) => {
    const key = `${slip.name}\n${slip.detail}`;
    for (const map of maps) {
      if (!map.has(key)) map.set(key, { slip, places: new Set() });
      if (at !== undefined) map.get(key).places.add(at);
    }
  };
  const groupOf = { cell: one => one.cell.at, row: one => floor(one.cell.at / s.cols), table: one => one.cell.p };
  const wrong = cells.filter(one => one.isWrong), inTurn = cells.toSorted((a, b) => b.isWrong - a.isWrong);
  for (const [slip, place, edits] of otherForms(s, sheet)) {
    add(slip);
    const numbers = numbersBy(sheet.written, edits, table.numbers), group = groupOf[place], failed = new Set(), concerned = new Set(wrong.map(group));
    const stepOf = stepsBy(numbers, sheet.halves, decimals), isLike = (one, x, more = 0) => isNear(one.x, x, one.half + more);
    const agrees = (one, x = numbers.at(one.cell)) => isNaN(one.x) || isLike(one, x) || (!(one.isWrong && x === one.expected) && isLike(one, x, spreadOfSlip(one.cell, numbers, stepOf)));
    for (const one of inTurn) if (concerned.has(group(one)) && !failed.has(group(one)) && !agrees(one)) failed.add(group(one));
    const explains = wrong.filter(one => !failed.has(group(one))), isAlike = (one, x = numbers.at(one.cell)) => isLike(one, x, 9 * one.half + 0.05 * abs(x));
    if (!explains.length || !inTurn.some(one => isAlike(one))) continue;
    const others = memo(() => [sheet.unrounded, roundedSheet(s, sheet, edits, decimals)].map(other => numbersBy(other, edits)));
    for (const one of explains) {
      const isExact = [numbers, ...others()].some(other => isLike(one, other.at(one.cell)));
      add(slip, one.cell.at, isExact ? undefined : [explained]);
    }
  }
  const remaining = new Map(wrong.map(one => [one.cell.at, one]));
  for (const [at, one] of remaining) {
    const isBoth = abs(one.right - one.expected) <= one.half + one.spread(), numbers = isBoth ? [one.expected, one.right] : [one.expected];
    if (![one.x, ...numbers].every(isFinite)) continue;
    digits.set(at, slipsOfDigits(one.x, numbers, decimals));
    for (const slip of slipsOfRounding(one.x, numbers, max(decimals, 2))) add(slip, at);
    for (const slip of slipsOfOne(one, numbers, table)) add(slip, at, [exactly]);
  }
  const mistakes = [];
  while (remaining.size) {
    const [places, slips] = mostOfSlips(explained, exactly, digits, [...remaining.keys()]);
    mistakes.push({ s, cells: places.map(at => remaining.get(at)), slips });
    for (const at of places) remaining.delete(at);
  }
  return mistakes.sort((a, b) => a.cells[0].cell.at - b.cells[0].cell.at);
}
// The sheet, with stages that are not on it rounded as the numbers of this one.
function roundedSheet(s, sheet, edits, decimals) {
  const other = new Map(sheet.written), places = max(decimals, 2);
  for (const each of stages.filter(each => JUDGED_MAPS.includes(each.short) && each !== s && each.group === s.group && reads(s, each) && !sheet.written.has(each))) {
    const { at } = numbersBy(new Map(other), edits);
    other.set(each, place => rounded10(at(cellOf(each, place)), places));
  }
  return other;
}

// The most of the wrong numbers that one slip gives, and the slips that give just these.
function mostOfSlips(explained, exactly, digits, places) {
  const shared = [...explained.values()].map(({ slip, places: its }) => [slip, places.filter(at => its.has(at))]);
  const most = shared.reduce((best, [, its]) => (its.length > best.length ? its : best), []);
  if (places.length > MOST_NAMED && most.length < places.length) {
    const ofName = new Map();
    for (const [{ name }, its] of shared) ofName.set(name, new Set([...(ofName.get(name) ?? []), ...its]));
    const names = [...ofName].filter(([, its]) => its.size === places.length).map(([name]) => ({ name, words: name }));
    if (names.length || 2 * most.length < places.length) return [places, names];
  }
  if (most.length > 1) return [most, inWords(shared.filter(([, its]) => its.length === most.length && its.every((at, n) => at === most[n])).map(([slip]) => slip))];
  const [at] = places, all = [...exactly.values()].filter(({ places: its }) => its.has(at)).map(({ slip }) => slip), some = all.filter(slip => !slip.isAlone);
  return [[at], inWords([...(digits.get(at) ?? []), ...(some.length ? some : all)])];
}
// Slips in words, each once, with all that its name leaves open.
function inWords(slips) {
  const details = new Map();
  for (const { name, detail } of slips) details.set(name, [...new Set([...(details.get(name) ?? []), ...(detail ? [detail] : [])])]);
  return [...details].map(([name, more]) => ({ name, words: more.length ? `${name}, ${more.join(" or ")}` : name }));
}

function slipsOfDigits(x, numbers, decimals) {
  return numbers.flatMap(number => {
    const [a, b] = [x, number].map(each => abs(each).toFixed(decimals)), off = abs(Number(a) - Number(b)).toFixed(decimals);
    const pairs = range(min(a.length, b.length)).filter(n => a[n] !== b[n]).map(n => a[n] + b[n]), isAlike = a.length === b.length;
    if (isAlike && a.length > 1 && pairs.length === 1) return [{ name: "one digit is wrong", detail: "" }];
    if (isAlike && pairs.length === 2 && pairs[0] === [...pairs[1]].reverse().join("")) return [{ name: "two digits are exchanged", detail: "" }];
    const isCarry = off.replace(/^[0.]+|[0.]+$/g, "") === "1" && Number(off) > 1.5 * 10 ** -decimals;
    return isCarry ? [{ name: "a carry is wrong", detail: `the number is off by exactly ${Number(Number(off).toPrecision(6))}` }] : [];
  });
}
function slipsOfRounding(x, numbers, decimals) {
  return range(decimals + 1).flatMap(n => {
    const unit = 10 ** -n, words = `${n} decimal${n === 1 ? "" : "s"}`;
    if (abs(x / unit - Math.round(x / unit)) > EXACT) return [];
    const before = EXACT * unit + (n < decimals ? 0.5 * 10 ** -decimals : 0);
    const cut = numbers.filter(number => x * number >= 0).map(number => abs(number) - abs(x));
    return [
      n < decimals && numbers.some(number => abs(x - number) <= unit / 2 + before) && { name: "rounded too early", detail: `to ${n ? words : "whole numbers"}` },
      cut.some(off => -before <= off && off < unit * (1 - EXACT)) && { name: "truncated, not rounded", detail: `after ${n ? words : "the point"}` },
    ].filter(Boolean);
  });
}
function slipsOfOne({ x, cell: { s, p, i, j } }, numbers, { cells, decimals }) {
  const half = 0.5 * 10 ** -decimals, slips = [], isClose = (a, b) => abs(a - b) <= 1e-8 + 1e-5 * abs(b);
  const moved = numbers.flatMap(number => MOVED.map(factor => [factor * number, factor * rounded10(number, decimals)]));
  if (abs(x) > half && moved.some(([number, round]) => round && (abs(x - number) <= half || isClose(x, round)))) slips.push({ name: "the decimal point is in the wrong place", detail: "", isAlone: true });
  const beside = { "the one above": [i - 1, j], "the one below": [i + 1, j], "the one on the left": [i, j - 1], "the one on the right": [i, j + 1] };
  for (const [words, [row, column]] of entries(beside)) {
    const other = cells.find(({ cell }) => cell.p === p && cell.i === row && cell.j === column);
    if (other && other.x === x && !other.isWrong) slips.push({ name: "copied from its neighbour", detail: words, isAlone: true });
  }
  return slips;
}
