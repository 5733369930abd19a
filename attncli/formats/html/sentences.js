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

// Of a plane of the weights: which keys each query attends to, or which queries each key is attended by.
function sentencesOf(s, p) {
  const isTurned = s.tree.letters === "i", [rows, cols] = isTurned ? [s.cols, s.rows] : [s.rows, s.cols];
  const at = (i, j) => (isTurned ? cellAt(s, p, j, i) : cellAt(s, p, i, j)), hidden = masks().find(each => each.group === s.group);
  const isHiddenAt = (i, j) => {
    const { at: place } = at(i, j), size = hidden?.data.length;
    return size > 0 && hidden.data[place % size] === -Infinity;
  };
  const shown = rows <= MOST_SENTENCES + 1 ? rows : MOST_SENTENCES, lines = range(shown).map(i => {
    const row = range(cols).map(j => valueAt(at(i, j))), isEmpty = range(cols).every(j => isHiddenAt(i, j));
    return `${caption(s, isTurned ? 1 : 0, i)} ${sentenceOf(s, row, isTurned, isEmpty)}`;
  });
  return shown < rows ? [...lines, `… ${rows - shown} more`] : lines;
}
function sentenceOf(s, row, isTurned, isEmpty) {
  const [verb, other, others] = isTurned ? ["is attended to by", "query", "queries"] : ["attends to", "key", "keys"];
  const why = isEmpty ? `every ${other} is masked` : "", axis = isTurned ? 0 : 1;
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

// After a change they stand in the place of those that came with the page.
function paintSentences(isWhole) {
  const s = part("weights"), isOurs = state.edited && isWhole && s?.tree && !s.words;
  for (const box of all(".closing")) box.hidden = state.edited || !isWhole;
  show({ "in-words": isOurs });
  if (!isOurs) return;
  const p = shownPlane(s), head = headWords(cellAt(s, p, 0, 0));
  fill($("in-words"), el("h2", { text: `In words${head && `, ${head}`}` }), el("ul", {}, sentencesOf(s, p).map(text => el("li", { text }))));
}
