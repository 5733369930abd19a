// ---- the computation as a script of plain NumPy: its lines are those of --format python, the numbers
// that are given in it those of the page
function asLiteral(x, indent = "") {
  const line = pythonOf(x), inner = `${indent}    `;
  if (line.length < 80) return line;
  const rows = x[0].map ? x.map(row => asLiteral(row, inner)) : range(Math.ceil(x.length / 4)).map(at => pythonOf(x.slice(4 * at, 4 * at + 4)).slice(1, -1));
  return `[\n${rows.map(row => `${inner}${row},\n`).join("")}${indent}]`;
}

// Whether the script gives the numbers of the page: what was changed is given in it, nothing else was,
// and nothing that is given follows from it.
function hasScript() {
  const given = page.script.pieces.map(piece => byName.get(piece.id)).filter(Boolean);
  const isSame = ({ params, had }) => keys(params).every(name => Object.is(params[name], had[name]));
  const isKnown = given.every(s => s.isInput) && page.groups.every(group => !group.isMasked);
  return !state.edited || (isKnown && stages.every(s => isSame(s) && (!s.isInput || given.includes(s) || isAsItCame(s))));
}
function scriptNow() {
  const { call, head, pieces } = page.script, given = ({ id, as, shape }) => `${as} = np.array(${asLiteral(nested(byName.get(id), shape))}, dtype=float)\n`;
  return [head, state.edited ? "# with numbers that were changed on a page\n" : call, ...pieces.map(piece => (piece.id ? given(piece) : piece))].join("");
}
ACTS.numpy = () => copyText(scriptNow(), "copied as NumPy");
