-- The trace that a job belongs to outlives its message: the sweeper publishes
-- again without it.

-- +goose Up
alter table jobs add column trace text; -- traceparent of the request, as W3C writes it; null: nobody traces

-- +goose Down
alter table jobs drop column trace;
