// ---- the map of the stages

// A stage stands in the lower row; what only enters one of them, as K does S, above it.
function drawMap() {
  const pieces = strips.flatMap(strip => strip.flatMap(({ stage, tops }) => [[stage, null], ...tops.map(top => [top, stage])]));
  const main = [...new Set(pieces.filter(([s, below]) => !below && !(s.isInput && pieces.some(([other, on]) => on && other === s))).map(([s]) => s))];
  const isAbove = s => order.some(other => isTurned(other) && other.product.b.source === s) || pieces.some(([other, on]) => on && other === s);
  const lower = main.filter(s => !isAbove(s)), place = new Map(lower.map((s, at) => [s, [at, 1]]));
  for (const [s, below] of pieces) if (below && place.has(below) && !place.has(s) && (s.tree || s.group.attention?.[s.short] || !below.product || isTurned(below))) place.set(s, [place.get(below)[0], 0]);
  const X = at => 24 + 56 * at, Y = row => 16 + 44 * row, width = X(lower.length - 1) + 40;
  const tip = svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 6, markerHeight: 6, orient: "auto" }, svg("path", { d: "M0 0 8 4 0 8z" }));
  const lines = svg("svg", { width, height: 92, "aria-hidden": "true" }, svg("defs", {}, tip));
  for (const s of order.filter(s => place.has(s)))
    for (const from of new Set(Object.values(s.sources).filter(source => place.has(source)))) {
      const [a, b] = [place.get(from), place.get(s)], [x1, y1, x2, y2] = [X(a[0]), Y(a[1]), X(b[0]), Y(b[1])];
      const bend = `M${x1} ${y1 + 14}C${x1 + 10} ${y1 + 34} ${x2 - 10} ${y2 + 34} ${x2} ${y2 + 15}`;
      const path = a[0] === b[0] ? `M${x1} ${y1 + 13}V${y2 - 14}` : a[1] !== b[1] ? "" : b[0] - a[0] === 1 ? `M${x1 + 18} ${y1}H${x2 - 19}` : bend;
      if (path) lines.append(svg("path", { d: path, class: "edge", "marker-end": "url(#tip)" }));
    }
  const inner = el("div", { class: "inner" }, lines, [...place].map(([s, [at, row]]) => {
    const link = el("a", { href: `#at-${s.id}`, title: s.short, "aria-label": `${s.symbol}, ${s.short}`, onclick: event => goTo(event, s) }, math(s.symbol));
    link.style.left = `${X(at) - 18}px`;
    link.style.top = `${Y(row) - 13}px`;
    link.classList.toggle("long", s.symbol.length > 3);
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
