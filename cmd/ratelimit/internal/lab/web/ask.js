// Asking the lab: a scenario is a query, and what the lab answers is shown.

// address is a query as people can read it: commas and slashes need no escape.
export const address = (q) => '?' + q.toString().replaceAll('%2C', ',');

// asker returns a function that asks for a query. One is under way at a time, and the newest wins.
export function asker(path, show, complain) {
  let wanted = null, busy = false;
  return async (q) => {
    wanted = q;
    if (busy) return;
    busy = true;
    while (wanted) {
      const asked = wanted;
      wanted = null;
      try {
        const response = await fetch(path + address(asked));
        const answer = await response.json();
        if (response.ok) show(answer);
        else complain(answer.error, answer.field);
      } catch {
        complain('The lab does not answer. Is it still running?');
      }
    }
    busy = false;
  };
}

// complainer returns a function that shows a mistake in #mistake and at its field, or takes it away.
// Titles are the fields' names as the page has them.
export function complainer(form, titles) {
  return (text, name) => {
    for (const input of form.elements) input.removeAttribute('aria-invalid');
    const input = name && form.querySelector(`input[name="${CSS.escape(name)}"]:not([type=checkbox]):not([type=radio]), select[name="${CSS.escape(name)}"]`);
    if (input) input.setAttribute('aria-invalid', 'true');
    const mistake = document.getElementById('mistake');
    mistake.textContent = titles[name] ? text.replace(name, titles[name]) : text;
    mistake.hidden = !text;
  };
}

// restoreNumbers sets the fields of numbers that a query has.
export function restoreNumbers(form, q, names) {
  for (const name of names) {
    const n = Number(q.get(name));
    if (!q.get(name) || Number.isNaN(n)) continue;
    const input = form.elements[name];
    if (input.type === 'range') { // the address may say more than the slider does by itself
      input.min = Math.min(input.min, n);
      input.max = Math.max(input.max, n);
      if (n !== Math.round(n * 10) / 10) input.step = 'any';
    }
    input.value = n;
  }
}
