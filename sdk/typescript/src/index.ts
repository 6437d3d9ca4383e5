/**
 * Client of AgentDock: jobs and live sandboxes. Messages are those of the
 * service's contract, from which `schema.ts` is generated.
 *
 * @packageDocumentation
 */
import type { Client } from 'openapi-fetch'
import { Jobs } from './jobs.js'
import { Sandboxes } from './sandboxes.js'
import type { paths } from './schema.js'
import { type ClientOptions, Transport, value } from './transport.js'
import type { CallOptions, Schemas } from './types.js'

export { AgentDockError, InterruptedError, isAgentDockError } from './errors.js'
export { Exec, type ExecOutput } from './exec.js'
export { Files } from './files.js'
export { Jobs } from './jobs.js'
export { Sandbox, Sandboxes } from './sandboxes.js'
export type { components, operations, paths } from './schema.js'
export { outputBytes } from './stream.js'
export type { ClientOptions } from './transport.js'
export type { CallOptions, Contents, Schemas } from './types.js'

/** AgentDock calls one service. */
export class AgentDock {
  readonly jobs: Jobs
  readonly sandboxes: Sandboxes
  /** Every call of the contract, typed by it (openapi-fetch): for those without a method here. */
  readonly api: Client<paths>

  constructor(options: ClientOptions) {
    const transport = new Transport(options)
    this.api = transport.api
    this.jobs = new Jobs(transport)
    this.sandboxes = new Sandboxes(transport)
  }

  /** The tenant and the scopes of the key. */
  whoAmI(options: CallOptions = {}): Promise<Schemas['Identity']> {
    return value(this.api.GET('/v1/whoami', options.signal ? { signal: options.signal } : {}))
  }
}

/** Makes a client of the service at a URL such as `http://127.0.0.1:7300`. */
export function createClient(options: ClientOptions): AgentDock {
  return new AgentDock(options)
}
