/** Speaks as the harness does. */
import { DICTIONARIES, type Translate } from '../src/words/index.ts';

export function translate(language: 'en' | 'zh'): Translate {
  return (word, parameters = {}) => DICTIONARIES[language][word].replace(/\{(\w+)\}/gu, (found, name: string) => (name in parameters ? String(parameters[name]) : found));
}
