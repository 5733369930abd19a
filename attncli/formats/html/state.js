// ---- the state of the page, and how it changes
//   state.changes ── settle ──> the numbers, names and formulas of all stages
// Every change is one entry of a list, of which the first `done` count: that is also what is undone.
const state = {
  head: 0, batch: 0, layer: null, group: null, step: Infinity, // what is looked at
  pinned: null, forwards: false, quiz: false, walk: null,
  locked: "", // why no number can be changed
  changes: null, // of the numbers as they came: see asItCame
  edited: false, // whether they make a difference
};
const changeList = [];
let done = 0;

// cells: stage → place → number; params: name → number; words: place → word. causal: no query sees a
// later key; byCell: there is a mask of which each cell can be turned, where there was none.
const asItCame = () => ({ cells: {}, params: {}, words: {}, causal: masks().some(isCausal), byCell: false });

// What each change makes of the changes before it.
const APPLY = {
  cell: (changes, id, at, x) => withCells(changes, id, { [at]: x }),
  parameter: (changes, name, x) => ({ ...changes, params: { ...changes.params, [name]: x } }),
  word: (changes, at, word) => {
    const { id, cols } = embeddings(), cells = entries(changes.cells[id] ?? {}).filter(([place]) => floor(place / cols) !== at);
    return { ...changes, words: { ...changes.words, [at]: word }, cells: { ...changes.cells, [id]: Object.fromEntries(cells) } };
  },
  causal: (changes, isOn) => {
    const other = { ...changes, causal: isOn }, { length } = maskNow(other), later = range(length).filter(isLater);
    const isStill = !isOn && later.every(at => maskNow(other)[at] === -Infinity);
    return isStill ? withCells(other, "mask", Object.fromEntries(later.map(at => [at, visible(at)]))) : other;
  },
  byCell: ({ cells: { mask, ...cells }, ...changes }, isOn) => ({ ...changes, cells, byCell: isOn }),
  maskCell: (changes, at) => {
    const now = maskNow(changes), isOther = changes.causal && isLater(at);
    const later = isOther ? range(now.length).filter(isLater).map(other => [other, -Infinity]) : [];
    const cells = { ...Object.fromEntries(later), [at]: now[at] === -Infinity ? visible(at) : -Infinity };
    return withCells({ ...changes, causal: changes.causal && !isOther, byCell: groupsToMask().length > 0 }, "mask", cells);
  },
  reset: () => origin.changes,
};
const withCells = (changes, id, cells) => ({ ...changes, cells: { ...changes.cells, [id]: { ...changes.cells[id], ...cells } } });
const changesAt = n => changeList.slice(0, n).reduce((changes, [kind, ...more]) => APPLY[kind](changes, ...more), origin.changes);
const textOf = changes => JSON.stringify(changes, (_, x) => (typeof x === "number" ? String(x) : x));

let isLive = false; // while a number is dragged: nothing flashes, and it is one change
function change(...one) {
  const last = changeList[done - 1], isSame = isLive && last?.isLive && last[0] === one[0] && last[1] === one[1] && (one.length < 4 || last[2] === one[2]);
  changeList.length = isSame ? done - 1 : done;
  changeList.push(assign(one, { isLive }));
  done = changeList.length;
  if (!isLive && textOf(changesAt(done)) === textOf(state.changes)) changeList.length = --done; // it changes nothing
  update();
}
function turnBack(by) {
  if (state.quiz || !(done + by in [...changeList, 0])) return;
  done += by;
  update();
}
// After a number was dragged what it is now is a change like any other.
function endDrag() {
  isLive = false;
  for (const one of changeList) one.isLive = false;
  if (done && textOf(changesAt(done)) === textOf(changesAt(done - 1))) changeList.length = --done;
}

// Everything again from the changes; what has changed flashes.
function update() {
  const before = stages.map(s => s.id).join(), names = labelsNow();
  settle(changesAt(done));
  computed().forEach(compute);
  const isOther = s => s.group.fresh?.includes(s) || keys(s.had).some(name => s.params[name] !== s.had[name]);
  const isRenamed = keys(state.changes.words).some(at => labels[embeddings().names[0]][at].name !== state.changes.words[at]);
  state.edited = isRenamed || stages.some(s => isOther(s) || s.data.some((x, at) => differs(x, s.original[at], 1e-12)));
  if (!state.edited) for (const s of stages) s.data.set(s.original); // to the last digit as they came
  const moved = (s, at) => differs(s.data[at], s.shown[at], 1e-12), n = sum(computed().map(s => s.data.filter((_, at) => moved(s, at)).length));
  showChange((s, at) => !isLive && moved(s, at), before !== stages.map(s => s.id).join() || names !== labelsNow());
  if (!isLive) announce(state.edited ? `${n} numbers have changed` : "the numbers are as they came");
  for (const s of stages) s.shown = s.data.slice();
}
const labelsNow = () => keys(state.changes.words).map(at => state.changes.words[at]).join("\n");

