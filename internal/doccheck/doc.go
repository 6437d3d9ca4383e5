// Package doccheck holds no code, only tests: they compare the module's
// documents with the module. A link leads somewhere; a file, package, symbol,
// test, make target, flag or variable that a document names exists; tables of
// outcomes, limits and settings say what the code says; and an error that
// "Troubleshooting" explains is one that the code can return.
//
// What is looked at is what stands between backticks, outside code blocks. A
// word there that looks like none of these things is left alone.
package doccheck
