// ---- the map of the stages
// A stage stands in the lower row; what only enters one of them, as K does S, above it.
function drawMap() {
  const pieces = strips.flat(), shown = [...new Set(pieces.map(piece => piece.stage))];
  const isTop = s => pieces.some(piece => piece.tops.includes(s)), isLeft = s => pieces.some(piece => piece.left === s);
  const lower = shown.filter(s => isLeft(s) || !isTop(s)), place = new Map(lower.map((s, at) => [s, [2, at + 1]]));
  for (const { stage, tops } of pieces) {
    const top = tops.find(s => !isLeft(s) && !s.isParameter && !place.has(s));
    if (top && place.has(stage)) place.set(top, [1, place.get(stage)[1]]);
  }
  fill($("map"), [...place].map(([s, [row, column]]) => {
    const name = s.symbol || s.called;
    const link = el("a", { href: `#at-${s.id}`, "aria-label": `${s.symbol}, ${s.short}` }, math(name));
    if (row === 1) link.className = "upper";
    link.style.gridArea = `${row} / ${column}`;
    link.stage = s;
    return link;
  }));
  $("map").hidden = lower.length < 2;
}
function markMap(current) {
  for (const link of all("#map a")) {
    link.setAttribute("aria-current", link.stage === current);
    link.classList.toggle("later", isHidden(link.stage));
  }
}
