// Drawing: series of numbers, one for each column, become paths. Nothing here
// knows about limits.

const namespace = 'http://www.w3.org/2000/svg';

// node makes an SVG element inside another.
export function node(parent, name, attributes, text) {
  const e = document.createElementNS(namespace, name);
  for (const key in attributes) e.setAttribute(key, attributes[key]);
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}

// element makes an HTML element inside another.
export function element(parent, name, className, text) {
  const e = document.createElement(name);
  if (className) e.className = className;
  if (text !== undefined) e.textContent = text;
  parent.append(e);
  return e;
}

const round = (x) => Math.round(x * 10) / 10;

// merge adds neighbouring columns up.
export function merge(series, by) {
  const merged = [];
  for (let i = 0; i < series.length; i += by) {
    let sum = 0;
    for (let j = i; j < Math.min(i + by, series.length); j++) sum += series[j];
    merged.push(sum);
  }
  return merged;
}

// barsOf is how many columns go into one bar at a width.
export const barsOf = (columns, width) => Math.max(1, Math.ceil((columns * 4) / width));

// bars is the path of bars on a base line, each on top of what is below it. What
// is not zero can be seen.
export function bars(width, base, scale, series, below) {
  const step = width / series.length, gap = Math.min(1, step / 4);
  let d = '';
  series.forEach((n, i) => {
    if (n === 0) return;
    const under = below && below[i] > 0 ? Math.max(below[i] * scale, 2) : 0;
    d += `M${round(i * step + gap / 2)} ${round(base - under)}h${round(step - gap)}v${-round(Math.max(n * scale, 2))}h${-round(step - gap)}z`;
  });
  return d;
}

// area is the path of a surface between a base line and the heights.
export function area(width, base, heights) {
  const step = width / heights.length;
  let d = `M0 ${round(base)}`, last = 0;
  heights.forEach((h, i) => {
    if (h !== last) d += `H${round(i * step)}V${round(base - h)}`;
    last = h;
  });
  return d + `H${round(width)}V${round(base)}z`;
}

// clock is a time in seconds as people write it, as exact as a span needs.
export function clock(seconds, span) {
  const two = (n) => String(n).padStart(2, '0');
  if (span <= 20) return `${seconds.toFixed(seconds % 1 ? 1 : 0)} s`;
  const s = Math.round(seconds), day = 86400;
  if (span <= 7200) return `${Math.floor(s / 60)}:${two(s % 60)}`;
  if (span <= 2 * day) return `${Math.floor(s / 3600)}:${two(Math.floor(s / 60) % 60)} h`;
  return `${Math.round((s / day) * 10) / 10} d`;
}

// lasts is a span in words, as after "in the last".
export function lasts(seconds) {
  for (const [unit, name] of [[86400, 'day'], [3600, 'hour'], [60, 'minute'], [1, 'second']]) {
    if (seconds === unit) return name;
    if (seconds % unit === 0) return `${seconds / unit} ${name}s`;
  }
  return `${seconds} seconds`;
}

// size gives an SVG the width that it has, so that one unit is one pixel.
export function size(svg, height) {
  const width = Math.max(Math.floor(svg.getBoundingClientRect().width), 200);
  svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
  svg.setAttribute('height', height);
  svg.replaceChildren();
  return width;
}

const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 });

// number is a number as people read it.
export const number = (n) => n.toLocaleString('en-US');

// axis writes a value at its height, beside the plot.
export function axis(svg, y, value) {
  node(svg, 'text', { class: 'axis', x: svg.viewBox.baseVal.width + 6, y: Math.max(y + 4, 9) }, value < 10000 ? number(Math.round(value)) : compact.format(value));
}

// hover shows the values of the column at the pointer.
export function hover(plot, columns, text) {
  const cursor = element(plot, 'div', 'cursor'), tip = element(plot, 'div', 'tip');
  for (const e of [cursor, tip]) e.hidden = e.ariaHidden = true; // the rows say the same in words
  plot.addEventListener('pointermove', (e) => {
    const box = plot.querySelector('svg').getBoundingClientRect(), x = e.clientX - box.left;
    const says = x >= 0 && x < box.width && text(Math.floor((x / box.width) * columns));
    cursor.hidden = tip.hidden = !says;
    if (!says) return;
    tip.textContent = says;
    cursor.style.left = `${x}px`;
    tip.style.left = `${Math.max(0, Math.min(x - tip.offsetWidth / 2, box.width - tip.offsetWidth))}px`;
  });
  plot.addEventListener('pointerleave', () => (cursor.hidden = tip.hidden = true));
}
