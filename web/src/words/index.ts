/** What the card says, in the languages of the harness. */
import { en } from './en.ts';
import { zh } from './zh.ts';

/** A word or sentence. */
export type Word = keyof typeof en;

/** Says it in the language of the page; `{name}` stands for a parameter. */
export type Translate = (word: Word, parameters?: Readonly<Record<string, unknown>>) => string;

/** Our name space among the dictionaries of the harness. */
export const NAMESPACE = 'gen-limit';

/** A translation is whole, or it does not compile. */
export const DICTIONARIES: Readonly<Record<'en' | 'zh', Readonly<Record<Word, string>>>> = { en, zh };

type Counted = { [W in Word]: W extends `${infer Base}.one` ? (`${Base}.other` extends Word ? Base : never) : never }[Word];

const CARDINAL = new Intl.PluralRules('en');
const ORDINAL = new Intl.PluralRules('en', { type: 'ordinal' });

/** The form of a word for a number of things, with it as `{n}`. */
export function counted(t: Translate, word: Counted, n: number, parameters: Readonly<Record<string, unknown>> = {}): string {
  return t(CARDINAL.select(n) === 'one' ? `${word}.one` : `${word}.other`, { n, ...parameters });
}

/** A place in line: 1st, 2nd. */
export function ordinal(t: Translate, n: number): string {
  return t(`ordinal.${ORDINAL.select(n) as 'one' | 'two' | 'few' | 'other'}`, { n });
}
