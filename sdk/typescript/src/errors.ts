import type { Schemas } from './types.js'

/** What the service answered instead of what was asked for (RFC 9457). */
export class AgentDockError extends Error {
  override readonly name = 'AgentDockError'

  constructor(
    /** The HTTP status. */
    readonly status: number,
    /** Stable; undefined if the answer came from a proxy and not from the service. */
    readonly code: Schemas['ProblemCode'] | undefined,
    /** What went wrong and what to do about it. */
    readonly detail: string,
    /** Names this request in the service's log. */
    readonly requestId: string | undefined,
    /** When to come back, if the service said so. */
    readonly retryAfterMs: number | undefined,
  ) {
    super(requestId === undefined ? `${detail} (${status})` : `${detail} (${code}, request ${requestId})`)
  }
}

/**
 * A stream or a download was cut and could not be taken up again. It says nothing
 * about the job or the command.
 */
export class InterruptedError extends Error {
  override readonly name = 'InterruptedError'
}

/** Whether an error is one of the service, with that code if one is given. */
export function isAgentDockError(error: unknown, code?: Schemas['ProblemCode']): error is AgentDockError {
  return error instanceof AgentDockError && (code === undefined || error.code === code)
}

/** problem reads what openapi-fetch found in an answer that is no success. */
export function problem(response: Response, body: unknown): AgentDockError {
  const said = isProblem(body) ? body : undefined
  const seconds = Number(response.headers.get('Retry-After') ?? NaN)
  return new AgentDockError(
    response.status,
    said?.code,
    said?.detail || said?.title || response.statusText || 'no answer of the service',
    said?.request_id,
    Number.isFinite(seconds) && seconds >= 0 ? seconds * 1000 : undefined,
  )
}

function isProblem(body: unknown): body is Schemas['Problem'] {
  return typeof body === 'object' && body !== null && 'code' in body && 'detail' in body
}

/** passing says whether the same request may succeed later. */
export function passing(error: unknown): boolean {
  if (!(error instanceof AgentDockError)) return true
  // A quota (exhausted) does not free itself; a rate does.
  return [502, 503, 504].includes(error.status) || error.code === 'rate_limited'
}
