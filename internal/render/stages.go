package render

import (
	"context"
	"time"

	"pictor/internal/job"
)

// Stage is a part of the work on a picture.
type Stage string

// The stages of Render, in their order. An enlargement goes back and forth
// between Model and Encode, strip by strip, and has no Matte.
const (
	Decode Stage = "decode"
	Model  Stage = "model"
	Matte  Stage = "matte"
	Encode Stage = "encode"
)

// Lap is the time that a stage of one picture took.
type Lap struct {
	Stage    Stage
	From, To time.Time
	Busy     time.Duration // less than From to To when other stages came between
}

// laps measures the stages of one picture. It belongs to one goroutine.
type laps struct {
	all     []Lap
	current int // in all; -1 before the first
	began   time.Time
}

func newLaps() *laps { return &laps{current: -1} }

// begin ends the current stage and goes on with another, or with none for "".
func (l *laps) begin(stage Stage) {
	now := time.Now()
	if l.current >= 0 {
		lap := &l.all[l.current]
		lap.To = now
		lap.Busy += now.Sub(l.began)
	}
	l.began, l.current = now, -1
	for i, lap := range l.all {
		if lap.Stage == stage {
			l.current = i
		}
	}
	if l.current < 0 && stage != "" {
		l.current = len(l.all)
		l.all = append(l.all, Lap{Stage: stage, From: now})
	}
}

// tell ends the last stage and reports every one.
func (l *laps) tell(ctx context.Context, task job.Task, report func(context.Context, job.Task, Lap)) {
	l.begin("")
	if report == nil {
		return
	}
	for _, lap := range l.all {
		report(ctx, task, lap)
	}
}
