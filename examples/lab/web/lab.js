// The lab: the form is the scenario, its fields are the query of the page's
// address and of /simulate, and what that answers is drawn. All decisions and all
// numbers are the server's.
import { node, element, merge, barsOf, bars, area, clock, lasts, size } from './plot.js';

const $ = (id) => document.getElementById(id);
const form = $('scenario'), time = $('time'), draw = $('draw');
const parts = 60; // of a drawn curve
const random = ['poisson', 'bursty', 'clients']; // shapes that have a seed
const still = matchMedia('(prefers-reduced-motion: reduce)');

const abouts = {
  fixed_window: 'Counts in windows of the clock. Twice the limit can pass around an edge.',
  sliding_window: 'Estimates the last period from two windows. The default.',
  sliding_log: 'Remembers each admitted request. Exact.',
  token_bucket: 'A burst at once, then a steady rate.',
  leaky_bucket: 'A queue: what is admitted waits for its turn.',
  gcra: 'The token bucket, by another formula.',
};
const shapes = {
  steady: 'Evenly spaced.',
  poisson: 'Independent of each other, at random.',
  bursty: 'On for a tenth of a window, off for half, at random.',
  edges: 'All at the end of a window, and all again as the next begins.',
  drip: 'All at the end of a window, then evenly through the next.',
  clients: 'Each has a count of its own. The second sends half as much as the first, the third a third.',
  drawn: 'Yours.',
};

let result = null; // what /simulate answered last
let drawn = null; // requests in each part, if they were drawn
let part = 0; // the part that the keyboard changes
let rule = ''; // whose code is shown

// The scenario and the page's address.

const field = (name) => form.elements[name];
const traffic = () => field('traffic').value;

function query() {
  const q = new URLSearchParams();
  const skip = new Set(['algorithms']);
  if (traffic() !== 'clients') skip.add('clients');
  if (!random.includes(traffic())) skip.add('seed');
  if (traffic() === 'drawn') skip.add('load');
  for (const [name, value] of new FormData(form)) if (!skip.has(name)) q.append(name, value);
  q.set('algorithms', [...form.querySelectorAll('[name=algorithms]:checked')].map((c) => c.value).join());
  if (traffic() === 'drawn') q.set('drawn', drawn.join());
  return q;
}

// address is a query as people can read it: commas and slashes need no escape.
const address = (q) => '?' + q.toString().replaceAll('%2C', ',');

function restore(q) {
  for (const name of ['rate', 'burst', 'load', 'periods', 'clients', 'seed']) {
    if (q.get(name) && !Number.isNaN(Number(q.get(name)))) field(name).value = q.get(name);
  }
  if (q.has('period')) {
    const select = field('period'), value = q.get('period');
    if (![...select.options].some((o) => o.value === value)) select.add(new Option(value, value));
    select.value = value;
  }
  if (q.has('algorithms')) {
    const chosen = q.get('algorithms').split(',');
    for (const box of form.querySelectorAll('[name=algorithms]')) box.checked = chosen.includes(box.value);
  }
  if (q.has('drawn')) drawn = q.get('drawn').split(',').map((n) => Math.max(0, Math.trunc(Number(n)) || 0));
  const shape = form.querySelector(`[name=traffic][value="${CSS.escape(q.get('traffic') || '')}"]`);
  if (shape) shape.checked = true;
  rule = q.get('rule') || '';
}

// One simulation at a time; the newest scenario wins.
let wanted = null, busy = false;

async function simulate(q) {
  wanted = q;
  if (busy) return;
  busy = true;
  while (wanted) {
    const asked = wanted;
    wanted = null;
    try {
      const response = await fetch('/simulate' + address(asked));
      const answer = await response.json();
      if (response.ok) show(answer);
      else complain(answer.error, answer.field);
    } catch {
      complain('The lab does not answer. Is it still running?');
    }
  }
  busy = false;
}

// titles are the fields' names as the page has them.
const titles = {
  rate: 'Requests', period: 'Period', burst: 'Burst', algorithms: 'Counted by', traffic: 'Traffic', load: 'Load',
  periods: 'Windows', clients: 'Clients', seed: 'Seed', drawn: 'By hand',
};

