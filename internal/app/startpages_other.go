//go:build !linux

package app

func releaseStartPages() {}
