// The replay: what /replay.json says, as figures, bars and tables. Its texts come
// from access logs, so they are only ever set as text.
import { node, element, barsOf, merge, bars, lasts, size, axis, hover, number } from './plot.js';
import { fold } from './fold.js';

const $ = (id) => document.getElementById(id);
const date = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'short', timeZone: 'UTC' });
const hour = new Intl.DateTimeFormat('en-GB', { timeStyle: 'short', timeZone: 'UTC' });
const day = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', timeZone: 'UTC' });
const minute = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short', hour: '2-digit', minute: '2-digit', timeZone: 'UTC' });

// span says from when to when, and the day once where it is one.
function span(start, end) {
  const from = date.format(new Date(start)), to = date.format(new Date(end)), comma = from.lastIndexOf(', ') + 2;
  return `${from} to ${to.startsWith(from.slice(0, comma)) ? to.slice(comma) : to} UTC`;
}

function percent(part, of) {
  if (!part || !of) return '0 %';
  const p = (100 * part) / of;
  return (p < 0.01 ? '< 0.01' : p < 10 ? Number(p.toPrecision(2)) : p > 99 && p < 100 ? Math.floor(p * 100) / 100 : Math.round(p)) + ' %';
}

function figures(r) {
  const all = [
    ['requests', number(r.requests)], ['denied', number(r.denied)], ['of all requests', percent(r.denied, r.requests)],
    ['lines that could not be read', number(r.bad)],
  ];
  for (const [heading, value] of all) {
    const pair = element($('figures'), 'div');
    element(pair, 'dt', '', heading);
    element(pair, 'dd', '', value);
  }
}

// plots has the bars of all requests, and one row of denials for each rule.
function plots(r) {
  const box = $('minutes');
  box.replaceChildren();
  const row = (title, what, requests, denied, label) => {
    const part = element(box, 'div'), small = element(element(part, 'h2', '', title + ' '), 'small');
    const plot = element(part, 'div', 'plot'), svg = node(plot, 'svg', { role: 'img', 'aria-label': label });
    const base = 70, width = size(svg, 90), by = barsOf(requests.length, width);
    small.textContent = `${what} in each ${lasts(r.step * by)}`;
    const all = merge(requests, by), not = merge(denied, by), tallest = Math.max(1, ...all), scale = base / tallest;
    axis(svg, 0, tallest);
    hover(plot, all.length, (i) => `${minute.format(new Date(new Date(r.start).getTime() + i * by * r.step * 1000))}: ${requests === denied ? '' : `${number(all[i])} requests, `}${number(not[i])} denied`);
    node(svg, 'path', { class: 'p-requests', d: bars(width, base, scale, all) });
    node(svg, 'path', { class: 'p-beyond', d: bars(width, base, scale, not) });
    node(svg, 'path', { class: 'p-base', d: `M0 ${base + 0.5}H${width}` });
    ticks(r, svg, width);
  };
  const series = (f) => r.bars.map(f);
  row('all rules', 'requests, and those denied,', series((b) => b.requests), series((b) => b.denied || 0),
    `Requests over time: ${number(r.requests)}, of which ${number(r.denied)} were denied`);
  for (const rule of r.rules) {
    const denied = series((b) => (b.by_rule || {})[rule.name] || 0);
    if (!denied.some((n) => n > 0)) { // no room for an empty plot
      const why = rule.not_replayed ? 'not replayed: ' + rule.not_replayed : rule.requests ? 'denied nothing' : 'met no request of the log';
      element(element(element(box, 'div'), 'h2', '', rule.name + ' '), 'small', '', why);
      continue;
    }
    row(rule.name, 'denials', denied, denied, `Denials by ${rule.name} over time: ${number(rule.denied)}`);
  }
}

function ticks(r, svg, width) {
  const from = new Date(r.start).getTime(), to = from + r.step * 1000 * r.bars.length, many = width < 500 ? 2 : 4;
  const format = to - from > 2 * 86400e3 ? day : hour;
  for (let i = 0; i <= many; i++) {
    const anchor = i === 0 ? 'start' : i === many ? 'end' : 'middle';
    node(svg, 'text', { x: (width * i) / many, y: 86, 'text-anchor': anchor }, format.format(new Date(from + ((to - from) * i) / many)));
  }
}

