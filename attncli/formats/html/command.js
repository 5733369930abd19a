// ---- the state as attncli reads it: a call, and its numbers as JSON
// The numbers of a stage in lists, as its array has them, or what else there is at its places.
function nested(s, shape = s.shape, from = 0, of = at => (isFinite(s.data[at]) ? s.data[at] : String(s.data[at]))) {
  if (!shape.length) return of(from);
  const size = shape.slice(1).reduce((n, each) => n * each, 1);
  return range(shape[0]).map(at => nested(s, shape.slice(1), from + at * size, of));
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
// A mask that is causal and nothing else, as --causal gives it.
const isSquareCausal = mask => mask && mask.rows === mask.cols && mask.data.every((x, at) => x === (isAfter(mask, 0, at) ? -Infinity : 0));
const isAsItCame = s => s.data.every((x, at) => Object.is(x, s.original[at]));
// Vectors that no longer are those of the words can be said by no call that draws them.
const isDrawn = s => s.rowNames.every(({ name }, i) => vectorOf(name, s)?.every((x, j) => x === s.data[i * s.cols + j]));

// The call as it was given, with the options that say what was changed; "" where none can.
function callWithOptions() {
  const { python, options, start, numbers } = page.command, { cells, params, words, causal } = state.changes, { changes } = origin;
  const texts = options?.map(([, text]) => text), others = new Map(); // name of an option → its text, "" for none
  const has = name => options.some(option => option[0] === name), write = (name, flag, x) => others.set(name, python ? `${name}=${x}` : `${flag}${x}`);
  if (!options) return "";
  if (state.edited) {
    const isOfCells = values(cells).some(each => keys(each).length), isMasked = masks().length && !isSquareCausal(masks()[0]);
    if (!numbers || isOfCells || (isMasked && causal !== changes.causal && (has("semantics") || !has("mask"))) || (state.changes.byCell && !causal)) return "";
    for (const [name, x] of entries(params)) {
      const flag = numbers.flags[name];
      if (!flag || flag.flag.startsWith("--set")) return "";
      if (x !== stages.find(s => name in s.had).had[name]) write(flag.field, flag.flag, flag.inverse ? 1 / x : x);
    }
    if (causal !== changes.causal) causal ? others.set("causal", python ? "causal=True" : "--causal") : others.set("causal", "");
    if (!causal && changes.causal && (!has("causal") || isMasked)) return "";
    if (keys(words).length && !sayWords(others, options, has)) return "";
  }
  for (const [at, [name]] of options?.entries() ?? []) {
    if (others.has(name)) texts[at] = others.get(name);
    others.delete(name);
  }
  const end = texts.findIndex(text => text.startsWith("-- ")), kept = texts.filter(Boolean);
  kept.splice(end < 0 ? kept.length : kept.findIndex(text => text.startsWith("-- ")), 0, ...[...others.values()].filter(Boolean));
  return python ? `${start}(${kept.join(", ")})` : [start, ...kept].join(" ");
}
// The sentence with other words, where it is written as its words are, else its tokens.
function sayWords(others, options, has) {
  const e = embeddings(), names = e.rowNames.map(({ name }) => name), came = labels[e.names[0]].map(({ name }) => name);
  if (!isDrawn(e) || !page.command.start.endsWith("explain") || ["embeddings", "vectors", "target", "pad_to", "lowercase"].some(has)) return false;
  const sentence = options.find(([name]) => name === "sentence")?.[1], isPlain = names.every(name => /^[\p{L}\p{N}]+$/u.test(name));
  const isSentence = isPlain && sentence === quoted(came.join(" "));
  others.set("sentence", isSentence ? quoted(names.join(" ")) : "");
  if (!isSentence) others.set("tokens", `--tokens ${quoted(JSON.stringify(names))}`);
  return true;
}
const quoted = text => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);

// Whether a call gives the numbers of the page: as it was given, or with all that was changed.
function hasCall() {
  const { numbers } = page.command ?? {};
  if (!page.command || callWithOptions()) return Boolean(page.command);
  if (!numbers) return false;
  const { drawn, file, inputs, literals, rows } = numbers, ids = [inputs, literals, drawn, file ? page.groups[0].file.inputs : {}].flatMap(values);
  return drawn.every(id => isDrawn(byName.get(id))) && stages.every(s => !s.isInput || masks().includes(s) || [...ids, rows].includes(s.id) || isAsItCame(s));
}
function command() {
  const { numbers, python } = page.command;
  return !hasCall() ? "" : callWithOptions() || (python ? inPython(numbers) : inShell(numbers));
}
// [heads, n, e] as [n, heads · e]
const sideBySide = planes => (planes[0][0][0].length ? planes.map(sideBySide) : planes[0].map((_, i) => planes.flatMap(plane => plane[i])));
function inShell({ fields, file, flags, literals, merged, rows, separate, start, weights, ...own }) {
  const isSame = weights !== undefined && values(own.inputs).every(id => isAsItCame(byName.get(id))); // those of the call
  const json = file ? fileNow(page.groups[0]) : asInput(isSame ? { ...own, inputs: {} } : own);
  const words = [start, ...(isSame ? own.words.map(word => (word === "--weights -" ? weights : word)).filter(Boolean) : own.words)];
  const add = (flag, x) => words.push(flag, quoted(JSON.stringify(x)));
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
