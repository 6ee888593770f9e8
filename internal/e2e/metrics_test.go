package e2e_test

import (
	"bytes"
	"testing"

	api "pictor/gen"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
)

func TestMetrics_of_a_worker(t *testing.T) {
	t.Parallel()
	s := start(t, point.Point)
	worker := s.run(t, "worker", "PICTOR_WORKERS=1")
	good := parts.Picture(t, "cup.png")
	for _, picture := range [][]byte{good, good[:len(good)/2]} { // only decoding shows that the second is broken
		_, err := s.client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(picture)}, api.UpscaleParams{Wait: api.NewOptWait(60)})
		must(t, err)
	}
	for series, want := range map[string]float64{
		`pictor_claims_total{outcome="completed",task="upscale-2x"}`:   1,
		`pictor_claims_total{outcome="refused",task="upscale-2x"}`:     1,
		`pictor_picture_seconds_count{task="upscale-2x"}`:              1,
		`pictor_refunds_total{reason="refused"}`:                       1,
		`pictor_queue_seconds_count{task="upscale-2x"}`:                2,
		`pictor_stage_seconds_count{stage="fetch",task="upscale-2x"}`:  2,
		`pictor_stage_seconds_count{stage="decode",task="upscale-2x"}`: 2,
		`pictor_stage_seconds_count{stage="model",task="upscale-2x"}`:  1,
		`pictor_stage_seconds_count{stage="encode",task="upscale-2x"}`: 1,
		`pictor_stage_seconds_count{stage="store",task="upscale-2x"}`:  1,
		`pictor_engine_info{engine="onnxruntime",provider="CPU"}`:      1,
		`pictor_worker_slots`: 1,
		`pictor_worker_busy`:  0,
	} {
		// A client may be answered a moment before the worker counts.
		until(t, series, func() bool { return worker.metric(t, series) == want })
	}
}
