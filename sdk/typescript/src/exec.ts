import { InterruptedError } from './errors.js'
import { follow, outputBytes } from './stream.js'
import { type Transport, sending, signal, value } from './transport.js'
import type { CallOptions, Contents, Schemas } from './types.js'

/** How a command ended, with what it wrote. */
export type ExecOutput = Schemas['ExecResult'] & { stdout: string; stderr: string }

/** A command of a live sandbox. */
export class Exec {
  constructor(
    private readonly transport: Transport,
    private readonly sandboxId: string,
    readonly id: string,
  ) {}

  /** The command as it stands. */
  info(options: CallOptions = {}): Promise<Schemas['Exec']> {
    return value(this.transport.api.GET('/v1/sandboxes/{sandbox_id}/execs/{exec_id}', { ...this.place, ...signal(options) }))
  }

  /**
   * Goes through what the command writes, from an offset on, and as the last event
   * `end`, with how it ended. A connection that breaks is taken up where it broke.
   * Leaving the loop ends nothing: see kill.
   */
  follow(options: CallOptions & { from?: number } = {}): AsyncGenerator<Schemas['ExecEvent'], void, undefined> {
    return followExec(this.transport, this.sandboxId, this.id, options)
  }

  /** Waits for the end, and returns it with all that is kept of the output. */
  output(options: CallOptions = {}): Promise<ExecOutput> {
    return collect(this.follow(options))
  }

  /** Kills the command and everything it started. */
  async kill(options: CallOptions = {}): Promise<void> {
    await value(this.transport.api.DELETE('/v1/sandboxes/{sandbox_id}/execs/{exec_id}', { ...this.place, ...signal(options), fetch: this.transport.again }))
  }

  /** Sends a signal, such as `SIGINT`, to the command's first process. */
  async signal(name: string, options: CallOptions = {}): Promise<void> {
    await value(this.transport.api.POST('/v1/sandboxes/{sandbox_id}/execs/{exec_id}/signal', { ...this.place, body: { signal: name }, ...signal(options) }))
  }

  /** Changes the size of the command's terminal. */
  async resize(size: Schemas['TerminalSize'], options: CallOptions = {}): Promise<void> {
    await value(
      this.transport.api.POST('/v1/sandboxes/{sandbox_id}/execs/{exec_id}/resize', { ...this.place, body: size, ...signal(options), fetch: this.transport.again }),
    )
  }

  /** Writes to a command that was started with `stdin`, and closes its input afterwards if that is wanted. */
  async write(contents: Contents, options: CallOptions & { close?: boolean } = {}): Promise<void> {
    await value(
      this.transport.api.POST('/v1/sandboxes/{sandbox_id}/execs/{exec_id}/stdin', {
        params: { ...this.place.params, query: { close: options.close ?? false } },
        ...sending(contents, 'application/octet-stream'),
        ...signal(options),
      }),
    )
  }

  private get place() {
    return { params: { path: { sandbox_id: this.sandboxId, exec_id: this.id } } } as const
  }
}

/** named gives a command an id, by which it can be started again without running twice. */
export function named(spec: Schemas['ExecSpec']): Schemas['ExecSpec'] & { id: string } {
  return { ...spec, id: spec.id || `c-${crypto.randomUUID()}` }
}

/** followExec follows a command, after starting it if `run` says what to start. */
export function followExec(
  transport: Transport,
  sandboxId: string,
  execId: string,
  { from = 0, run, ...options }: CallOptions & { from?: number; run?: Schemas['ExecSpec'] },
): AsyncGenerator<Schemas['ExecEvent'], void, undefined> {
  const common = { headers: { Accept: 'text/event-stream' }, parseAs: 'stream', fetch: transport.once } as const
  const path = { sandbox_id: sandboxId, exec_id: execId }
  return follow<Schemas['ExecEvent']>(transport, {
    what: `command ${execId} of sandbox ${sandboxId}`,
    open: (stop) =>
      run
        ? value(transport.api.POST('/v1/sandboxes/{sandbox_id}/run', { params: { path }, body: run, signal: stop, ...common }))
        : value(
            transport.api.GET('/v1/sandboxes/{sandbox_id}/execs/{exec_id}/output', {
              params: { path, header: { 'Last-Event-ID': from } },
              signal: stop,
              ...common,
            }),
          ),
    accept(event) {
      if (event.started) run = undefined
      if (!event.output) return true
      if (event.output.next <= from) return false
      from = event.output.next
      return true
    },
  }, options)
}

/** collect keeps what a command writes, which the service bounds, until it has ended. */
export async function collect(events: AsyncIterable<Schemas['ExecEvent']>): Promise<ExecOutput> {
  // Characters may be cut between two pieces, and the streams take turns.
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() }
  const text = { stdout: '', stderr: '' }
  for await (const { output, end } of events) {
    if (output) text[output.stream] += decoders[output.stream].decode(outputBytes(output), { stream: true })
    if (end) {
      return { ...end, stdout: text.stdout + decoders.stdout.decode(), stderr: text.stderr + decoders.stderr.decode() }
    }
  }
  throw new InterruptedError('cannot follow the command to its end')
}
