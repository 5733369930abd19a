// ---- pointing: what a cell was made of, through all stages, or what is made of it
const MOST_CELLS = 4000; // that are followed back, or looked through for what is made of one

// The cells next to it, each with its side, and all others on the way.
function reach(cell) {
  const far = new Set([cell]);
  if (!state.forwards) {
    for (const target of far) // which grows meanwhile
      for (const read of readsAt(target).keys()) if (far.size < MOST_CELLS) far.add(read);
    return [readsAt(cell), far];
  }
  const near = new Map();
  for (const s of order.filter(s => s.tree && s.data.length < MOST_CELLS))
    s.data.forEach((_, at) => {
      const target = cellOf(s, at), reads = [...readsAt(target).keys()];
      if (reads.includes(cell)) near.set(target, "from");
      if (reads.some(read => far.has(read))) far.add(target);
    });
  return [near, far];
}
const mark = (cell, ...names) => shownAt.get(cell)?.forEach(td => td.classList.add("on", ...names));

function light(cell) {
  for (const td of all("td.on")) td.classList.remove("on", "here", "left", "top", "from", "own");
  if (state.walk) return lightWalk();
  if (cell && (isHidden(cell.s) || !stages.includes(cell.s))) cell = null;
  document.body.classList.toggle("pointing", !!cell);
  if (cell) {
    const [near, far] = reach(cell);
    for (const other of far) mark(other);
    for (const [other, side] of near) mark(other, side);
    mark(cell, "here");
  }
  explain(cell);
  markMap(cell?.s);
}

// Row q3 of A times column 1 of V, where the cell is such a product; else the formula.
function inGeneral(cell) {
  const { s } = cell, [[a, b] = []] = pairsAt(cell);
  if (!a || s.tree.op === "/") return math(formulaOf(s).replace(/^.*? = /, ""));
  const column = isTurned(s) ? b.s.rowNames[b.i] : b.s.colNames[b.j];
  const left = span("left", "row ", labelNodes(a.s.rowNames[a.i]), " of ", math(a.s.symbol));
  const top = span("top", "column ", labelNodes(column), " of ", math(b.s.symbol), isTurned(s) && el("sup", { text: "T" }));
  return [left, " times ", top];
}
let about = null; // the cell that the panel is about
function explain(cell) {
  about = cell;
  show({ why: cell || state.quiz, panel: cell });
  if (!cell) return;
  const { s, at } = cell, x = s.words?.[at] ?? s.data[at], was = s.original[at], isSecret = isAsked(s);
  const words = isSecret ? ["?"] : s.tree ? wordsAt(cell) : null, general = words && inGeneral(cell), head = headWords(cell);
  const result = isSecret ? null : [words ? signAt(cell) : " = ", el("b", { text: s.words ? x : trimmed(x, 4, s) }), String(x).length > 7 && span("exact", exact(x)), s.undefined && isNaN(x) && span("exact", s.undefined)];
  fill($("sum-up"), nameOf(cell), head && ` of ${head}`, general && [" = ", span("general", general)], s.isInput && span("kind", canEdit(s) ? " an input: drag it, or type another" : " an input"));
  fill($("lines"), el("li", {}, words && ["= ", words], result));
  fill($("was"), !isSecret && differs(x, was, 1e-12) && `was ${trimmed(was, 4)}`);
  show({ way: computed().length, change: canEdit(s) && shownAt.has(cell), copy: !isSecret && !s.words });
  $("way").setAttribute("aria-pressed", state.forwards);
}
function pin(cell) {
  if (state.walk) return;
  state.pinned = cell;
  light(cell);
}
assign(ACTS, {
  way: () => ((state.forwards = !state.forwards), light(about)),
  change: () => (isMaskCell(about) ? toggleMask(about) : openEdit(shownAt.get(about)[0])),
  close: () => pin(null),
});
const canEdit = s => !state.locked && !state.quiz && s.isInput && !s.isFixed;
const isMaskCell = ({ s }) => canEdit(s) && s === mask();

// What is refused is said beside its field, until something else is typed or changed.
const refusal = el("span", { role: "alert" });
function refuse(field, text, wanted, kept) {
  refusal.textContent = `"${text}" is not ${wanted}; ${kept} is kept`;
  field.after(refusal);
}
function edit({ cell, parentElement }, text) {
  const x = numberOf(text);
  if (!isFinite(x)) return refuse(parentElement.closest("table"), text, $("param-factor").title, num(valueAt(cell), 4));
  change("cell", cell.s.id, cell.at, x);
}

