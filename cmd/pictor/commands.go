package main

import "pictor/internal/app"

// commands is the command line.
type commands struct {
	JSON bool `name:"json" help:"Print one JSON document on stdout, and nothing else there."`
	app.Log

	Dev     devCmd     `cmd:"" group:"serve" help:"Run everything in one process on this machine, with a database and a queue of its own."`
	Serve   serveCmd   `cmd:"" group:"serve" help:"Run the API, the result host and the sweeper."`
	Worker  workerCmd  `cmd:"" group:"serve" help:"Take jobs from the queue."`
	Demo    demoCmd    `cmd:"" hidden:"" help:"Run pictures through every task on a temporary dev stack."`
	Migrate migrateCmd `cmd:"" group:"operate" help:"Look after the database's schema."`
	Account accountCmd `cmd:"" group:"operate" help:"Look after accounts and their Point."`
	Key     keyCmd     `cmd:"" group:"operate" help:"Look after API keys."`
	Job     jobCmd     `cmd:"" group:"operate" help:"Look at jobs."`
	Doctor  doctorCmd  `cmd:"" group:"operate" help:"Check the database, the queue, the store, the engine, the models and the books."`
	Config  configCmd  `cmd:"" group:"operate" help:"Show every setting with its value and where that comes from, and check them all."`
	Models  modelsCmd  `cmd:"" group:"operate" help:"Look at the models."`

	RemoveBG removeBGCmd `cmd:"" name:"remove-bg" group:"use" help:"Remove the background of pictures."`
	Upscale  upscaleCmd  `cmd:"" group:"use" help:"Enlarge pictures two or four times."`
}