function complain(text, name) {
  for (const input of form.elements) input.removeAttribute('aria-invalid');
  const input = name && form.querySelector(`input[name="${CSS.escape(name)}"]:not([type=checkbox]):not([type=radio]), select[name="${CSS.escape(name)}"]`);
  if (input) input.setAttribute('aria-invalid', 'true');
  $('mistake').textContent = titles[name] ? text.replace(name, titles[name]) : text;
  $('mistake').hidden = !text;
}

function changed() {
  fit();
  const q = query();
  if (rule) q.set('rule', rule);
  history.replaceState(null, '', address(q));
  q.delete('rule');
  simulate(q);
}

// fit shows the controls that the traffic has.
function fit() {
  $('clients-field').hidden = traffic() !== 'clients';
  $('seed-field').hidden = !random.includes(traffic());
  $('load-field').hidden = traffic() === 'drawn';
  $('load-text').textContent = `${Number(field('load').value)} × the limit`;
  document.body.classList.toggle('drawing', traffic() === 'drawn');
  const boxes = [...form.querySelectorAll('[name=algorithms]')], on = boxes.filter((b) => b.checked);
  for (const box of boxes) box.disabled = on.length === 1 && box.checked; // one stays
  $('traffic-about').textContent = shapes[traffic()];
}

form.addEventListener('submit', (e) => e.preventDefault());
form.addEventListener('input', (e) => {
  if (e.target.name === 'traffic' && traffic() === 'drawn') takeOver();
  changed();
});

// Showing.

const headings = [
  ['admitted', 'Admitted'], ['denied', 'Denied'], ['worst', 'Worst window'],
  ['falseAdmits', 'False admits'], ['falseDenials', 'False denials'], ['longestWait', 'Longest wait'],
];

function show(answer) {
  result = answer;
  document.body.classList.remove('empty');
  complain('');
  const whole = time.value === time.max;
  time.max = result.arrivals.length;
  if (whole) time.value = time.max;
  if (!result.rows.some((r) => r.algorithm === rule)) rule = result.rows[0].algorithm;
  const rows = $('rows');
  rows.replaceChildren();
  for (const r of result.rows) {
    const row = element(rows, 'article', 'row');
    row.dataset.algorithm = r.algorithm;
    const side = element(row, 'div', 'side');
    element(side, 'h3', '', r.algorithm);
    element(side, 'p', 'about', abouts[r.algorithm]);
    const stats = element(side, 'dl', 'stats');
    for (const [name, heading] of headings) {
      const pair = element(stats, 'div');
      pair.dataset.name = name;
      element(pair, 'dt', '', heading);
      element(pair, 'dd');
    }
    const plot = element(row, 'div', 'plot');
    node(plot, 'svg', { role: 'img' });
  }
  $('legend-served').textContent = `served in the last ${lasts(result.period)}`;
  $('legend-served').parentElement.parentElement.lastElementChild.hidden = !result.rows.some((r) => Math.max(...r.waiting) > 0);
  showClients();
  showRules();
  plotAll();
  announce();
}

function plotAll() {
  if (!result) return;
  plotArrivals();
  const most = Math.max(1.25 * result.rate, ...result.rows.map((r) => r.totals.worst));
  result.rows.forEach((r, i) => plotRow($('rows').children[i], r, most));
  seek();
}

const span = () => result.period * result.periods;

// edges are where windows begin.
function edges(svg, width, top, bottom) {
  let d = '';
  for (let i = 0; i <= result.periods; i++) d += `M${Math.min(Math.round((width * i) / result.periods) + 0.5, width - 0.5)} ${top}V${bottom}`;
  node(svg, 'path', { class: 'p-edge', d });
}

const arrivalsBase = 64;

