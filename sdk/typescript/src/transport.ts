import createFetchClient, { type Client, type Middleware } from 'openapi-fetch'
import { passing, problem } from './errors.js'
import type { paths } from './schema.js'
import type { CallOptions, Contents } from './types.js'

/** Options of a client. */
export interface ClientOptions {
  /** Where the service is, such as `http://127.0.0.1:7300`. */
  baseUrl: string
  /** Sent with every request, to this service only. */
  apiKey?: string | undefined
  /** How often a call that can be repeated is tried; 5 if left out. */
  attempts?: number | undefined
  /** How long a stream may be without any sign of life before it is opened again; a minute if left out. */
  silenceMs?: number | undefined
  /** Allows a key to go over a network without encryption, where something else protects it. */
  plainHttp?: boolean | undefined
  /** Sends requests; the global `fetch` if left out. */
  fetch?: ((request: Request) => Promise<Response>) | undefined
}

const firstWaitMs = 200
const longestWaitMs = 10_000

/** Transport sends calls, and repeats those that can be repeated without harm. */
export class Transport {
  readonly api: Client<paths>
  readonly attempts: number
  readonly silenceMs: number
  private readonly send: (request: Request) => Promise<Response>

  constructor(options: ClientOptions) {
    const base = new URL(options.baseUrl)
    if (options.apiKey && base.protocol === 'http:' && !options.plainHttp && !isLoopback(base.hostname)) {
      throw new TypeError(`cannot send an API key to ${base.host} without encryption; use https, or plainHttp where something else protects it`)
    }
    this.attempts = Math.max(1, options.attempts ?? 5)
    this.silenceMs = options.silenceMs ?? 60_000
    this.send = options.fetch ?? ((request) => fetch(request))
    this.api = createFetchClient<paths>({
      baseUrl: options.baseUrl,
      // The service sends nobody elsewhere, and the key must not follow who does.
      redirect: 'error',
      headers: options.apiKey ? { Authorization: `Bearer ${options.apiKey}` } : {},
      fetch: (request) => (isRepeatable(request) ? this.repeat(request) : this.send(request)),
    })
    this.api.use(idsAreNames)
  }

  /** again is a `fetch` for calls of which a second one changes nothing. */
  readonly again = (request: Request): Promise<Response> => this.repeat(request)

  /** once is a `fetch` for calls that must not be repeated here. */
  readonly once = (request: Request): Promise<Response> => this.send(request)

  private async repeat(request: Request): Promise<Response> {
    for (let attempt = 1; ; attempt++) {
      const last = attempt >= this.attempts
      let cause: unknown
      try {
        const response = await this.send(last ? request : request.clone())
        if (response.ok || last) return response
        cause = problem(response, await peek(response))
        if (!passing(cause)) return response
        await response.body?.cancel()
      } catch (error) {
        if (last || request.signal.aborted) throw error
        cause = error
      }
      await this.pause(attempt, cause, request.signal)
    }
  }

  /** pause waits before the next attempt: as long as the service said, or for a time that differs between callers. */
  async pause(attempt: number, cause: unknown, signal: AbortSignal | undefined): Promise<void> {
    const most = Math.min(firstWaitMs * 2 ** (attempt - 1), longestWaitMs)
    const told = (cause as { retryAfterMs?: number } | undefined)?.retryAfterMs
    await sleep(told || most / 2 + (Math.random() * most) / 2, signal)
  }
}

/** value is what a call returned, or throws what it failed with. */
export async function value<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await call
  if (!response.ok) throw problem(response, error)
  return data as T
}

/** sending are the settings of openapi-fetch for contents that are sent as they are. */
export function sending(contents: Contents, type: string) {
  return {
    body: contents,
    bodySerializer: (all: unknown) => all,
    headers: { 'Content-Type': type },
    // A stream is sent while the answer is awaited; fetch wants to be told.
    ...(contents instanceof ReadableStream ? { duplex: 'half' } : {}),
  } as const
}

/** signal passes a signal on, if there is one. */
export function signal(options: CallOptions): { signal?: AbortSignal } {
  return options.signal ? { signal: options.signal } : {}
}

// An id is one name of a path. Of those that a URL would take for something else,
// encoding makes all harmless but these.
const idsAreNames: Middleware = {
  onRequest({ params }) {
    for (const [name, id] of Object.entries(params.path ?? {})) {
      if (id === '' || id === '.' || id === '..') throw new TypeError(`cannot use ${JSON.stringify(id)} as ${name}`)
    }
    return undefined
  },
}

function isRepeatable(request: Request): boolean {
  return request.method === 'GET' || request.headers.has('Idempotency-Key')
}

async function peek(response: Response): Promise<unknown> {
  try {
    return await response.clone().json()
  } catch {
    return undefined
  }
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '[::1]' || /^127(\.\d{1,3}){3}$/.test(host)
}

function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted()
    const end = () => {
      clearTimeout(timer)
      reject(signal?.reason)
    }
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', end)
      resolve()
    }, ms)
    signal?.addEventListener('abort', end, { once: true })
  })
}
