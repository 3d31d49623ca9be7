/** Puts the card's styles on the page, once, marked like the harness's own. */
import dock from './dock.css';
import now from './now.css';
import style from './style.css';

export function dress(plugin: string): () => void {
  const tag = document.createElement('style');
  tag.dataset['plugin'] = plugin;
  tag.textContent = style + now + dock;
  document.head.append(tag);
  return () => tag.remove();
}
