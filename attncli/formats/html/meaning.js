// ---- static against contextual, as attncli/commands/explain/pipeline.py has it
const RANDOM = "vectors or weights are random", SAME = 1e-9, ALIKE = 5e-5, PAIRS = 4;
const WHY_EQUAL = ": without positions, equal words have equal queries and the same keys, so attention gives them equal outputs";
function meaningNow() {
  const [before, after, both] = ["static", "contextual", "added"].map(name => byName.get(`meaning.${name}`));
  if (!before || [before, after, both].some(s => s && isStale(s))) return [];
  const equal = s => ofEqualWords(before, s), farthest = s => (after.note.endsWith(RANDOM) ? [] : ofTheFarthest(before, s));
  const lines = both ? [...equal(both).slice(0, 1), ...farthest(both)].map(text => `with the word's own vector added (${both.symbol.slice(4)}): ${text}`) : [];
  return [...lines, ...equal(after), ...farthest(after)];
}
const called = ({ name, at }) => `"${name}"${at ? ` (${at})` : ""}`;
function cosineText(x) {
  if (x > 1 - SAME || abs(x) < SAME) return x > SAME ? "1" : "0";
  return x < 0.99995 ? fixed(x, 4) : `1 − ${fixed(1 - x, 9).replace(/0+$/, "")}`;
}
// Words that stand there twice, which have equal vectors unless those were changed.
function ofEqualWords(before, after) {
  const names = before.rowNames, places = name => range(names.length).filter(at => names[at].name === name);
  const isPlaced = byName.has(before.reads.x.replace("embeddings", "positions"));
  const isMasked = masks().some(s => s.data.some((x, at) => !Object.is(x, s.data[at % s.cols]))); // not alike for all queries
  return [...new Set(names.map(({ name }) => name))].map(places).filter(([, b]) => b).slice(0, PAIRS).flatMap(([a, b]) => {
    const [x, y] = [before, after].map(s => valueAt(cellAt(s, 0, a, b))), start = `${called(names[a])} and ${called(names[b])}: cosine ${cosineText(x)} before`;
    const isEqual = x > 1 - SAME, why = isMasked && !isPlaced ? "no positions are added, but the mask makes each attend to other words" : "one word in two contexts";
    if (isNaN(x) || isNaN(y)) return [];
    if (y > 1 - SAME) return [`${start} and 1 after${isEqual && !isPlaced && !isMasked ? WHY_EQUAL : ""}`];
    return [`${start}, ${cosineText(y)} after${isEqual ? `: ${why}` : ""}`];
  });
}
// The two different words whose cosine has changed the most.
function ofTheFarthest(before, after) {
  const names = before.rowNames, pairs = range(before.data.length).map(at => cellOf(before, at)).filter(({ i, j }) => i < j);
  const changeAt = ({ at }) => after.data[at] - before.data[at] || 0, most = max(...pairs.map(cell => abs(changeAt(cell))));
  const [{ i, j, at }, ...others] = pairs.filter(cell => abs(changeAt(cell)) >= most - ALIKE);
  if (names[i].name === names[j].name || most < ALIKE) return [];
  const than = others.length ? `; ${others.length} other pair${others.length > 1 ? "s" : ""} changed as much` : names.length > 2 ? " than any other pair" : "";
  const way = changeAt({ at }) > 0 ? "closer together" : "further apart";
  return [`${called(names[i])} and ${called(names[j])}: cosine ${cosineText(before.data[at])} before, ${cosineText(after.data[at])} after: moved ${way}${than}`];
}
