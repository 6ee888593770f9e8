package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"pictor/internal/app"
	"pictor/internal/point"
)

type accountCmd struct {
	Create accountCreateCmd `cmd:"" help:"Make an account."`
	Show   accountShowCmd   `cmd:"" help:"Show an account."`
	List   accountListCmd   `cmd:"" help:"List every account, also the deleted ones, or those that run low."`
	Credit accountCreditCmd `cmd:"" help:"Add Point to an account, or take some back."`
	Usage  accountUsageCmd  `cmd:"" help:"Sum up what an account spent, by task."`
	Ledger accountLedgerCmd `cmd:"" help:"List every movement of an account's Point."`
	Delete accountDeleteCmd `cmd:"" help:"Delete an account. Its keys stay and are answered with 403."`
}

type accountCreateCmd struct {
	app.Connection
	Name    string       `arg:"" help:"Name of the account."`
	Balance point.Amount `default:"0" placeholder:"POINT" help:"Opening balance in Point."`
	VIP     bool         `name:"vip" help:"Mark the account as VIP. It pays the same."`
}

// Help shows how it is used.
func (accountCreateCmd) Help() string { return "Example:\n  pictor account create alice --balance 10" }

// Run makes the account.
func (c *accountCreateCmd) Run(ctx context.Context, log *slog.Logger, out *output) error {
	admin, err := app.OpenAdmin(ctx, c.Connection, log)
	if err != nil {
		return err
	}
	defer admin.Close()
	a, err := admin.DB.CreateAccount(ctx, c.Name, c.Balance, c.VIP)
	return printAccounts(out, a, err, a)
}

func printAccounts(out *output, document any, err error, accounts ...app.Account) error {
	if err != nil {
		return err
	}
	return out.print(document, func(w io.Writer) {
		fmt.Fprintln(w, "NAME\tBALANCE\tVIP\tRUNNING\tKEYS\tCREATED\tDELETED")
		for _, a := range accounts {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", a.Name, a.Balance, yes(a.VIP), a.Running, a.Keys, moment(a.CreatedAt), yes(a.Deleted))
		}
	})
}
