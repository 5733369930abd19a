// ---- pointing: what a cell was made of, through all stages, or what is made of it
const cellKey = ([s, p, i, j]) => `${p}|${keyOf(s, i, j)}`;
const MOST_CELLS = 4000; // that are followed back, or looked through for what is made of one

// The cells next to it, and all others on the way: key → [cell, side].
function reach(cell) {
  const near = new Map(), far = new Map();
  if (state.forwards) {
    const reached = new Set([cellKey(cell)]);
    for (const s of order.filter(s => s.tree && s.data.length < MOST_CELLS))
      for (let at = 0; at < s.data.length; at++) {
        const target = cellOf(s, at), reads = readsAt(target).map(([read]) => cellKey(read)), isNext = reads.includes(cellKey(cell));
        if (!isNext && !reads.some(key => reached.has(key))) continue;
        reached.add(cellKey(target));
        (isNext ? near : far).set(cellKey(target), [target, "from"]);
      }
    return [near, far];
  }
  const queue = [cell];
  for (const target of queue)
    for (const [read, side] of readsAt(target)) {
      if (target === cell) near.set(cellKey(read), [read, side]);
      if (far.has(cellKey(read)) || queue.length >= MOST_CELLS) continue;
      far.set(cellKey(read), [read, ""]);
      queue.push(read);
    }
  return [near, far];
}
const mark = ([s, p, i, j], ...names) => shownPlane(s) === p && cellsAt.get(keyOf(s, i, j))?.forEach(td => td.classList.add("on", ...names));

function light(cell, isQuiet = true) {
  for (const td of all("td.on")) td.classList.remove("on", "here", "left", "top", "from", "own");
  document.body.classList.toggle("pointing", Boolean(cell));
  if (state.walk) return lightWalk();
  if (cell && (isHidden(cell[0]) || !stages.includes(cell[0]))) return light(null);
  if (cell) {
    const [near, far] = reach(cell);
    for (const [other] of far.values()) mark(other);
    for (const [other, side] of near.values()) mark(other, side || "from");
    mark(cell, "here");
  }
  explain(cell, isQuiet);
  markMap(cell?.[0]);
}

// Row q3 of A times column 1 of V, where the cell is such a product; else the formula.
function inGeneral(cell) {
  const [s] = cell, [[a, b]] = pairsAt(cell) ?? [[]];
  if (!a || !s.product.isWhole) return s.formula?.includes(" = ") ? math(formulaOf(s).split(" = ").slice(1).join(" = ")) : null;
  const column = isTurned(s) ? b[0].rowNames[b[2]] : b[0].colNames[b[3]];
  const left = span("left", "row ", labelNodes(a[0].rowNames[a[2]]), " of ", math(a[0].symbol));
  const top = span("top", "column ", labelNodes(column), " of ", math(b[0].symbol), isTurned(s) && el("sup", { text: "T" }));
  return [left, " times ", top];
}
function explain(cell, isQuiet) {
  const why = $("why"), panel = why.firstElementChild;
  why.hidden = !cell && !state.quiz && !state.walk;
  panel.hidden = !cell || Boolean(state.walk);
  if (!cell || state.walk) return;
  const [s, p, i, j] = cell, at = indexOf(cell), x = s.words?.[at] ?? s.data[at], was = s.original[at], isSecret = isAsked(s);
  const words = isSecret ? ["?"] : s.tree ? wordsAt(cell) : null, general = words && inGeneral(cell), head = headWords(s, p);
  const kind = !s.isInput ? "" : canEdit(s) ? " an input: drag it, or type another number" : " an input";
  const result = isSecret ? null : [" = ", el("b", { text: s.words ? x : trimmed(x, 4) }), String(x).length > 7 && span("exact", exact(x))];
  const change = () => (isMaskCell(cell) ? toggleMask(cell) : openEdit(cellsAt.get(keyOf(s, i, j))[0]));
  panel.replaceChildren(
    paragraph("sum-up", nameOf(cell), head && ` of ${head}`, general && [" = ", span("general", general)], span("kind", kind)),
    paragraph("derivation", words && ["= ", words], result),
    paragraph("aside", !isSecret && differs(x, was, 1e-12) && el("span", { class: "was", text: `was ${trimmed(was, 4)}` })),
    el("div", { class: "turn" },
      computed().length > 0 && button(state.forwards ? "← what it is made of" : "→ what is made of it", () => ((state.forwards = !state.forwards), light(cell))),
      canEdit(s) && button("change it", change),
      !isSecret && button(`copy ${s.symbol} as NumPy`, () => copyText(asNumPy(s), `${s.short} was copied`)),
      button("×", () => pin(null), "close")),
  );
  if (!isQuiet) announce(panel.children[0].textContent + panel.children[1].textContent);
}
function announce(text) {
  $("live").textContent = text;
}
function pin(cell, isQuiet) {
  if (state.walk) return;
  state.pinned = cell;
  light(cell, isQuiet);
}
const canEdit = s => !state.locked && !state.quiz && s.isInput;
const isMaskCell = cell => canEdit(cell[0]) && cell[0] === mask();

