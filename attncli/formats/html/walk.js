// ---- one query's way: its row through all stages, one step at a time
const sameRows = s => s.axes[0] === part("scores").axes[0] && s.rows === part("scores").rows && !s.vector && !s.isBackward;
const walkStages = () => inGroup().filter(s => sameRows(s) && isHere(s) && keys(s.sources).length);
const canWalk = () => part("scores")?.tree && part("weights")?.tree && !state.quiz && !isPicture(part("scores"));
const SECONDS = 2.5; // of a step that is played

function startWalk() {
  const { pinned } = state, isRow = pinned?.s.axes[0] === part("scores").axes[0];
  state.walk = { row: isRow ? pinned.i : part("scores").rows - 1, at: 0, back: pinned };
  state.step = Infinity;
  turnPanel();
  paint();
  $("walk-next").focus();
}
function endWalk() {
  const { back } = state.walk;
  play(false);
  state.walk = null;
  turnPanel();
  pin(back ?? startCell());
  $("walk").focus();
}
function turnPanel() {
  show({ walkbar: state.walk, turn: !state.walk, why: true, panel: true });
  fill($("bars"));
  fill($("was"));
}
function walkTo(at, row = state.walk.row) {
  const n = walkStages().length, { walk } = state, { rows } = part("scores");
  [walk.at, walk.row] = [max(0, min(n - 1, at)), (row + rows) % rows];
  if (walk.at === n - 1) play(false);
  light(null);
}
function play(isOn) {
  clearInterval(state.walk.timer);
  state.walk.timer = isOn && setInterval(() => walkTo(state.walk.at + 1), 1000 * SECONDS);
  $("walk-play").textContent = isOn ? "Pause" : "Play";
}
function lightWalk() {
  const { walk } = state, path = walkStages(), s = path[walk.at], focus = focused();
  const rowOf = stage => range(stage.cols).map(j => cellAt(stage, shownPlane(stage), walk.row, j)), cells = rowOf(s);
  document.body.classList.add("pointing");
  for (const cell of path.slice(0, walk.at + 1).flatMap(rowOf)) mark(cell);
  for (const cell of cells) for (const [read, side] of readsAt(cell)) mark(read, side);
  for (const cell of cells) mark(cell, "own");
  fill($("sum-up"), el("b", {}, "Query ", labelNodes(part("scores").rowNames[walk.row])), ` · step ${walk.at + 1} of ${path.length}: `, math(formulaOf(s)), s.note && ` · ${s.note}.`);
  const most = isNarrow() ? 1 : 6, rest = cells.length - most;
  fill($("lines"), cells.slice(0, most).map(cell => el("li", {}, nameOf(cell), s.tree && [" = ", wordsAt(cell)], s.tree ? signAt(cell) : " = ", el("b", { text: trimmed(valueAt(cell), 4) }))),
    rest > 0 && el("li", { text: `and ${rest} more, lit above` }));
  const weights = part("weights"), showsShares = [s, ...sourcesOf(s)].includes(weights);
  fill($("bars"), showsShares && rowOf(weights).map(barOf));
  $("walk-back").disabled = !walk.at;
  $("walk-next").disabled = $("walk-play").disabled = walk.at === path.length - 1;
  if (focus.disabled) $("walk-end").focus();
  announce($("sum-up").textContent);
  markMap(s);
  reveal($(`at-${s.id}`));
}

// What a key contributes, as a part of a bar.
function barOf(cell) {
  const x = valueAt(cell), bar = span("bar", labelNodes(cell.s.colNames[cell.j]), ` ${percent(x)}`);
  bar.style.flexGrow = max(x, 0.001);
  tint(bar, cell.s, x);
  return bar;
}
function walkKeys(event) {
  const button = event.target.closest?.("#walkbar") && all("#walkbar button").find(each => each.dataset.key === event.key);
  if (!button) return;
  event.preventDefault();
  button.click();
}
const step = (by, rows = 0) => () => walkTo(state.walk.at + by, state.walk.row + rows);
assign(ACTS, {
  walk: startWalk, "walk-end": endWalk, "walk-play": () => play(!state.walk.timer), "walk-back": step(-1), "walk-next": step(1),
  "walk-up": step(0, -1), "walk-down": step(0, 1), "walk-first": step(-Infinity), "walk-last": step(Infinity),
});