// Puts the numbers of the inputs, the parameters, the words and the mask into the stages.
function settle(changes) {
  state.changes = changes;
  for (const group of groupsToMask()) if (Boolean(group.isMasked) !== (changes.causal || changes.byCell)) turnMask(group);
  const words = embeddings()?.names[0], fresh = words === undefined ? null : labelsOf(labels[words].map(({ name }, at) => changes.words[at] ?? name));
  for (const s of stages) {
    if (s.isInput) s.data.set(s.original);
    if (s === embeddings()) for (const [at, word] of entries(changes.words)) s.data.set(vectorOf(word, s), at * s.cols);
    for (const [at, x] of entries(changes.cells[s.id] ?? {})) if (s.isInput) s.data[at] = x;
    for (const name in s.params) s.params[name] = changes.params[name] ?? s.had[name];
    [s.rowNames, s.colNames] = s.names.map((name, axis) => (name === words ? fresh : labels[name]).slice(0, axis ? s.cols : s.rows));
  }
  for (const s of masks()) if (!s.isFixed) s.data.set(maskNow(changes));
}

// ---- the mask
const groupsToMask = () => page.groups.filter(group => group.ifMasked);
const masks = () => page.groups.map(group => byName.get(group.attention?.mask)).filter(Boolean); // of layers, which have the same
const aMask = () => masks()[0] ?? groupsToMask()[0]?.fresh?.[0] ?? groupsToMask()[0]?.ifMasked[0];

// Where a query sees no later key: of more keys than queries the last query sees all, where it came so.
const isAfter = ({ rows, cols }, shift, at) => at % cols > (floor(at / cols) % rows) + shift;
const isCausalBy = (s, shift) => s.data.some((_, at) => isAfter(s, shift, at)) && s.data.every((x, at) => x === -Infinity || !isAfter(s, shift, at));
const shiftOf = s => s.shift ??= max(0, range(max(1, s.cols - s.rows + 1)).find(shift => s.original && isCausalBy({ ...s, data: s.original }, shift)) ?? 0);
const isCausal = s => isCausalBy(s, shiftOf(s));
const isLater = at => isAfter(aMask(), shiftOf(aMask()), at);

// What a cell is added that is not masked; the mask of these changes.
function visible(at) {
  const x = aMask().original?.[at] ?? 0;
  return x === -Infinity ? 0 : x;
}
function maskNow({ cells, causal }) {
  const s = aMask(), base = s?.original ?? new Float64Array(s ? s.rows * s.cols : 0);
  return base.map((x, at) => (isLater(at) && causal ? -Infinity : cells.mask?.[at] ?? (origin.changes.causal && isLater(at) ? visible(at) : x)));
}

// Two more stages where there was no mask, and the formulas that attncli has with one.
const FORMULA = ["is", "at", "sizes", "reads", "remark", "formula", "had"];

// Adds the stages or takes them away, and exchanges the formulas of those that read them.
function turnMask(group) {
  const isOn = (group.isMasked = !group.isMasked), changed = group.ifMasked.filter(step => !step.shape);
  const fresh = (group.fresh ??= group.ifMasked.filter(step => step.shape).map(step => newStage(step, group)));
  for (const s of fresh) isOn ? byName.set(s.id, s) : byName.delete(s.id);
  for (const step of changed) {
    const s = byName.get(step.id);
    step.had ??= { ...paramsOf(step), ...s.had };
    for (const name of FORMULA) [s[name], step[name]] = [step[name], s[name]];
    s.params = { ...s.had };
  }
  if (isOn) stages.splice(stages.findIndex(s => s.id === changed[0].id), 0, ...fresh);
  else stages.splice(stages.indexOf(fresh[0]), fresh.length);
  group.attention.mask = isOn && fresh[0].id;
  for (const { id } of isOn ? group.ifMasked : changed) if (byName.get(id).is) prepare(byName.get(id));
}

