// ---- what may be changed, and how it comes back
const state = {
  head: 0, batch: 0, layer: null, group: null, step: Infinity, // what is looked at
  pinned: null, forwards: false,
  quiz: false, walk: null, edited: false, locked: "",
};
const computed = () => stages.filter(s => s.tree);
const isHere = s => !s.bytes && (s.layer === state.layer || !s.layer);

// Of several attentions in a layer, as a decoder has them, the one that is looked at.
const groupShown = () => state.group ?? page.groups.find(group => group.attention && (group.layer ?? null) === state.layer) ?? page.groups[0];
const inGroup = () => stages.filter(s => s.group === groupShown());
const part = role => byName.get(groupShown()?.attention?.[role]);
const mask = () => part("mask");
const masks = () => page.groups.map(group => byName.get(group.attention?.mask)).filter(Boolean); // of layers, which have the same
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

// ---- a mask where there was none: two more stages, and the formulas that attncli has with a mask
const FORMULA = ["is", "at", "sizes", "reads", "remark", "formula"];

// Adds the stages or takes them away, and exchanges the formulas of those that read them.
function turnMask(group) {
  const isOn = (group.isMasked = !group.isMasked), changed = group.ifMasked.filter(step => !step.shape);
  const { rowNames, colNames } = byName.get(group.attention.weights);
  const fresh = (group.fresh ??= group.ifMasked.filter(step => step.shape).map(step => newStage(step, group)));
  for (const s of fresh) isOn ? byName.set(s.id, assign(s, { rowNames, colNames })) : byName.delete(s.id);
  for (const step of changed) {
    const s = byName.get(step.id);
    for (const name of FORMULA) [s[name], step[name]] = [step[name], s[name]];
    s.params = { ...paramsOf(step), ...s.params };
  }
  if (isOn) stages.splice(stages.findIndex(s => s.id === changed[0].id), 0, ...fresh);
  else stages.splice(stages.indexOf(fresh[0]), fresh.length);
  group.attention.mask = isOn && fresh[0].id;
  for (const { id } of isOn ? group.ifMasked : changed) if (byName.get(id).is) prepare(byName.get(id));
}
const isAfter = (mask, at) => at % mask.cols > floor(at / mask.cols) % mask.rows;
const isCausal = mask => mask.data.every((x, at) => x === (isAfter(mask, at) ? -Infinity : 0));
function setCausal(isOn) {
  for (const mask of masks()) mask.data.forEach((_, at) => isAfter(mask, at) && (mask.data[at] = isOn ? -Infinity : 0));
}

// ---- what was before, for undo: inputs, parameters, words, and whether a mask was added
const past = [], future = [];
const snapshot = () => ({
  masked: page.groups.filter(group => group.isMasked),
  each: stages.map(({ id, isInput, data, params, rowNames, colNames }) => ({ id, data: isInput && data.slice(), params: { ...params }, rowNames, colNames })),
});

function remember() {
  past.push(snapshot());
  if (past.length > 200) past.shift();
  future.length = 0;
}
function restore(was) {
  for (const group of page.groups) if (!group.isMasked === was.masked.includes(group)) turnMask(group);
  for (const { id, data, ...rest } of was.each) {
    const s = byName.get(id);
    if (data) s.data.set(data);
    assign(s, rest, { params: { ...s.params, ...rest.params } });
  }
  layOut();
  recompute();
}
function turnBack(from, to) {
  if (!from.length || state.quiz) return;
  to.push(snapshot());
  restore(from.pop());
}

let atStart = null;
function reset() {
  remember();
  restore(atStart);
  announce("the numbers are as they came");
}

let isLive = false; // while a number is dragged: nothing flashes, and it is one step to be taken back
function live() {
  if (!isLive) remember();
  isLive = true;
}
// Everything again; what has changed flashes.
function recompute() {
  refusal.remove();
  computed().forEach(compute);
  const moved = (s, at) => differs(s.data[at], s.shown[at], 1e-12), isOther = s => s.group.fresh?.includes(s) || keys(s.had).some(name => s.params[name] !== s.had[name]);
  state.edited = stages.some(s => isOther(s) || s.data.some((x, at) => differs(x, s.original[at], 1e-12)));
  if (!state.edited) for (const s of stages) s.data.set(s.original); // to the last digit as they came
  paint((s, at) => !isLive && moved(s, at));
  if (!isLive) announce(`${sum(computed().map(s => s.data.filter((_, at) => moved(s, at)).length))} numbers have changed`);
  for (const s of stages) s.shown = s.data.slice();
}

// A number, 1/2, √8, −∞; a comma is a point.
function numberOf(text) {
  const number = one => (one === "" ? NaN : one[0] === "√" ? Math.sqrt(number(one.slice(1))) : Number(one.replace(/(inf|∞).*/, "Infinity")));
  return text.replaceAll("−", "-").replace(",", ".").split("/").map(one => number(one.trim())).reduce((a, b) => a / b);
}

// What is refused is said beside its field, until something else is typed or changed.
const refusal = el("span", { role: "alert" });
function refuse(field, text, wanted, kept) {
  refusal.textContent = `"${text}" is not ${wanted}; ${kept} is kept`;
  field.after(refusal);
}
function edit({ cell, parentElement }, text) {
  const x = numberOf(text);
  if (!isFinite(x)) return refuse(parentElement.closest("table"), text, $("param-factor").title, num(valueAt(cell), 4));
  remember();
  put(cell, x);
}
function put(cell, x) {
  for (const s of isMaskCell(cell) ? masks() : [cell.s]) s.data[cell.at] = x;
  recompute();
}

