// ---- the heads: all of them small, one or two large with lines between words
const isMap = s => s.isShare && !s.vector && s.axes.join() === (part("weights") ?? s).axes.join();
const weightStages = () => stages.filter(s => isMap(s) && (s.bytes || !stages.some(other => other.bytes)));
const isOf = (choice, s, p) => choice?.[0] === s && choice[1] === p;
const headName = ([s, p]) => [s.layer && `layer ${s.layer}`, headWords(s, p)].filter(Boolean).join(", ");

function wordsPanel() {
  const maps = weightStages(), isMany = sum(maps.map(s => s.n)) > 1, own = part("weights"), first = maps.includes(own) ? own : maps[0];
  if (!first) return null;
  if (!maps.includes(state.large?.[0])) state.large = [first, 0];
  const line = s => [el("span", { class: "of", text: s.layer ? `layer ${s.layer}` : "" }), ...range(s.n).map(p => {
    const title = headName([s, p]), mini = button("", () => chooseHead(s, p), title, { class: "mini", title, head: [s, p] });
    mini.append(el("canvas", { width: s.cols, height: s.rows }));
    return mini;
  })];
  const setCompare = event => {
    state.compares = event.target.checked;
    if (!state.compares) state.other = null;
    paint();
  };
  const compare = el("label", {}, el("input", { type: "checkbox", checked: state.compares, onchange: setCompare }), " compare: the next choice stands beside");
  const small = isMany && el("div", { class: "all" }, el("div", { class: "minis" }, maps.map(s => el("div", {}, line(s)))), compare);
  return el("section", { id: "words" }, el("h2", { text: isMany ? "Who attends to whom, head by head" : "Who attends to whom" }),
    el("p", { class: "hint", text: "On the left is the word that looks, on the right what it looks at; the thicker a line, the larger the weight. Point at a word." }),
    el("div", { class: "heads" }, small, el("div", { id: "large" })));
}
function chooseHead(s, p) {
  if (state.compares) {
    state.other = isOf(state.other, s, p) ? null : [s, p];
    return paint();
  }
  state.large = [s, p];
  if (s.bytes) return paint();
  [state.batch, state.head] = [Math.floor(p / headsOf(s)), p % headsOf(s)];
  if (s.group === groupShown() || !s.tree) return paint();
  [state.layer, state.group] = [s.layer ?? null, s.group];
  layOut();
  pin(startCell());
}
function paintWords() {
  if (!$("words")) return;
  $("words").hidden = weightStages().some(s => isHidden(s) || isAsked(s));
  for (const mini of all(".mini")) {
    const [s, p] = mini.head;
    mini.setAttribute("aria-pressed", String(isOf(state.large, s, p) || isOf(state.other, s, p)));
    drawPixels(mini.firstChild, s, p);
  }
  $("large").replaceChildren(...[state.large, state.other].filter(Boolean).map(drawWords));
}
const MOST_LINES = 4096; // between words; more weights are a picture

function drawWords([s, p]) {
  if (s.rows * s.cols > MOST_LINES) {
    const canvas = el("canvas", { width: s.cols, height: s.rows, class: "picture", role: "img", "aria-label": `weights: ${headName([s, p])}` });
    drawPixels(canvas, s, p);
    return el("figure", {}, el("figcaption", { text: headName([s, p]) }), canvas);
  }
  const gap = Math.max(19, Math.min(28, 320 / s.rows)), height = gap * Math.max(s.rows, s.cols) + 6, { word } = state;
  const lines = svg("svg", { viewBox: `0 0 120 ${height}`, width: 120, height, "aria-hidden": "true" });
  s.value[p].forEach((x, at) => {
    if (!(x > 0.004)) return;
    const i = Math.floor(at / s.cols), j = at % s.cols, isOwn = !word || (word[0] === "from" ? i : j) === word[1];
    const path = `M0 ${gap * (i + 0.5)}C50 ${gap * (i + 0.5)} 70 ${gap * (j + 0.5)} 120 ${gap * (j + 0.5)}`, opacity = !isOwn ? 0.04 : word ? 0.85 : Math.min(0.12 + x, 0.9);
    lines.append(svg("path", { d: path, class: "tie", "stroke-width": (0.5 + 11 * x).toFixed(2), opacity: opacity.toFixed(2) }));
  });
  const column = (labels, which) => el("div", { class: `words ${which}` }, labels.map((label, at) => {
    const isOther = word && word[0] !== which, x = isOther ? s.value[p][which === "to" ? word[1] * s.cols + at : at * s.cols + word[1]] : null;
    const turn = () => pointAtWord([which, at]);
    const link = el("button", { class: word && !isOther && word[1] === at ? "chosen" : "", onpointerenter: event => event.pointerType === "mouse" && turn(), onclick: turn, onfocus: turn }, labelNodes(label), isOther && el("small", { text: ` ${percent(x)}` }));
    link.style.height = `${gap}px`;
    link.dataset.key = `${s.id}.${p}.${which}.${at}`;
    return link;
  }));
  const leave = event => event.pointerType === "mouse" && pointAtWord(null);
  return el("figure", { class: "graph", onpointerleave: leave }, el("figcaption", { text: headName([s, p]) }), column(s.rowNames, "from"), lines, column(s.colNames, "to"));
}
function pointAtWord(word) {
  if (JSON.stringify(word) === JSON.stringify(state.word)) return;
  const { key } = focused()?.dataset ?? {};
  state.word = word;
  paintWords();
  if (key) all(".words button").find(link => link.dataset.key === key)?.focus();
}

// ---- a word in place of another, with its vector
const embeddings = () => byName.get("embeddings");

function vocabulary() {
  const e = embeddings(), words = new Map(Object.entries(page.spare ?? {}));
  atStart.each.find(({ id }) => id === e.id).rowNames.forEach((label, i) => words.set(label.name, [...e.original.subarray(i * e.cols, (i + 1) * e.cols)]));
  return words;
}
const canWord = () => Boolean(embeddings()?.isInput) && !state.locked && !state.quiz && vocabulary().size > 1;

// Vectors that no longer are those of the words can be said by no call that draws them.
const isDrawn = id => {
  const s = byName.get(id), known = vocabulary(), row = i => s.data.subarray(i * s.cols, (i + 1) * s.cols);
  return s.rowNames.every(({ name }, i) => row(i).every((x, j) => x === (known.get(name) ?? s.original.subarray(i * s.cols))[j]));
};
function setWord(at, word) {
  const e = embeddings(), old = e.rowNames.map(label => label.name), fresh = labelsOf(old.map((name, i) => (i === at ? word : name)));
  remember();
  e.data.set(vocabulary().get(word), at * e.cols);
  const fits = labels => labels.length === old.length && labels.every((label, i) => label.name === old[i]);
  for (const s of stages) {
    if (fits(s.rowNames)) s.rowNames = fresh;
    if (fits(s.colNames)) s.colNames = fresh;
  }
  layOut();
  recompute();
}

// The sentence, each word with others to choose from.
function drawSentence() {
  $("sentence")?.remove();
  if (!canWord()) return;
  const words = [...vocabulary().keys()];
  const choose = (event, at) => {
    setWord(at, event.target.value);
    all("#sentence select")[at].focus();
  };
  const selects = embeddings().rowNames.map((label, at) => el("select", { "aria-label": `word ${at + 1}`, title: "another word, with its vector", onchange: event => choose(event, at) },
    words.map(word => el("option", { text: word, selected: word === label.name }))));
  $("invite").after(el("p", { id: "sentence" }, selects, span("hint", " each word may be another")));
}
