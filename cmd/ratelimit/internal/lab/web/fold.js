import { element } from './plot.js';

const most = 10;
const open = new Set(); // what the reader has unfolded stays so

// fold hides all rows of a table's body after ten, behind a button that counts them.
export function fold(body, what) {
  const rest = [...body.rows].slice(most);
  if (rest.length === 0 || open.has(what)) return;
  for (const row of rest) row.hidden = true;
  const button = element(body.closest('.wide'), 'button', 'more', `Show ${rest.length} more ${what}`);
  button.type = 'button';
  button.addEventListener('click', () => {
    open.add(what);
    for (const row of rest) row.hidden = false;
    rest[0].tabIndex = -1;
    rest[0].focus();
    button.remove();
  });
}