function toggleMask(cell) {
  remember();
  put(cell, valueAt(cell) === -Infinity ? 0 : -Infinity);
}
function openEdit(td, first) {
  if (!td?.cell || !canEdit(td.cell[0]) || td.querySelector("input")) return;
  const text = String(valueAt(td.cell));
  const input = el("input", { class: "edit", value: first ?? text, "aria-label": plainName(td.cell), autocomplete: "off" });
  let isDone = false;
  const close = way => {
    if (isDone) return;
    isDone = true;
    paint();
    if (way !== "Escape" && input.value !== text) edit(td.cell, input.value);
    if (way !== "blur") td.focus();
  };
  on(input, "keydown", event => {
    event.stopPropagation();
    if (event.key === "Enter" || event.key === "Escape") close(event.key);
  });
  on(input, "blur", () => close("blur"));
  td.replaceChildren(input);
  input.focus();
  if (first === undefined) input.select();
}

// ---- a number is dragged as on a slider; its size says how far a pixel goes
const stepOf = x => 10 ** Math.floor(Math.log10(Math.max(Math.abs(x), 1)) - 1);
const rounded = x => Number(x.toFixed(4));
let drag = null;

function startDrag(td, event) {
  const x = valueAt(td.cell);
  drag = { td, cell: td.cell, from: x, start: event.clientX, step: stepOf(x) / (event.shiftKey ? 10 : 1), id: event.pointerId };
}
function dragOn(event) {
  const way = event.clientX - drag.start;
  if (!isDragging && Math.abs(way) < 6) return;
  if (!isDragging) {
    isDragging = true;
    remember();
    drag.td.setPointerCapture?.(drag.id);
    state.pinned = drag.cell;
    document.body.classList.add("dragging");
  }
  const x = rounded(drag.from + Math.trunc(way / 5) * drag.step);
  if (x !== valueAt(drag.cell)) put(drag.cell, x);
}
function endDrag() {
  if (isDragging) {
    isDragging = false;
    document.body.classList.remove("dragging");
    announce(`${plainName(drag.cell)} is ${valueAt(drag.cell)}`);
    drag.td.wasDragged = true;
  }
  drag = null;
}
function nudge(td, by) {
  remember();
  put(td.cell, rounded(valueAt(td.cell) + by * stepOf(valueAt(td.cell))));
}

// ---- mouse, finger, keyboard
const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
const tdOf = event => event.target.closest?.("td");
let hovered = null;

function listenToPointer() {
  on(document, "pointerover", event => {
    const td = tdOf(event);
    if (event.pointerType !== "mouse" || td === hovered || drag || state.walk || event.target.closest("#why, canvas")) return;
    hovered = td;
    light(td?.cell ?? state.pinned);
  });
  on(document, "pointerdown", event => {
    const td = tdOf(event), canDrag = td?.cell && canEdit(td.cell[0]) && !isMaskCell(td.cell);
    const isMeant = event.pointerType === "mouse" || td?.classList.contains("here");
    if (canDrag && isMeant && event.button === 0 && event.target.tagName !== "INPUT") startDrag(td, event);
  });
  on(document, "pointermove", event => drag && dragOn(event));
  for (const kind of ["pointerup", "pointercancel"]) on(document, kind, endDrag);
  on(document, "click", event => {
    const td = tdOf(event);
    if (!td?.cell || event.target.tagName === "INPUT") return;
    if (td.wasDragged) return (td.wasDragged = false);
    const isAgain = td === focused() && td.wasHere;
    td.wasHere = true;
    td.focus();
    pin(td.cell);
    if (isMaskCell(td.cell)) toggleMask(td.cell);
    else if (isAgain) openEdit(td);
  });
}
function listenToKeys() {
  on(document, "focusin", event => {
    const td = tdOf(event);
    if (!td?.cell) return;
    for (const other of td.view.cells) other.tabIndex = other === td ? 0 : -1;
    if (!td.contains(focused()) || focused() === td) pin(td.cell, false);
  });
  on(document, "focusout", event => tdOf(event) && (tdOf(event).wasHere = false));
  on(document, "keydown", event => globalThis.walkKeys?.(event));
  on(document, "keydown", event => {
    const td = tdOf(event), isControl = event.ctrlKey || event.metaKey;
    if (event.key === "Escape") state.walk ? endWalk() : pin(null);
    if (isControl && /^[zy]$/i.test(event.key) && event.target.tagName !== "INPUT") {
      event.preventDefault();
      if (/y/i.test(event.key) || event.shiftKey) turnBack(future, past);
      else turnBack(past, future);
    }
    if (td?.cell && event.target === td && !isControl && !event.altKey) cellKeys(event, td);
  });
}
function cellKeys(event, td) {
  const { key } = event, move = MOVES[key], isMask = isMaskCell(td.cell), can = canEdit(td.cell[0]);
  const next = move && td.closest("table").rows[td.parentElement.rowIndex + move[0]]?.cells[td.cellIndex + move[1]];
  const acts = next?.cell || (isMask ? /^(Enter| )$/ : /^(Enter|F2|PageUp|PageDown|[-\d.−])$/).test(key) && can;
  if (!acts) return;
  event.preventDefault();
  if (next) next.focus();
  else if (isMask) toggleMask(td.cell);
  else if (/^Page/.test(key)) nudge(td, key === "PageUp" ? 1 : -1);
  else openEdit(td, /^(Enter|F2)$/.test(key) ? undefined : key);
}
