// ---- the quiz: numbers to be filled in, judged one by one, each from those that were filled in before it

const answers = new Map(); // cell → text
const MOST_ASKED = 36; // cells of a table that is asked as a whole; of a larger one the row of one query
let inFocus = null;

function canAsk() {
  return isSheet() || ["scores", "weights", "output"].every(role => part(role)?.tree) && !state.locked && !isPicture(part("scores"));
}
const isAskedCell = ([s, , i]) => isAsked(s) && (isSheet() || s.rows * s.cols <= MOST_ASKED || i === state.asks);
const askedCells = () => order.filter(isAsked).flatMap(s => range(s.rows * s.cols).map(at => cellOf(s, shownPlane(s) * s.rows * s.cols + at))).filter(isAskedCell);
const answerTo = cell => (answers.get(cellKey(cell)) ?? "").trim();

function stagesToAsk() {
  if (isSheet()) return stages.filter(s => s.blank);
  const own = order.filter(s => s.group === groupShown() && !s.heading);
  return own.slice(own.indexOf(part("scores")), own.indexOf(part("output")) + 1).filter(s => s.tree);
}

function ask(isOn) {
  state.asks = state.pinned?.[0].axes[0] === part("scores")?.axes[0] ? state.pinned[2] : 0;
  state.quiz = isOn;
  state.step = Infinity;
  answers.clear();
  asked = new Set(isOn ? stagesToAsk() : []);
  $("quizbar")?.remove();
  layOut();
  if (!isOn) return pin(startCell());
  $("why").append(quizBar());
  tell(["Fill in what you like; Check or Enter judges it. You may write 1/2"]);
  const [first] = askedCells();
  pin(first ?? null);
  if (!isSheet()) document.querySelector("input.ask")?.focus();
}

function askIn(td) {
  const { cell } = td, input = el("input", { class: "ask", value: answerTo(cell), "aria-label": `${plainName(cell)} = ?`, autocomplete: "off" });
  if (!isAskedCell(cell)) return (td.textContent = "·");
  if (td.querySelector("input")) return;
  on(input, "input", () => {
    answers.set(cellKey(cell), input.value);
    td.classList.remove("right", "wrong", "follows");
  });
  on(input, "keydown", event => event.key === "Enter" && checkAnswers());
  on(input, "focus", () => {
    inFocus = cellKey(cell);
    pin(cell);
  });
  td.replaceChildren(input);
}

// An answer is right, wrong with or without a known slip, what follows from one before it, or open.
function judge(cell) {
  const text = answerTo(cell), [s] = cell, truth = valueAt(cell), x = numberOf(text);
  if (!text || !s.tree) return { cell, kind: "open" };
  if (Number.isNaN(x)) return { cell, kind: "wrong", slip: "this is no number" };
  const places = /[/√]/.test(text) ? 6 : (text.replace(",", ".").split(".")[1] ?? "").length, allowed = 0.5001 * 10 ** -places;
  const isNear = (y, most = allowed) => x === y || Math.abs(x - y) <= most;
  const isShort = places < Math.min(2, decimalsOf(s, 4)) && Math.abs(truth - Number(truth.toFixed(places))) > 1e-9;
  if (isNear(truth)) return isShort ? { cell, kind: "wrong", slip: "right as far as it goes; give two decimals at least" } : { cell, kind: "right" };
  const written = other => { // what was filled in, where something was
    const y = isAsked(other[0]) ? numberOf(answerTo(other)) : NaN;
    return Number.isNaN(y) ? valueAt(other) : y;
  };
  const carried = numberAt(cell, written);
  const isOther = !isNear(truth, 2 * allowed + Math.abs(carried - truth) / 2);
  if (isOther && isNear(carried, 5 * allowed + 0.005 * Math.abs(carried))) return { cell, kind: "follows" };
  const slip = [...slipsAt(cell, written), ...slipsAt(cell, valueAt)].find(([, y]) => isNear(y) && Math.abs(y - truth) >= 1e-9);
  return { cell, kind: "wrong", slip: slip?.[0] ?? "" };
}

// The usual slips at a cell, each with the number that it leads to; `of` gives the numbers that are read.
function slipsAt(cell, of) {
  const [s, p, i, j] = cell, { op, args = [] } = s.tree, slips = [], factor = s.params.root ?? 1 / s.params.factor;
  if (s.product?.isWhole) slips.push(...slipsOfProduct(cell, of));
  else if (op === "softmax") slips.push(...slipsOfSoftmax(cell, of));
  else if (Number.isFinite(factor)) {
    const x = of(readsAt(cell)[0][0]);
    slips.push(["not scaled: it is still to be divided by √d_k", x], ["divided by d_k, not by its root", x / factor ** 2],
      ["multiplied where it is divided", x * factor], ["divided by the root of the number of keys", x / Math.sqrt(s.cols)]);
  } else if (op === "if" && args.length) slips.push(["the mask is left out", of(firstRead(cell))]);
  if (i < s.cols && j < s.rows) slips.push(["row and column are swapped", numberAt([s, p, j, i], of)]);
  return [...slips, ["the sign is wrong", -numberAt(cell, of)]];
}

