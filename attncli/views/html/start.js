// ---- at the start
// Where it opens: a number of the output, on a narrow screen a score, which is then on it.
function startCell() {
  const isWide = $("main").clientWidth >= 900, s = part(isWide ? "output" : "scores") ?? strips[0]?.at(-1).stage;
  if (!s || s.words || isPicture(s)) return null;
  return [s, shownPlane(s), Math.min(s.rows, 12) - 1, 0];
}
function keepInView(cell) {
  document.documentElement.style.scrollPaddingBottom = `${$("why").offsetHeight + 8}px`;
  const td = cell && cellsAt.get(keyOf(cell[0], cell[2], cell[3]))?.[0];
  td?.scrollIntoView({ block: "nearest", inline: "nearest" });
}
function start() {
  readData();
  const first = page.groups.find(group => group.attention && byName.get(group.attention.weights)?.value);
  state.layer = first?.layer ?? null;
  state.locked = check();
  for (const s of stages) s.shown = s.data.slice();
  atStart = snapshot();
  const change = state.locked ? "" : " Drag a dotted one, or type another, and all that follows is computed again.";
  $("invite").textContent = isSheet() ? "Fill in the blanks. Point at one to see what it is made of; Check says what is right."
    : computed().length ? `Point at any number to see what it is made of: of the table at its left and of the one above it.${change}` : stages.some(s => !s.words) ? "Point at any number to see all its digits." : "";
  layOut();
  listenToPointer();
  listenToKeys();
  let width = innerWidth;
  on(window, "resize", () => width !== innerWidth && ((width = innerWidth), layOut()));
  on(dark, "change", layOut);
  if (isSheet()) ask(true);
  else pin(startCell());
  keepInView(state.pinned);
  // Within a notebook the frame is as tall as the page, up to a limit; of another origin it is null.
  if (frameElement) frameElement.style.height = `${Math.min(document.documentElement.scrollHeight, 860)}px`;
  document.documentElement.dataset.ready = "1";
}

start();
