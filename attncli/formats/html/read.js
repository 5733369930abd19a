"use strict";
// One computation of attention, with its own numbers. The data holds every stage of a trace, with its
// formula; each stage is computed again and compared with the trace, and only where the two agree may
// numbers be changed.
//
//   data ── read ──> stages ── compute ──> numbers ── lay out ──> strips of tables ── paint
//                      └── the formula of each: its number, the cells that it reads, its words

const $ = id => document.getElementById(id);
const html = document.documentElement;
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const on = (target, kind, act) => target.addEventListener(kind, act);
// What a click on an element, an input or a change does, by its id; the elements stand in page.html.
const ACTS = {}, INPUTS = {}, CHANGES = {};

// An element with properties; `text` and `class` are short for textContent and className.
const PROPERTIES = { text: "textContent", class: "className" };
function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of entries(properties))
    if (/^(aria-|role|scope)/.test(name)) element.setAttribute(name, value);
    else element[PROPERTIES[name] ?? name] = value;
  element.append(...nodesOf(children));
  return element;
}
const nodesOf = children => children.flat(9).filter(child => child || child === 0);
const fill = (element, ...children) => element.replaceChildren(...nodesOf(children));
const span = (name, ...children) => el("span", { class: name }, children);
const show = shows => entries(shows).forEach(([id, is]) => ($(id).hidden = !is));
const reveal = element => element?.scrollIntoView({ block: "nearest", inline: "nearest" });
const focused = () => document.activeElement;
const announce = text => ($("live").textContent = text);

// ---- reading the data
const page = JSON.parse($("data").textContent);
const stages = []; // in the order of computation
const labels = page.labels.map(labelsOf);

function readData() {
  stages.push(...page.stages.map(own => newStage(own, page.groups[own.group])));
  for (const s of stages) if (s.is) prepare(s); // which may read what comes later in the list
}

// A stage has planes (heads of batch entries), each a matrix; a vector is one row or column.
function newStage(own, group) {
  const n = own.shape.reduce((all, size) => all * size, 1), data = numbersOf(own, n);
  const s = {
    ...own, group, data, n: n / (own.rows * own.cols), short: own.id.slice(group.prefix.length), layer: group.layer,
    original: data.slice(), shown: data.slice(), params: paramsOf(own), had: paramsOf(own), sources: {}, all: [],
    rowNames: labels[own.names[0]].slice(0, own.rows), colNames: labels[own.names[1]].slice(0, own.cols), isShare: own.shade === "share",
    isInput: Boolean(own.input) && !own.is && !own.bytes && !own.words && !own.whole,
  };
  for (const array of values(s.arrays ?? {})) array.data = numbersOf(array);
  byName.set(s.id, s);
  return s;
}
const paramsOf = own => Object.fromEntries(entries(own.params ?? {}).map(([name, x]) => [name, numberOfText(x)]));

// The numbers of a stage, of a picture those of which its bytes are the roots; none where they are left out.
function numbersOf({ float64, bytes }, n) {
  const read = Uint8Array.from(atob(float64 ?? bytes ?? ""), char => char.charCodeAt(0));
  return float64 ? new Float64Array(read.buffer) : bytes ? Float64Array.from(read, x => (x / 254) ** 2) : new Float64Array(n).fill(NaN);
}
const planeOf = (s, p) => s.data.subarray(p * s.rows * s.cols, (p + 1) * s.rows * s.cols);

// Equal names are told apart by their places.
function labelsOf(names) {
  return names.map((name, at) => ({ name, at: names.indexOf(name) !== names.lastIndexOf(name) ? at + 1 : 0 }));
}
const labelNodes = label => [el("bdi", {}, label.name), label.at ? el("sub", { text: label.at }) : null];
const labelText = label => label.name + (label.at ? ` (${label.at})` : "");
const lettersOf = ({ name, at }) => min(name.length + (at ? 0.7 * String(at).length : 0), 12);

// Names with so many letters at most: cut at the end, or where they would be alike, in the middle.
function shortened(labels, room) {
  const most = ({ at }) => max(2, floor(room - (at ? 0.7 * String(at).length : 0)));
  const atEnd = label => (label.name.length > most(label) ? `${label.name.slice(0, most(label) - 1)}…` : label.name);
  const inMiddle = label => `${label.name.slice(0, Math.ceil(most(label) / 2) - 1)}…${label.name.slice(-floor(most(label) / 2))}`;
  const short = labels.map(atEnd), isAlike = at => short.some((name, other) => name === short[at] && labels[other].name !== labels[at].name);
  return labels.map((label, at) => (label.name.length > most(label) && isAlike(at) ? inMiddle(label) : short[at]));
}
const headsOf = s => s.n / s.batches;