function plotArrivals() {
  const height = 84, base = arrivalsBase, svg = $('arrivals').firstElementChild, width = size(svg, height);
  svg.setAttribute('aria-label', `Arrivals over time: ${result.requests} requests in ${clock(span(), span())}`);
  edges(svg, width, 0, base);
  node(svg, 'path', { class: 'p-base', d: `M0 ${base + 0.5}H${width}` });
  if (traffic() === 'drawn') {
    node(svg, 'path', { class: 'p-arrivals', d: bars(width, base, base / fullPart(), drawn) });
    if (document.activeElement === draw && draw.matches(':focus-visible')) {
      node(svg, 'path', { class: 'p-part', d: `M${(width * part) / drawn.length} ${base + 3}h${width / drawn.length}` });
    }
  } else {
    const merged = merge(result.arrivals, barsOf(result.arrivals.length, width));
    node(svg, 'path', { class: 'p-arrivals', d: bars(width, base, base / Math.max(1, ...merged), merged) });
  }
  const every = Math.ceil(result.periods / (width < 500 ? 4 : 12));
  for (let i = 0; i <= result.periods; i += every) {
    const anchor = i === 0 ? 'start' : i === result.periods ? 'end' : 'middle';
    node(svg, 'text', { x: (width * i) / result.periods, y: height - 4, 'text-anchor': anchor }, clock(result.period * i, span()));
  }
  veil(svg, base);
  describePart();
}

// veil covers what has not happened yet.
function veil(svg, bottom) {
  node(svg, 'rect', { class: 'p-veil', y: -2, height: bottom + 4 });
  node(svg, 'path', { class: 'p-head' });
}

function moveVeil(svg, x, bottom) {
  const width = svg.viewBox.baseVal.width, rect = svg.querySelector('.p-veil');
  rect.setAttribute('x', x);
  rect.setAttribute('width', Math.max(width - x, 0));
  svg.querySelector('.p-head').setAttribute('d', x < width ? `M${x} 0V${bottom}` : '');
}

const lanes = { bars: 52, curveTop: 70, curveBase: 150, leftTop: 168, leftBase: 194, height: 196 };

function plotRow(row, r, most) {
  const svg = row.querySelector('svg'), width = size(svg, lanes.height), by = barsOf(r.admitted.length, width);
  svg.setAttribute('aria-label', `${r.algorithm}: ${sentence(r)}`);
  edges(svg, width, 0, lanes.leftBase);
  const admitted = merge(r.admitted, by), denied = merge(r.denied, by);
  const scale = lanes.bars / Math.max(1, ...merge(result.arrivals, by));
  node(svg, 'path', { class: 'p-admitted', d: bars(width, lanes.bars, scale, admitted) });
  node(svg, 'path', { class: 'p-denied', d: bars(width, lanes.bars, scale, denied, admitted) });
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.bars + 0.5}H${width}` });

  const up = (lanes.curveBase - lanes.curveTop) / most, limit = lanes.curveBase - up * result.rate;
  node(svg, 'path', { class: 'p-served', d: area(width, lanes.curveBase, r.served.map((n) => up * Math.min(n, result.rate))) });
  node(svg, 'path', { class: 'p-beyond', d: area(width, limit, r.served.map((n) => up * Math.max(n - result.rate, 0))) });
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.curveBase + 0.5}H${width}` });
  node(svg, 'path', { class: 'p-limit', d: `M0 ${Math.round(limit) + 0.5}H${width}` });

  const deep = lanes.leftBase - lanes.leftTop, quota = Math.max(r.quota, 1);
  node(svg, 'path', { class: 'p-left', d: area(width, lanes.leftBase, r.remaining.map((n) => (deep * Math.max(n, 0)) / quota)) });
  if (r.waiting.some((n) => n > 0)) {
    const longest = Math.max(quota, ...r.waiting);
    node(svg, 'path', { class: 'p-waiting', d: area(width, lanes.leftBase, r.waiting.map((n) => (deep * n) / longest)) });
  }
  node(svg, 'path', { class: 'p-base', d: `M0 ${lanes.leftBase + 0.5}H${width}` });
  veil(svg, lanes.leftBase);
  node(svg, 'text', { class: 'now', y: lanes.leftTop + 10 });
}

