// ---- at the start
// Where it opens: what the call asks for, or the largest weight of the row that is most concentrated,
// of those that have a choice.
function startCell() {
  const opened = byName.get(page.open?.id), s = part("weights");
  if (opened) return cellAt(opened, shownPlane(opened), 0, page.open.at);
  if (!s?.tree || isPicture(s)) return firstCell(part("scores") ?? firstStrip()?.at(-1).stage);
  const rows = range(s.rows).map(i => range(s.cols).map(j => cellAt(s, shownPlane(s), i, j)));
  const largest = row => row.reduce((a, b) => (valueAt(b) > valueAt(a) ? b : a));
  const several = rows.filter(row => row.filter(cell => valueAt(cell) > 0).length > 1);
  return (several[0] ? several : rows).map(largest).reduce((a, b) => (valueAt(b) > valueAt(a) + 1e-9 ? b : a));
}
const firstCell = s => (!s || s.words || isPicture(s) ? null : cellAt(s, shownPlane(s), 0, 0));
// What gets the focus, or is scrolled to, does not stop behind the panel.
const keepClear = () => (html.style.scrollPaddingBottom = `${$("why").offsetHeight + 8}px`);
function openPage() {
  begin();
  globalThis.drawSentence?.();
  const isFlow = computed().length > 0, isPlain = !isFlow && stages.some(s => !s.words);
  const isChecked = stages.some(s => s.blank && canCheck(s));
  show({ "for-sheet": isSheet(), "for-check": isChecked, "for-paper": !isChecked, "for-all": !isSheet() && (isFlow || isPlain), "for-flow": isFlow, "for-plain": isPlain, "for-change": !state.locked });
  $("tools").firstElementChild.open = !isNarrow();
  layOut();
  for (const [kind, acts] of [["click", ACTS], ["input", INPUTS], ["change", CHANGES]]) on(document, kind, ({ target }) => acts[target.id]?.(target));
  on(document, "input", () => refusal.remove());
  listenToPointer();
  listenToKeys();
  new ResizeObserver(keepClear).observe($("why"));
  let width = innerWidth;
  on(window, "resize", () => width !== innerWidth && ((width = innerWidth), layOut()));
  // On paper every number is written, in as many lines as are needed.
  for (const [kind, size] of [["beforeprint", "44rem"], ["afterprint", ""]]) on(window, kind, () => (($("main").style.width = size), layOut()));
  if (isSheet()) ask(true);
  else pin(startCell());
  if (page.open?.walk && canWalk()) startWalk();
  if (page.open) {
    keepClear();
    reveal(shownAt.get(state.pinned)?.[0]);
  } else scrollTo(0, 0);
  // Within a notebook the frame is as tall as the page, up to a limit; of another origin it is null.
  if (frameElement) frameElement.style.height = `${min(html.scrollHeight, 860)}px`;
  html.dataset.ready = "1";
}

openPage();
