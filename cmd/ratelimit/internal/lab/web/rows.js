// The rows of the lab: what one algorithm made of the traffic, as plots and
// numbers, and the table of the clients.
import { node, element, merge, barsOf, bars, area, lasts, size, axis, number } from './plot.js';
import { fold } from './fold.js';

const abouts = {
  fixed_window: 'Counts in windows of the clock. Twice the limit can pass around an edge.',
  sliding_window: 'Estimates the last period from two windows. The default.',
  sliding_log: 'Remembers each admitted request. Exact.',
  token_bucket: 'A burst at once, then a steady rate.',
  leaky_bucket: 'A queue: what is admitted waits for its turn.',
  gcra: 'The token bucket, by another formula.',
  in_flight: 'Counts the requests under way. Limits no rate.',
};
const headings = [
  ['admitted', 'Admitted'], ['denied', 'Denied'], ['worst', 'Worst window'],
  ['falseAdmits', 'False admits'], ['falseDenials', 'False denials'], ['longestWait', 'Longest wait'], ['atOnce', 'Most at once'],
];

// addRow adds the texts of a row; plotRow and seekRow fill it.
export function addRow(rows, r, result) {
  const row = element(rows, 'article', 'row');
  row.dataset.algorithm = r.algorithm;
  const side = element(row, 'div', 'side');
  element(side, 'h3', '', r.algorithm);
  element(side, 'p', 'about', abouts[r.algorithm]);
  const stats = element(side, 'dl', 'stats');
  for (const [name, heading] of headings) {
    const pair = element(stats, 'div');
    pair.dataset.name = name;
    pair.hidden = name === 'atOnce' && !result.rows.some((other) => other.held);
    element(pair, 'dt', '', heading);
    element(pair, 'dd');
  }
  element(side, 'p', 'note').dataset.name = 'note';
  node(element(row, 'div', 'plot'), 'svg', { role: 'img' });
  return row;
}

// note explains false denials where there are some.
const note = (r, n) => n === 0 ? '' : 'False denials: denied with room in the last period. ' +
  (r.bucket ? 'A bucket denies what exceeds its burst.' : r.held ? 'Too many requests were under way.' : 'Counted in windows, the estimate was too high.');

// at is the values of a column in words.
export const at = (r, result, column) =>
  `${number(r.admitted[column])} admitted, ${number(r.denied[column])} denied; ${number(r.served[column])} of ${number(result.rate)} in the last ${lasts(result.period)}; ${left(r, column)}`;

const left = (r, column) => `${number(r.remaining[column])} left${r.waiting[column] > 0 ? `, ${number(r.waiting[column])} waiting` : ''}`;

// edges are where windows begin.
export function edges(svg, result, bottom) {
  const width = svg.viewBox.baseVal.width;
  let d = '';
  for (let i = 0; i <= result.periods; i++) d += `M${Math.min(Math.round((width * i) / result.periods) + 0.5, width - 0.5)} 0V${bottom}`;
  node(svg, 'path', { class: 'p-edge', d });
}

// veil covers what has not happened yet.
export function veil(svg, bottom) {
  node(svg, 'rect', { class: 'p-veil', y: -2, height: bottom + 4 });
  node(svg, 'path', { class: 'p-head' });
}

export function moveVeil(svg, x, bottom) {
  const width = svg.viewBox.baseVal.width, rect = svg.querySelector('.p-veil');
  rect.setAttribute('x', x);
  rect.setAttribute('width', Math.max(width - x, 0));
  svg.querySelector('.p-head').setAttribute('d', x < width ? `M${x} 0V${bottom}` : '');
}

const lanes = { bars: 52, curveTop: 70, curveBase: 150, leftTop: 168, leftBase: 194, height: 196 };

