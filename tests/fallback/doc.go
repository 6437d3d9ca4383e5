// Package fallback shows when the development fallback runs, and that it is
// refused everywhere else: by each process alone, with real programs.
package fallback