// seek shows what had happened at the time that is chosen.
function seek() {
  if (!result) return;
  const columns = result.arrivals.length, until = Number(time.value), end = until >= columns;
  const text = clock((span() * until) / columns, span());
  $('clock').textContent = text;
  time.setAttribute('aria-valuetext', `${text} of ${clock(span(), span())}`);
  const arrivals = $('arrivals').firstElementChild;
  moveVeil(arrivals, (arrivals.viewBox.baseVal.width * until) / columns, arrivalsBase);
  result.rows.forEach((r, i) => {
    const row = $('rows').children[i], svg = row.querySelector('svg'), width = svg.viewBox.baseVal.width;
    const numbers = end ? r.totals : totals(r, until);
    for (const [name] of headings) {
      const pair = row.querySelector(`[data-name=${name}]`), n = numbers[name];
      pair.lastElementChild.textContent = name === 'longestWait' ? wait(n) : n.toLocaleString('en-US');
      pair.classList.toggle('none', n === 0);
      pair.classList.toggle('warn', (name === 'worst' && n > result.rate) || (name === 'falseAdmits' && n > 0));
    }
    const x = (width * until) / columns;
    moveVeil(svg, x, lanes.leftBase);
    const now = svg.querySelector('.now');
    const at = Math.max(until - 1, 0), queue = r.waiting[at] > 0 ? `, ${r.waiting[at]} waiting` : '';
    now.textContent = end ? '' : `${r.remaining[at]} left${queue}`;
    const right = x > width - 130;
    now.setAttribute('x', right ? x - 8 : x + 8);
    now.setAttribute('text-anchor', right ? 'end' : 'start');
  });
}

// totals adds up what is before a column.
function totals(r, until) {
  const sum = (series) => series.slice(0, until).reduce((a, b) => a + b, 0);
  const most = (series) => Math.max(0, ...series.slice(0, until));
  return {
    admitted: sum(r.admitted), denied: sum(r.denied), worst: most(r.served),
    falseAdmits: sum(r.falseAdmits), falseDenials: sum(r.falseDenials), longestWait: most(r.wait),
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

const sentence = (r) =>
  `${r.totals.admitted} admitted, ${r.totals.denied} denied, worst window ${r.totals.worst} of ${result.rate}, ${r.totals.falseAdmits} false admits`;

let announcing;
function announce() {
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    $('summary').textContent = result.rows.map((r) => `${r.algorithm}: ${sentence(r)}.`).join(' ');
  }, 700);
}

function showClients() {
  const box = $('clients');
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
      const td = element(tr, 'td', '', String(r.perClient[i].admitted));
      element(td, 'span', 'soft', ` / ${r.perClient[i].denied}`);
    }
  }
}

// The code.

function showRules() {
  const box = $('rule');
  const focused = box.contains(document.activeElement);
  box.replaceChildren();
  for (const r of result.rows) {
    const label = element(box, 'label'), input = element(label, 'input');
    Object.assign(input, { type: 'radio', name: 'rule', value: r.algorithm, checked: r.algorithm === rule });
    element(label, 'span', '', r.algorithm);
    if (focused && input.checked) input.focus();
  }
  showCode();
}

function showCode() {
  const r = result.rows.find((row) => row.algorithm === rule);
  $('yaml').textContent = r.yaml;
  $('go').textContent = r.go;
}

$('rule').addEventListener('change', (e) => {
  rule = e.target.value;
  showCode();
  const q = query();
  q.set('rule', rule);
  history.replaceState(null, '', address(q));
});

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed: the old way
    const area = element(document.body, 'textarea', 'unseen', text);
    area.select();
    document.execCommand('copy');
    area.remove();
    button.focus();
  }
  const label = button.textContent;
  if (label === 'Copied') return;
  button.textContent = 'Copied';
  $('copied').textContent = 'Copied';
  setTimeout(() => {
    button.textContent = label;
    $('copied').textContent = '';
  }, 1500);
}

for (const button of document.querySelectorAll('[data-copy]')) {
  button.addEventListener('click', () => copy($(button.dataset.copy).textContent, button));
}
$('share').addEventListener('click', (e) => {
  const q = query();
  q.set('rule', rule);
  copy(location.origin + location.pathname + address(q), e.currentTarget);
});

// Drawing by hand.

// fullPart is how many requests the full height is: six times the limit.
const fullPart = () => Math.min(1000, Math.max(4, ...drawn, Math.round((6 * Number(field('rate').value) * Number(field('periods').value)) / drawn.length) || 0));

// takeOver makes what came so far the curve that is changed.
function takeOver() {
  if (!drawn) {
    drawn = result ? merge(result.arrivals, result.arrivals.length / parts).map((n) => Math.min(n, 1000)) : Array(parts).fill(5);
  }
  full = fullPart();
}

let full = 1; // stays as it is during a stroke

