// ---- at the start
// Where it opens: a number of the output, on a narrow screen a score, which is then on it.
function startCell() {
  const isWide = $("main").clientWidth >= 900, s = part(isWide ? "output" : "scores") ?? strips[0]?.at(-1).stage;
  return !s || s.words || isPicture(s) ? null : cellAt(s, shownPlane(s), Math.min(s.rows, 12) - 1, 0);
}
function keepInView(cell) {
  document.documentElement.style.scrollPaddingBottom = `${$("why").offsetHeight + 8}px`;
  shownAt.get(cell)?.[0].scrollIntoView({ block: "nearest", inline: "nearest" });
}
function start() {
  readData();
  const first = page.groups.find(group => group.attention && byName.has(group.attention.weights));
  state.layer = first?.layer ?? null;
  state.locked = check();
  for (const s of stages) s.shown = s.data.slice();
  atStart = snapshot();
  globalThis.drawSentence?.();
  const isFlow = computed().length > 0, isPlain = !isFlow && stages.some(s => !s.words);
  show({ "for-sheet": isSheet(), "for-all": !isSheet() && (isFlow || isPlain), "for-flow": isFlow, "for-plain": isPlain, "for-change": !state.locked });
  $("tools").firstElementChild.open = !isNarrow();
  layOut();
  listenToTools();
  listenToPointer();
  listenToKeys();
  let width = innerWidth;
  on(window, "resize", () => width !== innerWidth && ((width = innerWidth), layOut()));
  if (isSheet()) ask(true);
  else pin(startCell());
  keepInView(state.pinned);
  // Within a notebook the frame is as tall as the page, up to a limit; of another origin it is null.
  if (frameElement) frameElement.style.height = `${Math.min(document.documentElement.scrollHeight, 860)}px`;
  document.documentElement.dataset.ready = "1";
}

start();
