package main

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentdock/agentdock/client"
	"github.com/agentdock/agentdock/internal/fault"
	"github.com/agentdock/agentdock/internal/receipt"
)

func newJobsReceipt() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "receipt ID",
		Short: "Fetch the signed statement of what a job did",
		Long: `Fetch the signed statement of what a job did, byte for byte: a DSSE envelope with an
in-toto statement. It is there soon after the job has ended; this waits for it.`,
		Example: `  agentdock jobs receipt 019b… --out receipt.json
  agentdock receipt verify receipt.json --key keys.pem`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, args []string) error {
			text, err := awaitReceipt(cmd, c, args[0])
			if err != nil {
				return fmt.Errorf("cannot fetch the receipt: %w", err)
			}
			if out == "" {
				_, err = cmd.OutOrStdout().Write(text)
				return err
			}
			return os.WriteFile(out, text, 0o644)
		}),
	}
	cmd.Flags().StringVar(&out, "out", "", "write it to this `file`")
	return cmd
}

// receiptFor is how long a job that has ended may be without a receipt.
const receiptFor = 30 * time.Second

func awaitReceipt(cmd *cobra.Command, c *client.Client, id string) ([]byte, error) {
	for deadline := time.Now().Add(receiptFor); ; {
		text, err := c.Receipt(cmd.Context(), id)
		if err == nil || !client.Is(err, "not_found") {
			return text, err
		}
		job, jobErr := c.Job(cmd.Context(), id)
		if jobErr != nil {
			return nil, jobErr
		}
		if job.Outcome == nil {
			return nil, fault.New(fault.NotFound, "the job is %s; there is a receipt when it has ended", job.State)
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("%w; a worker signs it, so look whether one runs", err)
		}
		select {
		case <-cmd.Context().Done():
			return nil, cmd.Context().Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func newReceipt() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "receipt",
		Short: "Verify signed statements of what jobs did",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newReceiptVerify(), newReceiptKeys())
	return cmd
}

func newReceiptVerify() *cobra.Command {
	var keyFile string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Say whether a receipt was signed by a key you trust, and what it states",
		Long: `Say whether a receipt was signed by a key you trust, and what it states. It asks
nobody: the keys are in a file of yours, one or more PEM blocks. FILE - is standard
input. Exit status 1 if it does not verify.`,
		Example: `  agentdock receipt keys > keys.pem       # once, over a connection you trust
  agentdock receipt verify receipt.json --key keys.pem`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := readKeys(keyFile)
			if err != nil {
				return err
			}
			text, err := readReceipt(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			v, err := receipt.Verify(text, keys)
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "agentdock: the receipt does not verify: %v\n", err)
				return exitStatus(1)
			}
			return showReceipt(cmd, v, asJSON)
		},
	}
	cmd.Flags().StringVar(&keyFile, "key", "", "`file` with the public keys you trust (PEM)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the statement as JSON")
	return cmd
}

func readKeys(path string) ([]ed25519.PublicKey, error) {
	if path == "" {
		return nil, fault.New(fault.Invalid, "--key is missing: name a file with the public keys you trust; agentdock receipt keys prints the server's")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the keys: %w", err)
	}
	return receipt.ParsePublicKeys(data)
}

// mostReceipt bounds what is read as a receipt.
const mostReceipt = 64 << 20

func readReceipt(stdin io.Reader, path string) ([]byte, error) {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("cannot read the receipt: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := readAtMost(in, mostReceipt)
	if err != nil {
		return nil, fmt.Errorf("cannot read the receipt: %w", err)
	}
	return data, nil
}

func showReceipt(cmd *cobra.Command, v receipt.Verified, asJSON bool) error {
	if asJSON {
		return writeJSON(cmd.OutOrStdout(), v.Statement)
	}
	p := v.Statement.Predicate
	facts := [][]string{
		{"signed by", v.KeyID}, {"job", p.Job.ID}, {"state", string(p.State)},
		{"image", p.Resolved.ImageDigest}, {"commit", p.Resolved.Commit}, {"archive", p.Resolved.ArchiveDigest},
		{"environment", p.Resolved.Environment + ", isolation " + p.Resolved.Isolation},
	}
	if exit := p.Outcome.ExitCode; exit != nil {
		facts = append(facts, []string{"outcome", fmt.Sprintf("%s %d", p.Outcome.Kind, *exit)})
	} else {
		facts = append(facts, []string{"outcome", string(p.Outcome.Kind)})
	}
	for _, s := range v.Statement.Subject {
		facts = append(facts, []string{s.Name, "sha256:" + s.Digest["sha256"]})
	}
	return writeTable(cmd.OutOrStdout(), []string{"VERIFIED", ""}, facts)
}

func newReceiptKeys() *cobra.Command {
	return &cobra.Command{
		Use:   "keys",
		Short: "Print the public keys that the server signs receipts with",
		Long: `Print the public keys that the server signs receipts with, as PEM. A key that comes
along with what it verifies proves nothing: fetch them once, over a connection you
trust, and keep them.`,
		Example: `  agentdock receipt keys > keys.pem`,
		Args:    cobra.NoArgs,
		RunE: withClient(func(cmd *cobra.Command, c *client.Client, _ []string) error {
			keys, err := c.ReceiptKeys(cmd.Context())
			if err != nil {
				return fmt.Errorf("cannot fetch the keys: %w", err)
			}
			for _, k := range keys {
				fmt.Fprint(cmd.OutOrStdout(), k.PublicKey)
			}
			return nil
		}),
	}
}