function set(i, count) {
  part = Math.min(Math.max(i, 0), drawn.length - 1);
  drawn[part] = Math.min(Math.max(Math.round(count), 0), full);
}

function startDrawing() {
  if (traffic() !== 'drawn') {
    drawn = null;
    form.querySelector('[name=traffic][value=drawn]').checked = true;
  }
  takeOver();
}

let last = null; // the part and height that the stroke was at

function stroke(e) {
  const box = draw.getBoundingClientRect();
  const i = Math.floor(((e.clientX - box.left) / box.width) * drawn.length);
  const count = full * (1 - (e.clientY - box.top) / box.height);
  const from = last ? last.i : i, step = i < from ? -1 : 1;
  for (let j = from; j !== i + step; j += step) { // a fast stroke skips no part
    const share = i === from ? 1 : (j - from) / (i - from);
    if (j >= 0 && j < drawn.length) set(j, (last ? last.count : count) * (1 - share) + count * share);
  }
  last = { i, count };
  redraw();
  changed();
}

// redraw shows the curve at once; what becomes of it follows.
function redraw() {
  if (!result) return;
  plotArrivals();
  seek();
}

draw.addEventListener('pointerdown', (e) => {
  if (e.button !== 0 || (e.pointerType === 'touch' && traffic() !== 'drawn')) return; // a touch may want to scroll
  startDrawing();
  draw.setPointerCapture(e.pointerId);
  last = null;
  stroke(e);
});
draw.addEventListener('pointermove', (e) => {
  if (draw.hasPointerCapture(e.pointerId)) stroke(e);
});
draw.addEventListener('keydown', (e) => {
  const turns = { ArrowLeft: -1, ArrowRight: 1 }, steps = { ArrowUp: 1, ArrowDown: -1, PageUp: 10, PageDown: -10 };
  if (!(e.key in turns) && !(e.key in steps) && e.key !== 'Home' && e.key !== 'End') return;
  e.preventDefault();
  startDrawing();
  if (e.key in turns) part = Math.min(Math.max(part + turns[e.key], 0), drawn.length - 1);
  else if (e.key in steps) set(part, drawn[part] + steps[e.key]);
  else set(part, e.key === 'Home' ? 0 : full);
  redraw();
  changed();
});
for (const event of ['focus', 'blur']) draw.addEventListener(event, redraw);

function describePart() {
  const counts = drawn && traffic() === 'drawn' ? drawn : merge(result.arrivals, result.arrivals.length / parts);
  part = Math.min(part, counts.length - 1);
  draw.setAttribute('aria-valuemax', Math.max(full, counts[part]));
  draw.setAttribute('aria-valuenow', counts[part]);
  draw.setAttribute('aria-valuetext', `${counts[part]} requests from ${clock((span() * part) / counts.length, span())}`);
}

// Playing.

let playing = null;

function play() {
  const lasts = 12000, columns = Number(time.max);
  if (playing) return stop();
  if (Number(time.value) >= columns) time.value = 0;
  $('play').textContent = 'Pause';
  if (still.matches) { // in a few steps, without motion
    seek();
    const id = setInterval(() => advance(Number(time.value) + columns / 12), lasts / 12);
    playing = () => clearInterval(id);
    return;
  }
  const begun = performance.now(), from = Number(time.value);
  let id = 0;
  const frame = (now) => {
    id = requestAnimationFrame(frame);
    advance(from + (columns * (now - begun)) / lasts);
  };
  id = requestAnimationFrame(frame);
  playing = () => cancelAnimationFrame(id);
}

function advance(to) {
  time.value = Math.floor(to);
  seek();
  if (Number(time.value) >= Number(time.max)) stop();
}

function stop() {
  if (playing) playing();
  playing = null;
  $('play').textContent = 'Play';
}

$('play').addEventListener('click', play);
time.addEventListener('input', () => {
  stop();
  seek();
});

let resized;
new ResizeObserver(() => {
  cancelAnimationFrame(resized);
  resized = requestAnimationFrame(plotAll);
}).observe($('result'));

// The first scenario is what the address says, even if the form cannot.
const given = new URLSearchParams(location.search);
restore(given);
if (traffic() === 'drawn') takeOver();
fit();
given.delete('rule');
if (given.size > 0) simulate(given);
else simulate(query());