// table makes one of rows of cells; a cell is a text, or a number, or a function
// that fills it.
function table(id, title, heads, rows) {
  if (rows.length === 0) return null;
  const t = element($(id), 'table');
  element(t, 'caption', '', title);
  const head = element(element(t, 'thead'), 'tr'), body = element(t, 'tbody');
  heads.forEach((text, i) => {
    const th = element(head, 'th', typeof rows[0][i] === 'string' || rows[0][i].left ? 'text' : '', text);
    th.scope = 'col';
  });
  for (const cells of rows) {
    const tr = element(body, 'tr');
    cells.forEach((cell, i) => {
      const td = element(tr, i === 0 ? 'th' : 'td');
      if (i === 0) td.scope = 'row';
      td.dataset.head = heads[i];
      if (typeof cell === 'function') cell(td);
      else if (typeof cell === 'number') td.textContent = number(cell);
      else {
        td.className = 'text';
        element(td, 'span', 'code', cell);
      }
    });
  }
  return body;
}

// byRule says which rules denied most, and how many more denied.
function byRule(counts) {
  const fill = (td) => {
    const all = Object.entries(counts || {}).filter(([, n]) => n > 0).sort(([, a], [, b]) => b - a);
    td.className = 'text';
    for (const [rule, n] of all.slice(0, 3)) {
      const one = element(td, 'span', 'one');
      element(one, 'span', 'code', rule);
      one.append(` ${number(n)} `);
    }
    if (all.length > 3) element(td, 'span', 'soft', `and ${all.length - 3} more`);
  };
  fill.left = true;
  return fill;
}

// inTheLab links a limit to the lab.
function inTheLab(limit) {
  const fill = (td) => {
    td.className = 'text';
    const m = /^(\d+)\/(\S+?)(?: burst (\d+))?(?: (\w+))?$/.exec(limit);
    if (!m) return element(td, 'span', 'code', limit);
    const q = new URLSearchParams({ rate: m[1], period: m[2], algorithms: m[4] || (m[3] ? 'token_bucket' : 'sliding_window') });
    if (m[3]) q.set('burst', m[3]);
    element(td, 'a', 'code', limit).href = '/?' + q.toString();
  };
  fill.left = true;
  return fill;
}

// key is what a client was counted by: as long as clients like, so it may be
// broken anywhere.
function key(text) {
  const fill = (td) => {
    td.className = 'text';
    element(td, 'span', 'code key', text);
  };
  fill.left = true;
  return fill;
}

const none = (td) => { td.textContent = '–'; };

// denials are those of a rule, and their share.
const denials = (rule) => (td) => {
  td.textContent = number(rule.denied);
  if (rule.denied) element(td, 'span', 'soft', ` ${percent(rule.denied, rule.requests)}`);
};

// smallest is the smallest limit that would do, if that is known.
function smallest(rule) {
  if (!rule.smallest) return '–';
  const link = inTheLab(rule.smallest);
  const fill = (td) => {
    link(td);
    element(td, 'div', 'soft', `denies under ${percent(rule.under, 1)} of ${rule.smallest_of < rule.clients ? `the ${number(rule.smallest_of)} clients with this rule’s own limit` : 'clients'}`);
  };
  fill.left = true;
  return fill;
}

function show(r) {
  $('lead').textContent = r.log + (r.bars ? `, ${span(r.start, r.end)}` : '');
  $('replay').hidden = false;
  figures(r);
  const rules = r.rules || [];
  table('rules', 'Rules', ['rule', 'limit', 'requests', 'denied', 'clients', 'clients denied', 'smallest limit'], rules.map((x) => [
    x.name, inTheLab(x.limit), ...(x.not_replayed ? [none, none, none, none] : [x.requests, denials(x), x.clients, x.limited]),
    smallest(x),
  ]));
  table('worst', 'Worst minutes', ['minute (UTC)', 'requests', 'denied', 'by rule'],
    (r.worst || []).map((m) => [minute.format(new Date(m.start)), m.requests, m.denied, byRule(m.by_rule)]));
  const clients = table('clients', 'Clients with the most denials', ['client', 'rule', 'requests', 'denied'],
    (r.clients || []).map((c) => [key(c.key), c.rule, c.requests, c.denied]));
  if (clients) fold(clients, 'clients');
  if (!r.bars) return;
  let resized;
  new ResizeObserver(() => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => {
      plots({ ...r, rules });
      document.body.dataset.ready = 'true';
    });
  }).observe($('replay'));
}

async function load() {
  const response = await fetch('/replay.json');
  if (response.ok) return show(await response.json());
  $('lead').textContent = 'See what rules would have done to the requests of a real access log.';
  $('none').hidden = false;
}

load().catch(() => ($('lead').textContent = 'The lab does not answer. Is it still running?'));
