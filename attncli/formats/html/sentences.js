// ---- what the weights say after a change, in sentences, as attncli/page/sentences.py has them
const TOP = 3, MOST_SENTENCES = 12; // names in a sentence; sentences
const MISSING = 0.01; // of the sum of a row, without what is rounded away

function share(x) {
  if (x === 1 || (x >= 0.9995 && x < 1)) return x === 1 ? "100 %" : "> 99.9 %";
  return x > 0 && x < 0.0005 ? "< 0.1 %" : `${fixed(100 * x, 1)} %`;
}
// A name in a sentence: a token in quotation marks, those that are alike with their place.
const caption = (s, axis, at) => {
  const { name, at: place } = (axis ? s.colNames : s.rowNames)[at], isToken = s.quotes?.[axis] && !/^[qk]\d+$/.test(name);
  return (isToken ? `"${name}"` : name) + (place ? ` (${place})` : "");
};
function listed(s, axis, places, most = TOP, subject = "") {
  const names = (places.length <= most + 1 ? places : places.slice(0, most)).map(at => caption(s, axis, at));
  const last = names.length < places.length ? `${places.length - most} more${subject}` : names.pop();
  return names.length ? `${names.join(", ")} and ${last}` : last;
}

// Of a plane of the weights, or of the gradients of their scores: a sentence on each query, or on each key
// where those are what the weights are shared among.
function sentencesOf(s, p, sentence = sentenceOf) {
  const isTurned = byName.get(s.group.attention.weights).tree.letters === "i", [rows, cols] = isTurned ? [s.cols, s.rows] : [s.rows, s.cols];
  const hidden = masks().find(each => each.group === s.group), size = hidden?.data.length;
  const rowOf = (other, i) => range(cols).map(j => (isTurned ? cellAt(other, p, j, i) : cellAt(other, p, i, j)));
  const shown = rows <= MOST_SENTENCES + 1 ? rows : MOST_SENTENCES, lines = range(shown).map(i => {
    const areMasked = rowOf(s, i).map(({ at }) => size > 0 && hidden.data[at % size] === -Infinity);
    return `${caption(s, isTurned ? 1 : 0, i)} ${sentence(s, other => rowOf(other, i).map(valueAt), areMasked, isTurned)}`;
  });
  return shown < rows ? [...lines, `… ${rows - shown} more`] : lines;
}
// Which keys a query attends to, or which queries a key is attended to by.
function sentenceOf(s, rowOf, areMasked, isTurned) {
  const [verb, other, others] = isTurned ? ["is attended to by", "query", "queries"] : ["attends to", "key", "keys"];
  const row = rowOf(s), why = areMasked.every(Boolean) ? `every ${other} is masked` : "", axis = isTurned ? 0 : 1;
  if (!row.every(isFinite)) return `has weights that are not numbers${why && `: ${why}`}`;
  if (row.every(x => x === 0)) return `${verb} nothing${why && `: ${why}`}`;
  const missing = 1 - sum(row), ranking = rankingOf(s, row, axis, others);
  return `${verb} ${ranking}${missing > MISSING ? `; ${share(missing)} on no ${other}` : ""}${why && `, though ${why}`}`;
}
function rankingOf(s, row, axis, others) {
  const order = range(row.length).filter(at => row[at] > 0).sort((a, b) => row[b] - row[a]), [first, last] = [order[0], order.at(-1)].map(at => share(row[at]));
  if (order.length > TOP && first === last) return `${order.length} ${others} alike (${first} each)`;
  if (order.length === 1) return `${listed(s, axis, order)} alone (${first})`;
  const groups = [];
  let n = 0;
  while (n < order.length && !(n >= TOP && n < order.length - 1)) {
    const size = share(row[order[n]]), end = order.findIndex((at, place) => place >= n && share(row[at]) !== size), tied = order.slice(n, end < 0 ? order.length : end);
    groups.push(`${listed(s, axis, tied, max(TOP - n, 1), ` ${others}`)} (${size}${tied.length > 1 ? " each" : ""})`);
    n += tied.length;
  }
  const rest = order.slice(n), tail = `; the other ${rest.length} ${others}: ${share(sum(rest.map(at => row[at])))}`;
  return groups.join(", then ") + (rest.length ? tail : "");
}

// After a change they stand in the place of those that came with the page, each under its heading.
function sentencesNow() {
  const s = part("weights"), wishes = byName.get(groupShown()?.wishes?.scores), p = s && shownPlane(s);
  const head = s && headWords(cellAt(s, p, 0, 0)), isLive = s?.tree && !s.words;
  const [title] = all(".closing h2");
  return [
    [`${title?.textContent.replace(/( most)?[,:] .*/, "") ?? "In words"}${head && `, ${head}`}`, isLive ? sentencesOf(s, p) : []],
    [`Gradients in words${head && `, ${head}`}`, isLive && wishes && !isStale(wishes) ? sentencesOf(wishes, p, wishOf) : []],
    ["Static against contextual", globalThis.meaningNow?.() ?? []],
  ].filter(([, lines]) => lines.length);
}
function paintSentences(isWhole) {
  for (const box of all(".closing")) box.hidden = state.edited || !isWhole;
  const sections = state.edited && isWhole ? sentencesNow() : [];
  show({ "in-words": sections.length });
  fill($("in-words"), sections.map(([heading, lines]) => [el("h2", { text: heading }), el("ul", {}, lines.map(text => el("li", { text })))]));
}
