/**
 * Who may ask: decided before a request is read, and before the component knows of it.
 *
 * The harness lets an exact route of a plugin pass its own fence and login, so this is the only one there is. It holds off
 * three kinds of strangers: other machines (the peer), pages whose name was pointed at this machine (the Host), and pages of
 * other origins in a browser of this machine (`Sec-Fetch-Site`, `Origin`). Where the harness has a login, that has to be passed
 * as well. Programs that have none bring the [token](token.ts) instead: it stands in for login and Origin, never for a
 * loopback peer and Host, so a token that has leaked is of no use from elsewhere.
 *
 * `same-site` is refused like `cross-site`: ports make no site, so it may be any page of any server on this machine.
 *
 * What is said to whom is refused depends on nothing but the request. A proxy on this machine is a loopback peer.
 */
import { isIPv4 } from 'node:net';

/** What is looked at of a request. */
export interface Facts {
  /** The address of the other end. */
  readonly peer: string | undefined;
  /** Whether the connection is TLS. */
  readonly encrypted: boolean;
  /** Every value of each header, names in lower case. */
  readonly headers: Readonly<Record<string, readonly string[] | undefined>>;
}

/** What else may let a request in. */
export interface Keys {
  /** Whether this is the token. */
  readonly isToken: (token: string) => boolean;
  /** What the harness's own login says. */
  readonly login: () => 401 | 403 | undefined;
}

/** Why a request is refused. */
export interface Refused {
  readonly status: 401 | 403;
  readonly error: string;
}

/** Why a request may not come in; undefined if it may. */
export function fence({ peer, encrypted, headers }: Facts, { isToken, login }: Keys): Refused | undefined {
  if (!isLoopback(peer)) return forbidden('only this machine is answered');
  const host = only(headers['host']);
  if (host === undefined || !isLoopbackHost(host)) {
    return forbidden('the Host header names no loopback address; ask through localhost, 127.0.0.1 or [::1]');
  }
  if (headers['sec-fetch-site']?.some((site) => site !== 'same-origin' && site !== 'none')) {
    return forbidden('a page of another origin is not answered');
  }
  const token = bearer(headers['authorization']);
  if (token !== undefined) {
    return isToken(token) ? undefined : { status: 401, error: 'this is not the token that $DSH_HOME/gen-limit/token has now' };
  }
  const origin = headers['origin'];
  if (origin !== undefined && !isOrigin(only(origin), `${encrypted ? 'https' : 'http'}://${host}`)) {
    return forbidden('a page of another origin is not answered');
  }
  switch (login()) {
    case undefined:
      return undefined;
    case 401:
      return { status: 401, error: 'log in by the address that dsh prints, or bring the token in $DSH_HOME/gen-limit/token as a bearer' };
    case 403:
      return forbidden('the harness does not let this request in');
  }
}

function forbidden(error: string): Refused {
  return { status: 403, error };
}

/** The value of a header that must not be there twice. */
function only(values: readonly string[] | undefined): string | undefined {
  return values?.length === 1 ? values[0] : undefined;
}

function isLoopback(address: string | undefined): boolean {
  return address !== undefined && (address === '::1' || isLoopbackIPv4(address.replace(/^::ffff:/iu, '')));
}

function isLoopbackIPv4(address: string): boolean {
  return isIPv4(address) && address.startsWith('127.');
}

/** Taken literally: what a URL parser would make a loopback address of is not one. */
function isLoopbackHost(host: string): boolean {
  const [, name, port = '0'] = /^(\[::1\]|[^:[\]]+)(?::(\d{1,5}))?$/u.exec(host) ?? [];
  if (name === undefined || Number(port) > 65_535) return false;
  return name === '[::1]' || name.toLowerCase() === 'localhost' || isLoopbackIPv4(name);
}

/** Whether an Origin is this one, however either writes the port that goes without saying. */
function isOrigin(origin: string | undefined, own: string): boolean {
  return origin !== undefined && URL.canParse(origin) && new URL(origin).href === new URL(own).href;
}

/** What is presented as a bearer's token; another scheme is meant for somebody else, and of two neither can be right. */
function bearer(values: readonly string[] = []): string | undefined {
  const tokens = values.filter((value) => /^bearer(?!\S)/iu.test(value)).map((value) => value.slice('bearer'.length).trim());
  return tokens.length > 1 ? '' : tokens[0];
}
