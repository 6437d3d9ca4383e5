package execenv

// maxAlternatives bounds the ways in which the braces of a pattern can be read
// together: matching tries them all, on the host too, so that twenty pairs of
// braces would keep a processor busy for hours.
const maxAlternatives = 256

// wellFormed reports whether every class and brace of a glob is closed and not
// empty, as what matches it later wants (guest.Pack, artifact.Collect); there, a
// malformed one would match nothing in silence.
func wellFormed(p string) bool {
	open, ways, alternatives := 0, 1, []int{}
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '\\':
			if i++; i >= len(p) {
				return false
			}
		case '[':
			end := classEnd(p, i+1)
			if end < 0 {
				return false
			}
			i = end
		case '{':
			open++
			alternatives = append(alternatives, 1)
		case ',':
			if open > 0 {
				alternatives[open-1]++
			}
		case '}':
			if open == 0 {
				return false
			}
			open--
			// Nested ones are counted as if they stood side by side: too high,
			// never too low.
			if ways *= alternatives[open]; ways > maxAlternatives {
				return false
			}
			alternatives = alternatives[:open]
		}
	}
	return open == 0
}

// classEnd is where the class that begins before i ends, or -1.
func classEnd(p string, i int) int {
	if i < len(p) && (p[i] == '^' || p[i] == '!') {
		i++
	}
	if i >= len(p) || p[i] == ']' {
		return -1
	}
	for ; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case ']':
			return i
		}
	}
	return -1
}
