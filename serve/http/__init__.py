"""What surrounds the endpoints: messages in and out, limits, problems, logs, metrics."""