const firstRead = ([s, p, i, j]) => [Object.values(s.sources)[0], p, i, j];

function slipsOfProduct(cell, of) {
  const [s, , i, j] = cell, pairs = pairsAt(cell), terms = pairs.map(([a, b]) => of(a) * of(b)), whole = sum(terms), [left, right] = pairs[0];
  const number = ([source, plane], row, column) => (row < source.rows && column < source.cols ? of([source, plane, row, column]) : NaN);
  const slips = pairs.map(([a, b], at) => [`the term ${plainName(a)}·${plainName(b)} is left out`, whole - terms[at]]);
  if (isTurned(s)) slips.push([`${right[0].symbol} is not transposed`, sum(range(left[0].cols).map(t => number(left, i, t) * number(right, t, j)))]);
  else slips.push([`a column of ${left[0].symbol} where its row belongs`, sum(range(right[0].rows).map(t => number(left, t, i) * number(right, t, j)))],
    ["the values without their weights", sum(pairs.map(([, b]) => of(b)))], ["the plain mean of the values", sum(pairs.map(([, b]) => of(b))) / pairs.length]);
  slips.push(...terms.map(term => ["a term has the wrong sign", whole - 2 * term]));
  return [...slips, ["added where it is multiplied", sum(pairs.flat().map(of))]];
}

function slipsOfSoftmax([s, p, i, j], of) {
  const [from] = Object.values(s.sources), z = (row, column) => of([from, p, row, column]), e = (row, column) => Math.exp(z(row, column));
  const columns = range(s.cols), rows = range(s.rows), below = sum(columns.map(c => e(i, c))), whole = sum(rows.flatMap(r => columns.map(c => e(r, c))));
  const share = number => Math.exp(number(j)) / sum(columns.map(c => Math.exp(number(c))));
  const raw = part("scores"), [before] = Object.values(from.sources);
  const slips = [["no exp: shares of the scores themselves", z(i, j) / sum(columns.map(c => z(i, c)))], ["softmax over columns, not rows", e(i, j) / sum(rows.map(r => e(r, j)))],
    ["softmax of the scores before they were scaled", share(c => of([raw, p, i, c]))], ["exp, but not divided by the sum of the row", e(i, j)],
    ["softmax of the whole table, not of the row", e(i, j) / whole], ["exp of the negative", share(c => -z(i, c))], ["no softmax", z(i, j)]];
  if (from.tree?.op === "if") slips.push(["the mask is left out", share(c => of([before, p, i, c]))]);
  return [...slips, ...columns.map(c => [`e to ${plainName([from, p, i, c])} is missing in the sum`, e(i, j) / (below - e(i, c))])];
}

function checkAnswers() {
  const judged = askedCells().map(judge), of = kind => judged.filter(one => one.kind === kind), wrong = of("wrong");
  for (const { cell, kind } of judged)
    for (const td of cellsAt.get(keyOf(cell[0], cell[2], cell[3])).filter(td => td.querySelector("input"))) {
      td.classList.remove("right", "wrong", "follows");
      if (kind !== "open") td.classList.add(kind);
    }
  const bySlip = new Map();
  for (const one of wrong) {
    const key = `${one.cell[0].id}|${one.slip}`;
    bySlip.set(key, [...(bySlip.get(key) ?? []), one]);
  }
  const lines = [...bySlip.values()].map(alike => {
    const names = alike.slice(0, 3).map(one => plainName(one.cell)).join(", "), more = alike.length > 3 ? ` and ${alike.length - 3} more` : "";
    return `${names}${more}${alike[0].slip ? `: ${alike[0].slip}` : alike.length > 1 ? " are not right" : " is not right"}`;
  });
  const rest = of("follows").length, open = of("open").length;
  if (wrong.length === 1 && rest) lines[0] = `One mistake, ${lines[0]}; the rest follows from it`;
  else if (rest) lines.push(`${rest} more follow from ${wrong.length ? "these" : "what is left open"}`);
  if (!wrong.length && !rest && !open) lines.push(`All ${judged.length} numbers are right`);
  else lines.push(`${of("right").length} of ${judged.length} are right${open ? `, ${open} still open` : ""}`);
  tell(lines);
  announce(lines.join(". "));
}

// The step that a number comes from: of the cell in focus, or of the first that is open or wrong.
function hint() {
  const judged = askedCells().map(judge).filter(({ kind }) => kind !== "right");
  const one = judged.find(({ cell }) => cellKey(cell) === inFocus) ?? judged[0];
  if (!one) return checkAnswers();
  const [s] = one.cell, reads = readsAt(one.cell).map(([read]) => plainName(read));
  tell([`${plainName(one.cell)}: step ${s.short}, ${formulaOf(s)}. Read ${cut(reads, 8).join(", ")}`]);
  announce($("verdict").textContent);
}

const tell = lines => $("verdict").replaceChildren(...lines.map(words => el("li", { text: `${words}.` })));
const quizBar = () => el("div", { id: "quizbar" }, tool("check", "Check", checkAnswers), tool("hint", "Hint", hint),
  !isSheet() && el("button", { text: "End, show the numbers", onclick: () => ask(false) }), el("ul", { id: "verdict" }));
