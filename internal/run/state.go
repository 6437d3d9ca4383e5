package run

import "slices"

// State is where a job stands.
type State string

const (
	// Queued: on record, waiting for a worker.
	Queued State = "queued"
	// Starting: a worker has it; no command of this attempt has started.
	Starting State = "starting"
	// Running: a command may have started.
	Running State = "running"
	// Succeeded: every command exited with 0.
	Succeeded State = "succeeded"
	// Failed: it ended in any other way; the Outcome says in which.
	Failed State = "failed"
	// StateCancelled: a caller ended it.
	StateCancelled State = "cancelled"
)

// States lists every state in the order a job can pass through them.
func States() []State {
	return []State{Queued, Starting, Running, Succeeded, Failed, StateCancelled}
}

// Move is one edge of the table of states.
type Move struct {
	From, To State
	// When says what makes the move, for docs/run-states.md.
	When string
}

// Moves is the table of states. Stores refuse every move that is not in it.
func Moves() []Move {
	return []Move{
		{Queued, Starting, "a worker claims the job"},
		{Queued, Failed, "it can never run: its policy or limits are refused"},
		{Queued, StateCancelled, "a caller cancels it; nothing ran"},
		{Starting, Running, "the sandbox exists and has the files; the first command is about to start"},
		{Starting, Queued, "its worker or sandbox is lost before a command started"},
		{Starting, Failed, "the files, the sandbox or the image cannot be had"},
		{Starting, StateCancelled, "a caller cancels it; no command ran"},
		{Running, Succeeded, "every command exited with 0"},
		{Running, Failed, "a command failed, a limit ended it, or its sandbox was lost"},
		{Running, StateCancelled, "a caller cancels it and its command was ended for that"},
		{Running, Queued, "its sandbox is lost and it has attempts left"},
	}
}

// Terminal reports whether a job in this state has ended. Nothing leaves a
// terminal state.
func (s State) Terminal() bool {
	return s == Succeeded || s == Failed || s == StateCancelled
}

// Active reports whether a worker has a job in this state.
func (s State) Active() bool { return s == Starting || s == Running }

// CanMove reports whether a job may go from s to to.
func (s State) CanMove(to State) bool {
	return slices.ContainsFunc(Moves(), func(m Move) bool { return m.From == s && m.To == to })
}
