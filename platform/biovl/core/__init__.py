"""Code that all jobs share: settings, folders with manifests, tables, shards. Without Ray."""
