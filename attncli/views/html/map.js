// ---- the map of the stages
// A stage stands in the lower row; what only enters one of them, as K does S, above it.
function drawMap() {
  const pieces = strips.flat(), shown = [...new Set(pieces.map(piece => piece.stage))];
  const readers = s => pieces.filter(piece => piece.tops.includes(s)), isLeft = s => pieces.some(piece => piece.left === s);
  const lower = shown.filter(s => isLeft(s) || !readers(s).length), place = new Map(lower.map((s, at) => [s, [2, at + 1]]));
  for (const { stage, tops } of pieces) {
    const top = tops.find(s => !isLeft(s) && !s.isParameter && !place.has(s));
    if (top && place.has(stage)) place.set(top, [1, place.get(stage)[1]]);
  }
  fill($("map"), [...place].map(([s, [row, column]]) => {
    const name = s.symbol || s.called, isNext = row === 2 && sourcesOf(s).includes(lower[column - 2]);
    const link = el("a", { href: `#at-${s.id}`, title: s.short, "aria-label": `${s.symbol}, ${s.short}`, onclick: event => goTo(event, s) }, math(name));
    link.className = row === 1 ? "down" : isNext ? "next" : "";
    link.style.gridArea = `${row} / ${column}`;
    link.stage = s;
    return link;
  }));
  $("map").hidden = lower.length < 2;
}
function goTo(event, s) {
  event.preventDefault();
  const box = $(`at-${s.id}`);
  if (!box || isHidden(s)) return;
  box.scrollIntoView({ block: "center", behavior: isCalm() ? "auto" : "smooth" });
  box.querySelector("td[tabindex='0']")?.focus({ preventScroll: true });
}
const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function markMap(current) {
  for (const link of all("#map a")) {
    link.setAttribute("aria-current", link.stage === current);
    link.classList.toggle("later", isHidden(link.stage));
  }
}