// How the switches and fields stand: as what is computed.
const has = name => inGroup().find(s => isFinite(s.params[name]));
const scaleName = () => ["temperature", "root", "factor"].find(has) ?? "factor";
// What the scores are divided by, beside the scale that the page came with.
const temperature = ({ params, had }, name) => (name === "factor" ? had[name] / params[name] : name === "root" ? params[name] / had[name] : params[name]);
const controls = () => ({
  causal: Boolean(mask()) && isCausal(mask()), mask: groupsToMask().length ? state.changes.byCell : Boolean(mask()),
  undo: done > 0, redo: done < changeList.length, reset: state.edited,
});

// The vector of a word: as it came, or drawn from the seed; none of one that is not known.
const embeddings = () => byName.get("embeddings");
function vectorOf(word, { cols, names, original }) {
  const at = labels[names[0]].findIndex(({ name }) => name === word);
  return at >= 0 ? original.subarray(at * cols, (at + 1) * cols) : globalThis.randomVector?.(word, cols, page.seed);
}

// Reads the page, and computes it once.
const origin = {};
function begin() {
  readData();
  state.layer = page.groups.find(group => group.attention && byName.has(group.attention.weights))?.layer ?? null;
  origin.changes = state.changes = asItCame();
  state.locked = check();
}

const computed = () => stages.filter(s => s.tree);
const isHere = s => !s.bytes && (s.layer === state.layer || !s.layer);

// Of several attentions in a layer, as a decoder has them, the one that is looked at.
const groupShown = () => state.group ?? page.groups.find(group => group.attention && (group.layer ?? null) === state.layer) ?? page.groups[0];
// The plane that is shown: that of the batch entry and head that are chosen, or of the heads that share it.
const mostHeads = () => max(...stages.filter(isHere).map(headsOf));
const headShown = s => (groupShown()?.tiled ? state.head % headsOf(s) : floor((state.head * headsOf(s)) / mostHeads()));
const shownPlane = s => (s.batches > 1 ? state.batch * headsOf(s) : 0) + headShown(s);
const headWords = ({ s, p }) => [s.batches > 1 && `batch entry ${floor(p / headsOf(s)) + 1}`, headsOf(s) > 1 && `head ${(p % headsOf(s)) + 1}`].filter(Boolean).join(", ");

const inGroup = () => stages.filter(s => s.group === groupShown());
const part = role => byName.get(groupShown()?.attention?.[role]);
const mask = () => part("mask");
// Computed, but by no formula that is here: after a change it is not known.
const isStale = s => !s.isInput && !s.words && !s.whole && (!s.tree || sourcesOf(s).some(isStale));
let asked = new Set(); // the stages whose numbers are to be filled in
const isAsked = s => asked.has(s);
const isSheet = () => stages.some(s => s.blank); // a worksheet, on which nothing else can be done
const WORK = 4e6; // products that are computed again at most, at each change
const differs = (a, b, most) => a !== b && !(abs(a - b) <= most * max(1, abs(a), abs(b))) && (a === a || b === b);

// Computes every stage from the numbers of the trace: a formula that does not give the stage is not
// used. Says why the numbers cannot be changed, or nothing.
function check() {
  let problem = page.locked ?? "";
  const products = s => s.data.length * max(1, ...sourcesOf(s).map(source => source.cols));
  const isLarge = !isSheet() && sum(computed().map(products)) > WORK; // a sheet is computed once
  for (const s of isLarge ? [] : computed()) {
    compute(s);
    if (!s.blank && s.data.some((x, at) => differs(x, s.original[at], 2e-6))) s.tree = s.product = null; // of a small angle few digits are known
    if (s.blank) s.original.set(s.data);
    s.data.set(s.original);
  }
  const unknown = page.groups.flatMap(group => values(group.attention ?? {})).map(id => byName.get(id)).find(isStale);
  if (isLarge) problem ||= "the tables are too large to be computed again";
  if (unknown) problem ||= `the page does not know the rule of stage ${unknown.short}`;
  if (!computed().length) problem ||= "nothing here is computed from other tables";
  return problem;
}

// A number, 1/2, √8, −∞; a comma is a point.
function numberOf(text) {
  const number = one => (one === "" ? NaN : one[0] === "√" ? Math.sqrt(number(one.slice(1))) : Number(one.replace(/(inf|∞).*/, "Infinity")));
  return text.replaceAll("−", "-").replace(",", ".").split("/").map(one => number(one.trim())).reduce((a, b) => a / b);
}

