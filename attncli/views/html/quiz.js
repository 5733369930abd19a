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
  const own = order.filter(s => s.group === groupShown());
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
  const carried = numberAt(cell, written), isOther = !isNear(truth, 2 * allowed + Math.abs(carried - truth) / 2);
  if (isOther && isNear(carried, 5 * allowed + 0.005 * Math.abs(carried))) return { cell, kind: "follows" };
  const slip = [...slipsAt(cell, written), ...slipsAt(cell, valueAt)].find(([, y]) => isNear(y) && Math.abs(y - truth) >= 1e-9);
  return { cell, kind: "wrong", slip: slip?.[0] ?? "" };
}

// The slips of a stage, each a formula, and those of its terms; `of` gives the numbers that are read.
function slipsAt(cell, of) {
  const [s, p, i, j] = cell, pairs = pairsAt(cell) ?? [], whole = numberAt(cell, of);
  s.slips ??= (page.slips[s.id] ?? []).map(([words, formula]) => [words, { ...s, ...formula }]);
  const slips = s.slips.map(([words, other]) => {
    if (other.tree === s.tree) prepare(other);
    return [words, numberAt([other, p, i, j], of)];
  });
  for (const [a, b] of pairs) {
    slips.push([`the term ${plainName(a)}·${plainName(b)} is left out`, whole - of(a) * of(b)]);
    slips.push(["a term has the wrong sign", whole - 2 * of(a) * of(b)]);
  }
  if (i < s.cols && j < s.rows) slips.push(["row and column are swapped", numberAt([s, p, j, i], of)]);
  return [...slips, ["the sign is wrong", -whole]];
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
  !isSheet() && button("End, show the numbers", () => ask(false)), el("ul", { id: "verdict" }));
