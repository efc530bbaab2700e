// The lab: the form is the scenario, its fields are the query of the page's
// address and of /simulate, and what that answers is drawn. All decisions and all
// numbers are the server's.
import { node, element, merge, barsOf, bars, clock, lasts, size, axis, hover, number } from './plot.js';
import { address, asker, complainer, restoreNumbers } from './ask.js';
import { copy } from './copy.js';
import { addRow, edges, veil, moveVeil, plotRow, seekRow, sentence, at, showClients } from './rows.js';

const $ = (id) => document.getElementById(id);
const form = $('scenario'), time = $('time'), draw = $('draw');
const parts = 60; // of a drawn curve
const random = ['poisson', 'bursty', 'clients']; // shapes that have a seed
const still = matchMedia('(prefers-reduced-motion: reduce)');

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
const held = () => form.querySelector('[data-held]:checked') !== null; // requests under way are limited

function query() {
  const q = new URLSearchParams();
  const skip = new Set(['algorithms']);
  if (traffic() !== 'clients') skip.add('clients');
  if (!random.includes(traffic())) skip.add('seed');
  if (!held()) skip.add('atOnce').add('takes');
  if (traffic() === 'drawn') skip.add('load');
  for (const [name, value] of new FormData(form)) if (!skip.has(name)) q.append(name, value);
  q.set('algorithms', [...form.querySelectorAll('[name=algorithms]:checked')].map((c) => c.value).join());
  if (traffic() === 'drawn') q.set('drawn', drawn.join());
  return q;
}

function restore(q) {
  restoreNumbers(form, q, ['rate', 'burst', 'atOnce', 'load', 'takes', 'periods', 'clients', 'seed']);
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

const complain = complainer(form, {
  rate: 'Requests', period: 'Period', burst: 'Burst', atOnce: 'At once', takes: 'Each takes', algorithms: 'Counted by', traffic: 'Traffic', load: 'Load',
  periods: 'Windows', clients: 'Clients', seed: 'Seed', drawn: 'By hand',
});
const simulate = asker('/simulate', show, complain);

function changed() {
  fit();
  const q = query();
  if (rule) q.set('rule', rule);
  history.replaceState(null, '', address(q));
  q.delete('rule');
  simulate(q);
}

// fit shows the controls that the traffic and the algorithms have.
function fit() {
  $('clients-field').hidden = traffic() !== 'clients';
  $('seed-field').hidden = !random.includes(traffic());
  $('load-field').hidden = traffic() === 'drawn';
  $('at-once-field').hidden = $('takes-field').hidden = !held();
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

function show(answer) {
  result = answer;
  document.body.classList.remove('empty');
  complain('');
  const whole = time.value === time.max;
  time.max = result.arrivals.length;
  if (whole) time.value = time.max;
  if (!result.rows.some((r) => r.algorithm === rule)) rule = preferred(result.rows).algorithm;
  const rows = $('rows');
  rows.replaceChildren();
  for (const r of result.rows) {
    const plot = addRow(rows, r, result).querySelector('.plot');
    hover(plot, r.admitted.length, (column) => `${when(column)}: ${at(r, result, column)}`);
  }
  $('legend-served').textContent = `served in the last ${lasts(result.period)}`;
  $('legend-waiting').hidden = !result.rows.some((r) => Math.max(...r.waiting) > 0);
  showClients($('clients'), result);
  showRules();
  plotAll();
  announce();
}

function plotAll() {
  if (!result) return;
  plotArrivals();
  const most = Math.max(1.25 * result.rate, ...result.rows.map((r) => r.totals.worst));
  result.rows.forEach((r, i) => plotRow($('rows').children[i], r, result, most));
  seek();
}

// when is the time of a column.
const when = (column) => clock((span() * column) / result.arrivals.length, span());

const span = () => result.period * result.periods;

const arrivalsBase = 64;

function plotArrivals() {
  const height = 84, base = arrivalsBase, svg = $('arrivals').firstElementChild, width = size(svg, height);
  svg.setAttribute('aria-label', `Arrivals over time: ${result.requests} requests in ${clock(span(), span())}`);
  edges(svg, result, base);
  node(svg, 'path', { class: 'p-base', d: `M0 ${base + 0.5}H${width}` });
  if (traffic() === 'drawn') {
    const most = last ? full : fullPart();
    node(svg, 'path', { class: 'p-arrivals', d: bars(width, base, base / most, drawn) });
    axis(svg, 0, most);
    if (document.activeElement === draw && draw.matches(':focus-visible')) {
      node(svg, 'path', { class: 'p-part', d: `M${(width * part) / drawn.length} ${base + 3}h${width / drawn.length}` });
    }
  } else {
    const merged = merge(result.arrivals, barsOf(result.arrivals.length, width));
    const most = Math.max(1, ...merged);
    node(svg, 'path', { class: 'p-arrivals', d: bars(width, base, base / most, merged) });
    axis(svg, 0, most);
  }
  const every = Math.ceil(result.periods / (width < 500 ? 4 : 12));
  for (let i = 0; i <= result.periods; i += every) {
    const anchor = i === 0 ? 'start' : i === result.periods ? 'end' : 'middle';
    node(svg, 'text', { x: (width * i) / result.periods, y: height - 4, 'text-anchor': anchor }, clock(result.period * i, span()));
  }
  veil(svg, base);
  describePart();
}

// seek shows what had happened at the time that is chosen.
function seek() {
  if (!result) return;
  const columns = result.arrivals.length, until = Number(time.value);
  const text = clock((span() * until) / columns, span());
  $('clock').textContent = text;
  time.setAttribute('aria-valuetext', `${text} of ${clock(span(), span())}`);
  const arrivals = $('arrivals').firstElementChild;
  moveVeil(arrivals, (arrivals.viewBox.baseVal.width * until) / columns, arrivalsBase);
  result.rows.forEach((r, i) => seekRow($('rows').children[i], r, result, until));
}

let announcing;
function announce() {
  clearTimeout(announcing);
  announcing = setTimeout(() => {
    $('summary').textContent = result.rows.map((r) => `${r.algorithm}: ${sentence(r, result)}.`).join(' ');
  }, 700);
}

// The code.

// preferred is the row whose code is shown first: the default algorithm, or the one with the fewest
// requests beyond the limit.
const preferred = (rows) => rows.find((r) => r.algorithm === 'sliding_window') ||
  rows.reduce((best, r) => (r.totals.falseAdmits < best.totals.falseAdmits ? r : best));

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
  $('log').hidden = r.held; // a log does not say how long requests took
}

$('rule').addEventListener('change', (e) => {
  rule = e.target.value;
  showCode();
  const q = query();
  q.set('rule', rule);
  history.replaceState(null, '', address(q));
});

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
draw.addEventListener('lostpointercapture', () => {
  last = null;
  redraw();
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

hover($('arrivals'), 240, (column) => result && `${when(column)}: ${number(result.arrivals[column])} requests`);

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
