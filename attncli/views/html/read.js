"use strict";
// One computation of attention, with its own numbers. The data holds every stage of a trace, with its
// formula; each stage is computed again and compared with the trace, and only where the two agree may
// numbers be changed.
//
//   data ── read ──> stages ── compute ──> numbers ── lay out ──> strips of tables ── paint
//                      └── the formula of each: its number, the cells that it reads, its words

const $ = id => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const on = (target, kind, act) => target.addEventListener(kind, act);

// An element with properties; `text` and `class` are short for textContent and className.
const PROPERTIES = { text: "textContent", class: "className" };
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (/^(aria-|role|scope)/.test(name)) element.setAttribute(name, value);
    else element[PROPERTIES[name] ?? name] = value;
  if (tag === "button") element.type = "button";
  element.append(...children.flat(9).filter(child => child || child === 0));
  return element;
}
const span = (name, ...children) => el("span", { class: name }, children);
const paragraph = (name, ...children) => el("p", { class: name }, children);
const button = (text, onclick, label = text, more = {}) => el("button", { text, onclick, "aria-label": label, ...more });
const focused = () => document.activeElement;

function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// ---- reading the data
const page = JSON.parse($("data").textContent);
const stages = []; // in the order of computation

function readData() {
  stages.push(...page.stages.map(own => newStage(own, page.groups[own.group])));
  for (const s of stages) if (s.is && canCompute(s)) prepare(s);
}

// What it reads is here, and has numbers; stages may read what comes later in the list.
const canCompute = s => Object.values(s.reads).every(id => byName.has(id));

// A stage has planes (heads of batch entries), each a matrix; a vector is one row or column.
function newStage(own, group) {
  const n = own.shape.reduce((all, size) => all * size, 1), data = numbersOf(own, n);
  const s = {
    ...own, group, data, n: n / (own.rows * own.cols), short: own.id.slice(group.prefix.length), layer: group.layer,
    original: data.slice(), params: paramsOf(own), had: paramsOf(own), sources: {},
    rowNames: labelsOf(own.names[0]), colNames: labelsOf(own.names[1]), isShare: own.shade === "share",
    isInput: Boolean(own.input) && !own.is && !own.bytes && !own.words && !own.whole,
  };
  for (const array of Object.values(s.arrays ?? {})) array.data = Float64Array.from(array.value, numberOfText);
  s.value = planesOf(s, data);
  byName.set(s.id, s);
  return s;
}
const paramsOf = own => Object.fromEntries(Object.entries(own.params ?? {}).map(([name, x]) => [name, numberOfText(x)]));

// Numbers as they are, as bytes of their square roots, or none.
function numbersOf(own, n) {
  if (own.value) return Float64Array.from(own.value, numberOfText);
  if (own.base64) return new Float64Array(Uint8Array.from(atob(own.base64), char => char.charCodeAt(0)).buffer);
  if (own.bytes) return Float64Array.from(atob(own.bytes), char => (char.charCodeAt(0) / 254) ** 2);
  return new Float64Array(n).fill(NaN);
}
const planesOf = (s, data) => range(s.n).map(p => data.subarray(p * s.rows * s.cols, (p + 1) * s.rows * s.cols));

// Equal names are told apart by their places.
function labelsOf(names) {
  const list = typeof names === "number" ? page.labels[names] : names;
  return list.map((name, at) => ({ name, at: list.indexOf(name) !== list.lastIndexOf(name) ? at + 1 : 0 }));
}
const labelNodes = label => [el("bdi", {}, /^\w[\w√]?_\w|[₀-₉′]$/.test(label.name) ? math(label.name) : label.name), label.at ? el("sub", { text: label.at }) : null];
const labelText = label => label.name + (label.at ? ` (${label.at})` : "");
const headsOf = s => s.n / s.batches;
