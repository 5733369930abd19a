// ---- the heads: all of them small, one or two large with lines between words
const isMap = s => s.isShare && !s.vector && s.axes.join() === "query,key";
const weightStages = () => stages.filter(s => isMap(s) && (s.bytes || !stages.some(other => other.bytes)));
// A head is its first cell.
const headName = head => [head.s.layer && `layer ${head.s.layer}`, headWords(head)].filter(Boolean).join(", ");

// The panel of words, if there are weights, with all heads where there are several.
function wordsPanel() {
  const maps = weightStages(), own = part("weights"), first = maps.includes(own) ? own : maps[0];
  if (!maps.includes(state.large?.s)) state.large = first && cellOf(first, 0);
  const mini = head => el("button", { onclick: () => chooseHead(head), "aria-label": headName(head), class: "mini", head }, pixels(head.s));
  fill($("minis"), maps.map(s => el("div", {}, s.layer && span("of", `layer ${s.layer}`), range(s.n).map(p => mini(cellAt(s, p, 0, 0))))));
  $("minis").parentElement.hidden = all(".mini").length < 2;
  return first && $("words");
}
function chooseHead(head) {
  const { s, p } = head;
  if ($("compare").checked) {
    state.other = state.other === head ? null : head;
    return paint();
  }
  state.large = head;
  if (s.bytes) return paint();
  [state.batch, state.head] = [floor(p / headsOf(s)), p % headsOf(s)];
  if (s.group === groupShown() || !s.tree) return paint();
  [state.layer, state.group] = [s.layer ?? null, s.group];
  layOut();
  pin(startCell());
}
function paintWords() {
  paintSentence();
  $("words").hidden = !state.large || weightStages().some(s => isHidden(s) || isAsked(s));
  for (const mini of all(".mini")) {
    mini.setAttribute("aria-pressed", [state.large, state.other].includes(mini.head));
    drawPixels(mini.firstChild, mini.head.s, mini.head.p);
  }
  fill($("large"), [state.large, state.other].filter(Boolean).map(drawWords));
}
const MOST_LINES = 4096; // between words; more weights are a picture

function drawWords(head) {
  const { s, p } = head, name = el("figcaption", { text: headName(head) });
  if (s.rows * s.cols > MOST_LINES) {
    const canvas = pixels(s, false, { class: "picture", role: "img", "aria-label": `weights: ${headName(head)}` });
    drawPixels(canvas, s, p);
    return el("figure", {}, name, canvas);
  }
  const gap = max(19, min(28, 320 / s.rows)), height = gap * max(s.rows, s.cols) + 6, ties = [];
  const lines = svg("svg", { viewBox: `0 0 120 ${height}`, width: 120, height, "aria-hidden": "true" });
  planeOf(s, p).forEach((x, at) => {
    if (!(x > 0.004)) return;
    const { i, j } = cellAt(s, p, 0, at), [from, to] = [gap * (i + 0.5), gap * (j + 0.5)], width = 0.5 + 11 * x;
    ties.push([i, j, svg("path", { d: `M0 ${from}C50 ${from} 70 ${to} 120 ${to}`, "stroke-width": width, opacity: min(0.12 + x, 0.9) })]);
  });
  lines.append(...ties.map(([, , path]) => path));
  const point = (side, at) => { // at a word, whose weights are shown alone; at none
    for (const [i, j, path] of ties) path.setAttribute("class", side ? ((side === "from" ? i : j) === at ? "chosen" : "other") : "");
    for (const link of all("button", figure)) {
      const isOther = side && link.side !== side, [i, j] = side === "from" ? [at, link.at] : [link.at, at];
      link.classList.toggle("chosen", link.side === side && link.at === at);
      link.lastChild.textContent = isOther ? ` ${percent(valueAt(cellAt(s, p, i, j)))}` : "";
    }
  };
  const column = (labels, side) => el("div", { class: `words ${side}` }, labels.map((label, at) => {
    const act = () => point(side, at);
    return el("button", { side, at, onpointerenter: act, onclick: act, onfocus: act, style: `height: ${gap}px` }, labelNodes(label), el("small"));
  }));
  const figure = el("figure", { class: "graph", onpointerleave: event => event.pointerType === "mouse" && point() }, name, column(s.rowNames, "from"), lines, column(s.colNames, "to"));
  return figure;
}
ACTS.compare = () => ((state.other = null), paint());
function svg(tag, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of entries(attributes)) element.setAttribute(name, value);
  return element;
}
// ---- a word in place of another, with its vector
const canWord = () => embeddings()?.isInput && !state.locked && !state.quiz;

function setWord(at, input) {
  const word = input.value.trim(), isPadding = /^(<pad(ding)?>|\[pad\])$/i.test(word);
  if (word && !isPadding && vectorOf(word, embeddings())) return change("word", at, word);
  paintSentence(refuse(input, word, "a known word", embeddings().rowNames[at].name));
}

// The sentence, of which each word may be another.
function drawSentence() {
  if (!embeddings()) return;
  const inputs = embeddings().rowNames.map((_, at) => el("input", { "aria-label": `word ${at + 1}`, title: "another word, with its vector", autocomplete: "off", onchange: event => setWord(at, event.target) }));
  $("sentence").prepend(...inputs);
}
function paintSentence() {
  $("sentence").hidden = !canWord();
  all("#sentence input").forEach((input, at) => {
    input.value = input.word = embeddings().rowNames[at].name;
    input.size = max(1, input.value.length);
  });
}
