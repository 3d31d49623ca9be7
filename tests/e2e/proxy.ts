/** An HTTP proxy behind which every host is the same server. */
import { once } from 'node:events';
import { createServer, request, type Server } from 'node:http';
import { connect, type AddressInfo } from 'node:net';

export class Proxy {
  /** The hosts it was asked for, in order. */
  readonly hosts: string[] = [];
  readonly #server: Server;

  private constructor(origin: string) {
    const { hostname, port } = new URL(origin);
    // Clients either name the whole URL or have a tunnel opened.
    this.#server = createServer((inward, answer) => {
      const { host, pathname: path } = new URL(inward.url ?? '');
      this.hosts.push(host);
      const outward = request({ hostname, port, path, method: inward.method, headers: inward.headers }, (response) => {
        answer.writeHead(response.statusCode ?? 502, response.headers);
        response.pipe(answer);
      });
      outward.once('error', () => answer.destroy());
      answer.once('close', () => outward.destroy());
      inward.pipe(outward);
    });
    this.#server.on('connect', ({ url = '' }, client) => {
      this.hosts.push(url.replace(/:80$/, ''));
      const server = connect(Number(port), hostname, () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n');
        client.pipe(server).pipe(client);
      });
      client.on('error', () => undefined).once('close', () => server.destroy());
      server.on('error', () => undefined).once('close', () => client.destroy());
    });
  }

  /** Listens on a free port of the loopback. */
  static async start(origin: string): Promise<Proxy> {
    const proxy = new Proxy(origin);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  /** What makes a process use it. */
  get env(): NodeJS.ProcessEnv {
    const url = `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
    return { HTTP_PROXY: url, http_proxy: url, NO_PROXY: '', no_proxy: '', NODE_USE_ENV_PROXY: '1' };
  }

  /** Cuts what is open and stops listening. */
  async close(): Promise<void> {
    this.#server.close();
    this.#server.closeAllConnections();
    await once(this.#server, 'close');
  }
}
