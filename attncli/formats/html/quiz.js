// ---- the quiz: numbers to be filled in, judged one by one, each from those that were filled in before it
const answers = new Map(); // cell → text
const MOST_ASKED = 36; // cells of a table that is asked as a whole; of a larger one the row of one query

const canAsk = () => ["scores", "weights", "output"].every(role => part(role)?.tree) && !state.locked && !isSheet() && !state.quiz && !isPicture(part("scores"));
const rowAsked = s => min(state.asks, s.rows - 1), isLarger = (s, most) => isAsked(s) && s.rows * s.cols > most;
const isAskedCell = ({ s, i }) => isAsked(s) && (!isLarger(s, isSheet() ? MOST_WRITTEN : MOST_ASKED) || i === rowAsked(s));
// The rows of a table on the page: of one that is too large to be written that which is asked for.
const rowsAsked = (s, n) => (isLarger(s, MOST_WRITTEN) ? [rowAsked(s)] : range(n));
const askedCells = () => all("input.ask").map(({ parentElement: { cell } }) => cell).sort((a, b) => stages.indexOf(a.s) - stages.indexOf(b.s));
const canCheck = s => s.tree && !isStale(s);
const answerTo = cell => (answers.get(cell) ?? "").trim();

function stagesToAsk() {
  if (isSheet()) return stages.filter(s => s.blank);
  const own = order.filter(s => s.group === groupShown());
  return own.slice(own.indexOf(part("scores")), own.indexOf(part("output")) + 1).filter(s => s.tree);
}
function ask(isOn) {
  const start = state.pinned ?? (page.open && startCell());
  state.asks = start?.s.axes[0] === "query" ? start.i : 0;
  state.quiz = isOn;
  state.step = Infinity;
  answers.clear();
  asked = new Set(isOn ? stagesToAsk() : []);
  show({ quizbar: isOn && [...asked].some(canCheck), end: !isSheet() });
  layOut();
  if (!isOn) return pin(startCell());
  tell($("check").title);
  const cells = askedCells();
  pin(cells.includes(start) ? start : cells[0]);
  if (!isSheet()) document.querySelector("input.ask")?.focus();
}
function askIn(td) {
  const { cell } = td;
  if (!isAskedCell(cell)) td.textContent = "·";
  else if (!td.querySelector("input")) fill(td, el("input", { class: "ask", value: answerTo(cell), "aria-label": `${plainName(cell)} = ?`, autocomplete: "off" }));
}
on(document, "input", ({ target }) => {
  const td = target.className === "ask" && target.parentElement;
  if (!td) return;
  answers.set(td.cell, target.value);
  td.dataset.kind = "";
});
on(document, "keydown", ({ key, target }) => key === "Enter" && target.className === "ask" && checkAnswers());

// What an answer is, and its slip where that is known: right, wrong, open, or what follows from one before it.
function judge(cell) {
  const text = answerTo(cell), { s } = cell, truth = valueAt(cell), x = numberOf(text);
  if (!text) return ["open"];
  if (isNaN(x)) return s.undefined && isNaN(truth) ? ["right"] : ["wrong", "no number"];
  const places = /[/√]/.test(text) ? 6 : (text.replace(",", ".").split(".")[1] ?? "").length, allowed = 0.5001 * 10 ** -places;
  const isNear = (y, most = allowed) => x === y || abs(x - y) <= most;
  const isShort = places < min(2, decimalsOf(s, 4)) && abs(truth - Number(truth.toFixed(places))) > 1e-9;
  if (isNear(truth)) return isShort ? ["wrong", "right as far as it goes; give two decimals at least"] : ["right"];
  const written = other => { // what was filled in, where something was
    const y = isAsked(other.s) ? numberOf(answerTo(other)) : NaN;
    return isNaN(y) ? valueAt(other) : y;
  };
  const carried = numberAt(cell, written), isOther = !isNear(truth, 2 * allowed + abs(carried - truth) / 2);
  if (isOther && isNear(carried, 5 * allowed + 0.005 * abs(carried))) return ["follows"];
  const slip = [...slipsAt(cell, written), ...slipsAt(cell, valueAt)].find(([, y]) => isNear(y) && abs(y - truth) >= 1e-9);
  return ["wrong", slip?.[0]];
}

// The slips of the terms of a cell, then those of its stage, each a formula; `of` gives the numbers that are read.
function slipsAt(cell, of) {
  const { s, p, i, j } = cell, whole = numberAt(cell, of), slips = [];
  s.slips ??= (page.slips[s.id] ?? []).map(([words, formula]) => [words, prepare({ ...s, ...formula })]);
  for (const [a, b] of pairsAt(cell)) {
    slips.push([`the term ${plainName(a)}·${plainName(b)} is left out`, whole - of(a) * of(b)]);
    slips.push(["a term has the wrong sign", whole - 2 * of(a) * of(b)]);
  }
  if (i < s.cols && j < s.rows) slips.push(["row and column are swapped", numberAt(cellAt(s, p, j, i), of)]);
  return [...slips, ["the sign is wrong", -whole], ...s.slips.map(([words, other]) => [words, numberAt(cell, of, other)])];
}
const judgeAll = () => askedCells().filter(cell => canCheck(cell.s)).map(cell => [cell, ...judge(cell)]);

function checkAnswers() {
  const judged = judgeAll(), of = wanted => judged.filter(([, kind]) => kind === wanted), wrong = of("wrong");
  if (!judged.length) return;
  for (const [cell, kind] of judged) for (const td of shownAt.get(cell)) if (td.querySelector("input")) td.dataset.kind = kind;
  const lines = values(Object.groupBy(wrong, ([{ s }, , slip]) => s.id + slip)).map(alike => {
    const names = alike.map(([cell]) => plainName(cell)), [, , slip] = alike[0], more = names.length > 3 ? ` and ${names.length - 3} more` : "";
    return names.slice(0, 3).join(", ") + more + (slip ? `: ${slip}` : ` ${names.length > 1 ? "are" : "is"} not right`);
  });
  const rest = of("follows").length, open = of("open").length, right = of("right").length;
  if (wrong.length === 1 && rest) lines[0] = `One mistake, ${lines[0]}; the rest follows from it`;
  else if (rest) lines.push(`${rest} more follow from ${wrong.length ? "these" : "what is left open"}`);
  lines.push(right === judged.length ? `All ${right} numbers are right` : `${right} of ${judged.length} are right${open ? `, ${open} still open` : ""}`);
  tell(...lines);
}

// The step that a number comes from: of the cell in focus, or of the first that is open or wrong.
function hint() {
  const cells = judgeAll().filter(([, kind]) => kind !== "right").map(([cell]) => cell), cell = cells.includes(state.pinned) ? state.pinned : cells[0];
  if (!cell) return checkAnswers();
  tell(`${plainName(cell)}: step ${cell.s.short}, ${formulaOf(cell.s)}. Read ${cut([...readsAt(cell).keys()].map(plainName), 8).join(", ")}`);
}
function tell(...lines) {
  fill($("verdict"), lines.map(words => el("li", { text: `${words}.` })));
  announce($("verdict").textContent);
}
assign(ACTS, { quiz: () => ask(true), end: () => ask(false), check: checkAnswers, hint });
