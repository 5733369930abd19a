// ---- tools: step by step, what if, copying; what they are made of stands in page.html
const lastStage = () => order[min(state.step, order.length) - 1];
const canMask = () => (mask()?.isInput || groupShown()?.ifMasked) && part("weights")?.tree?.letters === "j";

const isShaded = (kind, isUnit = false) => stages.some(s => isHere(s) && !isHidden(s) && s.shade === kind && Boolean(s.unit) === isUnit);

// What can be done now, and how it stands.
function paintTools() {
  const count = order.length, isOpen = !isSheet() && !state.quiz, last = lastStage(), scale = scaleName();
  show({
    bar: stages.some(s => !s.words), walk: canWalk(), quiz: canAsk(), upto: count > 1 && !isSheet(),
    shares: isShaded("share"), others: isShaded("signed"), cosines: isShaded("signed", true), changed: state.edited, locked: state.locked && count, "what-if": isOpen && !state.locked, temperature: has(scale), command: hasCall(), "no-call": page.command && !hasCall(), json: filed(),
    "causal-label": canMask(), "mask-label": canMask() && groupsToMask().length,
  });
  $("command").textContent = `Copy as ${page.command?.python ? "Python" : "command"}`;
  $("locked").textContent = `Read only: ${state.locked}.`;
  show({ numpy: page.script });
  const isScript = page.script && hasScript(), how = hasCall() && !page.command.python ? ": copy the command and add --format python" : "";
  assign($("numpy"), { disabled: !isScript, title: isScript ? "" : `not with what was changed${how}` });
  for (const input of all(".param")) {
    const name = input.id.slice(6), s = has(name);
    input.parentElement.hidden = !s || !(name in (page.command?.numbers?.flags ?? s.params));
    if (s && input !== focused()) input.value = paramText(name);
  }
  if (has(scale)) {
    const t = temperature(has(scale), scale);
    $("scale").value = Math.round(8 * Math.log2(t));
    fill($("degrees"), trimmed(t, 2));
  }
  for (const [id, is] of entries(controls())) assign($(id), id === "causal" || id === "mask" ? { checked: is } : { disabled: !is });
  assign($("step"), { max: count, value: min(state.step, count) });
  fill($("step-name"), state.step >= count ? "all stages" : last ? [`${state.step} of ${count}: `, math(last.symbol)] : "inputs");
  $("least").textContent = `−${trimmed(largest, 2)}`;
  $("most").textContent = trimmed(largest, 2);
  for (const node of all("[data-x]")) {
    const isShare = node.closest(".share"), unit = node.classList.contains("unit");
    tint(node, { isShare, unit, shade: "any" }, node.dataset.x * (isShare || unit ? 1 : largest));
  }
}

// "Show up to": which stage is the last that is shown.
function showUpTo(to) {
  state.step = to >= order.length ? Infinity : max(0, to);
  const s = lastStage();
  if (!s) state.pinned = null;
  else if (state.step < order.length) state.pinned = cellAt(s, shownPlane(s), 0, 0);
  paint();
  reveal($(`at-${s?.id}`));
}

const LIMITS = { root: x => x, cap: x => x > 0, base: x => x >= 1 }; // attncli refuses others, too
const paramText = name => trimmed(has(name).params[name], 4).replace("−", "-");

function typeParameter(input) {
  const x = numberOf(input.value), name = input.id.slice(6), kept = paramText(name);
  if (!isFinite(x) || !(LIMITS[name]?.(x) ?? true)) {
    refuse(input, input.value, input.title, kept);
    return (input.value = kept);
  }
  change("parameter", name, x);
}
function slide(way) {
  isLive = true;
  const name = scaleName(), { had } = has(name), t = 2 ** (way / 8);
  change("parameter", name, name === "factor" ? had[name] / t : name === "root" ? had[name] * t : t);
}
// Shows what was changed: the tables anew where there are others, or other names.
function showChange(isChanged, isOther) {
  refusal.remove();
  if (isOther) layOut();
  paint(isChanged);
}
assign(ACTS, {
  less: () => showUpTo(min(state.step, order.length) - 1),
  more: () => showUpTo(state.step + 1),
  causal: box => change("causal", box.checked),
  mask: box => change("byCell", box.checked),
  undo: () => turnBack(-1),
  redo: () => turnBack(1),
  reset: () => change("reset"),
  command: () => copyText(command(), page.command.python ? "copied as Python" : "copied as a command"),
  json: () => copyText(JSON.stringify(fileNow()), "copied as JSON"),
});
assign(INPUTS, { step: ({ value }) => showUpTo(Number(value)), scale: ({ value }) => slide(value) });
assign(CHANGES, {
  scale: endDrag,
  copy: select => {
    const { s } = about;
    copyText(tableText(s, select.value), `${s.short} was copied`);
    select.selectedIndex = 0;
  },
});
for (const input of all(".param")) CHANGES[input.id] = typeParameter;

// ---- a table to be taken elsewhere: with all digits, in LaTeX with those that are shown
const cellText = text => `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`; // no formula in a spreadsheet
const TEXTS = {
  NumPy: rows => `np.array([[${rows.map(row => row.join(", ")).join("], [")}]])`.replaceAll("Infinity", "np.inf").replaceAll("NaN", "np.nan"),
  csv: (rows, s) => [s.colNames, ...rows].map((row, i) => [i ? s.rowNames[i - 1] : "", ...row].map(x => (x.name ? cellText(labelText(x)) : x)).join() + "\n").join(""),
  LaTeX: (rows, s) => `\\begin{bmatrix}\n${rows.map(row => row.map(x => num(x, s.decimals).replace("−", "-").replace("∞", "\\infty")).join(" & ")).join(" \\\\\n")}\n\\end{bmatrix}`,
};
const tableText = (s, form) => TEXTS[form](range(s.rows).map(i => range(s.cols).map(j => valueAt(cellAt(s, shownPlane(s), i, j)))), s);

function copyText(text, message) {
  const area = el("textarea", { value: text }), focus = focused();
  document.body.append(area);
  area.select();
  document.execCommand("copy"); // which a frame may do too
  area.remove();
  focus.focus();
  announce(message);
}
