// Package hostile attacks a real execution service with programs that really
// try, in named families, and looks afterwards whether the host, a bystander
// and the service are as they were.
//
// Each case is one line of a table: what the program (tests/hostile/attack)
// does and how it must end. Many lines name a control: the same program with
// the same arguments, run where nothing protects (the host itself, in
// namespaces or a control group that are thrown away), must get through there.
// That is what makes a blocked attempt mean something. The boundary has no
// switch that weakens it.
//
// TestHostile runs the cases, TestControls the controls, and the table in
// SECURITY.md is made from the same lines.
package hostile