// ---- the state as attncli reads it: a call, and its numbers as JSON
// The numbers of a stage in lists, as its array has them.
function nested(s, shape = s.shape, from = 0) {
  if (!shape.length) return isFinite(s.data[from]) ? s.data[from] : String(s.data[from]);
  const size = shape.slice(1).reduce((n, each) => n * each, 1);
  return range(shape[0]).map(at => nested(s, shape.slice(1), from + at * size));
}
// `shapes`: of weights whose heads stand side by side, [d, heads, e]; as a file they are those of each.
function asInput({ constants, inputs, labels = {}, shapes = {} }, mask = masks()[0]) {
  const json = { ...constants };
  for (const [name, [id, side]] of entries(labels)) json[name] = byName.get(id)[side].map(label => label.name);
  for (const [name, id] of entries(inputs)) {
    const [, heads, e] = shapes[name] ?? [], rows = nested(byName.get(id), shapes[name]);
    json[name] = e ? range(heads).map(head => rows.map(row => row[head])) : rows;
  }
  if (mask && !isSquareCausal(mask)) json.mask = nested(mask);
  return json;
}

// The file of the attention that is looked at: from it attncli computes what the page shows.
const filed = () => [groupShown(), ...page.groups].find(group => group.file);
function fileNow(group = filed()) {
  const mask = byName.get(`${group.prefix}mask`), json = asInput(group.file, mask ?? null);
  if (json.mask) json.mask_means = "add";
  else if (mask) json.causal = true;
  for (const [{ field }, x] of changed(group, group.file.flags)) json[field] = x;
  return json;
}
// What a call or a file says of the parameters that were changed, or always.
const changed = ({ prefix }, flags) => stages.filter(s => s.id.startsWith(prefix)).flatMap(({ params, had }) =>
  entries(params).filter(([name, x]) => flags[name] && isFinite(x) && (flags[name].always || x !== had[name])).map(([name, x]) => [flags[name], flags[name].inverse ? 1 / x : x]));
const isSquareCausal = mask => mask && mask.rows === mask.cols && isCausal(mask);
const isAsItCame = s => s.data.every((x, at) => Object.is(x, s.original[at]));
// Whether a call gives the numbers of the page: as it was given, or with all that was changed.
function hasCall() {
  const { call, numbers } = page.command ?? {};
  if (!numbers || (call && !state.edited)) return Boolean(call) && !state.edited;
  const { drawn, file, inputs, literals, rows } = numbers, ids = [inputs, literals, drawn, file ? page.groups[0].file.inputs : {}].flatMap(values);
  return drawn.every(id => isDrawn(byName.get(id))) && stages.every(s => !s.isInput || masks().includes(s) || [...ids, rows].includes(s.id) || isAsItCame(s));
}
function command() {
  const { call, numbers, python } = page.command;
  return !hasCall() ? "" : call && !state.edited ? call : python ? inPython(numbers) : inShell(numbers);
}
// [heads, n, e] as [n, heads · e]
const sideBySide = planes => (planes[0][0][0].length ? planes.map(sideBySide) : planes[0].map((_, i) => planes.flatMap(plane => plane[i])));
function inShell({ fields, file, flags, literals, merged, rows, separate, start, ...own }) {
  const json = file ? fileNow(page.groups[0]) : asInput(own), words = [start, ...own.words];
  const quoted = text => `'${text.replaceAll("'", "'\\''")}'`, add = (flag, x) => words.push(flag, quoted(JSON.stringify(x)));
  for (const [name, [word, x]] of entries(fields)) if (json[name] === x && delete json[name]) words.push(word);
  for (const name of merged) json[name] = sideBySide(json[name]);
  for (const [flag, id] of entries(literals)) add(flag, nested(byName.get(id)));
  byName.get(rows)?.rowNames.forEach(({ name }, i) => words.push(quoted(`${name}=${nested(byName.get(rows))[i]}`)));
  if (separate.length && json.mask && masks()[0].data.every(x => x === 0 || x === 1)) words.push("--mask-means add");
  for (const name of separate) {
    if (name in json) add(`--${name}`, json[name]);
    delete json[name];
  }
  if (!file && isSquareCausal(masks()[0])) words.push("--causal");
  for (const [{ flag }, x] of file ? [] : changed(groupShown(), flags)) words.splice(0, words.length, ...words.filter(word => !word.startsWith(flag)), flag + x);
  return words.join(" ") + (keys(json).length ? ` <<'END'\n${JSON.stringify(json)}\nEND` : "");
}
// The same as a call of a function, whose arguments are what is said as JSON.
function inPython({ file, flags, literals, start, words, ...own }) {
  const json = file ? fileNow(page.groups[0]) : asInput({ ...own, inputs: { ...own.inputs, ...literals } }, null), more = {};
  for (const [{ field }, x] of file ? [] : changed(groupShown(), flags)) json[field] = x;
  for (const [name, x] of entries(json)) {
    const isWeight = /^[wb]_/.test(name), labels = { tokens: ["query_labels", "key_labels"], query_tokens: ["query_labels"], key_tokens: ["key_labels"], x_kv: ["context"] };
    if (isWeight) (more.weights ??= {})[name] = x;
    else for (const argument of labels[name] ?? [name]) more[argument] = x;
  }
  const kept = words.filter(word => !keys(more).some(name => word.startsWith(`${name}=`)));
  return `${start}(${[...kept, ...entries(more).map(([name, x]) => `${name}=${pythonOf(x)}`)].join(", ")})`;
}
function pythonOf(x) {
  if (Array.isArray(x)) return `[${x.map(pythonOf).join(", ")}]`;
  if (typeof x === "object") return `{${entries(x).map(([name, each]) => `"${name}": ${pythonOf(each)}`).join(", ")}}`;
  if (x === true) return "True";
  return /^(NaN|-?Infinity)$/.test(x) ? `float("${x}")` : JSON.stringify(x);
}
