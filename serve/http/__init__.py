"""HTTP code that both services share: middleware, limits, problem responses, logs, metrics."""
