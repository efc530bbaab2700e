// The page of overload: the form is the query of the page's address and of /overload.json, and
// what that answers is drawn.
import { node, element, merge, barsOf, bars, area, clock, size, axis, hover, number } from './plot.js';
import { address, asker, complainer, restoreNumbers } from './ask.js';

const $ = (id) => document.getElementById(id);
const form = $('scenario');
const percent = (share) => `${Math.min(Math.round(100 * share), 100)} %`;
const seconds = (s) => (s < 0.9995 ? `${Math.round(1000 * s)} ms` : `${s.toFixed(s < 10 ? 1 : 0)} s`);

const texts = {
  none: ['no Shedder', () => 'Every request is let in, and waits for a worker.'],
  fixed: ['fixed limit', (r) => `At most ${r.min} at work. The most important go first.`],
  adaptive: ['adaptive limit', (r) => `At least ${r.min}; moved by latency and throughput.`],
};
const levels = ['Critical', 'High', 'Medium', 'Low'];

// numbers are what stands beside a row's plot.
const numbers = (r) => [
  ['goodput', 'Goodput', percent(r.goodput), r.goodput < 0.9],
  ['p99', 'p99', seconds(r.p99), r.p99 > 1],
  ['shed', 'Shed', percent(r.shedShare), false],
  ...r.served.map((s, i) => [levels[i].toLowerCase(), levels[i], s.requests ? percent(s.inTime / s.requests) : '–', i === 0 && s.inTime < 0.9 * s.requests]),
];

let result = null;

const complain = complainer(form, { workers: 'Workers', load: 'Load', critical: 'Critical', seconds: 'Seconds' });
const simulate = asker('/overload.json', show, complain);
const query = () => new URLSearchParams(new FormData(form));

function fit() {
  $('load-text').textContent = `${Number(form.elements.load.value)} × capacity`;
  const workers = Number(form.elements.workers.value);
  $('capacity').textContent = workers > 0 ? `Each takes 50 ms for a request: ${number(20 * workers)} requests a second.` : '';
}

function show(answer) {
  result = answer;
  document.body.classList.remove('empty');
  complain('');
  const rows = $('rows');
  rows.replaceChildren();
  for (const r of result.rows) addRow(rows, r);
  plotAll();
  announce();
}

let announcing;
function announce() {
  clearTimeout(announcing);
  announcing = setTimeout(() => { $('summary').textContent = result.rows.map(sentence).join(' '); }, 700);
}

const sentence = (r) => `${texts[r.name][0]}: ${numbers(r).map(([, heading, value]) => `${heading} ${value}`).join(', ')}.`;

function addRow(rows, r) {
  const row = element(rows, 'article', 'row'), side = element(row, 'div', 'side');
  row.dataset.name = r.name;
  element(side, 'h2', '', texts[r.name][0]);
  element(side, 'p', 'about', texts[r.name][1](r));
  const stats = element(side, 'dl', 'stats');
  for (const [name, heading, value, warn] of numbers(r)) {
    const pair = element(stats, 'div', warn ? 'warn' : '');
    pair.dataset.name = name;
    element(pair, 'dt', '', heading);
    element(pair, 'dd', '', value);
  }
  const plot = element(row, 'div', 'plot');
  node(plot, 'svg', { role: 'img', 'aria-label': sentence(r) });
  hover(plot, r.inTime.length, (column) => {
    const at = (column * result.seconds) / r.inTime.length, second = Math.min(Math.floor(at), r.inside.length - 1);
    const limit = r.min ? `, limit ${r.limit[second]}` : '';
    return `${clock(at, result.seconds)}: ${r.inTime[column]} served, ${r.late[column]} late, ${r.shed[column]} shed; ${number(r.inside[second])} in the server${limit}`;
  });
}

const lanes = { bars: 70, curveTop: 92, curveBase: 152, height: 172 };

function plotAll() {
  if (!result) return;
  result.rows.forEach((r, i) => plotRow($('rows').children[i].querySelector('svg'), r));
}

function plotRow(svg, r) {
  const width = size(svg, lanes.height), by = barsOf(r.inTime.length, width);
  const [inTime, late, shed] = [r.inTime, r.late, r.shed].map((series) => merge(series, by));
  const sum = (a, b) => a.map((n, i) => n + b[i]);
  const served = sum(inTime, late), tallest = Math.max(1, ...sum(served, shed)), scale = lanes.bars / tallest;
  node(svg, 'path', { class: 'p-admitted', d: bars(width, lanes.bars, scale, inTime) });
  node(svg, 'path', { class: 'p-beyond', d: bars(width, lanes.bars, scale, late, inTime) });
  node(svg, 'path', { class: 'p-denied', d: bars(width, lanes.bars, scale, shed, served) });
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.bars + 0.5}H${width}` });
  axis(svg, 0, tallest);

  const most = Math.max(1, ...r.inside, ...r.limit), up = (lanes.curveBase - lanes.curveTop) / most;
  node(svg, 'path', { class: 'p-left', d: area(width, lanes.curveBase, r.inside.map((n) => up * n)) });
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.curveBase + 0.5}H${width}` });
  axis(svg, lanes.curveTop, most);
  if (r.min) {
    const heights = r.limit.map((n) => lanes.curveBase - up * n), step = width / heights.length;
    node(svg, 'path', { class: 'p-limit', d: heights.map((y, i) => `${i ? 'V' : 'M0 '}${y.toFixed(1)}H${((i + 1) * step).toFixed(1)}`).join('') });
    const last = heights.at(-1);
    if (last - lanes.curveTop > 14) axis(svg, last, r.limit.at(-1));
  }
  const many = width < 500 ? 3 : 6;
  for (let i = 0; i <= many; i++) {
    const anchor = i === 0 ? 'start' : i === many ? 'end' : 'middle';
    node(svg, 'text', { x: (width * i) / many, y: lanes.height - 4, 'text-anchor': anchor }, clock(Math.round((10 * result.seconds * i) / many) / 10, result.seconds));
  }
}

form.addEventListener('submit', (e) => e.preventDefault());
form.addEventListener('input', () => {
  fit();
  history.replaceState(null, '', address(query()));
  simulate(query());
});

let resized;
new ResizeObserver(() => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(plotAll);
}).observe($('result'));

// The first scenario is what the address says, even if the form cannot.
const given = new URLSearchParams(location.search);
restoreNumbers(form, given, ['workers', 'load', 'critical', 'seconds']);
fit();
simulate(given.size > 0 ? given : query());
