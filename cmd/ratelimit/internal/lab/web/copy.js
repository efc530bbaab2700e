import { element } from './plot.js';

// copy puts a text into the clipboard, and says so on the button and in #copied.
export async function copy(text, button) {
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
  document.getElementById('copied').textContent = 'Copied';
  setTimeout(() => {
    button.textContent = label;
    document.getElementById('copied').textContent = '';
  }, 1500);
}
