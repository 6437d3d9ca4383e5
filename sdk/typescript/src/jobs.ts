import { InterruptedError } from './errors.js'
import type { operations } from './schema.js'
import { follow } from './stream.js'
import { type Transport, sending, signal, value } from './transport.js'
import type { CallOptions, Contents, Schemas } from './types.js'

type JobQuery = NonNullable<operations['listJobs']['parameters']['query']>

/** Jobs run to their end by themselves. */
export class Jobs {
  constructor(private readonly transport: Transport) {}

  /**
   * Puts a job on record. The key names the request: the same key brings back the
   * same job, also from another process. Without one, the call makes one of its
   * own, so that it can be repeated when its answer is lost.
   */
  create(spec: Schemas['JobSpec'], options: CallOptions & { idempotencyKey?: string } = {}): Promise<Schemas['Job']> {
    const header = { 'Idempotency-Key': options.idempotencyKey ?? crypto.randomUUID() }
    return value(this.transport.api.POST('/v1/jobs', { params: { header }, body: spec, ...signal(options) }))
  }

  get(id: string, options: CallOptions = {}): Promise<Schemas['Job']> {
    return value(this.transport.api.GET('/v1/jobs/{job_id}', { ...job(id), ...signal(options) }))
  }

  /** Ends a job, now or soon. */
  cancel(id: string, options: CallOptions = {}): Promise<Schemas['Job']> {
    return value(this.transport.api.POST('/v1/jobs/{job_id}/cancel', { ...job(id), ...signal(options), fetch: this.transport.again }))
  }

  /** Goes through jobs, newest first, and fetches pages as it needs them. */
  async *list(query: JobQuery = {}, options: CallOptions = {}): AsyncGenerator<Schemas['Job'], void, undefined> {
    for (let cursor = query.cursor; ; ) {
      const params = { query: { ...query, ...(cursor ? { cursor } : {}) } }
      const page = await value(this.transport.api.GET('/v1/jobs', { params, ...signal(options) }))
      yield* page.jobs
      if (!page.next) return
      cursor = page.next
    }
  }

  /**
   * Goes through what a job's commands write, and as the last event `end`, with
   * how the job ended. `after` is the `seq` of the last output that is known.
   * With `follow: false`, the last event of a job that goes on is `interrupted`.
   *
   * A connection that breaks is taken up where it broke: no output comes twice,
   * none is missed. To stop, leave the loop or abort the signal; the job goes on.
   */
  log(
    id: string,
    { after = 0, follow: following = true, ...options }: CallOptions & { after?: number; follow?: boolean } = {},
  ): AsyncGenerator<Schemas['LogEvent'], void, undefined> {
    const { api, once } = this.transport
    return follow<Schemas['LogEvent']>(this.transport, {
      what: `the log of job ${id}`,
      open: (stop) =>
        value(
          api.GET('/v1/jobs/{job_id}/log', {
            params: { path: { job_id: id }, query: { follow: following }, header: { 'Last-Event-ID': after } },
            headers: { Accept: 'text/event-stream' },
            parseAs: 'stream',
            signal: stop,
            fetch: once,
          }),
        ),
      accept(event) {
        if (!event.output) return true
        if (event.output.seq <= after) return false
        after = event.output.seq
        return true
      },
    }, options)
  }

  /** Waits until a job has ended, and returns it. */
  async wait(id: string, options: CallOptions = {}): Promise<Schemas['Job']> {
    // A log after its end has nothing but the end of the job.
    for await (const event of this.log(id, { ...options, after: Number.MAX_SAFE_INTEGER })) {
      if (event.end) return this.get(id, options)
    }
    throw new InterruptedError(`cannot wait for job ${id}`)
  }

  /** Lists the files a job left. */
  async artifacts(id: string, options: CallOptions = {}): Promise<Schemas['Artifact'][]> {
    const list = await value(this.transport.api.GET('/v1/jobs/{job_id}/artifacts', { ...job(id), ...signal(options) }))
    return list.artifacts
  }

  /** Downloads a file a job left, and checks it against the digest on record. Its contents are hostile. */
  async download(id: string, path: string, options: CallOptions = {}): Promise<Uint8Array> {
    const call = this.transport.api.GET('/v1/jobs/{job_id}/artifacts/content', {
      params: { path: { job_id: id }, query: { path } },
      parseAs: 'arrayBuffer',
      ...signal(options),
    })
    const bytes = new Uint8Array((await value(call)) ?? 0)
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', bytes))
    const got = `sha-256=:${btoa(String.fromCharCode(...digest))}:`
    const want = (await call).response.headers.get('Repr-Digest')
    if (got !== want) throw new Error(`cannot download artifact ${JSON.stringify(path)}: its digest is ${got}, not ${want}`)
    return bytes
  }

  /**
   * The signed statement of what a job did, byte for byte. There is none until
   * soon after the job has ended (`not_found`).
   */
  async receipt(id: string, options: CallOptions = {}): Promise<Uint8Array> {
    const call = this.transport.api.GET('/v1/jobs/{job_id}/receipt', { ...job(id), parseAs: 'arrayBuffer', ...signal(options) })
    return new Uint8Array(await value(call))
  }

  /** Sends a tar for jobs to come, which name it in their source. */
  upload(tar: Contents, options: CallOptions = {}): Promise<Schemas['Upload']> {
    return value(this.transport.api.POST('/v1/uploads', { ...sending(tar, 'application/x-tar'), ...signal(options) }))
  }
}

function job(id: string) {
  return { params: { path: { job_id: id } } } as const
}
