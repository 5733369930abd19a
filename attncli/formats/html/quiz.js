// ---- the quiz and the worksheet: numbers to be filled in
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
  if (isSheet()) remembered();
  show({ quizbar: isOn && [...asked].some(canCheck), end: !isSheet(), save: isSheet() && filed(), load: isSheet() && filed() });
  $("end").textContent = "Give up, show the numbers";
  layOut();
  if (!isOn) return pin(startCell());
  tell($("check").title);
  const cells = askedCells();
  pin(cells.includes(start) ? start : cells[0]);
  if (isSheet()) return;
  document.querySelector("input.ask")?.focus();
  keepClear();
  reveal(focused());
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
  $("end").textContent = "Give up, show the numbers";
  remember();
});
on(document, "keydown", ({ key, target }) => key === "Enter" && target.className === "ask" && checkAnswers());

// The answers as they are judged, and those that are no numbers.
function judgeAnswers() {
  const texts = new Map(), none = [], isNumber = cell => !isNaN(numberOf(answerTo(cell))) || (cell.s.undefined && /^[–-]$/.test(answerTo(cell)));
  for (const s of stages.filter(s => isAsked(s) && canCheck(s))) texts.set(s, new Map());
  for (const cell of answers.keys()) {
    if (!answerTo(cell) || !texts.has(cell.s)) continue;
    if (isNumber(cell)) texts.get(cell.s).set(cell.at, answerTo(cell));
    else none.push(cell);
  }
  for (const [s, own] of texts) if (!own.size) texts.delete(s);
  const { mistakes, kinds } = judged(texts);
  for (const cell of none) kinds.set(cell, "wrong");
  return { mistakes, kinds, none };
}
function checkAnswers() {
  const cells = askedCells().filter(cell => canCheck(cell.s));
  if (!cells.length) return;
  const { mistakes, kinds, none } = judgeAnswers();
  const all = [...new Set([...cells, ...kinds.keys()])], of = kind => all.filter(cell => kinds.get(cell) === kind).length;
  for (const cell of all)
    for (const td of shownAt.get(cell) ?? []) if (td.querySelector("input")) td.dataset.kind = kinds.get(cell) ?? "open";
  const lines = [...none.map(cell => `${plainName(cell)} is no number`), ...mistakes.map(lineOfMistake)];
  const rest = of("follows"), right = of("right"), open = all.length - kinds.size;
  if (lines.length === 1 && rest) lines[0] = `One mistake, ${lines[0]}; the rest follows from it`;
  else if (rest) lines.push(`${rest} more follow from ${lines.length ? "these" : "what is left open"}`);
  lines.push(right === all.length ? `All ${right} numbers are right` : `${right} of ${all.length} are right${open ? `, ${open} still open` : ""}`);
  tell(...lines);
}
// A mistake as `check --by-hand` says it, but for the right numbers.
function lineOfMistake({ cells, slips }) {
  const names = cells.map(({ cell }) => (headsOf(cell.s) > 1 ? `${plainName(cell)} of ${headWords(cell)}` : plainName(cell)));
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "", words = slips.map(slip => slip.words);
  const cause = words.length ? `: ${words.length > 1 ? "either " : ""}${words.join(", or ")}` : ` ${names.length > 1 ? "are" : "is"} not right, cause unknown`;
  return names.slice(0, MOST_NAMED).join(", ") + more + cause;
}

// The step that a number comes from: of the cell in focus, or of the first that is open or wrong.
function hint() {
  const { kinds } = judgeAnswers(), cells = askedCells().filter(cell => canCheck(cell.s) && kinds.get(cell) !== "right");
  const cell = cells.includes(state.pinned) ? state.pinned : cells[0];
  if (!cell) return checkAnswers();
  shownAt.get(cell).map(td => td.querySelector("input")).find(Boolean)?.focus(); // so that it can be typed
  tell(`${plainName(cell)}: step ${cell.s.short}, ${formulaOf(cell.s)}. Read ${cut([...readsAt(cell).keys()].map(plainName), 8).join(", ")}`);
}
function tell(...lines) {
  fill($("verdict"), lines.map(words => el("li", { text: `${words}.` })));
  announce($("verdict").textContent);
}
// The first press asks, where something was filled in.
function endQuiz(button) {
  const question = "Your answers go: press again";
  if (![...answers.values()].some(text => text.trim()) || button.textContent === question) return ask(false);
  button.textContent = question;
  announce(question);
}

// ---- a worksheet as the JSON that `attncli check FILE --by-hand` reads: what it is computed from, and its
// stages with null where a cell is blank
function sheetNow() {
  const { prefix } = filed(), json = fileNow(), own = [...asked].filter(s => s.id.startsWith(prefix) && !(s.short in json));
  for (const s of own) json[s.short] = nested(s, s.shape, 0, at => answerTo(cellOf(s, at)) || null);
  return json;
}
// The answers of such a file, or of a part of one; whether there are any.
function fillFrom(json) {
  const { prefix } = filed() ?? {}, own = [...asked].filter(s => json && Array.isArray(json[s.id.slice(prefix?.length)]));
  const cells = own.flatMap(s => json[s.id.slice(prefix.length)].flat(9).map((text, at) => [cellOf(s, at), text]));
  const known = cells.filter(([{ s, at }, text]) => at < s.data.length && text !== null && text !== "");
  for (const [cell, text] of known) answers.set(cell, String(text));
  return known.length > 0;
}
function saveSheet() {
  const blob = new Blob([JSON.stringify(sheetNow(), null, 1)], { type: "application/json" });
  const link = el("a", { href: URL.createObjectURL(blob), download: "sheet.json" });
  link.click();
  URL.revokeObjectURL(link.href);
  announce("the answers were saved as sheet.json");
}
async function loadSheet({ files: [file] }) {
  let json = null;
  try {
    json = JSON.parse(await file.text());
  } catch {} // which is said below
  if (!fillFrom(json)) return tell(`${file.name} holds no answers of this sheet`);
  remember();
  layOut();
  pin(state.pinned);
  checkAnswers();
}

// The answers stay over a reload, where the browser lets a page keep anything.
const placeOfAnswers = () => `attncli ${[...$("data").textContent].reduce((sum, char) => (Math.imul(sum, 31) + char.charCodeAt(0)) | 0, 0)}`;
function remember() {
  if (!isSheet()) return;
  const texts = [...answers].filter(([, text]) => text.trim()).map(([{ s, at }, text]) => [s.id, at, text]);
  try {
    localStorage.setItem(placeOfAnswers(), JSON.stringify(texts));
  } catch {} // a frame, or a browser that keeps nothing
}
function remembered() {
  try {
    for (const [id, at, text] of JSON.parse(localStorage.getItem(placeOfAnswers())) ?? []) answers.set(cellOf(byName.get(id), at), text);
  } catch {} // as above
}
assign(ACTS, { quiz: () => ask(true), end: endQuiz, check: checkAnswers, hint, save: saveSheet, load: () => $("file").click() });
CHANGES.file = loadSheet;
