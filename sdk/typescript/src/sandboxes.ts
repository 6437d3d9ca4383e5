import { collect, Exec, type ExecOutput, followExec, named } from './exec.js'
import { Files } from './files.js'
import type { operations } from './schema.js'
import { type Transport, signal, value } from './transport.js'
import type { CallOptions, Schemas } from './types.js'

type SandboxQuery = NonNullable<operations['listSandboxes']['parameters']['query']>

/** Live sandboxes are driven call by call, until they are killed or their time is over. */
export class Sandboxes {
  constructor(private readonly transport: Transport) {}

  /**
   * Makes a sandbox, in which commands can run when this returns. The key names
   * the request, as for jobs: the same key brings back the same sandbox.
   */
  async create(spec: Schemas['SandboxSpec'] = {}, options: CallOptions & { idempotencyKey?: string } = {}): Promise<Sandbox> {
    const header = { 'Idempotency-Key': options.idempotencyKey ?? crypto.randomUUID() }
    const box = await value(this.transport.api.POST('/v1/sandboxes', { params: { header }, body: spec, ...signal(options) }))
    return this.open(box.id)
  }

  /** A sandbox that exists, by its id. Asks nothing. */
  open(id: string): Sandbox {
    return new Sandbox(this.transport, id)
  }

  /** Goes through sandboxes, newest first, and fetches pages as it needs them. */
  async *list(query: SandboxQuery = {}, options: CallOptions = {}): AsyncGenerator<Schemas['Sandbox'], void, undefined> {
    for (let cursor = query.cursor; ; ) {
      const params = { query: { ...query, ...(cursor ? { cursor } : {}) } }
      const page = await value(this.transport.api.GET('/v1/sandboxes', { params, ...signal(options) }))
      yield* page.sandboxes
      if (!page.next) return
      cursor = page.next
    }
  }
}

/** A live sandbox. With `await using` it is killed at the end of the block. */
export class Sandbox implements AsyncDisposable {
  readonly files: Files

  constructor(
    private readonly transport: Transport,
    readonly id: string,
  ) {
    this.files = new Files(transport, id)
  }

  /** The sandbox as it stands. */
  info(options: CallOptions = {}): Promise<Schemas['Sandbox']> {
    return value(this.transport.api.GET('/v1/sandboxes/{sandbox_id}', { ...this.place, ...signal(options) }))
  }

  /** Makes its time end so long from now; with `atLeast`, never sooner than before. */
  extend(ttlMs: number, options: CallOptions & { atLeast?: boolean } = {}): Promise<Schemas['Sandbox']> {
    const body = { ttl_ms: ttlMs, at_least: options.atLeast ?? false }
    return value(this.transport.api.POST('/v1/sandboxes/{sandbox_id}/extend', { ...this.place, body, ...signal(options), fetch: this.transport.again }))
  }

  /** Ends it and everything in it. */
  kill(options: CallOptions = {}): Promise<Schemas['Sandbox']> {
    return value(this.transport.api.DELETE('/v1/sandboxes/{sandbox_id}', { ...this.place, ...signal(options), fetch: this.transport.again }))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill()
  }

  /** What it has used, over time. */
  metrics(options: CallOptions = {}): Promise<Schemas['SandboxMetrics']> {
    return value(this.transport.api.GET('/v1/sandboxes/{sandbox_id}/metrics', { ...this.place, ...signal(options) }))
  }

  /**
   * Runs a command and goes through what it writes: `started` with its id, then
   * `output`, and as the last event `end`, with how it ended. A connection that
   * breaks is taken up where it broke, and the command runs once. Leaving the loop
   * ends nothing: the command goes on, see exec.
   */
  stream(spec: Schemas['ExecSpec'], options: CallOptions = {}): AsyncGenerator<Schemas['ExecEvent'], void, undefined> {
    const run = named(spec)
    return followExec(this.transport, this.id, run.id, { ...options, run })
  }

  /** Runs a command to its end. That the program fails is no error: it is in `outcome`. */
  run(spec: Schemas['ExecSpec'], options: CallOptions = {}): Promise<ExecOutput> {
    return collect(this.stream(spec, options))
  }

  /** Starts a command in the background. With the id of one that was started, nothing is started. */
  async start(spec: Schemas['ExecSpec'], options: CallOptions = {}): Promise<Exec> {
    const started = await value(
      this.transport.api.POST('/v1/sandboxes/{sandbox_id}/execs', { ...this.place, body: named(spec), ...signal(options), fetch: this.transport.again }),
    )
    return this.exec(started.id)
  }

  /** A command that was started, by its id. Asks nothing. */
  exec(id: string): Exec {
    return new Exec(this.transport, this.id, id)
  }

  /** The commands that run and those that ended last, oldest first. */
  async execs(options: CallOptions = {}): Promise<Schemas['Exec'][]> {
    return (await value(this.transport.api.GET('/v1/sandboxes/{sandbox_id}/execs', { ...this.place, ...signal(options) }))).execs
  }

  private get place() {
    return { params: { path: { sandbox_id: this.id } } } as const
  }
}
