package app

// ReleaseStartPages is what a worker does before it takes jobs.
var ReleaseStartPages = releaseStartPages
