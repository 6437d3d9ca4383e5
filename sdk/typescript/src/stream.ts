import { EventSourceParserStream } from 'eventsource-parser/stream'
import { AgentDockError, InterruptedError, passing } from './errors.js'
import type { Transport } from './transport.js'
import type { CallOptions, Schemas } from './types.js'

/** What events of all streams have in common. */
interface StreamEvent {
  type: string
  end?: unknown
  interrupted?: Schemas['LogInterrupted']
}

/** A stream that can be taken up where it broke. */
export interface Resumable<E extends StreamEvent> {
  /** For people: what is followed. */
  what: string
  /** Opens the stream at the place that is reached. */
  open(signal: AbortSignal): Promise<ReadableStream<Uint8Array> | null>
  /** Notes the place after an event, and says whether the event is new. */
  accept(event: E): boolean
}

/** The longest event; the service sends pieces that are far smaller. */
const maxEvent = 16 << 20

/**
 * follow goes through a stream to its last word, over connections that break. It
 * ends without one by throwing only.
 */
export async function* follow<E extends StreamEvent>(
  transport: Transport,
  source: Resumable<E>,
  { signal }: CallOptions = {},
): AsyncGenerator<E, void, undefined> {
  for (let failures = 0; ; ) {
    let cause: unknown
    try {
      for await (const event of connection(transport, source, signal)) {
        if (event.interrupted && event.interrupted.reason !== 'not_following') {
          cause = interruption(event.interrupted.reason)
          break
        }
        if (!source.accept(event)) continue
        failures = 0
        yield event
        if (event.end !== undefined || event.interrupted) return
      }
      cause ??= new Error('the stream was cut') // it had no last word
    } catch (error) {
      cause = error
    }
    signal?.throwIfAborted()
    if (!passing(cause)) throw cause
    if (++failures >= transport.attempts) {
      throw new InterruptedError(`cannot follow ${source.what}`, { cause })
    }
    await transport.pause(failures, cause, signal)
  }
}

/** connection goes through the events of one connection, and closes it however that ends. */
async function* connection<E extends StreamEvent>(
  transport: Transport,
  source: Resumable<E>,
  signal: AbortSignal | undefined,
): AsyncGenerator<E, void, undefined> {
  const silence = new Silence(transport.silenceMs)
  try {
    const body = await source.open(signal ? AbortSignal.any([signal, silence.signal]) : silence.signal)
    if (!body) return
    const events = body
      .pipeThrough(silence.watch())
      .pipeThrough(new TextDecoderStream() as TransformStream<Uint8Array, string>)
      .pipeThrough(new EventSourceParserStream({ onError: 'terminate', maxBufferSize: maxEvent }))
    for await (const message of events) {
      silence.hold() // the caller may take its time
      yield JSON.parse(message.data) as E
      silence.begin()
    }
  } finally {
    silence.hold()
  }
}

/** Silence ends a connection that has shown no sign of life for too long. */
class Silence {
  private readonly controller = new AbortController()
  private timer: ReturnType<typeof setTimeout> | undefined
  private held = false

  constructor(private readonly ms: number) {
    this.begin()
  }

  get signal(): AbortSignal {
    return this.controller.signal
  }

  begin(): void {
    this.held = false
    this.restart()
  }

  hold(): void {
    this.held = true
    clearTimeout(this.timer)
  }

  /** watch takes every byte for a sign of life, heartbeats included. */
  watch(): TransformStream<Uint8Array, Uint8Array> {
    return new TransformStream({
      transform: (bytes, out) => {
        this.restart()
        out.enqueue(bytes)
      },
    })
  }

  private restart(): void {
    clearTimeout(this.timer)
    if (this.held) return
    this.timer = setTimeout(() => this.controller.abort(new Error(`nothing came for ${this.ms} ms`)), this.ms)
  }
}

/** interruption says whether a stream that the service ended can be opened again. */
function interruption(reason: Schemas['LogInterrupted']['reason']): Error {
  if (reason === 'access_ended') {
    return new AgentDockError(401, 'unauthenticated', 'the API key is not valid any more', undefined, undefined)
  }
  return new Error(`the service ended the stream: ${reason}`)
}

/** The bytes of a piece of output, which are in `text` or in `base64`. */
export function outputBytes(output: { text?: string; base64?: string }): Uint8Array {
  if (output.base64) return Uint8Array.from(atob(output.base64), (c) => c.charCodeAt(0))
  return new TextEncoder().encode(output.text ?? '')
}