// plotRow draws a row; most is the height of the curves of all rows.
export function plotRow(row, r, result, most) {
  const svg = row.querySelector('svg'), width = size(svg, lanes.height), by = barsOf(r.admitted.length, width);
  svg.setAttribute('aria-label', `${r.algorithm}: ${sentence(r, result)}`);
  edges(svg, result, lanes.leftBase);
  const admitted = merge(r.admitted, by), denied = merge(r.denied, by);
  const tallest = Math.max(1, ...merge(result.arrivals, by)), scale = lanes.bars / tallest;
  axis(svg, 0, tallest);
  node(svg, 'path', { class: 'p-admitted', d: bars(width, lanes.bars, scale, admitted) });
  node(svg, 'path', { class: 'p-denied', d: bars(width, lanes.bars, scale, denied, admitted) });
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.bars + 0.5}H${width}` });

  axis(svg, lanes.curveTop, most);
  const up = (lanes.curveBase - lanes.curveTop) / most, limit = lanes.curveBase - up * result.rate;
  node(svg, 'path', { class: 'p-served', d: area(width, lanes.curveBase, r.served.map((n) => up * Math.min(n, result.rate))) });
  node(svg, 'path', { class: 'p-beyond', d: area(width, limit, r.served.map((n) => up * Math.max(n - result.rate, 0))) });
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.curveBase + 0.5}H${width}` });
  node(svg, 'path', { class: 'p-limit', d: `M0 ${Math.round(limit) + 0.5}H${width}` });
  axis(svg, limit, result.rate);

  const deep = lanes.leftBase - lanes.leftTop, quota = Math.max(r.quota, 1);
  axis(svg, lanes.leftTop, quota);
  node(svg, 'path', { class: 'p-left', d: area(width, lanes.leftBase, r.remaining.map((n) => (deep * Math.max(n, 0)) / quota)) });
  if (r.waiting.some((n) => n > 0)) {
    const longest = Math.max(quota, ...r.waiting);
    node(svg, 'path', { class: 'p-waiting', d: area(width, lanes.leftBase, r.waiting.map((n) => (deep * n) / longest)) });
  }
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.leftBase + 0.5}H${width}` });
  veil(svg, lanes.leftBase);
  node(svg, 'text', { class: 'now', y: lanes.leftTop + 10 });
}

// seekRow shows what had happened before a column.
export function seekRow(row, r, result, until) {
  const columns = result.arrivals.length, end = until >= columns;
  const svg = row.querySelector('svg'), width = svg.viewBox.baseVal.width, x = (width * until) / columns;
  const numbers = end ? r.totals : totals(r, until);
  for (const [name] of headings) {
    const pair = row.querySelector(`[data-name=${name}]`), n = numbers[name];
    pair.lastElementChild.textContent = name === 'longestWait' ? wait(n) : number(n);
    pair.classList.toggle('none', n === 0);
    pair.classList.toggle('warn', (name === 'worst' && n > result.rate) || (name === 'falseAdmits' && n > 0));
  }
  moveVeil(svg, x, lanes.leftBase);
  const now = svg.querySelector('.now');
  now.textContent = end ? '' : left(r, Math.max(until - 1, 0));
  row.querySelector('.note').textContent = note(r, numbers.falseDenials);
  const right = x > width - 130;
  now.setAttribute('x', right ? x - 8 : x + 8);
  now.setAttribute('text-anchor', right ? 'end' : 'start');
}

// totals adds up what is before a column.
function totals(r, until) {
  const sum = (series) => series.slice(0, until).reduce((a, b) => a + b, 0);
  const most = (series) => Math.max(0, ...series.slice(0, until));
  return {
    admitted: sum(r.admitted), denied: sum(r.denied), worst: most(r.served),
    falseAdmits: sum(r.falseAdmits), falseDenials: sum(r.falseDenials), longestWait: most(r.wait), atOnce: most(r.atOnce),
  };
}

function wait(seconds) {
  if (seconds === 0) return '–';
  for (const [unit, name] of [[1, 's'], [60, 'min'], [3600, 'h']]) {
    if (seconds < 10 * unit) return `${(seconds / unit).toFixed(1)} ${name}`;
    if (seconds < 100 * unit) return `${Math.round(seconds / unit)} ${name}`;
  }
  return `${Math.round(seconds / 86400)} d`;
}

// sentence is a row for who does not see it.
export const sentence = (r, result) =>
  `${r.totals.admitted} admitted, ${r.totals.denied} denied, worst window ${r.totals.worst} of ${result.rate}, ${r.totals.falseAdmits} false admits`;

// showClients fills the table of the clients, if there are several.
export function showClients(box, result) {
  box.replaceChildren();
  box.hidden = result.clients < 2;
  if (box.hidden) return;
  const wide = element(box, 'div', 'wide'), table = element(wide, 'table');
  Object.assign(wide, { tabIndex: 0, role: 'region', ariaLabel: 'Admitted and denied, by client' });
  element(table, 'caption', '', 'Admitted and denied, by client');
  const head = element(element(table, 'thead'), 'tr'), body = element(table, 'tbody');
  element(head, 'th', '', 'client').scope = 'col';
  for (const r of result.rows) {
    const th = element(head, 'th');
    th.scope = 'col';
    r.algorithm.split('_').forEach((word, i) => {
      if (i > 0) th.append('_', document.createElement('wbr'));
      th.append(word);
    });
  }
  for (let i = 0; i < result.clients; i++) {
    const tr = element(body, 'tr');
    element(tr, 'th', '', String(i + 1)).scope = 'row';
    for (const r of result.rows) {
      const td = element(tr, 'td', '', number(r.perClient[i].admitted));
      element(td, 'span', 'soft', ` / ${number(r.perClient[i].denied)}`);
    }
  }
  fold(body, 'clients');
}
