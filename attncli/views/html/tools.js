// ---- tools: step by step, what if, copying; what they are made of stands in page.html
const lastStage = () => order[Math.min(state.step, order.length) - 1];
const has = name => inGroup().find(s => Number.isFinite(s.params[name]));
const canMask = () => Boolean(mask()?.isInput || groupShown()?.ifMasked) && part("weights")?.tree?.letters === "j";

const isShaded = kind => stages.some(s => isHere(s) && s.shade === kind);

// What can be done now, and how it stands.
function paintTools() {
  const count = order.length, isOpen = !isSheet() && !state.quiz, last = lastStage(), scale = scaleName();
  show({
    bar: stages.some(s => !s.words), walk: globalThis.canWalk?.(), quiz: !isSheet() && globalThis.canAsk?.(), upto: count > 1 && !isSheet(),
    shares: isShaded("share"), others: isShaded("signed"), locked: state.locked && count, "what-if": isOpen && !state.locked, scale: has(scale), take: page.command,
    "causal-label": canMask(), "mask-label": canMask() && (!mask() || groupShown().isMasked),
  });
  $("locked").textContent = `Read only: ${state.locked}.`;
  for (const input of all(".param")) {
    const name = input.id.slice(6), s = has(name);
    input.parentElement.hidden = !s;
    if (s && input !== focused()) input.value = trimmed(s.params[name], 4).replace("−", "-");
  }
  if (has(scale)) $("scale").value = Math.round(8 * Math.log2(has(scale).params[scale] / has(scale).had[scale])) * turn(scale);
  $("causal").checked = Boolean(mask()) && isCausal(mask());
  $("mask").checked = Boolean(mask());
  $("undo").disabled = !past.length;
  $("redo").disabled = !future.length;
  $("reset").disabled = !state.edited;
  $("step").max = count;
  $("step").value = Math.min(state.step, count);
  fill($("step-name"), state.step >= count ? "all stages" : last ? [`${state.step} of ${count}: `, math(last.symbol)] : "inputs");
  $("step").setAttribute("aria-valuetext", $("step-name").textContent);
  const most = trimmed(largest, 2), [left, , , , right] = all("#others .swatch");
  [left.textContent, right.textContent] = [`−${most}`, most];
  all("#shares .swatch").forEach((node, at) => tint(node, { isShare: true, shade: "share" }, [0, 0.1, 0.25, 0.5, 1][at]));
  all("#others .swatch").forEach((node, at) => tint(node, { shade: "signed" }, [-1, -0.1, 0, 0.1, 1][at] * largest));
}

// "Show up to": which stage is the last that is shown.
function showUpTo(to) {
  state.step = to >= order.length ? Infinity : Math.max(0, to);
  const s = lastStage();
  if (!s) state.pinned = null;
  else if (state.step < order.length) state.pinned = cellAt(s, shownPlane(s), 0, 0);
  paint();
  $(`at-${s?.id}`)?.scrollIntoView({ block: "nearest" });
}

// A number of the attention, in its gradients too: the scale (also by a slider), the cap, the masked score.
function setParameter(name, x) {
  for (const s of inGroup()) if (name in s.params) s.params[name] = x;
  recompute();
}
const scaleName = () => (has("root") ? "root" : "factor");
const turn = name => (name === "factor" ? -1 : 1);

function typeParameter(input) {
  const x = numberOf(input.value), name = input.id.slice(6);
  if (!Number.isFinite(x) || x === 0) return announce("this is no number");
  remember();
  setParameter(name, x);
}
let isSliding = false;
function slide(way) {
  if (!isSliding) remember();
  isSliding = true;
  setParameter(scaleName(), has(scaleName()).had[scaleName()] * 2 ** ((Number(way) / 8) * turn(scaleName())));
}
function refit(change) {
  remember();
  change();
  layOut();
  recompute();
}
Object.assign(ACTS, {
  less: () => showUpTo(Math.min(state.step, order.length) - 1),
  more: () => showUpTo(state.step + 1),
  causal: box => refit(() => (mask() || turnMask(), setCausal(box.checked))),
  mask: () => refit(() => turnMask()),
  undo: () => turnBack(past, future),
  redo: () => turnBack(future, past),
  reset,
  command: () => (command() ? copyText(command(), "the state was copied as an attncli command") : announce("no call gives vectors that were changed by hand")),
  json: () => copyText(JSON.stringify(asInput()), "the input was copied as JSON"),
});
function listenToTools() {
  on($("step"), "input", () => showUpTo(Number($("step").value)));
  on($("scale"), "input", () => slide($("scale").value));
  on($("scale"), "change", () => (isSliding = false));
  for (const input of all(".param")) {
    on(input, "change", () => typeParameter(input));
    on(input, "blur", paintTools);
  }
  on($("copy"), "change", ({ target }) => {
    copyText(tableText(state.pinned.s, target.value), `${state.pinned.s.short} was copied`);
    target.selectedIndex = 0;
  });
}
// ---- a table to be taken elsewhere: all digits for programs, those that are shown for papers
const FORMS = { // what stands between cells, between rows, before and after
  NumPy: [", ", "], [", "np.array([[", "]])"],
  csv: [",", "\n", "", "\n"],
  LaTeX: [" & ", " \\\\\n", "\\begin{bmatrix}\n", "\n\\end{bmatrix}"],
  Markdown: [" | ", " |\n| ", "| ", " |\n"],
};
const WRITTEN = { // numbers, and the names beside them, in which no markup and no formula counts
  NumPy: [x => String(x).replace("Infinity", "np.inf").replace("NaN", "np.nan")],
  csv: [String, name => `"${(/^[=+\-@\t\r]/.test(name) ? "'" : "") + name.replaceAll('"', '""')}"`],
  LaTeX: [(x, s) => num(x, s.decimals).replace("−", "-").replace("∞", "\\infty")],
  Markdown: [(x, s) => num(x, s.decimals), name => name.replace(/[\\`*_[\]<>|&]/g, "\\$&")],
};
function tableText(s, form) {
  const [cell, row, start, end] = FORMS[form], [write, named] = WRITTEN[form], names = labels => (named ? labels.map(label => named(labelText(label))) : []);
  const rows = range(s.rows).map(i => [...names([s.rowNames[i]]), ...range(s.cols).map(j => write(valueAt(cellAt(s, shownPlane(s), i, j)), s))]);
  if (named) rows.unshift(["", ...names(s.colNames)]);
  if (form === "Markdown") rows.splice(1, 0, rows[0].map(() => "---"));
  return start + rows.map(one => one.join(cell)).join(row) + end;
}
async function copyText(text, message) {
  const area = el("textarea", { value: text, "aria-label": "copied" });
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed here, as in a frame
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  announce(message);
}