const toggleMask = cell => change("maskCell", cell.at);
function openEdit(td, first) {
  if (!td?.cell || !canEdit(td.cell.s) || td.querySelector("input")) return;
  const text = String(valueAt(td.cell));
  const input = el("input", { class: "edit", value: first ?? text, "aria-label": plainName(td.cell), autocomplete: "off" });
  on(input, "keydown", event => {
    event.stopPropagation();
    if (event.key === "Escape") input.value = text;
    if (/^E(nter|scape)$/.test(event.key)) td.focus();
  });
  on(input, "blur", () => {
    paint();
    if (input.value !== text) edit(td, input.value);
  });
  fill(td, input);
  input.focus();
  if (first === undefined) input.select();
}

// ---- a number is dragged as on a slider; its size says how far a pixel goes
const stepOf = x => 10 ** floor(Math.log10(max(abs(x), 1)) - 1);
const rounded = x => Number(x.toFixed(4));

function startDrag(td, { clientX: start, shiftKey, pointerId }) {
  const { cell } = td, from = valueAt(cell), step = stepOf(from) / (shiftKey ? 10 : 1);
  td.setPointerCapture(pointerId);
  td.onpointermove = ({ clientX }) => {
    const way = clientX - start, x = rounded(from + Math.trunc(way / 5) * step);
    if (!isLive && abs(way) < 6) return;
    isLive = true;
    state.pinned = cell;
    if (x !== valueAt(cell)) change("cell", cell.s.id, cell.at, x);
  };
  td.onpointerup = td.onpointercancel = () => {
    td.onpointermove = td.onpointerup = td.onpointercancel = null;
    if (isLive) announce(`${plainName(cell)} is ${valueAt(cell)}`);
    td.wasDragged = isLive;
    endDrag();
  };
}
const nudge = ({ cell }, by) => change("cell", cell.s.id, cell.at, rounded(valueAt(cell) + by * stepOf(valueAt(cell))));

// ---- mouse, finger, keyboard
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const tdOf = event => event.target.closest?.("td");
let again = null; // the cell that is pressed and was chosen before

function listenToPointer() {
  on(document, "pointerover", event => {
    if (event.pointerType !== "mouse" || isLive || state.walk || event.target.closest("#why, canvas")) return;
    light(tdOf(event)?.cell ?? state.pinned);
  });
  on(document, "pointerdown", event => {
    const td = tdOf(event);
    again = td?.cell && td.cell === state.pinned ? td : null;
    const canDrag = td?.cell && canEdit(td.cell.s) && !isMaskCell(td.cell);
    const isMeant = event.pointerType === "mouse" || td?.classList.contains("here");
    if (canDrag && isMeant && event.button === 0 && event.target.tagName !== "INPUT") startDrag(td, event);
  });
  on(document, "click", event => {
    const td = tdOf(event);
    if (!td?.cell || event.target.tagName === "INPUT") return;
    if (td.wasDragged) return (td.wasDragged = false);
    td.focus();
    pin(td.cell);
    if (isMaskCell(td.cell)) toggleMask(td.cell);
    else if (again === td) openEdit(td);
  });
}
function listenToKeys() {
  on(document, "focusin", event => {
    const td = tdOf(event);
    if (!td?.cell) return;
    for (const other of td.view.cells) other.tabIndex = other === td ? 0 : -1;
    if (event.target.className !== "edit") pin(td.cell);
    if (event.target === td) announce($("sum-up").textContent + $("lines").textContent);
  });
  on(document, "keydown", walkKeys);
  on(document, "keydown", event => {
    const td = tdOf(event), isControl = event.ctrlKey || event.metaKey;
    if (event.key === "Escape") state.walk ? endWalk() : pin(null);
    if (isControl && /^[zy]$/i.test(event.key) && !isTyping(event.target)) {
      event.preventDefault();
      ACTS[/y/i.test(event.key) || event.shiftKey ? "redo" : "undo"]();
    }
    if (td?.cell && event.target === td && !isControl && !event.altKey) cellKeys(event, td);
  });
}
// Whether a field holds text that is not yet a number of the page: then Ctrl+Z is of that text.
const isTyping = field => field.type === "text" && field.value !== (field.className === "param" ? paramText(field.id.slice(6)) : field.word);
function cellKeys(event, td) {
  const { key } = event, move = MOVES[key], isMask = isMaskCell(td.cell), can = canEdit(td.cell.s);
  const next = move && td.closest("table").rows[td.parentElement.rowIndex + move[0]]?.cells[td.cellIndex + move[1]];
  const acts = next?.cell || (isMask ? /^(Enter| )$/ : /^(Enter|F2|Page.*|[-\d.−])$/).test(key) && can;
  if (!acts) return;
  event.preventDefault();
  if (next) next.focus();
  else if (isMask) toggleMask(td.cell);
  else if (/^Page/.test(key)) nudge(td, key === "PageUp" ? 1 : -1);
  else openEdit(td, /^(Enter|F2)$/.test(key) ? undefined : key);
}
