// ---- the map of the stages
// A stage stands in the lower row; what only enters one of them, as K does S, above it.
function drawMap() {
  const pieces = strips.flat(), shown = [...new Set(pieces.map(piece => piece.stage))];
  const readers = s => pieces.filter(piece => piece.tops.includes(s)), isLeft = s => pieces.some(piece => piece.left === s);
  const place = new Map(), lower = shown.filter(s => isLeft(s) || !readers(s).length);
  lower.forEach((s, at) => place.set(s, [at, 1]));
  for (const { stage, tops } of pieces) {
    const top = tops.find(s => !isLeft(s) && !s.isParameter && !place.has(s));
    if (top && place.has(stage)) place.set(top, [place.get(stage)[0], 0]);
  }
  const X = at => 24 + 56 * at, Y = row => 16 + 44 * row, width = X(lower.length - 1) + 40;
  const lines = svg("svg", { width, height: 92, "aria-hidden": "true" });
  for (const s of order.filter(s => place.has(s)))
    for (const from of new Set(sourcesOf(s).filter(source => place.has(source)))) {
      const [a, y1] = place.get(from), [b, y2] = place.get(s), isNext = y1 && y2 && b - a === 1;
      const path = isNext ? `M${X(a) + 18} ${Y(1)}H${X(b) - 19}` : a === b ? `M${X(a)} ${Y(0) + 13}V${Y(1) - 14}` : "";
      if (path) lines.append(svg("path", { d: path, class: "edge" }));
    }
  const inner = el("div", { class: "inner" }, lines, [...place].map(([s, [at, row]]) => {
    const link = el("a", { href: `#at-${s.id}`, title: s.short, "aria-label": `${s.symbol}, ${s.short}`, onclick: event => goTo(event, s) }, math(s.symbol || s.called));
    link.style.left = `${X(at) - 18}px`;
    link.style.top = `${Y(row) - 13}px`;
    link.classList.toggle("long", (s.symbol || s.called).length > 3);
    link.stage = s;
    return link;
  }));
  inner.style.width = `${width}px`;
  $("map").replaceChildren(inner);
  $("map").hidden = lower.length < 2;
  markMap();
}
function goTo(event, s) {
  event.preventDefault();
  const box = $(`at-${s.id}`), td = box?.querySelector("td[tabindex='0']");
  if (!box || isHidden(s)) return;
  box.scrollIntoView({ block: "center", behavior: isCalm() ? "auto" : "smooth" });
  td?.focus({ preventScroll: true });
}
const isCalm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

function markMap(current = state.pinned?.[0]) {
  for (const link of all("#map a")) {
    if (link.stage === current) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    link.classList.toggle("later", isHidden(link.stage));
  }
}
