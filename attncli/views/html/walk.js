// ---- one query's way: its row through all stages, one step at a time
const sameRows = s => s.axes[0] === part("scores").axes[0] && s.rows === part("scores").rows && !s.vector && !s.isBackward;
const walkStages = () => inGroup().filter(s => sameRows(s) && isHere(s) && Object.keys(s.sources).length);
function canWalk() {
  return Boolean(part("scores")?.tree && part("weights")?.tree && !state.quiz && !isPicture(part("scores")));
}
function startWalk() {
  const { pinned } = state, isRow = pinned && pinned[0].axes[0] === part("scores").axes[0];
  state.walk = { row: isRow ? pinned[2] : part("scores").rows - 1, at: 0, back: pinned };
  state.step = Infinity;
  $("why").append(el("div", { id: "walkbar" }));
  paint();
  $("walk-next").focus();
}
function endWalk() {
  const { back } = state.walk;
  state.walk = null;
  $("walkbar").remove();
  pin(back ?? startCell());
  $("walk")?.focus();
}
function walkTo(at, row = state.walk.row) {
  const n = walkStages().length, { walk } = state, { rows } = part("scores");
  [walk.at, walk.row] = [Math.max(0, Math.min(n - 1, at)), (row + rows) % rows];
  light(null);
}
function lightWalk() {
  const { walk } = state, path = walkStages(), s = path[walk.at];
  const rowOf = stage => range(stage.cols).map(j => [stage, shownPlane(stage), walk.row, j]);
  document.body.classList.add("pointing");
  for (const before of path.slice(0, walk.at + 1)) rowOf(before).forEach(cell => mark(cell));
  for (const [read, side] of rowOf(s).flatMap(readsAt)) mark(read, side);
  rowOf(s).forEach(cell => mark(cell, "own"));
  $("why").hidden = false;
  $("why").firstElementChild.hidden = true;
  drawWalk(s, path, rowOf(s));
  markMap(s);
  $(`at-${s.id}`)?.scrollIntoView({ block: "nearest", inline: "nearest" });
}
function drawWalk(s, path, cells) {
  const { walk } = state, focus = focused()?.id, most = !isNarrow() ? 6 : s.isShare ? 1 : 3;
  const key = (id, text, label, onclick, disabled = false) => button(text, onclick, label, { id, disabled });
  const words = paragraph("sum-up", el("b", {}, "Query ", labelNodes(part("scores").rowNames[walk.row])), ` · step ${walk.at + 1} of ${path.length}: `,
    math(formulaOf(s)), s.note ? ` · ${s.note}.` : "");
  const lines = cells.slice(0, most).map(cell => el("li", {}, nameOf(cell), s.tree && [" = ", wordsAt(cell)], " = ", el("b", { text: trimmed(valueAt(cell), 4) })));
  if (cells.length > most) lines.push(el("li", {}, `and ${cells.length - most} more, lit above`));
  const turn = el("div", { class: "turn" }, key("walk-back", "◀", "step back", () => walkTo(walk.at - 1), !walk.at),
    key("walk-next", "Next ▶", "next step", () => walkTo(walk.at + 1), walk.at === path.length - 1),
    key("walk-up", "▲", "the query above", () => walkTo(walk.at, walk.row - 1)), key("walk-down", "▼", "the query below", () => walkTo(walk.at, walk.row + 1)),
    key("walk-end", "×", "end the walk", endWalk));
  const showsShares = s.isShare || sourcesOf(s).some(source => source.isShare);
  $("walkbar").replaceChildren(words, el("ul", { class: "derivation" }, lines), showsShares ? shareBars() : "", turn);
  if (focus?.startsWith("walk-")) ($(focus).disabled ? $("walk-end") : $(focus)).focus();
  announce(words.textContent);
}

// What each key contributes, as a bar.
function shareBars() {
  const { walk } = state, a = part("weights"), shares = range(a.cols).map(j => valueAt([a, shownPlane(a), walk.row, j]));
  return el("div", { class: "bars", role: "img", "aria-label": shares.map((x, j) => `${labelText(a.colNames[j])} ${percent(x)}`).join(", ") }, shares.map((x, j) => {
    const bar = span("bar", labelNodes(a.colNames[j]), ` ${percent(x)}`);
    bar.style.flexGrow = Math.max(x, 0.001);
    [bar.style.background, bar.style.color] = shadeOf(a, x) ?? ["", ""];
    return bar;
  }));
}
function walkKeys(event) {
  const { walk } = state;
  if (!walk || !event.target.closest?.("#walkbar")) return;
  const turn = { ArrowRight: [walk.at + 1], ArrowLeft: [walk.at - 1], ArrowDown: [walk.at, walk.row + 1], ArrowUp: [walk.at, walk.row - 1], Home: [0], End: [99] }[event.key];
  if (!turn) return;
  event.preventDefault();
  walkTo(...turn);
}
