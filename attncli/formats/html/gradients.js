// ---- what the gradients say of the weights, as attncli/page/sentences_of_gradients.py has it
function wishOf(s, rowOf, areMasked, isTurned) {
  const { gradient: of, offers: from, weights, within } = s.group.wishes, [wish, gradient, offers, weight] = [s, ...[of, from, weights].map(id => byName.get(id))].map(rowOf);
  const axis = isTurned ? 0 : 1, other = isTurned ? "query" : "key", placesOf = is => range(wish.length).filter(is);
  if (areMasked.every(Boolean) && gradient.every(x => x === 0)) return `has no gradient: every ${other} is masked`;
  if (!wish.every(isFinite)) return "has gradients that are not numbers";
  const open = offers.filter((_, at) => !areMasked[at] || weight[at] !== 0), rounding = within * max(0, ...open.map(abs));
  if (max(0, ...gradient.map(abs)) <= rounding || wish.every(x => x === 0)) {
    const used = placesOf(at => weight[at] !== 0), isAlike = open.length && max(...open) - min(...open) <= rounding;
    if (used.length === 1) return `has no gradient: its weight is on ${listed(s, axis, used)} alone`;
    return `has no gradient${isAlike ? `: dA is ${short(open[0])} for every ${other}, so no change of its weights changes the loss` : ""}`;
  }
  const lower = max(...wish), raise = -min(...wish), near = within * max(lower, raise);
  const ways = [["less", lower, 1], ["more", raise, -1]].filter(([, size]) => size > near);
  const both = ways.map(([word, size, sign]) => [word, listed(s, axis, placesOf(at => sign * wish[at] >= size - near))]);
  if (lower < raise - near) both.reverse();
  return `lowers the loss fastest with ${both.map(([word, name], at) => `${word} ${at ? "on" : "weight on"} ${name}`).join(" and ")}`;
}
// A number within a sentence, with no more decimals than it has.
function short(x) {
  const text = fixed(x, 4);
  return abs(text - x) <= 1e-9 * abs(x) ? String(Number(text)) : text;
}
